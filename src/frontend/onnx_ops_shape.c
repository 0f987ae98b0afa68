/* onnx_ops_shape.c: shapes: constants, reshaping, joining, slicing, padding.
 *
 * Comes in: nodes whose shape operands are constants, sizes or anything computed.  Goes
 * out: calls with attributes where the compiler can follow the operand, else the
 * operator's dyn.* form. */
#include "frontend/onnx_import.h"

/* ---- constants ------------------------------------------------------------------------------- */

static const Node *convert_constant(Conversion *c)
{
  const PAttr *a;
  if ((a = onnx_attr(c, "value")) && a->t) return onnx_tensor(c->im, a->t, c->name);
  if ((a = onnx_attr(c, "sparse_value")) && a->sparse) return onnx_sparse(c->im, a->sparse, c->name);
  if (onnx_attr(c, "value_float")) return kit_scalar(c, DT_F32, onnx_attr_float(c, "value_float", 0));
  if (onnx_attr(c, "value_int")) return node_scalar(c->m, value_int(DT_I64, onnx_attr_int(c, "value_int", 0)));
  int n = 0;
  const float *f = onnx_attr_floats(c, "value_floats", &n);
  if (f) return node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, f);
  const int64_t *v = onnx_attr_ints(c, "value_ints", &n);
  if (v) return kit_const_i64(c, n, v);
  const Node *s = onnx_attr_strings(c, "value_strings");
  if (s) return s;
  if ((a = onnx_attr(c, "value_string"))) return kit_string_const(c, a->s.p, a->s.n);
  kit_fail(c, ERR_ARGUMENT, "it has no value");
}

static const Node *convert_constant_of_shape(Conversion *c)
{
  const PAttr *a = onnx_attr(c, "value");
  const Node *value = a && a->t ? kit_scalar_of(c, onnx_tensor(c->im, a->t, c->name)) : kit_scalar(c, DT_F32, 0);
  return kit_full(c, value, kit_in(c, 0), kit_dtype_of(c, value));
}

static const Node *convert_shape(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int rank = kit_rank_of(c, x);
  int64_t start = onnx_attr_int(c, "start", 0);
  int64_t end = onnx_attr_int(c, "end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = start < 0 ? 0 : start > rank ? rank : start;
  end = end < start ? start : end > rank ? rank : end;
  if (start == 0 && end == rank) return kit_shape_of(c, x);
  return kit_shape_part(c, x, (int)start, (int)end);
}

static const Node *convert_size(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (!kit_rank_of(c, x)) return node_scalar(c->m, value_int(DT_I64, 1));
  return kit_scalar_of(c, kit_op1(c, "ndarray_size", x, "dtype:t", DT_I64));
}

static const Node *convert_range(Conversion *c)
{
  const Node *start = kit_scalar_of(c, kit_in(c, 0));
  const Node *stop = kit_scalar_of(c, kit_in(c, 1));
  const Node *step = kit_scalar_of(c, kit_in(c, 2));
  double s;
  if (kit_const_float(c, step, &s) && s == 0) kit_fail(c, ERR_ARGUMENT, "the step is 0");
  return kit_arange(c, start, stop, step, kit_dtype_of(c, start));
}

static const Node *convert_eye_like(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (kit_rank_of(c, x) != 2) kit_fail(c, ERR_SHAPE, "a matrix is wanted, not rank %d", kit_rank_of(c, x));
  DType dt = onnx_attr_dtype(c, "dtype", kit_dtype_of(c, x));
  const Node *row = kit_iota(c, kit_scalar_of(c, kit_shape_part(c, x, 0, 1)), DT_I64);
  const Node *col = kit_iota(c, kit_scalar_of(c, kit_shape_part(c, x, 1, 2)), DT_I64);
  row = kit_add(c, kit_unsqueeze(c, row, 1), kit_scalar(c, DT_I64, (double)onnx_attr_int(c, "k", 0)));
  return kit_cast_to(c, kit_op2(c, "equal", row, kit_unsqueeze(c, col, 0), NULL), dt);
}

static const Node *convert_trilu(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *k = kit_opt(c, 1);
  k = k ? kit_scalar_of(c, k) : kit_scalar(c, DT_I64, 0);
  return kit_op2(c, "trilu", x, k, "upper:i", (int)onnx_attr_int(c, "upper", 1));
}

/* ---- the same elements --------------------------------------------------------------------------- */

static const Node *convert_reshape_attr(Conversion *c)
{
  int n = 0;
  const int64_t *shape = onnx_attr_ints(c, "shape", &n);
  if (!shape) kit_fail(c, ERR_ARGUMENT, "attribute 'shape' is missing");
  return kit_reshape(c, kit_in(c, 0), n, shape);
}

static const Node *convert_reshape(Conversion *c)
{
  return kit_reshape_to(c, kit_in(c, 0), kit_cast_to(c, kit_in(c, 1), DT_I64), onnx_attr_int(c, "allowzero", 0));
}

static const Node *convert_flatten(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int rank = kit_rank_of(c, x);
  int64_t axis = onnx_attr_int(c, "axis", 1);
  if (axis < -rank || axis > rank)
    kit_fail(c, ERR_ARGUMENT, "axis %" PRId64 " is out of range for rank %d", axis, rank);
  return kit_flatten_from(c, x, (int)(axis < 0 ? axis + rank : axis));
}

static const Node *convert_transpose(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int n = 0;
  int rank = kit_rank_of(c, x);
  int perm[MAX_RANK];
  const int64_t *p = onnx_attr_ints(c, "perm", &n);
  uint64_t seen = 0;
  if (p && n != rank) kit_fail(c, ERR_ARGUMENT, "perm has %d axes, the input %d", n, rank);
  for (int i = 0; i < rank; i++) {
    perm[i] = p ? kit_axis_of(c, p[i], rank) : rank - 1 - i;
    if (seen >> perm[i] & 1) kit_fail(c, ERR_ARGUMENT, "perm names axis %d twice", perm[i]);
    seen |= 1ull << perm[i];
  }
  return kit_transpose(c, x, rank, perm);
}

/* Axes come as an attribute or, from opset 13, as an input; NULL when they are computed. */
static const int64_t *read_axes(Conversion *c, int *n)
{
  const Node *in = kit_opt(c, 1);
  if (!in) return onnx_attr_ints(c, "axes", n);
  return kit_const_ints(c, in, n);
}

static const Node *convert_squeeze(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int n = 0;
  int rank = kit_rank_of(c, x);
  const int64_t *axes = read_axes(c, &n);
  int64_t list[MAX_RANK];
  int k = 0;
  if (kit_opt(c, 1) && !axes) return kit_squeeze_at(c, x, kit_in(c, 1));
  if (n > MAX_RANK) kit_fail(c, ERR_ARGUMENT, "%d axes are too many", n);
  for (int i = 0; axes && i < n; i++) list[k++] = kit_axis_of(c, axes[i], rank);
  for (int i = 0; !axes && i < rank; i++)
    if (expr_is_int(kit_dim_of(c, x, i), 1)) list[k++] = i;
  return k ? kit_op1(c, "squeeze", x, "axis:I", k, list) : x;
}

static const Node *convert_unsqueeze(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int n = 0;
  int rank = kit_rank_of(c, x);
  const int64_t *axes = read_axes(c, &n);
  if (kit_opt(c, 1) && !axes) return kit_unsqueeze_at(c, x, kit_in(c, 1));
  if (!axes) kit_fail(c, ERR_ARGUMENT, "axes are missing");
  if (rank + n > MAX_RANK) kit_fail(c, ERR_UNSUPPORTED, "more than %d dimensions are not supported", MAX_RANK);
  bool new_axis[MAX_RANK] = {false};
  for (int i = 0; i < n; i++) {
    int a = kit_axis_of(c, axes[i], rank + n);
    if (new_axis[a]) kit_fail(c, ERR_ARGUMENT, "axis %d is named twice", a);
    new_axis[a] = true;
  }
  for (int i = 0; i < rank + n; i++)
    if (new_axis[i]) x = kit_unsqueeze(c, x, i);
  return x;
}

/* ---- joining and parting ------------------------------------------------------------------------------ */

static const Node *convert_concat(Conversion *c)
{
  const Node **list = arena_array(c->im->arena, const Node *, c->nin + 1);
  for (int i = 0; i < c->nin; i++) list[i] = kit_in(c, i);
  if (!c->nin) kit_fail(c, ERR_ARGUMENT, "there is nothing to join");
  if (c->version >= 4 && !onnx_attr(c, "axis")) kit_fail(c, ERR_ARGUMENT, "attribute 'axis' is missing");
  return kit_concat(c, c->nin, list, kit_axis_of(c, onnx_attr_int(c, "axis", 1), kit_rank_of(c, list[0])));
}

static const Node *split_at(Conversion *c, const Node *x, int axis, int n, const int64_t *sizes)
{
  int64_t *at = arena_array(c->im->arena, int64_t, n + 1);
  int64_t sum = 0;
  int64_t whole;
  for (int i = 0; i < n; i++) {
    if (sizes[i] < 0 || !int_add(sum, sizes[i], &sum))
      kit_fail(c, ERR_ARGUMENT, "a part of %" PRId64 " is out of range", sizes[i]);
    at[i] = sum;
  }
  if (kit_is_static_dim(kit_dim_of(c, x, axis), &whole) && whole != sum)
    kit_fail(c, ERR_SHAPE, "the parts add up to %" PRId64 ", the axis has %" PRId64, sum, whole);
  if (n == 1) return node_tuple(c->m, 1, &x);
  return kit_op1(c, "split", x, "indices_or_sections:I,axis:i,mode:s", n - 1, at, axis, "indices");
}

/* Parts of a size known only at run time: slices at multiples of ceil(size / n). */
static const Node *split_dynamic(Conversion *c, const Node *x, int axis, int n)
{
  const Node *whole = kit_shape_part(c, x, axis, axis + 1);
  const Node *chunk = kit_op2(c, "floor_divide", kit_add(c, whole, kit_const_i64(c, 1, (int64_t[]){n - 1})),
                              kit_const_i64(c, 1, (int64_t[]){n}), NULL);
  const Node **part = arena_array(c->im->arena, const Node *, n);
  const Node *from = kit_const_i64(c, 1, (int64_t[]){0});
  for (int i = 0; i < n; i++) {
    const Node *to = i + 1 < n ? kit_add(c, from, chunk) : whole;
    part[i] = kit_slice_to(c, x, axis, from, to);
    from = to;
  }
  return node_tuple(c->m, n, part);
}

static const Node *convert_split(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *given = kit_opt(c, 1);
  const Node *parts;
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x));
  int n = 0;
  const int64_t *sizes = given ? kit_const_ints(c, given, &n) : onnx_attr_ints(c, "split", &n);
  int64_t whole;
  int64_t count = onnx_attr_int(c, "num_outputs", c->nout);
  if (sizes && n < c->nout) kit_fail(c, ERR_ARGUMENT, "%d sizes are given for %d outputs", n, c->nout);
  if (count < c->nout || count < 1 || count > 1 << 16)
    kit_fail(c, ERR_ARGUMENT, "num_outputs is %" PRId64 ", the node has %d outputs", count, c->nout);
  if (given && !sizes) {
    parts = kit_op2(c, "dyn.split", x, kit_cast_to(c, given, DT_I64), "axis:i", axis);
  } else if (sizes) {
    parts = split_at(c, x, axis, n, sizes);
  } else if (kit_is_static_dim(kit_dim_of(c, x, axis), &whole)) {
    int64_t *even = arena_array(c->im->arena, int64_t, (size_t)count);
    int64_t chunk = (whole + count - 1) / count;
    int64_t left = whole;
    for (int64_t i = 0; i < count; i++) {
      even[i] = left < chunk ? left : chunk;
      left -= even[i];
    }
    parts = split_at(c, x, axis, (int)count, even);
  } else {
    parts = split_dynamic(c, x, axis, (int)count);
  }
  for (int i = 0; i < c->nout; i++) c->out[i] = node_get(c->m, parts, i);
  return NULL;
}

/* ---- slices ------------------------------------------------------------------------------------------------ */

static int64_t clamp_index(int64_t v) { return v > INT32_MAX ? INT32_MAX : v < -INT32_MAX ? -INT32_MAX : v; }

static const Node *slice_const(Conversion *c, const Node *x, int n, const int64_t *begin, const int64_t *end,
                               const int64_t *step, const int64_t *axes)
{
  int64_t b[MAX_RANK], e[MAX_RANK], s[MAX_RANK], a[MAX_RANK];
  int rank = kit_rank_of(c, x);
  if (n > rank) kit_fail(c, ERR_ARGUMENT, "%d axes are sliced, the input has %d", n, rank);
  for (int i = 0; i < n; i++) {
    b[i] = clamp_index(begin[i]);
    e[i] = clamp_index(end[i]);
    s[i] = step ? clamp_index(step[i]) : 1;
    a[i] = axes ? kit_axis_of(c, axes[i], rank) : i;
    if (!s[i]) kit_fail(c, ERR_ARGUMENT, "the step of axis %" PRId64 " is 0", a[i]);
  }
  return n ? kit_op1(c, "strided_slice", x, "begin:I,end:I,strides:I,axes:I", n, b, n, e, n, s, n, a) : x;
}

static const Node *convert_slice_attr(Conversion *c)
{
  int nb = 0;
  int ne = 0;
  int na = 0;
  const int64_t *b = onnx_attr_ints(c, "starts", &nb);
  const int64_t *e = onnx_attr_ints(c, "ends", &ne);
  const int64_t *a = onnx_attr_ints(c, "axes", &na);
  if (!b || !e || nb != ne || (a && na != nb))
    kit_fail(c, ERR_ARGUMENT, "starts, ends and axes have %d, %d and %d numbers", nb, ne, na);
  return slice_const(c, kit_in(c, 0), nb, b, e, NULL, a);
}

static const Node *slice_whole(Conversion *c, const Node *x, const Node **b, const Node **e, const Node **s)
{
  int rank = kit_rank_of(c, x);
  const Node *arg[] = {x, kit_concat(c, rank, b, 0), kit_concat(c, rank, e, 0), kit_concat(c, rank, s, 0)};
  return kit_opn(c, "dyn.strided_slice", 4, arg, NULL);
}

/* Even the axes are computed: each axis asks whether it is meant. */
static const Node *slice_any(Conversion *c, const Node *x, const Node *axes, const Node *begin, const Node *end,
                             const Node *step)
{
  int rank = kit_rank_of(c, x);
  const Node *b[MAX_RANK], *e[MAX_RANK], *s[MAX_RANK];
  const Node *one = kit_const_i64(c, 1, (int64_t[]){1});
  for (int i = 0; i < rank; i++) {
    b[i] = kit_pick_axis(c, axes, begin, i, rank, kit_const_i64(c, 1, (int64_t[]){0}));
    e[i] = kit_pick_axis(c, axes, end, i, rank, kit_shape_part(c, x, i, i + 1));
    s[i] = step ? kit_pick_axis(c, axes, step, i, rank, one) : one;
  }
  return slice_whole(c, x, b, e, s);
}

/* Bounds computed at run time: a vector over all axes, put together from their elements. */
static const Node *slice_computed(Conversion *c, const Node *x, int n, const int64_t *axes, const Node *begin,
                                  const Node *end, const Node *step)
{
  int rank = kit_rank_of(c, x);
  int at[MAX_RANK];
  const Node *b[MAX_RANK], *e[MAX_RANK], *s[MAX_RANK];
  for (int i = 0; i < rank; i++) at[i] = -1;
  for (int i = 0; i < n; i++) at[axes ? kit_axis_of(c, axes[i], rank) : i] = i;
  begin = kit_cast_to(c, begin, DT_I64);
  end = kit_cast_to(c, end, DT_I64);
  for (int i = 0; i < rank; i++) {
    int k = at[i];
    b[i] = k < 0 ? kit_const_i64(c, 1, (int64_t[]){0}) : kit_slice(c, begin, 0, k, k + 1);
    e[i] = k < 0 ? kit_shape_part(c, x, i, i + 1) : kit_slice(c, end, 0, k, k + 1);
    s[i] =
        k < 0 || !step ? kit_const_i64(c, 1, (int64_t[]){1}) : kit_slice(c, kit_cast_to(c, step, DT_I64), 0, k, k + 1);
  }
  return slice_whole(c, x, b, e, s);
}

static const Node *convert_slice(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *begin = kit_in(c, 1);
  const Node *end = kit_in(c, 2);
  const Node *axes = kit_opt(c, 3);
  const Node *step = kit_opt(c, 4);
  int nb = 0;
  int ne = 0;
  int na = 0;
  int ns = 0;
  const int64_t *a = axes ? kit_const_ints(c, axes, &na) : NULL;
  if (axes && !a) return slice_any(c, x, axes, begin, end, step);
  const int64_t *b = kit_const_ints(c, begin, &nb);
  const int64_t *e = kit_const_ints(c, end, &ne);
  const int64_t *s = step ? kit_const_ints(c, step, &ns) : NULL;
  if (b && e && (!step || s)) {
    if (nb != ne || (axes && na != nb) || (step && ns != nb))
      kit_fail(c, ERR_ARGUMENT, "starts, ends, axes and steps have %d, %d, %d and %d numbers", nb, ne, na, ns);
    return slice_const(c, x, nb, b, e, s, a);
  }
  int n = (int)kit_static_dim(c, begin, 0);
  if (kit_static_dim(c, end, 0) != n || (step && kit_static_dim(c, step, 0) != n))
    kit_fail(c, ERR_ARGUMENT, "starts has %d numbers, ends %" PRId64 ", steps %" PRId64, n, kit_static_dim(c, end, 0),
             step ? kit_static_dim(c, step, 0) : n);
  if (n > kit_rank_of(c, x) || (axes && na != n))
    kit_fail(c, ERR_ARGUMENT, "%d axes are sliced, the input has %d", n, kit_rank_of(c, x));
  return slice_computed(c, x, n, a, begin, end, step);
}

/* ---- repeating ------------------------------------------------------------------------------------------------ */

static const Node *convert_expand(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *shape = kit_cast_to(c, kit_in(c, 1), DT_I64);
  int rank = kit_rank_of(c, x);
  int n = (int)kit_static_dim(c, shape, 0);
  int total = n > rank ? n : rank;
  int64_t ones[MAX_RANK];
  if (total > MAX_RANK) kit_fail(c, ERR_UNSUPPORTED, "more than %d dimensions are not supported", MAX_RANK);
  for (int i = 0; i < MAX_RANK; i++) ones[i] = 1;
  const Node *want[MAX_RANK];
  for (int i = 0; i < total; i++) {
    int ix = i - (total - rank);
    int is = i - (total - n);
    const Node *dx = ix >= 0 ? kit_shape_part(c, x, ix, ix + 1) : NULL;
    const Node *ds = is >= 0 ? kit_slice(c, shape, 0, is, is + 1) : NULL;
    int64_t v;
    int k = 0;
    const int64_t *literal = ds ? kit_const_ints(c, ds, &k) : NULL;
    if (!dx || !ds) want[i] = dx ? dx : ds;
    else if (literal) want[i] = literal[0] == 1 ? dx : ds;
    else if (kit_is_static_dim(kit_dim_of(c, x, ix), &v)) want[i] = v == 1 ? ds : dx;
    else want[i] = kit_where(c, kit_op2(c, "equal", ds, kit_const_i64(c, 1, ones), NULL), dx, ds);
  }
  if (!total) return x;
  return kit_broadcast_to(c, x, kit_concat(c, total, want, 0));
}

static const Node *convert_tile(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *reps = kit_in(c, 1);
  int n = 0;
  const int64_t *v = kit_const_ints(c, reps, &n);
  if (c->version < 6) { /* tiles and axis, one number each */
    int64_t tiles = kit_const_int(c, reps, "tiles");
    int64_t list[MAX_RANK];
    int axis = kit_axis_of(c, kit_const_int(c, kit_in(c, 2), "axis"), kit_rank_of(c, x));
    for (int i = 0; i < kit_rank_of(c, x); i++) list[i] = i == axis ? tiles : 1;
    return kit_op1(c, "tile", x, "reps:I", kit_rank_of(c, x), list);
  }
  return v ? kit_op1(c, "tile", x, "reps:I", n, v) : kit_op2(c, "dyn.tile", x, reps, NULL);
}

/* ---- padding
 * ------------------------------------------------------------------------------------------------------ */

/* Negative padding cuts. */
static const Node *crop(Conversion *c, const Node *x, int rank, int64_t *before, int64_t *after)
{
  for (int i = 0; i < rank; i++) {
    if (before[i] >= 0 && after[i] >= 0) continue;
    int64_t from = before[i] < 0 ? -before[i] : 0;
    int64_t to = after[i] < 0 ? after[i] : INT64_MAX;
    x = kit_slice(c, x, i, from, to);
    before[i] = before[i] < 0 ? 0 : before[i];
    after[i] = after[i] < 0 ? 0 : after[i];
  }
  return x;
}

/* Where an index outside lands: repeated, mirrored or at the edge. */
static int64_t fold_index(int64_t i, int64_t n, char mode)
{
  if (mode == 'w') return int_floormod(i, n);
  if (mode == 'e' || n == 1) return i < 0 ? 0 : i >= n ? n - 1 : i;
  i = int_floormod(i, 2 * (n - 1));
  return i < n ? i : 2 * (n - 1) - i;
}

static const Node *pad_by_index(Conversion *c, const Node *x, int rank, const int64_t *before, const int64_t *after,
                                char mode)
{
  for (int i = 0; i < rank; i++) {
    if (!before[i] && !after[i]) continue;
    int64_t n = kit_static_dim(c, x, i);
    int64_t total = n + before[i] + after[i];
    if (n < 1 || total > 1 << 24)
      kit_fail(c, ERR_SHAPE, "axis %d of extent %" PRId64 " cannot be padded to %" PRId64, i, n, total);
    int64_t *at = arena_array(c->im->arena, int64_t, (size_t)total);
    for (int64_t k = 0; k < total; k++) at[k] = fold_index(k - before[i], n, mode);
    x = kit_op2(c, "take", x, kit_const_i64(c, (int)total, at), "axis:i,mode:s", i, "clip");
  }
  return x;
}

static bool fits_mirror(Conversion *c, const Node *x, int rank, const int64_t *before, const int64_t *after)
{
  int64_t n;
  for (int i = 0; i < rank; i++)
    if (!kit_is_static_dim(kit_dim_of(c, x, i), &n) || before[i] >= n || after[i] >= n) return false;
  return true;
}

static const Node *pad_const(Conversion *c, const Node *x, const Node *value, int rank, int64_t *before, int64_t *after,
                             const char *mode)
{
  for (int i = 0; i < rank; i++)
    if (before[i] > 1 << 24 || before[i] < -(1 << 24) || after[i] > 1 << 24 || after[i] < -(1 << 24))
      kit_fail(c, ERR_ARGUMENT, "a padding of %" PRId64 " is too large", before[i] ? before[i] : after[i]);
  x = crop(c, x, rank, before, after);
  int64_t width[2 * MAX_RANK];
  bool any = false;
  for (int i = 0; i < rank; i++) {
    width[2 * i] = before[i];
    width[2 * i + 1] = after[i];
    any = any || before[i] || after[i];
  }
  if (!any) return x;
  if (!strcmp(mode, "constant")) return kit_op2(c, "nn.pad", x, value, "pad_width:I", 2 * rank, width);
  if (!strcmp(mode, "wrap")) return pad_by_index(c, x, rank, before, after, 'w');
  if (strcmp(mode, "edge") && strcmp(mode, "reflect")) kit_fail(c, ERR_UNSUPPORTED, "mode '%s' is not known", mode);
  if (*mode == 'r' && type_is_static(x->type) && !fits_mirror(c, x, rank, before, after))
    return pad_by_index(c, x, rank, before, after, 'r');
  return kit_op2(c, "nn.pad", x, value, "pad_width:I,pad_mode:s", 2 * rank, width, mode);
}

static const Node *convert_pad_attr(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int rank = kit_rank_of(c, x);
  int n = 0;
  const int64_t *pads = onnx_attr_ints(c, "pads", &n);
  if (!pads) pads = onnx_attr_ints(c, "paddings", &n);
  if (!pads || n != 2 * rank) kit_fail(c, ERR_ARGUMENT, "pads has %d numbers, %d are wanted", n, 2 * rank);
  int64_t before[MAX_RANK], after[MAX_RANK];
  for (int i = 0; i < rank; i++) {
    before[i] = pads[i];
    after[i] = pads[rank + i];
  }
  return pad_const(c, x, kit_scalar_like(c, x, onnx_attr_float(c, "value", 0)), rank, before, after,
                   onnx_attr_str(c, "mode", "constant"));
}

/* Widths computed at run time: before and after for each axis in turn. */
static const Node *pad_computed(Conversion *c, const Node *x, const Node *value, const Node *pads, int n,
                                const int64_t *axes, const char *mode)
{
  int rank = kit_rank_of(c, x);
  const Node *row[MAX_RANK];
  const Node *zero = kit_const_i64(c, 2, (int64_t[]){0, 0});
  for (int i = 0; i < rank; i++) row[i] = zero;
  for (int i = 0; i < n; i++)
    row[axes ? kit_axis_of(c, axes[i], rank) : i] =
        kit_concat2(c, kit_slice(c, pads, 0, i, i + 1), kit_slice(c, pads, 0, n + i, n + i + 1), 0);
  return kit_op3(c, "dyn.nn.pad", x, kit_concat(c, rank, row, 0), value, "pad_mode:s", mode);
}

static const Node *pad_any(Conversion *c, const Node *x, const Node *value, const Node *pads, const Node *axes,
                           const char *mode)
{
  int rank = kit_rank_of(c, x);
  int n = (int)kit_static_dim(c, axes, 0);
  const Node *row[2 * MAX_RANK];
  const Node *zero = kit_const_i64(c, 1, (int64_t[]){0});
  for (int i = 0; i < 2 * rank; i++)
    row[i] = kit_pick_axis(c, axes, kit_slice(c, pads, 0, i % 2 ? n : 0, i % 2 ? 2 * n : n), i / 2, rank, zero);
  return kit_op3(c, "dyn.nn.pad", x, kit_concat(c, 2 * rank, row, 0), value, "pad_mode:s", mode);
}

static const Node *convert_pad(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *pads = kit_cast_to(c, kit_in(c, 1), DT_I64);
  const Node *value = kit_opt(c, 2);
  const Node *axes = kit_opt(c, 3);
  const char *mode = onnx_attr_str(c, "mode", "constant");
  int rank = kit_rank_of(c, x);
  int n = 0;
  int na = rank;
  const int64_t *a = axes ? kit_const_ints(c, axes, &na) : NULL;
  const int64_t *v = kit_const_ints(c, pads, &n);
  value = value ? kit_scalar_of(c, value) : kit_scalar_like(c, x, 0);
  if (axes && !a) return pad_any(c, x, value, pads, axes, mode);
  if (na > rank) kit_fail(c, ERR_ARGUMENT, "%d axes are padded, the input has %d", na, rank);
  if (!v) return pad_computed(c, x, value, pads, na, a, mode);
  if (n != 2 * na) kit_fail(c, ERR_ARGUMENT, "pads has %d numbers, %d are wanted", n, 2 * na);
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  for (int i = 0; i < na; i++) {
    int axis = a ? kit_axis_of(c, a[i], rank) : i;
    before[axis] = v[i];
    after[axis] = v[na + i];
  }
  return pad_const(c, x, value, rank, before, after, mode);
}

/* The same with a shape computed at run time. */
static const Node *center_computed(Conversion *c, const Node *x, const Node *shape, const int64_t *axes, int naxes)
{
  int rank = kit_rank_of(c, x);
  int n = (int)kit_static_dim(c, shape, 0);
  const Node *b[MAX_RANK], *e[MAX_RANK], *s[MAX_RANK], *width[2 * MAX_RANK];
  const Node *zero = kit_const_i64(c, 1, (int64_t[]){0});
  const Node *two = kit_const_i64(c, 1, (int64_t[]){2});
  if (n > rank || (axes && naxes != n))
    kit_fail(c, ERR_ARGUMENT, "the shape has %d numbers; one per axis is wanted", n);
  for (int i = 0; i < rank; i++) {
    const Node *have = kit_shape_part(c, x, i, i + 1);
    const Node *want = have;
    for (int k = 0; k < n; k++)
      if ((axes ? kit_axis_of(c, axes[k], rank) : k) == i) want = kit_slice(c, shape, 0, k, k + 1);
    const Node *less_ = kit_max2(c, kit_sub(c, have, want), zero);
    const Node *more = kit_max2(c, kit_sub(c, want, have), zero);
    b[i] = kit_op2(c, "floor_divide", less_, two, NULL);
    e[i] = kit_add(c, b[i], kit_min2(c, have, want));
    s[i] = kit_const_i64(c, 1, (int64_t[]){1});
    width[2 * i] = kit_op2(c, "floor_divide", more, two, NULL);
    width[2 * i + 1] = kit_sub(c, more, width[2 * i]);
  }
  return kit_op3(c, "dyn.nn.pad", slice_whole(c, x, b, e, s), kit_concat(c, 2 * rank, width, 0),
                 kit_scalar_like(c, x, 0), NULL);
}

/* Middle parts are kept, missing ones are zeros. */
static const Node *convert_center_crop_pad(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int rank = kit_rank_of(c, x);
  int n = 0;
  int na = 0;
  const int64_t *shape = kit_const_ints(c, kit_in(c, 1), &n);
  const int64_t *axes = onnx_attr_ints(c, "axes", &na);
  bool known = shape != NULL;
  for (int i = 0; known && i < rank; i++) known = kit_dim_of(c, x, i)->kind == E_INT;
  if (!known) return center_computed(c, x, kit_cast_to(c, kit_in(c, 1), DT_I64), axes, na);
  if (n > rank || (axes && na != n)) kit_fail(c, ERR_ARGUMENT, "the shape has %d numbers; one per axis is wanted", n);
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  for (int i = 0; i < n; i++) {
    int axis = axes ? kit_axis_of(c, axes[i], rank) : i;
    int64_t have = kit_static_dim(c, x, axis);
    int64_t more = shape[i] - have;
    if (shape[i] < 0 || shape[i] > 1 << 24)
      kit_fail(c, ERR_ARGUMENT, "an extent of %" PRId64 " is out of range", shape[i]);
    before[axis] = more >= 0 ? more / 2 : -(-more / 2);
    after[axis] = more - before[axis];
  }
  return pad_const(c, x, kit_scalar_like(c, x, 0), rank, before, after, "constant");
}

/* ---- blocks
 * ----------------------------------------------------------------------------------------------------------- */

static const Node *convert_depth_to_space(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t b = onnx_attr_int(c, "blocksize", 0);
  bool crd = !strcmp(onnx_attr_str(c, "mode", "DCR"), "CRD");
  int64_t channels = kit_rank_of(c, x) == 4 ? kit_static_dim(c, x, 1) : 0;
  if (kit_rank_of(c, x) != 4 || b < 1 || b > 1 << 15 || channels % (b * b))
    kit_fail(c, ERR_SHAPE, "%" PRId64 " channels do not make blocks of %" PRId64, channels, b);
  int64_t out = channels / (b * b);
  const Node *hw = kit_shape_part(c, x, 2, 4);
  const Node *n = kit_shape_part(c, x, 0, 1);
  const Node *split = kit_const_i64(c, 3, crd ? (int64_t[]){out, b, b} : (int64_t[]){b, b, out});
  x = kit_reshape_to(c, x, kit_concat3(c, n, split, hw, 0), true);
  x = kit_transpose(c, x, 6, crd ? (int[]){0, 1, 4, 2, 5, 3} : (int[]){0, 3, 4, 1, 5, 2});
  return kit_reshape_to(
      c, x, kit_concat3(c, n, kit_const_i64(c, 1, &out), kit_mul(c, hw, kit_const_i64(c, 2, (int64_t[]){b, b})), 0),
      true);
}

static const Node *convert_space_to_depth(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t b = onnx_attr_int(c, "blocksize", 0);
  if (kit_rank_of(c, x) != 4 || b < 1 || b > 1 << 15)
    kit_fail(c, ERR_SHAPE, "blocks of %" PRId64 " are out of range", b);
  int64_t channels = kit_static_dim(c, x, 1);
  const Node *n = kit_shape_part(c, x, 0, 2);
  const Node *block = kit_const_i64(c, 1, &b);
  const Node *h = kit_op2(c, "floor_divide", kit_shape_part(c, x, 2, 3), block, NULL);
  const Node *w = kit_op2(c, "floor_divide", kit_shape_part(c, x, 3, 4), block, NULL);
  x = kit_reshape_to(c, x, kit_concat(c, 5, (const Node *[]){n, h, block, w, block}, 0), true);
  x = kit_transpose(
      c, x, 6, !strcmp(onnx_attr_str(c, "mode", "DCR"), "CRD") ? (int[]){0, 1, 3, 5, 2, 4} : (int[]){0, 3, 5, 1, 2, 4});
  int64_t out;
  if (!int_mul(channels, b * b, &out)) kit_fail(c, ERR_SHAPE, "blocks of %" PRId64 " are out of range", b);
  return kit_reshape_to(
      c, x, kit_concat(c, 4, (const Node *[]){kit_shape_part(c, x, 0, 1), kit_const_i64(c, 1, &out), h, w}, 0), true);
}

static const OnnxRow rows[] = {
  {"CenterCropPad", 18, convert_center_crop_pad},
  {"Concat", 1, convert_concat},
  {"Constant", 1, convert_constant},
  {"ConstantOfShape", 9, convert_constant_of_shape},
  {"DepthToSpace", 1, convert_depth_to_space},
  {"Expand", 8, convert_expand},
  {"EyeLike", 9, convert_eye_like},
  {"Flatten", 1, convert_flatten},
  {"Pad", 1, convert_pad_attr},
  {"Pad", 11, convert_pad},
  {"Range", 11, convert_range},
  {"Reshape", 1, convert_reshape_attr},
  {"Reshape", 5, convert_reshape},
  {"Shape", 1, convert_shape},
  {"Size", 1, convert_size},
  {"Slice", 1, convert_slice_attr},
  {"Slice", 10, convert_slice},
  {"SpaceToDepth", 1, convert_space_to_depth},
  {"Split", 1, convert_split},
  {"Squeeze", 1, convert_squeeze},
  {"Tile", 1, convert_tile},
  {"Transpose", 1, convert_transpose},
  {"Trilu", 14, convert_trilu},
  {"Unsqueeze", 1, convert_unsqueeze},
};
ONNX_TABLE(onnx_ops_shape, "", rows);
