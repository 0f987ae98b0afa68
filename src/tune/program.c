/* program.c: a loop program tuned: traces of sketches, their decisions mutated, the fastest kept.
 *
 * It begins with what won for other programs of the same form and target: their traces, brought to this one's sizes.
 * Each round some sketches are drawn and decisions of the fastest so far are changed; of these the ones that the models
 * think fastest are measured beside the incumbent, which at first is the program as it was given.  One that beats it
 * is the next incumbent: so what it computes has been compared, step by step, with the program itself.
 * There are two models: one over the decisions of this program's traces, and one over what loops do, which has learnt
 * from all programs in the database. */
#include <math.h>
#include <stdlib.h>

#include "tune/tune.h"

enum { MOST_BATCH = 6, POOL = 32, PARENTS = 6, MOST_ROWS = 1000 };

typedef struct Trial {
  const char *trace;
  double seconds;    /* 0: not measured, below: it failed */
  const double *row; /* what the model reads of it; NULL: its decisions are not possible */
  bool first;        /* to be measured before others: it won elsewhere */
} Trial;

/* A program of the database. */
typedef struct Elsewhere {
  const char *trace; /* the fastest that beat what it was measured beside; NULL: none */
  double seconds;
} Elsewhere;

typedef struct ProgramSearch {
  Ctx *ctx;
  Arena *arena;
  const PrimFunc *f;
  const Target *target;
  Db *db;
  const TuneProgramOptions *o;
  MeasureOptions measure;
  const char *workload;
  Vec(Trial) trial;
  Vec(TuneCandidate) candidate; /* the same, as the model reads them */
  StrMap seen;
  StrMap elsewhere;  /* workload -> Elsewhere */
  Vec(double *) row; /* of other programs, and … */
  Vec(double) taken; /* … the seconds that they took */
  int incumbent;     /* -1: the program as it was given */
  TuneProgram out;
  double start;
  uint64_t seed;
  bool stopped;
  /* the batch under way */
  int n, pick[MOST_BATCH];
  int winner;
  double least;
} ProgramSearch;

static void drop_arena(void *a) { arena_free(a); }

const char *tune_program_name(Arena *arena, const PrimFunc *f, const Target *t)
{
  uint64_t h = func_hash(f);
  h = hash_mix(hash_mix(h, t->features), (uint64_t)t->arch);
  h = hash_mix(hash_mix(h, (uint64_t)t->vector_bits), (uint64_t)t->num_cores);
  h = hash_mix(hash_mix(h, (uint64_t)t->l1_bytes), (uint64_t)t->l2_bytes);
  return arena_printf(arena, "tir.%s-%016" PRIx64, f->name, h);
}

/* ---- candidates ------------------------------------------------------------------------------------------ */

typedef struct Replay {
  ProgramSearch *s;
  const char *trace;
  bool fitted; /* it is of another program */
  Sched *made;
} Replay;

static void free_sched(void *k) { sched_free(k); }

static void replay(Ctx *ctx, void *arg)
{
  Replay *r = arg;
  (void)ctx;
  r->made = sched_new(r->s->f, 1);
  if (r->fitted) sched_replay_fitted(r->made, r->trace);
  else sched_replay(r->made, r->trace);
}

/* The schedule of a trace; NULL: its decisions are not possible.  Goes with the caller's scope. */
static Sched *schedule_of(ProgramSearch *s, const char *trace, bool fitted)
{
  Replay r = {s, trace, fitted, NULL};
  ErrKind kind = protect(s->ctx, replay, &r);
  if (error_passes_on(kind)) error_reraise(s->ctx);
  if (r.made) defer(s->ctx, free_sched, r.made);
  return kind == ERR_NONE ? r.made : NULL;
}

static const PrimFunc *function_of(ProgramSearch *s, const char *trace)
{
  Sched *made = schedule_of(s, trace, false);
  return made ? sched_func(made) : NULL;
}

/* made: what the trace makes of the program; NULL: that is to be found out. */
static Trial *add_trace(ProgramSearch *s, const char *trace, const PrimFunc *made)
{
  uintptr_t known = (uintptr_t)strmap_get(&s->seen, trace);
  if (known) return &s->trial.v[known - 1];
  Scope scope = scope_begin(s->ctx);
  if (!made) made = function_of(s, trace);
  trace = arena_strdup(s->arena, trace);
  Trial t = {trace, made ? 0 : -1, made ? tune_program_features(s->arena, made) : NULL, false};
  scope_end(s->ctx, scope);
  vec_push(s->arena, &s->trial, t);
  vec_push(s->arena, &s->candidate, ((TuneCandidate){tune_decisions(s->arena, trace), 1e-4}));
  strmap_put(s->arena, &s->seen, trace, (void *)(uintptr_t)s->trial.n);
  return &s->trial.v[s->trial.n - 1];
}

static void draw_sketch(Ctx *ctx, void *arg)
{
  ProgramSearch *s = arg;
  Scope scope = scope_begin(ctx);
  Arena *own = arena_new(ctx);
  defer(ctx, drop_arena, own);
  Sched *k = tune_sketch(own, s->f, s->target, tune_draw(&s->seed));
  add_trace(s, sched_trace_text(own, k), sched_func(k));
  scope_end(ctx, scope);
}

/* One of the fastest so far; NULL: nothing was measured. */
static const char *parent(ProgramSearch *s)
{
  int best[PARENTS];
  int n = 0;
  for (int i = 0; i < s->trial.n; i++) {
    if (s->trial.v[i].seconds <= 0) continue;
    int k = n < PARENTS ? n++ : PARENTS;
    while (k > 0 && s->trial.v[best[k - 1]].seconds > s->trial.v[i].seconds) {
      if (k < PARENTS) best[k] = best[k - 1];
      k--;
    }
    if (k < PARENTS) best[k] = i;
  }
  return n ? s->trial.v[best[tune_draw(&s->seed) % (uint64_t)n]].trace : NULL;
}

static void fill_pool(ProgramSearch *s)
{
  enum { SKETCHES = POOL / 4 };
  int first = s->trial.n;
  for (int i = 0; i < POOL; i++) {
    const char *from = i < SKETCHES ? NULL : parent(s);
    if (from) {
      Scope scope = scope_begin(s->ctx);
      Arena *own = arena_new(s->ctx);
      defer(s->ctx, drop_arena, own);
      const char *trace = from;
      for (uint64_t times = 1 + tune_draw(&s->seed) % 3; times > 0; times--)
        trace = tune_mutate(own, trace, NULL, &s->seed);
      add_trace(s, trace, NULL);
      scope_end(s->ctx, scope);
    } else if (first == 0 || i < SKETCHES) {
      ErrKind kind = protect(s->ctx, draw_sketch, s);
      if (error_passes_on(kind)) error_reraise(s->ctx);
      if (kind != ERR_NONE && s->trial.n == 0 && i == POOL - 1) error_reraise(s->ctx);
    }
  }
}

/* What won elsewhere; the best by what the models think, and one of any. */
static int next_trial(ProgramSearch *s, const double *thought, bool any)
{
  int best = -1;
  int count = 0;
  for (int i = 0; i < s->trial.n; i++) {
    bool taken = s->trial.v[i].seconds != 0;
    for (int k = 0; k < s->n; k++) taken |= s->pick[k] == i;
    if (taken) continue;
    count++;
    if (s->trial.v[i].first) return i;
    bool better = any ? tune_draw(&s->seed) % (uint64_t)count == 0 : best < 0 || thought[i] < thought[best];
    if (better) best = i;
  }
  return best;
}

/* ---- measuring ------------------------------------------------------------------------------------------- */

static int told(void *env, int i, const MeasureResult *r)
{
  ProgramSearch *s = env;
  Trial *t = &s->trial.v[s->pick[i]];
  if (s->db)
    db_put(s->db, &(TuneRecord){.workload = s->workload,
                                .target = s->target->text,
                                .what = s->f->name,
                                .kind = "trace",
                                .candidate = t->trace,
                                .status = r->status,
                                .note = r->note,
                                .seconds = r->seconds,
                                .base = s->incumbent < 0 ? "" : s->trial.v[s->incumbent].trace,
                                .base_seconds = r->base,
                                .threads = s->measure.threads,
                                .nfeatures = t->row ? TUNE_FEATURES : 0,
                                .features = t->row});
  s->out.trials++;
  s->out.failed += r->status != TUNE_OK;
  t->seconds = r->status == TUNE_LOST ? 0 : -1;
  if (r->status == TUNE_OK) {
    t->seconds = tune_median(s->arena, r->seconds.n, r->seconds.seconds);
    if (s->incumbent < 0) s->out.before = tune_median(s->arena, r->base.n, r->base.seconds);
    double ratio = tune_compare(s->arena, &r->base, &r->seconds).ratio;
    if (tune_beats(s->arena, &r->base, &r->seconds) && ratio < s->least) {
      s->least = ratio;
      s->winner = s->pick[i];
    }
  }
  double best = s->winner >= 0      ? s->trial.v[s->winner].seconds
                : s->incumbent >= 0 ? s->trial.v[s->incumbent].seconds
                                    : s->out.before;
  if (s->o->progress && s->o->progress(s->o->env, &s->out, best, clock_seconds() - s->start)) s->stopped = true;
  return s->stopped || (s->o->seconds > 0 && clock_seconds() - s->start > s->o->seconds);
}

static bool is_over(const ProgramSearch *s)
{
  if (s->stopped || (s->o->trials > 0 && s->out.trials >= s->o->trials)) return true;
  return s->o->seconds > 0 && clock_seconds() - s->start > s->o->seconds;
}

/* What the model over loops thinks of each trial. */
static void think_by_loops(ProgramSearch *s, double *out)
{
  Arena *a = scratch(s->ctx);
  int n = s->row.n;
  int m = s->trial.n;
  double *rows = arena_array(a, double, (size_t)(n + m) * TUNE_FEATURES + 1);
  double *asked = arena_array(a, double, (size_t)m *TUNE_FEATURES + 1);
  double *seconds = arena_array(a, double, n + m + 1);
  for (int i = 0; i < n; i++) {
    memcpy(rows + (size_t)i * TUNE_FEATURES, s->row.v[i], TUNE_FEATURES * sizeof *rows);
    seconds[i] = s->taken.v[i];
  }
  for (int i = 0; i < m; i++) {
    const Trial *t = &s->trial.v[i];
    if (t->row) memcpy(asked + (size_t)i * TUNE_FEATURES, t->row, TUNE_FEATURES * sizeof *asked);
    if (!t->row || t->seconds <= 0) continue;
    memcpy(rows + (size_t)n * TUNE_FEATURES, t->row, TUNE_FEATURES * sizeof *rows);
    seconds[n++] = t->seconds;
  }
  tune_fit(a, TUNE_FEATURES, n, rows, seconds, m, asked, out);
}

/* Between the two models. */
static double *think(ProgramSearch *s)
{
  double *thought = arena_array(scratch(s->ctx), double, s->trial.n + 1);
  double *loops = arena_array(scratch(s->ctx), double, s->trial.n + 1);
  double *seconds = arena_array(scratch(s->ctx), double, s->trial.n + 1);
  for (int i = 0; i < s->trial.n; i++) seconds[i] = s->trial.v[i].seconds > 0 ? s->trial.v[i].seconds : 0;
  tune_learn(s->trial.n, s->candidate.v, seconds, NULL, thought);
  think_by_loops(s, loops);
  for (int i = 0; i < s->trial.n; i++) thought[i] = sqrt(thought[i] * loops[i]);
  return thought;
}

static void measure_batch(ProgramSearch *s)
{
  const PrimFunc *func[MOST_BATCH];
  const double *thought = think(s);
  int most = s->incumbent < 0 ? 2 : MOST_BATCH; /* what it starts from may be very slow */
  if (s->o->trials > 0 && s->o->trials - s->out.trials < most) most = (int)(s->o->trials - s->out.trials);
  s->n = 0;
  while (s->n < most) {
    int i = next_trial(s, thought, s->n == MOST_BATCH - 1);
    if (i < 0) break;
    const PrimFunc *made = function_of(s, s->trial.v[i].trace);
    if (!made) s->trial.v[i].seconds = -1;
    else {
      func[s->n] = made;
      s->pick[s->n++] = i;
    }
  }
  const PrimFunc *base = s->incumbent < 0 ? s->f : function_of(s, s->trial.v[s->incumbent].trace);
  MeasureSpec spec = {.target = s->target, .n = s->n, .base_func = base, .func = func};
  s->winner = -1;
  s->least = 1;
  tune_measure(s->ctx, s->arena, &spec, &s->measure, told, s);
  if (s->winner >= 0) s->incumbent = s->winner;
}

static void take_record(void *env, const TuneRecord *r)
{
  ProgramSearch *s = env;
  if (strcmp(r->kind, "trace") || r->status == TUNE_LOST) return;
  Trial *t = add_trace(s, r->candidate, NULL);
  t->seconds = r->status == TUNE_OK ? tune_median(s->arena, r->seconds.n, r->seconds.seconds) : -1;
}

/* A record of another program: what the model learns from, and what this one may begin with. */
static void take_other(void *env, const TuneRecord *r)
{
  ProgramSearch *s = env;
  if (strcmp(r->kind, "trace") || r->status != TUNE_OK || !strcmp(r->workload, s->workload)) return;
  double seconds = tune_median(s->arena, r->seconds.n, r->seconds.seconds);
  if (r->nfeatures == TUNE_FEATURES && seconds > 0) {
    double *row = arena_copy(s->arena, r->features, TUNE_FEATURES * sizeof *row);
    if (s->row.n < MOST_ROWS) {
      vec_push(s->arena, &s->row, row);
      vec_push(s->arena, &s->taken, seconds);
    } else {
      int at = (int)(tune_draw(&s->seed) % MOST_ROWS);
      s->row.v[at] = row;
      s->taken.v[at] = seconds;
    }
  }
  Elsewhere *e = strmap_get(&s->elsewhere, r->workload);
  if (!e)
    strmap_put(s->arena, &s->elsewhere, arena_strdup(s->arena, r->workload), e = arena_new_of(s->arena, Elsewhere));
  if (!tune_beats(s->arena, &r->base_seconds, &r->seconds) || (e->trace && seconds >= e->seconds)) return;
  *e = (Elsewhere){arena_strdup(s->arena, r->candidate), seconds};
}

/* What won for the newest of the other programs, where it is possible here. */
static void begin_elsewhere(ProgramSearch *s)
{
  enum { MOST = 24 };
  db_each(s->db, NULL, s->target->text, take_other, s);
  int tried = 0;
  for (int i = s->elsewhere.n - 1; i >= 0 && tried < MOST; i--) {
    const Elsewhere *e = s->elsewhere.val[i];
    if (!e->trace) continue;
    Scope scope = scope_begin(s->ctx);
    tried++;
    Sched *made = schedule_of(s, e->trace, true);
    if (made) add_trace(s, sched_trace_text(scratch(s->ctx), made), sched_func(made))->first = true;
    scope_end(s->ctx, scope);
  }
}

/* What earlier runs found; the best of it is the incumbent. */
static void resume(ProgramSearch *s)
{
  db_each(s->db, s->workload, s->target->text, take_record, s);
  const char *best = db_best_trace(s->db, s->arena, s->workload, s->target->text);
  for (int i = 0; best && i < s->trial.n; i++)
    if (!strcmp(s->trial.v[i].trace, best) && function_of(s, best)) s->incumbent = i;
}

TuneProgram tune_program(Ctx *ctx, Arena *arena, const PrimFunc *f, const Target *target, Db *db,
                         const TuneProgramOptions *o)
{
  Scope scope = scope_begin(ctx);
  ProgramSearch *s = arena_new_of(arena, ProgramSearch);
  *s = (ProgramSearch){.ctx = ctx,
                       .arena = arena,
                       .f = f,
                       .target = target,
                       .db = db,
                       .o = o,
                       .measure = o->measure,
                       .workload = tune_program_name(arena, f, target),
                       .incumbent = -1,
                       .start = clock_seconds(),
                       .seed = o->seed};
  if (s->measure.threads <= 0) s->measure.threads = target->num_cores;
  if (s->measure.build_limit <= 0) s->measure.build_limit = 8;
  if (o->nworkers) s->measure.workers = tune_workers(ctx, arena, o->nworkers, o->workers, 0);
  if (db && o->resume) resume(s);
  if (db) begin_elsewhere(s);
  while (!is_over(s)) {
    Scope round = scope_begin(ctx);
    fill_pool(s);
    measure_batch(s);
    scope_end(ctx, round);
    if (s->n == 0) break; /* there is nothing left to try */
  }
  s->out.stopped = s->stopped;
  s->out.trace = s->incumbent >= 0 ? s->trial.v[s->incumbent].trace : "";
  s->out.after = s->incumbent >= 0 ? s->trial.v[s->incumbent].seconds : s->out.before;
  TuneProgram out = s->out;
  scope_end(ctx, scope);
  return out;
}
