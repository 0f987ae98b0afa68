/* stream.c: devices that work on their own time.
 *
 * An executor has one stream on each of its devices.  What a program asks of a device is done in
 * that order, while the host goes on.  It waits where it must: before it reads what a device wrote, before its own
 * memory that a device reads may be written again, and at the end of a run.  Two devices of one type
 * wait for each other by events, without the host. */
#include <string.h>

#include "model.h"

LatheRtCode rt_heaps_begin(LatheRtExecutor *x, LatheRtError *err)
{
  const LatheRtModel *m = x->model;
  for (int32_t i = 0; i < m->ndevice; i++) {
    const ModelDevice *d = &m->device[i];
    Heap *h = &x->heap[i];
    h->device = d;
    if (!d->api->stream_new) continue;
    LatheRtError why;
    why.text[0] = 0;
    LatheRtCode code = d->api->stream_new(d->api->user, d->device.id, &h->stream, &why);
    if (code != LATHE_RT_OK) h->stream = NULL;
    RT_TRY(rt_device_failed(d->device, code, "made a stream", &why, err));
  }
  return LATHE_RT_OK;
}

Heap *rt_heap_of(LatheRtExecutor *x, LatheRtDevice d)
{
  for (int32_t i = 0; i < x->model->ndevice; i++)
    if (rt_same_device(x->heap[i].device->device, d)) return &x->heap[i];
  return NULL;
}

LatheRtCode rt_wait(Heap *h, LatheRtError *err)
{
  if (!h->busy) return LATHE_RT_OK;
  h->busy = false;
  return rt_device_wait(h->device->api, h->device->device, h->stream, err);
}

LatheRtCode rt_wait_all(LatheRtExecutor *x, LatheRtError *err)
{
  LatheRtCode first = LATHE_RT_OK;
  for (int32_t i = 0; i < x->model->ndevice; i++) {
    LatheRtCode code = rt_wait(&x->heap[i], first == LATHE_RT_OK ? err : NULL);
    if (first == LATHE_RT_OK) first = code;
  }
  return first;
}

/* What `after` does from now on comes after all that `before` has been asked for. */
static LatheRtCode order(Heap *before, Heap *after, LatheRtError *err)
{
  const LatheRtDeviceApi *api = before->device->api;
  int32_t id = before->device->device.id;
  void *event;
  if (before == after || !before->busy) return LATHE_RT_OK;
  if (!api->event_record || api != after->device->api) return rt_wait(before, err);
  LatheRtError why;
  why.text[0] = 0;
  LatheRtCode code = api->event_record(api->user, id, before->stream, &event, &why);
  if (code == LATHE_RT_OK) {
    code = api->event_wait(api->user, after->device->device.id, after->stream, event, &why);
    api->event_free(api->user, id, event);
  }
  return rt_device_failed(before->device->device, code, "marked a place", &why, err);
}

static LatheRtPlace place_of(const LatheRtTensor *t) { return (LatheRtPlace){t->device, t->data, t->byte_offset}; }

LatheRtCode rt_copy(LatheRtExecutor *x, const LatheRtTensor *to, const LatheRtTensor *from, size_t bytes,
                    LatheRtError *err)
{
  if (!bytes) return LATHE_RT_OK;
  bool to_host = to->device.type == LATHE_RT_CPU;
  bool from_host = from->device.type == LATHE_RT_CPU;
  if (to_host && from_host) {
    rt_pool_copy(&x->calls, (char *)to->data + to->byte_offset, (const char *)from->data + from->byte_offset, bytes);
    return LATHE_RT_OK;
  }
  Heap *a = rt_heap_of(x, from->device);
  Heap *b = rt_heap_of(x, to->device);
  if ((!a && !from_host) || (!b && !to_host))
    return lathe_rt_device_copy(place_of(to), place_of(from), bytes, err); /* memory of the caller's elsewhere */
  Heap *by = to_host ? a : b;
  if (!to_host && !from_host) RT_TRY(order(a, b, err));
  LatheRtCode code =
      rt_device_copy(by->device->api, by->device->device, place_of(to), place_of(from), bytes, by->stream, err);
  if (code == LATHE_RT_UNSUPPORTED && !to_host && !from_host) {
    RT_TRY(rt_wait(a, err));
    RT_TRY(rt_wait(b, err));
    return lathe_rt_device_copy(place_of(to), place_of(from), bytes, err);
  }
  if (code != LATHE_RT_OK) return code;
  by->busy = true;
  return to_host || from_host ? rt_wait(by, err) : order(b, a, err);
}

int32_t rt_launch(const LatheRtCalls *calls, const char *name, const LatheRtGrid *grid, int32_t n,
                  const LatheRtSlot *arg)
{
  CallState *state = calls->user;
  Heap *h = state->device;
  LatheRtError why;
  why.text[0] = 0;
  if (!h || !h->device->image)
    return rt_fail(rt_call_failed(calls, LATHE_RT_UNSUPPORTED), LATHE_RT_UNSUPPORTED,
                   "it starts '%.200s' on a device, and the model has no image for one", name);
  const LatheRtDeviceApi *api = h->device->api;
  LatheRtDevice d = h->device->device;
  void *func;
  LatheRtCode code = api->image_func(api->user, d.id, h->device->image, name, &func, &why);
  if (code == LATHE_RT_OK) code = api->launch(api->user, d.id, func, grid, n, arg, h->stream, &why);
  if (code == LATHE_RT_OK) h->busy = true;
  else rt_device_failed(d, code, "launched", &why, rt_call_failed(calls, code));
  return code;
}
