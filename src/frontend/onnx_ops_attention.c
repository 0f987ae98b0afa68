/* onnx_ops_attention.c: attention and rotary embeddings.
 *
 * Comes in: query, key and value as (batch, heads, length, size), or packed as (batch,
 * length, heads * size).  Goes out: products, a softmax and what masks it:
 *
 *   softmax(softcap(Q K^T scale) + bias) V
 *
 * where a row whose bias is -inf throughout attends to nothing and gives zeros. */
#include <math.h>

#include "frontend/onnx_import.h"

/* (batch, length, heads * size) -> (batch, heads, length, size) */
static const Node *split_heads(Conversion *c, const Node *x, int64_t heads)
{
  if (kit_rank_of(c, x) == 4) return x;
  if (heads < 1) kit_fail(c, ERR_ARGUMENT, "inputs of rank 3 need the number of heads");
  int64_t width = kit_static_dim(c, x, 2);
  if (width % heads) kit_fail(c, ERR_SHAPE, "%" PRId64 " columns do not make %" PRId64 " heads", width, heads);
  x = kit_reshape(c, x, 4, (int64_t[]){0, 0, heads, width / heads});
  return kit_transpose(c, x, 4, (int[]){0, 2, 1, 3});
}

static const Node *join_heads(Conversion *c, const Node *x)
{
  int64_t width = kit_static_dim(c, x, 1) * kit_static_dim(c, x, 3);
  return kit_reshape(c, kit_transpose(c, x, 4, (int[]){0, 2, 1, 3}), 3, (int64_t[]){0, 0, width});
}

/* Each key head serves a group of query heads. */
static const Node *repeat_heads(Conversion *c, const Node *x, int64_t heads)
{
  int64_t have = kit_static_dim(c, x, 1);
  if (have == heads) return x;
  if (have < 1 || heads % have)
    kit_fail(c, ERR_SHAPE, "%" PRId64 " query heads cannot share %" PRId64 " key heads", heads, have);
  return kit_op1(c, "repeat", x, "repeats:l,axis:i", heads / have, 1);
}

typedef struct Mask {
  const Node *bias; /* added to the scores; NULL: nothing */
  bool may_empty;   /* may a row be masked throughout? */
} Mask;

static void mask_where(Conversion *c, Mask *m, const Node *allowed, DType dt)
{
  const Node *b = kit_where(c, allowed, kit_scalar(c, dt, 0), kit_scalar(c, dt, -INFINITY));
  m->bias = m->bias ? kit_add(c, m->bias, b) : b;
}

/* A mask may end before the keys do: what it does not name is not attended. */
static const Node *lengthen_mask(Conversion *c, const Node *mask, const Node *k)
{
  int rank = kit_rank_of(c, mask);
  int64_t have, want;
  if (!rank || !kit_is_static_dim(kit_dim_of(c, mask, -1), &have) || !kit_is_static_dim(kit_dim_of(c, k, 2), &want) ||
      have >= want || have == 1)
    return mask;
  int64_t zero[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  after[rank - 1] = want - have;
  if (!dtype_is_bool(kit_dtype_of(c, mask))) return kit_pad(c, mask, rank, zero, after, -INFINITY);
  return kit_cast_to(c, kit_pad(c, kit_cast_to(c, mask, DT_U8), rank, zero, after, 0), DT_BOOL);
}

/* Position of each query among the keys, minus that of each key: (length, keys) or (batch, 1, length, keys). */
static const Node *distances(Conversion *c, const Node *q, const Node *k, const Node *offset)
{
  const Node *i = kit_unsqueeze(c, kit_iota(c, kit_scalar_of(c, kit_shape_part(c, q, 2, 3)), DT_I64), 1);
  const Node *j = kit_unsqueeze(c, kit_iota(c, kit_scalar_of(c, kit_shape_part(c, k, 2, 3)), DT_I64), 0);
  if (offset) i = kit_add(c, i, kit_rank_of(c, offset) ? kit_unsqueeze_to(c, offset, 0, 4) : offset);
  return kit_sub(c, i, j);
}

static Mask attention_mask(Conversion *c, const Node *q, const Node *k, const Node *past)
{
  const Node *mask = kit_opt(c, 3);
  const Node *valid = kit_opt(c, 6);
  const Node *offset = NULL;
  DType dt = kit_dtype_of(c, q);
  Mask m = {NULL, false};
  int64_t left = onnx_attr_int(c, "left_window_size", -1);
  int64_t right = onnx_attr_int(c, "right_window_size", -1);
  bool causal = onnx_attr_int(c, "is_causal", 0);
  if (mask) {
    mask = lengthen_mask(c, mask, k);
    m.may_empty = true;
    if (dtype_is_bool(kit_dtype_of(c, mask))) mask_where(c, &m, mask, dt);
    else m.bias = kit_cast_to(c, mask, dt);
  }
  if (past) offset = kit_scalar_of(c, kit_shape_part(c, past, 2, 3));
  else if (valid) offset = kit_sub(c, kit_cast_to(c, valid, DT_I64), kit_shape_part(c, q, 2, 3));
  if (causal || left >= 0 || right >= 0) {
    const Node *d = distances(c, q, k, offset);
    if (causal) mask_where(c, &m, kit_op2(c, "greater_equal", d, kit_scalar(c, DT_I64, 0), NULL), dt);
    if (left >= 0) mask_where(c, &m, kit_op2(c, "less_equal", d, kit_scalar(c, DT_I64, (double)left), NULL), dt);
    if (right >= 0) mask_where(c, &m, kit_op2(c, "greater_equal", d, kit_scalar(c, DT_I64, (double)-right), NULL), dt);
    m.may_empty = m.may_empty || left >= 0 || right >= 0 || valid;
  }
  if (valid) {
    const Node *j = kit_iota(c, kit_scalar_of(c, kit_shape_part(c, k, 2, 3)), DT_I64);
    mask_where(c, &m, kit_less(c, j, kit_unsqueeze_to(c, kit_cast_to(c, valid, DT_I64), 0, 4)), dt);
    m.may_empty = true;
  }
  return m;
}

static const Node *masked_softmax(Conversion *c, const Node *scores, const Mask *m, DType precision)
{
  const Node *p = kit_softmax(c, kit_cast_to(c, scores, precision), 3);
  if (!m->bias || !m->may_empty) return p;
  const Node *best = kit_reduce1(c, "max", m->bias, kit_rank_of(c, m->bias) - 1, true);
  return kit_where(c, kit_op2(c, "equal", best, kit_scalar_like(c, best, -INFINITY), NULL), kit_scalar(c, precision, 0),
                   p);
}

static const Node *convert_attention(Conversion *c)
{
  const Node *q = kit_in(c, 0);
  const Node *k = kit_in(c, 1);
  const Node *v = kit_in(c, 2);
  const Node *past_k = kit_opt(c, 4);
  const Node *past_v = kit_opt(c, 5);
  bool packed = kit_rank_of(c, q) == 3;
  int64_t heads = onnx_attr_int(c, "q_num_heads", 0);
  int64_t kv_heads = onnx_attr_int(c, "kv_num_heads", 0);
  int64_t mode = onnx_attr_int(c, "qk_matmul_output_mode", 0);
  q = split_heads(c, q, heads);
  k = split_heads(c, k, kv_heads);
  v = split_heads(c, v, kv_heads);
  if (!past_k != !past_v) kit_fail(c, ERR_ARGUMENT, "past_key and past_value go together");
  if (past_k) k = kit_concat2(c, past_k, k, 2);
  if (past_v) v = kit_concat2(c, past_v, v, 2);
  c->out[1] = k;
  c->out[2] = v;
  DType dt = kit_dtype_of(c, q);
  const Node *root = kit_scalar(c, dt, sqrt(onnx_attr_float(c, "scale", 1 / sqrt((double)kit_static_dim(c, q, 3)))));
  Mask m = attention_mask(c, q, k, past_k);
  heads = kit_static_dim(c, q, 1);
  k = repeat_heads(c, k, heads);
  v = repeat_heads(c, v, heads);
  const Node *scores = kit_matmul(c, kit_mul(c, q, root), kit_mul(c, kit_swap_last(c, k), root));
  if (mode == 0) c->out[3] = scores;
  double cap = onnx_attr_float(c, "softcap", 0);
  if (cap > 0)
    scores = kit_mul(c, kit_op1(c, "tanh", kit_div(c, scores, kit_scalar(c, dt, cap)), NULL), kit_scalar(c, dt, cap));
  if (mode == 1 || (mode == 0 && cap > 0)) c->out[3] = scores;
  if (m.bias) scores = kit_add(c, scores, m.bias);
  if (mode == 2) c->out[3] = scores;
  const Node *p = kit_cast_to(c, masked_softmax(c, scores, &m, onnx_attr_dtype(c, "softmax_precision", dt)), dt);
  if (mode == 3) c->out[3] = p;
  const Node *y = kit_matmul(c, p, v);
  return packed ? join_heads(c, y) : y;
}

/* Pairs of columns turned by an angle per position. */
static const Node *convert_rotary(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *cos = kit_in(c, 1);
  const Node *sin = kit_in(c, 2);
  const Node *at = kit_opt(c, 3);
  bool packed = kit_rank_of(c, x) == 3;
  int64_t heads = onnx_attr_int(c, "num_heads", 0);
  const Node *y = packed ? split_heads(c, x, heads) : x; /* (batch, heads, length, size) */
  int64_t size = kit_static_dim(c, y, 3);
  int64_t turn = onnx_attr_int(c, "rotary_embedding_dim", 0);
  if (turn == 0) turn = size;
  if (turn < 0 || turn > size || turn % 2)
    kit_fail(c, ERR_ARGUMENT, "rotary_embedding_dim %" PRId64 " does not fit a head of %" PRId64, turn, size);
  if (at) {
    cos = kit_take(c, cos, at, 0);
    sin = kit_take(c, sin, at, 0);
  }
  cos = kit_unsqueeze(c, cos, 1); /* (batch, 1, length, turn / 2) */
  sin = kit_unsqueeze(c, sin, 1);
  bool interleaved = onnx_attr_int(c, "interleaved", 0);
  const Node *part = turn == size ? y : kit_slice(c, y, 3, 0, turn);
  const Node *a, *b;
  if (interleaved) {
    part = kit_reshape_to(
        c, part, kit_concat2(c, kit_shape_part(c, part, 0, 3), kit_const_i64(c, 2, (int64_t[]){turn / 2, 2}), 0), true);
    a = kit_squeeze(c, kit_slice(c, part, 4, 0, 1), 4);
    b = kit_squeeze(c, kit_slice(c, part, 4, 1, 2), 4);
  } else {
    a = kit_slice(c, part, 3, 0, turn / 2);
    b = kit_slice(c, part, 3, turn / 2, turn);
  }
  const Node *real = kit_sub(c, kit_mul(c, cos, a), kit_mul(c, sin, b));
  const Node *imag = kit_add(c, kit_mul(c, sin, a), kit_mul(c, cos, b));
  const Node *turned;
  if (interleaved) {
    turned = kit_concat2(c, kit_unsqueeze(c, real, 4), kit_unsqueeze(c, imag, 4), 4);
    turned =
        kit_reshape_to(c, turned, kit_concat2(c, kit_shape_part(c, real, 0, 3), kit_const_i64(c, 1, &turn), 0), true);
  } else {
    turned = kit_concat2(c, real, imag, 3);
  }
  if (turn != size) turned = kit_concat2(c, turned, kit_slice(c, y, 3, turn, size), 3);
  return packed ? join_heads(c, turned) : turned;
}

static const OnnxRow rows[] = {{"Attention", 23, convert_attention}, {"RotaryEmbedding", 23, convert_rotary}};
ONNX_TABLE(onnx_ops_attention, "", rows);

/* ---- attention with bodies of its own ------------------------------------------------------------ */

static const Node *modify(Conversion *c, const char *name, const Node *x)
{
  const PAttr *a = onnx_attr(c, name);
  if (!a || !a->g) return x;
  const PGraph *g = a->g;
  if (g->input.n != 1 || g->output.n != 1) kit_fail(c, ERR_ARGUMENT, "%s takes one tensor and gives one", name);
  Frame *f = arena_new_of(c->im->arena, Frame);
  f->outer = c->frame;
  kit_frame_set(c->im, f, g->input.v[0]->name, x);
  const Node *out;
  onnx_import_body(c->im, f, g, &out);
  return out;
}

static const Node *convert_flex_attention(Conversion *c)
{
  const Node *q = kit_in(c, 0);
  const Node *k = kit_in(c, 1);
  const Node *v = kit_in(c, 2);
  DType dt = kit_dtype_of(c, q);
  DType precision = onnx_attr_dtype(c, "softmax_precision", dtype_eq(dt, DT_F64) ? DT_F64 : DT_F32);
  int64_t heads = kit_static_dim(c, q, 1);
  k = repeat_heads(c, k, heads);
  v = repeat_heads(c, v, heads);
  double scale = onnx_attr_float(c, "scale", 1 / sqrt((double)kit_static_dim(c, q, 3)));
  const Node *scores = kit_matmul(c, kit_cast_to(c, q, precision), kit_swap_last(c, kit_cast_to(c, k, precision)));
  scores = modify(c, "score_mod", kit_mul(c, scores, kit_scalar(c, precision, scale)));
  const Node *p = modify(c, "prob_mod", kit_softmax(c, scores, 3));
  return kit_cast_to(c, kit_matmul(c, p, kit_cast_to(c, v, precision)), dt);
}

static const OnnxRow preview_rows[] = {{"FlexAttention", 1, convert_flex_attention}};
ONNX_TABLE(onnx_ops_preview, "ai.onnx.preview", preview_rows);
