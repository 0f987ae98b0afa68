/* fuse_ops.c: FuseOps, DefuseOps and WrapCalls.
 *
 * FuseOps: operators that can share a kernel become one primitive function.
 *   needs   types; what must be decomposed has been
 *   keeps   types, names, sharing
 *   breaks  nothing; what is in a primitive function already is left alone
 *
 * A value is merged with its immediate post-dominator: the first node that all its uses
 * lead to, so that nothing inside a group is needed outside.  Every edge has a kind (how the
 * user reads the value); what may be merged is decided by the kinds between the two:
 *   anchor (convolution, product, reduction)   joins element-wise and broadcast users that keep its
 *                                              shape, residual additions included; one anchor a group
 *   element-wise, broadcast                    join such users, injective ones, reductions, and
 *                                              groups that have an anchor as part of its epilogue
 *   injective                                  join injective ones, in a second round
 *   opaque                                     stay alone
 * A kernel concatenates at most GROUPS_MAX_OPEN tensors of sizes known only at run time.
 * A value that many elements of its user read (broadcast, gathered) and that is dear to compute stays apart.
 * Functions, branches, lets and tuples that leave are opaque users, so that no group
 * reaches across the border of a region.  A value whose elements say a size at run time is
 * computed by itself: the executor reads it before the kernels that have that size; the first
 * value of such a size is the end of its group.
 *
 * Views (reshape and the like) cost nothing alone: at the rim of a group they are cut off.  On microcontrollers groups
 * are cut where what goes from one to the next is narrowest. */
#include "pass/groups.h"
#include "pass/passes.h"

const PassOption pass_fuse_ops_options[] = {
  {PO_INT, "fuse_opt_level", "-1", "0: nothing is fused; -1: as the context's level says"},
};

typedef struct Edge {
  int to;
  FuseKind kind;
} Edge;

/* One node of the graph with its place in the post-dominator tree and its group. */
typedef struct Item {
  const Node *node;
  FuseKind kind;
  bool call;        /* can be in a group */
  bool materialize; /* its value must exist outside of kernels */
  Vec(Edge) out;
  int parent, depth; /* post-dominator; parent -1: none */
  FuseKind path;     /* the heaviest edge on the way to it */
  /* group: union-find towards the root, which holds the kind and size of all */
  int up, size, open; /* open: groups_open_parts of all */
  FuseKind group_kind;
  bool anchored;
} Item;

typedef struct Fuse {
  Module *m;
  Arena *arena;
  Item *item;
  int n;
  Map index; /* node -> index + 1 */
  int max_depth;
  int *seen, stamp; /* of the walks over paths */
} Fuse;

static int index_of(const Fuse *fu, const Node *n) { return (int)(intptr_t)map_get(&fu->index, n) - 1; }
static bool light(FuseKind k) { return k <= FUSE_BROADCAST; }
static bool is_anchor(FuseKind k) { return k == FUSE_OUT_ELEMWISE || k == FUSE_COMM_REDUCE; }

/* ---- the graph of uses ---------------------------------------------------------------- */

static bool same_shape(const Type *a, const Type *b)
{
  if (a->kind != TY_TENSOR || b->kind != TY_TENSOR || a->ndim != b->ndim || a->ndim < 0) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i] && !(a->shape[i]->kind == E_INT && expr_is_int(b->shape[i], a->shape[i]->u.i)))
      return false;
  return true;
}

static void add_edge(Fuse *fu, const Node *from, int to, FuseKind kind)
{
  int i = index_of(fu, from);
  if (i >= 0) vec_push(fu->arena, &fu->item[i].out, (Edge){to, kind});
}

static void add_call_edges(Fuse *fu, int at)
{
  const Node *n = fu->item[at].node;
  for (int i = 0; i < n->nargs; i++) {
    const Node *a = n->arg[i];
    bool spread = a->kind == N_TUPLE;
    for (int k = 0; k < (spread ? a->nargs : 1); k++) {
      const Node *from = spread ? a->arg[k] : a;
      FuseKind kind = fu->item[at].kind;
      if (kind == FUSE_BROADCAST && from->type && same_shape(from->type, n->type)) kind = FUSE_ELEMWISE;
      add_edge(fu, from, at, kind);
    }
  }
}

/* Tuples that only calls read are looked through; any other use makes the fields leave. */
static bool tuple_leaves(const Uses *u, const Map *by_calls, const Node *t)
{
  return uses_get(u, t) != (int)(intptr_t)map_get(by_calls, t);
}

static bool all_tensors(const Type *ty)
{
  if (!ty) return false;
  if (ty->kind == TY_TENSOR) return ty->ndim >= 0;
  if (ty->kind != TY_TUPLE) return false;
  for (int i = 0; i < ty->nfield; i++)
    if (!all_tensors(ty->field[i])) return false;
  return true;
}

static void mark_sources(Fuse *fu, const Type *ty)
{
  for (int i = 0; i < ty->nfield; i++) mark_sources(fu, ty->field[i]);
  for (int i = 0; i < ty->ndim; i++) {
    const Var **vars;
    int n = expr_free_vars(fu->arena, ty->shape[i], &vars);
    for (int k = 0; k < n; k++) {
      const Node *source;
      int element, at;
      if (graph_value_source(fu->m, vars[k], &source, &element) && (at = index_of(fu, source)) >= 0)
        fu->item[at].materialize = true;
    }
  }
}

static bool has_dim(const Type *ty, const Expr *dim)
{
  for (int i = 0; i < ty->nfield; i++)
    if (has_dim(ty->field[i], dim)) return true;
  for (int i = 0; i < ty->ndim; i++)
    if (ty->shape[i] == dim) return true;
  return false;
}

/* Has the call a size that its operands' elements say?  What reads it is a kernel of its own,
 * which finds that size on its operand and need not compute it again. */
static bool sized_by_values(Fuse *fu, const Node *n)
{
  for (int d = 0; n->kind == N_CALL && n->type && n->type->kind == TY_TENSOR && d < n->type->ndim; d++) {
    const Expr *dim = n->type->shape[d];
    const Node *source;
    const Var **vars;
    int element;
    int nvars = expr_free_vars(fu->arena, dim, &vars);
    bool given = false;
    bool by_value = false;
    for (int i = 0; i < n->nargs && !given; i++) given = has_dim(n->arg[i]->type, dim);
    for (int k = 0; k < nvars && !by_value; k++) by_value = graph_value_source(fu->m, vars[k], &source, &element);
    if (by_value && !given) return true;
  }
  return false;
}

static void build_graph(Fuse *fu, const Node *f)
{
  const Node **order;
  fu->n = groups_order(fu->arena, f, &order);
  fu->item = arena_array(fu->arena, Item, fu->n);
  fu->seen = arena_array(fu->arena, int, fu->n);
  Uses uses = {0};
  Map by_calls = {0};
  for (int i = 0; i < fu->n; i++) {
    const Node *n = order[i];
    Item *it = &fu->item[i];
    *it = (Item){.node = n, .kind = FUSE_OPAQUE, .parent = -1, .up = i, .size = 1};
    it->call = groups_can_hold(n) && all_tensors(n->type);
    if (it->call && !(n->u.call.op->flags & OPF_IMPURE)) it->kind = n->u.call.op->fuse;
    it->group_kind = it->kind;
    it->open = groups_open_parts(n);
    it->anchored = is_anchor(it->kind);
    map_put(fu->arena, &fu->index, n, (void *)(intptr_t)(i + 1));
    if (n != f && is_primitive(n)) continue;
    for (int k = 0; k < n->nargs; k++) {
      map_put(fu->arena, &uses.count, n->arg[k], (void *)((intptr_t)map_get(&uses.count, n->arg[k]) + 1));
      if (it->call && n->arg[k]->kind == N_TUPLE)
        map_put(fu->arena, &by_calls, n->arg[k], (void *)((intptr_t)map_get(&by_calls, n->arg[k]) + 1));
    }
  }
  for (int i = 0; i < fu->n; i++) {
    const Node *n = order[i];
    if (n->type) mark_sources(fu, n->type);
    if (fu->item[i].call && sized_by_values(fu, n)) fu->item[i].materialize = true;
    if (n != f && is_primitive(n)) continue;
    if (fu->item[i].call) add_call_edges(fu, i);
    else if (n->kind != N_TUPLE || tuple_leaves(&uses, &by_calls, n))
      for (int k = 0; k < n->nargs; k++) add_edge(fu, n->arg[k], i, FUSE_OPAQUE);
  }
}

/* ---- post-dominators --------------------------------------------------------------------- */

static FuseKind heavier(FuseKind a, FuseKind b) { return a > b ? a : b; }

/* The nearest node that both a and b always lead to, and the heaviest edge on the way. */
static int common_parent(const Fuse *fu, int a, int b, FuseKind *kind)
{
  while (a != b && a >= 0 && b >= 0) {
    int *up = fu->item[a].depth < fu->item[b].depth ? &b : &a;
    *kind = heavier(*kind, fu->item[*up].path);
    *up = fu->item[*up].parent;
  }
  return a == b ? a : -1;
}

static void build_tree(Fuse *fu)
{
  for (int i = fu->n - 1; i >= 0; i--) {
    Item *it = &fu->item[i];
    FuseKind kind = FUSE_ELEMWISE;
    int parent = it->out.n ? it->out.v[0].to : -1;
    for (int k = 0; k < it->out.n; k++) {
      kind = heavier(kind, it->out.v[k].kind);
      if (k) parent = parent < 0 ? -1 : common_parent(fu, parent, it->out.v[k].to, &kind);
    }
    it->parent = parent;
    it->path = parent < 0 ? FUSE_OPAQUE : kind;
    it->depth = parent < 0 ? 1 : fu->item[parent].depth + 1;
  }
}

/* ---- merging -------------------------------------------------------------------------------- */

static int root_of(Fuse *fu, int i)
{
  int r = i;
  while (fu->item[r].up != r) r = fu->item[r].up;
  while (fu->item[i].up != r) {
    int next = fu->item[i].up;
    fu->item[i].up = r;
    i = next;
  }
  return r;
}

typedef bool (*KindTest)(FuseKind, bool is_sink);
static bool test_light(FuseKind k, bool sink)
{
  (void)sink;
  return light(k);
}
static bool test_light_way(FuseKind k, bool sink) { return k <= FUSE_INJECTIVE || (sink && is_anchor(k)); }
static bool test_injective(FuseKind k, bool sink)
{
  (void)sink;
  return k <= FUSE_INJECTIVE;
}

/* Every node between from and sink (from left out): does its group pass the test?  The nodes met are
 * collected.  Values that must exist outside end no path inside. */
typedef Vec(int) IntList;
static bool walk_paths(Fuse *fu, int from, int sink, KindTest test, IntList *met)
{
  IntList stack = {0};
  fu->stamp++;
  vec_push(fu->arena, &stack, from);
  while (stack.n) {
    int i = stack.v[--stack.n];
    for (int k = 0; k < fu->item[i].out.n; k++) {
      int to = fu->item[i].out.v[k].to;
      if (fu->seen[to] == fu->stamp) continue;
      fu->seen[to] = fu->stamp;
      if (!fu->item[to].call || !test(fu->item[root_of(fu, to)].group_kind, to == sink)) return false;
      vec_push(fu->arena, met, to);
      if (to == sink) continue;
      if (fu->item[to].materialize) return false;
      vec_push(fu->arena, &stack, to);
    }
  }
  return true;
}

static void merge(Fuse *fu, int child, int into)
{
  child = root_of(fu, child);
  into = root_of(fu, into);
  if (child == into) return;
  Item *c = &fu->item[child];
  Item *p = &fu->item[into];
  c->up = into;
  p->size += c->size;
  p->open += c->open;
  if (c->anchored) {
    p->anchored = true;
    p->group_kind = heavier(c->group_kind, p->group_kind);
  }
}

static int merged_size(Fuse *fu, int from, int sink, const IntList *met)
{
  int size = fu->item[root_of(fu, from)].size + fu->item[root_of(fu, sink)].size;
  for (int i = 0; i < met->n; i++)
    if (root_of(fu, met->v[i]) != root_of(fu, sink)) size++;
  return size;
}

/* Tensors of open sizes that the group of all of them would concatenate. */
static int merged_open(Fuse *fu, int from, int sink, const IntList *met)
{
  int open = 0;
  fu->stamp++;
  for (int i = -2; i < met->n; i++) {
    int root = root_of(fu, i == -2 ? from : i == -1 ? sink : met->v[i]);
    if (fu->seen[root] != fu->stamp) open += fu->item[root].open;
    fu->seen[root] = fu->stamp;
  }
  return open;
}

static bool one_anchor(Fuse *fu, int from, const IntList *met)
{
  int root = root_of(fu, from);
  int other = fu->item[root].anchored ? root : -1;
  for (int i = 0; i < met->n; i++) {
    int r = root_of(fu, met->v[i]);
    if (!fu->item[r].anchored || r == other) continue;
    if (other >= 0) return false;
    other = r;
  }
  return true;
}

static void try_merge(Fuse *fu, int i, KindTest test)
{
  IntList met = {0};
  int sink = fu->item[i].parent;
  if (root_of(fu, i) == root_of(fu, sink) || !walk_paths(fu, i, sink, test, &met)) return;
  if (!one_anchor(fu, i, &met) || merged_size(fu, i, sink, &met) > fu->max_depth) return;
  if (merged_open(fu, i, sink, &met) > GROUPS_MAX_OPEN) return;
  for (int k = 0; k < met.n; k++) merge(fu, met.v[k], sink);
  merge(fu, i, sink);
}

enum { MAX_REPEATS = 4 };

/* Would merging i into its post-dominator compute a dear value over and over? */
static bool repeats_work(Fuse *fu, int i)
{
  const Item *it = &fu->item[i];
  double own = type_known_elements(it->node->type);
  double all = type_known_elements(fu->item[it->parent].node->type);
  if (it->path == FUSE_ELEMWISE || own <= 0 || all <= own * MAX_REPEATS) return false;
  int root = root_of(fu, i);
  for (int k = 0; k <= i; k++)
    if (fu->item[k].call && root_of(fu, k) == root && (fu->item[k].node->u.call.op->flags & OPF_DEAR)) return true;
  return false;
}

static void run_phase(Fuse *fu, int phase)
{
  for (int i = 0; i < fu->n; i++) {
    const Item *it = &fu->item[i];
    if (!it->call || it->kind == FUSE_OPAQUE || it->parent < 0 || it->materialize || !fu->item[it->parent].call ||
        repeats_work(fu, i))
      continue;
    FuseKind group = it->group_kind;
    if (is_anchor(group)) {
      if (phase == 0 && it->path == FUSE_ELEMWISE) try_merge(fu, i, test_light);
    } else if (light(group)) {
      if (it->path <= FUSE_INJECTIVE || it->path == FUSE_COMM_REDUCE) try_merge(fu, i, test_light_way);
    } else if (group == FUSE_INJECTIVE && phase == 1) {
      if (it->path <= FUSE_INJECTIVE) try_merge(fu, i, test_injective);
    }
  }
}

/* ---- views at the rim --------------------------------------------------------------------- */

static bool is_view(const Node *n) { return n->kind == N_CALL && (n->u.call.op->flags & OPF_VIEW); }

typedef Vec(int) Members;

static bool feeds_from(Fuse *fu, const int *group, int member, int g)
{
  const Node *n = fu->item[member].node;
  for (int i = 0; i < n->nargs; i++) {
    const Node *a = n->arg[i];
    bool spread = a->kind == N_TUPLE;
    for (int k = 0; k < (spread ? a->nargs : 1); k++) {
      int at = index_of(fu, spread ? a->arg[k] : a);
      if (at >= 0 && group[at] == g) return true;
    }
  }
  return false;
}

/* group[i]: the root's index.  Views whose operands all come from outside get a group of
 * their own, and so does a view that is the root. */
static void cut_views(Fuse *fu, int *group)
{
  for (int i = 0; i < fu->n; i++)
    if (fu->item[i].call && is_view(fu->item[i].node) && group[i] != i && !feeds_from(fu, group, i, group[i]))
      group[i] = i;
  for (int i = fu->n - 1; i >= 0; i--) {
    if (!fu->item[i].call || group[i] != i || !is_view(fu->item[i].node)) continue;
    const Node *view = fu->item[i].node;
    int first = index_of(fu, view->arg[0]);
    bool others = false;
    for (int k = 1; k < view->nargs; k++) {
      int at = index_of(fu, view->arg[k]);
      others = others || (at >= 0 && group[at] == i);
    }
    if (first < 0 || group[first] != i || others) continue;
    for (int k = 0; k < i; k++)
      if (group[k] == i) group[k] = first;
  }
}

/* ---- waists ------------------------------------------------------------------------------- */

static double value_bytes(const Node *n)
{
  return n->type && n->type->kind == TY_TENSOR ? type_known_elements(n->type) * dtype_bytes(n->type->dtype) : 0;
}

/* The one member of the group that feeds the node, -1: none does, or several do. */
static int only_feed(Fuse *fu, const int *group, int i)
{
  const Node *n = fu->item[i].node;
  int found = -1;
  for (int k = 0; k < n->nargs; k++) {
    int at = index_of(fu, n->arg[k]);
    if (n->arg[k]->kind == N_TUPLE || (at >= 0 && group[at] == group[i] && found >= 0 && found != at)) return -1;
    if (at >= 0 && group[at] == group[i]) found = at;
  }
  return found;
}

/* May elementwise operators before it be in its kernel?  Behind an anchor they may, and a pool's windows read them. */
static bool takes_tail(const Fuse *fu, int user, const Node *tail)
{
  const Item *it = &fu->item[user];
  if (!it->call || it->kind == FUSE_OPAQUE) return false;
  return (light(it->kind) && same_shape(it->node->type, tail->type)) ||
         str_starts(it->node->u.call.op->name, "nn.avg_pool");
}

/* Of a group whose anchor's result becomes narrow (int8) and then wide again (int32, for the next operator), the wide
 * end goes to the kernel that reads it: what lies in memory between the two is narrow.  For targets where memory is
 * what is short. */
static void cut_at_waists(Fuse *fu, int *group)
{
  for (int root = 0; root < fu->n; root++) {
    Item *it = &fu->item[root];
    if (!it->call || group[root] != root || !it->anchored || it->out.n != 1) continue;
    int user = it->out.v[0].to;
    int waist = root;
    IntList tail = {0};
    while (waist >= 0 && light(fu->item[waist].kind) && value_bytes(fu->item[waist].node) >= value_bytes(it->node)) {
      vec_push(fu->arena, &tail, waist);
      waist = only_feed(fu, group, waist);
    }
    if (waist < 0 || waist == root || !light(fu->item[waist].kind) || fu->item[waist].out.n != 1 ||
        value_bytes(fu->item[waist].node) <= 0 || !takes_tail(fu, user, it->node))
      continue;
    for (int i = 0; i < fu->n; i++)
      if (group[i] == root) group[i] = waist;
    for (int i = 0; i < tail.n; i++) group[tail.v[i]] = group[user];
  }
}

static const Node *extract(Fuse *fu, const Node *f, const int *group, bool link_params)
{
  Map group_of = {0};
  for (int i = 0; i < fu->n; i++) {
    if (!fu->item[i].call) continue;
    const Node *root = fu->item[group[i]].node;
    Group *g = map_get(&group_of, root);
    if (!g) map_put(fu->arena, &group_of, root, g = arena_new_of(fu->arena, Group));
    vec_push(fu->arena, &g->node, fu->item[i].node);
  }
  return groups_extract(fu->m, f, &group_of, link_params);
}

const Node *pass_fuse_ops(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name;
  if (is_primitive(f)) return f;
  int64_t level = pass_option_int(env, pass_fuse_ops_options, 0);
  if (level < 0) level = pc->opt_level;
  Fuse fu = {.m = m, .arena = scratch(m->ctx), .max_depth = (int)pass_config_int(pc, "relay.FuseOps.max_depth")};
  if (fu.max_depth < 1)
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "relay.FuseOps.max_depth is %d; it is at least 1", fu.max_depth);
  build_graph(&fu, f);
  if (level > 0) {
    build_tree(&fu);
    run_phase(&fu, 0);
    run_phase(&fu, 1);
  }
  int *group = arena_array(fu.arena, int, fu.n);
  for (int i = 0; i < fu.n; i++) group[i] = root_of(&fu, i);
  if (level > 0 && pc->target && pc->target->device.kind == DEVICE_MICRO) cut_at_waists(&fu, group);
  cut_views(&fu, group);
  return extract(&fu, f, group, pass_config_int(pc, "relay.FuseOps.link_params"));
}

/* ---- WrapCalls, DefuseOps ------------------------------------------------------------------- */

const Node *pass_wrap_calls(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)name, (void)env;
  if (is_primitive(f)) return f;
  Fuse fu = {.m = m, .arena = scratch(m->ctx)};
  build_graph(&fu, f);
  int *group = arena_array(fu.arena, int, fu.n);
  for (int i = 0; i < fu.n; i++) group[i] = i;
  return extract(&fu, f, group, pass_config_int(pc, "relay.FuseOps.link_params"));
}

static const Node *defuse(GraphRewriter *rw, const Node *old, const Node *now)
{
  (void)old;
  if (now->kind != N_APPLY || !is_primitive(now->arg[0])) return now;
  Map vars = {0};
  const Node *f = now->arg[0];
  for (int i = 0; i < fn_nparams(f); i++) map_put(rw->arena, &vars, f->arg[i], (void *)(uintptr_t)now->arg[1 + i]);
  return graph_substitute(rw->m, fn_body(f), &vars);
}

const Node *pass_defuse_ops(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return is_primitive(f) ? f : rewrite(m, f, defuse, NULL);
}
