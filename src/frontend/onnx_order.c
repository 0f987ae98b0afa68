/* onnx_order.c: the order of a graph's nodes.
 *
 * Comes in: nodes as the file has them.  ONNX demands an order in which each node comes
 * after what it takes; files exist that do not keep it.  Goes out: the same list when it
 * does, else one sorted so, otherwise in the order of the file.  A cycle is refused. */
#include "frontend/onnx_import.h"

typedef Vec(int) Ints;

typedef struct Order {
  Import *im;
  int n;
  PNode *const *node;
  StrMap maker; /* output -> its node's index + 1 */
} Order;

/* Names that bodies around define themselves. */
typedef struct Local {
  const struct Local *outer;
  StrMap names;
} Local;

static void add_need(Order *o, const Local *local, Ints *list, const char *name)
{
  for (; local; local = local->outer)
    if (strmap_get(&local->names, name)) return;
  intptr_t at = (intptr_t)strmap_get(&o->maker, name);
  if (at) vec_push(o->im->arena, list, (int)at - 1);
}

/* What nodes take: their inputs, and what their bodies take from outside. */
static void collect(Order *o, const Local *local, Ints *list, int n, PNode *const *node, int depth);

static void collect_body(Order *o, const Local *outer, Ints *list, const PGraph *g, int depth)
{
  Local local = {.outer = outer};
  Arena *a = o->im->arena;
  for (int i = 0; i < g->input.n; i++) strmap_put(a, &local.names, g->input.v[i]->name, o);
  for (int i = 0; i < g->initializer.n; i++) strmap_put(a, &local.names, g->initializer.v[i]->name, o);
  for (int i = 0; i < g->node.n; i++)
    for (int k = 0; k < g->node.v[i]->output.n; k++) strmap_put(a, &local.names, g->node.v[i]->output.v[k], o);
  collect(o, &local, list, g->node.n, g->node.v, depth);
  for (int i = 0; i < g->output.n; i++) add_need(o, &local, list, g->output.v[i]->name);
}

static void collect(Order *o, const Local *local, Ints *list, int n, PNode *const *node, int depth)
{
  if (depth > 64) raise(o->im->ctx, ERR_UNSUPPORTED, NOWHERE, "onnx: bodies nest deeper than 64");
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < node[i]->input.n; k++) add_need(o, local, list, node[i]->input.v[k]);
    for (int k = 0; k < node[i]->attribute.n; k++) {
      const PGraph *g = node[i]->attribute.v[k]->g;
      if (g) collect_body(o, local, list, g, depth + 1);
    }
  }
}

/* Depth first with a stack of our own: models may be long chains. */
static PNode *const *sort_nodes(Order *o, const Ints *needs)
{
  Arena *a = o->im->arena;
  PNode **out = arena_array(a, PNode *, o->n);
  char *state = arena_array(a, char, o->n); /* 1: on the stack, 2: out */
  int *stack = arena_array(a, int, o->n + 1);
  int *next = arena_array(a, int, o->n);
  int count = 0;
  for (int root = 0; root < o->n; root++) {
    int top = 0;
    if (state[root]) continue;
    stack[top++] = root;
    state[root] = 1;
    while (top) {
      int i = stack[top - 1];
      if (next[i] == needs[i].n) {
        state[i] = 2;
        out[count++] = o->node[i];
        top--;
        continue;
      }
      int k = needs[i].v[next[i]++];
      if (state[k] == 1)
        raise(o->im->ctx, ERR_ARGUMENT, NOWHERE,
              "onnx: the graph has a cycle: node '%s' takes what node '%s' makes, which waits for it",
              onnx_node_label(o->node[i]), onnx_node_label(o->node[k]));
      if (!state[k]) {
        state[k] = 1;
        stack[top++] = k;
      }
    }
  }
  return out;
}

PNode *const *onnx_order_nodes(Import *im, int n, PNode *const *node)
{
  Order o = {.im = im, .n = n, .node = node};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < node[i]->output.n; k++)
      if (*node[i]->output.v[k]) strmap_put(im->arena, &o.maker, node[i]->output.v[k], (void *)(intptr_t)(i + 1));
  Ints *needs = arena_array(im->arena, Ints, n + 1);
  bool sorted = true;
  for (int i = 0; i < n; i++) {
    collect(&o, NULL, &needs[i], 1, &node[i], 0);
    for (int k = 0; k < needs[i].n; k++) sorted = sorted && needs[i].v[k] < i;
  }
  return sorted ? node : sort_nodes(&o, needs);
}
