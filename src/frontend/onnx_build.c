/* onnx_build.c: small expressions that many converters use.
 *
 * Comes in: graph nodes and, for shapes, int64 vectors that the compiler may or may not
 * be able to follow.  Goes out: calls.  A shape that it can follow becomes an attribute,
 * else the dyn.* form of the operator takes it as an operand. */
#include "frontend/onnx_import.h"

/* ---- constants and arithmetic ------------------------------------------------------------ */

const Node *onnx_scalar(Conversion *c, DType dt, double v)
{
  return node_scalar(c->m, dtype_is_float(dt) ? value_float(dt, v) : value_int(dt, (int64_t)v));
}
const Node *onnx_scalar_like(Conversion *c, const Node *x, double v) { return onnx_scalar(c, onnx_dtype_of(c, x), v); }
const Node *onnx_const_i64(Conversion *c, int n, const int64_t *v)
{
  return node_const_copy(c->m, DT_I64, 1, (int64_t[]){n}, v);
}

const Node *onnx_string_const(Conversion *c, const char *s, size_t n)
{
  uint64_t number = ctx_string(c->ctx, s, n);
  return node_const_copy(c->m, DT_STRING, 0, NULL, &number);
}

const Node *onnx_cast_to(Conversion *c, const Node *x, DType dt)
{
  DType from = onnx_dtype_of(c, x);
  if (dtype_eq(from, dt)) return x;
  if (dtype_is_string(from))
    return onnx_cast_to(c,
                        onnx_op1(c, "strings.parse", x, "dtype:t",
                                 dtype_is_int(dt)       ? DT_I64
                                 : dtype_eq(dt, DT_F64) ? DT_F64
                                                        : DT_F32),
                        dt);
  if (!dtype_is_string(dt)) return onnx_op1(c, "cast", x, "dtype:t", dt);
  bool wide = from.code == DT_UINT && from.bits == 64;
  DType as = wide || dtype_eq(from, DT_F64) ? from : dtype_is_int(from) ? DT_I64 : DT_F32;
  return onnx_op1(c, "strings.format", onnx_cast_to(c, x, as), NULL);
}

const Node *onnx_add(Conversion *c, const Node *a, const Node *b) { return onnx_op2(c, "add", a, b, NULL); }
const Node *onnx_sub(Conversion *c, const Node *a, const Node *b) { return onnx_op2(c, "subtract", a, b, NULL); }
const Node *onnx_mul(Conversion *c, const Node *a, const Node *b) { return onnx_op2(c, "multiply", a, b, NULL); }
const Node *onnx_div(Conversion *c, const Node *a, const Node *b) { return onnx_op2(c, "divide", a, b, NULL); }
const Node *onnx_max2(Conversion *c, const Node *a, const Node *b) { return onnx_op2(c, "maximum", a, b, NULL); }
const Node *onnx_min2(Conversion *c, const Node *a, const Node *b) { return onnx_op2(c, "minimum", a, b, NULL); }
const Node *onnx_less(Conversion *c, const Node *a, const Node *b) { return onnx_op2(c, "less", a, b, NULL); }
const Node *onnx_where(Conversion *c, const Node *cond, const Node *a, const Node *b)
{
  return onnx_op3(c, "where", cond, a, b, NULL);
}
const Node *onnx_exp(Conversion *c, const Node *x) { return onnx_op1(c, "exp", x, NULL); }
const Node *onnx_sqrt(Conversion *c, const Node *x) { return onnx_op1(c, "sqrt", x, NULL); }

const Node *onnx_reduce(Conversion *c, const char *op, const Node *x, int naxes, const int64_t *axes, bool keepdims)
{
  if (!naxes) return x;
  return onnx_op1(c, op, x, "axis:I,keepdims:i", naxes, axes, (int)keepdims);
}

const Node *onnx_reduce1(Conversion *c, const char *op, const Node *x, int axis, bool keepdims)
{
  return onnx_reduce(c, op, x, 1, (int64_t[]){axis}, keepdims);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

const Node *onnx_shape_of(Conversion *c, const Node *x)
{
  if (!onnx_rank_of(c, x)) return onnx_const_i64(c, 0, (int64_t[]){0});
  return onnx_op1(c, "shape_of", x, "dtype:t", DT_I64);
}

const Node *onnx_shape_part(Conversion *c, const Node *x, int from, int to)
{
  int64_t v[64];
  const Type *ty = onnx_tensor_type(c, x);
  bool known = to - from <= 64;
  for (int i = from; i < to && known; i++) known = onnx_is_static_dim(ty->shape[i], &v[i - from]);
  if (known) return onnx_const_i64(c, to - from, v);
  return onnx_slice(c, onnx_shape_of(c, x), 0, from, to);
}

const Node *onnx_concat(Conversion *c, int n, const Node *const *list, int axis)
{
  return n == 1 ? list[0] : onnx_opn(c, "concatenate", n, list, "axis:i", axis);
}
const Node *onnx_concat2(Conversion *c, const Node *a, const Node *b, int axis)
{
  return onnx_concat(c, 2, (const Node *[]){a, b}, axis);
}
const Node *onnx_concat3(Conversion *c, const Node *a, const Node *b, const Node *d, int axis)
{
  return onnx_concat(c, 3, (const Node *[]){a, b, d}, axis);
}

const Node *onnx_reshape(Conversion *c, const Node *x, int n, const int64_t *shape)
{
  return onnx_op1(c, "reshape", x, "newshape:I", n, shape);
}

/* Elements of a shape operand that are literals or sizes; 0 copies, unless it is meant. */
const Node *onnx_reshape_to(Conversion *c, const Node *x, const Node *shape, bool allowzero)
{
  int n = 0;
  const Expr *const *d = onnx_const_dims(c, shape, &n);
  if (!d) return onnx_op2(c, "dyn.reshape", x, shape, "allowzero:i", (int)allowzero);
  return onnx_op1(c, "reshape", x, "newshape:D,allowzero:i", n, d, (int)allowzero);
}

/* A symbolic extent needs no arithmetic where one side is empty or takes everything. */
const Node *onnx_flatten_from(Conversion *c, const Node *x, int axis)
{
  int rank = onnx_rank_of(c, x);
  if (axis == 0) return onnx_reshape(c, x, 2, (int64_t[]){1, -1});
  if (axis == 1 && rank > 1) {
    int64_t size = 1;
    int64_t d = 0;
    bool known = true;
    for (int i = 1; i < rank && known; i++)
      known = onnx_is_static_dim(onnx_dim_of(c, x, i), &d) && int_mul(size, d, &size);
    if (known && size) return onnx_reshape(c, x, 2, (int64_t[]){0, size});
  }
  if (axis == rank) return onnx_reshape(c, x, 2, (int64_t[]){-1, 1});
  const Node *front = onnx_op1(c, "prod", onnx_shape_part(c, x, 0, axis), "axis:I,keepdims:i", 1, (int64_t[]){0}, 1);
  const Node *back = onnx_op1(c, "prod", onnx_shape_part(c, x, axis, rank), "axis:I,keepdims:i", 1, (int64_t[]){0}, 1);
  return onnx_reshape_to(c, x, onnx_concat2(c, front, back, 0), true);
}

const Node *onnx_transpose(Conversion *c, const Node *x, int n, const int *perm)
{
  int64_t axes[64];
  bool same = true;
  for (int i = 0; i < n; i++) {
    axes[i] = perm[i];
    same = same && perm[i] == i;
  }
  return same ? x : onnx_op1(c, "transpose", x, "axes:I", n, axes);
}

const Node *onnx_swap_last(Conversion *c, const Node *x)
{
  int n = onnx_rank_of(c, x);
  int perm[64];
  for (int i = 0; i < n; i++) perm[i] = i;
  perm[n - 1] = n - 2;
  perm[n - 2] = n - 1;
  return onnx_transpose(c, x, n, perm);
}

const Node *onnx_move_axis(Conversion *c, const Node *x, int from, int to)
{
  int n = onnx_rank_of(c, x);
  int perm[64];
  int k = 0;
  for (int i = 0; i < n; i++) {
    if (i == to) {
      perm[i] = from;
      continue;
    }
    if (k == from) k++;
    perm[i] = k++;
  }
  return onnx_transpose(c, x, n, perm);
}

const Node *onnx_unsqueeze(Conversion *c, const Node *x, int axis)
{
  return onnx_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", axis, 1);
}
const Node *onnx_squeeze(Conversion *c, const Node *x, int axis)
{
  return onnx_op1(c, "squeeze", x, "axis:I", 1, (int64_t[]){axis});
}

const Node *onnx_unsqueeze_to(Conversion *c, const Node *x, int axis, int rank)
{
  if (axis + 1 < rank) x = onnx_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", 1, rank - axis - 1);
  return axis ? onnx_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", 0, axis) : x;
}

const Node *onnx_slice(Conversion *c, const Node *x, int axis, int64_t begin, int64_t end)
{
  if (end == INT64_MAX) end = INT32_MAX;
  return onnx_op1(c, "strided_slice", x, "begin:I,end:I,strides:I,axes:I", 1, (int64_t[]){begin}, 1, (int64_t[]){end},
                  1, (int64_t[]){1}, 1, (int64_t[]){axis});
}

/* The other axes are taken whole. */
const Node *onnx_slice_to(Conversion *c, const Node *x, int axis, const Node *begin, const Node *end)
{
  int nb = 0;
  int ne = 0;
  int rank = onnx_rank_of(c, x);
  const int64_t *b = onnx_const_ints(c, begin, &nb);
  const int64_t *e = onnx_const_ints(c, end, &ne);
  if (b && e && nb == 1 && ne == 1) return onnx_slice(c, x, axis, b[0], e[0]);
  int64_t zero[64] = {0};
  int64_t one[64];
  for (int i = 0; i < 64; i++) one[i] = 1;
  const Node *from = onnx_concat3(c, onnx_const_i64(c, axis, zero), begin, onnx_const_i64(c, rank - axis - 1, zero), 0);
  const Node *to = onnx_concat3(c, onnx_shape_part(c, x, 0, axis), end, onnx_shape_part(c, x, axis + 1, rank), 0);
  return onnx_opn(c, "dyn.strided_slice", 4, (const Node *[]){x, from, to, onnx_const_i64(c, rank, one)}, NULL);
}

const Node *onnx_take(Conversion *c, const Node *x, const Node *indices, int axis)
{
  return onnx_op2(c, "take", x, indices, "axis:i,mode:s", axis, "wrap");
}

const Node *onnx_broadcast_to(Conversion *c, const Node *x, const Node *shape)
{
  int n = 0;
  const Expr *const *d = onnx_const_dims(c, shape, &n);
  return d ? onnx_op1(c, "broadcast_to", x, "shape:D", n, d) : onnx_op2(c, "dyn.broadcast_to", x, shape, NULL);
}

const Node *onnx_full(Conversion *c, const Node *value, const Node *shape, DType dt)
{
  int n = 0;
  value = onnx_cast_to(c, value, dt);
  const Expr *const *d = onnx_const_dims(c, shape, &n);
  return d ? onnx_op1(c, "full", value, "shape:D,dtype:t", n, d, dt)
           : onnx_op2(c, "dyn.full", value, shape, "dtype:t", dt);
}

const Node *onnx_pad(Conversion *c, const Node *x, int n, const int64_t *before, const int64_t *after, double value)
{
  int64_t width[128];
  bool any = false;
  for (int i = 0; i < n; i++) {
    width[2 * i] = before[i];
    width[2 * i + 1] = after[i];
    any = any || before[i] || after[i];
  }
  return any ? onnx_op2(c, "nn.pad", x, onnx_scalar_like(c, x, value), "pad_width:I", 2 * n, width) : x;
}

/* The number of elements may be computed at run time, which narrow floats are not made for. */
const Node *onnx_arange(Conversion *c, const Node *start, const Node *stop, const Node *step, DType dt)
{
  DType in = dtype_is_float(dt) && dt.bits < 32 ? DT_F32 : dt;
  return onnx_op3(c, "arange", onnx_cast_to(c, start, in), onnx_cast_to(c, stop, in), onnx_cast_to(c, step, in),
                  "dtype:t", dt);
}

const Node *onnx_iota(Conversion *c, const Node *count, DType dt)
{
  return onnx_arange(c, onnx_scalar(c, dt, 0), count, onnx_scalar(c, dt, 1), dt);
}

const Node *onnx_scalar_of(Conversion *c, const Node *x)
{
  return onnx_rank_of(c, x) ? onnx_reshape(c, x, 0, (int64_t[]){0}) : x;
}
const Node *onnx_vector_of(Conversion *c, const Node *x)
{
  return onnx_rank_of(c, x) == 1 ? x : onnx_reshape(c, x, 1, (int64_t[]){-1});
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Leading axes of both, broadcast, as an int64 vector. */
static const Node *batch_shape(Conversion *c, const Node *a, const Node *b)
{
  int ra = onnx_rank_of(c, a) - 2;
  int rb = onnx_rank_of(c, b) - 2;
  int n = ra > rb ? ra : rb;
  const Node *part[64];
  for (int i = 0; i < n; i++) {
    int ia = i - (n - ra);
    int ib = i - (n - rb);
    const Node *da = ia >= 0 ? onnx_shape_part(c, a, ia, ia + 1) : NULL;
    const Node *db = ib >= 0 ? onnx_shape_part(c, b, ib, ib + 1) : NULL;
    int64_t v;
    if (!da) part[i] = db;
    else if (!db) part[i] = da;
    else if (onnx_is_static_dim(onnx_dim_of(c, a, ia), &v)) part[i] = v == 1 ? db : da;
    else if (onnx_is_static_dim(onnx_dim_of(c, b, ib), &v)) part[i] = v == 1 ? da : db;
    else part[i] = onnx_dim_of(c, a, ia) == onnx_dim_of(c, b, ib) ? da : onnx_max2(c, da, db);
  }
  return onnx_concat(c, n, part, 0);
}

/* (batch…, m, k) as (batch, m, k), broadcast over the batch wanted. */
static const Node *as_batch(Conversion *c, const Node *x, const Node *batch, int nbatch)
{
  int r = onnx_rank_of(c, x);
  const Node *tail = onnx_shape_part(c, x, r - 2, r);
  bool ones = r - 2 < nbatch || nbatch > 1;
  for (int i = 0; i < r - 2 && nbatch == 1; i++) ones = ones || expr_is_int(onnx_dim_of(c, x, i), 1);
  if (ones) x = onnx_broadcast_to(c, x, onnx_concat2(c, batch, tail, 0));
  return nbatch == 1 ? x
                     : onnx_reshape_to(c, x, onnx_concat2(c, onnx_const_i64(c, 1, (int64_t[]){-1}), tail, 0), false);
}

static bool same_batch(Conversion *c, const Node *a, const Node *b)
{
  int r = onnx_rank_of(c, a);
  if (onnx_rank_of(c, b) != r) return false;
  for (int i = 0; i < r - 2; i++) {
    const Expr *x = onnx_dim_of(c, a, i);
    const Expr *y = onnx_dim_of(c, b, i);
    if (x != y && !(x->kind == E_INT && y->kind == E_INT && x->u.i == y->u.i)) return false;
  }
  return true;
}

static const Node *matmul_batched(Conversion *c, const Node *a, const Node *b)
{
  const Node *batch = batch_shape(c, a, b);
  int ra = onnx_rank_of(c, a);
  int rb = onnx_rank_of(c, b);
  int n = (ra > rb ? ra : rb) - 2;
  const Node *rows = onnx_shape_part(c, a, ra - 2, ra - 1);
  const Node *columns = onnx_shape_part(c, b, rb - 1, rb);
  const Node *fold = onnx_const_i64(c, 1, (int64_t[]){-1});
  const Node *x, *y;
  if (same_batch(c, a, b)) { /* nothing to broadcast */
    x = n == 1 ? a : onnx_reshape_to(c, a, onnx_concat2(c, fold, onnx_shape_part(c, a, ra - 2, ra), 0), false);
    y = n == 1 ? b : onnx_reshape_to(c, b, onnx_concat2(c, fold, onnx_shape_part(c, b, rb - 2, rb), 0), false);
  } else {
    x = as_batch(c, a, batch, n);
    y = as_batch(c, b, batch, n);
  }
  const Node *r = onnx_op2(c, "nn.batch_matmul", x, y, "transpose_a:i,transpose_b:i", 0, 0);
  return n == 1 ? r : onnx_reshape_to(c, r, onnx_concat3(c, batch, rows, columns, 0), true);
}

const Node *onnx_matmul(Conversion *c, const Node *a, const Node *b)
{
  int ra = onnx_rank_of(c, a);
  int rb = onnx_rank_of(c, b);
  if (!ra || !rb) onnx_fail(c, ERR_SHAPE, "a matrix product has no operand of rank 0");
  if (ra == 1) {
    const Node *r = onnx_matmul(c, onnx_unsqueeze(c, a, 0), b);
    return onnx_squeeze(c, r, rb == 1 ? 0 : onnx_rank_of(c, r) - 2);
  }
  if (rb == 1) {
    const Node *r = onnx_matmul(c, a, onnx_unsqueeze(c, b, 1));
    return onnx_squeeze(c, r, onnx_rank_of(c, r) - 1);
  }
  if (ra == 2 && rb == 2) {
    /* weights: (units, k) */
    if (b->kind == N_CONST || b->kind == N_VAR) return onnx_op2(c, "nn.dense", a, onnx_swap_last(c, b), NULL);
    return onnx_op2(c, "nn.matmul", a, b, NULL);
  }
  if (rb == 2) { /* all rows against one matrix */
    const Node *flat = onnx_reshape_to(
        c, a, onnx_concat2(c, onnx_const_i64(c, 1, (int64_t[]){-1}), onnx_shape_part(c, a, ra - 1, ra), 0), false);
    return onnx_reshape_to(c, onnx_matmul(c, flat, b),
                           onnx_concat2(c, onnx_shape_part(c, a, 0, ra - 1), onnx_shape_part(c, b, 1, 2), 0), true);
  }
  return matmul_batched(c, a, b);
}

/* ---- softmax and activations -------------------------------------------------------------------------- */

const Node *onnx_softmax(Conversion *c, const Node *x, int axis)
{
  return onnx_op1(c, "nn.softmax", x, "axis:i", axis);
}

static const Node *hard_sigmoid(Conversion *c, const Node *x, double alpha, double beta)
{
  return onnx_op1(c, "clip", onnx_add(c, onnx_mul(c, x, onnx_scalar_like(c, x, alpha)), onnx_scalar_like(c, x, beta)),
                  "a_min:f,a_max:f", 0.0, 1.0);
}

/* Activations that recurrent cells and fused operators name. */
const Node *onnx_activation(Conversion *c, const char *name, const Node *x, double alpha, double beta)
{
  if (!strcmp(name, "Relu")) return onnx_op1(c, "nn.relu", x, NULL);
  if (!strcmp(name, "Tanh")) return onnx_op1(c, "tanh", x, NULL);
  if (!strcmp(name, "Sigmoid")) return onnx_op1(c, "sigmoid", x, NULL);
  if (!strcmp(name, "Affine"))
    return onnx_add(c, onnx_mul(c, x, onnx_scalar_like(c, x, alpha)), onnx_scalar_like(c, x, beta));
  if (!strcmp(name, "LeakyRelu")) return onnx_op1(c, "nn.leaky_relu", x, "alpha:f", alpha);
  if (!strcmp(name, "ThresholdedRelu"))
    return onnx_where(c, onnx_op2(c, "greater", x, onnx_scalar_like(c, x, alpha), NULL), x, onnx_scalar_like(c, x, 0));
  if (!strcmp(name, "ScaledTanh"))
    return onnx_mul(c, onnx_op1(c, "tanh", onnx_mul(c, x, onnx_scalar_like(c, x, beta)), NULL),
                    onnx_scalar_like(c, x, alpha));
  if (!strcmp(name, "HardSigmoid")) return hard_sigmoid(c, x, alpha, beta);
  if (!strcmp(name, "Elu"))
    return onnx_where(
        c, onnx_less(c, x, onnx_scalar_like(c, x, 0)),
        onnx_mul(c, onnx_scalar_like(c, x, alpha),
                 onnx_sub(c, onnx_exp(c, onnx_min2(c, x, onnx_scalar_like(c, x, 0))), onnx_scalar_like(c, x, 1))),
        x);
  if (!strcmp(name, "Softsign"))
    return onnx_div(c, x, onnx_add(c, onnx_scalar_like(c, x, 1), onnx_op1(c, "abs", x, NULL)));
  if (!strcmp(name, "Softplus")) /* max(x, 0) + log(1 + exp(-|x|)) does not overflow */
    return onnx_add(c, onnx_max2(c, x, onnx_scalar_like(c, x, 0)),
                    onnx_op1(c, "log",
                             onnx_add(c, onnx_scalar_like(c, x, 1),
                                      onnx_exp(c, onnx_op1(c, "negative", onnx_op1(c, "abs", x, NULL), NULL))),
                             NULL));
  if (!strcmp(name, "Clip")) return onnx_op1(c, "clip", x, "a_min:f,a_max:f", alpha, beta);
  onnx_fail(c, ERR_UNSUPPORTED, "activation '%s' is not supported", name);
}
