/* test_products.c: plans of matrix products: any size has many, they read back, and the one that is chosen fits. */
#include "impl/cpu/test_targets.h"

typedef struct ProductCase {
  const Target *target;
  const char *text;    /* of the function */
  int plans;           /* out */
  double seconds;      /* out: of the plan that is chosen */
  int64_t width, rows; /* out: of the plan that is chosen; 0: none */
} ProductCase;

static int64_t plan_number(const Plan *p, const char *name)
{
  const AttrField *f = attrs_field(p->impl->plan, name);
  return *(const int64_t *)((const char *)p->fields + f->offset);
}

/* Every plan reads back as itself; a value that no plan has is refused. */
static void product_body(Ctx *ctx, void *arg)
{
  ProductCase *c = arg;
  Module *m = module_new(ctx);
  ImplConfig config = {0};
  ImplCall call = {m, m->arena, c->target, &config, fn_body(graph_infer(m, graph_parse_expr(m, c->text, "test")))};
  PlanList list;
  impl_plans(&call, &list);
  c->plans = list.v.n;
  const Plan *best = NULL;
  for (int i = 0; i < list.v.n; i++) {
    const Plan *p = &list.v.v[i];
    assert_true(p->seconds > 0);
    if (!best || p->seconds < best->seconds) best = p;
  }
  if (best) {
    const char *text = plan_text(m->arena, best);
    Plan again = plan_parse(&call, text);
    assert_string_equal(plan_text(m->arena, &again), text);
    c->seconds = best->seconds;
    c->width = plan_number(best, "width");
    c->rows = plan_number(best, "rows");
  }
  module_release(m);
}

static void product_plans(Ctx *ctx, ProductCase *c)
{
  if (protect(ctx, product_body, c)) fail_msg("%s: %s", c->text, error_message(ctx));
}

static const char *dense_text(Arena *a, int rows, int k, int n, bool constant)
{
  return constant ? arena_printf(a,
                                 "fn (%%x: Tensor[(%d, %d), float32]) { nn.matmul(%%x, zeros(shape=[%d, %d], "
                                 "dtype=\"float32\")) }",
                                 rows, k, k, n)
                  : arena_printf(a,
                                 "fn (%%x: Tensor[(%d, %d), float32], %%w: Tensor[(%d, %d), float32]) { "
                                 "nn.matmul(%%x, %%w) }",
                                 rows, k, k, n);
}

/* Sizes that no vector divides: weights known at compile time come in panels, whole vectors wide, and what the last one
 * has too much is little of many columns. */
static void products_of_any_size(void **state)
{
  static const int sizes[][3] = {{24, 58, 209}, {1, 900, 613},   {6, 320, 1273}, {242, 1315, 30},   {1833, 403, 168},
                                 {5, 7, 11},    {513, 61, 3031}, {3, 3517, 97},  {1024, 1024, 1024}};
  Ctx *ctx = *state;
  for (int i = 0; i < TARGETS; i++) {
    int many = 0;
    int cases = sizeof sizes / sizeof *sizes;
    double input = 0;
    for (int s = 0; s < cases; s++)
      for (int constant = 0; constant < 2; constant++) {
        const int *z = sizes[s];
        ProductCase c = {.target = target[i], .text = dense_text(ctx_arena(ctx), z[0], z[1], z[2], constant)};
        product_plans(ctx, &c);
        many += c.plans >= 30;
        int64_t lanes = target_lanes(target[i], 32);
        assert_true(c.width > 0 && c.width % lanes == 0 && c.rows > 0 && c.rows <= z[0]);
        if (constant) assert_true(c.seconds <= input); /* a weight that is known is never slower */
        input = c.seconds;
        int64_t vectors = c.width / lanes;
        assert_true(vectors * c.rows + vectors < target[i]->vector_registers);
        if (z[2] > 1000 && constant) assert_true(8 * ((z[2] + c.width - 1) / c.width * c.width - z[2]) <= z[2]);
      }
    assert_true(many > cases);
  }
}

/* Rows, a batch or the length of the sum that are known only at run time. */
static void products_of_open_size(void **state)
{
  static const char *const text[] = {
    "fn (%x: Tensor[(n, 77), float32]) { nn.matmul(%x, zeros(shape=[77, 51], dtype=\"float32\")) }",
    "fn (%x: Tensor[(n, 9, 33), float32], %y: Tensor[(n, 33, 50), float32]) { nn.batch_matmul(%x, %y, "
    "transpose_b=False) }",
    "fn (%x: Tensor[(n, k), float32], %y: Tensor[(k, 50), float32]) { nn.matmul(%x, %y) }",
  };
  for (int i = 0; i < TARGETS; i++)
    for (size_t s = 0; s < sizeof text / sizeof *text; s++) {
      ProductCase c = {.target = target[i], .text = text[s]};
      product_plans(*state, &c);
      assert_true(c.plans >= 4);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(products_of_any_size),
    cmocka_unit_test(products_of_open_size),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
