/* kit.c: what converters ask of their node: inputs, sizes, constants, calls.
 *
 * Comes in: the node's inputs as graph nodes.  Goes out: typed values, or an error that names
 * operator and node.  A call whose arguments are all small constants is evaluated at
 * once. */
#include "frontend/kit.h"

#include <stdio.h>

enum { FOLD_LIMIT = 1024 }; /* elements of a constant that is computed during the import */

Conversion kit_begin(Import *im, Frame *f, const char *op, const char *name, int64_t version, int nin,
                     const char *const *in, int nout, const char *const *out, const void *foreign)
{
  Conversion c = {.im = im,
                  .m = im->m,
                  .ctx = im->ctx,
                  .frame = f,
                  .op = op,
                  .name = name,
                  .version = version,
                  .nin = nin,
                  .nout = nout,
                  .out_name = out,
                  .foreign = foreign};
  c.in = arena_array(im->arena, const Node *, nin + 1);
  c.out = arena_array(im->arena, const Node *, nout + 8);
  for (int i = 0; i < nin; i++) c.in[i] = *in[i] ? kit_frame_get(im, f, in[i]) : NULL;
  return c;
}

void kit_end(Conversion *c)
{
  bool folded = c->nout > 0;
  for (int i = 0; i < c->nout; i++) {
    if (!*c->out_name[i]) continue;
    if (!c->out[i]) kit_fail(c, ERR_UNSUPPORTED, "output %d is not supported", i);
    folded = folded && c->out[i]->kind == N_CONST;
    kit_define(c->im, c->frame, c->out_name[i], c->out[i], c->name);
  }
  if (c->im->report && folded) c->im->report->nfolded++;
}

void kit_fail(Conversion *c, ErrKind kind, const char *fmt, ...)
{
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  raise(c->ctx, kind, NOWHERE, "%s: %s (node '%s'): %s", c->im->format, c->op, c->name, text);
}

/* ---- inputs ------------------------------------------------------------------------------- */

const Node *kit_opt(Conversion *c, int i) { return i < c->nin ? c->in[i] : NULL; }

const Node *kit_in(Conversion *c, int i)
{
  const Node *n = kit_opt(c, i);
  if (!n) kit_fail(c, ERR_ARGUMENT, "input %d is missing", i);
  return n;
}

const Type *kit_tensor_type(Conversion *c, const Node *n)
{
  if (!n->type) BUG(c->ctx, "%s: an input of node '%s' has no type", c->im->format, c->name);
  if (n->type->kind != TY_TENSOR)
    kit_fail(c, ERR_TYPE, "a tensor is wanted, not %s", type_text(scratch(c->ctx), n->type));
  if (n->type->ndim > 32)
    kit_fail(c, ERR_UNSUPPORTED, "a tensor of %d dimensions is not supported; 32 is the most", n->type->ndim);
  if (n->type->ndim < 0)
    kit_fail(c, ERR_UNSUPPORTED, "the rank of an input is not known; give the shapes of the model's inputs");
  return n->type;
}

DType kit_dtype_of(Conversion *c, const Node *n)
{
  if (!n->type || n->type->kind != TY_TENSOR) kit_tensor_type(c, n);
  return n->type->dtype;
}
int kit_rank_of(Conversion *c, const Node *n) { return kit_tensor_type(c, n)->ndim; }

const Expr *kit_dim_of(Conversion *c, const Node *n, int axis)
{
  const Type *ty = kit_tensor_type(c, n);
  return ty->shape[kit_axis_of(c, axis, ty->ndim)];
}

bool kit_is_static_dim(const Expr *e, int64_t *v)
{
  if (e->kind == E_INT) *v = e->u.i;
  return e->kind == E_INT;
}

int64_t kit_static_dim(Conversion *c, const Node *n, int axis)
{
  int64_t v = 0;
  if (!kit_is_static_dim(kit_dim_of(c, n, axis), &v))
    kit_fail(c, ERR_UNSUPPORTED, "dimension %d of %s must be known; bind the shapes of the model's inputs", axis,
             type_text(scratch(c->ctx), n->type));
  return v;
}

int kit_axis_of(Conversion *c, int64_t axis, int rank)
{
  if (axis < -rank || axis >= rank)
    kit_fail(c, ERR_ARGUMENT, "axis %" PRId64 " is out of range for rank %d", axis, rank);
  return (int)(axis < 0 ? axis + rank : axis);
}

const int64_t *kit_const_ints(Conversion *c, const Node *n, int *count)
{
  if (!n->type || n->type->kind != TY_TENSOR || !dtype_is_int(n->type->dtype)) return NULL;
  if (n->kind == N_CONST) {
    const ConstData *d = n->u.data;
    size_t size = (size_t)dtype_bytes(d->dtype);
    size_t k = d->bytes / size;
    if (k > 1 << 20) return NULL;
    int64_t *v = arena_array(c->im->arena, int64_t, k + 1);
    for (size_t i = 0; i < k; i++) v[i] = value_load(d->dtype, (const char *)d->data + i * size).i;
    *count = (int)k;
    return v;
  }
  const Expr *const *e = graph_values(c->m, n, count);
  int64_t *v = arena_array(c->im->arena, int64_t, e ? *count + 1 : 1);
  for (int i = 0; e && i < *count; i++)
    if (!kit_is_static_dim(e[i], &v[i])) return NULL;
  return e ? v : NULL;
}

const Expr *const *kit_const_dims(Conversion *c, const Node *n, int *count)
{
  if (!n->type || n->type->kind != TY_TENSOR || !dtype_is_int(n->type->dtype)) return NULL;
  const Expr *const *e = graph_values(c->m, n, count);
  for (int i = 0; e && i < *count; i++)
    if (!type_dim_is_stable(e[i])) return NULL;
  return e;
}

int64_t kit_const_int(Conversion *c, const Node *n, const char *what)
{
  int count = 0;
  const int64_t *v = kit_const_ints(c, n, &count);
  if (!v || count != 1) kit_fail(c, ERR_UNSUPPORTED, "%s must be one integer known when the model is compiled", what);
  return v[0];
}

bool kit_const_float(Conversion *c, const Node *n, double *out)
{
  (void)c;
  if (n->kind != N_CONST || n->u.data->bytes != (size_t)dtype_bytes(n->u.data->dtype)) return false;
  Value v = value_cast(value_load(n->u.data->dtype, n->u.data->data), DT_F64);
  *out = v.f;
  return true;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void set_attr(Conversion *c, const AttrsDef *def, void *attrs, const char *name, char kind, va_list *ap)
{
  if (kind == 'i') attrs_set_int(c->m, def, attrs, name, va_arg(*ap, int));
  else if (kind == 'l') attrs_set_int(c->m, def, attrs, name, va_arg(*ap, int64_t));
  else if (kind == 'f') attrs_set_f64(c->m, def, attrs, name, va_arg(*ap, double));
  else if (kind == 's') attrs_set_str(c->m, def, attrs, name, va_arg(*ap, const char *));
  else if (kind == 't') attrs_set_dtype(c->m, def, attrs, name, va_arg(*ap, DType));
  else if (kind == 'I') {
    int n = va_arg(*ap, int);
    attrs_set_ints(c->m, def, attrs, name, n, va_arg(*ap, const int64_t *));
  } else if (kind == 'D') {
    int n = va_arg(*ap, int);
    attrs_set_dims(c->m, def, attrs, name, n, va_arg(*ap, const Expr *const *));
  } else if (kind == 'F') {
    int n = va_arg(*ap, int);
    attrs_set_f64s(c->m, def, attrs, name, n, va_arg(*ap, const double *));
  } else if (kind == 'S') {
    int n = va_arg(*ap, int);
    attrs_set_strs(c->m, def, attrs, name, n, va_arg(*ap, const char *const *));
  } else {
    BUG(c->ctx, "attribute spec of '%s' has kind '%c'", name, kind);
  }
}

static void *make_attrs(Conversion *c, const OpDef *op, const char *spec, va_list *ap)
{
  if (!op->attrs) {
    if (spec) BUG(c->ctx, "operator %s has no attributes", op->name);
    return NULL;
  }
  void *attrs = attrs_new(c->m, op->attrs);
  while (spec && *spec) {
    const char *colon = strchr(spec, ':');
    set_attr(c, op->attrs, attrs, arena_strndup(c->im->arena, spec, (size_t)(colon - spec)), colon[1], ap);
    spec = colon[2] == ',' ? colon + 3 : colon + 2;
  }
  return attrs;
}

static bool is_small(const Type *ty)
{
  if (!ty || ty->kind != TY_TENSOR || ty->ndim < 0) return false;
  int64_t n = 1;
  for (int i = 0; i < ty->ndim; i++)
    if (ty->shape[i]->kind != E_INT || !int_mul(n, ty->shape[i]->u.i, &n) || n > FOLD_LIMIT) return false;
  return true;
}

static bool is_small_result(const Type *ty)
{
  if (ty && ty->kind == TY_TUPLE) {
    for (int i = 0; i < ty->nfield; i++)
      if (!is_small(ty->field[i])) return false;
    return true;
  }
  return is_small(ty);
}

/* shape_of and ndarray_size look at the type alone. */
static const Node *fold_shape(Conversion *c, const Node *call)
{
  const char *op = call->u.call.op->name;
  bool size = !strcmp(op, "ndarray_size");
  if ((!size && strcmp(op, "shape_of")) || !call->type || !type_is_static(call->arg[0]->type)) return call;
  const Type *ty = call->arg[0]->type;
  DType dt = call->type->dtype;
  size_t bytes = (size_t)dtype_bytes(dt);
  char *data = arena_alloc(c->im->arena, bytes * (size_t)(ty->ndim + 1));
  if (size) {
    value_store(value_int(dt, type_elements(c->ctx, ty)), data);
    return node_const_copy(c->m, dt, call->type->ndim, (int64_t[]){1}, data);
  }
  for (int i = 0; i < ty->ndim; i++) value_store(value_int(dt, ty->shape[i]->u.i), data + (size_t)i * bytes);
  return node_const_copy(c->m, dt, 1, (int64_t[]){ty->ndim}, data);
}

/* The call computed, when everything it needs is here and small. */
static const Node *fold(Conversion *c, const Node *call, int n, const Node *const *arg)
{
  const OpDef *op = call->u.call.op;
  if (op->flags & (OPF_IMPURE | OPF_HOST) || !is_small_result(call->type)) return fold_shape(c, call);
  for (int i = 0; i < n; i++)
    if (arg[i]->kind != N_CONST || !is_small(arg[i]->type)) return fold_shape(c, call);
  ConstData *in = arena_array(c->im->arena, ConstData, n + 1);
  for (int i = 0; i < n; i++) in[i] = *arg[i]->u.data;
  int nout = opdef_num_outputs(call);
  ConstData *out = arena_array(c->im->arena, ConstData, nout + 1);
  opdef_evaluate(c->m, c->im->arena, call, n, in, out);
  const Node **result = arena_array(c->im->arena, const Node *, nout + 1);
  for (int i = 0; i < nout; i++)
    result[i] = node_const_copy(c->m, out[i].dtype, out[i].ndim, out[i].shape, out[i].data);
  return call->type->kind == TY_TUPLE ? node_tuple(c->m, nout, result) : result[0];
}

static const Node *call_op(Conversion *c, const char *name, int n, const Node *const *arg, const char *spec,
                           va_list *ap)
{
  const OpDef *op = opdef_get(c->ctx, name);
  void *attrs = make_attrs(c, op, spec, ap);
  const Node *call;
  if (op->flags & OPF_TUPLE_ARG) {
    const Node *tuple = node_tuple(c->m, n, arg);
    call = node_call(c->m, op, 1, &tuple, attrs, c->name);
  } else {
    call = node_call(c->m, op, n, arg, attrs, c->name);
  }
  return fold(c, call, n, arg);
}

const Node *kit_opn(Conversion *c, const char *op, int n, const Node *const *arg, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, n, arg, spec, &ap);
  va_end(ap);
  return r;
}

const Node *kit_op0(Conversion *c, const char *op, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 0, NULL, spec, &ap);
  va_end(ap);
  return r;
}

const Node *kit_op1(Conversion *c, const char *op, const Node *x, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 1, &x, spec, &ap);
  va_end(ap);
  return r;
}

const Node *kit_op2(Conversion *c, const char *op, const Node *x, const Node *y, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 2, (const Node *[]){x, y}, spec, &ap);
  va_end(ap);
  return r;
}

const Node *kit_op3(Conversion *c, const char *op, const Node *x, const Node *y, const Node *z, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 3, (const Node *[]){x, y, z}, spec, &ap);
  va_end(ap);
  return r;
}
