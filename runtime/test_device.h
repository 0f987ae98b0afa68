/* test_device.h: a device that a test can look into.
 *
 *   own memory           pages that the host may not touch: reading or writing them ends the process
 *   delayed completion   what a stream is asked for waits until somebody waits for it
 *   counted              allocations, copies, launches, streams, events, images
 *   injected failures    the n-th call that can fail, or the n-th piece of delayed work, fails
 *
 * Its type is LATHE_RT_EXT, with two ids.  An image is a text with the names of the functions that it has: "add" adds
 * two vectors, "twice" doubles one. */
#ifndef LATHE_RT_TEST_DEVICE_H
#define LATHE_RT_TEST_DEVICE_H

#include <sys/mman.h>
#include <unistd.h>

#include "test_kit.h"

/* Its own allocations never fail: the test is linked with --wrap. */
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);

typedef enum { WORK_COPY, WORK_LAUNCH, WORK_MARK, WORK_WAIT } Kind;
typedef struct Work {
  struct Work *next;
  Kind kind;
  LatheRtPlace to, from;
  size_t bytes;
  int func;
  LatheRtSlot arg[4];
  struct Event *event;
} Work;
typedef struct Stream {
  Work *first, **last;
  struct Stream *next;
} Stream;
typedef struct Event {
  Stream *stream;
  bool passed;
  int refs;
} Event;
typedef struct Block {
  struct Block *next;
  int32_t id;
  char *data;
  size_t bytes;
} Block;

static struct {
  Block *blocks;
  Stream standard[2];
  int live, streams, events, images; /* that have not been freed */
  int copies, launches, waits;
  int calls, fail_at; /* 0: none */
  int work, fail_work;
} dev;

static inline bool fails(LatheRtError *err)
{
  if (++dev.calls != dev.fail_at) return false;
  snprintf(err->text, sizeof err->text, "injected %d", dev.fail_at);
  return true;
}

static inline Block *block_of(const void *p)
{
  for (Block *b = dev.blocks; b; b = b->next)
    if ((const char *)p >= b->data && (const char *)p < b->data + b->bytes) return b;
  return NULL;
}

static inline size_t pages(size_t bytes)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

/* The device itself may touch its memory while it works. */
static inline void open_memory(bool open)
{
  for (Block *b = dev.blocks; b; b = b->next)
    assert_int_equal(mprotect(b->data, b->bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE), 0);
}

static inline LatheRtCode dev_alloc(void *user, int32_t id, size_t bytes, size_t align, void **out, LatheRtError *err)
{
  (void)user;
  assert_true(align <= 4096 && bytes > 0);
  if (fails(err)) return LATHE_RT_MEMORY;
  Block *b = __real_malloc(sizeof *b);
  assert_non_null(b);
  *b = (Block){dev.blocks, id, NULL, pages(bytes)};
  b->data = mmap(NULL, b->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (b->data == MAP_FAILED || bytes > 1 << 24) {
    if (b->data != MAP_FAILED) munmap(b->data, b->bytes);
    free(b);
    snprintf(err->text, sizeof err->text, "out of memory");
    return LATHE_RT_MEMORY;
  }
  dev.blocks = b;
  dev.live++;
  *out = b->data;
  return LATHE_RT_OK;
}

static inline bool touches(const Stream *s, const Block *b)
{
  for (const Work *w = s->first; w; w = w->next) {
    if (w->kind == WORK_COPY && (block_of(w->to.data) == b || block_of(w->from.data) == b)) return true;
    for (int i = 0; w->kind == WORK_LAUNCH && i < 3; i++)
      if (block_of(w->arg[i].p) == b) return true;
  }
  return false;
}

static Stream *streams;
/* What is freed while work on it is waiting is a mistake of the runtime's. */
static inline void dev_free(void *user, int32_t id, void *data)
{
  (void)user;
  Block *b = block_of(data);
  assert_non_null(b);
  assert_true(b->data == data && b->id == id);
  for (const Stream *s = streams; s; s = s->next) assert_false(touches(s, b));
  for (Block **at = &dev.blocks; *at; at = &(*at)->next)
    if (*at == b) {
      *at = b->next;
      break;
    }
  munmap(b->data, b->bytes);
  free(b);
  dev.live--;
}

static inline Stream *stream_of(int32_t id, void *stream)
{
  Stream *s = stream ? stream : &dev.standard[id];
  if (!s->last) s->last = &s->first;
  return s;
}

static inline Work *ask(Stream *s, Kind kind)
{
  Work *w = __real_calloc(1, sizeof *w);
  assert_non_null(w);
  w->kind = kind;
  *s->last = w;
  s->last = &w->next;
  return w;
}

static inline void drop_event(Event *e)
{
  if (--e->refs) return;
  free(e);
}

static inline void work(const Work *w)
{
  open_memory(true);
  if (w->kind == WORK_COPY) {
    memcpy((char *)w->to.data + w->to.offset, (const char *)w->from.data + w->from.offset, w->bytes);
  } else if (w->kind == WORK_LAUNCH) {
    const float *a = w->arg[0].p;
    const float *b = w->arg[1].p;
    float *out = w->func == 0 ? w->arg[2].p : w->arg[1].p;
    int64_t n = w->func == 0 ? w->arg[3].i : w->arg[2].i;
    for (int64_t i = 0; i < n; i++) out[i] = w->func == 0 ? a[i] + b[i] : 2 * a[i];
  }
  open_memory(false);
}

/* Does what has been asked for, until an event is passed (NULL: all).  False: a piece of it failed, and the rest is
 * dropped. */
static inline bool drain(Stream *s, const Event *until)
{
  bool ok = true;
  while (s->first && !(until && until->passed)) {
    Work *w = s->first;
    s->first = w->next;
    if (!s->first) s->last = &s->first;
    if (w->kind == WORK_MARK) w->event->passed = true;
    if (w->kind == WORK_WAIT && !w->event->passed) ok = drain(w->event->stream, w->event) && ok;
    if (w->event) drop_event(w->event);
    if (w->kind == WORK_COPY || w->kind == WORK_LAUNCH) {
      if (++dev.work == dev.fail_work) ok = false;
      if (ok) work(w);
    }
    free(w);
  }
  return ok;
}

static inline LatheRtCode dev_copy(void *user, LatheRtPlace to, LatheRtPlace from, size_t bytes, void *stream,
                                   LatheRtError *err)
{
  (void)user;
  LatheRtDevice d = to.device.type == LATHE_RT_EXT ? to.device : from.device;
  if (fails(err)) return LATHE_RT_DEVICE;
  assert_true(to.device.type != LATHE_RT_EXT || (block_of(to.data) && block_of(to.data)->id == to.device.id));
  assert_true(from.device.type != LATHE_RT_EXT || (block_of(from.data) && block_of(from.data)->id == from.device.id));
  Work *w = ask(stream_of(d.id, stream), WORK_COPY);
  w->to = to;
  w->from = from;
  w->bytes = bytes;
  dev.copies++;
  return LATHE_RT_OK;
}

static inline LatheRtCode dev_synchronise(void *user, int32_t id, void *stream, LatheRtError *err)
{
  (void)user;
  dev.waits++;
  bool failed = fails(err);
  if (drain(stream_of(id, stream), NULL) && !failed) return LATHE_RT_OK;
  if (!failed) snprintf(err->text, sizeof err->text, "late failure %d", dev.fail_work);
  return LATHE_RT_DEVICE;
}

static inline LatheRtCode dev_stream_new(void *user, int32_t id, void **out, LatheRtError *err)
{
  (void)user, (void)id;
  if (fails(err)) return LATHE_RT_DEVICE;
  Stream *s = __real_calloc(1, sizeof *s);
  assert_non_null(s);
  s->next = streams;
  streams = s;
  dev.streams++;
  *out = stream_of(id, s);
  return LATHE_RT_OK;
}

static inline void dev_stream_free(void *user, int32_t id, void *stream)
{
  (void)user, (void)id;
  Stream *s = stream;
  assert_null(s->first); /* nothing is under way */
  Stream **at = &streams;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  free(s);
  dev.streams--;
}

static inline LatheRtCode dev_event_record(void *user, int32_t id, void *stream, void **out, LatheRtError *err)
{
  (void)user;
  if (fails(err)) return LATHE_RT_DEVICE;
  Event *e = __real_calloc(1, sizeof *e);
  assert_non_null(e);
  e->stream = stream_of(id, stream);
  e->refs = 2;
  ask(e->stream, WORK_MARK)->event = e;
  dev.events++;
  *out = e;
  return LATHE_RT_OK;
}

static inline LatheRtCode dev_event_wait(void *user, int32_t id, void *stream, void *event, LatheRtError *err)
{
  (void)user;
  if (fails(err)) return LATHE_RT_DEVICE;
  ((Event *)event)->refs++;
  ask(stream_of(id, stream), WORK_WAIT)->event = event;
  return LATHE_RT_OK;
}

static inline void dev_event_free(void *user, int32_t id, void *event)
{
  (void)user, (void)id;
  dev.events--;
  drop_event(event);
}

static inline LatheRtCode dev_image_load(void *user, int32_t id, const void *image, size_t bytes, void **out,
                                         LatheRtError *err)
{
  (void)user, (void)id;
  if (fails(err)) return LATHE_RT_DEVICE;
  *out = strndup(image, bytes);
  assert_non_null(*out);
  dev.images++;
  return LATHE_RT_OK;
}

static inline void dev_image_free(void *user, int32_t id, void *image)
{
  (void)user, (void)id;
  free(image);
  dev.images--;
}

static const char *const dev_functions[] = {"add", "twice"};
static inline LatheRtCode dev_image_func(void *user, int32_t id, void *image, const char *name, void **out,
                                         LatheRtError *err)
{
  (void)user, (void)id;
  if (fails(err)) return LATHE_RT_DEVICE;
  for (uintptr_t i = 0; i < 2; i++)
    if (!strcmp(dev_functions[i], name) && strstr(image, name)) {
      *out = (void *)(i + 1);
      return LATHE_RT_OK;
    }
  snprintf(err->text, sizeof err->text, "the image has no '%s'", name);
  return LATHE_RT_NOT_FOUND;
}

static inline LatheRtCode dev_launch(void *user, int32_t id, void *func, const LatheRtGrid *grid, int32_t n,
                                     const LatheRtSlot *args, void *stream, LatheRtError *err)
{
  (void)user;
  if (fails(err)) return LATHE_RT_DEVICE;
  assert_true(n <= 4 && grid->grid[0] == 1 && grid->block[0] == args[n - 1].i);
  Work *w = ask(stream_of(id, stream), WORK_LAUNCH);
  w->func = (int)(uintptr_t)func - 1;
  memcpy(w->arg, args, (size_t)n * sizeof *args);
  for (int i = 0; i < n - 1; i++) assert_true(block_of(args[i].p) && block_of(args[i].p)->id == id);
  dev.launches++;
  return LATHE_RT_OK;
}

static const LatheRtDeviceApi test_device = {.size = sizeof test_device,
                                             .type = LATHE_RT_EXT,
                                             .count = 2,
                                             .align = 64,
                                             .name = "test",
                                             .arch = "t2",
                                             .alloc = dev_alloc,
                                             .free = dev_free,
                                             .copy = dev_copy,
                                             .synchronise = dev_synchronise,
                                             .stream_new = dev_stream_new,
                                             .stream_free = dev_stream_free,
                                             .event_record = dev_event_record,
                                             .event_wait = dev_event_wait,
                                             .event_free = dev_event_free,
                                             .image_load = dev_image_load,
                                             .image_free = dev_image_free,
                                             .image_func = dev_image_func,
                                             .launch = dev_launch};

/* Kernels whose tensors are there: the host launches. */
static inline int32_t start(const LatheRtCalls *rt, const char *name, int n, const LatheRtSlot *s)
{
  LatheRtGrid grid = {.grid = {1, 1, 1}, .block = {s[n - 1].i, 1, 1}};
  return rt->launch(rt, name, &grid, n, s);
}
static inline int32_t add_there(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  assert_non_null(block_of(workspace));
  return start(rt, "add", 4, s);
}
static inline int32_t twice_there(const LatheRtSlot *s, void *workspace, const LatheRtCalls *rt)
{
  (void)workspace;
  return start(rt, "twice", 3, s);
}

#endif
