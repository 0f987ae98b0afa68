/* kernel.c: kernels as an executor calls them: slots filled from registers, checked
 * against what the kernel's code wants, one workspace for all calls of an executor. */
#include <inttypes.h>
#include <string.h>

#include "model.h"

static LatheRtCode check_argument(const LatheRtArgInfo *want, LatheRtDevice device, const Value *v, LatheRtError *err)
{
  if (v->kind != VALUE_TENSOR) return rt_fail(err, LATHE_RT_ARGUMENT, "has no tensor");
  LatheRtDType have = v->tensor.dtype;
  if (have.code == LATHE_RT_STRING) have.code = 1; /* kernels see the numbers */
  RT_TRY(rt_check_dtype(have, want->dtype, err));
  if (v->tensor.ndim != want->ndim)
    return rt_fail(err, LATHE_RT_ARGUMENT, "has rank %d, wants %d", v->tensor.ndim, want->ndim);
  if (want->flags & ARG_WRITTEN && !v->writable)
    return rt_fail(err, LATHE_RT_ARGUMENT, "is written and is a constant or an input");
  if (rt_same_device(v->tensor.device, device)) return LATHE_RT_OK;
  char a[40], b[40];
  rt_device_name(v->tensor.device, a, sizeof a);
  rt_device_name(device, b, sizeof b);
  return rt_fail(err, LATHE_RT_ARGUMENT, "is on %s, wants %s", a, b);
}

LatheRtCode rt_kernel_bind(LatheRtExecutor *x, const Ins *ins, const Value *reg, const Scalar *scalar,
                           LatheRtSlot *slot, LatheRtArg *arg, Workspaces *need, LatheRtError *err)
{
  const ModelKernel *k = &x->model->kernel[ins->index];
  const LatheRtFuncInfo *f = k->info;
  LatheRtDevice device = x->model->device[k->device].device;
  for (int32_t i = 0; i < f->nargs; i++) {
    const KernelArgRef *a = &ins->karg[i];
    const Value *v = a->kind == KARG_SCALAR ? NULL : &reg[a->index];
    if (v) RT_TRY(rt_of_arg(f, i, check_argument(&f->args[i], device, v, err), err));
    if (v) slot[i].p = v->tensor.data;
    else slot[i].i = scalar[a->index].i; /* the union's bits: a double stays one */
    arg[i] = (LatheRtArg){v ? &v->tensor : NULL, slot[i]};
  }
  RT_TRY(rt_bind_sizes(k->func, arg, slot, x->dim, err));
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
  if (__builtin_mul_overflow(need.slice, (size_t)x->calls.num_workers, &total) ||
      __builtin_add_overflow(total, need.shared, &total))
    return rt_fail(err, LATHE_RT_ARGUMENT, "a workspace is more than memory can have");
  if (total <= h->workspace_bytes) return LATHE_RT_OK;
  RT_TRY(rt_wait(h, err));
  if (h->workspace) api->free(api->user, h->device->device.id, h->workspace);
  h->workspace = NULL;
  h->workspace_bytes = 0;
  size_t align = k->func->align > h->device->align ? k->func->align : h->device->align;
  RT_TRY(rt_within(err, rt_device_alloc(api, h->device->device, total, align, &h->workspace, err), "a workspace: "));
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
static LatheRtCode kernel_failed(LatheRtExecutor *x, const ModelKernel *k, int32_t node, int32_t status,
                                 LatheRtError *err)
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
    if (status != 0) return kernel_failed(x, k, node, status, err);
  } else {
    RT_TRY(rt_within(err, rt_func_foreign(k->func, k->info->nargs, arg, &x->calls, err),
                     "node '%.100s': ", x->model->node[node].name));
  }
  if (!x->watch) return LATHE_RT_OK;
  RT_TRY(rt_wait(h, err));
  return rt_watch(x, node, rt_now_seconds() - start, nread, n, tensor, err);
}
