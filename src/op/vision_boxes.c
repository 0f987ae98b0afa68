/* vision_boxes.c: boxes of detectors, with TVM's meaning: prior boxes, their correction by a network, the valid ones
 * first, and those that no better one covers.
 *
 * A row of data is a box: a class (at id_index), a score (at score_index) and four coordinates, left, top, right and
 * bottom, from coord_start on.  What is not there is -1. */
#include "op/sort.h"

#include <math.h>

static void want_3d(OpCall *c, int i, const char *form)
{
  const Type *ty = op_tensor_arg(c, i);
  op_need_float(c, i);
  if (ty->ndim != 3) opdef_raise(c, ERR_SHAPE, "%s is %s; it is %s", op_arg_name(c, i), op_arg_text(c, i), form);
}

static void want_same_dim(OpCall *c, int i, int d, const Expr *want, const char *what)
{
  if (dim_differ(c->arg[i]->shape[d], want))
    opdef_raise(c, ERR_SHAPE, "%s is %s; dimension %d is that of %s", op_arg_name(c, i), op_arg_text(c, i), d, what);
}

/* ---- multibox_prior ------------------------------------------------------------------------------ */

/* clang-format off */
#define MULTIBOX_PRIOR_ATTRS(A, S)                                                          \
  A(S, F64S, sizes, "[1]", "heights of boxes, as parts of the image")                     \
  A(S, F64S, ratios, "[1]", "width by height; the first is that of every size")           \
  A(S, F64S, steps, "[-1, -1]", "distance of centers, y and x; not positive: one cell") \
  A(S, F64S, offsets, "[0.5, 0.5]", "of a center in its cell, y and x")                     \
  A(S, BOOL, clip, "False", "keep boxes within the image")
/* clang-format on */
DEFINE_ATTRS(MultiboxPrior, MULTIBOX_PRIOR_ATTRS)

static const Type *multibox_prior_type(OpCall *c)
{
  const MultiboxPriorAttrs *a = c->attrs;
  const Type *data = op_ranked_tensor_arg(c, 0, 4);
  op_need_float(c, 0);
  if (a->sizes.n < 1 || a->ratios.n < 1 || a->steps.n != 2 || a->offsets.n != 2)
    opdef_raise(c, ERR_ARGUMENT, "sizes and ratios have an element at least, steps and offsets two");
  const Expr *boxes =
      dim_mul(c->m, dim_mul(c->m, data->shape[2], data->shape[3]), dim_int(c->m, a->sizes.n + a->ratios.n - 1));
  return type_tensor(c->m, data->dtype, 3, (const Expr *[]){dim_int(c->m, 1), boxes, dim_int(c->m, 4)});
}

/* Half the width and height of box number k: sizes with the first ratio, then the first size with the other ratios. */
static void prior_half(OpCall *c, const Expr *k, const Expr *across, const Expr **half_w, const Expr **half_h)
{
  const MultiboxPriorAttrs *a = c->attrs;
  Module *m = c->m;
  DType t = c->out->dtype;
  int n = a->sizes.n + a->ratios.n - 1;
  for (int i = n - 1; i >= 0; i--) {
    double ratio = i < a->sizes.n ? 1 : sqrt(a->ratios.v[i + 1 - a->sizes.n]);
    double size = a->sizes.v[i < a->sizes.n ? i : 0];
    const Expr *w = expr_mul(m, op_num(m, t, size * ratio / 2), across);
    const Expr *h = op_num(m, t, size / ratio / 2);
    const Expr *here = expr_binary(m, E_EQ, k, expr_i32(m, i));
    *half_w = i == n - 1 ? w : expr_select(m, here, w, *half_w);
    *half_h = i == n - 1 ? h : expr_select(m, here, h, *half_h);
  }
}

static void multibox_prior_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const MultiboxPriorAttrs *a = c->attrs;
  Module *m = c->m;
  DType t = c->out->dtype;
  OpAxes x = op_out_axes(c, 0);
  const Expr *per_cell = expr_i32(m, a->sizes.n + a->ratios.n - 1);
  const Expr *extent[2] = {in[0]->buffer->shape[2], in[0]->buffer->shape[3]};
  const Expr *cell = expr_floordiv(m, x.index[1], per_cell);
  const Expr *at[2] = {expr_floordiv(m, cell, extent[1]), expr_floormod(m, cell, extent[1])};
  const Expr *center[2], *half[2];
  const Expr *real[2] = {expr_cast(m, t, extent[0]), expr_cast(m, t, extent[1])};
  for (int d = 0; d < 2; d++) {
    const Expr *place = expr_add(m, expr_cast(m, t, at[d]), op_num(m, t, a->offsets.v[d]));
    center[d] =
        a->steps.v[d] > 0 ? expr_mul(m, place, op_num(m, t, a->steps.v[d])) : expr_binary(m, E_DIV, place, real[d]);
  }
  prior_half(c, expr_floormod(m, x.index[1], per_cell), expr_binary(m, E_DIV, real[0], real[1]), &half[1], &half[0]);
  const Expr *value = NULL;
  for (int k = 3; k >= 0; k--) { /* left, top, right, bottom */
    int d = 1 - k % 2;
    const Expr *edge = k < 2 ? expr_sub(m, center[d], half[d]) : expr_add(m, center[d], half[d]);
    value = value ? expr_select(m, expr_binary(m, E_EQ, x.index[2], expr_i32(m, k)), edge, value) : edge;
  }
  *out = op_emit(c, &x, NULL, a->clip ? op_clip_value(m, value, 0, 1) : value);
}

const OpDef op_vision_multibox_prior = {
  .name = "vision.multibox_prior",
  .doc = "boxes (1, h * w * kinds, 4) around every cell of data (n, c, h, w)",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &MultiboxPrior_attrs,
  .fuse = FUSE_OPAQUE,
  .type = multibox_prior_type,
  .compute = multibox_prior_compute,
};

/* ---- multibox_transform_loc ------------------------------------------------------------------------- */

/* clang-format off */
#define MULTIBOX_TRANSFORM_ATTRS(A, S)                                                      \
  A(S, BOOL, clip, "True", "keep boxes within the image")                                   \
  A(S, F64, threshold, "0.01", "least score of a box that is kept")                         \
  A(S, F64S, variances, "[0.1, 0.1, 0.2, 0.2]", "of x, y, width and height")                \
  A(S, BOOL, keep_background, "False", "must be False: boxes of class 0 are left out")
/* clang-format on */
DEFINE_ATTRS(MultiboxTransform, MULTIBOX_TRANSFORM_ATTRS)

static const Type *multibox_transform_type(OpCall *c)
{
  const MultiboxTransformAttrs *a = c->attrs;
  Module *m = c->m;
  want_3d(c, 0, "(batch, classes, boxes)");
  want_3d(c, 2, "(1, boxes, 4)");
  const Type *loc = op_ranked_tensor_arg(c, 1, 2);
  const Type *prob = c->arg[0];
  op_same_dtype(c, 0, 1);
  op_same_dtype(c, 0, 2);
  want_same_dim(c, 1, 0, prob->shape[0], "cls_prob");
  if (dim_differ(loc->shape[1], dim_mul(m, prob->shape[2], dim_int(m, 4))))
    opdef_raise(c, ERR_SHAPE, "loc_pred is %s; it has four numbers for each box of cls_prob %s", op_arg_text(c, 1),
                op_arg_text(c, 0));
  want_same_dim(c, 2, 1, prob->shape[2], "cls_prob's boxes");
  if (a->keep_background) opdef_raise(c, ERR_UNSUPPORTED, "keep_background=True; only False is there");
  if (a->variances.n != 4) opdef_raise(c, ERR_ARGUMENT, "variances has %d elements, not 4", a->variances.n);
  const Expr *dims[3] = {prob->shape[0], prob->shape[2], dim_int(m, 6)};
  return type_tuple(m, 2,
                    (const Type *[]){type_tensor(m, prob->dtype, 3, dims), type_tensor(m, DT_I32, 1, &prob->shape[0])});
}

/* Left, top, right and bottom of box j of batch i. */
static void corrected_box(OpCall *c, const Loops *l, const Expr *i, const Expr *j, const Expr **edge)
{
  const MultiboxTransformAttrs *a = c->attrs;
  Module *m = c->m;
  DType t = l->ib[0]->dtype;
  for (int d = 0; d < 2; d++) {
    const Expr *v[2], *p[2];
    for (int k = 0; k < 2; k++) {
      v[k] = expr_load(m, l->ib[2], 3, (const Expr *[]){expr_i32(m, 0), j, expr_i32(m, d + 2 * k)});
      const Expr *at = expr_add(m, expr_mul(m, j, expr_i32(m, 4)), expr_i32(m, d + 2 * k));
      p[k] = expr_mul(m, expr_load(m, l->ib[1], 2, (const Expr *[]){i, at}), op_num(m, t, a->variances.v[d + 2 * k]));
    }
    const Expr *two = op_num(m, t, 2);
    const Expr *extent = expr_sub(m, v[1], v[0]);
    const Expr *mid = expr_add(m, expr_mul(m, p[0], extent), expr_binary(m, E_DIV, expr_add(m, v[0], v[1]), two));
    const Expr *half = expr_binary(m, E_DIV, expr_mul(m, op_intrin(m, IN_EXP, p[1]), extent), two);
    edge[d] = expr_sub(m, mid, half);
    edge[d + 2] = expr_add(m, mid, half);
  }
  for (int k = 0; a->clip && k < 4; k++) edge[k] = op_clip_value(m, edge[k], 0, 1);
}

static void multibox_transform_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const MultiboxTransformAttrs *a = c->attrs;
  Module *m = c->m;
  Loops l = loops_begin(c, 3, in);
  DType t = l.ib[0]->dtype;
  const Expr *zero = expr_i32(m, 0);
  const Expr *one = expr_i32(m, 1);
  const Expr *boxes = l.ib[0]->shape[2];
  const Var *i = loops_var(m, "batch");
  const Var *j = loops_var(m, "box");
  const Var *k = loops_var(m, "class");
  const Var *r = loops_var(m, "row");
  const Buffer *best = loops_local(m, "best", t, one);
  const Buffer *class = loops_local(m, "which", DT_I32, one);
  const Expr *p = expr_load(m, l.ib[0], 3, (const Expr *[]){i->expr, expr_add(m, k->expr, one), j->expr});
  Stmt *better =
      stmt_if(m, expr_binary(m, E_GT, p, loops_get(m, best, zero)),
              loops_seq(m, loops_set(m, best, zero, p), loops_set(m, class, zero, expr_add(m, k->expr, one))), NULL);
  Stmt *find = stmt_for(m, k, zero, dim_sub(m, l.ib[0]->shape[1], one), FOR_SERIAL, NULL, better);
  const Expr *row = expr_load(m, l.ob[1], 1, &i->expr);
  const Expr *value[6] = {
    expr_cast(m, t, expr_sub(m, loops_get(m, class, zero), one)), loops_get(m, best, zero), NULL, NULL, NULL, NULL};
  corrected_box(c, &l, i->expr, j->expr, value + 2);
  Stmt *put[7];
  for (int e = 0; e < 6; e++)
    put[e] = loops_store(m, l.ob[0], (const Expr *[]){i->expr, row, expr_i32(m, e)}, value[e]);
  put[6] = loops_store(m, l.ob[1], &i->expr, expr_add(m, row, one));
  const Expr *kept = expr_and(m, expr_binary(m, E_GT, loops_get(m, class, zero), zero),
                              expr_not(m, expr_lt(m, loops_get(m, best, zero), op_num(m, t, a->threshold))));
  Stmt *one_box = loops_seq(m, loops_set(m, best, zero, op_num(m, t, -1)), loops_set(m, class, zero, zero), find,
                            stmt_if(m, kept, stmt_seq(m, 7, put), NULL));
  Stmt *blank[6];
  for (int e = 0; e < 6; e++)
    blank[e] = loops_store(m, l.ob[0], (const Expr *[]){i->expr, r->expr, expr_i32(m, e)}, op_num(m, t, -1));
  Stmt *batch =
      loops_seq(m, stmt_for(m, r, zero, boxes, FOR_SERIAL, NULL, stmt_seq(m, 6, blank)),
                loops_store(m, l.ob[1], &i->expr, zero), stmt_for(m, j, zero, boxes, FOR_SERIAL, NULL, one_box));
  Stmt *body = stmt_for(m, i, zero, l.ib[0]->shape[0], FOR_SERIAL, NULL, batch);
  loops_end(&l, "multibox_transform_loc", stmt_alloc(m, best, stmt_alloc(m, class, body)), out);
}

const OpDef op_vision_multibox_transform_loc = {
  .name = "vision.multibox_transform_loc",
  .doc = "prior boxes moved as loc_pred says, of those with a class: rows (class, score, box), and their number",
  .args = "cls_prob, loc_pred, anchor",
  .min_args = 3,
  .max_args = 3,
  .attrs = &MultiboxTransform_attrs,
  .fuse = FUSE_OPAQUE,
  .type = multibox_transform_type,
  .compute = multibox_transform_compute,
};

/* ---- get_valid_counts -------------------------------------------------------------------------------- */

/* clang-format off */
#define VALID_COUNTS_ATTRS(A, S)                                                            \
  A(S, INT, id_index, "0", "where the class of a box stands; -1: boxes have none")          \
  A(S, INT, score_index, "1", "where its score stands")
/* clang-format on */
DEFINE_ATTRS(ValidCounts, VALID_COUNTS_ATTRS)

static void want_place(OpCall *c, const char *name, int64_t at, int64_t least, int64_t room)
{
  const Expr *n = c->arg[0]->shape[2];
  if (at < least || (n->kind == E_INT && at + room > n->u.i))
    opdef_raise(c, ERR_ARGUMENT, "%s is %" PRId64 ", outside of the rows of data %s", name, at, op_arg_text(c, 0));
}

static void want_number(OpCall *c, int i)
{
  const Type *ty = op_tensor_arg(c, i);
  if (ty->ndim > 1 || (ty->ndim && dim_differ(ty->shape[0], dim_int(c->m, 1))))
    opdef_raise(c, ERR_SHAPE, "%s is %s; it is one number", op_arg_name(c, i), op_arg_text(c, i));
}

static const Expr *number_of(Module *m, const Buffer *b)
{
  const Expr *zero = expr_i32(m, 0);
  return expr_load(m, b, b->ndim, &zero);
}

static const Type *valid_counts_type(OpCall *c)
{
  const ValidCountsAttrs *a = c->attrs;
  want_3d(c, 0, "(batch, boxes, elements)");
  want_number(c, 1);
  want_place(c, "id_index", a->id_index, -1, 1);
  want_place(c, "score_index", a->score_index, 0, 1);
  const Type *data = c->arg[0];
  return type_tuple(
      c->m, 3,
      (const Type *[]){type_tensor(c->m, DT_I32, 1, data->shape), data, type_tensor(c->m, DT_I32, 2, data->shape)});
}

/* for e: to[i, row, e] = from, or -1 where from is NULL */
static Stmt *put_row(Module *m, const Buffer *to, const Expr *i, const Expr *row, const Buffer *from, const Expr *at)
{
  const Var *e = loops_var(m, "e");
  const Expr *value = from ? expr_load(m, from, 3, (const Expr *[]){i, at, e->expr}) : op_num(m, to->dtype, -1);
  return stmt_for(m, e, expr_i32(m, 0), to->shape[2], FOR_SERIAL, NULL,
                  loops_store(m, to, (const Expr *[]){i, row, e->expr}, value));
}

static void valid_counts_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ValidCountsAttrs *a = c->attrs;
  Module *m = c->m;
  Loops l = loops_begin(c, 2, in);
  const Buffer *data = l.ib[0];
  const Expr *zero = expr_i32(m, 0);
  const Var *i = loops_var(m, "batch");
  const Var *j = loops_var(m, "box");
  const Var *r = loops_var(m, "row");
  const Expr *score = expr_load(m, data, 3, (const Expr *[]){i->expr, j->expr, expr_i32(m, a->score_index)});
  const Expr *valid = expr_binary(m, E_GT, score, expr_cast(m, score->dtype, number_of(m, l.ib[1])));
  if (a->id_index >= 0) {
    const Expr *id = expr_load(m, data, 3, (const Expr *[]){i->expr, j->expr, expr_i32(m, a->id_index)});
    valid = expr_and(m, valid, expr_binary(m, E_GE, id, op_num(m, id->dtype, 0)));
  }
  const Expr *row = expr_load(m, l.ob[0], 1, &i->expr);
  Stmt *keep = loops_seq(m, put_row(m, l.ob[1], i->expr, row, data, j->expr),
                         loops_store(m, l.ob[2], (const Expr *[]){i->expr, row}, j->expr),
                         loops_store(m, l.ob[0], &i->expr, expr_add(m, row, expr_i32(m, 1))));
  Stmt *blank = loops_seq(m, put_row(m, l.ob[1], i->expr, r->expr, NULL, NULL),
                          loops_store(m, l.ob[2], (const Expr *[]){i->expr, r->expr}, expr_i32(m, -1)));
  Stmt *batch = loops_seq(m, loops_store(m, l.ob[0], &i->expr, zero),
                          stmt_for(m, r, zero, data->shape[1], FOR_SERIAL, NULL, blank),
                          stmt_for(m, j, zero, data->shape[1], FOR_SERIAL, NULL, stmt_if(m, valid, keep, NULL)));
  loops_end(&l, "get_valid_counts", stmt_for(m, i, zero, data->shape[0], FOR_SERIAL, NULL, batch), out);
}

const OpDef op_vision_get_valid_counts = {
  .name = "vision.get_valid_counts",
  .doc = "boxes with a score above the threshold first: their number, the boxes, where each was",
  .args = "data, score_threshold",
  .min_args = 2,
  .max_args = 2,
  .attrs = &ValidCounts_attrs,
  .fuse = FUSE_OPAQUE,
  .type = valid_counts_type,
  .compute = valid_counts_compute,
};

/* ---- non_max_suppression ------------------------------------------------------------------------------- */

/* clang-format off */
#define NMS_ATTRS(A, S)                                                                     \
  A(S, BOOL, force_suppress, "False", "boxes of other classes cover too")                   \
  A(S, INT, top_k, "-1", "so many of the best are looked at; not positive: all")            \
  A(S, INT, coord_start, "2", "where the four coordinates of a box begin")                  \
  A(S, INT, score_index, "1", "where its score stands")                                     \
  A(S, INT, id_index, "0", "where its class stands; -1: boxes have none")                   \
  A(S, BOOL, return_indices, "True", "give where the boxes are and their number, not the boxes") \
  A(S, BOOL, invalid_to_bottom, "False", "boxes that are kept come first, without gaps")
/* clang-format on */
DEFINE_ATTRS(Nms, NMS_ATTRS)

static const Type *nms_type(OpCall *c)
{
  const NmsAttrs *a = c->attrs;
  Module *m = c->m;
  want_3d(c, 0, "(batch, boxes, elements)");
  const Type *data = c->arg[0];
  for (int i = 1; i < 3; i++) {
    op_int_tensor_arg(c, i);
    op_ranked_tensor_arg(c, i, i);
    for (int d = 0; d < i; d++) want_same_dim(c, i, d, data->shape[d], "data");
  }
  want_number(c, 3);
  want_number(c, 4);
  want_place(c, "coord_start", a->coord_start, 0, 4);
  want_place(c, "score_index", a->score_index, 0, 1);
  want_place(c, "id_index", a->id_index, -1, 1);
  if (!a->return_indices) return data;
  const Expr *count[2] = {data->shape[0], dim_int(m, 1)};
  return type_tuple(m, 2, (const Type *[]){type_tensor(m, DT_I32, 2, data->shape), type_tensor(m, DT_I32, 2, count)});
}

typedef struct Suppress {
  Module *m;
  const NmsAttrs *a;
  const Buffer *data, *valid, *indices, *limit, *iou; /* what comes in */
  const Buffer *rows, *where, *count;                 /* what goes out; rows, or where and count */
  const Buffer *key, *kept, *n;                       /* scores; boxes kept; counters, see below */
  const Expr *i;                                      /* the batch */
  Sorter s;
} Suppress;
/* counters: boxes kept, whether this one is covered, rows written, and boxes to look at */
enum { KEPT, COVERED, WRITTEN, LOOK, COUNTERS };

static const Expr *counter(const Suppress *s, int which) { return loops_get(s->m, s->n, expr_i32(s->m, which)); }

static Stmt *set_counter(const Suppress *s, int which, const Expr *value)
{
  return loops_set(s->m, s->n, expr_i32(s->m, which), value);
}

static const Expr *field(const Suppress *s, const Expr *box, int64_t at)
{
  return expr_load(s->m, s->data, 3, (const Expr *[]){s->i, box, expr_i32(s->m, at)});
}

/* Intersection over union; 0 of boxes without area. */
static const Expr *overlap(const Suppress *s, const Expr *a, const Expr *b)
{
  Module *m = s->m;
  const Expr *box[2] = {a, b};
  const Expr *zero = op_num(m, s->data->dtype, 0);
  const Expr *inner = NULL;
  const Expr *area[2] = {NULL, NULL};
  for (int d = 0; d < 2; d++) {
    const Expr *lo[2], *hi[2];
    for (int k = 0; k < 2; k++) {
      const Expr *x = field(s, box[k], s->a->coord_start + d);
      const Expr *y = field(s, box[k], s->a->coord_start + d + 2);
      lo[k] = expr_min(m, x, y);
      hi[k] = expr_max(m, x, y);
      area[k] = area[k] ? expr_mul(m, area[k], expr_sub(m, hi[k], lo[k])) : expr_sub(m, hi[k], lo[k]);
    }
    const Expr *side = expr_max(m, expr_sub(m, expr_min(m, hi[0], hi[1]), expr_max(m, lo[0], lo[1])), zero);
    inner = inner ? expr_mul(m, inner, side) : side;
  }
  const Expr *whole = expr_sub(m, expr_add(m, area[0], area[1]), inner);
  const Expr *some = expr_binary(m, E_GT, whole, zero);
  return expr_select(m, some, expr_binary(m, E_DIV, inner, expr_select(m, some, whole, op_num(m, zero->dtype, 1))),
                     zero);
}

/* Sets COVERED where a box that is kept covers this one. */
static Stmt *check_covered(const Suppress *s, const Expr *box)
{
  Module *m = s->m;
  const Expr *zero = expr_i32(m, 0);
  const Var *q = loops_var(m, "q");
  const Expr *other = loops_get(m, s->kept, q->expr);
  const Expr *limit = expr_cast(m, s->data->dtype, number_of(m, s->iou));
  const Expr *covers = expr_binary(m, E_GE, overlap(s, box, other), limit);
  if (s->a->id_index >= 0) {
    const Expr *id = field(s, other, s->a->id_index);
    covers = expr_and(m, expr_binary(m, E_GE, id, op_num(m, id->dtype, 0)), covers);
    if (!s->a->force_suppress) covers = expr_and(m, expr_binary(m, E_EQ, field(s, box, s->a->id_index), id), covers);
  }
  return loops_seq(m, set_counter(s, COVERED, zero),
                   stmt_for(m, q, zero, counter(s, KEPT), FOR_SERIAL, NULL,
                            stmt_if(m, covers, set_counter(s, COVERED, expr_i32(m, 1)), NULL)));
}

/* The box in row p of the result, or behind the rows written so far where gaps are closed. */
static Stmt *write_box(const Suppress *s, const Expr *p, const Expr *box)
{
  Module *m = s->m;
  bool close = s->a->return_indices || s->a->invalid_to_bottom;
  const Expr *row = close ? counter(s, WRITTEN) : p;
  const Expr *index = s->where ? loops_load(m, s->indices, (const Expr *[]){s->i, box}) : NULL;
  Stmt *put = s->where ? loops_store(m, s->where, (const Expr *[]){s->i, row}, expr_cast(m, DT_I32, index))
                       : put_row(m, s->rows, s->i, row, s->data, box);
  if (!close) return put;
  const Expr *first = s->where ? index : field(s, box, 0);
  return stmt_if(m, expr_binary(m, E_GE, first, op_num(m, first->dtype, 0)),
                 loops_seq(m, put, set_counter(s, WRITTEN, expr_add(m, row, expr_i32(m, 1)))), NULL);
}

/* The boxes by falling score: each is written unless there are enough or a better one covers it.  One whose score is
 * not positive is written too, but neither counts nor covers. */
static Stmt *suppress_sorted(const Suppress *s)
{
  Module *m = s->m;
  const Expr *zero = expr_i32(m, 0);
  const Var *j = loops_var(m, "j");
  const Var *p = loops_var(m, "p");
  const Expr *boxes = s->data->shape[1];
  const Expr *valid = expr_cast(m, DT_I32, expr_load(m, s->valid, 1, &s->i));
  const Expr *top = s->a->top_k > 0 ? expr_min(m, valid, expr_i32(m, s->a->top_k)) : valid;
  const Expr *score = field(s, j->expr, s->a->score_index);
  const Expr *low = op_num(m, score->dtype, -INFINITY);
  Stmt *load = stmt_for(m, j, zero, boxes, FOR_SERIAL, NULL,
                        loops_set(m, s->key, j->expr, expr_select(m, expr_lt(m, j->expr, valid), score, low)));
  const Expr *before =
      sorter_before(m, loops_get(m, s->key, sorter_a(&s->s)), loops_get(m, s->key, sorter_b(&s->s)), false);
  const Expr *box = sorter_order(&s->s, p->expr);
  const Expr *positive = expr_binary(m, E_GT, loops_get(m, s->key, box), op_num(m, score->dtype, 0));
  Stmt *keep =
      loops_seq(m, loops_set(m, s->kept, counter(s, KEPT), box),
                set_counter(s, KEPT, expr_add(m, counter(s, KEPT), expr_i32(m, 1))), write_box(s, p->expr, box));
  Stmt *look =
      loops_seq(m, check_covered(s, box), stmt_if(m, expr_binary(m, E_EQ, counter(s, COVERED), zero), keep, NULL));
  const Expr *enough = expr_binary(m, E_EQ, counter(s, KEPT), expr_cast(m, DT_I32, number_of(m, s->limit)));
  Stmt *one = stmt_if(m, expr_not(m, enough), stmt_if(m, positive, look, write_box(s, p->expr, box)), NULL);
  one = stmt_if(m, expr_lt(m, p->expr, counter(s, LOOK)), one, NULL);
  return loops_seq(m, load, sorter_sort(&s->s, sorter_answer(&s->s, before)), set_counter(s, KEPT, zero),
                   set_counter(s, LOOK, top), stmt_for(m, p, zero, boxes, FOR_SERIAL, NULL, one));
}

static Stmt *suppress_batch(const Suppress *s)
{
  Module *m = s->m;
  const Expr *zero = expr_i32(m, 0);
  const Var *r = loops_var(m, "row");
  const Var *p = loops_var(m, "p");
  const Expr *boxes = s->data->shape[1];
  const Expr *valid = expr_cast(m, DT_I32, expr_load(m, s->valid, 1, &s->i));
  Stmt *blank = s->where ? loops_store(m, s->where, (const Expr *[]){s->i, r->expr}, expr_i32(m, -1))
                         : put_row(m, s->rows, s->i, r->expr, NULL, NULL);
  const Expr *limit = number_of(m, s->iou);
  Stmt *as_they_are = stmt_for(m, p, zero, boxes, FOR_SERIAL, NULL,
                               stmt_if(m, expr_lt(m, p->expr, valid), write_box(s, p->expr, p->expr), NULL));
  Stmt *all =
      loops_seq(m, stmt_for(m, r, zero, boxes, FOR_SERIAL, NULL, blank), set_counter(s, WRITTEN, zero),
                stmt_if(m, expr_binary(m, E_GT, limit, op_num(m, limit->dtype, 0)), suppress_sorted(s), as_they_are));
  if (!s->where) return all;
  return loops_seq(m, all, loops_store(m, s->count, (const Expr *[]){s->i, zero}, counter(s, WRITTEN)));
}

static void nms_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 5, in);
  const Var *i = loops_var(m, "batch");
  const Expr *boxes = l.ib[0]->shape[1];
  const NmsAttrs *a = c->attrs;
  Suppress s = {
    .m = m, .a = a, .data = l.ib[0], .valid = l.ib[1], .indices = l.ib[2], .limit = l.ib[3], .iou = l.ib[4]};
  if (a->return_indices) s.where = l.ob[0], s.count = l.ob[1];
  else s.rows = l.ob[0];
  s.key = loops_local(m, "key", l.ib[0]->dtype, boxes);
  s.kept = loops_local(m, "kept", DT_I32, boxes);
  s.n = loops_local(m, "counters", DT_I32, expr_i32(m, COUNTERS));
  s.s = sorter_new(m, boxes);
  s.i = i->expr;
  Stmt *body = stmt_for(m, i, expr_i32(m, 0), l.ib[0]->shape[0], FOR_SERIAL, NULL, suppress_batch(&s));
  body = stmt_alloc(m, s.key, stmt_alloc(m, s.kept, stmt_alloc(m, s.n, sorter_alloc(&s.s, body))));
  loops_end(&l, "non_max_suppression", body, out);
}

const OpDef op_vision_non_max_suppression = {
  .name = "vision.non_max_suppression",
  .doc = "boxes by falling score that no better one of their class covers by iou_threshold or more",
  .args = "data, valid_count, indices, max_output_size, iou_threshold",
  .min_args = 5,
  .max_args = 5,
  .attrs = &Nms_attrs,
  .fuse = FUSE_OPAQUE,
  .type = nms_type,
  .compute = nms_compute,
};

/* ---- yolo_reorg ------------------------------------------------------------------------------------------ */

/* clang-format off */
#define YOLO_REORG_ATTRS(A, S) A(S, INT, stride, NULL, "cells of so many by so many elements become channels")
/* clang-format on */
DEFINE_ATTRS(YoloReorg, YOLO_REORG_ATTRS)

static const Type *yolo_reorg_type(OpCall *c)
{
  const YoloReorgAttrs *a = c->attrs;
  const Type *data = op_ranked_tensor_arg(c, 0, 4);
  Module *m = c->m;
  if (a->stride < 1 || a->stride > 1 << 10)
    opdef_raise(c, ERR_ARGUMENT, "stride is %" PRId64 ", at least 1 is wanted", a->stride);
  int64_t by[4] = {1, a->stride * a->stride, a->stride, a->stride};
  for (int d = 1; d < 4; d++)
    if (data->shape[d]->kind != E_INT || data->shape[d]->u.i % by[d])
      opdef_raise(c, ERR_SHAPE, "dimension %d of data %s is not a known multiple of %" PRId64, d, op_arg_text(c, 0),
                  by[d]);
  const Expr *s = dim_int(m, a->stride);
  const Expr *shape[4] = {data->shape[0], dim_mul(m, data->shape[1], dim_mul(m, s, s)),
                          dim_floordiv(m, data->shape[2], s), dim_floordiv(m, data->shape[3], s)};
  return type_tensor(m, data->dtype, 4, shape);
}

/* Darknet's layer: element (n, k, j, i) of an array shaped as data is the element (n, k % o, j * s + k / o / s,
 * i * s + k / o % s) of data seen as (n, o, h * s, w * s), o = c / s / s; the result is that array seen as
 * (n, c * s * s, h / s, w / s). */
static void yolo_reorg_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const Expr *const *shape = in[0]->buffer->shape;
  int64_t s = ((const YoloReorgAttrs *)c->attrs)->stride;
  const Expr *step = expr_i32(m, s);
  OpAxes x = op_out_axes(c, 0);
  const Expr *at[4], *from[4];
  op_emit_unflatten(m, op_emit_flatten(m, 4, x.shape, x.index), 4, shape, at);
  const Expr *depth = expr_i32(m, shape[1]->u.i / s / s);
  const Expr *part = expr_floordiv(m, at[1], depth);
  const Expr *wide[4] = {shape[0], depth, dim_mul(m, shape[2], step), dim_mul(m, shape[3], step)};
  const Expr *place[4] = {at[0], expr_floormod(m, at[1], depth),
                          expr_add(m, expr_mul(m, at[2], step), expr_floordiv(m, part, step)),
                          expr_add(m, expr_mul(m, at[3], step), expr_floormod(m, part, step))};
  op_emit_unflatten(m, op_emit_flatten(m, 4, wide, place), 4, shape, from);
  *out = op_emit(c, &x, NULL, op_read(m, in[0], from));
}

const OpDef op_vision_yolo_reorg = {
  .name = "vision.yolo_reorg",
  .doc = "elements of cells become channels, in Darknet's order: (n, c * s * s, h / s, w / s)",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &YoloReorg_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = yolo_reorg_type,
  .compute = yolo_reorg_compute,
};
