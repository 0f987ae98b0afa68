/* bench.c: `lathe bench`: how long a model takes, as a whole and node by node. */
#define _GNU_SOURCE /* qsort_r */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a;
  double y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct Times {
  double median, p90, min, mean;
} Times;

static Times summary(double *s, long n)
{
  Times t = {0};
  qsort(s, (size_t)n, sizeof *s, by_value);
  for (long i = 0; i < n; i++) t.mean += s[i] / (double)n;
  t.median = n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
  t.p90 = s[(n - 1) * 9 / 10];
  t.min = s[0];
  return t;
}

/* ---- node by node ------------------------------------------------------------------------- */

typedef struct Profile {
  int n;           /* nodes */
  double *seconds; /* sum over the runs, as the next three */
  long *calls;
  struct Work {
    double flops, done, bytes;
  } *work;
  FILE *trace;
  double at; /* where the trace is, in seconds */
  bool first;
  const LatheRtModel *model;
} Profile;

static int32_t note_node(void *user, int32_t node, double seconds, int32_t nin, const LatheRtTensor *const *in,
                         int32_t nout, const LatheRtTensor *const *out)
{
  Profile *p = user;
  double flops, done;
  lathe_rt_node_work(p->model, node, nin, in, nout, out, &flops, &done);
  p->seconds[node] += seconds;
  p->calls[node]++;
  p->work[node].flops += flops;
  p->work[node].done += done;
  for (int32_t i = 0; i < nin + nout; i++) {
    size_t bytes;
    LatheRtError err;
    if (lathe_rt_tensor_bytes(i < nin ? in[i] : out[i - nin], &bytes, &err) == LATHE_RT_OK)
      p->work[node].bytes += (double)bytes;
  }
  if (p->trace) {
    const LatheRtNode *info = lathe_rt_model_node(p->model, node);
    fprintf(p->trace,
            "%s{\"name\": \"%s\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f, \"args\": "
            "{\"impl\": \"%s\"}}",
            p->first ? "" : ",\n", info->name, p->at * 1e6, seconds * 1e6, info->impl ? info->impl : "");
    p->first = false;
  }
  p->at += seconds;
  return 0;
}

static int by_share(const void *a, const void *b, void *seconds)
{
  const double *s = seconds;
  double x = s[*(const int *)a];
  double y = s[*(const int *)b];
  return (x < y) - (x > y);
}

/* What the machine can do: operations, and bytes by how much data there is, since what fits a
 * cache is not read from memory. */
enum { NSIZES = 4 };
static const size_t sizes[NSIZES] = {(size_t)128 << 10, (size_t)1 << 20, (size_t)16 << 20, (size_t)128 << 20};
typedef struct Limits {
  double gflops, gbytes[NSIZES];
} Limits;

static Limits measure_limits(int threads)
{
  Limits l = {.gflops = peak_gflops(threads, 0.2)};
  for (int i = 0; i < NSIZES; i++) l.gbytes[i] = peak_gbytes_within(threads, 0.1, sizes[i]);
  return l;
}

static double limit_gbytes(const Limits *l, double bytes)
{
  int i = 0;
  while (i < NSIZES - 1 && bytes > (double)sizes[i]) i++;
  return l->gbytes[i];
}

/* Seconds that the compiler predicted for a kernel when it chose its plan, on all of the target's cores; 0: there was
 * nothing to choose. */
static double predicted_seconds(const LatheRtModel *model, const char *kernel)
{
  const char *name, *plan;
  for (int32_t i = 0; (name = lathe_rt_model_kernel(model, i, &plan)); i++) {
    const char *seconds = strcmp(name, kernel) == 0 ? strchr(plan, '\t') : NULL;
    if (seconds) return strtod(seconds + 1, NULL);
  }
  return 0;
}

static void print_node(const Profile *p, int i, double total, const Limits *limits, bool json)
{
  const LatheRtNode *n = lathe_rt_model_node(p->model, i);
  double per = p->calls[i] ? p->seconds[i] / (double)p->calls[i] : 0;
  double all = p->seconds[i] > 0 ? p->seconds[i] * 1e9 : INFINITY;
  double rate = p->work[i].flops / all;
  double done = p->work[i].done / all;
  double bytes = p->work[i].bytes / all;
  double gflops = limits->gflops;
  double gbytes = limit_gbytes(limits, p->calls[i] ? p->work[i].bytes / (double)p->calls[i] : 0);
  double predicted = predicted_seconds(p->model, n->name);
  double limit = fmax(gflops > 0 ? done / gflops : 0, gbytes > 0 ? bytes / gbytes : 0);
  if (json) {
    printf("{\"name\": ");
    cli_print_json_text(n->name);
    printf(", \"source\": ");
    cli_print_json_text(n->source ? n->source : "");
    printf(", \"impl\": ");
    cli_print_json_text(n->impl ? n->impl : "");
    printf(", \"calls\": %ld, \"flops\": %.0f", p->calls[i], p->calls[i] ? p->work[i].flops / (double)p->calls[i] : 0);
    if (predicted > 0) printf(", \"predicted_ms\": %.6f", predicted * 1e3);
    printf(", \"ms\": %.6f, \"share\": %.6f, \"gflops\": %.3f, \"gflops_done\": %.3f, \"gbytes\": %.3f, \"of_limit\": "
           "%.4f}",
           per * 1e3, total > 0 ? p->seconds[i] / total : 0, rate, done, bytes, limit);
    return;
  }
  char both[32], foretold[32] = "-";
  if (predicted > 0) snprintf(foretold, sizeof foretold, "%.3f", predicted * 1e3);
  if (p->work[i].flops == 0) snprintf(both, sizeof both, "-"); /* not known */
  else if (fabs(rate - done) > 0.01 * rate) snprintf(both, sizeof both, "%.1f (%.1f)", rate, done);
  else snprintf(both, sizeof both, "%.1f", rate);
  printf("%9.3f %9s %5.1f%% %16s %7.1f %5.0f%%  %-24.24s %s\n", per * 1e3, foretold,
         total > 0 ? 100 * p->seconds[i] / total : 0, both, bytes, 100 * limit, n->impl ? n->impl : "", n->name);
}

static void print_profile(const Profile *p, int threads, bool json)
{
  Limits l = measure_limits(threads);
  double total = 0;
  int *order = calloc((size_t)p->n + 1, sizeof *order);
  if (!order) return;
  for (int i = 0; i < p->n; i++) order[i] = i, total += p->seconds[i];
  qsort_r(order, (size_t)p->n, sizeof *order, by_share, p->seconds);
  if (json)
    printf(", \"limit\": {\"gflops\": %.1f, \"gbytes\": %.1f, \"gbytes_cached\": %.1f}, \"nodes\": [", l.gflops,
           l.gbytes[NSIZES - 1], l.gbytes[0]);
  else {
    printf("\nlimits of this machine, %d thread%s: %.0f GFLOP/s, %.1f GB/s from memory, %.1f GB/s from the caches "
           "(measured now)\n\n",
           threads, threads == 1 ? "" : "s", l.gflops, l.gbytes[NSIZES - 1], l.gbytes[0]);
    printf("%9s %9s %6s %16s %7s %6s  %-24s %s\n", "ms", "predicted", "share", "GFLOP/s (done)", "GB/s", "limit",
           "implementation", "node");
  }
  for (int i = 0; i < p->n; i++) {
    if (json && i) fputs(", ", stdout);
    print_node(p, order[i], total, &l, json);
  }
  if (json) fputs("]", stdout);
  free(order);
}

/* ---- the whole ------------------------------------------------------------------------------ */

typedef struct Plan {
  long warmup, repeat;
  int threads[16], n;
} Plan;

static bool read_plan(const Options *o, Plan *p)
{
  p->warmup = 3;
  p->repeat = 0; /* as many as fit a second or so */
  if (o->warmup && !cli_read_number("--warmup", o->warmup, 0, 1000000, &p->warmup)) return false;
  if (o->repeat && !cli_read_number("--repeat", o->repeat, 1, 1000000, &p->repeat)) return false;
  for (const char *s = o->threads; s && *s && p->n < 16;) {
    char word[16];
    size_t k = strcspn(s, ",");
    long v;
    snprintf(word, sizeof word, "%.*s", (int)(k < 15 ? k : 15), s);
    if (!cli_read_number("--threads", word, 1, 1024, &v)) return false;
    p->threads[p->n++] = (int)v;
    s += k + (s[k] == ',');
  }
  if (!p->n) p->threads[p->n++] = lathe_rt_num_threads();
  return true;
}

static bool run_once(LatheRtExecutor *ex, int *status, double *seconds)
{
  LatheRtError err;
  double t = cli_now();
  LatheRtCode code = lathe_rt_run(ex, &err);
  *seconds = cli_now() - t;
  if (code != LATHE_RT_OK) *status = cli_refuse_rt(&err);
  return code == LATHE_RT_OK;
}

static bool measure(LatheRtExecutor *ex, const Plan *plan, int *status, Times *out, long *runs)
{
  double t, first;
  if (!run_once(ex, status, &first)) return false;
  for (long i = 1; i < plan->warmup; i++)
    if (!run_once(ex, status, &first)) return false;
  long n = plan->repeat ? plan->repeat : (long)fmin(1000, fmax(10, 2 / fmax(first, 1e-6)));
  double *s = calloc((size_t)n, sizeof *s);
  double shown = cli_now();
  bool ok = s != NULL;
  for (long i = 0; ok && i < n; i++) {
    ok = run_once(ex, status, &t);
    s[i] = t;
    if (isatty(2) && cli_now() - shown > 0.5) {
      fprintf(stderr, "\r\033[Krun %ld/%ld", i + 1, n);
      shown = cli_now();
    }
  }
  if (isatty(2)) fputs("\r\033[K", stderr);
  if (ok) *out = summary(s, n);
  *runs = n;
  free(s);
  return ok;
}

static bool profile(LatheRtExecutor *ex, const LatheRtModel *model, const Options *o, int threads, int *status)
{
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  lathe_rt_model_info(model, &info);
  Profile p = {.n = info.num_nodes, .model = model, .first = true};
  p.seconds = calloc((size_t)p.n + 1, sizeof *p.seconds);
  p.calls = calloc((size_t)p.n + 1, sizeof *p.calls);
  p.work = calloc((size_t)p.n + 1, sizeof *p.work);
  bool ok = p.seconds && p.calls && p.work;
  double t;
  lathe_rt_executor_watch(ex, note_node, &p);
  for (int i = 0; ok && i < 10; i++) ok = run_once(ex, status, &t);
  if (ok && o->trace) {
    p.trace = fopen(o->trace, "w");
    if (!p.trace) *status = cli_refuse("cannot write '%s'", o->trace);
    ok = p.trace != NULL;
    if (ok) {
      p.at = 0;
      fputs("[", p.trace);
      ok = run_once(ex, status, &t);
      fputs("]\n", p.trace);
      fclose(p.trace);
    }
  }
  lathe_rt_executor_watch(ex, NULL, NULL);
  if (ok && o->profile) print_profile(&p, threads, o->json);
  free(p.seconds);
  free(p.calls);
  free(p.work);
  return ok;
}

/* In milliseconds, or microseconds where that tells more. */
static void print_times(int threads, const Times *t, long runs)
{
  bool small = t->median < 1e-4;
  double unit = small ? 1e6 : 1e3;
  const char *name = small ? "µs" : "ms";
  printf("%d thread%s: median %.3f %s, p90 %.3f %s, min %.3f %s (%ld runs)\n", threads, threads == 1 ? "" : "s",
         t->median * unit, name, t->p90 * unit, name, t->min * unit, name, runs);
}

static bool bench(LatheRtExecutor *ex, const LatheRtModel *model, const Options *o, const Plan *plan, int *status)
{
  LatheRtError err;
  if (o->json) fputs("[", stdout);
  for (int k = 0; k < plan->n; k++) {
    Times t;
    long runs;
    if (lathe_rt_executor_set_threads(ex, plan->threads[k], &err) != LATHE_RT_OK) {
      *status = cli_refuse_rt(&err);
      return false;
    }
    if (!measure(ex, plan, status, &t, &runs)) return false;
    if (o->json)
      printf("%s{\"threads\": %d, \"runs\": %ld, \"median_ms\": %.6f, \"p90_ms\": %.6f, \"min_ms\": %.6f, \"mean_ms\": "
             "%.6f",
             k ? ",\n " : "", plan->threads[k], runs, t.median * 1e3, t.p90 * 1e3, t.min * 1e3, t.mean * 1e3);
    else print_times(plan->threads[k], &t, runs);
    if ((o->profile || o->trace) && !profile(ex, model, o, plan->threads[k], status)) return false;
    if (o->json) fputs("}", stdout);
  }
  if (o->json) puts("]");
  return true;
}

int cli_run_bench(LatheContext *context, const Options *o)
{
  int status = 0;
  Plan plan = {0};
  LatheRtModel *model;
  LatheRtExecutor *ex;
  LatheRtError err;
  if (!read_plan(o, &plan)) return EXIT_USAGE;
  if (!cli_open_model(context, o, &status, &model)) return status;
  if (lathe_rt_executor_new(model, &ex, &err) != LATHE_RT_OK) {
    lathe_rt_model_free(model);
    return cli_refuse_rt(&err);
  }
  if (cli_set_inputs(ex, lathe_rt_model_entry(model, 0), NULL, o, false, &status)) bench(ex, model, o, &plan, &status);
  lathe_rt_executor_free(ex);
  lathe_rt_model_free(model);
  return status;
}
