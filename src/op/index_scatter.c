/* index_scatter.c: writing by computed positions: scatter_elements, scatter_nd,
 * nn.max_unpool.
 *
 * The output starts as a copy of data; updates are applied in row-major order, so of
 * several to one place the last wins (update) or all count (add, mul, min, max, mean).
 * mean is TVM's: each update gives (old + update) / 2.  A negative position counts from
 * the end; an update whose position is outside is dropped. */
#include "op/shape.h"

typedef struct Combine {
  const char *name;
  enum { PUT, ADD, MUL, MIN, MAX, MEAN } how;
} Combine;

static int combine_of(OpCall *c, const char *attribute, const char *name, bool mean)
{
  static const Combine table[] = {{"update", PUT}, {"add", ADD}, {"mul", MUL},
                                  {"min", MIN},    {"max", MAX}, {"mean", MEAN}};
  for (int i = 0; i < (mean ? 6 : 5); i++)
    if (!strcmp(table[i].name, name)) {
      if (table[i].how != PUT && dtype_is_string(c->arg[0]->dtype))
        opdef_raise(c, ERR_TYPE, "%s is '%s', and data is strings; only update works on those", attribute, name);
      return table[i].how;
    }
  opdef_raise(c, ERR_ARGUMENT, "%s is '%s'; it is update, add, mul, min%s", attribute, name,
              mean ? ", max or mean" : " or max");
}

static const Expr *combined(Module *m, int how, const Expr *old, const Expr *v)
{
  if (how == ADD) return dtype_is_bool(old->dtype) ? expr_binary(m, E_OR, old, v) : expr_add(m, old, v);
  if (how == MUL) return dtype_is_bool(old->dtype) ? expr_and(m, old, v) : expr_mul(m, old, v);
  if (how == MIN) return op_minimum_value(m, old, v);
  if (how == MAX) return op_maximum_value(m, old, v);
  if (how == MEAN) return expr_binary(m, E_DIV, expr_add(m, old, v), op_num(m, old->dtype, 2));
  return v;
}

/* A position from the end where negative; *inside collects whether it is one. */
static const Expr *checked_position(Module *m, const Expr *v, const Expr *extent, const Expr **inside)
{
  if (v->dtype.bits < 32) v = expr_cast(m, DT_I32, v);
  if (v->dtype.code == DT_UINT) v = expr_cast(m, DT_I64, v);
  v = op_emit_from_end(m, v, extent);
  const Expr *in = expr_and(m, expr_binary(m, E_GE, v, expr_int(m, v->dtype, 0)), expr_lt(m, v, extent));
  *inside = *inside ? expr_and(m, *inside, in) : in;
  return v;
}

static Stmt *copy_all(Module *m, const Buffer *from, const Buffer *to)
{
  const Expr *ix[MAX_RANK];
  loops_index(m, from->ndim, ix);
  return loops_nest(m, from->ndim, from->shape, -1, ix, true, loops_store(m, to, ix, loops_load(m, from, ix)));
}

static Stmt *apply(Module *m, int how, const Buffer *to, const Expr *const *at, const Expr *update, const Expr *inside)
{
  Stmt *put = loops_store(m, to, at, combined(m, how, loops_load(m, to, at), update));
  return inside ? stmt_if(m, inside, put, NULL) : put;
}

/* ---- scatter_elements --------------------------------------------------------------------------- */

/* clang-format off */
#define SCATTER_ELEMENTS_ATTRS(A, S)                                       \
  A(S, INT, axis, "0", "axis that indices speak of")                       \
  A(S, STR, reduction, "\"update\"", "update, add, mul, min, max or mean")
/* clang-format on */
DEFINE_ATTRS(ScatterElements, SCATTER_ELEMENTS_ATTRS)

static const Type *scatter_elements_type(OpCall *c)
{
  const ScatterElementsAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *at = op_int_tensor_arg(c, 1);
  const Type *up = op_tensor_arg(c, 2);
  combine_of(c, "reduction", a->reduction, true);
  op_same_dtype(c, 0, 2);
  int axis = op_axis(c, a->axis, in->ndim);
  if (at->ndim != in->ndim || up->ndim != in->ndim)
    opdef_raise(c, ERR_SHAPE, "data is %s, indices %s, updates %s; all need the same rank", op_arg_text(c, 0),
                op_arg_text(c, 1), op_arg_text(c, 2));
  for (int i = 0; i < in->ndim; i++) {
    if (dim_differ(at->shape[i], up->shape[i]))
      opdef_raise(c, ERR_SHAPE, "indices is %s, updates %s; both need the same shape", op_arg_text(c, 1),
                  op_arg_text(c, 2));
    if (i != axis && at->shape[i]->kind == E_INT && in->shape[i]->kind == E_INT &&
        at->shape[i]->u.i > in->shape[i]->u.i)
      opdef_raise(c, ERR_SHAPE, "axis %d of indices %s is longer than that of data %s", i, op_arg_text(c, 1),
                  op_arg_text(c, 0));
  }
  return in;
}

/* Rows across the axis write to places of their own, so they run in parallel. */
static void scatter_elements_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ScatterElementsAttrs *a = c->attrs;
  Module *m = c->m;
  Loops l = loops_begin(c, 3, in);
  const Buffer *where = l.ib[1];
  int n = where->ndim;
  int axis = op_axis(c, a->axis, n);
  const Expr *ix[MAX_RANK];
  const Expr *inside = NULL;
  loops_index(m, n, ix);
  const Expr **at = op_emit_copy_index(m, n, ix);
  at[axis] = checked_position(m, loops_load(m, where, ix), l.ob[0]->shape[axis], &inside);
  for (int i = 0; i < n; i++)
    if (i != axis && (where->shape[i]->kind != E_INT || l.ob[0]->shape[i]->kind != E_INT) &&
        !dim_same(m, where->shape[i], l.ob[0]->shape[i]))
      inside = expr_and(m, inside, expr_lt(m, ix[i], l.ob[0]->shape[i]));
  Stmt *put = apply(m, combine_of(c, "reduction", a->reduction, true), l.ob[0], at, loops_load(m, l.ib[2], ix), inside);
  Stmt *row = stmt_for(m, ix[axis]->u.var, expr_i32(m, 0), where->shape[axis], FOR_SERIAL, NULL, put);
  Stmt *all = loops_nest(m, n, where->shape, axis, ix, true, row);
  loops_end(&l, "scatter_elements", loops_seq(m, copy_all(m, l.ib[0], l.ob[0]), all), out);
}

const OpDef op_scatter_elements = {
  .name = "scatter_elements",
  .doc = "data with updates put at indices along axis; an update outside is dropped",
  .args = "data, indices, updates",
  .min_args = 3,
  .max_args = 3,
  .attrs = &ScatterElements_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_STRING,
  .type = scatter_elements_type,
  .compute = scatter_elements_compute,
};

/* ---- scatter_nd ------------------------------------------------------------------------------------ */

#define SCATTER_ND_ATTRS(A, S) A(S, STR, mode, "\"update\"", "update, add, mul, min or max")
DEFINE_ATTRS(ScatterND, SCATTER_ND_ATTRS)

/* data (Y0, …), indices (M, X…), updates (X…, YM, …) */
static const Type *scatter_nd_type(OpCall *c)
{
  const ScatterNDAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *at = op_int_tensor_arg(c, 1);
  const Type *up = op_tensor_arg(c, 2);
  combine_of(c, "mode", a->mode, false);
  op_same_dtype(c, 0, 2);
  if (at->ndim < 1 || at->shape[0]->kind != E_INT || at->shape[0]->u.i > in->ndim)
    opdef_raise(c, ERR_SHAPE, "the first axis of indices %s is the length of an index; it is a number of at most %d",
                op_arg_text(c, 1), in->ndim);
  int k = (int)at->shape[0]->u.i;
  int nx = at->ndim - 1;
  if (up->ndim != nx + in->ndim - k)
    opdef_raise(c, ERR_SHAPE, "updates is %s; with data %s and indices %s it has %d dimensions", op_arg_text(c, 2),
                op_arg_text(c, 0), op_arg_text(c, 1), nx + in->ndim - k);
  for (int i = 0; i < up->ndim; i++)
    if (dim_differ(up->shape[i], i < nx ? at->shape[i + 1] : in->shape[i - nx + k]))
      opdef_raise(c, ERR_SHAPE, "axis %d of updates %s does not fit indices %s and data %s", i, op_arg_text(c, 2),
                  op_arg_text(c, 1), op_arg_text(c, 0));
  return in;
}

static void scatter_nd_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  const ScatterNDAttrs *a = c->attrs;
  Module *m = c->m;
  Loops l = loops_begin(c, 3, in);
  const Buffer *where = l.ib[1];
  const Buffer *up = l.ib[2];
  const Buffer *to = l.ob[0];
  int k = (int)where->shape[0]->u.i;
  int nx = where->ndim - 1;
  const Expr *ix[MAX_RANK], *wx[MAX_RANK], *at[MAX_RANK];
  const Expr *inside = NULL;
  loops_index(m, up->ndim, ix);
  for (int i = 0; i < nx; i++) wx[i + 1] = ix[i];
  for (int i = 0; i < k; i++) {
    wx[0] = expr_i32(m, i);
    at[i] = checked_position(m, loops_load(m, where, wx), to->shape[i], &inside);
  }
  for (int i = k; i < to->ndim; i++) at[i] = ix[nx + i - k];
  Stmt *put = apply(m, combine_of(c, "mode", a->mode, false), to, at, loops_load(m, up, ix), inside);
  loops_end(&l, "scatter_nd",
            loops_seq(m, copy_all(m, l.ib[0], to), loops_nest(m, up->ndim, up->shape, -1, ix, false, put)), out);
}

const OpDef op_scatter_nd = {
  .name = "scatter_nd",
  .doc = "data with updates put at indices[:, x]; an update outside is dropped",
  .args = "data, indices, updates",
  .min_args = 3,
  .max_args = 3,
  .attrs = &ScatterND_attrs,
  .fuse = FUSE_OPAQUE,
  .flags = OPF_STRING,
  .type = scatter_nd_type,
  .compute = scatter_nd_compute,
};

/* ---- strided_set ------------------------------------------------------------------------------------ */

/* clang-format off */
#define STRIDED_SET_ATTRS(A, S)                                                    \
  A(S, INTS, begin, NULL, "first position of each axis; negative: from the end")   \
  A(S, INTS, end, NULL, "behind the last position of each axis; negative: from the end") \
  A(S, INTS, strides, "None", "distance of positions; None: 1")
/* clang-format on */
DEFINE_ATTRS(StridedSet, STRIDED_SET_ATTRS)

typedef struct Cut {
  int64_t begin, stride, count;
} Cut;

/* The positions along axis d, of which data's extent is known; axes that are not named are whole. */
static Cut cut_of(OpCall *c, int d)
{
  const StridedSetAttrs *a = c->attrs;
  int64_t n = c->arg[0]->shape[d]->u.i;
  if (d >= a->begin.n) return (Cut){0, 1, n};
  int64_t step = d < a->strides.n ? a->strides.v[d] : 1;
  if (step == 0) opdef_raise(c, ERR_ARGUMENT, "strides has a 0");
  int64_t lo = step > 0 ? 0 : -1;
  int64_t hi = step > 0 ? n : n - 1;
  int64_t bound[2] = {a->begin.v[d], a->end.v[d]};
  for (int i = 0; i < 2; i++) {
    if (bound[i] < 0) bound[i] += n;
    bound[i] = bound[i] < lo ? lo : bound[i] > hi ? hi : bound[i];
  }
  int64_t span = step > 0 ? bound[1] - bound[0] : bound[0] - bound[1];
  int64_t size = step > 0 ? step : -step;
  return (Cut){bound[0], step, span > 0 ? (span + size - 1) / size : 0};
}

static const Type *strided_set_type(OpCall *c)
{
  const StridedSetAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *v = op_ranked_tensor_arg(c, 1, in->ndim);
  op_same_dtype(c, 0, 1);
  if (a->begin.n != a->end.n || a->begin.n > in->ndim || a->strides.n > in->ndim || !type_is_static(in))
    opdef_raise(c, ERR_SHAPE, "begin and end name positions of the axes of data, which is %s and has a known shape",
                op_arg_text(c, 0));
  for (int d = 0; d < in->ndim; d++)
    if (dim_differ(v->shape[d], dim_int(c->m, cut_of(c, d).count)))
      opdef_raise(c, ERR_SHAPE, "axis %d of v %s has to be %" PRId64 ", the number of positions", d, op_arg_text(c, 1),
                  cut_of(c, d).count);
  return in;
}

static void strided_set_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  OpAxes x = op_out_axes(c, 0);
  const Expr *at[MAX_RANK];
  const Expr *inside = NULL;
  for (int d = 0; d < x.ndim; d++) {
    Cut cut = cut_of(c, d);
    const Expr *size = expr_i32(m, cut.stride < 0 ? -cut.stride : cut.stride);
    const Expr *away = cut.stride > 0 ? expr_sub(m, x.index[d], expr_i32(m, cut.begin))
                                      : expr_sub(m, expr_i32(m, cut.begin), x.index[d]);
    at[d] = expr_floordiv(m, away, size);
    const Expr *here =
        expr_and(m, expr_binary(m, E_EQ, expr_floormod(m, away, size), expr_i32(m, 0)),
                 expr_and(m, expr_binary(m, E_GE, away, expr_i32(m, 0)), expr_lt(m, at[d], expr_i32(m, cut.count))));
    inside = inside ? expr_and(m, inside, here) : here;
  }
  const Expr *old = op_read(m, in[0], x.index);
  *out = op_emit(c, &x, NULL, inside ? op_emit_if(m, inside, op_read(m, in[1], at), old) : op_read(m, in[1], at));
}

const OpDef op_strided_set = {
  .name = "strided_set",
  .doc = "data with v put at the positions that strided_slice would take",
  .args = "data, v",
  .min_args = 2,
  .max_args = 2,
  .attrs = &StridedSet_attrs,
  .fuse = FUSE_INJECTIVE,
  .flags = OPF_STRING,
  .type = strided_set_type,
  .compute = strided_set_compute,
};

/* ---- max_unpool --------------------------------------------------------------------------------------- */

#define MAX_UNPOOL_ATTRS(A, S) A(S, DIMS, shape, NULL, "shape of the result")
DEFINE_ATTRS(MaxUnpool, MAX_UNPOOL_ATTRS)

static const Type *max_unpool_type(OpCall *c)
{
  const MaxUnpoolAttrs *a = c->attrs;
  const Type *in = op_tensor_arg(c, 0);
  const Type *at = op_int_tensor_arg(c, 1);
  if (in->ndim != at->ndim || a->shape.n != in->ndim)
    opdef_raise(c, ERR_SHAPE, "data is %s, indices %s, shape has %d dimensions; all need the same rank",
                op_arg_text(c, 0), op_arg_text(c, 1), a->shape.n);
  for (int i = 0; i < in->ndim; i++)
    if (dim_differ(in->shape[i], at->shape[i]))
      opdef_raise(c, ERR_SHAPE, "data is %s, indices %s; both need the same shape", op_arg_text(c, 0),
                  op_arg_text(c, 1));
  return type_tensor(c->m, in->dtype, a->shape.n, a->shape.v);
}

/* indices are flat positions in the whole result. */
static void max_unpool_compute(OpCall *c, const Tensor *const *in, const Tensor **out)
{
  Module *m = c->m;
  Loops l = loops_begin(c, 2, in);
  const Buffer *to = l.ob[0];
  const Expr *zx[MAX_RANK], *ix[MAX_RANK], *at[MAX_RANK];
  const Expr *inside = NULL;
  loops_index(m, to->ndim, zx);
  loops_index(m, to->ndim, ix);
  Stmt *clear = loops_nest(m, to->ndim, to->shape, -1, zx, true, loops_store(m, to, zx, op_num(m, to->dtype, 0)));
  const Expr *flat = checked_position(m, loops_load(m, l.ib[1], ix), dim_product(m, to->ndim, to->shape), &inside);
  op_emit_unflatten(m, flat, to->ndim, to->shape, at);
  Stmt *put = stmt_if(m, inside, loops_store(m, to, at, loops_load(m, l.ib[0], ix)), NULL);
  loops_end(&l, "max_unpool", loops_seq(m, clear, loops_nest(m, to->ndim, l.ib[0]->shape, -1, ix, false, put)), out);
}

const OpDef op_max_unpool = {
  .name = "nn.max_unpool",
  .doc = "data put at the flat positions that max pooling gave, zero elsewhere",
  .args = "data, indices",
  .min_args = 2,
  .max_args = 2,
  .attrs = &MaxUnpool_attrs,
  .fuse = FUSE_OPAQUE,
  .type = max_unpool_type,
  .compute = max_unpool_compute,
};
