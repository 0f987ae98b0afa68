/* test_nn_dense.c: matrix products against plain loops, layout_transform, layout rules, and
 * what the nn family refuses. */
#include "op/test_nn.h"

/* c[i, j] = sum of a[i, k] * b[k, j] with the strides of each. */
static void plain_product(float *c, const float *a, const float *b, int n, int m, int k, int ai, int ak, int bk, int bj)
{
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++)
      for (int x = 0; x < k; x++) c[i * m + j] += a[i * ai + x * ak] * b[x * bk + j * bj];
}

CASE(dense_values)
{
  Array x = NUMBERS(1, 3, 5);
  Array k = NUMBERS(2, 4, 5);
  Array want = ZEROS(3, 4);
  Array y = RUN(op_nn_dense, NULL, x, k);
  plain_product(want.f, x.f, k.f, 3, 4, 5, 5, 1, 1, 5);
  SHAPE_IS(y, 3, 4);
  assert_close(&y, want.f, 1e-6f);
  Array x3 = NUMBERS(1, 1, 3, 5);
  Array y3 = RUN(op_nn_dense, ATTRS(op_nn_dense, "units", "4"), x3, k);
  SHAPE_IS(y3, 1, 3, 4);
  assert_close(&y3, want.f, 1e-6f);
}

CASE(matmul_values)
{
  Array a = NUMBERS(1, 3, 5);
  Array at = NUMBERS(1, 5, 3);
  Array b = NUMBERS(2, 5, 4);
  Array bt = NUMBERS(2, 4, 5);
  Array want = ZEROS(3, 4);
  Array other = ZEROS(3, 4);
  Array nn = RUN(op_nn_matmul, NULL, a, b);
  Array tt = RUN(op_nn_matmul, ATTRS(op_nn_matmul, "transpose_a", "True", "transpose_b", "True"), at, bt);
  plain_product(want.f, a.f, b.f, 3, 4, 5, 5, 1, 4, 1);
  plain_product(other.f, at.f, bt.f, 3, 4, 5, 1, 3, 1, 5);
  assert_close(&nn, want.f, 1e-6f);
  assert_close(&tt, other.f, 1e-6f);
}

CASE(batch_matmul_values)
{
  Array a = NUMBERS(1, 2, 3, 5);
  Array b = NUMBERS(2, 2, 4, 5);
  Array one = NUMBERS(3, 1, 5, 4);
  Array want = ZEROS(2, 3, 4);
  Array shared = ZEROS(2, 3, 4);
  Array y = RUN(op_nn_batch_matmul, NULL, a, b);
  Array z = RUN(op_nn_batch_matmul, ATTRS(op_nn_batch_matmul, "transpose_b", "False"), a, one);
  for (int i = 0; i < 2; i++) {
    plain_product(want.f + i * 12, a.f + i * 15, b.f + i * 20, 3, 4, 5, 5, 1, 1, 5);
    plain_product(shared.f + i * 12, a.f + i * 15, one.f, 3, 4, 5, 5, 1, 4, 1);
  }
  assert_close(&y, want.f, 1e-6f);
  assert_close(&z, shared.f, 1e-6f);
}

CASE(batch_matmul_transposed)
{
  Array a = NUMBERS(1, 1, 5, 3);
  Array b = NUMBERS(2, 2, 5, 4);
  Array want = ZEROS(2, 3, 4);
  Array y = RUN(op_nn_batch_matmul, ATTRS(op_nn_batch_matmul, "transpose_a", "True", "transpose_b", "False"), a, b);
  for (int i = 0; i < 2; i++) plain_product(want.f + i * 12, a.f, b.f + i * 20, 3, 4, 5, 1, 3, 4, 1);
  SHAPE_IS(y, 2, 3, 4);
  assert_close(&y, want.f, 1e-6f);
}

CASE(dense_pack_is_dense)
{
  Array x = NUMBERS(1, 3, 5);
  Array k = NUMBERS(2, 6, 5);
  Array packed =
      RUN(op_layout_transform, ATTRS(op_layout_transform, "src_layout", "\"NC\"", "dst_layout", "\"NC4n\""), k);
  SHAPE_IS(packed, 2, 5, 4);
  Array y = RUN(op_nn_contrib_dense_pack, ATTRS(op_nn_contrib_dense_pack, "weight_layout", "\"NC4n\"", "units", "6"), x,
                packed);
  Array want = RUN(op_nn_dense, NULL, x, k);
  SHAPE_IS(y, 3, 6);
  assert_close(&y, want.f, 0);
}

CASE(dense_of_integers)
{
  Array x = integers(w, DT_U8, DIMS(1, 2), (int64_t[]){200, 255});
  Array k = integers(w, DT_I8, DIMS(1, 2), (int64_t[]){-128, 127});
  Array y = RUN(op_nn_dense, ATTRS(op_nn_dense, "out_dtype", "\"int32\""), x, k);
  assert_int_equal(y.i[0], 200 * -128 + 255 * 127);
}

/* ---- layout_transform ------------------------------------------------------------------------ */

static Array relaid(World *w, Array x, const char *from, const char *to)
{
  return RUN(op_layout_transform, ATTRS(op_layout_transform, "src_layout", from, "dst_layout", to), x);
}

CASE(layout_blocks)
{
  Array x = NUMBERS(1, 1, 6, 2, 3);
  Array y = relaid(w, x, "NCHW", "NCHW4c");
  SHAPE_IS(y, 1, 2, 2, 3, 4);
  for (int c = 0; c < 8; c++)
    for (int p = 0; p < 6; p++) {
      float want = c < 6 ? x.f[c * 6 + p] : 0;
      assert_true(y.f[(c / 4 * 6 + p) * 4 + c % 4] == want);
    }
}

CASE(layout_two_blocks)
{
  Array x = NUMBERS(1, 4, 8, 1, 1);
  Array y = relaid(w, x, "OIHW", "OIHW2i4o2i");
  SHAPE_IS(y, 1, 2, 1, 1, 2, 4, 2);
  for (int o = 0; o < 4; o++)
    for (int i = 0; i < 8; i++) assert_true(y.f[((i / 4 * 2 + i % 4 / 2) * 4 + o) * 2 + i % 2] == x.f[o * 8 + i]);
  Array back = relaid(w, y, "OIHW2i4o2i", "OIHW");
  assert_close(&back, x.f, 0);
}

CASE(layout_moves)
{
  Array x = NUMBERS(1, 2, 3, 2, 2);
  Array y = relaid(w, x, "NCHW", "NHWC");
  SHAPE_IS(y, 2, 2, 2, 3);
  for (int n = 0; n < 2; n++)
    for (int c = 0; c < 3; c++)
      for (int p = 0; p < 4; p++) assert_true(y.f[(n * 4 + p) * 3 + c] == x.f[(n * 3 + c) * 4 + p]);
}

/* ---- layout rules ------------------------------------------------------------------------------ */

static const void *rule(World *w, const OpDef *op, const void *attrs, const Type *ty, LayoutPair *arg, LayoutPair *out)
{
  OpCall c = {.m = w->m, .op = op, .attrs = attrs, .nargs = 1, .arg = (const Type *[]){ty}};
  return op->layout(&c, arg, out);
}

CASE(layout_rules)
{
  LayoutPair arg[2] = {{"NCHW", "NCHW8c"}};
  LayoutPair out[1] = {{NULL, NULL}};
  const Pool2DAttrs *pool = rule(w, &op_nn_max_pool2d, attrs_new(w->m, &Pool2D_attrs), TENSOR(1, 8, 4, 4), arg, out);
  assert_string_equal(pool->layout, "NCHW8c");
  assert_string_equal(out[0].to, "NCHW8c");
  arg[0].to = "NCHW2h";
  assert_null(rule(w, &op_nn_max_pool2d, attrs_new(w->m, &Pool2D_attrs), TENSOR(1, 8, 4, 4), arg, out));
  arg[0].to = "NHWC";
  const SoftmaxAttrs *softmax =
      rule(w, &op_nn_softmax, ATTRS(op_nn_softmax, "axis", "1"), TENSOR(1, 8, 4, 4), arg, out);
  assert_int_equal(softmax->axis, 3);
  const PadAttrs *pad =
      rule(w, &op_nn_pad, ATTRS(op_nn_pad, "pad_width", "[0, 0, 1, 2, 3, 4, 5, 6]"), TENSOR(1, 8, 4, 4), arg, out);
  const int64_t want[] = {0, 0, 3, 4, 5, 6, 1, 2};
  assert_memory_equal(pad->pad_width.v, want, sizeof want);
  arg[0].to = "NCHW8c";
  assert_null(rule(w, &op_nn_pad, pad, TENSOR(1, 8, 4, 4), arg, out));
}

/* ---- sizes known at run time ---------------------------------------------------------------------- */

CASE(symbolic_types)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Expr *k = var_new(w->m, "k", DT_I32, VAR_SIZE)->expr;
  const Type *x = type_tensor(w->m, DT_F32, 2, (const Expr *[]){n, I(64)});
  const Type *v = type_tensor(w->m, DT_F32, 2, (const Expr *[]){n, k});
  assert_string_equal(TYPE_TEXT(TYPED(op_nn_dense, NULL, x, TENSOR(10, 64))), "Tensor[(n, 10), float32]");
  /* nobody knows yet whether k is 64: the size is negative when it is not */
  const Type *y = TYPED(op_nn_dense, NULL, v, TENSOR(10, 64));
  assert_true(y->shape[1]->kind != E_INT);
  const Type *image = type_tensor(w->m, DT_F32, 4, (const Expr *[]){n, I(3), k, k});
  assert_string_equal(
      TYPE_TEXT(TYPED(op_nn_max_pool2d, ATTRS(op_nn_max_pool2d, "pool_size", "[2, 2]", "strides", "[2, 2]"), image)),
      "Tensor[(n, 3, k//2, k//2), float32]");
  assert_string_equal(TYPE_TEXT(TYPED(op_nn_global_avg_pool2d, NULL, image)), "Tensor[(n, 3, 1, 1), float32]");
  assert_string_equal(TYPE_TEXT(TYPED(op_nn_batch_flatten, NULL, TENSOR(2, 3, 4, 5))), "Tensor[(2, 60), float32]");
}

/* ---- refusals ---------------------------------------------------------------------------------------- */

REFUSED(dense_depth, ERR_SHAPE, "nn.dense: (2, 5) and (3, 4) do not multiply: 5 and 4 are summed over")
{
  TYPED(op_nn_dense, NULL, TENSOR(2, 5), TENSOR(3, 4));
}
REFUSED(dense_units, ERR_SHAPE, "nn.dense: units is 7, (3, 5) has 3")
{
  TYPED(op_nn_dense, ATTRS(op_nn_dense, "units", "7"), TENSOR(2, 5), TENSOR(3, 5));
}
REFUSED(batch_differs, ERR_SHAPE, "nn.batch_matmul: the batches of (2, 3, 4) and (3, 3, 4) differ: 2 and 3")
{
  TYPED(op_nn_batch_matmul, NULL, TENSOR(2, 3, 4), TENSOR(3, 3, 4));
}
REFUSED(bias_length, ERR_SHAPE, "nn.bias_add: bias (3,) does not run along axis 1 of data (1, 4, 2, 2)")
{
  TYPED(op_nn_bias_add, NULL, TENSOR(1, 4, 2, 2), TENSOR(3));
}
REFUSED(softmax_axis, ERR_SHAPE, "nn.softmax: axis 2 is outside of a tensor of 2 dimensions")
{
  TYPED(op_nn_softmax, ATTRS(op_nn_softmax, "axis", "2"), TENSOR(1, 4));
}
REFUSED(softmax_of_integers, ERR_TYPE, "nn.softmax: data is int32, a float is wanted")
{
  TYPED(op_nn_softmax, NULL, type_tensor_of(w->m, DT_I32, DIMS(1, 4)));
}
REFUSED(pool_kernel, ERR_SHAPE, "nn.avg_pool2d: dimension 3 of data is 2 and 2 with padding, the kernel spans 3")
{
  TYPED(op_nn_avg_pool2d, ATTRS(op_nn_avg_pool2d, "pool_size", "[3, 3]"), TENSOR(1, 1, 4, 2));
}
REFUSED(pad_count, ERR_ARGUMENT,
        "nn.pad: pad_width has 2 numbers; data (2, 3) wants 4, before and after for each dimension")
{
  TYPED(op_nn_pad, ATTRS(op_nn_pad, "pad_width", "[1, 1]"), TENSOR(2, 3));
}
REFUSED(pad_too_much, ERR_SHAPE, "nn.pad: pads (-2, -2) take more off dimension 1 of (2, 3) than it has")
{
  TYPED(op_nn_pad, ATTRS(op_nn_pad, "pad_width", "[0, 0, -2, -2]"), TENSOR(2, 3));
}
REFUSED(no_way, ERR_ARGUMENT, "layout_transform: there is no way from 'NCHW' to 'NCD': their dimensions differ")
{
  TYPED(op_layout_transform, ATTRS(op_layout_transform, "src_layout", "\"NCHW\"", "dst_layout", "\"NCD\""),
        TENSOR(1, 2, 3, 4));
}
REFUSED(batch_norm_length, ERR_SHAPE, "nn.batch_norm: beta (3,) does not run along axis 1 of data (1, 4, 2, 2)")
{
  TYPED(op_nn_batch_norm, NULL, TENSOR(1, 4, 2, 2), TENSOR(4), TENSOR(3), TENSOR(4), TENSOR(4));
}
REFUSED(lstm_weight, ERR_SHAPE, "nn.lstm: weight (1, 12, 5) has to be (1, 12, 2)")
{
  TYPED(op_nn_lstm, ATTRS(op_nn_lstm, "hidden_size", "3"), TENSOR(4, 1, 2), TENSOR(1, 12, 5), TENSOR(1, 12, 3));
}
REFUSED(transpose_channels, ERR_SHAPE, "nn.conv2d_transpose: data has 3 channels, weight (4, 2, 3, 3) wants 4")
{
  TYPED(op_nn_conv2d_transpose, NULL, TENSOR(1, 3, 5, 5), TENSOR(4, 2, 3, 3));
}
REFUSED(resize_nothing, ERR_ARGUMENT, "image.resize: one of sizes and scales is wanted")
{
  TYPED(op_image_resize, NULL, TENSOR(1, 3, 5, 5));
}
REFUSED(winograd_tile, ERR_UNSUPPORTED,
        "nn.contrib_conv2d_winograd_weight_transform: tile_size 9 with a kernel of 3 is not supported")
{
  TYPED(op_nn_contrib_conv2d_winograd_weight_transform,
        ATTRS(op_nn_contrib_conv2d_winograd_weight_transform, "tile_size", "9"), TENSOR(1, 3, 3, 3));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(dense_values),
    cmocka_unit_test(matmul_values),
    cmocka_unit_test(batch_matmul_values),
    cmocka_unit_test(batch_matmul_transposed),
    cmocka_unit_test(dense_pack_is_dense),
    cmocka_unit_test(dense_of_integers),
    cmocka_unit_test(layout_blocks),
    cmocka_unit_test(layout_two_blocks),
    cmocka_unit_test(layout_moves),
    cmocka_unit_test(layout_rules),
    cmocka_unit_test(symbolic_types),
    cmocka_unit_test(dense_depth),
    cmocka_unit_test(dense_units),
    cmocka_unit_test(batch_differs),
    cmocka_unit_test(bias_length),
    cmocka_unit_test(softmax_axis),
    cmocka_unit_test(softmax_of_integers),
    cmocka_unit_test(pool_kernel),
    cmocka_unit_test(pad_count),
    cmocka_unit_test(pad_too_much),
    cmocka_unit_test(no_way),
    cmocka_unit_test(batch_norm_length),
    cmocka_unit_test(lstm_weight),
    cmocka_unit_test(transpose_channels),
    cmocka_unit_test(resize_nothing),
    cmocka_unit_test(winograd_tile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
