/* pipeline.c: what happens to a model before it is lowered: read the list from top to bottom.
 *
 * Each pass runs if the context's level reaches its own (passes.def) and it is not
 * disabled.  What follows a pass never relies on it: the last two steps, which are not
 * part of the list, legalise what is left and wrap calls that stand alone, so that any
 * graph can be lowered whatever was left out. */
#include "pass/tools.h"

static const char *const list[] = {
    "InferType",
    "RemoveUnusedFunctions",
    "ToGraphNormalForm",
    "SimplifyInference",
    "DynamicToStatic",
    "Legalize",
    "FoldConstant",
    "SimplifyExpr",
    "EliminateCommonSubexpr",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "CombineParallelBatchMatmul",
    "FoldConstant",
    "FoldScaleAxis",
    "CanonicalizeOps",
    "CanonicalizeCast",
    "FastMath",
    "FoldConstant",
    "AlterOpLayout",
    "SimplifyExpr",
    "FoldConstant",
    "DeadCodeElimination",
    "FuseOps",
};
enum { NLIST = sizeof list / sizeof *list };

const char *const *pass_pipeline_names(int *n)
{
  *n = NLIST;
  return list;
}

void pass_pipeline(PassContext *pc, Module *m)
{
  const Pass *p[NLIST];
  for (int i = 0; i < NLIST; i++) p[i] = pass_get(pc->ctx, list[i]);
  Scope scope = scope_begin(pc->ctx);
  pass_run(pc, pass_sequential(scratch(pc->ctx), "pipeline", 0, NLIST, p), m);
  scope_end(pc->ctx, scope);
  bool legalized = pass_enabled(pc, pass_get(pc->ctx, "Legalize"));
  if (!legalized) pass_run(pc, pass_get(pc->ctx, "Legalize"), m);
  pass_run(pc, pass_get(pc->ctx, "WrapCalls"), m);
}
