/* impl.h: how operators are computed well.
 *
 * An operator has one meaning (op.h) and may have many implementations: other
 * layouts, other algorithms (Winograd, packed products), each with a schedule.  They
 * stand in one table, impl.def.  Every choice is made by a model of the target
 * (registers, vector width, cache sizes, cores), never by constants for one machine, and
 * never by the optimisation level.  Each implementation is checked against the meaning.
 *
 * A group is a fused function: one anchor (the operator with the heaviest fusion
 * kind), a prologue before it (inlined, or placed where the anchor packs its input) and
 * an epilogue behind it.  A schedule names its output tile; impl_attach_epilogue puts any
 * epilogue there.  No schedule knows what the epilogue is.
 *
 * Terms.  A register tile is the part of the result whose sums are kept in registers while the loop over the
 * terms of the sum, the micro-kernel, runs.  A cache block is what a loop goes over again while it stays in a cache.
 * To pack is to copy an operand so that the micro-kernel reads it straight ahead; a panel is a packed strip as wide
 * as a register tile.  A lane is one element of a vector register.  A block of channels is the c of NCHW16c.  A band is
 * some rows of an image that one thread computes together.  A stem is a network's first convolution, over few channels.
 *
 * AlterOpLayout chooses a plan for every call, all of them weighed together (pass/choose_plans.c), and puts what
 * impl_alter makes of it in the call's place; weights are transformed by operators in the graph, which FoldConstant
 * then computes at compile time.  So everything about the choice can be read in the graph's text. */
#ifndef LATHE_IMPL_H
#define LATHE_IMPL_H

#include "op/op.h"
#include "schedule/schedule.h"
#include "target/target.h"

/* Reduced precision, on request.  Bfloat16: operands of products are rounded to it, sums are float32.
 * Float16: computed in it throughout, sums in blocks (half.c). */
typedef enum { FAST_NONE, FAST_BF16, FAST_FP16 } FastMath;

typedef struct ImplConfig {
  bool no_winograd;
  FastMath fast_math;
  const char *plans; /* given by hand: lines "WORKLOAD PLAN"; NULL: none */
  const char *tuned; /* measured ones (tuned.c); NULL: none */
  Text *log;         /* what was chosen from what (plan_log); NULL: nobody wants to know */
} ImplConfig;

/* ---- plan.c: plans ------------------------------------------------------------------------
 *
 * What an implementation leaves open (blocks, register tile, bands, panels, threads) is its plan: a record with a
 * table of fields, as operators' attributes are.  Its text is "conv2d.nchwc{data_block=8, out_block=8, o=2, …}".  An
 * implementation lists every plan that it can serve for a call, with the seconds that the model of the target predicts;
 * what alters, computes and schedules is handed one of them and decides nothing.
 *
 * A plan that was chosen for a call stands in the graph, as its attribute plan="…"; a call without one gets the plan of
 * the least predicted time when it is lowered. */

typedef struct Impl Impl;
typedef struct ImplGroup ImplGroup;

/* A call as an implementation sees it. */
typedef struct ImplCall {
  Module *m;    /* altered calls are made there */
  Arena *arena; /* plans are */
  const Target *target;
  const ImplConfig *config;
  const Node *call;
} ImplCall;

typedef struct Plan {
  const Impl *impl;   /* NULL: the generic schedule … */
  const void *fields; /* … of a GenericPlan; else a record of impl->plan */
  double seconds;     /* of a run on all of the target's cores, predicted */
  double bytes;       /* of the weight in the form that it wants */
  bool alters;        /* the call is put into another form first, by impl->alter */
  /* how data and result lie then: channels of a block (NCHW8c), 0: as the graph has them */
  int64_t data_block, out_block;
} Plan;

typedef struct PlanList {
  const ImplCall *of;
  const Impl *impl;              /* whose plans are being added … */
  bool alters;                   /* … whether they alter the call … */
  int64_t data_block, out_block; /* … and into which blocks of channels */
  Vec(Plan) v;
} PlanList;
/* The record is copied.  bytes 0: the weight stays as it is. */
void plan_add(PlanList *, const void *fields, double seconds, double bytes);

/* Every plan of every implementation of the call's operator, in the table's order. */
void impl_plans(const ImplCall *, PlanList *);
/* Those, and the generic schedule's where none of them computes the call as it stands. */
void plan_all(const ImplCall *, PlanList *);
/* The one of least predicted time that computes the call as it stands; impl NULL: none does, the generic schedule
 * serves. */
Plan impl_choose(const ImplCall *);
/* The plan that was measured to be faster where this one would be taken; itself: none was. */
Plan impl_tuned(const ImplCall *, const Plan *taken);
/* "name{field=value, …}"; "generic{…}" of the generic schedule, whose name alone is the plan of all zeros */
const char *plan_text(Arena *, const Plan *);
/* The same behind the name of what it is a plan of: "WORKLOAD PLAN", as files of plans and the graph have it. */
const char *plan_line(const ImplCall *, const Plan *);
/* Of either form.  Raises with the reason where the text names no implementation of the call's operator, or values that
 * are none of its plans for this call. */
Plan plan_parse(const ImplCall *, const char *text);
/* Raises for lines that cannot be "WORKLOAD PLAN"; what stands behind # is for people. */
void plan_check_lines(Ctx *, const char *lines);
/* Writes into config->log, where there is one: the workload and the node's name, then every plan with its predicted
 * microseconds, the fastest first, the one that was taken marked '*'. */
void plan_log(const ImplCall *, const Plan *taken);
/* A name for what is to be computed: operator, attributes, types, which operands are constants, and what of the target
 * the choice depends on.  The same in every version that computes the same. */
const char *plan_workload(Ctx *, Arena *, const Target *, const Node *call);

/* The same call in another form: what AlterOpLayout puts in its place. */
typedef struct AlteredCall {
  const OpDef *op;
  const void *attrs;
  int nargs;
  const Node *arg[8]; /* weights already transformed; data as it was … */
  LayoutPair in[8];   /* … to be brought from `from` to `to` by layout_transform (NULL: as it is) */
  LayoutPair out;
  const char *plan; /* of the altered call; NULL: chosen when it is lowered */
} AlteredCall;
/* The plans worth choosing from where layouts are weighed over a whole graph: the best for each way in which data and
 * result may lie (data_block, out_block), by seconds and by bytes at a price in seconds.  One for the layouts as they
 * are is always there; the generic schedule where nothing better serves.  A plan that was given by hand is the only
 * one.  Gives how many. */
int impl_options(const ImplCall *, double price, Plan **out);
/* What a plan that alters makes of the call. */
void impl_alter(const ImplCall *, const Plan *, AlteredCall *);
/* Elements of a tensor; of one whose sizes are not known, of a likely one. */
double impl_likely_elements(const Type *);
/* Seconds to bring so many bytes from one layout into another. */
double impl_relayout_seconds(const Target *, double bytes);
/* Products and convolutions over groups of narrow elements, which dot products take together; false: the call is
 * none. */
bool impl_alter_words(Module *, const Target *, const Node *call, AlteredCall *);

/* Is the product faster with its operands in bfloat16?  Of calls over float32, layouts not altered yet. */
bool impl_prefers_pairs(Ctx *, const Target *, const ImplConfig *, const Node *call);
/* Is a transposed convolution faster as a product of each element by all taps whose columns are added up? */
bool impl_prefers_columns(const Target *, const Node *call);
/* Is it faster over float16, given the same call over either?  With FAST_FP16. */
bool impl_prefers_half(Module *, const Target *, const ImplConfig *, const Node *wide, const Node *half);

/* The function of a fused group (N_FUNC with "Primitive") or of a single call wrapped in one, as a
 * scheduled tir function of dst, ready to lower.  Parameters: one tensor per
 * parameter (tuples spread out), then one for each constant that is too large to be written into the
 * code, in the order of *consts, then one per output, then the scalars that no shape tells,
 * in the order of *scalars (variables of the graph's types). */
typedef struct ImplResult {
  PrimFunc *func;
  int nconsts;
  const Node **consts; /* of the function: the executor passes them with the arguments */
  int nscalars;
  const Var **scalars; /* of the graph: the executor evaluates and passes them */
  double flops;        /* by the operators' formula; 0 when not known (symbolic) */
  double flops_done;   /* by the algorithm chosen (Winograd does fewer) */
  const char *impl;    /* name of the implementation that was chosen */
  const char *plan;    /* its plan: "WORKLOAD PLAN"; NULL: there was nothing to choose */
  int nplans;          /* that there were to choose from */
  double seconds;      /* that the model predicts for the anchor; 0: nothing is known */
} ImplResult;
void impl_lower(Module *dst, Module *src, const Node *func, const char *name, const Target *, const ImplConfig *,
                ImplResult *out);

/* ---- table.c -------------------------------------------------------------------------- */

struct Impl {
  const char *name; /* "conv2d.nchwc" */
  const char *op;   /* the anchor's operator */
  const AttrsDef *plan;
  void (*plans)(const ImplCall *, PlanList *);
  void (*alter)(const ImplCall *, const void *plan, AlteredCall *); /* NULL: calls are computed as they stand */
  /* NULL: the operator's own */
  void (*compute)(OpCall *, const Target *, const void *plan, const Tensor *const *in, const Tensor **out);
  void (*schedule)(ImplGroup *);
  /* One that leaves nothing open has no list of plans: does it serve the call, and in how many seconds? */
  bool (*fits)(const Target *, const Node *call);
  double (*cost)(const Target *, const Node *call);
  bool half; /* sums float16 in float16: products with FAST_FP16 have such implementations and no others */
};
const Impl *impl_find(const char *name, const char *op); /* NULL: there is none */
/* Operations of a call by its operator's formula; 0 when sizes are not known. */
double impl_flops(const Node *call);
/* Of the algorithm that the call stands for: Winograd's does fewer. */
double impl_flops_done(const Node *call);
int impl_count(void);
const Impl *impl_at(int);

#endif
