/* onnx_ops_random.c: random numbers and dropout.
 *
 * Comes in: nodes with a seed, or without.  Goes out: random.* calls, which are functions
 * of a seed: the model's where it gives one, else the node's place among its kind, so that
 * a model gives the same numbers every time. */
#include "frontend/onnx_import.h"

static int64_t seed_of(Conversion *c)
{
  int64_t place = ++onnx_of(c->im)->nrandom;
  const PAttr *a = onnx_attr(c, "seed");
  if (!a) return place;
  uint32_t bits;
  float f = (float)onnx_attr_float(c, "seed", 0);
  memcpy(&bits, &f, sizeof bits);
  return (int64_t)(hash_mix(0x9e3779b97f4a7c15u, bits) >> 2);
}

static bool is_like(Conversion *c) { return str_ends(c->op, "Like"); }

static const int64_t *shape_attr(Conversion *c, int *n)
{
  const int64_t *v = onnx_attr_ints(c, "shape", n);
  if (!v) kit_fail(c, ERR_ARGUMENT, "attribute 'shape' is missing");
  for (int i = 0; i < *n; i++)
    if (v[i] < 0) kit_fail(c, ERR_SHAPE, "dimension %d is %" PRId64, i, v[i]);
  return v;
}

/* The _like forms take the input's type unless another is asked for; integers make float32. */
static DType like_dtype(Conversion *c)
{
  DType dt = onnx_attr_dtype(c, "dtype", kit_dtype_of(c, kit_in(c, 0)));
  return dtype_is_float(dt) ? dt : DT_F32;
}

static const Node *convert_normal(Conversion *c)
{
  int n = 0;
  double mean = onnx_attr_float(c, "mean", 0);
  double scale = onnx_attr_float(c, "scale", 1);
  int64_t seed = seed_of(c);
  if (is_like(c))
    return kit_op1(c, "random.normal_like", kit_in(c, 0), "seed:l,mean:f,scale:f,out_dtype:t", seed, mean, scale,
                   like_dtype(c));
  const int64_t *shape = shape_attr(c, &n);
  return kit_op0(c, "random.normal", "seed:l,mean:f,scale:f,out_shape:I,out_dtype:t", seed, mean, scale, n, shape,
                 onnx_attr_dtype(c, "dtype", DT_F32));
}

static const Node *convert_uniform(Conversion *c)
{
  int n = 0;
  double low = onnx_attr_float(c, "low", 0);
  double high = onnx_attr_float(c, "high", 1);
  int64_t seed = seed_of(c);
  if (is_like(c))
    return kit_op1(c, "random.uniform_like", kit_in(c, 0), "seed:l,low:f,high:f,out_dtype:t", seed, low, high,
                   like_dtype(c));
  const int64_t *shape = shape_attr(c, &n);
  return kit_op0(c, "random.uniform", "seed:l,low:f,high:f,out_shape:I,out_dtype:t", seed, low, high, n, shape,
                 onnx_attr_dtype(c, "dtype", DT_F32));
}

static const Node *convert_bernoulli(Conversion *c)
{
  const Node *p = kit_in(c, 0);
  return kit_op1(c, "random.bernoulli", p, "seed:l,dtype:t", seed_of(c),
                 onnx_attr_dtype(c, "dtype", kit_dtype_of(c, p)));
}

/* The input holds logarithms of unnormalised probabilities. */
static const Node *convert_multinomial(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  return kit_op1(c, "random.multinomial", kit_softmax(c, x, kit_rank_of(c, x) - 1), "seed:l,num_samples:l,dtype:t",
                 seed_of(c), onnx_attr_int(c, "sample_size", 1), onnx_attr_dtype(c, "dtype", DT_I32));
}

static const Node *ones_like(Conversion *c, const Node *x, DType dt)
{
  return kit_full(c, kit_scalar(c, dt, 1), kit_shape_of(c, x), dt);
}

/* In training: elements dropped at random, the others scaled up. */
static const Node *dropout_training(Conversion *c, const Node *x, const Node *ratio)
{
  DType dt = kit_dtype_of(c, x);
  const Node *keep = kit_sub(c, kit_scalar(c, DT_F32, 1), kit_cast_to(c, ratio, DT_F32));
  const Node *u = kit_op1(c, "random.uniform_like", x, "seed:l,low:f,high:f,out_dtype:t", seed_of(c), 0.0, 1.0, DT_F32);
  const Node *mask = kit_less(c, u, keep);
  c->out[1] = mask;
  const Node *y = kit_div(c, x, kit_cast_to(c, keep, dt));
  return kit_where(c, mask, y, kit_scalar(c, dt, 0));
}

static const Node *convert_dropout(Conversion *c)
{
  const Node *x = kit_in(c, 0);
  bool old = c->version < 12;
  bool training = c->version < 7 && onnx_attr(c, "is_test") && !onnx_attr_int(c, "is_test", 1);
  const Node *ratio = old             ? kit_scalar(c, DT_F32, onnx_attr_float(c, "ratio", 0.5))
                      : kit_opt(c, 1) ? kit_scalar_of(c, kit_opt(c, 1))
                                      : kit_scalar(c, DT_F32, 0.5);
  const Node *flag = old ? NULL : kit_opt(c, 2);
  double v = 0;
  double r;
  if (flag && !kit_const_float(c, flag, &v)) { /* decided at run time */
    const Node *drop = dropout_training(c, x, ratio);
    const Node *mask = c->out[1];
    flag = kit_scalar_of(c, flag);
    c->out[1] = kit_op2(c, "logical_or", mask, kit_op1(c, "logical_not", flag, NULL), NULL);
    return kit_where(c, flag, drop, x);
  }
  training = training || v != 0;
  if (training && !(kit_const_float(c, ratio, &r) && r == 0)) return dropout_training(c, x, ratio);
  if (c->nout > 1) c->out[1] = ones_like(c, x, c->version < 10 ? kit_dtype_of(c, x) : DT_BOOL);
  return x;
}

static const OnnxRow rows[] = {
  {"Bernoulli", 15, convert_bernoulli},      {"Dropout", 1, convert_dropout},
  {"Multinomial", 7, convert_multinomial},   {"RandomNormal", 1, convert_normal},
  {"RandomNormalLike", 1, convert_normal},   {"RandomUniform", 1, convert_uniform},
  {"RandomUniformLike", 1, convert_uniform},
};
ONNX_TABLE(onnx_ops_random, "", rows);
