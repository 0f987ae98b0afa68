/* evaluate.c: one call of an operator, by its meaning.
 *
 * opdef_compute: tensors in, tensors out; a decomposition is followed node by node, a loop
 * program becomes an extern operation.  graph_compute: the same for an expression of calls.
 *
 * opdef_evaluate: values in, values out.  The call is made again over constants in a module of
 * its own, so every size is a literal, whatever the types said; then its meaning is
 * run by the reference evaluator.  The module dies with the call. */
#include "graph/graph.h"

/* ---- what both share ------------------------------------------------------------------ */

int opdef_num_outputs(const Node *call) { return call->type->kind == TY_TUPLE ? call->type->nfield : 1; }

static int width_of(const Type *ty) { return ty->kind == TY_TUPLE ? ty->nfield : 1; }
static const Type *field_of(const Type *ty, int i) { return ty->kind == TY_TUPLE ? ty->field[i] : ty; }

static OpCall opcall_of(Module *m, const Node *call)
{
  const Type **types = arena_array(m->arena, const Type *, call->nargs);
  for (int i = 0; i < call->nargs; i++) types[i] = type_in_kernel(m, call->arg[i]->type);
  return (OpCall){.m = m,
                  .op = call->u.call.op,
                  .attrs = call->u.call.attrs,
                  .nargs = call->nargs,
                  .arg = types,
                  .node = call->arg,
                  .out = type_in_kernel(m, call->type),
                  .name = call->name};
}

/* Visits what lies between a decomposition and the call's own arguments (known to
 * `done`), arguments first, and calls fn on each node. */
typedef struct Follow {
  Module *m;
  Arena *arena;
  Map done; /* Node* -> whatever fn made of it */
  void *(*fn)(struct Follow *, const Node *);
  void *env;
} Follow;

static void *follow(Follow *f, const Node *root)
{
  Vec(const Node *) stack = {0};
  vec_push(f->arena, &stack, root);
  while (stack.n) {
    const Node *n = stack.v[stack.n - 1];
    bool ready = true;
    for (int i = 0; i < n->nargs && !map_has(&f->done, n); i++)
      if (!map_has(&f->done, n->arg[i])) {
        vec_push(f->arena, &stack, n->arg[i]);
        ready = false;
      }
    if (!ready) continue;
    stack.n--;
    if (!map_has(&f->done, n)) map_put(f->arena, &f->done, n, f->fn(f, n));
  }
  return map_get(&f->done, root);
}

_Noreturn static void refuse_node(Module *m, const Node *n, const char *op)
{
  static const char *const names[] = {"a variable",    "a constant", "a call",     "a function call", "a tuple",
                                      "a field",       "a let",      "an if",      "a function",      "a global",
                                      "a constructor", "a match",    "a call_tir", "an operator"};
  raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: its decomposition holds %s, which has no place inside one kernel", op,
        names[n->kind]);
}

/* ---- tensors ----------------------------------------------------------------------------- */

const Tensor *graph_literal_tensor(Module *m, const ConstData *d)
{
  enum { MOST = 64 };                         /* different elements that are told apart one by one */
  if (dtype_is_string(d->dtype)) return NULL; /* its numbers are known only when the program is written */
  size_t step = (size_t)dtype_bytes(d->dtype);
  int64_t n = (int64_t)(d->bytes / step);
  const char *data = d->data;
  bool same = true;
  for (int64_t i = 1; i < n && same; i++) same = !memcmp(data, data + (size_t)i * step, step);
  if (!same && n > MOST) return NULL;
  const Expr *shape[MAX_RANK];
  const IterVar *axis[MAX_RANK];
  const Expr *flat = expr_i32(m, 0);
  for (int i = 0; i < d->ndim; i++) {
    shape[i] = expr_i32(m, d->shape[i]);
    const Var *var = var_new(m, arena_printf(m->arena, "i%d", i), DT_I32, VAR_PLAIN);
    axis[i] = itervar_new(m, var, expr_i32(m, 0), shape[i], ITER_SPATIAL, NULL);
    flat = expr_add(m, expr_mul(m, flat, shape[i]), var->expr);
  }
  const Expr *value = n ? expr_value(m, value_load(d->dtype, data)) : expr_const(m, d->dtype, 0);
  for (int64_t i = 1; i < n && !same; i++) {
    const Expr *here = expr_value(m, value_load(d->dtype, data + (size_t)i * step));
    value = expr_select(m, expr_binary(m, E_EQ, flat, expr_i32(m, i)), here, value);
  }
  return &te_compute(m, "const", "injective", d->ndim, shape, axis, 1, &value, NULL)->out[0];
}

/* The tensors of the arguments, tuples spread out, in order. */
static const Tensor **gather_tensors(Follow *f, const Node *n, int *count)
{
  int total = 0;
  for (int i = 0; i < n->nargs; i++) total += width_of(n->arg[i]->type);
  const Tensor **all = arena_array(f->arena, const Tensor *, total);
  int k = 0;
  for (int i = 0; i < n->nargs; i++) {
    const Tensor **have = map_get(&f->done, n->arg[i]);
    for (int j = 0; j < width_of(n->arg[i]->type); j++) all[k++] = have[j];
  }
  *count = total;
  return all;
}

static void *tensors_of_node(Follow *f, const Node *n)
{
  const char *op = f->env;
  int count;
  switch (n->kind) {
  case N_CONST: {
    const Tensor **out = arena_array(f->arena, const Tensor *, 1);
    out[0] = graph_literal_tensor(f->m, n->u.data);
    if (!out[0])
      raise(f->m->ctx, ERR_UNSUPPORTED, NOWHERE,
            "%s: its decomposition holds a constant (%s) that is too large to be written into a kernel", op,
            type_text(scratch(f->m->ctx), n->type));
    return out;
  }
  case N_CALL: {
    const Tensor **in = gather_tensors(f, n, &count);
    const Tensor **out = arena_array(f->arena, const Tensor *, opdef_num_outputs(n));
    opdef_compute(f->m, n, count, in, out);
    return out;
  }
  case N_TUPLE: return gather_tensors(f, n, &count);
  case N_GET: return (const Tensor **)map_get(&f->done, n->arg[0]) + n->u.index;
  case N_VAR:
  case N_APPLY:
  case N_LET:
  case N_IF:
  case N_FUNC:
  case N_GLOBAL:
  case N_CTOR:
  case N_MATCH:
  case N_CALL_TIR:
  case N_OP: refuse_node(f->m, n, op);
  }
  BUG(f->m->ctx, "a node of kind %d", n->kind);
}

static void compute_decomposed(Module *m, const Node *call, const Tensor *const *in, const Tensor **out)
{
  Follow f = {.m = m, .arena = m->arena, .fn = tensors_of_node, .env = (void *)(uintptr_t)call->u.call.op->name};
  for (int i = 0, k = 0; i < call->nargs; i++) {
    const Node *a = call->arg[i];
    map_put(f.arena, &f.done, a, (void *)(uintptr_t)(in + k));
    for (int j = 0; a->kind == N_TUPLE && j < a->nargs; j++)
      if (width_of(a->arg[j]->type) == 1) map_put(f.arena, &f.done, a->arg[j], (void *)(uintptr_t)(in + k + j));
    k += width_of(a->type);
  }
  const Tensor **have = follow(&f, call->u.call.op->decompose(m, call));
  for (int i = 0; i < opdef_num_outputs(call); i++) out[i] = have[i];
}

/* The loop program's parameters are the inputs, then the outputs. */
static void check_tir(Module *m, const Node *call, const PrimFunc *f, int n)
{
  if (f->nparam != n + opdef_num_outputs(call))
    BUG(m->ctx, "%s: its loop program has %d parameters, not %d inputs and %d outputs", call->u.call.op->name,
        f->nparam, n, opdef_num_outputs(call));
}

static void compute_tir(Module *m, const Node *call, OpCall *c, int n, const Tensor *const *in, const Tensor **out)
{
  PrimFunc *f = call->u.call.op->tir(c, m);
  check_tir(m, call, f, n);
  const Buffer **buffer = arena_array(m->arena, const Buffer *, f->nparam);
  for (int i = 0; i < f->nparam; i++) buffer[i] = f->param[i].buffer;
  const TeOp *op = te_extern(m, f->name, "opaque", n, in, buffer, f->nparam - n, buffer + n, f->body, NULL);
  for (int i = 0; i < op->nout; i++) out[i] = &op->out[i];
}

void opdef_compute(Module *m, const Node *call, int n, const Tensor *const *in, const Tensor **out)
{
  const OpDef *op = call->u.call.op;
  OpCall c = opcall_of(m, call);
  int want = 0;
  for (int i = 0; i < call->nargs; i++) want += width_of(call->arg[i]->type);
  if (n != want) BUG(m->ctx, "%s: %d tensors for %d inputs", op->name, n, want);
  if (op->compute) op->compute(&c, in, out);
  else if (op->decompose) compute_decomposed(m, call, in, out);
  else if (op->tir) compute_tir(m, call, &c, n, in, out);
  else opdef_raise(&c, ERR_UNSUPPORTED, "it works on values, not on tensors: no kernel can hold it");
}

/* A variable stands for a tensor of its own type. */
static void check_stands_for(Module *m, const Node *var, const Tensor *t)
{
  const Type *ty = var->type;
  const Buffer *b = t->buffer;
  bool fits = var->kind == N_VAR && ty && ty->kind == TY_TENSOR && ty->ndim == b->ndim &&
              dtype_eq(dtype_in_kernel(ty->dtype), b->dtype);
  for (int i = 0; fits && i < b->ndim; i++) fits = ty->shape[i] == b->shape[i];
  if (!fits)
    raise(m->ctx, ERR_TYPE, NOWHERE, "the tensor '%s' is to stand for a node that is no variable of its type", b->name);
}

int graph_compute(Module *m, int n, const Node *const *var, const Tensor *const *in, const Node *body,
                  const Tensor ***out)
{
  Follow f = {.m = m, .arena = m->arena, .fn = tensors_of_node, .env = (void *)(uintptr_t)"a compute"};
  for (int i = 0; i < n; i++) {
    check_stands_for(m, var[i], in[i]);
    map_put(f.arena, &f.done, var[i], (void *)(uintptr_t)(in + i));
  }
  const Node **node;
  int count = graph_post_order(f.arena, body, &node);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < (node[i]->type ? width_of(node[i]->type) : 1); k++) {
      const Type *ty = node[i]->type ? field_of(node[i]->type, k) : NULL;
      if (!ty || ty->kind != TY_TENSOR || ty->ndim < 0)
        raise(m->ctx, ERR_TYPE, NOWHERE, "a compute is made of an expression over tensors, whose ranks are known");
    }
  *out = follow(&f, body);
  return width_of(body->type);
}

/* ---- values -------------------------------------------------------------------------------- */

static void evaluate_call(Module *, Arena *, const Node *call, int n, const ConstData *in, ConstData *out);

/* Sizes named in the arguments' types, bound by the values given. */
static void bind_sizes(EvalEnv *env, const Node *call, int n, const ConstData *in)
{
  int k = 0;
  for (int i = 0; i < call->nargs; i++)
    for (int j = 0; j < width_of(call->arg[i]->type) && k < n; j++, k++) {
      const Type *ty = field_of(call->arg[i]->type, j);
      for (int d = 0; ty->kind == TY_TENSOR && d < ty->ndim && d < in[k].ndim; d++)
        if (ty->shape[d]->kind == E_VAR)
          expr_eval_bind(env, ty->shape[d]->u.var, value_int(ty->shape[d]->dtype, in[k].shape[d]));
    }
}

/* The attributes with every dimension a literal. */
static const void *bound_attrs(Module *m, EvalEnv *env, const AttrsDef *def, const void *attrs)
{
  void *now = attrs_copy(m, def, attrs);
  for (int i = 0; def && i < def->n; i++) {
    if (def->field[i].kind != AT_DIMS) continue;
    AttrDims *dims = (AttrDims *)((char *)now + def->field[i].offset);
    const Expr **v = arena_array(m->arena, const Expr *, dims->n);
    for (int k = 0; k < dims->n; k++) {
      int64_t size = expr_eval(env, dims->v[k], 0).i;
      v[k] = expr_int(m, size > INT32_MAX || size < INT32_MIN ? DT_I64 : DT_I32, size);
    }
    dims->v = v;
  }
  return now;
}

/* The same call over constants, so that its type is static. */
static const Node *call_over(Module *m, Arena *arena, const Node *call, int n, const ConstData *in)
{
  const OpDef *op = call->u.call.op;
  EvalEnv env = {.m = m, .arena = arena};
  bind_sizes(&env, call, n, in);
  const Node **arg = arena_array(m->arena, const Node *, call->nargs);
  int k = 0;
  for (int i = 0; i < call->nargs; i++) {
    const Type *ty = call->arg[i]->type;
    const Node **field = arena_array(m->arena, const Node *, width_of(ty));
    for (int j = 0; j < width_of(ty); j++, k++) {
      if (k == n) BUG(m->ctx, "%s: %d values, more are needed", op->name, n);
      field[j] = node_const(m, &in[k]);
    }
    arg[i] = ty->kind == TY_TUPLE ? node_tuple(m, ty->nfield, field) : field[0];
  }
  const Node *now = node_call(m, op, call->nargs, arg, bound_attrs(m, &env, op->attrs, call->u.call.attrs), call->name);
  if (!op->decompose && !type_is_static(now->type))
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: %s has sizes that its arguments do not tell", op->name,
          type_text(scratch(m->ctx), now->type));
  return now;
}

/* Memory for a result of a static type. */
static ConstData new_value(Module *m, Arena *arena, const Type *ty)
{
  ConstData d = {.dtype = ty->dtype, .ndim = ty->ndim};
  if (ty->ndim > (int)(sizeof d.shape / sizeof *d.shape))
    raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "a value has at most %zu dimensions, not %d",
          sizeof d.shape / sizeof *d.shape, ty->ndim);
  for (int i = 0; i < ty->ndim; i++) {
    d.shape[i] = ty->shape[i]->u.i;
    if (d.shape[i] < 0) raise(m->ctx, ERR_SHAPE, NOWHERE, "%s: sizes do not fit", type_text(scratch(m->ctx), ty));
  }
  d.bytes = mem_size_mul(m->ctx, (size_t)type_elements(m->ctx, ty), (size_t)dtype_bytes(ty->dtype), "a value");
  d.data = arena_alloc(arena, d.bytes);
  return d;
}

static TirArg value_arg(const ConstData *d)
{
  return (TirArg){
    .data = (void *)(uintptr_t)d->data, .dtype = dtype_in_kernel(d->dtype), .ndim = d->ndim, .shape = d->shape};
}

static void evaluate_compute(Module *m, Arena *arena, const Node *call, int n, const ConstData *in, ConstData *out)
{
  int nout = opdef_num_outputs(call);
  int nargs = n;
  const Tensor **t = arena_array(arena, const Tensor *, n + nout);
  const Tensor **result = t + n;
  TeArg *arg = arena_array(arena, TeArg, n + nout);
  TirArg *value = arena_array(arena, TirArg, n + nout);
  for (int i = 0; i < n; i++) {
    const Type *ty = type_tensor_of(m, dtype_in_kernel(in[i].dtype), in[i].ndim, in[i].shape);
    t[i] = te_placeholder(m, arena_printf(arena, "p%d", i), ty->dtype, ty->ndim, ty->shape);
    arg[i].tensor = t[i];
    value[i] = value_arg(&in[i]);
  }
  opdef_compute(m, call, n, t, result);
  for (int i = 0; i < nout; i++) {
    out[i] = new_value(m, arena, field_of(call->type, i));
    bool listed = false;
    for (int k = 0; k < nargs; k++) listed = listed || arg[k].tensor == result[i];
    if (listed) continue;
    arg[nargs].tensor = result[i];
    value[nargs++] = value_arg(&out[i]);
  }
  if (nargs > n) te_evaluate(m->ctx, nargs, arg, value);
  for (int i = 0; i < nout; i++) /* an output that is an input, or another output */
    for (int k = 0; k < nargs; k++)
      if (arg[k].tensor == result[i] && value[k].data != out[i].data)
        memcpy((void *)(uintptr_t)out[i].data, value[k].data, out[i].bytes);
}

static void evaluate_tir(Module *m, Arena *arena, const Node *call, int n, const ConstData *in, ConstData *out)
{
  OpCall c = opcall_of(m, call);
  const PrimFunc *f = call->u.call.op->tir(&c, m);
  check_tir(m, call, f, n);
  TirArg *value = arena_array(arena, TirArg, f->nparam);
  for (int i = 0; i < n; i++) value[i] = value_arg(&in[i]);
  for (int i = n; i < f->nparam; i++) {
    out[i - n] = new_value(m, arena, field_of(call->type, i - n));
    value[i] = value_arg(&out[i - n]);
  }
  func_interpret(f, f->nparam, value);
}

static ConstData *gather_values(Follow *f, const Node *n, int *count)
{
  int total = 0;
  int k = 0;
  for (int i = 0; i < n->nargs; i++) total += width_of(n->arg[i]->type);
  ConstData *all = arena_array(f->arena, ConstData, total);
  for (int i = 0; i < n->nargs; i++) {
    const ConstData *have = map_get(&f->done, n->arg[i]);
    for (int j = 0; j < width_of(n->arg[i]->type); j++) all[k++] = have[j];
  }
  *count = total;
  return all;
}

static void *values_of_node(Follow *f, const Node *n)
{
  int count;
  switch (n->kind) {
  case N_CONST: return arena_copy(f->arena, n->u.data, sizeof *n->u.data);
  case N_CALL: {
    ConstData *in = gather_values(f, n, &count);
    ConstData *out = arena_array(f->arena, ConstData, opdef_num_outputs(n));
    evaluate_call(f->m, f->arena, n, count, in, out);
    return out;
  }
  case N_TUPLE: return gather_values(f, n, &count);
  case N_GET: return (ConstData *)map_get(&f->done, n->arg[0]) + n->u.index;
  case N_VAR:
  case N_APPLY:
  case N_LET:
  case N_IF:
  case N_FUNC:
  case N_GLOBAL:
  case N_CTOR:
  case N_MATCH:
  case N_CALL_TIR:
  case N_OP: refuse_node(f->m, n, f->env);
  }
  BUG(f->m->ctx, "a node of kind %d", n->kind);
}

static void evaluate_decomposed(Module *m, Arena *arena, const Node *call, ConstData *out)
{
  Follow f = {.m = m, .arena = arena, .fn = values_of_node, .env = (void *)(uintptr_t)call->u.call.op->name};
  const Node *body = call->u.call.op->decompose(m, call);
  const ConstData *have = follow(&f, body);
  for (int i = 0; i < width_of(body->type); i++) out[i] = have[i];
}

static void evaluate_call(Module *m, Arena *arena, const Node *call, int n, const ConstData *in, ConstData *out)
{
  const OpDef *op = call->u.call.op;
  const Node *now = call_over(m, arena, call, n, in);
  if (op->compute) evaluate_compute(m, arena, now, n, in, out);
  else if (op->tir) evaluate_tir(m, arena, now, n, in, out);
  else if (op->decompose) evaluate_decomposed(m, arena, now, out);
  else raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: it works on values that are no tensors", op->name);
}

typedef struct Evaluation {
  Module *m;
  const Node *call;
  int n;
  const ConstData *in;
  ConstData *out;
} Evaluation;

static void evaluate_protected(Ctx *ctx, void *arg)
{
  (void)ctx;
  Evaluation *e = arg;
  evaluate_call(e->m, e->m->arena, e->call, e->n, e->in, e->out);
}

void opdef_evaluate(Module *m, Arena *arena, const Node *call, int n, const ConstData *in, ConstData *out)
{
  Evaluation e = {module_new(m->ctx), call, n, in, out};
  ErrKind failed = protect(m->ctx, evaluate_protected, &e);
  for (int i = 0; !failed && i < opdef_num_outputs(call); i++)
    out[i].data = arena_copy(arena, out[i].data, out[i].bytes);
  module_release(e.m);
  if (failed) error_reraise(m->ctx);
}
