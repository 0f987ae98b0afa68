/* infer.c: types of everything below a node.
 *
 * Comes in: a graph, some of whose nodes (from a parser, or over variables without a
 * declared type) have no type yet, or call functions of the module that have changed.
 * Goes out: an equal graph whose nodes all have types.  Builders have checked whatever
 * had types already; what is made anew here is checked by the same builders.
 *
 * A variable without a type keeps none until a call that it is an argument of says what it must be (OpDef.operand),
 * or until the function whose parameter it is is applied; one that nothing says the type of is refused.
 *
 * A let's value is visited before its variable, and a match's value before the pattern's
 * variables, since they take their types from there.  The walk keeps its own stack. */
#include "graph/state.h"

/* ---- applying a function type --------------------------------------------------------- */

typedef struct Binding {
  Module *m;
  Arena *arena;
  Map size, param; /* Var* -> Expr*, Var* -> Type* */
} Binding;

static bool bind_dim(Binding *b, const Expr *want, const Expr *given)
{
  if (want->kind == E_VAR) {
    const Expr *before = map_get(&b->size, want->u.var);
    if (!before) map_put(b->arena, &b->size, want->u.var, (void *)(uintptr_t)given);
    return !before || before->kind != E_INT || given->kind != E_INT || before->u.i == given->u.i;
  }
  return want->kind != E_INT || given->kind != E_INT || want->u.i == given->u.i;
}

static bool bind_type(Binding *b, const Type *want, const Type *given)
{
  if (want->kind == TY_VAR) {
    const Type *before = map_get(&b->param, want->var);
    const Type *both = before ? type_join(b->m, before, given) : given;
    if (both) map_put(b->arena, &b->param, want->var, (void *)(uintptr_t)both);
    return both != NULL;
  }
  if (given->kind == TY_VAR || want->kind == TY_OBJECT) return true;
  if (want->kind != given->kind || want->nfield != given->nfield || want->data != given->data) return false;
  if (!dtype_eq(want->dtype, given->dtype)) return false;
  if (want->kind == TY_TENSOR && (want->ndim < 0 || given->ndim < 0)) return true;
  if (want->ndim != given->ndim) return false;
  for (int i = 0; i < want->ndim; i++)
    if (!bind_dim(b, want->shape[i], given->shape[i])) return false;
  for (int i = 0; i < want->nfield; i++)
    if (!bind_type(b, want->field[i], given->field[i])) return false;
  return want->kind != TY_FUNC || bind_type(b, want->ret, given->ret);
}

static void bind_arguments(Binding *b, const Type *func, int n, const Type *const *arg)
{
  Ctx *ctx = b->m->ctx;
  if (func->kind != TY_FUNC)
    raise(ctx, ERR_TYPE, NOWHERE, "a value of type %s is called; only functions are", type_text(scratch(ctx), func));
  if (func->nfield != n)
    raise(ctx, ERR_TYPE, NOWHERE, "a function of %d parameter%s is called with %d argument%s", func->nfield,
          func->nfield == 1 ? "" : "s", n, n == 1 ? "" : "s");
  for (int i = 0; i < n; i++)
    if (!bind_type(b, func->field[i], arg[i]))
      raise(ctx, ERR_TYPE, NOWHERE, "argument %d of a function is %s, its parameter wants %s", i,
            type_text(scratch(ctx), arg[i]), type_text(scratch(ctx), func->field[i]));
}

const Type *graph_apply_type(Module *m, const Type *func, int n, const Type *const *arg)
{
  Scope s = scope_begin(m->ctx);
  Binding b = {.m = m, .arena = scratch(m->ctx)};
  bind_arguments(&b, func, n, arg);
  const Type *ret = type_substitute(m, func->ret, &b.size, &b.param, true);
  scope_end(m->ctx, s);
  return ret;
}

/* ---- applying a function that is there ----------------------------------------------------- */

static bool is_inside(Arena *arena, const Node *body, const Node *n)
{
  const Node **order;
  int count = graph_post_order(arena, body, &order);
  for (int i = 0; i < count; i++)
    if (order[i] == n) return true;
  return false;
}

/* A size that is an element of a parameter is that element of the argument; one that is an
 * element of a tensor computed inside is not known outside. */
static void bind_value_dim(Binding *b, const Node *f, const Node *const *arg, const Var *v)
{
  const Node *source;
  int element, count;
  if (map_has(&b->size, v) || !graph_value_source(b->m, v, &source, &element)) return;
  for (int i = 0; i < fn_nparams(f); i++) {
    const Expr *const *values = f->arg[i] == source ? graph_values(b->m, arg[i], &count) : NULL;
    if (!values || element >= count) continue;
    map_put(b->arena, &b->size, v, (void *)(uintptr_t)values[element]);
    return;
  }
  if (is_inside(b->arena, fn_body(f), source)) map_put(b->arena, &b->size, v, (void *)(uintptr_t)type_dim_any(b->m));
}

static void bind_value_dims(Binding *b, const Node *f, const Node *const *arg, const Type *ty)
{
  for (int i = 0; i < ty->ndim; i++) {
    const Var **vars;
    int n = type_dim_is_stable(ty->shape[i]) ? 0 : expr_free_vars(b->arena, ty->shape[i], &vars);
    for (int k = 0; k < n; k++) bind_value_dim(b, f, arg, vars[k]);
  }
  for (int i = 0; i < ty->nfield; i++) bind_value_dims(b, f, arg, ty->field[i]);
}

const Type *graph_apply_func(Module *m, const Node *f, int n, const Node *const *arg)
{
  Scope s = scope_begin(m->ctx);
  Binding b = {.m = m, .arena = scratch(m->ctx)};
  const Type **types = arena_array(b.arena, const Type *, n);
  for (int i = 0; i < n; i++) types[i] = arg[i]->type;
  bind_arguments(&b, f->type, n, types);
  bind_value_dims(&b, f, arg, fn_body(f)->type);
  const Type *ret = type_substitute(m, fn_body(f)->type, &b.size, &b.param, false);
  scope_end(m->ctx, s);
  return ret;
}

/* ---- the walk ----------------------------------------------------------------------------- */

typedef struct Infer {
  Module *m;
  Arena *arena;
  Map memo;                  /* Node* -> Node* with a type */
  const struct Infer *outer; /* who is asking for this global function's type */
  const char *global;
  int depth;
} Infer;

static const Node *infer_graph(Infer *, const Node *);

static const Node *need_type(Infer *in, const Node *n, const char *what)
{
  if (!n->type) raise(in->m->ctx, ERR_TYPE, NOWHERE, "the type of %s is not known; declare it", what);
  return n;
}

/* The type of a function from its declaration alone; NULL if it is not all there. */
static const Type *declared_type(Module *m, const Node *f)
{
  if (f->type) return f->type;
  if (!f->u.func->ret) return NULL;
  const Type **param = arena_array(m->arena, const Type *, fn_nparams(f));
  for (int i = 0; i < fn_nparams(f); i++)
    if (!(param[i] = f->arg[i]->type)) return NULL;
  return type_func(m, fn_nparams(f), param, f->u.func->ret);
}

static const Node *infer_global(Infer *in, const Node *n)
{
  Module *m = in->m;
  Global *g = module_get(m, n->u.global);
  if (!g) {
    if (n->type) return n; /* not defined yet, or in another module */
    raise(m->ctx, ERR_TYPE, NOWHERE, "there is no function @%s in the module", n->u.global);
  }
  if (g->kind != GLOBAL_GRAPH)
    raise(m->ctx, ERR_TYPE, NOWHERE, "@%s is a loop program; call_tir calls it", n->u.global);
  const Type *ty = declared_type(m, g->func);
  if (!ty) {
    for (const Infer *o = in; o; o = o->outer)
      if (o->global && !strcmp(o->global, n->u.global))
        raise(m->ctx, ERR_TYPE, NOWHERE, "@%s calls itself; declare the type of its result", n->u.global);
    if (in->depth == MAX_NESTING)
      raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "functions without declared result types call each other %d deep",
            MAX_NESTING);
    Infer inner = {.m = m, .arena = in->arena, .outer = in, .global = n->u.global, .depth = in->depth + 1};
    const Node *f = infer_graph(&inner, g->func);
    module_set(m, n->u.global, GLOBAL_GRAPH, (void *)(uintptr_t)f);
    ty = f->type;
  }
  if (n->type && type_equal(n->type, ty)) return n;
  Node *now = arena_copy(m->arena, n, sizeof *n);
  now->id = m->next_id++;
  now->type = ty;
  return now;
}

/* ---- patterns --------------------------------------------------------------------------------- */

static void bind_pattern(Infer *in, const Pattern *p, const Type *ty)
{
  Module *m = in->m;
  switch (p->kind) {
  case PAT_WILD: return;
  case PAT_VAR:
    if (p->var->type && !type_fits(p->var->type, ty))
      raise(m->ctx, ERR_TYPE, NOWHERE, "pattern variable '%s' is declared as %s, the value is %s", p->var->name,
            type_text(scratch(m->ctx), p->var->type), type_text(scratch(m->ctx), ty));
    map_put(in->arena, &in->memo, p->var, (void *)(uintptr_t)(p->var->type ? p->var : node_var_typed(m, p->var, ty)));
    return;
  case PAT_TUPLE:
    if (ty->kind != TY_TUPLE || ty->nfield != p->n)
      raise(m->ctx, ERR_TYPE, NOWHERE, "a pattern of %d fields is matched against %s", p->n,
            type_text(scratch(m->ctx), ty));
    for (int i = 0; i < p->n; i++) bind_pattern(in, p->sub[i], ty->field[i]);
    return;
  case PAT_CTOR: {
    if (ty->kind != TY_DATA || ty->data != p->ctor->data)
      raise(m->ctx, ERR_TYPE, NOWHERE, "pattern '%s' of type %s is matched against %s", p->ctor->name,
            p->ctor->data->name, type_text(scratch(m->ctx), ty));
    if (p->n != p->ctor->n)
      raise(m->ctx, ERR_TYPE, NOWHERE, "constructor '%s' has %d fields, its pattern %d", p->ctor->name, p->ctor->n,
            p->n);
    Map param = {0};
    for (int i = 0; i < ty->nfield && i < ty->data->nparam; i++)
      map_put(in->arena, &param, ty->data->param[i], (void *)(uintptr_t)ty->field[i]);
    for (int i = 0; i < p->n; i++)
      bind_pattern(in, p->sub[i], type_anew(m, type_substitute(m, p->ctor->field[i], NULL, &param, false)));
    return;
  }
  }
}

/* ---- one node ------------------------------------------------------------------------------------ */

static const Node *infer_match(Infer *in, const Node *n, const Node *const *arg)
{
  const Pattern **clause = arena_array(in->arena, const Pattern *, n->u.match.n);
  for (int i = 0; i < n->u.match.n; i++) clause[i] = graph_pattern_replace(in->m, n->u.match.clause[i], &in->memo);
  const Node *now = node_match_with(in->m, n, arg, clause);
  return now->type ? now : node_match(in->m, arg[0], n->u.match.n, clause, arg + 1);
}

/* Variables among the arguments that have no type yet get the one that the operator wants there. */
static void infer_operands(Infer *in, const Node *n)
{
  Module *m = in->m;
  if (n->kind != N_CALL || !n->u.call.op->operand) return;
  const Type **types = arena_array(in->arena, const Type *, n->nargs);
  const Node **arg = arena_array(in->arena, const Node *, n->nargs);
  for (int i = 0; i < n->nargs; i++) {
    arg[i] = map_get(&in->memo, n->arg[i]);
    types[i] = arg[i]->type ? type_unguarded(m, arg[i]->type) : NULL;
  }
  OpCall call = {.m = m, .op = n->u.call.op, .attrs = n->u.call.attrs, .nargs = n->nargs, .arg = types, .node = arg};
  call.name = n->name;
  for (int i = 0; i < n->nargs; i++) {
    const Node *now = map_get(&in->memo, n->arg[i]); /* one variable may be several arguments */
    if (now->type || now->kind != N_VAR) continue;
    const Type *ty = call.op->operand(&call, i);
    if (ty) map_put(in->arena, &in->memo, n->arg[i], (void *)(uintptr_t)node_var(m, now->name, ty));
  }
}

/* The parameters of a function that is applied on the spot, where they have no type: those of the arguments. */
static void infer_parameters(Infer *in, const Node *apply)
{
  const Node *f = apply->arg[0];
  for (int i = 0; i < fn_nparams(f) && i + 1 < apply->nargs; i++) {
    const Node *value = map_get(&in->memo, apply->arg[i + 1]);
    if (f->arg[i]->type || map_has(&in->memo, f->arg[i]) || !value->type) continue;
    map_put(in->arena, &in->memo, f->arg[i], (void *)(uintptr_t)node_var(in->m, f->arg[i]->name, value->type));
  }
}

static const Node *infer_node(Infer *in, const Node *n)
{
  Module *m = in->m;
  infer_operands(in, n);
  const Node **arg = arena_array(in->arena, const Node *, n->nargs);
  bool same = n->type != NULL;
  for (int i = 0; i < n->nargs; i++) {
    arg[i] = map_get(&in->memo, n->arg[i]);
    same = same && arg[i] == n->arg[i];
    if (arg[i]->kind == N_VAR)
      need_type(in, arg[i], arena_printf(scratch(m->ctx), "variable '%s'", arg[i]->name ? arg[i]->name : "_"));
  }
  if (n->kind == N_VAR) return n;
  if (n->kind == N_GLOBAL) return infer_global(in, n);
  if (n->kind == N_MATCH) return need_type(in, infer_match(in, n, arg), "a match");
  return need_type(in, same ? n : node_rebuild(m, n, arg), "an expression");
}

/* Is a function applied on the spot some of whose parameters have no type?  Then its arguments are visited first. */
static bool callee_last(const Node *n)
{
  if (n->kind != N_APPLY || n->arg[0]->kind != N_FUNC) return false;
  for (int i = 0; i < fn_nparams(n->arg[0]); i++)
    if (!n->arg[0]->arg[i]->type) return true;
  return false;
}

/* Lets and matches give their variables types on the way: before this step of n. */
static void bind_variables(Infer *in, const Node *n, int step)
{
  if (n->kind == N_LET && step == (n->arg[0]->type ? 2 : 1)) {
    const Node *value = map_get(&in->memo, n->arg[1]);
    const Node *var = n->arg[0]->type ? n->arg[0] : node_var_typed(in->m, n->arg[0], value->type);
    map_put(in->arena, &in->memo, n->arg[0], (void *)(uintptr_t)var);
    graph_bind_let(in->m, var, value);
  }
  if (callee_last(n) && step == n->nargs - 1) infer_parameters(in, n);
  if (n->kind == N_MATCH && step == 1)
    for (int i = 0; i < n->u.match.n; i++)
      bind_pattern(in, n->u.match.clause[i], ((const Node *)map_get(&in->memo, n->arg[0]))->type);
}

/* Argument of n to visit at this step: a let's value before its variable (unless that is
 * declared: then a function may call itself by it). */
static int step_argument(const Node *n, int step)
{
  if (callee_last(n)) return (step + 1) % n->nargs;
  bool value_first = n->kind == N_LET && !n->arg[0]->type;
  return value_first && step < 2 ? 1 - step : step;
}

static const Node *infer_graph(Infer *in, const Node *root)
{
  typedef struct {
    const Node *n;
    int step;
  } Frame;
  Vec(Frame) stack = {0};
  vec_push(in->arena, &stack, (Frame){root, 0});
  while (stack.n) {
    Frame *top = &stack.v[stack.n - 1];
    if (top->step == top->n->nargs) {
      const Node *n = top->n;
      if (!map_has(&in->memo, n)) map_put(in->arena, &in->memo, n, (void *)(uintptr_t)infer_node(in, n));
      stack.n--;
      continue;
    }
    const Node *n = top->n;
    int step = top->step++;
    bind_variables(in, n, step);
    const Node *arg = n->arg[step_argument(n, step)];
    if (!map_has(&in->memo, arg)) vec_push(in->arena, &stack, (Frame){arg, 0});
  }
  const Node *now = map_get(&in->memo, root);
  return now->kind == N_VAR ? need_type(in, now, arena_printf(scratch(in->m->ctx), "variable '%s'", now->name)) : now;
}

const Node *graph_infer(Module *m, const Node *n)
{
  Scope s = scope_begin(m->ctx);
  Infer in = {.m = m, .arena = scratch(m->ctx)};
  for (int i = 0; i < m->globals.n; i++)
    if (m->globals.v[i].func == n) in.global = m->globals.v[i].name;
  const Node *now = infer_graph(&in, n);
  scope_end(m->ctx, s);
  return now;
}
