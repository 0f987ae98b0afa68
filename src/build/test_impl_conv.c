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

/* A fresh function with the call of case i: what it is altered to, and the data in its layout. */
static const Node *altered(Fn *f, size_t i, AlteredCall *to, const Node **x)
{
  fresh(f);
  const Node *call = call_of(f, &cases[i]);
  if (!impl_alter(f->m, f->target, &f->config, call, to))
    raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s was not altered", name_of(f, &cases[i], i));
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

/* Convolutions of one tap that stand alone: few channels, many, positions that fill no tile, a batch, other dimensions,
 * strides. */
/* clang-format off */
static const Case alone_cases[] = {
    {C2, {1, 16, 9, 11}, {24, 16, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, "conv2d.positions"},
    {C2, {2, 40, 7, 6}, {64, 40, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, "conv2d.positions"},
    {C2, {1, 33, 10, 10}, {96, 33, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, "conv2d.positions"},
    {C2, {3, 5, 4, 13}, {8, 5, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, "conv2d.positions"},
    {C2, {1, 64, 12, 12}, {16, 64, 1, 1}, "1", "[1, 1]", "[0, 0]", "[1, 1]", NULL, "conv2d.positions"},
    {C1, {2, 24, 77}, {16, 24, 1}, "1", "[1]", "[0, 0]", "[1]", NULL, "conv1d.positions"},
    {C1, {1, 48, 50}, {64, 48, 1}, "1", "[1]", "[0, 0]", "[1]", NULL, "conv1d.positions"},
    {C3, {1, 36, 3, 5, 7}, {64, 36, 1, 1, 1}, "1", "[1, 1, 1]", "[0, 0, 0]", "[1, 1, 1]", NULL, "conv3d.positions"},
    {C3, {2, 9, 4, 4, 3}, {16, 9, 1, 1, 1}, "1", "[1, 1, 1]", "[0, 0, 0]", "[1, 1, 1]", NULL, "conv3d.positions"},
    {C2, {2, 16, 17, 18}, {24, 16, 1, 1}, "1", "[2, 2]", "[0, 0]", "[1, 1]", NULL, "conv2d.positions"},
    {C2, {1, 40, 24, 15}, {64, 40, 1, 1}, "1", "[2, 3]", "[0, 0]", "[1, 1]", NULL, "conv2d.positions"},
    {C1, {2, 24, 77}, {16, 24, 1}, "1", "[3]", "[0, 0]", "[1]", NULL, "conv1d.positions"},
    {C3, {1, 36, 4, 7, 8}, {64, 36, 1, 1, 1}, "1", "[1, 2, 2]", "[0, 0, 0]", "[1, 1, 1]", NULL, "conv3d.positions"},
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

/* On narrow vectors blocks are taken for faster in some cases: not in most. */
static void alone_computed(Fn *f)
{
  size_t n = sizeof alone_cases / sizeof *alone_cases;
  size_t blocks = 0;
  for (size_t i = 0; i < n; i++) {
    fresh(f);
    const Case *c = &alone_cases[i];
    const char *what = arena_printf(ctx_arena(f->ctx), "%s alone, case %zu", c->op, i);
    const Node *x = fn_param(f, DT_F32, rank(c->x), c->x);
    AlteredCall to;
    if (!impl_alter_alone(f->m, f->target, &f->config, CALL(f, c->op, NULL, x, zeros_of(f, c->w)), &to)) {
      if (++blocks > n / 3)
        raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s was not altered, nor %zu before it", what, blocks - 1);
      continue;
    }
    const Node *w = f->param[f->n++] = node_var(f->m, "w", to.arg[1]->type);
    const Node *y = node_call(f->m, to.op, 2, (const Node *[]){x, w}, to.attrs, NULL);
    want_impl(f, what, fn_check(f, what, followed(f, c, i, y), 0, 1e-5), c->impls);
  }
}

/* Depthwise convolutions over plain data: both strides, kernels and padding that differ by side, rows of an odd length,
 * of a few vectors and of many, batches, sizes that no tile divides, planes in bands. */
/* clang-format off */
static const Case planes_cases[] = {
    {C2, {1, 8, 14, 14}, {8, 1, 3, 3}, "8", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {2, 6, 15, 13}, {6, 1, 3, 3}, "6", "[2, 2]", "[1, 1]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {1, 5, 28, 28}, {5, 1, 5, 5}, "5", "[2, 2]", "[2, 2, 2, 2]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {1, 4, 9, 31}, {4, 1, 3, 5}, "4", "[1, 2]", "[0, 3, 2, 1]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {3, 3, 7, 7}, {3, 1, 5, 5}, "3", "[1, 1]", "[2, 2]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {1, 2, 113, 112}, {2, 1, 3, 3}, "2", "[2, 2]", "[1, 1]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {1, 2, 11, 301}, {2, 1, 3, 3}, "2", "[1, 1]", "[1, 1]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {1, 2, 9, 300}, {2, 1, 3, 4}, "2", "[2, 2]", "[1, 2, 1, 1]", "[1, 1]", NULL, "depthwise.planes"},
    {C2, {1, 8, 6, 1}, {8, 1, 4, 4}, "8", "[1, 2]", "[0, 2, 3, 3]", "[1, 1]", NULL, "depthwise.planes"},
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
CASE(alone_computed)
CASE(planes_computed)

int main(int argc, char **argv)
{
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_meaning_kept), cmocka_unit_test(test_blocks_computed),
                                     cmocka_unit_test(test_plain_computed), cmocka_unit_test(test_alone_computed),
                                     cmocka_unit_test(test_planes_computed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
