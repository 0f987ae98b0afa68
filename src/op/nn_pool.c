/* nn_pool.c: pooling over windows, over everything, and into a given number of parts.
 *
 * max takes padding for nothing (the least value); avg divides by the elements of the
 * window that are data, or, with count_include_pad, that are data or padding.  With
 * ceil_mode a last window may hang over the end of the padding, but none starts
 * behind data and the padding before it.  max passes NaN over. */
#include "op/nn_kit.h"

#include <math.h>

DEFINE_ATTRS_TABLE(Pool1D, POOL1D_ATTRS)
DEFINE_ATTRS_TABLE(Pool2D, POOL2D_ATTRS)
DEFINE_ATTRS_TABLE(Pool3D, POOL3D_ATTRS)
DEFINE_ATTRS_TABLE(PoolArgmax, POOL_ARGMAX_ATTRS)
DEFINE_ATTRS_TABLE(GlobalPool2D, GLOBAL_POOL_ATTRS)
DEFINE_ATTRS_TABLE(AdaptivePool1D, ADAPTIVE_POOL1D_ATTRS)
DEFINE_ATTRS_TABLE(AdaptivePool2D, ADAPTIVE_POOL2D_ATTRS)
DEFINE_ATTRS_TABLE(AdaptivePool3D, ADAPTIVE_POOL3D_ATTRS)

static Layout pool_layout(OpCall *c, const char *text, const char *out, const char *spatial)
{
  Layout l = nn_layout(c, "layout", text);
  bool ok = true;
  for (const char *p = spatial; *p; p++) ok &= layout_find(&l, *p) >= 0 && !layout_is_split(&l, *p);
  if (!ok) opdef_raise(c, ERR_ARGUMENT, "layout '%s' needs the whole dimensions %s", text, spatial);
  if (out && *out && strcmp(out, text))
    opdef_raise(c, ERR_UNSUPPORTED, "out_layout '%s' must be the layout, '%s'", out, text);
  const Type *data = nn_tensor(c, 0, "data");
  if (data->ndim != l.n)
    opdef_raise(c, ERR_SHAPE, "data %s has %d dimensions, layout '%s' names %d", nn_arg_shape(c, 0), data->ndim, l.text,
                l.n);
  return l;
}

/* ---- windows ------------------------------------------------------------------------------------ */

enum { POOL_MAX_DIMS = 8 };
typedef struct Pool {
  int dims;
  int at[POOL_MAX_DIMS]; /* which dimension of data */
  int64_t k[POOL_MAX_DIMS], stride[POOL_MAX_DIMS], dilation[POOL_MAX_DIMS], before[POOL_MAX_DIMS], after[POOL_MAX_DIMS];
  bool ceil, include_pad;
} Pool;

static Pool pool_of(OpCall *c)
{
  const Pool2DAttrs *a = c->attrs;
  Pool p = {.dims = c->op->attrs == &Pool1D_attrs   ? 1
                    : c->op->attrs == &Pool3D_attrs ? 3
                                                    : 2,
            .ceil = a->ceil_mode,
            .include_pad = a->count_include_pad};
  const char *spatial = &"DHW"[3 - p.dims];
  Layout l = pool_layout(c, a->layout, a->out_layout, spatial);
  for (int d = 0; d < p.dims; d++) p.at[d] = layout_find(&l, spatial[d]);
  nn_ints(c, "pool_size", a->pool_size, p.dims, 1, 1, p.k);
  nn_ints(c, "strides", a->strides, p.dims, 1, 1, p.stride);
  nn_ints(c, "dilation", a->dilation, p.dims, 1, 1, p.dilation);
  nn_padding(c, a->padding, p.dims, p.before, p.after);
  return p;
}

/* ceil_mode: one more window where something is left, if it starts before the end. */
static const Expr *ceil_windows(OpCall *c, const Pool *p, int d, const Expr *in)
{
  Module *m = c->m;
  DType t = in->dtype;
  int64_t span = (p->k[d] - 1) * p->dilation[d] + 1;
  const Expr *stride = expr_int(m, t, p->stride[d]);
  const Expr *one = expr_int(m, t, 1);
  const Expr *room = expr_add(m, in, expr_int(m, t, p->before[d] + p->after[d] - span));
  const Expr *windows = expr_add(m, nn_ceildiv(m, room, stride), one);
  const Expr *starts = nn_ceildiv(m, expr_add(m, in, expr_int(m, t, p->before[d])), stride);
  return nn_simplify(m, expr_min(m, windows, starts));
}

static void pool_shape(OpCall *c, const Pool *p, const Expr **shape)
{
  const Type *data = c->arg[0];
  for (int i = 0; i < data->ndim; i++) shape[i] = data->shape[i];
  for (int d = 0; d < p->dims; d++) {
    const Expr *in = data->shape[p->at[d]];
    const char *what = arena_printf(scratch(c->m->ctx), "dimension %d of data", p->at[d]);
    shape[p->at[d]] = p->ceil
                          ? ceil_windows(c, p, d, in)
                          : nn_windows(c, what, in, p->k[d], p->stride[d], p->dilation[d], p->before[d], p->after[d]);
  }
}

static const Type *pool_type(OpCall *c)
{
  Pool p = pool_of(c);
  const Expr *shape[LAYOUT_MAX];
  pool_shape(c, &p, shape);
  return type_tensor(c->m, c->arg[0]->dtype, c->arg[0]->ndim, shape);
}

/* How far the last window of ceil_mode reaches behind the padding; the most it can when
 * sizes are not known. */
static int64_t overhang(OpCall *c, const Pool *p, int d, const Tensor *in)
{
  const Type *ty = c->out->kind == TY_TUPLE ? c->out->field[0] : c->out;
  const Expr *n = in->buffer->shape[p->at[d]];
  const Expr *windows = ty->shape[p->at[d]];
  if (!p->ceil) return 0;
  if (n->kind != E_INT || windows->kind != E_INT) return p->stride[d] - 1;
  int64_t end = (windows->u.i - 1) * p->stride[d] + (p->k[d] - 1) * p->dilation[d] + 1;
  int64_t have = n->u.i + p->before[d] + p->after[d];
  return end > have ? end - have : 0;
}

/* data with its padding, and as much more as the last windows of ceil_mode reach. */
static const Tensor *pool_pad(OpCall *c, const Pool *p, const Tensor *in, const Expr *value)
{
  int64_t before[LAYOUT_MAX] = {0};
  int64_t after[LAYOUT_MAX] = {0};
  for (int d = 0; d < p->dims; d++) {
    before[p->at[d]] = p->before[d];
    after[p->at[d]] = p->after[d] + overhang(c, p, d, in);
  }
  return nn_pad_constant(c->m, in, before, after, value, "pad_temp");
}

static void pool_index(Stage *s, const Pool *p, const Expr **index)
{
  Module *m = s->m;
  for (int i = 0; i < s->n; i++) index[i] = s->at[i];
  for (int d = 0; d < p->dims; d++) {
    const Expr *k = nn_reduce_axis(s, arena_printf(m->arena, "rv%d", d), expr_i32(m, p->k[d]));
    const Expr *at = index[p->at[d]];
    index[p->at[d]] = nn_index(
        s, expr_add(m, expr_mul(m, at, expr_i32(m, p->stride[d])), expr_mul(m, k, expr_i32(m, p->dilation[d]))));
  }
}

const Expr *nn_least_value(Module *m, DType t)
{
  if (dtype_is_float(t))
    return expr_const(
        m, t, t.code == DT_FLOAT || t.code == DT_BFLOAT || t.code == DT_E5M2 ? -(double)INFINITY : dtype_min(t));
  return expr_int(m, t, dtype_imin(t));
}

static void max_pool_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Pool p = pool_of(c);
  const Tensor *data = pool_pad(c, &p, in[0], nn_least_value(c->m, c->out->dtype));
  Stage s = nn_stage(c->m, c->out->ndim, c->out->shape, NULL);
  const Expr *index[LAYOUT_MAX];
  pool_index(&s, &p, index);
  *out = nn_finish(&s, "pool_max", "pool_max", nn_reduce(&s, "max", nn_read(c->m, data, index)));
}

/* How many elements of the window at `at` lie in [lo, hi). */
static const Expr *window_count(Stage *s, const Pool *p, int d, const Expr *at, const Expr *lo, const Expr *hi)
{
  Module *m = s->m;
  const Expr *dil = expr_i32(m, p->dilation[d]);
  const Expr *zero = expr_i32(m, 0);
  const Expr *k = expr_i32(m, p->k[d]);
  const Expr *start = expr_sub(m, expr_mul(m, at, expr_i32(m, p->stride[d])), expr_i32(m, p->before[d]));
  const Expr *first = expr_max(m, nn_ceildiv(m, expr_sub(m, lo, start), dil), zero);
  const Expr *end = expr_min(m, nn_ceildiv(m, expr_sub(m, hi, start), dil), k);
  return nn_index(s, expr_max(m, expr_sub(m, end, first), zero));
}

static const Expr *pool_count(Stage *s, const Pool *p, const Tensor *in)
{
  Module *m = s->m;
  const Expr *count = NULL;
  for (int d = 0; d < p->dims; d++) {
    const Expr *n = in->buffer->shape[p->at[d]];
    const Expr *lo = expr_i32(m, 0);
    const Expr *hi = n;
    if (p->include_pad) {
      lo = expr_i32(m, -p->before[d]);
      hi = expr_add(m, n, expr_i32(m, p->after[d]));
    }
    const Expr *one = window_count(s, p, d, s->at[p->at[d]], lo, hi);
    count = count ? expr_mul(m, count, one) : one;
  }
  return expr_max(m, count, expr_i32(m, 1));
}

static void avg_pool_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Pool p = pool_of(c);
  DType t = nn_accumulator(c->out->dtype);
  const Tensor *data = pool_pad(c, &p, in[0], expr_const(m, c->out->dtype, 0));
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *index[LAYOUT_MAX];
  pool_index(&s, &p, index);
  const Tensor *sum =
      nn_finish(&s, "pool_sum", "pool_sum", nn_reduce(&s, "sum", expr_cast(m, t, nn_read(m, data, index))));
  Stage q = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *mean = NN_DIV(m, nn_read(m, sum, q.at), expr_cast(m, t, nn_index(&q, pool_count(&q, &p, in[0]))));
  *out = nn_finish(&q, "pool_avg", "elemwise", expr_cast(m, c->out->dtype, mean));
}

static const void *pool_layout_rule(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  Pool2DAttrs *a = attrs_copy(c->m, c->op->attrs, c->attrs);
  const char *spatial = c->op->attrs == &Pool1D_attrs ? "W" : c->op->attrs == &Pool3D_attrs ? "DHW" : "HW";
  if (!arg[0].from) arg[0] = (LayoutPair){a->layout, a->layout};
  if (strcmp(arg[0].from, a->layout) || !layout_keeps(c, arg[0].from, arg[0].to, spatial)) return NULL;
  a->layout = arg[0].to;
  a->out_layout = "";
  out[0] = arg[0];
  return a;
}

#define POOL_OP(id, text, what, list, fn) \
  const OpDef id = {                      \
    .name = text,                         \
    .doc = what,                          \
    .args = "data",                       \
    .min_args = 1,                        \
    .max_args = 1,                        \
    .attrs = &list,                       \
    .fuse = FUSE_OUT_ELEMWISE,            \
    .narrow = NARROW_FOLLOW,              \
    .type = pool_type,                    \
    .compute = fn,                        \
    .layout = pool_layout_rule,           \
  };
POOL_OP(op_nn_max_pool1d, "nn.max_pool1d", "largest element of each window", Pool1D_attrs, max_pool_compute)
POOL_OP(op_nn_max_pool2d, "nn.max_pool2d", "largest element of each window", Pool2D_attrs, max_pool_compute)
POOL_OP(op_nn_max_pool3d, "nn.max_pool3d", "largest element of each window", Pool3D_attrs, max_pool_compute)
POOL_OP(op_nn_avg_pool1d, "nn.avg_pool1d", "mean of each window", Pool1D_attrs, avg_pool_compute)
POOL_OP(op_nn_avg_pool2d, "nn.avg_pool2d", "mean of each window", Pool2D_attrs, avg_pool_compute)
POOL_OP(op_nn_avg_pool3d, "nn.avg_pool3d", "mean of each window", Pool3D_attrs, avg_pool_compute)

/* ---- with the place of the maximum ------------------------------------------------------------------ */

static Pool argmax_of(OpCall *c)
{
  const PoolArgmaxAttrs *a = c->attrs;
  int dims = nn_tensor(c, 0, "data")->ndim - 2;
  if (dims < 1 || dims > POOL_MAX_DIMS - 2)
    opdef_raise(c, ERR_SHAPE, "data %s needs a batch, channels and one to six spatial dimensions", nn_arg_shape(c, 0));
  Pool p = {.dims = dims, .ceil = a->ceil_mode};
  for (int d = 0; d < dims; d++) p.at[d] = d + 2;
  nn_ints(c, "pool_size", a->pool_size, dims, 1, 1, p.k);
  nn_ints(c, "strides", a->strides, dims, 1, 1, p.stride);
  nn_ints(c, "dilation", a->dilation, dims, 1, 1, p.dilation);
  nn_padding(c, a->padding, dims, p.before, p.after);
  return p;
}

static const Type *pool_argmax_type(OpCall *c)
{
  const PoolArgmaxAttrs *a = c->attrs;
  Pool p = argmax_of(c);
  if (a->storage_order != 0 && a->storage_order != 1)
    opdef_raise(c, ERR_ARGUMENT, "storage_order is %" PRId64 ", 0 or 1 is wanted", a->storage_order);
  const Expr *shape[LAYOUT_MAX];
  pool_shape(c, &p, shape);
  const Type *field[] = {type_tensor(c->m, c->arg[0]->dtype, c->arg[0]->ndim, shape),
                         type_tensor(c->m, DT_I64, c->arg[0]->ndim, shape)};
  return type_tuple(c->m, 2, field);
}

/* Number of an element in the whole tensor; order 1 counts the first spatial dimension fastest. */
static const Expr *flat_index(Module *m, const Tensor *in, const Expr *const *index, bool column_major)
{
  int n = in->buffer->ndim;
  const Expr *flat = NULL;
  for (int i = 0; i < n; i++) {
    int d = column_major && i >= 2 ? n - 1 - (i - 2) : i;
    const Expr *at = expr_cast(m, DT_I64, index[d]);
    flat = flat ? expr_add(m, expr_mul(m, flat, expr_cast(m, DT_I64, in->buffer->shape[d])), at) : at;
  }
  return flat;
}

static void pool_argmax_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const PoolArgmaxAttrs *a = c->attrs;
  Pool p = argmax_of(c);
  const Type *ty = c->out->field[0];
  Stage s = nn_stage(m, ty->ndim, ty->shape, NULL);
  const Expr *index[LAYOUT_MAX];
  const Expr *cond = NULL;
  pool_index(&s, &p, index);
  for (int d = 0; d < p.dims; d++) {
    int i = p.at[d];
    index[i] = expr_sub(m, index[i], expr_i32(m, p.before[d]));
    cond = nn_and(m, cond, nn_inside(m, index[i], in[0]->buffer->shape[i]));
  }
  const Expr *source[] = {flat_index(m, in[0], index, a->storage_order == 1), nn_read(m, in[0], index)};
  const Reducer *r = reducer_named(m, "argmax", ty->dtype, DT_I64);
  const Expr *body[] = {expr_reduce(m, r, 2, source, s.nred, s.red, cond, NULL, 0),
                        expr_reduce(m, r, 2, source, s.nred, s.red, cond, NULL, 1)};
  const TeOp *both = te_compute(m, "pool_argmax", "comm_reduce_idx", s.n, s.shape, s.axis, 2, body, NULL);
  out[0] = &both->out[1];
  out[1] = &both->out[0];
}

const OpDef op_nn_max_pool_with_argmax = {
  .name = "nn.max_pool_with_argmax",
  .doc = "largest element of each window, and its number in data (int64); data is (n, c, spatial…)",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &PoolArgmax_attrs,
  .fuse = FUSE_OPAQUE,
  .type = pool_argmax_type,
  .compute = pool_argmax_compute,
};

/* ---- everything, or a given number of parts ------------------------------------------------------------ */

typedef struct Parts {
  int dims, at[3];
  int64_t out[3]; /* 0: as many as data has */
  bool global;
} Parts;

static Parts parts_of(OpCall *c)
{
  Parts p = {.global = c->op->attrs == &GlobalPool2D_attrs};
  p.dims = c->op->attrs == &AdaptivePool1D_attrs ? 1 : c->op->attrs == &AdaptivePool3D_attrs ? 3 : 2;
  const char *spatial = &"DHW"[3 - p.dims];
  const GlobalPool2DAttrs *g = c->attrs;
  const AdaptivePool2DAttrs *a = c->attrs;
  Layout l = pool_layout(c, p.global ? g->layout : a->layout, p.global ? g->out_layout : a->out_layout, spatial);
  for (int d = 0; d < p.dims; d++) p.at[d] = layout_find(&l, spatial[d]);
  if (p.global)
    for (int d = 0; d < p.dims; d++) p.out[d] = 1;
  else if (a->output_size.given && a->output_size.n) nn_ints(c, "output_size", a->output_size, p.dims, 1, 1, p.out);
  return p;
}

static const Type *parts_type(OpCall *c)
{
  Parts p = parts_of(c);
  const Type *data = c->arg[0];
  const Expr *shape[LAYOUT_MAX];
  for (int i = 0; i < data->ndim; i++) shape[i] = data->shape[i];
  for (int d = 0; d < p.dims; d++) {
    if (p.out[d]) shape[p.at[d]] = expr_i32(c->m, p.out[d]);
    if (expr_is_int(data->shape[p.at[d]], 0))
      opdef_raise(c, ERR_SHAPE, "data %s has nothing to pool", nn_arg_shape(c, 0));
  }
  return type_tensor(c->m, data->dtype, data->ndim, shape);
}

/* Part i of n elements in `parts` is [i * n // parts, ceil((i + 1) * n / parts)). */
static const Expr *part_begin(Module *m, const Expr *i, const Expr *n, const Expr *parts)
{
  return expr_floordiv(m, expr_mul(m, i, n), parts);
}

static const Expr *part_end(Module *m, const Expr *i, const Expr *n, const Expr *parts)
{
  return nn_ceildiv(m, expr_mul(m, expr_add(m, i, expr_i32(m, 1)), n), parts);
}

/* Index of the element to reduce; *cond is where there is one. */
static void parts_index(Stage *s, const Parts *p, const Tensor *in, const Expr **index, const Expr **cond)
{
  Module *m = s->m;
  for (int i = 0; i < s->n; i++) index[i] = s->at[i];
  for (int d = 0; d < p->dims; d++) {
    int i = p->at[d];
    const Expr *n = in->buffer->shape[i];
    const Expr *parts = s->shape[i];
    bool even = parts == n || expr_is_int(nn_simplify(m, expr_floormod(m, n, parts)), 0);
    const Expr *extent = parts == n ? expr_i32(m, 1) : nn_simplify(m, nn_ceildiv(m, n, parts));
    if (!even) extent = nn_simplify(m, expr_add(m, extent, expr_i32(m, 1)));
    const Expr *k = nn_reduce_axis(s, arena_printf(m->arena, "rv%d", d), extent);
    index[i] = nn_index(s, expr_add(m, even ? expr_mul(m, s->at[i], extent) : part_begin(m, s->at[i], n, parts), k));
    if (!even) *cond = nn_and(m, *cond, nn_index(s, expr_lt(m, index[i], part_end(m, s->at[i], n, parts))));
  }
  if (!*cond) *cond = expr_bool(m, true);
}

static const Expr *parts_count(Stage *s, const Parts *p, const Tensor *in)
{
  Module *m = s->m;
  const Expr *count = NULL;
  for (int d = 0; d < p->dims; d++) {
    int i = p->at[d];
    const Expr *n = in->buffer->shape[i];
    const Expr *parts = s->shape[i];
    const Expr *one = expr_sub(m, part_end(m, s->at[i], n, parts), part_begin(m, s->at[i], n, parts));
    count = count ? expr_mul(m, count, one) : one;
  }
  return nn_index(s, count);
}

static void parts_max_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Parts p = parts_of(c);
  Stage s = nn_stage(c->m, c->out->ndim, c->out->shape, NULL);
  const Expr *index[LAYOUT_MAX];
  const Expr *cond = NULL;
  parts_index(&s, &p, in[0], index, &cond);
  *out = nn_finish(&s, "adaptive_pool_max", "adaptive_pool_max",
                   nn_reduce_where(&s, "max", nn_read(c->m, in[0], index), cond));
}

static void parts_avg_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Parts p = parts_of(c);
  DType t = nn_accumulator(c->out->dtype);
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *index[LAYOUT_MAX];
  const Expr *cond = NULL;
  parts_index(&s, &p, in[0], index, &cond);
  const Tensor *sum = nn_finish(&s, "adaptive_pool_sum", "adaptive_pool_sum",
                                nn_reduce_where(&s, "sum", expr_cast(m, t, nn_read(m, in[0], index)), cond));
  Stage q = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *mean = NN_DIV(m, nn_read(m, sum, q.at), expr_cast(m, t, parts_count(&q, &p, in[0])));
  *out = nn_finish(&q, "adaptive_pool_avg", "elemwise", expr_cast(m, c->out->dtype, mean));
}

static const void *parts_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  bool global = c->op->attrs == &GlobalPool2D_attrs;
  const char *spatial = c->op->attrs == &AdaptivePool1D_attrs   ? "W"
                        : c->op->attrs == &AdaptivePool3D_attrs ? "DHW"
                                                                : "HW";
  void *copy = attrs_copy(c->m, c->op->attrs, c->attrs);
  const char **layout = global ? &((GlobalPool2DAttrs *)copy)->layout : &((AdaptivePool2DAttrs *)copy)->layout;
  if (!arg[0].from) arg[0] = (LayoutPair){*layout, *layout};
  if (strcmp(arg[0].from, *layout) || !layout_keeps(c, arg[0].from, arg[0].to, spatial)) return NULL;
  *layout = arg[0].to;
  out[0] = arg[0];
  return copy;
}

#define PARTS_OP(id, text, what, list, fn, how) \
  const OpDef id = {                            \
    .name = text,                               \
    .doc = what,                                \
    .args = "data",                             \
    .min_args = 1,                              \
    .max_args = 1,                              \
    .attrs = &list,                             \
    .fuse = FUSE_OUT_ELEMWISE,                  \
    .narrow = how,                              \
    .type = parts_type,                         \
    .compute = fn,                              \
    .layout = parts_layout,                     \
  };
PARTS_OP(op_nn_global_max_pool2d, "nn.global_max_pool2d", "largest element of each channel", GlobalPool2D_attrs,
         parts_max_compute, NARROW_FOLLOW)
PARTS_OP(op_nn_global_avg_pool2d, "nn.global_avg_pool2d", "mean of each channel", GlobalPool2D_attrs, parts_avg_compute,
         NARROW_NEVER)
PARTS_OP(op_nn_adaptive_max_pool1d, "nn.adaptive_max_pool1d", "largest element of each of output_size parts",
         AdaptivePool1D_attrs, parts_max_compute, NARROW_UNKNOWN)
PARTS_OP(op_nn_adaptive_max_pool2d, "nn.adaptive_max_pool2d", "largest element of each of output_size parts",
         AdaptivePool2D_attrs, parts_max_compute, NARROW_FOLLOW)
PARTS_OP(op_nn_adaptive_max_pool3d, "nn.adaptive_max_pool3d", "largest element of each of output_size parts",
         AdaptivePool3D_attrs, parts_max_compute, NARROW_UNKNOWN)
PARTS_OP(op_nn_adaptive_avg_pool1d, "nn.adaptive_avg_pool1d", "mean of each of output_size parts", AdaptivePool1D_attrs,
         parts_avg_compute, NARROW_UNKNOWN)
PARTS_OP(op_nn_adaptive_avg_pool2d, "nn.adaptive_avg_pool2d", "mean of each of output_size parts", AdaptivePool2D_attrs,
         parts_avg_compute, NARROW_NEVER)
PARTS_OP(op_nn_adaptive_avg_pool3d, "nn.adaptive_avg_pool3d", "mean of each of output_size parts", AdaptivePool3D_attrs,
         parts_avg_compute, NARROW_UNKNOWN)
