/* tflite_ops_nn.c: convolutions, products, pools.
 *
 * Data is (N, H, W, C), the weight of a convolution (O, H, W, I), of a depthwise one (1, H, W, O).  Quantized: sums of
 * products of integers, the bias in units of the sums, one rescaling for each output channel.  Floats beside a
 * quantized weight (dynamic range): the data is made 8 bits at run time, with the scale that its largest number asks
 * for. */
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

/* ---- floats beside a quantized weight ---------------------------------------------------------------------- */

/* Data as 8 bits: one scale (and zero point) for each element of the first axis, shaped to broadcast. */
typedef struct Dynamic {
  const Node *data, *scale;
  const Node *zero; /* int32; NULL: symmetric */
} Dynamic;

static const Node *to_bytes(Conversion *c, const Node *x, double least)
{
  return kit_cast_to(c, kit_op1(c, "clip", tfl_rounded(c, x), "a_min:f,a_max:f", least, 127.0), DT_I8);
}

/* Zero counts as there; of the two zero points that the ends of the range ask for the one that is less wrong. */
static Dynamic asymmetric(Conversion *c, const Node *x, int n, const int64_t *axes)
{
  const Node *none = kit_scalar(c, DT_F32, 0);
  const Node *lo = kit_min2(c, none, kit_reduce(c, "min", x, n, axes, true));
  const Node *hi = kit_max2(c, none, kit_reduce(c, "max", x, n, axes, true));
  const Node *empty = kit_op2(c, "equal", lo, hi, NULL);
  const Node *one = kit_scalar(c, DT_F32, 1);
  const Node *scale = kit_where(c, empty, one, kit_div(c, kit_sub(c, hi, lo), kit_scalar(c, DT_F32, 255)));
  const Node *low = kit_div(c, lo, scale);
  const Node *high = kit_div(c, hi, scale);
  const Node *from_low = kit_sub(c, kit_scalar(c, DT_F32, -128), low);
  const Node *from_high = kit_sub(c, kit_scalar(c, DT_F32, 127), high);
  const Node *low_error = kit_add(c, kit_scalar(c, DT_F32, 128), kit_op1(c, "abs", low, NULL));
  const Node *high_error = kit_add(c, kit_scalar(c, DT_F32, 127), kit_op1(c, "abs", high, NULL));
  const Node *zero = kit_where(c, kit_less(c, low_error, high_error), from_low, from_high);
  zero = kit_op1(c, "clip", tfl_rounded(c, zero), "a_min:f,a_max:f", -128.0, 127.0);
  zero = kit_where(c, empty, none, zero);
  const Node *q = kit_add(c, tfl_rounded(c, kit_mul(c, x, kit_div(c, one, scale))), zero);
  return (Dynamic){to_bytes(c, q, -128), scale, kit_cast_to(c, zero, DT_I32)};
}

static Dynamic symmetric(Conversion *c, const Node *x, int n, const int64_t *axes)
{
  const Node *most = kit_reduce(c, "max", kit_op1(c, "abs", x, NULL), n, axes, true);
  const Node *empty = kit_op2(c, "equal", most, kit_scalar(c, DT_F32, 0), NULL);
  const Node *units = kit_scalar(c, DT_F32, 127);
  most = kit_where(c, empty, units, most);
  return (Dynamic){to_bytes(c, kit_mul(c, x, kit_div(c, units, most)), -127), kit_div(c, most, units), NULL};
}

/* Sums times the scales of both sides. */
static const Node *real_sums(Conversion *c, const Node *sums, const Dynamic *d)
{
  const TflQuant *q = tfl_quant(c, tfl_in(c, 1));
  int rank = kit_rank_of(c, sums);
  float *s = arena_array(c->im->arena, float, q->n);
  for (int i = 0; i < q->n; i++) s[i] = (float)q->scale[i];
  const Node *scale = kit_mul(c, d->scale, tfl_along(c, DT_F32, q->n, s, rank - 1, rank));
  return kit_mul(c, kit_cast_to(c, sums, DT_F32), scale);
}

/* Can it be done so?  The weight has no zero point. */
static bool is_dynamic(Conversion *c)
{
  const TflTensor *w = tfl_in(c, 1);
  if (!tfl_is_quantized(w) || !dtype_eq(kit_dtype_of(c, kit_in(c, 1)), DT_I8)) return false;
  const TflQuant *q = tfl_quant(c, w);
  for (int i = 0; i < q->n; i++)
    if (q->zero[i]) return false;
  return true;
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
  if (!integers && is_dynamic(c)) {
    check_axis(c, channel_axis);
    const int64_t axes[] = {1, 2, 3};
    /* one scale of the weight: symmetric; one for each channel: with a zero point */
    bool one_scale = tfl_quant(c, tw)->n == 1 && channel_axis == 0;
    Dynamic d = one_scale ? symmetric(c, x, 3, axes) : asymmetric(c, x, 3, axes);
    const Node *y;
    if (d.zero && !expr_is_int(kit_dim_of(c, x, 0), 1)) { /* of each sample, where qnn has one of all */
      x = kit_sub(c, kit_cast_to(c, d.data, DT_I32), d.zero);
      y = kit_op2(c, "nn.conv2d", x, kit_cast_to(c, w, DT_I32), spec, 2, win->stride, 4, win->pads, 2, win->dilation,
                  groups, channels, 2, win->kernel, "NHWC", kernel_layout, DT_I32);
    } else {
      const Node *one = kit_scalar(c, DT_F32, 1);
      const Node *none = kit_scalar(c, DT_I32, 0);
      const Node *arg[] = {d.data, w, d.zero ? kit_scalar_of(c, d.zero) : none, none, one, one};
      y = kit_opn(c, "qnn.conv2d", 6, arg, spec, 2, win->stride, 4, win->pads, 2, win->dilation, groups, channels, 2,
                  win->kernel, "NHWC", kernel_layout, DT_I32);
    }
    y = real_sums(c, y, &d);
    return tfl_activation(c, bias ? kit_add(c, y, bias) : y, activation);
  }
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
  if (!tfl_is_quantized(tx) && is_dynamic(c)) {
    check_axis(c, 0);
    Dynamic d = tfl_bool(c, 3) ? asymmetric(c, rows, 1, (int64_t[]){1}) : symmetric(c, rows, 1, (int64_t[]){1});
    const Node *y = kit_op2(c, "nn.dense", d.data, w, "units:l,out_dtype:t", units, DT_I32);
    if (d.zero) {
      const Node *sums = kit_reduce1(c, "sum", kit_cast_to(c, w, DT_I32), 1, false);
      y = kit_sub(c, y, kit_mul(c, d.zero, kit_unsqueeze(c, sums, 0)));
    }
    y = real_sums(c, y, &d);
    return from_rows(c, tfl_activation(c, bias ? kit_add(c, y, bias) : y, tfl_byte(c, 0, 0)), x, units);
  }
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
  if (out[0] < 1 || out[1] < 1 || out[0] > 1 << 20 || out[1] > (1 << 24) / out[0])
    kit_fail(c, ERR_UNSUPPORTED, "padded windows, %" PRId64 " by %" PRId64 " of them, are not supported", out[0],
             out[1]);
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

/* ---- the square root of the mean of squares ------------------------------------------------------------------- */

const Node *tfl_convert_l2_pool(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Window w = pool_window(c, x);
  const Node *y = kit_sqrt(c, pool(c, "nn.avg_pool2d", kit_mul(c, x, x), &w, false));
  return tfl_activation(c, y, tfl_byte(c, 5, 0));
}

/* ---- transposed convolutions ------------------------------------------------------------------------------------ */

/* Along one axis: padding before and after, and elements that no window reaches, for the output's size that is said. */
static void transposed_pads(Conversion *c, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t *before,
                            int64_t *after, int64_t *more)
{
  if (kernel < 1 || stride < 1 || out < 1)
    kit_fail(c, ERR_ARGUMENT, "kernel %" PRId64 ", stride %" PRId64 " and output %" PRId64, kernel, stride, out);
  int64_t full = (in - 1) * stride + kernel;
  int64_t padding = tfl_byte(c, 0, 0);
  int64_t outputs = padding == 0 ? (out + stride - 1) / stride : (out - kernel) / stride + 1;
  int64_t total = padding == 0 ? (outputs - 1) * stride + kernel - out : 0;
  if (total < 0) total = 0;
  *before = total / 2;
  *after = full - out - *before;
  *more = 0;
  if (*after < 0) *more = -*after, *after = 0;
  if (*more >= stride || outputs != in)
    kit_fail(c, ERR_SHAPE, "an output of %" PRId64 " does not come of %" PRId64 " elements", out, in);
}

/* output shape, weight (O, H, W, I), data, bias */
const Node *tfl_convert_transpose_conv(Conversion *c)
{
  int n = 0;
  const Node *w = kit_in(c, 1);
  const Node *x = kit_in(c, 2);
  const Node *bias = kit_opt(c, 3);
  const TflTensor *tx = tfl_in(c, 2);
  const TflTensor *tw = tfl_in(c, 1);
  const int64_t *shape = kit_const_ints(c, kit_in(c, 0), &n);
  want_rank(c, x, 4, "data");
  want_rank(c, w, 4, "the weight");
  if (!shape || n != 4) kit_fail(c, ERR_UNSUPPORTED, "the output's shape must be known when the model is compiled");
  int64_t channels = kit_static_dim(c, w, 0);
  if (kit_static_dim(c, w, 3) != kit_static_dim(c, x, 3))
    kit_fail(c, ERR_SHAPE, "data has %" PRId64 " channels, the weight %" PRId64, kit_static_dim(c, x, 3),
             kit_static_dim(c, w, 3));
  int64_t kernel[2], stride[2] = {tfl_int(c, 2, 0), tfl_int(c, 1, 0)};
  int64_t pads[4], more[2];
  for (int i = 0; i < 2; i++) {
    kernel[i] = kit_static_dim(c, w, 1 + i);
    transposed_pads(c, kit_static_dim(c, x, 1 + i), shape[1 + i], kernel[i], stride[i], &pads[i], &pads[2 + i],
                    &more[i]);
  }
  bool integers = tfl_is_quantized(tx);
  bool wide = integers && (bias ? dtype_eq(kit_dtype_of(c, bias), DT_I64) : tx->dtype.bits == 16);
  DType sum = wide ? DT_I64 : integers ? DT_I32 : DT_F32;
  if (integers) {
    x = kit_cast_to(c, tfl_centred(c, x, tx), sum);
    w = kit_cast_to(c, tfl_centred(c, w, tw), sum);
  } else if (tfl_is_quantized(tw)) {
    w = tfl_real(c, w, tw);
  }
  if (bias) {
    int64_t dim[4] = {1, 1, 1, channels};
    bias = kit_reshape(c, kit_cast_to(c, bias, sum), 4, dim);
  }
  const Node *y = kit_op2(c, "nn.conv2d_transpose", kit_transpose(c, x, 4, (int[]){0, 3, 1, 2}),
                          kit_transpose(c, w, 4, (int[]){3, 0, 1, 2}),
                          "channels:l,kernel_size:I,strides:I,padding:I,output_padding:I,out_dtype:t", channels, 2,
                          kernel, 2, stride, 4, pads, 2, more, sum);
  y = kit_transpose(c, y, 4, (int[]){0, 2, 3, 1});
  if (bias) y = kit_add(c, y, bias);
  if (!integers) return tfl_activation(c, y, tfl_byte(c, 3, 0));
  const TflQuant *qw = tfl_quant(c, tw);
  double *f = arena_array(c->im->arena, double, qw->n);
  if (qw->n > 1 && qw->axis != 0) kit_fail(c, ERR_UNSUPPORTED, "scales along axis %d are not supported", qw->axis);
  for (int i = 0; i < qw->n; i++) {
    double product = tfl_scale(c, tx) * qw->scale[i];
    f[i] = (tx->dtype.code == DT_UINT ? (double)(float)product : product) / tfl_scale(c, tfl_out(c, 0));
  }
  return tfl_store(c, tfl_rescale(c, y, qw->n, f, 3), tfl_out(c, 0), tfl_byte(c, 3, 0));
}

/* ---- three dimensions --------------------------------------------------------------------------------------- */

/* data (N, D, H, W, C), weight (D, H, W, I, O) */
const Node *tfl_convert_conv_3d(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  const Node *bias = kit_opt(c, 2);
  want_rank(c, x, 5, "data");
  want_rank(c, w, 5, "the weight");
  int64_t kernel[3], stride[3] = {tfl_int(c, 1, 0), tfl_int(c, 3, 0), tfl_int(c, 2, 0)};
  int64_t dilation[3] = {tfl_int(c, 5, 1), tfl_int(c, 7, 1), tfl_int(c, 6, 1)};
  int64_t pads[6] = {0};
  for (int i = 0; i < 3; i++) {
    kernel[i] = kit_static_dim(c, w, i);
    if (kernel[i] < 1 || stride[i] < 1 || dilation[i] < 1) kit_fail(c, ERR_ARGUMENT, "the window must be positive");
  }
  if (tfl_byte(c, 0, 0) == 0) pad_same(c, x, 1, 3, kernel, stride, dilation, pads);
  const Node *y =
      kit_op2(c, "nn.conv3d", kit_transpose(c, x, 5, (int[]){0, 4, 1, 2, 3}),
              kit_transpose(c, w, 5, (int[]){4, 3, 0, 1, 2}), "strides:I,padding:I,dilation:I,channels:l,kernel_size:I",
              3, stride, 6, pads, 3, dilation, kit_static_dim(c, w, 4), 3, kernel);
  y = kit_transpose(c, y, 5, (int[]){0, 2, 3, 4, 1});
  return tfl_activation(c, bias ? kit_add(c, y, bias) : y, tfl_byte(c, 4, 0));
}

/* output shape, weight (D, H, W, O, I), data, bias */
const Node *tfl_convert_conv_3d_transpose(Conversion *c)
{
  int n = 0;
  const int64_t *shape = kit_const_ints(c, kit_in(c, 0), &n);
  const Node *w = kit_in(c, 1);
  const Node *x = kit_in(c, 2);
  const Node *bias = kit_opt(c, 3);
  want_rank(c, x, 5, "data");
  want_rank(c, w, 5, "the weight");
  if (!shape || n != 5) kit_fail(c, ERR_UNSUPPORTED, "the output's shape must be known when the model is compiled");
  int64_t kernel[3], stride[3] = {tfl_int(c, 1, 0), tfl_int(c, 3, 0), tfl_int(c, 2, 0)};
  int64_t pads[6], more[3];
  for (int i = 0; i < 3; i++) {
    kernel[i] = kit_static_dim(c, w, i);
    transposed_pads(c, kit_static_dim(c, x, 1 + i), shape[1 + i], kernel[i], stride[i], &pads[i], &pads[3 + i],
                    &more[i]);
  }
  const Node *y = kit_op2(c, "nn.conv3d_transpose", kit_transpose(c, x, 5, (int[]){0, 4, 1, 2, 3}),
                          kit_transpose(c, w, 5, (int[]){4, 3, 0, 1, 2}),
                          "channels:l,kernel_size:I,strides:I,padding:I,output_padding:I", kit_static_dim(c, w, 3), 3,
                          kernel, 3, stride, 6, pads, 3, more);
  y = kit_transpose(c, y, 5, (int[]){0, 2, 3, 4, 1});
  return tfl_activation(c, bias ? kit_add(c, y, bias) : y, tfl_byte(c, 4, 0));
}

/* ---- products of batches ------------------------------------------------------------------------------------ */

/* Sums in int32 of integers with their zero points taken off; of 16 bits in int64. */
static const Node *integer_product(Conversion *c, const Node *a, const Node *b, void *env)
{
  (void)env;
  DType t = kit_dtype_of(c, a);
  if (kit_rank_of(c, a) == 3)
    return kit_op2(c, "nn.batch_matmul", a, b, "out_dtype:t,transpose_a:i,transpose_b:i", t, 0, 0);
  return kit_op2(c, "nn.matmul", a, b, "out_dtype:t", t);
}

const Node *tfl_convert_batch_matmul(Conversion *c)
{
  const TflTensor *t[2] = {tfl_in(c, 0), tfl_in(c, 1)};
  const Node *side[2] = {kit_in(c, 0), kit_in(c, 1)};
  bool integers = tfl_is_quantized(t[0]);
  for (int i = 0; i < 2; i++) {
    if (kit_rank_of(c, side[i]) < 2)
      kit_fail(c, ERR_SHAPE, "operand %d has %d dimensions; 2 or more are wanted", i, kit_rank_of(c, side[i]));
    if (integers) {
      side[i] = tfl_centred(c, side[i], t[i]);
      if (t[0]->dtype.bits == 16) side[i] = kit_cast_to(c, side[i], DT_I64);
    } else if (tfl_is_quantized(t[i])) {
      side[i] = tfl_real(c, side[i], t[i]);
    }
    if (tfl_bool(c, i)) side[i] = kit_swap_last(c, side[i]);
  }
  if (!integers) return kit_matmul(c, side[0], side[1]);
  const Node *y = kit_matmul_by(c, side[0], side[1], integer_product, NULL);
  double factor = (double)((float)tfl_scale(c, t[0]) * (float)tfl_scale(c, t[1])) / tfl_scale(c, tfl_out(c, 0));
  return tfl_store(c, tfl_rescale1(c, y, factor), tfl_out(c, 0), TFL_NONE);
}

/* ---- resizing ----------------------------------------------------------------------------------------------- */

typedef struct Resize {
  int64_t in, out;
  bool corners, half;
} Resize;

static void read_resize(Conversion *c, const Node *x, int corners, Resize *r)
{
  int n = 0;
  const int64_t *size = kit_const_ints(c, kit_in(c, 1), &n);
  want_rank(c, x, 4, "data");
  if (!size || n != 2) kit_fail(c, ERR_UNSUPPORTED, "the size must be known when the model is compiled");
  for (int i = 0; i < 2; i++) {
    r[i] = (Resize){kit_static_dim(c, x, 1 + i), size[i], tfl_bool(c, corners), tfl_bool(c, corners + 1)};
    if (size[i] < 1 || r[i].in < 1 || size[i] > 1 << 20 || r[i].in > 1 << 20)
      kit_fail(c, ERR_ARGUMENT, "from %" PRId64 " to %" PRId64 " elements; from 1 to %d are supported", r[i].in,
               size[i], 1 << 20);
  }
}

static const Node *positions(Conversion *c, const Node *x, int axis, int64_t n, const int32_t *at)
{
  return kit_op2(c, "take", x, node_const_copy(c->m, DT_I32, 1, &n, at), "axis:i,mode:s", axis, "clip");
}

const Node *tfl_convert_resize_nearest(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Resize r[2];
  read_resize(c, x, 0, r);
  for (int i = 0; i < 2; i++) {
    int32_t *at = arena_array(c->im->arena, int32_t, r[i].out);
    float scale =
        r[i].corners && r[i].out > 1 ? (float)(r[i].in - 1) / (float)(r[i].out - 1) : (float)r[i].in / (float)r[i].out;
    for (int64_t k = 0; k < r[i].out; k++) {
      float place = ((float)k + (r[i].half ? 0.5f : 0)) * scale;
      int64_t v = (int64_t)(r[i].corners ? roundf(place) : floorf(place));
      if (v > r[i].in - 1) v = r[i].in - 1;
      at[k] = (int32_t)(v < 0 ? 0 : v);
    }
    x = positions(c, x, 1 + i, r[i].out, at);
  }
  return x;
}

/* Two neighbours of each place and how far it is from the first, in units of 2^-10 or as a float. */
typedef struct Between {
  int32_t *low, *high;
  int32_t *part;
  float *real;
} Between;

static Between between(Conversion *c, const Resize *r)
{
  Arena *a = c->im->arena;
  Between b = {arena_array(a, int32_t, r->out), arena_array(a, int32_t, r->out), arena_array(a, int32_t, r->out),
               arena_array(a, float, r->out)};
  int64_t unit = 1 << 10;
  int64_t step = (unit * r->in + r->out / 2) / r->out;
  float scale = (float)r->in / (float)r->out;
  if (r->corners && r->out > 1) {
    step = (unit * (r->in - 1) + (r->out - 1) / 2) / (r->out - 1);
    scale = (float)(r->in - 1) / (float)(r->out - 1);
  }
  for (int64_t k = 0; k < r->out; k++) {
    int64_t place = r->half ? k * step + step / 2 - unit / 2 : k * step;
    int64_t low = place / unit; /* towards zero */
    int64_t high = (place + unit - 1) / unit;
    b.low[k] = (int32_t)(low < 0 ? 0 : low);
    b.high[k] = (int32_t)(high > r->in - 1 ? r->in - 1 : high);
    b.part[k] = (int32_t)(place - unit * b.low[k]);
    b.real[k] = r->half ? ((float)k + 0.5f) * scale - 0.5f : (float)k * scale;
  }
  return b;
}

/* Float: neighbours by the float's own floor. */
static void real_neighbours(const Resize *r, Between *b)
{
  for (int64_t k = 0; k < r->out; k++) {
    float place = b->real[k];
    float low = floorf(place);
    b->low[k] = (int32_t)(low < 0 ? 0 : low);
    float high = ceilf(place);
    b->high[k] = (int32_t)(high > (float)(r->in - 1) ? (float)(r->in - 1) : high);
    b->real[k] = place - (float)b->low[k];
  }
}

static const Node *weights(Conversion *c, DType t, int64_t n, const void *v, int axis)
{
  int64_t shape[4] = {1, 1, 1, 1};
  shape[axis] = n;
  return node_const_copy(c->m, t, 4, shape, v);
}

/* A corner: elements of two axes by position, times their weights. */
static const Node *corner(Conversion *c, const Node *x, const Resize *r, const Between *b, int y_high, int x_high,
                          DType in)
{
  int high[2] = {y_high, x_high};
  bool fixed = dtype_is_int(in);
  const Node *w[2];
  for (int i = 0; i < 2; i++) {
    int64_t n = r[i].out;
    int32_t *part = arena_array(c->im->arena, int32_t, n);
    float *real = arena_array(c->im->arena, float, n);
    for (int64_t k = 0; k < n; k++) {
      part[k] = high[i] ? b[i].part[k] : (1 << 10) - b[i].part[k];
      real[k] = high[i] ? b[i].real[k] : 1 - b[i].real[k];
    }
    w[i] = kit_cast_to(c, weights(c, fixed ? DT_I32 : DT_F32, n, fixed ? (void *)part : (void *)real, 1 + i), in);
    x = positions(c, x, 1 + i, n, high[i] ? b[i].high : b[i].low);
  }
  return kit_mul(c, kit_mul(c, x, w[0]), w[1]);
}

/* Signed integers in fixed point, the rest in floats; the sum goes in the order of TFLite's. */
const Node *tfl_convert_resize_bilinear(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Resize r[2];
  Between b[2];
  DType t = kit_dtype_of(c, x);
  read_resize(c, x, 2, r);
  if (r[0].corners && r[0].half) kit_fail(c, ERR_ARGUMENT, "align_corners and half_pixel_centers exclude each other");
  bool fixed = dtype_is_int(t) && t.code == DT_INT;
  DType in = !fixed ? DT_F32 : t.bits == 8 ? DT_I32 : DT_I64;
  x = kit_cast_to(c, x, in);
  for (int i = 0; i < 2; i++) {
    b[i] = between(c, &r[i]);
    if (!fixed) real_neighbours(&r[i], &b[i]);
  }
  const Node *y = kit_add(c, corner(c, x, r, b, 0, 0, in), corner(c, x, r, b, 1, 0, in));
  y = kit_add(c, kit_add(c, y, corner(c, x, r, b, 0, 1, in)), corner(c, x, r, b, 1, 1, in));
  if (dtype_is_float(t)) return kit_cast_to(c, y, t);
  if (!fixed) /* uint8: halves up */
    return kit_cast_to(c, kit_op1(c, "floor", kit_add(c, y, kit_scalar(c, DT_F32, 0.5)), NULL), t);
  const Node *half = kit_scalar(c, in, 1 << 19);
  const Node *above = kit_op2(c, "greater", y, kit_scalar(c, in, 0), NULL);
  y = kit_where(c, above, kit_add(c, y, half), kit_sub(c, y, half));
  return kit_cast_to(c, kit_op2(c, "trunc_divide", y, kit_scalar(c, in, 1 << 20), NULL), t);
}
