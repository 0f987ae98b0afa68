/* nn_columns.c: the columns of a convolution's window as channels.
 *
 *   out[n, k * C + c, y, x] = data[n, c, y, x * stride + k * dilation],   zero for channels from columns * C on
 *
 * A convolution over it has a kernel of one column.  It makes words of channels of a network's first convolution, which
 * has one to three of them, without adding up zeros. */
#include "op/nn_kit.h"

/* clang-format off */
#define COLUMNS_ATTRS(A, S)                                                       \
  A(S, STR, layout, "\"NCHW\"", "of data and result")                             \
  A(S, INT, columns, NULL, "of a window")                                         \
  A(S, INT, stride, "1", "columns from one window to the next")                   \
  A(S, INT, dilation, "1", "columns from one of a window's to its next")          \
  A(S, INT, multiple, "1", "the result's channels are a multiple of this")
/* clang-format on */
DEFINE_ATTRS(Columns, COLUMNS_ATTRS)

static const Type *columns_type(OpCall *c)
{
  const ColumnsAttrs *a = c->attrs;
  const Type *data = nn_tensor(c, 0, "data");
  Layout l = nn_layout(c, "layout", a->layout);
  int w = layout_find(&l, 'W');
  int ch = layout_find(&l, 'C');
  if (!layout_is_plain(a->layout) || l.n != data->ndim || w < 0 || ch < 0)
    opdef_raise(c, ERR_ARGUMENT, "layout '%s' is not one of %d plain letters, C and W among them", a->layout,
                data->ndim);
  if (a->columns < 1 || a->stride < 1 || a->dilation < 1 || a->multiple < 1)
    opdef_raise(c, ERR_ARGUMENT, "columns, stride, dilation and multiple are at least 1");
  if (data->shape[w]->kind != E_INT || data->shape[ch]->kind != E_INT)
    opdef_raise(c, ERR_UNSUPPORTED, "the width and the channels must be known");
  int64_t span = (a->columns - 1) * a->dilation + 1;
  int64_t width = data->shape[w]->u.i;
  if (width < span) opdef_raise(c, ERR_SHAPE, "a window spans %" PRId64 " columns, data has %" PRId64, span, width);
  int64_t channels = (a->columns * data->shape[ch]->u.i + a->multiple - 1) / a->multiple * a->multiple;
  const Expr *shape[MAX_RANK];
  for (int d = 0; d < data->ndim; d++) shape[d] = data->shape[d];
  shape[w] = expr_int(c->m, data->shape[w]->dtype, (width - span) / a->stride + 1);
  shape[ch] = expr_int(c->m, data->shape[ch]->dtype, channels);
  return type_tensor(c->m, data->dtype, data->ndim, shape);
}

static void columns_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ColumnsAttrs *a = c->attrs;
  Module *m = c->m;
  const Buffer *x = in[0]->buffer;
  Layout l;
  layout_parse(a->layout, &l);
  int w = layout_find(&l, 'W');
  int ch = layout_find(&l, 'C');
  Stage s = nn_stage(m, x->ndim, c->out->shape, NULL);
  const Expr *index[MAX_RANK];
  for (int d = 0; d < x->ndim; d++) index[d] = s.at[d];
  const Expr *column = expr_floordiv(m, s.at[ch], x->shape[ch]);
  index[ch] = nn_index(&s, expr_floormod(m, s.at[ch], x->shape[ch]));
  index[w] = nn_index(
      &s, expr_add(m, expr_mul(m, s.at[w], expr_i32(m, a->stride)), expr_mul(m, column, expr_i32(m, a->dilation))));
  const Expr *value = nn_read(m, in[0], index);
  int64_t used = a->columns * x->shape[ch]->u.i;
  if (c->out->shape[ch]->u.i > used)
    value = nn_if(m, expr_lt(m, s.at[ch], expr_i32(m, used)), value, expr_const(m, x->dtype, 0));
  *out = nn_finish(&s, "T_columns", "injective", value);
}

const OpDef op_nn_contrib_columns = {
  .name = "nn.contrib_columns",
  .doc = "the columns of each window as channels",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Columns_attrs,
  .fuse = FUSE_INJECTIVE,
  .narrow = NARROW_FOLLOW,
  .type = columns_type,
  .compute = columns_compute,
};
