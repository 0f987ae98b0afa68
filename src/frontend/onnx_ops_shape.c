/* onnx_ops_shape.c: shapes: constants, reshaping, joining, slicing, padding.
 *
 * Comes in: nodes whose shape operands are constants, sizes or anything computed.  Goes
 * out: calls with attributes where the compiler can follow the operand, else the
 * operator's dyn.* form. */
#include "frontend/onnx_import.h"

enum { MAX_RANK = 32 };

/* ---- constants ------------------------------------------------------------------------------- */

static const Node *convert_constant(Conv *c)
{
  const PAttr *a;
  if ((a = conv_attr(c, "value")) && a->t) return onnx_tensor(c->im, a->t, c->name);
  if ((a = conv_attr(c, "sparse_value")) && a->sparse) return onnx_sparse(c->im, a->sparse, c->name);
  if (conv_attr(c, "value_float")) return scalar(c, DT_F32, attr_float(c, "value_float", 0));
  if (conv_attr(c, "value_int")) return node_scalar(c->m, value_int(DT_I64, attr_int(c, "value_int", 0)));
  int n = 0;
  const float *f = attr_floats(c, "value_floats", &n);
  if (f) return node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, f);
  const int64_t *v = attr_ints(c, "value_ints", &n);
  if (v) return const_i64(c, n, v);
  const Node *s = attr_strings(c, "value_strings");
  if (s) return s;
  if ((a = conv_attr(c, "value_string"))) return string_const(c, a->s.p, a->s.n);
  conv_fail(c, ERR_ARGUMENT, "it has no value");
}

static const Node *convert_constant_of_shape(Conv *c)
{
  const PAttr *a = conv_attr(c, "value");
  const Node *value = a && a->t ? scalar_of(c, onnx_tensor(c->im, a->t, c->name)) : scalar(c, DT_F32, 0);
  return full(c, value, conv_in(c, 0), dtype_of(c, value));
}

static const Node *convert_shape(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int rank = rank_of(c, x);
  int64_t start = attr_int(c, "start", 0);
  int64_t end = attr_int(c, "end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = start < 0 ? 0 : start > rank ? rank : start;
  end = end < start ? start : end > rank ? rank : end;
  if (start == 0 && end == rank) return shape_of(c, x);
  return shape_part(c, x, (int)start, (int)end);
}

static const Node *convert_size(Conv *c)
{
  const Node *x = conv_in(c, 0);
  if (!rank_of(c, x)) return node_scalar(c->m, value_int(DT_I64, 1));
  return scalar_of(c, op1(c, "ndarray_size", x, "dtype:t", DT_I64));
}

static const Node *convert_range(Conv *c)
{
  const Node *start = scalar_of(c, conv_in(c, 0));
  const Node *stop = scalar_of(c, conv_in(c, 1));
  const Node *step = scalar_of(c, conv_in(c, 2));
  double s;
  if (const_float(c, step, &s) && s == 0) conv_fail(c, ERR_ARGUMENT, "the step is 0");
  return arange(c, start, stop, step, dtype_of(c, start));
}

static const Node *convert_eye_like(Conv *c)
{
  const Node *x = conv_in(c, 0);
  if (rank_of(c, x) != 2) conv_fail(c, ERR_SHAPE, "a matrix is wanted, not rank %d", rank_of(c, x));
  DType dt = attr_dtype(c, "dtype", dtype_of(c, x));
  const Node *row = iota(c, scalar_of(c, shape_part(c, x, 0, 1)), DT_I64);
  const Node *col = iota(c, scalar_of(c, shape_part(c, x, 1, 2)), DT_I64);
  row = add(c, unsqueeze(c, row, 1), scalar(c, DT_I64, (double)attr_int(c, "k", 0)));
  return cast_to(c, op2(c, "equal", row, unsqueeze(c, col, 0), NULL), dt);
}

static const Node *convert_trilu(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *k = conv_opt(c, 1);
  k = k ? scalar_of(c, k) : scalar(c, DT_I64, 0);
  return op2(c, "trilu", x, k, "upper:i", (int)attr_int(c, "upper", 1));
}

/* ---- the same elements --------------------------------------------------------------------------- */

static const Node *convert_reshape_attr(Conv *c)
{
  int n = 0;
  const int64_t *shape = attr_ints(c, "shape", &n);
  if (!shape) conv_fail(c, ERR_ARGUMENT, "attribute 'shape' is missing");
  return reshape(c, conv_in(c, 0), n, shape);
}

static const Node *convert_reshape(Conv *c)
{
  return reshape_to(c, conv_in(c, 0), cast_to(c, conv_in(c, 1), DT_I64), attr_int(c, "allowzero", 0));
}

static const Node *convert_flatten(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int rank = rank_of(c, x);
  int64_t axis = attr_int(c, "axis", 1);
  if (axis < -rank || axis > rank)
    conv_fail(c, ERR_ARGUMENT, "axis %" PRId64 " is out of range for rank %d", axis, rank);
  return flatten_from(c, x, (int)(axis < 0 ? axis + rank : axis));
}

static const Node *convert_transpose(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int n = 0;
  int rank = rank_of(c, x);
  int perm[MAX_RANK];
  const int64_t *p = attr_ints(c, "perm", &n);
  uint64_t seen = 0;
  if (p && n != rank) conv_fail(c, ERR_ARGUMENT, "perm has %d axes, the input %d", n, rank);
  for (int i = 0; i < rank; i++) {
    perm[i] = p ? axis_of(c, p[i], rank) : rank - 1 - i;
    if (seen >> perm[i] & 1) conv_fail(c, ERR_ARGUMENT, "perm names axis %d twice", perm[i]);
    seen |= 1ull << perm[i];
  }
  return transpose(c, x, rank, perm);
}

/* Axes come as an attribute or, from opset 13, as an input; NULL when they are computed. */
static const int64_t *read_axes(Conv *c, int *n)
{
  const Node *in = conv_opt(c, 1);
  if (!in) return attr_ints(c, "axes", n);
  return const_ints(c, in, n);
}

static const Node *convert_squeeze(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int n = 0;
  int rank = rank_of(c, x);
  const int64_t *axes = read_axes(c, &n);
  int64_t list[MAX_RANK];
  int k = 0;
  if (conv_opt(c, 1) && !axes) return squeeze_at(c, x, conv_in(c, 1));
  if (n > MAX_RANK) conv_fail(c, ERR_ARGUMENT, "%d axes are too many", n);
  for (int i = 0; axes && i < n; i++) list[k++] = axis_of(c, axes[i], rank);
  for (int i = 0; !axes && i < rank; i++)
    if (expr_is_int(dim_of(c, x, i), 1)) list[k++] = i;
  return k ? op1(c, "squeeze", x, "axis:I", k, list) : x;
}

static const Node *convert_unsqueeze(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int n = 0;
  int rank = rank_of(c, x);
  const int64_t *axes = read_axes(c, &n);
  if (conv_opt(c, 1) && !axes) return unsqueeze_at(c, x, conv_in(c, 1));
  if (!axes) conv_fail(c, ERR_ARGUMENT, "axes are missing");
  if (rank + n > MAX_RANK) conv_fail(c, ERR_UNSUPPORTED, "more than %d dimensions are not supported", MAX_RANK);
  bool new_axis[MAX_RANK] = {false};
  for (int i = 0; i < n; i++) {
    int a = axis_of(c, axes[i], rank + n);
    if (new_axis[a]) conv_fail(c, ERR_ARGUMENT, "axis %d is named twice", a);
    new_axis[a] = true;
  }
  for (int i = 0; i < rank + n; i++)
    if (new_axis[i]) x = unsqueeze(c, x, i);
  return x;
}

/* ---- joining and parting ------------------------------------------------------------------------------ */

static const Node *convert_concat(Conv *c)
{
  const Node **list = arena_array(c->im->arena, const Node *, c->nin + 1);
  for (int i = 0; i < c->nin; i++) list[i] = conv_in(c, i);
  if (!c->nin) conv_fail(c, ERR_ARGUMENT, "there is nothing to join");
  if (c->opset >= 4 && !conv_attr(c, "axis")) conv_fail(c, ERR_ARGUMENT, "attribute 'axis' is missing");
  return concat(c, c->nin, list, axis_of(c, attr_int(c, "axis", 1), rank_of(c, list[0])));
}

static const Node *split_at(Conv *c, const Node *x, int axis, int n, const int64_t *sizes)
{
  int64_t *at = arena_array(c->im->arena, int64_t, n + 1);
  int64_t sum = 0;
  int64_t whole;
  for (int i = 0; i < n; i++) {
    if (sizes[i] < 0 || !int_add(sum, sizes[i], &sum))
      conv_fail(c, ERR_ARGUMENT, "a part of %" PRId64 " is out of range", sizes[i]);
    at[i] = sum;
  }
  if (is_static_dim(dim_of(c, x, axis), &whole) && whole != sum)
    conv_fail(c, ERR_SHAPE, "the parts add up to %" PRId64 ", the axis has %" PRId64, sum, whole);
  if (n == 1) return node_tuple(c->m, 1, &x);
  return op1(c, "split", x, "indices_or_sections:I,axis:i,mode:s", n - 1, at, axis, "indices");
}

/* Parts of a size known only at run time: slices at multiples of ceil(size / n). */
static const Node *split_dynamic(Conv *c, const Node *x, int axis, int n)
{
  const Node *whole = shape_part(c, x, axis, axis + 1);
  const Node *chunk =
      op2(c, "floor_divide", add(c, whole, const_i64(c, 1, (int64_t[]){n - 1})), const_i64(c, 1, (int64_t[]){n}), NULL);
  const Node **part = arena_array(c->im->arena, const Node *, n);
  const Node *from = const_i64(c, 1, (int64_t[]){0});
  for (int i = 0; i < n; i++) {
    const Node *to = i + 1 < n ? add(c, from, chunk) : whole;
    part[i] = slice_to(c, x, axis, from, to);
    from = to;
  }
  return node_tuple(c->m, n, part);
}

static const Node *convert_split(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *given = conv_opt(c, 1);
  const Node *parts;
  int axis = axis_of(c, attr_int(c, "axis", 0), rank_of(c, x));
  int n = 0;
  const int64_t *sizes = given ? const_ints(c, given, &n) : attr_ints(c, "split", &n);
  int64_t whole;
  int64_t count = attr_int(c, "num_outputs", c->nout);
  if (sizes && n < c->nout) conv_fail(c, ERR_ARGUMENT, "%d sizes are given for %d outputs", n, c->nout);
  if (count < c->nout || count < 1 || count > 1 << 16)
    conv_fail(c, ERR_ARGUMENT, "num_outputs is %" PRId64 ", the node has %d outputs", count, c->nout);
  if (given && !sizes) {
    parts = op2(c, "dyn.split", x, cast_to(c, given, DT_I64), "axis:i", axis);
  } else if (sizes) {
    parts = split_at(c, x, axis, n, sizes);
  } else if (is_static_dim(dim_of(c, x, axis), &whole)) {
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

static const Node *slice_const(Conv *c, const Node *x, int n, const int64_t *begin, const int64_t *end,
                               const int64_t *step, const int64_t *axes)
{
  int64_t b[MAX_RANK], e[MAX_RANK], s[MAX_RANK], a[MAX_RANK];
  int rank = rank_of(c, x);
  if (n > rank) conv_fail(c, ERR_ARGUMENT, "%d axes are sliced, the input has %d", n, rank);
  for (int i = 0; i < n; i++) {
    b[i] = clamp_index(begin[i]);
    e[i] = clamp_index(end[i]);
    s[i] = step ? clamp_index(step[i]) : 1;
    a[i] = axes ? axis_of(c, axes[i], rank) : i;
    if (!s[i]) conv_fail(c, ERR_ARGUMENT, "the step of axis %" PRId64 " is 0", a[i]);
  }
  return n ? op1(c, "strided_slice", x, "begin:I,end:I,strides:I,axes:I", n, b, n, e, n, s, n, a) : x;
}

static const Node *convert_slice_attr(Conv *c)
{
  int nb = 0;
  int ne = 0;
  int na = 0;
  const int64_t *b = attr_ints(c, "starts", &nb);
  const int64_t *e = attr_ints(c, "ends", &ne);
  const int64_t *a = attr_ints(c, "axes", &na);
  if (!b || !e || nb != ne || (a && na != nb))
    conv_fail(c, ERR_ARGUMENT, "starts, ends and axes have %d, %d and %d numbers", nb, ne, na);
  return slice_const(c, conv_in(c, 0), nb, b, e, NULL, a);
}

static const Node *slice_whole(Conv *c, const Node *x, const Node **b, const Node **e, const Node **s)
{
  int rank = rank_of(c, x);
  const Node *arg[] = {x, concat(c, rank, b, 0), concat(c, rank, e, 0), concat(c, rank, s, 0)};
  return opn(c, "dyn.strided_slice", 4, arg, NULL);
}

/* Even the axes are computed: each axis asks whether it is meant. */
static const Node *slice_any(Conv *c, const Node *x, const Node *axes, const Node *begin, const Node *end,
                             const Node *step)
{
  int rank = rank_of(c, x);
  const Node *b[MAX_RANK], *e[MAX_RANK], *s[MAX_RANK];
  const Node *one = const_i64(c, 1, (int64_t[]){1});
  for (int i = 0; i < rank; i++) {
    b[i] = pick_axis(c, axes, begin, i, rank, const_i64(c, 1, (int64_t[]){0}));
    e[i] = pick_axis(c, axes, end, i, rank, shape_part(c, x, i, i + 1));
    s[i] = step ? pick_axis(c, axes, step, i, rank, one) : one;
  }
  return slice_whole(c, x, b, e, s);
}

/* Bounds computed at run time: a vector over all axes, put together from their elements. */
static const Node *slice_computed(Conv *c, const Node *x, int n, const int64_t *axes, const Node *begin,
                                  const Node *end, const Node *step)
{
  int rank = rank_of(c, x);
  int at[MAX_RANK];
  const Node *b[MAX_RANK], *e[MAX_RANK], *s[MAX_RANK];
  for (int i = 0; i < rank; i++) at[i] = -1;
  for (int i = 0; i < n; i++) at[axes ? axis_of(c, axes[i], rank) : i] = i;
  begin = cast_to(c, begin, DT_I64);
  end = cast_to(c, end, DT_I64);
  for (int i = 0; i < rank; i++) {
    int k = at[i];
    b[i] = k < 0 ? const_i64(c, 1, (int64_t[]){0}) : slice(c, begin, 0, k, k + 1);
    e[i] = k < 0 ? shape_part(c, x, i, i + 1) : slice(c, end, 0, k, k + 1);
    s[i] = k < 0 || !step ? const_i64(c, 1, (int64_t[]){1}) : slice(c, cast_to(c, step, DT_I64), 0, k, k + 1);
  }
  return slice_whole(c, x, b, e, s);
}

static const Node *convert_slice(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *begin = conv_in(c, 1);
  const Node *end = conv_in(c, 2);
  const Node *axes = conv_opt(c, 3);
  const Node *step = conv_opt(c, 4);
  int nb = 0;
  int ne = 0;
  int na = 0;
  int ns = 0;
  const int64_t *a = axes ? const_ints(c, axes, &na) : NULL;
  if (axes && !a) return slice_any(c, x, axes, begin, end, step);
  const int64_t *b = const_ints(c, begin, &nb);
  const int64_t *e = const_ints(c, end, &ne);
  const int64_t *s = step ? const_ints(c, step, &ns) : NULL;
  if (b && e && (!step || s)) {
    if (nb != ne || (axes && na != nb) || (step && ns != nb))
      conv_fail(c, ERR_ARGUMENT, "starts, ends, axes and steps have %d, %d, %d and %d numbers", nb, ne, na, ns);
    return slice_const(c, x, nb, b, e, s, a);
  }
  int n = (int)static_dim(c, begin, 0);
  if (static_dim(c, end, 0) != n || (step && static_dim(c, step, 0) != n))
    conv_fail(c, ERR_ARGUMENT, "starts has %d numbers, ends %" PRId64 ", steps %" PRId64, n, static_dim(c, end, 0),
              step ? static_dim(c, step, 0) : n);
  if (n > rank_of(c, x) || (axes && na != n))
    conv_fail(c, ERR_ARGUMENT, "%d axes are sliced, the input has %d", n, rank_of(c, x));
  return slice_computed(c, x, n, a, begin, end, step);
}

/* ---- repeating ------------------------------------------------------------------------------------------------ */

static const Node *convert_expand(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *shape = cast_to(c, conv_in(c, 1), DT_I64);
  int rank = rank_of(c, x);
  int n = (int)static_dim(c, shape, 0);
  int total = n > rank ? n : rank;
  int64_t ones[MAX_RANK];
  if (total > MAX_RANK) conv_fail(c, ERR_UNSUPPORTED, "more than %d dimensions are not supported", MAX_RANK);
  for (int i = 0; i < MAX_RANK; i++) ones[i] = 1;
  const Node *want[MAX_RANK];
  for (int i = 0; i < total; i++) {
    int ix = i - (total - rank);
    int is = i - (total - n);
    const Node *dx = ix >= 0 ? shape_part(c, x, ix, ix + 1) : NULL;
    const Node *ds = is >= 0 ? slice(c, shape, 0, is, is + 1) : NULL;
    int64_t v;
    int k = 0;
    const int64_t *literal = ds ? const_ints(c, ds, &k) : NULL;
    if (!dx || !ds) want[i] = dx ? dx : ds;
    else if (literal) want[i] = literal[0] == 1 ? dx : ds;
    else if (is_static_dim(dim_of(c, x, ix), &v)) want[i] = v == 1 ? ds : dx;
    else want[i] = where(c, op2(c, "equal", ds, const_i64(c, 1, ones), NULL), dx, ds);
  }
  if (!total) return x;
  return broadcast_to(c, x, concat(c, total, want, 0));
}

static const Node *convert_tile(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *reps = conv_in(c, 1);
  int n = 0;
  const int64_t *v = const_ints(c, reps, &n);
  if (c->opset < 6) { /* tiles and axis, one number each */
    int64_t tiles = const_int(c, reps, "tiles");
    int64_t list[MAX_RANK];
    int axis = axis_of(c, const_int(c, conv_in(c, 2), "axis"), rank_of(c, x));
    for (int i = 0; i < rank_of(c, x); i++) list[i] = i == axis ? tiles : 1;
    return op1(c, "tile", x, "reps:I", rank_of(c, x), list);
  }
  return v ? op1(c, "tile", x, "reps:I", n, v) : op2(c, "dyn.tile", x, reps, NULL);
}

/* ---- padding
 * ------------------------------------------------------------------------------------------------------ */

/* Negative padding cuts. */
static const Node *crop(Conv *c, const Node *x, int rank, int64_t *before, int64_t *after)
{
  for (int i = 0; i < rank; i++) {
    if (before[i] >= 0 && after[i] >= 0) continue;
    int64_t from = before[i] < 0 ? -before[i] : 0;
    int64_t to = after[i] < 0 ? after[i] : INT64_MAX;
    x = slice(c, x, i, from, to);
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

static const Node *pad_by_index(Conv *c, const Node *x, int rank, const int64_t *before, const int64_t *after,
                                char mode)
{
  for (int i = 0; i < rank; i++) {
    if (!before[i] && !after[i]) continue;
    int64_t n = static_dim(c, x, i);
    int64_t total = n + before[i] + after[i];
    if (n < 1 || total > 1 << 24)
      conv_fail(c, ERR_SHAPE, "axis %d of extent %" PRId64 " cannot be padded to %" PRId64, i, n, total);
    int64_t *at = arena_array(c->im->arena, int64_t, (size_t)total);
    for (int64_t k = 0; k < total; k++) at[k] = fold_index(k - before[i], n, mode);
    x = op2(c, "take", x, const_i64(c, (int)total, at), "axis:i,mode:s", i, "clip");
  }
  return x;
}

static bool fits_mirror(Conv *c, const Node *x, int rank, const int64_t *before, const int64_t *after)
{
  int64_t n;
  for (int i = 0; i < rank; i++)
    if (!is_static_dim(dim_of(c, x, i), &n) || before[i] >= n || after[i] >= n) return false;
  return true;
}

static const Node *pad_const(Conv *c, const Node *x, const Node *value, int rank, int64_t *before, int64_t *after,
                             const char *mode)
{
  for (int i = 0; i < rank; i++)
    if (before[i] > 1 << 24 || before[i] < -(1 << 24) || after[i] > 1 << 24 || after[i] < -(1 << 24))
      conv_fail(c, ERR_ARGUMENT, "a padding of %" PRId64 " is too large", before[i] ? before[i] : after[i]);
  x = crop(c, x, rank, before, after);
  int64_t width[2 * MAX_RANK];
  bool any = false;
  for (int i = 0; i < rank; i++) {
    width[2 * i] = before[i];
    width[2 * i + 1] = after[i];
    any = any || before[i] || after[i];
  }
  if (!any) return x;
  if (!strcmp(mode, "constant")) return op2(c, "nn.pad", x, value, "pad_width:I", 2 * rank, width);
  if (!strcmp(mode, "wrap")) return pad_by_index(c, x, rank, before, after, 'w');
  if (strcmp(mode, "edge") && strcmp(mode, "reflect")) conv_fail(c, ERR_UNSUPPORTED, "mode '%s' is not known", mode);
  if (*mode == 'r' && type_is_static(x->type) && !fits_mirror(c, x, rank, before, after))
    return pad_by_index(c, x, rank, before, after, 'r');
  return op2(c, "nn.pad", x, value, "pad_width:I,pad_mode:s", 2 * rank, width, mode);
}

static const Node *convert_pad_attr(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int rank = rank_of(c, x);
  int n = 0;
  const int64_t *pads = attr_ints(c, "pads", &n);
  if (!pads) pads = attr_ints(c, "paddings", &n);
  if (!pads || n != 2 * rank) conv_fail(c, ERR_ARGUMENT, "pads has %d numbers, %d are wanted", n, 2 * rank);
  int64_t before[MAX_RANK], after[MAX_RANK];
  for (int i = 0; i < rank; i++) {
    before[i] = pads[i];
    after[i] = pads[rank + i];
  }
  return pad_const(c, x, scalar_like(c, x, attr_float(c, "value", 0)), rank, before, after,
                   attr_str(c, "mode", "constant"));
}

/* Widths computed at run time: before and after for each axis in turn. */
static const Node *pad_computed(Conv *c, const Node *x, const Node *value, const Node *pads, int n, const int64_t *axes,
                                const char *mode)
{
  int rank = rank_of(c, x);
  const Node *row[MAX_RANK];
  const Node *zero = const_i64(c, 2, (int64_t[]){0, 0});
  for (int i = 0; i < rank; i++) row[i] = zero;
  for (int i = 0; i < n; i++)
    row[axes ? axis_of(c, axes[i], rank) : i] =
        concat2(c, slice(c, pads, 0, i, i + 1), slice(c, pads, 0, n + i, n + i + 1), 0);
  return op3(c, "dyn.nn.pad", x, concat(c, rank, row, 0), value, "pad_mode:s", mode);
}

static const Node *pad_any(Conv *c, const Node *x, const Node *value, const Node *pads, const Node *axes,
                           const char *mode)
{
  int rank = rank_of(c, x);
  int n = (int)static_dim(c, axes, 0);
  const Node *row[2 * MAX_RANK];
  const Node *zero = const_i64(c, 1, (int64_t[]){0});
  for (int i = 0; i < 2 * rank; i++)
    row[i] = pick_axis(c, axes, slice(c, pads, 0, i % 2 ? n : 0, i % 2 ? 2 * n : n), i / 2, rank, zero);
  return op3(c, "dyn.nn.pad", x, concat(c, 2 * rank, row, 0), value, "pad_mode:s", mode);
}

static const Node *convert_pad(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *pads = cast_to(c, conv_in(c, 1), DT_I64);
  const Node *value = conv_opt(c, 2);
  const Node *axes = conv_opt(c, 3);
  const char *mode = attr_str(c, "mode", "constant");
  int rank = rank_of(c, x);
  int n = 0;
  int na = rank;
  const int64_t *a = axes ? const_ints(c, axes, &na) : NULL;
  const int64_t *v = const_ints(c, pads, &n);
  value = value ? scalar_of(c, value) : scalar_like(c, x, 0);
  if (axes && !a) return pad_any(c, x, value, pads, axes, mode);
  if (na > rank) conv_fail(c, ERR_ARGUMENT, "%d axes are padded, the input has %d", na, rank);
  if (!v) return pad_computed(c, x, value, pads, na, a, mode);
  if (n != 2 * na) conv_fail(c, ERR_ARGUMENT, "pads has %d numbers, %d are wanted", n, 2 * na);
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  for (int i = 0; i < na; i++) {
    int axis = a ? axis_of(c, a[i], rank) : i;
    before[axis] = v[i];
    after[axis] = v[na + i];
  }
  return pad_const(c, x, value, rank, before, after, mode);
}

/* The same with a shape computed at run time. */
static const Node *center_computed(Conv *c, const Node *x, const Node *shape, const int64_t *axes, int naxes)
{
  int rank = rank_of(c, x);
  int n = (int)static_dim(c, shape, 0);
  const Node *b[MAX_RANK], *e[MAX_RANK], *s[MAX_RANK], *width[2 * MAX_RANK];
  const Node *zero = const_i64(c, 1, (int64_t[]){0});
  const Node *two = const_i64(c, 1, (int64_t[]){2});
  if (n > rank || (axes && naxes != n))
    conv_fail(c, ERR_ARGUMENT, "the shape has %d numbers; one per axis is wanted", n);
  for (int i = 0; i < rank; i++) {
    const Node *have = shape_part(c, x, i, i + 1);
    const Node *want = have;
    for (int k = 0; k < n; k++)
      if ((axes ? axis_of(c, axes[k], rank) : k) == i) want = slice(c, shape, 0, k, k + 1);
    const Node *less_ = max2(c, sub(c, have, want), zero);
    const Node *more = max2(c, sub(c, want, have), zero);
    b[i] = op2(c, "floor_divide", less_, two, NULL);
    e[i] = add(c, b[i], min2(c, have, want));
    s[i] = const_i64(c, 1, (int64_t[]){1});
    width[2 * i] = op2(c, "floor_divide", more, two, NULL);
    width[2 * i + 1] = sub(c, more, width[2 * i]);
  }
  return op3(c, "dyn.nn.pad", slice_whole(c, x, b, e, s), concat(c, 2 * rank, width, 0), scalar_like(c, x, 0), NULL);
}

/* Middle parts are kept, missing ones are zeros. */
static const Node *convert_center_crop_pad(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int rank = rank_of(c, x);
  int n = 0;
  int na = 0;
  const int64_t *shape = const_ints(c, conv_in(c, 1), &n);
  const int64_t *axes = attr_ints(c, "axes", &na);
  bool known = shape != NULL;
  for (int i = 0; known && i < rank; i++) known = dim_of(c, x, i)->kind == E_INT;
  if (!known) return center_computed(c, x, cast_to(c, conv_in(c, 1), DT_I64), axes, na);
  if (n > rank || (axes && na != n)) conv_fail(c, ERR_ARGUMENT, "the shape has %d numbers; one per axis is wanted", n);
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  for (int i = 0; i < n; i++) {
    int axis = axes ? axis_of(c, axes[i], rank) : i;
    int64_t have = static_dim(c, x, axis);
    int64_t more = shape[i] - have;
    if (shape[i] < 0 || shape[i] > 1 << 24)
      conv_fail(c, ERR_ARGUMENT, "an extent of %" PRId64 " is out of range", shape[i]);
    before[axis] = more >= 0 ? more / 2 : -(-more / 2);
    after[axis] = more - before[axis];
  }
  return pad_const(c, x, scalar_like(c, x, 0), rank, before, after, "constant");
}

/* ---- blocks
 * ----------------------------------------------------------------------------------------------------------- */

static const Node *convert_depth_to_space(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int64_t b = attr_int(c, "blocksize", 0);
  bool crd = !strcmp(attr_str(c, "mode", "DCR"), "CRD");
  int64_t channels = rank_of(c, x) == 4 ? static_dim(c, x, 1) : 0;
  if (rank_of(c, x) != 4 || b < 1 || b > 1 << 15 || channels % (b * b))
    conv_fail(c, ERR_SHAPE, "%" PRId64 " channels do not make blocks of %" PRId64, channels, b);
  int64_t out = channels / (b * b);
  const Node *hw = shape_part(c, x, 2, 4);
  const Node *n = shape_part(c, x, 0, 1);
  const Node *split = const_i64(c, 3, crd ? (int64_t[]){out, b, b} : (int64_t[]){b, b, out});
  x = reshape_to(c, x, concat3(c, n, split, hw, 0), true);
  x = transpose(c, x, 6, crd ? (int[]){0, 1, 4, 2, 5, 3} : (int[]){0, 3, 4, 1, 5, 2});
  return reshape_to(c, x, concat3(c, n, const_i64(c, 1, &out), mul(c, hw, const_i64(c, 2, (int64_t[]){b, b})), 0),
                    true);
}

static const Node *convert_space_to_depth(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int64_t b = attr_int(c, "blocksize", 0);
  if (rank_of(c, x) != 4 || b < 1 || b > 1 << 15) conv_fail(c, ERR_SHAPE, "blocks of %" PRId64 " are out of range", b);
  int64_t channels = static_dim(c, x, 1);
  const Node *n = shape_part(c, x, 0, 2);
  const Node *block = const_i64(c, 1, &b);
  const Node *h = op2(c, "floor_divide", shape_part(c, x, 2, 3), block, NULL);
  const Node *w = op2(c, "floor_divide", shape_part(c, x, 3, 4), block, NULL);
  x = reshape_to(c, x, concat(c, 5, (const Node *[]){n, h, block, w, block}, 0), true);
  x = transpose(c, x, 6,
                !strcmp(attr_str(c, "mode", "DCR"), "CRD") ? (int[]){0, 1, 3, 5, 2, 4} : (int[]){0, 3, 5, 1, 2, 4});
  int64_t out;
  if (!int_mul(channels, b * b, &out)) conv_fail(c, ERR_SHAPE, "blocks of %" PRId64 " are out of range", b);
  return reshape_to(c, x, concat(c, 4, (const Node *[]){shape_part(c, x, 0, 1), const_i64(c, 1, &out), h, w}, 0), true);
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
ONNX_TABLE(onnx_shape, "", rows);
