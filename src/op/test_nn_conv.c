/* test_nn_conv.c: convolutions against plain loops. */
#include "op/test_nn.h"

typedef struct Plain {
  int64_t stride[2], before[2], after[2], dilation[2], groups;
} Plain;

/* data NCHW, weight OIHW, written straight from the definition. */
static Array plain_conv2d(World *w, const Array *x, const Array *k, const Plain *p)
{
  int64_t out[4] = {x->shape[0], k->shape[0], 0, 0};
  int64_t ipg = k->shape[1];
  int64_t opg = k->shape[0] / p->groups;
  for (int d = 0; d < 2; d++)
    out[2 + d] =
        (x->shape[2 + d] + p->before[d] + p->after[d] - (k->shape[2 + d] - 1) * p->dilation[d] - 1) / p->stride[d] + 1;
  Array y = array_of(w, DT_F32, 4, out);
  float *to = y.f;
  for (int64_t n = 0; n < out[0]; n++)
    for (int64_t o = 0; o < out[1]; o++)
      for (int64_t r = 0; r < out[2]; r++)
        for (int64_t c = 0; c < out[3]; c++, to++)
          for (int64_t i = 0; i < ipg; i++)
            for (int64_t a = 0; a < k->shape[2]; a++)
              for (int64_t b = 0; b < k->shape[3]; b++) {
                int64_t h = r * p->stride[0] + a * p->dilation[0] - p->before[0];
                int64_t v = c * p->stride[1] + b * p->dilation[1] - p->before[1];
                if (h < 0 || v < 0 || h >= x->shape[2] || v >= x->shape[3]) continue;
                int64_t ch = o / opg * ipg + i;
                *to += x->f[((n * x->shape[1] + ch) * x->shape[2] + h) * x->shape[3] + v] *
                       k->f[((o * ipg + i) * k->shape[2] + a) * k->shape[3] + b];
              }
  return y;
}

static void *conv_attrs(World *w, const Plain *p)
{
  Conv2DAttrs *a = attrs_new(w->m, &Conv2D_attrs);
  attrs_set_ints(w->m, &Conv2D_attrs, a, "strides", 2, p->stride);
  attrs_set_ints(w->m, &Conv2D_attrs, a, "padding", 4,
                 (int64_t[]){p->before[0], p->before[1], p->after[0], p->after[1]});
  attrs_set_ints(w->m, &Conv2D_attrs, a, "dilation", 2, p->dilation);
  a->groups = p->groups;
  return a;
}

static void check_conv2d(World *w, const Array *x, const Array *k, Plain p)
{
  Array want = plain_conv2d(w, x, k, &p);
  Array got = RUN(op_nn_conv2d, conv_attrs(w, &p), *x, *k);
  assert_shape(&got, 4, want.shape);
  assert_close(&got, want.f, 1e-5f);
}

CASE(conv2d_values)
{
  Array x = NUMBERS(1, 2, 4, 7, 6);
  Array k = NUMBERS(2, 6, 4, 3, 2);
  Array g = NUMBERS(3, 6, 2, 3, 3);
  Array dw = NUMBERS(4, 8, 1, 3, 3);
  check_conv2d(w, &x, &k, (Plain){{1, 1}, {0, 0}, {0, 0}, {1, 1}, 1});
  check_conv2d(w, &x, &k, (Plain){{2, 1}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv2d(w, &x, &k, (Plain){{1, 3}, {2, 0}, {0, 1}, {2, 3}, 1});
  check_conv2d(w, &x, &g, (Plain){{2, 2}, {1, 1}, {1, 1}, {1, 1}, 2});
  check_conv2d(w, &x, &dw, (Plain){{1, 1}, {1, 1}, {1, 1}, {1, 1}, 4});
}

/* layout_transform brings operands there; the result must come back the same. */
static Array relaid(World *w, Array x, const char *from, const char *to)
{
  return RUN(op_layout_transform, ATTRS(op_layout_transform, "src_layout", from, "dst_layout", to), x);
}

static void check_layouts(World *w, int64_t groups, const Array *k, const char *data, const char *kernel,
                          const char *out, const OpDef *op)
{
  Plain p = {{2, 1}, {1, 1}, {1, 1}, {1, 1}, groups};
  Array x = NUMBERS(1, 1, 8, 5, 6);
  Array want = plain_conv2d(w, &x, k, &p);
  Conv2DAttrs *a = conv_attrs(w, &p);
  a->data_layout = data;
  a->kernel_layout = kernel;
  a->out_layout = out;
  Array arg[] = {relaid(w, x, "NCHW", data), relaid(w, *k, "OIHW", kernel)};
  Array got = run_op(w, op, a, 2, arg);
  Array back = relaid(w, got, *out ? out : data, "NCHW");
  assert_shape(&back, 4, want.shape);
  assert_close(&back, want.f, 1e-5f);
}

CASE(conv2d_layouts)
{
  Array k = NUMBERS(2, 8, 8, 3, 3);
  Array dw = NUMBERS(3, 8, 1, 3, 3);
  Array g = NUMBERS(4, 8, 4, 3, 3);
  check_layouts(w, 1, &k, "NHWC", "HWIO", "", &op_nn_conv2d);
  check_layouts(w, 1, &k, "NCHW4c", "OIHW4i4o", "", &op_nn_contrib_conv2d_nchwc);
  check_layouts(w, 1, &k, "NCHW4c", "OIHW4i8o", "NCHW8c", &op_nn_contrib_conv2d_nchwc);
  check_layouts(w, 1, &k, "NCHW", "OIHW8o", "NCHW8c", &op_nn_conv2d);
  check_layouts(w, 8, &dw, "NCHW4c", "OIHW1i4o", "", &op_nn_contrib_depthwise_conv2d_nchwc);
  check_layouts(w, 8, &dw, "NHWC", "HWOI", "", &op_nn_conv2d);
  check_layouts(w, 2, &g, "NCHW4c", "OIHW4i4o", "", &op_nn_contrib_conv2d_nchwc);
}

CASE(conv1d_values)
{
  /* (1, 2, 3) over (1, 2, 3, 4), one zero before and after */
  Array x = floats(w, DIMS(1, 1, 4), (float[]){1, 2, 3, 4});
  Array k = floats(w, DIMS(1, 1, 3), (float[]){1, 2, 3});
  Array y = RUN(op_nn_conv1d, ATTRS(op_nn_conv1d, "padding", "[1]"), x, k);
  SHAPE_IS(y, 1, 1, 4);
  assert_close(&y, (float[]){8, 14, 20, 11}, 0);
}

CASE(conv3d_is_a_sum_of_conv2d)
{
  Array x = NUMBERS(1, 1, 2, 3, 4, 4);
  Array k = NUMBERS(2, 3, 2, 2, 3, 3);
  Array y = RUN(op_nn_conv3d, ATTRS(op_nn_conv3d, "padding", "[0, 1, 1]"), x, k);
  SHAPE_IS(y, 1, 3, 2, 4, 4);
  Plain p = {{1, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
  Array want = ZEROS(3, 2, 4, 4);
  for (int z = 0; z < 2; z++)
    for (int a = 0; a < 2; a++) {
      Array xs = ZEROS(1, 2, 4, 4);
      Array ks = ZEROS(3, 2, 3, 3);
      for (int c = 0; c < 2; c++) memcpy(xs.f + c * 16, x.f + (c * 3 + z + a) * 16, 16 * sizeof(float));
      for (int i = 0; i < 6; i++) memcpy(ks.f + i * 9, k.f + (i * 2 + a) * 9, 9 * sizeof(float));
      Array part = plain_conv2d(w, &xs, &ks, &p);
      for (int o = 0; o < 3; o++)
        for (int i = 0; i < 16; i++) want.f[(o * 2 + z) * 16 + i] += part.f[o * 16 + i];
    }
  assert_close(&y, want.f, 1e-5f);
}

CASE(conv2d_of_integers)
{
  Array x = integers(w, DT_U8, DIMS(1, 1, 2, 2), (int64_t[]){255, 255, 255, 255});
  Array k = integers(w, DT_I8, DIMS(1, 1, 2, 2), (int64_t[]){127, -1, 127, 1});
  Array y = RUN(op_nn_conv2d, ATTRS(op_nn_conv2d, "out_dtype", "\"int32\""), x, k);
  assert_int_equal(y.i[0], 255 * 254);
}

CASE(conv2d_symbolic)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Expr *h = var_new(w->m, "h", DT_I32, VAR_SIZE)->expr;
  const Type *x = type_tensor(w->m, DT_F32, 4, (const Expr *[]){n, I(3), h, I(224)});
  const Type *y =
      TYPED(op_nn_conv2d, ATTRS(op_nn_conv2d, "strides", "[2, 2]", "padding", "[3, 3]"), x, TENSOR(64, 3, 7, 7));
  assert_true(y->shape[0] == n);
  assert_string_equal(TYPE_TEXT(y), "Tensor[(n, 64, (h + 1)//2, 112), float32]");
}

CASE(conv2d_symbolic_values)
{
  Array x = NUMBERS(1, 2, 2, 5, 4);
  Array k = NUMBERS(2, 3, 2, 3, 3);
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Expr *h = var_new(w->m, "h", DT_I32, VAR_SIZE)->expr;
  const Type *ty = type_tensor(w->m, DT_F32, 4, (const Expr *[]){n, I(2), h, I(4)});
  Plain p = {{2, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
  op_init();
  const Node *arg[] = {node_var(w->m, "x", ty), node_var(w->m, "k", TENSOR(3, 2, 3, 3))};
  const Node *call = node_call(w->m, &op_nn_conv2d, 2, arg, conv_attrs(w, &p), NULL);
  Array in[] = {x, k};
  Array got;
  Array want = plain_conv2d(w, &x, &k, &p);
  evaluate(w, call, 2, in, 1, &got);
  assert_shape(&got, 4, want.shape);
  assert_close(&got, want.f, 1e-5f);
}

/* ---- Winograd ------------------------------------------------------------------------------ */

static void check_winograd(World *w, int tile, int64_t r, int64_t height, int64_t width, int64_t pad)
{
  Array x = NUMBERS(1, 2, 3, height, width);
  Array k = NUMBERS(2, 4, 3, r, r);
  Plain p = {{1, 1}, {pad, pad}, {pad, pad}, {1, 1}, 1};
  char size[8], ksize[16], padding[16];
  snprintf(size, sizeof size, "%d", tile);
  snprintf(ksize, sizeof ksize, "[%d, %d]", (int)r, (int)r);
  snprintf(padding, sizeof padding, "[%d, %d]", (int)pad, (int)pad);
  Array u = RUN(op_nn_contrib_conv2d_winograd_weight_transform,
                ATTRS(op_nn_contrib_conv2d_winograd_weight_transform, "tile_size", size), k);
  SHAPE_IS(u, tile + r - 1, tile + r - 1, 4, 3);
  Array y = RUN(op_nn_contrib_conv2d_winograd_without_weight_transform,
                ATTRS(op_nn_contrib_conv2d_winograd_without_weight_transform, "tile_size", size, "padding", padding,
                      "kernel_size", ksize),
                x, u);
  Array want = plain_conv2d(w, &x, &k, &p);
  assert_shape(&y, 4, want.shape);
  assert_close(&y, want.f, 2e-4f);
}

CASE(winograd_is_conv2d)
{
  check_winograd(w, 2, 3, 5, 6, 1);
  check_winograd(w, 4, 3, 6, 5, 0);
  check_winograd(w, 6, 3, 7, 6, 1);
  check_winograd(w, 2, 5, 6, 6, 2);
}

/* F(2, 3)'s data transform is the one of Winograd's own paper, up to the order and signs of its rows. */
CASE(winograd_matrices_are_exact)
{
  (void)w;
  WinogradMatrices q;
  assert_true(nn_winograd_matrices(2, 3, DT_F32, false, &q));
  assert_int_equal(q.alpha, 4);
  double g[3] = {1, 2, 3};
  double d[4] = {5, 7, 11, 13};
  double y[2] = {0};
  for (int i = 0; i < 4; i++) {
    double u = 0;
    double v = 0;
    for (int j = 0; j < 3; j++) u += q.g[i][j] * g[j];
    for (int j = 0; j < 4; j++) v += q.b[i][j] * d[j];
    for (int k = 0; k < 2; k++) y[k] += q.a[k][i] * u * v;
  }
  assert_true(y[0] == 5 + 14 + 33 && y[1] == 7 + 22 + 39);
  assert_false(nn_winograd_matrices(8, 3, DT_F32, false, &q));
}

/* ---- refusals -------------------------------------------------------------------------- */

REFUSED(wrong_channels, ERR_SHAPE, "nn.conv2d: data has 3 channels, weight (64, 4, 7, 7) wants 4 with groups=1")
{
  TYPED(op_nn_conv2d, NULL, TENSOR(1, 3, 224, 224), TENSOR(64, 4, 7, 7));
}
REFUSED(wrong_rank, ERR_SHAPE, "nn.conv2d: data (3, 224, 224) has 3 dimensions, layout 'NCHW' names 4")
{
  TYPED(op_nn_conv2d, NULL, TENSOR(3, 224, 224), TENSOR(64, 3, 7, 7));
}
REFUSED(large_kernel, ERR_SHAPE, "nn.conv2d: height is 4 and 6 with padding, the kernel spans 7")
{
  TYPED(op_nn_conv2d, ATTRS(op_nn_conv2d, "padding", "[1, 1]"), TENSOR(1, 3, 4, 9), TENSOR(64, 3, 7, 7));
}
REFUSED(wrong_kernel_size, ERR_SHAPE, "nn.conv2d: kernel_size has 3 for H, weight (8, 3, 5, 5) has 5")
{
  TYPED(op_nn_conv2d, ATTRS(op_nn_conv2d, "kernel_size", "[3, 3]"), TENSOR(1, 3, 9, 9), TENSOR(8, 3, 5, 5));
}
REFUSED(zero_stride, ERR_ARGUMENT, "nn.conv2d: strides holds 0, at least 1 is wanted")
{
  TYPED(op_nn_conv2d, ATTRS(op_nn_conv2d, "strides", "[0, 1]"), TENSOR(1, 3, 9, 9), TENSOR(8, 3, 5, 5));
}
REFUSED(odd_groups, ERR_SHAPE, "nn.conv2d: weight (9, 2, 3, 3) has 9 output channels, which 2 groups do not divide")
{
  TYPED(op_nn_conv2d, ATTRS(op_nn_conv2d, "groups", "2"), TENSOR(1, 4, 9, 9), TENSOR(9, 2, 3, 3));
}
REFUSED(padding_count, ERR_ARGUMENT,
        "nn.conv2d: padding has 3 numbers; 1 (for all), 2 (one each) or 4 (befores, then afters) are wanted")
{
  TYPED(op_nn_conv2d, ATTRS(op_nn_conv2d, "padding", "[1, 1, 1]"), TENSOR(1, 4, 9, 9), TENSOR(9, 4, 3, 3));
}
REFUSED(mixed_dtypes, ERR_TYPE, "nn.conv2d: data is float32, weight int8; give out_dtype to multiply different dtypes")
{
  TYPED(op_nn_conv2d, NULL, TENSOR(1, 4, 9, 9), type_tensor_of(w->m, DT_I8, DIMS(9, 4, 3, 3)));
}
REFUSED(bad_layout, ERR_ARGUMENT,
        "nn.conv2d: data_layout 'NC16HW' is no layout: a number belongs before a small letter")
{
  TYPED(op_nn_conv2d, ATTRS(op_nn_conv2d, "data_layout", "\"NC16HW\""), TENSOR(1, 4, 9, 9), TENSOR(9, 4, 3, 3));
}
REFUSED(winograd_of_a_plain_weight, ERR_UNSUPPORTED,
        "nn.contrib_conv2d_winograd_without_weight_transform: over NCHW the weight must be transformed before")
{
  TYPED(op_nn_contrib_conv2d_winograd_without_weight_transform,
        ATTRS(op_nn_contrib_conv2d_winograd_without_weight_transform, "tile_size", "2", "transformed", "False"),
        TENSOR(1, 8, 9, 9), TENSOR(8, 8, 3, 3));
}
/* Transformed already, which is not what the attribute says. */
REFUSED(winograd_weight_twice, ERR_SHAPE,
        "nn.contrib_conv2d_winograd_NCHWc: weight (4, 4, 1, 8, 8) does not fit data (1, 1, 9, 9, 8) with tiles of 2")
{
  TYPED(
      op_nn_contrib_conv2d_winograd_nchwc,
      ATTRS(op_nn_contrib_conv2d_winograd_nchwc, "tile_size", "2", "data_layout", "\"NCHW8c\"", "transformed", "False"),
      TENSOR(1, 1, 9, 9, 8), TENSOR(4, 4, 1, 8, 8));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(conv2d_values),
    cmocka_unit_test(conv2d_layouts),
    cmocka_unit_test(conv1d_values),
    cmocka_unit_test(conv3d_is_a_sum_of_conv2d),
    cmocka_unit_test(conv2d_of_integers),
    cmocka_unit_test(conv2d_symbolic),
    cmocka_unit_test(conv2d_symbolic_values),
    cmocka_unit_test(winograd_is_conv2d),
    cmocka_unit_test(winograd_matrices_are_exact),
    cmocka_unit_test(wrong_channels),
    cmocka_unit_test(wrong_rank),
    cmocka_unit_test(large_kernel),
    cmocka_unit_test(wrong_kernel_size),
    cmocka_unit_test(zero_stride),
    cmocka_unit_test(odd_groups),
    cmocka_unit_test(padding_count),
    cmocka_unit_test(mixed_dtypes),
    cmocka_unit_test(bad_layout),
    cmocka_unit_test(winograd_of_a_plain_weight),
    cmocka_unit_test(winograd_weight_twice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
