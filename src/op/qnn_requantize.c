/* qnn_requantize.c: between real numbers and stored integers, and from one stored form to another.
 *
 *   quantize     saturate(round(x / scale) + zero point), halves to the even one
 *   dequantize   (x - zero point) * scale
 *   requantize   saturate(round((x - zero point) * (scale in / scale out)) + zero point out) */
#include "op/qnn.h"

#include "op/nn_kit.h"

#include <math.h>

DEFINE_ATTRS_TABLE(QnnQuantize, QNN_QUANTIZE_ATTRS)
DEFINE_ATTRS_TABLE(QnnDequantize, QNN_DEQUANTIZE_ATTRS)
DEFINE_ATTRS_TABLE(QnnSimulatedQuantize, QNN_SIMULATED_QUANTIZE_ATTRS)
DEFINE_ATTRS_TABLE(QnnSimulatedDequantize, QNN_SIMULATED_DEQUANTIZE_ATTRS)
DEFINE_ATTRS_TABLE(QnnRequantize, QNN_REQUANTIZE_ATTRS)

/* The axis of data that per-channel numbers run along; a scalar tensor has none. */
static int axis_of(OpCall *c, int64_t axis)
{
  const Type *data = op_tensor_arg(c, 0);
  return data->ndim ? nn_axis_of(c, axis, data->ndim) : -1;
}

static int call_axis(const Node *call, int64_t axis)
{
  return (int)(axis < 0 ? axis + call->arg[0]->type->ndim : axis);
}

/* The dtype whose name this is, of at most 32 bits. */
static DType named_dtype(OpCall *c, const char *attribute, const char *name)
{
  DType t = DT_NONE;
  if (!name || !dtype_parse(name, &t))
    opdef_raise(c, ERR_ARGUMENT, "%s '%s' is neither a dtype nor disable", attribute, name ? name : "None");
  return qnn_want_stored(c, attribute, t);
}

/* ---- quantize, dequantize ----------------------------------------------------------------------- */

static const Type *quantize_type(OpCall *c)
{
  const QnnQuantizeAttrs *a = c->attrs;
  int axis = axis_of(c, a->axis);
  const Type *data = c->arg[0];
  op_need_float(c, 0);
  DType out = qnn_want_stored(c, "out_dtype", a->out_dtype);
  qnn_want_scale(c, 1, data, axis);
  qnn_want_zero(c, 2, data, axis, out);
  return type_tensor(c->m, out, data->ndim, data->shape);
}

static const Node *quantize_decompose(Module *m, const Node *call)
{
  const QnnQuantizeAttrs *a = call->u.call.attrs;
  const Node *x = qnn_cast(m, call->arg[0], DT_F32);
  int ndim = x->type->ndim;
  int axis = call_axis(call, a->axis);
  const Node *y = nn_call2(m, "divide", x, qnn_along(m, call->arg[1], axis, ndim));
  double z;
  double lo = dtype_min(a->out_dtype);
  double hi = dtype_max(a->out_dtype);
  const Node *zero = qnn_along(m, call->arg[2], axis, ndim);
  if (qnn_number(zero, &z) && a->out_dtype.bits <= 16) { /* limits are integers: rounding keeps to them */
    y = qnn_cast(m, nn_call1(m, "round", qnn_clip(m, y, lo - z, hi - z)), DT_I32);
    return qnn_cast(m, qnn_arith(m, "add", y, zero), a->out_dtype);
  }
  return qnn_store(m, qnn_cast(m, nn_call1(m, "round", y), DT_I32), zero, a->out_dtype);
}

const OpDef op_qnn_quantize = {
  .name = "qnn.quantize",
  .doc = "real numbers as integers: round(data / scale) + zero point within the range of out_dtype, halves to even",
  .args = "data, output_scale, output_zero_point",
  .min_args = 3,
  .max_args = 3,
  .attrs = &QnnQuantize_attrs,
  .fuse = FUSE_OPAQUE,
  .type = quantize_type,
  .decompose = quantize_decompose,
};

static const Type *dequantize_type(OpCall *c)
{
  const QnnDequantizeAttrs *a = c->attrs;
  int axis = axis_of(c, a->axis);
  const Type *data = c->arg[0];
  qnn_want_integer(c, 0);
  if (!dtype_is_float(a->out_dtype))
    opdef_raise(c, ERR_ARGUMENT, "out_dtype is %s; a float is needed", dtype_name(scratch(c->m->ctx), a->out_dtype));
  qnn_want_scale(c, 1, data, axis);
  qnn_want_zero(c, 2, data, axis, data->dtype);
  return type_tensor(c->m, a->out_dtype, data->ndim, data->shape);
}

static const Node *dequantize_decompose(Module *m, const Node *call)
{
  const QnnDequantizeAttrs *a = call->u.call.attrs;
  int axis = call_axis(call, a->axis);
  const Node *x = qnn_cast(m, qnn_centred(m, call->arg[0], call->arg[2], axis), DT_F32);
  x = nn_call2(m, "multiply", x, qnn_along(m, call->arg[1], axis, x->type->ndim));
  return qnn_cast(m, x, a->out_dtype);
}

const OpDef op_qnn_dequantize = {
  .name = "qnn.dequantize",
  .doc = "the real numbers that integers stand for: (data - zero point) * scale",
  .args = "data, input_scale, input_zero_point",
  .min_args = 3,
  .max_args = 3,
  .attrs = &QnnDequantize_attrs,
  .fuse = FUSE_OPAQUE,
  .type = dequantize_type,
  .decompose = dequantize_decompose,
};

/* ---- simulated: the same in floats, for experiments ---------------------------------------------- */

static const Type *simulated_type(OpCall *c)
{
  const QnnSimulatedQuantizeAttrs *a = c->attrs;
  int axis = axis_of(c, a->axis);
  op_need_float(c, 0);
  qnn_want_scale(c, 1, c->arg[0], axis);
  bool off = a->out_dtype && !strcmp(a->out_dtype, "disable");
  const char *name = c->op->attrs == &QnnSimulatedQuantize_attrs ? "out_dtype" : "in_dtype";
  qnn_want_zero(c, 2, c->arg[0], axis, off ? DT_I32 : named_dtype(c, name, a->out_dtype));
  return c->arg[0];
}

static const Node *simulated_quantize_decompose(Module *m, const Node *call)
{
  const QnnSimulatedQuantizeAttrs *a = call->u.call.attrs;
  const Node *x = call->arg[0];
  DType t = x->type->dtype;
  DType limit = DT_NONE;
  if (!dtype_parse(a->out_dtype, &limit)) return x;
  int axis = call_axis(call, a->axis);
  int ndim = x->type->ndim;
  const Node *scale = qnn_along(m, qnn_cast(m, call->arg[1], t), axis, ndim);
  const Node *zero = qnn_along(m, qnn_cast(m, call->arg[2], t), axis, ndim);
  const Node *y = nn_call2(m, "add", nn_call1(m, "round", nn_call2(m, "divide", x, scale)), zero);
  return qnn_clip(m, y, dtype_min(limit), dtype_max(limit));
}

static const Node *simulated_dequantize_decompose(Module *m, const Node *call)
{
  const QnnSimulatedDequantizeAttrs *a = call->u.call.attrs;
  const Node *x = call->arg[0];
  DType t = x->type->dtype;
  if (!strcmp(a->in_dtype, "disable")) return x;
  int axis = call_axis(call, a->axis);
  int ndim = x->type->ndim;
  const Node *scale = qnn_along(m, qnn_cast(m, call->arg[1], t), axis, ndim);
  const Node *zero = qnn_along(m, qnn_cast(m, call->arg[2], t), axis, ndim);
  return nn_call2(m, "multiply", nn_call2(m, "subtract", x, zero), scale);
}

const OpDef op_qnn_simulated_quantize = {
  .name = "qnn.simulated_quantize",
  .doc = "what qnn.quantize gives, kept in data's float dtype",
  .args = "data, output_scale, output_zero_point",
  .min_args = 3,
  .max_args = 3,
  .attrs = &QnnSimulatedQuantize_attrs,
  .fuse = FUSE_OPAQUE,
  .type = simulated_type,
  .decompose = simulated_quantize_decompose,
};

const OpDef op_qnn_simulated_dequantize = {
  .name = "qnn.simulated_dequantize",
  .doc = "what qnn.dequantize gives, of integers kept in a float dtype",
  .args = "data, input_scale, input_zero_point",
  .min_args = 3,
  .max_args = 3,
  .attrs = &QnnSimulatedDequantize_attrs,
  .fuse = FUSE_OPAQUE,
  .type = simulated_type,
  .decompose = simulated_dequantize_decompose,
};

/* ---- requantize --------------------------------------------------------------------------------- */

static const Type *requantize_type(OpCall *c)
{
  const QnnRequantizeAttrs *a = c->attrs;
  int axis = axis_of(c, a->axis);
  const Type *data = c->arg[0];
  qnn_want_integer(c, 0);
  DType out = qnn_want_stored(c, "out_dtype", a->out_dtype);
  qnn_want_scale(c, 1, data, axis);
  qnn_want_zero(c, 2, data, axis, DT_I32);
  qnn_want_scale(c, 3, data, axis);
  qnn_want_zero(c, 4, data, axis, out);
  if (strcmp(a->rounding, "None") && strcmp(a->rounding, "UPWARD") && strcmp(a->rounding, "TONEAREST"))
    opdef_raise(c, ERR_ARGUMENT, "rounding '%s' is none of UPWARD, TONEAREST, None", a->rounding);
  if (strcmp(a->compute_dtype, "None") && strcmp(a->compute_dtype, "int64") && strcmp(a->compute_dtype, "float32") &&
      strcmp(a->compute_dtype, "float64"))
    opdef_raise(c, ERR_ARGUMENT, "compute_dtype '%s' is none of int64, float32, float64, None", a->compute_dtype);
  if (!strcmp(a->compute_dtype, "int64") && c->node && (c->node[1]->kind != N_CONST || c->node[3]->kind != N_CONST))
    opdef_raise(c, ERR_ARGUMENT,
                "compute_dtype int64 needs scales that are constants; float32 takes those known at run time");
  return type_tensor(c->m, out, data->ndim, data->shape);
}

/* The quotient of two scales as m * 2^(shift - 31), m of 31 bits. */
static void fixed_point(double ratio, double *multiplier, double *right)
{
  int exponent = 0;
  double m = nearbyint(frexp(ratio, &exponent) * 2147483648.0);
  if (m == 2147483648.0) m /= 2, exponent++;
  *multiplier = m;
  *right = 31 - exponent;
  if (*right > 62) *multiplier = 0, *right = 62; /* below half a unit for every int32 */
}

static const Node *rescale_integer(Module *m, const Node *x, const Node *si, const Node *so, int axis, bool upward)
{
  int64_t n = qnn_count(si) > qnn_count(so) ? qnn_count(si) : qnn_count(so);
  double *multiplier = arena_array(scratch(m->ctx), double, n);
  double *right = arena_array(scratch(m->ctx), double, n);
  for (int64_t i = 0; i < n; i++) {
    fixed_point(qnn_at(si, i) / qnn_at(so, i), &multiplier[i], &right[i]);
    if (right[i] < 1)
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE,
            "qnn.requantize: scale %g over scale %g is beyond 2^30, which int64 arithmetic does not hold; use "
            "compute_dtype float32",
            qnn_at(si, i), qnn_at(so, i));
  }
  bool grows = false; /* then a result may be beyond int32 */
  for (int64_t i = 0; i < n; i++) grows |= right[i] <= 31;
  int ndim = x->type->ndim;
  const Node *arg[3] = {x, qnn_along(m, qnn_vector(m, DT_I32, n, multiplier), axis, ndim),
                        qnn_along(m, qnn_vector(m, DT_I32, n, right), axis, ndim)};
  const AttrsDef *def = op_qnn_contrib_multiply_shift.attrs;
  void *a = attrs_new(m, def);
  attrs_set_str(m, def, a, "rounding", upward ? "UPWARD" : "TONEAREST");
  attrs_set_int(m, def, a, "saturate", grows);
  return node_call(m, &op_qnn_contrib_multiply_shift, 3, arg, a, NULL);
}

static const Node *rescale_float(Module *m, const Node *x, const Node *si, const Node *so, const Node *zo, int axis,
                                 const QnnRequantizeAttrs *a, bool upward)
{
  DType t = strcmp(a->compute_dtype, "float64") ? DT_F32 : DT_F64;
  int ndim = x->type->ndim;
  double z;
  double lo = dtype_min(a->out_dtype);
  double hi = dtype_max(a->out_dtype);
  const Node *ratio = qnn_arith(m, "divide", qnn_cast(m, si, t), qnn_cast(m, so, t));
  x = nn_call2(m, "multiply", qnn_cast(m, x, t), qnn_along(m, ratio, axis, ndim));
  bool limited = qnn_number(zo, &z) && a->out_dtype.bits <= 16; /* limits are integers: rounding keeps to them */
  if (limited) x = qnn_clip(m, x, lo - z, hi - z);
  x = upward ? nn_call1(m, "floor", nn_call2(m, "add", x, op_number(m, t, 0.5))) : nn_call1(m, "round", x);
  x = qnn_cast(m, x, DT_I32);
  zo = qnn_along(m, zo, axis, ndim);
  return limited ? qnn_cast(m, qnn_arith(m, "add", x, zo), a->out_dtype) : qnn_store(m, x, zo, a->out_dtype);
}

static const Node *requantize_decompose(Module *m, const Node *call)
{
  const QnnRequantizeAttrs *a = call->u.call.attrs;
  const Node *const *arg = call->arg;
  const Node *si = arg[1];
  const Node *zi = arg[2];
  const Node *so = arg[3];
  const Node *zo = arg[4];
  int axis = call_axis(call, a->axis);
  bool upward = strcmp(a->rounding, "TONEAREST") != 0;
  bool constant = si->kind == N_CONST && so->kind == N_CONST;
  bool same = qnn_same(si, so);
  if (same && qnn_same(zi, zo) && dtype_eq(arg[0]->type->dtype, a->out_dtype)) return arg[0];
  const Node *x = qnn_centred(m, arg[0], zi, axis);
  if (same) return qnn_store(m, x, qnn_along(m, zo, axis, x->type->ndim), a->out_dtype);
  if (*a->compute_dtype == 'f' || !constant) return rescale_float(m, x, si, so, zo, axis, a, upward);
  x = rescale_integer(m, x, si, so, axis, upward);
  return qnn_store(m, x, qnn_along(m, zo, axis, x->type->ndim), a->out_dtype);
}

const OpDef op_qnn_requantize = {
  .name = "qnn.requantize",
  .doc = "integers of one scale and zero point as integers of another",
  .args = "data, input_scale, input_zero_point, output_scale, output_zero_point",
  .min_args = 5,
  .max_args = 5,
  .attrs = &QnnRequantize_attrs,
  .fuse = FUSE_OPAQUE,
  .type = requantize_type,
  .decompose = requantize_decompose,
};

/* ---- the integer rescaling ----------------------------------------------------------------------- */

/* clang-format off */
#define QNN_MULTIPLY_SHIFT_ATTRS(A, S)                                                        \
  A(S, STR, rounding, "\"UPWARD\"",                                                           \
    "UPWARD, TONEAREST: halves up, or away from zero; "                                       \
    "DOUBLE: to the product over 2^31 halves up, then away from zero")                        \
  A(S, BOOL, saturate, "False", "a result beyond int32 is its limit; False: there is none")    \
  A(S, INT, least, "1", "no shift is below this; from 31 on DOUBLE is cheaper")
/* clang-format on */
DEFINE_ATTRS(QnnMultiplyShift, QNN_MULTIPLY_SHIFT_ATTRS)

static const Type *multiply_shift_type(OpCall *c)
{
  const QnnMultiplyShiftAttrs *a = c->attrs;
  for (int i = 0; i < 3; i++) {
    DType t = op_tensor_arg(c, i)->dtype;
    if (!dtype_eq(t, DT_I32) && (i || !dtype_eq(t, DT_I64)))
      opdef_raise(c, ERR_TYPE, "argument '%s' is %s; int32 is needed", op_arg_name(c, i),
                  dtype_name(scratch(c->m->ctx), t));
  }
  if (strcmp(a->rounding, "UPWARD") && strcmp(a->rounding, "TONEAREST") && strcmp(a->rounding, "DOUBLE"))
    opdef_raise(c, ERR_ARGUMENT, "rounding '%s' is none of UPWARD, TONEAREST, DOUBLE", a->rounding);
  const Expr *shape[MAX_RANK];
  int n = op_broadcast_shape(c, c->arg[0]->ndim, c->arg[0]->shape, c->arg[1]->ndim, c->arg[1]->shape, shape);
  const Expr *all[MAX_RANK];
  n = op_broadcast_shape(c, n, shape, c->arg[2]->ndim, c->arg[2]->shape, all);
  return type_tensor(c->m, DT_I32, n, all);
}

static void multiply_shift_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const QnnMultiplyShiftAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes x = op_out_axes(c, 0);
  const Expr *v[3];
  for (int i = 0; i < 3; i++) v[i] = expr_cast(m, DT_I64, op_broadcast_read(m, in[i], x.ndim, x.index));
  const Expr *one = expr_int(m, DT_I64, 1);
  const Expr *product = expr_mul(m, v[0], v[1]);
  const Expr *whole = expr_int(m, DT_I64, 31);
  const Expr *first = *a->rounding != 'D' ? v[2] : a->least >= 31 ? whole : expr_min(m, v[2], whole);
  const Expr *half = op_intrin2(m, IN_SHL, one, expr_sub(m, first, one));
  if (*a->rounding == 'T') {
    const Expr *negative = expr_lt(m, product, expr_int(m, DT_I64, 0));
    half = expr_select(m, negative, expr_sub(m, half, one), half);
  }
  const Expr *y = op_intrin2(m, IN_SHR, expr_add(m, product, half), first);
  if (a->saturate) y = op_clip_value(m, y, dtype_min(DT_I32), dtype_max(DT_I32));
  y = expr_cast(m, DT_I32, y);
  /* what has an instruction of its own */
  if (*a->rounding == 'D' && a->least >= 31 && dtype_eq(c->arg[0]->dtype, DT_I32)) {
    const Expr *arg[4] = {op_broadcast_read(m, in[0], x.ndim, x.index), op_broadcast_read(m, in[1], x.ndim, x.index),
                          expr_i32(m, 31), expr_i32(m, 0)};
    y = expr_call(m, DT_NONE, IN_QMULSHIFT, 4, arg);
  }
  if (*a->rounding == 'D') {
    const Expr *rest = expr_sub(m, op_broadcast_read(m, in[2], x.ndim, x.index), expr_cast(m, DT_I32, first));
    y = op_intrin2(m, IN_SHR_ROUND, y, rest);
  }
  out[0] = op_emit(c, &x, NULL, y);
}

const OpDef op_qnn_contrib_multiply_shift = {
  .name = "qnn.contrib_multiply_shift",
  .doc = "round(data * multiplier / 2^shift) in int64, as int32; shift is from 1 to 62",
  .args = "data, multiplier, shift",
  .min_args = 3,
  .max_args = 3,
  .attrs = &QnnMultiplyShift_attrs,
  .fuse = FUSE_BROADCAST,
  .type = multiply_shift_type,
  .compute = multiply_shift_compute,
  .layout = layout_broadcast,
};
