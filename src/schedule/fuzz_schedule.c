/* Random legal schedules on random computations: the interpreter's result stays the
 * same, the function stays well formed, the trace replays. */
#include "schedule/fuzz_trial.h"

static void trial(Ctx *ctx, void *env)
{
  const uint64_t *v = env;
  random_trial(ctx, v[0], (int)v[1], NULL, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_trial(data, size, trial); }
