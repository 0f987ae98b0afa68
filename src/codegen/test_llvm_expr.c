/* test_llvm_expr.c: every operator, cast and intrinsic of the LLVM backend against
 * expr_eval, on random and special values, scalar and in vectors. */
#include "codegen/test_llvm_kit.h"

enum { N = 96, LANES = 8 };

/* out[i] = f(x[i], y[i], z[i]), with i a scalar loop or a loop over vectors. */
typedef struct Case {
  const Expr *e; /* over x, y, z */
  const Var *x[3];
  int n;
  double tolerance; /* 0: the same bits (either zero, any NaN) */
  Kernel *k[2];
} Case;
typedef Vec(Case) Cases;

static const Expr *over_lanes(const Expr *e, const Var *const *x, const Expr *const *value, int n, int lanes);

/* Rebuilds e with vectors for its variables. */
static const Expr *widen(const Expr *e, const Var *const *x, const Expr *const *value, int n, int lanes)
{
  const Expr *arg[4];
  if (e->kind == E_VAR) {
    for (int i = 0; i < n; i++)
      if (e->u.var == x[i]) return value[i];
    return e;
  }
  for (int i = 0; i < e->nargs; i++) arg[i] = over_lanes(e->arg[i], x, value, n, lanes);
  if (e->kind == E_CAST) return expr_cast(m, dtype_lanes(e->dtype, lanes), arg[0]);
  if (e->kind == E_CALL && (intrin_info(e->u.intrin)->flags & INF_ANY))
    return expr_call(m, dtype_lanes(e->dtype, lanes), e->u.intrin, e->nargs, arg);
  return e->nargs ? expr_with_args(m, e, arg) : e;
}

static const Expr *over_lanes(const Expr *e, const Var *const *x, const Expr *const *value, int n, int lanes)
{
  return lanes > 1 && expr_is_const(e) ? expr_broadcast(m, e, lanes) : widen(e, x, value, n, lanes);
}

static Kernel *case_kernel(Case *c, const Target *t, const char *name, int lanes)
{
  const Buffer *buffer[4];
  const Expr *value[3];
  const Var *i = index_var("i");
  const Expr *index =
      lanes > 1 ? expr_ramp(m, expr_binary(m, E_MUL, i->expr, expr_i32(m, lanes)), expr_i32(m, 1), lanes) : i->expr;
  for (int a = 0; a < c->n; a++) {
    buffer[a] = flat((const char *[]){"x", "y", "z"}[a], c->x[a]->dtype, N);
    value[a] = at(buffer[a], index);
  }
  buffer[c->n] = flat("out", c->e->dtype, N);
  Stmt *body = loop(i, N / lanes, put(buffer[c->n], index, over_lanes(c->e, c->x, value, c->n, lanes)));
  return kernel_of(name, t, c->n + 1, buffer, 1, body);
}

static void add_case(Cases *cases, double tolerance, const Expr *e, int n, const Var *const *x)
{
  Case c = {.e = e, .n = n, .tolerance = tolerance};
  for (int i = 0; i < n; i++) c.x[i] = x[i];
  vec_push(scratch(ctx), cases, c);
}

static bool divides_by_zero(const Case *c, const Value *v)
{
  bool divides = c->e->kind == E_DIV || c->e->kind == E_MOD || c->e->kind == E_FLOORDIV || c->e->kind == E_FLOORMOD;
  return divides && dtype_is_int(c->e->dtype) && v[1].i == 0;
}

static bool agree(const Case *c, Value got, Value want)
{
  if (value_eq(got, want)) return true;
  if (!dtype_is_float(got.dtype)) return false;
  if (got.f == 0 && want.f == 0) return true;
  return fabs(got.f - want.f) <= c->tolerance * fabs(want.f);
}

static void check_case(const Case *c, const LatheRtFuncInfo *f, uint64_t *seed)
{
  static _Alignas(64) unsigned char memory[4][N * 8];
  Value v[N][3];
  void *p[4] = {memory[0], memory[1], memory[2], memory[3]};
  p[c->n] = memory[3];
  for (int i = 0; i < N; i++)
    for (int a = 0; a < c->n; a++) {
      v[i][a] = random_value(c->x[a]->dtype, seed);
      value_store(v[i][a], memory[a] + i * dtype_bytes(c->x[a]->dtype));
    }
  assert_int_equal(call_ptrs(f, NULL, c->n + 1, p), 0);
  for (int i = 0; i < N; i++) {
    if (divides_by_zero(c, v[i])) continue;
    EvalEnv env = {.m = m, .arena = scratch(ctx)};
    for (int a = 0; a < c->n; a++) expr_eval_bind(&env, c->x[a], v[i][a]);
    Value want = expr_eval(&env, c->e, 0);
    Value got = value_load(c->e->dtype, memory[3] + i * dtype_bytes(c->e->dtype));
    if (agree(c, got, want)) continue;
    const char *x = expr_str_of(scratch(ctx), expr_value(m, v[i][0]));
    const char *y = c->n > 1 ? expr_str_of(scratch(ctx), expr_value(m, v[i][1])) : "";
    fail_msg("%s: %s at (%s, %s) gave %s, not %s", f->name, expr_str_of(scratch(ctx), c->e), x, y,
             expr_str_of(scratch(ctx), expr_value(m, got)), expr_str_of(scratch(ctx), expr_value(m, want)));
  }
}

static void check_cases(Cases *cases, const char *target)
{
  const Target *t = target_parse(ctx, target);
  Kernel **k = arena_array(scratch(ctx), Kernel *, 2 * cases->n);
  for (int i = 0; i < cases->n; i++)
    for (int w = 0; w < 2; w++)
      k[2 * i + w] =
          case_kernel(&cases->v[i], t, arena_printf(m->arena, w ? "vector%d" : "scalar%d", i), w ? LANES : 1);
  Code *code = compile(t, 2 * cases->n, k);
  if (!t->is_host) return;
  const LatheRtModuleInfo *info = codegen_llvm_jit(code);
  uint64_t seed = 42;
  for (int i = 0; i < 2 * cases->n; i++) check_case(&cases->v[i / 2], find_func(info, k[i]->name), &seed);
}

static const DType numbers[] = {{DT_INT, 8, 1},    {DT_UINT, 8, 1},  {DT_INT, 16, 1}, {DT_UINT, 16, 1},
                                {DT_INT, 32, 1},   {DT_UINT, 32, 1}, {DT_INT, 64, 1}, {DT_UINT, 64, 1},
                                {DT_FLOAT, 32, 1}, {DT_FLOAT, 64, 1}};

/* This machine's features, and its baseline: both must agree with the meaning. */
static const char *const both_targets[] = {"llvm", "llvm -mcpu=generic"};

TEST(test_binary)
{
  (void)c;
  Cases cases = {0};
  for (int d = 0; d < COUNT(numbers); d++) {
    const Var *x[] = {var_new(m, "x", numbers[d], VAR_PLAIN), var_new(m, "y", numbers[d], VAR_PLAIN)};
    for (ExprKind k = E_ADD; k <= E_GE; k++) {
      if (dtype_is_float(numbers[d]) && (k == E_FLOORDIV || k == E_FLOORMOD)) continue;
      add_case(&cases, 0, expr_binary(m, k, x[0]->expr, x[1]->expr), 2, x);
    }
  }
  for (int i = 0; i < COUNT(both_targets); i++) check_cases(&cases, both_targets[i]);
}

TEST(test_min_max_with_literals)
{
  (void)c;
  Cases cases = {0};
  const Var *x[] = {var_new(m, "x", DT_F32, VAR_PLAIN), var_new(m, "y", DT_F32, VAR_PLAIN)};
  const Expr *zero = expr_float(m, DT_F32, 0);
  const Expr *six = expr_float(m, DT_F32, 6);
  add_case(&cases, 0, expr_max(m, x[0]->expr, zero), 1, x);
  add_case(&cases, 0, expr_max(m, zero, x[0]->expr), 1, x);
  add_case(&cases, 0, expr_min(m, expr_max(m, x[0]->expr, zero), six), 1, x);
  add_case(&cases, 0, expr_min(m, x[0]->expr, expr_max(m, x[1]->expr, six)), 2, x);
  for (int i = 0; i < COUNT(both_targets); i++) check_cases(&cases, both_targets[i]);
}

TEST(test_casts)
{
  (void)c;
  Cases cases = {0};
  for (int a = -1; a < COUNT(numbers); a++)
    for (int b = -1; b < COUNT(numbers); b++) {
      DType from = a < 0 ? DT_BOOL : numbers[a];
      DType to = b < 0 ? DT_BOOL : numbers[b];
      const Var *x = var_new(m, "x", from, VAR_PLAIN);
      if (a != b) add_case(&cases, 0, expr_cast(m, to, x->expr), 1, &x);
    }
  for (int i = 0; i < COUNT(both_targets); i++) check_cases(&cases, both_targets[i]);
}

/* float16 in memory, where the machine converts it. */
TEST(test_half_conversions)
{
  (void)c;
  const Target *t = target_parse(ctx, "llvm");
  if (!target_has(t, CPU_F16C) && !target_has(t, CPU_NEON)) return;
  Cases cases = {0};
  const Var *h = var_new(m, "h", DT_F16, VAR_PLAIN);
  const Var *f = var_new(m, "f", DT_F32, VAR_PLAIN);
  add_case(&cases, 0, expr_cast(m, DT_F32, h->expr), 1, &h);
  add_case(&cases, 0, expr_cast(m, DT_F16, f->expr), 1, &f);
  add_case(&cases, 0, expr_cast(m, DT_F16, expr_add(m, expr_cast(m, DT_F32, h->expr), expr_float(m, DT_F32, 1))), 1,
           &h);
  check_cases(&cases, "llvm");
}

TEST(test_logic)
{
  (void)c;
  Cases cases = {0};
  const Var *x[] = {var_new(m, "x", DT_I32, VAR_PLAIN), var_new(m, "y", DT_F32, VAR_PLAIN),
                    var_new(m, "z", DT_BOOL, VAR_PLAIN)};
  const Expr *small = expr_lt(m, x[0]->expr, expr_i32(m, 3));
  const Expr *positive = expr_binary(m, E_GE, x[1]->expr, expr_float(m, DT_F32, 0));
  const Expr *nan = expr_call(m, DT_NONE, IN_ISNAN, 1, &x[1]->expr);
  add_case(&cases, 0, expr_and(m, small, positive), 3, x);
  add_case(&cases, 0, expr_binary(m, E_OR, small, expr_and(m, x[2]->expr, expr_not(m, nan))), 3, x);
  add_case(&cases, 0, expr_select(m, positive, expr_float(m, DT_F32, 1), x[1]->expr), 3, x);
  add_case(&cases, 0, expr_select(m, x[2]->expr, x[0]->expr, expr_i32(m, -5)), 3, x);
  const Expr *choice[] = {small, expr_binary(m, E_DIV, expr_float(m, DT_F32, 1), x[1]->expr), x[1]->expr};
  add_case(&cases, 0, expr_call(m, DT_F32, IN_IF_THEN_ELSE, 3, choice), 3, x);
  for (int i = 0; i < COUNT(both_targets); i++) check_cases(&cases, both_targets[i]);
}

TEST(test_float_functions)
{
  (void)c;
  static const Intrin exact[] = {IN_SQRT,      IN_FLOOR, IN_CEIL,  IN_TRUNC,    IN_ROUND,
                                 IN_NEARBYINT, IN_ABS,   IN_ISNAN, IN_ISFINITE, IN_ISINF};
  static const Intrin near[] = {IN_EXP,  IN_EXP2,    IN_LOG,  IN_LOG2,  IN_LOG10, IN_LOG1P, IN_RSQRT,
                                IN_TANH, IN_SIGMOID, IN_ERF,  IN_SIN,   IN_COS,   IN_ASIN,  IN_ACOS,
                                IN_ATAN, IN_SINH,    IN_COSH, IN_ASINH, IN_ACOSH, IN_ATANH, IN_EXP10};
  static const Intrin two[] = {IN_ATAN2, IN_POW, IN_FMOD, IN_HYPOT, IN_COPYSIGN, IN_NEXTAFTER};
  static const DType floats[] = {{DT_FLOAT, 32, 1}, {DT_FLOAT, 64, 1}};
  Cases cases = {0};
  for (int d = 0; d < COUNT(floats); d++) {
    double near_by = floats[d].bits == 32 ? 1e-6 : 1e-14;
    const Var *x[] = {var_new(m, "x", floats[d], VAR_PLAIN), var_new(m, "y", floats[d], VAR_PLAIN),
                      var_new(m, "z", floats[d], VAR_PLAIN)};
    const Expr *arg[] = {x[0]->expr, x[1]->expr, x[2]->expr};
    for (int i = 0; i < COUNT(exact); i++) add_case(&cases, 0, expr_call(m, DT_NONE, exact[i], 1, arg), 1, x);
    for (int i = 0; i < COUNT(near); i++) add_case(&cases, near_by, expr_call(m, DT_NONE, near[i], 1, arg), 1, x);
    for (int i = 0; i < COUNT(two); i++)
      add_case(&cases, two[i] == IN_POW || two[i] == IN_ATAN2 || two[i] == IN_HYPOT ? near_by : 0,
               expr_call(m, DT_NONE, two[i], 2, arg), 2, x);
    add_case(&cases, 0, expr_call(m, DT_NONE, IN_FMA, 3, arg), 3, x);
    const Var *y[] = {x[0], var_new(m, "n", floats[d].bits == 32 ? DT_I32 : DT_I64, VAR_PLAIN)};
    const Expr *scaled[] = {y[0]->expr, y[1]->expr};
    add_case(&cases, 0, expr_call(m, DT_NONE, IN_LDEXP, 2, scaled), 2, y);
  }
  for (int i = 0; i < COUNT(both_targets); i++) check_cases(&cases, both_targets[i]);
}

TEST(test_bits)
{
  (void)c;
  static const Intrin two[] = {IN_BITAND, IN_BITOR, IN_BITXOR, IN_SHL, IN_SHR};
  Cases cases = {0};
  for (int d = 0; d < 8; d++) {
    const Var *x[] = {var_new(m, "x", numbers[d], VAR_PLAIN), var_new(m, "y", numbers[d], VAR_PLAIN)};
    const Expr *arg[] = {x[0]->expr, x[1]->expr};
    for (int i = 0; i < COUNT(two); i++) add_case(&cases, 0, expr_call(m, DT_NONE, two[i], 2, arg), 2, x);
    add_case(&cases, 0, expr_call(m, DT_NONE, IN_BITNOT, 1, arg), 1, x);
    add_case(&cases, 0, expr_call(m, DT_NONE, IN_POPCOUNT, 1, arg), 1, x);
    add_case(&cases, 0, expr_call(m, DT_I32, IN_CLZ, 1, arg), 1, x);
    add_case(&cases, 0, expr_call(m, DT_NONE, IN_ABS, 1, arg), 1, x);
  }
  const Var *f = var_new(m, "f", DT_F32, VAR_PLAIN);
  const Var *i = var_new(m, "i", DT_I64, VAR_PLAIN);
  add_case(&cases, 0, expr_call(m, DT_I32, IN_REINTERPRET, 1, &f->expr), 1, &f);
  add_case(&cases, 0, expr_call(m, DT_F64, IN_REINTERPRET, 1, &i->expr), 1, &i);
  for (int k = 0; k < COUNT(both_targets); k++) check_cases(&cases, both_targets[k]);
}

TEST(test_fixed_point)
{
  (void)c;
  Cases cases = {0};
  const Var *x[] = {var_new(m, "x", DT_I32, VAR_PLAIN), var_new(m, "y", DT_I32, VAR_PLAIN),
                    var_new(m, "s", DT_I8, VAR_PLAIN)};
  static const int shifts[][2] = {{31, 0}, {31, -8}, {31, 5}, {15, 20}, {62, 0}, {63, 0}, {0, 0}};
  for (int i = 0; i < COUNT(shifts); i++) {
    const Expr *arg[] = {x[0]->expr, x[1]->expr, expr_i32(m, shifts[i][0]), expr_i32(m, shifts[i][1])};
    add_case(&cases, 0, expr_call(m, DT_NONE, IN_QMULSHIFT, 4, arg), 2, x);
  }
  const Expr *arg[] = {x[0]->expr, x[1]->expr, expr_i32(m, 31), expr_cast(m, DT_I32, x[2]->expr)};
  add_case(&cases, 0, expr_call(m, DT_NONE, IN_QMULSHIFT, 4, arg), 3, x);
  check_cases(&cases, "llvm");
}

/* A sum over a product rounds once where the machine has an fma, twice where not. */
TEST(test_contraction)
{
  (void)c;
  const Var *x[] = {var_new(m, "x", DT_F32, VAR_PLAIN), var_new(m, "y", DT_F32, VAR_PLAIN),
                    var_new(m, "z", DT_F32, VAR_PLAIN)};
  const Expr *arg[] = {x[0]->expr, x[1]->expr, x[2]->expr};
  Case sum = {.e = expr_add(m, arg[2], expr_mul(m, arg[0], arg[1])), .n = 3, .x = {x[0], x[1], x[2]}};
  Case fused = sum;
  fused.e = expr_call(m, DT_NONE, IN_FMA, 3, arg);
  for (int i = 0; i < COUNT(both_targets); i++)
    for (int lanes = 1; lanes <= LANES; lanes += LANES - 1) {
      const Target *t = target_parse(ctx, both_targets[i]);
      Code *code = compile(t, 1, (Kernel *[]){case_kernel(&sum, t, "contracted", lanes)});
      assert_int_equal(strstr(ir_text(code), "llvm.fmuladd") != NULL, t->fma);
      uint64_t seed = 7;
      check_case(t->fma ? &fused : &sum, find_func(codegen_llvm_jit(code), "contracted"), &seed);
    }
}

/* Every architecture takes everything: no fatal error of LLVM's hides in wait. */
TEST(test_other_machines)
{
  (void)c;
  static const char *const targets[] = {"llvm -mtriple=aarch64-linux-gnu",
                                        "llvm -mcpu=neoverse-n1",
                                        "llvm -mcpu=x86-64-v3",
                                        "llvm -mcpu=x86-64-v4",
                                        "llvm -mtriple=armv7-linux-gnueabihf -mattr=+neon",
                                        "llvm -mcpu=cortex-m4",
                                        "llvm -mtriple=riscv64-linux-gnu",
                                        "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128"};
  Cases cases = {0};
  static const DType some[] = {{DT_INT, 8, 1},  {DT_UINT, 16, 1},  {DT_INT, 32, 1},
                               {DT_INT, 64, 1}, {DT_FLOAT, 32, 1}, {DT_FLOAT, 64, 1}};
  for (int d = 0; d < COUNT(some); d++) {
    const Var *x[] = {var_new(m, "x", some[d], VAR_PLAIN), var_new(m, "y", some[d], VAR_PLAIN)};
    for (ExprKind k = E_ADD; k <= E_GE; k++)
      if (!(dtype_is_float(some[d]) && (k == E_FLOORDIV || k == E_FLOORMOD)))
        add_case(&cases, 0, expr_binary(m, k, x[0]->expr, x[1]->expr), 2, x);
    for (int b = 0; b < COUNT(some); b++)
      if (b != d) add_case(&cases, 0, expr_cast(m, some[b], x[0]->expr), 1, x);
  }
  for (int i = 0; i < COUNT(targets); i++) {
    Scope scope = scope_begin(ctx);
    const Target *t = target_parse(ctx, targets[i]);
    Kernel **k = arena_array(scratch(ctx), Kernel *, cases.n);
    for (int j = 0; j < cases.n; j++)
      k[j] = case_kernel(&cases.v[j], t, arena_printf(m->arena, "k%d", j), j % 2 ? 4 : 1);
    size_t n = 0;
    code_get(compile(t, cases.n, k), CODE_OBJECT, scratch(ctx), &n);
    assert_true(n > 1000);
    scope_end(ctx, scope);
  }
}

int main(void)
{
  /* clang-format off */
  const struct CMUnitTest tests[] = {
      ROW(test_binary),      ROW(test_min_max_with_literals), ROW(test_casts), ROW(test_half_conversions),
      ROW(test_logic),       ROW(test_float_functions),       ROW(test_bits),  ROW(test_fixed_point),
      ROW(test_contraction), ROW(test_other_machines),
  };
  /* clang-format on */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
