/* nn_norm.c: normalizations.
 *
 * batch_norm and dropout are decomposed: at inference they are a scale and shift per
 * channel, and nothing.  layer_norm, instance_norm and group_norm are one kernel of three
 * stages: mean, variance around it, result. */
#include "op/nn_kit.h"

#include "op/shape_attrs.h"

DEFINE_ATTRS_TABLE(BatchNorm, BATCH_NORM_ATTRS)
DEFINE_ATTRS_TABLE(InstanceNorm, INSTANCE_NORM_ATTRS)
DEFINE_ATTRS_TABLE(LayerNorm, LAYER_NORM_ATTRS)
DEFINE_ATTRS_TABLE(GroupNorm, GROUP_NORM_ATTRS)
DEFINE_ATTRS_TABLE(L2Normalize, L2_NORMALIZE_ATTRS)
DEFINE_ATTRS_TABLE(Lrn, LRN_ATTRS)
DEFINE_ATTRS_TABLE(Prelu, PRELU_ATTRS)
DEFINE_ATTRS_TABLE(Dropout, DROPOUT_ATTRS)

/* Argument i is one number for each element along the axis of data. */
static void want_per_channel(OpCall *c, int i, const char *name, int axis)
{
  nn_want_rank(c, i, name, 1);
  if (nn_dims_differ(c->m, c->arg[i]->shape[0], c->arg[0]->shape[axis]))
    opdef_raise(c, ERR_SHAPE, "%s %s does not run along axis %d of data %s", name, nn_arg_shape(c, i), axis,
                nn_arg_shape(c, 0));
}

/* ---- batch_norm, dropout ------------------------------------------------------------------------- */

static const Type *batch_norm_type(OpCall *c)
{
  static const char *const names[] = {"data", "gamma", "beta", "moving_mean", "moving_var"};
  const BatchNormAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  int axis = nn_axis_of(c, a->axis, c->arg[0]->ndim);
  for (int i = 1; i < 5; i++) want_per_channel(c, i, names[i], axis);
  return type_tuple(c->m, 3, (const Type *[]){c->arg[0], c->arg[3], c->arg[4]});
}

/* gamma, beta, alpha and the statistics have one number for each element along the axis. */
static const Type *norm_operand(OpCall *c, int i)
{
  const AttrField *axis = attrs_field(c->op->attrs, "axis");
  return i > 0 ? nn_operand_along(c, *(const int64_t *)((const char *)c->attrs + axis->offset)) : NULL;
}

static const Node *along_axis(Module *m, const Node *v, DType t, int axis, int ndim)
{
  if (!dtype_eq(v->type->dtype, t)) {
    CastAttrs *cast = attrs_new(m, &Cast_attrs);
    cast->dtype = t;
    v = nn_call(m, "cast", 1, &v, cast);
  }
  if (axis == ndim - 1) return v;
  ExpandDimsAttrs *e = attrs_new(m, &ExpandDims_attrs);
  e->axis = 1;
  e->num_newaxis = ndim - 1 - axis;
  return nn_call(m, "expand_dims", 1, &v, e);
}

static const Node *batch_norm_decompose(Module *m, const Node *call)
{
  const BatchNormAttrs *a = call->u.call.attrs;
  const Node *const *arg = call->arg;
  const Type *data = arg[0]->type;
  const Type *stat = arg[4]->type;
  int axis = (int)(a->axis < 0 ? a->axis + data->ndim : a->axis);
  const Node *eps = node_scalar(m, value_float(stat->dtype, a->epsilon));
  const Node *one = node_scalar(m, value_float(stat->dtype, 1));
  const Node *scale = nn_call2(m, "divide", one, nn_call1(m, "sqrt", nn_call2(m, "add", arg[4], eps)));
  if (a->scale) scale = nn_call2(m, "multiply", scale, arg[1]);
  const Node *shift = nn_call2(m, "multiply", nn_call1(m, "negative", arg[3]), scale);
  if (a->center) shift = nn_call2(m, "add", shift, arg[2]);
  const Node *y = nn_call2(m, "multiply", arg[0], along_axis(m, scale, data->dtype, axis, data->ndim));
  y = nn_call2(m, "add", y, along_axis(m, shift, data->dtype, axis, data->ndim));
  return node_tuple(m, 3, (const Node *[]){y, arg[3], arg[4]});
}

static const void *batch_norm_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  BatchNormAttrs *a = attrs_copy(c->m, &BatchNorm_attrs, c->attrs);
  int axis = layout_axis(&arg[0], nn_axis_of(c, a->axis, c->arg[0]->ndim));
  if (axis < 0) return NULL;
  a->axis = axis;
  out[0] = arg[0];
  return a;
}

const OpDef op_nn_batch_norm = {
  .name = "nn.batch_norm",
  .doc = "(data - mean) / sqrt(var + epsilon) * gamma + beta with given statistics; a tuple with the statistics "
         "themselves",
  .args = "data, gamma, beta, moving_mean, moving_var",
  .min_args = 5,
  .max_args = 5,
  .attrs = &BatchNorm_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_FOLLOW,
  .type = batch_norm_type,
  .operand = norm_operand,
  .decompose = batch_norm_decompose,
  .layout = batch_norm_layout,
};

static const Type *dropout_type(OpCall *c)
{
  const Type *data = nn_tensor(c, 0, "data");
  return type_tuple(c->m, 2, (const Type *[]){data, data});
}

static const Node *dropout_decompose(Module *m, const Node *call)
{
  return node_tuple(m, 2, (const Node *[]){call->arg[0], nn_call1(m, "ones_like", call->arg[0])});
}

const OpDef op_nn_dropout = {
  .name = "nn.dropout",
  .doc = "data as it is, and a mask of ones: nothing is dropped at inference",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Dropout_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_FOLLOW,
  .type = dropout_type,
  .decompose = dropout_decompose,
};

/* ---- mean and variance over some axes ---------------------------------------------------------------- */

/* data seen as (kept…, reduced…): moments are indexed by the kept ones. */
typedef struct Moments {
  int nkept, kept[MAX_RANK], nred, red[MAX_RANK];
  const Tensor *x, *mean, *var;
  DType dtype; /* to compute in */
  const Expr *count;
} Moments;

static void split_axes(Moments *q, const Buffer *b, const bool *reduced)
{
  for (int d = 0; d < b->ndim; d++) {
    if (reduced[d]) q->red[q->nred++] = d;
    else q->kept[q->nkept++] = d;
  }
}

/* A reduction stage over the kept axes; gives the index of data inside it. */
static Stage moment_stage(Module *m, const Moments *q, const Expr **index)
{
  const Expr *shape[MAX_RANK], *const *extent = q->x->buffer->shape;
  for (int i = 0; i < q->nkept; i++) shape[i] = extent[q->kept[i]];
  Stage s = nn_stage(m, q->nkept, shape, NULL);
  for (int i = 0; i < q->nkept; i++) index[q->kept[i]] = s.at[i];
  for (int i = 0; i < q->nred; i++)
    index[q->red[i]] = nn_reduce_axis(&s, arena_printf(m->arena, "k%d", i), extent[q->red[i]]);
  return s;
}

static Moments moments_of(Module *m, const Tensor *x, const bool *reduced)
{
  Moments q = {.x = x, .dtype = nn_accumulator(x->buffer->dtype)};
  split_axes(&q, x->buffer, reduced);
  q.count = expr_i32(m, 1);
  for (int i = 0; i < q.nred; i++) q.count = expr_mul(m, q.count, x->buffer->shape[q.red[i]]);
  q.count = expr_cast(m, q.dtype, nn_simplify(m, q.count));
  const Expr *index[MAX_RANK];
  Stage s = moment_stage(m, &q, index);
  const Tensor *sum =
      nn_finish(&s, "T_norm_sum", "comm_reduce", nn_reduce(&s, "sum", expr_cast(m, q.dtype, nn_read(m, x, index))));
  Stage e = nn_stage(m, s.n, s.shape, NULL);
  q.mean = nn_finish(&e, "T_norm_mean", "elemwise", NN_DIV(m, nn_read(m, sum, e.at), q.count));
  Stage v = moment_stage(m, &q, index);
  const Expr *d = expr_sub(m, expr_cast(m, q.dtype, nn_read(m, x, index)), nn_read(m, q.mean, v.at));
  const Tensor *square = nn_finish(&v, "T_norm_square", "comm_reduce", nn_reduce(&v, "sum", expr_mul(m, d, d)));
  Stage w = nn_stage(m, v.n, v.shape, NULL);
  q.var = nn_finish(&w, "T_norm_var", "elemwise", NN_DIV(m, nn_read(m, square, w.at), q.count));
  return q;
}

/* (x - mean) * (1 / sqrt(var + epsilon)) at a full index: one division for all that share a mean. */
static const Expr *normalized(Module *m, const Moments *q, const Expr *const *index, double epsilon)
{
  const Expr *kept[MAX_RANK];
  for (int i = 0; i < q->nkept; i++) kept[i] = index[q->kept[i]];
  const Expr *d = expr_sub(m, expr_cast(m, q->dtype, nn_read(m, q->x, index)), nn_read(m, q->mean, kept));
  const Expr *root = nn_unary(m, IN_SQRT, expr_add(m, nn_read(m, q->var, kept), expr_const(m, q->dtype, epsilon)));
  return expr_mul(m, d, NN_DIV(m, expr_const(m, q->dtype, 1), root));
}

/* value * gamma[at] + beta[at], as far as they are wanted. */
static const Expr *scaled(Module *m, const Expr *value, const Tensor *const *in, const Expr *const *at, bool scale,
                          bool center)
{
  if (scale) value = expr_mul(m, value, expr_cast(m, value->dtype, nn_read(m, in[1], at)));
  if (center) value = expr_add(m, value, expr_cast(m, value->dtype, nn_read(m, in[2], at)));
  return value;
}

/* ---- layer_norm, instance_norm ------------------------------------------------------------------------ */

static const Type *axis_norm_type(OpCall *c)
{
  const LayerNormAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  int axis = nn_axis_of(c, a->axis, c->arg[0]->ndim);
  want_per_channel(c, 1, "gamma", axis);
  want_per_channel(c, 2, "beta", axis);
  return c->arg[0];
}

static void norm_over(OpCall *c, const Tensor *const *in, const Tensor **out, const bool *reduced, int axis,
                      const LayerNormAttrs *a, const char *tag)
{
  Module *m = c->m;
  Moments q = moments_of(m, in[0], reduced);
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *value = scaled(m, normalized(m, &q, s.at, a->epsilon), in, &s.at[axis], a->scale, a->center);
  *out = nn_finish(&s, tag, tag, expr_cast(m, c->out->dtype, value));
}

static void layer_norm_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const LayerNormAttrs *a = c->attrs;
  int axis = nn_axis_of(c, a->axis, c->out->ndim);
  bool reduced[MAX_RANK] = {false};
  reduced[axis] = true;
  norm_over(c, in, out, reduced, axis, a, "layer_norm");
}

_Static_assert(sizeof(LayerNormAttrs) == sizeof(InstanceNormAttrs), "norm_over reads both");

static void instance_norm_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const LayerNormAttrs *a = c->attrs;
  int axis = nn_axis_of(c, a->axis, c->out->ndim);
  bool reduced[MAX_RANK] = {false};
  for (int d = 1; d < c->out->ndim; d++) reduced[d] = d != axis;
  norm_over(c, in, out, reduced, axis, a, "instance_norm");
}

#define NORM_OP(id, text, what, list, fn, rule) \
  const OpDef id = {                            \
    .name = text,                               \
    .doc = what,                                \
    .args = "data, gamma, beta",                \
    .min_args = 3,                              \
    .max_args = 3,                              \
    .attrs = &list,                             \
    .fuse = FUSE_OUT_ELEMWISE,                  \
    .narrow = NARROW_NEVER,                     \
    .type = rule,                               \
    .operand = norm_operand,                    \
    .compute = fn,                              \
  };
NORM_OP(op_nn_layer_norm, "nn.layer_norm", "zero mean and unit variance along an axis, then scale and shift",
        LayerNorm_attrs, layer_norm_compute, axis_norm_type)
NORM_OP(op_nn_instance_norm, "nn.instance_norm", "zero mean and unit variance in each channel of each sample",
        InstanceNorm_attrs, instance_norm_compute, axis_norm_type)

/* ---- group_norm -------------------------------------------------------------------------------------------- */

static const Type *group_norm_type(OpCall *c)
{
  const GroupNormAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  int axis = nn_axis_of(c, a->axis, c->arg[0]->ndim);
  const Expr *channels = c->arg[0]->shape[axis];
  want_per_channel(c, 1, "gamma", axis);
  want_per_channel(c, 2, "beta", axis);
  if (axis == 0) opdef_raise(c, ERR_ARGUMENT, "axis 0 is the batch; channels are wanted");
  if (a->num_groups < 1 || (channels->kind == E_INT && channels->u.i % a->num_groups))
    opdef_raise(c, ERR_SHAPE, "num_groups is %" PRId64 ", data %s has %s channels", a->num_groups, nn_arg_shape(c, 0),
                expr_str_of(scratch(c->m->ctx), channels));
  return c->arg[0];
}

/* The channels as (group, channel of the group): an index of data in that form. */
static void split_channel(Module *m, const Expr *const *at, int n, int axis, const Expr *part, const Expr **out)
{
  for (int i = 0, j = 0; i < n; i++) {
    if (i != axis) {
      out[j++] = at[i];
      continue;
    }
    out[j++] = expr_floordiv(m, at[i], part);
    out[j++] = expr_floormod(m, at[i], part);
  }
}

static void group_norm_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const GroupNormAttrs *a = c->attrs;
  int n = c->out->ndim;
  int axis = nn_axis_of(c, a->axis, n);
  const Expr *groups = expr_i32(m, a->num_groups);
  const Expr *part = nn_simplify(m, expr_floordiv(m, c->out->shape[axis], groups));
  const Expr *shape[MAX_RANK], *index[MAX_RANK];
  bool reduced[MAX_RANK] = {false};
  for (int i = 0, j = 0; i < n; i++) {
    if (i == axis) shape[j++] = groups;
    reduced[j] = i > 0;
    shape[j++] = i == axis ? part : c->out->shape[i];
  }
  Stage v = nn_stage(m, n + 1, shape, NULL);
  for (int i = 0, j = 0; i < n; i++, j++) {
    index[i] = v.at[j];
    if (i == axis) index[i] = expr_add(m, expr_mul(m, v.at[j], part), v.at[j + 1]), j++;
  }
  const Tensor *grouped = nn_finish(&v, "T_group", "injective", nn_read(m, in[0], index));
  Moments q = moments_of(m, grouped, reduced);
  Stage s = nn_stage(m, n, c->out->shape, NULL);
  split_channel(m, s.at, n, axis, part, index);
  const Expr *value = scaled(m, normalized(m, &q, index, a->epsilon), in, &s.at[axis], a->scale, a->center);
  *out = nn_finish(&s, "group_norm", "group_norm", expr_cast(m, c->out->dtype, value));
}

NORM_OP(op_nn_group_norm, "nn.group_norm", "zero mean and unit variance in each group of channels", GroupNorm_attrs,
        group_norm_compute, group_norm_type)

/* ---- l2_normalize, lrn, prelu ---------------------------------------------------------------------------------- */

static void l2_axes(OpCall *c, int ndim, bool *reduced)
{
  const L2NormalizeAttrs *a = c->attrs;
  if (!a->axis.given || !a->axis.n) reduced[nn_axis_of(c, 1, ndim)] = true;
  for (int i = 0; a->axis.given && i < a->axis.n; i++) reduced[nn_axis_of(c, a->axis.v[i], ndim)] = true;
}

static const Type *l2_normalize_type(OpCall *c)
{
  bool reduced[MAX_RANK] = {false};
  nn_want_float(c, 0, "data");
  if (c->arg[0]->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", MAX_RANK, c->arg[0]->ndim);
  l2_axes(c, c->arg[0]->ndim, reduced);
  return c->arg[0];
}

static void l2_normalize_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const L2NormalizeAttrs *a = c->attrs;
  bool reduced[MAX_RANK] = {false};
  l2_axes(c, c->out->ndim, reduced);
  Moments q = {.x = in[0], .dtype = nn_accumulator(c->out->dtype)};
  split_axes(&q, in[0]->buffer, reduced);
  const Expr *index[MAX_RANK], *kept[MAX_RANK];
  Stage s = moment_stage(m, &q, index);
  const Expr *x = expr_cast(m, q.dtype, nn_read(m, in[0], index));
  const Tensor *sum = nn_finish(&s, "T_l2_sum", "comm_reduce", nn_reduce(&s, "sum", expr_mul(m, x, x)));
  Stage e = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  for (int i = 0; i < q.nkept; i++) kept[i] = e.at[q.kept[i]];
  const Expr *norm = nn_unary(m, IN_SQRT, expr_max(m, nn_read(m, sum, kept), expr_const(m, q.dtype, a->eps)));
  const Expr *value = NN_DIV(m, expr_cast(m, q.dtype, nn_read(m, in[0], e.at)), norm);
  *out = nn_finish(&e, "l2_normalize", "l2_normalize", expr_cast(m, c->out->dtype, value));
}

const OpDef op_nn_l2_normalize = {
  .name = "nn.l2_normalize",
  .doc = "data over the square root of its sum of squares along some axes, which is at least eps",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &L2Normalize_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_NEVER,
  .type = l2_normalize_type,
  .compute = l2_normalize_compute,
};

static const Type *lrn_type(OpCall *c)
{
  const LrnAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  nn_axis_of(c, a->axis, c->arg[0]->ndim);
  if (a->size < 1) opdef_raise(c, ERR_ARGUMENT, "size is %" PRId64 ", at least 1 is wanted", a->size);
  return c->arg[0];
}

/* The sum runs over (size - 1) / 2 elements before and the rest of size behind. */
static void lrn_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const LrnAttrs *a = c->attrs;
  int n = c->out->ndim;
  int axis = nn_axis_of(c, a->axis, n);
  DType t = nn_accumulator(c->out->dtype);
  Stage s = nn_stage(m, n, c->out->shape, NULL);
  const Expr *index[MAX_RANK];
  const Expr *k = nn_reduce_axis(&s, "k", expr_i32(m, a->size));
  for (int i = 0; i < n; i++) index[i] = s.at[i];
  index[axis] = expr_add(m, s.at[axis], expr_sub(m, k, expr_i32(m, (a->size - 1) / 2)));
  const Expr *x = expr_cast(m, t, nn_read(m, in[0], index));
  const Tensor *sum =
      nn_finish(&s, "lrn_sum", "comm_reduce",
                nn_reduce_where(&s, "sum", expr_mul(m, x, x), nn_inside(m, index[axis], c->out->shape[axis])));
  Stage e = nn_stage(m, n, c->out->shape, NULL);
  const Expr *base = expr_add(m, expr_const(m, t, a->bias),
                              expr_mul(m, expr_const(m, t, a->alpha / (double)a->size), nn_read(m, sum, e.at)));
  const Expr *power = expr_call(m, DT_NONE, IN_POW, 2, (const Expr *[]){base, expr_const(m, t, a->beta)});
  *out = nn_finish(&e, "lrn", "lrn",
                   expr_cast(m, c->out->dtype, NN_DIV(m, expr_cast(m, t, nn_read(m, in[0], e.at)), power)));
}

const OpDef op_nn_lrn = {
  .name = "nn.lrn",
  .doc = "data / (bias + alpha / size * sum of squares of its neighbours along an axis) ^ beta",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Lrn_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_NEVER,
  .type = lrn_type,
  .compute = lrn_compute,
};

static const Type *prelu_type(OpCall *c)
{
  const PreluAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  int axis = nn_axis_of(c, a->axis, c->arg[0]->ndim);
  nn_want_rank(c, 1, "alpha", 1);
  if (!expr_is_int(c->arg[1]->shape[0], 1)) want_per_channel(c, 1, "alpha", axis);
  return c->arg[0];
}

static void prelu_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const PreluAttrs *a = c->attrs;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  int axis = nn_axis_of(c, a->axis, c->out->ndim);
  const Expr *x = nn_read(m, in[0], s.at);
  const Expr *zero = expr_const(m, x->dtype, 0);
  const Expr *alpha = nn_read1(m, in[1], expr_is_int(in[1]->buffer->shape[0], 1) ? expr_i32(m, 0) : s.at[axis]);
  *out = nn_finish(&s, "T_prelu", "broadcast",
                   expr_select(m, expr_lt(m, x, zero), expr_mul(m, x, expr_cast(m, x->dtype, alpha)), x));
}

static const void *prelu_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  PreluAttrs *a = attrs_copy(c->m, &Prelu_attrs, c->attrs);
  int axis = layout_axis(&arg[0], nn_axis_of(c, a->axis, c->arg[0]->ndim));
  if (axis < 0) return NULL;
  a->axis = axis;
  out[0] = arg[0];
  return a;
}

const OpDef op_nn_prelu = {
  .name = "nn.prelu",
  .doc = "x where x >= 0, alpha * x elsewhere; NaN stays",
  .args = "data, alpha",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Prelu_attrs,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .type = prelu_type,
  .operand = norm_operand,
  .compute = prelu_compute,
  .layout = prelu_layout,
};
