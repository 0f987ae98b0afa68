/* onnx_qdq.c: QuantizeLinear and DequantizeLinear put into a model.
 *
 *   x ─ QuantizeLinear ─ x_quantized ─ DequantizeLinear ─ x_dequantized      for each wire that is quantized
 *   w_quantized (int8) ─ DequantizeLinear ─ w_dequantized                    a scale for each output channel
 *   b_quantized (int32) ─ DequantizeLinear ─ b_dequantized                   in units of the sums
 *
 * Nodes that work in integers take what is behind the pairs; all others what is before, unless a layer made it.  An
 * output of the model keeps its
 * name behind its pair; what made it gets another. */
#include <math.h>

#include "quant/net.h"

/* The name that the wire's floats have before they are stored. */
static const char *before(Net *n, const Wire *w)
{
  return w->wanted && w->is_output && w->maker >= 0 ? quant_net_made(n, w->name, "_before") : w->name;
}

const char *quant_net_stored(Net *n, const Wire *w)
{
  return w->is_output && w->maker >= 0 ? w->name : quant_net_made(n, w->name, "_dequantized");
}

static void push_pair(Net *n, PGraph *g, const Wire *w, const char *from, const char *to)
{
  const Wire *root = quant_flow_root(&n->flow, (Wire *)(uintptr_t)w);
  int8_t zero = (int8_t)root->params.zero;
  const char *scale = quant_net_made(n, w->name, "_scale");
  const char *point = quant_net_made(n, w->name, "_zero_point");
  const char *stored = quant_net_made(n, w->name, "_quantized");
  quant_net_const(n, g, scale, ONNX_F32, 0, NULL, &root->params.scale, 4);
  quant_net_const(n, g, point, ONNX_I8, 0, NULL, &zero, 1);
  quant_net_push(n, g, "QuantizeLinear", 3, (const char *[]){from, scale, point}, stored);
  quant_net_push(n, g, "DequantizeLinear", 3, (const char *[]){stored, scale, point}, to);
}

/* Weights of a layer as int8 with their DequantizeLinear; gives its output. */
static const char *push_weights(Net *n, PGraph *g, Layer *l, const char *prefix, float **scales)
{
  const ConstData *w = quant_net_floats(n, n->graph.node.v[l->node]->input.v[1]);
  int64_t channels = l->shape.channels;
  double sx = quant_flow_root(&n->flow, l->in)->params.scale;
  int8_t *q = arena_alloc(n->arena, w->bytes / 4 + 1);
  int8_t *zero = arena_alloc(n->arena, (size_t)channels);
  float *scale = arena_array(n->arena, float, channels);
  float *least = arena_array(n->arena, float, channels);
  /* biases must fit into int32 in units of the sums */
  for (int64_t c = 0; c < channels; c++)
    least[c] = (float)(fabs((l->b ? l->b[c] : 0) + (l->shift ? l->shift[c] : 0)) / sx * 0x1p-30);
  quant_weights(l->w, l->shape, 8, false, least, q, scale);
  l->w_least = l->w_most = scale[0];
  for (int64_t c = 1; c < channels; c++) {
    l->w_least = fminf(l->w_least, scale[c]);
    l->w_most = fmaxf(l->w_most, scale[c]);
  }
  const char *input[] = {quant_net_made(n, prefix, "_quantized"), quant_net_made(n, prefix, "_scale"),
                         quant_net_made(n, prefix, "_zero_point")};
  quant_net_const(n, g, input[0], ONNX_I8, w->ndim, w->shape, q, w->bytes / 4);
  quant_net_const(n, g, input[1], ONNX_F32, 1, &channels, scale, (size_t)channels * 4);
  quant_net_const(n, g, input[2], ONNX_I8, 1, &channels, zero, (size_t)channels);
  const char *out = quant_net_made(n, prefix, "_dequantized");
  quant_net_push_int(n, quant_net_push(n, g, "DequantizeLinear", 3, input, out), "axis", l->axis);
  *scales = scale;
  return out;
}

static const char *push_bias(Net *n, PGraph *g, const Layer *l, const char *prefix, const float *w_scale)
{
  int64_t channels = l->shape.channels;
  float sx = quant_flow_root(&n->flow, l->in)->params.scale;
  int32_t *q = arena_array(n->arena, int32_t, channels);
  int32_t *zero = arena_array(n->arena, int32_t, channels);
  float *scale = arena_array(n->arena, float, channels);
  for (int64_t c = 0; c < channels; c++) {
    scale[c] = sx * w_scale[c];
    double v = nearbyint(((l->b ? l->b[c] : 0) + (l->shift ? l->shift[c] : 0)) / (double)scale[c]);
    q[c] = (int32_t)fmin(fmax(v, INT32_MIN), INT32_MAX);
  }
  const char *input[] = {quant_net_made(n, prefix, "_quantized"), quant_net_made(n, prefix, "_scale"),
                         quant_net_made(n, prefix, "_zero_point")};
  quant_net_const(n, g, input[0], ONNX_I32, 1, &channels, q, (size_t)channels * 4);
  quant_net_const(n, g, input[1], ONNX_F32, 1, &channels, scale, (size_t)channels * 4);
  quant_net_const(n, g, input[2], ONNX_I32, 1, &channels, zero, (size_t)channels * 4);
  const char *out = quant_net_made(n, prefix, "_dequantized");
  quant_net_push_int(n, quant_net_push(n, g, "DequantizeLinear", 3, input, out), "axis", 0);
  return out;
}

/* Gives the node of a layer integers for weights and bias; names begin with what the layer's result is called. */
static void quantize_layer(Net *n, PGraph *g, Layer *l, PNode *p, const char *prefix)
{
  float *scales;
  p->input.v[1] = push_weights(n, g, l, quant_net_made(n, prefix, "_weight"), &scales);
  if (!l->takes_bias || (!l->b && !l->shift)) return;
  while (p->input.n < 3) vec_push(n->arena, &p->input, "");
  p->input.v[2] = push_bias(n, g, l, quant_net_made(n, prefix, "_bias"), scales);
}

static Wire *known_wire(const Net *n, const char *name) { return strmap_get(&n->wires, name); }

static void push_wanted(Net *n, PGraph *g, const Wire *w)
{
  if (w->wanted) push_pair(n, g, w, before(n, w), quant_net_stored(n, w));
}

PGraph quant_net_quantized(Net *n)
{
  PGraph g = quant_net_graph(n);
  int count = g.node.n;
  PNode **old = g.node.v;
  memset(&g.node, 0, sizeof g.node);
  for (int i = 0; i < n->flow.wire.n; i++)
    if (n->flow.wire.v[i]->maker < 0) push_wanted(n, &g, n->flow.wire.v[i]);
  for (int i = 0, layer = 0; i < count; i++) {
    PNode *p = old[i];
    const Step *x = &n->flow.step.v[i];
    for (int k = 0; k < p->input.n; k++) {
      const Wire *w = known_wire(n, p->input.v[k]);
      if (w && w->wanted) p->input.v[k] = x->integer || w->by_layer ? quant_net_stored(n, w) : before(n, w);
    }
    if (x->role == ROLE_LAYER) {
      Layer *l = &n->layer.v[layer++]; /* they follow each other as their nodes do */
      if (x->integer) quantize_layer(n, &g, l, p, l->out->name);
    }
    vec_push(n->arena, &g.node, p);
    for (int k = 0; k < p->output.n; k++) {
      const Wire *w = known_wire(n, p->output.v[k]);
      if (!w || !w->wanted) continue;
      p->output.v[k] = before(n, w);
      push_wanted(n, &g, w);
    }
  }
  quant_net_sweep(n, &g);
  return g;
}

static PValueInfo *float_input(Net *n, const char *name)
{
  PValueInfo *v = arena_new_of(n->arena, PValueInfo);
  v->name = name;
  v->type = arena_new_of(n->arena, PType);
  v->type->tensor = arena_new_of(n->arena, PTensorType);
  v->type->tensor->elem_type = ONNX_F32;
  return v;
}

PGraph quant_net_alone(Net *n, const char **alone, const char **input, int *ninputs)
{
  PGraph g = quant_net_graph(n);
  StrMap paired = {0};
  memset(&g.node, 0, sizeof g.node);
  memset(&g.input, 0, sizeof g.input);
  *ninputs = 0;
  for (int i = 0; i < n->layer.n; i++) {
    Layer *l = &n->layer.v[i];
    alone[i] = NULL;
    if (l->kept) continue;
    const char *to = quant_net_made(n, l->in->name, "_alone_dequantized");
    if (!strmap_get(&paired, l->in->name)) {
      push_pair(n, &g, l->in, l->in->name, to);
      strmap_put(n->arena, &paired, l->in->name, n);
      vec_push(n->arena, &g.input, float_input(n, l->in->name));
      input[(*ninputs)++] = l->in->name;
    }
    PNode *p = arena_copy(n->arena, n->graph.node.v[l->node], sizeof *p);
    COPY_LIST(n->arena, p->input);
    COPY_LIST(n->arena, p->output);
    p->input.v[0] = to;
    p->name = quant_net_made(n, p->name, "_alone");
    alone[i] = quant_net_made(n, l->out->name, "_alone");
    quantize_layer(n, &g, l, p, alone[i]);
    p->output.v[0] = alone[i];
    vec_push(n->arena, &g.node, p);
  }
  return g;
}
