/* tflite_ops_shape.c: what moves elements: shapes, slices, parts, orders, and tensors made of a few numbers.
 *
 * Shapes and axes are operands, most of them constants.  Quantized elements are moved as they are stored: TFLite asks
 * for the same scale on both sides. */
#include "frontend/tflite_ops.h"

/* ---- operands -------------------------------------------------------------------------------------- */

static const Node *wide(Conversion *c, const Node *v) { return kit_cast_to(c, v, DT_I64); }

/* Integers that must be known. */
static const int64_t *known(Conversion *c, int i, const char *what, int *n)
{
  const int64_t *v = kit_const_ints(c, kit_in(c, i), n);
  if (!v) kit_fail(c, ERR_UNSUPPORTED, "%s must be known when the model is compiled", what);
  return v;
}

int tfl_axes(Conversion *c, int i, int rank, int64_t *axes)
{
  int n = 0;
  const int64_t *v = known(c, i, "the axes", &n);
  int count = 0;
  for (int k = 0; k < n; k++) {
    int axis = kit_axis_of(c, v[k], rank);
    bool seen = false;
    for (int j = 0; j < count; j++) seen |= axes[j] == axis;
    if (!seen) axes[count++] = axis;
  }
  return count;
}

static int known_axis(Conversion *c, int i, int rank, const char *what)
{
  return kit_axis_of(c, kit_const_int(c, kit_in(c, i), what), rank);
}

/* ---- shapes ---------------------------------------------------------------------------------------------- */

const Node *tfl_convert_reshape(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *shape = kit_opt(c, 1);
  if (shape && kit_rank_of(c, shape) == 1) return kit_reshape_to(c, x, wide(c, shape), true);
  FlatVector v = flat_vector(&tfl_op(c)->options, 0, 4, "the new shape");
  if (v.n > MAX_RANK) kit_fail(c, ERR_UNSUPPORTED, "a shape of %zu dimensions is not supported", v.n);
  int64_t dim[MAX_RANK];
  for (size_t i = 0; i < v.n; i++) dim[i] = flat_i32_at(&v, i);
  return kit_reshape_to(c, x, kit_const_i64(c, (int)v.n, dim), true);
}

const Node *tfl_convert_squeeze(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int rank = kit_rank_of(c, x);
  FlatVector v = flat_vector(&tfl_op(c)->options, 0, 4, "the axes to squeeze");
  int64_t axes[MAX_RANK];
  int n = 0;
  if (v.n > MAX_RANK) kit_fail(c, ERR_ARGUMENT, "%zu axes are named", v.n);
  for (size_t i = 0; i < v.n; i++) axes[n++] = kit_axis_of(c, flat_i32_at(&v, i), rank);
  for (int i = 0; !v.n && i < rank; i++)
    if (expr_is_int(kit_dim_of(c, x, i), 1)) axes[n++] = i;
  return n ? kit_op1(c, "squeeze", x, "axis:I", n, axes) : x;
}

const Node *tfl_convert_expand_dims(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_unsqueeze(c, x, known_axis(c, 1, kit_rank_of(c, x) + 1, "the axis"));
}

const Node *tfl_convert_shape(Conversion *c)
{
  return kit_cast_to(c, kit_shape_of(c, kit_in(c, 0)), tfl_out(c, 0)->dtype);
}

const Node *tfl_convert_rank(Conversion *c) { return kit_scalar(c, DT_I32, kit_rank_of(c, kit_in(c, 0))); }

const Node *tfl_convert_broadcast_to(Conversion *c) { return kit_broadcast_to(c, kit_in(c, 0), wide(c, kit_in(c, 1))); }

/* The shape that two shapes broadcast to. */
const Node *tfl_convert_broadcast_args(Conversion *c)
{
  const Node *s[2] = {wide(c, kit_in(c, 0)), wide(c, kit_in(c, 1))};
  int64_t n[2];
  for (int i = 0; i < 2; i++) n[i] = kit_static_dim(c, s[i], 0);
  int less = n[0] < n[1] ? 0 : 1;
  int64_t ones[MAX_RANK];
  int64_t more = n[1 - less] - n[less];
  if (more > MAX_RANK) kit_fail(c, ERR_UNSUPPORTED, "a shape of %" PRId64 " dimensions", n[1 - less]);
  for (int i = 0; i < MAX_RANK; i++) ones[i] = 1;
  if (more) s[less] = kit_concat2(c, kit_const_i64(c, (int)more, ones), s[less], 0);
  const Node *one = kit_op2(c, "equal", s[0], kit_scalar(c, DT_I64, 1), NULL);
  return kit_cast_to(c, kit_where(c, one, s[1], s[0]), tfl_out(c, 0)->dtype);
}

/* ---- orders --------------------------------------------------------------------------------------------------- */

const Node *tfl_convert_transpose(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int n = 0;
  const int64_t *v = known(c, 1, "the permutation", &n);
  int perm[MAX_RANK];
  uint64_t seen = 0;
  if (n != kit_rank_of(c, x)) kit_fail(c, ERR_SHAPE, "%d axes are named; data has %d", n, kit_rank_of(c, x));
  for (int i = 0; i < n; i++) {
    perm[i] = kit_axis_of(c, v[i], n);
    if (seen >> perm[i] & 1) kit_fail(c, ERR_ARGUMENT, "axis %d is named twice", perm[i]);
    seen |= (uint64_t)1 << perm[i];
  }
  return kit_transpose(c, x, n, perm);
}

const Node *tfl_convert_reverse(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t axes[MAX_RANK];
  int n = tfl_axes(c, 1, kit_rank_of(c, x), axes);
  for (int i = 0; i < n; i++) x = kit_op1(c, "reverse", x, "axis:l", axes[i]);
  return x;
}

const Node *tfl_convert_reverse_sequence(Conversion *c)
{
  return kit_op2(c, "reverse_sequence", kit_in(c, 0), kit_in(c, 1), "seq_axis:l,batch_axis:l", tfl_int(c, 0, 0),
                 tfl_int(c, 1, 0));
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

/* Quantized parts of another scale are brought to the output's: in integers, of uint8 in float32. */
static const Node *part_of(Conversion *c, int i)
{
  const TflTensor *in = tfl_in(c, i);
  const TflTensor *out = tfl_out(c, 0);
  const Node *x = kit_in(c, i);
  if (!tfl_is_quantized(out) || out->dtype.bits > 16) return x;
  double si = tfl_scale(c, in);
  double so = tfl_scale(c, out);
  int64_t zi = tfl_zero(c, in);
  int64_t zo = tfl_zero(c, out);
  if (si == so && zi == zo) return x;
  if (in->dtype.code != DT_UINT) return tfl_restored(c, x, in, out);
  float factor = (float)si * (1.0f / (float)so);
  const Node *y = kit_mul(c, kit_cast_to(c, x, DT_F32), kit_scalar(c, DT_F32, (double)factor));
  y = kit_add(c, y, kit_scalar(c, DT_F32, (double)(-(float)zi * factor)));
  y = kit_add(c, kit_cast_to(c, tfl_rounded(c, y), DT_I32), kit_scalar(c, DT_I32, (double)zo));
  return kit_cast_to(c, kit_op1(c, "clip", y, "a_min:f,a_max:f", 0.0, 255.0), DT_U8);
}

const Node *tfl_convert_concatenation(Conversion *c)
{
  if (!c->nin) kit_fail(c, ERR_ARGUMENT, "there is nothing to join");
  const Node **part = arena_array(c->im->arena, const Node *, c->nin);
  for (int i = 0; i < c->nin; i++) part[i] = part_of(c, i);
  int64_t activation = tfl_byte(c, 1, 0);
  const Node *y = kit_concat(c, c->nin, part, kit_axis_of(c, tfl_int(c, 0, 0), kit_rank_of(c, part[0])));
  if (activation && tfl_is_quantized(tfl_out(c, 0)))
    kit_fail(c, ERR_UNSUPPORTED, "an activation of quantized tensors is not supported");
  return tfl_activation(c, y, activation);
}

const Node *tfl_convert_pack(Conversion *c)
{
  if (!c->nin) kit_fail(c, ERR_ARGUMENT, "there is nothing to join");
  const Node **part = arena_array(c->im->arena, const Node *, c->nin);
  int axis = kit_axis_of(c, tfl_int(c, 1, 0), kit_rank_of(c, kit_in(c, 0)) + 1);
  for (int i = 0; i < c->nin; i++) part[i] = kit_unsqueeze(c, kit_in(c, i), axis);
  return kit_concat(c, c->nin, part, axis);
}

const Node *tfl_convert_unpack(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int axis = kit_axis_of(c, tfl_int(c, 1, 0), kit_rank_of(c, x));
  if (kit_static_dim(c, x, axis) != c->nout)
    kit_fail(c, ERR_SHAPE, "axis %d has %" PRId64 " elements, the node %d outputs", axis, kit_static_dim(c, x, axis),
             c->nout);
  for (int i = 0; i < c->nout; i++) c->out[i] = kit_squeeze(c, kit_slice(c, x, axis, i, i + 1), axis);
  return NULL;
}

const Node *tfl_convert_split(Conversion *c)
{
  const Node *x = kit_in(c, 1);
  int axis = known_axis(c, 0, kit_rank_of(c, x), "the axis");
  int64_t size = kit_static_dim(c, x, axis);
  if (!c->nout || size % c->nout) kit_fail(c, ERR_SHAPE, "%" PRId64 " elements in %d equal parts", size, c->nout);
  int64_t each = size / c->nout;
  for (int i = 0; i < c->nout; i++) c->out[i] = kit_slice(c, x, axis, i * each, (i + 1) * each);
  return NULL;
}

const Node *tfl_convert_split_v(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int n = 0;
  const int64_t *size = known(c, 1, "the sizes", &n);
  int axis = known_axis(c, 2, kit_rank_of(c, x), "the axis");
  int64_t rest = kit_static_dim(c, x, axis);
  if (n != c->nout) kit_fail(c, ERR_ARGUMENT, "%d sizes for %d outputs", n, c->nout);
  for (int i = 0; i < n; i++) rest -= size[i] < 0 ? 0 : size[i];
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    int64_t k = size[i] < 0 ? rest : size[i];
    if (k < 0 || rest < 0) kit_fail(c, ERR_SHAPE, "the parts are larger than axis %d", axis);
    c->out[i] = kit_slice(c, x, axis, at, at + k);
    at += k;
  }
  return NULL;
}

const Node *tfl_convert_slice(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *begin = wide(c, kit_in(c, 1));
  const Node *size = wide(c, kit_in(c, 2));
  int rank = kit_rank_of(c, x);
  int nb = 0;
  int ns = 0;
  const int64_t *b = kit_const_ints(c, begin, &nb);
  const int64_t *s = kit_const_ints(c, size, &ns);
  int64_t ones[MAX_RANK];
  for (int i = 0; i < MAX_RANK; i++) ones[i] = 1;
  if (b && s) {
    if (nb != rank || ns != rank) kit_fail(c, ERR_SHAPE, "%d begins and %d sizes for rank %d", nb, ns, rank);
    int64_t end[MAX_RANK];
    for (int i = 0; i < rank; i++) {
      int64_t dim;
      if (b[i] < 0 || s[i] < -1) kit_fail(c, ERR_ARGUMENT, "begin %" PRId64 " and size %" PRId64, b[i], s[i]);
      if (kit_is_static_dim(kit_dim_of(c, x, i), &dim) && (b[i] > dim || (s[i] > 0 && b[i] + s[i] > dim)))
        kit_fail(c, ERR_SHAPE, "a slice from %" PRId64 " of %" PRId64 " leaves axis %d of %" PRId64, b[i], s[i], i,
                 dim);
      end[i] = s[i] < 0 ? INT32_MAX : b[i] + s[i];
    }
    return kit_op1(c, "strided_slice", x, "begin:I,end:I,strides:I", rank, b, rank, end, rank, ones);
  }
  const Node *to_end = kit_less(c, size, kit_scalar(c, DT_I64, 0));
  const Node *end = kit_where(c, to_end, kit_shape_of(c, x), kit_add(c, begin, size));
  return kit_opn(c, "dyn.strided_slice", 4, (const Node *[]){x, begin, end, kit_const_i64(c, rank, ones)}, NULL);
}

/* One axis of a strided slice; the masks say what of it counts. */
typedef struct Cut {
  int64_t begin[MAX_RANK], end[MAX_RANK], stride[MAX_RANK];
  int64_t drop[MAX_RANK], fresh[MAX_RANK]; /* axes to squeeze, before new ones; places of new axes in the result */
  int n, ndrop, nfresh;
} Cut;

static void cut_whole(Cut *t)
{
  t->begin[t->n] = 0;
  t->end[t->n] = INT32_MAX;
  t->stride[t->n++] = 1;
}

static void cut_axis(Conversion *c, Cut *t, const Node *x, int64_t begin, int64_t end, int64_t stride, bool from_edge,
                     bool to_edge, bool one)
{
  int64_t dim;
  if (t->n >= kit_rank_of(c, x)) kit_fail(c, ERR_SHAPE, "more axes are sliced than there are");
  if (!stride) kit_fail(c, ERR_ARGUMENT, "a stride of 0");
  bool is_known = kit_is_static_dim(kit_dim_of(c, x, t->n), &dim);
  if (one) {
    if (is_known && (begin < -dim || begin >= dim))
      kit_fail(c, ERR_ARGUMENT, "index %" PRId64 " is outside axis %d of %" PRId64, begin, t->n, dim);
    end = begin == -1 ? INT32_MAX : begin + 1;
    stride = 1;
    t->drop[t->ndrop++] = t->n;
  } else {
    if (from_edge) begin = stride > 0 ? 0 : INT32_MAX;
    if (to_edge) end = stride > 0 ? INT32_MAX : INT32_MIN + 1;
    if (is_known && !to_edge && end < -dim) end = stride > 0 ? 0 : INT32_MIN + 1;
  }
  t->begin[t->n] = begin;
  t->end[t->n] = end;
  t->stride[t->n++] = stride;
}

static Cut read_cut(Conversion *c, const Node *x)
{
  int n[3];
  const int64_t *begin = known(c, 1, "begin", &n[0]);
  const int64_t *end = known(c, 2, "end", &n[1]);
  const int64_t *stride = known(c, 3, "strides", &n[2]);
  int64_t mask[5];
  int rank = kit_rank_of(c, x);
  for (int i = 0; i < 5; i++) mask[i] = tfl_int(c, i, 0); /* begin, end, ellipsis, new axis, shrink */
  if (n[0] != n[1] || n[0] != n[2] || n[0] > MAX_RANK)
    kit_fail(c, ERR_SHAPE, "begin, end and strides have %d, %d and %d elements", n[0], n[1], n[2]);
  int fresh = 0;
  for (int i = 0; i < n[0]; i++) fresh += mask[3] >> i & 1;
  Cut t = {0};
  int at = 0; /* in the result */
  for (int i = 0; i < n[0]; i++) {
    if (mask[2] >> i & 1) {
      int rest = 0; /* axes that the others take */
      for (int k = i + 1; k < n[0]; k++) rest += !(mask[3] >> k & 1);
      for (; t.n < rank - rest; at++) cut_whole(&t);
    } else if (mask[3] >> i & 1) {
      t.fresh[t.nfresh++] = at++;
    } else {
      int64_t to = tfl_bool(c, 5) ? begin[i] + end[i] : end[i];
      cut_axis(c, &t, x, begin[i], to, stride[i], mask[0] >> i & 1, mask[1] >> i & 1, mask[4] >> i & 1);
      at += !(mask[4] >> i & 1);
    }
  }
  while (t.n < rank) cut_whole(&t);
  return t;
}

const Node *tfl_convert_strided_slice(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Cut t = read_cut(c, x);
  const Node *y = kit_op1(c, "strided_slice", x, "begin:I,end:I,strides:I", t.n, t.begin, t.n, t.end, t.n, t.stride);
  if (t.ndrop) y = kit_op1(c, "squeeze", y, "axis:I", t.ndrop, t.drop);
  for (int i = 0; i < t.nfresh; i++) y = kit_unsqueeze(c, y, (int)t.fresh[i]);
  return y;
}

/* ---- padding and repeating --------------------------------------------------------------------------------------- */

static const int64_t *pad_widths(Conversion *c, const Node *x)
{
  int n = 0;
  const int64_t *v = known(c, 1, "the paddings", &n);
  if (n != 2 * kit_rank_of(c, x)) kit_fail(c, ERR_SHAPE, "%d paddings for rank %d", n, kit_rank_of(c, x));
  for (int i = 0; i < n; i++)
    if (v[i] < 0) kit_fail(c, ERR_ARGUMENT, "a padding of %" PRId64, v[i]);
  return v;
}

const Node *tfl_convert_pad(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *value = kit_opt(c, 2);
  const int64_t *width = pad_widths(c, x);
  bool stored = tfl_is_quantized(tfl_out(c, 0)) && tfl_out(c, 0)->dtype.bits <= 16;
  if (!value) value = kit_scalar_like(c, x, stored ? (double)tfl_zero(c, tfl_out(c, 0)) : 0);
  return kit_op2(c, "nn.pad", x, kit_scalar_of(c, value), "pad_width:I", 2 * kit_rank_of(c, x), width);
}

const Node *tfl_convert_mirror_pad(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const int64_t *width = pad_widths(c, x);
  return kit_op1(c, "nn.mirror_pad", x, "pad_width:I,mode:s", 2 * kit_rank_of(c, x), width,
                 tfl_byte(c, 0, 0) ? "SYMMETRIC" : "REFLECT");
}

const Node *tfl_convert_tile(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int n = 0;
  const int64_t *v = kit_const_ints(c, kit_in(c, 1), &n);
  if (!v) return kit_op2(c, "dyn.tile", x, wide(c, kit_in(c, 1)), NULL);
  if (n != kit_rank_of(c, x)) kit_fail(c, ERR_SHAPE, "%d multiples for rank %d", n, kit_rank_of(c, x));
  return n ? kit_op1(c, "tile", x, "reps:I", n, v) : x;
}

const Node *tfl_convert_depth_to_space(Conversion *c)
{
  return kit_op1(c, "nn.depth_to_space", kit_in(c, 0), "block_size:l,layout:s", tfl_int(c, 0, 0), "NHWC");
}

const Node *tfl_convert_space_to_depth(Conversion *c)
{
  return kit_op1(c, "nn.space_to_depth", kit_in(c, 0), "block_size:l,layout:s", tfl_int(c, 0, 0), "NHWC");
}

const Node *tfl_convert_space_to_batch(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int nb = 0;
  int np = 0;
  const int64_t *block = known(c, 1, "the block's shape", &nb);
  const int64_t *pad = known(c, 2, "the paddings", &np);
  if (np != 2 * nb || nb >= kit_rank_of(c, x)) kit_fail(c, ERR_SHAPE, "%d blocks and %d paddings", nb, np);
  bool stored = tfl_is_quantized(tfl_out(c, 0));
  int64_t width[2 * MAX_RANK] = {0};
  for (int i = 0; i < np; i++) width[2 + i] = pad[i];
  const Node *value = kit_scalar_like(c, x, stored ? (double)tfl_zero(c, tfl_out(c, 0)) : 0);
  x = kit_op2(c, "nn.pad", x, value, "pad_width:I", 2 * kit_rank_of(c, x), width);
  /* (n, h / b, b, …, c) to (b, …, n, h / b, …, c) */
  int rank = kit_rank_of(c, x);
  int64_t split[2 * MAX_RANK];
  int perm[2 * MAX_RANK];
  int64_t out[MAX_RANK];
  int k = 0;
  int64_t batch = kit_static_dim(c, x, 0);
  split[k++] = batch;
  for (int i = 0; i < nb; i++) {
    int64_t size = kit_static_dim(c, x, 1 + i);
    if (block[i] < 1 || size % block[i]) kit_fail(c, ERR_SHAPE, "%" PRId64 " in blocks of %" PRId64, size, block[i]);
    batch *= block[i];
    out[1 + i] = size / block[i];
    split[k++] = size / block[i];
    split[k++] = block[i];
  }
  for (int i = nb + 1; i < rank; i++) out[i] = split[k++] = kit_static_dim(c, x, i);
  out[0] = batch;
  int p = 0;
  for (int i = 0; i < nb; i++) perm[p++] = 2 + 2 * i;
  perm[p++] = 0;
  for (int i = 0; i < nb; i++) perm[p++] = 1 + 2 * i;
  for (int i = 2 * nb + 1; i < k; i++) perm[p++] = i;
  return kit_reshape(c, kit_transpose(c, kit_reshape(c, x, k, split), k, perm), rank, out);
}

const Node *tfl_convert_batch_to_space(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int nb = 0;
  int np = 0;
  const int64_t *block = known(c, 1, "the block's shape", &nb);
  const int64_t *crop = known(c, 2, "the crops", &np);
  int rank = kit_rank_of(c, x);
  if (np != 2 * nb || nb >= rank) kit_fail(c, ERR_SHAPE, "%d blocks and %d crops", nb, np);
  int64_t split[2 * MAX_RANK];
  int perm[2 * MAX_RANK];
  int64_t out[MAX_RANK];
  int k = 0;
  int64_t batch = kit_static_dim(c, x, 0);
  for (int i = 0; i < nb; i++) {
    if (block[i] < 1 || batch % block[i]) kit_fail(c, ERR_SHAPE, "a batch of %" PRId64 " in blocks", batch);
    batch /= block[i];
    split[k++] = block[i];
  }
  split[k++] = out[0] = batch;
  for (int i = 1; i < rank; i++) {
    split[k++] = out[i] = kit_static_dim(c, x, i);
    if (i <= nb) out[i] *= block[i - 1];
  }
  int p = 0;
  perm[p++] = nb;
  for (int i = 0; i < nb; i++) {
    perm[p++] = nb + 1 + i;
    perm[p++] = i;
  }
  for (int i = 2 * nb + 1; i < k; i++) perm[p++] = i;
  const Node *y = kit_reshape(c, kit_transpose(c, kit_reshape(c, x, k, split), k, perm), rank, out);
  for (int i = 0; i < nb; i++) {
    if (crop[2 * i] < 0 || crop[2 * i + 1] < 0 || crop[2 * i] + crop[2 * i + 1] > out[1 + i])
      kit_fail(c, ERR_ARGUMENT, "crops of %" PRId64 " and %" PRId64, crop[2 * i], crop[2 * i + 1]);
    if (crop[2 * i] || crop[2 * i + 1]) y = kit_slice(c, y, 1 + i, crop[2 * i], out[1 + i] - crop[2 * i + 1]);
  }
  return y;
}

/* ---- tensors made of a few numbers -------------------------------------------------------------------------- */

const Node *tfl_convert_fill(Conversion *c)
{
  return kit_full(c, kit_scalar_of(c, kit_in(c, 1)), wide(c, kit_in(c, 0)), tfl_out(c, 0)->dtype);
}

const Node *tfl_convert_zeros_like(Conversion *c) { return kit_op1(c, "zeros_like", kit_in(c, 0), NULL); }

const Node *tfl_convert_range(Conversion *c)
{
  const Node *v[3];
  for (int i = 0; i < 3; i++) v[i] = kit_scalar_of(c, kit_in(c, i));
  return kit_arange(c, v[0], v[1], v[2], tfl_out(c, 0)->dtype);
}

const Node *tfl_convert_one_hot(Conversion *c)
{
  const Node *index = wide(c, kit_in(c, 0));
  const Node *depth = wide(c, kit_scalar_of(c, kit_in(c, 1)));
  int rank = kit_rank_of(c, index);
  int at = kit_axis_of(c, tfl_int(c, 0, 0), rank + 1);
  const Node *hot = kit_op2(c, "equal", kit_unsqueeze(c, index, at),
                            kit_unsqueeze_to(c, kit_iota(c, depth, DT_I64), at, rank + 1), NULL);
  return kit_where(c, hot, kit_scalar_of(c, kit_in(c, 2)), kit_scalar_of(c, kit_in(c, 3)));
}

/* The vector on the diagonal of a matrix, zeros elsewhere. */
const Node *tfl_convert_matrix_diag(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int rank = kit_rank_of(c, x);
  int64_t n = kit_static_dim(c, x, -1);
  const Node *at = kit_iota(c, kit_scalar(c, DT_I64, (double)n), DT_I64);
  const Node *on = kit_op2(c, "equal", kit_unsqueeze(c, at, 0), kit_unsqueeze(c, at, 1), NULL);
  return kit_where(c, on, kit_unsqueeze(c, x, rank), kit_scalar_like(c, x, 0));
}

const Node *tfl_convert_matrix_set_diag(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_op2(c, "matrix_set_diag", x, kit_in(c, 1), "k:I", 1, (int64_t[]){0});
}
