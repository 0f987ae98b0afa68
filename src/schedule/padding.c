/* padding.c: a block that pads, as a block that fills and one that copies.
 *
 *   Y[i] = X[i - 3] if 3 <= i and i < 228 else 0        for i in [0, 231)
 * becomes
 *   Y[i] = 0                                            for i in [0, 231), before the loop that is named
 *   Y[i + 3] = X[i]                                     for i in [0, 225)
 * A variable that the condition limits from below or above runs over what is left of its domain.  Where a loop of the
 * block alone is that variable the loop is shortened; elsewhere the limits are the block's predicate. */
#include "schedule/engine.h"

typedef struct Limit {
  const Expr *from, *to; /* the first value, and the first one behind; NULL: the domain's own */
} Limit;

typedef struct Padding {
  Sched *s;
  Stmt *block, *loop, *store;
  const Expr *cond, *inside, *outside; /* inside if cond else outside */
  Limit *limit;                        /* for each variable of the block */
  const Expr *rest;                    /* what of the condition limits no variable; NULL: nothing */
} Padding;

static void match_padding(Padding *v)
{
  Sched *s = v->s;
  const Block *b = BLOCK(v->block);
  const char *why = facts_not_complete(s, v->block);
  if (why)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_padding: %s is not a complete block: %s", tree_what(s, v->block),
          why);
  v->store = b->body;
  const Expr *e = v->store->kind == S_STORE ? v->store->u.store.value : NULL;
  if (!e || e->kind != E_CALL || e->u.intrin != IN_IF_THEN_ELSE || b->nmatches)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE,
          "decompose_padding: %s does not pad: its body is not one store of T.if_then_else(condition, value, constant)",
          tree_what(s, v->block));
  v->cond = e->arg[0];
  v->inside = e->arg[1];
  v->outside = e->arg[2];
  if (v->outside->kind != E_INT && v->outside->kind != E_FLOAT)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_padding: %s pads with %s, which is not a constant",
          tree_what(s, v->block), expr_str_of(scratch(s->ctx), v->outside));
  if (expr_has_kind(v->cond, E_LOAD))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_padding: the condition of %s reads memory", tree_what(s, v->block));
}

/* The one variable of the block in e = variable + offset; -1 if e is something else. */
static int lone_var(const Padding *v, Analyzer *an, const Expr *e, const Expr **offset)
{
  const Block *b = BLOCK(v->block);
  int found = -1;
  for (int i = 0; i < b->niter; i++) {
    if (!expr_uses_var(e, b->iter[i].var)) continue;
    if (found >= 0) return -1;
    found = i;
  }
  if (found < 0) return -1;
  const Var *var = b->iter[found].var;
  *offset = expr_simplify(an, expr_sub(v->s->m, e, var_expr(var)));
  return expr_uses_var(*offset, var) ? -1 : found;
}

/* One condition `small < large`, or with `or_equal` `small <= large`. */
static bool take_limit(Padding *v, Analyzer *an, const Expr *small, const Expr *large, bool or_equal)
{
  Sched *s = v->s;
  const Expr *offset;
  int above = lone_var(v, an, small, &offset); /* variable + offset < large */
  const Expr *one = sched_const_like(s, small, 1);
  if (above >= 0) {
    const Expr *to = expr_sub(s->m, or_equal ? expr_add(s->m, large, one) : large, offset);
    const Expr *old = v->limit[above].to;
    if (lone_var(v, an, large, &offset) >= 0) return false;
    v->limit[above].to = expr_simplify(an, old ? expr_binary(s->m, E_MIN, old, to) : to);
    return true;
  }
  int below = lone_var(v, an, large, &offset); /* small < variable + offset */
  if (below < 0) return false;
  const Expr *from = expr_sub(s->m, or_equal ? small : expr_add(s->m, small, one), offset);
  const Expr *old = v->limit[below].from;
  v->limit[below].from = expr_simplify(an, old ? expr_binary(s->m, E_MAX, old, from) : from);
  return true;
}

/* Limits that the domain has already are none. */
static void read_condition(Padding *v)
{
  Sched *s = v->s;
  const Block *b = BLOCK(v->block);
  Arena *tmp = scratch(s->ctx);
  const Expr **part;
  int n = sched_conjuncts(tmp, v->cond, &part);
  Analyzer *an = facts_analyzer(s, v->block);
  bool limits = false;
  v->limit = arena_array(tmp, Limit, b->niter);
  for (int i = 0; i < n; i++) {
    const Expr *e = part[i];
    bool taken = false;
    if (analyzer_prove(an, e)) continue;
    limits = true;
    if (e->kind == E_LT || e->kind == E_LE) taken = take_limit(v, an, e->arg[0], e->arg[1], e->kind == E_LE);
    if (e->kind == E_GT || e->kind == E_GE) taken = take_limit(v, an, e->arg[1], e->arg[0], e->kind == E_GE);
    if (!taken) v->rest = sched_both(s, v->rest, e);
  }
  if (!limits)
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_padding: the condition %s of %s always holds, so nothing is padded",
          expr_str_of(tmp, v->cond), tree_what(s, v->block));
  for (int i = 0; i < b->niter; i++) {
    Limit *l = &v->limit[i];
    const BlockIter *it = &b->iter[i];
    if (!l->from && !l->to) continue;
    if (!expr_is_int(it->min, 0))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_padding: the variable '%s' of %s does not start at 0",
            it->var->name, tree_what(s, v->block));
    if (!l->from) l->from = it->min;
    if (!l->to) l->to = it->extent;
    if (!analyzer_prove(an, expr_binary(s->m, E_LE, it->min, l->from)) ||
        !analyzer_prove(an, expr_binary(s->m, E_LE, l->to, it->extent)) ||
        !analyzer_prove(an, expr_lt(s->m, l->from, l->to)))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE,
            "decompose_padding: it is not known that the values %s to %s of '%s' are some of its domain of %s values",
            expr_str_of(tmp, l->from), expr_str_of(tmp, l->to), it->var->name, expr_str_of(tmp, it->extent));
  }
}

/* The fill runs before everything under the loop, so nothing there may want what was in the buffer before. */
static void check_place(Padding *v)
{
  Sched *s = v->s;
  Stmt **reader;
  tree_check_plain(s, "decompose_padding", v->block);
  if (!tree_under(v->block, v->loop) || stmt_enclosing_block(v->loop) != tree_scope(s, v->block))
    raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_padding: %s is not around %s in its scope", tree_what(s, v->loop),
          tree_what(s, v->block));
  facts_check_movable(s, "decompose_padding", v->block);
  int n = facts_readers(scratch(s->ctx), v->loop, v->store->u.store.buffer, &reader);
  for (int i = 0; i < n; i++)
    if (!tree_before(s, v->block, reader[i]))
      raise(s->ctx, ERR_SCHEDULE, NOWHERE, "decompose_padding: %s reads buffer '%s' before %s writes it under %s",
            tree_what(s, reader[i]), v->store->u.store.buffer->name, tree_what(s, v->block), tree_what(s, v->loop));
  if (n) facts_check_covered(s, "decompose_padding", 1, &v->loop);
}

/* The fill and copies of the loops around it, from the loop that is named down. */
static Stmt *fill_nest(Padding *v, Stmt **fill)
{
  Sched *s = v->s;
  const Block *b = BLOCK(v->block);
  Stmt **path;
  Map vars = {0};
  int n = tree_loops_below(scratch(s->ctx), v->block, v->loop->parent, &path);
  *fill = stmt_clone_fresh(s->m, v->block, NULL);
  Block *f = BLOCK(*fill);
  f->name = tree_block_name(s, arena_printf(scratch(s->ctx), "%s_pad_const", b->name));
  f->body->u.store.value = v->outside;
  block_infer_access(s->m, f);
  Stmt *nest = *fill;
  for (int i = n - 1; i >= 0; i--) nest = sched_copy_loop(s, path[i], &vars, nest);
  stmt_substitute(s->m, nest, &vars);
  return nest;
}

static bool used_elsewhere(const Block *b, int but, const Var *var)
{
  if (b->predicate && expr_uses_var(b->predicate, var)) return true;
  for (int i = 0; i < b->niter; i++)
    if (i != but && expr_uses_var(b->iter[i].value, var)) return true;
  return false;
}

/* The loop that is the block's variable itself and nobody else's business; NULL if there is none. */
static Stmt *own_loop(const Padding *v, int i)
{
  const Block *b = BLOCK(v->block);
  const BlockIter *it = &b->iter[i];
  if (it->value->kind != E_VAR || used_elsewhere(b, i, it->value->u.var)) return NULL;
  for (Stmt *p = v->block; p != v->loop;) {
    p = p->parent;
    if (p->kind != S_FOR || expr_uses_var(p->u.loop.extent, it->value->u.var)) return NULL;
    if (LOOPVAR(p) == it->value->u.var) return p->u.loop.min == it->min && p->u.loop.extent == it->extent ? p : NULL;
  }
  return NULL;
}

/* The block that is left copies what is inside. */
static void copy_inside(Padding *v)
{
  Sched *s = v->s;
  Block *b = BLOCK(v->block);
  const Expr *where = NULL;
  Map values = {0};
  Map shifted = {0};
  Arena *tmp = scratch(s->ctx);
  for (int i = 0; i < b->niter; i++) map_put(tmp, &values, b->iter[i].var, (void *)(uintptr_t)b->iter[i].value);
  if (v->rest) where = expr_substitute(s->m, v->rest, &values);
  for (int i = 0; i < b->niter; i++) {
    BlockIter *it = &b->iter[i];
    const Limit *l = &v->limit[i];
    if (!l->from) continue;
    const Expr *extent = facts_simplify(s, v->block, expr_sub(s->m, l->to, l->from));
    Stmt *loop = own_loop(v, i);
    if (loop) {
      loop->u.loop.extent = extent;
    } else {
      if (!expr_is_int(l->from, 0)) where = sched_both(s, where, expr_binary(s->m, E_LE, l->from, it->value));
      if (l->to != it->extent) where = sched_both(s, where, expr_lt(s->m, it->value, l->to));
      it->value = expr_sub(s->m, it->value, l->from);
    }
    it->extent = extent;
    map_put(tmp, &shifted, it->var, (void *)expr_add(s->m, var_expr(it->var), l->from));
  }
  b->predicate = sched_both(s, where, b->predicate);
  v->store->u.store.value = v->inside;
  stmt_substitute(s->m, b->body, &shifted);
}

SchedArg prim_decompose_padding(Sched *s, SchedArg *a)
{
  Padding v = {.s = s, .block = sched_arg_block(s, &a[0]), .loop = sched_arg_loop(s, &a[1])};
  match_padding(&v);
  check_place(&v);
  read_condition(&v);
  Stmt *fill;
  Stmt *nest = fill_nest(&v, &fill);
  copy_inside(&v);
  tree_insert_beside(s, v.loop, false, nest);
  sched_simplify_body(s, v.block);
  facts_simplify_below(s, v.loop);
  facts_simplify_below(s, nest);
  facts_refresh(s, v.block);
  facts_refresh(s, fill);
  facts_check_above(s, "decompose_padding", v.block);
  facts_check_above(s, "decompose_padding", fill);
  return sched_result_block(s, fill);
}
