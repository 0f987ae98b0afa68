/* random.c: random numbers as a function of (seed, index of the element).
 *
 * There is no state: element i of a draw is
 *     z = mix(mix(seed) + (i + 1) * 0x9e3779b97f4a7c15)        on 64 bits, wrapping
 *     mix(z): z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9
 *             z = (z ^ z >> 27) * 0x94d049bb133111eb
 *             z ^ z >> 31
 * (the splitmix64 generator of Steele, Lea and Flood, read at position i).  i counts the
 * elements in row-major order; a normal number takes the positions 2i and 2i + 1.  So the same
 * seed gives the same numbers on every target, in any order and number of threads. */
#include "op/op.h"

#include <math.h>

#define U64 DTYPE(DT_UINT, 64)
#define GAMMA 0x9e3779b97f4a7c15u
#define MIX1 0xbf58476d1ce4e5b9u
#define MIX2 0x94d049bb133111ebu

/* clang-format off */
#define UNIFORM_ATTRS(A, S)                                                   \
  A(S, INT, seed, "0", "the same seed gives the same numbers")                \
  A(S, F64, low, "0.0", "smallest value")                                     \
  A(S, F64, high, "1.0", "values stay below this")                            \
  A(S, DIMS, out_shape, "[]", "shape of the result; of the _like form: data's") \
  A(S, DTYPE, out_dtype, "None", "a float dtype; None: float32, or data's")
/* clang-format on */
DEFINE_ATTRS(RandomUniform, UNIFORM_ATTRS)
/* clang-format off */
#define NORMAL_ATTRS(A, S)                                                    \
  A(S, INT, seed, "0", "the same seed gives the same numbers")                \
  A(S, F64, mean, "0.0", "mean of the distribution")                          \
  A(S, F64, scale, "1.0", "standard deviation")                               \
  A(S, DIMS, out_shape, "[]", "shape of the result; of the _like form: data's") \
  A(S, DTYPE, out_dtype, "None", "a float dtype; None: float32, or data's")
/* clang-format on */
DEFINE_ATTRS(RandomNormal, NORMAL_ATTRS)
/* clang-format off */
#define BERNOULLI_ATTRS(A, S)                                                 \
  A(S, INT, seed, "0", "the same seed gives the same numbers")                \
  A(S, DTYPE, dtype, "None", "dtype of the result; None: that of the probabilities")
/* clang-format on */
DEFINE_ATTRS(RandomBernoulli, BERNOULLI_ATTRS)
/* clang-format off */
#define MULTINOMIAL_ATTRS(A, S)                                               \
  A(S, INT, seed, "0", "the same seed gives the same numbers")                \
  A(S, INT, num_samples, "1", "draws per row of probabilities")               \
  A(S, DTYPE, dtype, "\"int32\"", "dtype of the indices")
/* clang-format on */
DEFINE_ATTRS(RandomMultinomial, MULTINOMIAL_ATTRS)

/* Both begin alike, and share their type rule. */
_Static_assert(offsetof(RandomUniformAttrs, out_dtype) == offsetof(RandomNormalAttrs, out_dtype),
               "uniform and normal share their attributes");

/* ---- the generator ------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
  z = (z ^ z >> 30) * MIX1;
  z = (z ^ z >> 27) * MIX2;
  return z ^ z >> 31;
}

static const Expr *u64(Module *m, uint64_t v) { return expr_int(m, U64, (int64_t)v); }

static const Expr *fold(Module *m, const Expr *z, int shift)
{
  return op_intrin2(m, IN_BITXOR, z, op_intrin2(m, IN_SHR, z, u64(m, (uint64_t)shift)));
}

static const Expr *draw(Module *m, int64_t seed, const Expr *position)
{
  const Expr *z = expr_add(m, u64(m, mix((uint64_t)seed) + GAMMA), expr_mul(m, position, u64(m, GAMMA)));
  z = expr_mul(m, fold(m, z, 30), u64(m, MIX1));
  z = expr_mul(m, fold(m, z, 27), u64(m, MIX2));
  return fold(m, z, 31);
}

/* Row-major number of the element. */
static const Expr *position_of(Module *m, int n, const Expr *const *shape, const Expr *const *index)
{
  const Expr *at = u64(m, 0);
  for (int i = 0; i < n; i++)
    at = expr_add(m, expr_mul(m, at, expr_cast(m, U64, shape[i])), expr_cast(m, U64, index[i]));
  return at;
}

/* The draw's upper bits as a number in [0, 1); with `open`, in (0, 1]. */
static const Expr *unit(Module *m, DType t, const Expr *z, bool open)
{
  int bits = t.bits == 64 ? 53 : 24;
  const Expr *k = op_intrin2(m, IN_SHR, z, u64(m, (uint64_t)(64 - bits)));
  if (open) k = expr_add(m, k, u64(m, 1));
  const Expr *number = expr_cast(m, t, expr_cast(m, t.bits == 64 ? DT_I64 : DT_I32, k));
  return expr_mul(m, number, expr_float(m, t, ldexp(1, -bits)));
}

static DType work_dtype(DType t) { return t.bits == 64 ? DT_F64 : DT_F32; }

/* ---- uniform and normal ----------------------------------------------------------------------- */

static const Type *random_type(OpCall *c, int ndim, const Expr *const *shape, DType otherwise)
{
  DType t = ((const RandomUniformAttrs *)c->attrs)->out_dtype;
  if (t.code == DT_VOID) t = otherwise;
  if (!dtype_is_float(t))
    opdef_raise(c, ERR_TYPE, "out_dtype is %s; a float is needed", dtype_name(scratch(c->m->ctx), t));
  for (int i = 0; i < ndim; i++)
    if (shape[i]->kind == E_INT && shape[i]->u.i < 0)
      opdef_raise(c, ERR_SHAPE, "dimension %d is %" PRId64 "; a dimension is not negative", i, shape[i]->u.i);
  return type_tensor(c->m, t, ndim, shape);
}

static const Type *type_random(OpCall *c)
{
  const RandomUniformAttrs *a = c->attrs;
  return random_type(c, a->out_shape.n, a->out_shape.v, DT_F32);
}

static const Type *type_random_like(OpCall *c)
{
  const Type *ty = op_tensor_arg(c, 0);
  return random_type(c, ty->ndim, ty->shape, ty->dtype);
}

static void uniform_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  (void)in;
  Module *m = c->m;
  const RandomUniformAttrs *a = c->attrs;
  OpAxes o = op_out_axes(c, 0);
  DType t = work_dtype(c->out->dtype);
  const Expr *u = unit(m, t, draw(m, a->seed, position_of(m, o.ndim, o.shape, o.index)), false);
  const Expr *v = expr_add(m, expr_float(m, t, a->low), expr_mul(m, u, expr_float(m, t, a->high - a->low)));
  out[0] = op_emit(c, &o, NULL, expr_cast(m, c->out->dtype, v));
}

/* Box and Muller: sqrt(-2 log u) cos(2 pi v) */
static void normal_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  (void)in;
  Module *m = c->m;
  const RandomNormalAttrs *a = c->attrs;
  OpAxes o = op_out_axes(c, 0);
  DType t = work_dtype(c->out->dtype);
  const Expr *twice = expr_mul(m, position_of(m, o.ndim, o.shape, o.index), u64(m, 2));
  const Expr *u = unit(m, t, draw(m, a->seed, twice), true);
  const Expr *v = unit(m, t, draw(m, a->seed, expr_add(m, twice, u64(m, 1))), false);
  const Expr *radius = op_intrin(m, IN_SQRT, expr_mul(m, expr_float(m, t, -2), op_intrin(m, IN_LOG, u)));
  const Expr *x = expr_mul(m, radius, op_intrin(m, IN_COS, expr_mul(m, expr_float(m, t, 6.283185307179586), v)));
  x = expr_add(m, expr_float(m, t, a->mean), expr_mul(m, x, expr_float(m, t, a->scale)));
  out[0] = op_emit(c, &o, NULL, expr_cast(m, c->out->dtype, x));
}

const OpDef op_random_uniform = {
  .name = "random.uniform",
  .doc = "numbers spread evenly over [low, high), a function of seed and position",
  .args = "",
  .attrs = &RandomUniform_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = type_random,
  .compute = uniform_compute,
};
const OpDef op_random_uniform_like = {
  .name = "random.uniform_like",
  .doc = "random.uniform with the shape (and dtype) of data",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &RandomUniform_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = type_random_like,
  .compute = uniform_compute,
};
const OpDef op_random_normal = {
  .name = "random.normal",
  .doc = "normally distributed numbers, a function of seed and position",
  .args = "",
  .attrs = &RandomNormal_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = type_random,
  .compute = normal_compute,
};
const OpDef op_random_normal_like = {
  .name = "random.normal_like",
  .doc = "random.normal with the shape (and dtype) of data",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &RandomNormal_attrs,
  .fuse = FUSE_INJECTIVE,
  .type = type_random_like,
  .compute = normal_compute,
};

/* ---- choices ------------------------------------------------------------------------------------- */

static const Type *type_bernoulli(OpCall *c)
{
  const Type *ty = op_type_same_float(c);
  DType t = ((const RandomBernoulliAttrs *)c->attrs)->dtype;
  return type_tensor(c->m, t.code == DT_VOID ? ty->dtype : t, ty->ndim, ty->shape);
}

static void bernoulli_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const RandomBernoulliAttrs *a = c->attrs;
  OpAxes o = op_out_axes(c, 0);
  DType t = work_dtype(in[0]->buffer->dtype);
  DType result = c->out->dtype;
  const Expr *u = unit(m, t, draw(m, a->seed, position_of(m, o.ndim, o.shape, o.index)), false);
  const Expr *hit = expr_lt(m, u, expr_cast(m, t, op_read(m, in[0], o.index)));
  out[0] = op_emit(c, &o, NULL,
                   dtype_is_bool(result) ? hit : expr_select(m, hit, op_num(m, result, 1), op_num(m, result, 0)));
}

const OpDef op_random_bernoulli = {
  .name = "random.bernoulli",
  .doc = "1 with the probability given, else 0; a probability of NaN gives 0",
  .args = "probs",
  .min_args = 1,
  .max_args = 1,
  .attrs = &RandomBernoulli_attrs,
  .fuse = FUSE_ELEMWISE,
  .type = type_bernoulli,
  .compute = bernoulli_compute,
};

static const Type *type_multinomial(OpCall *c)
{
  const RandomMultinomialAttrs *a = c->attrs;
  const Type *ty = op_ranked_arg(c, 0, 1, MAX_RANK);
  const Expr *shape[MAX_RANK];
  op_need_float(c, 0);
  if (a->num_samples < 0)
    opdef_raise(c, ERR_ARGUMENT, "num_samples is %" PRId64 "; it is not negative", a->num_samples);
  if (!dtype_is_int(a->dtype))
    opdef_raise(c, ERR_TYPE, "dtype is %s; an integer is needed", dtype_name(scratch(c->m->ctx), a->dtype));
  for (int d = 0; d + 1 < ty->ndim; d++) shape[d] = ty->shape[d];
  shape[ty->ndim - 1] = dim_int(c->m, a->num_samples);
  return type_tensor(c->m, a->dtype, ty->ndim, shape);
}

/* The class where log p - log(-log u) is largest has the distribution p (Gumbel). */
static void multinomial_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  const RandomMultinomialAttrs *a = c->attrs;
  const Buffer *b = in[0]->buffer;
  OpAxes o = op_out_axes(c, 0);
  DType t = work_dtype(b->dtype);
  const Expr *classes = b->shape[b->ndim - 1];
  const Expr *index[MAX_RANK];
  const IterVar *k = op_reduce_axis(c, "k", classes);
  for (int d = 0; d + 1 < b->ndim; d++) index[d] = o.index[d];
  index[b->ndim - 1] = k->var->expr;
  const Expr *at = expr_mul(m, position_of(m, o.ndim, o.shape, o.index), expr_cast(m, U64, classes));
  const Expr *u = unit(m, t, draw(m, a->seed, expr_add(m, at, expr_cast(m, U64, k->var->expr))), true);
  const Expr *zero = expr_float(m, t, 0);
  const Expr *wait = expr_sub(m, zero, op_intrin(m, IN_LOG, u));
  const Expr *score =
      expr_sub(m, op_intrin(m, IN_LOG, expr_cast(m, t, op_read(m, in[0], index))), op_intrin(m, IN_LOG, wait));
  const Reducer *best = reducer_named(m, "argmax", t, DT_I32);
  const Expr *source[2] = {expr_cast(m, DT_I32, k->var->expr), score};
  const Expr *body[2];
  for (int v = 0; v < 2; v++) body[v] = expr_reduce(m, best, 2, source, 1, &k, expr_bool(m, true), NULL, v);
  const TeOp *pairs = te_compute(m, "multinomial_pairs", "comm_reduce_idx", o.ndim, o.shape, o.iter, 2, body, NULL);
  OpAxes last = op_out_axes(c, 0);
  out[0] = op_emit(c, &last, NULL, expr_cast(m, c->out->dtype, op_read(m, &pairs->out[0], last.index)));
}

const OpDef op_random_multinomial = {
  .name = "random.multinomial",
  .doc = "classes drawn with the probabilities of the last axis (of any positive sum)",
  .args = "probs",
  .min_args = 1,
  .max_args = 1,
  .attrs = &RandomMultinomial_attrs,
  .fuse = FUSE_COMM_REDUCE,
  .type = type_multinomial,
  .compute = multinomial_compute,
};
