/* cost.c: a model of the target: how fast it computes, how fast it reads, what a thread costs.
 *
 * Widths, pipes, latencies, caches, clock, memory and the number of cores are the target's own
 * (src/target/cpus.c).  What no description of a processor says stands here, once, as an assumption about all of
 * them: */
#include <math.h>

#include "impl/internal.h"

/* Share of the way from the second-level cache that lines take up, while others go back on it. */
static const double PATH_USED = 0.4;
/* Share of the first-level cache's reads that are left while lines come in. */
static const double LOADS_LEFT = 0.7;
/* Share of the memory's rate straight ahead that is left when what is read is also written, or read in pieces. */
static const double MIXED = 2.0 / 3;
/* Share of the peak that code reaches which nobody tuned. */
static const double UNTUNED = 0.5;
/* Handing work to a thread that may sleep: the operating system's time, not the processor's. */
static const double WAKE_SECONDS = 8e-6;

int64_t cost_l1(const Target *t) { return t->l1_bytes > 0 ? t->l1_bytes : 1 << 15; }

int64_t cost_l2(const Target *t) { return t->l2_bytes > 0 ? t->l2_bytes : 1 << 19; }

double cost_pipes(const Target *t) { return (double)t->core.fma_bits / t->vector_bits; }

double cost_loads(const Target *t) { return LOADS_LEFT * t->core.load_bits / t->vector_bits; }

double cost_chain(const Target *t) { return t->core.fma_chain ? t->core.fma_chain : t->core.fma_latency; }

double cost_far(const Target *t) { return t->vector_bits / 8.0 / (PATH_USED * t->core.l2_path); }

double cost_flops(const Target *t, int bits)
{
  return 1e9 * t->core.ghz * 2 * cost_pipes(t) * target_lanes(t, bits < 8 ? 8 : bits);
}

/* Two in each lane of a dot product, four in each of a block, where the instruction begins as often. */
double cost_words(const Target *t, int elements)
{
  int fma = t->core.fma_bits;
  int dot = t->core.dot_bits ? t->core.dot_bits : fma;
  int begun = elements == 4 && t->core.block_bits ? t->core.block_bits : dot;
  return fma ? (double)elements * begun / fma : elements;
}

double cost_stream(const Target *t) { return 1e9 * t->core.memory_gbs; }

double cost_bandwidth(const Target *t) { return MIXED * cost_stream(t); }

/* Half of what the cache hands over: the rest is what goes into it. */
double cost_cache(const Target *t) { return 1e9 * t->core.ghz * PATH_USED * t->core.l2_path / 2; }

double cost_copy(const Target *t, double bytes, double waiting)
{
  return bytes / (2 * waiting <= (double)cost_l2(t) ? cost_cache(t) : cost_bandwidth(t));
}

/* Shares of the time that a vector from a cache takes which the arithmetic beside it does not hide; fitted on a
 * Neoverse-N1. */
static const double SEEN_L2 = 0.35;
static const double SEEN_L3 = 0.6;
static const double SEEN_MEMORY = 0.5;

double cost_reads(const Target *t, double vectors, double bytes)
{
  double far = vectors * cost_far(t) / (1e9 * t->core.ghz);
  if (2 * bytes <= (double)cost_l1(t)) return 0;
  if (4 * bytes <= 3 * (double)cost_l2(t)) return SEEN_L2 * far;
  if (bytes <= (double)t->l3_bytes) return SEEN_L3 * far;
  double stream = vectors * t->vector_bits / 8 / cost_stream(t);
  return SEEN_MEMORY * stream > SEEN_L3 * far ? SEEN_MEMORY * stream : SEEN_L3 * far;
}

/* Cycles until a line comes that nobody saw coming, and for each that follows it; fitted on a Neoverse-N1. */
static const double FIRST_L2 = 8;
static const double FIRST_L3 = 22;
static const double FIRST_MEMORY = 60;
static const double NEXT_L2 = 3;
static const double NEXT_L3 = 6;

double cost_run(const Target *t, double lines, double bytes)
{
  double next = lines > 1 ? lines - 1 : 0;
  if (3 * bytes <= 2 * (double)cost_l2(t)) return FIRST_L2 + NEXT_L2 * next;
  if (10 * bytes <= 9 * (double)t->l3_bytes) return FIRST_L3 + NEXT_L3 * next;
  return FIRST_MEMORY + CACHE_LINE * 1e9 * t->core.ghz / cost_stream(t) * next;
}

double cost_stores(const Target *t, double runs, double run, double bytes)
{
  static const double SEEN = 0.5;
  if (3 * bytes <= 2 * (double)cost_l2(t)) return 0;
  return SEEN * runs * cost_run(t, run / CACHE_LINE + 1, bytes);
}

int cost_threads(const Target *t, double operations, double bytes)
{
  double seconds = operations / (UNTUNED * cost_flops(t, 32)) + bytes / cost_bandwidth(t);
  double worth = seconds / WAKE_SECONDS;
  int cores = t->num_cores > 0 ? t->num_cores : 1;
  return worth < 2 ? 1 : worth > cores ? cores : (int)worth;
}

double cost_busy(double pieces, int threads) { return pieces / (ceil(pieces / threads) * threads); }

double impl_relayout_seconds(const Target *t, double bytes)
{
  static const double KERNEL = 1e-6; /* a kernel of its own */
  return KERNEL + cost_copy(t, bytes, bytes) / cost_threads(t, 0, bytes);
}
