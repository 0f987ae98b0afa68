/* onnx_ops_legacy.c: operators of the first ONNX releases that files still hold, and ATen.
 *
 * Comes in: experimental operators that later releases dropped (Affine, Crop, FC, …), and PyTorch
 * operators that its exporter could not translate (ATen, named by their attribute `operator`).
 * Goes out: plain calls. */
#include <math.h>

#include "frontend/onnx_import.h"

/* ---- the first releases -------------------------------------------------------------------- */

static const Node *convert_activation(Conv *c)
{
  return activation(c, c->p->op_type, conv_in(c, 0), attr_float(c, "alpha", 1),
                    attr_float(c, "beta", !strcmp(c->p->op_type, "Affine") ? 0 : 1));
}

/* alpha * log(exp(beta * x) + 1) */
static const Node *convert_parametric_softplus(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *inner = mul(c, x, scalar_like(c, x, attr_float(c, "beta", 1)));
  return mul(c, activation(c, "Softplus", inner, 0, 0), scalar_like(c, x, attr_float(c, "alpha", 1)));
}

static const Node *convert_scale(Conv *c)
{
  const Node *x = conv_in(c, 0);
  return mul(c, x, scalar_like(c, x, attr_float(c, "scale", 1)));
}

/* scale * x + bias of the channel */
static const Node *convert_image_scaler(Conv *c)
{
  const Node *x = convert_scale(c);
  int n = 0;
  const float *bias = attr_floats(c, "bias", &n);
  if (rank_of(c, x) != 4) conv_fail(c, ERR_SHAPE, "the input has rank %d, wants 4", rank_of(c, x));
  if (!bias) return x;
  const Node *b = cast_to(c, node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, bias), dtype_of(c, x));
  return add(c, x, unsqueeze_to(c, b, 0, 3));
}

/* border: left, top, right, bottom; scale: height and width of the result, from left and top on. */
static const Node *convert_crop(Conv *c)
{
  const Node *x = conv_in(c, 0);
  int nb = 0;
  int ns = 0;
  const int64_t *border = attr_ints(c, "border", &nb);
  const int64_t *scale = attr_ints(c, "scale", &ns);
  if (rank_of(c, x) != 4) conv_fail(c, ERR_SHAPE, "the input has rank %d, wants 4", rank_of(c, x));
  if (!border || nb != 4) conv_fail(c, ERR_ARGUMENT, "border has %d numbers, wants 4", nb);
  if (scale && ns != 2) conv_fail(c, ERR_ARGUMENT, "scale has %d numbers, wants 2", ns);
  for (int k = 0; k < 2; k++) { /* rows, columns */
    int64_t from = border[1 - k];
    int64_t to = static_dim(c, x, 2 + k) - border[3 - k];
    if (scale) to = from + scale[k];
    if (from < 0 || to > static_dim(c, x, 2 + k) || from > to)
      conv_fail(c, ERR_SHAPE, "%s %" PRId64 " to %" PRId64 " are asked for, there are %" PRId64, k ? "columns" : "rows",
                from, to, static_dim(c, x, 2 + k));
    x = slice(c, x, 2 + k, from, to);
  }
  return x;
}

/* x, weight (units, k), bias: everything from `axis` on is one row. */
static const Node *convert_fc(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *w = conv_in(c, 1);
  int axis = axis_of(c, attr_int(c, "axis", 1), rank_of(c, x));
  int axis_w = axis_of(c, attr_int(c, "axis_w", 1), rank_of(c, w));
  const Node *y = op2(c, "nn.dense", flatten_from(c, x, axis), flatten_from(c, w, axis_w), NULL);
  return conv_opt(c, 2) ? add(c, y, conv_opt(c, 2)) : y;
}

static const Node *convert_spatial_bn(Conv *c)
{
  Conv inner = *c;
  inner.opset = 7; /* inference, always */
  return onnx_find("", "BatchNormalization", 7)->convert(&inner);
}

/* ---- ATen -------------------------------------------------------------------------------------- */

static const Node *aten_size(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *shape = shape_of(c, x);
  if (!conv_opt(c, 1)) return shape;
  int axis = axis_of(c, const_int(c, conv_in(c, 1), "the dimension"), rank_of(c, x));
  return scalar_of(c, slice(c, shape, 0, axis, axis + 1));
}

/* end | start, end | start, end, step; dtype, layout, device and pin_memory follow. */
static const Node *aten_arange(Conv *c)
{
  int n = c->nin > 4 ? c->nin - 4 : c->nin;
  if (n < 1 || n > 3) conv_fail(c, ERR_ARGUMENT, "arange is given %d inputs", c->nin);
  const Node *end = scalar_of(c, conv_in(c, n == 1 ? 0 : 1));
  const Node *start = n == 1 ? scalar_like(c, end, 0) : scalar_of(c, conv_in(c, 0));
  DType dt = dtype_of(c, end);
  return arange(c, start, end, n == 3 ? scalar_of(c, conv_in(c, 2)) : scalar(c, dt, 1), dt);
}

/* x, an index tensor for each of the first axes, values, accumulate. */
static const Node *aten_index_put(Conv *c)
{
  int n = c->nin - 3;
  const Node *x = conv_in(c, 0);
  if (n < 1 || n > rank_of(c, x))
    conv_fail(c, ERR_ARGUMENT, "index_put is given %d inputs for a tensor of rank %d", c->nin, rank_of(c, x));
  const Node **at = arena_array(c->im->arena, const Node *, n);
  const Node *shape = NULL;
  const Node *sum = cast_to(c, conv_in(c, 1), DT_I64);
  for (int i = 1; i < n; i++) sum = add(c, sum, cast_to(c, conv_in(c, 1 + i), DT_I64));
  shape = shape_of(c, sum); /* the indices' common shape */
  for (int i = 0; i < n; i++) {
    const Node *v = cast_to(c, conv_in(c, 1 + i), DT_I64);
    const Node *extent = scalar_of(c, shape_part(c, x, i, i + 1));
    v = where(c, less(c, v, scalar(c, DT_I64, 0)), add(c, v, extent), v);
    at[i] = unsqueeze(c, broadcast_to(c, v, shape), 0);
  }
  const Node *where_to = concat(c, n, at, 0);
  const Node *rest = shape_part(c, x, n, rank_of(c, x));
  const Node *values = broadcast_to(c, conv_in(c, 1 + n), rank_of(c, x) > n ? concat2(c, shape, rest, 0) : shape);
  bool accumulate = const_int(c, conv_in(c, 2 + n), "accumulate") != 0;
  return op3(c, "scatter_nd", x, where_to, values, "mode:s", accumulate ? "add" : "update");
}

/* weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset.
 * Bag b holds indices offsets[b] … offsets[b + 1]; a bag of none gives zeros. */
static const Node *aten_embedding_bag(Conv *c)
{
  const Node *weight = conv_in(c, 0);
  const Node *indices = vector_of(c, conv_in(c, 1));
  const Node *offsets = vector_of(c, cast_to(c, conv_in(c, 2), DT_I64));
  int64_t mode = conv_opt(c, 4) ? const_int(c, conv_opt(c, 4), "mode") : attr_int(c, "mode", 1);
  DType dt = dtype_of(c, weight);
  if (conv_opt(c, 6))
    conv_fail(c, ERR_UNSUPPORTED, "embedding_bag with weights of its own for the samples is not supported");
  if ((conv_opt(c, 7) && const_int(c, conv_opt(c, 7), "include_last_offset")) || attr_int(c, "include_last_offset", 0))
    offsets = slice_to(c, offsets, 0, const_i64(c, 1, (int64_t[]){0}),
                       sub(c, shape_of(c, offsets), const_i64(c, 1, (int64_t[]){1})));
  if (mode < 0 || mode > 2) conv_fail(c, ERR_ARGUMENT, "mode is 0 (sum), 1 (mean) or 2 (max), not %" PRId64, mode);
  const Node *at = iota(c, scalar_of(c, shape_of(c, indices)), DT_I64);
  const Node *next = concat2(c, slice(c, offsets, 0, 1, INT64_MAX), shape_of(c, indices), 0);
  const Node *inside =
      op2(c, "logical_and", op2(c, "greater_equal", unsqueeze(c, at, 0), unsqueeze(c, offsets, 1), NULL),
          less(c, unsqueeze(c, at, 0), unsqueeze(c, next, 1)), NULL); /* (bags, indices) */
  const Node *rows = take(c, weight, indices, 0);
  const Node *count = reduce1(c, "sum", cast_to(c, inside, dt), 1, true);
  if (mode == 2) {
    const Node *each = where(c, unsqueeze(c, inside, 2), unsqueeze(c, rows, 0), scalar(c, dt, -INFINITY));
    return where(c, op2(c, "greater", count, scalar(c, dt, 0), NULL), reduce1(c, "max", each, 1, false),
                 scalar(c, dt, 0));
  }
  const Node *sum = matmul(c, cast_to(c, inside, dt), rows);
  return mode == 0 ? sum : div_(c, sum, max2(c, count, scalar(c, dt, 1)));
}

static const Node *aten_reshape(Conv *c)
{
  return reshape_to(c, conv_in(c, 0), cast_to(c, conv_in(c, 1), DT_I64), false);
}

static const Node *convert_aten(Conv *c)
{
  static const struct {
    const char *name;
    const Node *(*convert)(Conv *);
  } known[] = {{"arange", aten_arange},
               {"embedding_bag", aten_embedding_bag},
               {"index_put", aten_index_put},
               {"reshape", aten_reshape},
               {"size", aten_size}};
  const char *name = attr_str(c, "operator", "");
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) return known[i].convert(c);
  conv_fail(c, ERR_UNSUPPORTED,
            "operator '%s' of PyTorch is not supported; arange, embedding_bag, index_put, reshape and size are", name);
}

static const OnnxRow rows[] = {
  {"ATen", 1, convert_aten},
  {"Affine", 1, convert_activation},
  {"Crop", 1, convert_crop},
  {"FC", 1, convert_fc},
  {"ImageScaler", 1, convert_image_scaler},
  {"ParametricSoftplus", 1, convert_parametric_softplus},
  {"Scale", 1, convert_scale},
  {"ScaledTanh", 1, convert_activation},
  {"SpatialBN", 1, convert_spatial_bn},
};
ONNX_TABLE(onnx_legacy, "", rows);

static const OnnxRow aten_rows[] = {{"ATen", 1, convert_aten}};
ONNX_TABLE(onnx_aten, "org.pytorch.aten", aten_rows);
