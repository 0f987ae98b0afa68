/* test_elementwise.c: operators of one tensor: values against libm and by hand, special
 * values, dtypes, symbolic sizes, layouts, refusals. */
#include "op/test_op.h"

/* ---- floats against libm -------------------------------------------------------------------- */

static double rsqrt_ref(double x) { return 1 / sqrt(x); }
static double sigmoid_ref(double x) { return 1 / (1 + exp(-x)); }
static double sign_ref(double x) { return isnan(x) ? x : x > 0 ? 1 : x < 0 ? -1 : 0; }
static double relu_ref(double x) { return x < 0 ? 0 : x; }
static double negative_ref(double x) { return -x; }
static double copy_ref(double x) { return x; }

static const double samples[] = {-3.5, -2.5, -1.5, -1,  -0.5, -0.25, -0.0, 0.0,      0.25,     0.5,
                                 1,    1.5,  2,    2.5, 3.5,  7.25,  NAN,  INFINITY, -INFINITY};

CASE(float_functions_agree_with_libm)
{
  static const struct {
    const OpDef *op;
    double (*ref)(double);
  } row[] = {
    {&op_exp, exp},
    {&op_log, log},
    {&op_log2, log2},
    {&op_log10, log10},
    {&op_sqrt, sqrt},
    {&op_rsqrt, rsqrt_ref},
    {&op_sigmoid, sigmoid_ref},
    {&op_tanh, tanh},
    {&op_sin, sin},
    {&op_cos, cos},
    {&op_tan, tan},
    {&op_asin, asin},
    {&op_acos, acos},
    {&op_atan, atan},
    {&op_sinh, sinh},
    {&op_cosh, cosh},
    {&op_asinh, asinh},
    {&op_acosh, acosh},
    {&op_atanh, atanh},
    {&op_erf, erf},
    {&op_floor, floor},
    {&op_ceil, ceil},
    {&op_trunc, trunc},
    {&op_round, nearbyint},
    {&op_abs, fabs},
    {&op_sign, sign_ref},
    {&op_nn_relu, relu_ref},
    {&op_negative, negative_ref},
    {&op_copy, copy_ref},
  };
  static const struct {
    DType t;
    double relative;
  } dtypes[] = {
    {{DT_FLOAT, 32, 1}, 4e-7}, {{DT_FLOAT, 64, 1}, 1e-14}, {{DT_FLOAT, 16, 1}, 1.5e-3}, {{DT_BFLOAT, 16, 1}, 1e-2}};
  for (int i = 0; i < COUNT(row); i++)
    for (int k = 0; k < COUNT(dtypes); k++) {
      double want[COUNT(samples)];
      for (int j = 0; j < COUNT(samples); j++) want[j] = row[i].ref(samples[j]);
      Num got = run_op(w, row[i].op, NULL, 1, (const Num[]){num1(dtypes[k].t, COUNT(samples), samples)});
      assert_true(dtype_eq(got.dtype, dtypes[k].t));
      expect_close(&got, row[i].op->name, COUNT(samples), want, dtypes[k].relative);
    }
}

CASE(fast_functions_keep_their_bounds)
{
  double x[401], want[3][401];
  for (int i = 0; i < 401; i++) {
    x[i] = (i - 200) * 0.05;
    want[0][i] = exp((float)x[i]), want[1][i] = tanh((float)x[i]), want[2][i] = erf((float)x[i]);
  }
  const OpDef *op[] = {&op_fast_exp, &op_fast_tanh, &op_fast_erf};
  for (int k = 0; k < 3; k++) {
    Num got = run_op(w, op[k], NULL, 1, (const Num[]){num1(DT_F32, 401, x)});
    for (int i = 0; i < 401; i++) assert_true(fabs(got.v[i] - want[k][i]) <= (k ? 6e-7 : 4e-7 * want[0][i]));
  }
  EXPECT(RUN1(op_fast_tanh, NULL, num1(DT_F32, 3, LIST(NAN, 30, -30))), NAN, 1, -1);
  EXPECT(RUN1(op_fast_exp, NULL, num1(DT_F32, 1, LIST(NAN))), NAN);
  EXPECT(RUN1(op_fast_erf, NULL, num1(DT_F32, 3, LIST(NAN, 9, -9))), NAN, 1, -1);
}

/* ---- integers ------------------------------------------------------------------------------------ */

CASE(integers_wrap)
{
  DType u8 = DTYPE(DT_UINT, 8);
  DType i16 = DTYPE(DT_INT, 16);
  EXPECT(RUN1(op_abs, NULL, num1(DT_I8, 4, LIST(-128, -1, 0, 127))), -128, 1, 0, 127);
  EXPECT(RUN1(op_abs, NULL, num1(u8, 2, LIST(200, 3))), 200, 3);
  EXPECT(RUN1(op_negative, NULL, num1(DT_I8, 4, LIST(-128, -1, 0, 127))), -128, 1, 0, -127);
  EXPECT(RUN1(op_negative, NULL, num1(u8, 3, LIST(0, 1, 200))), 0, 255, 56);
  EXPECT(RUN1(op_sign, NULL, num1(i16, 3, LIST(-300, 0, 300))), -1, 0, 1);
  EXPECT(RUN1(op_sign, NULL, num1(u8, 2, LIST(0, 200))), 0, 1);
  EXPECT(RUN1(op_nn_relu, NULL, num1(DT_I32, 3, LIST(-5, 0, 5))), 0, 0, 5);
  EXPECT(RUN1(op_round, NULL, num1(DT_I32, 2, LIST(-5, 7))), -5, 7);
  EXPECT(RUN1(op_bitwise_not, NULL, num1(DT_I32, 3, LIST(0, -1, 5))), -1, 0, -6);
  EXPECT(RUN1(op_bitwise_not, NULL, num1(u8, 2, LIST(0, 15))), 255, 240);
  EXPECT(RUN1(op_bitwise_not, NULL, num1(DT_BOOL, 2, LIST(0, 1))), 1, 0);
  EXPECT(RUN1(op_logical_not, NULL, num1(DT_BOOL, 2, LIST(0, 1))), 1, 0);
}

CASE(clip_limits)
{
  const void *both = ATTRS(op_clip, "a_min", "-1.0", "a_max", "6.0");
  EXPECT(RUN1(op_clip, both, num1(DT_F32, 6, LIST(-2, -1, 0, 6, 7, NAN))), -1, -1, 0, 6, 6, NAN);
  EXPECT(RUN1(op_clip, both, num1(DT_F32, 2, LIST(INFINITY, -INFINITY))), 6, -1);
  EXPECT(RUN1(op_clip, NULL, num1(DT_F32, 2, LIST(INFINITY, -INFINITY))), INFINITY, -INFINITY);
  EXPECT(RUN1(op_clip, both, num1(DT_I8, 3, LIST(-100, 3, 100))), -1, 3, 6);
  EXPECT(RUN1(op_clip, ATTRS(op_clip, "a_min", "-1000.0", "a_max", "1000.0"), num1(DT_U8, 2, LIST(0, 255))), 0, 255);
  EXPECT(RUN1(op_clip, ATTRS(op_clip, "a_min", "5.0", "a_max", "2.0"), num1(DT_F32, 3, LIST(1, 3, 9))), 2, 2, 2);
}

CASE(leaky_relu_slopes)
{
  EXPECT(RUN1(op_nn_leaky_relu, ATTRS(op_nn_leaky_relu, "alpha", "0.25"), num1(DT_F32, 4, LIST(-4, 0, 4, NAN))), -1, 0,
         4, NAN);
}

CASE(questions_about_floats)
{
  const double v[] = {1, NAN, INFINITY, -INFINITY, -0.0};
  EXPECT(RUN1(op_isnan, NULL, num1(DT_F32, 5, v)), 0, 1, 0, 0, 0);
  EXPECT(RUN1(op_isinf, NULL, num1(DT_F16, 5, v)), 0, 0, 1, 1, 0);
  EXPECT(RUN1(op_isfinite, NULL, num1(DT_F64, 5, v)), 1, 0, 0, 0, 1);
  EXPECT(RUN1(op_isnan, NULL, num1(DT_I32, 2, LIST(1, 2))), 0, 0);
  EXPECT(RUN1(op_isfinite, NULL, num1(DT_I32, 2, LIST(1, 2))), 1, 1);
}

/* ---- casts ---------------------------------------------------------------------------------------- */

static Num cast_to(World *w, const char *dtype, Num a) { return RUN1(op_cast, ATTRS(op_cast, "dtype", dtype), a); }

CASE(casts_follow_the_scalar_language)
{
  const double v[] = {-1.7, 1.7, 300, -300, NAN, INFINITY, -INFINITY, 0};
  EXPECT(cast_to(w, "\"int8\"", num1(DT_F32, 8, v)), -1, 1, 127, -128, 0, 127, -128, 0);
  EXPECT(cast_to(w, "\"uint8\"", num1(DT_F32, 8, v)), 0, 1, 255, 0, 0, 255, 0, 0);
  EXPECT(cast_to(w, "\"bool\"", num1(DT_F32, 8, v)), 1, 1, 1, 1, 1, 1, 1, 0);
  EXPECT(cast_to(w, "\"float16\"", num1(DT_F32, 3, LIST(1e6, 0.1, -0.0))), INFINITY, 0.0999755859375, -0.0);
  EXPECT(cast_to(w, "\"float8_e4m3fn\"", num1(DT_F32, 3, LIST(1000, 17, 0.1))), NAN, 16, 0.1015625);
  EXPECT(cast_to(w, "\"int4\"", num1(DT_I32, 3, LIST(7, 8, -9))), 7, -8, 7);
  EXPECT(cast_to(w, "\"int2\"", num1(DT_F32, 4, LIST(5, -5, 1, -2))), 1, -2, 1, -2);
  EXPECT(cast_to(w, "\"uint2\"", num1(DT_I32, 3, LIST(3, 4, -1))), 3, 0, 3);
  EXPECT(cast_to(w, "\"int8\"", num1(DT_I32, 2, LIST(300, -129))), 44, 127);
  EXPECT(cast_to(w, "\"float32\"", num1(DT_BOOL, 2, LIST(0, 1))), 0, 1);
  EXPECT(RUN2(op_cast_like, NULL, num1(DT_F32, 2, LIST(2.5, -2.5)), num0(DT_I32, LIST(0))), 2, -2);
  EXPECT(RUN1(op_reinterpret, ATTRS(op_reinterpret, "dtype", "\"int32\""), num1(DT_F32, 2, LIST(1, -0.0))), 0x3f800000,
         -2147483648.0);
}

CASE(fixed_point_multiplies)
{
  /* 0.75 as a 31-bit fraction is 3 * 2^29; times 2 */
  const void *a = ATTRS(op_fixed_point_multiply, "multiplier", "1610612736", "shift", "1");
  EXPECT(RUN1(op_fixed_point_multiply, a, num1(DT_I32, 4, LIST(2, 3, -3, 1000))), 3, 5, -4, 1500);
}

/* ---- sizes, layouts, refusals --------------------------------------------------------------------- */

CASE(symbolic_sizes_stay)
{
  const Expr *n = size_named(w, "n");
  const Node *x = VARIABLE(DT_F32, n, expr_mul(w->m, n, I(2)));
  const Node *y = op_call1(w->m, &op_exp, x, NULL);
  EXPECT_TYPE(y, "Tensor[(n, n*2), float32]");
  EXPECT_TYPE(op_call1(w->m, &op_cast, y, ATTRS(op_cast, "dtype", "\"int8\"")), "Tensor[(n, n*2), int8]");
  EXPECT_TYPE(op_call1(w->m, &op_isnan, y, NULL), "Tensor[(n, n*2), bool]");
  Num in = num(DT_F32, DIMS(1, 2), LIST(0, 1));
  Num out;
  evaluate_on(w, y, 1, &in, 1, &out);
  expect_shape(&out, DIMS(1, 2));
  expect_close(&out, "exp", 2, LIST(1, 2.718281828), 1e-6);
}

CASE(no_elements)
{
  Num out = RUN1(op_exp, NULL, num(DT_F32, DIMS(0, 3), NULL));
  expect_shape(&out, DIMS(0, 3));
  out = RUN1(op_exp, NULL, num0(DT_F32, LIST(0)));
  expect_shape(&out, 0, NULL);
  EXPECT(out, 1);
}

CASE(layouts_pass_through)
{
  const Type *ty = type_tensor_of(w->m, DT_F32, DIMS(1, 32, 4, 4));
  OpCall c = {.m = w->m, .op = &op_nn_relu, .nargs = 1, .arg = &ty};
  LayoutPair arg = {"NCHW", "NCHW16c"};
  LayoutPair out = {NULL, NULL};
  assert_non_null(op_nn_relu.layout(&c, &arg, &out));
  assert_string_equal(out.from, "NCHW");
  assert_string_equal(out.to, "NCHW16c");
}

SAYS(integers_have_no_logarithm, ERR_TYPE, "log: argument 'data' is int32; a float is needed")
{
  op_call1(w->m, &op_log, VARIABLE(DT_I32, I(2)), NULL);
}
SAYS(floats_have_no_logic, ERR_TYPE, "logical_not: argument 'data' is float32; bool is needed")
{
  op_call1(w->m, &op_logical_not, VARIABLE(DT_F32, I(2)), NULL);
}
SAYS(a_tuple_is_no_tensor, ERR_TYPE,
     "exp (node 'layer1/exp'): argument 'data' is (Tensor[(2), float32],), not a tensor")
{
  const Node *x = VARIABLE(DT_F32, I(2));
  const Node *t = node_tuple(w->m, 1, &x);
  node_call(w->m, &op_exp, 1, &t, NULL, "layer1/exp");
}
SAYS(unknown_rank_is_refused, ERR_UNSUPPORTED, "exp: argument 'data' is Tensor[*, float32]: its rank must be known")
{
  op_call1(w->m, &op_exp, node_var(w->m, "x", type_tensor(w->m, DT_F32, -1, NULL)), NULL);
}
SAYS(widths_must_agree, ERR_TYPE, "reinterpret: float32 and int8 differ in width")
{
  op_call1(w->m, &op_reinterpret, VARIABLE(DT_F32, I(2)), ATTRS(op_reinterpret, "dtype", "\"int8\""));
}
SAYS(cast_needs_a_dtype, ERR_ARGUMENT, "cast: dtype void is no dtype of a tensor")
{
  op_call1(w->m, &op_cast, VARIABLE(DT_F32, I(2)), NULL);
}

int main(void)
{
  op_init();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(float_functions_agree_with_libm),
    cmocka_unit_test(fast_functions_keep_their_bounds),
    cmocka_unit_test(integers_wrap),
    cmocka_unit_test(clip_limits),
    cmocka_unit_test(leaky_relu_slopes),
    cmocka_unit_test(questions_about_floats),
    cmocka_unit_test(casts_follow_the_scalar_language),
    cmocka_unit_test(fixed_point_multiplies),
    cmocka_unit_test(symbolic_sizes_stay),
    cmocka_unit_test(no_elements),
    cmocka_unit_test(layouts_pass_through),
    cmocka_unit_test(integers_have_no_logarithm),
    cmocka_unit_test(floats_have_no_logic),
    cmocka_unit_test(a_tuple_is_no_tensor),
    cmocka_unit_test(unknown_rank_is_refused),
    cmocka_unit_test(widths_must_agree),
    cmocka_unit_test(cast_needs_a_dtype),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
