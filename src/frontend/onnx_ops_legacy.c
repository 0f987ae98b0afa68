/* onnx_ops_legacy.c: operators of the first ONNX releases that files still hold, and ATen.
 *
 * Comes in: experimental operators that later releases dropped (Affine, Crop, FC, …), and PyTorch
 * operators that its exporter could not translate (ATen, named by their attribute `operator`).
 * Goes out: plain calls. */
#include <math.h>

#include "frontend/onnx_import.h"

/* ---- the first releases -------------------------------------------------------------------- */

static const Node *convert_activation(Conversion *c)
{
  return onnx_activation(c, c->op, kit_in(c, 0), onnx_attr_float(c, "alpha", 1),
                         onnx_attr_float(c, "beta", !strcmp(c->op, "Affine") ? 0 : 1));
}

/* alpha * log(exp(beta * x) + 1) */
static const Node *convert_parametric_softplus(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *inner = kit_mul(c, x, kit_scalar_like(c, x, onnx_attr_float(c, "beta", 1)));
  return kit_mul(c, onnx_activation(c, "Softplus", inner, 0, 0), kit_scalar_like(c, x, onnx_attr_float(c, "alpha", 1)));
}

static const Node *convert_scale(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_mul(c, x, kit_scalar_like(c, x, onnx_attr_float(c, "scale", 1)));
}

/* scale * x + bias of the channel */
static const Node *convert_image_scaler(Conversion *c)
{
  const Node *x = convert_scale(c);
  int n = 0;
  const float *bias = onnx_attr_floats(c, "bias", &n);
  if (kit_rank_of(c, x) != 4) kit_fail(c, ERR_SHAPE, "the input has rank %d, wants 4", kit_rank_of(c, x));
  if (!bias) return x;
  const Node *b = kit_cast_to(c, node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, bias), kit_dtype_of(c, x));
  return kit_add(c, x, kit_unsqueeze_to(c, b, 0, 3));
}

/* border: left, top, right, bottom; scale: height and width of the result, from left and top on. */
static const Node *convert_crop(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int nb = 0;
  int ns = 0;
  const int64_t *border = onnx_attr_ints(c, "border", &nb);
  const int64_t *scale = onnx_attr_ints(c, "scale", &ns);
  if (kit_rank_of(c, x) != 4) kit_fail(c, ERR_SHAPE, "the input has rank %d, wants 4", kit_rank_of(c, x));
  if (!border || nb != 4) kit_fail(c, ERR_ARGUMENT, "border has %d numbers, wants 4", nb);
  if (scale && ns != 2) kit_fail(c, ERR_ARGUMENT, "scale has %d numbers, wants 2", ns);
  for (int k = 0; k < 2; k++) { /* rows, columns */
    int64_t from = border[1 - k];
    int64_t to = kit_static_dim(c, x, 2 + k) - border[3 - k];
    if (scale) to = from + scale[k];
    if (from < 0 || to > kit_static_dim(c, x, 2 + k) || from > to)
      kit_fail(c, ERR_SHAPE, "%s %" PRId64 " to %" PRId64 " are asked for, there are %" PRId64, k ? "columns" : "rows",
               from, to, kit_static_dim(c, x, 2 + k));
    x = kit_slice(c, x, 2 + k, from, to);
  }
  return x;
}

/* x, weight (units, k), bias: everything from `axis` on is one row. */
static const Node *convert_fc(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", 1), kit_rank_of(c, x));
  int axis_w = kit_axis_of(c, onnx_attr_int(c, "axis_w", 1), kit_rank_of(c, w));
  const Node *y = kit_op2(c, "nn.dense", kit_flatten_from(c, x, axis), kit_flatten_from(c, w, axis_w), NULL);
  return kit_opt(c, 2) ? kit_add(c, y, kit_opt(c, 2)) : y;
}

static const Node *convert_spatial_bn(Conversion *c)
{
  Conversion inner = *c;
  inner.version = 7; /* inference, always */
  return onnx_find("", "BatchNormalization", 7)->convert(&inner);
}

/* ---- ATen -------------------------------------------------------------------------------------- */

static const Node *aten_size(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *shape = kit_shape_of(c, x);
  if (!kit_opt(c, 1)) return shape;
  int axis = kit_axis_of(c, kit_const_int(c, kit_in(c, 1), "the dimension"), kit_rank_of(c, x));
  return kit_scalar_of(c, kit_slice(c, shape, 0, axis, axis + 1));
}

/* end | start, end | start, end, step; dtype, layout, device and pin_memory follow. */
static const Node *aten_arange(Conversion *c)
{
  int n = c->nin > 4 ? c->nin - 4 : c->nin;
  if (n < 1 || n > 3) kit_fail(c, ERR_ARGUMENT, "arange is given %d inputs", c->nin);
  const Node *end = kit_scalar_of(c, kit_in(c, n == 1 ? 0 : 1));
  const Node *start = n == 1 ? kit_scalar_like(c, end, 0) : kit_scalar_of(c, kit_in(c, 0));
  DType dt = kit_dtype_of(c, end);
  return kit_arange(c, start, end, n == 3 ? kit_scalar_of(c, kit_in(c, 2)) : kit_scalar(c, dt, 1), dt);
}

/* x, an index tensor for each of the first axes, values, accumulate. */
static const Node *aten_index_put(Conversion *c)
{
  int n = c->nin - 3;
  const Node *x = kit_in(c, 0);
  if (n < 1 || n > kit_rank_of(c, x))
    kit_fail(c, ERR_ARGUMENT, "index_put is given %d inputs for a tensor of rank %d", c->nin, kit_rank_of(c, x));
  const Node **at = arena_array(c->im->arena, const Node *, n);
  const Node *shape = NULL;
  const Node *sum = kit_cast_to(c, kit_in(c, 1), DT_I64);
  for (int i = 1; i < n; i++) sum = kit_add(c, sum, kit_cast_to(c, kit_in(c, 1 + i), DT_I64));
  shape = kit_shape_of(c, sum); /* the indices' common shape */
  for (int i = 0; i < n; i++) {
    const Node *v = kit_cast_to(c, kit_in(c, 1 + i), DT_I64);
    const Node *extent = kit_scalar_of(c, kit_shape_part(c, x, i, i + 1));
    v = kit_where(c, kit_less(c, v, kit_scalar(c, DT_I64, 0)), kit_add(c, v, extent), v);
    at[i] = kit_unsqueeze(c, kit_broadcast_to(c, v, shape), 0);
  }
  const Node *where_to = kit_concat(c, n, at, 0);
  const Node *rest = kit_shape_part(c, x, n, kit_rank_of(c, x));
  const Node *values =
      kit_broadcast_to(c, kit_in(c, 1 + n), kit_rank_of(c, x) > n ? kit_concat2(c, shape, rest, 0) : shape);
  bool accumulate = kit_const_int(c, kit_in(c, 2 + n), "accumulate") != 0;
  return kit_op3(c, "scatter_nd", x, where_to, values, "mode:s", accumulate ? "add" : "update");
}

/* weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset.
 * Bag b holds indices offsets[b] … offsets[b + 1]; a bag of none gives zeros. */
static const Node *aten_embedding_bag(Conversion *c)
{
  const Node *weight = kit_in(c, 0);
  const Node *indices = kit_vector_of(c, kit_in(c, 1));
  const Node *offsets = kit_vector_of(c, kit_cast_to(c, kit_in(c, 2), DT_I64));
  int64_t mode = kit_opt(c, 4) ? kit_const_int(c, kit_opt(c, 4), "mode") : onnx_attr_int(c, "mode", 1);
  DType dt = kit_dtype_of(c, weight);
  if (kit_opt(c, 6))
    kit_fail(c, ERR_UNSUPPORTED, "embedding_bag with weights of its own for the samples is not supported");
  if ((kit_opt(c, 7) && kit_const_int(c, kit_opt(c, 7), "include_last_offset")) ||
      onnx_attr_int(c, "include_last_offset", 0))
    offsets = kit_slice_to(c, offsets, 0, kit_const_i64(c, 1, (int64_t[]){0}),
                           kit_sub(c, kit_shape_of(c, offsets), kit_const_i64(c, 1, (int64_t[]){1})));
  if (mode < 0 || mode > 2) kit_fail(c, ERR_ARGUMENT, "mode is 0 (sum), 1 (mean) or 2 (max), not %" PRId64, mode);
  const Node *at = kit_iota(c, kit_scalar_of(c, kit_shape_of(c, indices)), DT_I64);
  const Node *next = kit_concat2(c, kit_slice(c, offsets, 0, 1, INT64_MAX), kit_shape_of(c, indices), 0);
  const Node *inside = kit_op2(
      c, "logical_and", kit_op2(c, "greater_equal", kit_unsqueeze(c, at, 0), kit_unsqueeze(c, offsets, 1), NULL),
      kit_less(c, kit_unsqueeze(c, at, 0), kit_unsqueeze(c, next, 1)), NULL); /* (bags, indices) */
  const Node *rows = kit_take(c, weight, indices, 0);
  const Node *count = kit_reduce1(c, "sum", kit_cast_to(c, inside, dt), 1, true);
  if (mode == 2) {
    const Node *each =
        kit_where(c, kit_unsqueeze(c, inside, 2), kit_unsqueeze(c, rows, 0), kit_scalar(c, dt, -INFINITY));
    return kit_where(c, kit_op2(c, "greater", count, kit_scalar(c, dt, 0), NULL), kit_reduce1(c, "max", each, 1, false),
                     kit_scalar(c, dt, 0));
  }
  const Node *sum = kit_matmul(c, kit_cast_to(c, inside, dt), rows);
  return mode == 0 ? sum : kit_div(c, sum, kit_max2(c, count, kit_scalar(c, dt, 1)));
}

static const Node *aten_reshape(Conversion *c)
{
  return kit_reshape_to(c, kit_in(c, 0), kit_cast_to(c, kit_in(c, 1), DT_I64), false);
}

static const Node *convert_aten(Conversion *c)
{
  static const struct {
    const char *name;
    const Node *(*convert)(Conversion *);
  } known[] = {{"arange", aten_arange},
               {"embedding_bag", aten_embedding_bag},
               {"index_put", aten_index_put},
               {"reshape", aten_reshape},
               {"size", aten_size}};
  const char *name = onnx_attr_str(c, "operator", "");
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) return known[i].convert(c);
  kit_fail(c, ERR_UNSUPPORTED,
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
ONNX_TABLE(onnx_ops_legacy, "", rows);

static const OnnxRow aten_rows[] = {{"ATen", 1, convert_aten}};
ONNX_TABLE(onnx_ops_aten, "org.pytorch.aten", aten_rows);
