/* qnn_elementwise.c: sums, products, concatenations, pools and functions of quantized tensors.
 *
 *   add        zo + round((a - za) * ma + (b - zb) * mb), ma and mb the quotients of the scales in one fixed point
 *   mul        zo + round((a - za)(b - zb) * m)
 *   avg_pool2d zo + round(sum of (x - z) * m / count)
 *   functions  of 8 bits: a table of 256 results; of more: dequantize, the function, quantize */
#include "op/qnn.h"

#include "op/nn_kit.h"

#include <math.h>

DEFINE_ATTRS_TABLE(QnnBinary, QNN_BINARY_ATTRS)
DEFINE_ATTRS_TABLE(QnnConcatenate, QNN_CONCATENATE_ATTRS)
DEFINE_ATTRS_TABLE(QnnAvgPool2D, QNN_AVG_POOL2D_ATTRS)
DEFINE_ATTRS_TABLE(QnnLeakyRelu, QNN_LEAKY_RELU_ATTRS)
DEFINE_ATTRS_TABLE(QnnSoftmax, QNN_SOFTMAX_ATTRS)

static int axis_in(const Type *ty, int64_t axis) { return (int)(axis < 0 ? axis + ty->ndim : axis); }

/* ---- add, subtract, mul -------------------------------------------------------------------------- */

/* lhs, rhs, scale and zero point of lhs, of rhs, of the output */
static const Type *binary_type(OpCall *c)
{
  const QnnBinaryAttrs *a = c->attrs;
  qnn_want_integer(c, 0);
  qnn_want_integer(c, 1);
  op_same_dtype(c, 0, 1);
  const Type *l = c->arg[0];
  const Type *r = c->arg[1];
  DType t = l->dtype;
  int al = l->ndim ? nn_axis_of(c, a->lhs_axis, l->ndim) : -1;
  int ar = r->ndim ? nn_axis_of(c, a->rhs_axis, r->ndim) : -1;
  qnn_want_scale(c, 2, l, al);
  qnn_want_zero(c, 3, l, al, t);
  qnn_want_scale(c, 4, r, ar);
  qnn_want_zero(c, 5, r, ar, t);
  qnn_want_params(c, 6, t);
  const Expr *shape[MAX_RANK];
  int n = op_broadcast_shape(c, l->ndim, l->shape, r->ndim, r->shape, shape);
  return type_tensor(c->m, t, n, shape);
}

/* Quotients as integers over one power of two, as large as sums of two products of 9 bits leave room in int32. */
static bool common_point(const Node *sa, const Node *sb, const Node *so, double *ma, double *mb, double *shift)
{
  double a, b, o;
  if (!qnn_number(sa, &a) || !qnn_number(sb, &b) || !qnn_number(so, &o)) return false;
  int e;
  frexp((a > b ? a : b) / o, &e); /* the larger quotient is below 2^e */
  *shift = 21 - e;
  if (*shift < 1 || *shift > 30) return false;
  *ma = nearbyint(ldexp(a / o, (int)*shift));
  *mb = nearbyint(ldexp(b / o, (int)*shift));
  return true;
}

static const Node *sum_decompose(Module *m, const Node *call, const char *op)
{
  const QnnBinaryAttrs *q = call->u.call.attrs;
  const Node *const *arg = call->arg;
  DType t = arg[0]->type->dtype;
  int al = axis_in(arg[0]->type, q->lhs_axis);
  int ar = axis_in(arg[1]->type, q->rhs_axis);
  const Node *a = qnn_centred(m, arg[0], arg[3], al);
  const Node *b = qnn_centred(m, arg[1], arg[5], ar);
  const Node *zo = qnn_along(m, arg[7], 0, 1);
  double ma, mb, shift;
  if (t.bits <= 8 && common_point(arg[2], arg[4], arg[6], &ma, &mb, &shift)) {
    const Node *y = nn_call2(m, op, nn_call2(m, "multiply", a, op_number(m, DT_I32, ma)),
                             nn_call2(m, "multiply", b, op_number(m, DT_I32, mb)));
    y = nn_call2(m, "add", y, op_number(m, DT_I32, ldexp(1, (int)shift - 1)));
    return qnn_store(m, nn_call2(m, "right_shift", y, op_number(m, DT_I32, shift)), zo, t);
  }
  /* more bits, a scale for each channel or one known at run time: the same sum in float32 */
  const Node *fa = qnn_along(m, qnn_ratio(m, arg[2], qnn_along(m, arg[6], 0, 1)), al, arg[0]->type->ndim);
  const Node *fb = qnn_along(m, qnn_ratio(m, arg[4], qnn_along(m, arg[6], 0, 1)), ar, arg[1]->type->ndim);
  const Node *y = nn_call2(m, op, nn_call2(m, "multiply", qnn_cast(m, a, DT_F32), fa),
                           nn_call2(m, "multiply", qnn_cast(m, b, DT_F32), fb));
  y = nn_call1(m, "floor", nn_call2(m, "add", y, op_number(m, DT_F32, 0.5)));
  return qnn_store(m, qnn_cast(m, y, DT_I32), zo, t);
}

static const Node *add_decompose(Module *m, const Node *call) { return sum_decompose(m, call, "add"); }
static const Node *subtract_decompose(Module *m, const Node *call) { return sum_decompose(m, call, "subtract"); }

static const Node *mul_decompose(Module *m, const Node *call)
{
  const QnnBinaryAttrs *q = call->u.call.attrs;
  const Node *const *arg = call->arg;
  DType t = arg[0]->type->dtype;
  int al = axis_in(arg[0]->type, q->lhs_axis);
  int ar = axis_in(arg[1]->type, q->rhs_axis);
  int ndim = call->type->ndim;
  const Node *a = qnn_centred(m, arg[0], arg[3], al);
  const Node *b = qnn_centred(m, arg[1], arg[5], ar);
  const Node *zero = op_number(m, DT_I32, 0);
  const Node *so = qnn_along(m, arg[6], 0, 1);
  const Node *zo = qnn_along(m, arg[7], 0, 1);
  bool one_l = arg[2]->type->ndim == 0 || expr_is_int(arg[2]->type->shape[0], 1);
  bool one_r = arg[4]->type->ndim == 0 || expr_is_int(arg[4]->type->shape[0], 1);
  al += ndim - arg[0]->type->ndim;
  ar += ndim - arg[1]->type->ndim;
  if (t.bits <= 8 && (one_l || one_r || al == ar))
    return qnn_requantize(m, nn_call2(m, "multiply", a, b), qnn_arith(m, "multiply", arg[2], arg[4]), zero, so, zo,
                          one_l ? ar : al, t);
  const Node *scale = qnn_arith(m, "multiply", qnn_along(m, arg[2], al, ndim), qnn_along(m, arg[4], ar, ndim));
  const Node *y = nn_call2(m, "multiply", qnn_cast(m, a, DT_F32), qnn_cast(m, b, DT_F32));
  y = nn_call2(m, "multiply", y, qnn_arith(m, "divide", scale, so));
  y = nn_call1(m, "floor", nn_call2(m, "add", y, op_number(m, DT_F32, 0.5)));
  return qnn_store(m, qnn_cast(m, y, DT_I32), zo, t);
}

#define BINARY_OP(id, text, what)                                                                              \
  const OpDef op_qnn_##id = {                                                                                  \
    .name = text,                                                                                              \
    .doc = what,                                                                                               \
    .args = "lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, output_scale, output_zero_point", \
    .min_args = 8,                                                                                             \
    .max_args = 8,                                                                                             \
    .attrs = &QnnBinary_attrs,                                                                                 \
    .fuse = FUSE_OPAQUE,                                                                                       \
    .type = binary_type,                                                                                       \
    .decompose = id##_decompose,                                                                               \
  };
BINARY_OP(add, "qnn.add", "sum of two quantized tensors, halves up; shapes broadcast")
BINARY_OP(subtract, "qnn.subtract", "difference of two quantized tensors, halves up; shapes broadcast")
BINARY_OP(mul, "qnn.mul", "product of two quantized tensors, halves up; shapes broadcast")

/* ---- concatenate ----------------------------------------------------------------------------------- */

/* A tuple of as many scalars as there are tensors; the checks of qnn_want_params on each. */
static void want_tuple(OpCall *c, int i, int n, DType t)
{
  if (op_tuple_arg(c, i) != n)
    opdef_raise(c, ERR_ARGUMENT, "argument '%s' has %d fields, data has %d", op_arg_name(c, i), op_tuple_arg(c, i), n);
  OpCall field = *c;
  for (int k = 0; k < n; k++) {
    const Type *ty[8];
    const Node *node[8];
    for (int j = 0; j <= i; j++) ty[j] = c->arg[i]->field[k];
    bool known = c->node && c->node[i]->kind == N_TUPLE;
    for (int j = 0; j <= i; j++) node[j] = known ? c->node[i]->arg[k] : NULL;
    field.arg = ty;
    field.node = known ? node : NULL;
    if (i == 1) qnn_want_scale(&field, i, NULL, -1);
    else qnn_want_zero(&field, i, NULL, -1, t);
  }
}

static const Type *concatenate_type(OpCall *c)
{
  const QnnConcatenateAttrs *a = c->attrs;
  int n = op_tuple_arg(c, 0);
  ConcatenateAttrs *core = attrs_new(c->m, &Concatenate_attrs);
  core->axis = a->axis;
  OpCall inner = *c;
  inner.op = &op_concatenate;
  inner.attrs = core;
  inner.nargs = 1;
  const Type *out = op_concatenate.type(&inner);
  if (!dtype_is_int(out->dtype))
    opdef_raise(c, ERR_TYPE, "the tensors are %s; integers are needed", dtype_name(scratch(c->m->ctx), out->dtype));
  want_tuple(c, 1, n, out->dtype);
  want_tuple(c, 2, n, out->dtype);
  qnn_want_params(c, 3, out->dtype);
  return out;
}

static const Node *field_of(Module *m, const Node *tuple, int i)
{
  return tuple->kind == N_TUPLE ? tuple->arg[i] : node_get(m, tuple, i);
}

static const Node *concatenate_decompose(Module *m, const Node *call)
{
  int n = call->arg[0]->type->nfield;
  const Node **part = arena_array(m->arena, const Node *, n);
  for (int i = 0; i < n; i++)
    part[i] = qnn_requantize(m, field_of(m, call->arg[0], i), qnn_along(m, field_of(m, call->arg[1], i), 0, 1),
                             qnn_along(m, field_of(m, call->arg[2], i), 0, 1), call->arg[3], call->arg[4], -1,
                             call->type->dtype);
  ConcatenateAttrs *a = attrs_new(m, &Concatenate_attrs);
  a->axis = ((const QnnConcatenateAttrs *)call->u.call.attrs)->axis;
  return op_call1(m, &op_concatenate, node_tuple(m, n, part), a);
}

const OpDef op_qnn_concatenate = {
  .name = "qnn.concatenate",
  .doc = "quantized tensors one behind the other, each requantized to the output's scale",
  .args = "data, input_scales, input_zero_points, output_scale, output_zero_point",
  .min_args = 5,
  .max_args = 5,
  .attrs = &QnnConcatenate_attrs,
  .fuse = FUSE_OPAQUE,
  .type = concatenate_type,
  .decompose = concatenate_decompose,
};

/* ---- avg_pool2d -------------------------------------------------------------------------------------- */

static const Pool2DAttrs *pool_attrs(Module *m, const QnnAvgPool2DAttrs *q)
{
  Pool2DAttrs *a = attrs_new(m, &Pool2D_attrs);
  a->pool_size = q->pool_size;
  a->strides = q->strides;
  a->padding = q->padding;
  a->dilation = q->dilation;
  a->ceil_mode = q->ceil_mode;
  a->count_include_pad = q->count_include_pad;
  a->layout = q->layout;
  a->out_layout = q->out_layout;
  return a;
}

static const Type *avg_pool_type(OpCall *c)
{
  qnn_want_integer(c, 0);
  OpCall core = *c;
  core.op = &op_nn_avg_pool2d;
  core.attrs = pool_attrs(c->m, c->attrs);
  core.nargs = 1;
  const Type *out = op_nn_avg_pool2d.type(&core);
  qnn_want_params(c, 1, out->dtype);
  qnn_want_params(c, 3, out->dtype);
  return out;
}

/* The mean of n times the integers is their sum where a window has n elements, and close to n times their mean where
 * padding leaves fewer. */
static const Node *avg_pool_decompose(Module *m, const Node *call)
{
  const QnnAvgPool2DAttrs *q = call->u.call.attrs;
  const Node *const *arg = call->arg;
  double n = 1;
  for (int d = 0; d < 2; d++) n *= (double)(q->pool_size.n == 1 ? q->pool_size.v[0] : q->pool_size.v[d]);
  const Node *x = qnn_centred(m, arg[0], arg[2], 0);
  x = op_call1(m, &op_nn_avg_pool2d, qnn_arith(m, "multiply", x, op_number(m, DT_I32, n)), pool_attrs(m, q));
  const Node *scale = qnn_arith(m, "divide", qnn_along(m, arg[1], 0, 1), op_number(m, DT_F32, n));
  return qnn_requantize(m, x, scale, op_number(m, DT_I32, 0), arg[3], arg[4], -1, call->type->dtype);
}

const OpDef op_qnn_avg_pool2d = {
  .name = "qnn.avg_pool2d",
  .doc = "mean of each window of a quantized tensor",
  .args = "data, input_scale, input_zero_point, output_scale, output_zero_point",
  .min_args = 5,
  .max_args = 5,
  .attrs = &QnnAvgPool2D_attrs,
  .fuse = FUSE_OPAQUE,
  .type = avg_pool_type,
  .decompose = avg_pool_decompose,
};

/* ---- functions of one tensor --------------------------------------------------------------------------- */

static const Type *unary_type(OpCall *c)
{
  qnn_want_integer(c, 0);
  qnn_want_params(c, 1, c->arg[0]->dtype);
  qnn_want_params(c, 3, c->arg[0]->dtype);
  return c->arg[0];
}

typedef const Node *(*RealFunction)(Module *, const Node *call, const Node *x);

static const Node *through_reals(Module *m, const Node *call, const Node *x, RealFunction f)
{
  const Node *const *arg = call->arg;
  const Node *s = qnn_along(m, arg[1], 0, 1);
  const Node *z = qnn_along(m, arg[2], 0, 1);
  return qnn_quantize(m, f(m, call, qnn_dequantize(m, x, s, z, -1)), qnn_along(m, arg[3], 0, 1),
                      qnn_along(m, arg[4], 0, 1), -1, call->type->dtype);
}

/* Every value of the dtype goes through the function once, when the graph is compiled; then results are looked up. */
static const Node *by_table(Module *m, const Node *call, RealFunction f)
{
  const Node *x = call->arg[0];
  DType t = x->type->dtype;
  bool constant = true;
  for (int i = 1; i < 5; i++) constant &= call->arg[i]->kind == N_CONST;
  if (t.bits == 8 && constant) return qnn_lookup(m, x, through_reals(m, call, qnn_every_byte(m, t), f));
  return through_reals(m, call, x, f);
}

/* clang-format off */
#define FUNCTIONS(X)                                                           \
  X(sigmoid, "1 / (1 + exp(-x))") X(tanh, "hyperbolic tangent")                \
  X(exp, "e to the power of each element") X(sqrt, "square root")              \
  X(rsqrt, "1 / square root") X(erf, "error function") X(abs, "absolute value") X(log, "natural logarithm")
/* clang-format on */

#define UNARY_OP(id, text, what, table, rule)                                                             \
  static const Node *id##_decompose(Module *m, const Node *call) { return by_table(m, call, id##_real); } \
  const OpDef op_qnn_##id = {                                                                             \
    .name = text,                                                                                         \
    .doc = what,                                                                                          \
    .args = "x, scale, zero_point, output_scale, output_zero_point",                                      \
    .min_args = 5,                                                                                        \
    .max_args = 5,                                                                                        \
    .attrs = table,                                                                                       \
    .fuse = FUSE_OPAQUE,                                                                                  \
    .type = rule,                                                                                         \
    .decompose = id##_decompose,                                                                          \
  };

#define X(id, what)                                                                                                    \
  static const Node *id##_real(Module *m, const Node *call, const Node *x) { return (void)call, nn_call1(m, #id, x); } \
  UNARY_OP(id, "qnn." #id, what " of a quantized tensor; of 8 bits by table", NULL, unary_type)
FUNCTIONS(X)
#undef X

static const Node *leaky_relu_real(Module *m, const Node *call, const Node *x)
{
  LeakyReluAttrs *a = attrs_new(m, &LeakyRelu_attrs);
  a->alpha = ((const QnnLeakyReluAttrs *)call->u.call.attrs)->alpha;
  return nn_call(m, "nn.leaky_relu", 1, &x, a);
}

static const Type *leaky_relu_type(OpCall *c)
{
  const QnnLeakyReluAttrs *a = c->attrs;
  if (!isfinite(a->alpha)) opdef_raise(c, ERR_ARGUMENT, "alpha is %g; a finite number is needed", a->alpha);
  return unary_type(c);
}

/* x * min(max(x + 3, 0), 6) / 6 */
static const Node *hardswish_real(Module *m, const Node *call, const Node *x)
{
  (void)call;
  const Node *gate = qnn_clip(m, nn_call2(m, "add", x, op_number(m, DT_F32, 3)), 0, 6);
  return nn_call2(m, "divide", nn_call2(m, "multiply", x, gate), op_number(m, DT_F32, 6));
}

UNARY_OP(leaky_relu, "qnn.leaky_relu", "x where it is positive, alpha * x elsewhere, of a quantized tensor",
         &QnnLeakyRelu_attrs, leaky_relu_type)
UNARY_OP(hardswish, "qnn.hardswish", "x * relu6(x + 3) / 6 of a quantized tensor", NULL, unary_type)

/* ---- softmax ----------------------------------------------------------------------------------------------- */

static const Type *softmax_type(OpCall *c)
{
  const QnnSoftmaxAttrs *a = c->attrs;
  const Type *ty = unary_type(c);
  nn_axis_of(c, a->axis, ty->ndim);
  return ty;
}

static const Node *softmax_real(Module *m, const Node *call, const Node *x)
{
  SoftmaxAttrs *a = attrs_new(m, &Softmax_attrs);
  a->axis = ((const QnnSoftmaxAttrs *)call->u.call.attrs)->axis;
  return nn_call(m, "nn.softmax", 1, &x, a);
}

/* Of 8 bits: exp(scale * (x - largest)) comes from a table of 24-bit fractions; a result is
 * (e * round(2^16 / output scale) + half) / (2^16 * sum of e), in int64. */
static const Node *softmax_decompose(Module *m, const Node *call)
{
  const Node *const *arg = call->arg;
  const Node *x = arg[0];
  double s, so;
  int64_t axis = axis_in(x->type, ((const QnnSoftmaxAttrs *)call->u.call.attrs)->axis);
  if (x->type->dtype.bits > 8 || !qnn_number(arg[1], &s) || !qnn_number(arg[3], &so) || so < 1e-9)
    return through_reals(m, call, x, softmax_real);
  double v[256];
  for (int i = 0; i < 256; i++) v[i] = nearbyint(exp(-s * i) * 16777216.0);
  ReduceAttrs *r = attrs_new(m, &Reduce_attrs);
  attrs_set_ints(m, &Reduce_attrs, r, "axis", 1, &axis);
  r->keepdims = true;
  const Node *wide = qnn_cast(m, x, DT_I32);
  const Node *below = nn_call2(m, "subtract", nn_call(m, "max", 1, &wide, r), wide);
  TakeAttrs *t = attrs_new(m, &Take_attrs);
  attrs_set_ints(m, &Take_attrs, t, "axis", 1, (const int64_t[]){0});
  t->mode = "fast";
  const Node *e = nn_call(m, "take", 2, (const Node *[]){qnn_vector(m, DT_I32, 256, v), below}, t);
  e = qnn_cast(m, e, DT_I64);
  const Node *sum = nn_call2(m, "multiply", qnn_sum(m, e, 1, &axis, true), op_number(m, DT_I64, 65536));
  const Node *y = nn_call2(m, "multiply", e, op_number(m, DT_I64, nearbyint(65536 / so)));
  y = nn_call2(m, "add", y, nn_call2(m, "divide", sum, op_number(m, DT_I64, 2)));
  y = qnn_clip(m, nn_call2(m, "divide", y, sum), 0, 1073741824.0);
  return qnn_store(m, qnn_cast(m, y, DT_I32), qnn_along(m, arg[4], 0, 1), call->type->dtype);
}

const OpDef op_qnn_softmax = {
  .name = "qnn.softmax",
  .doc = "softmax of a quantized tensor; of 8 bits in integers",
  .args = "x, scale, zero_point, output_scale, output_zero_point",
  .min_args = 5,
  .max_args = 5,
  .attrs = &QnnSoftmax_attrs,
  .fuse = FUSE_OPAQUE,
  .type = softmax_type,
  .decompose = softmax_decompose,
};
