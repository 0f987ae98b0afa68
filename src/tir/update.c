/* update.c: what a reduction block does to its result.
 *
 * Comes in: the body of a block, C = f(C, …), or for several values lets and a store of
 * each.  Goes out: the reducer it is one of, and what is put into the result: the
 * source.  With that the reduction can be taken apart and its parts put together. */
#include "tir/tir.h"

typedef struct Match {
  const Reducer *reducer;
  const Expr **lhs; /* what stands for each lhs */
  const Expr **rhs; /* found for each rhs, or NULL so far */
} Match;

static bool match(Match *v, const Expr *pattern, const Expr *e);

static bool match_args(Match *v, const Expr *pattern, const Expr *e, bool swap)
{
  for (int i = 0; i < pattern->nargs; i++)
    if (!match(v, pattern->arg[i], e->arg[swap ? 1 - i : i])) return false;
  return true;
}

static bool match(Match *v, const Expr *pattern, const Expr *e)
{
  for (int i = 0; pattern->kind == E_VAR && i < v->reducer->n; i++) {
    if (pattern->u.var == v->reducer->lhs[i]) return e == v->lhs[i];
    if (pattern->u.var == v->reducer->rhs[i]) {
      if (!v->rhs[i]) v->rhs[i] = e;
      return v->rhs[i] == e && !expr_uses_buffer(e, v->lhs[i]->u.buffer);
    }
  }
  if (pattern->kind == E_LT && e->kind == E_GT) return match_args(v, pattern, e, true);
  if (pattern->kind != e->kind || pattern->nargs != e->nargs || !dtype_eq(pattern->dtype, e->dtype)) return false;
  if (!pattern->nargs || pattern->kind == E_LOAD || pattern->kind == E_CALL) return pattern == e;
  const Expr *saved[8];
  for (int i = 0; i < v->reducer->n && i < 8; i++) saved[i] = v->rhs[i];
  if (match_args(v, pattern, e, false)) return true;
  for (int i = 0; i < v->reducer->n && i < 8; i++) v->rhs[i] = saved[i];
  bool commutes = pattern->kind == E_ADD || pattern->kind == E_MUL || pattern->kind == E_MIN ||
                  pattern->kind == E_MAX || pattern->kind == E_AND || pattern->kind == E_OR;
  return commutes && match_args(v, pattern, e, true);
}

static const Expr *own_value(Module *m, const Stmt *store)
{
  return expr_load(m, store->u.store.buffer, store->u.store.n, store->u.store.index);
}

static bool fits_reducer(Module *m, Arena *tmp, BlockUpdate *u, const Expr *const *value, const Reducer *r)
{
  if (!r || r->n != u->n) return false;
  Match k = {r, arena_array(tmp, const Expr *, u->n), arena_array(tmp, const Expr *, u->n)};
  for (int i = 0; i < u->n; i++) k.lhs[i] = own_value(m, u->store[i]);
  for (int i = 0; i < u->n; i++)
    if (!match(&k, r->result[i], value[i])) return false;
  for (int i = 0; i < u->n; i++)
    if (!k.rhs[i]) return false;
  u->source = k.rhs;
  return true;
}

/* C - x is a sum of -x. */
static bool is_difference(Module *m, Arena *tmp, BlockUpdate *u, const Expr *const *value)
{
  const Stmt *st = u->store[0];
  if (u->n != 1 || value[0]->kind != E_SUB || value[0]->arg[0] != own_value(m, st) ||
      expr_uses_buffer(value[0]->arg[1], st->u.store.buffer))
    return false;
  u->source = arena_array(tmp, const Expr *, 1);
  u->source[0] = expr_sub(m, expr_const(m, value[0]->dtype, 0), value[0]->arg[1]);
  return true;
}

/* min or max of floats that keeps a NaN on either side: x if x beats y or is NaN, else y. */
static const Reducer *nan_keeping(Module *m, bool max, DType t)
{
  const Var *x = var_new(m, "x", t, VAR_PLAIN);
  const Var *y = var_new(m, "y", t, VAR_PLAIN);
  const Expr *beats = max ? expr_lt(m, y->expr, x->expr) : expr_lt(m, x->expr, y->expr);
  const Expr *keep = expr_binary(m, E_OR, beats, expr_binary(m, E_NE, x->expr, x->expr));
  const Expr *result = expr_select(m, keep, x->expr, y->expr);
  return reducer_new(m, max ? "max" : "min", 1, &x, &y, &result,
                     reducer_named(m, max ? "max" : "min", t, DT_I32)->identity);
}

const char *block_update(Module *m, Arena *tmp, const Block *b, BlockUpdate *out)
{
  static const char *const names[] = {"sum", "prod", "min", "max", "any", "all", "argmin", "argmax"};
  Map lets = {0};
  Stmt *body = b->body;
  for (; body->kind == S_LET; body = body->u.let.body)
    map_put(tmp, &lets, body->u.let.var, (void *)(uintptr_t)expr_substitute(m, body->u.let.value, &lets));
  *out = (BlockUpdate){.n = body->kind == S_SEQ ? body->u.seq.n : 1};
  out->store = arena_array(tmp, Stmt *, out->n);
  const Expr **value = arena_array(tmp, const Expr *, out->n);
  for (int i = 0; i < out->n; i++) {
    Stmt *st = body->kind == S_SEQ ? body->u.seq.v[i] : body;
    if (st->kind != S_STORE) return "changes its result by more than stores";
    out->store[i] = st;
    value[i] = expr_substitute(m, st->u.store.value, &lets);
  }
  DType dtype = out->store[out->n - 1]->u.store.buffer->dtype;
  DType index = out->store[0]->u.store.buffer->dtype;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    bool pairs = i >= 6;
    if (pairs != (out->n == 2)) continue;
    if ((i == 4 || i == 5) && !dtype_is_bool(dtype)) continue;
    out->reducer = reducer_named(m, names[i], dtype, index);
    if (fits_reducer(m, tmp, out, value, out->reducer) || (i == 0 && is_difference(m, tmp, out, value))) return NULL;
  }
  for (int max = 0; max < 2 && out->n == 1 && dtype_is_float(dtype); max++) {
    out->reducer = nan_keeping(m, max, dtype);
    if (fits_reducer(m, tmp, out, value, out->reducer)) return NULL;
  }
  return "is none of sum prod min max any all argmin argmax";
}
