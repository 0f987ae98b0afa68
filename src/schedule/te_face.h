/* te_face.h: the inside of the te face, shared by te_stage.c (the description),
 * te_rewrite.c (caches and rfactor) and te_emit.c (from description to primitives). */
#ifndef LATHE_SCHEDULE_TE_FACE_H
#define LATHE_SCHEDULE_TE_FACE_H

#include "schedule/schedule.h"

/* A call that does not fit what is described. */
#define te_refuse(sched, ...) raise((sched)->ctx, ERR_SCHEDULE, NOWHERE, __VA_ARGS__)

/* parent -> outer, inner; or parts -> fused.  In the order the user gave them. */
typedef struct Relation {
  bool fuse;
  const IterVar *parent, *outer, *inner;
  const Expr *factor, *nparts; /* split: one of them, the other NULL */
  const IterVar *fused;
  const IterVar **part; /* fuse: outermost first */
  int npart;
} Relation;

typedef enum { ATTACH_ROOT, ATTACH_INLINE, ATTACH_AT } AttachKind;

/* What an axis is marked with: a kind of loop, or a thread. */
typedef struct AxisMark {
  const IterVar *axis;
  ForKind kind;
  const char *thread;    /* FOR_THREAD */
  const Var *thread_var; /* of the thread axis */
} AxisMark;

typedef struct AxisPragma {
  const IterVar *axis;
  const char *key;
  const Expr *value;
} AxisPragma;

typedef struct AxisPrefetch {
  const IterVar *axis;
  const Tensor *tensor;
  int64_t distance;
} AxisPrefetch;

typedef struct Alignment {
  int dim, factor, offset;
} Alignment;

struct TeStage {
  TeSched *s;
  const TeOp *origin, *op;
  bool output;
  bool cache; /* made by cache_read, cache_write or rfactor */
  bool step;  /* runs once for each row of a scan: its first axis has no loop */
  AttachKind attach;
  TeStage *at;
  const IterVar *at_axis;
  Vec(Relation) relations;
  Vec(const IterVar *) leaves; /* outermost first; never changed in place */
  Vec(AxisMark) marks;
  Vec(AxisPragma) pragmas;
  Vec(AxisPrefetch) prefetches;
  Vec(Alignment) alignments;
  const char *scope; /* NULL: as it is */
  bool double_buffered;
  const IterVar *tensorize_axis;
  const TensorIntrin *intrin;
  TeStage *view; /* what readers of a transformed layout read, NULL: the stage itself */
};

struct TeSched {
  Ctx *ctx;
  Module *m; /* of the operations; retained */
  Arena *arena;
  Vec(TeStage *) stages; /* producers first */
  Map by_op;             /* every operation a stage has stood for -> TeStage* */
  /* The unscheduled function that calls are tried on; made anew when operations change. */
  Module *base_module;
  PrimFunc *base;
  Map base_names;
};

/* ---- te_stage.c ---------------------------------------------------------------------- */

/* Runs apply(env), which changes the description, then, with `emit`, tries the whole
 * description.  When either raises, everything is as before and the error goes on. */
void te_stage_change(TeSched *, void (*apply)(void *env), void *env, bool emit);
/* Axes that have loops of their own: of a step all but the first. */
int te_stage_roots(const TeStage *, const IterVar ***out);
void te_stage_reset_leaves(TeStage *);
TeStage *te_stage_new(TeSched *, const TeOp *);
/* Puts a stage in front of another in the order. */
void te_sched_insert(TeSched *, TeStage *before, TeStage *);
void te_stage_set_op(TeStage *, const TeOp *);
/* The tensor that stands for t now. */
const Tensor *te_stage_current(TeSched *, const Tensor *t);
const AxisMark *te_stage_mark_of(const TeStage *, const IterVar *);
/* Raises unless the axis is a leaf of the stage, saying what it is instead. */
void te_stage_need_leaf(const TeStage *, const char *call, const IterVar *);
bool te_stage_is_leaf(const TeStage *, const IterVar *);
/* The relation that took the axis apart (or fused it), NULL for a leaf. */
const Relation *te_stage_relation_of(const TeStage *, const IterVar *);
/* Leaves that come from the axis, appended to out. */
typedef Vec(const IterVar *) AxisList;
void te_stage_leaves_of(Arena *, const TeStage *, const IterVar *, AxisList *out);

/* ---- te_rewrite.c -------------------------------------------------------------------- */

/* Every stage but `except` that reads a tensor of the map reads its replacement, and so on down. */
void te_sched_hand_on(TeSched *, Map *map, const TeStage *except);

/* ---- te_emit.c ----------------------------------------------------------------------- */

/* The current description on the function f, whose blocks names tells.  A trial lets
 * a stage wait whose readers are caches that have no place yet. */
Sched *te_sched_emit_trace(TeSched *, const PrimFunc *f, const Map *names, bool trial);

#endif
