/* workers.c: functions lowered and compiled side by side, by LLVM.
 *
 * In: functions of any module, which nobody changes meanwhile.  Out: their Code.
 *
 * Functions are handed out one by one, in order, to the calling thread and to helpers.  Each
 * thread has a context and a module of its own and reads the functions it imports; so does each
 * kernel for LLVM.  Who compiles what changes nothing about the result, and where several
 * functions fail, the first of them in order is the one reported: all before it have been
 * handed out.
 *
 * The caller's poll function and progress are called in the caller's thread alone.  When it is
 * cut short, the helpers are told, and waited for. */
#include "build/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HELPERS = 15, STACK_BYTES = 16 << 20 };

typedef struct Work Work;

typedef struct Worker {
  Work *work;
  Ctx *ctx;
  Module *m;
  pthread_t thread;
  bool started;
  int at;       /* the function that it is busy with; n: none */
  ErrKind kind; /* what stopped it */
  Loc loc;
  char message[2048];
} Worker;

struct Work {
  int n;
  PrimFunc *const *func;
  const Target *target;
  const LowerConfig *config;
  Kernel **kernel;
  CodePart **part;
  atomic_int next, done;
  atomic_bool stop;
  Worker caller, helper[MAX_HELPERS];
  int nhelper;
  pthread_mutex_t lock; /* of busy */
  pthread_cond_t free;  /* a helper has ended */
  int busy;             /* helpers that have not ended */
};

/* ---- one worker -------------------------------------------------------------------------- */

static void compile_one(Ctx *ctx, void *arg)
{
  Worker *w = arg;
  Work *k = w->work;
  k->kernel[w->at] = build_kernel(w->m, k->func[w->at], k->target, k->config);
  k->part[w->at] = codegen_llvm_part(ctx, k->target, k->kernel[w->at], k->n == 1);
}

/* False: there is nothing left to do, or it failed. */
static bool work_once(Worker *w)
{
  Work *k = w->work;
  w->at = k->n;
  if (atomic_load(&k->stop)) return false;
  w->at = atomic_fetch_add(&k->next, 1);
  if (w->at >= k->n) return false;
  w->kind = protect(w->ctx, compile_one, w);
  if (w->kind == ERR_NONE) {
    atomic_fetch_add(&k->done, 1);
    return true;
  }
  atomic_store(&k->stop, true);
  w->loc = error_loc(w->ctx);
  snprintf(w->message, sizeof w->message, "%s", error_message(w->ctx));
  return false;
}

static void *helper_main(void *arg)
{
  Work *k = ((Worker *)arg)->work;
  while (work_once(arg)) continue;
  pthread_mutex_lock(&k->lock);
  k->busy--;
  pthread_cond_signal(&k->free);
  pthread_mutex_unlock(&k->lock);
  return NULL;
}

/* ---- helpers ------------------------------------------------------------------------------- */

/* Waits until all helpers have ended, or for a twentieth of a second; true: they have. */
static bool helpers_ended(Work *k)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 50000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&k->lock);
  int waited = 0;
  while (k->busy > 0 && waited == 0) waited = pthread_cond_timedwait(&k->free, &k->lock, &until);
  bool ended = k->busy == 0;
  pthread_mutex_unlock(&k->lock);
  return ended;
}

static void wait_for_helpers(Work *k)
{
  for (int i = 0; i < k->nhelper; i++) {
    if (k->helper[i].started) pthread_join(k->helper[i].thread, NULL);
    k->helper[i].started = false;
  }
}

/* Interrupted: a helper gives up at its next poll. */
static int helper_poll(void *arg)
{
  Work *k = arg;
  return atomic_load(&k->next) > 2 * k->n;
}

static void end_work(void *arg)
{
  Work *k = arg;
  atomic_store(&k->stop, true);
  atomic_store(&k->next, 2 * k->n + 1);
  wait_for_helpers(k);
  for (int i = 0; i < k->n; i++) code_part_free(k->part[i]);
  for (int i = 0; i < k->nhelper; i++) {
    if (k->helper[i].m) module_release(k->helper[i].m);
    ctx_free(k->helper[i].ctx);
  }
  pthread_cond_destroy(&k->free);
  pthread_mutex_destroy(&k->lock);
}

static void make_module(Ctx *ctx, void *arg)
{
  Worker *w = arg;
  w->m = module_new(ctx);
}

/* A helper that cannot be started is done without. */
static bool start_helper(Work *k)
{
  Worker *w = &k->helper[k->nhelper];
  *w = (Worker){.work = k, .ctx = ctx_new(), .at = k->n};
  if (!w->ctx) return false;
  k->nhelper++;
  ctx_set_poll(w->ctx, helper_poll, k);
  if (protect(w->ctx, make_module, w) != ERR_NONE) return false;
  pthread_attr_t attr;
  if (pthread_attr_init(&attr)) return false;
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  pthread_mutex_lock(&k->lock);
  w->started = !pthread_create(&w->thread, &attr, helper_main, w);
  if (w->started) k->busy++;
  pthread_mutex_unlock(&k->lock);
  pthread_attr_destroy(&attr);
  return w->started;
}

static void start_helpers(Work *k, int threads)
{
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int count = threads > 0 ? threads : cores > 0 ? (int)cores : 1;
  if (count > k->n) count = k->n;
  if (count > MAX_HELPERS + 1) count = MAX_HELPERS + 1;
  while (k->nhelper < count - 1 && start_helper(k)) continue;
}

/* ---- all of it --------------------------------------------------------------------------------- */

/* Raises the error of the first function that has one. */
static void report(Ctx *ctx, Work *k)
{
  Worker *first = k->caller.kind == ERR_NONE ? NULL : &k->caller;
  for (int i = 0; i < k->nhelper; i++)
    if (k->helper[i].kind != ERR_NONE && (!first || k->helper[i].at < first->at)) first = &k->helper[i];
  if (first) raise(ctx, first->kind, first->loc, "%s", first->message);
}

Code *build_side_by_side(Module *m, int n, PrimFunc *const *f, const Target *t, const BuildOptions *o)
{
  Ctx *ctx = m->ctx;
  Scope scope = scope_begin(ctx);
  Work *k = arena_new_of(scratch(ctx), Work);
  k->n = n;
  k->func = f;
  k->target = t;
  k->config = o->config;
  k->kernel = arena_array(scratch(ctx), Kernel *, n);
  k->part = arena_array(scratch(ctx), CodePart *, n);
  k->caller = (Worker){.work = k, .ctx = ctx, .m = m, .at = n};
  pthread_mutex_init(&k->lock, NULL);
  pthread_cond_init(&k->free, NULL);
  defer(ctx, end_work, k);
  start_helpers(k, o->threads);
  while (work_once(&k->caller)) {
    ctx_poll(ctx);
    if (o->progress) o->progress(o->env, atomic_load(&k->done), n);
  }
  if (k->caller.kind == ERR_CALLBACK) raise(ctx, ERR_CALLBACK, k->caller.loc, "%s", k->caller.message);
  while (!helpers_ended(k)) ctx_poll(ctx);
  wait_for_helpers(k);
  report(ctx, k);
  Code *code = codegen_llvm_join(ctx, t, n, k->kernel, k->part);
  scope_end(ctx, scope);
  return code;
}
