/* normal_form.c: ToANormalForm and ToGraphNormalForm.
 *
 * A-normal form: every intermediate value of a region has a let of its own, in the order of
 * computation; a value that several regions read is bound where all of them see it.
 * Graph normal form: lets of values without effects become sharing; lets of calls with effects stay,
 * so that their order does. */
#include "pass/passes.h"
#include "pass/tools.h"

/* ---- ToGraphNormalForm --------------------------------------------------------------------- */

static bool is_effect(const Node *n)
{
  return n->kind == N_CALL_TIR || (n->kind == N_CALL && (n->u.call.op->flags & OPF_IMPURE)) ||
         (n->kind == N_APPLY && n->arg[0]->kind != N_FUNC && n->arg[0]->kind != N_CTOR);
}

static void find_effects(Arena *arena, Map *effect, const Node *f)
{
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  for (int i = 0; i < n; i++) {
    bool e = is_effect(order[i]);
    for (int k = 0; k < order[i]->nargs; k++) e = e || map_has(effect, order[i]->arg[k]);
    if (e) map_put(arena, effect, order[i], (void *)(uintptr_t)order[i]);
  }
}

/* What stands for a node: for the variable of a pure let, what stands for its value. */
static const Node *stands_for(const Map *now, const Map *value, const Node *n)
{
  for (const Node *v; n->kind == N_VAR && (v = map_get(value, n));) n = v;
  return map_get(now, n);
}

const Node *pass_to_graph_normal_form(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  Arena *arena = scratch(m->ctx);
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  Map effect = {0};
  Map value = {0};
  Map now = {0};
  find_effects(arena, &effect, f);
  for (int i = 0; i < n; i++)
    if (order[i]->kind == N_LET && !map_has(&effect, order[i]->arg[1]) && order[i]->arg[1]->kind != N_FUNC)
      map_put(arena, &value, order[i]->arg[0], (void *)(uintptr_t)order[i]->arg[1]);
  if (!value.n) return f;
  /* a let's value comes before its body, which is where the variable is read */
  for (int i = 0; i < n; i++) {
    const Node *node = order[i];
    const Node *then;
    if (node->kind == N_LET && map_has(&value, node->arg[0])) {
      then = stands_for(&now, &value, node->arg[2]);
    } else {
      const Node **arg = arena_array(arena, const Node *, node->nargs + 1);
      for (int k = 0; k < node->nargs; k++) arg[k] = stands_for(&now, &value, node->arg[k]);
      then = node_with_args(m, node, arg);
    }
    map_put(arena, &now, node, (void *)(uintptr_t)then);
  }
  return map_get(&now, f);
}

/* ---- ToANormalForm ----------------------------------------------------------------------------- */

/* A region: the body of a function, a branch, a clause. */
typedef struct Scoped {
  int parent, depth;
  Vec(const Node *) node; /* bound here, arguments first */
} Scoped;

typedef struct Anf {
  Module *m;
  Arena *arena;
  Vec(Scoped) region;
  Map of;    /* node -> region + 1 */
  Map inner; /* body of a region as (owner, slot) -> region + 1 */
  Map lets;  /* value -> list of variables bound to it */
  Map atom;  /* old node -> what stands for it */
  int count;
} Anf;
typedef Vec(const Node *) VarList;

static bool is_atom(const Node *n)
{
  return n->kind == N_VAR || n->kind == N_CONST || n->kind == N_GLOBAL || n->kind == N_CTOR || n->kind == N_OP;
}

static bool opens_region(const Node *n, int slot)
{
  return (n->kind == N_FUNC && slot == n->nargs - 1) || (n->kind == N_IF && slot > 0) ||
         (n->kind == N_MATCH && slot > 0);
}

static const void *slot_key(const Node *n, int slot) { return (const char *)n + slot; }

static int common_region(const Anf *a, int x, int y)
{
  while (x != y) {
    int *deep = a->region.v[x].depth < a->region.v[y].depth ? &y : &x;
    *deep = a->region.v[*deep].parent;
  }
  return x;
}

static int new_region(Anf *a, int parent)
{
  vec_push(a->arena, &a->region, (Scoped){.parent = parent, .depth = parent < 0 ? 0 : a->region.v[parent].depth + 1});
  return a->region.n - 1;
}

/* Where each node is bound: the innermost region that holds all its uses. */
static void place_nodes(Anf *a, int n, const Node *const *order)
{
  for (int i = n - 1; i >= 0; i--) {
    const Node *node = order[i];
    int here = i == n - 1 ? new_region(a, -1) : (int)(intptr_t)map_get(&a->of, node) - 1;
    if (i == n - 1) map_put(a->arena, &a->of, node, (void *)(intptr_t)(here + 1));
    for (int k = 0; k < node->nargs; k++) {
      int use = here;
      if (opens_region(node, k) && !(node->kind == N_FUNC && is_primitive(node))) {
        use = new_region(a, here);
        map_put(a->arena, &a->inner, slot_key(node, k), (void *)(intptr_t)(use + 1));
      }
      int old = (int)(intptr_t)map_get(&a->of, node->arg[k]) - 1;
      map_put(a->arena, &a->of, node->arg[k], (void *)(intptr_t)((old < 0 ? use : common_region(a, old, use)) + 1));
    }
    if (node->kind != N_LET) continue;
    VarList *list = map_get(&a->lets, node->arg[1]);
    if (!list) map_put(a->arena, &a->lets, node->arg[1], list = arena_new_of(a->arena, VarList));
    vec_push(a->arena, list, node->arg[0]);
  }
  for (int i = 0; i < n; i++)
    vec_push(a->arena, &a->region.v[(int)(intptr_t)map_get(&a->of, order[i]) - 1].node, order[i]);
}

static const Node *build_region(Anf *a, int region, const Node *body, int depth);

static const Node *over_atoms(Anf *a, const Node *n, int depth)
{
  const Node **arg = arena_array(a->arena, const Node *, n->nargs + 1);
  for (int k = 0; k < n->nargs; k++) {
    int inner = (int)(intptr_t)map_get(&a->inner, slot_key(n, k)) - 1;
    arg[k] =
        inner >= 0 && opens_region(n, k) ? build_region(a, inner, n->arg[k], depth + 1) : map_get(&a->atom, n->arg[k]);
    if (!arg[k]) arg[k] = n->arg[k];
  }
  return node_with_args(a->m, n, arg);
}

static const Node *build_region(Anf *a, int region, const Node *body, int depth)
{
  typedef struct {
    const Node *var, *value;
  } Bind;
  Vec(Bind) bind = {0};
  if (depth > 200)
    raise(a->m->ctx, ERR_UNSUPPORTED, NOWHERE, "ToANormalForm: branches and functions are nested more than 200 deep");
  for (int i = 0; i < a->region.v[region].node.n; i++) {
    const Node *n = a->region.v[region].node.v[i];
    const Node *now;
    if (is_atom(n)) now = n;
    else if (n->kind == N_LET) now = map_get(&a->atom, n->arg[2]);
    else {
      const Node *value = n->kind == N_FUNC && is_primitive(n) ? n : over_atoms(a, n, depth);
      now = value;
      if (!(n->kind == N_FUNC && is_primitive(n))) {
        now = node_var(a->m, arena_printf(a->arena, "x%d", a->count++), value->type);
        vec_push(a->arena, &bind, (Bind){now, value});
      }
    }
    map_put(a->arena, &a->atom, n, (void *)(uintptr_t)now);
    const VarList *vars = map_get(&a->lets, n);
    for (int k = 0; vars && k < vars->n; k++) vec_push(a->arena, &bind, (Bind){vars->v[k], now});
  }
  const Node *result = map_get(&a->atom, body);
  for (int i = bind.n - 1; i >= 0; i--) result = node_let(a->m, bind.v[i].var, bind.v[i].value, result);
  return result;
}

const Node *pass_to_a_normal_form(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  if (is_primitive(f)) return f;
  Anf a = {.m = m, .arena = scratch(m->ctx)};
  const Node **order;
  const Node *body = fn_body(f);
  int n = graph_post_order(a.arena, body, &order);
  place_nodes(&a, n, order);
  return with_body(m, f, build_region(&a, 0, body, 0));
}
