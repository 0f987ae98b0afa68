/* onnx_ops_ml.c: operators of ai.onnx.ml, but for trees (onnx_ops_trees.c).
 *
 * Comes in: feature tensors, and maps as tuples of a vector of keys and a vector of values.  Goes out: products,
 * comparisons, selections, takes; a ZipMap gives the tuple of its keys and the matrix of values. */
#include <math.h>
#include <stdlib.h>

#include "frontend/onnx_ml.h"

/* ---- what they share ------------------------------------------------------------------------------- */

const double *onnx_ml_numbers(Conversion *c, const char *name, int *n)
{
  Arena *a = c->im->arena;
  const PAttr *t = onnx_attr(c, arena_printf(a, "%s_as_tensor", name));
  if (!t || !t->t) {
    const float *f = onnx_attr_floats(c, name, n);
    double *v = arena_array(a, double, *n + 1);
    for (int i = 0; i < *n; i++) v[i] = (double)f[i];
    return f ? v : NULL;
  }
  const ConstData *d = onnx_tensor(c->im, t->t, c->name)->u.data;
  size_t size = (size_t)dtype_bytes(d->dtype);
  size_t count = d->bytes / size;
  if (!dtype_is_float(d->dtype) || count > INT32_MAX / 16)
    kit_fail(c, ERR_ARGUMENT, "%s_as_tensor is no list of floats", name);
  double *v = arena_array(a, double, count + 1);
  for (size_t i = 0; i < count; i++)
    v[i] = value_cast(value_load(d->dtype, (const char *)d->data + i * size), DT_F64).f;
  *n = (int)count;
  return v;
}

const Node *onnx_ml_constant(Conversion *c, DType dt, int rows, int columns, const double *v)
{
  size_t size = (size_t)dtype_bytes(dt);
  size_t n = (size_t)(rows ? rows : 1) * (size_t)columns;
  char *data = arena_alloc(c->im->arena, n * size + 1);
  for (size_t i = 0; i < n; i++) value_store(value_float(dt, v[i]), data + i * size);
  return rows ? node_const_copy(c->m, dt, 2, (int64_t[]){rows, columns}, data)
              : node_const_copy(c->m, dt, 1, (int64_t[]){columns}, data);
}

const Node *onnx_ml_matrix(Conversion *c, const Node *x)
{
  DType dt = kit_dtype_of(c, x);
  if (dtype_is_string(dt)) kit_fail(c, ERR_TYPE, "numbers are wanted, not strings");
  if (!dtype_eq(dt, DT_F64)) x = kit_cast_to(c, x, DT_F32);
  int rank = kit_rank_of(c, x);
  if (rank != 1 && rank != 2) kit_fail(c, ERR_SHAPE, "a matrix is wanted, not a tensor of %d dimensions", rank);
  return rank == 1 ? kit_unsqueeze(c, x, 0) : x;
}

const Node *onnx_ml_labels(Conversion *c, const char *ints, int64_t *n)
{
  int count = 0;
  const int64_t *v = onnx_attr_ints(c, ints, &count);
  const Node *strings = onnx_attr_strings(c, "classlabels_strings");
  if (strings && kit_static_dim(c, strings, 0)) {
    *n = kit_static_dim(c, strings, 0);
    return strings;
  }
  if (!count) kit_fail(c, ERR_ARGUMENT, "it has no class labels: classlabels_strings or %s is wanted", ints);
  *n = count;
  return kit_const_i64(c, count, v);
}

/* Positions that are known to be inside, or brought there. */
static const Node *take_inside(Conversion *c, const Node *x, const Node *index, int axis)
{
  return kit_op2(c, "take", x, index, "axis:I,mode:s", 1, (int64_t[]){axis}, "clip");
}

const Node *onnx_ml_pick(Conversion *c, const Node *labels, const Node *index)
{
  return take_inside(c, labels, index, 0);
}

const Node *onnx_ml_pick_two(Conversion *c, const Node *labels, int64_t n, const Node *cond)
{
  bool strings = dtype_is_string(kit_dtype_of(c, labels));
  const Node *yes = strings ? kit_string_const(c, "1", 1) : kit_scalar(c, DT_I64, 1);
  const Node *no = strings ? kit_string_const(c, "0", 1) : kit_scalar(c, DT_I64, 0);
  if (n == 2) {
    yes = kit_scalar_of(c, kit_slice(c, labels, 0, 1, 2));
    no = kit_scalar_of(c, kit_slice(c, labels, 0, 0, 1));
  }
  return kit_where(c, cond, yes, no);
}

const Node *onnx_ml_columns(Conversion *c, const Node *a, const Node *b) { return kit_concat2(c, a, b, 1); }

/* The inverse of the normal distribution, by Winitzki's formula for that of erf. */
static const Node *probit(Conversion *c, const Node *y)
{
  static const double A = 0.147;
  static const double TWO_BY_PI_A = 2 / (3.14159 * 0.147);
  DType dt = kit_dtype_of(c, y);
  const Node *one = kit_scalar(c, dt, 1);
  const Node *x = kit_sub(c, kit_mul(c, kit_scalar(c, dt, 2), y), one);
  const Node *log = kit_op1(c, "log", kit_mul(c, kit_sub(c, one, x), kit_add(c, one, x)), NULL);
  const Node *v = kit_add(c, kit_scalar(c, dt, TWO_BY_PI_A), kit_mul(c, kit_scalar(c, dt, 0.5), log));
  const Node *root = kit_sqrt(c, kit_sub(c, kit_mul(c, v, v), kit_mul(c, kit_scalar(c, dt, 1 / A), log)));
  const Node *size = kit_mul(c, kit_scalar(c, dt, sqrt(2)), kit_sqrt(c, kit_sub(c, root, v)));
  return kit_where(c, kit_less(c, x, kit_scalar(c, dt, 0)), kit_op1(c, "negative", size, NULL), size);
}

/* Softmax over what is not 0; 0 stays. */
static const Node *softmax_zero(Conversion *c, const Node *y, int axis)
{
  static const double ALMOST = 1e-7;
  const Node *zero = kit_scalar_like(c, y, 0);
  const Node *some = kit_op2(c, "greater", kit_op1(c, "abs", y, NULL), kit_scalar_like(c, y, ALMOST), NULL);
  const Node *most = kit_reduce1(c, "max", y, axis, true);
  const Node *e = kit_where(c, some, kit_exp(c, kit_sub(c, y, most)), zero);
  return kit_div(c, e, kit_reduce1(c, "sum", e, axis, true));
}

const Node *onnx_ml_post(Conversion *c, const Node *y, const char *how)
{
  int64_t columns;
  int axis = kit_rank_of(c, y) - 1;
  bool single = kit_is_static_dim(kit_dim_of(c, y, axis), &columns) && columns == 1;
  if (!strcmp(how, "PROBIT")) return probit(c, y);
  if (!strcmp(how, "NONE")) return y;
  if (!strcmp(how, "LOGISTIC")) return single ? y : kit_op1(c, "sigmoid", y, NULL);
  if (!strcmp(how, "SOFTMAX")) return single ? y : kit_softmax(c, y, axis);
  if (!strcmp(how, "SOFTMAX_ZERO")) return single ? y : softmax_zero(c, y, axis);
  kit_fail(c, ERR_ARGUMENT, "post_transform is '%s'; it is NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT", how);
}

static const char *post_name(Conversion *c) { return onnx_attr_str(c, "post_transform", "NONE"); }

/* A list as long as a row, or of one for all of it; NULL when it is absent. */
static const Node *per_feature(Conversion *c, const char *name, const Node *x)
{
  int n;
  int64_t features;
  const double *v = onnx_ml_numbers(c, name, &n);
  if (!n) return NULL;
  if (n > 1 && kit_is_static_dim(kit_dim_of(c, x, -1), &features) && n != features)
    kit_fail(c, ERR_ARGUMENT, "%s has %d elements; 1 or %" PRId64 " are wanted", name, n, features);
  return onnx_ml_constant(c, kit_dtype_of(c, x), 0, n, v);
}

/* ---- features ----------------------------------------------------------------------------------------- */

/* Columns that are known when the model is compiled: neighbours are a slice. */
static const Node *known_columns(Conversion *c, const Node *x, int n, const int64_t *at)
{
  int axis = kit_rank_of(c, x) - 1;
  int64_t columns = kit_static_dim(c, x, axis);
  bool row = n > 0;
  for (int i = 0; i < n; i++) {
    if (at[i] < 0 || at[i] >= columns)
      kit_fail(c, ERR_ARGUMENT, "column %" PRId64 " is wanted; there are %" PRId64, at[i], columns);
    row = row && at[i] == at[0] + i;
  }
  if (row && n == columns) return x;
  return row ? kit_slice(c, x, axis, at[0], at[0] + n) : take_inside(c, x, kit_const_i64(c, n, at), axis);
}

/* Columns by number, from the last axis. */
static const Node *convert_feature_extractor(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *at = kit_reshape(c, kit_in(c, 1), 1, (int64_t[]){-1});
  int rank = kit_rank_of(c, x);
  int n;
  int64_t columns;
  const int64_t *known = kit_const_ints(c, at, &n);
  if (rank < 1) kit_fail(c, ERR_SHAPE, "a scalar has no columns");
  const Node *y = known && kit_is_static_dim(kit_dim_of(c, x, rank - 1), &columns) ? known_columns(c, x, n, known)
                                                                                   : kit_take(c, x, at, rank - 1);
  return rank == 1 ? kit_unsqueeze(c, y, 0) : y;
}

static const Node *convert_binarizer(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_cast_to(c, kit_op2(c, "greater", x, kit_scalar_like(c, x, onnx_attr_float(c, "threshold", 0)), NULL),
                     kit_dtype_of(c, x));
}

static const Node *convert_scaler(Conversion *c)
{
  const Node *x = kit_cast_to(c, kit_in(c, 0), DT_F32);
  const Node *offset = per_feature(c, "offset", x);
  const Node *scale = per_feature(c, "scale", x);
  if (offset) x = kit_sub(c, x, offset);
  return scale ? kit_mul(c, x, scale) : x;
}

static const Node *convert_normalizer(Conversion *c)
{
  const Node *x = kit_cast_to(c, kit_in(c, 0), DT_F32);
  const char *how = onnx_attr_str(c, "norm", "MAX");
  const Node *by;
  int axis = kit_rank_of(c, x) - 1;
  if (axis < 0 || axis > 1) kit_fail(c, ERR_SHAPE, "a vector or matrix is wanted");
  if (!strcmp(how, "MAX")) by = kit_reduce1(c, "max", x, axis, true);
  else if (!strcmp(how, "L1")) by = kit_reduce1(c, "sum", kit_op1(c, "abs", x, NULL), axis, true);
  else if (!strcmp(how, "L2")) by = kit_sqrt(c, kit_reduce1(c, "sum", kit_mul(c, x, x), axis, true));
  else kit_fail(c, ERR_ARGUMENT, "norm is '%s'; it is MAX, L1 or L2", how);
  const Node *zero = kit_op2(c, "equal", by, kit_scalar_like(c, by, 0), NULL);
  return kit_div(c, x, kit_where(c, zero, kit_scalar_like(c, by, 1), by)); /* a row of norm 0 stays as it is */
}

static const Node *convert_imputer(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  DType dt = kit_dtype_of(c, x);
  int ni;
  const int64_t *ints = onnx_attr_ints(c, "imputed_value_int64s", &ni);
  bool whole = dtype_is_int(dt);
  const Node *to =
      whole && ni ? kit_cast_to(c, kit_const_i64(c, ni, ints), dt) : per_feature(c, "imputed_value_floats", x);
  int64_t features;
  if (dtype_is_string(dt) || !to || whole != (ni > 0))
    kit_fail(c, ERR_ARGUMENT, "imputed_value_%s of 1 or as many elements as there are features is wanted for %s",
             whole ? "int64s" : "floats", type_text(scratch(c->ctx), x->type));
  if (ni > 1 && kit_is_static_dim(kit_dim_of(c, x, -1), &features) && ni != features)
    kit_fail(c, ERR_ARGUMENT, "imputed_value_int64s has %d elements; 1 or %" PRId64 " are wanted", ni, features);
  double bad = onnx_attr_float(c, "replaced_value_float", 0);
  const Node *from =
      whole ? node_scalar(c->m, value_int(dt, onnx_attr_int(c, "replaced_value_int64", 0))) : kit_scalar(c, dt, bad);
  const Node *hit = !whole && isnan(bad) ? kit_op1(c, "isnan", x, NULL) : kit_op2(c, "equal", x, from, NULL);
  return kit_where(c, hit, to, x);
}

/* Inputs side by side, each cut or filled up with 0 to its number of columns. */
static const Node *convert_feature_vectorizer(Conversion *c)
{
  int n;
  const int64_t *dims = onnx_attr_ints(c, "inputdimensions", &n);
  const Node **part = arena_array(c->im->arena, const Node *, c->nin + 1);
  if (n && n != c->nin) kit_fail(c, ERR_ARGUMENT, "inputdimensions has %d elements for %d inputs", n, c->nin);
  for (int i = 0; i < c->nin; i++) {
    const Node *x = kit_cast_to(c, kit_in(c, i), DT_F32);
    part[i] = kit_rank_of(c, x) == 1 ? kit_unsqueeze(c, x, 0) : kit_flatten_from(c, x, 1);
    int64_t width = kit_static_dim(c, part[i], 1);
    if (n && (dims[i] < 1 || dims[i] > INT32_MAX))
      kit_fail(c, ERR_ARGUMENT, "inputdimensions[%d] is %" PRId64 "; a number of columns is wanted", i, dims[i]);
    if (n && dims[i] < width) part[i] = kit_slice(c, part[i], 1, 0, dims[i]);
    if (n && dims[i] > width) part[i] = kit_pad(c, part[i], 2, (int64_t[]){0, 0}, (int64_t[]){0, dims[i] - width}, 0);
  }
  return kit_concat(c, c->nin, part, 1);
}

/* ---- categories ---------------------------------------------------------------------------------------- */

/* A list of numbers or strings from whichever attribute carries it. */
static const Node *label_list(Conversion *c, const char *stem)
{
  int n = 0;
  Arena *a = c->im->arena;
  const Node *s = onnx_attr_strings(c, arena_printf(a, "%s_strings", stem));
  if (s) return s;
  const int64_t *i = onnx_attr_ints(c, arena_printf(a, "%s_int64s", stem), &n);
  if (i) return kit_const_i64(c, n, i);
  const float *f = onnx_attr_floats(c, arena_printf(a, "%s_floats", stem), &n);
  if (f) return node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, f);
  const PAttr *t = onnx_attr(c, arena_printf(a, "%s_tensor", stem));
  if (t && t->t) return onnx_tensor(c->im, t->t, c->name);
  kit_fail(c, ERR_ARGUMENT, "it has no %s", stem);
}

static const Node *label_default(Conversion *c, DType dt)
{
  const PAttr *t = onnx_attr(c, "default_tensor");
  const PAttr *s = onnx_attr(c, "default_string");
  if (t && t->t) return kit_scalar_of(c, kit_cast_to(c, onnx_tensor(c->im, t->t, c->name), dt));
  if (dtype_is_string(dt)) return s ? kit_string_const(c, s->s.p, s->s.n) : kit_string_const(c, "_Unused", 7);
  return dtype_is_int(dt) ? node_scalar(c->m, value_int(dt, onnx_attr_int(c, "default_int64", -1)))
                          : kit_scalar(c, dt, onnx_attr_float(c, "default_float", -0.0));
}

/* 1 + the place of the first of few keys that is equal, 0 for none. */
static const Node *place_of(Conversion *c, const Node *x, const Node *keys)
{
  int rank = kit_rank_of(c, x);
  int64_t n = kit_static_dim(c, keys, 0);
  const Node *left =
      kit_arange(c, kit_scalar(c, DT_I64, n), kit_scalar(c, DT_I64, 0), kit_scalar(c, DT_I64, -1), DT_I64);
  const Node *hit = kit_op2(c, "equal", kit_unsqueeze(c, x, rank), keys, NULL);
  if (dtype_is_float(kit_dtype_of(c, x))) { /* NaN is the key NaN here */
    const Node *both = kit_op2(c, "logical_and", kit_op1(c, "isnan", kit_unsqueeze(c, x, rank), NULL),
                               kit_op1(c, "isnan", keys, NULL), NULL);
    hit = kit_op2(c, "logical_or", hit, both, NULL);
  }
  const Node *at = kit_reduce1(c, "max", kit_where(c, hit, left, kit_scalar(c, DT_I64, 0)), rank, false);
  const Node *none = kit_op2(c, "equal", at, kit_scalar(c, DT_I64, 0), NULL);
  return kit_where(c, none, kit_scalar(c, DT_I64, 0), kit_sub(c, kit_scalar(c, DT_I64, n + 1), at));
}

typedef struct Key {
  Value v;
  int64_t at;
} Key;

static double key_number(const Key *k) { return dtype_is_int(k->v.dtype) ? (double)k->v.i : k->v.f; }

static int by_key(const void *x, const void *y)
{
  const Key *a = x;
  const Key *b = y;
  if (dtype_is_int(a->v.dtype) && a->v.i != b->v.i) return (a->v.i > b->v.i) - (a->v.i < b->v.i);
  double u = key_number(a);
  double v = key_number(b);
  return u != v ? (u > v) - (u < v) : (a->at > b->at) - (a->at < b->at);
}

/* The same of many numbers: a search in their order. */
static const Node *place_among_many(Conversion *c, const Node *x, const Node *keys)
{
  const ConstData *d = keys->u.data;
  int64_t n = kit_static_dim(c, keys, 0);
  int64_t m = 0;
  int64_t nan_at = 0;
  size_t size = (size_t)dtype_bytes(d->dtype);
  Key *k = arena_array(c->im->arena, Key, n + 1);
  for (int64_t i = 0; i < n; i++) {
    Value v = value_load(d->dtype, (const char *)d->data + (size_t)i * size);
    bool nan = dtype_is_float(d->dtype) && isnan(v.f);
    if (nan && !nan_at) nan_at = i + 1;
    if (!nan) k[m++] = (Key){v, i};
  }
  qsort(k, (size_t)m, sizeof *k, by_key);
  char *sorted = arena_alloc(c->im->arena, (size_t)(m + 1) * size);
  int64_t *at = arena_array(c->im->arena, int64_t, m + 1);
  for (int64_t i = 0; i < m; i++) {
    value_store(k[i].v, sorted + (size_t)i * size);
    at[i] = k[i].at + 1;
  }
  const Node *list = node_const_copy(c->m, d->dtype, 1, (int64_t[]){m}, sorted);
  const Node *found = kit_op2(c, "searchsorted", list, x, "dtype:t", DT_I64);
  const Node *inside = kit_min2(c, found, kit_scalar(c, DT_I64, m - 1));
  const Node *hit = kit_op2(c, "equal", take_inside(c, list, inside, 0), x, NULL);
  const Node *place =
      kit_where(c, hit, take_inside(c, kit_const_i64(c, (int)m, at), inside, 0), kit_scalar(c, DT_I64, 0));
  return nan_at ? kit_where(c, kit_op1(c, "isnan", x, NULL), kit_scalar(c, DT_I64, nan_at), place) : place;
}

/* The value of the first key that is equal; otherwise the default. */
static const Node *look_up(Conversion *c, const Node *x, const Node *keys, const Node *values, const Node *otherwise)
{
  enum { FEW = 16 };
  DType dt = kit_dtype_of(c, x);
  int64_t n = kit_static_dim(c, keys, 0);
  if (n != kit_static_dim(c, values, 0) || n > INT32_MAX / 2)
    kit_fail(c, ERR_ARGUMENT, "%" PRId64 " keys and %" PRId64 " values do not fit", n, kit_static_dim(c, values, 0));
  if (dtype_is_string(dt) != dtype_is_string(kit_dtype_of(c, keys)) && n)
    kit_fail(c, ERR_TYPE, "the keys are %sstrings, the input is %s", dtype_is_string(dt) ? "not " : "",
             type_text(scratch(c->ctx), x->type));
  if (!n) keys = node_const_copy(c->m, dt, 1, (int64_t[]){0}, ""), n = 0;
  if (!dtype_is_string(dt)) keys = kit_cast_to(c, keys, dt);
  const Node *table = kit_concat2(c, kit_vector_of(c, otherwise), values, 0);
  if (!n) return take_inside(c, table, kit_cast_to(c, kit_op2(c, "not_equal", x, x, NULL), DT_I64), 0);
  bool many = n > FEW && !dtype_is_string(dt) && keys->kind == N_CONST;
  return take_inside(c, table, many ? place_among_many(c, x, keys) : place_of(c, x, keys), 0);
}

static const Node *convert_label_encoder(Conversion *c)
{
  const Node *values = label_list(c, "values");
  return look_up(c, kit_in(c, 0), label_list(c, "keys"), values, label_default(c, kit_dtype_of(c, values)));
}

static const Node *count_up(Conversion *c, int64_t n)
{
  return kit_arange(c, kit_scalar(c, DT_I64, 0), kit_scalar(c, DT_I64, n), kit_scalar(c, DT_I64, 1), DT_I64);
}

/* Version 1: names to their places, or places to names. */
static const Node *convert_label_encoder_1(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *names = onnx_attr_strings(c, "classes_strings");
  if (!names) kit_fail(c, ERR_ARGUMENT, "it has no classes_strings");
  const Node *places = count_up(c, kit_static_dim(c, names, 0));
  bool named = dtype_is_string(kit_dtype_of(c, x));
  return look_up(c, x, named ? names : places, named ? places : names, label_default(c, named ? DT_I64 : DT_STRING));
}

static const Node *convert_category_mapper(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  const Node *names = onnx_attr_strings(c, "cats_strings");
  int n;
  const int64_t *v = onnx_attr_ints(c, "cats_int64s", &n);
  if (!names || !v) kit_fail(c, ERR_ARGUMENT, "cats_strings and cats_int64s are wanted");
  const Node *ints = kit_const_i64(c, n, v);
  bool named = dtype_is_string(kit_dtype_of(c, x));
  return look_up(c, x, named ? names : ints, named ? ints : names, label_default(c, named ? DT_I64 : DT_STRING));
}

/* x where the condition holds; elsewhere the run is refused: a slice along a new axis takes one item or none, and
 * squeezing wants one. */
static const Node *only_if(Conversion *c, const Node *cond, const Node *x)
{
  const Node *wide = kit_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", 0, 2);
  const Node *end = kit_unsqueeze(c, kit_cast_to(c, kit_scalar_of(c, cond), DT_I64), 0);
  return kit_squeeze(c, kit_squeeze(c, kit_slice_to(c, wide, 0, kit_const_i64(c, 1, (int64_t[]){0}), end), 0), 0);
}

static const Node *convert_one_hot(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int n;
  int rank = kit_rank_of(c, x);
  const int64_t *ints = onnx_attr_ints(c, "cats_int64s", &n);
  const Node *cats = dtype_is_string(kit_dtype_of(c, x)) ? onnx_attr_strings(c, "cats_strings")
                     : ints                              ? kit_const_i64(c, n, ints)
                                                         : NULL;
  if (!cats || !kit_static_dim(c, cats, 0))
    kit_fail(c, ERR_ARGUMENT, "it has no categories for %s", type_text(scratch(c->ctx), x->type));
  if (!dtype_is_string(kit_dtype_of(c, x))) x = kit_cast_to(c, x, DT_I64);
  const Node *hit = kit_op2(c, "equal", kit_unsqueeze(c, x, rank), cats, NULL);
  const Node *y = kit_cast_to(c, hit, DT_F32);
  if (onnx_attr_int(c, "zeros", 1)) return y;
  const Node *known = kit_op1(c, "any", hit, "axis:I", 1, (int64_t[]){rank});
  return only_if(c, kit_op1(c, "all", known, NULL), y);
}

/* ---- maps ------------------------------------------------------------------------------------------------ */

static void map_in(Conversion *c, const Node **keys, const Node **values)
{
  const Node *x = kit_in(c, 0);
  if (x->type->kind != TY_TUPLE) kit_fail(c, ERR_TYPE, "a map is wanted, not %s", type_text(scratch(c->ctx), x->type));
  *keys = node_get(c->m, x, 0);
  *values = node_get(c->m, x, 1);
}

/* The values of some keys, `otherwise` (of numbers 0) of those that the map does not have; (1, keys).  A map has a key
 * once: of numbers the one that is found is the sum, of strings it is taken by its place. */
static const Node *values_of(Conversion *c, const Node *wanted, const Node *keys, const Node *values,
                             const Node *otherwise)
{
  const Node *hit = kit_op2(c, "equal", kit_unsqueeze(c, wanted, 1), keys, NULL);
  if (!dtype_is_string(kit_dtype_of(c, values)))
    return kit_unsqueeze(c, kit_reduce1(c, "sum", kit_where(c, hit, values, otherwise), 1, false), 0);
  const Node *count = kit_scalar_of(c, kit_shape_part(c, keys, 0, 1));
  const Node *place = kit_add(c, kit_iota(c, count, DT_I64), kit_scalar(c, DT_I64, 1));
  const Node *at = kit_reduce1(c, "sum", kit_where(c, hit, place, kit_scalar(c, DT_I64, 0)), 1, false);
  return kit_unsqueeze(c, take_inside(c, kit_concat2(c, kit_vector_of(c, otherwise), values, 0), at, 0), 0);
}

static const Node *nothing(Conversion *c, DType dt)
{
  return dtype_is_string(dt) ? kit_string_const(c, "", 0) : kit_scalar(c, dt, 0);
}

static const Node *convert_dict_vectorizer(Conversion *c)
{
  const Node *keys, *values;
  int n;
  map_in(c, &keys, &values);
  const int64_t *ints = onnx_attr_ints(c, "int64_vocabulary", &n);
  const Node *words = dtype_is_string(kit_dtype_of(c, keys)) ? onnx_attr_strings(c, "string_vocabulary")
                      : ints                                 ? kit_const_i64(c, n, ints)
                                                             : NULL;
  if (!words) kit_fail(c, ERR_ARGUMENT, "it has no vocabulary for keys of %s", type_text(scratch(c->ctx), keys->type));
  return values_of(c, words, keys, values, nothing(c, kit_dtype_of(c, values)));
}

static const Node *convert_cast_map(Conversion *c)
{
  enum { MOST = 1 << 28 };
  const Node *keys, *values;
  map_in(c, &keys, &values);
  const char *to = onnx_attr_str(c, "cast_to", "TO_FLOAT");
  const char *form = onnx_attr_str(c, "map_form", "DENSE");
  int64_t n = onnx_attr_int(c, "max_map", 1);
  if (dtype_is_string(kit_dtype_of(c, keys)))
    kit_fail(c, ERR_TYPE, "the keys of the map are strings; int64 are wanted");
  if (strcmp(to, "TO_FLOAT") && strcmp(to, "TO_INT64") && strcmp(to, "TO_STRING"))
    kit_fail(c, ERR_ARGUMENT, "cast_to is '%s'; it is TO_FLOAT, TO_INT64 or TO_STRING", to);
  DType dt = !strcmp(to, "TO_FLOAT") ? DT_F32 : !strcmp(to, "TO_INT64") ? DT_I64 : DT_STRING;
  values = kit_cast_to(c, values, dt);
  if (!strcmp(form, "DENSE"))
    return kit_unsqueeze(c, kit_take(c, values, kit_op1(c, "argsort", keys, "dtype:t", DT_I64), 0), 0);
  if (strcmp(form, "SPARSE")) kit_fail(c, ERR_ARGUMENT, "map_form is '%s'; it is DENSE or SPARSE", form);
  if (n < 1 || n > MOST) kit_fail(c, ERR_ARGUMENT, "max_map is %" PRId64 "; 1 to %d are possible", n, MOST);
  return values_of(c, count_up(c, n), keys, values,
                   dtype_is_string(dt) ? kit_string_const(c, "0", 1) : kit_scalar(c, dt, 0));
}

static const Node *convert_zip_map(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  int64_t n;
  int64_t columns;
  const Node *labels = onnx_ml_labels(c, "classlabels_int64s", &n);
  int rank = kit_rank_of(c, x);
  if (rank != 1 && rank != 2) kit_fail(c, ERR_SHAPE, "a vector or matrix is wanted");
  if (kit_is_static_dim(kit_dim_of(c, x, -1), &columns) && columns != n)
    kit_fail(c, ERR_SHAPE, "there are %" PRId64 " class labels for %" PRId64 " columns", n, columns);
  return node_tuple(c->m, 2, (const Node *[]){labels, rank == 1 ? kit_unsqueeze(c, x, 0) : x});
}

/* ---- linear models ---------------------------------------------------------------------------------------- */

/* x · rows of `name` (rows, features), plus offsets. */
static const Node *linear(Conversion *c, const Node *x, const char *name, int64_t rows, const char *offsets)
{
  int nc;
  int nb;
  const double *w = onnx_ml_numbers(c, name, &nc);
  const double *b = onnx_ml_numbers(c, offsets, &nb);
  int64_t features = kit_static_dim(c, x, 1);
  if (rows < 1 || nc % rows || nc / rows != features)
    kit_fail(c, ERR_SHAPE, "%d %s do not make %" PRId64 " rows of %" PRId64 " features", nc, name, rows, features);
  if (nb && nb != rows) kit_fail(c, ERR_SHAPE, "%d %s are given for %" PRId64 " rows of %s", nb, offsets, rows, name);
  const Node *y = kit_op2(c, "nn.dense", x, onnx_ml_constant(c, kit_dtype_of(c, x), (int)rows, (int)features, w), NULL);
  return nb ? kit_add(c, y, onnx_ml_constant(c, kit_dtype_of(c, x), 0, nb, b)) : y;
}

static const Node *float_matrix(Conversion *c) { return kit_cast_to(c, onnx_ml_matrix(c, kit_in(c, 0)), DT_F32); }

static const Node *convert_linear_regressor(Conversion *c)
{
  return onnx_ml_post(c, linear(c, float_matrix(c), "coefficients", onnx_attr_int(c, "targets", 1), "intercepts"),
                      post_name(c));
}

/* Scores of two classes of the one that there is, of the second class: 1 - s and s, or -s and s. */
static const Node *two_columns(Conversion *c, const Node *s, const char *how, bool sign)
{
  const Node *one = onnx_ml_post(c, s, how); /* the name is checked; only LOGISTIC and PROBIT mean anything here */
  bool probit = !strcmp(how, "PROBIT");
  if (!strcmp(how, "LOGISTIC")) one = kit_op1(c, "sigmoid", s, NULL);
  if (probit) one = s;
  const Node *other = sign ? kit_op1(c, "negative", one, NULL) : kit_sub(c, kit_scalar(c, DT_F32, 1), one);
  const Node *both = onnx_ml_columns(c, other, one);
  return probit ? onnx_ml_post(c, both, how) : both;
}

static const Node *convert_linear_classifier(Conversion *c)
{
  int n;
  int64_t classes;
  const char *how = post_name(c);
  const Node *x = float_matrix(c);
  const Node *labels = onnx_ml_labels(c, "classlabels_ints", &classes);
  onnx_ml_numbers(c, "coefficients", &n);
  int64_t rows = n / (kit_static_dim(c, x, 1) > 0 ? kit_static_dim(c, x, 1) : 1);
  if (rows != classes && !(rows == 1 && classes == 2))
    kit_fail(c, ERR_ARGUMENT, "%d coefficients make %" PRId64 " rows for %" PRId64 " class labels", n, rows, classes);
  const Node *s = linear(c, x, "coefficients", rows, "intercepts");
  if (rows > 1) {
    c->out[0] = onnx_ml_pick(c, labels, kit_op1(c, "argmax", s, "axis:I", 1, (int64_t[]){1}));
    c->out[1] = onnx_ml_post(c, s, how);
    return NULL;
  }
  c->out[0] =
      onnx_ml_pick_two(c, labels, classes, kit_op2(c, "greater", kit_squeeze(c, s, 1), kit_scalar(c, DT_F32, 0), NULL));
  c->out[1] = classes == 2 ? two_columns(c, s, how, false) : onnx_ml_post(c, s, how);
  return NULL;
}

/* ---- support vectors ----------------------------------------------------------------------------------------- */

/* The kernel of x with each support vector: (rows, vectors). */
static const Node *kernel(Conversion *c, const Node *x, int64_t vectors)
{
  static const double plain[3];
  int n;
  int np;
  int64_t features = kit_static_dim(c, x, 1);
  const char *kind = onnx_attr_str(c, "kernel_type", "LINEAR");
  const double *sv = onnx_ml_numbers(c, "support_vectors", &n);
  const double *p = onnx_ml_numbers(c, "kernel_params", &np);
  if (np && np != 3) kit_fail(c, ERR_ARGUMENT, "kernel_params has %d elements; gamma, coef0 and degree are wanted", np);
  if (!np) p = plain;
  if (n % vectors || n / vectors != features)
    kit_fail(c, ERR_SHAPE, "support_vectors has %d elements; %" PRId64 " vectors of %" PRId64 " features are wanted", n,
             vectors, features);
  if (!strcmp(kind, "RBF")) {
    double *turned = arena_array(c->im->arena, double, n + 1); /* side by side for each feature: (features, vectors) */
    for (int64_t v = 0; v < vectors; v++)
      for (int64_t k = 0; k < features; k++) turned[k * vectors + v] = sv[v * features + k];
    const Node *d =
        kit_sub(c, kit_unsqueeze(c, x, 2), onnx_ml_constant(c, DT_F32, (int)features, (int)vectors, turned));
    return kit_exp(c, kit_mul(c, kit_scalar(c, DT_F32, -p[0]), kit_reduce1(c, "sum", kit_mul(c, d, d), 1, false)));
  }
  const Node *y = kit_op2(c, "nn.dense", x, onnx_ml_constant(c, DT_F32, (int)vectors, (int)features, sv), NULL);
  if (!strcmp(kind, "LINEAR")) return y;
  y = kit_add(c, kit_mul(c, kit_scalar(c, DT_F32, p[0]), y), kit_scalar(c, DT_F32, p[1]));
  if (!strcmp(kind, "SIGMOID")) return kit_op1(c, "tanh", y, NULL);
  if (strcmp(kind, "POLY")) kit_fail(c, ERR_ARGUMENT, "kernel_type is '%s'; it is LINEAR, POLY, RBF or SIGMOID", kind);
  if (p[2] == 2) return kit_mul(c, y, y);
  return p[2] == 3 ? kit_mul(c, kit_mul(c, y, y), y) : kit_op2(c, "power", y, kit_scalar(c, DT_F32, p[2]), NULL);
}

static const double *rho_of(Conversion *c, int64_t least, int *n)
{
  const double *rho = onnx_ml_numbers(c, "rho", n);
  if (*n < least) kit_fail(c, ERR_ARGUMENT, "rho has %d elements, %" PRId64 " are wanted", *n, least);
  return rho;
}

static const Node *convert_svm_regressor(Conversion *c)
{
  int n;
  int nrho;
  const Node *x = float_matrix(c);
  int64_t vectors = onnx_attr_int(c, "n_supports", 0);
  const double *w = onnx_ml_numbers(c, "coefficients", &n);
  const double *rho = rho_of(c, 1, &nrho);
  if (vectors < 0) kit_fail(c, ERR_ARGUMENT, "n_supports is %" PRId64, vectors);
  const Node *k = vectors ? kernel(c, x, vectors) : x;
  int64_t wanted = kit_static_dim(c, k, 1);
  if (n != wanted) kit_fail(c, ERR_SHAPE, "coefficients has %d elements, %" PRId64 " are wanted", n, wanted);
  const Node *y = kit_op2(c, "nn.dense", k, onnx_ml_constant(c, DT_F32, 1, n, w), NULL);
  y = kit_add(c, y, kit_scalar(c, DT_F32, rho[0]));
  if (!onnx_attr_int(c, "one_class", 0)) return onnx_ml_post(c, y, post_name(c));
  return kit_where(c, kit_op2(c, "greater", y, kit_scalar(c, DT_F32, 0), NULL), kit_scalar(c, DT_F32, 1),
                   kit_scalar(c, DT_F32, -1));
}

typedef struct Svc {
  int64_t classes, pairs, vectors;
  const int64_t *count; /* support vectors of each class */
} Svc;

/* What the kernel of each support vector counts for each pair of classes i < j: of a vector of class i its
 * coefficient against j, of one of class j that against i; (pairs, vectors). */
static const Node *pair_weights(Conversion *c, const Svc *s)
{
  int n;
  const double *w = onnx_ml_numbers(c, "coefficients", &n);
  if (n < (s->classes - 1) * s->vectors)
    kit_fail(c, ERR_SHAPE, "coefficients has %d elements, %" PRId64 " are wanted", n, (s->classes - 1) * s->vectors);
  double *v = arena_array(c->im->arena, double,
                          mem_size_mul(c->ctx, (size_t)s->pairs, (size_t)s->vectors, "the coefficients") + 1);
  int64_t pair = 0;
  int64_t begin_i = 0;
  for (int64_t i = 0; i < s->classes; begin_i += s->count[i++]) {
    int64_t begin_j = begin_i + s->count[i];
    for (int64_t j = i + 1; j < s->classes; begin_j += s->count[j++], pair++) {
      for (int64_t k = 0; k < s->count[i]; k++)
        v[pair * s->vectors + begin_i + k] = w[(j - 1) * s->vectors + begin_i + k];
      for (int64_t k = 0; k < s->count[j]; k++) v[pair * s->vectors + begin_j + k] = w[i * s->vectors + begin_j + k];
    }
  }
  return onnx_ml_constant(c, DT_F32, (int)s->pairs, (int)s->vectors, v);
}

/* The class that wins most pairs, the first among equals.  i wins against j where the score is above 0. */
static const Node *most_votes(Conversion *c, const Svc *s, const Node *scores)
{
  Arena *a = c->im->arena;
  double *first = arena_array(a, double, s->classes * s->pairs + 1);
  double *always = arena_array(a, double, s->classes + 1);
  int64_t pair = 0;
  for (int64_t i = 0; i < s->classes; i++)
    for (int64_t j = i + 1; j < s->classes; j++, pair++) {
      first[i * s->pairs + pair] = 1;
      first[j * s->pairs + pair] = -1;
      always[j] += 1;
    }
  const Node *won = kit_cast_to(c, kit_op2(c, "greater", scores, kit_scalar(c, DT_F32, 0), NULL), DT_F32);
  const Node *votes =
      kit_op2(c, "nn.dense", won, onnx_ml_constant(c, DT_F32, (int)s->classes, (int)s->pairs, first), NULL);
  votes = kit_add(c, votes, onnx_ml_constant(c, DT_F32, 0, (int)s->classes, always));
  return kit_op1(c, "argmax", votes, "axis:I", 1, (int64_t[]){1});
}

/* Platt's sigmoid of each pair, then the classes. */
static const Node *probabilities(Conversion *c, const Svc *s, const Node *scores)
{
  static const double LEAST = 1e-7;
  int na;
  int nb;
  const double *a = onnx_ml_numbers(c, "prob_a", &na);
  const double *b = onnx_ml_numbers(c, "prob_b", &nb);
  if (na < s->pairs || nb < s->pairs)
    kit_fail(c, ERR_ARGUMENT, "prob_a has %d and prob_b %d elements, %" PRId64 " are wanted", na, nb, s->pairs);
  int n = (int)s->pairs;
  const Node *v =
      kit_add(c, kit_mul(c, scores, onnx_ml_constant(c, DT_F32, 0, n, a)), onnx_ml_constant(c, DT_F32, 0, n, b));
  const Node *p = kit_op1(c, "sigmoid", kit_op1(c, "negative", v, NULL), NULL);
  return kit_op1(c, "ml.pairwise_probability", kit_op1(c, "clip", p, "a_min:f,a_max:f", LEAST, 1 - LEAST), NULL);
}

/* Without support vectors: one row of coefficients for each class. */
static void linear_svm(Conversion *c, const Node *x, const Node *labels, int64_t classes)
{
  int n;
  int nrho;
  int np;
  const double *w = onnx_ml_numbers(c, "coefficients", &n);
  bool positive = true;
  for (int i = 0; i < n; i++) positive = positive && w[i] >= 0;
  onnx_ml_numbers(c, "prob_a", &np);
  const double *rho = rho_of(c, 1, &nrho);
  const Node *s = kit_add(c, linear(c, x, "coefficients", classes, ""), kit_scalar(c, DT_F32, rho[0]));
  const Node *best = onnx_ml_pick(c, labels, kit_op1(c, "argmax", s, "axis:I", 1, (int64_t[]){1}));
  if (classes == 2 && !np) {
    const Node *most = kit_reduce1(c, "max", s, 1, false);
    const Node *second =
        kit_op2(c, positive ? "greater_equal" : "greater", most, kit_scalar(c, DT_F32, positive ? 0.5 : 0), NULL);
    best = kit_where(c, second, kit_scalar_of(c, kit_slice(c, labels, 0, 1, 2)), best);
  }
  c->out[0] = best;
  c->out[1] = onnx_ml_post(c, s, post_name(c));
}

static const Node *convert_svm_classifier(Conversion *c)
{
  enum { MOST_CLASSES = 4096 };
  int n;
  int nrho;
  int np;
  Svc s = {0};
  const char *how = post_name(c);
  const Node *x = float_matrix(c);
  const Node *labels = onnx_ml_labels(c, "classlabels_ints", &s.classes);
  s.count = onnx_attr_ints(c, "vectors_per_class", &n);
  for (int i = 0; i < n; i++) {
    if (s.count[i] < 0 || s.count[i] > INT32_MAX / 64)
      kit_fail(c, ERR_ARGUMENT, "vectors_per_class[%d] is %" PRId64, i, s.count[i]);
    s.vectors += s.count[i];
  }
  if (!s.vectors) {
    linear_svm(c, x, labels, s.classes);
    return NULL;
  }
  if (n != s.classes || s.classes < 2 || s.classes > MOST_CLASSES || s.vectors > INT32_MAX / 64)
    kit_fail(c, ERR_ARGUMENT, "vectors_per_class has %d elements for %" PRId64 " classes; 2 to %d classes are possible",
             n, s.classes, MOST_CLASSES);
  s.pairs = s.classes * (s.classes - 1) / 2;
  const double *rho = rho_of(c, s.pairs, &nrho);
  const Node *scores = kit_op2(c, "nn.dense", kernel(c, x, s.vectors), pair_weights(c, &s), NULL);
  scores = kit_add(c, scores, onnx_ml_constant(c, DT_F32, 0, (int)s.pairs, rho));
  c->out[0] = onnx_ml_pick(c, labels, most_votes(c, &s, scores));
  onnx_ml_numbers(c, "prob_a", &np);
  if (np) {
    c->out[1] = onnx_ml_post(c, probabilities(c, &s, scores), how);
  } else if (s.classes > 2) {
    c->out[1] = onnx_ml_post(c, scores, how);
  } else {
    c->out[1] = two_columns(c, scores, how, !strcmp(how, "NONE"));
  }
  return NULL;
}

static const OnnxRow rows[] = {
  {"ArrayFeatureExtractor", 1, convert_feature_extractor},
  {"Binarizer", 1, convert_binarizer},
  {"CastMap", 1, convert_cast_map},
  {"CategoryMapper", 1, convert_category_mapper},
  {"DictVectorizer", 1, convert_dict_vectorizer},
  {"FeatureVectorizer", 1, convert_feature_vectorizer},
  {"Imputer", 1, convert_imputer},
  {"LabelEncoder", 1, convert_label_encoder_1},
  {"LabelEncoder", 2, convert_label_encoder},
  {"LinearClassifier", 1, convert_linear_classifier},
  {"LinearRegressor", 1, convert_linear_regressor},
  {"Normalizer", 1, convert_normalizer},
  {"OneHotEncoder", 1, convert_one_hot},
  {"SVMClassifier", 1, convert_svm_classifier},
  {"SVMRegressor", 1, convert_svm_regressor},
  {"Scaler", 1, convert_scaler},
  {"ZipMap", 1, convert_zip_map},
};
ONNX_TABLE(onnx_ops_ml, "ai.onnx.ml", rows);
