/* values.c: integers (and floats) that the compiler can follow.
 *
 * Comes in: a node that gives a tensor of few elements.  Goes out: each element as an
 * expression over literals, sizes, and variables that stand for elements of tensors known
 * only at run time.  A call is followed by its meaning: its compute is built over
 * placeholders, axes become literals, loads become the arguments' elements, small
 * reductions are unrolled, and the rest is simplified.
 *
 * Arguments are asked for only when their elements are read; when those are not there
 * yet, the attempt ends, the argument is worked out first and the call tried again.
 * So chains of any length need no deep stack.
 *
 * Integers come out as dimensions are: int32 where they fit, casts between int32 and
 * int64 left out (sizes do not overflow).  Floats narrower than 32 bits are followed as literals
 * only: the executor, which evaluates the expressions at run time, does not have them. */
#include "graph/state.h"

#define MAX_UNROLL 256 /* steps of one reduction */
#define MAX_WORK 4096  /* expression nodes looked at for one element */
#define MAX_SIZE 96    /* nodes of one element's expression; above: a variable */
#define MAX_DEPTH 64   /* of an expression through inlined tensors */

typedef struct NodeValues {
  int n;
  const Expr **v;
} NodeValues;
typedef struct ValueSource {
  const Node *node;
  int element;
} ValueSource;

bool graph_value_source(Module *m, const Var *v, const Node **node, int *element)
{
  const ValueSource *s = m->graph ? map_get(&m->graph->sources, v) : NULL;
  if (!s) return false;
  *node = s->node;
  *element = s->element;
  return true;
}

void graph_bind_let(Module *m, const Node *var, const Node *value)
{
  map_put(m->arena, &graph_state(m)->bound, var, (void *)(uintptr_t)value);
}

/* Number of elements of a small static tensor of numbers, or -1. */
static int count_elements(const Type *ty)
{
  int64_t n = 1;
  if (!ty || ty->kind != TY_TENSOR || ty->ndim < 0 || !(dtype_is_int(ty->dtype) || dtype_is_float(ty->dtype)))
    return -1;
  for (int i = 0; i < ty->ndim; i++)
    if (ty->shape[i]->kind != E_INT || !int_mul(n, ty->shape[i]->u.i, &n) || n > GRAPH_MAX_VALUES) return -1;
  return (int)n;
}

/* ---- dimensions' form ----------------------------------------------------------------- */

static bool is_index(DType t) { return t.code == DT_INT && t.lanes == 1 && (t.bits == 32 || t.bits == 64); }

static const Expr *narrow(Rewriter *rw, const Expr *e)
{
  if (e->kind == E_INT && is_index(e->dtype) && e->u.i >= INT32_MIN && e->u.i <= INT32_MAX)
    return expr_i32(rw->m, e->u.i);
  if (e->kind == E_CAST && is_index(e->dtype) && is_index(e->arg[0]->dtype)) return e->arg[0];
  return e;
}

static const Expr *as_dimension(Module *m, const Expr *e)
{
  if (!is_index(e->dtype) || expr_has_kind(e, E_CALL)) return e; /* an intrinsic's arguments keep their dtype */
  Scope s = scope_begin(m->ctx);
  Rewriter rw = {.m = m, .fn = narrow, .arena = scratch(m->ctx)};
  const Expr *now = expr_rewrite(&rw, e);
  scope_end(m->ctx, s);
  return now;
}

/* ---- following one call ------------------------------------------------------------------ */

typedef struct Follow {
  Module *m;
  Arena *arena;
  Analyzer *simplifier;
  Map placeholder; /* Tensor* -> argument Node* */
  int work, depth;
  bool failed;
  const Node *needed; /* the argument whose elements are wanted first */
} Follow;

static const Expr *follow_expr(Follow *, const Expr *, const Map *vars);

static const Expr *fail(Follow *f, const Expr *e)
{
  f->failed = true;
  return e;
}

static const NodeValues *known_values(Module *m, const Node *n)
{
  return m->graph ? map_get(&m->graph->values, n) : NULL;
}

/* Row-major place of an index, or -1. */
static int64_t flat_index(const Buffer *b, int n, const Expr *const *index)
{
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    if (index[i]->kind != E_INT || b->shape[i]->kind != E_INT || index[i]->u.i < 0 || index[i]->u.i >= b->shape[i]->u.i)
      return -1;
    at = at * b->shape[i]->u.i + index[i]->u.i;
  }
  return at;
}

static const Expr *follow_load(Follow *f, const Expr *e, const Map *vars)
{
  const Expr **index = arena_array(f->arena, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) {
    index[i] = follow_expr(f, e->arg[i], vars);
    if (f->failed) return e;
  }
  const Tensor *t = te_tensor_of(e->u.buffer);
  if (!t) return fail(f, e);
  if (t->op->kind == TE_COMPUTE) {
    Map inner = {0};
    for (int i = 0; i < t->op->naxis; i++) map_put(f->arena, &inner, t->op->axis[i]->var, (void *)(uintptr_t)index[i]);
    return follow_expr(f, t->op->body[t->index], &inner);
  }
  const Node *arg = t->op->kind == TE_PLACEHOLDER ? map_get(&f->placeholder, t) : NULL;
  int64_t at = arg ? flat_index(e->u.buffer, e->nargs, index) : -1;
  if (at < 0 || count_elements(arg->type) < 0) return fail(f, e);
  const NodeValues *values = known_values(f->m, arg);
  if (!values) {
    f->needed = arg;
    return fail(f, e);
  }
  if (dtype_is_float(arg->type->dtype) && arg->type->dtype.bits < 32 && !expr_is_const(values->v[at]))
    return fail(f, e);
  return expr_simplify(f->simplifier, expr_cast(f->m, e->dtype, values->v[at]));
}

/* Unrolls: the reducer's result over each step, the condition deciding which count. */
static const Expr *follow_reduce(Follow *f, const Expr *e, const Map *vars)
{
  const Reduce *r = e->u.reduce;
  int n = r->reducer->n;
  int64_t steps = 1;
  for (int i = 0; i < r->naxis; i++) {
    const Expr *extent = follow_expr(f, r->axis[i]->extent, vars);
    if (f->failed || extent->kind != E_INT || !expr_is_int(r->axis[i]->min, 0) ||
        !int_mul(steps, extent->u.i, &steps) || steps > MAX_UNROLL)
      return fail(f, e);
  }
  const Expr **sum = arena_array(f->arena, const Expr *, n);
  for (int v = 0; v < n; v++) sum[v] = r->has_init ? follow_expr(f, e->arg[n + 1 + v], vars) : r->reducer->identity[v];
  for (int64_t step = 0; step < steps && !f->failed; step++) {
    Map at = {0};
    for (int i = 0; vars && i < vars->n; i++)
      map_put(f->arena, &at, (const void *)(uintptr_t)vars->key[i], vars->val[i]);
    int64_t rest = step;
    for (int i = r->naxis - 1; i >= 0; i--) {
      int64_t extent = follow_expr(f, r->axis[i]->extent, vars)->u.i;
      map_put(f->arena, &at, r->axis[i]->var, (void *)(uintptr_t)expr_int(f->m, r->axis[i]->var->dtype, rest % extent));
      rest /= extent;
    }
    const Expr *cond = follow_expr(f, e->arg[n], &at);
    if (f->failed || cond->kind != E_INT) return fail(f, e);
    if (!cond->u.i) continue;
    Map both = {0};
    for (int v = 0; v < n; v++) {
      map_put(f->arena, &both, r->reducer->lhs[v], (void *)(uintptr_t)sum[v]);
      map_put(f->arena, &both, r->reducer->rhs[v], (void *)(uintptr_t)follow_expr(f, e->arg[v], &at));
    }
    for (int v = 0; v < n && !f->failed; v++) {
      sum[v] = expr_simplify(f->simplifier, expr_substitute(f->m, r->reducer->result[v], &both));
      /* choices that stay open (the largest of unknown floats) nest: each step would double the work */
      if (expr_has_kind(r->reducer->result[v], E_SELECT) && !expr_is_const(sum[v])) return fail(f, e);
    }
  }
  return sum[r->value_index];
}

/* select and if_then_else: only the branch taken is followed, once the condition is known. */
static const Expr *follow_choice(Follow *f, const Expr *e, const Map *vars)
{
  const Expr *cond = follow_expr(f, e->arg[0], vars);
  if (f->failed) return e;
  if (cond->kind == E_INT) return follow_expr(f, e->arg[cond->u.i ? 1 : 2], vars);
  const Expr *then = follow_expr(f, e->arg[1], vars);
  const Expr *orelse = follow_expr(f, e->arg[2], vars);
  return f->failed ? e : expr_select(f->m, cond, then, orelse);
}

static const Expr *follow_args(Follow *f, const Expr *e, const Map *vars)
{
  const Expr **arg = arena_array(f->arena, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) {
    arg[i] = follow_expr(f, e->arg[i], vars);
    if (f->failed) return e;
    bool decided =
        (e->kind == E_AND || e->kind == E_OR) && arg[i]->kind == E_INT && (arg[i]->u.i != 0) == (e->kind == E_OR);
    if (decided) return arg[i];
  }
  return expr_simplify(f->simplifier, expr_with_args(f->m, e, arg));
}

static const Expr *follow_kind(Follow *f, const Expr *e, const Map *vars)
{
  switch ((ExprKind)e->kind) {
  case E_INT:
  case E_FLOAT:
  case E_STR: return e;
  case E_VAR: {
    const Expr *value = vars ? map_get(vars, e->u.var) : NULL;
    return value ? expr_simplify(f->simplifier, expr_cast(f->m, e->dtype, value)) : e;
  }
  case E_LOAD: return follow_load(f, e, vars);
  case E_REDUCE: return follow_reduce(f, e, vars);
  case E_SELECT: return follow_choice(f, e, vars);
  case E_CALL:
    if (e->u.intrin == IN_IF_THEN_ELSE) return follow_choice(f, e, vars);
    return expr_is_pure(e) ? follow_args(f, e, vars) : fail(f, e);
  case E_LET:
  case E_RAMP:
  case E_BROADCAST: return fail(f, e);
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_CAST: return follow_args(f, e, vars);
  case E_NKINDS: break;
  }
  return fail(f, e);
}

static const Expr *follow_expr(Follow *f, const Expr *e, const Map *vars)
{
  if (f->failed || ++f->work > MAX_WORK || f->depth == MAX_DEPTH) return fail(f, e);
  f->depth++;
  const Expr *now = follow_kind(f, e, vars);
  f->depth--;
  return now;
}

/* ---- from a node to its elements ----------------------------------------------------------- */

static void count_node(void *env, const Expr *e)
{
  (void)e;
  ++*(int *)env;
}

static const Expr *element_variable(Module *m, const Node *n, int element)
{
  const Var *v = var_new(m, VALUE_NAME, n->type->dtype, VAR_PLAIN);
  ValueSource *source = arena_new_of(m->arena, ValueSource);
  *source = (ValueSource){n, element};
  map_put(m->arena, &graph_state(m)->sources, v, source);
  return v->expr;
}

typedef Vec(const Tensor *) TensorList;

/* One placeholder per tensor of an argument; false where its type gives none. */
static bool add_placeholder(Follow *f, const Node *arg, TensorList *in)
{
  const Type *ty = arg->type;
  if (arg->kind == N_TUPLE) {
    for (int i = 0; i < arg->nargs; i++)
      if (!add_placeholder(f, arg->arg[i], in)) return false;
    return true;
  }
  if (!ty || ty->kind != TY_TENSOR || ty->ndim < 0) return false;
  const Tensor *t = te_placeholder(f->m, "p", ty->dtype, ty->ndim, ty->shape);
  map_put(f->arena, &f->placeholder, t, (void *)(uintptr_t)arg);
  vec_push(f->arena, in, t);
  return true;
}

static void literals(Module *m, const Node *n, NodeValues *out)
{
  const ConstData *data = n->u.data;
  size_t size = (size_t)dtype_bytes(data->dtype);
  for (int i = 0; i < out->n; i++)
    out->v[i] = as_dimension(m, expr_value(m, value_load(data->dtype, (const char *)data->data + (size_t)i * size)));
}

/* One attempt at a call: out is filled, or needed says what must be known first, or neither. */
typedef struct Attempt {
  Module *m;
  const Node *call;
  int output;
  NodeValues *out;
  const Node *needed;
  bool done;
} Attempt;

static bool build_compute(Follow *f, const Node *call, int output, const Tensor **out)
{
  const OpDef *op = call->u.call.op;
  TensorList in = {0};
  const Type **types = arena_array(f->arena, const Type *, call->nargs);
  for (int i = 0; i < call->nargs; i++) {
    types[i] = call->arg[i]->type;
    if (!add_placeholder(f, call->arg[i], &in)) return false;
  }
  int nout = call->type->kind == TY_TUPLE ? call->type->nfield : 1;
  const Tensor **tensor = arena_array(f->arena, const Tensor *, nout);
  OpCall c = {.m = f->m,
              .op = op,
              .attrs = call->u.call.attrs,
              .nargs = call->nargs,
              .arg = types,
              .node = call->arg,
              .out = call->type,
              .name = call->name};
  op->compute(&c, in.v, tensor);
  *out = tensor[output];
  return true;
}

static void attempt_body(Ctx *ctx, void *arg)
{
  Attempt *a = arg;
  Scope s = scope_begin(ctx);
  Follow f = {.m = a->m, .arena = scratch(ctx), .simplifier = analyzer_new(a->m, scratch(ctx))};
  const Tensor *t;
  bool built = build_compute(&f, a->call, a->output, &t);
  for (int i = 0; built && i < a->out->n && !f.failed; i++) {
    Map at = {0};
    int64_t rest = i;
    const Type *ty = a->call->type->kind == TY_TUPLE ? a->call->type->field[a->output] : a->call->type;
    const Expr **index = arena_array(f.arena, const Expr *, ty->ndim);
    for (int k = ty->ndim - 1; k >= 0; k--) {
      index[k] = expr_i32(a->m, rest % ty->shape[k]->u.i);
      rest /= ty->shape[k]->u.i;
    }
    f.work = 0;
    const Expr *e = follow_expr(&f, te_read(a->m, t, ty->ndim, index), &at);
    int size = 0;
    if (!f.failed) expr_visit(ctx, e = expr_simplify(f.simplifier, as_dimension(a->m, e)), count_node, &size);
    if (size > MAX_SIZE) f.failed = true;
    a->out->v[i] = e;
  }
  a->done = built && !f.failed;
  a->needed = f.needed;
  scope_end(ctx, s);
}

/* A compute that refuses these shapes leaves the elements unknown; what is no matter of
 * the graph (memory, a user's interrupt, a bug) is raised on. */
static bool attempt(Ctx *ctx, void (*body)(Ctx *, void *), void *arg)
{
  ErrKind kind = protect(ctx, body, arg);
  if (error_passes_on(kind)) error_reraise(ctx);
  if (kind) error_clear(ctx);
  return kind == ERR_NONE;
}

/* The elements of a decomposed call may speak only of tensors that the graph has. */
static bool older_than(Module *m, const Expr *e, uint32_t id)
{
  const Var **vars;
  int n = expr_free_vars(scratch(m->ctx), e, &vars);
  int element;
  const Node *source;
  for (int i = 0; i < n; i++)
    if (graph_value_source(m, vars[i], &source, &element) && source->id > id) return false;
  return true;
}

static void take_over(Attempt *a, const Node *same, uint32_t id)
{
  const NodeValues *values = known_values(a->m, same);
  a->needed = values || count_elements(same->type) != a->out->n ? NULL : same;
  a->done = values && values->n == a->out->n;
  for (int i = 0; a->done && i < a->out->n; i++) a->done = older_than(a->m, a->out->v[i] = values->v[i], id);
}

/* The call in other words: a function's body over the arguments, an operator's decomposition;
 * NULL if there are none. */
static const Node *other_words(Module *m, const Node *call)
{
  if (call->kind == N_CALL) return call->u.call.op->decompose ? call->u.call.op->decompose(m, call) : NULL;
  const Node *f = call->arg[0];
  if (call->kind != N_APPLY || f->kind != N_FUNC) return NULL;
  Map args = {0};
  for (int i = 0; i < fn_nparams(f); i++)
    map_put(scratch(m->ctx), &args, f->arg[i], (void *)(uintptr_t)call->arg[i + 1]);
  return graph_substitute(m, fn_body(f), &args);
}

typedef struct Words {
  Module *m;
  const Node *call, *out;
  int field; /* -1: the whole */
} Words;

static void words_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Words *w = arg;
  w->out = other_words(w->m, w->call);
  if (w->out && w->field >= 0) w->out = node_get(w->m, w->out, w->field);
}

/* decomposed: Node* of a call -> the call in other words, made once. */
static void work_out(Attempt *a, const Node *n, Arena *arena, Map *decomposed)
{
  Module *m = a->m;
  if (n->kind == N_CONST) {
    literals(m, n, a->out);
    a->done = true;
    return;
  }
  const Node *bound = n->kind == N_VAR ? map_get(&graph_state(m)->bound, n) : NULL;
  if (bound) {
    take_over(a, bound, UINT32_MAX);
    /* passes may put another value behind the variable: what that computes is told by the variable */
    for (int i = 0; a->done && i < a->out->n; i++)
      if (!type_dim_is_stable(a->out->v[i])) a->out->v[i] = element_variable(m, n, i);
    return;
  }
  const Node *call = n->kind == N_GET ? n->arg[0] : n;
  const OpDef *op = call->kind == N_CALL ? call->u.call.op : NULL;
  if (n == call && op && op->flags & OPF_PLACE) {
    take_over(a, call->arg[0], UINT32_MAX);
    return;
  }
  if ((!op && call->kind != N_APPLY) || (op && op->flags & (OPF_IMPURE | OPF_HOST))) return;
  a->call = call;
  a->output = n->kind == N_GET ? n->u.index : 0;
  if (op && op->compute) {
    if (!attempt(m->ctx, attempt_body, a)) a->needed = NULL, a->done = false;
    return;
  }
  const Node *same = map_get(decomposed, n);
  if (!same) {
    Words w = {.m = m, .call = call, .field = n->kind == N_GET ? n->u.index : -1};
    same = attempt(m->ctx, words_body, &w) ? w.out : NULL;
    if (same) map_put(arena, decomposed, n, (void *)(uintptr_t)same);
  }
  if (same) take_over(a, same, call->id);
}

const Expr *const *graph_values(Module *m, const Node *root, int *count)
{
  if (count_elements(root->type) < 0) return NULL;
  Scope s = scope_begin(m->ctx);
  Arena *arena = scratch(m->ctx);
  NodeList stack = {0};
  Map decomposed = {0};
  Map open = {0};
  if (!known_values(m, root)) vec_push(arena, &stack, root);
  while (stack.n) {
    const Node *n = stack.v[stack.n - 1];
    NodeValues *out = arena_new_of(m->arena, NodeValues);
    out->n = count_elements(n->type);
    out->v = arena_array(m->arena, const Expr *, out->n);
    Attempt a = {.m = m, .out = out};
    work_out(&a, n, arena, &decomposed);
    map_put(arena, &open, n, (void *)(uintptr_t)n);
    if (a.needed && !a.done && !map_has(&open, a.needed)) {
      vec_push(arena, &stack, a.needed);
      continue;
    }
    for (int i = 0; i < out->n && !a.done; i++) out->v[i] = element_variable(m, n, i);
    map_put(m->arena, &graph_state(m)->values, n, out);
    stack.n--;
  }
  scope_end(m->ctx, s);
  const NodeValues *values = known_values(m, root);
  *count = values->n;
  return values->v;
}
