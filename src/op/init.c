/* init.c: tensors filled by rule (full, zeros, ones, arange) and broadcasts to a given
 * shape with their adjoints (collapse_sum).
 *
 * A shape comes as an attribute, from another tensor (…_like), or as an operand (dyn.…),
 * whose elements may be known only at run time. */
#include "op/op.h"

#include <math.h>

DEFINE_ATTRS_TABLE(Init, INIT_ATTRS)
DEFINE_ATTRS_TABLE(Shape, SHAPE_ATTRS)
DEFINE_ATTRS_TABLE(Arange, ARANGE_ATTRS)

/* ---- constants ---------------------------------------------------------------------------- */

static const Type *filled_type(OpCall *c, DType dtype, int ndim, const Expr *const *shape)
{
  for (int i = 0; i < ndim; i++)
    if (shape[i]->kind == E_INT && shape[i]->u.i < 0)
      opdef_raise(c, ERR_SHAPE, "dimension %d is %" PRId64 "; a dimension is not negative", i, shape[i]->u.i);
  if (!dtype_is_int(dtype) && !dtype_is_float(dtype) && !(dtype_is_string(dtype) && c->op->flags & OPF_STRING))
    opdef_raise(c, ERR_ARGUMENT, "dtype %s is no dtype of a tensor", dtype_name(scratch(c->m->ctx), dtype));
  return type_tensor(c->m, dtype, ndim, shape);
}

static DType dtype_or(DType given, DType otherwise) { return given.code == DT_VOID ? otherwise : given; }

static const Type *type_init(OpCall *c)
{
  const InitAttrs *a = c->attrs;
  return filled_type(c, dtype_or(a->dtype, DT_F32), a->shape.n, a->shape.v);
}

static const Type *type_full(OpCall *c)
{
  const InitAttrs *a = c->attrs;
  op_ranked_arg(c, 0, 0, 0);
  return filled_type(c, dtype_or(a->dtype, c->arg[0]->dtype), a->shape.n, a->shape.v);
}

static const Type *type_full_like(OpCall *c)
{
  op_ranked_arg(c, 1, 0, 0);
  return op_type_same(c);
}

static void fill(OpCall *c, const Expr *value, const Tensor **out)
{
  OpAxes a = op_out_axes(c, 0);
  out[0] = op_emit(c, &a, NULL, expr_cast(c->m, c->out->dtype, value));
}

static void zeros_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  (void)in;
  fill(c, op_num(c->m, c->out->dtype, 0), out);
}

static void ones_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  (void)in;
  fill(c, op_num(c->m, c->out->dtype, 1), out);
}

static void full_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  fill(c, op_read(c->m, in[0], NULL), out);
}
static void full_like_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  fill(c, op_read(c->m, in[1], NULL), out);
}

const OpDef op_zeros = {
  .name = "zeros",
  .doc = "a tensor of zeros",
  .args = "",
  .attrs = &Init_attrs,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_NEVER,
  .type = type_init,
  .compute = zeros_compute,
};
const OpDef op_ones = {
  .name = "ones",
  .doc = "a tensor of ones",
  .args = "",
  .attrs = &Init_attrs,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_NEVER,
  .type = type_init,
  .compute = ones_compute,
};
const OpDef op_full = {
  .name = "full",
  .doc = "a tensor whose elements are all fill_value, converted as cast does",
  .args = "fill_value",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Init_attrs,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_NEVER,
  .type = type_full,
  .compute = full_compute,
};
const OpDef op_zeros_like = {
  .name = "zeros_like",
  .doc = "zeros with the shape and dtype of data",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_FOLLOW,
  .type = op_type_same,
  .compute = zeros_compute,
};
const OpDef op_ones_like = {
  .name = "ones_like",
  .doc = "ones with the shape and dtype of data",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_FOLLOW,
  .type = op_type_same,
  .compute = ones_compute,
};
const OpDef op_full_like = {
  .name = "full_like",
  .doc = "fill_value throughout, with the shape and dtype of data",
  .args = "data, fill_value",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_ELEMWISE,
  .narrow = NARROW_FOLLOW,
  .type = type_full_like,
  .compute = full_like_compute,
};

/* ---- the same with the shape as an operand ---------------------------------------------------- */

static const Type *dyn_filled(OpCall *c, int shape_arg, DType dtype)
{
  int n;
  const Expr *const *shape = op_dims(c, shape_arg, &n);
  return filled_type(c, dtype, n, shape);
}

static const Type *type_dyn_init(OpCall *c)
{
  return dyn_filled(c, 0, dtype_or(((const CastAttrs *)c->attrs)->dtype, DT_F32));
}

static const Type *type_dyn_full(OpCall *c)
{
  op_ranked_arg(c, 0, 0, 0);
  return dyn_filled(c, 1, dtype_or(((const CastAttrs *)c->attrs)->dtype, c->arg[0]->dtype));
}

#define DYN_INIT_ATTRS(A, S) A(S, DTYPE, dtype, "None", "dtype of the result; None: float32, or that of the value")
static const AttrField DynInit_fields[] = {DYN_INIT_ATTRS(ATTR_FIELD, CastAttrs)};
static const AttrsDef DynInit_attrs = {"DynInitAttrs", sizeof(CastAttrs), DynInit_fields, 1};

const OpDef op_dyn_zeros = {
  .name = "dyn.zeros",
  .doc = "zeros of a shape given as a tensor",
  .args = "shape",
  .min_args = 1,
  .max_args = 1,
  .attrs = &DynInit_attrs,
  .fuse = FUSE_ELEMWISE,
  .type = type_dyn_init,
  .compute = zeros_compute,
};
const OpDef op_dyn_ones = {
  .name = "dyn.ones",
  .doc = "ones of a shape given as a tensor",
  .args = "shape",
  .min_args = 1,
  .max_args = 1,
  .attrs = &DynInit_attrs,
  .fuse = FUSE_ELEMWISE,
  .type = type_dyn_init,
  .compute = ones_compute,
};
const OpDef op_dyn_full = {
  .name = "dyn.full",
  .doc = "fill_value throughout, of a shape given as a tensor",
  .args = "fill_value, shape",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynInit_attrs,
  .fuse = FUSE_ELEMWISE,
  .type = type_dyn_full,
  .compute = full_compute,
};

/* ---- arange ------------------------------------------------------------------------------------- */

static const Expr *one_value(OpCall *c, int i)
{
  int n;
  op_ranked_arg(c, i, 0, 0);
  return op_values(c, i, &n)[0];
}

/* ceil((stop - start) / step), at least 0; -1 for a step of zero. */
static const Expr *arange_count(OpCall *c, const Expr *start, const Expr *stop, const Expr *step)
{
  Module *m = c->m;
  if (dtype_is_float(step->dtype)) {
    if (expr_is_const(step) && step->u.f == 0) opdef_raise(c, ERR_ARGUMENT, "the step is 0");
    const Expr *n = op_intrin(m, IN_CEIL, expr_binary(m, E_DIV, expr_sub(m, stop, start), step));
    return dim_max(m, dim_int(m, 0), dim_simplify(m, expr_cast(m, DT_I32, n)));
  }
  const Expr *a = dim_of_value(m, start);
  const Expr *b = dim_of_value(m, stop);
  const Expr *by = dim_of_value(m, step);
  if (expr_is_int(by, 0)) opdef_raise(c, ERR_ARGUMENT, "the step is 0");
  const Expr *zero = dim_int(m, 0);
  const Expr *is_zero = expr_binary(m, E_EQ, by, zero);
  const Expr *safe = by->kind == E_INT ? by : expr_select(m, is_zero, dim_int(m, 1), by);
  const Expr *n = dim_max(m, zero, dim_sub(m, zero, dim_floordiv(m, dim_sub(m, a, b), safe)));
  return by->kind == E_INT ? n : dim_guard(m, expr_not(m, is_zero), n);
}

static const Type *type_arange(OpCall *c)
{
  const ArangeAttrs *a = c->attrs;
  for (int i = 0; i < 3; i++) op_tensor_arg(c, i), op_same_dtype(c, 0, i);
  const Expr *n = arange_count(c, one_value(c, 0), one_value(c, 1), one_value(c, 2));
  return type_tensor(c->m, dtype_or(a->dtype, c->arg[0]->dtype), 1, &n);
}

static void arange_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes a = op_out_axes(c, 0);
  const Expr *start = op_read(c->m, in[0], NULL);
  const Expr *step = op_read(c->m, in[2], NULL);
  const Expr *value = expr_add(c->m, start, expr_mul(c->m, expr_cast(c->m, step->dtype, a.index[0]), step));
  out[0] = op_emit(c, &a, NULL, expr_cast(c->m, c->out->dtype, value));
}

const OpDef op_arange = {
  .name = "arange",
  .doc = "start + i * step for as long as that is before stop",
  .args = "start, stop, step",
  .min_args = 3,
  .max_args = 3,
  .attrs = &Arange_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_NEVER,
  .type = type_arange,
  .compute = arange_compute,
};

/* ---- broadcasts to a shape --------------------------------------------------------------------------- */

/* The shape that data takes: each of its dimensions must be the goal's, or 1. */
static const Type *broadcast_to(OpCall *c, int ndim, const Expr *const *goal)
{
  const Type *ty = op_tensor_arg(c, 0);
  Module *m = c->m;
  if (ty->ndim > ndim)
    opdef_raise(c, ERR_SHAPE, "argument '%s' is %s: it does not broadcast to %d dimension%s", op_arg_name(c, 0),
                type_text(scratch(m->ctx), ty), ndim, ndim == 1 ? "" : "s");
  const Type *plain = filled_type(c, ty->dtype, ndim, goal);
  const Expr **shape = arena_copy(m->arena, plain->shape, (size_t)ndim * sizeof *shape);
  for (int d = 0; d < ty->ndim; d++) {
    const Expr *from = ty->shape[d];
    const Expr *to = goal[ndim - ty->ndim + d];
    if (expr_is_int(from, 1) || dim_same(m, from, to)) continue;
    if (from->kind == E_INT && to->kind == E_INT)
      opdef_raise(c, ERR_SHAPE, "argument '%s' is %s: it does not broadcast to %s", op_arg_name(c, 0),
                  type_text(scratch(m->ctx), ty), type_text(scratch(m->ctx), plain));
    const Expr *fits = expr_binary(m, E_EQ, from, to);
    if (from->kind != E_INT) fits = expr_binary(m, E_OR, fits, expr_binary(m, E_EQ, from, expr_int(m, from->dtype, 1)));
    shape[ndim - ty->ndim + d] = dim_guard(m, fits, to);
  }
  return type_tensor(m, ty->dtype, ndim, shape);
}

static const Type *type_broadcast_to(OpCall *c)
{
  const ShapeAttrs *a = c->attrs;
  return broadcast_to(c, a->shape.n, a->shape.v);
}

static const Type *type_dyn_broadcast_to(OpCall *c)
{
  int n;
  const Expr *const *shape = op_dims(c, 1, &n);
  return broadcast_to(c, n, shape);
}

static const Type *type_broadcast_to_like(OpCall *c)
{
  const Type *like = op_tensor_arg(c, 1);
  return broadcast_to(c, like->ndim, like->shape);
}

static void broadcast_to_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes a = op_out_axes(c, 0);
  out[0] = op_emit(c, &a, NULL, op_broadcast_read(c->m, in[0], a.ndim, a.index));
}

const OpDef op_broadcast_to = {
  .name = "broadcast_to",
  .doc = "data repeated to a shape it broadcasts to",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Shape_attrs,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = type_broadcast_to,
  .compute = broadcast_to_compute,
};
const OpDef op_dyn_broadcast_to = {
  .name = "dyn.broadcast_to",
  .doc = "data repeated to a shape given as a tensor",
  .args = "data, shape",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = type_dyn_broadcast_to,
  .compute = broadcast_to_compute,
};
const OpDef op_broadcast_to_like = {
  .name = "broadcast_to_like",
  .doc = "data repeated to the shape of another tensor",
  .args = "data, broadcast_type",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_BROADCAST,
  .flags = OPF_STRING,
  .type = type_broadcast_to_like,
  .compute = broadcast_to_compute,
};

/* ---- collapse_sum: the adjoint of a broadcast ------------------------------------------------------------- */

static const Type *collapse_to(OpCall *c, int ndim, const Expr *const *goal)
{
  const Type *ty = op_tensor_arg(c, 0);
  if (ndim > ty->ndim)
    opdef_raise(c, ERR_SHAPE, "argument 'data' is %s: it does not collapse to %d dimensions",
                type_text(scratch(c->m->ctx), ty), ndim);
  for (int d = 0; d < ndim; d++) {
    const Expr *from = ty->shape[ty->ndim - ndim + d];
    if (!expr_is_int(goal[d], 1) && !dim_same(c->m, from, goal[d]))
      opdef_raise(c, ERR_SHAPE, "argument 'data' is %s: dimension %s does not collapse to %s",
                  type_text(scratch(c->m->ctx), ty), expr_str_of(scratch(c->m->ctx), from),
                  expr_str_of(scratch(c->m->ctx), goal[d]));
  }
  return type_tensor(c->m, ty->dtype, ndim, goal);
}

static const Type *type_collapse_sum_to(OpCall *c)
{
  const ShapeAttrs *a = c->attrs;
  return collapse_to(c, a->shape.n, a->shape.v);
}

static const Type *type_collapse_sum_like(OpCall *c)
{
  const Type *like = op_tensor_arg(c, 1);
  return collapse_to(c, like->ndim, like->shape);
}

static void collapse_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const Buffer *b = in[0]->buffer;
  OpAxes a = op_out_axes(c, 0);
  const Expr *index[MAX_RANK];
  const IterVar *over[MAX_RANK];
  int n = 0;
  int front = b->ndim - a.ndim;
  for (int d = 0; d < b->ndim; d++) {
    bool kept = d >= front && (!expr_is_int(a.shape[d - front], 1) || expr_is_int(b->shape[d], 1));
    if (kept) index[d] = a.index[d - front];
    else index[d] = (over[n++] = op_reduce_axis(c, arena_printf(scratch(c->m->ctx), "k%d", d), b->shape[d]))->var->expr;
  }
  const Expr *x = op_read(c->m, in[0], index);
  DType sum = op_sum_dtype(x->dtype);
  if (n) x = expr_cast(c->m, x->dtype, op_reduce(c->m, "sum", expr_cast(c->m, sum, x), n, over));
  out[0] = op_emit(c, &a, NULL, x);
}

const OpDef op_collapse_sum_to = {
  .name = "collapse_sum_to",
  .doc = "sums what a broadcast from this shape would have repeated",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Shape_attrs,
  .fuse = FUSE_COMM_REDUCE,
  .type = type_collapse_sum_to,
  .compute = collapse_compute,
};
const OpDef op_collapse_sum_like = {
  .name = "collapse_sum_like",
  .doc = "sums what a broadcast from the other tensor's shape would have repeated",
  .args = "data, collapse_type",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_COMM_REDUCE,
  .type = type_collapse_sum_like,
  .compute = collapse_compute,
};
