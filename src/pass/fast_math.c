/* fast_math.c: FastMath: exp, tanh, erf and softmax by short approximations.
 *   needs   types
 *   keeps   types; values within the error that docs of the fast_* operators state
 *   breaks  bit-exactness with lower levels */
#include "pass/passes.h"
#include "pass/tools.h"

static const char *const fast[][2] = {
  {"exp", "fast_exp"}, {"tanh", "fast_tanh"}, {"erf", "fast_erf"}, {"nn.softmax", "nn.fast_softmax"}};

static const Node *quicken(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  if (now->kind != N_CALL || !is_tensor(now) || !dtype_eq(now->type->dtype, DT_F32)) return now;
  for (size_t i = 0; i < sizeof fast / sizeof *fast; i++) {
    const OpDef *op = is_call(now, fast[i][0]) ? opdef_find(fast[i][1]) : NULL;
    if (op && op->attrs == now->u.call.op->attrs)
      return node_call(rw->m, op, now->nargs, now->arg, now->u.call.attrs, now->name);
  }
  return now;
}

const Node *pass_fast_math(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return rewrite(m, f, quicken, NULL);
}
