/* model.c: what measurements of a workload say about its other plans.
 *
 * The logarithm of the seconds is taken for a sum over what can be said of a plan: the predicted seconds, which
 * implementation it is of, the logarithm of each field and its square.  The weights come from a ridge regression; with
 * few measurements it stays near the prediction, which its own term carries. */
#include <math.h>
#include <stdlib.h>

#include "tune/tune.h"

enum { FEATURES = 48 };

/* Fields of a name have the same place in every implementation that has it. */
static int place_of(const char *name, size_t n, uint64_t power)
{
  return 2 + (int)(hash_bytes(name, n, power) % (FEATURES - 2));
}

static void features(const TuneCandidate *c, double out[FEATURES])
{
  for (int i = 0; i < FEATURES; i++) out[i] = 0;
  out[0] = 1;
  out[1] = log(c->predicted > 0 ? c->predicted : 1e-6);
  const char *p = c->plan;
  size_t n = strcspn(p, "{");
  out[place_of(p, n, 0)] += 1;
  p += n;
  while (*p && *p != '}') {
    p += strspn(p, "{, ");
    n = strcspn(p, "=");
    if (p[n] != '=') break;
    const char *value = p + n + 1;
    double v = *value == 'T' ? 1 : *value == 'F' ? 0 : strtod(value, NULL);
    double x = v >= 0 ? log2(1 + v) : 0;
    out[place_of(p, n, 1)] += x;
    out[place_of(p, n, 2)] += 0.1 * x * x;
    p = value + strcspn(value, ",}");
  }
}

/* Solves a x = b for a symmetric positive matrix, in place. */
static void solve(double a[FEATURES][FEATURES], double b[FEATURES])
{
  for (int k = 0; k < FEATURES; k++)
    for (int i = k + 1; i < FEATURES; i++) {
      double f = a[i][k] / a[k][k];
      for (int j = k; j < FEATURES; j++) a[i][j] -= f * a[k][j];
      b[i] -= f * b[k];
    }
  for (int k = FEATURES - 1; k >= 0; k--) {
    for (int j = k + 1; j < FEATURES; j++) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
}

void tune_learn(int n, const TuneCandidate *c, const double *seconds, double *out)
{
  static const double RIDGE = 0.3;
  double a[FEATURES][FEATURES] = {{0}};
  double b[FEATURES] = {0};
  double x[FEATURES];
  /* the difference from the prediction is learnt, so nothing learnt means the prediction */
  for (int i = 0; i < FEATURES; i++) a[i][i] = RIDGE;
  for (int i = 0; i < n; i++) {
    if (seconds[i] <= 0) continue;
    features(&c[i], x);
    double y = log(seconds[i]) - x[1];
    for (int r = 0; r < FEATURES; r++) {
      b[r] += x[r] * y;
      for (int k = 0; k < FEATURES; k++) a[r][k] += x[r] * x[k];
    }
  }
  solve(a, b);
  for (int i = 0; i < n; i++) {
    features(&c[i], x);
    double y = x[1];
    for (int r = 0; r < FEATURES; r++) y += b[r] * x[r];
    out[i] = exp(y);
  }
}
