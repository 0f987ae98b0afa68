/* test_reduce.c: reductions: values by hand and by loops, axes, NaN, no elements, narrow
 * floats, symbolic sizes, refusals. */
#include "op/test_op.h"

#define CUBE num(DT_F32, DIMS(2, 2, 3), LIST(1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, 12))

CASE(axes_are_chosen)
{
  EXPECT(RUN1(op_sum, NULL, CUBE), 18);
  EXPECT(RUN1(op_sum, ATTRS(op_sum, "axis", "[]"), CUBE), 18);
  EXPECT(RUN1(op_sum, ATTRS(op_sum, "axis", "[1]"), CUBE), 5, 7, 9, -5, -7, 9);
  EXPECT(RUN1(op_sum, ATTRS(op_sum, "axis", "[-1, 0]"), CUBE), 0, 18);
  EXPECT(RUN1(op_sum, ATTRS(op_sum, "axis", "[1]", "exclude", "True"), CUBE), 0, 18);
  Num kept = RUN1(op_sum, ATTRS(op_sum, "axis", "[0, 2]", "keepdims", "True"), CUBE);
  expect_shape(&kept, DIMS(1, 2, 1));
  Num none = RUN1(op_sum, ATTRS(op_sum, "axis", "[0, 1, 2]", "exclude", "True"), CUBE);
  expect_shape(&none, DIMS(2, 2, 3));
  EXPECT(none, 1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, 12);
  EXPECT(RUN1(op_sum, NULL, num0(DT_F32, LIST(5))), 5);
}

CASE(every_kind_of_reduction)
{
  const void *last = ATTRS(op_sum, "axis", "[2]");
  EXPECT(RUN1(op_prod, last, CUBE), 6, 120, -6, 240);
  EXPECT(RUN1(op_mean, last, CUBE), 2, 5, -2, 1);
  EXPECT(RUN1(op_max, last, CUBE), 3, 6, -1, 12);
  EXPECT(RUN1(op_min, last, CUBE), 1, 4, -3, -5);
  Num b = num(DT_BOOL, DIMS(2, 2), LIST(1, 0, 1, 1));
  EXPECT(RUN1(op_all, ATTRS(op_all, "axis", "[1]"), b), 0, 1);
  EXPECT(RUN1(op_any, ATTRS(op_any, "axis", "[0]"), b), 1, 1);
  EXPECT(RUN1(op_max, NULL, num1(DT_I8, 3, LIST(-128, -3, -5))), -3);
  EXPECT(RUN1(op_min, NULL, num1(DT_U8, 3, LIST(200, 3, 255))), 3);
  EXPECT(RUN1(op_sum, NULL, num1(DT_I8, 2, LIST(100, 100))), -56);
  EXPECT(RUN1(op_mean, NULL, num1(DT_I32, 2, LIST(-3, -4))), -3);
}

CASE(nan_goes_through)
{
  EXPECT(RUN1(op_max, NULL, num1(DT_F32, 3, LIST(1, NAN, 2))), NAN);
  EXPECT(RUN1(op_max, NULL, num1(DT_F32, 3, LIST(NAN, 1, 2))), NAN);
  EXPECT(RUN1(op_min, NULL, num1(DT_F32, 3, LIST(1, 2, NAN))), NAN);
  EXPECT(RUN1(op_max, NULL, num1(DT_F32, 2, LIST(-INFINITY, -INFINITY))), -INFINITY);
  EXPECT(RUN1(op_argmax, NULL, num1(DT_F32, 4, LIST(1, NAN, 5, NAN))), 1);
  EXPECT(RUN1(op_argmin, NULL, num1(DT_F32, 3, LIST(-INFINITY, 0, NAN))), 2);
}

CASE(nothing_gives_the_identity)
{
  Num none = num(DT_F32, DIMS(0, 2), NULL);
  const void *first = ATTRS(op_sum, "axis", "[0]");
  EXPECT(RUN1(op_sum, first, none), 0, 0);
  EXPECT(RUN1(op_prod, first, none), 1, 1);
  EXPECT(RUN1(op_max, first, none), -INFINITY, -INFINITY);
  EXPECT(RUN1(op_min, first, none), INFINITY, INFINITY);
  EXPECT(RUN1(op_mean, first, none), NAN, NAN);
  EXPECT(RUN1(op_mean, first, num(DT_I32, DIMS(0, 2), NULL)), 0, 0);
  EXPECT(RUN1(op_max, first, num(DT_I8, DIMS(0, 1), NULL)), -128);
  EXPECT(RUN1(op_all, first, num(DT_BOOL, DIMS(0, 1), NULL)), 1);
  EXPECT(RUN1(op_any, first, num(DT_BOOL, DIMS(0, 1), NULL)), 0);
  EXPECT(RUN1(op_logsumexp, first, none), -INFINITY, -INFINITY);
  Num empty = RUN1(op_sum, ATTRS(op_sum, "axis", "[1]"), none);
  expect_shape(&empty, DIMS(0));
}

CASE(extremes_by_index)
{
  Num x = num(DT_F32, DIMS(2, 3), LIST(3, 7, 7, -1, -1, -5));
  EXPECT(RUN1(op_argmax, ATTRS(op_argmax, "axis", "[1]"), x), 1, 0);
  EXPECT(RUN1(op_argmax, ATTRS(op_argmax, "axis", "[1]", "select_last_index", "True"), x), 2, 1);
  EXPECT(RUN1(op_argmin, ATTRS(op_argmin, "axis", "[0]"), x), 1, 1, 1);
  EXPECT(RUN1(op_argmin, NULL, x), 5);
  EXPECT(RUN1(op_argmax, NULL, num1(DT_F32, 2, LIST(-INFINITY, -INFINITY))), 0);
  EXPECT(RUN1(op_argmax, ATTRS(op_argmax, "select_last_index", "True"), num1(DT_I8, 2, LIST(-128, -128))), 1);
  Num kept = RUN1(op_argmax, ATTRS(op_argmax, "axis", "[0]", "keepdims", "True"), x);
  expect_shape(&kept, DIMS(1, 3));
  assert_true(dtype_eq(kept.dtype, DT_I32));
}

/* 2048 and ones: a float16 sum would stick at 2048. */
CASE(narrow_floats_are_summed_wide)
{
  double v[101] = {2048};
  for (int i = 1; i < 101; i++) v[i] = 1;
  EXPECT(RUN1(op_sum, NULL, num1(DT_F16, 101, v)), 2148);
  EXPECT(RUN1(op_mean, NULL, num1(DT_BF16, 4, LIST(256, 1, 1, 2))), 65);
}

CASE(variance_and_its_kin)
{
  const double v[] = {1, 2, 4, 7, 11, 13};
  double mean[2], var[2];
  for (int r = 0; r < 2; r++) {
    mean[r] = (v[3 * r] + v[3 * r + 1] + v[3 * r + 2]) / 3;
    var[r] = 0;
    for (int i = 0; i < 3; i++) var[r] += (v[3 * r + i] - mean[r]) * (v[3 * r + i] - mean[r]) / 3;
  }
  Num x = num(DT_F64, DIMS(2, 3), v);
  Num got = RUN1(op_variance, ATTRS(op_variance, "axis", "[1]"), x);
  expect_close(&got, "variance", 2, var, 1e-12);
  got = RUN1(op_variance, ATTRS(op_variance, "axis", "[1]", "unbiased", "True", "keepdims", "True"), x);
  expect_close(&got, "unbiased", 2, LIST(var[0] * 1.5, var[1] * 1.5), 1e-12);
  expect_shape(&got, DIMS(2, 1));
  got = RUN1(op_std, ATTRS(op_std, "axis", "[1]"), x);
  expect_close(&got, "std", 2, LIST(sqrt(var[0]), sqrt(var[1])), 1e-12);
  Num two[2];
  evaluate_on(w, call_over(w, &op_mean_variance, ATTRS(op_mean_variance, "axis", "[1]"), 1, &x), 1, &x, 2, two);
  expect_close(&two[0], "mean", 2, mean, 1e-12);
  expect_close(&two[1], "variance", 2, var, 1e-12);
}

CASE(logsumexp_does_not_overflow)
{
  Num got = RUN1(op_logsumexp, ATTRS(op_logsumexp, "axis", "[1]"), num(DT_F32, DIMS(2, 2), LIST(1000, 1000, -1000, 1)));
  expect_close(&got, "logsumexp", 2, LIST(1000 + log(2), 1), 1e-6);
  EXPECT(RUN1(op_logsumexp, NULL, num1(DT_F32, 2, LIST(-INFINITY, -INFINITY))), -INFINITY);
  EXPECT(RUN1(op_logsumexp, NULL, num1(DT_F32, 2, LIST(INFINITY, 0))), INFINITY);
  EXPECT(RUN1(op_logsumexp, NULL, num1(DT_F32, 2, LIST(NAN, 0))), NAN);
}

CASE(symbolic_sizes)
{
  const Expr *n = size_named(w, "n");
  const Node *x = VARIABLE(DT_F32, n, I(3));
  EXPECT_TYPE(op_call1(w->m, &op_sum, x, ATTRS(op_sum, "axis", "[1]")), "Tensor[(n), float32]");
  const Node *mean = op_call1(w->m, &op_mean, x, ATTRS(op_mean, "axis", "[0]", "keepdims", "True"));
  EXPECT_TYPE(mean, "Tensor[(1, 3), float32]");
  Num in = num(DT_F32, DIMS(2, 3), LIST(1, 2, 3, 5, 6, 7));
  Num out;
  evaluate_on(w, mean, 1, &in, 1, &out);
  EXPECT(out, 3, 4, 5);
  const Node *var = op_call1(w->m, &op_variance, x, ATTRS(op_variance, "axis", "[0]", "unbiased", "True"));
  evaluate_on(w, var, 1, &in, 1, &out);
  EXPECT(out, 8, 8, 8);
  EXPECT_TYPE(op_variance.decompose(w->m, var), "Tensor[(3), float32]");
}

/* One kernel for every n, through the decomposition. */
CASE(decompositions_become_one_kernel)
{
  const Expr *n = size_named(w, "n");
  const Node *call = op_call1(w->m, &op_variance, VARIABLE(DT_F32, n), ATTRS(op_variance, "unbiased", "True"));
  const Tensor *in = te_placeholder(w->m, "x", DT_F32, 1, &n);
  const Tensor *out;
  opdef_compute(w->m, call, 1, &in, &out);
  float x[4] = {1, 3, 5, 7};
  float r;
  int64_t four = 4;
  TirArg v[2] = {{.data = x, .dtype = DT_F32, .ndim = 1, .shape = &four}, {.data = &r, .dtype = DT_F32}};
  te_evaluate(w->ctx, 2, (const TeArg[]){{.tensor = in}, {.tensor = out}}, v);
  assert_float_equal(r, 20.0 / 3, 1e-5);
}

/* ---- axes known only at run time --------------------------------------------------------------- */

CASE(axes_as_values)
{
  Num x = CUBE;
  Num out;
  out = RUN2(op_dyn_sum, NULL, x, num1(DT_I64, 1, LIST(1)));
  expect_shape(&out, DIMS(2, 1, 3));
  EXPECT(out, 5, 7, 9, -5, -7, 9);
  out = RUN2(op_dyn_max, NULL, x, num1(DT_I64, 2, LIST(-1, 0)));
  expect_shape(&out, DIMS(1, 2, 1));
  EXPECT(out, 3, 12);
  EXPECT(RUN2(op_dyn_mean, NULL, x, num1(DT_I64, 1, LIST(2))), 2, 5, -2, 1);
  EXPECT(RUN2(op_dyn_prod, NULL, x, num1(DT_I64, 1, LIST(-1))), 6, 120, -6, 240);
  EXPECT(RUN2(op_dyn_min, NULL, x, num1(DT_I64, 3, LIST(0, 1, 2))), -5);
  EXPECT(RUN2(op_dyn_any, NULL, num(DT_BOOL, DIMS(2, 2), LIST(0, 0, 0, 1)), num1(DT_I64, 1, LIST(1))), 0, 1);
  out = RUN2(op_dyn_sum, NULL, x, num1(DT_I64, 0, NULL));
  EXPECT(out, 1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, 12);
}

/* One kernel for any axis: the axis comes in as a scalar. */
CASE(one_kernel_reduces_any_axis)
{
  const Node *axes = VARIABLE(DT_I64, I(1));
  const Node *call = op_call2(w->m, &op_dyn_sum, VARIABLE(DT_F32, I(2), I(3)), axes, NULL);
  int n;
  const Expr *const *v = graph_values(w->m, axes, &n);
  assert_int_equal(v[0]->kind, E_VAR);
  const Tensor *in[2] = {te_placeholder(w->m, "x", DT_F32, SHAPE(I(2), I(3))),
                         te_placeholder(w->m, "axes", DT_I64, SHAPE(I(1)))};
  const Tensor *out;
  opdef_compute(w->m, call, 2, in, &out);
  float x[6] = {1, 2, 3, 4, 5, 6};
  float r[6];
  static const float want[2][3] = {{5, 7, 9}, {6, 15, 0}};
  for (int64_t axis = 0; axis < 2; axis++) {
    int64_t shape[2] = {axis ? 2 : 1, axis ? 1 : 3};
    TirArg value[3] = {{.dtype = DT_I64, .scalar = value_int(DT_I64, axis)},
                       {.data = x, .dtype = DT_F32, .ndim = 2, .shape = (int64_t[]){2, 3}},
                       {.data = r, .dtype = DT_F32, .ndim = 2, .shape = shape}};
    te_evaluate(w->ctx, 3, (const TeArg[]){{.var = v[0]->u.var}, {.tensor = in[0]}, {.tensor = out}}, value);
    for (int i = 0; i < (axis ? 2 : 3); i++) assert_float_equal(r[i], want[axis][i], 0);
  }
}

CASE(running_sums_along_a_value)
{
  Num x = num(DT_F32, DIMS(2, 3), LIST(1, 2, 3, 4, 5, 6));
  Num first = num0(DT_I32, LIST(0));
  Num last = num0(DT_I32, LIST(-1));
  EXPECT(RUN2(op_dyn_cumsum, NULL, x, last), 1, 3, 6, 4, 9, 15);
  EXPECT(RUN2(op_dyn_cumsum, NULL, x, first), 1, 2, 3, 5, 7, 9);
  EXPECT(RUN2(op_dyn_cumsum, ATTRS(op_dyn_cumsum, "exclusive", "True"), x, last), 0, 1, 3, 0, 4, 9);
  EXPECT(RUN2(op_dyn_cumsum, ATTRS(op_dyn_cumsum, "reverse", "True"), x, last), 6, 5, 3, 15, 11, 6);
  EXPECT(RUN2(op_dyn_cumsum, ATTRS(op_dyn_cumsum, "reverse", "True", "exclusive", "True"), x, last), 5, 3, 0, 11, 6, 0);
  EXPECT(RUN2(op_dyn_cumprod, NULL, x, last), 1, 2, 6, 4, 20, 120);
}

SAYS(an_axis_value_outside, ERR_ARGUMENT, "dyn.sum: an axis is outside a tensor of 1 dimension")
{
  op_call2(w->m, &op_dyn_sum, VARIABLE(DT_F32, I(2)),
           op_call1(w->m, &op_full, op_number(w->m, DT_I64, 1), ATTRS(op_full, "shape", "[1]")), NULL);
}

SAYS(an_axis_outside, ERR_ARGUMENT, "sum: axis 2 is outside a tensor of 2 dimensions")
{
  op_call1(w->m, &op_sum, VARIABLE(DT_F32, I(2), I(3)), ATTRS(op_sum, "axis", "[2]"));
}
SAYS(an_axis_twice, ERR_ARGUMENT, "max: axis 1 is listed twice")
{
  op_call1(w->m, &op_max, VARIABLE(DT_F32, I(2), I(3)), ATTRS(op_max, "axis", "[1, -1]"));
}
SAYS(no_sum_of_bool, ERR_TYPE, "sum: argument 'data' is bool; a number is needed (cast it first)")
{
  op_call1(w->m, &op_sum, VARIABLE(DT_BOOL, I(2)), NULL);
}
SAYS(all_is_of_bool, ERR_TYPE, "all: argument 'data' is int32; bool is needed")
{
  op_call1(w->m, &op_all, VARIABLE(DT_I32, I(2)), NULL);
}

int main(void)
{
  op_init();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(axes_are_chosen),
    cmocka_unit_test(every_kind_of_reduction),
    cmocka_unit_test(nan_goes_through),
    cmocka_unit_test(nothing_gives_the_identity),
    cmocka_unit_test(extremes_by_index),
    cmocka_unit_test(narrow_floats_are_summed_wide),
    cmocka_unit_test(variance_and_its_kin),
    cmocka_unit_test(logsumexp_does_not_overflow),
    cmocka_unit_test(symbolic_sizes),
    cmocka_unit_test(decompositions_become_one_kernel),
    cmocka_unit_test(axes_as_values),
    cmocka_unit_test(one_kernel_reduces_any_axis),
    cmocka_unit_test(running_sums_along_a_value),
    cmocka_unit_test(an_axis_value_outside),
    cmocka_unit_test(an_axis_outside),
    cmocka_unit_test(an_axis_twice),
    cmocka_unit_test(no_sum_of_bool),
    cmocka_unit_test(all_is_of_bool),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
