/* relax.c: symbolic bounds of an expression while some variables run.
 *
 * In: an index expression, the variables to get rid of, their ranges known to the
 * analyzer.  Out: expressions free of those variables, never above the smallest
 * (below the largest) value.  Linear occurrences are replaced by an end of their
 * range, youngest variable first, so that a range may speak of older ones; other
 * atoms are relaxed by their monotonicity.  A variable that occurs in several
 * atoms is relaxed in each by itself: the result is safe, not always tight. */
#include "expr/analysis.h"

typedef struct Relax {
  Analyzer *a;
  int n;
  const Var *const *vars;
} Relax;

static const Expr *relax(Relax *, const Expr *, bool up);

static bool is_free(const Relax *r, const Expr *e)
{
  for (int i = 0; i < r->n; i++)
    if (expr_uses_var(e, r->vars[i])) return false;
  return true;
}

static bool is_relaxed_var(const Relax *r, const Expr *e)
{
  for (int i = 0; e->kind == E_VAR && i < r->n; i++)
    if (e->u.var == r->vars[i]) return true;
  return false;
}

static const Expr *constant_end(Relax *r, const Expr *e, bool up)
{
  Interval b = bounds_of(r->a, e);
  int64_t end = up ? b.max : b.min;
  if (end == NEG_INF || end == POS_INF || !dtype_holds(e->dtype, end)) return NULL;
  return expr_int(r->a->m, e->dtype, end);
}

/* ---- atoms ---------------------------------------------------------------------------- */

static const Expr *both(Relax *r, ExprKind kind, const Expr *x, const Expr *y, bool up)
{
  x = relax(r, x, up);
  y = x ? relax(r, y, up) : NULL;
  return y ? expr_binary(r->a->m, kind, x, y) : NULL;
}

/* x // d is monotone in x while d > 0. */
static const Expr *relax_quotient(Relax *r, const Expr *e, bool up)
{
  const Expr *d = e->arg[1];
  if (!is_free(r, d) || bounds_of(r->a, d).min < 1) return NULL;
  const Expr *x = relax(r, e->arg[0], up);
  return x ? expr_binary(r->a->m, (ExprKind)e->kind, x, d) : NULL;
}

/* x % d: the ends of x if both have one quotient, else all of [0, d). */
static const Expr *relax_remainder(Relax *r, const Expr *e, bool up)
{
  Module *m = r->a->m;
  const Expr *d = e->arg[1];
  if (!is_free(r, d) || bounds_of(r->a, d).min < 1) return NULL;
  const Expr *low = relax(r, e->arg[0], false);
  const Expr *high = relax(r, e->arg[0], true);
  if (low && high && analyzer_prove_equal(r->a, expr_floordiv(m, low, d), expr_floordiv(m, high, d)))
    return expr_floormod(m, up ? high : low, d);
  return up ? expr_sub(m, d, expr_int(m, d->dtype, 1)) : expr_int(m, d->dtype, 0);
}

/* x * y with y free of the variables and of known sign. */
static const Expr *relax_product(Relax *r, const Expr *e, bool up)
{
  for (int i = 0; i < 2; i++) {
    const Expr *x = e->arg[i];
    const Expr *y = e->arg[1 - i];
    if (!is_free(r, y)) continue;
    Interval sign = bounds_of(r->a, y);
    if (sign.min < 0 && sign.max > 0) return NULL;
    x = relax(r, x, sign.min >= 0 ? up : !up);
    return x ? expr_mul(r->a->m, x, y) : NULL;
  }
  const Expr *x = relax(r, e->arg[0], up);
  const Expr *y = relax(r, e->arg[1], up);
  if (!x || !y || bounds_of(r->a, e->arg[0]).min < 0 || bounds_of(r->a, e->arg[1]).min < 0) return NULL;
  return expr_mul(r->a->m, x, y);
}

static const Expr *relax_var(Relax *r, const Expr *e, bool up)
{
  const VarInfo *info = analyzer_var(r->a, e->u.var);
  if (!info || !info->min) return NULL;
  return expr_cast(r->a->m, e->dtype, up ? info->last : info->min);
}

static const Expr *relax_atom(Relax *r, const Expr *e, bool up)
{
  const Expr *x = NULL;
  if (is_free(r, e)) return e;
  if (e->kind == E_VAR) {
    x = relax_var(r, e, up);
    return x ? relax(r, x, up) : NULL;
  }
  if (e->kind == E_FLOORDIV || e->kind == E_DIV) x = relax_quotient(r, e, up);
  else if (e->kind == E_FLOORMOD) x = relax_remainder(r, e, up);
  else if (e->kind == E_MUL) x = relax_product(r, e, up);
  else if (e->kind == E_MIN || e->kind == E_MAX) x = both(r, (ExprKind)e->kind, e->arg[0], e->arg[1], up);
  else if (e->kind == E_SELECT || (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE))
    x = both(r, up ? E_MAX : E_MIN, e->arg[1], e->arg[2], up);
  else if (expr_is_widening(e)) {
    x = relax(r, e->arg[0], up);
    if (x) x = expr_cast(r->a->m, e->dtype, x);
  }
  return x ? x : constant_end(r, e, up);
}

/* ---- sums ------------------------------------------------------------------------------- */

/* Index of the youngest variable among the terms that is to go; -1: none is left. */
static int youngest(Relax *r, const Sum *s)
{
  int best = -1;
  int order = -1;
  for (int i = 0; i < s->term.n; i++) {
    const Expr *e = s->term.v[i].atom;
    if (!is_relaxed_var(r, e)) continue;
    const VarInfo *info = analyzer_var(r->a, e->u.var);
    if (info && info->order > order) best = i, order = info->order;
    else if (!info && best < 0) best = i;
  }
  return best;
}

/* Puts the end of its range in the place of term i. */
static bool eliminate(Relax *r, Sum *s, int i, bool up)
{
  Term t = s->term.v[i];
  const Expr *end = relax_var(r, t.atom, (t.coeff > 0) == up);
  if (!end) return false;
  sum_add_term(r->a, s, t.atom, -t.coeff);
  sum_add_expr(r->a, s, expr_simplify(r->a, end), t.coeff);
  return !s->bad;
}

static const Expr *relax_sum(Relax *r, const Expr *e, bool up)
{
  Sum s = sum_of(r->a, e);
  Sum out = sum_zero(e->dtype);
  for (int i = youngest(r, &s); i >= 0; i = youngest(r, &s))
    if (!eliminate(r, &s, i, up)) return NULL;
  sum_add_const(&out, s.base);
  for (int i = 0; i < s.term.n; i++) {
    Term t = s.term.v[i];
    const Expr *x = relax_atom(r, t.atom, (t.coeff > 0) == up);
    if (!x) return NULL;
    sum_add_expr(r->a, &out, x, t.coeff);
  }
  return sum_fits(&out) && !s.bad ? expr_simplify(r->a, sum_build(r->a, &out)) : NULL;
}

static const Expr *relax(Relax *r, const Expr *e, bool up)
{
  if (is_free(r, e)) return e;
  Scope scope = scope_begin(r->a->ctx);
  const Expr *x = relax_sum(r, expr_simplify(r->a, e), up);
  scope_end(r->a->ctx, scope);
  return x;
}

bool analyzer_relax(Analyzer *a, const Expr *e, int n, const Var *const *vars, const Expr **min, const Expr **max)
{
  if (!expr_is_scalar_index(e)) return false;
  Relax r = {a, n, vars};
  e = expr_simplify(a, e);
  *min = relax(&r, e, false);
  *max = *min ? relax(&r, e, true) : NULL;
  return *min && *max;
}
