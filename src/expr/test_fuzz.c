/* test_fuzz.c: the fuzzer's harness on a fixed list of seeds, and every rule once more. */
#include "expr/fuzz_simplify.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void seeds_hold(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 6000; seed++) {
    const char *wrong = fuzz_once(NULL, 0, seed * 0x9e3779b97f4a7c15u);
    if (wrong) fail_msg("%s", wrong);
  }
  /* Detection must stay strong, not only right: most true maps are recognised. */
  assert_true(fuzz_accepted * 100 > fuzz_true_maps * 60);
}

static void every_rule(Ctx *ctx, void *arg)
{
  Fuzz *f = arg;
  (void)ctx;
  f->a = analyzer_new(f->m, NULL);
  for (int rule = 0; rule < rules_count() && !f->message[0]; rule++)
    for (int i = 0; i < 40 && !f->message[0]; i++) fuzz_rule(f, rule);
}

static void rules_hold(void **state)
{
  (void)state;
  Fuzz f = {.seed = 7};
  f.ctx = ctx_new();
  f.m = module_new(f.ctx);
  f.env = (EvalEnv){.m = f.m, .arena = f.m->arena};
  assert_int_equal(protect(f.ctx, every_rule, &f), ERR_NONE);
  if (f.message[0]) fail_msg("%s", f.message);
  assert_true(rules_count() > 100);
  module_release(f.m);
  ctx_free(f.ctx);
}

/* A rule whose condition no instance ever meets would be tested by nothing. */
static void every_rule_has_instances(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  Module *m = module_new(ctx);
  for (int rule = 0; rule < rules_count(); rule++) {
    uint64_t seed = 11;
    const Expr *l, *r;
    const Var **vars;
    int n;
    int found = 0;
    for (int i = 0; i < 2000 && !found; i++) found = rules_instance(m, rule, &seed, &l, &r, &n, &vars);
    if (!found) fail_msg("%s: no instance", rules_text(m->arena, rule));
  }
  module_release(m);
  ctx_free(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(seeds_hold),
    cmocka_unit_test(rules_hold),
    cmocka_unit_test(every_rule_has_instances),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
