/* rules.c: what type rules share: checks of arguments, broadcasting, shape operands.
 *
 * Comes in: the call with its arguments' types.  Goes out: types, or an error that
 * names the operator, the argument and both values. */
#include "op/op.h"

#include <math.h>

static Arena *tmp(OpCall *c) { return scratch(c->m->ctx); }
static const char *dtype_text(OpCall *c, DType t) { return dtype_name(tmp(c), t); }

/* ---- arguments ------------------------------------------------------------------------- */

const char *op_arg_name(OpCall *c, int i)
{
  const char *p = c->op->args;
  for (int k = 0; k < i && p; k++) {
    p = strchr(p, ',');
    if (p) p += strspn(p, ", ");
  }
  return p ? arena_strndup(tmp(c), p, strcspn(p, ", ")) : arena_printf(tmp(c), "%d", i);
}

const Type *op_tensor_arg(OpCall *c, int i)
{
  const Type *ty = c->arg[i];
  if (ty->kind != TY_TENSOR)
    opdef_raise(c, ERR_TYPE, "argument '%s' is %s, not a tensor", op_arg_name(c, i), type_text(tmp(c), ty));
  if (ty->ndim < 0)
    opdef_raise(c, ERR_UNSUPPORTED, "argument '%s' is %s: its rank must be known", op_arg_name(c, i),
                type_text(tmp(c), ty));
  if (ty->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "argument '%s' has %d dimensions; there are at most %d", op_arg_name(c, i),
                ty->ndim, MAX_RANK);
  return ty;
}

const Type *op_ranked_arg(OpCall *c, int i, int lo, int hi)
{
  const Type *ty = op_tensor_arg(c, i);
  if (ty->ndim >= lo && ty->ndim <= hi) return ty;
  const char *want = lo == hi          ? arena_printf(tmp(c), "%d", lo)
                     : hi == INT32_MAX ? arena_printf(tmp(c), "at least %d", lo)
                                       : arena_printf(tmp(c), "%d to %d", lo, hi);
  opdef_raise(c, ERR_SHAPE, "argument '%s' is %s: it must have %s dimension%s, not %d", op_arg_name(c, i),
              type_text(tmp(c), ty), want, lo == hi && lo == 1 ? "" : "s", ty->ndim);
}

int op_tuple_arg(OpCall *c, int i)
{
  const Type *ty = c->arg[i];
  if (ty->kind != TY_TUPLE)
    opdef_raise(c, ERR_TYPE, "argument '%s' is %s, not a tuple of tensors", op_arg_name(c, i), type_text(tmp(c), ty));
  for (int k = 0; k < ty->nfield; k++) {
    const Type *f = ty->field[k];
    if (f->kind != TY_TENSOR || f->ndim < 0 || f->ndim > MAX_RANK)
      opdef_raise(c, ERR_TYPE, "field %d of argument '%s' is %s, not a tensor of known rank", k, op_arg_name(c, i),
                  type_text(tmp(c), f));
  }
  return ty->nfield;
}

void op_same_dtype(OpCall *c, int i, int k)
{
  if (dtype_eq(c->arg[i]->dtype, c->arg[k]->dtype)) return;
  opdef_raise(c, ERR_TYPE, "argument '%s' is %s, '%s' is %s; cast one of them", op_arg_name(c, i),
              dtype_text(c, c->arg[i]->dtype), op_arg_name(c, k), dtype_text(c, c->arg[k]->dtype));
}

_Noreturn static void wrong_dtype(OpCall *c, int i, const char *want)
{
  opdef_raise(c, ERR_TYPE, "argument '%s' is %s; %s is needed", op_arg_name(c, i), dtype_text(c, c->arg[i]->dtype),
              want);
}

void op_need_float(OpCall *c, int i)
{
  if (!dtype_is_float(c->arg[i]->dtype)) wrong_dtype(c, i, "a float");
}

void op_need_int(OpCall *c, int i)
{
  if (!dtype_is_int(c->arg[i]->dtype)) wrong_dtype(c, i, "an integer");
}

void op_need_bool(OpCall *c, int i)
{
  if (!dtype_is_bool(c->arg[i]->dtype)) wrong_dtype(c, i, "bool");
}

int op_axis(OpCall *c, int64_t axis, int ndim)
{
  if (axis < -ndim || axis >= ndim)
    opdef_raise(c, ERR_ARGUMENT, "axis %" PRId64 " is outside a tensor of %d dimension%s", axis, ndim,
                ndim == 1 ? "" : "s");
  return (int)(axis < 0 ? axis + ndim : axis);
}

int op_axes_sorted(OpCall *c, AttrInts axes, int ndim, int *out)
{
  int n = 0;
  for (int i = 0; i < axes.n; i++) {
    int a = op_axis(c, axes.v[i], ndim);
    int k = n;
    for (int j = 0; j < n; j++)
      if (out[j] == a) opdef_raise(c, ERR_ARGUMENT, "axis %d is listed twice", a);
    for (; k > 0 && out[k - 1] > a; k--) out[k] = out[k - 1];
    out[k] = a;
    n++;
  }
  return n;
}

/* ---- dimensions that must fit -------------------------------------------------------------- */

const Expr *op_equal_dim(OpCall *c, const Expr *a, const Expr *b, const char *what)
{
  const Expr *r = dim_require_equal(c->m, a, b);
  if (!r) opdef_raise(c, ERR_SHAPE, "%s differ: %s and %s", what, expr_str_of(tmp(c), a), expr_str_of(tmp(c), b));
  return r;
}

/* The shape that made the trouble, for messages. */
static const char *shapes_text(OpCall *c)
{
  Text t = text_new(tmp(c));
  for (int i = 0; i < c->nargs; i++)
    text_printf(&t, "%s'%s' is %s", i ? ", " : "", op_arg_name(c, i), type_text(tmp(c), c->arg[i]));
  return text_str(&t);
}

/* a and b are the sizes that meet in the expression that broadcast_sizes makes. */
static bool meets(const Expr *e, const Expr *dim)
{
  if (e->kind != E_SELECT || e->arg[0]->kind != E_OR) return false;
  const Expr *eq = e->arg[0]->arg[0];
  return eq->kind == E_EQ && (eq->arg[0] == dim || eq->arg[1] == dim);
}

/* a == b or b == 1: a;  a == 1: b;  else -1. */
/* Where a is 1, is b (say min(a, 512)) 1 as well?  Then a is the result whenever they fit. */
static bool one_together(Module *m, const Expr *a, const Expr *b)
{
  return a->kind == E_VAR &&
         expr_is_int(dim_simplify(m, expr_substitute1(m, b, a->u.var, expr_int(m, a->dtype, 1))), 1);
}

static const Expr *broadcast_sizes(Module *m, const Expr *a, const Expr *b)
{
  if (meets(a, b)) return a;
  if (meets(b, a)) return b;
  for (int swap = 0; swap < 2; swap++) {
    const Expr *x = swap ? b : a;
    const Expr *y = swap ? a : b;
    if (!one_together(m, x, y)) continue;
    const Expr *fits =
        expr_binary(m, E_OR, expr_binary(m, E_EQ, x, y), expr_binary(m, E_EQ, y, expr_int(m, y->dtype, 1)));
    return dim_guard(m, fits, x);
  }
  if (b->kind == E_INT || (a->kind != E_INT && b->id < a->id)) {
    const Expr *t = a;
    a = b;
    b = t;
  }
  const Expr *one = expr_int(m, b->dtype, 1);
  const Expr *none = dim_int(m, -1);
  const Expr *fits = expr_binary(m, E_OR, expr_binary(m, E_EQ, a, b), expr_binary(m, E_EQ, b, one));
  if (a->kind == E_INT) return expr_select(m, fits, a, none);
  return expr_select(m, fits, a, expr_select(m, expr_binary(m, E_EQ, a, expr_int(m, a->dtype, 1)), b, none));
}

const Expr *op_broadcast_dim(OpCall *c, const Expr *a, const Expr *b)
{
  if (expr_is_int(a, 1)) return b;
  if (expr_is_int(b, 1) || dim_same(c->m, a, b)) return a;
  /* of three arguments, the first two may have met under a guard */
  const Expr *x = type_dim_unguarded(a);
  const Expr *y = type_dim_unguarded(b);
  if (x->kind == E_INT && y->kind == E_INT && x->u.i != y->u.i && x->u.i != 1 && y->u.i != 1)
    opdef_raise(c, ERR_SHAPE, "dimensions %" PRId64 " and %" PRId64 " do not broadcast: %s", x->u.i, y->u.i,
                shapes_text(c));
  return broadcast_sizes(c->m, a, b);
}

int op_broadcast_shape(OpCall *c, int na, const Expr *const *a, int nb, const Expr *const *b, const Expr **out)
{
  int n = na > nb ? na : nb;
  if (n > MAX_RANK) opdef_raise(c, ERR_UNSUPPORTED, "a tensor has at most %d dimensions, not %d", MAX_RANK, n);
  for (int i = n - 1; i >= 0; i--) {
    int ia = i - (n - na);
    int ib = i - (n - nb);
    out[i] = ia < 0 ? b[ib] : ib < 0 ? a[ia] : op_broadcast_dim(c, a[ia], b[ib]);
  }
  return n;
}

/* ---- type rules ------------------------------------------------------------------------------- */

const Type *op_type_same(OpCall *c)
{
  const Type *ty = op_tensor_arg(c, 0);
  return type_tensor(c->m, ty->dtype, ty->ndim, ty->shape);
}

const Type *op_type_same_float(OpCall *c)
{
  op_tensor_arg(c, 0);
  op_need_float(c, 0);
  return op_type_same(c);
}

const Type *op_type_same_bool(OpCall *c)
{
  const Type *ty = op_tensor_arg(c, 0);
  return type_tensor(c->m, DT_BOOL, ty->ndim, ty->shape);
}

static const Type *broadcast_of(OpCall *c, DType result)
{
  const Expr *shape[MAX_RANK], *next[MAX_RANK];
  int ndim = 0;
  for (int i = 0; i < c->nargs; i++) {
    const Type *ty = op_tensor_arg(c, i);
    op_same_dtype(c, 0, i);
    ndim = op_broadcast_shape(c, ndim, shape, ty->ndim, ty->shape, next);
    memcpy(shape, next, (size_t)ndim * sizeof *shape);
  }
  return type_tensor(c->m, result, ndim, shape);
}

const Type *op_type_broadcast(OpCall *c) { return broadcast_of(c, op_tensor_arg(c, 0)->dtype); }
const Type *op_type_compare(OpCall *c) { return broadcast_of(c, DT_BOOL); }

/* ---- shape operands ------------------------------------------------------------------------------ */

const Expr *const *op_values(OpCall *c, int i, int *n)
{
  op_ranked_arg(c, i, 0, 1);
  const Expr *const *v = c->node ? graph_values(c->m, c->node[i], n) : NULL;
  if (!v)
    opdef_raise(c, ERR_UNSUPPORTED, "argument '%s' is %s: how many elements it has must be known", op_arg_name(c, i),
                type_text(tmp(c), c->arg[i]));
  return v;
}

const Expr *const *op_dims(OpCall *c, int i, int *n)
{
  op_tensor_arg(c, i);
  op_need_int(c, i);
  const Expr *const *v = op_values(c, i, n);
  const Expr **dims = arena_array(c->m->arena, const Expr *, *n);
  for (int k = 0; k < *n; k++) dims[k] = dim_of_value(c->m, v[k]);
  return dims;
}

bool op_const_ints(OpCall *c, int i, int *n, const int64_t **out)
{
  op_tensor_arg(c, i);
  op_need_int(c, i);
  const Expr *const *v = op_values(c, i, n);
  int64_t *values = arena_array(c->m->arena, int64_t, *n);
  for (int k = 0; k < *n; k++) {
    const Expr *e = v[k]->kind == E_INT ? v[k] : dim_of_value(c->m, v[k]);
    if (e->kind != E_INT) return false;
    values[k] = e->u.i;
  }
  *out = values;
  return true;
}
