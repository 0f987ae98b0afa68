/* onnx_plan.c: what becomes of each node: which are layers, which move elements, where integers go through.
 *
 * Comes in: the graph and the values of its constants.  Goes out: a step for each node, and the layers with their
 * weights. */
#include <math.h>

#include "quant/net.h"

static bool among(const char *list, const char *op)
{
  size_t n = strlen(op);
  for (const char *p = strstr(list, op); p; p = strstr(p + 1, op))
    if ((p == list || p[-1] == ',') && (p[n] == ',' || !p[n])) return true;
  return false;
}

#define ELEMENTS "Add,Mul,Concat,AveragePool,GlobalAveragePool,Sigmoid,Tanh,LeakyRelu"
#define MOVES \
  "MaxPool,GlobalMaxPool,Reshape,Flatten,Transpose,Squeeze,Unsqueeze,DepthToSpace,SpaceToDepth,Identity,Dropout,Slice"

static bool is_own(const PNode *p) { return !*p->domain || !strcmp(p->domain, "ai.onnx"); }
static bool is_op(const PNode *p, const char *op) { return is_own(p) && !strcmp(p->op_type, op); }

/* ---- wires --------------------------------------------------------------------------------------------- */

static Wire *wire_of(Net *n, const char *name)
{
  Wire *w = strmap_get(&n->wires, name);
  if (w) return w;
  w = arena_new_of(n->arena, Wire);
  w->name = name;
  w->maker = w->user = -1;
  strmap_put(n->arena, &n->wires, name, w);
  w->is_constant = strmap_get(&n->values, name) != NULL;
  vec_push(n->arena, &n->flow.wire, w);
  return w;
}

static void use_in_body(Net *n, const PGraph *g)
{
  for (int i = 0; i < g->node.n; i++) {
    const PNode *p = g->node.v[i];
    for (int k = 0; k < p->input.n; k++) wire_of(n, p->input.v[k])->uses++;
    for (int k = 0; k < p->attribute.n; k++)
      if (p->attribute.v[k]->g) use_in_body(n, p->attribute.v[k]->g);
  }
  for (int i = 0; i < g->output.n; i++) wire_of(n, g->output.v[i]->name)->uses++;
}

static void scan(Net *n)
{
  const PGraph *g = &n->graph;
  n->wires = (StrMap){0};
  n->flow.wire.n = 0;
  for (int i = 0; i < g->input.n; i++) wire_of(n, g->input.v[i]->name)->is_input = true;
  for (int i = 0; i < g->node.n; i++) {
    const PNode *p = g->node.v[i];
    for (int k = 0; k < p->input.n; k++) {
      Wire *w = wire_of(n, p->input.v[k]);
      w->uses++;
      w->user = i;
    }
    for (int k = 0; k < p->output.n; k++) wire_of(n, p->output.v[k])->maker = i;
    for (int k = 0; k < p->attribute.n; k++)
      if (p->attribute.v[k]->g) use_in_body(n, p->attribute.v[k]->g);
  }
  for (int i = 0; i < g->output.n; i++) {
    Wire *w = wire_of(n, g->output.v[i]->name);
    w->uses++;
    w->is_output = true;
  }
}

/* The one node that takes the first output of node i, or -1. */
static int sole_user(Net *n, int i)
{
  const PNode *p = n->graph.node.v[i];
  const Wire *w = p->output.n ? strmap_get(&n->wires, p->output.v[0]) : NULL;
  for (int k = 1; k < p->output.n; k++)
    if (*p->output.v[k] && wire_of(n, p->output.v[k])->uses) return -1;
  return w && w->uses == 1 && !w->is_output ? w->user : -1;
}

static int64_t elements(const ConstData *d) { return (int64_t)(d->bytes / 4); }

/* ---- folding --------------------------------------------------------------------------------------------- */

/* w and b of a convolution become factor * w and shift + factor * b. */
static void rescale(Net *n, PNode *conv, const double *factor, const double *shift)
{
  const ConstData *w = quant_net_floats(n, conv->input.v[1]);
  const ConstData *b = conv->input.n > 2 && *conv->input.v[2] ? quant_net_floats(n, conv->input.v[2]) : NULL;
  int64_t channels = w->shape[0];
  int64_t inner = elements(w) / channels;
  float *nw = arena_alloc(n->arena, w->bytes);
  float *nb = arena_array(n->arena, float, channels);
  for (int64_t c = 0; c < channels; c++) {
    for (int64_t i = 0; i < inner; i++)
      nw[c * inner + i] = (float)(factor[c] * ((const float *)w->data)[c * inner + i]);
    nb[c] = (float)(shift[c] + (b ? factor[c] * ((const float *)b->data)[c] : 0));
  }
  const char *name = quant_net_name(n, conv->input.v[1], "_folded");
  const char *bias = quant_net_name(n, b ? conv->input.v[2] : conv->output.v[0], b ? "_folded" : "_bias");
  quant_net_const(n, &n->graph, name, ONNX_F32, w->ndim, w->shape, nw, w->bytes);
  quant_net_const(n, &n->graph, bias, ONNX_F32, 1, &channels, nb, (size_t)channels * 4);
  while (conv->input.n < 3) vec_push(n->arena, &conv->input, "");
  conv->input.v[1] = name;
  conv->input.v[2] = bias;
}

static bool fold_norm(Net *n, PNode *conv, const PNode *norm, int64_t channels)
{
  const ConstData *d[4]; /* scale, shift, mean, variance */
  if (norm->input.n < 5 || quant_net_int(norm, "training_mode", 0)) return false;
  for (int k = 0; k < 4; k++) {
    d[k] = quant_net_floats(n, norm->input.v[k + 1]);
    if (!d[k] || elements(d[k]) != channels) return false;
  }
  const PAttr *eps = quant_net_attr(norm, "epsilon");
  double *factor = arena_array(n->arena, double, channels);
  double *shift = arena_array(n->arena, double, channels);
  for (int64_t c = 0; c < channels; c++) {
    const double v = ((const float *)d[3]->data)[c] + (double)(eps ? eps->f : 1e-5f);
    factor[c] = ((const float *)d[0]->data)[c] / sqrt(v);
    shift[c] = ((const float *)d[1]->data)[c] - factor[c] * ((const float *)d[2]->data)[c];
  }
  rescale(n, conv, factor, shift);
  return true;
}

/* A constant by channel, (C, 1, 1) or (1, C, 1, 1) for data of two dimensions. */
static bool is_by_channel(const ConstData *d, int64_t channels, int ndim)
{
  if (!d || elements(d) != channels || d->ndim < ndim - 1 || d->ndim > ndim) return false;
  return d->shape[d->ndim - (ndim - 1)] == channels;
}

static bool fold_added(Net *n, PNode *conv, const PNode *add, int64_t channels, int ndim)
{
  const ConstData *d = add->input.n == 2 ? quant_net_floats(n, add->input.v[0]) : NULL;
  if (!d && add->input.n == 2) d = quant_net_floats(n, add->input.v[1]);
  if (!is_by_channel(d, channels, ndim)) return false;
  double *factor = arena_array(n->arena, double, channels);
  double *shift = arena_array(n->arena, double, channels);
  for (int64_t c = 0; c < channels; c++) {
    factor[c] = 1;
    shift[c] = ((const float *)d->data)[c];
  }
  rescale(n, conv, factor, shift);
  return true;
}

/* True: the node behind node i is in its weights now. */
static bool fold_next(Net *n, int i)
{
  PNode *conv = n->graph.node.v[i];
  const ConstData *w = conv->input.n > 1 ? quant_net_floats(n, conv->input.v[1]) : NULL;
  bool biased = conv->input.n > 2 && *conv->input.v[2];
  int k = sole_user(n, i);
  if (!w || w->ndim < 3 || k < 0 || !n->graph.node.v[k]) return false;
  if (biased && !quant_net_floats(n, conv->input.v[2])) return false;
  const PNode *next = n->graph.node.v[k];
  bool done = is_op(next, "BatchNormalization") ? fold_norm(n, conv, next, w->shape[0])
              : is_op(next, "Add")              ? fold_added(n, conv, next, w->shape[0], w->ndim)
                                                : false;
  if (!done) return false;
  conv->output.v[0] = next->output.v[0];
  wire_of(n, next->output.v[0])->maker = i;
  n->graph.node.v[k] = NULL;
  return true;
}

void quant_net_fold(Net *n)
{
  scan(n);
  PGraph *g = &n->graph;
  for (int i = 0; i < g->node.n; i++)
    if (g->node.v[i] && is_op(g->node.v[i], "Conv"))
      while (fold_next(n, i)) continue;
  int kept = 0;
  for (int i = 0; i < g->node.n; i++)
    if (g->node.v[i]) g->node.v[kept++] = g->node.v[i];
  g->node.n = kept;
}

/* ---- layers ------------------------------------------------------------------------------------------------ */

static void weights_shape(Layer *l, const ConstData *w, int axis)
{
  l->w = w->data;
  l->axis = axis;
  l->shape = (QuantShape){1, w->shape[axis], 1};
  for (int i = 0; i < axis; i++) l->shape.outer *= w->shape[i];
  for (int i = axis + 1; i < w->ndim; i++) l->shape.inner *= w->shape[i];
}

/* False: it is no product with constant weights. */
static bool read_layer(Net *n, const PNode *p, Layer *l)
{
  bool conv = is_op(p, "Conv");
  bool turned = is_op(p, "ConvTranspose");
  bool gemm = is_op(p, "Gemm");
  bool matmul = is_op(p, "MatMul");
  if ((!conv && !turned && !gemm && !matmul) || p->input.n < 2 || strmap_get(&n->values, p->input.v[0])) return false;
  const ConstData *w = quant_net_floats(n, p->input.v[1]);
  if (!w || w->ndim < 2 || !w->bytes || ((conv || turned) && w->ndim < 3)) return false;
  if (turned && quant_net_int(p, "group", 1) != 1) l->kept = "a grouped transposed convolution";
  if (matmul && w->ndim != 2) return false;
  weights_shape(l, w, turned || matmul ? 1 : gemm ? !quant_net_int(p, "transB", 0) : 0);
  l->takes_bias = !matmul;
  const PAttr *alpha = quant_net_attr(p, "alpha");
  const PAttr *beta = quant_net_attr(p, "beta");
  bool biased = p->input.n > 2 && *p->input.v[2];
  const ConstData *b = biased ? quant_net_floats(n, p->input.v[2]) : NULL;
  if (b && elements(b) == l->shape.channels) l->b = b->data;
  else if (biased) l->kept = "its bias is no constant by channel";
  if (gemm && quant_net_int(p, "transA", 0)) l->kept = "its data is transposed";
  if ((alpha && alpha->f != 1) || (beta && beta->f != 1 && biased)) l->kept = "it has alpha or beta";
  return true;
}

/* A bias of a MatMul: a vector along its result's last axis. */
static bool is_bias(Net *n, const PNode *matmul, const PNode *add)
{
  const ConstData *w = quant_net_floats(n, matmul->input.v[1]);
  const ConstData *d = NULL;
  for (int k = 0; k < add->input.n && !d; k++) d = quant_net_floats(n, add->input.v[k]);
  return w && d && d->ndim && elements(d) == d->shape[d->ndim - 1] && elements(d) == w->shape[w->ndim - 1];
}

/* Relu, Clip and, behind a MatMul, the bias that is added: they become part of what stores the result. */
static Wire *end_of(Net *n, int i)
{
  const PNode *matmul = is_op(n->graph.node.v[i], "MatMul") ? n->graph.node.v[i] : NULL;
  for (;;) {
    int k = sole_user(n, i);
    if (k < 0) break;
    const PNode *next = n->graph.node.v[k];
    bool limits = is_op(next, "Relu") || is_op(next, "Clip");
    if (!(limits && !strcmp(next->input.v[0], n->graph.node.v[i]->output.v[0])) &&
        !(matmul && is_op(next, "Add") && is_bias(n, matmul, next)))
      break;
    matmul = NULL;
    i = k;
  }
  return wire_of(n, n->graph.node.v[i]->output.v[0]);
}

static void add_inputs(Net *n, Step *s, const PNode *p, int count)
{
  s->in = arena_array(n->arena, Wire *, count + 1);
  for (int k = 0; k < count; k++) s->in[s->n++] = wire_of(n, p->input.v[k]);
}

void quant_net_plan(Net *n)
{
  scan(n);
  n->flow.step.n = n->layer.n = 0;
  for (int i = 0; i < n->graph.node.n; i++) {
    const PNode *p = n->graph.node.v[i];
    Step s = {0};
    Layer l = {.node = i};
    bool plain = is_own(p) && p->input.n && p->output.n;
    if (plain) s.out = wire_of(n, p->output.v[0]);
    if (plain && read_layer(n, p, &l)) {
      s.role = ROLE_LAYER;
      add_inputs(n, &s, p, 1);
      l.in = s.in[0];
      l.out = s.out;
      l.end = s.end = end_of(n, i);
      vec_push(n->arena, &n->layer, l);
    } else if (plain && among(ELEMENTS, p->op_type)) {
      s.role = ROLE_ELEMENT;
      s.end = end_of(n, i);
      add_inputs(n, &s, p, p->input.n);
    } else if (plain && among(MOVES, p->op_type)) {
      s.role = ROLE_MOVE;
      add_inputs(n, &s, p, 1);
    }
    vec_push(n->arena, &n->flow.step, s);
  }
}

void quant_net_mark(Net *n)
{
  for (int i = 0; i < n->layer.n; i++) n->flow.step.v[n->layer.v[i].node].kept = n->layer.v[i].kept != NULL;
  quant_flow_mark(&n->flow);
}

/* ---- equalisation -------------------------------------------------------------------------------------------- */

/* Two layers with at most a Relu between them: a channel of the first may be divided by what the second multiplies it
 * by. */
typedef struct Pair {
  Layer *a, *b;
  bool apart; /* b works on each channel apart */
} Pair;

static bool find_pair(Net *n, Layer *a, Pair *out)
{
  const Wire *end = a->end;
  const PNode *p = n->graph.node.v[a->node];
  if (a->kept || end->uses != 1 || end->is_output || end->user < 0 || !a->takes_bias || is_op(p, "ConvTranspose"))
    return false;
  if (a->out != end && (!is_op(n->graph.node.v[end->maker], "Relu") || a->out->user != end->maker)) return false;
  Layer *b = NULL;
  for (int i = 0; i < n->layer.n && !b; i++)
    if (n->layer.v[i].node == end->user && !n->layer.v[i].kept) b = &n->layer.v[i];
  const PNode *next = n->graph.node.v[end->user];
  bool conv = is_op(next, "Conv");
  if (!b || b->in != end || (!conv && !is_op(next, "Gemm"))) return false;
  int64_t group = conv ? quant_net_int(next, "group", 1) : 1;
  int64_t channels = a->shape.channels;
  *out = (Pair){a, b, group > 1};
  if (group > 1) return group == channels && b->shape.channels % channels == 0;
  const ConstData *w = quant_net_floats(n, next->input.v[1]);
  return w->shape[b->axis ? 0 : 1] == channels;
}

/* The place of element i of the second's weights along its input channels. */
static int64_t input_channel(const Pair *p, int64_t inputs, int64_t i)
{
  int64_t outer = i / (p->b->shape.channels * p->b->shape.inner);
  int64_t channel = i / p->b->shape.inner % p->b->shape.channels;
  if (p->apart) return channel / (p->b->shape.channels / inputs);
  if (p->b->axis) return outer; /* Gemm, not transposed: (inputs, channels) */
  int64_t taps = p->b->shape.inner / inputs;
  return i % p->b->shape.inner / (taps ? taps : 1);
}

static float *own_weights(Net *n, Layer *l)
{
  size_t bytes = (size_t)(l->shape.outer * l->shape.channels * l->shape.inner) * 4;
  float *w = arena_copy(n->arena, l->w, bytes);
  if (l->b) l->b = arena_copy(n->arena, l->b, (size_t)l->shape.channels * 4);
  l->w = w;
  return w;
}

static void equalise_pair(Net *n, const Pair *p)
{
  int64_t channels = p->a->shape.channels;
  int64_t inner = p->a->shape.inner;
  int64_t nb = p->b->shape.outer * p->b->shape.channels * p->b->shape.inner;
  float *wa = (float *)(uintptr_t)p->a->w;
  float *ba = (float *)(uintptr_t)p->a->b;
  float *wb = (float *)(uintptr_t)p->b->w;
  double *ra = arena_array(n->arena, double, channels);
  double *rb = arena_array(n->arena, double, channels);
  for (int64_t o = 0; o < p->a->shape.outer; o++)
    for (int64_t c = 0; c < channels; c++)
      for (int64_t i = 0; i < inner; i++) ra[c] = fmax(ra[c], fabs((double)wa[(o * channels + c) * inner + i]));
  for (int64_t i = 0; i < nb; i++) {
    int64_t c = input_channel(p, channels, i);
    rb[c] = fmax(rb[c], fabs((double)wb[i]));
  }
  for (int64_t c = 0; c < channels; c++) {
    double s = ra[c] > 0 && rb[c] > 0 ? sqrt(ra[c] / rb[c]) : 1;
    ra[c] = fmin(fmax(s, 1e-4), 1e4);
  }
  for (int64_t o = 0; o < p->a->shape.outer; o++)
    for (int64_t c = 0; c < channels; c++)
      for (int64_t i = 0; i < inner; i++) wa[(o * channels + c) * inner + i] /= (float)ra[c];
  for (int64_t c = 0; c < channels && ba; c++) ba[c] /= (float)ra[c];
  for (int64_t i = 0; i < nb; i++) wb[i] *= (float)ra[input_channel(p, channels, i)];
}

static void store_weights(Net *n, Layer *l)
{
  PNode *p = n->graph.node.v[l->node];
  const ConstData *w = quant_net_floats(n, p->input.v[1]);
  const char *name = quant_net_name(n, p->input.v[1], "_equalised");
  p->input.v[1] = quant_net_const(n, &n->graph, name, ONNX_F32, w->ndim, w->shape, l->w, w->bytes);
  if (!l->b) return;
  const ConstData *b = quant_net_floats(n, p->input.v[2]);
  name = quant_net_name(n, p->input.v[2], "_equalised");
  p->input.v[2] = quant_net_const(n, &n->graph, name, ONNX_F32, b->ndim, b->shape, l->b, b->bytes);
}

bool quant_net_equalise(Net *n)
{
  enum { SWEEPS = 4 };
  Vec(Pair) pairs = {0};
  bool *changed = arena_array(n->arena, bool, n->layer.n + 1);
  for (int i = 0; i < n->layer.n; i++) {
    Pair p;
    if (!find_pair(n, &n->layer.v[i], &p)) continue;
    vec_push(n->arena, &pairs, p);
    changed[p.a - n->layer.v] = changed[p.b - n->layer.v] = true;
  }
  if (!pairs.n) return false;
  for (int i = 0; i < n->layer.n; i++)
    if (changed[i]) own_weights(n, &n->layer.v[i]);
  for (int s = 0; s < SWEEPS; s++)
    for (int i = 0; i < pairs.n; i++) equalise_pair(n, &pairs.v[i]);
  for (int i = 0; i < n->layer.n; i++)
    if (changed[i]) store_weights(n, &n->layer.v[i]);
  return true;
}
