/* test_sort.c: order (sort, argsort, topk), running sums, non-maximum suppression, matrices,
 * einsum, transforms and windows.  Expected values are by hand or numpy's. */
#include "op/test_shape.h"

#include <math.h>

/* ---- order --------------------------------------------------------------------------------- */

CASE(sorts)
{
  Data d = RUN("sort", NULL, TENSOR(DT_F32, DIMS(2, 5), 3, 1, 2, 5, 4, 0, -1, 7, -1, 2));
  ASSERT_DATA(d, DT_F32, DIMS(2, 5), 1, 2, 3, 4, 5, -1, -1, 0, 2, 7);
  d = RUN("sort", ATTRS({"axis", "0"}, {"is_ascend", "False"}), TENSOR(DT_I32, DIMS(3, 2), 1, 6, 3, 5, 2, 9));
  ASSERT_DATA(d, DT_I32, DIMS(3, 2), 3, 9, 2, 6, 1, 5);
  d = RUN("argsort", ATTRS({"dtype", "\"int64\""}), TENSOR(DT_F32, DIMS(6), 2, 1, 2, 0, 1, 2));
  ASSERT_DATA(d, DT_I64, DIMS(6), 3, 1, 4, 0, 2, 5);
  d = RUN("argsort", ATTRS({"is_ascend", "False"}), TENSOR(DT_F32, DIMS(6), 2, 1, 2, 0, 1, 2));
  ASSERT_DATA(d, DT_I32, DIMS(6), 0, 2, 5, 1, 4, 3);
}

CASE(sorts_many)
{
  enum { N = 97 };
  Data in = IOTA(DT_F32, N);
  Data order;
  uint32_t seed = 12345;
  for (int i = 0; i < N; i++) ((float *)in.data)[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 26);
  order = RUN("argsort", NULL, in);
  const int32_t *at = order.data;
  const float *x = in.data;
  bool seen[N] = {false};
  for (int i = 0; i < N; i++) {
    assert_false(seen[at[i]]);
    seen[at[i]] = true;
    if (i) assert_true(x[at[i - 1]] < x[at[i]] || (x[at[i - 1]] == x[at[i]] && at[i - 1] < at[i]));
  }
}

CASE(nan_is_above_every_number)
{
  Data d = RUN("sort", NULL, TENSOR(DT_F32, DIMS(5), 3, NAN, 2, INFINITY, NAN));
  ASSERT_DATA(d, DT_F32, DIMS(5), 2, 3, INFINITY, NAN, NAN);
  d = RUN("sort", ATTRS({"is_ascend", "False"}), TENSOR(DT_F32, DIMS(3), 3, NAN, 4));
  ASSERT_DATA(d, DT_F32, DIMS(3), NAN, 4, 3);
}

CASE(topk_gives_the_largest)
{
  Data in = TENSOR(DT_F32, DIMS(2, 4), 1, 4, 4, 2, 8, 0, 9, 9);
  Data out[2];
  run_node(w, CALL("topk", ATTRS({"k", "3"}, {"dtype", "\"int64\""}), node_of(w, &in)), &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 3), 4, 4, 2, 9, 9, 8);
  ASSERT_DATA(out[1], DT_I64, DIMS(2, 3), 1, 2, 3, 2, 3, 0);
  run_node(w,
           CALL("topk", ATTRS({"k", "1"}, {"axis", "0"}, {"is_ascend", "True"}, {"ret_type", "\"indices\""}),
                node_of(w, &in)),
           &in, out);
  ASSERT_DATA(out[0], DT_I32, DIMS(1, 4), 0, 1, 0, 0);
  Data dyn[2] = {in, TENSOR(DT_I64, DIMS(1), 2)};
  run_node(w, CALL("dyn.topk", ATTRS({"ret_type", "\"values\""}), node_of(w, &dyn[0]), node_of(w, &dyn[1])), dyn, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 4, 4, 9, 9);
}

/* Few of many: a list kept in order; NaN above every number, the lower index first among equals. */
CASE(topk_gives_few_of_many)
{
  Data in = TENSOR(DT_F32, DIMS(2, 9), 5, 1, 7, 7, 0, 7, 2, 9, 9, 3, NAN, 8, NAN, 8, 1, 0, 2, INFINITY);
  Data out[2];
  run_node(w, CALL("topk", ATTRS({"k", "2"}), node_of(w, &in)), &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 9, 9, NAN, NAN);
  ASSERT_DATA(out[1], DT_I32, DIMS(2, 2), 7, 8, 1, 3);
  run_node(w, CALL("topk", ATTRS({"k", "2"}, {"is_ascend", "True"}), node_of(w, &in)), &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 0, 1, 0, 1);
  ASSERT_DATA(out[1], DT_I32, DIMS(2, 2), 4, 1, 6, 5);
  Data columns = TENSOR(DT_I32, DIMS(5, 2), 4, 1, 4, 3, 2, 3, 4, 5, 1, 0);
  run_node(w, CALL("topk", ATTRS({"k", "1"}, {"axis", "0"}, {"ret_type", "\"indices\""}), node_of(w, &columns)),
           &columns, out);
  ASSERT_DATA(out[0], DT_I32, DIMS(1, 2), 0, 3);
}

CASE(sorts_symbolic_rows)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Node *y = CALL("sort", NULL, SYM(DT_F32, I(2), n));
  Data in = TENSOR(DT_F32, DIMS(2, 3), 3, 2, 1, 6, 4, 5);
  Data out[1];
  run_node(w, y, &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 3), 1, 2, 3, 4, 5, 6);
}

/* Rows of any length that is enough: short and long ones. */
CASE(topk_of_symbolic_rows)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Node *y = CALL("topk", ATTRS({"k", "2"}, {"is_ascend", "True"}), SYM(DT_F32, I(2), n));
  Data out[2];
  Data few = TENSOR(DT_F32, DIMS(2, 2), 3, 2, 1, 6);
  run_node(w, y, &few, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 2, 3, 1, 6);
  ASSERT_DATA(out[1], DT_I32, DIMS(2, 2), 1, 0, 0, 1);
  Data many = TENSOR(DT_F32, DIMS(2, 9), 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, -1, 0);
  run_node(w, y, &many, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 1, 2, -1, 0);
  ASSERT_DATA(out[1], DT_I32, DIMS(2, 2), 8, 7, 7, 0);
}
REFUSED(topk_of_fewer_than_k, ERR_SHAPE, "does not fit")
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  Data in = TENSOR(DT_F32, DIMS(1, 2), 1, 2);
  Data out[2];
  run_node(w, CALL("topk", ATTRS({"k", "3"}), SYM(DT_F32, I(1), n)), &in, out);
}
REFUSED(topk_too_many, ERR_SHAPE, "topk: k is 5, the axis of Tensor[(2, 4), float32] has only 4")
{
  CALL("topk", ATTRS({"k", "5"}), SYM(DT_F32, I(2), I(4)));
}
REFUSED(topk_too_many_at_run_time, ERR_SHAPE, "a size does not fit: dimension 0 is -1")
{
  Data in[2] = {IOTA(DT_F32, 3), TENSOR(DT_I64, DIMS(1), 4)};
  Data out[2];
  run_node(w, CALL("dyn.topk", NULL, node_of(w, &in[0]), node_of(w, &in[1])), in, out);
}
REFUSED(topk_ret_type, ERR_ARGUMENT, "topk: ret_type is 'all'; it is both, values or indices")
{
  CALL("topk", ATTRS({"ret_type", "\"all\""}), SYM(DT_F32, I(2), I(4)));
}

CASE(runs_sums)
{
  Data d = RUN("cumsum", ATTRS({"axis", "[1]"}), IOTA(DT_F32, 2, 3));
  ASSERT_DATA(d, DT_F32, DIMS(2, 3), 0, 1, 3, 3, 7, 12);
  d = RUN("cumsum", ATTRS({"axis", "[0]"}, {"exclusive", "True"}), IOTA(DT_F32, 3, 2));
  ASSERT_DATA(d, DT_F32, DIMS(3, 2), 0, 0, 0, 1, 2, 4);
  d = RUN("cumsum", ATTRS({"axis", "[0]"}, {"exclusive", "True"}, {"reverse", "True"}),
          TENSOR(DT_F64, DIMS(3), 1, 2, 3));
  ASSERT_DATA(d, DT_F64, DIMS(3), 5, 3, 0);
  d = RUN("cumsum", ATTRS({"dtype", "\"int64\""}), IOTA(DT_I32, 2, 2));
  ASSERT_DATA(d, DT_I64, DIMS(4), 0, 1, 3, 6);
  d = RUN("cumprod", ATTRS({"axis", "[0]"}), TENSOR(DT_F32, DIMS(4), 2, 3, -1, 4));
  ASSERT_DATA(d, DT_F32, DIMS(4), 2, 6, -6, -24);
}

/* ---- non-maximum suppression ------------------------------------------------------------------ */

static void suppresses(World *w, const Attr *attrs, const Data *boxes, double limit, double threshold, int n,
                       const double *rows)
{
  Data in[5] = {*boxes, TENSOR(DT_F32, DIMS(1, 1, 6), 0.9, 0.75, 0.6, 0.95, 0.5, 0.3), TENSOR(DT_I64, DIMS(1), limit),
                TENSOR(DT_F32, DIMS(1), 0.5), TENSOR(DT_F32, DIMS(1), threshold)};
  Data out[2];
  const Node *arg[5];
  for (int i = 0; i < 5; i++) arg[i] = node_of(w, &in[i]);
  run_node(w, call_of(w, "vision.all_class_non_max_suppression", attrs, 5, arg), in, out);
  assert_int_equal(data_at(&out[1], 0), n / 3);
  for (int i = 0; i < n; i++) assert_int_equal(data_at(&out[0], i), rows[i]);
}

CASE(suppresses_overlaps)
{
  Data corners = TENSOR(DT_F32, DIMS(1, 6, 4), 0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, -0.1, 1, 0.9, 0, 10, 1, 11, 0, 10.1, 1,
                        11.1, 0, 100, 1, 101);
  suppresses(w, NULL, &corners, 3, 0, NUMS(0, 0, 3, 0, 0, 0, 0, 0, 5));
  suppresses(w, NULL, &corners, 2, 0, NUMS(0, 0, 3, 0, 0, 0));
  suppresses(w, NULL, &corners, 3, 0.4, NUMS(0, 0, 3, 0, 0, 0));
  Data centers = TENSOR(DT_F32, DIMS(1, 6, 4), 0.5, 0.5, 1, 1, 0.5, 0.6, 1, 1, 0.5, 0.4, 1, 1, 0.5, 10.5, 1, 1, 0.5,
                        10.6, 1, 1, 0.5, 100.5, 1, 1);
  suppresses(w, ATTRS({"center_point_box", "1"}), &centers, 3, 0, NUMS(0, 0, 3, 0, 0, 0, 0, 0, 5));
  Data flipped = TENSOR(DT_F32, DIMS(1, 6, 4), 1, 1, 0, 0, 0, 0.1, 1, 1.1, 0, 0.9, 1, -0.1, 0, 10, 1, 11, 1, 10.1, 0,
                        11.1, 1, 101, 0, 100);
  suppresses(w, NULL, &flipped, 3, 0, NUMS(0, 0, 3, 0, 0, 0, 0, 0, 5));
}
REFUSED(boxes_and_scores, ERR_SHAPE,
        "boxes is Tensor[(1, 6, 5), float32], scores Tensor[(1, 1, 6), float32]; they are (batch, boxes, 4) and "
        "(batch, classes, boxes)")
{
  CALL("vision.all_class_non_max_suppression", NULL, SYM(DT_F32, I(1), I(6), I(5)), SYM(DT_F32, I(1), I(1), I(6)),
       SYM(DT_I64, I(1)), SYM(DT_F32, I(1)), SYM(DT_F32, I(1)));
}

/* ---- matrices ------------------------------------------------------------------------------------ */

CASE(triangles)
{
  Data d = RUN("trilu", NULL, TENSOR(DT_F32, DIMS(2, 3), 1, 2, 3, 4, 5, 6), SCALAR(DT_I64, 1));
  ASSERT_DATA(d, DT_F32, DIMS(2, 3), 0, 2, 3, 0, 0, 6);
  d = RUN("trilu", ATTRS({"upper", "False"}), TENSOR(DT_I64, DIMS(3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9),
          SCALAR(DT_I64, -1));
  ASSERT_DATA(d, DT_I64, DIMS(3, 3), 0, 0, 0, 4, 0, 0, 7, 8, 0);
}

CASE(diagonals)
{
  Data d = RUN("matrix_set_diag", NULL, TENSOR(DT_F32, DIMS(2, 3), 7, 7, 7, 7, 7, 7), TENSOR(DT_F32, DIMS(2), 1, 2));
  ASSERT_DATA(d, DT_F32, DIMS(2, 3), 1, 7, 7, 7, 2, 7);
  d = RUN("matrix_set_diag", ATTRS({"k", "[-1, 1]"}), TENSOR(DT_F32, DIMS(3, 3), 7, 7, 7, 7, 7, 7, 7, 7, 7),
          TENSOR(DT_F32, DIMS(3, 3), 0, 1, 2, 3, 4, 5, 6, 8, 0));
  ASSERT_DATA(d, DT_F32, DIMS(3, 3), 3, 1, 7, 6, 4, 2, 7, 8, 5);
  d = RUN("eye_like", ATTRS({"k", "1"}, {"dtype", "\"int32\""}), IOTA(DT_F32, 2, 3));
  ASSERT_DATA(d, DT_I32, DIMS(2, 3), 0, 1, 0, 0, 0, 1);
  Data out[1];
  run_node(w, call_of(w, "eye", ATTRS({"n", "2"}), 0, NULL), NULL, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 1, 0, 0, 1);
}

CASE(space_and_batch)
{
  Data d = RUN("nn.space_to_batch_nd", ATTRS({"block_shape", "[2]"}, {"paddings", "[1, 0]"}, {"pad_value", "9"}),
               IOTA(DT_F32, 1, 3));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 9, 1, 0, 2);
  d = RUN("nn.batch_to_space_nd", ATTRS({"block_shape", "[2]"}, {"crops", "[1, 0]"}), d);
  ASSERT_DATA(d, DT_F32, DIMS(1, 3), 0, 1, 2);
  d = RUN("nn.space_to_batch_nd", ATTRS({"block_shape", "[2, 2]"}, {"paddings", "[0, 0, 0, 0]"}),
          IOTA(DT_F32, 1, 2, 2, 1));
  ASSERT_DATA(d, DT_F32, DIMS(4, 1, 1, 1), 0, 1, 2, 3);
}
REFUSED(space_to_batch_multiple, ERR_SHAPE,
        "nn.space_to_batch_nd: axis 1 of Tensor[(1, 3), float32] padded to 3 is no multiple of its block 2")
{
  CALL("nn.space_to_batch_nd", ATTRS({"block_shape", "[2]"}, {"paddings", "[0, 0]"}), SYM(DT_F32, I(1), I(3)));
}

CASE(determinants)
{
  Data d = RUN("linalg.det", NULL, TENSOR(DT_F32, DIMS(2, 3, 3), 2, 1, 3, 4, 2, 1, 0, 5, 6, 0, 1, 0, 1, 0, 0, 0, 0, 1));
  ASSERT_DATA(d, DT_F32, DIMS(2), 50, -1);
  d = RUN("linalg.det", NULL, TENSOR(DT_F32, DIMS(2, 2), 1, 2, 2, 4));
  ASSERT_DATA(d, DT_F32, NODIMS, 0);
}

/* ---- einsum ------------------------------------------------------------------------------------------ */

static Data summed(World *w, const char *equation, int n, const Data *in)
{
  Data out[1];
  run_tuple(w, "einsum", ATTRS({"equation", equation}), n, in, out);
  return out[0];
}

CASE(sums_products)
{
  Data a = TENSOR(DT_F32, DIMS(2, 2), 1, 2, 3, 4);
  Data b = TENSOR(DT_F32, DIMS(2, 2), 5, 6, 7, 8);
  ASSERT_DATA(summed(w, "\"ij,jk->ik\"", 2, (Data[]){a, b}), DT_F32, DIMS(2, 2), 19, 22, 43, 50);
  ASSERT_DATA(summed(w, "\"ij , jk\"", 2, (Data[]){a, b}), DT_F32, DIMS(2, 2), 19, 22, 43, 50);
  ASSERT_DATA(summed(w, "\"ii->i\"", 1, &a), DT_F32, DIMS(2), 1, 4);
  ASSERT_DATA(summed(w, "\"ii\"", 1, &a), DT_F32, NODIMS, 5);
  ASSERT_DATA(summed(w, "\"ij->ji\"", 1, &a), DT_F32, DIMS(2, 2), 1, 3, 2, 4);
  ASSERT_DATA(summed(w, "\"...ii->...i\"", 1, (Data[]){IOTA(DT_F32, 2, 2, 2)}), DT_F32, DIMS(2, 2), 0, 3, 4, 7);
  ASSERT_DATA(summed(w, "\"...ij,...jk->...ik\"", 2, (Data[]){IOTA(DT_F32, 2, 1, 2), b}), DT_F32, DIMS(2, 1, 2), 7, 8,
              31, 36);
  ASSERT_DATA(summed(w, "\"i,j,k->\"", 3, (Data[]){IOTA(DT_F32, 3), IOTA(DT_F32, 3), IOTA(DT_F32, 2)}), DT_F32, NODIMS,
              9);
}
REFUSED(einsum_extents, ERR_SHAPE, "einsum: input 1 has extent 3 where another has 2 for the same label of 'ij,jk->ik'")
{
  const Node *a[2] = {SYM(DT_F32, I(2), I(2)), SYM(DT_F32, I(3), I(2))};
  CALL("einsum", ATTRS({"equation", "\"ij,jk->ik\""}), node_tuple(w->m, 2, a));
}
REFUSED(einsum_ranks, ERR_SHAPE, "einsum: input 0 is Tensor[(2, 2), float32], its term of 'i->i' names 1 axes")
{
  const Node *a[1] = {SYM(DT_F32, I(2), I(2))};
  CALL("einsum", ATTRS({"equation", "\"i->i\""}), node_tuple(w->m, 1, a));
}

/* ---- loss ------------------------------------------------------------------------------------------------ */

CASE(losses)
{
  Data p = TENSOR(DT_F32, DIMS(3, 2), -1, -2, -3, -4, -5, -6);
  Data t = TENSOR(DT_I64, DIMS(3), 0, 1, 1);
  Data wt = TENSOR(DT_F32, DIMS(2), 1, 3);
  Data d = RUN("nn.nll_loss", ATTRS({"reduction", "\"none\""}), p, t, wt);
  ASSERT_DATA(d, DT_F32, DIMS(3), 1, 12, 18);
  d = RUN("nn.nll_loss", ATTRS({"reduction", "\"sum\""}, {"ignore_index", "0"}), p, t, wt);
  ASSERT_DATA(d, DT_F32, NODIMS, 30);
  d = RUN("nn.nll_loss", NULL, p, t, wt);
  ASSERT_DATA(d, DT_F32, NODIMS, 31.0 / 7);
  d = RUN("nn.nll_loss", ATTRS({"reduction", "\"none\""}, {"ignore_index", "-1"}), IOTA(DT_F32, 1, 2, 2),
          TENSOR(DT_I64, DIMS(1, 2), 1, -1), wt);
  ASSERT_DATA(d, DT_F32, DIMS(1, 2), -6, 0);
}

/* ---- signals ------------------------------------------------------------------------------------------------- */

CASE(transforms)
{
  Data x = TENSOR(DT_F32, DIMS(1, 5, 1), 1, 2, 3, 4, 2);
  Data d = RUN("signal.dft", ATTRS({"axis", "1"}), x);
  ASSERT_DATA(d, DT_F32, DIMS(1, 5, 2), 12, 0, -3.42705, 0.58779, -0.07295, -0.95106, -0.07295, 0.95106, -3.42705,
              -0.58779);
  Data back = RUN("signal.dft", ATTRS({"axis", "1"}, {"inverse", "True"}), d);
  ASSERT_DATA(back, DT_F32, DIMS(1, 5, 2), 1, 0, 2, 0, 3, 0, 4, 0, 2, 0);
  d = RUN("signal.dft", ATTRS({"axis", "1"}, {"onesided", "True"}), x, SCALAR(DT_I64, 8));
  ASSERT_DATA(d, DT_F32, DIMS(1, 5, 2), 12, 0, -2.41421, -7.24264, 0, 2, 0.41421, -1.24264, 0, 0);
  d = RUN("signal.dft", ATTRS({"axis", "1"}, {"onesided", "True"}, {"inverse", "True"}),
          TENSOR(DT_F32, DIMS(1, 3, 2), 10, 0, -2, 2, -2, 0));
  ASSERT_DATA(d, DT_F32, DIMS(1, 4, 1), 1, 2, 3, 4);
  d = RUN("signal.dft", ATTRS({"axis", "0"}), TENSOR(DT_F32, DIMS(2, 2, 1), 1, 2, 3, 4), SCALAR(DT_I64, 1));
  ASSERT_DATA(d, DT_F32, DIMS(1, 2, 2), 1, 0, 2, 0);
}
CASE(transforms_parts)
{
  Data in[2] = {TENSOR(DT_F32, DIMS(5), 1, 2, 3, 4, 2), TENSOR(DT_F32, DIMS(5), 0, 0, 0, 0, 0)};
  Data mid[2], out[2];
  run_node(w, CALL("dft", NULL, node_of(w, &in[0]), node_of(w, &in[1])), in, mid);
  ASSERT_DATA(mid[0], DT_F32, DIMS(5), 12, -3.42705, -0.07295, -0.07295, -3.42705);
  ASSERT_DATA(mid[1], DT_F32, DIMS(5), 0, 0.58779, -0.95106, 0.95106, -0.58779);
  run_node(w, CALL("dft", ATTRS({"inverse", "True"}), node_of(w, &mid[0]), node_of(w, &mid[1])), mid, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(5), 1, 2, 3, 4, 2);
  ASSERT_DATA(out[1], DT_F32, DIMS(5), 0, 0, 0, 0, 0);
}
REFUSED(dft_axis_is_not_the_last, ERR_ARGUMENT,
        "signal.dft: axis is -1; the last axis of Tensor[(1, 5, 1), float32] holds real and imaginary part")
{
  CALL("signal.dft", ATTRS({"axis", "-1"}), SYM(DT_F32, I(1), I(5), I(1)));
}

CASE(transforms_frames)
{
  Data d = RUN("signal.stft", NULL, IOTA(DT_F32, 1, 8, 1), TENSOR(DT_F32, DIMS(4), 1, 2, 2, 1), SCALAR(DT_I64, 2));
  ASSERT_DATA(d, DT_F32, DIMS(1, 3, 3, 2), 9, 0, -4, 1, -1, 0, 21, 0, -6, -1, -1, 0, 33, 0, -8, -3, -1, 0);
  d = RUN("stft", ATTRS({"n_fft", "4"}, {"hop_length", "2"}, {"win_length", "4"}), IOTA(DT_F32, 1, 8),
          TENSOR(DT_F32, DIMS(4), 1, 2, 2, 1));
  ASSERT_DATA(d, DT_F32, DIMS(1, 3, 3, 2), 9, 0, 21, 0, 33, 0, -4, 1, -6, -1, -8, -3, -1, 0, -1, 0, -1, 0);
}

CASE(makes_windows)
{
  Data d = RUN("signal.window", NULL, SCALAR(DT_I32, 4));
  ASSERT_DATA(d, DT_F32, DIMS(4), 0, 0.5, 1, 0.5);
  d = RUN("signal.window", ATTRS({"kind", "\"hamming\""}, {"periodic", "False"}), SCALAR(DT_I32, 4));
  ASSERT_DATA(d, DT_F32, DIMS(4), 0.086957, 0.771739, 0.771739, 0.086957);
  d = RUN("signal.window", ATTRS({"kind", "\"blackman\""}, {"dtype", "\"float64\""}), SCALAR(DT_I32, 4));
  ASSERT_DATA(d, DT_F64, DIMS(4), 0, 0.34, 1, 0.34);
}

CASE(weights_mel_bins)
{
  Data d = RUN("signal.mel_weight_matrix", NULL, SCALAR(DT_I64, 3), SCALAR(DT_I64, 16), SCALAR(DT_I64, 8000),
               SCALAR(DT_F32, 0), SCALAR(DT_F32, 4000));
  ASSERT_DATA(d, DT_F32, DIMS(9, 3), 1, 0, 0, 0, 1, 0, 0, 0.5, 0.5, 0, 0, 1, 0, 0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
              0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sorts),
    cmocka_unit_test(sorts_many),
    cmocka_unit_test(nan_is_above_every_number),
    cmocka_unit_test(topk_gives_the_largest),
    cmocka_unit_test(topk_gives_few_of_many),
    cmocka_unit_test(sorts_symbolic_rows),
    cmocka_unit_test(topk_of_symbolic_rows),
    cmocka_unit_test(topk_of_fewer_than_k),
    cmocka_unit_test(topk_too_many),
    cmocka_unit_test(topk_too_many_at_run_time),
    cmocka_unit_test(topk_ret_type),
    cmocka_unit_test(runs_sums),
    cmocka_unit_test(suppresses_overlaps),
    cmocka_unit_test(boxes_and_scores),
    cmocka_unit_test(triangles),
    cmocka_unit_test(diagonals),
    cmocka_unit_test(space_and_batch),
    cmocka_unit_test(space_to_batch_multiple),
    cmocka_unit_test(determinants),
    cmocka_unit_test(sums_products),
    cmocka_unit_test(einsum_extents),
    cmocka_unit_test(einsum_ranks),
    cmocka_unit_test(losses),
    cmocka_unit_test(transforms),
    cmocka_unit_test(transforms_parts),
    cmocka_unit_test(dft_axis_is_not_the_last),
    cmocka_unit_test(transforms_frames),
    cmocka_unit_test(makes_windows),
    cmocka_unit_test(weights_mel_bins),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
