/* test_operators.c: operators as compiled kernels: each is built with no schedule at all and
 * compared with its meaning, on values that hold NaN, infinities, zeros and the ends of
 * the integers; symbolic sizes through one kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "build/test_run.h"
#include "op/op.h"

typedef struct Job {
  const OpDef *op;
  DType dtype;
  const void *(*attrs)(Module *, const OpDef *);
  bool symbolic; /* the first dimension of every argument has a name */
  double ulps;
} Job;

static const double floats[] = {-3.5, -1, -0.0, 0, 0.5, 1, 2.5, 7, NAN, INFINITY, -INFINITY, 100};

/* A column and a row, so that every value meets every other; one argument alone is a row. */
static ConstData sample(Arena *arena, DType t, bool column)
{
  enum { N = sizeof floats / sizeof *floats };
  ConstData d = {
    .dtype = t, .ndim = 2, .shape = {column ? N : 1, column ? 1 : N}, .bytes = (size_t)N * (size_t)dtype_bytes(t)};
  char *p = arena_alloc(arena, d.bytes);
  for (int i = 0; i < N; i++) {
    int64_t ends[] = {dtype_imin(t), dtype_imax(t), 0, 1, -1, 2, 3, -7, 31, 40, 100, -128};
    Value v = dtype_is_float(t) ? value_float(t, floats[i]) : value_int(t, dtype_is_bool(t) ? i & 1 : ends[i]);
    value_store(v, p + i * dtype_bytes(t));
  }
  d.data = p;
  return d;
}

static TirArg arg_of(const ConstData *d)
{
  return (TirArg){.data = (void *)(uintptr_t)d->data, .dtype = d->dtype, .ndim = d->ndim, .shape = d->shape};
}

/* Type of argument i: static, or with its rows' number named. */
static const Type *arg_type(Module *m, const ConstData *d, bool symbolic, int i)
{
  const Expr *shape[2] = {expr_i32(m, d->shape[0]), expr_i32(m, d->shape[1])};
  if (symbolic) shape[0] = var_new(m, i ? "k" : "n", DT_I32, VAR_SIZE)->expr;
  return type_tensor(m, d->dtype, 2, shape);
}

static void run_job(Ctx *ctx, void *arg)
{
  const Job *job = arg;
  Module *m = module_new(ctx);
  Module *dst = module_new(ctx);
  defer(ctx, drop_module, m);
  defer(ctx, drop_module, dst);
  const OpDef *op = job->op;
  const Node *var[3];
  const Tensor *in[3], *out;
  ConstData data[4] = {{.ndim = 0}};
  TeArg te[4] = {{.tensor = NULL}};
  TirArg given[4];
  int n = op->min_args;
  for (int i = 0; i < n; i++) {
    data[i] = sample(m->arena, op == &op_where && i == 0 ? DT_BOOL : job->dtype, i == 0 && n > 1);
    const Type *ty = arg_type(m, &data[i], job->symbolic, i);
    var[i] = node_var(m, "x", ty);
    te[i].tensor = in[i] = te_placeholder(m, arena_printf(m->arena, "x%d", i), ty->dtype, ty->ndim, ty->shape);
    given[i] = arg_of(&data[i]);
  }
  const Node *call = node_call(m, op, n, var, job->attrs ? job->attrs(m, op) : NULL, NULL);
  opdef_evaluate(m, m->arena, call, n, data, &data[n]);
  opdef_compute(m, call, n, in, &out);
  te[n].tensor = out;
  given[n] = arg_of(&data[n]);
  PrimFunc *f = te_create_prim_func(dst, "kernel", n + 1, te, NULL);
  LowerConfig config = {0};
  Built *b = build_funcs(ctx, 1, &f, target_host(ctx), &config);
  defer(ctx, drop_built, b);
  TirArg *copy = run_copy(scratch(ctx), n + 1, given);
  memset(copy[n].data, 0x5a, data[n].bytes);
  run_built(ctx, b, "kernel", n + 1, copy);
  run_compare(ctx, op->name, n + 1, given, copy, job->ulps);
}

static void expect_job(Job job)
{
  Ctx *ctx = ctx_new();
  ErrKind kind = protect(ctx, run_job, &job);
  if (kind) fprintf(stderr, "%s (%d bits): %s\n", job.op->name, job.dtype.bits, error_message(ctx));
  ctx_free(ctx);
  assert_int_equal(kind, ERR_NONE);
}

static void elementwise_kernels(void **state)
{
  (void)state;
  static const OpDef *const of_floats[] = {&op_exp,      &op_log,       &op_sqrt,    &op_rsqrt, &op_sigmoid,
                                           &op_tanh,     &op_erf,       &op_sin,     &op_atan,  &op_asinh,
                                           &op_fast_exp, &op_fast_tanh, &op_fast_erf};
  static const OpDef *const of_all[] = {&op_abs,  &op_negative, &op_floor, &op_ceil,  &op_trunc,    &op_round,
                                        &op_sign, &op_nn_relu,  &op_isnan, &op_isinf, &op_isfinite, &op_copy};
  for (size_t i = 0; i < sizeof of_floats / sizeof *of_floats; i++) {
    expect_job((Job){.op = of_floats[i], .dtype = DT_F32, .ulps = 16});
    expect_job((Job){.op = of_floats[i], .dtype = DT_F16, .ulps = 1});
  }
  static const DType dtypes[] = {{DT_FLOAT, 32, 1}, {DT_FLOAT, 64, 1}, {DT_BFLOAT, 16, 1}, {DT_INT, 8, 1},
                                 {DT_INT, 32, 1},   {DT_INT, 64, 1},   {DT_UINT, 8, 1}};
  for (size_t i = 0; i < sizeof of_all / sizeof *of_all; i++)
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) expect_job((Job){.op = of_all[i], .dtype = dtypes[k]});
}

/* Division by zero and of the smallest integer by -1, shifts past the width: no trap, the stated results. */
static void broadcast_kernels(void **state)
{
  (void)state;
  static const OpDef *const of_all[] = {
    &op_add,       &op_subtract, &op_multiply, &op_divide, &op_floor_divide, &op_trunc_divide,  &op_mod,
    &op_floor_mod, &op_maximum,  &op_minimum,  &op_equal,  &op_less,         &op_greater_equal, &op_where};
  static const OpDef *const of_ints[] = {&op_power, &op_left_shift, &op_right_shift, &op_bitwise_and, &op_bitwise_xor};
  static const DType dtypes[] = {{DT_INT, 32, 1},  {DT_INT, 8, 1},    {DT_INT, 64, 1},  {DT_UINT, 8, 1},
                                 {DT_UINT, 32, 1}, {DT_FLOAT, 32, 1}, {DT_FLOAT, 16, 1}};
  for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all; i++) expect_job((Job){.op = of_all[i], .dtype = dtypes[k]});
    for (size_t i = 0; i < sizeof of_ints / sizeof *of_ints && dtype_is_int(dtypes[k]); i++)
      expect_job((Job){.op = of_ints[i], .dtype = dtypes[k]});
  }
  expect_job((Job){.op = &op_power, .dtype = DT_F32, .ulps = 16});
}

static const void *last_axis(Module *m, const OpDef *op)
{
  void *a = attrs_new(m, op->attrs);
  attrs_set_ints(m, op->attrs, a, "axis", 1, (const int64_t[]){-1});
  return a;
}

static void reduce_kernels(void **state)
{
  (void)state;
  static const OpDef *const op[] = {&op_sum,    &op_prod,   &op_mean,      &op_max,     &op_min,
                                    &op_argmax, &op_argmin, &op_logsumexp, &op_variance};
  static const DType dtypes[] = {{DT_FLOAT, 32, 1}, {DT_FLOAT, 16, 1}, {DT_INT, 32, 1}};
  for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
    for (size_t i = 0; i < (dtype_is_float(dtypes[k]) ? 9 : 7); i++)
      expect_job((Job){.op = op[i], .dtype = dtypes[k], .attrs = last_axis, .ulps = 16});
}

static void symbolic_kernels(void **state)
{
  (void)state;
  static const OpDef *const op[] = {&op_exp, &op_add, &op_maximum, &op_floor_mod};
  for (size_t i = 0; i < sizeof op / sizeof *op; i++)
    expect_job((Job){.op = op[i], .dtype = DT_F32, .symbolic = true, .ulps = 16});
  static const OpDef *const reduce[] = {&op_sum, &op_mean, &op_argmax, &op_variance};
  for (size_t i = 0; i < sizeof reduce / sizeof *reduce; i++)
    expect_job((Job){.op = reduce[i], .dtype = DT_F32, .symbolic = true, .ulps = 16});
}

static const void *twelve(Module *m, const OpDef *op)
{
  void *a = attrs_new(m, op->attrs);
  attrs_set_int(m, op->attrs, a, "seed", 3);
  attrs_set_ints(m, op->attrs, a, "out_shape", 2, (const int64_t[]){3, 4});
  return a;
}

static void random_kernels(void **state)
{
  (void)state;
  expect_job((Job){.op = &op_random_uniform, .dtype = DT_F32, .attrs = twelve});
  expect_job((Job){.op = &op_random_normal, .dtype = DT_F32, .attrs = twelve, .ulps = 64});
}

/* Forty fused choices, each over the value of the one before: the time stays in proportion. */
static void deep_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes a = op_out_axes(c, 0);
  const Expr *x = op_read(c->m, in[0], a.index);
  for (int i = 0; i < 10; i++) {
    x = op_maximum_value(c->m, x, expr_mul(c->m, x, op_num(c->m, x->dtype, 0.5)));
    x = op_clip_value(c->m, x, -50 - i, 60 + i);
    x = expr_select(c->m, op_intrin(c->m, IN_ISNAN, x), op_num(c->m, x->dtype, i),
                    expr_add(c->m, x, op_num(c->m, x->dtype, 1)));
    x = op_relu_value(c->m, expr_sub(c->m, x, op_num(c->m, x->dtype, 2)));
  }
  out[0] = op_emit(c, &a, NULL, x);
}
static const OpDef op_deep = {.name = "deep",
                              .doc = "a chain of choices",
                              .args = "data",
                              .min_args = 1,
                              .max_args = 1,
                              .type = op_type_same,
                              .compute = deep_compute};

static void deep_choices(void **state)
{
  (void)state;
  expect_job((Job){.op = &op_deep, .dtype = DT_F32});
}

int main(void)
{
  op_init();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(elementwise_kernels), cmocka_unit_test(broadcast_kernels), cmocka_unit_test(reduce_kernels),
    cmocka_unit_test(symbolic_kernels),    cmocka_unit_test(random_kernels),    cmocka_unit_test(deep_choices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
