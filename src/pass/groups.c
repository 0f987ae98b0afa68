/* groups.c: from sets of calls to primitive functions.
 *
 *   relu(add(conv(x, w), b))   with the three calls in one group becomes
 *   fn (p0, p1, p2, Primitive=1) { relu(add(conv(p0, p1), p2)) }(x, w, b)
 *
 * Parameters come in the order of first use.  A scalar constant stays inside, and so do the integers from which a group
 * computes the size of what it makes; other constants are parameters unless link_params. */
#include "pass/groups.h"

#include <stdio.h>

int groups_order(Arena *arena, const Node *f, const Node ***out)
{
  typedef struct {
    const Node *n;
    int next;
  } Frame;
  Vec(Frame) stack = {0};
  Vec(const Node *) order = {0};
  Map seen = {0};
  vec_push(arena, &stack, (Frame){f, 0});
  map_put(arena, &seen, f, (void *)(uintptr_t)f);
  while (stack.n) {
    Frame *top = &stack.v[stack.n - 1];
    bool closed = top->n != f && is_primitive(top->n);
    if (closed || top->next == top->n->nargs) {
      vec_push(arena, &order, top->n);
      stack.n--;
      continue;
    }
    const Node *a = top->n->arg[top->next++];
    if (map_has(&seen, a)) continue;
    map_put(arena, &seen, a, (void *)(uintptr_t)a);
    vec_push(arena, &stack, (Frame){a, 0});
  }
  *out = order.v;
  return order.n;
}

static bool has_impl(const OpDef *op)
{
  for (int i = 0; i < impl_count(); i++)
    if (!strcmp(impl_at(i)->op, op->name)) return true;
  return false;
}

bool groups_needs_decompose(const Node *n)
{
  if (n->kind != N_CALL) return false;
  const OpDef *op = n->u.call.op;
  return op->decompose && !op->compute && !op->tir && !has_impl(op);
}

bool groups_can_hold(const Node *n)
{
  return n->kind == N_CALL && !(n->u.call.op->flags & OPF_HOST) && !groups_needs_decompose(n);
}

int groups_open_parts(const Node *n)
{
  if (!is_call(n, "concatenate") || !n->type || n->type->kind != TY_TENSOR || n->type->ndim < 1) return 0;
  int64_t axis = call_int(n, "axis");
  const Expr *size = n->type->shape[axis < 0 ? axis + n->type->ndim : axis];
  return size->kind == E_INT || n->arg[0]->kind != N_TUPLE ? 0 : n->arg[0]->nargs;
}

/* ---- extraction -------------------------------------------------------------------------- */

typedef struct Extract {
  Module *m;
  const Map *group_of;
  bool link_params;
} Extract;

/* One function while it is being made. */
typedef struct Making {
  Extract *x;
  GraphRewriter *rw;
  Map inner; /* old node -> its value inside */
  Vec(const Node *) param, arg;
  bool sizes; /* does a dimension come from what the group computes? */
} Making;

static bool computes_sizes(const Group *g)
{
  for (int i = 0; i < g->node.n; i++) {
    const Type *t = g->node.v[i]->type;
    for (int d = 0; t->kind == TY_TENSOR && d < t->ndim; d++)
      if (!type_dim_is_stable(t->shape[d])) return true;
  }
  return false;
}

static bool stays_inside(const Making *k, const Node *n)
{
  if (n->kind != N_CONST) return false;
  const ConstData *d = n->u.data;
  if (dtype_is_string(d->dtype)) return false;
  return d->ndim == 0 || k->x->link_params ||
         (k->sizes && d->dtype.code == DT_INT && const_count(d) <= GRAPH_MAX_VALUES);
}

static const Node *value_inside(Making *k, const Node *old)
{
  const Node *now = map_get(&k->inner, old);
  Arena *tmp = scratch(k->x->m->ctx);
  if (now) return now;
  if (old->kind == N_TUPLE) {
    const Node **field = arena_array(tmp, const Node *, old->nargs + 1);
    for (int i = 0; i < old->nargs; i++) field[i] = value_inside(k, old->arg[i]);
    now = node_tuple(k->x->m, old->nargs, field);
  } else {
    const Node *outside = map_get(&k->rw->memo, old);
    if (stays_inside(k, outside)) {
      now = outside;
    } else {
      for (int i = 0; i < k->arg.n && !now; i++)
        if (k->arg.v[i] == outside) now = k->param.v[i];
      if (!now) {
        char name[24];
        snprintf(name, sizeof name, "p%d", k->param.n);
        now = node_var(k->x->m, name, outside->type);
        vec_push(tmp, &k->param, now);
        vec_push(tmp, &k->arg, outside);
      }
    }
  }
  map_put(tmp, &k->inner, old, (void *)(uintptr_t)now);
  return now;
}

static const Node *make_group(Extract *x, GraphRewriter *rw, const Group *g)
{
  Making k = {.x = x, .rw = rw, .sizes = computes_sizes(g)};
  Arena *tmp = scratch(x->m->ctx);
  const Node *body = NULL;
  for (int i = 0; i < g->node.n; i++) {
    const Node *old = g->node.v[i];
    const Node **arg = arena_array(tmp, const Node *, old->nargs + 1);
    for (int a = 0; a < old->nargs; a++) arg[a] = value_inside(&k, old->arg[a]);
    body = node_with_args(x->m, old, arg);
    map_put(tmp, &k.inner, old, (void *)(uintptr_t)body);
  }
  Annots attrs = primitive_attrs(x->m);
  return node_apply(x->m, node_func(x->m, k.param.n, k.param.v, body, NULL, &attrs), k.arg.n, k.arg.v);
}

static const Node *extract_node(GraphRewriter *rw, const Node *old, const Node *now)
{
  Extract *x = rw->env;
  const Group *g = map_get(x->group_of, old);
  return g ? make_group(x, rw, g) : now;
}

const Node *groups_extract(Module *m, const Node *f, const Map *group_of, bool link_params)
{
  Extract x = {m, group_of, link_params};
  GraphRewriter rw = {.m = m, .fn = extract_node, .env = &x, .arena = scratch(m->ctx)};
  /* primitive functions that are there already stay as they are */
  const Node **order;
  int n = groups_order(rw.arena, f, &order);
  for (int i = 0; i < n; i++)
    if (order[i] != f && is_primitive(order[i])) map_put(rw.arena, &rw.memo, order[i], (void *)(uintptr_t)order[i]);
  return graph_rewrite(&rw, f);
}
