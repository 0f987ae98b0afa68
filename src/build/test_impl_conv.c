/* test_impl_conv.c: convolutions of every kind, one to three dimensions, groups, transposed: what AlterOpLayout makes
 * of them means the same, and the implementation over blocks gives what is meant, with an epilogue on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

typedef struct Case {
  const char *op;
  int64_t x[6], w[6]; /* ended by 0 */
  const char *groups, *strides, *padding, *dilation, *more;
  const char *impls; /* those that may be taken */
} Case;

#define C1 "nn.conv1d"
#define C2 "nn.conv2d"
#define C3 "nn.conv3d"
#define T1 "nn.conv1d_transpose"
#define T2 "nn.conv2d_transpose"
#define T3 "nn.conv3d_transpose"
static const Case cases[] = {
  {C1, {1, 16, 37}, {32, 16, 5}, "1", "[1]", "[2, 1]", "[1]", NULL, "conv1d.ncwc"},
  {C1, {2, 3, 50}, {16, 3, 9}, "1", "[2]", "[0, 3]", "[2]", NULL, "conv1d.ncwc"},
  {C1, {1, 32, 23}, {32, 1, 7}, "32", "[1]", "[3, 3]", "[1]", NULL, "conv1d.depthwise"},
  {C1, {1, 48, 19}, {16, 3, 3}, "16", "[1]", "[2, 0]", "[1]", NULL, "conv1d.lanes"},
  {C2, {1, 32, 9, 11}, {64, 16, 3, 3}, "2", "[1, 1]", "[1, 0, 2, 1]", "[1, 1]", NULL, "conv2d.nchwc"},
  {C2, {2, 32, 10, 9}, {32, 8, 3, 3}, "4", "[2, 2]", "[1, 1]", "[1, 1]", NULL, "conv2d.nchwc"},
  {C2, {1, 32, 13, 12}, {32, 4, 3, 3}, "8", "[2, 1]", "[1, 2, 1, 0]", "[1, 2]", NULL, "conv2d.nchwc conv2d.lanes"},
  {C2, {1, 16, 8, 7}, {48, 1, 3, 3}, "16", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "conv2d.lanes"},
  {C2, {1, 48, 7, 9}, {16, 3, 1, 1}, "16", "[1, 1]", "[0, 0]", "[1, 1]", NULL, "conv2d.lanes"},
  {C2, {1, 96, 6, 6}, {48, 48, 3, 3}, "2", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "conv2d.nchwc"},
  {C3, {1, 16, 4, 7, 6}, {16, 16, 3, 3, 3}, "1", "[1, 1, 1]", "[1, 1, 1, 1, 0, 1]", "[1, 1, 1]", NULL, "conv3d.ncdhwc"},
  {C3, {1, 3, 5, 9, 9}, {16, 3, 3, 5, 5}, "1", "[1, 2, 2]", "[1, 2, 2]", "[1, 1, 1]", NULL, "conv3d.ncdhwc"},
  {C3, {1, 16, 5, 8, 8}, {16, 1, 3, 3, 3}, "16", "[2, 1, 1]", "[1, 1, 1]", "[1, 1, 1]", NULL, "conv3d.depthwise"},
  {C3, {1, 32, 3, 5, 5}, {32, 16, 1, 3, 3}, "2", "[1, 1, 1]", "[0, 1, 1]", "[1, 1, 1]", NULL, "conv3d.ncdhwc"},
  {T1, {1, 16, 13}, {16, 32, 5}, "1", "[3]", "[1, 2]", "[1]", "[1]", "conv1d_transpose.phases"},
  {T2, {1, 16, 7, 6}, {16, 16, 2, 2}, "1", "[2, 2]", "[0, 0]", "[1, 1]", "[0, 0]", "conv2d_transpose.phases"},
  {T2, {2, 32, 5, 7}, {32, 16, 3, 3}, "1", "[2, 2]", "[1, 1]", "[1, 1]", "[1, 0]", "conv2d_transpose.phases"},
  {T2, {1, 16, 6, 5}, {16, 16, 4, 4}, "1", "[2, 2]", "[1, 0, 2, 3]", "[1, 1]", "[0, 0]", "conv2d_transpose.phases"},
  {T2, {1, 5, 4, 4}, {5, 16, 3, 5}, "1", "[1, 2]", "[2, 1]", "[1, 1]", "[0, 1]", "conv2d_transpose.phases"},
  {T2, {1, 16, 1, 1}, {16, 32, 4, 4}, "1", "[1, 1]", "[0, 0]", "[1, 1]", "[0, 0]", "conv2d_transpose.phases"},
  {T2, {1, 64, 4, 5}, {64, 32, 3, 3}, "2", "[2, 1]", "[1, 1]", "[1, 1]", "[0, 0]", "conv2d_transpose.phases"},
  {T2, {1, 16, 6, 6}, {16, 16, 2, 2}, "1", "[3, 3]", "[0, 0]", "[1, 1]", "[0, 0]", "conv2d_transpose.phases"},
  {T3,
   {1, 16, 3, 4, 4},
   {16, 16, 3, 2, 2},
   "1",
   "[2, 2, 2]",
   "[1, 0, 0]",
   "[1, 1, 1]",
   "[0, 0, 0]",
   "conv3d_transpose.phases"},
};
enum { NCASES = sizeof cases / sizeof *cases };

/* Not served by blocks; over plain layouts all the same. */
/* clang-format off */
static const Case plain_cases[] = {
    {T2, {1, 8, 5, 6}, {8, 1, 3, 3}, "8", "[2, 2]", "[1, 1]", "[1, 1]", "[1, 1]", "generic"},
    {T2, {1, 16, 5, 6}, {16, 16, 3, 3}, "1", "[2, 2]", "[1, 1]", "[2, 2]", "[1, 1]", "generic"},
    {C1, {1, 7, 29}, {11, 7, 3}, "1", "[1]", "[1, 2]", "[1]", NULL, "conv1d.pack"},
    {C1, {1, 32, 40}, {64, 16, 3}, "2", "[1]", "[1, 1]", "[1]", NULL, "conv1d.pack"},
    {C2, {1, 32, 7, 6}, {64, 16, 3, 3}, "2", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "conv2d.pack"},
    {C2, {1, 18, 7, 6}, {18, 9, 3, 3}, "2", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "generic"},
    {C3, {1, 16, 3, 6, 5}, {20, 16, 3, 3, 3}, "1", "[1, 1, 1]", "[1, 1, 1]", "[1, 1, 1]", NULL, "conv3d.pack"},
};
/* clang-format on */
enum { NPLAIN = sizeof plain_cases / sizeof *plain_cases };

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
  const void *a = c->more ? fn_attrs(f, c->op, "groups", c->groups, "strides", c->strides, "padding", c->padding,
                                     "dilation", c->dilation, "output_padding", c->more, NULL)
                          : fn_attrs(f, c->op, "groups", c->groups, "strides", c->strides, "padding", c->padding,
                                     "dilation", c->dilation, NULL);
  return CALL(f, c->op, a, x, w);
}

static const Node *moved(Fn *f, const Node *n, const char *from, const char *to)
{
  Arena *a = ctx_arena(f->ctx);
  const void *attrs = fn_attrs(f, "layout_transform", "src_layout", arena_printf(a, "\"%s\"", from), "dst_layout",
                               arena_printf(a, "\"%s\"", to), NULL);
  return CALL(f, "layout_transform", attrs, n);
}

static const char *name_of(Fn *f, const Case *c, size_t i)
{
  return arena_printf(ctx_arena(f->ctx), "%s, case %zu", c->op, i);
}

static void want_one_of(Fn *f, const char *what, const char *got, const char *list)
{
  if (!strstr(list, got))
    raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s: implementation '%s' was taken, '%s' is wanted", what, got, list);
}

/* A fresh function with the call of case i: what the fastest plan over blocks of channels makes of it, and the data in
 * its layout. */
static const Node *altered(Fn *f, size_t i, AlteredCall *to, const Node **x)
{
  fresh(f);
  const Node *call = call_of(f, &cases[i]);
  ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
  Plan *option;
  const Plan *best = NULL;
  int n = impl_options(&of, 0, &option);
  for (int k = 0; k < n; k++)
    if (option[k].alters && option[k].out_block && (!best || option[k].seconds < best->seconds)) best = &option[k];
  if (!best) raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s was not altered", name_of(f, &cases[i], i));
  impl_alter(&of, best, to);
  *x = to->in[0].to ? moved(f, to->arg[0], to->in[0].from, to->in[0].to) : to->arg[0];
  return call;
}

static void meaning_kept(Fn *f)
{
  for (size_t i = 0; i < NCASES; i++) {
    AlteredCall to;
    const Node *x;
    const Node *call = altered(f, i, &to, &x);
    const Node *y = node_call(f->m, to.op, 2, (const Node *[]){x, to.arg[1]}, to.attrs, NULL);
    fn_same(f, name_of(f, &cases[i], i), call, moved(f, y, to.out.to, to.out.from), 1e-5);
  }
}

/* The altered call alone, over parameters in its layouts, with a bias, a product and a residual behind it. */
static void blocks_computed(Fn *f)
{
  for (size_t i = 0; i < NCASES; i++) {
    AlteredCall to;
    const Node *x;
    altered(f, i, &to, &x);
    f->n = 0;
    f->param[f->n++] = x = node_var(f->m, "x", x->type);
    const Node *w = f->param[f->n++] = node_var(f->m, "w", to.arg[1]->type);
    const Node *y = node_call(f->m, to.op, 2, (const Node *[]){x, w}, to.attrs, NULL);
    int64_t bias[6];
    int64_t nd = y->type->ndim;
    for (int d = 1; d < nd; d++) bias[d - 1] = d == 1 || d == nd - 1 ? y->type->shape[d]->u.i : 1;
    if (i % 3) y = CALL(f, "add", NULL, y, fn_param(f, DT_F32, (int)nd - 1, bias));
    if (i % 3 == 1) y = CALL(f, "multiply", NULL, y, CALL(f, "sigmoid", NULL, y));
    if (i % 3 == 2)
      y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, f->param[f->n++] = node_var(f->m, "r", y->type)));
    want_one_of(f, name_of(f, &cases[i], i), fn_check(f, name_of(f, &cases[i], i), y, 0, 1e-5), cases[i].impls);
  }
}

static void plain_computed(Fn *f)
{
  for (size_t i = 0; i < NPLAIN; i++) {
    fresh(f);
    const Node *y = CALL(f, "nn.relu", NULL, call_of(f, &plain_cases[i]));
    want_one_of(f, name_of(f, &plain_cases[i], i), fn_check(f, name_of(f, &plain_cases[i], i), y, 0, 1e-5),
                plain_cases[i].impls);
  }
}

/* Convolutions of every kind whose plans are tried: channels that no vector divides, groups of any width, one tap and
 * many, strides, dilation, padding that differs by side, a batch, one to three dimensions. */
/* clang-format off */
static const Case planned_cases[] = {
    {C2, {1, 16, 9, 11}, {24, 16, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, NULL},
    {C2, {1, 33, 10, 10}, {96, 33, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, NULL},
    {C2, {3, 5, 4, 13}, {7, 5, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, NULL},
    {C2, {2, 7, 9, 12}, {13, 7, 3, 3}, "1", "[1, 1]", "[1, 1]", "[1, 1]", NULL, NULL},
    {C2, {1, 16, 12, 12}, {32, 16, 3, 3}, "1", "[1, 1]", "[1, 1]", "[1, 1]", NULL, NULL},
    {C2, {1, 22, 11, 13}, {34, 11, 3, 3}, "2", "[1, 1]", "[1, 0, 2, 1]", "[1, 1]", NULL, NULL},
    {C2, {2, 9, 14, 10}, {15, 3, 2, 4}, "3", "[2, 3]", "[0, 3, 1, 1]", "[2, 1]", NULL, NULL},
    {C2, {1, 12, 9, 17}, {4, 3, 3, 3}, "4", "[1, 1]", "[1, 1]", "[1, 1]", NULL, NULL},
    {C2, {1, 3, 21, 19}, {17, 3, 5, 5}, "1", "[2, 2]", "[2, 2]", "[1, 1]", NULL, NULL},
    {C2, {2, 16, 17, 18}, {24, 16, 1, 1}, "1", "[2, 2]", "[0, 0]", "[1, 1]", NULL, NULL},
    {C1, {2, 24, 77}, {19, 24, 3}, "1", "[1]", "[1, 1]", "[2]", NULL, NULL},
    {C1, {1, 10, 40}, {6, 5, 1}, "2", "[3]", "[0, 0]", "[1]", NULL, NULL},
    {C3, {1, 6, 4, 5, 7}, {10, 6, 2, 3, 3}, "1", "[1, 1, 1]", "[0, 1, 1]", "[1, 1, 1]", NULL, NULL},
    {C3, {2, 9, 4, 4, 3}, {16, 9, 1, 1, 1}, "1", "[1, 2, 2]", "[0, 0, 0]", "[1, 1, 1]", NULL, NULL},
    {C2, {1, 24, 10, 9}, {24, 1, 3, 3}, "24", "[1, 1]", "[1, 1]", "[1, 1]", NULL, NULL},
};
/* clang-format on */

/* The weight must be known before it is packed: zeros stand for it. */
static const Node *zeros_of(Fn *f, const int64_t *shape)
{
  Text t = text_new(ctx_arena(f->ctx));
  for (int d = 0; d < rank(shape); d++) text_printf(&t, "%s%" PRId64, d ? ", " : "[", shape[d]);
  text_printf(&t, "]");
  return fn_call(f, "zeros", fn_attrs(f, "zeros", "shape", text_str(&t), "dtype", "\"float32\"", NULL), 0, NULL);
}

/* Behind every second and third of the cases a bias and what may follow it: an activation that reads twice, a
 * residual. */
static const Node *followed(Fn *f, const Case *c, size_t i, const Node *y)
{
  int64_t bias[] = {c->w[0], 1, 1, 1};
  if (i % 3) y = CALL(f, "add", NULL, y, fn_param(f, DT_F32, rank(c->x) - 1, bias));
  if (i % 3 == 1) y = CALL(f, "multiply", NULL, y, CALL(f, "sigmoid", NULL, y));
  if (i % 3 == 2)
    y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, f->param[f->n++] = node_var(f->m, "r", y->type)));
  return y;
}

/* The attributes of a case. */
static const void *attrs_of(Fn *f, const Case *c)
{
  return fn_attrs(f, c->op, "groups", c->groups, "strides", c->strides, "padding", c->padding, "dilation", c->dilation,
                  NULL);
}

/* Plans from all over the list, each put into effect: the call that it alters to, computed by it, is what that call
 * means. */
static void planned_computed(Fn *f)
{
  enum { TRIED = 5 };
  for (size_t i = 0; i < sizeof planned_cases / sizeof *planned_cases; i++) {
    const Case *c = &planned_cases[i];
    int n = TRIED;
    for (int k = 0; k < TRIED && k < n; k++) {
      fresh(f);
      const Node *x = fn_param(f, DT_F32, rank(c->x), c->x);
      const Node *call = CALL(f, c->op, attrs_of(f, c), x, zeros_of(f, c->w));
      ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
      PlanList list;
      impl_plans(&of, &list);
      n = list.v.n;
      const Plan *p =
          &list.v.v[(size_t)k * (size_t)n / TRIED + i % ((size_t)n / TRIED + 1) % (size_t)(n - k * n / TRIED)];
      const char *what = arena_printf(ctx_arena(f->ctx), "%s, case %zu, %s", c->op, i, plan_text(f->m->arena, p));
      AlteredCall to = {.op = call->u.call.op, .attrs = call->u.call.attrs, .arg = {x, call->arg[1]}};
      if (p->alters) impl_alter(&of, p, &to);
      f->n = 0;
      const Type *data = to.in[0].to ? moved(f, x, to.in[0].from, to.in[0].to)->type : x->type;
      x = f->param[f->n++] = node_var(f->m, "x", data);
      const Node *w = f->param[f->n++] = node_var(f->m, "w", to.arg[1]->type);
      const Node *y = node_call(f->m, to.op, 2, (const Node *[]){x, w}, to.attrs, NULL);
      y = CALL(f, "nn.relu", NULL, node_call_planned(f->m, y, plan_text(f->m->arena, p)));
      want_impl(f, what, fn_check(f, what, y, 0, 1e-5), p->impl->name);
    }
  }
}

/* Depthwise convolutions over plain data: both strides, kernels and padding that differ by side, rows of an odd length,
 * of a few vectors and of many, batches, sizes that no tile divides, planes in bands. */
/* clang-format off */
static const Case planes_cases[] = {
    {C2, {1, 8, 14, 14}, {8, 1, 3, 3}, "8", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {2, 6, 15, 13}, {6, 1, 3, 3}, "6", "[2, 2]", "[1, 1]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {1, 5, 28, 28}, {5, 1, 5, 5}, "5", "[2, 2]", "[2, 2, 2, 2]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {1, 4, 9, 31}, {4, 1, 3, 5}, "4", "[1, 2]", "[0, 3, 2, 1]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {3, 3, 7, 7}, {3, 1, 5, 5}, "3", "[1, 1]", "[2, 2]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {1, 2, 113, 112}, {2, 1, 3, 3}, "2", "[2, 2]", "[1, 1]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {1, 2, 11, 301}, {2, 1, 3, 3}, "2", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {1, 2, 9, 300}, {2, 1, 3, 4}, "2", "[2, 2]", "[1, 2, 1, 1]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {1, 8, 6, 1}, {8, 1, 4, 4}, "8", "[1, 2]", "[0, 2, 3, 3]", "[1, 1]", NULL, "conv2d.planes"},
    {C2, {1, 8, 12, 12}, {8, 1, 3, 3}, "8", "[1, 1]", "[1, 1]", "[2, 2]", NULL, "generic"},
    {C2, {1, 8, 12, 12}, {8, 1, 3, 3}, "8", "[3, 3]", "[1, 1]", "[1, 1]", NULL, "generic"},
};
/* clang-format on */

static void planes_computed(Fn *f)
{
  for (size_t i = 0; i < sizeof planes_cases / sizeof *planes_cases; i++) {
    fresh(f);
    const Case *c = &planes_cases[i];
    const char *what = arena_printf(ctx_arena(f->ctx), "depthwise, case %zu", i);
    want_impl(f, what, fn_check(f, what, followed(f, c, i, call_of(f, c)), 0, 1e-5), c->impls);
  }
}

#define CASE(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    on_targets(name);                   \
  }
static void test_meaning_kept(void **state)
{
  (void)state;
  run_job(meaning_kept, "llvm");
}
CASE(blocks_computed)
CASE(plain_computed)
CASE(planned_computed)
CASE(planes_computed)

int main(int argc, char **argv)
{
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_meaning_kept), cmocka_unit_test(test_blocks_computed),
                                     cmocka_unit_test(test_plain_computed), cmocka_unit_test(test_planned_computed),
                                     cmocka_unit_test(test_planes_computed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
