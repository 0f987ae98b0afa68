/* region.c: boxes of buffers, and what they say about iterations.
 *
 * A box holds both of its ends.  Where an index cannot be bounded the box takes the
 * whole dimension, so a box never is too small. */
#include "schedule/engine.h"

const Expr *region_lesser(Sched *s, Analyzer *an, const Expr *a, const Expr *b)
{
  if (a == b || analyzer_prove(an, expr_binary(s->m, E_LE, a, b))) return a;
  if (analyzer_prove(an, expr_binary(s->m, E_LE, b, a))) return b;
  return expr_simplify(an, expr_min(s->m, a, b));
}

const Expr *region_greater(Sched *s, Analyzer *an, const Expr *a, const Expr *b)
{
  if (a == b || analyzer_prove(an, expr_binary(s->m, E_GE, a, b))) return a;
  if (analyzer_prove(an, expr_binary(s->m, E_GE, b, a))) return b;
  return expr_simplify(an, expr_max(s->m, a, b));
}

static const Expr *whole_end(Sched *s, Analyzer *an, const Expr *extent)
{
  return expr_simplify(an, expr_sub(s->m, extent, sched_const_like(s, extent, 1)));
}

Box region_under(Sched *s, Analyzer *an, const Region *r, Stmt *block, const Stmt *loop)
{
  Arena *a = scratch(s->ctx);
  const Block *b = BLOCK(block);
  int ndim = r->buffer->ndim;
  Box box = {r->buffer, arena_array(a, const Expr *, ndim), arena_array(a, const Expr *, ndim)};
  Map values = {0};
  for (int i = 0; i < b->niter; i++) map_put(a, &values, b->iter[i].var, (void *)b->iter[i].value);
  Stmt **inner;
  int n = tree_loops_below(a, block, loop, &inner);
  const Var **vars = arena_array(a, const Var *, n);
  for (int i = 0; i < n; i++) vars[i] = LOOPVAR(inner[i]);
  for (int d = 0; d < ndim; d++) {
    const Expr *lo = expr_simplify(an, expr_substitute(s->m, r->min[d], &values));
    const Expr *hi =
        expr_is_int(r->extent[d], 1)
            ? lo
            : expr_simplify(an, expr_substitute(s->m, sched_iter_end(s, r->min[d], r->extent[d]), &values));
    const Expr *unused;
    bool known = !expr_has_kind(lo, E_LOAD) && !expr_has_kind(hi, E_LOAD) &&
                 analyzer_relax(an, lo, n, vars, &box.lo[d], &unused) &&
                 analyzer_relax(an, hi, n, vars, &unused, &box.hi[d]);
    box.lo[d] = known ? expr_simplify(an, box.lo[d]) : sched_const_like(s, lo, 0);
    box.hi[d] = known ? expr_simplify(an, box.hi[d]) : whole_end(s, an, r->buffer->shape[d]);
  }
  return box;
}

void region_join(Sched *s, Analyzer *an, Box *into, const Box *b)
{
  for (int d = 0; d < b->buffer->ndim; d++) {
    into->lo[d] = region_lesser(s, an, into->lo[d], b->lo[d]);
    into->hi[d] = region_greater(s, an, into->hi[d], b->hi[d]);
  }
}

static bool at_most(Sched *s, Analyzer *an, const Expr *a, const Expr *b)
{
  return a == b || analyzer_prove(an, expr_binary(s->m, E_LE, a, b));
}

/* Only what lies inside the buffer counts. */
bool region_holds(Sched *s, Analyzer *an, const Box *outer, const Box *inner)
{
  for (int d = 0; d < outer->buffer->ndim; d++) {
    const Expr *first = sched_const_like(s, outer->lo[d], 0);
    const Expr *last = whole_end(s, an, outer->buffer->shape[d]);
    if (!at_most(s, an, outer->lo[d], inner->lo[d]) && !at_most(s, an, outer->lo[d], first)) return false;
    if (!at_most(s, an, inner->hi[d], outer->hi[d]) && !at_most(s, an, last, outer->hi[d])) return false;
  }
  return true;
}

bool region_apart(Sched *s, Analyzer *an, const Box *a, const Box *b)
{
  for (int d = 0; d < a->buffer->ndim; d++)
    if (analyzer_prove(an, expr_lt(s->m, a->hi[d], b->lo[d])) || analyzer_prove(an, expr_lt(s->m, b->hi[d], a->lo[d])))
      return true;
  return false;
}

/* ---- iterations that do not see each other --------------------------------------------- */

bool facts_injective(Sched *s, Stmt *block, int n, Stmt *const *loops, const char **why)
{
  Arena *a = scratch(s->ctx);
  const Block *b = BLOCK(block);
  const IterVar **iters = arena_array(a, const IterVar *, n);
  for (int i = 0; i < n; i++) {
    IterVar *iv = arena_new_of(a, IterVar);
    *iv = (IterVar){
      .var = LOOPVAR(loops[i]), .min = loops[i]->u.loop.min, .extent = loops[i]->u.loop.extent, .kind = ITER_SPATIAL};
    iters[i] = iv;
  }
  const Expr **index = arena_array(a, const Expr *, b->niter);
  for (int i = 0; i < b->niter; i++) index[i] = b->iter[i].value;
  IterSum *sums = arena_array(a, IterSum, b->niter);
  Analyzer *an = facts_analyzer(s, block->parent);
  if (itermap_detect(an, b->niter, index, n, iters, NULL, ITERMAP_INJECTIVE, sums, why)) return true;
  return b->predicate && itermap_detect(an, b->niter, index, n, iters, b->predicate, ITERMAP_INJECTIVE, sums, why);
}

/* Threads of a device share what is not in their own scope; a CPU's workers get
 * memory of their own for whatever is used in one iteration only. */
static bool own_memory(const Stmt *loop, const Buffer *buffer)
{
  if (loop->u.loop.kind != FOR_THREAD || !strcmp(buffer->scope, "local")) return true;
  return str_starts(loop->u.loop.thread_tag, "blockIdx") && str_starts(buffer->scope, "shared");
}

/* Touched under the loop alone, and each iteration has its own. */
static bool is_private(Sched *s, const Stmt *loop, const Buffer *buffer)
{
  if (facts_is_param(s, buffer) || !own_memory(loop, buffer)) return false;
  Stmt **block;
  int n = tree_all_blocks(scratch(s->ctx), s->f, &block);
  for (int i = 0; i < n; i++) {
    bool touches = facts_reads(BLOCK(block[i]), buffer) || facts_writes(BLOCK(block[i]), buffer);
    if (touches && !tree_under(block[i], loop) && !tree_under(loop, block[i])) return false;
  }
  return true;
}

typedef struct SelfAccess {
  const Buffer *buffer;
  Vec(Stmt *) stores;
  Arena *arena;
  bool ordered;
} SelfAccess;

static bool note_store(void *env, Stmt *stmt)
{
  SelfAccess *v = env;
  if (stmt->kind == S_STORE && stmt->u.store.buffer == v->buffer) vec_push(v->arena, &v->stores, stmt);
  return true;
}

static void check_load(void *env, const Expr *e)
{
  SelfAccess *v = env;
  if (e->kind != E_LOAD || e->u.buffer != v->buffer) return;
  for (int i = 0; i < v->stores.n; i++) {
    const Stmt *store = v->stores.v[i];
    bool same = true;
    for (int d = 0; d < e->nargs; d++) same &= store->u.store.index[d] == e->arg[d];
    if (same) return;
  }
  v->ordered = true;
}

static void check_holder(void *env, Stmt *holder, const Expr *e)
{
  SelfAccess *v = env;
  if (holder->kind != S_BLOCK) expr_visit(arena_ctx(v->arena), e, check_load, v);
}

/* Does an instance of the block read elements that another one writes? */
static bool order_matters(Sched *s, Stmt *block)
{
  const Block *b = BLOCK(block);
  for (int i = 0; i < b->nwrites; i++) {
    SelfAccess v = {.buffer = b->writes[i].buffer, .arena = scratch(s->ctx)};
    stmt_visit(b->body, note_store, &v);
    if (v.stores.n) stmt_visit_exprs(b->body, check_holder, &v);
    if (v.ordered) return true;
  }
  return false;
}

void facts_check_order_free(Sched *s, const char *prim, Stmt *block)
{
  const Block *b = BLOCK(block);
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind != ITER_SPATIAL && b->iter[i].kind != ITER_REDUCE)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s has the opaque variable '%s', so its instances must run in order",
            prim, tree_what(s, block), b->iter[i].var->name);
  if (order_matters(s, block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: %s reads elements that other instances of it write, so they must run in order", prim,
          tree_what(s, block));
}

static void check_pair_covered(Sched *s, const char *prim, Analyzer *an, Stmt *loop, Stmt *writer, Stmt *reader)
{
  const Block *w = BLOCK(writer);
  const Block *r = BLOCK(reader);
  for (int i = 0; i < w->nwrites; i++)
    for (int k = 0; k < r->nreads; k++) {
      if (w->writes[i].buffer != r->reads[k].buffer) continue;
      Box out = region_under(s, an, &w->writes[i], writer, loop);
      Box in = region_under(s, an, &r->reads[k], reader, loop);
      if (tree_before(s, writer, reader) && region_holds(s, an, &out, &in)) continue;
      Box all_out = region_under(s, an, &w->writes[i], writer, NULL);
      Box all_in = region_under(s, an, &r->reads[k], reader, NULL);
      if (!region_apart(s, an, &all_out, &all_in))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "%s: %s carries a dependence: %s reads buffer '%s' where %s writes it in another iteration", prim,
              tree_what(s, loop), tree_what(s, reader), out.buffer->name, tree_what(s, writer));
    }
}

void facts_check_covered(Sched *s, const char *prim, Stmt *loop)
{
  Stmt **block;
  int n = tree_blocks(scratch(s->ctx), loop, &block);
  if (n < 2) return;
  Analyzer *an = facts_analyzer(s, loop);
  facts_bind_below(an, loop);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      if (i != k) check_pair_covered(s, prim, an, loop, block[i], block[k]);
}

static void check_distinct(Sched *s, const char *prim, Stmt *loop, Stmt *block)
{
  const Block *b = BLOCK(block);
  if (!facts_not_complete(s, block)) return; /* instances that meet write the same value */
  bool private = true;
  for (int i = 0; i < b->nwrites; i++) private &= is_private(s, loop, b->writes[i].buffer);
  if (private || !b->nwrites) return;
  Stmt **loops;
  const char *why = NULL;
  int n = tree_loops_below(scratch(s->ctx), block, loop->parent, &loops);
  if (!facts_injective(s, block, n, loops, &why))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: two iterations of %s may update the same element in %s%s%s", prim,
          tree_what(s, loop), tree_what(s, block), why ? ": " : "", why ? why : "");
}

/* Iterations of a reduction update the same elements.  The threads of a GPU's block may
 * share one all the same: each reduces its part, and lower puts the parts together. */
static void check_reduction(Sched *s, const char *prim, Stmt *loop, Stmt *block)
{
  int roles = facts_roles(BLOCK(block), LOOPVAR(loop));
  if (!(roles >> ITER_REDUCE & 1)) return;
  const char *what = tree_what(s, block);
  if (loop->u.loop.kind != FOR_THREAD || !str_starts(loop->u.loop.thread_tag, "threadIdx"))
    raise(
        s->ctx, ERR_SCHEDULE, NOWHERE,
        "%s: %s runs over the reduction of %s, so its iterations update the same elements; rfactor makes it spatial%s",
        prim, tree_what(s, loop), what, loop->u.loop.kind == FOR_THREAD ? ", or bind it to threadIdx" : "");
  BlockUpdate u;
  const char *why = facts_not_reduction(s, block);
  if (!why && roles >> ITER_SPATIAL & 1) why = "the loop runs over spatial variables too";
  if (!why && (why = block_update(s->m, scratch(s->ctx), BLOCK(block), &u)))
    why = arena_printf(scratch(s->ctx), "its update %s", why);
  if (!why && loop->u.loop.extent->kind != E_INT)
    why = arena_printf(scratch(s->ctx), "the number of threads %s is not a constant",
                       expr_str_of(scratch(s->ctx), loop->u.loop.extent));
  if (why)
    raise(
        s->ctx, ERR_SCHEDULE, NOWHERE,
        "%s: %s runs over the reduction of %s and threads cannot put its parts together: %s; rfactor makes it spatial",
        prim, tree_what(s, loop), what, why);
}

void facts_check_independent(Sched *s, const char *prim, Stmt *loop)
{
  Stmt **block;
  int n = tree_blocks(scratch(s->ctx), loop, &block);
  for (int i = 0; i < n; i++) {
    check_reduction(s, prim, loop, block[i]);
    facts_check_order_free(s, prim, block[i]);
    check_distinct(s, prim, loop, block[i]);
  }
  facts_check_covered(s, prim, loop);
}

void facts_check_above(Sched *s, const char *prim, Stmt *stmt)
{
  for (Stmt *p = stmt->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind == S_FOR && p->u.loop.kind != FOR_SERIAL && p->u.loop.kind != FOR_UNROLLED)
      facts_check_independent(s, prim, p);
}
