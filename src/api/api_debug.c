/* api_debug.c: what a graph means: the reference interpreter, and models compared with it.
 *
 * In: graphs, compiled models, arrays (addresses of LatheRtTensors, or bytes with dtype and
 * shape).  Out: values, as [dtype, shape, bytes] and lists of those. */
#include "api/api.h"

/* ---- comparing a model ------------------------------------------------------------------ */

static void compare(Call *c)
{
  const LatheValue *v;
  int n = api_arg_list(c, 1, &v);
  const LatheRtTensor **t = arena_array(scratch(c->ctx), const LatheRtTensor *, n + 1);
  for (int i = 0; i < n; i++) t[i] = (const LatheRtTensor *)(intptr_t)v[i].u.i;
  const char *text = NULL;
  bool same = driver_debug_compare((Compiled *)api_arg_ptr(c, 0), n, t, api_arg_float(c, 2), api_arg_float(c, 3),
                                   scratch(c->ctx), &text);
  LatheValue *out = api_val_list(c, 2, c->out);
  out[0] = api_val_bool(same);
  out[1] = api_val_str(c, text);
}

/* ---- evaluating -------------------------------------------------------------------------- */

/* A tensor is [address, dtype, shape], a tuple or sequence a list of values, each in a list:
 * ["tensor", …], ["tuple", values], ["sequence", values], ["optional", none or one value]. */
static const RtValue *read_value(Call *c, Arena *a, const LatheValue *v);

static const RtValue *read_fields(Call *c, Arena *a, int kind, const LatheValue *list)
{
  const RtValue **field = arena_array(a, const RtValue *, list->n + 1);
  for (int64_t i = 0; i < list->n; i++) field[i] = read_value(c, a, &list->u.list[i]);
  return graph_value_fields(a, kind, (int)list->n, field);
}

static const RtValue *read_value(Call *c, Arena *a, const LatheValue *v)
{
  const char *kind = api_value_text(c, &v->u.list[0]);
  bool tensor = v->n == 4;
  if (!tensor && !strcmp(kind, "tuple")) return read_fields(c, a, RV_TUPLE, &v->u.list[1]);
  if (!tensor && !strcmp(kind, "sequence")) return read_fields(c, a, RV_SEQ, &v->u.list[1]);
  if (!tensor && !strcmp(kind, "optional")) return read_fields(c, a, RV_OPT, &v->u.list[1]);
  if (!tensor || strcmp(kind, "tensor"))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE,
          "an argument of the interpreter is a tensor, a tuple, a sequence or an optional");
  const LatheValue *shape = &v->u.list[3];
  bool there = v->u.list[1].tag == LATHE_INT;
  ConstData d = {.dtype = api_value_dtype(c, &v->u.list[2]),
                 .ndim = (int)shape->n,
                 .data = there ? (const void *)(intptr_t)v->u.list[1].u.i : NULL};
  int max = (int)(sizeof d.shape / sizeof *d.shape);
  if (shape->n > max)
    raise(c->ctx, ERR_UNSUPPORTED, NOWHERE, "a tensor of %" PRId64 " dimensions; at most %d are supported", shape->n,
          max);
  d.bytes = (size_t)dtype_bytes(d.dtype);
  for (int i = 0; i < d.ndim; i++) {
    d.shape[i] = shape->u.list[i].u.i;
    if (d.shape[i] < 0) raise(c->ctx, ERR_SHAPE, NOWHERE, "dimension %d of an argument is %" PRId64, i, d.shape[i]);
    d.bytes = mem_size_mul(c->ctx, d.bytes, (size_t)d.shape[i], "an argument of the interpreter");
  }
  if (d.bytes && !there) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a tensor of %zu bytes without their address", d.bytes);
  api_check_strings(c, d.dtype, (int64_t)(d.bytes / 8), d.data);
  return graph_value_tensor(a, &d);
}

static LatheValue val_value(Call *c, const RtValue *v)
{
  static const char *const kinds[] = {[RV_TUPLE] = "tuple", [RV_SEQ] = "sequence", [RV_OPT] = "optional"};
  LatheValue out, *row;
  if (v->kind == RV_TENSOR) {
    row = api_val_list(c, 4, &out);
    row[0] = api_val_str(c, "tensor");
    row[1] = api_val_bytes(c, v->tensor.data ? v->tensor.data : "", v->tensor.bytes);
    row[2] = api_val_dtype(c, v->tensor.dtype);
    LatheValue *dims = api_val_list(c, v->tensor.ndim, &row[3]);
    for (int i = 0; i < v->tensor.ndim; i++) dims[i] = api_val_int(v->tensor.shape[i]);
    return out;
  }
  if (v->kind != RV_TUPLE && v->kind != RV_SEQ && v->kind != RV_OPT)
    raise(c->ctx, ERR_UNSUPPORTED, NOWHERE,
          "the result is a function or a value of a data type, which cannot be given out");
  row = api_val_list(c, 2, &out);
  row[0] = api_val_str(c, kinds[v->kind]);
  LatheValue *field = api_val_list(c, v->n, &row[1]);
  for (int i = 0; i < v->n; i++) field[i] = val_value(c, v->field[i]);
  return out;
}

static void evaluate(Call *c)
{
  op_init();
  Module *m = (Module *)api_arg_ptr(c, 0);
  Global *g = module_get(m, api_arg_str(c, 1));
  if (!g || g->kind != GLOBAL_GRAPH)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "the module has no graph function '%s'", api_arg_str(c, 1));
  Arena *a = scratch(c->ctx);
  const LatheValue *v;
  int n = api_arg_list(c, 2, &v);
  if (n != fn_nparams(g->func))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "function '%s' takes %d arguments, %d were given", api_arg_str(c, 1),
          fn_nparams(g->func), n);
  const RtValue **arg = arena_array(a, const RtValue *, n + 1);
  for (int i = 0; i < n; i++) arg[i] = read_value(c, a, &v[i]);
  *c->out = val_value(c, graph_eval(m, a, g->func, n, arg));
}

const ApiFunction api_debug_functions[] = {
  {"compiled_compare", "c: compiled, inputs: list[address], rtol: float, atol: float -> list[any]",
   "runs the model on tensors at these addresses (LatheRtTensor) and compares each kernel with the interpreter: do all "
   "agree, and a sentence",
   compare},
  {"graph_eval", "m: module, name: str, args: list[value] -> list[any]",
   "what a function means, by the interpreter; values are [\"tensor\", address (in) or bytes (out), dtype, shape], "
   "[\"tuple\", values], "
   "[\"sequence\", values], [\"optional\", values]",
   evaluate},
  {0},
};
