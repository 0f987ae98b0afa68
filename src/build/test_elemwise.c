/* test_elemwise.c: the fuzzer's kernels on fixed seeds, each interpreted and built, and
 * a share of them through the C backend in one build.  LATHE_SEEDS=first,count[,target]
 * runs others one by one and goes on after a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/fuzz_elemwise.c"

static void seeds_agree(void **state)
{
  (void)state;
  unsigned long long first = 1, count = 400;
  char target[64] = "";
  int failed = 0;
  const char *asked = getenv("LATHE_SEEDS");
  if (asked) sscanf(asked, "%llu,%llu,%63[^\n]", &first, &count, target);
  for (uint64_t seed = first; seed < first + count; seed++) {
    failed += !run_seed(seed, *target ? target : elemwise_target(seed));
    if (failed && !asked) fail_msg("seed %llu", (unsigned long long)seed);
  }
  if (asked) fprintf(stderr, "%d of %llu seeds failed\n", failed, count);
  assert_int_equal(failed, 0);
}

enum { C_KERNELS = 80 };

static void check_c(Ctx *ctx, void *arg)
{
  (void)arg;
  Kern k[C_KERNELS];
  for (int i = 0; i < C_KERNELS; i++)
    k[i] = kern_make(ctx, 5001 + (uint64_t)i, arena_printf(ctx_arena(ctx), "f%d", 5001 + i));
  check_built(ctx, C_KERNELS, k, "c");
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
