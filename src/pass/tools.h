/* tools.h: what the passes share: reading attributes by name, making calls, use
 * counts, constants' values.  Private to this folder. */
#ifndef LATHE_PASS_TOOLS_H
#define LATHE_PASS_TOOLS_H

#include "pass/pass.h"

static inline bool is_call(const Node *n, const char *op)
{
  return n->kind == N_CALL && !strcmp(n->u.call.op->name, op);
}
static inline bool is_tensor(const Node *n) { return n->type && n->type->kind == TY_TENSOR && n->type->ndim >= 0; }

/* ---- attributes ------------------------------------------------------------------------ */

/* Is it a call of one of the operators of a comma list "add,multiply"? */
static inline bool is_call_of(const Node *n, const char *ops)
{
  if (n->kind != N_CALL) return false;
  const char *name = n->u.call.op->name;
  size_t len = strlen(name);
  for (const char *p = ops; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
    if (!strncmp(p, name, len) && (p[len] == ',' || p[len] == 0)) return true;
  return false;
}

static inline bool call_has(const Node *n, const char *name)
{
  return n->u.call.op->attrs && attrs_field(n->u.call.op->attrs, name);
}

/* Attributes by name; the attribute must exist: the passes know which operators they ask. */
static inline const void *field_at(const Node *n, const char *name)
{
  return (const char *)n->u.call.attrs + attrs_field(n->u.call.op->attrs, name)->offset;
}

static inline int64_t call_int(const Node *n, const char *name)
{
  const AttrField *f = attrs_field(n->u.call.op->attrs, name);
  return f->kind == AT_BOOL ? *(const bool *)field_at(n, name) : *(const int64_t *)field_at(n, name);
}
static inline double call_f64(const Node *n, const char *name) { return *(const double *)field_at(n, name); }
static inline const char *call_str(const Node *n, const char *name) { return *(const char *const *)field_at(n, name); }
static inline DType call_dtype(const Node *n, const char *name) { return *(const DType *)field_at(n, name); }
static inline AttrInts call_ints(const Node *n, const char *name) { return *(const AttrInts *)field_at(n, name); }
/* A copy to change. */
static inline void *call_attrs(Module *m, const Node *n) { return attrs_copy(m, n->u.call.op->attrs, n->u.call.attrs); }

/* The dimension that a letter names in a layout; -1: the layout has none, or is none. */
static inline int letter_at(const char *layout, char letter)
{
  Layout l;
  return layout_parse(layout, &l) ? -1 : layout_find(&l, letter);
}

/* ---- making calls -------------------------------------------------------------------------- */

static inline const Node *make_call(Module *m, const char *op, int n, const Node *const *arg, const void *attrs)
{
  return node_call(m, opdef_get(m->ctx, op), n, arg, attrs, NULL);
}

static inline const Node *make1(Module *m, const char *op, const Node *x) { return make_call(m, op, 1, &x, NULL); }
static inline const Node *make2(Module *m, const char *op, const Node *a, const Node *b)
{
  return make_call(m, op, 2, (const Node *[]){a, b}, NULL);
}

/* The same operator and arguments with other attributes. */
static inline const Node *with_attrs(Module *m, const Node *n, const void *attrs)
{
  return node_call(m, n->u.call.op, n->nargs, n->arg, attrs, n->name);
}

/* x itself when it has that dtype. */
static inline const Node *make_cast(Module *m, const Node *x, DType dtype)
{
  if (x->type && dtype_eq(x->type->dtype, dtype)) return x;
  const OpDef *op = opdef_get(m->ctx, "cast");
  void *attrs = attrs_new(m, op->attrs);
  attrs_set_dtype(m, op->attrs, attrs, "dtype", dtype);
  return node_call(m, op, 1, &x, attrs, NULL);
}

static inline const Node *make_expand_dims(Module *m, const Node *x, int axis, int num_newaxis)
{
  if (!num_newaxis) return x;
  const OpDef *op = opdef_get(m->ctx, "expand_dims");
  void *attrs = attrs_new(m, op->attrs);
  attrs_set_int(m, op->attrs, attrs, "axis", axis);
  attrs_set_int(m, op->attrs, attrs, "num_newaxis", num_newaxis);
  return node_call(m, op, 1, &x, attrs, NULL);
}

static inline const Node *make_reshape(Module *m, const Node *x, int ndim, const Expr *const *shape)
{
  const OpDef *op = opdef_get(m->ctx, "reshape");
  void *attrs = attrs_new(m, op->attrs);
  const AttrField *f = attrs_field(op->attrs, "newshape");
  if (f->kind == AT_DIMS) {
    attrs_set_dims(m, op->attrs, attrs, "newshape", ndim, shape);
  } else {
    int64_t *v = arena_array(scratch(m->ctx), int64_t, ndim + 1);
    for (int i = 0; i < ndim; i++) {
      if (shape[i]->kind != E_INT)
        raise(m->ctx, ERR_UNSUPPORTED, NOWHERE, "reshape to a symbolic size needs dimensions as attributes");
      v[i] = shape[i]->u.i;
    }
    attrs_set_ints(m, op->attrs, attrs, "newshape", ndim, v);
  }
  return node_call(m, op, 1, &x, attrs, NULL);
}

static inline const Node *make_reshape_ints(Module *m, const Node *x, int ndim, const int64_t *shape)
{
  const Expr **dims = arena_array(scratch(m->ctx), const Expr *, ndim + 1);
  for (int i = 0; i < ndim; i++) dims[i] = expr_int(m, DT_I32, shape[i]);
  return make_reshape(m, x, ndim, dims);
}

static inline const Node *make_layout(Module *m, const Node *x, const char *from, const char *to)
{
  if (!strcmp(from, to)) return x;
  const OpDef *op = opdef_get(m->ctx, "layout_transform");
  void *attrs = attrs_new(m, op->attrs);
  attrs_set_str(m, op->attrs, attrs, "src_layout", from);
  attrs_set_str(m, op->attrs, attrs, "dst_layout", to);
  return node_call(m, op, 1, &x, attrs, NULL);
}

/* A scalar constant. */
static inline const Node *make_float(Module *m, DType dtype, double v)
{
  return node_scalar(m, dtype_is_float(dtype) ? value_float(dtype, v) : value_int(dtype, (int64_t)v));
}

/* ---- types and constants ----------------------------------------------------------------------- */

/* -1: not a literal. */
static inline int64_t dim_of(const Node *n, int axis)
{
  if (axis < 0 || !is_tensor(n) || axis >= n->type->ndim || n->type->shape[axis]->kind != E_INT) return -1;
  return n->type->shape[axis]->u.i;
}

static inline Value const_at(const ConstData *d, int64_t i)
{
  return value_load(d->dtype, (const char *)d->data + (size_t)i * (size_t)dtype_bytes(d->dtype));
}

static inline int64_t const_count(const ConstData *d) { return (int64_t)(d->bytes / (size_t)dtype_bytes(d->dtype)); }

static inline double number_at(const ConstData *d, int64_t i)
{
  Value v = const_at(d, i);
  return dtype_is_float(d->dtype) ? v.f : (double)v.i;
}

/* A constant whose elements all are value. */
static inline bool const_all(const Node *n, double value)
{
  if (n->kind != N_CONST) return false;
  int64_t count = const_count(n->u.data);
  if (count > 65536) return false;
  for (int64_t i = 0; i < count; i++)
    if (number_at(n->u.data, i) != value) return false;
  return true;
}

/* A constant whose elements all are above zero. */
static inline bool const_positive(const Node *n)
{
  if (n->kind != N_CONST) return false;
  int64_t count = const_count(n->u.data);
  for (int64_t i = 0; i < count; i++)
    if (!(number_at(n->u.data, i) > 0)) return false;
  return true;
}

/* ---- graphs ---------------------------------------------------------------------------------------- */

/* How often each node is used below f, and the nodes, arguments first. */
typedef struct Uses {
  Map count; /* node -> count as an intptr */
  int n;
  const Node **order;
} Uses;
static inline Uses uses_of(Arena *arena, const Node *f)
{
  Uses u = {0};
  u.n = graph_post_order(arena, f, &u.order);
  for (int i = 0; i < u.n; i++)
    for (int k = 0; k < u.order[i]->nargs; k++) {
      const Node *a = u.order[i]->arg[k];
      map_put(arena, &u.count, a, (void *)((intptr_t)map_get(&u.count, a) + 1));
    }
  return u;
}

static inline int uses_get(const Uses *u, const Node *n) { return (int)(intptr_t)map_get(&u->count, n); }

/* Rewrites with fn over a fresh memory in scratch. */
static inline const Node *rewrite(Module *m, const Node *n,
                                  const Node *(*fn)(GraphRewriter *, const Node *, const Node *), void *env)
{
  GraphRewriter rw = {.m = m, .fn = fn, .env = env, .arena = scratch(m->ctx)};
  return graph_rewrite(&rw, n);
}

/* The function over another body. */
static inline const Node *with_body(Module *m, const Node *f, const Node *body)
{
  return node_func(m, fn_nparams(f), f->arg, body, f->u.func->ret, &f->u.func->attrs);
}

static inline bool is_primitive(const Node *f)
{
  const Expr *v = f->kind == N_FUNC ? annots_get(&f->u.func->attrs, "Primitive") : NULL;
  return v && v->kind == E_INT && v->u.i;
}

/* A function that an external compiler makes code of: passes leave it alone. */
static inline bool is_external(const Node *f)
{
  return f->kind == N_FUNC && annots_get(&f->u.func->attrs, "Compiler") != NULL;
}

/* Where a region of an external compiler begins and ends (src/op/compiler.c). */
#define REGION_BEGIN "annotation.compiler_begin"
#define REGION_END "annotation.compiler_end"

static inline Annots primitive_attrs(Module *m)
{
  Annots a = {0};
  annots_set(m->arena, &a, "Primitive", expr_i32(m, 1));
  return a;
}

static inline bool all_typed(Arena *arena, const Node *f)
{
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  for (int i = 0; i < n; i++)
    if (!order[i]->type && order[i]->kind != N_OP) return false;
  return true;
}

/* The same graph in which every node has a type. */
static inline const Node *retype(Module *m, const Node *f)
{
  return all_typed(scratch(m->ctx), f) ? f : graph_infer(m, f);
}

#endif
