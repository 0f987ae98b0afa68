/* prove.c: is this sum never negative?
 *
 * In: a linear sum over index atoms.  Out: true only if it is >= 0 for all values
 * the variables may take under the bindings and assumptions.  The search works
 * backwards: constant bounds first; then replace part of the sum by something
 * smaller or equal, and prove that.  Replacements are
 *
 *   an assumption G >= 0            L  to  m*L - r*G + (m-1)
 *   a variable by an end of its range, the one its coefficient's sign picks
 *   c*(x//c) by x or x - (c-1);  x % d by 0 or d - 1
 *   k*(x//d), d a size              L  to  d*L + (d-1), where d*(x//d) goes as above
 *   min, max, select                by one of their values, or by each
 *
 * (L >= 0 follows from m*L + (m-1) >= 0, because L is a whole number.)  A divisor
 * that is never negative counts as positive: by 0 there is no value to be wrong about.
 * Each step spends fuel, and a proof looks at so many terms of its sums in all, so that a question
 * that leads nowhere costs little, however long the sums are. */
#include "expr/analysis.h"

enum { FUEL = 64, TERMS = 1 << 14, DEPTH = 16, LONG = 16, MAX_FACTORS = 16, MAX_RATIOS = 16 };

/* Has the proof under way used up what it may? */
static bool is_spent(const Analyzer *a) { return a->fuel <= 0 || a->terms > a->terms_end; }

static bool nonneg(Analyzer *, Sum *, int depth, uint64_t used);

static Sum copy_of(Analyzer *a, const Sum *s)
{
  Sum r = sum_zero(s->dtype);
  sum_add_sum(a, &r, s, 1);
  return r;
}

static bool try_sum(Analyzer *a, Sum *s, int depth, uint64_t used)
{
  if (s->bad) return false;
  sum_expand(a, s);
  sum_join(a, s);
  return nonneg(a, s, depth - 1, used);
}

/* ---- assumptions ---------------------------------------------------------------------- */

/* L times `times` less the assumption times `take` cancels some atom. */
typedef struct Ratio {
  int64_t times, take;
} Ratio;

/* The ratios at which an atom of sign*fact goes from L, each once: most atoms ask for the same.  At
 * most `max`. */
static int cancelling(Analyzer *a, const Sum *s, const Sum *fact, int64_t sign, int max, Ratio *out)
{
  int n = 0;
  for (int t = 0; t < fact->term.n && n < max; t++) {
    int64_t g = fact->term.v[t].coeff * sign;
    int64_t k = sum_coeff(s, fact->term.v[t].atom);
    a->terms += s->term.n;
    if (k == 0 || (k > 0) != (g > 0) || k == INT64_MIN) continue;
    int64_t d = int_gcd(g, k);
    Ratio r = {(g < 0 ? -g : g) / d, (k < 0 ? -k : k) / d};
    bool known = false;
    for (int i = 0; i < n && !known; i++) known = out[i].times == r.times && out[i].take == r.take;
    if (!known) out[n++] = r;
  }
  return n;
}

/* sign*fact + offset >= 0 is assumed: takes it from L. */
static bool use_assumption(Analyzer *a, const Sum *s, const Sum *fact, int64_t sign, int64_t offset, Ratio r, int depth,
                           uint64_t used)
{
  Sum l = sum_zero(s->dtype);
  int64_t take, back;
  if (!int_mul(sign, -r.take, &take) || !int_mul(offset, -r.take, &back)) return false;
  sum_add_sum(a, &l, s, r.times);
  sum_add_sum(a, &l, fact, take);
  sum_add_const(&l, back);
  sum_add_const(&l, r.times - 1);
  if (l.term.n > s->term.n + 1) return false;
  return try_sum(a, &l, depth, used);
}

static bool by_assumptions(Analyzer *a, const Sum *s, int depth, uint64_t used)
{
  for (int f = 0; f < a->facts.n && f < 64; f++) {
    const Fact *fact = &a->facts.v[f];
    if (used >> f & 1 || fact->sum.term.n < 2) continue;
    for (int side = 0; side < 2; side++) {
      int64_t sign = side ? -1 : 1;
      int64_t end = side ? fact->range.max : fact->range.min;
      if (end == (side ? POS_INF : NEG_INF)) continue;
      Ratio ratio[MAX_RATIOS];
      int n = cancelling(a, s, &fact->sum, sign, MAX_RATIOS, ratio);
      for (int i = 0; i < n && !is_spent(a); i++)
        if (use_assumption(a, s, &fact->sum, sign, -sign * end, ratio[i], depth, used | 1ull << f)) return true;
    }
  }
  return false;
}

/* ---- variables --------------------------------------------------------------------------- */

/* s = cofactor*v + rest, when v occurs in no other way. */
static bool split_var(Analyzer *a, const Sum *s, const Var *v, Sum *cofactor, Sum *rest)
{
  *cofactor = sum_zero(s->dtype);
  *rest = sum_zero(s->dtype);
  for (int i = 0; i < s->term.n; i++) {
    Term t = s->term.v[i];
    const Expr *f[MAX_FACTORS];
    const Expr *others = NULL;
    if (!expr_uses_var(t.atom, v)) {
      sum_add_term(a, rest, t.atom, t.coeff);
      continue;
    }
    int n = expr_factors(a, t.atom, MAX_FACTORS, f);
    int found = 0;
    for (int j = 0; j < n; j++) {
      if (f[j] == v->expr) found++;
      else if (expr_uses_var(f[j], v)) return false;
      else others = others ? expr_mul(a->m, others, f[j]) : f[j];
    }
    if (found != 1) return false;
    if (others) sum_add_term(a, cofactor, others, t.coeff);
    else sum_add_const(cofactor, t.coeff);
  }
  sum_add_const(rest, s->base);
  return !cofactor->bad && !rest->bad;
}

/* The variable with a range that was bound last, below `limit`. */
static const Var *youngest(Analyzer *a, const Sum *s, int limit, int *order)
{
  const Var *best = NULL;
  *order = -1;
  for (int i = 0; i < s->term.n; i++) {
    const Expr *f[MAX_FACTORS];
    int n = expr_factors(a, s->term.v[i].atom, MAX_FACTORS, f);
    for (int j = 0; j < n; j++) {
      const VarInfo *info = f[j]->kind == E_VAR ? analyzer_var(a, f[j]->u.var) : NULL;
      if (!info || !info->min || info->order >= limit || info->order <= *order) continue;
      best = f[j]->u.var;
      *order = info->order;
    }
  }
  return best;
}

static bool by_variables(Analyzer *a, const Sum *s, int depth, uint64_t used)
{
  int order;
  for (const Var *v = youngest(a, s, INT32_MAX, &order); v; v = youngest(a, s, order, &order)) {
    Sum cofactor, rest;
    if (!split_var(a, s, v, &cofactor, &rest)) continue;
    Interval sign = bounds_of_sum(a, &cofactor);
    if (sign.min < 0 && sign.max > 0) continue;
    const VarInfo *info = analyzer_var(a, v);
    Sum end = sum_of_expanded(a, sign.min >= 0 ? info->min : info->last);
    Sum product = sum_product(a, &cofactor, &end);
    sum_add_sum(a, &rest, &product, 1);
    return try_sum(a, &rest, depth, used);
  }
  return false;
}

/* ---- other atoms ------------------------------------------------------------------------------ */

static Sum with_atom(Analyzer *a, const Sum *s, Term t, const Expr *value)
{
  Sum r = copy_of(a, s);
  Sum v = sum_of_expanded(a, value);
  sum_add_term(a, &r, t.atom, -t.coeff);
  sum_add_sum(a, &r, &v, t.coeff);
  return r;
}

static bool by_choice(Analyzer *a, const Sum *s, Term t, int depth, uint64_t used)
{
  const Expr *e = t.atom;
  int first = e->kind == E_SELECT || e->kind == E_CALL ? 1 : 0;
  bool any = (e->kind == E_MAX && t.coeff > 0) || (e->kind == E_MIN && t.coeff < 0);
  Sum x = with_atom(a, s, t, e->arg[first]);
  Sum y = with_atom(a, s, t, e->arg[first + 1]);
  if (any) return try_sum(a, &x, depth, used) || try_sum(a, &y, depth, used);
  return try_sum(a, &x, depth, used) && try_sum(a, &y, depth, used);
}

/* k*(x // c): c*(x//c) lies in [x-c+1, x]. */
static bool by_quotient(Analyzer *a, const Sum *s, Term t, int depth, uint64_t used)
{
  int64_t c = t.atom->arg[1]->u.i;
  int64_t k = t.coeff;
  int64_t scale = k % c == 0 ? 1 : c / int_gcd(k, c);
  Sum l = sum_zero(s->dtype);
  Sum x = sum_of_expanded(a, t.atom->arg[0]);
  sum_add_sum(a, &l, s, scale);
  sum_add_const(&l, scale - 1);
  if (l.bad || !int_mul(k, scale, &k)) return false;
  sum_add_term(a, &l, t.atom, -k);
  if (k > 0) sum_add_const(&x, 1 - c);
  sum_add_sum(a, &l, &x, k / c);
  return try_sum(a, &l, depth, used);
}

/* k*(x % d), d > 0: lies in [0, d-1]. */
static bool by_remainder(Analyzer *a, const Sum *s, Term t, int depth, uint64_t used)
{
  const Expr *d = t.atom->arg[1];
  if (bounds_of(a, d).min < 0) return false;
  Sum l = with_atom(a, s, t, t.coeff > 0 ? expr_int(a->m, d->dtype, 0) : d);
  if (t.coeff < 0) sum_add_const(&l, -t.coeff);
  return try_sum(a, &l, depth, used);
}

/* k*((x // d) * d), d > 0 symbolic: lies in [x-d+1, x]. */
static bool by_symbolic_quotient(Analyzer *a, const Sum *s, Term t, int depth, uint64_t used)
{
  for (int i = 0; i < 2; i++) {
    const Expr *q = t.atom->arg[i];
    const Expr *d = t.atom->arg[1 - i];
    if (q->kind != E_FLOORDIV || q->arg[1] != d || bounds_of(a, d).min < 0) continue;
    Sum l = with_atom(a, s, t, q->arg[0]);
    Sum sd = sum_of_expanded(a, d);
    sum_add_const(&sd, -1);
    if (t.coeff > 0) sum_add_sum(a, &l, &sd, -t.coeff);
    return try_sum(a, &l, depth, used);
  }
  return false;
}

/* k*(x // d), d > 0 symbolic: the whole sum times d. */
static bool by_symbolic_divisor(Analyzer *a, const Sum *s, Term t, int depth, uint64_t used)
{
  const Expr *d = t.atom->arg[1];
  if (bounds_of(a, d).min < 0) return false;
  Sum rest = copy_of(a, s);
  Sum sd = sum_of_expanded(a, d);
  Sum x = sum_of_expanded(a, t.atom->arg[0]);
  sum_add_term(a, &rest, t.atom, -t.coeff);
  Sum l = sum_product(a, &rest, &sd);
  sum_add_const(&sd, -1);
  sum_add_sum(a, &l, &sd, 1);
  if (t.coeff > 0) sum_add_sum(a, &x, &sd, -1);
  sum_add_sum(a, &l, &x, t.coeff);
  return try_sum(a, &l, depth, used);
}

static bool by_atom(Analyzer *a, const Sum *s, Term t, int depth, uint64_t used)
{
  const Expr *e = t.atom;
  bool chooses = e->kind == E_MIN || e->kind == E_MAX || e->kind == E_SELECT ||
                 (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE);
  if (t.coeff == INT64_MIN) return false;
  if (chooses) return by_choice(a, s, t, depth, used);
  if (e->kind == E_FLOORDIV && e->arg[1]->kind == E_INT && e->arg[1]->u.i > 0) return by_quotient(a, s, t, depth, used);
  if (e->kind == E_FLOORDIV && e->arg[1]->kind != E_INT) return by_symbolic_divisor(a, s, t, depth, used);
  if (e->kind == E_FLOORMOD) return by_remainder(a, s, t, depth, used);
  if (e->kind == E_MUL) return by_symbolic_quotient(a, s, t, depth, used);
  return false;
}

static bool nonneg(Analyzer *a, Sum *s, int depth, uint64_t used)
{
  if (s->bad || is_spent(a)) return false;
  a->fuel--;
  if (bounds_of_sum(a, s).min >= 0) return true;
  if (s->term.n == 0 || depth == 0) return false;
  /* assumptions may be many; in a long sum they come after what is one step */
  bool is_long = s->term.n > LONG;
  if (is_long && by_variables(a, s, depth, used)) return true;
  if (by_assumptions(a, s, depth, used)) return true;
  if (!is_long && by_variables(a, s, depth, used)) return true;
  for (int i = 0; i < s->term.n; i++)
    if (by_atom(a, s, s->term.v[i], depth, used)) return true;
  return false;
}

/* Worth a search only where something is known that constant bounds do not use. */
static bool is_symbolic(Analyzer *a, const Sum *s)
{
  for (int f = 0; f < a->facts.n; f++)
    if (a->facts.v[f].sum.term.n > 1) return s->term.n > 0;
  for (int i = 0; i < s->term.n; i++) {
    const Expr *e = s->term.v[i].atom;
    if (e->kind != E_VAR) return true;
    const VarInfo *info = analyzer_var(a, e->u.var);
    if (info && info->min && (info->min->kind != E_INT || info->last->kind != E_INT)) return true;
  }
  return false;
}

bool prove_nonneg(Analyzer *a, const Sum *given)
{
  if (given->bad) return false;
  if (bounds_of_sum(a, given).min >= 0) return true;
  if (given->term.n == 0 || !is_symbolic(a, given)) return false;
  Scope scope = scope_begin(a->ctx);
  Sum s = sum_zero(DT_I64);
  for (int i = 0; i < given->term.n; i++) {
    Sum atom = sum_of_expanded(a, given->term.v[i].atom);
    sum_add_sum(a, &s, &atom, given->term.v[i].coeff);
  }
  sum_add_const(&s, given->base);
  int fuel = a->fuel;
  int64_t terms_end = a->terms_end;
  a->fuel = FUEL;
  a->terms_end = a->terms + TERMS;
  bool yes = nonneg(a, &s, DEPTH, 0);
  a->fuel = fuel;
  a->terms_end = terms_end;
  scope_end(a->ctx, scope);
  return yes;
}

/* ---- comparisons ---------------------------------------------------------------------------- */

/* y - x + offset >= 0 */
static bool at_least(Analyzer *a, const Expr *x, const Expr *y, int64_t offset, bool deep)
{
  Sum s = sum_of(a, y);
  sum_add_expr(a, &s, x, -1);
  sum_add_const(&s, offset);
  if (s.bad) return false;
  return deep ? prove_nonneg(a, &s) : bounds_of_sum(a, &s).min >= 0;
}

bool prove_compare(Analyzer *a, ExprKind kind, const Expr *x, const Expr *y, bool deep)
{
  Scope scope = scope_begin(a->ctx);
  bool yes = false;
  if (kind == E_LT) yes = at_least(a, x, y, -1, deep);
  if (kind == E_LE) yes = at_least(a, x, y, 0, deep);
  if (kind == E_GT) yes = at_least(a, y, x, -1, deep);
  if (kind == E_GE) yes = at_least(a, y, x, 0, deep);
  if (kind == E_EQ) yes = at_least(a, x, y, 0, deep) && at_least(a, y, x, 0, deep);
  if (kind == E_NE) yes = at_least(a, x, y, -1, deep) || at_least(a, y, x, -1, deep);
  scope_end(a->ctx, scope);
  return yes;
}
