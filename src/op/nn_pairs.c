/* nn_pairs.c: words of bfloat16.
 *
 * Processors that multiply bfloat16 do it two products at a time:
 *   sum += a.low * b.low + a.high * b.high
 * with both elements of a pair in one 32-bit word, the first in the low half; or four, in one of 64 bits.  A weight
 * is brought into that form at compile time (nn.contrib_bfloat16_pairs); data stays bfloat16, and
 * neighbours in memory are read as one word. */
#include "op/nn_kit.h"

#define DT_U16 DTYPE(DT_UINT, 16)
#define DT_U32 DTYPE(DT_UINT, 32)
#define DT_U64 DTYPE(DT_UINT, 64)

DEFINE_ATTRS_TABLE(Pairs, PAIRS_ATTRS)

int nn_word_elements(OpCall *c, DType data, DType weight, DType out)
{
  if (weight.code != DT_UINT || (weight.bits != 32 && weight.bits != 64)) return 1;
  if (!dtype_eq(data, DT_BF16) || !dtype_eq(out, DT_F32))
    opdef_raise(
        c, ERR_TYPE,
        "a weight of %s holds words of bfloat16: data is %s, bfloat16 is wanted; out_dtype is %s, float32 is wanted",
        dtype_name(scratch(c->m->ctx), weight), dtype_name(scratch(c->m->ctx), data),
        dtype_name(scratch(c->m->ctx), out));
  return weight.bits / 16;
}

static const Expr *bits(Module *m, const Expr *x)
{
  return dtype_eq(x->dtype, DT_U16) ? x : expr_call(m, DT_U16, IN_REINTERPRET, 1, &x);
}

static const Expr *join(Module *m, DType word, const Expr *low, const Expr *high)
{
  const Expr *up =
      expr_call(m, DT_NONE, IN_SHL, 2, (const Expr *[]){expr_cast(m, word, high), expr_int(m, word, word.bits / 2)});
  return expr_call(m, DT_NONE, IN_BITOR, 2, (const Expr *[]){expr_cast(m, word, low), up});
}

const Expr *nn_word(Module *m, int count, const Expr *const *element)
{
  const Expr *pair[2];
  for (int i = 0; i < count / 2; i++) pair[i] = join(m, DT_U32, bits(m, element[2 * i]), bits(m, element[2 * i + 1]));
  return count == 2 ? pair[0] : join(m, DT_U64, pair[0], pair[1]);
}

void nn_word_row(Module *m, int count, const Tensor *x, int nd, const Expr *const *at, const Expr **element)
{
  const Expr *index[MAX_RANK];
  const Expr *all = x->buffer->shape[nd - 1];
  const Expr *first = expr_mul(m, at[nd - 1], expr_i32(m, count));
  for (int d = 0; d < nd; d++) index[d] = at[d];
  for (int i = 0; i < count; i++) {
    index[nd - 1] = i ? expr_add(m, first, expr_i32(m, i)) : first;
    element[i] = nn_read(m, x, index);
    if (count == 4 && !(all->kind == E_INT && all->u.i % count == 0))
      element[i] = nn_if(m, expr_lt(m, index[nd - 1], all), element[i], expr_const(m, element[i]->dtype, 0));
  }
}

const Expr *nn_word_dot(Module *m, int count, const Expr *const *element, const Expr *word)
{
  return expr_call(m, DT_F32, IN_BF16_DOT, 2, (const Expr *[]){nn_word(m, count, element), word});
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
  const Expr *shape[MAX_RANK];
  nn_want_float(c, 0, "data");
  int axis = nn_axis_of(c, a->axis, x->ndim);
  if (x->ndim > MAX_RANK)
    opdef_raise(c, ERR_UNSUPPORTED, "at most %d dimensions are handled, not %d", MAX_RANK, x->ndim);
  for (int d = 0; d < x->ndim; d++) shape[d] = x->shape[d];
  if (a->count != 2 && a->count != 4) opdef_raise(c, ERR_ARGUMENT, "count is %" PRId64 ", 2 or 4 is wanted", a->count);
  if (shape[axis]->kind != E_INT || (a->count == 2 && shape[axis]->u.i % 2))
    opdef_raise(c, ERR_SHAPE, "axis %" PRId64 " of data %s is not known%s", a->axis, nn_arg_shape(c, 0),
                a->count == 2 ? " to be even" : "");
  shape[axis] = expr_int(c->m, shape[axis]->dtype, (shape[axis]->u.i + a->count - 1) / a->count);
  return type_tensor(c->m, a->count == 2 ? DT_U32 : DT_U64, x->ndim, shape);
}

static void pairs_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const PairsAttrs *a = c->attrs;
  Stage s = nn_stage(m, c->out->ndim, c->out->shape, NULL);
  int axis = nn_axis_of(c, a->axis, c->out->ndim);
  int count = (int)a->count;
  const Expr *at[MAX_RANK], *part[4];
  const Expr *first = expr_mul(m, s.at[axis], expr_i32(m, count));
  const Expr *all = in[0]->buffer->shape[axis];
  for (int d = 0; d < s.n; d++) at[d] = s.at[d];
  for (int i = 0; i < count; i++) {
    at[axis] = i ? expr_add(m, first, expr_i32(m, i)) : first;
    part[i] = expr_cast(m, DT_BF16, nn_read(m, in[0], at));
    if (all->u.i % count) part[i] = nn_if(m, expr_lt(m, at[axis], all), part[i], expr_const(m, DT_BF16, 0));
  }
  *out = nn_finish(&s, "pairs", "injective", nn_word(m, count, part));
}

const OpDef op_nn_contrib_bfloat16_pairs = {
  .name = "nn.contrib_bfloat16_pairs",
  .doc = "two neighbours along an axis, rounded to bfloat16, as one uint32, or four as one uint64: the forms in which "
         "products of bfloat16 take their weight",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Pairs_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = pairs_type,
  .compute = pairs_compute,
};
