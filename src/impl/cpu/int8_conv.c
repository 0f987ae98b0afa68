/* int8_conv.c: convolutions of bytes, summed in int32, four products at a time.
 *
 *   out[n, o, y, x, c] = sum over i, ky, kx, q of
 *                        dot(data[n, i, y', x', 4q … 4q + 3], weight[o, i, ky, kx, q, c, 0 … 3])
 *
 * Data comes in blocks of channels (NCHW16c); the weight (OIHW4i16o4i) has the four input channels of a step side by
 * side for each output channel, so that a vector of it is what one instruction takes beside one word of the data.
 * The loops are those of conv.c, a step for four channels. */
#include "impl/internal.h"
#include "op/nn_kit.h"

enum { WORD = 4 };

static bool is_byte(DType t) { return dtype_is_int(t) && t.bits == 8; }

static DotElement element(DType t) { return t.code == DT_INT ? DOT_S8 : DOT_U8; }

/* Is there an instruction for it? */
static bool has_dot(const Target *t, const Node *call)
{
  const Node *const *arg = call->arg;
  int lanes = target_lanes(t, 32);
  return is_byte(arg[0]->type->dtype) && is_byte(arg[1]->type->dtype) && dtype_eq(call->type->dtype, DT_I32) &&
         target_dot(t, element(arg[0]->type->dtype), element(arg[1]->type->dtype), lanes);
}

/* ---- layouts --------------------------------------------------------------------------------------- */

int64_t int8_block(const Target *t, int64_t channels)
{
  int64_t wide = 4 * target_lanes(t, 32);
  for (int64_t b = wide; b >= WORD; b /= 2)
    if (channels % b == 0) return b;
  return 0;
}

static const char *blocked(Module *m, int64_t block) { return arena_printf(m->arena, "NCHW%" PRId64 "c", block); }

static bool is_plain(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  if (strcmp(a->data_layout, "NCHW") || strcmp(a->kernel_layout, "OIHW") ||
      (*a->out_layout && strcmp(a->out_layout, "NCHW")))
    return false;
  for (int d = 1; d < 4; d++)
    if (!known(x->shape[d])) return false;
  for (int d = 0; d < 4; d++)
    if (!known(w->shape[d])) return false;
  return true;
}

static bool alter_conv(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *w = call->arg[1]->type;
  if (!is_plain(call) || !alter_is_constant(m->ctx, call->arg[1])) return false;
  if (a->groups > 1 && known(w->shape[1]) == 1) return int8_alter_depthwise(m, t, call, out);
  if (!has_dot(t, call)) return false;
  int64_t cb = int8_block(t, known(w->shape[1]));
  int64_t ob = int8_block(t, known(w->shape[0]) / a->groups);
  if (!cb || !ob) return false;
  Conv2DAttrs *to = attrs_copy(m, &Conv2D_attrs, a);
  to->data_layout = blocked(m, cb);
  to->out_layout = blocked(m, ob);
  to->kernel_layout = arena_printf(m->arena, "OIHW%" PRId64 "i%" PRId64 "o4i", cb / WORD, ob);
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_conv2d_NCHWc"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "OIHW", to->kernel_layout);
  out->in[0] = (LayoutPair){"NCHW", to->data_layout};
  out->out = (LayoutPair){"NCHW", to->out_layout};
  return true;
}

/* (m, k) by (n, k), n in panels of some vectors, k in words. */
static bool alter_dense(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  const Type *x = call->arg[0]->type;
  const Type *w = call->arg[1]->type;
  if (strcmp(call->u.call.op->name, "nn.dense") || x->ndim != 2 || !has_dot(t, call) || !known(w->shape[0]) ||
      !known(w->shape[1]) || known(w->shape[1]) % WORD || !alter_is_constant(m->ctx, call->arg[1]))
    return false;
  int64_t width = int8_block(t, known(w->shape[0]));
  /* One row's sums are few: on a microcontroller twice as many share what is made of a word of data. */
  if (t->device.kind == DEVICE_MICRO && known(w->shape[0]) % (2 * WORD) == 0) width = 2 * WORD;
  if (width < target_lanes(t, 32)) return false;
  DensePackAttrs *to = attrs_new(m, &DensePack_attrs);
  to->units = known(w->shape[0]);
  to->weight_layout = arena_printf(m->arena, "NC%" PRId64 "n4c", width);
  to->out_dtype = DT_I32;
  *out = (AlteredCall){.op = opdef_get(m->ctx, "nn.contrib_dense_pack"), .attrs = to, .nargs = 2};
  out->arg[0] = call->arg[0];
  out->arg[1] = alter_transform(m, call->arg[1], "NC", to->weight_layout);
  return true;
}

bool int8_alter(Module *m, const Target *t, const Node *call, AlteredCall *out)
{
  if (call->kind != N_CALL || call->type->kind != TY_TENSOR || !dtype_eq(call->type->dtype, DT_I32)) return false;
  const char *op = call->u.call.op->name;
  if (!strcmp(op, "nn.conv2d")) return alter_conv(m, t, call, out);
  return !strcmp(op, "nn.dense") && alter_dense(m, t, call, out);
}

/* ---- convolutions ------------------------------------------------------------------------------------ */

static bool static_from(const Type *t, int from)
{
  for (int d = from; d < t->ndim; d++)
    if (!known(t->shape[d])) return false;
  return true;
}

bool int8_conv_fits(const Target *t, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  return has_dot(t, call) && known(call->type->shape[1]) % a->groups == 0 && conv_block(a->data_layout, 2) &&
         conv_block(a->out_layout, 2) && str_ends(a->kernel_layout, "o4i") && call->arg[1]->type->ndim == 7 &&
         static_from(call->type, 1) && static_from(call->arg[1]->type, 0);
}

double int8_cost(const Target *t, const Node *call) { return impl_flops(call) / (WORD * cost_flops(t, 32)); }

static void pads_of(AttrInts p, int64_t *before, int64_t *after)
{
  for (int d = 0; d < 2; d++) {
    before[d] = impl_list_at(p, d, 0);
    after[d] = p.n == 4 ? p.v[2 + d] : before[d];
  }
}

void int8_conv_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  (void)t;
  Module *m = c->m;
  const Conv2DAttrs *a = c->attrs;
  int64_t pad[5] = {0};
  int64_t end[5] = {0};
  pads_of(a->padding, &pad[2], &end[2]);
  const Tensor *data = nn_pad_constant(m, in[0], pad, end, expr_const(m, in[0]->buffer->dtype, 0), "pad_temp");
  const Expr *const *w = in[1]->buffer->shape; /* o, i, ky, kx, q, c, 4 */
  Stage s = nn_stage(m, 5, c->out->shape, "nn ff yy xx ff_block");
  const Expr *i = nn_reduce_axis(&s, "rco", w[1]);
  const Expr *block = i; /* of the data's channels */
  if (a->groups > 1) {
    const Expr *group = expr_floordiv(m, s.at[1], expr_i32(m, known(w[0]) / a->groups));
    block = expr_add(m, expr_mul(m, group, w[1]), i);
  }
  const Expr *tap[2], *at[2];
  for (int d = 0; d < 2; d++) {
    tap[d] = nn_reduce_axis(&s, d ? "rx" : "ry", w[2 + d]);
    at[d] = expr_add(m, expr_mul(m, s.at[2 + d], expr_i32(m, impl_list_at(a->strides, d, 1))),
                     expr_mul(m, tap[d], expr_i32(m, impl_list_at(a->dilation, d, 1))));
  }
  const Expr *q = nn_reduce_axis(&s, "rci", w[4]);
  const Expr *part[2 * WORD];
  for (int p = 0; p < WORD; p++) {
    const Expr *channel = expr_add(m, expr_mul(m, q, expr_i32(m, WORD)), expr_i32(m, p));
    part[p] = nn_read(m, data, (const Expr *[]){s.at[0], block, nn_index(&s, at[0]), nn_index(&s, at[1]), channel});
    part[WORD + p] = nn_read(m, in[1], (const Expr *[]){s.at[1], i, tap[0], tap[1], q, s.at[4], expr_i32(m, p)});
  }
  *out = nn_sum(&s, "conv2d_NCHWc_int8", "conv2d_NCHWc_int8", expr_call(m, DT_NONE, IN_DOT, 2 * WORD, part), DT_I32);
}

/* The register tile of conv.c, over sums of 32 bits; bands of rows whose data stays in the second-level cache. */
void int8_conv_schedule(ImplGroup *g)
{
  const Type *y = g->anchor->type;
  const Type *w = g->anchor->arg[1]->type;
  int64_t block = known_size(y, 4);
  int64_t rows = known_size(y, 2);
  int64_t vectors = alter_block_vectors(block, target_lanes(g->target, 32));
  int64_t groups = ((const Conv2DAttrs *)g->anchor->u.call.attrs)->groups;
  Tile tile = tile_for(g->target, 32, vectors, known_size(y, 1) / groups, rows, known_size(y, 3));
  const Type *x = g->anchor->arg[0]->type;
  int64_t row = known_size(x, 1) * known_size(x, 3) * known_size(x, 4) *
                impl_list_at(((const Conv2DAttrs *)g->anchor->u.call.attrs)->strides, 0, 1);
  int64_t cache = cost_l2(g->target) / 2;
  ConvPlan *plan = arena_new_of(g->arena, ConvPlan);
  *plan = (ConvPlan){
    .data_block = known_size(x, 4), .out_block = block, .o = tile.o, .y = tile.y, .x = tile.x, .band = rows};
  for (int64_t r = tile.y; r <= rows; r += tile.y)
    if (rows % r == 0 && (r + known_size(w, 2)) * row <= cache) plan->band = r;
  if (rows * row <= cache || rows % tile.y) plan->band = rows;
  g->plan = plan;
  conv_schedule(g);
}

/* ---- products ---------------------------------------------------------------------------------------------- */

bool int8_dense_fits(const Target *t, const Node *call)
{
  const DensePackAttrs *a = call->u.call.attrs;
  return has_dot(t, call) && call->arg[1]->type->ndim == 4 && str_ends(a->weight_layout, "n4c") &&
         static_from(call->arg[1]->type, 0) &&
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
  const Expr *part[2 * WORD];
  for (int p = 0; p < WORD; p++) {
    const Expr *at = expr_add(m, expr_mul(m, k, expr_i32(m, WORD)), expr_i32(m, p));
    part[p] = nn_read(m, in[0], (const Expr *[]){s.at[0], at});
    part[WORD + p] =
        nn_read(m, in[1],
                (const Expr *[]){expr_floordiv(m, s.at[1], w[2]), k, expr_floormod(m, s.at[1], w[2]), expr_i32(m, p)});
  }
  *out = nn_sum(&s, "dense_int8", "dense_int8", expr_call(m, DT_NONE, IN_DOT, 2 * WORD, part), DT_I32);
}

/* (b, n, k) by (b, m, k), any of which may be open: both operands are packed in the kernel, zeros behind the last. */
bool int8_batch_fits(const Target *t, const Node *call)
{
  const BatchMatmulAttrs *a = call->u.call.attrs;
  const Type *x = call->arg[0]->type;
  const Type *y = call->arg[1]->type;
  return has_dot(t, call) && !a->transpose_a && a->transpose_b && x->shape[0] == y->shape[0];
}

/* (n, k) or (b, n, k) by (m, k) that is known at run time only, or was left as it is. */
bool int8_rows_fits(const Target *t, const Node *call)
{
  const Type *x = call->arg[0]->type;
  return has_dot(t, call) && (x->ndim == 2 || x->ndim == 3);
}

/* Columns of a panel, four vectors at most: the wider, the more of them share a word of data; the fewer are empty. */
static int64_t batch_width(const Target *t, const Expr *columns)
{
  static const double SHARED = 0.5; /* of a vector's work, where it is alone */
  int64_t lanes = target_lanes(t, 32);
  int64_t best = 4 * lanes;
  double least = 0;
  if (!known(columns)) return best;
  for (int64_t width = 4 * lanes; width >= lanes; width /= 2) {
    int64_t all = (known(columns) + width - 1) / width * width;
    double cost = (double)all * (1 + SHARED * (double)lanes / (double)width);
    if (least > 0 && cost >= least) continue;
    least = cost;
    best = width;
  }
  return best;
}

static const Expr *parts_of(Module *m, const Expr *n, int64_t size)
{
  return nn_simplify(m, expr_floordiv(m, expr_add(m, n, expr_i32(m, size - 1)), expr_i32(m, size)));
}

/* y (…, rows, k) as (…, rows / w, k / 4, w, 4), zeros behind the last row and the last element of it. */
static const Tensor *pack_rows(Module *m, const Tensor *y, int64_t w, const char *name)
{
  int lead = y->buffer->ndim - 2;
  const Expr *const *from = y->buffer->shape;
  const Expr *word = expr_i32(m, WORD);
  const Expr *width = expr_i32(m, w);
  const Expr *shape[MAX_RANK], *at[MAX_RANK];
  for (int d = 0; d < lead; d++) shape[d] = from[d];
  shape[lead] = parts_of(m, from[lead], w);
  shape[lead + 1] = parts_of(m, from[lead + 1], WORD);
  shape[lead + 2] = width;
  shape[lead + 3] = word;
  Stage s = nn_stage(m, lead + 4, shape, NULL);
  for (int d = 0; d < lead; d++) at[d] = s.at[d];
  at[lead] = expr_add(m, expr_mul(m, s.at[lead], width), s.at[lead + 2]);
  at[lead + 1] = expr_add(m, expr_mul(m, s.at[lead + 1], word), s.at[lead + 3]);
  const Expr *value = nn_read(m, y, at);
  for (int d = 0; d < 2; d++) {
    const Expr *size = from[lead + d];
    const Expr *is_there = expr_binary(m, E_LT, at[lead + d], size);
    if (!known(size) || known(size) % (d ? WORD : w))
      value = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3,
                        (const Expr *[]){is_there, value, expr_const(m, y->buffer->dtype, 0)});
  }
  return nn_finish(&s, name, "injective", value);
}

void int8_rows_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  Module *m = c->m;
  int last = c->out->ndim - 1;
  int64_t width = batch_width(t, c->out->shape[last]);
  const Expr *w = expr_i32(m, width);
  const Expr *depth = in[0]->buffer->shape[last];
  bool words = known(depth) && known(depth) % WORD == 0;
  const Tensor *rows = words ? in[0] : pack_rows(m, in[0], 1, "data_pack");
  const Tensor *packed = pack_rows(m, in[1], width, "weight_pack"); /* (b,) m / w, k / 4, w, 4 */
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

/* Steps of the sum that are written out: the words of a vector of the data's, where they divide it. */
static int64_t steps_of(int64_t k)
{
  for (int64_t s = 4; s > 1; s /= 2)
    if (k % s == 0) return s;
  return 1;
}

/*   for batch, panels, tiles of rows                          threads
 *     for k / 4 (steps written out)
 *       tile[rows, panel] += dot(data[row, one word], weight[a vector of the panel]) */
static void schedule_product(ImplGroup *g, int64_t width)
{
  BlockRV pack;
  if (group_find_stage(g, "weight_pack", &pack)) generic_keep(g, pack);
  if (group_find_stage(g, "data_pack", &pack)) generic_keep(g, pack);
  generic_inline(g);
  BlockRV sum = group_sum(g);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, sum, n);
  int lead = n->n - 3; /* of a batch */
  if (lead < 0 || lead > 1 || !n->plain)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the product's loops are not rows, columns, words");
  int64_t vectors = alter_block_vectors(width, target_lanes(g->target, 32));
  int64_t rows = n->loop[lead].extent;
  Tile tile = tile_for(g->target, 32, vectors, 1, 1, rows ? rows : 1 << 20);
  LoopRV ci, ri, ki, order[7];
  int k = 0;
  if (lead) order[k++] = n->loop[0].rv;
  order[k++] = generic_split_by(g, n->loop[lead + 1].rv, width, &ci);
  order[k++] = generic_split_by(g, n->loop[lead].rv, tile.x, &ri);
  int outer = k;
  order[k++] = generic_split_by(g, n->loop[lead + 2].rv, steps_of(n->loop[lead + 2].extent), &ki);
  order[k++] = ki, order[k++] = ri, order[k++] = ci;
  sched_reorder(g->s, k, order);
  epilogue_write_out(g, impl_attach_epilogue(g, sum, order[outer - 1]), outer, false);
  sched_unroll(g->s, ki);
  sched_unroll(g->s, ri);
  sched_vectorize(g->s, ci);
  sched_decompose_reduction(g->s, sum, order[outer]);
  int threads = cost_threads(g->target, impl_flops(g->anchor) / WORD, 0);
  bool whole = rows && rows % tile.x == 0;
  LoopRV parts = sched_fuse(g->s, whole ? outer : outer - 1, order, true);
  if (threads > 1) sched_parallel(g->s, parts);
  generic_rest(g);
}

void int8_dense_schedule(ImplGroup *g) { schedule_product(g, known_size(g->anchor->arg[1]->type, 2)); }

void int8_rows_schedule(ImplGroup *g)
{
  const Type *y = g->anchor->type;
  schedule_product(g, batch_width(g->target, y->shape[y->ndim - 1]));
}
