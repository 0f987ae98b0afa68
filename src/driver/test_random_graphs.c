/* test_random_graphs.c: random models end to end: each is compiled at levels 0 and 3 and
 * with one pass left out, or for two targets with random parts on either, run at several sizes, and compared with the
 * interpreter.
 *
 * By hand:  LATHE_RANDOM_GRAPHS=500 LATHE_RANDOM_SEED=1000 driver_test_random_graphs
 * tries that many from that seed on and goes on after a failure; a failure prints the
 * seed and the model's text, LATHE_RANDOM_PRINT=1 every model's. */
#include <math.h>

#include "driver/random_graph.h"
#include "driver/test_driver.h"

enum { NSIZES = 3 };
static const int64_t sizes[NSIZES] = {4, 1, 7};

typedef struct Trial {
  uint64_t seed;
  bool symbolic;
  Module *m;
  const Node *main;
  const RtValue *arg[8];
  const RtValue *want[NSIZES]; /* NULL: the interpreter refused it */
  int size;                    /* being run */
  int level;
  const char *disabled; /* a pass, or NULL */
  bool spread;          /* over two targets */
  Compiled *c;
  LatheRtExecutor *x;
  char why[600];
} Trial;

/* ---- arguments and the reference ------------------------------------------------------ */

static const RtValue *random_value(Trial *t, const Type *ty, Rand *r)
{
  Arena *arena = t->m->arena;
  ConstData d = {.dtype = ty->dtype, .ndim = ty->ndim};
  size_t count = 1;
  size_t size = (size_t)dtype_bytes(ty->dtype);
  for (int i = 0; i < ty->ndim; i++)
    count *= (size_t)(d.shape[i] = ty->shape[i]->kind == E_INT ? ty->shape[i]->u.i : sizes[t->size]);
  d.bytes = count * size;
  char *bytes = arena_alloc(arena, d.bytes + 1);
  for (size_t i = 0; i < count; i++)
    value_store(dtype_is_float(ty->dtype)  ? value_float(ty->dtype, (rand_below(r, 2001) - 1000) / 1000.0)
                : dtype_is_bool(ty->dtype) ? value_int(ty->dtype, rand_below(r, 2))
                                           : value_int(ty->dtype, rand_below(r, 9) - 3),
                bytes + i * size);
  d.data = bytes;
  return graph_value_tensor(arena, &d);
}

static void make_arguments(Trial *t)
{
  Rand r = {t->seed * 77 + (uint64_t)t->size};
  for (int i = 0; i < fn_nparams(t->main); i++) t->arg[i] = random_value(t, t->main->arg[i]->type, &r);
}

static void reference_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Trial *t = arg;
  t->want[t->size] = graph_eval(t->m, t->m->arena, t->main, fn_nparams(t->main), t->arg);
}

static void generate_body(Ctx *ctx, void *arg)
{
  Trial *t = arg;
  t->m = module_new(ctx);
  Pool *p = arena_new_of(t->m->arena, Pool);
  p->r = (Rand){t->seed * 0x9e3779b97f4a7c15u + 1};
  p->m = t->m;
  random_graph(p, 6 + rand_below(&p->r, 20), t->symbolic);
  t->main = graph_main(t->m);
}

/* ---- comparing ---------------------------------------------------------------------------- */

static double number_at(DType t, const char *p)
{
  Value v = value_load(t, p);
  return dtype_is_float(t) ? v.f : (double)v.i;
}

static double tolerance_of(DType t) { return t.code == DT_FLOAT && t.bits >= 32 ? 3e-4 : dtype_is_float(t) ? 0.02 : 0; }

static bool same_tensor(Trial *t, int output, const ConstData *want, const LatheRtTensor *have)
{
  bool same = want->ndim == have->ndim;
  for (int i = 0; same && i < want->ndim; i++) same = want->shape[i] == have->shape[i];
  if (!same) return snprintf(t->why, sizeof t->why, "output %d has another shape", output), false;
  size_t size = (size_t)dtype_bytes(want->dtype);
  size_t n = want->bytes / size;
  double most = 0;
  double eps = tolerance_of(want->dtype);
  for (size_t i = 0; i < n; i++) {
    double a = fabs(number_at(want->dtype, (const char *)want->data + i * size));
    if (isfinite(a) && a > most) most = a;
  }
  for (size_t i = 0; i < n; i++) {
    double a = number_at(want->dtype, (const char *)want->data + i * size);
    double b = number_at(want->dtype, (const char *)have->data + i * size);
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= eps * (1 + most)) continue;
    return snprintf(t->why, sizeof t->why, "output %d: element %zu is %.9g, wants %.9g", output, i, b, a), false;
  }
  return true;
}

static bool same_outputs(Trial *t)
{
  const RtValue *want = t->want[t->size];
  int n = want->kind == RV_TUPLE ? want->n : 1;
  for (int i = 0; i < n; i++) {
    const LatheRtTensor *have;
    LatheRtError err;
    if (lathe_rt_get_output(t->x, i, &have, &err)) return snprintf(t->why, sizeof t->why, "%s", err.text), false;
    if (!same_tensor(t, i, want->kind == RV_TUPLE ? &want->field[i]->tensor : &want->tensor, have)) return false;
  }
  return true;
}

/* ---- compiling and running ------------------------------------------------------------------- */

static void drop_context(void *pc) { pass_context_free(pc); }
static void drop_module(void *m) { module_release(m); }

/* Some of the calls are to be on one device or the other.  Numbers that sizes are made of stay where they are. */
static const Node *annotate(GraphRewriter *rw, const Node *old, const Node *now)
{
  Rand *r = rw->env;
  bool numbers = now->kind == N_CALL && now->type && now->type->kind == TY_TENSOR && dtype_is_float(now->type->dtype) &&
                 now->type->ndim > 0;
  (void)old;
  if (!numbers || !rand_chance(r, 30)) return now;
  const OpDef *op = opdef_get(rw->m->ctx, "on_device");
  void *attrs = attrs_new(rw->m, op->attrs);
  attrs_set_str(rw->m, op->attrs, attrs, "virtual_device", rand_chance(r, 50) ? "cpu(0)" : "cpu(1)");
  attrs_set_int(rw->m, op->attrs, attrs, "constrain_result", rand_chance(r, 30));
  attrs_set_int(rw->m, op->attrs, attrs, "constrain_body", rand_chance(r, 80));
  return node_call(rw->m, op, 1, &now, attrs, NULL);
}

static void compile_spread(Ctx *ctx, Trial *t, PassContext *pc)
{
  Module *m = graph_copy_module(t->m);
  defer(ctx, drop_module, m);
  Rand r = {t->seed * 991 + 5};
  GraphRewriter rw = {.m = m, .fn = annotate, .env = &r, .arena = m->arena};
  const Node *f = graph_infer(m, graph_rewrite(&rw, graph_main(m)));
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)f);
  const Target *target[] = {
    target_host(ctx), target_parse(ctx, arena_printf(m->arena, "%s -mcpu=generic", target_host(ctx)->kind->name))};
  t->c = driver_compile(ctx, m, &(CompileOptions){.ntargets = 2, .targets = target, .passes = pc});
}

static void compile_body(Ctx *ctx, void *arg)
{
  Trial *t = arg;
  PassContext *pc = pass_context_new(ctx);
  defer(ctx, drop_context, pc);
  pc->opt_level = t->level;
  if (t->disabled) pass_disable(pc, t->disabled);
  if (t->spread) compile_spread(ctx, t, pc);
  else t->c = driver_compile(ctx, t->m, &(CompileOptions){.passes = pc});
  compiled_model(t->c);
}

static LatheRtTensor tensor_of(const ConstData *d)
{
  LatheRtDType t = {d->dtype.code == DT_FLOAT ? 2 : d->dtype.code == DT_UINT ? 1 : 0, (uint8_t)d->dtype.bits, 1};
  return tensor(t, (void *)(uintptr_t)d->data, (size_t)d->ndim, (int64_t *)(uintptr_t)d->shape);
}

static bool run_size(Trial *t)
{
  LatheRtError err = {""};
  make_arguments(t);
  for (int i = 0; i < fn_nparams(t->main); i++) {
    LatheRtTensor in = tensor_of(&t->arg[i]->tensor);
    if (lathe_rt_set_input(t->x, i, &in, &err)) return snprintf(t->why, sizeof t->why, "%s", err.text), false;
  }
  bool refused = lathe_rt_run(t->x, &err) != LATHE_RT_OK;
  /* what does not fit may have been dropped as unused: it must not crash */
  if (!t->want[t->size]) return true;
  if (refused) return snprintf(t->why, sizeof t->why, "the run is refused: %s", err.text), false;
  return same_outputs(t);
}

static void compare_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Trial *t = arg;
  LatheRtTensor in[8];
  const LatheRtTensor *given[8];
  const char *text;
  make_arguments(t);
  for (int i = 0; i < fn_nparams(t->main); i++) in[i] = tensor_of(&t->arg[i]->tensor), given[i] = &in[i];
  driver_debug_compare(t->c, fn_nparams(t->main), given, 3e-4, 3e-4, t->m->arena, &text);
  fprintf(stderr, "%s\n", text);
}

static bool try_level(Trial *t, Ctx *ctx)
{
  LatheRtError err;
  bool good = false;
  t->c = NULL;
  t->x = NULL;
  ErrKind kind = protect(ctx, compile_body, t);
  if (t->spread && kind == ERR_UNSUPPORTED && strstr(error_message(ctx), "the executor reads it")) {
    error_clear(ctx);
    return true; /* an annotation that cannot be kept, and is told so */
  }
  if (kind) snprintf(t->why, sizeof t->why, "%s", error_message(ctx));
  else if (lathe_rt_executor_new(compiled_model(t->c), &t->x, &err)) snprintf(t->why, sizeof t->why, "%s", err.text);
  else
    for (good = true, t->size = 0; good && t->size < (t->symbolic ? NSIZES : 1); t->size++) good = run_size(t);
  if (!good) {
    t->size = t->size ? t->size - 1 : 0;
    fprintf(stderr, "seed %llu, level %d%s%s, n = %lld: %s\n%s\n", (unsigned long long)t->seed, t->level,
            t->disabled ? ", without " : "",
            t->disabled ? t->disabled
            : t->spread ? ", two targets"
                        : "",
            (long long)sizes[t->size], t->why, graph_print_module(t->m->arena, t->m));
    if (t->x && protect(ctx, compare_body, t)) fprintf(stderr, "%s\n", error_message(ctx));
  }
  error_clear(ctx);
  lathe_rt_executor_free(t->x);
  if (t->c) compiled_release(t->c);
  return good;
}

/* False: something differs. */
static bool try_seed(uint64_t seed)
{
  Ctx *ctx = ctx_new();
  Trial t = {.seed = seed, .symbolic = seed % 3 == 0};
  op_init();
  if (protect(ctx, generate_body, &t)) {
    fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, error_message(ctx));
    module_release(t.m);
    ctx_free(ctx);
    return false;
  }
  bool good = true;
  if (getenv("LATHE_RANDOM_PRINT"))
    fprintf(stderr, "seed %llu:\n%s\n", (unsigned long long)seed, graph_print_module(t.m->arena, t.m));
  for (t.size = 0; t.size < (t.symbolic ? NSIZES : 1); t.size++) {
    make_arguments(&t);
    ErrKind k = protect(ctx, reference_body, &t);
    if (k == ERR_INTERNAL) {
      fprintf(stderr, "seed %llu: the interpreter: %s\n%s\n", (unsigned long long)seed, error_message(ctx),
              graph_print_module(t.m->arena, t.m));
      good = false;
    }
    error_clear(ctx);
  }
  int n;
  const char *const *pass = pass_pipeline_names(&n);
  for (t.level = 0; t.level <= 3; t.level += 3) good = try_level(&t, ctx) && good;
  if (seed % 4 == 1) {
    t.level = 3;
    t.disabled = pass[seed / 4 % (uint64_t)n];
    good = try_level(&t, ctx) && good;
  }
  t.spread = seed % 4 == 2;
  t.disabled = NULL;
  for (t.level = 0; t.spread && t.level <= 3; t.level += 3) good = try_level(&t, ctx) && good;
  module_release(t.m);
  ctx_free(ctx);
  return good;
}

static long number_from(const char *name, long otherwise)
{
  const char *text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}

static void random_graphs_agree_with_the_interpreter(void **state)
{
  (void)state;
  long n = number_from("LATHE_RANDOM_GRAPHS", 24), first = number_from("LATHE_RANDOM_SEED", 1), bad = 0;
  for (long i = 0; i < n; i++) bad += !try_seed((uint64_t)(first + i));
  if (bad) fail_msg("%ld of %ld random graphs fail", bad, n);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs_agree_with_the_interpreter)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
