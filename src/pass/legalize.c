/* legalize.c: Legalize: an operator that is defined by others and has no implementation of its own
 * becomes those others, all the way down.  A concatenation of many tensors whose sizes are known only
 * at run time becomes a tree of small ones: where an element comes from is found by comparing its
 * position with the end of each tensor, and each end is a sum of all sizes before it.
 *   needs   types
 *   keeps   types
 *   breaks  nothing */
#include "pass/groups.h"
#include "pass/passes.h"

/* Concatenations of at most GROUPS_MAX_OPEN tensors each, in order. */
static const Node *concatenate_in_steps(GraphRewriter *rw, const Node *call)
{
  const Node *parts = call->arg[0];
  const Node **step = arena_array(rw->arena, const Node *, parts->nargs);
  int n = 0;
  for (int i = 0; i < parts->nargs; i += GROUPS_MAX_OPEN) {
    int count = parts->nargs - i < GROUPS_MAX_OPEN ? parts->nargs - i : GROUPS_MAX_OPEN;
    const Node *some = node_tuple(rw->m, count, parts->arg + i);
    step[n++] =
        count == 1 ? parts->arg[i] : node_call(rw->m, call->u.call.op, 1, &some, call->u.call.attrs, call->name);
  }
  const Node *all = node_tuple(rw->m, n, step);
  const Node *out = node_call(rw->m, call->u.call.op, 1, &all, call->u.call.attrs, call->name);
  return n > GROUPS_MAX_OPEN ? concatenate_in_steps(rw, out) : out;
}

/* The call as what its operator is defined by, which fn then goes through; its operands are done. */
static const Node *decompose(GraphRewriter *rw, const Node *now)
{
  const Node *then = now->u.call.op->decompose(rw->m, now);
  GraphRewriter inner = {.m = rw->m, .fn = rw->fn, .arena = rw->arena};
  for (int i = 0; i < now->nargs; i++) map_put(inner.arena, &inner.memo, now->arg[i], (void *)(uintptr_t)now->arg[i]);
  for (int i = 0; i < now->nargs; i++)
    for (int k = 0; now->arg[i]->kind == N_TUPLE && k < now->arg[i]->nargs; k++)
      map_put(inner.arena, &inner.memo, now->arg[i]->arg[k], (void *)(uintptr_t)now->arg[i]->arg[k]);
  return graph_rewrite(&inner, then);
}

static const Node *expand(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  if (is_call(now, REGION_BEGIN) || is_call(now, REGION_END)) return now->arg[0];
  if (groups_open_parts(now) > GROUPS_MAX_OPEN) return concatenate_in_steps(rw, now);
  return groups_needs_decompose(now) && now->type ? decompose(rw, now) : now;
}

const Node *pass_legalize(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return is_primitive(f) ? f : rewrite(m, f, expand, NULL);
}

/* CanonicalizeQnn: the same for quantized operators alone, so that passes written for integers see them.
 *   needs   types
 *   keeps   types
 *   breaks  nothing */
static const Node *expand_quantized(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  bool quantized = now->kind == N_CALL && str_starts(now->u.call.op->name, "qnn.");
  return quantized && groups_needs_decompose(now) && now->type ? decompose(rw, now) : now;
}

const Node *pass_canonicalize_qnn(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return is_primitive(f) ? f : rewrite(m, f, expand_quantized, NULL);
}
