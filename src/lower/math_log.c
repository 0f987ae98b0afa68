/* math_log.c: logarithms, their inverse hyperbolic relatives, and pow; see math.c. */
#include "lower/mathops.h"

#include <math.h>

/* (log(1+f) - f + f^2/2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1] */
static const double log_poly[] = {0x1.555548p-2,  -0x1.000006p-2, 0x1.99a476p-3,  -0x1.555c44p-3, 0x1.233ba2p-3,
                                  -0x1.fc28cap-4, 0x1.e6c00ap-4,  -0x1.de01d8p-4, 0x1.147334p-4};
/* log2(1+f) / f and log10(1+f) / f there */
static const double log2_poly[] = {0x1.715476p+0,  -0x1.715476p-1, 0x1.ec719ep-2,  -0x1.7159d2p-2, 0x1.27470ep-2,
                                   -0x1.ea5756p-3, 0x1.aa9c6cp-3,  -0x1.92a180p-3, 0x1.535f1ap-3,  -0x1.263d7ep-4};
static const double log10_poly[] = {0x1.bcb7b2p-2,  -0x1.bcb7b2p-3, 0x1.2878d8p-3,  -0x1.bcb6b8p-4, 0x1.64645cp-4,
                                    -0x1.28b47ap-4, 0x1.e71caap-5,  -0x1.b29b26p-5, 0x1.0eb6d0p-4,  -0x1.c0b736p-5};

enum { SQRT_HALF_BITS = 0x3f3504f3 };

/* x > 0 as (1 + f) * 2^e with 1 + f in [sqrt(1/2), sqrt(2)). */
static const Expr *split_power(const Math *k, const Expr *x, const Expr **e)
{
  const Expr *tiny = MLT(x, math_f32(k, 0x1p-126));
  const Expr *z = k->fast ? x : math_select(k, tiny, MMUL(x, math_f32(k, 0x1p23)), x);
  const Expr *t = MSUB(math_bits(k, z), math_i32(k, SQRT_HALF_BITS));
  const Expr *ei = math_call2(k, IN_SHR, t, math_i32(k, 23));
  const Expr *m = math_float(k, MADD(math_call2(k, IN_BITAND, t, math_i32(k, 0x7fffff)), math_i32(k, SQRT_HALF_BITS)));
  *e = math_cast(k, DT_F32, ei);
  if (!k->fast) *e = MSUB(*e, math_select(k, tiny, math_f32(k, 23), math_f32(k, 0)));
  return MSUB(m, math_f32(k, 1));
}

/* What logarithms give outside (0, inf). */
static const Expr *at_the_ends(const Math *k, const Expr *x, const Expr *r)
{
  const Expr *zero = math_f32(k, 0);
  const Expr *inf = math_f32(k, INFINITY);
  const Expr *other =
      math_select(k, MEQ(x, zero), math_f32(k, -INFINITY), math_select(k, MLT(x, zero), math_f32(k, NAN), x));
  return math_select(k, MAND(MGT(x, zero), MLT(x, inf)), r, other);
}

/* log(1 + f) + e ln 2 + c, small terms first. */
static const Expr *log_sum(const Math *k, const Expr *f, const Expr *e, const Expr *c)
{
  const Expr *z = MMUL(f, f);
  const Expr *half = MMUL(math_f32(k, 0.5), z);
  const Expr *low = MMUL(e, math_f32(k, -0x1.bd0106p-13));
  if (c) low = MADD(low, c);
  const Expr *tail = math_add(k, MMUL(f, z), math_poly(k, f, 9, log_poly), low);
  return math_add(k, e, math_f32(k, 0x1.63p-1), MSUB(f, MSUB(half, tail)));
}

const Expr *math_log(const Math *k, const Expr *x)
{
  const Expr *e;
  const Expr *f = split_power(k, x, &e);
  return at_the_ends(k, x, log_sum(k, f, e, NULL));
}

const Expr *math_log2(const Math *k, const Expr *x)
{
  const Expr *e;
  const Expr *f = split_power(k, x, &e);
  return at_the_ends(k, x, math_add(k, f, math_poly(k, f, 10, log2_poly), e));
}

const Expr *math_log10(const Math *k, const Expr *x)
{
  const Expr *e;
  const Expr *f = split_power(k, x, &e);
  const Expr *low = math_add(k, f, math_poly(k, f, 10, log10_poly), MMUL(e, math_f32(k, 0x1.04d428p-12)));
  return at_the_ends(k, x, math_add(k, e, math_f32(k, 0x1.34p-2), low));
}

/* What 1 + x lost in rounding is added back, divided by 1 + x; where 1 + x needs no
 * power of two, f is x itself. */
const Expr *math_log1p(const Math *k, const Expr *x)
{
  const Expr *one = math_f32(k, 1);
  const Expr *u = MADD(one, x);
  const Expr *e;
  const Expr *f = split_power(k, u, &e);
  const Expr *lost = math_select(k, MGT(x, one), MSUB(one, MSUB(u, x)), MSUB(x, MSUB(u, one)));
  const Expr *near = MEQ(e, math_f32(k, 0));
  const Expr *c = math_select(k, near, math_f32(k, 0), MDIV(lost, u));
  const Expr *r = log_sum(k, math_select(k, near, x, f), e, c);
  r = at_the_ends(k, u, r);
  return math_select(k, MLT(math_abs(k, x), math_f32(k, 0x1p-24)), x, r);
}

/* ---- inverse hyperbolic functions -------------------------------------------------------- */

/* From 2^30 on, asinh and acosh are log(2a): log1p(a) + ln 2. */
static const Expr *log1p_doubled(const Math *k, const Expr *a, const Expr *z)
{
  const Expr *big = MGT(a, math_f32(k, 0x1p30));
  const Expr *l = math_log1p(k, math_select(k, big, a, z));
  return math_select(k, big, MADD(l, math_f32(k, 0x1.62e430p-1)), l);
}

const Expr *math_asinh(const Math *k, const Expr *x)
{
  const Expr *one = math_f32(k, 1);
  const Expr *a = math_abs(k, x);
  const Expr *z = MMUL(a, a);
  const Expr *arg = MADD(a, MDIV(z, MADD(one, math_call(k, IN_SQRT, MADD(z, one)))));
  return math_sign_of(k, log1p_doubled(k, a, arg), x);
}

const Expr *math_acosh(const Math *k, const Expr *x)
{
  const Expr *t = MSUB(x, math_f32(k, 1));
  const Expr *s = math_call(k, IN_SQRT, math_add(k, t, t, MADD(t, t)));
  const Expr *r = log1p_doubled(k, x, MADD(t, s));
  return math_select(k, MLT(x, math_f32(k, 1)), math_f32(k, NAN), r);
}

const Expr *math_atanh(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, x);
  const Expr *z = MDIV(MADD(a, a), MSUB(math_f32(k, 1), a));
  return math_sign_of(k, MMUL(math_f32(k, 0.5), math_log1p(k, z)), x);
}

/* ---- pow ------------------------------------------------------------------------------------ */

/* 2/ln2 * atanh(s)/s over s^2, s = (m-1)/(m+1); 2^r on [-1/2, 1/2].  float64. */
static const double pow_log_poly[] = {0x1.71547652b82ffp+1, 0x1.ec709dc39ce5ap-1, 0x1.2776c5165049cp-1,
                                      0x1.a61756d06af34p-2, 0x1.484f96e9a5685p-2, 0x1.0bba20b210b36p-2,
                                      0x1.f1506061e97bfp-3};
static const double pow_exp_poly[] = {0x1.ffffffffff78fp-1,  0x1.62e42fef85da1p-1,  0x1.ebfbdff933a71p-3,
                                      0x1.c6b08dd505a1ap-5,  0x1.3b2ab5c353e5ep-7,  0x1.5d87477f46a1ep-10,
                                      0x1.430ace687f03ap-13, 0x1.00db4eb3067a3p-16, 0x1.61af37d2dadc8p-20};

/* log2 of a >= 0 in float64; -inf at 0, inf at inf. */
static const Expr *pow_log2(const Math *k, const Expr *a)
{
  const Expr *e;
  const Expr *f = math_cast(k, DT_F64, split_power(k, a, &e));
  const Expr *s = MDIV(f, MADD(f, math_f64(k, 2)));
  const Expr *r = MADD(math_cast(k, DT_F64, e), MMUL(s, math_poly(k, MMUL(s, s), 7, pow_log_poly)));
  r = math_select(k, MEQ(a, math_f32(k, 0)), math_f64(k, -INFINITY), r);
  return math_select(k, MEQ(a, math_f32(k, INFINITY)), math_f64(k, INFINITY), r);
}

/* 2^t in float32, t float64. */
static const Expr *pow_exp2(const Math *k, const Expr *t)
{
  DType i64 = dtype_lanes(DT_I64, k->lanes);
  const Expr *z = expr_min(k->m, expr_max(k->m, t, math_f64(k, -400)), math_f64(k, 400));
  const Expr *magic = math_f64(k, 0x1.8p52);
  const Expr *n = MADD(z, magic);
  const Expr *r = MSUB(z, MSUB(n, magic));
  const Expr *bits = expr_call(k->m, i64, IN_REINTERPRET, 1, &n);
  const Expr *shifted = math_call2(k, IN_SHL, MADD(bits, expr_int(k->m, i64, 1023)), expr_int(k->m, i64, 52));
  const Expr *scale = expr_call(k->m, dtype_lanes(DT_F64, k->lanes), IN_REINTERPRET, 1, &shifted);
  return math_cast(k, DT_F32, MMUL(math_poly(k, r, 9, pow_exp_poly), scale));
}

const Expr *math_pow(const Math *k, const Expr *x, const Expr *y)
{
  const Expr *one = math_f32(k, 1);
  const Expr *zero = math_f32(k, 0);
  const Expr *a = math_abs(k, x);
  const Expr *h = MMUL(y, math_f32(k, 0.5));
  const Expr *whole = MEQ(math_trunc(k, y), y);
  const Expr *odd = MAND(whole, expr_binary(k->m, E_NE, math_trunc(k, h), h));
  const Expr *t = MMUL(math_cast(k, DT_F64, y), pow_log2(k, a));
  const Expr *r = math_select(k, MEQ(t, t), pow_exp2(k, t), math_f32(k, NAN));
  r = math_select(k, MEQ(a, one), one, r); /* also for an infinite y */
  r = math_select(k, odd, math_sign_of(k, r, x), r);
  const Expr *no_root = MAND(MAND(MLT(x, zero), MGT(x, math_f32(k, -INFINITY))), expr_not(k->m, whole));
  r = math_select(k, no_root, math_f32(k, NAN), r);
  r = math_select(k, MAND(MEQ(x, x), MEQ(y, y)), r, MADD(x, y));
  return math_select(k, MOR(MEQ(x, one), MEQ(y, zero)), one, r);
}
