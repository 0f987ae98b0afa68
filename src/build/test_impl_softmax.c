/* test_impl_softmax.c: softmax and log_softmax of many short rows at once, compiled: every number of rows that is
 * turned together, last rows that lie over those before, elements behind the axis, several dimensions before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

typedef struct Case {
  const char *op;
  int64_t x[5]; /* ended by 0 */
  const char *axis;
} Case;

static const Case cases[] = {
  {"nn.softmax", {96, 5}, "1"},      {"nn.softmax", {131, 13}, "-1"},       {"nn.softmax", {70, 3, 4}, "1"},
  {"nn.softmax", {5, 7, 6, 2}, "2"}, {"nn.softmax", {3, 5, 2, 3, 3}, "2"},  {"nn.log_softmax", {67, 7}, "1"},
  {"nn.softmax", {66, 21}, "1"},     {"nn.log_softmax", {9, 8, 3, 2}, "2"}, {"nn.log_softmax", {64, 2}, "-1"},
};

/* Every plan there is; a case that has none on this target asks nothing. */
static int check(Fn *f, const Case *c, size_t i, DType dtype, double error)
{
  int n = 0;
  int plans = 0;
  while (n < 5 && c->x[n]) n++;
  for (int p = 0; !p || p < plans; p++) {
    fresh(f);
    const Node *call = CALL(f, c->op, fn_attrs(f, c->op, "axis", c->axis, NULL), fn_param(f, dtype, n, c->x));
    call = fn_body(graph_infer(f->m, fn_done(f, call)));
    ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
    PlanList list;
    impl_plans(&of, &list);
    plans = list.v.n;
    if (!plans) return 0;
    const char *text = plan_text(f->m->arena, &list.v.v[p]);
    const char *name = arena_printf(f->m->arena, "%zu %s", i, text);
    want_impl(f, name, fn_check(f, name, node_call_planned(f->m, call, text), 0, error), "softmax.turned");
  }
  return plans;
}

static void rows_computed(Fn *f)
{
  int plans = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) plans += check(f, &cases[i], i, DT_F32, 1e-5);
  if (target_lanes(f->target, 32) >= 4) assert_true(plans >= 6);
}

static void half_computed(Fn *f)
{
  for (size_t i = 0; i < 6; i++) check(f, &cases[i], i, DT_F16, 2e-3);
}

/* Rows whose vectors are all whole, and rows longer than the cache is wide, go one after the other. */
static void long_rows_left(Fn *f)
{
  static const int64_t x[][2] = {{100, 512}, {100, 100000}, {2, 5}};
  for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
    fresh(f);
    const Node *call =
        CALL(f, "nn.softmax", fn_attrs(f, "nn.softmax", "axis", "1", NULL), fn_param(f, DT_F32, 2, x[i]));
    ImplCall of = {f->m, f->m->arena, f->target, &f->config, fn_body(graph_infer(f->m, fn_done(f, call)))};
    PlanList list;
    impl_plans(&of, &list);
    assert_int_equal(list.v.n, 0);
  }
}

#define CASE(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    on_targets(name);                   \
  }
CASE(rows_computed)
CASE(half_computed)
CASE(long_rows_left)

int main(int argc, char **argv)
{
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_computed), cmocka_unit_test(test_half_computed),
                                     cmocka_unit_test(test_long_rows_left)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
