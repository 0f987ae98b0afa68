/* reduction.c: taking a reduction apart in time: init before, updates after.
 *
 *   for i, j, k:  C[i, j] = init at k == 0; C[i, j] = C[i, j] + …
 * decomposed at k
 *   for i, j:  C_init: C[i, j] = …;   for k:  C_update: C[i, j] = C[i, j] + …
 * The init gets copies of the spatial loops from the given one down, with their kinds
 * and annotations, so a vectorized loop initialises in vectors too. */
#include "schedule/engine.h"

Stmt *sched_copy_loop(Sched *s, const Stmt *loop, Map *vars, Stmt *body)
{
  const Var *old = LOOPVAR(loop);
  const Var *var = var_new(s->m, old->name, old->dtype, VAR_PLAIN);
  Stmt *copy =
      stmt_for(s->m, var, loop->u.loop.min, loop->u.loop.extent, loop->u.loop.kind, loop->u.loop.thread_tag, body);
  for (int i = 0; i < loop->u.loop.annots.n; i++)
    annots_set(s->m->arena, &copy->u.loop.annots, loop->u.loop.annots.v[i].key, loop->u.loop.annots.v[i].value);
  map_put(scratch(s->ctx), vars, old, (void *)var_expr(var));
  return copy;
}

/* The predicate as it is at the first step of the loops not in vars. */
const Expr *sched_first_step_predicate(Sched *s, const Expr *predicate, int n, Stmt *const *loop, Map *vars)
{
  Map map = {0};
  Arena *tmp = scratch(s->ctx);
  if (!predicate) return NULL;
  for (int i = 0; i < n; i++) {
    const Expr *to = map_get(vars, LOOPVAR(loop[i]));
    map_put(tmp, &map, LOOPVAR(loop[i]), (void *)(to ? to : loop[i]->u.loop.min));
  }
  return expr_substitute(s->m, predicate, &map);
}

/* Do the block's spatial variables stay in their domains under this condition alone? */
static bool in_domain(Sched *s, Stmt *block, const Expr *cond)
{
  const Block *b = BLOCK(block);
  Analyzer *an = facts_analyzer(s, block->parent);
  if (cond) analyzer_push(an, cond);
  for (int i = 0; i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    if (it->kind != ITER_SPATIAL) continue;
    if (!analyzer_prove(an, expr_binary(s->m, E_GE, it->value, it->min))) return false;
    if (!analyzer_prove(an, expr_lt(s->m, it->value, expr_add(s->m, it->min, it->extent)))) return false;
  }
  return true;
}

const Expr *sched_init_predicate(Sched *s, Stmt *block, int n, Stmt *const *loop, Map *vars)
{
  const Expr **part;
  const Expr *keep = NULL;
  int nparts = sched_conjuncts(scratch(s->ctx), BLOCK(block)->predicate, &part);
  for (int p = 0; p < nparts; p++) {
    bool reduces = false;
    for (int i = 0; i < n; i++) reduces |= !map_has(vars, LOOPVAR(loop[i])) && expr_uses_var(part[p], LOOPVAR(loop[i]));
    if (!reduces) keep = sched_both(s, keep, part[p]);
  }
  if (!in_domain(s, block, keep)) return sched_first_step_predicate(s, BLOCK(block)->predicate, n, loop, vars);
  return keep ? expr_substitute(s->m, keep, vars) : NULL;
}

/* Raises unless the first steps of the loops are the first step of the reduction. */
void sched_check_starts(Sched *s, const char *prim, Stmt *block)
{
  const Block *b = BLOCK(block);
  Stmt **loop;
  int n = stmt_loops(scratch(s->ctx), block, &loop);
  Map first = {0};
  for (int i = 0; i < n; i++) map_put(scratch(s->ctx), &first, LOOPVAR(loop[i]), (void *)loop[i]->u.loop.min);
  Analyzer *an = facts_analyzer(s, tree_scope(s, block));
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind == ITER_REDUCE &&
        !analyzer_prove_equal(an, expr_substitute(s->m, b->iter[i].value, &first), b->iter[i].min))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: the reduction variable '%s' of %s does not start anew with its loops",
            prim, b->iter[i].var->name, tree_what(s, block));
}

static void check_decompose(Sched *s, Stmt *block, Stmt *loop)
{
  const Block *b = BLOCK(block);
  if (!b->init)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_reduction: %s has no init to take out", tree_what(s, block));
  if (!tree_under(block, loop) || stmt_enclosing_block(loop) != tree_scope(s, block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_reduction: %s is not around %s in its scope", tree_what(s, loop),
          tree_what(s, block));
  tree_check_plain(s, "decompose_reduction", block);
  sched_check_starts(s, "decompose_reduction", block);
  const char *why = facts_false_kinds(s, block);
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_reduction: the instances of %s must run in order: %s",
          tree_what(s, block), why);
  facts_check_covered(s, "decompose_reduction", 1, &loop);
  if (b->predicate && expr_has_kind(b->predicate, E_LOAD))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "decompose_reduction: the predicate of %s reads memory, so it is not known whether the init runs; put the "
          "condition into its body",
          tree_what(s, block));
  for (int i = 0; i < b->niter; i++)
    if (b->iter[i].kind != ITER_SPATIAL && b->iter[i].kind != ITER_REDUCE)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_reduction: the variable '%s' of %s is opaque",
            b->iter[i].var->name, tree_what(s, block));
  for (Stmt *p = loop->parent; p && p->kind != S_BLOCK; p = p->parent)
    if (p->kind == S_FOR && facts_roles(b, LOOPVAR(p)) >> ITER_REDUCE & 1)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "decompose_reduction: %s is inside %s, a loop of the reduction of %s, so the init would run again in each "
            "of its steps",
            tree_what(s, loop), tree_what(s, p), tree_what(s, block));
}

static void check_copied_bounds(Sched *s, const Stmt *loop, int n, Stmt *const *all, const Map *copied)
{
  for (int i = 0; i < n; i++) {
    const Var *v = LOOPVAR(all[i]);
    if (!map_has(copied, v) && (expr_uses_var(loop->u.loop.extent, v) || expr_uses_var(loop->u.loop.min, v)))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "decompose_reduction: the bounds of %s depend on %s, which the init does not run over", tree_what(s, loop),
            tree_what(s, all[i]));
  }
}

/* The init as a block over the spatial variables alone. */
static Stmt *init_block(Sched *s, Stmt *block)
{
  const Block *b = BLOCK(block);
  Block *init = arena_new_of(s->m->arena, Block);
  Map vars = {0};
  init->name = tree_block_name(s, arena_printf(scratch(s->ctx), "%s_init", b->name));
  init->iter = arena_array(s->m->arena, BlockIter, b->niter);
  for (int i = 0; i < b->niter; i++) {
    if (b->iter[i].kind != ITER_SPATIAL) continue;
    BlockIter *it = &init->iter[init->niter++];
    *it = b->iter[i];
    it->var =
        var_new(s->m, arena_printf(s->m->arena, "%s_init", b->iter[i].var->name), b->iter[i].var->dtype, VAR_PLAIN);
    map_put(scratch(s->ctx), &vars, b->iter[i].var, (void *)var_expr(it->var));
  }
  init->body = stmt_clone_fresh(s->m, b->init, NULL);
  init->predicate = b->predicate;
  for (int i = 0; i < b->annots.n; i++)
    annots_set(s->m->arena, &init->annots, b->annots.v[i].key, b->annots.v[i].value);
  Stmt *out = stmt_block(s->m, init);
  stmt_substitute(s->m, init->body, &vars);
  block_infer_access(s->m, init);
  return out;
}

SchedArg prim_decompose_reduction(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *block = sched_arg_block(s, &a[0]);
  Stmt *loop = sched_arg_loop(s, &a[1]);
  check_decompose(s, block, loop);
  Block *b = BLOCK(block);
  Stmt **path;
  int n = tree_loops_below(tmp, block, loop->parent, &path);
  const char *why = NULL;
  if (!facts_injective(s, block, n, path, &why))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "decompose_reduction: under %s some instances of %s run more than once, each time with an init of their "
          "own%s%s; choose a loop further in",
          tree_what(s, loop), tree_what(s, block), why ? ": " : "", why ? why : "");
  Map copied = {0};
  Stmt *init = init_block(s, block);
  Stmt *nest = init;
  for (int i = n - 1; i >= 0; i--) {
    int roles = facts_roles(b, LOOPVAR(path[i]));
    if (roles >> ITER_SPATIAL & roles >> ITER_REDUCE & 1)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "decompose_reduction: %s runs over spatial and reduction variables of %s at once", tree_what(s, path[i]),
            tree_what(s, block));
    if (roles >> ITER_SPATIAL & 1) nest = sched_copy_loop(s, path[i], &copied, nest);
  }
  for (int i = 0; i < n; i++)
    if (map_has(&copied, LOOPVAR(path[i]))) check_copied_bounds(s, path[i], n, path, &copied);
  BLOCK(init)->predicate = sched_init_predicate(s, block, n, path, &copied);
  stmt_substitute(s->m, nest, &copied);
  if (facts_guarded(s, block)) vec_push(s->m->arena, &s->guarded, init->id);
  tree_insert_beside(s, loop, false, nest);
  b->init = NULL;
  b->name = tree_block_name(s, arena_printf(tmp, "%s_update", b->name));
  facts_simplify_below(s, nest);
  facts_refresh(s, block);
  facts_check_above(s, "decompose_reduction", block);
  facts_check_above(s, "decompose_reduction", init);
  return sched_result_block(s, init);
}
