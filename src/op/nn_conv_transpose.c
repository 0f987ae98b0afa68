/* nn_conv_transpose.c: transposed convolutions of one, two and three dimensions.
 *
 * Element i of data spreads over out[i * stride - before + k * dilation] for each k.  Seen from
 * the output that is a plain convolution with the kernel reversed, over data spread out with
 * stride - 1 zeros in between: the stage "data_pad".  So
 *
 *   out[y] = sum over k of  data_pad[y + k * dilation] * weight[K - 1 - k]
 *   data_pad[q] = data[(q - lead) / stride] where that is an element, else 0
 *   lead = (K - 1) * dilation - before */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(Conv1DTranspose, CONV1D_TRANSPOSE_ATTRS)
DEFINE_ATTRS_TABLE(Conv2DTranspose, CONV2D_TRANSPOSE_ATTRS)
DEFINE_ATTRS_TABLE(Conv3DTranspose, CONV3D_TRANSPOSE_ATTRS)

typedef struct Spread {
  int dims;
  const char *spatial;
  char data_letters[6], kernel_letters[6];
  Layout data, kernel, out;
  const Expr *n, *c, *o; /* batch, channels in; channels out of one group */
  const Expr *in[3];
  int64_t k[3], stride[3], dilation[3], before[3], after[3], more[3], groups;
  DType dtype;
} Spread;

/* Channels may come in blocks; the spatial dimensions are whole. */
static Layout spread_layout(OpCall *c, const char *attribute, const char *text, const char *letters)
{
  Layout l = nn_layout(c, attribute, text);
  int capitals = 0;
  for (int i = 0; i < l.n; i++) capitals += l.factor[i] == 0;
  bool ok = capitals == (int)strlen(letters);
  for (const char *p = letters; ok && *p; p++)
    ok = layout_find(&l, *p) >= 0 && (p < letters + 2 || !layout_is_split(&l, *p));
  if (!ok)
    opdef_raise(c, ERR_ARGUMENT, "%s '%s' needs the dimensions %s, spatial ones whole", attribute, text, letters);
  return l;
}

/* The weight, from data's channels, channels and kernel_size. */
static const Type *transpose_operand(OpCall *c, int i)
{
  const Conv2DTransposeAttrs *a = c->attrs;
  const Type *data = c->arg[0];
  if (i != 1 || !data || !a->channels || a->groups < 1) return NULL;
  char data_letters[6] = "NC";
  char kernel_letters[6] = "IO";
  const char *spatial = &"DHW"[3 - nn_conv_dims(c->op)];
  Layout l = spread_layout(c, "data_layout", a->data_layout, strcat(data_letters, spatial));
  Layout kernel = spread_layout(c, "kernel_layout", a->kernel_layout, strcat(kernel_letters, spatial));
  nn_want_rank(c, 0, "data", l.n);
  return nn_operand_weight(c, &kernel, kernel_letters, layout_extent(c->m, &l, data->shape, 'C'),
                           expr_i32(c->m, a->channels / a->groups), a->kernel_size);
}

static void spread_numbers(OpCall *c, const Conv2DTransposeAttrs *a, Spread *v)
{
  nn_ints(c, "strides", a->strides, v->dims, 1, 1, v->stride);
  nn_ints(c, "dilation", a->dilation, v->dims, 1, 1, v->dilation);
  nn_ints(c, "output_padding", a->output_padding, v->dims, 0, 0, v->more);
  nn_padding(c, a->padding, v->dims, v->before, v->after);
  if (a->kernel_size.given) nn_ints(c, "kernel_size", a->kernel_size, v->dims, 1, 1, v->k);
  for (int d = 0; d < v->dims; d++) {
    const Expr *k = c->arg[1]->shape[layout_find(&v->kernel, v->spatial[d])];
    v->in[d] = c->arg[0]->shape[layout_find(&v->data, v->spatial[d])];
    if (k->kind != E_INT)
      opdef_raise(c, ERR_SHAPE, "the spatial extents of weight %s must be known", nn_arg_shape(c, 1));
    if (a->kernel_size.given && v->k[d] != k->u.i)
      opdef_raise(c, ERR_SHAPE, "kernel_size has %" PRId64 " for %c, weight %s has %" PRId64, v->k[d], v->spatial[d],
                  nn_arg_shape(c, 1), k->u.i);
    v->k[d] = k->u.i;
    if (v->more[d] >= v->stride[d] && v->more[d] >= v->dilation[d])
      opdef_raise(c, ERR_ARGUMENT,
                  "output_padding %" PRId64 " must be below the stride %" PRId64 " or the dilation %" PRId64,
                  v->more[d], v->stride[d], v->dilation[d]);
  }
}

/* A weight in blocks of output channels (OIHW8o) may have zeros behind the last one, where the result is not in blocks:
 * `channels` says how many there are. */
static void spread_rest(OpCall *c, const Conv2DTransposeAttrs *a, Spread *v)
{
  int64_t block = layout_block(&v->kernel, 'O');
  if (!a->channels || block < 2 || layout_is_split(&v->out, 'C') || v->groups < 1 || v->o->kind != E_INT) return;
  int64_t own = a->channels / v->groups;
  if (a->channels % v->groups || own >= v->o->u.i || own <= v->o->u.i - block) return;
  v->o = expr_int(c->m, v->o->dtype, own);
}

static Spread spread_of(OpCall *c)
{
  const Conv2DTransposeAttrs *a = c->attrs;
  Spread v = {.dims = nn_conv_dims(c->op), .groups = a->groups};
  v.spatial = &"DHW"[3 - v.dims];
  strcat(strcpy(v.data_letters, "NC"), v.spatial);
  strcat(strcpy(v.kernel_letters, "IO"), v.spatial);
  v.data = spread_layout(c, "data_layout", a->data_layout, v.data_letters);
  v.kernel = spread_layout(c, "kernel_layout", a->kernel_layout, v.kernel_letters);
  v.out = *a->out_layout ? spread_layout(c, "out_layout", a->out_layout, v.data_letters) : v.data;
  nn_want_rank(c, 0, "data", v.data.n);
  nn_want_rank(c, 1, "weight", v.kernel.n);
  const Type *data = c->arg[0];
  const Type *weight = c->arg[1];
  if (a->out_dtype.code == DT_VOID && !dtype_eq(data->dtype, weight->dtype))
    opdef_raise(c, ERR_TYPE, "data is %s, weight %s; give out_dtype to multiply different dtypes",
                dtype_name(scratch(c->m->ctx), data->dtype), dtype_name(scratch(c->m->ctx), weight->dtype));
  v.dtype = a->out_dtype.code == DT_VOID ? data->dtype : a->out_dtype;
  v.n = data->shape[layout_find(&v.data, 'N')];
  v.c = layout_extent(c->m, &v.data, data->shape, 'C');
  v.o = layout_extent(c->m, &v.kernel, weight->shape, 'O');
  spread_rest(c, a, &v);
  const Expr *i = layout_extent(c->m, &v.kernel, weight->shape, 'I');
  if (v.groups < 1 || (v.c->kind == E_INT && v.c->u.i % v.groups))
    opdef_raise(c, ERR_SHAPE, "data has %s channels, which groups=%" PRId64 " do not divide",
                expr_str_of(scratch(c->m->ctx), v.c), v.groups);
  if (nn_dims_differ(c->m, v.c, i))
    opdef_raise(c, ERR_SHAPE, "data has %s channels, weight %s wants %s", expr_str_of(scratch(c->m->ctx), v.c),
                nn_arg_shape(c, 1), expr_str_of(scratch(c->m->ctx), i));
  const Expr *channels = nn_simplify(c->m, expr_mul(c->m, v.o, expr_i32(c->m, v.groups)));
  if (a->channels && nn_dims_differ(c->m, expr_i32(c->m, a->channels), channels))
    opdef_raise(c, ERR_SHAPE, "channels is %" PRId64 ", weight %s has %s", a->channels, nn_arg_shape(c, 1),
                expr_str_of(scratch(c->m->ctx), channels));
  spread_numbers(c, a, &v);
  return v;
}

static const Type *transpose_type(OpCall *c)
{
  Module *m = c->m;
  Spread v = spread_of(c);
  const Expr *extent[5] = {v.n, nn_simplify(m, expr_mul(m, v.o, expr_i32(m, v.groups)))};
  const Expr *shape[LAYOUT_MAX];
  for (int d = 0; d < v.dims; d++) {
    const Expr *in = v.in[d];
    int64_t fixed = (v.k[d] - 1) * v.dilation[d] + 1 - v.before[d] - v.after[d] + v.more[d];
    const Expr *spread = expr_mul(m, expr_sub(m, in, expr_int(m, in->dtype, 1)), expr_int(m, in->dtype, v.stride[d]));
    extent[2 + d] = nn_simplify(m, expr_add(m, spread, expr_int(m, in->dtype, fixed)));
    if (extent[2 + d]->kind == E_INT && extent[2 + d]->u.i < 0)
      opdef_raise(c, ERR_SHAPE, "the output would have %" PRId64 " elements along %c", extent[2 + d]->u.i,
                  v.spatial[d]);
  }
  layout_shape(m, &v.out, v.data_letters, extent, shape);
  return type_tensor(m, v.dtype, v.out.n, shape);
}

/* data spread out, as the head of this file says. */
static const Tensor *spread_data(OpCall *c, const Spread *v, const Tensor *data)
{
  Module *m = c->m;
  const Expr *shape[LAYOUT_MAX], *index[LAYOUT_MAX];
  const Expr *cond = NULL;
  for (int i = 0; i < v->data.n; i++) shape[i] = data->buffer->shape[i];
  for (int d = 0; d < v->dims; d++) {
    const Expr *out = c->out->shape[layout_find(&v->out, v->spatial[d])];
    shape[layout_find(&v->data, v->spatial[d])] =
        nn_simplify(m, expr_add(m, out, expr_int(m, out->dtype, (v->k[d] - 1) * v->dilation[d])));
  }
  Stage s = nn_stage(m, v->data.n, shape, NULL);
  for (int i = 0; i < s.n; i++) index[i] = s.at[i];
  for (int d = 0; d < v->dims; d++) {
    int at = layout_find(&v->data, v->spatial[d]);
    const Expr *stride = expr_i32(m, v->stride[d]);
    const Expr *q = expr_sub(m, s.at[at], expr_i32(m, (v->k[d] - 1) * v->dilation[d] - v->before[d]));
    index[at] = v->stride[d] == 1 ? q : expr_floordiv(m, q, stride);
    cond = nn_and(m, cond, nn_inside(m, index[at], data->buffer->shape[at]));
    if (v->stride[d] > 1) cond = expr_and(m, cond, expr_binary(m, E_EQ, expr_floormod(m, q, stride), expr_i32(m, 0)));
  }
  return nn_finish(&s, "data_pad", "injective,pad",
                   nn_if(m, cond, nn_read(m, data, index), expr_const(m, data->buffer->dtype, 0)));
}

static void transpose_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Spread v = spread_of(c);
  const Tensor *data = spread_data(c, &v, in[0]);
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *o = layout_coordinate(m, &v.out, s.at, 'C');
  const Expr *part = nn_simplify(m, expr_floordiv(m, v.c, expr_int(m, v.c->dtype, v.groups)));
  const Expr *rc = expr_is_int(part, 1) ? expr_i32(m, 0) : nn_reduce_axis(&s, "dc", part);
  const Expr *channel = rc;
  if (v.groups > 1) channel = expr_add(m, expr_mul(m, expr_floordiv(m, o, v.o), part), rc);
  const Expr *x[5] = {layout_coordinate(m, &v.out, s.at, 'N'), channel};
  const Expr *k[5] = {channel, v.groups > 1 ? expr_floormod(m, o, v.o) : o};
  static const char *const names[] = {"dz", "dh", "dw"};
  for (int d = 0; d < v.dims; d++) {
    const Expr *r = nn_reduce_axis(&s, names[3 - v.dims + d], expr_i32(m, v.k[d]));
    x[2 + d] =
        expr_add(m, layout_coordinate(m, &v.out, s.at, v.spatial[d]), expr_mul(m, r, expr_i32(m, v.dilation[d])));
    k[2 + d] = expr_sub(m, expr_i32(m, v.k[d] - 1), r);
  }
  const Expr *xi[LAYOUT_MAX], *ki[LAYOUT_MAX];
  layout_index(m, &v.data, v.data_letters, x, xi);
  layout_index(m, &v.kernel, v.kernel_letters, k, ki);
  for (int i = 0; i < v.data.n; i++) xi[i] = nn_index(&s, xi[i]);
  for (int i = 0; i < v.kernel.n; i++) ki[i] = nn_index(&s, ki[i]);
  const Expr *term = expr_mul(m, expr_cast(m, nn_accumulator(v.dtype), nn_read(m, data, xi)),
                              expr_cast(m, nn_accumulator(v.dtype), nn_read(m, in[1], ki)));
  char layout[LAYOUT_MAX + 1] = {0};
  for (int i = 0; i < v.data.n; i++)
    layout[i] = layout_is_split(&v.data, 'C') ? v.data.letter[i] : (char)(v.data.letter[i] - 'A' + 'a');
  const char *tag = arena_printf(m->arena, "conv%dd_transpose_%s", v.dims, layout);
  *out = nn_sum(&s, tag, tag, term, c->out->dtype);
}

/* Each element of the data meets every tap of the output channels of its group. */
static double transpose_flops(const Node *call)
{
  const Type *data = call->arg[0]->type;
  bool blocks = data->ndim > nn_conv_dims(call->u.call.op) + 2;
  double channels = type_known_dim(data, 1) * (blocks ? type_known_dim(data, -1) : 1);
  double taps = type_known_elements(call->arg[1]->type);
  return channels > 0 ? 2 * type_known_elements(data) * taps / channels : 0;
}

#define TRANSPOSE_OP(id, text, what, list) \
  const OpDef id = {                       \
    .name = text,                          \
    .doc = what,                           \
    .args = "data, weight",                \
    .min_args = 2,                         \
    .max_args = 2,                         \
    .attrs = &list,                        \
    .fuse = FUSE_OUT_ELEMWISE,             \
    .narrow = NARROW_ALWAYS,               \
    .flops = transpose_flops,              \
    .type = transpose_type,                \
    .operand = transpose_operand,          \
    .compute = transpose_compute,          \
  };
TRANSPOSE_OP(op_nn_conv1d_transpose, "nn.conv1d_transpose", "one-dimensional transposed convolution",
             Conv1DTranspose_attrs)
TRANSPOSE_OP(op_nn_conv2d_transpose, "nn.conv2d_transpose", "two-dimensional transposed convolution",
             Conv2DTranspose_attrs)
TRANSPOSE_OP(op_nn_conv3d_transpose, "nn.conv3d_transpose", "three-dimensional transposed convolution",
             Conv3DTranspose_attrs)
