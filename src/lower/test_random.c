/* test_random.c: random schedules of random computations, lowered.
 *
 * After every pass the function computes what the unscheduled one does.
 * LATHE_SEEDS=first,count,steps runs other seeds and shows what fails. */
#include "lower/test_lower.h"
#include "schedule/schedule.h"

typedef struct Trial {
  uint64_t seed;
  int steps;
  const char *pass;
  bool threads; /* bound to thread axes: more may be refused */
} Trial;

static bool find_threads(void *env, Stmt *s)
{
  *(bool *)env |= s->kind == S_FOR && s->u.loop.kind == FOR_THREAD;
  return true;
}

static void lower_it(void *env, const PrimFunc *plain, Sched *s)
{
  Trial *v = env;
  Ctx *ctx = plain->m->ctx;
  static const char *const targets[] = {WIDE, NARROW, PLAIN};
  PrimFunc *g = sched_func(s);
  stmt_visit(g->body, find_threads, &v->threads);
  const Target *t = target_parse(ctx, v->threads ? "cuda -arch=sm_90" : targets[v->seed % 3]);
  for (int i = 0; i < lower_pass_count(); i++) {
    Scope scope = scope_begin(ctx);
    PrimFunc *before = g;
    g = lower_run_pass(g, t, v->pass = lower_pass_name(i));
    if (getenv("LATHE_SHOW"))
      fprintf(stderr, "==== %s\n%s\n", v->pass, func_print_compact(scratch(ctx), i ? g : before));
    random_compare(plain, g, v->seed);
    scope_end(ctx, scope);
  }
  func_check(g);
  lower_kernel(sched_func(s), t, NULL);
}

static void run_trial(Ctx *ctx, void *env)
{
  Trial *v = env;
  random_trial(ctx, v->seed, v->steps, lower_it, v);
}

static void lowered_schedules_keep_the_meaning(void **state)
{
  (void)state;
  unsigned long long first = 1, count = 200;
  int steps = 10;
  int failed = 0;
  const char *asked = getenv("LATHE_SEEDS");
  if (asked) sscanf(asked, "%llu,%llu,%d", &first, &count, &steps);
  for (uint64_t seed = first; seed < first + count; seed++) {
    Ctx *ctx = ctx_new();
    Trial v = {.seed = seed, .steps = steps};
    ErrKind kind = protect(ctx, run_trial, &v);
    if (v.threads && kind == ERR_UNSUPPORTED) kind = ERR_NONE;
    if (kind)
      fprintf(stderr, "seed %llu: after %s: %s: %s\n", (unsigned long long)seed, v.pass, error_kind_name(kind),
              error_message(ctx));
    failed += kind != ERR_NONE;
    ctx_free(ctx);
  }
  assert_int_equal(failed, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(lowered_schedules_keep_the_meaning)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
