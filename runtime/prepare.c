/* prepare.c: weights that lie in the file as they were trained come into the form that kernels want.
 *
 * The model has a function for that, made of kernels.  It is run once, when the model is loaded, on all
 * workers.  What it makes lies in one block: memory of the process, or a file in a cache that other
 * processes and later loads map.  As soon as a weight has been read for the last time its pages are given back, and
 * what only the way to earlier ones needed.
 *
 * A file of the cache is named after the model's digest:
 *   a page   magic, digest, bytes
 *   the block
 * It is made under another name and renamed when it is whole, so a file that has its name is whole.  Who makes it
 * holds a lock; others wait a while for it, and then go on without.  Nothing that goes wrong with the cache
 * stops a load: the model's cache_note says what it was. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

enum { CACHE_HEAD = 4096, MOST_PATH = 4096, WAIT_MS = 20000 };
static const char cache_magic[8] = "LATHEPW";

typedef struct CacheHead {
  char magic[8];
  uint64_t digest[2];
  uint64_t bytes;
} CacheHead;

typedef struct Preparing {
  const LatheRtLoad *how;
  uint64_t done, total; /* bytes of the weights that are read */
} Preparing;

/* ---- running the function ------------------------------------------------------------ */

/* Pages that lie wholly inside.  Only a file's: what it holds can be read again. */
static void give_pages_back(const LatheRtModel *m, const ModelConst *c)
{
#ifdef MADV_DONTNEED
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t begin = ((uintptr_t)c->stored + page - 1) / page * page;
  uintptr_t end = ((uintptr_t)c->stored + c->bytes) / page * page;
  if (rt_module_is_file(m->base) && begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
#else
  (void)m, (void)c;
#endif
}

LatheRtCode rt_prepare_done(LatheRtExecutor *x, int32_t constant, LatheRtError *err)
{
  Preparing *p = x->preparing;
  const ModelConst *c = &x->model->constant[constant];
  if (!p || c->place != CONST_STORED) return LATHE_RT_OK;
  give_pages_back(x->model, c);
  for (int32_t i = 0; i < x->model->ndevice; i++) rt_heap_trim(&x->heap[i]);
  p->done += c->bytes;
  if (p->how && p->how->progress && p->how->progress(p->how->user, p->done, p->total))
    return rt_fail(err, LATHE_RT_STOPPED, "loading was stopped while the weights were prepared");
  return LATHE_RT_OK;
}

static uint64_t bytes_read(const LatheRtModel *m)
{
  uint64_t sum = 0;
  const ModelFunc *f = &m->func[m->prepare];
  for (int32_t i = 0; i < f->nins; i++)
    if (f->ins[i].op == MO_DONE) sum += m->constant[f->ins[i].index].bytes;
  return sum;
}

static LatheRtCode fill(LatheRtModel *m, void *block, const LatheRtLoad *how, LatheRtError *err)
{
  LatheRtExecutor *x;
  Preparing p = {.how = how, .total = bytes_read(m)};
  RT_TRY(rt_pool_check(err));
  RT_TRY(rt_executor_begin(m, &x, err));
  x->prepared = block;
  x->preparing = &p;
  rt_begin_calls(x);
  LatheRtCode code = rt_vm_call(x, m->prepare, err);
  lathe_rt_executor_free(x);
  return code == LATHE_RT_STOPPED ? code : rt_within(err, code, "its weights cannot be prepared: ");
}

/* Memory that is the process's own; pages come as they are written. */
static LatheRtCode fill_memory(LatheRtModel *m, const LatheRtLoad *how, LatheRtError *err)
{
  m->prepared = rt_cpu_alloc((size_t)m->prepared_bytes, m->device[0].align);
  if (!m->prepared)
    return rt_fail(err, LATHE_RT_MEMORY, "out of memory for %llu bytes of weights",
                   (unsigned long long)m->prepared_bytes);
  return fill(m, m->prepared, how, err);
}

/* ---- the cache -------------------------------------------------------------------------- */

typedef struct Cache {
  LatheRtModel *m;
  char path[MOST_PATH]; /* of the file */
  char made[MOST_PATH]; /* while it is being made */
  char lock[MOST_PATH];
  int lock_fd;
} Cache;

__attribute__((format(printf, 2, 3))) static bool cache_note(Cache *c, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(c->m->cache_note, sizeof c->m->cache_note, fmt, ap);
  va_end(ap);
  return false;
}

/* Is it a folder that nobody else can write?  One that is absent is made. */
static bool folder_fits(Cache *c, const char *folder)
{
  struct stat st;
  if (mkdir(folder, 0700) != 0 && errno != EEXIST)
    return cache_note(c, "the folder '%.80s' cannot be made: %s", folder, strerror(errno));
  if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) return cache_note(c, "'%.80s' is not a folder", folder);
  if (st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
    return cache_note(c, "the folder '%.80s' is not yours alone to write", folder);
  return true;
}

static bool begin_cache(Cache *c, LatheRtModel *m, const char *folder)
{
  *c = (Cache){.m = m, .lock_fd = -1};
  if (!folder_fits(c, folder)) return false;
  int n = snprintf(c->path, sizeof c->path, "%s/%016llx%016llx.weights", folder, (unsigned long long)m->digest[0],
                   (unsigned long long)m->digest[1]);
  if (n < 0 || (size_t)n + 32 > sizeof c->path) return cache_note(c, "the folder's name is too long");
  snprintf(c->made, sizeof c->made, "%.4000s.%ld", c->path, (long)getpid());
  snprintf(c->lock, sizeof c->lock, "%.4000s.lock", c->path);
  return true;
}

/* Maps the file if it is there and fits; it is the user's own, since the folder is. */
static bool map_file(Cache *c)
{
  LatheRtModel *m = c->m;
  struct stat st;
  size_t bytes = (size_t)m->prepared_bytes + CACHE_HEAD;
  int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  bool fits = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
              !(st.st_mode & (S_IWGRP | S_IWOTH)) && (uint64_t)st.st_size == bytes;
  void *at = fits ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) return false;
  CacheHead head;
  memcpy(&head, at, sizeof head);
  if (memcmp(head.magic, cache_magic, 8) != 0 || memcmp(head.digest, m->digest, sizeof head.digest) != 0 ||
      head.bytes != m->prepared_bytes) {
    munmap(at, bytes);
    return false;
  }
  m->prepared = (char *)at + CACHE_HEAD;
  m->mapped_bytes = bytes;
  m->from_cache = true;
  return true;
}

/* The lock, or the file that its holder has finished meanwhile. */
static bool lock_or_map(Cache *c)
{
  struct timespec moment = {0, 5000000};
  c->lock_fd = open(c->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (c->lock_fd < 0) return cache_note(c, "the cache cannot be written: %s", strerror(errno));
  for (int ms = 0; ms < WAIT_MS; ms += 5) {
    if (flock(c->lock_fd, LOCK_EX | LOCK_NB) == 0) {
      map_file(c); /* made since we looked */
      return true;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return cache_note(c, "the cache cannot be locked: %s", strerror(errno));
    if (map_file(c)) return true;
    nanosleep(&moment, NULL);
  }
  return cache_note(c, "another process holds the cache");
}

/* A new file with room for everything: a disk that is full is noticed here, not by a signal later. */
static void *new_file(Cache *c, size_t bytes)
{
  int fd = open(c->made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    cache_note(c, "the cache cannot be written: %s", strerror(errno));
    return NULL;
  }
  int failed = posix_fallocate(fd, 0, (off_t)bytes);
  void *at = failed ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) cache_note(c, "the cache cannot be written: %s", strerror(failed ? failed : errno));
  close(fd);
  if (at != MAP_FAILED) return at;
  unlink(c->made);
  return NULL;
}

/* used: the weights are prepared, in the file; else nothing has been done. */
static LatheRtCode fill_file(Cache *c, const LatheRtLoad *how, bool *used, LatheRtError *err)
{
  LatheRtModel *m = c->m;
  size_t bytes = (size_t)m->prepared_bytes + CACHE_HEAD;
  char *at = new_file(c, bytes);
  if (!at) return LATHE_RT_OK;
  LatheRtCode code = fill(m, at + CACHE_HEAD, how, err);
  if (code != LATHE_RT_OK) {
    munmap(at, bytes);
    unlink(c->made);
    return code;
  }
  CacheHead head = {.digest = {m->digest[0], m->digest[1]}, .bytes = m->prepared_bytes};
  memcpy(head.magic, cache_magic, 8);
  memcpy(at, &head, sizeof head);
  mprotect(at, bytes, PROT_READ);
  if (rename(c->made, c->path) != 0) {
    cache_note(c, "the cache cannot be written: %s", strerror(errno));
    unlink(c->made);
  }
  m->prepared = at + CACHE_HEAD;
  m->mapped_bytes = bytes;
  *used = true;
  return LATHE_RT_OK;
}

static LatheRtCode with_cache(LatheRtModel *m, const LatheRtLoad *how, LatheRtError *err)
{
  Cache *c = malloc(sizeof *c);
  LatheRtCode code = LATHE_RT_OK;
  bool used = false;
  if (!c) return fill_memory(m, how, err);
  if (begin_cache(c, m, how->cache)) {
    used = map_file(c);
    if (!used && lock_or_map(c)) {
      used = m->from_cache;
      if (!used) code = fill_file(c, how, &used, err);
    }
    if (c->lock_fd >= 0) close(c->lock_fd); /* and unlocks */
  }
  free(c);
  return used || code != LATHE_RT_OK ? code : fill_memory(m, how, err);
}

LatheRtCode rt_model_prepare(LatheRtModel *m, const LatheRtLoad *how, LatheRtError *err)
{
  if (m->prepare < 0) return LATHE_RT_OK;
  return how && how->cache && *how->cache ? with_cache(m, how, err) : fill_memory(m, how, err);
}

void rt_model_unprepare(LatheRtModel *m)
{
  if (m->mapped_bytes) munmap((char *)m->prepared - CACHE_HEAD, m->mapped_bytes);
  else free(m->prepared);
}
