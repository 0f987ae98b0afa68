/* math.c: elementary functions on float32 spelled out in arithmetic.
 *
 * Every function is a straight line of additions, multiplications, comparisons and
 * bit operations, so it works on any number of lanes.  Methods, coefficients and
 * measured errors are in docs/math.md; no function is off by more than 4 ulp.
 * With fast math the exponentials drop denormal results and sine and cosine their
 * reduction of arguments from 2^19.
 *
 * lower_pass_expand_math
 * needs   legal dtypes
 * keeps   everything else
 * breaks  nothing; afterwards calls left are instructions or functions of C's library
 *
 * This file: helpers, exponentials, hyperbolic functions, error function, rounding. */
#include "lower/mathops.h"

#include <math.h>

const Expr *math_f32(const Math *k, double x) { return expr_float(k->m, dtype_lanes(DT_F32, k->lanes), x); }
const Expr *math_f64(const Math *k, double x) { return expr_float(k->m, dtype_lanes(DT_F64, k->lanes), x); }
const Expr *math_i32(const Math *k, int64_t i) { return expr_int(k->m, dtype_lanes(DT_I32, k->lanes), i); }
const Expr *math_cast(const Math *k, DType t, const Expr *e) { return expr_cast(k->m, dtype_lanes(t, k->lanes), e); }
const Expr *math_call(const Math *k, Intrin f, const Expr *a) { return expr_call(k->m, DT_NONE, f, 1, &a); }
const Expr *math_select(const Math *k, const Expr *c, const Expr *a, const Expr *b)
{
  return expr_select(k->m, c, a, b);
}

const Expr *math_call2(const Math *k, Intrin f, const Expr *a, const Expr *b)
{
  return expr_call(k->m, DT_NONE, f, 2, (const Expr *[]){a, b});
}

const Expr *math_bits(const Math *k, const Expr *f)
{
  return expr_call(k->m, dtype_lanes(DT_I32, k->lanes), IN_REINTERPRET, 1, &f);
}

const Expr *math_float(const Math *k, const Expr *i)
{
  return expr_call(k->m, dtype_lanes(DT_F32, k->lanes), IN_REINTERPRET, 1, &i);
}

const Expr *math_add(const Math *k, const Expr *a, const Expr *b, const Expr *c)
{
  if (k->fma) return expr_call(k->m, DT_NONE, IN_FMA, 3, (const Expr *[]){a, b, c});
  return MADD(MMUL(a, b), c);
}

const Expr *math_poly(const Math *k, const Expr *x, int n, const double *c)
{
  const Expr *p = expr_float(k->m, x->dtype, c[n - 1]);
  for (int i = n - 2; i >= 0; i--) p = math_add(k, p, x, expr_float(k->m, x->dtype, c[i]));
  return p;
}

/* The same, z = x^2, where a multiply-add writes over its addend, so that a constant there has to be copied first: in
 * pairs, of which every second constant is a factor. */
static const Expr *poly_in_pairs(const Math *k, const Expr *x, const Expr *z, int n, const double *c)
{
  const Expr *p = NULL;
  for (int i = (n - 1) / 2 * 2; i >= 0; i -= 2) {
    const Expr *pair = i + 1 < n ? math_add(k, x, math_f32(k, c[i + 1]), math_f32(k, c[i])) : math_f32(k, c[i]);
    p = p ? math_add(k, p, z, pair) : pair;
  }
  return p;
}

const Expr *math_abs(const Math *k, const Expr *x) { return math_call(k, IN_ABS, x); }
const Expr *math_sign_of(const Math *k, const Expr *mag, const Expr *sign)
{
  return math_call2(k, IN_COPYSIGN, mag, sign);
}

/* |x| plus 2^23 has no bits for a fraction left: the nearest integer, ties to even. */
static const Expr *nearest(const Math *k, const Expr *x)
{
  if (k->rounds) return math_call(k, IN_NEARBYINT, x);
  const Expr *a = math_abs(k, x);
  const Expr *big = math_f32(k, 0x1p23);
  const Expr *r = MSUB(MADD(a, big), big);
  return math_select(k, MLT(a, big), math_sign_of(k, r, x), x);
}

const Expr *math_trunc(const Math *k, const Expr *x)
{
  if (k->rounds) return math_call(k, IN_TRUNC, x);
  const Expr *a = math_abs(k, x);
  const Expr *r = math_abs(k, nearest(k, x));
  return math_sign_of(k, math_select(k, MGT(r, a), MSUB(r, math_f32(k, 1)), r), x);
}

static const Expr *round_down(const Math *k, const Expr *x, bool up)
{
  const Expr *r = nearest(k, x);
  const Expr *one = math_f32(k, 1);
  const Expr *fixed = up ? math_select(k, MLT(r, x), MADD(r, one), r) : math_select(k, MGT(r, x), MSUB(r, one), r);
  return math_sign_of(k, fixed, x);
}

/* Halves away from zero. */
static const Expr *math_round(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, x);
  const Expr *t = math_abs(k, math_trunc(k, x));
  const Expr *r = math_select(k, expr_binary(k->m, E_GE, MSUB(a, t), math_f32(k, 0.5)), MADD(t, math_f32(k, 1)), t);
  return math_select(k, MLT(a, math_f32(k, 0x1p23)), math_sign_of(k, r, x), x);
}

/* ---- exponentials ----------------------------------------------------------------------- */

static const double exp_poly[] = {0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558b4p-5, 0x1.12399ep-7, 0x1.6a492ep-10};
static const double exp2_poly[] = {0x1.62e43p-1,  0x1.ebfbdcp-3,  0x1.c6af7ap-5,
                                   0x1.3b2ddap-7, 0x1.5f0976p-10, 0x1.4172a6p-13};
static const double exp10_poly[] = {0x1.26bb1cp+1, 0x1.53524ap+1, 0x1.046f9cp+1,
                                    0x1.2bdap+0,   0x1.156a46p-1, 0x1.a63a9cp-3};

enum { MAGIC = 3 << 22, MAGIC_BITS = 0x4b400000 }; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
static const double LOG2_E = 0x1.715476p+0;

/* n = round(x * c) as a float and as an integer. */
static const Expr *round_scaled(const Math *k, const Expr *x, double c, const Expr **integer)
{
  const Expr *magic = math_f32(k, MAGIC);
  const Expr *t = math_add(k, x, math_f32(k, c), magic);
  *integer = MSUB(math_bits(k, t), math_i32(k, MAGIC_BITS));
  return MSUB(t, magic);
}

/* p * 2^n.  Two factors, so that results down to the smallest denormal and factors up
 * to 2^128 come out with one rounding. */
static const Expr *times_power(const Math *k, const Expr *p, const Expr *n)
{
  if (k->fast) return math_float(k, MADD(math_bits(k, p), math_call2(k, IN_SHL, n, math_i32(k, 23))));
  if (k->scales) return math_call2(k, IN_LDEXP, p, n);
  const Expr *both = MADD(n, math_i32(k, 2 * 127)); /* of either factor half of n and the exponent of 1 */
  const Expr *half = math_call2(k, IN_SHR, both, math_i32(k, 1));
  const Expr *a = math_float(k, math_call2(k, IN_SHL, half, math_i32(k, 23)));
  const Expr *b = math_float(k, math_call2(k, IN_SHL, MSUB(both, half), math_i32(k, 23)));
  return MMUL(MMUL(p, a), b);
}

/* x within [lo, hi]; NaN stays. */
static const Expr *within(const Math *k, const Expr *x, double lo, double hi)
{
  x = math_select(k, MLT(x, math_f32(k, lo)), math_f32(k, lo), x);
  return math_select(k, MGT(x, math_f32(k, hi)), math_f32(k, hi), x);
}

/* x within [lo, hi]; NaN comes out as one of them and is put back by keep_nan. */
static const Expr *limit(const Math *k, const Expr *x, double lo, double hi)
{
  return expr_min(k->m, expr_max(k->m, x, math_f32(k, lo)), math_f32(k, hi));
}

static const Expr *keep_nan(const Math *k, const Expr *x, const Expr *r) { return math_select(k, MEQ(x, x), r, x); }

/* A polynomial of five terms at r, z = r^2, in pairs: sums of a constant and a product need a copy of the constant
 * where a multiply-add writes over it (NEON), and there are two of them instead of four. */
static const Expr *exp_tail(const Math *k, const Expr *r, const Expr *z, const double *c)
{
  const Expr *low = math_add(k, r, math_f32(k, c[1]), math_f32(k, c[0]));
  const Expr *high = math_add(k, r, math_f32(k, c[3]), math_f32(k, c[2]));
  return math_add(k, z, math_add(k, z, math_f32(k, c[4]), high), low);
}

/* e^x as (1 + t) * 2^n: t, near 0. */
static const Expr *exp_fraction(const Math *k, const Expr *x, const Expr *n)
{
  const Expr *r = math_add(k, n, math_f32(k, -0x1.63p-1), x); /* ln 2 in two parts; the product is exact */
  r = math_add(k, n, math_f32(k, 0x1.bd0106p-13), r);
  const Expr *z = MMUL(r, r);
  return math_add(k, z, exp_tail(k, r, z, exp_poly), r);
}

/* e^x as p * 2^n, p near 1. */
static const Expr *exp_parts(const Math *k, const Expr *x, const Expr **n)
{
  return MADD(math_f32(k, 1), exp_fraction(k, x, round_scaled(k, x, LOG2_E, n)));
}

const Expr *math_exp_scaled(const Math *k, const Expr *x, int scale)
{
  const Expr *n;
  double lo = k->fast ? -87.3 : -105;
  double hi = k->fast ? 88.3 : 90;
  const Expr *p = exp_parts(k, k->fast ? limit(k, x, lo, hi) : within(k, x, lo, hi), &n);
  if (scale) n = MADD(n, math_i32(k, scale));
  if (k->fast) return keep_nan(k, x, times_power(k, p, n));
  /* a product that underflows is slow; 0 times anything is not */
  p = math_select(k, MLT(x, math_f32(k, lo)), math_f32(k, 0), p);
  return times_power(k, p, n);
}

static const Expr *math_exp2(const Math *k, const Expr *x)
{
  const Expr *n;
  const Expr *z = limit(k, x, k->fast ? -126 : -152, k->fast ? 127.4 : 129);
  const Expr *r = MSUB(z, round_scaled(k, z, 1, &n));
  return keep_nan(k, x, times_power(k, math_add(k, r, math_poly(k, r, 6, exp2_poly), math_f32(k, 1)), n));
}

static const Expr *math_exp10(const Math *k, const Expr *x)
{
  const Expr *n;
  const Expr *z = limit(k, x, k->fast ? -37.9 : -46, k->fast ? 38.4 : 39);
  const Expr *nf = round_scaled(k, z, 0x1.a934f0p+1, &n);
  const Expr *r = math_add(k, nf, math_f32(k, -0x1.34p-2), z); /* log10 2 in two parts */
  r = math_add(k, nf, math_f32(k, -0x1.04d428p-12), r);
  return keep_nan(k, x, times_power(k, math_add(k, r, math_poly(k, r, 6, exp10_poly), math_f32(k, 1)), n));
}

/* e^x where that is a normal number. */
static const Expr *exp_normal(const Math *k, const Expr *x)
{
  const Expr *n;
  const Expr *p = exp_parts(k, x, &n);
  return math_float(k, MADD(math_bits(k, p), math_call2(k, IN_SHL, n, math_i32(k, 23))));
}

/* With e^-x = p * 2^n and s = 2^-n: 1 / (1 + e^-x) = s / (s + p).  Both s and p are taken 2^24 times as large, so that
 * s is no denormal where the quotient is one.  r = x + n ln 2, p = e^-r: nothing is negated on the way.  p is whole
 * before s comes to it: one rounding at the size of s, for 1 - sigmoid(x) shows each of them where x is large. */
static const Expr *math_sigmoid(const Math *k, const Expr *x)
{
  /* exp_poly of -r */
  static const double tail[] = {0x1.fffffcp+22, -0x1.555492p+21, 0x1.5558b4p+19, -0x1.12399ep+17, 0x1.6a492ep+14};
  const Expr *n;
  const Expr *y = within(k, x, -104.5, 40);
  const Expr *nf = round_scaled(k, y, -0x1.715476p+0, &n);
  const Expr *r = math_add(k, nf, math_f32(k, 0x1.63p-1), y);
  r = math_add(k, nf, math_f32(k, -0x1.bd0106p-13), r);
  const Expr *s = math_float(k, math_call2(k, IN_SHL, MSUB(math_i32(k, 127 + 24), n), math_i32(k, 23)));
  const Expr *z = MMUL(r, r);
  return MDIV(
      s, MADD(s, math_add(k, z, exp_tail(k, r, z, tail), math_add(k, r, math_f32(k, -0x1p24), math_f32(k, 0x1p24)))));
}

/* ---- hyperbolic functions ------------------------------------------------------------------ */

static const double sinh_poly[] = {0x1.555556p-3, 0x1.1110ep-7, 0x1.a022bcp-13, 0x1.756c1ep-19};

/* x + x^3 * P(x^2) */
static const Expr *odd_poly(const Math *k, const Expr *x, int n, const double *c)
{
  const Expr *z = MMUL(x, x);
  return math_add(k, MMUL(x, z), math_poly(k, z, n, c), x);
}

/* (e^2a - 1) / (e^2a + 1), a = |x|.  With e^2a = (1 + t) * 2^n, e^2a - 1 is t where n is 0, and elsewhere 2^n - 1 takes
 * nothing away from it: no other formula is needed near zero.  The number that rounding adds has the exponent of 1 in
 * its low bits, so that shifted they are 2^n.  Only one side has a limit, which lets NaN through. */
static const Expr *math_tanh(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, MADD(x, x));
  const Expr *y = math_select(k, MGT(a, math_f32(k, 20)), math_f32(k, 20), a);
  const Expr *magic = math_f32(k, MAGIC + 127);
  const Expr *n = math_add(k, y, math_f32(k, LOG2_E), magic);
  const Expr *t = exp_fraction(k, y, MSUB(n, magic));
  const Expr *s = math_float(k, math_call2(k, IN_SHL, math_bits(k, n), math_i32(k, 23)));
  const Expr *e = math_add(k, s, t, MSUB(s, math_f32(k, 1)));
  return math_sign_of(k, MDIV(e, MADD(e, math_f32(k, 2))), x);
}

static const Expr *math_sinh(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, x);
  const Expr *e = math_exp_scaled(k, a, -1);
  const Expr *r =
      math_select(k, MLT(a, math_f32(k, 1)), odd_poly(k, a, 4, sinh_poly), MSUB(e, MDIV(math_f32(k, 0.25), e)));
  return math_sign_of(k, r, x);
}

static const Expr *math_cosh(const Math *k, const Expr *x)
{
  const Expr *e = math_exp_scaled(k, math_abs(k, x), -1);
  return MADD(e, MDIV(math_f32(k, 0.25), e));
}

/* ---- error function -------------------------------------------------------------------------- */

static const double erf_poly[] = {0x1.06eba8p-3, -0x1.81274p-2,   0x1.ce2d62p-4, -0x1.b800dcp-6,
                                  0x1.5447c4p-8, -0x1.a5f9d8p-11, 0x1.4f48c8p-14};
/* -log(erfc(x)) on [0.9, 4] */
static const double log_erfc_poly[] = {-0x1.62d8ap-13, 0x1.212626p+0, 0x1.444d26p-1,   0x1.bb44d6p-4,
                                       -0x1.9aeap-6,   0x1.105edap-8, -0x1.c44a7ap-12, 0x1.5d594p-16};

static const Expr *math_erf(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, x);
  const Expr *z = MMUL(a, a);
  const Expr *y = expr_min(k->m, a, math_f32(k, 4));
  const Expr *near = k->pairs ? poly_in_pairs(k, z, MMUL(z, z), 7, erf_poly) : math_poly(k, z, 7, erf_poly);
  const Expr *small = math_add(k, a, near, a);
  const Expr *q = k->pairs ? poly_in_pairs(k, y, MMUL(y, y), 8, log_erfc_poly) : math_poly(k, y, 8, log_erfc_poly);
  const Expr *r = math_select(k, MLT(a, math_f32(k, 0.921875)), small,
                              MSUB(math_f32(k, 1), exp_normal(k, MSUB(math_f32(k, 0), q))));
  return keep_nan(k, x, math_sign_of(k, r, x));
}

/* ---- small ones -------------------------------------------------------------------------------- */

/* In float64 neither squares nor their sum overflow. */
static const Expr *math_hypot(const Math *k, const Expr *x, const Expr *y)
{
  const Expr *a = math_cast(k, DT_F64, x);
  const Expr *b = math_cast(k, DT_F64, y);
  const Expr *inf = math_f32(k, INFINITY);
  const Expr *r = math_cast(k, DT_F32, math_call(k, IN_SQRT, MADD(MMUL(a, a), MMUL(b, b))));
  return math_select(k, MOR(MEQ(math_abs(k, x), inf), MEQ(math_abs(k, y), inf)), inf, r);
}

/* In float64 every power of two that matters is normal: one rounding at the end. */
static const Expr *math_ldexp(const Math *k, const Expr *x, const Expr *n)
{
  DType i64 = dtype_lanes(DT_I64, k->lanes);
  const Expr *lim =
      expr_min(k->m, expr_max(k->m, math_cast(k, DT_I64, n), expr_int(k->m, i64, -400)), expr_int(k->m, i64, 400));
  const Expr *bits = math_call2(k, IN_SHL, MADD(lim, expr_int(k->m, i64, 1023)), expr_int(k->m, i64, 52));
  const Expr *scale = expr_call(k->m, dtype_lanes(DT_F64, k->lanes), IN_REINTERPRET, 1, &bits);
  return math_cast(k, DT_F32, MMUL(math_cast(k, DT_F64, x), scale));
}

/* One step in the bits, away from zero or towards it. */
static const Expr *math_nextafter(const Math *k, const Expr *x, const Expr *y)
{
  const Expr *i = math_bits(k, x);
  const Expr *zero = math_f32(k, 0);
  const Expr *one = math_i32(k, 1);
  const Expr *away = MEQ(MGT(y, x), MGT(x, zero));
  const Expr *r = math_float(k, math_select(k, away, MADD(i, one), MSUB(i, one)));
  r = math_select(k, MEQ(x, zero), math_sign_of(k, math_float(k, one), y), r);
  r = math_select(k, MEQ(x, y), y, r);
  return math_select(k, MAND(MEQ(x, x), MEQ(y, y)), r, MADD(x, y));
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const Expr *expand_float32(const Math *k, Intrin f, const Expr *x, const Expr *y)
{
  switch (f) {
  case IN_EXP: return math_exp_scaled(k, x, 0);
  case IN_EXP2: return math_exp2(k, x);
  case IN_EXP10: return math_exp10(k, x);
  case IN_LOG: return math_log(k, x);
  case IN_LOG2: return math_log2(k, x);
  case IN_LOG10: return math_log10(k, x);
  case IN_LOG1P: return math_log1p(k, x);
  case IN_RSQRT: return MDIV(math_f32(k, 1), math_call(k, IN_SQRT, x));
  case IN_TANH: return math_tanh(k, x);
  case IN_SIGMOID: return math_sigmoid(k, x);
  case IN_ERF: return math_erf(k, x);
  case IN_SIN: return math_sin(k, x);
  case IN_COS: return math_cos(k, x);
  case IN_TAN: return math_tan(k, x);
  case IN_ASIN: return math_asin(k, x);
  case IN_ACOS: return math_acos(k, x);
  case IN_ATAN: return math_atan(k, x);
  case IN_ATAN2: return math_atan2(k, x, y);
  case IN_SINH: return math_sinh(k, x);
  case IN_COSH: return math_cosh(k, x);
  case IN_ASINH: return math_asinh(k, x);
  case IN_ACOSH: return math_acosh(k, x);
  case IN_ATANH: return math_atanh(k, x);
  case IN_POW: return math_pow(k, x, y);
  case IN_HYPOT: return math_hypot(k, x, y);
  case IN_LDEXP: return k->scales ? NULL : math_ldexp(k, x, y);
  case IN_NEXTAFTER: return math_nextafter(k, x, y);
  case IN_ROUND: return math_round(k, x);
  case IN_FLOOR: return k->rounds ? NULL : round_down(k, x, false);
  case IN_CEIL: return k->rounds ? NULL : round_down(k, x, true);
  case IN_TRUNC: return k->rounds ? NULL : math_trunc(k, x);
  case IN_NEARBYINT: return k->rounds ? NULL : nearest(k, x);
  default: return NULL; /* instructions, C library, not of this kind */
  }
}

/* Functions that C's library lacks. */
static const Expr *expand_any(const Math *k, DType t, Intrin f, const Expr *x)
{
  const Expr *one = expr_float(k->m, t, 1);
  const Expr *ten = expr_float(k->m, t, 10);
  switch (f) {
  case IN_RSQRT: return MDIV(one, math_call(k, IN_SQRT, x));
  case IN_SIGMOID: return MDIV(one, MADD(one, math_call(k, IN_EXP, MSUB(expr_float(k->m, t, 0), x))));
  case IN_EXP10: return math_call2(k, IN_POW, ten, x);
  default: return NULL; /* all others it has */
  }
}

static const Expr *expand_dot(Module *, const Target *, const Expr *call);

/* Are the lanes a 2 x 2 block, those of a row (of the first operand) or a column (of the second) the same word?  The
 * order of bfmmla's sums: 00 01 10 11. */
static bool is_block(Module *m, const Expr *call)
{
  static const int same[2][2][2] = {{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}};
  if (call->dtype.lanes != 4) return false;
  Scope scope = scope_begin(m->ctx);
  Analyzer *an = analyzer_new(m, scratch(m->ctx));
  bool block = true;
  for (int i = 0; i < 2; i++)
    for (int p = 0; p < 2 && block; p++) {
      const Expr *lane[2];
      for (int l = 0; l < 2; l++) lane[l] = lower_lanes(m, scratch(m->ctx), call->arg[i], same[i][p][l], 1, NULL);
      block = lane[0] && lane[1] && expr_simplify(an, lane[0]) == expr_simplify(an, lane[1]);
    }
  scope_end(m->ctx, scope);
  return block;
}

/* Fours as pairs, where they are no block for which there is an instruction. */
static const Expr *expand_fours(Module *m, const Target *target, const Expr *call)
{
  DType f32 = call->dtype;
  DType u32 = dtype_lanes(DTYPE(DT_UINT, 32), f32.lanes);
  if (target_block_dot(target, DOT_BF16, DOT_BF16) && is_block(m, call)) return NULL;
  const Expr *half[2][2], *dot[2];
  for (int i = 0; i < 2; i++) {
    const Expr *up[] = {call->arg[i], expr_int(m, call->arg[i]->dtype, 32)};
    half[0][i] = expr_cast(m, u32, call->arg[i]);
    half[1][i] = expr_cast(m, u32, expr_call(m, DT_NONE, IN_SHR, 2, up));
  }
  for (int i = 0; i < 2; i++) {
    const Expr *pair = expr_call(m, f32, IN_BF16_DOT, 2, half[i]);
    const Expr *spelt = expand_dot(m, target, pair);
    dot[i] = spelt ? spelt : pair;
  }
  return expr_add(m, dot[0], dot[1]);
}

/* Where the target has no instruction for it: both products in float32, in which they are exact. */
static const Expr *expand_dot(Module *m, const Target *target, const Expr *call)
{
  DType f32 = call->dtype;
  DType u32 = dtype_lanes(DTYPE(DT_UINT, 32), f32.lanes);
  if (call->arg[0]->dtype.bits == 64) return expand_fours(m, target, call);
  if (target->codegen == CODEGEN_LLVM && target_has_dot(target, f32.lanes)) return NULL;
  Math math = {.m = m, .lanes = f32.lanes, .fma = target->fma};
  Math *k = &math;
  const Expr *half[2][2];
  for (int i = 0; i < 2; i++) {
    const Expr *low = math_call2(k, IN_SHL, call->arg[i], expr_int(m, u32, 16));
    const Expr *high = math_call2(k, IN_BITAND, call->arg[i], expr_int(m, u32, 0xffff0000));
    half[i][0] = expr_call(m, f32, IN_REINTERPRET, 1, &low);
    half[i][1] = expr_call(m, f32, IN_REINTERPRET, 1, &high);
  }
  return math_add(k, half[0][0], half[1][0], MMUL(half[0][1], half[1][1]));
}

/* ---- dot ----------------------------------------------------------------------------------------------- */

static const Expr *word_of(Module *m, int g, const Expr *const *e);

/* The second operand where it is a number, the same for all lanes. */
static bool byte_number(const Expr *e, int64_t *out)
{
  if (e->kind == E_BROADCAST) e = e->arg[0];
  if (e->kind != E_INT) return false;
  *out = e->u.i & 255;
  return true;
}

/* Bytes of a word that the same is done to, which leaves each in its place: a part of their bits, some of them turned
 * over, another sign. */
static const Expr *changed_word_of(Module *m, int g, const Expr *const *e)
{
  static const Intrin kinds[] = {IN_REINTERPRET, IN_BITAND, IN_BITXOR, IN_SHR};
  const Expr *inner[4];
  int64_t by = 0;
  int64_t first = 0;
  int kind = 0;
  while (kind < 4 && (e[0]->kind != E_CALL || e[0]->u.intrin != kinds[kind])) kind++;
  if (kind == 4 || e[0]->arg[0]->dtype.bits != 8) return NULL;
  if (kind == 3 && e[0]->dtype.code != DT_UINT) return NULL;
  for (int i = 0; i < g; i++) {
    if (e[i]->kind != E_CALL || e[i]->u.intrin != kinds[kind] || (kind && !byte_number(e[i]->arg[1], &by))) return NULL;
    if (i && by != first) return NULL;
    first = by;
    inner[i] = e[i]->arg[0];
  }
  const Expr *word = word_of(m, g, inner);
  if (!word || !kind) return word;
  int64_t bits = kind == 3 ? 255 >> (by & 7) : by;
  const Expr *all = expr_int(m, word->dtype, bits * 0x01010101);
  if (kind == 3) word = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){word, expr_int(m, word->dtype, by & 7)});
  return expr_call(m, DT_NONE, kind == 2 ? IN_BITXOR : IN_BITAND, 2, (const Expr *[]){word, all});
}

/* The memory of a buffer as words of so many of its elements, which make 32 bits or are eight bytes. */
static const Buffer *buffer_of_words(Module *m, const Buffer *b, int g)
{
  const Expr *size = expr_floordiv(m, b->shape[0], expr_int(m, b->shape[0]->dtype, g));
  DType word = DTYPE(DT_UINT, g == 8 ? 64 : 32);
  return buffer_new(m, b->name, word, 1, &size, NULL, NULL, b->scope, b->align, b->offset_factor, b->data);
}

/* One side's elements as a word of memory: loads of neighbours, the first at a multiple of the group; NULL: they are
 * none.  The word is a load of uint32 from the same memory, or what is made of one. */
static const Expr *word_of(Module *m, int g, const Expr *const *e)
{
  if (e[0]->kind == E_CALL) return changed_word_of(m, g, e);
  bool spread = e[0]->kind == E_BROADCAST;
  const Expr *load[4];
  for (int i = 0; i < g; i++) {
    if ((e[i]->kind == E_BROADCAST) != spread) return NULL;
    load[i] = spread ? e[i]->arg[0] : e[i];
    if (load[i]->kind != E_LOAD || load[i]->nargs != 1 || load[i]->u.buffer != load[0]->u.buffer) return NULL;
  }
  const Buffer *b = load[0]->u.buffer;
  Scope scope = scope_begin(m->ctx);
  Analyzer *an = analyzer_new(m, scratch(m->ctx));
  const Expr *base[4];
  int lanes = load[0]->dtype.lanes;
  bool ok = true;
  for (int i = 0; i < g && ok; i++) {
    const Expr *at = load[i]->arg[0];
    if (lanes > 1) {
      ok = at->kind == E_RAMP && expr_is_int(at->arg[1], g);
      if (ok) at = at->arg[0];
    }
    base[i] = at;
    if (ok && i) {
      const Expr *distance = expr_simplify(an, expr_sub(m, base[i], base[0]));
      ok = expr_is_int(distance, i);
    }
  }
  const Expr *group = ok ? expr_int(m, base[0]->dtype, g) : NULL;
  ok = ok && expr_is_int(expr_simplify(an, expr_floormod(m, base[0], group)), 0);
  const Expr *at = ok ? expr_simplify(an, expr_floordiv(m, base[0], group)) : NULL;
  scope_end(m->ctx, scope);
  if (!ok) return NULL;
  const Buffer *words = buffer_of_words(m, b, g);
  if (lanes > 1) at = expr_ramp(m, at, expr_int(m, at->dtype, 1), lanes);
  const Expr *word = expr_load(m, words, 1, &at);
  return spread ? expr_broadcast(m, word, e[0]->dtype.lanes) : word;
}

static DotElement dot_element(DType t)
{
  if (t.code == DT_BFLOAT) return DOT_BF16;
  return t.bits == 16 ? DOT_S16 : t.code == DT_INT ? DOT_S8 : DOT_U8;
}

/* u of no sign by s with one, where the target multiplies bytes with signs alone: with x = u - 128, which is u with its
 * highest bit changed, u * s = x * s + 128 * s.  The second part is the same for all u beside one s.  NULL: that is
 * none of its instructions either. */
static const Expr *expand_mixed(Module *m, const Target *target, const Expr *call)
{
  enum { SIGNS = 3 };
  int g = call->nargs / 2;
  int lanes = call->dtype.lanes;
  bool first = call->arg[0]->dtype.code == DT_UINT;
  if (!target_dot(target, DOT_S8, DOT_S8, lanes)) return NULL;
  const Expr *u = word_of(m, g, call->arg + (first ? 0 : g));
  const Expr *s = u ? word_of(m, g, call->arg + (first ? g : 0)) : NULL;
  if (!s) return NULL;
  const Expr *signs = expr_int(m, u->dtype, 0x80808080);
  const Expr *ones = expr_int(m, dtype_lanes(s->dtype, 1), 0x01010101);
  if (s->dtype.lanes > 1) ones = expr_broadcast(m, ones, s->dtype.lanes);
  const Expr *x = expr_call(m, DT_NONE, IN_BITXOR, 2, (const Expr *[]){u, signs});
  const Expr *both = expr_i32(m, SIGNS);
  const Expr *product = expr_call(m, DT_NONE, IN_WORD_DOT, 3, (const Expr *[]){x, s, both});
  const Expr *total = expr_call(m, DT_NONE, IN_WORD_DOT, 3, (const Expr *[]){ones, s, both});
  total = expr_call(m, DT_NONE, IN_SHL, 2, (const Expr *[]){total, expr_int(m, total->dtype, 7)});
  if (total->dtype.lanes < lanes) total = expr_broadcast(m, total, lanes);
  return expr_add(m, product, total);
}

/* One side's eight bytes in the lanes of a 2 x 2 block (rows 0 0 1 1 of the first, columns 0 1 0 1 of the second) as
 * words of memory; NULL: they are none. */
static const Expr *block_words_of(Module *m, const Expr *const *e, int side)
{
  enum { BYTES = 8, LANES = 4 };
  const Expr *at[LANES];
  int other = side ? 1 : 2; /* the first lane of the other row or column */
  bool ok = true;
  Scope scope = scope_begin(m->ctx);
  Analyzer *an = analyzer_new(m, scratch(m->ctx));
  for (int p = 0; p < BYTES && ok; p++) {
    ok = e[p]->kind == E_LOAD && e[p]->nargs == 1 && e[p]->u.buffer == e[0]->u.buffer;
    for (int l = 0; l < LANES && ok; l++) {
      const Expr *index = lower_lanes(m, scratch(m->ctx), e[p]->arg[0], l, 1, NULL);
      if (!p) at[l] = index;
      ok = index && expr_is_int(expr_simplify(an, expr_sub(m, index, at[l])), p);
    }
  }
  const Expr *eight = ok ? expr_int(m, at[0]->dtype, BYTES) : NULL;
  ok = ok && expr_is_int(expr_simplify(an, expr_floormod(m, at[0], eight)), 0);
  ok = ok && expr_is_int(expr_simplify(an, expr_sub(m, at[other], at[0])), BYTES);
  ok = ok && expr_is_int(expr_simplify(an, expr_sub(m, at[side ? 2 : 1], at[0])), 0);
  ok = ok && expr_is_int(expr_simplify(an, expr_sub(m, at[3], at[other])), 0);
  const Expr *first = ok ? expr_simplify(an, expr_floordiv(m, at[0], eight)) : NULL;
  scope_end(m->ctx, scope);
  if (!ok) return NULL;
  const Expr *lane = expr_ramp(m, expr_int(m, first->dtype, 0), expr_int(m, first->dtype, 1), LANES);
  const Expr *two = expr_broadcast(m, expr_int(m, first->dtype, 2), LANES);
  const Expr *word =
      expr_add(m, expr_broadcast(m, first, LANES), side ? expr_floormod(m, lane, two) : expr_floordiv(m, lane, two));
  return expr_load(m, buffer_of_words(m, e[0]->u.buffer, BYTES), 1, &word);
}

static const Expr *expand_groups(Module *, const Target *, const Expr *call);

/* Eight bytes of a side: an instruction over a block of sums, else the sum of two fours. */
static const Expr *expand_eights(Module *m, const Target *target, const Expr *call)
{
  enum { BYTES = 8, FOUR = 4 };
  const Expr *const *a = call->arg;
  DType ta = a[0]->dtype;
  DType tb = a[BYTES]->dtype;
  if (call->dtype.lanes == 4 && target_block_dot(target, dot_element(ta), dot_element(tb))) {
    const Expr *word[3] = {block_words_of(m, a, 0)};
    word[1] = word[0] ? block_words_of(m, a + BYTES, 1) : NULL;
    word[2] = expr_i32(m, (ta.code == DT_INT) | (tb.code == DT_INT) << 1);
    if (word[1]) return expr_call(m, DT_NONE, IN_WORD_DOT, 3, word);
  }
  const Expr *sum[2];
  for (int i = 0; i < 2; i++) {
    const Expr *part[2 * FOUR];
    for (int p = 0; p < FOUR; p++) part[p] = a[FOUR * i + p], part[FOUR + p] = a[BYTES + FOUR * i + p];
    sum[i] = expand_groups(m, target, expr_call(m, DT_NONE, IN_DOT, 2 * FOUR, part));
  }
  return expr_add(m, sum[0], sum[1]);
}

/* One side's elements as a vector of memory: loads of neighbours; NULL: they are none. */
static const Expr *bytes_of(Module *m, int g, const Expr *const *e)
{
  for (int i = 0; i < g; i++)
    if (e[i]->kind != E_LOAD || e[i]->nargs != 1 || e[i]->u.buffer != e[0]->u.buffer) return NULL;
  Scope scope = scope_begin(m->ctx);
  Analyzer *an = analyzer_new(m, scratch(m->ctx));
  bool ok = true;
  for (int i = 1; i < g && ok; i++) ok = expr_is_int(expr_simplify(an, expr_sub(m, e[i]->arg[0], e[0]->arg[0])), i);
  scope_end(m->ctx, scope);
  if (!ok) return NULL;
  const Expr *at = expr_ramp(m, e[0]->arg[0], expr_int(m, e[0]->arg[0]->dtype, 1), g);
  return expr_load(m, e[0]->u.buffer, 1, &at);
}

/* A whole vector by a whole vector, added to one sum; NULL: that is none of the target's instructions. */
static const Expr *expand_vectors(Module *m, const Target *target, const Expr *call)
{
  int g = call->nargs / 2;
  DotElement a = dot_element(call->arg[0]->dtype);
  DotElement b = dot_element(call->arg[g]->dtype);
  if (call->dtype.lanes != 1 || target_dot_group(target, a, b, g) != g) return NULL;
  const Expr *side[2] = {bytes_of(m, g, call->arg), bytes_of(m, g, call->arg + g)};
  if (!side[0] || !side[1]) return NULL;
  DType wide = dtype_lanes(call->dtype, g);
  const Expr *products = expr_mul(m, expr_cast(m, wide, side[0]), expr_cast(m, wide, side[1]));
  return expr_call(m, call->dtype, IN_VECTOR_SUM, 1, &products);
}

/* An instruction over words where the target has one, else the products one by one. */
static const Expr *expand_groups(Module *m, const Target *target, const Expr *call)
{
  int g = call->nargs / 2;
  const Expr *all = expand_vectors(m, target, call);
  if (all) return all;
  const Expr *const *a = call->arg;
  const Expr *const *b = call->arg + g;
  DType ta = a[0]->dtype;
  DType tb = b[0]->dtype;
  if (g == 8) return expand_eights(m, target, call);
  if (ta.bits == 8 && g == 4) {
    int lanes = call->dtype.lanes;
    bool plain = target_dot(target, dot_element(ta), dot_element(tb), lanes) != NULL;
    bool swapped = !plain && target_dot(target, dot_element(tb), dot_element(ta), lanes) != NULL;
    const Expr *word[3] = {plain || swapped ? word_of(m, g, swapped ? b : a) : NULL};
    word[1] = word[0] ? word_of(m, g, swapped ? a : b) : NULL;
    if (word[1]) {
      DType first = swapped ? tb : ta;
      DType second = swapped ? ta : tb;
      word[2] = expr_i32(m, (first.code == DT_INT) | (second.code == DT_INT) << 1);
      return expr_call(m, DT_NONE, IN_WORD_DOT, 3, word);
    }
  }
  const Expr *sum = ta.bits == 8 && g == 4 && ta.code != tb.code ? expand_mixed(m, target, call) : NULL;
  if (sum) return sum;
  for (int i = 0; i < g; i++) {
    const Expr *product = expr_mul(m, expr_cast(m, call->dtype, a[i]), expr_cast(m, call->dtype, b[i]));
    sum = sum ? expr_add(m, sum, product) : product;
  }
  return sum;
}

/* x * 2^-n, halves away from zero.  No sum here leaves the dtype, however large x is. */
static const Expr *expand_round_shift(Module *m, const Target *target, const Expr *call)
{
  DType t = call->dtype;
  if (t.code == DT_INT && t.bits == 32 && target_rounds(target, t.lanes)) return NULL;
  const Expr *x = call->arg[0];
  const Expr *one = expr_int(m, t, 1);
  const Expr *zero = expr_int(m, t, 0);
  /* A product over 2^31 is not the least int32, so it may be one less below zero: halves up are halves away from zero
   * then.  Without a shift the bit below the last is the sign's, shifts being taken modulo 32, and gives it back. */
  bool product = x->kind == E_CALL && x->u.intrin == IN_QMULSHIFT && expr_is_int(x->arg[2], 31);
  if (product && t.code == DT_INT && t.bits == 32 && target->device.kind == DEVICE_MICRO) {
    const Expr *sign = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){x, expr_int(m, t, 31)});
    const Expr *less = expr_add(m, x, sign);
    const Expr *below = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){less, expr_sub(m, call->arg[1], one)});
    const Expr *bit = expr_call(m, DT_NONE, IN_BITAND, 2, (const Expr *[]){below, one});
    return expr_add(m, expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){less, call->arg[1]}), bit);
  }
  const Expr *mask = expr_sub(m, expr_call(m, DT_NONE, IN_SHL, 2, (const Expr *[]){one, call->arg[1]}), one);
  const Expr *half = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){mask, one});
  if (t.code == DT_INT) /* -1 below zero */
    half = expr_sub(m, half, expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){x, expr_int(m, t, t.bits - 1)}));
  const Expr *rest = expr_call(m, DT_NONE, IN_BITAND, 2, (const Expr *[]){x, mask});
  const Expr *down = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){x, call->arg[1]});
  return expr_add(m, down, expr_select(m, expr_lt(m, half, rest), one, zero));
}

const Expr *lower_math(Module *m, const Target *target, const Expr *call)
{
  if (call->kind == E_CALL && call->u.intrin == IN_SHR_ROUND) return expand_round_shift(m, target, call);
  if (call->kind == E_CALL && call->u.intrin == IN_DOT) return expand_groups(m, target, call);
  if (call->kind == E_CALL && call->u.intrin == IN_BF16_DOT) return expand_dot(m, target, call);
  if (call->kind != E_CALL || call->u.intrin >= IN_ABS || call->nargs < 1) return NULL;
  DType t = call->arg[0]->dtype;
  if (t.code != DT_FLOAT || t.bits < 32) return NULL;
  bool old_x86 = target->arch == ARCH_X86_64 && !target_has(target, CPU_SSE42);
  Math k = {.m = m,
            .lanes = t.lanes,
            .fma = target->fma,
            .fast = target->fast_math,
            .rounds = !old_x86,
            .pairs = target->arch == ARCH_AARCH64,
            .scales = target->codegen == CODEGEN_LLVM && target_has_scale(target, t.lanes)};
  Intrin f = call->u.intrin;
  if (target->codegen == CODEGEN_CUDA)
    return f == IN_SIGMOID || (f == IN_RSQRT && t.bits == 64) ? expand_any(&k, t, f, call->arg[0]) : NULL;
  if (f == IN_ROUND && target_rounds_away(target)) return NULL;
  if (t.bits == 64) return expand_any(&k, t, f, call->arg[0]);
  return expand_float32(&k, f, call->arg[0], call->nargs > 1 ? call->arg[1] : NULL);
}

/* ---- rounding to integers -------------------------------------------------------------------------------- */

static bool is_number(const Expr *e, double *out)
{
  if (e->kind == E_BROADCAST) e = e->arg[0];
  if (e->kind != E_FLOAT) return false;
  *out = e->u.f;
  return true;
}

/* One limit of e by a number, as minimum and maximum are written: what is limited, or NULL. */
static const Expr *limit_of(const Expr *e, double *lo, double *hi)
{
  const Expr *side[2];
  bool min;
  double v;
  if (e->kind == E_MIN || e->kind == E_MAX) {
    side[0] = e->arg[0], side[1] = e->arg[1];
    min = e->kind == E_MIN;
  } else if (e->kind == E_SELECT && (e->arg[0]->kind == E_LT || e->arg[0]->kind == E_GT)) {
    const Expr *const *of = e->arg[0]->arg;
    side[0] = e->arg[1], side[1] = e->arg[2];
    bool straight = of[0] == side[0] && of[1] == side[1];
    if (!straight && (of[0] != side[1] || of[1] != side[0])) return NULL;
    min = (e->arg[0]->kind == E_LT) == straight;
  } else {
    return NULL;
  }
  int at = is_number(side[0], &v) ? 0 : 1;
  if (!is_number(side[at], &v)) return NULL;
  if (min && v < *hi) *hi = v;
  if (!min && v > *lo) *lo = v;
  return side[1 - at];
}

/* int(nearbyint(x)) for a product of an integer and a scale, within limits that leave it far inside 2^22: added to
 * 1.5 * 2^23 it is rounded to the unit, halves to even, and stands in the low bits of the sum. */
static const Expr *round_by_adding(Module *m, const Expr *e)
{
  static const double MAGIC = 12582912;
  const Expr *round = e->arg[0];
  if (dtype_elem(e->dtype).code != DT_INT || e->dtype.bits != 32 || round->kind != E_CALL ||
      round->u.intrin != IN_NEARBYINT || round->dtype.bits != 32)
    return NULL;
  double lo = -INFINITY;
  double hi = INFINITY;
  const Expr *x = round->arg[0];
  for (const Expr *next; (next = limit_of(x, &lo, &hi));) x = next;
  bool product = x->kind == E_MUL && ((x->arg[0]->kind == E_CAST && dtype_is_int(x->arg[0]->arg[0]->dtype)) ||
                                      (x->arg[1]->kind == E_CAST && dtype_is_int(x->arg[1]->arg[0]->dtype)));
  if (!product || !(lo > -4194304.0 && hi < 4194303.0)) return NULL;
  const Expr *sum = expr_add(m, round->arg[0], expr_float(m, round->dtype, MAGIC));
  const Expr *bits = expr_call(m, e->dtype, IN_REINTERPRET, 1, &sum);
  return expr_sub(m, bits, expr_int(m, e->dtype, MAGIC_BITS));
}

/* ---- bytes between rescalings -------------------------------------------------------------------------- */

static bool is_integer(const Expr *e, int64_t *out)
{
  if (e->kind == E_BROADCAST) e = e->arg[0];
  if (e->kind != E_INT) return false;
  *out = e->u.i;
  return true;
}

/* e as x + *more, more being all numbers that are added. */
static const Expr *without_numbers(const Expr *e, int64_t *more)
{
  int64_t v;
  for (*more = 0; e->kind == E_ADD || e->kind == E_SUB; e = e->arg[0]) {
    if (!is_integer(e->arg[1], &v)) break;
    *more += e->kind == E_ADD ? v : -v;
  }
  return e;
}

/* A number rounded by adding, within limits that the byte between holds: the byte is what it was before, and so are its
 * 32 bits.  NULL: it may be another. */
static const Expr *through_byte(const Expr *e)
{
  const Expr *byte = e->arg[0];
  if (e->dtype.bits != 32 || !dtype_is_int(e->dtype) || byte->kind != E_CAST || byte->dtype.bits != 8 ||
      !dtype_is_int(byte->dtype) || !dtype_eq(byte->arg[0]->dtype, e->dtype))
    return NULL;
  int64_t more;
  const Expr *bits = without_numbers(byte->arg[0], &more);
  if (bits->kind != E_CALL || bits->u.intrin != IN_REINTERPRET || bits->arg[0]->kind != E_ADD) return NULL;
  double magic;
  double lo = -INFINITY;
  double hi = INFINITY;
  if (!is_number(bits->arg[0]->arg[1], &magic) || magic != 12582912) return NULL;
  const Expr *x = bits->arg[0]->arg[0];
  for (const Expr *next; (next = limit_of(x, &lo, &hi));) x = next;
  more += MAGIC_BITS;
  int64_t least = byte->dtype.code == DT_INT ? INT8_MIN : 0;
  return nearbyint(lo) + (double)more >= (double)least && nearbyint(hi) + (double)more <= (double)(least + UINT8_MAX)
             ? byte->arg[0]
             : NULL;
}

/* A byte made of x >> n within limits, and a number added: from bit 16 on in 16 bits, of which a vector holds twice as
 * many, and which are narrowed with saturation. */
static const Expr *narrow_early(Module *m, const Target *target, const Expr *e)
{
  int64_t limit[2];
  int64_t more, n;
  if (target->codegen != CODEGEN_LLVM || target->arch != ARCH_AARCH64 || e->dtype.lanes < 8 || e->dtype.bits != 8 ||
      !dtype_is_int(e->dtype) || !dtype_eq(dtype_elem(e->arg[0]->dtype), DT_I32))
    return NULL;
  const Expr *x = without_numbers(e->arg[0], &more);
  const ExprKind kind[] = {x->kind == E_MIN ? E_MIN : E_MAX, x->kind == E_MIN ? E_MAX : E_MIN};
  for (int i = 0; i < 2; i++) {
    if ((ExprKind)x->kind != kind[i] || !is_integer(x->arg[1], &limit[i])) return NULL;
    if (limit[i] < -UINT8_MAX || limit[i] > UINT8_MAX) return NULL;
    x = x->arg[0];
  }
  if (x->kind != E_CALL || x->u.intrin != IN_SHR || !is_integer(x->arg[1], &n) || n < 16 || n > 31 ||
      more < -UINT8_MAX || more > UINT8_MAX)
    return NULL;
  DType half = dtype_lanes(DTYPE(DT_INT, 16), e->dtype.lanes);
  const Expr *high = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){x->arg[0], expr_int(m, x->dtype, 16)});
  const Expr *y = expr_cast(m, half, high);
  y = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){y, expr_int(m, half, n - 16)});
  for (int i = 1; i >= 0; i--) y = expr_binary(m, kind[i], y, expr_int(m, half, limit[i]));
  if (more) y = expr_add(m, y, expr_int(m, half, more));
  return expr_cast(m, e->dtype, y);
}

static const Expr *expand_node(Rewriter *rw, const Expr *e)
{
  if (e->kind == E_CAST) {
    const Expr *other = round_by_adding(rw->m, e);
    if (!other) other = through_byte(e);
    if (!other) other = narrow_early(rw->m, rw->env, e);
    return other ? other : e;
  }
  const Expr *r = e->kind == E_CALL ? lower_math(rw->m, rw->env, e) : NULL;
  return r ? r : e;
}

static const Expr *expand_held(void *env, const Expr *e) { return expr_has_kind(e, E_CALL) ? expr_rewrite(env, e) : e; }

void lower_pass_expand_math(Lower *lo)
{
  Rewriter rw = {.m = lo->m, .fn = expand_node, .env = (void *)(uintptr_t)lo->target, .arena = scratch(lo->ctx)};
  stmt_rewrite_exprs(lo->f->body, expand_held, &rw);
}
