/* te_rewrite.c: the te face: caches and rfactor, as rewrites of the dataflow.
 *
 * Each makes new operations and hands them to stages; the operations a user made
 * stay as they are.  A stage that reads a replaced tensor gets an operation that
 * reads the new one, with the same axes, so what was said about its axes holds.
 *
 *   cache_read   t → reader            t → t.scope → reader
 *   cache_write  body → t              body → t.scope → t        (t is a copy then)
 *   rfactor      t = sum over ko, ki   t.rf[ki] = sum over ko;  t = sum over ki of t.rf
 *
 * With cache_write the axes of t stay its axes; the cache gets axes of its own for
 * them and keeps the reduce axes, with what was said about those. */
#include "schedule/te_face.h"

/* ---- handing new tensors on ------------------------------------------------------------- */

static void replace_in(TeStage *st, Arena *arena, Map *map)
{
  const TeOp *old = st->op;
  const TeOp *op = te_replace_reads(old, map);
  if (op == old) return;
  te_stage_set_op(st, op);
  for (int i = 0; i < op->nout; i++) map_put(arena, map, &old->out[i], &op->out[i]);
}

void te_sched_hand_on(TeSched *s, Map *map, const TeStage *except)
{
  for (int i = 0; i < s->stages.n; i++)
    if (s->stages.v[i] != except) replace_in(s->stages.v[i], scratch(s->ctx), map);
  s->base = NULL;
}

static const Expr *axis_index(Module *m, const IterVar *iv)
{
  return expr_is_int(iv->min, 0) ? iv->var->expr : expr_sub(m, iv->var->expr, iv->min);
}

/* A compute over fresh axes that copies t. */
static const TeOp *copy_op(TeSched *s, const Tensor *t, const char *name)
{
  Module *m = s->m;
  const Buffer *b = t->buffer;
  const IterVar **axis = arena_array(scratch(s->ctx), const IterVar *, b->ndim);
  const Expr **index = arena_array(scratch(s->ctx), const Expr *, b->ndim);
  for (int d = 0; d < b->ndim; d++) {
    const Var *v = var_new(m, arena_printf(scratch(s->ctx), "ax%d", d), b->shape[d]->dtype, VAR_PLAIN);
    axis[d] = itervar_new(m, v, expr_int(m, v->dtype, 0), b->shape[d], ITER_SPATIAL, NULL);
    index[d] = v->expr;
  }
  const Expr *body = te_read(m, t, b->ndim, index);
  return te_compute(m, name, NULL, b->ndim, b->shape, axis, 1, &body, NULL);
}

static const char *cache_name(TeSched *s, const char *name, const char *scope)
{
  return arena_printf(scratch(s->ctx), "%s.%s", name, scope && *scope ? scope : "global");
}

/* ---- cache_read ---------------------------------------------------------------------------- */

typedef struct CacheRead {
  TeSched *s;
  const Tensor *t;
  const char *scope;
  int n;
  TeStage **reader;
  const Tensor *out;
} CacheRead;

static void apply_cache_read(void *env)
{
  CacheRead *c = env;
  TeSched *s = c->s;
  const TeOp *op = copy_op(s, c->t, cache_name(s, c->t->buffer->name, c->scope));
  TeStage *st = te_stage_new(s, op);
  te_stage_reset_leaves(st);
  st->cache = true;
  st->scope = arena_strdup(s->arena, c->scope);
  TeStage *first = NULL;
  for (int i = 0; i < s->stages.n && !first; i++)
    for (int k = 0; k < c->n; k++)
      if (s->stages.v[i] == c->reader[k]) first = s->stages.v[i];
  Map map = {0};
  for (int i = 0; i < s->stages.n; i++) {
    bool reader = false;
    for (int k = 0; k < c->n; k++) reader |= c->reader[k] == s->stages.v[i];
    if (reader) map_put(scratch(s->ctx), &map, c->t, &op->out[0]);
    replace_in(s->stages.v[i], scratch(s->ctx), &map);
    if (reader) map_del(&map, c->t);
  }
  s->base = NULL;
  te_sched_insert(s, first, st);
  c->out = &op->out[0];
}

static bool reads(Arena *arena, const TeOp *op, const Tensor *t)
{
  const Tensor **in;
  int n = te_inputs(arena, op, &in);
  for (int i = 0; i < n; i++)
    if (in[i] == t) return true;
  return false;
}

static void need_no_state(TeSched *s, const Tensor *t)
{
  for (int i = 0; i < s->stages.n; i++) {
    const TeOp *op = s->stages.v[i]->op;
    for (int k = 0; op->kind == TE_SCAN && k < op->nstate; k++)
      if (op->state[k] == t)
        raise(s->ctx, ERR_UNSUPPORTED, NOWHERE,
              "cache_read: '%s' is the state of scan '%s'; its rows come one by one and cannot be cached",
              t->buffer->name, op->name);
  }
}

const Tensor *te_sched_cache_read(TeSched *s, const Tensor *tensor, const char *scope, int nreaders,
                                  const TeOp *const *readers)
{
  Scope scratch_scope = scope_begin(s->ctx);
  Arena *arena = scratch(s->ctx);
  const TeStage *view = te_sched_stage(s, tensor->op)->view;
  CacheRead c = {.s = s, .t = view ? &view->op->out[0] : te_stage_current(s, tensor), .scope = scope};
  need_no_state(s, c.t);
  Vec(TeStage *) list = {0};
  for (int i = 0; i < nreaders; i++) {
    TeStage *st = te_sched_stage(s, readers[i]);
    if (!reads(arena, st->op, c.t))
      te_refuse(s, "cache_read: '%s' does not read '%s'", st->op->name, c.t->buffer->name);
    vec_push(arena, &list, st);
  }
  for (int i = 0; i < s->stages.n && !nreaders; i++)
    if (reads(arena, s->stages.v[i]->op, c.t)) vec_push(arena, &list, s->stages.v[i]);
  if (!list.n) te_refuse(s, "cache_read: nothing reads '%s'", c.t->buffer->name);
  c.n = list.n;
  c.reader = list.v;
  te_stage_change(s, apply_cache_read, &c, true);
  scope_end(s->ctx, scratch_scope);
  return c.out;
}

/* ---- cache_write ----------------------------------------------------------------------------- */

typedef struct CacheWrite {
  TeSched *s;
  TeStage *st;
  const char *scope;
  const TeOp *cache;
} CacheWrite;

/* The operation's bodies over fresh axes. */
static const TeOp *cache_op(TeSched *s, const TeOp *op, const char *scope)
{
  Module *m = s->m;
  Arena *arena = scratch(s->ctx);
  Map map = {0};
  const IterVar **axis = arena_array(arena, const IterVar *, op->naxis);
  for (int i = 0; i < op->naxis; i++) {
    const IterVar *old = op->axis[i];
    const Var *v = var_new(m, arena_printf(arena, "%s_c", old->var->name), old->var->dtype, VAR_PLAIN);
    axis[i] = itervar_new(m, v, old->min, old->extent, ITER_SPATIAL, NULL);
    map_put(arena, &map, old->var, (void *)(uintptr_t)v->expr);
  }
  const Expr **body = arena_array(arena, const Expr *, op->nout);
  for (int i = 0; i < op->nout; i++) body[i] = expr_substitute(m, op->body[i], &map);
  return te_compute(m, cache_name(s, op->name, scope), op->tag, op->naxis, op->out[0].buffer->shape, axis, op->nout,
                    body, NULL);
}

static const TeOp *copy_out_op(TeSched *s, const TeOp *op, const TeOp *cache)
{
  Arena *arena = scratch(s->ctx);
  const Expr **index = arena_array(arena, const Expr *, op->naxis);
  const Expr **body = arena_array(arena, const Expr *, op->nout);
  for (int i = 0; i < op->naxis; i++) index[i] = axis_index(s->m, op->axis[i]);
  for (int i = 0; i < op->nout; i++) body[i] = te_read(s->m, &cache->out[i], op->naxis, index);
  return te_compute(s->m, op->name, op->tag, op->naxis, op->out[0].buffer->shape, op->axis, op->nout, body, &op->attrs);
}

static bool of_kind(const Relation *r, IterKind kind) { return (r->fuse ? r->fused : r->parent)->kind == kind; }

/* Of everything said about the stage's axes, what concerns reduce axes goes to the
 * cache and the rest stays. */
static void move_reduce_part(TeStage *st, TeStage *to)
{
  Arena *arena = st->s->arena;
  TeStage old = *st;
  memset(&st->relations, 0, sizeof st->relations);
  memset(&st->leaves, 0, sizeof st->leaves);
  memset(&st->marks, 0, sizeof st->marks);
  memset(&st->pragmas, 0, sizeof st->pragmas);
  memset(&st->prefetches, 0, sizeof st->prefetches);
  for (int i = 0; i < old.relations.n; i++)
    vec_push(arena, of_kind(&old.relations.v[i], ITER_REDUCE) ? &to->relations : &st->relations, old.relations.v[i]);
  Vec(const IterVar *) reduce = {0};
  for (int i = 0; i < old.leaves.n; i++)
    if (old.leaves.v[i]->kind == ITER_REDUCE) vec_push(arena, &reduce, old.leaves.v[i]);
    else vec_push(arena, &st->leaves, old.leaves.v[i]);
  Vec(const IterVar *) leaves = {0};
  for (int i = to->step ? 1 : 0; i < to->op->naxis; i++) vec_push(arena, &leaves, to->op->axis[i]);
  for (int i = 0; i < reduce.n; i++) vec_push(arena, &leaves, reduce.v[i]);
  to->leaves.v = leaves.v, to->leaves.n = leaves.n, to->leaves.cap = leaves.cap;
  for (int i = 0; i < old.marks.n; i++)
    vec_push(arena, old.marks.v[i].axis->kind == ITER_REDUCE ? &to->marks : &st->marks, old.marks.v[i]);
  for (int i = 0; i < old.pragmas.n; i++)
    vec_push(arena, old.pragmas.v[i].axis->kind == ITER_REDUCE ? &to->pragmas : &st->pragmas, old.pragmas.v[i]);
  for (int i = 0; i < old.prefetches.n; i++) {
    if (old.prefetches.v[i].axis->kind != ITER_REDUCE)
      te_refuse(st->s, "cache_write: stage '%s' has a prefetch at axis '%s'; write the cache first", st->op->name,
                old.prefetches.v[i].axis->var->name);
    vec_push(arena, &to->prefetches, old.prefetches.v[i]);
  }
  for (int i = 0; i < st->s->stages.n; i++) {
    TeStage *p = st->s->stages.v[i];
    if (p->attach == ATTACH_AT && p->at == st && p->at_axis->kind == ITER_REDUCE) p->at = to;
  }
}

static void apply_cache_write(void *env)
{
  CacheWrite *c = env;
  TeSched *s = c->s;
  TeStage *st = c->st;
  const TeOp *old = st->op;
  c->cache = cache_op(s, old, c->scope);
  TeStage *cache = te_stage_new(s, c->cache);
  cache->cache = true;
  cache->step = st->step;
  cache->scope = arena_strdup(s->arena, c->scope);
  te_stage_set_op(st, copy_out_op(s, old, c->cache));
  move_reduce_part(st, cache);
  te_sched_insert(s, st, cache);
  Map map = {0};
  for (int i = 0; i < old->nout; i++) map_put(scratch(s->ctx), &map, &old->out[i], &st->op->out[i]);
  te_sched_hand_on(s, &map, st);
}

int te_sched_cache_write(TeSched *s, int n, const Tensor *const *tensors, const char *scope, const Tensor **out)
{
  Scope scratch_scope = scope_begin(s->ctx);
  TeStage *st = te_sched_stage(s, tensors[0]->op);
  const TeOp *op = st->op;
  if (op->kind != TE_COMPUTE) te_refuse(s, "cache_write: '%s' is not a compute", op->name);
  if (st->intrin) te_refuse(s, "cache_write: stage '%s' is tensorized; write the cache first", op->name);
  if (st->attach == ATTACH_INLINE) te_refuse(s, "cache_write: stage '%s' is inlined, so it is not stored", op->name);
  for (int i = 1; i < n; i++)
    if (te_sched_stage(s, tensors[i]->op) != st)
      te_refuse(s, "cache_write: '%s' and '%s' are outputs of different operations", tensors[0]->buffer->name,
                tensors[i]->buffer->name);
  if (n != op->nout)
    te_refuse(s, "cache_write: '%s' has %d outputs and %d were given; they are computed together, so give all of them",
              op->name, op->nout, n);
  CacheWrite c = {.s = s, .st = st, .scope = scope};
  te_stage_change(s, apply_cache_write, &c, true);
  for (int i = 0; i < n; i++) out[i] = &c.cache->out[tensors[i]->index];
  scope_end(s->ctx, scratch_scope);
  return n;
}

/* ---- rfactor ------------------------------------------------------------------------------------ */

typedef struct Rfactor {
  TeSched *s;
  TeStage *st;
  const IterVar *axis;
  int place; /* of the factored axis among the new axes */
  const TeOp *factored;
  Map leaf;           /* Var* of a reduce leaf -> Expr* over the factored operation's axes */
  const Expr *inside; /* where the leaves are in the original domain */
} Rfactor;

/* The value of an axis of the stage, from 0, over the factored operation's axes; adds
 * to `inside` that it is below its extent where that is not sure. */
static const Expr *axis_value(Rfactor *r, const IterVar *axis)
{
  Module *m = r->s->m;
  const Relation *rel = te_stage_relation_of(r->st, axis);
  if (!rel) return map_get(&r->leaf, axis->var);
  Analyzer *an = analyzer_new(m, scratch(r->s->ctx));
  if (!rel->fuse) {
    const Expr *outer = axis_value(r, rel->outer);
    const Expr *inner = axis_value(r, rel->inner);
    const Expr *value = expr_add(m, expr_mul(m, outer, rel->inner->extent), inner);
    if (!analyzer_prove_equal(an, expr_mul(m, rel->outer->extent, rel->inner->extent), axis->extent))
      r->inside = expr_and(m, r->inside, expr_lt(m, value, axis->extent));
    return value;
  }
  const Expr *value = axis_value(r, rel->fused);
  for (int i = rel->npart - 1; i >= 0; i--) {
    const Expr *e = rel->part[i]->extent;
    if (rel->part[i] == axis) return i ? expr_floormod(m, value, e) : value;
    value = expr_floordiv(m, value, e);
  }
  BUG(r->s->ctx, "axis '%s' is not part of the fused axis", axis->var->name);
}

static const IterVar *fresh_axis(TeSched *s, const char *name, const IterVar *like, IterKind kind)
{
  const Var *v = var_new(s->m, name, like->var->dtype, VAR_PLAIN);
  return itervar_new(s->m, v, expr_int(s->m, v->dtype, 0), like->extent, kind, NULL);
}

/* t.rf: the factored axis among the spatial ones, the other leaves reduced. */
static const TeOp *factored_op(Rfactor *r, const Expr *e)
{
  TeSched *s = r->s;
  Module *m = s->m;
  Arena *arena = scratch(s->ctx);
  const TeOp *op = r->st->op;
  int n = op->naxis + 1;
  int next = 0;
  int nvalue = e->u.reduce->reducer->n;
  const IterVar **axis = arena_array(arena, const IterVar *, n);
  const Expr **shape = arena_array(arena, const Expr *, n);
  Map subst = {0};
  for (int i = 0; i < n; i++) {
    const IterVar *like = i == r->place ? r->axis : op->axis[next++];
    axis[i] = fresh_axis(s, like->var->name, like, ITER_SPATIAL);
    shape[i] = like->extent;
    map_put(arena, i == r->place ? &r->leaf : &subst, like->var, (void *)(uintptr_t)axis[i]->var->expr);
  }
  Vec(const IterVar *) rest = {0};
  for (int i = 0; i < r->st->leaves.n; i++) {
    const IterVar *leaf = r->st->leaves.v[i];
    if (leaf->kind != ITER_REDUCE || leaf == r->axis) continue;
    vec_push(arena, &rest, fresh_axis(s, leaf->var->name, leaf, ITER_REDUCE));
    map_put(arena, &r->leaf, leaf->var, (void *)(uintptr_t)rest.v[rest.n - 1]->var->expr);
  }
  r->inside = expr_bool(m, true);
  for (int i = 0; i < op->nreduce; i++) {
    const IterVar *k = op->reduce_axis[i];
    const Expr *value = axis_value(r, k);
    if (!expr_is_int(k->min, 0)) value = expr_add(m, value, k->min);
    map_put(arena, &subst, k->var, (void *)(uintptr_t)value);
  }
  const Expr *cond = expr_substitute(m, e->arg[nvalue], &subst);
  if (expr_is_int(cond, 1)) cond = r->inside;
  else if (!expr_is_int(r->inside, 1)) cond = expr_and(m, r->inside, cond);
  const Expr **source = arena_array(arena, const Expr *, nvalue);
  const Expr **body = arena_array(arena, const Expr *, nvalue);
  for (int v = 0; v < nvalue; v++) source[v] = expr_substitute(m, e->arg[v], &subst);
  for (int v = 0; v < nvalue; v++) {
    if (rest.n) body[v] = expr_reduce(m, e->u.reduce->reducer, nvalue, source, rest.n, rest.v, cond, NULL, v);
    else if (expr_is_int(cond, 1)) body[v] = source[v];
    else
      body[v] = expr_call(m, source[v]->dtype, IN_IF_THEN_ELSE, 3,
                          (const Expr *[]){cond, source[v], e->u.reduce->reducer->identity[v]});
  }
  return te_compute(m, arena_printf(arena, "%s.rf", op->name), op->tag, n, shape, axis, nvalue, body, NULL);
}

/* The operation that reduces the factored axis. */
static const TeOp *final_op(Rfactor *r, const Expr *e)
{
  Module *m = r->s->m;
  Arena *arena = scratch(r->s->ctx);
  const TeOp *op = r->st->op;
  const TeOp *rf = r->factored;
  int n = e->u.reduce->reducer->n;
  const IterVar *k = fresh_axis(r->s, arena_printf(arena, "%s_v", r->axis->var->name), r->axis, ITER_REDUCE);
  const Expr **index = arena_array(arena, const Expr *, rf->naxis);
  int next = 0;
  for (int i = 0; i < rf->naxis; i++) index[i] = i == r->place ? k->var->expr : op->axis[next++]->var->expr;
  const Expr **source = arena_array(arena, const Expr *, n);
  const Expr **body = arena_array(arena, const Expr *, n);
  for (int v = 0; v < n; v++) source[v] = te_read(m, &rf->out[v], rf->naxis, index);
  for (int v = 0; v < n; v++)
    body[v] = expr_reduce(m, e->u.reduce->reducer, n, source, 1, &k, expr_bool(m, true),
                          e->u.reduce->has_init ? (const Expr *const *)(e->arg + n + 1) : NULL, v);
  return te_compute(m, op->name, op->tag, op->naxis, op->out[0].buffer->shape, op->axis, n, body, &op->attrs);
}

static void apply_rfactor(void *env)
{
  Rfactor *r = env;
  TeSched *s = r->s;
  TeStage *st = r->st;
  const TeOp *old = st->op;
  const Expr *e = te_plain_reduce(old);
  r->factored = factored_op(r, e);
  te_stage_set_op(st, final_op(r, e));
  TeStage *rf = te_stage_new(s, r->factored);
  rf->cache = true;
  te_stage_reset_leaves(rf);
  TeStage before = *st;
  memset(&st->relations, 0, sizeof st->relations);
  memset(&st->leaves, 0, sizeof st->leaves);
  for (int i = 0; i < before.relations.n; i++)
    if (!of_kind(&before.relations.v[i], ITER_REDUCE)) vec_push(s->arena, &st->relations, before.relations.v[i]);
  for (int i = 0; i < before.leaves.n; i++)
    if (before.leaves.v[i]->kind != ITER_REDUCE) vec_push(s->arena, &st->leaves, before.leaves.v[i]);
  vec_push(s->arena, &st->leaves, st->op->reduce_axis[0]);
  te_sched_insert(s, st, rf);
  Map map = {0};
  for (int i = 0; i < old->nout; i++) map_put(scratch(s->ctx), &map, &old->out[i], &st->op->out[i]);
  te_sched_hand_on(s, &map, st);
}

static void need_unmarked(const TeStage *st)
{
  for (int i = 0; i < st->marks.n; i++)
    if (st->marks.v[i].axis->kind == ITER_REDUCE)
      te_refuse(
          st->s,
          "rfactor: reduce axis '%s' of stage '%s' is marked already; mark the axes of the factored stage instead",
          st->marks.v[i].axis->var->name, st->op->name);
  for (int i = 0; i < st->s->stages.n; i++) {
    const TeStage *p = st->s->stages.v[i];
    if (p->attach == ATTACH_AT && p->at == st)
      te_refuse(st->s, "rfactor: stage '%s' is computed at axis '%s' of stage '%s'; factor first, then attach",
                p->op->name, p->at_axis->var->name, st->op->name);
  }
}

int te_sched_rfactor(TeSched *s, const Tensor *tensor, const IterVar *axis, int factor_axis, const Tensor **out)
{
  Scope scratch_scope = scope_begin(s->ctx);
  TeStage *st = te_sched_stage(s, tensor->op);
  const TeOp *op = st->op;
  te_stage_need_leaf(st, "rfactor", axis);
  if (axis->kind != ITER_REDUCE)
    te_refuse(s, "rfactor: axis '%s' of stage '%s' is not a reduction", axis->var->name, op->name);
  if (!te_plain_reduce(op))
    raise(s->ctx, ERR_UNSUPPORTED, NOWHERE,
          "rfactor: the reduction of stage '%s' sits inside a larger expression; compute it as a tensor of its own",
          op->name);
  if (st->step) raise(s->ctx, ERR_UNSUPPORTED, NOWHERE, "rfactor: stage '%s' runs inside a scan", op->name);
  if (st->intrin) te_refuse(s, "rfactor: stage '%s' is tensorized; factor first", op->name);
  need_unmarked(st);
  int place = factor_axis < 0 ? factor_axis + op->naxis + 1 : factor_axis;
  if (place < 0 || place > op->naxis)
    te_refuse(s, "rfactor of '%s': factor_axis is %d; it must be between %d and %d", op->name, factor_axis,
              -op->naxis - 1, op->naxis);
  Rfactor r = {.s = s, .st = st, .axis = axis, .place = place};
  te_stage_change(s, apply_rfactor, &r, true);
  for (int i = 0; i < op->nout; i++) out[i] = &r.factored->out[i];
  scope_end(s->ctx, scratch_scope);
  return op->nout;
}
