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
  "FlattenAtrousConv",
  "FakeQuantizationToInteger",
  "PatchRows",
  "ConvertLayout",
  "LegalizeQnn",
  "PlanDevices",
  "WidenPrecision",
  "SimplifyInference",
  "DynamicToStatic",
  "Legalize",
  "WidenPrecision",
  "FoldConstant",
  "SimplifyExpr",
  "EliminateCommonSubexpr",
  "ByTable",
  "CombineParallelConv2D",
  "CombineParallelDense",
  "CombineParallelBatchMatmul",
  "FoldConstant",
  "FoldScaleAxis",
  "FuseAttention",
  "CanonicalizeOps",
  "ReducePrecision",
  "CanonicalizeCast",
  "FastMath",
  "AlterOpLayout",
  "SimplifyExpr",
  "LiftWeights",
  "FoldConstant",
  "DeadCodeElimination",
  "PlanDevices",
  "FuseOps",
};
enum { NLIST = sizeof list / sizeof *list };

const char *const *pass_pipeline_names(int *n)
{
  *n = NLIST;
  return list;
}

static int first_place(const char *name)
{
  for (int i = 0; i < NLIST; i++)
    if (!strcmp(list[i], name)) return i;
  return -1;
}

void pass_add(PassContext *pc, const Pass *pass, const char *after)
{
  if (first_place(after) < 0)
    raise(pc->ctx, ERR_ARGUMENT, NOWHERE, "the pipeline has no pass '%s' to put '%s' behind", after, pass->name);
  pass_declare(pc->ctx, pass->name);
  vec_push(pc->arena, &pc->added, ((AddedPass){pass, list[first_place(after)]}));
}

void pass_pipeline(PassContext *pc, Module *m)
{
  Scope scope = scope_begin(pc->ctx);
  const Pass **p = arena_array(scratch(pc->ctx), const Pass *, NLIST + pc->added.n);
  int n = 0;
  for (int i = 0; i < NLIST; i++) {
    p[n++] = pass_get(pc->ctx, list[i]);
    for (int k = 0; k < pc->added.n; k++)
      if (first_place(pc->added.v[k].after) == i) p[n++] = pc->added.v[k].pass;
  }
  pass_run(pc, pass_sequential(scratch(pc->ctx), "pipeline", 0, n, p), m);
  scope_end(pc->ctx, scope);
  bool legalized = pass_enabled(pc, pass_get(pc->ctx, "Legalize"));
  if (!legalized) pass_run(pc, pass_get(pc->ctx, "Legalize"), m);
  pass_run(pc, pass_get(pc->ctx, "WrapCalls"), m);
}
