/* nn_sample.c: image.grid_sample, image.affine_grid, nn.deformable_conv2d.
 *
 * A point lies between elements: its value is the sum over the elements near it, each
 * weighted by a product of one-dimensional kernels of its distances.  Coordinates may be
 * anything, NaN too: before one becomes an index it is brought near the tensor, so that
 * no index overflows, and reads outside are guarded. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(GridSample, GRID_SAMPLE_ATTRS)
DEFINE_ATTRS_TABLE(AffineGrid, AFFINE_GRID_ATTRS)
DEFINE_ATTRS_TABLE(DeformableConv2D, DEFORMABLE_CONV2D_ATTRS)

/* Reads the element at the given spatial positions (int32, maybe outside). */
typedef const Expr *SampleRead(void *env, const Expr *const *at);

/* ---- kernels ------------------------------------------------------------------------------------ */

static const Expr *limited(Module *m, const Expr *x, const Expr *lo, const Expr *hi)
{
  return expr_max(m, expr_min(m, x, hi), lo);
}

/* Sum over taps first … first + count - 1 (relative to base) in each dimension. */
static const Expr *sum_taps(Module *m, int n, int count, const Expr *const *base, int first,
                            const Expr *const (*weight)[4], SampleRead *read, void *env)
{
  const Expr *sum = NULL;
  const Expr *at[3];
  int total = 1;
  for (int d = 0; d < n; d++) total *= count;
  for (int k = 0; k < total; k++) {
    const Expr *w = NULL;
    for (int d = n - 1, rest = k; d >= 0; d--, rest /= count) {
      const Expr *one = weight[d][rest % count];
      at[d] = expr_add(m, base[d], expr_i32(m, first + rest % count));
      w = w ? expr_mul(m, one, w) : one;
    }
    const Expr *term = expr_mul(m, w, read(env, at));
    sum = sum ? expr_add(m, sum, term) : term;
  }
  return sum;
}

/* The sum over the 2^n neighbours of a point (float coordinates) of weight * read. */
static const Expr *sample_linear(Module *m, int n, const Expr *const *point, SampleRead *read, void *env)
{
  const Expr *base[3], *weight[3][4];
  for (int d = 0; d < n; d++) {
    const Expr *low = nn_unary(m, IN_FLOOR, point[d]);
    const Expr *t = expr_sub(m, point[d], low);
    base[d] = expr_cast(m, DT_I32, low);
    weight[d][0] = expr_sub(m, expr_const(m, t->dtype, 1), t);
    weight[d][1] = t;
  }
  return sum_taps(m, n, 2, base, 0, (const Expr *const(*)[4])weight, read, env);
}

/* The cubic at distance x: |x| <= 1, or 1 < |x| < 2 when far. */
static const Expr *cubic(Module *m, const Expr *x, double a, bool far)
{
  DType t = x->dtype;
#define K(v) expr_const(m, t, v)
  if (!far) return expr_add(m, expr_mul(m, expr_mul(m, expr_sub(m, expr_mul(m, K(a + 2), x), K(a + 3)), x), x), K(1));
  const Expr *p = expr_sub(m, expr_mul(m, K(a), x), K(5 * a));
  return expr_sub(m, expr_mul(m, expr_add(m, expr_mul(m, p, x), K(8 * a)), x), K(4 * a));
#undef K
}

/* The same over 4^n neighbours with the cubic of coefficient a. */
static const Expr *sample_cubic(Module *m, int n, const Expr *const *point, double a, SampleRead *read, void *env)
{
  const Expr *base[3], *weight[3][4];
  for (int d = 0; d < n; d++) {
    const Expr *low = nn_unary(m, IN_FLOOR, point[d]);
    const Expr *t = expr_sub(m, point[d], low);
    const Expr *one = expr_const(m, t->dtype, 1);
    base[d] = expr_cast(m, DT_I32, low);
    weight[d][0] = cubic(m, expr_add(m, t, one), a, true);
    weight[d][1] = cubic(m, t, a, false);
    weight[d][2] = cubic(m, expr_sub(m, one, t), a, false);
    weight[d][3] = cubic(m, expr_sub(m, expr_const(m, t->dtype, 2), t), a, true);
  }
  return sum_taps(m, n, 4, base, -1, (const Expr *const(*)[4])weight, read, env);
}

/* ---- grid_sample ---------------------------------------------------------------------------------- */

typedef enum { BORDER_ZEROS, BORDER_CLAMP, BORDER_REFLECT } Border;
typedef enum { METHOD_NEAREST, METHOD_LINEAR, METHOD_CUBIC } Method;

static int name_in(OpCall *c, const char *what, const char *name, const char *const *names, int n)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(name, names[i])) return i;
  opdef_raise(c, ERR_ARGUMENT, "%s '%s' is not known", what, name);
}

static Border border_of(OpCall *c)
{
  static const char *const names[] = {"zeros", "border", "reflection"};
  return (Border)name_in(c, "padding_mode", ((const GridSampleAttrs *)c->attrs)->padding_mode, names, 3);
}

static Method method_of(OpCall *c)
{
  static const char *const names[] = {"nearest", "bilinear", "bicubic"};
  return (Method)name_in(c, "method", ((const GridSampleAttrs *)c->attrs)->method, names, 3);
}

static const Type *grid_sample_type(OpCall *c)
{
  const GridSampleAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  nn_want_float(c, 1, "grid");
  const Type *x = c->arg[0];
  const Type *g = c->arg[1];
  int dims = x->ndim - 2;
  border_of(c);
  if (dims != 2 && dims != 3)
    opdef_raise(c, ERR_SHAPE, "data %s needs two or three spatial dimensions", nn_arg_shape(c, 0));
  if (g->ndim != x->ndim)
    opdef_raise(c, ERR_SHAPE, "grid %s needs %d dimensions for data %s", nn_arg_shape(c, 1), x->ndim,
                nn_arg_shape(c, 0));
  if (method_of(c) == METHOD_CUBIC && dims == 3)
    opdef_raise(c, ERR_UNSUPPORTED, "bicubic works on two spatial dimensions, data %s has three", nn_arg_shape(c, 0));
  int first = a->grid_last ? 1 : 2;
  int coordinate = a->grid_last ? g->ndim - 1 : 1;
  if (nn_dims_differ(c->m, g->shape[coordinate], expr_i32(c->m, dims)))
    opdef_raise(c, ERR_SHAPE, "dimension %d of grid %s has to be the %d coordinates of a point", coordinate,
                nn_arg_shape(c, 1), dims);
  if (nn_dims_differ(c->m, g->shape[0], x->shape[0]))
    opdef_raise(c, ERR_SHAPE, "data %s and grid %s differ in their batch", nn_arg_shape(c, 0), nn_arg_shape(c, 1));
  const Expr *shape[5] = {nn_guard_equal(c->m, x->shape[0], x->shape[0], g->shape[0]), x->shape[1]};
  for (int d = 0; d < dims; d++) {
    shape[2 + d] = g->shape[first + d];
    if (expr_is_int(x->shape[2 + d], 0)) opdef_raise(c, ERR_SHAPE, "data %s has nothing to sample", nn_arg_shape(c, 0));
  }
  return type_tensor(c->m, x->dtype, x->ndim, shape);
}

typedef struct GridRead {
  Module *m;
  const Tensor *data;
  const Expr *n, *channel;
  Border border;
  bool align;
  int dims;
  DType dtype;
} GridRead;

/* Reflected at lo and hi as often as it takes. */
static const Expr *reflected(Module *m, const Expr *x, const Expr *lo, const Expr *hi)
{
  DType t = x->dtype;
  const Expr *range = expr_sub(m, hi, lo);
  const Expr *period = expr_max(m, expr_mul(m, range, expr_const(m, t, 2)), expr_const(m, t, 1e-6));
  const Expr *from = expr_sub(m, x, lo);
  const Expr *p = expr_sub(m, from, expr_mul(m, nn_unary(m, IN_FLOOR, NN_DIV(m, from, period)), period));
  return expr_add(m, lo, expr_min(m, p, expr_sub(m, period, p)));
}

static void grid_bounds(const GridRead *r, int d, const Expr **lo, const Expr **hi)
{
  Module *m = r->m;
  const Expr *n = expr_cast(m, r->dtype, r->data->buffer->shape[2 + d]);
  *lo = expr_const(m, r->dtype, r->align ? 0 : -0.5);
  *hi = expr_sub(m, n, expr_const(m, r->dtype, r->align ? 1 : 0.5));
}

/* A whole coordinate that may lie outside. */
static const Expr *grid_read(void *env, const Expr *const *at)
{
  GridRead *r = env;
  Module *m = r->m;
  const Expr *index[5] = {r->n, r->channel};
  const Expr *cond = NULL;
  const Expr *lo, *hi;
  for (int d = 0; d < r->dims; d++) {
    const Expr *extent = r->data->buffer->shape[2 + d];
    const Expr *last = expr_sub(m, extent, expr_i32(m, 1));
    const Expr *x = at[d];
    grid_bounds(r, d, &lo, &hi);
    if (r->border == BORDER_REFLECT)
      x = expr_cast(m, DT_I32, nn_unary(m, IN_NEARBYINT, reflected(m, expr_cast(m, r->dtype, x), lo, hi)));
    if (r->border == BORDER_ZEROS) cond = nn_and(m, cond, nn_inside(m, x, extent));
    index[2 + d] = r->border == BORDER_ZEROS ? x : limited(m, x, expr_i32(m, 0), last);
  }
  const Expr *value = expr_cast(m, r->dtype, nn_read(m, r->data, index));
  return cond ? nn_if(m, cond, value, expr_const(m, r->dtype, 0)) : value;
}

/* The point in elements: -1 … 1 spread over the dimension, and brought inside where the border says so and `inside`
 * allows it. */
static const Expr *grid_point(const GridRead *r, int d, const Expr *x, bool round_first, bool inside)
{
  Module *m = r->m;
  DType t = r->dtype;
  const Expr *n = expr_cast(m, t, r->data->buffer->shape[2 + d]);
  const Expr *one = expr_const(m, t, 1);
  const Expr *half = expr_const(m, t, 0.5);
  const Expr *lo, *hi;
  const Expr *up = expr_add(m, x, one);
  const Expr *p = r->align ? expr_mul(m, expr_mul(m, up, half), expr_sub(m, n, one))
                           : expr_mul(m, expr_sub(m, expr_mul(m, up, n), one), half);
  if (round_first) p = nn_unary(m, IN_NEARBYINT, p);
  grid_bounds(r, d, &lo, &hi);
  const Expr *outside = expr_binary(m, E_OR, expr_lt(m, p, lo), expr_lt(m, hi, p));
  if (r->border == BORDER_CLAMP && inside)
    p = expr_select(m, outside, limited(m, p, expr_const(m, t, 0), expr_sub(m, n, one)), p);
  if (r->border == BORDER_REFLECT) p = expr_select(m, outside, reflected(m, p, lo, hi), p);
  return limited(m, p, expr_const(m, t, -8), expr_add(m, n, expr_const(m, t, 8)));
}

static void grid_sample_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const GridSampleAttrs *a = c->attrs;
  Method method = method_of(c);
  int dims = c->out->ndim - 2;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  GridRead r = {m, in[0], s.at[0], s.at[1], border_of(c), a->align_corners, dims, nn_accumulator(c->out->dtype)};
  const Expr *point[3], *whole[3];
  for (int d = 0; d < dims; d++) { /* the grid has x first, data has it last */
    const Expr *at[5] = {s.at[0]};
    const Expr *k = expr_i32(m, dims - 1 - d);
    for (int i = 0; i < dims; i++) at[(a->grid_last ? 1 : 2) + i] = s.at[2 + i];
    at[a->grid_last ? dims + 1 : 1] = k;
    bool round_first = method == METHOD_NEAREST && a->round_first;
    bool inside = method != METHOD_CUBIC; /* whose taps are brought inside one by one */
    point[d] = grid_point(&r, d, expr_cast(m, r.dtype, nn_read(m, in[1], at)), round_first, inside);
    whole[d] = expr_cast(m, DT_I32, nn_unary(m, IN_NEARBYINT, point[d]));
  }
  const Expr *value = NULL;
  switch (method) {
  case METHOD_NEAREST: value = grid_read(&r, whole); break;
  case METHOD_LINEAR: value = sample_linear(m, dims, point, grid_read, &r); break;
  case METHOD_CUBIC: value = sample_cubic(m, dims, point, -0.75, grid_read, &r); break;
  }
  *out = nn_finish(&s, "grid_sample", "grid_sample", expr_cast(m, c->out->dtype, value));
}

const OpDef op_image_grid_sample = {
  .name = "image.grid_sample",
  .doc = "data (n, c, spatial…) read at the points of a grid, whose coordinates run from -1 to 1, x first",
  .args = "data, grid",
  .min_args = 2,
  .max_args = 2,
  .attrs = &GridSample_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = grid_sample_type,
  .compute = grid_sample_compute,
};

/* ---- affine_grid -------------------------------------------------------------------------------------- */

static const Type *affine_grid_type(OpCall *c)
{
  const AffineGridAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  nn_want_rank(c, 0, "data", 3);
  const Type *theta = c->arg[0];
  const Expr *const *size = a->target_shape.v;
  int n = a->target_shape.n;
  int skip = 0;
  if (c->nargs > 1) {
    size = op_dims(c, 1, &n);
    skip = 2;
  } else if (!a->target_shape.given) {
    opdef_raise(c, ERR_ARGUMENT, "target_shape is missing, and so is the argument size");
  }
  int dims = n - skip;
  if (dims != 2 && dims != 3)
    opdef_raise(c, ERR_SHAPE, "the grid has %d spatial dimensions, two or three are wanted", dims);
  if (nn_dims_differ(c->m, theta->shape[1], expr_i32(c->m, dims)) ||
      nn_dims_differ(c->m, theta->shape[2], expr_i32(c->m, dims + 1)))
    opdef_raise(c, ERR_SHAPE, "data %s has to be (n, %d, %d)", nn_arg_shape(c, 0), dims, dims + 1);
  const Expr *shape[5] = {theta->shape[0]};
  for (int d = 0; d < dims; d++) shape[(a->grid_last ? 1 : 2) + d] = size[skip + d];
  shape[a->grid_last ? dims + 1 : 1] = expr_i32(c->m, dims);
  return type_tensor(c->m, theta->dtype, dims + 2, shape);
}

/* Coordinate of element i of n between -1 and 1; of a single element, the middle. */
static const Expr *grid_coordinate(Module *m, DType t, const Expr *i, const Expr *n, bool align)
{
  const Expr *x = expr_cast(m, t, i);
  const Expr *extent = expr_cast(m, t, n);
  const Expr *one = expr_const(m, t, 1);
  const Expr *two = expr_const(m, t, 2);
  if (!align) return expr_sub(m, NN_DIV(m, expr_add(m, expr_mul(m, two, x), one), extent), one);
  const Expr *step = NN_DIV(m, two, expr_max(m, expr_sub(m, extent, one), one));
  return expr_select(m, expr_lt(m, n, expr_int(m, n->dtype, 2)), expr_const(m, t, 0),
                     expr_sub(m, expr_mul(m, x, step), one));
}

static void affine_grid_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const AffineGridAttrs *a = c->attrs;
  int dims = c->out->ndim - 2;
  int first = a->grid_last ? 1 : 2;
  DType t = nn_accumulator(c->out->dtype);
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *row = s.at[a->grid_last ? dims + 1 : 1];
  const Expr *sum = NULL;
  for (int k = 0; k <= dims; k++) { /* the matrix has x first */
    const Expr *w = expr_cast(m, t, nn_read(m, in[0], (const Expr *[]){s.at[0], row, expr_i32(m, k)}));
    int d = first + dims - 1 - k;
    const Expr *term =
        k == dims ? w : expr_mul(m, w, grid_coordinate(m, t, s.at[d], c->out->shape[d], a->align_corners));
    sum = sum ? expr_add(m, sum, term) : term;
  }
  *out = nn_finish(&s, "affine_grid", "affine_grid", expr_cast(m, c->out->dtype, sum));
}

const OpDef op_image_affine_grid = {
  .name = "image.affine_grid",
  .doc = "points of a regular grid under the affine maps of data (n, d, d + 1); size (n, c, spatial…) when computed",
  .args = "data, size",
  .min_args = 1,
  .max_args = 2,
  .attrs = &AffineGrid_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = affine_grid_type,
  .compute = affine_grid_compute,
};

/* ---- deformable_conv2d ----------------------------------------------------------------------------------- */

typedef struct Deform {
  int64_t k[2], stride[2], dilation[2], before[2], after[2], groups, parts;
  const Expr *out[2], *per_part; /* windows; channels that share offsets */
} Deform;

static Deform deform_of(OpCall *c)
{
  const DeformableConv2DAttrs *a = c->attrs;
  Deform v = {.groups = a->groups, .parts = a->deformable_groups};
  const Type *x = c->arg[0];
  const Type *w = c->arg[2];
  nn_ints(c, "strides", a->strides, 2, 1, 1, v.stride);
  nn_ints(c, "dilation", a->dilation, 2, 1, 1, v.dilation);
  nn_padding(c, a->padding, 2, v.before, v.after);
  for (int d = 0; d < 2; d++) {
    if (w->shape[2 + d]->kind != E_INT)
      opdef_raise(c, ERR_SHAPE, "the spatial extents of weight %s must be known", nn_arg_shape(c, 2));
    v.k[d] = w->shape[2 + d]->u.i;
    v.out[d] = nn_windows(c, d ? "width" : "height", x->shape[2 + d], v.k[d], v.stride[d], v.dilation[d], v.before[d],
                          v.after[d]);
  }
  if (v.groups < 1 || v.parts < 1) opdef_raise(c, ERR_ARGUMENT, "groups and deformable_groups are at least 1");
  v.per_part = nn_simplify(c->m, expr_floordiv(c->m, x->shape[1], expr_i32(c->m, v.parts)));
  return v;
}

static void want_offsets(OpCall *c, const Deform *v, int i, const char *name, int64_t per_point)
{
  int64_t channels = v->parts * v->k[0] * v->k[1] * per_point;
  const Expr *want[] = {c->arg[0]->shape[0], expr_i32(c->m, channels), v->out[0], v->out[1]};
  nn_want_rank(c, i, name, 4);
  for (int d = 0; d < 4; d++)
    if (nn_dims_differ(c->m, c->arg[i]->shape[d], want[d]))
      opdef_raise(c, ERR_SHAPE, "%s %s has to be %s", name, nn_arg_shape(c, i), nn_shape_text(c->m, 4, want));
}

static const Type *deform_type(OpCall *c)
{
  const DeformableConv2DAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  nn_want_rank(c, 0, "data", 4);
  nn_want_rank(c, 2, "weight", 4);
  if (strcmp(a->data_layout, "NCHW") || strcmp(a->kernel_layout, "OIHW"))
    opdef_raise(c, ERR_UNSUPPORTED, "only the layouts NCHW and OIHW are supported");
  Deform v = deform_of(c);
  const Expr *in = nn_simplify(c->m, expr_mul(c->m, c->arg[2]->shape[1], expr_i32(c->m, v.groups)));
  if (nn_dims_differ(c->m, c->arg[0]->shape[1], in))
    opdef_raise(c, ERR_SHAPE, "data has %s channels, weight %s wants %s with groups=%" PRId64,
                expr_str_of(scratch(c->m->ctx), c->arg[0]->shape[1]), nn_arg_shape(c, 2),
                expr_str_of(scratch(c->m->ctx), in), v.groups);
  want_offsets(c, &v, 1, "offset", 2);
  if (c->nargs > 3) want_offsets(c, &v, 3, "mask", 1);
  return type_tensor(c->m, c->arg[0]->dtype, 4,
                     (const Expr *[]){c->arg[0]->shape[0], c->arg[2]->shape[0], v.out[0], v.out[1]});
}

static const Type *deform_operand(OpCall *c, int i)
{
  const DeformableConv2DAttrs *a = c->attrs;
  const Type *data = c->arg[0];
  if (i != 2 || !data || data->ndim != 4 || !a->channels || a->groups < 1) return NULL;
  Layout kernel = nn_layout(c, "kernel_layout", a->kernel_layout);
  return nn_operand_weight(c, &kernel, "OIHW", expr_i32(c->m, a->channels),
                           nn_simplify(c->m, expr_floordiv(c->m, data->shape[1], expr_i32(c->m, a->groups))),
                           a->kernel_size);
}

/* deform[n, c, i, j, y, x]: what the kernel's element (i, j) sees at the window (y, x). */
static const Tensor *deform_stage(OpCall *c, const Deform *v, const Tensor *const *in)
{
  Module *m = c->m;
  DType t = nn_accumulator(c->out->dtype);
  const Expr *const *x = in[0]->buffer->shape,
                    *shape[] = {x[0], x[1], expr_i32(m, v->k[0]), expr_i32(m, v->k[1]), v->out[0], v->out[1]};
  Stage s = nn_stage(m, 6, shape, "n c kh kw y x");
  const Expr *part = v->parts == 1 ? expr_i32(m, 0) : expr_floordiv(m, s.at[1], v->per_part);
  const Expr *point[2];
  const Expr *element = expr_add(m, expr_mul(m, expr_add(m, expr_mul(m, part, shape[2]), s.at[2]), shape[3]), s.at[3]);
  for (int d = 0; d < 2; d++) {
    const Expr *channel = expr_add(m, expr_mul(m, element, expr_i32(m, 2)), expr_i32(m, d));
    const Expr *offset = expr_cast(m, t, nn_read(m, in[1], (const Expr *[]){s.at[0], channel, s.at[4], s.at[5]}));
    const Expr *base = expr_sub(m,
                                expr_add(m, expr_mul(m, s.at[4 + d], expr_i32(m, v->stride[d])),
                                         expr_mul(m, s.at[2 + d], expr_i32(m, v->dilation[d]))),
                                expr_i32(m, v->before[d]));
    const Expr *p = expr_add(m, expr_cast(m, t, base), offset);
    const Expr *n = expr_cast(m, t, x[2 + d]);
    point[d] = limited(m, p, expr_const(m, t, -8), expr_add(m, n, expr_const(m, t, 8)));
  }
  GridRead r = {m, in[0], s.at[0], s.at[1], BORDER_ZEROS, true, 2, t};
  const Expr *value = sample_linear(m, 2, point, grid_read, &r);
  if (c->nargs > 3)
    value =
        expr_mul(m, value, expr_cast(m, t, nn_read(m, in[3], (const Expr *[]){s.at[0], element, s.at[4], s.at[5]})));
  return nn_finish(&s, "data_deform", "injective", value);
}

static void deform_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Deform v = deform_of(c);
  const Tensor *x = deform_stage(c, &v, in);
  DType t = x->buffer->dtype;
  const Expr *const *w = in[2]->buffer->shape;
  Stage s = nn_stage(m, 4, c->out->shape, "nn ff yy xx");
  const Expr *rc = nn_reduce_axis(&s, "rc", w[1]);
  const Expr *ry = nn_reduce_axis(&s, "ry", w[2]);
  const Expr *rx = nn_reduce_axis(&s, "rx", w[3]);
  const Expr *channel = rc;
  if (v.groups > 1) {
    const Expr *group = nn_simplify(m, expr_floordiv(m, w[0], expr_i32(m, v.groups)));
    channel = expr_add(m, expr_mul(m, expr_floordiv(m, s.at[1], group), w[1]), rc);
  }
  const Expr *term = expr_mul(m, nn_read(m, x, (const Expr *[]){s.at[0], channel, ry, rx, s.at[2], s.at[3]}),
                              expr_cast(m, t, nn_read(m, in[2], (const Expr *[]){s.at[1], rc, ry, rx})));
  const Tensor *sum = nn_finish(&s, "deformable_conv2d_nchw", "deformable_conv2d_nchw", nn_reduce(&s, "sum", term));
  if (dtype_eq(t, c->out->dtype)) {
    *out = sum;
    return;
  }
  Stage e = nn_stage(m, 4, c->out->shape, NULL);
  *out = nn_finish(&e, "T_cast", "elemwise", expr_cast(m, c->out->dtype, nn_read(m, sum, e.at)));
}

const OpDef op_nn_deformable_conv2d = {
  .name = "nn.deformable_conv2d",
  .doc = "convolution whose kernel's elements are moved by offset (n, parts * kh * kw * 2, y, x) and weighted by mask",
  .args = "data, offset, weight, mask",
  .min_args = 3,
  .max_args = 4,
  .attrs = &DeformableConv2D_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .type = deform_type,
  .operand = deform_operand,
  .compute = deform_compute,
};
