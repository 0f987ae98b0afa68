/* model.c: what measurements of a workload, and of others, say about its other plans.
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

/* Solves a x = b for a symmetric positive matrix of n rows, in place. */
static void solve(int n, double *a, double *b)
{
  for (int k = 0; k < n; k++)
    for (int i = k + 1; i < n; i++) {
      double f = a[i * n + k] / a[k * n + k];
      for (int j = k; j < n; j++) a[i * n + j] -= f * a[k * n + j];
      b[i] -= f * b[k];
    }
  for (int k = n - 1; k >= 0; k--) {
    for (int j = k + 1; j < n; j++) b[k] -= a[k * n + j] * b[j];
    b[k] /= a[k * n + k];
  }
}

typedef struct Normal {
  double a[FEATURES][FEATURES], b[FEATURES]; /* of the equations that the weights solve */
} Normal;

/* The difference from the prediction is learnt, so nothing learnt means the prediction. */
static void add_sample(Normal *e, const TuneCandidate *c, double seconds, double weight)
{
  double x[FEATURES];
  if (seconds <= 0) return;
  features(c, x);
  double y = weight * (log(seconds) - x[1]);
  for (int r = 0; r < FEATURES; r++) {
    e->b[r] += x[r] * y;
    for (int k = 0; k < FEATURES; k++) e->a[r][k] += weight * x[r] * x[k];
  }
}

void tune_learn(int n, const TuneCandidate *c, const double *seconds, const TuneOthers *others, double *out)
{
  static const double RIDGE = 0.3;
  static const double OTHERS = 4; /* measurements of its own that all others together count for */
  Normal e = {0};
  double x[FEATURES];
  for (int i = 0; i < FEATURES; i++) e.a[i][i] = RIDGE;
  for (int i = 0; i < n; i++) add_sample(&e, &c[i], seconds[i], 1);
  for (int i = 0; others && i < others->n; i++)
    add_sample(&e, &others->candidate[i], others->seconds[i], others->n > OTHERS ? OTHERS / others->n : 1);
  double *b = e.b;
  solve(FEATURES, &e.a[0][0], b);
  for (int i = 0; i < n; i++) {
    features(&c[i], x);
    double y = x[1];
    for (int r = 0; r < FEATURES; r++) y += b[r] * x[r];
    out[i] = exp(y);
  }
}

/* ---- over rows of numbers -------------------------------------------------------------------------------- */

/* Each column less its mean, by its deviation. */
typedef struct Scale {
  double mean, by;
} Scale;

static void find_scale(int width, int n, const double *rows, Scale *s)
{
  for (int k = 0; k < width; k++) {
    double sum = 0;
    double square = 0;
    for (int i = 0; i < n; i++) sum += rows[i * width + k];
    s[k].mean = sum / n;
    for (int i = 0; i < n; i++) square += (rows[i * width + k] - s[k].mean) * (rows[i * width + k] - s[k].mean);
    double deviation = sqrt(square / n);
    s[k].by = deviation > 1e-9 ? 1 / deviation : 0;
  }
}

/* 1, the columns, their squares. */
static void extend(int width, const double *row, const Scale *s, double *out)
{
  out[0] = 1;
  for (int k = 0; k < width; k++) {
    double x = (row[k] - s[k].mean) * s[k].by;
    out[1 + k] = x;
    out[1 + width + k] = 0.3 * x * x;
  }
}

static void ridge(Arena *arena, int width, int n, const double *rows, const double *y, int m, const double *others,
                  double *out)
{
  static const double RIDGE = 1;
  int size = 1 + 2 * width;
  Scale *s = arena_array(arena, Scale, width);
  double *a = arena_array(arena, double, (size_t)size *(size_t)size);
  double *b = arena_array(arena, double, size);
  double *x = arena_array(arena, double, size);
  find_scale(width, n, rows, s);
  for (int i = 0; i < size; i++) a[i * size + i] = i ? RIDGE : 1e-6;
  for (int i = 0; i < n; i++) {
    extend(width, rows + (size_t)i * (size_t)width, s, x);
    for (int r = 0; r < size; r++) {
      b[r] += x[r] * y[i];
      for (int k = 0; k < size; k++) a[r * size + k] += x[r] * x[k];
    }
  }
  solve(size, a, b);
  for (int i = 0; i < m; i++) {
    extend(width, others + (size_t)i * (size_t)width, s, x);
    out[i] = 0;
    for (int r = 0; r < size; r++) out[i] += b[r] * x[r];
  }
}

void tune_fit(Arena *arena, int width, int n, const double *rows, const double *seconds, int m, const double *others,
              double *out)
{
  enum { FEW = 16 }; /* trees want more than that */
  double *y = arena_array(arena, double, n + 1);
  for (int i = 0; i < n; i++) y[i] = log(seconds[i] > 0 ? seconds[i] : 1e-9);
  if (n == 0)
    for (int i = 0; i < m; i++) out[i] = 0;
  else if (n < FEW || !tune_xgboost(arena, width, n, rows, y, m, others, out))
    ridge(arena, width, n, rows, y, m, others, out);
  for (int i = 0; i < m; i++) out[i] = exp(out[i]);
}
