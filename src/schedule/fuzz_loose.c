/* Random schedules on loop programs whose iteration kinds promise what they like: what is
 * accepted computes the same, with whatever runs at once in any order. */
#include "schedule/fuzz_trial.h"

static void trial(Ctx *ctx, void *env)
{
  const uint64_t *v = env;
  random_loose_trial(ctx, v[0], (int)v[1], NULL, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_trial(data, size, trial); }
