/* nn_roi.c: vision.roi_align and vision.roi_pool: parts of an image brought to one size.
 *
 * A box is (batch, x1, y1, x2, y2).  How many elements a bin covers is known only from the
 * box, so both are loop programs.  A box of a batch that is not there gives zeros. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(RoiAlign, ROI_ALIGN_ATTRS)
DEFINE_ATTRS_TABLE(RoiPool, ROI_POOL_ATTRS)

static const Type *roi_type(OpCall *c)
{
  bool align = c->op->attrs == &RoiAlign_attrs;
  const RoiAlignAttrs *a = c->attrs;
  const RoiPoolAttrs *p = c->attrs;
  const char *layout = align ? a->layout : p->layout;
  int64_t size[2];
  nn_want_float(c, 0, "data");
  nn_want_rank(c, 0, "data", 4);
  nn_want_rank(c, 1, "rois", 2);
  nn_want_float(c, 1, "rois");
  if (strcmp(layout, "NCHW")) opdef_raise(c, ERR_UNSUPPORTED, "layout '%s' is not NCHW", layout);
  if (nn_dims_differ(c->m, c->arg[1]->shape[1], expr_i32(c->m, 5)))
    opdef_raise(c, ERR_SHAPE, "rois %s has to be (n, 5)", nn_arg_shape(c, 1));
  if (align && strcmp(a->mode, "avg") && strcmp(a->mode, "max") && strcmp(a->mode, "max_weighted"))
    opdef_raise(c, ERR_ARGUMENT, "mode '%s' is not one of avg, max, max_weighted", a->mode);
  nn_ints(c, "pooled_size", a->pooled_size, 2, 1, 1, size);
  return type_tensor(
      c->m, c->arg[0]->dtype, 4,
      (const Expr *[]){c->arg[1]->shape[0], c->arg[0]->shape[1], expr_i32(c->m, size[0]), expr_i32(c->m, size[1])});
}

/* ---- a small loop program ---------------------------------------------------------------------------- */

typedef struct Roi {
  Module *m;
  DType t; /* to compute in */
  const Buffer *x, *rois, *out;
  const Expr *r, *c, *p[2]; /* box, channel, bin */
  const Var *rv, *cv, *pv[2];
} Roi;

static const Expr *index_var(Module *m, const char *name, const Var **v)
{
  *v = var_new(m, name, DT_I32, VAR_PLAIN);
  return (*v)->expr;
}

static Roi roi_begin(OpCall *c, const Tensor *const *in)
{
  Module *m = c->m;
  Roi q = {.m = m, .t = nn_accumulator(c->out->dtype)};
  q.x = buffer_new(m, "data", in[0]->buffer->dtype, 4, in[0]->buffer->shape, NULL, NULL, NULL, 0, 0, NULL);
  q.rois = buffer_new(m, "rois", in[1]->buffer->dtype, 2, in[1]->buffer->shape, NULL, NULL, NULL, 0, 0, NULL);
  q.out = buffer_new(m, "out", c->out->dtype, 4, c->out->shape, NULL, NULL, NULL, 0, 0, NULL);
  q.r = index_var(m, "r", &q.rv);
  q.c = index_var(m, "c", &q.cv);
  q.p[0] = index_var(m, "ph", &q.pv[0]);
  q.p[1] = index_var(m, "pw", &q.pv[1]);
  return q;
}

static const Expr *box(const Roi *q, int k)
{
  return expr_cast(q->m, q->t, expr_load(q->m, q->rois, 2, (const Expr *[]){q->r, expr_i32(q->m, k)}));
}
static const Expr *num(const Roi *q, double v) { return expr_const(q->m, q->t, v); }

static Stmt *set(const Roi *q, const Expr *value)
{
  return stmt_store(q->m, q->out, 4, (const Expr *[]){q->r, q->c, q->p[0], q->p[1]},
                    expr_cast(q->m, q->out->dtype, value));
}

static const Expr *get(const Roi *q)
{
  return expr_cast(q->m, q->t, expr_load(q->m, q->out, 4, (const Expr *[]){q->r, q->c, q->p[0], q->p[1]}));
}

/* The loops around `bin`, which runs where the box's batch is there. */
static const Tensor *roi_end(const Roi *q, const Tensor *const *in, const char *name, Stmt *bin)
{
  Module *m = q->m;
  const Expr *batch = expr_cast(m, DT_I32, box(q, 0));
  Stmt *first = set(q, num(q, 0));
  Stmt *body = stmt_seq(m, 2, (Stmt *[]){first, stmt_if(m, nn_inside(m, batch, q->x->shape[0]), bin, NULL)});
  body = stmt_for(m, q->pv[1], expr_i32(m, 0), q->out->shape[3], FOR_SERIAL, NULL, body);
  body = stmt_for(m, q->pv[0], expr_i32(m, 0), q->out->shape[2], FOR_SERIAL, NULL, body);
  body = stmt_for(m, q->cv, expr_i32(m, 0), q->out->shape[1], FOR_SERIAL, NULL, body);
  body = stmt_for(m, q->rv, expr_i32(m, 0), q->out->shape[0], FOR_PARALLEL, NULL, body);
  stmt_link(body, NULL);
  return &te_extern(m, name, name, 2, in, (const Buffer *[]){q->x, q->rois}, 1, (const Buffer *[]){q->out}, body, NULL)
              ->out[0];
}

static const Expr *read_point(const Roi *q, const Expr *y, const Expr *x)
{
  const Expr *at[] = {expr_cast(q->m, DT_I32, box(q, 0)), q->c, y, x};
  return expr_cast(q->m, q->t, expr_load(q->m, q->x, 4, at));
}

/* ---- roi_align --------------------------------------------------------------------------------------- */

/* One dimension of a point: its two elements, how far it is from the first, and whether it
 * is near the image at all. */
typedef struct Point {
  const Expr *low, *high, *part, *near;
} Point;

static Point point_at(const Roi *q, const Expr *p, const Expr *extent)
{
  Module *m = q->m;
  const Expr *n = expr_cast(m, q->t, extent);
  const Expr *last = expr_sub(m, extent, expr_i32(m, 1));
  const Expr *inner = expr_max(m, p, num(q, 0));
  Point out = {.near = expr_and(m, expr_binary(m, E_GE, p, num(q, -1)), expr_binary(m, E_LE, p, n))};
  out.low = expr_min(m, expr_cast(m, DT_I32, inner), last);
  out.high = expr_min(m, expr_add(m, out.low, expr_i32(m, 1)), last);
  out.part =
      expr_select(m, expr_binary(m, E_GE, out.low, last), num(q, 0), expr_sub(m, inner, expr_cast(m, q->t, out.low)));
  return out;
}

/* The four weighted elements around a point. */
static void point_terms(const Roi *q, const Point *y, const Point *x, const Expr **term)
{
  Module *m = q->m;
  for (int k = 0; k < 4; k++) {
    const Expr *wy = k < 2 ? expr_sub(m, num(q, 1), y->part) : y->part;
    const Expr *wx = k % 2 ? x->part : expr_sub(m, num(q, 1), x->part);
    term[k] = expr_mul(m, expr_mul(m, wy, wx), read_point(q, k < 2 ? y->low : y->high, k % 2 ? x->high : x->low));
  }
}

static void roi_align_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const RoiAlignAttrs *a = c->attrs;
  Roi q = roi_begin(c, in);
  const Var *grid[2], *iv[2];
  const Expr *count[2], *step[2];
  Point point[2];
  for (int d = 0; d < 2; d++) {
    const Expr *shift = num(&q, a->half_pixel ? 0.5 : 0);
    const Expr *scale = num(&q, a->spatial_scale);
    const Expr *bins = expr_cast(m, q.t, q.out->shape[2 + d]);
    const Expr *start = expr_sub(m, expr_mul(m, box(&q, 2 - d), scale), shift);
    const Expr *end = expr_sub(m, expr_mul(m, box(&q, 4 - d), scale), shift);
    const Expr *size = expr_sub(m, end, start);
    if (!a->half_pixel) size = expr_max(m, size, num(&q, 1));
    const Expr *bin = NN_DIV(m, size, bins);
    count[d] = a->sample_ratio > 0 ? expr_i32(m, a->sample_ratio)
                                   : expr_max(m, expr_cast(m, DT_I32, nn_unary(m, IN_CEIL, bin)), expr_i32(m, 0));
    grid[d] = var_new(m, d ? "grid_w" : "grid_h", DT_I32, VAR_PLAIN);
    const Expr *i = index_var(m, d ? "ix" : "iy", &iv[d]);
    step[d] =
        NN_DIV(m, expr_mul(m, expr_add(m, expr_cast(m, q.t, i), num(&q, 0.5)), bin), expr_cast(m, q.t, grid[d]->expr));
    const Expr *p = expr_add(m, expr_add(m, start, expr_mul(m, expr_cast(m, q.t, q.p[d]), bin)), step[d]);
    point[d] = point_at(&q, p, q.x->shape[2 + d]);
  }
  const Expr *term[4];
  const Expr *near = expr_and(m, point[0].near, point[1].near);
  const Expr *value;
  point_terms(&q, &point[0], &point[1], term);
  const Expr *sum = expr_add(m, expr_add(m, expr_add(m, term[0], term[1]), term[2]), term[3]);
  if (!strcmp(a->mode, "avg")) {
    const Expr *points = expr_cast(m, q.t, expr_max(m, expr_mul(m, grid[0]->expr, grid[1]->expr), expr_i32(m, 1)));
    value = expr_add(m, get(&q), NN_DIV(m, nn_if(m, near, sum, num(&q, 0)), points));
  } else {
    const Expr *largest = expr_max(m, expr_max(m, term[0], term[1]), expr_max(m, term[2], term[3]));
    const Expr *best = nn_if(m, near, strcmp(a->mode, "max") ? largest : sum, num(&q, 0));
    const Expr *zero = expr_i32(m, 0);
    const Expr *first = expr_and(m, expr_binary(m, E_EQ, iv[0]->expr, zero), expr_binary(m, E_EQ, iv[1]->expr, zero));
    value = expr_select(m, first, best, expr_max(m, get(&q), best));
  }
  Stmt *bin = set(&q, value);
  for (int d = 1; d >= 0; d--) bin = stmt_for(m, iv[d], expr_i32(m, 0), grid[d]->expr, FOR_SERIAL, NULL, bin);
  for (int d = 1; d >= 0; d--) bin = stmt_let(m, grid[d], count[d], bin);
  *out = roi_end(&q, in, "roi_align", bin);
}

const OpDef op_vision_roi_align = {
  .name = "vision.roi_align",
  .doc = "boxes (batch, x1, y1, x2, y2) of data in pooled_size bins: the mean, or the largest, of points in each",
  .args = "data, rois",
  .min_args = 2,
  .max_args = 2,
  .attrs = &RoiAlign_attrs,
  .fuse = FUSE_OPAQUE,
  .type = roi_type,
  .compute = roi_align_compute,
};

/* ---- roi_pool ------------------------------------------------------------------------------------------ */

static void roi_pool_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const RoiPoolAttrs *a = c->attrs;
  Roi q = roi_begin(c, in);
  const Var *begin[2], *end[2], *iv[2];
  const Expr *from[2], *to[2], *at[2];
  const Expr *first = NULL;
  for (int d = 0; d < 2; d++) {
    const Expr *scale = num(&q, a->spatial_scale);
    const Expr *zero = expr_i32(m, 0);
    const Expr *extent = q.x->shape[2 + d];
    const Expr *lo = nn_unary(m, IN_ROUND, expr_mul(m, box(&q, 2 - d), scale));
    const Expr *hi = nn_unary(m, IN_ROUND, expr_mul(m, box(&q, 4 - d), scale));
    const Expr *bin = NN_DIV(m, expr_max(m, expr_add(m, expr_sub(m, hi, lo), num(&q, 1)), num(&q, 1)),
                             expr_cast(m, q.t, q.out->shape[2 + d]));
    const Expr *p = expr_cast(m, q.t, q.p[d]);
    const Expr *next = expr_add(m, p, num(&q, 1));
    from[d] = expr_min(
        m, expr_max(m, expr_cast(m, DT_I32, expr_add(m, nn_unary(m, IN_FLOOR, expr_mul(m, p, bin)), lo)), zero),
        extent);
    to[d] = expr_min(
        m, expr_max(m, expr_cast(m, DT_I32, expr_add(m, nn_unary(m, IN_CEIL, expr_mul(m, next, bin)), lo)), zero),
        extent);
    begin[d] = var_new(m, d ? "wbegin" : "hbegin", DT_I32, VAR_PLAIN);
    end[d] = var_new(m, d ? "wend" : "hend", DT_I32, VAR_PLAIN);
    const Expr *i = index_var(m, d ? "ix" : "iy", &iv[d]);
    at[d] = expr_add(m, begin[d]->expr, i);
    first = nn_and(m, first, expr_binary(m, E_EQ, i, zero));
  }
  const Expr *x = read_point(&q, at[0], at[1]);
  Stmt *bin = set(&q, expr_select(m, first, x, expr_max(m, get(&q), x)));
  for (int d = 1; d >= 0; d--) {
    const Expr *n = expr_max(m, expr_sub(m, end[d]->expr, begin[d]->expr), expr_i32(m, 0));
    bin = stmt_for(m, iv[d], expr_i32(m, 0), n, FOR_SERIAL, NULL, bin);
  }
  for (int d = 1; d >= 0; d--) bin = stmt_let(m, begin[d], from[d], stmt_let(m, end[d], to[d], bin));
  *out = roi_end(&q, in, "roi_pool", bin);
}

const OpDef op_vision_roi_pool = {
  .name = "vision.roi_pool",
  .doc = "boxes (batch, x1, y1, x2, y2) of data in pooled_size bins: the largest element of each, 0 of an empty one",
  .args = "data, rois",
  .min_args = 2,
  .max_args = 2,
  .attrs = &RoiPool_attrs,
  .fuse = FUSE_OPAQUE,
  .type = roi_type,
  .compute = roi_pool_compute,
};
