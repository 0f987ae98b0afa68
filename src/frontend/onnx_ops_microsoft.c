/* onnx_ops_microsoft.c: operators of com.microsoft that optimised transformer files use.
 *
 * Comes in: fused nodes.  Goes out: what they were fused from. */
#include <math.h>

#include "frontend/onnx_import.h"

/* ---- activations and fused products ------------------------------------------------------------- */

static const Node *gelu(Conversion *c, const Node *x)
{
  const Node *e = kit_op1(c, "erf", kit_mul(c, x, kit_scalar_like(c, x, M_SQRT1_2)), NULL);
  return kit_mul(c, kit_mul(c, x, kit_scalar_like(c, x, 0.5)), kit_add(c, e, kit_scalar_like(c, x, 1)));
}

static const Node *convert_gelu(Conversion *c) { return gelu(c, kit_in(c, 0)); }
static const Node *convert_bias_gelu(Conversion *c) { return gelu(c, kit_add(c, kit_in(c, 0), kit_in(c, 1))); }

/* 0.5 x (1 + tanh(0.7978845608 x + 0.035677408136 x^3)) */
static const Node *convert_fast_gelu(Conversion *c)
{
  const Node *x = kit_opt(c, 1) ? kit_add(c, kit_in(c, 0), kit_in(c, 1)) : kit_in(c, 0);
  const Node *cube = kit_mul(c, kit_mul(c, x, x), x);
  const Node *t = kit_op1(c, "tanh",
                          kit_add(c, kit_mul(c, x, kit_scalar_like(c, x, 0.7978845608028654)),
                                  kit_mul(c, cube, kit_scalar_like(c, x, 0.035677408136300125))),
                          NULL);
  return kit_mul(c, kit_mul(c, x, kit_scalar_like(c, x, 0.5)), kit_add(c, t, kit_scalar_like(c, x, 1)));
}

static const Node *convert_quick_gelu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_mul(
      c, x,
      kit_op1(c, "sigmoid", kit_mul(c, x, kit_scalar_like(c, x, onnx_attr_float(c, "alpha", (double)1.702f))), NULL));
}

static const Node *fused_activation(Conversion *c, const Node *y)
{
  const char *name = onnx_attr_str(c, "activation", "");
  int n = 0;
  const float *p = onnx_attr_floats(c, "activation_params", &n);
  if (!*name) return y;
  double alpha = p && n > 0 ? (double)p[0] : onnx_attr_float(c, "activation_alpha", 0.01);
  double beta = p && n > 1 ? (double)p[1] : onnx_attr_float(c, "activation_beta", 0);
  return onnx_activation(c, name, y, alpha, beta);
}

static const Node *convert_fused_conv(Conversion *c)
{
  Conversion inner = *c;
  inner.nin = c->nin < 3 ? c->nin : 3;
  const Node *y = onnx_find("", "Conv", 11)->convert(&inner);
  if (kit_opt(c, 3)) y = kit_add(c, y, kit_opt(c, 3));
  return fused_activation(c, y);
}

static const Node *convert_fused_gemm(Conversion *c)
{
  return fused_activation(c, onnx_find("", "Gemm", 11)->convert(c));
}

static const Node *convert_fused_matmul(Conversion *c)
{
  const Node *a = kit_in(c, 0);
  const Node *b = kit_in(c, 1);
  double alpha = onnx_attr_float(c, "alpha", 1);
  if (onnx_attr_int(c, "transBatchA", 0)) a = kit_move_axis(c, a, 0, kit_rank_of(c, a) - 2);
  if (onnx_attr_int(c, "transBatchB", 0)) b = kit_move_axis(c, b, 0, kit_rank_of(c, b) - 2);
  if (onnx_attr_int(c, "transA", 0)) a = kit_swap_last(c, a);
  if (onnx_attr_int(c, "transB", 0)) b = kit_swap_last(c, b);
  const Node *y = kit_matmul(c, a, b);
  return alpha == 1 ? y : kit_mul(c, y, kit_scalar_like(c, y, alpha));
}

/* int16 by int16 (or uint16), summed in int32 */
static const Node *convert_matmul_integer16(Conversion *c)
{
  return kit_matmul(c, kit_cast_to(c, kit_in(c, 0), DT_I32), kit_cast_to(c, kit_in(c, 1), DT_I32));
}

/* ---- normalisations ---------------------------------------------------------------------------------- */

static const Node *layer_norm(Conversion *c, const Node *x, const Node *gamma, const Node *beta, double epsilon)
{
  if (!beta) beta = kit_full(c, kit_scalar_like(c, gamma, 0), kit_shape_of(c, gamma), kit_dtype_of(c, gamma));
  return kit_op3(c, "nn.layer_norm", x, gamma, beta, "axis:i,epsilon:f", kit_rank_of(c, x) - 1, epsilon);
}

static const Node *rms_norm(Conversion *c, const Node *x, const Node *gamma, double epsilon)
{
  const Node *square = kit_reduce1(c, "mean", kit_mul(c, x, x), kit_rank_of(c, x) - 1, true);
  return kit_mul(c, kit_div(c, x, kit_sqrt(c, kit_add(c, square, kit_scalar_like(c, x, epsilon)))), gamma);
}

/* input, skip, gamma, beta, bias; the sum is output 3. */
static const Node *convert_skip_layer_norm(Conversion *c)
{
  const Node *x = kit_add(c, kit_in(c, 0), kit_in(c, 1));
  if (kit_opt(c, 4)) x = kit_add(c, x, kit_opt(c, 4));
  c->out[3] = x;
  return layer_norm(c, x, kit_in(c, 2), kit_opt(c, 3), onnx_attr_float(c, "epsilon", 1e-12));
}

static const Node *convert_skip_rms_norm(Conversion *c)
{
  const Node *x = kit_add(c, kit_in(c, 0), kit_in(c, 1));
  if (kit_opt(c, 3)) x = kit_add(c, x, kit_opt(c, 3));
  c->out[3] = x;
  return rms_norm(c, x, kit_in(c, 2), onnx_attr_float(c, "epsilon", 1e-5));
}

static const Node *convert_rms_norm(Conversion *c)
{
  return rms_norm(c, kit_in(c, 0), kit_in(c, 1), onnx_attr_float(c, "epsilon", 1e-5));
}

/* x, which is of input i, in floats: the quantized form has its scale at i + 6 and its zero point at i + 11. */
static const Node *embedded(Conversion *c, int i, const Node *x)
{
  return *onnx_node(c)->op_type == 'Q' ? onnx_dequantized(c, x, i + 6, i + 11) : x;
}

/* input_ids, segment_ids, word, position, segment, gamma, beta, mask, position_ids (the quantized form has none) */
static const Node *convert_embed_layer_norm(Conversion *c)
{
  const Node *ids = kit_in(c, 0);
  const Node *segments = kit_opt(c, 1);
  const Node *position = kit_in(c, 3);
  const Node *segment = kit_opt(c, 4);
  const Node *mask = kit_opt(c, 7);
  const Node *at = *onnx_node(c)->op_type == 'Q' ? NULL : kit_opt(c, 8);
  const Node *x = embedded(c, 2, kit_take(c, kit_in(c, 2), ids, 0));
  const Node *length = kit_shape_part(c, ids, 1, 2);
  const Node *places =
      at ? kit_take(c, position, at, 0) : kit_slice_to(c, position, 0, kit_const_i64(c, 1, (int64_t[]){0}), length);
  x = kit_add(c, x, embedded(c, 3, places));
  if (segments && segment) x = kit_add(c, x, embedded(c, 4, kit_take(c, segment, segments, 0)));
  c->out[2] = x;
  c->out[1] = mask ? kit_cast_to(c, kit_reduce1(c, "sum", kit_cast_to(c, mask, DT_I32), 1, false), DT_I32)
                   : kit_full(c, kit_scalar(c, DT_I32, 0), kit_shape_part(c, ids, 0, 1), DT_I32);
  const Node *beta = kit_opt(c, 6) ? embedded(c, 6, kit_opt(c, 6)) : NULL;
  return layer_norm(c, x, embedded(c, 5, kit_in(c, 5)), beta, onnx_attr_float(c, "epsilon", 1e-12));
}

/* ---- attention --------------------------------------------------------------------------------------------- */

static const Node *heads_of(Conversion *c, const Node *x, int64_t heads)
{
  int64_t width = kit_static_dim(c, x, 2);
  if (heads < 1 || width % heads)
    kit_fail(c, ERR_SHAPE, "%" PRId64 " columns do not make %" PRId64 " heads", width, heads);
  return kit_transpose(c, kit_reshape(c, x, 4, (int64_t[]){0, 0, heads, width / heads}), 4, (int[]){0, 2, 1, 3});
}

/* Lengths of the sequences as a mask of the keys, (batch, keys). */
static const Node *mask_of_lengths(Conversion *c, const Node *lengths, const Node *k)
{
  const Expr *n = kit_dim_of(c, lengths, 0);
  const Expr *batch = kit_dim_of(c, k, 0);
  if (n != batch && !(n->kind == E_INT && batch->kind == E_INT && n->u.i == batch->u.i))
    kit_fail(c, ERR_UNSUPPORTED, "the mask is a %s; of lengths there must be one for each sequence",
             type_text(scratch(c->ctx), lengths->type));
  const Node *at = kit_iota(c, kit_scalar_of(c, kit_shape_part(c, k, 2, 3)), DT_I64);
  return kit_cast_to(c, kit_less(c, kit_unsqueeze(c, at, 0), kit_unsqueeze(c, kit_cast_to(c, lengths, DT_I64), 1)),
                     DT_I32);
}

/* A mask of 1 and 0 over the keys: (batch, keys) or (batch, queries, keys); what is masked gets a large negative
 * score. */
static const Node *mask_scores(Conversion *c, const Node *scores, const Node *mask, const Node *k, double off)
{
  DType dt = kit_dtype_of(c, scores);
  if (kit_rank_of(c, mask) == 1) mask = mask_of_lengths(c, mask, k);
  int rank = kit_rank_of(c, mask);
  mask = kit_sub(c, kit_scalar(c, dt, 1), kit_cast_to(c, mask, dt));
  mask = rank == 2   ? kit_op1(c, "expand_dims", mask, "axis:i,num_newaxis:i", 1, 2)
         : rank == 3 ? kit_unsqueeze(c, mask, 1)
                     : mask;
  return kit_add(c, scores, kit_mul(c, mask, kit_scalar(c, dt, off)));
}

static const Node *attend(Conversion *c, const Node *q, const Node *k, const Node *v, const Node *mask,
                          const Node *bias)
{
  double scale = onnx_attr_float(c, "scale", 0);
  double off = onnx_attr_float(c, "mask_filter_value", -10000);
  if (scale == 0) scale = 1 / sqrt((double)kit_static_dim(c, q, 3));
  const Node *scores = kit_mul(c, kit_matmul(c, q, kit_swap_last(c, k)), kit_scalar_like(c, q, scale));
  if (bias) scores = kit_add(c, scores, bias);
  if (mask) scores = mask_scores(c, scores, mask, k, off);
  if (onnx_attr_int(c, "unidirectional", 0)) {
    const Node *i = kit_iota(c, kit_scalar_of(c, kit_shape_part(c, q, 2, 3)), DT_I64);
    const Node *j = kit_iota(c, kit_scalar_of(c, kit_shape_part(c, k, 2, 3)), DT_I64);
    const Node *past = kit_sub(c, kit_shape_part(c, k, 2, 3), kit_shape_part(c, q, 2, 3));
    const Node *seen = kit_op2(c, "less_equal", kit_unsqueeze(c, j, 0), kit_unsqueeze(c, kit_add(c, i, past), 1), NULL);
    scores = kit_where(c, seen, scores, kit_scalar_like(c, scores, off));
  }
  const Node *y = kit_transpose(c, kit_matmul(c, kit_softmax(c, scores, 3), v), 4, (int[]){0, 2, 1, 3});
  return kit_reshape(c, y, 3, (int64_t[]){0, 0, kit_static_dim(c, y, 2) * kit_static_dim(c, y, 3)});
}

static const Node *packed_attention(Conversion *c, const Node *qkv, const Node *mask, const Node *past,
                                    const Node *bias)
{
  int64_t heads = onnx_attr_int(c, "num_heads", 0);
  int64_t width = kit_static_dim(c, qkv, 2);
  int n = 0;
  const int64_t *sizes = onnx_attr_ints(c, "qkv_hidden_sizes", &n);
  int64_t wq = sizes && n == 3 ? sizes[0] : width / 3;
  int64_t wk = sizes && n == 3 ? sizes[1] : width / 3;
  const Node *q = heads_of(c, kit_slice(c, qkv, 2, 0, wq), heads);
  const Node *k = heads_of(c, kit_slice(c, qkv, 2, wq, wq + wk), heads);
  const Node *v = heads_of(c, kit_slice(c, qkv, 2, wq + wk, width), heads);
  if (past) { /* (2, batch, heads, length, size) */
    k = kit_concat2(c, kit_squeeze(c, kit_slice(c, past, 0, 0, 1), 0), k, 2);
    v = kit_concat2(c, kit_squeeze(c, kit_slice(c, past, 0, 1, 2), 0), v, 2);
  }
  if (c->nout > 1) c->out[1] = kit_concat2(c, kit_unsqueeze(c, k, 0), kit_unsqueeze(c, v, 0), 0);
  return attend(c, q, k, v, mask, bias);
}

/* input, weights, bias, mask_index, past, bias of the scores */
static const Node *convert_attention(Conversion *c)
{
  const Node *qkv = kit_matmul(c, kit_in(c, 0), kit_in(c, 1));
  if (kit_opt(c, 2)) qkv = kit_add(c, qkv, kit_opt(c, 2));
  return packed_attention(c, qkv, kit_opt(c, 3), kit_opt(c, 4), kit_opt(c, 5));
}

/* Part `at` of tensors packed as (batch, length, heads, parts, size): (batch, heads, length, size). */
static const Node *packed_part(Conversion *c, const Node *x, int at)
{
  return kit_transpose(c, kit_squeeze(c, kit_slice(c, x, 3, at, at + 1), 3), 4, (int[]){0, 2, 1, 3});
}

/* (batch, length, heads * size) with its part of the bias -> (batch, heads, length, size); four dimensions are so
 * already. */
static const Node *projected(Conversion *c, const Node *x, const Node *bias, int64_t begin, int64_t heads)
{
  if (kit_rank_of(c, x) == 4) return x;
  if (bias) x = kit_add(c, x, kit_slice(c, bias, 0, begin, begin + kit_static_dim(c, x, 2)));
  return heads_of(c, x, heads);
}

/* query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value */
static const Node *convert_multi_head_attention(Conversion *c)
{
  const Node *q = kit_in(c, 0);
  const Node *k = kit_opt(c, 1);
  const Node *v = kit_opt(c, 2);
  const Node *bias = kit_opt(c, 3);
  const Node *past_k = kit_opt(c, 6);
  const Node *past_v = kit_opt(c, 7);
  int64_t heads = onnx_attr_int(c, "num_heads", 0);
  if (kit_opt(c, 8) || kit_opt(c, 9) || c->nout > 3)
    kit_fail(c, ERR_UNSUPPORTED, "past_sequence_length, cache_indirection and the scores as an output are not known");
  if (!past_k != !past_v) kit_fail(c, ERR_ARGUMENT, "past_key and past_value go together");
  if (kit_rank_of(c, q) == 5) {
    v = packed_part(c, q, 2);
    k = packed_part(c, q, 1);
    q = packed_part(c, q, 0);
  } else {
    if (!k || (kit_rank_of(c, k) != 5 && !v)) kit_fail(c, ERR_ARGUMENT, "key and value are missing");
    int64_t width = kit_static_dim(c, q, 2);
    q = projected(c, q, bias, 0, heads);
    if (kit_rank_of(c, k) == 5) {
      v = packed_part(c, k, 1);
      k = packed_part(c, k, 0);
    } else {
      k = projected(c, k, bias, width, heads);
      v = projected(c, v, bias, 2 * width, heads);
    }
  }
  if (past_k) k = kit_concat2(c, past_k, k, 2);
  if (past_v) v = kit_concat2(c, past_v, v, 2);
  c->out[1] = k;
  c->out[2] = v;
  return attend(c, q, k, v, kit_opt(c, 4), kit_opt(c, 5));
}

/* input, weight, bias, input_scale, weight_scale, mask, input_zero, weight_zero, past */
static const Node *convert_qattention(Conversion *c)
{
  return packed_attention(c, onnx_quantized_projection(c), kit_opt(c, 5), kit_opt(c, 8), NULL);
}

/* input, position_ids, cos_cache, sin_cache: the same as ONNX's own, its operands in another order.  Positions
 * of rank 1 are the first one's; without num_heads a head is as wide as the caches say. */
static const Node *convert_rotary(Conversion *c)
{
  const Node *at = kit_in(c, 1);
  const Node *x = kit_in(c, 0);
  const Node *given = x;
  int64_t heads = onnx_attr_int(c, "num_heads", 0);
  bool split = kit_rank_of(c, x) == 3 && heads == 0;
  if (split) x = heads_of(c, x, kit_static_dim(c, x, 2) / (2 * kit_static_dim(c, kit_in(c, 2), 1)));
  if (kit_rank_of(c, at) == 1) {
    int axis = kit_rank_of(c, x) == 3 ? 1 : 2;
    const Node *length = kit_shape_part(c, x, axis, axis + 1);
    const Node *row =
        kit_add(c, kit_iota(c, kit_scalar_of(c, length), DT_I64), kit_cast_to(c, kit_scalar_of(c, at), DT_I64));
    at = kit_broadcast_to(c, kit_unsqueeze(c, row, 0), kit_concat2(c, kit_shape_part(c, x, 0, 1), length, 0));
  }
  const Node *in[4] = {x, kit_in(c, 2), kit_in(c, 3), at};
  Conversion inner = *c;
  inner.in = in;
  inner.nin = 4;
  const Node *y = onnx_find("", "RotaryEmbedding", 23)->convert(&inner);
  return split ? kit_op2(c, "reshape_like", kit_transpose(c, y, 4, (int[]){0, 2, 1, 3}), given, NULL) : y;
}

static const OnnxRow rows[] = {
  {"Attention", 1, convert_attention},
  {"BiasGelu", 1, convert_bias_gelu},
  {"EmbedLayerNormalization", 1, convert_embed_layer_norm},
  {"FastGelu", 1, convert_fast_gelu},
  {"FusedConv", 1, convert_fused_conv},
  {"FusedGemm", 1, convert_fused_gemm},
  {"FusedMatMul", 1, convert_fused_matmul},
  {"Gelu", 1, convert_gelu},
  {"MatMulInteger16", 1, convert_matmul_integer16},
  {"MultiHeadAttention", 1, convert_multi_head_attention},
  {"QAttention", 1, convert_qattention},
  {"QEmbedLayerNormalization", 1, convert_embed_layer_norm},
  {"QuickGelu", 1, convert_quick_gelu},
  {"RotaryEmbedding", 1, convert_rotary},
  {"SimplifiedLayerNormalization", 1, convert_rms_norm},
  {"SkipLayerNormalization", 1, convert_skip_layer_norm},
  {"SkipSimplifiedLayerNormalization", 1, convert_skip_rms_norm},
};
ONNX_TABLE(onnx_ops_microsoft, "com.microsoft", rows);
