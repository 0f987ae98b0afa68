/* net.c: an ONNX file read, its constants worked out, and models written from it. */
#include "quant/net.h"

static bool is_plain(const char *domain) { return !*domain || !strcmp(domain, "ai.onnx"); }

const PAttr *quant_net_attr(const PNode *p, const char *name)
{
  for (int i = 0; i < p->attribute.n; i++)
    if (!strcmp(p->attribute.v[i]->name, name)) return p->attribute.v[i];
  return NULL;
}

int64_t quant_net_int(const PNode *p, const char *name, int64_t def)
{
  const PAttr *a = quant_net_attr(p, name);
  return a ? a->i : def;
}

const ConstData *quant_net_floats(const Net *n, const char *name)
{
  const ConstData *d = strmap_get(&n->values, name);
  return d && dtype_eq(d->dtype, DT_F32) ? d : NULL;
}

/* ---- building --------------------------------------------------------------------------------------- */

const char *quant_net_name(Net *n, const char *prefix, const char *suffix)
{
  const char *name = arena_printf(n->arena, "%s%s", prefix, suffix);
  for (int i = 2; strmap_get(&n->names, name); i++) name = arena_printf(n->arena, "%s%s_%d", prefix, suffix, i);
  strmap_put(n->arena, &n->names, name, n);
  return name;
}

const char *quant_net_made(Net *n, const char *prefix, const char *suffix)
{
  const char *key = arena_printf(n->arena, "%s%s", prefix, suffix);
  const char *name = strmap_get(&n->made, key);
  if (name) return name;
  name = quant_net_name(n, prefix, suffix);
  strmap_put(n->arena, &n->made, key, (void *)(uintptr_t)name);
  return name;
}

PNode *quant_net_push(Net *n, PGraph *g, const char *op, int count, const char *const *input, const char *output)
{
  PNode *p = arena_new_of(n->arena, PNode);
  p->op_type = op;
  p->name = quant_net_made(n, output, "_node");
  p->domain = p->overload = "";
  for (int i = 0; i < count; i++) vec_push(n->arena, &p->input, input[i]);
  vec_push(n->arena, &p->output, output);
  vec_push(n->arena, &g->node, p);
  return p;
}

void quant_net_push_int(Net *n, PNode *p, const char *name, int64_t v)
{
  PAttr *a = arena_new_of(n->arena, PAttr);
  a->name = name;
  a->ref = "";
  a->type = PATTR_INT;
  a->i = v;
  vec_push(n->arena, &p->attribute, a);
}

const char *quant_net_const(Net *n, PGraph *g, const char *name, int type, int ndim, const int64_t *shape,
                            const void *data, size_t bytes)
{
  PTensor *t = arena_new_of(n->arena, PTensor);
  t->name = name;
  t->data_type = type;
  for (int i = 0; i < ndim; i++) vec_push(n->arena, &t->dims, shape[i]);
  t->raw_data = (Bytes){arena_copy(n->arena, data, bytes), bytes};
  t->has = 1u << PTENSOR_RAW;
  vec_push(n->arena, &g->initializer, t);
  if (type == ONNX_F32 && g == &n->graph) {
    ConstData *d = arena_new_of(n->arena, ConstData);
    *d = (ConstData){.dtype = DT_F32, .ndim = ndim, .bytes = bytes, .data = t->raw_data.p};
    memcpy(d->shape, shape, (size_t)ndim * sizeof *shape);
    strmap_put(n->arena, &n->values, name, d);
  }
  return name;
}

PGraph quant_net_graph(Net *n)
{
  PGraph g = n->graph;
  Arena *a = n->arena;
  COPY_LIST(a, g.node);
  COPY_LIST(a, g.initializer);
  COPY_LIST(a, g.input);
  COPY_LIST(a, g.output);
  for (int i = 0; i < g.node.n; i++) {
    PNode *p = arena_copy(a, g.node.v[i], sizeof *p);
    COPY_LIST(a, p->input);
    COPY_LIST(a, p->output);
    COPY_LIST(a, p->attribute);
    g.node.v[i] = p;
  }
  return g;
}

Net *quant_net_copy(Net *n)
{
  Net *c = arena_copy(n->arena, n, sizeof *c);
  c->graph = quant_net_graph(n);
  c->model.graph = &c->graph;
  c->values = c->names = c->made = c->wires = (StrMap){0};
  for (int i = 0; i < n->values.n; i++) strmap_put(n->arena, &c->values, n->values.key[i], n->values.val[i]);
  for (int i = 0; i < n->names.n; i++) strmap_put(n->arena, &c->names, n->names.key[i], n->names.val[i]);
  memset(&c->flow, 0, sizeof c->flow);
  memset(&c->layer, 0, sizeof c->layer);
  return c;
}

static void use_names(Net *n, const PGraph *g, StrMap *used)
{
  for (int i = 0; i < g->node.n; i++) {
    const PNode *p = g->node.v[i];
    for (int k = 0; k < p->input.n; k++) strmap_put(n->arena, used, p->input.v[k], n);
    for (int k = 0; k < p->attribute.n; k++) {
      if (p->attribute.v[k]->g) use_names(n, p->attribute.v[k]->g, used);
      for (int j = 0; j < p->attribute.v[k]->graphs.n; j++) use_names(n, p->attribute.v[k]->graphs.v[j], used);
    }
  }
  for (int i = 0; i < g->output.n; i++) strmap_put(n->arena, used, g->output.v[i]->name, n);
}

/* Nodes that nobody uses go; true: there were some. */
static bool sweep_nodes(Net *n, PGraph *g)
{
  StrMap used = {0};
  use_names(n, g, &used);
  int kept = 0;
  for (int i = 0; i < g->node.n; i++) {
    PNode *p = g->node.v[i];
    bool wanted = false;
    for (int k = 0; k < p->output.n; k++) wanted |= strmap_get(&used, p->output.v[k]) != NULL;
    if (wanted) g->node.v[kept++] = p;
  }
  bool some = kept < g->node.n;
  g->node.n = kept;
  return some;
}

void quant_net_sweep(Net *n, PGraph *g)
{
  StrMap used = {0};
  StrMap gone = {0};
  while (sweep_nodes(n, g)) continue;
  use_names(n, g, &used);
  int kept = 0;
  for (int i = 0; i < g->initializer.n; i++) {
    PTensor *t = g->initializer.v[i];
    if (strmap_get(&used, t->name)) g->initializer.v[kept++] = t;
    else strmap_put(n->arena, &gone, t->name, n);
  }
  g->initializer.n = kept;
  kept = 0;
  for (int i = 0; i < g->input.n; i++)
    if (!strmap_get(&gone, g->input.v[i]->name)) g->input.v[kept++] = g->input.v[i];
  g->input.n = kept;
}

Bytes quant_net_bytes(Net *n, const PGraph *g)
{
  PModel model = n->model;
  model.graph = (PGraph *)(uintptr_t)g;
  return onnx_proto_write(n->arena, &onnx_proto_model, &model);
}

/* ---- importing -------------------------------------------------------------------------------------- */

static void drop_module(void *m) { module_release(m); }
static void drop_passes(void *pc) { pass_context_free(pc); }

static Module *import(Net *n, PGraph g, int count, const char *const *output, const QuantSamples *s)
{
  memset(&g.output, 0, sizeof g.output);
  for (int i = 0; i < count; i++) {
    PValueInfo *v = arena_new_of(n->arena, PValueInfo);
    v->name = output[i];
    vec_push(n->arena, &g.output, v);
  }
  Bytes b = quant_net_bytes(n, &g);
  ImportOptions o = {0};
  if (s) {
    ShapeBinding *shape = arena_array(n->arena, ShapeBinding, s->ninputs + 1);
    for (int i = 0, k = 0; i < g.input.n; i++) {
      if (strmap_get(&n->values, g.input.v[i]->name)) continue;
      shape[k] = (ShapeBinding){.input = g.input.v[i]->name, .ndim = s->input[k].ndim, .dim = s->input[k].shape};
      k++;
    }
    o.shape = shape;
    o.nshapes = s->ninputs;
  }
  Module *m = module_new(n->ctx);
  defer(n->ctx, drop_module, m);
  ImportReport report = {0};
  onnx_import(m, b.p, b.n, n->path, &o, &report);
  return m;
}

QuantRunner quant_net_runner(Net *n, const PGraph *g, int count, const char *const *output, const QuantSamples *s)
{
  return quant_runner(n->ctx, import(n, *g, count, output, s));
}

QuantSamples quant_net_samples(Net *n, int narrays, const QuantArray *array)
{
  const PGraph *g = &n->graph;
  QuantPort *port = arena_array(n->arena, QuantPort, g->input.n + 1);
  int count = 0;
  for (int i = 0; i < g->input.n; i++) {
    const PValueInfo *v = g->input.v[i];
    if (strmap_get(&n->values, v->name)) continue;
    if (!v->type || !v->type->tensor)
      raise(n->ctx, ERR_UNSUPPORTED, NOWHERE, "input '%s' is no tensor; models with such inputs are not quantized here",
            v->name);
    const PShape *shape = v->type->tensor->shape;
    int64_t *dim = arena_array(n->arena, int64_t, MAX_RANK);
    for (int k = 0; shape && k < shape->dim.n && k < MAX_RANK; k++)
      dim[k] =
          shape->dim.v[k]->has & 1u << PDIM_VALUE && shape->dim.v[k]->dim_value > 0 ? shape->dim.v[k]->dim_value : -1;
    port[count++] =
        (QuantPort){v->name, onnx_dtype(n->ctx, v->type->tensor->elem_type, v->name), shape ? shape->dim.n : -1, dim};
  }
  if (!count) raise(n->ctx, ERR_ARGUMENT, NOWHERE, "the model has no inputs: there is nothing to run it on");
  return quant_samples(n->arena, narrays, array, count, port);
}

/* ---- loading ------------------------------------------------------------------------------------------ */

/* Nodes whose operands the quantizer looks at when they are constant. */
static bool has_weights(const char *op)
{
  static const char *const ops[] = {"Conv",   "ConvTranspose",      "Gemm", "MatMul", "Add", "Sub", "Mul", "Div",
                                    "Concat", "BatchNormalization", "Clip"};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(ops[i], op)) return true;
  return false;
}

static bool has_rank(const char *op)
{
  return !strcmp(op, "Softmax") || !strcmp(op, "LogSoftmax") || !strcmp(op, "Hardmax");
}

static void refuse_quantized(Net *n)
{
  for (int i = 0; i < n->graph.node.n; i++) {
    const PNode *p = n->graph.node.v[i];
    if (str_starts(p->op_type, "QLinear") || !strcmp(p->op_type, "QuantizeLinear") ||
        !strcmp(p->op_type, "DequantizeLinear") || !strcmp(p->op_type, "ConvInteger") ||
        !strcmp(p->op_type, "MatMulInteger"))
      raise(n->ctx, ERR_ARGUMENT, NOWHERE, "the model is quantized already: node '%s' is a %s; give the float model",
            *p->name      ? p->name
            : p->output.n ? p->output.v[0]
                          : "",
            p->op_type);
  }
}

/* What is constant, whatever the file makes it of: the names are the outputs of the model, folded. */
static void find_values(Net *n)
{
  StrMap inputs = {0};
  StrMap asked = {0};
  Vec(const char *) name = {0};
  const PGraph *g = &n->graph;
  for (int i = 0; i < g->input.n; i++) strmap_put(n->arena, &inputs, g->input.v[i]->name, n);
  for (int i = 0; i < g->initializer.n; i++) strmap_put(n->arena, &inputs, g->initializer.v[i]->name, NULL);
  for (int i = 0; i < g->node.n; i++) {
    const PNode *p = g->node.v[i];
    if (!is_plain(p->domain) || (!has_weights(p->op_type) && !has_rank(p->op_type))) continue;
    for (int k = 0; k < p->input.n; k++) {
      const char *s = p->input.v[k];
      if (!*s || strmap_get(&inputs, s) || strmap_get(&asked, s)) continue;
      strmap_put(n->arena, &asked, s, n);
      vec_push(n->arena, &name, s);
    }
  }
  for (int i = 0; i < g->initializer.n; i++)
    if (!strmap_get(&asked, g->initializer.v[i]->name)) vec_push(n->arena, &name, g->initializer.v[i]->name);
  if (!name.n) return;
  Module *m = import(n, *g, name.n, name.v, NULL);
  PassContext *pc = pass_context_new(n->ctx);
  defer(n->ctx, drop_passes, pc);
  pass_run(pc, pass_get(n->ctx, "FoldConstant"), m);
  const Node *body = fn_body(graph_main(m));
  for (int i = 0; i < name.n; i++) {
    const Node *v = body->kind == N_TUPLE && name.n > 1 ? body->arg[i] : body;
    if (v->kind == N_CONST) strmap_put(n->arena, &n->values, name.v[i], (void *)(uintptr_t)v->u.data);
    if (v->type && v->type->kind == TY_TENSOR)
      strmap_put(n->arena, &n->ranks, name.v[i], (void *)(intptr_t)(v->type->ndim + 1));
  }
}

/* Weights that lie in other files come into this one. */
static void take_external(Net *n)
{
  for (int i = 0; i < n->graph.initializer.n; i++) {
    PTensor *t = n->graph.initializer.v[i];
    const ConstData *d = strmap_get(&n->values, t->name);
    if (t->data_location != 1 || !d) continue;
    if (d->dtype.bits < 8)
      raise(n->ctx, ERR_UNSUPPORTED, NOWHERE,
            "'%s' has elements of %d bits in another file; save the model in one file", t->name, d->dtype.bits);
    PTensor *own = arena_copy(n->arena, t, sizeof *own);
    own->data_location = 0;
    own->has = (own->has & ~(1u << 14)) | 1u << PTENSOR_RAW;
    memset(&own->external_data, 0, sizeof own->external_data);
    own->raw_data = (Bytes){d->data, d->bytes};
    n->graph.initializer.v[i] = own;
  }
}

static void take_names(Net *n, const PGraph *g)
{
  for (int i = 0; i < g->input.n; i++) strmap_put(n->arena, &n->names, g->input.v[i]->name, n);
  for (int i = 0; i < g->initializer.n; i++) strmap_put(n->arena, &n->names, g->initializer.v[i]->name, n);
  for (int i = 0; i < g->node.n; i++) {
    const PNode *p = g->node.v[i];
    strmap_put(n->arena, &n->names, p->name, n);
    for (int k = 0; k < p->output.n; k++) strmap_put(n->arena, &n->names, p->output.v[k], n);
    for (int k = 0; k < p->attribute.n; k++)
      if (p->attribute.v[k]->g) take_names(n, p->attribute.v[k]->g);
  }
}

Net *quant_net_read(Arena *a, const char *path)
{
  op_init();
  Net *n = arena_new_of(a, Net);
  n->ctx = arena_ctx(a);
  n->arena = a;
  n->path = path;
  const char *bytes = file_read(a, path, &n->file_bytes, 0);
  const PModel *model = onnx_proto_read(a, &onnx_proto_model, bytes, n->file_bytes);
  if (!model->graph) raise(n->ctx, ERR_PARSE, NOWHERE, "onnx: '%s' is no ONNX model: it has no graph", path);
  n->model = *model;
  n->graph = *model->graph;
  n->graph = quant_net_graph(n);
  n->model.graph = &n->graph;
  take_names(n, &n->graph);
  find_values(n);
  return n;
}

Net *quant_net_load(Arena *a, const char *path)
{
  Net *n = quant_net_read(a, path);
  refuse_quantized(n);
  take_external(n);
  quant_net_raise_opset(n);
  return n;
}
