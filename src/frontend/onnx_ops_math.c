/* onnx_ops_math.c: element by element: arithmetic, comparison, logic, activations, casts.
 *
 * Comes in: nodes over tensors that broadcast as numpy does (from opset 7; before, by the
 * attributes `broadcast` and `axis`).  Goes out: calls of our element-wise operators. */
#include <math.h>
#include <strings.h>

#include "frontend/onnx_import.h"

/* ---- one operand -------------------------------------------------------------------------- */

/* The foreign name tells our operator. */
static const Node *convert_unary(Conversion *c)
{
  static const struct {
    const char *onnx, *ours;
  } names[] = {
    {"Abs", "abs"},         {"Acos", "acos"},       {"Acosh", "acosh"},  {"Asin", "asin"},
    {"Asinh", "asinh"},     {"Atan", "atan"},       {"Atanh", "atanh"},  {"BitwiseNot", "bitwise_not"},
    {"Ceil", "ceil"},       {"Cos", "cos"},         {"Cosh", "cosh"},    {"Erf", "erf"},
    {"Exp", "exp"},         {"Floor", "floor"},     {"IsNaN", "isnan"},  {"Log", "log"},
    {"Neg", "negative"},    {"Not", "logical_not"}, {"Relu", "nn.relu"}, {"Round", "round"},
    {"Sigmoid", "sigmoid"}, {"Sign", "sign"},       {"Sin", "sin"},      {"Sinh", "sinh"},
    {"Sqrt", "sqrt"},       {"Tan", "tan"},         {"Tanh", "tanh"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i].onnx, c->op)) return kit_op1(c, names[i].ours, kit_in(c, 0), NULL);
  BUG(c->ctx, "no operator for %s", c->op);
}

static const Node *convert_identity(Conversion *c) { return kit_in(c, 0); }
static const Node *convert_reciprocal(Conversion *c)
{
  return kit_div(c, kit_scalar_like(c, kit_in(c, 0), 1), kit_in(c, 0));
}
static const Node *convert_softsign(Conversion *c) { return onnx_activation(c, "Softsign", kit_in(c, 0), 0, 0); }
static const Node *convert_softplus(Conversion *c) { return onnx_activation(c, "Softplus", kit_in(c, 0), 0, 0); }
static const Node *convert_leaky_relu(Conversion *c)
{
  return onnx_activation(c, "LeakyRelu", kit_in(c, 0), onnx_attr_float(c, "alpha", 0.01), 0);
}
static const Node *convert_elu(Conversion *c)
{
  return onnx_activation(c, "Elu", kit_in(c, 0), onnx_attr_float(c, "alpha", 1), 0);
}
static const Node *convert_thresholded(Conversion *c)
{
  return onnx_activation(c, "ThresholdedRelu", kit_in(c, 0), onnx_attr_float(c, "alpha", 1), 0);
}
static const Node *convert_hard_sigmoid(Conversion *c)
{
  return onnx_activation(c, "HardSigmoid", kit_in(c, 0), onnx_attr_float(c, "alpha", (double)0.2f),
                         onnx_attr_float(c, "beta", 0.5));
}
static const Node *convert_hard_swish(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_mul(c, x, onnx_activation(c, "HardSigmoid", x, 1.0 / 6, 0.5));
}

static const Node *convert_selu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  bool old = c->version < 6;
  double alpha = onnx_attr_float(c, "alpha", old ? 1.6732 : 1.67326319217681884765625);
  double gamma = onnx_attr_float(c, "gamma", old ? 1.0507 : 1.05070102214813232421875);
  return kit_mul(c, kit_scalar_like(c, x, gamma), onnx_activation(c, "Elu", x, alpha, 0));
}

/* max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) */
static const Node *convert_celu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *zero = kit_scalar_like(c, x, 0);
  const Node *alpha = kit_scalar_like(c, x, onnx_attr_float(c, "alpha", 1));
  const Node *e = kit_sub(c, kit_exp(c, kit_div(c, x, alpha)), kit_scalar_like(c, x, 1));
  return kit_add(c, kit_max2(c, zero, x), kit_min2(c, zero, kit_mul(c, alpha, e)));
}

static const Node *convert_mish(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_mul(c, x, kit_op1(c, "tanh", onnx_activation(c, "Softplus", x, 0, 0), NULL));
}

static const Node *convert_swish(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  double alpha = onnx_attr_float(c, "alpha", 1);
  return kit_mul(c, x, kit_op1(c, "sigmoid", alpha == 1 ? x : kit_mul(c, x, kit_scalar_like(c, x, alpha)), NULL));
}

static const Node *convert_gelu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *one = kit_scalar_like(c, x, 1);
  const Node *half = kit_scalar_like(c, x, 0.5);
  const Node *inner;
  const char *how = onnx_attr_str(c, "approximate", "none");
  if (!strcmp(how, "tanh")) {
    const Node *cube = kit_mul(c, kit_mul(c, x, x), x);
    inner = kit_op1(c, "tanh",
                    kit_mul(c, kit_scalar_like(c, x, sqrt(2 / M_PI)),
                            kit_add(c, x, kit_mul(c, kit_scalar_like(c, x, 0.044715), cube))),
                    NULL);
  } else if (!strcmp(how, "none")) {
    inner = kit_op1(c, "erf", kit_mul(c, x, kit_scalar_like(c, x, M_SQRT1_2)), NULL);
  } else {
    kit_fail(c, ERR_ARGUMENT, "approximate is 'none' or 'tanh', not '%s'", how);
  }
  return kit_mul(c, kit_mul(c, half, x), kit_add(c, one, inner));
}

static const Node *convert_shrink(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  double lambd = onnx_attr_float(c, "lambd", 0.5);
  double bias = onnx_attr_float(c, "bias", 0);
  const Node *zero = kit_scalar_like(c, x, 0);
  DType dt = kit_dtype_of(c, x);
  DType wide = dtype_is_int(dt) ? DT_F32 : dt;
  const Node *v = kit_cast_to(c, x, wide);
  const Node *above = kit_op2(c, "greater", v, kit_scalar(c, wide, lambd), NULL);
  const Node *below = kit_less(c, v, kit_scalar(c, wide, -lambd));
  const Node *up = kit_cast_to(c, kit_add(c, v, kit_scalar(c, wide, bias)), dt);
  const Node *down = kit_cast_to(c, kit_sub(c, v, kit_scalar(c, wide, bias)), dt);
  return kit_where(c, below, up, kit_where(c, above, down, zero));
}

static const Node *convert_is_inf(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  bool neg = onnx_attr_int(c, "detect_negative", 1);
  bool pos = onnx_attr_int(c, "detect_positive", 1);
  if (neg && pos) return kit_op1(c, "isinf", x, NULL);
  if (pos) return kit_op2(c, "equal", x, kit_scalar_like(c, x, INFINITY), NULL);
  if (neg) return kit_op2(c, "equal", x, kit_scalar_like(c, x, -INFINITY), NULL);
  return kit_op2(c, "not_equal", kit_op1(c, "isinf", x, NULL), kit_op1(c, "isinf", x, NULL), NULL);
}

/* To a power of two: the exponent of the float32, rounded as round_mode says; the sign is lost.  What would be beyond
 * the largest is the largest, unless saturate is 0; NaN and the infinities are NaN. */
static const Node *cast_to_power(Conversion *c, const Node *x)
{
  static const double FRACTION = 0x7fffff, HALF = 0x400000, BELOW_HALF = 0x3fffff;
  DType u32 = DTYPE(DT_UINT, 32);
  const char *mode = onnx_attr_str(c, "round_mode", "up");
  const Node *bits = kit_op1(c, "reinterpret", kit_cast_to(c, x, DT_F32), "dtype:t", u32);
  const Node *zero = kit_scalar(c, u32, 0);
  const Node *e = kit_op2(c, "bitwise_and", kit_op2(c, "right_shift", bits, kit_scalar(c, u32, 23), NULL),
                          kit_scalar(c, u32, 0xff), NULL);
  const Node *up = NULL;
  if (!strcmp(mode, "up")) {
    up = kit_op2(c, "greater", kit_op2(c, "bitwise_and", bits, kit_scalar(c, u32, FRACTION), NULL), zero, NULL);
  } else if (!strcmp(mode, "nearest")) { /* halves up, but from the lowest */
    const Node *half =
        kit_op2(c, "greater", kit_op2(c, "bitwise_and", bits, kit_scalar(c, u32, HALF), NULL), zero, NULL);
    const Node *rest =
        kit_op2(c, "greater", kit_op2(c, "bitwise_and", bits, kit_scalar(c, u32, BELOW_HALF), NULL), zero, NULL);
    up = kit_op2(c, "logical_and", half, kit_op2(c, "logical_or", rest, kit_op2(c, "greater", e, zero, NULL), NULL),
                 NULL);
  } else if (strcmp(mode, "down")) {
    kit_fail(c, ERR_ARGUMENT, "round_mode is '%s'; it is up, down or nearest", mode);
  }
  const Node *special = kit_scalar(c, u32, 0xff);
  const Node *more = up ? kit_add(c, e, kit_cast_to(c, up, u32)) : e;
  if (onnx_attr_int(c, "saturate", 1)) more = kit_min2(c, more, kit_scalar(c, u32, 0xfe));
  more = kit_where(c, kit_op2(c, "equal", e, special, NULL), special, more);
  return kit_op1(c, "reinterpret", kit_cast_to(c, more, DT_U8), "dtype:t", DTYPE(DT_E8M0FNU, 8));
}

/* A float that does not fit float8 or float4 becomes the largest that does, unless saturate is 0. */
static const Node *cast_saturated(Conversion *c, const Node *x, DType dt)
{
  DType from = kit_dtype_of(c, x);
  bool narrow = dt.code >= DT_E4M3FN && dt.code <= DT_E2M1FN;
  if (dt.code == DT_E8M0FNU && !dtype_is_string(from)) return from.code == dt.code ? x : cast_to_power(c, x);
  if (narrow && dtype_is_float(from) && onnx_attr_int(c, "saturate", 1)) {
    const Node *limited = kit_op1(c, "clip", x, "a_min:f,a_max:f", dtype_min(dt), dtype_max(dt));
    x = kit_where(c, kit_op1(c, "isnan", x, NULL), x, limited);
  }
  /* out of range, a narrow integer keeps its low bits */
  if (dtype_is_int(dt) && dt.bits < 8 && dt.bits > 1 && dtype_is_float(from)) x = kit_cast_to(c, x, DT_I32);
  return kit_cast_to(c, x, dt);
}

/* Opset 1 to 5 spelt the type out: "FLOAT". */
static DType named_dtype(Conversion *c, const char *text)
{
  static const char *const names[] = {"UNDEFINED", "FLOAT",  "UINT8", "INT8",    "UINT16", "INT16",  "INT32",
                                      "INT64",     "STRING", "BOOL",  "FLOAT16", "DOUBLE", "UINT32", "UINT64"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcasecmp(names[i], text)) return onnx_dtype(c->ctx, (int64_t)i, c->name);
  kit_fail(c, ERR_TYPE, "there is no type '%s'", text);
}

static const Node *convert_cast(Conversion *c)
{
  const PAttr *to = onnx_attr(c, "to");
  if (!to) kit_fail(c, ERR_ARGUMENT, "attribute 'to' is missing");
  if (to->type == PATTR_STRING || to->s.n)
    return cast_saturated(c, kit_in(c, 0), named_dtype(c, onnx_attr_str(c, "to", "")));
  return cast_saturated(c, kit_in(c, 0), onnx_dtype(c->ctx, to->i, c->name));
}

static const Node *convert_cast_like(Conversion *c)
{
  return cast_saturated(c, kit_in(c, 0), kit_dtype_of(c, kit_in(c, 1)));
}

static const Node *convert_bit_cast(Conversion *c)
{
  DType dt = onnx_attr_dtype(c, "to", DT_F32);
  const Node *x = kit_in(c, 0);
  if (dtype_eq(dt, kit_dtype_of(c, x))) return x;
  if (dtype_is_bool(kit_dtype_of(c, x)) && dt.bits == 8)
    return kit_op1(c, "reinterpret", kit_cast_to(c, x, DT_U8), "dtype:t", dt);
  if (dtype_is_bool(dt)) kit_fail(c, ERR_UNSUPPORTED, "a bool made of other bits is not supported");
  return kit_op1(c, "reinterpret", x, "dtype:t", dt);
}

/* ---- two operands --------------------------------------------------------------------------- */

/* Before opset 7 the second operand stands at `axis` of the first. */
static const Node *legacy_operand(Conversion *c, const Node *a, const Node *b)
{
  int ra = kit_rank_of(c, a);
  int rb = kit_rank_of(c, b);
  if (!onnx_attr_int(c, "broadcast", 0) || !onnx_attr(c, "axis")) return b;
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", 0), ra);
  int after = ra - axis - rb;
  if (after < 0) kit_fail(c, ERR_SHAPE, "an operand of rank %d does not fit at axis %d of rank %d", rb, axis, ra);
  return after ? kit_op1(c, "expand_dims", b, "axis:i,num_newaxis:i", rb, after) : b;
}

static const Node *convert_binary(Conversion *c)
{
  static const struct {
    const char *onnx, *ours;
  } names[] = {
    {"Add", "add"},
    {"Sub", "subtract"},
    {"Mul", "multiply"},
    {"Div", "divide"},
    {"And", "logical_and"},
    {"Or", "logical_or"},
    {"Xor", "logical_xor"},
    {"Equal", "equal"},
    {"Greater", "greater"},
    {"GreaterOrEqual", "greater_equal"},
    {"Less", "less"},
    {"LessOrEqual", "less_equal"},
    {"BitwiseAnd", "bitwise_and"},
    {"BitwiseOr", "bitwise_or"},
    {"BitwiseXor", "bitwise_xor"},
  };
  const Node *a = kit_in(c, 0);
  const Node *b = kit_in(c, 1);
  if (c->version < 7) b = legacy_operand(c, a, b);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i].onnx, c->op)) return kit_op2(c, names[i].ours, a, b, NULL);
  BUG(c->ctx, "no operator for %s", c->op);
}

static const Node *convert_mod(Conversion *c)
{
  return kit_op2(c, onnx_attr_int(c, "fmod", 0) ? "mod" : "floor_mod", kit_in(c, 0), kit_in(c, 1), NULL);
}

/* The result has the base's type; integers go through float64. */
static const Node *convert_pow(Conversion *c)
{
  const Node *a = kit_in(c, 0);
  const Node *b = kit_in(c, 1);
  if (c->version < 7) b = legacy_operand(c, a, b);
  DType ta = kit_dtype_of(c, a);
  DType tb = kit_dtype_of(c, b);
  DType wide = dtype_is_int(ta) ? DT_F64 : ta;
  if (dtype_is_float(ta) && dtype_eq(tb, DT_F64)) wide = DT_F64;
  double e;
  if (dtype_is_float(ta) && kit_const_float(c, b, &e) && e == 2 && kit_rank_of(c, a) >= kit_rank_of(c, b))
    return kit_mul(c, a, a);
  return kit_cast_to(c, kit_op2(c, "power", kit_cast_to(c, a, wide), kit_cast_to(c, b, wide), NULL), ta);
}

static const Node *convert_bit_shift(Conversion *c)
{
  const char *way = onnx_attr_str(c, "direction", "");
  if (strcmp(way, "LEFT") && strcmp(way, "RIGHT"))
    kit_fail(c, ERR_ARGUMENT, "direction is LEFT or RIGHT, not '%s'", way);
  return kit_op2(c, *way == 'L' ? "left_shift" : "right_shift", kit_in(c, 0), kit_in(c, 1), NULL);
}

static const Node *convert_prelu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *slope = kit_in(c, 1);
  int rank = kit_rank_of(c, x);
  int64_t n = 0;
  int64_t ch = 0;
  bool channels = rank > 2 && kit_rank_of(c, slope) == 1 && kit_is_static_dim(kit_dim_of(c, slope, 0), &n) &&
                  kit_is_static_dim(kit_dim_of(c, x, 1), &ch) && n == ch && n > 1;
  int64_t last;
  if (channels && c->version >= 7 && kit_is_static_dim(kit_dim_of(c, x, -1), &last) && last == n) channels = false;
  if (channels) slope = kit_unsqueeze_to(c, slope, 0, rank - 1);
  return kit_where(c, kit_less(c, x, kit_scalar_like(c, x, 0)), kit_mul(c, x, slope), x);
}

/* ---- many operands ------------------------------------------------------------------------------- */

static const Node *convert_variadic(Conversion *c)
{
  const char *t = c->op;
  const char *op = !strcmp(t, "Max") ? "maximum" : !strcmp(t, "Min") ? "minimum" : "add";
  const Node *r = kit_in(c, 0);
  for (int i = 1; i < c->nin; i++) r = kit_op2(c, op, r, kit_in(c, i), NULL);
  return strcmp(t, "Mean") ? r : kit_div(c, r, kit_scalar_like(c, r, c->nin));
}

static const Node *convert_where(Conversion *c) { return kit_where(c, kit_in(c, 0), kit_in(c, 1), kit_in(c, 2)); }

static const Node *convert_clip(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *lo = kit_opt(c, 1);
  const Node *hi = kit_opt(c, 2);
  double a = -INFINITY;
  double b = INFINITY;
  if (c->version < 11) {
    a = onnx_attr_float(c, "min", -INFINITY);
    b = onnx_attr_float(c, "max", INFINITY);
    lo = hi = NULL;
  }
  bool known = (!lo || kit_const_float(c, lo, &a)) && (!hi || kit_const_float(c, hi, &b));
  if (known && dtype_is_float(kit_dtype_of(c, x))) return kit_op1(c, "clip", x, "a_min:f,a_max:f", a, b);
  if (lo) x = kit_max2(c, x, kit_scalar_of(c, lo));
  if (hi) x = kit_min2(c, x, kit_scalar_of(c, hi));
  return x;
}

/* ---- softmax: before opset 13 over a matrix, after along one axis ------------------------------------ */

static const Node *over_matrix(Conversion *c, const Node *(*fn)(Conversion *, const Node *, int))
{
  const Node *x = kit_in(c, 0);
  int rank = kit_rank_of(c, x);
  if (c->version >= 13) return fn(c, x, kit_axis_of(c, onnx_attr_int(c, "axis", -1), rank));
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", 1), rank);
  if (axis == rank - 1) return fn(c, x, axis);
  return kit_op2(c, "reshape_like", fn(c, kit_flatten_from(c, x, axis), 1), x, NULL);
}

static const Node *log_softmax(Conversion *c, const Node *x, int axis)
{
  return kit_op1(c, "nn.log_softmax", x, "axis:i", axis);
}

/* One at the first of the largest. */
static const Node *hardmax(Conversion *c, const Node *x, int axis)
{
  int rank = kit_rank_of(c, x);
  const Node *best = kit_cast_to(c, kit_op1(c, "argmax", x, "axis:I,keepdims:i", 1, (int64_t[]){axis}, 1), DT_I64);
  const Node *index = kit_iota(c, kit_scalar_of(c, kit_shape_part(c, x, axis, axis + 1)), DT_I64);
  return kit_cast_to(c, kit_op2(c, "equal", kit_unsqueeze_to(c, index, axis, rank), best, NULL), kit_dtype_of(c, x));
}

static const Node *convert_softmax(Conversion *c) { return over_matrix(c, kit_softmax); }
static const Node *convert_log_softmax(Conversion *c) { return over_matrix(c, log_softmax); }
static const Node *convert_hardmax(Conversion *c) { return over_matrix(c, hardmax); }

/* Swish of the gate times the rest. */
static const Node *convert_swiglu(Conversion *c) { return kit_mul(c, convert_swish(c), kit_in(c, 1)); }

static const OnnxRow rows[] = {
  {"Abs", 1, convert_unary},
  {"Acos", 7, convert_unary},
  {"Acosh", 9, convert_unary},
  {"Add", 1, convert_binary},
  {"And", 1, convert_binary},
  {"Asin", 7, convert_unary},
  {"Asinh", 9, convert_unary},
  {"Atan", 7, convert_unary},
  {"Atanh", 9, convert_unary},
  {"BitCast", 26, convert_bit_cast},
  {"BitShift", 11, convert_bit_shift},
  {"BitwiseAnd", 18, convert_binary},
  {"BitwiseNot", 18, convert_unary},
  {"BitwiseOr", 18, convert_binary},
  {"BitwiseXor", 18, convert_binary},
  {"Cast", 1, convert_cast},
  {"CastLike", 15, convert_cast_like},
  {"Ceil", 1, convert_unary},
  {"Celu", 12, convert_celu},
  {"Clip", 1, convert_clip},
  {"Cos", 7, convert_unary},
  {"Cosh", 9, convert_unary},
  {"Div", 1, convert_binary},
  {"Elu", 1, convert_elu},
  {"Equal", 1, convert_binary},
  {"Erf", 9, convert_unary},
  {"Exp", 1, convert_unary},
  {"Floor", 1, convert_unary},
  {"Gelu", 20, convert_gelu},
  {"Greater", 1, convert_binary},
  {"GreaterOrEqual", 12, convert_binary},
  {"HardSigmoid", 1, convert_hard_sigmoid},
  {"HardSwish", 14, convert_hard_swish},
  {"Hardmax", 1, convert_hardmax},
  {"Identity", 1, convert_identity},
  {"IsInf", 10, convert_is_inf},
  {"IsNaN", 9, convert_unary},
  {"LeakyRelu", 1, convert_leaky_relu},
  {"Less", 1, convert_binary},
  {"LessOrEqual", 12, convert_binary},
  {"Log", 1, convert_unary},
  {"LogSoftmax", 1, convert_log_softmax},
  {"Max", 1, convert_variadic},
  {"Mean", 1, convert_variadic},
  {"Min", 1, convert_variadic},
  {"Mish", 18, convert_mish},
  {"Mod", 10, convert_mod},
  {"Mul", 1, convert_binary},
  {"Neg", 1, convert_unary},
  {"Not", 1, convert_unary},
  {"Or", 1, convert_binary},
  {"PRelu", 1, convert_prelu},
  {"Pow", 1, convert_pow},
  {"Reciprocal", 1, convert_reciprocal},
  {"Relu", 1, convert_unary},
  {"Round", 11, convert_unary},
  {"Selu", 1, convert_selu},
  {"Shrink", 9, convert_shrink},
  {"Sigmoid", 1, convert_unary},
  {"Sign", 9, convert_unary},
  {"Sin", 7, convert_unary},
  {"Sinh", 9, convert_unary},
  {"Softmax", 1, convert_softmax},
  {"Softplus", 1, convert_softplus},
  {"Softsign", 1, convert_softsign},
  {"Sqrt", 1, convert_unary},
  {"Sub", 1, convert_binary},
  {"Sum", 1, convert_variadic},
  {"SwiGLU", 28, convert_swiglu},
  {"Swish", 24, convert_swish},
  {"Tan", 7, convert_unary},
  {"Tanh", 1, convert_unary},
  {"ThresholdedRelu", 1, convert_thresholded},
  {"Where", 9, convert_where},
  {"Xor", 1, convert_binary},
};
ONNX_TABLE(onnx_ops_math, "", rows);
