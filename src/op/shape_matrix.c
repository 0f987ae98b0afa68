/* shape_matrix.c: the last two axes as a matrix (trilu, matrix_set_diag, eye, eye_like)
 * and blocks of space moved to the batch and back. */
#include "op/shape.h"

/* ---- trilu ------------------------------------------------------------------------------------ */

#define TRILU_ATTRS(A, S) A(S, BOOL, upper, "True", "keep what is above the diagonal instead of below")
DEFINE_ATTRS(Trilu, TRILU_ATTRS)

static void want_matrix(OpCall *c, const Type *ty)
{
  if (ty->ndim < 2) opdef_raise(c, ERR_SHAPE, "data is %s; it has at least two dimensions", op_arg_text(c, 0));
}

static void want_one_int(OpCall *c, int i)
{
  const Type *k = op_int_tensor_arg(c, i);
  if (k->ndim > 1 || (k->ndim == 1 && dim_differ(k->shape[0], dim_int(c->m, 1))))
    opdef_raise(c, ERR_SHAPE, "%s is %s; it is one number", op_arg_name(c, i), op_arg_text(c, i));
}

static const Type *trilu_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  want_matrix(c, in);
  want_one_int(c, 1);
  return in;
}

/* Column less row, in 64 bits: k may be anything. */
static const Expr *diagonal_of(Module *m, const OpAxes *ax)
{
  return expr_sub(m, expr_cast(m, DT_I64, ax->index[ax->ndim - 1]), expr_cast(m, DT_I64, ax->index[ax->ndim - 2]));
}

static void trilu_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const TriluAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *k = expr_cast(m, DT_I64, op_emit_read1(m, in[1], expr_i32(m, 0)));
  const Expr *keep = expr_binary(m, a->upper ? E_GE : E_LE, diagonal_of(m, &ax), k);
  out[0] = op_emit(c, &ax, "T_trilu", expr_select(m, keep, op_read(m, in[0], ax.index), op_num(m, c->out->dtype, 0)));
}

const OpDef op_trilu = {
  .name = "trilu",
  .doc = "the part of each matrix above (or below) diagonal k, zero elsewhere",
  .args = "data, k",
  .min_args = 2,
  .max_args = 2,
  .attrs = &Trilu_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = trilu_type,
  .compute = trilu_compute,
};

/* ---- matrix_set_diag ------------------------------------------------------------------------------ */

/* clang-format off */
#define MATRIX_SET_DIAG_ATTRS(A, S)                                                             \
  A(S, INTS, k, "[0]", "the diagonal, or the lowest and the highest of a band")                 \
  A(S, STR, align, "\"RIGHT_LEFT\"", "where superdiagonals and subdiagonals stand in their rows")
/* clang-format on */
DEFINE_ATTRS(MatrixSetDiag, MATRIX_SET_DIAG_ATTRS)

static void diag_band(OpCall *c, int64_t *lo, int64_t *hi, bool *super_right, bool *sub_right)
{
  const MatrixSetDiagAttrs *a = c->attrs;
  static const char *const names[] = {"RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"};
  int at = 0;
  while (at < 4 && strcmp(a->align, names[at])) at++;
  if (at == 4)
    opdef_raise(c, ERR_ARGUMENT, "align is '%s'; it is RIGHT_LEFT, LEFT_RIGHT, LEFT_LEFT or RIGHT_RIGHT", a->align);
  if (a->k.n < 1 || a->k.n > 2 || (a->k.n == 2 && a->k.v[0] > a->k.v[1]))
    opdef_raise(c, ERR_ARGUMENT, "k is one diagonal, or the lowest and the highest of a band");
  *lo = a->k.v[0];
  *hi = a->k.v[a->k.n - 1];
  *super_right = at == 0 || at == 3;
  *sub_right = at == 1 || at == 3;
}

static const Type *matrix_set_diag_type(OpCall *c)
{
  const Type *in = op_tensor_arg(c, 0);
  const Type *diag = op_tensor_arg(c, 1);
  int64_t lo, hi;
  bool super_right, sub_right;
  want_matrix(c, in);
  op_same_dtype(c, 0, 1);
  diag_band(c, &lo, &hi, &super_right, &sub_right);
  int want = in->ndim - 1 + (lo != hi);
  if (diag->ndim != want)
    opdef_raise(c, ERR_SHAPE, "diagonal is %s; for %s and k from %" PRId64 " to %" PRId64 " it has %d dimensions",
                op_arg_text(c, 1), op_arg_text(c, 0), lo, hi, want);
  for (int i = 0; i < in->ndim - 2; i++)
    if (dim_differ(in->shape[i], diag->shape[i]))
      opdef_raise(c, ERR_SHAPE, "axis %d of %s and of diagonal %s differ", i, op_arg_text(c, 0), op_arg_text(c, 1));
  if (lo != hi && dim_differ(diag->shape[in->ndim - 2], dim_int(c->m, hi - lo + 1)))
    opdef_raise(c, ERR_SHAPE, "diagonal is %s; a band from %" PRId64 " to %" PRId64 " has %" PRId64 " rows",
                op_arg_text(c, 1), lo, hi, hi - lo + 1);
  return in;
}

static void matrix_set_diag_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  int64_t lo, hi;
  bool super_right, sub_right;
  int n = ax.ndim;
  diag_band(c, &lo, &hi, &super_right, &sub_right);
  const Expr *row = ax.index[n - 2];
  const Expr *col = ax.index[n - 1];
  const Expr *zero = expr_i32(m, 0);
  const Expr *at[MAX_RANK];
  const Expr *d = expr_sub(m, col, row);
  const Expr *longest = in[1]->buffer->shape[in[1]->buffer->ndim - 1];
  const Expr *length = expr_min(m, expr_add(m, ax.shape[n - 2], expr_min(m, d, zero)),
                                expr_sub(m, ax.shape[n - 1], expr_max(m, d, zero)));
  const Expr *pad = expr_sub(m, longest, length);
  const Expr *above = expr_binary(m, E_GE, d, zero);
  const Expr *shift = expr_select(m, above, super_right ? pad : zero, sub_right ? pad : zero);
  for (int i = 0; i < n - 2; i++) at[i] = ax.index[i];
  int k = n - 2;
  if (lo != hi) at[k++] = expr_sub(m, expr_i32(m, hi), d);
  at[k] = lo != hi ? expr_add(m, expr_min(m, row, col), shift) : expr_min(m, row, col);
  const Expr *inside = expr_and(m, expr_binary(m, E_GE, d, expr_i32(m, lo)), expr_binary(m, E_LE, d, expr_i32(m, hi)));
  out[0] =
      op_emit(c, &ax, "T_matrix_set_diag", op_emit_if(m, inside, op_read(m, in[1], at), op_read(m, in[0], ax.index)));
}

const OpDef op_matrix_set_diag = {
  .name = "matrix_set_diag",
  .doc = "data with diagonals of each matrix replaced",
  .args = "data, diagonal",
  .min_args = 2,
  .max_args = 2,
  .attrs = &MatrixSetDiag_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = matrix_set_diag_type,
  .compute = matrix_set_diag_compute,
};

/* ---- eye ------------------------------------------------------------------------------------------- */

/* clang-format off */
#define EYE_ATTRS(A, S)                                  \
  A(S, INT, n, NULL, "rows")                             \
  A(S, INTS, m, "None", "columns; None: as many")        \
  A(S, INT, k, "0", "the diagonal that is 1")            \
  A(S, DTYPE, dtype, "\"float32\"", "of the result")
/* clang-format on */
DEFINE_ATTRS(Eye, EYE_ATTRS)
/* clang-format off */
#define EYE_LIKE_ATTRS(A, S)                             \
  A(S, INT, k, "0", "the diagonal that is 1")            \
  A(S, DTYPE, dtype, "None", "of the result; None: that of data")
/* clang-format on */
DEFINE_ATTRS(EyeLike, EYE_LIKE_ATTRS)

static const Type *eye_type(OpCall *c)
{
  const EyeAttrs *a = c->attrs;
  int64_t shape[2] = {a->n, a->m.given && a->m.n ? a->m.v[0] : a->n};
  if (shape[0] < 0 || shape[1] < 0)
    opdef_raise(c, ERR_ARGUMENT, "n is %" PRId64 ", m %" PRId64 "; neither is negative", shape[0], shape[1]);
  return type_tensor_of(c->m, a->dtype, 2, shape);
}

static const Type *eye_like_type(OpCall *c)
{
  const EyeLikeAttrs *a = c->attrs;
  const Type *in = op_ranked_tensor_arg(c, 0, 2);
  return type_tensor(c->m, a->dtype.code == DT_VOID ? in->dtype : a->dtype, 2, in->shape);
}

static void eye_emit(OpCall *c, int64_t k, const Tensor **out)
{
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Expr *on = expr_binary(m, E_EQ, diagonal_of(m, &ax), expr_int(m, DT_I64, k));
  out[0] = op_emit(c, &ax, "T_eye", expr_select(m, on, op_num(m, c->out->dtype, 1), op_num(m, c->out->dtype, 0)));
}

static void eye_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  (void)in;
  eye_emit(c, ((const EyeAttrs *)c->attrs)->k, out);
}

static void eye_like_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  (void)in;
  eye_emit(c, ((const EyeLikeAttrs *)c->attrs)->k, out);
}

const OpDef op_eye = {
  .name = "eye",
  .doc = "ones on a diagonal, zeros elsewhere",
  .args = "",
  .min_args = 0,
  .max_args = 0,
  .attrs = &Eye_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = eye_type,
  .compute = eye_compute,
};
const OpDef op_eye_like = {
  .name = "eye_like",
  .doc = "eye in the shape of data",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &EyeLike_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = eye_like_type,
  .compute = eye_like_compute,
};

/* ---- space_to_batch_nd, batch_to_space_nd --------------------------------------------------------------- */

/* clang-format off */
#define SPACE_TO_BATCH_ATTRS(A, S)                                                  \
  A(S, INTS, block_shape, NULL, "block of each spatial axis")                       \
  A(S, INTS, paddings, NULL, "before and after each spatial axis, one after the other") \
  A(S, F64, pad_value, "0.0", "what the padding holds")
/* clang-format on */
DEFINE_ATTRS(SpaceToBatch, SPACE_TO_BATCH_ATTRS)
/* clang-format off */
#define BATCH_TO_SPACE_ATTRS(A, S)                                                  \
  A(S, INTS, block_shape, NULL, "block of each spatial axis")                       \
  A(S, INTS, crops, NULL, "cut off before and after each spatial axis, one after the other")
/* clang-format on */
DEFINE_ATTRS(BatchToSpace, BATCH_TO_SPACE_ATTRS)

static int64_t check_blocks(OpCall *c, const Type *in, AttrInts block, AttrInts edge, const char *what)
{
  int64_t all = 1;
  if (block.n + 1 > in->ndim || edge.n != 2 * block.n)
    opdef_raise(c, ERR_ARGUMENT, "block_shape has %d numbers and %s %d for %s; %s has two for each block", block.n,
                what, edge.n, op_arg_text(c, 0), what);
  for (int i = 0; i < block.n; i++) {
    if (block.v[i] < 1 || block.v[i] > INT32_MAX || edge.v[2 * i] < 0 || edge.v[2 * i + 1] < 0 ||
        edge.v[2 * i] > INT32_MAX || edge.v[2 * i + 1] > INT32_MAX || !int_mul(all, block.v[i], &all))
      opdef_raise(c, ERR_ARGUMENT,
                  "block %" PRId64 " with %s (%" PRId64 ", %" PRId64
                  ") on axis %d; a block is at least 1, the others at least 0",
                  block.v[i], what, edge.v[2 * i], edge.v[2 * i + 1], i + 1);
  }
  return all;
}

static const Type *space_to_batch_type(OpCall *c)
{
  const SpaceToBatchAttrs *a = c->attrs;
  Module *m = c->m;
  const Type *in = op_tensor_arg(c, 0);
  int64_t all = check_blocks(c, in, a->block_shape, a->paddings, "paddings");
  const Expr **dim = op_emit_copy_index(m, in->ndim, in->shape);
  dim[0] = dim_mul(m, dim[0], dim_int(m, all));
  for (int i = 0; i < a->block_shape.n; i++) {
    const Expr *padded = dim_add(m, dim[i + 1], dim_int(m, a->paddings.v[2 * i] + a->paddings.v[2 * i + 1]));
    if (padded->kind == E_INT && padded->u.i % a->block_shape.v[i])
      opdef_raise(c, ERR_SHAPE, "axis %d of %s padded to %" PRId64 " is no multiple of its block %" PRId64, i + 1,
                  op_arg_text(c, 0), padded->u.i, a->block_shape.v[i]);
    dim[i + 1] = dim_floordiv(m, padded, dim_int(m, a->block_shape.v[i]));
  }
  return type_tensor(m, in->dtype, in->ndim, dim);
}

static void space_to_batch_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const SpaceToBatchAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Buffer *data = in[0]->buffer;
  const Expr **at = op_emit_copy_index(m, ax.ndim, ax.index);
  const Expr *inside = expr_bool(m, true);
  const Expr *block = expr_floordiv(m, ax.index[0], data->shape[0]);
  at[0] = expr_floormod(m, ax.index[0], data->shape[0]);
  for (int i = a->block_shape.n - 1; i >= 0; i--) {
    const Expr *b = expr_i32(m, a->block_shape.v[i]);
    const Expr *within = i ? expr_floormod(m, block, b) : block;
    at[i + 1] = expr_sub(m, expr_add(m, expr_mul(m, ax.index[i + 1], b), within), expr_i32(m, a->paddings.v[2 * i]));
    block = expr_floordiv(m, block, b);
    inside = expr_and(
        m, inside,
        expr_and(m, expr_binary(m, E_GE, at[i + 1], expr_i32(m, 0)), expr_lt(m, at[i + 1], data->shape[i + 1])));
  }
  out[0] = op_emit(c, &ax, "T_space_to_batch",
                   op_emit_if(m, inside, op_read(m, in[0], at), op_num(m, c->out->dtype, a->pad_value)));
}

const OpDef op_space_to_batch_nd = {
  .name = "nn.space_to_batch_nd",
  .doc = "blocks of the spatial axes moved to the batch",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &SpaceToBatch_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = space_to_batch_type,
  .compute = space_to_batch_compute,
};

static const Type *batch_to_space_type(OpCall *c)
{
  const BatchToSpaceAttrs *a = c->attrs;
  Module *m = c->m;
  const Type *in = op_tensor_arg(c, 0);
  int64_t all = check_blocks(c, in, a->block_shape, a->crops, "crops");
  const Expr **dim = op_emit_copy_index(m, in->ndim, in->shape);
  if (dim[0]->kind == E_INT && dim[0]->u.i % all)
    opdef_raise(c, ERR_SHAPE, "the batch of %s is no multiple of the %" PRId64 " places of a block", op_arg_text(c, 0),
                all);
  dim[0] = dim_floordiv(m, dim[0], dim_int(m, all));
  for (int i = 0; i < a->block_shape.n; i++) {
    dim[i + 1] = dim_sub(m, dim_mul(m, dim[i + 1], dim_int(m, a->block_shape.v[i])),
                         dim_int(m, a->crops.v[2 * i] + a->crops.v[2 * i + 1]));
    if (dim[i + 1]->kind == E_INT && dim[i + 1]->u.i < 0)
      opdef_raise(c, ERR_SHAPE, "crops take more off axis %d of %s than there is", i + 1, op_arg_text(c, 0));
  }
  return type_tensor(m, in->dtype, in->ndim, dim);
}

static void batch_to_space_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const BatchToSpaceAttrs *a = c->attrs;
  Module *m = c->m;
  OpAxes ax = op_out_axes(c, 0);
  const Expr **at = op_emit_copy_index(m, ax.ndim, ax.index);
  const Expr *place = NULL;
  for (int i = 0; i < a->block_shape.n; i++) {
    const Expr *b = expr_i32(m, a->block_shape.v[i]);
    const Expr *p = expr_add(m, ax.index[i + 1], expr_i32(m, a->crops.v[2 * i]));
    at[i + 1] = expr_floordiv(m, p, b);
    place = place ? expr_add(m, expr_mul(m, place, b), expr_floormod(m, p, b)) : expr_floormod(m, p, b);
  }
  if (place) at[0] = expr_add(m, expr_mul(m, place, ax.shape[0]), ax.index[0]);
  out[0] = op_emit(c, &ax, "T_batch_to_space", op_read(m, in[0], at));
}

const OpDef op_batch_to_space_nd = {
  .name = "nn.batch_to_space_nd",
  .doc = "places of a block moved from the batch to the spatial axes",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &BatchToSpace_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = batch_to_space_type,
  .compute = batch_to_space_compute,
};
