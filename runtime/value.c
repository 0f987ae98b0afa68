/* value.c: what the registers of an executor hold, and its memory.
 *
 * Blocks come in size classes, four to each power of two, so that a block is at most a
 * quarter too large; a freed block waits in the list of its class for the next tensor of
 * about its size.  A heap belongs to one device of one executor and so to one thread.  Nothing of
 * ours lies in the memory of a device: what is known of a block stands in the host's. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* ---- the heap ----------------------------------------------------------------------- */

/* The class of a size and the bytes of its blocks; sizes below 256 share the first four. */
static int size_class(size_t bytes, size_t *rounded)
{
  if (bytes < 256) bytes = 256;
  int log = 63 - __builtin_clzll((unsigned long long)bytes);
  size_t step = (size_t)1 << (log - 2);
  size_t quarter = (bytes - ((size_t)1 << log) + step - 1) / step; /* 0 … 4 */
  *rounded = ((size_t)1 << log) + quarter * step;
  return 4 * log + (int)quarter;
}

/* A stream may still be using what the program has freed. */
void rt_heap_trim(Heap *h)
{
  const LatheRtDeviceApi *api = h->device->api;
  if (h->busy && rt_wait(h, NULL) != LATHE_RT_OK) h->busy = false; /* it failed: nothing is under way any more */
  for (int c = 0; c < SIZE_CLASSES; c++)
    while (h->free[c]) {
      Storage *next = h->free[c]->next;
      api->free(api->user, h->device->device.id, h->free[c]->data);
      free(h->free[c]);
      h->free[c] = next;
    }
  h->cached = 0;
}

void rt_heap_drop(Heap *h)
{
  if (!h->device) return;
  const LatheRtDeviceApi *api = h->device->api;
  rt_heap_trim(h);
  if (h->workspace) api->free(api->user, h->device->device.id, h->workspace);
  if (h->stream) api->stream_free(api->user, h->device->device.id, h->stream);
}

static LatheRtCode storage_make(Heap *h, int class, size_t bytes, Storage **out, LatheRtError *err)
{
  Storage *s = calloc(1, sizeof *s);
  if (!s) return rt_no_memory(err, "a tensor");
  if (h->cached > h->peak + ((size_t)1 << 26)) rt_heap_trim(h); /* sizes that come no more */
  LatheRtCode code = rt_device_alloc(h->device->api, h->device->device, bytes, h->device->align, &s->data, err);
  if (code == LATHE_RT_MEMORY && h->cached) {
    rt_heap_trim(h);
    code = rt_device_alloc(h->device->api, h->device->device, bytes, h->device->align, &s->data, err);
  }
  if (code != LATHE_RT_OK) {
    free(s);
    return code;
  }
  s->size_class = class;
  s->bytes = bytes;
  s->heap = h;
  *out = s;
  return LATHE_RT_OK;
}

static LatheRtCode storage_new(Heap *h, size_t bytes, Storage **out, LatheRtError *err)
{
  if (bytes > PTRDIFF_MAX / 2) return rt_fail(err, LATHE_RT_MEMORY, "out of memory for %zu bytes", bytes);
  size_t rounded;
  int c = size_class(bytes, &rounded);
  Storage *s = h->free[c];
  if (s) {
    h->free[c] = s->next;
    h->cached -= s->bytes;
  } else {
    RT_TRY(storage_make(h, c, rounded, &s, err));
  }
  s->refs = 1;
  h->in_use += s->bytes;
  if (h->in_use > h->peak) h->peak = h->in_use;
  *out = s;
  return LATHE_RT_OK;
}

static void storage_release(Storage *s)
{
  if (!s || --s->refs) return;
  Heap *h = s->heap;
  h->in_use -= s->bytes;
  h->cached += s->bytes;
  s->next = h->free[s->size_class];
  h->free[s->size_class] = s;
}

/* ---- values ----------------------------------------------------------------------------- */

static bool has_list(const Value *v)
{
  return v->kind == VALUE_LIST || v->kind == VALUE_DATA || v->kind == VALUE_CLOSURE;
}

/* Data may be nested as deep as memory allows (a list of a million cells): those whose last
 * reference goes wait in a chain, so no call is nested. */
static void list_release(List *l)
{
  if (--l->refs) return;
  l->next = NULL;
  while (l) {
    List *now = l;
    l = now->next;
    for (int32_t i = 0; i < now->n; i++) {
      Value *v = &now->item[i];
      if (v->kind == VALUE_TENSOR) storage_release(v->storage);
      if (v->kind == VALUE_OBJECT) lathe_rt_object_free(v->object);
      if (!has_list(v) || --v->list->refs) continue;
      v->list->next = l;
      l = v->list;
    }
    free(now);
  }
}

void rt_value_clear(Value *v)
{
  if (v->kind == VALUE_TENSOR) storage_release(v->storage);
  if (has_list(v)) list_release(v->list);
  if (v->kind == VALUE_OBJECT) lathe_rt_object_free(v->object);
  v->kind = VALUE_NONE;
  v->storage = NULL;
  v->list = NULL;
  v->object = NULL;
  v->writable = false;
}

void rt_value_copy(Value *to, const Value *from)
{
  if (to == from) return;
  if (from->storage) from->storage->refs++;
  if (has_list(from)) from->list->refs++;
  if (from->kind == VALUE_OBJECT) lathe_rt_object_retain(from->object);
  rt_value_clear(to);
  to->kind = from->kind;
  to->writable = from->writable;
  to->storage = from->storage;
  to->list = from->list;
  to->object = from->object;
  if (from->kind != VALUE_TENSOR) return;
  to->tensor = from->tensor;
  memcpy(to->dim, from->dim, (size_t)from->tensor.ndim * sizeof *to->dim);
  to->tensor.shape = to->dim;
}

void rt_value_set(Value *v, LatheRtDevice device, LatheRtDType dtype, int32_t ndim, const int64_t *shape, void *data)
{
  v->kind = VALUE_TENSOR;
  v->tensor = (LatheRtTensor){.data = data, .device = device, .ndim = ndim, .dtype = dtype, .shape = v->dim};
  if (shape != v->dim && ndim) memcpy(v->dim, shape, (size_t)ndim * sizeof *shape);
}

LatheRtCode rt_value_place(Value *v, uint64_t place, uint64_t room, LatheRtError *err)
{
  size_t bytes;
  LatheRtCode code = lathe_rt_tensor_bytes(&v->tensor, &bytes, err);
  if (code == LATHE_RT_OK && (place > room || bytes > room - place))
    code = rt_broken(err, "a tensor of %zu bytes at %llu leaves the %llu bytes that there are", bytes,
                     (unsigned long long)place, (unsigned long long)room);
  if (code != LATHE_RT_OK) {
    v->kind = VALUE_NONE;
    return code;
  }
  v->tensor.data = (char *)v->tensor.data + place;
  v->writable = true;
  return LATHE_RT_OK;
}

LatheRtCode rt_value_tensor(Heap *h, Value *to, LatheRtDType dtype, int32_t ndim, const int64_t *shape,
                            LatheRtError *err)
{
  int64_t dim[LATHE_RT_MAX_RANK];
  if (ndim) memcpy(dim, shape, (size_t)ndim * sizeof *dim);
  LatheRtTensor t = {.ndim = ndim, .dtype = dtype, .shape = dim};
  size_t bytes;
  RT_TRY(lathe_rt_tensor_bytes(&t, &bytes, err));
  rt_value_clear(to);
  Storage *s = NULL;
  RT_TRY(storage_new(h, bytes, &s, err));
  rt_value_set(to, h->device->device, dtype, ndim, dim, s->data);
  to->storage = s;
  to->writable = true;
  return LATHE_RT_OK;
}

LatheRtCode rt_value_list(Value *to, int32_t n, LatheRtError *err)
{
  List *l = calloc(1, sizeof *l + (size_t)n * sizeof(Value));
  if (!l) return rt_fail(err, LATHE_RT_MEMORY, "out of memory for a value of %d items", n);
  l->refs = 1;
  l->n = n;
  rt_value_clear(to);
  to->kind = VALUE_LIST;
  to->list = l;
  return LATHE_RT_OK;
}

LatheRtCode rt_value_cell(Value *to, int kind, int32_t tag, int32_t n, const int32_t *arg, const Value *reg,
                          LatheRtError *err)
{
  Value made = {0};
  RT_TRY(rt_value_list(&made, n, err));
  made.kind = kind;
  made.list->tag = tag;
  for (int32_t i = 0; i < n; i++) rt_value_copy(&made.list->item[i], &reg[arg[i]]);
  rt_value_copy(to, &made);
  rt_value_clear(&made);
  return LATHE_RT_OK;
}

void rt_value_item(Value *to, const Value *v, int32_t i)
{
  Value item = {0};
  rt_value_copy(&item, &v->list->item[i]);
  rt_value_copy(to, &item);
  rt_value_clear(&item);
}

size_t rt_value_bytes(const Value *v)
{
  size_t bytes = 0;
  return lathe_rt_tensor_bytes(&v->tensor, &bytes, NULL) == LATHE_RT_OK ? bytes : 0;
}

bool rt_value_on_host(const Value *v)
{
  if (v->kind == VALUE_TENSOR) return v->tensor.device.type == LATHE_RT_CPU;
  for (int32_t i = 0; v->kind == VALUE_LIST && i < v->list->n; i++)
    if (!rt_value_on_host(&v->list->item[i])) return false;
  return true;
}
