/* qnn_table.c: a function of a byte, by the table of its 256 results. */
#include "op/qnn.h"

#include "op/nn_kit.h"

static const Type *lookup_type(OpCall *c)
{
  const Type *data = op_tensor_arg(c, 0);
  const Type *table = op_tensor_arg(c, 1);
  if (!dtype_is_int(data->dtype) || data->dtype.bits != 8)
    opdef_raise(c, ERR_TYPE, "data is %s; int8 or uint8 is needed", dtype_name(scratch(c->m->ctx), data->dtype));
  if (table->ndim != 1 || !expr_is_int(table->shape[0], 256))
    opdef_raise(c, ERR_TYPE, "table is no vector of 256 results");
  return type_tensor(c->m, table->dtype, data->ndim, data->shape);
}

static void lookup_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  OpAxes x = op_out_axes(c, 0);
  const Expr *v = op_read(m, in[0], x.index);
  const Expr *at = expr_cast(m, DT_I32, v);
  if (v->dtype.code == DT_INT) at = expr_add(m, at, expr_i32(m, 128));
  out[0] = op_emit(c, &x, NULL, op_read(m, in[1], &at));
}

const OpDef op_qnn_contrib_lookup = {
  .name = "qnn.contrib_lookup",
  .doc = "table[data - least value of its dtype]: a function of a byte by its 256 results",
  .args = "data, table",
  .min_args = 2,
  .max_args = 2,
  .fuse = FUSE_BROADCAST,
  .type = lookup_type,
  .compute = lookup_compute,
  .layout = layout_any,
};

const Node *qnn_every_byte(Module *m, DType t)
{
  double v[256];
  for (int i = 0; i < 256; i++) v[i] = dtype_min(t) + i;
  return qnn_vector(m, t, 256, v);
}

const Node *qnn_lookup(Module *m, const Node *data, const Node *table)
{
  return op_call2(m, &op_qnn_contrib_lookup, data, table, NULL);
}
