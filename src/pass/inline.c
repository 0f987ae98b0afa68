/* inline.c: Inline and RemoveUnusedFunctions.
 *
 * Inline: a call of a function of the module that is marked Inline = 1 becomes its body, unless
 * an external compiler has it.
 * RemoveUnusedFunctions: functions that no entry function reaches go. */
#include "pass/passes.h"
#include "pass/tools.h"

const PassOption pass_remove_unused_options[] = {
  {PO_STRS, "entry_functions", "main", "functions that are called from outside"},
};

static bool marked(const Node *f)
{
  const Expr *v = f->kind == N_FUNC ? annots_get(&f->u.func->attrs, "Inline") : NULL;
  return v && v->kind == E_INT && v->u.i && !is_external(f);
}

/* The function with variables of its own. */
static const Node *fresh_vars(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)now;
  return old->kind == N_VAR ? node_var(rw->m, old->name, old->type) : now;
}

static const Node *inline_call(GraphRewriter *rw, const Node *old, const Node *now)
{
  const char *self = rw->env;
  (void)old;
  if (now->kind != N_APPLY || now->arg[0]->kind != N_GLOBAL || !strcmp(now->arg[0]->u.global, self)) return now;
  Global *g = module_get(rw->m, now->arg[0]->u.global);
  if (!g || g->kind != GLOBAL_GRAPH || !marked(g->func)) return now;
  GraphRewriter copy = {.m = rw->m, .fn = fresh_vars, .arena = rw->arena};
  const Node *f = graph_rewrite(&copy, g->func);
  Map vars = {0};
  for (int i = 0; i < fn_nparams(f); i++) map_put(rw->arena, &vars, f->arg[i], (void *)(uintptr_t)now->arg[1 + i]);
  return graph_substitute(rw->m, fn_body(f), &vars);
}

void pass_inline(PassContext *pc, Module *m, void *env)
{
  (void)pc, (void)env;
  int n = m->globals.n;
  const Node **result = arena_array(scratch(m->ctx), const Node *, n + 1);
  for (int i = 0; i < n; i++) {
    const Global *g = &m->globals.v[i];
    if (g->kind != GLOBAL_GRAPH) continue;
    result[i] = g->func;
    for (int round = 0;; round++) { /* an inlined body may call others */
      if (round == 64)
        raise(m->ctx, ERR_ARGUMENT, NOWHERE, "functions marked Inline call each other without end, from @%s", g->name);
      const Node *now = retype(m, rewrite(m, result[i], inline_call, (void *)(uintptr_t)g->name));
      if (now == result[i]) break;
      result[i] = now;
    }
  }
  for (int i = 0; i < n; i++)
    if (result[i]) m->globals.v[i].func = (void *)(uintptr_t)result[i];
}

static void reach(Arena *arena, Module *m, const char *name, StrMap *seen)
{
  Vec(const char *) work = {0};
  vec_push(arena, &work, name);
  while (work.n) {
    name = work.v[--work.n];
    Global *g = module_get(m, name);
    if (!g || strmap_get(seen, name)) continue;
    strmap_put(arena, seen, name, g);
    if (g->kind != GLOBAL_GRAPH) continue;
    const Node **order;
    int n = graph_post_order(arena, g->func, &order);
    for (int i = 0; i < n; i++) {
      if (order[i]->kind == N_GLOBAL) vec_push(arena, &work, order[i]->u.global);
      if (order[i]->kind == N_CALL_TIR) vec_push(arena, &work, order[i]->u.tir.name);
    }
  }
}

void pass_remove_unused(PassContext *pc, Module *m, void *env)
{
  Arena *arena = scratch(m->ctx);
  StrMap seen = {0};
  const char *entry = pass_option(env, pass_remove_unused_options, 0);
  for (int i = 0; i < pc->nentries; i++) reach(arena, m, pc->entries[i], &seen);
  for (const char *p = pc->nentries ? NULL : entry; p && *p;) {
    size_t len = strcspn(p, ",");
    reach(arena, m, arena_strndup(arena, p + strspn(p, " "), len - strspn(p, " ")), &seen);
    p = p[len] ? p + len + 1 : NULL;
  }
  if (!seen.n) return; /* no entry here: everything may be one */
  int kept = 0;
  for (int i = 0; i < m->globals.n; i++)
    if (strmap_get(&seen, m->globals.v[i].name)) m->globals.v[kept++] = m->globals.v[i];
  m->globals.n = kept;
}
