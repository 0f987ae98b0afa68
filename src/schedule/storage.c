/* storage.c: where buffers live, how they are laid out, when they are fetched.
 *
 * Annotations that lowering reads off the writing block:
 *   buffer_dim_align     groups of (write number, axis, factor, offset)
 *   double_buffer_scope  the number of the write */
#include "schedule/engine.h"

static int check_write_index(Sched *s, const char *prim, Stmt *block, const SchedArg *a)
{
  int64_t i = sched_arg_int(s, a);
  if (i < 0 || i >= BLOCK(block)->nwrites)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "%s: buffer number %" PRId64 " is not among the %d that %s writes", prim, i,
          BLOCK(block)->nwrites, tree_what(s, block));
  return (int)i;
}

static const Buffer *check_allocated(Sched *s, const char *prim, const Buffer *b)
{
  if (!sched_func_alloc_block(s, b))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: buffer '%s' is a parameter of function '%s', whose memory is the caller's; cache_write gives one of its "
          "own",
          prim, b->name, s->f->name);
  return b;
}

SchedArg prim_storage_align(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  int index = check_write_index(s, "storage_align", block, &a[1]);
  const Buffer *b = check_allocated(s, "storage_align", BLOCK(block)->writes[index].buffer);
  int64_t axis = sched_arg_int(s, &a[2]);
  int64_t factor = sched_arg_int(s, &a[3]);
  int64_t offset = sched_arg_int(s, &a[4]);
  if (axis < -b->ndim || axis >= b->ndim)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "storage_align: axis %" PRId64 " is not one of the %d of buffer '%s'", axis,
          b->ndim, b->name);
  if (factor <= 0) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "storage_align: factor %" PRId64 " is not positive", factor);
  if (offset < 0 || offset >= factor)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "storage_align: offset %" PRId64 " is not in [0, %" PRId64 ")", offset,
          factor);
  if (axis < 0) axis += b->ndim;
  const Expr *group[] = {expr_i32(s->m, index), expr_i32(s->m, axis), expr_i32(s->m, factor), expr_i32(s->m, offset)};
  Vec(const Expr *) groups = {0};
  const Expr *old = annots_get(&BLOCK(block)->annots, "buffer_dim_align");
  for (int i = 0; old && i < old->nargs; i++)
    if (!(old->arg[i]->arg[0] == group[0] && old->arg[i]->arg[1] == group[1]))
      vec_push(scratch(s->ctx), &groups, old->arg[i]);
  vec_push(scratch(s->ctx), &groups, expr_call(s->m, DT_PTR, IN_MAKE_SHAPE, 4, group));
  annots_set(s->m->arena, &BLOCK(block)->annots, "buffer_dim_align",
             expr_call(s->m, DT_PTR, IN_MAKE_SHAPE, groups.n, groups.v));
  return sched_arg_none;
}

/* A kind of memory, and what kind of it behind a dot: global, shared.dyn, local, wmma.accumulator, global.vtcm. */
void sched_check_scope(Sched *s, const char *prim, const char *scope)
{
  static const char *const kinds[] = {"global", "shared", "local", "warp", "wmma", "texture", "m16n8k8", "metal"};
  size_t n = strcspn(scope, ".");
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strlen(kinds[i]) == n && !strncmp(scope, kinds[i], n)) return;
  raise(
      s->ctx, ERR_ARGUMENT, NOWHERE,
      "%s: '%s' is no storage scope; there are global, shared, local, warp, wmma, texture, m16n8k8 and metal, alone or "
      "with a part behind a dot, as in shared.dyn",
      prim, scope);
}

SchedArg prim_set_scope(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  const Buffer *b = check_allocated(s, "set_scope", sched_write_region(s, "set_scope", block, &a[1])->buffer);
  sched_check_scope(s, "set_scope", a[2].u.s);
  if (strcmp(b->scope, a[2].u.s)) stmt_replace_buffer(s->m, s->f->body, b, buffer_with_scope(s->m, b, a[2].u.s));
  facts_check_above(s, "set_scope", block);
  return sched_arg_none;
}

/* ---- set_axis_separator --------------------------------------------------------------------- */

typedef struct Separate {
  Sched *s;
  const Buffer *from;
  uint32_t separators;
} Separate;

/* A view has the last dimensions of what it is a view of. */
static bool separate_views(void *env, Stmt *stmt)
{
  Separate *v = env;
  for (int i = 0; stmt->kind == S_BLOCK && i < BLOCK(stmt)->nmatches; i++) {
    const MatchBuffer *match = &BLOCK(stmt)->matches[i];
    if (match->source.buffer != v->from) continue;
    uint32_t own = 0;
    int skipped = v->from->ndim - match->buffer->ndim;
    for (int d = 0; d <= v->from->ndim; d++)
      if (v->separators >> d & 1) own |= (uint32_t)1 << (d > skipped ? d - skipped : 0);
    const Buffer *view = match->buffer;
    stmt_replace_buffer(v->s->m, stmt, view, buffer_with_separators(v->s->m, view, own));
  }
  return true;
}

void sched_separate_axes(Sched *s, const Buffer *from, uint32_t separators)
{
  Separate v = {s, from, separators};
  stmt_visit(s->f->body, separate_views, &v);
  const Buffer *to = buffer_with_separators(s->m, from, separators);
  if (to == from) return;
  stmt_replace_buffer(s->m, s->f->body, from, to);
  for (int i = 0; i < s->f->nparam; i++)
    if (s->f->param[i].buffer == from) s->f->param[i].buffer = to;
}

SchedArg prim_set_axis_separator(Sched *s, SchedArg *a)
{
  bool write;
  Stmt *block = sched_arg_block(s, &a[0]);
  const Buffer *from = sched_buffer_region(s, "set_axis_separator", block, &a[1], &write)->buffer;
  uint32_t separators = 0;
  int64_t least = 0;
  for (int i = 0; a[2].kind == SA_LIST && i < a[2].u.list.n; i++) {
    int64_t at = sched_arg_int(s, &a[2].u.list.v[i]);
    if (at < least || at > from->ndim)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE,
            "set_axis_separator: separator %d is %" PRId64 "; they grow from 0 to the %d dimensions of buffer '%s'", i,
            at, from->ndim, from->name);
    separators |= (uint32_t)1 << at;
    least = at + 1;
  }
  sched_separate_axes(s, from, separators);
  return sched_arg_none;
}

/* ---- unsafe_set_dtype ----------------------------------------------------------------------- */

typedef struct Retype {
  Sched *s;
  Vec(const Buffer *) from; /* the buffer and the views of it … */
  Map to;                   /* … in their new dtype: Buffer* -> Buffer* */
  DType dtype;
} Retype;

static void add_retyped(Retype *v, const Buffer *b)
{
  Module *m = v->s->m;
  const Buffer *to = buffer_new(m, b->name, v->dtype, b->ndim, b->shape, b->strides, b->elem_offset, b->scope, 0,
                                b->offset_factor, NULL);
  vec_push(scratch(v->s->ctx), &v->from, b);
  map_put(scratch(v->s->ctx), &v->to, b, (void *)(uintptr_t)to);
}

/* A view of what changes its dtype changes with it. */
static bool retype_views(void *env, Stmt *stmt)
{
  Retype *v = env;
  if (stmt->kind != S_BLOCK) return true;
  Block *b = BLOCK(stmt);
  for (int i = 0; i < b->nmatches; i++)
    if (map_has(&v->to, b->matches[i].source.buffer)) add_retyped(v, b->matches[i].buffer);
  return true;
}

static const Expr *retype_load(Rewriter *rw, const Expr *e)
{
  Retype *v = rw->env;
  const Buffer *to = e->kind == E_LOAD ? map_get(&v->to, e->u.buffer) : NULL;
  for (int i = 0; e->kind == E_VAR && i < v->from.n; i++)
    if (v->from.v[i]->data == e->u.var)
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
            "unsafe_set_dtype: the address of buffer '%s' is used, so it is not known how its elements are read",
            v->from.v[i]->name);
  return to ? expr_cast(v->s->m, dtype_lanes(e->u.buffer->dtype, e->dtype.lanes),
                        expr_load(v->s->m, to, e->nargs, e->arg))
            : e;
}

static const Expr *retype_expr(void *env, const Expr *e) { return expr_rewrite(env, e); }

static bool retype_store(void *env, Stmt *stmt)
{
  Retype *v = env;
  const Buffer *to = stmt->kind == S_STORE ? map_get(&v->to, stmt->u.store.buffer) : NULL;
  if (!to) return true;
  stmt->u.store.buffer = to;
  stmt->u.store.value =
      expr_cast(v->s->m, dtype_lanes(v->dtype, stmt->u.store.value->dtype.lanes), stmt->u.store.value);
  return true;
}

SchedArg prim_unsafe_set_dtype(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  int index = check_write_index(s, "unsafe_set_dtype", block, &a[1]);
  const Buffer *b = check_allocated(s, "unsafe_set_dtype", BLOCK(block)->writes[index].buffer);
  Retype v = {.s = s};
  if (!dtype_parse(a[2].u.s, &v.dtype) || v.dtype.lanes != 1)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "unsafe_set_dtype: '%s' is no dtype of elements", a[2].u.s);
  add_retyped(&v, b);
  stmt_visit(s->f->body, retype_views, &v);
  Rewriter rw = {.m = s->m, .fn = retype_load, .env = &v, .arena = scratch(s->ctx)};
  stmt_visit(s->f->body, retype_store, &v);
  stmt_rewrite_exprs(s->f->body, retype_expr, &rw);
  for (int i = 0; i < v.from.n; i++) stmt_replace_buffer(s->m, s->f->body, v.from.v[i], map_get(&v.to, v.from.v[i]));
  return sched_arg_none;
}

SchedArg prim_double_buffer(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  int index = check_write_index(s, "double_buffer", block, &a[1]);
  const Buffer *b = check_allocated(s, "double_buffer", BLOCK(block)->writes[index].buffer);
  const char *why = facts_not_complete(s, block);
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "double_buffer: %s, which fills buffer '%s', is not a complete block: %s",
          tree_what(s, block), b->name, why);
  annots_set(s->m->arena, &BLOCK(block)->annots, "double_buffer_scope", expr_i32(s->m, index));
  return sched_arg_none;
}

/* ---- prefetch ------------------------------------------------------------------------------ */

typedef struct Fetch {
  Sched *s;
  Stmt *loop;
  Box box; /* what one iteration reads */
  Analyzer *an;
  int64_t distance;
} Fetch;

/* prefetch(&A[v0, v1, …]) for one element of each cache line. */
static Stmt *fetch_block(Fetch *v, const Var **vars, int locality)
{
  Sched *s = v->s;
  const Buffer *b = v->box.buffer;
  const Expr **at = arena_array(scratch(s->ctx), const Expr *, b->ndim);
  for (int d = 0; d < b->ndim; d++) {
    vars[d] = var_new(s->m, arena_printf(s->m->arena, "v%d", d), b->shape[d]->dtype, VAR_PLAIN);
    at[d] = var_expr(vars[d]);
  }
  const Expr *load = expr_load(s->m, b, b->ndim, at);
  const Expr *address = expr_call(s->m, DT_PTR, IN_ADDRESS_OF, 1, &load);
  const Expr *args[] = {address, expr_i32(s->m, 0), expr_i32(s->m, locality), expr_i32(s->m, 1)};
  Stmt *body = stmt_eval(s->m, expr_call(s->m, DT_NONE, IN_PREFETCH, 4, args));
  return sched_plain_block(s, arena_printf(scratch(s->ctx), "%s_prefetch", b->name), b->ndim, vars, b->shape, body);
}

static Stmt *fetch_nest(Fetch *v)
{
  Sched *s = v->s;
  const Buffer *b = v->box.buffer;
  const Var *step = LOOPVAR(v->loop);
  const Var **vars = arena_array(scratch(s->ctx), const Var *, b->ndim);
  Stmt *block = fetch_block(v, vars, 3);
  Stmt *nest = block;
  Block *k = BLOCK(block);
  const Expr *ahead = expr_add(s->m, var_expr(step), sched_const_like(s, var_expr(step), v->distance));
  const Expr *end = expr_add(s->m, v->loop->u.loop.min, v->loop->u.loop.extent);
  k->predicate = expr_lt(s->m, ahead, end);
  int line = 64 / dtype_bytes(b->dtype);
  for (int d = b->ndim - 1; d >= 0; d--) {
    const Expr *lo = expr_substitute1(s->m, v->box.lo[d], step, ahead);
    const Expr *hi = expr_substitute1(s->m, v->box.hi[d], step, ahead);
    const Expr *extent = expr_add(s->m, expr_sub(s->m, v->box.hi[d], v->box.lo[d]), sched_const_like(s, lo, 1));
    const Var *var = var_new(s->m, arena_printf(s->m->arena, "ax%d", d), k->iter[d].var->dtype, VAR_PLAIN);
    const Expr *offset = var_expr(var);
    if (d == b->ndim - 1) {
      extent = sched_ceil_div(s, extent, sched_const_like(s, extent, line));
      offset = expr_mul(s->m, offset, sched_const_like(s, offset, line));
    }
    const Expr *value = expr_add(s->m, lo, offset);
    k->iter[d].value = value;
    k->predicate = sched_both(s, k->predicate, expr_binary(s->m, E_GE, value, sched_const_like(s, value, 0)));
    k->predicate = sched_both(s, k->predicate, expr_lt(s->m, value, b->shape[d]));
    k->predicate = sched_both(s, k->predicate, expr_binary(s->m, E_LE, value, hi));
    extent = expr_simplify(v->an, extent);
    bool few = extent->kind == E_INT && extent->u.i <= 32; /* addresses are cheap when they are constants */
    nest = stmt_for(s->m, var, sched_const_like(s, value, 0), extent, few ? FOR_UNROLLED : FOR_SERIAL, NULL, nest);
  }
  vec_push(s->m->arena, &s->guarded, block->id);
  return nest;
}

/* Elements from the beginning of what one step reads to that of what the next one does, where the two lie side by side
 * in memory; 0: elsewhere, or not known. */
static int64_t stream_run(Fetch *v, const Expr *step)
{
  Sched *s = v->s;
  const Buffer *b = v->box.buffer;
  const Expr *flat = sched_const_like(s, step, 0);
  int64_t count = 1;
  for (int d = 0; d < b->ndim; d++) {
    const Expr *lo = expr_cast(s->m, step->dtype, v->box.lo[d]);
    const Expr *n = expr_simplify(
        v->an, expr_add(s->m, expr_sub(s->m, v->box.hi[d], v->box.lo[d]), sched_const_like(s, v->box.lo[d], 1)));
    if (n->kind != E_INT || b->shape[d]->kind != E_INT || b->shape[d]->u.i < 1) return 0;
    count *= n->u.i;
    flat = expr_add(s->m, expr_mul(s->m, flat, sched_const_like(s, flat, b->shape[d]->u.i)), lo);
  }
  flat = expr_simplify(v->an, flat);
  const Expr *next = expr_substitute1(s->m, flat, LOOPVAR(v->loop), expr_add(s->m, step, sched_const_like(s, step, 1)));
  const Expr *moved = expr_simplify(v->an, expr_sub(s->m, next, flat));
  return !b->strides && moved->kind == E_INT && moved->u.i == count ? count : 0;
}

/* A stream is fetched line by line, each line by the step whose part it begins in, and not stopped where the loop ends:
 * what lies behind is what its next turn reads, or nobody does, and then the hint is wasted and no more.  An index may
 * run over the end of its row into the next. */
static Stmt *stream_fetch(Fetch *v)
{
  enum { MOST = 16 };
  Sched *s = v->s;
  const Buffer *b = v->box.buffer;
  const Expr *step = var_expr(LOOPVAR(v->loop));
  int64_t run = stream_run(v, step);
  int64_t line = 64 / dtype_bytes(b->dtype);
  int64_t lines = (run + line - 1) / line;
  if (!run || lines > MOST || v->distance > INT32_MAX) return NULL;
  const Var **vars = arena_array(scratch(s->ctx), const Var *, b->ndim);
  const Var *bit = var_new(s->m, "line", step->dtype, VAR_PLAIN);
  Stmt *block = fetch_block(v, vars, 3);
  const Expr *at = expr_mul(s->m, var_expr(bit), sched_const_like(s, step, line));
  if (run % line && v->loop->u.loop.kind == FOR_UNROLLED) { /* where it is known which step that is */
    const Expr *before = expr_mul(s->m, step, sched_const_like(s, step, -run));
    at = expr_simplify(v->an, expr_add(s->m, at, expr_floormod(s->m, before, sched_const_like(s, step, line))));
    BLOCK(block)->predicate = expr_lt(s->m, at, sched_const_like(s, at, run));
  }
  int64_t far = v->distance * run;
  for (int d = b->ndim - 1; d >= 0; d--) {
    BlockIter *it = &BLOCK(block)->iter[d];
    Interval at_first = analyzer_bounds(v->an, v->box.lo[d]);
    int64_t last = at_first.max;
    int64_t own = d ? far % b->shape[d]->u.i : far;
    bool inner = d == b->ndim - 1;
    if (at_first.min < 0 || own > INT32_MAX / 2 || last > INT32_MAX / 2) return NULL;
    const Expr *value = expr_add(s->m, v->box.lo[d], sched_const_like(s, v->box.lo[d], own));
    it->value = inner ? expr_add(s->m, value, expr_cast(s->m, value->dtype, at)) : value;
    it->extent = sched_const_like(s, it->extent, last + 1 + own + (inner ? run + line : 0));
    if (d) far /= b->shape[d]->u.i;
  }
  if (BLOCK(block)->predicate) vec_push(s->m->arena, &s->guarded, block->id);
  return stmt_for(s->m, bit, sched_const_like(s, var_expr(bit), 0), sched_const_like(s, var_expr(bit), lines),
                  FOR_UNROLLED, NULL, block);
}

/* Does the region change only every `distance` steps of the loop? */
static bool changes_seldom(Fetch *v)
{
  Sched *s = v->s;
  const Var *step = LOOPVAR(v->loop);
  const Var *part = var_new(s->m, "part", step->dtype, VAR_PLAIN);
  const Var *turn = var_new(s->m, "turn", step->dtype, VAR_PLAIN);
  const Expr *d = sched_const_like(s, var_expr(step), v->distance);
  const Expr *zero = sched_const_like(s, d, 0);
  if (v->distance < 2 || v->loop->u.loop.extent->kind != E_INT) return false;
  analyzer_bind(v->an, part, zero, d);
  analyzer_bind(v->an, turn, zero, sched_const_like(s, d, v->loop->u.loop.extent->u.i / v->distance + 1));
  const Expr *apart = expr_add(s->m, expr_mul(s->m, var_expr(turn), d), var_expr(part));
  for (int i = 0; i < v->box.buffer->ndim; i++)
    if (expr_uses_var(expr_simplify(v->an, expr_substitute1(s->m, v->box.lo[i], step, apart)), part)) return false;
  return true;
}

/* A large region is fetched bit by bit, by all steps of the serial loops inside and, where it changes only
 * every `distance` steps, by all of those, so that it comes in while something is computed.  Gives the loop to
 * do it in, NULL: it is small, or sizes are not known. */
static Stmt *spread_fetch(Fetch *v, Stmt *block, Stmt **nest)
{
  enum { SMALL = 64, MOST = 16 };
  Sched *s = v->s;
  const Buffer *b = v->box.buffer;
  int64_t count[16];
  int64_t lines = 1;
  int64_t steps = 1;
  int64_t line = 64 / dtype_bytes(b->dtype);
  if (b->ndim > 16) return NULL;
  for (int d = 0; d < b->ndim; d++) {
    const Expr *n = expr_simplify(
        v->an, expr_add(s->m, expr_sub(s->m, v->box.hi[d], v->box.lo[d]), sched_const_like(s, v->box.lo[d], 1)));
    if (n->kind != E_INT) return NULL;
    count[d] = d == b->ndim - 1 ? (n->u.i + line - 1) / line : n->u.i;
    lines *= count[d];
  }
  if (lines <= SMALL) return NULL;
  const Var *step = LOOPVAR(v->loop);
  const Expr *at = sched_const_like(s, var_expr(step), 0);
  if (changes_seldom(v)) {
    at = expr_floormod(s->m, var_expr(step), sched_const_like(s, at, v->distance));
    steps = v->distance;
  }
  Stmt **inner;
  Stmt *last = NULL;
  int n = tree_loops_below(scratch(s->ctx), block, v->loop, &inner);
  for (int i = 0; i < n && inner[i]->u.loop.kind == FOR_SERIAL; i++) {
    /* each of its steps fetches all */
    if (inner[i]->u.loop.extent->kind != E_INT || !expr_is_int(inner[i]->u.loop.min, 0)) continue;
    last = inner[i];
    at = expr_add(s->m, expr_mul(s->m, at, sched_const_like(s, at, last->u.loop.extent->u.i)),
                  expr_cast(s->m, at->dtype, var_expr(LOOPVAR(last))));
    steps *= last->u.loop.extent->u.i;
  }
  int64_t each = (lines + steps - 1) / steps;
  if (!last || each > MOST) return NULL;
  const Var **vars = arena_array(scratch(s->ctx), const Var *, b->ndim);
  const Var *bit = var_new(s->m, "bit", step->dtype, VAR_PLAIN);
  *nest = fetch_block(v, vars, 2);
  at = expr_add(s->m, expr_mul(s->m, at, sched_const_like(s, at, each)), var_expr(bit));
  at = expr_min(s->m, at, sched_const_like(s, at, lines - 1));
  const Expr *end = expr_add(s->m, v->loop->u.loop.min, v->loop->u.loop.extent);
  const Expr *one = sched_const_like(s, end, 1);
  const Expr *ahead = expr_min(s->m, expr_add(s->m, var_expr(step), sched_const_like(s, var_expr(step), v->distance)),
                               expr_sub(s->m, end, one));
  for (int d = b->ndim - 1; d >= 0; d--) {
    const Expr *here = d ? expr_floormod(s->m, at, sched_const_like(s, at, count[d])) : at;
    at = expr_floordiv(s->m, at, sched_const_like(s, at, count[d]));
    if (d == b->ndim - 1) here = expr_mul(s->m, here, sched_const_like(s, here, line));
    const Expr *value = expr_add(s->m, expr_substitute1(s->m, v->box.lo[d], step, ahead), here);
    BLOCK(*nest)->iter[d].value =
        expr_simplify(v->an, expr_min(s->m, value, expr_sub(s->m, b->shape[d], sched_const_like(s, value, 1))));
  }
  *nest = stmt_for(s->m, bit, sched_const_like(s, var_expr(bit), 0), sched_const_like(s, var_expr(bit), each),
                   FOR_UNROLLED, NULL, *nest);
  return last;
}

SchedArg prim_prefetch(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  Stmt *loop = sched_arg_loop(s, &a[2]);
  Stmt **writer;
  const Region *r = sched_read_region(s, "prefetch", block, &a[1]);
  Fetch v = {.s = s, .loop = loop, .distance = sched_arg_int(s, &a[3])};
  if (v.distance <= 0)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "prefetch: distance %" PRId64 " is not positive", v.distance);
  if (!tree_under(block, loop) || stmt_enclosing_block(loop) != tree_scope(s, block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "prefetch: %s is not around %s in its scope", tree_what(s, loop),
          tree_what(s, block));
  int n = facts_writers(scratch(s->ctx), tree_scope(s, block), r->buffer, &writer);
  for (int i = 0; i < n; i++)
    if (writer[i] != block && tree_under(writer[i], loop)) /* a sum fetches its own target ahead */
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "prefetch: %s makes buffer '%s' under %s itself, so there is nothing to fetch ahead",
            tree_what(s, writer[i]), r->buffer->name, tree_what(s, loop));
  v.an = facts_analyzer(s, loop);
  facts_bind_below(v.an, loop);
  v.box = region_under(s, v.an, r, block, loop);
  Stmt *inside = NULL;
  Stmt *nest = stream_fetch(&v);
  if (!nest) inside = spread_fetch(&v, block, &nest);
  if (!nest && !inside) nest = fetch_nest(&v);
  tree_insert(s, inside ? inside : loop, 0, nest);
  facts_simplify_below(s, nest);
  return sched_arg_none;
}
