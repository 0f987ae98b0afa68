/* modular.c: the residue class an integer expression stays in.
 *
 * A Modular {coeff, base} is the set of all coeff*n + base: coeff 0 is the one
 * number base, coeff 1 is everything; base lies in [0, coeff) when coeff > 0.
 * In: an integer expression, simplified or not.  Out: a class that contains
 * every value it can take.  Only index arithmetic is followed; what may wrap is
 * known no further than "everything". */
#include "expr/analysis.h"

static const Modular anything = {1, 0};

static Modular normal(int64_t coeff, int64_t base)
{
  if (coeff == INT64_MIN || base == INT64_MIN) return anything;
  if (coeff < 0) coeff = -coeff;
  return (Modular){coeff, coeff == 0 ? base : int_floormod(base, coeff)};
}

/* The smallest class that holds both. */
static Modular join(Modular a, Modular b)
{
  int64_t d;
  if (!int_sub(a.base, b.base, &d) || d == INT64_MIN) return anything;
  int64_t g = int_gcd(int_gcd(a.coeff, b.coeff), d);
  return normal(g, a.base);
}

/* u with u*a congruent to gcd(a, m) modulo m, for a, m > 0 (Euclid's algorithm). */
static int64_t inverse(int64_t a, int64_t m)
{
  int64_t u = 1;
  int64_t next = 0;
  for (int64_t rest = m; rest;) {
    int64_t quotient = a / rest;
    int64_t r = a % rest;
    int64_t v = u - quotient * next;
    a = rest, rest = r;
    u = next, next = v;
  }
  return int_floormod(u, m);
}

/* The class of what lies in both, or the finer one where numbers grow too large or nothing lies in both: then
 * nothing is ever evaluated here. */
Modular modular_meet(Modular a, Modular b)
{
  if (a.coeff == 0) return a;
  if (b.coeff == 0) return b;
  Modular finer = a.coeff >= b.coeff ? a : b;
  int64_t g = int_gcd(a.coeff, b.coeff);
  int64_t apart, steps, coeff;
  if (!int_sub(b.base, a.base, &apart) || apart % g || !int_mul(a.coeff, b.coeff / g, &coeff)) return finer;
  /* a.base + a.coeff*n = b.base modulo b.coeff: n is that many steps */
  if (!int_mul(int_floormod(apart / g, b.coeff / g), inverse(a.coeff / g, b.coeff / g), &steps)) return finer;
  return normal(coeff, a.base + a.coeff * (steps % (b.coeff / g)));
}

static Modular add(Modular a, Modular b, bool *ok)
{
  int64_t base;
  if (!int_add(a.base, b.base, &base)) return *ok = false, anything;
  return normal(int_gcd(a.coeff, b.coeff), base);
}

static Modular scale(Modular a, int64_t k, bool *ok)
{
  int64_t coeff, base;
  if (!int_mul(a.coeff, k, &coeff) || !int_mul(a.base, k, &base)) return *ok = false, anything;
  return normal(coeff, base);
}

/* (p*n + q) * (r*m + s) = pr*nm + ps*n + qr*m + qs */
static Modular multiply(Modular a, Modular b)
{
  int64_t pr, ps, qr, qs;
  if (!int_mul(a.coeff, b.coeff, &pr) || !int_mul(a.coeff, b.base, &ps) || !int_mul(a.base, b.coeff, &qr) ||
      !int_mul(a.base, b.base, &qs))
    return anything;
  return normal(int_gcd(int_gcd(pr, ps), qr), qs);
}

/* x // c with c > 0: c must divide the steps, or the base must too. */
static Modular floordiv(Modular x, int64_t c)
{
  if (c <= 0) return anything;
  if (x.coeff % c == 0) return normal(x.coeff / c, int_floordiv(x.base, c));
  return anything;
}

static Modular floormod(Modular x, int64_t c)
{
  if (c <= 0) return anything;
  if (x.coeff % c == 0) return normal(0, int_floormod(x.base, c));
  return normal(int_gcd(x.coeff, c), x.base);
}

Modular modular_of_sum(Analyzer *a, const Sum *s)
{
  Modular r = {0, s->base};
  bool ok = !s->bad;
  for (int i = 0; ok && i < s->term.n; i++)
    r = add(r, scale(modular_of(a, s->term.v[i].atom), s->term.v[i].coeff, &ok), &ok);
  if (!ok) return anything;
  for (int f = 0; s->term.n > 1 && f < a->facts.n; f++) { /* the whole sum is a known one */
    const Fact *fact = &a->facts.v[f];
    if (fact->mod.coeff == 1 || fact->sum.term.n != s->term.n) continue;
    bool same = true;
    for (int i = 0; i < s->term.n && same; i++) same = sum_coeff(&fact->sum, s->term.v[i].atom) == s->term.v[i].coeff;
    if (same) r = modular_meet(r, add(fact->mod, (Modular){0, s->base}, &ok));
  }
  return ok ? r : anything;
}

static Modular modular_of_arithmetic(Analyzer *a, const Expr *e)
{
  if (e->dtype.lanes == 1) {
    Scope scope = scope_begin(a->ctx);
    Sum s = sum_of(a, e);
    bool linear = s.term.n != 1 || s.term.v[0].atom != e;
    Modular r = linear ? modular_of_sum(a, &s) : anything;
    scope_end(a->ctx, scope);
    if (linear) return r;
  }
  bool ok = true;
  Modular x = modular_of(a, e->arg[0]);
  Modular y = modular_of(a, e->arg[1]);
  if (e->kind == E_MUL) return multiply(x, y);
  Modular r = add(x, e->kind == E_ADD ? y : scale(y, -1, &ok), &ok);
  return ok ? r : anything;
}

static Modular modular_of_var(Analyzer *a, const Expr *e)
{
  const VarInfo *info = analyzer_var(a, e->u.var);
  if (!info) return anything;
  if (info->value) return modular_of(a, info->value);
  if (info->let) return modular_of(a, info->let);
  return anything;
}

static Modular modular_of_node(Analyzer *a, const Expr *e)
{
  if (e->kind == E_INT) return (Modular){0, e->u.i};
  if (e->kind == E_BROADCAST) return modular_of(a, e->arg[0]);
  if (!expr_is_index(e)) return anything;
  int64_t c = e->nargs == 2 && e->arg[1]->kind == E_INT ? e->arg[1]->u.i : 0;
  switch ((ExprKind)e->kind) {
  case E_VAR: return modular_of_var(a, e);
  case E_ADD:
  case E_SUB:
  case E_MUL: return modular_of_arithmetic(a, e);
  case E_FLOORDIV: return floordiv(modular_of(a, e->arg[0]), c);
  case E_FLOORMOD: return floormod(modular_of(a, e->arg[0]), c);
  case E_MIN:
  case E_MAX: return join(modular_of(a, e->arg[0]), modular_of(a, e->arg[1]));
  case E_SELECT: return join(modular_of(a, e->arg[1]), modular_of(a, e->arg[2]));
  case E_CAST: return expr_is_widening(e) ? modular_of(a, e->arg[0]) : anything;
  case E_LET: analyzer_let(a, e->u.var, e->arg[0]); return modular_of(a, e->arg[1]);
  case E_CALL:
    if (e->u.intrin == IN_IF_THEN_ELSE) return join(modular_of(a, e->arg[1]), modular_of(a, e->arg[2]));
    if (e->u.intrin == IN_SHR && c > 0 && c < 31) return floordiv(modular_of(a, e->arg[0]), (int64_t)1 << c);
    if (e->u.intrin == IN_BITAND && c > 0 && ((c + 1) & c) == 0) return floormod(modular_of(a, e->arg[0]), c + 1);
    return anything;
  case E_RAMP: {
    Modular x = modular_of(a, e->arg[0]);
    Modular step = modular_of(a, e->arg[1]);
    return normal(int_gcd(x.coeff, int_gcd(step.coeff, step.base)), x.base);
  }
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_DIV:
  case E_MOD:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_LOAD:
  case E_BROADCAST:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  return anything;
}

Modular modular_of(Analyzer *a, const Expr *e)
{
  if (!dtype_is_int(e->dtype)) return anything;
  Info *info = analyzer_info(a, e);
  if (info->has_mod) return info->mod;
  Modular r = modular_of_node(a, e);
  for (int f = 0; f < a->facts.n; f++) {
    const Fact *fact = &a->facts.v[f];
    if (fact->mod.coeff == 1 || fact->sum.term.n != 1) continue;
    if (fact->sum.term.v[0].atom == e && fact->sum.term.v[0].coeff == 1) r = modular_meet(r, fact->mod);
  }
  info = analyzer_info(a, e);
  info->mod = r;
  info->has_mod = true;
  return r;
}
