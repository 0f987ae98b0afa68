/* tflite_ops_index.c: reading and writing by positions, sorting, and outputs whose size depends on values. */
#include "frontend/tflite_ops.h"

static const Node *wide(Conversion *c, const Node *v) { return kit_cast_to(c, v, DT_I64); }

const Node *tfl_convert_gather(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *at = kit_in(c, 1);
  int axis = kit_axis_of(c, tfl_int(c, 0, 0), kit_rank_of(c, x));
  int64_t batch = tfl_int(c, 1, 0);
  if (batch < 0) batch += kit_rank_of(c, at);
  if (batch < 0 || batch > axis) kit_fail(c, ERR_ARGUMENT, "batch_dims %" PRId64 " for axis %d", batch, axis);
  return kit_op2(c, "take", x, at, "axis:i,batch_dims:l,mode:s", axis, batch, "clip");
}

/* Coordinates come in the last axis; gather_nd and scatter_nd have them in the first. */
static const Node *coordinates(Conversion *c, const Node *index)
{
  return kit_move_axis(c, index, kit_rank_of(c, index) - 1, 0);
}

const Node *tfl_convert_gather_nd(Conversion *c)
{
  const Node *index = kit_in(c, 1);
  return kit_op2(c, "gather_nd", kit_in(c, 0), coordinates(c, index), "index_rank:l", kit_static_dim(c, index, -1));
}

const Node *tfl_convert_scatter_nd(Conversion *c)
{
  const Node *values = kit_in(c, 1);
  const Node *zeros = kit_full(c, kit_scalar_like(c, values, 0), wide(c, kit_in(c, 2)), kit_dtype_of(c, values));
  return kit_op3(c, "scatter_nd", zeros, coordinates(c, kit_in(c, 0)), values, "mode:s", "add");
}

/* Rows of a table; a quantized one is made real where the output is. */
const Node *tfl_convert_embedding_lookup(Conversion *c)
{
  const TflTensor *table = tfl_in(c, 1);
  const Node *y = kit_op2(c, "take", kit_in(c, 1), kit_in(c, 0), "axis:i,mode:s", 0, "clip");
  if (!tfl_is_quantized(table) || !dtype_is_float(tfl_out(c, 0)->dtype)) return y;
  const TflQuant *q = tfl_quant(c, table);
  if (q->n == 1) return tfl_real(c, y, table);
  if (q->axis) kit_fail(c, ERR_UNSUPPORTED, "scales along axis %d are not supported; along the rows they are", q->axis);
  float *s = arena_array(c->im->arena, float, q->n);
  for (int i = 0; i < q->n; i++) s[i] = (float)q->scale[i];
  const Node *scale = node_const_copy(c->m, DT_F32, 1, (int64_t[]){q->n}, s);
  scale = kit_op2(c, "take", scale, kit_in(c, 0), "axis:i,mode:s", 0, "clip");
  return kit_mul(c, kit_cast_to(c, y, DT_F32), kit_unsqueeze_to(c, scale, 0, kit_rank_of(c, y)));
}

const Node *tfl_convert_where(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (!dtype_is_bool(kit_dtype_of(c, x))) x = kit_op2(c, "not_equal", x, kit_scalar_like(c, x, 0), NULL);
  return kit_cast_to(c, kit_op1(c, "argwhere", x, NULL), DT_I64);
}

const Node *tfl_convert_topk(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t k = kit_const_int(c, kit_in(c, 1), "k");
  int64_t whole;
  int last = kit_rank_of(c, x) - 1;
  if (last < 0) kit_fail(c, ERR_SHAPE, "a scalar has no last axis");
  if (k < 0 || (kit_is_static_dim(kit_dim_of(c, x, last), &whole) && k > whole))
    kit_fail(c, ERR_ARGUMENT, "k is %" PRId64 ", which the last axis does not have", k);
  const Node *r = kit_op1(c, "topk", x, "k:l,axis:i,ret_type:s,is_ascend:i,dtype:t", k, last, "both", 0, DT_I32);
  c->out[0] = node_get(c->m, r, 0);
  c->out[1] = node_get(c->m, r, 1);
  return NULL;
}

/* In the order of their first occurrence. */
const Node *tfl_convert_unique(Conversion *c)
{
  const Node *r = kit_op1(c, "unique", kit_in(c, 0), "is_sorted:i,return_counts:i", 0, 1);
  c->out[0] = node_get(c->m, r, 0);
  c->out[1] = kit_cast_to(c, node_get(c->m, r, 2), tfl_out(c, 1)->dtype);
  return NULL;
}

const Node *tfl_convert_sparse_to_dense(Conversion *c)
{
  const Node *index = kit_in(c, 0);
  const Node *values = kit_in(c, 2);
  const Node *otherwise = kit_scalar_of(c, kit_in(c, 3));
  const Node *base = kit_full(c, otherwise, wide(c, kit_in(c, 1)), kit_dtype_of(c, values));
  int rank = kit_rank_of(c, base);
  if (kit_rank_of(c, index) < 2) index = kit_reshape(c, index, 2, (int64_t[]){kit_rank_of(c, index) ? -1 : 1, 1});
  if (kit_static_dim(c, index, 1) != rank)
    kit_fail(c, ERR_SHAPE, "%" PRId64 " coordinates for rank %d", kit_static_dim(c, index, 1), rank);
  if (!kit_rank_of(c, values)) values = kit_broadcast_to(c, values, kit_shape_part(c, index, 0, 1));
  return kit_op3(c, "scatter_nd", base, coordinates(c, index), values, "mode:s", "update");
}

/* The update lies inside: its beginning is moved so far. */
const Node *tfl_convert_dynamic_update_slice(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *update = kit_in(c, 1);
  const Node *begin = wide(c, kit_in(c, 2));
  int rank = kit_rank_of(c, x);
  const Node *most = kit_sub(c, kit_shape_of(c, x), kit_shape_of(c, update));
  begin = kit_max2(c, kit_min2(c, begin, most), kit_scalar(c, DT_I64, 0));
  /* each place asks which element of the update, if any, lands there */
  const Node *inside = NULL;
  const Node *value = update;
  for (int d = 0; d < rank; d++) {
    const Node *extent = kit_scalar_of(c, kit_shape_part(c, x, d, d + 1));
    const Node *count = kit_scalar_of(c, kit_shape_part(c, update, d, d + 1));
    const Node *from = kit_scalar_of(c, kit_slice(c, begin, 0, d, d + 1));
    const Node *place = kit_sub(c, kit_iota(c, extent, DT_I64), from);
    const Node *here = kit_op2(c, "logical_and", kit_op2(c, "greater_equal", place, kit_scalar(c, DT_I64, 0), NULL),
                               kit_less(c, place, count), NULL);
    here = kit_unsqueeze_to(c, here, d, rank);
    inside = inside ? kit_op2(c, "logical_and", inside, here, NULL) : here;
    value = kit_op2(c, "take", value, place, "axis:i,mode:s", d, "clip");
  }
  return inside ? kit_where(c, inside, value, x) : update;
}

/* Rows added up (or multiplied, …) by the segment that their number names. */
static const Node *segments(Conversion *c, const char *mode, double start, const Node *count)
{
  const Node *x = kit_in(c, 0);
  const Node *ids = kit_in(c, 1);
  int rank = kit_rank_of(c, x);
  int r = kit_rank_of(c, ids);
  const Node *shape = kit_vector_of(c, count);
  if (r < rank) shape = kit_concat2(c, shape, kit_shape_part(c, x, r, rank), 0);
  const Node *base = kit_full(c, kit_scalar_like(c, x, start), shape, kit_dtype_of(c, x));
  return kit_op3(c, "scatter_nd", base, kit_unsqueeze(c, ids, 0), x, "mode:s", mode);
}

const Node *tfl_convert_segment_sum(Conversion *c)
{
  int n = 0;
  const int64_t *id = kit_const_ints(c, kit_in(c, 1), &n);
  if (!id) kit_fail(c, ERR_UNSUPPORTED, "the segments must be known when the model is compiled");
  int64_t count = n ? id[n - 1] + 1 : 0;
  return segments(c, "add", 0, kit_const_i64(c, 1, &count));
}

const Node *tfl_convert_unsorted_segment(Conversion *c)
{
  DType t = kit_dtype_of(c, kit_in(c, 0));
  const char *op = tfl_op(c)->op;
  const Node *count = wide(c, kit_scalar_of(c, kit_in(c, 2)));
  if (strstr(op, "PROD")) return segments(c, "mul", 1, count);
  if (strstr(op, "MAX")) return segments(c, "max", dtype_min(t), count);
  if (strstr(op, "MIN")) return segments(c, "min", dtype_max(t), count);
  return segments(c, "add", 0, count);
}
