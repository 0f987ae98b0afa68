/* qnn_kit.c: what the quantized operators share: checks of scales and zero points, arithmetic that is done at once
 * where both sides are constants, and the rescaling of int32 sums. */
#include "op/qnn.h"

#include "op/nn_kit.h"

#include <math.h>

/* ---- checks ------------------------------------------------------------------------------------- */

static bool is_stored(DType t) { return dtype_is_int(t) && !dtype_is_bool(t) && t.bits <= 32; }

void qnn_want_integer(OpCall *c, int i)
{
  const Type *ty = op_tensor_arg(c, i);
  if (!is_stored(ty->dtype))
    opdef_raise(c, ERR_TYPE, "argument '%s' is %s; an integer of at most 32 bits is needed", op_arg_name(c, i),
                dtype_name(scratch(c->m->ctx), ty->dtype));
}

DType qnn_want_stored(OpCall *c, const char *attribute, DType t)
{
  if (!is_stored(t))
    opdef_raise(c, ERR_ARGUMENT, "%s is %s; an integer of at most 32 bits is needed", attribute,
                dtype_name(scratch(c->m->ctx), t));
  return t;
}

/* One number, or one for each element along the axis. */
static void want_shape(OpCall *c, int i, const Type *along, int axis)
{
  const Type *ty = op_tensor_arg(c, i);
  if (ty->ndim == 0 || (ty->ndim == 1 && expr_is_int(ty->shape[0], 1))) return;
  if (!along || axis < 0 || ty->ndim != 1)
    opdef_raise(c, ERR_SHAPE, "argument '%s' is %s; a scalar is needed%s", op_arg_name(c, i), nn_arg_shape(c, i),
                along ? ", or a vector along the axis" : "");
  if (nn_dims_differ(c->m, ty->shape[0], along->shape[axis]))
    opdef_raise(c, ERR_SHAPE, "argument '%s' has %s elements, axis %d of %s has %s", op_arg_name(c, i),
                expr_str_of(scratch(c->m->ctx), ty->shape[0]), axis, nn_shape_text(c->m, along->ndim, along->shape),
                expr_str_of(scratch(c->m->ctx), along->shape[axis]));
}

void qnn_want_scale(OpCall *c, int i, const Type *along, int axis)
{
  want_shape(c, i, along, axis);
  if (!dtype_eq(c->arg[i]->dtype, DT_F32))
    opdef_raise(c, ERR_TYPE, "argument '%s' is %s; scales are float32", op_arg_name(c, i),
                dtype_name(scratch(c->m->ctx), c->arg[i]->dtype));
  const Node *n = c->node ? c->node[i] : NULL;
  if (!n || n->kind != N_CONST) return;
  for (int64_t k = 0; k < qnn_count(n); k++)
    if (!(qnn_at(n, k) > 0) || isinf(qnn_at(n, k)))
      opdef_raise(c, ERR_ARGUMENT, "argument '%s' is %g%s; a scale is finite and above zero", op_arg_name(c, i),
                  qnn_at(n, k), qnn_count(n) > 1 ? arena_printf(scratch(c->m->ctx), " at %" PRId64, k) : "");
}

void qnn_want_zero(OpCall *c, int i, const Type *along, int axis, DType of)
{
  want_shape(c, i, along, axis);
  if (!dtype_eq(c->arg[i]->dtype, DT_I32))
    opdef_raise(c, ERR_TYPE, "argument '%s' is %s; zero points are int32", op_arg_name(c, i),
                dtype_name(scratch(c->m->ctx), c->arg[i]->dtype));
  const Node *n = c->node ? c->node[i] : NULL;
  if (!n || n->kind != N_CONST) return;
  for (int64_t k = 0; k < qnn_count(n); k++)
    if (qnn_at(n, k) < dtype_min(of) || qnn_at(n, k) > dtype_max(of))
      opdef_raise(c, ERR_ARGUMENT, "argument '%s' is %g, outside %s", op_arg_name(c, i), qnn_at(n, k),
                  dtype_name(scratch(c->m->ctx), of));
}

void qnn_want_params(OpCall *c, int i, DType t)
{
  qnn_want_scale(c, i, NULL, -1);
  qnn_want_zero(c, i + 1, NULL, -1, t);
}

/* ---- constants ---------------------------------------------------------------------------------- */

int64_t qnn_count(const Node *n) { return (int64_t)(n->u.data->bytes / (size_t)dtype_bytes(n->u.data->dtype)); }

double qnn_at(const Node *n, int64_t i)
{
  const ConstData *d = n->u.data;
  if (qnn_count(n) == 1) i = 0;
  Value v = value_load(d->dtype, (const char *)d->data + (size_t)i * (size_t)dtype_bytes(d->dtype));
  return dtype_is_float(d->dtype) ? v.f : (double)v.i;
}

bool qnn_all(const Node *n, double value)
{
  if (n->kind != N_CONST) return false;
  for (int64_t i = 0; i < qnn_count(n); i++)
    if (qnn_at(n, i) != value) return false;
  return true;
}

bool qnn_number(const Node *n, double *out)
{
  if (n->kind != N_CONST || qnn_count(n) != 1) return false;
  *out = qnn_at(n, 0);
  return true;
}

bool qnn_same(const Node *a, const Node *b)
{
  if (a == b) return true;
  if (a->kind != N_CONST || b->kind != N_CONST) return false;
  int64_t na = qnn_count(a);
  int64_t nb = qnn_count(b);
  if (na != nb && na != 1 && nb != 1) return false;
  for (int64_t i = 0; i < (na > nb ? na : nb); i++)
    if (qnn_at(a, i) != qnn_at(b, i)) return false;
  return true;
}

const Node *qnn_vector(Module *m, DType t, int64_t n, const double *v)
{
  size_t size = (size_t)dtype_bytes(t);
  char *data = arena_alloc(m->arena, (size_t)n * size);
  for (int64_t i = 0; i < n; i++)
    value_store(dtype_is_float(t) ? value_float(t, v[i]) : value_int(t, (int64_t)v[i]), data + (size_t)i * size);
  return node_const_copy(m, t, n == 1 ? 0 : 1, &n, data);
}

/* ---- nodes -------------------------------------------------------------------------------------- */

const Node *qnn_cast(Module *m, const Node *x, DType t)
{
  if (dtype_eq(x->type->dtype, t)) return x;
  if (x->kind == N_CONST && x->type->ndim == 0)
    return node_scalar(m, value_cast(value_load(x->u.data->dtype, x->u.data->data), t));
  CastAttrs *a = attrs_new(m, &Cast_attrs);
  a->dtype = t;
  return nn_call(m, "cast", 1, &x, a);
}

const Node *qnn_clip(Module *m, const Node *x, double lo, double hi)
{
  ClipAttrs *a = attrs_new(m, &Clip_attrs);
  a->a_min = lo;
  a->a_max = hi;
  return nn_call(m, "clip", 1, &x, a);
}

const Node *qnn_sum(Module *m, const Node *x, int n, const int64_t *axes, bool keepdims)
{
  ReduceAttrs *a = attrs_new(m, &Reduce_attrs);
  attrs_set_ints(m, &Reduce_attrs, a, "axis", n, axes);
  a->keepdims = keepdims;
  return nn_call(m, "sum", 1, &x, a);
}

static double arith(const char *op, DType t, double a, double b)
{
  double r = *op == 'a' ? a + b : *op == 's' ? a - b : *op == 'm' ? a * b : a / b;
  return dtype_eq(t, DT_F32) ? (double)(float)r : r;
}

const Node *qnn_arith(Module *m, const char *op, const Node *a, const Node *b)
{
  bool sum = *op == 'a' || *op == 's';
  DType t = a->type->dtype;
  if (a->kind == N_CONST && b->kind == N_CONST && a->type->ndim <= 1 && b->type->ndim <= 1 &&
      (dtype_eq(t, DT_F32) || dtype_eq(t, DT_I32))) {
    int64_t na = qnn_count(a);
    int64_t n = na > qnn_count(b) ? na : qnn_count(b);
    double *v = arena_array(scratch(m->ctx), double, n);
    for (int64_t i = 0; i < n; i++) v[i] = arith(op, t, qnn_at(a, i), qnn_at(b, i));
    return qnn_vector(m, t, n, v);
  }
  if (qnn_all(b, sum ? 0 : 1) && b->type->ndim == 0) return a;
  if (*op == 'a' && qnn_all(a, 0) && a->type->ndim == 0) return b;
  return nn_call2(m, op, a, b);
}

const Node *qnn_along(Module *m, const Node *v, int axis, int ndim)
{
  if (v->type->ndim == 0) return v;
  if (v->kind == N_CONST && qnn_count(v) == 1) {
    double one = qnn_at(v, 0);
    return qnn_vector(m, v->type->dtype, 1, &one);
  }
  if (axis == ndim - 1 || expr_is_int(v->type->shape[0], 1)) return v;
  ExpandDimsAttrs *e = attrs_new(m, &ExpandDims_attrs);
  e->axis = 1;
  e->num_newaxis = ndim - 1 - axis;
  return nn_call(m, "expand_dims", 1, &v, e);
}

const Node *qnn_centred(Module *m, const Node *x, const Node *zero, int axis)
{
  x = qnn_cast(m, x, DT_I32);
  return qnn_all(zero, 0) ? x : nn_call2(m, "subtract", x, qnn_along(m, zero, axis, x->type->ndim));
}

const Node *qnn_store(Module *m, const Node *x, const Node *zero, DType out)
{
  double z;
  if (qnn_number(zero, &z)) {
    x = qnn_clip(m, x, dtype_min(out) - z, dtype_max(out) - z);
    return qnn_cast(m, qnn_arith(m, "add", x, qnn_along(m, zero, 0, x->type->ndim)), out);
  }
  /* both sides far inside int32, so that their sum is exact */
  x = qnn_clip(m, x, -1073741824.0, 1073741823.0);
  return qnn_cast(m, qnn_clip(m, nn_call2(m, "add", x, zero), dtype_min(out), dtype_max(out)), out);
}

const Node *qnn_ratio(Module *m, const Node *input, const Node *output)
{
  return qnn_arith(m, "divide", input, output);
}

static const void *along_attrs(Module *m, const AttrsDef *def, int axis, DType out)
{
  void *a = attrs_new(m, def);
  attrs_set_int(m, def, a, "axis", axis);
  attrs_set_dtype(m, def, a, "out_dtype", out);
  return a;
}

const Node *qnn_requantize(Module *m, const Node *x, const Node *si, const Node *zi, const Node *so, const Node *zo,
                           int axis, DType out)
{
  return nn_call(m, "qnn.requantize", 5, (const Node *[]){x, si, zi, so, zo},
                 along_attrs(m, &QnnRequantize_attrs, axis, out));
}

const Node *qnn_quantize(Module *m, const Node *x, const Node *scale, const Node *zero, int axis, DType out)
{
  return nn_call(m, "qnn.quantize", 3, (const Node *[]){x, scale, zero}, along_attrs(m, &QnnQuantize_attrs, axis, out));
}

const Node *qnn_dequantize(Module *m, const Node *x, const Node *scale, const Node *zero, int axis)
{
  return nn_call(m, "qnn.dequantize", 3, (const Node *[]){x, scale, zero},
                 along_attrs(m, &QnnDequantize_attrs, axis, DT_F32));
}
