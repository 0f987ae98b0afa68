/* onnx_ops_nn.c: convolutions, pooling, matrix products.
 *
 * Comes in: data as (N, C, spatial…) with 1 to 3 spatial axes.  Goes out: nn.* calls in
 * the same layout.  `auto_pad` is worked out here. */
#include <math.h>

#include "frontend/onnx_import.h"
#include "op/qnn.h"

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
  if (v && k != n) kit_fail(c, ERR_ARGUMENT, "%s has %d numbers, %d are wanted", name, k, n);
  for (int i = 0; i < n; i++) out[i] = v ? v[i] : def;
}

/* SAME: as many outputs as strides fit into the input; the odd one at the end or the beginning. */
static void same_pads(Conversion *c, const Node *x, Window *w, bool upper)
{
  for (int i = 0; i < w->n; i++) {
    int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t total = span - 1;
    if (w->strides[i] != 1) {
      int64_t in = kit_static_dim(c, x, 2 + i);
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
      kit_fail(c, ERR_ARGUMENT, "kernel %" PRId64 ", stride %" PRId64 " and dilation %" PRId64 " must be positive",
               w->kernel[i], w->strides[i], w->dilation[i]);
    if (w->kernel[i] > INT32_MAX || w->strides[i] > INT32_MAX || w->dilation[i] > INT32_MAX)
      kit_fail(c, ERR_ARGUMENT, "the window is too large");
  }
  for (int i = 0; i < 2 * w->n; i++)
    if (w->pads[i] > INT32_MAX || w->pads[i] < -INT32_MAX)
      kit_fail(c, ERR_ARGUMENT, "a padding of %" PRId64 " is too large", w->pads[i]);
}

static Window read_window(Conversion *c, const Node *x, const Node *weight)
{
  Window w = {.n = kit_rank_of(c, x) - 2};
  if (w.n < 1 || w.n > MAX_SPATIAL)
    kit_fail(c, ERR_UNSUPPORTED, "data of rank %d is not supported; 3 to 5 are", w.n + 2);
  if (weight && kit_rank_of(c, weight) != w.n + 2)
    kit_fail(c, ERR_SHAPE, "weight has rank %d, data %d", kit_rank_of(c, weight), w.n + 2);
  read_spatial(c, "strides", w.n, w.strides, 1);
  read_spatial(c, "dilations", w.n, w.dilation, 1);
  read_spatial(c, "pads", 2 * w.n, w.pads, 0);
  if (onnx_attr(c, "kernel_shape")) read_spatial(c, "kernel_shape", w.n, w.kernel, 1);
  else if (!weight) kit_fail(c, ERR_ARGUMENT, "attribute 'kernel_shape' is missing");
  for (int i = 0; weight && i < w.n; i++) {
    int64_t has = kit_static_dim(c, weight, 2 + i);
    if (onnx_attr(c, "kernel_shape") && w.kernel[i] != has)
      kit_fail(c, ERR_SHAPE, "kernel_shape has %" PRId64 " for axis %d, the weight %" PRId64, w.kernel[i], i, has);
    w.kernel[i] = has;
  }
  check_window(c, &w);
  const char *how = onnx_attr_str(c, "auto_pad", "NOTSET");
  if (!strcmp(how, "SAME_UPPER") || !strcmp(how, "SAME_LOWER")) same_pads(c, x, &w, how[5] == 'U');
  else if (!strcmp(how, "VALID")) memset(w.pads, 0, sizeof w.pads);
  else if (*how && strcmp(how, "NOTSET")) kit_fail(c, ERR_ARGUMENT, "auto_pad '%s' is not known", how);
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
  if (group < 1) kit_fail(c, ERR_ARGUMENT, "group is %" PRId64, group);
  for (int i = 0; i < 2 * win.n; i++)
    if (win.pads[i] < 0) kit_fail(c, ERR_UNSUPPORTED, "a padding of %" PRId64 " is not supported", win.pads[i]);
  return kit_op2(c, by_rank(c, "nn.conv", win.n), x, w,
                 "strides:I,padding:I,dilation:I,groups:l,channels:l,kernel_size:I,out_dtype:t", win.n, win.strides,
                 2 * win.n, win.pads, win.n, win.dilation, group, kit_static_dim(c, w, 0), win.n, win.kernel, out);
}

static const Node *bias_add(Conversion *c, const Node *x, const Node *bias)
{
  return bias ? kit_op2(c, "nn.bias_add", x, bias, "axis:i", 1) : x;
}

static const Node *convert_conv(Conversion *c)
{
  return bias_add(c, conv_call(c, kit_in(c, 0), kit_in(c, 1), DT_NONE), kit_opt(c, 2));
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
    kit_fail(c, ERR_ARGUMENT, "output_shape has %d numbers, %d are wanted", n, w->n);
  for (int i = 0; i < w->n; i++) {
    int64_t in = kit_static_dim(c, x, 2 + i);
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
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  Window win = read_window(c, x, w);
  int64_t group = onnx_attr_int(c, "group", 1);
  int64_t more[MAX_SPATIAL];
  read_spatial(c, "output_padding", win.n, more, 0);
  transpose_pads(c, x, &win, more);
  int64_t channels = 0;
  if (group < 1 || !int_mul(kit_static_dim(c, w, 1), group, &channels))
    kit_fail(c, ERR_ARGUMENT, "group is %" PRId64, group);
  static const char *const layouts[] = {"IOW", "IOHW", "IODHW"};
  const Node *r =
      kit_op2(c, arena_printf(c->im->arena, "nn.conv%dd_transpose", win.n), x, w,
              "channels:l,kernel_size:I,strides:I,padding:I,output_padding:I,dilation:I,groups:l,kernel_layout:s",
              channels, win.n, win.kernel, win.n, win.strides, 2 * win.n, win.pads, win.n, more, win.n, win.dilation,
              group, layouts[win.n - 1]);
  return bias_add(c, r, kit_opt(c, 2));
}

/* A zero point: a scalar or a vector of int32; zero where it is left out. */
static const Node *zero_point(Conversion *c, int i)
{
  if (!kit_opt(c, i)) return kit_scalar(c, DT_I32, 0);
  const Node *z = kit_cast_to(c, kit_in(c, i), DT_I32);
  return kit_rank_of(c, z) == 1 && expr_is_int(kit_dim_of(c, z, 0), 1) ? kit_scalar_of(c, z) : z;
}

/* Less their zero points, multiplied in int32. */
static const Node *convert_conv_integer(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  const Node *xz = kit_scalar_of(c, zero_point(c, 2));
  const Node *wz = zero_point(c, 3);
  if (kit_rank_of(c, x) == 4) {
    Window win = read_window(c, x, w);
    const Node *one = kit_scalar(c, DT_F32, 1);
    return kit_opn(c, "qnn.conv2d", 6, (const Node *[]){x, w, xz, wz, one, one},
                   "strides:I,padding:I,dilation:I,groups:l,channels:l,kernel_size:I", win.n, win.strides, 2 * win.n,
                   win.pads, win.n, win.dilation, onnx_attr_int(c, "group", 1), kit_static_dim(c, w, 0), win.n,
                   win.kernel);
  }
  const Node *core = conv_call(c, x, w, DT_I32);
  const Node *flat;
  const Node *one = kit_scalar(c, DT_F32, 1);
  const Node *sums =
      qnn_conv_planes(c->m, core->u.call.op, core->u.call.attrs, (const Node *[]){x, w, xz, wz, one, one}, &flat);
  if (sums) return sums;
  if (kit_rank_of(c, wz) == 1) wz = kit_unsqueeze_to(c, wz, 0, kit_rank_of(c, w));
  return conv_call(c, kit_sub(c, kit_cast_to(c, x, DT_I32), xz), kit_sub(c, kit_cast_to(c, w, DT_I32), wz), DT_I32);
}

static const Node *convert_deform_conv(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  const Node *offset = kit_in(c, 2);
  const Node *mask = kit_opt(c, 4);
  Window win = read_window(c, x, w);
  if (win.n != 2) kit_fail(c, ERR_UNSUPPORTED, "only two spatial axes are supported");
  int64_t group = onnx_attr_int(c, "group", 1);
  int64_t parts = onnx_attr_int(c, "offset_group", 1);
  const Node *arg[4] = {x, offset, w, mask};
  const Node *r =
      kit_opn(c, "nn.deformable_conv2d", mask ? 4 : 3, arg,
              "strides:I,padding:I,dilation:I,deformable_groups:l,groups:l,channels:l,kernel_size:I", 2, win.strides, 4,
              win.pads, 2, win.dilation, parts, group, kit_static_dim(c, w, 0), 2, win.kernel);
  return bias_add(c, r, kit_opt(c, 3));
}

/* A window that has seen only the past: the state is what it saw last. */
static const Node *convert_causal_conv(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *w = kit_in(c, 1);
  const Node *bias = kit_opt(c, 2);
  const Node *past = kit_opt(c, 3);
  int64_t k = kit_static_dim(c, w, 2);
  int64_t channels = kit_static_dim(c, w, 0);
  const Node *all =
      past ? kit_concat2(c, past, x, 2) : kit_pad(c, x, 3, (int64_t[]){0, 0, k - 1}, (int64_t[]){0, 0, 0}, 0);
  const Node *y = kit_op2(c, "nn.conv1d", all, w, "strides:I,padding:I,groups:l,channels:l,kernel_size:I", 1,
                          (int64_t[]){1}, 2, (int64_t[]){0, 0}, channels, channels, 1, (int64_t[]){k});
  y = bias_add(c, y, bias);
  const char *act = onnx_attr_str(c, "activation", "none");
  if (!strcmp(act, "silu") || !strcmp(act, "swish")) y = kit_mul(c, y, kit_op1(c, "sigmoid", y, NULL));
  else if (strcmp(act, "none")) kit_fail(c, ERR_UNSUPPORTED, "activation '%s' is not supported", act);
  if (k == 1) {
    c->out[1] = kit_slice(c, all, 2, 0, 0);
  } else {
    const Node *length = kit_shape_part(c, all, 2, 3);
    c->out[1] = kit_slice_to(c, all, 2, kit_sub(c, length, kit_const_i64(c, 1, (int64_t[]){k - 1})), length);
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
    kit_fail(c, ERR_SHAPE, "a window of %" PRId64 " is larger than the padded extent %" PRId64, span, room + span);
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
    int64_t in = kit_static_dim(c, x, 2 + i);
    count[i] = window_count(c, w, i, in, ceil);
    before[2 + i] = w->pads[i];
    int64_t reach = (count[i] - 1) * w->strides[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
    after[2 + i] = reach - in - w->pads[i] > 0 ? reach - in - w->pads[i] : 0;
  }
  x = kit_pad(c, x, w->n + 2, before, after, fill);
  for (int i = 0; i < w->n; i++) {
    int64_t *index = arena_array(c->im->arena, int64_t, (size_t)(count[i] * w->kernel[i]));
    for (int64_t o = 0; o < count[i]; o++)
      for (int64_t k = 0; k < w->kernel[i]; k++) index[o * w->kernel[i] + k] = o * w->strides[i] + k * w->dilation[i];
    const Node *at = node_const_copy(c->m, DT_I64, 2, (int64_t[]){count[i], w->kernel[i]}, index);
    x = kit_op2(c, "take", x, at, "axis:i,mode:s", 2 + 2 * i, "clip");
  }
  int perm[MAX_RANK] = {0, 1};
  for (int i = 0; i < w->n; i++) {
    perm[2 + i] = 2 + 2 * i;
    perm[2 + w->n + i] = 3 + 2 * i;
  }
  return kit_transpose(c, x, 2 + 2 * w->n, perm);
}

static const Node *convert_max_pool(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Window w = read_window(c, x, NULL);
  bool ceil = onnx_attr_int(c, "ceil_mode", 0);
  if (c->nout > 1 && *c->out_name[1]) {
    const Node *both =
        kit_op1(c, "nn.max_pool_with_argmax", x,
                "pool_size:I,strides:I,dilation:I,padding:I,ceil_mode:i,storage_order:i", w.n, w.kernel, w.n, w.strides,
                w.n, w.dilation, 2 * w.n, w.pads, (int)ceil, (int)onnx_attr_int(c, "storage_order", 0));
    c->out[1] = node_get(c->m, both, 1);
    return node_get(c->m, both, 0);
  }
  return kit_op1(c, by_rank(c, "nn.max_pool", w.n), x, "pool_size:I,strides:I,dilation:I,padding:I,ceil_mode:i", w.n,
                 w.kernel, w.n, w.strides, w.n, w.dilation, 2 * w.n, w.pads, (int)ceil);
}

static const Node *convert_average_pool(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Window w = read_window(c, x, NULL);
  return kit_op1(c, by_rank(c, "nn.avg_pool", w.n), x,
                 "pool_size:I,strides:I,dilation:I,padding:I,ceil_mode:i,count_include_pad:i", w.n, w.kernel, w.n,
                 w.strides, w.n, w.dilation, 2 * w.n, w.pads, (int)onnx_attr_int(c, "ceil_mode", 0),
                 (int)onnx_attr_int(c, "count_include_pad", 0));
}

/* |x|^p and its root. */
static const Node *raise_to(Conversion *c, const Node *x, double p)
{
  const Node *a = kit_op1(c, "abs", x, NULL);
  return p == 1 ? a : p == 2 ? kit_mul(c, x, x) : kit_op2(c, "power", a, kit_scalar_like(c, x, p), NULL);
}
static const Node *root_of(Conversion *c, const Node *x, double p)
{
  return p == 1 ? x : p == 2 ? kit_sqrt(c, x) : kit_op2(c, "power", x, kit_scalar_like(c, x, 1 / p), NULL);
}

static const Node *convert_lp_pool(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  Window w = read_window(c, x, NULL);
  double p = c->version < 2 ? onnx_attr_float(c, "p", 2) : (double)onnx_attr_int(c, "p", 2);
  const Node *all = unfold(c, raise_to(c, x, p), &w, onnx_attr_int(c, "ceil_mode", 0), 0);
  int64_t axes[MAX_SPATIAL];
  for (int i = 0; i < w.n; i++) axes[i] = 2 + w.n + i;
  return root_of(c, kit_reduce(c, "sum", all, w.n, axes, false), p);
}

static const Node *over_spatial(Conversion *c, const char *op, const Node *x)
{
  int n = kit_rank_of(c, x) - 2;
  int64_t axes[64];
  for (int i = 0; i < n; i++) axes[i] = 2 + i;
  return kit_reduce(c, op, x, n, axes, true);
}

static const Node *convert_global_average(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_rank_of(c, x) == 4 ? kit_op1(c, "nn.global_avg_pool2d", x, NULL) : over_spatial(c, "mean", x);
}
static const Node *convert_global_max(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_rank_of(c, x) == 4 ? kit_op1(c, "nn.global_max_pool2d", x, NULL) : over_spatial(c, "max", x);
}
static const Node *convert_global_lp(Conversion *c)
{
  double p = c->version < 2 ? onnx_attr_float(c, "p", 2) : (double)onnx_attr_int(c, "p", 2);
  return root_of(c, over_spatial(c, "sum", raise_to(c, kit_in(c, 0), p)), p);
}

/* The input's elements back at their places, zeros elsewhere. */
static const Node *convert_max_unpool(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *shape = kit_opt(c, 2);
  Window w = read_window(c, x, NULL);
  int rank = w.n + 2;
  int n = 0;
  int64_t natural[MAX_SPATIAL + 2] = {kit_static_dim(c, x, 0), kit_static_dim(c, x, 1)};
  for (int i = 0; i < w.n; i++)
    natural[2 + i] = (kit_static_dim(c, x, 2 + i) - 1) * w.strides[i] + w.kernel[i] - w.pads[i] - w.pads[w.n + i];
  const Node *y = kit_op2(c, "nn.max_unpool", x, kit_in(c, 1), "shape:I", rank, natural);
  if (!shape) return y;
  /* positions count in the natural shape; what the given one has more is zeros at the end */
  const Node *more = kit_sub(c, kit_cast_to(c, shape, DT_I64), kit_const_i64(c, rank, natural));
  const Node *width[2 * (MAX_SPATIAL + 2)];
  const int64_t *known = kit_const_ints(c, more, &n);
  if (known && n != rank) kit_fail(c, ERR_ARGUMENT, "output_shape has %d numbers, %d are wanted", n, rank);
  if (known) return kit_pad(c, y, rank, (int64_t[MAX_SPATIAL + 2]){0}, known, 0);
  for (int i = 0; i < rank; i++) {
    width[2 * i] = kit_const_i64(c, 1, (int64_t[]){0});
    width[2 * i + 1] = kit_slice(c, more, 0, i, i + 1);
  }
  return kit_op3(c, "dyn.nn.pad", y, kit_concat(c, 2 * rank, width, 0), kit_scalar_like(c, y, 0), NULL);
}

/* ---- products ---------------------------------------------------------------------------------------- */

static const Node *convert_matmul(Conversion *c)
{
  const Node *y = onnx_blocked_product(c, kit_in(c, 0), kit_in(c, 1));
  return y ? y : kit_matmul(c, kit_in(c, 0), kit_in(c, 1));
}

static const Node *convert_gemm(Conversion *c)
{
  const Node *a = kit_in(c, 0);
  const Node *b = kit_in(c, 1);
  const Node *bias = kit_opt(c, 2);
  if (kit_rank_of(c, a) != 2 || kit_rank_of(c, b) != 2)
    kit_fail(c, ERR_SHAPE, "operands of rank %d and %d; matrices are wanted", kit_rank_of(c, a), kit_rank_of(c, b));
  double alpha = onnx_attr_float(c, "alpha", 1);
  double beta = onnx_attr_float(c, "beta", 1);
  if (onnx_attr_int(c, "transA", 0)) a = kit_swap_last(c, a);
  if (!onnx_attr_int(c, "transB", 0)) b = kit_swap_last(c, b);
  const Node *r = kit_op2(c, "nn.dense", a, b, NULL);
  if (alpha != 1) r = kit_mul(c, r, kit_scalar_like(c, r, alpha));
  if (!bias || beta == 0) return r;
  if (beta != 1) bias = kit_mul(c, bias, kit_scalar_like(c, bias, beta));
  return kit_add(c, r, bias);
}

/* Zero points of both, of whole matrices. */
static const Node *integer_product(Conversion *c, const Node *a, const Node *b, void *env)
{
  const Node *const *zero = env;
  const Node *one = kit_scalar(c, DT_F32, 1);
  const Node *arg[] = {a, kit_swap_last(c, b), zero[0], zero[1], one, one};
  return kit_opn(c, kit_rank_of(c, a) == 3 ? "qnn.batch_matmul" : "qnn.dense", 6, arg, NULL);
}

/* A zero point of a row of the left operand, of a column of the right one, or of more is taken off before. */
static const Node *convert_matmul_integer(Conversion *c)
{
  const Node *a = kit_in(c, 0);
  const Node *b = kit_in(c, 1);
  const Node *zero[2] = {zero_point(c, 2), zero_point(c, 3)};
  if (!kit_rank_of(c, zero[0]) && kit_rank_of(c, zero[1]) <= (kit_rank_of(c, b) == 2))
    return kit_matmul_by(c, a, b, integer_product, zero);
  const Node *az = kit_rank_of(c, zero[0]) == 1 ? kit_unsqueeze(c, zero[0], 1) : zero[0];
  return kit_matmul(c, kit_sub(c, kit_cast_to(c, a, DT_I32), az), kit_sub(c, kit_cast_to(c, b, DT_I32), zero[1]));
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
