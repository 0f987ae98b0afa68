/* math_trig.c: trigonometric functions and their inverses; see math.c. */
#include "lower/mathops.h"

#include <math.h>

static const double sin_poly[] = {-0x1.555546p-3, 0x1.110774p-7, -0x1.9951f2p-13};
static const double cos_poly[] = {0x1.55554ap-5, -0x1.6c0c28p-10, 0x1.99e80cp-16};
static const double asin_poly[] = {0x1.55554cp-3, 0x1.3338acp-4, 0x1.6ca75p-5,
                                   0x1.04d372p-5, 0x1.d50feep-7, 0x1.34d144p-5};
static const double atan_poly[] = {-0x1.55553ep-2, 0x1.9991e4p-3,  -0x1.242086p-3, 0x1.c08c4ep-4,  -0x1.58091cp-4,
                                   0x1.da2a0cp-5,  -0x1.fd7e04p-6, 0x1.6424ap-7,   -0x1.d35952p-10};

/* ---- reduction to [-pi/4, pi/4] ------------------------------------------------------------ */

typedef struct Reduced {
  const Expr *r; /* float64: a - q pi/2 */
  const Expr *q; /* int32, of which the last two bits matter */
} Reduced;

/* a < 2^19: pi/2 in three float64 parts whose first two products with q are exact. */
static Reduced reduce_small(const Math *k, const Expr *a)
{
  DType i64 = dtype_lanes(DT_I64, k->lanes);
  const Expr *x = math_cast(k, DT_F64, a);
  const Expr *magic = math_f64(k, 0x1.8p52);
  const Expr *t = MADD(MMUL(x, math_f64(k, 0x1.45f306dc9c883p-1)), magic);
  const Expr *n = MSUB(t, magic);
  const Expr *r = MSUB(x, MMUL(n, math_f64(k, 0x1.921fb544p+0)));
  r = MSUB(r, MMUL(n, math_f64(k, 0x1.0b4611a6p-34)));
  r = MSUB(r, MMUL(n, math_f64(k, 0x1.3198a2e037073p-69)));
  return (Reduced){r, math_cast(k, DT_I32, expr_call(k->m, i64, IN_REINTERPRET, 1, &t))};
}

static const uint32_t two_over_pi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                       0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

static DType u64_lanes(const Math *k) { return (DType){DT_UINT, 64, (uint16_t)k->lanes}; }
static const Expr *u64(const Math *k, uint64_t x) { return expr_int(k->m, u64_lanes(k), (int64_t)x); }

/* Word number `at` (0 … 4, a vector) plus j of two_over_pi. */
static const Expr *word(const Math *k, const Expr *at, int j)
{
  const Expr *w = u64(k, two_over_pi[j]);
  for (int i = 1; i <= 4; i++)
    w = math_select(k, expr_binary(k->m, E_GE, at, math_i32(k, i)), u64(k, two_over_pi[i + j > 7 ? 7 : i + j]), w);
  return w;
}

/* 32 bits of words a, b from bit s on. */
static const Expr *funnel(const Math *k, const Expr *a, const Expr *b, const Expr *s)
{
  const Expr *both = math_call2(k, IN_BITOR, math_call2(k, IN_SHL, a, u64(k, 32)), b);
  return math_call2(k, IN_SHR, math_call2(k, IN_SHL, both, s), u64(k, 32));
}

/* 2^19 <= a: with a = m * 2^e, m of 24 bits, the bits of 2/pi from number e - 1 on decide
 * a * 2/pi modulo 4; 96 of them give 62 bits of fraction. */
static Reduced reduce_large(const Math *k, const Expr *a)
{
  const Expr *i = math_bits(k, a);
  const Expr *mant = math_call2(k, IN_BITOR, math_call2(k, IN_BITAND, i, math_i32(k, 0x7fffff)), math_i32(k, 0x800000));
  const Expr *m = expr_cast(k->m, u64_lanes(k), mant);
  const Expr *pos =
      MSUB(math_call2(k, IN_SHR, i, math_i32(k, 23)), math_i32(k, 120)); /* e + 30: the list starts with 32 zeros */
  const Expr *at = math_call2(k, IN_SHR, pos, math_i32(k, 5));
  const Expr *s = expr_cast(k->m, u64_lanes(k), math_call2(k, IN_BITAND, pos, math_i32(k, 31)));
  const Expr *t[4];
  for (int j = 0; j < 4; j++) t[j] = word(k, at, j);
  const Expr *w0 = funnel(k, t[0], t[1], s);
  const Expr *w1 = funnel(k, t[1], t[2], s);
  const Expr *w2 = funnel(k, t[2], t[3], s);
  const Expr *p = MADD(math_call2(k, IN_SHL, MMUL(m, w0), u64(k, 32)), MMUL(m, w1));
  p = MADD(p, math_call2(k, IN_SHR, MMUL(m, w2), u64(k, 32)));
  const Expr *q = math_call2(k, IN_SHR, MADD(p, u64(k, 1ull << 61)), u64(k, 62));
  const Expr *rest = expr_cast(k->m, dtype_lanes(DT_I64, k->lanes), MSUB(p, math_call2(k, IN_SHL, q, u64(k, 62))));
  const Expr *r = MMUL(math_cast(k, DT_F64, rest), math_f64(k, 0x1.921fb54442d18p-62));
  return (Reduced){r, math_cast(k, DT_I32, q)};
}

/* The same as math_select, and what is not chosen is not computed. */
static const Expr *choose(const Math *k, const Expr *one, const Expr *a, const Expr *b)
{
  return expr_call(k->m, a->dtype, IN_IF_THEN_ELSE, 3, (const Expr *[]){one, a, b});
}

/* Large arguments are rare: a vector without one takes the short way. */
static Reduced reduce(const Math *k, const Expr *a)
{
  Reduced s = reduce_small(k, a);
  if (k->fast) return s;
  Reduced l = reduce_large(k, a);
  const Expr *small = MLT(a, math_f32(k, 0x1p19));
  if (k->lanes == 1) return (Reduced){choose(k, small, s.r, l.r), choose(k, small, s.q, l.q)};
  const Expr *large = math_cast(k, DT_I32, expr_not(k->m, small));
  const Expr *all_small = MEQ(expr_call(k->m, DT_I32, IN_VECTOR_SUM, 1, &large), expr_i32(k->m, 0));
  return (Reduced){choose(k, all_small, s.r, math_select(k, small, s.r, l.r)),
                   choose(k, all_small, s.q, math_select(k, small, s.q, l.q))};
}

/* On [-pi/4, pi/4], in the dtype of the argument; z is r*r. */
static const Expr *sin_part(const Math *k, const Expr *r, const Expr *z)
{
  return math_add(k, MMUL(r, z), math_poly(k, z, 3, sin_poly), r);
}

static const Expr *cos_part(const Math *k, const Expr *z)
{
  const Expr *half = expr_float(k->m, z->dtype, -0.5);
  const Expr *one = expr_float(k->m, z->dtype, 1);
  return math_add(k, MMUL(z, z), math_poly(k, z, 3, cos_poly), math_add(k, z, half, one));
}

static const Expr *flip(const Math *k, const Expr *x, const Expr *sign_bit)
{
  return math_float(k, math_call2(k, IN_BITXOR, math_bits(k, x), sign_bit));
}

static const Expr *bit_to_sign(const Math *k, const Expr *q)
{
  return math_call2(k, IN_SHL, math_call2(k, IN_BITAND, q, math_i32(k, 2)), math_i32(k, 30));
}
static const Expr *is_odd(const Math *k, const Expr *q)
{
  return MEQ(math_call2(k, IN_BITAND, q, math_i32(k, 1)), math_i32(k, 1));
}

/* NaN for infinities. */
static const Expr *where_finite(const Math *k, const Expr *x, const Expr *r)
{
  return math_select(k, MLT(math_abs(k, x), math_f32(k, INFINITY)), r, MSUB(x, x));
}

const Expr *math_sin(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, x);
  Reduced d = reduce(k, a);
  const Expr *r = math_cast(k, DT_F32, d.r);
  const Expr *z = MMUL(r, r);
  const Expr *s = math_select(k, is_odd(k, d.q), cos_part(k, z), sin_part(k, r, z));
  const Expr *sign =
      math_call2(k, IN_BITXOR, bit_to_sign(k, d.q), math_call2(k, IN_BITAND, math_bits(k, x), math_i32(k, INT32_MIN)));
  return where_finite(k, x, math_select(k, MLT(a, math_f32(k, 0x1p-13)), x, flip(k, s, sign)));
}

const Expr *math_cos(const Math *k, const Expr *x)
{
  Reduced d = reduce(k, math_abs(k, x));
  const Expr *r = math_cast(k, DT_F32, d.r);
  const Expr *z = MMUL(r, r);
  const Expr *c = math_select(k, is_odd(k, d.q), sin_part(k, r, z), cos_part(k, z));
  return where_finite(k, x, flip(k, c, bit_to_sign(k, MADD(d.q, math_i32(k, 1)))));
}

/* sin/cos, or -cos/sin in odd quadrants; in float64, since both errors add up. */
const Expr *math_tan(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, x);
  Reduced d = reduce(k, a);
  const Expr *z = MMUL(d.r, d.r);
  const Expr *s = sin_part(k, d.r, z);
  const Expr *c = cos_part(k, z);
  const Expr *odd = is_odd(k, d.q);
  const Expr *t =
      math_cast(k, DT_F32, MDIV(math_select(k, odd, c, s), math_select(k, odd, MSUB(math_f64(k, 0), s), c)));
  const Expr *sign = math_call2(k, IN_BITAND, math_bits(k, x), math_i32(k, INT32_MIN));
  return where_finite(k, x, math_select(k, MLT(a, math_f32(k, 0x1p-13)), x, flip(k, t, sign)));
}

/* ---- inverse functions ------------------------------------------------------------------------ */

/* pi/2 and its rest */
#define PIO2_HI 0x1.921fb6p+0
#define PIO2_LO -0x1.777a5cp-25

/* asin on [0, 1/2] is s + s^3 P(s^2); above, asin(a) = pi/2 - 2 asin(sqrt((1-a)/2)). */
static const Expr *asin_core(const Math *k, const Expr *a, const Expr **above)
{
  *above = MGT(a, math_f32(k, 0.5));
  const Expr *z = math_select(k, *above, MMUL(MSUB(math_f32(k, 1), a), math_f32(k, 0.5)), MMUL(a, a));
  const Expr *s = math_select(k, *above, math_call(k, IN_SQRT, z), a);
  return math_add(k, MMUL(s, z), math_poly(k, z, 6, asin_poly), s);
}

const Expr *math_asin(const Math *k, const Expr *x)
{
  const Expr *above;
  const Expr *p = asin_core(k, math_abs(k, x), &above);
  const Expr *far = MADD(MSUB(math_f32(k, PIO2_HI), MADD(p, p)), math_f32(k, PIO2_LO));
  return math_sign_of(k, math_select(k, above, far, p), x);
}

const Expr *math_acos(const Math *k, const Expr *x)
{
  const Expr *above;
  const Expr *p = asin_core(k, math_abs(k, x), &above);
  const Expr *below = MLT(x, math_f32(k, 0));
  const Expr *twice = MADD(p, p);
  const Expr *far = math_select(k, below, MSUB(math_f32(k, 2 * PIO2_HI), MSUB(twice, math_f32(k, 2 * PIO2_LO))), twice);
  const Expr *near = MSUB(math_f32(k, PIO2_HI), MSUB(math_sign_of(k, p, x), math_f32(k, PIO2_LO)));
  return math_select(k, above, far, near);
}

static const Expr *atan_part(const Math *k, const Expr *t)
{
  const Expr *z = MMUL(t, t);
  return math_add(k, MMUL(t, z), math_poly(k, z, 9, atan_poly), t);
}

const Expr *math_atan(const Math *k, const Expr *x)
{
  const Expr *a = math_abs(k, x);
  const Expr *one = math_f32(k, 1);
  const Expr *steep = MGT(a, one);
  const Expr *r = atan_part(k, MDIV(math_select(k, steep, one, a), math_select(k, steep, a, one)));
  const Expr *far = MSUB(math_f32(k, PIO2_HI), MSUB(r, math_f32(k, PIO2_LO)));
  return math_sign_of(k, math_select(k, steep, far, r), x);
}

const Expr *math_atan2(const Math *k, const Expr *y, const Expr *x)
{
  const Expr *ax = math_abs(k, x);
  const Expr *ay = math_abs(k, y);
  const Expr *inf = math_f32(k, INFINITY);
  const Expr *zero = math_f32(k, 0);
  const Expr *lo = expr_min(k->m, ax, ay);
  const Expr *hi = expr_max(k->m, ax, ay);
  const Expr *t = math_select(k, MEQ(lo, inf), math_f32(k, 1), math_select(k, MEQ(hi, zero), zero, MDIV(lo, hi)));
  const Expr *r = atan_part(k, t);
  r = math_select(k, MGT(ay, ax), MSUB(math_f32(k, PIO2_HI), MSUB(r, math_f32(k, PIO2_LO))), r);
  r = math_select(k, MLT(math_bits(k, x), math_i32(k, 0)),
                  MSUB(math_f32(k, 2 * PIO2_HI), MSUB(r, math_f32(k, 2 * PIO2_LO))), r);
  return math_select(k, MAND(MEQ(x, x), MEQ(y, y)), math_sign_of(k, r, y), MADD(x, y));
}
