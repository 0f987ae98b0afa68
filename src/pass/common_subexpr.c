/* common_subexpr.c: EliminateCommonSubexpr: equal pure computations are made once.
 *   needs   types
 *   keeps   types
 *   breaks  nothing
 *
 * Two nodes are equal when they have the same operator, attributes and, after rewriting, the very same
 * arguments.  Sharing a node of two branches moves it in front of them; so calls are
 * shared only inside one region: the parts of branches and functions are met under different keys. */
#include "pass/passes.h"
#include "pass/tools.h"

typedef struct Bucket {
  const Node *node;
  struct Bucket *next;
} Bucket;
typedef struct Cse {
  Map table;  /* hash -> Bucket* */
  Map region; /* old node -> the branch or function that it lies in */
} Cse;

static uint64_t node_hash(const Node *n)
{
  uint64_t h = hash_mix(n->kind, (uint64_t)n->nargs);
  for (int i = 0; i < n->nargs; i++) h = hash_mix(h, (uintptr_t)n->arg[i]);
  if (n->kind == N_GET) h = hash_mix(h, (uint64_t)n->u.index);
  if (n->kind == N_CALL) {
    h = hash_mix(h, (uintptr_t)n->u.call.op);
    if (n->u.call.op->attrs) h = hash_mix(h, attrs_hash(n->u.call.op->attrs, n->u.call.attrs));
  }
  if (n->kind == N_CONST) h = hash_mix(h, hash_bytes(n->u.data->data, n->u.data->bytes, 0));
  return h;
}

static bool node_same(const Node *a, const Node *b)
{
  if (a->kind != b->kind || a->nargs != b->nargs) return false;
  for (int i = 0; i < a->nargs; i++)
    if (a->arg[i] != b->arg[i]) return false;
  if (a->kind == N_GET) return a->u.index == b->u.index;
  if (a->kind == N_CONST) {
    const ConstData *x = a->u.data;
    const ConstData *y = b->u.data;
    return type_equal(a->type, b->type) && (x->data == y->data || !memcmp(x->data, y->data, x->bytes));
  }
  if (a->kind != N_CALL) return true;
  const AttrsDef *def = a->u.call.op->attrs;
  return a->u.call.op == b->u.call.op && node_same_plan(a, b) &&
         (!def || attrs_equal(def, a->u.call.attrs, b->u.call.attrs));
}

static bool can_share(const Node *n)
{
  /* large ones are rarely equal, and reading them takes long */
  if (n->kind == N_CONST) return n->u.data->bytes <= 4096;
  return n->kind == N_TUPLE || n->kind == N_GET || (n->kind == N_CALL && !(n->u.call.op->flags & OPF_IMPURE));
}

static const Node *share(GraphRewriter *rw, const Node *old, const Node *now)
{
  Cse *c = rw->env;
  if (!can_share(now)) return now;
  const void *region = now->kind == N_CONST ? NULL : map_get(&c->region, old);
  uint64_t h = hash_mix(node_hash(now), (uintptr_t)region) | 1;
  Bucket *head = map_get(&c->table, (void *)h);
  for (Bucket *b = head; b; b = b->next)
    if (node_same(b->node, now)) return b->node;
  Bucket *b = arena_new_of(rw->arena, Bucket);
  *b = (Bucket){now, head};
  map_put(rw->arena, &c->table, (void *)h, b);
  return now;
}

static const void *joined(const Map *parent, const Map *depth, const void *a, const void *b)
{
  while (a != b) {
    const void **deep = (intptr_t)map_get(depth, a) < (intptr_t)map_get(depth, b) ? &b : &a;
    *deep = map_get(parent, *deep);
  }
  return a;
}

/* The innermost branch or function body that holds all uses of a node. */
static void find_regions(Arena *arena, Cse *c, const Node *f)
{
  const Node **order;
  int n = graph_post_order(arena, f, &order);
  Map parent = {0};
  Map depth = {0};
  map_put(arena, &c->region, f, (void *)(uintptr_t)f);
  map_put(arena, &depth, f, (void *)(intptr_t)1);
  for (int i = n - 1; i >= 0; i--) {
    const Node *node = order[i];
    const void *here = map_get(&c->region, node);
    for (int k = 0; k < node->nargs; k++) {
      const void *use = here;
      bool opens = (node->kind == N_FUNC && node != f && k == node->nargs - 1) ||
                   ((node->kind == N_IF || node->kind == N_MATCH) && k > 0);
      if (opens) {
        use = (const char *)node + k;
        map_put(arena, &parent, use, (void *)(uintptr_t)here);
        map_put(arena, &depth, use, (void *)((intptr_t)map_get(&depth, here) + 1));
      }
      const void *old = map_get(&c->region, node->arg[k]);
      map_put(arena, &c->region, node->arg[k], (void *)(uintptr_t)(old ? joined(&parent, &depth, old, use) : use));
    }
  }
}

const Node *pass_common_subexpr(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  Cse c = {0};
  find_regions(scratch(m->ctx), &c, f);
  return rewrite(m, f, share, &c);
}
