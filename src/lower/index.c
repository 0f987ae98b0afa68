/* index.c: integer arithmetic as machines do it.
 *
 * lower_pass_index_types
 *   The index of a load or store stays int32 where every step of it provably fits;
 *   otherwise it is computed in int64.  Flattening multiplies what the user kept
 *   apart, so a product of sizes may pass 2^31 though each size is small.
 *
 * lower_pass_legalize_division
 *   Floor division and modulo become truncating ones: directly where nothing is
 *   negative, as shift and mask where the divisor is a power of two, with a
 *   correction otherwise.
 *
 * needs   flat buffers, loops from 0
 * keeps   everything else
 * breaks  afterwards there is no E_FLOORDIV and no E_FLOORMOD */
#include "lower/internal.h"

typedef struct Index {
  Lower *lo;
  Analyzer *an;
  Rewriter rw;
  Map fits; /* Expr* -> 1 fits, 2 does not */
} Index;

static bool step_fits(Index *x, const Expr *e)
{
  if (e->kind == E_INT || e->kind == E_VAR || e->kind == E_LOAD) return true;
  intptr_t known = (intptr_t)map_get(&x->fits, e);
  if (known) return known == 1;
  bool ok = true;
  if (e->dtype.bits == 32 && (e->kind == E_ADD || e->kind == E_SUB || e->kind == E_MUL)) {
    Interval r = analyzer_bounds(x->an, e);
    ok = r.min >= INT32_MIN && r.max <= INT32_MAX;
  }
  for (int i = 0; ok && i < e->nargs; i++) ok = step_fits(x, e->arg[i]);
  map_put(x->rw.arena, &x->fits, e, (void *)(intptr_t)(ok ? 1 : 2));
  return ok;
}

/* The index with the end of a ramp counted too. */
static const Expr *typed_index(Index *x, const Expr *at)
{
  Module *m = x->lo->m;
  bool ok = step_fits(x, at);
  if (ok && at->kind == E_RAMP) {
    const Expr *last = expr_add(m, at->arg[0], expr_mul(m, at->arg[1], lower_int(m, at, at->dtype.lanes - 1)));
    ok = step_fits(x, last);
  }
  return ok ? at : expr_widen(m, at);
}

static const Expr *index_node(Rewriter *rw, const Expr *e)
{
  if (e->kind != E_LOAD) return e;
  const Expr *at = typed_index(rw->env, e->arg[0]);
  return at == e->arg[0] ? e : expr_load(rw->m, e->u.buffer, 1, &at);
}

static const Expr *rewrite_held(void *env, const Expr *e) { return expr_rewrite(env, e); }

static bool index_stmt(void *env, Stmt *s)
{
  Index *x = env;
  if (s->kind == S_FOR) analyzer_bind(x->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  lower_map_exprs(s, rewrite_held, &x->rw);
  if (s->kind == S_STORE) s->u.store.index[0] = typed_index(x, s->u.store.index[0]);
  return true;
}

void lower_pass_index_types(Lower *lo)
{
  Index x = {.lo = lo, .an = lower_analyzer(lo)};
  x.rw = (Rewriter){.m = lo->m, .fn = index_node, .env = &x, .arena = scratch(lo->ctx)};
  stmt_visit(lo->f->body, index_stmt, &x);
}

/* ---- division ------------------------------------------------------------------------------ */

static int log2_of(int64_t n)
{
  int k = 0;
  while (n > 1 && (n & 1) == 0) {
    n >>= 1;
    k++;
  }
  return n == 1 ? k : -1;
}

static const Expr *scalar_of(const Expr *e) { return e->kind == E_BROADCAST ? e->arg[0] : e; }

static bool at_least_zero(Index *x, const Expr *e)
{
  if (e->kind == E_RAMP) return at_least_zero(x, e->arg[0]) && at_least_zero(x, e->arg[1]);
  e = scalar_of(e);
  return e->dtype.lanes == 1 && analyzer_bounds(x->an, e).min >= 0;
}

/* Truncating quotient q and remainder r corrected: one less, and b more, where r is
 * not zero and its sign is not b's. */
static const Expr *corrected(Index *x, ExprKind kind, const Expr *a, const Expr *b)
{
  Module *m = x->lo->m;
  const Expr *zero = expr_int(m, a->dtype, 0);
  const Expr *q = expr_binary(m, E_DIV, a, b);
  const Expr *r = expr_binary(m, E_MOD, a, b);
  const Expr *wrong;
  if (scalar_of(b)->kind == E_INT && scalar_of(b)->u.i > 0) wrong = expr_lt(m, r, zero);
  else
    wrong = expr_and(m, expr_binary(m, E_NE, r, zero), expr_binary(m, E_NE, expr_lt(m, r, zero), expr_lt(m, b, zero)));
  if (kind == E_FLOORDIV) return expr_select(m, wrong, expr_sub(m, q, expr_int(m, a->dtype, 1)), q);
  return expr_select(m, wrong, expr_add(m, r, b), r);
}

/* Quotients that were spelt in two ways may be one now, and what compares them or depends on that be known. */
static const Expr *same_sides(Module *m, const Expr *e)
{
  bool compares = e->kind >= E_EQ && e->kind <= E_GE && e->dtype.lanes == 1;
  if (compares && e->arg[0] == e->arg[1] && dtype_is_int(e->arg[0]->dtype) && e->arg[0]->pure)
    return expr_bool(m, e->kind == E_EQ || e->kind == E_LE || e->kind == E_GE);
  bool chooses = e->kind == E_SELECT || (e->kind == E_CALL && e->u.intrin == IN_IF_THEN_ELSE);
  return chooses && e->arg[0]->kind == E_INT ? e->arg[e->arg[0]->u.i ? 1 : 2] : e;
}

static const Expr *division_node(Rewriter *rw, const Expr *e)
{
  Index *x = rw->env;
  Module *m = rw->m;
  e = same_sides(m, e);
  if (e->kind != E_FLOORDIV && e->kind != E_FLOORMOD) return e;
  const Expr *a = e->arg[0];
  const Expr *b = e->arg[1];
  ExprKind plain = e->kind == E_FLOORDIV ? E_DIV : E_MOD;
  const Expr *divisor = scalar_of(b);
  int k = divisor->kind == E_INT && divisor->u.i > 0 ? log2_of(divisor->u.i) : -1;
  if (k >= 0) {
    const Expr *arg[2] = {a, expr_int(m, a->dtype, e->kind == E_FLOORDIV ? k : divisor->u.i - 1)};
    return expr_call(m, DT_NONE, e->kind == E_FLOORDIV ? IN_SHR : IN_BITAND, 2, arg);
  }
  if (a->dtype.code == DT_UINT || (at_least_zero(x, a) && at_least_zero(x, b))) return expr_binary(m, plain, a, b);
  return corrected(x, (ExprKind)e->kind, a, b);
}

static bool division_stmt(void *env, Stmt *s)
{
  Index *x = env;
  if (s->kind == S_FOR) analyzer_bind(x->an, s->u.loop.var, s->u.loop.min, s->u.loop.extent);
  lower_map_exprs(s, rewrite_held, &x->rw);
  return true;
}

void lower_pass_legalize_division(Lower *lo)
{
  Index x = {.lo = lo, .an = lower_analyzer(lo)};
  x.rw = (Rewriter){.m = lo->m, .fn = division_node, .env = &x, .arena = scratch(lo->ctx)};
  stmt_visit(lo->f->body, division_stmt, &x);
}
