/* test_broadcast.c: operators of two tensors: values against loops in C, numpy's
 * broadcasting, integers at their edges, sizes known only at run time, refusals. */
#include "op/test_op.h"

/* ---- values ------------------------------------------------------------------------------------- */

static double add_ref(double a, double b) { return a + b; }
static double sub_ref(double a, double b) { return a - b; }
static double mul_ref(double a, double b) { return a * b; }
static double div_ref(double a, double b) { return a / b; }
static double floor_div_ref(double a, double b) { return floor(a / b); }
static double trunc_div_ref(double a, double b) { return trunc(a / b); }
static double floor_mod_ref(double a, double b)
{
  double r = fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? copysign(0, b) : r;
}
static double max_ref(double a, double b) { return isnan(a) || isnan(b) ? NAN : a > b ? a : b; }
static double min_ref(double a, double b) { return isnan(a) || isnan(b) ? NAN : a < b ? a : b; }
static double eq_ref(double a, double b) { return a == b; }
static double ne_ref(double a, double b) { return a != b; }
static double lt_ref(double a, double b) { return a < b; }
static double le_ref(double a, double b) { return a <= b; }
static double gt_ref(double a, double b) { return a > b; }
static double ge_ref(double a, double b) { return a >= b; }

static const double values[] = {-7.5, -2, -1, 0.5, 1, 3, 7.5, NAN, INFINITY, -INFINITY};

/* Every value against every value, as (10, 1) and (10). */
CASE(floats_agree_with_c)
{
  static const struct {
    const OpDef *op;
    double (*ref)(double, double);
  } row[] = {
    {&op_add, add_ref},
    {&op_subtract, sub_ref},
    {&op_multiply, mul_ref},
    {&op_divide, div_ref},
    {&op_floor_divide, floor_div_ref},
    {&op_trunc_divide, trunc_div_ref},
    {&op_mod, fmod},
    {&op_trunc_mod, fmod},
    {&op_floor_mod, floor_mod_ref},
    {&op_power, pow},
    {&op_atan2, atan2},
    {&op_maximum, max_ref},
    {&op_minimum, min_ref},
    {&op_equal, eq_ref},
    {&op_not_equal, ne_ref},
    {&op_less, lt_ref},
    {&op_less_equal, le_ref},
    {&op_greater, gt_ref},
    {&op_greater_equal, ge_ref},
  };
  enum { N = sizeof values / sizeof *values };
  for (int i = 0; i < COUNT(row); i++)
    for (int wide = 0; wide < 2; wide++) {
      DType t = wide ? DT_F64 : DT_F32;
      double want[N * N];
      for (int k = 0; k < N * N; k++) want[k] = row[i].ref(values[k / N], values[k % N]);
      Num in[2] = {num(t, DIMS(N, 1), values), num(t, DIMS(N), values)};
      Num got = run_op(w, row[i].op, NULL, 2, in);
      expect_shape(&got, DIMS(N, N));
      expect_close(&got, row[i].op->name, N * N, want, wide ? 1e-14 : 4e-7);
    }
}

CASE(half_rounds_once)
{
  EXPECT(RUN2(op_add, NULL, num1(DT_F16, 2, LIST(2048, 65504)), num1(DT_F16, 2, LIST(1, 65504))), 2048, INFINITY);
  EXPECT(RUN2(op_multiply, NULL, num1(DT_BF16, 1, LIST(1.0078125)), num1(DT_BF16, 1, LIST(1.0078125))), 1.015625);
}

CASE(integer_division_is_defined_everywhere)
{
  const double a[] = {7, -7, 7, -7, 5, -128, -128};
  const double b[] = {2, 2, -2, -2, 0, -1, 0};
  Num x = num1(DT_I8, 7, a);
  Num y = num1(DT_I8, 7, b);
  EXPECT(RUN2(op_divide, NULL, x, y), 3, -3, -3, 3, 0, -128, 0);
  EXPECT(RUN2(op_trunc_divide, NULL, x, y), 3, -3, -3, 3, 0, -128, 0);
  EXPECT(RUN2(op_floor_divide, NULL, x, y), 3, -4, -4, 3, 0, -128, 0);
  EXPECT(RUN2(op_mod, NULL, x, y), 1, -1, 1, -1, 0, 0, 0);
  EXPECT(RUN2(op_floor_mod, NULL, x, y), 1, 1, -1, -1, 0, 0, 0);
  EXPECT(RUN2(op_divide, NULL, num1(DT_U8, 3, LIST(200, 200, 7)), num1(DT_U8, 3, LIST(0, 255, 2))), 0, 0, 3);
  EXPECT(RUN2(op_floor_mod, NULL, num1(DT_U8, 2, LIST(200, 7)), num1(DT_U8, 2, LIST(0, 4))), 0, 3);
}

CASE(integer_powers)
{
  EXPECT(RUN2(op_power, NULL, num1(DT_I32, 8, LIST(2, 3, -3, 0, 7, 2, 1, -1)),
              num1(DT_I32, 8, LIST(10, 4, 3, 0, 0, 31, -5, -5))),
         1024, 81, -27, 1, 1, -2147483648.0, 1, -1);
  EXPECT(RUN2(op_power, NULL, num1(DT_I64, 4, LIST(3, 10, 2, 5)), num1(DT_I64, 4, LIST(30, 15, 52, -1))),
         205891132094649.0, 1e15, 4503599627370496.0, 0);
  EXPECT(RUN2(op_power, NULL, num1(DT_U8, 3, LIST(2, 3, 255)), num1(DT_U8, 3, LIST(7, 6, 200))), 128, 729 % 256, 1);
}

CASE(shifts_past_the_width)
{
  EXPECT(RUN2(op_left_shift, NULL, num1(DT_U8, 4, LIST(1, 1, 255, 3)), num1(DT_U8, 4, LIST(7, 8, 4, 200))), 128, 0, 240,
         0);
  EXPECT(RUN2(op_right_shift, NULL, num1(DT_U8, 3, LIST(128, 128, 255)), num1(DT_U8, 3, LIST(7, 8, 4))), 1, 0, 15);
  EXPECT(RUN2(op_right_shift, NULL, num1(DT_I32, 4, LIST(-8, -8, 8, 8)), num1(DT_I32, 4, LIST(1, 40, 40, -1))), -4, -1,
         0, 0);
  EXPECT(RUN2(op_left_shift, NULL, num1(DT_I32, 3, LIST(1, 1, 1)), num1(DT_I32, 3, LIST(31, 32, -1))), -2147483648.0, 0,
         0);
}

CASE(bits_and_logic)
{
  Num a = num1(DT_U8, 2, LIST(12, 255));
  Num b = num1(DT_U8, 2, LIST(10, 1));
  EXPECT(RUN2(op_bitwise_and, NULL, a, b), 8, 1);
  EXPECT(RUN2(op_bitwise_or, NULL, a, b), 14, 255);
  EXPECT(RUN2(op_bitwise_xor, NULL, a, b), 6, 254);
  Num p = num1(DT_BOOL, 4, LIST(0, 0, 1, 1));
  Num q = num1(DT_BOOL, 4, LIST(0, 1, 0, 1));
  EXPECT(RUN2(op_logical_and, NULL, p, q), 0, 0, 0, 1);
  EXPECT(RUN2(op_logical_or, NULL, p, q), 0, 1, 1, 1);
  EXPECT(RUN2(op_logical_xor, NULL, p, q), 0, 1, 1, 0);
  EXPECT(RUN2(op_bitwise_xor, NULL, p, q), 0, 1, 1, 0);
  EXPECT(RUN2(op_equal, NULL, p, q), 1, 0, 0, 1);
}

CASE(where_broadcasts_all_three)
{
  Num out = RUN3(op_where, NULL, num(DT_BOOL, DIMS(2, 1), LIST(1, 0)), num(DT_I32, DIMS(3), LIST(1, 2, 3)),
                 num0(DT_I32, LIST(9)));
  expect_shape(&out, DIMS(2, 3));
  EXPECT(out, 1, 2, 3, 9, 9, 9);
}

/* ---- tensors by rule -------------------------------------------------------------------------------- */

CASE(filled_tensors)
{
  Num out = run_op(w, &op_zeros, ATTRS(op_zeros, "shape", "[2, 1]", "dtype", "\"int8\""), 0, NULL);
  expect_shape(&out, DIMS(2, 1));
  assert_true(dtype_eq(out.dtype, DT_I8));
  EXPECT(run_op(w, &op_ones, ATTRS(op_ones, "shape", "[3]"), 0, NULL), 1, 1, 1);
  EXPECT(RUN1(op_full, ATTRS(op_full, "shape", "[2]", "dtype", "\"int32\""), num0(DT_F32, LIST(2.75))), 2, 2);
  EXPECT(RUN1(op_zeros_like, NULL, num1(DT_F32, 2, LIST(NAN, 1))), 0, 0);
  EXPECT(RUN1(op_ones_like, NULL, num1(DT_F32, 2, LIST(NAN, 1))), 1, 1);
  EXPECT(RUN2(op_full_like, NULL, num1(DT_I32, 2, LIST(0, 0)), num0(DT_I32, LIST(7))), 7, 7);
  EXPECT(RUN1(op_dyn_ones, NULL, num1(DT_I64, 2, LIST(1, 2))), 1, 1);
  out = RUN2(op_dyn_full, NULL, num0(DT_F32, LIST(5)), num1(DT_I64, 2, LIST(2, 1)));
  expect_shape(&out, DIMS(2, 1));
  EXPECT(out, 5, 5);
}

CASE(ranges)
{
  EXPECT(RUN3(op_arange, NULL, num0(DT_I32, LIST(2)), num0(DT_I32, LIST(9)), num0(DT_I32, LIST(3))), 2, 5, 8);
  EXPECT(RUN3(op_arange, NULL, num0(DT_I64, LIST(5)), num0(DT_I64, LIST(-1)), num0(DT_I64, LIST(-2))), 5, 3, 1);
  EXPECT(RUN3(op_arange, NULL, num0(DT_F32, LIST(0)), num0(DT_F32, LIST(1)), num0(DT_F32, LIST(0.25))), 0, 0.25, 0.5,
         0.75);
  Num none = RUN3(op_arange, NULL, num0(DT_I32, LIST(2)), num0(DT_I32, LIST(2)), num0(DT_I32, LIST(1)));
  expect_shape(&none, DIMS(0));
  none = RUN3(op_arange, NULL, num0(DT_F32, LIST(2)), num0(DT_F32, LIST(-2)), num0(DT_F32, LIST(1)));
  expect_shape(&none, DIMS(0));
}

CASE(broadcasts_and_their_adjoints)
{
  Num x = num(DT_F32, DIMS(2, 1), LIST(1, 2));
  Num out = RUN1(op_broadcast_to, ATTRS(op_broadcast_to, "shape", "[2, 2, 3]"), x);
  expect_shape(&out, DIMS(2, 2, 3));
  EXPECT(out, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2);
  EXPECT(RUN2(op_dyn_broadcast_to, NULL, x, num1(DT_I64, 2, LIST(2, 2))), 1, 1, 2, 2);
  EXPECT(RUN2(op_broadcast_to_like, NULL, x, num(DT_F32, DIMS(2, 2), LIST(0, 0, 0, 0))), 1, 1, 2, 2);
  Num y = num(DT_F32, DIMS(2, 2, 2), LIST(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT(RUN1(op_collapse_sum_to, ATTRS(op_collapse_sum_to, "shape", "[2, 1]"), y), 1 + 2 + 5 + 6, 3 + 4 + 7 + 8);
  EXPECT(RUN2(op_collapse_sum_like, NULL, y, num1(DT_F32, 2, LIST(0, 0))), 1 + 3 + 5 + 7, 2 + 4 + 6 + 8);
  EXPECT(RUN1(op_collapse_sum_to, ATTRS(op_collapse_sum_to, "shape", "[2, 2, 2]"), y), 1, 2, 3, 4, 5, 6, 7, 8);
}

/* ---- sizes known only at run time -------------------------------------------------------------------- */

CASE(symbolic_broadcasts)
{
  Module *m = w->m;
  const Expr *n = size_named(w, "n");
  const Expr *k = size_named(w, "k");
  const Node *a = VARIABLE(DT_F32, n, I(3));
  const Node *b = VARIABLE(DT_F32, I(3));
  const Node *c = VARIABLE(DT_F32, I(1), I(3));
  const Node *d = VARIABLE(DT_F32, k, I(3));
  EXPECT_TYPE(op_call2(m, &op_add, a, b, NULL), "Tensor[(n, 3), float32]");
  EXPECT_TYPE(op_call2(m, &op_less, a, c, NULL), "Tensor[(n, 3), bool]");
  const Node *sum = op_call2(m, &op_add, a, d, NULL);
  assert_true(op_call2(m, &op_add, sum, a, NULL)->type->shape[0] == sum->type->shape[0]);
  assert_true(op_call2(m, &op_add, d, sum, NULL)->type->shape[0] == sum->type->shape[0]);
  assert_true(op_call2(m, &op_add, d, a, NULL)->type->shape[0] == sum->type->shape[0]);
  Num x = num(DT_F32, DIMS(2, 3), LIST(1, 2, 3, 4, 5, 6));
  Num y = num(DT_F32, DIMS(1, 3), LIST(10, 20, 30));
  Num out;
  evaluate_on(w, sum, 2, (const Num[]){x, y}, 1, &out);
  EXPECT(out, 11, 22, 33, 14, 25, 36);
  evaluate_on(w, sum, 2, (const Num[]){y, x}, 1, &out);
  EXPECT(out, 11, 22, 33, 14, 25, 36);
}

/* The size of n against k: the one that is not 1, or -1. */
static int64_t size_of(World *w, const Expr *e, const Expr *n, int64_t nv, const Expr *k, int64_t kv)
{
  EvalEnv env = {.m = w->m, .arena = scratch(w->ctx)};
  expr_eval_bind(&env, n->u.var, value_int(DT_I32, nv));
  expr_eval_bind(&env, k->u.var, value_int(DT_I32, kv));
  return expr_eval(&env, e, 0).i;
}

CASE(sizes_that_do_not_fit_are_negative)
{
  const Expr *n = size_named(w, "n");
  const Expr *k = size_named(w, "k");
  const Expr *both = op_call2(w->m, &op_add, VARIABLE(DT_F32, n), VARIABLE(DT_F32, k), NULL)->type->shape[0];
  static const int64_t rows[][3] = {{4, 4, 4}, {1, 5, 5},  {5, 1, 5},  {0, 1, 0},
                                    {1, 0, 0}, {2, 3, -1}, {0, 2, -1}, {1, 1, 1}};
  for (int i = 0; i < COUNT(rows); i++) assert_int_equal(size_of(w, both, n, rows[i][0], k, rows[i][1]), rows[i][2]);
  const Expr *four = op_call2(w->m, &op_add, VARIABLE(DT_F32, n), VARIABLE(DT_F32, I(4)), NULL)->type->shape[0];
  assert_int_equal(size_of(w, four, n, 4, k, 0), 4);
  assert_int_equal(size_of(w, four, n, 1, k, 0), 4);
  assert_int_equal(size_of(w, four, n, 3, k, 0), -1);
}

/* The same tensors through opdef_compute: a kernel over symbolic shapes reads the right elements. */
CASE(one_kernel_serves_all_sizes)
{
  const Expr *n = size_named(w, "n");
  const Expr *k = size_named(w, "k");
  const Node *call = op_call2(w->m, &op_subtract, VARIABLE(DT_F32, n), VARIABLE(DT_F32, k), NULL);
  const Tensor *in[2] = {te_placeholder(w->m, "a", DT_F32, 1, &n), te_placeholder(w->m, "b", DT_F32, 1, &k)};
  const Tensor *out;
  opdef_compute(w->m, call, 2, in, &out);
  float a[3] = {1, 2, 3};
  float b[1] = {10};
  float r[3];
  int64_t three = 3;
  int64_t one = 1;
  TirArg v[3] = {{.data = a, .dtype = DT_F32, .ndim = 1, .shape = &three},
                 {.data = b, .dtype = DT_F32, .ndim = 1, .shape = &one},
                 {.data = r, .dtype = DT_F32, .ndim = 1, .shape = &three}};
  te_evaluate(w->ctx, 3, (const TeArg[]){{.tensor = in[0]}, {.tensor = in[1]}, {.tensor = out}}, v);
  for (int i = 0; i < 3; i++) assert_float_equal(r[i], a[i] - 10, 0);
}

/* ---- layouts -------------------------------------------------------------------------------------------- */

static const void *lay(World *w, int nb, const int64_t *b, LayoutPair *arg, LayoutPair *out)
{
  const Type *ty[2] = {type_tensor_of(w->m, DT_F32, DIMS(2, 32, 4, 5)), type_tensor_of(w->m, DT_F32, nb, b)};
  OpCall *c = arena_new_of(w->m->arena, OpCall);
  *c = (OpCall){.m = w->m, .op = &op_add, .nargs = 2, .arg = arena_copy(w->m->arena, ty, sizeof ty)};
  arg[0] = (LayoutPair){"NCHW", "NCHW16c"};
  arg[1] = (LayoutPair){NULL, NULL};
  return op_add.layout(c, arg, out);
}

CASE(layouts_of_broadcasts)
{
  LayoutPair arg[2], out;
  assert_non_null(lay(w, DIMS(32, 1, 1), arg, &out));
  assert_string_equal(arg[1].from, "CHW");
  assert_string_equal(arg[1].to, "CHW16c");
  assert_string_equal(out.to, "NCHW16c");
  assert_non_null(lay(w, DIMS(2, 32, 4, 5), arg, &out));
  assert_string_equal(arg[1].to, "NCHW16c");
  assert_non_null(lay(w, 0, NULL, arg, &out));
  assert_null(arg[1].to);
  assert_null(lay(w, DIMS(4, 5), arg, &out)); /* the inner channels would have to be added behind */
  assert_non_null(lay(w, DIMS(1, 1, 4, 5), arg, &out));
  assert_string_equal(arg[1].to, "NCHW1c"); /* one channel comes in blocks of 1 */
}

/* ---- refusals --------------------------------------------------------------------------------------------- */

SAYS(dtypes_must_agree, ERR_TYPE, "add: argument 'lhs' is float32, 'rhs' is int32; cast one of them")
{
  op_call2(w->m, &op_add, VARIABLE(DT_F32, I(2)), VARIABLE(DT_I32, I(2)), NULL);
}
SAYS(shapes_must_broadcast, ERR_SHAPE,
     "add: dimensions 3 and 4 do not broadcast: 'lhs' is Tensor[(2, 3), float32], 'rhs' is Tensor[(4), float32]")
{
  op_call2(w->m, &op_add, VARIABLE(DT_F32, I(2), I(3)), VARIABLE(DT_F32, I(4)), NULL);
}
SAYS(bool_is_no_number, ERR_TYPE, "add: argument 'lhs' is bool; a number is needed (cast it first)")
{
  op_call2(w->m, &op_add, VARIABLE(DT_BOOL, I(2)), VARIABLE(DT_BOOL, I(2)), NULL);
}
SAYS(a_step_of_zero, ERR_ARGUMENT, "arange: the step is 0")
{
  op_call3(w->m, &op_arange, op_number(w->m, DT_I32, 0), op_number(w->m, DT_I32, 3), op_number(w->m, DT_I32, 0), NULL);
}
SAYS(broadcast_to_a_shape_that_does_not_fit, ERR_SHAPE,
     "broadcast_to: argument 'data' is Tensor[(2), float32]: it does not broadcast to Tensor[(4, 3), float32]")
{
  op_call1(w->m, &op_broadcast_to, VARIABLE(DT_F32, I(2)), ATTRS(op_broadcast_to, "shape", "[4, 3]"));
}
SAYS(a_count_of_arguments, ERR_ARGUMENT, "add: takes 2 arguments (lhs, rhs), 1 given")
{
  op_call1(w->m, &op_add, VARIABLE(DT_F32, I(2)), NULL);
}

int main(void)
{
  op_init();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(floats_agree_with_c),
    cmocka_unit_test(half_rounds_once),
    cmocka_unit_test(integer_division_is_defined_everywhere),
    cmocka_unit_test(integer_powers),
    cmocka_unit_test(shifts_past_the_width),
    cmocka_unit_test(bits_and_logic),
    cmocka_unit_test(where_broadcasts_all_three),
    cmocka_unit_test(filled_tensors),
    cmocka_unit_test(ranges),
    cmocka_unit_test(broadcasts_and_their_adjoints),
    cmocka_unit_test(symbolic_broadcasts),
    cmocka_unit_test(sizes_that_do_not_fit_are_negative),
    cmocka_unit_test(one_kernel_serves_all_sizes),
    cmocka_unit_test(layouts_of_broadcasts),
    cmocka_unit_test(dtypes_must_agree),
    cmocka_unit_test(shapes_must_broadcast),
    cmocka_unit_test(bool_is_no_number),
    cmocka_unit_test(a_step_of_zero),
    cmocka_unit_test(broadcast_to_a_shape_that_does_not_fit),
    cmocka_unit_test(a_count_of_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
