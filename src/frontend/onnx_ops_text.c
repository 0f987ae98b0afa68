/* onnx_ops_text.c: operators on strings.
 *
 * Comes in: tensors of strings.  Goes out: the few operators that look into strings, and the
 * usual ones for everything that only moves or compares them. */
#include "frontend/onnx_import.h"

/* Texts of attributes end at a zero in the graph. */
static const char *plain_attr(Conversion *c, const char *name)
{
  const PAttr *a = onnx_attr(c, name);
  if (a && a->s.n && memchr(a->s.p, 0, a->s.n))
    kit_fail(c, ERR_UNSUPPORTED, "attribute '%s' has a zero byte inside", name);
  return onnx_attr_str(c, name, "");
}

/* where(true, a, b) is a, with b's shape as well. */
static const Node *convert_concat(Conversion *c)
{
  const Node *a = kit_in(c, 0);
  const Node *b = kit_in(c, 1);
  const Type *ta = kit_tensor_type(c, a);
  const Type *tb = kit_tensor_type(c, b);
  bool same = ta->ndim == tb->ndim;
  for (int i = 0; same && i < ta->ndim; i++) same = dim_same(c->m, ta->shape[i], tb->shape[i]);
  if (same) return kit_op2(c, "strings.concat", a, b, NULL);
  const Node *left = kit_where(c, node_scalar(c->m, value_int(DT_BOOL, 1)), a, b);
  const Node *right = kit_where(c, node_scalar(c->m, value_int(DT_BOOL, 0)), a, b);
  return kit_op2(c, "strings.concat", left, right, NULL);
}

static const Node *convert_split(Conversion *c)
{
  int64_t most = onnx_attr_int(c, "maxsplit", -1);
  const Node *both = kit_op1(c, "strings.split", kit_in(c, 0), "delimiter:s,maxsplit:l", plain_attr(c, "delimiter"),
                             most < 0 ? -1 : most);
  c->out[0] = node_get(c->m, both, 0);
  c->out[1] = node_get(c->m, both, 1);
  return NULL;
}

static const Node *convert_full_match(Conversion *c)
{
  return kit_op1(c, "strings.full_match", kit_in(c, 0), "pattern:s", plain_attr(c, "pattern"));
}

static const Node *in_case(Conversion *c, const Node *x, const char *how)
{
  if (!strcmp(how, "NONE")) return x;
  if (strcmp(how, "LOWER") && strcmp(how, "UPPER"))
    kit_fail(c, ERR_ARGUMENT, "case_change_action is '%s'; it is NONE, LOWER or UPPER", how);
  return kit_op1(c, *how == 'L' ? "strings.lower" : "strings.upper", x, NULL);
}

/* The strings of a vector that are none of the stopwords; one empty string where none is left. */
static const Node *without(Conversion *c, const Node *x, const Node *stops)
{
  const Node *key = x;
  if (!onnx_attr_int(c, "is_case_sensitive", 0)) {
    const ConstData *d = stops->u.data;
    uint64_t *lower = arena_alloc(c->im->arena, d->bytes + 1);
    for (size_t i = 0; i < d->bytes / 8; i++) lower[i] = strings_in_case(c->ctx, ((const uint64_t *)d->data)[i], false);
    stops = node_const_copy(c->m, DT_STRING, d->ndim, d->shape, lower);
    key = kit_op1(c, "strings.lower", x, NULL);
  }
  const Node *stopped = kit_reduce1(c, "any", kit_op2(c, "equal", kit_unsqueeze(c, key, 1), stops, NULL), 1, false);
  const Node *left = kit_op2(c, "compress", x, kit_op1(c, "logical_not", stopped, NULL), "axis:i", 0);
  const Node *empty = kit_vector_of(c, kit_string_const(c, "", 0));
  return kit_slice_to(c, kit_concat2(c, left, empty, 0), 0, kit_const_i64(c, 1, (int64_t[]){0}),
                      kit_max2(c, kit_shape_of(c, left), kit_const_i64(c, 1, (int64_t[]){1})));
}

/* A vector, or a row of it. */
static const Node *convert_normalizer(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *stops = onnx_attr_strings(c, "stopwords");
  int rank = kit_rank_of(c, x);
  if (rank < 1 || rank > 2) kit_fail(c, ERR_SHAPE, "a vector or one row of strings is wanted, not rank %d", rank);
  if (stops && kit_static_dim(c, stops, 0)) {
    if (rank == 2) x = kit_squeeze(c, x, 0);
    x = without(c, x, stops);
    if (rank == 2) x = kit_unsqueeze(c, x, 0);
  }
  return in_case(c, x, onnx_attr_str(c, "case_change_action", "NONE"));
}

static const OnnxRow rows[] = {
  {"RegexFullMatch", 20, convert_full_match},
  {"StringConcat", 20, convert_concat},
  {"StringNormalizer", 10, convert_normalizer},
  {"StringSplit", 20, convert_split},
};
ONNX_TABLE(onnx_ops_text, "", rows);
