/* internal.h: what the files of src/lower share; no other layer includes it.
 *
 * A pass changes lo->f in place; lo->f is a clone that lower owns.  Passes keep no
 * state between them: all that one hands to the next stands in the function, so
 * each can be run alone.  Parent links are set again after every pass; inside a
 * pass they are not to be trusted once it has begun to rebuild. */
#ifndef LATHE_LOWER_INTERNAL_H
#define LATHE_LOWER_INTERNAL_H

#include "lower/lower.h"

typedef struct Lower {
  Module *m;
  Ctx *ctx;
  PrimFunc *f;
  const Target *target;
  LowerConfig config;
} Lower;

static inline bool lower_for_gpu(const Lower *lo) { return target_is_gpu(lo->target); }

/* ---- walk.c, simplify.c ------------------------------------------------------------------- */

typedef Stmt *(*StmtFn)(void *env, Stmt *);
typedef const Expr *(*ExprFn)(void *env, const Expr *);

/* Replaces each direct child c of s by fn(env, c); no-ops leave sequences. */
void lower_map_children(Module *, Stmt *s, StmtFn fn, void *env);
/* Replaces each expression that s itself holds (blocks are not walked). */
void lower_map_exprs(Stmt *s, ExprFn fn, void *env);
bool lower_is_nop(const Stmt *);
/* The sequence of a and b (either may be a no-op or NULL). */
Stmt *lower_then(Module *, Stmt *a, Stmt *b);
/* Statements below s, s counted. */
int lower_count(Stmt *s);
bool lower_uses_var(Stmt *s, const Var *);
/* loads, stores (of other buffers over its memory too), its pointer */
bool lower_uses_buffer(Ctx *, Stmt *s, const Buffer *);
/* The condition without IN_LIKELY; *likely tells whether it was there. */
const Expr *lower_unlikely(const Expr *cond, bool *likely);
const Expr *lower_likely(Module *, const Expr *cond);
/* The conjuncts of a condition, left to right. */
typedef Vec(const Expr *) ExprVec;
void lower_conjuncts(Arena *, const Expr *cond, ExprVec *out);
const Expr *lower_conjunction(Module *, int n, const Expr *const *v); /* NULL if n is 0 */
/* A loop like s over another range and body. */
Stmt *lower_loop_like(Module *, const Stmt *s, const Var *, const Expr *extent, Stmt *body);
const Expr *lower_int(Module *, const Expr *like, int64_t); /* a literal of like's element dtype */
bool lower_const_int(const Expr *, int64_t *);
/* Simplifies s and all below it under what an knows; see simplify.c. */
Stmt *lower_simplify(Lower *, Analyzer *an, Stmt *s);
/* A new analyzer that knows the function's sizes. */
Analyzer *lower_analyzer(Lower *);

/* ---- the passes, in the order of passes.c ---------------------------------------- */

void lower_pass_thread_reductions(Lower *);
void lower_pass_decompose_init(Lower *);
void lower_pass_plan_allocs(Lower *);
void lower_pass_compact_buffers(Lower *);
void lower_pass_convert_blocks(Lower *);
void lower_pass_unify_threads(Lower *);
void lower_pass_simplify(Lower *);
void lower_pass_join_words(Lower *);
void lower_pass_flatten_buffers(Lower *);
void lower_pass_double_buffer(Lower *);
void lower_pass_overlap_tails(Lower *);
void lower_pass_partition_loops(Lower *);
void lower_pass_vectorize_loops(Lower *);
void lower_pass_unroll_loops(Lower *);
void lower_pass_resolve_pointers(Lower *);
void lower_pass_serialize_parallel(Lower *);
void lower_pass_legalize_dtypes(Lower *);
void lower_pass_split_vectors(Lower *);
void lower_pass_scalar_replace(Lower *);
void lower_pass_promote_accumulators(Lower *);
void lower_pass_chain_stores(Lower *);
void lower_pass_expand_math(Lower *);
void lower_pass_index_types(Lower *);
void lower_pass_legalize_division(Lower *);
void lower_pass_take_vectors_apart(Lower *);
void lower_pass_hoist_sizes(Lower *);
void lower_pass_share_terms(Lower *);
void lower_pass_sync_storage(Lower *);
void lower_pass_place_storage(Lower *);
void lower_pass_unique_vars(Lower *);

/* ---- native.c ------------------------------------------------------------------ */

/* e with each vector cut to its lanes [from, from + n); NULL if that cannot be said. */
const Expr *lower_lanes(Module *, Arena *, const Expr *e, int from, int n, const Map *vars);

/* ---- kernel.c ---------------------------------------------------------------------- */

Kernel *lower_make_kernel(Lower *);
bool lower_may_alias(const PrimFunc *, int param); /* may another parameter lie on it? */

#endif
