/* tflite_import.c: a TFLite model as @main of a module.
 *
 * Comes in: the model's tables (tflite_model.c).  Goes out: one graph function over the inputs of the first subgraph,
 * the weights constants in it, and a report.  Operators are converted in the order of the file, in which each comes
 * after what it takes.  Other subgraphs are bodies of control flow; they see their own tensors alone.
 *
 * Variable tensors of the first subgraph, and resource variables, are states: parameters and results of @main that
 * executors keep from one run to the next (kit_set_main).
 *
 * Inputs and outputs have the names that the model's signature gives them, else those of their tensors. */
#include "frontend/tflite_import.h"

enum { NESTING_LIMIT = 64 };

/* ---- what converters ask ------------------------------------------------------------------------- */

static TflTensor *tensor_at(Conversion *c, int n, const int32_t *list, int i)
{
  TflGraph *g = ((const TflNode *)c->foreign)->graph;
  return i < n && list[i] >= 0 ? &g->tensor[list[i]] : NULL;
}

TflTensor *tfl_opt(Conversion *c, int i) { return tensor_at(c, tfl_op(c)->nin, tfl_op(c)->in, i); }

TflTensor *tfl_in(Conversion *c, int i)
{
  TflTensor *t = tfl_opt(c, i);
  if (!t) kit_fail(c, ERR_ARGUMENT, "input %d is missing", i);
  return t;
}

TflTensor *tfl_out(Conversion *c, int i)
{
  TflTensor *t = tensor_at(c, tfl_op(c)->nout, tfl_op(c)->out, i);
  if (!t) kit_fail(c, ERR_ARGUMENT, "output %d is missing", i);
  return t;
}

TflTensor *tfl_inter(Conversion *c, int i)
{
  TflTensor *t = tensor_at(c, tfl_op(c)->ninter, tfl_op(c)->inter, i);
  if (!t) kit_fail(c, ERR_ARGUMENT, "intermediate result %d is missing", i);
  return t;
}

void tfl_assign(Conversion *c, int i, const Node *value)
{
  if (tfl_in(c, i)->variable) kit_frame_set(c->im, c->frame, tfl_in(c, i)->key, value);
}

int64_t tfl_int(Conversion *c, int slot, int64_t def) { return flat_int(&tfl_op(c)->options, slot, 4, def); }
int64_t tfl_byte(Conversion *c, int slot, int64_t def) { return flat_int(&tfl_op(c)->options, slot, 1, def); }
bool tfl_bool(Conversion *c, int slot) { return flat_uint(&tfl_op(c)->options, slot, 1, 0) != 0; }
double tfl_float(Conversion *c, int slot, double def) { return flat_f32(&tfl_op(c)->options, slot, def); }

TflGraph *tfl_subgraph(Conversion *c, int64_t index, const char *what)
{
  TflModel *m = tfl_of(c->im)->model;
  if (index < 0 || index >= m->ngraphs)
    kit_fail(c, ERR_ARGUMENT, "%s is subgraph %" PRId64 "; the model has %d", what, index, m->ngraphs);
  if (m->graph[index].open)
    kit_fail(c, ERR_UNSUPPORTED, "%s is subgraph %" PRId64 " ('%s'), which leads back to itself", what, index,
             m->graph[index].name);
  return &m->graph[index];
}

/* ---- nodes ----------------------------------------------------------------------------------------- */

static const char *const *keys(Import *im, const TflGraph *g, int n, const int32_t *list)
{
  const char **key = arena_array(im->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) key[i] = list[i] < 0 ? "" : g->tensor[list[i]].key;
  return key;
}

static const char *label(const TflGraph *g, const TflOperator *op)
{
  for (int i = 0; i < op->nout; i++)
    if (*g->tensor[op->out[i]].name) return g->tensor[op->out[i]].name;
  return op->nout ? g->tensor[op->out[0]].key : op->op;
}

/* Operators that only move elements take and give the same scale; others must say that they know of scales. */
static void check_quantized(Conversion *c, const TflRow *row)
{
  for (int i = 0; !row->quantized && i < c->nin; i++) {
    const TflTensor *t = tfl_opt(c, i);
    if (t && tfl_is_quantized(t) && t->dtype.bits <= 16)
      kit_fail(c, ERR_UNSUPPORTED, "a quantized input ('%s', %s) is not supported; float32 is", t->name,
               tfl_type_name(t->type));
  }
}

static void check_result(Conversion *c, int i)
{
  const TflTensor *t = tfl_out(c, i);
  if (!c->out[i] || c->out[i]->type->kind != TY_TENSOR || t->type == 13 || t->dtype.bits == 4) return;
  if (!dtype_eq(c->out[i]->type->dtype, t->dtype))
    kit_fail(c, ERR_TYPE, "output %d is %s, the file says %s", i, dtype_name(scratch(c->ctx), c->out[i]->type->dtype),
             tfl_type_name(t->type));
}

static void convert_operator(Import *im, Frame *f, TflGraph *g, const TflOperator *op)
{
  TflNode *node = arena_new_of(im->arena, TflNode);
  *node = (TflNode){g, op};
  Conversion c = kit_begin(im, f, op->op, label(g, op), op->version, op->nin, keys(im, g, op->nin, op->in), op->nout,
                           keys(im, g, op->nout, op->out), node);
  for (int i = 0; i < op->nin; i++)
    if (op->in[i] >= 0 && !c.in[i])
      raise(im->ctx, ERR_ARGUMENT, NOWHERE,
            "tflite: node '%s' takes '%s', which is no input, has no buffer and is no earlier node's output", c.name,
            g->tensor[op->in[i]].key);
  const TflRow *row = tfl_find(op->op);
  if (row->options && op->options_type && op->options_type != row->options)
    kit_fail(&c, ERR_PARSE, "its options are of kind %d; %d is wanted", op->options_type, row->options);
  check_quantized(&c, row);
  const Node *first = row->convert(&c);
  if (first) c.out[0] = first;
  for (int i = 0; i < c.nout; i++) check_result(&c, i);
  kit_end(&c);
}

/* What a variable tensor holds at first: zeros, or the zero point. */
static const Node *first_value(Import *im, const TflTensor *t)
{
  for (int d = 0; d < t->ndim; d++)
    if (t->dim[d] < 0)
      raise(im->ctx, ERR_SHAPE, NOWHERE, "tflite: the variable '%s' has a dimension of %" PRId64, t->name, t->dim[d]);
  ConstData data = {.dtype = t->dtype};
  size_t count = kit_const_shape(im, t->name, t->ndim, t->dim, &data);
  size_t size = (size_t)dtype_bytes(t->dtype);
  if (data.bytes > (size_t)1 << 30)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: the variable '%s' has %zu bytes; there are at most 2^30", t->name,
          data.bytes);
  char *bytes = arena_alloc(im->m->arena, data.bytes + 1);
  for (size_t k = 0; t->q.n == 1 && dtype_is_int(t->dtype) && k < count; k++)
    value_store(value_int(t->dtype, t->q.zero[0]), bytes + k * size);
  data.data = bytes;
  return node_const(im->m, &data);
}

static void define_constants(Import *im, Frame *f, TflGraph *g)
{
  for (int i = 0; i < g->ntensors; i++) {
    TflTensor *t = &g->tensor[i];
    const Node *n = tfl_constant(im, t);
    if (!n && t->variable) n = first_value(im, t);
    if (n) kit_frame_set(im, f, t->key, n);
  }
}

/* ---- states --------------------------------------------------------------------------------------- */

static int add_state(Import *im, const char *name, const Type *type)
{
  TflImport *own = tfl_of(im);
  int at = own->states.n;
  name = arena_printf(im->m->arena, "state%d.%s", at, name);
  vec_push(im->arena, &own->states, ((TflState){.name = name, .in = node_var(im->m, name, type)}));
  return at;
}

const Node *tfl_state(Import *im, const char *name, const Node *first, const Type *type, int *index)
{
  TflImport *own = tfl_of(im);
  *index = add_state(im, name, type);
  const Node *in = own->states.v[*index].in;
  if (!first) return in;
  if (!own->begun) {
    const Type *truth = type_tensor(im->m, DT_BOOL, 0, NULL);
    int at = add_state(im, "begun", truth);
    own->begun = own->states.v[at].in;
    own->states.v[at].out = node_const_copy(im->m, DT_BOOL, 0, NULL, &(uint8_t){1});
  }
  return node_call(im->m, opdef_find("where"), 3, (const Node *[]){own->begun, in, first}, NULL, NULL);
}

/* Variable tensors of the first subgraph; state[i]: 1 + the state of tensor i. */
static int *define_states(Import *im, Frame *f, TflGraph *g)
{
  int *state = arena_array(im->arena, int, g->ntensors + 1);
  for (int i = 0; i < g->ntensors; i++) {
    TflTensor *t = &g->tensor[i];
    if (!t->variable || tfl_constant(im, t)) continue;
    const Node *first = first_value(im, t);
    bool zeros = t->q.n != 1 || !dtype_is_int(t->dtype) || !t->q.zero[0];
    int at;
    kit_frame_set(im, f, t->key, tfl_state(im, t->key, zeros ? NULL : first, first->type, &at));
    state[i] = 1 + at;
  }
  return state;
}

/* Behind the other parameters and results. */
static void add_states(Import *im, Frame *f, const TflGraph *g, const int *state, KitNodes *params, KitNodes *out)
{
  TflImport *own = tfl_of(im);
  for (int i = 0; i < g->ntensors; i++)
    if (state[i]) own->states.v[state[i] - 1].out = kit_frame_get(im, f, g->tensor[i].key);
  for (int i = 0; i < own->variables.n; i++) {
    const TflVariable *v = &own->variables.v[i];
    if (v->state) own->states.v[v->state - 1].out = v->value ? v->value : v->begin;
  }
  for (int i = 0; i < own->states.n; i++) {
    const TflState *s = &own->states.v[i];
    if (!type_equal(s->in->type, s->out->type))
      raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: '%s' is %s when a run begins and %s when it ends", s->name,
            type_text(im->arena, s->in->type), type_text(im->arena, s->out->type));
    vec_push(im->arena, params, s->in);
    vec_push(im->arena, out, s->out);
  }
}

static void convert_graph(Import *im, Frame *f, TflGraph *g, const Node **out)
{
  if (++tfl_of(im)->depth > NESTING_LIMIT)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: subgraphs nest deeper than %d", NESTING_LIMIT);
  g->open = true;
  for (int i = 0; i < g->nops; i++) {
    ctx_poll(im->ctx);
    Scope scope = scope_begin(im->ctx);
    convert_operator(im, f, g, &g->op[i]);
    scope_end(im->ctx, scope);
  }
  g->open = false;
  tfl_of(im)->depth--;
  for (int i = 0; i < g->nout; i++) {
    out[i] = kit_frame_get(im, f, g->tensor[g->out[i]].key);
    if (!out[i])
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "tflite: the output '%s' is made by no node", g->tensor[g->out[i]].key);
  }
}

/* Of each input and output that is quantized as a whole: "input I SCALE ZERO" (or output), a line each. */
static const char *quantization_of(Import *im, const TflGraph *g)
{
  Text t = text_new(im->arena);
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < (k ? g->nout : g->nin); i++) {
      const TflQuant *q = &g->tensor[k ? g->out[i] : g->in[i]].q;
      if (q->n == 1) text_printf(&t, "%s %d %.9g %" PRId64 "\n", k ? "output" : "input", i, q->scale[0], q->zero[0]);
    }
  return text_str(&t);
}

void tfl_import_graph(Import *im, TflGraph *g, const Node *const *in, const Node **out)
{
  Frame *f = arena_new_of(im->arena, Frame);
  f->closed = true;
  define_constants(im, f, g);
  for (int i = 0; i < g->nin; i++) kit_frame_set(im, f, g->tensor[g->in[i]].key, in[i]);
  convert_graph(im, f, g, out);
}

/* ---- the report --------------------------------------------------------------------------------------- */

static void survey_operator(Survey *s, const TflGraph *g, const TflOperator *op)
{
  const TflRow *row = tfl_find(op->op);
  const char *name = kit_survey_use(s, op->op);
  if (!row) kit_survey_problem(s, name, label(g, op), "not supported");
  else if (op->version > row->version || op->version < 1)
    kit_survey_problem(
        s, name, label(g, op),
        arena_printf(s->im->m->arena, "of version %" PRId64 "; the newest known is %d", op->version, row->version));
}

static void survey(Import *im)
{
  Survey s = {.im = im};
  TflModel *m = tfl_of(im)->model;
  for (int k = 0; k < m->ngraphs; k++)
    for (int i = 0; i < m->graph[k].nops; i++) survey_operator(&s, &m->graph[k], &m->graph[k].op[i]);
  kit_survey_end(&s);
}

/* ---- the model ------------------------------------------------------------------------------------------ */

/* The name in the first signature of the subgraph; else the tensor's, the only one of its kind. */
static const char *port_name(Import *im, const TflGraph *g, int32_t tensor, bool out)
{
  const TflModel *m = tfl_of(im)->model;
  for (int i = 0; i < m->nsignatures; i++) {
    const TflSignature *s = &m->signature[i];
    if (&m->graph[s->graph] != g) continue;
    int n = out ? s->nout : s->nin;
    for (int k = 0; k < n; k++)
      if ((out ? s->out : s->in)[k] == tensor && *(out ? s->out_name : s->in_name)[k])
        return (out ? s->out_name : s->in_name)[k];
    break;
  }
  return g->tensor[tensor].key;
}

/* Sizes that may be bound otherwise are as the file has them where nobody binds them. */
static SourceInput source_input(Import *im, const char *name, const TflTensor *t, bool bound)
{
  SourceInput in = {.name = name, .ndim = t->ndim};
  SourceDim *dim = arena_array(im->arena, SourceDim, t->ndim + 1);
  for (int i = 0; i < t->ndim; i++) {
    bool open = t->dim[i] < 0 || (bound && t->signature && t->signature[i] < 0);
    dim[i] = (SourceDim){.known = !open, .value = t->dim[i], .name = ""};
  }
  in.dim = dim;
  return in;
}

static void import_main(Import *im)
{
  TflGraph *g = &tfl_of(im)->model->graph[0];
  Frame *f = arena_new_of(im->arena, Frame);
  KitNodes params = {0};
  SourceInput *in = arena_array(im->arena, SourceInput, g->nin + 1);
  StrMap seen = {0};
  for (int i = 0; i < g->nin; i++)
    in[i] = source_input(im, port_name(im, g, g->in[i], false), &g->tensor[g->in[i]], true);
  kit_bind_shapes(im, g->nin, in);
  define_constants(im, f, g);
  for (int i = 0; i < g->nin; i++) {
    TflTensor *t = &g->tensor[g->in[i]];
    const char *name = in[i].name;
    if (strmap_get(&seen, name)) raise(im->ctx, ERR_ARGUMENT, NOWHERE, "tflite: two inputs have the name '%s'", name);
    strmap_put(im->arena, &seen, name, t);
    if (t->type == 13) raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "tflite: the input '%s' is a resource", name);
    const ShapeBinding *b = kit_binding_of(im, name);
    SourceInput source = source_input(im, name, t, b != NULL);
    const Node *var = node_var(im->m, name, kit_input_type(im, t->dtype.bits == 4 ? DT_I8 : t->dtype, &source, b));
    kit_frame_set(im, f, t->key, var);
    vec_push(im->arena, &params, var);
  }
  if (im->opt->keep_params) {
    const char **weight = arena_array(im->arena, const char *, g->ntensors + 1);
    int n = 0;
    for (int i = 0; i < g->ntensors; i++)
      if (g->tensor[i].node) weight[n++] = g->tensor[i].key;
    kit_keep_params(im, f, n, weight, &params);
  }
  if (!g->nout) raise(im->ctx, ERR_ARGUMENT, NOWHERE, "tflite: the subgraph '%s' has no outputs", g->name);
  int *state = define_states(im, f, g);
  const Node **result = arena_array(im->arena, const Node *, g->nout);
  convert_graph(im, f, g, result);
  KitNodes out = {0};
  for (int i = 0; i < g->nout; i++) vec_push(im->arena, &out, result[i]);
  add_states(im, f, g, state, &params, &out);
  const char **names = arena_array(im->m->arena, const char *, out.n);
  for (int i = 0; i < g->nout; i++) names[i] = arena_strdup(im->m->arena, port_name(im, g, g->out[i], true));
  for (int i = g->nout; i < out.n; i++) names[i] = tfl_of(im)->states.v[i - g->nout].name;
  kit_set_main(im, &params, out.n, out.v, names, tfl_of(im)->states.n, quantization_of(im, g));
}

static void read_model(Import *im)
{
  tfl_of(im)->model = tfl_read_model(im);
  survey(im);
  import_main(im);
}

static void import_model(Module *m, Bytes file, const char *path, const ImportOptions *opt, ImportReport *report)
{
  TflImport own = {0};
  Import im = {.format = "tflite", .listing = "lathe ops --tflite", .own = &own};
  kit_import(&im, m, file, path, opt, report, read_model);
}

void tflite_import(Module *m, const void *bytes, size_t n, const char *path, const ImportOptions *opt,
                   ImportReport *report)
{
  import_model(m, kit_keep_bytes(m, bytes, n), path, opt, report);
}

void tflite_import_file(Module *m, const char *path, const ImportOptions *opt, ImportReport *report)
{
  import_model(m, kit_map_file(m, "tflite", path), path, opt, report);
}
