/* elementwise.c: operators of one tensor, element by element.
 *
 * A row of a table per operator; the meaning is a scalar expression over one element. */
#include "op/op.h"

#include <math.h>

DEFINE_ATTRS_TABLE(Cast, CAST_ATTRS)
DEFINE_ATTRS_TABLE(Clip, CLIP_ATTRS)
DEFINE_ATTRS_TABLE(LeakyRelu, LEAKY_RELU_ATTRS)

typedef const Expr *(*Unary)(OpCall *, const Expr *);

static void map_elements(OpCall *c, const Tensor *const *in, const Tensor **out, Unary value)
{
  OpAxes a = op_out_axes(c, 0);
  out[0] = op_emit(c, &a, NULL, value(c, op_read(c->m, in[0], a.index)));
}

/* ---- functions of floats ---------------------------------------------------------------- */

/* clang-format off */
#define FLOAT_FUNCTIONS(X)                                             \
  X(exp, IN_EXP, NARROW_NEVER, "e to the power of each element")                     \
  X(log, IN_LOG, NARROW_NEVER, "natural logarithm")                                  \
  X(log2, IN_LOG2, NARROW_NEVER, "logarithm to base 2")                              \
  X(log10, IN_LOG10, NARROW_NEVER, "logarithm to base 10")                           \
  X(sqrt, IN_SQRT, NARROW_FOLLOW, "square root")                                      \
  X(rsqrt, IN_RSQRT, NARROW_FOLLOW, "1 / square root")                                \
  X(sigmoid, IN_SIGMOID, NARROW_FOLLOW, "1 / (1 + exp(-x))")                          \
  X(tanh, IN_TANH, NARROW_FOLLOW, "hyperbolic tangent")                               \
  X(sin, IN_SIN, NARROW_NEVER, "sine")                                               \
  X(cos, IN_COS, NARROW_NEVER, "cosine")                                             \
  X(tan, IN_TAN, NARROW_NEVER, "tangent")                                            \
  X(asin, IN_ASIN, NARROW_UNKNOWN, "arc sine")                                         \
  X(acos, IN_ACOS, NARROW_UNKNOWN, "arc cosine")                                       \
  X(atan, IN_ATAN, NARROW_NEVER, "arc tangent")                                      \
  X(sinh, IN_SINH, NARROW_NEVER, "hyperbolic sine")                                  \
  X(cosh, IN_COSH, NARROW_NEVER, "hyperbolic cosine")                                \
  X(asinh, IN_ASINH, NARROW_UNKNOWN, "inverse hyperbolic sine")                        \
  X(acosh, IN_ACOSH, NARROW_UNKNOWN, "inverse hyperbolic cosine")                      \
  X(atanh, IN_ATANH, NARROW_UNKNOWN, "inverse hyperbolic tangent")                     \
  X(erf, IN_ERF, NARROW_NEVER, "error function")
/* clang-format on */

#define X(id, intrin, how, text)                                                                 \
  static const Expr *id##_value(OpCall *c, const Expr *x) { return op_intrin(c->m, intrin, x); } \
  static void id##_compute(OpCall *c, const Tensor *const *in, const Tensor **out)               \
  {                                                                                              \
    map_elements(c, in, out, id##_value);                                                        \
  }                                                                                              \
  const OpDef op_##id = {.name = #id,                                                            \
                         .doc = text,                                                            \
                         .args = "data",                                                         \
                         .min_args = 1,                                                          \
                         .max_args = 1,                                                          \
                         .fuse = FUSE_ELEMWISE,                                                  \
                         .flags = OPF_DEAR,                                                      \
                         .narrow = how,                                                          \
                         .type = op_type_same_float,                                             \
                         .compute = id##_compute,                                                \
                         .layout = layout_any};
FLOAT_FUNCTIONS(X)
#undef X

/* ---- functions of any number -------------------------------------------------------------- */

static const Expr *abs_value(OpCall *c, const Expr *x)
{
  return x->dtype.code == DT_UINT ? x : op_intrin(c->m, IN_ABS, x);
}

static const Expr *negative_value(OpCall *c, const Expr *x)
{
  if (dtype_is_float(x->dtype)) return expr_mul(c->m, x, op_num(c->m, x->dtype, -1));
  return expr_sub(c->m, op_num(c->m, x->dtype, 0), x);
}

static const Expr *rounded(OpCall *c, Intrin how, const Expr *x)
{
  return dtype_is_float(x->dtype) ? op_intrin(c->m, how, x) : x;
}
static const Expr *floor_value(OpCall *c, const Expr *x) { return rounded(c, IN_FLOOR, x); }
static const Expr *ceil_value(OpCall *c, const Expr *x) { return rounded(c, IN_CEIL, x); }
static const Expr *trunc_value(OpCall *c, const Expr *x) { return rounded(c, IN_TRUNC, x); }
static const Expr *round_value(OpCall *c, const Expr *x) { return rounded(c, IN_NEARBYINT, x); }

static const Expr *sign_value(OpCall *c, const Expr *x)
{
  Module *m = c->m;
  const Expr *zero = op_num(m, x->dtype, 0);
  const Expr *one = op_num(m, x->dtype, 1);
  const Expr *rest = dtype_is_float(x->dtype) ? expr_select(m, expr_binary(m, E_EQ, x, zero), zero, x) : zero;
  if (x->dtype.code != DT_UINT) rest = expr_select(m, expr_lt(m, x, zero), op_num(m, x->dtype, -1), rest);
  return expr_select(m, expr_binary(m, E_GT, x, zero), one, rest);
}

static const Expr *copy_value(OpCall *c, const Expr *x)
{
  (void)c;
  return x;
}

static const Expr *relu_value(OpCall *c, const Expr *x) { return op_relu_value(c->m, x); }

static const Expr *leaky_relu_value(OpCall *c, const Expr *x)
{
  const LeakyReluAttrs *a = c->attrs;
  const Expr *positive = expr_binary(c->m, E_GT, x, op_num(c->m, x->dtype, 0));
  return expr_select(c->m, positive, x, expr_mul(c->m, x, op_num(c->m, x->dtype, a->alpha)));
}

static const Expr *clip_value(OpCall *c, const Expr *x)
{
  const ClipAttrs *a = c->attrs;
  return op_clip_value(c->m, x, a->a_min, a->a_max);
}

static const Type *type_clip(OpCall *c)
{
  const ClipAttrs *a = c->attrs;
  if (isnan(a->a_min) || isnan(a->a_max))
    opdef_raise(c, ERR_ARGUMENT, "a bound is nan: a_min %g, a_max %g", a->a_min, a->a_max);
  return op_type_same(c);
}

static const Type *type_same_int(OpCall *c)
{
  op_tensor_arg(c, 0);
  op_need_int(c, 0);
  return op_type_same(c);
}

static const Type *type_logical(OpCall *c)
{
  op_tensor_arg(c, 0);
  op_need_bool(c, 0);
  return op_type_same(c);
}

static const Expr *logical_not_value(OpCall *c, const Expr *x) { return expr_not(c->m, x); }

static const Expr *bitwise_not_value(OpCall *c, const Expr *x)
{
  return dtype_is_bool(x->dtype) ? expr_not(c->m, x) : op_intrin(c->m, IN_BITNOT, x);
}

#define NUMBER_FUNCTIONS(X)                                                                                           \
  X(abs, abs_value, op_type_same, NULL, NARROW_FOLLOW, "abs", "absolute value; of the smallest integer, itself")      \
  X(negative, negative_value, op_type_same, NULL, NARROW_FOLLOW, "negative", "the element with its sign changed")     \
  X(floor, floor_value, op_type_same, NULL, NARROW_NEVER, "floor", "largest integer not above; integers stay")        \
  X(ceil, ceil_value, op_type_same, NULL, NARROW_NEVER, "ceil", "smallest integer not below; integers stay")          \
  X(trunc, trunc_value, op_type_same, NULL, NARROW_NEVER, "trunc", "the element without its fraction; integers stay") \
  X(round, round_value, op_type_same, NULL, NARROW_NEVER, "round",                                                    \
    "nearest integer, halves to the even one; integers stay")                                                         \
  X(sign, sign_value, op_type_same, NULL, NARROW_NEVER, "sign", "-1, 0 or 1; of NaN, NaN")                            \
  X(nn_relu, relu_value, op_type_same, NULL, NARROW_FOLLOW, "nn.relu", "max(x, 0); of NaN, NaN")                      \
  X(nn_leaky_relu, leaky_relu_value, op_type_same_float, &LeakyRelu_attrs, NARROW_FOLLOW, "nn.leaky_relu",            \
    "x where it is positive, alpha * x elsewhere")                                                                    \
  X(clip, clip_value, type_clip, &Clip_attrs, NARROW_FOLLOW, "clip",                                                  \
    "min(max(x, a_min), a_max); of NaN, NaN; bounds outside an integer's range limit nothing")                        \
  X(logical_not, logical_not_value, type_logical, NULL, NARROW_UNKNOWN, "logical_not",                                \
    "true where the element is false")                                                                                \
  X(bitwise_not, bitwise_not_value, type_same_int, NULL, NARROW_UNKNOWN, "bitwise_not",                               \
    "all bits inverted; of bool, logical_not")

#define X(id, value, rule, table, how, text_name, text)                            \
  static void id##_compute(OpCall *c, const Tensor *const *in, const Tensor **out) \
  {                                                                                \
    map_elements(c, in, out, value);                                               \
  }                                                                                \
  const OpDef op_##id = {.name = text_name,                                        \
                         .doc = text,                                              \
                         .args = "data",                                           \
                         .min_args = 1,                                            \
                         .max_args = 1,                                            \
                         .attrs = table,                                           \
                         .fuse = FUSE_ELEMWISE,                                    \
                         .narrow = how,                                            \
                         .type = rule,                                             \
                         .compute = id##_compute,                                  \
                         .layout = layout_any};
NUMBER_FUNCTIONS(X)
#undef X

static void copy_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  map_elements(c, in, out, copy_value);
}
const OpDef op_copy = {
  .name = "copy",
  .doc = "the same elements",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = op_type_same,
  .compute = copy_compute,
  .layout = layout_any,
};

/* ---- questions about floats ------------------------------------------------------------------- */

static const Expr *ask(OpCall *c, Intrin question, const Expr *x, bool of_integers)
{
  return dtype_is_float(x->dtype) ? op_intrin(c->m, question, x) : expr_bool(c->m, of_integers);
}
static const Expr *isnan_value(OpCall *c, const Expr *x) { return ask(c, IN_ISNAN, x, false); }
static const Expr *isinf_value(OpCall *c, const Expr *x) { return ask(c, IN_ISINF, x, false); }
static const Expr *isfinite_value(OpCall *c, const Expr *x) { return ask(c, IN_ISFINITE, x, true); }

/* clang-format off */
#define QUESTIONS(X)                                                       \
  X(isnan, "true where the element is not a number")                       \
  X(isinf, "true where the element is an infinity of either sign")         \
  X(isfinite, "true where the element is neither infinite nor NaN")
/* clang-format on */

#define X(id, text)                                                                \
  static void id##_compute(OpCall *c, const Tensor *const *in, const Tensor **out) \
  {                                                                                \
    map_elements(c, in, out, id##_value);                                          \
  }                                                                                \
  const OpDef op_##id = {.name = #id,                                              \
                         .doc = text,                                              \
                         .args = "data",                                           \
                         .min_args = 1,                                            \
                         .max_args = 1,                                            \
                         .fuse = FUSE_ELEMWISE,                                    \
                         .narrow = NARROW_NEVER,                                   \
                         .type = op_type_same_bool,                                \
                         .compute = id##_compute,                                  \
                         .layout = layout_any};
QUESTIONS(X)
#undef X

/* ---- casts ----------------------------------------------------------------------------------------- */

static const Type *type_cast(OpCall *c)
{
  const Type *ty = op_tensor_arg(c, 0);
  DType to = ((const CastAttrs *)c->attrs)->dtype;
  if (!dtype_is_int(to) && !dtype_is_float(to))
    opdef_raise(c, ERR_ARGUMENT, "dtype %s is no dtype of a tensor", dtype_name(scratch(c->m->ctx), to));
  return type_tensor(c->m, to, ty->ndim, ty->shape);
}

static const Expr *cast_value(OpCall *c, const Expr *x) { return expr_cast(c->m, c->out->dtype, x); }
static void cast_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  map_elements(c, in, out, cast_value);
}

const OpDef op_cast = {
  .name = "cast",
  .doc = "the elements as another dtype: float to integer truncates and saturates, NaN gives 0; to bool: x != 0; "
         "integers wrap",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Cast_attrs,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_NEVER,
  .type = type_cast,
  .compute = cast_compute,
  .layout = layout_any,
};

static const Type *type_cast_like(OpCall *c)
{
  const Type *ty = op_tensor_arg(c, 0);
  if (c->arg[1]->kind != TY_TENSOR)
    opdef_raise(c, ERR_TYPE, "argument 'dtype_like' is %s, not a tensor", type_text(scratch(c->m->ctx), c->arg[1]));
  return type_tensor(c->m, c->arg[1]->dtype, ty->ndim, ty->shape);
}

const OpDef op_cast_like = {
  .name = "cast_like",
  .doc = "the elements as the dtype of another tensor, converted as cast does",
  .args = "data, dtype_like",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_ELEMWISE,
  .type = type_cast_like,
  .compute = cast_compute,
};

static const Type *type_reinterpret(OpCall *c)
{
  const Type *ty = type_cast(c);
  if (ty->dtype.bits != c->arg[0]->dtype.bits)
    opdef_raise(c, ERR_TYPE, "%s and %s differ in width", dtype_name(scratch(c->m->ctx), c->arg[0]->dtype),
                dtype_name(scratch(c->m->ctx), ty->dtype));
  return ty;
}

static const Expr *reinterpret_value(OpCall *c, const Expr *x)
{
  return dtype_eq(c->out->dtype, x->dtype) ? x : expr_call(c->m, c->out->dtype, IN_REINTERPRET, 1, &x);
}
static void reinterpret_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  map_elements(c, in, out, reinterpret_value);
}

const OpDef op_reinterpret = {
  .name = "reinterpret",
  .doc = "the same bits as another dtype of the same width",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Cast_attrs,
  .fuse = FUSE_ELEMWISE,
  .type = type_reinterpret,
  .compute = reinterpret_compute,
  .layout = layout_any,
};

/* ---- fixed point ---------------------------------------------------------------------------------------- */

/* clang-format off */
#define FIXED_POINT_ATTRS(A, S)                                              \
  A(S, INT, multiplier, NULL, "the factor as a 31-bit fraction")             \
  A(S, INT, shift, NULL, "power of two that the product is scaled by")
/* clang-format on */
DEFINE_ATTRS(FixedPointMultiply, FIXED_POINT_ATTRS)

static const Type *type_fixed_point(OpCall *c)
{
  if (!dtype_eq(op_tensor_arg(c, 0)->dtype, DT_I32))
    opdef_raise(c, ERR_TYPE, "argument 'data' is %s; int32 is needed",
                dtype_name(scratch(c->m->ctx), c->arg[0]->dtype));
  return op_type_same(c);
}

static const Expr *fixed_point_value(OpCall *c, const Expr *x)
{
  const FixedPointMultiplyAttrs *a = c->attrs;
  Module *m = c->m;
  return expr_call(
      m, DT_NONE, IN_QMULSHIFT, 4,
      (const Expr *[]){x, expr_int(m, DT_I32, a->multiplier), expr_int(m, DT_I32, 31), expr_int(m, DT_I32, a->shift)});
}
static void fixed_point_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  map_elements(c, in, out, fixed_point_value);
}

const OpDef op_fixed_point_multiply = {
  .name = "fixed_point_multiply",
  .doc = "round(x * multiplier * 2^(shift - 31)), ties up",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &FixedPointMultiply_attrs,
  .fuse = FUSE_ELEMWISE,
  .type = type_fixed_point,
  .compute = fixed_point_compute,
  .layout = layout_any,
};

/* ---- fast approximations (FastMath puts them in) ------------------------------------------------------------ */

/* exp: x = n ln 2 + f, |f| <= ln 2 / 2; a polynomial of degree 5 for e^f (its error
 * relative to e^f is at most 7.5e-8) times 2^n, put together from bits. */
static const Expr *fast_exp_of(Module *m, const Expr *x)
{
  static const double p[] = {1.00000007, 0.999999692, 0.499988949, 0.166675747, 0.041915382, 0.00829765508};
  DType t = x->dtype;
  if (!dtype_eq(t, DT_F32)) return op_intrin(m, IN_EXP, x);
  const Expr *y = op_clip_value(m, x, -87.3, 88.7);
  const Expr *n = op_intrin(m, IN_FLOOR, expr_add(m, expr_mul(m, y, op_num(m, t, 1.44269504)), op_num(m, t, 0.5)));
  const Expr *f = expr_sub(m, expr_sub(m, y, expr_mul(m, n, op_num(m, t, 0.693359375))),
                           expr_mul(m, n, op_num(m, t, -2.12194440e-4)));
  const Expr *r = op_num(m, t, p[5]);
  for (int i = 4; i >= 0; i--) r = expr_add(m, expr_mul(m, r, f), op_num(m, t, p[i]));
  const Expr *bits = op_intrin2(m, IN_SHL, expr_add(m, expr_cast(m, DT_I32, n), expr_i32(m, 127)), expr_i32(m, 23));
  return expr_mul(m, r, expr_call(m, DT_F32, IN_REINTERPRET, 1, &bits));
}

static const Expr *fast_exp_value(OpCall *c, const Expr *x) { return fast_exp_of(c->m, x); }

/* 1 - 2 / (e^2x + 1) */
static const Expr *fast_tanh_value(OpCall *c, const Expr *x)
{
  Module *m = c->m;
  DType t = x->dtype;
  if (!dtype_eq(t, DT_F32)) return op_intrin(m, IN_TANH, x);
  const Expr *two = op_num(m, t, 2);
  const Expr *one = op_num(m, t, 1);
  const Expr *e = fast_exp_of(m, expr_mul(m, op_clip_value(m, x, -10, 10), two));
  return expr_sub(m, one, expr_binary(m, E_DIV, two, expr_add(m, e, one)));
}

/* Abramowitz and Stegun 7.1.26: 1 - (a1 t + … + a5 t^5) e^(-x^2) with t = 1 / (1 + p |x|) */
static const Expr *fast_erf_value(OpCall *c, const Expr *x)
{
  static const double a[] = {0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429};
  Module *m = c->m;
  DType ty = x->dtype;
  if (!dtype_eq(ty, DT_F32)) return op_intrin(m, IN_ERF, x);
  const Expr *one = op_num(m, ty, 1);
  const Expr *size = op_intrin(m, IN_ABS, x);
  const Expr *t = expr_binary(m, E_DIV, one, expr_add(m, one, expr_mul(m, op_num(m, ty, 0.3275911), size)));
  const Expr *r = op_num(m, ty, a[4]);
  for (int i = 3; i >= 0; i--) r = expr_add(m, expr_mul(m, r, t), op_num(m, ty, a[i]));
  const Expr *e = fast_exp_of(m, expr_sub(m, op_num(m, ty, 0), expr_mul(m, x, x)));
  return op_intrin2(m, IN_COPYSIGN, expr_sub(m, one, expr_mul(m, expr_mul(m, r, t), e)), x);
}

#define FAST_FUNCTIONS(X)                                                                                        \
  X(fast_exp, "e to the power of each element, within 4e-7 relative for -87.3 < x < 88.7, limited beyond; only " \
              "float32 is approximated")                                                                         \
  X(fast_tanh, "hyperbolic tangent within 5e-7 absolute; only float32 is approximated")                          \
  X(fast_erf, "error function within 6e-7 absolute; only float32 is approximated")

#define X(id, text)                                                                \
  static void id##_compute(OpCall *c, const Tensor *const *in, const Tensor **out) \
  {                                                                                \
    map_elements(c, in, out, id##_value);                                          \
  }                                                                                \
  const OpDef op_##id = {.name = #id,                                              \
                         .doc = text,                                              \
                         .args = "data",                                           \
                         .min_args = 1,                                            \
                         .max_args = 1,                                            \
                         .fuse = FUSE_ELEMWISE,                                    \
                         .narrow = NARROW_NEVER,                                   \
                         .type = op_type_same_float,                               \
                         .compute = id##_compute,                                  \
                         .layout = layout_any};
FAST_FUNCTIONS(X)
#undef X
