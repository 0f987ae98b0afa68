/* shape_reshape.c: the same elements under another shape: reshape, squeeze, expand_dims
 * and their run-time forms; shape_of and ndarray_size.
 *
 * A new shape comes as an attribute (dimensions, maybe symbolic) or as an operand, whose
 * elements are expressions (op_values).  Both go through new_dims, so the codes mean the
 * same.  A run-time element may be a code too, which the output's dimension says as a
 * choice: select(v == -1, rest, select(v == 0, input's, v)). */
#include "op/shape.h"

DEFINE_ATTRS_TABLE(Reshape, RESHAPE_ATTRS)
DEFINE_ATTRS_TABLE(Squeeze, SQUEEZE_ATTRS)
DEFINE_ATTRS_TABLE(ExpandDims, EXPAND_DIMS_ATTRS)
DEFINE_ATTRS_TABLE(ShapeOf, SHAPE_OF_ATTRS)

static void view_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  out[0] = op_emit_reshape(c, "T_reshape", in[0], c->out->ndim, c->out->shape);
}

/* ---- reshape ------------------------------------------------------------------------------ */

typedef struct NewShape {
  OpCall *c;
  const Type *in;
  bool allowzero;
  int n, infer; /* infer: the output dimension -1 stands for, or -1 */
  int next;     /* the input dimension that the next code speaks of */
  const Expr **dim;
} NewShape;

static const Expr *take_dim(NewShape *s, int64_t code)
{
  if (s->next >= s->in->ndim)
    opdef_raise(s->c, ERR_SHAPE, "newshape has the code %" PRId64 " where %s has no dimension left", code,
                op_arg_text(s->c, 0));
  return s->in->shape[s->next++];
}

/* -4: one dimension into the two that follow, one of which may be -1. */
static void split_dim(NewShape *s, const Expr *a, const Expr *b)
{
  const Expr *whole = take_dim(s, -4);
  if (expr_is_int(a, -1) && expr_is_int(b, -1))
    opdef_raise(s->c, ERR_SHAPE, "newshape: only one of the two dimensions after -4 may be -1");
  if (expr_is_int(a, -1)) a = dim_floordiv(s->c->m, whole, b);
  else if (expr_is_int(b, -1)) b = dim_floordiv(s->c->m, whole, a);
  if (dim_differ(dim_mul(s->c->m, a, b), whole))
    opdef_raise(s->c, ERR_SHAPE, "newshape parts the dimension %s into %s and %s", expr_str_of(s->c->m->arena, whole),
                expr_str_of(s->c->m->arena, a), expr_str_of(s->c->m->arena, b));
  s->dim[s->n++] = a;
  s->dim[s->n++] = b;
}

/* dim where a == b, else -1: a size that does not fit (op.h). */
static const Expr *fitting(Module *m, const Expr *a, const Expr *b, const Expr *dim)
{
  if (dim_same(m, a, b)) return dim;
  return dim_simplify(m, expr_select(m, expr_binary(m, E_EQ, a, b), dim, expr_int(m, dim->dtype, -1)));
}

/* Input elements over the product of the output's other dimensions.  Sizes that occur on
 * both sides go first, so that a symbolic one divides exactly. */
static const Expr *rest_dim(NewShape *s, const Expr *const *other)
{
  Module *m = s->c->m;
  bool *used = arena_array(m->arena, bool, s->in->ndim);
  const Expr *above = dim_int(m, 1);
  const Expr *below = dim_int(m, 1);
  for (int i = 0; i < s->n; i++) {
    if (!other[i]) continue;
    int hit = -1;
    for (int k = 0; k < s->in->ndim && hit < 0 && other[i]->kind != E_INT; k++)
      if (!used[k] && dim_same(m, s->in->shape[k], other[i])) hit = k;
    if (hit >= 0) used[hit] = true;
    else below = dim_mul(m, below, other[i]);
  }
  for (int k = 0; k < s->in->ndim; k++)
    if (!used[k]) above = dim_mul(m, above, s->in->shape[k]);
  if (expr_is_int(below, 0)) {
    if (!expr_is_int(dim_product(m, s->in->ndim, s->in->shape), 0))
      opdef_raise(s->c, ERR_SHAPE, "cannot infer -1 in %s: %s has elements, the other dimensions have none",
                  op_dims_text(s->c, s->n, s->dim), op_arg_text(s->c, 0));
    return dim_int(m, 0);
  }
  if (above->kind == E_INT && below->kind == E_INT && above->u.i % below->u.i)
    opdef_raise(s->c, ERR_SHAPE,
                "%s has %" PRId64 " elements, which the other dimensions' %" PRId64
                " do not divide; the shape wanted is %s",
                op_arg_text(s->c, 0), above->u.i, below->u.i, op_dims_text(s->c, s->n, s->dim));
  const Expr *rest = dim_floordiv(m, above, below->kind == E_INT ? below : dim_max(m, below, dim_int(m, 1)));
  return fitting(m, dim_mul(m, rest, below), above, rest);
}

/* A dimension given as an expression that may turn out to be a code at run time. */
static bool may_be_code(NewShape *s, const Expr *v) { return v->kind != E_INT && !dim_never_negative(s->c->m, v); }

static const Expr *choose(Module *m, const Expr *v, int64_t code, const Expr *then, const Expr *otherwise)
{
  DType t = expr_add(m, then, otherwise)->dtype;
  const Expr *cond = expr_binary(m, E_EQ, v, expr_int(m, v->dtype, code));
  return dim_simplify(m, expr_select(m, cond, expr_cast(m, t, then), expr_cast(m, t, otherwise)));
}

/* Second round over run-time elements: what stands at -1 is what the others leave. */
static void infer_at_run_time(NewShape *s)
{
  Module *m = s->c->m;
  const Expr **with_rest = arena_array(m->arena, const Expr *, s->n);
  for (int i = 0; i < s->n; i++) {
    with_rest[i] = s->dim[i];
    const Expr *v = s->dim[i];
    while (v->kind == E_SELECT) v = v->arg[2];
    if (!may_be_code(s, v)) continue;
    const Expr **other = op_emit_copy_index(m, s->n, s->dim);
    other[i] = NULL;
    with_rest[i] = choose(m, v, -1, rest_dim(s, other), s->dim[i]);
  }
  for (int i = 0; i < s->n; i++) s->dim[i] = with_rest[i];
}

static void put_dim(NewShape *s, const Expr *const *v, int n, int *k)
{
  Module *m = s->c->m;
  const Expr *e = v[*k];
  if (e->kind != E_INT) {
    const Expr *same = s->next < s->in->ndim ? s->in->shape[s->next] : NULL;
    s->dim[s->n++] = same && !s->allowzero && may_be_code(s, e) ? choose(m, e, 0, same, e) : e;
    s->next++;
  } else if (e->u.i > 0 || (e->u.i == 0 && s->allowzero)) {
    s->dim[s->n++] = e;
    s->next++;
  } else if (e->u.i == 0) {
    s->dim[s->n++] = take_dim(s, 0);
  } else if (e->u.i == -1) {
    if (s->infer >= 0)
      opdef_raise(s->c, ERR_SHAPE, "newshape %s has -1 twice; only one dimension can be inferred",
                  op_dims_text(s->c, n, v));
    s->infer = s->n;
    s->dim[s->n++] = e;
    s->next++;
  } else if (e->u.i == -2) {
    while (s->next < s->in->ndim) s->dim[s->n++] = take_dim(s, -2);
  } else if (e->u.i == -3) {
    const Expr *a = take_dim(s, -3);
    s->dim[s->n++] = dim_mul(m, a, take_dim(s, -3));
  } else if (e->u.i == -4) {
    if (*k + 2 >= n)
      opdef_raise(s->c, ERR_SHAPE, "newshape %s: two dimensions must follow -4", op_dims_text(s->c, n, v));
    split_dim(s, v[*k + 1], v[*k + 2]);
    *k += 2;
  } else {
    opdef_raise(s->c, ERR_SHAPE, "newshape %s has the code %" PRId64 "; there are 0, -1, -2, -3 and -4",
                op_dims_text(s->c, n, v), e->u.i);
  }
}

static const Type *reshaped(OpCall *c, const Type *in, int n, const Expr *const *v, bool allowzero, bool run_time)
{
  Module *m = c->m;
  NewShape s = {.c = c, .in = in, .allowzero = allowzero, .infer = -1};
  s.dim = arena_array(m->arena, const Expr *, 2 * n + in->ndim + 2);
  for (int k = 0; k < n; k++) put_dim(&s, v, n, &k);
  op_check_rank(c, s.n);
  if (s.infer >= 0) {
    const Expr **other = op_emit_copy_index(m, s.n, s.dim);
    other[s.infer] = NULL;
    s.dim[s.infer] = rest_dim(&s, other);
  } else if (run_time) {
    infer_at_run_time(&s);
  }
  const Expr *had = dim_product(m, in->ndim, in->shape);
  const Expr *got = dim_product(m, s.n, s.dim);
  if (dim_differ(had, got))
    opdef_raise(c, ERR_SHAPE, "%s has %" PRId64 " elements, the shape %s wants %" PRId64, type_text(m->arena, in),
                had->u.i, op_dims_text(c, s.n, s.dim), got->u.i);
  if (s.n && s.infer < 0) s.dim[0] = fitting(m, had, got, s.dim[0]);
  return type_tensor(m, in->dtype, s.n, s.dim);
}

static const Type *reshape_type(OpCall *c)
{
  const ReshapeAttrs *a = c->attrs;
  return reshaped(c, op_tensor_arg(c, 0), a->newshape.n, a->newshape.v, a->allowzero, false);
}

const OpDef op_reshape = {
  .name = "reshape",
  .doc = "the same elements in another shape",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Reshape_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_VIEW | OPF_STRING,
  .type = reshape_type,
  .compute = view_compute,
};

/* The codes read from the right, as MXNet has it. */
static const Type *reverse_reshape_type(OpCall *c)
{
  const ReshapeAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int n = a->newshape.n;
  const Expr **dim = arena_array(c->m->arena, const Expr *, n);
  const Expr **shape = arena_array(c->m->arena, const Expr *, in->ndim);
  for (int i = 0; i < n; i++) dim[i] = a->newshape.v[n - 1 - i];
  for (int i = 0; i + 2 < n; i++)
    if (expr_is_int(a->newshape.v[i], -4)) { /* -4 stays before its two, which turn round with the rest */
      dim[n - 3 - i] = a->newshape.v[i];
      dim[n - 2 - i] = a->newshape.v[i + 2];
      dim[n - 1 - i] = a->newshape.v[i + 1];
      i += 2;
    }
  for (int i = 0; i < in->ndim; i++) shape[i] = in->shape[in->ndim - 1 - i];
  const Type *turned = reshaped(c, type_tensor(c->m, in->dtype, in->ndim, shape), n, dim, a->allowzero, false);
  const Expr **out = arena_array(c->m->arena, const Expr *, turned->ndim);
  for (int i = 0; i < turned->ndim; i++) out[i] = turned->shape[turned->ndim - 1 - i];
  return type_tensor(c->m, in->dtype, turned->ndim, out);
}

const OpDef op_reverse_reshape = {
  .name = "contrib_reverse_reshape",
  .doc = "reshape whose codes are read from the right",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Reshape_attrs,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_VIEW | OPF_STRING,
  .type = reverse_reshape_type,
  .compute = view_compute,
};

#define DYN_RESHAPE_ATTRS(A, S) A(S, BOOL, allowzero, "False", "0 means a dimension of extent 0")
DEFINE_ATTRS(DynReshape, DYN_RESHAPE_ATTRS)

static const Type *dyn_reshape_type(OpCall *c)
{
  const DynReshapeAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int n;
  op_int_tensor_arg(c, 1);
  const Expr *const *dim = op_dims(c, 1, &n);
  return reshaped(c, in, n, dim, a->allowzero, true);
}

const OpDef op_dyn_reshape = {
  .name = "dyn.reshape",
  .doc = "reshape to a shape known only at run time",
  .args = "data, newshape",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynReshape_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_VIEW | OPF_STRING,
  .type = dyn_reshape_type,
  .compute = view_compute,
};

/* clang-format off */
#define RESHAPE_LIKE_ATTRS(A, S)                                                 \
  A(S, INT, lhs_begin, "0", "first dimension of data to replace")                \
  A(S, INTS, lhs_end, "None", "dimension after the last to replace; None: all")  \
  A(S, INT, rhs_begin, "0", "first dimension of shape_like to put there")        \
  A(S, INTS, rhs_end, "None", "dimension after the last to put there; None: all")
/* clang-format on */
DEFINE_ATTRS(ReshapeLike, RESHAPE_LIKE_ATTRS)

static int like_bound(OpCall *c, int64_t v, int ndim)
{
  int64_t at = v < 0 ? v + ndim : v;
  if (at < 0 || at > ndim)
    opdef_raise(c, ERR_ARGUMENT, "the bound %" PRId64 " is outside of the %d dimensions", v, ndim);
  return (int)at;
}

static const Type *reshape_like_type(OpCall *c)
{
  const ReshapeLikeAttrs *a = c->attrs;
  const Type *x = op_tensor_arg(c, 0);
  const Type *like = op_tensor_arg(c, 1);
  int lb = like_bound(c, a->lhs_begin, x->ndim);
  int le = a->lhs_end.given && a->lhs_end.n ? like_bound(c, a->lhs_end.v[0], x->ndim) : x->ndim;
  int rb = like_bound(c, a->rhs_begin, like->ndim);
  int re = a->rhs_end.given && a->rhs_end.n ? like_bound(c, a->rhs_end.v[0], like->ndim) : like->ndim;
  if (le < lb || re < rb)
    opdef_raise(c, ERR_ARGUMENT, "the dimensions [%d, %d) and [%d, %d) must not end before they begin", lb, le, rb, re);
  const Expr **dim = arena_array(c->m->arena, const Expr *, x->ndim + like->ndim);
  int n = 0;
  for (int i = 0; i < lb; i++) dim[n++] = x->shape[i];
  for (int i = rb; i < re; i++) dim[n++] = like->shape[i];
  for (int i = le; i < x->ndim; i++) dim[n++] = x->shape[i];
  return reshaped(c, x, n, dim, true, false);
}

const OpDef op_reshape_like = {
  .name = "reshape_like",
  .doc = "the elements of data in the shape of shape_like",
  .args = "data, shape_like",
  .min_args = 2,
  .max_args = 2,
  .attrs = &ReshapeLike_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_VIEW | OPF_STRING,
  .type = reshape_like_type,
  .compute = view_compute,
};

/* ---- squeeze, expand_dims ------------------------------------------------------------------- */

static const Type *squeezed(OpCall *c, bool given, int n, const int64_t *axis)
{
  const Type *in = op_tensor_arg(c, 0);
  bool *drop = arena_array(c->m->arena, bool, in->ndim);
  for (int i = 0; i < n; i++) {
    int d = op_axis(c, axis[i], in->ndim);
    if (dim_differ(in->shape[d], dim_int(c->m, 1)))
      opdef_raise(c, ERR_SHAPE, "axis %d of %s has extent %" PRId64 "; only an axis of extent 1 can be squeezed", d,
                  op_arg_text(c, 0), in->shape[d]->u.i);
    drop[d] = true;
  }
  for (int i = 0; !given && i < in->ndim; i++) drop[i] = expr_is_int(in->shape[i], 1);
  const Expr **dim = arena_array(c->m->arena, const Expr *, in->ndim);
  int k = 0;
  for (int i = 0; i < in->ndim; i++)
    if (!drop[i]) dim[k++] = in->shape[i];
  for (int i = 0; k && i < in->ndim; i++) /* what is dropped must be 1 at run time too */
    if (drop[i]) dim[0] = fitting(c->m, in->shape[i], dim_int(c->m, 1), dim[0]);
  return type_tensor(c->m, in->dtype, k, dim);
}

static const Type *squeeze_type(OpCall *c)
{
  const SqueezeAttrs *a = c->attrs;
  return squeezed(c, a->axis.given, a->axis.n, a->axis.v);
}

const OpDef op_squeeze = {
  .name = "squeeze",
  .doc = "drops axes of extent 1",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Squeeze_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_VIEW | OPF_STRING,
  .type = squeeze_type,
  .compute = view_compute,
};

/* Axes known only at run time.  Their number is known, so the rank is; a dimension is a
 * choice over where the axes turn out to stand.  at[k] is axis k counted from 0. */
typedef struct RunTimeAxes {
  Module *m;
  int n;
  const Expr **at;
} RunTimeAxes;

static RunTimeAxes run_time_axes(OpCall *c, int i, int rank)
{
  RunTimeAxes a = {.m = c->m};
  op_int_tensor_arg(c, i);
  const Expr *const *v = op_dims(c, i, &a.n);
  a.at = arena_array(c->m->arena, const Expr *, a.n);
  for (int k = 0; k < a.n; k++) a.at[k] = op_emit_from_end(c->m, v[k], dim_int(c->m, rank));
  return a;
}

static const Expr *is_listed(const RunTimeAxes *a, int axis)
{
  const Expr *any = expr_bool(a->m, false);
  for (int k = 0; k < a->n; k++)
    any = expr_binary(a->m, E_OR, any, expr_binary(a->m, E_EQ, a->at[k], expr_i32(a->m, axis)));
  return any;
}

static const Expr *listed_before(const RunTimeAxes *a, int axis)
{
  const Expr *sum = expr_i32(a->m, 0);
  for (int k = 0; k < a->n; k++)
    sum = expr_add(a->m, sum, expr_cast(a->m, DT_I32, expr_lt(a->m, a->at[k], expr_i32(a->m, axis))));
  return sum;
}

static const Expr *pick_dim(Module *m, const Expr *cond, const Expr *a, const Expr *b)
{
  return dim_simplify(m, expr_select(m, cond, expr_cast(m, DT_I32, a), expr_cast(m, DT_I32, b)));
}

/* Output axis j is input axis i where i is not listed and i - (listed before i) == j. */
static const Type *squeezed_at_run_time(OpCall *c)
{
  Module *m = c->m;
  const Type *in = op_tensor_arg(c, 0);
  RunTimeAxes a = run_time_axes(c, 1, in->ndim);
  if (a.n > in->ndim) opdef_raise(c, ERR_SHAPE, "%d axes to squeeze, %s has %d", a.n, op_arg_text(c, 0), in->ndim);
  const Expr *dim[MAX_RANK];
  for (int j = 0; j < in->ndim - a.n; j++) {
    dim[j] = dim_int(m, -1);
    for (int i = j + a.n; i >= j; i--) {
      const Expr *here = expr_binary(m, E_EQ, listed_before(&a, i), expr_i32(m, i - j));
      dim[j] = pick_dim(m, expr_and(m, expr_not(m, is_listed(&a, i)), here), in->shape[i], dim[j]);
    }
  }
  int n = in->ndim - a.n;
  if (n) dim[0] = fitting(m, dim_product(m, in->ndim, in->shape), dim_product(m, n, dim), dim[0]);
  return type_tensor(m, in->dtype, n, dim);
}

static const Type *dyn_squeeze_type(OpCall *c)
{
  int n;
  const int64_t *axis;
  op_int_tensor_arg(c, 1);
  return op_const_ints(c, 1, &n, &axis) ? squeezed(c, true, n, axis) : squeezed_at_run_time(c);
}

const OpDef op_dyn_squeeze = {
  .name = "dyn.squeeze",
  .doc = "squeeze with its axes as an operand",
  .args = "data, axis",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_VIEW | OPF_STRING,
  .type = dyn_squeeze_type,
  .compute = view_compute,
};

static const Type *expanded(OpCall *c, int64_t axis, int64_t count)
{
  const Type *in = op_tensor_arg(c, 0);
  if (count < 0 || count > 64) opdef_raise(c, ERR_ARGUMENT, "num_newaxis is %" PRId64 "; it is from 0 to 64", count);
  int64_t at = axis < 0 ? axis + in->ndim + 1 : axis;
  if (at < 0 || at > in->ndim)
    opdef_raise(c, ERR_ARGUMENT, "axis %" PRId64 " is outside [-%d, %d] for %s", axis, in->ndim + 1, in->ndim,
                op_arg_text(c, 0));
  op_check_rank(c, in->ndim + (int)count);
  const Expr **dim = arena_array(c->m->arena, const Expr *, in->ndim + (int)count);
  int k = 0;
  for (int i = 0; i < (int)at; i++) dim[k++] = in->shape[i];
  for (int i = 0; i < (int)count; i++) dim[k++] = dim_int(c->m, 1);
  for (int i = (int)at; i < in->ndim; i++) dim[k++] = in->shape[i];
  return type_tensor(c->m, in->dtype, k, dim);
}

static const Type *expand_dims_type(OpCall *c)
{
  const ExpandDimsAttrs *a = c->attrs;
  return expanded(c, a->axis, a->num_newaxis);
}

const OpDef op_expand_dims = {
  .name = "expand_dims",
  .doc = "puts in axes of extent 1",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &ExpandDims_attrs,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_VIEW | OPF_STRING,
  .type = expand_dims_type,
  .compute = view_compute,
};

#define DYN_EXPAND_DIMS_ATTRS(A, S) A(S, INT, num_newaxis, "1", "how many")
DEFINE_ATTRS(DynExpandDims, DYN_EXPAND_DIMS_ATTRS)

/* Output axis i is 1 where it is listed, else input axis i - (listed before i). */
static const Type *expanded_at_run_time(OpCall *c)
{
  Module *m = c->m;
  const Type *in = op_tensor_arg(c, 0);
  int count, rank;
  op_values(c, 1, &count);
  rank = in->ndim + count;
  op_check_rank(c, rank);
  RunTimeAxes a = run_time_axes(c, 1, rank);
  const Expr *dim[MAX_RANK];
  for (int i = 0; i < rank; i++) {
    dim[i] = dim_int(m, -1);
    for (int j = i < in->ndim ? i : in->ndim - 1; j >= 0 && j >= i - a.n; j--)
      dim[i] = pick_dim(m, expr_binary(m, E_EQ, listed_before(&a, i), expr_i32(m, i - j)), in->shape[j], dim[i]);
    dim[i] = pick_dim(m, is_listed(&a, i), dim_int(m, 1), dim[i]);
  }
  if (rank) dim[0] = fitting(m, dim_product(m, in->ndim, in->shape), dim_product(m, rank, dim), dim[0]);
  return type_tensor(m, in->dtype, rank, dim);
}

/* Several axes, as ONNX's Unsqueeze has them, are positions in the result. */
static const Type *expanded_by_list(OpCall *c, int n, const int64_t *axis)
{
  const Type *in = op_tensor_arg(c, 0);
  const Expr *dim[MAX_RANK] = {NULL};
  op_check_rank(c, in->ndim + n);
  for (int k = 0; k < n; k++) {
    int d = op_axis(c, axis[k], in->ndim + n);
    if (dim[d]) opdef_raise(c, ERR_ARGUMENT, "axis names axis %d twice", d);
    dim[d] = dim_int(c->m, 1);
  }
  for (int i = 0, j = 0; i < in->ndim + n; i++)
    if (!dim[i]) dim[i] = in->shape[j++];
  return type_tensor(c->m, in->dtype, in->ndim + n, dim);
}

static const Type *dyn_expand_dims_type(OpCall *c)
{
  const DynExpandDimsAttrs *a = c->attrs;
  int n;
  const int64_t *axis;
  op_int_tensor_arg(c, 1);
  bool known = op_const_ints(c, 1, &n, &axis);
  if (known && n == 1) return expanded(c, axis[0], a->num_newaxis);
  if (a->num_newaxis != 1)
    opdef_raise(c, ERR_UNSUPPORTED,
                "num_newaxis is %" PRId64 "; with several axes, or one known only at run time, it is 1",
                a->num_newaxis);
  return known ? expanded_by_list(c, n, axis) : expanded_at_run_time(c);
}

const OpDef op_dyn_expand_dims = {
  .name = "dyn.expand_dims",
  .doc = "puts in axes of extent 1 at the positions that an operand gives",
  .args = "data, axis",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynExpandDims_attrs,
  .fuse = FUSE_BROADCAST,
  .flags = OPF_VIEW | OPF_STRING,
  .type = dyn_expand_dims_type,
  .compute = view_compute,
};

/* ---- shape_of, ndarray_size ------------------------------------------------------------------- */

static DType index_dtype(OpCall *c, DType t)
{
  if (!dtype_is_int(t))
    opdef_raise(c, ERR_TYPE, "dtype %s does not hold sizes; it must be an integer", dtype_name(c->m->arena, t));
  return t;
}

static const Type *shape_of_type(OpCall *c)
{
  const ShapeOfAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  return type_tensor_of(c->m, index_dtype(c, a->dtype), 1, (int64_t[]){in->ndim});
}

static void shape_of_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Buffer *b = in[0]->buffer;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *body = expr_int(m, c->out->dtype, 0);
  for (int i = b->ndim - 1; i >= 0; i--) {
    const Expr *dim = expr_cast(m, c->out->dtype, type_dim_unguarded(b->shape[i]));
    body = i == b->ndim - 1 ? dim : expr_select(m, expr_binary(m, E_EQ, ax.index[0], expr_i32(m, i)), dim, body);
  }
  out[0] = op_emit(c, &ax, "shape", body);
}

const OpDef op_shape_of = {
  .name = "shape_of",
  .doc = "the extents of a tensor",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &ShapeOf_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = shape_of_type,
  .compute = shape_of_compute,
};

static const Type *ndarray_size_type(OpCall *c)
{
  const ShapeOfAttrs *a = c->attrs;
  op_tensor_arg(c, 0);
  return type_tensor(c->m, index_dtype(c, a->dtype), 0, NULL);
}

static void ndarray_size_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes ax = op_out_axes(c, 0);
  const Expr *n = dim_product(c->m, in[0]->buffer->ndim, in[0]->buffer->shape);
  out[0] = op_emit(c, &ax, "size", expr_cast(c->m, c->out->dtype, n));
}

const OpDef op_ndarray_size = {
  .name = "ndarray_size",
  .doc = "the number of elements of a tensor",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &ShapeOf_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_STRING,
  .type = ndarray_size_type,
  .compute = ndarray_size_compute,
};
