/* conv.c: direct convolutions over blocks of output channels, of one, two or three dimensions.
 *
 *   for n, z, o, y (blocks)                                    threads
 *     for x (tiles)
 *       tile[to, ty, tx, c] = 0                                registers
 *       for input channel block, kz, ky, kx, input channel
 *         tile[…] += data[one element, broadcast] * weight[a vector of output channels]
 *       epilogue on the tile, store
 *
 * The tile is chosen by a model of the registers, of loads against multiply-adds, and of what
 * is wasted at the edges.  Data may be in channel blocks (NCHW16c) or plain (NCHW: stem
 * convolutions, and convolutions of graphs whose layout nobody altered); weights come in
 * vectors of output channels (OIHW16i16o, OIHW16o), packed beforehand or here.  Groups are served
 * as long as a block of output channels lies in one of them; narrower ones are depthwise.c's. */
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

int conv_dims(const Node *call) { return nn_conv_dims(call->u.call.op); }

const char *conv_spatial(int dims) { return &"DHW"[3 - dims]; }

int64_t conv_block(const char *layout, int dims)
{
  Layout l;
  if (layout_parse(layout, &l) || l.n != dims + 3 || l.letter[l.n - 1] != 'c') return 0;
  bool channels = !strncmp(layout, "NC", 2) && str_starts(layout + 2, conv_spatial(dims));
  return channels ? l.factor[l.n - 1] : 0;
}

bool conv_layout_is_plain(const char *layout, const char *channels, int dims)
{
  return layout && !strncmp(layout, channels, 2) && !strcmp(layout + 2, conv_spatial(dims));
}

static int64_t out_block(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  return conv_block(a->out_layout && *a->out_layout ? a->out_layout : a->data_layout, conv_dims(call));
}

/* Known sizes, floats, output channels in blocks. */
bool conv_is_blocked(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  return out_block(call) >= 2 && call->type->ndim == conv_dims(call) + 3 && static_dims(call->type, 1) &&
         static_dims(call->arg[1]->type, 0) && call->type->dtype.code == DT_FLOAT && str_ends(a->kernel_layout, "o");
}

/* Does each block of output channels belong to one group, or hold several whole ones, each of half a vector at
 * least? */
bool conv_groups_wide(const Target *t, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  int64_t blocks = dim(call->type, 1);
  int64_t block = out_block(call);
  int64_t own = blocks * block / a->groups;
  return a->groups == 1 || blocks % a->groups == 0 ||
         (block % own == 0 && 2 * own >= target_lanes(t, call->type->dtype.bits));
}

bool conv_nchwc_fits(const Target *t, const Node *call) { return conv_is_blocked(call) && conv_groups_wide(t, call); }

double conv_nchwc_cost(const Target *t, const Node *call)
{
  return impl_flops(call) / cost_flops(t, call->type->dtype.bits);
}

/* Elements of a tensor, those of a batch of one where it is not known. */
static double batch_elements(const Type *t)
{
  double n = (double)(known_size(t, 0) ? known_size(t, 0) : 1);
  for (int d = 1; d < t->ndim; d++) n *= (double)known_size(t, d);
  return n;
}

double conv_blocked_seconds(const Target *t, const Node *call, double flops)
{
  const Type *x = call->arg[0]->type;
  const Type *y = call->type;
  int bits = y->dtype.bits;
  int64_t o = known_size(y, 1);
  int64_t block = alter_block(t, bits, o);
  int64_t columns = known_size(y, y->ndim - 1);
  int64_t rows = 1;
  if (!block) return __builtin_inf();
  for (int d = 2; d < y->ndim - 1; d++) rows *= known_size(y, d);
  int64_t lanes = target_lanes(t, bits);
  int64_t vectors = alter_block_vectors(block, lanes);
  double share = tile_speed(t, vectors, rows, columns, tile_best(t, vectors, o / block, rows, columns)) *
                 (double)block / (double)(vectors * lanes);
  double in = batch_elements(x) * dtype_bytes(x->dtype);
  double out = batch_elements(y) * dtype_bytes(y->dtype);
  if (!alter_block(t, bits, known_size(x, 1))) in /= 2; /* stays plain, with zeros around */
  return flops / (cost_flops(t, bits) * share) + 2 * cost_copy(t, in + out, in + out);
}

bool conv_pack_fits(const Target *t, const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  int dims = conv_dims(call);
  bool plain = conv_layout_is_plain(a->data_layout, "NC", dims) && conv_layout_is_plain(a->kernel_layout, "OI", dims) &&
               (!a->out_layout || !*a->out_layout || conv_layout_is_plain(a->out_layout, "NC", dims));
  if (!plain || !static_dims(call->type, 1) || !static_dims(call->arg[1]->type, 0) ||
      call->type->dtype.code != DT_FLOAT)
    return false;
  int64_t o = dim(call->type, 1) / a->groups;
  return a->groups == 1 ? o >= 4 : alter_block(t, call->type->dtype.bits, o) > 0;
}

double conv_pack_cost(const Target *t, const Node *call)
{
  double weight = dtype_bytes(call->type->dtype);
  for (int d = 0; d < call->arg[1]->type->ndim; d++) weight *= (double)dim(call->arg[1]->type, d);
  return conv_nchwc_cost(t, call) + 2 * weight / cost_bandwidth(t);
}

/* ---- packing inside the kernel -------------------------------------------------------------------- */

enum { CONV_AXES = 8 };

static const Expr *below(Module *m, const Expr *at, const Expr *extent) { return expr_binary(m, E_LT, at, extent); }

static void axes_of(Module *m, int n, const Expr *const *shape, const IterVar **axis, const Expr **at)
{
  for (int d = 0; d < n; d++) {
    axis[d] = itervar_new(m, var_new(m, arena_printf(m->arena, "ax%d", d), DT_I32, VAR_PLAIN), expr_i32(m, 0), shape[d],
                          ITER_SPATIAL, NULL);
    at[d] = var_expr(axis[d]->var);
  }
}

/* weight (O, I, …) as (O / block, I / inner, …, inner, block), or without `inner` where that is 1; zeros behind
 * the last output channel. */
static const Tensor *pack_weight(Module *m, const Tensor *w, int64_t block, int64_t inner)
{
  const Buffer *b = w->buffer;
  int64_t o = b->shape[0]->u.i;
  int64_t blocks = (o + block - 1) / block;
  int n = b->ndim + (inner > 1 ? 2 : 1);
  const Expr *shape[CONV_AXES] = {expr_i32(m, blocks), expr_i32(m, b->shape[1]->u.i / inner)};
  const Expr *at[CONV_AXES], *from[CONV_AXES];
  for (int d = 2; d < b->ndim; d++) shape[d] = b->shape[d];
  if (inner > 1) shape[n - 2] = expr_i32(m, inner);
  shape[n - 1] = expr_i32(m, block);
  const IterVar *axis[CONV_AXES];
  axes_of(m, n, shape, axis, at);
  for (int d = 2; d < b->ndim; d++) from[d] = at[d];
  from[0] = expr_add(m, expr_mul(m, at[0], expr_i32(m, block)), at[n - 1]);
  from[1] = inner > 1 ? expr_add(m, expr_mul(m, at[1], expr_i32(m, inner)), at[n - 2]) : at[1];
  const Expr *value = te_read(m, w, b->ndim, from);
  if (o % block)
    value = expr_call(m, DT_NONE, IN_IF_THEN_ELSE, 3,
                      (const Expr *[]){below(m, from[0], b->shape[0]), value, expr_const(m, b->dtype, 0)});
  return &te_compute(m, "weight_pack", "injective", n, shape, axis, 1, &value, NULL)->out[0];
}

/* data (n, C, …) as (n, C / block, …, block). */
static const Tensor *pack_data(Module *m, const Tensor *x, int64_t block)
{
  const Buffer *b = x->buffer;
  int n = b->ndim;
  const Expr *size = expr_i32(m, block);
  const Expr *shape[CONV_AXES], *at[CONV_AXES], *from[CONV_AXES];
  for (int d = 0; d < n; d++) shape[d] = d == 1 ? expr_i32(m, b->shape[1]->u.i / block) : b->shape[d];
  shape[n] = size;
  const IterVar *axis[CONV_AXES];
  axes_of(m, n + 1, shape, axis, at);
  for (int d = 0; d < n; d++) from[d] = d == 1 ? expr_add(m, expr_mul(m, at[1], size), at[n]) : at[d];
  const Expr *value = te_read(m, x, n, from);
  return &te_compute(m, "data_pack", "injective", n + 1, shape, axis, 1, &value, NULL)->out[0];
}

static const Tensor *unpack_output(Module *m, const Tensor *blocked, const Type *out, int64_t block)
{
  const IterVar *axis[CONV_AXES];
  const Expr *at[CONV_AXES], *from[CONV_AXES];
  const Expr *b = expr_i32(m, block);
  axes_of(m, out->ndim, out->shape, axis, at);
  for (int d = 0; d < out->ndim; d++) from[d] = d == 1 ? expr_floordiv(m, at[1], b) : at[d];
  from[out->ndim] = expr_floormod(m, at[1], b);
  const Expr *value = te_read(m, blocked, out->ndim + 1, from);
  return &te_compute(m, "conv_unpack", "injective", out->ndim, out->shape, axis, 1, &value, NULL)->out[0];
}

void conv_pack_compute(OpCall *c, const Target *t, const void *plan, const Tensor *const *in, const Tensor **out)
{
  (void)plan;
  Module *m = c->m;
  Conv2DAttrs *a = attrs_copy(m, c->op->attrs, c->attrs);
  const char *spatial = c->op->attrs == &Conv1D_attrs ? "W" : c->op->attrs == &Conv3D_attrs ? "DHW" : "HW";
  int dims = (int)strlen(spatial);
  int64_t lanes = target_lanes(t, c->out->dtype.bits);
  int64_t o = dim(c->out, 1);
  int64_t part = dim(c->arg[1], 1);
  int64_t block = lanes;
  if (a->groups > 1) block = (o / a->groups) % lanes ? alter_block(t, c->out->dtype.bits, o / a->groups) : lanes;
  while (a->groups == 1 && block > 4 && block / 2 >= o) block /= 2;
  /* Data that is read often pays for being packed too. */
  int64_t reads = (o / a->groups + block - 1) / block;
  for (int d = 0; d < dims; d++) reads *= dim(c->arg[1], 2 + d);
  int64_t inner = part % lanes || reads < 16 ? 1 : lanes;
  if (inner > 1) a->data_layout = arena_printf(m->arena, "NC%s%" PRId64 "c", spatial, inner);
  a->kernel_layout = inner > 1 ? arena_printf(m->arena, "OI%s%" PRId64 "i%" PRId64 "o", spatial, inner, block)
                               : arena_printf(m->arena, "OI%s%" PRId64 "o", spatial, block);
  a->out_layout = arena_printf(m->arena, "NC%s%" PRId64 "c", spatial, block);
  a->channels = 0;
  const Tensor *weight = pack_weight(m, in[1], block, inner);
  const Tensor *data = inner > 1 ? pack_data(m, in[0], inner) : in[0];
  const Type *types[2] = {type_tensor(m, data->buffer->dtype, data->buffer->ndim, data->buffer->shape),
                          type_tensor(m, weight->buffer->dtype, weight->buffer->ndim, weight->buffer->shape)};
  const Expr *shape[CONV_AXES];
  for (int d = 0; d < c->out->ndim; d++) shape[d] = d == 1 ? expr_i32(m, (o + block - 1) / block) : c->out->shape[d];
  shape[c->out->ndim] = expr_i32(m, block);
  OpCall blocked = {.m = m,
                    .op = c->op,
                    .attrs = a,
                    .nargs = 2,
                    .arg = types,
                    .out = type_tensor(m, c->out->dtype, c->out->ndim + 1, shape),
                    .name = c->name};
  const Tensor *result;
  c->op->compute(&blocked, (const Tensor *const[]){data, weight}, &result);
  *out = unpack_output(m, result, c->out, block);
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

static void conv_loops(ImplGroup *g, const Nest *n, ConvLoops *l)
{
  *l = (ConvLoops){.first = 0};
  while (l->first < n->n && !n->loop[l->first].reduce) l->first++;
  l->dims = l->first - 3;
  if (l->dims < 1 || l->dims > 3 || !n->plain)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "the convolution's loops are not those of NCHWc");
  l->c = l->first - 1;
  l->x = l->c - 1;
  l->y = l->dims > 1 ? l->x - 1 : -1;
  l->z = l->dims > 2 ? l->y - 1 : -1;
}

/* Loops of one step come first, then those that go farther in the weight. */
static bool before(const Nest *n, int weight, int a, int b)
{
  bool single = n->loop[a].extent == 1;
  bool other = n->loop[b].extent == 1;
  return single != other ? single : n->loop[a].stride[weight] > n->loop[b].stride[weight];
}

/* Reduction loops by how far a step goes in the weight, the farthest first. */
int conv_sum_order(const Nest *n, const ConvLoops *l, int *index)
{
  int weight = -1;
  int k = 0;
  for (int a = 0; a < n->naccess; a++)
    if (!n->access[a].write && n->loop[l->c].stride[a] == 1) weight = a;
  for (int i = l->first; i < n->n; i++) index[k++] = i;
  for (int i = 1; i < k && weight >= 0; i++)
    for (int j = i; j > 0 && before(n, weight, index[j], index[j - 1]); j--) {
      int swap = index[j];
      index[j] = index[j - 1];
      index[j - 1] = swap;
    }
  return k;
}

/* Bytes of the data and of the weight that the whole sum reads. */
static void sum_bytes(const Nest *n, const ConvLoops *l, double *data, double *weight)
{
  double size = n->bits / 8.0;
  int a = 1;
  while (a < n->naccess - 1 && (n->loop[l->c].stride[a] != 0 || n->loop[l->x].stride[a] == 0)) a++;
  *data = *weight = size;
  for (int i = 1; i < n->n; i++) {
    const NestLoop *at = &n->loop[i];
    bool window = false; /* neighbours share it */
    for (int s = 2; s <= l->x && i >= l->first; s++) window |= at->stride[a] == n->loop[s].stride[a];
    if (i == 1 || i >= l->c) *weight *= (double)at->extent;
    if (i != 1 && i != l->c && i != l->z && !window) *data *= (double)at->extent;
  }
}

/* Rows of output that one block of output channels after the other goes over, so that least comes
 * from behind the second-level cache: the data once and the weight once for each such band, but the data
 * again for each block of channels where a band does not stay in the cache. */
static int64_t band_rows(const Target *t, const Nest *n, const ConvLoops *l, int64_t blocks, Tile tile)
{
  int64_t oy = n->loop[l->y].extent;
  int64_t best = oy;
  double data, weight;
  double cache = (double)cost_l2(t) / 2;
  double times = (double)blocks / (double)tile.o;
  double least = 0;
  sum_bytes(n, l, &data, &weight);
  for (int64_t rows = oy; rows >= tile.y && oy % tile.y == 0; rows -= tile.y) {
    if (oy % rows) continue;
    double bands = (double)oy / (double)rows;
    double moved = (data / bands <= cache ? data : data * times) + (weight <= cache ? weight : weight * bands);
    if (least != 0 && moved >= least) continue;
    least = moved;
    best = rows;
  }
  return best;
}

BlockRV conv_begin(ImplGroup *g, Nest **n, ConvLoops *l)
{
  generic_inline(g);
  BlockRV conv = group_sum(g);
  *n = arena_new_of(g->arena, Nest);
  nest_read(g, conv, *n);
  conv_loops(g, *n, l);
  return conv;
}

void conv_schedule(ImplGroup *g)
{
  Nest *n;
  ConvLoops l;
  BlockRV conv = conv_begin(g, &n, &l);
  /* A tile's channels are of one group and read the same data. */
  int64_t groups = ((const Conv2DAttrs *)g->anchor->u.call.attrs)->groups;
  int64_t block = n->loop[l.c].extent;
  int64_t own = n->loop[1].extent * block / groups;
  int64_t ox = n->loop[l.x].extent;
  int64_t oy = l.y < 0 ? 1 : n->loop[l.y].extent;
  int64_t blocks = own < block ? 1 : own / block;
  int64_t vectors = alter_block_vectors(own < block ? own : block, target_lanes(g->target, n->bits));
  Tile tile = tile_for(g->target, n->bits, vectors, blocks, oy, ox);
  int64_t rows = l.y < 0 ? 1 : band_rows(g->target, n, &l, blocks, tile);
  LoopRV order[NEST_LOOPS + 8], oi;
  LoopRV yi = {-1};
  LoopRV ym = {-1};
  LoopRV xi;
  LoopRV step = {-1};
  LoopRV c = n->loop[l.c].rv;
  int sum[NEST_LOOPS];
  int nsum = conv_sum_order(n, &l, sum);
  int k = 0;
  order[k++] = n->loop[0].rv;
  if (l.z >= 0) order[k++] = n->loop[l.z].rv;
  if (l.y >= 0) order[k++] = generic_split_by(g, n->loop[l.y].rv, rows, &ym);
  order[k++] = generic_split_by(g, n->loop[1].rv, tile.o, &oi);
  if (own < block) order[k++] = generic_split_by(g, c, own, &c);
  int shared = k;
  if (l.y >= 0) order[k++] = generic_split_by(g, ym, tile.y, &yi);
  order[k++] = generic_split_by(g, n->loop[l.x].rv, tile.x, &xi);
  int outer = k;
  /* As many steps written out as give some hundred multiply-adds; but neighbouring taps read the same elements, and
   * where each is a register of its own, what is kept for the next one takes it from the sums. */
  bool taps = sum[nsum - 1] >= n->n - l.dims && g->target->broadcast_load;
  int64_t steps = taps ? 1 : tile_steps_of(g->target, tile, vectors, n->loop[sum[nsum - 1]].extent);
  for (int i = 0; i < nsum; i++) {
    if (i == nsum - 1 && steps > 1) {
      order[k++] = generic_split_by(g, n->loop[sum[i]].rv, steps, &step);
      order[k++] = step;
    } else {
      order[k++] = n->loop[sum[i]].rv;
    }
  }
  if (l.y >= 0) order[k++] = yi;
  order[k++] = xi, order[k++] = oi, order[k++] = c;
  sched_reorder(g->s, k, order);
  epilogue_write_out(g, impl_attach_epilogue(g, conv, order[outer - 1]), outer, true);
  if (step.id >= 0) sched_unroll(g->s, step);
  if (l.y >= 0) sched_unroll(g->s, yi);
  sched_unroll(g->s, oi), sched_unroll(g->s, xi);
  sched_vectorize(g->s, c);
  sched_decompose_reduction(g->s, conv, order[outer]);
  int threads = cost_threads(g->target, n->iterations * 2, 0);
  /* Rows with a tail stay inside, so that the threads share whole tiles. */
  double batch = n->loop[0].extent ? (double)n->loop[0].extent : 1;
  double depth = l.z >= 0 ? (double)n->loop[l.z].extent : 1;
  double channels = (double)(n->loop[1].extent / tile.o) * (own < block ? (double)(block / own) : 1);
  double parts = batch * depth * ((double)oy / (double)rows) * channels;
  bool whole = l.y >= 0 ? oy % tile.y == 0 : ox % tile.x == 0;
  LoopRV fused = sched_fuse(g->s, parts < 4 * threads && whole ? shared + 1 : shared, order, true);
  if (threads > 1) sched_parallel(g->s, fused);
  generic_rest(g);
}
