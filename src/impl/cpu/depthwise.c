/* depthwise.c: filters over one or a few channels each, over blocks of channels: depthwise convolutions, and
 * groups narrower than a block.
 *
 *   for n, channel block, band of rows                         threads
 *     the band's data with its padding, where it is copied     stays in the cache
 *     for y, x (tiles)
 *       tile[x, c] = sum over i, ky, kx of data[i, y + ky, x + kx, c] * weight[i, ky, kx, c]
 *
 * Everything is a vector of output channels.  The taps are written out, so that neighbouring outputs
 * share what they read.  A depthwise convolution has no i.  Where a group has several channels, the
 * band's data is spread: data[i, …, c] is the i-th input channel of the group that c is in, so that
 * a vector may hold several groups and no product is made for nothing.
 *
 * Where rows and columns are known only at run time (depthwise ones of two dimensions) the band's data is always
 * copied, with zeros behind the end of a row for the last tile: whole tiles are computed, what is there is stored. */
#include "impl/internal.h"
#include "op/nn_kit.h"

static const Conv2DAttrs *attrs_of(const Node *call) { return call->u.call.attrs; }

static int64_t dim(const Type *t, int d) { return t->shape[d]->u.i; }

DEFINE_PLAN_TABLE(DepthwisePlan, DEPTHWISE_PLAN)

/* One input and one output channel a group, both in the same blocks. */
bool depthwise_fits(const Node *call)
{
  const Conv2DAttrs *a = attrs_of(call);
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  if (!conv_is_blocked(call) || w->ndim != call->type->ndim || x->ndim != call->type->ndim) return false;
  int last = x->ndim - 1;
  return a->groups > 1 && dim(w, 1) == 1 && dim(x, 1) == dim(call->type, 1) && dim(x, last) == dim(call->type, last) &&
         a->groups == dim(x, 1) * dim(x, last);
}

/* ---- plans ------------------------------------------------------------------------------------ */

enum { WRITTEN = 49 }; /* taps of a row that are written out at most */

/* Taps that are written out for each output: of a row where there are several rows. */
static int64_t taps_inside(const ConvShape *s)
{
  int64_t taps = 1;
  if (s->dims > 1 && s->k[s->dims - 2] > 1) return s->k[s->dims - 1];
  for (int d = 0; d < s->dims; d++) taps *= s->k[d];
  return taps;
}

/* Rows of a band: as many as a quarter of the second-level cache holds with their padding, so
 * few that each thread gets several; a divisor. */
static int64_t band_rows(const Target *t, const ConvShape *s, int64_t block, int threads)
{
  if (s->dims < 2) return 1;
  int64_t oy = s->out[s->dims - 2];
  int64_t best = 1;
  int64_t taps = s->k[s->dims - 2];
  int64_t width = s->out[s->dims - 1] + s->k[s->dims - 1] - 1;
  int64_t outer = s->o / block * (s->n ? s->n : 1);
  int64_t cache = cost_l2(t) / 4;
  int64_t row = width * s->ig * block * s->bits / 8;
  if (s->dims > 2) outer *= s->out[0], row *= s->k[0];
  for (int64_t r = 1; r <= oy; r++)
    if (oy % r == 0 && (r == 1 || ((r + taps - 1) * row <= cache && (threads < 2 || outer * (oy / r) >= 4 * threads))))
      best = r;
  return best;
}

/* Seconds of so many products, each output's taps one after the other on as many vectors as a tile has: multiply-adds,
 * or the loads of data and weight; and what is read and written, from the caches. */
static double depthwise_seconds(const Target *t, const ConvShape *s, const DepthwisePlan *p)
{
  int64_t lanes = target_lanes(t, s->bits);
  int64_t vectors = alter_block_vectors(p->block, lanes);
  int64_t columns = s->out[s->dims - 1];
  double n = s->n ? (double)s->n : 1;
  double taps = (double)s->ig;
  double outputs = n * (double)(s->o / p->block * vectors);
  double in = n * (double)s->c * s->bits / 8;
  double out = n * (double)s->o * s->bits / 8;
  for (int d = 0; d < s->dims; d++) {
    taps *= (double)s->k[d];
    outputs *= (double)s->out[d];
    in *= (double)s->in[d];
    out *= (double)s->out[d];
  }
  /* a row of taps over x neighbours reads what they share once; the weight's taps once for all of them */
  double x = (double)p->x;
  double kx = (double)s->k[s->dims - 1];
  double shared = ((x - 1) * (double)s->stride[s->dims - 1] + kx) / (x * kx);
  if (shared > 1) shared = 1;
  double loads = taps * (shared + 1 / x) / cost_loads(t);
  double sums = taps / cost_pipes(t);
  double wait = taps * t->core.fma_latency / (x * (double)vectors);
  double cycles = sums > loads ? sums : loads;
  if (wait > cycles) cycles = wait;
  double tail = (double)((columns + p->x - 1) / p->x * p->x) / (double)columns;
  /* rows that bands share, and the edges at which they begin and end, are gone over again for each */
  double again = s->dims > 1 ? 1 + 0.5 * (double)(s->k[s->dims - 2] - 1) / (double)p->band : 1;
  double seconds = outputs * (cycles * tail + 1.5) * again / (1e9 * t->core.ghz);
  double moved = (in + out) / cost_cache(t);
  if (s->ig > 1) moved += 2 * in * (double)s->og / cost_cache(t); /* data is spread first */
  int threads = cost_threads(t, 2 * outputs * taps * (double)lanes, in + out);
  double pieces = n * (double)(s->o / p->block) * (s->dims > 1 ? (double)(s->out[s->dims - 2] / p->band) : 1);
  return (seconds > moved ? seconds : moved) / threads / cost_busy(pieces, threads);
}

/* Columns of a tile share taps and stay in half of the registers; divisors of the row, or as many as may be. */
static void add_tiles(PlanList *list, const Target *t, const ConvShape *s, int64_t block)
{
  enum { STEPS = 256 }; /* written out; rows of 7 and 14 with 5 x 5 taps */
  int64_t vectors = alter_block_vectors(block, target_lanes(t, s->bits));
  int64_t inner = taps_inside(s);
  int64_t width = s->out[s->dims - 1];
  int64_t most = t->vector_registers / 2 / vectors;
  if (most * inner > STEPS) most = STEPS / inner;
  if (most < 1) most = 1;
  double flops = 2 * (double)(s->n ? s->n : 1) * (double)(s->o * s->ig);
  for (int d = 0; d < s->dims; d++) flops *= (double)(s->out[d] * s->k[d]);
  int threads = cost_threads(t, flops, 0);
  double bytes = (double)(s->o * s->ig) * s->bits / 8;
  for (int d = 0; d < s->dims; d++) bytes *= (double)s->k[d];
  for (int64_t x = 1; x <= most && x <= width; x++) {
    if (width % x && x != most) continue;
    DepthwisePlan p = {.block = block, .x = x, .band = band_rows(t, s, block, threads)};
    plan_add(list, &p, depthwise_seconds(t, s, &p), bytes);
    if (p.band == 1) continue;
    p.band = 1;
    plan_add(list, &p, depthwise_seconds(t, s, &p), bytes);
  }
}

static bool sizes_known(const ConvShape *s)
{
  for (int d = 0; d < s->dims; d++)
    if (!s->in[d] || !s->out[d]) return false;
  return !s->transposed && s->groups > 1 && s->word == 1;
}

void depthwise_plans(const ImplCall *call, PlanList *list)
{
  ConvShape s;
  int64_t block[CONV_BLOCKS];
  if (!conv_shape(call, &s) || !sizes_known(&s) || s.ig != 1 || s.og != 1) return;
  if (s.out_block) {
    if (depthwise_fits(call->call)) add_tiles(list, call->target, &s, s.out_block);
    return;
  }
  if (s.data_block || s.weight_block) return;
  int n = conv_blocks(call->target, s.bits, s.c, block);
  list->alters = true;
  for (int i = 0; i < n; i++) {
    list->data_block = list->out_block = block[i];
    add_tiles(list, call->target, &s, block[i]);
  }
}

void depthwise_alter(const ImplCall *call, const void *plan, AlteredCall *out)
{
  const DepthwisePlan *p = plan;
  ConvShape s;
  int64_t data[CONV_BLOCKS];
  conv_shape(call, &s);
  /* narrow groups take data in its usual blocks */
  bool spread = s.ig > 1 || s.og > 1;
  int n = spread ? conv_blocks(call->target, s.bits, s.c, data) : 0;
  alter_to_blocks(call, spread ? (n ? data[0] : 0) : p->block, p->block, out);
  if (spread) alter_whole_weight(call, p->block, out);
}

/* Groups narrower than a vector, of which a block of output channels has several. */
void depthwise_lanes_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  ConvShape s;
  int64_t block[CONV_BLOCKS], data[CONV_BLOCKS];
  if (!conv_shape(call, &s) || !sizes_known(&s) || (s.ig == 1 && s.og == 1)) return;
  int64_t lanes = target_lanes(t, s.bits);
  if (s.out_block) {
    if (conv_is_blocked(call->call) && !conv_groups_wide(t, call->call) &&
        call->call->arg[1]->type->ndim == call->call->type->ndim)
      add_tiles(list, t, &s, s.out_block);
    return;
  }
  if (s.data_block || s.weight_block || s.og >= lanes || s.ig > 2 * lanes) return;
  int n = conv_blocks(t, s.bits, s.o, block);
  int nd = conv_blocks(t, s.bits, s.c, data);
  list->alters = true;
  list->data_block = nd ? data[0] : 0;
  for (int i = 0; i < n; i++) {
    bool wide = s.og % block[i] == 0 || (block[i] % s.og == 0 && 2 * s.og >= lanes);
    list->out_block = block[i];
    if (!wide) add_tiles(list, t, &s, block[i]);
  }
}

/* Tiles and bands of extents that are not known: what may be does not depend on what they are. */
static void add_open_tiles(PlanList *list, const Target *t, ConvShape *s, int64_t block)
{
  static const int64_t bands[] = {4, 16};
  int64_t vectors = alter_block_vectors(block, target_lanes(t, s->bits));
  int64_t most = t->vector_registers / 2 / vectors;
  double copied = 1.5 * (double)(s->n ? s->n : 1) * (double)(s->c * s->in[0] * s->in[1] * s->bits) / 8 / cost_cache(t);
  for (int64_t x = 2; x <= most; x += 2)
    for (int b = 0; b < 2; b++) {
      DepthwisePlan p = {.block = block, .x = x, .band = bands[b]};
      double again = 1 + (double)((s->k[0] - 1) * s->dilation[0]) / (double)(bands[b] * s->stride[0]);
      double bytes = (double)(s->o * s->k[0] * s->k[1]) * s->bits / 8;
      plan_add(list, &p, depthwise_seconds(t, s, &p) + again * copied, bytes);
    }
}

void depthwise_open_plans(const ImplCall *call, PlanList *list)
{
  ConvShape s;
  int64_t block[CONV_BLOCKS];
  if (!conv_shape(call, &s) || s.dims != 2 || s.transposed || s.groups < 2 || s.ig != 1 || s.og != 1 || s.word > 1 ||
      s.bits < 32 || !conv_shape_open(&s))
    return;
  if (s.out_block) {
    bool blocks = s.data_block == s.out_block && s.weight_block == s.out_block && call->call->arg[1]->type->ndim == 5;
    if (blocks) add_open_tiles(list, call->target, &s, s.out_block);
    return;
  }
  if (s.data_block || s.weight_block || !s.constant) return;
  int n = conv_blocks(call->target, s.bits, s.c, block);
  list->alters = true;
  for (int i = 0; i < n; i++) {
    list->data_block = list->out_block = block[i];
    add_open_tiles(list, call->target, &s, block[i]);
  }
}

/* ---- groups narrower than a block ------------------------------------------------------------- */

typedef struct Spread {
  int dims;
  int64_t block, data_block; /* of the output; of the data, 0: plain */
  int64_t ig, og;
  int64_t k[3], stride[3], dilation[3], before[3], after[3];
} Spread;

static Spread spread_of(OpCall *c)
{
  const Conv2DAttrs *a = c->attrs;
  int dims = c->out->ndim - 3;
  Spread v = {.dims = dims,
              .block = dim(c->out, dims + 2),
              .data_block = conv_block(a->data_layout, dims),
              .ig = dim(c->arg[1], 1)};
  v.og = dim(c->out, 1) * v.block / a->groups;
  for (int d = 0; d < dims; d++) v.k[d] = dim(c->arg[1], 2 + d);
  nn_ints(c, "strides", a->strides, dims, 1, 1, v.stride);
  nn_ints(c, "dilation", a->dilation, dims, 1, 1, v.dilation);
  nn_padding(c, a->padding, dims, v.before, v.after);
  return v;
}

/* Where input channel i of the group of output channel (block oo, lane c) lies.  The plain division is right
 * for any blocks; where one block of the output reads from one of the data, its lanes are told apart by
 * constants. */
static void channel_at(Stage *s, const Spread *v, const Expr *oo, const Expr *lane, const Expr *i, const Expr **block,
                       const Expr **inner)
{
  Module *m = s->m;
  int64_t reads = v->block % v->og ? 0 : v->block / v->og * v->ig; /* channels that a block reads */
  if (reads && v->data_block && v->data_block % reads == 0) {
    const Expr *per = expr_i32(m, v->data_block / reads);
    const Expr *own = expr_mul(m, expr_floordiv(m, lane, expr_i32(m, v->og)), expr_i32(m, v->ig));
    *block = nn_index(s, expr_floordiv(m, oo, per));
    *inner = nn_index(s, expr_add(m, expr_mul(m, expr_floormod(m, oo, per), expr_i32(m, reads)), expr_add(m, own, i)));
    return;
  }
  const Expr *o = expr_add(m, expr_mul(m, oo, expr_i32(m, v->block)), lane);
  const Expr *channel = expr_add(m, expr_mul(m, expr_floordiv(m, o, expr_i32(m, v->og)), expr_i32(m, v->ig)), i);
  const Expr *size = expr_i32(m, v->data_block);
  *block = nn_index(s, v->data_block ? expr_floordiv(m, channel, size) : channel);
  *inner = v->data_block ? nn_index(s, expr_floormod(m, channel, size)) : NULL;
}

/* data[n, oo, i, …, c]: padded, and for each output channel what it multiplies. */
static const Tensor *spread_data(Module *m, const Spread *v, const Tensor *x, const Type *out)
{
  const Expr *shape[MAX_RANK] = {out->shape[0], out->shape[1], expr_i32(m, v->ig)};
  const Expr *from[MAX_RANK];
  const Expr *cond = NULL;
  int n = v->dims + 4;
  for (int d = 0; d < v->dims; d++)
    shape[3 + d] = expr_i32(m, (dim(out, 2 + d) - 1) * v->stride[d] + (v->k[d] - 1) * v->dilation[d] + 1);
  shape[n - 1] = expr_i32(m, v->block);
  Stage s = nn_stage(m, n, shape, NULL);
  from[0] = s.at[0];
  channel_at(&s, v, s.at[1], s.at[n - 1], s.at[2], &from[1], &from[2 + v->dims]);
  for (int d = 0; d < v->dims; d++) {
    from[2 + d] = expr_sub(m, s.at[3 + d], expr_i32(m, v->before[d]));
    if (v->before[d] || v->after[d]) cond = nn_and(m, cond, nn_inside(m, from[2 + d], x->buffer->shape[2 + d]));
  }
  const Expr *value = nn_read(m, x, from);
  return nn_finish(&s, "data_lanes", "injective,pad",
                   cond ? nn_if(m, cond, value, expr_const(m, value->dtype, 0)) : value);
}

void depthwise_lanes_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  Spread v = spread_of(c);
  const Tensor *data = spread_data(m, &v, in[0], c->out);
  static const char *const taps[] = {"rz", "ry", "rx"};
  int n = c->out->ndim;
  Stage s = nn_stage(m, n, c->out->shape, NULL);
  const Expr *i = nn_reduce_axis(&s, "rc", expr_i32(m, v.ig));
  const Expr *x[MAX_RANK] = {s.at[0], s.at[1], i};
  const Expr *w[MAX_RANK] = {s.at[1], i};
  for (int d = 0; d < v.dims; d++) {
    const Expr *k = w[2 + d] = nn_reduce_axis(&s, taps[3 - v.dims + d], expr_i32(m, v.k[d]));
    x[3 + d] =
        expr_add(m, expr_mul(m, s.at[2 + d], expr_i32(m, v.stride[d])), expr_mul(m, k, expr_i32(m, v.dilation[d])));
  }
  x[n] = w[n - 1] = s.at[n - 1];
  DType sum = nn_accumulator(c->out->dtype);
  const Expr *term = expr_mul(m, expr_cast(m, sum, nn_read(m, data, x)), expr_cast(m, sum, nn_read(m, in[1], w)));
  *out = nn_sum(&s, "conv_lanes", "conv_lanes", term, c->out->dtype);
}

/* ---- extents that are not known ------------------------------------------------------------------ */

static const Expr *whole_tiles(Module *m, const Expr *n, int64_t by)
{
  return nn_simplify(m, expr_mul(m, nn_ceildiv(m, n, expr_i32(m, by)), expr_i32(m, by)));
}

/* Data with zeros around it, as far as whole tiles of so many rows and columns read: (n, block, y, x, c). */
static const Tensor *copy_open(Module *m, const Spread *v, const Tensor *x, const Expr *const *out)
{
  const Expr *shape[5] = {out[0], out[1], NULL, NULL, out[4]};
  for (int d = 0; d < 2; d++) {
    const Expr *steps = expr_mul(m, expr_sub(m, out[2 + d], expr_i32(m, 1)), expr_i32(m, v->stride[d]));
    shape[2 + d] = nn_simplify(m, expr_add(m, steps, expr_i32(m, (v->k[d] - 1) * v->dilation[d] + 1)));
  }
  Stage s = nn_stage(m, 5, shape, NULL);
  const Expr *from[5] = {s.at[0], s.at[1], NULL, NULL, s.at[4]};
  const Expr *inside = NULL;
  for (int d = 0; d < 2; d++) {
    from[2 + d] = expr_sub(m, s.at[2 + d], expr_i32(m, v->before[d]));
    inside = nn_and(m, inside, nn_inside(m, from[2 + d], x->buffer->shape[2 + d]));
  }
  const Expr *value = nn_read(m, x, from);
  return nn_finish(&s, "padded", "injective,pad", nn_if(m, inside, value, expr_const(m, value->dtype, 0)));
}

void depthwise_open_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  const DepthwisePlan *p = plan;
  Module *m = c->m;
  Spread v = spread_of(c);
  const Expr *const *y = c->out->shape;
  const Expr *shape[] = {y[0], y[1], y[2], whole_tiles(m, y[3], p->x), y[4]};
  const Tensor *data = copy_open(m, &v, in[0], shape);
  Stage s = nn_stage(m, 5, shape, NULL);
  const Expr *x[5] = {s.at[0], s.at[1], NULL, NULL, s.at[4]};
  const Expr *w[5] = {s.at[1], expr_i32(m, 0), NULL, NULL, s.at[4]};
  for (int d = 0; d < 2; d++) {
    w[2 + d] = nn_reduce_axis(&s, d ? "rx" : "ry", expr_i32(m, v.k[d]));
    x[2 + d] = expr_add(m, expr_mul(m, s.at[2 + d], expr_i32(m, v.stride[d])),
                        expr_mul(m, w[2 + d], expr_i32(m, v.dilation[d])));
  }
  const Expr *term = expr_mul(m, nn_read(m, data, x), nn_read(m, in[1], w));
  const Tensor *sum = nn_sum(&s, "product", "conv_lanes", term, c->out->dtype);
  Stage o = nn_stage(m, 5, y, NULL);
  *out = nn_finish(&o, "depthwise_open", "injective", nn_read(m, sum, o.at));
}

void depthwise_open_schedule(ImplGroup *g)
{
  const DepthwisePlan *p = g->plan;
  BlockRV copy = group_stage(g, "padded");
  generic_keep(g, copy);
  generic_inline(g);
  BlockRV product = group_sum(g);
  LoopRV *l, yi, xi, *rows;
  if (sched_get_loops(g->s, product, g->arena, &l) != 7)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not those of a depthwise convolution");
  LoopRV band = generic_split_by(g, l[2], p->band, &yi);
  LoopRV tile = generic_split_by(g, l[3], p->x, &xi);
  /* images inside, so that threads share blocks of channels, whose number is known */
  sched_reorder(g->s, 9, (const LoopRV[]){l[1], l[0], band, yi, tile, l[5], xi, l[6], l[4]});
  epilogue_write_out(g, impl_attach_epilogue(g, product, tile), 5, false);
  sched_unroll(g->s, xi), sched_unroll(g->s, l[6]);
  sched_vectorize(g->s, l[4]);
  sched_decompose_reduction(g->s, product, l[5]);
  sched_compute_at(g->s, copy, band, false, -1);
  int n = sched_get_loops(g->s, copy, g->arena, &rows);
  sched_vectorize(g->s, rows[n - 1]);
  ImplCall of = {g->src, g->arena, g->target, g->config, g->anchor};
  ConvShape s;
  conv_shape(&of, &s);
  conv_shape_open(&s);
  if (cost_threads(g->target, conv_shape_flops(&s), 0) > 1) sched_parallel(g->s, l[1]);
  generic_rest(g);
}

/* ---- the schedule ------------------------------------------------------------------------------ */

/* The stage that pads or spreads the data, where there is one that was not put into the sum. */
static bool padding_block(ImplGroup *g, BlockRV conv, BlockRV *out)
{
  BlockRV *from;
  int n = sched_get_producers(g->s, conv, g->arena, &from);
  for (int i = 0; i < n; i++) {
    const Block *b = sched_block_stmt(g->s, from[i])->u.block;
    if (!nest_block_is_injective(b) || (!str_starts(b->name, "pad_temp") && !str_starts(b->name, "data_lanes")))
      continue;
    *out = from[i];
    return true;
  }
  return false;
}

/* Is the data read where it lies, its padding decided by conditions?  The lowering cuts the loops over rows, columns
 * and rows of taps where these begin to hold, so that no condition is left at run time; a copy is a load and a store
 * for every vector, a fifth of a layer of stride 1.  (Measured on AArch64 alone; the cut loops are more code.) */
static bool reads_in_place(const Target *t) { return t->arch == ARCH_AARCH64; }

/* Spread data is written a vector of channels at a time, all of a position's in turn: loops band, n, o, i, …, c. */
static void schedule_spread(ImplGroup *g, BlockRV spread)
{
  LoopRV *l, order[NEST_LOOPS];
  int n = sched_get_loops(g->s, spread, g->arena, &l);
  int k = 0;
  for (int i = 4; i < n - 1; i++) order[k++] = l[i];
  order[k++] = l[3];
  sched_reorder(g->s, k, order);
  sched_vectorize(g->s, l[n - 1]);
}

/* Without vectors the channels of a block have nothing in common but their place.  One at a time leaves the registers
 * to the sums of a row's neighbours, which share their data and the channel's weights, bias and scale. */
bool depthwise_one_channel(const Target *t) { return t->device.kind == DEVICE_MICRO && !target_has_quads(t); }

static void write_out_columns(ImplGroup *g, BlockRV store, int outer)
{
  LoopRV *l;
  int n = sched_get_loops(g->s, store, g->arena, &l);
  for (int i = outer; i < n; i++) sched_unroll(g->s, l[i]);
}

void depthwise_schedule(ImplGroup *g)
{
  Nest *n;
  ConvLoops l;
  BlockRV conv = conv_begin(g, &n, &l);
  BlockRV pad;
  const DepthwisePlan *plan = g->plan;
  int64_t taps = 1;
  int64_t channels = 1;
  for (int i = l.first; i < n->n - l.dims; i++) channels *= n->loop[i].extent;
  for (int i = n->n - l.dims; i < n->n; i++) taps *= n->loop[i].extent;
  double bytes = 2 * n->iterations / (double)(taps * channels) * n->bits / 8;
  int threads = cost_threads(g->target, 2 * n->iterations, bytes);
  bool padded = padding_block(g, conv, &pad);
  bool spread = padded && str_starts(sched_block_stmt(g->s, pad)->u.block->name, "data_lanes");
  /* Rows of taps have nothing in common: they are a loop.  Taps of a row are written out for one position after the
   * other: what neighbours share is used before much else is read. */
  bool rows = l.dims > 1 && n->loop[n->n - 2].extent > 1;
  bool in_place = padded && !spread && reads_in_place(g->target);
  if (in_place) sched_compute_inline(g->s, pad);
  int64_t inner = rows ? n->loop[n->n - 1].extent : taps;
  LoopRV order[NEST_LOOPS + 3], xi;
  LoopRV yi = {-1};
  int k = 0;
  for (int i = 0; i < 2; i++) order[k++] = n->loop[i].rv;
  if (l.z >= 0) order[k++] = n->loop[l.z].rv;
  if (l.y >= 0) order[k++] = generic_split_by(g, n->loop[l.y].rv, padded ? plan->band : 1, &yi);
  int shared = k;
  if (l.y >= 0) order[k++] = yi;
  bool single = depthwise_one_channel(g->target);
  bool quads = target_has_quads(g->target) && !dtype_is_float(g->anchor->type->dtype);
  LoopRV c = n->loop[l.c].rv;
  if (single) order[k++] = c;
  if (quads) order[k++] = generic_split_by(g, c, QUAD, &c);
  order[k++] = generic_split_by(g, n->loop[l.x].rv, plan->x, &xi);
  int outer = k;
  for (int i = l.first; i < n->n - 1; i++) order[k++] = n->loop[i].rv;
  if (inner > WRITTEN) order[k++] = n->loop[n->n - 1].rv;
  order[k++] = xi;
  if (inner <= WRITTEN) order[k++] = n->loop[n->n - 1].rv;
  if (!single) order[k++] = c;
  sched_reorder(g->s, k, order);
  BlockRV store = impl_attach_epilogue(g, conv, order[outer - 1]);
  if (single) write_out_columns(g, store, outer);
  else epilogue_write_out(g, store, outer, rows);
  for (int i = n->n - l.dims; i < n->n && inner <= WRITTEN; i++)
    if (!rows || i == n->n - 1) sched_unroll(g->s, n->loop[i].rv);
  sched_unroll(g->s, xi);
  if (!single) sched_vectorize(g->s, c);
  sched_decompose_reduction(g->s, conv, order[outer]);
  if (padded && !in_place) sched_compute_at(g->s, pad, order[shared - 1], spread, -1);
  LoopRV bands = sched_fuse(g->s, shared, order, true);
  if (spread) schedule_spread(g, pad);
  else if (padded && !in_place) generic_block(g, pad, 1, false);
  if (threads > 1) sched_parallel(g->s, bands);
  generic_rest(g);
}
