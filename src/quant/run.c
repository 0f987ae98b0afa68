/* run.c: models over samples.
 *
 * Comes in: arrays whose first axis counts samples, and a module.  Goes out: the module compiled for this machine, run
 * on one cut of the arrays after the other. */
#include "quant/quant.h"

/* ---- samples -------------------------------------------------------------------------------------- */

static const char *shape_text(Arena *a, int n, const int64_t *dim)
{
  Text t = text_new(a);
  text_char(&t, '(');
  for (int i = 0; i < n; i++) {
    if (dim[i] < 0) text_printf(&t, "%s?", i ? ", " : "");
    else text_printf(&t, "%s%" PRId64, i ? ", " : "", dim[i]);
  }
  text_char(&t, ')');
  return text_str(&t);
}

static const char *names_text(Arena *a, int n, const QuantPort *port)
{
  Text t = text_new(a);
  for (int i = 0; i < n; i++) text_printf(&t, "%s'%s'", i ? ", " : "", port[i].name);
  return text_str(&t);
}

_Noreturn static void raise_absent(Arena *a, int n, const QuantArray *array, const QuantPort *port)
{
  Text t = text_new(a);
  for (int i = 0; i < n; i++)
    text_printf(&t, "%s%s%s%s", i ? ", " : "", array[i].name ? "'" : "an array without a name",
                array[i].name ? array[i].name : "", array[i].name ? "'" : "");
  raise(arena_ctx(a), ERR_ARGUMENT, NOWHERE, "the data has nothing for the input '%s'; it has %s", port->name,
        n ? text_str(&t) : "no arrays");
}

/* The shape of one run and how many the array has; false: it does not fit. */
static bool cut(const QuantPort *port, const LatheRtTensor *t, int64_t *runs, int *ndim, int64_t *shape)
{
  int more = port->ndim >= 0 ? t->ndim - port->ndim : 0;
  /* 1: each element of the first axis is a whole input; -1: the array is one sample */
  if (more < -1 || more > 1 || (!more && !t->ndim) || (more < 0 && port->dim[0] > 1)) return false;
  *ndim = t->ndim - more;
  for (int i = 0; i < *ndim; i++) {
    int64_t said = port->ndim >= 0 ? port->dim[i] : -1;
    bool counts = more <= 0 && i == 0;
    shape[i] = counts ? (said > 0 ? said : 1) : t->shape[i + more];
    if (!counts && said >= 0 && said != shape[i]) return false;
  }
  *runs = more > 0 ? t->shape[0] : more < 0 ? 1 : t->shape[0] / shape[0];
  return more || t->shape[0] % shape[0] == 0;
}

static void cut_array(Arena *a, const QuantPort *port, const LatheRtTensor *t, struct QuantCut *c)
{
  Ctx *ctx = arena_ctx(a);
  int64_t runs;
  int64_t shape[MAX_RANK];
  int ndim;
  size_t bytes;
  LatheRtError err;
  const LatheRtDType want = code_rt_dtype(port->dtype);
  if (t->dtype.code != want.code || t->dtype.bits != want.bits)
    raise(ctx, ERR_TYPE, NOWHERE, "the data for input '%s' has another dtype than the input, which is %s", port->name,
          dtype_name(a, port->dtype));
  if (!cut(port, t, &runs, &ndim, shape))
    raise(ctx, ERR_SHAPE, NOWHERE,
          "the data for input '%s' has shape %s; the input has %s: samples are counted along the first axis",
          port->name, shape_text(a, t->ndim, t->shape),
          port->ndim >= 0 ? shape_text(a, port->ndim, port->dim) : "an unknown rank");
  if (c->run.n && (ndim != c->ndim || memcmp(shape, c->shape, (size_t)ndim * sizeof *shape) != 0))
    raise(ctx, ERR_SHAPE, NOWHERE, "the data for input '%s' has samples of shapes %s and %s; they are to be alike",
          port->name, shape_text(a, c->ndim, c->shape), shape_text(a, ndim, shape));
  c->dtype = t->dtype;
  c->ndim = ndim;
  memcpy(c->shape, shape, sizeof shape);
  LatheRtTensor one = {.dtype = t->dtype, .ndim = ndim, .shape = shape};
  if (lathe_rt_tensor_bytes(&one, &bytes, &err) != LATHE_RT_OK) raise(ctx, ERR_ARGUMENT, NOWHERE, "%s", err.text);
  for (int64_t i = 0; i < runs; i++) vec_push(a, &c->run, (const char *)t->data + t->byte_offset + (size_t)i * bytes);
}

QuantSamples quant_samples(Arena *a, int narrays, const QuantArray *array, int nports, const QuantPort *port)
{
  QuantSamples s = {.ninputs = nports};
  s.input = arena_array(a, struct QuantCut, nports + 1);
  for (int i = 0; i < narrays; i++) {
    bool known = !array[i].name;
    for (int k = 0; k < nports && !known; k++) known = !strcmp(array[i].name, port[k].name);
    if (!known)
      raise(arena_ctx(a), ERR_ARGUMENT, NOWHERE, "the data has an array '%s', but the model's inputs are %s",
            array[i].name, names_text(a, nports, port));
    if (array[i].tensor->strides)
      raise(arena_ctx(a), ERR_ARGUMENT, NOWHERE, "the data is to be contiguous; numpy.ascontiguousarray makes it so");
  }
  for (int i = 0; i < nports; i++) {
    bool any = false;
    for (int k = 0; k < narrays; k++) {
      if (array[k].name ? strcmp(array[k].name, port[i].name) != 0 : nports > 1) continue;
      any = true;
      cut_array(a, &port[i], array[k].tensor, &s.input[i]);
    }
    if (!any) raise_absent(a, narrays, array, &port[i]);
    if (!s.input[i].run.n)
      raise(arena_ctx(a), ERR_ARGUMENT, NOWHERE, "the data for input '%s' is empty: at least one sample is wanted",
            port[i].name);
    if (i && s.input[i].run.n != s.n)
      raise(arena_ctx(a), ERR_SHAPE, NOWHERE, "the data has %d samples for input '%s' and %" PRId64 " for the others",
            s.input[i].run.n, port[i].name, s.n);
    s.n = s.input[i].run.n;
  }
  s.rows = s.input[0].ndim ? s.input[0].shape[0] : 1;
  return s;
}

/* ---- runs -------------------------------------------------------------------------------------------- */

static void check(Ctx *ctx, LatheRtCode code, const LatheRtError *err)
{
  if (code == LATHE_RT_MEMORY) raise(ctx, ERR_MEMORY, NOWHERE, "%s", err->text);
  if (code != LATHE_RT_OK) raise(ctx, ERR_ARGUMENT, NOWHERE, "%s", err->text);
}

static void drop_compiled(void *c) { compiled_release(c); }
static void drop_executor(void *x) { lathe_rt_executor_free(x); }

QuantRunner quant_runner(Ctx *ctx, Module *m)
{
  QuantRunner r = {.ctx = ctx};
  LatheRtError err;
  CompileOptions o = {.target = target_host(ctx)};
  Compiled *c = driver_compile(ctx, m, &o);
  defer(ctx, drop_compiled, c);
  check(ctx, lathe_rt_executor_new(compiled_model(c), &r.executor, &err), &err);
  defer(ctx, drop_executor, r.executor);
  return r;
}

void quant_run(QuantRunner *r, const QuantSamples *s, int64_t run)
{
  LatheRtError err;
  ctx_poll(r->ctx);
  for (int i = 0; i < s->ninputs; i++) {
    struct QuantCut *c = &s->input[i];
    LatheRtTensor t = {.data = (void *)(uintptr_t)c->run.v[run],
                       .device = {LATHE_RT_CPU, 0},
                       .ndim = c->ndim,
                       .dtype = c->dtype,
                       .shape = c->shape};
    check(r->ctx, lathe_rt_set_input(r->executor, i, &t, &err), &err);
  }
  check(r->ctx, lathe_rt_run(r->executor, &err), &err);
}

const LatheRtTensor *quant_output(QuantRunner *r, int i)
{
  LatheRtError err;
  const LatheRtTensor *t;
  check(r->ctx, lathe_rt_get_output(r->executor, i, &t, &err), &err);
  return t;
}

const float *quant_floats(const LatheRtTensor *t, size_t *n)
{
  *n = 1;
  for (int32_t i = 0; i < t->ndim; i++) *n *= (size_t)t->shape[i];
  return t->dtype.code == 2 && t->dtype.bits == 32 ? (const float *)((const char *)t->data + t->byte_offset) : NULL;
}
