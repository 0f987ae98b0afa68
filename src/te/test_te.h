/* test_te.h: what the tests of te and of the te face share: short ways to write
 * computes, memory for arguments, and runs of evaluator and interpreter on the
 * same numbers. */
#ifndef LATHE_TEST_TE_H
#define LATHE_TEST_TE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "te/te.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a context, a module, a protected body ---------------------------------------------- */

typedef struct World {
  Ctx *ctx;
  Module *m;
  void (*body)(struct World *);
} World;

static void world_run(Ctx *ctx, void *arg)
{
  (void)ctx;
  World *w = arg;
  w->m = module_new(w->ctx);
  w->body(w);
}

/* Runs the body; returns the error's kind. */
static inline ErrKind world(void (*body)(World *), char *message, size_t size)
{
  World w = {.ctx = ctx_new(), .body = body};
  ErrKind kind = protect(w.ctx, world_run, &w);
  if (message) snprintf(message, size, "%s", error_message(w.ctx));
  if (kind && !message) fprintf(stderr, "%s: %s\n", error_kind_name(kind), error_message(w.ctx));
  module_release(w.m);
  ctx_free(w.ctx);
  return kind;
}

#define CASE(name)                                           \
  static void body_##name(World *w);                         \
  static void name(void **state)                             \
  {                                                          \
    (void)state;                                             \
    assert_int_equal(world(body_##name, NULL, 0), ERR_NONE); \
  }                                                          \
  static void body_##name(World *w)

/* The body is refused, with this kind and words. */
#define REFUSED(name, error, ...)                                                              \
  static void body_##name(World *w);                                                           \
  static void name(void **state)                                                               \
  {                                                                                            \
    (void)state;                                                                               \
    char message[1024];                                                                        \
    const char *const words[] = {__VA_ARGS__};                                                 \
    ErrKind kind = world(body_##name, message, sizeof message);                                \
    if (kind != (error)) fprintf(stderr, "%s: %s\n", error_kind_name(kind), message);          \
    assert_int_equal(kind, error);                                                             \
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {                                \
      if (!strstr(message, words[i])) fprintf(stderr, "'%s' lacks '%s'\n", message, words[i]); \
      assert_non_null(strstr(message, words[i]));                                              \
    }                                                                                          \
  }                                                                                            \
  static void body_##name(World *w)

/* ---- writing computes -------------------------------------------------------------------- */

#define I(v) expr_i32(w->m, v)
#define F(v) expr_float(w->m, DT_F32, v)
#define SHAPE(...) \
  (int)(sizeof((const Expr *[]){__VA_ARGS__}) / sizeof(const Expr *)), (const Expr *[]) { __VA_ARGS__ }
#define READ(t, ...) te_read(w->m, t, SHAPE(__VA_ARGS__))
#define V(iv) ((iv)->var->expr)
#define ADD(a, b) expr_add(w->m, a, b)
#define SUB(a, b) expr_sub(w->m, a, b)
#define MUL(a, b) expr_mul(w->m, a, b)
#define DIV(a, b) expr_binary(w->m, E_DIV, a, b)

static inline const IterVar *axis_of(World *w, const char *name, const Expr *extent, IterKind kind)
{
  const Var *v = var_new(w->m, name, extent->dtype, VAR_PLAIN);
  return itervar_new(w->m, v, expr_int(w->m, extent->dtype, 0), extent, kind, NULL);
}
#define AXIS(name, extent) axis_of(w, name, extent, ITER_SPATIAL)
#define RAXIS(name, extent) axis_of(w, name, extent, ITER_REDUCE)

static inline const Tensor *holder(World *w, const char *name, DType t, int n, const Expr *const *shape)
{
  return te_placeholder(w->m, name, t, n, shape);
}
#define INPUT(name, ...) holder(w, name, DT_F32, SHAPE(__VA_ARGS__))

static inline const Expr *reduced(World *w, const char *reducer, const Expr *source, int n, const IterVar *const *axis,
                                  const Expr *cond)
{
  const Reducer *r = reducer_named(w->m, reducer, source->dtype, DT_I32);
  return expr_reduce(w->m, r, 1, &source, n, axis, cond ? cond : expr_bool(w->m, true), NULL, 0);
}
#define SUM(source, axis) reduced(w, "sum", source, 1, (const IterVar *[]){axis}, NULL)

static inline const Tensor *computed(World *w, const char *name, int n, const IterVar *const *axis, const Expr *body)
{
  const Expr *shape[8];
  for (int i = 0; i < n; i++) shape[i] = axis[i]->extent;
  return &te_compute(w->m, name, NULL, n, shape, axis, 1, &body, NULL)->out[0];
}
#define AXES(...) \
  (int)(sizeof((const IterVar *[]){__VA_ARGS__}) / sizeof(const IterVar *)), (const IterVar *[]) { __VA_ARGS__ }
#define COMPUTE(name, axes, body) computed(w, name, axes, body)

/* C[i, j] = sum of A[i, k] * B[k, j] */
typedef struct Matmul {
  const Tensor *A, *B, *C;
  const IterVar *i, *j, *k;
} Matmul;
static inline Matmul matmul_of(World *w, const Expr *M, const Expr *N, const Expr *K)
{
  Matmul x = {.A = INPUT("A", M, K), .B = INPUT("B", K, N), .i = AXIS("i", M), .j = AXIS("j", N), .k = RAXIS("k", K)};
  const Expr *product = MUL(READ(x.A, V(x.i), V(x.k)), READ(x.B, V(x.k), V(x.j)));
  x.C = COMPUTE("C", AXES(x.i, x.j), SUM(product, x.k));
  return x;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static inline int64_t extent_of(World *w, const Expr *e, int nvar, const Var *const *var, const int64_t *value)
{
  EvalEnv env = {.m = w->m, .arena = scratch(w->ctx)};
  for (int i = 0; i < nvar; i++) expr_eval_bind(&env, var[i], value_int(var[i]->dtype, value[i]));
  return expr_eval(&env, e, 0).i;
}

typedef struct Sizes {
  int n;
  const Var *const *var;
  const int64_t *value;
} Sizes;

/* Memory for every argument: small numbers that sums of products keep exact. */
static inline TirArg *numbers(World *w, int n, const TeArg *args, Sizes sizes)
{
  Arena *arena = scratch(w->ctx);
  TirArg *out = arena_array(arena, TirArg, n);
  unsigned seed = 12345;
  for (int i = 0; i < n; i++) {
    if (!args[i].tensor) {
      int64_t v = extent_of(w, args[i].var->expr, sizes.n, sizes.var, sizes.value);
      out[i] = (TirArg){.dtype = args[i].var->dtype, .scalar = value_int(args[i].var->dtype, v)};
      continue;
    }
    const Buffer *b = args[i].tensor->buffer;
    int64_t *shape = arena_array(arena, int64_t, b->ndim);
    int64_t count = 1;
    for (int d = 0; d < b->ndim; d++) count *= shape[d] = extent_of(w, b->shape[d], sizes.n, sizes.var, sizes.value);
    char *data = arena_alloc(arena, (size_t)count * (size_t)dtype_bytes(b->dtype) + 16);
    for (int64_t k = 0; k < count; k++) {
      seed = seed * 1103515245u + 12345u;
      int v = args[i].tensor->op->kind == TE_PLACEHOLDER ? (int)(seed >> 16) % 17 - 8 : 77;
      value_store(dtype_is_float(b->dtype) ? value_float(b->dtype, v * 0.5) : value_int(b->dtype, v),
                  data + k * dtype_bytes(b->dtype));
    }
    out[i] = (TirArg){.data = data, .dtype = b->dtype, .ndim = b->ndim, .shape = shape};
  }
  return out;
}

static inline size_t bytes_of(const TirArg *a)
{
  size_t n = (size_t)dtype_bytes(a->dtype);
  for (int d = 0; d < a->ndim; d++) n *= (size_t)a->shape[d];
  return n;
}

/* Outputs of two runs are the same, up to the rounding that another order of a
 * float sum gives. */
static inline void assert_same_numbers(int n, const TirArg *a, const TirArg *b)
{
  for (int i = 0; i < n; i++) {
    if (!a[i].data) continue;
    size_t size = (size_t)dtype_bytes(a[i].dtype);
    size_t count = bytes_of(&a[i]) / size;
    for (size_t k = 0; k < count; k++) {
      Value x = value_load(a[i].dtype, (char *)a[i].data + k * size);
      Value y = value_load(a[i].dtype, (char *)b[i].data + k * size);
      double fx = dtype_is_float(x.dtype) ? x.f : (double)x.i;
      double fy = dtype_is_float(y.dtype) ? y.f : (double)y.i;
      double tolerance = 1e-5 * (1 + (fx < 0 ? -fx : fx));
      if (!(fx == fy || (fx - fy <= tolerance && fy - fx <= tolerance)))
        fail_msg("argument %d, element %zu: %.9g and %.9g", i, k, fx, fy);
    }
  }
}

/* The function computes what the evaluator says. */
static inline void assert_computes(World *w, const PrimFunc *f, int n, const TeArg *args, Sizes sizes)
{
  TirArg *want = numbers(w, n, args, sizes);
  TirArg *got = numbers(w, n, args, sizes);
  te_evaluate(w->ctx, n, args, want);
  func_interpret(f, n, got);
  assert_same_numbers(n, want, got);
}

#define TENSORS(...)                                                                         \
  (int)(sizeof((const Tensor *[]){__VA_ARGS__}) / sizeof(const Tensor *)),                   \
      te_args_of(w, (int)(sizeof((const Tensor *[]){__VA_ARGS__}) / sizeof(const Tensor *)), \
                 (const Tensor *[]){__VA_ARGS__})
static inline TeArg *te_args_of(World *w, int n, const Tensor *const *t)
{
  TeArg *out = arena_array(scratch(w->ctx), TeArg, n);
  for (int i = 0; i < n; i++) out[i].tensor = t[i];
  return out;
}

/* Creates the function of the arguments, checks it and compares it with the evaluator. */
static inline PrimFunc *assert_creates(World *w, int n, const TeArg *args, Sizes sizes)
{
  PrimFunc *f = te_create_prim_func(w->m, "main", n, args, NULL);
  func_check(f);
  assert_computes(w, f, n, args, sizes);
  return f;
}
#define NO_SIZES ((Sizes){0})

#endif
