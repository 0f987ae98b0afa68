/* regions.c: regions between annotation.compiler_begin and compiler_end: MergeCompilerRegions and PartitionGraph.
 *
 * A region is what lies between its ends and its begins: nodes that an end reaches without passing a begin, those of
 * two ends together where they share a node.  The begins belong to it, the ends do not.
 *
 * MergeCompilerRegions: two regions of one compiler, of which one reads the other, become one, unless a third node
 * would then stand both before and behind it.
 *   needs   types          keeps   types          breaks  nothing
 *
 * PartitionGraph: each region that an external compiler has becomes a function of the module, called by name:
 *   def @tvmgen_MODULE_COMPILER_FUNCTION_0(%COMPILER_0_i0, …, Primitive=1, Inline=1, Compiler="…", global_symbol="…")
 * Constants that only go into the region stay in it, if bind_constants says so.  Marks of "default" go.
 *   needs   types          keeps   types          breaks  nothing */
#include "pass/groups.h"
#include "pass/passes.h"
#include "pass/tools.h"

/* ---- reading regions ------------------------------------------------------------------------- */

typedef Vec(const Node *) NodeList;
typedef struct Offload {
  const char *compiler;
  NodeList out;     /* nodes that ends read, each once */
  NodeList node;    /* in the graph's order */
  const Node *call; /* PartitionGraph: the call that stands for it */
} Offload;

typedef struct Regions {
  Arena *arena;
  Module *m;
  int nnode;
  const Node **node;
  Map number;   /* node -> 1 + its place in `node` */
  int *parent;  /* of the union of nodes; -1: in no region */
  Offload **of; /* root of a union -> region */
} Regions;

static bool is_begin(const Node *n) { return is_call(n, REGION_BEGIN); }
static bool is_end(const Node *n) { return is_call(n, REGION_END); }
static bool is_default(const char *compiler) { return !strcmp(compiler, "default"); }

static int place_of(const Regions *r, const Node *n) { return (int)(intptr_t)map_get(&r->number, n) - 1; }

static int find(Regions *r, int i)
{
  while (r->parent[i] != i) i = r->parent[i] = r->parent[r->parent[i]];
  return i;
}

/* The smaller place leads, so that regions are numbered as the graph is written. */
static void join(Regions *r, int a, int b)
{
  a = find(r, a);
  b = find(r, b);
  if (a < b) r->parent[b] = a;
  else r->parent[a] = b;
}

/* Everything from n down to the begins belongs to one region.  What needs no begin (variables, constants, functions) is
 * no part of any. */
static void take_down(Regions *r, const Node *n)
{
  NodeList stack = {0};
  int root = place_of(r, n);
  if (n->kind == N_VAR || n->kind == N_CONST) return;
  if (r->parent[root] < 0) vec_push(r->arena, &stack, n);
  if (r->parent[root] < 0) r->parent[root] = root;
  while (stack.n) {
    const Node *top = stack.v[--stack.n];
    if (top->kind == N_IF || top->kind == N_LET || top->kind == N_MATCH || is_end(top))
      raise(r->m->ctx, ERR_UNSUPPORTED, NOWHERE,
            "PartitionGraph: %s between annotation.compiler_begin and compiler_end; a region holds calls, tuples and "
            "their fields",
            is_end(top) ? "another compiler_end" : "control flow");
    for (int i = is_begin(top) ? top->nargs : 0; i < top->nargs; i++) {
      const Node *arg = top->arg[i];
      if (arg->kind == N_VAR || arg->kind == N_CONST || arg->kind == N_FUNC || arg->kind == N_GLOBAL) continue;
      int at = place_of(r, arg);
      bool seen = r->parent[at] >= 0;
      if (!seen) r->parent[at] = at;
      join(r, at, root);
      if (!seen) vec_push(r->arena, &stack, arg);
    }
  }
}

static Offload *region_of(Regions *r, const Node *n)
{
  int at = place_of(r, n);
  return at < 0 || r->parent[at] < 0 ? NULL : r->of[find(r, at)];
}

/* What an end reads is a result of its region; a tuple is put together outside, of those of its fields that the region
 * computes and of what others gave it. */
static void add_result(Regions *r, Offload *g, const Node *n)
{
  if (n->kind == N_TUPLE) {
    for (int i = 0; i < n->nargs; i++) add_result(r, g, n->arg[i]);
    return;
  }
  if (is_begin(n) || region_of(r, n) != g) return;
  for (int k = 0; k < g->out.n; k++)
    if (g->out.v[k] == n) return;
  vec_push(r->arena, &g->out, n);
}

static void collect(Regions *r)
{
  r->of = arena_array(r->arena, Offload *, r->nnode + 1);
  for (int i = 0; i < r->nnode; i++) {
    const Node *n = r->node[i];
    if (is_end(n) && region_of(r, n->arg[0])) {
      Offload *g = region_of(r, n->arg[0]);
      add_result(r, g, n->arg[0]);
      g->compiler = call_str(n, "compiler");
    }
    if (r->parent[i] < 0) continue;
    int root = find(r, i);
    if (!r->of[root]) {
      r->of[root] = arena_new_of(r->arena, Offload);
      *r->of[root] = (Offload){.compiler = "default"};
    }
    Offload *g = r->of[root];
    vec_push(r->arena, &g->node, n);
    if (is_begin(n)) g->compiler = call_str(n, "compiler");
  }
}

static Regions read_regions(Module *m, const Node *f)
{
  Regions r = {.m = m, .arena = scratch(m->ctx)};
  r.nnode = groups_order(r.arena, f, &r.node);
  r.parent = arena_array(r.arena, int, r.nnode + 1);
  for (int i = 0; i < r.nnode; i++) {
    r.parent[i] = -1;
    map_put(r.arena, &r.number, r.node[i], (void *)(intptr_t)(i + 1));
  }
  for (int i = 0; i < r.nnode; i++)
    if (is_end(r.node[i])) take_down(&r, r.node[i]->arg[0]);
  collect(&r);
  return r;
}

/* ---- merging ---------------------------------------------------------------------------------- */

typedef Vec(int) Places;
typedef struct Merge {
  Regions *r;
  Places *users; /* of each node: who reads it */
  int *next;     /* of each node: another of its region, in a ring */
  int *seen;     /* round in which the search came by a region or a node outside of all */
  int round;
  Places stack;
} Merge;

static int point_of(Regions *r, int place) { return r->parent[place] < 0 ? place : find(r, place); }

static Merge begin_merge(Regions *r)
{
  Merge g = {.r = r};
  g.users = arena_array(r->arena, Places, r->nnode + 1);
  g.next = arena_array(r->arena, int, r->nnode + 1);
  g.seen = arena_array(r->arena, int, r->nnode + 1);
  for (int i = 0; i < r->nnode; i++) {
    g.next[i] = i;
    for (int k = 0; k < r->node[i]->nargs; k++) {
      int arg = place_of(r, r->node[i]->arg[k]);
      if (arg >= 0) vec_push(r->arena, &g.users[arg], i);
    }
  }
  int *last = arena_array(r->arena, int, r->nnode + 1); /* of each region */
  for (int i = 0; i < r->nnode; i++) {
    if (r->parent[i] < 0) continue;
    int root = find(r, i);
    if (last[root]) {
      g.next[i] = g.next[last[root] - 1];
      g.next[last[root] - 1] = i;
    }
    last[root] = i + 1;
  }
  return g;
}

/* Puts what reads the place, or its region, on the stack. */
static void push_users(Merge *g, int place, int but)
{
  int at = place;
  do {
    for (int i = 0; i < g->users[at].n; i++) {
      int user = point_of(g->r, g->users[at].v[i]);
      if (user != place && user != but) vec_push(g->r->arena, &g->stack, user);
    }
    at = g->next[at];
  } while (at != place);
}

/* Does something outside of both regions stand between them?  The ends of a that b begins with do not count: they
 * go. */
static bool has_detour(Merge *g, int a, int b)
{
  g->stack.n = 0;
  g->round++;
  push_users(g, a, -1);
  int direct = g->stack.n;
  for (int i = 0; i < direct; i++) {
    int end = g->stack.v[i];
    g->seen[end] = g->round;
    push_users(g, end, b);
  }
  while (g->stack.n > direct) {
    int at = g->stack.v[--g->stack.n];
    if (at == b) return true;
    if (g->seen[at] == g->round || at == a) continue;
    g->seen[at] = g->round;
    push_users(g, at, -1);
  }
  return false;
}

static bool merge_at(Merge *g, int i)
{
  Regions *r = g->r;
  const Node *n = r->node[i];
  if (!is_begin(n) || !is_end(n->arg[0]) || r->parent[i] < 0) return false;
  int from = place_of(r, n->arg[0]->arg[0]);
  const char *compiler = call_str(n, "compiler");
  if (r->parent[from] < 0 || is_default(compiler) || strcmp(compiler, call_str(n->arg[0], "compiler"))) return false;
  int a = find(r, from);
  int b = find(r, i);
  if (a == b || has_detour(g, a, b)) return false;
  join(r, a, b);
  int next = g->next[a]; /* the two rings become one */
  g->next[a] = g->next[b];
  g->next[b] = next;
  return true;
}

static const Node *drop_inner_marks(GraphRewriter *rw, const Node *old, const Node *now)
{
  Regions *r = rw->env;
  if (!is_begin(old) || !is_end(old->arg[0])) return now;
  Offload *here = region_of(r, old);
  return here && here == region_of(r, old->arg[0]->arg[0]) ? now->arg[0]->arg[0] : now;
}

const Node *pass_merge_regions(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  if (is_primitive(f)) return f;
  Regions r = read_regions(m, f);
  Merge g = begin_merge(&r);
  for (bool changed = true; changed;) { /* what was in the way of two regions may have become a part of them */
    changed = false;
    for (int i = 0; i < r.nnode; i++) changed |= merge_at(&g, i);
  }
  collect(&r);
  return rewrite(m, f, drop_inner_marks, &r);
}

/* ---- partitioning ------------------------------------------------------------------------------- */

const PassOption pass_partition_options[] = {
  {PO_STR, "mod_name", "default", "part of the functions' names"},
  {PO_BOOL, "bind_constants", "True", "constants that go into a region stay in its function"},
};

typedef struct Made {
  const char *name;
  const Node *func;
} Made;
typedef Vec(Made) Functions;
typedef struct Partition {
  Regions regions;
  const char *module, *function;
  bool bind;
  int made;
  Functions *functions;
} Partition;

/* One function while it is made. */
typedef struct Making {
  Partition *p;
  GraphRewriter *rw;
  const Offload *region;
  Map inner; /* old node -> its value inside; the operand of a begin -> the parameter */
  NodeList param, arg;
  int id;
} Making;

static const Node *operand_inside(Making *k, const Node *begin)
{
  Module *m = k->rw->m;
  const Node *old = begin->arg[0];
  const Node *now = map_get(&k->inner, old);
  if (now) return now;
  const Node *outside = graph_rewrite(k->rw, old);
  if (outside->kind == N_CONST && k->p->bind) {
    now = outside;
  } else {
    const char *name = arena_printf(k->rw->arena, "%s_%d_i%d", k->region->compiler, k->id, k->param.n);
    now = node_var(m, name, old->type);
    vec_push(k->rw->arena, &k->param, now);
    vec_push(k->rw->arena, &k->arg, outside);
  }
  map_put(k->rw->arena, &k->inner, old, (void *)(uintptr_t)now);
  return now;
}

/* Those nodes of the region that its results are made of. */
static Map needed_nodes(const Making *k)
{
  Map needed = {0};
  Arena *arena = k->rw->arena;
  for (int i = 0; i < k->region->out.n; i++) map_put(arena, &needed, k->region->out.v[i], arena);
  for (int i = k->region->node.n - 1; i >= 0; i--) {
    const Node *n = k->region->node.v[i];
    for (int a = 0; map_has(&needed, n) && a < n->nargs; a++) map_put(arena, &needed, n->arg[a], arena);
  }
  return needed;
}

/* The region's nodes come arguments first. */
static void copy_inside(Making *k)
{
  Module *m = k->rw->m;
  Map needed = needed_nodes(k);
  for (int i = 0; i < k->region->node.n; i++) {
    const Node *old = k->region->node.v[i];
    if (!map_has(&needed, old)) continue;
    if (is_begin(old)) {
      map_put(k->rw->arena, &k->inner, old, (void *)(uintptr_t)operand_inside(k, old));
      continue;
    }
    const Node **arg = arena_array(k->rw->arena, const Node *, old->nargs + 1);
    for (int a = 0; a < old->nargs; a++) {
      arg[a] = map_get(&k->inner, old->arg[a]);
      if (arg[a]) continue;
      bool own = old->arg[a]->kind == N_FUNC || old->arg[a]->kind == N_GLOBAL || old->arg[a]->kind == N_CONST;
      if (!own)
        raise(m->ctx, ERR_ARGUMENT, NOWHERE,
              "PartitionGraph: a value enters a region of '%s' without annotation.compiler_begin", k->region->compiler);
      arg[a] = old->arg[a];
    }
    map_put(k->rw->arena, &k->inner, old, (void *)(uintptr_t)node_with_args(m, old, arg));
  }
}

static void check_name(Ctx *ctx, const char *name)
{
  if (!*name || name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")])
    raise(ctx, ERR_ARGUMENT, NOWHERE, "PartitionGraph: '%s' is no name of a compiler: letters, digits, _ and -", name);
}

/* The function of a region goes into the module; the call of it is given. */
static const Node *make_function(GraphRewriter *rw, Offload *g)
{
  Partition *p = rw->env;
  Module *m = rw->m;
  check_name(m->ctx, g->compiler);
  Making k = {.p = p, .rw = rw, .region = g, .id = p->made++};
  copy_inside(&k);
  const Node **out = arena_array(rw->arena, const Node *, g->out.n + 1);
  for (int i = 0; i < g->out.n; i++) out[i] = map_get(&k.inner, g->out.v[i]);
  const Node *body = g->out.n == 1 ? out[0] : node_tuple(m, g->out.n, out);
  char *symbol = arena_printf(m->arena, "tvmgen_%s_%s_%s_%d", p->module, g->compiler, p->function, k.id);
  for (char *c = symbol; *c; c++)
    if (*c == '-' || *c == '.') *c = '_';
  if (module_get(m, symbol))
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "PartitionGraph: the module has a function @%s already; give another mod_name",
          symbol);
  Annots attrs = primitive_attrs(m);
  annots_set(m->arena, &attrs, "Inline", expr_i32(m, 1));
  annots_set(m->arena, &attrs, "Compiler", expr_str(m, g->compiler));
  annots_set(m->arena, &attrs, "global_symbol", expr_str(m, symbol));
  const Node *func = retype(m, node_func(m, k.param.n, k.param.v, body, NULL, &attrs));
  vec_push(rw->arena, p->functions, ((Made){symbol, func}));
  return node_apply(m, node_global(m, symbol), k.arg.n, k.arg.v);
}

/* A result of the region as it is outside. */
static const Node *result_of(GraphRewriter *rw, Offload *g, const Node *n)
{
  Module *m = rw->m;
  Partition *p = rw->env;
  if (n->kind == N_TUPLE) {
    const Node **field = arena_array(rw->arena, const Node *, n->nargs + 1);
    for (int i = 0; i < n->nargs; i++) field[i] = result_of(rw, g, n->arg[i]);
    return node_tuple(m, n->nargs, field);
  }
  if (is_begin(n) || region_of(&p->regions, n) != g) return graph_rewrite(rw, is_begin(n) ? n->arg[0] : n);
  if (!g->call) g->call = make_function(rw, g);
  int i = 0;
  while (g->out.v[i] != n) i++;
  return g->out.n == 1 ? g->call : node_get(m, g->call, i);
}

static const Node *put_calls(GraphRewriter *rw, const Node *old, const Node *now)
{
  Partition *p = rw->env;
  if (!is_begin(old) && !is_end(old)) return now;
  Offload *g = is_end(old) ? region_of(&p->regions, old->arg[0]) : NULL;
  if (!g || is_default(g->compiler)) return now->arg[0];
  return result_of(rw, g, old->arg[0]);
}

void pass_partition_graph(PassContext *pc, Module *m, void *env)
{
  (void)pc;
  int n = m->globals.n;
  Functions functions = {0}; /* they come into the module when all are made */
  const Node **result = arena_array(scratch(m->ctx), const Node *, n + 1);
  for (int i = 0; i < n; i++) {
    const Global *g = &m->globals.v[i];
    if (g->kind != GLOBAL_GRAPH || is_primitive(g->func)) continue;
    Partition p = {.regions = read_regions(m, g->func),
                   .module = pass_option(env, pass_partition_options, 0),
                   .bind = pass_option_int(env, pass_partition_options, 1),
                   .function = g->name,
                   .functions = &functions};
    result[i] = rewrite(m, g->func, put_calls, &p);
  }
  for (int i = 0; i < functions.n; i++)
    module_set(m, functions.v[i].name, GLOBAL_GRAPH, (void *)(uintptr_t)functions.v[i].func);
  for (int i = 0; i < n; i++)
    if (result[i]) m->globals.v[i].func = (void *)(uintptr_t)retype(m, result[i]);
}
