/* test_ml.c: ensembles of trees and the probabilities of pairs.  Expected values are by hand. */
#include "op/test_shape.h"

#include <math.h>

/* Two trees over leaves 0, 1, 2:  node 3 asks x0 <= 1 for leaf 0 or node 4, node 4 asks x1 <= 5 for leaf 1 or 2.
 * The first tree begins at 3, the second at 4. */
static Data nodes(World *w)
{
  return TENSOR(DT_I32, DIMS(5, 4), 0, 0, 0, 0, 0, 1, 1, 1, 0, 2, 2, 2, 0, 0, 4, 4, 1, 1, 2, 0);
}
static Data splits(World *w) { return TENSOR(DT_F32, DIMS(5), 0, 0, 0, 1, 5); }
static Data roots(World *w) { return TENSOR(DT_I32, DIMS(2), 3, 4); }
/* Rows that come to leaves (0, 1), (0, 2), (1, 1), (2, 2); the last is no number. */
static Data rows(World *w) { return TENSOR(DT_F32, DIMS(5, 2), 1, 5, 0, 6, 2, -1, 9, 9, NAN, NAN); }

CASE(trees_are_summed_from_a_base)
{
  Data d = RUN("ml.tree_ensemble", ATTRS({"depth", "2"}), rows(w), TENSOR(DT_F32, DIMS(1), 0.5), nodes(w), splits(w),
               roots(w), TENSOR(DT_F32, DIMS(3, 1), 10, 100, 1000));
  ASSERT_DATA(d, DT_F32, DIMS(5, 1), 110.5, 1010.5, 200.5, 2000.5, 2000.5);
}

CASE(no_number_has_a_way_of_its_own)
{
  Data d = RUN("ml.tree_ensemble", ATTRS({"depth", "2"}, {"missing", "True"}, {"in_range", "True"}), rows(w),
               TENSOR(DT_F32, DIMS(1), 0), nodes(w), splits(w), roots(w), TENSOR(DT_F32, DIMS(3, 1), 10, 100, 1000));
  ASSERT_DATA(d, DT_F32, DIMS(5, 1), 110, 1010, 200, 2000, 20);
}

CASE(the_least_and_the_greatest_of_named_targets)
{
  Data weight = TENSOR(DT_F64, DIMS(3, 2), 3, NAN, -7, 4, 8, NAN);
  Data target = TENSOR(DT_I32, DIMS(3, 2), 0, 0, 0, 2, 2, 0);
  Data base = TENSOR(DT_F64, DIMS(3), 1, 2, 3);
  Data d = RUN("ml.tree_ensemble", ATTRS({"depth", "2"}, {"aggregate", "\"min\""}), rows(w), base, nodes(w), splits(w),
               roots(w), weight, target);
  ASSERT_DATA(d, DT_F64, DIMS(5, 3), -6, 2, 7, 4, 2, 11, -6, 2, 7, 1, 2, 11, 1, 2, 11);
  d = RUN("ml.tree_ensemble", ATTRS({"depth", "2"}, {"aggregate", "\"max\""}), rows(w), base, nodes(w), splits(w),
          roots(w), weight, target);
  ASSERT_DATA(d, DT_F64, DIMS(5, 3), 4, 2, 7, 4, 2, 11, -6, 2, 7, 1, 2, 11, 1, 2, 11);
}

/* Many rows go through the trees side by side, the last few one by one; many trees for a single row too. */
CASE(blocks_of_rows_and_of_trees)
{
  enum { ROWS = 45, TREES = 19 };
  Data x = data_new(w, DT_F32, DIMS(ROWS, 2));
  Data root = data_new(w, DT_I32, DIMS(TREES));
  Data weight = TENSOR(DT_F32, DIMS(3, 2), 1, 2, 10, 20, 100, 200);
  Data base = TENSOR(DT_F32, DIMS(2), 0, 0);
  for (int i = 0; i < TREES; i++) ((int32_t *)root.data)[i] = i % 3 ? 3 : 4;
  for (int i = 0; i < 2 * ROWS; i++) ((float *)x.data)[i] = (float)(i * 7 % 11 - 1);
  Data all =
      RUN("ml.tree_ensemble", ATTRS({"depth", "2"}, {"in_range", "True"}), x, base, nodes(w), splits(w), root, weight);
  for (int r = 0; r < ROWS; r++) {
    Data row = data_new(w, DT_F32, DIMS(1, 2));
    memcpy(row.data, (float *)x.data + 2 * r, 2 * sizeof(float));
    Data one = RUN("ml.tree_ensemble", ATTRS({"depth", "2"}, {"in_range", "True"}), row, base, nodes(w), splits(w),
                   root, weight);
    float x0 = ((float *)x.data)[2 * r];
    float x1 = ((float *)x.data)[2 * r + 1];
    double second = x1 <= 5 ? 10 : 100;
    double want = 7 * second + 12 * (x0 <= 1 ? 1 : second); /* 7 of the 19 begin at node 4 */
    for (int k = 0; k < 2; k++) {
      assert_true(data_at(&all, 2 * r + k) == (k + 1) * want);
      assert_true(data_at(&one, k) == (k + 1) * want);
    }
  }
}

/* Uneven and deep: a list of 20 nodes, leaf i where x is i. */
CASE(deep_trees)
{
  enum { DEEP = 20, N = 2 * DEEP + 1 };
  Data node = data_new(w, DT_I32, DIMS(N, 4));
  Data split = data_new(w, DT_F32, DIMS(N));
  Data weight = data_new(w, DT_F32, DIMS(DEEP + 1, 1));
  Data x = data_new(w, DT_F32, DIMS(DEEP + 1, 1));
  for (int i = 0; i < N; i++) {
    int k = i - DEEP - 1;
    int32_t leaf[] = {0, i, i, i};
    int32_t inner[] = {0, k, k + 1 < DEEP ? i + 1 : DEEP, DEEP};
    memcpy((int32_t *)node.data + 4 * i, k < 0 ? leaf : inner, sizeof leaf);
    ((float *)split.data)[i] = (float)k;
  }
  for (int i = 0; i <= DEEP; i++) ((float *)weight.data)[i] = (float)(i * i), ((float *)x.data)[i] = (float)i;
  Data d = RUN("ml.tree_ensemble", ATTRS({"depth", "20"}), x, TENSOR(DT_F32, DIMS(1), 0), node, split,
               TENSOR(DT_I32, DIMS(1), DEEP + 1), weight);
  for (int i = 0; i <= DEEP; i++) assert_true(data_at(&d, i) == i * i);
}

/* So many trees that a single row goes through parts of them in parallel. */
CASE(a_row_through_very_many_trees)
{
  enum { TREES = 17005 };
  Data root = data_new(w, DT_I32, DIMS(TREES));
  for (int i = 0; i < TREES; i++) ((int32_t *)root.data)[i] = i % 5 ? 3 : 4;
  Data d =
      RUN("ml.tree_ensemble", ATTRS({"depth", "2"}), TENSOR(DT_F32, DIMS(1, 2), 0, 6), TENSOR(DT_F64, DIMS(2), 1, 2),
          nodes(w), splits(w), root, TENSOR(DT_F64, DIMS(3, 2), 1, -1, 10, 20, 100, 7));
  ASSERT_DATA(d, DT_F64, DIMS(1, 2), 1 + 13604 + 3401 * 100, 2 - 13604 + 3401 * 7);
}

/* The interpreter refuses to read outside of a table; so does no kernel. */
CASE(tables_that_lie_stay_inside)
{
  Data node = TENSOR(DT_I32, DIMS(5, 4), 9, 0, 0, 0, -4, 1, 1, 1, 0, 2, 2, 2, 77, -3, 99, 4, 1, 1000, 2, 0);
  Data d =
      RUN("ml.tree_ensemble", ATTRS({"depth", "3"}), rows(w), TENSOR(DT_F32, DIMS(1), 0), node, splits(w),
          TENSOR(DT_I32, DIMS(2), -1, 55), TENSOR(DT_F32, DIMS(3, 1), 1, 2, 3), TENSOR(DT_I32, DIMS(3, 1), 8, -2, 0));
  assert_int_equal(data_count(&d), 5);
}

static void call_trees(World *w, const Attr *a, Data node, Data weight)
{
  Data x = rows(w), base = TENSOR(DT_F32, DIMS(1), 0), split = splits(w), root = roots(w);
  const Node *arg[] = {node_of(w, &x),     node_of(w, &base), const_of(w, &node),
                       node_of(w, &split), node_of(w, &root), const_of(w, &weight)};
  call_of(w, "ml.tree_ensemble", a, 6, arg);
}
REFUSED(a_promise_that_is_not_kept, ERR_ARGUMENT, "ml.tree_ensemble", "node holds 9", "0 to 4")
{
  Data node = nodes(w);
  ((int32_t *)node.data)[17] = 9;
  call_trees(w, ATTRS({"depth", "2"}, {"in_range", "True"}), node, TENSOR(DT_F32, DIMS(3, 1), 1, 2, 3));
}
REFUSED(an_aggregate_that_is_none, ERR_ARGUMENT, "'mean'", "sum, min or max")
{
  call_trees(w, ATTRS({"depth", "2"}, {"aggregate", "\"mean\""}), nodes(w), TENSOR(DT_F32, DIMS(3, 1), 1, 2, 3));
}
REFUSED(weights_for_other_targets, ERR_SHAPE, "width of weight and base")
{
  call_trees(w, ATTRS({"depth", "2"}), nodes(w), TENSOR(DT_F32, DIMS(3, 2), 1, 2, 3, 4, 5, 6));
}
REFUSED(more_leaves_than_nodes, ERR_SHAPE, "make no trees")
{
  call_trees(w, ATTRS({"depth", "2"}), nodes(w), TENSOR(DT_F32, DIMS(6, 1), 1, 2, 3, 4, 5, 6));
}

/* Of two classes the pair says it all; three that agree give back what the pairs came from: p_i / (p_i + p_j). */
CASE(probabilities_of_pairs)
{
  Data d = RUN("ml.pairwise_probability", NULL, TENSOR(DT_F64, DIMS(2, 1), 0.75, 0.5));
  ASSERT_DATA(d, DT_F64, DIMS(2, 2), 0.75, 0.25, 0.5, 0.5);
  static const double p[] = {0.5, 0.3, 0.2};
  d = RUN("ml.pairwise_probability", NULL,
          TENSOR(DT_F64, DIMS(1, 3), p[0] / (p[0] + p[1]), p[0] / (p[0] + p[2]), p[1] / (p[1] + p[2])));
  for (int i = 0; i < 3; i++) assert_true(fabs(data_at(&d, i) - p[i]) < 0.005);
}
REFUSED(pairs_of_no_number_of_classes, ERR_SHAPE, "4 pairs")
{
  Data d = TENSOR(DT_F32, DIMS(1, 4), 1, 1, 1, 1);
  CALL("ml.pairwise_probability", NULL, node_of(w, &d));
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
    T(trees_are_summed_from_a_base),
    T(no_number_has_a_way_of_its_own),
    T(the_least_and_the_greatest_of_named_targets),
    T(blocks_of_rows_and_of_trees),
    T(deep_trees),
    T(a_row_through_very_many_trees),
    T(tables_that_lie_stay_inside),
    T(a_promise_that_is_not_kept),
    T(an_aggregate_that_is_none),
    T(weights_for_other_targets),
    T(more_leaves_than_nodes),
    T(probabilities_of_pairs),
    T(pairs_of_no_number_of_classes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
