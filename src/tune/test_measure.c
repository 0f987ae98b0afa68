/* test_measure.c: candidates in child processes: what runs, crashes, hangs, is wrong or cannot be built, and what a
 * network's tasks are. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "tune/tune.h"

static const char net[] = "def @main(%x: Tensor[(1, 16, 14, 14), float32]) {\n"
                          "  %0 = nn.conv2d(%x, ones(shape=[16, 16, 3, 3], dtype=\"float32\"), padding=[1, 1]);\n"
                          "  %1 = nn.relu(%0);\n"
                          "  %2 = nn.conv2d(%1, ones(shape=[16, 16, 3, 3], dtype=\"float32\"), padding=[1, 1]);\n"
                          "  nn.relu(%2)\n"
                          "}\n";

static void release_module(void *m) { module_release(m); }

static void run_body(void (*body)(Ctx *, void *), void *arg)
{
  Ctx *ctx = ctx_new();
  if (protect(ctx, body, arg)) fail_msg("%s", error_message(ctx));
  ctx_free(ctx);
}

static Module *parse(Ctx *ctx, const char *text)
{
  op_init();
  Module *m = module_new(ctx);
  defer(ctx, release_module, m);
  graph_parse_module(m, text, "test.relay");
  return m;
}

static void drop_arena(void *a) { arena_free(a); }

static Arena *own_arena(Ctx *ctx)
{
  Arena *a = arena_new(ctx);
  defer(ctx, drop_arena, a);
  return a;
}

static void drop_passes(void *pc) { pass_context_free(pc); }

static PassContext *passes(Ctx *ctx)
{
  PassContext *pc = pass_context_new(ctx);
  defer(ctx, drop_passes, pc);
  pc->opt_level = 3;
  return pc;
}

/* ---- tasks ------------------------------------------------------------------------------------------ */

static void tasks_body(Ctx *ctx, void *arg)
{
  (void)arg;
  Scope scope = scope_begin(ctx);
  TuneTasks *t = tune_tasks(ctx, own_arena(ctx), parse(ctx, net), target_host(ctx), passes(ctx));
  assert_int_equal(t->n, 1); /* both convolutions are the same computation */
  const TuneTask *k = t->task[0];
  assert_int_equal(k->calls, 2);
  assert_true(k->n > 10);
  assert_true(k->flops == 2.0 * 16 * 14 * 14 * 16 * 9);
  assert_string_equal(k->what, "nn.conv2d (1, 16, 14, 14) (16, 16, 3, 3) float32");
  bool there = false;
  for (int i = 0; i < k->n; i++) there |= !strcmp(k->candidate[i].plan, k->base);
  assert_true(there);
  for (int i = 1; i < k->n; i++) assert_true(k->candidate[i - 1].predicted <= k->candidate[i].predicted);
  const Node *f = graph_main(k->module);
  assert_int_equal(fn_nparams(f), 1);
  assert_non_null(strstr(graph_print(scratch(ctx), f), "nn.relu")); /* what is fused to it is with it */
  scope_end(ctx, scope);
}

static void test_tasks(void **state)
{
  (void)state;
  run_body(tasks_body, NULL);
}

/* ---- results of all kinds ---------------------------------------------------------------------------- */

static void die(void) { kill(getpid(), SIGSEGV); }

enum { FINE, CRASH, HANG, UNKNOWN, GREEDY, AGAIN, CASES };

static void misbehave(void *env, int i)
{
  (void)env;
  if (i == CRASH) die();
  if (i == GREEDY) { /* there is an end to what it gets */
    while (malloc(1 << 28)) continue;
    abort();
  }
  if (i == HANG)
    for (;;) pause();
}

typedef struct Got {
  int n;
  MeasureResult r[CASES];
} Got;

static int keep(void *env, int i, const MeasureResult *r)
{
  Got *g = env;
  assert_int_equal(i, g->n);
  g->r[g->n++] = *r;
  return 0;
}

static void results_body(Ctx *ctx, void *arg)
{
  (void)arg;
  Scope scope = scope_begin(ctx);
  Arena *a = own_arena(ctx);
  PassContext *pc = passes(ctx);
  TuneTasks *t = tune_tasks(ctx, a, parse(ctx, net), target_host(ctx), pc);
  const TuneTask *k = t->task[0];
  const char *good = arena_printf(a, "%s %s\n", k->workload, k->candidate[1].plan);
  const char *lines[CASES] = {good, good, good, arena_printf(a, "%s conv2d.unheard{}\n", k->workload), good, good};
  MeasureSpec spec = {.m = k->module,
                      .target = t->target,
                      .passes = pc,
                      .workload = k->workload,
                      .base = arena_printf(a, "%s %s\n", k->workload, k->base),
                      .n = CASES,
                      .lines = lines};
  MeasureOptions o = {.threads = 1, .seconds = 0.02, .run_limit = 1, .rounds = 5, .before = misbehave};
  Got g = {0};
  tune_measure(ctx, a, &spec, &o, keep, &g);
  assert_int_equal(g.n, CASES);
  if (g.r[FINE].status != TUNE_OK) fail_msg("%s", g.r[FINE].note);
  assert_true(g.r[FINE].seconds.n >= 3 && g.r[FINE].seconds.n == g.r[FINE].base.n);
  for (int i = 0; i < g.r[FINE].seconds.n; i++) assert_true(g.r[FINE].seconds.seconds[i] > 0);
  assert_int_equal(g.r[CRASH].status, TUNE_CRASH);
  assert_non_null(strstr(g.r[CRASH].note, "signal"));
  assert_int_equal(g.r[HANG].status, TUNE_HANG);
  assert_int_equal(g.r[UNKNOWN].status, TUNE_ERROR);
#if !defined(__SANITIZE_ADDRESS__) /* whose own memory is not bounded so */
  assert_int_equal(g.r[GREEDY].status, TUNE_CRASH);
#endif
  assert_int_equal(g.r[AGAIN].status, TUNE_OK);
  scope_end(ctx, scope);
}

static void test_results(void **state)
{
  (void)state;
  run_body(results_body, NULL);
}

static void release_compiled(void *c) { compiled_release(c); }

static Compiled *compile(Ctx *ctx, const char *text)
{
  Compiled *c = driver_compile(ctx, parse(ctx, text), NULL);
  defer(ctx, release_compiled, c);
  return c;
}

/* A build that computes something else is found out. */
static void wrong_body(Ctx *ctx, void *arg)
{
  (void)arg;
  Scope scope = scope_begin(ctx);
  Compiled *base = compile(ctx, "def @main(%x: Tensor[(64), float32]) { nn.relu(%x) }");
  Compiled *built[] = {compile(ctx, "def @main(%x: Tensor[(64), float32]) { nn.relu(%x) + 0.1f }"),
                       compile(ctx, "def @main(%x: Tensor[(64), float32]) { maximum(%x, 0f) }")};
  MeasureSpec spec = {.target = target_host(ctx), .n = 2, .base_built = base, .built = built};
  Got g = {0};
  tune_measure(ctx, own_arena(ctx), &spec, &(MeasureOptions){.threads = 1, .seconds = 0.01, .rounds = 3}, keep, &g);
  assert_int_equal(g.n, 2);
  assert_int_equal(g.r[0].status, TUNE_WRONG);
  assert_non_null(strstr(g.r[0].note, "element 0 of output 0 is"));
  assert_int_equal(g.r[1].status, TUNE_OK);
  scope_end(ctx, scope);
}

static void test_wrong(void **state)
{
  (void)state;
  run_body(wrong_body, NULL);
}

/* ---- a whole network ----------------------------------------------------------------------------------- */

typedef struct Tune {
  Db *db;
  int steps, records;
} Tune;

static int count_step(void *env, const TuneProgress *p)
{
  Tune *t = env;
  t->steps++;
  assert_int_equal(p->n, 1);
  assert_true(p->row[0].share > 0);
  return 0;
}

static void count_record(void *env, const TuneRecord *r)
{
  Tune *t = env;
  t->records++;
  assert_true(r->status == TUNE_OK || *r->note);
}

static void network_body(Ctx *ctx, void *arg)
{
  Scope scope = scope_begin(ctx);
  Tune t = {.db = db_open(ctx, arg, true)};
  PassContext *pc = passes(ctx);
  Module *m = parse(ctx, net);
  TuneOptions o = {
    .trials = 4, .measure = {.threads = 1, .seconds = 0.02, .rounds = 5}, .progress = count_step, .env = &t};
  TuneSummary s = tune_network(ctx, m, target_host(ctx), pc, t.db, &o);
  assert_true(s.judged && !s.stopped);
  assert_int_equal(s.tasks, 1);
  assert_true(s.trials >= 4); /* and what was measured again */
  assert_true(s.before > 0 && s.after > 0 && s.after <= s.before);
  assert_true(t.steps >= s.trials);
  db_each(t.db, NULL, NULL, count_record, &t);
  assert_int_equal(t.records, s.trials);
  assert_non_null(db_verdict(t.db, own_arena(ctx), tune_model_name(scratch(ctx), m, pc), target_host(ctx)->text));
  assert_null(pc->impl.tuned);
  db_close(t.db);
  scope_end(ctx, scope);
}

static void test_network(void **state)
{
  (void)state;
  char path[64];
  snprintf(path, sizeof path, "/tmp/lathe_tune_%d.db", (int)getpid());
  run_body(network_body, path);
  char command[160];
  snprintf(command, sizeof command, "rm %s*", path);
  assert_int_equal(system(command), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_tasks),
    cmocka_unit_test(test_results),
    cmocka_unit_test(test_wrong),
    cmocka_unit_test(test_network),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
