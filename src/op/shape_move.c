/* shape_move.c: elements moved as they are: transpose, reverse, reverse_sequence,
 * concatenate, stack, split, tile, repeat, meshgrid, sliding_window. */
#include "op/shape.h"

DEFINE_ATTRS_TABLE(Transpose, TRANSPOSE_ATTRS)
DEFINE_ATTRS_TABLE(Concatenate, CONCATENATE_ATTRS)
DEFINE_ATTRS_TABLE(Stack, STACK_ATTRS)
DEFINE_ATTRS_TABLE(Split, SPLIT_ATTRS)

/* ---- transpose ------------------------------------------------------------------------------ */

static void transpose_axes(OpCall *c, int ndim, int *axis)
{
  const TransposeAttrs *a = c->attrs;
  bool listed = a->axes.given && a->axes.n > 0;
  if (listed && a->axes.n != ndim)
    opdef_raise(c, ERR_ARGUMENT, "axes lists %d axes, %s has %d", a->axes.n, op_arg_text(c, 0), ndim);
  for (int i = 0; i < ndim; i++) {
    axis[i] = listed ? op_axis(c, a->axes.v[i], ndim) : ndim - 1 - i;
    for (int k = 0; k < i; k++)
      if (axis[k] == axis[i]) opdef_raise(c, ERR_ARGUMENT, "axes names axis %d twice", axis[i]);
  }
}

static const Type *transpose_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  int axis[MAX_RANK];
  const Expr *dim[MAX_RANK];
  transpose_axes(c, in->ndim, axis);
  for (int i = 0; i < in->ndim; i++) dim[i] = in->shape[axis[i]];
  return type_tensor(c->m, in->dtype, in->ndim, dim);
}

static void transpose_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes ax = op_out_axes(c, 0);
  int axis[MAX_RANK];
  const Expr *at[MAX_RANK];
  transpose_axes(c, ax.ndim, axis);
  for (int i = 0; i < ax.ndim; i++) at[axis[i]] = ax.index[i];
  out[0] = op_emit(c, &ax, "T_transpose", op_read(c->m, in[0], at));
}

/* A permutation of whole dimensions is a permutation still: the axes follow their letters.
 * Blocked dimensions have no axis of their own, so those come back first. */
static const void *transpose_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  int ndim = c->arg[0]->ndim;
  int axis[MAX_RANK];
  if (!arg[0].from || !layout_is_plain(arg[0].from) || !layout_is_plain(arg[0].to) ||
      (int)strlen(arg[0].from) != ndim || strlen(arg[0].to) != strlen(arg[0].from))
    return NULL;
  transpose_axes(c, ndim, axis);
  int64_t moved[MAX_RANK];
  char *letters = arena_alloc(c->m->arena, (size_t)ndim + 1);
  for (int i = 0; i < ndim; i++) {
    const char *at = strchr(arg[0].to, arg[0].from[axis[i]]);
    if (!at) return NULL;
    moved[i] = at - arg[0].to;
    letters[i] = arg[0].from[axis[i]];
  }
  TransposeAttrs *a = attrs_copy(c->m, &Transpose_attrs, c->attrs);
  attrs_set_ints(c->m, &Transpose_attrs, a, "axes", ndim, moved);
  out[0] = (LayoutPair){letters, letters};
  return a;
}

const OpDef op_transpose = {
  .name = "transpose",
  .doc = "the axes in another order",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Transpose_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = transpose_type,
  .compute = transpose_compute,
  .layout = transpose_layout,
};

/* ---- reverse, reverse_sequence ------------------------------------------------------------------ */

#define REVERSE_ATTRS(A, S) A(S, INT, axis, NULL, "axis to turn round")
DEFINE_ATTRS(Reverse, REVERSE_ATTRS)

static const Type *reverse_type(OpCall *c)
{
  const ReverseAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  op_axis(c, a->axis, in->ndim);
  return in;
}

static const Expr *from_last(Module *m, const Expr *extent, const Expr *i)
{
  return expr_sub(m, expr_sub(m, extent, expr_int(m, extent->dtype, 1)), i);
}

static void reverse_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ReverseAttrs *a = c->attrs;
  OpAxes ax = op_out_axes(c, 0);
  int d = op_axis(c, a->axis, ax.ndim);
  const Expr **at = op_emit_copy_index(c->m, ax.ndim, ax.index);
  at[d] = from_last(c->m, ax.shape[d], ax.index[d]);
  out[0] = op_emit(c, &ax, "T_reverse", op_read(c->m, in[0], at));
}

static const void *reverse_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  const ReverseAttrs *a = c->attrs;
  int d = layout_axis(&arg[0], op_axis(c, a->axis, c->arg[0]->ndim));
  if (d < 0) return NULL;
  ReverseAttrs *moved = attrs_copy(c->m, &Reverse_attrs, a);
  moved->axis = d;
  out[0] = arg[0];
  return moved;
}

const OpDef op_reverse = {
  .name = "reverse",
  .doc = "one axis the other way round",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Reverse_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = reverse_type,
  .compute = reverse_compute,
  .layout = reverse_layout,
};

/* clang-format off */
#define REVERSE_SEQUENCE_ATTRS(A, S)                          \
  A(S, INT, seq_axis, "1", "axis to turn round")              \
  A(S, INT, batch_axis, "0", "axis that seq_lengths speaks of")
/* clang-format on */
DEFINE_ATTRS(ReverseSequence, REVERSE_SEQUENCE_ATTRS)

static const Type *reverse_sequence_type(OpCall *c)
{
  const ReverseSequenceAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *len = op_int_tensor_arg(c, 1);
  int b = op_axis(c, a->batch_axis, in->ndim);
  if (op_axis(c, a->seq_axis, in->ndim) == b) opdef_raise(c, ERR_ARGUMENT, "seq_axis and batch_axis are both %d", b);
  if (len->ndim != 1 || dim_differ(len->shape[0], in->shape[b]))
    opdef_raise(c, ERR_SHAPE, "seq_lengths is %s; it must have one length for each of axis %d of %s", op_arg_text(c, 1),
                b, op_arg_text(c, 0));
  const Expr *dim[MAX_RANK];
  for (int i = 0; i < in->ndim; i++) dim[i] = in->shape[i];
  dim[b] = op_equal_dim(c, in->shape[b], len->shape[0], "seq_lengths");
  return type_tensor(c->m, in->dtype, in->ndim, dim);
}

/* Element i of a sequence of length n comes from n - 1 - i where i < n; a length is taken
 * as within [0, extent]. */
static void reverse_sequence_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ReverseSequenceAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  int s = op_axis(c, a->seq_axis, ax.ndim);
  int b = op_axis(c, a->batch_axis, ax.ndim);
  const Expr *len = expr_cast(m, ax.index[s]->dtype, op_emit_read1(m, in[1], ax.index[b]));
  len = op_emit_clamp(m, len, expr_int(m, len->dtype, 0), ax.shape[s]);
  const Expr **at = op_emit_copy_index(m, ax.ndim, ax.index);
  at[s] = expr_select(m, expr_lt(m, ax.index[s], len), from_last(m, len, ax.index[s]), ax.index[s]);
  out[0] = op_emit(c, &ax, "T_reverse_sequence", op_read(m, in[0], at));
}

const OpDef op_reverse_sequence = {
  .name = "reverse_sequence",
  .doc = "the first seq_lengths[b] elements of each sequence the other way round",
  .args = "data, seq_lengths",
  .min_args = 2,
  .max_args = 2,
  .attrs = &ReverseSequence_attrs,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_STRING,
  .type = reverse_sequence_type,
  .compute = reverse_sequence_compute,
};

/* ---- concatenate, stack ------------------------------------------------------------------------------ */

static void same_field(OpCall *c, const Type *ty, int k)
{
  const Type *a = ty->field[0];
  const Type *b = ty->field[k];
  if (!dtype_eq(a->dtype, b->dtype) || a->ndim != b->ndim)
    opdef_raise(c, ERR_TYPE, "field 0 is %s, field %d is %s; all must have one dtype and rank",
                type_text(c->m->arena, a), k, type_text(c->m->arena, b));
}

static const Type *concatenate_type(OpCall *c)
{
  const ConcatenateAttrs *a = c->attrs;
  const Type *ty = op_filled_tuple_arg(c, 0);
  const Type *first = ty->field[0];
  int axis = op_axis(c, a->axis, first->ndim);
  const Expr *dim[MAX_RANK];
  for (int i = 0; i < first->ndim; i++) dim[i] = first->shape[i];
  for (int k = 1; k < ty->nfield; k++) {
    same_field(c, ty, k);
    for (int i = 0; i < first->ndim; i++) {
      if (i == axis) dim[i] = dim_add(c->m, dim[i], ty->field[k]->shape[i]);
      else if (dim_differ(dim[i], ty->field[k]->shape[i]))
        opdef_raise(c, ERR_SHAPE, "field 0 is %s, field %d is %s; they may differ only along axis %d",
                    type_text(c->m->arena, first), k, type_text(c->m->arena, ty->field[k]), axis);
      else dim[i] = op_equal_dim(c, dim[i], ty->field[k]->shape[i], "a dimension");
    }
  }
  return type_tensor(c->m, first->dtype, first->ndim, dim);
}

static int num_inputs(OpCall *c) { return c->arg[0]->kind == TY_TUPLE ? c->arg[0]->nfield : 1; }

static void concatenate_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ConcatenateAttrs *a = c->attrs;
  Module *m = c->m;
  int n = num_inputs(c);
  OpAxes ax = op_out_axes(c, 0);
  int axis = op_axis(c, a->axis, ax.ndim);
  const Expr **start = arena_array(m->arena, const Expr *, n);
  const Expr **at = op_emit_copy_index(m, ax.ndim, ax.index);
  start[0] = dim_int(m, 0);
  for (int k = 1; k < n; k++) start[k] = dim_add(m, start[k - 1], in[k - 1]->buffer->shape[axis]);
  const Expr *body = NULL;
  for (int k = n - 1; k >= 0; k--) {
    at[axis] = k ? expr_sub(m, ax.index[axis], start[k]) : ax.index[axis];
    const Expr *read = op_read(m, in[k], at);
    body = body ? op_emit_if(m, expr_lt(m, ax.index[axis], start[k + 1]), read, body) : read;
  }
  out[0] = op_emit(c, &ax, "T_concat", body);
}

/* All fields take the layout of the first that has changed; the pass refuses a layout whose blocks
 * do not divide a field. */
static const void *concatenate_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  const ConcatenateAttrs *a = c->attrs;
  const LayoutPair *one = &arg[0];
  int n = num_inputs(c);
  for (int i = n - 1; i >= 0; i--)
    if (arg[i].from && strcmp(arg[i].from, arg[i].to)) one = &arg[i];
  if (c->arg[0]->kind != TY_TUPLE) return NULL;
  int axis = layout_outer_axis(one, op_axis(c, a->axis, c->arg[0]->field[0]->ndim));
  if (axis < 0) return NULL;
  LayoutPair all = *one;
  for (int i = 0; i < n; i++) arg[i] = all;
  ConcatenateAttrs *moved = attrs_copy(c->m, &Concatenate_attrs, a);
  moved->axis = axis;
  out[0] = all;
  return moved;
}

const OpDef op_concatenate = {
  .name = "concatenate",
  .doc = "tensors one after the other along an axis",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Concatenate_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_TUPLE_ARG | OPF_STRING,
  .type = concatenate_type,
  .compute = concatenate_compute,
  .layout = concatenate_layout,
};

static const Type *stack_type(OpCall *c)
{
  const StackAttrs *a = c->attrs;
  const Type *ty = op_filled_tuple_arg(c, 0);
  const Type *first = ty->field[0];
  int axis = op_axis(c, a->axis, first->ndim + 1);
  int k = 0;
  op_check_rank(c, first->ndim + 1);
  const Expr *dim[MAX_RANK + 1];
  for (int i = 0; i <= first->ndim; i++) dim[i] = i == axis ? dim_int(c->m, ty->nfield) : first->shape[k++];
  for (int f = 1; f < ty->nfield; f++) {
    same_field(c, ty, f);
    for (int i = 0; i < first->ndim; i++) {
      if (dim_differ(first->shape[i], ty->field[f]->shape[i]))
        opdef_raise(c, ERR_SHAPE, "field 0 is %s, field %d is %s; all must have one shape",
                    type_text(c->m->arena, first), f, type_text(c->m->arena, ty->field[f]));
      int at = i < axis ? i : i + 1;
      dim[at] = op_equal_dim(c, dim[at], ty->field[f]->shape[i], "a dimension");
    }
  }
  return type_tensor(c->m, first->dtype, first->ndim + 1, dim);
}

static void stack_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const StackAttrs *a = c->attrs;
  OpAxes ax = op_out_axes(c, 0);
  int axis = op_axis(c, a->axis, ax.ndim);
  int n = num_inputs(c);
  const Expr *at[MAX_RANK];
  const Expr *body = NULL;
  for (int i = 0; i < ax.ndim - 1; i++) at[i] = ax.index[i < axis ? i : i + 1];
  for (int k = n - 1; k >= 0; k--) {
    const Expr *read = op_read(c->m, in[k], at);
    body = body ? op_emit_if(c->m, expr_binary(c->m, E_EQ, ax.index[axis], expr_i32(c->m, k)), read, body) : read;
  }
  out[0] = op_emit(c, &ax, "T_stack", body);
}

const OpDef op_stack = {
  .name = "stack",
  .doc = "tensors of one shape along a new axis",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Stack_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_TUPLE_ARG | OPF_STRING,
  .type = stack_type,
  .compute = stack_compute,
};

/* ---- split -------------------------------------------------------------------------------------------- */

static bool split_by_count(OpCall *c)
{
  const SplitAttrs *a = c->attrs;
  if (!strcmp(a->mode, "sections")) return true;
  if (!strcmp(a->mode, "indices")) return false;
  if (strcmp(a->mode, "auto")) opdef_raise(c, ERR_ARGUMENT, "mode is '%s'; it is auto, sections or indices", a->mode);
  return a->indices_or_sections.n == 1;
}

/* Where the parts begin, and last the extent; their number. */
static int split_points(OpCall *c, const Expr *extent, const Expr ***out)
{
  const SplitAttrs *a = c->attrs;
  Module *m = c->m;
  AttrInts v = a->indices_or_sections;
  if (split_by_count(c)) {
    int64_t n = v.n == 1 ? v.v[0] : 0;
    if (n < 1 || n > 100000)
      opdef_raise(c, ERR_ARGUMENT, "indices_or_sections is %" PRId64 "; the number of parts is from 1 to 100000", n);
    if (extent->kind == E_INT && extent->u.i % n)
      opdef_raise(c, ERR_SHAPE, "an axis of extent %" PRId64 " of %s does not part into %" PRId64 " equal sections",
                  extent->u.i, op_arg_text(c, 0), n);
    const Expr **at = arena_array(m->arena, const Expr *, (int)n + 1);
    const Expr *part = dim_floordiv(m, extent, dim_int(m, n));
    for (int i = 0; i < (int)n; i++) at[i] = dim_mul(m, part, dim_int(m, i));
    at[n] = dim_mul(m, part, dim_int(m, n));
    *out = at;
    return (int)n;
  }
  const Expr **at = arena_array(m->arena, const Expr *, v.n + 2);
  at[0] = dim_int(m, 0);
  for (int i = 0; i < v.n; i++) {
    int64_t before = i ? v.v[i - 1] : 0;
    if (v.v[i] < before || (extent->kind == E_INT && v.v[i] > extent->u.i))
      opdef_raise(c, ERR_ARGUMENT,
                  "index %" PRId64 " in indices_or_sections is not between %" PRId64 " and the extent %s", v.v[i],
                  before, expr_str_of(m->arena, extent));
    at[i + 1] = dim_int(m, v.v[i]);
  }
  at[v.n + 1] = extent;
  *out = at;
  return v.n + 1;
}

static const Type *split_type(OpCall *c)
{
  const SplitAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int axis = op_axis(c, a->axis, in->ndim);
  const Expr **at;
  int n = split_points(c, in->shape[axis], &at);
  const Type **field = arena_array(c->m->arena, const Type *, n);
  /* equal parts: none may be left */
  const Expr *rest = split_by_count(c) ? dim_mod(c->m, in->shape[axis], dim_int(c->m, n)) : NULL;
  for (int i = 0; i < n; i++) {
    const Expr **dim = op_emit_copy_index(c->m, in->ndim, in->shape);
    dim[axis] = dim_sub(c->m, at[i + 1], at[i]);
    if (rest && !expr_is_int(rest, 0))
      dim[axis] = dim_guard(c->m, expr_binary(c->m, E_EQ, rest, expr_int(c->m, rest->dtype, 0)), dim[axis]);
    field[i] = type_tensor(c->m, in->dtype, in->ndim, dim);
  }
  if (dim_differ(at[n], in->shape[axis]))
    opdef_raise(c, ERR_SHAPE, "the parts do not cover axis %d of %s", axis, op_arg_text(c, 0));
  return type_tuple(c->m, n, field);
}

static void split_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const SplitAttrs *a = c->attrs;
  int axis = op_axis(c, a->axis, in[0]->buffer->ndim);
  const Expr **start;
  int n = split_points(c, in[0]->buffer->shape[axis], &start);
  for (int k = 0; k < n; k++) {
    OpAxes ax = op_out_axes(c, k);
    const Expr **at = op_emit_copy_index(c->m, ax.ndim, ax.index);
    at[axis] = expr_add(c->m, start[k], ax.index[axis]);
    out[k] = op_emit(c, &ax, "T_split", op_read(c->m, in[0], at));
  }
}

static const void *split_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  const SplitAttrs *a = c->attrs;
  int d = layout_axis(&arg[0], op_axis(c, a->axis, c->arg[0]->ndim));
  if (d < 0 || !c->out || c->out->kind != TY_TUPLE) return NULL;
  SplitAttrs *moved = attrs_copy(c->m, &Split_attrs, a);
  moved->axis = d;
  for (int i = 0; i < c->out->nfield; i++) out[i] = arg[0];
  return moved;
}

const OpDef op_split = {
  .name = "split",
  .doc = "an axis in parts; gives a tuple",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Split_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = split_type,
  .compute = split_compute,
  .layout = split_layout,
};

/* ---- tile, repeat ---------------------------------------------------------------------------------------- */

#define TILE_ATTRS(A, S) A(S, INTS, reps, NULL, "how often along each axis")
DEFINE_ATTRS(Tile, TILE_ATTRS)

/* Both ranks are brought to the larger one with 1s in front. */
static const Type *tiled(OpCall *c, const Type *in, int n, const Expr *const *reps)
{
  int ndim = n > in->ndim ? n : in->ndim;
  op_check_rank(c, ndim);
  const Expr *dim[MAX_RANK];
  for (int i = 0; i < ndim; i++) {
    int d = i - (ndim - in->ndim);
    int r = i - (ndim - n);
    const Expr *extent = d < 0 ? dim_int(c->m, 1) : in->shape[d];
    const Expr *times = r < 0 ? dim_int(c->m, 1) : reps[r];
    if (times->kind == E_INT && times->u.i < 0)
      opdef_raise(c, ERR_ARGUMENT, "reps has %" PRId64 "; a count is not negative", times->u.i);
    dim[i] = dim_mul(c->m, extent, times);
  }
  return type_tensor(c->m, in->dtype, ndim, dim);
}

static const Type *tile_type(OpCall *c)
{
  const TileAttrs *a = c->attrs;
  const Expr **reps = arena_array(c->m->arena, const Expr *, a->reps.n);
  for (int i = 0; i < a->reps.n; i++) reps[i] = dim_int(c->m, a->reps.v[i]);
  return tiled(c, op_tensor_arg(c, 0), a->reps.n, reps);
}

static void tile_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes ax = op_out_axes(c, 0);
  int n = in[0]->buffer->ndim;
  const Expr *at[MAX_RANK];
  for (int i = 0; i < n; i++) {
    const Expr *extent = in[0]->buffer->shape[i];
    const Expr *ix = ax.index[ax.ndim - n + i];
    bool once = dim_same(c->m, extent, ax.shape[ax.ndim - n + i]);
    at[i] = once ? ix : expr_is_int(extent, 1) ? expr_i32(c->m, 0) : expr_floormod(c->m, ix, extent);
  }
  out[0] = op_emit(c, &ax, "T_tile", op_read(c->m, in[0], at));
}

const OpDef op_tile = {
  .name = "tile",
  .doc = "the tensor again and again along its axes",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Tile_attrs,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = tile_type,
  .compute = tile_compute,
};

static const Type *dyn_tile_type(OpCall *c)
{
  int n;
  const Type *in = op_tensor_arg(c, 0);
  op_int_tensor_arg(c, 1);
  const Expr *const *reps = op_dims(c, 1, &n);
  return tiled(c, in, n, reps);
}

const OpDef op_dyn_tile = {
  .name = "dyn.tile",
  .doc = "tile with counts known only at run time",
  .args = "data, reps",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_BROADCAST,
  .flags = OPF_STRING,
  .type = dyn_tile_type,
  .compute = tile_compute,
};

/* clang-format off */
#define REPEAT_ATTRS(A, S)                              \
  A(S, INT, repeats, NULL, "how often each element")    \
  A(S, INT, axis, NULL, "axis to repeat along")
/* clang-format on */
DEFINE_ATTRS(Repeat, REPEAT_ATTRS)

static const Type *repeat_type(OpCall *c)
{
  const RepeatAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int axis = op_axis(c, a->axis, in->ndim);
  if (a->repeats < 1 || a->repeats > INT32_MAX)
    opdef_raise(c, ERR_ARGUMENT, "repeats is %" PRId64 "; it is at least 1", a->repeats);
  const Expr **dim = op_emit_copy_index(c->m, in->ndim, in->shape);
  dim[axis] = dim_mul(c->m, dim[axis], dim_int(c->m, a->repeats));
  return type_tensor(c->m, in->dtype, in->ndim, dim);
}

static void repeat_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const RepeatAttrs *a = c->attrs;
  OpAxes ax = op_out_axes(c, 0);
  int axis = op_axis(c, a->axis, ax.ndim);
  const Expr **at = op_emit_copy_index(c->m, ax.ndim, ax.index);
  at[axis] = expr_floordiv(c->m, ax.index[axis], expr_i32(c->m, a->repeats));
  out[0] = op_emit(c, &ax, "T_repeat", op_read(c->m, in[0], at));
}

const OpDef op_repeat = {
  .name = "repeat",
  .doc = "each element of an axis several times",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Repeat_attrs,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = repeat_type,
  .compute = repeat_compute,
};

/* ---- meshgrid, sliding_window -------------------------------------------------------------------------------- */

#define MESHGRID_ATTRS(A, S) A(S, STR, indexing, "\"ij\"", "ij: in order; xy: the first two axes change places")
DEFINE_ATTRS(Meshgrid, MESHGRID_ATTRS)

static int meshgrid_axis(OpCall *c, int k, int n)
{
  const MeshgridAttrs *a = c->attrs;
  bool xy = !strcmp(a->indexing, "xy");
  if (!xy && strcmp(a->indexing, "ij")) opdef_raise(c, ERR_ARGUMENT, "indexing is '%s'; it is ij or xy", a->indexing);
  return xy && n > 1 && k < 2 ? 1 - k : k;
}

static const Type *meshgrid_type(OpCall *c)
{
  const Type *ty = op_filled_tuple_arg(c, 0);
  const Expr *dim[MAX_RANK];
  if (ty->nfield > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "%d vectors; there are at most %d dimensions", ty->nfield, MAX_RANK);
  for (int k = 0; k < ty->nfield; k++) {
    const Type *v = ty->field[k];
    if (v->ndim > 1 || !dtype_eq(v->dtype, ty->field[0]->dtype))
      opdef_raise(c, ERR_TYPE, "field %d is %s; all must be vectors or scalars of %s", k, type_text(c->m->arena, v),
                  dtype_name(c->m->arena, ty->field[0]->dtype));
    dim[meshgrid_axis(c, k, ty->nfield)] = v->ndim ? v->shape[0] : dim_int(c->m, 1);
  }
  const Type *grid = type_tensor(c->m, ty->field[0]->dtype, ty->nfield, dim);
  const Type *field[MAX_RANK];
  for (int k = 0; k < ty->nfield; k++) field[k] = grid;
  return type_tuple(c->m, ty->nfield, field);
}

static void meshgrid_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  int n = num_inputs(c);
  for (int k = 0; k < n; k++) {
    OpAxes ax = op_out_axes(c, k);
    out[k] = op_emit(c, &ax, "T_meshgrid", op_emit_read1(c->m, in[k], ax.index[meshgrid_axis(c, k, n)]));
  }
}

const OpDef op_meshgrid = {
  .name = "meshgrid",
  .doc = "coordinate grids from vectors; gives a tuple",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Meshgrid_attrs,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_TUPLE_ARG,
  .type = meshgrid_type,
  .compute = meshgrid_compute,
};

/* clang-format off */
#define SLIDING_WINDOW_ATTRS(A, S)                                   \
  A(S, INT, axis, NULL, "first axis that the window moves over")     \
  A(S, INTS, window_shape, NULL, "extent of the window")             \
  A(S, INTS, strides, NULL, "step of the window")
/* clang-format on */
DEFINE_ATTRS(SlidingWindow, SLIDING_WINDOW_ATTRS)

/* (batch…, moved…) -> (batch…, positions…, window…) */
static const Type *sliding_window_type(OpCall *c)
{
  const SlidingWindowAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  int axis = op_axis(c, a->axis, in->ndim);
  int n = a->window_shape.n;
  if (n != in->ndim - axis || a->strides.n != n)
    opdef_raise(c, ERR_ARGUMENT,
                "window_shape has %d numbers and strides %d; both need one for each of the %d axes from %d on", n,
                a->strides.n, in->ndim - axis, axis);
  const Expr *dim[2 * MAX_RANK];
  for (int i = 0; i < axis; i++) dim[i] = in->shape[i];
  for (int i = 0; i < n; i++) {
    int64_t w = a->window_shape.v[i];
    int64_t s = a->strides.v[i];
    const Expr *extent = in->shape[axis + i];
    if (w < 1 || s < 1)
      opdef_raise(c, ERR_ARGUMENT, "window %" PRId64 " with stride %" PRId64 "; both are at least 1", w, s);
    if (extent->kind == E_INT && w > extent->u.i)
      opdef_raise(c, ERR_SHAPE, "the window's %" PRId64 " is more than the extent %" PRId64 " of axis %d", w,
                  extent->u.i, axis + i);
    dim[axis + i] =
        dim_add(c->m, dim_floordiv(c->m, dim_sub(c->m, extent, dim_int(c->m, w)), dim_int(c->m, s)), dim_int(c->m, 1));
    dim[axis + n + i] = dim_int(c->m, w);
  }
  op_check_rank(c, axis + 2 * n);
  return type_tensor(c->m, in->dtype, axis + 2 * n, dim);
}

static void sliding_window_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const SlidingWindowAttrs *a = c->attrs;
  OpAxes ax = op_out_axes(c, 0);
  int ndim = in[0]->buffer->ndim;
  int axis = op_axis(c, a->axis, ndim);
  int n = a->window_shape.n;
  const Expr *at[MAX_RANK];
  for (int i = 0; i < axis; i++) at[i] = ax.index[i];
  for (int i = 0; i < n; i++)
    at[axis + i] =
        expr_add(c->m, expr_mul(c->m, ax.index[axis + i], expr_i32(c->m, a->strides.v[i])), ax.index[axis + n + i]);
  out[0] = op_emit(c, &ax, "T_sliding_window", op_read(c->m, in[0], at));
}

const OpDef op_sliding_window = {
  .name = "sliding_window",
  .doc = "every position of a moving window",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &SlidingWindow_attrs,
  .fuse = FUSE_OPAQUE,
  .type = sliding_window_type,
  .compute = sliding_window_compute,
};
