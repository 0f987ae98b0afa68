/* measure.c: candidates built and timed in child processes.
 *
 * A child is a fork: it has the module and the compiler already, builds the base and one candidate after the other,
 * and tells over a pipe how far it is, a line each:
 *   built I           candidate I runs now
 *   fail STATUS TEXT  it will not
 *   done S B S B …    seconds of the candidate and of the base, pair by pair
 * When it ends in the middle that is a crash of the candidate it was at, when nothing is heard for too long a hang; the
 * candidates behind it get a new child. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tune/tune.h"

/* ---- a build that runs: in the child ------------------------------------------------------------------- */

typedef struct Runner {
  Ctx *ctx;
  Compiled *compiled;
  LatheRtExecutor *ex;
  const char *workload;
  double kernel; /* seconds of the workload's kernels in this run */
  double *node;  /* NULL, or of each node */
  /* a loop program instead of a model */
  Built *built;
  LatheRtFunc *func;
  int narg;
  LatheRtArg *arg;
} Runner;

static int32_t watch(void *user, int32_t node, double seconds, int32_t nin, const LatheRtTensor *const *in,
                     int32_t nout, const LatheRtTensor *const *out)
{
  Runner *r = user;
  (void)nin, (void)in, (void)nout, (void)out;
  if (r->node) r->node[node] = seconds;
  const char *plan = r->workload ? compiled_node_plan(r->compiled, node) : NULL;
  size_t n = plan ? strlen(r->workload) : 0;
  if (plan && !strncmp(plan, r->workload, n) && plan[n] == ' ') r->kernel += seconds;
  return 0;
}

static void check(Ctx *ctx, LatheRtCode code, const LatheRtError *err)
{
  if (code != LATHE_RT_OK) raise(ctx, ERR_IO, NOWHERE, "%s", err->text);
}

static uint64_t next_random(uint64_t *seed)
{
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

static DType dtype_of(LatheRtDType t)
{
  static const uint8_t codes[] = {[0] = DT_INT, [1] = DT_UINT, [2] = DT_FLOAT, [4] = DT_BFLOAT};
  if (t.code == 6) return DT_BOOL;
  return t.code <= 4 && t.code != 3 ? DTYPE(codes[t.code], t.bits) : DT_NONE;
}

static size_t count_of(const LatheRtTensor *t)
{
  size_t n = 1;
  for (int d = 0; d < t->ndim; d++) n *= (size_t)t->shape[d];
  return n;
}

/* Floats around zero; whole numbers of 8 bits of any value, others 0 to 2, since they may be places. */
static void fill(LatheRtTensor *t, uint64_t seed)
{
  DType dtype = dtype_of(t->dtype);
  size_t size = (size_t)dtype_bytes(dtype);
  size_t n = count_of(t);
  for (size_t i = 0; i < n; i++) {
    uint64_t r = next_random(&seed) >> 16;
    double f = (double)(r % 4001) / 2000 - 1;
    int64_t whole = dtype_is_bool(dtype) ? (int64_t)(r % 2) : dtype.bits == 8 ? (int64_t)(r % 128) : (int64_t)(r % 3);
    Value v = dtype_is_float(dtype) ? value_float(dtype, f) : value_int(dtype, whole);
    value_store(v, (char *)t->data + i * size);
  }
}

static void set_inputs(Ctx *ctx, const LatheRtModel *model, LatheRtExecutor *ex)
{
  const LatheRtPort *port;
  LatheRtError err;
  int n = lathe_rt_model_inputs(model, &port);
  for (int i = 0; i < n; i++) {
    bool open = port[i].kind != LATHE_RT_PORT_TENSOR || port[i].ndim < 0;
    for (int d = 0; d < port[i].ndim; d++) open |= port[i].shape[d] < 0;
    if (open || dtype_eq(dtype_of(port[i].dtype), DT_NONE))
      raise(ctx, ERR_UNSUPPORTED, NOWHERE,
            "input '%s' is %s: tuning wants tensors of numbers whose sizes are known; say them where the model is "
            "imported (--shape)",
            port[i].name, port[i].type);
    LatheRtTensor *t;
    check(ctx,
          lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CPU, 0}, port[i].dtype, port[i].ndim, port[i].shape, &t, &err),
          &err);
    fill(t, 88172645463325252u + (uint64_t)i);
    check(ctx, lathe_rt_set_input(ex, i, t, &err), &err);
    lathe_rt_tensor_free(t);
  }
}

static void start_runner(Runner *r, int threads)
{
  LatheRtError err;
  LatheRtModel *model = compiled_model(r->compiled);
  check(r->ctx, lathe_rt_executor_new(model, &r->ex, &err), &err);
  check(r->ctx, lathe_rt_executor_set_threads(r->ex, threads, &err), &err);
  set_inputs(r->ctx, model, r->ex);
  if (r->workload || r->node) lathe_rt_executor_watch(r->ex, watch, r);
}

static void build_runner(Runner *r, const MeasureSpec *s, Compiled *built, const char *lines, int threads)
{
  r->workload = s->workload;
  if (built) {
    r->compiled = compiled_retain(built);
    start_runner(r, threads);
    return;
  }
  s->passes->impl.tuned = lines;
  s->passes->impl.log = NULL;
  r->compiled = driver_compile(r->ctx, s->m, &(CompileOptions){.target = s->target, .passes = s->passes});
  if (s->workload && lines) { /* is it what was asked for? */
    bool found = false;
    for (int i = 0; i < 64 && !found; i++) {
      const char *plan = compiled_node_plan(r->compiled, i);
      found = plan && !strncmp(plan, lines, strlen(plan)) && strchr(" \n", lines[strlen(plan)]);
    }
    if (!found) raise(r->ctx, ERR_ARGUMENT, NOWHERE, "the plan is not possible for the kernel alone");
  }
  start_runner(r, threads);
}

/* ---- loop programs --------------------------------------------------------------------------------------- */

static LatheRtDType rt_dtype(DType t)
{
  static const uint8_t codes[] = {[DT_INT] = 0, [DT_UINT] = 1, [DT_FLOAT] = 2, [DT_BFLOAT] = 4};
  return (LatheRtDType){dtype_is_bool(t) ? 6 : codes[t.code], (uint8_t)(dtype_is_bool(t) ? 8 : t.bits), 1};
}

static LatheRtTensor *make_buffer(Ctx *ctx, const PrimFunc *f, const Param *p)
{
  int64_t shape[MAX_RANK];
  LatheRtError err;
  bool fits = p->buffer && (dtype_is_float(p->buffer->dtype) || dtype_is_int(p->buffer->dtype));
  for (int d = 0; fits && d < p->buffer->ndim; d++) {
    fits = p->buffer->shape[d]->kind == E_INT;
    if (fits) shape[d] = p->buffer->shape[d]->u.i;
  }
  if (!fits)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "tuning wants parameters that are buffers of numbers whose sizes are known; %s of "
          "%s is none",
          p->var->name, f->name);
  LatheRtTensor *t;
  check(ctx,
        lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CPU, 0}, rt_dtype(p->buffer->dtype), p->buffer->ndim, shape, &t,
                            &err),
        &err);
  return t;
}

static void fill_buffers(Runner *r)
{
  for (int i = 0; i < r->narg; i++)
    fill((LatheRtTensor *)(uintptr_t)r->arg[i].tensor, 88172645463325252u + (uint64_t)i);
}

static void build_func(Runner *r, const PrimFunc *f, const Target *target)
{
  LatheRtError err;
  if (!f) raise(r->ctx, ERR_ARGUMENT, NOWHERE, "it could not be made");
  r->arg = mem_alloc(r->ctx, ((size_t)f->nparam + 1) * sizeof *r->arg);
  for (int i = 0; i < f->nparam; i++) {
    r->arg[i] = (LatheRtArg){.tensor = make_buffer(r->ctx, f, &f->param[i])};
    r->narg++;
  }
  PrimFunc *one = (PrimFunc *)(uintptr_t)f;
  r->built = build_funcs(r->ctx, 1, &one, target, NULL);
  check(r->ctx, lathe_rt_module_func(built_module(r->built), func_symbol(f), &r->func, &err), &err);
  fill_buffers(r);
}

/* ---- runs of either -------------------------------------------------------------------------------------- */

static double run_once(Runner *r)
{
  LatheRtError err;
  r->kernel = 0;
  double start = clock_seconds();
  if (r->func) check(r->ctx, lathe_rt_func_call(r->func, r->narg, r->arg, &err), &err);
  else check(r->ctx, lathe_rt_run(r->ex, &err), &err);
  double whole = clock_seconds() - start;
  return r->workload ? r->kernel : whole;
}

static void drop_runner(Runner *r)
{
  if (r->ex) lathe_rt_executor_free(r->ex);
  if (r->compiled) compiled_release(r->compiled);
  if (r->built) built_release(r->built);
  for (int i = 0; i < r->narg; i++) lathe_rt_tensor_free((LatheRtTensor *)(uintptr_t)r->arg[i].tensor);
  if (r->arg) mem_free(r->ctx, r->arg);
  *r = (Runner){.ctx = r->ctx};
}

/* ---- checking -------------------------------------------------------------------------------------------- */

/* How far apart numbers may be, as a part of the largest. */
static double tolerance(DType t)
{
  if (!dtype_is_float(t)) return 0;
  return t.bits == 64 ? 1e-8 : t.bits == 32 ? 2e-3 : 5e-2;
}

static double element(const LatheRtTensor *t, DType dtype, size_t i)
{
  Value v = value_load(dtype, (const char *)t->data + t->byte_offset + i * (size_t)dtype_bytes(dtype));
  return dtype_is_float(dtype) ? v.f : (double)v.i;
}

/* "": they agree. */
static void compare_tensors(int k, const LatheRtTensor *a, const LatheRtTensor *b, char *why, size_t size)
{
  DType t = dtype_of(a->dtype);
  size_t count = count_of(a);
  double largest = 0;
  for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(element(a, t, i)));
  for (size_t i = 0; i < count && !*why; i++) {
    double x = element(a, t, i);
    double y = element(b, t, i);
    if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance(t) * largest) continue;
    snprintf(why, size, "element %zu of output %d is %.6g, untuned %.6g", i, k, y, x);
  }
}

/* Of models the outputs, of loop programs every buffer, after one run on fresh numbers. */
static void compare_outputs(Runner *base, Runner *r, bool base_ran, char *why, size_t size)
{
  const LatheRtPort *port;
  LatheRtError err;
  *why = 0;
  if (base->func) {
    fill_buffers(r);
    run_once(r);
    if (!base_ran) fill_buffers(base), run_once(base);
    if (base->narg != r->narg) snprintf(why, size, "it takes %d buffers, the base %d", r->narg, base->narg);
    for (int k = 0; k < base->narg && !*why; k++) compare_tensors(k, base->arg[k].tensor, r->arg[k].tensor, why, size);
    return;
  }
  int n = lathe_rt_model_outputs(compiled_model(base->compiled), &port);
  for (int k = 0; k < n && !*why; k++) {
    const LatheRtTensor *a, *b;
    if (port[k].kind != LATHE_RT_PORT_TENSOR || dtype_eq(dtype_of(port[k].dtype), DT_NONE)) continue;
    check(r->ctx, lathe_rt_get_output(base->ex, k, &a, &err), &err);
    check(r->ctx, lathe_rt_get_output(r->ex, k, &b, &err), &err);
    compare_tensors(k, a, b, why, size);
  }
}

/* ---- timing ---------------------------------------------------------------------------------------------- */

enum { MOST_ROUNDS = 64 };
typedef struct Timing {
  int n;
  double seconds[MOST_ROUNDS], base[MOST_ROUNDS];
} Timing;

/* The least of some runs: what disturbs only adds. */
static double block(Runner *r, int runs)
{
  double least = run_once(r);
  for (int i = 1; i < runs; i++) {
    double s = run_once(r);
    if (s < least) least = s;
  }
  return least;
}

/* Runs of one block: some when they are short. */
static int block_runs(double seconds)
{
  static const double BLOCK = 1e-3, NOTHING = 1e-9;
  int runs = (int)(BLOCK / fmax(seconds, NOTHING));
  return runs < 1 ? 1 : runs > 20 ? 20 : runs;
}

/* Without a base: until its own spread is small. */
static void time_alone(Arena *arena, Runner *r, double limit, int most, Timing *t)
{
  enum { FEWEST = 5 };
  static const double SMALL = 0.01;
  double start = clock_seconds();
  int runs = block_runs(run_once(r));
  for (t->n = 0; t->n < most;) {
    t->seconds[t->n++] = block(r, runs);
    bool late = clock_seconds() - start > limit;
    if (t->n < FEWEST && !(late && t->n >= 3)) continue;
    double wide = tune_quartile(arena, t->n, t->seconds, 0.75) - tune_quartile(arena, t->n, t->seconds, 0.25);
    if (late || (t->n >= 2 * FEWEST && wide < SMALL * tune_median(arena, t->n, t->seconds))) break;
  }
}

/* In turns, until the spread of the ratio is small, the time is up, or it is plain how it ends. */
static void time_pair(Arena *arena, Runner *base, Runner *r, double limit, int most, Timing *t)
{
  enum { FEWEST = 5 };
  static const double SMALL = 0.005, HOPELESS = 1.25, CERTAIN = 0.5;
  double start = clock_seconds();
  double counted = fmax(block(base, 1), block(r, 1));
  int runs = block_runs(fmax(counted, (clock_seconds() - start) / 8));
  start = clock_seconds();
  for (t->n = 0; t->n < most;) {
    bool first = t->n % 2;
    double a = first ? block(r, runs) : 0;
    t->base[t->n] = block(base, runs);
    t->seconds[t->n++] = first ? a : block(r, runs);
    if (t->n < 3) continue;
    Comparison c = tune_compare(arena, &(Repeats){t->n, t->base}, &(Repeats){t->n, t->seconds});
    bool late = clock_seconds() - start > limit;
    if (c.ratio - 2 * c.spread > HOPELESS || c.ratio + 2 * c.spread < CERTAIN) break;
    if (t->n >= FEWEST && (late || (t->n >= 2 * FEWEST && c.spread < SMALL))) break;
  }
}

/* ---- the child ------------------------------------------------------------------------------------------- */

typedef struct Child {
  const MeasureSpec *spec;
  const MeasureOptions *options;
  Ctx *ctx;
  int threads;
  int fd;
  int from; /* candidates before it are through */
  Runner base, now;
  int at; /* -1: the base */
} Child;

static void tell(Child *c, const char *text, size_t n)
{
  while (n > 0) {
    ssize_t k = write(c->fd, text, n);
    if (k < 0 && errno != EINTR) _exit(1); /* nobody listens any more */
    if (k > 0) text += k, n -= (size_t)k;
  }
}

static void tell_text(Child *c, Text *t)
{
  for (size_t i = 0; i + 1 < t->n; i++)
    if (t->s[i] == '\n') t->s[i] = ' ';
  tell(c, text_str(t), t->n);
}

static void build_base(Ctx *ctx, void *arg)
{
  Child *c = arg;
  (void)ctx;
  if (c->spec->func && !c->spec->base_func) return;
  if (c->spec->func) build_func(&c->base, c->spec->base_func, c->spec->target);
  else build_runner(&c->base, c->spec, c->spec->base_built, c->spec->base, c->threads);
  run_once(&c->base);
}

static void build_now(Ctx *ctx, void *arg)
{
  Child *c = arg;
  (void)ctx;
  const MeasureSpec *s = c->spec;
  if (s->func) build_func(&c->now, s->func[c->at], s->target);
  else build_runner(&c->now, s, s->built ? s->built[c->at] : NULL, s->lines ? s->lines[c->at] : NULL, c->threads);
}

static void run_now(Ctx *ctx, void *arg)
{
  Child *c = arg;
  Text out = text_new(scratch(ctx));
  char why[200];
  if (c->options->before) c->options->before(c->options->env, c->at);
  bool alone = !c->base.func && !c->base.ex;
  run_once(&c->now);
  *why = 0;
  if (!alone) compare_outputs(&c->base, &c->now, c->options->check_only, why, sizeof why);
  if (*why) {
    text_printf(&out, "fail %d %s\n", TUNE_WRONG, why);
    tell_text(c, &out);
    return;
  }
  Timing t = {0};
  double limit = c->options->seconds > 0 ? c->options->seconds : 0.3;
  int most = c->options->rounds > 0 && c->options->rounds < MOST_ROUNDS ? c->options->rounds : 40;
  if (alone || c->options->check_only) time_alone(scratch(ctx), &c->now, limit, most, &t);
  else time_pair(scratch(ctx), &c->base, &c->now, limit, most, &t);
  text_add(&out, "done");
  for (int i = 0; i < t.n; i++) text_printf(&out, " %.6g %.6g", t.seconds[i], t.base[i]);
  text_char(&out, '\n');
  tell_text(c, &out);
}

static void tell_error(Child *c)
{
  Scope scope = scope_begin(c->ctx);
  Text out = text_new(scratch(c->ctx));
  text_printf(&out, "fail %d %.300s\n", TUNE_ERROR, error_message(c->ctx));
  tell_text(c, &out);
  scope_end(c->ctx, scope);
}

/* No more than it has now and the machine has in all. */
static void limit_memory(void)
{
  double has = 0; /* pages of data */
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%*s %*s %*s %*s %*s %lf", &has) != 1) has = 0;
  if (f) fclose(f);
  if (has <= 0) return;
  rlim_t bytes = (rlim_t)((has + (double)sysconf(_SC_PHYS_PAGES)) * (double)sysconf(_SC_PAGESIZE));
  struct rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_DATA, &limit);
}

/* Its own group, so that what it starts ends with it; it ends with us, and a fault ends it whatever handlers we have.
 * As many CPUs as threads. */
static void settle(int threads)
{
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGALRM};
  cpu_set_t all, some;
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) signal(faults[i], SIG_DFL);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  CPU_ZERO(&some);
  if (!sched_getaffinity(0, sizeof all, &all)) {
    int n = 0;
    for (int i = 0; i < CPU_SETSIZE && n < threads; i++)
      if (CPU_ISSET(i, &all)) {
        CPU_SET(i, &some);
        n++;
      }
    if (n) sched_setaffinity(0, sizeof some, &some);
  }
  limit_memory();
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  int quiet = open("/dev/null", O_WRONLY);
  if (quiet >= 0) {
    dup2(quiet, 1);
    dup2(quiet, 2);
  }
}

static void child_main(Child *c)
{
  LatheRtError err;
  settle(c->threads);
  ctx_set_poll(c->ctx, NULL, NULL);
  if (lathe_rt_set_num_threads(c->threads, &err) != LATHE_RT_OK) _exit(1);
  c->base.ctx = c->now.ctx = c->ctx;
  if (protect(c->ctx, build_base, c) != ERR_NONE) {
    tell_error(c);
    _exit(0);
  }
  tell(c, "base\n", 5);
  for (c->at = c->from; c->at < c->spec->n; c->at++) {
    char line[32];
    int n;
    if (protect(c->ctx, build_now, c) != ERR_NONE) {
      tell_error(c);
    } else {
      n = snprintf(line, sizeof line, "built %d\n", c->at);
      tell(c, line, (size_t)n);
      if (protect(c->ctx, run_now, c) != ERR_NONE) tell_error(c);
    }
    drop_runner(&c->now);
  }
  _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------------------ */

typedef struct Parent {
  Ctx *ctx;
  Arena *arena;
  const MeasureSpec *spec;
  const MeasureOptions *o;
  int (*told)(void *env, int i, const MeasureResult *);
  void *env;
  pid_t pid; /* 0: none */
  int fd;
  int at; /* the candidate that the child is at */
  bool stop;
  bool based;   /* its base is built */
  bool running; /* what it is at is built */
  char line[16384];
  size_t n; /* bytes in it */
} Parent;

static void end_child(void *arg)
{
  Parent *p = arg;
  if (p->pid > 0) {
    kill(-p->pid, SIGKILL);
    kill(p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) continue;
  }
  if (p->fd >= 0) close(p->fd);
  p->pid = 0;
  p->fd = -1;
}

static int threads_of(const MeasureSpec *s, const MeasureOptions *o)
{
  return o->threads > 0 ? o->threads : s->target->num_cores;
}

static void start_child(Parent *p)
{
  int ends[2];
  Child c = {.spec = p->spec, .options = p->o, .ctx = p->ctx, .from = p->at, .at = -1};
  c.threads = threads_of(p->spec, p->o);
  if (pipe2(ends, O_CLOEXEC)) raise(p->ctx, ERR_IO, NOWHERE, "a pipe cannot be made: %s", strerror(errno));
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    c.fd = ends[1];
    child_main(&c);
  }
  close(ends[1]);
  p->fd = ends[0];
  p->pid = pid;
  p->n = 0;
  p->based = p->running = false;
  if (pid < 0) raise(p->ctx, ERR_IO, NOWHERE, "a process cannot be started: %s", strerror(errno));
  setpgid(pid, pid);
}

static void give(Parent *p, const MeasureResult *r)
{
  if (p->told(p->env, p->at++, r)) p->stop = true;
}

static void give_failure(Parent *p, TuneStatus status, const char *note)
{
  give(p, &(MeasureResult){.status = status, .note = note});
}

/* None of those that are left can be measured. */
static void give_all(Parent *p, const char *note)
{
  while (p->at < p->spec->n && !p->stop) give_failure(p, TUNE_ERROR, note);
}

static void give_seconds(Parent *p, const char *text)
{
  Vec(double) s = {0};
  Vec(double) b = {0};
  char *end;
  for (double x = strtod(text, &end); end != text; x = strtod(text, &end)) {
    vec_push(p->arena, &s, x);
    text = end;
    double y = strtod(text, &end);
    if (y > 0) vec_push(p->arena, &b, y);
    text = end;
  }
  give(p, &(MeasureResult){.status = TUNE_OK, .note = "", .seconds = {s.n, s.v}, .base = {b.n, b.v}});
}

static void hear(Parent *p, const char *line)
{
  p->running = str_starts(line, "built ");
  if (!strcmp(line, "base")) p->based = true;
  else if (str_starts(line, "done")) give_seconds(p, line + 4);
  else if (str_starts(line, "fail ") && p->based)
    give_failure(p, (TuneStatus)atoi(line + 5), arena_strdup(p->arena, line + 7));
  else if (str_starts(line, "fail "))
    give_all(p, arena_printf(p->arena, "the untuned kernel cannot be measured: %s", line + 7));
}

/* What has come through the pipe; false: it has ended. */
static bool read_lines(Parent *p, bool *news)
{
  ssize_t k = read(p->fd, p->line + p->n, sizeof p->line - 1 - p->n);
  if (k < 0 && errno == EINTR) return true;
  if (k <= 0) return false;
  p->n += (size_t)k;
  p->line[p->n] = 0;
  char *end;
  while ((end = strchr(p->line, '\n')) && !p->stop) {
    *end = 0;
    hear(p, p->line);
    *news = true;
    p->n -= (size_t)(end + 1 - p->line);
    memmove(p->line, end + 1, p->n + 1);
  }
  return p->n + 1 < sizeof p->line;
}

static const char *how_ended(Parent *p)
{
  int status = 0;
  while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) continue;
  p->pid = 0;
  if (WIFSIGNALED(status))
    return arena_printf(p->arena, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return arena_printf(p->arena, "it ended with status %d", WEXITSTATUS(status));
}

/* Seconds that the child has had of processors, and whether it could use more now. */
static double processor_seconds(pid_t pid, bool *ready)
{
  char path[64];
  char state = 'S';
  unsigned long user = 0;
  unsigned long system = 0;
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  FILE *f = fopen(path, "r");
  if (f && fscanf(f, "%*d (%*[^)]) %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &system) != 3)
    user = system = 0;
  if (f) fclose(f);
  *ready = state == 'R';
  return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* It said nothing for longer than it may: on a busy machine it may have been waiting for a processor most of the
 * time. */
static bool has_hung(pid_t pid, double silent, double worked, double patience)
{
  enum { BUSY = 4 };
  bool ready;
  double now = processor_seconds(pid, &ready);
  return !ready || now - worked > 0.5 * patience || silent > BUSY * patience;
}

/* One child, until it has no more to say. */
static void follow_child(Parent *p)
{
  double build = p->o->build_limit > 0 ? p->o->build_limit : 60;
  double limit = p->o->run_limit > 0 ? p->o->run_limit : 10;
  double since = clock_seconds();
  start_child(p);
  double worked = 0;
  while (!p->stop && p->at < p->spec->n) {
    struct pollfd f = {.fd = p->fd, .events = POLLIN};
    ctx_poll(p->ctx);
    bool news = false;
    if (poll(&f, 1, 100) > 0 && !read_lines(p, &news)) {
      const char *why = how_ended(p);
      if (p->based) give_failure(p, TUNE_CRASH, why);
      else give_all(p, arena_printf(p->arena, "the untuned kernel crashes: %s", why));
      break;
    }
    double patience = p->running ? limit : build;
    bool ready;
    if (news) since = clock_seconds(), worked = processor_seconds(p->pid, &ready);
    else if (clock_seconds() - since > patience && has_hung(p->pid, clock_seconds() - since, worked, patience)) {
      const char *why = arena_printf(p->arena, "nothing was heard for %.3g seconds", patience);
      if (p->based) give_failure(p, TUNE_HANG, why);
      else give_all(p, arena_printf(p->arena, "the untuned kernel: %s", why));
      break;
    }
  }
  end_child(p);
}

void tune_measure(Ctx *ctx, Arena *arena, const MeasureSpec *spec, const MeasureOptions *o,
                  int (*told)(void *env, int i, const MeasureResult *), void *env)
{
  if (o->workers) {
    tune_measure_by_workers(ctx, o->workers, spec, o, told, env);
    return;
  }
  Scope scope = scope_begin(ctx);
  Parent *p = arena_new_of(scratch(ctx), Parent);
  *p = (Parent){.ctx = ctx, .arena = arena, .spec = spec, .o = o, .told = told, .env = env, .fd = -1};
  defer(ctx, end_child, p);
  while (p->at < spec->n && !p->stop) follow_child(p);
  scope_end(ctx, scope);
}

/* ---- nodes of models ------------------------------------------------------------------------------------- */

typedef struct Profiling {
  int n, threads;
  TuneProfile *profile;
  Runner *runner;
} Profiling;

static void profile_body(Ctx *ctx, void *arg)
{
  enum { RUNS = 15, FEWEST = 3 };
  static const double ENOUGH = 4; /* seconds */
  Profiling *p = arg;
  for (int k = 0; k < p->n; k++) {
    p->runner[k] = (Runner){.ctx = ctx, .compiled = p->profile[k].compiled};
    p->runner[k].node = arena_array(scratch(ctx), double, p->profile[k].n + 1);
    start_runner(&p->runner[k], p->threads);
    run_once(&p->runner[k]);
  }
  double start = clock_seconds();
  for (int run = 0; run < RUNS && (run < FEWEST || clock_seconds() - start < ENOUGH); run++)
    for (int k = 0; k < p->n; k++) {
      TuneProfile *q = &p->profile[k];
      double *node = p->runner[k].node;
      memset(node, 0, (size_t)q->n * sizeof *node);
      double begin = clock_seconds();
      run_once(&p->runner[k]);
      node[q->n] = clock_seconds() - begin;
      for (int i = 0; i <= q->n; i++)
        if (run == 0 || node[i] < q->seconds[i]) q->seconds[i] = node[i];
    }
}

/* All that comes through the pipe, at most `size` bytes. */
static size_t read_all(Ctx *ctx, int fd, char *into, size_t size)
{
  size_t have = 0;
  while (have < size) {
    ctx_poll(ctx);
    ssize_t k = read(fd, into + have, size - have);
    if (k == 0 || (k < 0 && errno != EINTR)) break;
    if (k > 0) have += (size_t)k;
  }
  return have;
}

void tune_profile(Ctx *ctx, Arena *arena, int n, TuneProfile *profile, int threads)
{
  Scope scope = scope_begin(ctx);
  size_t count = 0;
  for (int k = 0; k < n; k++) {
    LatheRtModelInfo info = {LATHE_RT_INIT(info)};
    lathe_rt_model_info(compiled_model(profile[k].compiled), &info);
    profile[k].n = info.num_nodes;
    count += (size_t)info.num_nodes + 1;
  }
  double *all = arena_array(arena, double, count);
  for (int k = 0, at = 0; k < n; at += profile[k++].n + 1) profile[k].seconds = all + at;
  Profiling p = {n, threads, profile, arena_array(scratch(ctx), Runner, n)};
  size_t bytes = count * sizeof *all;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) raise(ctx, ERR_IO, NOWHERE, "a pipe cannot be made: %s", strerror(errno));
  pid_t pid = fork();
  if (pid == 0) {
    Child c = {.fd = ends[1], .ctx = ctx};
    settle(threads);
    ctx_set_poll(ctx, NULL, NULL);
    if (protect(ctx, profile_body, &p) != ERR_NONE) tell_error(&c);
    else tell(&c, (const char *)all, bytes);
    _exit(0);
  }
  close(ends[1]);
  Parent *child = arena_new_of(scratch(ctx), Parent);
  *child = (Parent){.pid = pid, .fd = ends[0]};
  defer(ctx, end_child, child);
  char *into = arena_alloc(scratch(ctx), bytes + 512);
  size_t have = pid > 0 ? read_all(ctx, ends[0], into, bytes + 511) : 0;
  if (have != bytes)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "the model cannot be run: %s", have > 7 ? into + 7 : "its process ended");
  memcpy(all, into, bytes);
  scope_end(ctx, scope);
}
