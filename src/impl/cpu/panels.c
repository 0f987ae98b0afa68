/* panels.c: convolutions as matrix products over packed positions, for cores whose multiply-add takes its factor from a
 * lane (NEON).
 *
 *   for n, bands of positions                                   threads, if the bands go round evenly
 *     panel[tile, step, position] = data                        a band's panels stay in the second-level cache
 *     for o (blocks of output channels), tiles of the band      threads, if they do not
 *       tile[position, c] = 0                                   registers
 *       for step: tile += panel[step, position] (a lane) * weight[step, c]
 *       epilogue on the tile, store
 *
 * A step is one tap of one input channel, in the order in which the weight holds them; positions are those of the
 * output plane, row after row without regard to where a row ends, so that every tile but the last is whole.  One load
 * gives a lane to each of four positions: a tile has 24 sums where conv.c, which keeps a register for each position,
 * has 20.  Weight and panels are read straight ahead, and asked for some hundred cycles before: waiting multiply-adds
 * leave such a core little room to look ahead by itself.  The copy pays where enough output channels share it.  With
 * bfloat16 a step is a pair of channels in one word, or four of them, and with bytes eight of them; over fours and
 * eights the tile is made of 2 x 2 blocks (blocks.c).
 *
 * A plane whose extents are not known has so many positions as an expression says: whole tiles are computed, and what
 * is there is stored. */
#include "impl/internal.h"
#include "op/nn_kit.h"

static int64_t dim(const Type *t, int d) { return t->shape[d]->u.i; }

#define PANELS_PLAN(A, S)                                                          \
  A(S, INT, data_block, NULL, "input channels of a block")                         \
  A(S, INT, out_block, NULL, "output channels of a block, and of a register tile") \
  A(S, INT, positions, NULL, "of a register tile")                                 \
  A(S, INT, band, NULL, "tiles whose panels are made together")                    \
  A(S, BOOL, together, NULL, "threads share the output channels of a band; else each has bands of its own")
DEFINE_PLAN(PanelsPlan, PANELS_PLAN)

/* ---- plans ------------------------------------------------------------------------------------------ */

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }

enum { BYTES = 8 }; /* of a step in 2 x 2 blocks */

static double steps_of(const ConvShape *s) { return (double)(s->ig / s->word * s->k[0] * s->k[1]); }

/* Cycles to copy a vector of a panel: squares of positions and channels are turned round in registers; where positions
 * lie apart elements go to their places one by one. */
static double copy_cycles(const ConvShape *s)
{
  static const double TURNED = 2;
  static const double ONE_BY_ONE = 5;
  bool straight = s->k[0] == 1 && s->k[1] == 1 && s->in[0] == s->out[0] && s->in[1] == s->out[1];
  return straight ? TURNED : ONE_BY_ONE;
}

/* Bytes of a step in a panel, for each position or output channel. */
static int64_t step_bytes(const ConvShape *s) { return s->word >= 4 ? 8 : 4; }

/* Multiply-adds of all tiles, those over eight bytes at a time as fast as others begin. */
static double products_seconds(const Target *t, const ConvShape *s, const PanelsPlan *p, double tiles, double flops)
{
  if (s->word == BYTES) {
    double meetings = tiles * (double)(s->o / p->out_block) * steps_of(s);
    return meetings * blocks_step_cycles(t, t->core.fma_bits, p->positions, p->out_block) / (1e9 * t->core.ghz);
  }
  double share = tile_packed_speed(t, 32, p->positions, p->out_block / target_lanes(t, 32));
  return conv_tile_seconds(t, 32, flops, steps_of(s), share) / (s->word > 1 ? cost_words(t, s->word) : 1);
}

static double panels_seconds(const Target *t, const ConvShape *s, const PanelsPlan *p)
{
  int64_t lanes = target_lanes(t, 32);
  int64_t vectors = p->out_block / lanes;
  int64_t positions = s->out[0] * s->out[1];
  double n = s->n ? (double)s->n : 1;
  double tiles = (double)up(positions, p->positions);
  double bands = __builtin_ceil(tiles / (double)p->band);
  double blocks = (double)(s->o / p->out_block);
  double done = n * tiles * (double)p->positions;
  double flops = 2 * done * (double)s->o * steps_of(s) * s->word;
  double products = products_seconds(t, s, p, n * tiles, flops);
  double copied = done * steps_of(s) / (double)lanes * copy_cycles(s) / (1e9 * t->core.ghz);
  double tile = steps_of(s) * (double)(p->positions * step_bytes(s));
  double block = steps_of(s) * (double)(p->out_block * step_bytes(s));
  double meetings = n * tiles * blocks * steps_of(s);
  bool one = p->band == 1;
  double read =
      cost_reads(t, meetings * (double)(p->positions / lanes), one ? tile + block : tile * (double)p->band + block) +
      cost_reads(t, meetings * (double)vectors, one ? tile + block * blocks : tile + block);
  int threads = cost_threads(t, s->word == BYTES ? flops / BYTES : flops, 0);
  static const double BARRIERS = 1.02; /* a band together is two parallel loops */
  double pieces = p->together ? blocks : n * bands;
  return (products + copied + read) * (p->together ? BARRIERS : 1) / threads / cost_busy(pieces, threads);
}

static void add_bands(PlanList *list, const Target *t, const ConvShape *s, PanelsPlan *p)
{
  int64_t tiles = up(s->out[0] * s->out[1], p->positions);
  int64_t bytes = (int64_t)steps_of(s) * p->positions * step_bytes(s);
  int64_t fit = cost_l2(t) / 2 > bytes ? cost_l2(t) / 2 / bytes : 1;
  int64_t bands = up(tiles, fit);
  int64_t threads = t->num_cores > 0 ? t->num_cores : 1;
  /* as few as the cache allows; a number that the threads divide; one each */
  const int64_t try[] = {up(tiles, bands), up(tiles, up(bands, threads) * threads), tiles};
  for (int i = 0; i < 3; i++) {
    bool had = false;
    p->band = s->open ? conv_open_band(fit, i) : try[i];
    for (int k = 0; k < i; k++) had |= (s->open ? conv_open_band(fit, k) : try[k]) == p->band;
    for (int together = 0; together < 2 && !had; together++) {
      p->together = together;
      plan_add(list, p, panels_seconds(t, s, p), steps_of(s) * (double)s->o * 4);
    }
  }
}

static void add_tiles(PlanList *list, const Target *t, const ConvShape *s, PanelsPlan *p)
{
  enum { SERVED = 16 }; /* vectors of output channels that share the copy */
  int64_t lanes = target_lanes(t, 32);
  int64_t vectors = p->out_block / lanes;
  int64_t positions = s->out[0] * s->out[1];
  int64_t panels = s->o / p->out_block;
  if (s->word == 4) {
    p->positions = tile_block_rows(t, p->out_block, panels, positions);
    if (p->positions) add_bands(list, t, s, p);
    return;
  }
  if (t->broadcast_load || lanes < 4 || p->out_block % lanes || panels * vectors < SERVED) return;
  for (int64_t x = lanes; (x <= positions || s->open) && vectors * x + vectors + x / lanes < t->vector_registers;
       x += lanes) {
    p->positions = x;
    if (tile_speed(t, vectors, 1, s->open ? x : positions, (Tile){1, 1, x}) > 0) add_bands(list, t, s, p);
  }
}

/* Over a weight in blocks that end in eight input channels. */
void panels_bytes_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  const Node *c = call->call;
  ConvShape s;
  if (!int8_has_blocks(t, c) || !conv_shape_bytes(c, &s) || s.dims != 2 || s.groups != 1 || s.word != BYTES ||
      !s.data_block || !s.out_block || conv_shape_open(&s) || c->arg[1]->type->ndim != 7 ||
      dim(c->arg[1]->type, 4) * BYTES != s.data_block || s.out_block % 4)
    return;
  PanelsPlan p = {.data_block = s.data_block, .out_block = s.out_block};
  for (int64_t h = 2; h <= t->vector_registers && (h == 2 || h <= s.out[0] * s.out[1] + 1); h += 2) {
    p.positions = h;
    if (blocks_step_cycles(t, t->core.fma_bits, h, p.out_block) > 0) add_bands(list, t, &s, &p);
  }
}

void panels_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  if (!conv_shape(call, &s) || s.dims != 2 || s.groups != 1 || s.bits != 32) return;
  if (conv_shape_open(&s) && s.word == 4) return; /* its blocks want whole tiles */
  PanelsPlan p = {.data_block = s.data_block, .out_block = s.out_block};
  if (s.out_block) {
    const Type *w = call->call->arg[1]->type;
    bool packed = s.data_block && w->ndim == (s.word > 1 ? 7 : 6) && dim(w, 4) * s.word == s.data_block &&
                  (s.word == 4 || dim(w, 4) % 4 == 0);
    if (packed) add_tiles(list, t, &s, &p);
    return;
  }
  if (s.data_block || s.weight_block || s.word > 1) return;
  int64_t data[CONV_BLOCKS], out[CONV_BLOCKS];
  int nd = conv_blocks(t, 32, s.c, data);
  int no = conv_blocks(t, 32, s.o, out);
  list->alters = true;
  for (int o = 0; o < no; o++)
    for (int i = 0; i < nd; i++) {
      p.data_block = list->data_block = data[i];
      p.out_block = list->out_block = out[o];
      add_tiles(list, t, &s, &p);
    }
}

void panels_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const PanelsPlan *p = plan;
  alter_to_blocks(call, p->data_block, p->out_block, out);
}

/* ---- the computation -------------------------------------------------------------------------------- */

typedef struct Window {
  int64_t stride[2], dilation[2], before[2], after[2], k[2], c; /* c: steps in a block of input channels */
  int word;                                                     /* channels of a step */
  bool bytes, blocks; /* of bytes; a step is 64 bits, and sums are in 2 x 2 blocks */
} Window;

static Window window_of(OpCall *c)
{
  const Conv2DAttrs *a = c->attrs;
  Window w = {.k = {dim(c->arg[1], 2), dim(c->arg[1], 3)},
              .c = dim(c->arg[1], 4),
              .word = conv_word_of(a->kernel_layout, c->arg[1]),
              .bytes = c->arg[1]->dtype.bits == 8};
  w.blocks = w.word * c->arg[1]->dtype.bits == 64;
  nn_ints(c, "strides", a->strides, 2, 1, 1, w.stride);
  nn_ints(c, "dilation", a->dilation, 2, 1, 1, w.dilation);
  nn_padding(c, a->padding, 2, w.before, w.after);
  return w;
}

/* Channel block, row, column and channel of a step. */
static void step_parts(Module *m, const Window *w, const Expr *step, const Expr **part)
{
  const int64_t extent[] = {0, w->k[0], w->k[1], w->c};
  for (int i = 3; i > 0; i--) {
    const Expr *n = expr_i32(m, extent[i]);
    part[i] = expr_floormod(m, step, n);
    step = expr_floordiv(m, step, n);
  }
  part[0] = step;
}

/* Words of 64 bits are copied so fast that asking at each tap whether there is data takes longer than the copy: they
 * read data with zeros around. */
static const Tensor *pad_blocks(OpCall *c, Window *w, const Tensor *data)
{
  int64_t before[] = {0, 0, w->before[0], w->before[1], 0};
  int64_t after[] = {0, 0, w->after[0], w->after[1], 0};
  if (!w->blocks || (!before[2] && !before[3] && !after[2] && !after[3])) return data;
  const Tensor *bits = w->bytes ? data : nn_bits(c->m, data);
  for (int d = 0; d < 2; d++) w->before[d] = w->after[d] = 0;
  return nn_pad_constant(c->m, bits, before, after, expr_const(c->m, bits->buffer->dtype, 0), "padded");
}

/* Positions of the output plane. */
static const Expr *all_positions(OpCall *c)
{
  return nn_simplify(c->m, expr_mul(c->m, c->out->shape[2], c->out->shape[3]));
}

/* (n, tiles, steps, positions of a tile), of bytes with those of a step behind; zeros where there is no data and behind
 * the last position. */
static const Tensor *pack_positions(OpCall *c, const Window *w, const Tensor *data, int64_t positions)
{
  Module *m = c->m;
  const Expr *all = all_positions(c);
  int64_t steps = dim(c->arg[1], 1) * w->k[0] * w->k[1] * w->c;
  const Expr *shape[] = {c->out->shape[0], nn_simplify(m, nn_ceildiv(m, all, expr_i32(m, positions))),
                         expr_i32(m, steps), expr_i32(m, positions), expr_i32(m, w->word)};
  Stage s = nn_stage(m, w->bytes ? 5 : 4, shape, w->bytes ? "n tile step position byte" : "n tile step position");
  const Expr *part[4];
  const Expr *at = expr_add(m, expr_mul(m, s.at[1], shape[3]), s.at[3]);
  const Expr *columns = c->out->shape[3];
  const Expr *inside = NULL;
  const Expr *out[] = {expr_floordiv(m, at, columns), expr_floormod(m, at, columns)};
  const Expr *index[5] = {s.at[0]};
  step_parts(m, w, s.at[2], part);
  for (int d = 0; d < 2; d++) {
    const Expr *tap = expr_mul(m, part[1 + d], expr_i32(m, w->dilation[d]));
    const Expr *first = expr_mul(m, out[d], expr_i32(m, w->stride[d]));
    index[2 + d] = expr_sub(m, expr_add(m, first, tap), expr_i32(m, w->before[d]));
    if (w->before[d] || w->after[d]) inside = nn_and(m, inside, nn_inside(m, index[2 + d], data->buffer->shape[2 + d]));
  }
  index[1] = part[0], index[4] = w->word > 1 ? expr_mul(m, part[3], expr_i32(m, w->word)) : part[3];
  if (!known(all) || known(all) % positions) inside = nn_and(m, inside, expr_lt(m, at, all));
  for (int d = 0; d < 5; d++) index[d] = nn_index(&s, index[d]);
  const Expr *element[4];
  const Expr *first = index[4];
  if (w->bytes) index[4] = expr_add(m, first, s.at[4]);
  for (int i = 0; i < (w->bytes ? 1 : w->word); i++) {
    if (i) index[4] = expr_add(m, first, expr_i32(m, i));
    element[i] = nn_read(m, data, index);
  }
  const Expr *value = w->word > 1 && !w->bytes ? nn_word(m, w->word, element) : element[0];
  return nn_finish(&s, "panel", "injective", inside ? nn_if(m, inside, value, expr_const(m, value->dtype, 0)) : value);
}

/* The same over words of 64 bits, a tile in 2 x 2 blocks, whole tiles always. */
static const Tensor *block_compute(OpCall *c, const Window *w, const Tensor *panel, const Tensor *weight)
{
  Module *m = c->m;
  const Type *y = c->out;
  const Expr *const *p = panel->buffer->shape, *two = expr_i32(m, 2), *part[4];
  const Expr *shape[] = {y->shape[0],   y->shape[1], p[1], expr_i32(m, p[3]->u.i / 2), expr_i32(m, dim(y, 4) / 2),
                         expr_i32(m, 4)};
  Stage s = nn_stage(m, 6, shape, "n oc tile row column lane");
  const Expr *step = nn_reduce_axis(&s, "step", p[2]);
  step_parts(m, w, step, part);
  const Expr *row = expr_add(m, expr_mul(m, s.at[3], two), expr_floordiv(m, s.at[5], two));
  const Expr *column = expr_add(m, expr_mul(m, s.at[4], two), expr_floormod(m, s.at[5], two));
  const Expr *from[] = {s.at[0], s.at[2], step, row, NULL};
  const Expr *of[] = {s.at[1], part[0], part[1], part[2], part[3], column, NULL};
  const Expr *term = w->bytes ? int8_eights_dot(m, panel, from, weight, of)
                              : nn_word_dot(m, nn_read(m, panel, from), nn_word_at(m, weight, of));
  const Tensor *sum = nn_sum(&s, "product", "conv2d_panels", term, y->dtype);
  Stage plane = nn_stage(m, 5, y->shape, "n oc oh ow oc_block");
  const Expr *at = expr_add(m, expr_mul(m, plane.at[2], y->shape[3]), plane.at[3]);
  return nn_finish(&plane, "conv2d_panels", "injective", blocks_read(m, sum, 2, plane.at, at, p[3]->u.i, plane.at[4]));
}

void panels_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  Module *m = c->m;
  Window w = window_of(c);
  const Type *y = c->out;
  int64_t positions = ((const PanelsPlan *)plan)->positions;
  const Tensor *data = pad_blocks(c, &w, in[0]);
  const Tensor *panel = pack_positions(c, &w, data, positions);
  if (w.blocks) {
    *out = block_compute(c, &w, panel, in[1]);
    return;
  }
  const Expr *x = expr_i32(m, positions);
  const Expr *all = all_positions(c);
  if (!known(all)) all = nn_simplify(m, expr_mul(m, panel->buffer->shape[1], x));
  const Expr *shape[] = {y->shape[0], y->shape[1], all, y->shape[4]};
  const Expr *part[4];
  Stage s = nn_stage(m, 4, shape, "n oc position oc_block");
  const Expr *step = nn_reduce_axis(&s, "step", panel->buffer->shape[2]);
  step_parts(m, &w, step, part);
  const Expr *from[] = {s.at[0], expr_floordiv(m, s.at[2], x), step, expr_floormod(m, s.at[2], x)};
  const Expr *weight[] = {s.at[1], part[0], part[1], part[2], part[3], s.at[3]};
  const Expr *element = nn_read(m, panel, from);
  const Expr *term = w.word > 1 ? nn_word_dot(m, element, nn_word_at(m, in[1], weight))
                                : expr_mul(m, element, nn_read(m, in[1], weight));
  const Tensor *sum = nn_sum(&s, "product", "conv2d_panels", term, y->dtype);
  Stage plane = nn_stage(m, 5, y->shape, "n oc oh ow oc_block");
  const Expr *at[] = {plane.at[0], plane.at[1], expr_add(m, expr_mul(m, plane.at[2], y->shape[3]), plane.at[3]),
                      plane.at[4]};
  *out = nn_finish(&plane, "conv2d_panels", "injective", nn_read(m, sum, at));
}

/* ---- the schedule ------------------------------------------------------------------------------------ */

/* Positions side by side in the output read data side by side: a kernel of one tap that leaves none out. */
static bool is_straight(const Node *call)
{
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  const Type *y = call->type;
  return dim(w, 2) == 1 && dim(w, 3) == 1 && x->shape[2] == y->shape[2] && x->shape[3] == y->shape[3];
}

static bool has_bytes(const Node *call) { return call->arg[1]->type->dtype.bits == 8; }

static bool has_blocks(const Node *call)
{
  int word = conv_word_of(((const Conv2DAttrs *)call->u.call.attrs)->kernel_layout, call->arg[1]->type);
  return word * call->arg[1]->type->dtype.bits == 64;
}

enum { SIDE = 4 }; /* of a square: the elements of NEON's vectors */

void panels_turn(ImplGroup *g, BlockRV packing)
{
  LoopRV *loop, line, lane;
  int n = sched_get_loops(g->s, packing, g->arena, &loop);
  LoopRV step = generic_split_by(g, loop[n - 2], SIDE, &line);
  LoopRV part = generic_split_by(g, loop[n - 1], SIDE, &lane);
  sched_reorder(g->s, 4, (const LoopRV[]){step, part, line, lane});
  sched_unroll(g->s, part), sched_unroll(g->s, line);
  sched_vectorize(g->s, lane);
}

/* Words one by one, those of a line of the panel side by side. */
static void pack_words(ImplGroup *g, LoopRV step, LoopRV position)
{
  const Type *w = g->anchor->arg[1]->type;
  LoopRV taps, c;
  LoopRV blocks = generic_split_by(g, step, dim(w, 2) * dim(w, 3) * dim(w, 4), &taps);
  LoopRV tap = generic_split_by(g, taps, dim(w, 4), &c);
  sched_reorder(g->s, 4, (const LoopRV[]){blocks, tap, position, c});
  sched_unroll(g->s, position), sched_unroll(g->s, c);
}

/* Squares of positions and channels; or, where positions lie apart, vectors of channels whose elements
 * go to their places one by one. */
static void schedule_packing(ImplGroup *g, BlockRV panel, bool inside, bool parallel)
{
  LoopRV *loop, lane;
  int n = sched_get_loops(g->s, panel, g->arena, &loop);
  const Type *w = g->anchor->arg[1]->type;
  if (has_bytes(g->anchor)) sched_vectorize(g->s, loop[--n]);
  if (parallel) sched_parallel(g->s, inside ? loop[n - 3] : sched_fuse(g->s, 2, loop, true));
  if (has_blocks(g->anchor)) {
    pack_words(g, loop[n - 2], loop[n - 1]);
    return;
  }
  if (is_straight(g->anchor)) {
    panels_turn(g, panel);
    return;
  }
  LoopRV taps, c, tap, part;
  LoopRV position = loop[n - 1];
  LoopRV blocks = generic_split_by(g, loop[n - 2], dim(w, 2) * dim(w, 3) * dim(w, 4), &taps);
  tap = generic_split_by(g, taps, dim(w, 4), &c);
  part = generic_split_by(g, c, SIDE, &lane);
  sched_reorder(g->s, 5, (const LoopRV[]){blocks, position, tap, part, lane});
  sched_unroll(g->s, tap), sched_unroll(g->s, part);
  sched_vectorize(g->s, lane);
}

void panels_fetch(ImplGroup *g, BlockRV product, LoopRV step, const Buffer *alone)
{
  enum { AHEAD = 1280 }; /* bytes: some hundred cycles */
  const Block *b = sched_block_stmt(g->s, product)->u.block;
  for (int i = 0; i < b->nreads; i++) {
    const Buffer *r = b->reads[i].buffer;
    if (r == b->writes[0].buffer || (alone && r != alone)) continue;
    int64_t bytes = r->shape[r->ndim - 1]->u.i * dtype_bytes(r->dtype);
    if (dtype_eq(r->dtype, DT_BF16) || r->dtype.bits == 8) bytes *= r->shape[r->ndim - 2]->u.i; /* groups */
    group_prefetch(g, product, i, step, (AHEAD + bytes - 1) / bytes);
  }
}

/* The product's loops inside a tile: steps, positions, channels.  Gives the loop over steps that is written out. */
static LoopRV lanes_tile(ImplGroup *g, BlockRV product, int64_t positions, int64_t steps)
{
  LoopRV *inner, step;
  int depth = sched_get_loops(g->s, product, g->arena, &inner);
  LoopRV sum = generic_split_by(
      g, inner[depth - 1],
      tile_steps(g->target, positions * alter_block_vectors(dim(g->anchor->type, 4), target_lanes(g->target, 32)),
                 steps),
      &step);
  sched_reorder(g->s, 4, (const LoopRV[]){sum, step, inner[depth - 3], inner[depth - 2]});
  sched_unroll(g->s, step), sched_unroll(g->s, inner[depth - 3]);
  sched_vectorize(g->s, inner[depth - 2]);
  sched_set_scope(g->s, product, 0, "local");
  sched_decompose_reduction(g->s, product, sum);
  return step;
}

void panels_schedule(ImplGroup *g)
{
  BlockRV padded;
  if (group_find_stage(g, "padded", &padded)) generic_keep(g, padded);
  generic_inline(g);
  BlockRV product = group_sum(g);
  BlockRV panel = group_stage(g, "panel");
  BlockRV store = group_only_reader(g, product);
  const Buffer *panels = sched_block_stmt(g->s, panel)->u.block->writes[0].buffer;
  ConvShape shape;
  if (!conv_shape_bytes(g->anchor, &shape))
    conv_shape(&(ImplCall){g->src, g->arena, g->target, g->config, g->anchor}, &shape);
  conv_shape_open(&shape);
  int64_t steps = panels->shape[2]->u.i;
  int64_t positions = panels->shape[3]->u.i;
  int threads = cost_threads(g->target, conv_shape_flops(&shape) / (shape.word == BYTES ? BYTES : 1), 0);
  const PanelsPlan *way = g->plan;
  LoopRV *loop, pi, ti, step;
  if (sched_get_loops(g->s, store, g->arena, &loop) != 5)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the result's loops are not those of NCHWc");
  LoopRV n = loop[0];
  LoopRV o = loop[1];
  LoopRV c = loop[4];
  LoopRV bands =
      generic_split_by(g, generic_split_by(g, sched_fuse(g->s, 2, loop + 2, true), positions, &pi), way->band, &ti);
  /* where their number is not known, bands are not counted together with images */
  LoopRV order[] = {shape.open ? bands : n, shape.open ? n : bands, o, ti, pi, c};
  sched_reorder(g->s, 6, order);
  sched_compute_at(g->s, product, ti, true, -1);
  epilogue_write_out(g, store, 4, true);
  step = has_blocks(g->anchor) ? blocks_tile(g, product, steps) : lanes_tile(g, product, positions, steps);
  bool several = shape.open || way->band < panels->shape[1]->u.i;
  LoopRV outer = shape.open ? n : sched_fuse(g->s, 2, order, true);
  LoopRV shared = way->together ? o : shape.open ? bands : outer;
  if (way->together && !several) shared = sched_fuse(g->s, 2, (const LoopRV[]){outer, o}, true);
  if (several) sched_compute_at(g->s, panel, outer, false, -1);
  if (threads > 1) sched_parallel(g->s, shared);
  schedule_packing(g, panel, several, way->together && threads > 1);
  panels_fetch(g, product, step, NULL);
  generic_rest(g);
}
