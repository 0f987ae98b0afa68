/* canonicalize_ops.c: CanonicalizeOps: nn.bias_add becomes expand_dims and add, so that later passes see
 * one form of a bias.
 *   needs   types
 *   keeps   types
 *   breaks  nothing */
#include "pass/passes.h"
#include "pass/tools.h"

static const Node *canonicalize(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  if (!is_call(now, "nn.bias_add") || !is_tensor(now->arg[0])) return now;
  int ndim = now->arg[0]->type->ndim;
  int axis = (int)call_int(now, "axis");
  if (axis < 0) axis += ndim;
  const Node *bias = make_expand_dims(rw->m, now->arg[1], 1, ndim - axis - 1);
  return node_call(rw->m, opdef_get(rw->m->ctx, "add"), 2, (const Node *[]){now->arg[0], bias}, NULL, now->name);
}

const Node *pass_canonicalize_ops(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return rewrite(m, f, canonicalize, NULL);
}
