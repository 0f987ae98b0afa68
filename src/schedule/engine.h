/* engine.h: the inside of the schedule engine, for the files of this folder.
 *
 * A primitive is one function, prim_NAME(schedule, arguments): it may change the
 * function's statements as it goes and raise at any point, because call.c keeps a
 * copy of the tree from before the call and puts it back after a refusal.
 *
 * Invariants between primitives
 * - Every block's reads and writes are boxes over its own variables.
 * - A predicate that the engine puts on a block only keeps the bindings inside
 *   their domains; a block whose predicate came with the function is noted in
 *   `guarded` and is not moved.
 * - Loop and block variables are bound once in the whole function.
 *
 * Abbreviations: rv random variable, prim primitive, an analyzer. */
#ifndef LATHE_SCHEDULE_ENGINE_H
#define LATHE_SCHEDULE_ENGINE_H

#include "schedule/schedule.h"

typedef enum { RV_BLOCK, RV_LOOP, RV_INT } RvKind;
/* answers of sample_compute_location that are no loop */
typedef enum { MARK_NONE, MARK_ROOT, MARK_INLINE } LoopMark;

typedef struct Rv {
  RvKind kind;
  uint32_t stmt; /* id of the statement */
  LoopMark mark;
  int64_t value; /* RV_INT */
} Rv;

/* The first n random variables of a schedule are also those of its copies. */
typedef struct Origin {
  uint64_t number;
  int n;
} Origin;

struct Sched {
  Ctx *ctx;
  Module *m;
  PrimFunc *f;
  Vec(Rv) rv;
  Vec(const char *) trace; /* one line each, without the newline */
  Vec(const TensorIntrin *) intrins;
  Vec(uint32_t) guarded;
  Vec(uint32_t) proven; /* blocks whose iteration kinds are borne out (kinds.c) */
  uint64_t number;      /* of this schedule, unlike any other's */
  Vec(Origin) origins;  /* the schedules that this one was copied from */
  uint64_t rng;
  bool loose; /* a block uses a loop around it itself, so only primitives run that bear it (call.c) */
  bool fits;  /* sampled tiles that are decided for another extent are brought to this one's */
};

/* ---- call.c: one row of prims.def each ------------------------------------------------ */

typedef struct Prim {
  PrimInfo info;
  SchedArg (*fn)(Sched *, SchedArg *);
} Prim;
const Prim *prim_find(const char *name); /* NULL if there is none */

/* The parameters of a signature, one after the other. */
typedef struct PrimParam {
  const char *name, *type, *deflt; /* deflt NULL: required */
  bool star;                       /* takes the remaining positional arguments */
} PrimParam;
int prim_params(Arena *, const Prim *, PrimParam **out);
SchedArg prim_default(const char *text);

#define PRIM(name, args, result, doc) SchedArg prim_##name(Sched *, SchedArg *);
#include "schedule/prims.def"
#undef PRIM

/* sched.c: arguments as primitives read them. */
Stmt *sched_arg_block(Sched *, const SchedArg *);
Stmt *sched_arg_loop(Sched *, const SchedArg *); /* refuses the marks */
Stmt *sched_arg_block_or_loop(Sched *, const SchedArg *);
LoopMark sched_arg_mark(Sched *, const SchedArg *);
int64_t sched_arg_int(Sched *, const SchedArg *);             /* an integer or a sampled one */
const Expr *sched_arg_expr(Sched *, const SchedArg *, DType); /* numbers take the dtype given */
static const SchedArg sched_arg_none = {.kind = SA_NONE};
SchedArg sched_result_block(Sched *, Stmt *);
SchedArg sched_result_loop(Sched *, Stmt *);
SchedArg sched_result_mark(Sched *, LoopMark);
SchedArg sched_result_int(Sched *, int64_t);
SchedArg sched_result_list(Sched *, int n, const SchedArg *);

/* Runs work; if it raises, the schedule is put back and the error goes on. */
void sched_all_or_nothing(Sched *, void (*work)(Ctx *, void *env), void *env);
/* Runs work on the schedule and puts everything back afterwards; true if it was
 * not refused. */
bool sched_try(Sched *, SchedArg (*work)(Sched *, SchedArg *), SchedArg *);

/* ---- trace.c ----------------------------------------------------------------------------- */

const char *trace_line(Sched *, const Prim *, const SchedArg *args, SchedArg result);
/* An expression or index map of any module, over the function's sizes by name, in
 * the schedule's own module. */
const Expr *trace_own_expr(Sched *, const Expr *);
const IndexMap *trace_own_map(Sched *, const IndexMap *);

/* ---- tree.c: finding and moving statements ------------------------------------------------- */

#define BLOCK(stmt) ((stmt)->u.block)
#define LOOPVAR(stmt) ((stmt)->u.loop.var)

/* Blocks nearest below s (s itself not counted), in program order. */
int tree_blocks(Arena *, Stmt *s, Stmt ***out);
int tree_all_blocks(Arena *, PrimFunc *, Stmt ***out);
int tree_all_loops(Arena *, Stmt *below, Stmt ***out);
bool tree_under(const Stmt *s, const Stmt *ancestor);    /* s is below ancestor, or it */
bool tree_before(Sched *, const Stmt *a, const Stmt *b); /* a starts before b */
Stmt *tree_scope(Sched *, Stmt *block);                  /* enclosing block; raises at the root */
/* Statements of a loop's or block's body: the items of a sequence, or the one. */
int tree_items(Arena *, Stmt *holder, Stmt ***out);
void tree_insert(Sched *, Stmt *holder, int at, Stmt *s); /* among tree_items(holder) */
/* Puts s next to `beside` (right before or after it). */
void tree_insert_beside(Sched *, Stmt *beside, bool after, Stmt *s);
/* Takes a block out together with the loops that hold nothing else. */
void tree_remove(Sched *, Stmt *block);
/* The outermost loop around the block that holds nothing else, or the block. */
Stmt *tree_nest(Stmt *block);
/* Raises unless only loops and sequences stand between s and its scope. */
void tree_check_plain(Sched *, const char *prim, Stmt *block);
void tree_replace(Sched *, Stmt *a, Stmt *b);
/* Loops around s, outermost first, from (not including) `top` down; top NULL: the scope. */
int tree_loops_below(Arena *, Stmt *s, const Stmt *top, Stmt ***out);

const char *tree_block_name(Sched *, const char *hint); /* not yet used by a block */
const char *tree_buffer_name(Sched *, const char *hint);
/* What messages call a loop or block: "loop 'i'" or "block 'C'". */
const char *tree_what(Sched *, const Stmt *);

/* ---- storage.c */
void sched_separate_axes(Sched *, const Buffer *, uint32_t separators);
void sched_check_scope(Sched *, const char *prim, const char *scope); /* raises unless there is such memory */

/* ---- facts.c: what is known about blocks ------------------------------------------------------ */

/* Knows the loops and block variables around `at`, and at's own if it has some. */
Analyzer *facts_analyzer(Sched *, Stmt *at);
/* Knows what is around and below a statement, but variables with a single value keep their names: for users to read. */
Analyzer *facts_analyzer_named(Sched *, Stmt *);
/* Also knows every loop below s. */
void facts_bind_below(Analyzer *, Stmt *s);
const Expr *facts_simplify(Sched *, Stmt *at, const Expr *);
/* Simplifies bounds, bindings and predicates below s. */
void facts_simplify_below(Sched *, Stmt *s);

/* Bit (1 << IterKind) for each kind of block variable whose binding uses v. */
int facts_roles(const Block *, const Var *v);
bool facts_reads(const Block *, const Buffer *);
bool facts_writes(const Block *, const Buffer *);
bool facts_loads(Stmt *below, const Buffer *); /* is there a load of it? */
bool facts_guarded(const Sched *, const Stmt *block);
bool facts_is_param(const Sched *, const Buffer *);
/* NULL if the block only writes what nobody else writes, from spatial variables
 * alone (complete), or is a whole reduction with init; else the reason why not. */
const char *facts_not_complete(Sched *, Stmt *block);
const char *facts_not_reduction(Sched *, Stmt *block);
void facts_check_movable(Sched *, const char *prim, Stmt *block);
/* Raises if the block is inside another one that runs a part of its domain at a time. */
void facts_check_whole_scope(Sched *, const char *prim, Stmt *block);
/* Blocks of the scope that write or read a buffer; other blocks of a block's scope
 * that read what it writes or write what it reads. */
int facts_writers(Arena *, Stmt *scope, const Buffer *, Stmt ***out);
int facts_readers(Arena *, Stmt *scope, const Buffer *, Stmt ***out);
int facts_consumers(Arena *, Stmt *block, Stmt ***out);
int facts_producers(Arena *, Sched *, Stmt *block, Stmt ***out);
/* May the writer change elements that the reader reads, at any time in their scope? */
bool facts_touches(Sched *, Stmt *writer, Stmt *reader);
/* Raises if the block writes something that its scope does not allocate. */
void facts_check_not_output(Sched *, const char *prim, Stmt *block);
/* Raises unless everything the block reads is final where it stands: no writer of
 * it comes later. */
void facts_check_inputs_final(Sched *, const char *prim, Stmt *block);
/* region.c: distinct iterations of the loops run distinct instances of the block?  Loops not
 * given are fixed. */
bool facts_injective(Sched *, Stmt *block, int n, Stmt *const *loops, const char **why);
/* Raises unless the bindings of the block are an affine map of the loops of its scope, which takes every
 * value in its range. */
void facts_check_affine(Sched *, const char *prim, Stmt *block);
/* Raises unless the instances of the block may run in any order (region.c, with the next three). */
void facts_check_order_free(Sched *, const char *prim, Stmt *block);
/* Raises if iterations of the loop could see each other's results. */
void facts_check_independent(Sched *, const char *prim, Stmt *loop);
/* The same for every loop around the statement whose iterations run at once. */
void facts_check_above(Sched *, const char *prim, Stmt *);
/* The loops, each inside of the one before, change places: raises if a block under them reads or
 * writes what another one there writes in another iteration. */
void facts_check_covered(Sched *, const char *prim, int n, Stmt *const *loop);
/* Infers reads and writes of the block and of those inside and around it anew. */
void facts_refresh(Sched *, Stmt *block);

/* ---- kinds.c: iteration kinds held against the accesses -------------------------------------------- */

/* A loop around the block that it uses other than by a variable of its own, or NULL. */
const Stmt *facts_used_loop(Sched *, Stmt *block);
/* Raises if a block of the function uses one. */
void facts_check_isolated(Sched *, const char *prim);
/* NULL, or why it is not so that instances which differ in a spatial variable write different
 * elements and read none that another one writes. */
const char *facts_false_kinds(Sched *, Stmt *block);
/* NULL, or that an instance of the block may read elements which another one writes. */
const char *facts_reads_others(Sched *, Stmt *block);
/* NULL, or why the steps of the block's reductions may not change places. */
const char *facts_not_commutative(Sched *, Stmt *block);
bool facts_disjoint_mark(const Block *); /* has the annotation "disjoint" */
/* May later steps of the loop still change what the block under it has written? */
bool facts_unfinished(Sched *, Stmt *writer, const Stmt *loop);

/* ---- region.c: boxes ---------------------------------------------------------------------------- */

/* A box with both ends in it. */
typedef struct Box {
  const Buffer *buffer;
  const Expr **lo, **hi;
} Box;
/* The region of a block, its variables replaced by their bindings and the loops
 * strictly inside `loop` run over. */
Box region_under(Sched *, Analyzer *, const Region *, Stmt *block, const Stmt *loop);
void region_join(Sched *, Analyzer *, Box *into, const Box *);
bool region_apart(Sched *, Analyzer *, const Box *, const Box *); /* no element in common */
bool region_holds(Sched *, Analyzer *, const Box *outer, const Box *inner);
/* A box over n variables: do different values of them give boxes with no element in common? */
bool region_distinct(Sched *, Analyzer *, const Box *, int n, const IterVar *const *iter, const Expr *predicate);
const Expr *region_lesser(Sched *, Analyzer *, const Expr *a, const Expr *b);
const Expr *region_greater(Sched *, Analyzer *, const Expr *a, const Expr *b);

/* ---- shared small things ---------------------------------------------------------------------------- */

const Expr *sched_const_like(Sched *, const Expr *like, int64_t); /* of like's dtype */
const Expr *sched_both(Sched *, const Expr *a, const Expr *b);    /* a and b; either may be NULL */
/* The conditions joined by `and` in e, in order. */
int sched_conjuncts(Arena *, const Expr *e, const Expr ***out);
const Expr *sched_ceil_div(Sched *, const Expr *a, const Expr *b);
const Expr *sched_iter_end(Sched *, const Expr *min, const Expr *extent); /* min + extent - 1 */
const Region *sched_read_region(Sched *, const char *prim, Stmt *block, const SchedArg *index);
const Region *sched_write_region(Sched *, const char *prim, Stmt *block, const SchedArg *index);
const Region *sched_buffer_region(Sched *, const char *prim, Stmt *block, const SchedArg *, bool *write);
void sched_block_add_alloc(Sched *, Stmt *block, const Buffer *);
void sched_func_drop_alloc(Sched *, const Buffer *);
Stmt *sched_func_alloc_block(Sched *, const Buffer *); /* the block that allocates it, or NULL */
/* A block of n spatial variables vars[i] in [0, extent[i]) around a body; sched_plain_nest
 * puts it into loops of its own, one for each variable. */
Stmt *sched_plain_block(Sched *, const char *name, int n, const Var *const *vars, const Expr *const *extent,
                        Stmt *body);
Stmt *sched_plain_nest(Sched *, Stmt *block);
const IterVar *const *sched_iters_as_loops(Sched *, const Block *);
/* Simplifies what a block computes, knowing its variables and inner loops. */
void sched_simplify_body(Sched *, Stmt *block);

/* A copy of a loop over a new variable (noted in vars: Var* -> Expr*) around body. */
Stmt *sched_copy_loop(Sched *, const Stmt *loop, Map *vars, Stmt *body);
/* The predicate with the loops replaced by their copies in vars, and those without
 * a copy at their first step. */
const Expr *sched_first_step_predicate(Sched *, const Expr *predicate, int n, Stmt *const *loop, Map *vars);
/* The predicate of a block's init, over the copies in vars of those of the loops that are spatial.  What the others are
 * limited by does not limit it: a sum over nothing is its init. */
const Expr *sched_init_predicate(Sched *, Stmt *block, int n, Stmt *const *loop, Map *vars);

/* Raises unless the first steps of the loops are the first step of the reduction. */
void sched_check_starts(Sched *, const char *prim, Stmt *block);

/* layout.c: the steps in which indices take a variable apart by // and %. */
int64_t sched_index_step(Sched *, const Var *, int n, const Expr *const *index);

/* Cores that other primitives build on. */
Stmt *sched_blockize_loop(Sched *, Stmt *loop);
void sched_inline_block(Sched *, Stmt *block);
void sched_compute_at_loop(Sched *, Stmt *block, Stmt *loop, bool preserve_unit, int index);
/* Puts a block made just now, standing nowhere yet, under the loop: over what the n
 * blocks there need of it, or (consumes) have made for it. */
void sched_place_new_block(Sched *, const char *prim, Stmt *block, Stmt *loop, bool consumes, int n,
                           Stmt *const *others);

/* dots.c: the intrinsic of that name, made anew in the schedule's module; NULL: it is none of those. */
const TensorIntrin *sched_dot_find(Sched *, const char *name);

uint64_t sched_rng_next(uint64_t *);

#endif
