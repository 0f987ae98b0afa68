/* kernel.c: kernels as an executor calls them: slots filled from registers, checked
 * against what the kernel's code wants, one workspace for all calls of an executor. */
#include <inttypes.h>
#include <string.h>

#include "model.h"

enum { ARG_WRITTEN = 1 };

static LatheRtCode wrong_device(const LatheRtFuncInfo *f, int32_t i, LatheRtDevice have, LatheRtDevice want,
                                LatheRtError *err)
{
  char a[40], b[40];
  rt_device_name(have, a, sizeof a);
  rt_device_name(want, b, sizeof b);
  return rt_fail(err, LATHE_RT_ARGUMENT, "%s: argument %d '%s' is on %s, wants %s", f->name, i, f->args[i].name, a, b);
}

static LatheRtCode bind_tensor(const LatheRtFuncInfo *f, int32_t i, LatheRtDevice device, const Value *v,
                               LatheRtSlot *slot, LatheRtError *err)
{
  const LatheRtArgInfo *want = &f->args[i];
  if (v->kind != VALUE_TENSOR)
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: argument %d '%s' has no tensor", f->name, i, want->name);
  LatheRtDType have = v->tensor.dtype;
  if (have.code == LATHE_RT_STRING) have.code = 1; /* kernels see the numbers */
  if (!rt_same_dtype(have, want->dtype) || v->tensor.ndim != want->ndim) {
    char a[40], b[40];
    rt_dtype_name(v->tensor.dtype, a, sizeof a);
    rt_dtype_name(want->dtype, b, sizeof b);
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: argument %d '%s' is %s of rank %d, wants %s of rank %d", f->name, i,
                   want->name, a, v->tensor.ndim, b, want->ndim);
  }
  if (want->flags & ARG_WRITTEN && !v->writable)
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: argument %d '%s', which is written, is a constant or an input", f->name,
                   i, want->name);
  if (!rt_same_device(v->tensor.device, device)) return wrong_device(f, i, v->tensor.device, device, err);
  slot->p = v->tensor.data;
  return LATHE_RT_OK;
}

static int64_t size_of(const LatheRtTensor *t, int32_t dim)
{
  if (dim >= 0) return t->shape[dim];
  if (dim == INT32_MIN) return 0; /* tensors start at their first element */
  int64_t stride = 1;
  for (int32_t d = t->ndim - 1; d > -1 - dim; d--) stride *= t->shape[d];
  return stride;
}

static LatheRtCode check_shapes(const LatheRtFuncInfo *f, const Ins *ins, const Value *reg, const int64_t *want,
                                LatheRtError *err)
{
  for (int32_t i = 0; i < f->nargs; i++) {
    int32_t ndim = f->args[i].ndim;
    if (ndim <= 0) continue;
    const int64_t *have = reg[ins->karg[i].index].dim;
    if (memcmp(have, want, (size_t)ndim * sizeof *have) != 0) {
      char a[110], b[110];
      rt_shape_text(ndim, have, a, sizeof a);
      rt_shape_text(ndim, want, b, sizeof b);
      return rt_fail(err, LATHE_RT_ARGUMENT, "%s: argument %d '%s' has shape %s, wants %s", f->name, i, f->args[i].name,
                     a, b);
    }
    want += ndim;
  }
  return LATHE_RT_OK;
}

LatheRtCode rt_kernel_bind(LatheRtExecutor *x, const Ins *ins, const Value *reg, const Scalar *scalar,
                           LatheRtSlot *slot, LatheRtArg *arg, Workspaces *need, LatheRtError *err)
{
  const ModelKernel *k = &x->model->kernel[ins->index];
  const LatheRtFuncInfo *f = k->info;
  LatheRtDevice device = x->model->device[k->device].device;
  for (int32_t i = 0; i < f->nargs; i++) {
    const KernelArgRef *a = &ins->karg[i];
    bool is_scalar = a->kind == KARG_SCALAR;
    if (is_scalar) slot[i].i = scalar[a->index].i; /* the union's bits: a double stays one */
    else RT_TRY(bind_tensor(f, i, device, &reg[a->index], &slot[i], err));
    if (arg) arg[i] = (LatheRtArg){is_scalar ? NULL : &reg[a->index].tensor, slot[i]};
  }
  for (int32_t i = 0; i < f->nsizes; i++)
    slot[f->nargs + i].i = size_of(&reg[ins->karg[f->sizes[i].arg].index].tensor, f->sizes[i].dim);
  if (f->shape) {
    f->shape(slot, x->dim);
    RT_TRY(check_shapes(f, ins, reg, x->dim, err));
  }
  if (!rt_workspace_parts(k->func, x->dim, &need->shared, &need->slice))
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: these sizes make its workspace more than memory can have", f->name);
  return LATHE_RT_OK;
}

void rt_kernel_tensors(const ModelKernel *k, const Ins *ins, const Value *reg, const LatheRtTensor **out,
                       int32_t *nread, int32_t *n)
{
  *n = 0;
  for (int written = 0; written < 2; written++) {
    for (int32_t i = 0; i < k->info->nargs; i++)
      if (ins->karg[i].kind == KARG_REGISTER && (k->info->args[i].flags & ARG_WRITTEN) == written)
        out[(*n)++] = &reg[ins->karg[i].index].tensor;
    if (!written) *nread = *n;
  }
}

LatheRtCode rt_workspace(LatheRtExecutor *x, const ModelKernel *k, Workspaces need, LatheRtError *err)
{
  size_t total;
  Heap *h = &x->heap[k->device];
  const LatheRtDeviceApi *api = h->device->api;
  int32_t id = h->device->device.id;
  if (__builtin_mul_overflow(need.slice, (size_t)x->calls.num_workers, &total) ||
      __builtin_add_overflow(total, need.shared, &total))
    return rt_fail(err, LATHE_RT_ARGUMENT, "a workspace is more than memory can have");
  if (total <= h->workspace_bytes) return LATHE_RT_OK;
  RT_TRY(rt_wait(h, err));
  if (h->workspace) api->free(api->user, id, h->workspace);
  h->workspace = NULL;
  h->workspace_bytes = 0;
  size_t align = k->func->align > h->device->align ? k->func->align : h->device->align;
  LatheRtError why = {""};
  LatheRtCode code = api->alloc(api->user, id, total, align, &h->workspace, &why);
  if (code != LATHE_RT_OK) {
    h->workspace = NULL;
    if (api->type != LATHE_RT_CPU) return rt_device_failed(h->device->device, code, "allocated", why.text, err);
    return rt_fail(err, code, "out of memory for a workspace of %zu bytes", total);
  }
  h->workspace_bytes = total;
  return LATHE_RT_OK;
}

LatheRtCode rt_watch(LatheRtExecutor *x, int32_t node, double seconds, int32_t nread, int32_t n,
                     const LatheRtTensor *const *tensor, LatheRtError *err)
{
  int32_t status = x->watch(x->watch_user, node, seconds, nread, tensor, n - nread, tensor + nread);
  if (status == 0) return LATHE_RT_OK;
  return rt_fail(err, LATHE_RT_KERNEL, "stopped by the watcher with status %d after node '%.200s'", status,
                 x->model->node[node].name);
}

/* What it was told by the kernel or what the kernel called; else its status. */
static LatheRtCode failed(LatheRtExecutor *x, const ModelKernel *k, int32_t node, int32_t status, LatheRtError *err)
{
  const char *name = x->model->node[node].name;
  if (atomic_load(&x->state.taken))
    return rt_fail(err, x->state.code, "node '%.100s': %.380s", name, x->state.error.text);
  return rt_fail(err, LATHE_RT_KERNEL, "node '%.100s' (%.100s): stopped with status %d", name, k->info->name, status);
}

LatheRtCode rt_kernel_run(LatheRtExecutor *x, const ModelKernel *k, int32_t node, const LatheRtSlot *slot,
                          const LatheRtArg *arg, int32_t nread, int32_t n, const LatheRtTensor *const *tensor,
                          LatheRtError *err)
{
  Heap *h = &x->heap[k->device];
  double start = x->watch ? rt_now_seconds() : 0;
  x->state.device = h;
  if (k->info->call) {
    int32_t status = k->info->call(slot, h->workspace, &x->calls);
    if (status != 0) return failed(x, k, node, status, err);
  } else {
    LatheRtError why;
    LatheRtCode code = rt_func_foreign(k->func, k->info->nargs, arg, &x->calls, &why);
    if (code != LATHE_RT_OK) return rt_fail(err, code, "node '%.100s': %.380s", x->model->node[node].name, why.text);
  }
  if (!x->watch) return LATHE_RT_OK;
  RT_TRY(rt_wait(h, err));
  return rt_watch(x, node, rt_now_seconds() - start, nread, n, tensor, err);
}
