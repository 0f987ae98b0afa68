/* tune.c: `lathe tune` and `lathe db`.
 *
 * On a terminal the table of the workloads is written again and again in its place; into a pipe goes a line for each
 * step that changed something. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- progress ---------------------------------------------------------------------------------- */

/* As the compiler hands it over: places in its lists. */
enum { P_STAGE, P_TASK, P_ELAPSED, P_LEFT, P_BEFORE, P_AFTER, P_ROWS };
enum { R_WORKLOAD, R_WHAT, R_CALLS, R_SHARE, R_SECONDS, R_RATIO, R_TRIALS, R_FAILED, R_LEFT, R_FLOPS };

static struct {
  bool json, live;
  int lines;   /* of the table that stands on the screen */
  double told; /* when the last line went into the pipe */
  double gain; /* that it told of */
  long long trials;
} view;

static double number(const LatheValue *v) { return v->tag == LATHE_INT ? (double)v->u.i : v->u.f; }

static void print_time(double seconds)
{
  if (seconds < 0) seconds = 0;
  printf("%d:%02d", (int)seconds / 60, (int)seconds % 60);
}

static int by_share(const void *a, const void *b)
{
  double x = (*(const LatheValue *const *)a)[R_SHARE].u.f;
  double y = (*(const LatheValue *const *)b)[R_SHARE].u.f;
  return x < y ? 1 : x > y ? -1 : 0;
}

static void print_row(const LatheValue *r, bool now)
{
  double seconds = number(&r[R_SECONDS]);
  double flops = number(&r[R_FLOPS]);
  double ratio = number(&r[R_RATIO]);
  double rate = seconds > 0 ? 1e-9 * flops / seconds : 0;
  printf("\033[K%c %-52.52s %3lld %6.1f%% %9.1f %9.1f %6.2fx %5lld %5lld\n", now ? '>' : ' ', r[R_WHAT].u.s,
         (long long)r[R_CALLS].u.i, 100 * number(&r[R_SHARE]), rate, rate / ratio, 1 / ratio,
         (long long)r[R_TRIALS].u.i, (long long)r[R_LEFT].u.i);
}

static void print_table(const LatheValue *p)
{
  enum { MOST = 14 };
  int n = (int)p[P_ROWS].n;
  const LatheValue **row = calloc((size_t)n + 1, sizeof *row);
  if (!row) return;
  for (int i = 0; i < n; i++) row[i] = p[P_ROWS].u.list[i].u.list;
  const LatheValue *now = p[P_TASK].u.i >= 0 ? row[p[P_TASK].u.i] : NULL;
  qsort(row, (size_t)n, sizeof *row, by_share);
  if (view.lines) printf("\033[%dA", view.lines);
  printf("\033[K  %-52s %3s %7s %9s %9s %7s %5s %5s\n", "workload", "n", "share", "GFLOP/s", "best", "gain", "tried",
         "left");
  int shown = n < MOST ? n : MOST;
  for (int i = 0; i < shown; i++) print_row(row[i], row[i] == now);
  printf("\033[K  %s, ", p[P_STAGE].u.s);
  print_time(number(&p[P_ELAPSED]));
  if (number(&p[P_LEFT]) >= 0) {
    printf(", time left ");
    print_time(number(&p[P_LEFT]));
  }
  if (n > shown) printf(", %d more workloads", n - shown);
  putchar('\n');
  view.lines = shown + 2;
  free(row);
}

/* What the network would gain if its kernels did what they do alone. */
static double promised(const LatheValue *p)
{
  double saved = 0;
  for (int64_t i = 0; i < p[P_ROWS].n; i++) {
    const LatheValue *r = p[P_ROWS].u.list[i].u.list;
    saved += number(&r[R_SHARE]) * (1 - number(&r[R_RATIO]));
  }
  return saved;
}

static long long all_trials(const LatheValue *p)
{
  long long n = 0;
  for (int64_t i = 0; i < p[P_ROWS].n; i++) n += (long long)p[P_ROWS].u.list[i].u.list[R_TRIALS].u.i;
  return n;
}

static void print_json(const LatheValue *p)
{
  printf("{\"stage\": \"%s\", \"elapsed\": %.3f, \"trials\": %lld, \"saved_share\": %.6f", p[P_STAGE].u.s,
         number(&p[P_ELAPSED]), all_trials(p), promised(p));
  if (p[P_TASK].u.i >= 0) {
    const LatheValue *r = p[P_ROWS].u.list[p[P_TASK].u.i].u.list;
    fputs(", \"workload\": ", stdout);
    cli_print_json_text(r[R_WORKLOAD].u.s);
    printf(", \"share\": %.6f, \"ratio\": %.6f, \"failed\": %lld, \"left\": %lld", number(&r[R_SHARE]),
           number(&r[R_RATIO]), (long long)r[R_FAILED].u.i, (long long)r[R_LEFT].u.i);
  }
  puts("}");
}

static void print_line(const LatheValue *p)
{
  static const double SELDOM = 10;
  double gain = promised(p);
  double t = number(&p[P_ELAPSED]);
  bool step = p[P_TASK].u.i < 0;
  if (!step && gain == view.gain && t - view.told < SELDOM) return;
  view.gain = gain;
  view.told = t;
  print_time(t);
  if (step)
    printf(" %s: %lld workloads, %.3f ms untuned\n", p[P_STAGE].u.s, (long long)p[P_ROWS].n,
           1e3 * number(&p[P_BEFORE]));
  else {
    const LatheValue *r = p[P_ROWS].u.list[p[P_TASK].u.i].u.list;
    printf(" %lld measured, %.1f%% of the network's time saved by kernels alone; at %s, %.2fx\n", all_trials(p),
           100 * gain, r[R_WHAT].u.s, 1 / number(&r[R_RATIO]));
  }
}

static int32_t show(void *user, const LatheValue *v)
{
  const LatheValue *p = v->u.list;
  (void)user;
  view.trials = all_trials(p);
  if (view.json) print_json(p);
  else if (!strcmp(p[P_STAGE].u.s, "done")) return 0;
  else if (view.live) print_table(p);
  else print_line(p);
  fflush(stdout);
  return 0;
}

/* ---- tune -------------------------------------------------------------------------------------------- */

/* 90, 90s, 5m, 1h */
static bool read_time(const char *text, double *out)
{
  char *end;
  double v = strtod(text, &end);
  double unit = *end == 'h' ? 3600 : *end == 'm' ? 60 : 1;
  if (*end && strchr("smh", *end)) end++;
  *out = v * unit;
  if (end != text && !*end && *out > 0 && *out < 1e7) return true;
  cli_misuse("--time is a number with s, m or h behind it (90s, 5m, 1h), not '%s'", text);
  return false;
}

bool cli_find_target(LatheContext *context, const Options *o, long threads, int *status, LatheValue *out)
{
  LatheValue text = o->target ? cli_str_value(o->target) : cli_none_value();
  if (!cli_call(context, status, "target", 1, &text, out)) return false;
  if (!threads) return true;
  LatheValue fields;
  if (!cli_call(context, status, "target_fields", 1, out, &fields)) return false;
  const char *said = o->target;
  for (int64_t i = 0; i < fields.n && !said; i++)
    if (!strcmp(fields.u.list[i].u.list[0].u.s, "text")) said = fields.u.list[i].u.list[1].u.s;
  char full[1024];
  snprintf(full, sizeof full, "%s -num-cores=%ld", said ? said : "llvm", threads);
  text = cli_str_value(full);
  return cli_call(context, status, "target", 1, &text, out);
}

static void print_summary(const Options *o, const char *db, const LatheValue *r)
{
  double before = number(&r[6]);
  double after = number(&r[7]);
  long long kept = (long long)r[5].u.i;
  if (o->json) {
    printf("{\"stage\": \"summary\", \"tasks\": %lld, \"skipped\": %lld, \"trials\": %lld, \"failed\": %lld, \"wins\": "
           "%lld,"
           " \"kept\": %lld, \"before\": %.9g, \"after\": %.9g, \"spread\": %.6f, \"judged\": %s}\n",
           (long long)r[0].u.i, (long long)r[1].u.i, (long long)r[2].u.i, (long long)r[3].u.i, (long long)r[4].u.i,
           kept, before, after, number(&r[8]), r[10].u.i ? "true" : "false");
    return;
  }
  printf("%lld measured (%lld failed) over %lld workloads; %lld have a faster plan", (long long)r[2].u.i,
         (long long)r[3].u.i, (long long)r[0].u.i, (long long)r[4].u.i);
  if (r[1].u.i) printf("; %lld cannot be measured alone", (long long)r[1].u.i);
  printf("\n");
  if (kept)
    printf("the network: %.3f -> %.3f ms, %.3f times as fast (+-%.3f), with %lld kernels changed: compile with --tuned "
           "%s\n",
           1e3 * before, 1e3 * after, before / after, number(&r[8]), kept, db);
  else
    printf("the network: %.3f ms; no change of kernels makes it faster by more than the spread, so --tuned %s leaves "
           "it as "
           "it is\n",
           1e3 * before, db);
}

static int stopped_here(const char *db, long long n)
{
  fprintf(stderr, "%lld measurements are in '%s'; the same command with --resume goes on from there\n", n, db);
  return EXIT_STOPPED;
}

static int tune_model(LatheContext *context, const Options *o, const TuneLimits *limits)
{
  int status = 0;
  LatheValue module, report, target, passes, out;
  if (!cli_find_target(context, o, limits->threads, &status, &target)) return status;
  if (!cli_make_context(context, o, &status, target, &passes)) return status;
  if (!cli_import_model(context, o, &status, &module, &report)) return status;
  view.json = o->json;
  view.live = isatty(1) && !o->json;
  LatheValue args[] = {module,
                       target,
                       passes,
                       cli_str_value(limits->db),
                       (LatheValue){.tag = LATHE_FLOAT, .u.f = limits->seconds},
                       cli_int_value(limits->trials),
                       cli_bool_value(o->resume),
                       limits->threads ? cli_int_value(limits->threads) : cli_none_value(),
                       cli_int_value((int64_t)(intptr_t)show)};
  if (!cli_call(context, &status, "tune_network", 9, args, &out))
    return status == EXIT_STOPPED ? stopped_here(limits->db, view.trials) : status;
  print_summary(o, limits->db, out.u.list);
  return 0;
}

/* ---- a worker ------------------------------------------------------------------------------------------- */

/* "job LENGTH\n" and so many bytes; NULL: the input has ended, or is none. */
static char *read_job(bool *bad)
{
  enum { LONGEST = 1 << 28 };
  char line[64];
  char *end;
  *bad = false;
  if (!fgets(line, sizeof line, stdin)) return NULL;
  *bad = true;
  long long n = strncmp(line, "job ", 4) ? -1 : strtoll(line + 4, &end, 10);
  if (n < 0 || n > LONGEST || *end != '\n') return NULL;
  char *job = malloc((size_t)n + 1);
  if (!job) return NULL;
  job[n] = 0;
  if (fread(job, 1, (size_t)n, stdin) == (size_t)n && !memchr(job, 0, (size_t)n)) {
    *bad = false;
    return job;
  }
  free(job);
  return NULL;
}

/* Speaks what src/tune/worker.c has at its head. */
static int work(LatheContext *context)
{
  bool bad;
  char *job;
  fputs("lathe-worker 1\n", stdout);
  fflush(stdout);
  while ((job = read_job(&bad))) {
    LatheValue text = cli_str_value(job);
    LatheValue out;
    bool ok = !lathe_call(context, "tune_answer", 1, &text, &out);
    const char *said = ok ? out.u.s : lathe_error_message(context);
    printf("%s %zu\n%s", ok ? "answer" : "error", strlen(said), said);
    fflush(stdout);
    free(job);
  }
  return bad ? cli_refuse("the standard input has something that is no job for a worker") : 0;
}

int cli_run_tune(LatheContext *context, const Options *o)
{
  if (o->worker)
    return o->input ? cli_misuse("--worker takes no model: jobs come from the standard input") : work(context);
  if (o->workers.n && !cli_ends_with(o->input, ".py"))
    return cli_misuse("--workers are for loop programs (FILE.py): kernels of a network are measured here");
  TuneLimits limits = {.db = o->db ? o->db : "tune.db"};
  if (o->limit && !read_time(o->limit, &limits.seconds)) return EXIT_USAGE;
  if (o->trials && !cli_read_number("--trials", o->trials, 1, 100000000, &limits.trials)) return EXIT_USAGE;
  if (o->threads && !cli_read_number("--threads", o->threads, 1, 1024, &limits.threads)) return EXIT_USAGE;
  if (!o->limit && !o->trials) limits.seconds = 300;
  return cli_ends_with(o->input, ".py") ? cli_tune_programs(context, o, &limits) : tune_model(context, o, &limits);
}

/* ---- db ------------------------------------------------------------------------------------------------ */

static int print_count(const char *what, const LatheValue *v)
{
  printf("%s: %lld new, %lld known", what, (long long)v[0].u.i, (long long)v[1].u.i);
  if (v[2].u.i) printf(", %lld bad lines passed over (the first: %s)", (long long)v[2].u.i, v[3].u.s);
  putchar('\n');
  return 0;
}

static int take_in(LatheContext *context, const Options *o, bool lines)
{
  int status = 0;
  if (o->files.n < 2) return cli_misuse("'lathe db %s' wants files behind the database", o->input);
  for (int i = 1; i < o->files.n && !status; i++) {
    LatheValue out;
    char *text = lines ? cli_read_file(o->files.v[i], &status) : NULL;
    if (lines && !text) return status;
    LatheValue args[] = {cli_str_value(o->files.v[0]), cli_str_value(lines ? text : o->files.v[i])};
    if (cli_call(context, &status, lines ? "db_import" : "db_merge", 2, args, &out))
      print_count(o->files.v[i], out.u.list);
    free(text);
  }
  return status;
}

int cli_run_db(LatheContext *context, const Options *o)
{
  int status = 0;
  LatheValue out;
  const char *action = o->input;
  if (!o->files.n) return cli_misuse("which database? lathe db %s FILE", action);
  if (!strcmp(action, "import")) return take_in(context, o, true);
  if (!strcmp(action, "merge")) return take_in(context, o, false);
  LatheValue args[] = {cli_str_value(o->files.v[0]), cli_str_value(o->files.n > 1 ? o->files.v[1] : ""),
                       cli_bool_value(o->json)};
  LatheValue brief[] = {args[0], args[2]};
  bool ok;
  if (!strcmp(action, "list")) ok = cli_call(context, &status, "db_list", 2, brief, &out);
  else if (!strcmp(action, "show")) ok = cli_call(context, &status, "db_show", 3, args, &out);
  else if (!strcmp(action, "export")) ok = cli_call(context, &status, "db_export", 1, args, &out);
  else if (!strcmp(action, "prune")) ok = cli_call(context, &status, "db_prune", 1, args, &out);
  else return cli_misuse("'lathe db' can list, show, export, import, merge and prune, not '%s'", action);
  if (!ok) return status;
  if (out.tag == LATHE_INT) {
    printf("%lld entries dropped\n", (long long)out.u.i);
    return 0;
  }
  return cli_write_text(o->output, out.u.s, out.n);
}
