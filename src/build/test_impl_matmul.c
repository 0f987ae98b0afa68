/* test_impl_matmul.c: matrix products whose sums are too long for one round, rows known only at run
 * time, plans of products of many kinds, and recurrent cells with their recurrence in blocks, compiled and run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

static const char *say(Fn *f, const char *what, int a, int b, int c)
{
  return arena_printf(ctx_arena(f->ctx), "%s %d %d %d", what, a, b, c);
}

static const Node *packed(Fn *f, const Node *x, int k, int n, int width)
{
  Arena *a = ctx_arena(f->ctx);
  const void *attrs = fn_attrs(f, "nn.contrib_dense_pack", "units", arena_printf(a, "%d", n), "weight_layout",
                               arena_printf(a, "\"NC%dn\"", width), NULL);
  return CALL(f, "nn.contrib_dense_pack", attrs, x, PARAM(f, n / width, k, width));
}

/* Sums of a thousand and more: rows collide in the cache, panels do not fit.  Rounds add up in another order than the
 * meaning does. */
static void long_sums(Fn *f)
{
  static const int cases[][4] = {{40, 1024, 8, 1}, {29, 4096, 6, 0}, {130, 1536, 5, 1}, {64, 3072, 4, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int m = cases[i][0];
    int k = cases[i][1];
    int width = 2 * target_lanes(f->target, 32);
    int n = cases[i][2] * width;
    fresh(f);
    const Node *y = packed(f, PARAM(f, m, k), k, n, width);
    if (cases[i][3])
      y = CALL(f, "tanh", NULL, CALL(f, "add", NULL, CALL(f, "add", NULL, y, PARAM(f, n)), PARAM(f, m, n)));
    const char *impl = fn_check(f, say(f, "long sum", m, k, n), y, 0, 6e-5);
    if (strcmp(impl, "matmul.packed")) raise(f->ctx, ERR_INTERNAL, NOWHERE, "'%s' was taken", impl);
  }
}

/* Many panels of columns: where a multiply-add takes a lane, rows are packed.  Whole tiles and parts of one, odd
 * sums. */
static void many_panels(Fn *f)
{
  static const int cases[][3] = {{128, 64, 16}, {37, 100, 12}, {13, 7, 24}, {4, 33, 12}, {131, 3072, 12}};
  const Target *own = f->target;
  Target lanes = lane_target(own);
  f->target = &lanes;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int vectors = 1; vectors <= 4; vectors++) {
      int m = cases[i][0];
      int k = cases[i][1];
      int width = vectors * (int)target_lanes(f->target, 32);
      int n = cases[i][2] * width;
      fresh(f);
      const Node *y =
          CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, packed(f, PARAM(f, m, k), k, n, width), PARAM(f, n)));
      fn_check(f, say(f, "many panels", m, k, n), y, 0, k > 1000 ? 6e-5 : 2e-5);
    }
  f->target = own;
}

static void open_rows(Fn *f)
{
  static const int sums[] = {48, 1024};
  for (int i = 0; i < 2; i++) {
    fresh(f);
    int k = sums[i];
    int width = 4 * target_lanes(f->target, 32);
    int n = 4 * width;
    const Expr *rows = var_expr(var_new(f->m, "n", DT_I32, VAR_SIZE));
    const Expr *shape[] = {rows, expr_i32(f->m, k)};
    const Node *x = f->param[f->n++] = node_var(f->m, "x", type_tensor(f->m, DT_F32, 2, shape));
    const Node *y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, packed(f, x, k, n, width), PARAM(f, n)));
    for (int64_t size = 1; size < 40; size += 11) fn_check(f, say(f, "open rows", (int)size, k, n), y, size, 2e-5);
  }
}

/* ---- plans ---------------------------------------------------------------------------------------------- */

typedef struct PlanCase {
  const char *op;
  int64_t a[3], b[3]; /* 0 behind the last dimension; -1: known at run time */
  const char *ta, *tb;
  int columns; /* of dense_pack */
  DType dtype;
} PlanCase;

static const Node *plan_param(Fn *f, const PlanCase *c, const int64_t *shape, const Expr *open)
{
  const Expr *dims[3];
  int n = 0;
  for (; n < 3 && shape[n]; n++) dims[n] = shape[n] < 0 ? open : expr_i32(f->m, shape[n]);
  const Type *t = type_tensor(f->m, c->dtype, n, dims);
  const Node *v = node_var(f->m, arena_printf(f->m->arena, "p%d", f->n), t);
  return f->param[f->n++] = v;
}

static const Node *plan_product(Fn *f, const PlanCase *c)
{
  Arena *a = ctx_arena(f->ctx);
  const Expr *open = var_expr(var_new(f->m, "n", DT_I32, VAR_SIZE));
  const Node *x = plan_param(f, c, c->a, open);
  const Node *w = plan_param(f, c, c->b, open);
  const void *attrs = c->columns ? fn_attrs(f, c->op, "units", arena_printf(a, "%d", c->columns), "weight_layout",
                                            arena_printf(a, "\"NC%dn\"", (int)c->b[2]), NULL)
                      : c->ta    ? fn_attrs(f, c->op, "transpose_a", c->ta, "transpose_b", c->tb, NULL)
                                 : NULL;
  return CALL(f, c->op, attrs, x, w);
}

/* Some of the plans of each product, all of which are said to serve it: each gives the same, with something behind it
 * that reads the tile, and by that plan (no other schedule steps in). */
static void some_plans(Fn *f)
{
  static const char *const no = "False";
  static const char *const yes = "True";
  const int64_t w = 2 * target_lanes(f->target, 32);
  const PlanCase cases[] = {
    {"nn.matmul", {7, 13}, {13, 37}, no, no, 0, DT_F32},
    {"nn.matmul", {29, 50}, {50, 131}, no, no, 0, DT_F32},
    {"nn.matmul", {1, 33}, {33, 301}, no, no, 0, DT_F32},
    {"nn.matmul", {31, 22}, {31, 45}, yes, no, 0, DT_F32},
    {"nn.matmul", {9, 22}, {35, 9}, yes, yes, 0, DT_F32},
    {"nn.matmul", {18, 3}, {3, 9}, no, no, 0, DT_F64},
    {"nn.matmul", {45, 67}, {67, 51}, no, no, 0, DT_F64},
    {"nn.dense", {14, 61}, {50, 61}, NULL, NULL, 0, DT_F32},
    {"nn.dense", {40, 2500}, {70, 2500}, NULL, NULL, 0, DT_F32},
    {"nn.contrib_dense_pack", {24, 58}, {5, 58, w}, NULL, NULL, (int)(5 * w) - 3, DT_F32},
    {"nn.contrib_dense_pack", {3, 41}, {1, 41, w}, NULL, NULL, 3, DT_F32},
    {"nn.contrib_dense_pack", {37, 2301}, {7, 2301, w}, NULL, NULL, (int)(7 * w) - 1, DT_F32},
    {"nn.batch_matmul", {4, 9, 26}, {4, 26, 43}, no, no, 0, DT_F32},
    {"nn.batch_matmul", {4, 2, 26}, {4, 26, 43}, no, no, 0, DT_F32},
    {"nn.batch_matmul", {3, 16, 25}, {1, 25, 50}, no, no, 0, DT_F32},
    {"nn.batch_matmul", {1, 12, 25}, {5, 31, 25}, no, yes, 0, DT_F32},
    {"nn.batch_matmul", {2, 19, 8}, {2, 19, 30}, yes, no, 0, DT_F32},
    {"nn.matmul", {-1, 30}, {30, 45}, no, no, 0, DT_F32},
    {"nn.contrib_dense_pack", {-1, 30}, {3, 30, w}, NULL, NULL, (int)(3 * w) - 2, DT_F32},
    {"nn.matmul", {20, -1}, {-1, 33}, no, no, 0, DT_F32},
    {"nn.batch_matmul", {-1, 9, 26}, {-1, 26, 43}, no, no, 0, DT_F32},
    {"nn.batch_matmul", {3, -1, 26}, {3, 50, 26}, no, yes, 0, DT_F32},
    {"nn.batch_matmul", {3, -1, 26}, {3, -1, 26}, no, yes, 0, DT_F32},
    {"nn.matmul", {12, 26}, {26, -1}, no, no, 0, DT_F32},
  };
  enum { TRIED = 7 };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int count = 1;
    for (int k = 0; k < TRIED; k++) {
      const PlanCase *c = &cases[i];
      fresh(f);
      const Node *y = plan_product(f, c);
      graph_infer(f->m, fn_done(f, y));
      ImplCall call = {f->m, f->m->arena, f->target, &f->config, y};
      PlanList list;
      impl_plans(&call, &list);
      count = list.v.n;
      if (!count) raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s: no plans for case %d", c->op, (int)i);
      const Plan *p = &list.v.v[k < TRIED - 1 ? count * k / (TRIED - 1) : count - 1];
      const char *text = plan_text(f->m->arena, p);
      f->config.plans = arena_printf(f->m->arena, "%s %s\n", plan_workload(f->ctx, f->m->arena, f->target, y), text);
      const Node *z = CALL(f, "nn.relu", NULL, y);
      const char *said = arena_printf(ctx_arena(f->ctx), "case %d, %s", (int)i, text);
      for (int64_t size = 17; size < 30; size += 7) {
        const char *impl = fn_check(f, said, z, size, 6e-5);
        if (strcmp(impl, p->impl->name)) raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s: '%s' was taken", said, impl);
        if (c->a[0] > 0 && c->a[1] > 0 && c->b[1] > 0) break;
      }
    }
  }
}

/* ---- recurrent cells ------------------------------------------------------------------------------------ */

typedef struct CellCase {
  const char *cell, *direction;
  int gates, steps, batch, hidden, block, layout;
  bool linear;
  int samples;
} CellCase;

/* Runs a recurrent loop over the arguments; its outputs. */
static TirArg *run_loop(Fn *f, const CellCase *c, int block, int samples, int n, const TirArg *arg, int *nout)
{
  Arena *a = ctx_arena(f->ctx);
  fresh(f);
  for (int i = 0; i < n; i++) fn_param(f, DT_F32, arg[i].ndim, arg[i].shape);
  const void *attrs = fn_attrs(f, "nn.contrib_recurrent", "cell", arena_printf(a, "\"%s\"", c->cell), "hidden_size",
                               arena_printf(a, "%d", c->hidden), "direction", arena_printf(a, "\"%s\"", c->direction),
                               "layout", c->layout ? "1" : "0", "linear_before_reset", c->linear ? "True" : "False",
                               "block", arena_printf(a, "%d", block), "samples", arena_printf(a, "%d", samples), NULL);
  const Node *y = fn_call(f, "nn.contrib_recurrent", attrs, n, f->param);
  Module *dst = module_new(f->ctx);
  defer(f->ctx, drop_module, dst);
  ImplResult r;
  PrimFunc *kernel = fn_lower(f, dst, fn_done(f, y), &r);
  Built *built = build_funcs(f->ctx, 1, (PrimFunc *const[]){kernel}, f->target, &(LowerConfig){0});
  defer(f->ctx, drop_built, built);
  TirArg all[8];
  memcpy(all, arg, (size_t)n * sizeof *arg);
  *nout = y->type->nfield;
  for (int i = 0; i < *nout; i++) all[n + i] = fn_tensor(a, y->type->field[i], 0, NULL);
  TirArg *got = run_copy(a, n + *nout, all);
  run_built(f->ctx, built, "kernel", n + *nout, got);
  return got + n;
}

/* (directions, gates * hidden, hidden) as (directions, blocks, hidden, gates, block); rubbish behind the last unit. */
static TirArg in_blocks(Arena *a, const CellCase *c, const TirArg *r)
{
  int64_t h = c->hidden;
  int64_t g = c->gates;
  int64_t b = c->block;
  int64_t blocks = (h + b - 1) / b;
  int64_t *shape = arena_array(a, int64_t, 5);
  memcpy(shape, (const int64_t[]){r->shape[0], blocks, h, g, b}, 5 * sizeof *shape);
  TirArg out = {.dtype = r->dtype, .ndim = 5, .shape = shape};
  float *to = out.data = arena_alloc(a, run_bytes(&out) + 1);
  for (size_t i = 0; i < run_count(&out); i++) to[i] = 1e9f;
  const float *from = r->data;
  for (int64_t d = 0; d < r->shape[0]; d++)
    for (int64_t gate = 0; gate < g; gate++)
      for (int64_t u = 0; u < h; u++)
        for (int64_t k = 0; k < h; k++)
          to[(((d * blocks + u / b) * h + k) * g + gate) * b + u % b] = from[(d * g * h + gate * h + u) * h + k];
  return out;
}

static void recurrent_blocks(Fn *f)
{
  static const CellCase cases[] = {
    {"lstm", "bidirectional", 4, 5, 1, 32, 16, 0, false, 1}, {"lstm", "reverse", 4, 3, 3, 20, 20, 1, false, 1},
    {"gru", "forward", 3, 4, 2, 24, 8, 0, false, 1},         {"gru", "bidirectional", 3, 4, 2, 12, 4, 0, true, 1},
    {"rnn", "bidirectional", 1, 6, 2, 48, 48, 1, false, 1},  {"lstm", "bidirectional", 4, 3, 6, 32, 16, 1, false, 3},
    {"gru", "reverse", 3, 3, 4, 16, 8, 0, false, 4},         {"gru", "bidirectional", 3, 3, 4, 16, 16, 0, true, 2},
    {"rnn", "forward", 1, 3, 5, 24, 24, 0, false, 5},        {"lstm", "bidirectional", 4, 4, 2, 34, 12, 0, false, 2},
    {"lstm", "forward", 4, 3, 1, 19, 8, 1, false, 1},        {"gru", "bidirectional", 3, 3, 3, 35, 16, 0, false, 3},
    {"gru", "forward", 3, 4, 2, 13, 4, 0, true, 1},          {"rnn", "reverse", 1, 3, 2, 7, 4, 0, false, 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const CellCase *c = &cases[i];
    Arena *a = ctx_arena(f->ctx);
    fresh(f);
    int64_t ndir = strcmp(c->direction, "bidirectional") ? 1 : 2;
    int64_t rows = c->gates * c->hidden;
    uint64_t seed = 3;
    const int64_t gates[] = {c->layout ? c->batch : c->steps, c->layout ? c->steps : c->batch, ndir * rows};
    const int64_t weights[] = {ndir, rows, c->hidden};
    TirArg arg[2] = {fn_tensor(a, type_tensor_of(f->m, DT_F32, 3, gates), 0, &seed),
                     fn_tensor(a, type_tensor_of(f->m, DT_F32, 3, weights), 0, &seed)};
    int n;
    TirArg *want = run_loop(f, c, 0, 1, 2, arg, &n);
    arg[1] = in_blocks(a, c, &arg[1]);
    TirArg *got = run_loop(f, c, c->block, c->samples, 2, arg, &n);
    for (int k = 0; k < n; k++) fn_compare(f, say(f, c->cell, (int)i, k, c->block), &want[k], &got[k], 1e-5);
  }
}

#define CASE(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    on_targets(name);                   \
  }
CASE(long_sums)
CASE(many_panels)
CASE(open_rows)
CASE(some_plans)
CASE(recurrent_blocks)

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_sums), cmocka_unit_test(test_many_panels),
                                     cmocka_unit_test(test_open_rows), cmocka_unit_test(test_some_plans),
                                     cmocka_unit_test(test_recurrent_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
