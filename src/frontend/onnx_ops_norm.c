/* onnx_ops_norm.c: normalisations and dropout.
 *
 * Comes in: data with its channels at axis 1, or normalised over trailing axes.  Goes
 * out: nn.* normalisations where one fits, else means and squares spelt out. */
#include "frontend/onnx_import.h"

/* A per-channel vector along axis 1. */
static const Node *along_channels(Conversion *c, const Node *v, int rank) { return kit_unsqueeze_to(c, v, 1, rank); }

static const Node *rsqrt_of(Conversion *c, const Node *var, double epsilon)
{
  return kit_div(c, kit_scalar_like(c, var, 1), kit_sqrt(c, kit_add(c, var, kit_scalar_like(c, var, epsilon))));
}

/* Mean and mean square distance over axes, kept as extents of 1. */
static void moments(Conversion *c, const Node *x, int n, const int64_t *axes, const Node **mean, const Node **var)
{
  *mean = kit_reduce(c, "mean", x, n, axes, true);
  const Node *d = kit_sub(c, x, *mean);
  *var = kit_reduce(c, "mean", kit_mul(c, d, d), n, axes, true);
}

static const Node *blend(Conversion *c, const Node *old, const Node *now, double keep)
{
  DType dt = kit_dtype_of(c, old);
  now = kit_cast_to(c, now, dt);
  return kit_add(c, kit_mul(c, old, kit_scalar(c, dt, keep)), kit_mul(c, now, kit_scalar(c, dt, 1 - keep)));
}

/* Statistics of this batch, and the running ones moved towards them. */
static const Node *batch_norm_training(Conversion *c, const Node *x, double epsilon)
{
  int rank = kit_rank_of(c, x);
  int n = 0;
  int64_t axes[MAX_RANK];
  for (int i = 0; i < rank; i++)
    if (i != 1) axes[n++] = i;
  const Node *mean, *var;
  const Node *scale = kit_cast_to(c, kit_in(c, 1), kit_dtype_of(c, x));
  const Node *bias = kit_cast_to(c, kit_in(c, 2), kit_dtype_of(c, x));
  moments(c, x, n, axes, &mean, &var);
  const Node *flat_mean = kit_vector_of(c, mean);
  const Node *flat_var = kit_vector_of(c, var);
  double keep = onnx_attr_float(c, "momentum", (double)0.9f);
  c->out[1] = blend(c, kit_in(c, 3), flat_mean, keep);
  c->out[2] = blend(c, kit_in(c, 4), flat_var, keep);
  c->out[3] = flat_mean;
  c->out[4] = flat_var;
  const Node *y = kit_mul(c, kit_sub(c, x, mean), rsqrt_of(c, var, epsilon));
  return kit_add(c, kit_mul(c, y, along_channels(c, scale, rank)), along_channels(c, bias, rank));
}

static const Node *convert_batch_norm(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  double epsilon = onnx_attr_float(c, "epsilon", (double)1e-5f);
  if (kit_rank_of(c, x) < 2) kit_fail(c, ERR_SHAPE, "data of rank %d has no channels", kit_rank_of(c, x));
  if (c->version < 9 && !onnx_attr_int(c, "spatial", 1))
    kit_fail(c, ERR_UNSUPPORTED, "statistics per element (spatial = 0) are not supported");
  bool more = false;
  for (int i = 1; i < c->nout; i++) more = more || *c->out_name[i];
  if (c->version >= 14 ? onnx_attr_int(c, "training_mode", 0) : more && !onnx_attr_int(c, "is_test", 0))
    return batch_norm_training(c, x, epsilon);
  const Node *arg[5] = {x};
  for (int i = 1; i < 5; i++) arg[i] = kit_cast_to(c, kit_in(c, i), kit_dtype_of(c, x));
  return node_get(c->m, kit_opn(c, "nn.batch_norm", 5, arg, "axis:i,epsilon:f", 1, epsilon), 0);
}

static const Node *convert_instance_norm(Conversion *c)
{
  double epsilon = onnx_attr_float(c, "epsilon", (double)1e-5f);
  return kit_op3(c, "nn.instance_norm", kit_in(c, 0), kit_in(c, 1), kit_in(c, 2), "axis:i,epsilon:f", 1, epsilon);
}

/* Before opset 21 scale and bias have one element per group. */
static const Node *convert_group_norm(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *scale = kit_in(c, 1);
  const Node *bias = kit_in(c, 2);
  DType dt = kit_dtype_of(c, x);
  DType stash = onnx_attr_int(c, "stash_type", 1) == 1 && dt.bits < 32 ? DT_F32 : dt;
  int64_t groups = onnx_attr_int(c, "num_groups", 0);
  int64_t channels = kit_static_dim(c, x, 1);
  double epsilon = onnx_attr_float(c, "epsilon", (double)1e-5f);
  if (groups < 1 || channels % groups)
    kit_fail(c, ERR_ARGUMENT, "%" PRId64 " channels do not make %" PRId64 " groups", channels, groups);
  int rank = kit_rank_of(c, x);
  const Node *y = kit_reshape_to(
      c, kit_cast_to(c, x, stash),
      kit_concat2(c, kit_const_i64(c, 2, (int64_t[]){0, groups}), kit_const_i64(c, 1, (int64_t[]){-1}), 0), false);
  const Node *mean, *var;
  moments(c, y, 1, (int64_t[]){2}, &mean, &var);
  y = kit_mul(c, kit_sub(c, y, mean), rsqrt_of(c, var, epsilon));
  if (c->version < 21) {
    y = kit_cast_to(c, y, dt);
    y = kit_add(c, kit_mul(c, y, kit_unsqueeze_to(c, scale, 1, 3)), kit_unsqueeze_to(c, bias, 1, 3));
    return kit_op2(c, "reshape_like", y, x, NULL);
  }
  y = kit_cast_to(c, kit_op2(c, "reshape_like", y, x, NULL), dt);
  return kit_add(c, kit_mul(c, y, along_channels(c, scale, rank)), along_channels(c, bias, rank));
}

static int trailing_axes(Conversion *c, const Node *x, int64_t *axes)
{
  int rank = kit_rank_of(c, x);
  int first = kit_axis_of(c, onnx_attr_int(c, "axis", -1), rank);
  for (int i = first; i < rank; i++) axes[i - first] = i;
  return rank - first;
}

static DType stash_dtype(Conversion *c, DType dt)
{
  return onnx_attr_int(c, "stash_type", 1) == 1 && dtype_is_float(dt) && dt.bits < 32 ? DT_F32 : dt;
}

static const Node *convert_layer_norm(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *scale = kit_in(c, 1);
  const Node *bias = kit_opt(c, 2);
  const Node *mean, *var;
  double epsilon = onnx_attr_float(c, "epsilon", (double)1e-5f);
  DType dt = kit_dtype_of(c, x);
  DType stash = stash_dtype(c, dt);
  int64_t axes[MAX_RANK];
  int n = trailing_axes(c, x, axes);
  bool extra = c->nout > 1;
  if (n == 1 && !extra && bias && dtype_eq(dt, stash) && kit_rank_of(c, scale) == 1 && kit_rank_of(c, bias) == 1)
    return kit_op3(c, "nn.layer_norm", x, scale, bias, "axis:i,epsilon:f", (int)axes[0], epsilon);
  const Node *wide = kit_cast_to(c, x, stash);
  moments(c, wide, n, axes, &mean, &var);
  const Node *inv = rsqrt_of(c, var, epsilon);
  c->out[1] = mean;
  c->out[2] = inv;
  const Node *y = kit_mul(c, kit_cast_to(c, kit_mul(c, kit_sub(c, wide, mean), inv), dt), scale);
  return bias ? kit_add(c, y, bias) : y;
}

static const Node *convert_rms_norm(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *scale = kit_in(c, 1);
  double epsilon = onnx_attr_float(c, "epsilon", (double)1e-5f);
  DType dt = kit_dtype_of(c, x);
  DType stash = stash_dtype(c, dt);
  int64_t axes[MAX_RANK];
  int n = trailing_axes(c, x, axes);
  const Node *wide = kit_cast_to(c, x, stash);
  const Node *square = kit_reduce(c, "mean", kit_mul(c, wide, wide), n, axes, true);
  return kit_mul(c, kit_cast_to(c, kit_mul(c, wide, rsqrt_of(c, square, epsilon)), dt), kit_cast_to(c, scale, dt));
}

static const Node *convert_lrn(Conversion *c)
{
  return kit_op1(c, "nn.lrn", kit_in(c, 0), "size:i,axis:i,bias:f,alpha:f,beta:f", (int)onnx_attr_int(c, "size", 1), 1,
                 onnx_attr_float(c, "bias", 1), onnx_attr_float(c, "alpha", (double)1e-4f),
                 onnx_attr_float(c, "beta", 0.75));
}

/* A vector of zeros stays one. */
static const Node *convert_lp_norm(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *norm;
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", -1), kit_rank_of(c, x));
  int64_t p = onnx_attr_int(c, "p", 2);
  if (p == 1) norm = kit_reduce1(c, "sum", kit_op1(c, "abs", x, NULL), axis, true);
  else if (p == 2) norm = kit_sqrt(c, kit_reduce1(c, "sum", kit_mul(c, x, x), axis, true));
  else kit_fail(c, ERR_ARGUMENT, "p is 1 or 2, not %" PRId64, p);
  const Node *zero = kit_scalar_like(c, x, 0);
  const Node *one = kit_scalar_like(c, x, 1);
  const Node *empty = kit_op2(c, "equal", norm, zero, NULL);
  return kit_div(c, x, kit_where(c, empty, one, norm));
}

static const Node *convert_mean_variance(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *mean;
  int n = 0;
  const int64_t *axes = onnx_attr_ints(c, "axes", &n);
  const int64_t plain[] = {0, 2, 3};
  if (!axes) {
    axes = plain;
    n = 3;
  }
  int64_t v[MAX_RANK];
  if (n > kit_rank_of(c, x)) kit_fail(c, ERR_ARGUMENT, "%d axes are named, the input has %d", n, kit_rank_of(c, x));
  for (int i = 0; i < n; i++) v[i] = kit_axis_of(c, axes[i], kit_rank_of(c, x));
  mean = kit_reduce(c, "mean", x, n, v, true);
  const Node *square = kit_reduce(c, "mean", kit_mul(c, x, x), n, v, true);
  const Node *std = kit_sqrt(c, kit_sub(c, square, kit_mul(c, mean, mean)));
  return kit_div(c, kit_sub(c, x, mean), kit_add(c, std, kit_scalar_like(c, x, 1e-9)));
}

static const OnnxRow rows[] = {
  {"BatchNormalization", 1, convert_batch_norm},           {"GroupNormalization", 18, convert_group_norm},
  {"InstanceNormalization", 1, convert_instance_norm},     {"LRN", 1, convert_lrn},
  {"LayerNormalization", 1, convert_layer_norm},           {"LpNormalization", 1, convert_lp_norm},
  {"MeanVarianceNormalization", 1, convert_mean_variance}, {"RMSNormalization", 23, convert_rms_norm},
  {"SimplifiedLayerNormalization", 1, convert_rms_norm}, /* the name that ONNX Runtime gives it */
};
ONNX_TABLE(onnx_ops_norm, "", rows);
