/* test_dtypes.c: dtypes the machine does not compute in, and the elementary functions.
 *
 * The interpreter knows every dtype and function by itself; the lowered function uses
 * none of them.  Both must give the same: bits for conversions and arithmetic, 4 ulp
 * for functions. */
#include "lower/test_lower.h"

static const char *const small_floats[] = {"float16",         "bfloat16",        "float8_e4m3fn",  "float8_e5m2",
                                           "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"};
enum { NSMALL = sizeof small_floats / sizeof *small_floats, COUNT = 4096 };

/* Values of every magnitude, both signs, halfway cases, infinities and NaN. */
static double interesting(int i, uint64_t *seed)
{
  static const double fixed[] = {
    0,        -0.0,         INFINITY,      -INFINITY,   NAN,          65504,  65519,   65520,     -65536,  448,
    449,      464,          465,           480,         240,          248,    57344,   61439,     61440,   0x1p-24,
    0x1p-25,  0x1.8p-25,    0x1p-133,      0x1p-134,    3.4028234e38, 0x1p-9, 0x1p-10, 0x1.8p-10, 0x1p-16, 0x1p-17,
    0x1p-149, 1.0009765625, 1.00048828125, 1.001953125, 0.1,          1e-40,  -1e-7};
  if (i < (int)(sizeof fixed / sizeof *fixed)) return fixed[i];
  *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
  uint32_t bits = (uint32_t)(*seed >> 32);
  if (i % 3 == 0) bits &= 0xfffff000; /* few digits: often halfway between two small floats */
  if (i % 3 == 1) bits = (bits & 0x807fffff) | (uint32_t)(100 + (*seed & 63)) << 23;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static void fill(TirArg *a, int64_t *shape, DType t, uint64_t seed, void *memory)
{
  *shape = COUNT;
  *a = (TirArg){.data = memory, .dtype = t, .ndim = 1, .shape = shape};
  for (int i = 0; i < COUNT; i++) {
    Value v;
    if (dtype_is_float(t)) {
      v = value_float(t, interesting(i, &seed));
    } else {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      v = value_int(t, i < 64 ? i - 32 : (int64_t)seed >> (i % 60));
    }
    value_store(v, (char *)memory + i * dtype_bytes(t));
  }
}

/* C[i] = value over A and B of dtype `in`; before and after lowering, bit for bit. */
static void same_bits(World *w, const char *target, const char *in, const char *out, const char *value)
{
  const char *text =
      arena_printf(scratch(w->ctx),
                   "@T.prim_func\n"
                   "def main(A: T.Buffer((%d,), '%s'), B: T.Buffer((%d,), '%s'), C: T.Buffer((%d,), '%s')):\n"
                   "    for io in range(%d):\n"
                   "        for ii in T.vectorized(8):\n"
                   "            with T.block('C'):\n"
                   "                i = T.axis.spatial(%d, io * 8 + ii)\n"
                   "                C[i] = %s\n",
                   COUNT, in, COUNT, in, COUNT, out, COUNT / 8, COUNT, value);
  PrimFunc *f = parse(w, text);
  PrimFunc *g = lower_func(f, target_parse(w->ctx, target), LOWER_KERNEL, NULL);
  DType tin, tout;
  assert_true(dtype_parse(in, &tin) && dtype_parse(out, &tout));
  Args want = {.n = 3};
  Args got = {.n = 3};
  Args *both[] = {&want, &got};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 3; i++) {
      DType t = i < 2 ? tin : tout;
      fill(&both[k]->arg[i], both[k]->shape[i], t, (uint64_t)(i + 1) * 77,
           arena_alloc(scratch(w->ctx), COUNT * 8 + 64));
      both[k]->bytes[i] = (size_t)COUNT * (size_t)dtype_bytes(t);
    }
  func_interpret(f, 3, want.arg);
  func_interpret(g, 3, got.arg);
  char why[256];
  if (differ(&got, &want, 0, why, sizeof why)) fail_msg("%s from %s to %s on %s: %s", value, in, out, target, why);
}

static const char *cast_to(World *w, const char *t, const char *value)
{
  return arena_printf(scratch(w->ctx), "T.Cast('%s', %s)", t, value);
}

CASE(small_floats_convert)
{
  const char *others[] = {"float32", "float64", "int32", "int8", "uint16", "int64"};
  const char *targets[] = {PLAIN, WIDE, NARROW};
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < NSMALL; i++)
      for (int k = 0; k < 6; k++) {
        Scope scope = scope_begin(w->ctx);
        same_bits(w, targets[t], others[k], small_floats[i], cast_to(w, small_floats[i], "A[i]"));
        same_bits(w, targets[t], small_floats[i], others[k], cast_to(w, others[k], "A[i]"));
        scope_end(w->ctx, scope);
      }
}

CASE(small_floats_compute)
{
  const char *values[] = {"A[i] + B[i]",
                          "A[i] * B[i]",
                          "A[i] - B[i] * A[i]",
                          "A[i] / B[i]",
                          "T.max(A[i], B[i])",
                          "T.sqrt(A[i])",
                          "T.if_then_else(A[i] < B[i], A[i] * A[i], B[i])",
                          "T.floor(A[i])",
                          "T.abs(A[i])"};
  for (int i = 0; i < NSMALL; i++)
    for (int k = 0; k < 9; k++) {
      Scope scope = scope_begin(w->ctx);
      same_bits(w, PLAIN, small_floats[i], small_floats[i], values[k]);
      same_bits(w, WIDE, small_floats[i], small_floats[i], values[k]);
      same_bits(w, NARROW, small_floats[i], small_floats[i], values[k]);
      scope_end(w->ctx, scope);
    }
}

CASE(odd_integers_compute)
{
  const char *types[] = {"int4", "uint4", "int7", "uint12", "int24", "int33", "uint63"};
  const char *values[] = {"A[i] + B[i]",
                          "A[i] - B[i]",
                          "A[i] * B[i]",
                          "T.shift_left(A[i], B[i])",
                          "T.shift_right(A[i], B[i])",
                          "T.bitwise_not(A[i])",
                          "T.popcount(A[i])",
                          "T.min(A[i], B[i])",
                          "T.abs(A[i])"};
  for (int i = 0; i < 7; i++) {
    for (int k = 0; k < 9; k++) {
      Scope scope = scope_begin(w->ctx);
      same_bits(w, PLAIN, types[i], types[i], values[k]);
      scope_end(w->ctx, scope);
    }
    same_bits(w, PLAIN, "float32", types[i], cast_to(w, types[i], "A[i]"));
    same_bits(w, PLAIN, types[i], "float32", cast_to(w, "float32", "A[i]"));
    same_bits(w, PLAIN, "int64", types[i], cast_to(w, types[i], "A[i]"));
    same_bits(w, PLAIN, types[i], "int64", cast_to(w, "int64", "A[i]"));
    same_bits(w, PLAIN, types[i], "bool", "A[i] < B[i]");
  }
}

CASE(floor_division_of_every_sign)
{
  const char *values[] = {"A[i] // T.int32(7)",
                          "A[i] % T.int32(7)",
                          "A[i] // T.int32(8)",
                          "A[i] % T.int32(8)",
                          "A[i] // T.int32(-3)",
                          "A[i] % T.int32(-3)",
                          "A[i] // (B[i] * B[i] % T.int32(5) + T.int32(1))",
                          "A[i] % (B[i] % T.int32(5) - T.int32(7))",
                          "A[i] // (B[i] % T.int32(5) - T.int32(7))"};
  for (int k = 0; k < 9; k++) same_bits(w, WIDE, "int32", "int32", values[k]);
}

/* ---- elementary functions ------------------------------------------------------------------- */

static double ulps(float got, double want)
{
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
  float near = (float)want;
  if (isinf(near) || isinf(got))
    return got == near ? 0 : fabs(want) > 0x1.fffff8p127 && fabsf(got) > 0x1.fffff0p127f ? 1 : INFINITY;
  if (want == 0 && got == 0) return !signbit(got) == !signbit(want) ? 0 : INFINITY;
  int e;
  frexp(want, &e);
  return fabs((double)got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

static double rsqrt(double x) { return 1 / sqrt(x); }
static double sigmoid(double x) { return x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double ten_to(double x) { return pow(10, x); }

static const struct {
  Intrin f;
  double (*of1)(double), (*of2)(double, double);
} functions[] = {
  {IN_EXP, exp, NULL},         {IN_EXP2, exp2, NULL},   {IN_EXP10, ten_to, NULL},
  {IN_LOG, log, NULL},         {IN_LOG2, log2, NULL},   {IN_LOG10, log10, NULL},
  {IN_LOG1P, log1p, NULL},     {IN_RSQRT, rsqrt, NULL}, {IN_TANH, tanh, NULL},
  {IN_SIGMOID, sigmoid, NULL}, {IN_ERF, erf, NULL},     {IN_SIN, sin, NULL},
  {IN_COS, cos, NULL},         {IN_TAN, tan, NULL},     {IN_ASIN, asin, NULL},
  {IN_ACOS, acos, NULL},       {IN_ATAN, atan, NULL},   {IN_SINH, sinh, NULL},
  {IN_COSH, cosh, NULL},       {IN_ASINH, asinh, NULL}, {IN_ACOSH, acosh, NULL},
  {IN_ATANH, atanh, NULL},     {IN_ROUND, round, NULL}, {IN_ATAN2, NULL, atan2},
  {IN_POW, NULL, pow},         {IN_HYPOT, NULL, hypot}, {IN_FLOOR, floor, NULL},
  {IN_CEIL, ceil, NULL},       {IN_TRUNC, trunc, NULL}, {IN_NEARBYINT, nearbyint, NULL},
};

static float argument(int i, uint64_t *seed)
{
  static const float fixed[] = {0,
                                -0.0f,
                                1,
                                -1,
                                0.5f,
                                -0.5f,
                                2,
                                -2,
                                3,
                                -3,
                                INFINITY,
                                -INFINITY,
                                NAN,
                                0x1p-149f,
                                -0x1p-149f,
                                0x1p-126f,
                                0x1.fffffep127f,
                                -0x1.fffffep127f,
                                88.72284f,
                                -103.97208f,
                                0x1p19f,
                                0x1.921fb6p0f,
                                1e10f,
                                0.99999994f,
                                1.0000001f,
                                2.5f,
                                -2.5f};
  if (i < (int)(sizeof fixed / sizeof *fixed)) return fixed[i];
  *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
  if (i % 2) return (float)((double)(int64_t)(*seed >> 11) / 0x1p52 - 1) * (float)(1 << (i % 8));
  uint32_t bits = (uint32_t)(*seed >> 32);
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

CASE(functions_within_four_ulp)
{
  const char *targets[] = {WIDE, PLAIN};
  const Var *x = var_new(w->m, "x", DT_F32, VAR_PLAIN);
  const Var *y = var_new(w->m, "y", DT_F32, VAR_PLAIN);
  for (int t = 0; t < 2; t++)
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
      bool two = functions[k].of2 != NULL;
      const Expr *arg[] = {x->expr, y->expr};
      const Expr *call = expr_call(w->m, DT_NONE, functions[k].f, two ? 2 : 1, arg);
      const Expr *r = lower_math(w->m, target_parse(w->ctx, targets[t]), call);
      if (!r && functions[k].f >= IN_FLOOR) continue; /* an instruction there */
      assert_non_null(r);
      uint64_t seed = k;
      for (int i = 0; i < 1500; i++) {
        Scope scope = scope_begin(w->ctx);
        EvalEnv env = {.m = w->m, .arena = scratch(w->ctx)};
        float a = argument(two ? i % 41 : i, &seed);
        float b = argument(two ? i / 41 : i, &seed);
        expr_eval_bind(&env, x, value_float(DT_F32, a));
        expr_eval_bind(&env, y, value_float(DT_F32, b));
        double want = two ? functions[k].of2(a, b) : functions[k].of1(a);
        float got = (float)expr_eval(&env, r, 0).f;
        if (ulps(got, want) > 4)
          fail_msg("%s(%a, %a): %a, should be %a", intrin_info(functions[k].f)->name, a, b, got, want);
        scope_end(w->ctx, scope);
      }
    }
}

/* Spelled out, a sum of products of bfloat16 is what the interpreters say, while no product leaves float32. */
CASE(pairs_are_spelled_out)
{
  const char *targets[] = {WIDE, PLAIN};
  DType u32 = DTYPE(DT_UINT, 32);
  const Var *x = var_new(w->m, "x", u32, VAR_PLAIN);
  const Var *y = var_new(w->m, "y", u32, VAR_PLAIN);
  const Expr *call = expr_call(w->m, DT_NONE, IN_BF16_DOT, 2, (const Expr *[]){x->expr, y->expr});
  uint64_t seed = 3;
  for (int t = 0; t < 2; t++) {
    const Expr *r = lower_math(w->m, target_parse(w->ctx, targets[t]), call);
    assert_non_null(r);
    for (int i = 0; i < 2000; i++) {
      Scope scope = scope_begin(w->ctx);
      EvalEnv env = {.m = w->m, .arena = scratch(w->ctx)};
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      expr_eval_bind(&env, x, value_int(u32, (int64_t)(seed >> 32 & 0x9fff9fff) | 0x20002000)); /* from 2^-63 to 2 */
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      expr_eval_bind(&env, y, value_int(u32, (int64_t)(seed >> 32 & 0x9fff9fff) | 0x20002000)); /* from 2^-63 to 2 */
      double a = expr_eval(&env, call, 0).f;
      double b = expr_eval(&env, r, 0).f;
      if (!(a == b || (isnan(a) && isnan(b)))) fail_msg("%d: %a, should be %a", i, b, a);
      scope_end(w->ctx, scope);
    }
  }
  const Expr *wide[] = {expr_broadcast(w->m, x->expr, 16), expr_broadcast(w->m, y->expr, 16)};
  call = expr_call(w->m, DT_NONE, IN_BF16_DOT, 2, wide);
  /* an instruction there */
  assert_null(lower_math(w->m, target_parse(w->ctx, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"), call));
}

/* A power of two is multiplied by in one instruction where vectors have it, and by two factors elsewhere. */
CASE(powers_of_two)
{
  static const struct {
    const char *target;
    int lanes;
    bool scales;
  } cases[] = {
    {"llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 16, true},
    {"llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 8, true},
    {"llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 1, false},
    {"llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", 8, false},
    {"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", 4, false},
    {"c", 16, false},
  };
  const Var *x = var_new(w->m, "x", DT_F32, VAR_PLAIN);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Expr *arg = cases[i].lanes > 1 ? expr_broadcast(w->m, x->expr, cases[i].lanes) : x->expr;
    const Expr *r = lower_math(w->m, target_parse(w->ctx, cases[i].target), expr_call(w->m, DT_NONE, IN_EXP, 1, &arg));
    assert_non_null(r);
    assert_int_equal(strstr(expr_str_of(scratch(w->ctx), r), "ldexp") != NULL, cases[i].scales);
  }
}

/* The lanes of a 2 x 2 block, whose words come two by two, or any four. */
static const Expr *four_lanes(Module *m, bool block)
{
  const Expr *n = expr_i32(m, 64);
  const Expr *lane = expr_ramp(m, expr_i32(m, 0), expr_i32(m, 1), 4);
  const Expr *two = expr_int(m, lane->dtype, 2);
  const Expr *arg[2];
  const Var *k = var_new(m, "k", DT_I32, VAR_PLAIN);
  const Expr *from = expr_broadcast(m, expr_mul(m, k->expr, expr_i32(m, 8)), 4);
  for (int i = 0; i < 2; i++) {
    const Buffer *b = buffer_new(m, i ? "B" : "A", DTYPE(DT_UINT, 64), 1, &n, NULL, NULL, "global", 0, 0, NULL);
    const Expr *at = expr_add(m, from, !block ? lane : i ? expr_floormod(m, lane, two) : expr_floordiv(m, lane, two));
    arg[i] = expr_load(m, b, 1, &at);
  }
  return expr_call(m, DT_NONE, IN_BF16_DOT, 2, arg);
}

/* Fours are pairs' sums, and in one where the target has an instruction for a block of them. */
CASE(fours_are_blocks_or_pairs)
{
  DType u64 = DTYPE(DT_UINT, 64);
  const Var *x = var_new(w->m, "x", u64, VAR_PLAIN);
  const Var *y = var_new(w->m, "y", u64, VAR_PLAIN);
  const Expr *call = expr_call(w->m, DT_NONE, IN_BF16_DOT, 2, (const Expr *[]){x->expr, y->expr});
  const Target *plain = target_parse(w->ctx, PLAIN);
  const Target *arm = target_parse(w->ctx, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1");
  const Expr *r = lower_math(w->m, plain, call);
  uint64_t seed = 5;
  for (int i = 0; i < 2000; i++) {
    Scope scope = scope_begin(w->ctx);
    EvalEnv env = {.m = w->m, .arena = scratch(w->ctx)};
    for (int k = 0; k < 2; k++) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      /* from 2^-63 to 2 */
      expr_eval_bind(&env, k ? y : x, value_int(u64, (int64_t)((seed & 0x9fff9fff9fff9fff) | 0x2000200020002000)));
    }
    double a = expr_eval(&env, call, 0).f;
    double b = expr_eval(&env, r, 0).f;
    if (a != b) fail_msg("%d: %a, should be %a", i, b, a);
    scope_end(w->ctx, scope);
  }
  assert_null(lower_math(w->m, arm, four_lanes(w->m, true)));
  assert_non_null(lower_math(w->m, arm, four_lanes(w->m, false)));
  assert_non_null(lower_math(w->m, target_parse(w->ctx, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"),
                             four_lanes(w->m, true)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(small_floats_convert),
    cmocka_unit_test(small_floats_compute),
    cmocka_unit_test(odd_integers_compute),
    cmocka_unit_test(floor_division_of_every_sign),
    cmocka_unit_test(functions_within_four_ulp),
    cmocka_unit_test(pairs_are_spelled_out),
    cmocka_unit_test(powers_of_two),
    cmocka_unit_test(fours_are_blocks_or_pairs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
