/* blockize.c: everything under a loop as one block.
 *
 *   for i0, j0, i1, j1:  C(vi = i0*16 + i1, vj = j0*16 + j1)
 * blockized at i1
 *   for i0, j0:  C_o(vi_o = i0, vj_o = j0) { for i1, j1:  C(vi_i = i1, vj_i = j1), vi := vi_o*16 + vi_i }
 * Each binding has to come apart into a multiple of the inner extent, over the outer
 * loops, and a part over the inner ones; a variable without an inner part is the outer block's
 * alone.  A reduction's init moves to the outer block. */
#include "schedule/engine.h"

typedef struct Tile {
  Sched *s;
  Stmt *loop, *block;
  Block *b, *outer;
  Analyzer *an;
  int ninner, nouter;
  Stmt **inner, **outside; /* loops inside (the given one first) and outside of the tile */
  Map values;              /* the block's variables by the two blocks' */
} Tile;

static bool uses_loops(const Expr *e, int n, Stmt *const *loop)
{
  for (int i = 0; i < n; i++)
    if (expr_uses_var(e, LOOPVAR(loop[i]))) return true;
  return false;
}

static const Expr *at_first(Tile *v, const Expr *e, int n, Stmt *const *loop)
{
  Map map = {0};
  for (int i = 0; i < n; i++) map_put(scratch(v->s->ctx), &map, LOOPVAR(loop[i]), (void *)loop[i]->u.loop.min);
  return expr_simplify(v->an, expr_substitute(v->s->m, e, &map));
}

_Noreturn static void refuse(Tile *v, const BlockIter *it, const char *why)
{
  raise(v->s->ctx, ERR_SCHEDULE, NOWHERE, "blockize: at %s the binding %s of the variable '%s' of %s %s",
        tree_what(v->s, v->loop), expr_str_of(scratch(v->s->ctx), it->value), it->var->name, tree_what(v->s, v->block),
        why);
}

/* Takes one binding apart: the outer block's variable, and the inner one's.  False: there is no inner one. */
static bool split_iter(Tile *v, BlockIter *it, BlockIter *out)
{
  Sched *s = v->s;
  Module *m = s->m;
  Arena *tmp = scratch(s->ctx);
  const Var *old = it->var;
  const Expr *outer = at_first(v, it->value, v->ninner, v->inner);
  const Expr *inner = expr_simplify(v->an, expr_sub(m, it->value, outer));
  const Var *var = var_new(m, arena_printf(m->arena, "%s_o", old->name), old->dtype, VAR_PLAIN);
  *out = (BlockIter){var, it->min, it->extent, it->kind, outer};
  if (uses_loops(inner, v->nouter, v->outside)) refuse(v, it, "does not come apart into an outer and an inner part");
  if (!uses_loops(inner, v->ninner, v->inner)) {
    map_put(tmp, &v->values, old, (void *)var_expr(var));
    return false;
  }
  const Var **vars = arena_array(tmp, const Var *, v->ninner);
  for (int i = 0; i < v->ninner; i++) vars[i] = LOOPVAR(v->inner[i]);
  const Expr *lo, *hi;
  if (!analyzer_relax(v->an, inner, v->ninner, vars, &lo, &hi) ||
      !analyzer_prove_equal(v->an, lo, sched_const_like(s, lo, 0)))
    refuse(v, it, "has an inner part that does not start at 0");
  const Expr *extent = expr_simplify(v->an, expr_add(m, hi, sched_const_like(s, hi, 1)));
  const Var *own = var_new(m, arena_printf(m->arena, "%s_i", old->name), old->dtype, VAR_PLAIN);
  const Expr *base; /* of the tile */
  if (!uses_loops(outer, v->nouter, v->outside)) {
    if (!analyzer_prove_equal(v->an, extent, it->extent))
      refuse(v, it, "covers only a part of its domain, and always the same");
    out->min = out->value = sched_const_like(s, it->min, 0);
    out->extent = sched_const_like(s, it->min, 1);
    base = outer;
  } else {
    const Expr *number = expr_simplify(v->an, expr_floordiv(m, outer, extent));
    if (!expr_is_int(it->min, 0) || !analyzer_prove_equal(v->an, expr_mul(m, number, extent), outer))
      refuse(v, it, "has an outer part that is not a multiple of the inner extent");
    const Expr *count = expr_simplify(v->an, expr_floordiv(m, it->extent, extent));
    if (!analyzer_prove_equal(v->an, expr_mul(m, count, extent), it->extent))
      refuse(v, it, "does not divide its domain into whole tiles");
    out->min = sched_const_like(s, it->min, 0);
    out->value = number;
    out->extent = count;
    base = expr_mul(m, var_expr(var), extent);
  }
  *it = (BlockIter){own, sched_const_like(s, it->min, 0), extent, it->kind, inner};
  bool plain = expr_is_int(base, 0);
  map_put(tmp, &v->values, old, (void *)(plain ? var_expr(own) : expr_add(m, base, var_expr(own))));
  return true;
}

/* Gives the outer block its variables, and leaves the inner one those of its tile. */
static void split_iters(Tile *v)
{
  Block *b = v->b;
  int kept = 0;
  v->outer->niter = b->niter;
  v->outer->iter = arena_array(v->s->m->arena, BlockIter, b->niter);
  for (int i = 0; i < b->niter; i++) {
    BlockIter it = b->iter[i];
    if (split_iter(v, &it, &v->outer->iter[i])) b->iter[kept++] = it;
  }
  b->niter = kept;
  stmt_substitute(v->s->m, b->body, &v->values);
  if (b->init) stmt_substitute(v->s->m, b->init, &v->values);
}

static void split_predicate(Tile *v)
{
  Sched *s = v->s;
  const Expr **part;
  int n = sched_conjuncts(scratch(s->ctx), v->b->predicate, &part);
  v->b->predicate = NULL;
  for (int i = 0; i < n; i++) {
    bool in = uses_loops(part[i], v->ninner, v->inner);
    bool out = uses_loops(part[i], v->nouter, v->outside);
    if (in && out)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "blockize: the predicate %s of %s mixes loops inside and outside of %s: the tiles are not all whole",
            expr_str_of(scratch(s->ctx), part[i]), tree_what(s, v->block), tree_what(s, v->loop));
    const Expr **to = in ? &v->b->predicate : &v->outer->predicate;
    *to = sched_both(s, *to, part[i]);
  }
}

/* The init over copies of the inner spatial loops, as a block of the outer one's init. */
static void move_init(Tile *v)
{
  Sched *s = v->s;
  Arena *tmp = scratch(s->ctx);
  Block *b = v->b;
  Block *init = arena_new_of(s->m->arena, Block);
  const char *why = facts_false_kinds(s, v->block);
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "blockize: the init of %s cannot come before its other instances: %s",
          tree_what(s, v->block), why);
  init->name = tree_block_name(s, arena_printf(tmp, "%s_init", b->name));
  init->iter = arena_array(s->m->arena, BlockIter, b->niter);
  Map vars = {0};
  Map copied = {0};
  for (int i = 0; i < b->niter; i++) {
    if (b->iter[i].kind != ITER_SPATIAL) continue;
    BlockIter *it = &init->iter[init->niter++];
    *it = b->iter[i];
    it->var = var_new(s->m, arena_printf(s->m->arena, "%s_init", it->var->name), it->var->dtype, VAR_PLAIN);
    map_put(tmp, &vars, b->iter[i].var, (void *)var_expr(it->var));
  }
  init->body = b->init;
  stmt_substitute(s->m, init->body, &vars);
  b->init = NULL;
  Stmt *nest = stmt_block(s->m, init);
  for (int i = v->ninner - 1; i >= 0; i--) {
    int roles = facts_roles(b, LOOPVAR(v->inner[i]));
    if (roles >> ITER_SPATIAL & roles >> ITER_REDUCE & 1)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "blockize: %s runs over spatial and reduction variables of %s at once",
            tree_what(s, v->inner[i]), tree_what(s, v->block));
    if (roles >> ITER_SPATIAL & 1) nest = sched_copy_loop(s, v->inner[i], &copied, nest);
  }
  init->predicate = sched_init_predicate(s, v->block, v->ninner, v->inner, &copied);
  stmt_substitute(s->m, nest, &copied);
  block_infer_access(s->m, init);
  v->outer->init = nest;
}

Stmt *sched_blockize_loop(Sched *s, Stmt *loop)
{
  Arena *tmp = scratch(s->ctx);
  Stmt **block;
  int n = tree_blocks(tmp, loop, &block);
  if (n != 1)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "blockize: %s holds %d blocks; blockize takes a perfect nest around one",
          tree_what(s, loop), n);
  Tile v = {.s = s, .loop = loop, .block = block[0], .b = BLOCK(block[0])};
  tree_check_plain(s, "blockize", v.block);
  v.ninner = tree_loops_below(tmp, v.block, loop->parent, &v.inner);
  v.nouter = tree_loops_below(tmp, loop, NULL, &v.outside);
  for (int i = 0; i < v.ninner; i++)
    if (uses_loops(v.inner[i]->u.loop.extent, v.nouter, v.outside) ||
        uses_loops(v.inner[i]->u.loop.min, v.nouter, v.outside))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "blockize: the bounds of %s depend on a loop outside of %s",
            tree_what(s, v.inner[i]), tree_what(s, loop));
  v.an = facts_analyzer(s, v.block);
  v.outer = arena_new_of(s->m->arena, Block);
  v.outer->name = tree_block_name(s, arena_printf(tmp, "%s_o", v.b->name));
  split_predicate(&v);
  split_iters(&v);
  if (v.b->init) move_init(&v);
  Stmt *place = stmt_nop(s->m);
  stmt_replace(s->f, loop, place);
  v.outer->body = loop;
  Stmt *outer = stmt_block(s->m, v.outer);
  tree_replace(s, place, outer);
  if (facts_guarded(s, v.block)) vec_push(s->m->arena, &s->guarded, outer->id);
  facts_simplify_below(s, outer);
  sched_simplify_body(s, v.block);
  facts_refresh(s, outer);
  return outer;
}

SchedArg prim_blockize(Sched *s, SchedArg *a)
{
  if (a[0].kind == SA_LOOP) return sched_result_block(s, sched_blockize_loop(s, sched_arg_loop(s, &a[0])));
  SchedArg one = a[0];
  if (a[0].kind == SA_LIST) {
    if (a[0].u.list.n != 1)
      raise(s->ctx, ERR_UNSUPPORTED, NOWHERE,
            "blockize of %d blocks together is not supported; blockize the loop around one", a[0].u.list.n);
    one = a[0].u.list.v[0];
  }
  Stmt *block = sched_arg_block(s, &one);
  Stmt *place = stmt_nop(s->m);
  tree_scope(s, block);
  const Var *unit = var_new(s->m, "u", DT_I32, VAR_PLAIN);
  stmt_replace(s->f, block, place);
  Stmt *loop = stmt_for(s->m, unit, expr_i32(s->m, 0), expr_i32(s->m, 1), FOR_SERIAL, NULL, block);
  tree_replace(s, place, loop);
  return sched_result_block(s, sched_blockize_loop(s, loop));
}
