/* index_take.c: reading by computed positions: take, gather, gather_nd, adv_index, and the
 * small ones: one_hot, sequence_mask, unravel_index, invert_permutation, searchsorted, count_ngrams.
 *
 * Policy for positions: a negative one counts from the end (as ONNX has it), except in
 * take's modes clip and wrap, which mean what TVM means: clip brings into [0, extent - 1],
 * wrap goes round.  What is outside after that is brought to the nearest position inside
 * (mode fast too): a kernel never reads outside of its memory. */
#include "op/shape.h"

DEFINE_ATTRS_TABLE(Take, TAKE_ATTRS)
DEFINE_ATTRS_TABLE(Gather, GATHER_ATTRS)

/* A position that is safe to read, as a 32-bit index where the indices are wider. */
static const Expr *safe_position(Module *m, const Expr *v, const Expr *extent, bool from_end)
{
  DType t = v->dtype;
  if (t.bits < 32) v = expr_cast(m, DT_I32, v);
  if (t.code == DT_UINT && t.bits >= 32) v = expr_cast(m, DT_I64, v);
  if (from_end) v = op_emit_from_end(m, v, extent);
  const Expr *last = expr_sub(m, extent, expr_int(m, extent->dtype, 1));
  return expr_cast(m, extent->dtype, op_emit_clamp(m, v, expr_int(m, v->dtype, 0), last));
}

/* ---- take --------------------------------------------------------------------------------------- */

/* axis -1 after this: the flattened data. */
static int take_axis(OpCall *c, int ndim)
{
  const TakeAttrs *a = c->attrs;
  if (strcmp(a->mode, "clip") && strcmp(a->mode, "wrap") && strcmp(a->mode, "fast"))
    opdef_raise(c, ERR_ARGUMENT, "mode is '%s'; it is clip, wrap or fast", a->mode);
  return a->axis.given && a->axis.n ? op_axis(c, a->axis.v[0], ndim) : -1;
}

static int take_batch(OpCall *c, const Type *in, const Type *at, int axis)
{
  const TakeAttrs *a = c->attrs;
  int64_t b = a->batch_dims < 0 ? a->batch_dims + at->ndim : a->batch_dims;
  if (axis < 0 && b) opdef_raise(c, ERR_ARGUMENT, "batch_dims is %" PRId64 " without an axis", a->batch_dims);
  if (b < 0 || b > at->ndim || (axis >= 0 && b > axis))
    opdef_raise(c, ERR_ARGUMENT, "batch_dims is %" PRId64 "; it is at most axis %d and the rank of %s", a->batch_dims,
                axis, op_arg_text(c, 1));
  for (int i = 0; i < (int)b; i++)
    if (dim_differ(in->shape[i], at->shape[i]))
      opdef_raise(c, ERR_SHAPE, "batch axis %d of %s and of %s differ", i, op_arg_text(c, 0), op_arg_text(c, 1));
  return (int)b;
}

static const Type *take_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  const Type *at = op_int_tensor_arg(c, 1);
  int axis = take_axis(c, in->ndim);
  int b = take_batch(c, in, at, axis);
  int n = 0;
  const Expr *dim[2 * MAX_RANK];
  if (axis < 0) return type_tensor(c->m, in->dtype, at->ndim, at->shape);
  for (int i = 0; i < axis; i++) dim[n++] = in->shape[i];
  for (int i = b; i < at->ndim; i++) dim[n++] = at->shape[i];
  for (int i = axis + 1; i < in->ndim; i++) dim[n++] = in->shape[i];
  op_check_rank(c, n);
  if (axis < in->ndim && expr_is_int(in->shape[axis], 0) && !expr_is_int(dim_product(c->m, n, dim), 0))
    opdef_raise(c, ERR_SHAPE, "axis %d of %s is empty; there is nothing to take", axis, op_arg_text(c, 0));
  return type_tensor(c->m, in->dtype, n, dim);
}

static const Expr *taken_position(OpCall *c, const Expr *v, const Expr *extent)
{
  const TakeAttrs *a = c->attrs;
  Module *m = c->m;
  if (strcmp(a->mode, "wrap")) return safe_position(m, v, extent, !strcmp(a->mode, "fast"));
  if (v->dtype.bits < 32) v = expr_cast(m, DT_I32, v);
  return expr_cast(m, extent->dtype, expr_floormod(m, v, expr_max(m, extent, expr_int(m, extent->dtype, 1))));
}

static void take_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const TakeAttrs *a = c->attrs;
  Module *m = c->m;
  const Buffer *data = in[0]->buffer;
  const Buffer *where = in[1]->buffer;
  OpAxes ax = op_out_axes(c, 0);
  int axis = take_axis(c, data->ndim);
  const Expr *at[MAX_RANK], *ix[MAX_RANK];
  if (axis < 0) {
    const Expr *flat = taken_position(c, op_read(m, in[1], ax.index), dim_product(m, data->ndim, data->shape));
    op_emit_unflatten(m, flat, data->ndim, data->shape, at);
    out[0] = op_emit(c, &ax, "T_take", op_read(m, in[0], at));
    return;
  }
  int b = (int)(a->batch_dims < 0 ? a->batch_dims + where->ndim : a->batch_dims);
  for (int i = 0; i < where->ndim; i++) ix[i] = ax.index[i < b ? i : axis + i - b];
  for (int i = 0; i < data->ndim; i++)
    if (i != axis) at[i] = ax.index[i < axis ? i : i + where->ndim - b - 1];
  at[axis] = taken_position(c, op_read(m, in[1], ix), data->shape[axis]);
  out[0] = op_emit(c, &ax, "T_take", op_read(m, in[0], at));
}

/* A table's entries lie as their positions do. */
static const void *take_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  if (c->arg[0]->kind != TY_TENSOR || c->arg[0]->ndim != 1 || !arg[1].to) return NULL;
  arg[0].to = arg[0].from;
  out[0] = arg[1];
  return c->attrs;
}

const OpDef op_take = {
  .name = "take",
  .doc = "entries of an axis by position; outside: brought inside (clip), round (wrap), negative from the end (fast)",
  .args = "data, indices",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Take_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = take_type,
  .compute = take_compute,
  .layout = take_layout,
};

/* ---- gather ---------------------------------------------------------------------------------------- */

static const Type *gather_type(OpCall *c)
{
  const GatherAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *at = op_int_tensor_arg(c, 1);
  if (in->ndim != at->ndim)
    opdef_raise(c, ERR_SHAPE, "data is %s, indices %s; both need the same rank", op_arg_text(c, 0), op_arg_text(c, 1));
  int axis = op_axis(c, a->axis, in->ndim);
  for (int i = 0; i < in->ndim; i++)
    if (i != axis && in->shape[i]->kind == E_INT && at->shape[i]->kind == E_INT &&
        at->shape[i]->u.i > in->shape[i]->u.i)
      opdef_raise(c, ERR_SHAPE, "axis %d of indices %s is longer than that of data %s", i, op_arg_text(c, 1),
                  op_arg_text(c, 0));
  return type_tensor(c->m, in->dtype, at->ndim, at->shape);
}

static void gather_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const GatherAttrs *a = c->attrs;
  OpAxes ax = op_out_axes(c, 0);
  int axis = op_axis(c, a->axis, ax.ndim);
  const Expr **at = op_emit_copy_index(c->m, ax.ndim, ax.index);
  at[axis] = safe_position(c->m, op_read(c->m, in[1], ax.index), in[0]->buffer->shape[axis], true);
  for (int i = 0; i < ax.ndim; i++)
    if (i != axis && !dim_same(c->m, ax.shape[i], in[0]->buffer->shape[i]) &&
        (ax.shape[i]->kind != E_INT || in[0]->buffer->shape[i]->kind != E_INT))
      at[i] = safe_position(c->m, at[i], in[0]->buffer->shape[i], false);
  out[0] = op_emit(c, &ax, "T_gather", op_read(c->m, in[0], at));
}

const OpDef op_gather = {
  .name = "gather",
  .doc = "out[i, j] = data[indices[i, j], j] along axis",
  .args = "data, indices",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Gather_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = gather_type,
  .compute = gather_compute,
};

/* clang-format off */
#define GATHER_ND_ATTRS(A, S)                                                  \
  A(S, INT, batch_dims, "0", "leading axes that data and indices share")       \
  A(S, INTS, index_rank, "None", "length of an index where it is not in the type")
/* clang-format on */
DEFINE_ATTRS(GatherND, GATHER_ND_ATTRS)

/* indices: (length of an index, X…); the index comes first, as TVM has it. */
static int nd_length(OpCall *c, const Type *at)
{
  const GatherNDAttrs *a = c->attrs;
  if (at->ndim < 1)
    opdef_raise(c, ERR_SHAPE, "indices is %s; its first axis holds the parts of an index", op_arg_text(c, 1));
  if (at->shape[0]->kind == E_INT) return (int)at->shape[0]->u.i;
  if (a->index_rank.given && a->index_rank.n) return (int)a->index_rank.v[0];
  opdef_raise(c, ERR_UNSUPPORTED,
              "the length of an index, the first axis of %s, is known only at run time; give index_rank",
              op_arg_text(c, 1));
}

static const Type *gather_nd_type(OpCall *c)
{
  const GatherNDAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *at = op_int_tensor_arg(c, 1);
  int k = nd_length(c, at);
  int n = 0;
  if (a->batch_dims < 0 || a->batch_dims > at->ndim - 1 || a->batch_dims + k > in->ndim)
    opdef_raise(c, ERR_SHAPE, "batch_dims %" PRId64 " and indices of length %d do not fit data %s", a->batch_dims, k,
                op_arg_text(c, 0));
  const Expr *dim[2 * MAX_RANK];
  for (int i = 1; i < at->ndim; i++) dim[n++] = at->shape[i];
  for (int i = 0; i < (int)a->batch_dims; i++)
    if (dim_differ(at->shape[i + 1], in->shape[i]))
      opdef_raise(c, ERR_SHAPE, "batch axis %d of data %s and of indices %s differ", i, op_arg_text(c, 0),
                  op_arg_text(c, 1));
    else dim[i] = op_equal_dim(c, at->shape[i + 1], in->shape[i], "a batch axis");
  for (int i = (int)a->batch_dims + k; i < in->ndim; i++) dim[n++] = in->shape[i];
  op_check_rank(c, n);
  return type_tensor(c->m, in->dtype, n, dim);
}

static void gather_nd_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const GatherNDAttrs *a = c->attrs;
  Module *m = c->m;
  const Buffer *data = in[0]->buffer;
  const Buffer *where = in[1]->buffer;
  OpAxes ax = op_out_axes(c, 0);
  int b = (int)a->batch_dims;
  int k = nd_length(c, c->arg[1]);
  const Expr *ix[MAX_RANK], *at[MAX_RANK];
  for (int i = 1; i < where->ndim; i++) ix[i] = ax.index[i - 1];
  for (int i = 0; i < b; i++) at[i] = ax.index[i];
  for (int i = 0; i < k; i++) {
    ix[0] = expr_i32(m, i);
    at[b + i] = safe_position(m, op_read(m, in[1], ix), data->shape[b + i], true);
  }
  for (int i = b + k; i < data->ndim; i++) at[i] = ax.index[where->ndim - 1 + i - b - k];
  out[0] = op_emit(c, &ax, "T_gather_nd", op_read(m, in[0], at));
}

const OpDef op_gather_nd = {
  .name = "gather_nd",
  .doc = "out[x] = data[indices[0, x], indices[1, x], …]",
  .args = "data, indices",
  .min_args = 2,
  .max_args = 2,
  .attrs = &GatherND_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = gather_nd_type,
  .compute = gather_nd_compute,
};

/* ---- adv_index ------------------------------------------------------------------------------------------ */

/* inputs: data, then one index tensor for each of its first axes; the indices broadcast. */
static const Type *adv_index_type(OpCall *c)
{
  const Type *ty = op_filled_tuple_arg(c, 0);
  const Type *in = ty->field[0];
  const Expr *dim[2 * MAX_RANK], *next[MAX_RANK];
  int n = 0;
  if (ty->nfield < 2 || ty->nfield - 1 > in->ndim)
    opdef_raise(c, ERR_ARGUMENT, "%d index tensors for %s; there is at least one and at most one for each axis",
                ty->nfield - 1, type_text(c->m->arena, in));
  for (int k = 1; k < ty->nfield; k++) {
    const Type *at = ty->field[k];
    if (!dtype_is_int(at->dtype))
      opdef_raise(c, ERR_TYPE, "index %d is %s; it must hold integers", k - 1, type_text(c->m->arena, at));
    n = op_broadcast_shape(c, n, dim, at->ndim, at->shape, next);
    memcpy(dim, next, (size_t)n * sizeof *dim);
  }
  for (int i = ty->nfield - 1; i < in->ndim; i++) dim[n++] = in->shape[i];
  op_check_rank(c, n);
  return type_tensor(c->m, in->dtype, n, dim);
}

static void adv_index_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes ax = op_out_axes(c, 0);
  int ndim = in[0]->buffer->ndim;
  int nix = c->arg[0]->nfield - 1;
  int shared = ax.ndim - (ndim - nix);
  const Expr *at[MAX_RANK];
  for (int k = 0; k < nix; k++)
    at[k] = safe_position(c->m, op_broadcast_read(c->m, in[k + 1], shared, ax.index), in[0]->buffer->shape[k], true);
  for (int i = nix; i < ndim; i++) at[i] = ax.index[shared + i - nix];
  out[0] = op_emit(c, &ax, "T_adv_index", op_read(c->m, in[0], at));
}

const OpDef op_adv_index = {
  .name = "adv_index",
  .doc = "numpy indexing with arrays: data[index0, index1, …]",
  .args = "inputs",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_TUPLE_ARG,
  .type = adv_index_type,
  .compute = adv_index_compute,
};

/* ---- one_hot ----------------------------------------------------------------------------------------------- */

/* clang-format off */
#define ONE_HOT_ATTRS(A, S)                                                    \
  A(S, INT, depth, NULL, "extent of the new axis")                             \
  A(S, INT, axis, "-1", "where the new axis stands")                           \
  A(S, DTYPE, dtype, "None", "of the result; None: that of on_value")
/* clang-format on */
DEFINE_ATTRS(OneHot, ONE_HOT_ATTRS)
/* clang-format off */
#define DYN_ONE_HOT_ATTRS(A, S)                                                \
  A(S, INT, axis, "-1", "where the new axis stands")                           \
  A(S, DTYPE, dtype, "None", "of the result; None: that of on_value")
/* clang-format on */
DEFINE_ATTRS(DynOneHot, DYN_ONE_HOT_ATTRS)

static const Type *one_hot_of(OpCall *c, const Expr *depth, int64_t axis, DType dtype)
{
  const Type *at = op_tensor_arg(c, 0);
  const Type *on = op_ranked_tensor_arg(c, 1, 0);
  const Type *off = op_ranked_tensor_arg(c, 2, 0);
  if (!dtype_eq(on->dtype, off->dtype))
    opdef_raise(c, ERR_TYPE, "on_value is %s, off_value %s", op_arg_text(c, 1), op_arg_text(c, 2));
  int d = op_axis(c, axis, at->ndim + 1);
  int k = 0;
  op_check_rank(c, at->ndim + 1);
  const Expr *dim[MAX_RANK + 1];
  for (int i = 0; i <= at->ndim; i++) dim[i] = i == d ? depth : at->shape[k++];
  return type_tensor(c->m, dtype.code == DT_VOID ? on->dtype : dtype, at->ndim + 1, dim);
}

static const Type *one_hot_type(OpCall *c)
{
  const OneHotAttrs *a = c->attrs;
  if (a->depth < 0) opdef_raise(c, ERR_ARGUMENT, "depth is %" PRId64 "; it is not negative", a->depth);
  return one_hot_of(c, dim_int(c->m, a->depth), a->axis, a->dtype);
}

static const Type *dyn_one_hot_type(OpCall *c)
{
  const DynOneHotAttrs *a = c->attrs;
  int n;
  const Expr *const *depth = op_dims(c, 3, &n);
  if (n != 1) opdef_raise(c, ERR_SHAPE, "depth is %s; it is one number", op_arg_text(c, 3));
  return one_hot_of(c, depth[0], a->axis, a->dtype);
}

/* An index in [-depth, -1] counts from the end; one outside lights nothing. */
static void one_hot_emit(OpCall *c, int64_t axis, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  int d = op_axis(c, axis, ax.ndim);
  int k = 0;
  const Expr *ix[MAX_RANK];
  for (int i = 0; i < ax.ndim; i++)
    if (i != d) ix[k++] = ax.index[i];
  const Expr *v = op_read(m, in[0], ix);
  if (dtype_is_float(v->dtype)) v = expr_cast(m, DT_I64, v);
  if (v->dtype.bits < 32) v = expr_cast(m, DT_I32, v);
  const Expr *hit = expr_binary(m, E_EQ, op_emit_from_end(m, v, ax.shape[d]), ax.index[d]);
  DType t = c->out->dtype;
  out[0] = op_emit(
      c, &ax, "T_one_hot",
      expr_select(m, hit, expr_cast(m, t, te_read(m, in[1], 0, NULL)), expr_cast(m, t, te_read(m, in[2], 0, NULL))));
}

static void one_hot_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  one_hot_emit(c, ((const OneHotAttrs *)c->attrs)->axis, in, out);
}

static void dyn_one_hot_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  one_hot_emit(c, ((const DynOneHotAttrs *)c->attrs)->axis, in, out);
}

const OpDef op_one_hot = {
  .name = "one_hot",
  .doc = "on_value at the index along a new axis, off_value elsewhere; negative indices from the end",
  .args = "indices, on_value, off_value",
  .min_args = 3,
  .max_args = 3,
  .attrs = &OneHot_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_NEVER,
  .type = one_hot_type,
  .compute = one_hot_compute,
};
const OpDef op_dyn_one_hot = {
  .name = "dyn.one_hot",
  .doc = "one_hot with a depth known only at run time",
  .args = "indices, on_value, off_value, depth",
  .min_args = 4,
  .max_args = 4,
  .attrs = &DynOneHot_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = dyn_one_hot_type,
  .compute = dyn_one_hot_compute,
};

/* ---- sequence_mask --------------------------------------------------------------------------------------------- */

/* clang-format off */
#define SEQUENCE_MASK_ATTRS(A, S)                                  \
  A(S, F64, mask_value, "0.0", "what stands after the end")        \
  A(S, INT, axis, "0", "axis of time: 0 or 1, the other is batch")
/* clang-format on */
DEFINE_ATTRS(SequenceMask, SEQUENCE_MASK_ATTRS)

static const Type *sequence_mask_type(OpCall *c)
{
  const SequenceMaskAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *len = op_ranked_tensor_arg(c, 1, 1);
  if (in->ndim < 2 || (a->axis != 0 && a->axis != 1))
    opdef_raise(c, ERR_ARGUMENT, "axis is %" PRId64 " of %s; it is 0 or 1 of at least two", a->axis, op_arg_text(c, 0));
  if (dim_differ(in->shape[1 - a->axis], len->shape[0]))
    opdef_raise(c, ERR_SHAPE, "valid_length is %s; axis %d of %s is the batch", op_arg_text(c, 1), (int)(1 - a->axis),
                op_arg_text(c, 0));
  const Expr **dim = op_emit_copy_index(c->m, in->ndim, in->shape);
  dim[1 - a->axis] = op_equal_dim(c, dim[1 - a->axis], len->shape[0], "the batch");
  return type_tensor(c->m, in->dtype, in->ndim, dim);
}

static void sequence_mask_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const SequenceMaskAttrs *a = c->attrs;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *len = op_emit_read1(c->m, in[1], ax.index[1 - a->axis]);
  const Expr *inside = expr_lt(c->m, expr_cast(c->m, len->dtype, ax.index[a->axis]), len);
  out[0] =
      op_emit(c, &ax, "T_sequence_mask",
              expr_select(c->m, inside, op_read(c->m, in[0], ax.index), op_num(c->m, c->out->dtype, a->mask_value)));
}

const OpDef op_sequence_mask = {
  .name = "sequence_mask",
  .doc = "mask_value after the end of each sequence",
  .args = "data, valid_length",
  .min_args = 2,
  .max_args = 2,
  .attrs = &SequenceMask_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = sequence_mask_type,
  .compute = sequence_mask_compute,
};

/* ---- unravel_index, invert_permutation, searchsorted
 * -------------------------------------------------------------- */

static const Type *unravel_index_type(OpCall *c)
{
  const Type *at = op_int_tensor_arg(c, 0);
  const Type *shape = op_int_tensor_arg(c, 1);
  if (at->ndim > 1 || shape->ndim != 1)
    opdef_raise(c, ERR_SHAPE, "indices is %s, shape %s; both are vectors", op_arg_text(c, 0), op_arg_text(c, 1));
  const Expr *dim[2] = {shape->shape[0], at->ndim ? at->shape[0] : NULL};
  return type_tensor(c->m, at->dtype, 1 + at->ndim, dim);
}

/* Row d: (index // product of the extents after d) mod extent d. */
static void unravel_index_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Buffer *shape = in[1]->buffer;
  if (shape->shape[0]->kind != E_INT)
    opdef_raise(c, ERR_UNSUPPORTED, "the rank of the shape is known only at run time");
  const Expr *v = op_read(m, in[0], ax.index + 1);
  const Expr *body = v;
  const Expr *rest = v;
  for (int d = (int)shape->shape[0]->u.i - 1; d >= 0; d--) {
    const Expr *extent = expr_cast(m, v->dtype, op_emit_read1(m, in[1], expr_i32(m, d)));
    const Expr *part = d ? op_int_divide(m, E_FLOORMOD, rest, extent) : rest;
    body = d == (int)shape->shape[0]->u.i - 1
               ? part
               : expr_select(m, expr_binary(m, E_EQ, ax.index[0], expr_i32(m, d)), part, body);
    rest = op_int_divide(m, E_FLOORDIV, rest, extent);
  }
  out[0] = op_emit(c, &ax, "T_unravel_index", body);
}

const OpDef op_unravel_index = {
  .name = "unravel_index",
  .doc = "flat positions as one row for each axis",
  .args = "indices, shape",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_INJECTIVE,
  .type = unravel_index_type,
  .compute = unravel_index_compute,
};

static const Type *invert_permutation_type(OpCall *c)
{
  const Type *at = op_int_tensor_arg(c, 0);
  if (at->ndim != 1) opdef_raise(c, ERR_SHAPE, "data is %s; a permutation is a vector", op_arg_text(c, 0));
  return at;
}

static void invert_permutation_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 1, in);
  const Expr *n = l.ib[0]->shape[0];
  const Var *i = loops_var(m, "i");
  Stmt *put = loops_set(m, l.ob[0], safe_position(m, loops_get(m, l.ib[0], i->expr), n, false), i->expr);
  loops_end(&l, "invert_permutation", stmt_for(m, i, expr_i32(m, 0), n, FOR_SERIAL, NULL, put), out);
}

const OpDef op_invert_permutation = {
  .name = "invert_permutation",
  .doc = "out[data[i]] = i",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_OPAQUE,
  .type = invert_permutation_type,
  .compute = invert_permutation_compute,
};

/* clang-format off */
#define SEARCHSORTED_ATTRS(A, S)                                               \
  A(S, BOOL, right, "False", "after equal elements instead of before them")    \
  A(S, DTYPE, dtype, "\"int32\"", "of the result")
/* clang-format on */
DEFINE_ATTRS(Searchsorted, SEARCHSORTED_ATTRS)

static const Type *searchsorted_type(OpCall *c)
{
  const SearchsortedAttrs *a = c->attrs;
  const Type *seq = op_tensor_arg(c, 0);
  const Type *v = op_tensor_arg(c, 1);
  op_same_dtype(c, 0, 1);
  if (seq->ndim != 1 && seq->ndim != v->ndim)
    opdef_raise(c, ERR_SHAPE, "sorted_sequence is %s, values %s; the sequence is a vector or has the same rank",
                op_arg_text(c, 0), op_arg_text(c, 1));
  for (int i = 0; seq->ndim > 1 && i < seq->ndim - 1; i++)
    if (dim_differ(seq->shape[i], v->shape[i]))
      opdef_raise(c, ERR_SHAPE, "sorted_sequence is %s, values %s; they may differ only along the last axis",
                  op_arg_text(c, 0), op_arg_text(c, 1));
  return type_tensor(c->m, a->dtype, v->ndim, v->shape);
}

/* The number of elements before the value. */
static void searchsorted_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const SearchsortedAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Buffer *seq = in[0]->buffer;
  const IterVar *k = op_reduce_axis(c, "k", seq->shape[seq->ndim - 1]);
  const Expr *at[MAX_RANK];
  for (int i = 0; i < seq->ndim - 1; i++) at[i] = ax.index[i];
  at[seq->ndim - 1] = k->var->expr;
  const Expr *before = expr_binary(m, a->right ? E_LE : E_LT, op_read(m, in[0], at), op_read(m, in[1], ax.index));
  const Expr *one = expr_select(m, before, expr_int(m, c->out->dtype, 1), expr_int(m, c->out->dtype, 0));
  out[0] = op_emit(c, &ax, "T_searchsorted", op_reduce(m, "sum", one, 1, &k));
}

const OpDef op_searchsorted = {
  .name = "searchsorted",
  .doc = "where values would go in a sorted sequence",
  .args = "sorted_sequence, values",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Searchsorted_attrs,
  .fuse = FUSE_OPAQUE,
  .type = searchsorted_type,
  .compute = searchsorted_compute,
};

/* ---- n-grams ----------------------------------------------------------------------------------------- */

#define COUNT_NGRAMS_ATTRS(A, S) \
  A(S, INT, skips, "0", "at most so many elements are left out between two of an n-gram, the same number everywhere")
DEFINE_ATTRS(CountNgrams, COUNT_NGRAMS_ATTRS)
enum { NGRAM_MAX = 32, SKIPS_MAX = 65535 };

static const Type *count_ngrams_type(OpCall *c)
{
  const CountNgramsAttrs *a = c->attrs;
  const Type *x = op_ranked_arg(c, 0, 2, 2);
  const Type *grams = op_ranked_arg(c, 1, 2, 2);
  int64_t n;
  if (!dtype_is_string(x->dtype)) op_need_int(c, 0);
  op_same_dtype(c, 0, 1);
  if (!dim_literal(grams->shape[1], &n) || n < 1 || n > NGRAM_MAX)
    opdef_raise(c, ERR_SHAPE, "grams is %s; a row of it has 1 to %d elements", op_arg_text(c, 1), NGRAM_MAX);
  if (a->skips < 0 || a->skips > SKIPS_MAX)
    opdef_raise(c, ERR_ARGUMENT, "skips is %" PRId64 "; it is 0 to %d", (int64_t)a->skips, SKIPS_MAX);
  return type_tensor(c->m, DT_I32, 2, (const Expr *[]){x->shape[0], grams->shape[0]});
}

/* Of all places and distances those where every element of the n-gram is met before the row ends. */
static void count_ngrams_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const CountNgramsAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *length = in[0]->buffer->shape[1];
  int64_t n = in[1]->buffer->shape[1]->u.i;
  const IterVar *over[2] = {op_reduce_axis(c, "skip", expr_i32(m, n > 1 ? a->skips + 1 : 1)),
                            op_reduce_axis(c, "place", length)};
  const Expr *distance = expr_add(m, over[0]->var->expr, expr_i32(m, 1));
  const Expr *place = over[1]->var->expr;
  const Expr *met = expr_binary(m, E_LT, expr_add(m, place, expr_mul(m, distance, expr_i32(m, n - 1))), length);
  for (int64_t j = 0; j < n; j++) {
    const Expr *at =
        expr_min(m, expr_add(m, place, expr_mul(m, distance, expr_i32(m, j))), expr_sub(m, length, expr_i32(m, 1)));
    const Expr *token = op_read(m, in[0], (const Expr *[]){ax.index[0], at});
    const Expr *wanted = op_read(m, in[1], (const Expr *[]){ax.index[1], expr_i32(m, j)});
    met = expr_and(m, met, expr_binary(m, E_EQ, token, wanted));
  }
  out[0] = op_emit(c, &ax, "T_count_ngrams",
                   op_reduce(m, "sum", expr_select(m, met, expr_i32(m, 1), expr_i32(m, 0)), 2, over));
}

const OpDef op_count_ngrams = {
  .name = "count_ngrams",
  .doc = "how often each row of data (rows, length) holds each n-gram of grams (count, n)",
  .args = "data, grams",
  .min_args = 2,
  .max_args = 2,
  .attrs = &CountNgrams_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_STRING,
  .type = count_ngrams_type,
  .compute = count_ngrams_compute,
};
