/* inline.c: putting a block's expression where its result is used, or where its
 * input is made.
 *
 * compute_inline          B[i] = f(i);  C[j] = g(B[h(j)])   ->  C[j] = g(f(h(j)))
 * reverse_compute_inline  B[i] = f(i);  C[h'(b)] = g(B[b])  ->  C[h'(i)] = g(f(i))
 * Both need a block that is one store, and leave no trace of B. */
#include "schedule/engine.h"

static Stmt *only_store(Sched *s, const char *prim, Stmt *block)
{
  Block *b = BLOCK(block);
  if (b->init || b->body->kind != S_STORE)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s is %s, not one store", prim, tree_what(s, block),
          b->init ? "a reduction" : "more than a store");
  return b->body;
}

static void check_inlinable(Sched *s, const char *prim, Stmt *block)
{
  tree_scope(s, block);
  tree_check_plain(s, prim, block);
  if (facts_guarded(s, block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s came with a predicate of its own, which says where it runs", prim,
          tree_what(s, block));
  only_store(s, prim, block);
  const char *why = facts_not_complete(s, block);
  if (why) raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s is not a complete block: %s", prim, tree_what(s, block), why);
  facts_check_inputs_final(s, prim, block);
}

/* Raises if something other than a load refers to the buffer (a pointer, a view). */
typedef struct Opaque {
  Ctx *ctx;
  const Buffer *buffer;
  bool found;
} Opaque;

static void note_address(void *env, const Expr *e)
{
  Opaque *o = env;
  o->found |= e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF && e->arg[0]->u.buffer == o->buffer;
}

static void note_pointer(void *env, Stmt *holder, const Expr *e)
{
  Opaque *o = env;
  (void)holder;
  o->found |= expr_uses_var(e, o->buffer->data);
  expr_visit(o->ctx, e, note_address, o);
}

static bool note_view(void *env, Stmt *stmt)
{
  Opaque *o = env;
  for (int i = 0; stmt->kind == S_BLOCK && i < BLOCK(stmt)->nmatches; i++)
    o->found |= BLOCK(stmt)->matches[i].source.buffer == o->buffer;
  return true;
}

static void check_only_loads(Sched *s, const char *prim, Stmt *reader, const Buffer *buffer)
{
  Opaque o = {s->ctx, buffer, false};
  stmt_visit_exprs(reader, note_pointer, &o);
  stmt_visit(reader, note_view, &o);
  if (o.found)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s uses the memory of buffer '%s' itself, not only its elements", prim,
          tree_what(s, reader), buffer->name);
}

/* ---- compute_inline ------------------------------------------------------------------------- */

typedef struct Inline {
  Sched *s;
  const Stmt *store;
  const Block *block;
  int *index_of;      /* which index gives each variable; -1: its only value */
  const Expr **fixed; /* of an index that is the same for all instances, else NULL */
  Stmt *reader;
  Analyzer *an; /* knows the reader's variables */
} Inline;

/* Each index a variable of the block, each variable once. */
static void read_index(Inline *v, Stmt *block)
{
  Sched *s = v->s;
  const Block *b = v->block;
  v->index_of = arena_array(scratch(s->ctx), int, b->niter);
  v->fixed = arena_array(scratch(s->ctx), const Expr *, v->store->u.store.n);
  for (int i = 0; i < b->niter; i++) v->index_of[i] = -1;
  for (int d = 0; d < v->store->u.store.n; d++) {
    const Expr *e = v->store->u.store.index[d];
    int i = 0;
    while (i < b->niter && e != var_expr(b->iter[i].var)) i++;
    bool fixed = true;
    for (int k = 0; k < b->niter; k++) fixed &= !expr_uses_var(e, b->iter[k].var);
    v->fixed[d] = fixed ? e : NULL;
    if (fixed) continue;
    if (i == b->niter || v->index_of[i] >= 0)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "compute_inline: %s stores at the index %s, which is no variable of its own, or one used twice",
            tree_what(s, block), expr_str_of(scratch(s->ctx), e));
    v->index_of[i] = d;
  }
  for (int i = 0; i < b->niter; i++)
    if (v->index_of[i] < 0 && !expr_is_int(b->iter[i].extent, 1))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "compute_inline: the variable '%s' of %s is not among the indices it stores at", b->iter[i].var->name,
            tree_what(s, block));
}

static const Expr *inline_load(Rewriter *rw, const Expr *e)
{
  Inline *v = rw->env;
  if (e->kind != E_LOAD || e->u.buffer != v->store->u.store.buffer) return e;
  for (int d = 0; d < e->nargs; d++)
    if (v->fixed[d] && !analyzer_prove_equal(v->an, e->arg[d], v->fixed[d]))
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
            "compute_inline: %s reads buffer '%s' at %s in dimension %d, where only %s is stored",
            tree_what(v->s, v->reader), e->u.buffer->name, expr_str_of(scratch(v->s->ctx), e->arg[d]), d,
            expr_str_of(scratch(v->s->ctx), v->fixed[d]));
  Map map = {0};
  for (int i = 0; i < v->block->niter; i++) {
    const BlockIter *it = &v->block->iter[i];
    const Expr *value = v->index_of[i] < 0 ? it->min : e->arg[v->index_of[i]];
    map_put(scratch(v->s->ctx), &map, it->var, (void *)expr_cast(v->s->m, it->var->dtype, value));
  }
  return expr_substitute(v->s->m, v->store->u.store.value, &map);
}

static const Expr *inline_expr(void *env, const Expr *e)
{
  Rewriter *rw = env;
  return expr_rewrite(rw, e);
}

static const Expr *simplify_expr(void *env, const Expr *e) { return expr_simplify(env, e); }

void sched_simplify_body(Sched *s, Stmt *block)
{
  Analyzer *an = facts_analyzer_named(s, block);
  stmt_rewrite_exprs(BLOCK(block)->body, simplify_expr, an);
  if (BLOCK(block)->init) stmt_rewrite_exprs(BLOCK(block)->init, simplify_expr, an);
}

/* Bindings say where a block is; those of its body are rewritten, its own are not. */
static void check_outer_loads(Sched *s, Stmt *reader, const Buffer *buffer)
{
  for (int i = 0; i < BLOCK(reader)->niter; i++)
    if (expr_uses_buffer(BLOCK(reader)->iter[i].value, buffer))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "compute_inline: the binding of '%s' of %s reads buffer '%s', so it has to stay",
            BLOCK(reader)->iter[i].var->name, tree_what(s, reader), buffer->name);
}

void sched_inline_block(Sched *s, Stmt *block)
{
  Arena *tmp = scratch(s->ctx);
  check_inlinable(s, "compute_inline", block);
  facts_check_not_output(s, "compute_inline", block);
  Inline v = {.s = s, .store = only_store(s, "compute_inline", block), .block = BLOCK(block)};
  read_index(&v, block);
  const Buffer *buffer = v.store->u.store.buffer;
  Stmt **consumer;
  int n = facts_consumers(tmp, block, &consumer);
  for (int i = 0; i < n; i++) {
    Rewriter rw = {.m = s->m, .fn = inline_load, .env = &v, .arena = tmp};
    v.reader = consumer[i];
    v.an = facts_analyzer(s, consumer[i]);
    facts_bind_below(v.an, consumer[i]);
    check_only_loads(s, "compute_inline", consumer[i], buffer);
    check_outer_loads(s, consumer[i], buffer);
    if (BLOCK(consumer[i])->predicate) BLOCK(consumer[i])->predicate = expr_rewrite(&rw, BLOCK(consumer[i])->predicate);
    stmt_rewrite_exprs(BLOCK(consumer[i])->body, inline_expr, &rw);
    if (BLOCK(consumer[i])->init) stmt_rewrite_exprs(BLOCK(consumer[i])->init, inline_expr, &rw);
    sched_simplify_body(s, consumer[i]);
  }
  tree_remove(s, block);
  sched_func_drop_alloc(s, buffer);
  for (int i = 0; i < n; i++) facts_refresh(s, consumer[i]);
}

SchedArg prim_compute_inline(Sched *s, SchedArg *a)
{
  sched_inline_block(s, sched_arg_block(s, &a[0]));
  return sched_arg_none;
}

/* ---- reverse_compute_inline ------------------------------------------------------------------- */

typedef struct Reverse {
  Sched *s;
  Stmt *block, *producer;
  const Stmt *store, *made; /* the consumer's store, the producer's */
  const Buffer *buffer;
  const Expr **index; /* where the consumer reads the buffer */
  bool found;
} Reverse;

static void note_read(void *env, const Expr *e)
{
  Reverse *v = env;
  if (e->kind != E_LOAD || e->u.buffer != v->buffer) return;
  for (int d = 0; d < e->nargs; d++) {
    if (v->found && v->index[d] != e->arg[d])
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: %s reads buffer '%s' at different indices",
            tree_what(v->s, v->block), v->buffer->name);
    v->index[d] = e->arg[d];
  }
  v->found = true;
}

static Stmt *only_producer(Sched *s, Stmt *block, const Buffer **buffer)
{
  Arena *tmp = scratch(s->ctx);
  Stmt **producer, **reader;
  Stmt *scope = tree_scope(s, block);
  int n = facts_producers(tmp, s, block, &producer);
  Stmt *last = NULL;
  for (int i = 0; i < n; i++)
    if (!last || tree_before(s, last, producer[i])) last = producer[i];
  if (!last)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: no block produces what %s reads",
          tree_what(s, block));
  *buffer = BLOCK(last)->writes[0].buffer;
  const char *why = facts_not_complete(s, last);
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: the producer %s of %s is not a complete block: %s",
          tree_what(s, last), tree_what(s, block), why);
  facts_check_not_output(s, "reverse_compute_inline", last);
  n = facts_readers(tmp, scope, *buffer, &reader);
  for (int i = 0; i < n; i++)
    if (reader[i] != block)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: %s reads buffer '%s' too, so it has to stay",
            tree_what(s, reader[i]), (*buffer)->name);
  return last;
}

/* The variables as functions of the buffer's indices, if they are a bijection onto all of it; else why not. */
static const char *invert(Reverse *v, Analyzer *an, const IterVar *const *loops, const Var *const *at, const Expr **out)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  const Block *b = BLOCK(v->block);
  const char *why = NULL;
  if (!itermap_inverse(an, v->buffer->ndim, v->index, b->niter, loops, at, out, &why))
    return arena_printf(tmp, "does not read each element of buffer '%s' once%s%s", v->buffer->name, why ? ": " : "",
                        why ? why : "");
  const Var **vars = arena_array(tmp, const Var *, b->niter);
  for (int i = 0; i < b->niter; i++) vars[i] = b->iter[i].var;
  for (int d = 0; d < v->buffer->ndim; d++) {
    const Expr *lo, *hi;
    const Expr *end = expr_sub(s->m, v->buffer->shape[d], sched_const_like(s, v->buffer->shape[d], 1));
    bool whole = analyzer_relax(an, v->index[d], b->niter, vars, &lo, &hi) &&
                 analyzer_prove_equal(an, lo, sched_const_like(s, lo, 0)) && analyzer_prove_equal(an, hi, end);
    if (!whole) return arena_printf(tmp, "reads only a part of buffer '%s' along dimension %d", v->buffer->name, d);
  }
  return NULL;
}

/* The variables over domains large enough to read all of the buffer: a variable that is an index by itself goes as far
 * as the buffer, one that is taken apart ends with a whole part. */
static const IterVar *const *widen_iters(Reverse *v, Analyzer *an)
{
  Sched *s = v->s;
  const Block *b = BLOCK(v->block);
  const IterVar **out = arena_array(scratch(s->ctx), const IterVar *, b->niter);
  for (int i = 0; i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    IterVar *iv = arena_new_of(scratch(s->ctx), IterVar);
    *iv = (IterVar){.var = it->var, .min = it->min, .extent = it->extent, .kind = ITER_SPATIAL};
    int64_t step = sched_index_step(s, it->var, v->buffer->ndim, v->index);
    const Expr *c = sched_const_like(s, it->extent, step);
    if (step > 1) iv->extent = expr_simplify(an, expr_mul(s->m, sched_ceil_div(s, it->extent, c), c));
    for (int d = 0; d < v->buffer->ndim; d++)
      if (v->index[d] == var_expr(it->var)) iv->extent = expr_cast(s->m, it->extent->dtype, v->buffer->shape[d]);
    out[i] = iv;
    if (expr_is_int(it->min, 0)) analyzer_bind(an, it->var, it->min, iv->extent);
  }
  return out;
}

/* The consumer's variables as functions of the buffer's indices.  *inside, if it is not NULL then: the elements that
 * the consumer reads at all. */
static const Expr **solve_vars(Reverse *v, const Var **at, const Expr **inside)
{
  Sched *s = v->s;
  const Block *b = BLOCK(v->block);
  for (int d = 0; d < v->buffer->ndim; d++) at[d] = var_new(s->m, "b", v->index[d]->dtype, VAR_PLAIN);
  const Expr **out = arena_array(scratch(s->ctx), const Expr *, b->niter);
  *inside = NULL;
  const char *why = invert(v, facts_analyzer(s, v->block), sched_iters_as_loops(s, b), at, out);
  if (!why) return out;
  Analyzer *an = facts_analyzer(s, tree_scope(s, v->block));
  const IterVar *const *wide = widen_iters(v, an);
  if (invert(v, an, wide, at, out))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: %s %s", tree_what(s, v->block), why);
  for (int i = 0; i < b->niter; i++)
    if (wide[i]->extent != b->iter[i].extent)
      *inside = sched_both(s, *inside, expr_lt(s->m, out[i], b->iter[i].extent));
  return out;
}

static const Expr *put_value(Rewriter *rw, const Expr *e)
{
  Reverse *v = rw->env;
  return e->kind == E_LOAD && e->u.buffer == v->buffer ? v->made->u.store.value : e;
}

static void check_other_inputs(Reverse *v)
{
  Stmt **producer;
  int n = facts_producers(scratch(v->s->ctx), v->s, v->block, &producer);
  for (int i = 0; i < n; i++)
    for (Stmt *p = v->producer->parent; producer[i] != v->producer && p && p->kind != S_BLOCK; p = p->parent)
      if (p->kind == S_FOR && tree_under(producer[i], p))
        raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
              "reverse_compute_inline: %s also reads what %s writes in the same loop as %s", tree_what(v->s, v->block),
              tree_what(v->s, producer[i]), tree_what(v->s, v->producer));
}

/* The producer runs only where the condition over its variables holds, which is a predicate of its own. */
static void run_inside(Sched *s, Stmt *producer, const Expr *cond)
{
  Block *b = BLOCK(producer);
  Map values = {0};
  for (int i = 0; i < b->niter; i++) map_put(scratch(s->ctx), &values, b->iter[i].var, (void *)b->iter[i].value);
  cond = facts_simplify(s, producer->parent, expr_substitute(s->m, cond, &values));
  b->predicate = sched_both(s, b->predicate, cond);
  vec_push(s->m->arena, &s->guarded, producer->id);
}

SchedArg prim_reverse_compute_inline(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *block = sched_arg_block(s, &a[0]);
  check_inlinable(s, "reverse_compute_inline", block);
  Reverse v = {.s = s, .block = block};
  v.producer = only_producer(s, block, &v.buffer);
  if (facts_guarded(s, v.producer))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: %s came with a predicate of its own",
          tree_what(s, v.producer));
  v.store = only_store(s, "reverse_compute_inline", block);
  v.made = only_store(s, "reverse_compute_inline", v.producer);
  check_only_loads(s, "reverse_compute_inline", block, v.buffer);
  check_other_inputs(&v);
  v.index = arena_array(tmp, const Expr *, v.buffer->ndim);
  expr_visit(s->ctx, v.store->u.store.value, note_read, &v);
  for (int i = 0; i < BLOCK(block)->niter; i++)
    if (expr_uses_buffer(BLOCK(block)->iter[i].value, v.buffer))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: the binding of '%s' of %s reads buffer '%s'",
            BLOCK(block)->iter[i].var->name, tree_what(s, block), v.buffer->name);
  for (int d = 0; d < v.store->u.store.n; d++)
    if (expr_uses_buffer(v.store->u.store.index[d], v.buffer))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reverse_compute_inline: %s uses buffer '%s' in an index",
            tree_what(s, block), v.buffer->name);
  const Var **at = arena_array(tmp, const Var *, v.buffer->ndim);
  const Expr *inside;
  const Expr **solved = solve_vars(&v, at, &inside);
  Map to_index = {0};
  Map to_made = {0};
  for (int i = 0; i < BLOCK(block)->niter; i++) map_put(tmp, &to_index, BLOCK(block)->iter[i].var, (void *)solved[i]);
  for (int d = 0; d < v.buffer->ndim; d++)
    map_put(tmp, &to_made, at[d], (void *)expr_cast(s->m, at[d]->dtype, v.made->u.store.index[d]));
  Rewriter rw = {.m = s->m, .fn = put_value, .env = &v, .arena = tmp};
  /* loads of the buffer go first: their value is over the producer's variables already */
  const Var *hole = var_new(s->m, "made", v.buffer->dtype, VAR_PLAIN);
  const Stmt *made = v.made;
  Stmt with_hole = *made;
  with_hole.u.store.value = var_expr(hole);
  v.made = &with_hole;
  const Expr *value = expr_rewrite(&rw, v.store->u.store.value);
  value = expr_substitute(s->m, expr_substitute(s->m, value, &to_index), &to_made);
  value = expr_substitute1(s->m, value, hole, made->u.store.value);
  int n = v.store->u.store.n;
  const Expr **index = arena_array(tmp, const Expr *, n);
  for (int d = 0; d < n; d++)
    index[d] = expr_substitute(s->m, expr_substitute(s->m, v.store->u.store.index[d], &to_index), &to_made);
  Stmt *store = stmt_store(s->m, v.store->u.store.buffer, n, index, value);
  BLOCK(v.producer)->body = store;
  stmt_link(store, v.producer);
  if (inside) run_inside(s, v.producer, expr_substitute(s->m, inside, &to_made));
  sched_simplify_body(s, v.producer);
  tree_remove(s, block);
  sched_func_drop_alloc(s, v.buffer);
  facts_refresh(s, v.producer);
  return sched_arg_none;
}
