/* nn_words.c: words of bfloat16.
 *
 * Processors that multiply bfloat16 do it two products at a time:
 *   sum += a.low * b.low + a.high * b.high
 * with both elements of a pair in one 32-bit word, the first in the low half; or four, in one of 64 bits.  Tensors are
 * of bfloat16: neighbours in memory are read as one word, in a weight those of its layout's last letter
 * (OIHW4i8o2i, NC8n4c). */
#include "op/nn_kit.h"

#define DT_U16 DTYPE(DT_UINT, 16)
#define DT_U32 DTYPE(DT_UINT, 32)
#define DT_U64 DTYPE(DT_UINT, 64)

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

const Expr *nn_word_at(Module *m, const Tensor *x, const Expr *const *at)
{
  const Expr *index[MAX_RANK], *element[4];
  int last = x->buffer->ndim - 1;
  int count = (int)x->buffer->shape[last]->u.i;
  for (int d = 0; d < last; d++) index[d] = at[d];
  for (int i = 0; i < count; i++) {
    index[last] = expr_i32(m, i);
    element[i] = nn_read(m, x, index);
  }
  return nn_word(m, count, element);
}

const Expr *nn_word_dot(Module *m, const Expr *a, const Expr *b)
{
  return expr_call(m, DT_F32, IN_BF16_DOT, 2, (const Expr *[]){a, b});
}

const Tensor *nn_bits(Module *m, const Tensor *x)
{
  Stage s = nn_stage(m, x->buffer->ndim, x->buffer->shape, NULL);
  return nn_finish(&s, "bits", "injective", bits(m, nn_read(m, x, s.at)));
}
