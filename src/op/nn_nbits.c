/* nn_nbits.c: nn.contrib_dense_nbits, a product of floats with a weight of 4 or 8 bits that stays as it is stored.
 *
 *   out[…, j] = sum over k of data[…, k] * (weight[j, k] - zero[j, k / block]) * scale[j, k / block]
 *
 * The weight is bytes: of 8 bits one for each element of a row, of 4 bits one for two, the first in its lower half.
 * Rows are whole blocks long; what stands behind the last element of data meets nothing.  A zero point is one number
 * for all, or one for each block.  In blocks of rows (NC16n) row 16 j + i of each operand is (j, …, i); byte 4 k + c of
 * a weight in words (NC16n4c) is (j, k, i, c).
 *
 * Where data may be rounded to 8 bits, an implementation may multiply integers, each block of a row of data in units of
 * its largest element / 127; what is written here is the product without that. */
#include "op/nn_kit.h"

DEFINE_ATTRS_TABLE(DenseNbits, DENSE_NBITS_ATTRS)

enum { WORD = 4 }; /* bytes of a row that lie together in NC16n4c */

/* Rows of a block; 1: the layout is plain. */
static int64_t rows_of_block(OpCall *c)
{
  const DenseNbitsAttrs *a = c->attrs;
  Layout l = nn_layout(c, "weight_layout", a->weight_layout);
  bool words = l.n == 4 && l.letter[2] == 'n' && l.letter[3] == 'c' && l.factor[3] == WORD;
  bool blocks = words || (l.n == 3 && l.letter[2] == 'n');
  if (l.n < 2 || l.letter[0] != 'N' || l.letter[1] != 'C' || (l.n != 2 && !blocks))
    opdef_raise(c, ERR_ARGUMENT, "weight_layout '%s' is neither NC nor of the form NC16n or NC16n4c", a->weight_layout);
  return blocks ? l.factor[2] : 1;
}

static void want_extent(OpCall *c, int i, int axis, int64_t want, const char *what)
{
  if (nn_dims_differ(c->m, c->arg[i]->shape[axis], expr_i32(c->m, want)))
    opdef_raise(c, ERR_SHAPE, "argument %d %s has %s %s, %" PRId64 " are wanted", i, nn_arg_shape(c, i),
                expr_str_of(scratch(c->m->ctx), c->arg[i]->shape[axis]), what, want);
}

static const Type *dense_nbits_type(OpCall *c)
{
  const DenseNbitsAttrs *a = c->attrs;
  int64_t rows = rows_of_block(c);
  int rank = rows > 1 ? 3 : 2;
  const Type *data = nn_tensor(c, 0, "data");
  if (a->bits != 4 && a->bits != 8) opdef_raise(c, ERR_ARGUMENT, "bits is %" PRId64 ", 4 or 8 is wanted", a->bits);
  if (a->block_size < 1 || a->block_size * a->bits % 8)
    opdef_raise(c, ERR_ARGUMENT, "block_size is %" PRId64 ", whole bytes are wanted", a->block_size);
  if (data->ndim < 1) opdef_raise(c, ERR_SHAPE, "data is a scalar");
  nn_want_float(c, 0, "data");
  int64_t word = str_ends(a->weight_layout, "n4c") ? WORD : 1;
  if (a->data_bits != 8 && a->data_bits != 32)
    opdef_raise(c, ERR_ARGUMENT, "data_bits is %" PRId64 ", 8 or 32 is wanted", a->data_bits);
  nn_want_rank(c, 1, "weight", word > 1 ? 4 : rank);
  nn_want_rank(c, 2, "scale", rank);
  nn_want_float(c, 2, "scale");
  if (!dtype_eq(c->arg[1]->dtype, DT_U8))
    opdef_raise(c, ERR_TYPE, "weight is %s, uint8 is wanted", dtype_name(scratch(c->m->ctx), c->arg[1]->dtype));
  const Expr *k = data->shape[data->ndim - 1];
  if (k->kind != E_INT) opdef_raise(c, ERR_SHAPE, "the last extent of data %s must be known", nn_arg_shape(c, 0));
  int64_t blocks = (k->u.i + a->block_size - 1) / a->block_size;
  int64_t bytes = blocks * a->block_size * a->bits / 8;
  if (bytes % word) opdef_raise(c, ERR_SHAPE, "a row of %" PRId64 " bytes is not whole words", bytes);
  want_extent(c, 1, 1, bytes / word, word > 1 ? "words of a row" : "bytes of a row");
  want_extent(c, 2, 1, blocks, "blocks");
  if (nn_tensor(c, 3, "zero")->ndim) {
    nn_want_rank(c, 3, "zero", rank);
    want_extent(c, 3, 1, blocks, "blocks");
  }
  for (int i = 1; i < 4; i++) {
    if (!c->arg[i]->ndim) continue;
    if (rows > 1) want_extent(c, i, 2, rows, "rows of a block");
    if (nn_dims_differ(c->m, c->arg[i]->shape[0], c->arg[1]->shape[0]))
      opdef_raise(c, ERR_SHAPE, "argument %d %s has not the rows of weight %s", i, nn_arg_shape(c, i),
                  nn_arg_shape(c, 1));
  }
  const Expr *units = nn_simplify(c->m, expr_mul(c->m, c->arg[1]->shape[0], expr_i32(c->m, rows)));
  if (a->units && units->kind == E_INT && (a->units > units->u.i || a->units <= units->u.i - rows))
    opdef_raise(c, ERR_SHAPE, "units is %" PRId64 ", weight %s has %" PRId64, a->units, nn_arg_shape(c, 1), units->u.i);
  const Expr *shape[MAX_RANK];
  for (int d = 0; d < data->ndim - 1; d++) shape[d] = data->shape[d];
  shape[data->ndim - 1] = a->units ? expr_i32(c->m, a->units) : units;
  return type_tensor(c->m, data->dtype, data->ndim, shape);
}

/* Of row j, column i, of a weight, scale or zero point. */
static const Expr *at_row(Module *m, const Tensor *t, const Expr *j, const Expr *i, int64_t rows)
{
  const Expr *block = expr_i32(m, rows);
  if (t->buffer->ndim == 0) return te_read(m, t, 0, NULL);
  if (rows == 1) return nn_read(m, t, (const Expr *[]){j, i});
  if (t->buffer->ndim == 4) {
    const Expr *word = expr_i32(m, WORD);
    return nn_read(m, t,
                   (const Expr *[]){expr_floordiv(m, j, block), expr_floordiv(m, i, word), expr_floormod(m, j, block),
                                    expr_floormod(m, i, word)});
  }
  return nn_read(m, t, (const Expr *[]){expr_floordiv(m, j, block), i, expr_floormod(m, j, block)});
}

const Expr *nn_nbits_value(Module *m, const DenseNbitsAttrs *a, const Expr *byte, const Expr *k)
{
  if (a->bits == 8) return byte;
  const Expr *half = expr_mul(m, expr_floormod(m, k, expr_i32(m, 2)), expr_i32(m, 4));
  const Expr *low = expr_call(m, DT_NONE, IN_SHR, 2, (const Expr *[]){byte, expr_cast(m, DT_U8, half)});
  return expr_call(m, DT_NONE, IN_BITAND, 2, (const Expr *[]){low, expr_const(m, DT_U8, 15)});
}

static void dense_nbits_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const DenseNbitsAttrs *a = c->attrs;
  Module *m = c->m;
  int64_t rows = rows_of_block(c);
  int last = c->out->ndim - 1;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  const Expr *k = nn_reduce_axis(&s, "k", in[0]->buffer->shape[last]);
  const Expr *at[MAX_RANK];
  for (int d = 0; d < last; d++) at[d] = s.at[d];
  at[last] = k;
  const Expr *block = expr_floordiv(m, k, expr_i32(m, a->block_size));
  const Expr *byte = at_row(m, in[1], s.at[last], expr_floordiv(m, k, expr_i32(m, 8 / a->bits)), rows);
  const Expr *value = expr_cast(m, DT_F32, nn_nbits_value(m, a, byte, k));
  value = expr_sub(m, value, expr_cast(m, DT_F32, at_row(m, in[3], s.at[last], block, rows)));
  value = expr_mul(m, value, expr_cast(m, DT_F32, at_row(m, in[2], s.at[last], block, rows)));
  const Expr *term = expr_mul(m, expr_cast(m, DT_F32, nn_read(m, in[0], at)), value);
  *out = nn_sum(&s, "T_dense_nbits", "dense_nbits", term, c->out->dtype);
}

static double dense_nbits_flops(const Node *call)
{
  return 2 * type_known_elements(call->type) * type_known_dim(call->arg[0]->type, -1);
}

const OpDef op_nn_contrib_dense_nbits = {
  .name = "nn.contrib_dense_nbits",
  .doc = "data times the transpose of a weight of 4 or 8 bits, as it is stored, with scales for blocks of a row",
  .args = "data, weight, scale, zero",
  .min_args = 4,
  .max_args = 4,
  .attrs = &DenseNbits_attrs,
  .fuse = FUSE_OUT_ELEMWISE,
  .type = dense_nbits_type,
  .compute = dense_nbits_compute,
  .flops = dense_nbits_flops,
};
