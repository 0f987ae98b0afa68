/* conv.c: direct convolutions over blocks of output channels.
 *
 *   for n, o, y (blocks)                                       threads
 *     for x (tiles)
 *       tile[to, ty, tx, c] = 0                                registers
 *       for input channel block, ky, kx, input channel
 *         tile[…] += data[one element, broadcast] * weight[a vector of output channels]
 *       epilogue on the tile, store
 *
 * The tile is chosen by a model of the registers, of loads against multiply-adds, and of what
 * is wasted at the edges.  Data may be in channel blocks (NCHW16c) or plain (NCHW: stem
 * convolutions, and convolutions of graphs whose layout nobody altered); weights come in
 * vectors of output channels (OIHW16i16o, OIHW16o), packed beforehand or here. */
#include "impl/internal.h"
#include "op/nn.h"

/* ---- what fits ----------------------------------------------------------------------------- */

static bool static_dims(const Type *t, int from)
{
  if (t->kind != TY_TENSOR || t->ndim < 0) return false;
  for (int d = from; d < t->ndim; d++)
    if (t->shape[d]->kind != E_INT || t->shape[d]->u.i < 1) return false;
  return true;
}

static int64_t dim(const Type *t, int d) { return t->shape[d]->u.i; }

/* Channels in a block of a layout like NCHW16c; 0 for another layout. */
static int64_t channel_block(const char *layout)
{
  int64_t block = 0;
  if (!layout || !str_starts(layout, "NCHW")) return 0;
  for (layout += 4; *layout >= '0' && *layout <= '9'; layout++) block = block * 10 + (*layout - '0');
  return !strcmp(layout, "c") ? block : 0;
}

bool conv_nchwc_fits(const Target *t, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const char *out = a->out_layout && *a->out_layout ? a->out_layout : a->data_layout;
  int64_t block = channel_block(out);
  (void)t;
  return a->groups == 1 && block >= 2 && call->type->ndim == 5 && static_dims(call->type, 1) && static_dims(call->arg[1]->type, 0) &&
         call->type->dtype.code == DT_FLOAT && str_ends(a->kernel_layout, "o");
}

double conv_nchwc_cost(const Target *t, const Node *call) { return impl_flops(call) / cost_flops(t, call->type->dtype.bits); }

bool conv_pack_fits(const Target *t, const Node *call)
{
  (void)t;
  const Conv2DAttrs *a = call->u.call.attrs;
  bool plain = !strcmp(a->data_layout, "NCHW") && !strcmp(a->kernel_layout, "OIHW") && (!a->out_layout || !*a->out_layout || !strcmp(a->out_layout, "NCHW"));
  return plain && a->groups == 1 && static_dims(call->type, 1) && static_dims(call->arg[1]->type, 0) && call->type->dtype.code == DT_FLOAT &&
         dim(call->type, 1) >= 4;
}

double conv_pack_cost(const Target *t, const Node *call)
{
  double weight = dtype_bytes(call->type->dtype);
  for (int d = 0; d < 4; d++) weight *= (double)dim(call->arg[1]->type, d);
  return conv_nchwc_cost(t, call) + 2 * weight / cost_bandwidth(t);
}

/* ---- packing inside the kernel -------------------------------------------------------------------- */

static const Expr *below(Module *m, const Expr *at, const Expr *extent) { return expr_binary(m, E_LT, at, extent); }

static void axes_of(Module *m, int n, const Expr *const *shape, const char *const *names, const IterVar **axis, const Expr **at)
{
  for (int d = 0; d < n; d++) {
    axis[d] = itervar_new(m, var_new(m, names[d], DT_I32, VAR_PLAIN), expr_i32(m, 0), shape[d], ITER_SPATIAL, NULL);
    at[d] = var_expr(axis[d]->var);
  }
}

/* weight (O, I, h, w) as (O / block, I / inner, h, w, inner, block), or without `inner` where that is 1; zeros behind
 * the last output channel. */
static const Tensor *pack_weight(Module *m, const Tensor *w, int64_t block, int64_t inner)
{
  const Buffer *b = w->buffer;
  int64_t o = b->shape[0]->u.i, blocks = (o + block - 1) / block;
  int n = inner > 1 ? 6 : 5;
  const Expr *shape[6] = {expr_i32(m, blocks), expr_i32(m, b->shape[1]->u.i / inner), b->shape[2], b->shape[3], expr_i32(m, inner)};
  shape[n - 1] = expr_i32(m, block);
  static const char *const names[] = {"o", "i", "h", "w", "ii", "oo"};
  const IterVar *axis[6];
  const Expr *at[6];
  axes_of(m, n, shape, names, axis, at);
  const Expr *channel = expr_add(m, expr_mul(m, at[0], expr_i32(m, block)), at[n - 1]);
  const Expr *from = inner > 1 ? expr_add(m, expr_mul(m, at[1], expr_i32(m, inner)), at[4]) : at[1];
  const Expr *value = te_read(m, w, 4, (const Expr *[]){channel, from, at[2], at[3]});
  if (o % block) value = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3, (const Expr *[]){below(m, channel, b->shape[0]), value, expr_const(m, b->dtype, 0)});
  return &te_compute(m, "weight_pack", "injective", n, shape, axis, 1, &value, NULL)->out[0];
}

/* data (n, C, h, w) as (n, C / block, h, w, block). */
static const Tensor *pack_data(Module *m, const Tensor *x, int64_t block)
{
  const Buffer *b = x->buffer;
  const Expr *size = expr_i32(m, block), *shape[5] = {b->shape[0], expr_i32(m, b->shape[1]->u.i / block), b->shape[2], b->shape[3], size};
  static const char *const names[] = {"n", "c", "h", "w", "cc"};
  const IterVar *axis[5];
  const Expr *at[5];
  axes_of(m, 5, shape, names, axis, at);
  const Expr *value = te_read(m, x, 4, (const Expr *[]){at[0], expr_add(m, expr_mul(m, at[1], size), at[4]), at[2], at[3]});
  return &te_compute(m, "data_pack", "injective", 5, shape, axis, 1, &value, NULL)->out[0];
}

static const Tensor *unpack_output(Module *m, const Tensor *five, const Type *out, int64_t block)
{
  static const char *const names[] = {"n", "c", "h", "w"};
  const IterVar *axis[4];
  const Expr *at[4];
  axes_of(m, 4, out->shape, names, axis, at);
  const Expr *b = expr_i32(m, block);
  const Expr *value = te_read(m, five, 5, (const Expr *[]){at[0], expr_floordiv(m, at[1], b), at[2], at[3], expr_floormod(m, at[1], b)});
  return &te_compute(m, "conv2d_unpack", "injective", 4, out->shape, axis, 1, &value, NULL)->out[0];
}

void conv_pack_compute(OpCall *c, const Target *t, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  int64_t block = target_lanes(t, c->out->dtype.bits), o = dim(c->out, 1);
  while (block > 4 && block / 2 >= o) block /= 2;
  /* Data that is read often pays for being packed too. */
  int64_t reads = (o + block - 1) / block * dim(c->arg[1], 2) * dim(c->arg[1], 3);
  int64_t inner = dim(c->arg[1], 1) % block || reads < 16 ? 1 : block;
  Conv2DAttrs *a = attrs_copy(m, &Conv2D_attrs, c->attrs);
  if (inner > 1) a->data_layout = arena_printf(m->arena, "NCHW%" PRId64 "c", inner);
  a->kernel_layout = inner > 1 ? arena_printf(m->arena, "OIHW%" PRId64 "i%" PRId64 "o", inner, block) : arena_printf(m->arena, "OIHW%" PRId64 "o", block);
  a->out_layout = arena_printf(m->arena, "NCHW%" PRId64 "c", block);
  a->channels = 0;
  const Tensor *weight = pack_weight(m, in[1], block, inner), *data = inner > 1 ? pack_data(m, in[0], inner) : in[0];
  const Type *types[2] = {type_tensor(m, data->buffer->dtype, data->buffer->ndim, data->buffer->shape),
                          type_tensor(m, weight->buffer->dtype, weight->buffer->ndim, weight->buffer->shape)};
  const Expr *shape[5] = {c->out->shape[0], expr_i32(m, (o + block - 1) / block), c->out->shape[2], c->out->shape[3], expr_i32(m, block)};
  OpCall five = {.m = m, .op = c->op, .attrs = a, .nargs = 2, .arg = types, .out = type_tensor(m, c->out->dtype, 5, shape), .name = c->name};
  const Tensor *result;
  c->op->compute(&five, (const Tensor *const[]){data, weight}, &result);
  *out = unpack_output(m, result, c->out, block);
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

/* Loops of one step come first, then those that go farther in the weight. */
static bool before(const Nest *n, int weight, int a, int b)
{
  bool single = n->loop[a].extent == 1, other = n->loop[b].extent == 1;
  return single != other ? single : n->loop[a].stride[weight] > n->loop[b].stride[weight];
}

/* Reduction loops by how far a step goes in the weight, the farthest first. */
static int reduce_order(const Nest *n, LoopRV *out, int64_t *last_extent)
{
  int weight = -1, k = 0, index[NEST_LOOPS];
  for (int a = 0; a < n->naccess; a++)
    if (!n->access[a].write && n->loop[4].stride[a] == 1) weight = a;
  for (int i = 5; i < n->n; i++) index[k++] = i;
  for (int i = 1; i < k && weight >= 0; i++)
    for (int j = i; j > 0 && before(n, weight, index[j], index[j - 1]); j--) {
      int swap = index[j];
      index[j] = index[j - 1];
      index[j - 1] = swap;
    }
  for (int i = 0; i < k; i++) out[i] = n->loop[index[i]].rv;
  *last_extent = k ? n->loop[index[k - 1]].extent : 1;
  return k;
}


/* Bytes of the data and of the weight that the whole sum reads. */
static void sum_bytes(const Nest *n, double *data, double *weight)
{
  double size = n->bits / 8.0;
  int a = 1;
  while (a < n->naccess - 1 && (n->loop[4].stride[a] != 0 || n->loop[2].stride[a] == 0)) a++;
  *data = *weight = size;
  for (int i = 1; i < n->n; i++) {
    const NestLoop *l = &n->loop[i];
    bool window = i > 4 && (l->stride[a] == n->loop[2].stride[a] || l->stride[a] == n->loop[3].stride[a]);   /* neighbours share it */
    if (i == 1 || i > 3) *weight *= (double)l->extent;
    if (i != 1 && i != 4 && !window) *data *= (double)l->extent;
  }
}

/* Rows of output that one block of output channels after the other goes over, so that least comes
 * from behind the second-level cache: the data once and the weight once for each such band, but the data
 * again for each block of channels where a band does not stay in the cache. */
static int64_t band_rows(const Target *t, const Nest *n, Tile tile)
{
  int64_t oy = n->loop[2].extent, best = oy;
  double data, weight, cache = (double)(t->l2_bytes > 0 ? t->l2_bytes : 1 << 19) / 2, blocks = (double)n->loop[1].extent / (double)tile.o, least = 0;
  sum_bytes(n, &data, &weight);
  for (int64_t rows = oy; rows >= tile.y && oy % tile.y == 0; rows -= tile.y) {
    if (oy % rows) continue;
    double bands = (double)oy / (double)rows;
    double moved = (data / bands <= cache ? data : data * blocks) + (weight <= cache ? weight : weight * bands);
    if (least != 0 && moved >= least) continue;
    least = moved;
    best = rows;
  }
  return best;
}

void conv_schedule(ImplGroup *g)
{
  generic_inline(g);
  BlockRV conv = group_sum(g);
  Nest *n = arena_new_of(g->arena, Nest);
  nest_read(g, conv, n);
  if (n->n < 5 || !n->plain) raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the convolution's loops are not those of NCHWc");
  int64_t lanes = target_lanes(g->target, n->bits), block = n->loop[4].extent, ox = n->loop[3].extent, oy = n->loop[2].extent;
  int64_t vectors = block_vectors(block, lanes);
  Tile tile = tile_best(g->target, vectors, n->loop[1].extent, oy, ox);
  int64_t rows = band_rows(g->target, n, tile);
  LoopRV sum[NEST_LOOPS], order[NEST_LOOPS + 8], oi, yi, ym, xi, step = {-1};
  int64_t inner;
  int nsum = reduce_order(n, sum, &inner), k = 0;
  order[k++] = n->loop[0].rv;
  order[k++] = split_by(g, n->loop[2].rv, rows, &ym);
  order[k++] = split_by(g, n->loop[1].rv, tile.o, &oi);
  order[k++] = split_by(g, ym, tile.y, &yi);
  order[k++] = split_by(g, n->loop[3].rv, tile.x, &xi);
  /* As many steps written out as give some hundred multiply-adds. */
  int64_t sums = tile.o * tile.y * tile.x * vectors, steps = tile_steps(sums, inner);
  for (int i = 0; i < nsum; i++) {
    if (i == nsum - 1 && steps > 1) {
      order[k++] = split_by(g, sum[i], steps, &step);
      order[k++] = step;
    } else {
      order[k++] = sum[i];
    }
  }
  order[k++] = yi, order[k++] = xi, order[k++] = oi, order[k++] = n->loop[4].rv;
  sched_reorder(g->s, k, order);
  BlockRV store = impl_attach_epilogue(g, conv, order[4]);
  LoopRV *out;
  int nout = sched_get_loops(g->s, store, g->arena, &out);
  for (int i = 5; i < nout - 1; i++) sched_unroll(g->s, out[i]);
  sched_vectorize(g->s, out[nout - 1]);
  if (step.id >= 0) sched_unroll(g->s, step);
  sched_unroll(g->s, oi), sched_unroll(g->s, yi), sched_unroll(g->s, xi);
  sched_vectorize(g->s, n->loop[4].rv);
  if (nsum) sched_decompose_reduction(g->s, conv, order[5]);
  double work = n->iterations * 2;
  int threads = cost_threads(g->target, work, 0);
  /* Rows with a tail stay inside, so that the threads share whole tiles. */
  bool few = (oy / rows) * (n->loop[1].extent / tile.o) < 4 * threads;
  LoopRV parts = sched_fuse(g->s, few && oy % tile.y == 0 ? 4 : 3, order, true);
  if (threads > 1) sched_parallel(g->s, parts);
  generic_rest(g);
}
