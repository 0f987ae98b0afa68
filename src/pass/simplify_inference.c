/* simplify_inference.c: SimplifyInference: what only training needs goes.
 *   needs   types
 *   keeps   types
 *   breaks  nothing
 *
 * Normalisations become the arithmetic that they are (nn.batch_norm: multiply and add by vectors that
 * FoldConstant can compute), dropout becomes its input. */
#include "pass/passes.h"
#include "pass/tools.h"

#define NORMALISATIONS "nn.batch_norm,nn.layer_norm,nn.instance_norm,nn.group_norm,nn.l2_normalize"

static const Node *simplify(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  if (now->kind != N_CALL || !now->type) return now;
  if (is_call_of(now, NORMALISATIONS) && now->u.call.op->decompose) return now->u.call.op->decompose(rw->m, now);
  if (is_call(now, "nn.dropout")) {
    if (now->type->kind != TY_TUPLE) return now->arg[0];
    return node_tuple(rw->m, 2, (const Node *[]){now->arg[0], node_get(rw->m, now, 1)});
  }
  return now;
}

const Node *pass_simplify_inference(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return rewrite(m, f, simplify, NULL);
}
