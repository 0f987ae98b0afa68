/* emit_call.c: calls of graph functions, and functions as values.
 *
 * A function that is known when the model is compiled (by name, or through lets) is called
 * directly: what it captures, then its arguments, tuples spread out over registers.
 *
 * Where a function is a value, nobody knows its callers.  Such a call hands over one register
 * for each argument and takes one for the result; a tuple travels as one value.  A function
 * whose parameters or result are tuples has a second one in front of it that takes them
 * apart.  The value itself is a CLOSURE: that function and what it captures. */
#include "driver/emit.h"

static bool is_primitive_func(const Node *n)
{
  return n->kind == N_FUNC && (annots_get(&n->u.func->attrs, "Primitive") || program_is_external(n));
}

/* ---- what is called ---------------------------------------------------------------------- */

/* The function, global or constructor that a variable is bound to by lets alone; NULL: it is
 * known at run time. */
static const Node *known_function(Emit *e, const Node *n)
{
  for (const Node *bound; n->kind == N_VAR && (bound = map_get(e->let, n));) n = bound;
  return n->kind == N_FUNC || n->kind == N_GLOBAL || n->kind == N_CTOR ? n : NULL;
}

static const Node *global_function(Emit *e, const Node *n)
{
  Global *g = module_get(e->m, n->u.global);
  if (!g || g->kind != GLOBAL_GRAPH)
    raise(e->ctx, ERR_ARGUMENT, NOWHERE, "the module has no graph function @%s", n->u.global);
  return g->func;
}

Called emit_called(Emit *e, const Node *callee)
{
  if (is_primitive_func(callee) && !program_is_external(callee)) return (Called){CALLED_PRIMITIVE, callee};
  const Node *known = known_function(e, callee);
  if (!known) return (Called){CALLED_VALUE, callee};
  if (known->kind == N_CTOR) return (Called){CALLED_CTOR, known};
  const Node *func = known->kind == N_GLOBAL ? global_function(e, known) : known;
  return (Called){program_is_external(func) ? CALLED_EXTERNAL : CALLED_FUNC, func};
}

/* ---- what a function captures ---------------------------------------------------------------- */

typedef struct Captures {
  Emit *e;
  Nodes funcs; /* the function and the local ones it names */
  Nodes out;
  Map seen;
} Captures;

/* Variables of the surroundings that func uses, through the local functions it names too. */
static void add_variables(Captures *c, const Node *func)
{
  Emit *e = c->e;
  vec_push(e->arena, &c->funcs, func);
  map_put(e->arena, &c->seen, func, (void *)(uintptr_t)func);
  for (int k = 0; k < c->funcs.n; k++) {
    const Node **free;
    int n = graph_free_vars(e->arena, c->funcs.v[k], &free);
    for (int i = 0; i < n; i++) {
      const Node *known = known_function(e, free[i]);
      const Node *what = known ? known : free[i];
      if (map_has(&c->seen, what)) continue;
      map_put(e->arena, &c->seen, what, (void *)(uintptr_t)what);
      if (!known) vec_push(e->p->arena, &c->out, what);
      else if (known->kind == N_FUNC) vec_push(e->arena, &c->funcs, known);
    }
  }
}

/* Adds the sizes that are dimensions of a variable to `told`. */
static void add_told(Emit *e, const Node *var, Map *told)
{
  int n;
  const Type **leaf = var->type ? type_leaves(e->arena, var->type, &n) : NULL;
  for (int i = 0; leaf && i < n; i++)
    for (int d = 0; leaf[i]->kind == TY_TENSOR && d < leaf[i]->ndim; d++)
      if (leaf[i]->shape[d]->kind == E_VAR) map_put(e->arena, told, leaf[i]->shape[d]->u.var, (void *)(uintptr_t)var);
}

static void add_pattern_told(Emit *e, const Pattern *p, Map *told)
{
  if (p->kind == PAT_VAR) add_told(e, p->var, told);
  for (int i = 0; i < p->n; i++) add_pattern_told(e, p->sub[i], told);
}

/* Sizes that the variables of a function tell: of its surroundings, parameters, patterns. */
static void add_told_in(Emit *e, const Callee *c, Map *told)
{
  const Node **node;
  int n = graph_post_order(e->arena, fn_body(c->func), &node);
  for (int i = 0; i < c->ncapture; i++) add_told(e, c->capture[i], told);
  for (int i = 0; i < c->nsize; i++) map_put(e->arena, told, c->size[i], (void *)(uintptr_t)c->size[i]);
  for (int i = 0; i < fn_nparams(c->func); i++) add_told(e, c->func->arg[i], told);
  for (int i = 0; i < n; i++)
    for (int k = 0; node[i]->kind == N_MATCH && k < node[i]->u.match.n; k++)
      add_pattern_told(e, node[i]->u.match.clause[k], told);
}

static void add_uses(Emit *e, const Type *ty, Map *used)
{
  for (int i = 0; i < ty->nfield; i++) add_uses(e, ty->field[i], used);
  for (int d = 0; ty->kind == TY_TENSOR && d < ty->ndim; d++) {
    const Var **var;
    int n = ty->shape[d]->kind == E_INT ? 0 : expr_free_vars(e->arena, ty->shape[d], &var);
    for (int i = 0; i < n; i++) map_put(e->arena, used, var[i], (void *)(uintptr_t)var[i]);
  }
}

/* Sizes of the surroundings of which the function speaks, and which its own variables do not tell. */
static void find_sizes(Captures *c, Callee *callee)
{
  Emit *e = c->e;
  Map told = {0};
  Map used = {0};
  Map outside = {0};
  Vec(const Var *) size = {0};
  for (int k = 0; k < c->funcs.n; k++) {
    const Node **node;
    int n = graph_post_order(e->arena, fn_body(c->funcs.v[k]), &node);
    for (int i = 0; i < n; i++)
      if (node[i]->type && node[i]->type->kind != TY_FUNC) add_uses(e, node[i]->type, &used);
  }
  for (int i = 0; i < fn_nparams(callee->func); i++) add_told(e, callee->func->arg[i], &told);
  for (int i = 0; i < c->out.n; i++) add_told(e, c->out.v[i], &told);
  add_told_in(e, e->callee, &outside);
  for (int i = 0; i < used.n; i++)
    if (!map_has(&told, used.val[i]) && map_has(&outside, used.val[i]))
      vec_push(e->p->arena, &size, (const Var *)used.val[i]);
  callee->nsize = size.n;
  callee->size = size.v;
}

/* ---- functions ------------------------------------------------------------------------------------ */

Callee *emit_add_callee(Program *p, Map *callees, const void *key, const Node *func, const char *name)
{
  Callee *c = arena_new_of(p->arena, Callee);
  ProgFunc *f = arena_new_of(p->arena, ProgFunc);
  f->name = name;
  *c = (Callee){.func = func, .index = p->func.n, .value = -1};
  vec_push(p->arena, &p->func, f);
  map_put(p->arena, callees, key, c);
  return c;
}

/* The name under which the module has the function; NULL: it is a local one. */
static const char *global_name(Emit *e, const Node *func)
{
  for (int i = 0; i < e->m->globals.n; i++)
    if (e->m->globals.v[i].func == func) return e->m->globals.v[i].name;
  return NULL;
}

/* A primitive function that is called by name, or a value: a function around a call of it. */
static const Node *around_primitive(Emit *e, const Node *func)
{
  int n = fn_nparams(func);
  const Node **param = arena_array(e->arena, const Node *, n + 1);
  for (int i = 0; i < n; i++) param[i] = node_var(e->m, func->arg[i]->name, func->arg[i]->type);
  return node_func(e->m, n, param, node_apply(e->m, func, n, param), NULL, NULL);
}

const Callee *emit_callee(Emit *e, const Node *func)
{
  Callee *c = map_get(e->callees, func);
  if (c) return c;
  const char *global = global_name(e, func);
  const char *name = global ? global : arena_printf(e->p->arena, "%s_fn%d", e->f->name, e->p->func.n);
  c = emit_add_callee(e->p, e->callees, func, is_primitive_func(func) ? around_primitive(e, func) : func, name);
  Captures captures = {.e = e};
  add_variables(&captures, func);
  if (!global) find_sizes(&captures, c);
  c->ncapture = captures.out.n;
  c->capture = captures.out.v;
  vec_push(e->p->arena, e->queue, c);
  return c;
}

/* The entry gives what the outputs were made from. */
const Type *emit_result_type(const Callee *c) { return c->entry ? fn_body(c->func)->type : c->func->type->ret; }

/* What the function is handed of its surroundings. */
static void add_surroundings(Emit *e, const Callee *c, IntList *arg)
{
  for (int i = 0; i < c->ncapture; i++) {
    const int *regs = emit_need(e, c->capture[i]);
    for (int k = 0; k < type_leaf_count(c->capture[i]->type); k++) vec_push(e->arena, arg, regs[k]);
  }
  for (int i = 0; i < c->nsize; i++) {
    ProgExpr *dim = arena_array(e->p->arena, ProgExpr, 2);
    dim[0] = emit_expr(e, c->size[i]->expr, arena_printf(e->arena, "function '%s'", e->p->func.v[c->index]->name));
    vec_push(e->p->arena, &dim[1], (ProgStep){.op = XO_INT, .i = 0});
    int reg = emit_reg(e, e->region);
    ProgIns *ins = emit_ins(e, MO_ALLOC);
    ins->reg = reg;
    ins->dtype = DT_BOOL;
    ins->nexpr = 2;
    ins->expr = dim;
    vec_push(e->arena, arg, reg);
  }
}

/* ---- functions as values ------------------------------------------------------------------------------ */

/* A function of its own, of straight-line code. */
static Emit begin_helper(Emit *e, const char *name)
{
  ProgFunc *f = arena_new_of(e->p->arena, ProgFunc);
  f->name = name;
  vec_push(e->p->arena, &e->p->func, f);
  Emit h = {.p = e->p, .ctx = e->ctx, .arena = e->arena, .m = e->m, .f = f};
  emit_region_new(&h, -1);
  return h;
}

static int parameter(Emit *h)
{
  h->f->nparam++;
  return emit_reg(h, 0);
}

static bool takes_single_values(const Callee *c)
{
  bool single = emit_result_type(c)->kind != TY_TUPLE;
  for (int i = 0; i < fn_nparams(c->func); i++) single = single && c->func->arg[i]->type->kind != TY_TUPLE;
  return single;
}

/* The function with one register for each argument, and for the result. */
static int value_function(Emit *e, Callee *c)
{
  if (c->value >= 0) return c->value;
  if (takes_single_values(c)) return c->value = c->index;
  c->value = e->p->func.n;
  Emit h = begin_helper(e, arena_printf(e->p->arena, "%s_value", e->p->func.v[c->index]->name));
  IntList arg = {0};
  IntList in = {0};
  for (int i = 0; i < c->ncapture; i++)
    for (int k = 0; k < type_leaf_count(c->capture[i]->type); k++) vec_push(e->arena, &arg, parameter(&h));
  for (int i = 0; i < c->nsize; i++) vec_push(e->arena, &arg, parameter(&h));
  for (int i = 0; i < fn_nparams(c->func); i++) vec_push(e->arena, &in, parameter(&h));
  for (int i = 0; i < in.n; i++) {
    const Type *ty = c->func->arg[i]->type;
    const int *leaf = emit_unbox(&h, in.v[i], ty);
    for (int k = 0; k < type_leaf_count(ty); k++) vec_push(e->arena, &arg, leaf[k]);
  }
  const Type *result = emit_result_type(c);
  int nret = type_leaf_count(result);
  int *ret = arena_array(e->p->arena, int, nret + 1);
  for (int i = 0; i < nret; i++) ret[i] = emit_reg(&h, 0);
  ProgIns *call = emit_ins(&h, MO_CALL);
  call->index = c->index;
  emit_set_args(&h, call, arg.n, arg.v);
  call->nret = nret;
  call->ret = ret;
  h.f->nret = 1;
  int whole = emit_box(&h, ret, result);
  emit_set_args(&h, emit_ins(&h, MO_RETURN), 1, &whole);
  return c->value;
}

static int constructor_function(Emit *e, const Ctor *ctor)
{
  Callee *c = map_get(e->callees, ctor);
  if (c) return c->index;
  c = arena_new_of(e->p->arena, Callee);
  c->index = e->p->func.n;
  map_put(e->p->arena, e->callees, ctor, c);
  Emit h = begin_helper(e, arena_printf(e->p->arena, "%s_value", ctor->name));
  int *arg = arena_array(e->arena, int, ctor->n + 1);
  for (int i = 0; i < ctor->n; i++) arg[i] = parameter(&h);
  int whole = emit_reg(&h, 0);
  ProgIns *ins = emit_ins(&h, MO_DATA);
  ins->reg = whole;
  ins->tag = ctor->tag;
  emit_set_args(&h, ins, ctor->n, arg);
  h.f->nret = 1;
  emit_set_args(&h, emit_ins(&h, MO_RETURN), 1, &whole);
  return c->index;
}

void emit_closure(Emit *e, const Node *n)
{
  IntList held = {0};
  int function;
  if (n->kind == N_CTOR) {
    function = constructor_function(e, n->u.ctor);
  } else {
    Callee *c = (Callee *)(uintptr_t)emit_callee(e, n->kind == N_GLOBAL ? global_function(e, n) : n);
    add_surroundings(e, c, &held);
    function = value_function(e, c);
  }
  int *reg = arena_array(e->arena, int, 1);
  *reg = emit_reg(e, e->region);
  ProgIns *ins = emit_ins(e, MO_CLOSURE);
  ins->reg = *reg;
  ins->index = function;
  emit_set_args(e, ins, held.n, held.v);
  emit_set_regs(e, n, reg);
}

/* ---- calls ------------------------------------------------------------------------------------------------ */

bool emit_can_tail(Emit *e, const Node *n)
{
  Called to = emit_called(e, n->arg[0]);
  if (to.kind == CALLED_VALUE) return e->result->kind != TY_TUPLE;
  return to.kind == CALLED_FUNC && emit_same_spread(emit_result_type(emit_callee(e, to.node)), e->result);
}

/* The registers of a call's result, as the callee gives it, become those of the call. */
static void take_result(Emit *e, const Node *n, ProgIns *ins, const Type *given)
{
  int count = type_leaf_count(given);
  int *ret = arena_array(e->p->arena, int, count + 1);
  for (int i = 0; i < count; i++) ret[i] = emit_reg(e, e->region);
  ins->nret = count;
  ins->ret = ret;
  emit_set_regs(e, n, emit_convert(e, ret, given, n->type));
  emit_bind_results(e, n);
}

static void call_function(Emit *e, const Node *n, const Callee *c, bool tail)
{
  IntList arg = {0};
  add_surroundings(e, c, &arg);
  for (int i = 1; i < n->nargs; i++) {
    const Type *as = c->func->arg[i - 1]->type;
    const int *regs = emit_convert(e, emit_need(e, n->arg[i]), n->arg[i]->type, as);
    for (int k = 0; k < type_leaf_count(as); k++) vec_push(e->arena, &arg, regs[k]);
  }
  ProgIns *ins = emit_ins(e, tail ? MO_TAIL : MO_CALL);
  ins->index = c->index;
  emit_set_args(e, ins, arg.n, arg.v);
  if (!tail) take_result(e, n, ins, emit_result_type(c));
}

static void call_value(Emit *e, const Node *n, bool tail)
{
  IntList arg = {0};
  int closure = emit_need(e, n->arg[0])[0];
  for (int i = 1; i < n->nargs; i++) vec_push(e->arena, &arg, emit_box(e, emit_need(e, n->arg[i]), n->arg[i]->type));
  int *ret = arena_array(e->p->arena, int, 1);
  if (!tail) *ret = emit_reg(e, e->region);
  ProgIns *ins = emit_ins(e, tail ? MO_APPLY_TAIL : MO_APPLY);
  ins->reg = closure;
  emit_set_args(e, ins, arg.n, arg.v);
  if (tail) return;
  ins->nret = 1;
  ins->ret = ret;
  emit_set_regs(e, n, emit_unbox(e, *ret, n->type));
  emit_bind_results(e, n);
}

void emit_call(Emit *e, const Node *n, bool tail)
{
  Called to = emit_called(e, n->arg[0]);
  if (to.kind == CALLED_CTOR) emit_construct(e, n, to.node->u.ctor);
  else if (to.kind == CALLED_VALUE) call_value(e, n, tail);
  else call_function(e, n, emit_callee(e, to.node), tail);
}
