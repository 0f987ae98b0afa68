/* schedule.h: changing how a function runs without changing what it means.
 *
 * One engine: every primitive rewrites a schedulable PrimFunc (tir.h).  A
 * primitive that would change the meaning raises ERR_SCHEDULE with the reason and
 * leaves the function as it was.
 *
 * A Sched owns a function in a module of its own and a trace of what was done to
 * it.  Blocks and loops are named by random variables, small numbers that stay
 * valid while the statement exists; using one that is gone is an error that
 * says so.  A Sched can be cloned, and a trace can be replayed on another
 * function of the same meaning: a tuner's candidate is a clone plus a replay.
 *
 * prims.def has one row for each primitive: its name, its arguments with their
 * kinds and defaults, its results, a line of doc.  The trace's text, its parser
 * and the Python methods come from there.
 *
 * Two faces: the primitives below, and the te face (te_stage.c), where stages are
 * described in any order and te_sched_emit turns the description into a trace. */
#ifndef LATHE_SCHEDULE_H
#define LATHE_SCHEDULE_H

#include "te/te.h"

typedef struct Sched Sched;
typedef struct {
  int id;
} BlockRV;
typedef struct {
  int id;
} LoopRV;
typedef struct {
  int id;
} IntRV; /* an integer chosen by a sampling primitive */

/* ---- sched.c, call.c, trace.c: schedules and traces ------------------------------------------------ */

/* Imports f into a fresh module. */
Sched *sched_new(const PrimFunc *f, uint64_t seed);
Sched *sched_clone(const Sched *);
/* Does this number mean in s what it means in `of`?  True of s itself, and of what was there when s, or what s was
 * copied from, was copied from it. */
bool sched_knows(const Sched *s, const Sched *of, int rv);
void sched_free(Sched *);
PrimFunc *sched_func(Sched *); /* the current state; do not change it */
Module *sched_module(Sched *);
/* Makes a buffer that the root allocates parameter number `at`: the caller sees what is
 * computed of it.  Raises where loops that run at once would then share it. */
void sched_expose(Sched *, const char *buffer, int at);
Stmt *sched_block_stmt(Sched *, BlockRV); /* raises if it is gone */
Stmt *sched_loop_stmt(Sched *, LoopRV);
void sched_seed(Sched *, uint64_t); /* sampling goes on from here */

/* One argument or result of a primitive, for traces and language bindings. */
typedef struct SchedArg {
  enum {
    SA_NONE,
    SA_INT,
    SA_FLOAT,
    SA_STR,
    SA_EXPR,
    SA_BLOCK,
    SA_LOOP,
    SA_INTRV,
    SA_LIST,
    SA_MAP /* IndexMap* */,
    SA_FUNC /* PrimFunc* */,
    SA_INTRIN /* TensorIntrin* */
  } kind;
  union {
    int64_t i; /* also the id of a random variable */
    double f;
    const char *s;
    const Expr *e;
    const void *p;
    struct {
      const struct SchedArg *v;
      int n;
    } list;
  } u;
} SchedArg;
/* The function's text with these blocks and loops underlined, as far as they still exist. */
const char *sched_print_marked(Arena *, Sched *, int n, const SchedArg *);
/* Calls a primitive by name with its arguments in the order of prims.def (SA_NONE:
 * the default).  Result lists live in the schedule's module. */
SchedArg sched_call(Sched *, const char *prim, int n, const SchedArg *);

typedef struct PrimInfo {
  const char *name;
  const char *args;   /* "loop: loop, factors: list[int?], preserve_unit_iters: bool = True" */
  const char *result; /* "list[loop]" */
  const char *doc;
} PrimInfo;
int prim_count(void);
const PrimInfo *prim_info(int);

/* The trace as Python text: one call per line, `l3, l4 = sch.split(l1, [None, 8])`. */
const char *sched_trace_text(Arena *, const Sched *);
/* Replays such text; raises with the line's number. */
void sched_replay(Sched *, const char *trace_text);
/* The same with the trace of a program of other sizes: sampled tiles become the nearest that divide this one's
 * loops. */
void sched_replay_fitted(Sched *, const char *trace_text);
/* Makes an intrinsic known by its name, for traces that tensorize with it; it must
 * outlive the schedule. */
void sched_add_intrin(Sched *, const TensorIntrin *);
/* dots.c: dot products of words of four bytes are known from the start, by names such as "dot_16x4_uint8_int8". */
const char *sched_dot_name(Arena *, int lanes, DType data, DType weight);

/* ---- the primitives, by the file that does the work (call.c has the functions themselves, which check their
 *      arguments against prims.def and write the trace).  Same names and meaning as tvm.tir.Schedule's. */

/* get.c */
BlockRV sched_get_block(Sched *, const char *name);
int sched_get_loops(Sched *, BlockRV, Arena *, LoopRV **out); /* outermost first */
int sched_get_child_blocks(Sched *, SchedArg parent, Arena *, BlockRV **out);
int sched_get_producers(Sched *, BlockRV, Arena *, BlockRV **out);
int sched_get_consumers(Sched *, BlockRV, Arena *, BlockRV **out);
int sched_get_output_blocks(Sched *, BlockRV scope, Arena *, BlockRV **out);

/* loops.c */
/* n factors, at most one of them NULL (inferred).  Imperfect factors put a
 * predicate on the blocks below. */
void sched_split(Sched *, LoopRV, int n, const Expr *const *factors, bool preserve_unit, LoopRV *out);
LoopRV sched_fuse(Sched *, int n, const LoopRV *, bool preserve_unit);
void sched_reorder(Sched *, int n, const LoopRV *);
void sched_reorder_block_iters(Sched *, BlockRV, int n, const int *order);
LoopRV sched_add_unit_loop(Sched *, SchedArg block_or_loop);

/* annotate.c: kinds of loops, annotations, pragmas */
void sched_parallel(Sched *, LoopRV);
void sched_vectorize(Sched *, LoopRV);
void sched_unroll(Sched *, LoopRV);
void sched_bind(Sched *, LoopRV, const char *thread_axis);
void sched_annotate(Sched *, SchedArg block_or_loop, const char *key, const Expr *value);
void sched_unannotate(Sched *, SchedArg block_or_loop, const char *key);

/* compute_at.c, inline.c */
void sched_compute_at(Sched *, BlockRV, LoopRV, bool preserve_unit, int index);
void sched_reverse_compute_at(Sched *, BlockRV, LoopRV, bool preserve_unit, int index);
void sched_compute_inline(Sched *, BlockRV);
void sched_reverse_compute_inline(Sched *, BlockRV);

/* cache.c */
BlockRV sched_cache_read(Sched *, BlockRV, int read_index, const char *scope, int nconsumers, const BlockRV *consumers);
BlockRV sched_cache_write(Sched *, BlockRV, int write_index, const char *scope, int nconsumers,
                          const BlockRV *consumers);
BlockRV sched_reindex(Sched *, BlockRV, bool write, int index);

/* reduction.c, rfactor.c, einsum.c */
BlockRV sched_rfactor(Sched *, LoopRV, int factor_axis);
BlockRV sched_decompose_reduction(Sched *, BlockRV, LoopRV);
void sched_pad_einsum(Sched *, BlockRV, int n, const int64_t *padding);

/* storage.c */
void sched_storage_align(Sched *, BlockRV, int buffer_index, int axis, int factor, int offset);
void sched_set_scope(Sched *, BlockRV, int buffer_index, const char *scope);
void sched_double_buffer(Sched *, BlockRV, int buffer_index);
void sched_prefetch(Sched *, BlockRV, int read_index, LoopRV, int64_t distance);

/* layout.c: index_map is a function given as variables and results */
typedef struct IndexMap {
  int nin, nout;
  const Var **in;
  const Expr **out;
  uint32_t separators; /* bit k: an axis separator stands before result k */
} IndexMap;
void sched_transform_layout(Sched *, BlockRV, bool write, int buffer_index, const IndexMap *, const Expr *pad_value);
void sched_transform_block_layout(Sched *, BlockRV, const IndexMap *);

/* blockize.c, tensorize.c */
BlockRV sched_blockize(Sched *, SchedArg loop_or_blocks, bool preserve_unit);
void sched_tensorize(Sched *, SchedArg block_or_loop, const TensorIntrin *);

/* sample.c: choices, recorded with their decision */
/* decision -1: draw */
IntRV sched_sample_categorical(Sched *, int n, const int64_t *candidates, const double *probs, int decision);
void sched_sample_perfect_tile(Sched *, LoopRV, int n, int64_t max_innermost, const int64_t *decision, IntRV *out);
LoopRV sched_sample_compute_location(Sched *, BlockRV, int decision); /* -2 inline, -1 root; below: draw */
int64_t sched_int_value(Sched *, IntRV);

/* ---- te_stage.c, te_mark.c, te_rewrite.c, te_layout.c: the te face ------------------------------ */

/* A TeSched describes stages; its calls are checked at once by emitting the whole
 * description into a scratch schedule, and are undone when that is refused. */
typedef struct TeSched TeSched;
typedef struct TeStage TeStage;

TeSched *te_sched_new(Module *, int n, const TeOp *const *outputs);
void te_sched_free(TeSched *);
TeStage *te_sched_stage(TeSched *, const TeOp *); /* raises if op is not part of it */
int te_sched_stages(TeSched *, TeStage ***out);   /* producers first */
const TeOp *te_stage_op(TeStage *);               /* what it computes now (cache_write replaces it) */
const TeOp *te_stage_origin(TeStage *);
int te_stage_leaves(TeStage *, const IterVar *const **out); /* leaf_iter_vars, outermost first */

/* Exactly one of factor and nparts is given (the other NULL). */
void te_stage_split(TeStage *, const IterVar *, const Expr *factor, const Expr *nparts, const IterVar **outer,
                    const IterVar **inner);
const IterVar *te_stage_fuse(TeStage *, int n, const IterVar *const *);
void te_stage_reorder(TeStage *, int n, const IterVar *const *);
void te_stage_mark(TeStage *, const IterVar *, ForKind); /* vectorize, parallel, unroll */
void te_stage_bind(TeStage *, const IterVar *, const IterVar *thread);
void te_stage_compute_at(TeStage *, TeStage *consumer, const IterVar *);
void te_stage_compute_inline(TeStage *);
void te_stage_compute_root(TeStage *);
void te_stage_set_scope(TeStage *, const char *scope);
void te_stage_storage_align(TeStage *, const IterVar *, int factor, int offset);
void te_stage_double_buffer(TeStage *);
void te_stage_prefetch(TeStage *, const Tensor *, const IterVar *, const Expr *offset);
void te_stage_tensorize(TeStage *, const IterVar *, const TensorIntrin *);
void te_stage_pragma(TeStage *, const IterVar *, const char *key, const Expr *value);
void te_stage_set_store_predicate(TeStage *, const Expr *);
/* Stores what the stage gives (a placeholder: what it is given) at map(indices); a compute then runs over the new
 * axes, which are its leaves.  Comes before anything else that is said about its loops. */
void te_stage_transform_layout(TeStage *, const IndexMap *);
const Tensor *te_sched_cache_read(TeSched *, const Tensor *, const char *scope, int nreaders,
                                  const TeOp *const *readers);
int te_sched_cache_write(TeSched *, int n, const Tensor *const *, const char *scope, const Tensor **out);
int te_sched_rfactor(TeSched *, const Tensor *, const IterVar *, int factor_axis, const Tensor **out);

/* The schedule that the description stands for, ready to lower. */
Sched *te_sched_emit(TeSched *, const char *name, int nargs, const TeArg *args);

/* ---- random.c, random_step.c: random computations and schedules, for fuzzers and tests ------------------ */

/* A small computation: elementwise chains, products, convolutions, broadcasts, stencils,
 * reductions; sizes with primes among them, now and then symbolic. */
int random_compute(Module *, uint64_t *seed, TeArg **args); /* its arguments, the output last */
PrimFunc *random_func(Module *, uint64_t *seed);            /* the same as a function */
/* A loop program of small nests in which iteration kinds, bindings and accesses do not have to
 * fit each other: it means what its loops do in order. */
PrimFunc *random_loose_func(Module *, uint64_t *seed);
/* One random primitive with random arguments.  True if it was accepted; a refusal is no
 * error, anything else is raised. */
bool random_step(Sched *, uint64_t *seed);
/* Numbers for the arguments of f (sizes drawn from seed), in the arena: integers small
 * enough that float sums are exact. */
TirArg *random_args(Arena *, const PrimFunc *f, uint64_t seed);
/* Runs both on the same numbers, the second with what runs at once in any order; raises ERR_INTERNAL
 * naming the element that differs. */
void random_compare(const PrimFunc *, const PrimFunc *, uint64_t seed);
/* A random computation and that many random steps on it.  After each accepted one the
 * function is well formed and computes the same; after each refused one it is as it
 * was; at the end the trace's text replays to an equal function.  Raises otherwise.
 * Returns the number of accepted steps.  each (may be NULL) is called on the result. */
int random_trial(Ctx *, uint64_t seed, int steps, void (*each)(void *, const PrimFunc *plain, Sched *), void *env);
/* The same on a loose program; what runs at once is run in several orders. */
int random_loose_trial(Ctx *, uint64_t seed, int steps, void (*each)(void *, const PrimFunc *plain, Sched *),
                       void *env);

#endif
