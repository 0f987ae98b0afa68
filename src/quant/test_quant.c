/* test_quant.c: ranges, scales and integers of weights, against what they are by hand; samples that fit and do not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "quant/quant.h"

static QuantSeen seen_of(int n, const float *v, int64_t *bin)
{
  QuantSeen s = {.bin = bin};
  memset(bin, 0, QUANT_BINS * sizeof *bin);
  quant_see_limits(&s, (size_t)n, v);
  quant_see_bins(&s, (size_t)n, v);
  return s;
}

static int64_t bins[QUANT_BINS];

static void limits_hold_zero(void **state)
{
  (void)state;
  const float v[] = {2, 3, NAN, 0, INFINITY, 7};
  QuantSeen s = seen_of(6, v, bins);
  assert_true(s.lo == 0 && s.hi == 7 && s.n == 6 && s.bad == 2);
  int64_t counted = 0;
  for (int i = 0; i < QUANT_BINS; i++) counted += bins[i];
  assert_int_equal(counted, 3); /* without the zero and what is no number */
}

/* 10,000 elements evenly over [-1, 1] and one at 50: the share that may stay outside is as large as said. */
static void percentiles(void **state)
{
  (void)state;
  enum { N = 10001 };
  float *v = calloc(N, sizeof *v);
  for (int i = 0; i < N - 1; i++) v[i] = (float)(2.0 * i / (N - 2) - 1);
  v[N - 1] = 50;
  QuantSeen s = seen_of(N, v, bins);
  double lo, hi;
  quant_choose_range(&s, QUANT_MINMAX, 0, 256, &lo, &hi);
  assert_true(lo == -1 && hi == 50);
  quant_choose_range(&s, QUANT_PERCENTILE, 99.98, 256, &lo, &hi);
  assert_true(lo >= -1.001 && lo <= -0.99 && hi > 0.97 && hi < 1.05);
  quant_choose_range(&s, QUANT_PERCENTILE, 100, 256, &lo, &hi);
  assert_true(lo == -1 && hi == 50);
  free(v);
}

/* A tail that holds next to nothing goes; where all parts of the range are used, it stays. */
static void divergences(void **state)
{
  (void)state;
  enum { N = 100000 };
  float *v = calloc(N, sizeof *v);
  double lo, hi;
  for (int i = 0; i < N; i++) v[i] = (float)((i % 2001 - 1000) / 1000.0);
  v[0] = 30;
  QuantSeen s = seen_of(N, v, bins);
  quant_choose_range(&s, QUANT_KL, 0, 256, &lo, &hi);
  assert_true(hi < 8 && hi >= 1 && lo >= -1 && lo < -0.9);
  v[0] = 1;
  s = seen_of(N, v, bins);
  quant_choose_range(&s, QUANT_KL, 0, 256, &lo, &hi);
  assert_true(hi > 0.95 && lo < -0.95);
  free(v);
}

static void parameters(void **state)
{
  (void)state;
  QuantParams p = quant_params(0, 255, 8, false, false);
  assert_true(p.scale == 1 && p.zero == -128);
  p = quant_params(-127.5, 127.5, 8, false, false);
  assert_true(p.scale == 1 && (p.zero == 0 || p.zero == -1));
  p = quant_params(-3, 12.7, 8, true, false);
  assert_true(fabsf(p.scale - 0.1f) < 1e-7f && p.zero == 0);
  p = quant_params(-3, 12.7, 8, true, true);
  assert_true(p.scale == 0.125f);
  p = quant_params(0, 15, 4, false, false);
  assert_true(p.scale == 1 && p.zero == -8);
  p = quant_params(0, 0, 8, false, false);
  assert_true(p.scale == 1 && p.zero == 0);
}

/* Two channels and one of zeros, along the middle axis of 2 x 3 x 2. */
static void weights(void **state)
{
  (void)state;
  const float w[] = {1.27f, -0.5f, 0, 0, 12.7f, 0, 0.014f, 0.016f, 0, 0, -6.31f, 6.39f};
  const int8_t want[] = {127, -50, 0, 0, 127, 0, 1, 2, 0, 0, -63, 64};
  int8_t q[12];
  float scale[3];
  quant_weights(w, (QuantShape){2, 3, 2}, 8, false, NULL, q, scale);
  assert_true(fabsf(scale[0] - 0.01f) < 1e-8f && scale[1] == scale[0] && fabsf(scale[2] - 0.1f) < 1e-7f);
  assert_memory_equal(q, want, sizeof q);
  quant_weights(w, (QuantShape){2, 3, 2}, 4, true, (const float[]){0, 3, 0}, q, scale);
  assert_true(scale[0] == 0.25f && scale[1] == 4 && scale[2] == 2);
  assert_int_equal(q[0], 5);
  assert_int_equal(q[4], 6);
}

static void errors(void **state)
{
  (void)state;
  QuantError e = {0};
  const float want[] = {3, 4};
  const float have[] = {3, 4.5f};
  quant_add_error(&e, 2, want, have);
  assert_true(fabs(quant_snr(&e) - 20) < 1e-9 && e.most == 0.5); /* 25 to 0.25 */
  assert_true(quant_snr(&(QuantError){.signal = 1}) == 200);
}

/* ---- samples --------------------------------------------------------------------------------------------- */

typedef struct Cut {
  const LatheRtTensor *tensor[2];
  int n;
  QuantPort port;
  int64_t runs, rows, first;
  int ndim;
} Cut;

static void cut_body(Ctx *ctx, void *arg)
{
  Cut *c = arg;
  Arena *a = scratch(ctx);
  const QuantArray array[] = {{NULL, c->tensor[0]}, {NULL, c->tensor[1]}};
  QuantSamples s = quant_samples(a, c->n, array, 1, &c->port);
  c->runs = s.n;
  c->rows = s.rows;
  c->ndim = s.input[0].ndim;
  c->first = s.input[0].shape[0];
}

static ErrKind cut(Cut *c)
{
  Ctx *ctx = ctx_new();
  ErrKind kind = protect(ctx, cut_body, c);
  ctx_free(ctx);
  return kind;
}

static void samples(void **state)
{
  (void)state;
  float v[24];
  int64_t many[] = {6, 4};
  int64_t one[] = {4};
  int64_t whole[] = {3, 2, 4};
  LatheRtTensor t = {.data = v, .ndim = 2, .dtype = {2, 32, 1}, .shape = many};
  LatheRtTensor u = t;
  u.ndim = 1;
  u.shape = one;
  const int64_t open[] = {-1, 4};
  const int64_t pairs[] = {2, 4};
  const int64_t other[] = {-1, 5};
  Cut c = {.tensor = {&t, &u}, .n = 2, .port = {"x", DT_F32, 2, open}};
  assert_int_equal(cut(&c), ERR_NONE);
  assert_true(c.runs == 7 && c.rows == 1 && c.ndim == 2 && c.first == 1);
  c = (Cut){.tensor = {&t}, .n = 1, .port = {"x", DT_F32, 2, pairs}};
  assert_int_equal(cut(&c), ERR_NONE);
  assert_true(c.runs == 3 && c.rows == 2);
  LatheRtTensor w = {.data = v, .ndim = 3, .dtype = {2, 32, 1}, .shape = whole};
  c.tensor[0] = &w;
  assert_int_equal(cut(&c), ERR_NONE);
  assert_true(c.runs == 3 && c.rows == 2 && c.ndim == 2);
  c = (Cut){.tensor = {&t}, .n = 1, .port = {"x", DT_F32, 2, other}};
  assert_int_equal(cut(&c), ERR_SHAPE);
  c.port = (QuantPort){"x", DT_I64, 2, open};
  assert_int_equal(cut(&c), ERR_TYPE);
  c = (Cut){.tensor = {&u}, .n = 1, .port = {"x", DT_F32, 2, pairs}};
  assert_int_equal(cut(&c), ERR_SHAPE); /* one of two rows */
  c = (Cut){.n = 0, .port = {"x", DT_F32, 2, open}};
  assert_int_equal(cut(&c), ERR_ARGUMENT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(limits_hold_zero), cmocka_unit_test(percentiles), cmocka_unit_test(divergences),
    cmocka_unit_test(parameters),       cmocka_unit_test(weights),     cmocka_unit_test(errors),
    cmocka_unit_test(samples),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
