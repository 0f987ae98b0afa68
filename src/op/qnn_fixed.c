/* qnn_fixed.c: functions in fixed point, as integer kernels without floats compute them.
 *
 *   reciprocal   data counts in 2^(integer_bits - 31); with s the bits that its top bit is moved up by,
 *                1 / data = multiplier * 2^(s - 31), multiplier by three of Newton's steps over 2^31 / (1 + x), x in
 * [0, 1)
 *   rsqrt        1 / sqrt(data) = multiplier / 2^shift, by five of Newton's steps over data times a power of four
 *
 * Products of two fractions of 31 bits are rounded halves up (high below). */
#include "op/qnn.h"

#include "op/nn_kit.h"

/* clang-format off */
#define QNN_RECIPROCAL_ATTRS(A, S) A(S, INT, integer_bits, "12", "bits of data before the point")
/* clang-format on */
DEFINE_ATTRS(QnnReciprocal, QNN_RECIPROCAL_ATTRS)

static const Type *reciprocal_type(OpCall *c)
{
  const QnnReciprocalAttrs *a = c->attrs;
  const Type *ty = op_tensor_arg(c, 0);
  if (!dtype_eq(ty->dtype, DT_I32))
    opdef_raise(c, ERR_TYPE, "data is %s; int32 is needed", dtype_name(scratch(c->m->ctx), ty->dtype));
  if (a->integer_bits < 0 || a->integer_bits > 31)
    opdef_raise(c, ERR_ARGUMENT, "integer_bits is %" PRId64 "; from 0 to 31 are there", a->integer_bits);
  return type_tuple(c->m, 2, (const Type *[]){ty, ty});
}

static const Expr *wide(Module *m, const Expr *x) { return expr_cast(m, DT_I64, x); }

/* round(a * b / 2^31) of int32 */
static const Expr *high(Module *m, const Expr *a, const Expr *b)
{
  const Expr *p = expr_add(m, expr_mul(m, wide(m, a), wide(m, b)), expr_int(m, DT_I64, (int64_t)1 << 30));
  return expr_cast(m, DT_I32, op_intrin2(m, IN_SHR, p, expr_int(m, DT_I64, 31)));
}

/* x * 2^n, an int32, at its limits beyond them */
static const Expr *raised(Module *m, const Expr *x, int n)
{
  const Expr *y = expr_mul(m, wide(m, x), expr_int(m, DT_I64, (int64_t)1 << n));
  return expr_cast(m, DT_I32, op_clip_value(m, y, dtype_min(DT_I32), dtype_max(DT_I32)));
}

/* 1 / (1 + x), x a fraction of 31 bits: Newton's steps from 48/17 - 32/17 d, d = (1 + x) / 2, with two bits before the
 * point. */
static const Expr *one_over_one_plus(Module *m, const Expr *x)
{
  const Expr *one = expr_int(m, DT_I64, INT32_MAX);
  const Expr *sum = expr_add(m, expr_add(m, wide(m, x), one), expr_int(m, DT_I64, 1));
  const Expr *d = expr_cast(m, DT_I32, op_intrin2(m, IN_SHR, sum, expr_int(m, DT_I64, 1)));
  const Expr *y = expr_add(m, expr_i32(m, 1515870810), high(m, d, expr_i32(m, -1010580540)));
  for (int i = 0; i < 3; i++) {
    const Expr *rest = expr_sub(m, expr_i32(m, 1 << 29), high(m, d, y));
    y = expr_add(m, y, raised(m, high(m, y, rest), 2));
  }
  return raised(m, y, 1);
}

static void reciprocal_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const QnnReciprocalAttrs *a = c->attrs;
  Module *m = c->m;
  for (int k = 0; k < 2; k++) {
    OpAxes x = op_out_axes(c, k);
    const Expr *v = op_read(m, in[0], x.index);
    const Expr *zeros = expr_cast(m, DT_I32, op_intrin(m, IN_CLZ, v));
    if (k) {
      out[1] = op_emit(c, &x, NULL, expr_sub(m, expr_i32(m, 31 + (int)a->integer_bits), zeros));
      continue;
    }
    const Expr *top = op_intrin2(m, IN_SHL, v, zeros); /* its top bit is the one before the point */
    const Expr *fraction = op_intrin2(m, IN_BITAND, top, expr_i32(m, INT32_MAX));
    out[0] = op_emit(c, &x, NULL, one_over_one_plus(m, fraction));
  }
}

const OpDef op_qnn_contrib_reciprocal = {
  .name = "qnn.contrib_reciprocal",
  .doc = "1 / data in fixed point: a multiplier and a shift for qnn.contrib_multiply_shift",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &QnnReciprocal_attrs,
  .fuse = FUSE_ELEMWISE,
  .type = reciprocal_type,
  .compute = reciprocal_compute,
};

/* ---- 1 / sqrt(data) -------------------------------------------------------------------------------- */

static const Type *rsqrt_type(OpCall *c)
{
  const Type *ty = op_tensor_arg(c, 0);
  if (!dtype_eq(ty->dtype, DT_I32))
    opdef_raise(c, ERR_TYPE, "data is %s; int32 is needed", dtype_name(scratch(c->m->ctx), ty->dtype));
  return type_tuple(c->m, 2, (const Type *[]){ty, ty});
}

/* 1 / sqrt(x) over sqrt(2), x with three bits before the point: y (3 - x y^2) / 2, five times. */
static const Expr *newton_rsqrt(Module *m, const Expr *x)
{
  const Expr *quarter = op_intrin2(m, IN_SHR, x, expr_i32(m, 1));
  const Expr *half = op_intrin2(m, IN_SHR_ROUND, quarter, expr_i32(m, 1));
  const Expr *three_halves = expr_i32(m, (1 << 28) + (1 << 27));
  const Expr *y = expr_i32(m, 1 << 28);
  for (int i = 0; i < 5; i++) {
    const Expr *cube = raised(m, high(m, high(m, y, y), y), 6);
    y = raised(m, expr_sub(m, high(m, y, three_halves), high(m, half, cube)), 3);
  }
  return high(m, y, expr_i32(m, 1518500250));
}

static void rsqrt_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  for (int k = 0; k < 2; k++) {
    OpAxes axes = op_out_axes(c, k);
    const Expr *v = op_read(m, in[0], axes.index);
    const Expr *none = expr_lt(m, v, expr_i32(m, 2)); /* one, and what has no root */
    const Expr *small = expr_lt(m, v, expr_i32(m, 1 << 29));
    const Expr *x = expr_select(m, small, v, op_intrin2(m, IN_SHR, v, expr_i32(m, 2)));
    x = expr_max(m, x, expr_i32(m, 1));
    /* pairs of bits that it is moved up by, so that its top bit is the 28th or the 29th */
    const Expr *room = expr_sub(m, expr_cast(m, DT_I32, op_intrin(m, IN_CLZ, x)), expr_i32(m, 1));
    const Expr *pairs = expr_sub(m, op_intrin2(m, IN_SHR, room, expr_i32(m, 1)), expr_i32(m, 1));
    const Expr *down = expr_sub(m, expr_select(m, small, expr_i32(m, 11), expr_i32(m, 12)), pairs);
    if (k) {
      const Expr *shift = expr_add(m, expr_i32(m, 31), expr_max(m, down, expr_i32(m, 0)));
      out[1] = op_emit(c, &axes, NULL, expr_select(m, none, expr_i32(m, 31), shift));
      continue;
    }
    const Expr *y = newton_rsqrt(m, op_intrin2(m, IN_SHL, x, expr_mul(m, pairs, expr_i32(m, 2))));
    const Expr *up = expr_max(m, expr_sub(m, expr_i32(m, 0), down), expr_i32(m, 0));
    y = expr_cast(
        m, DT_I32,
        op_clip_value(m, op_intrin2(m, IN_SHL, wide(m, y), wide(m, up)), dtype_min(DT_I32), dtype_max(DT_I32)));
    out[0] = op_emit(c, &axes, NULL, expr_select(m, none, expr_i32(m, INT32_MAX), y));
  }
}

const OpDef op_qnn_contrib_rsqrt = {
  .name = "qnn.contrib_rsqrt",
  .doc = "1 / sqrt(data) in fixed point: a multiplier and a shift for qnn.contrib_multiply_shift; of less than 1: of 1",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_ELEMWISE,
  .type = rsqrt_type,
  .compute = rsqrt_compute,
};
