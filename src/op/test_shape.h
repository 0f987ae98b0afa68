/* test_shape.h: what the tests of the shape, index and order families share: tensors
 * written as C arrays, and one call of an operator through its compute, run twice: by
 * the reference evaluator and as a function by the interpreter.  Both must agree. */
#ifndef LATHE_TEST_SHAPE_H
#define LATHE_TEST_SHAPE_H

#include "op/op.h"
#include "te/test_te.h"

typedef struct Data {
  DType dtype;
  int ndim;
  int64_t shape[8];
  void *data;
} Data;

/* ---- tensors ------------------------------------------------------------------------------ */

static inline int64_t data_count(const Data *d)
{
  int64_t n = 1;
  for (int i = 0; i < d->ndim; i++) n *= d->shape[i];
  return n;
}

static inline Data data_new(World *w, DType t, int ndim, const int64_t *shape)
{
  Data d = {.dtype = t, .ndim = ndim};
  for (int i = 0; i < ndim; i++) d.shape[i] = shape[i];
  d.data = arena_alloc(w->m->arena, (size_t)data_count(&d) * (size_t)dtype_bytes(t) + 1);
  return d;
}

static inline Data data_of(World *w, DType t, int ndim, const int64_t *shape, int n, const double *v)
{
  Data d = data_new(w, t, ndim, shape);
  assert_int_equal(data_count(&d), n);
  for (int i = 0; i < n; i++)
    value_store(dtype_is_int(t) ? value_int(t, (int64_t)v[i]) : value_float(t, v[i]),
                (char *)d.data + i * dtype_bytes(t));
  return d;
}
#define DIMS(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define NODIMS 0, NULL
#define NUMS(...) \
  (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]) { __VA_ARGS__ }
#define TENSOR(t, dims, ...) data_of(w, t, dims, NUMS(__VA_ARGS__))
#define SCALAR(t, v) data_of(w, t, 0, NULL, NUMS(v))

/* 0, 1, 2, … */
static inline Data data_iota(World *w, DType t, int ndim, const int64_t *shape)
{
  Data d = data_new(w, t, ndim, shape);
  for (int64_t i = 0; i < data_count(&d); i++)
    value_store(dtype_is_int(t) ? value_int(t, i) : value_float(t, (double)i), (char *)d.data + i * dtype_bytes(t));
  return d;
}
#define IOTA(t, ...) data_iota(w, t, DIMS(__VA_ARGS__))

static inline double data_at(const Data *d, int64_t i)
{
  Value v = value_load(d->dtype, (const char *)d->data + i * dtype_bytes(d->dtype));
  return dtype_is_int(d->dtype) ? (double)v.i : v.f;
}

static inline void assert_data(const Data *d, DType t, int ndim, const int64_t *shape, int n, const double *v)
{
  assert_true(dtype_eq(d->dtype, t));
  assert_int_equal(d->ndim, ndim);
  for (int i = 0; i < ndim; i++) assert_int_equal(d->shape[i], shape[i]);
  assert_int_equal(data_count(d), n);
  for (int i = 0; i < n; i++) {
    double got = data_at(d, i);
    double err = got - v[i];
    bool same = (got != got && v[i] != v[i]) || got == v[i] || (err < 1e-4 && err > -1e-4);
    if (!same) fprintf(stderr, "element %d is %.9g, not %.9g\n", i, got, v[i]);
    assert_true(same);
  }
}
#define ASSERT_DATA(d, t, dims, ...)                 \
  do {                                               \
    const Data data_ = (d);                          \
    assert_data(&data_, t, dims, NUMS(__VA_ARGS__)); \
  } while (0)

/* ---- nodes ---------------------------------------------------------------------------------- */

static inline const Node *node_of(World *w, const Data *d)
{
  return node_var(w->m, "x", type_tensor_of(w->m, d->dtype, d->ndim, d->shape));
}
static inline const Node *const_of(World *w, const Data *d)
{
  return node_const_copy(w->m, d->dtype, d->ndim, d->shape, d->data);
}
static inline const Node *sym_node(World *w, DType t, int ndim, const Expr *const *shape)
{
  return node_var(w->m, "x", type_tensor(w->m, t, ndim, shape));
}
#define SYM(t, ...) sym_node(w, t, SHAPE(__VA_ARGS__))

typedef struct Attr {
  const char *name, *text;
} Attr;
static inline void *attrs_of(World *w, const char *op, const Attr *a)
{
  op_init();
  const OpDef *def = opdef_get(w->ctx, op);
  void *attrs = attrs_new(w->m, def->attrs);
  for (; a && a->name; a++) attrs_set_text(w->m, def->attrs, attrs, a->name, a->text);
  return attrs;
}
#define ATTRS(...) ((const Attr[]){__VA_ARGS__, {NULL, NULL}})

static inline const Node *call_of(World *w, const char *op, const Attr *a, int n, const Node *const *arg)
{
  op_init();
  return node_call(w->m, opdef_get(w->ctx, op), n, arg, attrs_of(w, op, a), NULL);
}
#define CALL(op, attrs, ...) \
  call_of(w, op, attrs, (int)(sizeof((const Node *[]){__VA_ARGS__}) / sizeof(Node *)), (const Node *[]){__VA_ARGS__})

static inline void assert_type(World *w, const Node *n, const char *text)
{
  const char *got = type_text(w->m->arena, n->type);
  if (strcmp(got, text)) fprintf(stderr, "type %s, not %s\n", got, text);
  assert_string_equal(got, text);
}

/* ---- running one call --------------------------------------------------------------------------- */

static inline void bind_dims(EvalEnv *env, const Type *ty, const Data *d)
{
  assert_int_equal(ty->ndim, d->ndim);
  for (int i = 0; i < ty->ndim; i++)
    if (ty->shape[i]->kind == E_VAR)
      expr_eval_bind(env, ty->shape[i]->u.var, value_int(ty->shape[i]->dtype, d->shape[i]));
}

/* The elements of an operand that the type may speak of. */
static inline void bind_values(World *w, EvalEnv *env, const Node *node, const Data *d)
{
  int n;
  const Expr *const *v =
      dtype_is_int(d->dtype) && d->ndim <= 1 && data_count(d) <= 64 ? graph_values(w->m, node, &n) : NULL;
  for (int i = 0; v && i < n && i < data_count(d); i++)
    if (v[i]->kind == E_VAR)
      expr_eval_bind(env, v[i]->u.var, value_load(d->dtype, (const char *)d->data + i * dtype_bytes(d->dtype)));
}

static inline Data data_for(World *w, EvalEnv *env, const Type *ty)
{
  int64_t shape[8];
  for (int i = 0; i < ty->ndim; i++) {
    shape[i] = expr_eval(env, ty->shape[i], 0).i;
    if (shape[i] < 0) raise(w->ctx, ERR_SHAPE, NOWHERE, "a size does not fit: dimension %d is %" PRId64, i, shape[i]);
  }
  return data_new(w, ty->dtype, ty->ndim, shape);
}

/* Runs the call on one Data for each tensor (tuple fields spread out); fills out. */
static inline void run_node(World *w, const Node *call, const Data *in, Data *out)
{
  Module *m = w->m;
  const OpDef *op = call->u.call.op;
  EvalEnv env = {.m = m, .arena = m->arena};
  const Tensor *tin[32], *tout[32];
  const Type *types[8];
  int nin = 0;
  for (int i = 0; i < call->nargs; i++) {
    const Type *ty = types[i] = call->arg[i]->type;
    int nfield = ty->kind == TY_TUPLE ? ty->nfield : 1;
    for (int k = 0; k < nfield; k++, nin++) {
      const Type *f = ty->kind == TY_TUPLE ? ty->field[k] : ty;
      bind_dims(&env, f, &in[nin]);
      if (ty->kind != TY_TUPLE) bind_values(w, &env, call->arg[i], &in[nin]);
      tin[nin] = te_placeholder(m, "x", f->dtype, f->ndim, f->shape);
    }
  }
  OpCall c = {.m = m, .op = op, .attrs = call->u.call.attrs, .nargs = call->nargs, .arg = types, .out = call->type};
  assert_non_null(op->compute);
  op->compute(&c, tin, tout);
  int nout = call->type->kind == TY_TUPLE ? call->type->nfield : 1;
  for (int i = 0; i < nout; i++)
    out[i] = data_for(w, &env, call->type->kind == TY_TUPLE ? call->type->field[i] : call->type);
  TeArg *arg;
  int narg = te_default_args(m->arena, nout, tout, &arg);
  TirArg *value = arena_array(m->arena, TirArg, narg);
  TirArg *again = arena_array(m->arena, TirArg, narg);
  Data second[32];
  for (int i = 0; i < narg; i++) {
    const Data *d = NULL;
    if (!arg[i].tensor) {
      const Value *v = map_get(&env.vars, arg[i].var);
      assert_non_null(v);
      value[i] = again[i] = (TirArg){.dtype = v->dtype, .scalar = *v};
      continue;
    }
    for (int k = 0; k < nin; k++)
      if (tin[k] == arg[i].tensor) d = &in[k];
    for (int k = 0; k < nout; k++)
      if (tout[k] == arg[i].tensor) d = &out[k];
    assert_non_null(d);
    value[i] = again[i] = (TirArg){.data = d->data, .dtype = d->dtype, .ndim = d->ndim, .shape = d->shape};
    for (int k = 0; k < nout; k++)
      if (d == &out[k]) second[k] = data_new(w, d->dtype, d->ndim, d->shape), again[i].data = second[k].data;
  }
  te_evaluate(w->ctx, narg, arg, value);
  PrimFunc *f = te_create_prim_func(m, "f", narg, arg, NULL);
  func_check(f);
  func_interpret(f, narg, again);
  for (int k = 0; k < nout; k++)
    assert_memory_equal(out[k].data, second[k].data, (size_t)data_count(&out[k]) * (size_t)dtype_bytes(out[k].dtype));
}

/* One call on tensors of static shape. */
static inline Data run_op(World *w, const char *op, const Attr *a, int n, const Data *in)
{
  const Node *arg[8];
  Data out[16];
  for (int i = 0; i < n; i++) arg[i] = node_of(w, &in[i]);
  run_node(w, call_of(w, op, a, n, arg), in, out);
  return out[0];
}
#define RUN(op, attrs, ...) \
  run_op(w, op, attrs, (int)(sizeof((Data[]){__VA_ARGS__}) / sizeof(Data)), (Data[]){__VA_ARGS__})

/* The same with the tensors as one tuple. */
static inline void run_tuple(World *w, const char *op, const Attr *a, int n, const Data *in, Data *out)
{
  const Node *arg[16];
  for (int i = 0; i < n; i++) arg[i] = node_of(w, &in[i]);
  const Node *tuple = node_tuple(w->m, n, arg);
  run_node(w, call_of(w, op, a, 1, &tuple), in, out);
}

#endif
