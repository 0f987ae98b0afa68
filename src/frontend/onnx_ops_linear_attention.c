/* onnx_ops_linear_attention.c: attention whose memory is a matrix per head, written to
 * step by step.
 *
 *   linear       S' = S + k v^T
 *   gated        S' = exp(g) S + k v^T
 *   delta        S' = S + b k (v - S^T k)^T
 *   gated_delta  S' = exp(g) S + b k (v - exp(g) S^T k)^T
 *   out          scale * q^T S'
 *
 * Comes in: query, key, value packed as (batch, time, heads * size).  Goes out: a loop
 * over time whose state is S (batch, heads, key size, value size), in float32. */
#include <math.h>

#include "frontend/onnx_control.h"

typedef struct Memory {
  const Node *q, *k, *v, *decay, *beta; /* (time, batch, heads, size); decay and beta may be NULL */
  double scale;
  bool delta;
} Memory;

/* (batch, time, heads * size) -> (time, batch, heads, size) */
static const Node *by_time(Conversion *c, const Node *x, int64_t heads)
{
  int64_t width = kit_static_dim(c, x, 2);
  if (heads < 1 || width % heads)
    kit_fail(c, ERR_SHAPE, "%" PRId64 " columns do not make %" PRId64 " heads", width, heads);
  return kit_transpose(c, kit_reshape(c, kit_cast_to(c, x, DT_F32), 4, (int64_t[]){0, 0, heads, width / heads}), 4,
                       (int[]){1, 0, 2, 3});
}

static const Node *at_time(Conversion *c, const Node *x, const Node *t)
{
  return kit_op2(c, "take", kit_frame_capture(c->im, c->frame, x), t, "axis:i,mode:s", 0, "clip");
}

static void memory_step(Conversion *c, Loop *l, const Node *t, const Node *cond, const Node *const *state,
                        const Node **cond_out, const Node **state_out, const Node **scan_out)
{
  const Memory *m = l->env;
  const Node *s = state[0];
  const Node *q = at_time(c, m->q, t);
  const Node *k = kit_unsqueeze(c, at_time(c, m->k, t), 3);
  const Node *v = kit_unsqueeze(c, at_time(c, m->v, t), 2);
  (void)cond;
  *cond_out = NULL;
  if (m->decay) s = kit_mul(c, s, kit_unsqueeze(c, kit_exp(c, at_time(c, m->decay, t)), 3));
  if (m->delta) v = kit_sub(c, v, kit_reduce1(c, "sum", kit_mul(c, s, k), 2, true));
  if (m->beta) v = kit_mul(c, v, kit_unsqueeze(c, at_time(c, m->beta, t), 3));
  s = kit_add(c, s, kit_mul(c, k, v));
  int64_t heads = kit_static_dim(c, q, 1);
  int64_t have = kit_static_dim(c, s, 1);
  const Node *shared = heads == have ? s : kit_op1(c, "repeat", s, "repeats:l,axis:i", heads / have, 1);
  state_out[0] = s;
  scan_out[0] = kit_mul(c, kit_reduce1(c, "sum", kit_mul(c, shared, kit_unsqueeze(c, q, 3)), 2, false),
                        kit_scalar(c, DT_F32, m->scale));
}

static const Node *convert_linear_attention(Conversion *c)
{
  const Node *q = kit_in(c, 0);
  const Node *k = kit_in(c, 1);
  const Node *v = kit_in(c, 2);
  const Node *past = kit_opt(c, 3);
  const Node *decay = kit_opt(c, 4);
  const Node *beta = kit_opt(c, 5);
  int64_t heads = onnx_attr_int(c, "q_num_heads", 0);
  int64_t kv = onnx_attr_int(c, "kv_num_heads", 0);
  const char *rule = onnx_attr_str(c, "update_rule", "gated_delta");
  if (heads < 1 || kv < 1 || heads % kv)
    kit_fail(c, ERR_ARGUMENT, "%" PRId64 " query heads cannot share %" PRId64 " key heads", heads, kv);
  Memory m = {.q = by_time(c, q, heads),
              .k = by_time(c, k, kv),
              .v = by_time(c, v, kv),
              .delta = str_ends(rule, "delta"),
              .scale = onnx_attr_float(c, "scale", 0)};
  int64_t dk = kit_static_dim(c, m.k, 3);
  int64_t dv = kit_static_dim(c, m.v, 3);
  if (str_starts(rule, "gated") != (decay != NULL) || m.delta != (beta != NULL))
    kit_fail(c, ERR_ARGUMENT, "update_rule '%s' does not fit the inputs given", rule);
  if (m.scale == 0) m.scale = 1 / sqrt((double)dk);
  if (decay) m.decay = by_time(c, decay, kv);
  if (beta) m.beta = by_time(c, beta, kit_static_dim(c, beta, 2) == 1 ? 1 : kv);
  const Node *first =
      past ? kit_cast_to(c, past, DT_F32)
           : kit_full(c, kit_scalar(c, DT_F32, 0),
                      kit_concat2(c, kit_shape_part(c, q, 0, 1), kit_const_i64(c, 3, (int64_t[]){kv, dk, dv}), 0),
                      DT_F32);
  Loop l = {.nstate = 1,
            .init = &first,
            .nscan = 1,
            .limit = kit_scalar_of(c, kit_shape_part(c, m.q, 0, 1)),
            .body = memory_step,
            .env = &m};
  const Node *r = onnx_build_loop(c, &l);
  c->out[1] = kit_cast_to(c, node_get(c->m, r, 0), past ? kit_dtype_of(c, past) : kit_dtype_of(c, q));
  /* (batch, time, heads, size) */
  const Node *y = kit_transpose(c, onnx_loop_stack(c, &l, r, 0, 0), 4, (int[]){1, 0, 2, 3});
  return kit_cast_to(c, kit_reshape(c, y, 3, (int64_t[]){0, 0, heads * dv}), kit_dtype_of(c, q));
}

static const OnnxRow rows[] = {{"LinearAttention", 27, convert_linear_attention}};
ONNX_TABLE(onnx_ops_linear_attention, "", rows);
