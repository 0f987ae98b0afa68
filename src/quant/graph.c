/* graph.c: a module quantized: relay.quantize.
 *
 * Comes in: @main of floats, with its weights as constants.  Goes out: the same in qnn operators.  In between the graph
 * gets pairs of qnn.quantize and qnn.dequantize around its layers, as onnx_qdq.c puts them into a file, and
 * FakeQuantizationToInteger makes integers of what lies between them. */
#include <math.h>

#include "op/qnn.h"
#include "quant/flow.h"

#define PRODUCTS "nn.conv2d,nn.conv2d_transpose,nn.dense,nn.matmul,nn.batch_matmul"
#define ELEMENTS "add,multiply,concatenate,nn.avg_pool2d,nn.global_avg_pool2d,sigmoid,tanh,nn.leaky_relu"
#define MOVES                                                                                                     \
  "reshape,squeeze,expand_dims,nn.batch_flatten,transpose,strided_slice,nn.max_pool2d,nn.global_max_pool2d,copy," \
  "nn.depth_to_space,nn.space_to_depth,layout_transform"

typedef struct Graph {
  Module *m;
  Arena *arena;
  const QuantGraphOptions *g;
  const Node *main;
  Flow flow;
  Map wires;  /* node -> Wire * */
  Map steps;  /* node -> number of its step + 1 */
  Map stored; /* Wire * -> the node behind its pair */
} Graph;

static bool is_call_of(const Node *n, const char *list)
{
  if (n->kind != N_CALL) return false;
  const char *name = n->u.call.op->name;
  size_t len = strlen(name);
  for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
    if (!strncmp(p, name, len) && (p[len] == ',' || !p[len])) return true;
  return false;
}

static const void *attr(const Node *n, const char *name)
{
  return (const char *)n->u.call.attrs + attrs_field(n->u.call.op->attrs, name)->offset;
}

static bool is_float_const(const Node *n) { return n->kind == N_CONST && dtype_eq(n->u.data->dtype, DT_F32); }

/* ---- the plan ------------------------------------------------------------------------------------------------ */

static Wire *wire_of(Graph *g, const Node *n)
{
  Wire *w = map_get(&g->wires, n);
  if (w) return w;
  w = arena_new_of(g->arena, Wire);
  *w = (Wire){.name = n->name             ? n->name
                      : n->kind == N_CALL ? n->u.call.op->name
                                          : "a value",
              .thing = n,
              .maker = -1,
              .user = -1,
              .is_input = n->kind == N_VAR,
              .is_constant = n->kind == N_CONST};
  map_put(g->arena, &g->wires, n, w);
  vec_push(g->arena, &g->flow.wire, w);
  return w;
}

/* Where the output's channels are in the weights; -1: nowhere apart. */
static int weight_axis(const Node *n)
{
  if (is_call_of(n, "nn.dense")) return 0;
  if (is_call_of(n, "nn.matmul")) return *(const bool *)attr(n, "transpose_b") ? 0 : 1;
  if (is_call_of(n, "nn.batch_matmul")) return *(const bool *)attr(n, "transpose_b") ? 1 : 2;
  if (is_call_of(n, "nn.conv2d_transpose") && *(const int64_t *)attr(n, "groups") > 1) return -1;
  Layout l;
  const char *layout = *(const char *const *)attr(n, "kernel_layout");
  if (layout_parse(layout, &l) || !layout_is_plain(layout)) return -1;
  return layout_find(&l, 'O');
}

static bool is_layer(const Node *n)
{
  return is_call_of(n, PRODUCTS) && is_float_const(n->arg[1]) && n->arg[0]->kind != N_CONST && weight_axis(n) >= 0;
}

static bool is_skipped(const QuantGraphOptions *o, const Node *n, int conv)
{
  if (!is_call_of(n, "nn.conv2d,nn.conv2d_transpose")) return o->skip_dense;
  for (int i = 0; i < o->nskip; i++)
    if (o->skip[i] == conv) return true;
  return false;
}

/* Relu, limits and a bias behind it become part of what stores the result. */
static Wire *end_of(Graph *g, int nnodes, const Node *const *node, const Node *n)
{
  bool product = is_call_of(n, PRODUCTS);
  for (;;) {
    const Wire *w = wire_of(g, n);
    if (w->uses != 1 || w->is_output || w->user < 0 || w->user >= nnodes) break;
    const Node *next = node[w->user];
    bool bias = product && is_call_of(next, "add,nn.bias_add") &&
                (is_float_const(next->arg[1]) || is_float_const(next->arg[0]));
    if (!bias && !(is_call_of(next, "nn.relu,clip") && next->arg[0] == n)) break;
    product = false;
    n = next;
  }
  return wire_of(g, n);
}

static void plan_inputs(Graph *g, Step *s, int n, const Node *const *arg)
{
  s->n = n;
  s->in = arena_array(g->arena, Wire *, n + 1);
  for (int i = 0; i < n; i++) s->in[i] = wire_of(g, arg[i]);
}

static void plan_step(Graph *g, int nnodes, const Node *const *node, const Node *n, int *convs)
{
  Step s = {.out = wire_of(g, n)};
  int conv = is_call_of(n, "nn.conv2d,nn.conv2d_transpose") ? (*convs)++ : -1;
  if (is_layer(n)) {
    s.role = ROLE_LAYER;
    s.kept = is_skipped(g->g, n, conv);
    s.end = end_of(g, nnodes, node, n);
    plan_inputs(g, &s, 1, n->arg);
  } else if (is_call_of(n, "concatenate") && n->arg[0]->kind == N_TUPLE) {
    s.role = ROLE_ELEMENT;
    s.end = end_of(g, nnodes, node, n);
    plan_inputs(g, &s, n->arg[0]->nargs, n->arg[0]->arg);
  } else if (is_call_of(n, ELEMENTS) && !is_call_of(n, "concatenate")) {
    s.role = ROLE_ELEMENT;
    s.end = end_of(g, nnodes, node, n);
    plan_inputs(g, &s, n->nargs, n->arg);
  } else if (is_call_of(n, MOVES)) {
    s.role = ROLE_MOVE;
    plan_inputs(g, &s, 1, n->arg);
  }
  s.out->maker = g->flow.step.n;
  vec_push(g->arena, &g->flow.step, s);
  map_put(g->arena, &g->steps, n, (void *)(intptr_t)g->flow.step.n);
}

static void plan(Graph *g)
{
  const Node *body = fn_body(g->main);
  const Node **node;
  int n = graph_post_order(g->arena, body, &node);
  for (int i = 0; i < n; i++) {
    if (node[i]->kind == N_LET || node[i]->kind == N_IF || node[i]->kind == N_MATCH || node[i]->kind == N_FUNC)
      raise(g->m->ctx, ERR_UNSUPPORTED, NOWHERE, "@main has control flow or functions inside, which is not quantized");
    for (int k = 0; k < node[i]->nargs; k++) {
      Wire *w = wire_of(g, node[i]->arg[k]);
      w->uses++;
      w->user = i;
    }
  }
  bool tuple = body->kind == N_TUPLE;
  for (int i = 0; i < (tuple ? body->nargs : 1); i++) {
    Wire *w = wire_of(g, tuple ? body->arg[i] : body);
    w->is_output = true;
    w->uses++;
  }
  int convs = 0;
  for (int i = 0; i < n; i++) plan_step(g, n, node, node[i], &convs);
  quant_flow_mark(&g->flow);
  for (int i = 0; i < g->flow.step.n; i++) { /* the parts of a concatenation go through a tuple */
    const Node *x = g->flow.step.v[i].out->thing;
    if (g->flow.step.v[i].integer && is_call_of(x, "concatenate"))
      g->flow.step.v[(intptr_t)map_get(&g->steps, x->arg[0]) - 1].integer = true;
  }
}

/* ---- scales --------------------------------------------------------------------------------------------------- */

static QuantSamples cut_data(Graph *g, int narrays, const QuantArray *array)
{
  int n = fn_nparams(g->main);
  QuantPort *port = arena_array(g->arena, QuantPort, n + 1);
  for (int i = 0; i < n; i++) {
    const Type *t = g->main->arg[i]->type;
    if (!t || t->kind != TY_TENSOR || t->ndim < 0)
      raise(g->m->ctx, ERR_UNSUPPORTED, NOWHERE, "the parameter '%s' of @main is no tensor of known rank",
            g->main->arg[i]->name);
    int64_t *dim = arena_array(g->arena, int64_t, t->ndim + 1);
    for (int k = 0; k < t->ndim; k++)
      if (!dim_literal(t->shape[k], &dim[k])) dim[k] = -1;
    port[i] = (QuantPort){g->main->arg[i]->name, t->dtype, t->ndim, dim};
  }
  return quant_samples(g->arena, narrays, array, n, port);
}

static void set_main(Graph *g, const Node *body)
{
  const Node *f = node_func(g->m, fn_nparams(g->main), g->main->arg, body, NULL, NULL);
  module_set(g->m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)graph_infer(g->m, f));
}

static void find_scales(Graph *g, int narrays, const QuantArray *array, const QuantOptions *o)
{
  Ctx *ctx = g->m->ctx;
  Wire **wire;
  int n = quant_flow_roots(g->arena, &g->flow, &wire);
  if (g->g->global_scale > 0) {
    for (int i = 0; i < n; i++)
      wire[i]->params = (QuantParams){(float)ldexp(g->g->global_scale, 1 - g->g->input_bits), 0};
    return;
  }
  Work w = quant_work(ctx, o, cut_data(g, narrays, array));
  const Node **out = arena_array(g->arena, const Node *, n + 1);
  int *output = arena_array(g->arena, int, n + 1);
  for (int i = 0; i < n; i++) {
    out[i] = wire[i]->thing;
    output[i] = i;
  }
  Scope scope = scope_begin(ctx);
  set_main(g, node_tuple(g->m, n, out));
  QuantRunner floats = quant_runner(ctx, g->m);
  quant_calibrate(&w, g->arena, &floats, n, wire, output, 1 << g->g->input_bits);
  scope_end(ctx, scope);
  for (int i = 0; i < n; i++) wire[i]->params = quant_params(wire[i]->lo, wire[i]->hi, g->g->input_bits, false, false);
}

/* ---- pairs ---------------------------------------------------------------------------------------------------- */

static const Node *number(Module *m, DType dt, double v)
{
  return node_scalar(m, dtype_is_float(dt) ? value_float(dt, v) : value_int(dt, (int64_t)v));
}

/* x behind its integers; with fewer bits than the dtype has, x is limited to what they stand for. */
static const Node *pair(Graph *g, const Node *x, const QuantParams *p)
{
  double top = ldexp(1, g->g->input_bits - 1);
  int32_t offset = g->g->input_signed ? 0 : (int32_t)top;
  DType dt = g->g->input_signed ? DT_I8 : DT_U8;
  if (g->g->input_bits < 8) {
    double scale = p->scale;
    x = qnn_clip(g->m, x, scale * (-top - p->zero), scale * (top - 1 - p->zero));
  }
  const Node *scale = number(g->m, DT_F32, p->scale);
  const Node *zero = number(g->m, DT_I32, p->zero + offset);
  return qnn_dequantize(g->m, qnn_quantize(g->m, x, scale, zero, -1, dt), scale, zero, -1);
}

static const Node *stored(Graph *g, Wire *w, const Node *x)
{
  const Node *y = map_get(&g->stored, w);
  if (y) return y;
  y = pair(g, x, &quant_flow_root(&g->flow, w)->params);
  map_put(g->arena, &g->stored, w, (void *)(uintptr_t)y);
  return y;
}

static const Node *integer_weights(Graph *g, const Node *call)
{
  const ConstData *d = call->arg[1]->u.data;
  int axis = weight_axis(call);
  QuantShape s = {1, d->shape[axis], 1};
  for (int i = 0; i < axis; i++) s.outer *= d->shape[i];
  for (int i = axis + 1; i < d->ndim; i++) s.inner *= d->shape[i];
  int8_t *q = arena_alloc(g->arena, d->bytes / 4 + 1);
  float *scale = arena_array(g->arena, float, s.channels + 1);
  quant_weights(d->data, s, g->g->weight_bits, g->g->power2, NULL, q, scale);
  const Node *w = node_const_copy(g->m, DT_I8, d->ndim, d->shape, q);
  return qnn_dequantize(g->m, w, node_const_copy(g->m, DT_F32, 1, &s.channels, scale), number(g->m, DT_I32, 0), axis);
}

static const Node *rewrite(GraphRewriter *r, const Node *old, const Node *now)
{
  Graph *g = r->env;
  intptr_t at = (intptr_t)map_get(&g->steps, old);
  if (!at || !old->nargs) return now;
  const Step *s = &g->flow.step.v[at - 1];
  const Node **arg = arena_array(g->arena, const Node *, now->nargs);
  bool same = true;
  for (int i = 0; i < now->nargs; i++) {
    Wire *w = map_get(&g->wires, old->arg[i]);
    bool take = w && w->wanted && (s->integer || w->by_layer);
    arg[i] = take ? stored(g, w, now->arg[i]) : now->arg[i];
    if (s->role == ROLE_LAYER && s->integer && i == 1) arg[i] = integer_weights(g, old);
    same &= arg[i] == now->arg[i];
  }
  return same ? now : node_with_args(g->m, now, arg);
}

static const Node *set_rounding(GraphRewriter *r, const Node *old, const Node *now)
{
  (void)old;
  if (!is_call_of(now, "qnn.requantize")) return now;
  QnnRequantizeAttrs *a = attrs_copy(r->m, &QnnRequantize_attrs, now->u.call.attrs);
  a->rounding = r->env; /* a literal: it outlives the module */
  return node_call(r->m, now->u.call.op, now->nargs, now->arg, a, now->name);
}

static void run_pass(PassContext *pc, Module *m, const char *name) { pass_run(pc, pass_get(m->ctx, name), m); }

int quant_graph(Arena *arena, Module *m, PassContext *pc, int narrays, const QuantArray *array,
                const QuantGraphOptions *options, const QuantOptions *o)
{
  static const char *const before[] = {"InferType", "SimplifyInference", "FoldConstant", "FoldScaleAxis",
                                       "FoldConstant"};
  op_init();
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) run_pass(pc, m, before[i]);
  Graph g = {.m = m, .arena = arena, .g = options, .main = graph_main(m)};
  plan(&g);
  int layers = 0;
  for (int i = 0; i < g.flow.step.n; i++) layers += g.flow.step.v[i].role == ROLE_LAYER && g.flow.step.v[i].integer;
  if (!layers) return 0;
  find_scales(&g, narrays, array, o);
  GraphRewriter r = {.m = m, .fn = rewrite, .env = &g, .arena = arena};
  const Node *body = graph_rewrite(&r, fn_body(g.main));
  Wire *out = wire_of(&g, fn_body(g.main)); /* fields of a tuple were seen as its arguments */
  if (out->by_layer) body = stored(&g, out, body);
  set_main(&g, body);
  if (options->simulate) return layers;
  run_pass(pc, m, "FakeQuantizationToInteger");
  GraphRewriter q = {.m = m, .fn = set_rounding, .env = options->upward ? "UPWARD" : "TONEAREST", .arena = arena};
  const Node *f = graph_rewrite(&q, graph_main(m));
  module_set(m, "main", GLOBAL_GRAPH, (void *)(uintptr_t)graph_infer(m, f));
  return layers;
}
