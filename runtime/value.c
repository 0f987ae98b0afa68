/* value.c: what the registers of an executor hold, and its memory.
 *
 * Blocks come in size classes, four to each power of two, so that a block is at most a
 * quarter too large; a freed block waits in the list of its class for the next tensor of
 * about its size.  A heap belongs to one executor and so to one thread. */
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

static void heap_trim(Heap *h)
{
  const LatheRtAllocator *a = lathe_rt_cpu_allocator();
  for (int c = 0; c < SIZE_CLASSES; c++)
    while (h->free[c]) {
      Storage *next = h->free[c]->next;
      a->free(a->user, h->free[c]);
      h->free[c] = next;
    }
  h->cached = 0;
}

void rt_heap_drop(Heap *h) { heap_trim(h); }

static Storage *storage_new(Heap *h, size_t bytes)
{
  if (bytes > PTRDIFF_MAX / 2) return NULL;
  size_t rounded;
  int c = size_class(bytes, &rounded);
  Storage *s = h->free[c];
  if (s) {
    h->free[c] = s->next;
    h->cached -= s->bytes;
  } else {
    const LatheRtAllocator *a = lathe_rt_cpu_allocator();
    if (h->cached > h->peak + ((size_t)1 << 26)) heap_trim(h); /* sizes that come no more */
    s = a->alloc(a->user, sizeof *s + rounded, RT_ALIGN);
    if (!s) {
      heap_trim(h);
      s = a->alloc(a->user, sizeof *s + rounded, RT_ALIGN);
    }
    if (!s) return NULL;
    s->size_class = c;
    s->bytes = rounded;
  }
  s->refs = 1;
  h->in_use += s->bytes;
  if (h->in_use > h->peak) h->peak = h->in_use;
  return s;
}

static void storage_release(Heap *h, Storage *s)
{
  if (!s || --s->refs) return;
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
static void list_release(Heap *h, List *l)
{
  if (--l->refs) return;
  l->next = NULL;
  while (l) {
    List *now = l;
    l = now->next;
    for (int32_t i = 0; i < now->n; i++) {
      Value *v = &now->item[i];
      if (v->kind == VALUE_TENSOR) storage_release(h, v->storage);
      if (!has_list(v) || --v->list->refs) continue;
      v->list->next = l;
      l = v->list;
    }
    free(now);
  }
}

void rt_value_clear(Heap *h, Value *v)
{
  if (v->kind == VALUE_TENSOR) storage_release(h, v->storage);
  if (has_list(v)) list_release(h, v->list);
  v->kind = VALUE_NONE;
  v->storage = NULL;
  v->list = NULL;
  v->input = 0;
  v->writable = false;
}

void rt_value_copy(Heap *h, Value *to, const Value *from)
{
  if (to == from) return;
  if (from->storage) from->storage->refs++;
  if (has_list(from)) from->list->refs++;
  rt_value_clear(h, to);
  to->kind = from->kind;
  to->input = from->input;
  to->writable = from->writable;
  to->storage = from->storage;
  to->list = from->list;
  if (from->kind != VALUE_TENSOR) return;
  to->tensor = from->tensor;
  memcpy(to->dim, from->dim, (size_t)from->tensor.ndim * sizeof *to->dim);
  to->tensor.shape = to->dim;
}

void rt_value_set(Value *v, LatheRtDType dtype, int32_t ndim, const int64_t *shape, void *data)
{
  v->kind = VALUE_TENSOR;
  v->tensor = (LatheRtTensor){.data = data, .device = {LATHE_RT_CPU, 0}, .ndim = ndim, .dtype = dtype, .shape = v->dim};
  if (shape != v->dim && ndim) memcpy(v->dim, shape, (size_t)ndim * sizeof *shape);
}

LatheRtCode rt_value_tensor(Heap *h, Value *to, LatheRtDType dtype, int32_t ndim, const int64_t *shape,
                            LatheRtError *err)
{
  int64_t dim[LATHE_RT_MAX_RANK];
  if (ndim) memcpy(dim, shape, (size_t)ndim * sizeof *dim);
  LatheRtTensor t = {.ndim = ndim, .dtype = dtype, .shape = dim};
  size_t bytes;
  RT_TRY(lathe_rt_tensor_bytes(&t, &bytes, err));
  rt_value_clear(h, to);
  Storage *s = storage_new(h, bytes);
  if (!s) return rt_fail(err, LATHE_RT_MEMORY, "out of memory for a tensor of %zu bytes", bytes);
  rt_value_set(to, dtype, ndim, dim, s + 1);
  to->storage = s;
  to->writable = true;
  return LATHE_RT_OK;
}

LatheRtCode rt_value_list(Heap *h, Value *to, int32_t n, LatheRtError *err)
{
  List *l = calloc(1, sizeof *l + (size_t)n * sizeof(Value));
  if (!l) return rt_fail(err, LATHE_RT_MEMORY, "out of memory for a value of %d items", n);
  l->refs = 1;
  l->n = n;
  rt_value_clear(h, to);
  to->kind = VALUE_LIST;
  to->list = l;
  return LATHE_RT_OK;
}

LatheRtCode rt_value_cell(Heap *h, Value *to, int kind, int32_t tag, int32_t n, const int32_t *arg, const Value *reg,
                          LatheRtError *err)
{
  Value made = {0};
  RT_TRY(rt_value_list(h, &made, n, err));
  made.kind = kind;
  made.list->tag = tag;
  for (int32_t i = 0; i < n; i++) rt_value_copy(h, &made.list->item[i], &reg[arg[i]]);
  rt_value_copy(h, to, &made);
  rt_value_clear(h, &made);
  return LATHE_RT_OK;
}

void rt_value_item(Heap *h, Value *to, const Value *v, int32_t i)
{
  Value item = {0};
  rt_value_copy(h, &item, &v->list->item[i]);
  rt_value_copy(h, to, &item);
  rt_value_clear(h, &item);
}

size_t rt_value_bytes(const Value *v)
{
  size_t bytes = 0;
  return lathe_rt_tensor_bytes(&v->tensor, &bytes, NULL) == LATHE_RT_OK ? bytes : 0;
}
