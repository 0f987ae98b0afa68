/* test_walk.c: questions about expressions whose operands are shared. */
#include "expr/test_parse.h"

/* x^(2^100) by squaring: 101 nodes, and 2^100 ways from the root to x.  The filter cannot tell y from x. */
static void shared_operands_are_searched_once(void **state)
{
  (void)state;
  World w = world_new("");
  const Var *x = var_new(w.m, "x", DT_I64, VAR_PLAIN);
  const Var *y = var_new(w.m, "y", DT_I64, VAR_PLAIN);
  while ((y->id - x->id) % 64) y = var_new(w.m, "y", DT_I64, VAR_PLAIN);
  const Expr *e = x->expr;
  for (int i = 0; i < 100; i++) e = expr_mul(w.m, e, e);
  assert_false(expr_uses_var(e, y));
  assert_true(expr_uses_var(e, x));
  assert_true(expr_uses_var(expr_add(w.m, e, y->expr), y));
  const Expr *mixed = expr_add(w.m, y->expr, e);
  for (int i = 0; i < 100; i++) mixed = expr_mul(w.m, mixed, mixed);
  assert_true(expr_uses_var(expr_add(w.m, e, mixed), y));
  world_free(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(shared_operands_are_searched_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
