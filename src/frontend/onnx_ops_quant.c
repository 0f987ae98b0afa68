/* onnx_ops_quant.c: quantized operators.
 *
 *   quantize     saturate(round(x / scale) + zero point), halves to the even one
 *   dequantize   (x - zero point) * scale
 *
 * Comes in: scales and zero points for the whole tensor, per element of one axis, or per
 * block of one axis.  Goes out: qnn.quantize and qnn.dequantize around the operator over real numbers, which
 * FakeQuantizationToInteger makes one over integers; sums that the model itself asks for as integers are qnn products.
 * What qnn has no form for (blocks, narrow floats, scales of 16 bits) is spelt out in casts, products, rounding,
 * clipping. */
#include "frontend/onnx_import.h"
#include "op/qnn.h"

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

/* Scale and zero point as qnn has them: a scalar or a vector along an axis. */
typedef struct Params {
  const Node *scale, *zero;
  int axis;
} Params;

static bool is_stored(DType t) { return dtype_is_int(t) && !dtype_is_bool(t) && t.bits <= 32; }

static bool is_vector(Conversion *c, const Node *v)
{
  return kit_rank_of(c, v) == 1 && !expr_is_int(kit_dim_of(c, v, 0), 1);
}

static bool qnn_params(Conversion *c, const Node *x, const Node *scale, const Node *zero, int64_t axis, Params *out)
{
  int rank = kit_rank_of(c, x);
  bool along = is_vector(c, scale) || (zero && is_vector(c, zero));
  if (!dtype_eq(kit_dtype_of(c, scale), DT_F32) || kit_rank_of(c, scale) > 1) return false;
  if (zero && (!is_stored(kit_dtype_of(c, zero)) || kit_rank_of(c, zero) > 1)) return false;
  if (along && !rank) return false;
  out->axis = along ? kit_axis_of(c, axis, rank) : -1;
  out->scale = is_vector(c, scale) ? scale : kit_scalar_of(c, scale);
  zero = zero ? kit_cast_to(c, zero, DT_I32) : kit_scalar(c, DT_I32, 0);
  out->zero = is_vector(c, zero) ? zero : kit_scalar_of(c, zero);
  return true;
}

static const Node *quantize_spelt(Conversion *c, const Node *x, const Node *scale, const Node *zero, DType dt,
                                  bool limit)
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
static const Node *dequantize_spelt(Conversion *c, const Node *x, const Node *scale, const Node *zero)
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

/* Not computed at once where x is constant: the integers are what the model is to be computed with. */
static const Node *quantize(Conversion *c, const Node *x, const Node *scale, const Node *zero, int64_t axis, DType dt)
{
  Params p;
  if (is_stored(dt) && dtype_is_float(kit_dtype_of(c, x)) && qnn_params(c, x, scale, zero, axis, &p))
    return qnn_quantize(c->m, x, p.scale, p.zero, p.axis, dt);
  return quantize_spelt(c, x, spread(c, scale, x, axis, 0), zero ? spread(c, zero, x, axis, 0) : NULL, dt, true);
}

static const Node *dequantize(Conversion *c, const Node *x, const Node *scale, const Node *zero, int64_t axis)
{
  Params p;
  if (is_stored(kit_dtype_of(c, x)) && qnn_params(c, x, scale, zero, axis, &p))
    return qnn_dequantize(c->m, x, p.scale, p.zero, p.axis);
  return dequantize_spelt(c, x, spread(c, scale, x, axis, 0), zero ? spread(c, zero, x, axis, 0) : NULL);
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
  if (!block && !precision && is_stored(dt) && dtype_eq(kit_dtype_of(c, x), DT_F32))
    return quantize(c, x, scale, zero, axis, dt);
  scale = spread(c, scale, x, axis, block);
  if (precision) scale = kit_cast_to(c, scale, onnx_dtype(c->ctx, precision, c->name));
  else if (dtype_is_int(kit_dtype_of(c, scale)) || kit_dtype_of(c, scale).code == DT_E8M0FNU)
    scale = kit_cast_to(c, scale, DT_F32);
  else if (c->version < 19) scale = kit_cast_to(c, scale, DT_F32);
  return quantize_spelt(c, x, scale, zero ? spread(c, zero, x, axis, block) : NULL, dt,
                        onnx_attr_int(c, "saturate", 1));
}

/* A weight (k, n) with a scale, and a zero point or none, for each block of k. */
typedef struct OnnxBlocked {
  const Node *x, *scale, *zero;
  int64_t block;
} OnnxBlocked;

static void note_blocked(Conversion *c, const Node *y, OnnxBlocked b, int64_t axis)
{
  DType t = kit_dtype_of(c, b.x);
  bool bytes = dtype_is_int(t) && (t.bits == 8 || (t.bits == 4 && b.block % 2 == 0));
  if (b.x->kind != N_CONST || !bytes || kit_rank_of(c, b.x) != 2 || kit_axis_of(c, axis, 2) != 0 ||
      !dtype_eq(kit_dtype_of(c, b.scale), DT_F32) || !dtype_eq(kit_dtype_of(c, y), DT_F32))
    return;
  OnnxBlocked *kept = arena_new_of(c->im->arena, OnnxBlocked);
  *kept = b;
  map_put(c->im->arena, &onnx_of(c->im)->blocked, y, kept);
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
  const Node *y =
      block ? dequantize_spelt(c, x, spread(c, scale, x, axis, block), zero ? spread(c, zero, x, axis, block) : NULL)
            : dequantize(c, x, scale, zero, axis);
  if (type) y = kit_cast_to(c, y, onnx_dtype(c->ctx, type, c->name));
  if (block) note_blocked(c, y, (OnnxBlocked){x, scale, zero, block}, axis);
  return y;
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
  return quantize(c, x, scale, zero, -1, DT_U8);
}

/* Operands at i, i + 1, i + 2: value, scale, zero point. */
static const Node *real_operand(Conversion *c, int i, int64_t axis)
{
  const Node *x = kit_in(c, i);
  const Node *zero = kit_opt(c, i + 2);
  return dequantize(c, x, kit_in(c, i + 1), zero, axis);
}

static const Node *quantized_result(Conversion *c, const Node *y, const Node *scale, const Node *zero, DType dt)
{
  return quantize(c, y, kit_scalar_of(c, scale), zero ? kit_scalar_of(c, zero) : NULL, -1,
                  zero ? kit_dtype_of(c, zero) : dt);
}

/* A bias of int32 counts in units of the sums, the product of both scales. */
static const Node *real_bias(Conversion *c, const Node *bias, const Node *sx, const Node *sw)
{
  sw = is_vector(c, sw) ? sw : kit_scalar_of(c, sw);
  return dequantize(c, bias, kit_mul(c, sw, kit_scalar_of(c, sx)), NULL, -1);
}

/* x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias */
static const Node *convert_qlinear_conv(Conversion *c)
{
  const Node *in[3] = {real_operand(c, 0, 1), real_operand(c, 3, 0), kit_opt(c, 8)};
  if (in[2]) in[2] = real_bias(c, in[2], kit_in(c, 1), kit_in(c, 4));
  Conversion inner = *c;
  inner.in = in;
  inner.nin = in[2] ? 3 : 2;
  const Node *y = onnx_find("", "Conv", 11)->convert(&inner);
  return quantized_result(c, y, kit_in(c, 6), kit_opt(c, 7), kit_dtype_of(c, kit_in(c, 0)));
}

/* Rows of the left operand and of the result and columns of the right one may have scales of their own. */
static const Node *convert_qlinear_matmul(Conversion *c)
{
  const Node *y = kit_matmul(c, real_operand(c, 0, -2), real_operand(c, 3, -1));
  const Node *scale = kit_in(c, 6);
  const Node *zero = kit_opt(c, 7);
  DType dt = zero ? kit_dtype_of(c, zero) : kit_dtype_of(c, kit_in(c, 0));
  if (kit_dtype_of(c, scale).bits < 32) y = kit_cast_to(c, y, DT_F32);
  return quantize(c, y, kit_cast_to(c, scale, DT_F32), zero, -2, dt);
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
  const Node *y = !strcmp(onnx_node(c)->op_type, "QLinearAdd") ? kit_add(c, a, b) : kit_mul(c, a, b);
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
  const char *t = onnx_node(c)->op_type;
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
  bool global = !strcmp(onnx_node(c)->op_type, "QLinearGlobalAveragePool");
  const Node *y = onnx_find("", global ? "GlobalAveragePool" : "AveragePool", 11)->convert(&inner);
  if (last) y = kit_move_axis(c, y, 1, rank - 1);
  return quantized_result(c, y, kit_in(c, 3), kit_opt(c, 4), kit_dtype_of(c, kit_in(c, 0)));
}

/* condition, then value, scale, zero point of both, y_scale, y_zero: each is brought to the result's units first. */
static const Node *convert_qlinear_where(Conversion *c)
{
  const Node *y[2];
  for (int i = 0; i < 2; i++)
    y[i] =
        quantized_result(c, real_operand(c, 1 + 3 * i, 0), kit_in(c, 7), kit_opt(c, 8), kit_dtype_of(c, kit_in(c, 1)));
  return kit_where(c, kit_in(c, 0), y[0], y[1]);
}

/* A, a_scale, a_zero, B, b_scale, b_zero, C (int32), y_scale, y_zero */
static const Node *convert_qgemm(Conversion *c)
{
  const Node *in[3] = {real_operand(c, 0, 0), real_operand(c, 3, onnx_attr_int(c, "transB", 0) ? 0 : 1), kit_opt(c, 6)};
  double alpha = onnx_attr_float(c, "alpha", 1);
  if (in[2]) in[2] = real_bias(c, in[2], kit_in(c, 1), kit_in(c, 4));
  if (in[2] && alpha != 1) in[2] = kit_mul(c, in[2], kit_scalar_like(c, in[2], alpha)); /* it counts in the sums */
  Conversion inner = *c;
  inner.in = in;
  inner.nin = in[2] ? 3 : 2;
  const Node *y = onnx_find("", "Gemm", 11)->convert(&inner);
  if (!kit_opt(c, 7)) return y;
  return quantized_result(c, y, kit_in(c, 7), kit_opt(c, 8), kit_dtype_of(c, kit_in(c, 0)));
}

static const Node *convert_dynamic_quantize_matmul(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *bias = kit_opt(c, 4);
  const Node *scale, *zero;
  dynamic_range(c, x, &scale, &zero);
  const Node *a = dequantize(c, quantize(c, x, scale, zero, -1, DT_U8), scale, zero, -1);
  const Node *y = kit_matmul(c, a, dequantize(c, kit_in(c, 1), kit_in(c, 2), kit_opt(c, 3), -1));
  return bias ? kit_add(c, y, bias) : y;
}

/* A, B, a_scale, b_scale, a_zero, b_zero, bias */
static const Node *convert_matmul_integer_to_float(Conversion *c)
{
  const Node *bias = kit_opt(c, 6);
  const Node *a = dequantize(c, kit_in(c, 0), kit_in(c, 2), kit_opt(c, 4), -2);
  const Node *y = kit_matmul(c, a, dequantize(c, kit_in(c, 1), kit_in(c, 3), kit_opt(c, 5), -1));
  return bias ? kit_add(c, y, bias) : y;
}

/* Numbers of 4 bits, two to a byte along the last axis, the low half first; of 8 bits as they are; int32. */
static const Node *unpacked(Conversion *c, const Node *x, int64_t bits)
{
  x = kit_cast_to(c, x, DT_I32);
  if (bits == 8) return x;
  const Node *low = kit_op2(c, "bitwise_and", x, kit_scalar(c, DT_I32, 15), NULL);
  const Node *high = kit_op2(c, "right_shift", x, kit_scalar(c, DT_I32, 4), NULL);
  int rank = kit_rank_of(c, x);
  int64_t last = 2 * kit_static_dim(c, x, rank - 1);
  const Node *shape = kit_concat2(c, kit_shape_part(c, x, 0, rank - 1), kit_const_i64(c, 1, &last), 0);
  const Node *both = kit_concat2(c, kit_unsqueeze(c, low, rank), kit_unsqueeze(c, high, rank), rank);
  return kit_reshape_to(c, both, shape, true);
}

/* data, indices, scales, zero points: rows of a table whose blocks along another axis share a scale.  Numbers of 4 bits
 * that are given as bytes stand two to a byte along the last axis. */
static const Node *convert_gather_blocks(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *at = kit_in(c, 1);
  const Node *scale = kit_in(c, 2);
  const Node *zero = kit_opt(c, 3);
  int rank = kit_rank_of(c, x);
  int gather = kit_axis_of(c, onnx_attr_int(c, "gather_axis", 0), rank);
  int along = kit_axis_of(c, onnx_attr_int(c, "quantize_axis", 1), rank);
  int64_t block = onnx_attr_int(c, "block_size", 128);
  int64_t bits = onnx_attr_int(c, "bits", 4);
  if (gather == along) kit_fail(c, ERR_ARGUMENT, "gather_axis and quantize_axis are both %d", gather);
  if (bits != 4 && bits != 8) kit_fail(c, ERR_UNSUPPORTED, "a table of %" PRId64 " bits; 4 and 8 are read", bits);
  bool bytes = dtype_eq(kit_dtype_of(c, x), DT_U8);
  if (bytes && along != rank - 1) kit_fail(c, ERR_ARGUMENT, "bytes are blocked along their last axis, not %d", along);
  x = kit_take(c, x, at, gather);
  scale = kit_take(c, scale, at, gather);
  if (zero) zero = kit_take(c, zero, at, gather);
  if (along > gather) along += kit_rank_of(c, at) - 1;
  if (bytes) {
    int last = kit_rank_of(c, x) - 1;
    int64_t blocks = kit_static_dim(c, scale, last);
    x = unpacked(c, x, bits);
    zero = zero ? kit_slice(c, unpacked(c, zero, bits), last, 0, blocks)
                : kit_scalar(c, DT_I32, (double)(1 << (bits - 1)));
  }
  scale = spread(c, scale, x, along, block);
  return dequantize_spelt(c, x, scale, zero && kit_rank_of(c, zero) ? spread(c, zero, x, along, block) : zero);
}

typedef struct Nbits {
  const Node *weight, *scale, *zero;
  int64_t bits, block, data_bits;
} Nbits;

/* b says no more than how many columns there are. */
static const Node *nbits_product(Conversion *c, const Node *a, const Node *b, void *env)
{
  const Nbits *n = env;
  (void)b;
  return kit_opn(c, "nn.contrib_dense_nbits", 4, (const Node *[]){a, n->weight, n->scale, n->zero},
                 "bits:l,block_size:l,data_bits:l", n->bits, n->block, n->data_bits);
}

/* Numbers of 4 bits back into bytes along the last axis, the first in the lower half; of 8 bits as they are. */
static const Node *packed(Conversion *c, const Node *x, int64_t bits)
{
  x = kit_cast_to(c, x, DT_U8);
  if (bits == 8) return x;
  int64_t n = kit_static_dim(c, x, 0);
  x = kit_reshape(c, x, 3, (int64_t[]){n, -1, 2});
  const Node *high = kit_op2(c, "left_shift", kit_slice(c, x, 2, 1, 2), kit_scalar(c, DT_U8, 4), NULL);
  return kit_squeeze(c, kit_op2(c, "bitwise_or", kit_slice(c, x, 2, 0, 1), high, NULL), 2);
}

/* The elements of a row, given the group of each, so that those of a group stand in blocks of their own: where each
 * comes from (k: from nowhere, it counts as zero), and the group of each block. */
typedef struct Order {
  int64_t *from, *group;
  int64_t n, blocks;
} Order;

static Order order_of_groups(Conversion *c, int64_t k, int64_t groups, int64_t block)
{
  int n = 0;
  const int64_t *g = kit_const_ints(c, kit_in(c, 4), &n);
  if (!g) kit_fail(c, ERR_UNSUPPORTED, "the groups of a row (g_idx) are not known at compile time");
  if (n < k) kit_fail(c, ERR_SHAPE, "g_idx has %d elements, %" PRId64 " are wanted", n, k);
  Order o = {.from = arena_array(c->im->arena, int64_t, k + groups * block),
             .group = arena_array(c->im->arena, int64_t, k / block + groups + 1)};
  int64_t *count = arena_array(c->im->arena, int64_t, groups + 1);
  for (int64_t i = 0; i < k; i++) {
    if (g[i] < 0 || g[i] >= groups)
      kit_fail(c, ERR_ARGUMENT, "g_idx has %" PRId64 ", there are %" PRId64 " groups", g[i], groups);
    count[g[i] + 1]++;
  }
  for (int64_t i = 0; i < groups; i++) { /* where each group begins */
    int64_t whole = (count[i + 1] + block - 1) / block;
    for (int64_t b = 0; b < whole; b++) o.group[o.blocks++] = i;
    count[i + 1] = o.blocks * block;
  }
  o.n = o.blocks * block;
  for (int64_t i = 0; i < o.n; i++) o.from[i] = k;
  for (int64_t i = 0; i < k; i++) o.from[count[g[i]]++] = i;
  return o;
}

/* Data and weight in the order of their groups. */
static const Node *in_order(Conversion *c, const Node *a, int64_t k, Nbits *op)
{
  Order o = order_of_groups(c, k, kit_static_dim(c, op->scale, 1), op->block);
  int rank = kit_rank_of(c, a);
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  after[rank - 1] = 1;
  if (o.n > k) a = kit_pad(c, a, rank, before, after, 0);
  a = kit_take(c, a, kit_const_i64(c, (int)o.n, o.from), rank - 1);
  for (int64_t i = 0; i < o.n; i++) o.from[i] %= k; /* beside a zero any number does */
  const Node *groups = kit_const_i64(c, (int)o.blocks, o.group);
  op->weight =
      packed(c, kit_take(c, unpacked(c, op->weight, op->bits), kit_const_i64(c, (int)o.n, o.from), 1), op->bits);
  op->scale = kit_take(c, op->scale, groups, 1);
  if (kit_rank_of(c, op->zero)) op->zero = kit_take(c, op->zero, groups, 1);
  return a;
}

/* a times a weight of n columns. */
static const Node *times_nbits(Conversion *c, const Node *a, int64_t n, Nbits *op)
{
  int64_t *none = arena_array(c->im->arena, int64_t, n);
  const Node *columns = kit_reshape(c, kit_const_i64(c, (int)n, none), 2, (int64_t[]){1, n});
  return kit_matmul_by(c, a, columns, nbits_product, op);
}

/* (blocks of k or k, n) as (n, the same), numbers with a sign moved so that they have none. */
static const Node *stored_rows(Conversion *c, const Node *x, DType t)
{
  x = kit_swap_last(c, kit_cast_to(c, x, DT_I32));
  return t.code == DT_INT ? kit_add(c, x, kit_scalar(c, DT_I32, (double)(1 << (t.bits - 1)))) : x;
}

const Node *onnx_blocked_product(Conversion *c, const Node *a, const Node *b)
{
  const OnnxBlocked *q = map_get(&onnx_of(c->im)->blocked, b);
  if (!q) return NULL;
  DType t = kit_dtype_of(c, q->x);
  int64_t k = kit_static_dim(c, q->x, 0);
  int64_t n = kit_static_dim(c, q->x, 1);
  int64_t whole = (k + q->block - 1) / q->block * q->block;
  const Node *rows = stored_rows(c, q->x, t);
  if (whole > k) rows = kit_pad(c, rows, 2, (int64_t[]){0, 0}, (int64_t[]){0, whole - k}, 0);
  const Node *zero = q->zero ? kit_cast_to(c, stored_rows(c, q->zero, t), DT_U8)
                             : kit_scalar(c, DT_U8, t.code == DT_INT ? (double)(1 << (t.bits - 1)) : 0);
  Nbits op = {packed(c, rows, t.bits), kit_swap_last(c, q->scale), zero, t.bits, q->block, 32};
  return times_nbits(c, a, n, &op);
}

/* A, B (n, blocks, bytes of a block), scales, zero points, group of each element of a row, bias: A times the weight
 * that B stands for, which has a scale for each block of a row, or for each group.  Level 4 of accuracy, the least
 * there is, lets data be rounded to 8 bits. */
static const Node *convert_matmul_nbits(Conversion *c)
{
  int64_t k = onnx_attr_int(c, "K", 0);
  int64_t n = onnx_attr_int(c, "N", 0);
  int64_t bits = onnx_attr_int(c, "bits", 4);
  int64_t block = onnx_attr_int(c, "block_size", 0);
  if (k < 1 || n < 1 || block < 1) kit_fail(c, ERR_ARGUMENT, "K, N and block_size must be positive");
  if (bits != 4 && bits != 8) kit_fail(c, ERR_UNSUPPORTED, "weights of %" PRId64 " bits; 4 and 8 are read", bits);
  if (block * bits % 8) kit_fail(c, ERR_ARGUMENT, "block_size is %" PRId64 ", whole bytes are wanted", block);
  int64_t blocks = (k + block - 1) / block;
  const Node *zero = kit_opt(c, 3);
  if (!zero) {
    zero = kit_scalar(c, DT_U8, (double)(1 << (bits - 1)));
  } else {
    int64_t bytes = bits == 4 ? (blocks + 1) / 2 : blocks;
    if (dtype_is_int(kit_dtype_of(c, zero))) {
      zero = unpacked(c, kit_reshape(c, zero, 2, (int64_t[]){n, bytes}), bits);
      zero = kit_cast_to(c, kit_slice(c, zero, 1, 0, blocks), DT_U8);
    }
    zero = kit_reshape(c, zero, 2, (int64_t[]){n, blocks});
  }
  Nbits op = {kit_reshape(c, kit_in(c, 1), 2, (int64_t[]){n, blocks * block * bits / 8}),
              kit_reshape(c, kit_in(c, 2), 2, (int64_t[]){n, blocks}),
              zero,
              bits,
              block,
              onnx_attr_int(c, "accuracy_level", 0) == 4 ? 8 : 32};
  const Node *a = kit_opt(c, 4) ? in_order(c, kit_in(c, 0), k, &op) : kit_in(c, 0);
  const Node *y = times_nbits(c, a, n, &op);
  return kit_opt(c, 5) ? kit_add(c, y, kit_opt(c, 5)) : y;
}

const Node *onnx_dequantized(Conversion *c, const Node *x, int scale, int zero)
{
  return dequantize(c, x, kit_in(c, scale), kit_opt(c, zero), -1);
}

/* A weight (directions, in, 4 hidden) with a scale for each direction or each of its columns, as LSTM has it. */
static const Node *cell_weight(Conversion *c, const Node *w, const Node *scale, const Node *zero)
{
  int64_t n = kit_static_dim(c, w, 0);
  int64_t k = kit_static_dim(c, w, 1);
  int64_t gates = kit_static_dim(c, w, 2);
  w = kit_reshape(c, kit_swap_last(c, w), 2, (int64_t[]){n * gates, k});
  if (kit_rank_of(c, scale) == 2) scale = kit_reshape(c, scale, 1, (int64_t[]){n * gates});
  else scale = kit_op1(c, "repeat", scale, "repeats:l,axis:i", gates, 0);
  if (zero && kit_rank_of(c, zero) == 2) zero = kit_reshape(c, zero, 1, (int64_t[]){n * gates});
  else if (zero) zero = kit_op1(c, "repeat", zero, "repeats:l,axis:i", gates, 0);
  return kit_reshape(c, dequantize(c, w, scale, zero, 0), 3, (int64_t[]){n, gates, k});
}

/* The inputs of LSTM, then scale and zero point of both weights.  Its sums are of floats: every step would find
 * scales for its own data. */
static const Node *convert_dynamic_quantize_lstm(Conversion *c)
{
  const Node *in[8];
  Conversion inner = *c;
  for (int i = 0; i < 8; i++) in[i] = kit_opt(c, i);
  for (int i = 0; i < 2; i++) in[1 + i] = cell_weight(c, kit_in(c, 1 + i), kit_in(c, 8 + 2 * i), kit_opt(c, 9 + 2 * i));
  inner.in = in;
  inner.nin = 8;
  inner.op = "LSTM";
  return onnx_find("", "LSTM", 14)->convert(&inner);
}

/* input, weight, bias, input_scale, weight_scale, mask, input_zero, weight_zero, past: (x w + bias), for Attention */
const Node *onnx_quantized_projection(Conversion *c)
{
  const Node *x = dequantize(c, kit_in(c, 0), kit_in(c, 3), kit_opt(c, 6), -1);
  return kit_add(c, kit_matmul(c, x, dequantize(c, kit_in(c, 1), kit_in(c, 4), kit_opt(c, 7), -1)), kit_in(c, 2));
}

static const OnnxRow microsoft_rows[] = {
  {"DequantizeLinear", 1, convert_dequantize},
  {"DynamicQuantizeLSTM", 1, convert_dynamic_quantize_lstm},
  {"DynamicQuantizeMatMul", 1, convert_dynamic_quantize_matmul},
  {"GatherBlockQuantized", 1, convert_gather_blocks},
  {"MatMulIntegerToFloat", 1, convert_matmul_integer_to_float},
  {"MatMulNBits", 1, convert_matmul_nbits},
  {"QGemm", 1, convert_qgemm},
  {"QLinearAdd", 1, convert_qlinear_binary},
  {"QLinearAveragePool", 1, convert_qlinear_pool},
  {"QLinearConcat", 1, convert_qlinear_concat},
  {"QLinearGlobalAveragePool", 1, convert_qlinear_pool},
  {"QLinearLeakyRelu", 1, convert_qlinear_unary},
  {"QLinearMul", 1, convert_qlinear_binary},
  {"QLinearSigmoid", 1, convert_qlinear_unary},
  {"QLinearSoftmax", 1, convert_qlinear_unary},
  {"QLinearWhere", 1, convert_qlinear_where},
  {"QuantizeLinear", 1, convert_quantize},
};
ONNX_TABLE(onnx_ops_microsoft_quant, "com.microsoft", microsoft_rows);
