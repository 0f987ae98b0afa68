/* worker.c: candidates measured by other processes, here or on other machines.
 *
 * A worker is a command that a shell starts: `lathe tune --worker` here, or behind ssh, srun or whatever starts
 * programs elsewhere.  It is spoken to over its standard input and output.  It says what it is, then answers jobs
 * until its input ends:
 *   worker: lathe-worker 1\n
 *   tuner:  job LENGTH\n JOB
 *   worker: answer LENGTH\n ANSWER, or error LENGTH\n SENTENCE
 * A JOB is a line of numbers, `N THREADS SECONDS BUILD_LIMIT RUN_LIMIT ROUNDS CHECK_ONLY` and the lengths of N + 2
 * texts, and then the texts: target, base ("": none), and the loop programs in TVMScript.  An ANSWER has a line for
 * each of them: `ok` with seconds of it and of the base in turns (0: there is none), or the status and why.
 *
 * A worker that ends, says nothing for too long or says something else is not asked again; what it was measuring is
 * lost, which is a record too, and no result of the candidates. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tune/tune.h"

static const char GREETING[] = "lathe-worker 1\n";
enum { LONGEST = 1 << 26 }; /* bytes of an answer */

/* ---- jobs ------------------------------------------------------------------------------------------------ */

static const char *job_text(Arena *arena, const MeasureSpec *spec, const MeasureOptions *o, int n, const int *which)
{
  Text head = text_new(arena);
  Text body = text_new(arena);
  text_printf(&head, "%d %d %.6g %.6g %.6g %d %d", n, o->threads > 0 ? o->threads : spec->target->num_cores, o->seconds,
              o->build_limit, o->run_limit, o->rounds, o->check_only);
  for (int i = -2; i < n; i++) {
    const PrimFunc *f = i == -2 ? NULL : i == -1 ? spec->base_func : spec->func[which[i]];
    const char *text = i == -2 ? spec->target->text : f ? func_print(arena, f) : "";
    text_printf(&head, " %zu", strlen(text));
    text_add(&body, text);
  }
  return arena_printf(arena, "%s\n%s", text_str(&head), text_str(&body));
}

typedef struct Answer {
  Arena *arena;
  Text out;
} Answer;

static int put_result(void *env, int i, const MeasureResult *r)
{
  Answer *a = env;
  (void)i;
  text_add(&a->out, tune_status_name(r->status));
  if (r->status != TUNE_OK) {
    char *note = arena_strdup(a->arena, r->note);
    for (char *p = note; *p; p++)
      if (*p == '\n') *p = ' ';
    text_printf(&a->out, " %s", note);
  }
  for (int k = 0; r->status == TUNE_OK && k < r->seconds.n; k++)
    text_printf(&a->out, " %.6g %.6g", r->seconds.seconds[k], k < r->base.n ? r->base.seconds[k] : 0.0);
  text_char(&a->out, '\n');
  return 0;
}

static void release_module(void *m) { module_release(m); }

/* The next text of so many bytes. */
static const char *take_text(Ctx *ctx, Arena *arena, const char **body, int64_t length)
{
  if (length < 0 || (uint64_t)length > strlen(*body))
    raise(ctx, ERR_ARGUMENT, NOWHERE, "a job for a worker ends before its texts do");
  const char *text = arena_strndup(arena, *body, (size_t)length);
  *body += length;
  return text;
}

static const PrimFunc *take_func(Ctx *ctx, Arena *arena, const char **body, int64_t length)
{
  const char *text = take_text(ctx, arena, body, length);
  if (!*text) return NULL;
  Module *m = module_new(ctx);
  defer(ctx, release_module, m);
  return func_parse(m, text, "job", 1, 0, NULL);
}

const char *tune_answer(Ctx *ctx, Arena *arena, const char *job)
{
  enum { FIELDS = 7, MOST = 4096 };
  double field[FIELDS];
  const char *p = job;
  char *end;
  for (int i = 0; i < FIELDS; i++, p = end) {
    field[i] = strtod(p, &end);
    if (end == p || !(field[i] >= 0 && field[i] < 1e6))
      raise(ctx, ERR_ARGUMENT, NOWHERE, "a job for a worker begins with %d numbers", FIELDS);
  }
  int n = (int)field[0];
  if (n > MOST) raise(ctx, ERR_ARGUMENT, NOWHERE, "a job for a worker has at most %d programs, not %d", MOST, n);
  int64_t *length = arena_array(arena, int64_t, n + 2);
  for (int i = 0; i < n + 2; i++, p = end) {
    length[i] = strtoll(p, &end, 10);
    if (end == p) raise(ctx, ERR_ARGUMENT, NOWHERE, "a job for a worker has the lengths of %d texts", n + 2);
  }
  if (*p != '\n') raise(ctx, ERR_ARGUMENT, NOWHERE, "a job for a worker has a line of numbers, then the texts");
  p++;
  const Target *target = target_parse(ctx, take_text(ctx, arena, &p, length[0]));
  if (!target->is_host || target_is_gpu(target))
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "target '%s' is not this machine's CPU: what is tuned has to run here",
          target->text);
  MeasureSpec spec = {.target = target, .n = n, .base_func = take_func(ctx, arena, &p, length[1])};
  const PrimFunc **func = arena_array(arena, const PrimFunc *, n + 1);
  for (int i = 0; i < n; i++) func[i] = take_func(ctx, arena, &p, length[i + 2]);
  spec.func = func;
  MeasureOptions o = {.threads = (int)field[1],
                      .seconds = field[2],
                      .build_limit = field[3],
                      .run_limit = field[4],
                      .rounds = (int)field[5],
                      .check_only = field[6] != 0};
  Answer a = {arena, text_new(arena)};
  tune_measure(ctx, arena, &spec, &o, put_result, &a);
  return text_str(&a.out);
}

/* ---- workers --------------------------------------------------------------------------------------------- */

typedef struct Worker {
  const char *command;
  pid_t pid; /* 0: it is gone */
  int to, from;
  bool greeted;
  int n, *which; /* what it is at */
  const char *job;
  size_t sent;
  double since; /* it was heard last */
  Text heard;
} Worker;

struct TuneWorkers {
  Ctx *ctx;
  Arena *arena;
  int n;
  Worker *worker;
  const char *why; /* the last one went */
  double start_limit;
};

static void end_worker(Worker *w)
{
  if (w->pid > 0) {
    kill(-w->pid, SIGKILL);
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
    close(w->to);
    close(w->from);
  }
  w->pid = 0;
}

static void end_workers(void *arg)
{
  TuneWorkers *all = arg;
  for (int i = 0; i < all->n; i++) end_worker(&all->worker[i]);
}

static void start_worker(TuneWorkers *all, Worker *w)
{
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
    raise(all->ctx, ERR_IO, NOWHERE, "a pipe cannot be made: %s", strerror(errno));
  pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], 0);
    dup2(out[1], 1);
    execl("/bin/sh", "sh", "-c", w->command, (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  if (pid < 0) raise(all->ctx, ERR_IO, NOWHERE, "a process cannot be started: %s", strerror(errno));
  setpgid(pid, pid);
  w->pid = pid;
  w->to = in[1];
  w->from = out[0];
  w->since = clock_seconds();
  fcntl(w->to, F_SETFL, O_NONBLOCK);
  fcntl(w->from, F_SETFL, O_NONBLOCK);
}

TuneWorkers *tune_workers(Ctx *ctx, Arena *arena, int n, const char *const *commands, double start_limit)
{
  TuneWorkers *all = arena_new_of(arena, TuneWorkers);
  *all = (TuneWorkers){.ctx = ctx, .arena = arena, .n = n, .start_limit = start_limit > 0 ? start_limit : 300};
  all->worker = arena_array(arena, Worker, n + 1);
  signal(SIGPIPE, SIG_IGN); /* one that is gone is found out when it is written to */
  defer(ctx, end_workers, all);
  for (int i = 0; i < n; i++) {
    all->worker[i].command = commands[i];
    start_worker(all, &all->worker[i]);
  }
  return all;
}

int tune_workers_left(const TuneWorkers *all)
{
  int n = 0;
  for (int i = 0; i < all->n; i++) n += all->worker[i].pid > 0;
  return n;
}

/* ---- a batch --------------------------------------------------------------------------------------------- */

typedef struct Batch {
  TuneWorkers *all;
  const MeasureSpec *spec;
  const MeasureOptions *o;
  MeasureResult *result; /* of each candidate; note NULL: not there yet */
} Batch;

/* It is not asked again; what it was at is lost. */
static void lose(Batch *b, Worker *w, const char *why)
{
  b->all->why = arena_printf(b->all->arena, "the worker '%s' %s", w->command, why);
  for (int i = 0; i < w->n; i++) b->result[w->which[i]] = (MeasureResult){.status = TUNE_LOST, .note = b->all->why};
  w->n = 0;
  end_worker(w);
}

static void send_some(Worker *w)
{
  size_t left = strlen(w->job) - w->sent;
  ssize_t k = left ? write(w->to, w->job + w->sent, left) : 0;
  if (k > 0) w->sent += (size_t)k;
  if (k < 0 && errno != EAGAIN && errno != EINTR) w->sent += left; /* it does not listen: what it says tells more */
}

static bool read_seconds(Arena *arena, const char *text, MeasureResult *r)
{
  Vec(double) s = {0};
  Vec(double) base = {0};
  char *end;
  while (*text) {
    double x = strtod(text, &end);
    double y = end == text ? 0 : strtod(end, &end);
    if (end == text || !(x > 0) || !(y >= 0)) return false;
    vec_push(arena, &s, x);
    if (y > 0) vec_push(arena, &base, y);
    text = end + strspn(end, " ");
  }
  if (!s.n || (base.n && base.n != s.n)) return false;
  *r = (MeasureResult){.status = TUNE_OK, .note = "", .seconds = {s.n, s.v}, .base = {base.n, base.v}};
  return true;
}

static bool read_result(Arena *arena, const char *line, MeasureResult *r)
{
  static const TuneStatus failures[] = {TUNE_CRASH, TUNE_HANG, TUNE_WRONG, TUNE_ERROR};
  if (str_starts(line, "ok ")) return read_seconds(arena, line + 3, r);
  for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
    size_t n = strlen(tune_status_name(failures[i]));
    if (strncmp(line, tune_status_name(failures[i]), n) || line[n] != ' ') continue;
    *r = (MeasureResult){.status = failures[i], .note = arena_strdup(arena, line + n + 1)};
    return true;
  }
  return false;
}

/* The whole answer to the job; false: it is none. */
static bool take_answer(Batch *b, Worker *w, char *text)
{
  Arena *arena = b->all->arena;
  MeasureResult *r = arena_array(arena, MeasureResult, w->n + 1);
  int n = 0;
  for (char *line = text; *line; n++) {
    char *end = strchr(line, '\n');
    if (!end || n >= w->n) return false;
    *end = 0;
    if (!read_result(arena, line, &r[n])) return false;
    line = end + 1;
  }
  if (n != w->n) return false;
  for (int i = 0; i < n; i++) b->result[w->which[i]] = r[i];
  w->n = 0;
  return true;
}

/* What has come so far; true: it is understood. */
static bool hear(Batch *b, Worker *w)
{
  const char *text = text_str(&w->heard);
  size_t greeting = sizeof GREETING - 1;
  if (!w->greeted) {
    size_t n = w->heard.n < greeting ? w->heard.n : greeting;
    if (strncmp(text, GREETING, n)) return false;
    if (n < greeting) return true;
    const char *rest = arena_strdup(b->all->arena, text + greeting);
    w->greeted = true;
    w->heard = text_new(b->all->arena);
    text_add(&w->heard, rest);
    text = text_str(&w->heard);
  }
  if (!*text) return true;
  const char *line = strchr(text, '\n');
  if (!line) return w->heard.n < 64;
  bool answer = str_starts(text, "answer ");
  if (!answer && !str_starts(text, "error ")) return false;
  char *end;
  long long length = strtoll(strchr(text, ' '), &end, 10);
  size_t have = w->heard.n - (size_t)(line + 1 - text);
  if (end != line || length < 0 || length > LONGEST || have > (size_t)length) return false;
  if (have < (size_t)length) return true;
  char *body = arena_strdup(b->all->arena, line + 1);
  w->heard = text_new(b->all->arena);
  if (answer) return take_answer(b, w, body);
  lose(b, w, arena_printf(b->all->arena, "says: %s", body));
  return true;
}

static void receive(Batch *b, Worker *w)
{
  char some[4096];
  ssize_t k = read(w->from, some, sizeof some);
  if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (k <= 0) {
    lose(b, w, "has ended");
    return;
  }
  w->since = clock_seconds();
  text_addn(&w->heard, some, (size_t)k);
  bool fits = !memchr(some, 0, (size_t)k) && hear(b, w);
  if (!fits && w->pid)
    lose(b, w, arena_printf(b->all->arena, "answers what is no answer: '%.60s'", text_str(&w->heard)));
}

static void check_patience(Batch *b, Worker *w)
{
  static const double GRACE = 5;
  double build = b->o->build_limit > 0 ? b->o->build_limit : 60;
  double run = b->o->run_limit > 0 ? b->o->run_limit : 10;
  double patience = w->greeted ? (w->n + 1) * (build + run) + GRACE : b->all->start_limit;
  if (w->pid && w->n && clock_seconds() - w->since > patience)
    lose(b, w, arena_printf(b->all->arena, "was not heard for %.3g seconds", patience));
}

/* Candidates in turns over those that are left. */
static void deal(Batch *b)
{
  TuneWorkers *all = b->all;
  int left = tune_workers_left(all);
  if (!left)
    raise(all->ctx, ERR_IO, NOWHERE, "no worker is left to measure: %s", all->why ? all->why : "there was none");
  for (int i = 0; i < all->n; i++) {
    all->worker[i].which = arena_array(all->arena, int, b->spec->n + 1);
    all->worker[i].n = 0;
  }
  for (int k = 0, i = 0; k < b->spec->n; i = (i + 1) % all->n)
    if (all->worker[i].pid) all->worker[i].which[all->worker[i].n++] = k++;
  for (int i = 0; i < all->n; i++) {
    Worker *w = &all->worker[i];
    const char *job = w->n ? job_text(all->arena, b->spec, b->o, w->n, w->which) : "";
    w->job = w->n ? arena_printf(all->arena, "job %zu\n%s", strlen(job), job) : "";
    w->sent = 0;
    w->since = clock_seconds();
    if (!w->heard.n) w->heard = text_new(all->arena);
  }
}

static void attend(Batch *b, struct pollfd *f)
{
  TuneWorkers *all = b->all;
  for (int i = 0; i < all->n; i++) {
    Worker *w = &all->worker[i];
    bool sends = w->pid && w->n && w->sent < strlen(w->job);
    f[2 * i] = (struct pollfd){.fd = w->pid && w->n ? w->from : -1, .events = POLLIN};
    f[2 * i + 1] = (struct pollfd){.fd = sends ? w->to : -1, .events = POLLOUT};
  }
  if (poll(f, (nfds_t)all->n * 2, 100) < 0 && errno != EINTR) return;
  for (int i = 0; i < all->n; i++) {
    Worker *w = &all->worker[i];
    if (f[2 * i + 1].fd >= 0 && f[2 * i + 1].revents) send_some(w);
    if (w->pid && f[2 * i].fd >= 0 && f[2 * i].revents) receive(b, w);
    check_patience(b, w);
  }
}

void tune_measure_by_workers(Ctx *ctx, TuneWorkers *all, const MeasureSpec *spec, const MeasureOptions *o,
                             int (*told)(void *env, int i, const MeasureResult *), void *env)
{
  if (!spec->func)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE, "workers measure loop programs; kernels of a network are measured here");
  Batch b = {all, spec, o, arena_array(all->arena, MeasureResult, spec->n + 1)};
  struct pollfd *f = arena_array(all->arena, struct pollfd, 2 * all->n + 1);
  if (!spec->n) return;
  deal(&b);
  for (int next = 0; next < spec->n;) {
    ctx_poll(ctx);
    attend(&b, f);
    while (next < spec->n && b.result[next].note)
      if (told(env, next, &b.result[next]) || ++next == spec->n) return;
  }
}
