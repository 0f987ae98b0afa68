/* test_lower.h: what the tests of lower share: a protected body, arguments with
 * numbers in them, and the check that lowering keeps the meaning, pass by pass. */
#ifndef LATHE_TEST_LOWER_H
#define LATHE_TEST_LOWER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lower/lower.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDE "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"
#define NARROW "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
#define PLAIN "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"

typedef struct World {
  Ctx *ctx;
  Module *m;
  void (*body)(struct World *);
} World;

static void world_run(Ctx *ctx, void *arg)
{
  World *w = arg;
  (void)ctx;
  w->m = module_new(w->ctx);
  w->body(w);
}

static inline ErrKind world(void (*body)(World *), char *message, size_t size)
{
  World w = {.ctx = ctx_new(), .body = body};
  ErrKind kind = protect(w.ctx, world_run, &w);
  if (message) snprintf(message, size, "%s", error_message(w.ctx));
  if (kind && !message) fprintf(stderr, "%s: %s\n", error_kind_name(kind), error_message(w.ctx));
  if (w.m) module_release(w.m);
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

#define REFUSED(name, error, words)                                 \
  static void body_##name(World *w);                                \
  static void name(void **state)                                    \
  {                                                                 \
    (void)state;                                                    \
    char text[512];                                                 \
    assert_int_equal(world(body_##name, text, sizeof text), error); \
    if (!strstr(text, words)) fail_msg("got: %s", text);            \
  }                                                                 \
  static void body_##name(World *w)

static inline PrimFunc *parse(World *w, const char *text) { return func_parse(w->m, text, "test", 1, 0, NULL); }

/* ---- arguments -------------------------------------------------------------------- */

/* A size of the function: every dimension or scalar parameter of that name. */
typedef struct Size {
  const char *name;
  int64_t value;
} Size;

enum { MAX_ARGS = 8, MAX_DIMS = 6 };
typedef struct Args {
  int n;
  TirArg arg[MAX_ARGS];
  int64_t shape[MAX_ARGS][MAX_DIMS];
  size_t bytes[MAX_ARGS];
} Args;

static inline int64_t size_value(World *w, const Expr *e, const Size *sizes)
{
  EvalEnv env = {.m = w->m, .arena = scratch(w->ctx)};
  const Var **vars;
  int n = expr_free_vars(scratch(w->ctx), e, &vars);
  for (int i = 0; i < n; i++)
    for (const Size *s = sizes; s && s->name; s++)
      if (!strcmp(s->name, vars[i]->name)) expr_eval_bind(&env, vars[i], value_int(vars[i]->dtype, s->value));
  return expr_eval(&env, e, 0).i;
}

/* Small numbers, so that sums of products stay exact in float32. */
static inline double number(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
  return (double)((int64_t)(*seed >> 40) % 17 - 8) / 4;
}

static inline void make_args(World *w, const PrimFunc *f, const Size *sizes, uint64_t seed, Args *out)
{
  *out = (Args){.n = f->nparam};
  for (int i = 0; i < f->nparam; i++) {
    const Buffer *b = f->param[i].buffer;
    TirArg *a = &out->arg[i];
    if (!b) {
      int64_t v = size_value(w, f->param[i].var->expr, sizes);
      DType t = f->param[i].var->dtype;
      a->dtype = t;
      a->scalar = dtype_is_float(t) ? value_float(t, (double)v) : value_int(t, v);
      continue;
    }
    size_t n = 1;
    for (int d = 0; d < b->ndim; d++) {
      out->shape[i][d] = size_value(w, b->shape[d], sizes);
      n *= (size_t)out->shape[i][d];
    }
    a->dtype = b->dtype;
    a->ndim = b->ndim;
    a->shape = out->shape[i];
    out->bytes[i] = n * (size_t)dtype_bytes(b->dtype);
    a->data = arena_alloc(scratch(w->ctx), out->bytes[i] + 64);
    for (size_t k = 0; k < n; k++) {
      double x = number(&seed);
      Value v = dtype_is_float(b->dtype) ? value_float(b->dtype, x) : value_int(b->dtype, (int64_t)(x * 4));
      value_store(v, (char *)a->data + k * (size_t)dtype_bytes(b->dtype));
    }
  }
}

static inline bool close_enough(Value a, Value b, double tolerance)
{
  if (value_eq(a, b)) return true;
  if (!dtype_is_float(a.dtype) || tolerance == 0) return false;
  return fabs(a.f - b.f) <= tolerance * (1 + fabs(b.f));
}

/* First difference of two sets of arguments; false if there is none. */
static inline bool differ(const Args *a, const Args *b, double tolerance, char *why, size_t size)
{
  for (int i = 0; i < a->n; i++) {
    size_t step = a->arg[i].data ? (size_t)dtype_bytes(a->arg[i].dtype) : 1;
    for (size_t k = 0; k < a->bytes[i]; k += step) {
      Value x = value_load(a->arg[i].dtype, (char *)a->arg[i].data + k);
      Value y = value_load(b->arg[i].dtype, (char *)b->arg[i].data + k);
      if (close_enough(x, y, tolerance)) continue;
      if (dtype_is_float(x.dtype))
        snprintf(why, size, "argument %d, element %zu: %.9g, should be %.9g", i, k / step, x.f, y.f);
      else snprintf(why, size, "argument %d, element %zu: %" PRId64 ", should be %" PRId64, i, k / step, x.i, y.i);
      return true;
    }
  }
  return false;
}

/* Runs f, then the function after each pass, on the same numbers: all must agree.  From
 * expand_math on floats may differ by the tolerance. */
static inline PrimFunc *same_meaning(World *w, const PrimFunc *f, const char *target, const Size *sizes,
                                     double tolerance)
{
  const Target *t = target_parse(w->ctx, target);
  Args want, got;
  make_args(w, f, sizes, 7, &want);
  func_interpret(f, want.n, want.arg);
  PrimFunc *g = func_clone(f);
  bool exact = true;
  char why[256];
  for (int i = 0; i < lower_pass_count(); i++) {
    const char *pass = lower_pass_name(i);
    exact &= strcmp(pass, "expand_math") != 0;
    g = lower_run_pass(g, t, pass);
    make_args(w, f, sizes, 7, &got);
    func_interpret(g, got.n, got.arg);
    if (differ(&got, &want, exact ? 0 : tolerance, why, sizeof why))
      fail_msg("after %s: %s\n%s", pass, why, func_print_compact(scratch(w->ctx), g));
  }
  return g;
}

static inline void check_text(World *w, const PrimFunc *f, const char *want)
{
  const char *got = func_print_compact(scratch(w->ctx), f);
  while (*want == '\n') want++;
  if (strcmp(got, want)) fail_msg("got:\n%s\nshould be:\n%s", got, want);
}

static inline PrimFunc *loops(World *w, const PrimFunc *f)
{
  return lower_func(f, target_parse(w->ctx, WIDE), LOWER_LOOPS, NULL);
}
static inline PrimFunc *kernel_func(World *w, const PrimFunc *f)
{
  return lower_func(f, target_parse(w->ctx, WIDE), LOWER_KERNEL, NULL);
}

#endif
