/* te_stage.c: the te face: stages that are described in any order.
 *
 * Comes in: a user's calls.  Goes out: for each operation a stage with its attach
 * point, its tree of split and fused axes, the order of the leaves and what they are
 * marked with.  te_emit.c turns that into primitives.
 *
 * A call checks what can be seen in the description, changes it, and then tries the
 * whole of it (te_stage_change); a refusal puts back what was.  Splitting evenly, fusing and
 * reordering cannot be refused by the engine as long as nothing hangs on the
 * stage's loops, so those calls try nothing then.
 *
 * Operations are never changed: a schedule that rewrites one makes its own. */
#include "schedule/te_face.h"

/* ---- making and finding -------------------------------------------------------------- */

TeStage *te_stage_new(TeSched *s, const TeOp *op)
{
  TeStage *st = arena_new_of(s->arena, TeStage);
  st->s = s;
  st->origin = op;
  te_stage_set_op(st, op);
  return st;
}

void te_stage_set_op(TeStage *st, const TeOp *op)
{
  st->op = op;
  map_put(st->s->arena, &st->s->by_op, op, st);
}

int te_stage_roots(const TeStage *st, const IterVar ***out)
{
  const TeOp *op = st->op;
  const IterVar **v = arena_array(st->s->arena, const IterVar *, op->naxis + op->nreduce);
  int n = 0;
  if (op->kind == TE_COMPUTE) {
    for (int i = st->step ? 1 : 0; i < op->naxis; i++) v[n++] = op->axis[i];
    for (int i = 0; i < op->nreduce; i++) v[n++] = op->reduce_axis[i];
  }
  *out = v;
  return n;
}

void te_stage_reset_leaves(TeStage *st)
{
  const IterVar **root;
  int n = te_stage_roots(st, &root);
  st->leaves.v = root;
  st->leaves.n = st->leaves.cap = n;
}

typedef struct NewSched {
  TeSched *s;
  Module *m;
  Arena *arena;
  int n;
  const TeOp *const *outputs;
} NewSched;

static void make_sched(Ctx *ctx, void *arg)
{
  NewSched *k = arg;
  TeSched *s = k->s = arena_new_of(k->arena, TeSched);
  *s = (TeSched){.ctx = ctx, .m = k->m, .arena = k->arena};
  const Tensor **out = arena_array(scratch(ctx), const Tensor *, k->n);
  for (int i = 0; i < k->n; i++) out[i] = &k->outputs[i]->out[0];
  const TeOp **op;
  int nop = te_post_order(scratch(ctx), k->n, out, &op);
  for (int i = 0; i < nop; i++) vec_push(s->arena, &s->stages, te_stage_new(s, op[i]));
  for (int i = 0; i < nop; i++) {
    const TeOp **step;
    int nstep = op[i]->kind == TE_SCAN ? te_scan_steps(scratch(ctx), op[i], &step) : 0;
    for (int j = 0; j < nstep; j++) te_sched_stage(s, step[j])->step = true;
  }
  for (int i = 0; i < nop; i++) {
    if (!s->stages.v[i]->step) te_check_outside_scan(op[i]);
    te_stage_reset_leaves(s->stages.v[i]);
  }
  for (int i = 0; i < k->n; i++) te_sched_stage(s, k->outputs[i])->output = true;
}

TeSched *te_sched_new(Module *m, int n, const TeOp *const *outputs)
{
  Ctx *ctx = m->ctx;
  if (n < 1) raise(ctx, ERR_ARGUMENT, NOWHERE, "create_schedule: no operation was given");
  Scope scope = scope_begin(ctx);
  NewSched k = {.m = m, .arena = arena_new(ctx), .n = n, .outputs = outputs};
  if (protect(ctx, make_sched, &k)) {
    arena_free(k.arena);
    error_reraise(ctx);
  }
  module_retain(m);
  scope_end(ctx, scope);
  return k.s;
}

void te_sched_free(TeSched *s)
{
  if (!s) return;
  if (s->base_module) module_release(s->base_module);
  module_release(s->m);
  arena_free(s->arena);
}

TeStage *te_sched_stage(TeSched *s, const TeOp *op)
{
  TeStage *st = map_get(&s->by_op, op);
  if (!st) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "operation '%s' is not part of this schedule", op->name);
  return st;
}

int te_sched_stages(TeSched *s, TeStage ***out)
{
  *out = s->stages.v;
  return s->stages.n;
}

const TeOp *te_stage_op(TeStage *st) { return st->op; }
const TeOp *te_stage_origin(TeStage *st) { return st->origin; }

int te_stage_leaves(TeStage *st, const IterVar *const **out)
{
  *out = st->leaves.v;
  return st->leaves.n;
}

const Tensor *te_stage_current(TeSched *s, const Tensor *t) { return &te_sched_stage(s, t->op)->op->out[t->index]; }

void te_sched_insert(TeSched *s, TeStage *before, TeStage *st)
{
  Vec(TeStage *) grown = {0};
  for (int i = 0; i < s->stages.n; i++) {
    if (s->stages.v[i] == before) vec_push(s->arena, &grown, st);
    vec_push(s->arena, &grown, s->stages.v[i]);
  }
  s->stages.v = grown.v;
  s->stages.n = grown.n;
  s->stages.cap = grown.cap;
}

/* ---- changing and putting back ---------------------------------------------------------- */

/* Vectors grow at their end or are replaced, never changed in place, so a copy of
 * the structs is a copy of the description. */
typedef struct Snapshot {
  TeSched sched;
  TeStage *stage;
} Snapshot;

static Snapshot take_snapshot(TeSched *s)
{
  Snapshot snap = {*s, arena_array(scratch(s->ctx), TeStage, s->stages.n)};
  for (int i = 0; i < s->stages.n; i++) snap.stage[i] = *s->stages.v[i];
  return snap;
}

static void put_back(TeSched *s, const Snapshot *snap)
{
  Map by_op = s->by_op; /* a map is not copied by its struct; stale keys are harmless */
  Module *module = s->base_module;
  *s = snap->sched;
  s->by_op = by_op;
  if (module != snap->sched.base_module) { /* the base of the failed change is not this description's */
    if (module) module_release(module);
    s->base_module = NULL;
    s->base = NULL;
  }
  for (int i = 0; i < s->stages.n; i++) *s->stages.v[i] = snap->stage[i];
}

typedef struct Change {
  TeSched *s;
  void (*apply)(void *);
  void *env;
  bool emit;
} Change;

static void free_sched(void *s) { sched_free(s); }

static void free_module(void *m) { module_release(m); }

/* Arguments that anyone could give. */
static int default_args(TeSched *s, TeArg **args)
{
  Arena *arena = scratch(s->ctx);
  Vec(const Tensor *) out = {0};
  for (int i = 0; i < s->stages.n; i++)
    for (int k = 0; s->stages.v[i]->output && k < s->stages.v[i]->op->nout; k++)
      vec_push(arena, &out, &s->stages.v[i]->op->out[k]);
  return te_default_args(arena, out.n, out.v, args);
}

/* The function that the description is tried on. */
static void make_base(TeSched *s)
{
  if (s->base) return;
  TeArg *args;
  int n = default_args(s, &args);
  if (!s->base_module) s->base_module = module_new(s->ctx);
  s->base_names = (Map){0};
  s->base = te_create_prim_func(s->base_module, "main", n, args, &s->base_names);
}

static void run_change(Ctx *ctx, void *arg)
{
  Change *c = arg;
  c->apply(c->env);
  if (!c->emit) return;
  make_base(c->s);
  Scope scope = scope_begin(ctx);
  Sched *tried = te_sched_emit_trace(c->s, c->s->base, &c->s->base_names, true);
  defer(ctx, free_sched, tried);
  scope_end(ctx, scope);
}

void te_stage_change(TeSched *s, void (*apply)(void *), void *env, bool emit)
{
  Scope scope = scope_begin(s->ctx);
  Snapshot snap = take_snapshot(s);
  Change c = {s, apply, env, emit};
  if (protect(s->ctx, run_change, &c)) {
    put_back(s, &snap);
    error_reraise(s->ctx);
  }
  scope_end(s->ctx, scope);
}

/* A tensor between input and output may be an argument too: what is computed of it then
 * goes to the caller.  Attached to a loop it is scheduled as an allocation first and
 * becomes the parameter afterwards. */
static bool is_attached(TeSched *s, const TeArg *arg)
{
  const TeStage *st = arg->tensor ? map_get(&s->by_op, arg->tensor->op) : NULL;
  if (!st || st->attach != ATTACH_AT) return false;
  if (arg->buffer)
    raise(s->ctx, ERR_UNSUPPORTED, NOWHERE,
          "stage '%s' is attached to a loop; a buffer of its own (binds) can only be given for a stage at the root",
          st->op->name);
  return true;
}

typedef struct Expose {
  TeSched *s;
  Sched *sch;
  const Map *names;
  int nargs;
  const TeArg *args;
} Expose;

static void expose_attached(Ctx *ctx, void *env)
{
  (void)ctx;
  Expose *x = env;
  for (int i = 0; i < x->nargs; i++)
    if (is_attached(x->s, &x->args[i])) sched_expose(x->sch, map_get(x->names, x->args[i].tensor), i);
}

static Sched *emit_args(TeSched *s, const char *name, int nargs, const TeArg *args)
{
  TeArg *kept = arena_array(scratch(s->ctx), TeArg, nargs);
  int n = 0;
  for (int i = 0; i < nargs; i++)
    if (!is_attached(s, &args[i])) kept[n++] = args[i];
  Module *m = module_new(s->ctx);
  defer(s->ctx, free_module, m);
  Map names = {0};
  Expose x = {s, te_sched_emit_trace(s, te_create_prim_func(m, name, n, kept, &names), &names, false), &names, nargs,
              args};
  if (protect(s->ctx, expose_attached, &x)) {
    sched_free(x.sch);
    error_reraise(s->ctx);
  }
  return x.sch;
}

/* An inlined stage that the caller wants as well has to be stored: it is emitted at the root, for this
 * function alone. */
typedef struct EmitCall {
  TeSched *s;
  const char *name;
  int nargs;
  const TeArg *args;
  Sched *made;
} EmitCall;

static void run_emit(Ctx *ctx, void *env)
{
  (void)ctx;
  EmitCall *c = env;
  c->made = emit_args(c->s, c->name, c->nargs, c->args);
}

static Sched *emit_with_stored(TeSched *s, const char *name, int nargs, const TeArg *args)
{
  Vec(TeStage *) stored = {0};
  for (int i = 0; i < nargs; i++) {
    TeStage *st = args[i].tensor ? map_get(&s->by_op, args[i].tensor->op) : NULL;
    if (!st || st->attach != ATTACH_INLINE) continue;
    vec_push(scratch(s->ctx), &stored, st);
    st->attach = ATTACH_ROOT;
  }
  EmitCall c = {s, name, nargs, args, NULL};
  bool failed = protect(s->ctx, run_emit, &c);
  for (int i = 0; i < stored.n; i++) stored.v[i]->attach = ATTACH_INLINE;
  if (failed) error_reraise(s->ctx);
  return c.made;
}

Sched *te_sched_emit(TeSched *s, const char *name, int nargs, const TeArg *args)
{
  Scope scope = scope_begin(s->ctx);
  TeArg *own = arena_copy(scratch(s->ctx), args, (size_t)nargs * sizeof *args);
  for (int i = 0; i < nargs; i++) {
    const Tensor *t = own[i].tensor;
    /* a parameter that nothing reads */
    bool unused = t && t->op->kind == TE_PLACEHOLDER && !map_get(&s->by_op, t->op);
    if (t && !unused) own[i].tensor = te_stage_current(s, t);
  }
  if (!nargs) nargs = default_args(s, &own);
  Sched *sch = emit_with_stored(s, name, nargs, own);
  scope_end(s->ctx, scope);
  return sch;
}

/* ---- axes ------------------------------------------------------------------------------------ */

bool te_stage_is_leaf(const TeStage *st, const IterVar *axis)
{
  for (int i = 0; i < st->leaves.n; i++)
    if (st->leaves.v[i] == axis) return true;
  return false;
}

const Relation *te_stage_relation_of(const TeStage *st, const IterVar *axis)
{
  for (int i = 0; i < st->relations.n; i++) {
    const Relation *r = &st->relations.v[i];
    if (!r->fuse && r->parent == axis) return r;
    for (int k = 0; r->fuse && k < r->npart; k++)
      if (r->part[k] == axis) return r;
  }
  return NULL;
}

void te_stage_leaves_of(Arena *arena, const TeStage *st, const IterVar *axis, AxisList *out)
{
  const Relation *r = te_stage_relation_of(st, axis);
  if (!r) {
    vec_push(arena, out, axis);
  } else if (r->fuse) {
    te_stage_leaves_of(arena, st, r->fused, out);
  } else {
    te_stage_leaves_of(arena, st, r->outer, out);
    te_stage_leaves_of(arena, st, r->inner, out);
  }
}

static bool has_axis(const TeStage *st, const IterVar *axis)
{
  if (te_stage_is_leaf(st, axis) || te_stage_relation_of(st, axis)) return true;
  for (int i = 0; i < st->op->naxis; i++)
    if (st->op->axis[i] == axis) return true;
  return false;
}

const AxisMark *te_stage_mark_of(const TeStage *st, const IterVar *axis)
{
  for (int i = 0; i < st->marks.n; i++)
    if (st->marks.v[i].axis == axis) return &st->marks.v[i];
  return NULL;
}

static void need_compute(const TeStage *st, const char *call)
{
  switch (st->op->kind) {
  case TE_COMPUTE: return;
  case TE_PLACEHOLDER: te_refuse(st->s, "%s: '%s' is a placeholder; nothing computes it", call, st->op->name);
  case TE_SCAN:
    te_refuse(st->s, "%s: '%s' is a scan, whose steps run in order; schedule its update '%s' instead", call,
              st->op->name, st->op->update[0]->op->name);
  case TE_EXTERN: te_refuse(st->s, "%s: '%s' is an extern; its statement is its schedule", call, st->op->name);
  }
}

void te_stage_need_leaf(const TeStage *st, const char *call, const IterVar *axis)
{
  need_compute(st, call);
  if (te_stage_is_leaf(st, axis)) return;
  const char *name = axis->var->name;
  const Relation *r = te_stage_relation_of(st, axis);
  if (r && !r->fuse)
    te_refuse(st->s, "%s: axis '%s' of stage '%s' was split already; use its parts '%s' and '%s'", call, name,
              st->op->name, r->outer->var->name, r->inner->var->name);
  if (r)
    te_refuse(st->s, "%s: axis '%s' of stage '%s' was fused already; use '%s'", call, name, st->op->name,
              r->fused->var->name);
  if (st->step && st->op->axis[0] == axis)
    te_refuse(st->s, "%s: axis '%s' of stage '%s' counts the steps of a scan, which run in order", call, name,
              st->op->name);
  for (int i = 0; i < st->s->stages.n; i++)
    if (has_axis(st->s->stages.v[i], axis))
      te_refuse(st->s, "%s: axis '%s' belongs to stage '%s', not to '%s'", call, name, st->s->stages.v[i]->op->name,
                st->op->name);
  te_refuse(st->s, "%s: '%s' is not an axis of stage '%s'", call, name, st->op->name);
}

/* What a leaf is used for already, which splitting or fusing it would lose. */
static void need_unused(const TeStage *st, const char *call, const IterVar *axis)
{
  static const char *const kinds[] = {[FOR_SERIAL] = "serial",
                                      [FOR_PARALLEL] = "parallel",
                                      [FOR_VECTORIZED] = "vectorized",
                                      [FOR_UNROLLED] = "unrolled",
                                      [FOR_THREAD] = "bound to a thread"};
  const AxisMark *mark = te_stage_mark_of(st, axis);
  const char *name = axis->var->name;
  if (mark)
    te_refuse(st->s, "%s: axis '%s' of stage '%s' is %s already; %s it first", call, name, st->op->name,
              kinds[mark->kind], call);
  if (st->tensorize_axis == axis)
    te_refuse(st->s, "%s: axis '%s' of stage '%s' is tensorized; %s it first", call, name, st->op->name, call);
  for (int i = 0; i < st->pragmas.n; i++)
    if (st->pragmas.v[i].axis == axis)
      te_refuse(st->s, "%s: axis '%s' of stage '%s' has a pragma; %s it first", call, name, st->op->name, call);
  for (int i = 0; i < st->prefetches.n; i++)
    if (st->prefetches.v[i].axis == axis)
      te_refuse(st->s, "%s: axis '%s' of stage '%s' has a prefetch; %s it first", call, name, st->op->name, call);
  for (int i = 0; i < st->s->stages.n; i++) {
    const TeStage *p = st->s->stages.v[i];
    if (p->attach == ATTACH_AT && p->at == st && p->at_axis == axis)
      te_refuse(st->s,
                "%s: stage '%s' is computed at axis '%s' of stage '%s'; %s it first, then attach to one of its parts",
                call, p->op->name, name, st->op->name, call);
  }
}

static bool splits_evenly(const IterVar *axis, const Expr *by)
{
  return axis->extent->kind == E_INT && by->kind == E_INT && by->u.i > 0 && axis->extent->u.i % by->u.i == 0;
}

/* Might the engine have to refuse a change of the stage's loops: because something
 * hangs on them, or because a split has a remainder (an attached stage's may have)? */
static bool loops_matter(const TeStage *st)
{
  for (int i = 0; i < st->relations.n; i++) {
    const Relation *r = &st->relations.v[i];
    if (!r->fuse && !splits_evenly(r->parent, r->factor ? r->factor : r->nparts)) return true;
  }
  if (st->attach == ATTACH_AT || st->intrin || st->marks.n || (st->op->nreduce && !te_plain_reduce(st->op)))
    return true;
  for (int i = 0; i < st->s->stages.n; i++)
    if (st->s->stages.v[i]->attach == ATTACH_AT && st->s->stages.v[i]->at == st) return true;
  return false;
}

static const IterVar *new_axis(TeStage *st, const IterVar *like, const char *name, const Expr *extent)
{
  Module *m = st->s->m;
  const Var *v = var_new(m, name, like->var->dtype, VAR_PLAIN);
  return itervar_new(m, v, expr_int(m, v->dtype, 0), extent, like->kind, NULL);
}

/* The leaves with n of them, from position `at` on, replaced by others. */
static void splice_leaves(TeStage *st, int at, int n, int nnew, const IterVar *const *fresh)
{
  Vec(const IterVar *) out = {0};
  for (int i = 0; i < at; i++) vec_push(st->s->arena, &out, st->leaves.v[i]);
  for (int i = 0; i < nnew; i++) vec_push(st->s->arena, &out, fresh[i]);
  for (int i = at + n; i < st->leaves.n; i++) vec_push(st->s->arena, &out, st->leaves.v[i]);
  st->leaves.v = out.v;
  st->leaves.n = out.n;
  st->leaves.cap = out.cap;
}

static int leaf_position(const TeStage *st, const IterVar *axis)
{
  for (int i = 0; i < st->leaves.n; i++)
    if (st->leaves.v[i] == axis) return i;
  return -1;
}

/* ---- split, fuse, reorder ------------------------------------------------------------------------ */

typedef struct SplitCall {
  TeStage *st;
  const IterVar *axis;
  const Expr *factor, *nparts;
  const IterVar *part[2];
} SplitCall;

static const Expr *ceil_quotient(TeSched *s, const Expr *a, const Expr *b)
{
  Module *m = s->m;
  Analyzer *an = analyzer_new(m, scratch(s->ctx));
  const Expr *up = expr_sub(m, expr_add(m, a, b), expr_int(m, a->dtype, 1));
  return expr_simplify(an, expr_floordiv(m, up, b));
}

static void apply_split(void *env)
{
  SplitCall *c = env;
  TeStage *st = c->st;
  Arena *names = scratch(st->s->ctx);
  const Expr *extent = c->axis->extent;
  const Expr *given = c->factor ? c->factor : c->nparts;
  const Expr *other = ceil_quotient(st->s, extent, given);
  const char *name = c->axis->var->name;
  c->part[0] = new_axis(st, c->axis, arena_printf(names, "%so", name), c->factor ? other : given);
  c->part[1] = new_axis(st, c->axis, arena_printf(names, "%si", name), c->factor ? given : other);
  Relation r = {.parent = c->axis, .outer = c->part[0], .inner = c->part[1], .factor = c->factor, .nparts = c->nparts};
  vec_push(st->s->arena, &st->relations, r);
  splice_leaves(st, leaf_position(st, c->axis), 1, 2, c->part);
}

static void check_count(TeStage *st, const char *what, const IterVar *axis, const Expr *e)
{
  Ctx *ctx = st->s->ctx;
  if (!dtype_is_int(e->dtype) || e->dtype.lanes != 1)
    raise(ctx, ERR_TYPE, NOWHERE, "split of axis '%s' of stage '%s': %s is %s; it must be an integer", axis->var->name,
          st->op->name, what, dtype_name(scratch(ctx), e->dtype));
  if (e->kind == E_INT && e->u.i <= 0)
    te_refuse(st->s, "split of axis '%s' of stage '%s': %s is %" PRId64 "; it must be at least 1", axis->var->name,
              st->op->name, what, e->u.i);
}

static const Expr *as_index(TeStage *st, const IterVar *axis, const Expr *e)
{
  if (!e || dtype_eq(e->dtype, axis->var->dtype)) return e;
  return e->kind == E_INT ? expr_int(st->s->m, axis->var->dtype, e->u.i) : expr_cast(st->s->m, axis->var->dtype, e);
}

void te_stage_split(TeStage *st, const IterVar *axis, const Expr *factor, const Expr *nparts, const IterVar **outer,
                    const IterVar **inner)
{
  te_stage_need_leaf(st, "split", axis);
  need_unused(st, "split", axis);
  if (!factor == !nparts)
    raise(st->s->ctx, ERR_ARGUMENT, NOWHERE, "split of axis '%s' of stage '%s': give either factor or nparts",
          axis->var->name, st->op->name);
  if (factor) check_count(st, "factor", axis, factor);
  if (nparts) check_count(st, "nparts", axis, nparts);
  SplitCall c = {.st = st, .axis = axis, .factor = as_index(st, axis, factor), .nparts = as_index(st, axis, nparts)};
  te_stage_change(st->s, apply_split, &c, !splits_evenly(axis, factor ? factor : nparts) || loops_matter(st));
  *outer = c.part[0];
  *inner = c.part[1];
}

typedef struct FuseCall {
  TeStage *st;
  int n;
  const IterVar *const *axis;
  const IterVar *fused;
} FuseCall;

static void apply_fuse(void *env)
{
  FuseCall *c = env;
  TeStage *st = c->st;
  Module *m = st->s->m;
  Text name = text_new(scratch(st->s->ctx));
  const Expr *extent = c->axis[0]->extent;
  for (int i = 0; i < c->n; i++) {
    text_printf(&name, "%s_", c->axis[i]->var->name);
    if (i) extent = expr_mul(m, extent, c->axis[i]->extent);
  }
  text_add(&name, "fused");
  extent = expr_simplify(analyzer_new(m, scratch(st->s->ctx)), extent);
  c->fused = new_axis(st, c->axis[0], text_str(&name), extent);
  const IterVar **part = arena_copy(st->s->arena, c->axis, (size_t)c->n * sizeof *part);
  vec_push(st->s->arena, &st->relations, (Relation){.fuse = true, .fused = c->fused, .part = part, .npart = c->n});
  splice_leaves(st, leaf_position(st, c->axis[0]), c->n, 1, &c->fused);
}

/* The reductions of a body that run over an axis: fused axes must be of the same. */
typedef struct OverEnv {
  const IterVar *root;
  Vec(const Expr *) found;
  Arena *arena;
} OverEnv;

static void note_over(void *env, const Expr *e)
{
  OverEnv *o = env;
  for (int i = 0; e->kind == E_REDUCE && i < e->u.reduce->naxis; i++)
    if (e->u.reduce->axis[i] == o->root) vec_push(o->arena, &o->found, e);
}

static bool comes_from(const TeStage *st, const IterVar *root, const IterVar *leaf)
{
  AxisList leaves = {0};
  te_stage_leaves_of(scratch(st->s->ctx), st, root, &leaves);
  for (int i = 0; i < leaves.n; i++)
    if (leaves.v[i] == leaf) return true;
  return false;
}

static OverEnv reductions_over(const TeStage *st, const IterVar *leaf)
{
  OverEnv o = {.arena = scratch(st->s->ctx)};
  for (int i = 0; i < st->op->nreduce; i++) {
    o.root = st->op->reduce_axis[i];
    if (!comes_from(st, o.root, leaf)) continue;
    for (int b = 0; b < st->op->nout; b++) expr_visit(st->s->ctx, st->op->body[b], note_over, &o);
  }
  return o;
}

static void need_same_reductions(const TeStage *st, const IterVar *a, const IterVar *b)
{
  OverEnv x = reductions_over(st, a);
  OverEnv y = reductions_over(st, b);
  bool same = true;
  for (int i = 0; i < x.found.n; i++) {
    bool hit = false;
    for (int j = 0; j < y.found.n; j++) hit |= x.found.v[i] == y.found.v[j];
    same &= hit;
  }
  for (int j = 0; j < y.found.n; j++) {
    bool hit = false;
    for (int i = 0; i < x.found.n; i++) hit |= x.found.v[i] == y.found.v[j];
    same &= hit;
  }
  if (!same)
    te_refuse(st->s, "fuse: axes '%s' and '%s' of stage '%s' belong to different reductions", a->var->name,
              b->var->name, st->op->name);
}

const IterVar *te_stage_fuse(TeStage *st, int n, const IterVar *const *axis)
{
  Scope scope = scope_begin(st->s->ctx);
  need_compute(st, "fuse");
  if (n < 1) raise(st->s->ctx, ERR_ARGUMENT, NOWHERE, "fuse: no axis of stage '%s' was given", st->op->name);
  for (int i = 0; i < n; i++) {
    te_stage_need_leaf(st, "fuse", axis[i]);
    need_unused(st, "fuse", axis[i]);
  }
  for (int i = 1; i < n; i++) {
    const char *a = axis[i - 1]->var->name;
    const char *b = axis[i]->var->name;
    if (leaf_position(st, axis[i]) != leaf_position(st, axis[i - 1]) + 1)
      te_refuse(st->s, "fuse: axis '%s' of stage '%s' does not stand right inside '%s'; reorder first", b, st->op->name,
                a);
    if (axis[i]->kind != axis[i - 1]->kind)
      te_refuse(st->s, "fuse: axis '%s' of stage '%s' is %s and '%s' is %s; only axes of one kind can be fused", a,
                st->op->name, axis[i - 1]->kind == ITER_REDUCE ? "a reduction" : "spatial", b,
                axis[i]->kind == ITER_REDUCE ? "a reduction" : "spatial");
    if (axis[i]->kind == ITER_REDUCE) need_same_reductions(st, axis[i - 1], axis[i]);
  }
  FuseCall c = {.st = st, .n = n, .axis = axis};
  te_stage_change(st->s, apply_fuse, &c, loops_matter(st));
  scope_end(st->s->ctx, scope);
  return c.fused;
}

typedef struct ReorderCall {
  TeStage *st;
  int n;
  const IterVar *const *axis;
} ReorderCall;

/* The axes given take the places that they have together, in the new order. */
static void apply_reorder(void *env)
{
  ReorderCall *c = env;
  TeStage *st = c->st;
  Vec(const IterVar *) out = {0};
  int next = 0;
  for (int i = 0; i < st->leaves.n; i++) {
    bool given = false;
    for (int k = 0; k < c->n; k++) given |= c->axis[k] == st->leaves.v[i];
    vec_push(st->s->arena, &out, given ? c->axis[next++] : st->leaves.v[i]);
  }
  st->leaves.v = out.v;
  st->leaves.n = out.n;
  st->leaves.cap = out.cap;
}

void te_stage_reorder(TeStage *st, int n, const IterVar *const *axis)
{
  need_compute(st, "reorder");
  for (int i = 0; i < n; i++) {
    te_stage_need_leaf(st, "reorder", axis[i]);
    for (int k = 0; k < i; k++)
      if (axis[k] == axis[i])
        te_refuse(st->s, "reorder: axis '%s' of stage '%s' is given twice", axis[i]->var->name, st->op->name);
  }
  ReorderCall c = {st, n, axis};
  te_stage_change(st->s, apply_reorder, &c, loops_matter(st));
}
