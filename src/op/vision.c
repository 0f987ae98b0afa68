/* vision.c: non-maximum suppression over all classes, with ONNX's meaning.
 *
 * For each batch and class: boxes by falling score, those above score_threshold, each
 * kept unless it overlaps one kept before by more than iou_threshold, at most
 * max_output_boxes_per_class.  Rows of the result are (batch, class, box), in that order
 * of batches and classes; there is room for all, the second output says how many are
 * filled (dyn.take_first cuts).  A NaN score is above no threshold. */
#include "op/sort.h"

/* clang-format off */
#define ALL_CLASS_NMS_ATTRS(A, S)                                                            \
  A(S, STR, output_format, "\"onnx\"", "onnx: rows of (batch, class, box)")                  \
  A(S, INT, center_point_box, "0", "0: boxes are two corners (y, x); 1: center, width and height")
/* clang-format on */
DEFINE_ATTRS(AllClassNms, ALL_CLASS_NMS_ATTRS)

static const Type *nms_type(OpCall *c)
{
  const AllClassNmsAttrs *a = c->attrs;
  const Type *box = op_tensor_arg(c, 0);
  const Type *score = op_tensor_arg(c, 1);
  if (strcmp(a->output_format, "onnx"))
    opdef_raise(c, ERR_UNSUPPORTED, "output_format '%s'; there is onnx", a->output_format);
  if (a->center_point_box != 0 && a->center_point_box != 1)
    opdef_raise(c, ERR_ARGUMENT, "center_point_box is %" PRId64 "; it is 0 or 1", a->center_point_box);
  op_need_float(c, 0);
  op_same_dtype(c, 0, 1);
  if (box->ndim != 3 || score->ndim != 3 || dim_differ(box->shape[2], dim_int(c->m, 4)) ||
      dim_differ(box->shape[0], score->shape[0]) || dim_differ(box->shape[1], score->shape[2]))
    opdef_raise(c, ERR_SHAPE, "boxes is %s, scores %s; they are (batch, boxes, 4) and (batch, classes, boxes)",
                op_arg_text(c, 0), op_arg_text(c, 1));
  for (int i = 2; i < 5; i++) {
    const Type *one = op_tensor_arg(c, i);
    if (one->ndim > 1 || (one->ndim && dim_differ(one->shape[0], dim_int(c->m, 1))))
      opdef_raise(c, ERR_SHAPE, "%s is %s; it is one number", op_arg_name(c, i), op_arg_text(c, i));
  }
  const Expr *dim[2] = {dim_product(c->m, 3, score->shape), dim_int(c->m, 3)};
  const Expr *one = dim_int(c->m, 1);
  return type_tuple(c->m, 2, (const Type *[]){type_tensor(c->m, DT_I64, 2, dim), type_tensor(c->m, DT_I64, 1, &one)});
}

typedef struct Nms {
  Module *m;
  bool center;
  const Buffer *boxes, *scores, *limit, *iou, *threshold, *rows, *count;
  const Buffer *key, *kept, *nkept, *clash;
  Sorter s;
  const Expr *batch, *class;
} Nms;

/* A scalar or a vector of one. */
static const Expr *only(Module *m, const Buffer *b)
{
  const Expr *zero = expr_i32(m, 0);
  return expr_load(m, b, b->ndim, &zero);
}

/* Low and high edge of a box along axis d (0: y, 1: x). */
static void box_edges(const Nms *n, const Expr *box, int d, const Expr **lo, const Expr **hi)
{
  Module *m = n->m;
  const Expr *v[4];
  for (int i = 0; i < 4; i++) v[i] = expr_load(m, n->boxes, 3, (const Expr *[]){n->batch, box, expr_i32(m, i)});
  if (n->center) {
    const Expr *half = expr_mul(m, v[3 - d], op_num(m, v[0]->dtype, 0.5));
    const Expr *mid = v[1 - d];
    *lo = expr_sub(m, mid, half);
    *hi = expr_add(m, mid, half);
  } else {
    *lo = expr_min(m, v[d], v[d + 2]);
    *hi = expr_max(m, v[d], v[d + 2]);
  }
}

/* Does box overlap the kept box by more than the threshold?  Boxes without area never do. */
static const Expr *overlaps(const Nms *n, const Expr *box, const Expr *kept)
{
  Module *m = n->m;
  const Expr *inner = NULL;
  const Expr *area[2] = {NULL, NULL};
  const Expr *zero = op_num(m, n->boxes->dtype, 0);
  for (int d = 0; d < 2; d++) {
    const Expr *lo[2], *hi[2];
    box_edges(n, box, d, &lo[0], &hi[0]);
    box_edges(n, kept, d, &lo[1], &hi[1]);
    const Expr *side = expr_max(m, expr_sub(m, expr_min(m, hi[0], hi[1]), expr_max(m, lo[0], lo[1])), zero);
    inner = inner ? expr_mul(m, inner, side) : side;
    for (int k = 0; k < 2; k++)
      area[k] = area[k] ? expr_mul(m, area[k], expr_sub(m, hi[k], lo[k])) : expr_sub(m, hi[k], lo[k]);
  }
  const Expr *whole = expr_sub(m, expr_add(m, area[0], area[1]), inner);
  const Expr *limit = expr_cast(m, n->boxes->dtype, only(m, n->iou));
  const Expr *ratio = expr_binary(m, E_DIV, inner,
                                  expr_select(m, expr_binary(m, E_GT, whole, zero), whole, op_num(m, whole->dtype, 1)));
  return expr_and(m, expr_binary(m, E_GT, whole, zero), expr_binary(m, E_GT, ratio, limit));
}

/* Box number p in order: kept unless it clashes. */
static Stmt *consider(const Nms *n, const Expr *p)
{
  Module *m = n->m;
  const Expr *zero = expr_i32(m, 0);
  const Expr *one = expr_i32(m, 1);
  const Expr *box = sorter_order(&n->s, p);
  const Expr *nkept = loops_get(m, n->nkept, zero);
  const Var *q = loops_var(m, "q");
  Stmt *check = stmt_if(m, overlaps(n, box, loops_get(m, n->kept, q->expr)), loops_set(m, n->clash, zero, one), NULL);
  Stmt *checks = stmt_for(m, q, zero, nkept, FOR_SERIAL, NULL,
                          stmt_if(m, expr_binary(m, E_EQ, loops_get(m, n->clash, zero), zero), check, NULL));
  const Expr *at = expr_cast(m, DT_I32, loops_get(m, n->count, zero));
  const Expr *row[3] = {n->batch, n->class, box};
  Stmt *put[6];
  for (int i = 0; i < 3; i++) put[i] = loops_store(m, n->rows, (const Expr *[]){at, expr_i32(m, i)}, row[i]);
  put[3] = loops_set(m, n->kept, nkept, box);
  put[4] = loops_set(m, n->nkept, zero, expr_add(m, nkept, one));
  put[5] = loops_set(m, n->count, zero, expr_add(m, loops_get(m, n->count, zero), expr_int(m, DT_I64, 1)));
  Stmt *keep = stmt_if(m, expr_binary(m, E_EQ, loops_get(m, n->clash, zero), zero), stmt_seq(m, 6, put), NULL);
  const Expr *limit = expr_cast(m, DT_I64, only(m, n->limit));
  const Expr *score = loops_get(m, n->key, box);
  const Expr *wanted = expr_and(m, expr_lt(m, expr_cast(m, DT_I64, nkept), limit),
                                expr_binary(m, E_GT, score, expr_cast(m, score->dtype, only(m, n->threshold))));
  return stmt_if(m, wanted, loops_seq(m, loops_set(m, n->clash, zero, zero), checks, keep), NULL);
}

static void nms_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 5, in);
  const Expr *boxes = l.ib[0]->shape[1];
  const Expr *zero = expr_i32(m, 0);
  const Expr *one = expr_i32(m, 1);
  const Var *b = loops_var(m, "batch");
  const Var *k = loops_var(m, "class");
  const Var *i = loops_var(m, "i");
  const Var *p = loops_var(m, "p");
  Nms n = {.m = m,
           .center = ((const AllClassNmsAttrs *)c->attrs)->center_point_box == 1,
           .boxes = l.ib[0],
           .scores = l.ib[1],
           .limit = l.ib[2],
           .iou = l.ib[3],
           .threshold = l.ib[4],
           .rows = l.ob[0],
           .count = l.ob[1],
           .batch = b->expr,
           .class = k->expr};
  n.key = loops_local(m, "key", l.ib[1]->dtype, boxes);
  n.kept = loops_local(m, "kept", DT_I32, boxes);
  n.nkept = loops_local(m, "nkept", DT_I32, one);
  n.clash = loops_local(m, "clash", DT_I32, one);
  n.s = sorter_new(m, boxes);
  const Expr *score = expr_load(m, n.scores, 3, (const Expr *[]){b->expr, k->expr, i->expr});
  Stmt *load = stmt_for(m, i, zero, boxes, FOR_SERIAL, NULL, loops_set(m, n.key, i->expr, score));
  const Expr *before =
      sorter_before(m, loops_get(m, n.key, sorter_a(&n.s)), loops_get(m, n.key, sorter_b(&n.s)), false);
  Stmt *one_class =
      loops_seq(m, load, sorter_sort(&n.s, sorter_answer(&n.s, before)), loops_set(m, n.nkept, zero, zero),
                stmt_for(m, p, zero, boxes, FOR_SERIAL, NULL, consider(&n, p->expr)));
  Stmt *all = stmt_for(m, k, zero, n.scores->shape[1], FOR_SERIAL, NULL, one_class);
  all = stmt_for(m, b, zero, n.scores->shape[0], FOR_SERIAL, NULL, all);
  Stmt *body = sorter_alloc(&n.s, loops_seq(m, loops_set(m, n.count, zero, expr_int(m, DT_I64, 0)), all));
  const Buffer *own[] = {n.key, n.kept, n.nkept, n.clash};
  for (size_t j = 0; j < sizeof own / sizeof *own; j++) body = stmt_alloc(m, own[j], body);
  loops_end(&l, "all_class_nms", body, out);
}

const OpDef op_all_class_nms = {
  .name = "vision.all_class_non_max_suppression",
  .doc = "boxes to keep for each batch and class, with room for all, and their number",
  .args = "boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold",
  .min_args = 5,
  .max_args = 5,
  .attrs = &AllClassNms_attrs,
  .fuse = FUSE_OPAQUE,
  .type = nms_type,
  .compute = nms_compute,
};
