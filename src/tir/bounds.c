/* bounds.c: accesses that provably leave their buffer, and block axes that
 * provably leave their domain.
 *
 * A walk carries the loops around an index and the conditions that guard it.
 * First the analyzer tries to show that the index stays inside; most accesses end
 * there.  What is left is reported only when it is certain:
 * - without guards, a linear index takes its extreme values at the ends of the
 *   loops; if one of those is provably outside, so is the access;
 * - with constant ranges, concrete iterations are tried; one that satisfies all
 *   guards and lands outside is a proof.
 * Everything else is left to the interpreter and to the user's promise. */
#include "tir/tir.h"

/* Choices inside choices are looked into one by one; after so many of them what they hold is taken
 * as it is. */
enum { MAX_POINTS = 4096, MAX_VARS = 12, MAX_GUARDS = 1000 };

typedef struct Loop {
  const Var *var;
  const Expr *min, *extent;
} Loop;

typedef struct Walk {
  const PrimFunc *f;
  Module *m;
  Ctx *ctx;
  Arena *arena;
  Analyzer *an;
  Vec(Loop) loops;
  Map values; /* Var* -> Expr*: let and block variables */
  Vec(const Expr *) guards;
  int undecided; /* guards that depend on data */
  int nguarded;  /* guards so far */
  bool domains;  /* look at block axes, not at accesses */
  Map seen;      /* Expr* looked at under these guards */
  const Stmt *at;
} Walk;

/* One question: does index stay in [0, extent)? */
typedef struct Question {
  const Expr *index, *extent;
  const char *what, *name; /* "read of buffer", "A" */
  int dim;                 /* -1: a block axis */
  const Expr *shown;       /* the index as written */
} Question;

static const Expr *inline_let(Rewriter *rw, const Expr *e)
{
  return e->kind == E_LET ? expr_substitute1(rw->m, e->arg[1], e->u.var, e->arg[0]) : e;
}

static const Expr *resolve(Walk *w, const Expr *e)
{
  if (expr_has_kind(e, E_LET)) {
    Rewriter rw = {.m = w->m, .fn = inline_let, .arena = w->arena};
    e = expr_rewrite(&rw, e);
  }
  return expr_substitute(w->m, e, &w->values);
}

/* Depends on loops and sizes alone. */
static bool is_plain(const Expr *e)
{
  if (expr_has_kind(e, E_LOAD) || expr_has_kind(e, E_REDUCE)) return false;
  if (e->kind == E_CALL && e->u.intrin != IN_LIKELY && e->u.intrin != IN_IF_THEN_ELSE) return false;
  if (!expr_has_kind(e, E_CALL)) return true;
  for (int i = 0; i < e->nargs; i++)
    if (!is_plain(e->arg[i])) return false;
  return true;
}

_Noreturn static void report(Walk *w, const Question *q, const char *reaches)
{
  Interval iv = q->index->dtype.lanes == 1 ? analyzer_bounds(w->an, q->index) : (Interval){INT64_MIN, INT64_MAX};
  const char *range = "";
  if (iv.min != INT64_MIN && iv.max != INT64_MAX)
    range = arena_printf(w->arena, ", which runs from %" PRId64 " to %" PRId64 ",", iv.min, iv.max);
  const char *extent = expr_str_of(w->arena, q->extent);
  const char *index = expr_str_of(w->arena, q->shown);
  if (q->dim < 0)
    raise(w->ctx, ERR_TYPE, w->at->loc,
          "function '%s', %s '%s': the binding %s%s reaches %s, outside of its domain of %s", w->f->name, q->what,
          q->name, index, range, reaches, extent);
  raise(w->ctx, ERR_BOUNDS, w->at->loc,
        "function '%s': %s '%s' is out of bounds: dimension %d has extent %s, index %s%s reaches %s", w->f->name,
        q->what, q->name, q->dim, extent, index, range, reaches);
}

/* ---- inside? ------------------------------------------------------------------------- */

/* Smallest and largest lane, when they are the first and last one. */
static bool lane_ends(Walk *w, const Expr *e, const Expr **lo, const Expr **hi)
{
  if (e->dtype.lanes == 1) {
    *lo = *hi = e;
    return true;
  }
  if (e->kind == E_BROADCAST) return lane_ends(w, e->arg[0], lo, hi);
  int64_t span;
  if (e->kind != E_RAMP || e->arg[1]->kind != E_INT || !int_mul(e->arg[1]->u.i, e->dtype.lanes - 1, &span))
    return false;
  const Expr *last = expr_add(w->m, e->arg[0], expr_int(w->m, e->arg[0]->dtype, span));
  *lo = span < 0 ? last : e->arg[0];
  *hi = span < 0 ? e->arg[0] : last;
  return true;
}

static bool is_inside(Walk *w, const Expr *lo, const Expr *hi, const Expr *extent)
{
  Interval a = analyzer_bounds(w->an, lo);
  Interval b = lo == hi ? a : analyzer_bounds(w->an, hi);
  bool low = a.min >= 0 || analyzer_prove(w->an, expr_binary(w->m, E_GE, lo, expr_int(w->m, lo->dtype, 0)));
  if (!low) return false;
  if (extent->kind == E_INT && b.max < extent->u.i) return true;
  return analyzer_prove(w->an, expr_lt(w->m, hi, extent));
}

/* ---- the ends of the loops --------------------------------------------------------------- */

static int used_loops(Walk *w, const Expr *e, Loop *out)
{
  int n = 0;
  for (int i = 0; i < w->loops.n; i++) {
    if (!expr_uses_var(e, w->loops.v[i].var)) continue;
    if (n == MAX_VARS) return -1;
    out[n++] = w->loops.v[i];
  }
  return n;
}

/* No loop around has a range that depends on one of these: all of them reach their
 * ends together. */
static bool rectangular(const Walk *w, const Loop *v, int n)
{
  for (int i = 0; i < w->loops.n; i++)
    for (int k = 0; k < n; k++)
      if (expr_uses_var(w->loops.v[i].min, v[k].var) || expr_uses_var(w->loops.v[i].extent, v[k].var)) return false;
  return true;
}

static const Expr *at_end(Walk *w, const Expr *e, const Loop *v, int n, const Expr *const *coeff, bool largest)
{
  Map ends = {0};
  for (int i = 0; i < n; i++) {
    const Expr *last = expr_sub(w->m, expr_add(w->m, v[i].min, v[i].extent), expr_int(w->m, v[i].var->dtype, 1));
    bool take_last = (coeff[i]->u.i > 0) == largest;
    map_put(w->arena, &ends, v[i].var, (void *)(uintptr_t)(take_last ? last : v[i].min));
  }
  return expr_simplify(w->an, expr_substitute(w->m, e, &ends));
}

static void try_ends(Walk *w, const Question *q, const Expr *lo, const Expr *hi)
{
  Loop v[MAX_VARS];
  const Var *vars[MAX_VARS];
  const Expr *coeff[MAX_VARS + 1];
  int n = used_loops(w, q->index, v);
  if (n < 0 || !rectangular(w, v, n)) return;
  for (int i = 0; i < n; i++) vars[i] = v[i].var;
  const Expr *some = expr_bool(w->m, true); /* no loop around is empty */
  for (int i = 0; i < w->loops.n; i++)
    some = expr_and(w->m, some,
                    expr_binary(w->m, E_GE, w->loops.v[i].extent, expr_int(w->m, w->loops.v[i].extent->dtype, 1)));
  for (int side = 0; side < 2; side++) {
    const Expr *e = side ? hi : lo;
    if (!expr_linear(w->an, e, n, vars, coeff)) continue;
    bool literal = true;
    for (int i = 0; i < n; i++) literal &= coeff[i]->kind == E_INT;
    if (!literal) continue;
    const Expr *end = at_end(w, e, v, n, coeff, side);
    int mark = analyzer_push(w->an, some);
    bool outside = side ? analyzer_prove(w->an, expr_binary(w->m, E_GE, end, q->extent))
                        : analyzer_prove(w->an, expr_lt(w->m, end, expr_int(w->m, end->dtype, 0)));
    analyzer_pop(w->an, mark);
    if (outside) report(w, q, expr_str_of(w->arena, end));
  }
}

/* ---- concrete iterations -------------------------------------------------------------------- */

typedef struct Search {
  Walk *w;
  const Question *q;
  EvalEnv env;
  Loop v[MAX_VARS];
  int n;
  bool full; /* few enough iterations to try all */
  int points;
} Search;

static void try_point(Search *s)
{
  Walk *w = s->w;
  s->points++;
  for (int i = 0; i < w->guards.n; i++)
    if (!expr_eval(&s->env, w->guards.v[i], 0).i) return;
  int lanes = s->q->index->dtype.lanes;
  int64_t extent = expr_eval(&s->env, s->q->extent, 0).i;
  for (int lane = 0; lane < lanes; lane += lane == 0 && lanes > 64 ? lanes - 1 : 1) {
    int64_t i = expr_eval(&s->env, s->q->index, lane).i;
    if (i < 0 || i >= extent) report(w, s->q, arena_printf(w->arena, "%" PRId64, i));
  }
}

static void try_points(Search *s, int k)
{
  if (s->points >= MAX_POINTS) return;
  if (k == s->n) {
    try_point(s);
    return;
  }
  int64_t min = expr_eval(&s->env, s->v[k].min, 0).i;
  int64_t extent = expr_eval(&s->env, s->v[k].extent, 0).i;
  for (int64_t i = 0; i < extent; i = s->full || i == extent - 1 ? i + 1 : extent - 1) {
    expr_eval_bind(&s->env, s->v[k].var, value_int(s->v[k].var->dtype, min + i));
    try_points(s, k + 1);
  }
}

/* All free variables must be loops of the search. */
static bool closed(Walk *w, const Search *s, const Expr *e)
{
  const Var **vars;
  int n = expr_free_vars(w->arena, e, &vars);
  for (int i = 0; i < n; i++) {
    int k = 0;
    while (k < s->n && s->v[k].var != vars[i]) k++;
    if (k == s->n) return false;
  }
  return true;
}

static bool gather(Walk *w, Search *s)
{
  int64_t space = 1;
  for (int i = 0; i < w->loops.n; i++) {
    const Loop *l = &w->loops.v[i];
    bool used = expr_uses_var(s->q->index, l->var) || expr_uses_var(s->q->extent, l->var);
    for (int g = 0; g < w->guards.n; g++) used |= expr_uses_var(w->guards.v[g], l->var);
    for (int k = i + 1; k < w->loops.n; k++)
      used |= expr_uses_var(w->loops.v[k].min, l->var) || expr_uses_var(w->loops.v[k].extent, l->var);
    /* a loop that nobody asks about must only be known to run */
    if (!used && l->extent->kind == E_INT && l->extent->u.i > 0) continue;
    if (s->n == MAX_VARS || !is_plain(l->min) || !is_plain(l->extent) || !closed(w, s, l->min) ||
        !closed(w, s, l->extent))
      return false;
    s->v[s->n++] = *l;
    Interval iv = analyzer_bounds(w->an, l->extent);
    if (iv.max < 0 || iv.max > MAX_POINTS || !int_mul(space, iv.max, &space)) space = INT64_MAX;
  }
  s->full = space <= MAX_POINTS;
  for (int g = 0; g < w->guards.n; g++)
    if (!closed(w, s, w->guards.v[g])) return false;
  return closed(w, s, s->q->index) && closed(w, s, s->q->extent);
}

static bool can_divide_by_zero(const Expr *e)
{
  if ((e->kind == E_DIV || e->kind == E_MOD || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD) &&
      (e->arg[1]->kind != E_INT || e->arg[1]->u.i == 0))
    return true;
  for (int i = 0; i < e->nargs; i++)
    if (can_divide_by_zero(e->arg[i])) return true;
  return false;
}

static void ask(Walk *w, const Question *q)
{
  const Expr *lo, *hi;
  if (!is_plain(q->index) || !is_plain(q->extent)) return;
  for (int i = 0; i < w->loops.n; i++)
    if (w->loops.v[i].extent->kind == E_INT && w->loops.v[i].extent->u.i <= 0) return; /* it never runs */
  bool ends = lane_ends(w, q->index, &lo, &hi);
  if (ends && is_inside(w, lo, hi, q->extent)) return;
  if (w->undecided) return;
  if (ends && !w->guards.n) try_ends(w, q, lo, hi);
  Search s = {.w = w, .q = q, .env = {.m = w->m, .arena = w->arena}};
  if (!gather(w, &s)) return;
  bool risky = can_divide_by_zero(q->index) || can_divide_by_zero(q->extent);
  for (int i = 0; i < w->guards.n; i++) risky |= can_divide_by_zero(w->guards.v[i]);
  for (int i = 0; i < s.n; i++) risky |= can_divide_by_zero(s.v[i].min) || can_divide_by_zero(s.v[i].extent);
  if (!risky) try_points(&s, 0);
}

/* ---- guards -------------------------------------------------------------------------------------- */

typedef struct Guard {
  int mark, nguards, undecided;
  Map seen;
} Guard;

static Guard guard_begin(Walk *w, const Expr *cond)
{
  Guard g = {-1, w->guards.n, w->undecided, w->seen};
  const Expr *e = resolve(w, cond);
  w->seen = (Map){0};
  if (!is_plain(e) || e->dtype.lanes != 1 || ++w->nguarded > MAX_GUARDS) {
    w->undecided++;
    return g;
  }
  g.mark = analyzer_push(w->an, e);
  vec_push(w->arena, &w->guards, e);
  return g;
}

static void guard_end(Walk *w, Guard g)
{
  if (g.mark >= 0) analyzer_pop(w->an, g.mark);
  w->guards.n = g.nguards;
  w->undecided = g.undecided;
  w->seen = g.seen;
}

/* ---- expressions ----------------------------------------------------------------------------------- */

static void ask_access(Walk *w, const Buffer *b, int n, const Expr *const *index, const char *what)
{
  for (int d = 0; d < n && !w->domains; d++) {
    Question q = {resolve(w, index[d]), resolve(w, b->shape[d]), what, b->name, d, index[d]};
    ask(w, &q);
  }
}

static void visit_expr(Walk *w, const Expr *e);

static void visit_guarded(Walk *w, const Expr *cond, const Expr *e)
{
  if (!expr_has_kind(e, E_LOAD)) return;
  Guard g = guard_begin(w, cond);
  visit_expr(w, e);
  guard_end(w, g);
}

static void visit_expr(Walk *w, const Expr *e)
{
  /* where it is not known what holds, ask() refuses nothing: shared values below nested choices would be seen over and
   * over */
  if (!e || w->undecided || !expr_has_kind(e, E_LOAD) || map_has(&w->seen, e)) return;
  map_put(w->arena, &w->seen, e, w);
  bool chooses = e->kind == E_SELECT || (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE);
  if (chooses) {
    visit_expr(w, e->arg[0]);
    visit_guarded(w, e->arg[0], e->arg[1]);
    visit_guarded(w, expr_not(w->m, e->arg[0]), e->arg[2]);
    return;
  }
  if (e->kind == E_AND || e->kind == E_OR) {
    visit_expr(w, e->arg[0]);
    visit_guarded(w, e->kind == E_AND ? e->arg[0] : expr_not(w->m, e->arg[0]), e->arg[1]);
    return;
  }
  if (e->kind == E_LET) {
    visit_expr(w, e->arg[0]);
    map_put(w->arena, &w->values, e->u.var, (void *)(uintptr_t)resolve(w, e->arg[0]));
    visit_expr(w, e->arg[1]);
    return;
  }
  /* the address past the end may be taken */
  if (e->kind == E_CALL && e->u.intrin == IN_ADDRESS_OF) return;
  for (int i = 0; i < e->nargs; i++) visit_expr(w, e->arg[i]);
  if (e->kind == E_LOAD) ask_access(w, e->u.buffer, e->nargs, e->arg, "read of buffer");
}

/* ---- statements ------------------------------------------------------------------------------------- */

static void visit_stmt(Walk *w, const Stmt *s);

static void visit_loop(Walk *w, const Stmt *s)
{
  visit_expr(w, s->u.loop.min);
  visit_expr(w, s->u.loop.extent);
  Loop l = {s->u.loop.var, resolve(w, s->u.loop.min), resolve(w, s->u.loop.extent)};
  if (l.extent->kind == E_INT && l.extent->u.i <= 0) return; /* never runs */
  bool plain = is_plain(l.min) && is_plain(l.extent);
  if (plain) analyzer_bind(w->an, l.var, l.min, l.extent);
  vec_push(w->arena, &w->loops, l);
  w->undecided += !plain;
  visit_stmt(w, s->u.loop.body);
  w->undecided -= !plain;
  w->loops.n--;
}

static void visit_block(Walk *w, const Stmt *s)
{
  const Block *b = s->u.block;
  const Expr **value = arena_array(w->arena, const Expr *, b->niter);
  for (int i = 0; i < b->niter; i++) value[i] = resolve(w, b->iter[i].value);
  for (int i = 0; i < b->niter; i++) map_put(w->arena, &w->values, b->iter[i].var, (void *)(uintptr_t)value[i]);
  Guard g = {0};
  if (b->predicate) {
    visit_expr(w, b->predicate);
    g = guard_begin(w, b->predicate);
  }
  for (int i = 0; w->domains && i < b->niter; i++) {
    const BlockIter *it = &b->iter[i];
    const Expr *min = resolve(w, it->min);
    const Expr *off = expr_is_int(min, 0) ? value[i] : expr_sub(w->m, value[i], min);
    w->at = s;
    ask(w, &(Question){off, resolve(w, it->extent), "axis", it->var->name, -1, it->value});
  }
  if (b->init) {
    w->undecided++; /* runs at the first reduction step only */
    visit_stmt(w, b->init);
    w->undecided--;
  }
  visit_stmt(w, b->body);
  if (b->predicate) guard_end(w, g);
}

static void visit_if(Walk *w, const Stmt *s)
{
  visit_expr(w, s->u.cond.cond);
  Guard g = guard_begin(w, s->u.cond.cond);
  visit_stmt(w, s->u.cond.then);
  guard_end(w, g);
  if (!s->u.cond.orelse) return;
  g = guard_begin(w, expr_not(w->m, s->u.cond.cond));
  visit_stmt(w, s->u.cond.orelse);
  guard_end(w, g);
}

static void visit_store(Walk *w, const Stmt *s)
{
  for (int i = 0; i < s->u.store.n; i++) visit_expr(w, s->u.store.index[i]);
  w->undecided += s->u.store.mask != NULL;
  visit_expr(w, s->u.store.value);
  ask_access(w, s->u.store.buffer, s->u.store.n, s->u.store.index, "write to buffer");
  w->undecided -= s->u.store.mask != NULL;
}

static void visit_stmt(Walk *w, const Stmt *s)
{
  w->at = s;
  w->seen = (Map){0};
  switch (s->kind) {
  case S_SEQ:
    for (int i = 0; i < s->u.seq.n; i++) visit_stmt(w, s->u.seq.v[i]);
    break;
  case S_FOR: visit_loop(w, s); break;
  case S_IF: visit_if(w, s); break;
  case S_WHILE:
    w->undecided++;
    visit_expr(w, s->u.loop_while.cond);
    visit_stmt(w, s->u.loop_while.body);
    w->undecided--;
    break;
  case S_LET:
    visit_expr(w, s->u.let.value);
    map_put(w->arena, &w->values, s->u.let.var, (void *)(uintptr_t)resolve(w, s->u.let.value));
    visit_stmt(w, s->u.let.body);
    break;
  case S_STORE: visit_store(w, s); break;
  case S_ALLOC: visit_stmt(w, s->u.alloc.body); break;
  case S_EVAL: visit_expr(w, s->u.eval.value); break;
  case S_ATTR: visit_stmt(w, s->u.attr.body); break;
  case S_BLOCK: visit_block(w, s); break;
  }
}

static void run(const PrimFunc *f, bool domains)
{
  Ctx *ctx = f->m->ctx;
  Scope scope = scope_begin(ctx);
  Walk w = {
    .f = f, .m = f->m, .ctx = ctx, .arena = scratch(ctx), .an = analyzer_new(f->m, scratch(ctx)), .domains = domains};
  visit_stmt(&w, f->body);
  scope_end(ctx, scope);
}

void func_check_bounds(const PrimFunc *f) { run(f, false); }
void func_check_domains(const PrimFunc *f) { run(f, true); }
