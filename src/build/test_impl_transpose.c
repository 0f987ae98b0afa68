/* test_impl_transpose.c: transposed convolutions: what a plan makes of a call means the same and is computed so, with
 * an epilogue on it.  Any channels, groups, strides, kernels, dilation; one to three dimensions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

typedef struct Case {
  const char *op;
  int64_t x[6], w[6]; /* ended by 0 */
  const char *groups, *strides, *padding, *dilation, *more;
} Case;

#define T1 "nn.conv1d_transpose"
#define T2 "nn.conv2d_transpose"
#define T3 "nn.conv3d_transpose"

/* Channels that come in blocks; odd ones, groups narrow and wide, a kernel that the
 * stride divides, does not divide, is larger than; padding that differs by side, outputs at the end without a tap,
 * dilation with and without a divisor of the stride, phases too many to write out, one and three dimensions. */
/* clang-format off */
static const Case cases[] = {
    {T2, {2, 32, 5, 7}, {32, 16, 3, 3}, "1", "[2, 2]", "[1, 1]", "[1, 1]", "[1, 0]"},
    {T2, {1, 64, 4, 5}, {64, 32, 3, 3}, "2", "[2, 1]", "[1, 1]", "[1, 1]", "[0, 0]"},
    {T2, {1, 16, 1, 1}, {16, 32, 4, 4}, "1", "[1, 1]", "[0, 0]", "[1, 1]", "[0, 0]"},
    {T3, {1, 16, 3, 4, 4}, {16, 16, 3, 2, 2}, "1", "[2, 2, 2]", "[1, 0, 0]", "[1, 1, 1]", "[0, 0, 0]"},
    {T2, {1, 5, 7, 6}, {5, 3, 2, 2}, "1", "[2, 2]", "[0, 0]", "[1, 1]", "[0, 0]"},
    {T2, {2, 7, 5, 7}, {7, 11, 3, 3}, "1", "[2, 2]", "[1, 1]", "[1, 1]", "[1, 0]"},
    {T2, {1, 19, 13, 12}, {19, 23, 4, 4}, "1", "[3, 3]", "[0, 0]", "[1, 1]", "[0, 2]"},
    {T2, {2, 8, 9, 9}, {8, 33, 3, 3}, "2", "[3, 3]", "[0, 0]", "[1, 1]", "[0, 0]"},
    {T2, {1, 43, 7, 7}, {43, 11, 2, 2}, "1", "[2, 2]", "[1, 1]", "[1, 1]", "[0, 0]"},
    {T2, {1, 9, 6, 5}, {9, 5, 5, 5}, "3", "[2, 2]", "[1, 0, 3, 2]", "[1, 1]", "[0, 1]"},
    {T2, {1, 10, 8, 11}, {10, 7, 2, 2}, "1", "[3, 3]", "[1, 1]", "[1, 1]", "[2, 2]"},
    {T2, {1, 7, 5, 6}, {7, 1, 3, 3}, "7", "[2, 2]", "[1, 1]", "[1, 1]", "[1, 1]"},
    {T2, {1, 5, 6, 7}, {5, 9, 3, 3}, "1", "[2, 2]", "[1, 1]", "[3, 3]", "[1, 1]"},
    {T2, {1, 5, 6, 7}, {5, 9, 3, 3}, "1", "[2, 2]", "[1, 1]", "[2, 2]", "[1, 1]"},
    {T2, {1, 3, 4, 5}, {3, 5, 7, 6}, "1", "[5, 4]", "[2, 1]", "[1, 1]", "[3, 0]"},
    {T2, {1, 6, 5, 5}, {6, 9, 3, 4}, "1", "[1, 2]", "[3, 0]", "[1, 1]", "[0, 0]"},
    {T2, {1, 6, 4, 4}, {6, 9, 2, 3}, "1", "[1, 1]", "[3, 0, 0, 1]", "[1, 1]", "[0, 0]"},
    {T1, {2, 13, 37}, {13, 5, 5}, "1", "[3]", "[1, 2]", "[1]", "[1]"},
    {T1, {1, 3, 300}, {3, 1, 16}, "3", "[8]", "[4, 4]", "[1]", "[0]"},
    {T3, {1, 5, 3, 4, 5}, {5, 7, 3, 2, 3}, "1", "[2, 2, 1]", "[1, 0, 1]", "[1, 1, 1]", "[1, 0, 0]"},
    {T3, {2, 6, 3, 3, 4}, {6, 3, 2, 4, 4}, "2", "[2, 2, 2]", "[0, 1, 1]", "[1, 1, 1]", "[0, 0, 0]"},
};
/* clang-format on */
enum { NCASES = sizeof cases / sizeof *cases };

static int rank(const int64_t *shape)
{
  int n = 0;
  while (n < 6 && shape[n]) n++;
  return n;
}

static const Node *call_of(Fn *f, const Case *c)
{
  const Node *x = fn_param(f, DT_F32, rank(c->x), c->x);
  const Node *w = fn_param(f, DT_F32, rank(c->w), c->w);
  const void *a = fn_attrs(f, c->op, "groups", c->groups, "strides", c->strides, "padding", c->padding, "dilation",
                           c->dilation, "output_padding", c->more, NULL);
  return CALL(f, c->op, a, x, w);
}

static const Node *moved(Fn *f, const Node *n, LayoutPair l)
{
  if (!l.to) return n;
  Arena *a = ctx_arena(f->ctx);
  const void *attrs = fn_attrs(f, "layout_transform", "src_layout", arena_printf(a, "\"%s\"", l.from), "dst_layout",
                               arena_printf(a, "\"%s\"", l.to), NULL);
  return CALL(f, "layout_transform", attrs, n);
}

/* The call of case i in a fresh function, and what plan number k of EACH, over all that there are, makes of it. */
enum { EACH = 6 };
static const Node *altered(Fn *f, size_t i, int k, const Plan **plan, AlteredCall *to)
{
  fresh(f);
  const Node *call = call_of(f, &cases[i]);
  ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
  PlanList list;
  impl_plans(&of, &list);
  if (list.v.n < EACH) raise(f->ctx, ERR_INTERNAL, NOWHERE, "case %zu has %d plans", i, list.v.n);
  *plan = &list.v.v[k * (list.v.n - 1) / (EACH - 1)];
  impl_alter(&of, *plan, to);
  return call;
}

static const char *name_of(Fn *f, size_t i, const Plan *p)
{
  return arena_printf(ctx_arena(f->ctx), "case %zu, %s", i, plan_text(ctx_arena(f->ctx), p));
}

static void meaning_kept(Fn *f)
{
  for (size_t i = 0; i < NCASES; i++)
    for (int k = 0; k < EACH; k++) {
      const Plan *p;
      AlteredCall to;
      const Node *call = altered(f, i, k, &p, &to);
      const Node *arg[] = {moved(f, to.arg[0], to.in[0]), to.arg[1]};
      const Node *y = node_call(f->m, to.op, 2, arg, to.attrs, NULL);
      fn_same(f, name_of(f, i, p), call, moved(f, y, (LayoutPair){to.out.to, to.out.from}), 1e-5);
    }
}

/* Behind every second and third of the cases a bias and what may follow it: an activation that reads twice, a
 * residual. */
static const Node *followed(Fn *f, size_t i, const Node *y)
{
  int64_t bias[6];
  int nd = y->type->ndim;
  for (int d = 1; d < nd; d++)
    bias[d - 1] = d == 1 || (nd > rank(cases[i].x) && d == nd - 1) ? y->type->shape[d]->u.i : 1;
  if (i % 3) y = CALL(f, "add", NULL, y, fn_param(f, DT_F32, nd - 1, bias));
  if (i % 3 == 1) y = CALL(f, "multiply", NULL, y, CALL(f, "sigmoid", NULL, y));
  if (i % 3 == 2)
    y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, f->param[f->n++] = node_var(f->m, "r", y->type)));
  return y;
}

static void plans_computed(Fn *f)
{
  for (size_t i = 0; i < NCASES; i++)
    for (int k = 0; k < EACH; k++) {
      const Plan *p;
      AlteredCall to;
      altered(f, i, k, &p, &to);
      const char *what = name_of(f, i, p);
      const Type *x = moved(f, to.arg[0], to.in[0])->type;
      f->n = 0;
      const Node *data = f->param[f->n++] = node_var(f->m, "x", x);
      const Node *weight = f->param[f->n++] = node_var(f->m, "w", to.arg[1]->type);
      const Node *y = node_call(f->m, to.op, 2, (const Node *[]){data, weight}, to.attrs, NULL);
      y = followed(f, i, node_call_planned(f->m, y, to.plan));
      want_impl(f, what, fn_check(f, what, y, 0, 1e-5), p->impl->name);
    }
}

/* Extents of images, signals and volumes that the kernel learns when it runs, all of them n or n and a known one. */
static void open_sizes(Fn *f)
{
  static const size_t some[] = {6, 9, 11, 13, 14, 17, 19};
  enum { NSOME = sizeof some / sizeof *some, PLANS = 2 };
  for (size_t i = 0; i < NSOME * PLANS; i++) {
    const Case *c = &cases[some[i / PLANS]];
    int k = (int)(i % PLANS);
    fresh(f);
    int nd = rank(c->x);
    const Expr *n = var_expr(var_new(f->m, "n", DT_I32, VAR_SIZE));
    const Expr *shape[6] = {n, expr_i32(f->m, c->x[1])};
    for (int d = 2; d < nd; d++) shape[d] = d == 2 && i % 2 ? expr_i32(f->m, c->x[d]) : n;
    const Node *x = f->param[f->n++] = node_var(f->m, "x", type_tensor(f->m, DT_F32, nd, shape));
    const Node *w = fn_param(f, DT_F32, rank(c->w), c->w);
    const void *a = fn_attrs(f, c->op, "groups", c->groups, "strides", c->strides, "padding", c->padding, "dilation",
                             c->dilation, "output_padding", c->more, NULL);
    const Node *call = CALL(f, c->op, a, x, w);
    ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
    PlanList list;
    AlteredCall to;
    impl_plans(&of, &list);
    if (list.v.n < PLANS) raise(f->ctx, ERR_INTERNAL, NOWHERE, "open case %zu has %d plans", i, list.v.n);
    const Plan *p = &list.v.v[(1 + 2 * k) * (list.v.n - 1) / (2 * PLANS)];
    impl_alter(&of, p, &to);
    f->n = 1;
    const Node *weight = f->param[f->n++] = node_var(f->m, "w", to.arg[1]->type);
    const Node *y = node_call(f->m, to.op, 2, (const Node *[]){x, weight}, to.attrs, NULL);
    y = CALL(f, "sigmoid", NULL, node_call_planned(f->m, y, to.plan));
    for (int64_t size = 5; size < 30; size += 18) {
      const char *what = arena_printf(ctx_arena(f->ctx), "open %d, %s", (int)size, name_of(f, some[i / PLANS], p));
      want_impl(f, what, fn_check(f, what, y, size, 1e-5), p->impl->name);
    }
  }
}

static void test_meaning_kept(void **state)
{
  (void)state;
  run_job(meaning_kept, "llvm");
}
static void test_plans_computed(void **state)
{
  (void)state;
  on_targets(plans_computed);
}
static void test_open_sizes(void **state)
{
  (void)state;
  on_targets(open_sizes);
}

int main(int argc, char **argv)
{
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_meaning_kept), cmocka_unit_test(test_plans_computed),
                                     cmocka_unit_test(test_open_sizes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
