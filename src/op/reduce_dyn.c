/* reduce_dyn.c: reductions and running sums whose axes are known only when the program runs.
 *
 * Reduced axes stay, with extent 1, so the rank is known.  For every axis d there is a loop
 * of the reduction whose extent is n_d when the axis is reduced and 1 when it is not; the
 * output's extent is the other way round, so the element read is at the sum of both. */
#include "op/op.h"

/* Is axis d among the values?  Negative ones count from the end. */
static const Expr *is_listed(Module *m, int n, const Expr *const *axis, int d, int ndim)
{
  const Expr *any = NULL;
  for (int i = 0; i < n; i++) {
    const Expr *here = expr_binary(m, E_OR, expr_binary(m, E_EQ, axis[i], dim_int(m, d)),
                                   expr_binary(m, E_EQ, axis[i], dim_int(m, d - ndim)));
    any = any ? expr_binary(m, E_OR, any, here) : here;
  }
  return any ? dim_simplify(m, any) : expr_bool(m, false);
}

static const Expr *choose(Module *m, const Expr *cond, const Expr *a, const Expr *b)
{
  return cond->kind == E_INT ? cond->u.i ? a : b : dim_simplify(m, expr_select(m, cond, a, b));
}

/* Every axis lies within the rank. */
static const Expr *all_inside(Module *m, int n, const Expr *const *axis, int ndim)
{
  const Expr *ok = expr_bool(m, true);
  for (int i = 0; i < n; i++) {
    const Expr *inside =
        expr_and(m, expr_binary(m, E_GE, axis[i], dim_int(m, -ndim)), expr_lt(m, axis[i], dim_int(m, ndim)));
    ok = expr_and(m, ok, inside);
  }
  return dim_simplify(m, ok);
}

static const Type *type_dyn_reduce(OpCall *c)
{
  const Type *ty = op_tensor_arg(c, 0);
  Module *m = c->m;
  const Expr *shape[MAX_RANK];
  int n;
  if (ty->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "a tensor has at most %d dimensions, not %d", MAX_RANK, ty->ndim);
  const Expr *const *axis = op_dims(c, 1, &n);
  const Expr *inside = all_inside(m, n, axis, ty->ndim);
  if (expr_is_int(inside, 0))
    opdef_raise(c, ERR_ARGUMENT, "an axis is outside a tensor of %d dimension%s", ty->ndim, ty->ndim == 1 ? "" : "s");
  for (int d = 0; d < ty->ndim; d++)
    shape[d] = choose(m, is_listed(m, n, axis, d, ty->ndim), dim_int(m, 1), ty->shape[d]);
  if (ty->ndim) shape[0] = dim_guard(m, inside, shape[0]);
  return type_tensor(m, ty->dtype, ty->ndim, shape);
}

static const Type *type_dyn_reduce_number(OpCall *c)
{
  if (dtype_is_bool(op_tensor_arg(c, 0)->dtype))
    opdef_raise(c, ERR_TYPE, "argument 'data' is bool; a number is needed (cast it first)");
  return type_dyn_reduce(c);
}

static const Type *type_dyn_reduce_bool(OpCall *c)
{
  op_tensor_arg(c, 0);
  op_need_bool(c, 0);
  return type_dyn_reduce(c);
}

/* count, if it is not NULL, receives the number of elements reduced into one. */
static const Expr *dyn_reduced(OpCall *c, const Tensor *in, const OpAxes *a, const char *reducer, DType carry,
                               const Expr **count)
{
  Module *m = c->m;
  const Buffer *b = in->buffer;
  const IterVar *over[MAX_RANK];
  const Expr *index[MAX_RANK];
  const Expr *total = dim_int(m, 1);
  int n;
  const Expr *const *axis = op_dims(c, 1, &n);
  for (int d = 0; d < b->ndim; d++) {
    const Expr *extent = choose(m, is_listed(m, n, axis, d, b->ndim), b->shape[d], dim_int(m, 1));
    over[d] = op_reduce_axis(c, arena_printf(scratch(m->ctx), "k%d", d), extent);
    index[d] = expr_add(m, a->index[d], over[d]->var->expr);
    total = dim_mul(m, total, extent);
  }
  const Expr *x = expr_cast(m, carry, op_read(m, in, index));
  if (count) *count = total;
  if (expr_is_int(total, 0)) return op_reducer(m, reducer, carry)->identity[0];
  return b->ndim ? op_reduce(m, reducer, x, b->ndim, over) : x;
}

static void dyn_compute(OpCall *c, const Tensor *const *in, const Tensor **out, const char *reducer, bool carry_wide)
{
  OpAxes a = op_out_axes(c, 0);
  DType t = c->out->dtype;
  out[0] = op_emit(c, &a, NULL,
                   expr_cast(c->m, t, dyn_reduced(c, in[0], &a, reducer, carry_wide ? op_sum_dtype(t) : t, NULL)));
}

static void dyn_sum_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  dyn_compute(c, in, out, "sum", true);
}
static void dyn_prod_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  dyn_compute(c, in, out, "prod", true);
}
static void dyn_max_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  dyn_compute(c, in, out, "max", false);
}
static void dyn_min_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  dyn_compute(c, in, out, "min", false);
}
static void dyn_all_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  dyn_compute(c, in, out, "all", false);
}
static void dyn_any_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  dyn_compute(c, in, out, "any", false);
}

static void dyn_mean_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  OpAxes a = op_out_axes(c, 0);
  DType t = op_sum_dtype(c->out->dtype);
  const Expr *count;
  const Expr *sum = dyn_reduced(c, in[0], &a, "sum", t, &count);
  count = expr_cast(m, t, count);
  const Expr *mean = dtype_is_float(t) ? expr_binary(m, E_DIV, sum, count) : op_int_divide(m, E_DIV, sum, count);
  out[0] = op_emit(c, &a, NULL, expr_cast(m, c->out->dtype, mean));
}

/* clang-format off */
#define DYN_REDUCTIONS(X)                                                        \
  X(sum, type_dyn_reduce_number, "sum over axes given as a tensor")              \
  X(prod, type_dyn_reduce_number, "product over axes given as a tensor")         \
  X(mean, type_dyn_reduce_number, "mean over axes given as a tensor")            \
  X(max, type_dyn_reduce, "largest element over axes given as a tensor")         \
  X(min, type_dyn_reduce, "smallest element over axes given as a tensor")        \
  X(all, type_dyn_reduce_bool, "true where all elements over axes given as a tensor are") \
  X(any, type_dyn_reduce_bool, "true where some element over axes given as a tensor is")
/* clang-format on */

#define X(id, rule, text)                                                                                  \
  const OpDef op_dyn_##id = {.name = "dyn." #id,                                                           \
                             .doc = text "; reduced axes stay with extent 1; no axes: nothing is reduced", \
                             .args = "data, axes",                                                         \
                             .min_args = 2,                                                                \
                             .max_args = 2,                                                                \
                             .fuse = FUSE_COMM_REDUCE,                                                     \
                             .type = rule,                                                                 \
                             .compute = dyn_##id##_compute};
DYN_REDUCTIONS(X)
#undef X

/* ---- running sums ------------------------------------------------------------------------------ */

/* clang-format off */
#define DYN_SCAN_ATTRS(A, S)                                               \
  A(S, BOOL, exclusive, "False", "leave the element itself out")           \
  A(S, BOOL, reverse, "False", "from the end to the start")
/* clang-format on */
DEFINE_ATTRS(DynScan, DYN_SCAN_ATTRS)

static const Type *type_dyn_scan(OpCall *c)
{
  const Type *ty = op_ranked_arg(c, 0, 1, MAX_RANK);
  int n;
  const Expr *const *axis = op_dims(c, 1, &n);
  if (dtype_is_bool(ty->dtype)) opdef_raise(c, ERR_TYPE, "argument 'data' is bool; a number is needed (cast it first)");
  if (n != 1) opdef_raise(c, ERR_SHAPE, "argument 'axis' has %d elements; one is needed", n);
  const Expr *inside = all_inside(c->m, 1, axis, ty->ndim);
  const Expr *shape[MAX_RANK];
  if (expr_is_int(inside, 0))
    opdef_raise(c, ERR_ARGUMENT, "the axis is outside a tensor of %d dimension%s", ty->ndim, ty->ndim == 1 ? "" : "s");
  for (int d = 0; d < ty->ndim; d++) shape[d] = ty->shape[d];
  shape[0] = dim_guard(c->m, inside, shape[0]);
  return type_tensor(c->m, ty->dtype, ty->ndim, shape);
}

/* All elements along the axis are looked at for each result, and those on its side count. */
static void scan_compute(OpCall *c, const Tensor *const *in, const Tensor **out, const char *reducer, double neutral)
{
  Module *m = c->m;
  const DynScanAttrs *attrs = c->attrs;
  const Buffer *b = in[0]->buffer;
  OpAxes a = op_out_axes(c, 0);
  const IterVar *over[MAX_RANK];
  const Expr *index[MAX_RANK];
  const Expr *counts = NULL;
  int n;
  const Expr *const *axis = op_dims(c, 1, &n);
  ExprKind side = attrs->reverse ? (attrs->exclusive ? E_GT : E_GE) : (attrs->exclusive ? E_LT : E_LE);
  for (int d = 0; d < b->ndim; d++) {
    const Expr *here = is_listed(m, 1, axis, d, b->ndim);
    const Expr *zero = expr_int(m, a.index[d]->dtype, 0);
    over[d] = op_reduce_axis(c, arena_printf(scratch(m->ctx), "k%d", d), choose(m, here, b->shape[d], dim_int(m, 1)));
    index[d] = expr_add(m, over[d]->var->expr,
                        here->kind == E_INT && here->u.i ? zero : expr_select(m, here, zero, a.index[d]));
    const Expr *fits = expr_binary(m, E_OR, expr_not(m, here), expr_binary(m, side, over[d]->var->expr, a.index[d]));
    counts = counts ? expr_and(m, counts, fits) : fits;
  }
  DType t = op_sum_dtype(c->out->dtype);
  const Expr *x = expr_select(m, counts, expr_cast(m, t, op_read(m, in[0], index)), op_num(m, t, neutral));
  out[0] = op_emit(c, &a, NULL, expr_cast(m, c->out->dtype, op_reduce(m, reducer, x, b->ndim, over)));
}

static void dyn_cumsum_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  scan_compute(c, in, out, "sum", 0);
}
static void dyn_cumprod_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  scan_compute(c, in, out, "prod", 1);
}

const OpDef op_dyn_cumsum = {
  .name = "dyn.cumsum",
  .doc = "running sums along an axis given as a tensor; takes time with the square of its extent",
  .args = "data, axis",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynScan_attrs,
  .fuse = FUSE_COMM_REDUCE,
  .type = type_dyn_scan,
  .compute = dyn_cumsum_compute,
};
const OpDef op_dyn_cumprod = {
  .name = "dyn.cumprod",
  .doc = "running products along an axis given as a tensor; takes time with the square of its extent",
  .args = "data, axis",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynScan_attrs,
  .fuse = FUSE_COMM_REDUCE,
  .type = type_dyn_scan,
  .compute = dyn_cumprod_compute,
};
