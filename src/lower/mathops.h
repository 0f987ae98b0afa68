/* mathops.h: writing arithmetic shortly, for math*.c alone.
 *
 * All values have the same number of lanes.  float32 unless the name says f64. */
#ifndef LATHE_LOWER_MATHOPS_H
#define LATHE_LOWER_MATHOPS_H

#include "lower/internal.h"

typedef struct Math {
  Module *m;
  int lanes;
  bool fma;    /* the target has fused multiply-add */
  bool fast;   /* -fast-math */
  bool rounds; /* floor, trunc and the like are instructions */
  bool pairs;  /* a multiply-add writes over its addend: polynomials in pairs */
  bool scales; /* x * 2^n is an instruction */
} Math;

/* math.c */
const Expr *math_f32(const Math *, double);                                      /* float32 constant */
const Expr *math_f64(const Math *, double);                                      /* float64 constant */
const Expr *math_i32(const Math *, int64_t);                                     /* int32 constant */
const Expr *math_add(const Math *, const Expr *a, const Expr *b, const Expr *c); /* a*b + c, fused if that is free */
const Expr *math_poly(const Math *, const Expr *x, int n, const double *coeff);  /* lowest power first; x's dtype */
const Expr *math_call(const Math *, Intrin, const Expr *);
const Expr *math_call2(const Math *, Intrin, const Expr *, const Expr *);
const Expr *math_bits(const Math *, const Expr *f);  /* float32 -> int32 */
const Expr *math_float(const Math *, const Expr *i); /* int32 -> float32, the same bits */
const Expr *math_abs(const Math *, const Expr *);
const Expr *math_sign_of(const Math *, const Expr *magnitude, const Expr *sign);
const Expr *math_select(const Math *, const Expr *c, const Expr *a, const Expr *b);
const Expr *math_trunc(const Math *, const Expr *);
const Expr *math_cast(const Math *, DType, const Expr *);

#define MADD(a, b) expr_binary(k->m, E_ADD, a, b)
#define MSUB(a, b) expr_binary(k->m, E_SUB, a, b)
#define MMUL(a, b) expr_binary(k->m, E_MUL, a, b)
#define MDIV(a, b) expr_binary(k->m, E_DIV, a, b)
#define MLT(a, b) expr_binary(k->m, E_LT, a, b)
#define MGT(a, b) expr_binary(k->m, E_GT, a, b)
#define MEQ(a, b) expr_binary(k->m, E_EQ, a, b)
#define MAND(a, b) expr_binary(k->m, E_AND, a, b)
#define MOR(a, b) expr_binary(k->m, E_OR, a, b)

/* math.c: exponentials; e^x * 2^scale (scale 0 or -1) */
const Expr *math_exp_scaled(const Math *, const Expr *x, int scale);
/* math_log.c */
const Expr *math_log(const Math *, const Expr *x);
const Expr *math_log2(const Math *, const Expr *x);
const Expr *math_log10(const Math *, const Expr *x);
const Expr *math_log1p(const Math *, const Expr *x);
const Expr *math_asinh(const Math *, const Expr *x);
const Expr *math_acosh(const Math *, const Expr *x);
const Expr *math_atanh(const Math *, const Expr *x);
const Expr *math_pow(const Math *, const Expr *x, const Expr *y);
/* math_trig.c */
const Expr *math_sin(const Math *, const Expr *x);
const Expr *math_cos(const Math *, const Expr *x);
const Expr *math_tan(const Math *, const Expr *x);
const Expr *math_asin(const Math *, const Expr *x);
const Expr *math_acos(const Math *, const Expr *x);
const Expr *math_atan(const Math *, const Expr *x);
const Expr *math_atan2(const Math *, const Expr *y, const Expr *x);

#endif
