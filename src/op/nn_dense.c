/* nn_dense.c: matrix products, and the bias that follows them.
 *
 *   nn.dense         (…, k) x (units, k)           -> (…, units)
 *   nn.matmul        (…, k) x (k, m)               -> (…, m), either side transposed on demand
 *   nn.batch_matmul  (b, n, k) x (b, m, k)         -> (b, n, m), a batch of one serves all
 *   nn.contrib_dense_pack  the weight in blocks of output features, some input features side by side
 *
 * Products and sums are made in out_dtype. */
#include "op/nn_kit.h"

#include <math.h>

DEFINE_ATTRS_TABLE(Dense, DENSE_ATTRS)
DEFINE_ATTRS_TABLE(DensePack, DENSE_PACK_ATTRS)
DEFINE_ATTRS_TABLE(Matmul, MATMUL_ATTRS)
DEFINE_ATTRS_TABLE(BatchMatmul, BATCH_MATMUL_ATTRS)
DEFINE_ATTRS_TABLE(BiasAdd, BIAS_ADD_ATTRS)

static DType product_dtype(OpCall *c, DType out)
{
  DType a = c->arg[0]->dtype;
  DType b = c->arg[1]->dtype;
  if (out.code != DT_VOID) return out;
  if (!dtype_eq(a, b))
    opdef_raise(c, ERR_TYPE, "the operands are %s and %s; give out_dtype to multiply different dtypes",
                dtype_name(scratch(c->m->ctx), a), dtype_name(scratch(c->m->ctx), b));
  return a;
}

static void want_same_depth(OpCall *c, const Expr *a, const Expr *b)
{
  if (nn_dims_differ(c->m, a, b))
    opdef_raise(c, ERR_SHAPE, "%s and %s do not multiply: %s and %s are summed over", nn_arg_shape(c, 0),
                nn_arg_shape(c, 1), expr_str_of(scratch(c->m->ctx), a), expr_str_of(scratch(c->m->ctx), b));
}

static void want_units(OpCall *c, int64_t units, const Expr *have)
{
  if (units && nn_dims_differ(c->m, expr_i32(c->m, units), have))
    opdef_raise(c, ERR_SHAPE, "units is %" PRId64 ", %s has %s", units, nn_arg_shape(c, 1),
                expr_str_of(scratch(c->m->ctx), have));
}

/* What is summed: small floats are carried in float32. */
static const Expr *product(Stage *s, DType out, const Expr *a, const Expr *b)
{
  DType t = nn_accumulator(out);
  return expr_mul(s->m, expr_cast(s->m, t, a), expr_cast(s->m, t, b));
}

/* ---- dense, matmul --------------------------------------------------------------------------- */

typedef struct Product {
  int64_t units;
  DType out;
  bool ta, tb;
} Product;

static Product product_of(OpCall *c)
{
  if (c->op->attrs == &Dense_attrs) {
    const DenseAttrs *a = c->attrs;
    return (Product){a->units, a->out_dtype, false, true};
  }
  const MatmulAttrs *a = c->attrs;
  return (Product){a->units, a->out_dtype, a->transpose_a, a->transpose_b};
}

static const Type *matmul_type(OpCall *c)
{
  Product p = product_of(c);
  const Type *a = nn_tensor(c, 0, "data");
  const Type *b = nn_tensor(c, 1, "weight");
  if (a->ndim < 1 || (p.ta && a->ndim != 2))
    opdef_raise(c, ERR_SHAPE, "the first operand %s needs %s", nn_arg_shape(c, 0),
                p.ta ? "two dimensions" : "a dimension");
  nn_want_rank(c, 1, "the second operand", 2);
  want_same_depth(c, a->shape[p.ta ? 0 : a->ndim - 1], b->shape[p.tb]);
  want_units(c, p.units, b->shape[!p.tb]);
  const Expr *shape[MAX_RANK + 1];
  if (a->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", MAX_RANK, a->ndim);
  for (int i = 0; i < a->ndim; i++) shape[i] = a->shape[i];
  if (p.ta) shape[0] = a->shape[1];
  shape[a->ndim - 1] = nn_guard_equal(c->m, b->shape[!p.tb], a->shape[p.ta ? 0 : a->ndim - 1], b->shape[p.tb]);
  return type_tensor(c->m, product_dtype(c, p.out), a->ndim, shape);
}

/* The second operand, from the first and units. */
static const Type *matmul_operand(OpCall *c, int i)
{
  Product p = product_of(c);
  const Type *a = c->arg[0];
  const Expr *shape[2];
  if (i != 1 || !a || a->kind != TY_TENSOR || a->ndim < 1 || !p.units) return NULL;
  shape[p.tb] = a->shape[p.ta ? 0 : a->ndim - 1];
  shape[!p.tb] = expr_i32(c->m, p.units);
  return type_tensor(c->m, a->dtype, 2, shape);
}

static void matmul_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Product p = product_of(c);
  int n = c->out->ndim;
  Stage s = nn_stage(m, n, c->out->shape, NULL);
  const Expr *k = nn_reduce_axis(&s, "k", in[1]->buffer->shape[p.tb]);
  const Expr *ai[MAX_RANK], *bi[2];
  for (int i = 0; i < n; i++) ai[i] = s.at[i];
  ai[n - 1] = k;
  if (p.ta) ai[0] = k, ai[1] = s.at[0];
  bi[p.tb] = k;
  bi[!p.tb] = s.at[n - 1];
  const char *name =
      !p.ta && p.tb ? "T_dense" : arena_printf(m->arena, "T_matmul_%s%s", p.ta ? "T" : "N", p.tb ? "T" : "N");
  *out = nn_sum(&s, name, !p.ta && p.tb ? "dense" : "matmul",
                product(&s, c->out->dtype, nn_read(m, in[0], ai), nn_read(m, in[1], bi)), c->out->dtype);
}

/* A multiplication and an addition for each element of the result and each input feature. */
static double dense_flops(const Node *call)
{
  return 2 * type_known_elements(call->type) * type_known_dim(call->arg[0]->type, -1);
}

/* (n, k) times (k, m) is (n, m): the sizes of both operands over that of the result are k * k, once for each of the
 * batch, whichever operand is transposed. */
static double square_flops(const Node *call, double batch)
{
  double out = type_known_elements(call->type);
  double operands = type_known_elements(call->arg[0]->type) * type_known_elements(call->arg[1]->type);
  double k = operands / (out ? out : 1);
  return k > 0 && batch > 0 ? 2 * out * sqrt(k / batch) : 0;
}
static double matmul_flops(const Node *call) { return square_flops(call, 1); }
static double batch_matmul_flops(const Node *call) { return square_flops(call, type_known_dim(call->type, 0)); }

const OpDef op_nn_dense = {
  .name = "nn.dense",
  .doc = "data times the transpose of weight (units, in)",
  .args = "data, weight",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Dense_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_ALWAYS,
  .type = matmul_type,
  .operand = matmul_operand,
  .compute = matmul_compute,
  .flops = dense_flops,
};

const OpDef op_nn_matmul = {
  .name = "nn.matmul",
  .doc = "product of matrices",
  .args = "tensor_a, tensor_b",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Matmul_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_ALWAYS,
  .type = matmul_type,
  .operand = matmul_operand,
  .compute = matmul_compute,
  .flops = matmul_flops,
};

/* ---- dense with a packed weight ------------------------------------------------------------------ */

/* Rows of a block; group: columns that lie side by side for each of them, 1 without a fourth letter. */
static int64_t pack_block(OpCall *c, int64_t *group)
{
  const DensePackAttrs *a = c->attrs;
  Layout l = nn_layout(c, "weight_layout", a->weight_layout);
  if (l.n < 3 || l.n > 4 || l.letter[0] != 'N' || l.letter[1] != 'C' || l.letter[2] != 'n' ||
      (l.n == 4 && l.letter[3] != 'c'))
    opdef_raise(c, ERR_ARGUMENT, "weight_layout '%s' is not of the form NC8n or NC8n4c", a->weight_layout);
  *group = l.n == 4 ? l.factor[3] : 1;
  return l.factor[2];
}

static const Type *dense_pack_type(OpCall *c)
{
  const DensePackAttrs *a = c->attrs;
  int64_t group;
  int64_t block = pack_block(c, &group);
  nn_want_rank(c, 0, "data", 2);
  nn_want_rank(c, 1, "weight", group > 1 ? 4 : 3);
  const Type *data = c->arg[0];
  const Type *weight = c->arg[1];
  DType out = product_dtype(c, a->out_dtype);
  /* groups have zeros behind the last column */
  const Expr *depth = data->shape[1];
  if (group > 1) depth = nn_simplify(c->m, nn_ceildiv(c->m, depth, expr_i32(c->m, group)));
  want_same_depth(c, depth, weight->shape[1]);
  if (nn_dims_differ(c->m, weight->shape[2], expr_i32(c->m, block)))
    opdef_raise(c, ERR_SHAPE, "weight %s has blocks of %s, weight_layout '%s' says %" PRId64, nn_arg_shape(c, 1),
                expr_str_of(scratch(c->m->ctx), weight->shape[2]), a->weight_layout, block);
  const Expr *units = nn_simplify(c->m, expr_mul(c->m, weight->shape[0], expr_i32(c->m, block)));
  if (a->units && units->kind == E_INT && (a->units > units->u.i || a->units <= units->u.i - block))
    want_units(c, a->units, units);
  if (a->units) units = expr_i32(c->m, a->units);
  return type_tensor(c->m, out, 2, (const Expr *[]){data->shape[0], units});
}

static void dense_pack_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  int64_t group;
  const Expr *block = expr_i32(m, pack_block(c, &group));
  Stage s = nn_stage(m, 2, c->out->shape, "y x");
  const Expr *k = nn_reduce_axis(&s, "k", in[1]->buffer->shape[1]);
  const Expr *w[4] = {expr_floordiv(m, s.at[1], block), k, expr_floormod(m, s.at[1], block)};
  if (group > 1) {
    w[3] = nn_reduce_axis(&s, "ki", expr_i32(m, group));
    k = expr_add(m, expr_mul(m, k, expr_i32(m, group)), w[3]);
  }
  const Expr *all = in[0]->buffer->shape[1];
  const Expr *data = nn_read(m, in[0], (const Expr *[]){s.at[0], k});
  if (group > 1 && !(all->kind == E_INT && all->u.i % group == 0))
    data = nn_if(m, expr_lt(m, k, all), data, expr_const(m, data->dtype, 0));
  const Expr *term = product(&s, c->out->dtype, data, nn_read(m, in[1], w));
  *out = nn_sum(&s, "T_dense_pack", "dense_pack", term, c->out->dtype);
}

const OpDef op_nn_contrib_dense_pack = {
  .name = "nn.contrib_dense_pack",
  .doc = "nn.dense over a weight whose rows come in blocks: (units/8, in, 8) for NC8n, (units/8, in/4, 8, 4) for "
         "NC8n4c",
  .args = "data, weight",
  .min_args = 2,
  .max_args = 2,
  .attrs = &DensePack_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_ALWAYS,
  .type = dense_pack_type,
  .compute = dense_pack_compute,
  .flops = dense_flops,
};

/* ---- batch_matmul --------------------------------------------------------------------------------- */

static const Type *batch_matmul_type(OpCall *c)
{
  const BatchMatmulAttrs *t = c->attrs;
  nn_want_rank(c, 0, "tensor_a", 3);
  nn_want_rank(c, 1, "tensor_b", 3);
  const Type *a = c->arg[0];
  const Type *b = c->arg[1];
  bool one_a = expr_is_int(a->shape[0], 1);
  bool one_b = expr_is_int(b->shape[0], 1);
  if (!one_a && !one_b && nn_dims_differ(c->m, a->shape[0], b->shape[0]))
    opdef_raise(c, ERR_SHAPE, "the batches of %s and %s differ: %s and %s", nn_arg_shape(c, 0), nn_arg_shape(c, 1),
                expr_str_of(scratch(c->m->ctx), a->shape[0]), expr_str_of(scratch(c->m->ctx), b->shape[0]));
  want_same_depth(c, a->shape[t->transpose_a ? 1 : 2], b->shape[t->transpose_b ? 2 : 1]);
  const Expr *shape[] = {one_a ? b->shape[0] : a->shape[0], a->shape[t->transpose_a ? 2 : 1],
                         b->shape[t->transpose_b ? 1 : 2]};
  if (!one_a && !one_b) shape[0] = nn_guard_equal(c->m, shape[0], a->shape[0], b->shape[0]);
  shape[2] = nn_guard_equal(c->m, shape[2], a->shape[t->transpose_a ? 1 : 2], b->shape[t->transpose_b ? 2 : 1]);
  return type_tensor(c->m, product_dtype(c, t->out_dtype), 3, shape);
}

static void batch_matmul_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const BatchMatmulAttrs *t = c->attrs;
  const Expr *const *a = in[0]->buffer->shape, *const *b = in[1]->buffer->shape, *zero = expr_i32(m, 0);
  Stage s = nn_stage(m, 3, c->out->shape, "b i j");
  const Expr *k = nn_reduce_axis(&s, "k", a[t->transpose_a ? 1 : 2]);
  const Expr *ai[] = {expr_is_int(a[0], 1) ? zero : s.at[0], t->transpose_a ? k : s.at[1],
                      t->transpose_a ? s.at[1] : k};
  const Expr *bi[] = {expr_is_int(b[0], 1) ? zero : s.at[0], t->transpose_b ? s.at[2] : k,
                      t->transpose_b ? k : s.at[2]};
  const char *name =
      arena_printf(m->arena, "T_batch_matmul_%s%s", t->transpose_a ? "T" : "N", t->transpose_b ? "T" : "N");
  *out = nn_sum(&s, name, "batch_matmul", product(&s, c->out->dtype, nn_read(m, in[0], ai), nn_read(m, in[1], bi)),
                c->out->dtype);
}

const OpDef op_nn_batch_matmul = {
  .name = "nn.batch_matmul",
  .doc = "product of matrices, one for each of a batch; tensor_b transposed unless told otherwise",
  .args = "tensor_a, tensor_b",
  .min_args = 2,
  .max_args = 2,
  .attrs = &BatchMatmul_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .narrow = NARROW_ALWAYS,
  .type = batch_matmul_type,
  .compute = batch_matmul_compute,
  .flops = batch_matmul_flops,
};

/* ---- bias_add --------------------------------------------------------------------------------------- */

static const Type *bias_add_type(OpCall *c)
{
  const BiasAddAttrs *a = c->attrs;
  const Type *data = nn_tensor(c, 0, "data");
  nn_want_rank(c, 1, "bias", 1);
  int axis = nn_axis_of(c, a->axis, data->ndim);
  if (!dtype_eq(data->dtype, c->arg[1]->dtype))
    opdef_raise(c, ERR_TYPE, "data is %s, bias %s", dtype_name(scratch(c->m->ctx), data->dtype),
                dtype_name(scratch(c->m->ctx), c->arg[1]->dtype));
  if (nn_dims_differ(c->m, data->shape[axis], c->arg[1]->shape[0]))
    opdef_raise(c, ERR_SHAPE, "bias %s does not run along axis %" PRId64 " of data %s", nn_arg_shape(c, 1), a->axis,
                nn_arg_shape(c, 0));
  const Expr *shape[MAX_RANK];
  if (data->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", MAX_RANK, data->ndim);
  for (int i = 0; i < data->ndim; i++) shape[i] = data->shape[i];
  shape[axis] = nn_guard_equal(c->m, shape[axis], shape[axis], c->arg[1]->shape[0]);
  return shape[axis] == data->shape[axis] ? data : type_tensor(c->m, data->dtype, data->ndim, shape);
}

static const Type *bias_operand(OpCall *c, int i)
{
  return i == 1 ? nn_operand_along(c, ((const BiasAddAttrs *)c->attrs)->axis) : NULL;
}

static void bias_add_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const BiasAddAttrs *a = c->attrs;
  Stage s = nn_stage(c->m, c->out->ndim, c->out->shape, NULL);
  int axis = nn_axis_of(c, a->axis, c->out->ndim);
  *out = nn_finish(&s, "T_add", "broadcast",
                   expr_add(c->m, nn_read(c->m, in[0], s.at), nn_read1(c->m, in[1], s.at[axis])));
}

static const void *bias_add_layout(OpCall *c, LayoutPair *arg, LayoutPair *out)
{
  BiasAddAttrs *a = attrs_copy(c->m, &BiasAdd_attrs, c->attrs);
  int axis = layout_axis(&arg[0], nn_axis_of(c, a->axis, c->arg[0]->ndim));
  if (axis < 0) return NULL;
  a->axis = axis;
  out[0] = arg[0];
  return a;
}

const OpDef op_nn_bias_add = {
  .name = "nn.bias_add",
  .doc = "adds a vector along one axis",
  .args = "data, bias",
  .min_args = 2,
  .max_args = 2,
  .attrs = &BiasAdd_attrs,
  .fuse = FUSE_BROADCAST,
  .narrow = NARROW_FOLLOW,
  .type = bias_add_type,
  .operand = bias_operand,
  .compute = bias_add_compute,
  .layout = bias_add_layout,
};
