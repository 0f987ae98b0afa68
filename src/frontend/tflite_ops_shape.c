/* tflite_ops_shape.c: what moves elements: shapes, slices, parts, orders. */
#include "frontend/tflite_ops.h"

const Node *tfl_convert_reshape(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *shape = kit_opt(c, 1);
  if (shape && kit_rank_of(c, shape) == 1) return kit_reshape_to(c, x, kit_cast_to(c, shape, DT_I64), true);
  FlatVector v = flat_vector(&tfl_op(c)->options, 0, 4, "the new shape");
  if (v.n > MAX_RANK) kit_fail(c, ERR_UNSUPPORTED, "a shape of %zu dimensions is not supported", v.n);
  int64_t dim[MAX_RANK];
  for (size_t i = 0; i < v.n; i++) dim[i] = flat_i32_at(&v, i);
  return kit_reshape_to(c, x, kit_const_i64(c, (int)v.n, dim), true);
}
