/* onnx_ops_trees.c: TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble.
 *
 * Comes in: nodes in lists, one list for each field.  They are read into a Forest, checked (every name exists, no way
 * leads round in a circle), and written as the tables of ml.tree_ensemble, where every node asks "x <= split":
 *
 *   x <= t    itself                        x > t    the ways changed round
 *   x <  t    x <= the number below t       x >= t   x <= the number below t, the ways changed round
 *   x == t    x <= t, then x <= the number below t
 *   x in set  the middle member halves the set until one is left
 *
 * NaN takes the way of a test that does not hold, unless missing values track true; x != NaN holds. */
#include <math.h>
#include <stdlib.h>

#include "frontend/onnx_ml.h"

typedef enum { LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF } Mode;
static const char *const mode_names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                         "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};

typedef struct TreeNode {
  Mode mode;
  bool missing;    /* NaN goes the way of `yes` */
  int32_t feature; /* … */
  double split;
  int yes, no;      /* nodes of the forest */
  int first, count; /* MEMBER: of Forest.member; LEAF: of Forest.entry */
} TreeNode;

/* What a leaf adds to a target. */
typedef struct Entry {
  int node, target;
  double weight;
} Entry;

typedef struct Forest {
  Conversion *c;
  Arena *arena;
  DType dt; /* of the data and of the splits */
  int n, nroot, nentry;
  TreeNode *node;
  int *root;
  Entry *entry;
  double *member;
  int64_t features, targets;
  const char *aggregate; /* "sum", "min", "max" */
} Forest;

enum { MOST = 1 << 26 }; /* nodes, entries, targets: more is no model but an error */

/* ---- lists --------------------------------------------------------------------------------------- */

static const int64_t *ints_of(Conversion *c, const char *name, int count, int64_t limit)
{
  int n;
  const int64_t *v = onnx_attr_ints(c, name, &n);
  if (n != count) kit_fail(c, ERR_ARGUMENT, "%s has %d elements, %d are wanted", name, n, count);
  for (int i = 0; i < n; i++)
    if (v[i] < 0 || v[i] >= limit)
      kit_fail(c, ERR_ARGUMENT, "%s[%d] is %" PRId64 "; it is 0 to %" PRId64, name, i, v[i], limit - 1);
  return v;
}

static const double *doubles_of(Conversion *c, const char *name, int count)
{
  int n;
  const double *v = onnx_ml_numbers(c, name, &n);
  if (n != count) kit_fail(c, ERR_ARGUMENT, "%s has %d elements, %d are wanted", name, n, count);
  return v;
}

static void check_split(Forest *f, const char *list, int i)
{
  if (f->node[i].mode != LEAF && f->node[i].mode != MEMBER && isnan(f->node[i].split))
    kit_fail(f->c, ERR_ARGUMENT, "%s[%d] is NaN; a node compares with a number", list, i);
}

/* ---- the lists of versions 1 and 3 ------------------------------------------------------------------ */

/* A node by the numbers of its tree and its own. */
typedef struct Name {
  int64_t tree, node;
  int at;
} Name;

static int by_name(const void *x, const void *y)
{
  const Name *a = x;
  const Name *b = y;
  if (a->tree != b->tree) return (a->tree > b->tree) - (a->tree < b->tree);
  return (a->node > b->node) - (a->node < b->node);
}

static const Name *sort_names(Forest *f, const int64_t *tree, const int64_t *node)
{
  Name *v = arena_array(f->arena, Name, f->n + 1);
  for (int i = 0; i < f->n; i++) v[i] = (Name){tree[i], node[i], i};
  qsort(v, (size_t)f->n, sizeof *v, by_name);
  for (int i = 1; i < f->n; i++)
    if (!by_name(&v[i - 1], &v[i]))
      kit_fail(f->c, ERR_ARGUMENT, "node %" PRId64 " of tree %" PRId64 " is there twice", v[i].node, v[i].tree);
  return v;
}

static int find_name(Forest *f, const Name *names, int64_t tree, int64_t node, const char *list, int i)
{
  const Name *found = bsearch(&(Name){tree, node, 0}, names, (size_t)f->n, sizeof *names, by_name);
  if (!found)
    kit_fail(f->c, ERR_ARGUMENT, "%s[%d] is %" PRId64 "; tree %" PRId64 " has no such node", list, i, node, tree);
  return found->at;
}

static Mode mode_of(Conversion *c, const PAttr *modes, int i)
{
  Bytes s = modes->strings.v[i];
  for (int k = 0; k <= LEAF; k++)
    if (k != MEMBER && s.n == strlen(mode_names[k]) && !memcmp(s.p, mode_names[k], s.n)) return (Mode)k;
  kit_fail(c, ERR_ARGUMENT,
           "nodes_modes[%d] is '%.*s', which is no mode; they are BRANCH_LEQ, LT, GTE, GT, EQ, NEQ and LEAF", i,
           (int)(s.n < 40 ? s.n : 40), (const char *)s.p);
}

/* The first node of each tree is its root. */
static void find_roots(Forest *f, const int64_t *tree)
{
  Map seen = {0};
  f->root = arena_array(f->arena, int, f->n + 1);
  for (int i = 0; i < f->n; i++) {
    const void *key = (const void *)(uintptr_t)(tree[i] + 1);
    if (map_has(&seen, key)) continue;
    map_put(f->arena, &seen, key, f);
    f->root[f->nroot++] = i;
  }
}

static void read_entries(Forest *f, const Name *names, const char *stem)
{
  Conversion *c = f->c;
  const char *ids = arena_printf(f->arena, "%s_ids", stem);
  const char *nodes = arena_printf(f->arena, "%s_nodeids", stem);
  const char *trees = arena_printf(f->arena, "%s_treeids", stem);
  const char *weights = arena_printf(f->arena, "%s_weights", stem);
  int n;
  const double *w = onnx_ml_numbers(c, weights, &n);
  const int64_t *target = ints_of(c, ids, n, f->targets);
  const int64_t *node = ints_of(c, nodes, n, INT64_MAX);
  const int64_t *tree = ints_of(c, trees, n, INT64_MAX);
  f->entry = arena_array(f->arena, Entry, n + 1);
  for (int i = 0; i < n; i++) {
    int at = find_name(f, names, tree[i], node[i], nodes, i);
    if (isnan(w[i])) kit_fail(c, ERR_ARGUMENT, "%s[%d] is NaN; a weight is a number", weights, i);
    if (f->node[at].mode == LEAF) f->entry[f->nentry++] = (Entry){at, (int)target[i], w[i]};
  }
}

static void read_lists(Forest *f, const char *stem)
{
  Conversion *c = f->c;
  const PAttr *modes = onnx_attr(c, "nodes_modes");
  f->n = modes ? modes->strings.n : 0;
  if (!f->n) kit_fail(c, ERR_ARGUMENT, "there are no nodes, so there are no trees");
  if (f->n > MOST) kit_fail(c, ERR_UNSUPPORTED, "there are %d nodes; %d are the most", f->n, MOST);
  const int64_t *tree = ints_of(c, "nodes_treeids", f->n, INT64_MAX);
  const int64_t *node = ints_of(c, "nodes_nodeids", f->n, INT64_MAX);
  const int64_t *feature = ints_of(c, "nodes_featureids", f->n, INT64_MAX);
  const int64_t *yes = ints_of(c, "nodes_truenodeids", f->n, INT64_MAX);
  const int64_t *no = ints_of(c, "nodes_falsenodeids", f->n, INT64_MAX);
  const double *split = doubles_of(c, "nodes_values", f->n);
  int nmissing = 0;
  onnx_attr_ints(c, "nodes_missing_value_tracks_true", &nmissing);
  const int64_t *missing = nmissing ? ints_of(c, "nodes_missing_value_tracks_true", f->n, 2) : NULL;
  const Name *names = sort_names(f, tree, node);
  f->node = arena_array(f->arena, TreeNode, f->n + 1);
  for (int i = 0; i < f->n; i++) {
    TreeNode *t = &f->node[i];
    t->mode = mode_of(c, modes, i);
    if (t->mode == LEAF) continue;
    if (feature[i] >= f->features)
      kit_fail(c, ERR_ARGUMENT, "nodes_featureids[%d] is %" PRId64 "; there are %" PRId64 " features", i, feature[i],
               f->features);
    t->feature = (int32_t)feature[i];
    t->split = split[i];
    t->missing = missing && missing[i];
    t->yes = find_name(f, names, tree[i], yes[i], "nodes_truenodeids", i);
    t->no = find_name(f, names, tree[i], no[i], "nodes_falsenodeids", i);
    check_split(f, "nodes_values", i);
  }
  find_roots(f, tree);
  read_entries(f, names, stem);
}

/* ---- the lists of version 5 ------------------------------------------------------------------------- */

static const ConstData *tensor_of(Conversion *c, const char *name, int *count)
{
  const PAttr *a = onnx_attr(c, name);
  if (!a || !a->t) kit_fail(c, ERR_ARGUMENT, "%s is missing", name);
  const ConstData *d = onnx_tensor(c->im, a->t, c->name)->u.data;
  int64_t n = (int64_t)(d->bytes / (size_t)dtype_bytes(d->dtype));
  if (n > MOST || dtype_is_string(d->dtype))
    kit_fail(c, ERR_ARGUMENT, "%s has %" PRId64 " elements of a kind that trees do not have", name, n);
  *count = (int)n;
  return d;
}

static Value value_of(const ConstData *d, int i)
{
  return value_load(d->dtype, (const char *)d->data + (size_t)i * (size_t)dtype_bytes(d->dtype));
}

static void read_children(Forest *f, bool yes, int nnode, int nleaf)
{
  const char *list = yes ? "nodes_truenodeids" : "nodes_falsenodeids";
  const int64_t *leaf = ints_of(f->c, yes ? "nodes_trueleafs" : "nodes_falseleafs", nnode, 2);
  const int64_t *id = ints_of(f->c, list, nnode, INT64_MAX);
  for (int i = 0; i < nnode; i++) {
    if (id[i] >= (leaf[i] ? nleaf : nnode))
      kit_fail(f->c, ERR_ARGUMENT, "%s[%d] is %" PRId64 ", there are %d %s", list, i, id[i], leaf[i] ? nleaf : nnode,
               leaf[i] ? "leaves" : "nodes");
    int to = (int)id[i] + (leaf[i] ? nnode : 0);
    if (yes) f->node[i].yes = to;
    else f->node[i].no = to;
  }
}

static int by_number(const void *x, const void *y)
{
  double a = *(const double *)x;
  double b = *(const double *)y;
  return (a > b) - (a < b);
}

/* membership_values: the members of each set in the order of the nodes, NaN behind each set. */
static void read_members(Forest *f, int nnode)
{
  int n;
  int at = 0;
  const ConstData *d = tensor_of(f->c, "membership_values", &n);
  f->member = arena_array(f->arena, double, n + 1);
  for (int i = 0; i < n; i++) f->member[i] = value_cast(value_of(d, i), DT_F64).f;
  for (int i = 0; i < nnode; i++) {
    TreeNode *t = &f->node[i];
    if (t->mode != MEMBER) continue;
    if (at >= n) kit_fail(f->c, ERR_ARGUMENT, "membership_values has no set for node %d", i);
    t->first = at;
    while (at < n && !isnan(f->member[at])) at++;
    t->count = at++ - t->first;
    qsort(f->member + t->first, (size_t)t->count, sizeof *f->member, by_number);
  }
}

static void read_tensors(Forest *f)
{
  Conversion *c = f->c;
  int nnode, nmode, nleaf;
  const ConstData *split = tensor_of(c, "nodes_splits", &nnode);
  const ConstData *mode = tensor_of(c, "nodes_modes", &nmode);
  const ConstData *weight = tensor_of(c, "leaf_weights", &nleaf);
  const int64_t *root = onnx_attr_ints(c, "tree_roots", &f->nroot);
  if (!nnode || !nleaf || !f->nroot || nmode != nnode || !dtype_is_int(mode->dtype) || !dtype_is_float(split->dtype) ||
      !dtype_is_float(weight->dtype))
    kit_fail(c, ERR_ARGUMENT, "%d nodes with %d modes, %d leaves and %d roots make no trees", nnode, nmode, nleaf,
             f->nroot);
  root = ints_of(c, "tree_roots", f->nroot, nnode);
  const int64_t *feature = ints_of(c, "nodes_featureids", nnode, f->features);
  const int64_t *target = ints_of(c, "leaf_targetids", nleaf, f->targets);
  int nmissing = 0;
  onnx_attr_ints(c, "nodes_missing_value_tracks_true", &nmissing);
  const int64_t *missing = nmissing ? ints_of(c, "nodes_missing_value_tracks_true", nnode, 2) : NULL;
  f->n = nnode + nleaf;
  f->node = arena_array(f->arena, TreeNode, f->n + 1);
  f->root = arena_array(f->arena, int, f->nroot + 1);
  f->entry = arena_array(f->arena, Entry, nleaf + 1);
  f->nentry = nleaf;
  for (int i = 0; i < f->nroot; i++) f->root[i] = (int)root[i];
  bool sets = false;
  for (int i = 0; i < nnode; i++) {
    int64_t m = value_of(mode, i).i;
    if (m < 0 || m > MEMBER) kit_fail(c, ERR_ARGUMENT, "nodes_modes[%d] is %" PRId64 "; it is 0 to 6", i, m);
    double at = value_cast(value_of(split, i), DT_F64).f;
    f->node[i] =
        (TreeNode){.mode = (Mode)m, .feature = (int32_t)feature[i], .split = at, .missing = missing && missing[i]};
    check_split(f, "nodes_splits", i);
    sets = sets || m == MEMBER;
  }
  for (int i = 0; i < nleaf; i++) {
    double w = value_cast(value_of(weight, i), DT_F64).f;
    if (isnan(w)) kit_fail(c, ERR_ARGUMENT, "leaf_weights[%d] is NaN; a weight is a number", i);
    f->node[nnode + i].mode = LEAF;
    f->entry[i] = (Entry){nnode + i, (int)target[i], w};
  }
  read_children(f, true, nnode, nleaf);
  read_children(f, false, nnode, nleaf);
  if (sets) read_members(f, nnode);
}

/* ---- tables -------------------------------------------------------------------------------------------- */

typedef struct Row {
  int32_t feature, le, gt, nan;
  double split;
} Row;

typedef struct Tables {
  Forest *f;
  Vec(Row) row; /* of inner nodes; their numbers follow those of the leaves */
  int *id;      /* node of the forest -> number, once it has one */
  int *steps;   /* node -> steps to the farthest leaf */
  int *leaf;    /* number of a leaf -> node */
  int nleaf, depth;
} Tables;

/* Tests that one node becomes, one after the other. */
static int tests_of(const TreeNode *n)
{
  int k = 0;
  if (n->mode == LEAF) return 0;
  if (n->mode == MEMBER)
    while (1 << k < n->count) k++;
  return n->mode == EQ || n->mode == NEQ ? 2 : n->mode == MEMBER ? k + 2 : 1;
}

/* Leaves get numbers; steps are counted from the leaves up; a way that comes back to itself is refused. */
static void measure(Tables *t)
{
  Forest *f = t->f;
  enum { NEW, OPEN, DONE };
  typedef Vec(int) Ints;
  Ints stack = {0};
  uint8_t *state = arena_array(f->arena, uint8_t, f->n + 1);
  for (int r = 0; r < f->nroot; r++) {
    vec_push(f->arena, &stack, f->root[r]);
    while (stack.n) {
      int i = stack.v[stack.n - 1];
      const TreeNode *n = &f->node[i];
      if (state[i] == DONE) {
        stack.n--;
        continue;
      }
      if (n->mode == LEAF) {
        t->id[i] = t->nleaf;
        t->leaf[t->nleaf++] = i;
        state[i] = DONE;
        continue;
      }
      if (state[i] == OPEN) {
        int y = t->steps[n->yes];
        int o = t->steps[n->no];
        t->steps[i] = tests_of(n) + (y > o ? y : o);
        state[i] = DONE;
        continue;
      }
      state[i] = OPEN;
      int next[2] = {n->no, n->yes};
      for (int k = 0; k < 2; k++) {
        if (state[next[k]] == OPEN) kit_fail(f->c, ERR_ARGUMENT, "the tree at node %d goes round in a circle", next[k]);
        if (state[next[k]] == NEW) vec_push(f->arena, &stack, next[k]);
      }
    }
    if (t->steps[f->root[r]] > t->depth) t->depth = t->steps[f->root[r]];
  }
}

static double below(DType dt, double v)
{
  if (v == -INFINITY) return NAN; /* nothing is less: a test that never holds */
  return dt.bits == 64 ? nextafter(v, -INFINITY) : (double)nextafterf((float)v, -INFINITY);
}

/* A row that is filled later; its number. */
static int32_t new_row(Tables *t, int32_t feature)
{
  vec_push(t->f->arena, &t->row, ((Row){.feature = feature}));
  return t->nleaf + t->row.n - 1;
}
static void fill_row(Tables *t, int32_t id, double split, int32_t le, int32_t gt, int32_t nan)
{
  Row *r = &t->row.v[id - t->nleaf];
  *r = (Row){r->feature, le, gt, nan, split};
}

static void fill_equal(Tables *t, int32_t id, double v, int32_t yes, int32_t no, int32_t nan)
{
  int32_t second = new_row(t, t->row.v[id - t->nleaf].feature);
  fill_row(t, id, v, second, no, nan);
  fill_row(t, second, below(t->f->dt, v), no, yes, nan);
}

static void fill_set(Tables *t, int32_t id, const double *v, int n, int32_t yes, int32_t no, int32_t nan)
{
  int32_t feature = t->row.v[id - t->nleaf].feature;
  if (n == 0) fill_row(t, id, NAN, no, no, nan);
  else if (n == 1) fill_equal(t, id, v[0], yes, no, nan);
  if (n < 2) return;
  int half = (n + 1) / 2;
  int32_t lower = new_row(t, feature);
  fill_set(t, lower, v, half, yes, no, nan);
  int32_t upper = new_row(t, feature);
  fill_set(t, upper, v + half, n - half, yes, no, nan);
  fill_row(t, id, v[half - 1], lower, upper, nan);
}

static void fill_node(Tables *t, const TreeNode *n, int32_t id)
{
  DType dt = t->f->dt;
  int32_t yes = t->id[n->yes];
  int32_t no = t->id[n->no];
  int32_t nan = n->missing ? yes : no;
  double v = n->split;
  if (n->mode == LEQ) fill_row(t, id, v, yes, no, nan);
  if (n->mode == LT) fill_row(t, id, below(dt, v), yes, no, nan);
  if (n->mode == GTE) fill_row(t, id, below(dt, v), no, yes, nan);
  if (n->mode == GT) fill_row(t, id, v, no, yes, nan);
  if (n->mode == EQ) fill_equal(t, id, v, yes, no, nan);
  if (n->mode == NEQ) fill_equal(t, id, v, no, yes, yes);
  if (n->mode == MEMBER) fill_set(t, id, t->f->member + n->first, n->count, yes, no, nan);
}

/* Inner nodes in the order of a walk that takes the way of `yes` first, so that a step is often to the next row. */
static void number_nodes(Tables *t)
{
  Forest *f = t->f;
  typedef Vec(int) Ints;
  Ints stack = {0};
  Ints order = {0};
  for (int r = f->nroot - 1; r >= 0; r--) vec_push(f->arena, &stack, f->root[r]);
  while (stack.n) {
    int i = stack.v[--stack.n];
    if (t->id[i] >= 0) continue;
    t->id[i] = new_row(t, f->node[i].feature);
    vec_push(f->arena, &order, i);
    vec_push(f->arena, &stack, f->node[i].no);
    vec_push(f->arena, &stack, f->node[i].yes);
  }
  for (int k = 0; k < order.n; k++) fill_node(t, &f->node[order.v[k]], t->id[order.v[k]]);
}

static Tables tables_of(Forest *f)
{
  Tables t = {.f = f};
  t.id = arena_array(f->arena, int, f->n + 1);
  t.steps = arena_array(f->arena, int, f->n + 1);
  t.leaf = arena_array(f->arena, int, f->n + 1);
  for (int i = 0; i < f->n; i++) t.id[i] = -1;
  measure(&t);
  number_nodes(&t);
  return t;
}

/* ---- weights ---------------------------------------------------------------------------------------------- */

static int by_leaf(const void *x, const void *y)
{
  const Entry *a = x;
  const Entry *b = y;
  if (a->node != b->node) return (a->node > b->node) - (a->node < b->node);
  return (a->target > b->target) - (a->target < b->target);
}

/* Entries of one leaf and target become one; entries of leaves that no way leads to go. */
static int join_entries(Forest *f, const Tables *t)
{
  bool sum = !strcmp(f->aggregate, "sum");
  bool least = !strcmp(f->aggregate, "min");
  int n = 0;
  int widest = 1;
  for (int i = 0; i < f->nentry; i++) {
    int leaf = t->id[f->entry[i].node];
    if (leaf >= 0) f->entry[n++] = (Entry){leaf, f->entry[i].target, f->entry[i].weight};
  }
  qsort(f->entry, (size_t)n, sizeof *f->entry, by_leaf);
  f->nentry = 0;
  for (int i = 0, run = 0; i < n; i++) {
    Entry *last = f->nentry ? &f->entry[f->nentry - 1] : NULL;
    if (last && !by_leaf(last, &f->entry[i])) {
      double w = f->entry[i].weight;
      if (sum) last->weight += w;
      else if (least ? w < last->weight : w > last->weight) last->weight = w;
      continue;
    }
    run = last && last->node == f->entry[i].node ? run + 1 : 1;
    if (run > widest) widest = run;
    f->entry[f->nentry++] = f->entry[i];
  }
  return widest;
}

/* One weight for each target where that is hardly more than there are; else pairs, filled up with none. */
static void weight_tables(Forest *f, const Tables *t, const Node **weight, const Node **target)
{
  Conversion *c = f->c;
  int widest = join_entries(f, t);
  bool dense = 2 * (int64_t)widest >= f->targets;
  int width = dense ? (int)f->targets : widest;
  size_t count = mem_size_mul(c->ctx, (size_t)t->nleaf, (size_t)width, "the weights");
  size_t size = (size_t)dtype_bytes(f->dt);
  char *w = arena_alloc(f->arena, mem_size_mul(c->ctx, count, size, "the weights") + 1);
  int32_t *to = arena_array(f->arena, int32_t, count + 1);
  double none = strcmp(f->aggregate, "sum") ? (double)NAN : 0;
  for (size_t i = 0; i < count; i++) value_store(value_float(f->dt, none), w + i * size);
  for (int i = 0, k = 0; i < f->nentry; i++) {
    const Entry *e = &f->entry[i];
    k = i && f->entry[i - 1].node == e->node ? k + 1 : 0;
    size_t at = (size_t)e->node * (size_t)width + (size_t)(dense ? e->target : k);
    value_store(value_float(f->dt, e->weight), w + at * size);
    to[at] = e->target;
  }
  *weight = node_const_copy(c->m, f->dt, 2, (int64_t[]){t->nleaf, width}, w);
  *target = dense ? NULL : node_const_copy(c->m, DT_I32, 2, (int64_t[]){t->nleaf, width}, to);
}

/* The call: (rows, targets), from base on.  base: one number for each target. */
static const Node *forest_call(Forest *f, const Node *x, const double *base)
{
  Conversion *c = f->c;
  Tables t = tables_of(f);
  int n = t.nleaf + t.row.n;
  int32_t *node = arena_array(f->arena, int32_t, 4 * (size_t)n + 1);
  double *split = arena_array(f->arena, double, n + 1);
  int32_t *root = arena_array(f->arena, int32_t, f->nroot + 1);
  bool missing = false;
  for (int i = 0; i < n; i++) {
    const Row *r = i < t.nleaf ? &(Row){0, i, i, i, 0} : &t.row.v[i - t.nleaf];
    memcpy(node + 4 * i, (int32_t[]){r->feature, r->le, r->gt, r->nan}, 4 * sizeof *node);
    split[i] = r->split;
    missing = missing || r->nan != r->gt;
  }
  for (int i = 0; i < f->nroot; i++) root[i] = t.id[f->root[i]];
  const Node *weight, *target;
  weight_tables(f, &t, &weight, &target);
  const Node *arg[] = {x,
                       onnx_ml_constant(c, f->dt, 0, (int)f->targets, base),
                       node_const_copy(c->m, DT_I32, 2, (int64_t[]){n, 4}, node),
                       onnx_ml_constant(c, f->dt, 0, n, split),
                       node_const_copy(c->m, DT_I32, 1, (int64_t[]){f->nroot}, root),
                       weight,
                       target};
  return kit_opn(c, "ml.tree_ensemble", target ? 7 : 6, arg, "depth:i,aggregate:s,missing:i,in_range:i", t.depth,
                 f->aggregate, (int)missing, 1);
}

/* ---- the operators -------------------------------------------------------------------------------------------- */

static Forest forest_new(Conversion *c, const Node **x, int64_t targets)
{
  *x = onnx_ml_matrix(c, kit_in(c, 0));
  Forest f = {.c = c, .arena = c->im->arena, .dt = kit_dtype_of(c, *x), .targets = targets, .aggregate = "sum"};
  f.features = kit_static_dim(c, *x, 1);
  if (f.features > INT32_MAX) kit_fail(c, ERR_SHAPE, "%" PRId64 " features are too many", f.features);
  if (targets < 1 || targets > MOST)
    kit_fail(c, ERR_ARGUMENT, "there are %" PRId64 " targets; 1 to %d are possible", targets, MOST);
  return f;
}

static void set_aggregate(Forest *f, const char *how)
{
  static const char *const names[] = {"SUM", "AVERAGE", "MIN", "MAX"};
  static const char *const plain[] = {"sum", "sum", "min", "max"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(how, names[i])) {
      f->aggregate = plain[i];
      for (int k = 0; i == 1 && k < f->nentry; k++) f->entry[k].weight /= f->nroot;
      return;
    }
  kit_fail(f->c, ERR_ARGUMENT, "aggregate_function is '%s'; it is SUM, AVERAGE, MIN or MAX", how);
}

static const double *base_of(Forest *f, int *n)
{
  double *all = arena_array(f->arena, double, f->targets + 1);
  const double *v = onnx_ml_numbers(f->c, "base_values", n);
  if (*n > f->targets)
    kit_fail(f->c, ERR_ARGUMENT, "base_values has %d elements for %" PRId64 " targets", *n, f->targets);
  for (int i = 0; i < *n; i++) all[i] = v[i];
  return all;
}

static const Node *convert_regressor(Conversion *c)
{
  const Node *x;
  int nbase;
  Forest f = forest_new(c, &x, onnx_attr_int(c, "n_targets", 1));
  read_lists(&f, "target");
  set_aggregate(&f, onnx_attr_str(c, "aggregate_function", "SUM"));
  const double *base = base_of(&f, &nbase);
  if (nbase && nbase != f.targets)
    kit_fail(c, ERR_ARGUMENT, "base_values has %d elements for %" PRId64 " targets", nbase, f.targets);
  const Node *y = kit_cast_to(c, forest_call(&f, x, base), DT_F32);
  return onnx_ml_post(c, y, onnx_attr_str(c, "post_transform", "NONE"));
}

static const Node *convert_ensemble(Conversion *c)
{
  static const char *const how[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  static const char *const post[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const Node *x;
  int64_t aggregate = onnx_attr_int(c, "aggregate_function", 1);
  int64_t after = onnx_attr_int(c, "post_transform", 0);
  Forest f = forest_new(c, &x, onnx_attr_int(c, "n_targets", 1));
  if (aggregate < 0 || aggregate > 3 || after < 0 || after > 4)
    kit_fail(c, ERR_ARGUMENT, "aggregate_function is %" PRId64 " and post_transform %" PRId64 "; 0 to 3 and 0 to 4 are",
             aggregate, after);
  read_tensors(&f);
  set_aggregate(&f, how[aggregate]);
  const double *base = arena_array(f.arena, double, f.targets + 1);
  return onnx_ml_post(c, forest_call(&f, x, base), post[after]);
}

/* Two classes of which only one has weights: its sum s says how much it is the second one.  Weights that are all
 * positive are probabilities; others decide by their sign. */
static void binary_scores(Conversion *c, const Node *labels, const Node *s, bool positive, const char *how)
{
  DType dt = kit_dtype_of(c, s);
  const Node *one = kit_scalar(c, dt, 1);
  const Node *minus = kit_op1(c, "negative", s, NULL);
  const Node *second = kit_op2(c, "greater", s, kit_scalar(c, dt, positive ? 0.5 : 0), NULL);
  bool logistic = !strcmp(how, "LOGISTIC");
  bool probit = !strcmp(how, "PROBIT");
  const Node *first = logistic || !(positive || probit) ? minus : kit_sub(c, one, s);
  c->out[0] = onnx_ml_pick_two(c, labels, 2, kit_squeeze(c, second, 1));
  const Node *both = onnx_ml_columns(c, first, s);
  c->out[1] = kit_cast_to(c, logistic || probit ? onnx_ml_post(c, both, how) : both, DT_F32);
}

static const Node *convert_classifier(Conversion *c)
{
  int64_t classes;
  int nbase;
  const Node *x;
  const char *how = onnx_attr_str(c, "post_transform", "NONE");
  const Node *labels = onnx_ml_labels(c, "classlabels_int64s", &classes);
  Forest f = forest_new(c, &x, classes);
  read_lists(&f, "class");
  const double *base = base_of(&f, &nbase);
  bool *used = arena_array(f.arena, bool, classes + 1);
  double *never = arena_array(f.arena, double, classes + 1);
  bool positive = true;
  bool all = true;
  for (int i = 0; i < f.nentry; i++) {
    used[f.entry[i].target] = true;
    positive = positive && f.entry[i].weight >= 0;
  }
  if (nbase && nbase != classes && !(classes == 2 && nbase == 1))
    kit_fail(c, ERR_ARGUMENT, "base_values has %d elements for %" PRId64 " classes", nbase, classes);
  if (classes == 2 && !used[1]) {
    f.targets = 1;
    binary_scores(c, labels, forest_call(&f, x, base), positive, how);
    return NULL;
  }
  const Node *s = forest_call(&f, x, base);
  c->out[1] = kit_cast_to(c, onnx_ml_post(c, s, how), DT_F32);
  if (classes == 1 || (classes == 2 && !used[0])) {
    double limit = classes == 2 && positive ? 0.5 : 0;
    const Node *own = kit_squeeze(c, kit_slice(c, s, 1, classes - 1, classes), 1);
    c->out[0] = onnx_ml_pick_two(c, labels, classes, kit_op2(c, "greater", own, kit_scalar_like(c, own, limit), NULL));
    return NULL;
  }
  for (int64_t i = 0; i < classes; i++) {
    never[i] = used[i] || nbase ? 0 : -INFINITY; /* a class that no leaf knows is never the one */
    all = all && !(never[i] < 0);
  }
  const Node *own = all ? s : kit_add(c, s, onnx_ml_constant(c, f.dt, 0, (int)classes, never));
  c->out[0] = onnx_ml_pick(c, labels, kit_op1(c, "argmax", own, "axis:I", 1, (int64_t[]){1}));
  return NULL;
}

static const OnnxRow rows[] = {
  {"TreeEnsemble", 5, convert_ensemble},
  {"TreeEnsembleClassifier", 1, convert_classifier},
  {"TreeEnsembleRegressor", 1, convert_regressor},
};
ONNX_TABLE(onnx_ml_trees, "ai.onnx.ml", rows);
