/* onnx_ops_ml.c: operators of ai.onnx.ml.
 *
 * Comes in: feature tensors.  Goes out: takes, comparisons, selections; trees are walked a level at a time, all
 * rows and trees together. */
#include <math.h>

#include "frontend/onnx_import.h"

/* Columns by number, from the last axis. */
static const Node *convert_feature_extractor(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *at = onnx_reshape(c, onnx_in(c, 1), 1, (int64_t[]){-1});
  int rank = onnx_rank_of(c, x);
  const Node *y = onnx_take(c, x, at, rank - 1);
  return rank == 1 ? onnx_unsqueeze(c, y, 0) : y;
}

static const Node *convert_binarizer(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  return onnx_cast_to(c, onnx_op2(c, "greater", x, onnx_scalar_like(c, x, onnx_attr_float(c, "threshold", 0)), NULL),
                      onnx_dtype_of(c, x));
}

static const Node *convert_scaler(Conversion *c)
{
  const Node *x = onnx_cast_to(c, onnx_in(c, 0), DT_F32);
  int no = 0;
  int ns = 0;
  const float *offset = onnx_attr_floats(c, "offset", &no);
  const float *scale = onnx_attr_floats(c, "scale", &ns);
  if (offset) x = onnx_sub(c, x, node_const_copy(c->m, DT_F32, 1, (int64_t[]){no}, offset));
  return scale ? onnx_mul(c, x, node_const_copy(c->m, DT_F32, 1, (int64_t[]){ns}, scale)) : x;
}

/* A list of numbers or strings from whichever attribute carries it. */
static const Node *label_list(Conversion *c, const char *stem)
{
  int n = 0;
  Arena *a = c->im->arena;
  const Node *s = onnx_attr_strings(c, arena_printf(a, "%s_strings", stem));
  if (s) return s;
  const int64_t *i = onnx_attr_ints(c, arena_printf(a, "%s_int64s", stem), &n);
  if (i) return onnx_const_i64(c, n, i);
  const float *f = onnx_attr_floats(c, arena_printf(a, "%s_floats", stem), &n);
  if (f) return node_const_copy(c->m, DT_F32, 1, (int64_t[]){n}, f);
  const PAttr *t = onnx_attr(c, arena_printf(a, "%s_tensor", stem));
  if (t && t->t) return onnx_tensor(c->im, t->t, c->name);
  onnx_fail(c, ERR_ARGUMENT, "it has no %s", stem);
}

static const Node *label_default(Conversion *c, DType dt)
{
  const PAttr *t = onnx_attr(c, "default_tensor");
  const PAttr *s = onnx_attr(c, "default_string");
  if (t && t->t) return onnx_scalar_of(c, onnx_tensor(c->im, t->t, c->name));
  if (dtype_is_string(dt)) return s ? onnx_string_const(c, s->s.p, s->s.n) : onnx_string_const(c, "_Unused", 7);
  return dtype_is_int(dt) ? node_scalar(c->m, value_int(dt, onnx_attr_int(c, "default_int64", -1)))
                          : onnx_scalar(c, dt, onnx_attr_float(c, "default_float", -0.0));
}

/* Strings: the place of the last key that matches, 0 for none, in a table that begins with the default. */
static const Node *look_up(Conversion *c, const Node *x, const Node *keys, const Node *values)
{
  int rank = onnx_rank_of(c, x);
  int64_t n = onnx_static_dim(c, keys, 0);
  if (!dtype_is_string(onnx_dtype_of(c, x))) onnx_fail(c, ERR_TYPE, "the keys are strings, the input is not");
  const Node *place =
      onnx_arange(c, node_scalar(c->m, value_int(DT_I64, 1)), node_scalar(c->m, value_int(DT_I64, n + 1)),
                  node_scalar(c->m, value_int(DT_I64, 1)), DT_I64);
  const Node *at = onnx_where(c, onnx_op2(c, "equal", onnx_unsqueeze(c, x, rank), keys, NULL), place,
                              node_scalar(c->m, value_int(DT_I64, 0)));
  const Node *table = onnx_concat2(c, onnx_vector_of(c, label_default(c, onnx_dtype_of(c, values))), values, 0);
  return onnx_take(c, table, onnx_reduce1(c, "max", at, rank, false), 0);
}

/* Each key in turn: the last that matches wins; NaN is equal to NaN here. */
static const Node *convert_label_encoder(Conversion *c)
{
  const Node *x = onnx_in(c, 0);
  const Node *keys = label_list(c, "keys");
  const Node *values = label_list(c, "values");
  const Node *y;
  int64_t n = onnx_static_dim(c, keys, 0);
  if (n != onnx_static_dim(c, values, 0) || (n > 4096 && !dtype_is_string(onnx_dtype_of(c, keys))))
    onnx_fail(c, ERR_ARGUMENT, "%" PRId64 " keys and %" PRId64 " values do not fit", n, onnx_static_dim(c, values, 0));
  if (n && dtype_is_string(onnx_dtype_of(c, keys))) return look_up(c, x, keys, values);
  y = label_default(c, onnx_dtype_of(c, values));
  keys = onnx_cast_to(c, keys, onnx_dtype_of(c, x));
  for (int64_t i = 0; i < n; i++) {
    const Node *key = onnx_scalar_of(c, onnx_slice(c, keys, 0, i, i + 1));
    const Node *hit = onnx_op2(c, "equal", x, key, NULL);
    double k;
    if (dtype_is_float(onnx_dtype_of(c, x)) && onnx_const_float(c, key, &k) && isnan(k))
      hit = onnx_op1(c, "isnan", x, NULL);
    y = onnx_where(c, hit, onnx_scalar_of(c, onnx_slice(c, values, 0, i, i + 1)), y);
  }
  return y;
}

/* What turns scores into the result. */
static const Node *post_transform(Conversion *c, const Node *y)
{
  const char *how = onnx_attr_str(c, "post_transform", "NONE");
  if (!strcmp(how, "NONE")) return y;
  if (!strcmp(how, "LOGISTIC")) return onnx_op1(c, "sigmoid", y, NULL);
  if (!strcmp(how, "SOFTMAX")) return onnx_softmax(c, y, onnx_rank_of(c, y) - 1);
  onnx_fail(c, ERR_UNSUPPORTED, "post_transform '%s' is not supported; NONE, LOGISTIC and SOFTMAX are", how);
}

/* x · coefficients (targets, features), plus intercepts. */
static const Node *convert_linear_regressor(Conversion *c)
{
  const Node *x = onnx_cast_to(c, onnx_in(c, 0), DT_F32);
  int nc = 0;
  int ni = 0;
  const float *w = onnx_attr_floats(c, "coefficients", &nc);
  const float *b = onnx_attr_floats(c, "intercepts", &ni);
  int64_t targets = onnx_attr_int(c, "targets", 1);
  if (onnx_rank_of(c, x) == 1) x = onnx_unsqueeze(c, x, 0);
  int64_t features = onnx_static_dim(c, x, 1);
  if (!w || targets < 1 || nc / targets != features || nc % targets)
    onnx_fail(c, ERR_SHAPE, "%d coefficients do not make %" PRId64 " targets of %" PRId64 " features", nc, targets,
              features);
  if (b && ni != targets) onnx_fail(c, ERR_SHAPE, "%d intercepts are given for %" PRId64 " targets", ni, targets);
  const Node *y = onnx_op2(c, "nn.dense", x, node_const_copy(c->m, DT_F32, 2, (int64_t[]){targets, features}, w), NULL);
  if (b) y = onnx_add(c, y, node_const_copy(c->m, DT_F32, 1, (int64_t[]){ni}, b));
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

static const int64_t *tree_ints(Conversion *c, const char *name, int count, int64_t limit)
{
  int n;
  const int64_t *v = onnx_attr_ints(c, name, &n);
  if (!v || n != count) onnx_fail(c, ERR_ARGUMENT, "%s has %d elements, %d are wanted", name, v ? n : 0, count);
  for (int i = 0; i < n; i++)
    if (v[i] < 0 || v[i] >= limit)
      onnx_fail(c, ERR_ARGUMENT, "%s[%d] is %" PRId64 "; it is 0 to %" PRId64, name, i, v[i], limit - 1);
  return v;
}

static const ConstData *tree_tensor(Conversion *c, const char *name, int *count)
{
  const PAttr *a = onnx_attr(c, name);
  if (!a || !a->t) onnx_fail(c, ERR_ARGUMENT, "%s is missing", name);
  const ConstData *d = onnx_tensor(c->im, a->t, c->name)->u.data;
  int64_t n = (int64_t)(d->bytes / (size_t)dtype_bytes(d->dtype));
  if (n > INT32_MAX / 2 || dtype_is_string(d->dtype))
    onnx_fail(c, ERR_ARGUMENT, "%s has %" PRId64 " elements of a kind that trees do not have", name, n);
  *count = (int)n;
  return d;
}

static Value tree_value(const ConstData *d, int i)
{
  return value_load(d->dtype, (const char *)d->data + (size_t)i * (size_t)dtype_bytes(d->dtype));
}

/* Floats of a tensor behind each other, and `more` zeros. */
static const Node *tree_floats(Conversion *c, DType dt, const ConstData *d, int n, int before, int after)
{
  size_t size = (size_t)dtype_bytes(dt);
  char *v = arena_alloc(c->im->arena, (size_t)(n + before + after) * size + 1);
  for (int i = 0; i < n; i++) value_store(value_cast(tree_value(d, i), dt), v + (size_t)(before + i) * size);
  return node_const_copy(c->m, dt, 1, (int64_t[]){before + n + after}, v);
}

static const Node *tree_table(Conversion *c, const int64_t *v, int n, int after)
{
  int64_t *all = arena_array(c->im->arena, int64_t, n + after + 1);
  for (int i = 0; i < n; i++) all[i] = v[i];
  return onnx_const_i64(c, n + after, all);
}

/* Children in the common numbering. */
static int64_t *tree_children(Conversion *c, const char *ids, const char *leaves, int nnode, int nleaf)
{
  const int64_t *is_leaf = tree_ints(c, leaves, nnode, 2);
  const int64_t *id = tree_ints(c, ids, nnode, nnode > nleaf ? nnode : nleaf);
  int64_t *to = arena_array(c->im->arena, int64_t, nnode + nleaf + 1);
  for (int i = 0; i < nnode; i++) {
    if (id[i] >= (is_leaf[i] ? nleaf : nnode))
      onnx_fail(c, ERR_ARGUMENT, "%s[%d] is %" PRId64 ", there are %d %s", ids, i, id[i], is_leaf[i] ? nleaf : nnode,
                is_leaf[i] ? "leaves" : "nodes");
    to[i] = id[i] + (is_leaf[i] ? nnode : 0);
  }
  for (int i = 0; i < nleaf; i++) to[nnode + i] = nnode + i;
  return to;
}

/* Steps from the roots until only leaves are left; a level at a time, so a cycle never ends. */
static int tree_depth(Conversion *c, const Trees *t, const int64_t *root, const int64_t *yes, const int64_t *no)
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
  onnx_fail(c, ERR_UNSUPPORTED, "a tree is deeper than %d nodes, or goes round", DEEPEST);
}

/* membership_values: the members of each set in the order of the nodes, NaN behind each set. */
static const Node *tree_members(Conversion *c, const Trees *t, const ConstData *mode)
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
  char *v =
      arena_alloc(c->im->arena, mem_size_mul(c->ctx, mem_size_mul(c->ctx, (size_t)rows, (size_t)width, "the members"),
                                             size, "the members"));
  for (int64_t i = 0; i < rows * width; i++) value_store(value_float(t->dt, (double)NAN), v + (size_t)i * size);
  for (int i = 0; i < t->nnode; i++) {
    if (tree_value(mode, i).i != MEMBER) continue;
    if (at >= n) onnx_fail(c, ERR_ARGUMENT, "membership_values has no set for node %d", i);
    for (int k = 0; at < n && !isnan(tree_value(d, at).f); k++, at++)
      value_store(value_cast(tree_value(d, at), t->dt), v + (size_t)(i * width + k) * size);
    at++;
  }
  return node_const_copy(c->m, t->dt, 2, (int64_t[]){rows, width}, v);
}

static Trees read_trees(Conversion *c, DType dt, int64_t targets, int64_t features)
{
  Trees t = {.dt = dt};
  int nmode;
  const ConstData *split = tree_tensor(c, "nodes_splits", &t.nnode);
  const ConstData *mode = tree_tensor(c, "nodes_modes", &nmode);
  const ConstData *weight = tree_tensor(c, "leaf_weights", &t.nleaf);
  const int64_t *root = onnx_attr_ints(c, "tree_roots", &t.nroot);
  if (!t.nnode || !t.nleaf || !root || !t.nroot || nmode != t.nnode || !dtype_is_int(mode->dtype) ||
      !dtype_is_float(split->dtype) || !dtype_is_float(weight->dtype))
    onnx_fail(c, ERR_ARGUMENT, "%d nodes with %d modes, %d leaves and %d roots make no trees", t.nnode, nmode, t.nleaf,
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
      onnx_fail(c, ERR_ARGUMENT, "nodes_modes[%d] is %" PRId64 "; it is 0 to 6", i, modes[i]);
    t.has_mode[modes[i]] = true;
  }
  memcpy(target + t.nnode, tree_ints(c, "leaf_targetids", t.nleaf, targets), (size_t)t.nleaf * sizeof *target);
  t.root = onnx_reshape(c, onnx_const_i64(c, t.nroot, root), 2, (int64_t[]){1, t.nroot});
  t.feature = tree_table(c, tree_ints(c, "nodes_featureids", t.nnode, features), t.nnode, t.nleaf);
  t.mode = tree_table(c, modes, t.nnode, t.nleaf);
  if (onnx_attr(c, "nodes_missing_value_tracks_true"))
    t.missing = tree_table(c, tree_ints(c, "nodes_missing_value_tracks_true", t.nnode, 2), t.nnode, t.nleaf);
  t.yes = onnx_const_i64(c, t.nnode + t.nleaf, yes);
  t.no = onnx_const_i64(c, t.nnode + t.nleaf, no);
  t.split = tree_floats(c, dt, split, t.nnode, 0, t.nleaf);
  t.weight = tree_floats(c, dt, weight, t.nleaf, t.nnode, 0);
  t.target = onnx_const_i64(c, t.nnode + t.nleaf, target);
  if (t.has_mode[6]) t.members = tree_members(c, &t, mode);
  return t;
}

/* Does the row take the branch "true" at these nodes?  at, v: (rows, trees) */
static const Node *tree_test(Conversion *c, const Trees *t, const Node *at, const Node *v)
{
  static const char *const compare[] = {"less_equal", "less", "greater_equal", "greater", "equal", "not_equal"};
  const Node *split = onnx_take(c, t->split, at, 0);
  const Node *mode = onnx_take(c, t->mode, at, 0);
  const Node *hit = NULL;
  for (int k = 0; k < 7; k++) {
    if (!t->has_mode[k]) continue;
    const Node *here =
        k < 6 ? onnx_op2(c, compare[k], v, split, NULL)
              : onnx_reduce1(c, "any",
                             onnx_op2(c, "equal", onnx_unsqueeze(c, v, 2), onnx_take(c, t->members, at, 0), NULL), 2,
                             false);
    hit = hit ? onnx_where(c, onnx_op2(c, "equal", mode, node_scalar(c->m, value_int(DT_I64, k)), NULL), here, hit)
              : here;
  }
  const Node *missing = onnx_op1(c, "isnan", v, NULL);
  if (t->missing) return onnx_where(c, missing, onnx_cast_to(c, onnx_take(c, t->missing, at, 0), DT_BOOL), hit);
  return onnx_op2(c, "logical_and", hit, onnx_op1(c, "logical_not", missing, NULL), NULL);
}

static const Node *convert_tree_ensemble(Conversion *c)
{
  enum { AVERAGE, SUM, MIN, MAX };
  const Node *x = onnx_in(c, 0);
  int64_t targets = onnx_attr_int(c, "n_targets", 1);
  int64_t how = onnx_attr_int(c, "aggregate_function", SUM);
  int64_t after = onnx_attr_int(c, "post_transform", 0);
  if (onnx_rank_of(c, x) != 2 || !dtype_is_float(onnx_dtype_of(c, x)))
    onnx_fail(c, ERR_SHAPE, "a matrix of floats is wanted");
  if (targets < 1 || targets > 1 << 20 || how < AVERAGE || how > MAX || after < 0 || after > 2)
    onnx_fail(c, ERR_UNSUPPORTED,
              "%" PRId64 " targets, aggregate_function %" PRId64 " and post_transform %" PRId64
              " do not go; the transforms NONE, SOFTMAX and LOGISTIC do",
              targets, how, after);
  int64_t features;
  Trees t = read_trees(c, onnx_dtype_of(c, x), targets,
                       onnx_is_static_dim(onnx_dim_of(c, x, 1), &features) ? features : INT32_MAX);
  const Node *at = onnx_broadcast_to(
      c, t.root, onnx_concat2(c, onnx_shape_part(c, x, 0, 1), onnx_const_i64(c, 1, (int64_t[]){t.nroot}), 0));
  for (int i = 0; i < t.depth; i++) {
    const Node *v = onnx_op2(c, "gather", x, onnx_take(c, t.feature, at, 0), "axis:i", 1);
    at = onnx_where(c, tree_test(c, &t, at, v), onnx_take(c, t.yes, at, 0), onnx_take(c, t.no, at, 0));
  }
  const Node *one = node_scalar(c->m, value_int(DT_I64, 1));
  const Node *weight = onnx_unsqueeze(c, onnx_take(c, t.weight, at, 0), 2);
  const Node *places = onnx_arange(c, node_scalar(c->m, value_int(DT_I64, 0)),
                                   node_scalar(c->m, value_int(DT_I64, targets)), one, DT_I64);
  const Node *mine = onnx_op2(c, "equal", onnx_unsqueeze(c, onnx_take(c, t.target, at, 0), 2), places, NULL);
  double none = how == MIN ? INFINITY : how == MAX ? -INFINITY : 0;
  const Node *y = onnx_reduce1(c,
                               how == MIN   ? "min"
                               : how == MAX ? "max"
                                            : "sum",
                               onnx_where(c, mine, weight, onnx_scalar(c, t.dt, none)), 1, false);
  if (how == MIN || how == MAX) y = onnx_where(c, onnx_reduce1(c, "any", mine, 1, false), y, onnx_scalar(c, t.dt, 0));
  if (how == AVERAGE) y = onnx_div(c, y, onnx_scalar(c, t.dt, t.nroot));
  return after == 1 ? onnx_softmax(c, y, 1) : after == 2 ? onnx_op1(c, "sigmoid", y, NULL) : y;
}

static const OnnxRow rows[] = {
  {"ArrayFeatureExtractor", 1, convert_feature_extractor},
  {"Binarizer", 1, convert_binarizer},
  {"LabelEncoder", 2, convert_label_encoder},
  {"LinearRegressor", 1, convert_linear_regressor},
  {"Scaler", 1, convert_scaler},
  {"TreeEnsemble", 5, convert_tree_ensemble},
};
ONNX_TABLE(onnx_ops_ml, "ai.onnx.ml", rows);
