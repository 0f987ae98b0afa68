/* onnx_import.c: an ONNX model as @main of a module.
 *
 * Comes in: the file's messages.  Goes out: one graph function over the model's inputs,
 * the weights constants in it, and a report.  Nodes are converted in the order of the
 * file, which ONNX demands to be topological; a name is defined once in its graph. */
#include "frontend/onnx_control.h"

enum { NESTING_LIMIT = 64 }; /* bodies and functions inside each other */

static const OnnxTable *const tables[] = {
  &onnx_ops_math,      &onnx_ops_reduce,    &onnx_ops_shape,
  &onnx_ops_index,     &onnx_ops_text,      &onnx_ops_nn,
  &onnx_ops_norm,      &onnx_ops_attention, &onnx_ops_linear_attention,
  &onnx_ops_recurrent, &onnx_ops_quant,     &onnx_ops_image,
  &onnx_ops_signal,    &onnx_ops_random,    &onnx_ops_loss,
  &onnx_ops_control,   &onnx_ops_training,  &onnx_ops_ml,
  &onnx_ml_trees,      &onnx_ops_microsoft, &onnx_ops_microsoft_quant,
  &onnx_ops_preview,   &onnx_ops_legacy,    &onnx_ops_aten,
};
enum { NTABLES = sizeof tables / sizeof *tables };

static const char *plain_domain(const char *domain) { return strcmp(domain, "ai.onnx") ? domain : ""; }

const OnnxRow *onnx_find(const char *domain, const char *op, int64_t opset)
{
  const OnnxRow *best = NULL;
  for (int t = 0; t < NTABLES; t++) {
    if (strcmp(tables[t]->domain, plain_domain(domain))) continue;
    for (int i = 0; i < tables[t]->n; i++) {
      const OnnxRow *row = &tables[t]->row[i];
      if (row->since <= opset && (!best || row->since > best->since) && !strcmp(row->name, op)) best = row;
    }
  }
  return best;
}

int onnx_op_count(void)
{
  int n = 0;
  for (int t = 0; t < NTABLES; t++) n += tables[t]->n;
  return n;
}

const char *onnx_op_name(int i)
{
  for (int t = 0; t < NTABLES; i -= tables[t++]->n)
    if (i < tables[t]->n) return tables[t]->row[i].name;
  return NULL;
}

int onnx_op_since(int i)
{
  for (int t = 0; t < NTABLES; i -= tables[t++]->n)
    if (i < tables[t]->n) return tables[t]->row[i].since;
  return 0;
}

const char *onnx_op_domain(int i)
{
  for (int t = 0; t < NTABLES; i -= tables[t++]->n)
    if (i < tables[t]->n) return tables[t]->domain;
  return NULL;
}

/* ---- types of inputs -------------------------------------------------------------------------- */

static SourceInput source_input(Import *im, const char *name, const PTensorType *t)
{
  SourceInput in = {.name = name, .ndim = t && t->shape ? t->shape->dim.n : -1};
  SourceDim *dim = arena_array(im->arena, SourceDim, in.ndim > 0 ? in.ndim : 1);
  for (int i = 0; i < in.ndim; i++) {
    const PDim *d = t->shape->dim.v[i];
    dim[i] = (SourceDim){.known = d->has & 1u << PDIM_VALUE, .value = d->dim_value, .name = d->dim_param};
  }
  in.dim = dim;
  return in;
}

static const Type *import_tensor_type(Import *im, const PTensorType *t, const char *input, const ShapeBinding *b)
{
  SourceInput in = source_input(im, input, t);
  return kit_input_type(im, onnx_dtype(im->ctx, t->elem_type, input), &in, b);
}

const Type *onnx_import_type(Import *im, const PType *t, const char *input, const ShapeBinding *b)
{
  if (t && t->tensor) return import_tensor_type(im, t->tensor, input, b);
  if (t && t->sequence && t->sequence->elem_type)
    return type_simple(im->m, TY_SEQ, onnx_import_type(im, t->sequence->elem_type, input, NULL));
  if (t && t->optional && t->optional->elem_type)
    return type_simple(im->m, TY_OPT, onnx_import_type(im, t->optional->elem_type, input, NULL));
  if (t && (t->map || t->sparse))
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: '%s' is a %s, which is not supported", input,
          t->map ? "map" : "sparse tensor");
  raise(im->ctx, ERR_TYPE, NOWHERE, "onnx: '%s' has no type", input);
}

static bool has_initializer(const PGraph *g, const char *name)
{
  for (int i = 0; i < g->initializer.n; i++)
    if (!strcmp(g->initializer.v[i]->name, name)) return true;
  return false;
}

static void bind_shapes(Import *im, const PGraph *g)
{
  SourceInput *in = arena_array(im->arena, SourceInput, g->input.n + 1);
  for (int i = 0; i < g->input.n; i++) {
    const PValueInfo *v = g->input.v[i];
    in[i] = source_input(im, v->name, v->type ? v->type->tensor : NULL);
  }
  kit_bind_shapes(im, g->input.n, in);
}

/* ---- functions of the model ------------------------------------------------------------------ */

static const PFunction *find_function(Import *im, const PNode *p)
{
  for (int i = 0; i < onnx_of(im)->model->functions.n; i++) {
    const PFunction *f = onnx_of(im)->model->functions.v[i];
    if (!strcmp(f->name, p->op_type) && !strcmp(plain_domain(f->domain), plain_domain(p->domain)) &&
        !strcmp(f->overload, p->overload))
      return f;
  }
  return NULL;
}

const OnnxFunctionCall *onnx_function_around(const Frame *f)
{
  while (f && !f->own) f = f->outer;
  return f ? f->own : NULL;
}

int64_t onnx_import_opset(Import *im, const Frame *f, const char *domain)
{
  const OnnxFunctionCall *call = onnx_function_around(f);
  bool local = call && call->function->opset_import.n;
  int n = local ? call->function->opset_import.n : onnx_of(im)->model->opset_import.n;
  POpset *const *list = local ? call->function->opset_import.v : onnx_of(im)->model->opset_import.v;
  if (im->opt->opset && !*plain_domain(domain)) return im->opt->opset;
  for (int i = 0; i < n; i++)
    if (!strcmp(plain_domain(list[i]->domain), plain_domain(domain))) return list[i]->version;
  return *plain_domain(domain) ? 1 : n ? 0 : 1; /* a file without any is of the first opset */
}

const char *onnx_node_label(const PNode *p)
{
  if (*p->name) return p->name;
  for (int i = 0; i < p->output.n; i++)
    if (*p->output.v[i]) return p->output.v[i];
  return p->op_type;
}

static void inline_function(Import *im, Frame *f, const PNode *p, const PFunction *fn)
{
  for (const OnnxFunctionCall *up = onnx_function_around(f); up; up = onnx_function_around(up->frame))
    if (up->function == fn)
      raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: function '%s' (node '%s') calls itself", fn->name,
            onnx_node_label(p));
  if (p->input.n > fn->input.n || p->output.n > fn->output.n)
    raise(im->ctx, ERR_ARGUMENT, NOWHERE,
          "onnx: function '%s' (node '%s') has %d inputs and %d outputs; the node has %d and %d", fn->name,
          onnx_node_label(p), fn->input.n, fn->output.n, p->input.n, p->output.n);
  Frame *body = arena_new_of(im->arena, Frame);
  OnnxFunctionCall *call = arena_new_of(im->arena, OnnxFunctionCall);
  *call = (OnnxFunctionCall){fn, p, f};
  *body = (Frame){.closed = true, .own = call};
  for (int i = 0; i < p->input.n; i++) {
    const Node *n = *p->input.v[i] ? kit_frame_get(im, f, p->input.v[i]) : NULL;
    if (*p->input.v[i] && !n)
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: node '%s' takes '%s', which nothing before it makes",
            onnx_node_label(p), p->input.v[i]);
    if (n) kit_frame_set(im, body, fn->input.v[i], n);
  }
  onnx_import_nodes(im, body, fn->node.n, fn->node.v, (Goal){fn->output.n, fn->output.v});
  for (int i = 0; i < p->output.n; i++) {
    if (!*p->output.v[i]) continue;
    const Node *n = kit_frame_get(im, body, fn->output.v[i]);
    if (!n)
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: function '%s' does not make its output '%s'", fn->name,
            fn->output.v[i]);
    kit_define(im, f, p->output.v[i], n, onnx_node_label(p));
  }
}

/* ---- nodes -------------------------------------------------------------------------------------- */

_Noreturn static void missing_input(Import *im, const PNode *p, const char *name)
{
  raise(im->ctx, ERR_ARGUMENT, NOWHERE,
        "onnx: node '%s' takes '%s', which is no input, no initializer and no node's output", onnx_node_label(p), name);
}

/* Is the name an input of the model-local function around, which its caller left out? */
static bool is_left_out(const Frame *f, const char *name)
{
  const OnnxFunctionCall *call = onnx_function_around(f);
  for (int k = 0; call && k < call->function->input.n; k++)
    if (!strcmp(call->function->input.v[k], name)) return true;
  return false;
}

static Conversion begin_node(Import *im, Frame *f, const PNode *p)
{
  Conversion c = kit_begin(im, f, p->op_type, onnx_node_label(p), onnx_import_opset(im, f, p->domain), p->input.n,
                           p->input.v, p->output.n, p->output.v, p);
  for (int i = 0; i < c.nin; i++)
    if (*p->input.v[i] && !c.in[i] && !is_left_out(f, p->input.v[i])) missing_input(im, p, p->input.v[i]);
  return c;
}

static void convert_node(Import *im, Frame *f, const PNode *p)
{
  Conversion c = begin_node(im, f, p);
  const OnnxRow *row = onnx_find(p->domain, p->op_type, c.version);
  if (!row)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE,
          "onnx: operator '%s' (node '%s') is not supported; 'lathe ops --onnx' lists what is", p->op_type, c.name);
  const Node *first = row->convert(&c);
  if (first) c.out[0] = first;
  kit_end(&c);
}

/* ---- an If whose branches differ in rank ----------------------------------------------------------
 *
 * What follows it cannot be typed over a value of unknown rank, so it is converted once
 * for each branch and put inside.  Exporters write such an If around a Squeeze; then the
 * rest often makes no sense for the other branch: a branch whose rest has no types can
 * never run to the end, and is left out. */

typedef struct Rest {
  Import *im;
  Frame *frame;
  int n;
  PNode *const *node;
  Goal goal;
  const Node **out;
} Rest;

static void import_rest(Ctx *ctx, void *arg)
{
  Rest *r = arg;
  (void)ctx;
  onnx_import_nodes(r->im, r->frame, r->n, r->node, r->goal);
  for (int i = 0; i < r->goal.n; i++) {
    r->out[i] = kit_frame_get(r->im, r->frame, r->goal.name[i]);
    if (!r->out[i])
      raise(r->im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the output '%s' is made by no node", r->goal.name[i]);
  }
}

static ErrKind try_rest(Rest *r, const Conversion *c, const Node *const *value, Frame *outer)
{
  int depth = onnx_of(r->im)->depth;
  r->frame = arena_new_of(r->im->arena, Frame);
  r->frame->outer = outer;
  r->out = arena_array(r->im->arena, const Node *, r->goal.n + 1);
  for (int i = 0; i < c->nout; i++)
    if (*c->out_name[i]) kit_frame_set(r->im, r->frame, c->out_name[i], value[i]);
  ErrKind k = protect(r->im->ctx, import_rest, r);
  onnx_of(r->im)->depth = depth;
  bool untyped = k == ERR_TYPE || k == ERR_SHAPE || k == ERR_ARGUMENT || k == ERR_UNSUPPORTED;
  if (k != ERR_NONE && !untyped) error_reraise(r->im->ctx);
  return k;
}

static bool rank_differs(const Type *a, const Type *b)
{
  return a->kind == TY_TENSOR && b->kind == TY_TENSOR && (a->ndim != b->ndim || a->ndim < 0);
}

/* x, which has a meaning only where the condition is `value`: there it is left as it is, elsewhere the
 * run is refused.  A slice along a new axis takes one item or none; squeezing wants one. */
static const Node *only_where(Conversion *c, const Node *cond, bool value, const Node *x)
{
  enum { MOST = 6 };
  if (x->type->kind != TY_TENSOR || x->type->ndim < 0 || x->type->ndim > MOST)
    kit_fail(c, ERR_UNSUPPORTED, "only one of the branches fits what follows, and that gives %s",
             type_text(scratch(c->m->ctx), x->type));
  const Node *taken = kit_cast_to(c, kit_scalar_of(c, cond), DT_I64);
  if (!value) taken = kit_op2(c, "subtract", kit_scalar(c, DT_I64, 1), taken, NULL);
  const Node *wide = kit_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", 0, 2);
  const Node *cut =
      kit_slice_to(c, wide, 0, kit_const_i64(c, 1, (int64_t[]){0}), kit_op1(c, "expand_dims", taken, "axis:i", 0));
  return kit_squeeze(c, kit_squeeze(c, cut, 0), 0);
}

/* Converts the If; true when the rest went with it. */
static bool convert_branching(Import *im, Frame *f, const PNode *p, int nrest, PNode *const *rest, Goal goal)
{
  Conversion c = begin_node(im, f, p);
  const Node **yes, **no;
  const Node *cond = onnx_if_branches(&c, &yes, &no);
  bool differ = false;
  for (int i = 0; yes && no && i < c.nout; i++) differ = differ || rank_differs(yes[i]->type, no[i]->type);
  if (!differ) {
    bool single = c.nout == 1;
    const Node *both = !yes || !no ? NULL
                       : single    ? node_if(im->m, cond, yes[0], no[0])
                                : node_if(im->m, cond, node_tuple(im->m, c.nout, yes), node_tuple(im->m, c.nout, no));
    for (int i = 0; i < c.nout; i++) c.out[i] = !both ? yes ? yes[i] : no[i] : single ? both : node_get(im->m, both, i);
    kit_end(&c);
    return false;
  }
  if (++onnx_of(im)->nsplits > 64) kit_fail(&c, ERR_UNSUPPORTED, "too many branches of different rank");
  Rest a = {.im = im, .n = nrest, .node = rest, .goal = goal};
  Rest b = a;
  ErrKind ka = try_rest(&a, &c, yes, f);
  ErrKind kb = try_rest(&b, &c, no, f);
  if (ka != ERR_NONE && kb != ERR_NONE) error_reraise(im->ctx);
  const Node *both = ka == ERR_NONE && kb == ERR_NONE
                         ? node_if(im->m, cond, node_tuple(im->m, goal.n, a.out), node_tuple(im->m, goal.n, b.out))
                         : NULL;
  for (int i = 0; i < goal.n; i++) {
    if (strmap_get(&f->values, goal.name[i])) continue;
    bool first = ka == ERR_NONE;
    kit_frame_set(im, f, goal.name[i],
                  both ? node_get(im->m, both, i) : only_where(&c, cond, first, first ? a.out[i] : b.out[i]));
  }
  return true;
}

void onnx_import_nodes(Import *im, Frame *f, int n, PNode *const *node, Goal goal)
{
  if (++onnx_of(im)->depth > NESTING_LIMIT)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: bodies and functions nest deeper than %d", NESTING_LIMIT);
  node = onnx_order_nodes(im, n, node);
  bool done = false;
  for (int i = 0; i < n && !done; i++) {
    ctx_poll(im->ctx);
    Scope scope = scope_begin(im->ctx);
    const PFunction *fn = find_function(im, node[i]);
    if (fn) inline_function(im, f, node[i], fn);
    else if (!strcmp(node[i]->op_type, "If") && !*plain_domain(node[i]->domain))
      done = convert_branching(im, f, node[i], n - i - 1, node + i + 1, goal);
    else convert_node(im, f, node[i]);
    scope_end(im->ctx, scope);
  }
  onnx_of(im)->depth--;
}

static Goal goal_of(Import *im, const PGraph *g)
{
  const char **names = arena_array(im->arena, const char *, g->output.n + 1);
  for (int i = 0; i < g->output.n; i++) names[i] = g->output.v[i]->name;
  return (Goal){g->output.n, names};
}

static void import_initializers(Import *im, Frame *f, const PGraph *g)
{
  for (int i = 0; i < g->initializer.n; i++) {
    const PTensor *t = g->initializer.v[i];
    kit_define(im, f, t->name, onnx_tensor(im, t, t->name), "initializer");
  }
  for (int i = 0; i < g->sparse_initializer.n; i++) {
    const PSparse *s = g->sparse_initializer.v[i];
    const char *name = s->values ? s->values->name : "";
    kit_define(im, f, name, onnx_sparse(im, s, name), "sparse initializer");
  }
}

void onnx_import_body(Import *im, Frame *f, const PGraph *g, const Node **out)
{
  import_initializers(im, f, g);
  onnx_import_nodes(im, f, g->node.n, g->node.v, goal_of(im, g));
  for (int i = 0; i < g->output.n; i++) {
    out[i] = kit_frame_get(im, f, g->output.v[i]->name);
    if (!out[i])
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the output '%s' is made by no node", g->output.v[i]->name);
  }
}

/* ---- the report ----------------------------------------------------------------------------------- */

static void survey_nodes(Survey *s, const Frame *f, int n, PNode *const *node, int depth);

static void survey_node(Survey *s, const Frame *f, const PNode *p, int depth)
{
  Import *im = s->im;
  Arena *a = im->m->arena;
  const char *name =
      kit_survey_use(s, *plain_domain(p->domain) ? arena_printf(a, "%s.%s", p->domain, p->op_type) : p->op_type);
  for (int i = 0; i < p->attribute.n; i++) {
    const PAttr *attr = p->attribute.v[i];
    if (attr->g) survey_nodes(s, f, attr->g->node.n, attr->g->node.v, depth + 1);
  }
  if (find_function(im, p)) return;
  int64_t opset = onnx_import_opset(im, f, p->domain);
  if (onnx_find(p->domain, p->op_type, opset)) return;
  const char *why = onnx_find(p->domain, p->op_type, INT64_MAX)
                        ? arena_printf(a, "not defined in opset %" PRId64, opset)
                        : "not supported";
  kit_survey_problem(s, name, onnx_node_label(p), why);
}

static void survey_nodes(Survey *s, const Frame *f, int n, PNode *const *node, int depth)
{
  if (depth > NESTING_LIMIT)
    raise(s->im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: bodies nest deeper than %d", NESTING_LIMIT);
  for (int i = 0; i < n; i++) survey_node(s, f, node[i], depth);
}

/* Looks at every node before any is converted. */
static void survey(Import *im)
{
  Survey s = {.im = im};
  const PModel *model = onnx_of(im)->model;
  survey_nodes(&s, NULL, model->graph->node.n, model->graph->node.v, 0);
  for (int i = 0; i < model->functions.n; i++) {
    OnnxFunctionCall call = {.function = model->functions.v[i]};
    Frame f = {.closed = true, .own = &call};
    survey_nodes(&s, &f, call.function->node.n, call.function->node.v, 0);
  }
  kit_survey_end(&s);
}

/* ---- the model --------------------------------------------------------------------------------------- */

/* A map, or a sequence of maps with the same keys, goes in and out as two ports: NAME.keys and NAME.values. */
static const char *map_port(Import *im, const char *name, bool values)
{
  return arena_printf(im->m->arena, "%s.%s", name, values ? "values" : "keys");
}

/* A vector of keys and one of values, as many as the caller gives. */
static const Node *map_input(Import *im, const PValueInfo *v, KitNodes *params)
{
  const PType *value = v->type->map->value_type;
  if (!value || !value->tensor)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: the map '%s' has values that are no numbers or strings", v->name);
  const Expr *n = var_new(im->m, kit_size_name(im, arena_printf(im->arena, "%s_n", v->name)), DT_I32, VAR_SIZE)->expr;
  DType dt[] = {onnx_dtype(im->ctx, v->type->map->key_type, v->name),
                onnx_dtype(im->ctx, value->tensor->elem_type, v->name)};
  const Node *part[2];
  for (int i = 0; i < 2; i++) {
    part[i] = node_var(im->m, map_port(im, v->name, i), type_tensor(im->m, dt[i], 1, &n));
    vec_push(im->arena, params, part[i]);
  }
  return node_tuple(im->m, 2, part);
}

static void import_graph(Import *im)
{
  const PGraph *g = onnx_of(im)->model->graph;
  Frame *f = arena_new_of(im->arena, Frame);
  KitNodes params = {0};
  bind_shapes(im, g);
  import_initializers(im, f, g);
  for (int i = 0; i < g->input.n; i++) {
    const PValueInfo *v = g->input.v[i];
    if (has_initializer(g, v->name)) continue; /* a default that is never overridden */
    if (v->type && v->type->map) {
      kit_define(im, f, v->name, map_input(im, v, &params), "graph input");
      continue;
    }
    const Node *var = node_var(im->m, v->name, onnx_import_type(im, v->type, v->name, kit_binding_of(im, v->name)));
    kit_define(im, f, v->name, var, "graph input");
    vec_push(im->arena, &params, var);
  }
  if (im->opt->keep_params) {
    const char **weight = arena_array(im->arena, const char *, g->initializer.n + 1);
    for (int i = 0; i < g->initializer.n; i++) weight[i] = g->initializer.v[i]->name;
    kit_keep_params(im, f, g->initializer.n, weight, &params);
  }
  if (!g->output.n) raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the graph '%s' has no outputs", g->name);
  onnx_import_nodes(im, f, g->node.n, g->node.v, goal_of(im, g));
  const Node **out = arena_array(im->arena, const Node *, 2 * g->output.n);
  const char **names = arena_array(im->m->arena, const char *, 2 * g->output.n);
  int n = 0;
  for (int i = 0; i < g->output.n; i++) {
    const char *name = arena_strdup(im->m->arena, g->output.v[i]->name);
    const Node *made = kit_frame_get(im, f, name);
    if (!made) raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the output '%s' is made by no node", name);
    bool map = made->type && made->type->kind == TY_TUPLE;
    for (int k = 0; k < (map ? 2 : 1); k++, n++) {
      names[n] = map ? map_port(im, name, k) : name;
      out[n] = map ? node_get(im->m, made, k) : made;
    }
  }
  kit_set_main(im, &params, n, out, names, 0, NULL);
}

static void read_model(Import *im)
{
  const char *path = im->path;
  onnx_of(im)->model = onnx_proto_read(im->arena, &onnx_proto_model, im->file.p, im->file.n);
  if (!onnx_of(im)->model->graph)
    raise(im->ctx, ERR_PARSE, NOWHERE, "onnx: %s%s%s is no ONNX model: it has no graph", path ? "'" : "",
          path ? path : "the data", path ? "'" : "");
  survey(im);
  import_graph(im);
}

static void import_model(Module *m, Bytes file, const char *path, const ImportOptions *opt, ImportReport *report)
{
  OnnxImport own = {0};
  Import im = {.format = "onnx", .listing = "lathe ops --onnx", .own = &own};
  kit_import(&im, m, file, path, opt, report, read_model);
}

void onnx_import(Module *m, const void *bytes, size_t n, const char *path, const ImportOptions *opt,
                 ImportReport *report)
{
  import_model(m, kit_keep_bytes(m, bytes, n), path, opt, report);
}

void onnx_import_file(Module *m, const char *path, const ImportOptions *opt, ImportReport *report)
{
  import_model(m, kit_map_file(m, "onnx", path), path, opt, report);
}
