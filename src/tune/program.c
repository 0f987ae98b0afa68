/* program.c: a loop program tuned: traces of sketches, their decisions mutated, the fastest kept.
 *
 * Each round some sketches are drawn and decisions of the fastest so far are changed; of these the ones that the model
 * thinks fastest are measured beside the incumbent, which at first is the program as it was given.  One that beats it
 * is the next incumbent: so what it computes has been compared, step by step, with the program itself. */
#include <stdlib.h>

#include "tune/tune.h"

enum { MOST_BATCH = 6, POOL = 32, PARENTS = 6 };

typedef struct Trial {
  const char *trace;
  double seconds; /* 0: not measured, below: it failed */
} Trial;

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
  int incumbent; /* -1: the program as it was given */
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

static uint64_t draw(uint64_t *seed)
{
  uint64_t z = *seed += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

const char *tune_program_name(Arena *arena, const PrimFunc *f, const Target *t)
{
  uint64_t h = func_hash(f);
  h = hash_mix(hash_mix(h, t->features), (uint64_t)t->arch);
  h = hash_mix(hash_mix(h, (uint64_t)t->vector_bits), (uint64_t)t->num_cores);
  h = hash_mix(hash_mix(h, (uint64_t)t->l1_bytes), (uint64_t)t->l2_bytes);
  return arena_printf(arena, "tir.%s-%016" PRIx64, f->name, h);
}

/* ---- candidates ------------------------------------------------------------------------------------------ */

static void add_trace(ProgramSearch *s, const char *trace)
{
  if (strmap_get(&s->seen, trace)) return;
  strmap_put(s->arena, &s->seen, trace, s);
  trace = arena_strdup(s->arena, trace);
  vec_push(s->arena, &s->trial, ((Trial){trace, 0}));
  vec_push(s->arena, &s->candidate, ((TuneCandidate){tune_decisions(s->arena, trace), 1e-4}));
}

static void draw_sketch(Ctx *ctx, void *arg)
{
  ProgramSearch *s = arg;
  Scope scope = scope_begin(ctx);
  Arena *own = arena_new(ctx);
  defer(ctx, drop_arena, own);
  Sched *k = tune_sketch(own, s->f, s->target, draw(&s->seed));
  add_trace(s, sched_trace_text(own, k));
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
  return n ? s->trial.v[best[draw(&s->seed) % (uint64_t)n]].trace : NULL;
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
      for (uint64_t times = 1 + draw(&s->seed) % 3; times > 0; times--) trace = tune_mutate(own, trace, NULL, &s->seed);
      add_trace(s, trace);
      scope_end(s->ctx, scope);
    } else if (first == 0 || i < SKETCHES) {
      ErrKind kind = protect(s->ctx, draw_sketch, s);
      if (error_passes_on(kind)) error_reraise(s->ctx);
      if (kind != ERR_NONE && s->trial.n == 0 && i == POOL - 1) error_reraise(s->ctx);
    }
  }
}

typedef struct Replay {
  ProgramSearch *s;
  const char *trace;
  Sched *made;
} Replay;

static void free_sched(void *k) { sched_free(k); }

static void replay(Ctx *ctx, void *arg)
{
  Replay *r = arg;
  (void)ctx;
  r->made = sched_new(r->s->f, 1);
  sched_replay(r->made, r->trace);
}

/* The function of a trace; NULL: its decisions are not possible.  Goes with the caller's scope. */
static const PrimFunc *function_of(ProgramSearch *s, const char *trace)
{
  Replay r = {s, trace, NULL};
  ErrKind kind = protect(s->ctx, replay, &r);
  if (error_passes_on(kind)) error_reraise(s->ctx);
  if (r.made) defer(s->ctx, free_sched, r.made);
  return kind == ERR_NONE ? sched_func(r.made) : NULL;
}

/* The best by what the model thinks, and one of any. */
static int next_trial(ProgramSearch *s, const double *thought, bool any)
{
  int best = -1;
  int count = 0;
  for (int i = 0; i < s->trial.n; i++) {
    bool taken = s->trial.v[i].seconds != 0;
    for (int k = 0; k < s->n; k++) taken |= s->pick[k] == i;
    if (taken) continue;
    count++;
    bool better = any ? draw(&s->seed) % (uint64_t)count == 0 : best < 0 || thought[i] < thought[best];
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
                                .threads = s->measure.threads});
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

static void measure_batch(ProgramSearch *s)
{
  const PrimFunc *func[MOST_BATCH];
  double *thought = arena_array(scratch(s->ctx), double, s->trial.n + 1);
  double *seconds = arena_array(scratch(s->ctx), double, s->trial.n + 1);
  for (int i = 0; i < s->trial.n; i++) seconds[i] = s->trial.v[i].seconds > 0 ? s->trial.v[i].seconds : 0;
  tune_learn(s->trial.n, s->candidate.v, seconds, thought);
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
  add_trace(s, r->candidate);
  for (int i = 0; i < s->trial.n; i++)
    if (!strcmp(s->trial.v[i].trace, r->candidate))
      s->trial.v[i].seconds = r->status == TUNE_OK ? tune_median(s->arena, r->seconds.n, r->seconds.seconds) : -1;
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
  if (s->measure.build_limit <= 0) s->measure.build_limit = 15;
  if (o->nworkers) s->measure.workers = tune_workers(ctx, arena, o->nworkers, o->workers, 0);
  if (db && o->resume) resume(s);
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
