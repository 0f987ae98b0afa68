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
  return onnx_activation(c, c->p->op_type, onnx_in(c, 0), onnx_attr_float(c, "alpha", 1),
                         onnx_attr_float(c, "beta", !strcmp(c->p->op_type, "Affine") ? 0 : 1));
}

/* alpha * log(exp(beta * x) + 1) */
static const Node *convert_parametric_softplus(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *inner = onnx_mul(c, x, onnx_scalar_like(c, x, onnx_attr_float(c, "beta", 1)));
  return onnx_mul(c, onnx_activation(c, "Softplus", inner, 0, 0),
                  onnx_scalar_like(c, x, onnx_attr_float(c, "alpha", 1)));
}

static const Node *convert_scale(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  return onnx_mul(c, x, onnx_scalar_like(c, x, onnx_attr_float(c, "scale", 1)));
}

/* scale * x + bias of the channel */
static const Node *convert_image_scaler(Conversion *c)
{
  const Node *x = convert_scale(c);
  int n = 0;
  const float *bias = onnx_attr_floats(c, "bias", &n);
  if (onnx_rank_of(c, x) != 4) onnx_fail(c, ERR_SHAPE, "the input has rank %d, wants 4", onnx_rank_of(c, x));
  if (!bias) return x;
  const Node *b = onnx_cast_to(c, node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, bias), onnx_dtype_of(c, x));
  return onnx_add(c, x, onnx_unsqueeze_to(c, b, 0, 3));
}

/* border: left, top, right, bottom; scale: height and width of the result, from left and top on. */
static const Node *convert_crop(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  int nb = 0;
  int ns = 0;
  const int64_t *border = onnx_attr_ints(c, "border", &nb);
  const int64_t *scale = onnx_attr_ints(c, "scale", &ns);
  if (onnx_rank_of(c, x) != 4) onnx_fail(c, ERR_SHAPE, "the input has rank %d, wants 4", onnx_rank_of(c, x));
  if (!border || nb != 4) onnx_fail(c, ERR_ARGUMENT, "border has %d numbers, wants 4", nb);
  if (scale && ns != 2) onnx_fail(c, ERR_ARGUMENT, "scale has %d numbers, wants 2", ns);
  for (int k = 0; k < 2; k++) { /* rows, columns */
    int64_t from = border[1 - k];
    int64_t to = onnx_static_dim(c, x, 2 + k) - border[3 - k];
    if (scale) to = from + scale[k];
    if (from < 0 || to > onnx_static_dim(c, x, 2 + k) || from > to)
      onnx_fail(c, ERR_SHAPE, "%s %" PRId64 " to %" PRId64 " are asked for, there are %" PRId64, k ? "columns" : "rows",
                from, to, onnx_static_dim(c, x, 2 + k));
    x = onnx_slice(c, x, 2 + k, from, to);
  }
  return x;
}

/* x, weight (units, k), bias: everything from `axis` on is one row. */
static const Node *convert_fc(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *w = onnx_in(c, 1);
  int axis = onnx_axis_of(c, onnx_attr_int(c, "axis", 1), onnx_rank_of(c, x));
  int axis_w = onnx_axis_of(c, onnx_attr_int(c, "axis_w", 1), onnx_rank_of(c, w));
  const Node *y = onnx_op2(c, "nn.dense", onnx_flatten_from(c, x, axis), onnx_flatten_from(c, w, axis_w), NULL);
  return onnx_opt(c, 2) ? onnx_add(c, y, onnx_opt(c, 2)) : y;
}

static const Node *convert_spatial_bn(Conversion *c)
{
  Conversion inner = *c;
  inner.opset = 7; /* inference, always */
  return onnx_find("", "BatchNormalization", 7)->convert(&inner);
}

/* ---- ATen -------------------------------------------------------------------------------------- */

static const Node *aten_size(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *shape = onnx_shape_of(c, x);
  if (!onnx_opt(c, 1)) return shape;
  int axis = onnx_axis_of(c, onnx_const_int(c, onnx_in(c, 1), "the dimension"), onnx_rank_of(c, x));
  return onnx_scalar_of(c, onnx_slice(c, shape, 0, axis, axis + 1));
}

/* end | start, end | start, end, step; dtype, layout, device and pin_memory follow. */
static const Node *aten_arange(Conversion *c)
{
  int n = c->nin > 4 ? c->nin - 4 : c->nin;
  if (n < 1 || n > 3) onnx_fail(c, ERR_ARGUMENT, "arange is given %d inputs", c->nin);
  const Node *end = onnx_scalar_of(c, onnx_in(c, n == 1 ? 0 : 1));
  const Node *start = n == 1 ? onnx_scalar_like(c, end, 0) : onnx_scalar_of(c, onnx_in(c, 0));
  DType dt = onnx_dtype_of(c, end);
  return onnx_arange(c, start, end, n == 3 ? onnx_scalar_of(c, onnx_in(c, 2)) : onnx_scalar(c, dt, 1), dt);
}

/* x, an index tensor for each of the first axes, values, accumulate. */
static const Node *aten_index_put(Conversion *c)
{
  int n = c->nin - 3;
  const Node *x = onnx_in(c, 0);
  if (n < 1 || n > onnx_rank_of(c, x))
    onnx_fail(c, ERR_ARGUMENT, "index_put is given %d inputs for a tensor of rank %d", c->nin, onnx_rank_of(c, x));
  const Node **at = arena_array(c->im->arena, const Node *, n);
  const Node *shape = NULL;
  const Node *sum = onnx_cast_to(c, onnx_in(c, 1), DT_I64);
  for (int i = 1; i < n; i++) sum = onnx_add(c, sum, onnx_cast_to(c, onnx_in(c, 1 + i), DT_I64));
  shape = onnx_shape_of(c, sum); /* the indices' common shape */
  for (int i = 0; i < n; i++) {
    const Node *v = onnx_cast_to(c, onnx_in(c, 1 + i), DT_I64);
    const Node *extent = onnx_scalar_of(c, onnx_shape_part(c, x, i, i + 1));
    v = onnx_where(c, onnx_less(c, v, onnx_scalar(c, DT_I64, 0)), onnx_add(c, v, extent), v);
    at[i] = onnx_unsqueeze(c, onnx_broadcast_to(c, v, shape), 0);
  }
  const Node *where_to = onnx_concat(c, n, at, 0);
  const Node *rest = onnx_shape_part(c, x, n, onnx_rank_of(c, x));
  const Node *values =
      onnx_broadcast_to(c, onnx_in(c, 1 + n), onnx_rank_of(c, x) > n ? onnx_concat2(c, shape, rest, 0) : shape);
  bool accumulate = onnx_const_int(c, onnx_in(c, 2 + n), "accumulate") != 0;
  return onnx_op3(c, "scatter_nd", x, where_to, values, "mode:s", accumulate ? "add" : "update");
}

/* weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset.
 * Bag b holds indices offsets[b] … offsets[b + 1]; a bag of none gives zeros. */
static const Node *aten_embedding_bag(Conversion *c)
{
  const Node *weight = onnx_in(c, 0);
  const Node *indices = onnx_vector_of(c, onnx_in(c, 1));
  const Node *offsets = onnx_vector_of(c, onnx_cast_to(c, onnx_in(c, 2), DT_I64));
  int64_t mode = onnx_opt(c, 4) ? onnx_const_int(c, onnx_opt(c, 4), "mode") : onnx_attr_int(c, "mode", 1);
  DType dt = onnx_dtype_of(c, weight);
  if (onnx_opt(c, 6))
    onnx_fail(c, ERR_UNSUPPORTED, "embedding_bag with weights of its own for the samples is not supported");
  if ((onnx_opt(c, 7) && onnx_const_int(c, onnx_opt(c, 7), "include_last_offset")) ||
      onnx_attr_int(c, "include_last_offset", 0))
    offsets = onnx_slice_to(c, offsets, 0, onnx_const_i64(c, 1, (int64_t[]){0}),
                            onnx_sub(c, onnx_shape_of(c, offsets), onnx_const_i64(c, 1, (int64_t[]){1})));
  if (mode < 0 || mode > 2) onnx_fail(c, ERR_ARGUMENT, "mode is 0 (sum), 1 (mean) or 2 (max), not %" PRId64, mode);
  const Node *at = onnx_iota(c, onnx_scalar_of(c, onnx_shape_of(c, indices)), DT_I64);
  const Node *next = onnx_concat2(c, onnx_slice(c, offsets, 0, 1, INT64_MAX), onnx_shape_of(c, indices), 0);
  const Node *inside = onnx_op2(
      c, "logical_and", onnx_op2(c, "greater_equal", onnx_unsqueeze(c, at, 0), onnx_unsqueeze(c, offsets, 1), NULL),
      onnx_less(c, onnx_unsqueeze(c, at, 0), onnx_unsqueeze(c, next, 1)), NULL); /* (bags, indices) */
  const Node *rows = onnx_take(c, weight, indices, 0);
  const Node *count = onnx_reduce1(c, "sum", onnx_cast_to(c, inside, dt), 1, true);
  if (mode == 2) {
    const Node *each =
        onnx_where(c, onnx_unsqueeze(c, inside, 2), onnx_unsqueeze(c, rows, 0), onnx_scalar(c, dt, -INFINITY));
    return onnx_where(c, onnx_op2(c, "greater", count, onnx_scalar(c, dt, 0), NULL),
                      onnx_reduce1(c, "max", each, 1, false), onnx_scalar(c, dt, 0));
  }
  const Node *sum = onnx_matmul(c, onnx_cast_to(c, inside, dt), rows);
  return mode == 0 ? sum : onnx_div(c, sum, onnx_max2(c, count, onnx_scalar(c, dt, 1)));
}

static const Node *aten_reshape(Conversion *c)
{
  return onnx_reshape_to(c, onnx_in(c, 0), onnx_cast_to(c, onnx_in(c, 1), DT_I64), false);
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
  onnx_fail(c, ERR_UNSUPPORTED,
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
