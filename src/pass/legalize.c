/* legalize.c: Legalize: an operator that is defined by others and has no implementation of its own
 * becomes those others, all the way down.
 *   needs   types
 *   keeps   types
 *   breaks  nothing */
#include "pass/groups.h"
#include "pass/passes.h"

static const Node *expand(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  if (!groups_needs_decompose(now) || !now->type) return now;
  const Node *then = now->u.call.op->decompose(rw->m, now);
  GraphRewriter inner = {.m = rw->m, .fn = expand, .arena = rw->arena};
  for (int i = 0; i < now->nargs; i++) map_put(inner.arena, &inner.memo, now->arg[i], (void *)(uintptr_t)now->arg[i]);
  for (int i = 0; i < now->nargs; i++)
    for (int k = 0; now->arg[i]->kind == N_TUPLE && k < now->arg[i]->nargs; k++)
      map_put(inner.arena, &inner.memo, now->arg[i]->arg[k], (void *)(uintptr_t)now->arg[i]->arg[k]);
  return graph_rewrite(&inner, then);
}

const Node *pass_legalize(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return is_primitive(f) ? f : rewrite(m, f, expand, NULL);
}
