/* te_kit.c: what computes share: axes, reads, reductions, and scalar expressions that
 * follow the policies stated in op.h. */
#include "op/op.h"

#include <math.h>

/* ---- axes and tensors ----------------------------------------------------------------- */

const Type *op_out_type(OpCall *c, int output) { return c->out->kind == TY_TUPLE ? c->out->field[output] : c->out; }

OpAxes op_axes(OpCall *c, int ndim, const Expr *const *shape)
{
  if (ndim > MAX_RANK) opdef_raise(c, ERR_UNSUPPORTED, "a tensor has at most %d dimensions, not %d", MAX_RANK, ndim);
  OpAxes a = {.ndim = ndim, .shape = shape};
  for (int i = 0; i < ndim; i++) {
    const Var *v = var_new(c->m, arena_printf(scratch(c->m->ctx), "ax%d", i), shape[i]->dtype, VAR_PLAIN);
    a.iter[i] = itervar_new(c->m, v, expr_int(c->m, shape[i]->dtype, 0), shape[i], ITER_SPATIAL, NULL);
    a.index[i] = v->expr;
  }
  return a;
}

OpAxes op_out_axes(OpCall *c, int output)
{
  const Type *ty = op_out_type(c, output);
  return op_axes(c, ty->ndim, ty->shape);
}

static const char *fuse_tag(FuseKind kind)
{
  switch (kind) {
  case FUSE_ELEMWISE: return "elemwise";
  case FUSE_BROADCAST: return "broadcast";
  case FUSE_INJECTIVE: return "injective";
  case FUSE_COMM_REDUCE: return "comm_reduce";
  case FUSE_OUT_ELEMWISE:
  case FUSE_TUPLE:
  case FUSE_OPAQUE: return "";
  }
  return "";
}

/* "nn.conv2d" -> "nn_conv2d": what a tensor may be called. */
static const char *plain_name(OpCall *c)
{
  char *name = arena_strdup(c->m->arena, c->op->name);
  for (char *p = name; *p; p++)
    if (*p == '.') *p = '_';
  return name;
}

const Tensor *op_emit(OpCall *c, const OpAxes *a, const char *name, const Expr *body)
{
  return &te_compute(c->m, name ? name : plain_name(c), fuse_tag(c->op->fuse), a->ndim, a->shape, a->iter, 1, &body,
                     NULL)
              ->out[0];
}

const IterVar *op_reduce_axis(OpCall *c, const char *name, const Expr *extent)
{
  const Var *v = var_new(c->m, name, extent->dtype, VAR_PLAIN);
  return itervar_new(c->m, v, expr_int(c->m, extent->dtype, 0), extent, ITER_REDUCE, NULL);
}

/* A number that the graph holds (graph_literal_tensor) is written where it is read. */
static const Expr *read_or_literal(Module *m, const Tensor *t, const Expr *const *index)
{
  const TeOp *op = t->op;
  bool literal = op->kind == TE_COMPUTE && !op->naxis && (op->body[0]->kind == E_INT || op->body[0]->kind == E_FLOAT);
  return literal ? op->body[0] : te_read(m, t, t->buffer->ndim, index);
}

const Expr *op_read(Module *m, const Tensor *t, const Expr *const *index) { return read_or_literal(m, t, index); }

const Expr *op_broadcast_read(Module *m, const Tensor *t, int ndim, const Expr *const *index)
{
  const Buffer *b = t->buffer;
  const Expr *at[MAX_RANK];
  for (int d = 0; d < b->ndim; d++) {
    const Expr *i = index[ndim - b->ndim + d];
    const Expr *extent = b->shape[d];
    const IterVar *axis = i->kind == E_VAR ? i->u.var->axis : NULL;
    if (expr_is_int(extent, 1)) at[d] = expr_int(m, i->dtype, 0);
    else if (extent->kind == E_INT || (axis && axis->extent && dim_same(m, axis->extent, extent))) at[d] = i;
    else
      at[d] = expr_select(m, expr_binary(m, E_EQ, extent, expr_int(m, extent->dtype, 1)), expr_int(m, i->dtype, 0), i);
  }
  return read_or_literal(m, t, at);
}

/* ---- reductions ------------------------------------------------------------------------- */

const Reducer *op_reducer(Module *m, const char *name, DType t)
{
  bool max = !strcmp(name, "max");
  if (!dtype_is_float(t) || (!max && strcmp(name, "min"))) {
    const Reducer *r = reducer_named(m, name, t, DT_I32);
    if (!r) BUG(m->ctx, "there is no reducer '%s'", name);
    return r;
  }
  const Var *x = var_new(m, "x", t, VAR_PLAIN);
  const Var *y = var_new(m, "y", t, VAR_PLAIN);
  const Expr *result = max ? op_maximum_value(m, x->expr, y->expr) : op_minimum_value(m, x->expr, y->expr);
  return reducer_new(m, name, 1, &x, &y, &result, reducer_named(m, name, t, DT_I32)->identity);
}

const Expr *op_reduce(Module *m, const char *reducer, const Expr *source, int n, const IterVar *const *axis)
{
  return expr_reduce(m, op_reducer(m, reducer, source->dtype), 1, &source, n, axis, expr_bool(m, true), NULL, 0);
}

DType op_sum_dtype(DType t) { return dtype_is_float(t) && t.bits < 32 ? DT_F32 : t; }

/* ---- scalar expressions -------------------------------------------------------------------- */

const Expr *op_num(Module *m, DType t, double v)
{
  if (dtype_is_float(t)) return expr_float(m, t, v);
  return expr_value(m, value_cast(value_float(DT_F64, v), t));
}

const Expr *op_intrin(Module *m, Intrin in, const Expr *x) { return expr_call(m, DT_NONE, in, 1, &x); }
const Expr *op_intrin2(Module *m, Intrin in, const Expr *a, const Expr *b)
{
  return expr_call(m, DT_NONE, in, 2, (const Expr *[]){a, b});
}

/* The first unless the second is beyond it; a NaN on either side stays. */
static const Expr *extreme(Module *m, ExprKind beyond, ExprKind integers, const Expr *a, const Expr *b)
{
  if (!dtype_is_float(a->dtype)) return expr_binary(m, integers, a, b);
  const Expr *first = expr_binary(m, beyond, a, b);
  if (a->kind != E_FLOAT) first = expr_binary(m, E_OR, first, expr_binary(m, E_NE, a, a));
  return expr_select(m, first, a, b);
}

const Expr *op_maximum_value(Module *m, const Expr *a, const Expr *b) { return extreme(m, E_GT, E_MAX, a, b); }
const Expr *op_minimum_value(Module *m, const Expr *a, const Expr *b) { return extreme(m, E_LT, E_MIN, a, b); }

/* 0 > x ? 0 : x: NaN comes out as NaN, and x86 has one instruction for exactly this. */
const Expr *op_relu_value(Module *m, const Expr *x) { return op_maximum_value(m, op_num(m, x->dtype, 0), x); }

const Expr *op_clip_value(Module *m, const Expr *x, double lo, double hi)
{
  DType t = x->dtype;
  bool is_float = dtype_is_float(t);
  if (is_float ? lo != -INFINITY : lo > dtype_min(t)) x = op_maximum_value(m, op_num(m, t, lo), x);
  if (is_float ? hi != INFINITY : hi < dtype_max(t)) x = op_minimum_value(m, op_num(m, t, hi), x);
  return x;
}

/* A divisor that has no quotient (0, and -1 for the smallest integer) is replaced before
 * the division: both sides of a select are evaluated. */
const Expr *op_int_divide(Module *m, ExprKind kind, const Expr *a, const Expr *b)
{
  DType t = a->dtype;
  if (b->kind == E_INT && b->u.i != 0 && b->u.i != -1) return expr_binary(m, kind, a, b);
  const Expr *zero = expr_int(m, t, 0);
  const Expr *one = expr_int(m, t, 1);
  const Expr *minus = expr_int(m, t, -1);
  const Expr *by_zero = expr_binary(m, E_EQ, b, zero);
  bool remainder = kind == E_MOD || kind == E_FLOORMOD;
  if (t.code != DT_INT) return expr_select(m, by_zero, zero, expr_binary(m, kind, a, expr_select(m, by_zero, one, b)));
  const Expr *by_minus = expr_binary(m, E_EQ, b, minus);
  const Expr *safe = expr_select(m, expr_binary(m, E_OR, by_zero, by_minus), one, b);
  const Expr *negated = remainder ? zero : expr_sub(m, zero, a);
  return expr_select(m, by_zero, zero, expr_select(m, by_minus, negated, expr_binary(m, kind, a, safe)));
}

/* ---- nodes --------------------------------------------------------------------------------------- */

const Node *op_call1(Module *m, const OpDef *op, const Node *a, const void *attrs)
{
  return node_call(m, op, 1, &a, attrs, NULL);
}

const Node *op_call2(Module *m, const OpDef *op, const Node *a, const Node *b, const void *attrs)
{
  return node_call(m, op, 2, (const Node *[]){a, b}, attrs, NULL);
}

const Node *op_call3(Module *m, const OpDef *op, const Node *a, const Node *b, const Node *c, const void *attrs)
{
  return node_call(m, op, 3, (const Node *[]){a, b, c}, attrs, NULL);
}

const Node *op_number(Module *m, DType t, double v)
{
  return node_scalar(m, dtype_is_float(t) ? value_float(t, v) : value_cast(value_float(DT_F64, v), t));
}
