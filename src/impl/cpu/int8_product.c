/* int8_product.c: products of bytes, summed in int32, four products at a time.
 *
 *   for batch, panels, tiles of rows                          threads
 *     for k / 4 (steps written out)
 *       tile[rows, panel] += dot(data[row, one word], weight[a vector of the panel])
 *
 * A weight that is known at compile time comes in panels (NC16n4c); one that is not is packed in the kernel, zeros
 * behind the last row and word, so that any size is served, also one that is known only at run time.
 *
 * Where the target multiplies two rows of eight bytes by two columns of eight (AArch64's smmla), the sums of a tile are
 * 2 x 2 blocks (blocks.c): data is packed too, a tile's rows side by side, and words are of eight bytes (NC16n8c). */
#include "impl/internal.h"
#include "op/nn_kit.h"

enum { WORD = 4, MOST = 16 };

#define INT8_PLAN(A, S)                                                \
  A(S, INT, width, NULL, "columns of a register tile, and of a panel") \
  A(S, INT, rows, NULL, "rows of a register tile")
DEFINE_PLAN(Int8Plan, INT8_PLAN)

/* A weight of any number of rows is read once for one or two of data, which wait for it however they are multiplied. */
static bool blocks_pay(const Target *t, const Node *call)
{
  enum { LEAST = 3 };
  int64_t rows = known(call->arg[0]->type->shape[0]);
  return int8_has_blocks(t, call) && known(call->arg[1]->type->shape[1]) % INT8_EIGHT == 0 && (!rows || rows >= LEAST);
}

/* Columns of a panel of a weight (n, k) that is known at compile time; 0: there is no such form of it. */
static int64_t panel_width(Ctx *ctx, const Target *t, const Node *call)
{
  const Type *w = call->arg[1]->type;
  if (strcmp(call->u.call.op->name, "nn.dense") || call->arg[0]->type->ndim != 2 ||
      !(int8_has_dot(t, call) || blocks_pay(t, call)) || !known(w->shape[0]) || !known(w->shape[1]) ||
      known(w->shape[1]) % WORD || !alter_is_constant(ctx, call->arg[1]))
    return 0;
  int64_t width = int8_block(t, known(w->shape[0]));
  if (target_has_quads(t)) return known(w->shape[0]) % QUAD ? 0 : QUAD;
  /* One row's sums are few: on a microcontroller twice as many share what is made of a word of data. */
  if (t->device.kind == DEVICE_MICRO && known(w->shape[0]) % (2 * WORD) == 0) width = 2 * WORD;
  return width < target_lanes(t, 32) ? 0 : width;
}

/* (m, k) by (n, k), n in panels of some vectors, k in words. */
bool int8_alter_dense(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Type *w = call->arg[1]->type;
  int64_t width = panel_width(m->ctx, t, call);
  if (!width) return false;
  DensePackAttrs *to = attrs_new(m, &DensePack_attrs);
  to->units = known(w->shape[0]);
  int word = blocks_pay(t, call) ? INT8_EIGHT : int8_word(t, call, known(w->shape[1]));
  to->weight_layout = arena_printf(m->arena, "NC%" PRId64 "n%dc", width, word);
  to->out_dtype = DT_I32;
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_dense_pack"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "NC", to->weight_layout);
  return true;
}

static bool dense_fits(const Node *call, const char *words)
{
  const DensePackAttrs *a = call->u.call.attrs;
  return call->arg[1]->type->ndim == 4 && str_ends(a->weight_layout, words) &&
         a->units == known(call->arg[1]->type->shape[0]) * known(call->arg[1]->type->shape[2]);
}

void int8_dense_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  const Expr *const *w = in[1]->buffer->shape; /* n / b, k / 4, b, 4 */
  Stage s = nn_stage(m, 2, c->out->shape, "y x");
  const Expr *k = nn_reduce_axis(&s, "k", w[1]);
  int word = (int)known(w[3]);
  const Expr *part[2 * MOST];
  for (int p = 0; p < word; p++) {
    const Expr *at = expr_add(m, expr_mul(m, k, expr_i32(m, word)), expr_i32(m, p));
    part[p] = nn_read(m, in[0], (const Expr *[]){s.at[0], at});
    part[word + p] =
        nn_read(m, in[1],
                (const Expr *[]){expr_floordiv(m, s.at[1], w[2]), k, expr_floormod(m, s.at[1], w[2]), expr_i32(m, p)});
  }
  *out = nn_sum(&s, "dense_int8", "dense_int8", expr_call(m, DT_NONE, IN_DOT, 2 * word, part), DT_I32);
}

/* (b, n, k) by (b, m, k) or (b, k, m), any of which may be open: both operands are packed in the kernel, zeros behind
 * the last. */
static bool batch_fits(const Node *call)
{
  const BatchMatmulAttrs *a = call->u.call.attrs;
  const Type *x = call->arg[0]->type;
  const Type *y = call->arg[1]->type;
  return !a->transpose_a && x->shape[0] == y->shape[0];
}

/* (n, k) by (m, k) or (k, m). */
static bool matmul_fits(const Node *call) { return !((const MatmulAttrs *)call->u.call.attrs)->transpose_a; }

/* Is the second operand (…, k, m)? */
static bool is_turned(const OpDef *op, const void *attrs)
{
  if (op->attrs == &Matmul_attrs) return !((const MatmulAttrs *)attrs)->transpose_b;
  return op->attrs == &BatchMatmul_attrs && !((const BatchMatmulAttrs *)attrs)->transpose_b;
}

/* (n, k) or (b, n, k) by (m, k) that is known at run time only, or was left as it is. */
static bool rows_fits(const Node *call)
{
  const Type *x = call->arg[0]->type;
  return x->ndim == 2 || x->ndim == 3;
}

/* Are both operands packed in the kernel?  False: the product is another, or its weight is brought into panels. */
static bool packs_operands(const ImplCall *call)
{
  const AttrsDef *attrs = call->call->u.call.op->attrs;
  bool batch = attrs == &BatchMatmul_attrs;
  bool plain = attrs == &Matmul_attrs;
  if (!(batch ? batch_fits : plain ? matmul_fits : rows_fits)(call->call)) return false;
  return batch || plain || !panel_width(call->m->ctx, call->target, call->call);
}

static const Expr *parts_of(Module *m, const Expr *n, int64_t size)
{
  return nn_simplify(m, expr_floordiv(m, expr_add(m, n, expr_i32(m, size - 1)), expr_i32(m, size)));
}

/* y (…, rows, k), or (…, k, rows) where it is turned, as (…, rows / w, k / bytes, w, bytes), zeros behind the last row
 * and the last element of it. */
static const Tensor *pack_rows(Module *m, const Tensor *y, int64_t w, int bytes, bool turned, const char *name)
{
  int lead = y->buffer->ndim - 2;
  const Expr *from[MAX_RANK];
  for (int d = 0; d < lead + 2; d++) from[d] = y->buffer->shape[d];
  if (turned) from[lead] = y->buffer->shape[lead + 1], from[lead + 1] = y->buffer->shape[lead];
  const Expr *word = expr_i32(m, bytes);
  const Expr *width = expr_i32(m, w);
  const Expr *shape[MAX_RANK], *at[MAX_RANK];
  for (int d = 0; d < lead; d++) shape[d] = from[d];
  shape[lead] = parts_of(m, from[lead], w);
  shape[lead + 1] = parts_of(m, from[lead + 1], bytes);
  shape[lead + 2] = width;
  shape[lead + 3] = word;
  Stage s = nn_stage(m, lead + 4, shape, NULL);
  for (int d = 0; d < lead; d++) at[d] = s.at[d];
  at[lead] = expr_add(m, expr_mul(m, s.at[lead], width), s.at[lead + 2]);
  at[lead + 1] = expr_add(m, expr_mul(m, s.at[lead + 1], word), s.at[lead + 3]);
  const Expr *place[MAX_RANK];
  for (int d = 0; d < lead + 2; d++) place[d] = at[d];
  if (turned) place[lead] = at[lead + 1], place[lead + 1] = at[lead];
  const Expr *value = nn_read(m, y, place);
  for (int d = 0; d < 2; d++) {
    const Expr *size = from[lead + d];
    const Expr *is_there = expr_binary(m, E_LT, at[lead + d], size);
    if (!known(size) || known(size) % (d ? bytes : w))
      value = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3,
                        (const Expr *[]){is_there, value, expr_const(m, y->buffer->dtype, 0)});
  }
  return nn_finish(&s, name, "injective", value);
}

void int8_rows_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  Module *m = c->m;
  int last = c->out->ndim - 1;
  int64_t width = ((const Int8Plan *)plan)->width;
  const Expr *w = expr_i32(m, width);
  const Expr *depth = in[0]->buffer->shape[last];
  bool words = known(depth) && known(depth) % WORD == 0;
  bool turned = is_turned(c->op, c->attrs);
  const Tensor *rows = words ? in[0] : pack_rows(m, in[0], 1, WORD, false, "data_pack");
  const Tensor *packed =
      pack_rows(m, in[1], width, WORD, turned, turned ? "weight_turn" : "weight_pack"); /* (b,) m / w, k / 4, w, 4 */
  int lead = packed->buffer->ndim - 4;
  const Expr *shape[MAX_RANK], *from[MAX_RANK], *to[MAX_RANK];
  for (int d = 0; d < last; d++) shape[d] = c->out->shape[d];
  shape[last] = nn_simplify(m, expr_mul(m, packed->buffer->shape[lead], w));
  Stage s = nn_stage(m, last + 1, shape, last > 1 ? "b i j" : "i j");
  const Expr *k = nn_reduce_axis(&s, "k", packed->buffer->shape[lead + 1]);
  for (int d = 0; d < last; d++) from[d] = s.at[d];
  for (int d = 0; d < lead; d++) to[d] = s.at[d];
  to[lead] = expr_floordiv(m, s.at[last], w);
  to[lead + 1] = k;
  to[lead + 2] = expr_floormod(m, s.at[last], w);
  const Expr *part[2 * WORD];
  for (int p = 0; p < WORD; p++) {
    from[last] = words ? expr_add(m, expr_mul(m, k, expr_i32(m, WORD)), expr_i32(m, p)) : k;
    from[last + 1] = expr_i32(m, 0);
    from[last + 2] = to[lead + 3] = expr_i32(m, p);
    part[p] = nn_read(m, rows, from);
    part[WORD + p] = nn_read(m, packed, to);
  }
  const Tensor *sums = nn_sum(&s, "matmul_int8", "matmul_int8", expr_call(m, DT_NONE, IN_DOT, 2 * WORD, part), DT_I32);
  if (known(c->out->shape[last]) && known(c->out->shape[last]) % width == 0) {
    *out = sums;
    return;
  }
  Stage all = nn_stage(m, last + 1, c->out->shape, last > 1 ? "b i j" : "i j");
  *out = nn_finish(&all, "columns", "injective", nn_read(m, sums, all.at));
}

/* The same in 2 x 2 blocks of sums: panels of rows by panels of columns, whole tiles. */
void int8_blocks_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)t;
  Module *m = c->m;
  const Int8Plan *p = plan;
  int last = c->out->ndim - 1;
  bool turned = is_turned(c->op, c->attrs);
  const Tensor *a = pack_rows(m, in[0], p->rows, INT8_EIGHT, false, "data_pack");
  const Tensor *b = in[1];
  if (c->op->attrs != &DensePack_attrs)
    b = pack_rows(m, in[1], p->width, INT8_EIGHT, turned, turned ? "weight_turn" : "weight_pack");
  int lead = last - 1;              /* of a batch */
  int shared = b->buffer->ndim - 4; /* of it, that the weight has too */
  const Expr *const *rows = a->buffer->shape + lead;
  const Expr *const *columns = b->buffer->shape + shared;
  const Expr *shape[MAX_RANK], *from[MAX_RANK], *of[MAX_RANK];
  const Expr *two = expr_i32(m, 2);
  for (int d = 0; d < lead; d++) shape[d] = c->out->shape[d];
  shape[lead] = columns[0], shape[lead + 1] = rows[0];
  shape[lead + 2] = expr_i32(m, p->rows / 2), shape[lead + 3] = expr_i32(m, p->width / 2);
  shape[lead + 4] = expr_i32(m, 4);
  Stage s = nn_stage(m, lead + 5, shape, lead ? "b panel tile row column lane" : "panel tile row column lane");
  const Expr *k = nn_reduce_axis(&s, "k", columns[1]);
  const Expr *lane = s.at[lead + 4];
  for (int d = 0; d < lead; d++) from[d] = s.at[d];
  for (int d = 0; d < shared; d++) of[d] = s.at[d];
  from[lead] = s.at[lead + 1], of[shared] = s.at[lead];
  from[lead + 1] = of[shared + 1] = k;
  from[lead + 2] = expr_add(m, expr_mul(m, s.at[lead + 2], two), expr_floordiv(m, lane, two));
  of[shared + 2] = expr_add(m, expr_mul(m, s.at[lead + 3], two), expr_floormod(m, lane, two));
  const Tensor *sums = nn_sum(&s, "product", "matmul_int8", int8_eights_dot(m, a, from, b, of), DT_I32);
  Stage all = nn_stage(m, last + 1, c->out->shape, lead ? "b i j" : "i j");
  const Expr *width = expr_i32(m, p->width);
  const Expr *at[MAX_RANK];
  for (int d = 0; d < lead; d++) at[d] = all.at[d];
  at[lead] = expr_floordiv(m, all.at[last], width);
  *out = nn_finish(&all, "columns", "injective",
                   blocks_read(m, sums, lead + 1, at, all.at[lead], p->rows, expr_floormod(m, all.at[last], width)));
}

/* Steps of the sum that are written out: the words of a vector of the data's, where they divide it or the rest counts
 * for little. */
static int64_t steps_of(int64_t k)
{
  enum { MANY = 32 };
  for (int64_t s = 4; s > 1; s /= 2)
    if (k % s == 0 || k >= MANY) return s;
  return 1;
}

/* A panel of a turned weight where it is used first: vectors of columns, the four rows of a word together. */
static void schedule_turn(ImplGroup *g, BlockRV pack, LoopRV panel)
{
  LoopRV *own;
  sched_compute_at(g->s, pack, panel, false, -1);
  int n = sched_get_loops(g->s, pack, g->arena, &own); /* …, words, columns, elements of a word */
  sched_reorder(g->s, 2, (const LoopRV[]){own[n - 1], own[n - 2]});
  sched_unroll(g->s, own[n - 1]);
  sched_vectorize(g->s, own[n - 2]);
}

void int8_product_schedule(ImplGroup *g)
{
  const Int8Plan *p = g->plan;
  BlockRV pack, turn;
  bool turns = group_find_stage(g, "weight_turn", &turn);
  if (turns) generic_keep(g, turn);
  if (group_find_stage(g, "weight_pack", &pack)) generic_keep(g, pack);
  if (group_find_stage(g, "data_pack", &pack)) generic_keep(g, pack);
  generic_inline(g);
  BlockRV sum = group_sum(g);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, sum, n);
  int lead = n->n - 3; /* of a batch */
  if (lead < 0 || lead > 1 || !n->plain)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rows, columns, words");
  int64_t rows = n->loop[lead].extent;
  LoopRV ci, ri, ki, order[7];
  int k = 0;
  if (lead) order[k++] = n->loop[0].rv;
  order[k++] = generic_split_by(g, n->loop[lead + 1].rv, p->width, &ci);
  order[k++] = generic_split_by(g, n->loop[lead].rv, p->rows, &ri);
  int outer = k;
  order[k++] = generic_split_by(g, n->loop[lead + 2].rv, steps_of(n->loop[lead + 2].extent), &ki);
  order[k++] = ki, order[k++] = ri, order[k++] = ci;
  sched_reorder(g->s, k, order);
  epilogue_write_out(g, impl_attach_epilogue(g, sum, order[outer - 1]), outer, false);
  sched_unroll(g->s, ki);
  sched_unroll(g->s, ri);
  /* Helium's sums are scalars. */
  if (target_has_quads(g->target)) sched_unroll(g->s, ci);
  else sched_vectorize(g->s, ci);
  sched_decompose_reduction(g->s, sum, order[outer]);
  int threads = cost_threads(g->target, impl_flops(g->anchor) / WORD, 0);
  bool whole = rows && rows % p->rows == 0 && !turns;
  if (turns) schedule_turn(g, turn, order[outer - 2]);
  LoopRV parts = sched_fuse(g->s, whole ? outer : outer - 1, order, true);
  if (threads > 1) sched_parallel(g->s, parts);
  generic_rest(g);
}

/* Words of a panel of rows, those of a step side by side. */
static void schedule_words(ImplGroup *g, BlockRV pack, bool parallel)
{
  LoopRV *own;
  int n = sched_get_loops(g->s, pack, g->arena, &own); /* …, tile, k, row, byte */
  sched_unroll(g->s, own[n - 2]);
  sched_vectorize(g->s, own[n - 1]);
  if (parallel) sched_parallel(g->s, own[0]);
}

void int8_blocks_schedule(ImplGroup *g)
{
  const Int8Plan *p = g->plan;
  BlockRV data = group_stage(g, "data_pack");
  BlockRV pack, turn;
  bool turns = group_find_stage(g, "weight_turn", &turn);
  bool packs = group_find_stage(g, "weight_pack", &pack);
  generic_keep(g, data);
  if (turns) generic_keep(g, turn);
  if (packs) generic_keep(g, pack);
  generic_inline(g);
  BlockRV product = group_sum(g);
  BlockRV store = group_only_reader(g, product);
  const Type *x = g->anchor->arg[0]->type;
  int64_t rows = known(x->shape[x->ndim - 2]);
  int64_t words = (known(x->shape[x->ndim - 1]) + INT8_EIGHT - 1) / INT8_EIGHT;
  LoopRV *loop, order[5];
  int lead = sched_get_loops(g->s, store, g->arena, &loop) - 2;
  if (lead < 0 || lead > 1) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the result's loops are not rows, columns");
  if (lead) order[0] = loop[0];
  order[lead + 1] = generic_split_by(g, loop[lead], p->rows, &order[lead + 2]);
  order[lead] = generic_split_by(g, loop[lead + 1], p->width, &order[lead + 3]);
  sched_reorder(g->s, lead + 4, order);
  sched_compute_at(g->s, product, order[lead + 1], true, -1);
  epilogue_write_out(g, store, lead + 2, true);
  LoopRV step = blocks_tile(g, product, words ? words : 1);
  bool threads = cost_threads(g->target, impl_flops(g->anchor) / INT8_EIGHT, 0) > 1;
  bool tiles = rows && rows % p->rows == 0 && !turns; /* threads share tiles, else panels */
  if (turns) schedule_turn(g, turn, order[lead]);
  LoopRV parts = sched_fuse(g->s, tiles ? lead + 2 : lead + 1, order, true);
  if (threads) sched_parallel(g->s, parts);
  schedule_words(g, data, threads);
  if (packs) schedule_words(g, pack, threads);
  panels_fetch(g, product, step, NULL);
  generic_rest(g);
}

/* ---- plans ------------------------------------------------------------------------------------------------- */

enum { OPEN_ROWS = 128 }; /* that a number of rows which is not known is taken for */

static double product_seconds(const Target *t, const Node *call, const Int8Plan *p, bool packs)
{
  const Type *x = call->arg[0]->type;
  const Type *y = call->type;
  int last = y->ndim - 1;
  int64_t n = known(y->shape[last]) ? known(y->shape[last]) : OPEN_ROWS;
  int64_t rows = known(y->shape[last - 1]) ? known(y->shape[last - 1]) : OPEN_ROWS;
  int64_t k = known(x->shape[last]) ? known(x->shape[last]) : OPEN_ROWS;
  double batch = last > 1 ? (double)(known(y->shape[0]) ? known(y->shape[0]) : 1) : 1;
  int64_t vectors = alter_block_vectors(p->width, target_lanes(t, 32));
  double panels = (double)((n + p->width - 1) / p->width);
  double share = tile_speed(t, vectors, 1, rows, (Tile){1, 1, p->rows});
  double words = (double)((k + WORD - 1) / WORD);
  if (target_has_quads(t) && p->rows > 1) return 1; /* a row's sums are as many as there are registers for */
  double flops = 2 * batch * (double)rows * panels * (double)p->width * words;
  double copied = packs ? 2 * batch * panels * (double)p->width * words * WORD / cost_bandwidth(t) : 0;
  double weights = packs ? 0 : panels * (double)p->width * words * WORD / cost_stream(t);
  double seconds = conv_tile_seconds(t, 32, flops, words, share > 0 ? share : 0.1);
  /* the narrower a panel, the more rows of data, each a line of its own, are on their way at once */
  static const double NARROW = 0.5;
  seconds *= 1 + NARROW * target_lanes(t, 32) / (double)p->width;
  int threads = cost_threads(t, flops, 0);
  if (weights > seconds) seconds = weights;
  return (seconds + copied) / threads / cost_busy(batch * panels * (double)((rows + p->rows - 1) / p->rows), threads);
}

static void add_tiles(PlanList *list, const ImplCall *call, int64_t width, bool packs)
{
  const Target *t = call->target;
  const Type *y = call->call->type;
  int64_t rows = known(y->shape[y->ndim - 2]);
  Tile tile[TILE_LIST];
  int n =
      tile_list(t, 32, alter_block_vectors(width, target_lanes(t, 32)), 1, 1, rows ? rows : 1 << 20, TILE_LIST, tile);
  for (int i = 0; i < n; i++) {
    Int8Plan p = {.width = width, .rows = tile[i].x};
    plan_add(list, &p, product_seconds(t, call->call, &p, packs), 0);
  }
}

/* Of 2 x 2 blocks: whole tiles, and the copies of data and of a weight that is none of panels. */
static double blocks_seconds(const Target *t, const Node *call, const Int8Plan *p, bool packs)
{
  static const double COPY = 1.5;
  static const double TURN = 4; /* cycles of a word */
  const Type *x = call->arg[0]->type;
  const Type *y = call->type;
  int last = y->ndim - 1;
  double n = (double)(known(y->shape[last]) ? known(y->shape[last]) : OPEN_ROWS);
  double rows = (double)(known(y->shape[last - 1]) ? known(y->shape[last - 1]) : OPEN_ROWS);
  double k = (double)(known(x->shape[last]) ? known(x->shape[last]) : OPEN_ROWS);
  double batch = last > 1 ? (double)(known(y->shape[0]) ? known(y->shape[0]) : 1) : 1;
  double words = __builtin_ceil(k / INT8_EIGHT);
  double panels = __builtin_ceil(n / (double)p->width);
  double tiles = __builtin_ceil(rows / (double)p->rows);
  double cycles = batch * panels * tiles * words * blocks_step_cycles(t, t->core.fma_bits, p->rows, p->width);
  bool turned = is_turned(call->u.call.op, call->u.call.attrs);
  double copies = batch * words * (COPY * rows + (packs ? (turned ? TURN : COPY) * n : 0));
  double weights = packs ? 0 : panels * (double)p->width * words * INT8_EIGHT / cost_stream(t);
  double seconds = cycles / (1e9 * t->core.ghz);
  int threads = cost_threads(t, impl_flops(call) / INT8_EIGHT, 0);
  if (weights > seconds) seconds = weights;
  return (seconds + copies / (1e9 * t->core.ghz)) / threads / cost_busy(batch * panels * tiles, threads);
}

static void add_blocks(PlanList *list, const ImplCall *call, int64_t width, bool packs)
{
  const Target *t = call->target;
  const Type *y = call->call->type;
  int64_t rows = known(y->shape[y->ndim - 2]);
  for (int64_t h = 2; h <= t->vector_registers && (!rows || h <= rows + 1); h += 2) {
    Int8Plan p = {.width = width, .rows = h};
    if (blocks_step_cycles(t, t->core.fma_bits, h, width) > 0)
      plan_add(list, &p, blocks_seconds(t, call->call, &p, packs), 0);
  }
}

void int8_blocks_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  const Node *c = call->call;
  if (!int8_has_blocks(t, c)) return;
  if (c->u.call.op->attrs == &DensePack_attrs) {
    if (dense_fits(c, "n8c")) add_blocks(list, call, known_size(c->arg[1]->type, 2), false);
    return;
  }
  if (packs_operands(call))
    for (int64_t width = 4; width <= 16; width += 4) add_blocks(list, call, width, true);
}

void int8_dense_plans(const ImplCall *call, PlanList *list)
{
  bool words = dense_fits(call->call, "n4c");
  if (target_has_quads(call->target)) words |= dense_fits(call->call, "n8c") || dense_fits(call->call, "n16c");
  if (int8_has_dot(call->target, call->call) && words)
    add_tiles(list, call, known_size(call->call->arg[1]->type, 2), false);
}

void int8_rows_plans(const ImplCall *call, PlanList *list)
{
  const Target *t = call->target;
  if (!int8_has_dot(t, call->call) || !packs_operands(call)) return;
  for (int64_t width = 4 * target_lanes(t, 32); width >= target_lanes(t, 32); width /= 2)
    add_tiles(list, call, width, true);
}
