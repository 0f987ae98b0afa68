/* test_bounds.c: constant bounds, residues, symbolic bounds, linear forms. */
#include "expr/test_parse.h"

#define NONE_BELOW INT64_MIN
#define NONE_ABOVE INT64_MAX

static const struct {
  const char *domain, *assume, *e;
  int64_t min, max;
  /* clang-format off */
} bounds[] = {
    {"i:8", "", "i", 0, 7},
    {"i:3..9", "", "i*4 - 1", 11, 35},
    {"i:8 j:4", "", "i - j", -3, 7},
    {"i:8", "", "i - i", 0, 0},
    {"i:8", "", "i*3 - i", 0, 14},
    {"n:size", "", "n", 0, NONE_ABOVE},
    {"x:any", "", "x", NONE_BELOW, NONE_ABOVE},
    {"x:any", "", "x%8", 0, 7},
    {"x:any", "", "x*4%8", 0, 4},
    {"i:3..5", "", "i%8", 3, 5},
    {"i:6..9", "", "i%8", 0, 7},
    {"i:-9..-1", "", "i//4", -3, -1},
    {"i:-9..-1", "", "i/4", -2, 0},
    {"i:-9..9", "", "i mod 4", -3, 3},
    {"i:-9..9", "", "abs(i)", 0, 9},
    {"i:8 j:8", "", "min(i, j + 2)", 0, 7},
    {"i:8 j:8", "", "max(i, j + 2)", 2, 9},
    {"i:8 x:any", "", "select(x < 0, i, 100)", 0, 100},
    {"i:8", "", "i < 3", 0, 1},
    {"i:-3..2", "", "i*i", 0, 9},
    {"i:8", "i < 3", "i", 0, 2},
    {"i:8", "i >= 3 and i != 3", "i", 4, 7},
    {"i:32 j:32", "i*32 + j < 1000", "i", 0, 31},
    {"i:32 j:32", "i*32 + j < 100", "i", 0, 3},
    {"i:32 j:32", "i*32 + j < 100", "i*32 + j", 0, 99},
    {"i:32 j:32", "i*32 + j < 100", "i*64 + j*2 + 1", 1, 199},
    {"n:size i:n", "n < 10", "i", 0, 8},
    {"x:any", "x == 7", "x*2", 14, 14},
    {"i:8", "", "int64(i)*5", 0, 35},
    {"i:8", "", "ramp(i*8, 2, 4)", 0, 62},
    {"i:8 n:size", "", "i//n", 0, 7},
    {"i:8 n:size", "", "i%n", 0, 7},
};
/* clang-format on */

static void constant_bounds(void **state)
{
  (void)state;
  for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
    World w = world_new(bounds[k].domain);
    if (*bounds[k].assume) analyzer_push(w.a, parse_text(&w, bounds[k].assume));
    Interval b = analyzer_bounds(w.a, parse_text(&w, bounds[k].e));
    if (b.min != bounds[k].min || b.max != bounds[k].max)
      fail_msg("%s [%s] %s: got %lld..%lld", bounds[k].domain, bounds[k].assume, bounds[k].e, (long long)b.min,
               (long long)b.max);
    world_free(&w);
  }
}

static void bounds_of_other_integers(void **state)
{
  (void)state;
  World w = world_new("");
  const Expr *x = var_new(w.m, "x", DT_U8, VAR_PLAIN)->expr;
  const Expr *y = var_new(w.m, "y", DT_I8, VAR_PLAIN)->expr;
  Interval b = analyzer_bounds(w.a, x);
  assert_int_equal(b.min, 0);
  assert_int_equal(b.max, 255);
  b = analyzer_bounds(w.a, expr_add(w.m, x, x)); /* wraps: no better than the dtype */
  assert_int_equal(b.max, 255);
  b = analyzer_bounds(w.a, expr_cast(w.m, DT_I32, y));
  assert_int_equal(b.min, -128);
  b = analyzer_bounds(w.a, expr_mul(w.m, expr_cast(w.m, DT_I32, y), expr_i32(w.m, 2)));
  assert_int_equal(b.min, -256);
  assert_int_equal(b.max, 254);
  world_free(&w);
}

static const struct {
  const char *domain, *assume, *e;
  int64_t coeff, base;
  /* clang-format off */
} residues[] = {
    {"i:any", "", "i", 1, 0},
    {"i:any", "", "i*4 + 3", 4, 3},
    {"i:any j:any", "", "i*4 + j*6 + 1", 2, 1},
    {"i:any", "", "i*12//4", 3, 0},
    {"i:any", "", "i*12%8", 4, 0},
    {"i:any", "", "7", 0, 7},
    {"i:any x:any", "", "select(x < 0, i*4, i*6 + 2)", 2, 0},
    {"i:any j:any", "", "(i*2)*(j*3)", 6, 0},
    {"i:any", "i%8 == 5", "i", 8, 5},
    {"i:any", "i%8 == 5", "i*2 + 1", 16, 11},
    {"i:any j:any", "(i + j)%4 == 1", "i + j + 2", 4, 3},
    {"i:any", "", "int64(i)*4", 4, 0},
    {"i:any", "", "max(i*4, 8)", 4, 0},
};
/* clang-format on */

static void modular_sets(void **state)
{
  (void)state;
  for (size_t k = 0; k < sizeof residues / sizeof *residues; k++) {
    World w = world_new(residues[k].domain);
    if (*residues[k].assume) analyzer_push(w.a, parse_text(&w, residues[k].assume));
    Modular m = analyzer_modular(w.a, parse_text(&w, residues[k].e));
    if (m.coeff != residues[k].coeff || m.base != residues[k].base)
      fail_msg("%s [%s] %s: got %lld*n + %lld", residues[k].domain, residues[k].assume, residues[k].e,
               (long long)m.coeff, (long long)m.base);
    world_free(&w);
  }
}

/* The relaxed variables are the last `n` of the domain. */
static const struct {
  const char *domain;
  int n;
  const char *e, *min, *max;
  /* clang-format off */
} relaxed[] = {
    {"x:any i:8", 1, "x*8 + i", "x*8", "x*8 + 7"},
    {"x:any i:8", 1, "x*8 - i*2", "x*8 - 14", "x*8"},
    {"yo:28 yi:4 r:3", 2, "(yo*4 + yi)*2 + r", "yo*8", "yo*8 + 8"},
    {"n:size i:n", 1, "i", "0", "n - 1"},
    {"n:size i:n j:i", 2, "j", "0", "n - 2"},
    {"n:size m:size i:n j:m", 2, "i*m + j", "0", "n*m - 1"},
    {"x:any i:8", 1, "(x*8 + i)//4", "x*2", "x*2 + 1"},
    {"x:any i:16", 1, "(x*32 + i)%32", "0", "15"},
    {"x:any i:64", 1, "(x + i)%32", "0", "31"},
    {"x:any i:8", 1, "min(x + i, 20)", "min(x, 20)", "min(x + 7, 20)"},
    {"x:any i:8", 1, "max(x - i, 0)", "max(x - 7, 0)", "max(x, 0)"},
    {"n:size i:n", 1, "i*n", "0", "n*(n - 1)"},
    {"x:any i:8", 1, "int64(i) + 3", "3", "10"},
};
/* clang-format on */

static void symbolic_bounds(void **state)
{
  (void)state;
  for (size_t k = 0; k < sizeof relaxed / sizeof *relaxed; k++) {
    World w = world_new(relaxed[k].domain);
    const Expr *min, *max;
    const Expr *e = parse_text(&w, relaxed[k].e);
    if (!analyzer_relax(w.a, e, relaxed[k].n, w.order.v + w.order.n - relaxed[k].n, &min, &max))
      fail_msg("%s: not found", relaxed[k].e);
    const char *lo = world_text(&w, min);
    const char *hi = world_text(&w, max);
    if (strcmp(lo, relaxed[k].min) || strcmp(hi, relaxed[k].max)) fail_msg("%s: got %s .. %s", relaxed[k].e, lo, hi);
    world_free(&w);
  }
}

static void relaxing_what_has_no_range_fails(void **state)
{
  (void)state;
  World w = world_new("x:any i:8");
  const Expr *min, *max;
  assert_false(analyzer_relax(w.a, parse_text(&w, "x + i"), 2, w.order.v, &min, &max));
  world_free(&w);
}

static void linear_forms(void **state)
{
  (void)state;
  World w = world_new("n:size i:any j:any");
  const Var *const *vars = w.order.v + 1;
  const Expr *c[3];
  assert_true(expr_linear(w.a, parse_text(&w, "(i*n + j)*4 - i + 7"), 2, vars, c));
  assert_string_equal(world_text(&w, c[0]), "n*4 - 1");
  assert_string_equal(world_text(&w, c[1]), "4");
  assert_string_equal(world_text(&w, c[2]), "7");
  assert_true(expr_linear(w.a, parse_text(&w, "n//2 + i*(n%4)"), 2, vars, c));
  assert_string_equal(world_text(&w, c[0]), "n%4");
  assert_string_equal(world_text(&w, c[1]), "0");
  assert_false(expr_linear(w.a, parse_text(&w, "i*j"), 2, vars, c));
  assert_false(expr_linear(w.a, parse_text(&w, "i//2"), 2, vars, c));
  world_free(&w);
}

static void proofs(void **state)
{
  (void)state;
  /* clang-format off */
  static const struct { const char *domain, *assume, *e; bool yes; } cases[] = {
      {"n:size io:((n + 31)//32) ii:32", "", "io*32 + ii < (n + 31)//32*32", true},
      {"n:size io:((n + 31)//32)", "", "io*32 < n", true},
      {"n:size io:((n + 31)//32)", "", "io*32 + 31 < n", false},
      {"n:size i:any", "i*32 < n", "i < (n + 31)//32", true},
      {"n:size m:size i:n j:m k:8", "", "(i*m + j)*8 + k < n*m*8", true},
      {"n:size m:size i:n j:m k:8", "", "(i*m + j)*8 + k < n*m*8 - 1", false},
      {"x:any y:any", "x < y", "x*3 + 3 <= y*3", true},
      {"x:any y:any", "x < y", "x*3 + 4 <= y*3", false},
      {"x:any y:any z:any", "x <= y and y <= z and z <= x", "x == y", true},
      {"n:size i:n", "", "min(i + 32, n) <= n", true},
      {"n:size i:n", "", "min(32, n - i) >= 1", true},
      {"n:size x:any", "", "x%(n + 1) <= n", true},
      {"n:size", "", "n//4*4 <= n", true},
      {"n:size", "", "n < n//4*4 + 4", true},
      {"n:size m:size", "m > 0", "n//m*m <= n", true},
  };
  /* clang-format on */
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    World w = world_new(cases[k].domain);
    if (*cases[k].assume) analyzer_push(w.a, parse_text(&w, cases[k].assume));
    if (analyzer_prove(w.a, parse_text(&w, cases[k].e)) != cases[k].yes)
      fail_msg("[%s] %s was%s proved", cases[k].assume, cases[k].e, cases[k].yes ? " not" : "");
    world_free(&w);
  }
}

static void equal_by_proof(void **state)
{
  (void)state;
  World w = world_new("n:size i:any");
  assert_true(analyzer_prove_equal(w.a, parse_text(&w, "(i + 1)*(n + 1)"), parse_text(&w, "i*n + i + n + 1")));
  assert_true(analyzer_prove_equal(w.a, parse_text(&w, "(n + 7)//8"), parse_text(&w, "(n - 1)//8 + 1")));
  assert_false(analyzer_prove_equal(w.a, parse_text(&w, "n//8*8"), parse_text(&w, "n")));
  world_free(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(constant_bounds),
    cmocka_unit_test(bounds_of_other_integers),
    cmocka_unit_test(modular_sets),
    cmocka_unit_test(symbolic_bounds),
    cmocka_unit_test(relaxing_what_has_no_range_fails),
    cmocka_unit_test(linear_forms),
    cmocka_unit_test(proofs),
    cmocka_unit_test(equal_by_proof),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
