/* group.c: a fused function becomes a scheduled loop program.
 *
 *   function → tensor expressions (each call by its operator's meaning, or by the compute of
 *   the implementation chosen for the anchor) → loop program → the implementation's schedule
 *
 * The tensor expressions are made in the module of the graph, so that sizes are the graph's
 * own variables; the loop program is made in a module of its own, scheduled, and imported
 * into the destination.  Where an implementation's schedule is refused, the generic one is
 * used on a fresh copy, and the result says so. */
#include "impl/internal.h"

typedef struct Lowering {
  Ctx *ctx;
  Module *dst, *src;
  const Node *func;
  const char *name;
  const Target *target;
  const ImplConfig *config;
  ImplResult *out;
  Arena *arena;
  Module *tmp;              /* of the unscheduled function */
  Map tensors;              /* Node* -> Tensors* */
  Vec(const Node *) consts; /* those that are parameters of the kernel */
  ImplGroup group;
} Lowering;

/* What a node computes: one tensor, or the fields of a tuple spread out. */
typedef struct Tensors {
  int n;
  const Tensor **v;
} Tensors;

static void release_module(void *m) { module_release(m); }
static void free_schedule(void *s) { sched_free(s); }
static void free_arena(void *a) { arena_free(a); }

/* ---- parameters and constants ---------------------------------------------------------------- */

static Tensors *new_tensors(Lowering *lo, const Node *n, int count)
{
  Tensors *t = arena_new_of(lo->arena, Tensors);
  t->n = count;
  t->v = arena_array(lo->arena, const Tensor *, count + 1);
  map_put(lo->arena, &lo->tensors, n, t);
  return t;
}

static void add_placeholders(Lowering *lo, const Node *var, int number)
{
  int n;
  const Type **leaf = type_leaves(lo->arena, type_in_kernel(lo->src, var->type), &n);
  Tensors *t = new_tensors(lo, var, n);
  for (int i = 0; i < n; i++) {
    if (leaf[i]->kind != TY_TENSOR || leaf[i]->ndim < 0)
      raise(lo->ctx, ERR_UNSUPPORTED, NOWHERE,
            "function '%s': parameter '%s' has type %s; a kernel takes tensors of known rank", lo->name,
            var->name ? var->name : "?", type_text(lo->arena, leaf[i]));
    const char *name = var->name && *var->name ? var->name : arena_printf(lo->src->arena, "p%d", number);
    if (n > 1) name = arena_printf(lo->src->arena, "%s_%d", name, i);
    t->v[i] = te_placeholder(lo->src, name, leaf[i]->dtype, leaf[i]->ndim, leaf[i]->shape);
  }
}

static const IterVar **fresh_axes(Module *m, int ndim, const Expr *const *shape)
{
  const IterVar **axis = arena_array(m->arena, const IterVar *, ndim + 1);
  for (int d = 0; d < ndim; d++)
    axis[d] = itervar_new(m, var_new(m, arena_printf(m->arena, "i%d", d), DT_I32, VAR_PLAIN), expr_i32(m, 0), shape[d],
                          ITER_SPATIAL, NULL);
  return axis;
}

/* A constant inside the group: as an expression of its index where that is small, else a parameter
 * of the kernel. */
static const Tensor *constant_tensor(Lowering *lo, const Node *n)
{
  Module *m = lo->src;
  const Tensor *t = graph_literal_tensor(m, n->u.data);
  if (t) return t;
  const char *name = arena_printf(m->arena, "c%d", lo->consts.n);
  vec_push(lo->arena, &lo->consts, n);
  return te_placeholder(m, name, dtype_in_kernel(n->u.data->dtype), n->type->ndim, n->type->shape);
}

/* ---- calls --------------------------------------------------------------------------------------- */

static OpCall call_of(Lowering *lo, const Node *n)
{
  const Type **arg = arena_array(lo->arena, const Type *, n->nargs + 1);
  for (int i = 0; i < n->nargs; i++) arg[i] = type_in_kernel(lo->src, n->arg[i]->type);
  return (OpCall){.m = lo->src,
                  .op = n->u.call.op,
                  .attrs = n->u.call.attrs,
                  .nargs = n->nargs,
                  .arg = arg,
                  .node = n->arg,
                  .out = type_in_kernel(lo->src, n->type),
                  .name = n->name};
}

static void lower_call(Lowering *lo, const Node *n)
{
  int nin = 0;
  int nout;
  for (int i = 0; i < n->nargs; i++) nin += ((Tensors *)map_get(&lo->tensors, n->arg[i]))->n;
  const Tensor **in = arena_array(lo->arena, const Tensor *, nin + 1);
  int k = 0;
  for (int i = 0; i < n->nargs; i++) {
    const Tensors *t = map_get(&lo->tensors, n->arg[i]);
    for (int j = 0; j < t->n; j++) in[k++] = t->v[j];
  }
  type_leaves(lo->arena, n->type, &nout);
  Tensors *out = new_tensors(lo, n, nout);
  ImplGroup *g = &lo->group;
  if (n == g->anchor && g->impl && g->impl->compute) {
    OpCall call = call_of(lo, n);
    g->impl->compute(&call, lo->target, g->plan, in, out->v);
  } else {
    opdef_compute(lo->src, n, nin, in, out->v);
  }
  if (n != g->anchor) return;
  /* The anchor's own operations: those behind its outputs that its inputs do not have. */
  Map before = {0};
  const TeOp **op;
  int nop = te_post_order(lo->arena, nin, in, &op);
  for (int i = 0; i < nop; i++) map_put(lo->arena, &before, op[i], NULL);
  nop = te_post_order(lo->arena, nout, (const Tensor *const *)out->v, &op);
  g->anchor_op = arena_array(lo->arena, const TeOp *, nop);
  for (int i = 0; i < nop; i++)
    if (!map_has(&before, op[i])) g->anchor_op[g->nanchor++] = op[i];
  g->anchor_out = out->v[0];
}

static void lower_node(Lowering *lo, const Node *n)
{
  switch (n->kind) {
  case N_VAR:
    if (!map_has(&lo->tensors, n))
      raise(lo->ctx, ERR_INTERNAL, NOWHERE, "function '%s' uses variable '%s', which is none of its parameters",
            lo->name, n->name ? n->name : "?");
    return;
  case N_CONST: new_tensors(lo, n, 1)->v[0] = constant_tensor(lo, n); return;
  case N_CALL: lower_call(lo, n); return;
  case N_TUPLE: {
    int count = 0;
    int k = 0;
    for (int i = 0; i < n->nargs; i++) count += ((Tensors *)map_get(&lo->tensors, n->arg[i]))->n;
    Tensors *t = new_tensors(lo, n, count);
    for (int i = 0; i < n->nargs; i++) {
      const Tensors *a = map_get(&lo->tensors, n->arg[i]);
      for (int j = 0; j < a->n; j++) t->v[k++] = a->v[j];
    }
    return;
  }
  case N_GET: {
    const Tensors *a = map_get(&lo->tensors, n->arg[0]);
    int first = 0;
    for (int i = 0; i < n->u.index; i++) first += type_leaf_count(n->arg[0]->type->field[i]);
    Tensors *t = new_tensors(lo, n, type_leaf_count(n->type));
    for (int i = 0; i < t->n; i++) t->v[i] = a->v[first + i];
    return;
  }
  case N_FUNC: return;
  case N_APPLY:
  case N_LET:
  case N_IF:
  case N_GLOBAL:
  case N_CTOR:
  case N_MATCH:
  case N_CALL_TIR:
  case N_OP: break;
  }
  raise(lo->ctx, ERR_UNSUPPORTED, NOWHERE,
        "function '%s': only operators, constants and tuples can be fused into a kernel", lo->name);
}

static bool has_implementations(const OpDef *op)
{
  for (int i = 0; i < impl_count(); i++)
    if (!strcmp(impl_at(i)->op, op->name)) return true;
  return false;
}

/* The call that decides the schedule: the heaviest kind, among equals the first that there are implementations of. */
static const Node *find_anchor(const Node *const *node, int n)
{
  const Node *best = NULL;
  for (int i = 0; i < n; i++) {
    if (node[i]->kind != N_CALL) continue;
    const OpDef *op = node[i]->u.call.op;
    bool heavier = !best || op->fuse > best->u.call.op->fuse;
    if (heavier ||
        (op->fuse == best->u.call.op->fuse && has_implementations(op) && !has_implementations(best->u.call.op)))
      best = node[i];
  }
  return best;
}

/* ---- arguments ------------------------------------------------------------------------------------ */

typedef struct Args {
  Vec(TeArg) arg;
  Map told; /* variables that a tensor's shape gives */
  Map scalar;
  Vec(const Var *) scalars;
} Args;

static void tell_shape(Arena *a, Args *args, const Buffer *b)
{
  for (int d = 0; d < b->ndim; d++)
    if (b->shape[d]->kind == E_VAR) map_put(a, &args->told, b->shape[d]->u.var, NULL);
}

static void need_vars(Arena *a, Args *args, const Expr *e)
{
  const Var **v;
  int n = expr_free_vars(a, e, &v);
  for (int i = 0; i < n; i++) {
    if (v[i]->axis || map_has(&args->told, v[i]) || map_has(&args->scalar, v[i]) || v[i]->dtype.code == DT_HANDLE)
      continue;
    map_put(a, &args->scalar, v[i], NULL);
    vec_push(a, &args->scalars, v[i]);
  }
}

static void need_op(Arena *a, Args *args, const TeOp *op)
{
  for (int i = 0; i < op->nout; i++) {
    for (int d = 0; d < op->out[i].buffer->ndim; d++) need_vars(a, args, op->out[i].buffer->shape[d]);
    if (op->kind == TE_COMPUTE) need_vars(a, args, op->body[i]);
  }
  for (int i = 0; i < op->nreduce; i++) {
    need_vars(a, args, op->reduce_axis[i]->min);
    need_vars(a, args, op->reduce_axis[i]->extent);
  }
}

/* An output of its own for a tensor that is a parameter or another output already. */
static const Tensor *copy_of(Lowering *lo, const Tensor *t)
{
  Module *m = lo->src;
  const IterVar **axis = fresh_axes(m, t->buffer->ndim, t->buffer->shape);
  const Expr **index = arena_array(m->arena, const Expr *, t->buffer->ndim + 1);
  for (int d = 0; d < t->buffer->ndim; d++) index[d] = var_expr(axis[d]->var);
  const Expr *value = te_read(m, t, t->buffer->ndim, index);
  const TeOp *op = te_compute(m, arena_printf(m->arena, "%s_copy", t->buffer->name), "injective", t->buffer->ndim,
                              t->buffer->shape, axis, 1, &value, NULL);
  return &op->out[0];
}

static void collect_args(Lowering *lo, Args *args)
{
  Map seen = {0};
  for (int i = 0; i < fn_nparams(lo->func); i++) {
    const Tensors *t = map_get(&lo->tensors, lo->func->arg[i]);
    for (int j = 0; j < t->n; j++) {
      vec_push(lo->arena, &args->arg, (TeArg){.tensor = t->v[j]});
      map_put(lo->arena, &seen, t->v[j], NULL);
      tell_shape(lo->arena, args, t->v[j]->buffer);
    }
  }
  for (int i = 0; i < lo->consts.n; i++) {
    const Tensor *t = ((Tensors *)map_get(&lo->tensors, lo->consts.v[i]))->v[0];
    vec_push(lo->arena, &args->arg, (TeArg){.tensor = t});
    map_put(lo->arena, &seen, t, NULL);
  }
  const Tensors *body = map_get(&lo->tensors, fn_body(lo->func));
  const Tensor **out = arena_array(lo->arena, const Tensor *, body->n + 1);
  for (int i = 0; i < body->n; i++) {
    out[i] = map_has(&seen, body->v[i]) ? copy_of(lo, body->v[i]) : body->v[i];
    map_put(lo->arena, &seen, out[i], NULL);
    vec_push(lo->arena, &args->arg, (TeArg){.tensor = out[i]});
    tell_shape(lo->arena, args, out[i]->buffer);
  }
  const TeOp **op;
  int nop = te_post_order(lo->arena, body->n, out, &op);
  for (int i = 0; i < nop; i++) need_op(lo->arena, args, op[i]);
  for (int i = 0; i < args->arg.n; i++)
    for (int d = 0; d < args->arg.v[i].tensor->buffer->ndim; d++)
      need_vars(lo->arena, args, args->arg.v[i].tensor->buffer->shape[d]);
  for (int i = 0; i < args->scalars.n; i++) vec_push(lo->arena, &args->arg, (TeArg){.var = args->scalars.v[i]});
}

/* ---- operators that are loop programs ---------------------------------------------------------------- */

typedef struct FreeVars {
  Arena *arena;
  Args *args;
  Map bound;
} FreeVars;

static bool note_bound(void *env, Stmt *s)
{
  FreeVars *f = env;
  if (s->kind == S_FOR) map_put(f->arena, &f->bound, s->u.loop.var, NULL);
  if (s->kind == S_LET) map_put(f->arena, &f->bound, s->u.let.var, NULL);
  if (s->kind == S_BLOCK)
    for (int i = 0; i < s->u.block->niter; i++) map_put(f->arena, &f->bound, s->u.block->iter[i].var, NULL);
  return true;
}

static void note_free(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  FreeVars *f = env;
  const Var **v;
  int n = expr_free_vars(f->arena, e, &v);
  for (int i = 0; i < n; i++)
    if (!map_has(&f->bound, v[i])) need_vars(f->arena, f->args, var_expr(v[i]));
}

/* The function with the variables that nothing tells as scalar parameters, behind the tensors. */
static void lower_tir(Lowering *lo, PrimFunc *f)
{
  Args args = {0};
  FreeVars free = {lo->arena, &args, {0}};
  for (int i = 0; i < f->nparam; i++) {
    if (f->param[i].buffer) tell_shape(lo->arena, &args, f->param[i].buffer);
    else map_put(lo->arena, &args.told, f->param[i].var, NULL);
  }
  stmt_visit(f->body, note_bound, &free);
  stmt_visit_exprs(f->body, note_free, &free);
  for (int i = 0; i < f->nparam; i++)
    for (int d = 0; f->param[i].buffer && d < f->param[i].buffer->ndim; d++)
      need_vars(lo->arena, &args, f->param[i].buffer->shape[d]);
  Param *param = arena_array(f->m->arena, Param, f->nparam + args.scalars.n + 1);
  memcpy(param, f->param, (size_t)f->nparam * sizeof *param);
  for (int i = 0; i < args.scalars.n; i++) param[f->nparam + i] = (Param){args.scalars.v[i], NULL};
  PrimFunc *g = func_new(f->m, lo->name, f->nparam + args.scalars.n, param, f->body);
  g->attrs = f->attrs;
  lo->out->func = func_import(lo->dst, g);
  lo->out->nscalars = args.scalars.n;
  lo->out->scalars = arena_copy(lo->dst->arena, args.scalars.v, (size_t)args.scalars.n * sizeof(Var *));
  lo->out->impl = "tir";
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

const char *group_block(const ImplGroup *g, const TeOp *op)
{
  if (op->kind == TE_COMPUTE)
    for (int i = 0; i < op->nout; i++) {
      const char *name = op->body[i]->kind == E_REDUCE ? NULL : map_get(&g->names, op->body[i]);
      if (name) return name;
    }
  return map_get(&g->names, op);
}

bool group_find_stage(ImplGroup *g, const char *name, BlockRV *out)
{
  for (int i = 0; i < g->nanchor; i++)
    if (!strcmp(g->anchor_op[i]->name, name)) {
      *out = sched_get_block(g->s, map_get(&g->names, g->anchor_op[i]));
      return true;
    }
  return false;
}

BlockRV group_stage(ImplGroup *g, const char *name)
{
  BlockRV out;
  if (!group_find_stage(g, name, &out))
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "%s has no stage '%s'", g->anchor->u.call.op->name, name);
  return out;
}

BlockRV group_sum(ImplGroup *g)
{
  for (int i = g->nanchor - 1; i >= 0; i--)
    if (g->anchor_op[i]->nreduce) return sched_get_block(g->s, group_block(g, g->anchor_op[i]));
  raise(g->ctx, ERR_SCHEDULE, NOWHERE, "%s has no sum", g->anchor->u.call.op->name);
}

BlockRV group_only_reader(ImplGroup *g, BlockRV block)
{
  BlockRV *user;
  if (sched_get_consumers(g->s, block, g->arena, &user) != 1)
    raise(g->ctx, ERR_SCHEDULE, NOWHERE, "block '%s' has not one reader", sched_block_stmt(g->s, block)->u.block->name);
  return user[0];
}

static void run_schedule(Ctx *ctx, void *arg)
{
  (void)ctx;
  ImplGroup *g = arg;
  g->impl->schedule(g);
}

static void run_generic(Ctx *ctx, void *arg)
{
  (void)ctx;
  generic_schedule(arg);
}

/* Applies the schedules from the best to none at all; the name of the one that was taken. */
static const char *schedule_group(Lowering *lo, PrimFunc *plain)
{
  ImplGroup *g = &lo->group;
  const char *said = "generic";
  if (g->impl && g->impl->schedule) {
    g->s = sched_new(plain, 0);
    defer(lo->ctx, free_schedule, g->s);
    if (group_try(g, run_schedule, g)) return g->impl->name;
    said = arena_printf(lo->dst->arena, "generic (not %s: %s)", g->impl->name, g->refusal);
  }
  g->s = sched_new(plain, 0);
  defer(lo->ctx, free_schedule, g->s);
  if (group_try(g, run_generic, g))
    return g->serial ? arena_printf(lo->dst->arena, "%s (one thread: %s)", said, g->serial) : said;
  g->s = sched_new(plain, 0);
  defer(lo->ctx, free_schedule, g->s);
  return arena_printf(lo->dst->arena, "plain (not generic: %s)", g->refusal);
}

static void choose_plan(Lowering *lo)
{
  ImplGroup *g = &lo->group;
  ImplCall call = {lo->src, lo->arena, lo->target, lo->config, g->anchor};
  const char *text = g->anchor->u.call.plan;
  Plan p = text ? plan_parse(&call, text) : impl_choose(&call);
  if (!text) plan_log(&call, &p);
  g->impl = p.impl;
  g->plan = p.fields;
  if (!p.impl && p.fields) g->generic = *(const GenericPlan *)p.fields;
  PlanList list;
  plan_all(&call, &list);
  lo->out->plan = arena_strdup(lo->dst->arena, text ? text : plan_line(&call, &p));
  lo->out->seconds = p.seconds;
  lo->out->nplans = list.v.n;
}

static void lower_te(Lowering *lo, const Node *const *node, int n)
{
  ImplGroup *g = &lo->group;
  *g = (ImplGroup){
    .ctx = lo->ctx, .arena = lo->arena, .src = lo->src, .func = lo->func, .target = lo->target, .config = lo->config};
  g->anchor = find_anchor(node, n);
  if (g->anchor) choose_plan(lo);
  for (int i = 0; i < fn_nparams(lo->func); i++) add_placeholders(lo, lo->func->arg[i], i);
  for (int i = 0; i < n; i++)
    if (node[i] != lo->func) lower_node(lo, node[i]);
  Args args = {0};
  collect_args(lo, &args);
  lo->tmp = module_new(lo->ctx);
  defer(lo->ctx, release_module, lo->tmp);
  PrimFunc *plain = te_create_prim_func(lo->tmp, lo->name, args.arg.n, args.arg.v, &g->names);
  lo->out->impl = schedule_group(lo, plain);
  lo->out->func = func_import(lo->dst, sched_func(g->s));
  lo->out->nconsts = lo->consts.n;
  lo->out->consts = arena_copy(lo->dst->arena, lo->consts.v, (size_t)lo->consts.n * sizeof(Node *));
  lo->out->nscalars = args.scalars.n;
  lo->out->scalars = arena_copy(lo->dst->arena, args.scalars.v, (size_t)args.scalars.n * sizeof(Var *));
  for (int i = 0; i < n; i++)
    if (node[i]->kind == N_CALL) {
      lo->out->flops += impl_flops(node[i]);
      lo->out->flops_done += impl_flops_done(node[i]);
    }
}

/* Are the call's operands the function's parameters, in order? */
static bool takes_params(const Node *func, const Node *call)
{
  bool yes = call->nargs == fn_nparams(func);
  for (int i = 0; yes && i < call->nargs; i++) yes = call->arg[i] == func->arg[i];
  return yes;
}

void impl_lower(Module *dst, Module *src, const Node *func, const char *name, const Target *target,
                const ImplConfig *config, ImplResult *out)
{
  Ctx *ctx = dst->ctx;
  if (func->kind != N_FUNC) BUG(ctx, "impl_lower of a node that is no function");
  *out = (ImplResult){0};
  Scope scope = scope_begin(ctx);
  Lowering lo = {.ctx = ctx,
                 .dst = dst,
                 .src = src,
                 .func = func,
                 .name = name,
                 .target = target,
                 .config = config,
                 .out = out,
                 .arena = arena_new(ctx)};
  defer(ctx, free_arena, lo.arena);
  const Node *body = fn_body(func);
  const Node **node;
  if (body->kind == N_CALL && body->u.call.op->tir && takes_params(func, body)) {
    OpCall call = call_of(&lo, body);
    lower_tir(&lo, body->u.call.op->tir(&call, src));
  } else if (body->kind == N_CALL_TIR && takes_params(func, body)) {
    Global *g = module_get(src, body->u.tir.name);
    if (!g || g->kind != GLOBAL_TIR)
      raise(ctx, ERR_ARGUMENT, NOWHERE, "call_tir: the module has no tir function '%s'", body->u.tir.name);
    lower_tir(&lo, g->func);
  } else {
    int n = graph_post_order(lo.arena, func, &node);
    lower_te(&lo, node, n);
  }
  scope_end(ctx, scope);
}
