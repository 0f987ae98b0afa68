/* test_eval.c: the meaning of expressions, against values worked out by hand. */
#include "expr/test_parse.h"

#include <math.h>

static const DType f16 = {DT_FLOAT, 16, 1}, bf16 = {DT_BFLOAT, 16, 1};
static const DType e4m3 = {DT_E4M3FN, 8, 1}, e5m2 = {DT_E5M2, 8, 1}, e4m3z = {DT_E4M3FNUZ, 8, 1},
                   e5m2z = {DT_E5M2FNUZ, 8, 1};

static World w;
static EvalEnv env;

static int begin(void **state)
{
  (void)state;
  w = world_new("");
  env = (EvalEnv){.m = w.m, .arena = w.m->arena};
  return 0;
}
static int end(void **state)
{
  (void)state;
  world_free(&w);
  return 0;
}

static const Expr *num(DType t, double v) { return expr_const(w.m, t, v); }
static const Expr *integer(DType t, int64_t v) { return expr_int(w.m, t, v); }
static Value eval(const Expr *e) { return expr_eval(&env, e, 0); }
static Value op(ExprKind k, const Expr *a, const Expr *b) { return eval(expr_binary(w.m, k, a, b)); }
static Value call(Intrin in, int n, const Expr *const *arg) { return eval(expr_call(w.m, DT_NONE, in, n, arg)); }
#define CALL(in, ...) \
  call(in, (int)(sizeof((const Expr *[]){__VA_ARGS__}) / sizeof(Expr *)), (const Expr *[]){__VA_ARGS__})

static uint32_t bits_of(Value v)
{
  uint32_t bits = 0;
  value_store(v, &bits);
  return bits;
}

/* ---- rounding ------------------------------------------------------------------------- */

static void narrow_floats_round_to_even(void **state)
{
  (void)state;
  static const struct {
    DType t;
    double v;
    uint32_t bits;
    /* clang-format off */
  } cases[] = {
      {{DT_FLOAT, 16, 1}, 1, 0x3C00},
      {{DT_FLOAT, 16, 1}, 65504, 0x7BFF},
      {{DT_FLOAT, 16, 1}, 65519.9, 0x7BFF},
      {{DT_FLOAT, 16, 1}, 65520, 0x7C00},
      {{DT_FLOAT, 16, 1}, 0x1p-24, 0x0001},
      {{DT_FLOAT, 16, 1}, 0x1p-25, 0x0000},
      {{DT_FLOAT, 16, 1}, 0x1.8p-25, 0x0001},
      {{DT_FLOAT, 16, 1}, 1 + 0x1p-11, 0x3C00},
      {{DT_FLOAT, 16, 1}, 1 + 0x3p-11, 0x3C02},
      {{DT_FLOAT, 16, 1}, -0.0, 0x8000},
      {{DT_FLOAT, 16, 1}, 0.1, 0x2E66},
      {{DT_BFLOAT, 16, 1}, 1, 0x3F80},
      {{DT_BFLOAT, 16, 1}, 1 + 0x1p-8, 0x3F80},
      {{DT_BFLOAT, 16, 1}, 1 + 0x3p-8, 0x3F82},
      {{DT_BFLOAT, 16, 1}, 3.14159265, 0x4049},
      {{DT_BFLOAT, 16, 1}, 0.1, 0x3DCD},
      {{DT_BFLOAT, 16, 1}, 3.4028234e38, 0x7F80},
      {{DT_E4M3FN, 8, 1}, 1, 0x38},
      {{DT_E4M3FN, 8, 1}, 448, 0x7E},
      {{DT_E4M3FN, 8, 1}, 464, 0x7E},
      {{DT_E4M3FN, 8, 1}, 465, 0x7F},
      {{DT_E4M3FN, 8, 1}, 0x1p-9, 0x01},
      {{DT_E4M3FN, 8, 1}, 0x1p-10, 0x00},
      {{DT_E4M3FN, 8, 1}, 1.0625, 0x38},
      {{DT_E4M3FN, 8, 1}, 1.1875, 0x3A},
      {{DT_E4M3FN, 8, 1}, -0.0, 0x80},
      {{DT_E5M2, 8, 1}, 1, 0x3C},
      {{DT_E5M2, 8, 1}, 57344, 0x7B},
      {{DT_E5M2, 8, 1}, 61440, 0x7C},
      {{DT_E5M2, 8, 1}, 0x1p-16, 0x01},
      {{DT_E5M2, 8, 1}, 61439, 0x7B},
      {{DT_E4M3FNUZ, 8, 1}, 1, 0x40},
      {{DT_E4M3FNUZ, 8, 1}, 240, 0x7F},
      {{DT_E4M3FNUZ, 8, 1}, 247, 0x7F},
      {{DT_E4M3FNUZ, 8, 1}, 248, 0x80},
      {{DT_E4M3FNUZ, 8, 1}, -0.0, 0x00},
      {{DT_E4M3FNUZ, 8, 1}, 0x1p-10, 0x01},
      {{DT_E5M2FNUZ, 8, 1}, 1, 0x40},
      {{DT_E5M2FNUZ, 8, 1}, 57344, 0x7F},
      {{DT_E5M2FNUZ, 8, 1}, 0x1p-17, 0x01},
      {{DT_E5M2FNUZ, 8, 1}, INFINITY, 0x80},
      {{DT_E8M0FNU, 8, 1}, 1, 0x7F},
      {{DT_E8M0FNU, 8, 1}, 1.4375, 0x7F},
      {{DT_E8M0FNU, 8, 1}, 1.5, 0x80},
      {{DT_E8M0FNU, 8, 1}, 3, 0x81},
      {{DT_E8M0FNU, 8, 1}, 0x1p-127, 0x00},
      {{DT_E8M0FNU, 8, 1}, 0x1p-149, 0x00},
      {{DT_E8M0FNU, 8, 1}, 0x1.8p-127, 0x01},
      {{DT_E8M0FNU, 8, 1}, 0x1p127, 0xFE},
      {{DT_E8M0FNU, 8, 1}, 0x1.8p127, 0xFF},
      {{DT_E8M0FNU, 8, 1}, 0, 0x00},
      {{DT_E8M0FNU, 8, 1}, -0.0, 0x00},
      {{DT_E8M0FNU, 8, 1}, -2, 0xFF},
      {{DT_E8M0FNU, 8, 1}, INFINITY, 0xFF},
      {{DT_E2M1FN, 4, 1}, 1, 0x2},
      {{DT_E2M1FN, 4, 1}, 0.25, 0x0},
      {{DT_E2M1FN, 4, 1}, 0.75, 0x2},
      {{DT_E2M1FN, 4, 1}, -3.5, 0xE},
      {{DT_E2M1FN, 4, 1}, 5, 0x6},
      {{DT_E2M1FN, 4, 1}, 100, 0x7},
      {{DT_E2M1FN, 4, 1}, -INFINITY, 0xF},
      {{DT_E2M1FN, 4, 1}, NAN, 0x0},
      {{DT_E2M1FN, 4, 1}, -0.0, 0x8},
  };
  /* clang-format on */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t got = bits_of(eval(expr_cast(w.m, cases[i].t, expr_float(w.m, DT_F64, cases[i].v))));
    if (got != cases[i].bits)
      fail_msg("%s(%a): got 0x%x, want 0x%x", dtype_name(w.m->arena, cases[i].t), cases[i].v, got, cases[i].bits);
  }
}

static void every_pattern_survives(void **state)
{
  (void)state;
  static const DType kinds[] = {{DT_FLOAT, 16, 1},   {DT_BFLOAT, 16, 1},  {DT_E4M3FN, 8, 1},  {DT_E5M2, 8, 1},
                                {DT_E4M3FNUZ, 8, 1}, {DT_E5M2FNUZ, 8, 1}, {DT_E8M0FNU, 8, 1}, {DT_E2M1FN, 4, 1}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (uint32_t bits = 0; bits < 1u << kinds[k].bits; bits++) {
      Value v = value_load(kinds[k], &bits);
      if (isnan(v.f)) continue;
      assert_int_equal(bits_of(v), bits);
      assert_true(float_round(kinds[k], v.f) == v.f);
    }
}

static void arithmetic_rounds_once(void **state)
{
  (void)state;
  assert_int_equal(bits_of(op(E_ADD, num(f16, 2048), num(f16, 1))), 0x6800); /* 2049 ties to 2048 */
  assert_int_equal(bits_of(op(E_ADD, num(f16, 2048), num(f16, 3))), 0x6802); /* 2051 ties to 2052 */
  assert_int_equal(bits_of(op(E_MUL, num(bf16, 1.0078125), num(bf16, 1.0078125))), 0x3F82);
  assert_true(isinf(op(E_MUL, num(f16, 300), num(f16, 300)).f));
  assert_true(isnan(op(E_MUL, num(e4m3, 300), num(e4m3, 300)).f));
  assert_true(op(E_ADD, num(DT_F32, 16777216), num(DT_F32, 1)).f == 16777216);
  assert_true(op(E_DIV, num(DT_F32, 1), num(DT_F32, 3)).f == (double)(1.0f / 3.0f));
  assert_true(op(E_MOD, num(DT_F32, -7.5), num(DT_F32, 2)).f == -1.5);
  assert_true(op(E_ADD, num(e5m2, 1), num(e5m2, 0.25)).f == 1.25);
  assert_true(op(E_ADD, num(e4m3z, 1), num(e4m3z, 0.0625)).f == 1);
  assert_true(isnan(op(E_MUL, num(e5m2z, 57344), num(e5m2z, 2)).f));
  /* fused: 1 + 2^-11 + 2^-24 minus (1 + 2^-11) leaves 2^-24 only when rounded once */
  double a = 1 + 0x1p-12;
  double c = -(1 + 0x1p-11);
  assert_true(CALL(IN_FMA, num(DT_F32, a), num(DT_F32, a), num(DT_F32, c)).f == 0x1p-24);
  assert_true(op(E_ADD, num(DT_F32, op(E_MUL, num(DT_F32, a), num(DT_F32, a)).f), num(DT_F32, c)).f == 0);
  assert_int_equal(bits_of(CALL(IN_FMA, num(f16, 1 + 0x1p-10), num(f16, 1 + 0x1p-10), num(f16, 0x1p-11))), 0x3C03);
}

static void zeros_and_nans(void **state)
{
  (void)state;
  const Expr *nan = num(DT_F32, NAN);
  const Expr *one = num(DT_F32, 1);
  const Expr *zero = num(DT_F32, 0);
  const Expr *minus = num(DT_F32, -0.0);
  assert_true(op(E_MIN, nan, one).f == 1 && op(E_MAX, one, nan).f == 1);
  assert_true(isnan(op(E_MIN, nan, nan).f));
  assert_int_equal(op(E_EQ, nan, nan).i, 0);
  assert_int_equal(op(E_NE, nan, nan).i, 1);
  assert_int_equal(op(E_LT, nan, one).i + op(E_LE, nan, one).i + op(E_GT, nan, one).i + op(E_GE, nan, one).i, 0);
  assert_int_equal(op(E_EQ, zero, minus).i, 1);
  assert_true(signbit(op(E_ADD, minus, minus).f) && !signbit(op(E_ADD, minus, zero).f));
  assert_true(signbit(op(E_SUB, minus, zero).f));
  assert_true(signbit(op(E_MUL, minus, one).f));
  assert_true(isinf(op(E_DIV, one, zero).f) && op(E_DIV, one, minus).f < 0);
}

/* ---- integers ----------------------------------------------------------------------------- */

static void integers_wrap_and_floor(void **state)
{
  (void)state;
  assert_int_equal(op(E_ADD, integer(DT_I8, 127), integer(DT_I8, 1)).i, -128);
  assert_int_equal(op(E_SUB, integer(DT_U8, 0), integer(DT_U8, 1)).i, 255);
  assert_int_equal(op(E_MUL, integer(DT_I32, 65536), integer(DT_I32, 65536)).i, 0);
  assert_int_equal(op(E_ADD, integer(DTYPE(DT_INT, 4), 7), integer(DTYPE(DT_INT, 4), 1)).i, -8);
  assert_int_equal(op(E_FLOORDIV, integer(DT_I32, -7), integer(DT_I32, 2)).i, -4);
  assert_int_equal(op(E_FLOORMOD, integer(DT_I32, -7), integer(DT_I32, 2)).i, 1);
  assert_int_equal(op(E_FLOORMOD, integer(DT_I32, 7), integer(DT_I32, -2)).i, -1);
  assert_int_equal(op(E_DIV, integer(DT_I32, -7), integer(DT_I32, 2)).i, -3);
  assert_int_equal(op(E_MOD, integer(DT_I32, -7), integer(DT_I32, 2)).i, -1);
  assert_int_equal(op(E_DIV, integer(DT_I8, -128), integer(DT_I8, -1)).i, -128);
  assert_int_equal(op(E_DIV, integer(DT_I64, INT64_MIN), integer(DT_I64, -1)).i, INT64_MIN);
  const Expr *big = integer(DTYPE(DT_UINT, 64), -1);
  assert_int_equal(op(E_DIV, big, integer(DTYPE(DT_UINT, 64), 2)).i, INT64_MAX);
  assert_int_equal(op(E_GT, big, integer(DTYPE(DT_UINT, 64), 1)).i, 1);
  assert_int_equal(op(E_MAX, big, integer(DTYPE(DT_UINT, 64), 1)).i, -1);
}

static void casts_saturate_wrap_and_test(void **state)
{
  (void)state;
  static const struct {
    DType to;
    double v;
    int64_t i;
    /* clang-format off */
  } cases[] = {
      {{DT_INT, 8, 1}, 300.7, 127},       {{DT_INT, 8, 1}, -300, -128},
      {{DT_UINT, 8, 1}, -1.5, 0},         {{DT_UINT, 8, 1}, 255.9, 255},
      {{DT_INT, 32, 1}, NAN, 0},          {{DT_INT, 32, 1}, INFINITY, INT32_MAX},
      {{DT_INT, 64, 1}, 1e20, INT64_MAX}, {{DT_INT, 64, 1}, -1e20, INT64_MIN},
      {{DT_UINT, 64, 1}, 1e20, -1},       {{DT_INT, 32, 1}, -2.9, -2},
      {{DT_UINT, 1, 1}, 0.5, 1},          {{DT_UINT, 1, 1}, -0.0, 0},
      {{DT_UINT, 1, 1}, NAN, 1},          {{DT_INT, 4, 1}, 9, 7},
  };
  /* clang-format on */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(eval(expr_cast(w.m, cases[i].to, expr_float(w.m, DT_F64, cases[i].v))).i, cases[i].i);
  assert_int_equal(eval(expr_cast(w.m, DT_I8, integer(DT_I32, 300))).i, 44);
  assert_int_equal(eval(expr_cast(w.m, DT_U8, integer(DT_I32, -1))).i, 255);
  assert_int_equal(eval(expr_cast(w.m, DT_BOOL, integer(DT_I32, 256))).i, 1);
  assert_true(eval(expr_cast(w.m, DT_F32, integer(DTYPE(DT_UINT, 64), -1))).f == 18446744073709551616.0);
  assert_true(eval(expr_cast(w.m, DT_F32, integer(DT_I32, 16777217))).f == 16777216);
}

/* ---- intrinsics ------------------------------------------------------------------------------ */

static void float_intrinsics(void **state)
{
  (void)state;
  assert_true(CALL(IN_ROUND, num(DT_F32, 2.5)).f == 3 && CALL(IN_ROUND, num(DT_F32, -2.5)).f == -3);
  assert_true(CALL(IN_NEARBYINT, num(DT_F32, 2.5)).f == 2 && CALL(IN_NEARBYINT, num(DT_F32, 3.5)).f == 4);
  assert_true(signbit(CALL(IN_NEARBYINT, num(DT_F32, -0.5)).f) && CALL(IN_NEARBYINT, num(DT_F32, -0.6)).f == -1);
  assert_true(CALL(IN_FLOOR, num(DT_F32, -0.5)).f == -1 && signbit(CALL(IN_CEIL, num(DT_F32, -0.5)).f));
  assert_true(CALL(IN_TRUNC, num(DT_F32, -1.5)).f == -1);
  assert_true(CALL(IN_COPYSIGN, num(DT_F32, 3), num(DT_F32, -0.0)).f == -3);
  assert_true(CALL(IN_NEXTAFTER, num(f16, 1), num(f16, 2)).f == 1 + 0x1p-10);
  assert_true(CALL(IN_NEXTAFTER, num(f16, 0), num(f16, -1)).f == -0x1p-24);
  assert_true(CALL(IN_NEXTAFTER, num(f16, 0x1p-24), num(f16, -1)).f == 0);
  assert_true(CALL(IN_NEXTAFTER, num(DT_F32, 1), num(DT_F32, 0)).f == 1 - 0x1p-24);
  assert_true(CALL(IN_LDEXP, num(DT_F32, 1.5), integer(DT_I32, 3)).f == 12);
  assert_true(isinf(CALL(IN_LDEXP, num(DT_F32, 1), integer(DT_I32, 100000)).f));
  assert_true(CALL(IN_SQRT, num(DT_F32, 2)).f == (double)sqrtf(2));
  assert_true(CALL(IN_RSQRT, num(DT_F32, 4)).f == 0.5);
  assert_true(CALL(IN_EXP10, num(DT_F64, 3)).f == 1000);
  assert_true(CALL(IN_SIGMOID, num(DT_F32, 0)).f == 0.5);
  assert_true(CALL(IN_EXP, num(DT_F32, 1)).f == (double)2.71828182845904523536f);
  assert_true(CALL(IN_ATAN2, num(DT_F64, 1), num(DT_F64, -1)).f == 3 * M_PI / 4);
  assert_true(CALL(IN_ABS, num(DT_F32, -0.0)).f == 0 && !signbit(CALL(IN_ABS, num(DT_F32, -0.0)).f));
  assert_int_equal(CALL(IN_ISNAN, num(DT_F32, NAN)).i + CALL(IN_ISINF, num(DT_F32, INFINITY)).i +
                       CALL(IN_ISFINITE, num(DT_F32, 1)).i,
                   3);
  assert_int_equal(CALL(IN_ISNAN, num(DT_F32, INFINITY)).i + CALL(IN_ISFINITE, num(DT_F32, NAN)).i, 0);
}

static void integer_intrinsics(void **state)
{
  (void)state;
  assert_int_equal(CALL(IN_ABS, integer(DT_I8, -128)).i, -128);
  assert_int_equal(CALL(IN_ABS, integer(DT_I8, -5)).i, 5);
  assert_int_equal(CALL(IN_POPCOUNT, integer(DT_I8, -1)).i, 8);
  assert_int_equal(CALL(IN_CLZ, integer(DT_I8, 1)).i, 7);
  assert_int_equal(CALL(IN_CLZ, integer(DT_I32, 0)).i, 32);
  assert_int_equal(CALL(IN_SHL, integer(DT_I8, 1), integer(DT_I8, 9)).i, 2);
  assert_int_equal(CALL(IN_SHL, integer(DT_I8, 1), integer(DT_I8, 7)).i, -128);
  assert_int_equal(CALL(IN_SHR, integer(DT_I8, -8), integer(DT_I8, 1)).i, -4);
  assert_int_equal(CALL(IN_SHR, integer(DT_U8, 248), integer(DT_U8, 1)).i, 124);
  assert_int_equal(CALL(IN_BITNOT, integer(DT_U8, 1)).i, 254);
  assert_int_equal(CALL(IN_BITXOR, integer(DT_I8, -1), integer(DT_I8, 1)).i, -2);
  const Expr *low = integer(DT_I8, -128);
  const Expr *high = integer(DT_U8, 255);
  assert_int_equal(CALL(IN_DOT, low, low, low, low, low, low, low, low).i, 4 * 128 * 128);
  assert_int_equal(CALL(IN_DOT, high, high, high, high, low, low, low, integer(DT_I8, 1)).i, 255 - 3 * 255 * 128);
  assert_int_equal(
      CALL(IN_DOT, low, low, low, low, low, low, low, low, high, high, high, high, high, high, high, integer(DT_U8, 1))
          .i,
      -128 * (7 * 255 + 1));
  /* 1, 2, 3, -1 by 255, 0, 1, 2 */
  const Expr *word[] = {integer(DTYPE(DT_UINT, 32), 0xff030201), integer(DTYPE(DT_UINT, 32), 0x020100ff)};
  assert_int_equal(CALL(IN_WORD_DOT, word[0], word[1], integer(DT_I32, 1)).i, 255 + 3 - 2);
  assert_int_equal(CALL(IN_WORD_DOT, word[0], word[1], integer(DT_I32, 3)).i, -1 + 3 - 2);
  assert_int_equal(CALL(IN_WORD_DOT, word[0], word[1], integer(DT_I32, 0)).i, 255 + 3 + 510);
  const Expr *q = integer(DT_I32, 31);
  const Expr *half = integer(DT_I32, 1 << 30);
  assert_int_equal(CALL(IN_QMULSHIFT, integer(DT_I32, 100), half, q, integer(DT_I32, 1)).i, 100);
  assert_int_equal(CALL(IN_QMULSHIFT, integer(DT_I32, 101), half, q, integer(DT_I32, 0)).i, 51);
  assert_int_equal(CALL(IN_QMULSHIFT, integer(DT_I32, -101), half, q, integer(DT_I32, 0)).i, -50);
  /* 1.5 and 2 by 4 and -3: pairs of bfloat16, the first in the low half */
  assert_true(CALL(IN_BF16_DOT, integer(DTYPE(DT_UINT, 32), 0x40003fc0), integer(DTYPE(DT_UINT, 32), 0xc0404080)).f ==
              0);
  assert_true(CALL(IN_BF16_DOT, integer(DTYPE(DT_UINT, 32), 0x40003fc0), integer(DTYPE(DT_UINT, 32), 0x40404080)).f ==
              12);
  /* the same and 3 and -1 by 1 and 2 behind them */
  assert_true(CALL(IN_BF16_DOT, integer(DTYPE(DT_UINT, 64), 0xbf80404040003fc0),
                   integer(DTYPE(DT_UINT, 64), 0x40003f8040404080))
                  .f == 13);
  const Expr *one = num(DT_F32, 1);
  assert_int_equal(eval(expr_call(w.m, DT_I32, IN_REINTERPRET, 1, &one)).i, 0x3F800000);
  const Expr *bytes = expr_ramp(w.m, integer(DT_U8, 1), integer(DT_U8, 1), 4);
  assert_int_equal(eval(expr_call(w.m, DT_I32, IN_REINTERPRET, 1, &bytes)).i, 0x04030201);
}

/* ---- control, scopes, vectors, memory ------------------------------------------------------------ */

static void fails(Ctx *ctx, void *e)
{
  (void)ctx;
  expr_eval(&env, e, 0);
}

static const char *failure(const Expr *e)
{
  assert_int_not_equal(protect(w.ctx, fails, (void *)(uintptr_t)e), ERR_NONE);
  return error_message(w.ctx);
}

static void choices_evaluate_what_they_say(void **state)
{
  (void)state;
  const Expr *x = var_new(w.m, "x", DT_I32, VAR_PLAIN)->expr;
  const Expr *zero = integer(DT_I32, 0);
  const Expr *one = integer(DT_I32, 1);
  expr_eval_bind(&env, x->u.var, value_int(DT_I32, 0));
  const Expr *bad = expr_floordiv(w.m, one, x);
  const Expr *safe = expr_binary(w.m, E_EQ, x, zero);
  const Expr *lazy[] = {safe, one, bad};
  assert_int_equal(CALL(IN_IF_THEN_ELSE, lazy[0], lazy[1], lazy[2]).i, 1);
  assert_string_equal(failure(expr_select(w.m, safe, one, bad)), "evaluation: division by zero in '1//x'");
  const Expr *test = expr_binary(w.m, E_EQ, bad, one);
  assert_int_equal(eval(expr_and(w.m, expr_not(w.m, safe), test)).i, 0);
  assert_int_equal(eval(expr_binary(w.m, E_OR, safe, test)).i, 1);
  failure(expr_and(w.m, safe, test));
  assert_string_equal(failure(var_new(w.m, "lost", DT_I32, VAR_PLAIN)->expr),
                      "evaluation: variable 'lost' has no value");
}

static void let_and_sharing(void **state)
{
  (void)state;
  const Var *v = var_new(w.m, "v", DT_I64, VAR_PLAIN);
  const Expr *e = expr_let(w.m, v, integer(DT_I64, 5), expr_mul(w.m, v->expr, v->expr));
  assert_int_equal(eval(e).i, 25);
  expr_eval_bind(&env, v, value_int(DT_I64, 3));
  assert_int_equal(eval(expr_add(w.m, v->expr, e)).i, 28); /* the outer value is back, or never gone */
  assert_int_equal(eval(expr_add(w.m, e, v->expr)).i, 28);
  const Expr *x = v->expr;
  for (int i = 0; i < 60; i++) x = expr_add(w.m, x, x); /* a tree of 2^60 nodes */
  assert_int_equal(eval(x).i, (int64_t)3 << 60);
  const Expr *inner = v->expr;
  for (int i = 0; i < 40; i++) inner = expr_add(w.m, inner, inner);
  const Expr *rebound = expr_let(w.m, v, integer(DT_I64, 1), inner);
  assert_int_equal(eval(expr_sub(w.m, inner, rebound)).i, (int64_t)2 << 40);
}

static void vectors_lane_by_lane(void **state)
{
  (void)state;
  const Expr *r = expr_ramp(w.m, integer(DT_I32, 3), integer(DT_I32, 4), 4);
  const Expr *e = expr_mul(w.m, r, expr_broadcast(w.m, integer(DT_I32, 2), 4));
  for (int lane = 0; lane < 4; lane++) assert_int_equal(expr_eval(&env, e, lane).i, (3 + 4 * lane) * 2);
  assert_int_equal(eval(expr_call(w.m, DT_I32, IN_VECTOR_SUM, 1, &e)).i, 72);
  const Var *v = var_new(w.m, "v", e->dtype, VAR_PLAIN);
  const Expr *sum = expr_call(w.m, DT_I32, IN_VECTOR_SUM, 1, &v->expr);
  assert_int_equal(eval(expr_let(w.m, v, e, sum)).i, 72);
}

static Value load_square(EvalEnv *unused, const Buffer *b, int n, const int64_t *index)
{
  (void)unused;
  assert_int_equal(n, 2);
  return value_int(b->dtype, index[0] * 10 + index[1]);
}

static void loads_and_reductions(void **state)
{
  (void)state;
  const Expr *shape[] = {integer(DT_I32, 4), integer(DT_I32, 4)};
  const Buffer *b = buffer_new(w.m, "b", DT_I32, 2, shape, NULL, NULL, NULL, 0, 0, NULL);
  const IterVar *k =
      itervar_new(w.m, var_new(w.m, "k", DT_I32, VAR_PLAIN), integer(DT_I32, 1), integer(DT_I32, 3), ITER_REDUCE, NULL);
  const Expr *index[] = {integer(DT_I32, 2), k->var->expr};
  const Expr *load = expr_load(w.m, b, 2, index);
  const Expr *sum =
      expr_reduce(w.m, reducer_named(w.m, "sum", DT_I32, DT_I32), 1, &load, 1, &k, expr_bool(w.m, true), NULL, 0);
  assert_string_equal(failure(load), "evaluation: buffer 'b' is read, but no memory was given");
  env.load = load_square;
  assert_int_equal(eval(sum).i, 21 + 22 + 23);
  const Expr *odd = expr_binary(w.m, E_NE, k->var->expr, integer(DT_I32, 2));
  const Expr *start = integer(DT_I32, 100);
  sum = expr_reduce(w.m, reducer_named(w.m, "sum", DT_I32, DT_I32), 1, &load, 1, &k, odd, &start, 0);
  assert_int_equal(eval(sum).i, 100 + 21 + 23);
  const Expr *pair[] = {k->var->expr, expr_floormod(w.m, load, integer(DT_I32, 2))};
  const Expr *arg =
      expr_reduce(w.m, reducer_named(w.m, "argmax", DT_I32, DT_I32), 2, pair, 1, &k, expr_bool(w.m, true), NULL, 0);
  assert_int_equal(eval(arg).i, 1); /* 21 and 23 are odd; the first wins */
}

/* ---- folding ----------------------------------------------------------------------------------------- */

static void folding(void **state)
{
  (void)state;
  const Expr *one = integer(DT_I32, 1);
  const Expr *zero = integer(DT_I32, 0);
  const Expr *min = integer(DT_I32, INT32_MIN);
  const Expr *minus = integer(DT_I32, -1);
  assert_ptr_equal(expr_fold(w.m, expr_add(w.m, one, one)), integer(DT_I32, 2));
  assert_null(expr_fold(w.m, expr_floordiv(w.m, one, zero)));
  assert_null(expr_fold(w.m, expr_binary(w.m, E_MOD, one, zero)));
  assert_null(expr_fold(w.m, expr_binary(w.m, E_DIV, min, minus)));
  assert_null(expr_fold(w.m, expr_floormod(w.m, min, minus)));
  assert_null(expr_fold(w.m, one));
  assert_ptr_equal(expr_fold(w.m, expr_cast(w.m, DT_I8, num(DT_F32, 1000))), integer(DT_I8, 127));
  const Expr *four = num(DT_F32, 4);
  assert_ptr_equal(expr_fold(w.m, expr_call(w.m, DT_NONE, IN_SQRT, 1, &four)), num(DT_F32, 2));
  assert_ptr_equal(expr_fold(w.m, expr_binary(w.m, E_DIV, num(DT_F32, 1), num(DT_F32, 0))), num(DT_F32, INFINITY));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
  /* clang-format off */
  const struct CMUnitTest tests[] = {
      TEST(narrow_floats_round_to_even),
      TEST(every_pattern_survives),
      TEST(arithmetic_rounds_once),
      TEST(zeros_and_nans),
      TEST(integers_wrap_and_floor),
      TEST(casts_saturate_wrap_and_test),
      TEST(float_intrinsics),
      TEST(integer_intrinsics),
      TEST(choices_evaluate_what_they_say),
      TEST(let_and_sharing),
      TEST(vectors_lane_by_lane),
      TEST(loads_and_reductions),
      TEST(folding),
  };
  /* clang-format on */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
