/* nn_misc.c: elements moved between channels and space, windows as columns and back, and
 * nn.batch_flatten. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(SubPixel, SUB_PIXEL_ATTRS)
DEFINE_ATTRS_TABLE(Im2Col, IM2COL_ATTRS)
DEFINE_ATTRS_TABLE(Col2Im, COL2IM_ATTRS)

/* ---- depth_to_space, space_to_depth ------------------------------------------------------------- */

typedef struct Blocks {
  int c, h, w; /* where these dimensions are */
  int64_t block;
  bool crd;
} Blocks;

static Blocks blocks_of(OpCall *c)
{
  const SubPixelAttrs *a = c->attrs;
  bool nchw = !strcmp(a->layout, "NCHW");
  bool nhwc = !strcmp(a->layout, "NHWC");
  bool crd = !strcmp(a->mode, "CRD");
  nn_want_rank(c, 0, "data", 4);
  if (!nchw && !nhwc) opdef_raise(c, ERR_UNSUPPORTED, "layout '%s' is neither NCHW nor NHWC", a->layout);
  if (!crd && strcmp(a->mode, "DCR")) opdef_raise(c, ERR_ARGUMENT, "mode '%s' is neither DCR nor CRD", a->mode);
  if (a->block_size < 1 || a->block_size > 1 << 15)
    opdef_raise(c, ERR_ARGUMENT, "block_size is %" PRId64 ", at least 1 is wanted", a->block_size);
  return (Blocks){nchw ? 1 : 3, nchw ? 2 : 1, nchw ? 3 : 2, a->block_size, crd};
}

static const Expr *exact(OpCall *c, int d, int64_t by)
{
  const Expr *n = c->arg[0]->shape[d];
  if (n->kind == E_INT && n->u.i % by)
    opdef_raise(c, ERR_SHAPE, "dimension %d of data %s is not a multiple of %" PRId64, d, nn_arg_shape(c, 0), by);
  const Expr *q = expr_int(c->m, n->dtype, by);
  if (n->kind == E_INT) return expr_int(c->m, n->dtype, n->u.i / by);
  return dim_guard(c->m, expr_binary(c->m, E_EQ, expr_floormod(c->m, n, q), expr_int(c->m, n->dtype, 0)),
                   nn_simplify(c->m, expr_floordiv(c->m, n, q)));
}

static const Expr *times(Module *m, const Expr *n, int64_t by)
{
  return nn_simplify(m, expr_mul(m, n, expr_int(m, n->dtype, by)));
}

static const Type *depth_to_space_type(OpCall *c)
{
  Blocks b = blocks_of(c);
  const Expr *shape[4];
  for (int d = 0; d < 4; d++) shape[d] = c->arg[0]->shape[d];
  shape[b.c] = exact(c, b.c, b.block * b.block);
  shape[b.h] = times(c->m, shape[b.h], b.block);
  shape[b.w] = times(c->m, shape[b.w], b.block);
  return type_tensor(c->m, c->arg[0]->dtype, 4, shape);
}

static void depth_to_space_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Blocks b = blocks_of(c);
  const Expr *k = expr_i32(m, b.block);
  Stage s = nn_stage(m, 4, c->out->shape, NULL);
  const Expr *index[4] = {s.at[0]};
  const Expr *cell = expr_add(m, expr_mul(m, expr_floormod(m, s.at[b.h], k), k), expr_floormod(m, s.at[b.w], k));
  index[b.c] = b.crd ? expr_add(m, expr_mul(m, s.at[b.c], expr_i32(m, b.block * b.block)), cell)
                     : expr_add(m, expr_mul(m, cell, c->out->shape[b.c]), s.at[b.c]);
  index[b.h] = expr_floordiv(m, s.at[b.h], k);
  index[b.w] = expr_floordiv(m, s.at[b.w], k);
  *out = nn_finish(&s, "depth_to_space", "injective", nn_read(m, in[0], index));
}

static const Type *space_to_depth_type(OpCall *c)
{
  Blocks b = blocks_of(c);
  const Expr *shape[4];
  for (int d = 0; d < 4; d++) shape[d] = c->arg[0]->shape[d];
  shape[b.h] = exact(c, b.h, b.block);
  shape[b.w] = exact(c, b.w, b.block);
  shape[b.c] = times(c->m, shape[b.c], b.block * b.block);
  return type_tensor(c->m, c->arg[0]->dtype, 4, shape);
}

static void space_to_depth_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Blocks b = blocks_of(c);
  const Expr *k = expr_i32(m, b.block);
  const Expr *channels = in[0]->buffer->shape[b.c];
  Stage s = nn_stage(m, 4, c->out->shape, NULL);
  const Expr *cell = expr_floordiv(m, s.at[b.c], channels);
  const Expr *index[4] = {s.at[0]};
  index[b.c] = expr_floormod(m, s.at[b.c], channels);
  index[b.h] = expr_add(m, expr_mul(m, s.at[b.h], k), expr_floordiv(m, cell, k));
  index[b.w] = expr_add(m, expr_mul(m, s.at[b.w], k), expr_floormod(m, cell, k));
  *out = nn_finish(&s, "space_to_depth", "injective", nn_read(m, in[0], index));
}

#define BLOCKS_OP(id, text, what, rule, fn) \
  const OpDef id = {                        \
    .name = text,                           \
    .doc = what,                            \
    .args = "data",                         \
    .min_args = 1,                          \
    .max_args = 1,                          \
    .attrs = &SubPixel_attrs,               \
    .fuse = FUSE_INJECTIVE,                 \
    .narrow = NARROW_FOLLOW,                \
    .type = rule,                           \
    .compute = fn,                          \
  };
BLOCKS_OP(op_nn_depth_to_space, "nn.depth_to_space", "channels laid out as blocks of height and width",
          depth_to_space_type, depth_to_space_compute)
BLOCKS_OP(op_nn_space_to_depth, "nn.space_to_depth", "blocks of height and width as channels", space_to_depth_type,
          space_to_depth_compute)

/* ---- batch_flatten ---------------------------------------------------------------------------------- */

static const Type *batch_flatten_type(OpCall *c)
{
  const Type *data = nn_tensor(c, 0, "data");
  if (data->ndim < 1) opdef_raise(c, ERR_SHAPE, "a scalar has no batch");
  const Expr *rest = dim_product(c->m, data->ndim - 1, data->shape + 1);
  return type_tensor(c->m, data->dtype, 2, (const Expr *[]){data->shape[0], rest});
}

static void batch_flatten_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  int n = in[0]->buffer->ndim;
  Stage s = nn_stage(m, 2, c->out->shape, NULL);
  const Expr *index[MAX_RANK] = {s.at[0]};
  const Expr *rest = s.at[1];
  for (int d = n - 1; d > 0; d--) {
    const Expr *extent = in[0]->buffer->shape[d];
    index[d] = d > 1 ? nn_index(&s, expr_floormod(m, rest, extent)) : nn_index(&s, rest);
    rest = expr_floordiv(m, rest, extent);
  }
  *out = nn_finish(&s, "T_batch_flatten", "injective", nn_read(m, in[0], index));
}

const OpDef op_nn_batch_flatten = {
  .name = "nn.batch_flatten",
  .doc = "all dimensions behind the first as one",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .flags = OPF_VIEW | OPF_STRING,
  .type = batch_flatten_type,
  .compute = batch_flatten_compute,
};

/* ---- im2col, col2im ------------------------------------------------------------------------------------ */

enum { COLUMN_DIMS = 6 };
typedef struct Columns {
  int dims;
  int64_t k[COLUMN_DIMS], stride[COLUMN_DIMS], dilation[COLUMN_DIMS], before[COLUMN_DIMS], after[COLUMN_DIMS], elements;
  const Expr *windows[COLUMN_DIMS]; /* how many in each dimension */
} Columns;

static Columns columns_of(OpCall *c, const Im2ColAttrs *a, int dims, const Expr *const *image)
{
  Columns q = {.dims = dims, .elements = 1};
  if (dims < 1 || dims > COLUMN_DIMS)
    opdef_raise(c, ERR_UNSUPPORTED, "%d spatial dimensions are not supported, 1 to %d are", dims, COLUMN_DIMS);
  nn_ints(c, "kernel_size", a->kernel_size, dims, 1, 1, q.k);
  nn_ints(c, "strides", a->strides, dims, 1, 1, q.stride);
  nn_ints(c, "dilation", a->dilation, dims, 1, 1, q.dilation);
  nn_padding(c, a->padding, dims, q.before, q.after);
  for (int d = 0; d < dims; d++) {
    const char *what = arena_printf(scratch(c->m->ctx), "spatial dimension %d", d);
    q.windows[d] = nn_windows(c, what, image[d], q.k[d], q.stride[d], q.dilation[d], q.before[d], q.after[d]);
    if (!int_mul(q.elements, q.k[d], &q.elements) || q.elements > INT32_MAX)
      opdef_raise(c, ERR_SHAPE, "the kernel has too many elements");
  }
  return q;
}

/* The coordinates of a number counted row major over the extents. */
static void unravel(Stage *s, const Expr *flat, int n, const Expr *const *extent, const Expr **at)
{
  Module *m = s->m;
  for (int d = n - 1; d >= 0; d--) {
    at[d] = nn_index(s, d ? expr_floormod(m, flat, extent[d]) : flat);
    flat = expr_floordiv(m, flat, extent[d]);
  }
}

static void kernel_extents(Module *m, const Columns *q, const Expr **k)
{
  for (int d = 0; d < q->dims; d++) k[d] = expr_i32(m, q->k[d]);
}

static const Type *im2col_type(OpCall *c)
{
  const Type *x = nn_tensor(c, 0, "data");
  if (x->ndim < 3)
    opdef_raise(c, ERR_SHAPE, "data %s needs a batch, channels and spatial dimensions", nn_arg_shape(c, 0));
  Columns q = columns_of(c, c->attrs, x->ndim - 2, x->shape + 2);
  return type_tensor(
      c->m, x->dtype, 3,
      (const Expr *[]){x->shape[0], times(c->m, x->shape[1], q.elements), dim_product(c->m, q.dims, q.windows)});
}

static void im2col_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Buffer *x = in[0]->buffer;
  Columns q = columns_of(c, c->attrs, x->ndim - 2, (const Expr *const *)x->shape + 2);
  Stage s = nn_stage(m, 3, c->out->shape, "n k l");
  const Expr *elements = expr_i32(m, q.elements);
  const Expr *ke[COLUMN_DIMS] = {0};
  const Expr *k[COLUMN_DIMS], *l[COLUMN_DIMS], *index[MAX_RANK];
  const Expr *cond = NULL;
  kernel_extents(m, &q, ke);
  unravel(&s, expr_floormod(m, s.at[1], elements), q.dims, ke, k);
  unravel(&s, s.at[2], q.dims, q.windows, l);
  index[0] = s.at[0];
  index[1] = expr_floordiv(m, s.at[1], elements);
  for (int d = 0; d < q.dims; d++) {
    const Expr *at =
        expr_add(m, expr_mul(m, l[d], expr_i32(m, q.stride[d])), expr_mul(m, k[d], expr_i32(m, q.dilation[d])));
    index[2 + d] = expr_sub(m, at, expr_i32(m, q.before[d]));
    cond = nn_and(m, cond, nn_inside(m, index[2 + d], x->shape[2 + d]));
  }
  *out = nn_finish(&s, "im2col", "injective", nn_if(m, cond, nn_read(m, in[0], index), expr_const(m, x->dtype, 0)));
}

const OpDef op_nn_im2col = {
  .name = "nn.im2col",
  .doc = "windows of data (n, c, spatial…) as columns: (n, c * elements of the window, windows)",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Im2Col_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = im2col_type,
  .compute = im2col_compute,
};

/* The same with extents of the window that may be known at run time only. */
typedef struct Window {
  Columns q;
  const Expr *k[COLUMN_DIMS], *elements;
} Window;

static Window col2im_window(OpCall *c, int dims, const Expr *const *image)
{
  const Col2ImAttrs *a = c->attrs;
  Module *m = c->m;
  int64_t one = 1;
  Im2ColAttrs list = {
    .kernel_size = a->kernel_size, .strides = a->strides, .padding = a->padding, .dilation = a->dilation};
  if (c->nargs > 2) list.kernel_size = (AttrInts){1, &one, true}; /* for the rest */
  else if (!a->kernel_size.given)
    opdef_raise(c, ERR_ARGUMENT, "kernel_size is missing, and so is the argument kernel_size");
  Window w = {.q = columns_of(c, &list, dims, image)};
  kernel_extents(m, &w.q, w.k);
  w.elements = expr_i32(m, w.q.elements);
  if (c->nargs < 3) return w;
  int n;
  const Expr *const *k = op_dims(c, 2, &n);
  if (n != dims) opdef_raise(c, ERR_SHAPE, "kernel_size has %d elements, the image %d spatial dimensions", n, dims);
  w.elements = dim_product(m, n, k);
  for (int d = 0; d < n; d++) {
    const Expr *span = dim_mul(m, dim_sub(m, k[d], dim_int(m, 1)), dim_int(m, w.q.dilation[d]));
    const Expr *room = dim_sub(m, dim_add(m, image[d], dim_int(m, w.q.before[d] + w.q.after[d] - 1)), span);
    w.k[d] = k[d];
    w.q.windows[d] = dim_add(m, dim_floordiv(m, room, dim_int(m, w.q.stride[d])), dim_int(m, 1));
  }
  return w;
}

static const Expr *col2im_channels(OpCall *c, const Window *w)
{
  Module *m = c->m;
  const Expr *n = c->arg[0]->shape[1];
  const Expr *zero = dim_int(m, 0);
  if (c->nargs < 3) return exact(c, 1, w->q.elements);
  const Expr *fits = expr_and(m, expr_binary(m, E_GT, w->elements, zero),
                              expr_binary(m, E_EQ, dim_mod(m, n, dim_max(m, w->elements, dim_int(m, 1))), zero));
  return dim_guard(m, fits, dim_floordiv(m, n, dim_max(m, w->elements, dim_int(m, 1))));
}

static const Type *col2im_type(OpCall *c)
{
  const Col2ImAttrs *a = c->attrs;
  nn_want_rank(c, 0, "data", 3);
  const Type *x = c->arg[0];
  int dims = a->image_size.n;
  const Expr *const *image = a->image_size.v, *shape[MAX_RANK] = {x->shape[0]};
  if (c->nargs > 1) image = op_dims(c, 1, &dims);
  else if (!a->image_size.given)
    opdef_raise(c, ERR_ARGUMENT, "image_size is missing, and so is the argument image_size");
  Window w = col2im_window(c, dims, image);
  const Expr *windows = dim_product(c->m, dims, w.q.windows);
  if (nn_dims_differ(c->m, windows, x->shape[2]))
    opdef_raise(c, ERR_SHAPE, "data %s has %s columns, the image has %s windows", nn_arg_shape(c, 0),
                expr_str_of(scratch(c->m->ctx), x->shape[2]), expr_str_of(scratch(c->m->ctx), windows));
  shape[1] = nn_guard_equal(c->m, col2im_channels(c, &w), windows, x->shape[2]);
  for (int d = 0; d < dims; d++) shape[2 + d] = image[d];
  return type_tensor(c->m, x->dtype, dims + 2, shape);
}

/* An element is the sum over the kernel's elements k for which p + before - k * dilation starts a window. */
static void col2im_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Window w = col2im_window(c, c->out->ndim - 2, c->out->shape + 2);
  Columns q = w.q;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *cond = NULL;
  const Expr *element = NULL;
  const Expr *window = NULL;
  for (int d = 0; d < q.dims; d++) {
    const Expr *k = nn_reduce_axis(&s, arena_printf(m->arena, "k%d", d), w.k[d]);
    const Expr *stride = expr_i32(m, q.stride[d]);
    const Expr *at =
        expr_sub(m, expr_add(m, s.at[2 + d], expr_i32(m, q.before[d])), expr_mul(m, k, expr_i32(m, q.dilation[d])));
    const Expr *l = expr_floordiv(m, at, stride);
    cond = nn_and(m, cond, nn_inside(m, l, q.windows[d]));
    cond = expr_and(m, cond, expr_binary(m, E_EQ, expr_floormod(m, at, stride), expr_i32(m, 0)));
    element = element ? expr_add(m, expr_mul(m, element, w.k[d]), k) : k;
    window = window ? expr_add(m, expr_mul(m, window, q.windows[d]), l) : l;
  }
  const Expr *index[] = {s.at[0], expr_add(m, expr_mul(m, s.at[1], w.elements), element), window};
  *out = nn_finish(&s, "col2im", "comm_reduce", nn_reduce_where(&s, "sum", nn_read(m, in[0], index), cond));
}

const OpDef op_nn_col2im = {
  .name = "nn.col2im",
  .doc = "columns added up where their windows lie in the image; the inverse of nn.im2col where windows do not overlap",
  .args = "data, image_size, kernel_size",
  .min_args = 1,
  .max_args = 3,
  .attrs = &Col2Im_attrs,
  .fuse = FUSE_OPAQUE,
  .type = col2im_type,
  .compute = col2im_compute,
};
