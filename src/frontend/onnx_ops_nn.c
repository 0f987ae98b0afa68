/* onnx_ops_nn.c: convolutions, pooling, matrix products.
 *
 * Comes in: data as (N, C, spatial…) with 1 to 3 spatial axes.  Goes out: nn.* calls in
 * the same layout.  `auto_pad` is worked out here. */
#include <math.h>

#include "frontend/onnx_import.h"

enum { MAX_SPATIAL = 3 };

/* The window of a convolution or pooling. */
typedef struct Window {
  int n;
  int64_t kernel[MAX_SPATIAL], strides[MAX_SPATIAL], dilation[MAX_SPATIAL];
  int64_t pads[2 * MAX_SPATIAL]; /* befores, then afters */
} Window;

static void read_spatial(Conversion *c, const char *name, int n, int64_t *out, int64_t def)
{
  int k = 0;
  const int64_t *v = onnx_attr_ints(c, name, &k);
  if (v && k != n) onnx_fail(c, ERR_ARGUMENT, "%s has %d numbers, %d are wanted", name, k, n);
  for (int i = 0; i < n; i++) out[i] = v ? v[i] : def;
}

/* SAME: as many outputs as strides fit into the input; the odd one at the end or the beginning. */
static void same_pads(Conversion *c, const Node *x, Window *w, bool upper)
{
  for (int i = 0; i < w->n; i++) {
    int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t total = span - 1;
    if (w->strides[i] != 1) {
      int64_t in = onnx_static_dim(c, x, 2 + i);
      int64_t out = (in + w->strides[i] - 1) / w->strides[i];
      total = (out - 1) * w->strides[i] + span - in;
    }
    if (total < 0) total = 0;
    w->pads[i] = upper ? total / 2 : total - total / 2;
    w->pads[w->n + i] = total - w->pads[i];
  }
}

static void check_window(Conversion *c, const Window *w)
{
  for (int i = 0; i < w->n; i++) {
    if (w->kernel[i] < 1 || w->strides[i] < 1 || w->dilation[i] < 1)
      onnx_fail(c, ERR_ARGUMENT, "kernel %" PRId64 ", stride %" PRId64 " and dilation %" PRId64 " must be positive",
                w->kernel[i], w->strides[i], w->dilation[i]);
    if (w->kernel[i] > INT32_MAX || w->strides[i] > INT32_MAX || w->dilation[i] > INT32_MAX)
      onnx_fail(c, ERR_ARGUMENT, "the window is too large");
  }
  for (int i = 0; i < 2 * w->n; i++)
    if (w->pads[i] > INT32_MAX || w->pads[i] < -INT32_MAX)
      onnx_fail(c, ERR_ARGUMENT, "a padding of %" PRId64 " is too large", w->pads[i]);
}

static Window read_window(Conversion *c, const Node *x, const Node *weight)
{
  Window w = {.n = onnx_rank_of(c, x) - 2};
  if (w.n < 1 || w.n > MAX_SPATIAL)
    onnx_fail(c, ERR_UNSUPPORTED, "data of rank %d is not supported; 3 to 5 are", w.n + 2);
  if (weight && onnx_rank_of(c, weight) != w.n + 2)
    onnx_fail(c, ERR_SHAPE, "weight has rank %d, data %d", onnx_rank_of(c, weight), w.n + 2);
  read_spatial(c, "strides", w.n, w.strides, 1);
  read_spatial(c, "dilations", w.n, w.dilation, 1);
  read_spatial(c, "pads", 2 * w.n, w.pads, 0);
  if (onnx_attr(c, "kernel_shape")) read_spatial(c, "kernel_shape", w.n, w.kernel, 1);
  else if (!weight) onnx_fail(c, ERR_ARGUMENT, "attribute 'kernel_shape' is missing");
  for (int i = 0; weight && i < w.n; i++) {
    int64_t has = onnx_static_dim(c, weight, 2 + i);
    if (onnx_attr(c, "kernel_shape") && w.kernel[i] != has)
      onnx_fail(c, ERR_SHAPE, "kernel_shape has %" PRId64 " for axis %d, the weight %" PRId64, w.kernel[i], i, has);
    w.kernel[i] = has;
  }
  check_window(c, &w);
  const char *how = onnx_attr_str(c, "auto_pad", "NOTSET");
  if (!strcmp(how, "SAME_UPPER") || !strcmp(how, "SAME_LOWER")) same_pads(c, x, &w, how[5] == 'U');
  else if (!strcmp(how, "VALID")) memset(w.pads, 0, sizeof w.pads);
  else if (*how && strcmp(how, "NOTSET")) onnx_fail(c, ERR_ARGUMENT, "auto_pad '%s' is not known", how);
  return w;
}

static const char *by_rank(Conversion *c, const char *stem, int n)
{
  return arena_printf(c->im->arena, "%s%dd", stem, n);
}

/* ---- convolution ------------------------------------------------------------------------------ */

static const Node *conv_call(Conversion *c, const Node *x, const Node *w, DType out)
{
  Window win = read_window(c, x, w);
  int64_t group = onnx_attr_int(c, "group", 1);
  if (group < 1) onnx_fail(c, ERR_ARGUMENT, "group is %" PRId64, group);
  for (int i = 0; i < 2 * win.n; i++)
    if (win.pads[i] < 0) onnx_fail(c, ERR_UNSUPPORTED, "a padding of %" PRId64 " is not supported", win.pads[i]);
  return onnx_op2(c, by_rank(c, "nn.conv", win.n), x, w,
                  "strides:I,padding:I,dilation:I,groups:l,channels:l,kernel_size:I,out_dtype:t", win.n, win.strides,
                  2 * win.n, win.pads, win.n, win.dilation, group, onnx_static_dim(c, w, 0), win.n, win.kernel, out);
}

static const Node *bias_add(Conversion *c, const Node *x, const Node *bias)
{
  return bias ? onnx_op2(c, "nn.bias_add", x, bias, "axis:i", 1) : x;
}

static const Node *convert_conv(Conversion *c)
{
  return bias_add(c, conv_call(c, onnx_in(c, 0), onnx_in(c, 1), DT_NONE), onnx_opt(c, 2));
}

/* output_shape says the size; the padding follows from it. */
static void transpose_pads(Conversion *c, const Node *x, Window *w, int64_t *output_padding)
{
  int n = 0;
  const int64_t *shape = onnx_attr_ints(c, "output_shape", &n);
  const char *how = onnx_attr_str(c, "auto_pad", "NOTSET");
  bool same = !strncmp(how, "SAME", 4);
  if (!shape && !same) return;
  if (shape && n != w->n && n != w->n + 2)
    onnx_fail(c, ERR_ARGUMENT, "output_shape has %d numbers, %d are wanted", n, w->n);
  for (int i = 0; i < w->n; i++) {
    int64_t in = onnx_static_dim(c, x, 2 + i);
    int64_t out = shape ? shape[n - w->n + i] : in * w->strides[i];
    int64_t total = w->strides[i] * (in - 1) + output_padding[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - out;
    if (total < 0) { /* more output than the window reaches: zeros at the end */
      output_padding[i] -= total;
      total = 0;
    }
    bool upper = !strcmp(how, "SAME_UPPER");
    w->pads[i] = upper ? total / 2 : total - total / 2;
    w->pads[w->n + i] = total - w->pads[i];
  }
}

static const Node *convert_conv_transpose(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *w = onnx_in(c, 1);
  Window win = read_window(c, x, w);
  int64_t group = onnx_attr_int(c, "group", 1);
  int64_t more[MAX_SPATIAL];
  read_spatial(c, "output_padding", win.n, more, 0);
  transpose_pads(c, x, &win, more);
  int64_t channels = 0;
  if (group < 1 || !int_mul(onnx_static_dim(c, w, 1), group, &channels))
    onnx_fail(c, ERR_ARGUMENT, "group is %" PRId64, group);
  static const char *const layouts[] = {"IOW", "IOHW", "IODHW"};
  const Node *r =
      onnx_op2(c, arena_printf(c->im->arena, "nn.conv%dd_transpose", win.n), x, w,
               "channels:l,kernel_size:I,strides:I,padding:I,output_padding:I,dilation:I,groups:l,kernel_layout:s",
               channels, win.n, win.kernel, win.n, win.strides, 2 * win.n, win.pads, win.n, more, win.n, win.dilation,
               group, layouts[win.n - 1]);
  return bias_add(c, r, onnx_opt(c, 2));
}

static const Node *zero_point(Conversion *c, int i, DType dt)
{
  return onnx_opt(c, i) ? onnx_cast_to(c, onnx_in(c, i), dt) : NULL;
}

/* Integers with their zero points taken off, multiplied in int32. */
static const Node *convert_conv_integer(Conversion *c)
{
  const Node *x = onnx_cast_to(c, onnx_in(c, 0), DT_I32);
  const Node *w = onnx_cast_to(c, onnx_in(c, 1), DT_I32);
  const Node *xz = zero_point(c, 2, DT_I32);
  const Node *wz = zero_point(c, 3, DT_I32);
  if (xz) x = onnx_sub(c, x, onnx_scalar_of(c, xz));
  if (wz)
    w = onnx_sub(c, w,
                 onnx_rank_of(c, wz) == 1 && !expr_is_int(onnx_dim_of(c, wz, 0), 1)
                     ? onnx_unsqueeze_to(c, wz, 0, onnx_rank_of(c, w))
                     : onnx_scalar_of(c, wz));
  return conv_call(c, x, w, DT_I32);
}

static const Node *convert_deform_conv(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *w = onnx_in(c, 1);
  const Node *offset = onnx_in(c, 2);
  const Node *mask = onnx_opt(c, 4);
  Window win = read_window(c, x, w);
  if (win.n != 2) onnx_fail(c, ERR_UNSUPPORTED, "only two spatial axes are supported");
  int64_t group = onnx_attr_int(c, "group", 1);
  int64_t parts = onnx_attr_int(c, "offset_group", 1);
  const Node *arg[4] = {x, offset, w, mask};
  const Node *r =
      onnx_opn(c, "nn.deformable_conv2d", mask ? 4 : 3, arg,
               "strides:I,padding:I,dilation:I,deformable_groups:l,groups:l,channels:l,kernel_size:I", 2, win.strides,
               4, win.pads, 2, win.dilation, parts, group, onnx_static_dim(c, w, 0), 2, win.kernel);
  return bias_add(c, r, onnx_opt(c, 3));
}

/* A window that has seen only the past: the state is what it saw last. */
static const Node *convert_causal_conv(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *w = onnx_in(c, 1);
  const Node *bias = onnx_opt(c, 2);
  const Node *past = onnx_opt(c, 3);
  int64_t k = onnx_static_dim(c, w, 2);
  int64_t channels = onnx_static_dim(c, w, 0);
  const Node *all =
      past ? onnx_concat2(c, past, x, 2) : onnx_pad(c, x, 3, (int64_t[]){0, 0, k - 1}, (int64_t[]){0, 0, 0}, 0);
  const Node *y = onnx_op2(c, "nn.conv1d", all, w, "strides:I,padding:I,groups:l,channels:l,kernel_size:I", 1,
                           (int64_t[]){1}, 2, (int64_t[]){0, 0}, channels, channels, 1, (int64_t[]){k});
  y = bias_add(c, y, bias);
  const char *act = onnx_attr_str(c, "activation", "none");
  if (!strcmp(act, "silu") || !strcmp(act, "swish")) y = onnx_mul(c, y, onnx_op1(c, "sigmoid", y, NULL));
  else if (strcmp(act, "none")) onnx_fail(c, ERR_UNSUPPORTED, "activation '%s' is not supported", act);
  if (k == 1) {
    c->out[1] = onnx_slice(c, all, 2, 0, 0);
  } else {
    const Node *length = onnx_shape_part(c, all, 2, 3);
    c->out[1] = onnx_slice_to(c, all, 2, onnx_sub(c, length, onnx_const_i64(c, 1, (int64_t[]){k - 1})), length);
  }
  return y;
}

/* ---- pooling ------------------------------------------------------------------------------------- */

/* Outputs along one axis. */
static int64_t window_count(Conversion *c, const Window *w, int i, int64_t in, bool ceil)
{
  int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
  int64_t room = in + w->pads[i] + w->pads[w->n + i] - span;
  if (room < 0)
    onnx_fail(c, ERR_SHAPE, "a window of %" PRId64 " is larger than the padded extent %" PRId64, span, room + span);
  int64_t n = room / w->strides[i] + 1;
  /* a window that would start in the padding after the end is left out */
  if (ceil && room % w->strides[i] && n * w->strides[i] < in + w->pads[i]) n++;
  return n;
}

/* (N, C, spatial…) -> (N, C, out…, kernel…): every window, by constant indices; what lies outside has `fill`. */
static const Node *unfold(Conversion *c, const Node *x, const Window *w, bool ceil, double fill)
{
  int64_t before[MAX_RANK] = {0};
  int64_t after[MAX_RANK] = {0};
  int64_t count[MAX_SPATIAL];
  for (int i = 0; i < w->n; i++) {
    int64_t in = onnx_static_dim(c, x, 2 + i);
    count[i] = window_count(c, w, i, in, ceil);
    before[2 + i] = w->pads[i];
    int64_t reach = (count[i] - 1) * w->strides[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
    after[2 + i] = reach - in - w->pads[i] > 0 ? reach - in - w->pads[i] : 0;
  }
  x = onnx_pad(c, x, w->n + 2, before, after, fill);
  for (int i = 0; i < w->n; i++) {
    int64_t *index = arena_array(c->im->arena, int64_t, (size_t)(count[i] * w->kernel[i]));
    for (int64_t o = 0; o < count[i]; o++)
      for (int64_t k = 0; k < w->kernel[i]; k++) index[o * w->kernel[i] + k] = o * w->strides[i] + k * w->dilation[i];
    const Node *at = node_const_copy(c->m, DT_I64, 2, (int64_t[]){count[i], w->kernel[i]}, index);
    x = onnx_op2(c, "take", x, at, "axis:i,mode:s", 2 + 2 * i, "clip");
  }
  int perm[MAX_RANK] = {0, 1};
  for (int i = 0; i < w->n; i++) {
    perm[2 + i] = 2 + 2 * i;
    perm[2 + w->n + i] = 3 + 2 * i;
  }
  return onnx_transpose(c, x, 2 + 2 * w->n, perm);
}

static const Node *convert_max_pool(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  Window w = read_window(c, x, NULL);
  bool ceil = onnx_attr_int(c, "ceil_mode", 0);
  if (c->nout > 1 && *c->p->output.v[1]) {
    const Node *both =
        onnx_op1(c, "nn.max_pool_with_argmax", x,
                 "pool_size:I,strides:I,dilation:I,padding:I,ceil_mode:i,storage_order:i", w.n, w.kernel, w.n,
                 w.strides, w.n, w.dilation, 2 * w.n, w.pads, (int)ceil, (int)onnx_attr_int(c, "storage_order", 0));
    c->out[1] = node_get(c->m, both, 1);
    return node_get(c->m, both, 0);
  }
  return onnx_op1(c, by_rank(c, "nn.max_pool", w.n), x, "pool_size:I,strides:I,dilation:I,padding:I,ceil_mode:i", w.n,
                  w.kernel, w.n, w.strides, w.n, w.dilation, 2 * w.n, w.pads, (int)ceil);
}

static const Node *convert_average_pool(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  Window w = read_window(c, x, NULL);
  return onnx_op1(c, by_rank(c, "nn.avg_pool", w.n), x,
                  "pool_size:I,strides:I,dilation:I,padding:I,ceil_mode:i,count_include_pad:i", w.n, w.kernel, w.n,
                  w.strides, w.n, w.dilation, 2 * w.n, w.pads, (int)onnx_attr_int(c, "ceil_mode", 0),
                  (int)onnx_attr_int(c, "count_include_pad", 0));
}

/* |x|^p and its root. */
static const Node *raise_to(Conversion *c, const Node *x, double p)
{
  const Node *a = onnx_op1(c, "abs", x, NULL);
  return p == 1 ? a : p == 2 ? onnx_mul(c, x, x) : onnx_op2(c, "power", a, onnx_scalar_like(c, x, p), NULL);
}
static const Node *root_of(Conversion *c, const Node *x, double p)
{
  return p == 1 ? x : p == 2 ? onnx_sqrt(c, x) : onnx_op2(c, "power", x, onnx_scalar_like(c, x, 1 / p), NULL);
}

static const Node *convert_lp_pool(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  Window w = read_window(c, x, NULL);
  double p = c->opset < 2 ? onnx_attr_float(c, "p", 2) : (double)onnx_attr_int(c, "p", 2);
  const Node *all = unfold(c, raise_to(c, x, p), &w, onnx_attr_int(c, "ceil_mode", 0), 0);
  int64_t axes[MAX_SPATIAL];
  for (int i = 0; i < w.n; i++) axes[i] = 2 + w.n + i;
  return root_of(c, onnx_reduce(c, "sum", all, w.n, axes, false), p);
}

static const Node *over_spatial(Conversion *c, const char *op, const Node *x)
{
  int n = onnx_rank_of(c, x) - 2;
  int64_t axes[64];
  for (int i = 0; i < n; i++) axes[i] = 2 + i;
  return onnx_reduce(c, op, x, n, axes, true);
}

static const Node *convert_global_average(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  return onnx_rank_of(c, x) == 4 ? onnx_op1(c, "nn.global_avg_pool2d", x, NULL) : over_spatial(c, "mean", x);
}
static const Node *convert_global_max(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  return onnx_rank_of(c, x) == 4 ? onnx_op1(c, "nn.global_max_pool2d", x, NULL) : over_spatial(c, "max", x);
}
static const Node *convert_global_lp(Conversion *c)
{
  double p = c->opset < 2 ? onnx_attr_float(c, "p", 2) : (double)onnx_attr_int(c, "p", 2);
  return root_of(c, over_spatial(c, "sum", raise_to(c, onnx_in(c, 0), p)), p);
}

/* The input's elements back at their places, zeros elsewhere. */
static const Node *convert_max_unpool(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *shape = onnx_opt(c, 2);
  Window w = read_window(c, x, NULL);
  int rank = w.n + 2;
  int n = 0;
  int64_t natural[MAX_SPATIAL + 2] = {onnx_static_dim(c, x, 0), onnx_static_dim(c, x, 1)};
  for (int i = 0; i < w.n; i++)
    natural[2 + i] = (onnx_static_dim(c, x, 2 + i) - 1) * w.strides[i] + w.kernel[i] - w.pads[i] - w.pads[w.n + i];
  const Node *y = onnx_op2(c, "nn.max_unpool", x, onnx_in(c, 1), "shape:I", rank, natural);
  if (!shape) return y;
  /* positions count in the natural shape; what the given one has more is zeros at the end */
  const Node *more = onnx_sub(c, onnx_cast_to(c, shape, DT_I64), onnx_const_i64(c, rank, natural));
  const Node *width[2 * (MAX_SPATIAL + 2)];
  const int64_t *known = onnx_const_ints(c, more, &n);
  if (known && n != rank) onnx_fail(c, ERR_ARGUMENT, "output_shape has %d numbers, %d are wanted", n, rank);
  if (known) return onnx_pad(c, y, rank, (int64_t[MAX_SPATIAL + 2]){0}, known, 0);
  for (int i = 0; i < rank; i++) {
    width[2 * i] = onnx_const_i64(c, 1, (int64_t[]){0});
    width[2 * i + 1] = onnx_slice(c, more, 0, i, i + 1);
  }
  return onnx_op3(c, "dyn.nn.pad", y, onnx_concat(c, 2 * rank, width, 0), onnx_scalar_like(c, y, 0), NULL);
}

/* ---- products ---------------------------------------------------------------------------------------- */

static const Node *convert_matmul(Conversion *c) { return onnx_matmul(c, onnx_in(c, 0), onnx_in(c, 1)); }

static const Node *convert_gemm(Conversion *c)
{
  const Node *a = onnx_in(c, 0);
  const Node *b = onnx_in(c, 1);
  const Node *bias = onnx_opt(c, 2);
  if (onnx_rank_of(c, a) != 2 || onnx_rank_of(c, b) != 2)
    onnx_fail(c, ERR_SHAPE, "operands of rank %d and %d; matrices are wanted", onnx_rank_of(c, a), onnx_rank_of(c, b));
  double alpha = onnx_attr_float(c, "alpha", 1);
  double beta = onnx_attr_float(c, "beta", 1);
  if (onnx_attr_int(c, "transA", 0)) a = onnx_swap_last(c, a);
  if (!onnx_attr_int(c, "transB", 0)) b = onnx_swap_last(c, b);
  const Node *r = onnx_op2(c, "nn.dense", a, b, NULL);
  if (alpha != 1) r = onnx_mul(c, r, onnx_scalar_like(c, r, alpha));
  if (!bias || beta == 0) return r;
  if (beta != 1) bias = onnx_mul(c, bias, onnx_scalar_like(c, bias, beta));
  return onnx_add(c, r, bias);
}

static const Node *convert_matmul_integer(Conversion *c)
{
  const Node *a = onnx_cast_to(c, onnx_in(c, 0), DT_I32);
  const Node *b = onnx_cast_to(c, onnx_in(c, 1), DT_I32);
  const Node *az = zero_point(c, 2, DT_I32);
  const Node *bz = zero_point(c, 3, DT_I32);
  if (az)
    a = onnx_sub(c, a,
                 onnx_rank_of(c, az) == 1 && !expr_is_int(onnx_dim_of(c, az, 0), 1) ? onnx_unsqueeze(c, az, 1)
                 : onnx_rank_of(c, az) < 2                                          ? onnx_scalar_of(c, az)
                                                                                    : az);
  if (bz) b = onnx_sub(c, b, onnx_rank_of(c, bz) ? bz : onnx_scalar_of(c, bz));
  return onnx_matmul(c, a, b);
}

static const OnnxRow rows[] = {
  {"AveragePool", 1, convert_average_pool},
  {"CausalConvWithState", 27, convert_causal_conv},
  {"Conv", 1, convert_conv},
  {"ConvInteger", 10, convert_conv_integer},
  {"ConvTranspose", 1, convert_conv_transpose},
  {"DeformConv", 19, convert_deform_conv},
  {"Gemm", 1, convert_gemm},
  {"GlobalAveragePool", 1, convert_global_average},
  {"GlobalLpPool", 1, convert_global_lp},
  {"GlobalMaxPool", 1, convert_global_max},
  {"LpPool", 1, convert_lp_pool},
  {"MatMul", 1, convert_matmul},
  {"MatMulInteger", 10, convert_matmul_integer},
  {"MaxPool", 1, convert_max_pool},
  {"MaxUnpool", 9, convert_max_unpool},
};
ONNX_TABLE(onnx_ops_nn, "", rows);
