/* tensor.c: tensors in the memory of devices.
 *
 * A tensor made here is one host block [Owned | shape] and one device block for its
 * elements.  Elements narrower than a byte (bool, int4) take a byte each.  All
 * byte counts are checked for overflow before anything is allocated. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct Owned {
  LatheRtTensor tensor; /* first: the tensor's address is the block's */
  LatheRtDeviceApi api;
  int64_t shape[];
} Owned;

/* ---- names and sizes ---------------------------------------------------------- */

bool rt_round_up(size_t n, size_t align, size_t *out)
{
  if (n > SIZE_MAX - (align - 1)) return false;
  *out = (n + align - 1) / align * align;
  return true;
}

static size_t scalar_bytes(unsigned bits) { return bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : 8; }

size_t rt_dtype_bytes(LatheRtDType t)
{
  if (t.bits == 0 || t.bits > 64 || t.lanes == 0) return 0;
  return scalar_bytes(t.bits) * t.lanes;
}

void rt_dtype_name(LatheRtDType t, char *out, size_t n)
{
  static const char kinds[] = "int\0uint\0float\0handle\0bfloat\0complex\0bool\0float8_e3m4\0float8_e4m3\0"
                              "float8_e4m3b11fnuz\0float8_e4m3fn\0float8_e4m3fnuz\0float8_e5m2\0float8_e5m2fnuz\0"
                              "float8_e8m0fnu\0float6_e2m3fn\0float6_e3m2fn\0float4_e2m1fn";
  enum { BOOL = 6, NKINDS = 18 };
  const char *kind = kinds;
  for (int i = 0; i < t.code && i < NKINDS - 1; i++) kind += strlen(kind) + 1;
  char lanes[16] = "";
  if (t.lanes != 1) snprintf(lanes, sizeof lanes, "x%u", t.lanes);
  if (t.code == BOOL || (t.code == 1 && t.bits == 1)) snprintf(out, n, "bool%s", lanes);
  else if (t.code == LATHE_RT_STRING) snprintf(out, n, "string%s", lanes);
  else if (t.code >= NKINDS) snprintf(out, n, "dtype(%u, %u, %u)", t.code, t.bits, t.lanes);
  else if (t.code > BOOL || t.code == 3) snprintf(out, n, "%s%s", kind, lanes);
  else snprintf(out, n, "%s%u%s", kind, t.bits, lanes);
}

/* Bytes of a compact tensor. */
static LatheRtCode count_bytes(LatheRtDType dtype, int32_t ndim, const int64_t *shape, size_t *out, LatheRtError *err)
{
  size_t bytes = rt_dtype_bytes(dtype);
  if (bytes == 0)
    return rt_fail(err, LATHE_RT_ARGUMENT, "tensor: dtype of %u bits and %u lanes does not exist", dtype.bits,
                   dtype.lanes);
  if (ndim < 0 || ndim > LATHE_RT_MAX_RANK)
    return rt_fail(err, LATHE_RT_ARGUMENT, "tensor: rank %d, wants 0 to %d", ndim, LATHE_RT_MAX_RANK);
  if (ndim > 0 && !shape) return rt_fail(err, LATHE_RT_ARGUMENT, "tensor: rank %d but no shape", ndim);
  bool empty = false;
  for (int32_t d = 0; d < ndim; d++) {
    if (shape[d] < 0)
      return rt_fail(err, LATHE_RT_ARGUMENT, "tensor: dimension %d is %" PRId64 ", wants 0 or more", d, shape[d]);
    empty |= shape[d] == 0;
  }
  for (int32_t d = 0; d < ndim && !empty; d++)
    if (__builtin_mul_overflow(bytes, (uint64_t)shape[d], &bytes) || bytes > PTRDIFF_MAX)
      return rt_fail(err, LATHE_RT_ARGUMENT,
                     "tensor: the product of its dimensions is more bytes than memory can have");
  *out = empty ? 0 : bytes;
  return LATHE_RT_OK;
}

LatheRtCode rt_tensor_check(const LatheRtTensor *t, LatheRtError *err)
{
  size_t bytes;
  return count_bytes(t->dtype, t->ndim, t->shape, &bytes, err);
}

LatheRtCode lathe_rt_tensor_bytes(const LatheRtTensor *t, size_t *out, LatheRtError *err)
{
  if (!t || !out) return rt_null(err, "tensor_bytes");
  return count_bytes(t->dtype, t->ndim, t->shape, out, err);
}

/* Dimensions of one element may have any stride; a tensor without elements is compact. */
bool rt_tensor_compact(const LatheRtTensor *t)
{
  if (!t->strides) return true;
  for (int32_t d = 0; d < t->ndim; d++)
    if (t->shape[d] == 0) return true;
  uint64_t want = 1;
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    if (t->shape[d] != 1 && (uint64_t)t->strides[d] != want) return false;
    want *= (uint64_t)t->shape[d];
  }
  return true;
}

void rt_tensor_extent(const LatheRtTensor *t, uintptr_t *begin, uintptr_t *end)
{
  size_t elem = rt_dtype_bytes(t->dtype);
  size_t bytes = 0;
  *begin = *end = (uintptr_t)t->data + t->byte_offset;
  for (int32_t d = 0; d < t->ndim; d++)
    if (t->shape[d] == 0) return;
  if (rt_tensor_compact(t)) {
    if (count_bytes(t->dtype, t->ndim, t->shape, &bytes, NULL) == LATHE_RT_OK) *end += bytes;
    return;
  }
  for (int32_t d = 0; d < t->ndim; d++) {
    uint64_t span = (uint64_t)(t->shape[d] - 1) * (uint64_t)t->strides[d] * elem;
    if (t->strides[d] < 0) *begin += span; /* wraps: goes down */
    else *end += span;
  }
  *end += elem;
}

/* ---- making and freeing -------------------------------------------------------- */

static LatheRtCode fill_zero(const LatheRtDeviceApi *api, LatheRtPlace to, size_t bytes, LatheRtError *err)
{
  const char zeros[256] = {0};
  if (api->type == LATHE_RT_CPU) {
    memset(to.data, 0, bytes);
    return LATHE_RT_OK;
  }
  LatheRtPlace from = {.device = {LATHE_RT_CPU, 0}, .data = (void *)(uintptr_t)zeros};
  for (; to.offset < bytes; to.offset += sizeof zeros) {
    size_t left = bytes - (size_t)to.offset;
    RT_TRY(rt_device_copy(api, to.device, to, from, left < sizeof zeros ? left : sizeof zeros, NULL, err));
  }
  return rt_device_wait(api, to.device, NULL, err);
}

LatheRtCode lathe_rt_tensor_new(LatheRtDevice device, LatheRtDType dtype, int32_t ndim, const int64_t *shape,
                                LatheRtTensor **out, LatheRtError *err)
{
  if (!out) return rt_null(err, "tensor_new");
  *out = NULL;
  size_t bytes;
  const LatheRtDeviceApi *api;
  RT_TRY(count_bytes(dtype, ndim, shape, &bytes, err));
  RT_TRY(rt_device_find(device, &api, err));
  Owned *o = calloc(1, sizeof *o + (size_t)ndim * sizeof(int64_t));
  if (!o) return rt_no_memory(err, "tensor_new");
  LatheRtPlace to = {.device = device};
  LatheRtCode code = rt_device_alloc(api, device, bytes, api->align, &to.data, err);
  if (code == LATHE_RT_OK) code = fill_zero(api, to, bytes, err);
  if (code != LATHE_RT_OK) {
    if (to.data) api->free(api->user, device.id, to.data);
    free(o);
    return rt_within(err, code, "tensor_new: ");
  }
  o->api = *api;
  if (ndim) memcpy(o->shape, shape, (size_t)ndim * sizeof(int64_t));
  o->tensor = (LatheRtTensor){.data = to.data, .device = device, .ndim = ndim, .dtype = dtype, .shape = o->shape};
  *out = &o->tensor;
  return LATHE_RT_OK;
}

void lathe_rt_tensor_free(LatheRtTensor *t)
{
  if (!t) return;
  Owned *o = (Owned *)t;
  o->api.free(o->api.user, t->device.id, t->data);
  free(o);
}

/* ---- copying ------------------------------------------------------------------- */

/* Two host tensors walked together.  Dimensions from `run` on are one block of
 * `bytes` contiguous bytes in both. */
typedef struct Walk {
  int32_t ndim, run;
  size_t elem, bytes;
  const int64_t *shape;
  int64_t from[LATHE_RT_MAX_RANK], to[LATHE_RT_MAX_RANK]; /* strides, elements */
} Walk;

static void fill_strides(const LatheRtTensor *t, int64_t *strides)
{
  int64_t stride = 1;
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    strides[d] = t->strides ? t->strides[d] : stride;
    stride *= t->shape[d];
  }
}

static void walk_begin(Walk *w, const LatheRtTensor *from, const LatheRtTensor *to)
{
  w->ndim = w->run = from->ndim;
  w->shape = from->shape;
  w->elem = w->bytes = rt_dtype_bytes(from->dtype);
  fill_strides(from, w->from);
  fill_strides(to, w->to);
  int64_t compact = 1;
  while (w->run > 0) {
    int32_t d = w->run - 1;
    if (w->shape[d] != 1 && (w->from[d] != compact || w->to[d] != compact)) break;
    compact *= w->shape[d];
    w->bytes *= (size_t)w->shape[d];
    w->run--;
  }
}

static void walk_copy(const Walk *w, int32_t d, const char *from, char *to)
{
  if (d == w->run) {
    memmove(to, from, w->bytes);
    return;
  }
  ptrdiff_t step_from = w->from[d] * (ptrdiff_t)w->elem;
  ptrdiff_t step_to = w->to[d] * (ptrdiff_t)w->elem;
  for (int64_t i = 0; i < w->shape[d]; i++) walk_copy(w, d + 1, from + i * step_from, to + i * step_to);
}

static LatheRtCode check_copy(const LatheRtTensor *from, const LatheRtTensor *to, LatheRtError *err)
{
  RT_TRY(rt_tensor_check(from, err));
  RT_TRY(rt_tensor_check(to, err));
  char a[110], b[110];
  if (memcmp(&from->dtype, &to->dtype, sizeof to->dtype) != 0) {
    rt_dtype_name(from->dtype, a, sizeof a);
    rt_dtype_name(to->dtype, b, sizeof b);
    return rt_fail(err, LATHE_RT_ARGUMENT, "tensor_copy: source is %s, destination %s", a, b);
  }
  if (from->ndim == to->ndim && (!to->ndim || !memcmp(from->shape, to->shape, (size_t)to->ndim * sizeof *to->shape)))
    return LATHE_RT_OK;
  rt_shape_text(from->ndim, from->shape, a, sizeof a);
  rt_shape_text(to->ndim, to->shape, b, sizeof b);
  return rt_fail(err, LATHE_RT_ARGUMENT, "tensor_copy: source has shape %s, destination %s", a, b);
}

LatheRtCode lathe_rt_tensor_copy(const LatheRtTensor *from, LatheRtTensor *to, LatheRtError *err)
{
  if (!from || !to) return rt_null(err, "tensor_copy");
  RT_TRY(check_copy(from, to, err));
  size_t bytes;
  RT_TRY(lathe_rt_tensor_bytes(from, &bytes, err));
  if (bytes == 0) return LATHE_RT_OK;
  if (!from->data || !to->data)
    return rt_fail(err, LATHE_RT_ARGUMENT, "tensor_copy: the %s has no data", from->data ? "destination" : "source");
  if (from->device.type == LATHE_RT_CPU && to->device.type == LATHE_RT_CPU) {
    Walk w;
    walk_begin(&w, from, to);
    walk_copy(&w, 0, (const char *)from->data + from->byte_offset, (char *)to->data + to->byte_offset);
    return LATHE_RT_OK;
  }
  if (!rt_tensor_compact(from) || !rt_tensor_compact(to))
    return rt_fail(err, LATHE_RT_UNSUPPORTED,
                   "tensor_copy: a strided tensor cannot go to or from another device; "
                   "copy it to a compact one first");
  return lathe_rt_device_copy((LatheRtPlace){to->device, to->data, to->byte_offset},
                              (LatheRtPlace){from->device, from->data, from->byte_offset}, bytes, err);
}
