/* Random schedules on loop programs whose iteration kinds promise what they like: what is
 * accepted computes the same, with whatever runs at once in any order.  The input is the
 * seed and the number of steps. */
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void trial(Ctx *ctx, void *env)
{
  const uint64_t *v = env;
  random_loose_trial(ctx, v[0], (int)v[1], NULL, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 2) return 0;
  uint64_t v[2] = {hash_bytes(data, size, 7), 1 + data[size - 1] % 16};
  Ctx *ctx = ctx_new();
  if (!ctx) return 0;
  if (protect(ctx, trial, v)) {
    fprintf(stderr, "seed %llu, %llu steps: %s\n", (unsigned long long)v[0], (unsigned long long)v[1],
            error_message(ctx));
    abort();
  }
  ctx_free(ctx);
  return 0;
}
