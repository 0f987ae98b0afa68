/* walk.c: visiting, rewriting and copying graphs.
 *
 * Comes in: a node.  Goes out: its nodes in order, or a new graph; what is shared in
 * the old one is shared in the new one.  Every walk keeps its own stack: a model may be
 * tens of thousands of nodes deep. */
#include "graph/state.h"

typedef struct Frame {
  const Node *n;
  int next; /* the argument to visit next */
} Frame;

/* ---- visiting -------------------------------------------------------------------- */

int graph_post_order(Arena *arena, const Node *root, const Node ***out)
{
  Ctx *ctx = arena_ctx(arena);
  NodeList order = {0};
  Map seen = {0};
  Vec(Frame) stack = {0};
  Arena *tmp = scratch(ctx);
  bool apart = tmp != arena;
  Scope s = {0};
  if (apart) s = scope_begin(ctx);
  map_put(tmp, &seen, root, (void *)root);
  vec_push(tmp, &stack, (Frame){root, 0});
  while (stack.n) {
    Frame *top = &stack.v[stack.n - 1];
    if (top->next == top->n->nargs) {
      vec_push(arena, &order, top->n);
      stack.n--;
      continue;
    }
    const Node *arg = top->n->arg[top->next++];
    if (map_has(&seen, arg)) continue;
    map_put(tmp, &seen, arg, (void *)arg);
    vec_push(tmp, &stack, (Frame){arg, 0});
  }
  if (apart) scope_end(ctx, s);
  *out = order.v;
  return order.n;
}

void graph_pattern_vars(Arena *arena, const Pattern *p, NodeList *out)
{
  if (p->kind == PAT_VAR) vec_push(arena, out, p->var);
  for (int i = 0; i < p->n; i++) graph_pattern_vars(arena, p->sub[i], out);
}

/* ---- rewriting --------------------------------------------------------------------- */

const Pattern *graph_pattern_replace(Module *m, const Pattern *p, const Map *vars)
{
  const Node *var = p->kind == PAT_VAR ? map_get(vars, p->var) : NULL;
  bool same = !var || var == p->var;
  const Pattern **sub = arena_array(m->arena, const Pattern *, p->n);
  for (int i = 0; i < p->n; i++) {
    sub[i] = graph_pattern_replace(m, p->sub[i], vars);
    same = same && sub[i] == p->sub[i];
  }
  if (same) return p;
  Pattern *now = arena_copy(m->arena, p, sizeof *p);
  if (var) now->var = var;
  now->sub = sub;
  return now;
}

/* What must be rewritten before n: a match's pattern variables, then the arguments. */
static int dependencies(Arena *arena, const Node *n, const Node *const **out)
{
  *out = n->arg;
  if (n->kind != N_MATCH) return n->nargs;
  NodeList all = {0};
  for (int i = 0; i < n->u.match.n; i++) graph_pattern_vars(arena, n->u.match.clause[i], &all);
  for (int i = 0; i < n->nargs; i++) vec_push(arena, &all, n->arg[i]);
  *out = all.v;
  return all.n;
}

/* n over what the memo has for its arguments. */
static const Node *over_rewritten(Module *m, Arena *arena, const Node *n, const Map *memo)
{
  const Node **arg = arena_array(arena, const Node *, n->nargs);
  for (int i = 0; i < n->nargs; i++) arg[i] = map_get(memo, n->arg[i]);
  if (n->kind != N_MATCH) return node_with_args(m, n, arg);
  const Pattern **clause = arena_array(arena, const Pattern *, n->u.match.n);
  for (int i = 0; i < n->u.match.n; i++) clause[i] = graph_pattern_replace(m, n->u.match.clause[i], memo);
  return node_match_with(m, n, arg, clause);
}

const Node *graph_rewrite(GraphRewriter *rw, const Node *root)
{
  typedef struct {
    const Node *n;
    const Node *const *dep;
    int ndep, next;
  } Work;
  Vec(Work) stack = {0};
  if (!map_has(&rw->memo, root)) {
    const Node *const *dep;
    int n = dependencies(rw->arena, root, &dep);
    vec_push(rw->arena, &stack, (Work){root, dep, n, 0});
  }
  while (stack.n) {
    Work *top = &stack.v[stack.n - 1];
    if (top->next < top->ndep) {
      const Node *arg = top->dep[top->next++];
      if (map_has(&rw->memo, arg)) continue;
      const Node *const *dep;
      int n = dependencies(rw->arena, arg, &dep);
      vec_push(rw->arena, &stack, (Work){arg, dep, n, 0});
      continue;
    }
    const Node *old = top->n;
    const Node *now = rw->fn(rw, old, over_rewritten(rw->m, rw->arena, old, &rw->memo));
    map_put(rw->arena, &rw->memo, old, (void *)now);
    stack.n--;
  }
  return map_get(&rw->memo, root);
}

static const Node *replace_var(GraphRewriter *rw, const Node *old, const Node *now)
{
  const Node *to = old->kind == N_VAR ? map_get(rw->env, old) : NULL;
  return to ? to : now;
}

const Node *graph_substitute(Module *m, const Node *n, const Map *var_to_node)
{
  Scope s = scope_begin(m->ctx);
  GraphRewriter rw = {.m = m, .fn = replace_var, .env = (void *)(uintptr_t)var_to_node, .arena = scratch(m->ctx)};
  const Node *now = graph_rewrite(&rw, n);
  scope_end(m->ctx, s);
  return now;
}

/* ---- free variables ------------------------------------------------------------------- */

/* A variable is bound by one function, let or clause, and used only inside it; so it is
 * free in a graph exactly when nothing in the graph binds it. */
int graph_free_vars(Arena *arena, const Node *root, const Node ***out)
{
  const Node **order;
  int n = graph_post_order(arena, root, &order);
  Map bound = {0};
  NodeList free = {0};
  for (int i = 0; i < n; i++) {
    NodeList vars = {0};
    if (order[i]->kind == N_FUNC)
      for (int k = 0; k < fn_nparams(order[i]); k++) vec_push(arena, &vars, order[i]->arg[k]);
    if (order[i]->kind == N_LET) vec_push(arena, &vars, order[i]->arg[0]);
    for (int k = 0; order[i]->kind == N_MATCH && k < order[i]->u.match.n; k++)
      graph_pattern_vars(arena, order[i]->u.match.clause[k], &vars);
    for (int k = 0; k < vars.n; k++) map_put(arena, &bound, vars.v[k], (void *)vars.v[k]);
  }
  for (int i = 0; i < n; i++)
    if (order[i]->kind == N_VAR && !map_has(&bound, order[i])) vec_push(arena, &free, order[i]);
  *out = free.v;
  return free.n;
}

const Node *graph_main(Module *m)
{
  Global *g = module_get(m, "main");
  if (!g || g->kind != GLOBAL_GRAPH) raise(m->ctx, ERR_ARGUMENT, NOWHERE, "the module has no graph function @main");
  return g->func;
}
