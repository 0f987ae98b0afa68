/* qnn_planes.c: convolutions of quantized tensors over one or three dimensions, said as ones over two.
 *
 *   one     a row is a plane one high: NCW is NC1W
 *   three   a plane of the result is a convolution of the planes that its window covers, which are further channels:
 *           (n, c, d, h, w) -> (n * planes of the result, taps along d * c, h, w)
 *           where each group has one channel, the sum of as many convolutions as the window has taps along d
 *
 * so that whatever serves convolutions over two dimensions serves these.  Bytes are copied as often as the window has
 * taps along d. */
#include "op/qnn.h"

#include "op/nn_kit.h"
#include "op/shape_attrs.h"

static const Node *transposed(Module *m, const Node *x, int n, const int64_t *axes)
{
  TransposeAttrs *a = attrs_new(m, &Transpose_attrs);
  attrs_set_ints(m, &Transpose_attrs, a, "axes", n, axes);
  return nn_call(m, "transpose", 1, &x, a);
}

static const Node *reshaped(Module *m, const Node *x, int n, const Expr *const *shape)
{
  ReshapeAttrs *a = attrs_new(m, &Reshape_attrs);
  attrs_set_dims(m, &Reshape_attrs, a, "newshape", n, shape);
  return nn_call(m, "reshape", 1, &x, a);
}

/* So many elements of an axis, a step apart. */
static const Node *some_of(Module *m, const Node *x, int axis, int64_t from, int64_t count, int64_t step)
{
  StridedSliceAttrs *a = attrs_new(m, &StridedSlice_attrs);
  attrs_set_ints(m, &StridedSlice_attrs, a, "begin", 1, &from);
  attrs_set_ints(m, &StridedSlice_attrs, a, "end", 1, (const int64_t[]){from + (count - 1) * step + 1});
  attrs_set_ints(m, &StridedSlice_attrs, a, "strides", 1, &step);
  attrs_set_ints(m, &StridedSlice_attrs, a, "axes", 1, (const int64_t[]){axis});
  return nn_call(m, "strided_slice", 1, &x, a);
}

/* Depth 0, height 1, width 2: of a list of as many as there are dimensions. */
static int64_t at_dim(AttrInts list, int dims, int d, int64_t none)
{
  if (list.n == 0 || d < 3 - dims) return none;
  return list.v[list.n == 1 ? 0 : d - (3 - dims)];
}

static int64_t pad_at(AttrInts p, int dims, int d, bool after)
{
  if (p.n != 2 * dims) return at_dim(p, dims, d, 0);
  return d < 3 - dims ? 0 : p.v[d - (3 - dims) + (after ? dims : 0)];
}

/* The convolution of height and width. */
static const Node *conv_planes(Module *m, int dims, const Conv2DAttrs *a, const Node *x, const Node *w,
                               const Node *const *arg)
{
  const AttrsDef *def = &QnnConv2D_attrs;
  QnnConv2DAttrs *q = attrs_new(m, def);
  int64_t strides[2], dilation[2], padding[4];
  for (int d = 0; d < 2; d++) {
    strides[d] = at_dim(a->strides, dims, d + 1, 1);
    dilation[d] = at_dim(a->dilation, dims, d + 1, 1);
    padding[d] = pad_at(a->padding, dims, d + 1, false);
    padding[2 + d] = pad_at(a->padding, dims, d + 1, true);
  }
  attrs_set_ints(m, def, q, "strides", 2, strides);
  attrs_set_ints(m, def, q, "dilation", 2, dilation);
  attrs_set_ints(m, def, q, "padding", 4, padding);
  q->groups = a->groups;
  return nn_call(m, "qnn.conv2d", 6, (const Node *[]){x, w, arg[2], arg[3], arg[4], arg[5]}, q);
}

/* NCW as NC1W; what was that before is taken from there. */
static const Node *as_plane(Module *m, const Node *x)
{
  if (x->kind == N_CALL && !strcmp(x->u.call.op->name, "squeeze") && x->arg[0]->type->ndim == 4 &&
      expr_is_int(x->arg[0]->type->shape[2], 1) && !expr_is_int(x->type->shape[2], 1))
    return x->arg[0];
  ExpandDimsAttrs *e = attrs_new(m, &ExpandDims_attrs);
  e->axis = 2;
  return nn_call(m, "expand_dims", 1, &x, e);
}

static const Node *conv_row(Module *m, const Conv2DAttrs *a, const Node *const *arg, const Node **flat)
{
  const OpDef *squeeze = opdef_get(m->ctx, "squeeze");
  void *s = attrs_new(m, squeeze->attrs);
  attrs_set_ints(m, squeeze->attrs, s, "axis", 1, (const int64_t[]){2});
  *flat = conv_planes(m, 1, a, as_plane(m, arg[0]), as_plane(m, arg[1]), arg);
  return node_call(m, squeeze, 1, flat, s, NULL);
}

/* Data behind its zero points before the first plane and after the last. */
static const Node *pad_depth(Module *m, const Node *x, const Node *zero, int64_t before, int64_t after)
{
  if (!before && !after) return x;
  PadAttrs *a = attrs_new(m, &Pad_attrs);
  int64_t width[10] = {[4] = before, [5] = after};
  attrs_set_ints(m, &Pad_attrs, a, "pad_width", 10, width);
  return nn_call(m, "nn.pad", 2, (const Node *[]){x, qnn_cast(m, qnn_along(m, zero, 0, 1), x->type->dtype)}, a);
}

typedef struct Depth {
  int64_t taps, stride, dilation, planes; /* planes of the result */
} Depth;

/* The planes that tap t meets, as (n, planes of the result, groups, channels of one, h, w). */
static const Node *planes_of_tap(Module *m, const Node *x, const Depth *d, int64_t groups, int64_t t)
{
  const Expr *const *s = x->type->shape;
  const Node *some = some_of(m, x, 2, t * d->dilation, d->planes, d->stride);
  const Expr *shape[] = {s[0], expr_i32(m, groups), expr_i32(m, s[1]->u.i / groups), expr_i32(m, d->planes), s[3],
                         s[4]};
  return transposed(m, reshaped(m, some, 6, shape), 6, (const int64_t[]){0, 3, 1, 2, 4, 5});
}

/* (n, planes, channels…, h, w) as (n * planes, channels, h, w) */
static const Node *as_batch(Module *m, const Node *x, int64_t channels)
{
  const Expr *const *s = x->type->shape;
  int n = x->type->ndim;
  return reshaped(m, x, 4, (const Expr *[]){expr_i32(m, -1), expr_i32(m, channels), s[n - 2], s[n - 1]});
}

static const Node *conv_depth(Module *m, const Conv2DAttrs *a, const Node *const *arg, const Node **flat)
{
  const Expr *const *s = arg[0]->type->shape;
  const Expr *const *w = arg[1]->type->shape;
  for (int d = 0; d < 5; d++)
    if (w[d]->kind != E_INT) return NULL;
  if (s[1]->kind != E_INT || s[2]->kind != E_INT || a->groups < 1) return NULL;
  int64_t before = pad_at(a->padding, 3, 0, false);
  int64_t after = pad_at(a->padding, 3, 0, true);
  Depth d = {w[2]->u.i, at_dim(a->strides, 3, 0, 1), at_dim(a->dilation, 3, 0, 1), 0};
  d.planes = (s[2]->u.i + before + after - d.dilation * (d.taps - 1) - 1) / d.stride + 1;
  if (d.planes < 1 || s[1]->u.i % a->groups) return NULL;
  int64_t own = s[1]->u.i / a->groups;
  bool single = own == 1 && a->groups > 1;
  const Node *x = pad_depth(m, arg[0], arg[2], before, after);
  const Node **part = arena_array(scratch(m->ctx), const Node *, d.taps);
  *flat = NULL;
  for (int64_t t = 0; t < d.taps; t++) {
    part[t] = planes_of_tap(m, x, &d, a->groups, t);
    if (!single) continue;
    const Node *tap = some_of(m, arg[1], 2, t, 1, 1);
    tap = reshaped(m, tap, 4, (const Expr *[]){w[0], w[1], w[3], w[4]});
    const Node *sum = conv_planes(m, 3, a, as_batch(m, part[t], s[1]->u.i), tap, arg);
    *flat = *flat ? nn_call2(m, "add", *flat, sum) : sum;
  }
  if (!single) {
    ConcatenateAttrs *c = attrs_new(m, &Concatenate_attrs);
    c->axis = 3;
    const Node *all = node_tuple(m, (int)d.taps, part);
    if (d.taps > 1) all = nn_call(m, "concatenate", 1, &all, c);
    else all = part[0];
    const Node *taps = transposed(m, arg[1], 5, (const int64_t[]){0, 2, 1, 3, 4});
    taps = reshaped(m, taps, 4, (const Expr *[]){w[0], expr_i32(m, d.taps * own), w[3], w[4]});
    *flat = conv_planes(m, 3, a, as_batch(m, all, a->groups * d.taps * own), taps, arg);
  }
  const Expr *const *y = (*flat)->type->shape;
  const Expr *shape[] = {expr_i32(m, -1), expr_i32(m, d.planes), y[1], y[2], y[3]};
  return transposed(m, reshaped(m, *flat, 5, shape), 5, (const int64_t[]){0, 2, 1, 3, 4});
}

const Node *qnn_conv_planes(Module *m, const OpDef *conv, const Conv2DAttrs *a, const Node *const *arg,
                            const Node **flat)
{
  int dims = nn_conv_dims(conv);
  const char *spatial = &"DHW"[3 - dims];
  bool plain = str_starts(a->data_layout, "NC") && !strcmp(a->data_layout + 2, spatial) &&
               str_starts(a->kernel_layout, "OI") && !strcmp(a->kernel_layout + 2, spatial) &&
               (!*a->out_layout || !strcmp(a->out_layout, a->data_layout));
  if (!plain) return NULL;
  return dims == 1 ? conv_row(m, a, arg, flat) : conv_depth(m, a, arg, flat);
}
