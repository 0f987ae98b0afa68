/* simplify.c: the simplest known form of an expression.
 *
 * In: any expression.  Out: one equal to it for every value its variables may
 * take.  Arguments come first; then the root is rewritten until nothing applies:
 *
 *   folding of literals; what is known by assumption or has one value only
 *   sums of index arithmetic       linear.c    canonical linear form
 *   x // d, x % d of such sums     divmod.c
 *   comparisons and conjunctions   compare.c
 *   vectors of equal lanes         here: operate once, then broadcast
 *   everything else                rules.c     the table
 *
 * Index arithmetic is int32/int64 without loads (expr_is_index): it does not
 * overflow.  All other integers wrap, and only the rules tagged for that apply;
 * the order the user wrote is kept there, and on floats always.
 *
 * Termination.  Take the size of an expression as a tree.  Every RULE makes it
 * smaller.  Canonical sums are unique for their terms, so building one again
 * changes nothing, and joining terms happens only when it makes the sum smaller.
 * divmod.c recurses on a smaller dividend or divisor.  What is left are ORDER
 * rules and writing a comparison or a remainder in its canonical way: each has a
 * direction (literals right; > to <; / to //; `//%` to `%//`; broadcasts and
 * ramps outwards) that nothing reverses, so for one size only finitely many of
 * them can follow each other.
 *
 * Time.  What is simplified under an assumption is simplified anew, so choices inside choices
 * would double the work at every level.  After TRIAL_WORK nodes below one choice nothing more is
 * assumed (analyzer_assumption_helps): the rest costs a visit of each node for each level. */
#include "expr/analysis.h"

enum { SUM_NODES = 256 }; /* nodes of a nested sum taken apart before its parts are looked up */

static const Expr *simplify_root(Analyzer *, const Expr *);

/* ---- sums ------------------------------------------------------------------------- */

static void collect(Analyzer *a, Sum *s, const Expr *e, int64_t k, int *nodes)
{
  int64_t v;
  bool nested = (*nodes)-- > 0;
  if (e->kind == E_INT) {
    sum_add_expr(a, s, e, k);
  } else if (nested && (e->kind == E_ADD || e->kind == E_SUB)) {
    collect(a, s, e->arg[0], k, nodes);
    if (e->kind == E_SUB && k == INT64_MIN) s->bad = true;
    else collect(a, s, e->arg[1], e->kind == E_SUB ? -k : k, nodes);
  } else if (nested && e->kind == E_MUL && (e->arg[0]->kind == E_INT || e->arg[1]->kind == E_INT)) {
    int c = e->arg[1]->kind == E_INT;
    if (!int_mul(e->arg[c]->u.i, k, &v)) s->bad = true;
    else if (v) collect(a, s, e->arg[1 - c], v, nodes);
  } else if (nested && e->kind == E_MUL) {
    sum_add_product(a, s, expr_simplify(a, e->arg[0]), expr_simplify(a, e->arg[1]), k);
  } else {
    sum_add_expr(a, s, expr_simplify(a, e), k);
  }
}

/* NULL when a number leaves the dtype. */
static const Expr *simplify_sum(Analyzer *a, const Expr *e)
{
  Scope scope = scope_begin(a->ctx);
  Sum s = sum_zero(e->dtype);
  int nodes = SUM_NODES;
  collect(a, &s, e, 1, &nodes);
  const Expr *r = sum_fits(&s) ? sum_finish(a, &s) : NULL;
  scope_end(a->ctx, scope);
  return r;
}

/* ---- casts and vectors --------------------------------------------------------------- */

static int significant_bits(DType t)
{
  if (t.code == DT_FLOAT) return t.bits == 64 ? 53 : t.bits == 32 ? 24 : 11;
  if (t.code == DT_BFLOAT) return 8;
  if (t.code == DT_INT) return t.bits - 1;
  if (t.code == DT_UINT) return t.bits;
  return 0;
}

/* Does every value of `from` have the same value in `to`? */
static bool is_exact(DType from, DType to)
{
  if (dtype_is_int(from) && dtype_is_int(to))
    return to.code == from.code ? to.bits >= from.bits : to.code == DT_INT && to.bits > from.bits;
  if (dtype_is_int(from)) return significant_bits(to) >= significant_bits(from) && to.bits >= 32 && to.code == DT_FLOAT;
  if (!dtype_is_float(from) || to.code != DT_FLOAT) return false;
  if (to.bits == 64) return true;
  if (to.bits == 32) return from.bits <= 16 || from.code > DT_BFLOAT;
  return from.code == DT_FLOAT && from.bits == 16 && to.bits == 16;
}

static const Expr *simplify_cast(Analyzer *a, const Expr *e)
{
  const Expr *x = e->arg[0];
  if (x->kind != E_CAST) return e;
  DType from = dtype_elem(x->arg[0]->dtype);
  DType to = dtype_elem(e->dtype);
  if (!is_exact(from, dtype_elem(x->dtype))) return e;
  /* from to to would wrap */
  bool saturates = dtype_is_float(x->dtype) && dtype_is_int(from) && dtype_is_int(to) && !dtype_is_bool(to);
  return saturates && !is_exact(from, to) ? e : expr_cast(a->m, e->dtype, x->arg[0]);
}

static bool is_lanewise(const Expr *e)
{
  if (e->kind >= E_ADD && e->kind <= E_SELECT) return true;
  if (e->kind == E_LOAD) return e->u.buffer->dtype.lanes == 1;
  if (e->kind != E_CALL) return false;
  return intrin_is_math(e->u.intrin) || e->u.intrin == IN_LIKELY || e->u.intrin == IN_IF_THEN_ELSE;
}

/* f(broadcast x, broadcast y) = broadcast f(x, y) */
const Expr *expr_hoist_broadcast(Analyzer *a, const Expr *e)
{
  const Expr *arg[8];
  if (e->dtype.lanes == 1 || e->nargs == 0 || e->nargs > 8 || !is_lanewise(e) || !e->pure) return e;
  for (int i = 0; i < e->nargs; i++) {
    arg[i] = e->arg[i]->kind == E_BROADCAST ? e->arg[i]->arg[0] : e->arg[i];
    if (arg[i]->dtype.lanes != 1) return e;
  }
  const Expr *one = e->kind == E_CAST   ? expr_cast(a->m, dtype_elem(e->dtype), arg[0])
                    : e->kind == E_CALL ? expr_call(a->m, dtype_elem(e->dtype), e->u.intrin, e->nargs, arg)
                                        : expr_with_args(a->m, e, arg);
  return expr_broadcast(a->m, one, e->dtype.lanes);
}

/* ---- the root --------------------------------------------------------------------------- */

static bool is_comparison(const Expr *e) { return e->kind >= E_EQ && e->kind <= E_GE; }

/* Comparisons of integers that may wrap: the ranges of both sides decide or nothing does. */
static const Expr *compare_ranges(Analyzer *a, const Expr *e)
{
  if (!dtype_is_int(e->arg[0]->dtype)) return e;
  Interval x = bounds_of(a, e->arg[0]);
  Interval y = bounds_of(a, e->arg[1]);
  bool less = x.max < y.min;
  bool more = x.min > y.max;
  bool no_less = x.min >= y.max;
  bool no_more = x.max <= y.min;
  bool infinite = x.min == NEG_INF || x.max == POS_INF || y.min == NEG_INF || y.max == POS_INF;
  int verdict = -1;
  if (infinite) return e;
  if (e->kind == E_LT) verdict = less ? 1 : no_less ? 0 : -1;
  if (e->kind == E_LE) verdict = no_more ? 1 : more ? 0 : -1;
  if (e->kind == E_GT) verdict = more ? 1 : no_more ? 0 : -1;
  if (e->kind == E_GE) verdict = no_less ? 1 : less ? 0 : -1;
  if (e->kind == E_EQ && (less || more)) verdict = 0;
  if (e->kind == E_NE && (less || more)) verdict = 1;
  return verdict < 0 ? e : expr_int(a->m, e->dtype, verdict);
}

/* The one value it can have, if there is just one. */
static const Expr *known_value(Analyzer *a, const Expr *e)
{
  bool value;
  if (dtype_is_bool(e->dtype)) {
    if (a->truths.n && analyzer_known(a, e, &value)) return expr_bool(a->m, value);
    return e;
  }
  if (!expr_is_scalar_index(e)) return e;
  Interval b = bounds_of(a, e);
  return b.min == b.max && dtype_holds(e->dtype, b.min) ? expr_int(a->m, e->dtype, b.min) : e;
}

/* One step at the root of an expression whose arguments are simplified. */
static const Expr *step(Analyzer *a, const Expr *e)
{
  const Expr *r = expr_fold(a->m, e);
  if (r) return r;
  if (!e->pure) return e;
  if ((r = known_value(a, e)) != e) return r;
  if ((r = expr_hoist_broadcast(a, e)) != e) return r;
  bool divides = e->kind == E_FLOORDIV || e->kind == E_FLOORMOD;
  if (divides && expr_is_scalar_index(e)) {
    r = analyzer_simplify_divmod(a, (ExprKind)e->kind, e->arg[0], e->arg[1]);
    if (r && r != e) return r;
  }
  if (is_comparison(e)) {
    bool index = expr_is_scalar_index(e->arg[0]) && expr_is_scalar_index(e->arg[1]);
    r = index ? analyzer_simplify_compare(a, e) : compare_ranges(a, e);
    if (r != e) return r;
  }
  if ((e->kind == E_AND || e->kind == E_OR) && (r = analyzer_simplify_logic(a, e)) != e) return r;
  if (e->kind == E_CAST && (r = simplify_cast(a, e)) != e) return r;
  r = rules_apply(a, RULES_SIMPLIFY, e);
  return r ? r : e;
}

static const Expr *simplify_root(Analyzer *a, const Expr *e)
{
  if (e->nargs == 0) return e;
  const Expr *r = step(a, e);
  return r == e ? e : expr_simplify(a, r);
}

/* ---- the walk ------------------------------------------------------------------------------ */

static const Expr *simplify_args(Analyzer *a, const Expr *e)
{
  const Expr *few[8];
  const Expr **arg = e->nargs <= 8 ? few : arena_array(a->arena, const Expr *, e->nargs);
  for (int i = 0; i < e->nargs; i++) arg[i] = expr_simplify(a, e->arg[i]);
  return expr_with_args(a->m, e, arg);
}

/* A value that counts only where the condition is known.  Where it is evaluated
 * all the same, it must not be turned into something that fails there. */
static const Expr *simplify_under(Analyzer *a, const Expr *cond, bool value, const Expr *e, bool lazy)
{
  if (!lazy) e = expr_simplify(a, e);
  bool related = cond->dtype.lanes == 1 && cond->uses & e->uses && !(cond->kinds >> E_LOAD & 1) && e->nargs > 0 &&
                 analyzer_assumption_helps(a, cond);
  if (!related || !(lazy || analyzer_shape(a, e)->total)) return expr_simplify(a, e);
  int mark = analyzer_trial_begin(a);
  analyzer_push(a, value ? cond : expr_not(a->m, cond));
  const Expr *r = expr_simplify(a, e);
  analyzer_trial_end(a, mark);
  return r;
}

static const Expr *simplify_choice(Analyzer *a, const Expr *e)
{
  const Expr *cond = expr_simplify(a, e->arg[0]);
  const Expr *sure = cond->kind == E_BROADCAST ? cond->arg[0] : cond;
  if (sure->kind == E_INT && (e->pure || e->kind == E_CALL)) {
    const Expr *taken = e->arg[sure->u.i ? 1 : 2];
    if (taken->dtype.lanes == e->dtype.lanes) return expr_simplify(a, taken);
  }
  bool lazy = e->kind == E_CALL;
  const Expr *x = simplify_under(a, cond, true, e->arg[1], lazy);
  const Expr *y = simplify_under(a, cond, false, e->arg[2], lazy);
  return simplify_root(a, expr_with_args(a->m, e, (const Expr *[]){cond, x, y}));
}

static const Expr *simplify_let(Analyzer *a, const Expr *e)
{
  const Expr *value = expr_simplify(a, e->arg[0]);
  if (value->nargs == 0) return expr_simplify(a, expr_substitute1(a->m, e->arg[1], e->u.var, value));
  analyzer_let(a, e->u.var, value);
  const Expr *body = expr_simplify(a, e->arg[1]);
  if (value->pure && !expr_uses_var(body, e->u.var)) return body;
  return expr_let(a->m, e->u.var, value, body);
}

static const Expr *simplify_var(Analyzer *a, const Expr *e)
{
  const VarInfo *info = analyzer_var(a, e->u.var);
  if (info && info->value) return expr_simplify(a, info->value);
  return known_value(a, e);
}

static const Expr *simplify_reduce(Analyzer *a, const Expr *e)
{
  const Reduce *r = e->u.reduce;
  for (int i = 0; i < r->naxis; i++)
    if (r->axis[i]->min) analyzer_bind(a, r->axis[i]->var, r->axis[i]->min, r->axis[i]->extent);
  return simplify_args(a, e);
}

static const Expr *simplify_node(Analyzer *a, const Expr *e)
{
  const Expr *r;
  switch ((ExprKind)e->kind) {
  case E_INT:
  case E_FLOAT:
  case E_STR:
  case E_NKINDS: return e;
  case E_VAR: return simplify_var(a, e);
  case E_ADD:
  case E_SUB:
  case E_MUL:
    if (expr_is_scalar_index(e) && (r = simplify_sum(a, e))) return r;
    break;
  case E_SELECT: return simplify_choice(a, e);
  case E_CALL:
    if (e->u.intrin == IN_IF_THEN_ELSE) return simplify_choice(a, e);
    break;
  case E_LET: return simplify_let(a, e);
  case E_REDUCE: return simplify_reduce(a, e);
  case E_DIV:
  case E_MOD:
  case E_FLOORDIV:
  case E_FLOORMOD:
  case E_MIN:
  case E_MAX:
  case E_EQ:
  case E_NE:
  case E_LT:
  case E_LE:
  case E_GT:
  case E_GE:
  case E_AND:
  case E_OR:
  case E_NOT:
  case E_CAST:
  case E_LOAD:
  case E_RAMP:
  case E_BROADCAST: break;
  }
  r = simplify_args(a, e);
  return r == e ? simplify_root(a, e) : expr_simplify(a, r);
}

const Expr *expr_simplify(Analyzer *a, const Expr *e)
{
  if (e->nargs == 0 && e->kind != E_VAR) return e;
  Info *info = analyzer_info(a, e);
  if (info->simple) return info->simple;
  if (info->busy) return a->cycles++, e;
  info->busy = true;
  if (a->trials) a->trial_work++;
  const Expr *r = simplify_node(a, e);
  info->busy = false;
  analyzer_info(a, e)->simple = r; /* the memory may have been dropped meanwhile */
  analyzer_info(a, r)->simple = r;
  return r;
}
