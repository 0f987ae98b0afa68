/* stats.c: what repeated measurements say: medians, quartiles, and whether one thing is faster than another. */
#include <stdlib.h>

#include "tune/tune.h"

static int ascending(const void *a, const void *b)
{
  double x = *(const double *)a;
  double y = *(const double *)b;
  return x < y ? -1 : x > y;
}

double tune_quartile(Arena *arena, int n, const double *v, double q)
{
  if (n == 0) return 0;
  double *sorted = arena_copy(arena, v, (size_t)n * sizeof *v);
  qsort(sorted, (size_t)n, sizeof *sorted, ascending);
  double at = q * (n - 1);
  int low = (int)at;
  int high = low + 1 < n ? low + 1 : low;
  return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

double tune_median(Arena *arena, int n, const double *v) { return tune_quartile(arena, n, v, 0.5); }

Comparison tune_compare(Arena *arena, const Repeats *base, const Repeats *other)
{
  int n = base->n < other->n ? base->n : other->n;
  if (n == 0) return (Comparison){1, 0};
  double *ratio = arena_array(arena, double, n);
  for (int i = 0; i < n; i++) ratio[i] = base->seconds[i] > 0 ? other->seconds[i] / base->seconds[i] : 1;
  Comparison c = {.ratio = tune_median(arena, n, ratio)};
  c.spread = 0.5 * (tune_quartile(arena, n, ratio, 0.75) - tune_quartile(arena, n, ratio, 0.25));
  return c;
}

static double least(const Repeats *r)
{
  double v = r->n ? r->seconds[0] : 0;
  for (int i = 1; i < r->n; i++)
    if (r->seconds[i] < v) v = r->seconds[i];
  return v;
}

bool tune_beats(Arena *arena, const Repeats *base, const Repeats *other)
{
  static const double LITTLE = 0.01;
  enum { FEWEST = 3 }; /* pairs that say anything */
  if (base->n < FEWEST || other->n < FEWEST) return false;
  Comparison c = tune_compare(arena, base, other);
  return c.ratio + (c.spread > LITTLE ? c.spread : LITTLE) < 1 && least(other) < least(base);
}
