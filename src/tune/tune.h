/* tune.h: finding faster ways to compute what is there already, by measuring.
 *
 *   network ─tasks→ workloads ─space→ candidates ─search→ batches ─measure→ records ─database→ the next compilation
 *
 * A workload is what one kernel computes, by the name that plan_workload gives it: it holds what of the target matters.
 * A candidate is a way to compute it, as text: a plan (impl.h).  The untuned kernel is the base: each candidate is
 * measured beside it, in a process of its own, in turns with it, and checked against what it gives.  What came out is a
 * record, whatever it was: seconds of all repeats, a crash, a hang, wrong numbers.
 *
 * A record serves a compilation only if its candidate beat the base in the same run by more than the spread of both.
 * At the end the network is measured whole, untuned and tuned in turns; what does not help there is dropped.  So a
 * model that is compiled with a database is never slower than without one, as far as measuring can tell.
 *
 * What functions give lives in the arena that they are handed, which is never scratch(): they keep their own there.
 *
 * Abbreviations: Db database. */
#ifndef LATHE_TUNE_H
#define LATHE_TUNE_H

#include "driver/driver.h"

/* ---- stats.c: what repeats say --------------------------------------------------------------------------- */

typedef struct Repeats {
  int n;
  const double *seconds;
} Repeats;
double tune_median(Arena *, int n, const double *);
double tune_quartile(Arena *, int n, const double *, double q); /* between neighbours where q falls between two */

/* Two things measured in turns: how much of the base's time the other takes, pair by pair. */
typedef struct Comparison {
  double ratio;  /* median of the pairs' ratios; below 1: faster */
  double spread; /* what ratio is uncertain by: half the distance of the quartiles */
} Comparison;
Comparison tune_compare(Arena *, const Repeats *base, const Repeats *other);
/* Faster by more than the spread, and by more than a hundredth; its least time is less too. */
bool tune_beats(Arena *, const Repeats *base, const Repeats *other);

/* ---- database.c ------------------------------------------------------------------------------------------ */

/* SQLite in one file, with a write-ahead log: several processes may use it at once, and one that is killed loses what
 * it was measuring and nothing else.  The library is found when the first database is opened.
 * Functions raise ERR_IO with a sentence that names the file: one that is damaged, that another program wrote, that a
 * newer Lathe wrote, that cannot be written, a disk that is full. */
typedef struct Db Db;

/* clang-format off */
#define TUNE_STATES(X)                                                         \
  X(TUNE_OK, "ok")                                                             \
  X(TUNE_CRASH, "crash")   /* the process ended */                              \
  X(TUNE_HANG, "hang")     /* it did not, in the time that it had */            \
  X(TUNE_WRONG, "wrong")   /* its numbers are not those of the untuned kernel */ \
  X(TUNE_ERROR, "error")   /* it could not be built */                          \
  X(TUNE_LOST, "lost")     /* the worker that measured it is gone: no result of the candidate */
/* clang-format on */
typedef enum {
#define X(id, name) id,
  TUNE_STATES(X)
#undef X
} TuneStatus;
const char *tune_status_name(TuneStatus);

/* Where an entry comes from; what is not set is filled in when it is put: now, this machine, this Lathe. */
typedef struct DbOrigin {
  const char *uid; /* no other entry has it */
  const char *machine, *lathe;
  int64_t made; /* seconds since 1970 */
} DbOrigin;

typedef struct TuneRecord {
  const char *workload, *target;
  const char *what;      /* the computation, for people */
  const char *kind;      /* of candidates: "plan"; faces have others */
  const char *candidate; /* as text */
  TuneStatus status;
  const char *note; /* why it is not ok; "" */
  double predicted; /* seconds; 0: nothing is */
  Repeats seconds;
  const char *base; /* the untuned candidate … */
  Repeats base_seconds;
  Comparison against; /* … and how it compares: found out when it is put */
  int threads;
  int nfeatures; /* numbers that the cost model reads of it (tune_program_features); 0: none are kept */
  const double *features;
  DbOrigin origin;
} TuneRecord;

/* A network, measured whole. */
typedef struct TuneVerdict {
  const char *model; /* tune_model_name */
  const char *target;
  const char *plans; /* lines for the config lathe.tuned; "": nothing helps */
  Repeats before, after;
  int threads;
  DbOrigin origin;
} TuneVerdict;

/* Makes the file unless create is false. */
Db *db_open(Ctx *, const char *path, bool create);
void db_close(Db *);
bool db_put(Db *, const TuneRecord *); /* false: an entry of that uid is there */
bool db_put_verdict(Db *, const TuneVerdict *);
/* Calls fn for each record of a workload, oldest first; NULL: of all.  The record lives during the call. */
void db_each(Db *, const char *workload, const char *target, void (*fn)(void *env, const TuneRecord *), void *env);
/* The lines that the newest verdict on the model and target has; NULL: there is none. */
const char *db_verdict(Db *, Arena *, const char *model, const char *target);
/* "WORKLOAD PLAN => PLAN": records that beat their base, the best of each, for networks that were never measured. */
const char *db_winners(Db *, Arena *, const char *target);

/* The trace that is fastest of those that beat what they were measured beside; NULL: none. */
const char *db_best_trace(Db *, Arena *, const char *workload, const char *target);

/* The commands of `lathe db`.  Lines of JSON, one an entry; what is there already is not taken twice. */
typedef struct DbCount {
  int64_t taken, known, bad; /* lines that came in, were there before, were none */
  const char *first_bad;     /* what is wrong with the first */
} DbCount;
const char *db_list(Db *, Arena *, bool json);                       /* a line for each workload */
const char *db_show(Db *, Arena *, const char *workload, bool json); /* its records; a part of the name will do */
const char *db_export(Db *, Arena *);
DbCount db_import(Db *, Arena *, const char *lines);
DbCount db_merge(Db *, Arena *, const char *path);
/* Drops what no compilation would use: all but the best of what beat the base, and the newest verdicts.  How many. */
int64_t db_prune(Db *);

/* ---- task.c: what there is to tune in a network ---------------------------------------------------------- */

typedef struct TuneCandidate {
  const char *plan;
  double predicted;
} TuneCandidate;

typedef struct TuneTask {
  const char *workload;
  const char *what;         /* "nn.conv2d (1, 32, 28, 28) (48, 32, 3, 3)" */
  const char *base;         /* the plan that it has untuned */
  int n;                    /* plans to choose from … */
  TuneCandidate *candidate; /* … by predicted time */
  double flops;
  int calls;      /* kernels of the network that compute it */
  Module *module; /* the call with what is fused to it, alone, as @main */
} TuneTask;
typedef struct TuneTasks {
  Module *model;
  const Target *target;
  PassContext *passes;
  Compiled *untuned;
  int n;
  TuneTask **task;
  int skipped; /* workloads that have a choice and cannot be measured alone */
} TuneTasks;
/* Compiles the network untuned and takes it apart.  Lives in the arena; modules go with the caller's scope. */
TuneTasks *tune_tasks(Ctx *, Arena *, Module *, const Target *, PassContext *);
/* A name for the model as it is compiled: the same graph, weights and settings have the same. */
const char *tune_model_name(Arena *, Module *, PassContext *);

/* ---- measure.c: in child processes ----------------------------------------------------------------------- */

typedef struct TuneWorkers TuneWorkers; /* worker.c */

typedef struct MeasureOptions {
  int threads;          /* that kernels use; 0: one for each of the target's cores */
  double seconds;       /* to spend on the repeats of one candidate; 0: a third of one */
  double build_limit;   /* seconds until it hangs; 0: 60 */
  double run_limit;     /* the same, once it is built; 0: 10 */
  int rounds;           /* at most; 0: 40 */
  bool check_only;      /* of loop programs: the base runs once, for its numbers; no time is taken beside it */
  TuneWorkers *workers; /* NULL: this process starts children of its own */
  /* For tests: called in the child before candidate i runs first. */
  void (*before)(void *env, int i);
  void *env;
} MeasureOptions;

typedef struct MeasureResult {
  TuneStatus status;
  const char *note;
  Repeats seconds, base;
} MeasureResult;

/* One module, built several times: the base with its lines for the config lathe.tuned (NULL: untuned), then n others
 * with theirs.  What counts is the time of the kernels that compute the workload; NULL: of the whole run. */
typedef struct MeasureSpec {
  Module *m;
  const Target *target;
  PassContext *passes;
  const char *workload;
  const char *base;
  int n;
  const char *const *lines;
  Compiled *base_built; /* NULL, or all of them built already: this one … */
  Compiled **built;     /* … and n others */
  /* Or loop programs instead of models, over the same buffers of known sizes: the base (NULL: there is none, nothing is
   * checked and no time is taken beside) and n others, of which NULL is one that could not be made. */
  const PrimFunc *base_func;
  const PrimFunc *const *func;
} MeasureSpec;
/* told is called as results come in, in order; non-zero from it ends the measuring. */
void tune_measure(Ctx *, Arena *, const MeasureSpec *, const MeasureOptions *,
                  int (*told)(void *env, int i, const MeasureResult *), void *env);
/* Several builds of one model, run in turns in a child process: the least seconds of each node of each, and, behind the
 * last node, of the whole run.  Raises where the first cannot be run. */
typedef struct TuneProfile {
  Compiled *compiled;
  int n;
  double *seconds;
} TuneProfile;
void tune_profile(Ctx *, Arena *, int n, TuneProfile *, int threads);

/* ---- worker.c: measuring by processes that somebody else starts ----------------------------------------- */

/* The answer to a job, as `lathe tune --worker` gives it.  Raises for what is no job, or none for this machine. */
const char *tune_answer(Ctx *, Arena *, const char *job);
/* Starts workers by their commands; they end with the caller's scope.  start_limit: seconds until the first word; 0:
 * 300 (a queue may have to be waited for).  A worker is heard when it is asked first. */
TuneWorkers *tune_workers(Ctx *, Arena *, int n, const char *const *commands, double start_limit);
int tune_workers_left(const TuneWorkers *);
/* As tune_measure, of loop programs.  Raises when no worker is left, with what became of the last. */
void tune_measure_by_workers(Ctx *, TuneWorkers *, const MeasureSpec *, const MeasureOptions *,
                             int (*told)(void *env, int i, const MeasureResult *), void *env);

/* ---- features.c: what a model reads of a loop program ------------------------------------------------------ */

enum { TUNE_FEATURES = 24 };
typedef Vec(double *) FeatureRows; /* of TUNE_FEATURES numbers, one for each store */
FeatureRows tune_features(Arena *, const PrimFunc *);
/* The sums of the columns: TUNE_FEATURES numbers for the whole program. */
double *tune_program_features(Arena *, const PrimFunc *);

/* ---- xgboost.c ------------------------------------------------------------------------------------------- */

/* Gradient-boosted trees, where libxgboost is found when it is first asked for: $LATHE_XGBOOST_LIBRARY, or by its name.
 * Fits rows (n of width numbers) to what they came to, and gives what it thinks of m others.  False: there is no
 * libxgboost, or it would not. */
bool tune_xgboost(Arena *, int width, int n, const double *rows, const double *y, int m, const double *others,
                  double *out);

/* ---- model.c: which candidate next ----------------------------------------------------------------------- */

/* What was measured of other workloads of the operator: where one begins that nothing is known of. */
typedef struct TuneOthers {
  int n;
  const TuneCandidate *candidate;
  const double *seconds;
} TuneOthers;
/* Learns from records of one workload what the predicted seconds leave out: a ridge regression over the plan's fields.
 * Others, or NULL, count little beside its own.
 * seconds: measured, 0: not yet.  Gives for each candidate what it now thinks. */
void tune_learn(int n, const TuneCandidate *, const double *seconds, const TuneOthers *, double *out);
/* The same over rows of numbers, of any programs: fits the logarithm of seconds to n rows of width numbers and gives
 * what it thinks of m others, by xgboost.c, or a ridge regression where that cannot or the rows are few. */
void tune_fit(Arena *, int width, int n, const double *rows, const double *seconds, int m, const double *others,
              double *out);

/* ---- search.c: the whole of it --------------------------------------------------------------------------- */

typedef struct TuneRow {
  const TuneTask *task;
  double share; /* of the untuned network's time */
  double base;  /* seconds of a call there */
  double ratio; /* of that the best needs; 1: none is better */
  int trials, failed, left;
} TuneRow;
typedef struct TuneProgress {
  const char *stage; /* "profile", "measure", "network", "done" */
  int n;
  const TuneRow *row;
  int task;             /* the one at work; -1: none */
  double elapsed, left; /* seconds; left < 0: nobody has said */
  double before, after; /* seconds of the network; 0: not measured yet */
} TuneProgress;

typedef struct TuneOptions {
  double seconds; /* 0: no limit */
  int64_t trials; /* 0: no limit */
  bool resume;    /* what the database has of these workloads is not measured again */
  MeasureOptions measure;
  /* NULL, or told after each step; non-zero ends the search: what was measured by then is kept, without a verdict. */
  int (*progress)(void *env, const TuneProgress *);
  void *env;
} TuneOptions;

typedef struct TuneSummary {
  int tasks, skipped, trials, failed;
  int wins, kept;               /* workloads that gained alone; that are kept in the network */
  double before, after, spread; /* seconds of the network; of their ratio */
  bool stopped, judged;
} TuneSummary;
TuneSummary tune_network(Ctx *, Module *, const Target *, PassContext *, Db *, const TuneOptions *);

/* ---- sketch.c, dots.c: schedules by rules, for loop programs that no plan covers --------------------------------- */

/* A schedule of f, drawn; its trace has the decisions.  Goes with the caller's scope.  Raises where f has no blocks. */
Sched *tune_sketch(Arena *, const PrimFunc *f, const Target *, uint64_t seed);
/* One rule on one block of a schedule; false: it is not for such a block, and nothing was done. */
typedef enum {
  RULE_INLINE,    /* a map goes into its consumers */
  RULE_PARTS,     /* a long sum with few results comes in parts */
  RULE_TILE,      /* a reduction in tiles */
  RULE_REGISTERS, /* a reduction whose sums stay in registers */
  RULE_DOTS,      /* a sum of products of bytes, by the target's dot products */
  RULE_MAP,       /* a map: rows on threads, vectors within */
} TuneRule;
bool tune_rule(Arena *, Sched *, const Target *, TuneRule, const char *block, uint64_t seed);
uint64_t tune_draw(uint64_t *seed); /* numbers that look like any; the seed goes on */
/* The trace with one decision changed, which need not be possible; of this primitive, or, NULL, of any.  The trace
 * itself where it has none. */
const char *tune_mutate(Arena *, const char *trace, const char *primitive, uint64_t *seed);
/* What the model reads of a trace: its form and the decided numbers, written as a plan is. */
const char *tune_decisions(Arena *, const char *trace);

/* ---- program.c: a loop program tuned --------------------------------------------------------------------- */

typedef struct TuneProgram {
  const char *trace;    /* of the fastest; "": as it was given */
  double before, after; /* seconds of a call; before 0: it was not measured in this run */
  int trials, failed;
  bool stopped;
} TuneProgram;
typedef struct TuneProgramOptions {
  double seconds; /* 0: no limit */
  int64_t trials; /* 0: no limit */
  bool resume;    /* from what the database has */
  uint64_t seed;
  MeasureOptions measure;
  int nworkers; /* that measure, by their commands; 0: this process does */
  const char *const *workers;
  int (*progress)(void *env, const TuneProgram *, double best, double elapsed); /* NULL; non-zero ends it */
  void *env;
} TuneProgramOptions;
/* The name of the workload: the function's meaning and what of the target matters. */
const char *tune_program_name(Arena *, const PrimFunc *, const Target *);
/* db NULL: nothing is kept. */
TuneProgram tune_program(Ctx *, Arena *, const PrimFunc *, const Target *, Db *, const TuneProgramOptions *);

#endif
