/* compute_at.c: computing a block under a loop of its consumers or producers.
 *
 * Comes in: a block and a loop.  The block leaves its place with the loops that hold
 * nothing else; what it has to compute in one iteration of the loop is a box over its
 * variables; new loops over that box take the block to its new place.
 *
 * compute_at          the box covers what the consumers under the loop read
 * reverse_compute_at  the box is what the producers under the loop have made ready;
 *                     over all iterations it must give each instance exactly
 *
 * A box may reach over the block's domain: then the block gets a predicate. */
#include "schedule/engine.h"

typedef struct Dom {
  const Expr *lo, *hi; /* NULL: the whole domain */
} Dom;

typedef struct Move {
  Sched *s;
  const char *prim;
  Stmt *block, *loop;
  Analyzer *an;
  Dom *dom;   /* for each variable of the block */
  Dom *whole; /* all of what the block's scope runs of it */
  bool *part; /* … is not its whole domain */
  bool reverse;
  const Expr *guard; /* over the block's variables: which of the box is made; NULL: all of it */
  int nproducer, nconsumer;
  Stmt **producer, **consumer;
} Move;

static const Expr *plus(Move *v, const Expr *a, const Expr *b) { return expr_add(v->s->m, a, b); }
static const Expr *minus(Move *v, const Expr *a, const Expr *b) { return expr_sub(v->s->m, a, b); }

/* ---- from a box of a buffer to a box of variables ------------------------------------- */

static int iter_of(const Block *b, const Var *v)
{
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].var == v) return i;
  return -1;
}

static bool uses_iters(const Block *b, const Expr *e)
{
  for (int i = 0; i < b->niter; i++)
    if (expr_uses_var(e, b->iter[i].var)) return true;
  return false;
}

/* Ends of e while the block's variables run over their domains. */
static bool full_ends(Move *v, const Expr *e, const Expr **lo, const Expr **hi)
{
  const Block *b = BLOCK(v->block);
  const Var **vars = arena_array(scratch(v->s->ctx), const Var *, b->niter);
  for (int i = 0; i < b->niter; i++) vars[i] = b->iter[i].var;
  return analyzer_relax(v->an, e, b->niter, vars, lo, hi);
}

static bool limit(Move *v, Dom *dom, const Expr *lo, const Expr *hi)
{
  lo = expr_simplify(v->an, lo);
  hi = expr_simplify(v->an, hi);
  if (!dom->lo) {
    *dom = (Dom){lo, hi};
    return true;
  }
  if (v->reverse) return analyzer_prove_equal(v->an, dom->lo, lo) && analyzer_prove_equal(v->an, dom->hi, hi);
  return true; /* one limit is enough: a larger box covers too */
}

/* Limits the variables in e so that e lies in [lo, hi].  True if the limits are
 * exact: they hold just when e lies there. */
static bool invert(Move *v, Dom *dom, const Expr *e, const Expr *lo, const Expr *hi)
{
  Module *m = v->s->m;
  const Block *b = BLOCK(v->block);
  if (!uses_iters(b, e)) return false;
  if (e->kind == E_VAR) return limit(v, &dom[iter_of(b, e->u.var)], lo, hi);
  if (e->nargs != 2) return false;
  const Expr *x = e->arg[0];
  const Expr *y = e->arg[1];
  bool ux = uses_iters(b, x);
  bool uy = uses_iters(b, y);
  if (e->kind == E_ADD && !uy) return invert(v, dom, x, minus(v, lo, y), minus(v, hi, y));
  if (e->kind == E_ADD && !ux) return invert(v, dom, y, minus(v, lo, x), minus(v, hi, x));
  if (e->kind == E_SUB && !uy) return invert(v, dom, x, plus(v, lo, y), plus(v, hi, y));
  if (e->kind == E_SUB && !ux) return invert(v, dom, y, minus(v, x, hi), minus(v, x, lo));
  if (e->kind == E_ADD && !v->reverse) {
    const Expr *xlo, *xhi, *ylo, *yhi;
    if (full_ends(v, y, &ylo, &yhi)) invert(v, dom, x, minus(v, lo, yhi), minus(v, hi, ylo));
    if (full_ends(v, x, &xlo, &xhi)) invert(v, dom, y, minus(v, lo, xhi), minus(v, hi, xlo));
    return false;
  }
  if (e->kind == E_MUL && x->kind == E_INT) {
    const Expr *t = x;
    x = y;
    y = t;
  }
  if (y->kind != E_INT || y->u.i <= 0) return false;
  if (e->kind == E_MUL) return invert(v, dom, x, sched_ceil_div(v->s, lo, y), expr_floordiv(m, hi, y));
  if (e->kind == E_FLOORDIV)
    return invert(v, dom, x, expr_mul(m, lo, y), plus(v, expr_mul(m, hi, y), sched_const_like(v->s, y, y->u.i - 1)));
  return false;
}

/* v // c at one point and v % c in a range, in two dimensions of one buffer: a narrower
 * limit than either gives. */
static void invert_pair(Move *v, Dom *dom, const Region *r, const Box *box)
{
  Module *m = v->s->m;
  for (int d = 0; d < r->buffer->ndim; d++)
    for (int k = 0; k < r->buffer->ndim; k++) {
      const Expr *div = r->min[d];
      const Expr *mod = r->min[k];
      if (div->kind != E_FLOORDIV || mod->kind != E_FLOORMOD || div->arg[0] != mod->arg[0] ||
          div->arg[1] != mod->arg[1])
        continue;
      if (!expr_is_int(r->extent[d], 1) || !expr_is_int(r->extent[k], 1)) continue;
      if (!analyzer_prove_equal(v->an, box->lo[d], box->hi[d])) continue;
      const Expr *base = expr_mul(m, box->lo[d], div->arg[1]);
      invert(v, dom, div->arg[0], plus(v, base, box->lo[k]), plus(v, base, box->hi[k]));
    }
}

/* All that the block touches along dimension d is in the box. */
static bool holds_all(Move *v, const Region *r, const Box *box, int d)
{
  const Expr *lo, *hi, *unused;
  const Expr *last = sched_iter_end(v->s, r->min[d], r->extent[d]);
  if (!full_ends(v, r->min[d], &lo, &unused) || !full_ends(v, last, &unused, &hi)) return false;
  return analyzer_prove(v->an, expr_binary(v->s->m, E_LE, box->lo[d], lo)) &&
         analyzer_prove(v->an, expr_binary(v->s->m, E_LE, hi, box->hi[d]));
}

/* No instance of the block reaches over the buffer along dimension d: each finds its
 * tile. */
static bool stays_inside(Move *v, const Region *r, int d)
{
  Module *m = v->s->m;
  const Expr *lo, *hi, *unused;
  return full_ends(v, r->min[d], &lo, &unused) &&
         full_ends(v, sched_iter_end(v->s, r->min[d], r->extent[d]), &unused, &hi) &&
         analyzer_prove(v->an, expr_binary(m, E_GE, lo, sched_const_like(v->s, lo, 0))) &&
         analyzer_prove(v->an, expr_lt(m, hi, r->buffer->shape[d]));
}

/* A stretch of more than one element is wholly in or wholly out of the box. */
static bool stretch_fits(Move *v, const Region *r, const Box *box, int d)
{
  if (expr_is_int(r->extent[d], 1)) return true;
  const Expr *e = r->min[d];
  const Expr *w = r->extent[d];
  if (w->kind != E_INT || e->kind != E_MUL || e->arg[1]->kind != E_INT || e->arg[1]->u.i < w->u.i) return false;
  int64_t step = e->arg[1]->u.i;
  Modular lo = analyzer_modular(v->an, box->lo[d]);
  Modular end = analyzer_modular(v->an, plus(v, box->hi[d], sched_const_like(v->s, box->hi[d], 1)));
  return lo.coeff % step == 0 && lo.base % step == 0 && end.coeff % step == 0 && end.base % step == 0;
}

/* Inside another block, an index without variables of the moved block names what this
 * run of the scope makes; needing more means needing an earlier run's. */
static void check_fixed_index(Move *v, const Region *r, const Box *box, int d)
{
  Module *m = v->s->m;
  if (uses_iters(BLOCK(v->block), r->min[d]) || !BLOCK(tree_scope(v->s, v->loop))->niter) return;
  if (!analyzer_prove(v->an, expr_binary(m, E_GE, box->lo[d], r->min[d])) ||
      !analyzer_prove(v->an, expr_binary(m, E_LE, box->hi[d], sched_iter_end(v->s, r->min[d], r->extent[d]))))
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "%s: under %s elements of buffer '%s' from other runs of %s are needed",
          v->prim, tree_what(v->s, v->loop), r->buffer->name, tree_what(v->s, tree_scope(v->s, v->loop)));
}

static void solve_region(Move *v, const Region *r, const Box *box, Dom *dom)
{
  if (!v->reverse) invert_pair(v, dom, r, box);
  for (int d = 0; d < r->buffer->ndim; d++) {
    const Expr *before = expr_sub(v->s->m, r->extent[d], sched_const_like(v->s, r->extent[d], 1));
    if (!v->reverse) {
      invert(v, dom, r->min[d], minus(v, box->lo[d], before), box->hi[d]);
      check_fixed_index(v, r, box, d);
      continue;
    }
    if (holds_all(v, r, box, d)) continue;
    if (!stays_inside(v, r, d) || !stretch_fits(v, r, box, d) ||
        !invert(v, dom, r->min[d], box->lo[d], minus(v, box->hi[d], before)))
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
            "%s: at %s only a part of buffer '%s' is ready, and the index %s of %s does not tell which of its "
            "instances need no more",
            v->prim, tree_what(v->s, v->loop), r->buffer->name, expr_str_of(scratch(v->s->ctx), r->min[d]),
            tree_what(v->s, v->block));
  }
}

/* ---- compute_at: what the consumers need -------------------------------------------------- */

/* The threads of a block fill and read shared memory together: the box over all of
 * the thread axes around the loop. */
static void over_threads(Move *v, Box *box)
{
  if (!str_starts(box->buffer->scope, "shared")) return;
  for (Stmt *p = v->loop; p && p->kind != S_BLOCK; p = p->parent) {
    if (p->kind != S_FOR || p->u.loop.kind != FOR_THREAD || str_starts(p->u.loop.thread_tag, "blockIdx")) continue;
    const Var *t = LOOPVAR(p);
    for (int d = 0; d < box->buffer->ndim; d++) {
      const Expr *lo, *hi, *unused;
      if (analyzer_relax(v->an, box->lo[d], 1, &t, &lo, &unused)) box->lo[d] = expr_simplify(v->an, lo);
      if (analyzer_relax(v->an, box->hi[d], 1, &t, &unused, &hi)) box->hi[d] = expr_simplify(v->an, hi);
    }
  }
}

/* The box of a buffer read by the blocks under the loop; false if none reads it. */
static bool needed(Move *v, const Buffer *buffer, int n, Stmt *const *consumer, Box *out)
{
  bool any = false;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < BLOCK(consumer[i])->nreads; k++) {
      const Region *r = &BLOCK(consumer[i])->reads[k];
      if (r->buffer != buffer) continue;
      Box box = region_under(v->s, v->an, r, consumer[i], v->loop);
      over_threads(v, &box);
      if (any) region_join(v->s, v->an, out, &box);
      else *out = box;
      any = true;
    }
  return any;
}

static void merge(Move *v, const Dom *from, bool first)
{
  for (int i = 0; i < BLOCK(v->block)->niter; i++) {
    Dom *to = &v->dom[i];
    if (first) *to = from[i];
    else if (!to->lo || !from[i].lo) *to = (Dom){NULL, NULL};
    else {
      to->lo = region_lesser(v->s, v->an, to->lo, from[i].lo);
      to->hi = region_greater(v->s, v->an, to->hi, from[i].hi);
    }
  }
}

static void solve_consumers(Move *v, int n, Stmt *const *consumer)
{
  const Block *b = BLOCK(v->block);
  bool first = true;
  for (int w = 0; w < b->nwrites; w++) {
    Box box;
    if (!needed(v, b->writes[w].buffer, n, consumer, &box)) continue;
    Dom *dom = arena_array(scratch(v->s->ctx), Dom, b->niter);
    solve_region(v, &b->writes[w], &box, dom);
    merge(v, dom, first);
    first = false;
  }
}

/* ---- reverse_compute_at: what the producers have made --------------------------------------- */

/* Follows from the producer's variables lying in their domains, to which a box is clipped
 * anyway? */
static bool only_clips_domain(Move *v, const Block *producer, const Expr *cond)
{
  Module *m = v->s->m;
  const Expr *inside = NULL;
  for (int i = 0; i < producer->niter; i++) {
    const BlockIter *it = &producer->iter[i];
    inside = sched_both(v->s, inside, expr_binary(m, E_GE, it->value, it->min));
    inside = sched_both(v->s, inside, expr_binary(m, E_LE, it->value, sched_iter_end(v->s, it->min, it->extent)));
  }
  if (!inside) return analyzer_prove(v->an, cond);
  int mark = analyzer_push(v->an, inside);
  bool known = analyzer_prove(v->an, cond);
  analyzer_pop(v->an, mark);
  return known;
}

/* An expression over a block's variables by what they stand for. */
static const Expr *by_values(Sched *s, const Block *b, const Expr *e)
{
  Map value = {0};
  for (int i = 0; i < b->niter; i++)
    map_put(scratch(s->ctx), &value, b->iter[i].var, (void *)(uintptr_t)b->iter[i].value);
  return expr_substitute(s->m, e, &value);
}

/* x < y, where x runs with a dimension of what is written: the last index that is made. */
static const Expr *last_made(Move *v, const Block *producer, const Region *out, const Expr *cond, int n,
                             Stmt *const *inner, int *dim)
{
  if (cond->kind != E_LT) return NULL;
  for (int d = 0; d < out->buffer->ndim; d++) {
    if (!expr_is_int(out->extent[d], 1) || !dtype_eq(out->min[d]->dtype, cond->arg[0]->dtype)) continue;
    const Expr *index = by_values(v->s, producer, out->min[d]);
    const Expr *rest = expr_simplify(v->an, minus(v, index, cond->arg[0]));
    const Expr *end = plus(v, rest, cond->arg[1]);
    bool fixed = true;
    for (int i = 0; i < n; i++) fixed &= !expr_uses_var(end, LOOPVAR(inner[i]));
    *dim = d;
    if (fixed) return minus(v, end, sched_const_like(v->s, end, 1));
  }
  return NULL;
}

/* A guard inside of the loop, of an inner split that does not fit say, leaves a part of the box
 * unmade: the moved block takes it over. */
static void take_guards(Move *v, Stmt *producer, const Region *out, const Region *in)
{
  Sched *s = v->s;
  const Expr **part;
  Stmt **inner;
  int np = sched_conjuncts(scratch(s->ctx), BLOCK(producer)->predicate, &part);
  int k = tree_loops_below(scratch(s->ctx), producer, v->loop, &inner);
  int d = 0;
  for (int i = 0; i < np; i++) {
    bool inside = false;
    for (int j = 0; j < k; j++) inside |= expr_uses_var(part[i], LOOPVAR(inner[j]));
    if (!inside || only_clips_domain(v, BLOCK(producer), part[i])) continue;
    const Expr *last = last_made(v, BLOCK(producer), out, part[i], k, inner, &d);
    if (!last || !expr_is_int(in->extent[d], 1) || !uses_iters(BLOCK(v->block), in->min[d]))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "%s: under %s, %s makes only the part of buffer '%s' for which %s, which does not tell what of %s can run",
            v->prim, tree_what(s, v->loop), tree_what(s, producer), out->buffer->name,
            expr_str_of(scratch(s->ctx), part[i]), tree_what(s, v->block));
    v->guard = sched_both(s, v->guard, expr_binary(s->m, E_LE, in->min[d], last));
  }
}

static void solve_producers(Move *v, int n, Stmt *const *producer)
{
  const Block *b = BLOCK(v->block);
  for (int r = 0; r < b->nreads; r++) {
    Box box;
    bool any = false;
    for (int i = 0; i < n; i++)
      for (int w = 0; w < BLOCK(producer[i])->nwrites; w++) {
        const Region *out = &BLOCK(producer[i])->writes[w];
        if (out->buffer != b->reads[r].buffer) continue;
        Box made = region_under(v->s, v->an, out, producer[i], v->loop);
        take_guards(v, producer[i], out, &b->reads[r]);
        if (!any) box = made;
        else if (!region_holds(v->s, v->an, &made, &box) || !region_holds(v->s, v->an, &box, &made))
          raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "%s: several blocks under %s write different parts of buffer '%s'",
                v->prim, tree_what(v->s, v->loop), out->buffer->name);
        any = true;
      }
    if (any) solve_region(v, &b->reads[r], &box, v->dom);
  }
}

/* ---- the new nest ------------------------------------------------------------------------------- */

typedef struct Range {
  const Expr *lo, *extent;
  const Expr *predicate_lo, *predicate_hi; /* bounds still to be checked, or NULL */
} Range;

/* The constant that an extent is limited to: 32 of min(x, 32); NULL: there is none. */
static const Expr *tile_of(const Expr *extent)
{
  if (extent->kind != E_MIN) return NULL;
  return extent->arg[0]->kind == E_INT ? extent->arg[0] : extent->arg[1]->kind == E_INT ? extent->arg[1] : NULL;
}

static Range range_of(Move *v, int i)
{
  Sched *s = v->s;
  const Dom *dom = &v->dom[i];
  const Expr *first = v->whole[i].lo;
  const Expr *last = v->whole[i].hi;
  const Expr *one = sched_const_like(s, first, 1);
  const Expr *all = expr_simplify(v->an, plus(v, minus(v, last, first), one));
  if (!dom->lo) return (Range){first, all, NULL, NULL};
  const Expr *lo = region_greater(s, v->an, dom->lo, first);
  const Expr *hi = region_lesser(s, v->an, dom->hi, last);
  if (v->part[i] && (lo != dom->lo || hi != dom->hi))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: under %s more of the variable '%s' of %s is needed than a run of %s makes", v->prim,
          tree_what(s, v->loop), BLOCK(v->block)->iter[i].var->name, tree_what(s, v->block),
          tree_what(s, tree_scope(s, v->loop)));
  const Expr *extent = expr_simplify(v->an, plus(v, minus(v, dom->hi, dom->lo), one));
  const Expr *tile = tile_of(extent);
  /* The consumers stop in the middle of a tile and the domain goes on: all of the tile is made, and its loops have no
   * guard. */
  if (tile && !v->reverse && !v->part[i] && lo == dom->lo &&
      analyzer_prove(v->an, expr_binary(s->m, E_LE, plus(v, lo, tile), plus(v, last, one))))
    return (Range){lo, tile, NULL, NULL};
  const Expr *clipped = expr_simplify(v->an, plus(v, minus(v, hi, lo), one));
  bool simple = (lo == dom->lo || lo == first) && (hi == dom->hi || hi == last);
  if (simple && (clipped->kind == E_INT || extent->kind != E_INT)) return (Range){lo, clipped, NULL, NULL};
  if (analyzer_prove(v->an, expr_binary(s->m, E_GE, extent, all))) return (Range){first, all, NULL, NULL};
  return (Range){dom->lo, extent, lo == dom->lo ? NULL : first, hi == dom->hi ? NULL : last};
}

static Stmt *make_nest(Move *v, bool preserve_unit)
{
  Sched *s = v->s;
  Block *b = BLOCK(v->block);
  Stmt **loop = arena_array(scratch(s->ctx), Stmt *, b->niter);
  int n = 0;
  b->predicate = NULL;
  for (int i = 0; i < b->niter; i++) {
    BlockIter *it = &b->iter[i];
    Range r = range_of(v, i);
    const Expr *value = r.lo;
    if (preserve_unit || !expr_is_int(r.extent, 1)) {
      const Var *var = var_new(s->m, arena_printf(s->m->arena, "ax%d", i), it->var->dtype, VAR_PLAIN);
      value = expr_is_int(r.lo, 0) ? var_expr(var) : plus(v, r.lo, var_expr(var));
      loop[n++] = stmt_for(s->m, var, sched_const_like(s, it->min, 0), r.extent, FOR_SERIAL, NULL, stmt_nop(s->m));
    }
    it->value = value;
    if (r.predicate_lo) b->predicate = sched_both(s, b->predicate, expr_binary(s->m, E_GE, value, r.predicate_lo));
    if (r.predicate_hi) b->predicate = sched_both(s, b->predicate, expr_binary(s->m, E_LE, value, r.predicate_hi));
  }
  if (v->guard) b->predicate = sched_both(s, b->predicate, by_values(s, b, v->guard));
  Stmt *nest = v->block;
  for (int i = n - 1; i >= 0; i--) {
    loop[i]->u.loop.body = nest;
    nest = loop[i];
  }
  stmt_link(nest, NULL);
  return nest;
}

static bool item_holds(Stmt *item, int n, Stmt *const *block)
{
  for (int i = 0; i < n; i++)
    if (tree_under(block[i], item)) return true;
  return false;
}

/* Where among the loop's statements: after the producers, before the consumers. */
static int choose_place(Move *v, int index)
{
  Arena *a = scratch(v->s->ctx);
  Stmt **item;
  int n = tree_items(a, v->loop, &item);
  int first = 0;
  int last = n;
  for (int i = 0; i < n; i++) {
    if (item_holds(item[i], v->nproducer, v->producer)) first = i + 1;
    if (last == n && item_holds(item[i], v->nconsumer, v->consumer)) last = i;
  }
  if (first > last)
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "%s: under %s a producer of %s comes after one of its consumers", v->prim,
          tree_what(v->s, v->loop), tree_what(v->s, v->block));
  if (index == -1) return last;
  if (index == -2) return first;
  if (index < first || index > last)
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: place %d under %s is not between the producers and consumers of %s: %d to %d are", v->prim, index,
          tree_what(v->s, v->loop), tree_what(v->s, v->block), first, last);
  return index;
}

/* ---- legality -------------------------------------------------------------------------------------- */

static void check_loop(Move *v)
{
  Sched *s = v->s;
  if (tree_under(v->block, v->loop))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s is under %s already, which is an ancestor of %s", v->prim,
          tree_what(s, v->block), tree_what(s, v->loop), tree_what(s, v->block));
  if (stmt_enclosing_block(v->loop) != tree_scope(s, v->block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s and %s are not in the same block scope", v->prim,
          tree_what(s, v->block), tree_what(s, v->loop));
  for (Stmt *p = v->loop->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind != S_FOR && p->kind != S_SEQ)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s stands under a condition", v->prim, tree_what(s, v->loop));
}

/* The blocks under the loop; with all set, raises if one is not. */
static int under_loop(Move *v, int n, Stmt **block, bool all, const char *role)
{
  int k = 0;
  for (int i = 0; i < n; i++) {
    if (tree_under(block[i], v->loop)) block[k++] = block[i];
    else if (all)
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
            "%s: %s does not enclose %s, a %s of %s; this requires all the %ss to be under the loop", v->prim,
            tree_what(v->s, v->loop), tree_what(v->s, block[i]), role, tree_what(v->s, v->block), role);
  }
  if (!k)
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s encloses no %s of %s", v->prim, tree_what(v->s, v->loop), role,
          tree_what(v->s, v->block));
  return k;
}

static Stmt *common_loop(Stmt *a, const Stmt *b)
{
  Stmt *p = a->parent;
  while (p && p->kind != S_BLOCK && !(p->kind == S_FOR && tree_under(b, p))) p = p->parent;
  return p && p->kind == S_FOR ? p : NULL;
}

/* A reduction that shares loops with the place where its result is used has to be
 * finished there. */
static void check_finished(Move *v, Stmt *writer, Stmt *place)
{
  for (Stmt *p = common_loop(writer, place); p; p = common_loop(p, place))
    if (facts_unfinished(v->s, writer, p))
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
            "%s: the reduction of %s runs over %s, so its result is not complete at %s", v->prim,
            tree_what(v->s, writer), tree_what(v->s, p), tree_what(v->s, v->loop));
}

/* Producers outside of the loop must have made, in the iterations of the loops that
 * they share with it, what the block reads at its new place. */
static void check_outside_producers(Move *v)
{
  Sched *s = v->s;
  Stmt **producer;
  int n = facts_producers(scratch(s->ctx), s, v->block, &producer);
  for (int i = 0; i < n; i++) {
    if (v->reverse && tree_under(producer[i], v->loop)) continue;
    if (!tree_before(s, producer[i], v->block))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s, a producer of %s, runs after %s", v->prim,
            tree_what(s, producer[i]), tree_what(s, v->block), tree_what(s, v->loop));
    check_finished(v, producer[i], v->block);
    Stmt *shared = common_loop(producer[i], v->block);
    if (!shared) continue;
    facts_bind_below(v->an, shared);
    const Block *w = BLOCK(producer[i]);
    const Block *b = BLOCK(v->block);
    for (int x = 0; x < w->nwrites; x++)
      for (int y = 0; y < b->nreads; y++) {
        if (w->writes[x].buffer != b->reads[y].buffer) continue;
        Box out = region_under(s, v->an, &w->writes[x], producer[i], shared);
        Box in = region_under(s, v->an, &b->reads[y], v->block, shared);
        if (!region_holds(s, v->an, &out, &in))
          raise(s->ctx, ERR_SCHEDULE, NOWHERE,
                "%s: in one iteration of %s, %s does not make all of buffer '%s' that %s would read", v->prim,
                tree_what(s, shared), tree_what(s, producer[i]), out.buffer->name, tree_what(s, v->block));
      }
  }
}

static void place_block(Move *v, bool preserve_unit, int index)
{
  Sched *s = v->s;
  tree_remove(s, v->block);
  /* choose_place asks for the neighbours, which it finds through the scope */
  v->block->parent = v->loop;
  int at = choose_place(v, index);
  Stmt *nest = make_nest(v, preserve_unit);
  tree_insert(s, v->loop, at, nest);
  /* Variables stay bound to `where it begins + the new loop`, also where that loop runs once. */
  Block *b = BLOCK(v->block);
  const Expr **value = arena_array(scratch(s->ctx), const Expr *, b->niter);
  for (int i = 0; i < b->niter; i++) value[i] = b->iter[i].value;
  facts_simplify_below(s, nest);
  for (int i = 0; i < b->niter; i++) b->iter[i].value = value[i];
  check_outside_producers(v);
  facts_check_above(s, v->prim, nest);
}

/* Takes every value between its ends while the loops run? */
static bool is_dense(Move *v, const Expr *value, int n, Stmt *const *loop)
{
  Arena *tmp = scratch(v->s->ctx);
  const IterVar **iters = arena_array(tmp, const IterVar *, n);
  int k = 0;
  for (int i = 0; i < n; i++) {
    if (!expr_uses_var(value, LOOPVAR(loop[i]))) continue;
    IterVar *iv = arena_new_of(tmp, IterVar);
    *iv = (IterVar){
      .var = LOOPVAR(loop[i]), .min = loop[i]->u.loop.min, .extent = loop[i]->u.loop.extent, .kind = ITER_SPATIAL};
    iters[k++] = iv;
  }
  IterSum sum;
  const char *why;
  return !k || itermap_detect(v->an, 1, &value, k, iters, NULL, ITERMAP_SURJECTIVE, &sum, &why);
}

/* All of the block's domain; inside another block, what the loops of one run cover. */
static void find_whole(Move *v, bool placed)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  const Block *b = BLOCK(v->block);
  Stmt **loop;
  bool inner = placed && BLOCK(tree_scope(s, v->block))->niter;
  int n = inner ? stmt_loops(tmp, v->block, &loop) : 0;
  const Var **vars = arena_array(tmp, const Var *, n);
  for (int k = 0; k < n; k++) vars[k] = LOOPVAR(loop[k]);
  v->whole = arena_array(tmp, Dom, b->niter);
  v->part = arena_array(tmp, bool, b->niter);
  for (int i = 0; i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    Dom all = {it->min, expr_simplify(v->an, sched_iter_end(s, it->min, it->extent))};
    v->whole[i] = all;
    if (inner) {
      facts_bind_below(v->an, tree_nest(v->block));
      if (!analyzer_relax(v->an, it->value, n, vars, &v->whole[i].lo, &v->whole[i].hi)) v->whole[i] = (Dom){NULL, NULL};
      v->part[i] = !v->whole[i].lo || !analyzer_prove_equal(v->an, v->whole[i].lo, all.lo) ||
                   !analyzer_prove_equal(v->an, v->whole[i].hi, all.hi);
      if (!v->part[i]) v->whole[i] = all;
      if (!v->whole[i].lo || (v->part[i] && (b->predicate || !is_dense(v, it->value, n, loop))))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: what a run of %s covers of the variable '%s' of %s is not known",
              v->prim, tree_what(s, tree_scope(s, v->block)), it->var->name, tree_what(s, v->block));
    }
    analyzer_bind(v->an, it->var, v->whole[i].lo,
                  plus(v, minus(v, v->whole[i].hi, v->whole[i].lo), sched_const_like(s, it->min, 1)));
  }
}

static Move begin(Sched *s, const char *prim, Stmt *block, Stmt *loop)
{
  Move v = {.s = s, .prim = prim, .block = block, .loop = loop};
  facts_check_movable(s, prim, block);
  check_loop(&v);
  facts_check_inputs_final(s, prim, block);
  v.an = facts_analyzer(s, loop);
  facts_bind_below(v.an, loop);
  find_whole(&v, true);
  v.nproducer = facts_producers(scratch(s->ctx), s, block, &v.producer);
  int n = facts_consumers(scratch(s->ctx), block, &v.consumer);
  for (int i = 0; i < n; i++)
    if (facts_touches(s, block, v.consumer[i])) v.consumer[v.nconsumer++] = v.consumer[i];
  v.dom = arena_array(scratch(s->ctx), Dom, BLOCK(block)->niter);
  return v;
}

void sched_compute_at_loop(Sched *s, Stmt *block, Stmt *loop, bool preserve_unit, int index)
{
  Move v = begin(s, "compute_at", block, loop);
  facts_check_not_output(s, "compute_at", block);
  Stmt **consumer;
  int n = facts_consumers(scratch(s->ctx), block, &consumer);
  n = under_loop(&v, n, consumer, true, "consumer");
  solve_consumers(&v, n, consumer);
  place_block(&v, preserve_unit, index);
}

/* A block made just now, standing nowhere yet, is put under the loop: over what the
 * n blocks there need of it, or have made for it. */
void sched_place_new_block(Sched *s, const char *prim, Stmt *block, Stmt *loop, bool consumes, int n,
                           Stmt *const *others)
{
  Move v = {.s = s, .prim = prim, .block = block, .loop = loop, .reverse = consumes};
  v.an = facts_analyzer(s, loop);
  facts_bind_below(v.an, loop);
  find_whole(&v, false);
  v.dom = arena_array(scratch(s->ctx), Dom, BLOCK(block)->niter);
  block->parent = loop;
  v.nproducer = facts_producers(scratch(s->ctx), s, block, &v.producer);
  v.nconsumer = facts_consumers(scratch(s->ctx), block, &v.consumer);
  if (consumes) solve_producers(&v, n, others);
  else solve_consumers(&v, n, others);
  int at = choose_place(&v, -2);
  Stmt *nest = make_nest(&v, false);
  tree_insert(s, loop, at, nest);
  facts_simplify_below(s, nest);
}

SchedArg prim_compute_at(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  LoopMark mark = sched_arg_mark(s, &a[1]);
  if (mark == MARK_INLINE) sched_inline_block(s, block);
  if (mark == MARK_NONE)
    sched_compute_at_loop(s, block, sched_arg_loop(s, &a[1]), a[2].u.i, (int)sched_arg_int(s, &a[3]));
  return sched_arg_none;
}

/* Each instance of the moved block runs, and a reduction's just once. */
static void check_once(Move *v)
{
  if (!BLOCK(v->block)->init) return;
  Stmt **loops;
  const char *why = NULL;
  int n = tree_loops_below(scratch(v->s->ctx), v->block, NULL, &loops);
  if (!facts_injective(v->s, v->block, n, loops, &why))
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: under %s the reduction %s would run some of its instances more than once%s%s", v->prim,
          tree_what(v->s, v->loop), tree_what(v->s, v->block), why ? ": " : "", why ? why : "");
}

/* Where the loops outside skip the producers, the moved block has nothing to do either. */
static void skip_with_producers(Move *v, int n, Stmt *const *producer)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  const Expr **part;
  int np = sched_conjuncts(tmp, BLOCK(producer[0])->predicate, &part);
  for (int i = 0; i < np; i++) {
    bool outside = true;
    Stmt **inner;
    int k = tree_loops_below(tmp, producer[0], v->loop, &inner);
    for (int j = 0; j < k; j++) outside &= !expr_uses_var(part[i], LOOPVAR(inner[j]));
    for (int j = 1; j < n && outside; j++) {
      const Expr **other;
      int no = sched_conjuncts(tmp, BLOCK(producer[j])->predicate, &other);
      int same = 0;
      for (int x = 0; x < no; x++) same |= other[x] == part[i];
      outside = same;
    }
    if (outside) BLOCK(v->block)->predicate = sched_both(s, BLOCK(v->block)->predicate, part[i]);
  }
  facts_simplify_below(s, v->block);
}

/* A buffer that is also written outside of the loop: what is ready under it must be all that the block reads, for the
 * block runs nowhere else. */
static void check_all_ready(Move *v)
{
  Sched *s = v->s;
  Stmt *scope = tree_scope(s, v->block);
  const Block *b = BLOCK(v->block);
  Stmt **writer;
  Analyzer *an = facts_analyzer(s, scope);
  facts_bind_below(an, scope);
  for (int i = 0; i < b->nreads; i++) {
    int n = facts_writers(scratch(s->ctx), scope, b->reads[i].buffer, &writer);
    bool outside = false;
    bool inside = false;
    bool whole = false;
    Box in = region_under(s, an, &b->reads[i], v->block, NULL);
    for (int k = 0; k < n; k++) {
      const Block *w = BLOCK(writer[k]);
      if (writer[k] == v->block) continue;
      if (!tree_under(writer[k], v->loop)) outside = true;
      else inside = true;
      for (int x = 0; x < w->nwrites && tree_under(writer[k], v->loop); x++) {
        if (w->writes[x].buffer != b->reads[i].buffer) continue;
        Box out = region_under(s, an, &w->writes[x], writer[k], NULL);
        whole |= region_holds(s, an, &out, &in);
      }
    }
    if (inside && outside && !whole)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "reverse_compute_at: only a part of buffer '%s' is written under %s, and %s reads all of it",
            b->reads[i].buffer->name, tree_what(s, v->loop), tree_what(s, v->block));
  }
}

SchedArg prim_reverse_compute_at(Sched *s, SchedArg *a)
{
  Move v = begin(s, "reverse_compute_at", sched_arg_block(s, &a[0]), sched_arg_loop(s, &a[1]));
  v.reverse = true;
  Stmt **producer;
  int n = facts_producers(scratch(s->ctx), s, v.block, &producer);
  n = under_loop(&v, n, producer, false, "producer");
  for (int i = 0; i < n; i++)
    for (Stmt *p = v.loop; p && p->kind != S_BLOCK; p = p->parent)
      if (p->kind == S_FOR && facts_unfinished(s, producer[i], p))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "reverse_compute_at: the reduction of %s runs over %s, so its result is not complete under %s",
              tree_what(s, producer[i]), tree_what(s, p), tree_what(s, v.loop));
  check_all_ready(&v);
  solve_producers(&v, n, producer);
  place_block(&v, a[2].u.i, (int)sched_arg_int(s, &a[3]));
  skip_with_producers(&v, n, producer);
  check_once(&v);
  return sched_arg_none;
}
