/* eval_ops.c: operators and mathematical intrinsics on single values.
 *
 * In: values of one dtype, wrapped or rounded to their width.  Out: the same.
 *
 * Floats.  Every value of every float dtype is exact in a double, and for + - *
 * / and sqrt rounding to double first and to the narrow dtype after gives the
 * same result as rounding once (a double has more than twice the bits plus two
 * of float32), so one double path serves all dtypes.  Only fma needs care.
 * Integers.  Computed on 64 bits without sign and wrapped by value_int. */
#include "expr/expr.h"

#include <math.h>

__extension__ typedef __int128 Wide;

/* ---- operators ------------------------------------------------------------ */

static bool is_unsigned(DType t) { return t.code == DT_UINT; }

static bool int_less(DType t, int64_t a, int64_t b) { return is_unsigned(t) ? (uint64_t)a < (uint64_t)b : a < b; }

/* Quotient and remainder, truncating or flooring.  b != 0. */
static void int_divide(DType t, bool floors, int64_t a, int64_t b, int64_t *quotient, int64_t *remainder)
{
  if (is_unsigned(t)) {
    *quotient = (int64_t)((uint64_t)a / (uint64_t)b);
    *remainder = (int64_t)((uint64_t)a % (uint64_t)b);
    return;
  }
  if (b == -1) { /* INT64_MIN / -1 traps on some machines */
    *quotient = (int64_t)(0 - (uint64_t)a);
    *remainder = 0;
    return;
  }
  *quotient = a / b;
  *remainder = a % b;
  if (floors && *remainder != 0 && (*remainder < 0) != (b < 0)) {
    *quotient -= 1;
    *remainder += b;
  }
}

static bool compare(ExprKind k, bool less, bool equal, bool unordered)
{
  if (k == E_EQ) return equal;
  if (k == E_NE) return !equal;
  if (k == E_LT) return less;
  if (k == E_LE) return less || equal;
  return !unordered && !less && (k == E_GE || !equal);
}

static bool int_binary(ExprKind k, Value a, Value b, Value *out)
{
  DType t = a.dtype;
  uint64_t x = (uint64_t)a.i;
  uint64_t y = (uint64_t)b.i;
  int64_t quotient, remainder;
  if (k >= E_EQ) *out = value_int(DT_BOOL, compare(k, int_less(t, a.i, b.i), a.i == b.i, false));
  else if (k == E_ADD) *out = value_int(t, (int64_t)(x + y));
  else if (k == E_SUB) *out = value_int(t, (int64_t)(x - y));
  else if (k == E_MUL) *out = value_int(t, (int64_t)(x * y));
  else if (k == E_MIN) *out = int_less(t, b.i, a.i) ? b : a;
  else if (k == E_MAX) *out = int_less(t, a.i, b.i) ? b : a;
  else {
    if (b.i == 0) return false;
    int_divide(t, k == E_FLOORDIV || k == E_FLOORMOD, a.i, b.i, &quotient, &remainder);
    *out = value_int(t, k == E_DIV || k == E_FLOORDIV ? quotient : remainder);
  }
  return true;
}

static Value float_binary(ExprKind k, Value a, Value b)
{
  DType t = a.dtype;
  double x = a.f;
  double y = b.f;
  if (k >= E_EQ) return value_int(DT_BOOL, compare(k, x < y, x == y, isnan(x) || isnan(y)));
  if (k == E_ADD) return value_float(t, x + y);
  if (k == E_SUB) return value_float(t, x - y);
  if (k == E_MUL) return value_float(t, x * y);
  if (k == E_DIV) return value_float(t, x / y);
  if (k == E_MIN) return value_float(t, fmin(x, y));
  if (k == E_MAX) return value_float(t, fmax(x, y));
  return value_float(t, fmod(x, y)); /* E_MOD; the flooring kinds do not exist on floats */
}

bool expr_eval_binary(ExprKind k, Value a, Value b, Value *out)
{
  if (dtype_is_float(a.dtype)) return *out = float_binary(k, a, b), true;
  if (a.dtype.code == DT_HANDLE) {
    uintptr_t x = (uintptr_t)a.p;
    uintptr_t y = (uintptr_t)b.p;
    *out = value_int(DT_BOOL, compare(k, x < y, x == y, false));
    return true;
  }
  return int_binary(k, a, b, out);
}

/* ---- intrinsics -------------------------------------------------------------- */

/* a*b + c rounded once to a dtype narrower than double: the product is exact in
 * a double; the sum is rounded to odd, after which rounding again is harmless. */
static double fma_odd(double a, double b, double c)
{
  double p = a * b;
  double s = p + c;
  if (!isfinite(s)) return s;
  double back = s - p;
  double error = (p - (s - back)) + (c - back);
  uint64_t bits;
  memcpy(&bits, &s, sizeof bits);
  if (error == 0 || (bits & 1)) return s;
  return nextafter(s, error > 0 ? INFINITY : -INFINITY);
}

/* Next representable value of a narrow float, by its bit pattern. */
static Value next_after(Value a, Value b)
{
  DType t = a.dtype;
  if (isnan(a.f) || isnan(b.f)) return value_float(t, NAN);
  if (a.f == b.f) return b;
  if (t.bits == 64) return value_float(t, nextafter(a.f, b.f));
  uint32_t bits = 0;
  value_store(a, &bits);
  uint32_t sign = 1u << (t.bits - 1);
  bool up = b.f > a.f;
  if (a.f == 0) bits = up ? 1 : sign | 1;
  else bits += (a.f > 0) == up ? 1u : -1u;
  bool unsigned_zero = t.code == DT_E4M3FNUZ || t.code == DT_E5M2FNUZ;
  if (unsigned_zero && bits == sign) bits = 0;
  return value_load(t, &bits);
}

static double round_half_even(double x)
{
  double f = floor(x);
  double d = x - f;
  if (d < 0.5 || !isfinite(x)) return isfinite(x) ? copysign(f, x) : x;
  if (d > 0.5) return copysign(f + 1, x);
  return copysign(fmod(f, 2) == 0 ? f : f + 1, x);
}

static double exp10_(double x) { return pow(10, x); }
static double rsqrt(double x) { return 1 / sqrt(x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct {
  double (*of1)(double);
  double (*of2)(double, double);
  /* clang-format off */
} float_functions[IN_COUNT] = {
    [IN_EXP] = {exp, NULL},      [IN_EXP2] = {exp2, NULL},   [IN_EXP10] = {exp10_, NULL},
    [IN_LOG] = {log, NULL},      [IN_LOG2] = {log2, NULL},   [IN_LOG10] = {log10, NULL},
    [IN_LOG1P] = {log1p, NULL},  [IN_SQRT] = {sqrt, NULL},   [IN_RSQRT] = {rsqrt, NULL},
    [IN_TANH] = {tanh, NULL},    [IN_SIGMOID] = {sigmoid, NULL}, [IN_ERF] = {erf, NULL},
    [IN_SIN] = {sin, NULL},      [IN_COS] = {cos, NULL},     [IN_TAN] = {tan, NULL},
    [IN_ASIN] = {asin, NULL},    [IN_ACOS] = {acos, NULL},   [IN_ATAN] = {atan, NULL},
    [IN_SINH] = {sinh, NULL},    [IN_COSH] = {cosh, NULL},   [IN_ASINH] = {asinh, NULL},
    [IN_ACOSH] = {acosh, NULL},  [IN_ATANH] = {atanh, NULL}, [IN_FLOOR] = {floor, NULL},
    [IN_CEIL] = {ceil, NULL},    [IN_TRUNC] = {trunc, NULL}, [IN_ROUND] = {round, NULL},
    [IN_NEARBYINT] = {round_half_even, NULL},
    [IN_ATAN2] = {NULL, atan2},  [IN_POW] = {NULL, pow},     [IN_FMOD] = {NULL, fmod},
    [IN_HYPOT] = {NULL, hypot},  [IN_COPYSIGN] = {NULL, copysign},
};
/* clang-format on */

/* The bits of an integer within its width. */
static uint64_t int_bits(Value v)
{
  return v.dtype.bits == 64 ? (uint64_t)v.i : (uint64_t)v.i & ((1ull << v.dtype.bits) - 1);
}

/* x * y * 2^(s - q), halves rounded up. */
static int64_t multiply_shift(int64_t x, int64_t y, int64_t q, int64_t s)
{
  Wide product = (Wide)x * y;
  int64_t right = q - s;
  if (right == 31 && x == INT32_MIN && y == INT32_MIN) return INT32_MAX;
  if (right >= 127) return 0;
  if (right > 0) return (int64_t)((product + ((Wide)1 << (right - 1))) >> right);
  if (right <= -64) return 0;
  return (int64_t)((uint64_t)product << -right);
}

/* x * 2^-n, halves away from zero. */
static int64_t round_shift(Value x, int n)
{
  if (n == 0) return x.i;
  Wide wide = is_unsigned(x.dtype) ? (Wide)int_bits(x) : (Wide)x.i;
  Wide half = (Wide)1 << (n - 1);
  return (int64_t)(wide < 0 ? -((-wide + half) >> n) : (wide + half) >> n);
}

static int64_t int_function(Intrin f, const Value *arg)
{
  uint64_t x = int_bits(arg[0]);
  int width = arg[0].dtype.bits;
  if (f == IN_QMULSHIFT) return multiply_shift(arg[0].i, arg[1].i, arg[2].i, arg[3].i);
  if (f == IN_BITNOT) return (int64_t)~x;
  if (f == IN_POPCOUNT) return __builtin_popcountll(x);
  if (f == IN_CLZ) return x == 0 ? width : __builtin_clzll(x) - (64 - width);
  uint64_t y = int_bits(arg[1]);
  int n = (int)(y % (uint64_t)width);
  if (f == IN_BITAND) return (int64_t)(x & y);
  if (f == IN_BITOR) return (int64_t)(x | y);
  if (f == IN_BITXOR) return (int64_t)(x ^ y);
  if (f == IN_SHL) return (int64_t)(x << n);
  if (f == IN_SHR_ROUND) return round_shift(arg[0], n);
  return is_unsigned(arg[0].dtype) ? (int64_t)(x >> n) : arg[0].i >> n; /* IN_SHR */
}

/* One of the bfloat16 in a word, the first in the lowest bits. */
static double word_part(Value v, int which)
{
  uint16_t bits = (uint16_t)((uint64_t)v.i >> 16 * which);
  return value_load(DTYPE(DT_BFLOAT, 16), &bits).f;
}

/* Products of bfloat16 are exact in a double; the sum of two is rounded once. */
static double pair_dot(DType t, const Value *a, int first)
{
  return value_float(t, fma_odd(word_part(a[0], first), word_part(a[1], first),
                                word_part(a[0], first + 1) * word_part(a[1], first + 1)))
      .f;
}

/* Of four, the sum of two pairs' sums. */
static Value word_dot(DType t, const Value *a)
{
  double low = pair_dot(t, a, 0);
  return value_float(t, a[0].dtype.bits == 32 ? low : low + pair_dot(t, a, 2));
}

/* Sums of products of integers wrap. */
static Value group_dot(DType t, int g, const Value *a)
{
  double f = 0;
  uint64_t i = 0;
  for (int k = 0; k < g; k++) {
    if (dtype_is_float(t)) f += a[k].f * a[g + k].f;
    else i += (uint64_t)a[k].i * (uint64_t)a[g + k].i;
  }
  return dtype_is_float(t) ? value_float(t, f) : value_int(t, (int32_t)(uint32_t)i);
}

static Value bytes_dot(DType t, const Value *a)
{
  int64_t sum = 0;
  for (int k = 0; k < a[0].dtype.bits / 8; k++) {
    int64_t byte[2];
    for (int i = 0; i < 2; i++) {
      byte[i] = a[i].i >> (8 * k) & 255;
      if (a[2].i >> i & 1) byte[i] = (int8_t)byte[i];
    }
    sum += byte[0] * byte[1];
  }
  return value_int(t, sum);
}

static Value absolute(DType t, Value a)
{
  if (dtype_is_float(t)) return value_float(t, fabs(a.f));
  return value_int(t, is_unsigned(t) || a.i >= 0 ? a.i : (int64_t)(0 - (uint64_t)a.i));
}

static double load_exponent(Value a, Value n)
{
  return ldexp(a.f, (int)(n.i < -8192 ? -8192 : n.i > 8192 ? 8192 : n.i));
}

bool intrin_is_math(Intrin f) { return f <= IN_QMULSHIFT && f != IN_REINTERPRET; }

void intrin_eval(Intrin f, DType t, int n, const Value *a, Value *out)
{
  bool is_float = dtype_is_float(a[0].dtype);
  if (float_functions[f].of1) *out = value_float(t, float_functions[f].of1(a[0].f));
  else if (float_functions[f].of2) *out = value_float(t, float_functions[f].of2(a[0].f, a[1].f));
  else if (f == IN_LDEXP) *out = value_float(t, load_exponent(a[0], a[1]));
  else if (f == IN_FMA && t.bits == 64) *out = value_float(t, fma(a[0].f, a[1].f, a[2].f));
  else if (f == IN_FMA) *out = value_float(t, fma_odd(a[0].f, a[1].f, a[2].f));
  else if (f == IN_BF16_DOT) *out = word_dot(t, a);
  else if (f == IN_DOT) *out = group_dot(t, n / 2, a);
  else if (f == IN_WORD_DOT) *out = bytes_dot(t, a);
  else if (f == IN_NEXTAFTER) *out = next_after(a[0], a[1]);
  else if (f == IN_ABS) *out = absolute(t, a[0]);
  else if (f == IN_ISNAN) *out = value_int(DT_BOOL, is_float && isnan(a[0].f));
  else if (f == IN_ISFINITE) *out = value_int(DT_BOOL, !is_float || isfinite(a[0].f));
  else if (f == IN_ISINF) *out = value_int(DT_BOOL, is_float && isinf(a[0].f));
  else *out = value_int(t, int_function(f, a));
}
