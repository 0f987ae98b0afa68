/* tensorize.c: replacing a computation by a tensor intrinsic.
 *
 * Comes in: a block around a tile (or a loop, which is blockized first) and an
 * intrinsic with the description of what it computes.  Both are walked side by side:
 * loops of one step and block variables are looked through, loops pair up in order,
 * and each access of the tile must be the description's access plus an offset that
 * is the same for all accesses of that buffer.  The offsets say which tile of each
 * buffer the intrinsic works on; the tile becomes a view (match_buffer) for the
 * implementation's statements. */
#include "schedule/engine.h"

typedef struct Pair {
  const Buffer *desc, *mine;
  const Expr **base; /* for each dimension of mine: where the tile starts */
} Pair;

typedef struct Same {
  Sched *s;
  Analyzer *an;
  Map desc, mine;         /* Var* -> Expr* over the tile's loops and the outer block's variables */
  Vec(const Var *) loops; /* of the tile */
  Vec(Pair) pairs;
  const char *why; /* the first difference */
} Same;

static bool differ(Same *v, const char *why)
{
  if (!v->why) v->why = why;
  return false;
}

static const Expr *resolve(Same *v, const Map *map, const Expr *e)
{
  return expr_simplify(v->an, expr_substitute(v->s->m, e, map));
}

static bool uses_tile(Same *v, const Expr *e)
{
  for (int i = 0; i < v->loops.n; i++)
    if (expr_uses_var(e, v->loops.v[i])) return true;
  return false;
}

/* ---- accesses -------------------------------------------------------------------------------- */

static bool same_access(Same *v, const Buffer *mine, const Expr *const *at, const Buffer *desc,
                        const Expr *const *where)
{
  Sched *s = v->s;
  int skip = mine->ndim - desc->ndim;
  if (skip < 0 || !dtype_eq(mine->dtype, desc->dtype))
    return differ(
        v, arena_printf(s->m->arena, "buffer '%s' does not have the dtype or rank of '%s'", mine->name, desc->name));
  const Expr **base = arena_array(s->m->arena, const Expr *, mine->ndim);
  for (int d = 0; d < mine->ndim; d++) {
    const Expr *from = resolve(v, &v->mine, at[d]);
    base[d] = d < skip ? from : expr_simplify(v->an, expr_sub(s->m, from, resolve(v, &v->desc, where[d - skip])));
    if (uses_tile(v, base[d]))
      return differ(v, arena_printf(s->m->arena, "index %d of buffer '%s' is %s, not an offset plus the intrinsic's", d,
                                    mine->name, expr_str_of(scratch(s->ctx), from)));
  }
  for (int i = 0; i < v->pairs.n; i++) {
    Pair *p = &v->pairs.v[i];
    if (p->desc != desc) continue;
    if (p->mine != mine)
      return differ(
          v, arena_printf(s->m->arena, "'%s' stands for both '%s' and '%s'", desc->name, p->mine->name, mine->name));
    for (int d = 0; d < mine->ndim; d++)
      if (!analyzer_prove_equal(v->an, p->base[d], base[d]))
        return differ(v, arena_printf(s->m->arena, "buffer '%s' is accessed in two different tiles", mine->name));
    return true;
  }
  Pair p = {desc, mine, base};
  vec_push(s->m->arena, &v->pairs, p);
  return true;
}

static bool same_expr(Same *v, const Expr *mine, const Expr *desc)
{
  if (mine->kind != desc->kind || !dtype_eq(mine->dtype, desc->dtype) || mine->nargs != desc->nargs) {
    bool loads = mine->kind == E_LOAD && desc->kind == E_LOAD && dtype_eq(mine->dtype, desc->dtype);
    if (loads) return same_access(v, mine->u.buffer, mine->arg, desc->u.buffer, desc->arg);
    if (!uses_tile(v, mine) && !expr_has_kind(mine, E_LOAD) && resolve(v, &v->mine, mine) == resolve(v, &v->desc, desc))
      return true;
    return differ(v, arena_printf(v->s->m->arena, "%s stands where the intrinsic has %s",
                                  expr_str_of(scratch(v->s->ctx), mine), expr_str_of(scratch(v->s->ctx), desc)));
  }
  if (mine->kind == E_LOAD) return same_access(v, mine->u.buffer, mine->arg, desc->u.buffer, desc->arg);
  if (mine->kind == E_VAR || mine->nargs == 0)
    return resolve(v, &v->mine, mine) == resolve(v, &v->desc, desc) ||
           differ(v, arena_printf(v->s->m->arena, "%s stands where the intrinsic has %s",
                                  expr_str_of(scratch(v->s->ctx), mine), expr_str_of(scratch(v->s->ctx), desc)));
  if (mine->kind == E_CALL && mine->u.intrin != desc->u.intrin) return differ(v, "another function is called");
  int pairs = v->pairs.n;
  bool same = true;
  for (int i = 0; i < mine->nargs && same; i++) same = same_expr(v, mine->arg[i], desc->arg[i]);
  if (same) return true;
  if (mine->kind != E_ADD && mine->kind != E_MUL && mine->kind != E_MIN && mine->kind != E_MAX) return false;
  v->pairs.n = pairs;
  return same_expr(v, mine->arg[0], desc->arg[1]) && same_expr(v, mine->arg[1], desc->arg[0]);
}

/* ---- statements -------------------------------------------------------------------------------- */

/* Through blocks and loops of one step, noting what their variables are. */
static Stmt *look_through(Same *v, Map *map, Stmt *st)
{
  Arena *tmp = scratch(v->s->ctx);
  for (;;) {
    if (st->kind == S_BLOCK) {
      for (int i = 0; i < BLOCK(st)->niter; i++)
        map_put(tmp, map, BLOCK(st)->iter[i].var, (void *)resolve(v, map, BLOCK(st)->iter[i].value));
      if (BLOCK(st)->predicate || BLOCK(st)->nmatches || BLOCK(st)->nallocs) return st;
      st = BLOCK(st)->body;
    } else if (st->kind == S_FOR && expr_is_int(st->u.loop.extent, 1)) {
      map_put(tmp, map, LOOPVAR(st), (void *)resolve(v, map, st->u.loop.min));
      st = st->u.loop.body;
    } else return st;
  }
}

static bool same_stmt(Same *v, Stmt *mine, Stmt *desc);

static bool same_loop(Same *v, Stmt *mine, Stmt *desc)
{
  const Expr *n = resolve(v, &v->mine, mine->u.loop.extent);
  const Expr *want = resolve(v, &v->desc, desc->u.loop.extent);
  if (!analyzer_prove_equal(v->an, n, want))
    return differ(v, arena_printf(v->s->m->arena, "loop '%s' has extent %s where the intrinsic has %s",
                                  LOOPVAR(mine)->name, expr_str_of(scratch(v->s->ctx), n),
                                  expr_str_of(scratch(v->s->ctx), want)));
  analyzer_bind(v->an, LOOPVAR(mine), mine->u.loop.min, mine->u.loop.extent);
  const Expr *step = expr_sub(v->s->m, var_expr(LOOPVAR(mine)), mine->u.loop.min);
  const Expr *value = expr_add(v->s->m, step, expr_cast(v->s->m, LOOPVAR(mine)->dtype, desc->u.loop.min));
  map_put(scratch(v->s->ctx), &v->desc, LOOPVAR(desc),
          (void *)expr_cast(v->s->m, LOOPVAR(desc)->dtype, expr_simplify(v->an, value)));
  vec_push(scratch(v->s->ctx), &v->loops, LOOPVAR(mine));
  return same_stmt(v, mine->u.loop.body, desc->u.loop.body);
}

static bool same_store(Same *v, Stmt *mine, Stmt *desc)
{
  return same_access(v, mine->u.store.buffer, mine->u.store.index, desc->u.store.buffer, desc->u.store.index) &&
         same_expr(v, mine->u.store.value, desc->u.store.value);
}

static bool same_stmt(Same *v, Stmt *mine, Stmt *desc)
{
  mine = look_through(v, &v->mine, mine);
  desc = look_through(v, &v->desc, desc);
  if (mine->kind != desc->kind) return differ(v, "the statements are nested otherwise");
  switch (mine->kind) {
  case S_SEQ:
    if (mine->u.seq.n != desc->u.seq.n) return differ(v, "the number of statements differs");
    for (int i = 0; i < mine->u.seq.n; i++)
      if (!same_stmt(v, mine->u.seq.v[i], desc->u.seq.v[i])) return false;
    return true;
  case S_FOR: return same_loop(v, mine, desc);
  case S_STORE: return same_store(v, mine, desc);
  case S_IF:
    return same_expr(v, mine->u.cond.cond, desc->u.cond.cond) && same_stmt(v, mine->u.cond.then, desc->u.cond.then) &&
           !mine->u.cond.orelse == !desc->u.cond.orelse &&
           (!mine->u.cond.orelse || same_stmt(v, mine->u.cond.orelse, desc->u.cond.orelse));
  case S_LET:
    if (!same_expr(v, mine->u.let.value, desc->u.let.value)) return false;
    map_put(scratch(v->s->ctx), &v->desc, desc->u.let.var, (void *)var_expr(mine->u.let.var));
    return same_stmt(v, mine->u.let.body, desc->u.let.body);
  case S_EVAL: return same_expr(v, mine->u.eval.value, desc->u.eval.value);
  case S_WHILE:
  case S_ALLOC:
  case S_ATTR:
  case S_BLOCK: return differ(v, "the tile holds a statement that intrinsics are not matched against");
  }
  return false;
}

/* ---- the description's parts --------------------------------------------------------------------- */

static Stmt *leaf_block(PrimFunc *f)
{
  Stmt *st = f->body;
  Stmt *leaf = NULL;
  while (st->kind == S_BLOCK || st->kind == S_FOR) {
    if (st->kind == S_BLOCK) leaf = st;
    st = st->kind == S_BLOCK ? BLOCK(st)->body : st->u.loop.body;
  }
  return leaf;
}

/* The description's init over its spatial loops alone. */
static Stmt *init_of(Sched *s, PrimFunc *f)
{
  Stmt *leaf = leaf_block(f);
  Stmt *nest = BLOCK(leaf)->init;
  Map values = {0};
  for (int i = 0; i < BLOCK(leaf)->niter; i++)
    map_put(scratch(s->ctx), &values, BLOCK(leaf)->iter[i].var, (void *)BLOCK(leaf)->iter[i].value);
  nest = stmt_clone(s->m, nest);
  stmt_substitute(s->m, nest, &values);
  for (Stmt *p = leaf->parent; p; p = p->parent)
    if (p->kind == S_FOR && facts_roles(BLOCK(leaf), LOOPVAR(p)) == 1 << ITER_SPATIAL)
      nest = stmt_for(s->m, LOOPVAR(p), p->u.loop.min, p->u.loop.extent, FOR_SERIAL, NULL, nest);
  return nest;
}

static Same same_begin(Sched *s, Stmt *outer)
{
  Same v = {.s = s, .an = facts_analyzer(s, outer)};
  return v;
}

/* ---- putting the implementation in --------------------------------------------------------------- */

typedef struct Part {
  const PrimFunc *desc, *impl;
} Part;

static bool rename_block(void *env, Stmt *st)
{
  if (st->kind == S_BLOCK) BLOCK(st)->name = tree_block_name(env, BLOCK(st)->name);
  return true;
}

/* The implementation's statements, its buffers as views of the matched tiles. */
static Stmt *implement(Sched *s, Stmt *outer, const char *name, const Part *part, const PrimFunc *desc, const Same *v)
{
  PrimFunc *impl = func_import(s->m, part->impl);
  Block *b = BLOCK(outer);
  Block *root = BLOCK(impl->body);
  int nd = 0;
  int n = 0;
  MatchBuffer *matches = arena_array(s->m->arena, MatchBuffer, b->nmatches + impl->nparam + root->nmatches);
  for (int i = 0; i < b->nmatches; i++) matches[n++] = b->matches[i];
  for (int i = 0; i < impl->nparam; i++) {
    if (!impl->param[i].buffer) continue;
    while (nd < desc->nparam && !desc->param[nd].buffer) nd++;
    const Buffer *as = nd < desc->nparam ? desc->param[nd++].buffer : NULL;
    const Pair *p = NULL;
    for (int k = 0; k < v->pairs.n; k++)
      if (v->pairs.v[k].desc == as) p = &v->pairs.v[k];
    const Buffer *view = impl->param[i].buffer;
    if (!p) {
      if (facts_loads(impl->body, view))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "tensorize: intrinsic '%s' reads buffer '%s', which its description does not", name, view->name);
      continue;
    }
    Region r = {p->mine, p->base, arena_array(s->m->arena, const Expr *, p->mine->ndim)};
    int skip = p->mine->ndim - as->ndim;
    for (int d = 0; d < p->mine->ndim; d++)
      r.extent[d] =
          d < skip ? sched_const_like(s, p->base[d], 1) : expr_cast(s->m, p->base[d]->dtype, as->shape[d - skip]);
    matches[n++] = (MatchBuffer){view, r};
  }
  for (int i = 0; i < root->nmatches; i++) matches[n++] = root->matches[i];
  b->matches = matches;
  b->nmatches = n;
  for (int i = 0; i < root->nallocs; i++) sched_block_add_alloc(s, outer, root->allocs[i]);
  stmt_visit(root->body, rename_block, s);
  return root->body;
}

static bool outer_reduces(const Block *b)
{
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind == ITER_REDUCE && !expr_is_int(b->iter[i].extent, 1)) return true;
  return false;
}

/* Tries one description on the whole of the outer block; puts the implementation in
 * when it fits. */
static bool try_whole(Sched *s, Stmt *outer, const char *name, Part part, const char **why)
{
  if (!part.desc || !part.impl) return false;
  Block *b = BLOCK(outer);
  PrimFunc *desc = func_import(s->m, part.desc);
  bool has_init = leaf_block(desc) && BLOCK(leaf_block(desc))->init;
  if (has_init != (b->init != NULL)) {
    *why = has_init ? "the intrinsic starts its result anew, the block updates one"
                    : "the block still has its init; decompose_reduction takes it out";
    return false;
  }
  if (has_init && outer_reduces(b)) {
    *why = "the intrinsic starts its result anew, but loops of the reduction stay outside";
    return false;
  }
  Same v = same_begin(s, outer);
  bool same = same_stmt(&v, b->body, desc->body);
  v.loops.n = 0;
  if (same && has_init) same = same_stmt(&v, b->init, init_of(s, desc));
  if (!same) {
    *why = v.why;
    return false;
  }
  b->body = implement(s, outer, name, &part, desc, &v);
  b->init = NULL;
  stmt_link(outer, outer->parent);
  return true;
}

/* The outer block's init and body by the intrinsic's two halves. */
static bool try_halves(Sched *s, Stmt *outer, const TensorIntrin *t, const char **why)
{
  Block *b = BLOCK(outer);
  if (!b->init || !t->init || !t->update) return false;
  PrimFunc *reset = func_import(s->m, t->init_desc);
  PrimFunc *update = func_import(s->m, t->update_desc);
  Same vi = same_begin(s, outer);
  Same vu = same_begin(s, outer);
  if (!same_stmt(&vi, b->init, reset->body) || !same_stmt(&vu, b->body, update->body)) {
    *why = vi.why ? vi.why : vu.why;
    return false;
  }
  Stmt *init = implement(s, outer, t->name, &(Part){t->init_desc, t->init}, reset, &vi);
  b->body = implement(s, outer, t->name, &(Part){t->update_desc, t->update}, update, &vu);
  b->init = init;
  stmt_link(outer, outer->parent);
  return true;
}

SchedArg prim_tensorize(Sched *s, SchedArg *a)
{
  Stmt *outer = sched_arg_block_or_loop(s, &a[0]);
  const TensorIntrin *t = a[1].u.p;
  const char *what = tree_what(s, outer);
  const char *why = NULL;
  const char *first = NULL;
  if (outer->kind == S_FOR) outer = sched_blockize_loop(s, outer);
  tree_scope(s, outer);
  const Part parts[] = {{t->desc, t->impl}, {t->update_desc, t->update}, {t->init_desc, t->init}};
  bool done = false;
  for (size_t i = 0; i < sizeof parts / sizeof *parts && !done; i++) {
    done = try_whole(s, outer, t->name, parts[i], &why);
    if (!first) first = why;
  }
  if (!done && !try_halves(s, outer, t, &why))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "tensorize: %s does not compute what intrinsic '%s' does: %s", what, t->name,
          first ? first
          : why ? why
                : "it has no description");
  return sched_arg_none;
}
