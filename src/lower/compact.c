/* compact.c: allocated buffers shrink to what is used of them.
 *
 * lower_pass_compact_buffers
 *   for io:                                   for io:
 *     alloc B[1024]                             alloc B[32]
 *     for ii: B[io*32 + ii] = …            →    for ii: B[ii] = …
 *   Below each allocation the box that all accesses touch is found by letting the
 *   loops inside run while those outside stand still.  A dimension shrinks when the
 *   box has an extent that is known to be at most a constant; indices and regions are
 *   rebased to its corner.  Shared memory stands outside the threads' loops but is filled
 *   anew in each iteration of the serial ones, which stand still too ("filled_in", plan.c).
 *   "buffer_dim_align" on the allocation pads strides so that
 *   stride % factor == offset.
 *
 * needs   allocations as statements (plan.c), blocks or not
 * keeps   blocks, regions, match_buffer sources
 * breaks  nothing */
#include "lower/internal.h"

/* One dimension of the box: [min, max], or all of it. */
typedef struct Span {
  const Expr *min, *max; /* NULL: nothing touched so far */
  bool whole;
} Span;

typedef struct Compact {
  Lower *lo;
  Analyzer *an;
  Arena *tmp;
  /* while the box of one buffer is found */
  const Buffer *buffer;
  Span *span;
  Vec(const Var *) inner; /* loop and let variables bound below the allocation */
  Map bound;              /* block variables -> their values over loops */
  bool opaque;            /* the pointer itself is used: keep the buffer as it is */
  int64_t filled_in;      /* id of the statement that fills shared memory anew, -1: the allocation's body */
  bool inside;            /* … was met */
} Compact;

static void bind_range(Compact *c, const Var *var, const Expr *min, const Expr *extent)
{
  analyzer_bind(c->an, var, min, extent);
}

/* Widens dimension d to hold e for all values of the inner variables. */
static void widen(Compact *c, int d, const Expr *from, const Expr *to)
{
  Span *s = &c->span[d];
  if (s->whole) return;
  Module *m = c->lo->m;
  const Expr *lo, *hi, *lo2, *hi2;
  from = expr_substitute(m, from, &c->bound);
  to = expr_substitute(m, to, &c->bound);
  if (!analyzer_relax(c->an, from, c->inner.n, c->inner.v, &lo, &hi2) ||
      !analyzer_relax(c->an, to, c->inner.n, c->inner.v, &lo2, &hi)) {
    s->whole = true;
    return;
  }
  if (!s->min) {
    s->min = expr_simplify(c->an, lo);
    s->max = expr_simplify(c->an, hi);
    return;
  }
  if (!analyzer_prove(c->an, expr_binary(m, E_LE, s->min, lo))) s->min = expr_simplify(c->an, expr_min(m, s->min, lo));
  if (!analyzer_prove(c->an, expr_binary(m, E_GE, s->max, hi))) s->max = expr_simplify(c->an, expr_max(m, s->max, hi));
}

static void widen_index(Compact *c, int d, const Expr *index)
{
  Module *m = c->lo->m;
  if (index->dtype.lanes == 1) {
    widen(c, d, index, index);
  } else if (index->kind == E_RAMP && index->arg[1]->kind == E_INT && index->arg[1]->u.i > 0) {
    const Expr *span = expr_mul(m, index->arg[1], lower_int(m, index->arg[1], index->dtype.lanes - 1));
    widen(c, d, index->arg[0], expr_add(m, index->arg[0], span));
  } else {
    c->span[d].whole = true;
  }
}

static void touch_in_expr(void *env, const Expr *e)
{
  Compact *c = env;
  if (e->kind == E_VAR && e->u.var == c->buffer->data) c->opaque = true;
  if (e->kind != E_LOAD || e->u.buffer->data != c->buffer->data) return;
  c->opaque |= e->u.buffer != c->buffer; /* another buffer over the same memory */
  if (c->opaque) return;
  for (int d = 0; d < e->nargs; d++) widen_index(c, d, e->arg[d]);
}

static void touch_expr(Compact *c, const Expr *e)
{
  if (e) expr_visit(c->lo->ctx, e, touch_in_expr, c);
}

static const Expr *touch_held(void *env, const Expr *e)
{
  touch_expr(env, e);
  return e;
}

static void touch_block(Compact *c, Block *b)
{
  Module *m = c->lo->m;
  for (int i = 0; i < b->niter; i++) {
    touch_expr(c, b->iter[i].value);
    map_put(c->tmp, &c->bound, b->iter[i].var, (void *)(uintptr_t)expr_substitute(m, b->iter[i].value, &c->bound));
  }
  touch_expr(c, b->predicate);
  for (int i = 0; i < b->nmatches; i++) {
    const Region *r = &b->matches[i].source;
    if (r->buffer != c->buffer) continue;
    for (int d = 0; d < r->buffer->ndim; d++)
      widen(c, d, r->min[d], expr_sub(m, expr_add(m, r->min[d], r->extent[d]), lower_int(m, r->min[d], 1)));
  }
}

static bool touch_stmt(void *env, Stmt *s)
{
  Compact *c = env;
  c->inside |= s->id == c->filled_in;
  lower_map_exprs(s, touch_held, c);
  if (s->kind == S_FOR) {
    bind_range(c, s->u.loop.var, expr_substitute(c->lo->m, s->u.loop.min, &c->bound),
               expr_substitute(c->lo->m, s->u.loop.extent, &c->bound));
    /* its iterations run side by side */
    bool together = s->u.loop.kind == FOR_THREAD || s->u.loop.kind == FOR_VECTORIZED;
    if (c->inside || together) vec_push(c->tmp, &c->inner, s->u.loop.var);
  }
  if (s->kind == S_LET) vec_push(c->tmp, &c->inner, s->u.let.var);
  if (s->kind == S_BLOCK) touch_block(c, s->u.block);
  if (s->kind == S_STORE && s->u.store.buffer->data == c->buffer->data && s->u.store.buffer != c->buffer)
    c->opaque = true;
  if (s->kind == S_STORE && s->u.store.buffer == c->buffer)
    for (int d = 0; d < s->u.store.n; d++) widen_index(c, d, s->u.store.index[d]);
  return true;
}

/* ---- the new shape ------------------------------------------------------------------ */

/* Does the extent depend on no loop or let around the allocation, but on sizes alone? */
static bool is_of_sizes(const Stmt *alloc, const Expr *e)
{
  for (const Stmt *q = alloc->parent; q; q = q->parent)
    if ((q->kind == S_FOR && expr_uses_var(e, q->u.loop.var)) || (q->kind == S_LET && expr_uses_var(e, q->u.let.var)))
      return false;
  return true;
}

/* The extent of dimension d if it can shrink, to a constant or to an expression of sizes that is smaller; min receives
 * its corner. */
static const Expr *shrunk_extent(Compact *c, const Stmt *alloc, int d, const Expr **min)
{
  Module *m = c->lo->m;
  const Span *s = &c->span[d];
  const Expr *shape = c->buffer->shape[d];
  *min = lower_int(m, shape, 0);
  if (s->whole || !s->min) return shape;
  const Expr *extent = expr_simplify(c->an, expr_add(m, expr_sub(m, s->max, s->min), lower_int(m, s->max, 1)));
  int64_t n = 0;
  int64_t full = 0;
  if (!lower_const_int(extent, &n)) {
    n = analyzer_bounds(c->an, extent).max;
    if (n <= 0 || n == INT64_MAX) return shape;
  }
  if (n <= 0 || (lower_const_int(shape, &full) && n >= full)) return shape;
  *min = s->min;
  bool local = !strcmp(c->buffer->scope, "local");
  if (extent->kind != E_INT && !local && is_of_sizes(alloc, extent)) return expr_cast(m, shape->dtype, extent);
  return lower_int(m, shape, n);
}

/* Strides with those of some axes padded; NULL when compact rows will do. */
static const Expr **aligned_strides(Compact *c, const Stmt *alloc, int ndim, const Expr *const *shape)
{
  Module *m = c->lo->m;
  const Expr *align = annots_get(&alloc->u.alloc.annots, "buffer_dim_align");
  if (!align || ndim == 0) return NULL;
  const Expr **stride = arena_array(m->arena, const Expr *, ndim);
  const Expr *next = lower_int(m, shape[0], 1);
  for (int d = ndim - 1; d >= 0; d--) {
    for (int i = 0; i + 2 < align->nargs; i += 3) {
      if (align->arg[i]->u.i != d) continue;
      int64_t factor = align->arg[i + 1]->u.i;
      int64_t offset = align->arg[i + 2]->u.i;
      const Expr *f = lower_int(m, next, factor);
      /* next + (factor + offset - next % factor) % factor */
      next = expr_add(m, next,
                      expr_floormod(m, expr_sub(m, lower_int(m, next, factor + offset), expr_floormod(m, next, f)), f));
    }
    stride[d] = expr_simplify(c->an, next);
    next = expr_mul(m, stride[d], shape[d]);
  }
  return stride;
}

/* ---- rebasing ------------------------------------------------------------------------ */

typedef struct Rebase {
  Lower *lo;
  const Buffer *from, *to;
  const Expr **min;
  Rewriter rw;
} Rebase;

static const Expr *rebased(Rebase *r, int d, const Expr *index)
{
  return expr_is_int(r->min[d], 0) ? index : expr_sub(r->lo->m, index, r->min[d]);
}

static const Expr *rebase_node(Rewriter *rw, const Expr *e)
{
  Rebase *r = rw->env;
  if (e->kind != E_LOAD || e->u.buffer != r->from) return e;
  const Expr **index = arena_array(rw->arena, const Expr *, e->nargs);
  for (int d = 0; d < e->nargs; d++) index[d] = rebased(r, d, e->arg[d]);
  return expr_load(r->lo->m, r->to, e->nargs, index);
}

static const Expr *rebase_expr(void *env, const Expr *e) { return expr_rewrite(&((Rebase *)env)->rw, e); }

static void rebase_region(Rebase *r, Region *g)
{
  if (g->buffer != r->from) return;
  g->buffer = r->to;
  for (int d = 0; d < r->to->ndim; d++) g->min[d] = rebased(r, d, g->min[d]);
}

static bool rebase_stmt(void *env, Stmt *s)
{
  Rebase *r = env;
  if (s->kind == S_STORE && s->u.store.buffer == r->from) {
    s->u.store.buffer = r->to;
    for (int d = 0; d < s->u.store.n; d++) s->u.store.index[d] = rebased(r, d, s->u.store.index[d]);
  }
  if (s->kind == S_BLOCK) {
    Block *b = s->u.block;
    for (int i = 0; i < b->nreads; i++) rebase_region(r, &b->reads[i]);
    for (int i = 0; i < b->nwrites; i++) rebase_region(r, &b->writes[i]);
    for (int i = 0; i < b->nmatches; i++) rebase_region(r, &b->matches[i].source);
  }
  return true;
}

static void compact_alloc(Compact *c, Stmt *s)
{
  Module *m = c->lo->m;
  const Buffer *b = s->u.alloc.buffer;
  c->buffer = b;
  c->span = arena_array(c->tmp, Span, b->ndim);
  c->inner.n = 0;
  c->opaque = b->strides || b->elem_offset;
  const Expr *filled = annots_get(&s->u.alloc.annots, "filled_in");
  c->filled_in = filled ? filled->u.i : -1;
  c->inside = !filled;
  if (filled) annots_remove(&s->u.alloc.annots, "filled_in");
  stmt_visit(s->u.alloc.body, touch_stmt, c);
  if (c->opaque) return;
  const Expr **shape = arena_array(m->arena, const Expr *, b->ndim);
  const Expr **min = arena_array(m->arena, const Expr *, b->ndim);
  bool changed = false;
  for (int d = 0; d < b->ndim; d++) {
    shape[d] = shrunk_extent(c, s, d, &min[d]);
    changed |= shape[d] != b->shape[d];
  }
  const Expr **strides = aligned_strides(c, s, b->ndim, shape);
  if (!changed && !strides) return;
  Rebase r = {.lo = c->lo, .from = b, .min = min};
  r.to = buffer_new(m, b->name, b->dtype, b->ndim, shape, strides, NULL, b->scope, b->align, b->offset_factor, b->data);
  r.rw = (Rewriter){.m = m, .fn = rebase_node, .env = &r, .arena = c->tmp};
  stmt_rewrite_exprs(s->u.alloc.body, rebase_expr, &r);
  stmt_visit(s->u.alloc.body, rebase_stmt, &r);
  s->u.alloc.buffer = r.to;
}

static bool compact_stmt(void *env, Stmt *s)
{
  Compact *c = env;
  if (s->kind == S_FOR) bind_range(c, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  if (s->kind == S_BLOCK)
    for (int i = 0; i < s->u.block->niter; i++)
      map_put(c->tmp, &c->bound, s->u.block->iter[i].var,
              (void *)(uintptr_t)expr_substitute(c->lo->m, s->u.block->iter[i].value, &c->bound));
  if (s->kind == S_ALLOC) compact_alloc(c, s);
  return true;
}

void lower_pass_compact_buffers(Lower *lo)
{
  Compact c = {.lo = lo, .an = lower_analyzer(lo), .tmp = scratch(lo->ctx)};
  stmt_visit(lo->f->body, compact_stmt, &c);
}
