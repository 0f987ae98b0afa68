/* test_workers.c: functions compiled side by side: the same bytes however many threads there are,
 * the first error in order, progress and interruption in the caller's thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "build/build.h"
#include "te/te.h"

enum { COUNT = 12 };

typedef struct World {
  Module *m;
  PrimFunc *func[COUNT];
} World;

static void drop_module(void *m) { module_release(m); }
static void drop_built(void *b) { built_release(b); }

/* out[i] = in[i] * (k + 2) + k, over 64 * (k + 1) elements */
static PrimFunc *make_func(Module *m, int k)
{
  const Expr *extent = expr_i32(m, 64 * (k + 1));
  const Tensor *in = te_placeholder(m, "in", DT_F32, 1, &extent);
  const IterVar *axis = itervar_new(m, var_new(m, "i", DT_I32, VAR_PLAIN), expr_i32(m, 0), extent, ITER_SPATIAL, NULL);
  const Expr *at = var_expr(axis->var);
  const Expr *value =
      expr_add(m, expr_mul(m, te_read(m, in, 1, &at), expr_float(m, DT_F32, k + 2)), expr_float(m, DT_F32, k));
  const TeOp *op = te_compute(m, "out", "injective", 1, &extent, (const IterVar **)&axis, 1, &value, NULL);
  TeArg args[] = {{.tensor = in}, {.tensor = &op->out[0]}};
  return te_create_prim_func(m, arena_printf(m->arena, "f%d", k), 2, args, NULL);
}

static World make_world(Ctx *ctx)
{
  World w = {.m = module_new(ctx)};
  defer(ctx, drop_module, w.m);
  for (int k = 0; k < COUNT; k++) w.func[k] = make_func(w.m, k);
  return w;
}

static void under(void (*body)(Ctx *, void *), void *arg)
{
  Ctx *ctx = ctx_new();
  Scope scope = scope_begin(ctx);
  if (protect(ctx, body, arg)) fail_msg("%s", error_message(ctx));
  scope_end(ctx, scope);
  ctx_free(ctx);
}

/* ---- the same, whoever does it ------------------------------------------------------------ */

static Built *build_with(Ctx *ctx, World *w, int threads)
{
  Built *b = build_funcs_with(ctx, COUNT, w->func, target_host(ctx), &(BuildOptions){.threads = threads});
  defer(ctx, drop_built, b);
  return b;
}

static void same_body(Ctx *ctx, void *arg)
{
  (void)arg;
  World w = make_world(ctx);
  const char *first = NULL;
  size_t nfirst = 0;
  size_t n;
  for (int threads = 1; threads <= 8; threads *= 2) {
    Built *b = build_with(ctx, &w, threads);
    const char *text = code_get(built_code(b), codegen_has_llvm() ? CODE_OBJECT : CODE_C, scratch(ctx), &n);
    if (!first) first = text, nfirst = n;
    assert_int_equal(n, nfirst);
    assert_memory_equal(text, first, n);
  }
  Built *b = build_with(ctx, &w, 4);
  static float in[64 * COUNT], out[64 * COUNT];
  for (int i = 0; i < 64 * COUNT; i++) in[i] = (float)i;
  for (int k = 0; k < COUNT; k++) {
    int64_t shape = 64 * (k + 1);
    LatheRtTensor t[2] = {{.data = in, .device = {LATHE_RT_CPU, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = &shape}};
    t[1] = t[0];
    t[1].data = out;
    LatheRtArg args[2] = {{.tensor = &t[0]}, {.tensor = &t[1]}};
    LatheRtFunc *f;
    LatheRtError err;
    assert_int_equal(lathe_rt_module_func(built_module(b), w.func[k]->name, &f, &err), 0);
    assert_int_equal(lathe_rt_func_call(f, 2, args, &err), 0);
    for (int i = 0; i < shape; i++) assert_true(out[i] == (float)(i * (k + 2) + k));
  }
}

static void threads_change_nothing(void **state)
{
  (void)state;
  under(same_body, NULL);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* A function that reads outside of its buffer. */
static PrimFunc *bad_func(Module *m, const char *name)
{
  const Expr *extent = expr_i32(m, 8);
  const Buffer *b = buffer_new(m, "b", DT_F32, 1, &extent, NULL, NULL, "global", 0, 0, NULL);
  const Expr *at = expr_i32(m, 9);
  Param param = {b->data, b};
  return func_new(m, name, 1, &param, stmt_store(m, b, 1, &at, expr_float(m, DT_F32, 0)));
}

static void bad_body(Ctx *ctx, void *arg)
{
  World *w = arg;
  *w = make_world(ctx);
  w->func[3] = bad_func(w->m, "third");
  w->func[7] = bad_func(w->m, "seventh");
  build_with(ctx, w, 4);
}

static void first_error_is_reported(void **state)
{
  (void)state;
  for (int i = 0; i < 20; i++) {
    Ctx *ctx = ctx_new();
    World w;
    assert_int_equal(protect(ctx, bad_body, &w), ERR_BOUNDS);
    if (!strstr(error_message(ctx), "third")) fail_msg("%s", error_message(ctx));
    ctx_free(ctx);
  }
}

/* ---- progress and interruption ------------------------------------------------------------------ */

typedef struct Watch {
  pthread_t thread;
  int calls, last, polls;
} Watch;

static void note_progress(void *env, int done, int total)
{
  Watch *w = env;
  assert_true(pthread_equal(w->thread, pthread_self()));
  assert_int_equal(total, COUNT);
  assert_true(done >= w->last && done <= total);
  w->last = done;
  w->calls++;
}

static void progress_body(Ctx *ctx, void *arg)
{
  World w = make_world(ctx);
  BuildOptions o = {.progress = note_progress, .env = arg, .threads = 3};
  built_release(build_funcs_with(ctx, COUNT, w.func, target_host(ctx), &o));
}

static void progress_is_told(void **state)
{
  (void)state;
  Watch w = {.thread = pthread_self()};
  under(progress_body, &w);
  assert_true(w.calls > 0);
}

static int interrupt(void *arg)
{
  Watch *w = arg;
  return ++w->polls > 20;
}

static void interruption_waits_for_all(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  Watch w = {.thread = pthread_self()};
  ctx_set_poll(ctx, interrupt, &w);
  assert_int_equal(protect(ctx, progress_body, &w), ERR_CALLBACK);
  ctx_free(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_change_nothing),
    cmocka_unit_test(first_error_is_reported),
    cmocka_unit_test(progress_is_told),
    cmocka_unit_test(interruption_waits_for_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
