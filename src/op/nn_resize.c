/* nn_resize.c: image.resize1d/2d/3d, image.resize (any axes, ONNX's options), nn.upsampling.
 *
 * Resizing works axis by axis: for each output position its place in the input
 * (coordinate_transformation_mode), then the nearest element or a weighted sum of those
 * around it.  Places outside read the border; tf_crop_and_resize gives extrapolation_value
 * there.  Places are computed in float64, so that they round as the exact numbers do. */
#include "op/nn_kit.h"

#include <math.h>

DEFINE_ATTRS_TABLE(Resize1D, RESIZE1D_ATTRS)
DEFINE_ATTRS_TABLE(Resize2D, RESIZE2D_ATTRS)
DEFINE_ATTRS_TABLE(Resize3D, RESIZE3D_ATTRS)
DEFINE_ATTRS_TABLE(Resize, RESIZE_ND_ATTRS)
DEFINE_ATTRS_TABLE(Upsampling, UPSAMPLING_ATTRS)

typedef enum { METHOD_NEAREST, METHOD_LINEAR, METHOD_CUBIC } Method;
typedef enum {
  HALF_PIXEL,
  ALIGN_CORNERS,
  ASYMMETRIC,
  PYTORCH_HALF_PIXEL,
  TF_HALF_PIXEL,
  CROP_AND_RESIZE,
  HALF_PIXEL_SYMMETRIC
} Mode;
typedef enum { ROUND_AWAY, ROUND_FLOOR, ROUND_CEIL, ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL } Rounding;

typedef struct ResizeAxis {
  int axis;
  const Expr *in, *out;    /* extents */
  const Expr *scale;       /* out / in, or as given; float64 */
  const Expr *width;       /* the output's extent; with a scale given, not rounded: in * scale; float64 */
  const Expr *start, *end; /* crop_and_resize: of the part taken, 0 … 1; float64 */
} ResizeAxis;

typedef struct ResizePlan {
  Method method;
  Mode mode;
  Rounding rounding;
  double cubic_a, extrapolation;
  bool exclude, antialias;
  int n;
  ResizeAxis axis[MAX_RANK];
} ResizePlan;

static int word_of(OpCall *c, const char *what, const char *word, const char *const *words, int n)
{
  Text t = text_new(scratch(c->m->ctx));
  for (int i = 0; i < n; i++) {
    if (!strcmp(word, words[i])) return i;
    text_printf(&t, "%s%s", i ? ", " : "", words[i]);
  }
  opdef_raise(c, ERR_ARGUMENT, "%s '%s' is not one of %s", what, word, text_str(&t));
}

static void plan_modes(OpCall *c, ResizePlan *p, const char *method, const char *mode, const char *rounding)
{
  static const char *const methods[] = {"nearest_neighbor", "linear", "cubic"};
  static const char *const modes[] = {"half_pixel",          "align_corners",        "asymmetric",
                                      "pytorch_half_pixel",  "tf_half_pixel_for_nn", "tf_crop_and_resize",
                                      "half_pixel_symmetric"};
  static const char *const roundings[] = {"round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"};
  p->method = (Method)word_of(c, "method", method, methods, 3);
  p->mode = (Mode)word_of(c, "coordinate_transformation_mode", mode, modes, 7);
  p->rounding = p->mode == ALIGN_CORNERS ? ROUND_AWAY : ROUND_FLOOR;
  if (rounding && *rounding) p->rounding = (Rounding)word_of(c, "rounding_method", rounding, roundings, 5);
}

/* ---- where an output position lies in the input ------------------------------------------------------- */

static const Expr *f64(Module *m, const Expr *e) { return expr_cast(m, DT_F64, e); }
static const Expr *num(Module *m, double v) { return expr_const(m, DT_F64, v); }

static const Expr *place_of(Module *m, const ResizePlan *p, const ResizeAxis *a, const Expr *at)
{
  const Expr *x = f64(m, at);
  const Expr *in = f64(m, a->in);
  const Expr *half = num(m, 0.5);
  const Expr *one = num(m, 1);
  const Expr *centred = expr_sub(m, NN_DIV(m, expr_add(m, x, half), a->scale), half);
  const Expr *single = expr_binary(m, E_EQ, a->width, one);
  const Expr *steps = expr_select(m, single, one, expr_sub(m, a->width, one));
  const Expr *last = expr_sub(m, in, one);
  switch (p->mode) {
  case HALF_PIXEL: return centred;
  case ALIGN_CORNERS: return NN_DIV(m, expr_mul(m, x, last), steps);
  case ASYMMETRIC: return NN_DIV(m, x, a->scale);
  case PYTORCH_HALF_PIXEL: return expr_select(m, expr_lt(m, a->out, expr_i32(m, 2)), num(m, 0), centred);
  case TF_HALF_PIXEL: return NN_DIV(m, expr_add(m, x, half), a->scale);
  case CROP_AND_RESIZE: {
    const Expr *step = NN_DIV(m, expr_mul(m, expr_sub(m, a->end, a->start), last), steps);
    const Expr *middle = expr_mul(m, half, expr_mul(m, expr_add(m, a->start, a->end), last));
    return expr_select(m, single, middle, expr_add(m, expr_mul(m, a->start, last), expr_mul(m, x, step)));
  }
  case HALF_PIXEL_SYMMETRIC: {
    const Expr *adjust = NN_DIV(m, f64(m, a->out), expr_mul(m, in, a->scale));
    return expr_add(m, expr_mul(m, expr_mul(m, in, half), expr_sub(m, one, adjust)), centred);
  }
  }
  BUG(m->ctx, "resize mode %d", p->mode);
}

static const Expr *inside_index(Module *m, const Expr *i, const Expr *n)
{
  return expr_max(m, expr_min(m, i, expr_sub(m, n, expr_i32(m, 1))), expr_i32(m, 0));
}

/* floor as an index; a place far outside is brought near first, so that nothing overflows. */
static const Expr *whole(Module *m, Intrin round, const Expr *x, const Expr *n)
{
  const Expr *near = expr_max(m, expr_min(m, x, expr_add(m, f64(m, n), num(m, 8))), num(m, -8));
  return expr_cast(m, DT_I32, nn_unary(m, round, near));
}

/* Nearest by a whole factor k: position x comes from x / k, which every rounding agrees on. */
static int64_t whole_factor(const ResizePlan *p, const ResizeAxis *a)
{
  bool centred = (p->mode == HALF_PIXEL || p->mode == HALF_PIXEL_SYMMETRIC) && p->rounding != ROUND_FLOOR &&
                 p->rounding != ROUND_CEIL;
  if (!centred && !(p->mode == ASYMMETRIC && p->rounding == ROUND_FLOOR)) return 0;
  if (a->in->kind != E_INT || a->out->kind != E_INT || a->in->u.i == 0 || a->out->u.i % a->in->u.i) return 0;
  int64_t k = a->out->u.i / a->in->u.i;
  return a->scale->kind == E_FLOAT && a->scale->u.f == (double)k ? k : 0;
}

static const Expr *nearest_index(Module *m, const ResizePlan *p, const ResizeAxis *a, const Expr *at)
{
  int64_t k = whole_factor(p, a);
  if (k > 0) return k == 1 ? at : expr_floordiv(m, at, expr_i32(m, k));
  const Expr *x = place_of(m, p, a, at);
  const Expr *half = num(m, 0.5);
  switch (p->rounding) {
  case ROUND_AWAY: return inside_index(m, whole(m, IN_ROUND, x, a->in), a->in);
  case ROUND_FLOOR: return inside_index(m, whole(m, IN_FLOOR, x, a->in), a->in);
  case ROUND_CEIL: return inside_index(m, whole(m, IN_CEIL, x, a->in), a->in);
  case ROUND_PREFER_FLOOR: return inside_index(m, whole(m, IN_CEIL, expr_sub(m, x, half), a->in), a->in);
  case ROUND_PREFER_CEIL: return inside_index(m, whole(m, IN_FLOOR, expr_add(m, x, half), a->in), a->in);
  }
  BUG(m->ctx, "rounding %d", p->rounding);
}

/* ---- one axis --------------------------------------------------------------------------------------- */

/* Weight of an element at distance x (not negative) from the place. */
static const Expr *kernel_at(Module *m, const ResizePlan *p, DType t, const Expr *x)
{
#define K(v) expr_const(m, t, v)
  const Expr *zero = K(0);
  const Expr *one = K(1);
  double a = p->cubic_a;
  if (p->method == METHOD_LINEAR) return expr_max(m, expr_sub(m, one, x), zero);
  const Expr *near = expr_add(m, expr_mul(m, expr_mul(m, expr_sub(m, expr_mul(m, K(a + 2), x), K(a + 3)), x), x), one);
  const Expr *far = expr_sub(
      m, expr_mul(m, expr_add(m, expr_mul(m, expr_sub(m, expr_mul(m, K(a), x), K(5 * a)), x), K(8 * a)), x), K(4 * a));
  return expr_select(m, expr_binary(m, E_LE, x, one), near, expr_select(m, expr_lt(m, x, K(2)), far, zero));
#undef K
}

static Stage axis_stage(Module *m, const Tensor *in, const ResizeAxis *a)
{
  const Expr *shape[MAX_RANK];
  for (int d = 0; d < in->buffer->ndim; d++) shape[d] = d == a->axis ? a->out : in->buffer->shape[d];
  return nn_stage(m, in->buffer->ndim, shape, NULL);
}

static const Expr *read_at(Stage *s, const Tensor *in, const ResizeAxis *a, DType t, const Expr *i)
{
  const Expr *index[MAX_RANK];
  for (int d = 0; d < s->n; d++) index[d] = s->at[d];
  index[a->axis] = inside_index(s->m, i, a->in);
  return expr_cast(s->m, t, nn_read(s->m, in, index));
}

/* What each output position takes from tap k of its two or four: an index and a weight.  They depend on the position
 * alone, so they are stages of their own: short tables. */
static void axis_tables(Module *m, const ResizePlan *p, const ResizeAxis *a, DType t, int k, const Tensor **index,
                        const Tensor **weight)
{
  int first = p->method == METHOD_LINEAR ? 0 : -1;
  int count = p->method == METHOD_LINEAR ? 2 : 4;
  for (int part = 0; part < 2; part++) {
    Stage s = nn_stage(m, 1, &a->out, NULL);
    const Expr *x = place_of(m, p, a, s.at[0]);
    const Expr *low = whole(m, IN_FLOOR, x, a->in);
    const Expr *own = NULL;
    const Expr *total = NULL;
    if (!part) {
      *index = nn_finish(&s, "resize_index", "injective", inside_index(m, expr_add(m, low, expr_i32(m, k)), a->in));
      continue;
    }
    const Expr *ratio = expr_cast(m, t, expr_sub(m, x, nn_unary(m, IN_FLOOR, x)));
    bool exclude = p->exclude && p->method == METHOD_CUBIC;
    for (int i = exclude ? first : k; i < (exclude ? first + count : k + 1); i++) {
      const Expr *d = i > 0 ? expr_sub(m, expr_const(m, t, i), ratio) : expr_sub(m, ratio, expr_const(m, t, i));
      const Expr *w = kernel_at(m, p, t, d);
      if (exclude) w = expr_select(m, nn_inside(m, expr_add(m, low, expr_i32(m, i)), a->in), w, expr_const(m, t, 0));
      total = total ? expr_add(m, total, w) : w;
      if (i == k) own = w;
    }
    *weight = nn_finish(&s, "resize_weight", "injective", exclude ? NN_DIV(m, own, total) : own);
  }
}

/* Two or four elements around the place. */
static const Tensor *resize_axis(Module *m, const ResizePlan *p, const ResizeAxis *a, const Tensor *in, DType t)
{
  Stage s = axis_stage(m, in, a);
  int first = p->method == METHOD_LINEAR ? 0 : -1;
  int count = p->method == METHOD_LINEAR ? 2 : 4;
  const Expr *sum = NULL;
  const Expr *from[MAX_RANK];
  for (int d = 0; d < s.n; d++) from[d] = s.at[d];
  for (int k = first; k < first + count; k++) {
    const Tensor *index = NULL;
    const Tensor *weight = NULL;
    axis_tables(m, p, a, t, k, &index, &weight);
    from[a->axis] = nn_read1(m, index, s.at[a->axis]);
    const Expr *term = expr_mul(m, nn_read1(m, weight, s.at[a->axis]), expr_cast(m, t, nn_read(m, in, from)));
    sum = sum ? expr_add(m, sum, term) : term;
  }
  return nn_finish(&s, "resize", "injective,resize", sum);
}

/* All elements under a kernel widened by 1 / scale, their weights brought to a sum of one. */
static const Tensor *resize_antialias(Module *m, const ResizePlan *p, const ResizeAxis *a, const Tensor *in, DType t)
{
  int radius = p->method == METHOD_LINEAR ? 1 : 2;
  const Expr *reach = nn_simplify(
      m, expr_max(m, nn_ceildiv(m, expr_mul(m, a->in, expr_i32(m, radius)), expr_max(m, a->out, expr_i32(m, 1))),
                  expr_i32(m, radius)));
  const Expr *taps = nn_simplify(m, expr_add(m, expr_mul(m, reach, expr_i32(m, 2)), expr_i32(m, 1)));
  const Expr *narrow = expr_min(m, a->scale, num(m, 1));
  const Tensor *total = NULL;
  for (int pass = 0;; pass++) {
    Stage s = pass ? axis_stage(m, in, a) : nn_stage(m, 1, &a->out, NULL);
    const Expr *k = nn_reduce_axis(&s, "k", taps);
    const Expr *x = place_of(m, p, a, s.at[pass ? a->axis : 0]);
    const Expr *at = expr_add(m, whole(m, IN_FLOOR, x, a->in), expr_sub(m, k, reach));
    const Expr *w =
        kernel_at(m, p, t, expr_cast(m, t, expr_mul(m, nn_unary(m, IN_ABS, expr_sub(m, x, f64(m, at))), narrow)));
    if (p->exclude) w = expr_select(m, nn_inside(m, at, a->in), w, expr_const(m, t, 0));
    if (!pass) {
      total = nn_finish(&s, "resize_weight", "comm_reduce", nn_reduce(&s, "sum", w));
      continue;
    }
    w = NN_DIV(m, w, nn_read1(m, total, s.at[a->axis]));
    return nn_finish(&s, "resize", "resize_antialias", nn_reduce(&s, "sum", expr_mul(m, w, read_at(&s, in, a, t, at))));
  }
}

/* ---- all axes ------------------------------------------------------------------------------------------ */

static bool is_identity(const ResizePlan *p, const ResizeAxis *a)
{
  bool same = a->in == a->out || (a->in->kind == E_INT && a->out->kind == E_INT && a->in->u.i == a->out->u.i);
  return same && p->mode != CROP_AND_RESIZE && p->mode != TF_HALF_PIXEL && a->scale->kind == E_FLOAT &&
         a->scale->u.f == 1;
}

/* An index that is more than a division stands in a short table, as those of axis_tables do. */
static const Expr *nearest_from(Stage *s, const ResizePlan *p, const ResizeAxis *a)
{
  Module *m = s->m;
  if (whole_factor(p, a)) return nn_index(s, nearest_index(m, p, a, s->at[a->axis]));
  Stage table = nn_stage(m, 1, &a->out, NULL);
  const Expr *from = nearest_index(m, p, a, table.at[0]);
  return nn_read1(m, nn_finish(&table, "resize_index", "injective", from), s->at[a->axis]);
}

static const Tensor *resize_nearest(OpCall *c, const ResizePlan *p, const Tensor *in)
{
  Stage s = nn_stage(c->m, c->out->ndim, c->out->shape, NULL);
  const Expr *index[MAX_RANK];
  for (int d = 0; d < s.n; d++) index[d] = s.at[d];
  for (int i = 0; i < p->n; i++) {
    const ResizeAxis *a = &p->axis[i];
    if (!is_identity(p, a)) index[a->axis] = nearest_from(&s, p, a);
  }
  return nn_finish(&s, "resize", "injective,resize", nn_read(c->m, in, index));
}

/* Where every axis is inside [0, in - 1], the value, else the extrapolation. */
static const Expr *cropped(Module *m, const ResizePlan *p, const Stage *s, const Expr *value)
{
  const Expr *cond = NULL;
  for (int i = 0; i < p->n; i++) {
    const ResizeAxis *a = &p->axis[i];
    const Expr *x = place_of(m, p, a, s->at[a->axis]);
    const Expr *last = expr_sub(m, f64(m, a->in), num(m, 1));
    cond = nn_and(m, cond, expr_and(m, expr_binary(m, E_GE, x, num(m, 0)), expr_binary(m, E_LE, x, last)));
  }
  return cond ? expr_select(m, cond, value, expr_const(m, value->dtype, p->extrapolation)) : value;
}

static const Tensor *resize_stages(OpCall *c, const ResizePlan *p, const Tensor *in)
{
  Module *m = c->m;
  const Tensor *x = in;
  DType t = dtype_eq(in->buffer->dtype, DT_F64) ? DT_F64 : DT_F32;
  if (p->method == METHOD_NEAREST) x = resize_nearest(c, p, in);
  for (int i = 0; p->method != METHOD_NEAREST && i < p->n; i++) {
    if (is_identity(p, &p->axis[i])) continue;
    x = p->antialias ? resize_antialias(m, p, &p->axis[i], x, t) : resize_axis(m, p, &p->axis[i], x, t);
  }
  if (p->mode != CROP_AND_RESIZE && dtype_eq(x->buffer->dtype, c->out->dtype) && x != in) return x;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *value = nn_read(m, x, s.at);
  if (p->mode == CROP_AND_RESIZE) value = cropped(m, p, &s, value);
  return nn_finish(&s, "resize_out", "injective", expr_cast(m, c->out->dtype, value));
}

/* out / in, exact where both are known. */
static const Expr *scale_of(Module *m, const Expr *in, const Expr *out)
{
  if (in->kind == E_INT && out->kind == E_INT && in->u.i > 0) return num(m, (double)out->u.i / (double)in->u.i);
  return NN_DIV(m, f64(m, out), f64(m, in));
}

static void want_resizable(OpCall *c, const Expr *in, const Expr *out)
{
  if (expr_is_int(in, 0) && !expr_is_int(out, 0))
    opdef_raise(c, ERR_SHAPE, "data %s has nothing to resize", nn_arg_shape(c, 0));
  if (out->kind == E_INT && out->u.i < 0) opdef_raise(c, ERR_SHAPE, "the size %" PRId64 " is negative", out->u.i);
}

/* ---- image.resize1d, 2d, 3d ------------------------------------------------------------------------------ */

static const char *resize_spatial(const OpDef *op)
{
  return op->attrs == &Resize1D_attrs ? "W" : op->attrs == &Resize3D_attrs ? "DHW" : "HW";
}

static Layout resize_layout(OpCall *c, const char *text, const char *spatial)
{
  Layout l = nn_layout(c, "layout", text);
  bool ok = true;
  for (const char *p = spatial; *p; p++) ok &= layout_find(&l, *p) >= 0 && !layout_is_split(&l, *p);
  if (!ok) opdef_raise(c, ERR_ARGUMENT, "layout '%s' needs the whole dimensions %s", text, spatial);
  nn_want_rank(c, 0, "data", l.n);
  return l;
}

static ResizePlan spatial_plan(OpCall *c)
{
  Module *m = c->m;
  const Resize2DAttrs *a = c->attrs;
  const char *spatial = resize_spatial(c->op);
  int n = (int)strlen(spatial);
  Layout l = resize_layout(c, a->layout, spatial);
  ResizePlan p = {
    .cubic_a = a->cubic_alpha, .extrapolation = a->extrapolation_value, .exclude = a->cubic_exclude != 0, .n = n};
  plan_modes(c, &p, a->method, a->coordinate_transformation_mode, a->rounding_method);
  if (a->size.n != n && a->size.n != 1)
    opdef_raise(c, ERR_ARGUMENT, "size has %d numbers, %d are wanted", a->size.n, n);
  if (p.mode == CROP_AND_RESIZE && a->roi.n != 2 * n)
    opdef_raise(c, ERR_ARGUMENT, "roi has %d numbers, %d are wanted", a->roi.n, 2 * n);
  for (int i = 0; i < n; i++) {
    int axis = layout_find(&l, spatial[i]);
    const Expr *in = c->arg[0]->shape[axis];
    const Expr *out = a->size.v[a->size.n == 1 ? 0 : i];
    p.axis[i] = (ResizeAxis){.axis = axis, .in = in, .out = out, .scale = scale_of(m, in, out), .width = f64(m, out)};
    if (p.mode == CROP_AND_RESIZE) p.axis[i].start = num(m, a->roi.v[i]), p.axis[i].end = num(m, a->roi.v[n + i]);
    want_resizable(c, in, out);
  }
  return p;
}

static const Type *planned_type(OpCall *c, const ResizePlan *p, DType out_dtype)
{
  const Type *data = c->arg[0];
  const Expr *shape[MAX_RANK];
  for (int d = 0; d < data->ndim; d++) shape[d] = data->shape[d];
  for (int i = 0; i < p->n; i++) shape[p->axis[i].axis] = p->axis[i].out;
  return type_tensor(c->m, out_dtype.code == DT_VOID ? data->dtype : out_dtype, data->ndim, shape);
}

static const Type *spatial_resize_type(OpCall *c)
{
  ResizePlan p = spatial_plan(c);
  return planned_type(c, &p, ((const Resize2DAttrs *)c->attrs)->out_dtype);
}

static void spatial_resize_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  ResizePlan p = spatial_plan(c);
  *out = resize_stages(c, &p, in[0]);
}

static const void *spatial_resize_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  Resize2DAttrs *a = attrs_copy(c->m, c->op->attrs, c->attrs);
  if (!arg[0].from) arg[0] = (LayoutPair){a->layout, a->layout};
  if (strcmp(arg[0].from, a->layout) || !layout_keeps(c, arg[0].from, arg[0].to, resize_spatial(c->op))) return NULL;
  a->layout = arg[0].to;
  out[0] = arg[0];
  return a;
}

#define RESIZE_OP(id, text, list, how)                       \
  const OpDef id = {                                         \
    .name = text,                                            \
    .doc = "data at another size of its spatial dimensions", \
    .args = "data",                                          \
    .min_args = 1,                                           \
    .max_args = 1,                                           \
    .attrs = &list,                                          \
    .fuse = FUSE_INJECTIVE,                                  \
    .narrow = how,                                           \
    .type = spatial_resize_type,                             \
    .compute = spatial_resize_compute,                       \
    .layout = spatial_resize_layout,                         \
  };
RESIZE_OP(op_image_resize1d, "image.resize1d", Resize1D_attrs, NARROW_UNKNOWN)
RESIZE_OP(op_image_resize2d, "image.resize2d", Resize2D_attrs, NARROW_FOLLOW)
RESIZE_OP(op_image_resize3d, "image.resize3d", Resize3D_attrs, NARROW_UNKNOWN)

/* ---- image.resize ------------------------------------------------------------------------------------------- */

static int resize_input(OpCall *c, const char *name)
{
  const ResizeAttrs *a = c->attrs;
  for (int i = 0; i < a->inputs.n; i++)
    if (!strcmp(a->inputs.v[i], name)) return 1 + i;
  return 0;
}

static int resize_axes(OpCall *c, int *axes)
{
  const ResizeAttrs *a = c->attrs;
  int ndim = nn_tensor(c, 0, "data")->ndim;
  int n = a->axes.given ? a->axes.n : ndim;
  if (ndim > MAX_RANK) opdef_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", MAX_RANK, ndim);
  if (n > ndim) opdef_raise(c, ERR_ARGUMENT, "axes names %d axes, data %s has %d", n, nn_arg_shape(c, 0), ndim);
  for (int i = 0; i < n; i++) {
    axes[i] = a->axes.given ? nn_axis_of(c, a->axes.v[i], ndim) : i;
    for (int j = 0; j < i; j++)
      if (axes[j] == axes[i]) opdef_raise(c, ERR_ARGUMENT, "axis %d is named twice", axes[i]);
  }
  if (1 + a->inputs.n != c->nargs)
    opdef_raise(c, ERR_ARGUMENT, "inputs names %d arguments after data, %d are given", a->inputs.n, c->nargs - 1);
  return n;
}

/* The elements of an argument (type rule) or of an attribute as float64; NULL when neither is there. */
static const Expr *const *numbers_of(OpCall *c, const char *name, AttrF64s attr, int want)
{
  Module *m = c->m;
  int i = resize_input(c, name);
  int n = attr.n;
  const Expr **out = arena_array(m->arena, const Expr *, want);
  if (!i && !attr.given) return NULL;
  const Expr *const *value = i ? op_values(c, i, &n) : NULL;
  if (n != want) opdef_raise(c, ERR_SHAPE, "%s has %d numbers, %d are wanted", name, n, want);
  for (int k = 0; k < n; k++) out[k] = i ? nn_simplify(m, f64(m, value[k])) : num(m, attr.v[k]);
  return out;
}

static const Expr *const *sizes_of(OpCall *c, int want)
{
  const ResizeAttrs *a = c->attrs;
  int i = resize_input(c, "sizes");
  int n = a->sizes.n;
  if (!i && !a->sizes.given) return NULL;
  const Expr *const *size = i ? op_dims(c, i, &n) : a->sizes.v;
  if (n != want) opdef_raise(c, ERR_SHAPE, "sizes has %d numbers, %d are wanted", n, want);
  return size;
}

/* floor(extent * factor) in float32, as a factor is given. */
static const Expr *scaled_extent(Module *m, const Expr *in, const Expr *factor, bool half_up)
{
  if (in->kind == E_INT && factor->kind == E_FLOAT) {
    float v = (float)in->u.i * (float)factor->u.f;
    double whole = floor(half_up ? (double)v + 0.5 : (double)v);
    return expr_i32(m, whole > INT32_MAX ? INT32_MAX : (int64_t)whole);
  }
  const Expr *v = expr_mul(m, expr_cast(m, DT_F32, in), expr_cast(m, DT_F32, factor));
  if (half_up) v = expr_add(m, v, expr_const(m, DT_F32, 0.5));
  return nn_simplify(m, expr_cast(m, DT_I32, nn_unary(m, IN_FLOOR, v)));
}

/* Sizes that keep the ratio of the extents: one factor for all. */
static void keep_ratio(OpCall *c, ResizePlan *p, bool larger)
{
  Module *m = c->m;
  const Expr *factor = p->axis[0].scale;
  for (int i = 1; i < p->n; i++)
    factor = nn_simplify(m, expr_binary(m, larger ? E_MAX : E_MIN, factor, p->axis[i].scale));
  for (int i = 0; i < p->n; i++) {
    p->axis[i].scale = factor;
    p->axis[i].out = scaled_extent(m, p->axis[i].in, factor, true);
  }
}

static void plan_extents(OpCall *c, ResizePlan *p, const Expr *const *roi)
{
  Module *m = c->m;
  const ResizeAttrs *a = c->attrs;
  const Expr *const *size = sizes_of(c, p->n), *const *scale = size ? NULL : numbers_of(c, "scales", a->scales, p->n);
  if (!size && !scale) opdef_raise(c, ERR_ARGUMENT, "one of sizes and scales is wanted");
  for (int i = 0; i < p->n; i++) {
    ResizeAxis *x = &p->axis[i];
    if (scale && scale[i]->kind == E_FLOAT && !(scale[i]->u.f > 0))
      opdef_raise(c, ERR_ARGUMENT, "the scale %g is not positive", scale[i]->u.f);
    const Expr *part = scale && roi && p->mode == CROP_AND_RESIZE
                           ? nn_simplify(m, expr_mul(m, scale[i], expr_sub(m, roi[p->n + i], roi[i])))
                           : NULL;
    x->out = size ? size[i] : scaled_extent(m, x->in, part ? part : scale[i], false);
    x->scale = size ? scale_of(m, x->in, x->out) : scale[i];
  }
  static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
  int policy = word_of(c, "keep_aspect_ratio_policy", a->keep_aspect_ratio_policy, policies, 3);
  if (size && policy) keep_ratio(c, p, policy == 2);
  for (int i = 0; i < p->n; i++) want_resizable(c, p->axis[i].in, p->axis[i].out);
}

static ResizePlan resize_options(OpCall *c)
{
  const ResizeAttrs *a = c->attrs;
  int axes[MAX_RANK];
  ResizePlan p = {.cubic_a = a->cubic_alpha,
                  .extrapolation = a->extrapolation_value,
                  .exclude = a->cubic_exclude != 0,
                  .antialias = a->antialias};
  p.n = resize_axes(c, axes);
  plan_modes(c, &p, a->method, a->coordinate_transformation_mode, a->rounding_method);
  for (int i = 0; i < p.n; i++) p.axis[i] = (ResizeAxis){.axis = axes[i], .in = c->arg[0]->shape[axes[i]]};
  return p;
}

static const Type *resize_type(OpCall *c)
{
  const ResizeAttrs *a = c->attrs;
  ResizePlan p = resize_options(c);
  const Expr *const *roi = numbers_of(c, "roi", a->roi, 2 * p.n);
  if (p.mode == CROP_AND_RESIZE && !roi) opdef_raise(c, ERR_ARGUMENT, "tf_crop_and_resize needs roi");
  plan_extents(c, &p, roi);
  return planned_type(c, &p, a->out_dtype);
}

/* Element i of a computed argument, or of the attribute. */
static const Expr *given(OpCall *c, const Tensor *const *in, const char *name, AttrF64s attr, int i)
{
  int k = resize_input(c, name);
  return k ? f64(c->m, nn_read1(c->m, in[k], expr_i32(c->m, i))) : num(c->m, attr.v[i]);
}

static void resize_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const ResizeAttrs *a = c->attrs;
  ResizePlan p = resize_options(c);
  bool sizes = a->sizes.given || resize_input(c, "sizes");
  bool ratio = strcmp(a->keep_aspect_ratio_policy, "stretch") != 0;
  for (int i = 0; i < p.n; i++) {
    ResizeAxis *x = &p.axis[i];
    x->out = c->out->shape[x->axis];
    x->scale = sizes ? scale_of(m, x->in, ratio && a->sizes.given ? a->sizes.v[i] : x->out)
                     : given(c, in, "scales", a->scales, i);
    if (sizes && ratio && !a->sizes.given)
      x->scale = NN_DIV(m, f64(m, nn_read1(m, in[resize_input(c, "sizes")], expr_i32(m, i))), f64(m, x->in));
    x->width = sizes ? f64(m, x->out) : expr_mul(m, f64(m, x->in), x->scale);
    if (p.mode == CROP_AND_RESIZE)
      x->start = given(c, in, "roi", a->roi, i), x->end = given(c, in, "roi", a->roi, p.n + i);
  }
  if (sizes && ratio) {
    bool larger = !strcmp(a->keep_aspect_ratio_policy, "not_smaller");
    const Expr *factor = p.axis[0].scale;
    for (int i = 1; i < p.n; i++)
      factor = nn_simplify(m, expr_binary(m, larger ? E_MAX : E_MIN, factor, p.axis[i].scale));
    for (int i = 0; i < p.n; i++) p.axis[i].scale = factor;
  }
  *out = resize_stages(c, &p, in[0]);
}

const OpDef op_image_resize = {
  .name = "image.resize",
  .doc = "data at another size of some axes; sizes, scales and roi as attributes, or computed",
  .args = "data, sizes, scales, roi",
  .min_args = 1,
  .max_args = 4,
  .attrs = &Resize_attrs,
  .fuse = FUSE_OPAQUE,
  .type = resize_type,
  .compute = resize_compute,
};

/* ---- nn.upsampling --------------------------------------------------------------------------------------------- */

static ResizePlan upsampling_plan(OpCall *c)
{
  Module *m = c->m;
  const UpsamplingAttrs *a = c->attrs;
  Layout l = resize_layout(c, a->layout, "HW");
  const char *method = str_starts(a->method, "bi") ? a->method + 2 : a->method;
  ResizePlan p = {.cubic_a = -0.5, .n = 2};
  plan_modes(c, &p, method, a->align_corners ? "align_corners" : "asymmetric", "");
  for (int i = 0; i < 2; i++) {
    int axis = layout_find(&l, "HW"[i]);
    const Expr *in = c->arg[0]->shape[axis];
    double scale = i ? a->scale_w : a->scale_h;
    if (!(scale > 0)) opdef_raise(c, ERR_ARGUMENT, "scale_%c is %g, a positive number is wanted", "hw"[i], scale);
    const Expr *out = scale == floor(scale) && scale < INT32_MAX
                          ? nn_simplify(m, expr_mul(m, in, expr_int(m, in->dtype, (int64_t)scale)))
                          : scaled_extent(m, in, num(m, scale), true);
    p.axis[i] = (ResizeAxis){.axis = axis, .in = in, .out = out, .scale = scale_of(m, in, out), .width = f64(m, out)};
  }
  return p;
}

static const Type *upsampling_type(OpCall *c)
{
  ResizePlan p = upsampling_plan(c);
  return planned_type(c, &p, DT_NONE);
}

static void upsampling_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  ResizePlan p = upsampling_plan(c);
  *out = resize_stages(c, &p, in[0]);
}

static const void *upsampling_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  UpsamplingAttrs *a = attrs_copy(c->m, &Upsampling_attrs, c->attrs);
  if (!arg[0].from) arg[0] = (LayoutPair){a->layout, a->layout};
  if (strcmp(arg[0].from, a->layout) || !layout_keeps(c, arg[0].from, arg[0].to, "HW")) return NULL;
  a->layout = arg[0].to;
  out[0] = arg[0];
  return a;
}

const OpDef op_nn_upsampling = {
  .name = "nn.upsampling",
  .doc = "data with more elements in height and width",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Upsampling_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .type = upsampling_type,
  .compute = upsampling_compute,
  .layout = upsampling_layout,
};
