/* cache.c: copies of buffers between a block and its neighbours.
 *
 * cache_read   B[…] -> cache[…] in a new block before the consumers, which then read
 *              the cache
 * cache_write  the block writes the cache; a new block copies cache[…] -> B[…]
 * reindex      as these, but the copy is indexed by the block's own variables;
 *              reindex_cache_read, reindex_cache_write: by a map of them
 * The cache has the shape of the buffer; lowering cuts it down to the part that is
 * used between its allocation and its last use.  In a block that runs a part of its domain
 * at a time it has the shape of that part. */
#include "schedule/engine.h"

/* The same in a block's own scope, where only a part of the domains runs at a time. */
static Box touched_here(Sched *s, Analyzer *an, const Buffer *buffer, bool write, int n, Stmt *const *block)
{
  Box box = {0};
  for (int i = 0; i < n; i++) {
    const Block *b = BLOCK(block[i]);
    for (int k = 0; k < (write ? b->nwrites : b->nreads); k++) {
      const Region *r = write ? &b->writes[k] : &b->reads[k];
      if (r->buffer != buffer) continue;
      if (write && b->predicate)
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "cache_write: %s inside %s runs under a predicate, so not all of its tile is written",
              tree_what(s, block[i]), tree_what(s, tree_scope(s, block[i])));
      Box one = region_under(s, an, r, block[i], NULL);
      if (box.buffer) region_join(s, an, &box, &one);
      else box = one;
    }
  }
  for (int d = 0; d < buffer->ndim && !write; d++) {
    const Expr *first = sched_const_like(s, box.lo[d], 0);
    const Expr *last = expr_simplify(an, expr_sub(s->m, buffer->shape[d], sched_const_like(s, buffer->shape[d], 1)));
    box.lo[d] = region_greater(s, an, box.lo[d], first);
    box.hi[d] = region_lesser(s, an, box.hi[d], last);
    if (box.lo[d]->kind != E_MAX && box.hi[d]->kind != E_MIN) continue;
    box.lo[d] = first;
    box.hi[d] = last;
  }
  return box;
}

/* ---- is all of the box written? ------------------------------------------------------------- */

typedef struct Stores {
  Arena *arena;
  const Buffer *buffer;
  Vec(Stmt *) v;
} Stores;

static bool collect_store(void *env, Stmt *s)
{
  Stores *found = env;
  if (s->kind == S_STORE && s->u.store.buffer == found->buffer) vec_push(found->arena, &found->v, s);
  return true;
}

static const IterVar *iter_of(Arena *a, const Var *var, const Expr *min, const Expr *extent)
{
  IterVar *iv = arena_new_of(a, IterVar);
  *iv = (IterVar){.var = var, .min = min, .extent = extent, .kind = ITER_SPATIAL};
  return iv;
}

/* Does the store, while its scope runs once, reach every element between the first and
 * the last it reaches?  The block's own variables run over their domains in the root and
 * over what the loops give elsewhere. */
static bool leaves_no_gap(Sched *s, Analyzer *an, Stmt *block, Stmt *store)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *scope = tree_scope(s, block);
  bool whole = !BLOCK(scope)->niter;
  Vec(const IterVar *) iters = {0};
  int n = store->u.store.n;
  const Expr **index = arena_copy(tmp, store->u.store.index, (size_t)n * sizeof *index);
  for (Stmt *p = store->parent; p != scope; p = p->parent) {
    if (p->kind == S_FOR) vec_push(tmp, &iters, iter_of(tmp, LOOPVAR(p), p->u.loop.min, p->u.loop.extent));
    if (p->kind == S_IF || p->kind == S_WHILE || (p->kind == S_BLOCK && p != block && BLOCK(p)->predicate))
      return false;
    if (p->kind != S_BLOCK) continue;
    Map values = {0};
    for (int i = 0; i < BLOCK(p)->niter; i++) {
      const BlockIter *it = &BLOCK(p)->iter[i];
      if (whole && p == block) vec_push(tmp, &iters, iter_of(tmp, it->var, it->min, it->extent));
      else map_put(tmp, &values, it->var, (void *)(uintptr_t)it->value);
    }
    for (int d = 0; d < n; d++) index[d] = expr_substitute(s->m, index[d], &values);
    if (whole && p == block) break;
  }
  IterSum *sums = arena_array(tmp, IterSum, n);
  const char *why;
  return n == 0 || itermap_detect(an, n, index, iters.n, iters.v, NULL, ITERMAP_SURJECTIVE, sums, &why);
}

/* What the cache holds where nothing was written must not reach the buffer. */
static void check_no_gaps(Sched *s, Stmt *block, const Buffer *buffer)
{
  Stores found = {.arena = scratch(s->ctx), .buffer = buffer};
  Analyzer *an = facts_analyzer(s, tree_scope(s, block));
  stmt_visit(block, collect_store, &found);
  for (int i = 0; i < found.v.n; i++)
    if (!leaves_no_gap(s, an, block, found.v.v[i]))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "cache_write: %s may leave gaps in the part of buffer '%s' that it writes, and the copy would fill them",
            tree_what(s, block), buffer->name);
}

/* The part of the buffer that the blocks touch over their whole domains. */
static Box touched(Sched *s, Analyzer *an, const Buffer *buffer, bool write, int n, Stmt *const *block)
{
  Arena *tmp = scratch(s->ctx);
  if (BLOCK(tree_scope(s, block[0]))->niter) return touched_here(s, an, buffer, write, n, block);
  Box box = {buffer, arena_array(tmp, const Expr *, buffer->ndim), arena_array(tmp, const Expr *, buffer->ndim)};
  for (int d = 0; d < buffer->ndim; d++) {
    const Expr *first = expr_int(s->m, buffer->shape[d]->dtype, 0);
    const Expr *last = expr_simplify(an, expr_sub(s->m, buffer->shape[d], sched_const_like(s, buffer->shape[d], 1)));
    const Expr *lo = NULL;
    const Expr *hi = NULL;
    for (int i = 0; i < n; i++) {
      const Block *b = BLOCK(block[i]);
      const Var **vars = arena_array(tmp, const Var *, b->niter);
      for (int k = 0; k < b->niter; k++) vars[k] = b->iter[k].var;
      for (int k = 0; k < (write ? b->nwrites : b->nreads); k++) {
        const Region *r = write ? &b->writes[k] : &b->reads[k];
        const Expr *from = first;
        const Expr *to = last;
        const Expr *unused;
        if (r->buffer != buffer) continue;
        if (!analyzer_relax(an, r->min[d], b->niter, vars, &from, &unused) ||
            !analyzer_relax(an, sched_iter_end(s, r->min[d], r->extent[d]), b->niter, vars, &unused, &to)) {
          from = first;
          to = last;
        }
        lo = lo ? region_lesser(s, an, lo, from) : from;
        hi = hi ? region_greater(s, an, hi, to) : to;
      }
    }
    lo = region_greater(s, an, lo, first);
    hi = region_lesser(s, an, hi, last);
    /* an end that stays undecided: the whole dimension for reads */
    bool plain = lo->kind != E_MAX && hi->kind != E_MIN;
    box.lo[d] = plain || write ? lo : first;
    box.hi[d] = plain || write ? hi : last;
  }
  return box;
}

static const Expr *box_extent(Sched *s, Analyzer *an, const Box *box, int d)
{
  return expr_simplify(an, expr_add(s->m, expr_sub(s->m, box->hi[d], box->lo[d]), sched_const_like(s, box->lo[d], 1)));
}

/* cropped: the one of the two that has the shape of the box, or NULL. */
static Stmt *copy_block(Sched *s, const char *name, const Buffer *from, const Buffer *to, const Buffer *cropped,
                        const Box *box, Analyzer *an)
{
  Arena *tmp = scratch(s->ctx);
  int n = from->ndim;
  const Var **vars = arena_array(tmp, const Var *, n);
  const Expr **extent = arena_array(tmp, const Expr *, n);
  const Expr **index = arena_array(tmp, const Expr *, n);
  const Expr **own = arena_array(tmp, const Expr *, n);
  for (int d = 0; d < n; d++) {
    DType dtype = box->buffer->shape[d]->dtype;
    vars[d] = var_new(s->m, arena_printf(s->m->arena, "v%d", d), dtype, VAR_PLAIN);
    extent[d] = expr_simplify(an, expr_cast(s->m, dtype, box_extent(s, an, box, d)));
    own[d] = var_expr(vars[d]);
    bool whole = expr_is_int(box->lo[d], 0);
    index[d] = whole ? own[d] : expr_add(s->m, expr_cast(s->m, dtype, box->lo[d]), own[d]);
  }
  const Expr *value = expr_load(s->m, from, n, from == cropped ? own : index);
  return sched_plain_block(s, name, n, vars, extent, stmt_store(s->m, to, n, to == cropped ? own : index, value));
}

/* ---- a cache of the shape of the part that it holds ------------------------------------------- */

typedef struct Crop {
  Sched *s;
  Analyzer *an;
  const Buffer *cache;
  const Box *box;
} Crop;

static const Expr **cropped_index(Crop *v, const Expr *const *index)
{
  int n = v->cache->ndim;
  const Expr **out = arena_array(v->s->m->arena, const Expr *, n);
  for (int d = 0; d < n; d++) out[d] = expr_simplify(v->an, expr_sub(v->s->m, index[d], v->box->lo[d]));
  return out;
}

static const Expr *crop_load(Rewriter *rw, const Expr *e)
{
  Crop *v = rw->env;
  if (e->kind != E_LOAD || e->u.buffer != v->cache) return e;
  return expr_load(rw->m, v->cache, v->cache->ndim, cropped_index(v, e->arg));
}

static const Expr *crop_expr(void *env, const Expr *e) { return expr_rewrite(env, e); }

static bool crop_store(void *env, Stmt *st)
{
  Crop *v = env;
  if (st->kind == S_STORE && st->u.store.buffer == v->cache) st->u.store.index = cropped_index(v, st->u.store.index);
  return true;
}

static bool crop_regions(void *env, Stmt *st)
{
  Crop *v = env;
  Block *b = st->kind == S_BLOCK ? BLOCK(st) : NULL;
  for (int i = 0; b && i < b->nreads + b->nwrites; i++) {
    Region *r = i < b->nreads ? &b->reads[i] : &b->writes[i - b->nreads];
    if (r->buffer == v->cache) r->min = cropped_index(v, r->min);
  }
  return true;
}

/* A block's accesses to the cache, counted from the first element that it holds. */
static void crop_block(Crop *v, Stmt *block)
{
  stmt_visit(block, crop_regions, v);
  Rewriter rw = {.m = v->s->m, .fn = crop_load, .env = v, .arena = scratch(v->s->ctx)};
  stmt_visit(block, crop_store, v);
  stmt_rewrite_exprs(block, crop_expr, &rw);
}

typedef struct Addressed {
  const Buffer *buffer;
  bool found;
} Addressed;

static bool note_view(void *env, Stmt *st)
{
  Addressed *v = env;
  for (int i = 0; st->kind == S_BLOCK && i < BLOCK(st)->nmatches; i++)
    v->found |= BLOCK(st)->matches[i].source.buffer == v->buffer;
  return true;
}

static void note_address(void *env, Stmt *holder, const Expr *e)
{
  Addressed *v = env;
  (void)holder;
  v->found |= expr_uses_var(e, v->buffer->data);
}

/* The cache's shape: the box's in a block that runs a part of its domain, where only elements of it are accessed;
 * else, NULL, the buffer's. */
static const Expr **cropped_shape(Sched *s, Analyzer *an, Stmt *scope, const Stmt *loop, const Box *box, int n,
                                  Stmt *const *block)
{
  Addressed v = {.buffer = box->buffer};
  const Expr **shape = arena_array(scratch(s->ctx), const Expr *, box->buffer->ndim);
  if (!BLOCK(scope)->niter || loop) return NULL;
  for (int i = 0; i < n; i++) {
    stmt_visit(block[i], note_view, &v);
    stmt_visit_exprs(block[i], note_address, &v);
  }
  for (int d = 0; d < box->buffer->ndim; d++) {
    shape[d] = box_extent(s, an, box, d);
    v.found |= shape[d]->kind != E_INT;
  }
  return v.found ? NULL : shape;
}

static const char *cache_name(Sched *s, const Buffer *b, const char *scope)
{
  Text name = text_new(s->m->arena);
  text_printf(&name, "%s_%s", b->name, scope);
  for (char *c = name.s; *c; c++)
    if (*c == '.') *c = '_';
  return text_str(&name);
}

static const Buffer *cache_buffer(Sched *s, const Buffer *b, const char *scope, const Expr **shape)
{
  return buffer_new(s->m, tree_buffer_name(s, cache_name(s, b, scope)), b->dtype, b->ndim, shape ? shape : b->shape,
                    NULL, NULL, scope, 0, 0, NULL);
}

/* The block uses the cache instead of the buffer. */
static void use_cache(Sched *s, Analyzer *an, Stmt *block, const Box *box, const Buffer *cache, bool cropped)
{
  Crop crop = {s, an, cache, box};
  stmt_replace_buffer(s->m, block, box->buffer, cache);
  if (cropped) crop_block(&crop, block);
}

/* The statement of the scope's body (or of the loop's) that holds the block. */
static Stmt *item_of(Stmt *block, const Stmt *holder)
{
  Stmt *p = block;
  while (p->parent != holder && !(p->parent->kind == S_SEQ && p->parent->parent == holder)) p = p->parent;
  return p;
}

static bool any_under(int n, Stmt *const *block, const Stmt *top)
{
  for (int i = 0; i < n; i++)
    if (tree_under(block[i], top)) return true;
  return false;
}

/* The loop in whose body a copy can stand between the writers and the readers of a
 * buffer, when they share loops; NULL: the scope itself.  *beside receives the statement
 * next to which it belongs: the one that holds `anchor`. */
static Stmt *find_holder(Sched *s, const char *prim, Stmt *anchor, int n, Stmt *const *with, int nother,
                         Stmt *const *other, Stmt **beside)
{
  Stmt *holder = tree_scope(s, anchor);
  for (;;) {
    Stmt *item = *beside = item_of(anchor, holder);
    if (!any_under(nother, other, item)) return holder->kind == S_FOR ? holder : NULL;
    if (item->kind != S_FOR) BUG(s->ctx, "%s: a block is its own neighbour", prim);
    for (int i = 0; i < n; i++)
      if (!tree_under(with[i], item))
        raise(
            s->ctx, ERR_SCHEDULE, NOWHERE,
            "%s: %s is not under %s, where %s and the other side of the buffer meet; cache before moving them together",
            prim, tree_what(s, with[i]), tree_what(s, item), tree_what(s, anchor));
    holder = item;
  }
}

static int listed_blocks(Sched *s, const SchedArg *list, Stmt **out)
{
  for (int i = 0; i < list->u.list.n; i++) out[i] = sched_arg_block(s, &list->u.list.v[i]);
  return list->u.list.n;
}

/* ---- cache_read ------------------------------------------------------------------------- */

static int choose_readers(Sched *s, Stmt *block, const Buffer *buffer, const SchedArg *list, Stmt ***out)
{
  Arena *tmp = scratch(s->ctx);
  Stmt **reader;
  Stmt *scope = tree_scope(s, block);
  int n = facts_readers(tmp, scope, buffer, &reader);
  int k = 0;
  if (list->kind == SA_LIST && list->u.list.n) {
    reader = arena_array(tmp, Stmt *, list->u.list.n);
    n = listed_blocks(s, list, reader);
    for (int i = 0; i < n; i++)
      if (stmt_enclosing_block(reader[i]) != scope || !facts_reads(BLOCK(reader[i]), buffer) ||
          facts_writes(BLOCK(reader[i]), buffer))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "cache_read: %s is not a block of the same scope that only reads buffer '%s'", tree_what(s, reader[i]),
              buffer->name);
  }
  for (int i = 0; i < n; i++)
    if (!facts_writes(BLOCK(reader[i]), buffer)) reader[k++] = reader[i];
  if (!k)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "cache_read: %s writes buffer '%s' as well as reading it", tree_what(s, block),
          buffer->name);
  *out = reader;
  return k;
}

SchedArg prim_cache_read(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *block = sched_arg_block(s, &a[0]);
  Stmt *scope = tree_scope(s, block);
  Stmt **reader, **writer;
  const Buffer *buffer = sched_read_region(s, "cache_read", block, &a[1])->buffer;
  sched_check_scope(s, "cache_read", a[2].u.s);
  int n = choose_readers(s, block, buffer, &a[3], &reader);
  int nw = facts_writers(tmp, scope, buffer, &writer);
  Stmt *first = reader[0];
  for (int i = 0; i < n; i++) {
    tree_check_plain(s, "cache_read", reader[i]);
    if (tree_before(s, reader[i], first)) first = reader[i];
  }
  for (int i = 0; i < nw; i++)
    for (int k = 0; k < n; k++)
      if (!tree_before(s, writer[i], reader[k]))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE, "cache_read: %s writes buffer '%s' after %s reads it",
              tree_what(s, writer[i]), buffer->name, tree_what(s, reader[k]));
  Stmt *beside;
  Stmt *loop = find_holder(s, "cache_read", first, n, reader, nw, writer, &beside);

  Analyzer *an = facts_analyzer(s, scope);
  facts_bind_below(an, scope);
  Box box = touched(s, an, buffer, false, n, reader);
  const Expr **shape = cropped_shape(s, an, scope, loop, &box, n, reader);
  const Buffer *cache = cache_buffer(s, buffer, a[2].u.s, shape);
  Stmt *copy = copy_block(s, cache->name, buffer, cache, shape ? cache : NULL, &box, an);
  sched_block_add_alloc(s, scope, cache);
  for (int i = 0; i < n; i++) use_cache(s, an, reader[i], &box, cache, shape);
  if (loop) sched_place_new_block(s, "cache_read", copy, loop, false, n, reader);
  else tree_insert_beside(s, beside, false, sched_plain_nest(s, copy));
  facts_refresh(s, copy);
  facts_check_above(s, "cache_read", block);
  return sched_result_block(s, copy);
}

/* ---- cache_write ------------------------------------------------------------------------ */

SchedArg prim_cache_write(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *block = sched_arg_block(s, &a[0]);
  Stmt *scope = tree_scope(s, block);
  Stmt **reader, **moved;
  const Buffer *buffer = sched_write_region(s, "cache_write", block, &a[1])->buffer;
  sched_check_scope(s, "cache_write", a[2].u.s);
  tree_check_plain(s, "cache_write", block);
  if (facts_guarded(s, block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "cache_write: %s came with a predicate of its own, so not all of the cache would be written",
          tree_what(s, block));
  Stmt **writer;
  if (facts_writers(tmp, scope, buffer, &writer) != 1)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "cache_write: %s and %s both write buffer '%s'; cache it before decomposing its reduction",
          tree_what(s, writer[0]), tree_what(s, writer[1]), buffer->name);
  if (facts_reads(BLOCK(block), buffer))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "cache_write: %s reads buffer '%s' before it writes it", tree_what(s, block),
          buffer->name);
  const char *why = facts_reads_others(s, block);
  if (why) raise(s->ctx, ERR_SCHEDULE, NOWHERE, "cache_write: %s cannot have a cache: %s", tree_what(s, block), why);
  int nlist = a[3].kind == SA_LIST ? a[3].u.list.n : 0;
  int n = facts_readers(tmp, scope, buffer, &reader);
  int k = 0;
  moved = arena_array(tmp, Stmt *, nlist + 1);
  nlist = nlist ? listed_blocks(s, &a[3], moved) : 0;
  for (int i = 0; i < n; i++) {
    bool listed = false;
    for (int j = 0; j < nlist; j++) listed |= moved[j] == reader[i];
    if (!listed) reader[k++] = reader[i];
  }
  Stmt *beside;
  Stmt *loop = find_holder(s, "cache_write", block, 1, &block, k, reader, &beside);
  for (Stmt *p = loop; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind == S_FOR && facts_unfinished(s, block, p))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "cache_write: the reduction of %s runs over %s, which also holds readers of its result",
            tree_what(s, block), tree_what(s, p));

  check_no_gaps(s, block, buffer);
  Analyzer *an = facts_analyzer(s, scope);
  facts_bind_below(an, scope);
  Box box = touched(s, an, buffer, true, 1, &block);
  const Expr **shape = nlist ? NULL : cropped_shape(s, an, scope, loop, &box, 1, &block);
  const Buffer *cache = cache_buffer(s, buffer, a[2].u.s, shape);
  Stmt *copy = copy_block(s, cache->name, cache, buffer, shape ? cache : NULL, &box, an);
  sched_block_add_alloc(s, scope, cache);
  use_cache(s, an, block, &box, cache, shape);
  for (int i = 0; i < nlist; i++) use_cache(s, an, moved[i], &box, cache, shape);
  Stmt **item;
  if (loop) sched_place_new_block(s, "cache_write", copy, loop, true, 1, &block);
  else if (!k)
    tree_insert(s, scope, tree_items(tmp, scope, &item), sched_plain_nest(s, copy)); /* nobody waits for it */
  else tree_insert_beside(s, beside, true, sched_plain_nest(s, copy));
  facts_refresh(s, copy);
  facts_check_above(s, "cache_write", block);
  return sched_result_block(s, copy);
}

/* ---- reindex ------------------------------------------------------------------------------ */

typedef struct Access {
  Sched *s;
  Stmt *block;
  const Buffer *buffer, *to;
  const Expr **index; /* how the block accesses the buffer */
  const Expr **own;   /* what replaces it: variables of the block, or results of the map */
  int nown;
  const char *prim;
  const IndexMap *map; /* NULL: the variables themselves */
  const Var **vars;    /* what the copy runs over … */
  const Expr **extent; /* … and how far */
  int nvars;
  bool found;
} Access;

static void note_index(Access *v, const Expr *const *index)
{
  for (int d = 0; d < v->buffer->ndim; d++) {
    if (v->found && v->index[d] != index[d])
      raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s accesses buffer '%s' at different indices", v->prim,
            tree_what(v->s, v->block), v->buffer->name);
    v->index[d] = index[d];
  }
  v->found = true;
}

static void note_load(void *env, const Expr *e)
{
  Access *v = env;
  if (e->kind == E_LOAD && e->u.buffer == v->buffer) note_index(v, e->arg);
}

static void note_loads(void *env, Stmt *holder, const Expr *e)
{
  if (holder->kind != S_BLOCK) expr_visit(((Access *)env)->s->ctx, e, note_load, env);
}

static bool note_store(void *env, Stmt *stmt)
{
  Access *v = env;
  if (stmt->kind == S_STORE && stmt->u.store.buffer == v->buffer) note_index(v, stmt->u.store.index);
  return true;
}

static const Expr *own_load(Rewriter *rw, const Expr *e)
{
  Access *v = rw->env;
  return e->kind == E_LOAD && e->u.buffer == v->buffer ? expr_load(v->s->m, v->to, v->nown, v->own) : e;
}

static const Expr *own_expr(void *env, const Expr *e) { return expr_rewrite(env, e); }

static bool own_store(void *env, Stmt *stmt)
{
  Access *v = env;
  if (stmt->kind != S_STORE || stmt->u.store.buffer != v->buffer) return true;
  stmt->u.store.buffer = v->to;
  stmt->u.store.n = v->nown;
  stmt->u.store.index = arena_copy(v->s->m->arena, v->own, sizeof *v->own * (size_t)v->nown);
  return true;
}

/* The block's regions with the copy in place of the buffer; the others stay as they are. */
static void own_regions(Access *v)
{
  Sched *s = v->s;
  Block *b = BLOCK(v->block);
  Stmt **inner;
  if (tree_blocks(scratch(s->ctx), v->block, &inner)) {
    facts_refresh(s, v->block);
    return;
  }
  for (int i = 0; i < b->nreads + b->nwrites; i++) {
    Region *r = i < b->nreads ? &b->reads[i] : &b->writes[i - b->nreads];
    if (r->buffer != v->buffer) continue;
    *r = (Region){v->to, arena_copy(s->m->arena, v->own, sizeof *v->own * (size_t)v->nown),
                  arena_array(s->m->arena, const Expr *, v->nown)};
    for (int k = 0; k < v->nown; k++) r->extent[k] = sched_const_like(s, v->own[k], 1);
  }
}

/* The copy touches what the block touches, but without the conditions around it. */
static void check_index(Access *v)
{
  Sched *s = v->s;
  Analyzer *an = facts_analyzer(s, v->block);
  for (int d = 0; d < v->buffer->ndim; d++) {
    const Expr *e = v->index[d];
    if (expr_has_kind(e, E_LOAD) || !analyzer_prove(an, expr_binary(s->m, E_GE, e, sched_const_like(s, e, 0))) ||
        !analyzer_prove(an, expr_lt(s->m, e, v->buffer->shape[d])))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the index %s of %s may leave buffer '%s'", v->prim,
            expr_str_of(scratch(s->ctx), e), tree_what(s, v->block), v->buffer->name);
  }
}

/* Raises unless different values of the variables give different indices. */
static void check_places(Access *v, int n, const Expr *const *index, const char *buffer)
{
  Sched *s = v->s;
  Analyzer *an = facts_analyzer(s, v->block);
  const IterVar **loops = arena_array(scratch(s->ctx), const IterVar *, v->nvars);
  for (int i = 0; i < v->nvars; i++)
    loops[i] = iter_of(scratch(s->ctx), v->vars[i], expr_int(s->m, v->vars[i]->dtype, 0), v->extent[i]);
  IterSum *sums = arena_array(scratch(s->ctx), IterSum, n);
  const char *why = NULL;
  if (!itermap_detect(an, n, index, v->nvars, loops, NULL, ITERMAP_INJECTIVE, sums, &why))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s may use an element of buffer '%s' twice%s%s", v->prim,
          tree_what(s, v->block), buffer, why ? ": " : "", why ? why : "");
}

/* The block's variables that the access or the map uses, in order. */
static void collect_vars(Access *v, bool write)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  const Block *b = BLOCK(v->block);
  v->vars = arena_array(tmp, const Var *, b->niter);
  v->extent = arena_array(tmp, const Expr *, b->niter);
  for (int i = 0; i < b->niter; i++) {
    bool accessed = false;
    bool mapped = false;
    const Var *var = b->iter[i].var;
    for (int d = 0; d < v->buffer->ndim; d++) accessed |= expr_uses_var(v->index[d], var);
    for (int k = 0; v->map && k < v->nown; k++) mapped |= expr_uses_var(v->own[k], var);
    if (!accessed && !mapped) continue;
    if (write && !accessed)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the map uses '%s', and %s writes buffer '%s' without it", v->prim,
            var->name, tree_what(s, v->block), v->buffer->name);
    if (!expr_is_int(b->iter[i].min, 0))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the variable '%s' of %s does not start at 0", v->prim, var->name,
            tree_what(s, v->block));
    v->vars[v->nvars] = var;
    v->extent[v->nvars++] = b->iter[i].extent;
  }
}

/* The map's results over the block's variables. */
static void apply_map(Access *v, const IndexMap *map)
{
  Sched *s = v->s;
  const Block *b = BLOCK(v->block);
  Map values = {0};
  v->map = map;
  if (map->nin != b->niter)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "%s: the map takes %d variables, and %s has %d", v->prim, map->nin,
          tree_what(s, v->block), b->niter);
  for (int i = 0; i < map->nin; i++)
    map_put(scratch(s->ctx), &values, map->in[i], (void *)expr_cast(s->m, map->in[i]->dtype, var_expr(b->iter[i].var)));
  v->nown = map->nout;
  v->own = arena_array(scratch(s->ctx), const Expr *, map->nout);
  for (int i = 0; i < map->nout; i++)
    v->own[i] = facts_simplify(s, v->block, expr_substitute(s->m, map->out[i], &values));
}

/* The extents of the copy: of the variables that index it, or as far as the map's results go. */
static const Expr *const *copy_shape(Access *v)
{
  Sched *s = v->s;
  if (!v->map) return v->extent;
  Analyzer *an = facts_analyzer(s, v->block);
  const Expr **shape = arena_array(scratch(s->ctx), const Expr *, v->nown);
  for (int i = 0; i < v->nown; i++) {
    const Expr *lo;
    const Expr *hi;
    if (!analyzer_relax(an, v->own[i], v->nvars, v->vars, &lo, &hi) ||
        !analyzer_prove(an, expr_binary(s->m, E_GE, lo, sched_const_like(s, lo, 0))))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: it is not known how far the index %s goes", v->prim,
            expr_str_of(scratch(s->ctx), v->own[i]));
    shape[i] = expr_simplify(an, expr_add(s->m, hi, sched_const_like(s, hi, 1)));
  }
  return shape;
}

/* A copy of a buffer that the block accesses by its own variables, or by a map of them. */
static SchedArg reindex(Access *v, bool write, const IndexMap *map, const char *scope_name)
{
  Sched *s = v->s;
  Stmt *block = v->block;
  const Buffer *buffer = v->buffer;
  Arena *tmp = scratch(s->ctx);
  Stmt *scope = tree_scope(s, block);
  Block *b = BLOCK(block);
  v->index = arena_array(tmp, const Expr *, buffer->ndim);
  facts_check_movable(s, v->prim, block);
  facts_check_whole_scope(s, v->prim, block);
  Stmt **near;
  Stmt *item = item_of(block, scope);
  int n = write ? facts_readers(tmp, scope, buffer, &near) : facts_writers(tmp, scope, buffer, &near);
  int others = 0;
  for (int i = 0; i < n; i++) /* a reduction may say that it reads what it adds up itself */
    if (!(write && b->init && near[i] == block)) near[others++] = near[i];
  if (any_under(others, near, item))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "%s: %s shares %s with the other side of buffer '%s'; reindex before moving them together", v->prim,
          tree_what(s, block), tree_what(s, item), buffer->name);
  stmt_visit(block, note_store, v);
  stmt_visit_exprs(block, note_loads, v);
  if (!v->found)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s accesses buffer '%s' otherwise than by its elements", v->prim,
          tree_what(s, block), buffer->name);
  Analyzer *an = facts_analyzer_named(s, block);
  for (int d = 0; d < buffer->ndim; d++) v->index[d] = expr_simplify(an, v->index[d]);
  if (map) apply_map(v, map);
  collect_vars(v, write);
  if (!map) {
    v->nown = v->nvars;
    v->own = arena_array(tmp, const Expr *, v->nvars);
    for (int k = 0; k < v->nvars; k++) v->own[k] = var_expr(v->vars[k]);
  }
  check_index(v);
  if (write) check_places(v, buffer->ndim, v->index, buffer->name);
  const char *hint = scope_name ? cache_name(s, buffer, scope_name) : arena_printf(tmp, "%s_reindex", buffer->name);
  const char *name = tree_buffer_name(s, hint);
  if (map) check_places(v, v->nown, v->own, name);
  v->to = buffer_new(s->m, name, buffer->dtype, v->nown, copy_shape(v), NULL, NULL, scope_name, 0, 0, NULL);
  if (map) v->to = buffer_with_separators(s->m, v->to, map->separators);

  Map to_fresh = {0};
  const Var **fresh = arena_array(tmp, const Var *, v->nvars);
  const Expr **index = arena_array(tmp, const Expr *, buffer->ndim);
  const Expr **at = arena_array(tmp, const Expr *, v->nown);
  for (int k = 0; k < v->nvars; k++) {
    fresh[k] = var_new(s->m, arena_printf(s->m->arena, "v%d", k), v->vars[k]->dtype, VAR_PLAIN);
    map_put(tmp, &to_fresh, v->vars[k], (void *)var_expr(fresh[k]));
  }
  for (int d = 0; d < buffer->ndim; d++) index[d] = expr_substitute(s->m, v->index[d], &to_fresh);
  for (int k = 0; k < v->nown; k++) at[k] = expr_substitute(s->m, v->own[k], &to_fresh);
  Stmt *store = write ? stmt_store(s->m, buffer, buffer->ndim, index, expr_load(s->m, v->to, v->nown, at))
                      : stmt_store(s->m, v->to, v->nown, at, expr_load(s->m, buffer, buffer->ndim, index));
  Stmt *copy = sched_plain_block(s, name, v->nvars, fresh, v->extent, store);
  Rewriter rw = {.m = s->m, .fn = own_load, .env = v, .arena = tmp};
  stmt_visit(block, own_store, v);
  stmt_rewrite_exprs(b->body, own_expr, &rw);
  if (b->init) stmt_rewrite_exprs(b->init, own_expr, &rw);
  sched_block_add_alloc(s, scope, v->to);
  own_regions(v);
  tree_insert_beside(s, item, write, sched_plain_nest(s, copy));
  facts_refresh(s, copy);
  facts_check_above(s, v->prim, block);
  return sched_result_block(s, copy);
}

SchedArg prim_reindex(Sched *s, SchedArg *a)
{
  bool write;
  Access v = {.s = s, .prim = "reindex", .block = sched_arg_block(s, &a[0])};
  v.buffer = sched_buffer_region(s, v.prim, v.block, &a[1], &write)->buffer;
  return reindex(&v, write, NULL, NULL);
}

SchedArg prim_reindex_cache_read(Sched *s, SchedArg *a)
{
  Access v = {.s = s, .prim = "reindex_cache_read", .block = sched_arg_block(s, &a[0])};
  v.buffer = sched_read_region(s, v.prim, v.block, &a[1])->buffer;
  sched_check_scope(s, v.prim, a[2].u.s);
  return reindex(&v, false, a[3].u.p, a[2].u.s);
}

SchedArg prim_reindex_cache_write(Sched *s, SchedArg *a)
{
  Access v = {.s = s, .prim = "reindex_cache_write", .block = sched_arg_block(s, &a[0])};
  v.buffer = sched_write_region(s, v.prim, v.block, &a[1])->buffer;
  sched_check_scope(s, v.prim, a[2].u.s);
  return reindex(&v, true, a[3].u.p, a[2].u.s);
}
