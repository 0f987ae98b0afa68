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
 * AlterOpLayout asks impl_alter which layout and algorithm a call wants; weights are
 * transformed by operators in the graph, which FoldConstant then computes at compile
 * time.  So everything about the choice can be read in the graph's text. */
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
  /* of the whole network, about: a run, and its weights as the fastest ways want them; 0: memory counts for nothing */
  double seconds, bytes;
} ImplConfig;
/* Sets the last two, from the nodes of the network. */
void impl_weigh(Ctx *, const Target *, ImplConfig *, int n, const Node *const *node);

/* The same call in another form: what AlterOpLayout puts in its place. */
typedef struct AlteredCall {
  const OpDef *op;
  const void *attrs;
  int nargs;
  const Node *arg[8]; /* weights already transformed; data as it was … */
  LayoutPair in[8];   /* … to be brought from `from` to `to` by layout_transform (NULL: as it is) */
  LayoutPair out;
} AlteredCall;
/* False: the call stays as it is. */
bool impl_alter(Module *, const Target *, const ImplConfig *, const Node *call, AlteredCall *out);
/* The same of a call beside which nothing is altered: in the layouts as they are, where changing them there and back
 * costs more than it wins.  False: impl_alter says what it wants. */
bool impl_alter_alone(Module *, const Target *, const ImplConfig *, const Node *call, AlteredCall *out);

/* Is the product faster with its operands in bfloat16?  Of calls over float32, layouts not altered yet. */
bool impl_prefers_pairs(Ctx *, const Target *, const ImplConfig *, const Node *call);

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
} ImplResult;
void impl_lower(Module *dst, Module *src, const Node *func, const char *name, const Target *, const ImplConfig *,
                ImplResult *out);

/* ---- table.c -------------------------------------------------------------------------- */

typedef struct ImplGroup ImplGroup;
typedef struct Impl {
  const char *name; /* "conv2d.nchwc" */
  const char *op;   /* the anchor's operator */
  bool (*fits)(const Target *, const Node *call);
  double (*cost)(const Target *, const Node *call); /* estimated seconds; the cheapest that fits is taken */
  /* NULL: the operator's own */
  void (*compute)(OpCall *, const Target *, const Tensor *const *in, const Tensor **out);
  void (*schedule)(ImplGroup *);
  bool half; /* for FAST_FP16 alone */
} Impl;
/* The cheapest implementation that fits the call; NULL: the generic schedule. */
const Impl *impl_choose(const Target *, const ImplConfig *, const Node *call);
/* Operations of a call by its operator's formula; 0 when sizes are not known. */
double impl_flops(const Node *call);
/* Of the algorithm that the call stands for: Winograd's does fewer. */
double impl_flops_done(const Node *call);
int impl_count(void);
const Impl *impl_at(int);

#endif
