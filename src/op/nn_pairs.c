/* nn_pairs.c: pairs of bfloat16.
 *
 * Processors that multiply bfloat16 do it two products at a time:
 *   sum += a.low * b.low + a.high * b.high
 * with both elements of a pair in one 32-bit word, the first in the low half.  A weight is brought
 * into that form at compile time (nn.contrib_bfloat16_pairs); data stays bfloat16, and two
 * neighbours in memory are read as one word. */
#include "op/nn_kit.h"

#define DT_U16 DTYPE(DT_UINT, 16)
#define DT_U32 DTYPE(DT_UINT, 32)

DEFINE_ATTRS_TABLE(Pairs, PAIRS_ATTRS)

bool nn_are_pairs(OpCall *c, DType data, DType weight, DType out)
{
  if (!dtype_eq(weight, DT_U32)) return false;
  if (!dtype_eq(data, DT_BF16) || !dtype_eq(out, DT_F32))
    op_raise(c, ERR_TYPE, "a weight of uint32 holds pairs of bfloat16: data is %s, bfloat16 is wanted; out_dtype is %s, float32 is wanted",
             dtype_name(scratch(c->m->ctx), data), dtype_name(scratch(c->m->ctx), out));
  return true;
}

static const Expr *bits(Module *m, const Expr *x) { return dtype_eq(x->dtype, DT_U16) ? x : expr_call(m, DT_U16, IN_REINTERPRET, 1, &x); }

const Expr *nn_pair(Module *m, const Expr *low, const Expr *high)
{
  const Expr *up = expr_call(m, DT_NONE, IN_SHL, 2, (const Expr *[]){expr_cast(m, DT_U32, bits(m, high)), expr_int(m, DT_U32, 16)});
  return expr_call(m, DT_NONE, IN_BITOR, 2, (const Expr *[]){expr_cast(m, DT_U32, bits(m, low)), up});
}

const Expr *nn_pair_dot(Module *m, const Expr *even, const Expr *odd, const Expr *weight)
{
  return expr_call(m, DT_F32, IN_BF16_DOT, 2, (const Expr *[]){nn_pair(m, even, odd), weight});
}

const Tensor *nn_bits(Module *m, const Tensor *x)
{
  Stage s = nn_stage(m, x->buffer->ndim, x->buffer->shape, NULL);
  return nn_finish(&s, "bits", "injective", bits(m, nn_read(m, x, s.at)));
}

static const Type *pairs_type(OpCall *c)
{
  const PairsAttrs *a = c->attrs;
  const Type *x = nn_tensor(c, 0, "data");
  const Expr *shape[NN_MAX_DIM];
  nn_want_float(c, 0, "data");
  int axis = nn_axis_of(c, a->axis, x->ndim);
  if (x->ndim > NN_MAX_DIM) op_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", NN_MAX_DIM, x->ndim);
  for (int d = 0; d < x->ndim; d++) shape[d] = x->shape[d];
  if (shape[axis]->kind != E_INT || shape[axis]->u.i % 2)
    op_raise(c, ERR_SHAPE, "axis %" PRId64 " of data %s is not known to be even", a->axis, nn_arg_shape(c, 0));
  shape[axis] = expr_int(c->m, shape[axis]->dtype, shape[axis]->u.i / 2);
  return type_tensor(c->m, DT_U32, x->ndim, shape);
}

static void pairs_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const PairsAttrs *a = c->attrs;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  int axis = nn_axis_of(c, a->axis, c->out->ndim);
  const Expr *at[NN_MAX_DIM], *half[2], *even = expr_mul(m, s.at[axis], expr_i32(m, 2));
  for (int d = 0; d < s.n; d++) at[d] = s.at[d];
  for (int i = 0; i < 2; i++) {
    at[axis] = i ? expr_add(m, even, expr_i32(m, 1)) : even;
    half[i] = expr_cast(m, DT_BF16, nn_read(m, in[0], at));
  }
  *out = nn_finish(&s, "pairs", "injective", nn_pair(m, half[0], half[1]));
}

const OpDef op_nn_contrib_bfloat16_pairs = {
  .name = "nn.contrib_bfloat16_pairs",
  .doc = "two neighbours along an axis, rounded to bfloat16, as one uint32: the form in which products of bfloat16 take their weight",
  .args = "data",
  .min_args = 1, .max_args = 1,
  .attrs = &Pairs_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = pairs_type,
  .compute = pairs_compute,
};
