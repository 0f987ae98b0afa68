/* pool.c: the threads behind parallel loops.
 *
 * One pool per process.  A region is one parallel loop: [0, n) in `parts` contiguous
 * parts, part p for worker p; the caller is worker 0, workers 1 … parts - 1 are threads.
 * A worker takes its part from the front, half of what is left at a time.  Where another
 * is late (its core is slower or busy, or has not woken up) its back half is taken over,
 * and half of the rest: in a long region by whoever is through, in a short one by the
 * caller, and only once the others had a quarter more time than it took: what a core
 * computed lies in its cache and is best read there.  Which worker runs an iteration
 * never shows in its result.
 *
 * A worker has words of its own, on their own cache lines:
 *
 *   go    the last region it was asked to join; the caller writes it
 *   turn  that region, offered or taken: the worker takes it to join, the caller to
 *         withdraw the offer when all is done before the worker came
 *   done  the last region it finished; the worker writes it
 *   left  what is left of its part
 *
 * Both sides spin for a bounded time and then sleep on the word (futex, or a condition
 * variable).  Whoever is about to sleep raises a flag first and looks again; whoever
 * writes the word looks at the flag afterwards: one of the two always sees the other.
 * The job is written before turn and read between taking the turn and done only, so a
 * worker that a region does not need never looks at it.
 *
 * `busy` says that a region is running.  A second caller does not wait: it runs its
 * loop alone, as slot 0.  That is sound because a workspace belongs to a call, not
 * to the pool.  A loop inside a loop runs alone too, as the slot it is inside of.
 *
 * Workers are pinned, each to a CPU of its own; the caller's thread never is.  When
 * the caller has wandered onto a worker's CPU, that worker moves to the free one.
 *
 * After a fork the child has no workers; the next region starts them anew. */
#ifndef LATHE_RT_NO_THREADS
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#if defined(__linux__) && !defined(LATHE_RT_NO_FUTEX)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

enum { SPIN_NS = 100000, LONG_NS = 200000 /* of a region */, MAX_CPUS = 8192, MOST_PIECES = 64 /* of one part */ };

typedef struct Worker {
  _Alignas(64) _Atomic uint32_t go;
  _Atomic uint32_t asleep; /* the worker sleeps on go */
  _Atomic uint32_t turn;   /* 2 * region: offered; + 1: taken, by the worker or back by the caller */
  _Alignas(64) _Atomic uint32_t done;
  _Atomic uint32_t waited; /* the caller sleeps on done */
  int32_t status;          /* of the first piece that failed, and … */
  int64_t failed;          /* … where that piece began */
  int32_t slot;
  int cpu; /* -1: not pinned; the callers' alone, never read by the worker */
  pthread_t thread;
  _Alignas(64) _Atomic uint64_t left; /* pieces [low half, high half) */
} Worker;

static struct {
  atomic_int busy;
  atomic_int size;        /* workers wanted, the caller counted */
  atomic_int bad_setting; /* LATHE_NUM_THREADS makes no sense */
  atomic_uint generation; /* one more in each child of a fork */
  pthread_once_t once;
  char setting[64]; /* what LATHE_NUM_THREADS said */
  /* below: only while busy is held */
  Worker *worker; /* [size]; of [0], the caller, only what a part needs */
  int started;    /* workers that run; 0 or size - 1 */
  bool spin;
  LatheRtBody body; /* NULL: workers leave */
  void *env;
  int64_t n, piece; /* iterations in all and in a piece */
  int64_t start;    /* ns */
  int32_t parts;
  int home; /* a CPU that no worker has; -1: nothing is pinned */
} pool = {.once = PTHREAD_ONCE_INIT, .home = -1};
static int16_t cpu_owner[MAX_CPUS]; /* the slot pinned to each CPU; 0: none; only while busy is held */

/* -1: not in a parallel loop; else the slot this thread runs as. */
static _Thread_local int32_t this_slot = -1;

/* ---- waiting --------------------------------------------------------------------- */

#if defined(__linux__) && !defined(LATHE_RT_NO_FUTEX)
static void word_sleep(_Atomic uint32_t *word, uint32_t old)
{
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}
static void word_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }
static void words_reset(void) {}
#else
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
} words = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};

static void word_sleep(_Atomic uint32_t *word, uint32_t old)
{
  pthread_mutex_lock(&words.lock);
  while (atomic_load(word) == old) pthread_cond_wait(&words.changed, &words.lock);
  pthread_mutex_unlock(&words.lock);
}
static void word_wake(_Atomic uint32_t *word)
{
  (void)word;
  pthread_mutex_lock(&words.lock);
  pthread_cond_broadcast(&words.changed);
  pthread_mutex_unlock(&words.lock);
}
static void words_reset(void)
{
  pthread_mutex_init(&words.lock, NULL);
  pthread_cond_init(&words.changed, NULL);
}
#endif

static void relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits until *word is not `old`. */
static void word_wait(_Atomic uint32_t *word, uint32_t old, _Atomic uint32_t *flag, bool spin)
{
  int64_t until = 0;
  if (atomic_load_explicit(word, memory_order_acquire) != old) return;
  for (int i = 0; spin; i++) {
    relax();
    if (atomic_load_explicit(word, memory_order_acquire) != old) return;
    if (i % 64 != 63) continue;
    int64_t now = now_ns();
    if (until == 0) until = now + SPIN_NS;
    else if (now > until) break;
  }
  atomic_store(flag, 1);
  while (atomic_load(word) == old) word_sleep(word, old);
  atomic_store(flag, 0);
}

static void word_set(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *flag)
{
  atomic_store(word, value);
  if (atomic_load(flag)) word_wake(word);
}

/* ---- CPUs ------------------------------------------------------------------------ */

#if defined(__linux__)
typedef struct Cpus {
  cpu_set_t set[MAX_CPUS / (8 * sizeof(cpu_set_t))];
} Cpus;

static bool cpus_allowed(Cpus *c)
{
  memset(c, 0, sizeof *c);
  return sched_getaffinity(0, sizeof *c, c->set) == 0;
}
static bool cpus_has(const Cpus *c, int cpu) { return CPU_ISSET_S((size_t)cpu, sizeof *c, c->set); }

static void pin(pthread_t thread, int cpu)
{
  Cpus c;
  memset(&c, 0, sizeof c);
  CPU_SET_S((size_t)cpu, sizeof c, c.set);
  pthread_setaffinity_np(thread, sizeof c, c.set); /* a CPU taken away since: the kernel keeps the old set */
}
static int current_cpu(void) { return sched_getcpu(); }
static void name_thread(int slot)
{
  char name[16];
  snprintf(name, sizeof name, "lathe-%d", slot);
  pthread_setname_np(pthread_self(), name);
}
#else
typedef struct Cpus {
  int n;
} Cpus;
static bool cpus_allowed(Cpus *c)
{
  (void)c;
  return false;
}
static bool cpus_has(const Cpus *c, int cpu)
{
  (void)c;
  (void)cpu;
  return false;
}
static void pin(pthread_t thread, int cpu)
{
  (void)thread;
  (void)cpu;
}
static int current_cpu(void) { return -1; }
static void name_thread(int slot) { (void)slot; }
#endif

static int count_cpus(void)
{
  Cpus c;
  int n = 0;
  if (cpus_allowed(&c))
    for (int i = 0; i < MAX_CPUS; i++) n += cpus_has(&c, i);
  if (n == 0) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > RT_MAX_THREADS ? RT_MAX_THREADS : n;
}

/* Gives each worker a CPU, the caller's present one left free.  Nothing is pinned
 * when there are more workers than CPUs. */
static void assign_cpus(int size)
{
  Cpus c;
  memset(cpu_owner, 0, sizeof cpu_owner);
  pool.home = -1;
  bool all = size <= count_cpus() && cpus_allowed(&c);
  int here = current_cpu();
  if (all && (here < 0 || here >= MAX_CPUS || !cpus_has(&c, here))) all = false;
  for (int slot = 1, cpu = here; slot < size; slot++) {
    pool.worker[slot].cpu = -1;
    if (!all) continue;
    do cpu = (cpu + 1) % MAX_CPUS;
    while (!cpus_has(&c, cpu) || cpu == here);
    pool.worker[slot].cpu = cpu;
    cpu_owner[cpu] = (int16_t)slot;
  }
  if (all) pool.home = here;
}

/* The caller sits where a worker is pinned: the worker takes the free CPU. */
static void make_room(void)
{
  if (pool.home < 0) return;
  int cpu = current_cpu();
  if (cpu < 0 || cpu >= MAX_CPUS || cpu_owner[cpu] == 0) return;
  Worker *w = &pool.worker[cpu_owner[cpu]];
  w->cpu = pool.home;
  cpu_owner[w->cpu] = (int16_t)w->slot;
  cpu_owner[cpu] = 0;
  pool.home = cpu;
  pin(w->thread, w->cpu);
}

/* ---- size ------------------------------------------------------------------------ */

/* In the child of a fork: no workers, no region, whatever the parent was doing. */
static void after_fork(void)
{
  words_reset();
  pool.started = 0;
  atomic_fetch_add(&pool.generation, 1);
  atomic_store(&pool.busy, 0);
}

static void read_setting(void)
{
  pthread_atfork(NULL, NULL, after_fork);
  const char *text = getenv("LATHE_NUM_THREADS");
  int size = count_cpus();
  if (text && *text) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || *end || n < 1 || n > RT_MAX_THREADS) {
      snprintf(pool.setting, sizeof pool.setting, "%s", text);
      atomic_store(&pool.bad_setting, 1);
    } else {
      size = (int)n;
    }
  }
  atomic_store(&pool.size, size);
}

static int pool_size(void)
{
  pthread_once(&pool.once, read_setting);
  return atomic_load_explicit(&pool.size, memory_order_relaxed);
}

LatheRtCode rt_pool_check(LatheRtError *err)
{
  pool_size();
  if (!atomic_load_explicit(&pool.bad_setting, memory_order_relaxed)) return LATHE_RT_OK;
  return rt_fail(err, LATHE_RT_ARGUMENT, "LATHE_NUM_THREADS is '%s', wants a number of threads from 1 to %d",
                 pool.setting, RT_MAX_THREADS);
}

int32_t rt_pool_workers(void) { return this_slot >= 0 ? 1 : pool_size(); }

int32_t lathe_rt_num_threads(void) { return pool_size(); }

static bool try_enter(void)
{
  return !atomic_load_explicit(&pool.busy, memory_order_relaxed) && !atomic_exchange(&pool.busy, 1);
}
static void leave(void) { atomic_store_explicit(&pool.busy, 0, memory_order_release); }

/* ---- workers --------------------------------------------------------------------- */

static uint64_t span(uint64_t begin, uint64_t end) { return begin | end << 32; }

/* Takes the front half of what w has left, or the back half; false: nothing is left. */
static bool take(Worker *w, bool front, uint32_t *begin, uint32_t *end)
{
  uint64_t left = atomic_load(&w->left);
  for (;;) {
    uint32_t low = (uint32_t)left;
    uint32_t high = (uint32_t)(left >> 32);
    if (low >= high) return false;
    uint32_t half = low + (high - low + front) / 2;
    if (atomic_compare_exchange_weak(&w->left, &left, front ? span(half, high) : span(low, half))) {
      *begin = front ? low : half;
      *end = front ? half : high;
      return true;
    }
  }
}

static void run_pieces(Worker *w, uint32_t begin, uint32_t end)
{
  int64_t from = begin * pool.piece;
  bool last = (pool.n - 1 - from) / pool.piece < end - begin;
  int32_t status = pool.body(from, last ? pool.n : from + (end - begin) * pool.piece, w->slot, pool.env);
  if (status == 0 || (w->status && w->failed < from)) return;
  w->status = status;
  w->failed = from;
}

static void run_own(Worker *w)
{
  uint32_t begin, end;
  while (take(w, true, &begin, &end)) run_pieces(w, begin, end);
}

/* What others have left, until nobody has. */
static void help(Worker *w)
{
  uint32_t begin, end;
  for (int32_t i = 1; i < pool.parts; i++) {
    if (!take(&pool.worker[(w->slot + i) % pool.parts], false, &begin, &end)) continue;
    atomic_store(&w->left, span(begin, end));
    run_own(w);
    i = 0;
  }
}

static bool take_turn(Worker *w, uint32_t region)
{
  uint32_t offered = 2 * region;
  return atomic_compare_exchange_strong(&w->turn, &offered, offered + 1);
}

static void offer(Worker *w)
{
  uint32_t region = atomic_load_explicit(&w->go, memory_order_relaxed) + 1;
  atomic_store(&w->turn, 2 * region);
  word_set(&w->go, region, &w->asleep);
}

static void *worker_main(void *arg)
{
  Worker *w = arg;
  uint32_t seen = 0;
  name_thread(w->slot);
  for (;;) {
    word_wait(&w->go, seen, &w->asleep, pool.spin);
    seen = atomic_load_explicit(&w->go, memory_order_acquire);
    if (!take_turn(w, seen)) continue;
    if (!pool.body) return NULL;
    this_slot = w->slot;
    w->status = 0;
    run_own(w);
    if (now_ns() - pool.start > LONG_NS) help(w);
    this_slot = -1;
    word_set(&w->done, seen, &w->waited);
  }
}

static void stop_workers(void)
{
  pool.body = NULL;
  for (int slot = 1; slot <= pool.started; slot++) {
    Worker *w = &pool.worker[slot];
    offer(w);
    pthread_join(w->thread, NULL);
  }
  pool.started = 0;
  free(pool.worker);
  pool.worker = NULL;
}

/* All of them or none.  Workers block signals: those are for the program's threads. */
static bool start_workers(int size)
{
  free(pool.worker); /* left by the parent of a fork */
  pool.worker = NULL;
  void *memory;
  if (posix_memalign(&memory, 64, (size_t)size * sizeof(Worker))) return false;
  pool.worker = memset(memory, 0, (size_t)size * sizeof(Worker));
  assign_cpus(size);
  pool.spin = size <= count_cpus();
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int slot = 1;
  for (; slot < size; slot++) {
    pool.worker[slot].slot = slot;
    Worker *w = &pool.worker[slot];
    if (pthread_create(&w->thread, NULL, worker_main, w)) break;
    if (w->cpu >= 0) pin(w->thread, w->cpu);
    pool.started = slot;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (slot < size) stop_workers();
  return slot == size;
}

LatheRtCode lathe_rt_set_num_threads(int32_t n, LatheRtError *err)
{
  if (n < 1 || n > RT_MAX_THREADS)
    return rt_fail(err, LATHE_RT_ARGUMENT, "set_num_threads: %d threads, wants 1 to %d", n, RT_MAX_THREADS);
  if (this_slot >= 0)
    return rt_fail(err, LATHE_RT_ARGUMENT,
                   "set_num_threads: called from inside a parallel loop; call it before or after");
  pool_size();
  while (!try_enter()) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  stop_workers();
  atomic_store(&pool.size, n);
  atomic_store(&pool.bad_setting, 0);
  leave();
  return LATHE_RT_OK;
}

/* At exit and at unload the threads must not outlive their code. */
__attribute__((destructor)) static void drop_pool(void)
{
  if (this_slot >= 0 || !try_enter()) return; /* exit from inside a loop */
  stop_workers();
  leave();
}

/* ---- regions --------------------------------------------------------------------- */

/* On this thread alone. */
static int32_t run_alone(int32_t slot, int64_t n, LatheRtBody body, void *env)
{
  int32_t outer = this_slot;
  this_slot = slot;
  int32_t status = body(0, n, slot, env);
  this_slot = outer;
  return status;
}

/* Cuts [0, n) into pieces and gives each worker as many as the others, or one more. */
static void share_out(void)
{
  pool.piece = (pool.n - 1) / ((int64_t)pool.parts * MOST_PIECES) + 1;
  uint64_t pieces = (uint64_t)((pool.n - 1) / pool.piece + 1);
  uint64_t begin = 0;
  for (int32_t p = 0; p < pool.parts; p++) {
    uint64_t end = begin + pieces / (uint64_t)pool.parts + ((uint64_t)p < pieces % (uint64_t)pool.parts);
    atomic_store(&pool.worker[p].left, span(begin, end));
    begin = end;
  }
}

/* The caller is through with its part. */
static void wait_or_help(Worker *caller)
{
  int64_t now = now_ns();
  int64_t late = now + (now - pool.start) / 4;
  for (int32_t slot = 1; slot < pool.parts;) {
    Worker *w = &pool.worker[slot];
    if (atomic_load_explicit(&w->done, memory_order_acquire) == atomic_load_explicit(&w->go, memory_order_relaxed)) {
      slot++;
      continue;
    }
    relax();
    if (now_ns() <= late) continue;
    help(caller);
    return;
  }
}

/* Busy is held, the workers run. */
static int32_t run_region(int32_t parts, int64_t n, LatheRtBody body, void *env)
{
  unsigned generation = atomic_load(&pool.generation);
  pool.body = body;
  pool.env = env;
  pool.n = n;
  pool.parts = parts;
  share_out();
  make_room();
  pool.start = now_ns();
  for (int slot = 1; slot < parts; slot++) offer(&pool.worker[slot]);
  Worker *first = &pool.worker[0];
  this_slot = 0;
  first->status = 0;
  run_own(first);
  if (atomic_load(&pool.generation) != generation) {
    this_slot = -1;
    return LATHE_RT_KERNEL; /* the body forked: the others stayed behind */
  }
  wait_or_help(first);
  this_slot = -1;
  for (int slot = 1; slot < parts; slot++) {
    Worker *w = &pool.worker[slot];
    uint32_t region = atomic_load_explicit(&w->go, memory_order_relaxed);
    uint32_t done;
    if (take_turn(w, region)) continue;
    while ((done = atomic_load(&w->done)) != region) word_wait(&w->done, done, &w->waited, pool.spin);
    if (w->status && (first->status == 0 || w->failed < first->failed)) first = w;
  }
  int32_t status = first->status;
  leave();
  return status;
}

int32_t rt_pool_for(const LatheRtCalls *calls, int64_t n, LatheRtBody body, void *env)
{
  if (n <= 0) return 0;
  int32_t slots = calls ? calls->num_workers : RT_MAX_THREADS;
  if (this_slot >= 0) return run_alone(this_slot < slots ? this_slot : 0, n, body, env);
  if (n == 1 || slots <= 1 || pool_size() == 1 || !try_enter()) return run_alone(0, n, body, env);
  int size = pool_size(); /* does not change while busy is held */
  if (pool.started != size - 1 && !start_workers(size)) {
    leave();
    rt_fail(rt_call_failed(calls, LATHE_RT_MEMORY), LATHE_RT_MEMORY,
            "%d threads could not be started; set LATHE_NUM_THREADS lower", size - 1);
    return LATHE_RT_MEMORY;
  }
  int32_t parts = size < slots ? size : slots;
  if (parts > n) parts = (int32_t)n;
  if (parts == 1) {
    leave();
    return run_alone(0, n, body, env);
  }
  return run_region(parts, n, body, env);
}

typedef struct Copy {
  char *to;
  const char *from;
  size_t bytes;
} Copy;

enum { COPY_PIECE = 1 << 16 };

static int32_t copy_pieces(int64_t begin, int64_t end, int32_t slot, void *env)
{
  (void)slot;
  const Copy *c = env;
  size_t at = (size_t)begin * COPY_PIECE;
  size_t until = (size_t)end * COPY_PIECE;
  memcpy(c->to + at, c->from + at, (until < c->bytes ? until : c->bytes) - at);
  return 0;
}

void rt_pool_copy(const LatheRtCalls *calls, void *to, const void *from, size_t bytes)
{
  enum { WORTH_IT = 4 * COPY_PIECE };
  uintptr_t a = (uintptr_t)to;
  uintptr_t b = (uintptr_t)from;
  bool apart = (a > b ? a - b : b - a) >= bytes;
  int64_t pieces = (int64_t)((bytes + COPY_PIECE - 1) / COPY_PIECE);
  if (bytes && (bytes < WORTH_IT || !apart || rt_pool_for(calls, pieces, copy_pieces, &(Copy){to, from, bytes})))
    memmove(to, from, bytes);
}

int32_t lathe_rt_parallel_for(int64_t n, LatheRtBody body, void *env)
{
  LatheRtCode code = rt_pool_check(NULL);
  return code != LATHE_RT_OK ? (int32_t)code : rt_pool_for(NULL, n, body, env);
}
#else
typedef int RtPoolIsEmpty; /* a file of C has something in it */
#endif
