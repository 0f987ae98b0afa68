/* device.c: the devices of this process: tables of functions, the CPU's first. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include "internal.h"
#include "lock.h"

void rt_device_name(LatheRtDevice d, char *out, size_t n)
{
  const LatheRtDeviceApi *api = lathe_rt_device_api(d.type);
  if (api) snprintf(out, n, "%s(%d)", api->name, d.id);
  else if (d.type == LATHE_RT_CUDA) snprintf(out, n, "cuda(%d)", d.id);
  else snprintf(out, n, "device(%d, %d)", d.type, d.id);
}

/* ---- the CPU ------------------------------------------------------------------- */

/* More than the machine has: the system may promise it all the same, and kill who writes there. */
static bool exceeds_machine(size_t bytes)
{
  if (bytes < (size_t)1 << 30) return false;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 && bytes / (size_t)page >= (size_t)pages;
}

/* Blocks of a huge page or more lie on huge pages and ask for them, and take the last one
 * whole where they nearly fill it: a matrix walked down its columns touches a page a row otherwise. */
void *rt_cpu_alloc(size_t bytes, size_t align)
{
  const size_t page = (size_t)2 << 20;
  void *p;
  size_t whole;
  if (exceeds_machine(bytes)) return NULL;
  if (align < sizeof(void *)) align = sizeof(void *);
  if (rt_round_up(bytes, page, &whole) && whole - bytes <= bytes / 3) bytes = whole;
  bool huge = bytes >= page;
  if (huge && align < page) align = page;
  if (posix_memalign(&p, align, bytes ? bytes : 1)) return NULL;
#ifdef MADV_HUGEPAGE
  if (huge) madvise(p, bytes / page * page, MADV_HUGEPAGE); /* a hint: refusal changes nothing */
#endif
  return p;
}

static LatheRtCode cpu_alloc(void *user, int32_t id, size_t bytes, size_t align, void **out, LatheRtError *err)
{
  (void)user, (void)id;
  *out = rt_cpu_alloc(bytes, align);
  return *out ? LATHE_RT_OK : rt_fail(err, LATHE_RT_MEMORY, "out of memory for %zu bytes", bytes);
}

static void cpu_free(void *user, int32_t id, void *data)
{
  (void)user, (void)id;
  free(data);
}

static LatheRtCode cpu_copy(void *user, LatheRtPlace to, LatheRtPlace from, size_t bytes, void *stream,
                            LatheRtError *err)
{
  (void)user, (void)stream, (void)err;
  if (bytes) memmove((char *)to.data + to.offset, (const char *)from.data + from.offset, bytes);
  return LATHE_RT_OK;
}

static LatheRtCode cpu_synchronise(void *user, int32_t id, void *stream, LatheRtError *err)
{
  (void)user, (void)id, (void)stream, (void)err;
  return LATHE_RT_OK;
}

static const LatheRtDeviceApi cpu_api = {.size = sizeof cpu_api,
                                         .type = LATHE_RT_CPU,
                                         .count = INT32_MAX, /* all are the same memory */
                                         .align = RT_ALIGN,
                                         .name = "cpu",
                                         .arch = "",
                                         .alloc = cpu_alloc,
                                         .free = cpu_free,
                                         .copy = cpu_copy,
                                         .synchronise = cpu_synchronise};

/* ---- the others ------------------------------------------------------------------ */

enum { MAX_TYPES = 32 };
static struct {
  RtLock lock;
  LatheRtDeviceApi api[MAX_TYPES];
  int n;
} devices = {.lock = RT_LOCK_INIT};

static LatheRtCode check_api(const LatheRtDeviceApi *a, LatheRtError *err)
{
  if (a->type == LATHE_RT_CPU) return rt_fail(err, LATHE_RT_ARGUMENT, "device_add: cpu(0) is always there");
  if (!a->name || !a->arch || a->count < 1 || a->align == 0 || (a->align & (a->align - 1)))
    return rt_fail(err, LATHE_RT_ARGUMENT,
                   "device_add: a table needs a name, an arch, a count and an alignment that is a power of two");
  if (!a->alloc || !a->free || !a->copy || !a->synchronise)
    return rt_fail(err, LATHE_RT_ARGUMENT, "device_add: %s needs alloc, free, copy and synchronise", a->name);
  int streams = !!a->stream_new + !!a->stream_free + !!a->event_record + !!a->event_wait + !!a->event_free;
  int images = !!a->image_load + !!a->image_free + !!a->image_func + !!a->launch;
  if (streams % 5 || images % 4)
    return rt_fail(err, LATHE_RT_ARGUMENT, "device_add: %s has some functions for %s, but not all", a->name,
                   streams % 5 ? "streams and events" : "images");
  return LATHE_RT_OK;
}

static LatheRtDeviceApi *find_type(int32_t type)
{
  for (int i = 0; i < devices.n; i++)
    if (devices.api[i].type == type) return &devices.api[i];
  return NULL;
}

LatheRtCode lathe_rt_device_add(const LatheRtDeviceApi *given, LatheRtError *err)
{
  enum { LEAST = offsetof(LatheRtDeviceApi, launch) + sizeof given->launch };
  LatheRtDeviceApi a;
  if (!given) return rt_null(err, "device_add");
  RT_TRY(rt_take_struct(&a, sizeof a, given, given->size, LEAST, "device_add", err));
  RT_TRY(check_api(&a, err));
  LatheRtCode code = LATHE_RT_OK;
  rt_lock(&devices.lock);
  LatheRtDeviceApi *at = find_type(a.type);
  if (!at && devices.n < MAX_TYPES) at = &devices.api[devices.n++];
  if (at) *at = a;
  else code = rt_fail(err, LATHE_RT_UNSUPPORTED, "device_add: %s would be one more than %d types", a.name, MAX_TYPES);
  rt_unlock(&devices.lock);
  return code;
}

const LatheRtDeviceApi *lathe_rt_device_api(int32_t type)
{
  if (type == LATHE_RT_CPU) return &cpu_api;
  rt_lock(&devices.lock);
  const LatheRtDeviceApi *api = find_type(type);
  rt_unlock(&devices.lock);
  return api;
}

LatheRtCode rt_device_find(LatheRtDevice d, const LatheRtDeviceApi **out, LatheRtError *err)
{
  char name[40];
  *out = lathe_rt_device_api(d.type);
  if (*out && d.id >= 0 && d.id < (*out)->count) return LATHE_RT_OK;
  rt_device_name(d, name, sizeof name);
  if (*out)
    return rt_fail(err, LATHE_RT_UNSUPPORTED, "%s is not a device of this process, which has %d of them", name,
                   (*out)->count);
  return rt_fail(err, LATHE_RT_UNSUPPORTED, "%s is not a device of this process; lathe_rt_device_add adds one", name);
}

LatheRtCode rt_device_failed(LatheRtDevice d, LatheRtCode code, const char *what, const LatheRtError *why,
                             LatheRtError *err)
{
  char name[40];
  if (code == LATHE_RT_OK) return code;
  rt_device_name(d, name, sizeof name);
  return rt_fail(err, code, "%s reported a failure while it %s: %.380s", name, what, why->text);
}

LatheRtCode rt_device_alloc(const LatheRtDeviceApi *api, LatheRtDevice d, size_t bytes, size_t align, void **out,
                            LatheRtError *err)
{
  LatheRtError why;
  why.text[0] = 0;
  LatheRtCode code = api->alloc(api->user, d.id, bytes ? bytes : 1, align, out, &why);
  if (code == LATHE_RT_OK) return code;
  *out = NULL;
  if (api->type == LATHE_RT_CPU) return rt_fail(err, code, "%s", why.text);
  return rt_device_failed(d, code, "allocated", &why, err);
}

LatheRtCode rt_device_copy(const LatheRtDeviceApi *api, LatheRtDevice d, LatheRtPlace to, LatheRtPlace from,
                           size_t bytes, void *stream, LatheRtError *err)
{
  LatheRtError why;
  why.text[0] = 0;
  return rt_device_failed(d, api->copy(api->user, to, from, bytes, stream, &why), "copied", &why, err);
}

LatheRtCode rt_device_wait(const LatheRtDeviceApi *api, LatheRtDevice d, void *stream, LatheRtError *err)
{
  LatheRtError why;
  why.text[0] = 0;
  return rt_device_failed(d, api->synchronise(api->user, d.id, stream, &why), "worked", &why, err);
}

/* ---- copying ------------------------------------------------------------------------ */

static LatheRtCode copy_and_wait(const LatheRtDeviceApi *api, LatheRtDevice d, LatheRtPlace to, LatheRtPlace from,
                                 size_t bytes, LatheRtError *err)
{
  RT_TRY(rt_device_copy(api, d, to, from, bytes, NULL, err));
  return rt_device_wait(api, d, NULL, err);
}

/* Over the CPU, from one device to another that knows nothing of it. */
static LatheRtCode copy_through_cpu(const LatheRtDeviceApi *to_api, LatheRtPlace to, const LatheRtDeviceApi *from_api,
                                    LatheRtPlace from, size_t bytes, LatheRtError *err)
{
  LatheRtPlace host = {{LATHE_RT_CPU, 0}, NULL, 0};
  RT_TRY(rt_device_alloc(&cpu_api, host.device, bytes, RT_ALIGN, &host.data, err));
  LatheRtCode code = copy_and_wait(from_api, from.device, host, from, bytes, err);
  if (code == LATHE_RT_OK) code = copy_and_wait(to_api, to.device, to, host, bytes, err);
  free(host.data);
  return code;
}

LatheRtCode lathe_rt_device_copy(LatheRtPlace to, LatheRtPlace from, size_t bytes, LatheRtError *err)
{
  const LatheRtDeviceApi *a, *b;
  RT_TRY(rt_device_find(from.device, &a, err));
  RT_TRY(rt_device_find(to.device, &b, err));
  if (!bytes) return LATHE_RT_OK;
  if (!to.data || !from.data) return rt_fail(err, LATHE_RT_ARGUMENT, "device_copy: a place has no memory");
  if (b->type == LATHE_RT_CPU) return copy_and_wait(a, from.device, to, from, bytes, err);
  LatheRtCode code = copy_and_wait(b, to.device, to, from, bytes, err);
  if (code == LATHE_RT_UNSUPPORTED && a->type != LATHE_RT_CPU) return copy_through_cpu(b, to, a, from, bytes, err);
  return code;
}
