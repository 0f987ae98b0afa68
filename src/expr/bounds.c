/* bounds.c: the constant interval an integer expression stays in.
 *
 * In: any integer expression, simplified or not; vectors count all lanes.  Out:
 * an interval that contains every value it can take under the analyzer's
 * bindings and assumptions.  INT64_MIN and INT64_MAX stand for unbounded, and
 * arithmetic saturates there.  Index arithmetic does not overflow, so its bounds
 * follow from its terms; other integers fall back to their dtype's range when
 * the exact result would leave it. */
#include "expr/analysis.h"

static bool is_inf(int64_t v) { return v == NEG_INF || v == POS_INF; }

int64_t interval_sat_add(int64_t a, int64_t b)
{
  int64_t r;
  if (is_inf(a)) return a;
  if (is_inf(b)) return b;
  if (int_add(a, b, &r)) return r;
  return a > 0 ? POS_INF : NEG_INF;
}

int64_t interval_sat_mul(int64_t a, int64_t b)
{
  int64_t r;
  if (a == 0 || b == 0) return 0;
  if (!is_inf(a) && !is_inf(b) && int_mul(a, b, &r)) return r;
  return (a > 0) == (b > 0) ? POS_INF : NEG_INF;
}

static int64_t sat_neg(int64_t a) { return a == NEG_INF ? POS_INF : a == POS_INF ? NEG_INF : -a; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

Interval interval_meet(Interval a, Interval b)
{
  Interval r = {most(a.min, b.min), least(a.max, b.max)};
  return r.min <= r.max ? r : a; /* contradiction: nothing is ever evaluated here */
}

static Interval interval_join(Interval a, Interval b) { return (Interval){least(a.min, b.min), most(a.max, b.max)}; }

static Interval interval_add(Interval a, Interval b)
{
  return (Interval){interval_sat_add(a.min, b.min), interval_sat_add(a.max, b.max)};
}

static Interval interval_neg(Interval a) { return (Interval){sat_neg(a.max), sat_neg(a.min)}; }

static Interval interval_mul(Interval a, Interval b)
{
  int64_t p = interval_sat_mul(a.min, b.min);
  int64_t q = interval_sat_mul(a.min, b.max);
  int64_t r = interval_sat_mul(a.max, b.min);
  int64_t s = interval_sat_mul(a.max, b.max);
  return (Interval){least(least(p, q), least(r, s)), most(most(p, q), most(r, s))};
}

/* int32 and int64 count as unbounded: a size that was not stated is no size. */
Interval interval_of_dtype(DType t)
{
  if (!dtype_is_int(t)) return everything;
  if (t.code == DT_UINT) return (Interval){0, t.bits == 64 ? POS_INF : (int64_t)(((uint64_t)1 << t.bits) - 1)};
  if (t.bits >= 32) return everything;
  return (Interval){dtype_imin(t), dtype_imax(t)};
}

/* The exact result if it fits the dtype, else all the dtype holds. */
static Interval wrapped(DType t, Interval exact)
{
  Interval range = interval_of_dtype(t);
  if (t.code == DT_INT && t.bits >= 32) range = (Interval){dtype_imin(t), dtype_imax(t)};
  bool fits = exact.min >= range.min && exact.max <= range.max && !is_inf(exact.min) && !is_inf(exact.max);
  return fits ? exact : interval_of_dtype(t);
}

/* ---- division ------------------------------------------------------------------ */

static int64_t sat_floordiv(int64_t a, int64_t b)
{
  if (is_inf(a)) return b > 0 ? a : sat_neg(a);
  if (is_inf(b)) return (a < 0) == (b < 0) || a == 0 ? 0 : -1;
  return b == -1 ? sat_neg(a) : int_floordiv(a, b);
}

static int64_t sat_truncdiv(int64_t a, int64_t b)
{
  if (is_inf(a)) return b > 0 ? a : sat_neg(a);
  if (is_inf(b)) return 0;
  return b == -1 ? sat_neg(a) : a / b;
}

/* Quotients are monotone in each operand while the divisor keeps its sign. */
static Interval divide(Interval x, Interval d, int64_t (*div)(int64_t, int64_t))
{
  if (d.min <= 0 && d.max >= 0) {
    if (d.min < 0 && d.max > 0)
      return interval_join(divide(x, (Interval){d.min, -1}, div), divide(x, (Interval){1, d.max}, div));
    if (d.min == 0) d.min = d.max == 0 ? 0 : 1;
    if (d.max == 0) d.max = d.min == 0 ? 0 : -1;
    if (d.min == 0) return everything; /* always divides by zero: no value */
  }
  int64_t p = div(x.min, d.min);
  int64_t q = div(x.min, d.max);
  int64_t r = div(x.max, d.min);
  int64_t s = div(x.max, d.max);
  return (Interval){least(least(p, q), least(r, s)), most(most(p, q), most(r, s))};
}

static Interval floor_remainder(Analyzer *a, const Expr *e, Interval x, Interval d)
{
  Interval r = {0, d.max == POS_INF ? POS_INF : most(d.max - 1, 0)};
  if (d.min < 0) r.min = d.min == NEG_INF ? NEG_INF : d.min + 1;
  if (d.min < 0) return r;
  if (x.min >= 0) r.max = least(r.max, x.max);
  if (d.min != d.max || d.min <= 0 || is_inf(d.min)) return r;
  int64_t c = d.min;
  if (!is_inf(x.min) && !is_inf(x.max) && int_floordiv(x.min, c) == int_floordiv(x.max, c))
    return (Interval){int_floormod(x.min, c), int_floormod(x.max, c)};
  Modular m = modular_of(a, e->arg[0]);
  int64_t g = int_gcd(m.coeff, c);
  if (g > 1) {
    int64_t rest = int_floormod(m.base, g);
    r = interval_meet(r, (Interval){rest, c - g + rest});
  }
  return r;
}

static Interval trunc_remainder(Interval x, Interval d)
{
  int64_t big = most(sat_neg(d.min), d.max);
  big = is_inf(big) || big == 0 ? POS_INF : big - 1;
  /* it has the dividend's sign, and is no larger */
  return (Interval){most(least(x.min, 0), sat_neg(big)), least(most(x.max, 0), big)};
}

/* ---- sums ---------------------------------------------------------------------------- */

/* The part of the sum that is ratio * fact, if all of the fact's terms are in it. */
static bool fact_ratio(const Sum *s, const Sum *fact, int64_t *ratio)
{
  int64_t r = 0;
  for (int i = 0; i < fact->term.n; i++) {
    int64_t k = sum_coeff(s, fact->term.v[i].atom);
    int64_t f = fact->term.v[i].coeff;
    if (k == 0 || k % f || k == INT64_MIN || (r && k / f != r)) return false;
    r = k / f;
  }
  *ratio = r;
  return r != 0;
}

static Interval scaled(Interval x, int64_t k) { return interval_mul(x, (Interval){k, k}); }

Interval bounds_of_sum(Analyzer *a, const Sum *s)
{
  if (s->bad) return everything;
  Interval plain = {s->base, s->base};
  for (int i = 0; i < s->term.n; i++)
    plain = interval_add(plain, scaled(bounds_of(a, s->term.v[i].atom), s->term.v[i].coeff));
  Interval result = plain;
  uint64_t uses = sum_uses(s);
  for (int f = 0; s->term.n > 1 && f < a->facts.n; f++) {
    const Sum *fact = &a->facts.v[f].sum;
    int64_t ratio;
    if (fact->term.n < 2 || fact->term.n > s->term.n || a->facts.v[f].uses & ~uses) continue;
    a->terms += s->term.n;
    if (!fact_ratio(s, fact, &ratio)) continue;
    Interval rest = {s->base, s->base};
    for (int i = 0; i < s->term.n; i++)
      if (!sum_coeff(fact, s->term.v[i].atom))
        rest = interval_add(rest, scaled(bounds_of(a, s->term.v[i].atom), s->term.v[i].coeff));
    result = interval_meet(result, interval_add(rest, scaled(a->facts.v[f].range, ratio)));
  }
  return result;
}

static Interval bounds_of_arithmetic(Analyzer *a, const Expr *e)
{
  if (expr_is_scalar_index(e)) {
    Scope scope = scope_begin(a->ctx);
    Sum s = sum_of(a, e);
    bool linear = s.term.n != 1 || s.term.v[0].atom != e;
    Interval r = linear ? bounds_of_sum(a, &s) : everything;
    scope_end(a->ctx, scope);
    if (linear) return r;
  }
  Interval x = bounds_of(a, e->arg[0]);
  Interval y = bounds_of(a, e->arg[1]);
  Interval r = e->kind == E_ADD   ? interval_add(x, y)
               : e->kind == E_SUB ? interval_add(x, interval_neg(y))
                                  : interval_mul(x, y);
  if (e->kind == E_MUL && e->arg[0] == e->arg[1]) r.min = most(r.min, 0);
  return expr_is_index(e) ? r : wrapped(dtype_elem(e->dtype), r);
}

static Interval bounds_of_binary(Analyzer *a, const Expr *e)
{
  if (e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL) return bounds_of_arithmetic(a, e);
  Interval x = bounds_of(a, e->arg[0]);
  Interval y = bounds_of(a, e->arg[1]);
  Interval r;
  if (e->kind == E_MIN) return (Interval){least(x.min, y.min), least(x.max, y.max)};
  if (e->kind == E_MAX) return (Interval){most(x.min, y.min), most(x.max, y.max)};
  if (e->kind == E_FLOORMOD) r = floor_remainder(a, e, x, y);
  else if (e->kind == E_MOD) r = trunc_remainder(x, y);
  else r = divide(x, y, e->kind == E_FLOORDIV ? sat_floordiv : sat_truncdiv);
  return expr_is_index(e) ? r : wrapped(dtype_elem(e->dtype), r);
}

/* ---- the rest --------------------------------------------------------------------------- */

static Interval bounds_of_var(Analyzer *a, const Expr *e)
{
  const VarInfo *info = analyzer_var(a, e->u.var);
  Interval r = interval_of_dtype(e->dtype);
  if (e->u.var->kind == VAR_SIZE) r.min = most(r.min, 0);
  if (!info) return r;
  if (info->value) return interval_meet(bounds_of(a, info->value), r);
  if (info->let) return interval_meet(bounds_of(a, info->let), r);
  if (!info->min) return r;
  Interval range = {bounds_of(a, info->min).min, bounds_of(a, info->last).max};
  if (range.max < range.min) range.max = range.min; /* an empty loop runs no body */
  return interval_meet(range, r);
}

/* x >> y of a number of bits y that the dtype has: rounds down, so a longer shift brings x nearer to 0 or -1. */
static Interval shifted_right(Interval x, Interval y)
{
  return (Interval){is_inf(x.min) ? x.min : x.min >> (x.min < 0 ? y.min : y.max),
                    is_inf(x.max) ? x.max : x.max >> (x.max < 0 ? y.max : y.min)};
}

static Interval bounds_of_call(Analyzer *a, const Expr *e)
{
  Interval all = interval_of_dtype(dtype_elem(e->dtype));
  Interval x, y;
  Intrin in = e->u.intrin;
  if (!dtype_is_int(e->dtype)) return everything;
  if (in == IN_LIKELY) return bounds_of(a, e->arg[0]);
  if (in == IN_IF_THEN_ELSE) return interval_join(bounds_of(a, e->arg[1]), bounds_of(a, e->arg[2]));
  if (in == IN_VSCALE) return (Interval){1, all.max};
  if (in == IN_POPCOUNT || in == IN_CLZ) return (Interval){0, e->arg[0]->dtype.bits};
  if (in != IN_ABS && in != IN_BITAND && in != IN_SHR) return all;
  x = bounds_of(a, e->arg[0]);
  if (in == IN_ABS) {
    if (x.min >= 0) return x;
    if (is_inf(x.min) || x.min == dtype_imin(dtype_elem(e->dtype))) return all;
    return (Interval){x.max < 0 ? -x.max : 0, most(-x.min, x.max)};
  }
  y = bounds_of(a, e->arg[1]);
  if (in == IN_BITAND && (x.min >= 0 || y.min >= 0))
    return (Interval){0, x.min < 0 ? y.max : y.min < 0 ? x.max : least(x.max, y.max)};
  if (in == IN_SHR && y.min >= 0 && y.max < e->dtype.bits) return shifted_right(x, y);
  return x.min >= 0 && in == IN_SHR ? (Interval){0, x.max} : all;
}

static Interval bounds_of_ramp(Analyzer *a, const Expr *e)
{
  Interval steps =
      interval_mul(bounds_of(a, e->arg[1]), (Interval){0, dtype_is_scalable(e->dtype) ? POS_INF : e->dtype.lanes - 1});
  Interval r = interval_add(bounds_of(a, e->arg[0]), steps);
  return expr_is_index(e) ? r : wrapped(dtype_elem(e->dtype), r);
}

/* A float made of integers that it holds exactly, all of them? */
static bool is_exact_float(Analyzer *a, const Expr *e)
{
  DType t = dtype_elem(e->dtype);
  if (e->kind != E_CAST || t.code != DT_FLOAT || t.bits < 32 || !dtype_is_int(e->arg[0]->dtype)) return false;
  Interval x = bounds_of(a, e->arg[0]);
  int64_t most_held = (int64_t)1 << (t.bits == 32 ? 24 : 53);
  return x.min >= -most_held && x.max <= most_held;
}

static Interval bounds_of_cast(Analyzer *a, const Expr *e)
{
  DType t = dtype_elem(e->dtype);
  if (dtype_is_bool(t)) return (Interval){0, 1};
  if (dtype_is_int(t) && is_exact_float(a, e->arg[0])) return wrapped(t, bounds_of(a, e->arg[0]->arg[0]));
  if (!dtype_is_int(t) || !dtype_is_int(e->arg[0]->dtype)) return interval_of_dtype(t);
  Interval x = bounds_of(a, e->arg[0]);
  bool widens = expr_is_index(e) && e->arg[0]->dtype.bits <= t.bits && e->arg[0]->dtype.code == DT_INT;
  return widens ? x : wrapped(t, x);
}

static Interval bounds_of_node(Analyzer *a, const Expr *e)
{
  switch ((ExprKind)e->kind) {
  case E_INT: return e->dtype.code == DT_UINT && e->u.i < 0 ? interval_of_dtype(e->dtype) : (Interval){e->u.i, e->u.i};
  case E_VAR: return bounds_of_var(a, e);
  case E_ADD:
  case E_SUB:
  case E_MUL:
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX: return bounds_of_binary(a, e);
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT: return (Interval){0, 1};
  case E_CAST: return bounds_of_cast(a, e);
  case E_SELECT: return interval_join(bounds_of(a, e->arg[1]), bounds_of(a, e->arg[2]));
  case E_LET: analyzer_let(a, e->u.var, e->arg[0]); return bounds_of(a, e->arg[1]);
  case E_CALL: return bounds_of_call(a, e);
  case E_RAMP: return bounds_of_ramp(a, e);
  case E_BROADCAST: return bounds_of(a, e->arg[0]);
  case E_FLOAT:
  case E_STR:
  case E_LOAD:
  case E_REDUCE:
  case E_NKINDS: break;
  }
  return interval_of_dtype(dtype_elem(e->dtype));
}

Interval bounds_of(Analyzer *a, const Expr *e)
{
  if (!dtype_is_int(e->dtype)) return everything;
  Info *info = analyzer_info(a, e);
  if (info->has_bounds) return info->bounds;
  Interval r = bounds_of_node(a, e);
  for (int f = 0; f < a->facts.n; f++) {
    const Fact *fact = &a->facts.v[f];
    if (fact->sum.term.n == 1 && fact->sum.term.v[0].atom == e && fact->sum.term.v[0].coeff == 1)
      r = interval_meet(r, fact->range);
    if (fact->sum.term.n == 1 && fact->sum.term.v[0].atom == e && fact->sum.term.v[0].coeff == -1)
      r = interval_meet(r, interval_neg(fact->range));
  }
  info = analyzer_info(a, e); /* the memory may have been dropped meanwhile */
  info->bounds = r;
  info->has_bounds = true;
  return r;
}
