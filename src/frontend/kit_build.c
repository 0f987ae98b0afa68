/* kit_build.c: small expressions that many converters use.
 *
 * Comes in: graph nodes and, for shapes, int64 vectors that the compiler may or may not
 * be able to follow.  Goes out: calls.  A shape that it can follow becomes an attribute,
 * else the dyn.* form of the operator takes it as an operand. */
#include "frontend/kit.h"

/* ---- constants and arithmetic ------------------------------------------------------------ */

const Node *kit_scalar(Conversion *c, DType dt, double v)
{
  return node_scalar(c->m, dtype_is_float(dt) ? value_float(dt, v) : value_int(dt, (int64_t)v));
}
const Node *kit_scalar_like(Conversion *c, const Node *x, double v) { return kit_scalar(c, kit_dtype_of(c, x), v); }
const Node *kit_const_i64(Conversion *c, int n, const int64_t *v)
{
  return node_const_copy(c->m, DT_I64, 1, (int64_t[]){n}, v);
}

const Node *kit_string_const(Conversion *c, const char *s, size_t n)
{
  uint64_t number = ctx_string(c->ctx, s, n);
  return node_const_copy(c->m, DT_STRING, 0, NULL, &number);
}

const Node *kit_cast_to(Conversion *c, const Node *x, DType dt)
{
  DType from = kit_dtype_of(c, x);
  if (dtype_eq(from, dt)) return x;
  if (dtype_is_string(from))
    return kit_cast_to(c,
                       kit_op1(c, "strings.parse", x, "dtype:t",
                               dtype_is_int(dt)       ? DT_I64
                               : dtype_eq(dt, DT_F64) ? DT_F64
                                                      : DT_F32),
                       dt);
  if (!dtype_is_string(dt)) return kit_op1(c, "cast", x, "dtype:t", dt);
  bool wide = from.code == DT_UINT && from.bits == 64;
  DType as = wide || dtype_eq(from, DT_F64) ? from : dtype_is_int(from) ? DT_I64 : DT_F32;
  return kit_op1(c, "strings.format", kit_cast_to(c, x, as), NULL);
}

const Node *kit_add(Conversion *c, const Node *a, const Node *b) { return kit_op2(c, "add", a, b, NULL); }
const Node *kit_sub(Conversion *c, const Node *a, const Node *b) { return kit_op2(c, "subtract", a, b, NULL); }
const Node *kit_mul(Conversion *c, const Node *a, const Node *b) { return kit_op2(c, "multiply", a, b, NULL); }
const Node *kit_div(Conversion *c, const Node *a, const Node *b) { return kit_op2(c, "divide", a, b, NULL); }
const Node *kit_max2(Conversion *c, const Node *a, const Node *b) { return kit_op2(c, "maximum", a, b, NULL); }
const Node *kit_min2(Conversion *c, const Node *a, const Node *b) { return kit_op2(c, "minimum", a, b, NULL); }
const Node *kit_less(Conversion *c, const Node *a, const Node *b) { return kit_op2(c, "less", a, b, NULL); }
const Node *kit_where(Conversion *c, const Node *cond, const Node *a, const Node *b)
{
  return kit_op3(c, "where", cond, a, b, NULL);
}
const Node *kit_exp(Conversion *c, const Node *x) { return kit_op1(c, "exp", x, NULL); }
const Node *kit_sqrt(Conversion *c, const Node *x) { return kit_op1(c, "sqrt", x, NULL); }

const Node *kit_reduce(Conversion *c, const char *op, const Node *x, int naxes, const int64_t *axes, bool keepdims)
{
  if (!naxes) return x;
  return kit_op1(c, op, x, "axis:I,keepdims:i", naxes, axes, (int)keepdims);
}

const Node *kit_reduce1(Conversion *c, const char *op, const Node *x, int axis, bool keepdims)
{
  return kit_reduce(c, op, x, 1, (int64_t[]){axis}, keepdims);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

const Node *kit_shape_of(Conversion *c, const Node *x)
{
  if (!kit_rank_of(c, x)) return kit_const_i64(c, 0, (int64_t[]){0});
  return kit_op1(c, "shape_of", x, "dtype:t", DT_I64);
}

const Node *kit_shape_part(Conversion *c, const Node *x, int from, int to)
{
  int64_t v[64];
  const Type *ty = kit_tensor_type(c, x);
  bool known = to - from <= 64;
  for (int i = from; i < to && known; i++) known = kit_is_static_dim(ty->shape[i], &v[i - from]);
  if (known) return kit_const_i64(c, to - from, v);
  return kit_slice(c, kit_shape_of(c, x), 0, from, to);
}

const Node *kit_concat(Conversion *c, int n, const Node *const *list, int axis)
{
  return n == 1 ? list[0] : kit_opn(c, "concatenate", n, list, "axis:i", axis);
}
const Node *kit_concat2(Conversion *c, const Node *a, const Node *b, int axis)
{
  return kit_concat(c, 2, (const Node *[]){a, b}, axis);
}
const Node *kit_concat3(Conversion *c, const Node *a, const Node *b, const Node *d, int axis)
{
  return kit_concat(c, 3, (const Node *[]){a, b, d}, axis);
}

const Node *kit_reshape(Conversion *c, const Node *x, int n, const int64_t *shape)
{
  return kit_op1(c, "reshape", x, "newshape:I", n, shape);
}

/* Elements of a shape operand that are literals or sizes; 0 copies, unless it is meant. */
const Node *kit_reshape_to(Conversion *c, const Node *x, const Node *shape, bool allowzero)
{
  int n = 0;
  const Expr *const *d = kit_const_dims(c, shape, &n);
  if (!d) return kit_op2(c, "dyn.reshape", x, shape, "allowzero:i", (int)allowzero);
  return kit_op1(c, "reshape", x, "newshape:D,allowzero:i", n, d, (int)allowzero);
}

/* A symbolic extent needs no arithmetic where one side is empty or takes everything. */
const Node *kit_flatten_from(Conversion *c, const Node *x, int axis)
{
  int rank = kit_rank_of(c, x);
  if (axis == 0) return kit_reshape(c, x, 2, (int64_t[]){1, -1});
  if (axis == 1 && rank > 1) {
    int64_t size = 1;
    int64_t d = 0;
    bool known = true;
    for (int i = 1; i < rank && known; i++)
      known = kit_is_static_dim(kit_dim_of(c, x, i), &d) && int_mul(size, d, &size);
    if (known && size) return kit_reshape(c, x, 2, (int64_t[]){0, size});
  }
  if (axis == rank) return kit_reshape(c, x, 2, (int64_t[]){-1, 1});
  const Node *front = kit_op1(c, "prod", kit_shape_part(c, x, 0, axis), "axis:I,keepdims:i", 1, (int64_t[]){0}, 1);
  const Node *back = kit_op1(c, "prod", kit_shape_part(c, x, axis, rank), "axis:I,keepdims:i", 1, (int64_t[]){0}, 1);
  return kit_reshape_to(c, x, kit_concat2(c, front, back, 0), true);
}

const Node *kit_transpose(Conversion *c, const Node *x, int n, const int *perm)
{
  int64_t axes[64];
  bool same = true;
  for (int i = 0; i < n; i++) {
    axes[i] = perm[i];
    same = same && perm[i] == i;
  }
  return same ? x : kit_op1(c, "transpose", x, "axes:I", n, axes);
}

const Node *kit_swap_last(Conversion *c, const Node *x)
{
  int n = kit_rank_of(c, x);
  int perm[64];
  for (int i = 0; i < n; i++) perm[i] = i;
  perm[n - 1] = n - 2;
  perm[n - 2] = n - 1;
  return kit_transpose(c, x, n, perm);
}

const Node *kit_move_axis(Conversion *c, const Node *x, int from, int to)
{
  int n = kit_rank_of(c, x);
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
  return kit_transpose(c, x, n, perm);
}

const Node *kit_unsqueeze(Conversion *c, const Node *x, int axis)
{
  return kit_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", axis, 1);
}
const Node *kit_squeeze(Conversion *c, const Node *x, int axis)
{
  return kit_op1(c, "squeeze", x, "axis:I", 1, (int64_t[]){axis});
}

const Node *kit_unsqueeze_to(Conversion *c, const Node *x, int axis, int rank)
{
  if (axis + 1 < rank) x = kit_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", 1, rank - axis - 1);
  return axis ? kit_op1(c, "expand_dims", x, "axis:i,num_newaxis:i", 0, axis) : x;
}

const Node *kit_slice(Conversion *c, const Node *x, int axis, int64_t begin, int64_t end)
{
  if (end == INT64_MAX) end = INT32_MAX;
  return kit_op1(c, "strided_slice", x, "begin:I,end:I,strides:I,axes:I", 1, (int64_t[]){begin}, 1, (int64_t[]){end}, 1,
                 (int64_t[]){1}, 1, (int64_t[]){axis});
}

/* The other axes are taken whole. */
const Node *kit_slice_to(Conversion *c, const Node *x, int axis, const Node *begin, const Node *end)
{
  int nb = 0;
  int ne = 0;
  int rank = kit_rank_of(c, x);
  const int64_t *b = kit_const_ints(c, begin, &nb);
  const int64_t *e = kit_const_ints(c, end, &ne);
  if (b && e && nb == 1 && ne == 1) return kit_slice(c, x, axis, b[0], e[0]);
  int64_t zero[64] = {0};
  int64_t one[64];
  for (int i = 0; i < 64; i++) one[i] = 1;
  const Node *from = kit_concat3(c, kit_const_i64(c, axis, zero), begin, kit_const_i64(c, rank - axis - 1, zero), 0);
  const Node *to = kit_concat3(c, kit_shape_part(c, x, 0, axis), end, kit_shape_part(c, x, axis + 1, rank), 0);
  return kit_opn(c, "dyn.strided_slice", 4, (const Node *[]){x, from, to, kit_const_i64(c, rank, one)}, NULL);
}

const Node *kit_take(Conversion *c, const Node *x, const Node *indices, int axis)
{
  return kit_op2(c, "take", x, indices, "axis:i,mode:s", axis, "wrap");
}

const Node *kit_broadcast_to(Conversion *c, const Node *x, const Node *shape)
{
  int n = 0;
  const Expr *const *d = kit_const_dims(c, shape, &n);
  return d ? kit_op1(c, "broadcast_to", x, "shape:D", n, d) : kit_op2(c, "dyn.broadcast_to", x, shape, NULL);
}

const Node *kit_full(Conversion *c, const Node *value, const Node *shape, DType dt)
{
  int n = 0;
  value = kit_cast_to(c, value, dt);
  const Expr *const *d = kit_const_dims(c, shape, &n);
  return d ? kit_op1(c, "full", value, "shape:D,dtype:t", n, d, dt)
           : kit_op2(c, "dyn.full", value, shape, "dtype:t", dt);
}

const Node *kit_pad(Conversion *c, const Node *x, int n, const int64_t *before, const int64_t *after, double value)
{
  int64_t width[128];
  bool any = false;
  for (int i = 0; i < n; i++) {
    width[2 * i] = before[i];
    width[2 * i + 1] = after[i];
    any = any || before[i] || after[i];
  }
  return any ? kit_op2(c, "nn.pad", x, kit_scalar_like(c, x, value), "pad_width:I", 2 * n, width) : x;
}

/* The number of elements may be computed at run time, which narrow floats are not made for. */
const Node *kit_arange(Conversion *c, const Node *start, const Node *stop, const Node *step, DType dt)
{
  DType in = dtype_is_float(dt) && dt.bits < 32 ? DT_F32 : dt;
  return kit_op3(c, "arange", kit_cast_to(c, start, in), kit_cast_to(c, stop, in), kit_cast_to(c, step, in), "dtype:t",
                 dt);
}

const Node *kit_iota(Conversion *c, const Node *count, DType dt)
{
  return kit_arange(c, kit_scalar(c, dt, 0), count, kit_scalar(c, dt, 1), dt);
}

const Node *kit_scalar_of(Conversion *c, const Node *x)
{
  return kit_rank_of(c, x) ? kit_reshape(c, x, 0, (int64_t[]){0}) : x;
}
const Node *kit_vector_of(Conversion *c, const Node *x)
{
  return kit_rank_of(c, x) == 1 ? x : kit_reshape(c, x, 1, (int64_t[]){-1});
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Leading axes of both, broadcast, as an int64 vector. */
static const Node *batch_shape(Conversion *c, const Node *a, const Node *b)
{
  int ra = kit_rank_of(c, a) - 2;
  int rb = kit_rank_of(c, b) - 2;
  int n = ra > rb ? ra : rb;
  const Node *part[64];
  for (int i = 0; i < n; i++) {
    int ia = i - (n - ra);
    int ib = i - (n - rb);
    const Node *da = ia >= 0 ? kit_shape_part(c, a, ia, ia + 1) : NULL;
    const Node *db = ib >= 0 ? kit_shape_part(c, b, ib, ib + 1) : NULL;
    int64_t v;
    if (!da) part[i] = db;
    else if (!db) part[i] = da;
    else if (kit_is_static_dim(kit_dim_of(c, a, ia), &v)) part[i] = v == 1 ? db : da;
    else if (kit_is_static_dim(kit_dim_of(c, b, ib), &v)) part[i] = v == 1 ? da : db;
    else part[i] = kit_dim_of(c, a, ia) == kit_dim_of(c, b, ib) ? da : kit_max2(c, da, db);
  }
  return kit_concat(c, n, part, 0);
}

/* (batch…, m, k) as (batch, m, k), broadcast over the batch wanted. */
static const Node *as_batch(Conversion *c, const Node *x, const Node *batch, int nbatch)
{
  int r = kit_rank_of(c, x);
  const Node *tail = kit_shape_part(c, x, r - 2, r);
  bool ones = r - 2 < nbatch || nbatch > 1;
  for (int i = 0; i < r - 2 && nbatch == 1; i++) ones = ones || expr_is_int(kit_dim_of(c, x, i), 1);
  if (ones) x = kit_broadcast_to(c, x, kit_concat2(c, batch, tail, 0));
  return nbatch == 1 ? x : kit_reshape_to(c, x, kit_concat2(c, kit_const_i64(c, 1, (int64_t[]){-1}), tail, 0), false);
}

static bool same_batch(Conversion *c, const Node *a, const Node *b)
{
  int r = kit_rank_of(c, a);
  if (kit_rank_of(c, b) != r) return false;
  for (int i = 0; i < r - 2; i++) {
    const Expr *x = kit_dim_of(c, a, i);
    const Expr *y = kit_dim_of(c, b, i);
    if (x != y && !(x->kind == E_INT && y->kind == E_INT && x->u.i == y->u.i)) return false;
  }
  return true;
}

static const Node *matmul_batched(Conversion *c, const Node *a, const Node *b, KitProduct product, void *env)
{
  const Node *batch = batch_shape(c, a, b);
  int ra = kit_rank_of(c, a);
  int rb = kit_rank_of(c, b);
  int n = (ra > rb ? ra : rb) - 2;
  const Node *rows = kit_shape_part(c, a, ra - 2, ra - 1);
  const Node *columns = kit_shape_part(c, b, rb - 1, rb);
  const Node *fold = kit_const_i64(c, 1, (int64_t[]){-1});
  const Node *x, *y;
  if (same_batch(c, a, b)) { /* nothing to broadcast */
    x = n == 1 ? a : kit_reshape_to(c, a, kit_concat2(c, fold, kit_shape_part(c, a, ra - 2, ra), 0), false);
    y = n == 1 ? b : kit_reshape_to(c, b, kit_concat2(c, fold, kit_shape_part(c, b, rb - 2, rb), 0), false);
  } else {
    x = as_batch(c, a, batch, n);
    y = as_batch(c, b, batch, n);
  }
  const Node *r = product(c, x, y, env);
  return n == 1 ? r : kit_reshape_to(c, r, kit_concat3(c, batch, rows, columns, 0), true);
}

/* Last axes of the batch, the same for both, over which b has one matrix for all. */
static int shared_axes(Conversion *c, const Node *a, const Node *b)
{
  int rb = kit_rank_of(c, b);
  int n = 0;
  if (rb > kit_rank_of(c, a)) return 0;
  while (n < rb - 2 && expr_is_int(kit_dim_of(c, b, rb - 3 - n), 1)) n++;
  return n;
}

/* b has one matrix for n axes of the batch: they are rows of a. */
static const Node *matmul_shared(Conversion *c, const Node *a, const Node *b, int n, KitProduct product, void *env)
{
  int lead = kit_rank_of(c, a) - 2 - n;
  const Node *fold = kit_const_i64(c, 1, (int64_t[]){-1});
  const Node *inner = kit_shape_part(c, a, lead + n + 1, lead + n + 2);
  const Node *rows = kit_shape_part(c, a, lead, lead + n + 1);
  const Node *tall =
      lead ? kit_concat3(c, kit_shape_part(c, a, 0, lead), fold, inner, 0) : kit_concat2(c, fold, inner, 0);
  for (int i = 0; i < n; i++) b = kit_squeeze(c, b, kit_rank_of(c, b) - 3);
  const Node *r = kit_matmul_by(c, kit_reshape_to(c, a, tall, false), b, product, env);
  const Node *columns = kit_shape_part(c, r, lead + 1, lead + 2);
  const Node *shape =
      lead ? kit_concat3(c, kit_shape_part(c, r, 0, lead), rows, columns, 0) : kit_concat2(c, rows, columns, 0);
  return kit_reshape_to(c, r, shape, true);
}

const Node *kit_matmul_by(Conversion *c, const Node *a, const Node *b, KitProduct product, void *env)
{
  int ra = kit_rank_of(c, a);
  int rb = kit_rank_of(c, b);
  if (!ra || !rb) kit_fail(c, ERR_SHAPE, "a matrix product has no operand of rank 0");
  if (ra == 1) {
    const Node *r = kit_matmul_by(c, kit_unsqueeze(c, a, 0), b, product, env);
    return kit_squeeze(c, r, rb == 1 ? 0 : kit_rank_of(c, r) - 2);
  }
  if (rb == 1) {
    const Node *r = kit_matmul_by(c, a, kit_unsqueeze(c, b, 1), product, env);
    return kit_squeeze(c, r, kit_rank_of(c, r) - 1);
  }
  if (ra == 2 && rb == 2) return product(c, a, b, env);
  if (rb == 2) { /* all rows against one matrix */
    const Node *flat = kit_reshape_to(
        c, a, kit_concat2(c, kit_const_i64(c, 1, (int64_t[]){-1}), kit_shape_part(c, a, ra - 1, ra), 0), false);
    return kit_reshape_to(c, product(c, flat, b, env),
                          kit_concat2(c, kit_shape_part(c, a, 0, ra - 1), kit_shape_part(c, b, 1, 2), 0), true);
  }
  int shared = shared_axes(c, a, b);
  if (shared) return matmul_shared(c, a, b, shared, product, env);
  return matmul_batched(c, a, b, product, env);
}

static const Node *plain_product(Conversion *c, const Node *a, const Node *b, void *env)
{
  (void)env;
  if (kit_rank_of(c, a) == 3) return kit_op2(c, "nn.batch_matmul", a, b, "transpose_a:i,transpose_b:i", 0, 0);
  /* weights: (units, k) */
  if (b->kind == N_CONST || b->kind == N_VAR) return kit_op2(c, "nn.dense", a, kit_swap_last(c, b), NULL);
  return kit_op2(c, "nn.matmul", a, b, NULL);
}

const Node *kit_matmul(Conversion *c, const Node *a, const Node *b)
{
  return kit_matmul_by(c, a, b, plain_product, NULL);
}

/* ---- softmax ------------------------------------------------------------------------------------------ */

const Node *kit_softmax(Conversion *c, const Node *x, int axis) { return kit_op1(c, "nn.softmax", x, "axis:i", axis); }
