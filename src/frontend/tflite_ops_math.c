/* tflite_ops_math.c: arithmetic element by element, and along one axis. */
#include <math.h>

#include "frontend/tflite_ops.h"

/* ---- between real numbers and stored integers ---------------------------------------------------- */

const Node *tfl_convert_quantize(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const TflTensor *in = tfl_in(c, 0);
  const TflTensor *out = tfl_out(c, 0);
  return dtype_is_float(in->dtype) ? tfl_stored(c, x, out) : tfl_restored(c, x, in, out);
}

const Node *tfl_convert_dequantize(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const TflTensor *in = tfl_in(c, 0);
  return dtype_is_float(in->dtype) ? kit_cast_to(c, x, DT_F32) : tfl_real(c, x, in);
}

/* ---- sums --------------------------------------------------------------------------------------------- */

/* Both sides in units of twice the larger scale over 2^left, added, and brought to the output's scale. */
static const Node *quantized_sum(Conversion *c, const char *op, int64_t activation)
{
  const TflTensor *in[2] = {tfl_in(c, 0), tfl_in(c, 1)};
  const TflTensor *out = tfl_out(c, 0);
  int left = in[0]->dtype.bits == 16 ? 15 : 20;
  double scale[2] = {tfl_scale(c, in[0]), tfl_scale(c, in[1])};
  double twice = 2 * fmax(scale[0], scale[1]);
  const Node *side[2];
  for (int i = 0; i < 2; i++) {
    side[i] = tfl_centred(c, kit_in(c, i), in[i]);
    side[i] = kit_op2(c, "left_shift", side[i], kit_scalar(c, DT_I32, left), NULL);
    side[i] = tfl_rescale1(c, side[i], scale[i] / twice);
  }
  const Node *sum = kit_op2(c, op, side[0], side[1], NULL);
  return tfl_store(c, tfl_rescale1(c, sum, twice / (ldexp(1, left) * tfl_scale(c, out))), out, activation);
}

const Node *tfl_convert_add(Conversion *c)
{
  if (tfl_is_quantized(tfl_out(c, 0)) && tfl_out(c, 0)->dtype.bits <= 16)
    return quantized_sum(c, "add", tfl_byte(c, 0, 0));
  return tfl_activation(c, kit_add(c, kit_in(c, 0), kit_in(c, 1)), tfl_byte(c, 0, 0));
}

/* ---- softmax --------------------------------------------------------------------------------------------- */

/* Numbers with `bits` bits before the point of 31. */
static int32_t raised(int32_t x, int bits)
{
  int64_t y = (int64_t)x * ((int64_t)1 << bits);
  return y > INT32_MAX ? INT32_MAX : y < INT32_MIN ? INT32_MIN : (int32_t)y;
}

/* exp(x) of x in [-1/4, 0), as a fraction: a polynomial around -1/8. */
static int32_t exp_near_zero(int32_t a)
{
  int32_t x = a + (1 << 28);
  int32_t x2 = tfl_high_product(x, x);
  int32_t x3 = tfl_high_product(x2, x);
  int32_t x4 = tfl_high_product(x2, x2);
  int32_t x4_over_4 = tfl_shifted_down(x4, 2);
  int32_t rest = tfl_shifted_down(tfl_high_product(x4_over_4 + x3, 715827883) + x2, 1);
  return 1895147668 + tfl_high_product(1895147668, x + rest);
}

/* exp(x) of x <= 0 with five bits before the point, as a fraction: that of the part below 1/4, times exp of each
 * quarter's bit. */
static int32_t exp_below_zero(int32_t a)
{
  static const int32_t factor[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  int32_t quarter = 1 << 24;
  int32_t below = (a & (quarter - 1)) - quarter;
  int32_t result = exp_near_zero(raised(below, 5));
  int32_t rest = below - a;
  for (int i = 0; i < 7; i++)
    if (rest & (int32_t)((uint32_t)1 << (24 + i))) result = tfl_high_product(result, factor[i]);
  return a == 0 ? INT32_MAX : result;
}

static const Node *table_i32(Conversion *c, int n, const int32_t *v)
{
  return node_const_copy(c->m, DT_I32, 1, (int64_t[]){n}, v);
}

static const Node *look_up(Conversion *c, const Node *table, const Node *at)
{
  return kit_op2(c, "take", table, at, "axis:i,mode:s", 0, "fast");
}

/* exp(beta * scale * (x - largest)) of each difference comes from a table of fractions of 31 bits; their sum, with 12
 * bits before the point, is inverted in fixed point. */
static const Node *softmax_bytes(Conversion *c, const Node *x, double beta)
{
  const TflTensor *out = tfl_out(c, 0);
  enum { BITS = 5 };
  int32_t multiplier;
  int shift;
  int32_t e[256];
  int32_t term[256];
  double factor = fmin(beta * tfl_scale(c, tfl_in(c, 0)) * (1 << (31 - BITS)), 2147483647.0);
  tfl_multiplier(factor, &multiplier, &shift);
  if (shift < 0) kit_fail(c, ERR_UNSUPPORTED, "a scale of %g is too small for it", tfl_scale(c, tfl_in(c, 0)));
  /* differences whose exponential is nothing */
  double radius = floor(((1 << BITS) - 1) * ldexp(1, 31 - BITS) / ldexp(1, shift));
  for (int i = 0; i < 256; i++) {
    e[i] = i > radius ? 0 : exp_below_zero(tfl_high_product((int32_t)((uint32_t)-i << shift), multiplier));
    term[i] = tfl_shifted_down(e[i], 12);
  }
  int last = kit_rank_of(c, x) - 1;
  const Node *wide = kit_cast_to(c, x, DT_I32);
  const Node *below = kit_sub(c, kit_reduce1(c, "max", wide, last, true), wide);
  const Node *sum = kit_reduce1(c, "sum", look_up(c, table_i32(c, 256, term), below), last, true);
  const Node *inverse = kit_op1(c, "qnn.contrib_reciprocal", sum, "integer_bits:i", 12);
  const Node *right = kit_add(c, node_get(c->m, inverse, 1), kit_scalar(c, DT_I32, 31 - out->dtype.bits));
  const Node *y = kit_op3(c, "qnn.contrib_multiply_shift", look_up(c, table_i32(c, 256, e), below),
                          node_get(c->m, inverse, 0), right, "rounding:s", "DOUBLE");
  double lo = (double)dtype_imin(out->dtype);
  y = kit_op1(c, "clip", y, "a_min:f,a_max:f", 0.0, (double)dtype_imax(out->dtype) - lo);
  if (lo != 0) y = kit_add(c, y, kit_scalar(c, DT_I32, lo));
  return kit_cast_to(c, y, out->dtype);
}

const Node *tfl_convert_softmax(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  double beta = tfl_float(c, 0, 0);
  if (!tfl_is_quantized(tfl_in(c, 0))) {
    if (beta != 1) x = kit_mul(c, x, kit_scalar(c, DT_F32, beta));
    return kit_softmax(c, x, kit_rank_of(c, x) - 1);
  }
  if (tfl_in(c, 0)->dtype.bits == 8) return softmax_bytes(c, x, beta);
  kit_fail(c, ERR_UNSUPPORTED, "%s is not supported", tfl_type_name(tfl_in(c, 0)->type));
}
