/* broadcast.c: operators of two tensors (where: three) under numpy's broadcasting.
 *
 * A row of the table per operator; the meaning is a scalar expression over one element
 * of each. */
#include "op/op.h"

typedef const Expr *(*Binary)(Module *, const Expr *, const Expr *);

static void combine(OpCall *c, const Tensor *const *in, const Tensor **out, Binary value)
{
  OpAxes a = op_out_axes(c, 0);
  const Expr *x = op_broadcast_read(c->m, in[0], a.ndim, a.index);
  const Expr *y = op_broadcast_read(c->m, in[1], a.ndim, a.index);
  out[0] = op_emit(c, &a, NULL, value(c->m, x, y));
}

/* ---- type rules --------------------------------------------------------------------------- */

static const Type *type_arith(OpCall *c)
{
  const Type *ty = op_type_broadcast(c);
  if (dtype_is_bool(ty->dtype)) opdef_raise(c, ERR_TYPE, "argument 'lhs' is bool; a number is needed (cast it first)");
  return ty;
}

static const Type *type_logic(OpCall *c)
{
  const Type *ty = op_type_compare(c);
  op_need_bool(c, 0);
  return ty;
}

static const Type *type_bits(OpCall *c)
{
  const Type *ty = op_type_broadcast(c);
  op_need_int(c, 0);
  return ty;
}

static const Type *type_shift(OpCall *c)
{
  const Type *ty = type_arith(c);
  op_need_int(c, 0);
  return ty;
}

static const Type *type_floats(OpCall *c)
{
  const Type *ty = op_type_broadcast(c);
  op_need_float(c, 0);
  return ty;
}

/* ---- arithmetic ------------------------------------------------------------------------------- */

static const Expr *add_value(Module *m, const Expr *a, const Expr *b) { return expr_add(m, a, b); }
static const Expr *subtract_value(Module *m, const Expr *a, const Expr *b) { return expr_sub(m, a, b); }
static const Expr *multiply_value(Module *m, const Expr *a, const Expr *b) { return expr_mul(m, a, b); }

static const Expr *divide_value(Module *m, const Expr *a, const Expr *b)
{
  return dtype_is_float(a->dtype) ? expr_binary(m, E_DIV, a, b) : op_int_divide(m, E_DIV, a, b);
}

static const Expr *floor_divide_value(Module *m, const Expr *a, const Expr *b)
{
  if (!dtype_is_float(a->dtype)) return op_int_divide(m, E_FLOORDIV, a, b);
  return op_intrin(m, IN_FLOOR, expr_binary(m, E_DIV, a, b));
}

static const Expr *trunc_divide_value(Module *m, const Expr *a, const Expr *b)
{
  if (!dtype_is_float(a->dtype)) return op_int_divide(m, E_DIV, a, b);
  return op_intrin(m, IN_TRUNC, expr_binary(m, E_DIV, a, b));
}

static const Expr *mod_value(Module *m, const Expr *a, const Expr *b)
{
  return dtype_is_float(a->dtype) ? op_intrin2(m, IN_FMOD, a, b) : op_int_divide(m, E_MOD, a, b);
}

/* fmod, moved to the divisor's side of zero; a zero takes the divisor's sign. */
static const Expr *floor_mod_value(Module *m, const Expr *a, const Expr *b)
{
  if (!dtype_is_float(a->dtype)) return op_int_divide(m, E_FLOORMOD, a, b);
  const Expr *zero = op_num(m, a->dtype, 0);
  const Expr *r = op_intrin2(m, IN_FMOD, a, b);
  const Expr *other_side = expr_binary(m, E_NE, expr_lt(m, r, zero), expr_lt(m, b, zero));
  const Expr *moved = expr_select(m, other_side, expr_add(m, r, b), r);
  return expr_select(m, expr_binary(m, E_EQ, r, zero), op_intrin2(m, IN_COPYSIGN, zero, b), moved);
}

/* Square and multiply over the bits of the exponent: a factor is 1 + bit * (square - 1).
 * 1 / a^-b is a fraction unless a is 1 or -1, so a negative exponent gives 0 for every
 * other base. */
static const Expr *int_power(Module *m, const Expr *a, const Expr *b)
{
  DType t = a->dtype;
  const Expr *zero = expr_int(m, t, 0);
  const Expr *one = expr_int(m, t, 1);
  const Expr *r = one;
  const Expr *square = a;
  int bits = t.code == DT_INT ? t.bits - 1 : t.bits;
  for (int i = 0; i < bits; i++) {
    const Expr *bit = op_intrin2(m, IN_BITAND, i ? op_intrin2(m, IN_SHR, b, expr_int(m, t, i)) : b, one);
    r = expr_mul(m, r, expr_add(m, one, expr_mul(m, bit, expr_sub(m, square, one))));
    square = expr_mul(m, square, square);
  }
  if (t.code != DT_INT) return r;
  const Expr *odd = expr_binary(m, E_NE, op_intrin2(m, IN_BITAND, b, one), zero);
  const Expr *of_minus_one = expr_select(m, odd, expr_int(m, t, -1), one);
  const Expr *inverse = expr_select(m, expr_binary(m, E_EQ, a, one), one,
                                    expr_select(m, expr_binary(m, E_EQ, a, expr_int(m, t, -1)), of_minus_one, zero));
  return expr_select(m, expr_lt(m, b, zero), inverse, r);
}

static const Expr *power_value(Module *m, const Expr *a, const Expr *b)
{
  return dtype_is_float(a->dtype) ? op_intrin2(m, IN_POW, a, b) : int_power(m, a, b);
}

static const Expr *atan2_value(Module *m, const Expr *a, const Expr *b) { return op_intrin2(m, IN_ATAN2, a, b); }

/* ---- bits ---------------------------------------------------------------------------------------- */

/* bool has no bits to speak of: the logical connective is the same. */
static const Expr *bits_value(Module *m, Intrin in, ExprKind of_bool, const Expr *a, const Expr *b)
{
  return dtype_is_bool(a->dtype) ? expr_binary(m, of_bool, a, b) : op_intrin2(m, in, a, b);
}
static const Expr *bitwise_and_value(Module *m, const Expr *a, const Expr *b)
{
  return bits_value(m, IN_BITAND, E_AND, a, b);
}
static const Expr *bitwise_or_value(Module *m, const Expr *a, const Expr *b)
{
  return bits_value(m, IN_BITOR, E_OR, a, b);
}
static const Expr *bitwise_xor_value(Module *m, const Expr *a, const Expr *b)
{
  return bits_value(m, IN_BITXOR, E_NE, a, b);
}

static const Expr *shifted_out(Module *m, const Expr *count)
{
  DType t = count->dtype;
  const Expr *much = expr_binary(m, E_GE, count, expr_int(m, t, t.bits));
  return t.code == DT_INT ? expr_binary(m, E_OR, much, expr_lt(m, count, expr_int(m, t, 0))) : much;
}

static const Expr *left_shift_value(Module *m, const Expr *a, const Expr *b)
{
  return expr_select(m, shifted_out(m, b), expr_int(m, a->dtype, 0), op_intrin2(m, IN_SHL, a, b));
}

static const Expr *right_shift_value(Module *m, const Expr *a, const Expr *b)
{
  const Expr *zero = expr_int(m, a->dtype, 0);
  const Expr *gone =
      a->dtype.code == DT_INT ? expr_select(m, expr_lt(m, a, zero), expr_int(m, a->dtype, -1), zero) : zero;
  return expr_select(m, shifted_out(m, b), gone, op_intrin2(m, IN_SHR, a, b));
}

/* ---- comparisons and logic -------------------------------------------------------------------------- */

static const Expr *equal_value(Module *m, const Expr *a, const Expr *b) { return expr_binary(m, E_EQ, a, b); }
static const Expr *not_equal_value(Module *m, const Expr *a, const Expr *b) { return expr_binary(m, E_NE, a, b); }
static const Expr *less_value(Module *m, const Expr *a, const Expr *b) { return expr_binary(m, E_LT, a, b); }
static const Expr *less_equal_value(Module *m, const Expr *a, const Expr *b) { return expr_binary(m, E_LE, a, b); }
static const Expr *greater_value(Module *m, const Expr *a, const Expr *b) { return expr_binary(m, E_GT, a, b); }
static const Expr *greater_equal_value(Module *m, const Expr *a, const Expr *b) { return expr_binary(m, E_GE, a, b); }
static const Expr *logical_and_value(Module *m, const Expr *a, const Expr *b) { return expr_and(m, a, b); }
static const Expr *logical_or_value(Module *m, const Expr *a, const Expr *b) { return expr_binary(m, E_OR, a, b); }

#define BINARY_OPERATORS(X)                                                                                      \
  X(add, add_value, type_arith, 0, NARROW_FOLLOW, "sum; integers wrap")                                          \
  X(subtract, subtract_value, type_arith, 0, NARROW_FOLLOW, "difference; integers wrap")                         \
  X(multiply, multiply_value, type_arith, 0, NARROW_FOLLOW, "product; integers wrap")                            \
  X(divide, divide_value, type_arith, OPF_DEAR, NARROW_FOLLOW,                                                   \
    "quotient; of integers truncated toward zero, by zero 0")                                                    \
  X(floor_divide, floor_divide_value, type_arith, 0, NARROW_NEVER, "floor of the quotient; integers by zero: 0") \
  X(trunc_divide, trunc_divide_value, type_arith, 0, NARROW_UNKNOWN,                                             \
    "quotient without its fraction; integers by zero: 0")                                                        \
  X(mod, mod_value, type_arith, OPF_DEAR, NARROW_NEVER,                                                          \
    "remainder with the sign of the dividend (C's fmod); integers by zero: 0")                                   \
  X(trunc_mod, mod_value, type_arith, 0, NARROW_UNKNOWN,                                                         \
    "remainder with the sign of the dividend (C's fmod); integers by zero: 0")                                   \
  X(floor_mod, floor_mod_value, type_arith, OPF_DEAR, NARROW_NEVER,                                              \
    "remainder with the sign of the divisor; integers by zero: 0")                                               \
  X(power, power_value, type_arith, OPF_DEAR, NARROW_NEVER,                                                      \
    "lhs to the power of rhs; integers wrap, to a negative power 0 unless lhs is 1 or -1")                       \
  X(atan2, atan2_value, type_floats, OPF_DEAR, NARROW_UNKNOWN, "angle of the point (rhs, lhs)")                  \
  X(maximum, op_maximum_value, op_type_broadcast, 0, NARROW_FOLLOW, "the larger; NaN if either is NaN")          \
  X(minimum, op_minimum_value, op_type_broadcast, 0, NARROW_FOLLOW, "the smaller; NaN if either is NaN")         \
  X(bitwise_and, bitwise_and_value, type_bits, 0, NARROW_UNKNOWN, "and of the bits")                             \
  X(bitwise_or, bitwise_or_value, type_bits, 0, NARROW_UNKNOWN, "or of the bits")                                \
  X(bitwise_xor, bitwise_xor_value, type_bits, 0, NARROW_UNKNOWN, "exclusive or of the bits")                    \
  X(left_shift, left_shift_value, type_shift, 0, NARROW_UNKNOWN,                                                 \
    "lhs shifted left; by its width or more, or by a negative count: 0")                                         \
  X(right_shift, right_shift_value, type_shift, 0, NARROW_UNKNOWN,                                               \
    "lhs shifted right, keeping the sign of signed integers; by its width or more, or by a negative count: all " \
    "shifted out")                                                                                               \
  X(logical_and, logical_and_value, type_logic, 0, NARROW_UNKNOWN, "true where both are")                        \
  X(logical_or, logical_or_value, type_logic, 0, NARROW_UNKNOWN, "true where either is")                         \
  X(logical_xor, not_equal_value, type_logic, 0, NARROW_UNKNOWN, "true where exactly one is")                    \
  X(equal, equal_value, op_type_compare, OPF_STRING, NARROW_FOLLOW, "lhs == rhs; false for NaN")                 \
  X(not_equal, not_equal_value, op_type_compare, OPF_STRING, NARROW_FOLLOW, "lhs != rhs; true for NaN")          \
  X(less, less_value, op_type_compare, 0, NARROW_FOLLOW, "lhs < rhs; false for NaN")                             \
  X(less_equal, less_equal_value, op_type_compare, 0, NARROW_FOLLOW, "lhs <= rhs; false for NaN")                \
  X(greater, greater_value, op_type_compare, 0, NARROW_FOLLOW, "lhs > rhs; false for NaN")                       \
  X(greater_equal, greater_equal_value, op_type_compare, 0, NARROW_FOLLOW, "lhs >= rhs; false for NaN")

#define X(id, value, rule, more, how, text)                                                                        \
  static void id##_compute(OpCall *c, const Tensor *const *in, const Tensor **out) { combine(c, in, out, value); } \
  const OpDef op_##id = {.name = #id,                                                                              \
                         .doc = text,                                                                              \
                         .args = "lhs, rhs",                                                                       \
                         .min_args = 2,                                                                            \
                         .max_args = 2,                                                                            \
                         .fuse = FUSE_BROADCAST,                                                                   \
                         .flags = more,                                                                            \
                         .narrow = how,                                                                            \
                         .type = rule,                                                                             \
                         .compute = id##_compute,                                                                  \
                         .layout = layout_broadcast};
BINARY_OPERATORS(X)
#undef X

/* ---- where ------------------------------------------------------------------------------------------------ */

static const Type *type_where(OpCall *c)
{
  const Type *cond = op_tensor_arg(c, 0);
  const Type *x = op_tensor_arg(c, 1);
  const Type *y = op_tensor_arg(c, 2);
  const Expr *values[MAX_RANK], *shape[MAX_RANK];
  op_need_bool(c, 0);
  op_same_dtype(c, 1, 2);
  int n = op_broadcast_shape(c, x->ndim, x->shape, y->ndim, y->shape, values);
  n = op_broadcast_shape(c, cond->ndim, cond->shape, n, values, shape);
  return type_tensor(c->m, x->dtype, n, shape);
}

static void where_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes a = op_out_axes(c, 0);
  const Expr *v[3];
  for (int i = 0; i < 3; i++) v[i] = op_broadcast_read(c->m, in[i], a.ndim, a.index);
  out[0] = op_emit(c, &a, NULL, expr_select(c->m, v[0], v[1], v[2]));
}

const OpDef op_where = {
  .name = "where",
  .doc = "x where the condition holds, y elsewhere; all three broadcast",
  .args = "condition, x, y",
  .min_args = 3,
  .max_args = 3,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = type_where,
  .compute = where_compute,
  .layout = layout_broadcast,
};
