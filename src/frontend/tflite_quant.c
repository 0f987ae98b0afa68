/* tflite_quant.c: TFLite's integer arithmetic.
 *
 * A real factor is a multiplier of 31 bits and a power of two.  A product with it is rounded twice, as TFLite's
 * reference kernels do it: to the product over 2^31, halves up, then to the right shift that is left, halves away from
 * zero (qnn.contrib_multiply_shift, rounding DOUBLE).  Factors are quotients of scales, in the precision in which
 * TFLite works them out; each converter says it. */
#include <math.h>

#include "frontend/tflite_import.h"

/* ---- scales and zero points ------------------------------------------------------------------------ */

bool tfl_is_quantized(const TflTensor *t)
{
  return t->q.n > 0 && dtype_is_int(t->dtype) && !dtype_is_bool(t->dtype) && t->dtype.bits <= 32;
}

const TflQuant *tfl_quant(Conversion *c, const TflTensor *t)
{
  const TflQuant *q = &t->q;
  if (!q->n) kit_fail(c, ERR_ARGUMENT, "tensor '%s' is %s without a scale", t->name, tfl_type_name(t->type));
  for (int i = 0; i < q->n; i++) {
    if (!(q->scale[i] > 0) || isinf(q->scale[i]))
      kit_fail(c, ERR_ARGUMENT, "scale %d of tensor '%s' is %g; a scale is finite and above zero", i, t->name,
               q->scale[i]);
    if (q->zero[i] < dtype_imin(t->dtype) || q->zero[i] > dtype_imax(t->dtype))
      kit_fail(c, ERR_ARGUMENT, "zero point %d of tensor '%s' is %" PRId64 ", outside %s", i, t->name, q->zero[i],
               tfl_type_name(t->type));
  }
  if (q->n == 1) return q;
  if (q->axis < 0 || q->axis >= t->ndim)
    kit_fail(c, ERR_ARGUMENT, "the scales of tensor '%s' run along axis %d; it has %d", t->name, q->axis, t->ndim);
  if (t->dim[q->axis] != q->n)
    kit_fail(c, ERR_SHAPE, "tensor '%s' has %d scales for the %" PRId64 " elements of axis %d", t->name, q->n,
             t->dim[q->axis], q->axis);
  return q;
}

const TflQuant *tfl_quant_one(Conversion *c, const TflTensor *t)
{
  const TflQuant *q = tfl_quant(c, t);
  if (q->n != 1) kit_fail(c, ERR_UNSUPPORTED, "tensor '%s' has %d scales; one is supported here", t->name, q->n);
  return q;
}

double tfl_scale(Conversion *c, const TflTensor *t) { return tfl_quant_one(c, t)->scale[0]; }
int64_t tfl_zero(Conversion *c, const TflTensor *t) { return tfl_quant_one(c, t)->zero[0]; }

/* ---- rescaling ------------------------------------------------------------------------------------------ */

void tfl_multiplier(double factor, int32_t *multiplier, int *shift)
{
  int64_t m = factor == 0 ? 0 : (int64_t)round(frexp(factor, shift) * 2147483648.0);
  if (factor == 0) *shift = 0;
  if (m == (int64_t)1 << 31) m /= 2, ++*shift;
  if (*shift < -31) *shift = 0, m = 0;
  *multiplier = (int32_t)m;
}

int32_t tfl_high_product(int32_t a, int32_t b)
{
  if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
  return (int32_t)(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}

int32_t tfl_shifted_down(int32_t x, int exponent)
{
  int32_t mask = (int32_t)(((int64_t)1 << exponent) - 1);
  int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> exponent) + ((x & mask) > threshold ? 1 : 0);
}

int32_t tfl_word_limited(int32_t x) { return x > 32767 ? 32767 : x < -32768 ? -32768 : x; }

int32_t tfl_word_product(int32_t a, int32_t b)
{
  return a == -32768 && b == -32768 ? 32767 : (a * b + (1 << 14)) >> 15;
}

bool tfl_power_of_two(double scale, int *exponent)
{
  double e = log2(scale);
  *exponent = (int)round(e);
  return fabs(e - *exponent) < 1e-3;
}

int32_t tfl_rescale_value(int32_t x, int32_t multiplier, int shift)
{
  int32_t wide = (int32_t)((uint32_t)x << (shift > 0 ? shift : 0));
  return tfl_shifted_down(tfl_high_product(wide, multiplier), shift > 0 ? 0 : -shift);
}

const Node *tfl_along(Conversion *c, DType t, int n, const void *v, int axis, int rank)
{
  int64_t shape[MAX_RANK];
  for (int d = 0; d < rank; d++) shape[d] = d == axis ? n : 1;
  return node_const_copy(c->m, t, n == 1 ? 0 : rank, shape, v);
}

/* 16-bit data is summed in int64 and takes a multiplier of 15 bits, rounded once. */
static const Node *rescale_wide(Conversion *c, const Node *x, int n, const int32_t *multiplier, const int *shift,
                                int axis)
{
  int32_t *m = arena_array(c->im->arena, int32_t, n);
  int32_t *right = arena_array(c->im->arena, int32_t, n);
  for (int i = 0; i < n; i++) {
    m[i] = multiplier[i] < 0x7FFF0000 ? (multiplier[i] + (1 << 15)) >> 16 : 0x7FFF;
    right[i] = 15 - shift[i];
    if (right[i] < 1) kit_fail(c, ERR_UNSUPPORTED, "scales whose quotient is beyond 2^14 are not supported");
  }
  int rank = kit_rank_of(c, x);
  return kit_op3(c, "qnn.contrib_multiply_shift", x, tfl_along(c, DT_I32, n, m, axis, rank),
                 tfl_along(c, DT_I32, n, right, axis, rank), "rounding:s", "UPWARD");
}

static const Node *rescale_by(Conversion *c, const Node *x, int n, const int32_t *m, const int *shift, int axis,
                              const char *rounding)
{
  int32_t *right = arena_array(c->im->arena, int32_t, n);
  for (int i = 0; i < n; i++) {
    right[i] = 31 - shift[i];
    if (right[i] < 1) kit_fail(c, ERR_UNSUPPORTED, "scales whose quotient is beyond 2^30 are not supported");
  }
  bool wide = dtype_eq(kit_dtype_of(c, x), DT_I64);
  if (wide && strcmp(rounding, "UPWARD")) return rescale_wide(c, x, n, m, shift, axis);
  int rank = kit_rank_of(c, x);
  int least = 62;
  for (int i = 0; i < n; i++) least = right[i] < least ? right[i] : least;
  return kit_op3(c, "qnn.contrib_multiply_shift", x, tfl_along(c, DT_I32, n, m, axis, rank),
                 tfl_along(c, DT_I32, n, right, axis, rank), "rounding:s,least:i", rounding, least);
}

static const Node *rescale(Conversion *c, const Node *x, int n, const double *factor, int axis, const char *rounding)
{
  int32_t *m = arena_array(c->im->arena, int32_t, n);
  int *shift = arena_array(c->im->arena, int, n);
  for (int i = 0; i < n; i++) tfl_multiplier(factor[i], &m[i], &shift[i]);
  return rescale_by(c, x, n, m, shift, axis, rounding);
}

const Node *tfl_rescale_by(Conversion *c, const Node *x, int32_t multiplier, int shift)
{
  return rescale_by(c, x, 1, &multiplier, &shift, 0, "DOUBLE");
}

const Node *tfl_rescale(Conversion *c, const Node *x, int n, const double *factor, int axis)
{
  return rescale(c, x, n, factor, axis, "DOUBLE");
}

const Node *tfl_rescale_once(Conversion *c, const Node *x, int n, const double *factor, int axis)
{
  return rescale(c, x, n, factor, axis, "UPWARD");
}

const Node *tfl_rescale1(Conversion *c, const Node *x, double factor) { return tfl_rescale(c, x, 1, &factor, 0); }

/* ---- activations ------------------------------------------------------------------------------------------- */

/* The stored integer of a real number; halves away from zero. */
static double stored_limit(double x, const TflQuant *q)
{
  return (double)(roundf((float)x / (float)q->scale[0]) + (float)q->zero[0]);
}

void tfl_limits(Conversion *c, const TflTensor *out, int64_t activation, double *lo, double *hi)
{
  const TflQuant *q = tfl_quant_one(c, out);
  *lo = (double)dtype_imin(out->dtype);
  *hi = (double)dtype_imax(out->dtype);
  double least = activation == TFL_RELU_N1_TO_1 ? -1 : 0;
  double most = activation == TFL_RELU6 ? 6 : 1;
  if (activation == TFL_NONE) return;
  if (activation != TFL_RELU && activation != TFL_RELU6 && activation != TFL_RELU_N1_TO_1)
    kit_fail(c, ERR_UNSUPPORTED, "activation %" PRId64 " of quantized tensors is not supported", activation);
  *lo = fmax(*lo, stored_limit(least, q));
  if (activation != TFL_RELU) *hi = fmin(*hi, stored_limit(most, q));
  if (*lo > *hi) kit_fail(c, ERR_ARGUMENT, "the range of '%s' does not reach its activation's", out->name);
}

const Node *tfl_activation(Conversion *c, const Node *x, int64_t activation)
{
  switch (activation) {
  case TFL_NONE: return x;
  case TFL_RELU: return kit_op1(c, "nn.relu", x, NULL);
  case TFL_RELU6: return kit_op1(c, "clip", x, "a_min:f,a_max:f", 0.0, 6.0);
  case TFL_RELU_N1_TO_1: return kit_op1(c, "clip", x, "a_min:f,a_max:f", -1.0, 1.0);
  case TFL_TANH: return kit_op1(c, "tanh", x, NULL);
  default: kit_fail(c, ERR_UNSUPPORTED, "activation %" PRId64 " is not supported", activation);
  }
}

/* ---- stored integers ------------------------------------------------------------------------------------------ */

const Node *tfl_store(Conversion *c, const Node *x, const TflTensor *out, int64_t activation)
{
  double lo, hi;
  double z = (double)tfl_zero(c, out);
  tfl_limits(c, out, activation, &lo, &hi);
  x = kit_op1(c, "clip", x, "a_min:f,a_max:f", lo - z, hi - z);
  if (z != 0) x = kit_add(c, x, kit_scalar(c, DT_I32, z));
  return kit_cast_to(c, x, out->dtype);
}

/* Zero points as a scalar, or so that they broadcast. */
static const Node *zeros_of(Conversion *c, const TflTensor *t, int rank)
{
  const TflQuant *q = tfl_quant(c, t);
  int32_t *z = arena_array(c->im->arena, int32_t, q->n);
  for (int i = 0; i < q->n; i++) z[i] = (int32_t)q->zero[i];
  return tfl_along(c, DT_I32, q->n, z, q->axis, rank);
}

const Node *tfl_centred(Conversion *c, const Node *x, const TflTensor *t)
{
  const TflQuant *q = tfl_quant(c, t);
  bool none = true;
  for (int i = 0; i < q->n; i++) none &= q->zero[i] == 0;
  x = kit_cast_to(c, x, DT_I32);
  return none ? x : kit_sub(c, x, zeros_of(c, t, kit_rank_of(c, x)));
}

const Node *tfl_real(Conversion *c, const Node *x, const TflTensor *t)
{
  const TflQuant *q = tfl_quant(c, t);
  float *s = arena_array(c->im->arena, float, q->n);
  for (int i = 0; i < q->n; i++) s[i] = (float)q->scale[i];
  x = kit_cast_to(c, tfl_centred(c, x, t), DT_F32);
  return kit_mul(c, x, tfl_along(c, DT_F32, q->n, s, q->axis, kit_rank_of(c, x)));
}

/* Halves away from zero: what trunc leaves is exact. */
const Node *tfl_rounded(Conversion *c, const Node *x)
{
  const Node *whole = kit_op1(c, "trunc", x, NULL);
  const Node *rest = kit_op1(c, "abs", kit_sub(c, x, whole), NULL);
  const Node *more = kit_op2(c, "greater_equal", rest, kit_scalar(c, DT_F32, 0.5), NULL);
  return kit_where(c, more, kit_add(c, whole, kit_op1(c, "sign", x, NULL)), whole);
}

const Node *tfl_stored(Conversion *c, const Node *x, const TflTensor *out)
{
  double z = (double)tfl_zero(c, out);
  x = kit_div(c, kit_cast_to(c, x, DT_F32), kit_scalar(c, DT_F32, tfl_scale(c, out)));
  x = kit_op1(c, "clip", x, "a_min:f,a_max:f", (double)dtype_imin(out->dtype) - z, (double)dtype_imax(out->dtype) - z);
  x = kit_cast_to(c, tfl_rounded(c, x), DT_I32); /* the limits are integers: rounding keeps to them */
  if (z != 0) x = kit_add(c, x, kit_scalar(c, DT_I32, z));
  return kit_cast_to(c, x, out->dtype);
}

const Node *tfl_restored(Conversion *c, const Node *x, const TflTensor *in, const TflTensor *out)
{
  double si = tfl_scale(c, in);
  double so = tfl_scale(c, out);
  if (si == so && tfl_zero(c, in) == tfl_zero(c, out) && in->type == out->type) return x;
  return tfl_store(c, tfl_rescale1(c, tfl_centred(c, x, in), si / so), out, TFL_NONE);
}

/* ---- functions of 8 and 16 bits ---------------------------------------------------------------------------------- */

const Node *tfl_table(Conversion *c, DType t, int n, const int32_t *v)
{
  char *data = arena_alloc(c->im->arena, (size_t)n * (size_t)dtype_bytes(t));
  for (int i = 0; i < n; i++) value_store(value_int(t, v[i]), data + i * dtype_bytes(t));
  return node_const_copy(c->m, t, 1, (int64_t[]){n}, data);
}

const Node *tfl_look_up(Conversion *c, const Node *table, const Node *at)
{
  return kit_op2(c, "take", table, at, "axis:i,mode:s", 0, "fast");
}

const Node *tfl_by_table(Conversion *c, const Node *x, const int32_t *result, DType out)
{
  DType t = kit_dtype_of(c, x);
  int n = 1 << t.bits;
  const Node *at = kit_cast_to(c, x, DT_I32);
  if (t.code == DT_INT) at = kit_add(c, at, kit_scalar(c, DT_I32, n / 2));
  return tfl_look_up(c, tfl_table(c, out, n, result), at);
}

static float limited(float x, DType t) { return fminf(fmaxf(x, (float)dtype_imin(t)), (float)dtype_imax(t)); }

static const Node *by_bytes(Conversion *c, const Node *x, float (*f)(float, float), float env)
{
  const TflQuant *in = tfl_quant_one(c, tfl_in(c, 0));
  const TflTensor *to = tfl_out(c, 0);
  const TflQuant *out = tfl_quant_one(c, to);
  float inverse = 1.0f / (float)out->scale[0];
  int32_t v[256];
  for (int i = 0; i < 256; i++) {
    int32_t stored = i + (int32_t)dtype_imin(kit_dtype_of(c, x));
    float real = (float)in->scale[0] * (float)(stored - (int32_t)in->zero[0]);
    v[i] = (int32_t)limited(roundf(f(real, env) * inverse) + (float)out->zero[0], to->dtype);
  }
  return tfl_by_table(c, x, v, to->dtype);
}

/* 512 steps over the input's range; halfway between two, half of what a straight line is wrong by is taken off.
 * Products that are added to something are not rounded before, as in LiteRT for AArch64. */
static const Node *by_steps(Conversion *c, const Node *x, float (*f)(float, float), float env)
{
  enum { STEPS = 512 };
  const TflQuant *in = tfl_quant_one(c, tfl_in(c, 0));
  const TflQuant *out = tfl_quant_one(c, tfl_out(c, 0));
  float least = (float)in->scale[0] * (float)(-32768 - (int32_t)in->zero[0]);
  float most = (float)in->scale[0] * (float)(32767 - (int32_t)in->zero[0]);
  float out_least = (float)out->scale[0] * (float)(-32768 - (int32_t)out->zero[0]);
  float out_most = (float)out->scale[0] * (float)(32767 - (int32_t)out->zero[0]);
  float step = (most - least) / STEPS;
  float per_unit = 65536 / (out_most - out_least);
  int32_t at[STEPS + 1];
  for (int i = 0; i < STEPS; i++) {
    float here = roundf(f(fmaf((float)i, step, least), env) * per_unit);
    float line = roundf(fmaf(f(fmaf((float)(i + 1), step, least), env), per_unit, here) / 2);
    float middle = roundf(f(fmaf((float)i, step, least) + step / 2, env) * per_unit);
    at[i] = (int32_t)limited(here - roundf((line - middle) / 2), DTYPE(DT_INT, 16));
  }
  at[STEPS] = (int32_t)limited(roundf(f(most, env) * per_unit), DTYPE(DT_INT, 16));
  int32_t *v = arena_array(c->im->arena, int32_t, 65536);
  for (int i = 0; i < 65536; i++) {
    int k = i >> 7;
    v[i] = at[k] + (((at[k + 1] - at[k]) * (i & 127) + 64) >> 7);
  }
  return tfl_by_table(c, x, v, tfl_out(c, 0)->dtype);
}

const Node *tfl_by_function(Conversion *c, const Node *x, float (*f)(float, float), float env)
{
  return kit_dtype_of(c, x).bits == 16 ? by_steps(c, x, f, env) : by_bytes(c, x, f, env);
}
