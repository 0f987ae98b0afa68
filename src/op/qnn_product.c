/* qnn_product.c: products and convolutions of quantized tensors, summed in int32.
 *
 *   sum (x - zx)(w - zw)  =  sum x w  -  zx sum w  -  zw sum x  +  n zx zw
 *
 * with n the number of terms.  The first sum is the core operator over the stored integers; the second is one number
 * for each output channel, a constant where the weight is one; the third, over each window of the data, is there only
 * for a weight with a zero point.  Data is padded with its zero point, so that all windows have n terms.
 *
 * A weight of uint8 is stored as int8, 128 less: what multiplies bytes wants signed weights. */
#include "op/qnn.h"

#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(QnnConv2D, QNN_CONV2D_ATTRS)
DEFINE_ATTRS_TABLE(QnnConv2DTranspose, QNN_CONV2D_TRANSPOSE_ATTRS)
DEFINE_ATTRS_TABLE(QnnDense, QNN_DENSE_ATTRS)
DEFINE_ATTRS_TABLE(QnnDensePack, QNN_DENSE_PACK_ATTRS)
DEFINE_ATTRS_TABLE(QnnBatchMatmul, QNN_BATCH_MATMUL_ATTRS)

/* ---- what all of them have ------------------------------------------------------------------------ */

/* Arguments: data, weight, zero points of both, scales of both.  Along `channels` of the weight (or -1) its scales and
 * zero points may be vectors. */
static void want_operands(OpCall *c, int channels, DType out)
{
  qnn_want_integer(c, 0);
  qnn_want_integer(c, 1);
  qnn_want_zero(c, 2, NULL, -1, c->arg[0]->dtype);
  qnn_want_zero(c, 3, channels < 0 ? NULL : c->arg[1], channels, c->arg[1]->dtype);
  qnn_want_scale(c, 4, NULL, -1);
  qnn_want_scale(c, 5, channels < 0 ? NULL : c->arg[1], channels);
  if (!dtype_eq(out, DT_I32))
    opdef_raise(c, ERR_UNSUPPORTED, "out_dtype is %s; sums are int32", dtype_name(scratch(c->m->ctx), out));
}

/* The type that the core operator would have. */
static const Type *core_type(OpCall *c, const OpDef *op, const void *attrs)
{
  OpCall core = *c;
  core.op = op;
  core.attrs = attrs;
  core.nargs = 2;
  return op->type(&core);
}

/* The weight as int8 with its zero point. */
static const Node *signed_weight(Module *m, const Node *w, const Node **zero)
{
  if (!dtype_eq(w->type->dtype, DT_U8)) return w;
  const Node *wide = nn_call2(m, "subtract", qnn_cast(m, w, DTYPE(DT_INT, 16)), op_number(m, DTYPE(DT_INT, 16), 128));
  *zero = qnn_arith(m, "subtract", *zero, op_number(m, DT_I32, 128));
  return qnn_cast(m, wide, DT_I8);
}

/* y - (a * b) */
static const Node *less_product(Module *m, const Node *y, const Node *a, const Node *b)
{
  return nn_call2(m, "subtract", y, qnn_arith(m, "multiply", a, b));
}

/* Less its zero point, in the narrowest dtype that holds the difference. */
static const Node *less_zero(Module *m, const Node *x, const Node *zero, int axis)
{
  DType t = x->type->dtype;
  if (qnn_all(zero, 0)) return x;
  x = qnn_centred(m, x, zero, axis);
  return t.bits <= 8 ? qnn_cast(m, x, DTYPE(DT_INT, 16)) : x;
}

/* ---- conv2d ----------------------------------------------------------------------------------------- */

const Conv2DAttrs *qnn_conv_attrs(Module *m, const QnnConv2DAttrs *q)
{
  Conv2DAttrs *a = attrs_new(m, &Conv2D_attrs);
  a->strides = q->strides;
  a->padding = q->padding;
  a->dilation = q->dilation;
  a->groups = q->groups;
  a->channels = q->channels;
  a->kernel_size = q->kernel_size;
  a->data_layout = q->data_layout;
  a->kernel_layout = q->kernel_layout;
  a->out_layout = q->out_layout;
  a->out_dtype = q->out_dtype;
  return a;
}

static Layout plain_layout(OpCall *c, const char *attribute, const char *text)
{
  Layout l = nn_layout(c, attribute, text);
  if (!layout_is_plain(text))
    opdef_raise(c, ERR_UNSUPPORTED, "%s '%s' has blocks; plain ones are handled", attribute, text);
  return l;
}

static const Type *conv2d_type(OpCall *c)
{
  const QnnConv2DAttrs *a = c->attrs;
  plain_layout(c, "data_layout", a->data_layout);
  Layout kernel = plain_layout(c, "kernel_layout", a->kernel_layout);
  if (*a->out_layout && strcmp(a->out_layout, a->data_layout))
    opdef_raise(c, ERR_UNSUPPORTED, "out_layout '%s' must be data_layout, '%s'", a->out_layout, a->data_layout);
  const Type *out = core_type(c, &op_nn_conv2d, qnn_conv_attrs(c->m, a));
  want_operands(c, layout_find(&kernel, 'O'), a->out_dtype);
  return out;
}

/* Padding as an operator of its own, with the zero point. */
static const Node *pad_with_zero(Module *m, const Node *x, const Node *zero, const Layout *l, AttrInts padding)
{
  int64_t p[4];
  for (int i = 0; i < 4; i++) p[i] = padding.n == 1 ? padding.v[0] : padding.n == 2 ? padding.v[i % 2] : padding.v[i];
  if (!padding.n || !(p[0] || p[1] || p[2] || p[3])) return x;
  int64_t width[2 * MAX_RANK] = {0};
  for (int d = 0; d < 2; d++) {
    int at = layout_find(l, "HW"[d]);
    width[2 * at] = p[d];
    width[2 * at + 1] = p[2 + d];
  }
  PadAttrs *a = attrs_new(m, &Pad_attrs);
  attrs_set_ints(m, &Pad_attrs, a, "pad_width", 2 * x->type->ndim, width);
  return nn_call(m, "nn.pad", 2, (const Node *[]){x, qnn_cast(m, qnn_along(m, zero, 0, 1), x->type->dtype)}, a);
}

/* Sums of each window of the data: a convolution with ones, one for each group; as many channels as the output, or one.
 * Without groups it makes a word of equal channels, which the implementations for bytes can serve, and takes the
 * first. */
static const Node *window_sums(Module *m, const Node *x, const Node *w, const Conv2DAttrs *a, const Layout *kernel,
                               const Layout *data)
{
  const Expr *shape[MAX_RANK];
  Conv2DAttrs *ones = attrs_copy(m, &Conv2D_attrs, a);
  int at = layout_find(kernel, 'O');
  const Expr *channels = w->type->shape[at];
  for (int i = 0; i < kernel->n; i++) shape[i] = w->type->shape[i];
  enum { WORD = 4 };
  bool word = a->groups == 1 && x->type->dtype.bits == 8;
  shape[at] = expr_i32(m, word ? WORD : a->groups);
  ones->channels = word ? WORD : a->groups;
  InitAttrs *init = attrs_new(m, &Init_attrs);
  attrs_set_dims(m, &Init_attrs, init, "shape", kernel->n, shape);
  init->dtype = DT_I8;
  const Node *y = nn_call(m, "nn.conv2d", 2, (const Node *[]){x, nn_call(m, "ones", 0, NULL, init)}, ones);
  if (word) {
    int64_t begin[MAX_RANK] = {0};
    int64_t end[MAX_RANK];
    for (int i = 0; i < y->type->ndim; i++) end[i] = i == layout_find(data, 'C') ? 1 : INT32_MAX;
    StridedSliceAttrs *s = attrs_new(m, &StridedSlice_attrs);
    attrs_set_ints(m, &StridedSlice_attrs, s, "begin", y->type->ndim, begin);
    attrs_set_ints(m, &StridedSlice_attrs, s, "end", y->type->ndim, end);
    return nn_call(m, "strided_slice", 1, &y, s);
  }
  if (a->groups == 1) return y;
  const OpDef *repeat = opdef_get(m->ctx, "repeat");
  void *r = attrs_new(m, repeat->attrs);
  attrs_set_int(m, repeat->attrs, r, "repeats", channels->u.i / a->groups);
  attrs_set_int(m, repeat->attrs, r, "axis", layout_find(data, 'C'));
  return channels->u.i == a->groups ? y : node_call(m, repeat, 1, &y, r, NULL);
}

/* Sums of one channel are short: a zero point of the weight is not worth sums of windows, both are taken off before, in
 * 16 bits. */
static const Node *depthwise(Module *m, const Node *call, const Layout *kernel)
{
  const Node *in[2] = {call->arg[0], call->arg[1]};
  int axis[2] = {0, layout_find(kernel, 'O')};
  for (int i = 0; i < 2; i++) in[i] = qnn_cast(m, less_zero(m, in[i], call->arg[2 + i], axis[i]), DTYPE(DT_INT, 16));
  return node_call(m, &op_nn_conv2d, 2, in, qnn_conv_attrs(m, call->u.call.attrs), call->name);
}

static const Node *conv2d_decompose(Module *m, const Node *call)
{
  const QnnConv2DAttrs *q = call->u.call.attrs;
  const Node *zx = qnn_along(m, call->arg[2], 0, 1);
  const Node *zw = call->arg[3];
  const Node *w = signed_weight(m, call->arg[1], &zw);
  Conv2DAttrs *a = attrs_copy(m, &Conv2D_attrs, qnn_conv_attrs(m, q));
  Layout data, kernel;
  layout_parse(q->data_layout, &data);
  layout_parse(q->kernel_layout, &kernel);
  bool offset = !qnn_all(zx, 0);
  const Node *x = call->arg[0];
  bool bytes = x->type->dtype.bits == 8 && call->arg[1]->type->dtype.bits == 8;
  bool single = q->groups > 1 && expr_is_int(w->type->shape[layout_find(&kernel, 'I')], 1);
  if (single && bytes && !qnn_all(zw, 0)) return depthwise(m, call, &kernel);
  if (offset) {
    x = pad_with_zero(m, x, zx, &data, a->padding);
    attrs_set_ints(m, &Conv2D_attrs, a, "padding", 2, (const int64_t[]){0, 0});
  }
  const Node *y = node_call(m, &op_nn_conv2d, 2, (const Node *[]){x, w}, a, call->name);
  int ndim = y->type->ndim;
  int axis = layout_find(&data, 'C');
  const Node *zw_along = qnn_along(m, zw, axis, ndim);
  if (offset) {
    int64_t axes[3];
    int n = 0;
    double terms = 1;
    for (int i = 0; i < kernel.n; i++)
      if (kernel.letter[i] != 'O') {
        axes[n++] = i;
        if (w->type->shape[i]->kind != E_INT)
          raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "qnn.conv2d: the sizes of the kernel must be known");
        terms *= (double)w->type->shape[i]->u.i;
      }
    const Node *sum = qnn_sum(m, qnn_cast(m, w, DT_I32), n, axes, false);
    if (!qnn_all(zw, 0)) sum = nn_call2(m, "subtract", sum, qnn_arith(m, "multiply", zw, op_number(m, DT_I32, terms)));
    y = less_product(m, y, qnn_along(m, sum, axis, ndim), zx);
  }
  if (!qnn_all(zw, 0)) y = less_product(m, y, window_sums(m, x, w, a, &kernel, &data), zw_along);
  return y;
}

const OpDef op_qnn_conv2d = {
  .name = "qnn.conv2d",
  .doc = "convolution of quantized tensors: int32 sums of (data - zero point) * (kernel - zero point)",
  .args = "data, kernel, input_zero_point, kernel_zero_point, input_scale, kernel_scale",
  .min_args = 6,
  .max_args = 6,
  .attrs = &QnnConv2D_attrs,
  .fuse = FUSE_OPAQUE,
  .type = conv2d_type,
  .decompose = conv2d_decompose,
};

/* ---- conv2d_transpose ---------------------------------------------------------------------------------- */

static const Conv2DTransposeAttrs *spread_attrs(Module *m, const QnnConv2DTransposeAttrs *q)
{
  Conv2DTransposeAttrs *a = attrs_new(m, &Conv2DTranspose_attrs);
  a->strides = q->strides;
  a->padding = q->padding;
  a->dilation = q->dilation;
  a->channels = q->channels;
  a->kernel_size = q->kernel_size;
  a->groups = q->groups;
  a->data_layout = q->data_layout;
  a->kernel_layout = q->kernel_layout;
  a->out_layout = q->out_layout;
  a->output_padding = q->output_padding;
  a->out_dtype = q->out_dtype;
  return a;
}

static const Type *conv2d_transpose_type(OpCall *c)
{
  const QnnConv2DTransposeAttrs *a = c->attrs;
  Layout kernel = plain_layout(c, "kernel_layout", a->kernel_layout);
  const Type *out = core_type(c, &op_nn_conv2d_transpose, spread_attrs(c->m, a));
  want_operands(c, a->groups == 1 ? layout_find(&kernel, 'O') : -1, a->out_dtype);
  return out;
}

static const Node *conv2d_transpose_decompose(Module *m, const Node *call)
{
  const QnnConv2DTransposeAttrs *q = call->u.call.attrs;
  Layout kernel;
  layout_parse(q->kernel_layout, &kernel);
  const Node *x = less_zero(m, call->arg[0], call->arg[2], 0);
  const Node *w = less_zero(m, call->arg[1], call->arg[3], layout_find(&kernel, 'O'));
  return node_call(m, &op_nn_conv2d_transpose, 2, (const Node *[]){x, w}, spread_attrs(m, q), call->name);
}

const OpDef op_qnn_conv2d_transpose = {
  .name = "qnn.conv2d_transpose",
  .doc = "transposed convolution of quantized tensors, summed in int32",
  .args = "data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale",
  .min_args = 6,
  .max_args = 6,
  .attrs = &QnnConv2DTranspose_attrs,
  .fuse = FUSE_OPAQUE,
  .type = conv2d_transpose_type,
  .decompose = conv2d_transpose_decompose,
};

/* ---- dense, batch_matmul ------------------------------------------------------------------------------ */

/* n, the number of terms; a node where it is known only at run time. */
static const Node *number_of_terms(Module *m, const Node *x, int axis)
{
  const Expr *k = x->type->shape[axis];
  if (k->kind == E_INT) return op_number(m, DT_I32, (double)k->u.i);
  TakeAttrs *a = attrs_new(m, &Take_attrs);
  attrs_set_ints(m, &Take_attrs, a, "axis", 1, (const int64_t[]){0});
  return nn_call(m, "take", 2, (const Node *[]){nn_call1(m, "shape_of", x), op_number(m, DT_I32, axis)}, a);
}

/* The product with what the zero points add.  row: sums of x over k, to broadcast; column: of w. */
static const Node *with_zero_points(Module *m, const Node *y, const Node *zx, const Node *zw, const Node *row,
                                    const Node *column, const Node *terms)
{
  if (!qnn_all(zx, 0)) {
    if (!qnn_all(zw, 0)) column = nn_call2(m, "subtract", column, qnn_arith(m, "multiply", zw, terms));
    y = less_product(m, y, column, zx);
  }
  return qnn_all(zw, 0) ? y : less_product(m, y, row, zw);
}

/* (k, m) or (b, k, m), known at run time only, of which y is the transpose; NULL: it is no such. */
static const Node *turned_from(const Node *y)
{
  if (y->kind != N_CALL || strcmp(y->u.call.op->name, "transpose") || y->arg[0]->kind == N_CONST) return NULL;
  const TransposeAttrs *a = y->u.call.attrs;
  int n = a->axes.n;
  for (int d = 0; d < n; d++)
    if ((a->axes.v[d] + n) % n != (d < n - 2 ? d : 2 * n - 3 - d)) return NULL;
  return n == 2 || n == 3 ? y->arg[0] : NULL;
}

static const DenseAttrs *dense_attrs(Module *m, const QnnDenseAttrs *q)
{
  DenseAttrs *a = attrs_new(m, &Dense_attrs);
  a->units = q->units;
  a->out_dtype = q->out_dtype;
  return a;
}

static const Type *dense_type(OpCall *c)
{
  const QnnDenseAttrs *a = c->attrs;
  const Type *out = core_type(c, &op_nn_dense, dense_attrs(c->m, a));
  want_operands(c, 0, a->out_dtype);
  return out;
}

/* x by (k, m), which is read as it lies. */
static const Node *product_as_it_lies(Module *m, const Node *call, const Node *w)
{
  const Node *x = call->arg[0];
  const Node *zw = call->arg[3];
  if (!dtype_eq(x->type->dtype, DT_U8)) w = signed_weight(m, w, &zw);
  MatmulAttrs *a = attrs_new(m, &Matmul_attrs);
  a->out_dtype = ((const QnnDenseAttrs *)call->u.call.attrs)->out_dtype;
  const Node *y = node_call(m, &op_nn_matmul, 2, (const Node *[]){x, w}, a, call->name);
  return with_zero_points(m, y, qnn_along(m, call->arg[2], 0, 1), qnn_along(m, zw, 1, 2),
                          qnn_sum(m, qnn_cast(m, x, DT_I32), 1, (const int64_t[]){1}, true),
                          qnn_sum(m, qnn_cast(m, w, DT_I32), 1, (const int64_t[]){0}, false), number_of_terms(m, x, 1));
}

static const Node *dense_decompose(Module *m, const Node *call)
{
  const Node *x = call->arg[0];
  const Node *zx = qnn_along(m, call->arg[2], 0, 1);
  const Node *zw = call->arg[3];
  const Node *turned = x->type->ndim == 2 ? turned_from(call->arg[1]) : NULL;
  if (turned) return product_as_it_lies(m, call, turned);
  const Node *w = signed_weight(m, call->arg[1], &zw);
  const Node *y = node_call(m, &op_nn_dense, 2, (const Node *[]){x, w}, dense_attrs(m, call->u.call.attrs), call->name);
  int k = x->type->ndim - 1;
  zw = qnn_along(m, zw, k, x->type->ndim);
  return with_zero_points(m, y, zx, zw, qnn_sum(m, qnn_cast(m, x, DT_I32), 1, (const int64_t[]){k}, true),
                          qnn_sum(m, qnn_cast(m, w, DT_I32), 1, (const int64_t[]){1}, false), number_of_terms(m, w, 1));
}

const OpDef op_qnn_dense = {
  .name = "qnn.dense",
  .doc = "data times the transpose of weight (units, in), both quantized, summed in int32",
  .args = "data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale",
  .min_args = 6,
  .max_args = 6,
  .attrs = &QnnDense_attrs,
  .fuse = FUSE_OPAQUE,
  .type = dense_type,
  .decompose = dense_decompose,
};

static const DensePackAttrs *pack_attrs(Module *m, const QnnDensePackAttrs *q)
{
  DensePackAttrs *a = attrs_new(m, &DensePack_attrs);
  a->weight_layout = q->kernel_layout;
  a->units = q->units;
  a->out_dtype = q->out_dtype;
  return a;
}

static const Type *dense_pack_type(OpCall *c)
{
  const QnnDensePackAttrs *a = c->attrs;
  const Type *out = core_type(c, &op_nn_contrib_dense_pack, pack_attrs(c->m, a));
  want_operands(c, -1, a->out_dtype);
  return out;
}

static const Node *dense_pack_decompose(Module *m, const Node *call)
{
  const Node *x = call->arg[0];
  const Node *zx = qnn_along(m, call->arg[2], 0, 1);
  const Node *zw = qnn_along(m, call->arg[3], 0, 1);
  const Node *w = signed_weight(m, call->arg[1], &zw);
  const Node *y =
      node_call(m, &op_nn_contrib_dense_pack, 2, (const Node *[]){x, w}, pack_attrs(m, call->u.call.attrs), call->name);
  const Node *column = qnn_sum(m, qnn_cast(m, w, DT_I32), 1, (const int64_t[]){1}, false); /* (units / b, b) */
  const Expr *flat = expr_i32(m, -1);
  const Expr *units = y->type->shape[1];
  ReshapeAttrs *r = attrs_new(m, &Reshape_attrs);
  attrs_set_dims(m, &Reshape_attrs, r, "newshape", 1, &flat);
  column = nn_call(m, "reshape", 1, &column, r);
  if (units->kind == E_INT && !expr_is_int(column->type->shape[0], units->u.i)) {
    StridedSliceAttrs *s = attrs_new(m, &StridedSlice_attrs);
    attrs_set_ints(m, &StridedSlice_attrs, s, "begin", 1, (const int64_t[]){0});
    attrs_set_ints(m, &StridedSlice_attrs, s, "end", 1, (const int64_t[]){units->u.i});
    column = nn_call(m, "strided_slice", 1, &column, s);
  }
  return with_zero_points(m, y, zx, zw, qnn_sum(m, qnn_cast(m, x, DT_I32), 1, (const int64_t[]){1}, true), column,
                          number_of_terms(m, w, 1));
}

const OpDef op_qnn_contrib_dense_pack = {
  .name = "qnn.contrib_dense_pack",
  .doc = "qnn.dense over a weight whose rows come in blocks: (units/8, in, 8) for NC8n",
  .args = "data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale",
  .min_args = 6,
  .max_args = 6,
  .attrs = &QnnDensePack_attrs,
  .fuse = FUSE_OPAQUE,
  .type = dense_pack_type,
  .decompose = dense_pack_decompose,
};

static const BatchMatmulAttrs *batch_attrs(Module *m, const QnnBatchMatmulAttrs *q, bool transpose_b)
{
  BatchMatmulAttrs *a = attrs_new(m, &BatchMatmul_attrs);
  a->out_dtype = q->out_dtype;
  a->transpose_b = transpose_b;
  return a;
}

static const Type *batch_matmul_type(OpCall *c)
{
  const QnnBatchMatmulAttrs *a = c->attrs;
  const Type *out = core_type(c, &op_nn_batch_matmul, batch_attrs(c->m, a, true));
  want_operands(c, 1, a->out_dtype);
  return out;
}

static const Node *batch_matmul_decompose(Module *m, const Node *call)
{
  const Node *x = call->arg[0];
  const Node *zx = qnn_along(m, call->arg[2], 0, 1);
  const Node *zw = call->arg[3];
  const Node *turned = turned_from(call->arg[1]); /* is read as it lies */
  const Node *w = turned ? turned : call->arg[1];
  if (!dtype_eq(x->type->dtype, DT_U8)) w = signed_weight(m, w, &zw);
  const Node *y = node_call(m, &op_nn_batch_matmul, 2, (const Node *[]){x, w},
                            batch_attrs(m, call->u.call.attrs, !turned), call->name);
  ExpandDimsAttrs *e = attrs_new(m, &ExpandDims_attrs); /* (b, m) -> (b, 1, m) */
  e->axis = 1;
  const Node *column = qnn_sum(m, qnn_cast(m, w, DT_I32), 1, (const int64_t[]){turned ? 1 : 2}, false);
  return with_zero_points(m, y, zx, qnn_along(m, zw, 2, 3),
                          qnn_sum(m, qnn_cast(m, x, DT_I32), 1, (const int64_t[]){2}, true),
                          nn_call(m, "expand_dims", 1, &column, e), number_of_terms(m, x, 2));
}

const OpDef op_qnn_batch_matmul = {
  .name = "qnn.batch_matmul",
  .doc = "(b, n, k) times the transpose of (b, m, k), both quantized, summed in int32",
  .args = "x, y, x_zero_point, y_zero_point, x_scale, y_scale",
  .min_args = 6,
  .max_args = 6,
  .attrs = &QnnBatchMatmul_attrs,
  .fuse = FUSE_OPAQUE,
  .type = batch_matmul_type,
  .decompose = batch_matmul_decompose,
};
