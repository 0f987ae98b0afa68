/* test_choice.c: what the models of the target choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "impl/internal.h"

static const Target *avx512, *avx2, *neon;

static int setup(void **state)
{
  Ctx *ctx = ctx_new();
  *state = ctx;
  avx512 = target_parse(ctx, "llvm -mcpu=skylake-avx512");
  avx2 = target_parse(ctx, "llvm -mcpu=haswell");
  neon = target_parse(ctx, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1");
  return 0;
}

static int teardown(void **state)
{
  ctx_free(*state);
  return 0;
}

/* Sums fit into the registers with what feeds them, and fill a quarter of them at least. */
static void tiles_fit(void **state)
{
  (void)state;
  const Target *const targets[] = {avx512, avx2, neon};
  static const int64_t sizes[][3] = {{4, 56, 56}, {8, 28, 28}, {16, 14, 14}, {32, 7, 7}, {2, 112, 112}, {1, 1, 17}, {3, 13, 13}};
  for (size_t t = 0; t < 3; t++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      Tile k = tile_best(targets[t], 1, sizes[i][0], sizes[i][1], sizes[i][2]);
      int64_t sums = k.o * k.y * k.x;
      assert_true(sums + k.o + 1 <= targets[t]->vector_registers);
      assert_true(4 * sums >= targets[t]->vector_registers);
      assert_int_equal(sizes[i][0] % k.o, 0);
    }
}

static void blocks_divide(void **state)
{
  (void)state;
  assert_int_equal(alter_block(avx512, 32, 64), 16);
  assert_int_equal(alter_block(avx2, 32, 64), 8);
  assert_int_equal(alter_block(neon, 32, 64), 8);
  assert_int_equal(alter_block(avx512, 32, 24), 24);      /* one and a half vectors, not half of each */
  assert_int_equal(alter_block(avx512, 32, 3), 0);
  assert_int_equal(alter_block(avx512, 32, 17), 0);
  for (int64_t n = 1; n < 600; n++) {
    int64_t b = alter_block(avx512, 32, n);
    assert_true(b == 0 || n % b == 0);
  }
}

static void vectors_of_blocks(void **state)
{
  (void)state;
  assert_int_equal(block_vectors(16, 16), 1);
  assert_int_equal(block_vectors(24, 16), 2);
  assert_int_equal(block_vectors(40, 16), 3);
  assert_int_equal(block_vectors(7, 4), 3);
}

/* Little work stays on one thread, much goes to all. */
static void threads_worth_waking(void **state)
{
  Target t = *avx512;
  (void)state;
  t.num_cores = 16;
  assert_int_equal(cost_threads(&t, 1e3, 1e3), 1);
  assert_int_equal(cost_threads(&t, 1e9, 0), 16);
  assert_int_equal(cost_threads(&t, 0, 1e8), 16);
  int few = cost_threads(&t, 0, 3e5);
  assert_true(few > 1 && few < 16);
}

static void steps_divide(void **state)
{
  (void)state;
  assert_int_equal(tile_steps(28, 16), 4);
  assert_int_equal(tile_steps(14, 512), 8);
  assert_int_equal(tile_steps(28, 7), 1);
  assert_int_equal(tile_steps(100, 16), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tiles_fit),     cmocka_unit_test(blocks_divide), cmocka_unit_test(vectors_of_blocks), cmocka_unit_test(threads_worth_waking),
      cmocka_unit_test(steps_divide),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
