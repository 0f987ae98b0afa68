/* shape_slice.c: parts of a tensor: strided_slice, slice_like, and those whose bounds are
 * known only at run time: dyn.strided_slice, dyn.take_first, dyn.split.
 *
 * Bounds mean what numpy means: negative counts from the end, what is outside is brought
 * to the edge.  A slice along one axis is (start, count, step), start brought into the
 * axis where the count is not 0.  The type rule makes them from values, the compute from attributes or from the
 * operand's elements: the same function over other expressions, so a kernel never reads
 * outside. */
#include "op/shape.h"

DEFINE_ATTRS_TABLE(StridedSlice, STRIDED_SLICE_ATTRS)

typedef struct Cut {
  const Expr *start, *count, *step;
} Cut;

static const Expr *pick(Module *m, const Expr *cond, const Expr *a, const Expr *b)
{
  DType t = expr_add(m, a, b)->dtype;
  return expr_select(m, cond, expr_cast(m, t, a), expr_cast(m, t, b));
}

/* An edge of the slice, from the end where negative, brought into [lo, hi]. */
static const Expr *edge(Module *m, const Expr *v, const Expr *extent, const Expr *lo, const Expr *hi)
{
  if (v->kind == E_INT && v->u.i >= INT32_MAX) return hi;
  if (v->kind == E_INT && v->u.i <= -INT32_MAX) return lo;
  const Expr *at = v->kind == E_INT ? (v->u.i < 0 ? dim_add(m, extent, v) : v)
                                    : pick(m, expr_lt(m, v, expr_int(m, v->dtype, 0)), expr_add(m, v, extent), v);
  if (expr_is_int(at, 0) && expr_is_int(lo, 0)) return lo;
  return dim_max(m, dim_min(m, at, hi), lo);
}

static const Expr *count_up(Module *m, const Expr *from, const Expr *to, const Expr *step)
{
  const Expr *n = dim_ceildiv(m, dim_sub(m, to, from), step);
  return dim_never_negative(m, n) ? n : dim_max(m, n, dim_int(m, 0));
}

/* How many elements lie between the edges begin and end, literals: the extent stands in it once, so that slices of
 * slices have short sizes.  NULL: no such form. */
static const Expr *length_between(Module *m, int64_t begin, int64_t end, const Expr *extent)
{
  const Expr *zero = dim_int(m, 0);
  bool to_end = end >= INT32_MAX;
  if (begin >= INT32_MAX || end <= -INT32_MAX) return zero;
  if (begin <= -INT32_MAX) begin = 0;
  if (begin >= 0 && (to_end || end < 0))
    return dim_max(m, dim_sub(m, extent, dim_int(m, begin - (to_end ? 0 : end))), zero);
  if (begin >= 0) return dim_max(m, dim_min(m, dim_sub(m, extent, dim_int(m, begin)), dim_int(m, end - begin)), zero);
  const Expr *tail = dim_min(m, extent, dim_int(m, -begin));
  return to_end ? tail : end < 0 ? dim_max(m, dim_add(m, tail, dim_int(m, end)), zero) : NULL;
}

/* begin:end:step over an axis; by_size: `end` is a count, negative: to the end. */
static Cut cut_axis(Module *m, const Expr *begin, const Expr *end, const Expr *step, const Expr *extent, bool by_size)
{
  const Expr *zero = dim_int(m, 0);
  const Expr *one = dim_int(m, 1);
  const Expr *last = dim_sub(m, extent, one);
  const Expr *minus = dim_int(m, -1);
  if (by_size) {
    const Expr *from = edge(m, begin, extent, zero, extent);
    const Expr *room = dim_sub(m, extent, from);
    const Expr *n =
        end->kind == E_INT
            ? (end->u.i < 0 ? room : dim_min(m, end, room))
            : dim_simplify(m, pick(m, expr_lt(m, end, expr_int(m, end->dtype, 0)), room, expr_min(m, end, room)));
    return (Cut){from, n, one};
  }
  Cut up = {edge(m, begin, extent, zero, extent), NULL, step};
  Cut down = {edge(m, begin, extent, minus, last), NULL, step};
  if (step->kind == E_INT && step->u.i > 0) {
    bool literal = begin->kind == E_INT && end->kind == E_INT && extent->kind != E_INT;
    const Expr *length = literal ? length_between(m, begin->u.i, end->u.i, extent) : NULL;
    if (length) up.count = dim_ceildiv(m, length, step);
    if (length && begin->u.i >= 0) up.start = begin; /* where there is an element, it lies behind `begin` of them */
    if (!length) up.count = count_up(m, up.start, edge(m, end, extent, zero, extent), step);
    return up;
  }
  const Expr *back = dim_sub(m, zero, step);
  if (step->kind == E_INT) {
    down.count = count_up(m, edge(m, end, extent, minus, last), down.start, back);
    return down;
  }
  const Expr *forward = expr_binary(m, E_GT, step, expr_int(m, step->dtype, 0));
  const Expr *nup = count_up(m, up.start, edge(m, end, extent, zero, extent), dim_max(m, step, one));
  const Expr *ndown = count_up(m, edge(m, end, extent, minus, last), down.start, dim_max(m, back, one));
  return (Cut){pick(m, forward, up.start, down.start), dim_simplify(m, pick(m, forward, nup, ndown)), step};
}

/* ---- strided_slice --------------------------------------------------------------------------------- */

static bool slice_by_size(OpCall *c, const char *mode)
{
  if (!strcmp(mode, "size")) return true;
  if (strcmp(mode, "end")) opdef_raise(c, ERR_ARGUMENT, "slice_mode is '%s'; it is end or size", mode);
  return false;
}

/* The axis that entry k of begin speaks of. */
static int slice_axis(OpCall *c, const AttrInts *axes, int k, int n, int ndim)
{
  if (axes->given && axes->n != n) opdef_raise(c, ERR_ARGUMENT, "axes lists %d axes, begin has %d numbers", axes->n, n);
  if (!axes->given && n > ndim)
    opdef_raise(c, ERR_ARGUMENT, "begin has %d numbers, %s has %d dimensions", n, op_arg_text(c, 0), ndim);
  int d = axes->given ? op_axis(c, axes->v[k], ndim) : k;
  for (int i = 0; axes->given && i < k; i++)
    if (op_axis(c, axes->v[i], ndim) == d) opdef_raise(c, ERR_ARGUMENT, "axes names axis %d twice", d);
  return d;
}

static void static_cuts(OpCall *c, int ndim, const Expr *const *shape, Cut *cut)
{
  const StridedSliceAttrs *a = c->attrs;
  Module *m = c->m;
  bool by_size = slice_by_size(c, a->slice_mode);
  if (a->end.n != a->begin.n) opdef_raise(c, ERR_ARGUMENT, "begin has %d numbers, end %d", a->begin.n, a->end.n);
  for (int i = 0; i < ndim; i++) cut[i] = (Cut){dim_int(m, 0), shape[i], dim_int(m, 1)};
  for (int k = 0; k < a->begin.n; k++) {
    int d = slice_axis(c, &a->axes, k, a->begin.n, ndim);
    int64_t step = !a->strides.given || !a->strides.n ? 1
                   : a->strides.n == 1                ? a->strides.v[0]
                   : k < a->strides.n                 ? a->strides.v[k]
                                                      : 1;
    if (step == 0) opdef_raise(c, ERR_ARGUMENT, "the stride of axis %d is 0", d);
    cut[d] = cut_axis(m, dim_int(m, a->begin.v[k]), dim_int(m, a->end.v[k]), dim_int(m, step), shape[d], by_size);
  }
}

static const Type *cut_type(OpCall *c, const Type *in, const Cut *cut)
{
  const Expr *dim[MAX_RANK];
  for (int i = 0; i < in->ndim; i++) dim[i] = cut[i].count;
  return type_tensor(c->m, in->dtype, in->ndim, dim);
}

static void cut_compute(OpCall *c, const Tensor *in, const Cut *cut, const char *name, const Tensor **out)
{
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *at[MAX_RANK];
  for (int i = 0; i < ax.ndim; i++) {
    const Expr *step = expr_is_int(cut[i].step, 1) ? ax.index[i] : expr_mul(m, ax.index[i], cut[i].step);
    at[i] = expr_is_int(cut[i].start, 0) ? step : expr_add(m, cut[i].start, step);
  }
  out[0] = op_emit(c, &ax, name, op_read(m, in, at));
}

static const Type *strided_slice_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  Cut cut[MAX_RANK];
  static_cuts(c, in->ndim, in->shape, cut);
  return cut_type(c, in, cut);
}

static void strided_slice_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Cut cut[MAX_RANK];
  static_cuts(c, in[0]->buffer->ndim, in[0]->buffer->shape, cut);
  cut_compute(c, in[0], cut, "T_strided_slice", out);
}

static const void *strided_slice_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  const StridedSliceAttrs *a = c->attrs;
  int64_t axes[MAX_RANK];
  for (int k = 0; k < a->begin.n; k++) {
    axes[k] = layout_axis(&arg[0], slice_axis(c, &a->axes, k, a->begin.n, c->arg[0]->ndim));
    if (axes[k] < 0) return NULL; /* one of those cut is in blocks */
  }
  StridedSliceAttrs *moved = attrs_copy(c->m, &StridedSlice_attrs, a);
  attrs_set_ints(c->m, &StridedSlice_attrs, moved, "axes", a->begin.n, axes);
  out[0] = arg[0];
  return moved;
}

const OpDef op_strided_slice = {
  .name = "strided_slice",
  .doc = "begin:end:stride of each axis; bounds outside are brought to the edge",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &StridedSlice_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = strided_slice_type,
  .compute = strided_slice_compute,
  .layout = strided_slice_layout,
};

/* ---- slice_like ----------------------------------------------------------------------------------------- */

#define SLICE_LIKE_ATTRS(A, S) A(S, INTS, axes, "None", "axes to cut; None or []: all")
DEFINE_ATTRS(SliceLike, SLICE_LIKE_ATTRS)

static const Type *slice_like_type(OpCall *c)
{
  const SliceLikeAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *like = op_tensor_arg(c, 1);
  const Expr **dim = op_emit_copy_index(c->m, in->ndim, in->shape);
  int n = a->axes.n ? a->axes.n : in->ndim < like->ndim ? in->ndim : like->ndim;
  for (int i = 0; i < n; i++) {
    int d = a->axes.n ? op_axis(c, a->axes.v[i], in->ndim) : i;
    if (d >= like->ndim)
      opdef_raise(c, ERR_SHAPE, "%s has no axis %d to cut %s by", op_arg_text(c, 1), d, op_arg_text(c, 0));
    const Expr *from = in->shape[d];
    const Expr *to = like->shape[d];
    if (from->kind == E_INT && to->kind == E_INT && to->u.i > from->u.i)
      opdef_raise(c, ERR_SHAPE, "axis %d of %s is shorter than that of %s", d, op_arg_text(c, 0), op_arg_text(c, 1));
    bool both = from->kind == E_INT && to->kind == E_INT;
    dim[d] = both || dim_same(c->m, from, to)
                 ? to
                 : dim_simplify(c->m, pick(c->m, expr_binary(c->m, E_LE, to, from), to, expr_i32(c->m, -1)));
  }
  return type_tensor(c->m, in->dtype, in->ndim, dim);
}

static void slice_like_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes ax = op_out_axes(c, 0);
  out[0] = op_emit(c, &ax, "T_slice_like", op_read(c->m, in[0], ax.index));
}

const OpDef op_slice_like = {
  .name = "slice_like",
  .doc = "the first part of data, as long as shape_like",
  .args = "data, shape_like",
  .min_args = 2,
  .max_args = 2,
  .attrs = &SliceLike_attrs,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_STRING,
  .type = slice_like_type,
  .compute = slice_like_compute,
};

/* ---- bounds known only at run time ---------------------------------------------------------------------------- */

/* clang-format off */
#define DYN_STRIDED_SLICE_ATTRS(A, S)                          \
  A(S, STR, slice_mode, "\"end\"", "end or size")              \
  A(S, INTS, axes, "None", "axes meant; None: the first ones")
/* clang-format on */
DEFINE_ATTRS(DynStridedSlice, DYN_STRIDED_SLICE_ATTRS)

static void dyn_cuts(OpCall *c, int ndim, const Expr *const *shape, int n, const Expr *const *begin,
                     const Expr *const *end, const Expr *const *step, Cut *cut)
{
  const DynStridedSliceAttrs *a = c->attrs;
  bool by_size = slice_by_size(c, a->slice_mode);
  for (int i = 0; i < ndim; i++) cut[i] = (Cut){dim_int(c->m, 0), shape[i], dim_int(c->m, 1)};
  for (int k = 0; k < n; k++) {
    int d = slice_axis(c, &a->axes, k, n, ndim);
    if (expr_is_int(step[k], 0)) opdef_raise(c, ERR_ARGUMENT, "the stride of axis %d is 0", d);
    cut[d] = cut_axis(c->m, begin[k], end[k], step[k], shape[d], by_size);
  }
}

/* A 64-bit bound brought to 32 bits: what is beyond goes to the ends, as numpy's "all". */
static const Expr *narrow_bound(Module *m, const Expr *v)
{
  if (v->dtype.bits <= 32) return expr_cast(m, DT_I32, v);
  return expr_cast(m, DT_I32, op_emit_clamp(m, v, expr_int(m, v->dtype, -INT32_MAX), expr_int(m, v->dtype, INT32_MAX)));
}

/* Sizes are sizes already; only a computed 64-bit element needs it. */
static const Expr *const *bound_values(OpCall *c, int i, int *n)
{
  op_int_tensor_arg(c, i);
  const Expr *const *v = op_values(c, i, n);
  const Expr **out = arena_array(c->m->arena, const Expr *, *n);
  for (int k = 0; k < *n; k++) {
    out[k] = dim_of_value(c->m, v[k]);
    if (expr_has_kind(out[k], E_CAST)) out[k] = dim_simplify(c->m, narrow_bound(c->m, v[k]));
  }
  return out;
}

static const Type *dyn_strided_slice_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  int n[3];
  const Expr *const *v[3];
  for (int i = 0; i < 3; i++) {
    v[i] = bound_values(c, i + 1, &n[i]);
    if (n[i] != n[0])
      opdef_raise(c, ERR_SHAPE, "begin has %d elements, %s has %d", n[0], i == 1 ? "end" : "strides", n[i]);
  }
  Cut cut[MAX_RANK];
  dyn_cuts(c, in->ndim, in->shape, n[0], v[0], v[1], v[2], cut);
  return cut_type(c, in, cut);
}

static const Expr *position(Module *m, const Tensor *t, int k)
{
  return narrow_bound(m, op_emit_read1(m, t, expr_i32(m, k)));
}

static void dyn_strided_slice_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const Buffer *b = in[0]->buffer;
  int n = (int)in[1]->buffer->shape[0]->u.i;
  const Expr *v[3][MAX_RANK];
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < n; k++) v[i][k] = position(c->m, in[i + 1], k);
  Cut cut[MAX_RANK];
  dyn_cuts(c, b->ndim, b->shape, n, v[0], v[1], v[2], cut);
  for (int d = 0; d < b->ndim; d++) /* an empty slice starts anywhere: keep what is read inside */
    if (!expr_is_int(cut[d].start, 0)) {
      const Expr *last = expr_sub(c->m, b->shape[d], expr_i32(c->m, 1));
      cut[d].start = op_emit_clamp(c->m, cut[d].start, expr_i32(c->m, 0), last);
    }
  cut_compute(c, in[0], cut, "T_dyn_strided_slice", out);
}

const OpDef op_dyn_strided_slice = {
  .name = "dyn.strided_slice",
  .doc = "strided_slice with bounds known only at run time",
  .args = "data, begin, end, strides",
  .min_args = 4,
  .max_args = 4,
  .attrs = &DynStridedSlice_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_STRING,
  .type = dyn_strided_slice_type,
  .compute = dyn_strided_slice_compute,
};

#define DYN_TAKE_FIRST_ATTRS(A, S) A(S, INT, axis, "0", "axis to cut")
DEFINE_ATTRS(DynTakeFirst, DYN_TAKE_FIRST_ATTRS)

/* count is trusted to be at most the extent: it comes with data, from a kernel that fills
 * that many. */
static const Type *dyn_take_first_type(OpCall *c)
{
  const DynTakeFirstAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  op_int_tensor_arg(c, 1);
  int n;
  int axis = op_axis(c, a->axis, in->ndim);
  const Expr *const *count = op_dims(c, 1, &n);
  if (n != 1) opdef_raise(c, ERR_SHAPE, "count is %s; it is one number", op_arg_text(c, 1));
  const Expr **dim = op_emit_copy_index(c->m, in->ndim, in->shape);
  dim[axis] = count[0];
  return type_tensor(c->m, in->dtype, in->ndim, dim);
}

static void dyn_take_first_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  OpAxes ax = op_out_axes(c, 0);
  out[0] = op_emit(c, &ax, "T_take_first", op_read(c->m, in[0], ax.index));
}

const OpDef op_dyn_take_first = {
  .name = "dyn.take_first",
  .doc = "the first count entries of a padded tensor",
  .args = "data, count",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynTakeFirst_attrs,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_STRING,
  .type = dyn_take_first_type,
  .compute = dyn_take_first_compute,
};

#define DYN_SPLIT_ATTRS(A, S) A(S, INT, axis, "0", "axis to part")
DEFINE_ATTRS(DynSplit, DYN_SPLIT_ATTRS)

/* The last part's extent is -1 (a size that does not fit) unless the sizes add up. */
static const Type *dyn_split_type(OpCall *c)
{
  const DynSplitAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  op_int_tensor_arg(c, 1);
  int n;
  int axis = op_axis(c, a->axis, in->ndim);
  const Expr *const *size = op_dims(c, 1, &n), *sum = dim_int(c->m, 0);
  const Type **field = arena_array(c->m->arena, const Type *, n);
  for (int k = 0; k < n; k++) {
    const Expr **dim = op_emit_copy_index(c->m, in->ndim, in->shape);
    sum = dim_add(c->m, sum, size[k]);
    dim[axis] = size[k];
    if (k == n - 1 && dim_differ(sum, in->shape[axis]))
      opdef_raise(c, ERR_SHAPE, "the parts add up to %" PRId64 ", axis %d of %s has %" PRId64, sum->u.i, axis,
                  op_arg_text(c, 0), in->shape[axis]->u.i);
    if (k == n - 1 && !dim_same(c->m, sum, in->shape[axis]))
      dim[axis] =
          dim_simplify(c->m, pick(c->m, expr_binary(c->m, E_EQ, sum, in->shape[axis]), size[k], expr_i32(c->m, -1)));
    field[k] = type_tensor(c->m, in->dtype, in->ndim, dim);
  }
  return type_tuple(c->m, n, field);
}

static void dyn_split_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const DynSplitAttrs *a = c->attrs;
  int axis = op_axis(c, a->axis, in[0]->buffer->ndim);
  const Expr *start = expr_i32(c->m, 0);
  for (int k = 0; k < c->out->nfield; k++) {
    OpAxes ax = op_out_axes(c, k);
    const Expr **at = op_emit_copy_index(c->m, ax.ndim, ax.index);
    at[axis] = expr_add(c->m, start, ax.index[axis]);
    out[k] = op_emit(c, &ax, "T_dyn_split", op_read(c->m, in[0], at));
    start = expr_add(c->m, start, position(c->m, in[1], k));
  }
}

const OpDef op_dyn_split = {
  .name = "dyn.split",
  .doc = "an axis in parts whose sizes are known only at run time; gives a tuple",
  .args = "data, sizes",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DynSplit_attrs,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_STRING,
  .type = dyn_split_type,
  .compute = dyn_split_compute,
};
