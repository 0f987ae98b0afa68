/* test_random.c: random operators: the generator against the same formula in C, the
 * distributions by their moments, reproducibility. */
#include "op/test_op.h"

static uint64_t mixed(uint64_t z)
{
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
/* Position i of the stream. */
static uint64_t number(int64_t seed, uint64_t i)
{
  return mixed(mixed((uint64_t)seed) + (i + 1) * 0x9e3779b97f4a7c15u);
}

CASE(uniform_is_the_stated_function)
{
  const void *a = ATTRS(op_random_uniform, "seed", "7", "low", "-1.0", "high", "3.0", "out_shape", "[2, 3]");
  Num got = run_op(w, &op_random_uniform, a, 0, NULL);
  expect_shape(&got, DIMS(2, 3));
  for (int i = 0; i < 6; i++) {
    float u = (float)(number(7, (uint64_t)i) >> 40) * 0x1p-24f;
    assert_float_equal(got.v[i], -1.0f + u * 4.0f, 1e-6);
  }
  a = ATTRS(op_random_uniform, "seed", "-3", "out_shape", "[4]", "out_dtype", "\"float64\"");
  got = run_op(w, &op_random_uniform, a, 0, NULL);
  for (int i = 0; i < 4; i++) assert_true(got.v[i] == (double)(number(-3, (uint64_t)i) >> 11) * 0x1p-53);
}

/* The published first numbers of splitmix64 from state 0. */
static void the_mix_is_splitmix64(void **state)
{
  (void)state;
  assert_true(mixed(0x9e3779b97f4a7c15u) == 0xe220a8397b1dcdafu);
  assert_true(mixed(2 * 0x9e3779b97f4a7c15u) == 0x6e789e6aa1b965f4u);
}

static void moments(const Num *x, double *mean, double *var)
{
  *mean = *var = 0;
  for (int64_t i = 0; i < x->n; i++) *mean += x->v[i] / (double)x->n;
  for (int64_t i = 0; i < x->n; i++) *var += (x->v[i] - *mean) * (x->v[i] - *mean) / (double)x->n;
}

CASE(distributions)
{
  double mean, var;
  Num u = run_op(w, &op_random_uniform, ATTRS(op_random_uniform, "seed", "1", "out_shape", "[8000]"), 0, NULL);
  moments(&u, &mean, &var);
  assert_float_equal(mean, 0.5, 0.015);
  assert_float_equal(var, 1.0 / 12, 0.005);
  Num g = run_op(w, &op_random_normal,
                 ATTRS(op_random_normal, "seed", "2", "mean", "3.0", "scale", "2.0", "out_shape", "[8000]"), 0, NULL);
  moments(&g, &mean, &var);
  assert_float_equal(mean, 3, 0.1);
  assert_float_equal(var, 4, 0.3);
  int beyond = 0;
  for (int i = 0; i < 8000; i++) beyond += fabs(g.v[i] - 3) > 4;
  assert_in_range(beyond, 290, 440); /* 4.55 % lie beyond two deviations */
}

CASE(seeds_differ_and_repeat)
{
  Num a = run_op(w, &op_random_uniform, ATTRS(op_random_uniform, "seed", "1", "out_shape", "[64]"), 0, NULL);
  Num b = run_op(w, &op_random_uniform, ATTRS(op_random_uniform, "seed", "1", "out_shape", "[64]"), 0, NULL);
  Num c = run_op(w, &op_random_uniform, ATTRS(op_random_uniform, "seed", "2", "out_shape", "[64]"), 0, NULL);
  int same = 0;
  for (int i = 0; i < 64; i++) {
    assert_true(a.v[i] == b.v[i]);
    same += a.v[i] == c.v[i];
  }
  assert_int_equal(same, 0);
}

CASE(like_takes_the_shape)
{
  Num x = num(DT_F64, DIMS(2, 2), LIST(0, 0, 0, 0));
  Num got = RUN1(op_random_normal_like, ATTRS(op_random_normal_like, "seed", "5", "out_dtype", "\"float16\""), x);
  expect_shape(&got, DIMS(2, 2));
  assert_true(dtype_eq(got.dtype, DT_F16));
  const Expr *n = size_named(w, "n");
  EXPECT_TYPE(op_call1(w->m, &op_random_uniform_like, VARIABLE(DT_F32, n), NULL), "Tensor[(n), float32]");
}

CASE(bernoulli_hits)
{
  enum { N = 4000 };
  double *p = arena_array(w->m->arena, double, N);
  for (int i = 0; i < N; i++) p[i] = i % 2 ? 0.25 : i % 4 ? 1 : 0;
  Num got = RUN1(op_random_bernoulli, ATTRS(op_random_bernoulli, "seed", "9", "dtype", "\"bool\""), num1(DT_F32, N, p));
  int hits = 0;
  for (int i = 0; i < N; i++) {
    if (i % 2) hits += got.v[i] == 1;
    else assert_true(got.v[i] == p[i]);
  }
  assert_in_range(hits, 420, 580);
}

CASE(multinomial_follows_its_weights)
{
  Num p = num(DT_F32, DIMS(2, 3), LIST(1, 2, 1, 0, 0, 5));
  Num got = RUN1(op_random_multinomial,
                 ATTRS(op_random_multinomial, "seed", "4", "num_samples", "1000", "dtype", "\"int64\""), p);
  expect_shape(&got, DIMS(2, 1000));
  int seen[3] = {0};
  for (int i = 0; i < 1000; i++) {
    seen[(int)got.v[i]]++;
    assert_true(got.v[1000 + i] == 2);
  }
  assert_in_range(seen[0], 200, 300);
  assert_in_range(seen[1], 430, 570);
  assert_in_range(seen[2], 200, 300);
}

SAYS(random_integers_are_refused, ERR_TYPE, "random.uniform: out_dtype is int32; a float is needed")
{
  run_op(w, &op_random_uniform, ATTRS(op_random_uniform, "out_dtype", "\"int32\""), 0, NULL);
}

int main(void)
{
  op_init();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(uniform_is_the_stated_function),
    cmocka_unit_test(the_mix_is_splitmix64),
    cmocka_unit_test(distributions),
    cmocka_unit_test(seeds_differ_and_repeat),
    cmocka_unit_test(like_takes_the_shape),
    cmocka_unit_test(bernoulli_hits),
    cmocka_unit_test(multinomial_follows_its_weights),
    cmocka_unit_test(random_integers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
