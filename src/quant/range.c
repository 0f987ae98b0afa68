/* range.c: from what a tensor was seen to hold to a scale and a zero point.
 *
 * Comes in: elements, twice: for the limits, then for the histogram between them.  Goes out: the range that is to be
 * stood for, and the parameters that do so.  Zero always has an integer of its own: paddings are zeros. */
#include <math.h>

#include "quant/quant.h"

static const char *const method_names[] = {
  [QUANT_PERCENTILE] = "percentile", [QUANT_KL] = "kl", [QUANT_MINMAX] = "minmax"};

QuantMethod quant_method(Ctx *ctx, const char *name)
{
  for (size_t i = 0; i < sizeof method_names / sizeof *method_names; i++)
    if (!strcmp(method_names[i], name)) return (QuantMethod)i;
  raise(ctx, ERR_ARGUMENT, NOWHERE, "ranges are found by kl, percentile or minmax, not by '%s'", name);
}

void quant_see_limits(QuantSeen *s, size_t n, const float *v)
{
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(v[i])) {
      s->bad++;
      continue;
    }
    if (v[i] < s->lo) s->lo = v[i];
    if (v[i] > s->hi) s->hi = v[i];
  }
  s->n += (int64_t)n;
}

void quant_see_bins(QuantSeen *s, size_t n, const float *v)
{
  double width = s->hi - s->lo;
  if (!(width > 0)) return;
  double per = QUANT_BINS / width;
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(v[i]) || v[i] == 0) continue;
    int64_t k = (int64_t)((v[i] - s->lo) * per);
    s->bin[k < 0 ? 0 : k >= QUANT_BINS ? QUANT_BINS - 1 : k]++;
  }
}

static int64_t total_of(const QuantSeen *s)
{
  int64_t n = 0;
  for (int i = 0; i < QUANT_BINS; i++) n += s->bin[i];
  return n;
}

static void percentile_range(const QuantSeen *s, double percentile, int *from, int *to)
{
  double outside = (double)total_of(s) * (1 - percentile / 100);
  double below = 0;
  double above = 0;
  *from = 0;
  *to = QUANT_BINS;
  /* what may stay outside is shared by both ends, the thinner bin first */
  while (*to - *from > 1) {
    double a = (double)s->bin[*from];
    double b = (double)s->bin[*to - 1];
    if (below + above + (a < b ? a : b) > outside) break;
    if (a < b) below += a, ++*from;
    else above += b, --*to;
  }
}

/* Kullback-Leibler divergence of the bins [from, to) stored in so many levels from all bins, those outside counted at
 * the ends. */
static double divergence(const QuantSeen *s, int from, int to, int levels)
{
  static const double NOTHING = 1e-4; /* share of a bin that the stored distribution does not reach */
  double p_sum = 0;
  double inside = 0;
  for (int i = 0; i < QUANT_BINS; i++) p_sum += (double)s->bin[i];
  for (int i = from; i < to; i++) inside += (double)s->bin[i];
  if (!(inside > 0)) return INFINITY;
  double low = 0;
  double high = 0;
  for (int i = 0; i < from; i++) low += (double)s->bin[i];
  for (int i = to; i < QUANT_BINS; i++) high += (double)s->bin[i];
  double sum = 0;
  int n = to - from;
  for (int level = 0; level < levels; level++) {
    int a = from + (int)((int64_t)level * n / levels);
    int b = from + (int)((int64_t)(level + 1) * n / levels);
    double count = 0;
    int used = 0;
    for (int i = a; i < b; i++) {
      count += (double)s->bin[i];
      used += s->bin[i] > 0;
    }
    for (int i = a; i < b; i++) {
      double p = (double)s->bin[i] + (i == from ? low : 0) + (i == to - 1 ? high : 0);
      double q = s->bin[i] > 0 ? count / used : 0;
      if (!(p > 0)) continue;
      p /= p_sum;
      sum += p * log(p / (q > 0 ? q / inside : NOTHING / n));
    }
  }
  return sum;
}

static void kl_range(const QuantSeen *s, int levels, int *from, int *to)
{
  enum { STEPS = 128, FIRST = 8 };
  double most = s->hi > -s->lo ? s->hi : -s->lo;
  double per = QUANT_BINS / (s->hi - s->lo);
  double best = INFINITY;
  *from = 0;
  *to = QUANT_BINS;
  for (int k = STEPS; k >= FIRST; k--) {
    double t = most * k / STEPS;
    int a = -s->lo > t ? (int)((-t - s->lo) * per) : 0;
    int b = s->hi > t ? (int)ceil((t - s->lo) * per) : QUANT_BINS;
    if (b > QUANT_BINS) b = QUANT_BINS;
    if (b - a < levels) break;
    double d = divergence(s, a, b, levels);
    if (d < best) {
      best = d;
      *from = a;
      *to = b;
    }
  }
}

void quant_choose_range(const QuantSeen *s, QuantMethod method, double percentile, int levels, double *lo, double *hi)
{
  *lo = s->lo;
  *hi = s->hi;
  if (method == QUANT_MINMAX || !(s->hi > s->lo)) return;
  int from, to;
  if (method == QUANT_KL) kl_range(s, levels, &from, &to);
  else percentile_range(s, percentile, &from, &to);
  double width = (s->hi - s->lo) / QUANT_BINS;
  if (to < QUANT_BINS) *hi = s->lo + to * width;
  if (from) *lo = s->lo + from * width;
  if (*lo > 0) *lo = 0;
  if (*hi < 0) *hi = 0;
}

static double up_to_power(double scale) { return exp2(ceil(log2(scale))); }

QuantParams quant_params(double lo, double hi, int bits, bool symmetric, bool power2)
{
  double top = exp2(bits - 1) - 1;
  double most = hi > -lo ? hi : -lo;
  double scale = symmetric ? most / top : (hi - lo) / (2 * top + 1);
  if (!(scale > 1e-30)) return (QuantParams){1, 0};
  if (power2) scale = up_to_power(scale);
  if (symmetric) return (QuantParams){(float)scale, 0};
  double zero = nearbyint(-top - 1 - lo / scale);
  return (QuantParams){(float)scale, (int32_t)fmin(fmax(zero, -top - 1), top)};
}

void quant_weights(const float *w, QuantShape s, int bits, bool power2, const float *scale_floor, int8_t *out,
                   float *scale)
{
  double top = exp2(bits - 1) - 1;
  double least = INFINITY; /* of the scales above zero */
  for (int64_t c = 0; c < s.channels; c++) {
    double most = 0;
    for (int64_t o = 0; o < s.outer; o++)
      for (int64_t i = 0; i < s.inner; i++) most = fmax(most, fabs((double)w[(o * s.channels + c) * s.inner + i]));
    double v = most / top;
    if (scale_floor && v < scale_floor[c]) v = scale_floor[c];
    if (power2 && v > 0) v = up_to_power(v);
    scale[c] = (float)v;
    if (scale[c] > 1e-30f && v < least) least = v;
  }
  for (int64_t c = 0; c < s.channels; c++) {
    if (!(scale[c] > 1e-30f)) scale[c] = isfinite(least) ? (float)least : 1; /* a channel of zeros */
    for (int64_t o = 0; o < s.outer; o++)
      for (int64_t i = 0; i < s.inner; i++) {
        int64_t at = (o * s.channels + c) * s.inner + i;
        out[at] = (int8_t)fmin(fmax(nearbyint((double)w[at] / scale[c]), -top), top);
      }
  }
}

void quant_add_error(QuantError *e, size_t n, const float *want, const float *have)
{
  for (size_t i = 0; i < n; i++) {
    double d = (double)have[i] - want[i];
    e->signal += (double)want[i] * want[i];
    e->noise += d * d;
    if (fabs(d) > e->most) e->most = fabs(d);
  }
  e->n += (int64_t)n;
}

double quant_snr(const QuantError *e)
{
  enum { MOST = 200 };
  if (!(e->noise > 0)) return MOST;
  if (!(e->signal > 0)) return -MOST;
  return fmax(fmin(10 * log10(e->signal / e->noise), MOST), -MOST);
}
