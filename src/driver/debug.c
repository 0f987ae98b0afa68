/* debug.c: finding the node that computes something wrong.
 *
 * The model runs with a watcher; after each kernel the reference interpreter evaluates the
 * kernel's function on what the kernel itself read, so a difference is this kernel's own
 * and not one that came down from before.  Loops are compared at every turn. */
#include <math.h>
#include <stdio.h>

#include "driver/compiled.h"

typedef struct Compare {
  Compiled *c;
  double rtol, atol;
  int compared;
  char found[600]; /* what differs; "": nothing yet */
  ErrKind failed;  /* the interpreter raised */
  /* the call being compared */
  int node, nin, nout;
  const LatheRtTensor *const *in, *const *out;
} Compare;

static DType dtype_of(LatheRtDType t)
{
  static const uint8_t codes[] = {
    [0] = DT_INT,     [1] = DT_UINT,      [2] = DT_FLOAT, [3] = DT_HANDLE,    [4] = DT_BFLOAT,   [6] = DT_UINT,
    [10] = DT_E4M3FN, [11] = DT_E4M3FNUZ, [12] = DT_E5M2, [13] = DT_E5M2FNUZ, [14] = DT_E8M0FNU, [17] = DT_E2M1FN};
  if (t.code == LATHE_RT_STRING) return DT_STRING;
  return t.code == 6 ? DT_BOOL : DTYPE(codes[t.code], t.bits);
}

static RtValue *tensor_value(Arena *a, const LatheRtTensor *t)
{
  RtValue *v = arena_new_of(a, RtValue);
  v->kind = RV_TENSOR;
  v->tensor = (ConstData){.dtype = dtype_of(t->dtype), .ndim = t->ndim, .data = (const char *)t->data + t->byte_offset};
  v->tensor.bytes = (size_t)dtype_bytes(v->tensor.dtype);
  for (int d = 0; d < t->ndim; d++) {
    v->tensor.shape[d] = t->shape[d];
    v->tensor.bytes *= (size_t)t->shape[d];
  }
  return v;
}

/* Tensors in order, put back into the tuples of the type. */
static const RtValue *value_of(Arena *a, const Type *ty, const LatheRtTensor *const **next)
{
  if (ty->kind != TY_TUPLE) return tensor_value(a, *(*next)++);
  RtValue *v = arena_new_of(a, RtValue);
  v->kind = RV_TUPLE;
  v->n = ty->nfield;
  v->field = arena_array(a, const RtValue *, ty->nfield + 1);
  for (int i = 0; i < ty->nfield; i++) v->field[i] = value_of(a, ty->field[i], next);
  return v;
}

static int spread(const RtValue *v, const ConstData **out)
{
  if (v->kind != RV_TUPLE) return *out = &v->tensor, 1;
  int n = 0;
  for (int i = 0; i < v->n; i++) n += spread(v->field[i], out + n);
  return n;
}

static double number(const ConstData *d, size_t i)
{
  Value v = value_load(d->dtype, (const char *)d->data + i * (size_t)dtype_bytes(d->dtype));
  return dtype_is_float(d->dtype) ? v.f : (double)v.i;
}

static bool close_enough(const Compare *k, double a, double b)
{
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (a == b) return true;
  return fabs(a - b) <= k->atol + k->rtol * fabs(b);
}

static void compare_output(Compare *k, int output, const ConstData *have, const ConstData *want)
{
  const ProgNode *n = &k->c->program.node.v[k->node];
  size_t count = have->bytes / (size_t)dtype_bytes(have->dtype);
  size_t bad = 0;
  size_t first = 0;
  if (have->bytes != want->bytes || !dtype_eq(have->dtype, want->dtype)) {
    snprintf(k->found, sizeof k->found, "node %d '%s' (%s): output %d has %zu bytes, the interpreter gives %zu",
             k->node, n->name, n->source, output, have->bytes, want->bytes);
    return;
  }
  for (size_t i = count; i-- > 0;)
    if (!close_enough(k, number(have, i), number(want, i))) {
      bad++;
      first = i;
    }
  if (bad)
    snprintf(
        k->found, sizeof k->found,
        "node %d '%s' (%s): %zu of %zu elements of output %d differ; element %zu is %.9g, the interpreter gives %.9g",
        k->node, n->name, n->source, bad, count, output, first, number(have, first), number(want, first));
}

static void compare_body(Ctx *ctx, void *arg)
{
  Compare *k = arg;
  const Node *func = k->c->program.node.v[k->node].func;
  if (func->kind != N_FUNC) return;
  Scope scope = scope_begin(ctx);
  Arena *a = scratch(ctx);
  const LatheRtTensor *const *next = k->in;
  const RtValue **arg_value = arena_array(a, const RtValue *, fn_nparams(func) + 1);
  for (int i = 0; i < fn_nparams(func); i++) arg_value[i] = value_of(a, func->arg[i]->type, &next);
  const RtValue *result = graph_eval(k->c->program.m, a, func, fn_nparams(func), arg_value);
  const ConstData **want = arena_array(a, const ConstData *, k->nout + 1);
  int n = type_leaf_count(fn_body(func)->type) == k->nout ? spread(result, want) : 0;
  if (n != k->nout) BUG(ctx, "node %d gives %d tensors, the interpreter %d", k->node, k->nout, n);
  for (int i = 0; i < n && !k->found[0]; i++) compare_output(k, i, &tensor_value(a, k->out[i])->tensor, want[i]);
  k->compared++;
  scope_end(ctx, scope);
}

static int32_t compare_node(void *user, int32_t node, double seconds, int32_t nin, const LatheRtTensor *const *in,
                            int32_t nout, const LatheRtTensor *const *out)
{
  (void)seconds;
  Compare *k = user;
  k->node = node;
  k->nin = nin;
  k->in = in;
  k->nout = nout;
  k->out = out;
  k->failed = protect(k->c->ctx, compare_body, k);
  return k->failed || k->found[0];
}

static void free_executor(void *x) { lathe_rt_executor_free(x); }

static void check(Ctx *ctx, LatheRtCode code, const LatheRtError *err)
{
  if (code == LATHE_RT_MEMORY) raise(ctx, ERR_MEMORY, NOWHERE, "%s", err->text);
  if (code != LATHE_RT_OK) raise(ctx, ERR_ARGUMENT, NOWHERE, "%s", err->text);
}

bool driver_debug_compare(Compiled *c, int n, const LatheRtTensor *const *inputs, double rtol, double atol,
                          Arena *arena, const char **text)
{
  Ctx *ctx = c->ctx;
  LatheRtModel *model = compiled_model(c);
  LatheRtError err;
  LatheRtExecutor *x;
  Scope scope = scope_begin(ctx);
  check(ctx, lathe_rt_executor_new(model, &x, &err), &err);
  defer(ctx, free_executor, x);
  for (int i = 0; i < n; i++) check(ctx, lathe_rt_set_input(x, i, inputs[i], &err), &err);
  Compare k = {.c = c, .rtol = rtol, .atol = atol};
  lathe_rt_executor_watch(x, compare_node, &k);
  LatheRtCode code = lathe_rt_run(x, &err);
  if (k.failed) error_reraise(ctx);
  if (!k.found[0]) check(ctx, code, &err);
  scope_end(ctx, scope);
  *text = k.found[0] ? arena_strdup(arena, k.found)
                     : arena_printf(arena, "all %d kernel calls agree with the interpreter", k.compared);
  return !k.found[0];
}
