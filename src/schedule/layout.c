/* layout.c: buffers and blocks over another map of their indices.
 *
 * transform_layout        B[i, j]  ->  B'[map(i, j)], wherever it is accessed
 * transform_block_layout  a block over (i, j)  ->  the block over map(i, j)
 * A map must give each index a place of its own.  One that leaves gaps (16-wide panels
 * of 30 columns) needs a pad value; the block that fills the buffer then runs over the
 * whole new buffer and writes the value into the gaps. */
#include "schedule/engine.h"

typedef struct Layout {
  Sched *s;
  const char *prim;
  const IndexMap *map;
  Analyzer *an;
  const Expr **extent; /* of the inputs, padded so that the map has no gaps */
  const Expr **out_extent;
  bool padded;
} Layout;

/* ---- the map ------------------------------------------------------------------------------- */

typedef struct Steps {
  const Var *var;
  int64_t lcm;
  bool overflow;
} Steps;

static void note_step(void *env, const Expr *e)
{
  Steps *v = env;
  if ((e->kind != E_FLOORDIV && e->kind != E_FLOORMOD) || e->arg[1]->kind != E_INT || e->arg[1]->u.i <= 0) return;
  if (!expr_uses_var(e->arg[0], v->var)) return;
  int64_t c = e->arg[1]->u.i;
  v->overflow |= !int_mul(v->lcm / int_gcd(v->lcm, c), c, &v->lcm);
  if (v->overflow) v->lcm = 1;
}

int64_t sched_index_step(Sched *s, const Var *var, int n, const Expr *const *index)
{
  Steps st = {var, 1, false};
  for (int k = 0; k < n; k++) expr_visit(s->ctx, index[k], note_step, &st);
  return st.overflow ? 1 : st.lcm;
}

static const IterVar *const *map_loops(Layout *v)
{
  Arena *tmp = scratch(v->s->ctx);
  const IterVar **loops = arena_array(tmp, const IterVar *, v->map->nin);
  for (int i = 0; i < v->map->nin; i++) {
    IterVar *iv = arena_new_of(tmp, IterVar);
    *iv = (IterVar){.var = v->map->in[i],
                    .min = sched_const_like(v->s, v->extent[i], 0),
                    .extent = v->extent[i],
                    .kind = ITER_SPATIAL};
    loops[i] = iv;
  }
  return loops;
}

static bool is_bijective(Layout *v, const char **why)
{
  IterSum *sums = arena_array(scratch(v->s->ctx), IterSum, v->map->nout);
  return itermap_detect(v->an, v->map->nout, v->map->out, v->map->nin, map_loops(v), NULL, ITERMAP_BIJECTIVE, sums,
                        why);
}

static void find_extents(Layout *v)
{
  Sched *s = v->s;
  v->out_extent = arena_array(s->m->arena, const Expr *, v->map->nout);
  for (int k = 0; k < v->map->nout; k++) {
    const Expr *lo, *hi;
    if (!analyzer_relax(v->an, v->map->out[k], v->map->nin, v->map->in, &lo, &hi) ||
        !analyzer_prove_equal(v->an, lo, sched_const_like(s, lo, 0)))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: result %d of the index map, %s, is not known to start at 0", v->prim, k,
            expr_str_of(scratch(s->ctx), v->map->out[k]));
    v->out_extent[k] = expr_simplify(v->an, expr_add(s->m, hi, sched_const_like(s, hi, 1)));
  }
}

/* An analyzer that knows the inputs' ranges, and the map's results simplified by it. */
static void bind_inputs(Layout *v)
{
  Sched *s = v->s;
  v->an = analyzer_new(s->m, scratch(s->ctx));
  for (int i = 0; i < v->map->nin; i++)
    analyzer_bind(v->an, v->map->in[i], sched_const_like(s, v->extent[i], 0), v->extent[i]);
}

/* The same expression in 64 bits, variables by their wide copies. */
static const Expr *widened(Layout *v, const Map *wide, const Expr *e)
{
  Module *m = v->s->m;
  if (e->kind == E_INT) return expr_int(m, DT_I64, e->u.i);
  if (e->kind == E_VAR && map_has(wide, e->u.var)) return map_get(wide, e->u.var);
  bool arithmetic = e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL || e->kind == E_FLOORDIV ||
                    e->kind == E_FLOORMOD || e->kind == E_MIN || e->kind == E_MAX;
  if (arithmetic) return expr_binary(m, e->kind, widened(v, wide, e->arg[0]), widened(v, wide, e->arg[1]));
  return expr_cast(m, DT_I64, expr_substitute(m, e, wide));
}

/* A map of indices as wide as what it is a map of. */
static void widen_map(Layout *v, int n, const Expr *const *extent)
{
  Sched *s = v->s;
  Map wide = {0};
  bool narrow = false;
  for (int i = 0; i < n; i++) narrow |= extent[i]->dtype.bits == 64 && v->map->in[i]->dtype.bits < 64;
  if (!narrow) return;
  IndexMap *map = arena_new_of(s->m->arena, IndexMap);
  *map = *v->map;
  map->in = arena_array(s->m->arena, const Var *, map->nin);
  map->out = arena_array(s->m->arena, const Expr *, map->nout);
  for (int i = 0; i < map->nin; i++) {
    map->in[i] = var_new(s->m, v->map->in[i]->name, DT_I64, VAR_PLAIN);
    map_put(scratch(s->ctx), &wide, v->map->in[i], (void *)var_expr(map->in[i]));
  }
  for (int k = 0; k < map->nout; k++) map->out[k] = widened(v, &wide, v->map->out[k]);
  v->map = map;
}

static Layout layout_of(Sched *s, const char *prim, const IndexMap *map, int n, const Expr *const *extent, bool may_pad)
{
  Layout v = {.s = s, .prim = prim, .map = map};
  if (map->nin != n)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "%s: the index map takes %d indices, %d are there", prim, map->nin, n);
  widen_map(&v, n, extent);
  v.extent = arena_copy(scratch(s->ctx), extent, sizeof *extent * (size_t)n);
  for (int i = 0; i < n; i++) v.extent[i] = expr_cast(s->m, v.map->in[i]->dtype, extent[i]);
  bind_inputs(&v);
  const char *why = NULL;
  if (!is_bijective(&v, &why)) {
    for (int i = 0; i < n && may_pad; i++) {
      int64_t step = sched_index_step(s, v.map->in[i], v.map->nout, v.map->out);
      const Expr *c = sched_const_like(s, v.extent[i], step);
      const Expr *whole = expr_simplify(v.an, expr_mul(s->m, sched_ceil_div(s, v.extent[i], c), c));
      v.padded |= !analyzer_prove_equal(v.an, whole, v.extent[i]);
      v.extent[i] = whole;
    }
    bind_inputs(&v);
    if (!v.padded || !is_bijective(&v, &why))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the index map does not give each index a place of its own%s%s", prim,
            why ? ": " : "", why ? why : "");
  }
  find_extents(&v);
  return v;
}

/* The inputs as functions of variables that stand for the results. */
static const Expr **inverse_of(Layout *v, const Var *const *at)
{
  const Expr **out = arena_array(scratch(v->s->ctx), const Expr *, v->map->nin);
  const char *why = NULL;
  if (!itermap_inverse(v->an, v->map->nout, v->map->out, v->map->nin, map_loops(v), at, out, &why))
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the index map cannot be inverted%s%s", v->prim, why ? ": " : "",
          why ? why : "");
  return out;
}

static const Expr **apply_map(Layout *v, Analyzer *an, const Expr *const *index)
{
  Arena *tmp = scratch(v->s->ctx);
  Map map = {0};
  const Expr **out = arena_array(v->s->m->arena, const Expr *, v->map->nout);
  for (int i = 0; i < v->map->nin; i++)
    map_put(tmp, &map, v->map->in[i], (void *)expr_cast(v->s->m, v->map->in[i]->dtype, index[i]));
  for (int k = 0; k < v->map->nout; k++) out[k] = expr_simplify(an, expr_substitute(v->s->m, v->map->out[k], &map));
  return out;
}

/* ---- transform_layout ------------------------------------------------------------------------ */

typedef struct Move {
  Layout *layout;
  Analyzer *an; /* knows every loop and block variable of the function */
  const Buffer *from, *to;
} Move;

static const Expr *move_load(Rewriter *rw, const Expr *e)
{
  Move *v = rw->env;
  if (e->kind != E_LOAD || e->u.buffer != v->from) return e;
  return expr_load(rw->m, v->to, v->layout->map->nout, apply_map(v->layout, v->an, e->arg));
}

static const Expr *move_expr(void *env, const Expr *e) { return expr_rewrite(env, e); }

static bool move_store(void *env, Stmt *st)
{
  Move *v = env;
  if (st->kind != S_STORE || st->u.store.buffer != v->from) return true;
  st->u.store.index = apply_map(v->layout, v->an, st->u.store.index);
  st->u.store.n = v->layout->map->nout;
  st->u.store.buffer = v->to;
  return true;
}

static bool has_view(void *env, Stmt *st)
{
  Move *v = env;
  for (int i = 0; st->kind == S_BLOCK && i < BLOCK(st)->nmatches; i++)
    if (BLOCK(st)->matches[i].source.buffer == v->from)
      raise(v->layout->s->ctx, ERR_SCHEDULE, NOWHERE,
            "transform_layout: %s has a view of buffer '%s', which fixes its layout", tree_what(v->layout->s, st),
            v->from->name);
  return true;
}

static void has_pointer(void *env, Stmt *holder, const Expr *e)
{
  Move *v = env;
  (void)holder;
  if (expr_uses_var(e, v->from->data))
    raise(v->layout->s->ctx, ERR_SCHEDULE, NOWHERE,
          "transform_layout: the memory of buffer '%s' is used by address, which fixes its layout", v->from->name);
}

static void move_accesses(Sched *s, Move *v)
{
  Arena *tmp = scratch(s->ctx);
  Stmt **block;
  int n = tree_all_blocks(tmp, s->f, &block);
  stmt_visit(s->f->body, has_view, v);
  stmt_visit_exprs(s->f->body, has_pointer, v);
  Rewriter rw = {.m = s->m, .fn = move_load, .env = v, .arena = tmp};
  stmt_rewrite_exprs(s->f->body, move_expr, &rw);
  stmt_visit(s->f->body, move_store, v);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < BLOCK(block[i])->nallocs; k++)
      if (BLOCK(block[i])->allocs[k] == v->from) BLOCK(block[i])->allocs[k] = v->to;
  for (int i = 0; i < s->f->nparam; i++)
    if (s->f->param[i].buffer == v->from) s->f->param[i] = (Param){v->to->data, v->to};
  for (int i = n - 1; i >= 0; i--)
    if (facts_reads(BLOCK(block[i]), v->from) || facts_writes(BLOCK(block[i]), v->from))
      block_infer_access(s->m, BLOCK(block[i]));
}

/* The nest of a block is all its own: loops whose variables nothing else needs. */
static Stmt *own_nest(Sched *s, const char *prim, Stmt *block)
{
  facts_check_whole_scope(s, prim, block);
  Stmt *top = tree_nest(block);
  for (Stmt *p = top->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind == S_FOR && facts_roles(BLOCK(block), LOOPVAR(p)))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s shares %s with other blocks; do this before computing it there",
            prim, tree_what(s, block), tree_what(s, p));
  return top;
}

static void replace_nest(Sched *s, Stmt *block, Stmt *top)
{
  Stmt *place = stmt_nop(s->m);
  stmt_replace(s->f, top, place);
  Stmt *nest = sched_plain_nest(s, block);
  BLOCK(block)->predicate = NULL;
  tree_replace(s, place, nest);
}

static Stmt *filling_block(Sched *s, const Buffer *buffer)
{
  Stmt *owner = sched_func_alloc_block(s, buffer);
  Stmt **writer;
  int n = owner ? facts_writers(scratch(s->ctx), owner, buffer, &writer) : 0;
  if (n != 1)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "transform_layout: the new layout of buffer '%s' has gaps, and %s block fills it", buffer->name,
          n ? "more than one" : "no");
  Block *b = BLOCK(writer[0]);
  const char *why = facts_not_complete(s, writer[0]);
  if (why || b->body->kind != S_STORE || facts_guarded(s, writer[0]))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "transform_layout: the new layout of buffer '%s' has gaps, and %s cannot fill them: %s", buffer->name,
          tree_what(s, writer[0]), why ? why : "it is not one store without conditions");
  bool plain = b->niter == buffer->ndim;
  for (int d = 0; plain && d < buffer->ndim; d++) {
    const Expr *e = b->body->u.store.index[d];
    plain = e->kind == E_VAR;
    for (int k = 0; k < d; k++) plain &= e != b->body->u.store.index[k];
  }
  if (!plain)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "transform_layout: the new layout of buffer '%s' has gaps, and %s does not store at its own variables",
          buffer->name, tree_what(s, writer[0]));
  return writer[0];
}

/* The block that fills the buffer, over all of the new one:
 *   B'[n…] = value(inverse(n…)) where that is inside, else pad */
static void fill_gaps(Sched *s, Layout *v, Stmt *block, const Buffer *from, const Buffer *to, const Expr *pad)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *top = own_nest(s, v->prim, block);
  Block *b = BLOCK(block);
  const Expr **index = b->body->u.store.index;
  const Var **at = arena_array(tmp, const Var *, v->map->nout);
  const Expr **here = arena_array(tmp, const Expr *, v->map->nout);
  for (int k = 0; k < v->map->nout; k++) {
    at[k] = var_new(s->m, arena_printf(s->m->arena, "v%d", k), v->map->out[k]->dtype, VAR_PLAIN);
    here[k] = var_expr(at[k]);
  }
  const Expr **old = inverse_of(v, at);
  const Expr *inside = NULL;
  Map subst = {0};
  Analyzer *an = analyzer_new(s->m, tmp);
  for (int k = 0; k < v->map->nout; k++)
    analyzer_bind(an, at[k], sched_const_like(s, v->out_extent[k], 0), v->out_extent[k]);
  for (int d = 0; d < from->ndim; d++) {
    map_put(tmp, &subst, index[d]->u.var, (void *)expr_cast(s->m, index[d]->dtype, old[d]));
    const Expr *fits = expr_lt(s->m, old[d], from->shape[d]);
    if (!analyzer_prove(an, fits)) inside = sched_both(s, inside, fits);
  }
  const Expr *value = expr_substitute(s->m, b->body->u.store.value, &subst);
  if (inside) value = expr_call(s->m, value->dtype, IN_IF_THEN_ELSE, 3, (const Expr *[]){inside, value, pad});
  b->body = stmt_store(s->m, to, v->map->nout, here, expr_simplify(an, value));
  stmt_link(b->body, block);
  b->iter = arena_array(s->m->arena, BlockIter, v->map->nout);
  b->niter = v->map->nout;
  for (int k = 0; k < v->map->nout; k++)
    b->iter[k] = (BlockIter){at[k], sched_const_like(s, here[k], 0), v->out_extent[k], ITER_SPATIAL, here[k]};
  replace_nest(s, block, top);
  block_infer_access(s->m, b);
}

static bool is_identity(const IndexMap *map)
{
  bool same = map->nin == map->nout;
  for (int i = 0; same && i < map->nin; i++) same = map->out[i] == var_expr(map->in[i]);
  return same;
}

SchedArg prim_transform_layout(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  bool write;
  const Buffer *from = sched_buffer_region(s, "transform_layout", block, &a[1], &write)->buffer;
  const IndexMap *map = a[2].u.p;
  if (is_identity(map) && map->nin == from->ndim) {
    sched_separate_axes(s, from, map->separators);
    return sched_arg_none;
  }
  if (from->strides || from->elem_offset)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "transform_layout: buffer '%s' has strides or an offset of its own",
          from->name);
  Layout v = layout_of(s, "transform_layout", map, from->ndim, from->shape, true);
  if (a[3].kind == SA_EXPR && !dtype_eq(a[3].u.e->dtype, from->dtype))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "transform_layout: pad_value is %s, and buffer '%s' holds %s",
          dtype_name(scratch(s->ctx), a[3].u.e->dtype), from->name, dtype_name(scratch(s->ctx), from->dtype));
  bool unused = a[4].kind == SA_INT && a[4].u.i; /* gaps are memory that nobody reads or writes */
  if (v.padded && !unused && facts_is_param(s, from))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "transform_layout: the new layout of buffer '%s' has gaps, but it is a parameter, which the caller fills; "
          "cache_read makes a copy",
          from->name);
  if (v.padded && !unused && a[3].kind == SA_NONE)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "transform_layout: the new layout of buffer '%s' has gaps; give a pad_value for them", from->name);
  const Buffer *to = buffer_new(s->m, from->name, from->dtype, v.map->nout, v.out_extent, NULL, NULL, from->scope,
                                from->align, from->offset_factor, from->data);
  to = buffer_with_separators(s->m, to, v.map->separators);
  Stmt *filler = v.padded && !unused ? filling_block(s, from) : NULL;
  if (filler) fill_gaps(s, &v, filler, from, to, expr_cast(s->m, from->dtype, sched_arg_expr(s, &a[3], from->dtype)));
  Move move = {.layout = &v, .an = facts_analyzer(s, s->f->body), .from = from, .to = to};
  facts_bind_below(move.an, s->f->body);
  move_accesses(s, &move);
  return sched_arg_none;
}

/* ---- transform_block_layout --------------------------------------------------------------------- */

static IterKind kind_of(Sched *s, Stmt *block, const IndexMap *map, int k)
{
  const Block *b = BLOCK(block);
  int kind = -1;
  for (int i = 0; i < b->niter; i++) {
    if (!expr_uses_var(map->out[k], map->in[i])) continue;
    if (kind >= 0 && kind != (int)b->iter[i].kind)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "transform_block_layout: result %d of the index map mixes spatial and reduction variables of %s", k,
            tree_what(s, block));
    kind = b->iter[i].kind;
  }
  return kind < 0 ? ITER_SPATIAL : (IterKind)kind;
}

SchedArg prim_transform_block_layout(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *block = sched_arg_block(s, &a[0]);
  const IndexMap *map = a[1].u.p;
  Block *b = BLOCK(block);
  if (map->separators)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "transform_block_layout: %s has no axes that a separator could stand between",
          tree_what(s, block));
  facts_check_movable(s, "transform_block_layout", block);
  Stmt *top = own_nest(s, "transform_block_layout", block);
  const Expr **extent = arena_array(tmp, const Expr *, b->niter);
  for (int i = 0; i < b->niter; i++) {
    extent[i] = b->iter[i].extent;
    if (!expr_is_int(b->iter[i].min, 0))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "transform_block_layout: the variable '%s' of %s does not start at 0",
            b->iter[i].var->name, tree_what(s, block));
  }
  Layout v = layout_of(s, "transform_block_layout", map, b->niter, extent, false);
  map = v.map;
  const Var **at = arena_array(tmp, const Var *, map->nout);
  BlockIter *iter = arena_array(s->m->arena, BlockIter, map->nout);
  for (int k = 0; k < map->nout; k++) {
    at[k] = var_new(s->m, arena_printf(s->m->arena, "v%d", k), map->out[k]->dtype, VAR_PLAIN);
    iter[k] = (BlockIter){at[k], sched_const_like(s, v.out_extent[k], 0), v.out_extent[k], kind_of(s, block, map, k),
                          var_expr(at[k])};
  }
  const Expr **old = inverse_of(&v, at);
  Map subst = {0};
  for (int i = 0; i < b->niter; i++)
    map_put(tmp, &subst, b->iter[i].var, (void *)expr_cast(s->m, b->iter[i].var->dtype, old[i]));
  stmt_substitute(s->m, b->body, &subst);
  if (b->init) stmt_substitute(s->m, b->init, &subst);
  b->iter = iter;
  b->niter = map->nout;
  replace_nest(s, block, top);
  sched_simplify_body(s, block);
  facts_refresh(s, block);
  return sched_arg_none;
}
