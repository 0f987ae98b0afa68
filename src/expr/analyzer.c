/* analyzer.c: what is known about variables, and the memory of what follows.
 *
 * Bindings (ranges, values) hold for the rest of the analyzer's life unless bound
 * again; assumptions are pushed and popped.  Results are remembered per level of
 * assumptions: a pop brings the older, weaker results back.  Binding a variable
 * anew forgets everything when some result may depend on it. */
#include "expr/analysis.h"

static void free_arena(void *arena) { arena_free(arena); }

Analyzer *analyzer_new(Module *m, Arena *arena)
{
  /* Scratch memory proper would vanish under an analyzer that is used inside an
   * inner scope, so it gets an arena that ends with the present scope. */
  if (!arena || arena == scratch(m->ctx)) {
    arena = arena_new(m->ctx);
    defer(m->ctx, free_arena, arena);
  }
  Analyzer *a = arena_new_of(arena, Analyzer);
  *a = (Analyzer){.m = m, .ctx = m->ctx, .arena = arena};
  vec_push(arena, &a->levels, (Level){0});
  rules_index(a);
  return a;
}

Module *analyzer_module(const Analyzer *a) { return a->m; }

/* ---- variables --------------------------------------------------------------- */

static void forget(Analyzer *a)
{
  for (int i = 0; i < a->levels.n; i++) a->levels.v[i].info = (Map){0};
  a->seen = (Map){0};
}

static VarInfo *var_slot(Analyzer *a, const Var *var)
{
  if (map_has(&a->seen, var)) forget(a);
  VarInfo *info = map_get(&a->vars, var);
  if (!info) {
    info = arena_new_of(a->arena, VarInfo);
    map_put(a->arena, &a->vars, var, info);
  }
  *info = (VarInfo){.order = ++a->nbound};
  return info;
}

static bool is_int_const(const Expr *e) { return e->kind == E_INT; }

/* min + extent - 1, folded when it is constant. */
static const Expr *last_of(Analyzer *a, const Expr *min, const Expr *extent)
{
  int64_t last;
  if (is_int_const(min) && is_int_const(extent) && int_add(min->u.i, extent->u.i, &last) && int_sub(last, 1, &last))
    return expr_int(a->m, extent->dtype.bits > min->dtype.bits ? extent->dtype : min->dtype, last);
  const Expr *end = expr_is_int(min, 0) ? extent : expr_add(a->m, min, extent);
  return expr_sub(a->m, end, expr_int(a->m, end->dtype, 1));
}

void analyzer_bind(Analyzer *a, const Var *var, const Expr *min, const Expr *extent)
{
  const Expr *last = last_of(a, min, extent);
  const VarInfo *old = map_get(&a->vars, var);
  if (old && old->min == min && old->last == last && !old->value) return;
  if (expr_uses_var(min, var) || expr_uses_var(last, var))
    raise(a->ctx, ERR_ARGUMENT, NOWHERE, "range of '%s' depends on itself", var->name);
  VarInfo *info = var_slot(a, var);
  info->min = min;
  info->last = last;
  if (is_int_const(min) && min == last) info->value = expr_int(a->m, var->dtype, min->u.i);
}

void analyzer_bind_value(Analyzer *a, const Var *var, const Expr *value)
{
  if (expr_uses_var(value, var)) raise(a->ctx, ERR_ARGUMENT, NOWHERE, "value of '%s' depends on itself", var->name);
  const VarInfo *old = map_get(&a->vars, var);
  if (old && old->value == value) return;
  var_slot(a, var)->value = expr_cast(a->m, var->dtype, value);
}

void analyzer_let(Analyzer *a, const Var *var, const Expr *value)
{
  const VarInfo *old = map_get(&a->vars, var);
  if (old && old->let == value) return;
  var_slot(a, var)->let = value;
}

void analyzer_restore(Analyzer *a, const Var *var, const VarInfo *info) { *var_slot(a, var) = *info; }

const VarInfo *analyzer_var(Analyzer *a, const Var *var)
{
  if (!map_has(&a->seen, var)) map_put(a->arena, &a->seen, var, a);
  return map_get(&a->vars, var);
}

/* ---- memory -------------------------------------------------------------------- */

Info *analyzer_info(Analyzer *a, const Expr *e)
{
  Map *map = &a->levels.v[a->levels.n - 1].info;
  Info *info = map_get(map, e);
  if (info) return info;
  info = arena_new_of(a->arena, Info);
  map_put(a->arena, map, e, info);
  return info;
}

enum { SIZE_CAP = 1 << 20 };

static bool may_fail(const Expr *e)
{
  bool divides = e->kind == E_DIV || e->kind == E_MOD || e->kind == E_FLOORDIV || e->kind == E_FLOORMOD;
  if (divides && dtype_is_int(e->dtype)) return e->arg[1]->kind != E_INT || e->arg[1]->u.i == 0;
  return e->kind == E_LOAD || e->kind == E_CALL || e->kind == E_REDUCE;
}

const Shape *analyzer_shape(Analyzer *a, const Expr *e)
{
  Shape *shape = map_get(&a->shapes, e);
  if (shape) return shape;
  Shape s = {.first_var = UINT32_MAX, .size = 1, .total = !may_fail(e)};
  if (e->kind == E_VAR) s.first_var = e->u.var->id | (e->u.var->kind == VAR_SIZE ? 1u << 31 : 0);
  for (int i = 0; i < e->nargs; i++) {
    const Shape *arg = analyzer_shape(a, e->arg[i]);
    s.size = s.size + arg->size > SIZE_CAP ? SIZE_CAP : s.size + arg->size;
    if (arg->first_var < s.first_var) s.first_var = arg->first_var;
    s.total &= arg->total;
  }
  shape = arena_copy(a->arena, &s, sizeof s);
  map_put(a->arena, &a->shapes, e, shape);
  return shape;
}

/* ---- assumptions ------------------------------------------------------------------ */

static void copy_sum(Analyzer *a, Sum *to, const Sum *from)
{
  *to = *from;
  to->term.v = arena_copy(a->arena, from->term.v, (size_t)from->term.n * sizeof *from->term.v);
  to->term.cap = from->term.n;
}

static void add_fact(Analyzer *a, const Sum *sum, Interval range, Modular mod)
{
  if (sum->term.n == 0 || (range.min == NEG_INF && range.max == POS_INF && mod.coeff == 1)) return;
  Fact f = {.range = range, .mod = mod};
  copy_sum(a, &f.sum, sum);
  f.sum.base = 0;
  f.uses = sum_uses(sum);
  vec_push(a->arena, &a->facts, f);
}

/* From lo <= sum k*x <= hi follows a range of each x alone; of a long sum little follows, and dearly. */
static void add_atom_facts(Analyzer *a, const Sum *sum, Interval range)
{
  enum { MOST = 12 };
  if (sum->term.n < 2 || sum->term.n > MOST) return;
  for (int i = 0; i < sum->term.n; i++) {
    Sum others = sum_zero(sum->dtype);
    for (int j = 0; j < sum->term.n; j++)
      if (j != i) sum_add_term(a, &others, sum->term.v[j].atom, sum->term.v[j].coeff);
    if (others.bad) continue;
    Interval o = bounds_of_sum(a, &others);
    Interval x = everything;
    int64_t k = sum->term.v[i].coeff;
    int64_t lo = range.min == NEG_INF || o.max == POS_INF ? NEG_INF : interval_sat_add(range.min, -o.max);
    int64_t hi = range.max == POS_INF || o.min == NEG_INF ? POS_INF : interval_sat_add(range.max, -o.min);
    if (k == NEG_INF) continue;
    if (lo != NEG_INF) *(k > 0 ? &x.min : &x.max) = k > 0 ? -int_floordiv(-lo, k) : int_floordiv(lo, k);
    if (hi != POS_INF) *(k > 0 ? &x.max : &x.min) = k > 0 ? int_floordiv(hi, k) : -int_floordiv(-hi, k);
    Sum one = sum_zero(sum->dtype);
    sum_add_term(a, &one, sum->term.v[i].atom, 1);
    add_fact(a, &one, x, (Modular){1, 0});
  }
}

/* l - r lies in range. */
static void assume_range(Analyzer *a, const Expr *l, const Expr *r, Interval range)
{
  Sum s = sum_of(a, l);
  sum_add_expr(a, &s, r, -1);
  if (s.bad || s.base == NEG_INF) return;
  if (range.min != NEG_INF) range.min = interval_sat_add(range.min, -s.base);
  if (range.max != POS_INF) range.max = interval_sat_add(range.max, -s.base);
  s.base = 0;
  int64_t g = sum_gcd(&s);
  if (g > 1) {
    for (int i = 0; i < s.term.n; i++) s.term.v[i].coeff /= g;
    if (range.min != NEG_INF) range.min = -int_floordiv(-range.min, g);
    if (range.max != POS_INF) range.max = int_floordiv(range.max, g);
  }
  add_fact(a, &s, range, (Modular){1, 0});
  add_atom_facts(a, &s, range);
}

/* x % c == r */
static void assume_congruent(Analyzer *a, const Expr *x, int64_t c, int64_t r)
{
  Sum s = sum_of(a, x);
  if (s.bad || c <= 0 || r < 0 || r >= c) return;
  add_fact(a, &s, everything, (Modular){c, int_floormod(r - int_floormod(s.base, c), c)});
}

static void assume_compare(Analyzer *a, ExprKind kind, const Expr *l, const Expr *r)
{
  if (!expr_is_scalar_index(l) || !expr_is_scalar_index(r)) return;
  Scope scope = scope_begin(a->ctx);
  Interval b;
  if (kind == E_LT) assume_range(a, l, r, (Interval){NEG_INF, -1});
  if (kind == E_LE) assume_range(a, l, r, (Interval){NEG_INF, 0});
  if (kind == E_GT) assume_range(a, l, r, (Interval){1, POS_INF});
  if (kind == E_GE) assume_range(a, l, r, (Interval){0, POS_INF});
  if (kind == E_EQ) {
    assume_range(a, l, r, (Interval){0, 0});
    if (l->kind == E_FLOORMOD && l->arg[1]->kind == E_INT && r->kind == E_INT)
      assume_congruent(a, l->arg[0], l->arg[1]->u.i, r->u.i);
    if (l->kind == E_MOD && l->arg[1]->kind == E_INT && l->arg[1]->u.i > 0 && r->kind == E_INT)
      assume_congruent(a, l->arg[0], l->arg[1]->u.i, int_floormod(r->u.i, l->arg[1]->u.i));
  }
  if (kind == E_NE && r->kind == E_INT) {
    b = bounds_of(a, l);
    if (b.min == r->u.i && b.min != NEG_INF) assume_range(a, l, r, (Interval){1, POS_INF});
    if (b.max == r->u.i && b.max != POS_INF) assume_range(a, l, r, (Interval){NEG_INF, -1});
  }
  scope_end(a->ctx, scope);
}

static ExprKind negated(ExprKind k)
{
  return k == E_EQ ? E_NE : k == E_NE ? E_EQ : k == E_LT ? E_GE : k == E_LE ? E_GT : k == E_GT ? E_LE : E_LT;
}

/* Facts are looked at in expressions made since, so the memory starts afresh. */
static void assume(Analyzer *a, const Expr *cond, bool value)
{
  if (cond->kind == E_CALL && cond->u.intrin == IN_LIKELY) {
    assume(a, cond->arg[0], value);
    return;
  }
  if (cond->kind == E_NOT) {
    assume(a, cond->arg[0], !value);
    return;
  }
  if (cond->kind == (value ? E_AND : E_OR)) {
    assume(a, cond->arg[0], value);
    assume(a, cond->arg[1], value);
    return;
  }
  if (cond->kind == E_INT || cond->kinds >> E_LOAD & 1) return; /* memory may change while this is assumed */
  vec_push(a->arena, &a->truths, (Truth){cond, value});
  if (cond->kind >= E_EQ && cond->kind <= E_GE)
    assume_compare(a, value ? (ExprKind)cond->kind : negated((ExprKind)cond->kind), cond->arg[0], cond->arg[1]);
}

#define MAX_ASSUMED 6

static bool bounds_integers(const Expr *cond)
{
  if (cond->kind == E_NOT) return bounds_integers(cond->arg[0]);
  if (cond->kind == E_AND || cond->kind == E_OR) return bounds_integers(cond->arg[0]) || bounds_integers(cond->arg[1]);
  return cond->nargs == 0 || dtype_is_int(cond->arg[0]->dtype);
}

enum { TRIAL_WORK = 500 };

bool analyzer_assumption_helps(const Analyzer *a, const Expr *cond)
{
  return a->levels.n < MAX_ASSUMED && (a->trials == 0 || a->trial_work < TRIAL_WORK) && bounds_integers(cond);
}

int analyzer_trial_begin(Analyzer *a)
{
  if (a->trials++ == 0) a->trial_work = 0;
  return a->levels.n;
}

void analyzer_trial_end(Analyzer *a, int mark)
{
  analyzer_pop(a, mark);
  a->trials--;
}

int analyzer_push(Analyzer *a, const Expr *cond)
{
  int mark = a->levels.n;
  const Expr *simple = cond->dtype.lanes == 1 ? expr_simplify(a, cond) : cond;
  vec_push(a->arena, &a->levels, (Level){.nfacts = a->facts.n, .ntruths = a->truths.n});
  if (cond->dtype.lanes == 1 && cond->pure) {
    assume(a, simple, true);
    if (simple != cond) assume(a, cond, true);
    a->levels.v[a->levels.n - 1].info = (Map){0}; /* what was asked for while assuming knew too little */
  }
  return mark;
}

void analyzer_pop(Analyzer *a, int mark)
{
  while (a->levels.n > mark) {
    Level *top = &a->levels.v[--a->levels.n];
    a->facts.n = top->nfacts;
    a->truths.n = top->ntruths;
  }
}

bool analyzer_known(Analyzer *a, const Expr *cond, bool *value)
{
  for (int i = a->truths.n - 1; i >= 0; i--)
    if (a->truths.v[i].cond == cond) return *value = a->truths.v[i].value, true;
  return false;
}

/* ---- public questions --------------------------------------------------------------- */

bool analyzer_prove(Analyzer *a, const Expr *cond) { return expr_is_int(expr_simplify(a, cond), 1); }

bool analyzer_prove_equal(Analyzer *a, const Expr *x, const Expr *y)
{
  if (x == y) return true;
  if (!dtype_is_int(x->dtype) || !dtype_is_int(y->dtype)) return expr_simplify(a, x) == expr_simplify(a, y);
  const Expr *equal = expr_simplify(a, expr_binary(a->m, E_EQ, x, y));
  if (equal->kind == E_BROADCAST) equal = equal->arg[0];
  return expr_is_int(equal, 1);
}

Interval analyzer_bounds(Analyzer *a, const Expr *e) { return bounds_of(a, expr_simplify(a, e)); }
Modular analyzer_modular(Analyzer *a, const Expr *e) { return modular_of(a, expr_simplify(a, e)); }
