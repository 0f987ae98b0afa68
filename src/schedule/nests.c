/* nests.c: one loop instead of several that stand beside each other, and the other way round.
 *
 * merge           for i: X   for j: Y       ->  for i_m: { X, Y }
 * loop_partition  for i in [0, 10): X       ->  for i0 in [0, 4): X   for i1 in [4, 10): X */
#include "schedule/engine.h"

/* ---- merge ------------------------------------------------------------------------------- */

/* The loops from the statement `top` holds down to `loop`: each holds the next one and nothing else. */
static int merge_path(Sched *s, Stmt *loop, const Stmt *top, Stmt ***out)
{
  Vec(Stmt *) up = {0};
  Arena *tmp = scratch(s->ctx);
  for (Stmt *p = loop; p != top; p = p->parent) {
    if (p->kind != S_FOR)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: between %s and what it shares with the others stands something else",
            tree_what(s, loop));
    if (p->u.loop.kind != FOR_SERIAL || p->u.loop.annots.n)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: %s is marked or annotated; merge first and mark the result",
            tree_what(s, p));
    if (!expr_is_int(p->u.loop.min, 0))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: %s does not start at 0", tree_what(s, p));
    vec_push(tmp, &up, p);
  }
  Stmt **path = arena_array(tmp, Stmt *, up.n);
  for (int i = 0; i < up.n; i++) path[i] = up.v[up.n - 1 - i];
  *out = path;
  return up.n;
}

/* The sequence whose items the loops are, or are the innermost of. */
static Stmt *common_sequence(Sched *s, int n, Stmt *const *loop)
{
  for (Stmt *p = loop[0]->parent; p && p->kind != S_BLOCK; p = p->parent) {
    bool all = true;
    for (int i = 1; i < n; i++) all &= tree_under(loop[i], p);
    if (all && p->kind == S_SEQ) return p;
    if (all) break;
  }
  raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: the loops do not stand beside each other in one scope");
}

static int place_in(const Stmt *seq, const Stmt *item)
{
  for (int i = 0; i < seq->u.seq.n; i++)
    if (seq->u.seq.v[i] == item) return i;
  return -1;
}

/* Is what the block writes in one step of the loops written in no other: is each of them an index? */
static bool writes_by_step(const Block *b, int n, Stmt *const *loop)
{
  for (int l = 0; l < n; l++) {
    bool index = expr_is_int(loop[l]->u.loop.extent, 1);
    for (int i = 0; i < b->niter; i++)
      for (int d = 0; b->iter[i].value == var_expr(LOOPVAR(loop[l])) && d < b->writes[0].buffer->ndim; d++)
        index |= b->writes[0].min[d] == var_expr(b->iter[i].var);
    if (!index) return false;
  }
  return true;
}

/* What a later part reads, an earlier one has done with in the same step: a sum over a merged loop has not. */
static void check_finished(Sched *s, int n, Stmt *const *loop)
{
  Stmt **block;
  int nblock = tree_blocks(scratch(s->ctx), loop[0], &block);
  for (int w = 0; w < nblock; w++) {
    const Block *b = BLOCK(block[w]);
    if (!facts_not_complete(s, block[w]) || (b->nwrites == 1 && writes_by_step(b, n, loop))) continue;
    for (int r = 0; r < nblock; r++)
      for (int i = 0; i < b->nwrites && r != w; i++)
        if (facts_reads(BLOCK(block[r]), b->writes[i].buffer))
          raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: %s would read '%s' before %s has finished it",
                tree_what(s, block[r]), b->writes[i].buffer->name, tree_what(s, block[w]));
  }
}

SchedArg prim_merge(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  int n = a[0].u.list.n;
  if (n < 2) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "merge: wants two loops or more, got %d", n);
  Stmt **loop = arena_array(tmp, Stmt *, n);
  Stmt ***path = arena_array(tmp, Stmt **, n);
  for (int i = 0; i < n; i++) loop[i] = sched_arg_loop(s, &a[0].u.list.v[i]);
  Stmt *seq = common_sequence(s, n, loop);
  int depth = 0;
  for (int i = 0; i < n; i++) {
    int k = merge_path(s, loop[i], seq, &path[i]);
    if (i && k != depth)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: %s is %d loops deep and %s is %d", tree_what(s, loop[0]), depth,
            tree_what(s, loop[i]), k);
    depth = k;
    if (i && place_in(seq, path[i][0]) != place_in(seq, path[i - 1][0]) + 1)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: %s does not come right behind %s", tree_what(s, path[i][0]),
            tree_what(s, path[i - 1][0]));
  }
  Analyzer *an = facts_analyzer(s, seq);
  Map vars = {0};
  Stmt **made = arena_array(tmp, Stmt *, depth);
  Stmt **body = arena_array(tmp, Stmt *, n);
  for (int i = 0; i < n; i++) body[i] = loop[i]->u.loop.body;
  int at = place_in(seq, path[0][0]);
  Stmt *nest = stmt_seq(s->m, n, body);
  for (int d = depth - 1; d >= 0; d--) {
    const Var *old = LOOPVAR(path[0][d]);
    const Var *var = var_new(s->m, arena_printf(s->m->arena, "%s_m", old->name), old->dtype, VAR_PLAIN);
    for (int i = 0; i < n; i++) {
      if (!analyzer_prove_equal(an, path[0][d]->u.loop.extent, path[i][d]->u.loop.extent))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE, "merge: %s has %s steps and %s has %s", tree_what(s, path[0][d]),
              expr_str_of(tmp, path[0][d]->u.loop.extent), tree_what(s, path[i][d]),
              expr_str_of(tmp, path[i][d]->u.loop.extent));
      map_put(tmp, &vars, LOOPVAR(path[i][d]), (void *)expr_cast(s->m, LOOPVAR(path[i][d])->dtype, var_expr(var)));
    }
    nest = made[d] = stmt_for(s->m, var, path[0][d]->u.loop.min, path[0][d]->u.loop.extent, FOR_SERIAL, NULL, nest);
  }
  Stmt **item = arena_array(tmp, Stmt *, seq->u.seq.n);
  int nitems = 0;
  for (int i = 0; i < seq->u.seq.n; i++)
    if (i == at) item[nitems++] = nest;
    else if (i < at || i >= at + n) item[nitems++] = seq->u.seq.v[i];
  tree_replace(s, seq, stmt_seq(s->m, nitems, item));
  stmt_substitute(s->m, nest, &vars);
  check_finished(s, depth, made);
  facts_check_covered(s, "merge", depth, made);
  facts_check_above(s, "merge", made[0]);
  return sched_result_loop(s, made[depth - 1]);
}

/* ---- loop_partition ------------------------------------------------------------------------ */

/* The lengths of the parts; what the factors leave over is one more.  Returns their number. */
static int part_lengths(Sched *s, Stmt *loop, const SchedArg *list, int64_t *length)
{
  int64_t extent = loop->u.loop.extent->u.i;
  int64_t left = extent;
  int n = list->u.list.n;
  int inferred = -1;
  if (!n) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "loop_partition: no factors are given");
  for (int i = 0; i < n; i++) {
    if (list->u.list.v[i].kind == SA_NONE) {
      if (inferred >= 0)
        raise(s->ctx, ERR_ARGUMENT, NOWHERE, "loop_partition: factors %d and %d are both None; one can be inferred",
              inferred, i);
      inferred = i;
      continue;
    }
    const Expr *e = facts_simplify(s, loop, sched_arg_expr(s, &list->u.list.v[i], LOOPVAR(loop)->dtype));
    if (e->kind != E_INT || e->u.i <= 0)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "loop_partition: factor %d is not a positive integer", i);
    length[i] = e->u.i;
    left -= length[i];
    if (left < 0 || (left == 0 && inferred >= 0))
      raise(s->ctx, ERR_ARGUMENT, NOWHERE,
            "loop_partition: the factors add up to more than the %" PRId64 " steps of %s", extent, tree_what(s, loop));
  }
  if (inferred >= 0) length[inferred] = left;
  if (inferred >= 0 && !left)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "loop_partition: nothing is left of %s for the factor that is None",
          tree_what(s, loop));
  if (inferred < 0 && left) length[n++] = left;
  return n;
}

/* Blocks of a part are called after it: B in the part i0 is B_i0. */
static void name_part(Sched *s, Stmt *part, Stmt *whole, const char *suffix)
{
  Stmt **block, **old;
  Vec(Stmt *) open = {0};
  Vec(Stmt *) model = {0};
  Arena *tmp = scratch(s->ctx);
  vec_push(tmp, &open, part);
  vec_push(tmp, &model, whole);
  for (int i = 0; i < open.n; i++) {
    int n = tree_blocks(tmp, open.v[i], &block);
    tree_blocks(tmp, model.v[i], &old);
    for (int k = 0; k < n; k++) {
      BLOCK(block[k])->name = tree_block_name(s, arena_printf(tmp, "%s_%s", BLOCK(old[k])->name, suffix));
      vec_push(tmp, &open, block[k]);
      vec_push(tmp, &model, old[k]);
    }
  }
}

/* A variable of the block that the loop decides alone, times a step, runs over the part's share of its domain.  What
 * reduces along the loop starts in the first part. */
static void narrow_block(Sched *s, Stmt *block, Stmt *whole, Stmt *part, bool first)
{
  Block *b = BLOCK(block);
  const Var *var = LOOPVAR(part);
  Analyzer *an = facts_analyzer(s, whole);
  for (int i = 0; i < b->niter; i++) {
    BlockIter *it = &b->iter[i];
    if (!expr_uses_var(it->value, var)) continue;
    int64_t steps = whole->u.loop.extent->u.i;
    int64_t step = it->extent->kind == E_INT && it->extent->u.i % steps == 0 ? it->extent->u.i / steps : 0;
    const Expr *term = expr_mul(s->m, var_expr(var), sched_const_like(s, var_expr(var), step));
    const Expr *rest = expr_simplify(an, expr_sub(s->m, it->value, term));
    const Var **used;
    int n = expr_free_vars(scratch(s->ctx), rest, &used);
    for (int k = 0; k < n; k++) {
      Stmt *p = block->parent;
      while (p && p != part && !(p->kind == S_FOR && LOOPVAR(p) == used[k])) p = p->parent;
      if (!p || p == part) step = 0;
    }
    if (!step ||
        !analyzer_prove_equal(an, it->min, expr_mul(s->m, whole->u.loop.min, sched_const_like(s, it->min, step))))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "loop_partition: the variable '%s' of %s is %s, which %s does not decide alone; partition before splitting "
            "and fusing",
            it->var->name, tree_what(s, block), expr_str_of(scratch(s->ctx), it->value), tree_what(s, whole));
    it->min = expr_simplify(an, expr_mul(s->m, part->u.loop.min, sched_const_like(s, it->min, step)));
    it->extent = expr_simplify(an, expr_mul(s->m, part->u.loop.extent, sched_const_like(s, it->extent, step)));
    if (it->kind == ITER_REDUCE && !first) b->init = NULL;
  }
}

SchedArg prim_loop_partition(Sched *s, SchedArg *a)
{
  Arena *tmp = scratch(s->ctx);
  Stmt *loop = sched_arg_loop(s, &a[0]);
  if (loop->u.loop.kind != FOR_SERIAL || loop->u.loop.annots.n)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "loop_partition: %s is marked or annotated; partition it first",
          tree_what(s, loop));
  if (loop->u.loop.extent->kind != E_INT)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "loop_partition: the extent %s of %s is not a constant",
          expr_str_of(tmp, loop->u.loop.extent), tree_what(s, loop));
  int64_t *length = arena_array(tmp, int64_t, a[1].u.list.n + 1);
  int n = part_lengths(s, loop, &a[1], length);
  const Var *old = LOOPVAR(loop);
  Stmt **part = arena_array(tmp, Stmt *, n);
  Stmt **guarded;
  int nguarded = tree_all_blocks(tmp, s->f, &guarded);
  const Expr *from = loop->u.loop.min;
  for (int i = 0; i < n; i++) {
    const char *name = arena_printf(s->m->arena, "%s%d", old->name, i);
    const Var *var = var_new(s->m, name, old->dtype, VAR_PLAIN);
    Map vars = {0};
    map_put(tmp, &vars, old, (void *)var_expr(var));
    Stmt *body = stmt_clone_fresh(s->m, loop->u.loop.body, &vars);
    const Expr *extent = expr_int(s->m, old->dtype, length[i]);
    part[i] = stmt_for(s->m, var, from, extent, FOR_SERIAL, NULL, body);
    from = facts_simplify(s, loop, expr_add(s->m, from, extent));
  }
  for (int i = 0; i < nguarded; i++)
    if (tree_under(guarded[i], loop) && facts_guarded(s, guarded[i]))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "loop_partition: %s under %s came with a predicate of its own",
            tree_what(s, guarded[i]), tree_what(s, loop));
  for (int i = 0; i < n; i++) {
    Stmt **block;
    int k = tree_blocks(tmp, part[i], &block);
    for (int j = 0; j < k; j++) narrow_block(s, block[j], loop, part[i], !i);
    name_part(s, part[i], loop, LOOPVAR(part[i])->name);
  }
  for (int i = 0; i < n - 1; i++) tree_insert_beside(s, loop, false, part[i]);
  tree_replace(s, loop, part[n - 1]);
  SchedArg *out = arena_array(tmp, SchedArg, n);
  for (int i = 0; i < n; i++) {
    facts_simplify_below(s, part[i]);
    Stmt **block;
    int k = tree_blocks(tmp, part[i], &block);
    for (int j = 0; j < k; j++) facts_refresh(s, block[j]);
    out[i] = sched_result_loop(s, part[i]);
  }
  facts_check_above(s, "loop_partition", part[0]);
  return sched_result_list(s, n, out);
}
