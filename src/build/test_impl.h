/* test_impl.h: a graph function through its implementation: lowered, compiled, run, and beside
 * it the operators' tensor expressions, compiled as they are: one call after the other, one element
 * after the other. */
#ifndef LATHE_TEST_IMPL_H
#define LATHE_TEST_IMPL_H

#include "build/test_run.h"
#include "impl/impl.h"
#include "op/nn.h"

/* Sanitizers watch the compiler, which goes the same ways for every target: one will do. */
#if defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#define TEST_SANITIZED __has_feature(address_sanitizer)
#else
#define TEST_SANITIZED 0
#endif

typedef struct Fn {
  Ctx *ctx;
  Module *m;
  const Target *target;
  ImplConfig config;
  int n;
  const Node *param[12];
} Fn;

static inline const Node *fn_param(Fn *f, DType dtype, int ndim, const int64_t *shape)
{
  const Node *v = node_var(f->m, arena_printf(f->m->arena, "p%d", f->n), type_tensor_of(f->m, dtype, ndim, shape));
  return f->param[f->n++] = v;
}
#define PARAM(f, ...) \
  fn_param(f, DT_F32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

static inline const Node *fn_call(Fn *f, const char *op, const void *attrs, int n, const Node *const *arg)
{
  const OpDef *def = opdef_get(f->ctx, op);
  return node_call(f->m, def, n, arg, attrs ? attrs : def->attrs ? attrs_new(f->m, def->attrs) : NULL, NULL);
}
#define CALL(f, op, attrs, ...)                                                        \
  fn_call(f, op, attrs, (int)(sizeof((const Node *[]){__VA_ARGS__}) / sizeof(Node *)), \
          (const Node *const[]){__VA_ARGS__})

/* The call with the fastest plan of an implementation; as it is where that has none for it. */
static inline const Node *fn_plan(Fn *f, const Node *call, const char *impl)
{
  ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
  PlanList list;
  const Plan *best = NULL;
  impl_plans(&of, &list);
  for (int i = 0; i < list.v.n; i++)
    if (!strcmp(list.v.v[i].impl->name, impl) && (!best || list.v.v[i].seconds < best->seconds)) best = &list.v.v[i];
  return best ? node_call_planned(f->m, call, plan_text(f->m->arena, best)) : call;
}

static inline const Node *fn_done(Fn *f, const Node *body) { return node_func(f->m, f->n, f->param, body, NULL, NULL); }

/* Attributes from pairs of name and text, ended by NULL. */
static inline const void *fn_attrs(Fn *f, const char *op, ...)
{
  const AttrsDef *def = opdef_get(f->ctx, op)->attrs;
  void *a = attrs_new(f->m, def);
  va_list list;
  va_start(list, op);
  for (const char *name; (name = va_arg(list, const char *));)
    attrs_set_text(f->m, def, a, name, va_arg(list, const char *));
  va_end(list);
  return a;
}

/* A dimension when every variable is `size`. */
static inline int64_t fn_dim(const Expr *e, int64_t size)
{
  if (e->kind == E_INT) return e->u.i;
  if (e->kind == E_VAR) return size;
  if (e->kind == E_ADD) return fn_dim(e->arg[0], size) + fn_dim(e->arg[1], size);
  if (e->kind == E_SUB) return fn_dim(e->arg[0], size) - fn_dim(e->arg[1], size);
  if (e->kind == E_MUL) return fn_dim(e->arg[0], size) * fn_dim(e->arg[1], size);
  if (e->kind == E_FLOORDIV) return fn_dim(e->arg[0], size) / fn_dim(e->arg[1], size);
  return -1;
}

static inline TirArg fn_tensor(Arena *a, const Type *t, int64_t size, uint64_t *seed)
{
  int64_t *shape = arena_array(a, int64_t, t->ndim + 1);
  TirArg arg = {.dtype = t->dtype, .ndim = t->ndim, .shape = shape};
  for (int d = 0; d < t->ndim; d++) shape[d] = fn_dim(t->shape[d], size);
  size_t n = run_count(&arg);
  size_t step = (size_t)dtype_bytes(t->dtype);
  char *data = arena_alloc(a, n * step + 1);
  for (size_t i = 0; i < n && seed; i++) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    double v = (double)(int64_t)(*seed >> 33) / (double)(1u << 30) - 1;
    value_store(dtype_is_float(t->dtype) ? value_float(t->dtype, v) : value_int(t->dtype, (int64_t)(v * 8)),
                data + i * step);
  }
  arg.data = data;
  return arg;
}

static inline PrimFunc *fn_lower(Fn *f, Module *dst, const Node *func, ImplResult *out)
{
  impl_lower(dst, f->m, func, "kernel", f->target, &f->config, out);
  return out->func;
}

/* One call by its operator's tensor expressions, unscheduled. */
static inline void fn_evaluate(Fn *f, Arena *arena, const Node *call, const TirArg *in, TirArg *out)
{
  Module *m = f->m;
  const Tensor *tensor[8], *result;
  TeArg arg[10];
  TirArg value[10];
  Map size = {0};
  int n = 0;
  for (int i = 0; i < call->nargs; i++) {
    tensor[i] = te_placeholder(m, arena_printf(m->arena, "a%d", i), in[i].dtype, in[i].ndim, call->arg[i]->type->shape);
    arg[n] = (TeArg){.tensor = tensor[i]};
    value[n++] = in[i];
    for (int d = 0; d < in[i].ndim; d++) {
      const Expr *e = call->arg[i]->type->shape[d];
      if (e->kind == E_VAR) map_put(arena, &size, e->u.var, (void *)(uintptr_t)expr_i32(m, in[i].shape[d]));
    }
  }
  opdef_compute(m, call, call->nargs, tensor, &result);
  arg[n] = (TeArg){.tensor = result};
  int64_t *shape = arena_array(arena, int64_t, 9);
  *out = (TirArg){.dtype = call->type->dtype, .ndim = call->type->ndim, .shape = shape};
  Analyzer *an = analyzer_new(m, arena);
  for (int d = 0; d < out->ndim; d++)
    shape[d] = expr_simplify(an, expr_substitute(m, call->type->shape[d], &size))->u.i;
  out->data = arena_alloc(arena, run_bytes(out) + 1);
  value[n++] = *out;
  Module *dst = module_new(f->ctx);
  defer(f->ctx, drop_module, dst);
  PrimFunc *plain = te_create_prim_func(dst, "plain", n, arg, NULL);
  Built *built = build_funcs(f->ctx, 1, &plain, f->target, &(LowerConfig){0});
  defer(f->ctx, drop_built, built);
  TirArg *copy = run_copy(arena, n, value);
  run_built(f->ctx, built, "plain", n, copy);
  out->data = copy[n - 1].data;
}

/* By the operators' meaning, one call after the other. */
static inline void fn_reference(Fn *f, Arena *arena, const Node *body, int n, const TirArg *arg, TirArg *out)
{
  const Node **node;
  int nn = graph_post_order(arena, body, &node);
  Map data = {0};
  for (int i = 0; i < n; i++) map_put(arena, &data, f->param[i], (void *)(uintptr_t)&arg[i]);
  for (int i = 0; i < nn; i++) {
    TirArg in[8];
    TirArg *made = arena_new_of(arena, TirArg);
    if (node[i]->kind == N_CONST) {
      const ConstData *c = node[i]->u.data;
      *made = (TirArg){.dtype = c->dtype, .ndim = c->ndim, .shape = (int64_t *)c->shape, .data = (void *)c->data};
      map_put(arena, &data, node[i], made);
    }
    if (node[i]->kind != N_CALL) continue;
    for (int a = 0; a < node[i]->nargs; a++) in[a] = *(TirArg *)map_get(&data, node[i]->arg[a]);
    fn_evaluate(f, arena, node[i], in, made);
    map_put(arena, &data, node[i], made);
  }
  *out = *(TirArg *)map_get(&data, body);
}

/* Raises unless two tensors agree within `error` of the largest element. */
static inline void fn_compare(Fn *f, const char *what, const TirArg *want, const TirArg *got, double error)
{
  double largest = 0;
  size_t count = run_count(want);
  size_t step = (size_t)dtype_bytes(want->dtype);
  for (int pass = 0; pass < 2; pass++)
    for (size_t e = 0; e < count; e++) {
      Value a = value_load(want->dtype, (char *)want->data + e * step);
      Value b = value_load(want->dtype, (char *)got->data + e * step);
      double x = dtype_is_float(a.dtype) ? a.f : (double)a.i;
      double y = dtype_is_float(b.dtype) ? b.f : (double)b.i;
      if (!pass && isfinite(x)) largest = fmax(largest, fabs(x));
      if (pass && !(x == y || (isnan(x) && isnan(y))) && !(fabs(x - y) <= error * largest))
        raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s: element %zu is %.9g and should be %.9g", what, e, y, x);
    }
}

/* Raises unless two graphs over the parameters mean the same. */
static inline void fn_same(Fn *f, const char *what, const Node *a, const Node *b, double error)
{
  Arena *arena = scratch(f->ctx);
  TirArg arg[16], want, got;
  uint64_t seed = 7;
  for (int i = 0; i < f->n; i++) arg[i] = fn_tensor(arena, f->param[i]->type, 0, &seed);
  fn_reference(f, arena, a, f->n, arg, &want);
  fn_reference(f, arena, b, f->n, arg, &got);
  fn_compare(f, what, &want, &got, error);
}

/* Raises unless the compiled function gives what the operators mean, within `error` of the
 * largest element.  Variables in the shapes are `size`.  Gives the name of the implementation. */
static inline const char *fn_check(Fn *f, const char *what, const Node *body, int64_t size, double error)
{
  Arena *arena = scratch(f->ctx);
  Module *dst = module_new(f->ctx);
  defer(f->ctx, drop_module, dst);
  ImplResult r;
  PrimFunc *kernel = fn_lower(f, dst, fn_done(f, body), &r);
  Built *built = build_funcs(f->ctx, 1, (PrimFunc *const[]){kernel}, f->target, &(LowerConfig){0});
  defer(f->ctx, drop_built, built);
  TirArg arg[16], want;
  uint64_t seed = 7;
  for (int i = 0; i < f->n; i++) arg[i] = fn_tensor(arena, f->param[i]->type, size, &seed);
  fn_reference(f, arena, body, f->n, arg, &want);
  arg[f->n] = want;
  arg[f->n].data = arena_alloc(arena, run_bytes(&want) + 1);
  for (int i = 0; i < r.nscalars; i++)
    arg[f->n + 1 + i] = (TirArg){.dtype = r.scalars[i]->dtype, .scalar = value_int(r.scalars[i]->dtype, size)};
  TirArg *got = run_copy(arena, f->n + 1 + r.nscalars, arg);
  run_built(f->ctx, built, "kernel", f->n + 1 + r.nscalars, got);
  fn_compare(f, arena_printf(arena, "%s (%s)", what, r.impl), &want, &got[f->n], error);
  return arena_strdup(ctx_arena(f->ctx), r.impl);
}

/* ---- one test for one or several targets -------------------------------------------------------- */

typedef void Body(Fn *);

typedef struct Job {
  Body *body;
  const char *target;
} Job;

static inline void job_body(Ctx *ctx, void *arg)
{
  Job *j = arg;
  op_init();
  Fn f = {.ctx = ctx, .target = target_parse(ctx, j->target), .m = module_new(ctx)};
  defer(ctx, drop_module, f.m);
  j->body(&f);
}

static inline void run_job(Body *body, const char *target)
{
  Ctx *ctx = ctx_new();
  Job j = {body, target};
  ErrKind kind = protect(ctx, job_body, &j);
  if (kind) print_error("%s: %s: %s\n", target, error_kind_name(kind), error_message(ctx));
  bool failed = kind != ERR_NONE;
  ctx_free(ctx);
  assert_false(failed);
}

/* For the host, and for narrower vectors that it can run, where LLVM makes the code: a C compiler takes long. */
static inline void on_targets(Body *body)
{
  run_job(body, "llvm");
  if (target_host_arch() == ARCH_X86_64 && !TEST_SANITIZED && codegen_has_llvm()) {
    if (target_host_features() >> CPU_FMA & 1) run_job(body, "llvm -mcpu=haswell");
    run_job(body, "llvm -mcpu=generic");
  }
}

/* The target with NEON's registers, whose multiply-adds take a factor from a lane: schedules for it run here too. */
static inline Target lane_target(const Target *t)
{
  Target lanes = *t;
  lanes.broadcast_load = false;
  lanes.vector_bits = 128;
  lanes.vector_registers = 32;
  return lanes;
}

/* A fresh function; the one before is dropped. */
static inline void fresh(Fn *f)
{
  Fn next = {.ctx = f->ctx, .target = f->target};
  next.m = module_new(f->ctx);
  defer(f->ctx, drop_module, next.m);
  *f = next;
}

static inline void want_impl(Fn *f, const char *what, const char *got, const char *want)
{
  if (strcmp(got, want))
    raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s: implementation '%s' was taken, '%s' is wanted", what, got, want);
}

#endif
