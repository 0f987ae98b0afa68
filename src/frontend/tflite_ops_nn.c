/* tflite_ops_nn.c: convolutions, products, pools.
 *
 * Data is (N, H, W, C), the weight of a convolution (O, H, W, I), of a depthwise one (1, H, W, O).  Quantized: sums of
 * products of integers, the bias in units of the sums, one rescaling for each output channel.  Floats beside a quantized
 * weight (hybrid): the weight is made real. */
#include <math.h>

#include "frontend/tflite_ops.h"

/* ---- windows -------------------------------------------------------------------------------------- */

typedef struct Window {
  int64_t kernel[2], stride[2], dilation[2];
  int64_t pads[4]; /* before, then after */
} Window;

/* SAME: as many outputs as strides fit into the input, the odd element of padding at the end. */
static void pad_same(Conversion *c, const Node *x, int first, int n, const int64_t *kernel, const int64_t *stride,
                     const int64_t *dilation, int64_t *pads)
{
  for (int i = 0; i < n; i++) {
    int64_t span = (kernel[i] - 1) * dilation[i] + 1;
    int64_t total = span - 1;
    if (stride[i] != 1) {
      int64_t in = kit_static_dim(c, x, first + i);
      total = ((in + stride[i] - 1) / stride[i] - 1) * stride[i] + span - in;
    }
    if (total < 0) total = 0;
    pads[i] = total / 2;
    pads[n + i] = total - total / 2;
  }
}

static void finish_window(Conversion *c, const Node *x, Window *w)
{
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->kernel[i] > INT32_MAX / w->dilation[i])
      kit_fail(c, ERR_ARGUMENT, "kernel %" PRId64 ", stride %" PRId64 " and dilation %" PRId64 " must be positive",
               w->kernel[i], w->stride[i], w->dilation[i]);
  int64_t padding = tfl_byte(c, 0, 0);
  if (padding == 0) pad_same(c, x, 1, 2, w->kernel, w->stride, w->dilation, w->pads);
  else if (padding != 1) kit_fail(c, ERR_ARGUMENT, "padding %" PRId64 " is neither SAME nor VALID", padding);
}

static void want_rank(Conversion *c, const Node *n, int rank, const char *what)
{
  if (kit_rank_of(c, n) != rank)
    kit_fail(c, ERR_SHAPE, "%s has %d dimensions; %d are wanted", what, kit_rank_of(c, n), rank);
}

/* ---- quantized sums --------------------------------------------------------------------------------- */

/* Factors of the sums, one or one for each output channel.  TFLite works them out in double, but for one scale of
 * uint8 data and of products (and where it asks for it), where the product of scales is a float. */
static int factors(Conversion *c, bool in_float, const double **out)
{
  const TflQuant *x = tfl_quant_one(c, tfl_in(c, 0));
  const TflQuant *w = tfl_quant(c, tfl_in(c, 1));
  double so = tfl_scale(c, tfl_out(c, 0));
  double *f = arena_array(c->im->arena, double, w->n);
  for (int i = 0; i < w->n; i++) {
    double product = x->scale[0] * w->scale[i];
    f[i] = (in_float ? (double)(float)product : product) / so;
  }
  *out = f;
  return w->n;
}

static const Node *scale_node(Conversion *c, const TflQuant *q)
{
  float *s = arena_array(c->im->arena, float, q->n);
  for (int i = 0; i < q->n; i++) s[i] = (float)q->scale[i];
  return node_const_copy(c->m, DT_F32, q->n == 1 ? 0 : 1, (int64_t[]){q->n}, s);
}

static const Node *zero_node(Conversion *c, const TflQuant *q)
{
  int32_t *z = arena_array(c->im->arena, int32_t, q->n);
  bool same = true;
  for (int i = 0; i < q->n; i++) z[i] = (int32_t)q->zero[i], same &= q->zero[i] == q->zero[0];
  return node_const_copy(c->m, DT_I32, same ? 0 : 1, (int64_t[]){q->n}, z);
}

/* Data, weight, zero points and scales of both, as qnn's products take them. */
static void operands(Conversion *c, const Node *x, const Node *w, const Node **arg)
{
  const TflQuant *qx = tfl_quant_one(c, tfl_in(c, 0));
  const TflQuant *qw = tfl_quant(c, tfl_in(c, 1));
  arg[0] = x;
  arg[1] = w;
  arg[2] = zero_node(c, qx);
  arg[3] = zero_node(c, qw);
  arg[4] = scale_node(c, qx);
  arg[5] = scale_node(c, qw);
}

/* Sums in int32 (or int64) with their bias, to the output's stored form; once: rounded once, halves up. */
static const Node *finish_sums(Conversion *c, const Node *sums, const Node *bias, bool in_float, bool once,
                               int64_t activation)
{
  const double *f;
  int n = factors(c, in_float, &f);
  int last = kit_rank_of(c, sums) - 1;
  if (bias) {
    if (dtype_eq(kit_dtype_of(c, bias), DT_I64)) sums = kit_cast_to(c, sums, DT_I64);
    sums = kit_add(c, sums, kit_cast_to(c, bias, kit_dtype_of(c, sums)));
  }
  sums = once ? tfl_rescale_once(c, sums, n, f, last) : tfl_rescale(c, sums, n, f, last);
  return tfl_store(c, sums, tfl_out(c, 0), activation);
}

/* Along which axis of the weight its scales may run. */
static void check_axis(Conversion *c, int axis)
{
  const TflTensor *w = tfl_in(c, 1);
  const TflQuant *q = tfl_quant(c, w);
  if (q->n > 1 && q->axis != axis)
    kit_fail(c, ERR_UNSUPPORTED, "the scales of '%s' run along axis %d; axis %d is that of the output's channels",
             w->name, q->axis, axis);
}

/* The bias, if there is one, of that many channels: (1, …, 1, channels). */
static const Node *bias_of(Conversion *c, int64_t channels, int rank)
{
  const Node *bias = kit_opt(c, 2);
  if (!bias) return NULL;
  int64_t n = 0;
  if (kit_rank_of(c, bias) < 1 || !kit_is_static_dim(kit_dim_of(c, bias, -1), &n) || n != channels)
    kit_fail(c, ERR_SHAPE, "the bias is %s; %" PRId64 " channels are wanted", type_text(scratch(c->ctx), bias->type),
             channels);
  int64_t shape[MAX_RANK];
  for (int d = 0; d < rank; d++) shape[d] = d == rank - 1 ? channels : 1;
  return rank == 2 ? bias : kit_reshape(c, bias, rank, shape);
}

/* ---- convolutions -------------------------------------------------------------------------------------- */

static const Node *conv_over(Conversion *c, const Window *win, int64_t groups, int64_t channels,
                             const char *kernel_layout, int channel_axis, int64_t activation)
{
  const TflTensor *tx = tfl_in(c, 0);
  const TflTensor *tw = tfl_in(c, 1);
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  const Node *bias = bias_of(c, channels, 4);
  const char *spec = "strides:I,padding:I,dilation:I,groups:l,channels:l,kernel_size:I,data_layout:s,kernel_layout:s,"
                     "out_dtype:t";
  bool integers = tfl_is_quantized(tx);
  if (!integers) {
    if (tfl_is_quantized(tw)) w = tfl_real(c, w, tw);
    const Node *y = kit_op2(c, "nn.conv2d", x, w, spec, 2, win->stride, 4, win->pads, 2, win->dilation, groups,
                            channels, 2, win->kernel, "NHWC", kernel_layout, DT_F32);
    return tfl_activation(c, bias ? kit_add(c, y, bias) : y, activation);
  }
  check_axis(c, channel_axis);
  const Node *arg[6];
  operands(c, x, w, arg);
  bool wide = tx->dtype.bits == 16;
  const Node *y = kit_opn(c, "qnn.conv2d", 6, arg, spec, 2, win->stride, 4, win->pads, 2, win->dilation, groups,
                          channels, 2, win->kernel, "NHWC", kernel_layout, DT_I32);
  if (wide && bias && dtype_eq(kit_dtype_of(c, bias), DT_I64)) {
    /* sums of 16-bit data may leave int32 */
    y = kit_op2(c, "nn.conv2d", kit_cast_to(c, x, DT_I64), kit_cast_to(c, w, DT_I64), spec, 2, win->stride, 4,
                win->pads, 2, win->dilation, groups, channels, 2, win->kernel, "NHWC", kernel_layout, DT_I64);
  }
  return finish_sums(c, y, bias, tx->dtype.code == DT_UINT, false, activation);
}

const Node *tfl_convert_conv(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  want_rank(c, x, 4, "data");
  want_rank(c, w, 4, "the weight");
  Window win = {.kernel = {kit_static_dim(c, w, 1), kit_static_dim(c, w, 2)},
                .stride = {tfl_int(c, 2, 0), tfl_int(c, 1, 0)},
                .dilation = {tfl_int(c, 5, 1), tfl_int(c, 4, 1)}};
  finish_window(c, x, &win);
  int64_t in = kit_static_dim(c, x, 3);
  int64_t group = kit_static_dim(c, w, 3);
  int64_t channels = kit_static_dim(c, w, 0);
  if (group < 1 || in % group || channels % (in / group))
    kit_fail(c, ERR_SHAPE, "data has %" PRId64 " channels, the weight %" PRId64 " of %" PRId64, in, channels, group);
  return conv_over(c, &win, in / group, channels, "OHWI", 0, tfl_byte(c, 3, 0));
}

const Node *tfl_convert_depthwise_conv(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  want_rank(c, x, 4, "data");
  want_rank(c, w, 4, "the weight");
  Window win = {.kernel = {kit_static_dim(c, w, 1), kit_static_dim(c, w, 2)},
                .stride = {tfl_int(c, 2, 0), tfl_int(c, 1, 0)},
                .dilation = {tfl_int(c, 6, 1), tfl_int(c, 5, 1)}};
  finish_window(c, x, &win);
  int64_t in = kit_static_dim(c, x, 3);
  int64_t channels = kit_static_dim(c, w, 3);
  if (in < 1 || channels % in || kit_static_dim(c, w, 0) != 1)
    kit_fail(c, ERR_SHAPE, "data has %" PRId64 " channels, the weight is %s", in, type_text(scratch(c->ctx), w->type));
  return conv_over(c, &win, in, channels, "IHWO", 3, tfl_byte(c, 4, 0));
}

/* ---- products ---------------------------------------------------------------------------------------------- */

/* Data in rows as long as those of the weight. */
static const Node *as_rows(Conversion *c, const Node *x, int64_t k)
{
  if (k < 1) kit_fail(c, ERR_SHAPE, "the weight has rows of %" PRId64, k);
  return kit_reshape(c, x, 2, (int64_t[]){-1, k});
}

static const Node *from_rows(Conversion *c, const Node *y, const Node *x, int64_t units)
{
  if (!tfl_bool(c, 2)) return y;
  int rank = kit_rank_of(c, x);
  const Node *head = kit_shape_part(c, x, 0, rank - 1);
  return kit_reshape_to(c, y, kit_concat2(c, head, kit_const_i64(c, 1, &units), 0), true);
}

const Node *tfl_convert_fully_connected(Conversion *c)
{
  const TflTensor *tx = tfl_in(c, 0);
  const TflTensor *tw = tfl_in(c, 1);
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  want_rank(c, w, 2, "the weight");
  if (tfl_byte(c, 1, 0)) kit_fail(c, ERR_UNSUPPORTED, "weights in shuffled blocks are not supported");
  int64_t units = kit_static_dim(c, w, 0);
  const Node *bias = bias_of(c, units, 2);
  const Node *rows = as_rows(c, x, kit_static_dim(c, w, 1));
  if (!tfl_is_quantized(tx)) {
    if (tfl_is_quantized(tw)) w = tfl_real(c, w, tw);
    const Node *y = kit_op2(c, "nn.dense", rows, w, "units:l", units);
    return from_rows(c, tfl_activation(c, bias ? kit_add(c, y, bias) : y, tfl_byte(c, 0, 0)), x, units);
  }
  check_axis(c, 0);
  const Node *arg[6];
  operands(c, rows, w, arg);
  const Node *y = kit_opn(c, "qnn.dense", 6, arg, "units:l", units);
  if (tx->dtype.bits == 16 && bias && dtype_eq(kit_dtype_of(c, bias), DT_I64))
    y = kit_op2(c, "nn.dense", kit_cast_to(c, rows, DT_I64), kit_cast_to(c, w, DT_I64), "units:l,out_dtype:t", units,
                DT_I64);
  y = finish_sums(c, y, bias, tfl_quant(c, tw)->n == 1, true, tfl_byte(c, 0, 0));
  return from_rows(c, y, x, units);
}

/* ---- pools --------------------------------------------------------------------------------------------------- */

static Window pool_window(Conversion *c, const Node *x)
{
  want_rank(c, x, 4, "data");
  Window w = {
    .kernel = {tfl_int(c, 4, 0), tfl_int(c, 3, 0)}, .stride = {tfl_int(c, 2, 0), tfl_int(c, 1, 0)}, .dilation = {1, 1}};
  finish_window(c, x, &w);
  return w;
}

static const Node *pool(Conversion *c, const char *op, const Node *x, const Window *w, bool whole)
{
  if (!strcmp(op, "nn.max_pool2d"))
    return kit_op1(c, op, x, "pool_size:I,strides:I,padding:I,layout:s", 2, w->kernel, 2, w->stride, 4, w->pads,
                   "NHWC");
  return kit_op1(c, op, x, "pool_size:I,strides:I,padding:I,layout:s,count_include_pad:i", 2, w->kernel, 2, w->stride,
                 4, w->pads, "NHWC", (int)whole);
}

static const Node *limited(Conversion *c, const Node *x, const TflTensor *out, int64_t activation)
{
  double lo, hi;
  tfl_limits(c, out, activation, &lo, &hi);
  if (lo <= (double)dtype_imin(out->dtype) && hi >= (double)dtype_imax(out->dtype)) return x;
  return kit_op1(c, "clip", x, "a_min:f,a_max:f", lo, hi);
}

const Node *tfl_convert_max_pool(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Window w = pool_window(c, x);
  const Node *y = pool(c, "nn.max_pool2d", x, &w, false);
  if (!tfl_is_quantized(tfl_in(c, 0))) return tfl_activation(c, y, tfl_byte(c, 5, 0));
  return limited(c, y, tfl_out(c, 0), tfl_byte(c, 5, 0));
}

/* Elements of data in each window: a scalar, or (1, H, W, 1). */
static const Node *window_counts(Conversion *c, const Node *x, const Window *w)
{
  int64_t whole = w->kernel[0] * w->kernel[1];
  if (!(w->pads[0] || w->pads[1] || w->pads[2] || w->pads[3])) return kit_scalar(c, DT_I32, (double)whole);
  int64_t size[2];
  int64_t out[2];
  for (int i = 0; i < 2; i++) {
    size[i] = kit_static_dim(c, x, 1 + i);
    out[i] = (size[i] + w->pads[i] + w->pads[2 + i] - w->kernel[i]) / w->stride[i] + 1;
  }
  int32_t *n = arena_array(c->im->arena, int32_t, out[0] * out[1]);
  for (int64_t y = 0; y < out[0]; y++)
    for (int64_t k = 0; k < out[1]; k++) {
      int64_t extent[2];
      int64_t at[2] = {y, k};
      for (int i = 0; i < 2; i++) {
        int64_t begin = at[i] * w->stride[i] - w->pads[i];
        int64_t end = begin + w->kernel[i];
        extent[i] = (end < size[i] ? end : size[i]) - (begin > 0 ? begin : 0);
      }
      n[y * out[1] + k] = (int32_t)(extent[0] * extent[1]);
    }
  return node_const_copy(c->m, DT_I32, 4, (int64_t[]){1, out[0], out[1], 1}, n);
}

/* The sum over n, halves away from zero. */
static const Node *rounded_mean(Conversion *c, const Node *sum, const Node *n)
{
  const Node *half = kit_op2(c, "trunc_divide", n, kit_scalar(c, DT_I32, 2), NULL);
  const Node *above = kit_op2(c, "greater", sum, kit_scalar(c, DT_I32, 0), NULL);
  return kit_op2(c, "trunc_divide", kit_where(c, above, kit_add(c, sum, half), kit_sub(c, sum, half)), n, NULL);
}

const Node *tfl_convert_average_pool(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Window w = pool_window(c, x);
  int64_t activation = tfl_byte(c, 5, 0);
  if (!tfl_is_quantized(tfl_in(c, 0))) return tfl_activation(c, pool(c, "nn.avg_pool2d", x, &w, false), activation);
  /* the mean of whole windows of n times the elements is their sum, exactly */
  int64_t whole = w.kernel[0] * w.kernel[1];
  int64_t most = (int64_t)1 << (31 - tfl_in(c, 0)->dtype.bits);
  if (whole > INT32_MAX || whole * whole > most)
    kit_fail(c, ERR_UNSUPPORTED, "a window of %" PRId64 " elements of %s is not supported", whole,
             tfl_type_name(tfl_in(c, 0)->type));
  const Node *wide = kit_mul(c, kit_cast_to(c, x, DT_I32), kit_scalar(c, DT_I32, (double)whole));
  const Node *sum = pool(c, "nn.avg_pool2d", wide, &w, true);
  const Node *y = rounded_mean(c, sum, window_counts(c, x, &w));
  double lo, hi;
  tfl_limits(c, tfl_out(c, 0), activation, &lo, &hi);
  y = kit_op1(c, "clip", y, "a_min:f,a_max:f", lo, hi);
  return kit_cast_to(c, y, tfl_out(c, 0)->dtype);
}
