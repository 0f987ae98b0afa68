/* nn_conv.c: convolutions of one, two and three dimensions, in any layout.
 *
 *   out[n, o, y] = sum over i, k of  data[n, g * I + i, y * stride + k * dilation - before] * weight[o, i, k]
 *
 * with g the group of o and I the input channels of a group.  Packed layouts (NCHW16c,
 * OIHW16i16o) are the same sum read through other indices: input channels in blocks are
 * reduced over as two axes.  Padding is a stage of its own, "pad_temp". */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(Conv1D, CONV1D_ATTRS)
DEFINE_ATTRS_TABLE(Conv2D, CONV2D_ATTRS)
DEFINE_ATTRS_TABLE(Conv3D, CONV3D_ATTRS)

_Static_assert(sizeof(Conv1DAttrs) == sizeof(Conv2DAttrs) && sizeof(Conv3DAttrs) == sizeof(Conv2DAttrs),
               "one list serves all three");

typedef struct Conv {
  int dims;
  const char *spatial;                     /* "W", "HW", "DHW" */
  char data_letters[6], kernel_letters[6]; /* NC + spatial, OI + spatial */
  Layout data, kernel, out;
  const Expr *n, *c, *o, *i; /* batch; channels in, out, in of a group */
  int64_t stored;            /* output channels of a group that the weight has; 0: as many as there are */
  const Expr *in[3];
  int64_t k[3], stride[3], dilation[3], before[3], after[3], groups;
  DType dtype;
} Conv;

int nn_conv_dims(const OpDef *op)
{
  if (op->attrs == &Conv1D_attrs || op->attrs == &Conv1DTranspose_attrs) return 1;
  return op->attrs == &Conv3D_attrs || op->attrs == &Conv3DTranspose_attrs ? 3 : 2;
}

static Layout conv_layout(OpCall *c, const char *attribute, const char *text, const char *letters)
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

static const Type *conv_arg(OpCall *c, int i, const char *name, const Layout *l)
{
  const Type *ty = nn_tensor(c, i, name);
  if (ty->ndim != l->n)
    opdef_raise(c, ERR_SHAPE, "%s %s has %d dimensions, layout '%s' names %d", name, nn_arg_shape(c, i), ty->ndim,
                l->text, l->n);
  return ty;
}

static void conv_channels(OpCall *c, const Conv2DAttrs *a, Conv *v)
{
  const char *weight = nn_arg_shape(c, 1);
  if (v->groups < 1) opdef_raise(c, ERR_ARGUMENT, "groups is %" PRId64 ", at least 1 is wanted", v->groups);
  if (nn_dims_differ(c->m, v->c, expr_mul(c->m, v->i, expr_i32(c->m, v->groups))))
    opdef_raise(c, ERR_SHAPE, "data has %s channels, weight %s wants %s with groups=%" PRId64,
                expr_str_of(scratch(c->m->ctx), v->c), weight,
                expr_str_of(scratch(c->m->ctx), nn_simplify(c->m, expr_mul(c->m, v->i, expr_i32(c->m, v->groups)))),
                v->groups);
  if (v->o->kind == E_INT && v->o->u.i % v->groups)
    opdef_raise(c, ERR_SHAPE, "weight %s has %" PRId64 " output channels, which %" PRId64 " groups do not divide",
                weight, v->o->u.i, v->groups);
  if (a->channels && nn_dims_differ(c->m, v->o, expr_i32(c->m, a->channels)))
    opdef_raise(c, ERR_SHAPE, "channels is %" PRId64 ", weight %s has %s", a->channels, weight,
                expr_str_of(scratch(c->m->ctx), v->o));
}

/* A weight in blocks of output channels (OIHW8o) may have zeros behind the last channel of each group, where the result
 * is not in blocks: `channels` says how many there are. */
static void conv_rest(OpCall *c, const Conv2DAttrs *a, Conv *v)
{
  int64_t block = layout_block(&v->kernel, 'O');
  if (!a->channels || block < 2 || layout_is_split(&v->out, 'C') || v->groups < 1 || v->o->kind != E_INT) return;
  int64_t stored = v->o->u.i / v->groups;
  int64_t own = a->channels / v->groups;
  if (v->o->u.i % v->groups || a->channels % v->groups || own >= stored || own <= stored - block) return;
  v->stored = stored;
  v->o = expr_int(c->m, v->o->dtype, a->channels);
}

static Conv conv_of(OpCall *c)
{
  const Conv2DAttrs *a = c->attrs;
  Conv v = {.dims = nn_conv_dims(c->op), .groups = a->groups};
  v.spatial = &"DHW"[3 - v.dims];
  strcat(strcpy(v.data_letters, "NC"), v.spatial);
  strcat(strcpy(v.kernel_letters, "OI"), v.spatial);
  v.data = conv_layout(c, "data_layout", a->data_layout, v.data_letters);
  v.kernel = conv_layout(c, "kernel_layout", a->kernel_layout, v.kernel_letters);
  v.out = *a->out_layout ? conv_layout(c, "out_layout", a->out_layout, v.data_letters) : v.data;
  const Type *data = conv_arg(c, 0, "data", &v.data);
  const Type *weight = conv_arg(c, 1, "weight", &v.kernel);
  if (a->out_dtype.code == DT_VOID && !dtype_eq(data->dtype, weight->dtype))
    opdef_raise(c, ERR_TYPE, "data is %s, weight %s; give out_dtype to multiply different dtypes",
                dtype_name(scratch(c->m->ctx), data->dtype), dtype_name(scratch(c->m->ctx), weight->dtype));
  v.dtype = a->out_dtype.code == DT_VOID ? data->dtype : a->out_dtype;
  v.n = data->shape[layout_find(&v.data, 'N')];
  v.c = layout_extent(c->m, &v.data, data->shape, 'C');
  v.o = layout_extent(c->m, &v.kernel, weight->shape, 'O');
  v.i = layout_extent(c->m, &v.kernel, weight->shape, 'I');
  conv_rest(c, a, &v);
  conv_channels(c, a, &v);
  nn_ints(c, "strides", a->strides, v.dims, 1, 1, v.stride);
  nn_ints(c, "dilation", a->dilation, v.dims, 1, 1, v.dilation);
  nn_padding(c, a->padding, v.dims, v.before, v.after);
  if (a->kernel_size.given) nn_ints(c, "kernel_size", a->kernel_size, v.dims, 1, 1, v.k);
  for (int d = 0; d < v.dims; d++) {
    const Expr *k = weight->shape[layout_find(&v.kernel, v.spatial[d])];
    v.in[d] = data->shape[layout_find(&v.data, v.spatial[d])];
    if (k->kind != E_INT)
      opdef_raise(c, ERR_SHAPE, "the spatial extents of weight %s must be known", nn_arg_shape(c, 1));
    if (a->kernel_size.given && v.k[d] != k->u.i)
      opdef_raise(c, ERR_SHAPE, "kernel_size has %" PRId64 " for %c, weight %s has %" PRId64, v.k[d], v.spatial[d],
                  nn_arg_shape(c, 1), k->u.i);
    v.k[d] = k->u.i;
  }
  return v;
}

/* The weight, from data's channels, channels and kernel_size. */
static const Type *conv_operand(OpCall *c, int i)
{
  const Conv2DAttrs *a = c->attrs;
  const Type *data = c->arg[0];
  if (i != 1 || !data || !a->channels || a->groups < 1) return NULL;
  char data_letters[6] = "NC";
  char kernel_letters[6] = "OI";
  const char *spatial = &"DHW"[3 - nn_conv_dims(c->op)];
  Layout l = conv_layout(c, "data_layout", a->data_layout, strcat(data_letters, spatial));
  Layout kernel = conv_layout(c, "kernel_layout", a->kernel_layout, strcat(kernel_letters, spatial));
  conv_arg(c, 0, "data", &l);
  const Expr *in = layout_extent(c->m, &l, data->shape, 'C');
  in = nn_simplify(c->m, expr_floordiv(c->m, in, expr_i32(c->m, a->groups)));
  return nn_operand_weight(c, &kernel, kernel_letters, expr_i32(c->m, a->channels), in, a->kernel_size);
}

static void conv_out_extents(OpCall *c, const Conv *v, const Expr **extent)
{
  static const char *const names[] = {"depth", "height", "width"};
  extent[0] = v->n;
  extent[1] = nn_guard_equal(c->m, v->o, v->c, expr_mul(c->m, v->i, expr_i32(c->m, v->groups)));
  for (int d = 0; d < v->dims; d++)
    extent[2 + d] = nn_windows(c, names[3 - v->dims + d], v->in[d], v->k[d], v->stride[d], v->dilation[d], v->before[d],
                               v->after[d]);
}

static const Type *conv_type(OpCall *c)
{
  Conv v = conv_of(c);
  const Expr *extent[5], *shape[LAYOUT_MAX];
  conv_out_extents(c, &v, extent);
  layout_shape(c->m, &v.out, v.data_letters, extent, shape);
  return type_tensor(c->m, v.dtype, v.out.n, shape);
}

/* ---- the computation ------------------------------------------------------------------------- */

static const Tensor *pad_data(OpCall *c, const Conv *v, const Tensor *data)
{
  int64_t before[LAYOUT_MAX] = {0};
  int64_t after[LAYOUT_MAX] = {0};
  for (int d = 0; d < v->dims; d++) {
    int at = layout_find(&v->data, v->spatial[d]);
    before[at] = v->before[d];
    after[at] = v->after[d];
  }
  return nn_pad_constant(c->m, data, before, after, expr_const(c->m, data->buffer->dtype, 0), "pad_temp");
}

static const char *axis_names(Module *m, const Layout *l)
{
  Text t = text_new(m->arena);
  for (int i = 0; i < l->n; i++) {
    static const char letters[] = "NCDHWc";
    static const char names[][9] = {"nn", "ff", "zz", "yy", "xx", "ff_block"};
    const char *p = strchr(letters, l->letter[i]);
    text_printf(&t, "%s%s", i ? " " : "", p ? names[p - letters] : "ax");
  }
  return text_str(&t);
}

/* Reduces over the input channels of a group; in two axes where data comes in blocks. */
static const Expr *channel_axis(Stage *s, const Conv *v)
{
  Module *m = s->m;
  int64_t block = layout_block(&v->data, 'C');
  if (expr_is_int(v->i, 1)) return expr_i32(m, 0);
  if (block > 1 && v->i->kind == E_INT && v->i->u.i % block == 0) {
    const Expr *outer = nn_reduce_axis(s, "rco", expr_i32(m, v->i->u.i / block));
    const Expr *inner = nn_reduce_axis(s, "rci", expr_i32(m, block));
    return expr_add(m, expr_mul(m, outer, expr_i32(m, block)), inner);
  }
  return nn_reduce_axis(s, "rc", v->i);
}

static const char *conv_tag(Module *m, const Conv *v)
{
  bool depthwise = v->groups > 1 && expr_is_int(v->i, 1);
  char layout[LAYOUT_MAX + 1];
  for (int i = 0; i <= v->data.n; i++) layout[i] = i < v->data.n ? v->data.letter[i] : 0;
  if (!layout_is_split(&v->data, 'C'))
    for (char *p = layout; *p; p++) *p = (char)(*p - 'A' + 'a');
  return arena_printf(m->arena, "%sconv%dd_%s",
                      depthwise       ? "depthwise_"
                      : v->groups > 1 ? "group_"
                                      : "",
                      v->dims, layout);
}

static const Expr *conv_term(Stage *s, const Conv *v, const Tensor *data, const Tensor *weight)
{
  Module *m = s->m;
  const Expr *o = nn_index(s, layout_coordinate(m, &v->out, s->at, 'C'));
  const Expr *rc = channel_axis(s, v);
  const Expr *channel = rc;
  if (v->groups > 1) {
    const Expr *group = nn_simplify(m, expr_floordiv(m, v->o, expr_int(m, v->o->dtype, v->groups)));
    channel = expr_add(m, expr_mul(m, expr_floordiv(m, o, group), v->i), rc);
  }
  const Expr *x[5] = {layout_coordinate(m, &v->out, s->at, 'N'), channel};
  const Expr *row = o;
  if (v->stored) {
    const Expr *own = expr_int(m, o->dtype, v->o->u.i / v->groups);
    row =
        expr_add(m, expr_mul(m, expr_floordiv(m, o, own), expr_int(m, o->dtype, v->stored)), expr_floormod(m, o, own));
  }
  const Expr *w[5] = {row, rc};
  static const char *const names[] = {"rz", "ry", "rx"};
  for (int d = 0; d < v->dims; d++) {
    const Expr *at = layout_coordinate(m, &v->out, s->at, v->spatial[d]);
    const Expr *k = nn_reduce_axis(s, names[3 - v->dims + d], expr_i32(m, v->k[d]));
    x[2 + d] = expr_add(m, expr_mul(m, at, expr_i32(m, v->stride[d])), expr_mul(m, k, expr_i32(m, v->dilation[d])));
    w[2 + d] = k;
  }
  const Expr *xi[LAYOUT_MAX], *wi[LAYOUT_MAX];
  layout_index(m, &v->data, v->data_letters, x, xi);
  layout_index(m, &v->kernel, v->kernel_letters, w, wi);
  for (int i = 0; i < v->data.n; i++) xi[i] = nn_index(s, xi[i]);
  for (int i = 0; i < v->kernel.n; i++) wi[i] = nn_index(s, wi[i]);
  DType sum = nn_accumulator(v->dtype);
  return expr_mul(m, expr_cast(m, sum, nn_read(m, data, xi)), expr_cast(m, sum, nn_read(m, weight, wi)));
}

static void conv_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Conv v = conv_of(c);
  const Tensor *data = pad_data(c, &v, in[0]);
  Stage s = nn_stage(c->m, c->out->ndim, c->out->shape, axis_names(c->m, &v.out));
  const Expr *term = conv_term(&s, &v, data, in[1]);
  const char *tag = conv_tag(c->m, &v);
  *out = nn_sum(&s, tag, tag, term, c->out->dtype);
}

/* A convolution says in which layout its data and output are; a weight stays as it is. */
static const void *conv_layout_rule(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  const Conv2DAttrs *a = c->attrs;
  const char *result = *a->out_layout ? a->out_layout : a->data_layout;
  arg[0] = (LayoutPair){a->data_layout, a->data_layout};
  arg[1] = (LayoutPair){a->kernel_layout, a->kernel_layout};
  out[0] = (LayoutPair){result, result};
  return a;
}

/* The weight holds (steps of a sum) * (output channels) elements. */
static double conv_flops(const Node *call)
{
  const Conv2DAttrs *a = call->u.call.attrs;
  const Type *weight = call->arg[1]->type;
  Layout kernel;
  double outputs = type_known_dim(weight, 0);
  if (!layout_parse(a->kernel_layout, &kernel)) {
    int at = layout_find(&kernel, 'O');
    outputs = at < 0 ? 0 : type_known_dim(weight, at) * (double)layout_block(&kernel, 'O');
  }
  return outputs > 0 ? 2 * type_known_elements(call->type) * type_known_elements(weight) / outputs : 0;
}

#define CONV_OP(id, text, what, list) \
  const OpDef id = {                  \
    .name = text,                     \
    .doc = what,                      \
    .args = "data, weight",           \
    .min_args = 2,                    \
    .max_args = 2,                    \
    .attrs = &list,                   \
    .fuse = FUSE_OUT_ELEMWISE,        \
    .narrow = NARROW_ALWAYS,          \
    .flops = conv_flops,              \
    .type = conv_type,                \
    .operand = conv_operand,          \
    .compute = conv_compute,          \
    .layout = conv_layout_rule,       \
  };
CONV_OP(op_nn_conv1d, "nn.conv1d", "one-dimensional convolution", Conv1D_attrs)
CONV_OP(op_nn_conv2d, "nn.conv2d", "two-dimensional convolution", Conv2D_attrs)
CONV_OP(op_nn_conv3d, "nn.conv3d", "three-dimensional convolution", Conv3D_attrs)
CONV_OP(op_nn_contrib_conv2d_nchwc, "nn.contrib_conv2d_NCHWc", "two-dimensional convolution over blocks of channels",
        Conv2D_attrs)
CONV_OP(op_nn_contrib_depthwise_conv2d_nchwc, "nn.contrib_depthwise_conv2d_NCHWc",
        "depthwise convolution over blocks of channels", Conv2D_attrs)
