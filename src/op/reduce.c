/* reduce.c: reductions over axes.
 *
 * A reduction over no elements gives its identity: sum 0, prod 1, max the smallest value
 * of the dtype (-inf), min the largest, all true, any false; mean and variance then
 * divide 0 by 0. */
#include "op/op.h"

DEFINE_ATTRS_TABLE(Reduce, REDUCE_ATTRS)
DEFINE_ATTRS_TABLE(ArgReduce, ARG_REDUCE_ATTRS)
DEFINE_ATTRS_TABLE(Variance, VARIANCE_ATTRS)

/* The lists of attributes all begin as ReduceAttrs does. */
_Static_assert(offsetof(ArgReduceAttrs, exclude) == offsetof(ReduceAttrs, exclude),
               "reductions share their attributes");
_Static_assert(offsetof(VarianceAttrs, exclude) == offsetof(ReduceAttrs, exclude), "reductions share their attributes");

/* ---- axes ------------------------------------------------------------------------------- */

/* reduced[d]: is axis d reduced? */
static void mark_axes(OpCall *c, const ReduceAttrs *a, int ndim, bool *reduced)
{
  int axes[MAX_RANK];
  if (ndim > MAX_RANK) opdef_raise(c, ERR_UNSUPPORTED, "a tensor has at most %d dimensions, not %d", MAX_RANK, ndim);
  if (a->axis.n > ndim)
    opdef_raise(c, ERR_ARGUMENT, "%d axes for a tensor of %d dimension%s", a->axis.n, ndim, ndim == 1 ? "" : "s");
  int n = op_axes_sorted(c, a->axis, ndim, axes);
  bool all = n == 0;
  for (int d = 0; d < ndim; d++) reduced[d] = all || a->exclude;
  for (int i = 0; i < n; i++) reduced[axes[i]] = !a->exclude;
}

static const Type *reduced_type(OpCall *c, DType dtype)
{
  const Type *ty = op_tensor_arg(c, 0);
  const ReduceAttrs *a = c->attrs;
  bool reduced[MAX_RANK];
  const Expr *shape[MAX_RANK];
  mark_axes(c, a, ty->ndim, reduced);
  int n = 0;
  for (int d = 0; d < ty->ndim; d++) {
    if (!reduced[d]) shape[n++] = ty->shape[d];
    else if (a->keepdims) shape[n++] = dim_int(c->m, 1);
  }
  return type_tensor(c->m, dtype, n, shape);
}

static const Type *type_reduce(OpCall *c) { return reduced_type(c, op_tensor_arg(c, 0)->dtype); }

static const Type *type_reduce_number(OpCall *c)
{
  if (dtype_is_bool(op_tensor_arg(c, 0)->dtype))
    opdef_raise(c, ERR_TYPE, "argument 'data' is bool; a number is needed (cast it first)");
  return type_reduce(c);
}

static const Type *type_reduce_float(OpCall *c)
{
  op_tensor_arg(c, 0);
  op_need_float(c, 0);
  return type_reduce(c);
}

static const Type *type_reduce_bool(OpCall *c)
{
  op_tensor_arg(c, 0);
  op_need_bool(c, 0);
  return type_reduce(c);
}

static const Type *type_arg_reduce(OpCall *c) { return reduced_type(c, DT_I32); }

/* ---- computes ------------------------------------------------------------------------------ */

typedef struct Reading {
  OpAxes out;
  int n; /* reduced axes */
  const IterVar *over[MAX_RANK];
  const Expr *index[MAX_RANK]; /* of the input */
  const Expr *count;           /* elements reduced into one */
} Reading;

static Reading reading_of(OpCall *c, const Tensor *in)
{
  const Buffer *b = in->buffer;
  const ReduceAttrs *a = c->attrs;
  Reading r = {.out = op_out_axes(c, 0), .count = dim_int(c->m, 1)};
  bool reduced[MAX_RANK];
  mark_axes(c, a, b->ndim, reduced);
  for (int d = 0, o = 0; d < b->ndim; d++) {
    if (!reduced[d]) {
      r.index[d] = r.out.index[o++];
      continue;
    }
    if (a->keepdims) o++;
    r.over[r.n] = op_reduce_axis(c, arena_printf(scratch(c->m->ctx), "k%d", d), b->shape[d]);
    r.index[d] = r.over[r.n++]->var->expr;
    r.count = dim_mul(c->m, r.count, b->shape[d]);
  }
  return r;
}

/* Reduces values of `carried` dtype; over no axes, or no elements, there is nothing to loop over. */
static const Expr *reduced(OpCall *c, const Reading *r, const char *reducer, const Expr *x)
{
  if (r->n == 0) return x;
  if (expr_is_int(r->count, 0)) return op_reducer(c->m, reducer, x->dtype)->identity[0];
  return op_reduce(c->m, reducer, x, r->n, r->over);
}

static void reduce_compute(OpCall *c, const Tensor *const *in, const Tensor **out, const char *reducer, bool carry_wide)
{
  Reading r = reading_of(c, in[0]);
  const Expr *x = op_read(c->m, in[0], r.index);
  DType t = carry_wide ? op_sum_dtype(x->dtype) : x->dtype;
  out[0] = op_emit(c, &r.out, NULL, expr_cast(c->m, c->out->dtype, reduced(c, &r, reducer, expr_cast(c->m, t, x))));
}

static void sum_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  reduce_compute(c, in, out, "sum", true);
}
static void prod_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  reduce_compute(c, in, out, "prod", true);
}
static void max_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  reduce_compute(c, in, out, "max", false);
}
static void min_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  reduce_compute(c, in, out, "min", false);
}
static void all_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  reduce_compute(c, in, out, "all", false);
}
static void any_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  reduce_compute(c, in, out, "any", false);
}

static void mean_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Reading r = reading_of(c, in[0]);
  const Expr *x = op_read(m, in[0], r.index);
  DType t = op_sum_dtype(x->dtype);
  const Expr *sum = reduced(c, &r, "sum", expr_cast(m, t, x));
  const Expr *count = expr_cast(m, t, r.count);
  const Expr *mean = dtype_is_float(t) ? expr_binary(m, E_DIV, sum, count) : op_int_divide(m, E_DIV, sum, count);
  out[0] = op_emit(c, &r.out, NULL, expr_cast(m, x->dtype, mean));
}

#define REDUCTIONS(X)                                                                                                 \
  X(sum, type_reduce_number, NARROW_NEVER,                                                                            \
    "sum over axes; floats narrower than float32 are summed in float32; integers wrap")                               \
  X(prod, type_reduce_number, NARROW_NEVER,                                                                           \
    "product over axes; floats narrower than float32 are multiplied in float32; integers wrap")                       \
  X(mean, type_reduce_number, NARROW_NEVER,                                                                           \
    "mean over axes; of integers truncated toward zero; of nothing NaN, of no integers 0")                            \
  X(max, type_reduce, NARROW_FOLLOW, "largest element over axes; NaN if there is one; of nothing the smallest value") \
  X(min, type_reduce, NARROW_FOLLOW, "smallest element over axes; NaN if there is one; of nothing the largest value") \
  X(all, type_reduce_bool, NARROW_UNKNOWN, "true where all elements over the axes are; of nothing true")              \
  X(any, type_reduce_bool, NARROW_UNKNOWN, "true where some element over the axes is; of nothing false")

#define X(id, rule, how, text)                     \
  const OpDef op_##id = {.name = #id,              \
                         .doc = text,              \
                         .args = "data",           \
                         .min_args = 1,            \
                         .max_args = 1,            \
                         .attrs = &Reduce_attrs,   \
                         .fuse = FUSE_COMM_REDUCE, \
                         .narrow = how,            \
                         .type = rule,             \
                         .compute = id##_compute};
REDUCTIONS(X)
#undef X

/* ---- argmax and argmin --------------------------------------------------------------------------- */

/* The extreme first, NaN if there is one; then the first (or last) place where it stands.  Two plain reductions are
 * vectors throughout; one over pairs of index and value is not. */
static void arg_compute(OpCall *c, const Tensor *const *in, const Tensor **out, bool max)
{
  Module *m = c->m;
  const ArgReduceAttrs *a = c->attrs;
  Reading r = reading_of(c, in[0]);
  if (r.n == 0 || expr_is_int(r.count, 0)) {
    out[0] = op_emit(c, &r.out, NULL, expr_i32(m, 0));
    return;
  }
  const Expr *most = op_reduce(m, max ? "max" : "min", op_read(m, in[0], r.index), r.n, r.over);
  const TeOp *extreme = te_compute(m, max ? "argmax_most" : "argmin_least", "comm_reduce", r.out.ndim, r.out.shape,
                                   r.out.iter, 1, &most, NULL);
  r = reading_of(c, in[0]);
  const Expr *at = expr_i32(m, 0);
  const Expr *x = op_read(m, in[0], r.index);
  for (int i = 0; i < r.n; i++) at = expr_add(m, expr_mul(m, at, r.over[i]->extent), r.over[i]->var->expr);
  const Expr *stands = expr_binary(m, E_EQ, x, op_read(m, &extreme->out[0], r.out.index));
  if (dtype_is_float(x->dtype)) stands = expr_binary(m, E_OR, stands, expr_binary(m, E_NE, x, x));
  const Expr *nowhere = expr_int(m, at->dtype, a->select_last_index ? -1 : dtype_imax(at->dtype));
  const Expr *place =
      op_reduce(m, a->select_last_index ? "max" : "min", expr_select(m, stands, at, nowhere), r.n, r.over);
  out[0] = op_emit(c, &r.out, NULL, expr_cast(m, DT_I32, place));
}

static void argmax_compute(OpCall *c, const Tensor *const *in, const Tensor **out) { arg_compute(c, in, out, true); }
static void argmin_compute(OpCall *c, const Tensor *const *in, const Tensor **out) { arg_compute(c, in, out, false); }

const OpDef op_argmax = {
  .name = "argmax",
  .doc = "index of the largest element over axes (row major when there are several), int32; the first NaN counts as "
         "largest",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &ArgReduce_attrs,
  .fuse = FUSE_COMM_REDUCE,
  .narrow = NARROW_FOLLOW,
  .type = type_arg_reduce,
  .compute = argmax_compute,
};
const OpDef op_argmin = {
  .name = "argmin",
  .doc = "index of the smallest element over axes (row major when there are several), int32; the first NaN counts as "
         "smallest",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &ArgReduce_attrs,
  .fuse = FUSE_COMM_REDUCE,
  .narrow = NARROW_FOLLOW,
  .type = type_arg_reduce,
  .compute = argmin_compute,
};

/* ---- built from the above --------------------------------------------------------------------------- */

static const ReduceAttrs *plain_attrs(Module *m, const ReduceAttrs *from, bool keepdims)
{
  ReduceAttrs *a = attrs_new(m, &Reduce_attrs);
  *a = (ReduceAttrs){.axis = from->axis, .exclude = from->exclude, .keepdims = keepdims};
  return a;
}

/* Elements reduced into one, less one: a constant, or counted where sizes are symbolic. */
static const Node *count_less_one(Module *m, const Node *x, const Node *call)
{
  const Type *from = x->type;
  const Type *to = call->type->kind == TY_TUPLE ? call->type->field[0] : call->type;
  if (type_is_static(from) && type_is_static(to)) {
    int64_t n = type_elements(m->ctx, to);
    return op_number(m, from->dtype, n ? (double)(type_elements(m->ctx, from) / n) - 1 : -1);
  }
  const VarianceAttrs *a = call->u.call.attrs;
  const Node *count =
      op_call1(m, &op_sum, op_call1(m, &op_ones_like, x, NULL), plain_attrs(m, (const ReduceAttrs *)a, a->keepdims));
  return op_call2(m, &op_subtract, count, op_number(m, from->dtype, 1), NULL);
}

static const Node *variance_of(Module *m, const Node *call)
{
  const VarianceAttrs *a = call->u.call.attrs;
  const ReduceAttrs *base = (const ReduceAttrs *)a;
  const Node *x = call->arg[0];
  const Node *mean = op_call1(m, &op_mean, x, plain_attrs(m, base, true));
  const Node *off = op_call2(m, &op_subtract, x, mean, NULL);
  const Node *square = op_call2(m, &op_multiply, off, off, NULL);
  if (!a->unbiased) return op_call1(m, &op_mean, square, plain_attrs(m, base, a->keepdims));
  const Node *sum = op_call1(m, &op_sum, square, plain_attrs(m, base, a->keepdims));
  return op_call2(m, &op_divide, sum, count_less_one(m, x, call), NULL);
}

static const Node *std_of(Module *m, const Node *call) { return op_call1(m, &op_sqrt, variance_of(m, call), NULL); }

static const Node *with_mean(Module *m, const Node *call, const Node *second)
{
  const VarianceAttrs *a = call->u.call.attrs;
  const Node *mean = op_call1(m, &op_mean, call->arg[0], plain_attrs(m, (const ReduceAttrs *)a, a->keepdims));
  return node_tuple(m, 2, (const Node *[]){mean, second});
}

static const Node *mean_variance_of(Module *m, const Node *call) { return with_mean(m, call, variance_of(m, call)); }
static const Node *mean_std_of(Module *m, const Node *call) { return with_mean(m, call, std_of(m, call)); }

static const Type *type_two(OpCall *c)
{
  const Type *ty = type_reduce_float(c);
  return type_tuple(c->m, 2, (const Type *[]){ty, ty});
}

/* clang-format off */
#define VARIANCES(X)                                                                          \
  X(variance, type_reduce_float, NARROW_NEVER, "mean of the squared distance from the mean")                \
  X(std, type_reduce_float, NARROW_NEVER, "standard deviation: square root of the variance")                \
  X(mean_variance, type_two, NARROW_UNKNOWN, "mean and variance")                                             \
  X(mean_std, type_two, NARROW_UNKNOWN, "mean and standard deviation")
/* clang-format on */

#define X(id, rule, how, text)                     \
  const OpDef op_##id = {.name = #id,              \
                         .doc = text,              \
                         .args = "data",           \
                         .min_args = 1,            \
                         .max_args = 1,            \
                         .attrs = &Variance_attrs, \
                         .fuse = FUSE_OPAQUE,      \
                         .narrow = how,            \
                         .type = rule,             \
                         .decompose = id##_of};
VARIANCES(X)
#undef X

/* log(sum(exp(x - m))) + m with m the largest element, or 0 where that is infinite. */
static const Node *logsumexp_of(Module *m, const Node *call)
{
  const ReduceAttrs *a = call->u.call.attrs;
  const Node *x = call->arg[0];
  DType t = x->type->dtype;
  const Node *zero = op_number(m, t, 0);
  const Node *shift[2];
  for (int keep = 0; keep < 2; keep++) {
    const Node *max = op_call1(m, &op_max, x, plain_attrs(m, a, keep || a->keepdims));
    shift[keep] = op_call3(m, &op_where, op_call1(m, &op_isfinite, max, NULL), max, zero, NULL);
  }
  const Node *e = op_call1(m, &op_exp, op_call2(m, &op_subtract, x, shift[1], NULL), NULL);
  const Node *sum = op_call1(m, &op_sum, e, plain_attrs(m, a, a->keepdims));
  return op_call2(m, &op_add, op_call1(m, &op_log, sum, NULL), shift[0], NULL);
}

const OpDef op_logsumexp = {
  .name = "logsumexp",
  .doc = "log(sum(exp(x))) over axes without overflow; of nothing -inf",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Reduce_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = type_reduce_float,
  .decompose = logsumexp_of,
};
