/* test_database.c: databases: what goes in comes out, and files that are none, of others, damaged or full are refused
 * with a sentence. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tune/tune.h"

static char folder[] = "/tmp/lathe_db_XXXXXX";
static char path[128], other[128];

static int set_up(void **state)
{
  (void)state;
  strcpy(folder, "/tmp/lathe_db_XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/a.db", folder);
  snprintf(other, sizeof other, "%s/b.db", folder);
  return 0;
}

static int tear_down(void **state)
{
  char command[160];
  (void)state;
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

/* Runs it in a context of its own; NULL, or the message of the error. */
static const char *attempt(void (*body)(Ctx *, void *), void *arg)
{
  static char message[512];
  Ctx *ctx = ctx_new();
  ErrKind kind = protect(ctx, body, arg);
  snprintf(message, sizeof message, "%s", error_message(ctx));
  ctx_free(ctx);
  return kind == ERR_NONE ? NULL : message;
}
#define MUST(body, arg)                    \
  do {                                     \
    const char *said = attempt(body, arg); \
    if (said) fail_msg("%s", said);        \
  } while (0)

static const double slow[] = {10e-6, 11e-6, 10e-6, 12e-6, 10e-6}, quick[] = {8e-6, 8e-6, 8.2e-6, 9e-6, 8e-6};

static TuneRecord record(const char *workload, const char *plan, const double *seconds)
{
  return (TuneRecord){.workload = workload,
                      .target = "llvm",
                      .what = "nn.conv2d",
                      .kind = "plan",
                      .candidate = plan,
                      .note = "",
                      .predicted = 9e-6,
                      .seconds = {5, seconds},
                      .base = "direct{x=1}",
                      .base_seconds = {5, slow},
                      .threads = 2};
}

static void put_some(Ctx *ctx, void *arg)
{
  Db *db = db_open(ctx, arg, true);
  TuneRecord r = record("w1", "direct{x=2}", quick);
  assert_true(db_put(db, &r));
  r = record("w1", "direct{x=3}", slow);
  assert_true(db_put(db, &r));
  r = record("w2", "direct{x=4}", NULL);
  r.status = TUNE_CRASH;
  r.note = "signal 11";
  r.seconds.n = r.base_seconds.n = 0;
  assert_true(db_put(db, &r));
  TuneVerdict v = {
    .model = "m", .target = "llvm", .plans = "w1 direct{x=2}\n", .before = {5, slow}, .after = {5, quick}};
  assert_true(db_put_verdict(db, &v));
  db_close(db);
}

typedef struct Seen {
  int n;
  TuneStatus status[4];
  double first[4], ratio[4];
  char candidate[4][32];
} Seen;

static void see(void *env, const TuneRecord *r)
{
  Seen *s = env;
  assert_true(s->n < 4);
  s->status[s->n] = r->status;
  s->first[s->n] = r->seconds.n ? r->seconds.seconds[0] : 0;
  s->ratio[s->n] = r->against.ratio;
  snprintf(s->candidate[s->n++], 32, "%s", r->candidate);
  assert_true(r->origin.made > 1600000000 && *r->origin.machine && *r->origin.lathe);
}

static void read_back(Ctx *ctx, void *arg)
{
  Db *db = db_open(ctx, arg, false);
  Arena *a = arena_new(ctx);
  Seen s = {0};
  db_each(db, NULL, NULL, see, &s);
  assert_int_equal(s.n, 3);
  assert_string_equal(s.candidate[0], "direct{x=2}");
  assert_int_equal(s.status[2], TUNE_CRASH);
  assert_true(s.first[0] == 8e-6);
  assert_true(s.ratio[0] > 0.74 && s.ratio[0] < 0.83); /* the middle one of 0.8, 0.727, 0.82, 0.75, 0.8 is 0.8 */
  s.n = 0;
  db_each(db, "w2", "llvm", see, &s);
  assert_int_equal(s.n, 1);
  assert_string_equal(db_verdict(db, a, "m", "llvm"), "w1 direct{x=2}\n");
  assert_null(db_verdict(db, a, "m", "c"));
  assert_string_equal(db_winners(db, a, "llvm"), "w1 direct{x=1} => direct{x=2}\n");
  assert_non_null(strstr(db_list(db, a, false), "w1  2 records, 0 failed, 1.25 times as fast"));
  assert_non_null(strstr(db_show(db, a, "w2", false), "crash: signal 11"));
  arena_free(a);
  db_close(db);
}

static void test_round(void **state)
{
  (void)state;
  MUST(put_some, path);
  MUST(read_back, path);
}

static void export_import(Ctx *ctx, void *arg)
{
  (void)arg;
  Arena *a = arena_new(ctx);
  Db *from = db_open(ctx, path, false);
  Db *to = db_open(ctx, other, true);
  const char *lines = db_export(from, a);
  DbCount n = db_import(to, a, lines);
  assert_int_equal(n.taken, 4);
  assert_int_equal(n.bad, 0);
  assert_string_equal(db_export(to, a), lines);
  n = db_import(to, a, lines);
  assert_int_equal(n.taken, 0);
  assert_int_equal(n.known, 4);
  n = db_import(
      to, a,
      "\n{\"lathe\": 1, \"entry\": \"record\"}\nnothing\n[1]\n{\"lathe\": 2}\n{\"lathe\": 1, \"entry\": \"x\"}\n");
  assert_int_equal(n.taken, 0);
  assert_int_equal(n.bad, 5);
  assert_string_equal(n.first_bad, "line 2 lacks a field of a record");
  assert_int_equal(db_merge(to, a, path).known, 4);
  db_close(from);
  db_close(to);
  arena_free(a);
}

static void prune(Ctx *ctx, void *arg)
{
  Arena *a = arena_new(ctx);
  Db *db = db_open(ctx, arg, false);
  const char *winners = db_winners(db, a, "llvm");
  assert_int_equal(db_prune(db), 2); /* what lost and what crashed */
  assert_string_equal(db_winners(db, a, "llvm"), winners);
  assert_non_null(db_verdict(db, a, "m", "llvm"));
  assert_int_equal(db_prune(db), 0);
  db_close(db);
  arena_free(a);
}

static void test_lines(void **state)
{
  (void)state;
  MUST(put_some, path);
  MUST(export_import, NULL);
  MUST(read_back, other);
  MUST(prune, other);
}

/* ---- files that will not do ------------------------------------------------------------------------- */

static void open_it(Ctx *ctx, void *arg) { db_close(db_open(ctx, arg, true)); }
static void open_old(Ctx *ctx, void *arg) { db_close(db_open(ctx, arg, false)); }

static void write_file(const char *name, const char *text, size_t n)
{
  FILE *f = fopen(name, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, n, f), n);
  fclose(f);
}

static void expect(const char *said, const char *part)
{
  if (!said || !strstr(said, part)) fail_msg("said '%s', wanted '%s'", said ? said : "nothing", part);
}

static void test_foreign(void **state)
{
  (void)state;
  static char text[4096];
  memset(text, 'x', sizeof text);
  write_file(path, text, sizeof text);
  expect(attempt(open_it, path), "is no database");
  char command[400];
  snprintf(command, sizeof command, "rm %s && sqlite3 %s 'create table t(x)' 2>/dev/null", path, path);
  if (system(command) == 0) expect(attempt(open_it, path), "is a database of another program");
  expect(attempt(open_old, other), "there is no database");
  expect(attempt(open_it, "/nowhere/at/all.db"), "cannot be opened");
}

static void set_version(Ctx *ctx, void *arg)
{
  char command[400];
  (void)ctx;
  snprintf(command, sizeof command, "sqlite3 %s 'pragma user_version = 99' 2>/dev/null", (char *)arg);
  if (system(command)) strcpy(arg, ""); /* no such program here */
}

static void test_newer(void **state)
{
  (void)state;
  MUST(put_some, path);
  MUST(set_version, path);
  if (*path) expect(attempt(open_it, path), "has version 99, this Lathe reads version 2");
}

/* A file of version 1 gets the column that it lacks, and has its records still. */
static void test_older(void **state)
{
  (void)state;
  char command[600];
  MUST(put_some, path);
  snprintf(command, sizeof command,
           "sqlite3 %s 'alter table records drop column features; pragma user_version = 1' 2>/dev/null", path);
  if (system(command)) return; /* no such program here */
  assert_null(attempt(open_it, path));
  snprintf(command, sizeof command,
           "test $(sqlite3 %s 'pragma user_version; select count(features) > 0 from records' | "
           "tr '\\n' :) = 2:1:",
           path);
  assert_int_equal(system(command), 0);
}

/* A page in the middle is overwritten. */
static void test_damaged(void **state)
{
  (void)state;
  MUST(put_some, path);
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  fseek(f, 4096, SEEK_SET);
  for (int i = 0; i < 8192; i++) fputc(0xa5, f);
  fclose(f);
  expect(attempt(open_it, path), "is damaged");
}

static void put_many(Ctx *ctx, void *arg)
{
  Db *db = db_open(ctx, arg, true);
  for (int i = 0; i < 2000; i++) {
    TuneRecord r = record("w1", "direct{x=2}", quick);
    db_put(db, &r);
  }
  db_close(db);
}

/* A file that may not grow stands for a disk that is full. */
static void test_full(void **state)
{
  (void)state;
  MUST(put_some, path);
  pid_t pid = fork();
  if (pid == 0) {
    struct rlimit limit = {64 * 1024, 64 * 1024};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    const char *said = attempt(put_many, path);
    _exit(said && strstr(said, "cannot be written") ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_null(attempt(open_old, path)); /* and it is sound */
}

/* ---- statistics ------------------------------------------------------------------------------------------ */

static void statistics(Ctx *ctx, void *arg)
{
  (void)arg;
  Arena *a = arena_new(ctx);
  static const double v[] = {4, 1, 3, 2};
  assert_true(tune_median(a, 4, v) == 2.5);
  assert_true(tune_quartile(a, 4, v, 0.25) == 1.75);
  Repeats s = {5, slow};
  Repeats q = {5, quick};
  Comparison c = tune_compare(a, &s, &q);
  assert_true(c.ratio > 0.799 && c.ratio < 0.801); /* of 0.8, 0.727, 0.82, 0.75, 0.8 */
  assert_true(c.spread > 0.024 && c.spread < 0.026);
  assert_true(tune_beats(a, &s, &q));
  assert_false(tune_beats(a, &q, &s));
  assert_false(tune_beats(a, &s, &s));
  static const double near[] = {9.95e-6, 10.9e-6, 9.97e-6, 11.9e-6, 9.9e-6}; /* less than a hundredth */
  assert_false(tune_beats(a, &s, &(Repeats){5, near}));
  static const double wild[] = {5e-6, 14e-6, 6e-6, 15e-6, 9e-6}; /* the spread is larger than the gain */
  assert_false(tune_beats(a, &s, &(Repeats){5, wild}));
  assert_false(tune_beats(a, &(Repeats){2, slow}, &(Repeats){2, quick})); /* too few */
  arena_free(a);
}

static void test_statistics(void **state)
{
  (void)state;
  MUST(statistics, NULL);
}

/* Seconds that double with a field which the prediction does not know of: the model finds that out. */
static void test_learning(void **state)
{
  (void)state;
  enum { N = 16 };
  static char text[N][40];
  TuneCandidate c[N];
  double seconds[N] = {0};
  double out[N];
  for (int i = 0; i < N; i++) {
    snprintf(text[i], sizeof text[i], "direct{o=%d, x=%d}", 1 << (i / 4), 1 + i % 4);
    c[i] = (TuneCandidate){text[i], 1e-5};
  }
  tune_learn(N, c, seconds, NULL, out);
  for (int i = 0; i < N; i++) assert_true(out[i] > 0.99e-5 && out[i] < 1.01e-5); /* nothing learnt: the prediction */
  for (int i = 0; i < N; i += 2) seconds[i] = 1e-5 * (1 << (i / 4));
  tune_learn(N, c, seconds, NULL, out);
  for (int i = 1; i < N; i += 2)
    for (int k = i + 4; k < N; k += 2) assert_true(out[i] < out[k]); /* of those that were not measured */
  /* of another workload, ten times as long: nothing was measured of this one, and it knows the order */
  double none[N] = {0};
  for (int i = 0; i < N; i++) seconds[i] *= 10;
  tune_learn(N, c, none, &(TuneOthers){N, c, seconds}, out);
  assert_true(out[1] < out[13]);
  /* its own count for more: where the field does not matter here, what others say of it is forgotten */
  for (int i = 0; i < N; i++) none[i] = 1e-5;
  tune_learn(N, c, none, &(TuneOthers){N, c, seconds}, out);
  assert_true(out[13] < 1.5 * out[1]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_round, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_lines, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_foreign, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_newer, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_older, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_damaged, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_full, set_up, tear_down),
    cmocka_unit_test(test_statistics),
    cmocka_unit_test(test_learning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
