/* test_shape.c: reshape, squeeze, expand_dims, transpose, concatenate, stack, split, tile
 * and the like: values by hand, refusals, symbolic and run-time sizes. */
#include "op/test_shape.h"

/* ---- reshape ---------------------------------------------------------------------------- */

CASE(reshape_moves_nothing)
{
  Data d = RUN("reshape", ATTRS({"newshape", "[4, -1]"}), IOTA(DT_F32, 2, 3, 2));
  ASSERT_DATA(d, DT_F32, DIMS(4, 3), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
  d = RUN("reshape", ATTRS({"newshape", "[3, 4]"}), IOTA(DT_F32, 2, 6));
  ASSERT_DATA(d, DT_F32, DIMS(3, 4), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
  d = RUN("reshape", ATTRS({"newshape", "[]"}), IOTA(DT_F32, 1, 1));
  ASSERT_DATA(d, DT_F32, NODIMS, 0);
}

static void codes(World *w, const char *newshape, const char *type)
{
  const Node *x = SYM(DT_F32, I(2), I(3), I(4));
  assert_type(w, CALL("reshape", ATTRS({"newshape", newshape}), x), type);
}

CASE(reshape_knows_the_codes)
{
  codes(w, "[0, -1]", "Tensor[(2, 12), float32]");
  codes(w, "[6, 1, -2]", "Tensor[(6, 1, 4), float32]");
  codes(w, "[-2, 1, 1]", "Tensor[(2, 3, 4, 1, 1), float32]");
  codes(w, "[-3, 4]", "Tensor[(6, 4), float32]");
  codes(w, "[0, -3]", "Tensor[(2, 12), float32]");
  codes(w, "[-4, 1, 2, -2]", "Tensor[(1, 2, 3, 4), float32]");
  codes(w, "[2, -4, -1, 3, -2]", "Tensor[(2, 1, 3, 4), float32]");
  const Node *e = SYM(DT_F32, I(0), I(3));
  assert_type(w, CALL("reshape", ATTRS({"newshape", "[3, 0]"}, {"allowzero", "True"}), e), "Tensor[(3, 0), float32]");
}

CASE(reverse_reshape_reads_from_the_right)
{
  const Node *x = SYM(DT_F32, I(2), I(3), I(4));
  assert_type(w, CALL("contrib_reverse_reshape", ATTRS({"newshape", "[-1, 0]"}), x), "Tensor[(6, 4), float32]");
  assert_type(w, CALL("contrib_reverse_reshape", ATTRS({"newshape", "[-3, 0]"}), x), "Tensor[(6, 4), float32]");
}

CASE(reshape_keeps_symbolic_sizes)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Node *x = SYM(DT_F32, n, I(6), I(4));
  const Node *y = CALL("reshape", ATTRS({"newshape", "[0, -1]"}), x);
  assert_type(w, y, "Tensor[(n, 24), float32]");
  Data out[1];
  Data in = IOTA(DT_F32, 2, 6, 4);
  run_node(w, y, &in, out);
  assert_int_equal(out[0].shape[1], 24);
  for (int i = 0; i < 48; i++) assert_true(data_at(out, i) == i);
  assert_type(w, CALL("reshape", ATTRS({"newshape", "[-1, 4]"}), x), "Tensor[(n*6, 4), float32]");
}

CASE(dyn_reshape_takes_its_shape_from_an_operand)
{
  Data in[2] = {IOTA(DT_F32, 2, 6), TENSOR(DT_I64, DIMS(2), 4, 3)};
  Data out[1];
  const Node *x = node_of(w, &in[0]);
  const Node *shape = node_of(w, &in[1]);
  run_node(w, CALL("dyn.reshape", NULL, x, shape), in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(4, 3), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
  in[1] = TENSOR(DT_I64, DIMS(2), 0, -1);
  shape = node_of(w, &in[1]);
  run_node(w, CALL("dyn.reshape", NULL, x, shape), in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 6), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
  Data c = TENSOR(DT_I64, DIMS(3), 3, -1, 2);
  assert_type(w, CALL("dyn.reshape", NULL, x, const_of(w, &c)), "Tensor[(3, 2, 2), float32]");
}

REFUSED(dyn_reshape_refuses_a_size_that_does_not_fit, ERR_SHAPE, "a size does not fit: dimension 0 is -1")
{
  Data in[2] = {IOTA(DT_F32, 2, 6), TENSOR(DT_I64, DIMS(2), 5, 3)};
  Data out[1];
  const Node *x = node_of(w, &in[0]);
  const Node *shape = node_of(w, &in[1]);
  run_node(w, CALL("dyn.reshape", NULL, x, shape), in, out);
}

CASE(reshape_of_a_computed_shape_folds)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Node *x = SYM(DT_F32, n, I(8), I(8));
  const Node *shape = CALL("shape_of", ATTRS({"dtype", "\"int64\""}), x);
  Data zero = TENSOR(DT_I64, DIMS(1), 0);
  Data minus = TENSOR(DT_I64, DIMS(1), -1);
  const Node *first = CALL("take", ATTRS({"axis", "[0]"}), shape, const_of(w, &zero));
  const Node *both[2] = {first, const_of(w, &minus)};
  const Node *to = CALL("concatenate", NULL, node_tuple(w->m, 2, both));
  assert_type(w, CALL("dyn.reshape", NULL, x, to), "Tensor[(n, 64), float32]");
}

REFUSED(reshape_counts_elements, ERR_SHAPE, "reshape: Tensor[(2, 3), float32] has 6 elements, the shape (4, 2) wants 8")
{
  CALL("reshape", ATTRS({"newshape", "[4, 2]"}), SYM(DT_F32, I(2), I(3)));
}
REFUSED(reshape_infers_one, ERR_SHAPE, "reshape: newshape (-1, -1) has -1 twice; only one dimension can be inferred")
{
  CALL("reshape", ATTRS({"newshape", "[-1, -1]"}), SYM(DT_F32, I(2), I(3)));
}
REFUSED(reshape_divides, ERR_SHAPE,
        "Tensor[(2, 3), float32] has 6 elements, which the other dimensions' 4 do not divide")
{
  CALL("reshape", ATTRS({"newshape", "[4, -1]"}), SYM(DT_F32, I(2), I(3)));
}
REFUSED(reshape_has_no_dimension_left, ERR_SHAPE,
        "newshape has the code 0 where Tensor[(2), float32] has no dimension left")
{
  CALL("reshape", ATTRS({"newshape", "[2, 0]"}), SYM(DT_F32, I(2)));
}
REFUSED(reshape_unknown_code, ERR_SHAPE, "newshape (-5) has the code -5; there are 0, -1, -2, -3 and -4")
{
  CALL("reshape", ATTRS({"newshape", "[-5]"}), SYM(DT_F32, I(2)));
}

CASE(reshape_like_takes_part_of_the_shape)
{
  const Node *x = SYM(DT_F32, I(2), I(6), I(5));
  const Node *like = SYM(DT_F32, I(4), I(3));
  assert_type(w, CALL("reshape_like", ATTRS({"lhs_end", "[2]"}), x, like), "Tensor[(4, 3, 5), float32]");
}

/* ---- squeeze, expand_dims ------------------------------------------------------------------- */

CASE(squeeze_and_expand)
{
  const Node *x = SYM(DT_F32, I(1), I(3), I(1));
  assert_type(w, CALL("squeeze", NULL, x), "Tensor[(3), float32]");
  assert_type(w, CALL("squeeze", ATTRS({"axis", "[-1]"}), x), "Tensor[(1, 3), float32]");
  assert_type(w, CALL("expand_dims", ATTRS({"axis", "-1"}, {"num_newaxis", "2"}), x),
              "Tensor[(1, 3, 1, 1, 1), float32]");
  Data d = RUN("expand_dims", ATTRS({"axis", "1"}), IOTA(DT_F32, 2, 2));
  ASSERT_DATA(d, DT_F32, DIMS(2, 1, 2), 0, 1, 2, 3);
  d = RUN("squeeze", ATTRS({"axis", "[0]"}), IOTA(DT_F32, 1, 2, 2));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 0, 1, 2, 3);
  Data axes = TENSOR(DT_I64, DIMS(1), 0);
  assert_type(w, CALL("dyn.squeeze", NULL, x, const_of(w, &axes)), "Tensor[(3, 1), float32]");
  assert_type(w, CALL("dyn.expand_dims", NULL, x, const_of(w, &axes)), "Tensor[(1, 1, 3, 1), float32]");
}
REFUSED(squeeze_checks_at_run_time, ERR_SHAPE, "a size does not fit: dimension 0 is -1")
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  Data in = IOTA(DT_F32, 2, 3);
  Data out[1];
  run_node(w, CALL("squeeze", ATTRS({"axis", "[0]"}), SYM(DT_F32, n, I(3))), &in, out);
}
REFUSED(squeeze_needs_extent_one, ERR_SHAPE,
        "squeeze: axis 1 of Tensor[(1, 3), float32] has extent 3; only an axis of extent 1 can be squeezed")
{
  CALL("squeeze", ATTRS({"axis", "[1]"}), SYM(DT_F32, I(1), I(3)));
}
static Data view_at_run_time(World *w, const char *op, const Data *x, int n, const double *axes)
{
  Data in[2] = {*x, data_of(w, DT_I64, 1, (int64_t[]){n}, n, axes)};
  Data out[1];
  run_node(w, CALL(op, NULL, node_of(w, &in[0]), node_of(w, &in[1])), in, out);
  return out[0];
}

CASE(axes_known_at_run_time)
{
  Data x = IOTA(DT_F32, 1, 3, 1, 2);
  Data y = IOTA(DT_F32, 3, 2);
  ASSERT_DATA(view_at_run_time(w, "dyn.squeeze", &x, NUMS(-2)), DT_F32, DIMS(1, 3, 2), 0, 1, 2, 3, 4, 5);
  ASSERT_DATA(view_at_run_time(w, "dyn.squeeze", &x, NUMS(2, 0)), DT_F32, DIMS(3, 2), 0, 1, 2, 3, 4, 5);
  ASSERT_DATA(view_at_run_time(w, "dyn.expand_dims", &y, NUMS(-1, 1)), DT_F32, DIMS(3, 1, 2, 1), 0, 1, 2, 3, 4, 5);
  ASSERT_DATA(view_at_run_time(w, "dyn.expand_dims", &y, NUMS(0)), DT_F32, DIMS(1, 3, 2), 0, 1, 2, 3, 4, 5);
  Data two = TENSOR(DT_I64, DIMS(2), 0, -1);
  assert_type(w, CALL("dyn.expand_dims", NULL, node_of(w, &y), const_of(w, &two)), "Tensor[(1, 3, 2, 1), float32]");
}
REFUSED(squeeze_at_run_time, ERR_SHAPE, "a size does not fit: dimension 0 is -1")
{
  Data x = IOTA(DT_F32, 1, 3, 1, 2);
  view_at_run_time(w, "dyn.squeeze", &x, NUMS(1));
}

/* ---- transpose, reverse ------------------------------------------------------------------------ */

CASE(transposes)
{
  Data d = RUN("transpose", NULL, IOTA(DT_F32, 2, 3));
  ASSERT_DATA(d, DT_F32, DIMS(3, 2), 0, 3, 1, 4, 2, 5);
  d = RUN("transpose", ATTRS({"axes", "[1, 2, 0]"}), IOTA(DT_I8, 2, 1, 3));
  ASSERT_DATA(d, DT_I8, DIMS(1, 3, 2), 0, 3, 1, 4, 2, 5);
}
REFUSED(transpose_axis_twice, ERR_ARGUMENT, "transpose: axes names axis 1 twice")
{
  CALL("transpose", ATTRS({"axes", "[1, -1]"}), SYM(DT_F32, I(1), I(3)));
}
REFUSED(transpose_all_axes, ERR_ARGUMENT, "axes lists 1 axes, Tensor[(1, 3), float32] has 2")
{
  CALL("transpose", ATTRS({"axes", "[1]"}), SYM(DT_F32, I(1), I(3)));
}

CASE(transpose_follows_a_layout)
{
  op_init();
  const OpDef *op = opdef_get(w->ctx, "transpose");
  const Type *ty = type_tensor(w->m, DT_F32, SHAPE(I(1), I(3), I(8), I(8)));
  OpCall c = {
    .m = w->m, .op = op, .attrs = attrs_of(w, "transpose", ATTRS({"axes", "[0, 2, 3, 1]"})), .nargs = 1, .arg = &ty};
  LayoutPair arg = {"NCHW", "NHWC"};
  LayoutPair out = {NULL, NULL};
  const TransposeAttrs *a = op->layout(&c, &arg, &out);
  assert_non_null(a);
  for (int i = 0; i < 4; i++) assert_int_equal(a->axes.v[i], i);
  assert_string_equal(out.to, "NHWC");
  arg.to = "NCHW8c";
  assert_null(op->layout(&c, &arg, &out));
}

CASE(reverses)
{
  Data d = RUN("reverse", ATTRS({"axis", "1"}), IOTA(DT_F32, 2, 3));
  ASSERT_DATA(d, DT_F32, DIMS(2, 3), 2, 1, 0, 5, 4, 3);
  d = RUN("reverse_sequence", ATTRS({"seq_axis", "0"}, {"batch_axis", "1"}), IOTA(DT_F32, 4, 4),
          TENSOR(DT_I64, DIMS(4), 4, 3, 2, 1));
  ASSERT_DATA(d, DT_F32, DIMS(4, 4), 12, 9, 6, 3, 8, 5, 2, 7, 4, 1, 10, 11, 0, 13, 14, 15);
}
REFUSED(reverse_sequence_lengths, ERR_SHAPE,
        "reverse_sequence: seq_lengths is Tensor[(3), int64]; it must have one length for each of axis 0")
{
  CALL("reverse_sequence", NULL, SYM(DT_F32, I(2), I(3)), SYM(DT_I64, I(3)));
}

/* ---- concatenate, stack, split -------------------------------------------------------------------- */

CASE(concatenates)
{
  Data in[3] = {IOTA(DT_F32, 2, 1), IOTA(DT_F32, 2, 2), IOTA(DT_F32, 2, 0)};
  Data out[2];
  run_tuple(w, "concatenate", ATTRS({"axis", "-1"}), 3, in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 3), 0, 0, 1, 1, 2, 3);
  run_tuple(w, "stack", ATTRS({"axis", "-1"}), 2, (Data[]){IOTA(DT_F32, 2), TENSOR(DT_F32, DIMS(2), 7, 8)}, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 0, 7, 1, 8);
}

CASE(concatenates_symbolic_sizes)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Expr *past = var_new(w->m, "past", DT_I32, VAR_SIZE)->expr;
  const Node *a[2] = {SYM(DT_F32, past), SYM(DT_F32, n)};
  const Node *y = CALL("concatenate", NULL, node_tuple(w->m, 2, a));
  assert_type(w, y, "Tensor[(n + past), float32]");
  Data in[2] = {IOTA(DT_F32, 3), TENSOR(DT_F32, DIMS(2), 7, 8)};
  Data out[1];
  run_node(w, y, in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(5), 0, 1, 2, 7, 8);
}
REFUSED(concatenate_shapes, ERR_SHAPE,
        "concatenate: field 0 is Tensor[(2, 3), float32], field 1 is Tensor[(3, 3), float32]; they may differ only "
        "along axis 1")
{
  const Node *a[2] = {SYM(DT_F32, I(2), I(3)), SYM(DT_F32, I(3), I(3))};
  CALL("concatenate", ATTRS({"axis", "1"}), node_tuple(w->m, 2, a));
}
REFUSED(concatenate_dtypes, ERR_TYPE,
        "field 0 is Tensor[(2), float32], field 1 is Tensor[(2), int32]; all must have one dtype and rank")
{
  const Node *a[2] = {SYM(DT_F32, I(2)), SYM(DT_I32, I(2))};
  CALL("concatenate", NULL, node_tuple(w->m, 2, a));
}

REFUSED(concatenate_nothing, ERR_ARGUMENT, "concatenate: argument 0 is an empty tuple; it has at least one tensor")
{
  CALL("concatenate", NULL, node_tuple(w->m, 0, NULL));
}
REFUSED(too_many_dimensions, ERR_UNSUPPORTED, "expand_dims: the result would have 19 dimensions; there are at most 16")
{
  CALL("expand_dims", ATTRS({"axis", "0"}, {"num_newaxis", "18"}), SYM(DT_F32, I(2)));
}

CASE(splits)
{
  Data in = IOTA(DT_F32, 2, 4);
  Data out[3];
  run_node(w, CALL("split", ATTRS({"indices_or_sections", "[2]"}, {"axis", "1"}), node_of(w, &in)), &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 0, 1, 4, 5);
  ASSERT_DATA(out[1], DT_F32, DIMS(2, 2), 2, 3, 6, 7);
  run_node(
      w, CALL("split", ATTRS({"indices_or_sections", "[1]"}, {"axis", "1"}, {"mode", "\"indices\""}), node_of(w, &in)),
      &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 1), 0, 4);
  ASSERT_DATA(out[1], DT_F32, DIMS(2, 3), 1, 2, 3, 5, 6, 7);
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  assert_type(w, CALL("split", ATTRS({"indices_or_sections", "[1, 3]"}), SYM(DT_F32, n)),
              "(Tensor[(1), float32], Tensor[(2), float32], Tensor[(n - 3), float32])");
}

CASE(splits_at_run_time)
{
  Data in[2] = {IOTA(DT_F32, 5), TENSOR(DT_I64, DIMS(3), 2, 0, 3)};
  Data out[3];
  run_node(w, CALL("dyn.split", NULL, node_of(w, &in[0]), node_of(w, &in[1])), in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2), 0, 1);
  assert_int_equal(out[1].shape[0], 0);
  ASSERT_DATA(out[2], DT_F32, DIMS(3), 2, 3, 4);
}
REFUSED(split_into_equal_sections, ERR_SHAPE,
        "split: an axis of extent 5 of Tensor[(5), float32] does not part into 2 equal sections")
{
  CALL("split", ATTRS({"indices_or_sections", "[2]"}), SYM(DT_F32, I(5)));
}
REFUSED(split_past_the_end, ERR_ARGUMENT, "index 7 in indices_or_sections is not between 2 and the extent 5")
{
  CALL("split", ATTRS({"indices_or_sections", "[2, 7]"}), SYM(DT_F32, I(5)));
}

/* ---- tile, repeat, meshgrid, sliding_window ------------------------------------------------------------ */

CASE(tiles_and_repeats)
{
  Data d = RUN("tile", ATTRS({"reps", "[2, 2]"}), IOTA(DT_F32, 2));
  ASSERT_DATA(d, DT_F32, DIMS(2, 4), 0, 1, 0, 1, 0, 1, 0, 1);
  d = RUN("repeat", ATTRS({"repeats", "2"}, {"axis", "0"}), IOTA(DT_F32, 2, 2));
  ASSERT_DATA(d, DT_F32, DIMS(4, 2), 0, 1, 0, 1, 2, 3, 2, 3);
  d = RUN("dyn.tile", NULL, IOTA(DT_F32, 2, 1), TENSOR(DT_I64, DIMS(2), 1, 3));
  ASSERT_DATA(d, DT_F32, DIMS(2, 3), 0, 0, 0, 1, 1, 1);
}
REFUSED(repeat_at_least_once, ERR_ARGUMENT, "repeat: repeats is 0; it is at least 1")
{
  CALL("repeat", ATTRS({"repeats", "0"}, {"axis", "0"}), SYM(DT_F32, I(5)));
}

CASE(makes_grids)
{
  Data out[2];
  run_tuple(w, "meshgrid", NULL, 2, (Data[]){IOTA(DT_F32, 2), IOTA(DT_F32, 3)}, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 3), 0, 0, 0, 1, 1, 1);
  ASSERT_DATA(out[1], DT_F32, DIMS(2, 3), 0, 1, 2, 0, 1, 2);
  run_tuple(w, "meshgrid", ATTRS({"indexing", "\"xy\""}), 2, (Data[]){IOTA(DT_F32, 2), IOTA(DT_F32, 3)}, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(3, 2), 0, 1, 0, 1, 0, 1);
}

CASE(slides_a_window)
{
  Data d = RUN("sliding_window", ATTRS({"axis", "0"}, {"window_shape", "[3]"}, {"strides", "[2]"}), IOTA(DT_F32, 6));
  ASSERT_DATA(d, DT_F32, DIMS(2, 3), 0, 1, 2, 2, 3, 4);
}

/* ---- shape_of, ndarray_size -------------------------------------------------------------------------------- */

CASE(tells_shapes)
{
  Data d = RUN("shape_of", ATTRS({"dtype", "\"int64\""}), IOTA(DT_F32, 2, 3, 4));
  ASSERT_DATA(d, DT_I64, DIMS(3), 2, 3, 4);
  d = RUN("ndarray_size", NULL, IOTA(DT_F32, 2, 3, 4));
  ASSERT_DATA(d, DT_I32, NODIMS, 24);
}
REFUSED(shape_of_floats, ERR_TYPE, "shape_of: dtype float32 does not hold sizes; it must be an integer")
{
  CALL("shape_of", ATTRS({"dtype", "\"float32\""}), SYM(DT_F32, I(5)));
}

/* ---- slices ------------------------------------------------------------------------------------------------ */

static void slices(World *w, const char *begin, const char *end, const char *strides, int n, const double *want)
{
  Data in = IOTA(DT_F32, 5);
  Data out[1];
  run_node(w, CALL("strided_slice", ATTRS({"begin", begin}, {"end", end}, {"strides", strides}), node_of(w, &in)), &in,
           out);
  assert_data(out, DT_F32, 1, (int64_t[]){n}, n, want);
  const char *text[3] = {begin, end, strides};
  Data dyn[4] = {in};
  for (int i = 0; i < 3; i++) {
    dyn[i + 1] = IOTA(DT_I64, 1);
    *(int64_t *)dyn[i + 1].data = strtoll(text[i] + 1, NULL, 10);
  }
  run_node(w,
           CALL("dyn.strided_slice", NULL, node_of(w, &dyn[0]), node_of(w, &dyn[1]), node_of(w, &dyn[2]),
                node_of(w, &dyn[3])),
           dyn, out);
  assert_data(out, DT_F32, 1, (int64_t[]){n}, n, want);
}

CASE(slices_as_numpy)
{
  slices(w, "[1]", "[4]", "[1]", NUMS(1, 2, 3));
  slices(w, "[1]", "[100]", "[2]", NUMS(1, 3));
  slices(w, "[-2]", "[9223372036854775807]", "[1]", NUMS(3, 4));
  slices(w, "[-100]", "[-1]", "[3]", NUMS(0, 3));
  slices(w, "[4]", "[-100]", "[-1]", NUMS(4, 3, 2, 1, 0));
  slices(w, "[3]", "[0]", "[-2]", NUMS(3, 1));
  slices(w, "[100]", "[0]", "[-3]", NUMS(4, 1));
  slices(w, "[3]", "[1]", "[1]", 0, NULL);
}

CASE(slices_some_axes)
{
  Data d = RUN("strided_slice", ATTRS({"begin", "[1]"}, {"end", "[3]"}, {"axes", "[-1]"}), IOTA(DT_F32, 2, 3));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 1, 2, 4, 5);
  d = RUN("strided_slice", ATTRS({"begin", "[1, 1]"}, {"end", "[-1, 1]"}, {"slice_mode", "\"size\""}),
          IOTA(DT_F32, 3, 3));
  ASSERT_DATA(d, DT_F32, DIMS(2, 1), 4, 7);
  d = RUN("slice_like", ATTRS({"axes", "[1]"}), IOTA(DT_F32, 2, 3), IOTA(DT_F32, 9, 2));
  ASSERT_DATA(d, DT_F32, DIMS(2, 2), 0, 1, 3, 4);
}

CASE(slices_symbolic_sizes)
{
  const Expr *n = var_new(w->m, "n", DT_I32, VAR_SIZE)->expr;
  const Node *x = SYM(DT_F32, n, I(4));
  assert_type(w, CALL("strided_slice", ATTRS({"begin", "[0, 1]"}, {"end", "[9223372036854775807, 3]"}), x),
              "Tensor[(n, 2), float32]");
  const Node *y = CALL("strided_slice", ATTRS({"begin", "[-2]"}, {"end", "[9223372036854775807]"}, {"axes", "[0]"}), x);
  Data in = IOTA(DT_F32, 3, 4);
  Data out[1];
  run_node(w, y, &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 4), 4, 5, 6, 7, 8, 9, 10, 11);
  in = IOTA(DT_F32, 1, 4);
  run_node(w, y, &in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(1, 4), 0, 1, 2, 3);
}

CASE(takes_the_first)
{
  Data in[2] = {IOTA(DT_F32, 4, 2), TENSOR(DT_I64, DIMS(1), 2)};
  Data out[1];
  run_node(w, CALL("dyn.take_first", NULL, node_of(w, &in[0]), node_of(w, &in[1])), in, out);
  ASSERT_DATA(out[0], DT_F32, DIMS(2, 2), 0, 1, 2, 3);
}
REFUSED(slice_stride_zero, ERR_ARGUMENT, "strided_slice: the stride of axis 0 is 0")
{
  CALL("strided_slice", ATTRS({"begin", "[1]"}, {"end", "[4]"}, {"strides", "[0]"}), SYM(DT_F32, I(5)));
}
REFUSED(slice_lists_of_one_length, ERR_ARGUMENT, "strided_slice: begin has 1 numbers, end 2")
{
  CALL("strided_slice", ATTRS({"begin", "[1]"}, {"end", "[4, 4]"}), SYM(DT_F32, I(5), I(5)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(reshape_moves_nothing),
    cmocka_unit_test(reshape_knows_the_codes),
    cmocka_unit_test(reverse_reshape_reads_from_the_right),
    cmocka_unit_test(reshape_keeps_symbolic_sizes),
    cmocka_unit_test(dyn_reshape_takes_its_shape_from_an_operand),
    cmocka_unit_test(dyn_reshape_refuses_a_size_that_does_not_fit),
    cmocka_unit_test(reshape_of_a_computed_shape_folds),
    cmocka_unit_test(reshape_counts_elements),
    cmocka_unit_test(reshape_infers_one),
    cmocka_unit_test(reshape_divides),
    cmocka_unit_test(reshape_has_no_dimension_left),
    cmocka_unit_test(reshape_unknown_code),
    cmocka_unit_test(reshape_like_takes_part_of_the_shape),
    cmocka_unit_test(squeeze_and_expand),
    cmocka_unit_test(squeeze_checks_at_run_time),
    cmocka_unit_test(squeeze_needs_extent_one),
    cmocka_unit_test(axes_known_at_run_time),
    cmocka_unit_test(squeeze_at_run_time),
    cmocka_unit_test(transposes),
    cmocka_unit_test(transpose_axis_twice),
    cmocka_unit_test(transpose_all_axes),
    cmocka_unit_test(transpose_follows_a_layout),
    cmocka_unit_test(reverses),
    cmocka_unit_test(reverse_sequence_lengths),
    cmocka_unit_test(concatenates),
    cmocka_unit_test(concatenates_symbolic_sizes),
    cmocka_unit_test(concatenate_shapes),
    cmocka_unit_test(concatenate_dtypes),
    cmocka_unit_test(concatenate_nothing),
    cmocka_unit_test(too_many_dimensions),
    cmocka_unit_test(splits),
    cmocka_unit_test(splits_at_run_time),
    cmocka_unit_test(split_into_equal_sections),
    cmocka_unit_test(split_past_the_end),
    cmocka_unit_test(tiles_and_repeats),
    cmocka_unit_test(repeat_at_least_once),
    cmocka_unit_test(makes_grids),
    cmocka_unit_test(slides_a_window),
    cmocka_unit_test(tells_shapes),
    cmocka_unit_test(shape_of_floats),
    cmocka_unit_test(slices_as_numpy),
    cmocka_unit_test(slices_some_axes),
    cmocka_unit_test(slices_symbolic_sizes),
    cmocka_unit_test(takes_the_first),
    cmocka_unit_test(slice_stride_zero),
    cmocka_unit_test(slice_lists_of_one_length),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
