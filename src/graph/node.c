/* node.c: constructors of graph nodes.
 *
 * Comes in: arguments with their types.  Goes out: an immutable node whose type is
 * inferred at once where the arguments' types are known; else it is NULL and
 * graph_infer fills it in. */
#include "graph/state.h"

static Node *new_node(Module *m, NodeKind kind, int n, const Node *const *arg, const Type *type)
{
  Node *node = arena_new_of(m->arena, Node);
  node->kind = kind;
  node->nargs = n;
  if (n) node->arg = arena_copy(m->arena, arg, (size_t)n * sizeof *arg);
  node->type = type;
  node->id = m->next_id++;
  return node;
}

const Node *node_var(Module *m, const char *name, const Type *type)
{
  Node *n = new_node(m, N_VAR, 0, NULL, type);
  n->name = arena_strdup(m->arena, name);
  n->u.origin = ctx_number(m->ctx);
  return n;
}

const Node *node_var_typed(Module *m, const Node *var, const Type *type)
{
  Node *n = new_node(m, N_VAR, 0, NULL, type);
  n->name = var->name;
  n->u.origin = var->u.origin;
  return n;
}

const Node *node_const(Module *m, const ConstData *data)
{
  Node *n = new_node(m, N_CONST, 0, NULL, type_tensor_of(m, data->dtype, data->ndim, data->shape));
  n->u.data = arena_copy(m->arena, data, sizeof *data);
  return n;
}

/* From here on a constant's bytes are a blob, which copies of the module share. */
#define BLOB_BYTES 4096

const Node *node_const_copy(Module *m, DType dtype, int ndim, const int64_t *shape, const void *bytes)
{
  ConstData data = {.dtype = dtype, .ndim = ndim};
  if (ndim > MAX_RANK)
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "a constant has %d dimensions; there are at most %d", ndim, MAX_RANK);
  data.bytes = (size_t)dtype_bytes(dtype);
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0)
      raise(m->ctx, ERR_SHAPE, NOWHERE, "dimension %d of a constant is %" PRId64 "; a dimension is not negative", i,
            shape[i]);
    data.shape[i] = shape[i];
    data.bytes = mem_size_mul(m->ctx, data.bytes, (size_t)shape[i], "a constant");
  }
  if (data.bytes >= BLOB_BYTES) {
    void *copy = blob_alloc(m, data.bytes);
    memcpy(copy, bytes, data.bytes);
    data.data = copy;
  } else {
    data.data = arena_copy(m->arena, bytes, data.bytes);
  }
  return node_const(m, &data);
}

const Node *node_scalar(Module *m, Value v)
{
  char bytes[8];
  value_store(v, bytes);
  return node_const_copy(m, v.dtype, 0, NULL, bytes);
}

/* ---- calls of operators ------------------------------------------------------------- */

static bool all_typed(int n, const Node *const *arg)
{
  for (int i = 0; i < n; i++)
    if (!arg[i]->type) return false;
  return true;
}

static const Type *infer_call(Module *m, const OpDef *op, int n, const Node *const *arg, const void *attrs,
                              const char *name)
{
  const Type **types = arena_array(m->arena, const Type *, n);
  for (int i = 0; i < n; i++) types[i] = type_unguarded(m, arg[i]->type);
  OpCall call = {.m = m, .op = op, .attrs = attrs, .nargs = n, .arg = types, .node = arg, .name = name};
  for (int i = 0; i < n && !(op->flags & OPF_STRING); i++)
    if (type_has_strings(types[i]))
      opdef_raise(&call, ERR_TYPE, "argument %d is %s; this operator does not work on strings", i,
                  type_text(scratch(m->ctx), types[i]));
  return op->type(&call);
}

const Node *node_call(Module *m, const OpDef *op, int n, const Node *const *arg, const void *attrs, const char *name)
{
  if (n < op->min_args || (op->max_args >= 0 && n > op->max_args)) {
    OpCall call = {.m = m, .op = op, .name = name};
    opdef_raise(&call, ERR_ARGUMENT, "takes %d argument%s (%s), %d given", op->min_args, op->min_args == 1 ? "" : "s",
                op->args, n);
  }
  if (!attrs && op->attrs) attrs = attrs_new(m, op->attrs);
  const char *missing;
  attrs = attrs_with_strings(m, op->attrs, attrs, &missing);
  if (missing) {
    OpCall call = {.m = m, .op = op, .name = name};
    opdef_raise(&call, ERR_ARGUMENT, "attribute '%s' must be given: a string", missing);
  }
  Node *node = new_node(m, N_CALL, n, arg, all_typed(n, arg) ? infer_call(m, op, n, arg, attrs, name) : NULL);
  node->u.call.op = op;
  node->u.call.attrs = attrs;
  if (name) node->name = arena_strdup(m->arena, name);
  return node;
}

const Node *node_call_planned(Module *m, const Node *call, const char *plan)
{
  Node *node = arena_copy(m->arena, call, sizeof *call);
  node->id = m->next_id++;
  node->u.call.plan = arena_strdup(m->arena, plan);
  return node;
}

bool node_same_plan(const Node *a, const Node *b)
{
  const char *p = a->u.call.plan;
  const char *q = b->u.call.plan;
  return p && q ? !strcmp(p, q) : !p && !q;
}

/* ---- the rest ------------------------------------------------------------------------- */

const Node *node_apply(Module *m, const Node *f, int n, const Node *const *arg)
{
  const Type *ty = f->type;
  const Type *result = NULL;
  if (ty && ty->kind != TY_FUNC)
    raise(m->ctx, ERR_TYPE, NOWHERE, "a value of type %s is called; only functions are",
          type_text(scratch(m->ctx), ty));
  if (ty && all_typed(n, arg)) {
    const Type **types = arena_array(m->arena, const Type *, n);
    for (int i = 0; i < n; i++) types[i] = arg[i]->type;
    bool open = f->kind == N_FUNC && fn_body(f)->type;
    result = open ? graph_apply_func(m, f, n, arg) : graph_apply_type(m, ty, n, types);
  }
  const Node **all = arena_array(m->arena, const Node *, n + 1);
  all[0] = f;
  for (int i = 0; i < n; i++) all[i + 1] = arg[i];
  return new_node(m, N_APPLY, n + 1, all, result);
}

const Node *node_tuple(Module *m, int n, const Node *const *arg)
{
  const Type *ty = NULL;
  if (all_typed(n, arg)) {
    const Type **types = arena_array(m->arena, const Type *, n);
    for (int i = 0; i < n; i++) types[i] = arg[i]->type;
    ty = type_tuple(m, n, types);
  }
  return new_node(m, N_TUPLE, n, arg, ty);
}

const Node *node_get(Module *m, const Node *tuple, int index)
{
  const Type *ty = tuple->type;
  int fields = tuple->kind == N_TUPLE ? tuple->nargs : ty && ty->kind == TY_TUPLE ? ty->nfield : ty ? 0 : INT32_MAX;
  if (index < 0 || index >= fields)
    raise(m->ctx, ERR_TYPE, NOWHERE, "there is no field %d in %s", index,
          ty ? type_text(scratch(m->ctx), ty) : "a tuple of fewer fields");
  if (tuple->kind == N_TUPLE) return tuple->arg[index];
  Node *n = new_node(m, N_GET, 1, &tuple, ty ? ty->field[index] : NULL);
  n->u.index = index;
  return n;
}

const Node *node_let(Module *m, const Node *var, const Node *value, const Node *body)
{
  if (var->kind != N_VAR) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "let binds a variable, not another kind of node");
  if (var->type && value->type && !type_fits(var->type, value->type))
    raise(m->ctx, ERR_TYPE, NOWHERE, "let: variable '%s' is declared as %s, its value is %s", var->name,
          type_text(scratch(m->ctx), var->type), type_text(scratch(m->ctx), value->type));
  return new_node(m, N_LET, 3, (const Node *[]){var, value, body}, body->type);
}

static const Type *joined(Module *m, const char *what, int n, const Node *const *branch)
{
  const Type *ty = n && all_typed(n, branch) ? branch[0]->type : NULL;
  for (int i = 1; ty && i < n; i++) {
    const Type *both = type_join(m, ty, branch[i]->type);
    if (!both)
      raise(m->ctx, ERR_TYPE, NOWHERE, "%s: one branch gives %s, another %s", what, type_text(scratch(m->ctx), ty),
            type_text(scratch(m->ctx), branch[i]->type));
    ty = both;
  }
  return ty;
}

const Node *node_if(Module *m, const Node *cond, const Node *then, const Node *orelse)
{
  const Type *ty = cond->type;
  if (ty && (ty->kind != TY_TENSOR || !dtype_is_bool(ty->dtype)))
    raise(m->ctx, ERR_TYPE, NOWHERE, "if: the condition is a bool scalar, not %s", type_text(scratch(m->ctx), ty));
  const Node *branch[] = {then, orelse};
  return new_node(m, N_IF, 3, (const Node *[]){cond, then, orelse}, joined(m, "if", 2, branch));
}

/* The declared result, or else the body's as it looks from outside. */
static const Type *func_result(Module *m, const Node *body, const Type *ret)
{
  if (ret && body->type && !type_fits(ret, body->type))
    raise(m->ctx, ERR_TYPE, NOWHERE, "a function is declared to give %s, its body gives %s",
          type_text(scratch(m->ctx), ret), type_text(scratch(m->ctx), body->type));
  if (ret) return ret;
  return body->type ? type_outside(m, body->type) : NULL;
}

const Node *node_func(Module *m, int n, const Node *const *param, const Node *body, const Type *ret,
                      const Annots *attrs)
{
  const Node **all = arena_array(m->arena, const Node *, n + 1);
  for (int i = 0; i < n; i++) {
    if (param[i]->kind != N_VAR)
      raise(m->ctx, ERR_ARGUMENT, NOWHERE, "parameter %d of a function is not a variable", i);
    all[i] = param[i];
  }
  all[n] = body;
  const Type *ty = NULL;
  const Type *result = func_result(m, body, ret);
  if (result && all_typed(n, param)) {
    const Type **types = arena_array(m->arena, const Type *, n);
    for (int i = 0; i < n; i++) types[i] = param[i]->type;
    ty = type_func(m, n, types, result);
  }
  Node *f = new_node(m, N_FUNC, n + 1, all, ty);
  FuncInfo *info = arena_new_of(m->arena, FuncInfo);
  info->ret = ret;
  for (int i = 0; attrs && i < attrs->n; i++) annots_set(m->arena, &info->attrs, attrs->v[i].key, attrs->v[i].value);
  f->u.func = info;
  return f;
}

const Node *node_global(Module *m, const char *name)
{
  Global *g = module_get(m, name);
  Node *n = new_node(m, N_GLOBAL, 0, NULL, g && g->kind == GLOBAL_GRAPH ? ((const Node *)g->func)->type : NULL);
  n->u.global = arena_strdup(m->arena, name);
  return n;
}

const Node *node_ctor(Module *m, const Ctor *ctor)
{
  const Type **params = arena_array(m->arena, const Type *, ctor->data->nparam);
  for (int i = 0; i < ctor->data->nparam; i++) params[i] = type_var(m, ctor->data->param[i]);
  const Type *data = type_data(m, ctor->data, ctor->data->nparam, params);
  Node *n = new_node(m, N_CTOR, 0, NULL, type_func(m, ctor->n, ctor->field, data));
  n->u.ctor = ctor;
  return n;
}

const Node *node_op(Module *m, const OpDef *op)
{
  Node *n = new_node(m, N_OP, 0, NULL, type_simple(m, TY_OBJECT, NULL));
  n->u.call.op = op;
  return n;
}

const Node *node_match(Module *m, const Node *value, int n, const Pattern *const *clause, const Node *const *body)
{
  if (!n) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "match without a clause");
  const Node **all = arena_array(m->arena, const Node *, n + 1);
  all[0] = value;
  for (int i = 0; i < n; i++) all[i + 1] = body[i];
  Node *node = new_node(m, N_MATCH, n + 1, all, joined(m, "match", n, body));
  node->u.match.n = n;
  node->u.match.clause = arena_copy(m->arena, clause, (size_t)n * sizeof *clause);
  return node;
}

const Node *node_call_tir(Module *m, const char *name, int n, const Node *const *arg, const Type *out)
{
  Node *node = new_node(m, N_CALL_TIR, n, arg, out);
  node->u.tir.name = arena_strdup(m->arena, name);
  return node;
}

/* ---- the same over other arguments --------------------------------------------------------- */

static const Node *rebuild(Module *m, const Node *n, const Node *const *arg)
{
  switch (n->kind) {
  case N_VAR:
  case N_CONST:
  case N_CTOR:
  case N_OP: return n;
  case N_GLOBAL: return node_global(m, n->u.global);
  case N_CALL: {
    const Node *call = node_call(m, n->u.call.op, n->nargs, arg, n->u.call.attrs, n->name);
    return n->u.call.plan ? node_call_planned(m, call, n->u.call.plan) : call;
  }
  case N_APPLY: return node_apply(m, arg[0], n->nargs - 1, arg + 1);
  case N_TUPLE: return node_tuple(m, n->nargs, arg);
  case N_GET: return node_get(m, arg[0], n->u.index);
  case N_LET: return node_let(m, arg[0], arg[1], arg[2]);
  case N_IF: return node_if(m, arg[0], arg[1], arg[2]);
  case N_FUNC: return node_func(m, n->nargs - 1, arg, arg[n->nargs - 1], n->u.func->ret, &n->u.func->attrs);
  case N_MATCH: return node_match(m, arg[0], n->u.match.n, n->u.match.clause, arg + 1);
  case N_CALL_TIR: return node_call_tir(m, n->u.tir.name, n->nargs, arg, n->type);
  }
  BUG(m->ctx, "node of kind %d", n->kind);
}

const Node *node_rebuild(Module *m, const Node *n, const Node *const *arg)
{
  const Node *now = rebuild(m, n, arg);
  /* a fresh node (a projection may have given an old one back) keeps the name */
  if (now != n && now->kind == n->kind && n->name && !now->name) ((Node *)(uintptr_t)now)->name = n->name;
  return now;
}

const Node *node_with_args(Module *m, const Node *n, const Node *const *arg)
{
  for (int i = 0; i < n->nargs; i++)
    if (arg[i] != n->arg[i]) return node_rebuild(m, n, arg);
  return n;
}

const Node *node_match_with(Module *m, const Node *n, const Node *const *arg, const Pattern *const *clause)
{
  bool same = true;
  for (int i = 0; i < n->nargs && same; i++) same = arg[i] == n->arg[i];
  for (int i = 0; i < n->u.match.n && same; i++) same = clause[i] == n->u.match.clause[i];
  return same ? n : node_match(m, arg[0], n->u.match.n, clause, arg + 1);
}
