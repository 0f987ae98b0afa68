/* test_graphs.h: running graphs on random numbers before and after a pass, for cases and tests. */
#ifndef LATHE_PASS_TEST_GRAPHS_H
#define LATHE_PASS_TEST_GRAPHS_H

#include <math.h>
#include <stdlib.h>

#include "pass/pass.h"

/* Sizes with a name get this extent. */
enum { TEST_SIZE = 3 };

static inline uint64_t test_random(uint64_t *seed)
{
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

static inline int64_t test_dim(Module *m, Arena *arena, const Expr *e)
{
  EvalEnv env = {.m = m, .arena = arena};
  const Var **vars;
  int n = expr_free_vars(arena, e, &vars);
  for (int i = 0; i < n; i++) expr_eval_bind(&env, vars[i], value_int(vars[i]->dtype, TEST_SIZE));
  return expr_eval(&env, e, 0).i;
}

/* A value of the type: floats around zero, integers from 0 to 2 (indices stay in range). */
static inline const RtValue *test_value(Module *m, Arena *arena, const Type *ty, uint64_t *seed)
{
  RtValue *v = arena_new_of(arena, RtValue);
  if (ty->kind == TY_TUPLE) {
    v->kind = RV_TUPLE;
    v->n = ty->nfield;
    v->field = arena_array(arena, const RtValue *, ty->nfield + 1);
    for (int i = 0; i < ty->nfield; i++) v->field[i] = test_value(m, arena, ty->field[i], seed);
    return v;
  }
  if (ty->kind != TY_TENSOR)
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "no random value of type %s", type_text(arena, ty));
  ConstData *d = &v->tensor;
  size_t count = 1;
  size_t size = (size_t)dtype_bytes(ty->dtype);
  v->kind = RV_TENSOR;
  d->dtype = ty->dtype;
  d->ndim = ty->ndim;
  for (int i = 0; i < ty->ndim; i++) count *= (size_t)(d->shape[i] = test_dim(m, arena, ty->shape[i]));
  d->bytes = count * size;
  char *bytes = arena_alloc(arena, d->bytes + 1);
  for (size_t i = 0; i < count; i++) {
    double f = (double)(int64_t)(test_random(seed) % 2001) / 1000 - 1;
    Value x = dtype_is_float(ty->dtype)
                  ? value_float(ty->dtype, f)
                  : value_int(ty->dtype, (int64_t)(test_random(seed) % (dtype_is_bool(ty->dtype) ? 2 : 3)));
    value_store(x, bytes + i * size);
  }
  d->data = bytes;
  return v;
}

static inline bool test_near(double a, double b, double tolerance)
{
  return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= tolerance * (1 + fabs(a));
}

static inline void test_compare(Ctx *ctx, const char *what, const RtValue *a, const RtValue *b, double tolerance)
{
  if (a->kind != b->kind || a->n != b->n)
    raise(ctx, ERR_INTERNAL, NOWHERE, "%s: the result has another structure", what);
  for (int i = 0; i < a->n; i++) test_compare(ctx, what, a->field[i], b->field[i], tolerance);
  if (a->kind != RV_TENSOR) return;
  const ConstData *x = &a->tensor;
  const ConstData *y = &b->tensor;
  if (x->ndim != y->ndim || memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape))
    raise(ctx, ERR_INTERNAL, NOWHERE, "%s: the result has another shape", what);
  size_t n = x->bytes / (size_t)dtype_bytes(x->dtype);
  for (size_t i = 0; i < n; i++) {
    Value p = value_load(x->dtype, (const char *)x->data + i * (size_t)dtype_bytes(x->dtype));
    Value q = value_load(y->dtype, (const char *)y->data + i * (size_t)dtype_bytes(y->dtype));
    double f = dtype_is_float(p.dtype) ? p.f : (double)p.i;
    double g = dtype_is_float(q.dtype) ? q.f : (double)q.i;
    if (!test_near(f, g, tolerance))
      raise(ctx, ERR_INTERNAL, NOWHERE, "%s: the meaning changed: element %zu was %g and is %g", what, i, f, g);
  }
}

/* Raises unless both functions give the same on random arguments. */
static inline void test_same_meaning(Module *m, const char *what, const Node *before, const Node *after,
                                     double tolerance)
{
  Scope scope = scope_begin(m->ctx);
  Arena *arena = scratch(m->ctx);
  uint64_t seed = 88172645463325252u;
  int n = fn_nparams(before);
  const RtValue **arg = arena_array(arena, const RtValue *, n + 1);
  if (fn_nparams(after) != n) raise(m->ctx, ERR_INTERNAL, NOWHERE, "%s: the number of parameters changed", what);
  for (int i = 0; i < n; i++) arg[i] = test_value(m, arena, before->arg[i]->type, &seed);
  test_compare(m->ctx, what, graph_eval(m, arena, before, n, arg), graph_eval(m, arena, after, n, arg), tolerance);
  scope_end(m->ctx, scope);
}

/* Runs "Name, Name(option=value, option=value) ~1e-3": passes in order; returns the tolerance. */
static inline double test_run_passes(PassContext *pc, Module *m, const char *text)
{
  const char *tilde = strrchr(text, '~');
  Arena *arena = pc->arena;
  for (const char *p = text; *p;) {
    p += strspn(p, " ,");
    size_t len = strcspn(p, " ,(");
    if (!len || *p == '~') break;
    const char *name = arena_strndup(arena, p, len);
    const char *option[8][2];
    int n = 0;
    p += len;
    if (*p == '(') {
      for (p++; *p && *p != ')' && n < 8; n++) {
        p += strspn(p, " ,");
        size_t k = strcspn(p, "=");
        option[n][0] = arena_strndup(arena, p, k);
        p += k + (p[k] == '=');
        size_t v = *p == '"' ? strcspn(p + 1, "\"") + 2 : strcspn(p, ",)");
        option[n][1] = *p == '"' ? arena_strndup(arena, p + 1, v - 2) : arena_strndup(arena, p, v);
        p += v;
      }
      if (*p == ')') p++;
    }
    pass_run(pc, pass_make(arena, pc->ctx, name, n, (const char *const(*)[2])option), m);
  }
  return tilde ? strtod(tilde + 1, NULL) : 1e-5;
}

#endif
