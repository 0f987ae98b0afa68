/* sparse.c: tensors given by their elements that are not zero.
 *
 *   sparse_to_dense  places (n, d) and values (n) as a tensor
 *   sparse_reshape   places under another shape
 *   nn.sparse_dense, nn.sparse_add  a matrix by compressed rows: row r has the elements indptr[r] … indptr[r + 1] - 1
 *                    of data, in the columns that indices says; data of three dimensions holds blocks instead of
 *                    elements, and rows and columns count blocks then
 *
 * A column outside of the matrix has no effect. */
#include "op/nn_kit.h"
#include "op/shape.h"

/* ---- sparse_to_dense ------------------------------------------------------------------------------- */

/* clang-format off */
#define SPARSE_TO_DENSE_ATTRS(A, S) A(S, DIMS, output_shape, NULL, "the shape of the result")
/* clang-format on */
DEFINE_ATTRS(SparseToDense, SPARSE_TO_DENSE_ATTRS)

static const Type *sparse_to_dense_type(OpCall *c)
{
  const SparseToDenseAttrs *a = c->attrs;
  const Type *at = op_int_tensor_arg(c, 0);
  const Type *values = op_tensor_arg(c, 1);
  const Type *rest = op_tensor_arg(c, 2);
  op_same_dtype(c, 1, 2);
  if (at->ndim > 2 || values->ndim > 1 || rest->ndim > 0)
    opdef_raise(c, ERR_SHAPE, "indices %s have two dimensions at most, values %s one, and default_value %s none",
                op_arg_text(c, 0), op_arg_text(c, 1), op_arg_text(c, 2));
  const Expr *length = at->ndim == 2 ? at->shape[1] : dim_int(c->m, 1);
  if (dim_differ(length, dim_int(c->m, a->output_shape.n)) || length->kind != E_INT)
    opdef_raise(c, ERR_SHAPE, "indices %s name places in a shape of %d dimensions", op_arg_text(c, 0),
                a->output_shape.n);
  const Expr *count = at->ndim ? at->shape[0] : dim_int(c->m, 1);
  if (values->ndim && dim_differ(count, values->shape[0]))
    opdef_raise(c, ERR_SHAPE, "there are indices %s and values %s; one place for each value, or one value for all",
                op_arg_text(c, 0), op_arg_text(c, 1));
  return type_tensor(c->m, values->dtype, a->output_shape.n, a->output_shape.v);
}

/* default_value everywhere, then the values in order: of several in one place the last stays. */
static void sparse_to_dense_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 3, in);
  const Buffer *at = l.ib[0];
  const Buffer *to = l.ob[0];
  const Expr *ix[MAX_RANK], *place[MAX_RANK];
  const Expr *zero = expr_i32(m, 0);
  const Expr *inside = NULL;
  const Var *n = loops_var(m, "n");
  loops_index(m, to->ndim, ix);
  Stmt *fill = loops_store(m, to, ix, expr_load(m, l.ib[2], 0, NULL));
  if (to->ndim) fill = loops_nest(m, to->ndim, to->shape, -1, ix, true, fill);
  for (int d = 0; d < to->ndim; d++) {
    const Expr *v = expr_load(m, at, at->ndim, (const Expr *[]){n->expr, expr_i32(m, d)});
    const Expr *in_dim = expr_and(m, expr_binary(m, E_GE, v, expr_int(m, v->dtype, 0)), expr_lt(m, v, to->shape[d]));
    inside = inside ? expr_and(m, inside, in_dim) : in_dim;
    place[d] = v;
  }
  const Expr *value = expr_load(m, l.ib[1], l.ib[1]->ndim, &n->expr);
  Stmt *put = loops_store(m, to, place, value);
  if (inside) put = stmt_if(m, inside, put, NULL);
  const Expr *count = at->ndim ? at->shape[0] : expr_i32(m, 1);
  loops_end(&l, "sparse_to_dense", loops_seq(m, fill, stmt_for(m, n, zero, count, FOR_SERIAL, NULL, put)), out);
}

const OpDef op_sparse_to_dense = {
  .name = "sparse_to_dense",
  .doc = "values at their places, default_value elsewhere; a place outside is dropped",
  .args = "sparse_indices, sparse_values, default_value",
  .min_args = 3,
  .max_args = 3,
  .attrs = &SparseToDense_attrs,
  .fuse = FUSE_OPAQUE,
  .type = sparse_to_dense_type,
  .compute = sparse_to_dense_compute,
};

/* ---- sparse_reshape ---------------------------------------------------------------------------------- */

static const Type *sparse_reshape_type(OpCall *c)
{
  const Type *at = op_int_tensor_arg(c, 0);
  if (at->ndim != 2) opdef_raise(c, ERR_SHAPE, "sparse_indices is %s; it is (places, rank)", op_arg_text(c, 0));
  for (int i = 1; i < 3; i++) {
    const Type *shape = op_int_tensor_arg(c, i);
    if (shape->ndim != 1 || shape->shape[0]->kind != E_INT)
      opdef_raise(c, ERR_SHAPE, "%s is %s; it is a vector of known length", op_arg_name(c, i), op_arg_text(c, i));
  }
  if (dim_differ(at->shape[1], c->arg[1]->shape[0]))
    opdef_raise(c, ERR_SHAPE, "sparse_indices %s name places in a shape of %s dimensions", op_arg_text(c, 0),
                expr_str_of(scratch(c->m->ctx), c->arg[1]->shape[0]));
  const Expr *dims[2] = {at->shape[0], c->arg[2]->shape[0]};
  const Type *shape = type_tensor(c->m, c->arg[2]->dtype, 1, &c->arg[2]->shape[0]);
  return type_tuple(c->m, 2, (const Type *[]){type_tensor(c->m, at->dtype, 2, dims), shape});
}

/* The product of the elements of a vector behind k; without those that are -1 where they stand for what is missing. */
static const Expr *product_behind(Module *m, const Tensor *shape, int64_t n, int64_t k, bool known)
{
  DType t = shape->buffer->dtype;
  const Expr *p = expr_int(m, t, 1);
  for (int64_t i = k; i < n; i++) {
    const Expr *v = op_emit_read1(m, shape, expr_i32(m, i));
    if (known) v = expr_select(m, expr_lt(m, v, expr_int(m, t, 0)), expr_int(m, t, 1), v);
    p = expr_mul(m, p, v);
  }
  return p;
}

static void sparse_reshape_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  int64_t n = in[1]->buffer->shape[0]->u.i;
  int64_t k = in[2]->buffer->shape[0]->u.i;
  OpAxes s = op_out_axes(c, 1);
  const Expr *asked = op_emit_read1(m, in[2], s.index[0]);
  DType t = asked->dtype;
  const Expr *rest = op_int_divide(m, E_FLOORDIV, expr_cast(m, t, product_behind(m, in[1], n, 0, false)),
                                   product_behind(m, in[2], k, 0, true));
  out[1] = op_emit(c, &s, "new_shape", expr_select(m, expr_lt(m, asked, expr_int(m, t, 0)), rest, asked));
  OpAxes x = op_out_axes(c, 0);
  DType p = c->out->field[0]->dtype;
  const Expr *flat = expr_int(m, p, 0);
  for (int64_t d = 0; d < n; d++) {
    const Expr *v = op_read(m, in[0], (const Expr *[]){x.index[0], expr_i32(m, d)});
    flat = expr_add(m, flat, expr_mul(m, v, expr_cast(m, p, product_behind(m, in[1], n, d + 1, false))));
  }
  const Expr *value = NULL;
  for (int64_t d = k - 1; d >= 0; d--) {
    const Expr *q = op_int_divide(m, E_FLOORDIV, flat, expr_cast(m, p, product_behind(m, out[1], k, d + 1, false)));
    const Expr *extent = expr_cast(m, p, op_emit_read1(m, out[1], expr_i32(m, d)));
    if (d > 0) q = op_int_divide(m, E_FLOORMOD, q, extent);
    value = value ? expr_select(m, expr_binary(m, E_EQ, x.index[1], expr_i32(m, d)), q, value) : q;
  }
  out[0] = op_emit(c, &x, "new_indices", value ? value : expr_int(m, p, 0));
}

const OpDef op_sparse_reshape = {
  .name = "sparse_reshape",
  .doc = "places of a sparse tensor under another shape, in which one -1 stands for what is left; and that shape",
  .args = "sparse_indices, prev_shape, new_shape",
  .min_args = 3,
  .max_args = 3,
  .fuse = FUSE_OPAQUE,
  .type = sparse_reshape_type,
  .compute = sparse_reshape_compute,
};

/* ---- compressed rows ----------------------------------------------------------------------------------- */

/* clang-format off */
#define SPARSE_DENSE_ATTRS(A, S) A(S, BOOL, sparse_lhs, "False", "the sparse matrix is the first factor")
/* clang-format on */
DEFINE_ATTRS(SparseDense, SPARSE_DENSE_ATTRS)

static void want_rows(OpCall *c, bool blocks)
{
  const Type *data = op_tensor_arg(c, 1);
  op_same_dtype(c, 0, 1);
  for (int i = 2; i < 4; i++) {
    op_int_tensor_arg(c, i);
    op_ranked_tensor_arg(c, i, 1);
  }
  if (data->ndim != 1 && !(blocks && data->ndim == 3))
    opdef_raise(c, ERR_SHAPE, "sparse_data is %s; it is a vector%s", op_arg_text(c, 1),
                blocks ? ", or blocks (n, rows, columns)" : "");
}

static const Type *sparse_dense_type(OpCall *c)
{
  const SparseDenseAttrs *a = c->attrs;
  Module *m = c->m;
  const Type *dense = op_ranked_tensor_arg(c, 0, 2);
  want_rows(c, true);
  const Type *data = c->arg[1];
  const Expr *rows = dim_sub(m, c->arg[3]->shape[0], dim_int(m, 1));
  if (data->ndim == 3) rows = dim_mul(m, rows, data->shape[1]);
  const Expr *shape[2] = {a->sparse_lhs ? rows : dense->shape[0], a->sparse_lhs ? dense->shape[0] : rows};
  return type_tensor(m, dense->dtype, 2, shape);
}

static void sparse_dense_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  bool lhs = ((const SparseDenseAttrs *)c->attrs)->sparse_lhs;
  Module *m = c->m;
  Loops l = loops_begin(c, 4, in);
  const Buffer *dense = l.ib[0];
  const Buffer *data = l.ib[1];
  const Expr *zero = expr_i32(m, 0);
  const Expr *one = expr_i32(m, 1);
  const Expr *ix[2];
  loops_index(m, 2, ix);
  const Expr *row = ix[lhs ? 0 : 1]; /* of the sparse matrix, and of the other */
  const Expr *other = ix[lhs ? 1 : 0];
  const Expr *high = data->ndim == 3 ? data->shape[1] : one;
  const Expr *wide = data->ndim == 3 ? data->shape[2] : one;
  const Expr *block = expr_floordiv(m, row, high);
  const Var *e = loops_var(m, "e");
  const Var *k = loops_var(m, "k");
  DType t = nn_accumulator(dense->dtype);
  const Buffer *sum = loops_local(m, "sum", t, one);
  const Expr *first = expr_cast(m, DT_I32, loops_get(m, l.ib[3], block));
  const Expr *last = expr_cast(m, DT_I32, loops_get(m, l.ib[3], expr_add(m, block, one)));
  const Expr *at = expr_add(m, first, e->expr);
  const Expr *column = expr_add(m, expr_mul(m, expr_cast(m, DT_I32, loops_get(m, l.ib[2], at)), wide), k->expr);
  const Expr *value = expr_load(m, data, data->ndim, (const Expr *[]){at, expr_floormod(m, row, high), k->expr});
  const Expr *factor = expr_load(m, dense, 2, (const Expr *[]){other, column});
  const Expr *term = expr_mul(m, expr_cast(m, t, factor), expr_cast(m, t, value));
  Stmt *add = stmt_if(m, nn_inside(m, column, dense->shape[1]),
                      loops_set(m, sum, zero, expr_add(m, loops_get(m, sum, zero), term)), NULL);
  Stmt *all = stmt_for(m, e, zero, expr_max(m, expr_sub(m, last, first), zero), FOR_SERIAL, NULL,
                       stmt_for(m, k, zero, wide, FOR_SERIAL, NULL, add));
  Stmt *cell = loops_seq(m, loops_set(m, sum, zero, op_num(m, t, 0)), all,
                         loops_store(m, l.ob[0], ix, expr_cast(m, dense->dtype, loops_get(m, sum, zero))));
  loops_end(&l, "sparse_dense", loops_nest(m, 2, l.ob[0]->shape, -1, ix, true, stmt_alloc(m, sum, cell)), out);
}

const OpDef op_nn_sparse_dense = {
  .name = "nn.sparse_dense",
  .doc = "dense (m, k) times the transpose of a sparse matrix (n, k), or with sparse_lhs the other way round",
  .args = "dense_mat, sparse_data, sparse_indices, sparse_indptr",
  .min_args = 4,
  .max_args = 4,
  .attrs = &SparseDense_attrs,
  .fuse = FUSE_OPAQUE,
  .type = sparse_dense_type,
  .compute = sparse_dense_compute,
};

static const Type *sparse_add_type(OpCall *c)
{
  const Type *dense = op_ranked_tensor_arg(c, 0, 2);
  want_rows(c, false);
  if (dim_differ(dim_add(c->m, dense->shape[0], dim_int(c->m, 1)), c->arg[3]->shape[0]))
    opdef_raise(c, ERR_SHAPE, "dense_mat is %s, sparse_indptr %s; it has one element more than there are rows",
                op_arg_text(c, 0), op_arg_text(c, 3));
  return dense;
}

static void sparse_add_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 4, in);
  const Buffer *to = l.ob[0];
  const Expr *zero = expr_i32(m, 0);
  const Expr *ix[2];
  const Var *e = loops_var(m, "e");
  const Var *k = loops_var(m, "k");
  loops_index(m, 2, ix);
  Stmt *copy = stmt_for(
      m, k, zero, to->shape[1], FOR_SERIAL, NULL,
      loops_store(m, to, (const Expr *[]){ix[0], k->expr}, loops_load(m, l.ib[0], (const Expr *[]){ix[0], k->expr})));
  const Expr *first = expr_cast(m, DT_I32, loops_get(m, l.ib[3], ix[0]));
  const Expr *last = expr_cast(m, DT_I32, loops_get(m, l.ib[3], expr_add(m, ix[0], expr_i32(m, 1))));
  const Expr *at = expr_add(m, first, e->expr);
  const Expr *place[2] = {ix[0], expr_cast(m, DT_I32, loops_get(m, l.ib[2], at))};
  Stmt *add =
      stmt_if(m, nn_inside(m, place[1], to->shape[1]),
              loops_store(m, to, place, expr_add(m, loops_load(m, to, place), loops_get(m, l.ib[1], at))), NULL);
  Stmt *all = stmt_for(m, e, zero, expr_max(m, expr_sub(m, last, first), zero), FOR_SERIAL, NULL, add);
  loops_end(&l, "sparse_add", loops_nest(m, 1, to->shape, -1, ix, true, loops_seq(m, copy, all)), out);
}

const OpDef op_nn_sparse_add = {
  .name = "nn.sparse_add",
  .doc = "a matrix plus a sparse one of its shape",
  .args = "dense_mat, sparse_data, sparse_indices, sparse_indptr",
  .min_args = 4,
  .max_args = 4,
  .fuse = FUSE_OPAQUE,
  .type = sparse_add_type,
  .compute = sparse_add_compute,
};
