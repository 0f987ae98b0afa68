/* onnx_ops_microsoft.c: operators of com.microsoft that optimised transformer files use.
 *
 * Comes in: fused nodes.  Goes out: what they were fused from. */
#include <math.h>

#include "frontend/onnx_import.h"

/* ---- activations and fused products ------------------------------------------------------------- */

static const Node *gelu(Conv *c, const Node *x)
{
  const Node *e = op1(c, "erf", mul(c, x, scalar_like(c, x, M_SQRT1_2)), NULL);
  return mul(c, mul(c, x, scalar_like(c, x, 0.5)), add(c, e, scalar_like(c, x, 1)));
}

static const Node *convert_gelu(Conv *c) { return gelu(c, conv_in(c, 0)); }
static const Node *convert_bias_gelu(Conv *c) { return gelu(c, add(c, conv_in(c, 0), conv_in(c, 1))); }

/* 0.5 x (1 + tanh(0.7978845608 x + 0.035677408136 x^3)) */
static const Node *convert_fast_gelu(Conv *c)
{
  const Node *x = conv_opt(c, 1) ? add(c, conv_in(c, 0), conv_in(c, 1)) : conv_in(c, 0);
  const Node *cube = mul(c, mul(c, x, x), x);
  const Node *t = op1(
      c, "tanh",
      add(c, mul(c, x, scalar_like(c, x, 0.7978845608028654)), mul(c, cube, scalar_like(c, x, 0.035677408136300125))),
      NULL);
  return mul(c, mul(c, x, scalar_like(c, x, 0.5)), add(c, t, scalar_like(c, x, 1)));
}

static const Node *convert_quick_gelu(Conv *c)
{
  const Node *x = conv_in(c, 0);
  return mul(c, x, op1(c, "sigmoid", mul(c, x, scalar_like(c, x, attr_float(c, "alpha", (double)1.702f))), NULL));
}

static const Node *fused_activation(Conv *c, const Node *y)
{
  const char *name = attr_str(c, "activation", "");
  int n = 0;
  const float *p = attr_floats(c, "activation_params", &n);
  if (!*name) return y;
  double alpha = p && n > 0 ? (double)p[0] : attr_float(c, "activation_alpha", 0.01);
  double beta = p && n > 1 ? (double)p[1] : attr_float(c, "activation_beta", 0);
  return activation(c, name, y, alpha, beta);
}

static const Node *convert_fused_conv(Conv *c)
{
  Conv inner = *c;
  inner.nin = c->nin < 3 ? c->nin : 3;
  const Node *y = onnx_find("", "Conv", 11)->convert(&inner);
  if (conv_opt(c, 3)) y = add(c, y, conv_opt(c, 3));
  return fused_activation(c, y);
}

static const Node *convert_fused_gemm(Conv *c) { return fused_activation(c, onnx_find("", "Gemm", 11)->convert(c)); }

static const Node *convert_fused_matmul(Conv *c)
{
  const Node *a = conv_in(c, 0);
  const Node *b = conv_in(c, 1);
  double alpha = attr_float(c, "alpha", 1);
  if (attr_int(c, "transBatchA", 0)) a = move_axis(c, a, 0, rank_of(c, a) - 2);
  if (attr_int(c, "transBatchB", 0)) b = move_axis(c, b, 0, rank_of(c, b) - 2);
  if (attr_int(c, "transA", 0)) a = swap_last(c, a);
  if (attr_int(c, "transB", 0)) b = swap_last(c, b);
  const Node *y = matmul(c, a, b);
  return alpha == 1 ? y : mul(c, y, scalar_like(c, y, alpha));
}

/* int16 by int16 (or uint16), summed in int32 */
static const Node *convert_matmul_integer16(Conv *c)
{
  return matmul(c, cast_to(c, conv_in(c, 0), DT_I32), cast_to(c, conv_in(c, 1), DT_I32));
}

/* ---- normalisations ---------------------------------------------------------------------------------- */

static const Node *layer_norm(Conv *c, const Node *x, const Node *gamma, const Node *beta, double epsilon)
{
  if (!beta) beta = full(c, scalar_like(c, gamma, 0), shape_of(c, gamma), dtype_of(c, gamma));
  return op3(c, "nn.layer_norm", x, gamma, beta, "axis:i,epsilon:f", rank_of(c, x) - 1, epsilon);
}

static const Node *rms_norm(Conv *c, const Node *x, const Node *gamma, double epsilon)
{
  const Node *square = reduce1(c, "mean", mul(c, x, x), rank_of(c, x) - 1, true);
  return mul(c, div_(c, x, sqrt_(c, add(c, square, scalar_like(c, x, epsilon)))), gamma);
}

/* input, skip, gamma, beta, bias; the sum is output 3. */
static const Node *convert_skip_layer_norm(Conv *c)
{
  const Node *x = add(c, conv_in(c, 0), conv_in(c, 1));
  if (conv_opt(c, 4)) x = add(c, x, conv_opt(c, 4));
  c->out[3] = x;
  return layer_norm(c, x, conv_in(c, 2), conv_opt(c, 3), attr_float(c, "epsilon", 1e-12));
}

static const Node *convert_skip_rms_norm(Conv *c)
{
  const Node *x = add(c, conv_in(c, 0), conv_in(c, 1));
  if (conv_opt(c, 3)) x = add(c, x, conv_opt(c, 3));
  c->out[3] = x;
  return rms_norm(c, x, conv_in(c, 2), attr_float(c, "epsilon", 1e-5));
}

static const Node *convert_rms_norm(Conv *c)
{
  return rms_norm(c, conv_in(c, 0), conv_in(c, 1), attr_float(c, "epsilon", 1e-5));
}

/* input_ids, segment_ids, word, position, segment, gamma, beta, mask, position_ids */
static const Node *convert_embed_layer_norm(Conv *c)
{
  const Node *ids = conv_in(c, 0);
  const Node *segments = conv_opt(c, 1);
  const Node *word = conv_in(c, 2);
  const Node *position = conv_in(c, 3);
  const Node *segment = conv_opt(c, 4);
  const Node *mask = conv_opt(c, 7);
  const Node *at = conv_opt(c, 8);
  const Node *x = take(c, word, ids, 0);
  const Node *length = shape_part(c, ids, 1, 2);
  x = add(c, x, at ? take(c, position, at, 0) : slice_to(c, position, 0, const_i64(c, 1, (int64_t[]){0}), length));
  if (segments && segment) x = add(c, x, take(c, segment, segments, 0));
  c->out[2] = x;
  c->out[1] = mask ? cast_to(c, reduce1(c, "sum", cast_to(c, mask, DT_I32), 1, false), DT_I32)
                   : full(c, scalar(c, DT_I32, 0), shape_part(c, ids, 0, 1), DT_I32);
  return layer_norm(c, x, conv_in(c, 5), conv_opt(c, 6), attr_float(c, "epsilon", 1e-12));
}

/* ---- attention --------------------------------------------------------------------------------------------- */

static const Node *heads_of(Conv *c, const Node *x, int64_t heads)
{
  int64_t width = static_dim(c, x, 2);
  if (heads < 1 || width % heads)
    conv_fail(c, ERR_SHAPE, "%" PRId64 " columns do not make %" PRId64 " heads", width, heads);
  return transpose(c, reshape(c, x, 4, (int64_t[]){0, 0, heads, width / heads}), 4, (int[]){0, 2, 1, 3});
}

/* Lengths of the sequences as a mask of the keys, (batch, keys). */
static const Node *mask_of_lengths(Conv *c, const Node *lengths, const Node *k)
{
  const Expr *n = dim_of(c, lengths, 0);
  const Expr *batch = dim_of(c, k, 0);
  if (n != batch && !(n->kind == E_INT && batch->kind == E_INT && n->u.i == batch->u.i))
    conv_fail(c, ERR_UNSUPPORTED, "the mask is a %s; of lengths there must be one for each sequence",
              type_text(scratch(c->ctx), lengths->type));
  const Node *at = iota(c, scalar_of(c, shape_part(c, k, 2, 3)), DT_I64);
  return cast_to(c, less(c, unsqueeze(c, at, 0), unsqueeze(c, cast_to(c, lengths, DT_I64), 1)), DT_I32);
}

/* A mask of 1 and 0 over the keys: (batch, keys) or (batch, queries, keys); what is masked gets a large negative
 * score. */
static const Node *mask_scores(Conv *c, const Node *scores, const Node *mask, const Node *k, double off)
{
  DType dt = dtype_of(c, scores);
  if (rank_of(c, mask) == 1) mask = mask_of_lengths(c, mask, k);
  int rank = rank_of(c, mask);
  mask = sub(c, scalar(c, dt, 1), cast_to(c, mask, dt));
  mask = rank == 2   ? op1(c, "expand_dims", mask, "axis:i,num_newaxis:i", 1, 2)
         : rank == 3 ? unsqueeze(c, mask, 1)
                     : mask;
  return add(c, scores, mul(c, mask, scalar(c, dt, off)));
}

static const Node *attend(Conv *c, const Node *q, const Node *k, const Node *v, const Node *mask, const Node *bias)
{
  double scale = attr_float(c, "scale", 0);
  double off = attr_float(c, "mask_filter_value", -10000);
  if (scale == 0) scale = 1 / sqrt((double)static_dim(c, q, 3));
  const Node *scores = mul(c, matmul(c, q, swap_last(c, k)), scalar_like(c, q, scale));
  if (bias) scores = add(c, scores, bias);
  if (mask) scores = mask_scores(c, scores, mask, k, off);
  if (attr_int(c, "unidirectional", 0)) {
    const Node *i = iota(c, scalar_of(c, shape_part(c, q, 2, 3)), DT_I64);
    const Node *j = iota(c, scalar_of(c, shape_part(c, k, 2, 3)), DT_I64);
    const Node *past = sub(c, shape_part(c, k, 2, 3), shape_part(c, q, 2, 3));
    const Node *seen = op2(c, "less_equal", unsqueeze(c, j, 0), unsqueeze(c, add(c, i, past), 1), NULL);
    scores = where(c, seen, scores, scalar_like(c, scores, off));
  }
  const Node *y = transpose(c, matmul(c, softmax(c, scores, 3), v), 4, (int[]){0, 2, 1, 3});
  return reshape(c, y, 3, (int64_t[]){0, 0, static_dim(c, y, 2) * static_dim(c, y, 3)});
}

static const Node *packed_attention(Conv *c, const Node *qkv, const Node *mask, const Node *past, const Node *bias)
{
  int64_t heads = attr_int(c, "num_heads", 0);
  int64_t width = static_dim(c, qkv, 2);
  int n = 0;
  const int64_t *sizes = attr_ints(c, "qkv_hidden_sizes", &n);
  int64_t wq = sizes && n == 3 ? sizes[0] : width / 3;
  int64_t wk = sizes && n == 3 ? sizes[1] : width / 3;
  const Node *q = heads_of(c, slice(c, qkv, 2, 0, wq), heads);
  const Node *k = heads_of(c, slice(c, qkv, 2, wq, wq + wk), heads);
  const Node *v = heads_of(c, slice(c, qkv, 2, wq + wk, width), heads);
  if (past) { /* (2, batch, heads, length, size) */
    k = concat2(c, squeeze(c, slice(c, past, 0, 0, 1), 0), k, 2);
    v = concat2(c, squeeze(c, slice(c, past, 0, 1, 2), 0), v, 2);
  }
  if (c->nout > 1) c->out[1] = concat2(c, unsqueeze(c, k, 0), unsqueeze(c, v, 0), 0);
  return attend(c, q, k, v, mask, bias);
}

/* input, weights, bias, mask_index, past, bias of the scores */
static const Node *convert_attention(Conv *c)
{
  const Node *qkv = matmul(c, conv_in(c, 0), conv_in(c, 1));
  if (conv_opt(c, 2)) qkv = add(c, qkv, conv_opt(c, 2));
  return packed_attention(c, qkv, conv_opt(c, 3), conv_opt(c, 4), conv_opt(c, 5));
}

/* input, weight, bias, input_scale, weight_scale, mask, input_zero, weight_zero, past */
static const Node *convert_qattention(Conv *c)
{
  const Node *x = cast_to(c, conv_in(c, 0), DT_I32);
  const Node *w = cast_to(c, conv_in(c, 1), DT_I32);
  const Node *xz = conv_opt(c, 6);
  const Node *wz = conv_opt(c, 7);
  if (xz) x = sub(c, x, cast_to(c, scalar_of(c, xz), DT_I32));
  if (wz)
    w = sub(c, w, cast_to(c, rank_of(c, wz) && !expr_is_int(dim_of(c, wz, 0), 1) ? wz : scalar_of(c, wz), DT_I32));
  const Node *ws = conv_in(c, 4);
  const Node *scale =
      mul(c, scalar_of(c, conv_in(c, 3)), rank_of(c, ws) && !expr_is_int(dim_of(c, ws, 0), 1) ? ws : scalar_of(c, ws));
  const Node *qkv = add(c, mul(c, cast_to(c, matmul(c, x, w), DT_F32), scale), conv_in(c, 2));
  return packed_attention(c, qkv, conv_opt(c, 5), conv_opt(c, 8), NULL);
}

/* input, position_ids, cos_cache, sin_cache: the same as ONNX's own, its operands in another order.  Positions
 * of rank 1 are the first one's; without num_heads a head is as wide as the caches say. */
static const Node *convert_rotary(Conv *c)
{
  const Node *at = conv_in(c, 1);
  const Node *x = conv_in(c, 0);
  const Node *given = x;
  int64_t heads = attr_int(c, "num_heads", 0);
  bool split = rank_of(c, x) == 3 && heads == 0;
  if (split) x = heads_of(c, x, static_dim(c, x, 2) / (2 * static_dim(c, conv_in(c, 2), 1)));
  if (rank_of(c, at) == 1) {
    int axis = rank_of(c, x) == 3 ? 1 : 2;
    const Node *length = shape_part(c, x, axis, axis + 1);
    const Node *row = add(c, iota(c, scalar_of(c, length), DT_I64), cast_to(c, scalar_of(c, at), DT_I64));
    at = broadcast_to(c, unsqueeze(c, row, 0), concat2(c, shape_part(c, x, 0, 1), length, 0));
  }
  const Node *in[4] = {x, conv_in(c, 2), conv_in(c, 3), at};
  Conv inner = *c;
  inner.in = in;
  inner.nin = 4;
  const Node *y = onnx_find("", "RotaryEmbedding", 23)->convert(&inner);
  return split ? op2(c, "reshape_like", transpose(c, y, 4, (int[]){0, 2, 1, 3}), given, NULL) : y;
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
  {"QAttention", 1, convert_qattention},
  {"QuickGelu", 1, convert_quick_gelu},
  {"RotaryEmbedding", 1, convert_rotary},
  {"SimplifiedLayerNormalization", 1, convert_rms_norm},
  {"SkipLayerNormalization", 1, convert_skip_layer_norm},
  {"SkipSimplifiedLayerNormalization", 1, convert_skip_rms_norm},
};
ONNX_TABLE(onnx_microsoft, "com.microsoft", rows);
