/* dims.c: arithmetic on dimensions.
 *
 * A dimension is an int32 expression (int64 where a literal needs it) over size
 * variables, always simplified, so equal sizes are mostly the same pointer. */
#include "op/op.h"

const Expr *dim_int(Module *m, int64_t v) { return expr_int(m, v > INT32_MAX || v < INT32_MIN ? DT_I64 : DT_I32, v); }

const Expr *dim_simplify(Module *m, const Expr *e) { return graph_simplify_dim(m, e); }

/* Index arithmetic never overflows, so it may be done at the narrow width. */
static const Expr *narrow(Rewriter *r, const Expr *e)
{
  bool wide = dtype_is_int(e->dtype) && e->dtype.bits >= 32;
  if (e->kind == E_INT && wide) return dim_int(r->m, e->u.i);
  if (e->kind == E_VAR && wide) return expr_cast(r->m, DT_I32, e);
  if (e->kind == E_CAST && wide && dtype_is_int(e->arg[0]->dtype) && e->arg[0]->dtype.bits >= 32) return e->arg[0];
  return e;
}

const Expr *dim_of_value(Module *m, const Expr *e)
{
  Scope s = scope_begin(m->ctx);
  Rewriter rw = {.m = m, .fn = narrow, .arena = scratch(m->ctx)};
  e = expr_rewrite(&rw, e);
  if (!dtype_is_int(e->dtype) || e->dtype.bits < 32) e = expr_cast(m, DT_I32, e);
  e = dim_simplify(m, e);
  scope_end(m->ctx, s);
  return e;
}

static const Expr *dim_binary(Module *m, ExprKind kind, const Expr *a, const Expr *b)
{
  int64_t v;
  if (a->kind == E_INT && b->kind == E_INT) {
    if (kind == E_ADD && int_add(a->u.i, b->u.i, &v)) return dim_int(m, v);
    if (kind == E_SUB && int_sub(a->u.i, b->u.i, &v)) return dim_int(m, v);
    if (kind == E_MUL && int_mul(a->u.i, b->u.i, &v)) return dim_int(m, v);
    if (kind == E_ADD || kind == E_SUB || kind == E_MUL)
      raise(m->ctx, ERR_SHAPE, NOWHERE, "a size overflows: %" PRId64 " and %" PRId64, a->u.i, b->u.i);
    if ((kind == E_FLOORDIV || kind == E_FLOORMOD) && b->u.i == 0)
      raise(m->ctx, ERR_SHAPE, NOWHERE, "a size is divided by zero: %" PRId64, a->u.i);
  }
  return dim_simplify(m, expr_binary(m, kind, a, b));
}

const Expr *dim_add(Module *m, const Expr *a, const Expr *b) { return dim_binary(m, E_ADD, a, b); }
const Expr *dim_sub(Module *m, const Expr *a, const Expr *b) { return dim_binary(m, E_SUB, a, b); }
const Expr *dim_mul(Module *m, const Expr *a, const Expr *b) { return dim_binary(m, E_MUL, a, b); }
const Expr *dim_floordiv(Module *m, const Expr *a, const Expr *b) { return dim_binary(m, E_FLOORDIV, a, b); }
const Expr *dim_mod(Module *m, const Expr *a, const Expr *b) { return dim_binary(m, E_FLOORMOD, a, b); }
const Expr *dim_min(Module *m, const Expr *a, const Expr *b) { return dim_binary(m, E_MIN, a, b); }
const Expr *dim_max(Module *m, const Expr *a, const Expr *b) { return dim_binary(m, E_MAX, a, b); }

const Expr *dim_ceildiv(Module *m, const Expr *a, const Expr *b)
{
  return dim_floordiv(m, dim_add(m, a, dim_sub(m, b, dim_int(m, 1))), b);
}

const Expr *dim_product(Module *m, int n, const Expr *const *dim)
{
  const Expr *r = dim_int(m, 1);
  for (int i = 0; i < n; i++) r = dim_mul(m, r, dim[i]);
  return r;
}

bool dim_same(Module *m, const Expr *a, const Expr *b)
{
  if (a == b) return true;
  if (a->kind == E_INT && b->kind == E_INT) return a->u.i == b->u.i;
  if (a->kind == E_VAR && b->kind == E_VAR) return false;
  return expr_is_int(dim_sub(m, a, b), 0);
}

const Expr *dim_guard(Module *m, const Expr *cond, const Expr *dim)
{
  cond = dim_simplify(m, cond);
  if (expr_is_int(cond, 1)) return dim;
  return expr_select(m, cond, dim, expr_int(m, dim->dtype, -1));
}

const Expr *dim_require_equal(Module *m, const Expr *a, const Expr *b)
{
  const Expr *known = b->kind == E_INT ? b : a;
  if (dim_same(m, a, b)) return known;
  if (a->kind == E_INT && b->kind == E_INT) return NULL;
  return dim_guard(m, expr_binary(m, E_EQ, a, b), known);
}
