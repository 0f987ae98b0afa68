/* compare.c: comparisons of index expressions, and conjunctions in context.
 *
 * A comparison becomes `L < 0` or `L == 0` for one linear sum L.  It is decided
 * by the bounds or residue of L or by proof, else reduced (common factors; terms
 * too small to matter) and written back with every number positive:
 *
 *   only positive terms   i*4 + j < 9       only negative ones   3 <= i
 *   both                  i + 1 < n         i <= n
 *
 * In a conjunction each part is simplified assuming the others, in a disjunction
 * assuming the others false; parts keep their order.  `and` stops early, and
 * what it guards must stay guarded: what comes after is assumed only of and by
 * parts that have a value always. */
#include "expr/analysis.h"

/* ---- one comparison --------------------------------------------------------------- */

typedef enum { DECIDED_NO, DECIDED_YES, UNDECIDED } Verdict;

static Sum negative_of(Analyzer *a, const Sum *s, int64_t offset)
{
  Sum r = sum_zero(s->dtype);
  sum_add_sum(a, &r, s, -1);
  sum_add_const(&r, offset);
  return r;
}

/* L < 0? */
static Verdict decide_less(Analyzer *a, const Sum *l)
{
  Interval b = bounds_of_sum(a, l);
  if (b.max < 0) return DECIDED_YES;
  if (b.min >= 0) return DECIDED_NO;
  Sum below = negative_of(a, l, -1);
  if (prove_nonneg(a, &below)) return DECIDED_YES;
  return prove_nonneg(a, l) ? DECIDED_NO : UNDECIDED;
}

/* L == 0? */
static Verdict decide_equal(Analyzer *a, const Sum *l)
{
  Interval b = bounds_of_sum(a, l);
  if (b.min == 0 && b.max == 0) return DECIDED_YES;
  if (b.min > 0 || b.max < 0) return DECIDED_NO;
  Modular m = modular_of_sum(a, l);
  if (m.coeff == 0 ? m.base != 0 : m.base % m.coeff != 0) return DECIDED_NO;
  Sum minus = negative_of(a, l, 0);
  Sum below = negative_of(a, l, -1);
  Sum above = negative_of(a, &minus, -1);
  bool up = prove_nonneg(a, l);
  bool down = prove_nonneg(a, &minus);
  if (up && down) return DECIDED_YES;
  if ((up && prove_nonneg(a, &above)) || (down && prove_nonneg(a, &below))) return DECIDED_NO;
  return UNDECIDED;
}

static void split_signs(Analyzer *a, const Sum *l, Sum *plus, Sum *minus)
{
  *plus = *minus = sum_zero(l->dtype);
  for (int i = 0; i < l->term.n; i++) {
    Term t = l->term.v[i];
    if (t.coeff > 0) sum_add_term(a, plus, t.atom, t.coeff);
    else sum_add_term(a, minus, t.atom, -t.coeff);
  }
}

static const Expr *binary_of(Analyzer *a, ExprKind kind, Sum *x, Sum *y)
{
  if (!sum_fits(x) || !sum_fits(y)) return NULL;
  return expr_binary(a->m, kind, sum_build(a, x), sum_build(a, y));
}

/* L < 0 as text wants it; L has terms. */
static const Expr *build_less(Analyzer *a, const Sum *l)
{
  Sum plus, minus;
  split_signs(a, l, &plus, &minus);
  if (plus.term.n && minus.term.n) {
    if (l->base == -1) return binary_of(a, E_LE, &plus, &minus);
    sum_add_const(l->base > 0 ? &plus : &minus, l->base > 0 ? l->base : -l->base);
    return binary_of(a, E_LT, &plus, &minus);
  }
  if (plus.term.n) {
    sum_add_const(&minus, -l->base);
    return binary_of(a, E_LT, &plus, &minus);
  }
  sum_add_const(&plus, l->base);
  sum_add_const(&plus, 1);
  return binary_of(a, E_LE, &plus, &minus);
}

static const Expr *build_equal(Analyzer *a, ExprKind kind, Sum *l)
{
  Sum plus, minus;
  sum_sort(a, l);
  if (l->term.v[0].coeff < 0) sum_scale(l, -1);
  split_signs(a, l, &plus, &minus);
  if (minus.term.n && l->base > 0) sum_add_const(&plus, l->base);
  else sum_add_const(&minus, -l->base);
  return binary_of(a, kind, &plus, &minus);
}

/* Divides by the common factor of the coefficients.  False: L == 0 is impossible. */
static bool divide_common(Sum *l, bool equal)
{
  int64_t g = sum_gcd(l);
  if (g <= 1) return true;
  if (equal && l->base % g) return false;
  for (int i = 0; i < l->term.n; i++) l->term.v[i].coeff /= g;
  l->base = int_floordiv(l->base, g);
  return true;
}

static const Expr *compare_sums(Analyzer *a, ExprKind kind, Sum *l)
{
  bool equal = kind == E_EQ || kind == E_NE;
  Sum high, low;
  int64_t step;
  sum_join(a, l);
  Verdict v = equal ? decide_equal(a, l) : decide_less(a, l);
  if (v == UNDECIDED && !divide_common(l, equal)) v = DECIDED_NO;
  if (v != UNDECIDED) return expr_bool(a->m, (v == DECIDED_YES) != (kind == E_NE));
  if (equal) return build_equal(a, kind, l);
  while (sum_split_low(a, l, 0, &high, &low, &step)) *l = high; /* L < 0 exactly when L // step < 0 */
  return l->term.n ? build_less(a, l) : expr_bool(a->m, l->base < 0);
}

/* Comparisons of two widened values are comparisons of the values. */
static bool both_widened(const Expr *x, const Expr *y)
{
  return x->kind == E_CAST && y->kind == E_CAST && dtype_eq(x->arg[0]->dtype, y->arg[0]->dtype) &&
         expr_is_index(x->arg[0]) && x->dtype.bits >= x->arg[0]->dtype.bits;
}

const Expr *analyzer_simplify_compare(Analyzer *a, const Expr *e)
{
  const Expr *x = e->arg[0];
  const Expr *y = e->arg[1];
  if (both_widened(x, y)) x = x->arg[0], y = y->arg[0];
  bool swap = e->kind == E_GT || e->kind == E_GE;
  Scope scope = scope_begin(a->ctx);
  Sum l = sum_of(a, swap ? y : x);
  sum_add_expr(a, &l, swap ? x : y, -1);
  if (e->kind == E_LE || e->kind == E_GE) sum_add_const(&l, -1);
  ExprKind kind = e->kind == E_EQ || e->kind == E_NE ? (ExprKind)e->kind : E_LT;
  const Expr *r = sum_fits(&l) ? compare_sums(a, kind, &l) : NULL;
  scope_end(a->ctx, scope);
  bool value;
  if (r && analyzer_known(a, r, &value)) return expr_bool(a->m, value);
  return r ? r : e;
}

/* ---- conjunctions and disjunctions ----------------------------------------------------- */

enum { MAX_PARTS = 16 };

static int flatten(const Expr *e, ExprKind kind, int n, const Expr **out)
{
  if (e->kind != kind) {
    if (n < MAX_PARTS) out[n] = e;
    return n + 1;
  }
  return flatten(e->arg[1], kind, flatten(e->arg[0], kind, n, out), out);
}

/* parts[i] simplified under what the other parts imply about it. */
static const Expr *in_context(Analyzer *a, ExprKind kind, int n, const Expr **part, int i)
{
  int mark = analyzer_trial_begin(a);
  bool total = analyzer_shape(a, part[i])->total;
  for (int j = 0; j < n; j++) {
    if (j == i || expr_is_const(part[j]) || (j > i && !(total && analyzer_shape(a, part[j])->total))) continue;
    if (!(part[j]->uses & part[i]->uses) || !analyzer_assumption_helps(a, part[j])) continue;
    analyzer_push(a, kind == E_AND ? part[j] : expr_not(a->m, part[j]));
  }
  const Expr *r = a->levels.n > mark ? expr_simplify(a, part[i]) : part[i];
  analyzer_trial_end(a, mark);
  return r;
}

static bool simplify_parts(Analyzer *a, ExprKind kind, int n, const Expr **part)
{
  bool changed = false;
  for (int i = 0; i < n; i++) {
    if (expr_is_const(part[i])) continue;
    const Expr *r = in_context(a, kind, n, part, i);
    changed |= r != part[i];
    part[i] = r;
  }
  return changed;
}

const Expr *analyzer_simplify_logic(Analyzer *a, const Expr *e)
{
  ExprKind kind = (ExprKind)e->kind;
  const Expr *part[MAX_PARTS];
  int n = flatten(e, kind, 0, part);
  if (n > MAX_PARTS || e->dtype.lanes != 1) return e;
  for (int round = 0; round < n && simplify_parts(a, kind, n, part); round++) continue;
  const Expr *r = NULL;
  bool stop = kind == E_OR; /* the value that decides the whole */
  for (int i = 0; i < n; i++) {
    if (expr_is_int(part[i], stop)) return expr_bool(a->m, stop);
    if (expr_is_int(part[i], !stop)) continue;
    r = r ? expr_binary(a->m, kind, r, part[i]) : part[i];
  }
  return r ? r : expr_bool(a->m, !stop);
}
