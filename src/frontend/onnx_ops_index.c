/* onnx_ops_index.c: gathering, scattering, sorting, and outputs whose size depends on values.
 *
 * Comes in: nodes whose indices may be negative (from the end).  Goes out: take, gather,
 * scatter and their kin, which want indices from the beginning. */
#include <math.h>

#include "frontend/onnx_import.h"

/* index < 0: from the end of `extent` (anything that broadcasts to the indices). */
static const Node *from_end(Conversion *c, const Node *index, const Node *extent)
{
  int n = 0;
  const int64_t *v = index->kind == N_CONST ? kit_const_ints(c, index, &n) : NULL;
  bool plain = v != NULL;
  for (int i = 0; i < n && plain; i++) plain = v[i] >= 0;
  if (plain) return index;
  return kit_where(c, kit_less(c, index, kit_scalar_like(c, index, 0)),
                   kit_add(c, index, kit_cast_to(c, extent, kit_dtype_of(c, index))), index);
}

static const Node *extent_of(Conversion *c, const Node *x, int axis)
{
  return kit_scalar_of(c, kit_shape_part(c, x, axis, axis + 1));
}

static const Node *convert_gather(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_take(c, x, kit_in(c, 1), kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x)));
}

static const Node *convert_gather_elements(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x));
  return kit_op2(c, "gather", x, from_end(c, kit_in(c, 1), extent_of(c, x, axis)), "axis:i", axis);
}

/* ONNX keeps the coordinates in the last axis, gather_nd and scatter_nd in the first. */
static const Node *coordinates(Conversion *c, const Node *x, const Node *index, int batch)
{
  int n = (int)kit_static_dim(c, index, -1);
  if (batch + n > kit_rank_of(c, x))
    kit_fail(c, ERR_SHAPE, "%d coordinates after %d batch axes do not fit rank %d", n, batch, kit_rank_of(c, x));
  index = from_end(c, index, kit_shape_part(c, x, batch, batch + n));
  return kit_move_axis(c, index, kit_rank_of(c, index) - 1, 0);
}

static const Node *convert_gather_nd(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *index = kit_in(c, 1);
  int64_t batch = onnx_attr_int(c, "batch_dims", 0);
  if (batch < 0 || batch >= kit_rank_of(c, index) || batch > kit_rank_of(c, x))
    kit_fail(c, ERR_ARGUMENT, "batch_dims %" PRId64 " is out of range", batch);
  return kit_op2(c, "gather_nd", x, coordinates(c, x, index, (int)batch), "batch_dims:l,index_rank:l", batch,
                 kit_static_dim(c, index, -1));
}

static const char *reduction(Conversion *c)
{
  const char *r = onnx_attr_str(c, "reduction", "none");
  static const char *const known[] = {"add", "mul", "min", "max"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(r, known[i])) return known[i];
  if (strcmp(r, "none")) kit_fail(c, ERR_ARGUMENT, "reduction '%s' is not known", r);
  return "update";
}

static const Node *convert_scatter_elements(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x));
  return kit_op3(c, "scatter_elements", x, from_end(c, kit_in(c, 1), extent_of(c, x, axis)), kit_in(c, 2),
                 "axis:i,reduction:s", axis, reduction(c));
}

static const Node *convert_scatter_nd(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_op3(c, "scatter_nd", x, coordinates(c, x, kit_in(c, 1), 0), kit_in(c, 2), "mode:s", reduction(c));
}

/* A cache written at an offset per sample: each place asks which update, if any, lands there. */
static const Node *convert_tensor_scatter(Conversion *c)
{
  const Node *cache = kit_in(c, 0);
  const Node *update = kit_in(c, 1);
  const Node *at = kit_opt(c, 2);
  int rank = kit_rank_of(c, cache);
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", -2), rank);
  bool circular = !strcmp(onnx_attr_str(c, "mode", "linear"), "circular");
  const Node *length = extent_of(c, cache, axis);
  const Node *count = extent_of(c, update, axis);
  const Node *place = kit_unsqueeze_to(c, kit_iota(c, length, DT_I64), axis, rank);
  if (at) place = kit_sub(c, place, kit_unsqueeze_to(c, kit_cast_to(c, at, DT_I64), 0, rank));
  if (circular) place = kit_op2(c, "floor_mod", place, length, NULL);
  const Node *inside = kit_op2(c, "logical_and", kit_op2(c, "greater_equal", place, kit_scalar(c, DT_I64, 0), NULL),
                               kit_less(c, place, count), NULL);
  const Node *safe =
      kit_min2(c, kit_max2(c, place, kit_scalar(c, DT_I64, 0)), kit_sub(c, count, kit_scalar(c, DT_I64, 1)));
  const Node *value = kit_op2(c, "gather", update, kit_op2(c, "broadcast_to_like", safe, cache, NULL), "axis:i", axis);
  return kit_where(c, inside, value, cache);
}

/* on where the index is, off elsewhere. */
static const Node *convert_one_hot(Conversion *c)
{
  const Node *index = kit_cast_to(c, kit_in(c, 0), DT_I64);
  const Node *depth = kit_cast_to(c, kit_scalar_of(c, kit_in(c, 1)), DT_I64);
  const Node *values = kit_in(c, 2);
  int rank = kit_rank_of(c, index);
  int64_t axis = onnx_attr_int(c, "axis", -1);
  int at = kit_axis_of(c, axis, rank + 1);
  const Node *off = kit_scalar_of(c, kit_slice(c, values, 0, 0, 1));
  const Node *on = kit_scalar_of(c, kit_slice(c, values, 0, 1, 2));
  const Node *hot = kit_op2(c, "equal", kit_unsqueeze(c, from_end(c, index, depth), at),
                            kit_unsqueeze_to(c, kit_iota(c, depth, DT_I64), at, rank + 1), NULL);
  return kit_where(c, hot, on, off);
}

static const Node *convert_nonzero(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  /* a scalar counts as a vector of one, its coordinates are dropped */
  if (!kit_rank_of(c, x)) x = kit_vector_of(c, x);
  const Node *at = kit_cast_to(c, kit_op1(c, "argwhere", x, NULL), DT_I64);
  at = kit_transpose(c, at, 2, (int[]){1, 0});
  return kit_rank_of(c, kit_in(c, 0)) ? at : kit_slice(c, at, 0, 0, 0);
}

static const Node *convert_compress(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  if (!onnx_attr(c, "axis")) return kit_op2(c, "compress", x, kit_in(c, 1), NULL);
  return kit_op2(c, "compress", x, kit_in(c, 1), "axis:i",
                 kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x)));
}

/* Values, where each first occurs, which one each element is, how often it occurs. */
static const Node *convert_unique(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *r;
  int sorted = (int)onnx_attr_int(c, "sorted", 1);
  if (onnx_attr(c, "axis"))
    r = kit_op1(c, "unique", x, "is_sorted:i,return_counts:i,axis:i", sorted, 1,
                kit_axis_of(c, onnx_attr_int(c, "axis", 0), kit_rank_of(c, x)));
  else r = kit_op1(c, "unique", x, "is_sorted:i,return_counts:i", sorted, 1);
  c->out[0] = node_get(c->m, r, 0);
  for (int i = 1; i < 4; i++) c->out[i] = kit_cast_to(c, node_get(c->m, r, i < 3 ? i : 4), DT_I64);
  return NULL;
}

/* Rows of (batch, class, box); left out: no boxes, and thresholds that let everything through. */
static const Node *convert_nms(Conversion *c)
{
  const Node *boxes = kit_in(c, 0);
  const Node *scores = kit_in(c, 1);
  const Node *most = kit_opt(c, 2);
  const Node *iou = kit_opt(c, 3);
  const Node *least = kit_opt(c, 4);
  const Node *arg[5] = {boxes, scores, most ? kit_scalar_of(c, kit_cast_to(c, most, DT_I64)) : kit_scalar(c, DT_I64, 0),
                        iou ? kit_scalar_of(c, iou) : kit_scalar(c, DT_F32, 0),
                        least ? kit_scalar_of(c, least) : kit_scalar(c, DT_F32, -INFINITY)};
  const Node *r = kit_opn(c, "vision.all_class_non_max_suppression", 5, arg, "center_point_box:i",
                          (int)onnx_attr_int(c, "center_point_box", 0));
  return kit_cast_to(c, kit_op2(c, "dyn.take_first", node_get(c->m, r, 0), node_get(c->m, r, 1), NULL), DT_I64);
}

static const Node *convert_topk(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int axis = kit_axis_of(c, onnx_attr_int(c, "axis", -1), kit_rank_of(c, x));
  int n = 0;
  int smallest = !onnx_attr_int(c, "largest", 1);
  const Node *k = c->version >= 10 ? kit_in(c, 1) : NULL;
  const Node *r;
  const int64_t *v = k ? kit_const_ints(c, k, &n) : NULL;
  int64_t count = v && n == 1 ? v[0] : onnx_attr_int(c, "k", -1);
  int64_t whole;
  if (k && !v) {
    r = kit_op2(c, "dyn.topk", x, kit_vector_of(c, k), "axis:i,ret_type:s,is_ascend:i,dtype:t", axis, "both", smallest,
                DT_I64);
  } else {
    if (count < 0 || (kit_is_static_dim(kit_dim_of(c, x, axis), &whole) && count > whole))
      kit_fail(c, ERR_ARGUMENT, "k is %" PRId64 ", which axis %d does not have", count, axis);
    r = kit_op1(c, "topk", x, "k:l,axis:i,ret_type:s,is_ascend:i,dtype:t", count, axis, "both", smallest, DT_I64);
  }
  c->out[0] = node_get(c->m, r, 0);
  c->out[1] = node_get(c->m, r, 1);
  return NULL;
}

static const Node *convert_reverse_sequence(Conversion *c)
{
  return kit_op2(c, "reverse_sequence", kit_in(c, 0), kit_in(c, 1), "seq_axis:i,batch_axis:i",
                 (int)onnx_attr_int(c, "time_axis", 0), (int)onnx_attr_int(c, "batch_axis", 1));
}

/* ---- n-grams ----------------------------------------------------------------------------------------- */

typedef struct Grams {
  int n;           /* those of a size that counts */
  int64_t *column; /* where each is counted */
  int64_t columns;
  const Node *hits; /* (rows, n) int32 */
} Grams;

/* The n-grams that count, size by size, and how often each row of x has each. */
static Grams count_grams(Conversion *c, const Node *x)
{
  int npool = 0;
  int nsize = 0;
  int nindex = 0;
  int id = 0;
  int parts = 0;
  const int64_t *pool = onnx_attr_ints(c, "pool_int64s", &npool);
  const int64_t *from = onnx_attr_ints(c, "ngram_counts", &nsize);
  const int64_t *index = onnx_attr_ints(c, "ngram_indexes", &nindex);
  int64_t least = onnx_attr_int(c, "min_gram_length", 1);
  int64_t most = onnx_attr_int(c, "max_gram_length", 1);
  int64_t skips = onnx_attr_int(c, "max_skip_count", 0);
  const Node *words = onnx_attr_strings(c, "pool_strings");
  if ((words != NULL) != dtype_is_string(kit_dtype_of(c, x)) || (words && npool))
    kit_fail(c, ERR_TYPE, "the pool and the input are not both numbers or both strings");
  if (words) npool = (int)kit_static_dim(c, words, 0);
  if (least < 1 || most < least || !nindex)
    kit_fail(c, ERR_ARGUMENT, "n-grams of %" PRId64 " to %" PRId64 " elements with %d places for them make no sense",
             least, most, nindex);
  Grams g = {.column = arena_array(c->im->arena, int64_t, nindex)};
  const Node **part = arena_array(c->im->arena, const Node *, nsize + 1);
  for (int i = 0; i < nindex; i++) {
    if (index[i] < 0 || index[i] >= 1 << 24) kit_fail(c, ERR_ARGUMENT, "ngram_indexes[%d] is %" PRId64, i, index[i]);
    g.columns = index[i] >= g.columns ? index[i] + 1 : g.columns;
  }
  for (int i = 0; i < nsize; i++) {
    int64_t size = i + 1;
    int64_t begin = from[i];
    int64_t end = i + 1 < nsize ? from[i + 1] : npool;
    int64_t count = (end - begin) / size;
    if (begin < 0 || end < begin || end > npool || count > nindex - id)
      kit_fail(c, ERR_ARGUMENT, "ngram_counts[%d] is %" PRId64 ", which does not fit a pool of %d and %d ngram_indexes",
               i, begin, npool, nindex);
    bool counts = size >= least && size <= most && count;
    for (int64_t k = 0; k < count; k++, id++)
      if (counts) g.column[g.n++] = index[id];
    if (!counts) continue;
    const Node *grams = words ? kit_slice(c, words, 0, begin, begin + count * size)
                              : kit_const_i64(c, (int)(count * size), pool + begin);
    grams = kit_reshape(c, grams, 2, (int64_t[]){count, size});
    part[parts++] = kit_op2(c, "count_ngrams", x, grams, "skips:l", skips);
  }
  if (parts) g.hits = kit_concat(c, parts, part, 1);
  return g;
}

/* The k-th n-gram of each column that has as many, 0 in the others; NULL: none has. */
static const Node *columns_of(Conversion *c, const Grams *g, int k)
{
  int64_t *from = arena_array(c->im->arena, int64_t, (int)g->columns);
  int *seen = arena_array(c->im->arena, int, (int)g->columns);
  bool *there = arena_array(c->im->arena, bool, (int)g->columns);
  bool any = false;
  bool all = true;
  for (int i = 0; i < g->n; i++)
    if (seen[g->column[i]]++ == k) {
      from[g->column[i]] = i;
      any = there[g->column[i]] = true;
    }
  for (int64_t i = 0; i < g->columns; i++) all = all && there[i];
  if (!any) return NULL;
  const Node *y = kit_cast_to(c, kit_take(c, g->hits, kit_const_i64(c, (int)g->columns, from), 1), DT_F32);
  return all ? y
             : kit_where(c, node_const_copy(c->m, DT_BOOL, 1, (int64_t[]){g->columns}, there), y,
                         kit_scalar(c, DT_F32, 0));
}

/* A weight belongs to a column, as ONNX Runtime has it. */
static const Node *convert_tfidf(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *y = NULL;
  if (!dtype_is_string(kit_dtype_of(c, x))) x = kit_cast_to(c, x, DT_I64);
  int rank = kit_rank_of(c, x);
  int n = 0;
  if (rank > 2) kit_fail(c, ERR_SHAPE, "a row or rows are wanted, not rank %d", rank);
  if (rank < 2) x = kit_reshape(c, x, 2, (int64_t[]){1, -1});
  const char *mode = onnx_attr_str(c, "mode", "");
  bool tf = !strcmp(mode, "TF");
  bool idf = !strcmp(mode, "IDF");
  if (!tf && !idf && strcmp(mode, "TFIDF")) kit_fail(c, ERR_ARGUMENT, "mode is '%s'; it is TF, IDF or TFIDF", mode);
  Grams g = count_grams(c, x);
  const float *weights = tf ? NULL : onnx_attr_floats(c, "weights", &n);
  if (n && n < g.columns) kit_fail(c, ERR_ARGUMENT, "%d weights are given for %" PRId64 " columns", n, g.columns);
  for (int k = 0;; k++) {
    const Node *more = columns_of(c, &g, k);
    if (!more) break;
    if (k == 64) kit_fail(c, ERR_UNSUPPORTED, "more than 64 n-grams are counted in one column");
    y = y ? kit_add(c, y, more) : more;
  }
  if (!y)
    y = kit_full(c, kit_scalar(c, DT_F32, 0),
                 kit_concat2(c, kit_shape_part(c, x, 0, 1), kit_const_i64(c, 1, &g.columns), 0), DT_F32);
  if (idf) y = kit_cast_to(c, kit_op2(c, "greater", y, kit_scalar(c, DT_F32, 0), NULL), DT_F32);
  if (n) y = kit_mul(c, y, node_const_copy(c->m, DT_F32, 1, (int64_t[]){g.columns}, weights));
  return rank < 2 ? kit_squeeze(c, y, 0) : y;
}

static const OnnxRow rows[] = {
  {"Compress", 9, convert_compress},
  {"Gather", 1, convert_gather},
  {"GatherElements", 11, convert_gather_elements},
  {"GatherND", 11, convert_gather_nd},
  {"NonMaxSuppression", 10, convert_nms},
  {"NonZero", 9, convert_nonzero},
  {"OneHot", 9, convert_one_hot},
  {"ReverseSequence", 10, convert_reverse_sequence},
  {"Scatter", 9, convert_scatter_elements},
  {"ScatterElements", 11, convert_scatter_elements},
  {"ScatterND", 11, convert_scatter_nd},
  {"TensorScatter", 24, convert_tensor_scatter},
  {"TfIdfVectorizer", 9, convert_tfidf},
  {"TopK", 1, convert_topk},
  {"Unique", 11, convert_unique},
};
ONNX_TABLE(onnx_ops_index, "", rows);
