/* onnx_ops_random.c: random numbers and dropout.
 *
 * Comes in: nodes with a seed, or without.  Goes out: random.* calls, which are functions
 * of a seed: the model's where it gives one, else the node's place among its kind, so that
 * a model gives the same numbers every time. */
#include "frontend/onnx_import.h"

static int64_t seed_of(Conv *c)
{
  int64_t place = ++c->im->nrandom;
  const PAttr *a = conv_attr(c, "seed");
  if (!a) return place;
  uint32_t bits;
  float f = (float)attr_float(c, "seed", 0);
  memcpy(&bits, &f, sizeof bits);
  return (int64_t)(hash_mix(0x9e3779b97f4a7c15u, bits) >> 2);
}

static bool is_like(Conv *c) { return str_ends(c->p->op_type, "Like"); }

static const int64_t *shape_attr(Conv *c, int *n)
{
  const int64_t *v = attr_ints(c, "shape", n);
  if (!v) conv_fail(c, ERR_ARGUMENT, "attribute 'shape' is missing");
  for (int i = 0; i < *n; i++)
    if (v[i] < 0) conv_fail(c, ERR_SHAPE, "dimension %d is %" PRId64, i, v[i]);
  return v;
}

/* The _like forms take the input's type unless another is asked for; integers make float32. */
static DType like_dtype(Conv *c)
{
  DType dt = attr_dtype(c, "dtype", dtype_of(c, conv_in(c, 0)));
  return dtype_is_float(dt) ? dt : DT_F32;
}

static const Node *convert_normal(Conv *c)
{
  int n = 0;
  double mean = attr_float(c, "mean", 0);
  double scale = attr_float(c, "scale", 1);
  int64_t seed = seed_of(c);
  if (is_like(c))
    return op1(c, "random.normal_like", conv_in(c, 0), "seed:l,mean:f,scale:f,out_dtype:t", seed, mean, scale,
               like_dtype(c));
  const int64_t *shape = shape_attr(c, &n);
  return op0(c, "random.normal", "seed:l,mean:f,scale:f,out_shape:I,out_dtype:t", seed, mean, scale, n, shape,
             attr_dtype(c, "dtype", DT_F32));
}

static const Node *convert_uniform(Conv *c)
{
  int n = 0;
  double low = attr_float(c, "low", 0);
  double high = attr_float(c, "high", 1);
  int64_t seed = seed_of(c);
  if (is_like(c))
    return op1(c, "random.uniform_like", conv_in(c, 0), "seed:l,low:f,high:f,out_dtype:t", seed, low, high,
               like_dtype(c));
  const int64_t *shape = shape_attr(c, &n);
  return op0(c, "random.uniform", "seed:l,low:f,high:f,out_shape:I,out_dtype:t", seed, low, high, n, shape,
             attr_dtype(c, "dtype", DT_F32));
}

static const Node *convert_bernoulli(Conv *c)
{
  const Node *p = conv_in(c, 0);
  return op1(c, "random.bernoulli", p, "seed:l,dtype:t", seed_of(c), attr_dtype(c, "dtype", dtype_of(c, p)));
}

/* The input holds logarithms of unnormalised probabilities. */
static const Node *convert_multinomial(Conv *c)
{
  const Node *x = conv_in(c, 0);
  return op1(c, "random.multinomial", softmax(c, x, rank_of(c, x) - 1), "seed:l,num_samples:l,dtype:t", seed_of(c),
             attr_int(c, "sample_size", 1), attr_dtype(c, "dtype", DT_I32));
}

static const Node *ones_like(Conv *c, const Node *x, DType dt) { return full(c, scalar(c, dt, 1), shape_of(c, x), dt); }

/* In training: elements dropped at random, the others scaled up. */
static const Node *dropout_training(Conv *c, const Node *x, const Node *ratio)
{
  DType dt = dtype_of(c, x);
  const Node *keep = sub(c, scalar(c, DT_F32, 1), cast_to(c, ratio, DT_F32));
  const Node *u = op1(c, "random.uniform_like", x, "seed:l,low:f,high:f,out_dtype:t", seed_of(c), 0.0, 1.0, DT_F32);
  const Node *mask = less(c, u, keep);
  c->out[1] = mask;
  const Node *y = div_(c, x, cast_to(c, keep, dt));
  return where(c, mask, y, scalar(c, dt, 0));
}

static const Node *convert_dropout(Conv *c)
{
  const Node *x = conv_in(c, 0);
  bool old = c->opset < 12;
  bool training = c->opset < 7 && conv_attr(c, "is_test") && !attr_int(c, "is_test", 1);
  const Node *ratio = old              ? scalar(c, DT_F32, attr_float(c, "ratio", 0.5))
                      : conv_opt(c, 1) ? scalar_of(c, conv_opt(c, 1))
                                       : scalar(c, DT_F32, 0.5);
  const Node *flag = old ? NULL : conv_opt(c, 2);
  double v = 0;
  double r;
  if (flag && !const_float(c, flag, &v)) { /* decided at run time */
    const Node *drop = dropout_training(c, x, ratio);
    const Node *mask = c->out[1];
    flag = scalar_of(c, flag);
    c->out[1] = op2(c, "logical_or", mask, op1(c, "logical_not", flag, NULL), NULL);
    return where(c, flag, drop, x);
  }
  training = training || v != 0;
  if (training && !(const_float(c, ratio, &r) && r == 0)) return dropout_training(c, x, ratio);
  if (c->nout > 1) c->out[1] = ones_like(c, x, c->opset < 10 ? dtype_of(c, x) : DT_BOOL);
  return x;
}

static const OnnxRow rows[] = {
  {"Bernoulli", 15, convert_bernoulli},      {"Dropout", 1, convert_dropout},
  {"Multinomial", 7, convert_multinomial},   {"RandomNormal", 1, convert_normal},
  {"RandomNormalLike", 1, convert_normal},   {"RandomUniform", 1, convert_uniform},
  {"RandomUniformLike", 1, convert_uniform},
};
ONNX_TABLE(onnx_random, "", rows);
