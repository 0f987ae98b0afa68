/* api_tune.c: tuning, and databases of what it found. */
#include "api/api.h"
#include "tune/tune.h"

static void close_db(void *db) { db_close(db); }

/* Closed when the call ends. */
static Db *arg_db(Call *c, int i, bool create)
{
  Db *db = db_open(c->ctx, api_arg_str(c, i), create);
  defer(c->ctx, close_db, db);
  return db;
}

static void drop_arena(void *a) { arena_free(a); }

/* For what a call gives back; the functions of tune.h keep their own things in scratch(). */
static Arena *own_arena(Ctx *ctx)
{
  Arena *a = arena_new(ctx);
  defer(ctx, drop_arena, a);
  return a;
}

/* ---- tuning ---------------------------------------------------------------------------------------- */

/* A user's function: it is handed [stage, task, elapsed, left, before, after, rows], a row being [workload,
 * what, calls, share, seconds, ratio, trials, failed, left, flops]. */
typedef struct Listener {
  Ctx *ctx;
  int32_t (*progress)(void *user, const LatheValue *);
} Listener;

static LatheValue str_value(const char *s) { return (LatheValue){.tag = LATHE_STR, .u.s = s, .n = (int64_t)strlen(s)}; }
static LatheValue list_value(const LatheValue *v, int64_t n)
{
  return (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n};
}

static LatheValue row_value(Arena *a, const TuneRow *r)
{
  const LatheValue v[] = {str_value(r->task->workload), str_value(r->task->what), api_val_int(r->task->calls),
                          api_val_float(r->share),      api_val_float(r->base),   api_val_float(r->ratio),
                          api_val_int(r->trials),       api_val_int(r->failed),   api_val_int(r->left),
                          api_val_float(r->task->flops)};
  return list_value(arena_copy(a, v, sizeof v), sizeof v / sizeof *v);
}

static int tell(void *env, const TuneProgress *p)
{
  Listener *l = env;
  if (!l->progress) return 0;
  Arena *a = scratch(l->ctx);
  LatheValue *rows = arena_array(a, LatheValue, p->n + 1);
  for (int i = 0; i < p->n; i++) rows[i] = row_value(a, &p->row[i]);
  const LatheValue v[] = {str_value(p->stage),    api_val_int(p->task),     api_val_float(p->elapsed),
                          api_val_float(p->left), api_val_float(p->before), api_val_float(p->after),
                          list_value(rows, p->n)};
  LatheValue all = list_value(v, sizeof v / sizeof *v);
  int32_t answer = l->progress(NULL, &all);
  if (answer < 0) raise(l->ctx, ERR_CALLBACK, NOWHERE, "the function that follows the tuning failed");
  return answer;
}

static const Target *arg_target(Call *c, int i, const PassContext *pc)
{
  const Target *t = api_arg_ptr(c, i);
  return t ? t : pc->target ? pc->target : target_host(c->ctx);
}

static void network(Call *c)
{
  PassContext *pc = (PassContext *)api_arg_ptr(c, 2);
  Listener *l = arena_new_of(scratch(c->ctx), Listener);
  *l = (Listener){c->ctx, (int32_t (*)(void *, const LatheValue *))(intptr_t)api_arg_int(c, 8)};
  TuneOptions o = {.seconds = api_arg_given(c, 4) ? api_arg_float(c, 4) : 0,
                   .trials = api_arg_given(c, 5) ? api_arg_int(c, 5) : 0,
                   .resume = api_arg_bool(c, 6),
                   .measure = {.threads = api_arg_given(c, 7) ? api_arg_int32(c, 7, 1, 1024) : 0},
                   .progress = tell,
                   .env = l};
  if (!(o.seconds > 0) && o.trials <= 0)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "tuning wants a limit: seconds or trials, above zero");
  const Target *target = arg_target(c, 1, pc);
  if (!target->is_host || target_is_gpu(target))
    raise(c->ctx, ERR_UNSUPPORTED, NOWHERE, "target '%s' is not this machine's CPU: what is tuned has to run here",
          target->text);
  Db *db = arg_db(c, 3, true);
  TuneSummary s = tune_network(c->ctx, (Module *)api_arg_ptr(c, 0), target, pc, db, &o);
  LatheValue *v = api_val_list(c, 11, c->out);
  const int64_t counts[] = {s.tasks, s.skipped, s.trials, s.failed, s.wins, s.kept};
  for (int i = 0; i < 6; i++) v[i] = api_val_int(counts[i]);
  v[6] = api_val_float(s.before);
  v[7] = api_val_float(s.after);
  v[8] = api_val_float(s.spread);
  v[9] = api_val_bool(s.stopped);
  v[10] = api_val_bool(s.judged);
}

static void tasks(Call *c)
{
  PassContext *pc = (PassContext *)api_arg_ptr(c, 2);
  TuneTasks *t = tune_tasks(c->ctx, own_arena(c->ctx), (Module *)api_arg_ptr(c, 0), arg_target(c, 1, pc), pc);
  LatheValue *v = api_val_list(c, t->n, c->out);
  for (int i = 0; i < t->n; i++) {
    LatheValue *r = api_val_list(c, 7, &v[i]);
    const TuneTask *k = t->task[i];
    r[0] = api_val_str(c, k->workload);
    r[1] = api_val_str(c, k->what);
    r[2] = api_val_int(k->calls);
    r[3] = api_val_float(k->flops);
    r[4] = api_val_str(c, k->base);
    LatheValue *plan = api_val_list(c, k->n, &r[5]);
    for (int p = 0; p < k->n; p++) {
      LatheValue *pair = api_val_list(c, 2, &plan[p]);
      pair[0] = api_val_str(c, k->candidate[p].plan);
      pair[1] = api_val_float(k->candidate[p].predicted);
    }
    r[6] = api_val_object(c, LATHE_MODULE, k->module, 0, k->module, NULL);
  }
}

const char *api_tuned_plans(Ctx *ctx, Arena *arena, const char *path, Module *m, const Target *target, PassContext *pc)
{
  Scope scope = scope_begin(ctx);
  Db *db = db_open(ctx, path, false);
  defer(ctx, close_db, db);
  const char *lines = db_verdict(db, arena, tune_model_name(scratch(ctx), m, pc), target->text);
  if (!lines) lines = db_winners(db, arena, target->text);
  scope_end(ctx, scope);
  return lines;
}

static void tuned_plans(Call *c)
{
  PassContext *pc = (PassContext *)api_arg_ptr(c, 3);
  *c->out = api_val_str(c, api_tuned_plans(c->ctx, own_arena(c->ctx), api_arg_str(c, 0), (Module *)api_arg_ptr(c, 1),
                                           arg_target(c, 2, pc), pc));
}

/* ---- loop programs --------------------------------------------------------------------------------------- */

/* A user's function is handed [trials, failed, seconds before, best, elapsed]. */
static int tell_program(void *env, const TuneProgram *p, double best, double elapsed)
{
  Listener *l = env;
  if (!l->progress) return 0;
  const LatheValue v[] = {api_val_int(p->trials), api_val_int(p->failed), api_val_float(p->before), api_val_float(best),
                          api_val_float(elapsed)};
  LatheValue all = list_value(v, sizeof v / sizeof *v);
  int32_t answer = l->progress(NULL, &all);
  if (answer < 0) raise(l->ctx, ERR_CALLBACK, NOWHERE, "the function that follows the tuning failed");
  return answer;
}

static const Target *arg_host(Call *c, int i)
{
  const Target *t = api_arg_ptr(c, i);
  if (!t) t = target_host(c->ctx);
  if (!t->is_host || target_is_gpu(t))
    raise(c->ctx, ERR_UNSUPPORTED, NOWHERE, "target '%s' is not this machine's CPU: what is tuned has to run here",
          t->text);
  return t;
}

static void program(Call *c)
{
  Listener *l = arena_new_of(scratch(c->ctx), Listener);
  *l = (Listener){c->ctx, (int32_t (*)(void *, const LatheValue *))(intptr_t)api_arg_int(c, 7)};
  TuneProgramOptions o = {.seconds = api_arg_given(c, 3) ? api_arg_float(c, 3) : 0,
                          .trials = api_arg_given(c, 4) ? api_arg_int(c, 4) : 0,
                          .resume = api_arg_bool(c, 5),
                          .seed = (uint64_t)api_arg_int(c, 6),
                          .progress = tell_program,
                          .env = l};
  if (!(o.seconds > 0) && o.trials <= 0)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "tuning wants a limit: seconds or trials, above zero");
  const LatheValue *command;
  o.nworkers = api_arg_given(c, 8) ? api_arg_list(c, 8, &command) : 0;
  const char **workers = arena_array(own_arena(c->ctx), const char *, o.nworkers + 1);
  for (int i = 0; i < o.nworkers; i++) workers[i] = api_value_text(c, &command[i]);
  o.workers = workers;
  const Target *target = arg_host(c, 1);
  Db *db = api_arg_given(c, 2) ? arg_db(c, 2, true) : NULL;
  TuneProgram p = tune_program(c->ctx, own_arena(c->ctx), api_arg_ptr(c, 0), target, db, &o);
  LatheValue *v = api_val_list(c, 6, c->out);
  v[0] = api_val_str(c, p.trace);
  v[1] = api_val_float(p.before);
  v[2] = api_val_float(p.after);
  v[3] = api_val_int(p.trials);
  v[4] = api_val_int(p.failed);
  v[5] = api_val_bool(p.stopped);
}

static void tuned_trace(Call *c)
{
  Arena *a = own_arena(c->ctx);
  const Target *t = api_arg_ptr(c, 2);
  if (!t) t = target_host(c->ctx);
  *c->out = api_val_str(c, db_best_trace(arg_db(c, 0, false), a, tune_program_name(a, api_arg_ptr(c, 1), t), t->text));
}

static void program_name(Call *c)
{
  Arena *a = own_arena(c->ctx);
  const Target *t = api_arg_ptr(c, 1);
  *c->out = api_val_str(c, tune_program_name(a, api_arg_ptr(c, 0), t ? t : target_host(c->ctx)));
}

static LatheValue val_seconds(Call *c, const Repeats *r)
{
  LatheValue list;
  LatheValue *v = api_val_list(c, r->n, &list);
  for (int i = 0; i < r->n; i++) v[i] = api_val_float(r->seconds[i]);
  return list;
}

typedef struct Measured {
  Call *c;
  LatheValue *v;
  int n;
} Measured;

static int take_result(void *env, int i, const MeasureResult *r)
{
  Measured *m = env;
  LatheValue *v = api_val_list(m->c, 4, &m->v[i]);
  v[0] = api_val_str(m->c, tune_status_name(r->status));
  v[1] = api_val_str(m->c, r->note);
  v[2] = val_seconds(m->c, &r->seconds);
  v[3] = val_seconds(m->c, &r->base);
  m->n = i + 1;
  return 0;
}

static void measure(Call *c)
{
  const void **func;
  int n = api_arg_ptrs(c, NULL, 0, &func);
  MeasureSpec spec = {
    .target = arg_host(c, 2), .n = n, .base_func = api_arg_ptr(c, 1), .func = (const PrimFunc *const *)func};
  MeasureOptions o = {.threads = api_arg_given(c, 6) ? api_arg_int32(c, 6, 1, 1024) : spec.target->num_cores,
                      .seconds = api_arg_given(c, 3) ? api_arg_float(c, 3) : 0,
                      .build_limit = api_arg_given(c, 4) ? api_arg_float(c, 4) : 0,
                      .run_limit = api_arg_given(c, 5) ? api_arg_float(c, 5) : 0,
                      .check_only = api_arg_bool(c, 7)};
  Measured m = {.c = c, .v = api_val_list(c, n, c->out)};
  tune_measure(c->ctx, own_arena(c->ctx), &spec, &o, take_result, &m);
}

static void measure_plans(Call *c)
{
  PassContext *pc = (PassContext *)api_arg_ptr(c, 2);
  const LatheValue *plan;
  int n = api_arg_list(c, 5, &plan);
  const char **lines = arena_array(own_arena(c->ctx), const char *, n + 1);
  Arena *a = own_arena(c->ctx);
  const char *workload = api_arg_str(c, 3);
  for (int i = 0; i < n; i++) lines[i] = arena_printf(a, "%s %s\n", workload, api_value_text(c, &plan[i]));
  MeasureSpec spec = {.m = (Module *)api_arg_ptr(c, 0),
                      .target = arg_host(c, 1),
                      .passes = pc,
                      .workload = workload,
                      .base = arena_printf(a, "%s %s\n", workload, api_arg_str(c, 4)),
                      .n = n,
                      .lines = lines};
  MeasureOptions o = {.threads = spec.target->num_cores,
                      .seconds = api_arg_given(c, 6) ? api_arg_float(c, 6) : 0,
                      .build_limit = api_arg_given(c, 7) ? api_arg_float(c, 7) : 0,
                      .run_limit = api_arg_given(c, 8) ? api_arg_float(c, 8) : 0};
  Measured m = {.c = c, .v = api_val_list(c, n, c->out)};
  tune_measure(c->ctx, a, &spec, &o, take_result, &m);
}

static void rule(Call *c)
{
  static const char *const names[] = {[RULE_INLINE] = "inline",       [RULE_PARTS] = "parts", [RULE_TILE] = "tile",
                                      [RULE_REGISTERS] = "registers", [RULE_DOTS] = "dots",   [RULE_MAP] = "map"};
  const char *name = api_arg_str(c, 1);
  const Target *t = api_arg_ptr(c, 3);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i], name)) {
      *c->out = api_val_bool(tune_rule(own_arena(c->ctx), (Sched *)api_arg_ptr(c, 0), t ? t : target_host(c->ctx),
                                       (TuneRule)i, api_arg_str(c, 2), (uint64_t)api_arg_int(c, 4)));
      return;
    }
  raise(c->ctx, ERR_ARGUMENT, NOWHERE, "there is no rule '%s'; inline, parts, tile, registers and map are", name);
}

static void mutate(Call *c)
{
  uint64_t seed = (uint64_t)api_arg_int(c, 1);
  const char *primitive = api_arg_given(c, 2) ? api_arg_str(c, 2) : NULL;
  *c->out = api_val_str(c, tune_mutate(own_arena(c->ctx), api_arg_str(c, 0), primitive, &seed));
}

static void answer(Call *c) { *c->out = api_val_str(c, tune_answer(c->ctx, own_arena(c->ctx), api_arg_str(c, 0))); }

static void learn(Call *c)
{
  const LatheValue *given;
  const LatheValue *seconds;
  int n = api_arg_list(c, 0, &given);
  int m = api_arg_list(c, 1, &seconds);
  if (n != m) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%d candidates have %d measured times", n, m);
  Arena *a = scratch(c->ctx);
  TuneCandidate *candidate = arena_array(a, TuneCandidate, n + 1);
  double *measured = arena_array(a, double, n + 1);
  double *thought = arena_array(a, double, n + 1);
  for (int i = 0; i < n; i++) {
    candidate[i] = (TuneCandidate){api_value_text(c, &given[i]), 1e-4};
    measured[i] = seconds[i].tag == LATHE_INT ? (double)seconds[i].u.i : seconds[i].u.f;
  }
  tune_learn(n, candidate, measured, NULL, thought);
  *c->out = val_seconds(c, &(Repeats){n, thought});
}

static void features(Call *c)
{
  FeatureRows rows = tune_features(own_arena(c->ctx), api_arg_ptr(c, 0));
  LatheValue *v = api_val_list(c, rows.n, c->out);
  for (int i = 0; i < rows.n; i++) v[i] = val_seconds(c, &(Repeats){TUNE_FEATURES, rows.v[i]});
}

/* A list of lists of `width` numbers; width 0: as many as the first has. */
static double *arg_rows(Call *c, int i, Arena *a, int *width, int *n)
{
  const LatheValue *row;
  *n = api_arg_list(c, i, &row);
  if (*n && !*width) *width = (int)row[0].n;
  double *out = arena_array(a, double, (size_t)*n *(size_t)*width + 1);
  for (int r = 0; r < *n; r++) {
    if (row[r].n != *width)
      raise(c->ctx, ERR_ARGUMENT, NOWHERE, "a row has %d numbers, others %d", (int)row[r].n, *width);
    for (int k = 0; k < *width; k++) {
      const LatheValue *x = &row[r].u.list[k];
      out[(size_t)r * (size_t)*width + (size_t)k] = x->tag == LATHE_INT ? (double)x->u.i : x->u.f;
    }
  }
  return out;
}

static void model(Call *c)
{
  Arena *a = own_arena(c->ctx);
  const LatheValue *given;
  int width = 0;
  int n;
  int m;
  double *rows = arg_rows(c, 0, a, &width, &n);
  int count = api_arg_list(c, 1, &given);
  if (n != count) raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%d rows have %d measured times", n, count);
  double *seconds = arena_array(a, double, n + 1);
  for (int i = 0; i < n; i++) seconds[i] = given[i].tag == LATHE_INT ? (double)given[i].u.i : given[i].u.f;
  double *others = arg_rows(c, 2, a, &width, &m);
  double *out = arena_array(a, double, m + 1);
  tune_fit(a, width, n, rows, seconds, m, others, out);
  *c->out = val_seconds(c, &(Repeats){m, out});
}

/* ---- databases ------------------------------------------------------------------------------------------- */

static void list(Call *c)
{
  *c->out = api_val_str(c, db_list(arg_db(c, 0, false), own_arena(c->ctx), api_arg_bool(c, 1)));
}
static void show(Call *c)
{
  *c->out = api_val_str(c, db_show(arg_db(c, 0, false), own_arena(c->ctx), api_arg_str(c, 1), api_arg_bool(c, 2)));
}
static void export(Call *c) { *c->out = api_val_str(c, db_export(arg_db(c, 0, false), own_arena(c->ctx))); }

static void val_count(Call *c, const DbCount *n)
{
  LatheValue *v = api_val_list(c, 4, c->out);
  v[0] = api_val_int(n->taken);
  v[1] = api_val_int(n->known);
  v[2] = api_val_int(n->bad);
  v[3] = api_val_str(c, n->first_bad);
}

static void import(Call *c)
{
  DbCount n = db_import(arg_db(c, 0, true), own_arena(c->ctx), api_arg_str(c, 1));
  val_count(c, &n);
}
static void merge(Call *c)
{
  DbCount n = db_merge(arg_db(c, 0, true), own_arena(c->ctx), api_arg_str(c, 1));
  val_count(c, &n);
}
static void prune(Call *c) { *c->out = api_val_int(db_prune(arg_db(c, 0, false))); }

const ApiFunction api_tune_functions[] = {
  {"tune_network",
   "m: module, target: target?, p: passcontext, db: str, seconds: float?, trials: int?, resume: bool?, threads: int?, "
   "progress: function? -> list[any]",
   "tunes @main: tasks, skipped, trials, failed, wins, kept, seconds before and after, spread, stopped, judged; "
   "progress(user, [stage, task, elapsed, left, before, after, rows]) stops it with 1, fails with -1",
   network},
  {"tune_tasks", "m: module, target: target?, p: passcontext -> list[any]",
   "what there is to tune: workload, what, calls, flops, untuned plan, plans with predicted seconds, module", tasks},
  {"tune_program",
   "f: primfunc, target: target?, db: str?, seconds: float?, trials: int?, resume: bool?, seed: int?, progress: "
   "function?, workers: list[str]? -> list[any]",
   "tunes a loop program: trace, seconds before and after, trials, failed, stopped; progress(user, [trials, failed, "
   "before, best, elapsed]) stops it with 1, fails with -1; workers: commands that measure",
   program},
  {"tune_answer", "job: str -> str", "what 'lathe tune --worker' answers to a job", answer},
  {"tune_program_name", "f: primfunc, target: target? -> str", "the workload's name in databases", program_name},
  {"tuned_trace", "db: str, f: primfunc, target: target? -> str?", "the fastest trace that a database has",
   tuned_trace},
  {"tune_measure",
   "funcs: list[primfunc], base: primfunc?, target: target?, seconds: float?, build_limit: float?, run_limit: float?, "
   "threads: "
   "int?, check_only: bool? -> list[any]",
   "each of them in a child process, checked against and in turns with the base: status, note, seconds, seconds of the "
   "base; check_only: checked alone",
   measure},
  {"tune_measure_plans",
   "m: module, target: target?, p: passcontext, workload: str, base: str, plans: list[str], seconds: float?, "
   "build_limit: float?, run_limit: float? -> list[any]",
   "the same for plans of the workload that @main computes, in turns with its untuned plan", measure_plans},
  {"tune_rule", "s: schedule, rule: str, block: str, target: target?, seed: int -> bool",
   "a rule of the sketches (inline, parts, tile, registers, dots, map) on a block; false: it is not for such a block",
   rule},
  {"tune_mutate", "trace: str, seed: int, primitive: str? -> str",
   "the trace with a decision changed, one of this primitive's if it is named", mutate},
  {"tune_learn", "candidates: list[str], seconds: list[float] -> list[float]",
   "what the measured ones (the others have 0) say about all: candidates as text, name{field=number, ...}", learn},
  {"tune_features", "f: primfunc -> list[list[float]]", "what a cost model reads of it, a row for each store",
   features},
  {"tune_model", "rows: list[list[float]], seconds: list[float], others: list[list[float]] -> list[float]",
   "fits seconds to rows of numbers and says what others take: by libxgboost where it is found", model},
  {"tuned_plans", "db: str, m: module, target: target?, p: passcontext -> str",
   "what a database has for the model, for the config lathe.tuned", tuned_plans},
  {"db_list", "db: str, json: bool? -> str", "a line for each workload", list},
  {"db_show", "db: str, workload: str, json: bool? -> str", "a line for each record of a workload", show},
  {"db_export", "db: str -> str", "all entries as lines of JSON", export},
  {"db_import", "db: str, lines: str -> list[any]", "entries that came in, were there, were none; what is wrong first",
   import},
  {"db_merge", "db: str, other: str -> list[any]", "the same with the entries of another database", merge},
  {"db_prune", "db: str -> int", "drops what no compilation would use; how many", prune},
  {0},
};
