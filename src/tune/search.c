/* search.c: a network tuned, from its tasks to the verdict.
 *
 * The untuned network is profiled: each workload's share of its time says what it is worth.  Batches of candidates go
 * to the workload from which the network may gain most: its share, less the longer nothing better was found.  Within a
 * workload the next candidates are those that the model thinks fastest, which has learnt from what the database has of
 * other workloads of the operator too, and now and then any.  What seems to win is measured once more, longer, since
 * the best of many measurements looks better than it is.
 *
 * Then the network as a whole.  Winners that lie as the untuned plan does are put in place, and those whose kernels are
 * not faster there are taken out again.  Where a winner lies otherwise, the passes choose again over the whole graph,
 * with measured times for what was measured.  Both are measured beside the untuned network; the verdict is the
 * better one, or that nothing helps. */
#include <stdlib.h>

#include "tune/tune.h"

enum { BATCH = 6, MOST_OTHERS = 400 };

/* What is known of a task. */
typedef struct Known {
  double *ratio; /* of each candidate, of the untuned time; 0: not measured, -1: failed */
  bool *beats;
  double *seconds;    /* measured alone */
  int left;           /* not measured yet */
  int stale;          /* trials since the last that was better */
  double share, base; /* of the network's time; seconds of one call there */
  int best;           /* candidate; -1: none beats the untuned plan */
  int confirmed;      /* the candidate that won again; -1: none */
  int trials, failed;
  int nother; /* records of other workloads of the operator: that came, of which the newest are kept */
  TuneCandidate *other;
  double *other_seconds;
} Known;

typedef struct Search {
  Ctx *ctx;
  Arena *arena;
  Db *db;
  const TuneOptions *o;
  MeasureOptions measure;
  TuneTasks *tasks;
  Known *known;
  double start, reserve;
  int64_t trials;
  bool stopped;
  double before, after;
  uint64_t seed;
  /* the batch under way */
  int task, n;
  int pick[BATCH];
} Search;

static void drop_arena(void *a) { arena_free(a); }

/* ---- telling --------------------------------------------------------------------------------------------- */

static double elapsed(const Search *s) { return clock_seconds() - s->start; }

static void report(Search *s, const char *stage, int task)
{
  if (!s->o->progress) return;
  Scope scope = scope_begin(s->ctx);
  int n = s->tasks->n;
  TuneRow *row = arena_array(scratch(s->ctx), TuneRow, n + 1);
  for (int i = 0; i < n; i++) {
    const Known *k = &s->known[i];
    int best = k->confirmed >= 0 ? k->confirmed : k->best;
    row[i] =
        (TuneRow){s->tasks->task[i], k->share, k->base, best >= 0 ? k->ratio[best] : 1, k->trials, k->failed, k->left};
  }
  TuneProgress p = {stage,     n,       row, task, elapsed(s), s->o->seconds > 0 ? s->o->seconds - elapsed(s) : -1,
                    s->before, s->after};
  if (s->o->progress(s->o->env, &p)) s->stopped = true;
  scope_end(s->ctx, scope);
}

static bool out_of_time(const Search *s)
{
  if (s->stopped) return true;
  if (s->o->trials > 0 && s->trials >= s->o->trials) return true;
  return s->o->seconds > 0 && elapsed(s) > s->o->seconds - s->reserve;
}

/* ---- what is known --------------------------------------------------------------------------------------- */

static int candidate_of(const TuneTask *t, const char *plan)
{
  for (int i = 0; i < t->n; i++)
    if (!strcmp(t->candidate[i].plan, plan)) return i;
  return -1;
}

/* A measurement comes in, or was made by an earlier run. */
static void learn_one(Search *s, int task, int i, TuneStatus status, const Repeats *seconds, const Repeats *base)
{
  Known *k = &s->known[task];
  if (k->ratio[i] == 0) k->left--;
  if (status != TUNE_OK) {
    k->ratio[i] = -1;
    k->beats[i] = false;
    return;
  }
  k->ratio[i] = tune_compare(s->arena, base, seconds).ratio;
  k->beats[i] = tune_beats(s->arena, base, seconds);
  k->seconds[i] = tune_median(s->arena, seconds->n, seconds->seconds);
}

static void find_best(Known *k, int n)
{
  k->best = -1;
  for (int i = 0; i < n; i++)
    if (k->beats[i] && k->ratio[i] > 0 && (k->best < 0 || k->ratio[i] < k->ratio[k->best])) k->best = i;
}

typedef struct Resume {
  Search *s;
  int task;
} Resume;

static void take_record(void *env, const TuneRecord *r)
{
  Resume *z = env;
  const TuneTask *t = z->s->tasks->task[z->task];
  int i = strcmp(r->base, t->base) || r->status == TUNE_LOST ? -1 : candidate_of(t, r->candidate);
  if (i < 0) return;
  learn_one(z->s, z->task, i, r->status, &r->seconds, &r->base_seconds);
  z->s->known[z->task].trials++;
  z->s->known[z->task].failed += r->status != TUNE_OK;
}

static void begin_task(Search *s, int i)
{
  TuneTask *t = s->tasks->task[i];
  Known *k = &s->known[i];
  *k = (Known){.left = t->n, .best = -1, .confirmed = -1};
  k->ratio = arena_array(s->arena, double, t->n);
  k->beats = arena_array(s->arena, bool, t->n);
  k->seconds = arena_array(s->arena, double, t->n);
  int base = candidate_of(t, t->base);
  if (base >= 0) {
    k->ratio[base] = 1;
    k->left--;
  }
  Resume z = {s, i};
  if (s->o->resume) db_each(s->db, t->workload, s->tasks->target->text, take_record, &z);
  find_best(k, t->n);
}

/* The operator in the name of a workload: how many letters. */
static size_t operator_of(const char *workload)
{
  const char *dash = strrchr(workload, '-');
  return dash ? (size_t)(dash - workload) : strlen(workload);
}

/* A record of another workload serves those of its operator; of many the newest. */
static void take_other(void *env, const TuneRecord *r)
{
  Search *s = env;
  if (strcmp(r->kind, "plan") || r->status != TUNE_OK || r->predicted <= 0 || !r->seconds.n) return;
  size_t n = operator_of(r->workload);
  for (int i = 0; i < s->tasks->n; i++) {
    const char *own = s->tasks->task[i]->workload;
    Known *k = &s->known[i];
    if (operator_of(own) != n || strncmp(own, r->workload, n) || !strcmp(own, r->workload)) continue;
    if (!k->nother) {
      k->other = arena_array(s->arena, TuneCandidate, MOST_OTHERS);
      k->other_seconds = arena_array(s->arena, double, MOST_OTHERS);
    }
    int at = k->nother++ % MOST_OTHERS;
    k->other[at] = (TuneCandidate){arena_strdup(s->arena, r->candidate), r->predicted};
    k->other_seconds[at] = tune_median(s->arena, r->seconds.n, r->seconds.seconds);
  }
}

/* Seconds of the nodes that compute a workload. */
static double seconds_of(const TuneProfile *p, const char *workload, int *calls)
{
  size_t n = strlen(workload);
  double sum = 0;
  *calls = 0;
  for (int i = 0; i < p->n; i++) {
    const char *plan = compiled_node_plan(p->compiled, i);
    if (!plan || strncmp(plan, workload, n) || plan[n] != ' ') continue;
    sum += p->seconds[i];
    ++*calls;
  }
  return sum;
}

static void profile(Search *s)
{
  TuneProfile p = {.compiled = s->tasks->untuned};
  tune_profile(s->ctx, s->arena, 1, &p, s->measure.threads);
  s->before = p.seconds[p.n];
  for (int i = 0; i < s->tasks->n; i++) {
    int calls;
    double all = seconds_of(&p, s->tasks->task[i]->workload, &calls);
    s->known[i].share = s->before > 0 ? all / s->before : 0;
    s->known[i].base = calls ? all / calls : 0;
  }
}

/* ---- which next ------------------------------------------------------------------------------------------ */

/* What the network may gain from another batch: -1: there is none. */
static double worth(const Known *k)
{
  if (k->left == 0) return -1;
  double now = k->best >= 0 ? k->ratio[k->best] : 1;
  return k->share * now / (1 + (double)k->stale / BATCH);
}

static int next_task(const Search *s)
{
  int best = -1;
  for (int i = 0; i < s->tasks->n; i++)
    if (worth(&s->known[i]) >= 0 && (best < 0 || worth(&s->known[i]) > worth(&s->known[best]))) best = i;
  return best;
}

static int64_t field(const char *plan, const char *name)
{
  const char *at = strstr(plan, name);
  return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

static bool lies_alike(const char *a, const char *b)
{
  return field(a, "data_block=") == field(b, "data_block=") && field(a, "out_block=") == field(b, "out_block=");
}

static uint64_t next_random(Search *s)
{
  s->seed ^= s->seed << 13;
  s->seed ^= s->seed >> 7;
  s->seed ^= s->seed << 17;
  return s->seed >> 11;
}

static bool picked(const Search *s, int i)
{
  for (int k = 0; k < s->n; k++)
    if (s->pick[k] == i) return true;
  return false;
}

/* The best by what the model thinks; one that lies otherwise has a change of layout to make good. */
static int pick_best(const Search *s, const TuneTask *t, const Known *k, const double *thought)
{
  static const double OTHERWISE = 1.15;
  int best = -1;
  double least = 0;
  for (int i = 0; i < t->n; i++) {
    if (k->ratio[i] != 0 || picked(s, i)) continue;
    double score = thought[i] * (lies_alike(t->candidate[i].plan, t->base) ? 1 : OTHERWISE);
    if (best >= 0 && score >= least) continue;
    best = i;
    least = score;
  }
  return best;
}

/* Any that is not hopeless by its prediction. */
static int pick_any(Search *s, const TuneTask *t, const Known *k)
{
  static const double HOPELESS = 3;
  Vec(int) may = {0};
  for (int i = 0; i < t->n; i++)
    if (k->ratio[i] == 0 && !picked(s, i) && t->candidate[i].predicted < HOPELESS * t->candidate[0].predicted)
      vec_push(scratch(s->ctx), &may, i);
  return may.n ? may.v[next_random(s) % (uint64_t)may.n] : -1;
}

static void pick_batch(Search *s)
{
  enum { ONE_IN = 3 };
  const TuneTask *t = s->tasks->task[s->task];
  const Known *k = &s->known[s->task];
  double *thought = arena_array(scratch(s->ctx), double, t->n);
  TuneOthers others = {k->nother < MOST_OTHERS ? k->nother : MOST_OTHERS, k->other, k->other_seconds};
  tune_learn(t->n, t->candidate, k->seconds, &others, thought);
  int most = BATCH;
  if (s->o->trials > 0 && s->o->trials - s->trials < most) most = (int)(s->o->trials - s->trials);
  for (s->n = 0; s->n < most;) {
    int i = s->n % ONE_IN == ONE_IN - 1 ? pick_any(s, t, k) : -1;
    if (i < 0) i = pick_best(s, t, k, thought);
    if (i < 0) break;
    s->pick[s->n++] = i;
  }
}

/* ---- measuring ------------------------------------------------------------------------------------------- */

static int told(void *env, int i, const MeasureResult *r)
{
  Search *s = env;
  const TuneTask *t = s->tasks->task[s->task];
  Known *k = &s->known[s->task];
  int which = s->pick[i];
  double before = k->best >= 0 ? k->ratio[k->best] : 1;
  db_put(s->db, &(TuneRecord){.workload = t->workload,
                              .target = s->tasks->target->text,
                              .what = t->what,
                              .kind = "plan",
                              .candidate = t->candidate[which].plan,
                              .status = r->status,
                              .note = r->note,
                              .predicted = t->candidate[which].predicted,
                              .seconds = r->seconds,
                              .base = t->base,
                              .base_seconds = r->base,
                              .threads = s->measure.threads});
  learn_one(s, s->task, which, r->status, &r->seconds, &r->base);
  find_best(k, t->n);
  k->trials++;
  k->failed += r->status != TUNE_OK;
  k->stale = k->best >= 0 && k->ratio[k->best] < before ? 0 : k->stale + 1;
  s->trials++;
  report(s, "measure", s->task);
  return s->stopped || (s->o->seconds > 0 && elapsed(s) > s->o->seconds);
}

static const char *line_of(Arena *a, const char *workload, const char *plan)
{
  return arena_printf(a, "%s %s\n", workload, plan);
}

static void measure_batch(Search *s, const MeasureOptions *o)
{
  Arena *a = scratch(s->ctx);
  const TuneTask *t = s->tasks->task[s->task];
  const char *lines[BATCH];
  for (int i = 0; i < s->n; i++) lines[i] = line_of(a, t->workload, t->candidate[s->pick[i]].plan);
  MeasureSpec spec = {.m = t->module,
                      .target = s->tasks->target,
                      .passes = s->tasks->passes,
                      .workload = t->workload,
                      .base = candidate_of(t, t->base) >= 0 ? line_of(a, t->workload, t->base) : NULL,
                      .n = s->n,
                      .lines = lines};
  tune_measure(s->ctx, s->arena, &spec, o, told, s);
}

static void search(Search *s)
{
  while (!out_of_time(s)) {
    Scope scope = scope_begin(s->ctx);
    s->task = next_task(s);
    if (s->task >= 0) {
      pick_batch(s);
      measure_batch(s, &s->measure);
    }
    scope_end(s->ctx, scope);
    if (s->task < 0) return;
  }
}

/* The task whose best promises most and was not measured again; -1: none. */
static int next_to_confirm(const Search *s, const int *tries)
{
  enum { TRIES = 2 };
  int best = -1;
  double most = 0;
  for (int i = 0; i < s->tasks->n; i++) {
    const Known *k = &s->known[i];
    if (k->best < 0 || k->confirmed >= 0 || tries[i] >= TRIES) continue;
    double gain = k->share * (1 - k->ratio[k->best]);
    if (best >= 0 && gain <= most) continue;
    best = i;
    most = gain;
  }
  return best;
}

/* What seems to win, once more; what there is no time for does not count. */
static void confirm(Search *s)
{
  static const double LONGER = 3;
  MeasureOptions o = s->measure;
  o.seconds = LONGER * (o.seconds > 0 ? o.seconds : 0.3);
  int *tries = arena_array(s->arena, int, s->tasks->n + 1);
  while (!s->stopped && !(s->o->seconds > 0 && elapsed(s) > s->o->seconds - 0.5 * s->reserve)) {
    int i = next_to_confirm(s, tries);
    if (i < 0) return;
    Scope scope = scope_begin(s->ctx);
    Known *k = &s->known[i];
    int which = k->best;
    tries[i]++;
    s->task = i;
    s->n = 1;
    s->pick[0] = which;
    measure_batch(s, &o); /* which may take it out of those that beat the base */
    if (k->beats[which]) k->confirmed = which;
    scope_end(s->ctx, scope);
  }
}

/* ---- the network ----------------------------------------------------------------------------------------- */

static const char *lines_alike(Search *s, const bool *out)
{
  Text t = text_new(s->arena);
  for (int i = 0; i < s->tasks->n; i++) {
    const Known *k = &s->known[i];
    const TuneTask *task = s->tasks->task[i];
    if (k->confirmed < 0 || out[i] || !lies_alike(task->candidate[k->confirmed].plan, task->base)) continue;
    text_printf(&t, "%s %s\n", task->workload, task->candidate[k->confirmed].plan);
  }
  return text_str(&t);
}

/* For each workload the untuned plan and, for each way to lie, the best that beat it, with the seconds of a call.  "":
 * none lies otherwise. */
static const char *lines_free(Search *s)
{
  Text t = text_new(s->arena);
  bool otherwise = false;
  for (int i = 0; i < s->tasks->n; i++) {
    const Known *k = &s->known[i];
    const TuneTask *task = s->tasks->task[i];
    if (k->best < 0) continue;
    text_printf(&t, "%s %s %.6g\n", task->workload, task->base, k->base);
    for (int c = 0; c < task->n; c++) {
      bool best = k->beats[c];
      for (int d = 0; d < task->n && best; d++)
        best =
            !(k->beats[d] && lies_alike(task->candidate[d].plan, task->candidate[c].plan) && k->ratio[d] < k->ratio[c]);
      if (!best) continue;
      text_printf(&t, "%s %s %.6g\n", task->workload, task->candidate[c].plan, k->base * k->ratio[c]);
      otherwise |= !lies_alike(task->candidate[c].plan, task->base);
    }
  }
  return otherwise ? text_str(&t) : "";
}

static void release_compiled(void *c) { compiled_release(c); }

static Compiled *compile_with(Search *s, const char *lines)
{
  PassContext *pc = s->tasks->passes;
  pc->impl.tuned = lines;
  Compiled *c = driver_compile(s->ctx, s->tasks->model, &(CompileOptions){.target = s->tasks->target, .passes = pc});
  defer(s->ctx, release_compiled, c);
  pc->impl.tuned = NULL;
  return c;
}

/* Kernels with another plan than untuned; counted by their workloads. */
static int count_changed(Search *s, Compiled *c)
{
  int n = 0;
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  lathe_rt_model_info(compiled_model(c), &info);
  for (int i = 0; i < s->tasks->n; i++) {
    const TuneTask *t = s->tasks->task[i];
    const char *base = arena_printf(scratch(s->ctx), "%s %s", t->workload, t->base);
    bool changed = false;
    for (int k = 0; k < info.num_nodes; k++) {
      const char *plan = compiled_node_plan(c, k);
      size_t w = strlen(t->workload);
      changed |= plan && !strncmp(plan, t->workload, w) && plan[w] == ' ' && strcmp(plan, base);
    }
    n += changed;
  }
  return n;
}

/* Those whose kernels are not faster in the network than untuned ones are left out. */
static const char *drop_useless(Search *s, const char *lines, Compiled **built)
{
  static const double HELPS = 0.99;
  bool *out = arena_array(s->arena, bool, s->tasks->n + 1);
  TuneProfile p[2] = {{.compiled = s->tasks->untuned}, {.compiled = *built = compile_with(s, lines)}};
  tune_profile(s->ctx, s->arena, 2, p, s->measure.threads);
  for (int i = 0; i < s->tasks->n; i++) {
    int calls[2];
    double before = seconds_of(&p[0], s->tasks->task[i]->workload, &calls[0]);
    double after = seconds_of(&p[1], s->tasks->task[i]->workload, &calls[1]);
    out[i] = after > HELPS * before;
  }
  const char *left = lines_alike(s, out);
  if (strcmp(left, lines)) *built = NULL;
  return left;
}

/* ---- the verdict ----------------------------------------------------------------------------------------- */

/* The untuned network again, as if it were a candidate: what it seems to gain is no gain.  Then the others. */
enum { CONTROL, WAYS = 3 };
typedef struct Whole {
  Search *s;
  int n;
  const char *lines[WAYS];
  Compiled *built[WAYS];
  int changed[WAYS];
  MeasureResult result[WAYS];
  bool wins[WAYS]; /* in every child so far */
} Whole;

static int told_whole(void *env, int i, const MeasureResult *r)
{
  Whole *w = env;
  w->result[i] = *r;
  return w->s->stopped;
}

/* built: NULL, or the network with these lines. */
static void add_way(Whole *w, const char *lines, Compiled *built)
{
  if (*lines && !built) built = compile_with(w->s, lines);
  int changed = *lines ? count_changed(w->s, built) : 0;
  if (!changed) return;
  w->built[w->n] = built;
  w->changed[w->n] = changed;
  w->wins[w->n] = true;
  w->lines[w->n++] = lines;
}

static void measure_whole(Whole *w)
{
  static const double LONG = 2;
  Search *s = w->s;
  MeasureSpec spec = {.target = s->tasks->target,
                      .passes = s->tasks->passes,
                      .n = w->n,
                      .base_built = s->tasks->untuned,
                      .built = w->built};
  MeasureOptions o = s->measure;
  o.seconds = LONG;
  o.build_limit = 600;
  o.run_limit = 120;
  tune_measure(s->ctx, s->arena, &spec, &o, told_whole, w);
  if (s->stopped) return;
  const MeasureResult *c = &w->result[CONTROL];
  double floor = tune_compare(s->arena, &c->base, &c->seconds).ratio - 1;
  if (floor < 0) floor = -floor;
  for (int i = CONTROL + 1; i < w->n; i++) {
    const MeasureResult *r = &w->result[i];
    bool ok = c->status == TUNE_OK && r->status == TUNE_OK && tune_beats(s->arena, &r->base, &r->seconds);
    w->wins[i] = w->wins[i] && ok && tune_compare(s->arena, &r->base, &r->seconds).ratio + floor < 1;
  }
}

/* Judges it twice, in processes of their own, since where a build happens to lie in memory matters too. */
static bool judge(Search *s, TuneSummary *out)
{
  bool *none = arena_array(s->arena, bool, s->tasks->n + 1);
  Whole w = {.s = s, .n = 1, .lines = {""}, .built = {s->tasks->untuned}};
  const char *alike = lines_alike(s, none);
  Compiled *built = NULL;
  if (*alike) alike = drop_useless(s, alike, &built);
  add_way(&w, alike, built);
  add_way(&w, lines_free(s), NULL);
  for (int times = 0; times < 2 && w.n > 1 && !s->stopped; times++) measure_whole(&w);
  if (s->stopped) return false;
  int best = -1;
  double least = 1;
  for (int i = CONTROL + 1; i < w.n; i++) {
    double ratio = tune_compare(s->arena, &w.result[i].base, &w.result[i].seconds).ratio;
    if (!w.wins[i] || ratio >= least) continue;
    least = ratio;
    best = i;
  }
  TuneVerdict v = {.model = tune_model_name(s->arena, s->tasks->model, s->tasks->passes),
                   .target = s->tasks->target->text,
                   .plans = "",
                   .before = {1, &s->before},
                   .after = {1, &s->before},
                   .threads = s->measure.threads};
  if (best >= 0) {
    const MeasureResult *r = &w.result[best];
    v.plans = w.lines[best];
    v.before = r->base;
    v.after = r->seconds;
    out->spread = tune_compare(s->arena, &r->base, &r->seconds).spread;
    out->before = tune_median(s->arena, r->base.n, r->base.seconds);
    out->after = out->before * least;
    out->kept = w.changed[best];
  }
  db_put_verdict(s->db, &v);
  return true;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static void check_inputs(Ctx *ctx, Module *m)
{
  const Node *f = graph_infer(m, graph_main(m));
  for (int i = 0; i < fn_nparams(f); i++) {
    const Type *t = f->arg[i]->type;
    if (t && t->kind == TY_TENSOR && type_is_static(t)) continue;
    raise(
        ctx, ERR_UNSUPPORTED, NOWHERE,
        "input '%s' is %s: tuning wants tensors whose sizes are known; say them where the model is imported (--shape)",
        f->arg[i]->name, t ? type_text(scratch(ctx), t) : "of no known type");
  }
}

TuneSummary tune_network(Ctx *ctx, Module *m, const Target *target, PassContext *pc, Db *db, const TuneOptions *o)
{
  static const double MOST_RESERVED = 0.35;
  TuneSummary out = {0};
  Scope scope = scope_begin(ctx);
  Arena *arena = arena_new(ctx);
  defer(ctx, drop_arena, arena);
  Search *s = arena_new_of(arena, Search);
  *s = (Search){
    .ctx = ctx, .arena = arena, .db = db, .o = o, .measure = o->measure, .start = clock_seconds(), .seed = 1};
  if (s->measure.threads <= 0) s->measure.threads = target->num_cores;
  check_inputs(ctx, m);
  s->tasks = tune_tasks(ctx, arena, m, target, pc);
  double building = elapsed(s);
  s->known = arena_array(arena, Known, s->tasks->n + 1);
  for (int i = 0; i < s->tasks->n; i++) begin_task(s, i);
  db_each(db, NULL, target->text, take_other, s);
  profile(s);
  s->reserve = 2 * building + 100 * s->before + 12;
  if (s->reserve > MOST_RESERVED * o->seconds) s->reserve = MOST_RESERVED * o->seconds;
  report(s, "profile", -1);
  search(s);
  confirm(s);
  for (int i = 0; i < s->tasks->n; i++) out.wins += s->known[i].best >= 0;
  if (!s->stopped) report(s, "network", -1);
  out.before = out.after = s->before;
  out.judged = !s->stopped && judge(s, &out);
  s->before = out.before;
  s->after = out.after;
  report(s, "done", -1);
  out.tasks = s->tasks->n;
  out.skipped = s->tasks->skipped;
  out.trials = (int)s->trials;
  for (int i = 0; i < s->tasks->n; i++) out.failed += s->known[i].failed;
  out.stopped = s->stopped;
  scope_end(ctx, scope);
  return out;
}
