/* nn_window.c: windows of data beside something else: image.dilation2d (the greatest sum with a kernel's elements) and
 * nn.correlation (the product with windows of other data, moved). */
#include "op/nn_kit.h"

/* ---- image.dilation2d ---------------------------------------------------------------------------- */

/* clang-format off */
#define DILATION2D_ATTRS(A, S)                                                                \
  A(S, INTS, strides, "[1, 1]", "step of the window")                                         \
  A(S, INTS, padding, "[0, 0]", "zeros around data: one for all, one each, befores then afters") \
  A(S, INTS, dilations, "[1, 1]", "distance of a kernel's elements")                          \
  A(S, STR, data_layout, "\"NCHW\"", "NCHW or NHWC")                                          \
  A(S, STR, kernel_layout, "\"IHW\"", "IHW with NCHW, HWI with NHWC")                         \
  A(S, DTYPE, out_dtype, "None", "to add in; none: data's")
/* clang-format on */
DEFINE_ATTRS(Dilation2D, DILATION2D_ATTRS)

typedef struct Dilation {
  int c, h, w;    /* where these dimensions of data are */
  int kc, kh, kw; /* and those of weight */
  int64_t k[2], stride[2], step[2], before[2], after[2];
  DType dtype;
} Dilation;

static Dilation dilation_of(OpCall *c)
{
  const Dilation2DAttrs *a = c->attrs;
  bool nchw = !strcmp(a->data_layout, "NCHW");
  bool nhwc = !strcmp(a->data_layout, "NHWC");
  const char *kernel = nchw ? "IHW" : "HWI";
  if ((!nchw && !nhwc) || strcmp(a->kernel_layout, kernel))
    opdef_raise(c, ERR_UNSUPPORTED, "layouts '%s' and '%s'; there are NCHW with IHW and NHWC with HWI", a->data_layout,
                a->kernel_layout);
  nn_want_rank(c, 0, "data", 4);
  nn_want_rank(c, 1, "weight", 3);
  Dilation v = nchw ? (Dilation){.c = 1, .h = 2, .w = 3, .kc = 0, .kh = 1, .kw = 2}
                    : (Dilation){.c = 3, .h = 1, .w = 2, .kc = 2, .kh = 0, .kw = 1};
  nn_ints(c, "strides", a->strides, 2, 1, 1, v.stride);
  nn_ints(c, "dilations", a->dilations, 2, 1, 1, v.step);
  nn_padding(c, a->padding, 2, v.before, v.after);
  if (nn_dims_differ(c->m, c->arg[0]->shape[v.c], c->arg[1]->shape[v.kc]))
    opdef_raise(c, ERR_SHAPE, "data %s and weight %s have different numbers of channels", nn_arg_shape(c, 0),
                nn_arg_shape(c, 1));
  const Expr *window[2] = {c->arg[1]->shape[v.kh], c->arg[1]->shape[v.kw]};
  for (int d = 0; d < 2; d++) {
    if (window[d]->kind != E_INT)
      opdef_raise(c, ERR_SHAPE, "the spatial extents of weight %s must be known", nn_arg_shape(c, 1));
    v.k[d] = window[d]->u.i;
  }
  v.dtype = a->out_dtype.code == DT_VOID ? c->arg[0]->dtype : a->out_dtype;
  return v;
}

static const Type *dilation2d_type(OpCall *c)
{
  Dilation v = dilation_of(c);
  const Expr *shape[4];
  for (int d = 0; d < 4; d++) shape[d] = c->arg[0]->shape[d];
  shape[v.h] = nn_windows(c, "height", shape[v.h], v.k[0], v.stride[0], v.step[0], v.before[0], v.after[0]);
  shape[v.w] = nn_windows(c, "width", shape[v.w], v.k[1], v.stride[1], v.step[1], v.before[1], v.after[1]);
  return type_tensor(c->m, v.dtype, 4, shape);
}

static void dilation2d_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Dilation v = dilation_of(c);
  int64_t before[4] = {0};
  int64_t after[4] = {0};
  before[v.h] = v.before[0], before[v.w] = v.before[1];
  after[v.h] = v.after[0], after[v.w] = v.after[1];
  const Tensor *x = nn_pad_constant(m, in[0], before, after, expr_const(m, in[0]->buffer->dtype, 0), "pad_temp");
  Stage s = nn_stage(m, 4, c->out->shape, NULL);
  const Expr *ry = nn_reduce_axis(&s, "ry", expr_i32(m, v.k[0]));
  const Expr *rx = nn_reduce_axis(&s, "rx", expr_i32(m, v.k[1]));
  const Expr *at[4] = {s.at[0], s.at[1], s.at[2], s.at[3]};
  const Expr *k[3];
  at[v.h] = expr_add(m, expr_mul(m, s.at[v.h], expr_i32(m, v.stride[0])), expr_mul(m, ry, expr_i32(m, v.step[0])));
  at[v.w] = expr_add(m, expr_mul(m, s.at[v.w], expr_i32(m, v.stride[1])), expr_mul(m, rx, expr_i32(m, v.step[1])));
  k[v.kc] = s.at[v.c], k[v.kh] = ry, k[v.kw] = rx;
  const Expr *sum = expr_add(m, expr_cast(m, v.dtype, nn_read(m, x, at)), expr_cast(m, v.dtype, nn_read(m, in[1], k)));
  *out = nn_finish(&s, "dilation2d", "dilation2d", nn_reduce(&s, "max", sum));
}

const OpDef op_image_dilation2d = {
  .name = "image.dilation2d",
  .doc = "grey-scale dilation: the greatest sum of data and weight over each window, channel by channel",
  .args = "data, weight",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Dilation2D_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .type = dilation2d_type,
  .compute = dilation2d_compute,
};

/* ---- nn.correlation ------------------------------------------------------------------------------- */

/* clang-format off */
#define CORRELATION_ATTRS(A, S)                                                               \
  A(S, INT, kernel_size, "1", "extent of a window, an odd number")                            \
  A(S, INT, max_displacement, "1", "how far a window of data2 is from that of data1 at most") \
  A(S, INT, stride1, "1", "step of data1's window")                                           \
  A(S, INT, stride2, "1", "step of data2's window")                                           \
  A(S, INTS, padding, "[0, 0]", "zeros around data: one for all, one each, befores then afters") \
  A(S, BOOL, is_multiply, "True", "multiply; False: absolute differences")                    \
  A(S, STR, layout, "\"NCHW\"", "must be NCHW")
/* clang-format on */
DEFINE_ATTRS(Correlation, CORRELATION_ATTRS)

typedef struct Correlate {
  int64_t before[2], after[2], reach, size; /* moves in one direction; of all along an axis */
} Correlate;

static Correlate correlate_of(OpCall *c)
{
  const CorrelationAttrs *a = c->attrs;
  Correlate v;
  nn_padding(c, a->padding, 2, v.before, v.after);
  v.reach = a->max_displacement / a->stride2;
  v.size = 2 * v.reach + 1;
  return v;
}

static const Type *correlation_type(OpCall *c)
{
  const CorrelationAttrs *a = c->attrs;
  Module *m = c->m;
  nn_want_float(c, 0, "data1");
  nn_want_rank(c, 0, "data1", 4);
  nn_want_rank(c, 1, "data2", 4);
  op_same_dtype(c, 0, 1);
  for (int d = 0; d < 4; d++)
    if (nn_dims_differ(m, c->arg[0]->shape[d], c->arg[1]->shape[d]))
      opdef_raise(c, ERR_SHAPE, "data1 is %s, data2 %s; both have one shape", nn_arg_shape(c, 0), nn_arg_shape(c, 1));
  if (strcmp(a->layout, "NCHW")) opdef_raise(c, ERR_UNSUPPORTED, "layout '%s'; there is NCHW", a->layout);
  if (a->kernel_size < 1 || a->kernel_size % 2 == 0 || a->max_displacement < 0 || a->stride1 < 1 || a->stride2 < 1)
    opdef_raise(c, ERR_ARGUMENT, "kernel_size is odd, max_displacement not negative, and strides are positive");
  Correlate v = correlate_of(c);
  const Expr *shape[4] = {c->arg[0]->shape[0], dim_int(m, v.size * v.size)};
  int64_t border = 2 * (a->max_displacement + (a->kernel_size - 1) / 2);
  for (int d = 0; d < 2; d++) {
    const Expr *room = dim_add(m, c->arg[0]->shape[2 + d], dim_int(m, v.before[d] + v.after[d] - border));
    shape[2 + d] = dim_ceildiv(m, room, dim_int(m, a->stride1));
    if (shape[2 + d]->kind == E_INT && shape[2 + d]->u.i < 1)
      opdef_raise(c, ERR_SHAPE, "data %s is too small for windows of %" PRId64 " moved by %" PRId64, nn_arg_shape(c, 0),
                  a->kernel_size, a->max_displacement);
  }
  return type_tensor(m, c->arg[0]->dtype, 4, shape);
}

static void correlation_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const CorrelationAttrs *a = c->attrs;
  Module *m = c->m;
  Correlate v = correlate_of(c);
  int64_t before[4] = {0, 0, v.before[0], v.before[1]};
  int64_t after[4] = {0, 0, v.after[0], v.after[1]};
  const Expr *zero = expr_const(m, in[0]->buffer->dtype, 0);
  const Tensor *x = nn_pad_constant(m, in[0], before, after, zero, "pad_temp1");
  const Tensor *y = nn_pad_constant(m, in[1], before, after, zero, "pad_temp2");
  DType t = nn_accumulator(c->out->dtype);
  Stage s = nn_stage(m, 4, c->out->shape, NULL);
  const Expr *rc = nn_reduce_axis(&s, "rc", in[0]->buffer->shape[1]);
  const Expr *size = expr_i32(m, v.size);
  const Expr *move[2] = {expr_floordiv(m, s.at[1], size), expr_floormod(m, s.at[1], size)};
  const Expr *first[4] = {s.at[0], rc};
  const Expr *second[4] = {s.at[0], rc};
  for (int d = 0; d < 2; d++) {
    const Expr *r = nn_reduce_axis(&s, d ? "rx" : "ry", expr_i32(m, a->kernel_size));
    const Expr *at = expr_add(m, expr_mul(m, s.at[2 + d], expr_i32(m, a->stride1)), expr_i32(m, a->max_displacement));
    const Expr *moved = expr_mul(m, expr_sub(m, move[d], expr_i32(m, v.reach)), expr_i32(m, a->stride2));
    first[2 + d] = expr_add(m, at, r);
    second[2 + d] = expr_add(m, expr_add(m, at, moved), r);
  }
  const Expr *p = expr_cast(m, t, nn_read(m, x, first));
  const Expr *q = expr_cast(m, t, nn_read(m, y, second));
  const Expr *term = a->is_multiply ? expr_mul(m, p, q) : nn_unary(m, IN_ABS, expr_sub(m, p, q));
  const Tensor *sum = nn_finish(&s, "correlation", "correlation_nchw", nn_reduce(&s, "sum", term));
  Stage e = nn_stage(m, 4, c->out->shape, NULL);
  const Expr *count =
      expr_cast(m, t, expr_mul(m, in[0]->buffer->shape[1], expr_i32(m, a->kernel_size * a->kernel_size)));
  *out = nn_finish(&e, "T_divide", "elemwise", expr_cast(m, c->out->dtype, NN_DIV(m, nn_read(m, sum, e.at), count)));
}

const OpDef op_nn_correlation = {
  .name = "nn.correlation",
  .doc = "mean product of windows of data1 with moved windows of data2, a channel for each move",
  .args = "data1, data2",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Correlation_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .type = correlation_type,
  .compute = correlation_compute,
};
