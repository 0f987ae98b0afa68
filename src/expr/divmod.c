/* divmod.c: floor division and remainder of linear sums.
 *
 * In: simplified operands, the dividend as a Sum S.  Out: the simplified
 * quotient or remainder.  For a constant c > 0, in this order:
 *
 *   S = c*Q + R                S // c = Q + R // c          S % c = R % c
 *   R stays in [t*c, t*c+c)    R // c = t                   R % c = R - t*c
 *   k*(y % d) in R, c | k*d    -                            k*y in its place
 *   R = s*H + L, 0 <= L < s    R // c = H // (c/s)          R % c = s*(H % (c/s)) + L
 *   (y // d + b) // c  =  (y + b*d) // (c*d)          (y // d) % c  =  (y % (c*d)) // d
 *
 * Each step leaves a smaller dividend or a smaller divisor, except the last one
 * on the right, which orders: no step turns `% //` back into `// %`.
 * For a symbolic divisor d, terms with the factor d leave the dividend, and the
 * rest goes when it is proved to lie in [0, d). */
#include "expr/analysis.h"

static const Expr *div_const(Analyzer *, Sum *, int64_t c);
static const Expr *mod_const(Analyzer *, Sum *, int64_t c);

/* All values of the interval share one quotient by c. */
static bool one_block(Interval b, int64_t c, int64_t *block)
{
  if (b.min == NEG_INF || b.max == POS_INF) return false;
  *block = int_floordiv(b.min, c);
  return *block == int_floordiv(b.max, c);
}

static bool try_step(Analyzer *a, const Sum *s, int64_t step, Sum *high, Sum *low)
{
  *high = sum_zero(s->dtype);
  *low = sum_zero(s->dtype);
  for (int i = 0; i < s->term.n; i++) {
    Term t = s->term.v[i];
    if (t.coeff % step == 0) sum_add_term(a, high, t.atom, t.coeff / step);
    else sum_add_term(a, low, t.atom, t.coeff);
  }
  sum_add_const(low, s->base);
  int64_t block;
  if (low->bad || !one_block(bounds_of_sum(a, low), step, &block)) return false;
  sum_add_const(high, block);
  sum_add_const(low, -block * step);
  return !high->bad && !low->bad;
}

bool sum_split_low(Analyzer *a, const Sum *s, int64_t c, Sum *high, Sum *low, int64_t *step)
{
  for (int64_t below = INT64_MAX; below > 2;) {
    int64_t best = 1;
    for (int i = 0; i < s->term.n; i++) {
      if (s->term.v[i].coeff == INT64_MIN) return false;
      int64_t g = int_gcd(s->term.v[i].coeff, c);
      if (g < below && g > best) best = g;
    }
    if (best == 1) return false;
    if (try_step(a, s, best, high, low)) return *step = best, true;
    below = best;
  }
  return false;
}

/* Terms known to be multiples of c by congruence alone. */
static bool split_congruent(Analyzer *a, const Sum *s, int64_t c, Sum *multiple, Sum *rest)
{
  *multiple = sum_zero(s->dtype);
  *rest = sum_zero(s->dtype);
  for (int i = 0; i < s->term.n; i++) {
    Sum one = sum_zero(s->dtype);
    sum_add_term(a, &one, s->term.v[i].atom, s->term.v[i].coeff);
    Modular m = modular_of_sum(a, &one);
    bool yes = m.coeff % c == 0 && m.base % c == 0;
    sum_add_term(a, yes ? multiple : rest, s->term.v[i].atom, s->term.v[i].coeff);
  }
  sum_add_const(rest, s->base);
  return multiple->term.n > 0;
}

/* S = c*quotient + rest, term by term. */
static void split_divisible(Analyzer *a, const Sum *s, int64_t c, Sum *quotient, Sum *rest)
{
  *quotient = sum_zero(s->dtype);
  *rest = sum_zero(s->dtype);
  for (int i = 0; i < s->term.n; i++) {
    Term t = s->term.v[i];
    if (t.coeff % c == 0) sum_add_term(a, quotient, t.atom, t.coeff / c);
    else sum_add_term(a, rest, t.atom, t.coeff);
  }
  sum_add_const(quotient, int_floordiv(s->base, c));
  sum_add_const(rest, int_floormod(s->base, c));
}

static const Expr *plus(Analyzer *a, Sum *s, const Expr *e, int64_t scale)
{
  sum_add_expr(a, s, e, scale);
  return sum_fits(s) ? sum_finish(a, s) : NULL;
}

/* The quotient of what no term-wise step reduces. */
static const Expr *div_rest(Analyzer *a, Sum *r, int64_t c)
{
  Sum high, low;
  int64_t step, block, product;
  if (sum_split_low(a, r, c, &high, &low, &step) && sum_fits(&high)) return div_const(a, &high, c / step);
  if (split_congruent(a, r, c, &high, &low) && one_block(bounds_of_sum(a, &low), c, &block) &&
      (low.term.n || low.base)) {
    Sum q = sum_zero(r->dtype);
    sum_add_const(&q, block);
    const Expr *e = div_const(a, &high, c);
    return e ? plus(a, &q, e, 1) : NULL;
  }
  const Expr *y = r->term.n == 1 && r->term.v[0].coeff == 1 ? r->term.v[0].atom : NULL;
  if (y && y->kind == E_FLOORDIV && y->arg[1]->kind == E_INT && y->arg[1]->u.i > 0 &&
      int_mul(c, y->arg[1]->u.i, &product) && dtype_holds(r->dtype, product)) {
    Sum inner = sum_of(a, y->arg[0]);
    int64_t shift;
    if (int_mul(r->base, y->arg[1]->u.i, &shift)) {
      sum_add_const(&inner, shift);
      if (sum_fits(&inner)) return div_const(a, &inner, product);
    }
  }
  return expr_floordiv(a->m, sum_finish(a, r), expr_int(a->m, r->dtype, c));
}

static const Expr *div_const(Analyzer *a, Sum *s, int64_t c)
{
  Sum q, r;
  int64_t block;
  split_divisible(a, s, c, &q, &r);
  if (one_block(bounds_of_sum(a, &r), c, &block)) {
    sum_add_const(&q, block);
    return sum_fits(&q) ? sum_finish(a, &q) : NULL;
  }
  if (!sum_fits(&r)) return NULL;
  const Expr *e = div_rest(a, &r, c);
  return e ? plus(a, &q, e, 1) : NULL;
}

/* Replaces k*(y % d) by k*y where c divides k*d. */
static bool unwrap_mods(Analyzer *a, Sum *s, int64_t c)
{
  for (int i = 0; i < s->term.n; i++) {
    Term t = s->term.v[i];
    int64_t kd;
    if (t.atom->kind != E_FLOORMOD || t.atom->arg[1]->kind != E_INT) continue;
    if (!int_mul(t.coeff, t.atom->arg[1]->u.i, &kd) || kd % c) continue;
    sum_add_term(a, s, t.atom, -t.coeff);
    sum_add_expr(a, s, t.atom->arg[0], t.coeff);
    return true;
  }
  return false;
}

static const Expr *mod_rest(Analyzer *a, Sum *r, int64_t c)
{
  Sum high, low;
  int64_t step, product;
  if (sum_split_low(a, r, c, &high, &low, &step) && sum_fits(&high)) {
    const Expr *e = mod_const(a, &high, c / step);
    return e ? plus(a, &low, e, step) : NULL;
  }
  if (split_congruent(a, r, c, &high, &low)) return mod_const(a, &low, c);
  const Expr *y = r->term.n == 1 && r->term.v[0].coeff == 1 && r->base == 0 ? r->term.v[0].atom : NULL;
  if (y && y->kind == E_FLOORDIV && y->arg[1]->kind == E_INT && y->arg[1]->u.i > 0 &&
      int_mul(c, y->arg[1]->u.i, &product) && dtype_holds(r->dtype, product)) {
    Sum inner = sum_of(a, y->arg[0]);
    const Expr *e = mod_const(a, &inner, product);
    if (!e) return NULL;
    Sum outer = sum_of(a, e);
    return div_const(a, &outer, y->arg[1]->u.i);
  }
  return expr_floormod(a->m, sum_finish(a, r), expr_int(a->m, r->dtype, c));
}

static const Expr *mod_const(Analyzer *a, Sum *s, int64_t c)
{
  Sum q, r;
  int64_t block, back;
  do split_divisible(a, s, c, &q, &r);
  while (unwrap_mods(a, &r, c) && (*s = r, true));
  if (one_block(bounds_of_sum(a, &r), c, &block)) {
    if (!int_mul(block, -c, &back)) return NULL;
    sum_add_const(&r, back);
    return sum_fits(&r) ? sum_finish(a, &r) : NULL;
  }
  Modular m = modular_of_sum(a, &r);
  if (m.coeff % c == 0) return expr_int(a->m, r.dtype, int_floormod(m.base, c));
  return sum_fits(&r) ? mod_rest(a, &r, c) : NULL;
}

/* ---- symbolic divisors ---------------------------------------------------------------- */

enum { MAX_FACTORS = 16 };

/* atom / d, when d is one of its factors; the product of the others. */
static const Expr *without_factor(Analyzer *a, const Expr *atom, const Expr *d)
{
  const Expr *f[MAX_FACTORS];
  const Expr *p = NULL;
  if (atom == d) return expr_int(a->m, d->dtype, 1);
  int n = expr_factors(a, atom, MAX_FACTORS, f);
  int at = -1;
  for (int i = 0; i < n; i++)
    if (f[i] == d) at = i;
  if (at < 0) return NULL;
  for (int i = 0; i < n; i++)
    if (i != at) p = p ? expr_mul(a->m, p, f[i]) : f[i];
  return p;
}

/* atom / (product of d's factors). */
static const Expr *divide_atom(Analyzer *a, const Expr *atom, const Expr *d)
{
  const Expr *f[MAX_FACTORS];
  int n = expr_factors(a, d, MAX_FACTORS, f);
  for (int i = 0; atom && i < n; i++) atom = without_factor(a, atom, f[i]);
  return atom;
}

static bool within(Analyzer *a, const Sum *r, const Sum *d)
{
  Sum below = *d;
  below.term.v = arena_copy(scratch(a->ctx), d->term.v, (size_t)d->term.n * sizeof *d->term.v);
  below.term.cap = d->term.n;
  sum_add_sum(a, &below, r, -1);
  sum_add_const(&below, -1);
  return prove_nonneg(a, r) && prove_nonneg(a, &below);
}

/* (f*x) // (f*d) = x // d and (f*x) % (f*d) = f * (x % d): one common factor goes. */
static const Expr *cancel_factor(Analyzer *a, ExprKind kind, const Sum *r, const Expr *atom, int64_t k)
{
  const Expr *f[MAX_FACTORS];
  int n = expr_factors(a, atom, MAX_FACTORS, f);
  for (int i = 0; r->base == 0 && r->term.n && i < n; i++) {
    Sum x = sum_zero(r->dtype);
    Sum product = x;
    const Expr *left = r->term.v[0].atom;
    for (int j = 0; left && j < r->term.n; j++) {
      left = without_factor(a, r->term.v[j].atom, f[i]);
      if (left) sum_add_expr(a, &x, left, r->term.v[j].coeff);
    }
    if (!left || !sum_fits(&x)) continue;
    const Expr *d = expr_mul(a->m, without_factor(a, atom, f[i]), expr_int(a->m, r->dtype, k));
    const Expr *e = expr_simplify(a, expr_binary(a->m, kind, sum_build(a, &x), d));
    if (kind == E_FLOORDIV) return e;
    sum_add_product(a, &product, e, f[i], 1);
    return sum_fits(&product) ? sum_finish(a, &product) : NULL;
  }
  return NULL;
}

static const Expr *divmod_symbolic(Analyzer *a, ExprKind kind, const Expr *x, const Expr *d)
{
  Sum sd = sum_of(a, d);
  Sum sx = sum_of(a, x);
  Sum q = sum_zero(x->dtype);
  Sum r = q;
  bool single = sd.term.n == 1 && sd.base == 0;
  const Expr *atom = single ? sd.term.v[0].atom : d;
  int64_t k = single ? sd.term.v[0].coeff : 1;
  if (sd.bad || sx.bad) return NULL;
  for (int i = 0; i < sx.term.n; i++) {
    Term t = sx.term.v[i];
    const Expr *left = t.coeff % k == 0 ? divide_atom(a, t.atom, atom) : NULL;
    if (left) sum_add_expr(a, &q, left, t.coeff / k);
    else sum_add_term(a, &r, t.atom, t.coeff);
  }
  sum_add_const(&r, sx.base);
  if (x == d && !single) {
    q = r = sum_zero(x->dtype);
    sum_add_const(&q, 1);
  }
  if (!sum_fits(&q) || !sum_fits(&r)) return NULL;
  const Expr *e = cancel_factor(a, kind, &r, atom, k);
  if (e) return kind == E_FLOORMOD ? e : plus(a, &q, e, 1);
  bool none = (r.term.n == 0 && r.base == 0) || within(a, &r, &sd);
  if (kind == E_FLOORMOD) {
    if (none) return sum_finish(a, &r);
    return expr_floormod(a->m, sum_finish(a, &r), d);
  }
  if (none) return sum_finish(a, &q);
  return plus(a, &q, expr_floordiv(a->m, sum_finish(a, &r), d), 1);
}

static const Expr *divmod_negative(Analyzer *a, ExprKind kind, const Expr *x, int64_t c)
{
  Sum minus = sum_zero(x->dtype);
  sum_add_expr(a, &minus, x, -1);
  if (!sum_fits(&minus)) return NULL;
  const Expr *e = kind == E_FLOORDIV ? div_const(a, &minus, -c) : mod_const(a, &minus, -c);
  if (!e || kind == E_FLOORDIV) return e;
  Sum r = sum_zero(x->dtype);
  return plus(a, &r, e, -1);
}

const Expr *analyzer_simplify_divmod(Analyzer *a, ExprKind kind, const Expr *x, const Expr *d)
{
  Scope scope = scope_begin(a->ctx);
  const Expr *r = NULL;
  if (d->kind != E_INT) {
    r = divmod_symbolic(a, kind, x, d);
  } else if (d->u.i != 0 && d->u.i != dtype_imin(d->dtype)) {
    Sum s = sum_of(a, x);
    if (!s.bad && d->u.i < 0) r = divmod_negative(a, kind, x, d->u.i);
    else if (!s.bad) r = kind == E_FLOORDIV ? div_const(a, &s, d->u.i) : mod_const(a, &s, d->u.i);
  }
  scope_end(a->ctx, scope);
  return r;
}
