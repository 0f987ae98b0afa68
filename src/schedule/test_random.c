/* The fuzzers' cores on fixed seeds.  LATHE_SEEDS=first,count,steps runs others, and
 * LATHE_SHOW prints the functions. */
#include "schedule/test_schedule.h"

typedef int RandomTrial(Ctx *, uint64_t, int, void (*)(void *, const PrimFunc *, Sched *), void *);

typedef struct Trial {
  RandomTrial *run;
  uint64_t seed;
  int steps, accepted;
} Trial;

static void show(void *env, const PrimFunc *plain, Sched *s)
{
  (void)env;
  if (!getenv("LATHE_SHOW")) return;
  Arena *a = scratch(plain->m->ctx);
  printf("%s\n%s\n%s\n", func_print(a, plain), sched_trace_text(a, s), func_print(a, sched_func(s)));
}

static void run_trial(Ctx *ctx, void *env)
{
  Trial *v = env;
  v->accepted = v->run(ctx, v->seed, v->steps, show, NULL);
}

static void run_seeds(RandomTrial *run, unsigned long long count, int share)
{
  unsigned long long first = 1;
  int most = 12;
  const char *asked = getenv("LATHE_SEEDS");
  if (asked) sscanf(asked, "%llu,%llu,%d", &first, &count, &most);
  int accepted = 0;
  int steps = 0;
  for (uint64_t seed = first; seed < first + count; seed++) {
    Ctx *ctx = ctx_new();
    Trial v = {.run = run, .seed = seed, .steps = most};
    ErrKind kind = protect(ctx, run_trial, &v);
    if (kind)
      fprintf(stderr, "seed %llu: %s: %s\n", (unsigned long long)seed, error_kind_name(kind), error_message(ctx));
    if (!asked) assert_int_equal(kind, ERR_NONE);
    accepted += v.accepted;
    steps += v.steps;
    ctx_free(ctx);
  }
  printf("%d of %d steps accepted\n", accepted, steps);
  if (!asked) assert_true(accepted * share > steps);
}

static void computations(void **state)
{
  (void)state;
  run_seeds(random_trial, 150, 3);
}

static void loose_programs(void **state)
{
  (void)state;
  run_seeds(random_loose_trial, 400, 6);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(computations), cmocka_unit_test(loose_programs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
