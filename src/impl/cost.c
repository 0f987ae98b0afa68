/* cost.c: a model of the target: how fast it computes, how fast it reads, what a thread costs.
 *
 * Only ratios matter here: the figures choose between implementations and say when a
 * second thread pays.  What the target does not say (its clock) is taken as that of a
 * middling core; vector width, caches and cores are the target's own. */
#include "impl/internal.h"

static const double CLOCK = 2.5e9;
static const double PIPES = 2;               /* multiply-add instructions a cycle */
static const double BYTES_A_SECOND = 8e9;    /* one core, from memory */
static const double WAKE_SECONDS = 8e-6;     /* handing work to a sleeping thread */

double cost_flops(const Target *t, int bits) { return CLOCK * PIPES * 2 * target_lanes(t, bits < 8 ? 8 : bits); }

double cost_bandwidth(const Target *t)
{
  (void)t;
  return BYTES_A_SECOND;
}

double cost_stream(const Target *t) { return 1.5 * cost_bandwidth(t); }

double cost_cache(const Target *t) { return 4 * cost_bandwidth(t); }

int cost_threads(const Target *t, double operations, double bytes)
{
  /* Half of the peak is what code reaches that nobody tuned. */
  double seconds = operations / (cost_flops(t, 32) / 2) + bytes / cost_bandwidth(t);
  double worth = seconds / WAKE_SECONDS;
  int cores = t->num_cores > 0 ? t->num_cores : 1;
  return worth < 2 ? 1 : worth > cores ? cores : (int)worth;
}
