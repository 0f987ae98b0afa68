/* api_te.c: tensor expressions.
 *
 * In: shapes, axes and bodies of one world.  Out: operations and tensors of it;
 * functions that compute them, in modules of their own. */
#include "api/api.h"

static void placeholder(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **shape;
  int n = api_arg_exprs(c, m, 3, &shape);
  *c->out = api_val_tensor(c, te_placeholder(m, api_arg_str(c, 1), api_arg_dtype(c, 2), n, shape));
}

static void compute(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **shape, **body;
  const void **axis;
  Annots attrs = {0};
  const char *name = api_arg_str(c, 1);
  int ndim = api_arg_exprs(c, m, 3, &shape);
  int naxis = api_arg_ptrs(c, m, 4, &axis);
  int nbody = api_arg_exprs(c, m, 5, &body);
  if (naxis != ndim) raise(c->ctx, ERR_SHAPE, NOWHERE, "compute '%s': %d axes for %d dimensions", name, naxis, ndim);
  api_arg_annots(c, m, 6, &attrs);
  *c->out = api_val_teop(
      c, te_compute(m, name, api_arg_str(c, 2), ndim, shape, (const IterVar *const *)axis, nbody, body, &attrs));
}

static void scan(Call *c)
{
  Module *m = api_arg_world(c);
  const void **init, **update, **state, **inputs;
  const char *name = api_arg_str(c, 1);
  int n = api_arg_ptrs(c, m, 3, &init);
  if (api_arg_ptrs(c, m, 4, &update) != n || api_arg_ptrs(c, m, 5, &state) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE,
          "scan '%s': wants as many updates and state placeholders as initial values (%d)", name, n);
  int ninputs = api_arg_ptrs(c, m, 6, &inputs);
  *c->out =
      api_val_teop(c, te_scan(m, name, api_arg_str(c, 2), n, (const Tensor *const *)init, (const Tensor *const *)update,
                              (const Tensor *const *)state, ninputs, (const Tensor *const *)inputs));
}

static int buffers(Call *c, Module *m, int i, const Buffer ***out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  *out = arena_array(scratch(c->ctx), const Buffer *, n + 1);
  for (int k = 0; k < n; k++) (*out)[k] = api_value_buffer(c, m, &v[k]);
  return n;
}

static void extern_op(Call *c)
{
  Module *m = api_arg_world(c);
  const void **in;
  const Buffer **in_buffers, **out_buffers;
  const char *name = api_arg_str(c, 1);
  int nin = api_arg_ptrs(c, m, 3, &in);
  if (buffers(c, m, 4, &in_buffers) != nin)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "extern '%s': wants one buffer for each of its %d inputs", name, nin);
  int nout = buffers(c, m, 5, &out_buffers);
  Annots attrs = {0};
  api_arg_annots(c, m, 7, &attrs);
  *c->out = api_val_teop(c, te_extern(m, name, api_arg_str(c, 2), nin, (const Tensor *const *)in, in_buffers, nout,
                                      out_buffers, (Stmt *)api_arg_ptr(c, 6), &attrs));
}

static void tensor_read(Call *c)
{
  Module *m = api_arg_world(c);
  const Expr **index;
  int n = api_arg_exprs(c, m, 2, &index);
  *c->out = api_val_expr(c, m, te_read(m, api_arg_ptr(c, 1), n, index));
}

/* ---- looking into them ------------------------------------------------------------------ */

static void tensor_fields(Call *c)
{
  const Tensor *t = api_arg_ptr(c, 0);
  LatheValue *v = api_val_list(c, 5, c->out);
  v[0] = api_val_teop(c, t->op);
  v[1] = api_val_int(t->index);
  v[2] = api_val_str(c, t->buffer->name);
  v[3] = api_val_dtype(c, t->buffer->dtype);
  v[4] = api_val_exprs(c, t->op->m, t->buffer->ndim, t->buffer->shape);
}

static LatheValue val_tensors(Call *c, int n, const Tensor *const *t)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, n, &list);
  for (int i = 0; i < n; i++) v[i] = api_val_tensor(c, t[i]);
  return list;
}

static void teop_fields(Call *c)
{
  const TeOp *op = api_arg_ptr(c, 0);
  const Tensor **in;
  int nin = te_inputs(scratch(c->ctx), op, &in);
  LatheValue *v = api_val_list(c, 8, c->out);
  v[0] = api_val_str(c, op->name);
  v[1] = api_val_str(c, op->tag ? op->tag : "");
  v[2] = api_val_annots(c, op->m, &op->attrs);
  LatheValue *out = api_val_list(c, op->nout, &v[3]);
  for (int i = 0; i < op->nout; i++) out[i] = api_val_tensor(c, &op->out[i]);
  v[4] = api_val_itervars(c, op->m, op->naxis, op->axis);
  v[5] = api_val_itervars(c, op->m, op->nreduce, op->reduce_axis);
  v[6] = api_val_exprs(c, op->m, op->kind == TE_COMPUTE ? op->nout : 0, op->body);
  v[7] = val_tensors(c, nin, in);
}

static void scan_fields(Call *c)
{
  const TeOp *op = api_arg_ptr(c, 0);
  LatheValue *v = api_val_list(c, 4, c->out);
  v[0] = val_tensors(c, op->nstate, op->init);
  v[1] = val_tensors(c, op->nstate, op->update);
  v[2] = val_tensors(c, op->nstate, op->state);
  v[3] = val_tensors(c, op->kind == TE_SCAN ? op->ninputs : 0, op->inputs);
}

static void teop_kinds(Call *c)
{
  static const char *const names[] = {"placeholder", "compute", "scan", "extern"};
  LatheValue *v = api_val_list(c, TE_EXTERN + 1, c->out);
  for (int i = 0; i <= TE_EXTERN; i++) v[i] = api_val_str(c, names[i]);
}

static void tensor_of(Call *c) { *c->out = api_val_tensor(c, te_tensor_of(api_arg_ptr(c, 0))); }

/* ---- functions of tensors ------------------------------------------------------------------ */

/* Each is a tensor, a variable, or [tensor, buffer]. */
int api_arg_te_args(Call *c, Module *m, int i, TeArg **out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  *out = arena_array(scratch(c->ctx), TeArg, n + 1);
  for (int k = 0; k < n; k++) {
    TeArg *a = &(*out)[k];
    if (v[k].tag == LATHE_LIST) {
      const LatheValue *pair = v[k].u.list;
      a->tensor = api_value_ptr(&pair[0]);
      a->buffer = api_value_buffer(c, m, &pair[1]);
    } else if (api_value_is(&v[k], LATHE_TENSOR)) a->tensor = api_value_ptr(&v[k]);
    else a->var = api_value_var(c, m, &v[k]);
  }
  return n;
}

/* The tensors' module; any argument tells it. */
static Module *args_module(Call *c, int i)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  for (int k = 0; k < n; k++) {
    const LatheValue *a = v[k].tag == LATHE_LIST && v[k].n ? &v[k].u.list[0] : &v[k];
    if (a->tag == LATHE_OBJECT) return ((const Handle *)a->u.p)->m;
  }
  raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: a function needs at least one tensor among its arguments",
        c->function->name);
}

static void create_prim_func(Call *c)
{
  TeArg *args;
  int n = api_arg_te_args(c, args_module(c, 1), 1, &args);
  bool wide = api_arg_given(c, 2) && api_arg_bool(c, 2);
  PrimFunc *f = wide ? te_create_prim_func_wide(api_new_module(c), api_arg_str(c, 0), n, args)
                     : te_create_prim_func(api_new_module(c), api_arg_str(c, 0), n, args, NULL);
  *c->out = api_val_func(c, f);
}

static void evaluate(Call *c)
{
  TeArg *args;
  const LatheValue *v;
  int n = api_arg_te_args(c, args_module(c, 0), 0, &args);
  if (api_arg_list(c, 1, &v) != n)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "evaluate: wants one value for each of its %d arguments", n);
  TirArg *values = arena_array(scratch(c->ctx), TirArg, n + 1);
  for (int i = 0; i < n; i++) values[i] = api_value_tir_arg(c, &v[i]);
  te_evaluate(c->ctx, n, args, values);
}

/* ---- tensor intrinsics ------------------------------------------------------------------------ */

static void decl_tensor_intrin(Call *c)
{
  Module *m = api_arg_world(c);
  const Buffer **in, **out;
  const Tensor **inputs;
  const TeOp *op = api_arg_ptr(c, 2);
  int nin = te_inputs(scratch(c->ctx), op, &inputs);
  if (buffers(c, m, 3, &in) != nin || buffers(c, m, 4, &out) != op->nout)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE,
          "tensor intrinsic '%s': wants a buffer for each of its %d inputs and %d outputs", api_arg_str(c, 1), nin,
          op->nout);
  Module *dst = api_new_module(c);
  TensorIntrin *t = te_tensor_intrin(dst, api_arg_str(c, 1), op, in, out, (Stmt *)api_arg_ptr(c, 5),
                                     (Stmt *)api_arg_ptr(c, 6), (Stmt *)api_arg_ptr(c, 7));
  *c->out = api_val_object(c, LATHE_TENSORINTRIN, t, 0, dst, NULL);
}

static void tensor_intrin(Call *c)
{
  Module *m = api_new_module(c);
  TensorIntrin *t = arena_new_of(m->arena, TensorIntrin);
  t->name = arena_strdup(m->arena, api_arg_str(c, 0));
  t->desc = func_import(m, api_arg_ptr(c, 1));
  t->impl = func_import(m, api_arg_ptr(c, 2));
  *c->out = api_val_object(c, LATHE_TENSORINTRIN, t, 0, m, NULL);
}

static void tensor_intrin_fields(Call *c)
{
  const TensorIntrin *t = api_arg_ptr(c, 0);
  LatheValue *v = api_val_list(c, 3, c->out);
  v[0] = api_val_str(c, t->name);
  v[1] = api_val_func(c, (PrimFunc *)t->desc);
  v[2] = api_val_func(c, (PrimFunc *)t->impl);
}

const ApiFunction api_te_functions[] = {
  {"te_placeholder", "world: world, name: str, dtype: str, shape: list[expr] -> tensor", "an input tensor",
   placeholder},
  {"te_compute",
   "world: world, name: str, tag: str, shape: list[expr], axis: list[itervar], body: list[expr], attrs: "
   "list[annotation]? -> teop",
   "tensors given element by element", compute},
  {"te_scan",
   "world: world, name: str, tag: str, init: list[tensor], update: list[tensor], state: list[tensor], inputs: "
   "list[tensor]? -> teop",
   "a recurrence along the first axis", scan},
  {"te_extern",
   "world: world, name: str, tag: str, inputs: list[tensor], in_buffers: list[buffer], out_buffers: list[buffer], "
   "body: stmt, attrs: list[annotation]? -> teop",
   "tensors computed by a statement", extern_op},
  {"te_read", "world: world, tensor: tensor, indices: list[expr] -> expr", "an element of a tensor", tensor_read},
  {"tensor_fields", "tensor: tensor -> list[any]", "operation, output number, name, dtype, shape", tensor_fields},
  {"teop_fields", "op: teop -> list[any]", "name, tag, attributes, outputs, axes, reduce axes, bodies, inputs",
   teop_fields},
  {"scan_fields", "op: teop -> list[any]", "initial values, updates, states, inputs", scan_fields},
  {"teop_kinds", " -> list[str]", "names of the kinds of operations, by number", teop_kinds},
  {"tensor_of", "buffer: buffer -> tensor?", "the tensor that a buffer stands for", tensor_of},
  {"te_create_prim_func", "name: str, args: list[parameter], wide: bool? -> primfunc",
   "the function that computes the outputs among args; wide: its loops, sizes and indices are int64", create_prim_func},
  {"te_evaluate", "args: list[parameter], values: list[argument] -> none",
   "computes the outputs naively, by the expressions", evaluate},
  {"decl_tensor_intrin",
   "world: world, name: str, op: teop, in_buffers: list[buffer], out_buffers: list[buffer], body: stmt, init: stmt?, "
   "update: stmt? -> tensorintrin",
   "a tensor intrinsic from a compute and statements", decl_tensor_intrin},
  {"tensor_intrin", "name: str, desc: primfunc, impl: primfunc -> tensorintrin",
   "a tensor intrinsic from two functions", tensor_intrin},
  {"tensor_intrin_fields", "intrin: tensorintrin -> list[any]", "name, description, implementation",
   tensor_intrin_fields},
  {0},
};
