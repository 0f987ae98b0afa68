/* onnx_kit.c: what converters ask of their node: attributes, inputs, calls.
 *
 * Comes in: the node as the file has it.  Goes out: typed values, or an error that names
 * operator and node.  A call whose arguments are all small constants is evaluated at
 * once. */
#include "frontend/onnx_import.h"

#include <stdio.h>

enum { FOLD_LIMIT = 1024 }; /* elements of a constant that is computed during the import */

void onnx_fail(Conversion *c, ErrKind kind, const char *fmt, ...)
{
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  raise(c->ctx, kind, NOWHERE, "onnx: %s (node '%s'): %s", c->p->op_type, c->name, text);
}

/* ---- attributes ------------------------------------------------------------------------- */

static const PAttr *find_attr(const PNode *p, const char *name)
{
  for (int i = 0; i < p->attribute.n; i++)
    if (!strcmp(p->attribute.v[i]->name, name)) return p->attribute.v[i];
  return NULL;
}

/* A reference takes the caller's attribute, then the function's default; absent both: absent. */
static const PAttr *resolve_attr(const PAttr *a, const Frame *f)
{
  while (a && *a->ref) {
    while (f && !f->function) f = f->outer;
    if (!f) return NULL;
    const char *ref = a->ref;
    a = find_attr(f->caller, ref);
    for (int i = 0; !a && i < f->function->attribute_proto.n; i++)
      if (!strcmp(f->function->attribute_proto.v[i]->name, ref)) a = f->function->attribute_proto.v[i];
    f = f->caller_frame;
  }
  return a;
}

const PAttr *onnx_attr(Conversion *c, const char *name) { return resolve_attr(find_attr(c->p, name), c->frame); }

/* Attributes carry their kind since IR version 2; before, what is present tells. */
static const PAttr *attr_of_kind(Conversion *c, const char *name, int kind, const char *text)
{
  const PAttr *a = onnx_attr(c, name);
  if (a && a->type && a->type != kind) onnx_fail(c, ERR_TYPE, "attribute '%s' is not %s", name, text);
  return a;
}

int64_t onnx_attr_int(Conversion *c, const char *name, int64_t def)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_INT, "an integer");
  return a ? a->i : def;
}

double onnx_attr_float(Conversion *c, const char *name, double def)
{
  const PAttr *a = onnx_attr(c, name);
  if (a && a->type == PATTR_INT) return (double)a->i;
  a = attr_of_kind(c, name, PATTR_FLOAT, "a number");
  return a ? (double)a->f : def;
}

const char *onnx_attr_str(Conversion *c, const char *name, const char *def)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_STRING, "a string");
  return a ? arena_strndup(c->im->arena, a->s.p, a->s.n) : def;
}

const int64_t *onnx_attr_ints(Conversion *c, const char *name, int *n)
{
  const PAttr *a = onnx_attr(c, name);
  static const int64_t none;
  *n = 0;
  if (!a) return NULL;
  if (a->type == PATTR_INT) return *n = 1, &a->i;
  a = attr_of_kind(c, name, PATTR_INTS, "a list of integers");
  *n = a->ints.n;
  return a->ints.n ? a->ints.v : &none;
}

const float *onnx_attr_floats(Conversion *c, const char *name, int *n)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_FLOATS, "a list of numbers");
  static const float none;
  *n = a ? a->floats.n : 0;
  return !a ? NULL : a->floats.n ? a->floats.v : &none;
}

DType onnx_attr_dtype(Conversion *c, const char *name, DType def)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_INT, "an integer");
  return a ? onnx_dtype(c->ctx, a->i, c->name) : def;
}

const Node *onnx_attr_strings(Conversion *c, const char *name)
{
  const PAttr *a = attr_of_kind(c, name, PATTR_STRINGS, "a list of strings");
  if (!a) return NULL;
  uint64_t *v = arena_array(c->im->arena, uint64_t, a->strings.n + 1);
  for (int i = 0; i < a->strings.n; i++) v[i] = ctx_string(c->ctx, a->strings.v[i].p, a->strings.v[i].n);
  return node_const_copy(c->m, DT_STRING, 1, (int64_t[]){a->strings.n}, v);
}

/* ---- inputs ------------------------------------------------------------------------------- */

const Node *onnx_opt(Conversion *c, int i) { return i < c->nin ? c->in[i] : NULL; }

const Node *onnx_in(Conversion *c, int i)
{
  const Node *n = onnx_opt(c, i);
  if (!n) onnx_fail(c, ERR_ARGUMENT, "input %d is missing", i);
  return n;
}

const Type *onnx_tensor_type(Conversion *c, const Node *n)
{
  if (!n->type) BUG(c->ctx, "onnx: an input of node '%s' has no type", c->name);
  if (n->type->kind != TY_TENSOR)
    onnx_fail(c, ERR_TYPE, "a tensor is wanted, not %s", type_text(scratch(c->ctx), n->type));
  if (n->type->ndim > 32)
    onnx_fail(c, ERR_UNSUPPORTED, "a tensor of %d dimensions is not supported; 32 is the most", n->type->ndim);
  if (n->type->ndim < 0)
    onnx_fail(c, ERR_UNSUPPORTED, "the rank of an input is not known; give the shapes of the model's inputs");
  return n->type;
}

DType onnx_dtype_of(Conversion *c, const Node *n)
{
  if (!n->type || n->type->kind != TY_TENSOR) onnx_tensor_type(c, n);
  return n->type->dtype;
}
int onnx_rank_of(Conversion *c, const Node *n) { return onnx_tensor_type(c, n)->ndim; }

const Expr *onnx_dim_of(Conversion *c, const Node *n, int axis)
{
  const Type *ty = onnx_tensor_type(c, n);
  return ty->shape[onnx_axis_of(c, axis, ty->ndim)];
}

bool onnx_is_static_dim(const Expr *e, int64_t *v)
{
  if (e->kind == E_INT) *v = e->u.i;
  return e->kind == E_INT;
}

int64_t onnx_static_dim(Conversion *c, const Node *n, int axis)
{
  int64_t v = 0;
  if (!onnx_is_static_dim(onnx_dim_of(c, n, axis), &v))
    onnx_fail(c, ERR_UNSUPPORTED, "dimension %d of %s must be known; bind the shapes of the model's inputs", axis,
              type_text(scratch(c->ctx), n->type));
  return v;
}

int onnx_axis_of(Conversion *c, int64_t axis, int rank)
{
  if (axis < -rank || axis >= rank)
    onnx_fail(c, ERR_ARGUMENT, "axis %" PRId64 " is out of range for rank %d", axis, rank);
  return (int)(axis < 0 ? axis + rank : axis);
}

const int64_t *onnx_const_ints(Conversion *c, const Node *n, int *count)
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
    if (!onnx_is_static_dim(e[i], &v[i])) return NULL;
  return e ? v : NULL;
}

const Expr *const *onnx_const_dims(Conversion *c, const Node *n, int *count)
{
  if (!n->type || n->type->kind != TY_TENSOR || !dtype_is_int(n->type->dtype)) return NULL;
  const Expr *const *e = graph_values(c->m, n, count);
  for (int i = 0; e && i < *count; i++)
    if (!type_dim_is_stable(e[i])) return NULL;
  return e;
}

int64_t onnx_const_int(Conversion *c, const Node *n, const char *what)
{
  int count = 0;
  const int64_t *v = onnx_const_ints(c, n, &count);
  if (!v || count != 1) onnx_fail(c, ERR_UNSUPPORTED, "%s must be one integer known when the model is compiled", what);
  return v[0];
}

bool onnx_const_float(Conversion *c, const Node *n, double *out)
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

const Node *onnx_opn(Conversion *c, const char *op, int n, const Node *const *arg, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, n, arg, spec, &ap);
  va_end(ap);
  return r;
}

const Node *onnx_op0(Conversion *c, const char *op, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 0, NULL, spec, &ap);
  va_end(ap);
  return r;
}

const Node *onnx_op1(Conversion *c, const char *op, const Node *x, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 1, &x, spec, &ap);
  va_end(ap);
  return r;
}

const Node *onnx_op2(Conversion *c, const char *op, const Node *x, const Node *y, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 2, (const Node *[]){x, y}, spec, &ap);
  va_end(ap);
  return r;
}

const Node *onnx_op3(Conversion *c, const char *op, const Node *x, const Node *y, const Node *z, const char *spec, ...)
{
  va_list ap;
  va_start(ap, spec);
  const Node *r = call_op(c, op, 3, (const Node *[]){x, y, z}, spec, &ap);
  va_end(ap);
  return r;
}
