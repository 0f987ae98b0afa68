/* test_onnx_ml.c: models of ai.onnx.ml that lie, one test for each way; and trees by hand, run by the interpreter.
 * What exporters write is compared with ONNX Runtime in tests/python/test_onnx_ml.py. */
#include "frontend/test_onnx.h"

#include <math.h>

static void attr_fs(World *w, Text *node, const char *name, int n, const float *v)
{
  Text a = fresh(w);
  pb_str(&a, 1, name);
  for (int i = 0; i < n; i++) pb_float(&a, 7, v[i]);
  pb_int(&a, 20, PATTR_FLOATS);
  pb_msg(node, 5, &a);
}
static void attr_ss(World *w, Text *node, const char *name, const char *list)
{
  Text a = fresh(w);
  pb_str(&a, 1, name);
  add_names(w, &a, 9, list);
  pb_int(&a, 20, PATTR_STRINGS);
  pb_msg(node, 5, &a);
}
static void attr_s(World *w, Text *node, const char *name, const char *v)
{
  Text a = fresh(w);
  pb_str(&a, 1, name);
  pb_str(&a, 4, v);
  pb_int(&a, 20, PATTR_STRING);
  pb_msg(node, 5, &a);
}

static void import_ml(World *w, Text node, const char *outputs)
{
  Graph g = graph_new(w);
  g_input(&g, "x", ONNX_FLOAT, "n,2");
  pb_str(&node, 7, "ai.onnx.ml");
  g_add(&g, node);
  g_output(&g, outputs);
  Text m = model_of(&g, 17);
  Text o = opset_of(w, "ai.onnx.ml", 3);
  pb_msg(&m, 8, &o);
  onnx_import(w->m, text_str(&m), m.n, NULL, NULL, NULL);
}

/* ---- trees -------------------------------------------------------------------------------------------- */

/* A stump: x[feature] compared with split, 10 or 20 for target 0.  Anything may be told otherwise. */
typedef struct Stump {
  const char *modes;
  int64_t tree[3], node[3], feature[3], yes[3], no[3], target[2], leaf[2], missing[3];
  float split, weight[2];
  int nyes, nweight, nvalues, targets, nbase, nmissing;
  const char *aggregate, *post;
} Stump;

static Stump stump(void)
{
  return (Stump){.modes = "BRANCH_LEQ,LEAF,LEAF",
                 .node = {0, 1, 2},
                 .yes = {1, 0, 0},
                 .no = {2, 0, 0},
                 .leaf = {1, 2},
                 .weight = {10, 20},
                 .nyes = 3,
                 .nweight = 2,
                 .nvalues = 3,
                 .targets = 1,
                 .aggregate = "SUM",
                 .post = "NONE"};
}

static void import_stump(World *w, Stump s)
{
  Text p = node_of(w, "TreeEnsembleRegressor", "x", "y");
  attr_ss(w, &p, "nodes_modes", s.modes);
  attr_is(w, &p, "nodes_treeids", 3, s.tree);
  attr_is(w, &p, "nodes_nodeids", 3, s.node);
  attr_is(w, &p, "nodes_featureids", 3, s.feature);
  attr_is(w, &p, "nodes_truenodeids", s.nyes, s.yes);
  attr_is(w, &p, "nodes_falsenodeids", 3, s.no);
  attr_fs(w, &p, "nodes_values", s.nvalues, (float[]){s.split, 0, 0});
  attr_is(w, &p, "target_ids", 2, s.target);
  attr_is(w, &p, "target_nodeids", 2, s.leaf);
  attr_is(w, &p, "target_treeids", 2, (int64_t[]){0, 0});
  attr_fs(w, &p, "target_weights", s.nweight, s.weight);
  attr_i(w, &p, "n_targets", s.targets);
  attr_s(w, &p, "aggregate_function", s.aggregate);
  attr_s(w, &p, "post_transform", s.post);
  if (s.nmissing) attr_is(w, &p, "nodes_missing_value_tracks_true", s.nmissing, s.missing);
  if (s.nbase) attr_fs(w, &p, "base_values", s.nbase, (float[]){1, 2, 3, 4});
  import_ml(w, p, "y");
}

/* What rows of one feature come to, NaN last. */
static void expect_stump(World *w, Stump s, const float *want)
{
  static const float x[] = {-1, 0, 0, 0, 0.5F, 0, 2, 0, NAN, 0};
  import_stump(w, s);
  const RtValue *arg = value_tensor(w, DT_F32, 2, (int64_t[]){5, 2}, x);
  expect_floats(run_main(w, 1, &arg), 2, (int64_t[]){5, 1}, want);
}

CASE(every_mode_of_a_node)
{
  static const struct {
    const char *modes;
    float want[5];
  } all[] = {
    {"BRANCH_LEQ,LEAF,LEAF", {10, 10, 20, 20, 20}}, {"BRANCH_LT,LEAF,LEAF", {10, 20, 20, 20, 20}},
    {"BRANCH_GTE,LEAF,LEAF", {20, 10, 10, 10, 20}}, {"BRANCH_GT,LEAF,LEAF", {20, 20, 10, 10, 20}},
    {"BRANCH_EQ,LEAF,LEAF", {20, 10, 20, 20, 20}},  {"BRANCH_NEQ,LEAF,LEAF", {10, 20, 10, 10, 10}},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    Stump s = stump();
    s.modes = all[i].modes;
    expect_stump(w, s, all[i].want);
  }
}
CASE(missing_values_track_true)
{
  Stump s = stump();
  s.modes = "BRANCH_GT,LEAF,LEAF";
  s.nmissing = 3;
  s.missing[0] = 1;
  expect_stump(w, s, (float[]){20, 20, 10, 10, 10});
}
CASE(a_threshold_of_minus_infinity)
{
  Stump s = stump();
  s.modes = "BRANCH_GTE,LEAF,LEAF";
  s.split = -INFINITY;
  expect_stump(w, s, (float[]){10, 10, 10, 10, 20});
}
CASE(base_values_and_the_least)
{
  Stump s = stump();
  s.aggregate = "MIN";
  s.nbase = 1;
  expect_stump(w, s, (float[]){11, 11, 21, 21, 21});
}

#define STUMP_REFUSED(name, kind, change, ...) \
  REFUSED(name, kind, __VA_ARGS__)             \
  {                                            \
    Stump s = stump();                         \
    change;                                    \
    import_stump(w, s);                        \
  }
STUMP_REFUSED(a_tree_that_goes_round, ERR_ARGUMENT, (s.modes = "BRANCH_LEQ,BRANCH_LEQ,LEAF", s.no[1] = 2), "circle")
STUMP_REFUSED(a_node_that_is_its_own_child, ERR_ARGUMENT, s.yes[0] = 0, "circle")
STUMP_REFUSED(a_child_that_is_not_there, ERR_ARGUMENT, s.no[0] = 7, "nodes_falsenodeids[0] is 7", "tree 0")
STUMP_REFUSED(a_child_below_zero, ERR_ARGUMENT, s.yes[0] = -1, "nodes_truenodeids[0] is -1")
STUMP_REFUSED(a_child_in_another_tree, ERR_ARGUMENT, s.tree[2] = 1, "nodes_falsenodeids[0] is 2", "tree 0")
STUMP_REFUSED(a_mode_that_is_none, ERR_ARGUMENT, s.modes = "BRANCH_MAYBE,LEAF,LEAF", "'BRANCH_MAYBE'", "no mode")
STUMP_REFUSED(a_threshold_that_is_no_number, ERR_ARGUMENT, s.split = NAN, "nodes_values[0] is NaN")
STUMP_REFUSED(a_weight_that_is_no_number, ERR_ARGUMENT, s.weight[1] = NAN, "target_weights[1] is NaN")
STUMP_REFUSED(lists_that_differ_in_length, ERR_ARGUMENT, s.nyes = 2, "nodes_truenodeids has 2 elements, 3")
STUMP_REFUSED(too_few_thresholds, ERR_ARGUMENT, s.nvalues = 1, "nodes_values has 1 elements, 3")
STUMP_REFUSED(too_few_weights, ERR_ARGUMENT, s.nweight = 1, "target_ids has 2 elements, 1")
STUMP_REFUSED(too_few_missing, ERR_ARGUMENT, s.nmissing = 2, "tracks_true has 2 elements, 3")
STUMP_REFUSED(no_trees, ERR_ARGUMENT, s.modes = "", "no trees")
STUMP_REFUSED(a_node_twice, ERR_ARGUMENT, s.node[2] = 1, "node 1 of tree 0 is there twice")
STUMP_REFUSED(a_feature_too_many, ERR_ARGUMENT, s.feature[0] = 2, "nodes_featureids[0] is 2", "2 features")
STUMP_REFUSED(a_target_too_many, ERR_ARGUMENT, s.target[1] = 1, "target_ids[1] is 1; it is 0 to 0")
STUMP_REFUSED(a_weight_of_no_node, ERR_ARGUMENT, s.leaf[0] = 9, "target_nodeids[0] is 9")
STUMP_REFUSED(no_targets, ERR_ARGUMENT, s.targets = 0, "0 targets")
STUMP_REFUSED(a_billion_targets, ERR_ARGUMENT, s.targets = 1 << 30, "1073741824 targets")
STUMP_REFUSED(bases_that_do_not_fit, ERR_ARGUMENT, s.nbase = 3, "base_values has 3 elements")
STUMP_REFUSED(an_unknown_aggregate, ERR_ARGUMENT, s.aggregate = "MEDIAN", "'MEDIAN'", "AVERAGE")
STUMP_REFUSED(an_unknown_transform, ERR_ARGUMENT, s.post = "SQUARE", "'SQUARE'", "PROBIT")

/* ---- the others --------------------------------------------------------------------------------------- */

REFUSED(a_classifier_without_labels, ERR_ARGUMENT, "class labels")
{
  Text p = node_of(w, "LinearClassifier", "x", "l,y");
  attr_fs(w, &p, "coefficients", 2, (float[]){1, 2});
  import_ml(w, p, "y");
}
REFUSED(coefficients_that_make_no_rows, ERR_ARGUMENT, "6 coefficients", "3 rows", "2 class labels")
{
  Text p = node_of(w, "LinearClassifier", "x", "l,y");
  attr_fs(w, &p, "coefficients", 6, (float[]){1, 2, 3, 4, 5, 6});
  attr_is(w, &p, "classlabels_ints", 2, (int64_t[]){0, 1});
  import_ml(w, p, "y");
}
REFUSED(support_vectors_that_do_not_fit, ERR_SHAPE, "support_vectors has 5 elements", "3 vectors of 2")
{
  Text p = node_of(w, "SVMRegressor", "x", "y");
  attr_i(w, &p, "n_supports", 3);
  attr_fs(w, &p, "support_vectors", 5, (float[]){1, 2, 3, 4, 5});
  attr_fs(w, &p, "coefficients", 3, (float[]){1, 2, 3});
  attr_fs(w, &p, "rho", 1, (float[]){0});
  import_ml(w, p, "y");
}
REFUSED(a_kernel_that_is_none, ERR_ARGUMENT, "'WAVELET'", "RBF")
{
  Text p = node_of(w, "SVMRegressor", "x", "y");
  attr_i(w, &p, "n_supports", 1);
  attr_fs(w, &p, "support_vectors", 2, (float[]){1, 2});
  attr_fs(w, &p, "coefficients", 1, (float[]){1});
  attr_fs(w, &p, "rho", 1, (float[]){0});
  attr_s(w, &p, "kernel_type", "WAVELET");
  import_ml(w, p, "y");
}
REFUSED(vectors_of_a_negative_number, ERR_ARGUMENT, "vectors_per_class[0] is -4")
{
  Text p = node_of(w, "SVMClassifier", "x", "l,y");
  attr_is(w, &p, "vectors_per_class", 2, (int64_t[]){-4, 5});
  attr_is(w, &p, "classlabels_ints", 2, (int64_t[]){0, 1});
  import_ml(w, p, "y");
}
REFUSED(scales_that_do_not_fit, ERR_ARGUMENT, "scale has 3 elements; 1 or 2")
{
  Text p = node_of(w, "Scaler", "x", "y");
  attr_fs(w, &p, "scale", 3, (float[]){1, 2, 3});
  import_ml(w, p, "y");
}
REFUSED(an_unknown_norm, ERR_ARGUMENT, "norm is 'L7'")
{
  Text p = node_of(w, "Normalizer", "x", "y");
  attr_s(w, &p, "norm", "L7");
  import_ml(w, p, "y");
}
REFUSED(an_imputer_without_values, ERR_ARGUMENT, "imputed_value_floats")
{
  import_ml(w, node_of(w, "Imputer", "x", "y"), "y");
}
REFUSED(keys_without_values, ERR_ARGUMENT, "2 keys and 1 values")
{
  Text p = node_of(w, "LabelEncoder", "x", "y");
  attr_fs(w, &p, "keys_floats", 2, (float[]){1, 2});
  attr_fs(w, &p, "values_floats", 1, (float[]){1});
  import_ml(w, p, "y");
}
REFUSED(no_categories, ERR_ARGUMENT, "no categories") { import_ml(w, node_of(w, "OneHotEncoder", "x", "y"), "y"); }
REFUSED(labels_for_other_columns, ERR_SHAPE, "3 class labels for 2 columns")
{
  Text p = node_of(w, "ZipMap", "x", "y");
  attr_is(w, &p, "classlabels_int64s", 3, (int64_t[]){1, 2, 3});
  import_ml(w, p, "y");
}
REFUSED(a_map_that_is_none, ERR_TYPE, "a map is wanted")
{
  Text p = node_of(w, "DictVectorizer", "x", "y");
  attr_ss(w, &p, "string_vocabulary", "a,b");
  import_ml(w, p, "y");
}
REFUSED(dimensions_of_inputs_that_are_not_there, ERR_ARGUMENT, "inputdimensions has 2 elements for 1 inputs")
{
  Text p = node_of(w, "FeatureVectorizer", "x", "y");
  attr_is(w, &p, "inputdimensions", 2, (int64_t[]){1, 2});
  import_ml(w, p, "y");
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
    T(every_mode_of_a_node),
    T(missing_values_track_true),
    T(a_threshold_of_minus_infinity),
    T(base_values_and_the_least),
    T(a_tree_that_goes_round),
    T(a_node_that_is_its_own_child),
    T(a_child_that_is_not_there),
    T(a_child_below_zero),
    T(a_child_in_another_tree),
    T(a_mode_that_is_none),
    T(a_threshold_that_is_no_number),
    T(a_weight_that_is_no_number),
    T(lists_that_differ_in_length),
    T(too_few_thresholds),
    T(too_few_weights),
    T(too_few_missing),
    T(no_trees),
    T(a_node_twice),
    T(a_feature_too_many),
    T(a_target_too_many),
    T(a_weight_of_no_node),
    T(no_targets),
    T(a_billion_targets),
    T(bases_that_do_not_fit),
    T(an_unknown_aggregate),
    T(an_unknown_transform),
    T(a_classifier_without_labels),
    T(coefficients_that_make_no_rows),
    T(support_vectors_that_do_not_fit),
    T(a_kernel_that_is_none),
    T(vectors_of_a_negative_number),
    T(scales_that_do_not_fit),
    T(an_unknown_norm),
    T(an_imputer_without_values),
    T(keys_without_values),
    T(no_categories),
    T(labels_for_other_columns),
    T(a_map_that_is_none),
    T(dimensions_of_inputs_that_are_not_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
