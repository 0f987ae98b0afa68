/* nn_softmax.c: softmax and log_softmax, stable: the largest element is taken off first.
 *
 * A NaN anywhere along the axis makes the whole row NaN; a row of -inf alone is NaN, as
 * 0/0 is. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(Softmax, SOFTMAX_ATTRS)

static const Type *softmax_type(OpCall *c)
{
  const SoftmaxAttrs *a = c->attrs;
  nn_want_float(c, 0, "data");
  nn_axis_of(c, a->axis, c->arg[0]->ndim);
  return c->arg[0];
}

typedef struct Rows {
  int axis, n;                 /* the axis, the rank without it */
  const Expr *shape[MAX_RANK]; /* without it */
} Rows;

static Rows rows_of(OpCall *c)
{
  const SoftmaxAttrs *a = c->attrs;
  Rows r = {.axis = nn_axis_of(c, a->axis, c->out->ndim)};
  for (int i = 0; i < c->out->ndim; i++)
    if (i != r.axis) r.shape[r.n++] = c->out->shape[i];
  return r;
}

/* The index of a row's element k, and of a full index's row. */
static void row_index(const Rows *r, const Expr *const *row, const Expr *k, const Expr **index)
{
  for (int i = 0, j = 0; i <= r->n; i++) index[i] = i == r->axis ? k : row[j++];
}

static void full_row(const Rows *r, const Expr *const *at, const Expr **row)
{
  for (int i = 0, j = 0; i <= r->n; i++)
    if (i != r->axis) row[j++] = at[i];
}

static const Tensor *row_max(OpCall *c, const Rows *r, const Tensor *x)
{
  Stage s = nn_stage(c->m, r->n, r->shape, NULL);
  const Expr *k = nn_reduce_axis(&s, "k", c->out->shape[r->axis]);
  const Expr *index[MAX_RANK];
  row_index(r, s.at, k, index);
  return nn_finish(&s, "T_softmax_maxelem", "comm_reduce", nn_reduce(&s, "max", nn_read(c->m, x, index)));
}

/* exp(x - max) at an index, in the dtype to add up in. */
static const Expr *shifted(OpCall *c, const Rows *r, const Tensor *x, const Tensor *max, const Expr *const *index)
{
  Module *m = c->m;
  DType t = nn_accumulator(c->out->dtype);
  const Expr *row[MAX_RANK];
  full_row(r, index, row);
  return expr_sub(m, expr_cast(m, t, nn_read(m, x, index)), expr_cast(m, t, nn_read(m, max, row)));
}

static void softmax_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Rows r = rows_of(c);
  const Tensor *max = row_max(c, &r, in[0]);
  Stage e = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Tensor *exps =
      nn_finish(&e, "T_softmax_exp", "elemwise", nn_unary(m, IN_EXP, shifted(c, &r, in[0], max, e.at)));
  Stage t = nn_stage(m, r.n, r.shape, NULL);
  const Expr *k = nn_reduce_axis(&t, "k", c->out->shape[r.axis]);
  const Expr *index[MAX_RANK], *row[MAX_RANK];
  row_index(&r, t.at, k, index);
  const Tensor *total = nn_finish(&t, "T_softmax_expsum", "comm_reduce", nn_reduce(&t, "sum", nn_read(m, exps, index)));
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  full_row(&r, s.at, row);
  DType sum_type = nn_accumulator(c->out->dtype);
  const Expr *value =
      expr_mul(m, nn_read(m, exps, s.at), NN_DIV(m, expr_const(m, sum_type, 1), nn_read(m, total, row)));
  *out = nn_finish(&s, "T_softmax_norm", "softmax_output", expr_cast(m, c->out->dtype, value));
}

static void log_softmax_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Rows r = rows_of(c);
  const Tensor *max = row_max(c, &r, in[0]);
  Stage t = nn_stage(m, r.n, r.shape, NULL);
  const Expr *k = nn_reduce_axis(&t, "k", c->out->shape[r.axis]);
  const Expr *index[MAX_RANK], *row[MAX_RANK];
  row_index(&r, t.at, k, index);
  const Tensor *total = nn_finish(&t, "T_softmax_expsum", "comm_reduce",
                                  nn_reduce(&t, "sum", nn_unary(m, IN_EXP, shifted(c, &r, in[0], max, index))));
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  full_row(&r, s.at, row);
  const Expr *value = expr_sub(m, shifted(c, &r, in[0], max, s.at), nn_unary(m, IN_LOG, nn_read(m, total, row)));
  *out = nn_finish(&s, "T_log_softmax", "log_softmax_output", expr_cast(m, c->out->dtype, value));
}

static const void *softmax_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  SoftmaxAttrs *a = attrs_copy(c->m, &Softmax_attrs, c->attrs);
  int axis = layout_axis(&arg[0], nn_axis_of(c, a->axis, c->arg[0]->ndim));
  if (axis < 0) return NULL;
  a->axis = axis;
  out[0] = arg[0];
  return a;
}

const OpDef op_nn_softmax = {
  .name = "nn.softmax",
  .doc = "exp(x) over the sum of exp(x) along an axis",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Softmax_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_NEVER,
  .type = softmax_type,
  .compute = softmax_compute,
  .layout = softmax_layout,
};

const OpDef op_nn_log_softmax = {
  .name = "nn.log_softmax",
  .doc = "logarithm of softmax",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Softmax_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = softmax_type,
  .compute = log_softmax_compute,
  .layout = softmax_layout,
};
