/* onnx_import.c: an ONNX model as @main of a module.
 *
 * Comes in: the file's messages.  Goes out: one graph function over the model's inputs,
 * the weights constants in it, and a report.  Nodes are converted in the order of the
 * file, which ONNX demands to be topological; a name is defined once in its graph. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- names --------------------------------------------------------------------------------- */

/* Integers that the compiler knows, as a constant; NULL if it does not. */
static const Node *known_value(Import *im, const Node *n)
{
  int count = 0;
  if (!n->type || n->type->kind != TY_TENSOR || n->type->ndim < 0 || n->type->ndim > 1 || !dtype_is_int(n->type->dtype))
    return NULL;
  const Expr *const *e = graph_values(im->m, n, &count);
  size_t size = (size_t)dtype_bytes(n->type->dtype);
  char *data = arena_alloc(im->arena, (size_t)count * size + 1);
  for (int i = 0; e && i < count; i++) {
    if (e[i]->kind != E_INT) return NULL;
    value_store(value_int(n->type->dtype, e[i]->u.i), data + (size_t)i * size);
  }
  return e ? node_const_copy(im->m, n->type->dtype, n->type->ndim, (int64_t[]){count}, data) : NULL;
}

const Node *onnx_frame_capture(Import *im, Frame *f, const Node *outer)
{
  if (outer->kind == N_CONST) return outer;
  for (int i = 0; i < f->captures->list.n; i++)
    if (f->captures->list.v[i].outer == outer) return f->captures->list.v[i].var;
  const Node *known = known_value(im, outer);
  if (known) return known;
  const Node *var = node_var(im->m, outer->name && outer->kind == N_VAR ? outer->name : "captured",
                             onnx_param_type(im->m, outer->type));
  vec_push(im->arena, &f->captures->list, (Capture){outer, var});
  return var;
}

const Node *onnx_frame_get(Import *im, Frame *f, const char *name)
{
  if (!f) return NULL;
  const Node *n = strmap_get(&f->values, name);
  if (n || f->function) return n;
  n = onnx_frame_get(im, f->outer, name);
  return n && f->captures ? onnx_frame_capture(im, f, n) : n;
}

void onnx_frame_set(Import *im, Frame *f, const char *name, const Node *n)
{
  strmap_put(im->arena, &f->values, name, (void *)(uintptr_t)n);
}

static void define(Import *im, Frame *f, const char *name, const Node *n, const char *node)
{
  if (strmap_get(&f->values, name))
    raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: '%s' is defined twice, again by node '%s'", name, node);
  onnx_frame_set(im, f, name, n);
}

/* ---- types of inputs -------------------------------------------------------------------------- */

/* A name that Relay text can carry, different for each size. */
static const char *size_name(Import *im, const char *from)
{
  char *s = arena_strdup(im->arena, *from ? from : "d");
  for (char *p = s; *p; p++)
    if (!isalnum((unsigned char)*p)) *p = '_';
  if (!isalpha((unsigned char)*s) && *s != '_') s = arena_printf(im->arena, "d%s", s);
  const char *name = s;
  for (int i = 1; strmap_get(&im->dim_names, name); i++) name = arena_printf(im->arena, "%s_%d", s, i);
  strmap_put(im->arena, &im->dim_names, name, s);
  return name;
}

static const Expr *literal_dim(Import *im, int64_t v, const char *input, int axis)
{
  if (v < 0)
    raise(im->ctx, ERR_SHAPE, NOWHERE, "onnx: dimension %d of input '%s' is %" PRId64 "; a dimension is not negative",
          axis, input, v);
  return expr_int(im->m, v > INT32_MAX ? DT_I64 : DT_I32, v);
}

static const Expr *import_dim(Import *im, const PDim *d, const char *input, int axis)
{
  if (d->has & 1u << PDIM_VALUE) return literal_dim(im, d->dim_value, input, axis);
  if (!*d->dim_param)
    return var_new(im->m, size_name(im, arena_printf(im->arena, "%s_%d", input, axis)), DT_I32, VAR_SIZE)->expr;
  const Expr *e = strmap_get(&im->dims, d->dim_param);
  if (!e) {
    e = var_new(im->m, size_name(im, d->dim_param), DT_I32, VAR_SIZE)->expr;
    strmap_put(im->arena, &im->dims, d->dim_param, (void *)(uintptr_t)e);
  }
  return e;
}

static const Type *import_tensor_type(Import *im, const PTensorType *t, const char *input, const ShapeBinding *b)
{
  DType dt = onnx_dtype(im->ctx, t->elem_type, input);
  int n = t->shape ? t->shape->dim.n : b ? b->ndim : -1;
  const Expr **dims = arena_array(im->arena, const Expr *, n > 0 ? n : 1);
  int64_t total = 1;
  for (int i = 0; i < n; i++) {
    const PDim *d = t->shape ? t->shape->dim.v[i] : NULL;
    if (b && b->dim[i] >= 0) dims[i] = literal_dim(im, b->dim[i], input, i);
    else dims[i] = import_dim(im, d ? d : &(PDim){.dim_param = ""}, input, i);
    if (dims[i]->kind == E_INT && dims[i]->u.i && !int_mul(total, dims[i]->u.i, &total))
      raise(im->ctx, ERR_SHAPE, NOWHERE, "onnx: the shape of input '%s' has more elements than fit in 64 bits", input);
  }
  return type_tensor(im->m, dt, n, dims);
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

/* ---- shape bindings ---------------------------------------------------------------------------- */

static const PValueInfo *find_input(const PGraph *g, const char *name)
{
  for (int i = 0; i < g->input.n; i++)
    if (!strcmp(g->input.v[i]->name, name)) return g->input.v[i];
  return NULL;
}

static bool has_initializer(const PGraph *g, const char *name)
{
  for (int i = 0; i < g->initializer.n; i++)
    if (!strcmp(g->initializer.v[i]->name, name)) return true;
  return false;
}

/* A size bound at one input is bound everywhere. */
static void bind_dims(Import *im, const PShape *s, const ShapeBinding *b)
{
  if (s->dim.n != b->ndim)
    raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: input '%s' has %d dimension%s, the shape given has %d", b->input,
          s->dim.n, s->dim.n == 1 ? "" : "s", b->ndim);
  for (int i = 0; i < b->ndim; i++) {
    const PDim *d = s->dim.v[i];
    if (b->dim[i] < 0) continue;
    if (d->has & 1u << PDIM_VALUE && d->dim_value != b->dim[i])
      raise(im->ctx, ERR_ARGUMENT, NOWHERE,
            "onnx: dimension %d of input '%s' is %" PRId64 " in the model and cannot be bound to %" PRId64, i, b->input,
            d->dim_value, b->dim[i]);
    if (!*d->dim_param) continue;
    const Expr *known = strmap_get(&im->dims, d->dim_param);
    const Expr *e = literal_dim(im, b->dim[i], b->input, i);
    if (known && known != e)
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: '%s' is bound to %" PRId64 " and, at input '%s', to %" PRId64,
            d->dim_param, known->u.i, b->input, b->dim[i]);
    strmap_put(im->arena, &im->dims, d->dim_param, (void *)(uintptr_t)e);
  }
}

static void bind_shapes(Import *im, const PGraph *g)
{
  for (int i = 0; i < im->opt->nshapes; i++) {
    const ShapeBinding *b = &im->opt->shape[i];
    const PValueInfo *v = find_input(g, b->input);
    if (!v) {
      const char **names = arena_array(im->arena, const char *, g->input.n + 1);
      for (int k = 0; k < g->input.n; k++) names[k] = g->input.v[k]->name;
      const char *suggestion = str_suggest(im->arena, b->input, names, g->input.n);
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: a shape is given for '%s', which is no input of the model%s",
            b->input, suggestion);
    }
    for (int k = 0; k < b->ndim; k++)
      if (b->dim[k] < -1)
        raise(im->ctx, ERR_ARGUMENT, NOWHERE,
              "onnx: the shape given for '%s' has %" PRId64 "; -1 leaves a dimension open", b->input, b->dim[k]);
    if (v->type && v->type->tensor && v->type->tensor->shape) bind_dims(im, v->type->tensor->shape, b);
  }
}

static const ShapeBinding *binding_of(Import *im, const char *input)
{
  for (int i = 0; i < im->opt->nshapes; i++)
    if (!strcmp(im->opt->shape[i].input, input)) return &im->opt->shape[i];
  return NULL;
}

/* ---- functions of the model ------------------------------------------------------------------ */

static const PFunction *find_function(Import *im, const PNode *p)
{
  for (int i = 0; i < im->model->functions.n; i++) {
    const PFunction *f = im->model->functions.v[i];
    if (!strcmp(f->name, p->op_type) && !strcmp(plain_domain(f->domain), plain_domain(p->domain)) &&
        !strcmp(f->overload, p->overload))
      return f;
  }
  return NULL;
}

int64_t onnx_import_opset(Import *im, const Frame *f, const char *domain)
{
  while (f && !f->function) f = f->outer;
  bool local = f && f->function->opset_import.n;
  int n = local ? f->function->opset_import.n : im->model->opset_import.n;
  POpset *const *list = local ? f->function->opset_import.v : im->model->opset_import.v;
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
  for (const Frame *up = f; up; up = up->function ? up->caller_frame : up->outer)
    if (up->function == fn)
      raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: function '%s' (node '%s') calls itself", fn->name,
            onnx_node_label(p));
  if (p->input.n > fn->input.n || p->output.n > fn->output.n)
    raise(im->ctx, ERR_ARGUMENT, NOWHERE,
          "onnx: function '%s' (node '%s') has %d inputs and %d outputs; the node has %d and %d", fn->name,
          onnx_node_label(p), fn->input.n, fn->output.n, p->input.n, p->output.n);
  Frame *body = arena_new_of(im->arena, Frame);
  *body = (Frame){.function = fn, .caller = p, .caller_frame = f};
  for (int i = 0; i < p->input.n; i++) {
    const Node *n = *p->input.v[i] ? onnx_frame_get(im, f, p->input.v[i]) : NULL;
    if (*p->input.v[i] && !n)
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: node '%s' takes '%s', which nothing before it makes",
            onnx_node_label(p), p->input.v[i]);
    if (n) onnx_frame_set(im, body, fn->input.v[i], n);
  }
  onnx_import_nodes(im, body, fn->node.n, fn->node.v, (Goal){fn->output.n, fn->output.v});
  for (int i = 0; i < p->output.n; i++) {
    if (!*p->output.v[i]) continue;
    const Node *n = onnx_frame_get(im, body, fn->output.v[i]);
    if (!n)
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: function '%s' does not make its output '%s'", fn->name,
            fn->output.v[i]);
    define(im, f, p->output.v[i], n, onnx_node_label(p));
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
  while (!f->function && f->outer) f = f->outer;
  for (int k = 0; f->function && k < f->function->input.n; k++)
    if (!strcmp(f->function->input.v[k], name)) return true;
  return false;
}

static Conversion begin_node(Import *im, Frame *f, const PNode *p)
{
  Conversion c = {.im = im,
                  .m = im->m,
                  .ctx = im->ctx,
                  .frame = f,
                  .p = p,
                  .name = onnx_node_label(p),
                  .opset = onnx_import_opset(im, f, p->domain),
                  .nin = p->input.n,
                  .nout = p->output.n};
  c.in = arena_array(im->arena, const Node *, c.nin + 1);
  c.out = arena_array(im->arena, const Node *, c.nout + 8);
  for (int i = 0; i < c.nin; i++) {
    const char *name = p->input.v[i];
    c.in[i] = *name ? onnx_frame_get(im, f, name) : NULL;
    if (*name && !c.in[i] && !is_left_out(f, name)) missing_input(im, p, name);
  }
  return c;
}

static void end_node(Conversion *c, Frame *f)
{
  bool folded = c->nout > 0;
  for (int i = 0; i < c->nout; i++) {
    if (!*c->p->output.v[i]) continue;
    if (!c->out[i]) onnx_fail(c, ERR_UNSUPPORTED, "output %d is not supported", i);
    folded = folded && c->out[i]->kind == N_CONST;
    define(c->im, f, c->p->output.v[i], c->out[i], c->name);
  }
  if (c->im->report && folded) c->im->report->nfolded++;
}

static void convert_node(Import *im, Frame *f, const PNode *p)
{
  Conversion c = begin_node(im, f, p);
  const OnnxRow *row = onnx_find(p->domain, p->op_type, c.opset);
  if (!row)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE,
          "onnx: operator '%s' (node '%s') is not supported; 'lathe ops --onnx' lists what is", p->op_type, c.name);
  const Node *first = row->convert(&c);
  if (first) c.out[0] = first;
  end_node(&c, f);
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
    r->out[i] = onnx_frame_get(r->im, r->frame, r->goal.name[i]);
    if (!r->out[i])
      raise(r->im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the output '%s' is made by no node", r->goal.name[i]);
  }
}

static ErrKind try_rest(Rest *r, const Conversion *c, const Node *const *value, Frame *outer)
{
  int depth = r->im->depth;
  r->frame = arena_new_of(r->im->arena, Frame);
  r->frame->outer = outer;
  r->out = arena_array(r->im->arena, const Node *, r->goal.n + 1);
  for (int i = 0; i < c->nout; i++)
    if (*c->p->output.v[i]) onnx_frame_set(r->im, r->frame, c->p->output.v[i], value[i]);
  ErrKind k = protect(r->im->ctx, import_rest, r);
  r->im->depth = depth;
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
    onnx_fail(c, ERR_UNSUPPORTED, "only one of the branches fits what follows, and that gives %s",
              type_text(scratch(c->m->ctx), x->type));
  const Node *taken = onnx_cast_to(c, onnx_scalar_of(c, cond), DT_I64);
  if (!value) taken = onnx_op2(c, "subtract", onnx_scalar(c, DT_I64, 1), taken, NULL);
  const Node *wide = onnx_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", 0, 2);
  const Node *cut =
      onnx_slice_to(c, wide, 0, onnx_const_i64(c, 1, (int64_t[]){0}), onnx_op1(c, "expand_dims", taken, "axis:i", 0));
  return onnx_squeeze(c, onnx_squeeze(c, cut, 0), 0);
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
    end_node(&c, f);
    return false;
  }
  if (++im->nsplits > 64) onnx_fail(&c, ERR_UNSUPPORTED, "too many branches of different rank");
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
    onnx_frame_set(im, f, goal.name[i],
                   both ? node_get(im->m, both, i) : only_where(&c, cond, first, first ? a.out[i] : b.out[i]));
  }
  return true;
}

void onnx_import_nodes(Import *im, Frame *f, int n, PNode *const *node, Goal goal)
{
  if (++im->depth > NESTING_LIMIT)
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
  im->depth--;
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
    define(im, f, t->name, onnx_tensor(im, t, t->name), "initializer");
  }
  for (int i = 0; i < g->sparse_initializer.n; i++) {
    const PSparse *s = g->sparse_initializer.v[i];
    const char *name = s->values ? s->values->name : "";
    define(im, f, name, onnx_sparse(im, s, name), "sparse initializer");
  }
}

void onnx_import_body(Import *im, Frame *f, const PGraph *g, const Node **out)
{
  import_initializers(im, f, g);
  onnx_import_nodes(im, f, g->node.n, g->node.v, goal_of(im, g));
  for (int i = 0; i < g->output.n; i++) {
    out[i] = onnx_frame_get(im, f, g->output.v[i]->name);
    if (!out[i])
      raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the output '%s' is made by no node", g->output.v[i]->name);
  }
}

/* ---- the report ----------------------------------------------------------------------------------- */

typedef struct Survey {
  Import *im;
  StrMap count; /* operator -> ImportCount * */
  Vec(ImportCount *) ops;
  Vec(ImportProblem) problems;
} Survey;

static void survey_nodes(Survey *s, const Frame *f, int n, PNode *const *node, int depth);

static void survey_node(Survey *s, const Frame *f, const PNode *p, int depth)
{
  Import *im = s->im;
  Arena *a = im->m->arena;
  const char *name = *plain_domain(p->domain) ? arena_printf(a, "%s.%s", p->domain, p->op_type) : p->op_type;
  ImportCount *count = strmap_get(&s->count, name);
  if (!count) {
    count = arena_new_of(im->arena, ImportCount);
    count->op = arena_strdup(a, name);
    strmap_put(im->arena, &s->count, name, count);
    vec_push(im->arena, &s->ops, count);
  }
  count->n++;
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
  vec_push(a, &s->problems, (ImportProblem){count->op, arena_strdup(a, onnx_node_label(p)), why});
}

static void survey_nodes(Survey *s, const Frame *f, int n, PNode *const *node, int depth)
{
  if (depth > NESTING_LIMIT)
    raise(s->im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: bodies nest deeper than %d", NESTING_LIMIT);
  for (int i = 0; i < n; i++) survey_node(s, f, node[i], depth);
}

static int by_use(const void *x, const void *y)
{
  const ImportCount *a = x;
  const ImportCount *b = y;
  return a->n != b->n ? (a->n < b->n) - (a->n > b->n) : strcmp(a->op, b->op);
}

static void raise_problems(Import *im, const Survey *s)
{
  if (s->problems.n == 1) {
    const ImportProblem *p = &s->problems.v[0];
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE,
          "onnx: operator '%s' (node '%s') is %s; 'lathe ops --onnx' lists what is supported", p->op, p->node, p->why);
  }
  Text t = text_new(im->arena);
  text_printf(&t,
              "onnx: %d nodes have operators that are not supported; 'lathe ops --onnx' lists what is:", s->problems.n);
  for (int i = 0; i < s->problems.n && i < 64; i++)
    text_printf(&t, "\n  %s (node '%s'): %s", s->problems.v[i].op, s->problems.v[i].node, s->problems.v[i].why);
  if (s->problems.n > 64) text_printf(&t, "\n  and %d more", s->problems.n - 64);
  raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "%s", text_str(&t));
}

/* Looks at every node before any is converted. */
static void survey(Import *im)
{
  Survey s = {.im = im};
  survey_nodes(&s, NULL, im->model->graph->node.n, im->model->graph->node.v, 0);
  for (int i = 0; i < im->model->functions.n; i++) {
    Frame f = {.function = im->model->functions.v[i]};
    survey_nodes(&s, &f, f.function->node.n, f.function->node.v, 0);
  }
  if (im->report) {
    ImportReport *r = im->report;
    r->nops = s.ops.n;
    r->ops = arena_array(im->m->arena, ImportCount, s.ops.n + 1);
    for (int i = 0; i < s.ops.n; i++) r->ops[i] = *s.ops.v[i];
    qsort(r->ops, (size_t)s.ops.n, sizeof *r->ops, by_use);
    r->nproblems = s.problems.n;
    r->problems = s.problems.v;
  }
  if (s.problems.n) raise_problems(im, &s);
}

/* ---- the model --------------------------------------------------------------------------------------- */

/* Weights as parameters: what has a shape and holds real numbers.  Axes, shapes and
 * scalars stay constants, since converters read them. */
static bool is_weight(const Node *n) { return n->u.data->ndim > 0 && dtype_is_float(n->u.data->dtype); }

typedef Vec(const Node *) Nodes;

static void keep_params(Import *im, Frame *f, const PGraph *g, Nodes *params)
{
  ImportReport *r = im->report;
  if (r) {
    r->param_name = arena_array(im->m->arena, const char *, g->initializer.n + 1);
    r->param = arena_array(im->m->arena, const Node *, g->initializer.n + 1);
  }
  for (int i = 0; i < g->initializer.n; i++) {
    const char *name = g->initializer.v[i]->name;
    const Node *value = strmap_get(&f->values, name);
    if (!is_weight(value)) continue;
    const Node *var = node_var(im->m, name, value->type);
    onnx_frame_set(im, f, name, var);
    vec_push(im->arena, params, var);
    if (!r) continue;
    r->param_name[r->nparams] = var->name;
    r->param[r->nparams++] = value;
  }
}

/* A map, or a sequence of maps with the same keys, goes in and out as two ports: NAME.keys and NAME.values. */
static const char *map_port(Import *im, const char *name, bool values)
{
  return arena_printf(im->m->arena, "%s.%s", name, values ? "values" : "keys");
}

/* A vector of keys and one of values, as many as the caller gives. */
static const Node *map_input(Import *im, const PValueInfo *v, Nodes *params)
{
  const PType *value = v->type->map->value_type;
  if (!value || !value->tensor)
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: the map '%s' has values that are no numbers or strings", v->name);
  const Expr *n = var_new(im->m, size_name(im, arena_printf(im->arena, "%s_n", v->name)), DT_I32, VAR_SIZE)->expr;
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
  const PGraph *g = im->model->graph;
  Frame *f = arena_new_of(im->arena, Frame);
  Nodes params = {0};
  bind_shapes(im, g);
  import_initializers(im, f, g);
  for (int i = 0; i < g->input.n; i++) {
    const PValueInfo *v = g->input.v[i];
    if (has_initializer(g, v->name)) continue; /* a default that is never overridden */
    if (v->type && v->type->map) {
      define(im, f, v->name, map_input(im, v, &params), "graph input");
      continue;
    }
    const Node *var = node_var(im->m, v->name, onnx_import_type(im, v->type, v->name, binding_of(im, v->name)));
    define(im, f, v->name, var, "graph input");
    vec_push(im->arena, &params, var);
  }
  if (im->opt->keep_params) keep_params(im, f, g, &params);
  if (!g->output.n) raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the graph '%s' has no outputs", g->name);
  onnx_import_nodes(im, f, g->node.n, g->node.v, goal_of(im, g));
  const Node **out = arena_array(im->arena, const Node *, 2 * g->output.n);
  const char **names = arena_array(im->m->arena, const char *, 2 * g->output.n);
  int n = 0;
  for (int i = 0; i < g->output.n; i++) {
    const char *name = arena_strdup(im->m->arena, g->output.v[i]->name);
    const Node *made = onnx_frame_get(im, f, name);
    if (!made) raise(im->ctx, ERR_ARGUMENT, NOWHERE, "onnx: the output '%s' is made by no node", name);
    bool map = made->type && made->type->kind == TY_TUPLE;
    for (int k = 0; k < (map ? 2 : 1); k++, n++) {
      names[n] = map ? map_port(im, name, k) : name;
      out[n] = map ? node_get(im->m, made, k) : made;
    }
  }
  if (im->report) {
    im->report->noutputs = n;
    im->report->output_name = names;
  }
  const Node *body = n == 1 ? out[0] : node_tuple(im->m, n, out);
  Annots attrs = {0};
  Text list = text_new(im->arena);
  for (int i = 0; i < n; i++) text_printf(&list, "%s%s", i ? "\n" : "", names[i]);
  annots_set(im->m->arena, &attrs, "output_names", expr_str(im->m, text_str(&list)));
  module_set(im->m, "main", GLOBAL_GRAPH,
             (void *)(uintptr_t)node_func(im->m, params.n, params.v, body, body->type, &attrs));
}

static void free_arena(void *arena) { arena_free(arena); }

static void import_model(Module *m, Bytes file, const char *path, const ImportOptions *opt, ImportReport *report)
{
  static const ImportOptions plain;
  Import im = {.m = m, .ctx = m->ctx, .path = path, .file = file, .opt = opt ? opt : &plain, .report = report};
  op_init();
  if (report) *report = (ImportReport){0};
  im.arena = arena_new(m->ctx);
  Scope scope = scope_begin(m->ctx);
  defer(m->ctx, free_arena, im.arena);
  im.root = im.opt->external_root;
  if (!im.root && path) {
    const char *slash = strrchr(path, '/');
    im.root = !slash ? "." : slash == path ? "/" : arena_strndup(im.arena, path, (size_t)(slash - path));
  }
  im.path = path ? arena_strdup(m->arena, path) : NULL;
  im.model = onnx_proto_read(im.arena, &onnx_proto_model, file.p, file.n);
  if (!im.model->graph)
    raise(m->ctx, ERR_PARSE, NOWHERE, "onnx: %s%s%s is no ONNX model: it has no graph", path ? "'" : "",
          path ? path : "the data", path ? "'" : "");
  survey(&im);
  import_graph(&im);
  scope_end(m->ctx, scope);
}

typedef struct FileCopy {
  Ctx *ctx;
  void *data;
  size_t n;
} FileCopy;

static void drop_copy(void *arg)
{
  FileCopy *f = arg;
  mem_free(f->ctx, f->data);
  mem_free(f->ctx, f);
}

static void alloc_copy(Ctx *ctx, void *arg)
{
  FileCopy *f = arg;
  f->data = mem_alloc(ctx, f->n ? f->n : 1);
}

void onnx_import(Module *m, const void *bytes, size_t n, const char *path, const ImportOptions *opt,
                 ImportReport *report)
{
  /* The constants outlive the caller's buffer: one copy, which they borrow. */
  FileCopy *copy = mem_alloc(m->ctx, sizeof *copy);
  *copy = (FileCopy){m->ctx, NULL, n};
  if (protect(m->ctx, alloc_copy, copy)) {
    mem_free(m->ctx, copy);
    error_reraise(m->ctx);
  }
  if (n) memcpy(copy->data, bytes, n);
  graph_adopt(m, copy->data, n, drop_copy, copy);
  import_model(m, (Bytes){copy->data, n}, path, opt, report);
}

static void close_fd(void *arg) { close((int)(intptr_t)arg); }

void onnx_import_file(Module *m, const char *path, const ImportOptions *opt, ImportReport *report)
{
  Ctx *ctx = m->ctx;
  Scope scope = scope_begin(ctx);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) raise(ctx, ERR_IO, NOWHERE, "cannot read '%s': %s", path, strerror(errno));
  defer(ctx, close_fd, (void *)(intptr_t)fd);
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) raise(ctx, ERR_IO, NOWHERE, "cannot read '%s': not a regular file", path);
  if (!st.st_size) raise(ctx, ERR_PARSE, NOWHERE, "onnx: '%s' is empty", path);
  size_t n = (size_t)st.st_size;
  const void *data = graph_map_file(m, fd, n); /* copies of the module share the file */
  if (!data) raise(ctx, ERR_IO, NOWHERE, "cannot map '%s': %s", path, strerror(errno));
  scope_end(ctx, scope);
  import_model(m, (Bytes){data, n}, path, opt, report);
}
