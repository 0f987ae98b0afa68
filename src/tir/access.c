/* access.c: which boxes of which buffers a statement touches.
 *
 * A walk goes down from a statement and carries what the variables bound on the
 * way stand for: loop variables run over their range, let and block variables are
 * replaced by their values.  Each access gives one box; the boxes of a buffer are
 * joined to the smallest one that can be shown to hold them all.  An index that
 * depends on data, or that cannot be bounded, gives the whole dimension. */
#include "tir/tir.h"

typedef struct Box {
  const Buffer *buffer;
  bool write;
  const Expr **min, **max; /* both ends belong to the box */
} Box;

typedef struct Walk {
  Module *m;
  Analyzer *an;
  Arena *arena;
  Vec(const Var *) loops; /* run over their range */
  Map values;             /* Var* -> Expr*: let and block variables */
  Map views;              /* Buffer* -> MatchBuffer* */
  bool trust_calls;       /* leave out what calls do with addresses */
  bool hide;              /* leave out what is allocated on the way … */
  Map hidden;             /* … Buffer* */
  Vec(Box) boxes;
} Walk;

static const Expr *plus(Walk *w, const Expr *e, int64_t c)
{
  return c ? expr_add(w->m, e, expr_int(w->m, e->dtype, c)) : e;
}

/* e in the variables that stay fixed or run: lets and block variables gone. */
static const Expr *inline_let(Rewriter *rw, const Expr *e)
{
  return e->kind == E_LET ? expr_substitute1(rw->m, e->arg[1], e->u.var, e->arg[0]) : e;
}

static const Expr *resolve(Walk *w, const Expr *e)
{
  if (expr_has_kind(e, E_LET)) {
    Rewriter rw = {.m = w->m, .fn = inline_let, .arena = w->arena};
    e = expr_rewrite(&rw, e);
  }
  return expr_substitute(w->m, e, &w->values);
}

/* Bounds of the lanes of a vector index. */
static bool lane_bounds(Walk *w, const Expr *e, const Expr **min, const Expr **max)
{
  if (e->dtype.lanes == 1) {
    *min = *max = e;
    return true;
  }
  if (e->kind == E_BROADCAST) return lane_bounds(w, e->arg[0], min, max);
  int64_t span;
  if (e->kind == E_RAMP && e->arg[0]->dtype.lanes == 1 && e->arg[1]->kind == E_INT &&
      int_mul(e->arg[1]->u.i, e->dtype.lanes - 1, &span)) {
    *min = plus(w, e->arg[0], span < 0 ? span : 0);
    *max = plus(w, e->arg[0], span > 0 ? span : 0);
    return true;
  }
  if (e->kind != E_ADD) return false;
  const Expr *lo, *hi;
  if (!lane_bounds(w, e->arg[0], min, max) || !lane_bounds(w, e->arg[1], &lo, &hi)) return false;
  *min = expr_add(w->m, *min, lo);
  *max = expr_add(w->m, *max, hi);
  return true;
}

/* Both ends of what e can be while the loops run. */
static bool ends_of(Walk *w, const Expr *e, const Expr **min, const Expr **max)
{
  const Expr *lo, *hi, *unused;
  e = resolve(w, e);
  if (expr_has_kind(e, E_LOAD) || expr_has_kind(e, E_CALL) || !lane_bounds(w, e, &lo, &hi)) return false;
  if (!analyzer_relax(w->an, lo, w->loops.n, w->loops.v, min, lo == hi ? max : &unused)) return false;
  if (lo != hi && !analyzer_relax(w->an, hi, w->loops.n, w->loops.v, &unused, max)) return false;
  *min = expr_simplify(w->an, *min);
  *max = expr_simplify(w->an, *max);
  return true;
}

/* Cuts constant ends down to the buffer. */
static void clamp(Walk *w, const Expr *extent, const Expr **min, const Expr **max)
{
  if (extent->kind != E_INT) return;
  if ((*min)->kind == E_INT && (*min)->u.i < 0) *min = expr_int(w->m, (*min)->dtype, 0);
  if ((*max)->kind == E_INT && (*max)->u.i >= extent->u.i) *max = expr_int(w->m, (*max)->dtype, extent->u.i - 1);
}

static void whole_dim(Walk *w, const Expr *extent, const Expr **min, const Expr **max)
{
  *min = expr_int(w->m, extent->dtype, 0);
  *max = expr_simplify(w->an, plus(w, extent, -1));
}

static const Expr *lesser(Walk *w, const Expr *a, const Expr *b, bool want_max)
{
  if (a == b) return a;
  if (analyzer_prove(w->an, expr_binary(w->m, E_LE, a, b))) return want_max ? b : a;
  if (analyzer_prove(w->an, expr_binary(w->m, E_LE, b, a))) return want_max ? a : b;
  return expr_simplify(w->an, expr_binary(w->m, want_max ? E_MAX : E_MIN, a, b));
}

static void add_box(Walk *w, const Box *box)
{
  for (int i = 0; i < w->boxes.n; i++) {
    Box *old = &w->boxes.v[i];
    if (old->buffer != box->buffer || old->write != box->write) continue;
    for (int d = 0; d < box->buffer->ndim; d++) {
      old->min[d] = lesser(w, old->min[d], box->min[d], false);
      old->max[d] = lesser(w, old->max[d], box->max[d], true);
    }
    return;
  }
  vec_push(w->arena, &w->boxes, *box);
}

static void add_region(Walk *w, const Region *r, bool write);

/* An access with an index for each dimension (NULL: the whole buffer). */
static void add_access(Walk *w, const Buffer *b, const Expr *const *index, bool write)
{
  const MatchBuffer *view = map_get(&w->views, b);
  if (view) {
    add_region(w, &view->source, write);
    return;
  }
  if (map_has(&w->hidden, b)) return;
  Box box = {b, write, arena_array(w->arena, const Expr *, b->ndim), arena_array(w->arena, const Expr *, b->ndim)};
  for (int d = 0; d < b->ndim; d++) {
    if (!index || !ends_of(w, index[d], &box.min[d], &box.max[d])) whole_dim(w, b->shape[d], &box.min[d], &box.max[d]);
    else clamp(w, b->shape[d], &box.min[d], &box.max[d]);
  }
  add_box(w, &box);
}

static void add_region(Walk *w, const Region *r, bool write)
{
  const MatchBuffer *view = map_get(&w->views, r->buffer);
  if (view) {
    add_region(w, &view->source, write);
    return;
  }
  const Buffer *b = r->buffer;
  if (map_has(&w->hidden, b)) return;
  Box box = {b, write, arena_array(w->arena, const Expr *, b->ndim), arena_array(w->arena, const Expr *, b->ndim)};
  for (int d = 0; d < b->ndim; d++) {
    const Expr *unused;
    const Expr *last = plus(w, expr_add(w->m, r->min[d], r->extent[d]), -1);
    bool known = ends_of(w, r->min[d], &box.min[d], &unused);
    /* one expression for a point, so that its ends stay the same expression */
    if (known && expr_is_int(r->extent[d], 1)) box.max[d] = unused;
    else known = known && ends_of(w, last, &unused, &box.max[d]);
    if (known) clamp(w, b->shape[d], &box.min[d], &box.max[d]);
    else whole_dim(w, b->shape[d], &box.min[d], &box.max[d]);
  }
  add_box(w, &box);
}

/* ---- expressions ------------------------------------------------------------------ */

/* tvm_access_ptr(type, data, offset, extent, mask): the view or buffer behind data. */
static void visit_pointer(Walk *w, const Expr *call)
{
  const Expr *data = call->arg[1];
  const Expr *mask = call->arg[4];
  if (data->kind != E_VAR) return;
  int64_t bits = mask->kind == E_INT ? mask->u.i : 3;
  for (int i = 0; i < w->views.n; i++) {
    const Buffer *b = (const Buffer *)(uintptr_t)w->views.key[i];
    if (!b || b->data != data->u.var) continue;
    if (bits & 1) add_access(w, b, NULL, false);
    if (bits & 2) add_access(w, b, NULL, true);
  }
}

static void visit_node(void *env, const Expr *e)
{
  Walk *w = env;
  if (e->kind == E_LOAD) add_access(w, e->u.buffer, e->arg, false);
  if (e->kind == E_CALL && e->u.intrin == IN_ACCESS_PTR) visit_pointer(w, e);
}

static void visit_address(void *env, const Expr *e)
{
  Walk *w = env;
  if (e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF && e->arg[0]->kind == E_LOAD) {
    add_access(w, e->arg[0]->u.buffer, NULL, false);
    add_access(w, e->arg[0]->u.buffer, NULL, true);
  }
}

static void visit_expr(Walk *w, const Expr *e)
{
  if (e) expr_visit(w->m->ctx, e, visit_node, w);
}

/* ---- statements --------------------------------------------------------------------- */

static void visit_stmt(Walk *w, const Stmt *s);

static void hide(Walk *w, const Buffer *b)
{
  if (w->hide) map_put(w->arena, &w->hidden, b, w);
}

static void visit_block(Walk *w, const Block *b)
{
  const Expr **value = arena_array(w->arena, const Expr *, b->niter);
  for (int i = 0; i < b->niter; i++) value[i] = resolve(w, b->iter[i].value);
  for (int i = 0; i < b->niter; i++) {
    visit_expr(w, b->iter[i].value);
    map_put(w->arena, &w->values, b->iter[i].var, (void *)value[i]);
  }
  int mark = b->predicate ? analyzer_push(w->an, resolve(w, b->predicate)) : -1;
  if (b->predicate) visit_expr(w, b->predicate);
  for (int i = 0; i < b->nallocs; i++) hide(w, b->allocs[i]);
  if ((b->nreads || b->nwrites) && (w->hide || !b->nallocs)) {
    for (int i = 0; i < b->nreads; i++) add_region(w, &b->reads[i], false);
    for (int i = 0; i < b->nwrites; i++) add_region(w, &b->writes[i], true);
  } else {
    for (int i = 0; i < b->nmatches; i++) map_put(w->arena, &w->views, b->matches[i].buffer, &b->matches[i]);
    if (b->init) visit_stmt(w, b->init);
    visit_stmt(w, b->body);
  }
  if (mark >= 0) analyzer_pop(w->an, mark);
}

static void visit_loop(Walk *w, const Stmt *s)
{
  visit_expr(w, s->u.loop.min);
  visit_expr(w, s->u.loop.extent);
  analyzer_bind(w->an, s->u.loop.var, resolve(w, s->u.loop.min), resolve(w, s->u.loop.extent));
  vec_push(w->arena, &w->loops, s->u.loop.var);
  visit_stmt(w, s->u.loop.body);
  w->loops.n--;
}

static void visit_guarded(Walk *w, const Expr *cond, const Stmt *body)
{
  const Expr *known = resolve(w, cond);
  int mark = analyzer_push(w->an, known);
  visit_stmt(w, body);
  analyzer_pop(w->an, mark);
}

/* A hint: it writes nothing, whatever address it is given. */
static bool is_prefetch(const Expr *e) { return e->kind == E_CALL && e->u.intrin == IN_PREFETCH; }

static void visit_stmt(Walk *w, const Stmt *s)
{
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) visit_stmt(w, s->u.seq.v[i]);
    break;
  case S_FOR: visit_loop(w, s); break;
  case S_IF:
    visit_expr(w, s->u.cond.cond);
    visit_guarded(w, s->u.cond.cond, s->u.cond.then);
    if (s->u.cond.orelse) visit_guarded(w, expr_not(w->m, s->u.cond.cond), s->u.cond.orelse);
    break;
  case S_WHILE:
    visit_expr(w, s->u.loop_while.cond);
    visit_stmt(w, s->u.loop_while.body);
    break;
  case S_LET:
    visit_expr(w, s->u.let.value);
    map_put(w->arena, &w->values, s->u.let.var, (void *)resolve(w, s->u.let.value));
    visit_stmt(w, s->u.let.body);
    break;
  case S_STORE:
    for (int i = 0; i < s->u.store.n; i++) visit_expr(w, s->u.store.index[i]);
    visit_expr(w, s->u.store.value);
    visit_expr(w, s->u.store.mask);
    add_access(w, s->u.store.buffer, s->u.store.index, true);
    break;
  case S_ALLOC:
    hide(w, s->u.alloc.buffer);
    visit_stmt(w, s->u.alloc.body);
    break;
  case S_EVAL:
    visit_expr(w, s->u.eval.value);
    if (!w->trust_calls && !expr_is_pure(s->u.eval.value) && !is_prefetch(s->u.eval.value))
      expr_visit(w->m->ctx, s->u.eval.value, visit_address, w);
    break;
  case S_ATTR: visit_stmt(w, s->u.attr.body); break;
  case S_BLOCK: visit_block(w, s->u.block); break;
  }
}

/* ---- results --------------------------------------------------------------------------- */

static Region region_of(Walk *w, const Box *box)
{
  int n = box->buffer->ndim;
  Region r = {box->buffer, arena_array(w->m->arena, const Expr *, n), arena_array(w->m->arena, const Expr *, n)};
  for (int d = 0; d < n; d++) {
    r.min[d] = box->min[d];
    r.extent[d] = box->min[d] == box->max[d]
                      ? expr_int(w->m, box->min[d]->dtype, 1)
                      : expr_simplify(w->an, plus(w, expr_binary(w->m, E_SUB, box->max[d], box->min[d]), 1));
    /* int32 and int64 in turn */
    if (!dtype_eq(r.min[d]->dtype, r.extent[d]->dtype))
      r.min[d] = expr_simplify(w->an, expr_cast(w->m, r.extent[d]->dtype, r.min[d]));
  }
  return r;
}

static bool has_box(const Walk *w, const Buffer *b, bool write)
{
  for (int i = 0; i < w->boxes.n; i++)
    if (w->boxes.v[i].buffer == b && w->boxes.v[i].write == write) return true;
  return false;
}

static Region *collect(Walk *w, bool write, bool skip_written, int *count)
{
  Region *out = arena_array(w->m->arena, Region, w->boxes.n);
  int n = 0;
  for (int i = 0; i < w->boxes.n; i++) {
    const Box *box = &w->boxes.v[i];
    if (box->write != write || (skip_written && has_box(w, box->buffer, true))) continue;
    out[n++] = region_of(w, box);
  }
  *count = n;
  return out;
}

/* Of a binding or a predicate, which are over the loops around the block: the whole buffer. */
static void visit_outer_load(void *env, const Expr *e)
{
  if (e->kind == E_LOAD) add_access(env, e->u.buffer, NULL, false);
}

/* Everything that an instance of the block touches. */
static void walk_block(Walk *w, const Block *b)
{
  Ctx *ctx = w->m->ctx;
  for (int i = 0; i < b->niter; i++) analyzer_bind(w->an, b->iter[i].var, b->iter[i].min, b->iter[i].extent);
  for (int i = 0; i < b->nallocs; i++) hide(w, b->allocs[i]);
  for (int i = 0; i < b->nmatches; i++) map_put(w->arena, &w->views, b->matches[i].buffer, &b->matches[i]);
  if (b->predicate && expr_has_kind(b->predicate, E_LOAD)) expr_visit(ctx, b->predicate, visit_outer_load, w);
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].value && expr_has_kind(b->iter[i].value, E_LOAD))
      expr_visit(ctx, b->iter[i].value, visit_outer_load, w);
  if (b->init) visit_stmt(w, b->init);
  visit_stmt(w, b->body);
}

void block_infer_access(Module *m, Block *b)
{
  Scope scope = scope_begin(m->ctx);
  Walk w = {.m = m, .an = analyzer_new(m, scratch(m->ctx)), .arena = scratch(m->ctx), .hide = true};
  walk_block(&w, b);
  /* a reduction's update reads what its init wrote: not an input of the block */
  b->reads = collect(&w, false, b->init != NULL, &b->nreads);
  b->writes = collect(&w, true, false, &b->nwrites);
  scope_end(m->ctx, scope);
}

/* ---- regions that the author wrote ---------------------------------------------------------- */

static const Expr *last_of(Walk *w, const Region *r, int d)
{
  return expr_simplify(w->an, plus(w, expr_add(w->m, r->min[d], r->extent[d]), -1));
}

static const Expr *as_dtype(Walk *w, const Expr *e, DType t)
{
  return dtype_eq(e->dtype, t) ? e : expr_simplify(w->an, expr_cast(w->m, t, e));
}

/* Makes dimension d of the region hold that of the box; true: it did before. */
static bool widen_dim(Walk *w, Region *r, int d, const Box *box)
{
  const Expr *lo = as_dtype(w, box->min[d], r->min[d]->dtype);
  const Expr *hi = as_dtype(w, box->max[d], r->min[d]->dtype);
  const Expr *last = as_dtype(w, last_of(w, r, d), r->min[d]->dtype);
  const Expr *first = lesser(w, r->min[d], lo, false);
  const Expr *end = lesser(w, last, hi, true);
  if (first == r->min[d] && end == last) return true;
  r->min[d] = first;
  r->extent[d] = expr_simplify(w->an, plus(w, expr_binary(w->m, E_SUB, end, first), 1));
  return false;
}

static Region copy_region(Walk *w, const Region *r)
{
  size_t bytes = sizeof *r->min * (size_t)r->buffer->ndim;
  return (Region){r->buffer, arena_copy(w->m->arena, r->min, bytes), arena_copy(w->m->arena, r->extent, bytes)};
}

/* One of the declared regions comes to hold the box. */
static void widen_region(Walk *w, Region *v, int *n, const Box *box)
{
  int first = -1;
  Region wide = {0};
  for (int i = 0; i < *n; i++) {
    if (v[i].buffer != box->buffer) continue;
    Region r = copy_region(w, &v[i]);
    bool holds = true;
    for (int d = 0; d < box->buffer->ndim; d++) holds &= widen_dim(w, &r, d, box);
    if (holds) return;
    if (first >= 0) continue;
    first = i;
    wide = r;
  }
  v[first < 0 ? (*n)++ : first] = first < 0 ? region_of(w, box) : wide;
}

static void widen_regions(Walk *w, const Block *b, bool write, Region **v, int *n)
{
  Region *out = arena_array(w->m->arena, Region, *n + w->boxes.n);
  if (*n) memcpy(out, *v, sizeof *out * (size_t)*n);
  for (int i = 0; i < w->boxes.n; i++) {
    const Box *box = &w->boxes.v[i];
    if (box->write == write && (write || !b->init || !has_box(w, box->buffer, true))) widen_region(w, out, n, box);
  }
  *v = out;
}

void block_widen_access(Module *m, Block *b)
{
  Scope scope = scope_begin(m->ctx);
  Walk w = {
    .m = m, .an = analyzer_new(m, scratch(m->ctx)), .arena = scratch(m->ctx), .hide = true, .trust_calls = true};
  walk_block(&w, b);
  widen_regions(&w, b, false, &b->reads, &b->nreads);
  widen_regions(&w, b, true, &b->writes, &b->nwrites);
  b->declared = false;
  scope_end(m->ctx, scope);
}

/* No scope of its own: the analyzer may grow in the caller's scratch memory. */
bool stmt_region(Analyzer *an, Stmt *s, const Buffer *buffer, bool writes, Region *out)
{
  Module *m = analyzer_module(an);
  Walk w = {.m = m, .an = an, .arena = scratch(m->ctx)};
  visit_stmt(&w, s->kind == S_FOR ? s->u.loop.body : s);
  for (int i = 0; i < w.boxes.n; i++)
    if (w.boxes.v[i].buffer == buffer && w.boxes.v[i].write == writes) {
      *out = region_of(&w, &w.boxes.v[i]);
      return true;
    }
  return false;
}
