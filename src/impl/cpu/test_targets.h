/* test_targets.h: processors that the tests of choices ask about, and the context they live in. */
#ifndef LATHE_IMPL_TEST_TARGETS_H
#define LATHE_IMPL_TEST_TARGETS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "impl/internal.h"
#include "op/nn.h"

enum { AVX512, AVX2, ZEN4, N1, V1, A72, TARGETS };
/* clang-format off */
static const char *const texts[TARGETS] = {
    [AVX512] = "llvm -mcpu=cascadelake",
    [AVX2] = "llvm -mcpu=haswell",
    [ZEN4] = "llvm -mcpu=znver4",
    [N1] = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
    [V1] = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
    [A72] = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
};
/* clang-format on */
static const Target *target[TARGETS];

static int setup(void **state)
{
  Ctx *ctx = ctx_new();
  *state = ctx;
  op_init();
  for (int i = 0; i < TARGETS; i++) target[i] = target_parse(ctx, texts[i]);
  return 0;
}

static int teardown(void **state)
{
  ctx_free(*state);
  return 0;
}

#endif
