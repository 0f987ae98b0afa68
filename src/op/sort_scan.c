/* sort_scan.c: running sums and products along an axis: cumsum, cumprod.
 *
 * Rows run in parallel, a row in order; rows whose elements lie side by side run as vectors.  float16 and narrower
 * carry in float32 and round each result once. */
#include "op/shape.h"

/* clang-format off */
#define CUM_ATTRS(A, S)                                                                   \
  A(S, INTS, axis, "None", "axis to run along; None: the flattened data")                 \
  A(S, DTYPE, dtype, "None", "of the result; None: that of data")                         \
  A(S, BOOL, exclusive, "False", "without the element itself")                            \
  A(S, BOOL, reverse, "False", "from the end")
/* clang-format on */
DEFINE_ATTRS(Cum, CUM_ATTRS)

static const Type *cum_type(OpCall *c)
{
  const CumAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  DType t = a->dtype.code == DT_VOID ? in->dtype : a->dtype;
  if (a->axis.given && a->axis.n) {
    op_axis(c, a->axis.v[0], in->ndim);
    return type_tensor(c->m, t, in->ndim, in->shape);
  }
  const Expr *n = dim_product(c->m, in->ndim, in->shape);
  return type_tensor(c->m, t, 1, &n);
}

/* Neighbours that run side by side when the axis is not the last one: at most a line of memory, a divisor of the
 * row. */
static int64_t side_by_side(const Buffer *to, int axis)
{
  enum { LINE = 64 };
  const Expr *row = to->shape[to->ndim - 1];
  if (axis == to->ndim - 1 || row->kind != E_INT || row->u.i < 1) return 1;
  int64_t n = LINE / dtype_bytes(to->dtype);
  while (n > 1 && row->u.i % n) n /= 2;
  return n;
}

static Stmt *each(Module *m, const Var *v, int64_t n, Stmt *body)
{
  return stmt_for(m, v, expr_i32(m, 0), expr_i32(m, n), n > 1 ? FOR_VECTORIZED : FOR_SERIAL, NULL, body);
}

static void cum_emit(OpCall *c, bool product, const Tensor *const *in, const Tensor **out)
{
  const CumAttrs *a = c->attrs;
  Module *m = c->m;
  Loops l = loops_begin(c, 1, in);
  const Buffer *data = l.ib[0];
  const Buffer *to = l.ob[0];
  bool flat = !a->axis.given || !a->axis.n;
  int axis = flat ? 0 : op_axis(c, a->axis.v[0], data->ndim);
  int last = to->ndim - 1;
  int64_t wide = side_by_side(to, axis);
  DType t = op_sum_dtype(to->dtype);
  const Buffer *acc = loops_local(m, "acc", t, expr_i32(m, wide));
  const Var *k = loops_var(m, "k");
  const Var *lane = loops_var(m, "lane");
  const Var *first = loops_var(m, "lane");
  const Expr *n = to->shape[axis];
  const Expr *outer[MAX_RANK], *shape[MAX_RANK], *ix[MAX_RANK], *from[MAX_RANK];
  loops_index(m, to->ndim, outer);
  for (int d = 0; d < to->ndim; d++) ix[d] = outer[d], shape[d] = to->shape[d];
  if (wide > 1) {
    shape[last] = expr_i32(m, to->shape[last]->u.i / wide);
    ix[last] = expr_add(m, expr_mul(m, outer[last], expr_i32(m, wide)), lane->expr);
  }
  ix[axis] = a->reverse ? expr_sub(m, expr_sub(m, n, expr_int(m, n->dtype, 1)), k->expr) : k->expr;
  if (flat) op_emit_unflatten(m, ix[0], data->ndim, data->shape, from);
  else memcpy(from, ix, (size_t)data->ndim * sizeof *from);
  const Expr *x = expr_cast(m, t, loops_load(m, data, from));
  const Expr *sum = loops_get(m, acc, lane->expr);
  Stmt *add = loops_set(m, acc, lane->expr, expr_binary(m, product ? E_MUL : E_ADD, sum, x));
  Stmt *put = loops_store(m, to, ix, sum);
  Stmt *step = each(m, lane, wide, a->exclusive ? loops_seq(m, put, add) : loops_seq(m, add, put));
  Stmt *begin = each(m, first, wide, loops_set(m, acc, first->expr, op_num(m, t, product)));
  Stmt *row = loops_seq(m, begin, stmt_for(m, k, expr_i32(m, 0), n, FOR_SERIAL, NULL, step));
  loops_end(&l, c->op->name, loops_nest(m, to->ndim, shape, axis, outer, true, stmt_alloc(m, acc, row)), out);
}

static void cumsum_compute(OpCall *c, const Tensor *const *in, const Tensor **out) { cum_emit(c, false, in, out); }
static void cumprod_compute(OpCall *c, const Tensor *const *in, const Tensor **out) { cum_emit(c, true, in, out); }

const OpDef op_cumsum = {
  .name = "cumsum",
  .doc = "running sum along an axis",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Cum_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = cum_type,
  .compute = cumsum_compute,
};
const OpDef op_cumprod = {
  .name = "cumprod",
  .doc = "running product along an axis",
  .args = "data",
  .min_args = 1,
  .max_args = 1,
  .attrs = &Cum_attrs,
  .fuse = FUSE_OPAQUE,
  .narrow = NARROW_NEVER,
  .type = cum_type,
  .compute = cumprod_compute,
};
