/* onnx_ops_quant.c: quantized operators, spelt out in ordinary arithmetic.
 *
 *   quantize     saturate(round(x / scale) + zero point), halves to the even one
 *   dequantize   (x - zero point) * scale
 *
 * Comes in: scales and zero points for the whole tensor, per element of one axis, or per
 * block of one axis.  Goes out: casts, products, rounding, clipping. */
#include "frontend/onnx_import.h"

/* Scale or zero point, shaped so that it broadcasts to x. */
static const Node *spread(Conversion *c, const Node *v, const Node *x, int64_t axis, int64_t block)
{
  int rank = kit_rank_of(c, x);
  int r = kit_rank_of(c, v);
  if (r == 0) return v;
  if (r == 1 && expr_is_int(kit_dim_of(c, v, 0), 1) && !block) return kit_scalar_of(c, v);
  if (block) {
    int at = kit_axis_of(c, axis, rank);
    if (r != rank) kit_fail(c, ERR_SHAPE, "a blocked scale has the input's rank %d, not %d", rank, r);
    v = kit_op1(c, "repeat", v, "repeats:l,axis:i", block, at);
    int64_t have, want;
    if (kit_is_static_dim(kit_dim_of(c, v, at), &have) && kit_is_static_dim(kit_dim_of(c, x, at), &want) && have > want)
      v = kit_slice(c, v, at, 0, want);
    return v;
  }
  if (r == 1) return kit_unsqueeze_to(c, v, kit_axis_of(c, axis, rank), rank);
  return v;
}

static bool is_narrow_float(DType t) { return t.code >= DT_E4M3FN && t.code <= DT_E2M1FN; }

/* The nearest value of the narrow type; x is a float already divided by its scale. */
static const Node *saturate(Conversion *c, const Node *x, DType dt, bool limit)
{
  if (is_narrow_float(dt)) {
    if (limit)
      x = kit_where(c, kit_op1(c, "isnan", x, NULL), x,
                    kit_op1(c, "clip", x, "a_min:f,a_max:f", dtype_min(dt), dtype_max(dt)));
    return kit_cast_to(c, x, dt);
  }
  return kit_cast_to(c, kit_op1(c, "clip", x, "a_min:f,a_max:f", (double)dtype_imin(dt), (double)dtype_imax(dt)), dt);
}

static const Node *quantize(Conversion *c, const Node *x, const Node *scale, const Node *zero, DType dt, bool limit)
{
  DType wide = kit_dtype_of(c, scale);
  const Node *y = kit_div(c, kit_cast_to(c, x, wide), scale);
  if (!is_narrow_float(dt)) {
    if (wide.bits < 32) y = kit_cast_to(c, y, DT_F32);
    y = kit_op1(c, "round", y, NULL);
  }
  if (zero) y = kit_add(c, y, kit_cast_to(c, zero, kit_dtype_of(c, y)));
  return saturate(c, y, dt, limit);
}

/* Integers are subtracted before they become floats: exact for up to 24 bits. */
static const Node *dequantize(Conversion *c, const Node *x, const Node *scale, const Node *zero)
{
  DType dt = kit_dtype_of(c, x);
  DType wide = kit_dtype_of(c, scale);
  if (dtype_is_int(dt) && zero) {
    x = kit_sub(c, kit_cast_to(c, x, DT_I32), kit_cast_to(c, zero, DT_I32));
    zero = NULL;
  }
  if (wide.bits < 32)
    return kit_cast_to(
        c,
        kit_mul(c,
                zero ? kit_sub(c, kit_cast_to(c, x, DT_F32), kit_cast_to(c, zero, DT_F32)) : kit_cast_to(c, x, DT_F32),
                kit_cast_to(c, scale, DT_F32)),
        wide);
  x = kit_cast_to(c, x, wide);
  if (zero) x = kit_sub(c, x, kit_cast_to(c, zero, wide));
  return kit_mul(c, x, scale);
}

static const Node *convert_quantize(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *scale = kit_in(c, 1);
  const Node *zero = kit_opt(c, 2);
  int64_t axis = onnx_attr_int(c, "axis", 1);
  int64_t block = onnx_attr_int(c, "block_size", 0);
  int64_t type = onnx_attr_int(c, "output_dtype", 0);
  int64_t precision = onnx_attr_int(c, "precision", 0);
  DType dt = zero ? kit_dtype_of(c, zero) : type ? onnx_dtype(c->ctx, type, c->name) : DT_U8;
  scale = spread(c, scale, x, axis, block);
  if (precision) scale = kit_cast_to(c, scale, onnx_dtype(c->ctx, precision, c->name));
  else if (dtype_is_int(kit_dtype_of(c, scale)) || kit_dtype_of(c, scale).code == DT_E8M0FNU)
    scale = kit_cast_to(c, scale, DT_F32);
  else if (c->version < 19) scale = kit_cast_to(c, scale, DT_F32);
  return quantize(c, x, scale, zero ? spread(c, zero, x, axis, block) : NULL, dt, onnx_attr_int(c, "saturate", 1));
}

static const Node *convert_dequantize(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *scale = kit_in(c, 1);
  const Node *zero = kit_opt(c, 2);
  int64_t axis = onnx_attr_int(c, "axis", 1);
  int64_t block = onnx_attr_int(c, "block_size", 0);
  int64_t type = onnx_attr_int(c, "output_dtype", 0);
  if (kit_dtype_of(c, scale).code == DT_E8M0FNU) scale = kit_cast_to(c, scale, DT_F32);
  const Node *y = dequantize(c, x, spread(c, scale, x, axis, block), zero ? spread(c, zero, x, axis, block) : NULL);
  return type ? kit_cast_to(c, y, onnx_dtype(c->ctx, type, c->name)) : y;
}

/* The range always holds zero; uint8. */
static void dynamic_range(Conversion *c, const Node *x, const Node **scale, const Node **zero)
{
  int rank = kit_rank_of(c, x);
  int64_t axes[64];
  for (int i = 0; i < rank; i++) axes[i] = i;
  const Node *none = kit_scalar_like(c, x, 0);
  const Node *lo = kit_min2(c, none, kit_reduce(c, "min", x, rank, axes, false));
  const Node *hi = kit_max2(c, none, kit_reduce(c, "max", x, rank, axes, false));
  *scale = kit_div(c, kit_sub(c, hi, lo), kit_scalar_like(c, x, 255));
  const Node *z = kit_div(c, kit_sub(c, none, lo), *scale);
  z = kit_op1(c, "clip", kit_op1(c, "round", z, NULL), "a_min:f,a_max:f", 0.0, 255.0);
  *zero = kit_cast_to(c, kit_where(c, kit_op2(c, "equal", *scale, none, NULL), none, z), DT_U8);
}

static const Node *convert_dynamic_quantize(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *scale, *zero;
  dynamic_range(c, x, &scale, &zero);
  c->out[1] = scale;
  c->out[2] = zero;
  return quantize(c, x, scale, zero, DT_U8, true);
}

/* Operands at i, i + 1, i + 2: value, scale, zero point. */
static const Node *real_operand(Conversion *c, int i, int64_t axis)
{
  const Node *x = kit_in(c, i);
  const Node *zero = kit_opt(c, i + 2);
  return dequantize(c, x, spread(c, kit_in(c, i + 1), x, axis, 0), zero ? spread(c, zero, x, axis, 0) : NULL);
}

static const Node *quantized_result(Conversion *c, const Node *y, const Node *scale, const Node *zero, DType dt)
{
  return quantize(c, y, kit_scalar_of(c, scale), zero ? kit_scalar_of(c, zero) : NULL,
                  zero ? kit_dtype_of(c, zero) : dt, true);
}

/* x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias: int32 sums, then one float product. */
static const Node *convert_qlinear_conv(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 3);
  const Node *xz = kit_in(c, 2);
  const Node *wz = kit_in(c, 5);
  const Node *bias = kit_opt(c, 8);
  Conversion inner = *c;
  const Node *xi = kit_sub(c, kit_cast_to(c, x, DT_I32), kit_cast_to(c, kit_scalar_of(c, xz), DT_I32));
  const Node *wi = kit_sub(c, kit_cast_to(c, w, DT_I32), kit_cast_to(c, spread(c, wz, w, 0, 0), DT_I32));
  const Node *in[2] = {xi, wi};
  inner.in = in;
  inner.nin = 2;
  const OnnxRow *conv = onnx_find("", "ConvInteger", 10);
  const Node *sum = conv->convert(&inner);
  if (bias) sum = kit_op2(c, "nn.bias_add", sum, bias, "axis:i", 1);
  const Node *ws = kit_in(c, 4);
  const Node *scale = kit_mul(c, kit_scalar_of(c, kit_in(c, 1)), kit_rank_of(c, ws) == 1 ? ws : kit_scalar_of(c, ws));
  if (kit_rank_of(c, scale) == 1)
    scale = expr_is_int(kit_dim_of(c, scale, 0), 1) ? kit_scalar_of(c, scale)
                                                    : kit_unsqueeze_to(c, scale, 1, kit_rank_of(c, sum));
  return quantized_result(c, kit_mul(c, kit_cast_to(c, sum, kit_dtype_of(c, scale)), scale), kit_in(c, 6),
                          kit_opt(c, 7), kit_dtype_of(c, x));
}

/* Rows of the left operand and columns of the right one may have scales of their own. */
static const Node *row_vector(Conversion *c, const Node *v, bool row)
{
  if (kit_rank_of(c, v) != 1) return v;
  if (expr_is_int(kit_dim_of(c, v, 0), 1)) return kit_scalar_of(c, v);
  return row ? kit_unsqueeze(c, v, 1) : v;
}

static const Node *convert_qlinear_matmul(Conversion *c)
{
  const Node *a = kit_in(c, 0);
  const Node *b = kit_in(c, 3);
  const Node *ai = kit_sub(c, kit_cast_to(c, a, DT_I32), kit_cast_to(c, row_vector(c, kit_in(c, 2), true), DT_I32));
  const Node *bi = kit_sub(c, kit_cast_to(c, b, DT_I32), kit_cast_to(c, row_vector(c, kit_in(c, 5), false), DT_I32));
  const Node *scale = kit_mul(c, row_vector(c, kit_in(c, 1), true), row_vector(c, kit_in(c, 4), false));
  const Node *sum = kit_matmul(c, ai, bi);
  const Node *ys = row_vector(c, kit_in(c, 6), true);
  const Node *yz = kit_opt(c, 7);
  /* the scales' product in their own type, the rest in float32 */
  if (kit_dtype_of(c, scale).bits < 32) {
    scale = kit_cast_to(c, scale, DT_F32);
    ys = kit_cast_to(c, ys, DT_F32);
  }
  return quantize(c, kit_mul(c, kit_cast_to(c, sum, kit_dtype_of(c, scale)), scale), ys,
                  yz ? row_vector(c, yz, true) : NULL, yz ? kit_dtype_of(c, yz) : kit_dtype_of(c, a), true);
}

static const OnnxRow rows[] = {
  {"DequantizeLinear", 10, convert_dequantize}, {"DynamicQuantizeLinear", 11, convert_dynamic_quantize},
  {"QLinearConv", 10, convert_qlinear_conv},    {"QLinearMatMul", 10, convert_qlinear_matmul},
  {"QuantizeLinear", 10, convert_quantize},
};
ONNX_TABLE(onnx_ops_quant, "", rows);

/* ---- com.microsoft: the same scheme around any operator -------------------------------------------- */

static const Node *convert_qlinear_binary(Conversion *c)
{
  const Node *a = real_operand(c, 0, 0);
  const Node *b = real_operand(c, 3, 0);
  const Node *y = !strcmp(c->op, "QLinearAdd") ? kit_add(c, a, b) : kit_mul(c, a, b);
  return quantized_result(c, y, kit_in(c, 6), kit_opt(c, 7), kit_dtype_of(c, kit_in(c, 0)));
}

/* By the meaning of the opset that the attribute names: before 13 over everything from the axis on. */
static const Node *softmax_of_opset(Conversion *c, const Node *x)
{
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", -1), kit_rank_of(c, x));
  if (onnx_attr_int(c, "opset", 13) >= 13 || axis == kit_rank_of(c, x) - 1) return kit_softmax(c, x, axis);
  return kit_op2(c, "reshape_like", kit_softmax(c, kit_flatten_from(c, x, axis), 1), x, NULL);
}

static const Node *convert_qlinear_unary(Conversion *c)
{
  const Node *x = real_operand(c, 0, 0);
  const Node *y;
  const char *t = c->op;
  if (!strcmp(t, "QLinearSigmoid")) y = kit_op1(c, "sigmoid", x, NULL);
  else if (!strcmp(t, "QLinearLeakyRelu")) y = onnx_activation(c, "LeakyRelu", x, onnx_attr_float(c, "alpha", 0.01), 0);
  else y = softmax_of_opset(c, x);
  return quantized_result(c, y, kit_in(c, 3), kit_opt(c, 4), kit_dtype_of(c, kit_in(c, 0)));
}

/* y_scale, y_zero, then value, scale, zero point of each part. */
static const Node *convert_qlinear_concat(Conversion *c)
{
  int n = (c->nin - 2) / 3;
  if (n < 1 || (c->nin - 2) % 3)
    kit_fail(c, ERR_ARGUMENT, "%d inputs are given; two and three per part are wanted", c->nin);
  const Node **part = arena_array(c->im->arena, const Node *, n);
  for (int i = 0; i < n; i++) part[i] = real_operand(c, 2 + 3 * i, 0);
  const Node *y = kit_concat(c, n, part, kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, part[0])));
  return quantized_result(c, y, kit_in(c, 0), kit_opt(c, 1), kit_dtype_of(c, kit_in(c, 2)));
}

static const Node *convert_qlinear_pool(Conversion *c)
{
  const Node *x = real_operand(c, 0, 0);
  bool last = onnx_attr_int(c, "channels_last", 0) != 0;
  int rank = kit_rank_of(c, x);
  if (last) x = kit_move_axis(c, x, rank - 1, 1);
  Conversion inner = *c;
  inner.in = &x;
  inner.nin = 1;
  bool global = !strcmp(c->op, "QLinearGlobalAveragePool");
  const Node *y = onnx_find("", global ? "GlobalAveragePool" : "AveragePool", 11)->convert(&inner);
  if (last) y = kit_move_axis(c, y, 1, rank - 1);
  return quantized_result(c, y, kit_in(c, 3), kit_opt(c, 4), kit_dtype_of(c, kit_in(c, 0)));
}

/* A, a_scale, a_zero, B, b_scale, b_zero, C (int32), y_scale, y_zero */
static const Node *convert_qgemm(Conversion *c)
{
  const Node *a =
      kit_sub(c, kit_cast_to(c, kit_in(c, 0), DT_I32), kit_cast_to(c, kit_scalar_of(c, kit_in(c, 2)), DT_I32));
  const Node *b = kit_in(c, 3);
  const Node *bz = kit_in(c, 5);
  const Node *bs = kit_in(c, 4);
  const Node *bias = kit_opt(c, 6);
  bool columns = onnx_attr_int(c, "transB", 0);
  b = kit_sub(c, kit_cast_to(c, b, DT_I32), kit_cast_to(c, spread(c, bz, b, columns ? 0 : 1, 0), DT_I32));
  if (onnx_attr_int(c, "transA", 0)) a = kit_swap_last(c, a);
  if (!columns) b = kit_swap_last(c, b);
  const Node *sum = kit_op2(c, "nn.dense", a, b, NULL);
  if (bias) sum = kit_add(c, sum, bias);
  const Node *scale = kit_mul(c, kit_scalar_of(c, kit_in(c, 1)), row_vector(c, bs, false));
  const Node *y =
      kit_mul(c, kit_mul(c, kit_cast_to(c, sum, DT_F32), scale), kit_scalar(c, DT_F32, onnx_attr_float(c, "alpha", 1)));
  if (!kit_opt(c, 7)) return y;
  return quantized_result(c, y, kit_in(c, 7), kit_opt(c, 8), kit_dtype_of(c, kit_in(c, 0)));
}

static const Node *convert_dynamic_quantize_matmul(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *b = kit_in(c, 1);
  const Node *bs = kit_in(c, 2);
  const Node *bz = kit_opt(c, 3);
  const Node *bias = kit_opt(c, 4);
  const Node *scale, *zero;
  dynamic_range(c, x, &scale, &zero);
  const Node *a =
      kit_sub(c, kit_cast_to(c, quantize(c, x, scale, zero, DT_U8, true), DT_I32), kit_cast_to(c, zero, DT_I32));
  b = kit_cast_to(c, b, DT_I32);
  if (bz) b = kit_sub(c, b, kit_cast_to(c, row_vector(c, bz, false), DT_I32));
  const Node *y = kit_mul(c, kit_cast_to(c, kit_matmul(c, a, b), DT_F32), kit_mul(c, scale, row_vector(c, bs, false)));
  return bias ? kit_add(c, y, bias) : y;
}

/* A, B, a_scale, b_scale, a_zero, b_zero, bias */
static const Node *convert_matmul_integer_to_float(Conversion *c)
{
  const Node *a = kit_cast_to(c, kit_in(c, 0), DT_I32);
  const Node *b = kit_cast_to(c, kit_in(c, 1), DT_I32);
  const Node *az = kit_opt(c, 4);
  const Node *bz = kit_opt(c, 5);
  const Node *bias = kit_opt(c, 6);
  if (az) a = kit_sub(c, a, kit_cast_to(c, kit_scalar_of(c, az), DT_I32));
  if (bz) b = kit_sub(c, b, kit_cast_to(c, row_vector(c, bz, false), DT_I32));
  const Node *scale = kit_mul(c, kit_scalar_of(c, kit_in(c, 2)), row_vector(c, kit_in(c, 3), false));
  const Node *y = kit_mul(c, kit_cast_to(c, kit_matmul(c, a, b), DT_F32), scale);
  return bias ? kit_add(c, y, bias) : y;
}

static const OnnxRow microsoft_rows[] = {
  {"DequantizeLinear", 1, convert_dequantize},
  {"DynamicQuantizeMatMul", 1, convert_dynamic_quantize_matmul},
  {"MatMulIntegerToFloat", 1, convert_matmul_integer_to_float},
  {"QGemm", 1, convert_qgemm},
  {"QLinearAdd", 1, convert_qlinear_binary},
  {"QLinearAveragePool", 1, convert_qlinear_pool},
  {"QLinearConcat", 1, convert_qlinear_concat},
  {"QLinearGlobalAveragePool", 1, convert_qlinear_pool},
  {"QLinearLeakyRelu", 1, convert_qlinear_unary},
  {"QLinearMul", 1, convert_qlinear_binary},
  {"QLinearSigmoid", 1, convert_qlinear_unary},
  {"QLinearSoftmax", 1, convert_qlinear_unary},
  {"QuantizeLinear", 1, convert_quantize},
};
ONNX_TABLE(onnx_ops_microsoft_quant, "com.microsoft", microsoft_rows);
