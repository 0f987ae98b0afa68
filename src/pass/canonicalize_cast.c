/* canonicalize_cast.c: CanonicalizeCast: a widening cast that several operators read is made for each of
 * them, so that it fuses into each and the narrow tensor is what lies in memory.
 *   needs   types
 *   keeps   types
 *   breaks  nothing; EliminateCommonSubexpr undoes it, so it runs after */
#include "pass/passes.h"
#include "pass/tools.h"

static bool widening(const Node *n)
{
  return is_call(n, "cast") && is_tensor(n) && is_tensor(n->arg[0]) &&
         n->type->dtype.bits > n->arg[0]->type->dtype.bits;
}

static const Node *split_casts(GraphRewriter *rw, const Node *old, const Node *now)
{
  const Uses *uses = rw->env;
  if (now->kind != N_CALL) return now;
  const Node **arg = arena_array(rw->arena, const Node *, now->nargs + 1);
  bool changed = false;
  for (int i = 0; i < now->nargs; i++) {
    arg[i] = now->arg[i];
    if (!widening(arg[i]) || uses_get(uses, old->arg[i]) < 2 || now->u.call.op->fuse > FUSE_BROADCAST) continue;
    arg[i] = node_call(rw->m, arg[i]->u.call.op, 1, arg[i]->arg, arg[i]->u.call.attrs, arg[i]->name);
    changed = true;
  }
  return changed ? node_with_args(rw->m, now, arg) : now;
}

const Node *pass_canonicalize_cast(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  Uses uses = uses_of(scratch(m->ctx), f);
  return rewrite(m, f, split_casts, &uses);
}
