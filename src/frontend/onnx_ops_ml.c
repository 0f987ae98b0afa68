/* onnx_ops_ml.c: operators of ai.onnx.ml.
 *
 * Comes in: feature tensors.  Goes out: takes, comparisons, selections. */
#include <math.h>

#include "frontend/onnx_import.h"

/* Columns by number, from the last axis. */
static const Node *convert_feature_extractor(Conv *c)
{
  const Node *x = conv_in(c, 0), *at = reshape(c, conv_in(c, 1), 1, (int64_t[]){-1});
  int rank = rank_of(c, x);
  const Node *y = take(c, x, at, rank - 1);
  return rank == 1 ? unsqueeze(c, y, 0) : y;
}

static const Node *convert_binarizer(Conv *c)
{
  const Node *x = conv_in(c, 0);
  return cast_to(c, op2(c, "greater", x, scalar_like(c, x, attr_float(c, "threshold", 0)), NULL), dtype_of(c, x));
}

static const Node *convert_scaler(Conv *c)
{
  const Node *x = cast_to(c, conv_in(c, 0), DT_F32);
  int no = 0, ns = 0;
  const float *offset = attr_floats(c, "offset", &no), *scale = attr_floats(c, "scale", &ns);
  if (offset) x = sub(c, x, node_const_copy(c->m, DT_F32, 1, (int64_t[]){no}, offset));
  return scale ? mul(c, x, node_const_copy(c->m, DT_F32, 1, (int64_t[]){ns}, scale)) : x;
}

/* A list of numbers or strings from whichever attribute carries it. */
static const Node *label_list(Conv *c, const char *stem)
{
  int n = 0;
  Arena *a = c->im->arena;
  const Node *s = attr_strings(c, arena_printf(a, "%s_strings", stem));
  if (s) return s;
  const int64_t *i = attr_ints(c, arena_printf(a, "%s_int64s", stem), &n);
  if (i) return const_i64(c, n, i);
  const float *f = attr_floats(c, arena_printf(a, "%s_floats", stem), &n);
  if (f) return node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, f);
  const PAttr *t = conv_attr(c, arena_printf(a, "%s_tensor", stem));
  if (t && t->t) return onnx_tensor(c->im, t->t, c->name);
  conv_fail(c, ERR_ARGUMENT, "it has no %s", stem);
}

static const Node *label_default(Conv *c, DType dt)
{
  const PAttr *t = conv_attr(c, "default_tensor"), *s = conv_attr(c, "default_string");
  if (t && t->t) return scalar_of(c, onnx_tensor(c->im, t->t, c->name));
  if (dtype_is_string(dt)) return s ? string_const(c, s->s.p, s->s.n) : string_const(c, "_Unused", 7);
  return dtype_is_int(dt) ? node_scalar(c->m, value_int(dt, attr_int(c, "default_int64", -1))) : scalar(c, dt, attr_float(c, "default_float", -0.0));
}

/* Strings: the place of the last key that matches, 0 for none, in a table that begins with the default. */
static const Node *look_up(Conv *c, const Node *x, const Node *keys, const Node *values)
{
  int rank = rank_of(c, x);
  int64_t n = static_dim(c, keys, 0);
  if (!dtype_is_string(dtype_of(c, x))) conv_fail(c, ERR_TYPE, "the keys are strings, the input is not");
  const Node *place = arange(c, node_scalar(c->m, value_int(DT_I64, 1)), node_scalar(c->m, value_int(DT_I64, n + 1)), node_scalar(c->m, value_int(DT_I64, 1)), DT_I64);
  const Node *at = where(c, op2(c, "equal", unsqueeze(c, x, rank), keys, NULL), place, node_scalar(c->m, value_int(DT_I64, 0)));
  const Node *table = concat2(c, vector_of(c, label_default(c, dtype_of(c, values))), values, 0);
  return take(c, table, reduce1(c, "max", at, rank, false), 0);
}

/* Each key in turn: the last that matches wins; NaN is equal to NaN here. */
static const Node *convert_label_encoder(Conv *c)
{
  const Node *x = conv_in(c, 0), *keys = label_list(c, "keys"), *values = label_list(c, "values"), *y;
  int64_t n = static_dim(c, keys, 0);
  if (n != static_dim(c, values, 0) || (n > 4096 && !dtype_is_string(dtype_of(c, keys)))) conv_fail(c, ERR_ARGUMENT, "%" PRId64 " keys and %" PRId64 " values do not fit", n, static_dim(c, values, 0));
  if (n && dtype_is_string(dtype_of(c, keys))) return look_up(c, x, keys, values);
  y = label_default(c, dtype_of(c, values));
  keys = cast_to(c, keys, dtype_of(c, x));
  for (int64_t i = 0; i < n; i++) {
    const Node *key = scalar_of(c, slice(c, keys, 0, i, i + 1)), *hit = op2(c, "equal", x, key, NULL);
    double k;
    if (dtype_is_float(dtype_of(c, x)) && const_float(c, key, &k) && isnan(k)) hit = op1(c, "isnan", x, NULL);
    y = where(c, hit, scalar_of(c, slice(c, values, 0, i, i + 1)), y);
  }
  return y;
}

/* What turns scores into the result. */
static const Node *post_transform(Conv *c, const Node *y)
{
  const char *how = attr_str(c, "post_transform", "NONE");
  if (!strcmp(how, "NONE")) return y;
  if (!strcmp(how, "LOGISTIC")) return op1(c, "sigmoid", y, NULL);
  if (!strcmp(how, "SOFTMAX")) return softmax(c, y, rank_of(c, y) - 1);
  conv_fail(c, ERR_UNSUPPORTED, "post_transform '%s' is not supported; NONE, LOGISTIC and SOFTMAX are", how);
}

/* x · coefficients (targets, features), plus intercepts. */
static const Node *convert_linear_regressor(Conv *c)
{
  const Node *x = cast_to(c, conv_in(c, 0), DT_F32);
  int nc = 0, ni = 0;
  const float *w = attr_floats(c, "coefficients", &nc), *b = attr_floats(c, "intercepts", &ni);
  int64_t targets = attr_int(c, "targets", 1);
  if (rank_of(c, x) == 1) x = unsqueeze(c, x, 0);
  int64_t features = static_dim(c, x, 1);
  if (!w || targets < 1 || nc / targets != features || nc % targets)
    conv_fail(c, ERR_SHAPE, "%d coefficients do not make %" PRId64 " targets of %" PRId64 " features", nc, targets, features);
  if (b && ni != targets) conv_fail(c, ERR_SHAPE, "%d intercepts are given for %" PRId64 " targets", ni, targets);
  const Node *y = op2(c, "nn.dense", x, node_const_copy(c->m, DT_F32, 2, (int64_t[]){targets, features}, w), NULL);
  if (b) y = add(c, y, node_const_copy(c->m, DT_F32, 1, (int64_t[]){ni}, b));
  return post_transform(c, y);
}

static const OnnxRow rows[] = {
  {"ArrayFeatureExtractor", 1, convert_feature_extractor}, {"Binarizer", 1, convert_binarizer}, {"LabelEncoder", 2, convert_label_encoder},
  {"LinearRegressor", 1, convert_linear_regressor}, {"Scaler", 1, convert_scaler},
};
ONNX_TABLE(onnx_ml, "ai.onnx.ml", rows);
