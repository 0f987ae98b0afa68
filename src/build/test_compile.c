/* test_compile.c: the fuzzer's programs on fixed seeds, and a share of them through the
 * C backend in one build.  LATHE_SEEDS=first,count,steps runs others and goes on after
 * a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/fuzz_compile.c"

static void seeds_agree(void **state)
{
  (void)state;
  unsigned long long first = 1, count = 300;
  int steps = 12;
  int failed = 0;
  const char *asked = getenv("LATHE_SEEDS");
  if (asked) sscanf(asked, "%llu,%llu,%d", &first, &count, &steps);
  for (uint64_t seed = first; seed < first + count; seed++) {
    failed += !run_seed(seed, steps);
    if (failed && !asked) fail_msg("seed %llu", (unsigned long long)seed);
  }
  if (asked) fprintf(stderr, "%d of %llu seeds failed\n", failed, count);
  assert_int_equal(failed, 0);
}

enum { C_PROGRAMS = 24 };

static void check_c(Ctx *ctx, void *arg)
{
  (void)arg;
  Program p[C_PROGRAMS];
  int n = 0;
  for (uint64_t seed = 1001; n < C_PROGRAMS; seed++) {
    p[n] = program_make(ctx, seed, 8, arena_printf(ctx_arena(ctx), "f%" PRIu64, seed));
    if (!p[n].threads) n++;
  }
  check_built(ctx, n, p, "c");
}

static void c_backend_agrees(void **state)
{
  (void)state;
  Ctx *ctx = ctx_new();
  ErrKind kind = protect(ctx, check_c, NULL);
  if (kind) fail_msg("%s: %s", error_kind_name(kind), error_message(ctx));
  ctx_free(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(seeds_agree), cmocka_unit_test(c_backend_agrees)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
