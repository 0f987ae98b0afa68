/* rfactor.c: partial results of a reduction along one of its loops.
 *
 *   for i, k0, k1:  C[i] = C[i] + f(i, k0, k1)
 * factored at k0, with the new axis in place factor_axis of the buffer
 *   for i, k0, k1:  C_rf[i, k0] = C_rf[i, k0] + f(i, k0, k1)     k0 is spatial here
 *   for i, k0:      C[i] = C[i] + C_rf[i, k0]                    the rest
 * The update is taken as one of the known reducers, which gives the identity that
 * the partial results start from and how they are put together. */
#include "schedule/engine.h"

typedef struct Factor {
  Sched *s;
  Stmt *block, *loop;  /* loop: the one that becomes spatial */
  Block *b;            /* as it was */
  int n;               /* values reduced at once */
  Stmt **store;        /* … stored by these */
  const Expr **source; /* … of what each step adds */
  const Reducer *reducer;
  const Buffer **partial; /* C_rf of each */
  int axis;
  int nloop;
  Stmt **nest; /* loops that hold only this block, outermost first */
} Factor;

static void find_reducer(Factor *v)
{
  BlockUpdate u;
  const char *why = block_update(v->s->m, scratch(v->s->ctx), v->b, &u);
  if (why) raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: the update of %s %s", tree_what(v->s, v->block), why);
  v->n = u.n;
  v->store = u.store;
  v->source = u.source;
  v->reducer = u.reducer;
}

/* ---- checks --------------------------------------------------------------------------------- */

static void check_nest(Factor *v)
{
  Sched *s = v->s;
  Stmt *top = tree_nest(v->block);
  v->nloop = tree_loops_below(scratch(s->ctx), v->block, top->parent, &v->nest);
  bool inside = false;
  for (int i = 0; i < v->nloop; i++) {
    int roles = facts_roles(v->b, LOOPVAR(v->nest[i]));
    inside |= v->nest[i] == v->loop;
    if (roles >> ITER_SPATIAL & roles >> ITER_REDUCE & 1)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: %s runs over spatial and reduction variables of %s at once",
            tree_what(s, v->nest[i]), tree_what(s, v->block));
    for (int k = 0; k < i; k++)
      if (expr_uses_var(v->nest[i]->u.loop.extent, LOOPVAR(v->nest[k])))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: the bounds of %s depend on %s", tree_what(s, v->nest[i]),
              tree_what(s, v->nest[k]));
  }
  if (!inside)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: %s holds other blocks besides %s", tree_what(s, v->loop),
          tree_what(s, v->block));
  for (Stmt *p = top->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind == S_FOR && facts_roles(v->b, LOOPVAR(p)) >> ITER_REDUCE & 1)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: %s of the reduction of %s holds other blocks too", tree_what(s, p),
            tree_what(s, v->block));
  int roles = facts_roles(v->b, LOOPVAR(v->loop));
  if (roles != 1 << ITER_REDUCE && !(roles == 0 && expr_is_int(v->loop->u.loop.extent, 1)))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: %s is not a loop of the reduction of %s", tree_what(s, v->loop),
          tree_what(s, v->block));
  if (v->loop->u.loop.kind != FOR_SERIAL)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: %s is not serial; factor first and mark after",
          tree_what(s, v->loop));
}

static Stmt *reduction_under(Sched *s, Stmt *loop)
{
  Stmt **block;
  int n = tree_blocks(scratch(s->ctx), loop, &block);
  if (n != 1)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: %s holds %d blocks; it must hold just the reduction",
          tree_what(s, loop), n);
  tree_check_plain(s, "rfactor", block[0]);
  facts_check_affine(s, "rfactor", block[0]);
  sched_check_starts(s, "rfactor", block[0]);
  const char *why = facts_not_reduction(s, block[0]);
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: %s is not a whole reduction: %s", tree_what(s, block[0]), why);
  return block[0];
}

/* ---- the two blocks --------------------------------------------------------------------------- */

static const Expr **with_axis(Factor *v, int n, const Expr *const *index, const Expr *extra)
{
  const Expr **out = arena_array(v->s->m->arena, const Expr *, n + 1);
  for (int d = 0; d <= n; d++) out[d] = d < v->axis ? index[d] : d == v->axis ? extra : index[d - 1];
  return out;
}

static void make_partial_buffers(Factor *v)
{
  v->partial = arena_array(scratch(v->s->ctx), const Buffer *, v->n);
  for (int i = 0; i < v->n; i++) {
    const Buffer *c = v->store[i]->u.store.buffer;
    const Expr **shape = with_axis(v, c->ndim, c->shape, v->loop->u.loop.extent);
    const char *name = tree_buffer_name(v->s, arena_printf(scratch(v->s->ctx), "%s_rf", c->name));
    v->partial[i] = buffer_new(v->s->m, name, c->dtype, c->ndim + 1, shape, NULL, NULL, c->scope, 0, 0, NULL);
    sched_block_add_alloc(v->s, tree_scope(v->s, v->block), v->partial[i]);
  }
}

typedef struct Redirect {
  Factor *v;
  const Expr *at;
} Redirect;

static const Expr *redirect_load(Rewriter *rw, const Expr *e)
{
  Redirect *r = rw->env;
  for (int i = 0; e->kind == E_LOAD && i < r->v->n; i++)
    if (e->u.buffer == r->v->store[i]->u.store.buffer)
      return expr_load(r->v->s->m, r->v->partial[i], e->nargs + 1, with_axis(r->v, e->nargs, e->arg, r->at));
  return e;
}

static const Expr *redirect_expr(void *env, const Expr *e) { return expr_rewrite(env, e); }

static bool redirect_store(void *env, Stmt *st)
{
  Redirect *r = ((Rewriter *)env)->env;
  for (int i = 0; st->kind == S_STORE && i < r->v->n; i++)
    if (st->u.store.buffer == r->v->store[i]->u.store.buffer) {
      st->u.store.index = with_axis(r->v, st->u.store.n, st->u.store.index, r->at);
      st->u.store.n++;
      st->u.store.buffer = r->v->partial[i];
      break;
    }
  return true;
}

/* Variables of the partial block: the new one, the spatial ones, the reductions left.
 * subst receives what the replaced ones stand for. */
static void partial_iters(Factor *v, Block *rf, const Var *at, Map *subst)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  Map loops = {0}; /* loop variable -> its own reduction variable */
  rf->iter = arena_array(s->m->arena, BlockIter, v->b->niter + v->nloop + 1);
  rf->iter[rf->niter++] =
      (BlockIter){at, v->loop->u.loop.min, v->loop->u.loop.extent, ITER_SPATIAL, var_expr(LOOPVAR(v->loop))};
  for (int i = 0; i < v->b->niter; i++)
    if (v->b->iter[i].kind == ITER_SPATIAL) rf->iter[rf->niter++] = v->b->iter[i];
  map_put(tmp, &loops, LOOPVAR(v->loop), (void *)var_expr(at));
  for (int i = 0; i < v->b->niter; i++) {
    const BlockIter *it = &v->b->iter[i];
    if (it->kind != ITER_REDUCE) continue;
    if (!expr_uses_var(it->value, LOOPVAR(v->loop))) {
      rf->iter[rf->niter++] = *it;
      continue;
    }
    for (int k = 0; k < v->nloop; k++) {
      const Stmt *l = v->nest[k];
      if (!expr_uses_var(it->value, LOOPVAR(l)) || map_has(&loops, LOOPVAR(l))) continue;
      const Var *own = var_new(s->m, arena_printf(s->m->arena, "v%s", LOOPVAR(l)->name), LOOPVAR(l)->dtype, VAR_PLAIN);
      rf->iter[rf->niter++] = (BlockIter){own, l->u.loop.min, l->u.loop.extent, ITER_REDUCE, var_expr(LOOPVAR(l))};
      map_put(tmp, &loops, LOOPVAR(l), (void *)var_expr(own));
    }
    map_put(tmp, subst, it->var, (void *)expr_substitute(s->m, it->value, &loops));
  }
}

static bool still_reduces(const Block *rf)
{
  for (int i = 0; i < rf->niter; i++)
    if (rf->iter[i].kind == ITER_REDUCE) return true;
  return false;
}

/* What the partial block starts from; where it reduces no more, what it is. */
static Stmt *partial_stores(Factor *v, const Var *at, const Expr *const *value)
{
  Sched *s = v->s;
  Stmt **store = arena_array(scratch(s->ctx), Stmt *, v->n);
  for (int i = 0; i < v->n; i++) {
    const Stmt *st = v->store[i];
    const Expr **index = with_axis(v, st->u.store.n, st->u.store.index, var_expr(at));
    store[i] = stmt_store(s->m, v->partial[i], st->u.store.n + 1, index, value[i]);
  }
  return stmt_seq(s->m, v->n, store);
}

static Stmt *partial_block(Factor *v)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  Block *rf = arena_new_of(s->m->arena, Block);
  const Var *at =
      var_new(s->m, arena_printf(s->m->arena, "v%s", LOOPVAR(v->loop)->name), LOOPVAR(v->loop)->dtype, VAR_PLAIN);
  Map subst = {0};
  partial_iters(v, rf, at, &subst);
  rf->name = tree_block_name(s, arena_printf(tmp, "%s_rf", v->b->name));
  rf->predicate = v->b->predicate;
  for (int i = 0; i < v->b->annots.n; i++)
    annots_set(s->m->arena, &rf->annots, v->b->annots.v[i].key, v->b->annots.v[i].value);
  if (still_reduces(rf)) {
    rf->body = stmt_clone_fresh(s->m, v->b->body, NULL);
    rf->init = partial_stores(v, at, v->reducer->identity);
  } else rf->body = partial_stores(v, at, v->source);
  Stmt *out = stmt_block(s->m, rf);
  Redirect r = {v, var_expr(at)};
  Rewriter rw = {.m = s->m, .fn = redirect_load, .env = &r, .arena = tmp};
  stmt_rewrite_exprs(rf->body, redirect_expr, &rw);
  stmt_visit(rf->body, redirect_store, &rw);
  stmt_substitute(s->m, rf->body, &subst);
  /* the predicate now says which of the new variables' values occur together */
  if (rf->predicate && subst.n) vec_push(s->m->arena, &s->guarded, out->id);
  return out;
}

/* C = combine(C, C_rf), over the original's statement so that it keeps its name. */
static void final_block(Factor *v, Map *vars)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  Block *wb = arena_new_of(s->m->arena, Block);
  wb->name = v->b->name;
  wb->annots = v->b->annots;
  wb->iter = arena_array(s->m->arena, BlockIter, v->b->niter + 1);
  const Var *at =
      var_new(s->m, arena_printf(s->m->arena, "v%s", LOOPVAR(v->loop)->name), LOOPVAR(v->loop)->dtype, VAR_PLAIN);
  const Expr *along = map_get(vars, LOOPVAR(v->loop));
  wb->iter[wb->niter++] = (BlockIter){at, v->loop->u.loop.min, v->loop->u.loop.extent, ITER_REDUCE, along};
  Map subst = {0};
  for (int i = 0; i < v->b->niter; i++) {
    if (v->b->iter[i].kind != ITER_SPATIAL) continue;
    BlockIter *it = &wb->iter[wb->niter++];
    *it = v->b->iter[i];
    it->var = var_new(s->m, it->var->name, it->var->dtype, VAR_PLAIN);
    it->value = expr_substitute(s->m, it->value, vars);
    map_put(tmp, &subst, v->b->iter[i].var, (void *)var_expr(it->var));
  }
  Map values = {0};
  const Expr ***index = arena_array(tmp, const Expr **, v->n);
  for (int i = 0; i < v->n; i++) {
    const Stmt *st = v->store[i];
    int nd = st->u.store.n;
    index[i] = arena_array(tmp, const Expr *, nd);
    for (int d = 0; d < nd; d++) index[i][d] = expr_substitute(s->m, st->u.store.index[d], &subst);
    map_put(tmp, &values, v->reducer->lhs[i], (void *)expr_load(s->m, st->u.store.buffer, nd, index[i]));
    map_put(tmp, &values, v->reducer->rhs[i],
            (void *)expr_load(s->m, v->partial[i], nd + 1, with_axis(v, nd, index[i], var_expr(at))));
  }
  Stmt **store = arena_array(tmp, Stmt *, v->n);
  Stmt *body;
  const Var **var = arena_array(tmp, const Var *, v->n);
  for (int i = 0; i < v->n; i++) {
    const Expr *value = expr_substitute(s->m, v->reducer->result[i], &values);
    var[i] =
        var_new(s->m, arena_printf(s->m->arena, "v_%s", v->store[i]->u.store.buffer->name), value->dtype, VAR_PLAIN);
    store[i] = stmt_store(s->m, v->store[i]->u.store.buffer, v->store[i]->u.store.n, index[i],
                          v->n > 1 ? var_expr(var[i]) : value);
  }
  body = stmt_seq(s->m, v->n, store);
  for (int i = v->n - 1; i >= 0 && v->n > 1; i--)
    body = stmt_let(s->m, var[i], expr_substitute(s->m, v->reducer->result[i], &values), body);
  wb->init = v->b->init;
  stmt_substitute(s->m, wb->init, &subst);
  wb->body = body;
  v->block->u.block = wb;
  stmt_link(v->block, NULL);
  block_infer_access(s->m, wb);
}

static void read_axis(Factor *v, int64_t axis)
{
  int ndim = v->store[0]->u.store.n;
  for (int i = 1; i < v->n; i++)
    if (v->store[i]->u.store.n != ndim)
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "rfactor: the results of %s have different ranks",
            tree_what(v->s, v->block));
  if (axis < -(ndim + 1) || axis > ndim)
    raise(v->s->ctx, ERR_ARGUMENT, NOWHERE,
          "rfactor: factor_axis %" PRId64 " is not in [%d, %d], the places in a result of %d dimensions", axis,
          -(ndim + 1), ndim, ndim);
  v->axis = (int)(axis < 0 ? axis + ndim + 1 : axis);
}

SchedArg prim_rfactor(Sched *s, SchedArg *a)
{
  Factor v = {.s = s, .loop = sched_arg_loop(s, &a[0])};
  v.block = reduction_under(s, v.loop);
  v.b = BLOCK(v.block);
  bool guarded = facts_guarded(s, v.block);
  check_nest(&v);
  find_reducer(&v);
  read_axis(&v, sched_arg_int(s, &a[1]));
  make_partial_buffers(&v);

  Stmt *top = tree_nest(v.block);
  Stmt *rf = partial_block(&v);
  Stmt *nest = v.block;
  if (guarded) vec_push(s->m->arena, &s->guarded, rf->id);
  Map vars = {0};
  for (int i = v.nloop - 1; i >= 0; i--)
    if (v.nest[i] == v.loop || facts_roles(v.b, LOOPVAR(v.nest[i])) >> ITER_SPATIAL & 1) {
      nest = sched_copy_loop(s, v.nest[i], &vars, nest == v.block ? stmt_nop(s->m) : nest);
    }
  v.nest[v.nloop - 1]->u.loop.body = rf;
  stmt_link(v.nest[v.nloop - 1], v.nest[v.nloop - 1]->parent);
  const Expr *predicate = sched_first_step_predicate(s, v.b->predicate, v.nloop, v.nest, &vars);
  final_block(&v, &vars);
  BLOCK(v.block)->predicate = predicate;
  Stmt *innermost = nest;
  while (innermost->u.loop.body->kind == S_FOR) innermost = innermost->u.loop.body;
  innermost->u.loop.body = v.block;
  stmt_link(nest, NULL);
  tree_insert_beside(s, top, true, nest);
  facts_simplify_below(s, nest);
  const Expr *left = BLOCK(v.block)->predicate;
  if (left &&
      expr_uses_var(left,
                    map_get(&vars, LOOPVAR(v.loop)) ? ((const Expr *)map_get(&vars, LOOPVAR(v.loop)))->u.var : NULL))
    vec_push(s->m->arena, &s->guarded, v.block->id);
  block_infer_access(s->m, BLOCK(rf));
  facts_simplify_below(s, top);
  facts_refresh(s, v.block);
  facts_check_above(s, "rfactor", v.block);
  facts_check_above(s, "rfactor", rf);
  return sched_result_block(s, rf);
}
