/* packed.c: functions that compiled code calls by name.
 *
 * A hash table under a lock.  The lock is not held while a function
 * runs, so it may register, remove and call others; whoever removes a function that
 * is being called on another thread keeps its user data alive until it returns. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "lock.h"

typedef struct Entry {
  struct Entry *next;
  LatheRtPackedFn fn;
  void *user;
  char name[];
} Entry;

enum { BUCKETS = 64 };
static struct {
  RtLock lock;
  RtOnce once;
  Entry *bucket[BUCKETS];
} registry = {.lock = RT_LOCK_INIT, .once = RT_ONCE_INIT};

/* A fork while another thread holds the lock must not leave it locked in the child. */
static void fork_lock(void) { rt_lock(&registry.lock); }
static void fork_unlock(void) { rt_unlock(&registry.lock); }
static void watch_forks(void) { rt_at_fork(fork_lock, fork_unlock, fork_unlock); }

static Entry **bucket_of(const char *name)
{
  uint32_t h = 2166136261u;
  for (const char *p = name; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
  return &registry.bucket[h % BUCKETS];
}

/* Where the entry hangs, or the place after the last. */
static Entry **find_entry(const char *name)
{
  Entry **p = bucket_of(name);
  while (*p && strcmp((*p)->name, name) != 0) p = &(*p)->next;
  return p;
}

LatheRtCode lathe_rt_register(const char *name, LatheRtPackedFn fn, void *user, LatheRtError *err)
{
  if (!name || !*name) return rt_fail(err, LATHE_RT_ARGUMENT, "register: a function needs a name");
  rt_once(&registry.once, watch_forks);
  Entry *fresh = NULL;
  if (fn) {
    size_t n = strlen(name) + 1;
    fresh = malloc(sizeof *fresh + n);
    if (!fresh) return rt_no_memory(err, "register");
    fresh->fn = fn;
    fresh->user = user;
    memcpy(fresh->name, name, n);
  }
  rt_lock(&registry.lock);
  Entry **at = find_entry(name);
  Entry *old = *at;
  if (fresh) {
    fresh->next = old ? old->next : NULL;
    *at = fresh;
  } else if (old) {
    *at = old->next;
  }
  rt_unlock(&registry.lock);
  if (!fn && !old) return rt_fail(err, LATHE_RT_NOT_FOUND, "register: there is no function '%s' to remove", name);
  free(old);
  return LATHE_RT_OK;
}

static LatheRtPackedFn find_packed(const char *name, void **user)
{
  rt_lock(&registry.lock);
  Entry *e = *find_entry(name);
  LatheRtPackedFn fn = e ? e->fn : NULL;
  *user = e ? e->user : NULL;
  rt_unlock(&registry.lock);
  return fn;
}

static LatheRtCode packed_absent(const char *name, LatheRtError *err)
{
  return rt_fail(err, LATHE_RT_NOT_FOUND, "it calls '%.200s', which is not registered; lathe_rt_register adds it",
                 name);
}

static LatheRtCode packed_failed(const char *name, int32_t status, LatheRtError *err)
{
  return rt_fail(err, LATHE_RT_KERNEL, "function '%.200s', which it calls, reported status %d", name, status);
}

int32_t rt_call_packed(const LatheRtCalls *calls, const char *name, int32_t n, const LatheRtPackedArg *arg)
{
  void *user;
  LatheRtPackedFn fn = find_packed(name, &user);
  if (!fn) return packed_absent(name, rt_call_failed(calls, LATHE_RT_NOT_FOUND));
  int32_t status = fn(user, n, arg, NULL);
  if (status != 0) packed_failed(name, status, rt_call_failed(calls, LATHE_RT_KERNEL));
  return status;
}

LatheRtCode rt_packed_result(const char *name, int32_t n, const LatheRtPackedArg *arg, LatheRtPackedArg *result,
                             LatheRtError *err)
{
  void *user;
  LatheRtPackedFn fn = find_packed(name, &user);
  if (!fn) return packed_absent(name, err);
  int32_t status = fn(user, n, arg, result);
  return status == 0 ? LATHE_RT_OK : packed_failed(name, status, err);
}

/* At unload; a process that registered functions leaves nothing behind. */
__attribute__((destructor)) static void drop_registry(void)
{
  for (int b = 0; b < BUCKETS; b++)
    while (registry.bucket[b]) {
      Entry *next = registry.bucket[b]->next;
      free(registry.bucket[b]);
      registry.bucket[b] = next;
    }
}
