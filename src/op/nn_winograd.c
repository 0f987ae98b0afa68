/* nn_winograd.c: Winograd's convolution as a meaning: weights transformed once, tiles of data
 * transformed, multiplied, transformed back.
 *
 * F(m, r) computes m outputs of a filter of r with alpha = m + r - 1 products.  Multiplying
 * polynomials of m and r coefficients by their values at alpha points (one of them infinity)
 * reads s = V^-1 [(V_r g) * (V_m h)]; its transpose is the filter: y = V_m' [(V_r g) * (V^-T d)].  So
 * a = V_m', g = V_r, b = V^-T, each row of g divided and of b multiplied by the product of
 * the differences of its point to the others, which makes b whole numbers. */
#include "op/nn_kit.h"

#include <math.h>

DEFINE_ATTRS_TABLE(WinogradWeight, WINOGRAD_WEIGHT_ATTRS)
DEFINE_ATTRS_TABLE(Winograd, WINOGRAD_ATTRS)

/* ---- the matrices ------------------------------------------------------------------------------ */

static const double points[] = {0, 1, -1, 2, -2, 0.5, -0.5};
/* For tiles of 4 in float16: nearer to each other, so that what is rounded grows less (half the error). */
static const double near_points[] = {0, 0.70710678118654752, -0.70710678118654752, 1.4142135623730951,
                                     -1.4142135623730951};

/* Inverse by elimination; the matrices are small and well behaved. */
static void invert(int n, double v[WINOGRAD_MAX][WINOGRAD_MAX], double out[WINOGRAD_MAX][WINOGRAD_MAX])
{
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) out[i][j] = i == j;
  for (int c = 0; c < n; c++) {
    int best = c;
    for (int i = c; i < n; i++)
      if (fabs(v[i][c]) > fabs(v[best][c])) best = i;
    for (int j = 0; j < n; j++) {
      double t = v[c][j];
      double u = out[c][j];
      v[c][j] = v[best][j], v[best][j] = t;
      out[c][j] = out[best][j], out[best][j] = u;
    }
    double pivot = v[c][c];
    for (int j = 0; j < n; j++) v[c][j] /= pivot, out[c][j] /= pivot;
    for (int i = 0; i < n; i++) {
      double f = i == c ? 0 : v[i][c];
      for (int j = 0; f != 0 && j < n; j++) v[i][j] -= f * v[c][j], out[i][j] -= f * out[c][j];
    }
  }
}

/* The products of differences divide the rows of g, or (`bare`) those of b are not multiplied by them. */
static bool matrices_at(const double *points, int most, int tile, int r, bool bare, WinogradMatrices *w)
{
  int alpha = tile + r - 1;
  int finite = alpha - 1;
  *w = (WinogradMatrices){.tile = tile, .r = r, .alpha = alpha};
  if (tile < 1 || r < 1 || finite > most || alpha < 2) return false;
  double v[WINOGRAD_MAX][WINOGRAD_MAX], inverse[WINOGRAD_MAX][WINOGRAD_MAX];
  for (int i = 0; i < alpha; i++) {
    double scale = 1;
    for (int k = 0; i < finite && k < finite; k++) scale *= k == i ? 1 : points[i] - points[k];
    for (int j = 0; j < alpha; j++) v[i][j] = i < finite ? pow(points[i], j) : j == alpha - 1;
    for (int j = 0; j < tile; j++) w->a[j][i] = i < finite ? v[i][j] : j == tile - 1;
    for (int j = 0; j < r; j++) w->g[i][j] = (i < finite ? v[i][j] : j == r - 1) / (bare ? 1 : scale);
  }
  invert(alpha, v, inverse);
  for (int i = 0; i < alpha; i++) {
    double scale = 1;
    for (int k = 0; i < finite && k < finite; k++) scale *= k == i ? 1 : points[i] - points[k];
    for (int j = 0; j < alpha; j++) w->b[i][j] = round(inverse[j][i] * scale * 1048576) / 1048576 / (bare ? scale : 1);
  }
  return true;
}

bool nn_winograd_matrices(int tile, int r, DType t, bool bare, WinogradMatrices *w)
{
  if (t.bits == 16 && tile == 4 && r == 3) return matrices_at(near_points, 5, tile, r, bare, w);
  return matrices_at(points, (int)(sizeof points / sizeof *points), tile, r, bare, w);
}

static WinogradMatrices matrices_of(OpCall *c, int64_t tile, int64_t r, DType t)
{
  WinogradMatrices w;
  if (tile < 1 || tile > WINOGRAD_MAX || r < 1 || r > WINOGRAD_MAX ||
      !nn_winograd_matrices((int)tile, (int)r, t, false, &w))
    opdef_raise(c, ERR_UNSUPPORTED, "tile_size %" PRId64 " with a kernel of %" PRId64 " is not supported", tile, r);
  return w;
}

/* A matrix as a tensor: chosen by its indices, which schedules unroll. */
static const Tensor *matrix(Module *m, const char *name, DType t, int rows, int cols, const double *v)
{
  const Expr *shape[] = {expr_i32(m, rows), expr_i32(m, cols)};
  Stage s = nn_stage(m, 2, shape, "i j");
  const Expr *value = expr_const(m, t, 0);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < cols; j++) {
      double entry = v[i * WINOGRAD_MAX + j];
      if (entry == 0) continue;
      const Expr *here =
          expr_and(m, expr_binary(m, E_EQ, s.at[0], expr_i32(m, i)), expr_binary(m, E_EQ, s.at[1], expr_i32(m, j)));
      value = expr_select(m, here, expr_const(m, t, entry), value);
    }
  return nn_finish(&s, name, "const_matrix", value);
}

static const Expr *element(Module *m, const Tensor *t, const Expr *i, const Expr *j)
{
  return nn_read(m, t, (const Expr *[]){i, j});
}

/* ---- the weight ----------------------------------------------------------------------------------- */

static const Type *weight_type(OpCall *c)
{
  const WinogradWeightAttrs *a = c->attrs;
  nn_want_rank(c, 0, "weight", 4);
  const Type *w = c->arg[0];
  if (w->shape[2]->kind != E_INT || w->shape[3]->kind != E_INT || w->shape[2]->u.i != w->shape[3]->u.i)
    opdef_raise(c, ERR_SHAPE, "weight %s needs a square kernel", nn_arg_shape(c, 0));
  WinogradMatrices q = matrices_of(c, a->tile_size, w->shape[2]->u.i, w->dtype);
  return type_tensor(c->m, w->dtype, 4,
                     (const Expr *[]){expr_i32(c->m, q.alpha), expr_i32(c->m, q.alpha), w->shape[0], w->shape[1]});
}

static void weight_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const WinogradWeightAttrs *a = c->attrs;
  WinogradMatrices q = matrices_of(c, a->tile_size, in[0]->buffer->shape[2]->u.i, c->out->dtype);
  DType t = nn_accumulator(c->out->dtype);
  const Tensor *g = matrix(m, "G", t, q.alpha, q.r, &q.g[0][0]);
  Stage s = nn_stage(m, 4, c->out->shape, "eps nu co ci");
  const Expr *r = nn_reduce_axis(&s, "r_kh", expr_i32(m, q.r));
  const Expr *k = nn_reduce_axis(&s, "r_kw", expr_i32(m, q.r));
  const Expr *w = expr_cast(m, t, nn_read(m, in[0], (const Expr *[]){s.at[2], s.at[3], r, k}));
  const Expr *term = expr_mul(m, expr_mul(m, w, element(m, g, s.at[0], r)), element(m, g, s.at[1], k));
  *out = nn_sum(&s, "transform_weight", "transform_weight", term, c->out->dtype);
}

const OpDef op_nn_contrib_conv2d_winograd_weight_transform = {
  .name = "nn.contrib_conv2d_winograd_weight_transform",
  .doc = "weight (o, i, r, r) for Winograd's convolution: (alpha, alpha, o, i)",
  .args = "weight",
  .min_args = 1,
  .max_args = 1,
  .attrs = &WinogradWeight_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .type = weight_type,
  .compute = weight_compute,
};

/* ---- the convolution --------------------------------------------------------------------------------- */

typedef struct Winograd {
  WinogradMatrices q;
  int64_t before[2], after[2];
  const Expr *n, *ci, *co, *out[2];
  DType dtype;
} Winograd;

static void want_plain(OpCall *c, const WinogradAttrs *a)
{
  int64_t one[2];
  nn_ints(c, "strides", a->strides, 2, 1, 1, one);
  if (one[0] != 1 || one[1] != 1) opdef_raise(c, ERR_UNSUPPORTED, "strides must be 1");
  nn_ints(c, "dilation", a->dilation, 2, 1, 1, one);
  if (one[0] != 1 || one[1] != 1) opdef_raise(c, ERR_UNSUPPORTED, "dilation must be 1");
  if (!a->transformed) opdef_raise(c, ERR_UNSUPPORTED, "over NCHW the weight must be transformed before");
  if (a->groups != 1) opdef_raise(c, ERR_UNSUPPORTED, "groups is %" PRId64 ", only 1 is supported", a->groups);
  if (strcmp(a->data_layout, "NCHW") || (*a->out_layout && strcmp(a->out_layout, "NCHW")))
    opdef_raise(c, ERR_UNSUPPORTED, "only the layout NCHW is supported");
}

static Winograd winograd_of(OpCall *c)
{
  const WinogradAttrs *a = c->attrs;
  int64_t r[2];
  want_plain(c, a);
  nn_want_rank(c, 0, "data", 4);
  nn_want_rank(c, 1, "weight", 4);
  const Type *x = c->arg[0];
  const Type *k = c->arg[1];
  nn_ints(c, "kernel_size", a->kernel_size, 2, 3, 1, r);
  if (r[0] != r[1]) opdef_raise(c, ERR_UNSUPPORTED, "kernel_size (%" PRId64 ", %" PRId64 ") is not square", r[0], r[1]);
  Winograd v = {
    .q = matrices_of(c, a->tile_size, r[0], x->dtype), .n = x->shape[0], .ci = x->shape[1], .co = k->shape[2]};
  v.dtype = a->out_dtype.code == DT_VOID ? x->dtype : a->out_dtype;
  nn_padding(c, a->padding, 2, v.before, v.after);
  if (nn_dims_differ(c->m, v.ci, k->shape[3]))
    opdef_raise(c, ERR_SHAPE, "data has %s channels, weight %s wants %s", expr_str_of(scratch(c->m->ctx), v.ci),
                nn_arg_shape(c, 1), expr_str_of(scratch(c->m->ctx), k->shape[3]));
  if (nn_dims_differ(c->m, k->shape[0], expr_i32(c->m, v.q.alpha)) ||
      nn_dims_differ(c->m, k->shape[1], expr_i32(c->m, v.q.alpha)))
    opdef_raise(c, ERR_SHAPE, "weight %s is not transformed for tiles of %" PRId64, nn_arg_shape(c, 1), a->tile_size);
  v.out[0] = nn_windows(c, "height", x->shape[2], r[0], 1, 1, v.before[0], v.after[0]);
  v.out[1] = nn_windows(c, "width", x->shape[3], r[1], 1, 1, v.before[1], v.after[1]);
  return v;
}

static const Type *winograd_type(OpCall *c)
{
  Winograd v = winograd_of(c);
  return type_tensor(c->m, v.dtype, 4, (const Expr *[]){v.n, v.co, v.out[0], v.out[1]});
}

/* data with zeros around, as far as the last tiles reach. */
static const Tensor *tiled_pad(Module *m, const Winograd *v, const Tensor *x, const Expr *const *tiles)
{
  const Expr *shape[4] = {v->n, v->ci};
  const Expr *index[4];
  const Expr *cond = NULL;
  for (int d = 0; d < 2; d++)
    shape[2 + d] = nn_simplify(m, expr_add(m, expr_mul(m, tiles[d], expr_i32(m, v->q.tile)), expr_i32(m, v->q.r - 1)));
  Stage s = nn_stage(m, 4, shape, NULL);
  for (int d = 0; d < 4; d++) index[d] = s.at[d];
  for (int d = 0; d < 2; d++) {
    index[2 + d] = expr_sub(m, s.at[2 + d], expr_i32(m, v->before[d]));
    cond = nn_and(m, cond, nn_inside(m, index[2 + d], x->buffer->shape[2 + d]));
  }
  return nn_finish(&s, "data_pad", "injective,pad",
                   nn_if(m, cond, nn_read(m, x, index), expr_const(m, x->buffer->dtype, 0)));
}

static const Tensor *transform_data(Module *m, const Winograd *v, const Tensor *pad, const Expr *const *tiles,
                                    const Expr *p)
{
  const Expr *alpha = expr_i32(m, v->q.alpha);
  const Expr *tile = expr_i32(m, v->q.tile);
  const Expr *shape[] = {v->ci, p, alpha, alpha};
  Stage s = nn_stage(m, 4, shape, "c p eps nu");
  const Expr *w = expr_floormod(m, s.at[1], tiles[1]);
  const Expr *h = expr_floormod(m, expr_floordiv(m, s.at[1], tiles[1]), tiles[0]);
  const Expr *at[] = {expr_floordiv(m, s.at[1], nn_simplify(m, expr_mul(m, tiles[0], tiles[1]))), s.at[0],
                      expr_add(m, expr_mul(m, h, tile), s.at[2]), expr_add(m, expr_mul(m, w, tile), s.at[3])};
  const Tensor *input = nn_finish(&s, "input_tile", "injective", expr_cast(m, v->dtype, nn_read(m, pad, at)));
  const Tensor *b = matrix(m, "B", v->dtype, v->q.alpha, v->q.alpha, &v->q.b[0][0]);
  const Expr *packed[] = {alpha, alpha, v->ci, p};
  Stage t = nn_stage(m, 4, packed, "eps nu ci p");
  const Expr *ra = nn_reduce_axis(&t, "r_a", alpha);
  const Expr *rb = nn_reduce_axis(&t, "r_b", alpha);
  const Expr *x = nn_read(m, input, (const Expr *[]){t.at[2], t.at[3], ra, rb});
  return nn_finish(
      &t, "data_pack", "winograd_data_pack",
      nn_reduce(&t, "sum", expr_mul(m, expr_mul(m, x, element(m, b, t.at[0], ra)), element(m, b, t.at[1], rb))));
}

static const Tensor *multiply_tiles(Module *m, const Winograd *v, const Tensor *u, const Tensor *x, const Expr *p)
{
  const Expr *alpha = expr_i32(m, v->q.alpha);
  const Expr *shape[] = {alpha, alpha, v->co, p};
  Stage s = nn_stage(m, 4, shape, "eps nu co p");
  const Expr *ci = nn_reduce_axis(&s, "ci", v->ci);
  const Expr *w = expr_cast(m, v->dtype, nn_read(m, u, (const Expr *[]){s.at[0], s.at[1], s.at[2], ci}));
  return nn_finish(
      &s, "bgemm", "winograd_bgemm",
      nn_reduce(&s, "sum", expr_mul(m, w, nn_read(m, x, (const Expr *[]){s.at[0], s.at[1], ci, s.at[3]}))));
}

static void winograd_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Winograd v = winograd_of(c);
  const Expr *tile = expr_i32(m, v.q.tile);
  const Expr *alpha = expr_i32(m, v.q.alpha);
  const Expr *tiles[] = {nn_simplify(m, nn_ceildiv(m, v.out[0], tile)), nn_simplify(m, nn_ceildiv(m, v.out[1], tile))};
  const Expr *p = nn_simplify(m, expr_mul(m, v.n, expr_mul(m, tiles[0], tiles[1])));
  const Tensor *x = transform_data(m, &v, tiled_pad(m, &v, in[0], tiles), tiles, p);
  const Tensor *product = multiply_tiles(m, &v, in[1], x, p);
  const Tensor *a = matrix(m, "A", v.dtype, v.q.tile, v.q.alpha, &v.q.a[0][0]);
  const Expr *shape[] = {v.co, p, tile, tile};
  Stage i = nn_stage(m, 4, shape, "co p vh vw");
  const Expr *ra = nn_reduce_axis(&i, "r_a", alpha);
  const Expr *rb = nn_reduce_axis(&i, "r_b", alpha);
  const Expr *y = nn_read(m, product, (const Expr *[]){ra, rb, i.at[0], i.at[1]});
  const Tensor *inverse = nn_finish(
      &i, "inverse", "winograd_inverse",
      nn_reduce(&i, "sum", expr_mul(m, expr_mul(m, y, element(m, a, i.at[2], ra)), element(m, a, i.at[3], rb))));
  Stage s = nn_stage(m, 4, c->out->shape, "n co h w");
  const Expr *row = expr_add(m, expr_mul(m, s.at[0], tiles[0]), expr_floordiv(m, s.at[2], tile));
  const Expr *at[] = {s.at[1], expr_add(m, expr_mul(m, row, tiles[1]), expr_floordiv(m, s.at[3], tile)),
                      expr_floormod(m, s.at[2], tile), expr_floormod(m, s.at[3], tile)};
  *out = nn_finish(&s, "conv2d_winograd", "conv2d_nchw_winograd", nn_read(m, inverse, at));
}

const OpDef op_nn_contrib_conv2d_winograd_without_weight_transform = {
  .name = "nn.contrib_conv2d_winograd_without_weight_transform",
  .doc = "nn.conv2d by Winograd's algorithm over a weight transformed before",
  .args = "data, weight",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Winograd_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .type = winograd_type,
  .compute = winograd_compute,
};
