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
    /* where the block runs its predicate holds: (g * 91 + i) % 91 is i under i < 91 */
    bool guarded = b->predicate && !expr_has_kind(b->predicate, E_LOAD);
    int mark = guarded ? analyzer_push(an, b->predicate) : 0;
    const Expr *lo = expr_simplify(an, expr_substitute(s->m, r->min[d], &values));
    const Expr *hi =
        expr_is_int(r->extent[d], 1)
            ? lo
            : expr_simplify(an, expr_substitute(s->m, sched_iter_end(s, r->min[d], r->extent[d]), &values));
    if (guarded) analyzer_pop(an, mark);
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

static const IterVar *const *as_iters(Sched *s, int n, Stmt *const *loops)
{
  Arena *a = scratch(s->ctx);
  const IterVar **iters = arena_array(a, const IterVar *, n);
  for (int i = 0; i < n; i++) {
    IterVar *iv = arena_new_of(a, IterVar);
    *iv = (IterVar){
      .var = LOOPVAR(loops[i]), .min = loops[i]->u.loop.min, .extent = loops[i]->u.loop.extent, .kind = ITER_SPATIAL};
    iters[i] = iv;
  }
  return iters;
}

static const Expr *const *bindings_of(Sched *s, const Block *b)
{
  const Expr **index = arena_array(scratch(s->ctx), const Expr *, b->niter);
  for (int i = 0; i < b->niter; i++) index[i] = b->iter[i].value;
  return index;
}

bool facts_injective(Sched *s, Stmt *block, int n, Stmt *const *loops, const char **why)
{
  const Block *b = BLOCK(block);
  const IterVar *const *iters = as_iters(s, n, loops);
  const Expr *const *index = bindings_of(s, b);
  Analyzer *an = facts_analyzer(s, block->parent);
  if (itermap_detect(an, b->niter, index, n, iters, NULL, ITERMAP_INJECTIVE, NULL, why)) return true;
  return b->predicate && itermap_detect(an, b->niter, index, n, iters, b->predicate, ITERMAP_INJECTIVE, NULL, why);
}

static bool overlaps_densely(Analyzer *an, int n, const Expr *const *index, int nloop, const IterVar *const *loop);

void facts_check_affine(Sched *s, const char *prim, Stmt *block)
{
  Stmt **loop;
  const Block *b = BLOCK(block);
  int n = tree_loops_below(scratch(s->ctx), block, NULL, &loop);
  const IterVar *const *iters = as_iters(s, n, loop);
  const Expr *const *index = bindings_of(s, b);
  Analyzer *an = facts_analyzer(s, block->parent);
  const char *why = NULL;
  bool plain = !facts_guarded(s, block);
  if (plain && itermap_detect(an, b->niter, index, n, iters, NULL, ITERMAP_SURJECTIVE, NULL, &why)) return;
  if (b->predicate && itermap_detect(an, b->niter, index, n, iters, b->predicate, ITERMAP_SURJECTIVE, NULL, &why))
    return;
  if (plain && overlaps_densely(an, b->niter, index, n, iters)) return;
  raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the bindings of %s are not an affine map of its loops%s%s", prim,
        tree_what(s, block), why ? ": " : "", why ? why : "");
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

void facts_check_order_free(Sched *s, const char *prim, Stmt *block)
{
  const Block *b = BLOCK(block);
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind != ITER_SPATIAL && b->iter[i].kind != ITER_REDUCE)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s has the opaque variable '%s', so its instances must run in order",
            prim, tree_what(s, block), b->iter[i].var->name);
  const char *why = facts_false_kinds(s, block);
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the instances of %s must run in order: %s", prim, tree_what(s, block),
          why);
}

/* ---- two blocks under loops whose iterations change places --------------------------------- */

/* Loops whose iterations change places or run at once, innermost last; all of them around
 * what is compared. */
typedef struct Varied {
  Sched *s;
  const char *prim;
  Analyzer *an;
  int n;
  Stmt *const *loop;
  const Stmt *at_once; /* the one loop, when its iterations run at once; else NULL */
} Varied;

static const Stmt *innermost(const Varied *v) { return v->loop[v->n - 1]; }

/* The index along d by the loops, and the loops inside of the varied ones that it uses. */
static const Expr *index_by_loops(Varied *v, Stmt *block, const Expr *e, int *n, Stmt ***inner)
{
  Arena *tmp = scratch(v->s->ctx);
  Map values = {0};
  for (int i = 0; i < BLOCK(block)->niter; i++)
    map_put(tmp, &values, BLOCK(block)->iter[i].var, (void *)(uintptr_t)BLOCK(block)->iter[i].value);
  e = expr_simplify(v->an, expr_substitute(v->s->m, e, &values));
  int all = tree_loops_below(tmp, block, innermost(v), inner);
  *n = 0;
  for (int i = 0; i < all; i++)
    if (expr_uses_var(e, LOOPVAR((*inner)[i]))) (*inner)[(*n)++] = (*inner)[i];
  return e;
}

/* Do the two touch the same elements in each iteration: the same indices over loops of the same ranges? */
static bool same_elements(Varied *v, Stmt *x, const Region *rx, Stmt *y, const Region *ry)
{
  Sched *s = v->s;
  Map other = {0}; /* loops of y -> those of x */
  for (int d = 0; d < rx->buffer->ndim; d++) {
    Stmt **lx, **ly;
    int nx, ny;
    const Expr *ex = index_by_loops(v, x, rx->min[d], &nx, &lx);
    const Expr *ey = index_by_loops(v, y, ry->min[d], &ny, &ly);
    if (nx != ny || rx->extent[d] != ry->extent[d]) return false;
    for (int i = 0; i < nx; i++) {
      const Expr *to = map_get(&other, LOOPVAR(ly[i]));
      if (to && to != var_expr(LOOPVAR(lx[i]))) return false;
      if (lx[i]->u.loop.min != ly[i]->u.loop.min || lx[i]->u.loop.extent != ly[i]->u.loop.extent) return false;
      map_put(scratch(s->ctx), &other, LOOPVAR(ly[i]), (void *)(uintptr_t)var_expr(LOOPVAR(lx[i])));
    }
    if (ex != ey && !analyzer_prove_equal(v->an, ex, expr_substitute(s->m, ey, &other))) return false;
  }
  return true;
}

typedef struct Gaps {
  Varied *v;
  Stmt *block;
  const Buffer *buffer;
  bool found;
} Gaps;

static bool used_once(const Expr *const *index, int n, const Var *v)
{
  int uses = 0;
  for (int d = 0; d < n; d++) uses += expr_uses_var(index[d], v);
  return uses <= 1;
}

/* Steps of a loop may overlap those of another one, as windows do: an index takes all values between its ends when,
 * by size, no step is larger than all that the smaller ones cover and one more.  How many steps the largest one takes
 * need not be known. */
static bool overlaps_densely(Analyzer *an, int n, const Expr *const *index, int nloop, const IterVar *const *loop)
{
  enum { MOST = 8 };
  const Var *vars[MOST];
  const Expr *coeff[MOST + 1];
  if (nloop > MOST) return false;
  for (int i = 0; i < nloop; i++) vars[i] = loop[i]->var;
  for (int i = 0; i < nloop; i++)
    if (!used_once(index, n, vars[i])) return false;
  for (int d = 0; d < n; d++) {
    if (!expr_linear(an, index[d], nloop, vars, coeff)) return false;
    bool done[MOST] = {false};
    int64_t covered = 0;
    for (int k = 0; k < nloop; k++) {
      int next = -1;
      for (int i = 0; i < nloop; i++) {
        if (coeff[i]->kind != E_INT || coeff[i]->u.i < 0) return false;
        if (!done[i] && (next < 0 || coeff[i]->u.i < coeff[next]->u.i)) next = i;
      }
      done[next] = true;
      if (coeff[next]->u.i == 0) continue;
      if (covered < 0 || coeff[next]->u.i > covered + 1) return false;
      bool counted = loop[next]->extent->kind == E_INT;
      covered = counted ? covered + coeff[next]->u.i * (loop[next]->extent->u.i - 1) : -1;
    }
  }
  return true;
}

/* Does the index take all values between its ends?  The guard is of the last part of a loop that was split: of fused
 * loops the elements are whole only under it. */
static bool takes_all(const Gaps *g, int n, const Expr *const *index, int nloop, const IterVar *const *loop)
{
  Analyzer *an = g->v->an;
  const Expr *guard = BLOCK(g->block)->predicate;
  const char *why;
  return itermap_detect(an, n, index, nloop, loop, NULL, ITERMAP_SURJECTIVE, NULL, &why) ||
         (guard && itermap_detect(an, n, index, nloop, loop, guard, ITERMAP_SURJECTIVE, NULL, &why)) ||
         overlaps_densely(an, n, index, nloop, loop);
}

/* Does the store leave elements out of the box that it writes in one iteration? */
static bool note_gap(void *env, Stmt *store)
{
  Gaps *g = env;
  Sched *s = g->v->s;
  if (store->kind != S_STORE || store->u.store.buffer != g->buffer) return true;
  Arena *tmp = scratch(s->ctx);
  int n = store->u.store.n;
  const Expr **index = arena_copy(tmp, store->u.store.index, (size_t)n * sizeof *index);
  Vec(const IterVar *) iters = {0};
  for (Stmt *p = store->parent; p != innermost(g->v); p = p->parent) {
    Map values = {0};
    g->found |= p->kind == S_IF || p->kind == S_WHILE || (p->kind == S_BLOCK && facts_guarded(s, p));
    for (int i = 0; p->kind == S_BLOCK && i < BLOCK(p)->niter; i++)
      map_put(tmp, &values, BLOCK(p)->iter[i].var, (void *)(uintptr_t)BLOCK(p)->iter[i].value);
    for (int d = 0; d < n && p->kind == S_BLOCK; d++) index[d] = expr_substitute(s->m, index[d], &values);
    if (p->kind != S_FOR) continue;
    bool used = false;
    for (int d = 0; d < n; d++) used |= expr_uses_var(index[d], LOOPVAR(p));
    IterVar *iv = arena_new_of(tmp, IterVar);
    *iv = (IterVar){.var = LOOPVAR(p), .min = p->u.loop.min, .extent = p->u.loop.extent, .kind = ITER_SPATIAL};
    if (used) vec_push(tmp, &iters, iv);
  }
  g->found |= iters.n && !takes_all(g, n, index, iters.n, iters.v);
  return true;
}

/* All that the reader reads in an iteration, the writer has written before in the same one. */
static bool is_covered(Varied *v, Stmt *writer, const Region *out, Stmt *reader, const Region *in)
{
  if (!tree_before(v->s, writer, reader)) return false;
  Box made = region_under(v->s, v->an, out, writer, innermost(v));
  Box needed = region_under(v->s, v->an, in, reader, innermost(v));
  if (!region_holds(v->s, v->an, &made, &needed)) return false;
  Gaps g = {.v = v, .block = writer, .buffer = out->buffer};
  stmt_visit(writer, note_gap, &g);
  return !g.found || (!facts_guarded(v->s, writer) && same_elements(v, writer, out, reader, in));
}

static bool always_apart(Varied *v, Stmt *x, const Region *rx, Stmt *y, const Region *ry)
{
  Box all_x = region_under(v->s, v->an, rx, x, NULL);
  Box all_y = region_under(v->s, v->an, ry, y, NULL);
  return region_apart(v->s, v->an, &all_x, &all_y);
}

/* Two boxes, one within the other, that no two iterations have an element of in common. */
static bool keeps_to_iteration(Varied *v, Stmt *x, const Region *rx, Stmt *y, const Region *ry)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  const IterVar **iters = arena_array(tmp, const IterVar *, v->n);
  for (int i = 0; i < v->n; i++) {
    IterVar *iv = arena_new_of(tmp, IterVar);
    const Stmt *l = v->loop[i];
    *iv = (IterVar){.var = LOOPVAR(l), .min = l->u.loop.min, .extent = l->u.loop.extent, .kind = ITER_SPATIAL};
    iters[i] = iv;
  }
  Box bx = region_under(s, v->an, rx, x, innermost(v));
  Box by = region_under(s, v->an, ry, y, innermost(v));
  return (region_holds(s, v->an, &bx, &by) && region_distinct(s, v->an, &bx, v->n, iters, BLOCK(x)->predicate)) ||
         (region_holds(s, v->an, &by, &bx) && region_distinct(s, v->an, &by, v->n, iters, BLOCK(y)->predicate));
}

static bool note_effect(void *env, Stmt *s)
{
  const Expr *e = s->kind == S_EVAL ? s->u.eval.value : NULL;
  *(bool *)env |= s->kind == S_STORE || (e && (e->kind != E_CALL || e->u.intrin != IN_PREFETCH));
  return true;
}

/* A block that only asks for lines it needs later reads nothing. */
static bool is_hint(Stmt *block)
{
  bool acts = BLOCK(block)->nwrites > 0;
  if (!acts) stmt_visit(BLOCK(block)->body, note_effect, &acts);
  return !acts;
}

static void check_pair_covered(Varied *v, Stmt *writer, Stmt *reader)
{
  Sched *s = v->s;
  const Block *w = BLOCK(writer);
  const Block *r = BLOCK(reader);
  for (int i = 0; i < w->nwrites; i++)
    for (int k = 0; k < r->nreads; k++) {
      if (w->writes[i].buffer != r->reads[k].buffer || is_hint(reader)) continue;
      if (is_covered(v, writer, &w->writes[i], reader, &r->reads[k])) continue;
      if (keeps_to_iteration(v, writer, &w->writes[i], reader, &r->reads[k])) continue;
      if (!always_apart(v, writer, &w->writes[i], reader, &r->reads[k]))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "%s: %s carries a dependence: %s reads buffer '%s' where %s writes it in another iteration", v->prim,
              tree_what(s, innermost(v)), tree_what(s, reader), w->writes[i].buffer->name, tree_what(s, writer));
    }
}

/* Two blocks that write one buffer: what one writes in an iteration, the other one writes in
 * no other. */
static bool writes_keep_apart(Varied *v, Stmt *x, const Region *rx, Stmt *y, const Region *ry)
{
  if (always_apart(v, x, rx, y, ry)) return true;
  /* check_distinct has shown that iterations at once write different elements of each */
  if (v->at_once && same_elements(v, x, rx, y, ry)) return true;
  return keeps_to_iteration(v, x, rx, y, ry);
}

static bool is_private(Sched *s, const Stmt *loop, const Buffer *buffer);

static void check_pair_writes(Varied *v, Stmt *x, Stmt *y)
{
  Sched *s = v->s;
  const Block *a = BLOCK(x);
  const Block *b = BLOCK(y);
  for (int i = 0; i < a->nwrites; i++)
    for (int k = 0; k < b->nwrites; k++) {
      const Buffer *buffer = a->writes[i].buffer;
      if (b->writes[k].buffer != buffer || (v->at_once && is_private(s, v->at_once, buffer))) continue;
      if (!writes_keep_apart(v, x, &a->writes[i], y, &b->writes[k]))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "%s: under %s, %s and %s both write buffer '%s', and may write one element in different iterations",
              v->prim, tree_what(s, innermost(v)), tree_what(s, x), tree_what(s, y), buffer->name);
    }
}

static void check_pairs(Varied *v)
{
  Stmt **block;
  Stmt *top = v->loop[v->n - 1];
  int n = tree_blocks(scratch(v->s->ctx), top, &block);
  if (n < 2) return;
  v->an = facts_analyzer(v->s, top);
  facts_bind_below(v->an, top);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) {
      if (i != k) check_pair_covered(v, block[i], block[k]);
      if (i < k) check_pair_writes(v, block[i], block[k]);
    }
}

void facts_check_covered(Sched *s, const char *prim, int n, Stmt *const *loop)
{
  check_pairs(&(Varied){.s = s, .prim = prim, .n = n, .loop = loop});
}

/* In each iteration: the block does not go on with what an earlier one has left in the buffer. */
static bool starts_anew(Sched *s, Stmt *loop, Stmt *block, const Buffer *buffer)
{
  Stmt **other;
  if (!facts_reads(BLOCK(block), buffer)) return true;
  int n = facts_writers(scratch(s->ctx), loop, buffer, &other);
  for (int i = 0; i < n; i++)
    if (other[i] != block && tree_before(s, other[i], block)) return true;
  return false;
}

static void check_distinct(Sched *s, const char *prim, Stmt *loop, Stmt *block)
{
  const Block *b = BLOCK(block);
  if (!facts_not_complete(s, block)) return; /* instances that meet write the same value */
  bool private = true;
  for (int i = 0; i < b->nwrites; i++)
  private &= is_private(s, loop, b->writes[i].buffer) && starts_anew(s, loop, block, b->writes[i].buffer);
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
  check_pairs(&(Varied){.s = s, .prim = prim, .n = 1, .loop = &loop, .at_once = loop});
}

void facts_check_above(Sched *s, const char *prim, Stmt *stmt)
{
  for (Stmt *p = stmt->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind == S_FOR && p->u.loop.kind != FOR_SERIAL && p->u.loop.kind != FOR_UNROLLED)
      facts_check_independent(s, prim, p);
}
