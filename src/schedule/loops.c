/* loops.c: split, fuse, reorder, unit loops, the order of block variables.
 *
 * split   for i in n           ->  for i_0, i_1:   i := i_0 * f + i_1, where i < n
 * fuse    for i in n, j in m   ->  for i_j_fused:  i := f // m, j := f % m
 * The loop variables live on in bindings and bounds only, where they are replaced;
 * the blocks themselves do not change. */
#include "schedule/engine.h"

static void check_plain_loop(Sched *s, const char *prim, Stmt *loop)
{
  static const char *const kinds[] = {"serial", "parallel", "vectorized", "unrolled", "bound to a thread axis"};
  if (loop->u.loop.kind != FOR_SERIAL)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s is already %s; %s it first and mark the result", prim,
          tree_what(s, loop), kinds[loop->u.loop.kind], prim);
  if (loop->u.loop.annots.n)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s has the annotation '%s'; unannotate it first, or annotate after", prim,
          tree_what(s, loop), loop->u.loop.annots.v[0].key);
}

static bool check_in_block(void *env, Stmt *stmt)
{
  Sched *s = env;
  if (stmt->kind == S_STORE || stmt->kind == S_EVAL || stmt->kind == S_WHILE)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "a statement under the loop stands outside of any block, so it cannot be scheduled");
  return stmt->kind != S_BLOCK;
}

static void add_predicate(Sched *s, Stmt *below, const Expr *cond)
{
  Stmt **block;
  int n = tree_blocks(scratch(s->ctx), below, &block);
  for (int i = 0; i < n; i++) {
    const Expr *own = BLOCK(block[i])->predicate;
    bool reads = own && expr_has_kind(own, E_LOAD); /* only where the new condition holds */
    BLOCK(block[i])->predicate = reads ? sched_both(s, cond, own) : sched_both(s, own, cond);
  }
}

typedef struct Outside {
  Sched *s;
  Stmt *loop;
} Outside;

/* A condition or a bound that stands between the loop and its blocks has no predicate to keep it from steps that
 * are not there. */
static void check_outside(void *env, Stmt *holder, const Expr *e)
{
  Outside *v = env;
  bool between = stmt_enclosing_block(holder) == stmt_enclosing_block(v->loop) && holder->kind != S_BLOCK;
  if (between && expr_has_kind(e, E_LOAD) && expr_uses_var(e, LOOPVAR(v->loop)))
    raise(v->s->ctx, ERR_SCHEDULE, NOWHERE,
          "split: the factors do not divide %s, and %s under it is read outside of any block in each of its steps",
          tree_what(v->s, v->loop), expr_str_of(scratch(v->s->ctx), e));
}

/* ---- split ------------------------------------------------------------------------------- */

static int read_factors(Sched *s, Stmt *loop, const SchedArg *list, const Expr **factor)
{
  int n = list->u.list.n;
  int inferred = -1;
  if (!n) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "split: %s: no factors are given", tree_what(s, loop));
  for (int i = 0; i < n; i++) {
    const SchedArg *a = &list->u.list.v[i];
    if (a->kind == SA_NONE) {
      if (inferred >= 0)
        raise(s->ctx, ERR_ARGUMENT, NOWHERE, "split: %s: factors %d and %d are both None; one can be inferred",
              tree_what(s, loop), inferred, i);
      inferred = i;
      continue;
    }
    factor[i] = facts_simplify(s, loop, sched_arg_expr(s, a, LOOPVAR(loop)->dtype));
    if (!dtype_is_int(factor[i]->dtype))
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "split: %s: factor %d is no integer", tree_what(s, loop), i);
    factor[i] = expr_cast(s->m, LOOPVAR(loop)->dtype, factor[i]);
    factor[i] = facts_simplify(s, loop, factor[i]);
    if (factor[i]->kind == E_INT && factor[i]->u.i <= 0)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "split: %s: factor %" PRId64 " is not positive", tree_what(s, loop),
            factor[i]->u.i);
  }
  return inferred;
}

static void complete_factors(Sched *s, Analyzer *an, Stmt *loop, int n, const Expr **factor, int inferred)
{
  const Expr *extent = loop->u.loop.extent;
  const Expr *product = sched_const_like(s, LOOPVAR(loop)->expr, 1);
  for (int i = 0; i < n; i++)
    if (i != inferred) product = expr_mul(s->m, product, factor[i]);
  product = expr_simplify(an, product);
  if (inferred >= 0) {
    factor[inferred] = expr_simplify(an, sched_ceil_div(s, extent, product));
    return;
  }
  if (product->kind == E_INT && extent->kind == E_INT && product->u.i < extent->u.i)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE,
          "split: the factors' product %" PRId64 " is below the extent %" PRId64 " of %s; let one be None",
          product->u.i, extent->u.i, tree_what(s, loop));
  if (!analyzer_prove(an, expr_binary(s->m, E_GE, product, extent)))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "split: the factors' product is not known to reach the extent %s of %s; let one be None",
          expr_str_of(scratch(s->ctx), extent), tree_what(s, loop));
}

SchedArg prim_split(Sched *s, SchedArg *a)
{
  Stmt *loop = sched_arg_loop(s, &a[0]);
  check_plain_loop(s, "split", loop);
  stmt_visit(loop->u.loop.body, check_in_block, s);
  Arena *tmp = scratch(s->ctx);
  int n = a[1].u.list.n;
  const Expr **factor = arena_array(tmp, const Expr *, n + 1);
  Analyzer *an = facts_analyzer(s, loop);
  complete_factors(s, an, loop, n, factor, read_factors(s, loop, &a[1], factor));

  const Expr *sum = loop->u.loop.min;
  const Expr *product = sched_const_like(s, sum, 1);
  const Var *old = LOOPVAR(loop);
  const Var **var = arena_array(tmp, const Var *, n);
  for (int i = 0; i < n; i++) {
    var[i] = var_new(s->m, arena_printf(s->m->arena, "%s_%d", old->name, i), old->dtype, VAR_PLAIN);
    analyzer_bind(an, var[i], sched_const_like(s, sum, 0), factor[i]);
    product = expr_mul(s->m, product, factor[i]);
  }
  const Expr *offset = var_expr(var[0]);
  for (int i = 1; i < n; i++) offset = expr_add(s->m, expr_mul(s->m, offset, factor[i]), var_expr(var[i]));
  offset = expr_simplify(an, offset);
  const Expr *extent = loop->u.loop.extent;
  const Expr *value = expr_simplify(an, expr_add(s->m, sum, offset));
  bool perfect = analyzer_prove(an, expr_binary(s->m, E_LE, expr_simplify(an, product), extent));

  Stmt *body = loop->u.loop.body;
  if (!perfect) {
    stmt_visit_exprs(body, check_outside, &(Outside){s, loop});
    add_predicate(s, loop, expr_lt(s->m, offset, extent));
  }
  Map map = {0};
  map_put(tmp, &map, old, (void *)value);
  stmt_substitute(s->m, body, &map);
  SchedArg *out = arena_array(tmp, SchedArg, n);
  Stmt **made = arena_array(tmp, Stmt *, n);
  Stmt *nest = body;
  for (int i = n - 1; i >= 0; i--)
    nest = made[i] = stmt_for(s->m, var[i], sched_const_like(s, sum, 0), factor[i], FOR_SERIAL, NULL, nest);
  tree_replace(s, loop, nest);
  facts_simplify_below(s, nest);
  for (int i = 0; i < n; i++) out[i] = sched_result_loop(s, made[i]);
  return sched_result_list(s, n, out);
}

/* ---- fuse ---------------------------------------------------------------------------------- */

static void check_nested(Sched *s, const char *prim, Stmt *outer, Stmt *inner)
{
  if (outer->u.loop.body == inner) return;
  if (tree_under(inner, outer))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s is not directly inside %s, which also holds other statements or loops",
          prim, tree_what(s, inner), tree_what(s, outer));
  raise(s->ctx, ERR_SCHEDULE, NOWHERE, "%s: %s is not inside %s", prim, tree_what(s, inner), tree_what(s, outer));
}

static const char *fused_name(Sched *s, int n, Stmt *const *loop)
{
  Text t = text_new(s->m->arena);
  for (int i = 0; i < n; i++) text_printf(&t, "%s_", LOOPVAR(loop[i])->name);
  text_add(&t, "fused");
  return text_str(&t);
}

SchedArg prim_fuse(Sched *s, SchedArg *a)
{
  int n = a[0].u.list.n;
  Arena *tmp = scratch(s->ctx);
  if (!n) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "fuse: no loops are given");
  Stmt **loop = arena_array(tmp, Stmt *, n);
  const Expr *product = NULL;
  for (int i = 0; i < n; i++) {
    loop[i] = sched_arg_loop(s, &a[0].u.list.v[i]);
    check_plain_loop(s, "fuse", loop[i]);
    if (i) check_nested(s, "fuse", loop[i - 1], loop[i]);
    for (int k = 0; k < i; k++)
      if (expr_uses_var(loop[i]->u.loop.extent, LOOPVAR(loop[k])) ||
          expr_uses_var(loop[i]->u.loop.min, LOOPVAR(loop[k])))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE, "fuse: the bounds of %s depend on %s", tree_what(s, loop[i]),
              tree_what(s, loop[k]));
    product = product ? expr_mul(s->m, product, loop[i]->u.loop.extent) : loop[i]->u.loop.extent;
  }
  if (n == 1) return sched_result_loop(s, loop[0]);
  Analyzer *an = facts_analyzer(s, loop[n - 1]);
  product = expr_simplify(an, product);
  const Var *var = var_new(s->m, fused_name(s, n, loop), product->dtype, VAR_PLAIN);
  analyzer_bind(an, var, sched_const_like(s, product, 0), product);
  Map map = {0};
  const Expr *rest = var_expr(var);
  for (int i = n - 1; i >= 0; i--) {
    const Expr *extent = loop[i]->u.loop.extent;
    const Expr *part = i ? expr_floormod(s->m, rest, extent) : rest;
    const Expr *value = expr_simplify(an, expr_add(s->m, loop[i]->u.loop.min, part));
    map_put(tmp, &map, LOOPVAR(loop[i]), (void *)expr_cast(s->m, LOOPVAR(loop[i])->dtype, value));
    rest = expr_floordiv(s->m, rest, extent);
  }
  Stmt *body = loop[n - 1]->u.loop.body;
  stmt_substitute(s->m, body, &map);
  Stmt *fused = stmt_for(s->m, var, sched_const_like(s, product, 0), product, FOR_SERIAL, NULL, body);
  tree_replace(s, loop[0], fused);
  facts_simplify_below(s, fused);
  return sched_result_loop(s, fused);
}

/* ---- reorder --------------------------------------------------------------------------------- */

static int position(Stmt *const *v, int n, const Stmt *x)
{
  for (int i = 0; i < n; i++)
    if (v[i] == x) return i;
  return -1;
}

/* The loops from the outermost to the innermost of those given, in one perfect nest. */
static int nest_of(Sched *s, int n, Stmt *const *loop, Stmt ***out)
{
  Stmt *innermost = loop[0];
  Stmt *outermost = loop[0];
  for (int i = 1; i < n; i++) {
    if (tree_under(loop[i], innermost)) innermost = loop[i];
    if (tree_under(outermost, loop[i])) outermost = loop[i];
  }
  Vec(Stmt *) path = {0};
  for (Stmt *p = innermost; p; p = p->parent) {
    if (p->kind == S_SEQ && p != outermost)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "reorder: %s and %s are not perfectly nested: other statements stand between them", tree_what(s, outermost),
            tree_what(s, innermost));
    if (p->kind != S_FOR)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reorder: %s is not inside %s", tree_what(s, innermost),
            tree_what(s, outermost));
    vec_push(scratch(s->ctx), &path, p);
    if (p == outermost) break;
  }
  for (int i = 0; i < n; i++)
    if (position(path.v, path.n, loop[i]) < 0)
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reorder: %s is not in one nest with %s", tree_what(s, loop[i]),
            tree_what(s, innermost));
  *out = arena_array(scratch(s->ctx), Stmt *, path.n);
  for (int i = 0; i < path.n; i++) (*out)[path.n - 1 - i] = path.v[i];
  return path.n;
}

static void check_bounds_order(Sched *s, int n, Stmt *const *order)
{
  for (int i = 0; i < n; i++)
    for (int k = i + 1; k < n; k++)
      if (expr_uses_var(order[i]->u.loop.extent, LOOPVAR(order[k])) ||
          expr_uses_var(order[i]->u.loop.min, LOOPVAR(order[k])))
        raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reorder: the bounds of %s depend on %s, which would be inside it",
              tree_what(s, order[i]), tree_what(s, order[k]));
}

/* A reduction that moves across spatial loops must meet each element once. */
static void check_reduction_order(Sched *s, Stmt *block, int n, Stmt *const *before, Stmt *const *after)
{
  const Block *b = BLOCK(block);
  bool crosses = false;
  bool reduces = false; /* steps of the reduction change places */
  for (int i = 0; i < n; i++) {
    int roles = facts_roles(b, LOOPVAR(before[i]));
    bool mixed = roles >> ITER_REDUCE & roles >> ITER_SPATIAL & 1;
    crosses |= mixed && position(after, n, before[i]) != i;
    for (int k = i + 1; k < n; k++) {
      int other = facts_roles(b, LOOPVAR(before[k]));
      bool swapped = position(after, n, before[i]) > position(after, n, before[k]);
      crosses |= swapped && ((roles | other) >> ITER_REDUCE & 1) && roles != other;
      reduces |= swapped && roles >> ITER_REDUCE & other >> ITER_REDUCE & 1;
      bool mixed_too = other >> ITER_REDUCE & other >> ITER_SPATIAL & 1;
      if (swapped && mixed && mixed_too && b->init)
        raise(s->ctx, ERR_SCHEDULE, NOWHERE,
              "reorder: %s and %s both run over spatial and reduction variables of %s, whose init has to come first; "
              "decompose_reduction sets it apart",
              tree_what(s, before[i]), tree_what(s, before[k]), tree_what(s, block));
    }
  }
  Stmt **loops;
  const char *why = reduces ? facts_not_commutative(s, block) : NULL;
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "reorder: the reduction of %s must stay in order: %s", tree_what(s, block),
          why);
  int nloops = tree_loops_below(scratch(s->ctx), block, before[0]->parent, &loops);
  if (crosses && !facts_injective(s, block, nloops, loops, &why))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "reorder: the bindings of %s are not an affine map of its loops, so its reduction must stay in order%s%s",
          tree_what(s, block), why ? ": " : "", why ? why : "");
}

SchedArg prim_reorder(Sched *s, SchedArg *a)
{
  int n = a[0].u.list.n;
  Arena *tmp = scratch(s->ctx);
  if (!n) raise(s->ctx, ERR_ARGUMENT, NOWHERE, "reorder: no loops are given");
  Stmt **loop = arena_array(tmp, Stmt *, n);
  for (int i = 0; i < n; i++) {
    loop[i] = sched_arg_loop(s, &a[0].u.list.v[i]);
    if (position(loop, i, loop[i]) >= 0)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE, "reorder: %s is given twice", tree_what(s, loop[i]));
  }
  Stmt **before, **after, **block;
  int np = nest_of(s, n, loop, &before);
  after = arena_copy(tmp, before, sizeof *before * (size_t)np);
  for (int i = 0, k = 0; i < np; i++)
    if (position(loop, n, before[i]) >= 0) after[i] = loop[k++];
  check_bounds_order(s, np, after);
  int nb = tree_blocks(tmp, before[np - 1], &block);
  for (int i = 0; i < nb; i++) {
    facts_check_order_free(s, "reorder", block[i]);
    check_reduction_order(s, block[i], np, before, after);
  }
  facts_check_covered(s, "reorder", np, before);

  Stmt *place = stmt_nop(s->m);
  Stmt *body = before[np - 1]->u.loop.body;
  stmt_replace(s->f, before[0], place);
  for (int i = np - 1; i >= 0; i--) body = (after[i]->u.loop.body = body, after[i]);
  tree_replace(s, place, after[0]);
  return sched_arg_none;
}

/* ---- small ones ---------------------------------------------------------------------------------- */

SchedArg prim_reorder_block_iter_var(Sched *s, SchedArg *a)
{
  Stmt *block = sched_arg_block(s, &a[0]);
  Block *b = BLOCK(block);
  int n = a[1].u.list.n;
  if (n != b->niter)
    raise(s->ctx, ERR_ARGUMENT, NOWHERE, "reorder_block_iter_var: %s has %d variables, the order names %d",
          tree_what(s, block), b->niter, n);
  BlockIter *iter = arena_array(s->m->arena, BlockIter, n);
  bool *used = arena_array(scratch(s->ctx), bool, n);
  for (int i = 0; i < n; i++) {
    int64_t from = sched_arg_int(s, &a[1].u.list.v[i]);
    if (from < 0 || from >= n || used[from])
      raise(s->ctx, ERR_ARGUMENT, NOWHERE,
            "reorder_block_iter_var: %" PRId64 " at place %d does not make a permutation of 0 to %d", from, i, n - 1);
    used[from] = true;
    iter[i] = b->iter[from];
  }
  b->iter = iter;
  return sched_arg_none;
}

SchedArg prim_add_unit_loop(Sched *s, SchedArg *a)
{
  Stmt *inner = sched_arg_block_or_loop(s, &a[0]);
  if (inner->kind == S_BLOCK) tree_scope(s, inner);
  DType dtype = inner->kind == S_FOR ? LOOPVAR(inner)->dtype : DT_I32;
  const Var *var = var_new(s->m, "u", dtype, VAR_PLAIN);
  Stmt *place = stmt_nop(s->m);
  stmt_replace(s->f, inner, place);
  Stmt *loop = stmt_for(s->m, var, expr_int(s->m, dtype, 0), expr_int(s->m, dtype, 1), FOR_SERIAL, NULL, inner);
  tree_replace(s, place, loop);
  return sched_result_loop(s, loop);
}
