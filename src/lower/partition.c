/* partition.c: loops split at their guards, so that main bodies have none.
 *
 * lower_pass_partition_loops
 *   for io < 32:                             for io < 31:
 *     for ii < 32:                             for ii < 32: C[…]
 *       if likely(io*32 + ii < 1000): C[…]  →  for ii < 8: C[…]          (io is 31)
 *
 *   A condition e >= 0, linear in the loop variable v, holds for every value of the
 *   loops inside v exactly on a range [lo, hi) of v, found by taking the minimum of e
 *   over those loops.  At each loop, outermost first:
 *   - shrink: if no loop inside matters and the whole body stands under the
 *     condition, the loop runs over [lo, hi) alone and the condition is gone;
 *   - peel: otherwise the loop becomes three, [0, lo), [lo, hi), [hi, n); in the
 *     middle one the condition is gone, the outer two are looked at again; the first step of a
 *     piece that is cut off stands alone where a condition is false in all that follow.
 *   Guards (marked likely: they come from splits and predicates) are removed from
 *   any loop.  Other conditions (padding, user's if) are removed from loops that
 *   every store below is indexed by, and in peeled-off pieces from the loops of sums
 *   too (rows of taps at the edge of a map).  Copies are counted against a budget; when
 *   it is spent the remaining guards stay.
 *
 *   Where the length of a loop is not known, a guard that depends on a loop inside too is left to that one if that has
 *   loops of its own: what it takes to find its end counts for little, and a copy of all that for much.
 *
 *   A parallel loop with few iterations is not cut in three, which would leave
 *   workers idle: it keeps its range and chooses between the bodies inside.  Padding that it
 *   copies into a buffer of its own is left to the loops of that copy.
 *
 *   Loops that were fused are told apart again: a guard over f // 4 or f % 4 is looked at as one over a loop of that
 *   value, and the body of f chooses between its copies by it.
 *
 * needs   flat or many-dimensional buffers, no blocks, loops from 0
 * keeps   everything else
 * breaks  loop variables of the copies are new; afterwards nothing is marked likely */
#include "lower/internal.h"

typedef struct Cond {
  const Expr *e;      /* a comparison */
  bool likely, guard; /* guard: condition of an if without else */
  bool copied;        /* only of what is copied into a buffer of the loop's own: padding put there */
} Cond;

typedef struct Part {
  Lower *lo;
  Analyzer *an;
  Arena *tmp;
  int budget;  /* statements that copies may still add */
  int in_tail; /* > 0 inside a peeled-off piece */
} Part;

/* What stands below one loop. */
typedef struct Below {
  Part *p;
  const Var *var;
  Vec(Cond) conds;
  Vec(const Var *) inner;  /* loop variables */
  Vec(const Var *) hidden; /* let variables: conditions that use them are left alone */
  Vec(const Buffer *) locals;
  bool spatial; /* every store to something from outside uses var */
  bool in_copy;
} Below;

enum { MAX_TRIES = 4, FEW_ITERATIONS = 8 };

/* ---- finding conditions ------------------------------------------------------------- */

static bool is_comparison(const Expr *e)
{
  return (e->kind == E_LT || e->kind == E_LE || e->kind == E_GT || e->kind == E_GE) && e->dtype.lanes == 1 &&
         dtype_is_int(e->arg[0]->dtype) && !expr_has_kind(e, E_LOAD);
}

static void add_cond(Below *b, const Expr *e, bool likely, bool guard)
{
  if (!is_comparison(e) || !expr_uses_var(e, b->var)) return;
  for (int i = 0; i < b->conds.n; i++)
    if (b->conds.v[i].e == e) {
      b->conds.v[i].likely |= likely;
      b->conds.v[i].guard |= guard;
      b->conds.v[i].copied &= b->in_copy;
      return;
    }
  vec_push(b->p->tmp, &b->conds, (Cond){e, likely, guard, b->in_copy});
}

static void add_conds(Below *b, const Expr *cond, bool likely, bool guard)
{
  ExprVec parts = {0};
  lower_conjuncts(b->p->tmp, cond, &parts);
  for (int i = 0; i < parts.n; i++) add_cond(b, parts.v[i], likely, guard);
}

static void find_in_expr(void *env, const Expr *e)
{
  bool chooses = e->kind == E_SELECT || (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE);
  if (chooses) add_conds(env, e->arg[0], false, false);
}

static const Expr *find_held(void *env, const Expr *e)
{
  Below *b = env;
  if (expr_has_kind(e, E_SELECT) || expr_has_kind(e, E_CALL)) expr_visit(b->p->lo->ctx, e, find_in_expr, b);
  return e;
}

static bool is_local(const Below *b, const Buffer *buffer)
{
  for (int i = 0; i < b->locals.n; i++)
    if (b->locals.v[i] == buffer) return true;
  return false;
}

static bool find_stmt(void *env, Stmt *s)
{
  Below *b = env;
  Arena *tmp = b->p->tmp;
  b->in_copy =
      s->kind == S_STORE && is_local(b, s->u.store.buffer) && !expr_uses_buffer(s->u.store.value, s->u.store.buffer);
  lower_map_exprs(s, find_held, b);
  if (s->kind == S_FOR) {
    analyzer_bind(b->p->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
    vec_push(tmp, &b->inner, s->u.loop.var);
  } else if (s->kind == S_LET) {
    vec_push(tmp, &b->hidden, s->u.let.var);
  } else if (s->kind == S_ALLOC) {
    vec_push(tmp, &b->locals, s->u.alloc.buffer);
  } else if (s->kind == S_IF) {
    bool likely;
    const Expr *cond = lower_unlikely(s->u.cond.cond, &likely);
    add_conds(b, cond, likely, !s->u.cond.orelse);
  } else if (s->kind == S_STORE && !is_local(b, s->u.store.buffer)) {
    bool used = false;
    for (int i = 0; i < s->u.store.n; i++) used |= expr_uses_var(s->u.store.index[i], b->var);
    b->spatial &= used;
  }
  return true;
}

/* ---- where a condition holds ------------------------------------------------------------ */

typedef struct Range {
  const Expr *lo, *hi; /* NULL: no limit on that side */
} Range;

/* e with cond being e >= 0 */
static const Expr *as_nonnegative(Module *m, const Expr *cond)
{
  const Expr *a = cond->arg[0];
  const Expr *b = cond->arg[1];
  if (cond->kind == E_LT || cond->kind == E_LE) {
    a = cond->arg[1];
    b = cond->arg[0];
  }
  const Expr *e = expr_sub(m, a, b);
  return cond->kind == E_LT || cond->kind == E_GT ? expr_sub(m, e, lower_int(m, e, 1)) : e;
}

static bool uses_one_of(const Expr *e, int n, const Var *const *vars)
{
  for (int i = 0; i < n; i++)
    if (expr_uses_var(e, vars[i])) return true;
  return false;
}

/* The values of the loop variable for which cond holds whatever the inner loops do. */
static bool true_range(Below *b, const Expr *cond, Range *out)
{
  Part *p = b->p;
  Module *m = p->lo->m;
  if (uses_one_of(cond, b->hidden.n, b->hidden.v)) return false;
  const Expr *e = expr_simplify(p->an, as_nonnegative(m, cond));
  const Expr *min = e;
  const Expr *max;
  if (uses_one_of(e, b->inner.n, b->inner.v) && !analyzer_relax(p->an, e, b->inner.n, b->inner.v, &min, &max))
    return false;
  const Expr *coeff[2];
  min = expr_simplify(p->an, min);
  if (!expr_linear(p->an, min, 1, &b->var, coeff)) return false;
  int64_t a;
  if (!lower_const_int(expr_simplify(p->an, coeff[0]), &a) || a == 0) return false;
  const Expr *rest = coeff[1];
  if (uses_one_of(rest, b->inner.n, b->inner.v) || expr_uses_var(rest, b->var)) return false;
  *out = (Range){NULL, NULL};
  if (a > 0) /* a*v + rest >= 0: v >= ceil(-rest / a) */
    out->lo = expr_simplify(p->an, expr_sub(m, lower_int(m, rest, 0), expr_floordiv(m, rest, lower_int(m, rest, a))));
  else /* v <= floor(rest / -a) */
    out->hi = expr_simplify(p->an, expr_add(m, expr_floordiv(m, rest, lower_int(m, rest, -a)), lower_int(m, rest, 1)));
  return true;
}

static const Expr *larger(Part *p, const Expr *a, const Expr *b)
{
  Module *m = p->lo->m;
  if (analyzer_prove(p->an, expr_binary(m, E_LE, b, a))) return a;
  if (analyzer_prove(p->an, expr_binary(m, E_LE, a, b))) return b;
  return expr_simplify(p->an, expr_max(m, a, b));
}

static const Expr *smaller(Part *p, const Expr *a, const Expr *b)
{
  Module *m = p->lo->m;
  if (analyzer_prove(p->an, expr_binary(m, E_LE, a, b))) return a;
  if (analyzer_prove(p->an, expr_binary(m, E_LE, b, a))) return b;
  return expr_simplify(p->an, expr_min(m, a, b));
}

/* Cuts range to r; both ends stay inside it and in order whatever the sizes are.
 * False (and unchanged) if nothing would be left. */
static bool intersect(Part *p, Range *range, Range r)
{
  Range cut = *range;
  if (r.lo) cut.lo = larger(p, range->lo, r.lo);
  if (r.hi) cut.hi = smaller(p, range->hi, r.hi);
  if (analyzer_prove(p->an, expr_binary(p->lo->m, E_LE, cut.hi, cut.lo))) return false;
  if (r.lo) cut.lo = smaller(p, cut.lo, range->hi);
  cut.hi = larger(p, cut.hi, cut.lo);
  *range = cut;
  return true;
}

/* ---- taking conditions away --------------------------------------------------------------- */

static const Expr *true_node(Rewriter *rw, const Expr *e)
{
  const ExprVec *held = rw->env;
  if (e->dtype.bits != 1) return e;
  for (int i = 0; i < held->n; i++)
    if (held->v[i] == e) return expr_bool(rw->m, true);
  return e;
}

static const Expr *rewrite_held(void *env, const Expr *e) { return expr_rewrite(env, e); }

/* Replaces the held conditions below s by true. */
static void take_away(Part *p, Stmt *s, const ExprVec *held)
{
  Rewriter rw = {.m = p->lo->m, .fn = true_node, .env = (void *)(uintptr_t)held, .arena = p->tmp};
  stmt_rewrite_exprs(s, rewrite_held, &rw);
}

/* Nothing, or a hint. */
static bool is_idle(Stmt *s)
{
  return lower_is_nop(s) ||
         (s->kind == S_EVAL && s->u.eval.value->kind == E_CALL && s->u.eval.value->u.intrin == IN_PREFETCH);
}

/* Is c true where cond is?  A guard of a tile follows from one of its elements. */
static bool follows(Part *p, const Expr *cond, const Expr *c)
{
  int mark = analyzer_push(p->an, lower_unlikely(cond, NULL));
  bool yes = analyzer_prove(p->an, c);
  analyzer_pop(p->an, mark);
  return yes;
}

/* Does s do nothing where c is false? */
static bool stands_under(Part *p, Stmt *s, const Expr *c)
{
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++)
      if (!stands_under(p, s->u.seq.v[i], c)) return false;
    return true;
  case S_FOR: return stands_under(p, s->u.loop.body, c);
  case S_IF: {
    if (s->u.cond.orelse) return false;
    ExprVec parts = {0};
    lower_conjuncts(p->tmp, s->u.cond.cond, &parts);
    for (int i = 0; i < parts.n; i++)
      if (parts.v[i] == c) return true;
    return follows(p, s->u.cond.cond, c) || stands_under(p, s->u.cond.then, c);
  }
  case S_LET: return expr_is_pure(s->u.let.value) && stands_under(p, s->u.let.body, c);
  case S_ALLOC: return stands_under(p, s->u.alloc.body, c);
  case S_ATTR: return stands_under(p, s->u.attr.body, c);
  case S_EVAL: return is_idle(s);
  case S_WHILE:
  case S_STORE:
  case S_BLOCK: return false;
  }
  return false;
}

static bool find_loop(void *env, Stmt *s)
{
  *(bool *)env |= s->kind == S_FOR;
  return !*(bool *)env;
}

static bool has_loop(Stmt *s)
{
  bool found = false;
  stmt_visit(s, find_loop, &found);
  return found;
}

/* Does the condition depend on a loop inside, one that runs step by step and has others inside? */
typedef struct Inside {
  const Expr *cond;
  bool found;
} Inside;

static bool find_inside(void *env, Stmt *s)
{
  Inside *f = env;
  bool plain = s->kind == S_FOR && (s->u.loop.kind == FOR_SERIAL || s->u.loop.kind == FOR_PARALLEL);
  f->found |= plain && expr_uses_var(f->cond, s->u.loop.var) && has_loop(s->u.loop.body);
  return !f->found;
}

static bool goes_inside(Stmt *s, const Expr *cond)
{
  Inside f = {cond, false};
  stmt_visit(s->u.loop.body, find_inside, &f);
  return f.found;
}

/* ---- pieces of a loop ------------------------------------------------------------------------ */

/* A copy of loop s over [lo, hi), from 0, simplified. */
static Stmt *piece(Part *p, Stmt *s, Range r)
{
  Module *m = p->lo->m;
  Stmt *c = stmt_clone_fresh(m, s, NULL);
  const Var *var = c->u.loop.var;
  c->u.loop.min = expr_cast(m, var->dtype, r.lo);
  c->u.loop.extent = expr_simplify(p->an, expr_cast(m, var->dtype, expr_sub(m, r.hi, r.lo)));
  return lower_simplify(p->lo, p->an, c);
}

static Stmt *part_stmt(void *env, Stmt *s);
static Stmt *part_for(Part *p, Stmt *s, int tries);

static Stmt *part_piece(Part *p, Stmt *s, int tries)
{
  if (s->kind != S_FOR) return part_stmt(p, s);
  return part_for(p, s, tries);
}

static bool provably_empty(Part *p, const Expr *lo, const Expr *hi)
{
  return analyzer_prove(p->an, expr_binary(p->lo->m, E_LE, hi, lo));
}

/* A range that could be cut into constant pieces, or a loop that need not be. */
static bool may_cut(const Stmt *s, Range r)
{
  if (s->u.loop.kind != FOR_VECTORIZED && s->u.loop.kind != FOR_UNROLLED) return true;
  return r.lo->kind == E_INT && r.hi->kind == E_INT && s->u.loop.extent->kind == E_INT;
}

/* What is cut off a parallel loop is a few iterations: not worth the workers. */
static Stmt *short_piece(Stmt *s)
{
  int64_t n;
  bool many = s->kind == S_FOR && lower_const_int(s->u.loop.extent, &n) && n >= FEW_ITERATIONS;
  if (s->kind == S_FOR && s->u.loop.kind == FOR_PARALLEL && !many) s->u.loop.kind = FOR_SERIAL;
  return s;
}

/* `dead`, where it is given: from there on a condition of a choice is false.  What is left behind constant bounds has a
 * condition less: a chain of choices (tensors put together) is cut
 * link by link, as far as the budget goes. */
static Stmt *peel(Part *p, Stmt *s, Range r, const Expr *dead, const ExprVec *held, int tries)
{
  Module *m = p->lo->m;
  const Expr *zero = lower_int(m, r.lo, 0);
  const Expr *n = s->u.loop.extent;
  Stmt *head = provably_empty(p, zero, r.lo) ? NULL : piece(p, s, (Range){zero, r.lo});
  Stmt *tail = provably_empty(p, r.hi, n) ? NULL : piece(p, s, (Range){r.hi, dead ? dead : n});
  Stmt *end = dead ? piece(p, s, (Range){dead, n}) : NULL;
  take_away(p, s->u.loop.body, held);
  Stmt *main = part_piece(p, piece(p, s, r), tries + 1);
  p->in_tail++;
  /* Behind a bound that is not known the same condition would be cut at again, to no end. */
  if (head) head = part_piece(p, short_piece(head), r.lo->kind == E_INT ? tries + 1 : MAX_TRIES);
  bool link = !head && r.hi->kind == E_INT && n->kind == E_INT;
  if (tail) tail = part_piece(p, short_piece(tail), link ? tries : r.hi->kind == E_INT ? tries + 1 : MAX_TRIES);
  if (end) end = part_piece(p, short_piece(end), tries + 1);
  p->in_tail--;
  return lower_then(m, lower_then(m, lower_then(m, head, main), tail), end);
}

/* One body of a parallel loop that chooses by its variable: of the range r. */
static Stmt *chosen_body(Part *p, Stmt *s, Range r)
{
  Module *m = p->lo->m;
  const Var *var = s->u.loop.var;
  Map vars = {0};
  int64_t lo, hi;
  if (lower_const_int(r.lo, &lo) && lower_const_int(r.hi, &hi) && hi == lo + 1)
    map_put(p->tmp, &vars, var, (void *)(uintptr_t)expr_int(m, var->dtype, lo));
  return stmt_clone_fresh(m, s->u.loop.body, &vars);
}

static Stmt *choose(Part *p, Stmt *s, Range r, const ExprVec *held)
{
  Module *m = p->lo->m;
  const Expr *zero = lower_int(m, r.lo, 0);
  const Expr *n = s->u.loop.extent;
  const Expr *v = s->u.loop.var->expr;
  Stmt *tail = provably_empty(p, r.hi, n) ? NULL : chosen_body(p, s, (Range){r.hi, n});
  Stmt *head = provably_empty(p, zero, r.lo) ? NULL : chosen_body(p, s, (Range){zero, r.lo});
  take_away(p, s->u.loop.body, held);
  Stmt *body = s->u.loop.body;
  if (tail) body = stmt_if(m, expr_lt(m, v, r.hi), body, tail);
  if (head) body = stmt_if(m, expr_binary(m, E_GE, v, r.lo), body, head);
  s->u.loop.body = lower_simplify(p->lo, p->an, body);
  lower_map_children(m, s, part_stmt, p);
  return s;
}

static void note_local(void *env, const Expr *e)
{
  *(bool *)env |= e->kind == E_LOAD && !strcmp(e->u.buffer->scope, "local");
}

/* A store of what may be in registers: its places there must be told when compiling. */
static bool stores_registers(Part *p, Stmt *s)
{
  while (s->kind == S_FOR || s->kind == S_IF) s = s->kind == S_FOR ? s->u.loop.body : s->u.cond.then;
  bool local = false;
  if (s->kind == S_STORE && strcmp(s->u.store.buffer->scope, "local"))
    expr_visit(p->lo->ctx, s->u.store.value, note_local, &local);
  return local;
}

/* A loop to become vectors or to be written out whose shrunk range is not constant: all of it where that fits; what is
 * in registers one by one, each under its condition. */
static Stmt *shrink_or_whole(Part *p, Stmt *s, Range r, const ExprVec *held)
{
  if (p->in_tail && stores_registers(p, s)) {
    s->u.loop.kind = FOR_UNROLLED;
    lower_map_children(p->lo->m, s, part_stmt, p);
    return s;
  }
  Module *m = p->lo->m;
  const Expr *zero = lower_int(m, r.lo, 0);
  const Expr *n = s->u.loop.extent;
  take_away(p, s->u.loop.body, held);
  Stmt *rest = piece(p, s, r);
  if (p->in_tail || p->budget < lower_count(s)) return part_piece(p, rest, MAX_TRIES);
  p->budget -= lower_count(s);
  const Expr *fits = expr_simplify(p->an, expr_and(m, expr_binary(m, E_LE, r.lo, zero), expr_binary(m, E_GE, r.hi, n)));
  Stmt *whole = part_piece(p, piece(p, s, (Range){zero, n}), 0);
  p->in_tail++;
  rest = part_piece(p, rest, MAX_TRIES);
  p->in_tail--;
  return stmt_if(m, fits, whole, rest);
}

/* The first value of the loop variable from which on no value of the inner loops makes cond true; n: not known, or
 * none. */
static int64_t false_from(Below *b, const Expr *cond, int64_t n)
{
  Part *p = b->p;
  Module *m = p->lo->m;
  if (!is_comparison(cond) || uses_one_of(cond, b->hidden.n, b->hidden.v)) return n;
  const Expr *e = expr_simplify(p->an, as_nonnegative(m, cond));
  const Expr *min;
  const Expr *max = e;
  const Expr *coeff[2];
  if (uses_one_of(e, b->inner.n, b->inner.v) && !analyzer_relax(p->an, e, b->inner.n, b->inner.v, &min, &max)) return n;
  int64_t a, rest;
  if (!expr_linear(p->an, expr_simplify(p->an, max), 1, &b->var, coeff)) return n;
  if (!lower_const_int(expr_simplify(p->an, coeff[0]), &a) || !lower_const_int(expr_simplify(p->an, coeff[1]), &rest) ||
      a >= 0)
    return n;
  return rest < 0 ? 0 : rest / -a + 1;
}

/* From which value on s does nothing but give hints; n: not known. */
static int64_t idle_from(Below *b, Stmt *s, int64_t n)
{
  int64_t from = 0;
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n && from < n; i++) {
      int64_t one = idle_from(b, s->u.seq.v[i], n);
      if (one > from) from = one;
    }
    return from;
  case S_FOR: return idle_from(b, s->u.loop.body, n);
  case S_ALLOC: return idle_from(b, s->u.alloc.body, n);
  case S_ATTR: return idle_from(b, s->u.attr.body, n);
  case S_IF: {
    bool likely;
    ExprVec parts = {0};
    if (s->u.cond.orelse) return n;
    lower_conjuncts(b->p->tmp, lower_unlikely(s->u.cond.cond, &likely), &parts);
    from = idle_from(b, s->u.cond.then, n);
    for (int i = 0; i < parts.n; i++) {
      int64_t one = false_from(b, parts.v[i], n);
      if (one < from) from = one;
    }
    return from;
  }
  case S_EVAL: return is_idle(s) ? 0 : n;
  default: return n;
  }
}

/* Iterations at the end of what was cut off in which nothing happens: a last band that is not full. */
static bool drop_idle(Below *b, Stmt *s, Range *range)
{
  int64_t n, from;
  if (!b->p->in_tail || !lower_const_int(s->u.loop.extent, &n) || n < 2) return false;
  from = idle_from(b, s->u.loop.body, n);
  if (from < 1 || from >= n) return false;
  range->hi = lower_int(b->p->lo->m, s->u.loop.extent, from);
  return true;
}

/* Shrinks s by the conditions that its whole body stands under; NULL if there are none. */
static Stmt *shrink(Below *b, Stmt *s, int tries)
{
  Part *p = b->p;
  Range range = {lower_int(p->lo->m, s->u.loop.extent, 0), s->u.loop.extent};
  ExprVec held = {0};
  for (int i = 0; i < b->conds.n; i++) {
    const Cond *c = &b->conds.v[i];
    Range r;
    if (!c->guard || uses_one_of(c->e, b->inner.n, b->inner.v) || !true_range(b, c->e, &r)) continue;
    if (!stands_under(p, s->u.loop.body, c->e)) continue;
    if (!intersect(p, &range, r)) return stmt_nop(p->lo->m);
    vec_push(p->tmp, &held, c->e);
  }
  if (!held.n && drop_idle(b, s, &range)) return part_piece(p, piece(p, s, range), tries);
  if (!held.n) return NULL;
  bool special =
      (s->u.loop.kind == FOR_VECTORIZED || s->u.loop.kind == FOR_UNROLLED) && s->u.loop.extent->kind == E_INT;
  if (special && (range.lo->kind != E_INT || range.hi->kind != E_INT)) return shrink_or_whole(p, s, range, &held);
  take_away(p, s->u.loop.body, &held);
  return part_piece(p, piece(p, s, range), tries + 1);
}

/* The first value from which on a choice is false, where that is not a number: zeros behind data of unknown length.
 * NULL: not known, or not known to be between `from` and the loop's end. */
static const Expr *dead_from(Below *b, const Expr *cond, const Expr *from, const Expr *n)
{
  Part *p = b->p;
  Module *m = p->lo->m;
  const Expr *e = expr_simplify(p->an, as_nonnegative(m, cond));
  const Expr *min;
  const Expr *max = e;
  const Expr *coeff[2];
  int64_t a;
  if (uses_one_of(cond, b->hidden.n, b->hidden.v)) return NULL;
  if (uses_one_of(e, b->inner.n, b->inner.v) && !analyzer_relax(p->an, e, b->inner.n, b->inner.v, &min, &max))
    return NULL;
  if (!expr_linear(p->an, expr_simplify(p->an, max), 1, &b->var, coeff) ||
      !lower_const_int(expr_simplify(p->an, coeff[0]), &a) || a >= 0 || uses_one_of(coeff[1], b->inner.n, b->inner.v))
    return NULL;
  const Expr *first = expr_floordiv(m, coeff[1], lower_int(m, coeff[1], -a));
  first = expr_simplify(p->an, expr_add(m, first, lower_int(m, first, 1)));
  bool ordered =
      analyzer_prove(p->an, expr_binary(m, E_LE, from, first)) && analyzer_prove(p->an, expr_binary(m, E_LE, first, n));
  return ordered && first->kind != E_INT ? first : NULL;
}

/* Peels s so that as many conditions as possible go; NULL if none can. */
static Stmt *peel_conds(Below *b, Stmt *s, int tries)
{
  Part *p = b->p;
  Module *m = p->lo->m;
  Range whole = {lower_int(m, s->u.loop.extent, 0), s->u.loop.extent};
  Range range = whole;
  ExprVec held = {0};
  for (int likely = 1; likely >= 0; likely--)
    for (int i = 0; i < b->conds.n; i++) {
      const Cond *c = &b->conds.v[i];
      Range r;
      Range cut = range;
      /* Pieces before and after a parallel loop leave workers idle, and those of a loop of unknown length may be empty:
       * the loops of the copy can do it. */
      bool open = s->u.loop.extent->kind != E_INT;
      if ((s->u.loop.kind == FOR_PARALLEL || open) && c->copied && uses_one_of(c->e, b->inner.n, b->inner.v)) continue;
      /* Nor is a piece of a loop of unknown length worth its code where a loop inside can be cut. */
      if (likely && open && goes_inside(s, c->e)) continue;
      if (c->likely != likely || (!likely && !b->spatial && !p->in_tail) || !true_range(b, c->e, &r)) continue;
      if (!intersect(p, &cut, r) || !may_cut(s, cut)) continue;
      range = cut;
      vec_push(p->tmp, &held, c->e);
    }
  if (!held.n) return NULL;
  if (range.lo == whole.lo && range.hi == whole.hi) {
    take_away(p, s->u.loop.body, &held);
    return part_piece(p, lower_simplify(p->lo, p->an, s), tries + 1);
  }
  int cost = lower_count(s) * ((range.lo != whole.lo) + (range.hi != whole.hi));
  if (cost > p->budget) return NULL;
  p->budget -= cost;
  int64_t lo, hi;
  bool few = lower_const_int(range.lo, &lo) && lower_const_int(range.hi, &hi) && hi - lo < FEW_ITERATIONS;
  if (s->u.loop.kind == FOR_PARALLEL && few) return choose(p, s, range, &held);
  const Expr *dead = NULL;
  for (int i = 0; i < b->conds.n && !dead && range.hi->kind != E_INT && cost <= p->budget; i++)
    if (!b->conds.v[i].likely && !b->conds.v[i].guard) dead = dead_from(b, b->conds.v[i].e, range.hi, whole.hi);
  if (dead) p->budget -= lower_count(s);
  return peel(p, s, range, dead, &held, tries);
}

/* A first step in which a condition holds for some values of the inner loops (a vector across the border of two tensors
 * that are put together) stands alone: behind it the condition is false; NULL if there is none. */
static Stmt *part_mixed(Below *b, Stmt *s, int tries)
{
  Part *p = b->p;
  int64_t n;
  int cost = lower_count(s);
  if (!p->in_tail || !b->spatial || cost > p->budget || !lower_const_int(s->u.loop.extent, &n) || n < 2) return NULL;
  for (int i = 0; i < b->conds.n; i++) {
    const Cond *c = &b->conds.v[i];
    if (c->likely || c->guard || false_from(b, c->e, n) != 1) continue;
    p->budget -= cost;
    const Expr *zero = lower_int(p->lo->m, s->u.loop.extent, 0);
    const Expr *one = lower_int(p->lo->m, zero, 1);
    Stmt *mixed = piece(p, s, (Range){zero, one});
    Stmt *rest = piece(p, s, (Range){one, s->u.loop.extent});
    mixed = part_piece(p, short_piece(mixed), tries + 1);
    return lower_then(p->lo->m, mixed, part_piece(p, rest, tries));
  }
  return NULL;
}

/* ---- fused loops ------------------------------------------------------------------------------ */

/* The quotient or remainder of var by a constant that stands in e, the outermost one; NULL: there is none, or
 * there are several. */
static const Expr *fused_part(const Expr *e, const Var *var)
{
  if (!expr_uses_var(e, var)) return NULL;
  if ((e->kind == E_FLOORDIV || e->kind == E_FLOORMOD) && e->arg[1]->kind == E_INT) return e;
  const Expr *found = NULL;
  for (int i = 0; i < e->nargs; i++) {
    const Expr *one = fused_part(e->arg[i], var);
    if (one && found && one != found) return NULL;
    if (one) found = one;
  }
  return found;
}

typedef struct Swap {
  const Expr *from, *to;
} Swap;

static const Expr *swap_node(Rewriter *rw, const Expr *e)
{
  const Swap *w = rw->env;
  return e == w->from ? w->to : e;
}

static void swap_below(Part *p, Stmt *s, const Expr *from, const Expr *to)
{
  Swap w = {from, to};
  Rewriter rw = {.m = p->lo->m, .fn = swap_node, .env = &w, .arena = p->tmp};
  stmt_rewrite_exprs(s, rewrite_held, &rw);
}

/* The range of `part`, whose values are 0 to n - 1, on which guards hold that use nothing else of the loop: all but
 * the first and the last value, so that a copy is for one value. */
static bool fused_range(Below *b, const Expr *part, int64_t n, const Var *value, Range *range, ExprVec *held)
{
  Part *p = b->p;
  Module *m = p->lo->m;
  Below of = {.p = p, .var = value, .inner = b->inner, .hidden = b->hidden};
  Swap w = {part, value->expr};
  Rewriter rw = {.m = m, .fn = swap_node, .env = &w, .arena = p->tmp};
  *range = (Range){lower_int(m, part, 0), lower_int(m, part, n)};
  for (int i = 0; i < b->conds.n; i++) {
    const Cond *c = &b->conds.v[i];
    Range r;
    if (!c->likely || fused_part(c->e, b->var) != part) continue;
    const Expr *e = expr_rewrite(&rw, c->e);
    if (expr_uses_var(e, b->var) || !true_range(&of, e, &r) || !intersect(p, range, r)) continue;
    vec_push(p->tmp, held, e);
  }
  int64_t lo, hi;
  bool constant = lower_const_int(range->lo, &lo) && lower_const_int(range->hi, &hi);
  return held->n && constant && lo <= 1 && hi >= n - 1;
}

/* The body of a loop over var, which chooses by the loops that were fused into it; NULL if no guard asks for that. */
static Stmt *choose_fused(Part *p, const Var *var, Stmt *body)
{
  Module *m = p->lo->m;
  Below b = {.p = p, .var = var};
  stmt_visit(body, find_stmt, &b);
  int size = lower_count(body);
  for (int i = 0; i < b.conds.n && 2 * size <= p->budget; i++) {
    const Expr *part = b.conds.v[i].likely ? fused_part(b.conds.v[i].e, var) : NULL;
    Interval of = part ? analyzer_bounds(p->an, part) : (Interval){0};
    if (!part || of.min != 0 || of.max < 1 || of.max >= INT32_MAX) continue;
    const Var *value = var_new(m, var->name, part->dtype, VAR_PLAIN);
    const Expr *zero = lower_int(m, part, 0);
    const Expr *count = lower_int(m, part, of.max + 1);
    Range range;
    ExprVec held = {0};
    analyzer_bind(p->an, value, zero, count);
    if (!fused_range(&b, part, of.max + 1, value, &range, &held)) continue;
    /* a loop over that value alone, for as long as its bodies are made */
    swap_below(p, body, part, value->expr);
    Stmt *inner = stmt_for(m, value, zero, count, FOR_SERIAL, NULL, body);
    Stmt *last = provably_empty(p, range.hi, count) ? NULL : chosen_body(p, inner, (Range){range.hi, count});
    Stmt *first = provably_empty(p, zero, range.lo) ? NULL : chosen_body(p, inner, (Range){zero, range.lo});
    take_away(p, body, &held);
    p->budget -= size * ((first != NULL) + (last != NULL));
    Stmt *piece[] = {body, last, first};
    for (int k = 0; k < 3; k++) {
      Stmt *more = piece[k] ? choose_fused(p, var, piece[k]) : NULL;
      if (more) piece[k] = more;
    }
    body = piece[0];
    if (last) body = stmt_if(m, expr_lt(m, value->expr, range.hi), body, piece[1]);
    if (first) body = stmt_if(m, expr_binary(m, E_GE, value->expr, range.lo), body, piece[2]);
    swap_below(p, body, value->expr, part);
    return body;
  }
  return NULL;
}

static Stmt *part_fused(Part *p, Stmt *s)
{
  Stmt *body = lower_for_gpu(p->lo) ? NULL : choose_fused(p, s->u.loop.var, s->u.loop.body);
  if (!body) return NULL;
  s->u.loop.body = lower_simplify(p->lo, p->an, body);
  lower_map_children(p->lo->m, s, part_stmt, p);
  return s;
}

/* Threads fill shared memory and read it in the loop: all of them must run it equally
 * often, since they wait for each other inside. */
typedef struct SharedUse {
  Ctx *ctx;
  bool stored, loaded;
} SharedUse;

static void note_shared_load(void *env, const Expr *e)
{
  ((SharedUse *)env)->loaded |= e->kind == E_LOAD && str_starts(e->u.buffer->scope, "shared");
}

static void note_shared_held(void *env, Stmt *holder, const Expr *e)
{
  (void)holder;
  expr_visit(((SharedUse *)env)->ctx, e, note_shared_load, env);
}

static bool note_shared_store(void *env, Stmt *s)
{
  ((SharedUse *)env)->stored |= s->kind == S_STORE && str_starts(s->u.store.buffer->scope, "shared");
  return true;
}

static bool waits_inside(Part *p, Stmt *s)
{
  SharedUse u = {.ctx = p->lo->ctx};
  if (!lower_for_gpu(p->lo)) return false;
  stmt_visit(s, note_shared_store, &u);
  if (u.stored) stmt_visit_exprs(s, note_shared_held, &u);
  return u.stored && u.loaded;
}

static Stmt *part_for(Part *p, Stmt *s, int tries)
{
  analyzer_bind(p->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  if (s->u.loop.kind != FOR_THREAD && !waits_inside(p, s) && expr_is_int(s->u.loop.min, 0)) {
    Below b = {.p = p, .var = s->u.loop.var, .spatial = true};
    stmt_visit(s->u.loop.body, find_stmt, &b);
    Stmt *done = b.conds.n ? shrink(&b, s, tries) : NULL;
    bool cut = b.conds.n && tries < MAX_TRIES;
    if (!done && cut) done = peel_conds(&b, s, tries);
    if (!done && cut) done = part_mixed(&b, s, tries);
    if (!done && cut) done = part_fused(p, s);
    if (done) return done;
  }
  lower_map_children(p->lo->m, s, part_stmt, p);
  return s;
}

static Stmt *part_stmt(void *env, Stmt *s)
{
  Part *p = env;
  Module *m = p->lo->m;
  if (s->kind == S_FOR) return part_for(p, s, 0);
  if (s->kind == S_IF) {
    const Expr *cond = lower_unlikely(s->u.cond.cond, NULL);
    int mark = analyzer_push(p->an, cond);
    s->u.cond.then = part_stmt(p, s->u.cond.then);
    analyzer_pop(p->an, mark);
    if (s->u.cond.orelse) {
      mark = analyzer_push(p->an, expr_not(m, cond));
      s->u.cond.orelse = part_stmt(p, s->u.cond.orelse);
      analyzer_pop(p->an, mark);
    }
    return s;
  }
  lower_map_children(m, s, part_stmt, p);
  return s;
}

/* ---- the pass ----------------------------------------------------------------------------------- */

static const Expr *plain_node(Rewriter *rw, const Expr *e)
{
  (void)rw;
  return e->kind == E_CALL && e->u.intrin == IN_LIKELY ? e->arg[0] : e;
}

void lower_pass_partition_loops(Lower *lo)
{
  Part p = {.lo = lo, .an = lower_analyzer(lo), .tmp = scratch(lo->ctx)};
  int size = lower_count(lo->f->body);
  p.budget = 128 + (size < 200 ? 32 * size : 6400);
  if (!lo->config.no_partition) lo->f->body = part_stmt(&p, lo->f->body);
  Rewriter rw = {.m = lo->m, .fn = plain_node, .arena = p.tmp};
  stmt_rewrite_exprs(lo->f->body, rewrite_held, &rw);
  lower_pass_simplify(lo);
}
