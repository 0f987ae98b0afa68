/* fuzz_trial.h: the fuzzers of schedules, which differ in the trial alone: the input is the seed and the number of
 * steps; what raises is a finding. */
#ifndef LATHE_SCHEDULE_FUZZ_TRIAL_H
#define LATHE_SCHEDULE_FUZZ_TRIAL_H

#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* trial gets the seed and the number of steps. */
static int fuzz_trial(const uint8_t *data, size_t size, void (*trial)(Ctx *, void *))
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

#endif
