/* linear.c: canonical linear sums, and the linear form in chosen variables.
 *
 * In: index expressions.  Out: Sums (see analysis.h) and their expressions.
 *
 * Natural order of terms: products of variables first, then larger coefficients,
 * then the variable that was made first; what is subtracted comes last, the
 * constant after that.  So i*1024 + j, io*32 + ii, n - i, f//32*1024 + j.  The
 * order depends on the expression alone, never on what the analyzer knows: two
 * analyzers build the same pointer. */
#include "expr/analysis.h"

#include <stdlib.h>

/* Expressions are graphs: taken apart as trees they may be huge, so that past a
 * limit they count as atoms. */
enum { MAX_FACTORS = 16, MAX_EXPANDED = 64, MAX_NODES = 1024, MAX_SIZE = 256 };

Sum sum_zero(DType t) { return (Sum){.dtype = t}; }

void sum_add_const(Sum *s, int64_t v)
{
  if (!int_add(s->base, v, &s->base)) s->bad = true;
}

void sum_add_term(Analyzer *a, Sum *s, const Expr *atom, int64_t coeff)
{
  if (coeff == 0) return;
  a->terms += s->term.n;
  for (int i = 0; i < s->term.n; i++) {
    if (s->term.v[i].atom != atom) continue;
    if (!int_add(s->term.v[i].coeff, coeff, &s->term.v[i].coeff)) s->bad = true;
    if (s->term.v[i].coeff == 0) {
      memmove(&s->term.v[i], &s->term.v[i + 1], (size_t)(s->term.n - i - 1) * sizeof *s->term.v);
      s->term.n--;
    }
    return;
  }
  vec_push(scratch(a->ctx), &s->term, (Term){atom, coeff});
}

void sum_add_sum(Analyzer *a, Sum *s, const Sum *other, int64_t scale)
{
  int64_t v;
  for (int i = 0; i < other->term.n; i++) {
    if (!int_mul(other->term.v[i].coeff, scale, &v)) s->bad = true;
    else sum_add_term(a, s, other->term.v[i].atom, v);
  }
  if (!int_mul(other->base, scale, &v)) s->bad = true;
  else sum_add_const(s, v);
  s->bad |= other->bad;
}

void sum_scale(Sum *s, int64_t k)
{
  for (int i = 0; i < s->term.n; i++)
    if (!int_mul(s->term.v[i].coeff, k, &s->term.v[i].coeff)) s->bad = true;
  if (!int_mul(s->base, k, &s->base)) s->bad = true;
}

void sum_add_expr(Analyzer *a, Sum *s, const Expr *e, int64_t k)
{
  int64_t v;
  if (e->kind == E_INT) {
    if (!int_mul(e->u.i, k, &v)) s->bad = true;
    else sum_add_const(s, v);
  } else if (++s->nodes > MAX_NODES) {
    sum_add_term(a, s, e, k);
  } else if (e->kind == E_ADD || e->kind == E_SUB) {
    sum_add_expr(a, s, e->arg[0], k);
    if (e->kind == E_SUB && k == INT64_MIN) s->bad = true;
    else sum_add_expr(a, s, e->arg[1], e->kind == E_SUB ? -k : k);
  } else if (e->kind == E_MUL && (e->arg[1]->kind == E_INT || e->arg[0]->kind == E_INT)) {
    int c = e->arg[1]->kind == E_INT;
    if (!int_mul(e->arg[c]->u.i, k, &v)) s->bad = true;
    else if (v != 0) sum_add_expr(a, s, e->arg[1 - c], v);
  } else {
    sum_add_term(a, s, e, k);
  }
}

Sum sum_of(Analyzer *a, const Expr *e)
{
  Sum s = sum_zero(dtype_elem(e->dtype));
  sum_add_expr(a, &s, e, 1);
  return s;
}

int64_t sum_gcd(const Sum *s)
{
  int64_t g = 0;
  for (int i = 0; i < s->term.n; i++) g = int_gcd(g, s->term.v[i].coeff);
  return g;
}

uint64_t sum_uses(const Sum *s)
{
  uint64_t uses = 0;
  for (int i = 0; i < s->term.n; i++) uses |= s->term.v[i].atom->uses;
  return uses;
}

int64_t sum_coeff(const Sum *s, const Expr *atom)
{
  for (int i = 0; i < s->term.n; i++)
    if (s->term.v[i].atom == atom) return s->term.v[i].coeff;
  return 0;
}

bool sum_fits(const Sum *s)
{
  int64_t low = dtype_imin(s->dtype);
  if (s->bad || !dtype_holds(s->dtype, s->base) || s->base == low) return false;
  for (int i = 0; i < s->term.n; i++)
    if (!dtype_holds(s->dtype, s->term.v[i].coeff) || s->term.v[i].coeff == low) return false;
  return true;
}

int sum_size(Analyzer *a, const Sum *s)
{
  int size = s->base || !s->term.n ? 1 : 0;
  int parts = s->term.n + size;
  for (int i = 0; i < s->term.n; i++) {
    int64_t k = s->term.v[i].coeff;
    size += expr_size(a, s->term.v[i].atom) + (k == 1 || k == -1 ? 0 : 2);
  }
  return size + parts - 1;
}

/* ---- products ------------------------------------------------------------------- */

int expr_factors(Analyzer *a, const Expr *e, int max, const Expr **out)
{
  if (e->kind != E_MUL || max < 2) {
    out[0] = e;
    return 1;
  }
  int n = expr_factors(a, e->arg[0], max - 1, out);
  return n + expr_factors(a, e->arg[1], max - n, out + n);
}

static int degree(Analyzer *a, const Expr *e)
{
  const Expr *f[MAX_FACTORS];
  return e->kind == E_MUL ? expr_factors(a, e, MAX_FACTORS, f) : 1;
}

/* Loops before sizes, older before younger. */
static bool factor_before(Analyzer *a, const Expr *x, const Expr *y)
{
  uint32_t i = analyzer_shape(a, x)->first_var;
  uint32_t j = analyzer_shape(a, y)->first_var;
  return i != j ? i < j : x->id < y->id;
}

/* The product of atoms as one atom, factors in natural order. */
static const Expr *product_atom(Analyzer *a, const Expr *x, const Expr *y)
{
  const Expr *f[2 * MAX_FACTORS];
  int n = expr_factors(a, x, MAX_FACTORS, f);
  n += expr_factors(a, y, MAX_FACTORS, f + n);
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && factor_before(a, f[j], f[j - 1]); j--) {
      const Expr *swap = f[j];
      f[j] = f[j - 1];
      f[j - 1] = swap;
    }
  const Expr *p = f[0];
  for (int i = 1; i < n; i++) p = expr_mul(a->m, p, f[i]);
  return p;
}

Sum sum_product(Analyzer *a, const Sum *x, const Sum *y)
{
  Sum r = sum_zero(x->dtype.bits > y->dtype.bits ? x->dtype : y->dtype);
  bool scales = x->term.n == 0 || y->term.n == 0; /* by a constant: no longer than it was */
  r.bad = x->bad || y->bad || (!scales && (x->term.n + 1) * (y->term.n + 1) > MAX_EXPANDED);
  int64_t v;
  for (int i = 0; !r.bad && i < x->term.n; i++)
    for (int j = 0; j < y->term.n; j++) {
      if (!int_mul(x->term.v[i].coeff, y->term.v[j].coeff, &v)) r.bad = true;
      else sum_add_term(a, &r, product_atom(a, x->term.v[i].atom, y->term.v[j].atom), v);
    }
  if (r.bad) return r;
  sum_add_sum(a, &r, &(Sum){.dtype = x->dtype, .term = x->term, .base = 0}, y->base);
  sum_add_sum(a, &r, y, x->base);
  return r;
}

/* k*atom, when that is all the sum is. */
static bool is_single(const Sum *s) { return s->term.n == 1 && s->base == 0; }

void sum_add_product(Analyzer *a, Sum *s, const Expr *x, const Expr *y, int64_t k)
{
  Sum sx = sum_of(a, x);
  Sum sy = sum_of(a, y);
  int64_t v = k;
  if (sx.bad || sy.bad) {
    s->bad = true;
  } else if (sx.term.n == 0) {
    if (!int_mul(k, sx.base, &v)) s->bad = true;
    else sum_add_sum(a, s, &sy, v);
  } else if (sy.term.n == 0) {
    if (!int_mul(k, sy.base, &v)) s->bad = true;
    else sum_add_sum(a, s, &sx, v);
  } else {
    if (is_single(&sx)) x = sx.term.v[0].atom, s->bad |= !int_mul(v, sx.term.v[0].coeff, &v);
    if (is_single(&sy)) y = sy.term.v[0].atom, s->bad |= !int_mul(v, sy.term.v[0].coeff, &v);
    if (!s->bad) sum_add_term(a, s, product_atom(a, x, y), v);
  }
}

/* Adds k*e with products of sums multiplied out; through casts that widen when asked. */
static void add_expanded(Analyzer *a, Sum *s, const Expr *e, int64_t k, bool casts)
{
  if (casts && expr_is_widening(e)) {
    add_expanded(a, s, e->arg[0], k, casts);
    return;
  }
  bool is_sum = e->kind == E_ADD || e->kind == E_SUB;
  if ((!is_sum && e->kind != E_MUL) || expr_size(a, e) > MAX_SIZE) {
    sum_add_expr(a, s, e, k);
    return;
  }
  Sum x = sum_zero(s->dtype);
  Sum y = sum_zero(s->dtype);
  add_expanded(a, &x, e->arg[0], 1, casts);
  add_expanded(a, &y, e->arg[1], 1, casts);
  if (is_sum) {
    sum_add_sum(a, &x, &y, e->kind == E_ADD ? 1 : -1);
    sum_add_sum(a, s, &x, k);
  } else {
    Sum p = sum_product(a, &x, &y);
    sum_add_sum(a, s, &p, k);
  }
}

Sum sum_of_expanded(Analyzer *a, const Expr *e)
{
  Sum s = sum_zero(DT_I64);
  add_expanded(a, &s, e, 1, true);
  return s;
}

void sum_expand(Analyzer *a, Sum *s)
{
  Sum r = sum_zero(s->dtype);
  sum_add_const(&r, s->base);
  r.bad |= s->bad;
  for (int i = 0; i < s->term.n; i++) add_expanded(a, &r, s->term.v[i].atom, s->term.v[i].coeff, false);
  *s = r;
}

/* ---- order and building ------------------------------------------------------------- */

static bool term_before(Analyzer *a, Term x, Term y)
{
  int dx = degree(a, x.atom);
  int dy = degree(a, y.atom);
  if (dx != dy) return dx > dy;
  uint64_t cx = x.coeff < 0 ? 0 - (uint64_t)x.coeff : (uint64_t)x.coeff;
  uint64_t cy = y.coeff < 0 ? 0 - (uint64_t)y.coeff : (uint64_t)y.coeff;
  if (cx != cy) return cx > cy;
  return factor_before(a, x.atom, y.atom);
}

void sum_sort(Analyzer *a, Sum *s)
{
  for (int i = 1; i < s->term.n; i++)
    for (int j = i; j > 0 && term_before(a, s->term.v[j], s->term.v[j - 1]); j--) {
      Term swap = s->term.v[j];
      s->term.v[j] = s->term.v[j - 1];
      s->term.v[j - 1] = swap;
    }
}

static const Expr *scaled(Analyzer *a, DType t, const Expr *atom, int64_t k)
{
  atom = expr_cast(a->m, t, atom);
  return k == 1 ? atom : expr_mul(a->m, atom, expr_int(a->m, t, k));
}

const Expr *sum_build(Analyzer *a, Sum *s)
{
  Module *m = a->m;
  const Expr *e = NULL;
  int64_t base = s->base;
  bool negative = false;
  sum_sort(a, s);
  for (int i = 0; i < s->term.n; i++) {
    Term t = s->term.v[i];
    negative |= t.coeff < 0;
    if (t.coeff < 0) continue;
    const Expr *x = scaled(a, s->dtype, t.atom, t.coeff);
    e = e ? expr_add(m, e, x) : x;
  }
  if (!e && (base > 0 || !negative)) {
    e = expr_int(m, s->dtype, base);
    base = 0;
  }
  for (int i = 0; negative && i < s->term.n; i++) {
    Term t = s->term.v[i];
    if (t.coeff > 0) continue;
    e = e ? expr_sub(m, e, scaled(a, s->dtype, t.atom, -t.coeff)) : scaled(a, s->dtype, t.atom, t.coeff);
  }
  if (base > 0) e = expr_add(m, e, expr_int(m, s->dtype, base));
  if (base < 0) e = expr_sub(m, e, expr_int(m, s->dtype, -base));
  return e;
}

/* ---- joining what belongs together ------------------------------------------------------ */

/* Does another term use a variable of this one?  A cheap test that may say yes in vain. */
static bool is_related(const Sum *s, int term)
{
  for (int i = 0; i < s->term.n; i++)
    if (i != term && (s->term.v[i].atom->uses & s->term.v[term].atom->uses)) return true;
  return false;
}

/* Smaller, or as small with fewer terms. */
static bool take_if_smaller(Analyzer *a, Sum *s, const Sum *candidate)
{
  if (!sum_fits(candidate)) return false;
  int before = sum_size(a, s);
  int after = sum_size(a, candidate);
  if (after > before || (after == before && candidate->term.n >= s->term.n)) return false;
  *s = *candidate;
  return true;
}

/* x == c*(x//c) + x%c: replaces the quotient by x and the remainder, or the
 * remainder by x and the quotient, where that makes the sum smaller. */
static bool join_divmod(Analyzer *a, Sum *s, int term)
{
  Term t = s->term.v[term];
  bool div = t.atom->kind == E_FLOORDIV;
  if ((!div && t.atom->kind != E_FLOORMOD) || t.atom->arg[1]->kind != E_INT || !is_related(s, term)) return false;
  const Expr *x = t.atom->arg[0];
  const Expr *d = t.atom->arg[1];
  int64_t c = d->u.i;
  int64_t k = t.coeff;
  int64_t other;
  if (c <= 0 || (div && k % c)) return false;
  if (div) k /= c;
  if (!int_mul(k, div ? -1 : -c, &other)) return false;
  const Expr *partner = analyzer_simplify_divmod(a, div ? E_FLOORMOD : E_FLOORDIV, x, d);
  if (!partner) return false;
  Sum r = sum_zero(s->dtype);
  sum_add_sum(a, &r, s, 1);
  sum_add_term(a, &r, t.atom, -t.coeff);
  sum_add_expr(a, &r, x, k);
  sum_add_expr(a, &r, partner, other);
  return take_if_smaller(a, s, &r);
}

/* k * rest * (x % d) as k * rest * x - k * rest * (x // d) * d, where that makes the sum smaller.  rest NULL: one. */
static bool join_factor(Analyzer *a, Sum *s, Term t, const Expr *rest, const Expr *mod)
{
  const Expr *x = mod->arg[0];
  const Expr *d = mod->arg[1];
  const Expr *quotient = expr_floordiv(a->m, x, d);
  Sum r = sum_zero(s->dtype);
  sum_add_sum(a, &r, s, 1);
  sum_add_term(a, &r, t.atom, -t.coeff);
  if (rest) sum_add_product(a, &r, rest, x, t.coeff);
  else sum_add_expr(a, &r, x, t.coeff);
  sum_add_product(a, &r, rest ? expr_mul(a->m, rest, quotient) : quotient, d, -t.coeff);
  if (take_if_smaller(a, s, &r)) return true;
  sum_expand(a, &r);
  return take_if_smaller(a, s, &r);
}

/* The same for a divisor that is no constant: x%d + x//d*d is x, also where both are multiplied by more.  The product
 * may stand there multiplied out. */
static bool join_symbolic(Analyzer *a, Sum *s, int term)
{
  Term t = s->term.v[term];
  const Expr *f[MAX_FACTORS];
  if (!(t.atom->kinds >> E_FLOORMOD & 1) || !is_related(s, term) || t.coeff == INT64_MIN) return false;
  int n = expr_factors(a, t.atom, MAX_FACTORS, f);
  for (int i = 0; i < n; i++) {
    if (f[i]->kind != E_FLOORMOD || f[i]->arg[1]->kind == E_INT) continue;
    const Expr *rest = NULL;
    for (int k = 0; k < n; k++)
      if (k != i) rest = rest ? expr_mul(a->m, rest, f[k]) : f[k];
    if (join_factor(a, s, t, rest, f[i])) return true;
  }
  return false;
}

static bool has_product_of_sums(const Sum *s)
{
  for (int i = 0; i < s->term.n; i++) {
    const Expr *e = s->term.v[i].atom;
    if (e->kind == E_MUL && e->kinds & (1u << E_ADD | 1u << E_SUB) && is_related(s, i)) return true;
  }
  return false;
}

static bool cancel_products(Analyzer *a, Sum *s)
{
  if (!has_product_of_sums(s)) return false;
  Sum r = *s;
  sum_expand(a, &r);
  return take_if_smaller(a, s, &r);
}

void sum_join(Analyzer *a, Sum *s)
{
  for (bool again = s->term.n > 1; again;) {
    again = cancel_products(a, s);
    for (int i = 0; !again && i < s->term.n; i++) again = join_divmod(a, s, i) || join_symbolic(a, s, i);
  }
}

const Expr *sum_finish(Analyzer *a, Sum *s)
{
  sum_join(a, s);
  return sum_build(a, s);
}

/* ---- linear form in chosen variables ------------------------------------------------------ */

static bool uses_any(const Expr *e, int n, const Var *const *vars)
{
  for (int i = 0; i < n; i++)
    if (expr_uses_var(e, vars[i])) return true;
  return false;
}

/* coeff[] += scale * e */
static bool linear(Analyzer *a, const Expr *e, const Expr *scale, int n, const Var *const *vars, const Expr **coeff)
{
  Module *m = a->m;
  if (!uses_any(e, n, vars)) {
    coeff[n] = expr_add(m, coeff[n], expr_mul(m, scale, e));
    return true;
  }
  if (e->kind == E_VAR) {
    for (int i = 0; i < n; i++)
      if (vars[i] == e->u.var) coeff[i] = expr_add(m, coeff[i], scale);
    return true;
  }
  if (expr_is_widening(e)) return linear(a, e->arg[0], scale, n, vars, coeff);
  if (e->kind == E_ADD || e->kind == E_SUB) {
    const Expr *other = e->kind == E_ADD ? scale : expr_mul(m, scale, expr_int(m, scale->dtype, -1));
    return linear(a, e->arg[0], scale, n, vars, coeff) && linear(a, e->arg[1], other, n, vars, coeff);
  }
  if (e->kind != E_MUL) return false;
  for (int i = 0; i < 2; i++)
    if (!uses_any(e->arg[1 - i], n, vars))
      return linear(a, e->arg[i], expr_mul(m, scale, e->arg[1 - i]), n, vars, coeff);
  return false;
}

bool expr_linear(Analyzer *a, const Expr *e, int n, const Var *const *vars, const Expr **coeff)
{
  if (!expr_is_scalar_index(e)) return false;
  e = expr_simplify(a, e);
  for (int i = 0; i <= n; i++) coeff[i] = expr_int(a->m, e->dtype, 0);
  if (!linear(a, e, expr_int(a->m, e->dtype, 1), n, vars, coeff)) return false;
  for (int i = 0; i <= n; i++) coeff[i] = expr_simplify(a, coeff[i]);
  return true;
}
