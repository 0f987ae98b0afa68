/* dead_code.c: DeadCodeElimination: a let whose variable nobody reads goes, unless its value has an
 * effect; a let that is read once is put in its place (inline_once).
 *   needs   nothing
 *   keeps   types, the order of effects
 *   breaks  nothing
 *
 * What no output depends on and no let holds does not exist: the graph is what the result reaches. */
#include "pass/passes.h"
#include "pass/tools.h"

const PassOption pass_dead_code_options[] = {
  {PO_BOOL, "inline_once", "false", "values that are read once are put where they are read"},
};

typedef struct Dead {
  Map reads;   /* variable -> times read */
  Map effect;  /* node -> itself when it or something below it has an effect */
  Map replace; /* variable -> value, inline_once */
  bool inline_once;
} Dead;

static bool has_effect(const Node *n)
{
  switch (n->kind) {
  case N_CALL: return n->u.call.op->flags & OPF_IMPURE;
  case N_CALL_TIR: return true;
  case N_APPLY: return n->arg[0]->kind != N_FUNC && n->arg[0]->kind != N_CTOR;
  case N_VAR:
  case N_CONST:
  case N_TUPLE:
  case N_GET:
  case N_LET:
  case N_IF:
  case N_FUNC:
  case N_GLOBAL:
  case N_CTOR:
  case N_MATCH:
  case N_OP: return false;
  }
  return true;
}

static void find_effects(Arena *arena, Dead *d, const Node *f)
{
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  for (int i = 0; i < n; i++) {
    bool effect = has_effect(order[i]);
    for (int k = 0; k < order[i]->nargs; k++) {
      const Node *a = order[i]->arg[k];
      bool binder = (order[i]->kind == N_LET && k == 0) || (order[i]->kind == N_FUNC && k < fn_nparams(order[i]));
      effect = effect || map_has(&d->effect, a);
      if (a->kind == N_VAR && !binder) map_put(arena, &d->reads, a, (void *)((intptr_t)map_get(&d->reads, a) + 1));
    }
    if (effect) map_put(arena, &d->effect, order[i], (void *)(uintptr_t)order[i]);
  }
}

static const Node *drop_let(GraphRewriter *rw, const Node *old, const Node *now)
{
  Dead *d = rw->env;
  if (now->kind != N_LET || map_has(&d->effect, old->arg[1])) return now;
  int reads = (int)(intptr_t)map_get(&d->reads, old->arg[0]);
  if (!reads) return now->arg[2];
  if (reads > 1 || !d->inline_once) return now;
  Map one = {0};
  map_put(rw->arena, &one, now->arg[0], (void *)(uintptr_t)now->arg[1]);
  return graph_substitute(rw->m, now->arg[2], &one);
}

const Node *pass_dead_code(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name;
  Dead d = {.inline_once = pass_option_int(env, pass_dead_code_options, 0)};
  for (const Node *last = NULL; last != f;) { /* a dropped value may have been the last reader of another */
    last = f;
    d.reads = d.effect = (Map){0};
    find_effects(scratch(m->ctx), &d, f);
    f = rewrite(m, f, drop_let, &d);
  }
  return f;
}
