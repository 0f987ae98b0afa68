/* interp.c: what a graph means.
 *
 * Comes in: a function and values.  Goes out: its value, every operator evaluated by its
 * meaning.  A call of a function is an Activation: values of its variables and nodes (each
 * node at most once), sizes bound by its parameters' types, and a stack of nodes under way.
 * Only the branch that is taken is evaluated.  A call that is the last thing an
 * activation does takes the activation's place, so loops need no depth; no C recursion
 * follows the graph. */
#include "graph/state.h"

#define MAX_CALLS 10000

typedef struct Frame {
  const Node *n;
  int step;  /* arguments done */
  bool last; /* its value is the activation's */
} Frame;

typedef struct Activation {
  struct Activation *caller;
  const Node *call; /* the caller's node that waits for the value */
  Map values;       /* Node* -> RtValue* */
  Map sizes;        /* Var* -> Value* */
  Vec(Frame) stack;
} Activation;

typedef struct Interp {
  Module *m;
  Arena *arena;
  Activation *top;
  int depth;
  const RtValue *result;
} Interp;

const RtValue *graph_value_tensor(Arena *arena, const ConstData *data)
{
  RtValue *v = arena_new_of(arena, RtValue);
  v->kind = RV_TENSOR;
  v->tensor = *data;
  return v;
}

const RtValue *graph_value_fields(Arena *arena, int kind, int n, const RtValue *const *field)
{
  RtValue *v = arena_new_of(arena, RtValue);
  v->kind = kind;
  v->n = n;
  v->field = arena_copy(arena, field, (size_t)n * sizeof *field);
  return v;
}

static const RtValue *value_of(Interp *in, const Node *n)
{
  const RtValue *v = map_get(&in->top->values, n);
  if (!v) BUG(in->m->ctx, "a node of kind %d has no value", n->kind);
  return v;
}

static void set_value(Interp *in, const Node *n, const RtValue *v)
{
  map_put(in->arena, &in->top->values, n, (void *)(uintptr_t)v);
}

/* ---- sizes -------------------------------------------------------------------------------- */

static void bind_sizes(Interp *in, Activation *a, const Type *ty, const RtValue *v)
{
  if (!ty) return;
  for (int i = 0; ty->kind == TY_TENSOR && v->kind == RV_TENSOR && i < ty->ndim && i < v->tensor.ndim; i++) {
    if (ty->shape[i]->kind != E_VAR) continue;
    Value *size = arena_new_of(in->arena, Value);
    *size = value_int(ty->shape[i]->dtype, v->tensor.shape[i]);
    map_put(in->arena, &a->sizes, ty->shape[i]->u.var, size);
  }
  for (int i = 0; ty->kind == TY_TUPLE && v->kind == RV_TUPLE && i < ty->nfield && i < v->n; i++)
    bind_sizes(in, a, ty->field[i], v->field[i]);
}

static void check_argument(Interp *in, int i, const Type *ty, const RtValue *v)
{
  if (!ty || ty->kind != TY_TENSOR) return;
  bool fits =
      v->kind == RV_TENSOR && dtype_eq(v->tensor.dtype, ty->dtype) && (ty->ndim < 0 || v->tensor.ndim == ty->ndim);
  for (int k = 0; fits && k < ty->ndim; k++)
    fits = ty->shape[k]->kind != E_INT || ty->shape[k]->u.i == v->tensor.shape[k];
  if (fits) return;
  const char *given = "no tensor";
  if (v->kind == RV_TENSOR)
    given = type_text(scratch(in->m->ctx), type_tensor_of(in->m, v->tensor.dtype, v->tensor.ndim, v->tensor.shape));
  raise(in->m->ctx, ERR_SHAPE, NOWHERE, "argument %d is %s, the parameter wants %s", i, given,
        type_text(scratch(in->m->ctx), ty));
}

/* ---- calls of operators --------------------------------------------------------------------- */

/* The call with the sizes in its attributes as numbers. */
static const Node *with_sizes(Interp *in, const Node *call)
{
  const AttrsDef *def = call->u.call.op->attrs;
  void *attrs = NULL;
  for (int i = 0; def && i < def->n; i++) {
    if (def->field[i].kind != AT_DIMS) continue;
    const AttrDims *old = (const AttrDims *)(const void *)((const char *)call->u.call.attrs + def->field[i].offset);
    EvalEnv env = {.m = in->m, .arena = in->arena, .vars = in->top->sizes};
    int64_t *dims = arena_array(in->arena, int64_t, old->n);
    bool symbolic = false;
    for (int k = 0; k < old->n; k++) {
      symbolic = symbolic || old->v[k]->kind != E_INT;
      dims[k] = expr_eval(&env, old->v[k], 0).i;
    }
    if (!symbolic) continue;
    if (!attrs) attrs = attrs_copy(in->m, def, call->u.call.attrs);
    attrs_set_ints(in->m, def, attrs, def->field[i].name, old->n, dims);
  }
  if (!attrs) return call;
  Node *now = arena_copy(in->arena, call, sizeof *call);
  now->u.call.attrs = attrs;
  return now;
}

static const RtValue *eval_host(Interp *in, const Node *n, const RtValue *const *arg)
{
  const Type **types = arena_array(in->arena, const Type *, n->nargs);
  for (int i = 0; i < n->nargs; i++) types[i] = n->arg[i]->type;
  OpCall call = {.m = in->m,
                 .op = n->u.call.op,
                 .attrs = n->u.call.attrs,
                 .nargs = n->nargs,
                 .arg = types,
                 .node = n->arg,
                 .out = n->type,
                 .name = n->name};
  return n->u.call.op->eval(&call, in->arena, arg);
}

static const RtValue *eval_call(Interp *in, const Node *n, const RtValue *const *arg)
{
  Vec(ConstData) tensors = {0};
  if (n->u.call.op->eval) return eval_host(in, n, arg);
  for (int i = 0; i < n->nargs; i++) {
    bool tuple = arg[i]->kind == RV_TUPLE;
    for (int k = 0; k < (tuple ? arg[i]->n : 1); k++) {
      const RtValue *v = tuple ? arg[i]->field[k] : arg[i];
      if (v->kind != RV_TENSOR)
        raise(in->m->ctx, ERR_TYPE, NOWHERE, "%s: argument %d is no tensor", n->u.call.op->name, i);
      vec_push(in->arena, &tensors, v->tensor);
    }
  }
  int nout = opdef_num_outputs(n);
  ConstData *out = arena_array(in->arena, ConstData, nout);
  opdef_evaluate(in->m, in->arena, with_sizes(in, n), tensors.n, tensors.v, out);
  if (n->type->kind != TY_TUPLE) return graph_value_tensor(in->arena, &out[0]);
  const RtValue **field = arena_array(in->arena, const RtValue *, nout);
  for (int i = 0; i < nout; i++) field[i] = graph_value_tensor(in->arena, &out[i]);
  return graph_value_fields(in->arena, RV_TUPLE, nout, field);
}

/* ---- calls of loop programs ------------------------------------------------------------------- */

static ConstData new_output(Interp *in, const Type *ty)
{
  ConstData d = {.dtype = ty->dtype, .ndim = ty->ndim, .bytes = (size_t)dtype_bytes(ty->dtype)};
  EvalEnv env = {.m = in->m, .arena = in->arena, .vars = in->top->sizes};
  if (ty->kind != TY_TENSOR || ty->ndim < 0)
    raise(in->m->ctx, ERR_UNSUPPORTED, NOWHERE, "call_tir: %s has no memory of known size",
          type_text(scratch(in->m->ctx), ty));
  for (int i = 0; i < ty->ndim; i++) {
    d.shape[i] = expr_eval(&env, ty->shape[i], 0).i;
    if (d.shape[i] < 0)
      raise(in->m->ctx, ERR_SHAPE, NOWHERE, "call_tir: dimension %d of the result is %" PRId64, i, d.shape[i]);
    d.bytes = mem_size_mul(in->m->ctx, d.bytes, (size_t)d.shape[i], "a result of call_tir");
  }
  d.data = arena_alloc(in->arena, d.bytes);
  return d;
}

static TirArg tir_arg(const ConstData *d)
{
  return (TirArg){
    .data = (void *)(uintptr_t)d->data, .dtype = d->dtype, .ndim = d->ndim, .shape = (int64_t *)(uintptr_t)d->shape};
}

static const RtValue *eval_call_tir(Interp *in, const Node *n, const RtValue *const *arg)
{
  Global *g = module_get(in->m, n->u.tir.name);
  if (!g || g->kind != GLOBAL_TIR)
    raise(in->m->ctx, ERR_ARGUMENT, NOWHERE, "there is no loop program @%s in the module", n->u.tir.name);
  const PrimFunc *f = g->func;
  int nout = n->type->kind == TY_TUPLE ? n->type->nfield : 1;
  if (f->nparam != n->nargs + nout)
    raise(in->m->ctx, ERR_TYPE, NOWHERE, "@%s has %d parameters, the call gives %d and wants %d", n->u.tir.name,
          f->nparam, n->nargs, nout);
  TirArg *value = arena_array(in->arena, TirArg, f->nparam);
  const RtValue **field = arena_array(in->arena, const RtValue *, nout);
  for (int i = 0; i < n->nargs; i++) {
    if (arg[i]->kind != RV_TENSOR) raise(in->m->ctx, ERR_TYPE, NOWHERE, "call_tir: argument %d is no tensor", i);
    value[i] = tir_arg(&arg[i]->tensor);
  }
  for (int i = 0; i < nout; i++) {
    ConstData d = new_output(in, nout == 1 && n->type->kind != TY_TUPLE ? n->type : n->type->field[i]);
    field[i] = graph_value_tensor(in->arena, &d);
    value[n->nargs + i] = tir_arg(&field[i]->tensor);
  }
  func_interpret(f, f->nparam, value);
  return n->type->kind == TY_TUPLE ? graph_value_fields(in->arena, RV_TUPLE, nout, field) : field[0];
}

/* ---- functions ---------------------------------------------------------------------------------- */

static const RtValue *make_closure(Interp *in, const Node *f)
{
  RtValue *v = arena_new_of(in->arena, RtValue);
  v->kind = RV_CLOSURE;
  v->func = f;
  if (f->kind != N_FUNC) return v;
  Map *captures = arena_new_of(in->arena, Map);
  Map *sizes = arena_new_of(in->arena, Map);
  const Node **vars;
  int n = graph_free_vars(in->arena, f, &vars);
  for (int i = 0; i < n; i++) {
    void *have = map_get(&in->top->values, vars[i]);
    if (have) map_put(in->arena, captures, vars[i], have);
  }
  for (int i = 0; i < in->top->sizes.n; i++)
    map_put(in->arena, sizes, (const void *)(uintptr_t)in->top->sizes.key[i], in->top->sizes.val[i]);
  v->captures = captures;
  v->sizes = sizes;
  return v;
}

/* A new activation of f; in the place of the current one when that has nothing left to do. */
static void enter(Interp *in, const RtValue *closure, int n, const RtValue *const *arg, const Node *call, bool last)
{
  const Node *f = closure->func;
  Activation *a = arena_new_of(in->arena, Activation);
  if (n != fn_nparams(f))
    raise(in->m->ctx, ERR_ARGUMENT, NOWHERE, "a function of %d parameters is called with %d", fn_nparams(f), n);
  for (int i = 0; closure->captures && i < closure->captures->n; i++)
    map_put(in->arena, &a->values, (const void *)(uintptr_t)closure->captures->key[i], closure->captures->val[i]);
  for (int i = 0; closure->sizes && i < closure->sizes->n; i++)
    map_put(in->arena, &a->sizes, (const void *)(uintptr_t)closure->sizes->key[i], closure->sizes->val[i]);
  for (int i = 0; i < n; i++) {
    check_argument(in, i, f->arg[i]->type, arg[i]);
    bind_sizes(in, a, f->arg[i]->type, arg[i]);
    map_put(in->arena, &a->values, f->arg[i], (void *)(uintptr_t)arg[i]);
  }
  a->caller = last ? in->top->caller : in->top;
  a->call = last ? in->top->call : call;
  if (!last && ++in->depth > MAX_CALLS)
    raise(in->m->ctx, ERR_UNSUPPORTED, NOWHERE, "functions call each other more than %d deep", MAX_CALLS);
  vec_push(in->arena, &a->stack, (Frame){fn_body(f), 0, true});
  in->top = a;
}

static void leave(Interp *in, const RtValue *v)
{
  const Node *call = in->top->call;
  in->top = in->top->caller;
  in->depth--;
  if (in->top) set_value(in, call, v);
  else in->result = v;
}

/* ---- patterns ----------------------------------------------------------------------------------- */

static bool matches(Interp *in, const Pattern *p, const RtValue *v)
{
  switch (p->kind) {
  case PAT_WILD: return true;
  case PAT_VAR:
    set_value(in, p->var, v);
    bind_sizes(in, in->top, p->var->type, v);
    return true;
  case PAT_CTOR:
    if (v->kind != RV_CTOR || v->ctor != p->ctor) return false;
    break;
  case PAT_TUPLE:
    if (v->kind != RV_TUPLE || v->n != p->n) return false;
    break;
  }
  for (int i = 0; i < p->n; i++)
    if (!matches(in, p->sub[i], v->field[i])) return false;
  return true;
}

/* ---- one step ------------------------------------------------------------------------------------ */

static void push(Interp *in, const Node *n, bool last) { vec_push(in->arena, &in->top->stack, (Frame){n, 0, last}); }

static bool is_true(Interp *in, const RtValue *v)
{
  if (v->kind != RV_TENSOR || !v->tensor.bytes) raise(in->m->ctx, ERR_TYPE, NOWHERE, "if: the condition is no scalar");
  return value_load(v->tensor.dtype, v->tensor.data).i != 0;
}

/* The argument to evaluate at this step, or NULL when the node is ready. */
static const Node *next_argument(Interp *in, Frame *f)
{
  const Node *n = f->n;
  switch (n->kind) {
  case N_VAR:
  case N_CONST:
  case N_GLOBAL:
  case N_CTOR:
  case N_OP:
  case N_FUNC: return NULL;
  case N_CALL:
  case N_APPLY:
  case N_TUPLE:
  case N_GET:
  case N_CALL_TIR: return f->step < n->nargs ? n->arg[f->step] : NULL;
  case N_LET:
    if (f->step == 1) {
      RtValue *v = (RtValue *)(uintptr_t)value_of(in, n->arg[1]);
      set_value(in, n->arg[0], v);
      /* it may call itself */
      if (v->kind == RV_CLOSURE && v->captures) map_put(in->arena, (Map *)(uintptr_t)v->captures, n->arg[0], v);
    }
    return f->step < 2 ? n->arg[f->step + 1] : NULL;
  case N_IF:
    if (f->step == 0) return n->arg[0];
    return f->step == 1 ? n->arg[is_true(in, value_of(in, n->arg[0])) ? 1 : 2] : NULL;
  case N_MATCH:
    if (f->step == 0) return n->arg[0];
    if (f->step == 2) return NULL;
    for (int i = 0; i < n->u.match.n; i++)
      if (matches(in, n->u.match.clause[i], value_of(in, n->arg[0]))) return n->arg[i + 1];
    raise(in->m->ctx, ERR_ARGUMENT, NOWHERE, "match: no clause fits the value");
  }
  return NULL;
}

static bool is_last_argument(const Frame *f)
{
  NodeKind k = f->n->kind;
  return f->last && f->step == 1 && (k == N_LET || k == N_IF || k == N_MATCH);
}

static const RtValue *global_closure(Interp *in, const Node *n)
{
  Global *g = module_get(in->m, n->u.global);
  if (!g || g->kind != GLOBAL_GRAPH)
    raise(in->m->ctx, ERR_ARGUMENT, NOWHERE, "there is no function @%s in the module", n->u.global);
  RtValue *v = arena_new_of(in->arena, RtValue);
  v->kind = RV_CLOSURE;
  v->func = g->func;
  return v;
}

/* The branch or body whose value is that of n. */
static const RtValue *forwarded(Interp *in, const Node *n)
{
  if (n->kind == N_LET) return value_of(in, n->arg[2]);
  if (n->kind == N_IF) return value_of(in, n->arg[is_true(in, value_of(in, n->arg[0])) ? 1 : 2]);
  for (int i = 0; i < n->u.match.n; i++)
    if (matches(in, n->u.match.clause[i], value_of(in, n->arg[0]))) return value_of(in, n->arg[i + 1]);
  BUG(in->m->ctx, "a match forgot its clause");
}

static const RtValue *call_by_name(Interp *in, const RtValue *callee, int n, const Node *const *node,
                                   const RtValue *const *arg)
{
  if (callee->func->kind == N_CTOR) {
    RtValue *v = (RtValue *)(uintptr_t)graph_value_fields(in->arena, RV_CTOR, n, arg);
    v->ctor = callee->func->u.ctor;
    return v;
  }
  const Node *call = node_call(in->m, callee->func->u.call.op, n, node, NULL, NULL);
  return eval_call(in, call, arg);
}

/* Every argument is there: the node's value, or NULL when a function was entered for it. */
static const RtValue *finish(Interp *in, const Node *n, bool last)
{
  const RtValue **arg = NULL;
  if (n->kind == N_CALL || n->kind == N_APPLY || n->kind == N_TUPLE || n->kind == N_CALL_TIR) {
    arg = arena_array(in->arena, const RtValue *, n->nargs);
    for (int i = 0; i < n->nargs; i++) arg[i] = value_of(in, n->arg[i]);
  }
  switch (n->kind) {
  case N_VAR: raise(in->m->ctx, ERR_ARGUMENT, NOWHERE, "variable '%s' has no value here", n->name ? n->name : "_");
  case N_CONST: return graph_value_tensor(in->arena, n->u.data);
  case N_GLOBAL: return global_closure(in, n);
  case N_CTOR:
  case N_OP:
  case N_FUNC: return make_closure(in, n);
  case N_CALL: return eval_call(in, n, arg);
  case N_CALL_TIR: return eval_call_tir(in, n, arg);
  case N_TUPLE: return graph_value_fields(in->arena, RV_TUPLE, n->nargs, arg);
  case N_GET: {
    const RtValue *v = value_of(in, n->arg[0]);
    if (v->kind != RV_TUPLE || n->u.index >= v->n)
      raise(in->m->ctx, ERR_TYPE, NOWHERE, "there is no field %d in the value", n->u.index);
    return v->field[n->u.index];
  }
  case N_LET:
  case N_IF:
  case N_MATCH: return forwarded(in, n);
  case N_APPLY:
    if (arg[0]->kind != RV_CLOSURE) raise(in->m->ctx, ERR_TYPE, NOWHERE, "what is called is no function");
    if (arg[0]->func->kind != N_FUNC) return call_by_name(in, arg[0], n->nargs - 1, n->arg + 1, arg + 1);
    enter(in, arg[0], n->nargs - 1, arg + 1, n, last);
    return NULL;
  }
  BUG(in->m->ctx, "a node of kind %d", n->kind);
}

static void run(Interp *in)
{
  while (in->top) {
    Activation *a = in->top;
    if (!a->stack.n) BUG(in->m->ctx, "an activation has nothing to do");
    Frame *f = &a->stack.v[a->stack.n - 1];
    const Node *n = f->n;
    const RtValue *v = map_get(&a->values, n);
    if (!v) {
      const Node *arg = next_argument(in, f);
      if (arg) {
        bool last = is_last_argument(f);
        f->step++;
        if (!map_has(&a->values, arg)) push(in, arg, last);
        continue;
      }
      ctx_poll(in->m->ctx);
      v = finish(in, n, f->last);
      if (!v) continue;
      set_value(in, n, v);
    }
    a->stack.n--;
    if (!a->stack.n) leave(in, v);
  }
}

const RtValue *graph_eval(Module *m, Arena *arena, const Node *f, int n, const RtValue *const *arg)
{
  Interp in = {.m = m, .arena = arena};
  Activation *start = arena_new_of(arena, Activation);
  in.top = start;
  in.depth = 1;
  if (f->kind == N_FUNC) {
    RtValue closure = {.kind = RV_CLOSURE, .func = f};
    enter(&in, &closure, n, arg, NULL, true);
  } else {
    if (n) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "only a function takes arguments");
    push(&in, f, true);
  }
  run(&in);
  return in.result;
}
