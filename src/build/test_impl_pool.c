/* test_impl_pool.c: pooling over windows, compiled: channels side by side and small maps; windows that hang over every
 * edge, a last one of ceil_mode, distances inside a window, bands of rows for many threads; planes of unknown
 * extents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

typedef struct Case {
  const char *op;
  int64_t x[6]; /* ended by 0 */
  const char *layout, *size, *strides, *padding, *dilation, *ceil;
} Case;

#define MAX2 "nn.max_pool2d"
#define AVG2 "nn.avg_pool2d"
/* clang-format off */
static const Case channels[] = {
    {MAX2, {1, 2, 14, 12, 16}, "\"NCHW16c\"", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"},
    {MAX2, {2, 3, 7, 7, 16}, "\"NCHW16c\"", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]", "True"},
    {MAX2, {1, 1, 11, 13, 8}, "\"NCHW8c\"", "[3, 3]", "[2, 2]", "[0, 0]", "[1, 1]", "True"},
    {MAX2, {1, 2, 12, 9, 8}, "\"NCHW8c\"", "[2, 3]", "[1, 2]", "[1, 0, 0, 2]", "[2, 1]", "False"},
    {MAX2, {1, 9, 10, 37}, "\"NHWC\"", "[3, 3]", "[2, 1]", "[1, 1]", "[1, 1]", "False"},
    {MAX2, {1, 6, 7, 96}, "\"NHWC\"", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "True"},
    {"nn.max_pool1d", {2, 2, 19, 16}, "\"NCW16c\"", "[4]", "[3]", "[2, 1]", "[1]", "True"},
    {"nn.max_pool3d", {1, 1, 5, 6, 7, 8}, "\"NCDHW8c\"", "[2, 3, 3]", "[1, 2, 2]", "[1, 1, 1]", "[1, 1, 1]", "False"},
    {AVG2, {1, 2, 8, 10, 16}, "\"NCHW16c\"", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False"},
    {AVG2, {1, 2, 9, 8, 16}, "\"NCHW16c\"", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]", "False"},
    {AVG2, {2, 7, 9, 40}, "\"NHWC\"", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "True"},
};
static const Case maps[] = {
    {MAX2, {1, 6, 7, 7}, "\"NCHW\"", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]", "True"},
    {MAX2, {2, 5, 13, 14}, "\"NCHW\"", "[3, 3]", "[1, 1]", "[1, 1]", "[1, 1]", "False"},
    {MAX2, {1, 4, 9, 6}, "\"NCHW\"", "[5, 3]", "[1, 1]", "[2, 0, 1, 1]", "[1, 2]", "False"},
    {MAX2, {1, 13, 5, 5}, "\"NCHW\"", "[5]", "[1]", "[2]", "[1]", "False"},
};
/* clang-format on */

/* clang-format off */
static const Case columns[] = {
    {MAX2, {1, 3, 13, 40}, "\"NCHW\"", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"},
    {MAX2, {2, 2, 12, 38}, "\"NCHW\"", "[3, 3]", "[2, 2]", "[0, 0]", "[1, 1]", "True"},
    {MAX2, {1, 2, 9, 70}, "\"NCHW\"", "[2, 4]", "[1, 3]", "[1, 0, 0, 2]", "[1, 1]", "False"},
    {MAX2, {1, 4, 11, 44}, "\"NCHW\"", "[3, 3]", "[3, 2]", "[2, 1]", "[2, 2]", "True"},
};
/* clang-format on */

static const Node *call_of(Fn *f, const Case *c)
{
  int n = 0;
  while (n < 6 && c->x[n]) n++;
  const void *a = fn_attrs(f, c->op, "pool_size", c->size, "strides", c->strides, "padding", c->padding, "dilation",
                           c->dilation, "ceil_mode", c->ceil, "layout", c->layout, NULL);
  return CALL(f, c->op, a, fn_param(f, DT_F32, n, c->x));
}

static void check(Fn *f, const char *what, const Case *c, size_t i, const char *impl)
{
  fresh(f);
  const Node *y = call_of(f, c);
  double error = strstr(c->op, "avg") ? 1e-5 : 0;
  const char *name = arena_printf(f->m->arena, "%s %zu", what, i);
  const char *chosen = fn_check(f, name, i % 2 ? CALL(f, "nn.relu", NULL, y) : y, 0, error);
  if (impl) want_impl(f, name, chosen, impl);
}

static void channels_computed(Fn *f)
{
  for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
    check(f, "channels", &channels[i], i, "pool.channels");
}

/* Tiles and bands that the model would not choose are right as well. */
static void plans_computed(Fn *f)
{
  enum { EVERY = 7 };
  for (size_t i = 3; i < 5; i++) {
    int plans = EVERY;
    for (int p = 0; p < plans; p += EVERY) {
      fresh(f);
      const Node *call = fn_body(graph_infer(f->m, fn_done(f, call_of(f, &channels[i]))));
      ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
      PlanList list;
      impl_plans(&of, &list);
      plans = list.v.n;
      assert_true(plans > 1);
      const char *text = plan_text(f->m->arena, &list.v.v[p]);
      want_impl(f, text, fn_check(f, text, node_call_planned(f->m, call, text), 0, 0), "pool.channels");
    }
  }
}

/* On a machine with slow memory and many cores every map is cut into bands. */
static void bands_computed(Fn *f)
{
  Target slow = *f->target;
  const Target *own = f->target;
  slow.num_cores = 8;
  slow.core.memory_gbs = 0.01;
  f->target = &slow;
  for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) check(f, "bands", &channels[i], i, "pool.channels");
  f->target = own;
}

static void columns_computed(Fn *f)
{
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) check(f, "columns", &columns[i], i, "pool.columns");
}

static void maps_computed(Fn *f)
{
  bool wide = target_lanes(f->target, 32) >= 16; /* a row does not fill such vectors */
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) check(f, "map", &maps[i], i, wide ? "pool.map" : NULL);
}

/* The mean of a plane whose extents are not known goes in vectors of channels. */
static void open_planes_computed(Fn *f)
{
  for (int64_t size = 1; size <= 9; size += 4) {
    fresh(f);
    const Expr *n = var_expr(var_new(f->m, "n", DT_I32, VAR_SIZE));
    const Expr *shape[] = {expr_i32(f->m, 2), expr_i32(f->m, 3), n, n, expr_i32(f->m, 8)};
    const Node *x = f->param[f->n++] = node_var(f->m, "x", type_tensor(f->m, DT_F32, 5, shape));
    const void *a = fn_attrs(f, "nn.global_avg_pool2d", "layout", "\"NCHW8c\"", NULL);
    const Node *y = CALL(f, "nn.global_avg_pool2d", a, x);
    fn_check(f, "open plane", y, size, 1e-5);
    Module *dst = module_new(f->ctx);
    ImplResult r;
    const char *text = func_print(f->m->arena, fn_lower(f, dst, fn_done(f, y), &r));
    const char *first = strstr(text, "adaptive_pool_sum_init"); /* stands before the loops of the sum … */
    const char *lanes = strstr(text, "T.vectorized");           /* … in vectors */
    if (!lanes || !first || lanes > first) raise(f->ctx, ERR_INTERNAL, NOWHERE, "the sum is not in vectors:\n%s", text);
    module_release(dst);
  }
}

#define CASE(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    on_targets(name);                   \
  }
CASE(channels_computed)
static void test_plans_computed(void **state)
{
  (void)state;
  run_job(plans_computed, "llvm");
}
static void test_bands_computed(void **state)
{
  (void)state;
  run_job(bands_computed, "llvm");
}
CASE(maps_computed)
CASE(open_planes_computed)
CASE(columns_computed)

int main(int argc, char **argv)
{
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_channels_computed),    cmocka_unit_test(test_bands_computed),
    cmocka_unit_test(test_maps_computed),        cmocka_unit_test(test_columns_computed),
    cmocka_unit_test(test_open_planes_computed), cmocka_unit_test(test_plans_computed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
