/* import.c: graphs from one module into another.
 *
 * Comes in: nodes of a source module.  Goes out: the same graph in the destination.
 * Variables and sizes are made anew, once each; sizes that stand for elements of a tensor
 * (values.c) become those of the copied tensor.  Bytes of constants are shared where a
 * blob holds them and copied where they lie in the source's own memory. */
#include "graph/state.h"

struct GraphImporter {
  Module *dst, *src;
  Importer *exprs; /* its arena holds the maps, here and there */
  Map node, type, data;
  Map begun; /* DataDef* -> its copy, which may not be complete */
  bool replaces_data;
};

static const Type *import_type(GraphImporter *, const Type *);

/* ---- types ------------------------------------------------------------------------- */

/* A variable that stands for an element of a tensor already copied stands for the copy's. */
static void bind_value(GraphImporter *im, const Var *v)
{
  const Node *source;
  int element, n;
  if (map_has(&im->exprs->expr, v->expr) || !graph_value_source(im->src, v, &source, &element)) return;
  const Node *copy = map_get(&im->node, source);
  const Expr *const *values = copy ? graph_values(im->dst, copy, &n) : NULL;
  if (values) map_put(im->exprs->arena, &im->exprs->expr, v->expr, (void *)(uintptr_t)values[element]);
}

static const Expr *import_dim(GraphImporter *im, const Expr *e)
{
  const Var **vars;
  int n = expr_free_vars(scratch(im->dst->ctx), e, &vars);
  for (int i = 0; i < n; i++) bind_value(im, vars[i]);
  return expr_import(im->exprs, e);
}

/* Fields of two definitions: the same up to their own parameters, data types by name. */
static bool same_field(const DataDef *a, const DataDef *b, const Type *x, const Type *y)
{
  if (x->kind != y->kind || x->nfield != y->nfield || x->ndim != y->ndim || !dtype_eq(x->dtype, y->dtype)) return false;
  if (x->kind == TY_DATA && strcmp(x->data->name, y->data->name)) return false;
  for (int i = 0; x->kind == TY_VAR && i < a->nparam; i++)
    if ((x->var == a->param[i]) != (y->var == b->param[i])) return false;
  for (int i = 0; i < x->ndim; i++)
    if (x->shape[i]->kind != y->shape[i]->kind || (x->shape[i]->kind == E_INT && x->shape[i]->u.i != y->shape[i]->u.i))
      return false;
  for (int i = 0; i < x->nfield; i++)
    if (!same_field(a, b, x->field[i], y->field[i])) return false;
  return !x->ret || same_field(a, b, x->ret, y->ret);
}

static bool same_data(const DataDef *a, const DataDef *b)
{
  if (a->nparam != b->nparam || a->nctor != b->nctor) return false;
  for (int i = 0; i < a->nctor; i++) {
    if (strcmp(a->ctor[i].name, b->ctor[i].name) || a->ctor[i].n != b->ctor[i].n) return false;
    for (int k = 0; k < a->ctor[i].n; k++)
      if (!same_field(a, b, a->ctor[i].field[k], b->ctor[i].field[k])) return false;
  }
  return true;
}

/* An importer that is kept forgets a copy that memory ran out for; the next try goes on with it. */
typedef struct Unfinished {
  GraphImporter *im;
  const DataDef *old;
  bool done;
} Unfinished;

static void forget_unfinished(void *arg)
{
  Unfinished *u = arg;
  if (!u->done) map_del(&u->im->data, u->old);
}

static const DataDef *import_data(GraphImporter *im, const DataDef *old)
{
  const DataDef *known = map_get(&im->data, old);
  if (known) return known;
  known = graph_data(im->dst, old->name);
  if (known && same_data(known, old)) {
    map_put(im->exprs->arena, &im->data, old, (void *)(uintptr_t)known);
    return known;
  }
  if (known && !im->replaces_data)
    raise(im->dst->ctx, ERR_TYPE, NOWHERE, "both modules have a type '%s', but not with the same constructors",
          old->name);
  Arena *arena = im->dst->arena;
  DataDef *now = map_get(&im->begun, old);
  if (!now) map_put(im->exprs->arena, &im->begun, old, now = arena_copy(arena, old, sizeof *old));
  Unfinished *u = arena_new_of(scratch(im->dst->ctx), Unfinished);
  *u = (Unfinished){im, old, false};
  if (im->replaces_data) defer(im->dst->ctx, forget_unfinished, u);
  map_put(im->exprs->arena, &im->data, old, now); /* before the fields: a list holds lists */
  now->name = arena_strdup(arena, old->name);
  now->param = arena_array(arena, const Var *, old->nparam);
  for (int i = 0; i < old->nparam; i++) now->param[i] = var_import(im->exprs, old->param[i]);
  now->ctor = arena_array(arena, Ctor, old->nctor);
  for (int i = 0; i < old->nctor; i++) {
    const Ctor *c = &old->ctor[i];
    const Type **field = arena_array(arena, const Type *, c->n);
    for (int k = 0; k < c->n; k++) field[k] = import_type(im, c->field[k]);
    now->ctor[i] = (Ctor){arena_strdup(arena, c->name), now, c->tag, c->n, field};
  }
  graph_replace_data(im->dst, now);
  u->done = true;
  return now;
}

static const Type *import_type(GraphImporter *im, const Type *old)
{
  if (!old) return NULL;
  const Type *known = map_get(&im->type, old);
  if (known) return known;
  Type *now = arena_copy(im->dst->arena, old, sizeof *old);
  if (old->ndim > 0) now->shape = arena_array(im->dst->arena, const Expr *, old->ndim);
  for (int i = 0; i < old->ndim; i++) now->shape[i] = import_dim(im, old->shape[i]);
  now->field = arena_array(im->dst->arena, const Type *, old->nfield);
  for (int i = 0; i < old->nfield; i++) now->field[i] = import_type(im, old->field[i]);
  now->ret = import_type(im, old->ret);
  if (old->data) now->data = import_data(im, old->data);
  if (old->var) now->var = var_import(im->exprs, old->var);
  map_put(im->exprs->arena, &im->type, old, now);
  return now;
}

/* ---- nodes ----------------------------------------------------------------------------- */

static const ConstData *import_const(GraphImporter *im, const ConstData *old)
{
  ConstData *now = arena_copy(im->dst->arena, old, sizeof *old);
  Blob *blob = graph_blob_of(im->src, old->data, old->bytes);
  if (blob) graph_keep(im->dst, blob);
  else now->data = arena_copy(im->dst->arena, old->data, old->bytes);
  if (old->file) now->file = arena_strdup(im->dst->arena, old->file);
  return now;
}

static const FuncInfo *import_func_info(GraphImporter *im, const FuncInfo *old)
{
  FuncInfo *now = arena_new_of(im->dst->arena, FuncInfo);
  now->ret = import_type(im, old->ret);
  for (int i = 0; i < old->attrs.n; i++)
    annots_set(im->dst->arena, &now->attrs, old->attrs.v[i].key, expr_import(im->exprs, old->attrs.v[i].value));
  return now;
}

static const Ctor *import_ctor(GraphImporter *im, const Ctor *old)
{
  return &import_data(im, old->data)->ctor[old->tag];
}

static const Pattern *import_pattern(GraphImporter *im, const Pattern *old)
{
  Pattern *now = arena_copy(im->dst->arena, old, sizeof *old);
  if (old->var) now->var = map_get(&im->node, old->var);
  if (old->ctor) now->ctor = import_ctor(im, old->ctor);
  now->sub = arena_array(im->dst->arena, const Pattern *, old->n);
  for (int i = 0; i < old->n; i++) now->sub[i] = import_pattern(im, old->sub[i]);
  return now;
}

static void import_payload(GraphImporter *im, const Node *old, Node *now)
{
  switch (old->kind) {
  case N_CONST: now->u.data = import_const(im, old->u.data); return;
  case N_CALL:
    now->u.call.attrs = attrs_import(im->exprs, old->u.call.op->attrs, old->u.call.attrs);
    if (old->u.call.plan) now->u.call.plan = arena_strdup(im->dst->arena, old->u.call.plan);
    return;
  case N_FUNC: now->u.func = import_func_info(im, old->u.func); return;
  case N_GLOBAL: now->u.global = arena_strdup(im->dst->arena, old->u.global); return;
  case N_CTOR: now->u.ctor = import_ctor(im, old->u.ctor); return;
  case N_CALL_TIR: now->u.tir.name = arena_strdup(im->dst->arena, old->u.tir.name); return;
  case N_MATCH:
    now->u.match.clause = arena_array(im->dst->arena, const Pattern *, old->u.match.n);
    for (int i = 0; i < old->u.match.n; i++) now->u.match.clause[i] = import_pattern(im, old->u.match.clause[i]);
    return;
  case N_VAR:
  case N_APPLY:
  case N_TUPLE:
  case N_GET:
  case N_LET:
  case N_IF:
  case N_OP: return;
  }
}

static void import_node(GraphImporter *im, const Node *old)
{
  Node *now = arena_copy(im->dst->arena, old, sizeof *old);
  now->arg = arena_array(im->dst->arena, const Node *, old->nargs);
  for (int i = 0; i < old->nargs; i++) now->arg[i] = map_get(&im->node, old->arg[i]);
  now->id = im->dst->next_id++;
  if (old->name) now->name = arena_strdup(im->dst->arena, old->name);
  import_payload(im, old, now);
  now->type = import_type(im, old->type);
  map_put(im->exprs->arena, &im->node, old, now);
  if (old->kind == N_LET) graph_bind_let(im->dst, now->arg[0], now->arg[1]);
}

/* The tensors whose elements the dimensions of a type speak of. */
static void type_sources(GraphImporter *im, const Type *ty, NodeList *out)
{
  for (int i = 0; ty && i < ty->ndim; i++) {
    const Var **vars;
    int n = type_dim_is_stable(ty->shape[i]) ? 0 : expr_free_vars(scratch(im->dst->ctx), ty->shape[i], &vars);
    for (int k = 0; k < n; k++) {
      const Node *source;
      int element;
      if (graph_value_source(im->src, vars[k], &source, &element)) vec_push(scratch(im->dst->ctx), out, source);
    }
  }
  for (int i = 0; ty && i < ty->nfield; i++) type_sources(im, ty->field[i], out);
}

/* What must be there before n: sources of a variable's sizes, variables of patterns, arguments. */
static NodeList import_order(GraphImporter *im, const Node *n)
{
  NodeList all = {0};
  if (n->kind == N_VAR) type_sources(im, n->type, &all);
  for (int i = 0; n->kind == N_MATCH && i < n->u.match.n; i++)
    graph_pattern_vars(scratch(im->dst->ctx), n->u.match.clause[i], &all);
  for (int i = 0; i < n->nargs; i++) vec_push(scratch(im->dst->ctx), &all, n->arg[i]);
  return all;
}

const Node *graph_import_into(GraphImporter *im, const Node *root)
{
  typedef struct {
    const Node *n;
    NodeList before;
    int next;
  } Work;
  Scope s = scope_begin(im->dst->ctx);
  Arena *arena = scratch(im->dst->ctx);
  Vec(Work) stack = {0};
  Map open = {0};
  if (!map_has(&im->node, root)) vec_push(arena, &stack, (Work){root, import_order(im, root), 0});
  while (stack.n) {
    Work *top = &stack.v[stack.n - 1];
    if (top->next == top->before.n) {
      if (!map_has(&im->node, top->n)) import_node(im, top->n);
      stack.n--;
      continue;
    }
    const Node *arg = top->before.v[top->next++];
    if (map_has(&im->node, arg)) continue;
    if (map_has(&open, arg)) { /* a variable whose sizes come from what uses it */
      import_node(im, arg);
      continue;
    }
    if (arg->kind == N_VAR) map_put(arena, &open, arg, (void *)(uintptr_t)arg);
    vec_push(arena, &stack, (Work){arg, import_order(im, arg), 0});
  }
  const Node *now = map_get(&im->node, root);
  scope_end(im->dst->ctx, s);
  return now;
}

const Type *graph_import_type(GraphImporter *im, const Type *ty)
{
  Scope s = scope_begin(im->dst->ctx);
  const Type *now = import_type(im, ty);
  scope_end(im->dst->ctx, s);
  return now;
}

void graph_importer_replaces_data(GraphImporter *im) { im->replaces_data = true; }

GraphImporter *graph_importer_new(Module *dst, Module *src, Importer *exprs)
{
  GraphImporter *im = arena_new_of(dst->arena, GraphImporter);
  if (!exprs) {
    exprs = arena_new_of(dst->arena, Importer);
    exprs->dst = dst;
    exprs->arena = dst->arena;
  }
  *im = (GraphImporter){.dst = dst, .src = src, .exprs = exprs};
  return im;
}

const Node *graph_import(Module *dst, Module *src, const Node *n)
{
  Scope s = scope_begin(dst->ctx);
  Importer exprs = {.dst = dst, .arena = scratch(dst->ctx)};
  GraphImporter im = {.dst = dst, .src = src, .exprs = &exprs};
  const Node *now = graph_import_into(&im, n);
  scope_end(dst->ctx, s);
  return now;
}

typedef struct CopyJob {
  Module *from, *to;
} CopyJob;

static void copy_globals(Ctx *ctx, void *arg)
{
  CopyJob *job = arg;
  Scope s = scope_begin(ctx);
  GraphImporter *im = graph_importer_new(job->to, job->from, NULL);
  for (int i = 0; i < graph_data_count(job->from); i++) import_data(im, graph_data_at(job->from, i));
  for (int i = 0; i < job->from->globals.n; i++) {
    Global *g = &job->from->globals.v[i];
    if (g->kind == GLOBAL_TIR) module_set(job->to, g->name, GLOBAL_TIR, func_import(job->to, g->func));
    else module_set(job->to, g->name, GLOBAL_GRAPH, (void *)(uintptr_t)graph_import_into(im, g->func));
  }
  scope_end(ctx, s);
}

Module *graph_copy_module(Module *m)
{
  CopyJob job = {m, module_new(m->ctx)};
  if (protect(m->ctx, copy_globals, &job)) {
    module_release(job.to);
    error_reraise(m->ctx);
  }
  return job.to;
}
