/* call.c: calling compiled functions.
 *
 * In come tensors and scalars from anywhere; the kernel behind sees only what its
 * code was compiled for.  A call goes through three steps: prepare (check every
 * argument, read the sizes off the shapes, take a workspace), run, finish (give the
 * workspace back).  Timing repeats the middle one. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

enum { ON_STACK = 64 };

/* A call between prepare and finish. */
typedef struct Call {
  LatheRtFunc *func;
  const LatheRtArg *arg;
  LatheRtSlot *slot; /* arguments, then sizes */
  int64_t *dim;      /* what shape() answers */
  LatheRtSlot slot_stack[ON_STACK];
  int64_t dim_stack[ON_STACK];
  void *heap;           /* slots and dims of a large call */
  Workspace *workspace; /* NULL: none needed */
  LatheRtCalls calls;
  CallState state;
} Call;

/* ---- workspaces ---------------------------------------------------------------------- */

void rt_func_init(LatheRtFunc *f, LatheRtModule *m, const LatheRtFuncInfo *info)
{
  const LatheRtModuleInfo *library = lathe_rt_module_info(m);
  f->module = m;
  f->info = info;
  f->align = library ? library->align : RT_ALIGN;
  for (int32_t i = 0; i < info->nargs; i++)
    if (info->args[i].ndim > 0) f->ndims += info->args[i].ndim;
}

static size_t head_bytes(const LatheRtFunc *f) { return f->align > sizeof(Workspace) ? f->align : sizeof(Workspace); }

void rt_func_drop(LatheRtFunc *f)
{
  for (int i = 0; i < RT_CACHED_WORKSPACES; i++) free(atomic_exchange(&f->workspace[i], NULL));
}

/* The places are taken and filled by single exchanges: no lock, so nothing to be
 * found locked in the child of a fork. */
static Workspace *workspace_take(LatheRtFunc *f, size_t bytes)
{
  for (int i = 0; i < RT_CACHED_WORKSPACES; i++) {
    if (!atomic_load_explicit(&f->workspace[i], memory_order_relaxed)) continue;
    Workspace *w = atomic_exchange(&f->workspace[i], NULL);
    if (w && w->bytes >= bytes) return w;
    free(w); /* too small: the larger one will take its place */
  }
  size_t total;
  if (__builtin_add_overflow(head_bytes(f), bytes, &total)) return NULL;
  Workspace *w = rt_cpu_alloc(total, f->align > RT_ALIGN ? f->align : RT_ALIGN);
  if (w) w->bytes = bytes;
  return w;
}

static void workspace_give(LatheRtFunc *f, Workspace *w)
{
  for (int i = 0; w && i < RT_CACHED_WORKSPACES; i++) {
    Workspace *none = NULL;
    if (atomic_compare_exchange_strong(&f->workspace[i], &none, w)) return;
  }
  free(w);
}

/* ---- checking arguments ---------------------------------------------------------------- */

void rt_shape_text(int32_t ndim, const int64_t *shape, char *out, size_t n)
{
  size_t used = (size_t)snprintf(out, n, "(");
  for (int32_t d = 0; d < ndim && used + 32 < n; d++)
    used += (size_t)snprintf(out + used, n - used, "%s%" PRId64, d ? ", " : "", shape[d]);
  snprintf(out + used, n - used, ndim == 1 ? ",)" : ")");
}

static bool is_bool(LatheRtDType t) { return t.lanes == 1 && (t.code == 6 || (t.code == 1 && t.bits == 1)); }

bool rt_same_dtype(LatheRtDType a, LatheRtDType b)
{
  if (is_bool(a) || is_bool(b)) return is_bool(a) && is_bool(b);
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

static LatheRtCode check_count(const LatheRtFuncInfo *f, int32_t n, LatheRtError *err)
{
  if (n == f->nargs) return LATHE_RT_OK;
  char names[200] = "";
  for (int32_t i = 0; i < f->nargs; i++) rt_add_name(names, sizeof names, f->args[i].name);
  return rt_fail(err, LATHE_RT_ARGUMENT, "%s: takes %d argument%s (%s), got %d", f->name, f->nargs,
                 f->nargs == 1 ? "" : "s", names, n);
}

/* An integer must fit the argument's dtype; floats round. */
static LatheRtCode check_scalar(LatheRtDType t, int64_t value, LatheRtError *err)
{
  bool is_signed = t.code == 0;
  bool is_unsigned = t.code == 1 || t.code == 6;
  if ((!is_signed && !is_unsigned) || t.bits >= 64) return LATHE_RT_OK;
  int bits = is_bool(t) ? 1 : t.bits;
  int64_t low = is_signed ? -((int64_t)1 << (bits - 1)) : 0;
  int64_t high = ((int64_t)1 << (is_signed ? bits - 1 : bits)) - 1;
  if (value >= low && value <= high) return LATHE_RT_OK;
  char name[40];
  rt_dtype_name(t, name, sizeof name);
  return rt_fail(err, LATHE_RT_ARGUMENT, "is %" PRId64 ", which %s does not hold", value, name);
}

LatheRtCode rt_check_dtype(LatheRtDType have, LatheRtDType want, LatheRtError *err)
{
  if (rt_same_dtype(have, want)) return LATHE_RT_OK;
  char a[40], b[40];
  rt_dtype_name(have, a, sizeof a);
  rt_dtype_name(want, b, sizeof b);
  return rt_fail(err, LATHE_RT_ARGUMENT, "is %s, wants %s", a, b);
}

/* Kind, dtype, rank, device: all that needs no sizes. */
static LatheRtCode check_kind(const LatheRtArgInfo *want, const LatheRtArg *arg, LatheRtError *err)
{
  const LatheRtTensor *t = arg->tensor;
  if ((want->ndim < 0) != !t)
    return rt_fail(err, LATHE_RT_ARGUMENT, t ? "is a tensor, wants a scalar" : "is a scalar, wants a tensor");
  if (!t) return check_scalar(want->dtype, arg->scalar.i, err);
  RT_TRY(rt_check_dtype(t->dtype, want->dtype, err));
  if (t->ndim != want->ndim) return rt_fail(err, LATHE_RT_ARGUMENT, "has rank %d, wants %d", t->ndim, want->ndim);
  if (t->device.type != LATHE_RT_CPU) {
    char device[32];
    rt_device_name(t->device, device, sizeof device);
    return rt_fail(err, LATHE_RT_ARGUMENT, "is on %s, wants cpu", device);
  }
  return rt_within(err, rt_tensor_check(t, err), "is no ");
}

/* Strides, null, alignment. */
static LatheRtCode check_data(const LatheRtArgInfo *want, const LatheRtTensor *t, LatheRtError *err)
{
  if (!t) return LATHE_RT_OK;
  if (!(want->flags & ARG_STRIDED) && !rt_tensor_compact(t)) {
    char strides[200];
    rt_shape_text(t->ndim, t->strides, strides, sizeof strides);
    return rt_fail(err, LATHE_RT_ARGUMENT, "has strides %s, wants a compact row-major tensor; copy it first", strides);
  }
  size_t bytes;
  RT_TRY(lathe_rt_tensor_bytes(t, &bytes, err));
  if (bytes == 0) return LATHE_RT_OK;
  if (!t->data) return rt_fail(err, LATHE_RT_ARGUMENT, "has no data (null)");
  size_t elem = rt_dtype_bytes(t->dtype) / t->dtype.lanes;
  if (((uintptr_t)t->data + t->byte_offset) % elem)
    return rt_fail(err, LATHE_RT_ARGUMENT, "starts at an address that is not a multiple of its element's %zu bytes",
                   elem);
  return LATHE_RT_OK;
}

LatheRtCode rt_of_arg(const LatheRtFuncInfo *f, int32_t i, LatheRtCode code, LatheRtError *err)
{
  if (code == LATHE_RT_OK) return code;
  return rt_within(err, code, "%s: argument %d '%s' ", f->name, i, f->args[i].name);
}

static LatheRtCode check_overlap(const LatheRtFuncInfo *f, const LatheRtArg *arg, LatheRtError *err)
{
  for (int32_t i = 0; i < f->nargs; i++) {
    if (!arg[i].tensor || !(f->args[i].flags & ARG_WRITTEN)) continue;
    uintptr_t begin, end;
    rt_tensor_extent(arg[i].tensor, &begin, &end);
    for (int32_t j = 0; j < f->nargs; j++) {
      if (j == i || !arg[j].tensor || (f->args[i].flags & f->args[j].flags & ARG_ALIAS)) continue;
      uintptr_t b, e;
      rt_tensor_extent(arg[j].tensor, &b, &e);
      if (b < end && begin < e && b != e && begin != end)
        return rt_fail(err, LATHE_RT_ARGUMENT,
                       "%s: argument %d '%s', which is written, shares memory with argument %d '%s'", f->name, i,
                       f->args[i].name, j, f->args[j].name);
    }
  }
  return LATHE_RT_OK;
}

/* ---- sizes and shapes ------------------------------------------------------------------- */

static int64_t stride_of(const LatheRtTensor *t, int32_t d)
{
  if (t->strides) return t->strides[d];
  int64_t stride = 1;
  for (int32_t i = t->ndim - 1; i > d; i--) stride *= t->shape[i];
  return stride;
}

static void fill_sizes(const LatheRtFuncInfo *f, const LatheRtArg *arg, LatheRtSlot *slot)
{
  for (int32_t k = 0; k < f->nsizes; k++) {
    const LatheRtSizeInfo *s = &f->sizes[k];
    const LatheRtTensor *t = arg[s->arg].tensor;
    int64_t *out = &slot[f->nargs + k].i;
    if (s->dim >= 0) *out = t->shape[s->dim];
    else if (s->dim != INT32_MIN) *out = stride_of(t, -1 - s->dim);
    else {
      *out = (int64_t)(t->byte_offset / rt_dtype_bytes(t->dtype));
      slot[s->arg].p = t->data;
    }
  }
}

/* "; n is 4, from argument 0 'A'" for each size that this argument's shape depends on:
 * those whose change changes the answer. */
static void explain_sizes(const LatheRtFunc *func, LatheRtSlot *slot, const int64_t *dim, int32_t arg, int32_t first,
                          char *out, size_t n)
{
  const LatheRtFuncInfo *f = func->info;
  size_t total = (size_t)func->ndims + 2;
  size_t used = 0;
  int64_t *other = malloc(total * sizeof *other);
  out[0] = 0;
  for (int32_t k = 0; other && k < f->nsizes; k++) {
    int64_t *value = &slot[f->nargs + k].i;
    ++*value;
    f->shape(slot, other);
    --*value;
    const LatheRtSizeInfo *s = &f->sizes[k];
    bool matters = memcmp(other + first, dim + first, (size_t)f->args[arg].ndim * sizeof *other) != 0;
    if (matters && used + 80 + strlen(s->name) < n)
      used += (size_t)snprintf(out + used, n - used, "%s %s is %" PRId64 ", from argument %d '%.24s'", used ? "," : ";",
                               s->name, *value, s->arg, f->args[s->arg].name);
  }
  free(other);
}

LatheRtCode rt_bind_sizes(const LatheRtFunc *func, const LatheRtArg *arg, LatheRtSlot *slot, int64_t *dim,
                          LatheRtError *err)
{
  const LatheRtFuncInfo *f = func->info;
  fill_sizes(f, arg, slot);
  if (!f->shape) return LATHE_RT_OK;
  f->shape(slot, dim);
  int32_t at = 0;
  for (int32_t i = 0; i < f->nargs; i++) {
    int32_t ndim = f->args[i].ndim;
    if (ndim <= 0) continue;
    const int64_t *have = arg[i].tensor->shape;
    if (memcmp(have, dim + at, (size_t)ndim * sizeof *have) != 0) {
      char a[110], b[110], why[180];
      rt_shape_text(ndim, have, a, sizeof a);
      rt_shape_text(ndim, dim + at, b, sizeof b);
      explain_sizes(func, slot, dim, i, at, why, sizeof why);
      return rt_of_arg(f, i, rt_fail(err, LATHE_RT_ARGUMENT, "has shape %s, wants %s%s", a, b, why), err);
    }
    at += ndim;
  }
  return LATHE_RT_OK;
}

bool rt_workspace_parts(const LatheRtFunc *f, const int64_t *dim, size_t *shared, size_t *slice)
{
  int64_t a = f->info->workspace >= 0 ? f->info->workspace : dim[f->ndims];
  int64_t b = f->info->slice >= 0 ? f->info->slice : dim[f->ndims + 1];
  return a >= 0 && b >= 0 && rt_round_up((size_t)a, f->align, shared) && rt_round_up((size_t)b, f->align, slice);
}

static LatheRtCode take_workspace(Call *c, LatheRtError *err)
{
  const LatheRtFuncInfo *f = c->func->info;
  size_t a, b, total;
  if (!rt_workspace_parts(c->func, c->dim, &a, &b) || __builtin_mul_overflow(b, (size_t)c->calls.num_workers, &b) ||
      __builtin_add_overflow(a, b, &total))
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: these sizes make its workspace more than memory can have", f->name);
  if (total == 0) return LATHE_RT_OK;
  c->workspace = workspace_take(c->func, total);
  if (!c->workspace)
    return rt_fail(err, LATHE_RT_MEMORY, "%s: out of memory for a workspace of %zu bytes", f->name, total);
  return LATHE_RT_OK;
}

/* ---- the three steps ---------------------------------------------------------------------- */

static void call_finish(Call *c)
{
  workspace_give(c->func, c->workspace);
  free(c->heap);
  rt_module_release(c->func->module);
}

static LatheRtCode call_check(Call *c, int32_t n, LatheRtError *err)
{
  const LatheRtFuncInfo *f = c->func->info;
  RT_TRY(rt_pool_check(err));
  RT_TRY(check_count(f, n, err));
  if (n && !c->arg) return rt_fail(err, LATHE_RT_ARGUMENT, "%s: the list of arguments is null", f->name);
  for (int32_t i = 0; i < n; i++) RT_TRY(rt_of_arg(f, i, check_kind(&f->args[i], &c->arg[i], err), err));
  size_t slots = (size_t)f->nargs + (size_t)f->nsizes;
  size_t dims = (size_t)c->func->ndims + 2;
  c->slot = c->slot_stack;
  c->dim = c->dim_stack;
  if (slots > ON_STACK || dims > ON_STACK) {
    c->heap = malloc(slots * sizeof(LatheRtSlot) + dims * sizeof(int64_t));
    if (!c->heap) return rt_no_memory(err, f->name);
    c->slot = c->heap;
    c->dim = (int64_t *)(c->slot + slots);
  }
  for (int32_t i = 0; i < n; i++) {
    const LatheRtTensor *t = c->arg[i].tensor;
    if (t) c->slot[i].p = (char *)t->data + (t->data ? t->byte_offset : 0);
    else c->slot[i] = c->arg[i].scalar;
  }
  RT_TRY(rt_bind_sizes(c->func, c->arg, c->slot, c->dim, err));
  for (int32_t i = 0; i < n; i++) RT_TRY(rt_of_arg(f, i, check_data(&f->args[i], c->arg[i].tensor, err), err));
  RT_TRY(check_overlap(f, c->arg, err));
  return take_workspace(c, err);
}

LatheRtCalls rt_calls(int32_t workers, CallState *state)
{
  atomic_store(&state->taken, 0);
  state->device = NULL;
  return (LatheRtCalls){.abi = LATHE_RT_ABI,
                        .num_workers = workers,
                        .parallel_for = rt_pool_for,
                        .call_packed = rt_call_packed,
                        .launch = rt_launch,
                        .user = state};
}

/* On failure nothing is held. */
static LatheRtCode call_prepare(Call *c, LatheRtFunc *func, int32_t n, const LatheRtArg *arg, LatheRtError *err)
{
  c->func = func;
  c->arg = arg;
  c->heap = NULL;
  c->workspace = NULL;
  c->calls = rt_calls(rt_pool_workers(), &c->state);
  rt_module_retain(func->module);
  LatheRtCode code = call_check(c, n, err);
  if (code != LATHE_RT_OK) call_finish(c);
  return code;
}

static LatheRtCode call_run(Call *c, LatheRtError *err)
{
  if (!c->func->info->call) return rt_func_foreign(c->func, c->func->info->nargs, c->arg, &c->calls, err);
  void *workspace = c->workspace ? (char *)c->workspace + head_bytes(c->func) : NULL;
  int32_t status = c->func->info->call(c->slot, workspace, &c->calls);
  if (status == 0) return LATHE_RT_OK;
  if (atomic_load(&c->state.taken))
    return rt_fail(err, c->state.code, "%s: %.400s", c->func->info->name, c->state.error.text);
  return rt_fail(err, LATHE_RT_KERNEL, "%s: stopped with status %d", c->func->info->name, status);
}

LatheRtCode lathe_rt_func_call(LatheRtFunc *func, int32_t n, const LatheRtArg *arg, LatheRtError *err)
{
  if (!func) return rt_null(err, "func_call");
  Call c;
  RT_TRY(call_prepare(&c, func, n, arg, err));
  LatheRtCode code = call_run(&c, err);
  call_finish(&c);
  return code;
}

const LatheRtFuncInfo *lathe_rt_func_info(const LatheRtFunc *f) { return f ? f->info : NULL; }

/* ---- timing ---------------------------------------------------------------------------------- */

double rt_now_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static LatheRtCode run_many(Call *c, int64_t number, double *seconds, LatheRtError *err)
{
  double start = rt_now_seconds();
  for (int64_t i = 0; i < number; i++) RT_TRY(call_run(c, err));
  *seconds = rt_now_seconds() - start;
  return LATHE_RT_OK;
}

static LatheRtCode time_repeats(Call *c, int64_t number, int32_t repeat, double min_seconds, double *seconds,
                                LatheRtError *err)
{
  RT_TRY(call_run(c, err)); /* warm-up */
  for (int32_t r = 0; r < repeat; r++) {
    double took;
    RT_TRY(run_many(c, number, &took, err));
    while (took < min_seconds) { /* a tenth more than should be enough, at least half as many again */
      double want = took > 0 ? 1.1 * (double)number * min_seconds / took : 1e6;
      double least = 1.5 * (double)number + 1;
      number = (int64_t)fmin(fmax(want, least), 1e9);
      RT_TRY(run_many(c, number, &took, err));
      if (number == 1000000000) break;
    }
    seconds[r] = took / (double)number;
  }
  return LATHE_RT_OK;
}

LatheRtCode lathe_rt_func_time(LatheRtFunc *func, int32_t n, const LatheRtArg *arg, int32_t number, int32_t repeat,
                               double min_repeat_ms, double *seconds, LatheRtError *err)
{
  if (!func || !seconds) return rt_null(err, "func_time");
  if (number < 1 || repeat < 1)
    return rt_fail(err, LATHE_RT_ARGUMENT, "func_time: number is %d and repeat is %d, want 1 or more", number, repeat);
  if (!(min_repeat_ms >= 0) || min_repeat_ms > 1e7)
    return rt_fail(err, LATHE_RT_ARGUMENT, "func_time: min_repeat_ms is %g, wants 0 to 1e7", min_repeat_ms);
  Call c;
  RT_TRY(call_prepare(&c, func, n, arg, err));
  LatheRtCode code = time_repeats(&c, number, repeat, 1e-3 * min_repeat_ms, seconds, err);
  call_finish(&c);
  return code;
}
