/* onnx_ops_image.c: resizing, sampling, regions.
 *
 * Comes in: nodes over images of any rank.  Goes out: image.* and vision.* calls.  Sizes,
 * scales and regions that are known become attributes; computed ones stay operands. */
#include "frontend/onnx_import.h"

/* ---- resize --------------------------------------------------------------------------------- */

typedef struct ResizeCall {
  const char *method, *coordinates, *rounding, *policy;
  double alpha, outside;
  int exclude, antialias;
  int naxes;
  const int64_t *axes;
} ResizeCall;

static const double *const_floats(Conversion *c, const Node *x, int *n)
{
  if (!x || x->kind != N_CONST || !dtype_is_float(kit_dtype_of(c, x))) return NULL;
  const ConstData *d = x->u.data;
  size_t size = (size_t)dtype_bytes(d->dtype);
  *n = (int)(d->bytes / size);
  double *v = arena_array(c->im->arena, double, *n + 1);
  for (int i = 0; i < *n; i++) v[i] = value_load(d->dtype, (const char *)d->data + (size_t)i * size).f;
  return v;
}

static bool is_empty(Conversion *c, const Node *x)
{
  return !x || (kit_rank_of(c, x) == 1 && expr_is_int(kit_dim_of(c, x, 0), 0));
}

/* What is known goes into attributes, the rest behind data. */
static const Node *call_resize(Conversion *c, const ResizeCall *r, const Node *x, const Node *sizes, const Node *scales,
                               const Node *roi)
{
  const OpDef *op = opdef_get(c->ctx, "image.resize");
  void *attrs = attrs_new(c->m, op->attrs);
  const Node *arg[4] = {x};
  const char *names[3];
  int n = 1;
  int k = 0;
  attrs_set_str(c->m, op->attrs, attrs, "method", r->method);
  attrs_set_str(c->m, op->attrs, attrs, "coordinate_transformation_mode", r->coordinates);
  attrs_set_str(c->m, op->attrs, attrs, "rounding_method", r->rounding);
  attrs_set_str(c->m, op->attrs, attrs, "keep_aspect_ratio_policy", r->policy);
  attrs_set_f64(c->m, op->attrs, attrs, "cubic_alpha", r->alpha);
  attrs_set_f64(c->m, op->attrs, attrs, "extrapolation_value", r->outside);
  attrs_set_int(c->m, op->attrs, attrs, "cubic_exclude", r->exclude);
  attrs_set_int(c->m, op->attrs, attrs, "antialias", r->antialias);
  if (r->axes) attrs_set_ints(c->m, op->attrs, attrs, "axes", r->naxes, r->axes);
  const Expr *const *dims = sizes ? kit_const_dims(c, sizes, &k) : NULL;
  if (dims) attrs_set_dims(c->m, op->attrs, attrs, "sizes", k, dims);
  else if (sizes) names[n - 1] = "sizes", arg[n++] = sizes;
  const double *v = const_floats(c, scales, &k);
  if (v) attrs_set_f64s(c->m, op->attrs, attrs, "scales", k, v);
  else if (scales) names[n - 1] = "scales", arg[n++] = scales;
  v = const_floats(c, roi, &k);
  if (v) attrs_set_f64s(c->m, op->attrs, attrs, "roi", k, v);
  else if (roi) names[n - 1] = "roi", arg[n++] = roi;
  if (n > 1) attrs_set_strs(c->m, op->attrs, attrs, "inputs", n - 1, names);
  return node_call(c->m, op, n, arg, attrs, c->name);
}

static const char *resize_method(Conversion *c, const char *mode)
{
  if (!strcmp(mode, "nearest")) return "nearest_neighbor";
  if (!strcmp(mode, "linear") || !strcmp(mode, "bilinear")) return "linear";
  if (!strcmp(mode, "cubic")) return "cubic";
  kit_fail(c, ERR_UNSUPPORTED, "mode '%s' is not supported", mode);
}

/* Upsample and the first Resize: coordinates divided by the factor, rounded down. */
static ResizeCall plain_resize(Conversion *c)
{
  return (ResizeCall){.method = resize_method(c, onnx_attr_str(c, "mode", "nearest")),
                      .coordinates = "asymmetric",
                      .rounding = "floor",
                      .policy = "stretch",
                      .alpha = -0.75};
}

static const Node *convert_upsample_attr(Conversion *c)
{
  ResizeCall r = plain_resize(c);
  int n = 0;
  const float *v = onnx_attr_floats(c, "scales", &n);
  float pair[4] = {1, 1, (float)onnx_attr_float(c, "height_scale", 1), (float)onnx_attr_float(c, "width_scale", 1)};
  if (!v) {
    v = pair;
    n = 4;
  }
  return call_resize(c, &r, kit_in(c, 0), NULL, node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, v), NULL);
}

static const Node *convert_upsample(Conversion *c)
{
  ResizeCall r = plain_resize(c);
  return call_resize(c, &r, kit_in(c, 0), NULL, kit_in(c, 1), NULL);
}

static const Node *convert_resize(Conversion *c)
{
  const Node *roi = kit_opt(c, 1);
  const Node *scales = kit_opt(c, 2);
  const Node *sizes = kit_opt(c, 3);
  ResizeCall r = {
    .method = resize_method(c, onnx_attr_str(c, "mode", "nearest")),
    .coordinates = onnx_attr_str(c, "coordinate_transformation_mode", "half_pixel"),
    .rounding = onnx_attr_str(c, "nearest_mode", "round_prefer_floor"),
    .policy = onnx_attr_str(c, "keep_aspect_ratio_policy", "stretch"),
    .alpha = onnx_attr_float(c, "cubic_coeff_a", -0.75),
    .outside = onnx_attr_float(c, "extrapolation_value", 0),
    .exclude = (int)onnx_attr_int(c, "exclude_outside", 0),
    .antialias = (int)onnx_attr_int(c, "antialias", 0),
  };
  r.axes = onnx_attr_ints(c, "axes", &r.naxes);
  if (is_empty(c, scales)) scales = NULL;
  if (is_empty(c, sizes)) sizes = NULL;
  bool crop = !strcmp(r.coordinates, "tf_crop_and_resize");
  if (!sizes && !scales) kit_fail(c, ERR_ARGUMENT, "neither sizes nor scales are given");
  if (crop && is_empty(c, roi)) kit_fail(c, ERR_ARGUMENT, "tf_crop_and_resize needs a region");
  return call_resize(c, &r, kit_in(c, 0), sizes ? kit_cast_to(c, sizes, DT_I64) : NULL, sizes ? NULL : scales,
                     crop ? roi : NULL);
}

/* ---- sampling ----------------------------------------------------------------------------------- */

static const Node *convert_grid_sample(Conversion *c)
{
  const char *mode = onnx_attr_str(c, "mode", "linear");
  const char *method;
  if (!strcmp(mode, "linear") || !strcmp(mode, "bilinear")) method = "bilinear";
  else if (!strcmp(mode, "nearest")) method = "nearest";
  else if (!strcmp(mode, "cubic") || !strcmp(mode, "bicubic")) method = "bicubic";
  else kit_fail(c, ERR_ARGUMENT, "mode '%s' is not known", mode);
  const Node *x = kit_in(c, 0);
  return kit_op2(c, "image.grid_sample", x, kit_in(c, 1),
                 "method:s,layout:s,padding_mode:s,align_corners:i,grid_last:i,round_first:i", method,
                 kit_rank_of(c, x) == 5 ? "NCDHW" : "NCHW", onnx_attr_str(c, "padding_mode", "zeros"),
                 (int)onnx_attr_int(c, "align_corners", 0), 1, 1);
}

static const Node *convert_affine_grid(Conversion *c)
{
  int n = 0;
  const Node *theta = kit_in(c, 0);
  const Node *size = kit_in(c, 1);
  const Expr *const *d = kit_const_dims(c, size, &n);
  int corners = (int)onnx_attr_int(c, "align_corners", 0);
  if (d && n > 2)
    return kit_op1(c, "image.affine_grid", theta, "target_shape:D,align_corners:i,grid_last:i", n - 2, d + 2, corners,
                   1);
  return kit_op2(c, "image.affine_grid", theta, size, "align_corners:i,grid_last:i", corners, 1);
}

/* Boxes carry the number of their image in front. */
static const Node *numbered_boxes(Conversion *c, const Node *boxes, const Node *batch)
{
  return kit_concat2(c, kit_unsqueeze(c, kit_cast_to(c, batch, kit_dtype_of(c, boxes)), 1), boxes, 1);
}

static const Node *convert_roi_align(Conversion *c)
{
  const char *mode = onnx_attr_str(c, "mode", "avg");
  bool half =
      c->version >= 16 && !strcmp(onnx_attr_str(c, "coordinate_transformation_mode", "half_pixel"), "half_pixel");
  int64_t size[] = {onnx_attr_int(c, "output_height", 1), onnx_attr_int(c, "output_width", 1)};
  return kit_op2(c, "vision.roi_align", kit_in(c, 0), numbered_boxes(c, kit_in(c, 1), kit_in(c, 2)),
                 "pooled_size:I,spatial_scale:f,sample_ratio:i,mode:s,half_pixel:i", 2, size,
                 onnx_attr_float(c, "spatial_scale", 1), (int)onnx_attr_int(c, "sampling_ratio", 0),
                 strcmp(mode, "max") ? mode : "max_weighted", (int)half);
}

static const Node *convert_max_roi_pool(Conversion *c)
{
  int n = 0;
  const int64_t *size = onnx_attr_ints(c, "pooled_shape", &n);
  if (!size || n != 2) kit_fail(c, ERR_ARGUMENT, "pooled_shape has %d numbers, 2 are wanted", n);
  return kit_op2(c, "vision.roi_pool", kit_in(c, 0), kit_in(c, 1), "pooled_size:I,spatial_scale:f", n, size,
                 onnx_attr_float(c, "spatial_scale", 1));
}

static const Node *convert_col2im(Conversion *c)
{
  int n = 0;
  int nk = 0;
  int ns = 0;
  int np = 0;
  int nd = 0;
  const Node *x = kit_in(c, 0);
  const Node *image = kit_in(c, 1);
  const int64_t *kernel = kit_const_ints(c, kit_in(c, 2), &nk);
  if (!kernel) nk = (int)kit_static_dim(c, kit_in(c, 2), 0);
  if (nk > 8) kit_fail(c, ERR_UNSUPPORTED, "%d spatial dimensions are not supported", nk);
  int64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t zeros[16] = {0};
  const int64_t *strides = onnx_attr_ints(c, "strides", &ns);
  const int64_t *pads = onnx_attr_ints(c, "pads", &np);
  const int64_t *dilation = onnx_attr_ints(c, "dilations", &nd);
  const Expr *const *size = kit_const_dims(c, image, &n);
  if (!strides) strides = ones, ns = nk;
  if (!pads) pads = zeros, np = 2 * nk;
  if (!dilation) dilation = ones, nd = nk;
  if (!kernel)
    return kit_op3(c, "nn.col2im", x, image, kit_in(c, 2), "strides:I,padding:I,dilation:I", ns, strides, np, pads, nd,
                   dilation);
  if (size)
    return kit_op1(c, "nn.col2im", x, "image_size:D,kernel_size:I,strides:I,padding:I,dilation:I", n, size, nk, kernel,
                   ns, strides, np, pads, nd, dilation);
  return kit_op2(c, "nn.col2im", x, image, "kernel_size:I,strides:I,padding:I,dilation:I", nk, kernel, ns, strides, np,
                 pads, nd, dilation);
}

static const OnnxRow rows[] = {
  {"AffineGrid", 20, convert_affine_grid}, {"Col2Im", 18, convert_col2im},
  {"GridSample", 16, convert_grid_sample}, {"MaxRoiPool", 1, convert_max_roi_pool},
  {"Resize", 10, convert_upsample},        {"Resize", 11, convert_resize},
  {"RoiAlign", 10, convert_roi_align},     {"Upsample", 1, convert_upsample_attr},
  {"Upsample", 9, convert_upsample},
};
ONNX_TABLE(onnx_ops_image, "", rows);
