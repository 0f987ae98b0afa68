/* onnx_ops_ml.c: operators of ai.onnx.ml.
 *
 * Comes in: feature tensors.  Goes out: takes, comparisons, selections; trees are walked a level at a time, all
 * rows and trees together. */
#include <math.h>

#include "frontend/onnx_import.h"

/* Columns by number, from the last axis. */
static const Node *convert_feature_extractor(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *at = reshape(c, conv_in(c, 1), 1, (int64_t[]){-1});
  int rank = rank_of(c, x);
  const Node *y = take(c, x, at, rank - 1);
  return rank == 1 ? unsqueeze(c, y, 0) : y;
}

static const Node *convert_binarizer(Conv *c)
{
  const Node *x = conv_in(c, 0);
  return cast_to(c, op2(c, "greater", x, scalar_like(c, x, attr_float(c, "threshold", 0)), NULL), dtype_of(c, x));
}

static const Node *convert_scaler(Conv *c)
{
  const Node *x = cast_to(c, conv_in(c, 0), DT_F32);
  int no = 0;
  int ns = 0;
  const float *offset = attr_floats(c, "offset", &no);
  const float *scale = attr_floats(c, "scale", &ns);
  if (offset) x = sub(c, x, node_const_copy(c->m, DT_F32, 1, (int64_t[]){no}, offset));
  return scale ? mul(c, x, node_const_copy(c->m, DT_F32, 1, (int64_t[]){ns}, scale)) : x;
}

/* A list of numbers or strings from whichever attribute carries it. */
static const Node *label_list(Conv *c, const char *stem)
{
  int n = 0;
  Arena *a = c->im->arena;
  const Node *s = attr_strings(c, arena_printf(a, "%s_strings", stem));
  if (s) return s;
  const int64_t *i = attr_ints(c, arena_printf(a, "%s_int64s", stem), &n);
  if (i) return const_i64(c, n, i);
  const float *f = attr_floats(c, arena_printf(a, "%s_floats", stem), &n);
  if (f) return node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, f);
  const PAttr *t = conv_attr(c, arena_printf(a, "%s_tensor", stem));
  if (t && t->t) return onnx_tensor(c->im, t->t, c->name);
  conv_fail(c, ERR_ARGUMENT, "it has no %s", stem);
}

static const Node *label_default(Conv *c, DType dt)
{
  const PAttr *t = conv_attr(c, "default_tensor");
  const PAttr *s = conv_attr(c, "default_string");
  if (t && t->t) return scalar_of(c, onnx_tensor(c->im, t->t, c->name));
  if (dtype_is_string(dt)) return s ? string_const(c, s->s.p, s->s.n) : string_const(c, "_Unused", 7);
  return dtype_is_int(dt) ? node_scalar(c->m, value_int(dt, attr_int(c, "default_int64", -1)))
                          : scalar(c, dt, attr_float(c, "default_float", -0.0));
}

/* Strings: the place of the last key that matches, 0 for none, in a table that begins with the default. */
static const Node *look_up(Conv *c, const Node *x, const Node *keys, const Node *values)
{
  int rank = rank_of(c, x);
  int64_t n = static_dim(c, keys, 0);
  if (!dtype_is_string(dtype_of(c, x))) conv_fail(c, ERR_TYPE, "the keys are strings, the input is not");
  const Node *place = arange(c, node_scalar(c->m, value_int(DT_I64, 1)), node_scalar(c->m, value_int(DT_I64, n + 1)),
                             node_scalar(c->m, value_int(DT_I64, 1)), DT_I64);
  const Node *at =
      where(c, op2(c, "equal", unsqueeze(c, x, rank), keys, NULL), place, node_scalar(c->m, value_int(DT_I64, 0)));
  const Node *table = concat2(c, vector_of(c, label_default(c, dtype_of(c, values))), values, 0);
  return take(c, table, reduce1(c, "max", at, rank, false), 0);
}

/* Each key in turn: the last that matches wins; NaN is equal to NaN here. */
static const Node *convert_label_encoder(Conv *c)
{
  const Node *x = conv_in(c, 0);
  const Node *keys = label_list(c, "keys");
  const Node *values = label_list(c, "values");
  const Node *y;
  int64_t n = static_dim(c, keys, 0);
  if (n != static_dim(c, values, 0) || (n > 4096 && !dtype_is_string(dtype_of(c, keys))))
    conv_fail(c, ERR_ARGUMENT, "%" PRId64 " keys and %" PRId64 " values do not fit", n, static_dim(c, values, 0));
  if (n && dtype_is_string(dtype_of(c, keys))) return look_up(c, x, keys, values);
  y = label_default(c, dtype_of(c, values));
  keys = cast_to(c, keys, dtype_of(c, x));
  for (int64_t i = 0; i < n; i++) {
    const Node *key = scalar_of(c, slice(c, keys, 0, i, i + 1));
    const Node *hit = op2(c, "equal", x, key, NULL);
    double k;
    if (dtype_is_float(dtype_of(c, x)) && const_float(c, key, &k) && isnan(k)) hit = op1(c, "isnan", x, NULL);
    y = where(c, hit, scalar_of(c, slice(c, values, 0, i, i + 1)), y);
  }
  return y;
}

/* What turns scores into the result. */
static const Node *post_transform(Conv *c, const Node *y)
{
  const char *how = attr_str(c, "post_transform", "NONE");
  if (!strcmp(how, "NONE")) return y;
  if (!strcmp(how, "LOGISTIC")) return op1(c, "sigmoid", y, NULL);
  if (!strcmp(how, "SOFTMAX")) return softmax(c, y, rank_of(c, y) - 1);
  conv_fail(c, ERR_UNSUPPORTED, "post_transform '%s' is not supported; NONE, LOGISTIC and SOFTMAX are", how);
}

/* x · coefficients (targets, features), plus intercepts. */
static const Node *convert_linear_regressor(Conv *c)
{
  const Node *x = cast_to(c, conv_in(c, 0), DT_F32);
  int nc = 0;
  int ni = 0;
  const float *w = attr_floats(c, "coefficients", &nc);
  const float *b = attr_floats(c, "intercepts", &ni);
  int64_t targets = attr_int(c, "targets", 1);
  if (rank_of(c, x) == 1) x = unsqueeze(c, x, 0);
  int64_t features = static_dim(c, x, 1);
  if (!w || targets < 1 || nc / targets != features || nc % targets)
    conv_fail(c, ERR_SHAPE, "%d coefficients do not make %" PRId64 " targets of %" PRId64 " features", nc, targets,
              features);
  if (b && ni != targets) conv_fail(c, ERR_SHAPE, "%d intercepts are given for %" PRId64 " targets", ni, targets);
  const Node *y = op2(c, "nn.dense", x, node_const_copy(c->m, DT_F32, 2, (int64_t[]){targets, features}, w), NULL);
  if (b) y = add(c, y, node_const_copy(c->m, DT_F32, 1, (int64_t[]){ni}, b));
  return post_transform(c, y);
}

/* ---- trees ------------------------------------------------------------------------------------ */

/* Nodes and, behind them, leaves in one numbering; a leaf is its own successor, so that as many
 * steps as the deepest tree has lead every row and tree to a leaf. */
typedef struct Trees {
  int nnode, nleaf, nroot, depth;
  DType dt;
  const Node *root; /* (1, trees) */
  const Node *feature, *split, *mode, *missing, *yes, *no, *weight, *target;
  /* (nodes + leaves, most members), NaN where there are fewer; NULL: no sets */
  const Node *members;
  bool has_mode[7];
} Trees;

static const int64_t *tree_ints(Conv *c, const char *name, int count, int64_t limit)
{
  int n;
  const int64_t *v = attr_ints(c, name, &n);
  if (!v || n != count) conv_fail(c, ERR_ARGUMENT, "%s has %d elements, %d are wanted", name, v ? n : 0, count);
  for (int i = 0; i < n; i++)
    if (v[i] < 0 || v[i] >= limit)
      conv_fail(c, ERR_ARGUMENT, "%s[%d] is %" PRId64 "; it is 0 to %" PRId64, name, i, v[i], limit - 1);
  return v;
}

static const ConstData *tree_tensor(Conv *c, const char *name, int *count)
{
  const PAttr *a = conv_attr(c, name);
  if (!a || !a->t) conv_fail(c, ERR_ARGUMENT, "%s is missing", name);
  const ConstData *d = onnx_tensor(c->im, a->t, c->name)->u.data;
  int64_t n = (int64_t)(d->bytes / (size_t)dtype_bytes(d->dtype));
  if (n > INT32_MAX / 2 || dtype_is_string(d->dtype))
    conv_fail(c, ERR_ARGUMENT, "%s has %" PRId64 " elements of a kind that trees do not have", name, n);
  *count = (int)n;
  return d;
}

static Value tree_value(const ConstData *d, int i)
{
  return value_load(d->dtype, (const char *)d->data + (size_t)i * (size_t)dtype_bytes(d->dtype));
}

/* Floats of a tensor behind each other, and `more` zeros. */
static const Node *tree_floats(Conv *c, DType dt, const ConstData *d, int n, int before, int after)
{
  size_t size = (size_t)dtype_bytes(dt);
  char *v = arena_alloc(c->im->arena, (size_t)(n + before + after) * size + 1);
  for (int i = 0; i < n; i++) value_store(value_cast(tree_value(d, i), dt), v + (size_t)(before + i) * size);
  return node_const_copy(c->m, dt, 1, (int64_t[]){before + n + after}, v);
}

static const Node *tree_table(Conv *c, const int64_t *v, int n, int after)
{
  int64_t *all = arena_array(c->im->arena, int64_t, n + after + 1);
  for (int i = 0; i < n; i++) all[i] = v[i];
  return const_i64(c, n + after, all);
}

/* Children in the common numbering. */
static int64_t *tree_children(Conv *c, const char *ids, const char *leaves, int nnode, int nleaf)
{
  const int64_t *is_leaf = tree_ints(c, leaves, nnode, 2);
  const int64_t *id = tree_ints(c, ids, nnode, nnode > nleaf ? nnode : nleaf);
  int64_t *to = arena_array(c->im->arena, int64_t, nnode + nleaf + 1);
  for (int i = 0; i < nnode; i++) {
    if (id[i] >= (is_leaf[i] ? nleaf : nnode))
      conv_fail(c, ERR_ARGUMENT, "%s[%d] is %" PRId64 ", there are %d %s", ids, i, id[i], is_leaf[i] ? nleaf : nnode,
                is_leaf[i] ? "leaves" : "nodes");
    to[i] = id[i] + (is_leaf[i] ? nnode : 0);
  }
  for (int i = 0; i < nleaf; i++) to[nnode + i] = nnode + i;
  return to;
}

/* Steps from the roots until only leaves are left; a level at a time, so a cycle never ends. */
static int tree_depth(Conv *c, const Trees *t, const int64_t *root, const int64_t *yes, const int64_t *no)
{
  enum { DEEPEST = 128 };
  bool *now = arena_array(c->im->arena, bool, t->nnode + 1);
  for (int i = 0; i < t->nroot; i++) now[root[i]] = true;
  for (int depth = 0; depth <= DEEPEST; depth++) {
    bool any = false;
    bool *next = arena_array(c->im->arena, bool, t->nnode + 1);
    for (int i = 0; i < t->nnode; i++) {
      any = any || now[i];
      if (now[i] && yes[i] < t->nnode) next[yes[i]] = true;
      if (now[i] && no[i] < t->nnode) next[no[i]] = true;
    }
    if (!any) return depth;
    now = next;
  }
  conv_fail(c, ERR_UNSUPPORTED, "a tree is deeper than %d nodes, or goes round", DEEPEST);
}

/* membership_values: the members of each set in the order of the nodes, NaN behind each set. */
static const Node *tree_members(Conv *c, const Trees *t, const ConstData *mode)
{
  enum { MEMBER = 6 };
  int n;
  int width = 1;
  int at = 0;
  const ConstData *d = tree_tensor(c, "membership_values", &n);
  for (int i = 0, run = 0; i < n; i++) {
    run = isnan(tree_value(d, i).f) ? 0 : run + 1;
    if (run > width) width = run;
  }
  int64_t rows = t->nnode + t->nleaf;
  size_t size = (size_t)dtype_bytes(t->dt);
  char *v = arena_alloc(c->im->arena, size_mul(c->ctx, size_mul(c->ctx, (size_t)rows, (size_t)width, "the members"),
                                               size, "the members"));
  for (int64_t i = 0; i < rows * width; i++) value_store(value_float(t->dt, (double)NAN), v + (size_t)i * size);
  for (int i = 0; i < t->nnode; i++) {
    if (tree_value(mode, i).i != MEMBER) continue;
    if (at >= n) conv_fail(c, ERR_ARGUMENT, "membership_values has no set for node %d", i);
    for (int k = 0; at < n && !isnan(tree_value(d, at).f); k++, at++)
      value_store(value_cast(tree_value(d, at), t->dt), v + (size_t)(i * width + k) * size);
    at++;
  }
  return node_const_copy(c->m, t->dt, 2, (int64_t[]){rows, width}, v);
}

static Trees read_trees(Conv *c, DType dt, int64_t targets, int64_t features)
{
  Trees t = {.dt = dt};
  int nmode;
  const ConstData *split = tree_tensor(c, "nodes_splits", &t.nnode);
  const ConstData *mode = tree_tensor(c, "nodes_modes", &nmode);
  const ConstData *weight = tree_tensor(c, "leaf_weights", &t.nleaf);
  const int64_t *root = attr_ints(c, "tree_roots", &t.nroot);
  if (!t.nnode || !t.nleaf || !root || !t.nroot || nmode != t.nnode || !dtype_is_int(mode->dtype) ||
      !dtype_is_float(split->dtype) || !dtype_is_float(weight->dtype))
    conv_fail(c, ERR_ARGUMENT, "%d nodes with %d modes, %d leaves and %d roots make no trees", t.nnode, nmode, t.nleaf,
              t.nroot);
  root = tree_ints(c, "tree_roots", t.nroot, t.nnode);
  int64_t *yes = tree_children(c, "nodes_truenodeids", "nodes_trueleafs", t.nnode, t.nleaf);
  int64_t *no = tree_children(c, "nodes_falsenodeids", "nodes_falseleafs", t.nnode, t.nleaf);
  t.depth = tree_depth(c, &t, root, yes, no);
  int64_t *modes = arena_array(c->im->arena, int64_t, t.nnode + 1);
  int64_t *target = arena_array(c->im->arena, int64_t, t.nnode + t.nleaf + 1);
  for (int i = 0; i < t.nnode; i++) {
    modes[i] = tree_value(mode, i).i;
    if (modes[i] < 0 || modes[i] > 6)
      conv_fail(c, ERR_ARGUMENT, "nodes_modes[%d] is %" PRId64 "; it is 0 to 6", i, modes[i]);
    t.has_mode[modes[i]] = true;
  }
  memcpy(target + t.nnode, tree_ints(c, "leaf_targetids", t.nleaf, targets), (size_t)t.nleaf * sizeof *target);
  t.root = reshape(c, const_i64(c, t.nroot, root), 2, (int64_t[]){1, t.nroot});
  t.feature = tree_table(c, tree_ints(c, "nodes_featureids", t.nnode, features), t.nnode, t.nleaf);
  t.mode = tree_table(c, modes, t.nnode, t.nleaf);
  if (conv_attr(c, "nodes_missing_value_tracks_true"))
    t.missing = tree_table(c, tree_ints(c, "nodes_missing_value_tracks_true", t.nnode, 2), t.nnode, t.nleaf);
  t.yes = const_i64(c, t.nnode + t.nleaf, yes);
  t.no = const_i64(c, t.nnode + t.nleaf, no);
  t.split = tree_floats(c, dt, split, t.nnode, 0, t.nleaf);
  t.weight = tree_floats(c, dt, weight, t.nleaf, t.nnode, 0);
  t.target = const_i64(c, t.nnode + t.nleaf, target);
  if (t.has_mode[6]) t.members = tree_members(c, &t, mode);
  return t;
}

/* Does the row take the branch "true" at these nodes?  at, v: (rows, trees) */
static const Node *tree_test(Conv *c, const Trees *t, const Node *at, const Node *v)
{
  static const char *const compare[] = {"less_equal", "less", "greater_equal", "greater", "equal", "not_equal"};
  const Node *split = take(c, t->split, at, 0);
  const Node *mode = take(c, t->mode, at, 0);
  const Node *hit = NULL;
  for (int k = 0; k < 7; k++) {
    if (!t->has_mode[k]) continue;
    const Node *here =
        k < 6 ? op2(c, compare[k], v, split, NULL)
              : reduce1(c, "any", op2(c, "equal", unsqueeze(c, v, 2), take(c, t->members, at, 0), NULL), 2, false);
    hit = hit ? where(c, op2(c, "equal", mode, node_scalar(c->m, value_int(DT_I64, k)), NULL), here, hit) : here;
  }
  const Node *missing = op1(c, "isnan", v, NULL);
  if (t->missing) return where(c, missing, cast_to(c, take(c, t->missing, at, 0), DT_BOOL), hit);
  return op2(c, "logical_and", hit, op1(c, "logical_not", missing, NULL), NULL);
}

static const Node *convert_tree_ensemble(Conv *c)
{
  enum { AVERAGE, SUM, MIN, MAX };
  const Node *x = conv_in(c, 0);
  int64_t targets = attr_int(c, "n_targets", 1);
  int64_t how = attr_int(c, "aggregate_function", SUM);
  int64_t after = attr_int(c, "post_transform", 0);
  if (rank_of(c, x) != 2 || !dtype_is_float(dtype_of(c, x))) conv_fail(c, ERR_SHAPE, "a matrix of floats is wanted");
  if (targets < 1 || targets > 1 << 20 || how < AVERAGE || how > MAX || after < 0 || after > 2)
    conv_fail(c, ERR_UNSUPPORTED,
              "%" PRId64 " targets, aggregate_function %" PRId64 " and post_transform %" PRId64
              " do not go; the transforms NONE, SOFTMAX and LOGISTIC do",
              targets, how, after);
  int64_t features;
  Trees t = read_trees(c, dtype_of(c, x), targets, is_static_dim(dim_of(c, x, 1), &features) ? features : INT32_MAX);
  const Node *at =
      broadcast_to(c, t.root, concat2(c, shape_part(c, x, 0, 1), const_i64(c, 1, (int64_t[]){t.nroot}), 0));
  for (int i = 0; i < t.depth; i++) {
    const Node *v = op2(c, "gather", x, take(c, t.feature, at, 0), "axis:i", 1);
    at = where(c, tree_test(c, &t, at, v), take(c, t.yes, at, 0), take(c, t.no, at, 0));
  }
  const Node *one = node_scalar(c->m, value_int(DT_I64, 1));
  const Node *weight = unsqueeze(c, take(c, t.weight, at, 0), 2);
  const Node *places =
      arange(c, node_scalar(c->m, value_int(DT_I64, 0)), node_scalar(c->m, value_int(DT_I64, targets)), one, DT_I64);
  const Node *mine = op2(c, "equal", unsqueeze(c, take(c, t.target, at, 0), 2), places, NULL);
  double none = how == MIN ? INFINITY : how == MAX ? -INFINITY : 0;
  const Node *y = reduce1(c,
                          how == MIN   ? "min"
                          : how == MAX ? "max"
                                       : "sum",
                          where(c, mine, weight, scalar(c, t.dt, none)), 1, false);
  if (how == MIN || how == MAX) y = where(c, reduce1(c, "any", mine, 1, false), y, scalar(c, t.dt, 0));
  if (how == AVERAGE) y = div_(c, y, scalar(c, t.dt, t.nroot));
  return after == 1 ? softmax(c, y, 1) : after == 2 ? op1(c, "sigmoid", y, NULL) : y;
}

static const OnnxRow rows[] = {
  {"ArrayFeatureExtractor", 1, convert_feature_extractor},
  {"Binarizer", 1, convert_binarizer},
  {"LabelEncoder", 2, convert_label_encoder},
  {"LinearRegressor", 1, convert_linear_regressor},
  {"Scaler", 1, convert_scaler},
  {"TreeEnsemble", 5, convert_tree_ensemble},
};
ONNX_TABLE(onnx_ml, "ai.onnx.ml", rows);
