"""relay as TVM's programs use it: the names, the order of arguments, types of variables declared without one, text."""

import importlib.util
import inspect
import sys

import numpy as np
import pytest

import lathe
from lathe import relay

# Parameters of TVM 0.18's functions, in their order; ours may have more behind them.
CONV = "data weight strides padding dilation groups channels kernel_size data_layout kernel_layout out_layout out_dtype"
SPREAD = "data weight strides padding dilation channels kernel_size groups data_layout kernel_layout out_layout "
SPREAD += "output_padding out_dtype"
POOL = "data pool_size strides dilation padding layout out_layout ceil_mode"
RESIZE = "data size roi layout method coordinate_transformation_mode rounding_method cubic_alpha cubic_exclude "
RESIZE += "extrapolation_value out_dtype"
REDUCE = "data axis keepdims exclude"
NORM = "data gamma beta axis epsilon center scale"
SIGNATURES = {
    **{f"nn.conv{d}d": CONV for d in (1, 2, 3)},
    **{f"nn.conv{d}d_transpose": SPREAD for d in (1, 2, 3)},
    **{f"nn.max_pool{d}d": POOL for d in (1, 2, 3)},
    **{f"nn.avg_pool{d}d": POOL + " count_include_pad" for d in (1, 2, 3)},
    **{f"nn.adaptive_{k}_pool{d}d": "data output_size layout out_layout" for k in ("max", "avg") for d in (1, 2, 3)},
    **{f"nn.global_{k}_pool2d": "data layout out_layout" for k in ("max", "avg")},
    **{f"image.resize{d}d": RESIZE for d in (1, 2, 3)},
    **{
        k: REDUCE
        for k in (
            "sum",
            "prod",
            "max",
            "min",
            "all",
            "any",
            "mean",
            "logsumexp",
            "argmax",
            "argmin",
            "variance",
            "std",
            "mean_variance",
        )
    },
    **{
        k: "lhs rhs"
        for k in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "power",
            "mod",
            "floor_divide",
            "maximum",
            "less",
            "equal",
            "logical_and",
            "left_shift",
        )
    },
    "nn.contrib_conv2d_nchwc": CONV.replace("weight", "kernel", 1),
    "nn.contrib_depthwise_conv2d_nchwc": CONV.replace("weight", "kernel", 1),
    "nn.deformable_conv2d": CONV.replace("weight", "offset weight", 1).replace("groups", "deformable_groups groups"),
    "nn.contrib_conv2d_winograd_without_weight_transform": CONV.replace("strides", "tile_size strides"),
    "nn.dense": "data weight units out_dtype",
    "nn.contrib_dense_pack": "data weight weight_layout units out_dtype",
    "nn.matmul": "tensor_a tensor_b units out_dtype transpose_a transpose_b",
    "nn.batch_matmul": "tensor_a tensor_b out_dtype transpose_a transpose_b",
    "nn.bias_add": "data bias axis",
    "nn.softmax": "data axis",
    "nn.log_softmax": "data axis",
    "nn.batch_norm": "data gamma beta moving_mean moving_var axis epsilon center scale",
    "nn.layer_norm": NORM,
    "nn.instance_norm": NORM,
    "nn.group_norm": NORM.replace("axis", "num_groups axis"),
    "nn.l2_normalize": "data eps axis",
    "nn.lrn": "data size axis bias alpha beta",
    "nn.prelu": "data alpha axis",
    "nn.leaky_relu": "data alpha",
    "nn.dropout": "data rate",
    "nn.pad": "data pad_width pad_value pad_mode",
    "nn.mirror_pad": "data pad_width mode",
    "nn.upsampling": "data scale_h scale_w layout method align_corners",
    "nn.depth_to_space": "data block_size layout mode",
    "nn.space_to_batch_nd": "data block_shape paddings pad_value",
    "nn.batch_to_space_nd": "data block_shape crops",
    "nn.nll_loss": "predictions targets weights reduction ignore_index",
    "image.grid_sample": "data grid method layout padding_mode align_corners",
    "image.affine_grid": "data target_shape",
    "vision.roi_align": "data rois pooled_size spatial_scale sample_ratio layout mode",
    "vision.roi_pool": "data rois pooled_size spatial_scale layout",
    "vision.all_class_non_max_suppression": "boxes scores max_output_boxes_per_class iou_threshold score_threshold "
    "output_format",
    "reshape": "data newshape allowzero",
    "reverse_reshape": "data newshape",
    "reshape_like": "data shape_like lhs_begin lhs_end rhs_begin rhs_end",
    "expand_dims": "data axis num_newaxis",
    "squeeze": "data axis",
    "transpose": "data axes",
    "take": "data indices axis batch_dims mode",
    "gather": "data axis indices",
    "gather_nd": "data indices batch_dims index_rank",
    "scatter_elements": "data indices updates axis reduction",
    "scatter_nd": "data indices updates mode",
    "strided_slice": "data begin end strides axes slice_mode",
    "slice_like": "data shape_like axes",
    "split": "data indices_or_sections axis",
    "concatenate": "data axis",
    "stack": "data axis",
    "tile": "data reps",
    "repeat": "data repeats axis",
    "reverse": "data axis",
    "reverse_sequence": "data seq_lengths seq_axis batch_axis",
    "sliding_window": "data axis window_shape strides",
    "meshgrid": "data indexing",
    "full": "fill_value shape dtype",
    "full_like": "data fill_value",
    "arange": "start stop step dtype",
    "zeros": "shape dtype",
    "one_hot": "indices on_value off_value depth axis dtype",
    "where": "condition x y",
    "cast": "data dtype",
    "broadcast_to": "data shape",
    "collapse_sum_to": "data shape",
    "layout_transform": "data src_layout dst_layout",
    "sequence_mask": "data valid_length mask_value axis",
    "matrix_set_diag": "data diagonal k align",
    "cumsum": "data axis dtype exclusive",
    "sort": "data axis is_ascend",
    "argsort": "data axis is_ascend dtype",
    "topk": "data k axis ret_type is_ascend dtype",
    "searchsorted": "sorted_sequence values right dtype",
    "unique": "data is_sorted return_counts",
    "unravel_index": "indices shape",
    "trilu": "data k upper",
    "einsum": "data equation",
    "stft": "data n_fft hop_length win_length window normalized onesided",
    "dft": "re_data im_data inverse",
    "shape_of": "data dtype",
    "ndarray_size": "data dtype",
    "fixed_point_multiply": "data multiplier shift",
    "sparse_to_dense": "sparse_indices output_shape sparse_values default_value",
    "sparse_reshape": "sparse_indices prev_shape new_shape",
    "strided_set": "data v begin end strides",
    "nn.bitserial_dense": "data weight units data_bits weight_bits pack_dtype out_dtype unipolar",
    "nn.bitserial_conv2d": "data weight strides padding channels kernel_size activation_bits weight_bits data_layout "
    "kernel_layout pack_dtype out_dtype unipolar",
    "segment_sum": "data segment_ids num_segments",
    "image.dilation2d": "data weight strides padding dilations data_layout kernel_layout out_dtype",
    "nn.correlation": "data1 data2 kernel_size max_displacement stride1 stride2 padding is_multiply layout",
    "nn.sparse_dense": "dense_mat sparse_mat sparse_lhs",
    "nn.sparse_add": "dense_mat sparse_mat",
    "nn.upsampling3d": "data scale_d scale_h scale_w layout method coordinate_transformation_mode",
    "nn.cross_entropy": "predictions targets",
    "vision.multibox_prior": "data sizes ratios steps offsets clip",
    "vision.multibox_transform_loc": "cls_prob loc_pred anchor clip threshold variances keep_background",
    "vision.get_valid_counts": "data score_threshold id_index score_index",
    "vision.non_max_suppression": "data valid_count indices max_output_size iou_threshold force_suppress top_k "
    "coord_start score_index id_index return_indices invalid_to_bottom",
    "vision.yolo_reorg": "data stride",
}


def function(name):
    place = relay
    for word in name.split("."):
        place = getattr(place, word)
    return place


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_arguments_stand_in_tvms_order(name):
    want = SIGNATURES[name].split()
    have = list(inspect.signature(function(name)).parameters)
    assert have[: len(want)] == want


def test_every_operator_is_in_relay_op_as_well():
    from lathe.relay.op.table import rows

    for name in list(rows()) + ["reverse_reshape", "nn.contrib_conv2d_nchwc"]:
        place = relay.op
        for word in name.split("."):
            place = getattr(place, word)
        assert place is function(name)


def test_module_paths_of_tvm_can_be_imported():
    import lathe.relay.op.nn.nn as nn
    from lathe.relay.op.tensor import exp
    from lathe.relay.op.transform import reshape
    from lathe.relay.op.vision import nms

    assert (nn.conv2d, exp, reshape) == (relay.nn.conv2d, relay.exp, relay.reshape)
    assert nms is sys.modules["lathe.relay.vision"]
    assert relay.op.op.get("add") == relay.op.get("add") and relay.op.OpPattern.OPAQUE == 8


@pytest.mark.parametrize(
    "text",
    ["relay.nn.conv22d", "relay.op.no_such", "relay.op.transform.no_such", "relay.no_such", "relay.op.nn.no_such"],
)
def test_what_is_absent_is_named_with_the_docs(text):
    with pytest.raises(AttributeError, match=f"has no '{text.rsplit('.', 1)[-1]}'.*docs/tvm.md"):
        eval(text)  # pylint: disable=eval-used


def test_positional_calls_give_what_tvm_means():
    x, offset, w = (
        relay.var("x", shape=(1, 2, 5, 5)),
        relay.var("o", shape=(1, 18, 2, 2)),
        relay.var("w", shape=(3, 2, 3, 3)),
    )
    y = relay.nn.deformable_conv2d(x, offset, w, (2, 2), (0, 0), (1, 1), 1, 1, 3, (3, 3), "NCHW", "OIHW", "", "")
    assert y.checked_type == relay.TensorType((1, 3, 2, 2))
    blocks = relay.nn.contrib_conv2d_nchwc(
        relay.var("b", shape=(1, 2, 4, 4, 8)),
        relay.var("k", shape=(1, 16, 1, 1, 8)),
        kernel_layout="OIHW8o",
        channels=8,
        kernel_size=(1, 1),
    )
    assert blocks.checked_type == relay.TensorType((1, 1, 4, 4, 8))


# ---- types of variables declared without one ----------------------------------------------------------------


def types_of(body):
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))
    return {p.name_hint: p.checked_type for p in mod["main"].params}


T = relay.TensorType
OPERANDS = [
    (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=(3, 5)), (1, 4, 9, 9), (8, 4, 3, 5)),
    (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=(3, 3), groups=4), (1, 4, 9, 9), (8, 1, 3, 3)),
    (
        lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO"),
        (1, 9, 9, 4),
        (3, 3, 4, 8),
    ),
    (lambda x, w: relay.nn.conv1d(x, w, channels=8, kernel_size=3), (1, 4, 9), (8, 4, 3)),
    (lambda x, w: relay.nn.conv3d(x, w, channels=8, kernel_size=(1, 2, 3)), (1, 4, 9, 9, 9), (8, 4, 1, 2, 3)),
    (
        lambda x, w: relay.nn.conv2d_transpose(x, w, channels=8, kernel_size=(3, 3), groups=2),
        (1, 4, 9, 9),
        (4, 4, 3, 3),
    ),
    (
        lambda x, w: relay.nn.conv2d_transpose(
            x, w, channels=6, kernel_size=(2, 3), data_layout="NHWC", kernel_layout="HWOI"
        ),
        (1, 9, 9, 4),
        (2, 3, 6, 4),
    ),
    (lambda x, w: relay.nn.dense(x, w, units=7), (2, 5), (7, 5)),
    (lambda x, w: relay.nn.matmul(x, w, units=7), (2, 5), (5, 7)),
    (lambda x, w: relay.nn.matmul(x, w, units=7, transpose_a=True, transpose_b=True), (2, 5), (7, 2)),
    (lambda x, w: relay.nn.bias_add(x, w), (2, 5, 3), (5,)),
    (lambda x, w: relay.nn.bias_add(x, w, axis=-1), (2, 5, 3), (3,)),
    (lambda x, w: relay.nn.prelu(x, w), (2, 5, 3), (5,)),
    (lambda x, w: relay.nn.layer_norm(x, w, w), (2, 5, 3), (3,)),
    (lambda x, w: relay.nn.instance_norm(x, w, w), (2, 5, 3), (5,)),
    (lambda x, w: relay.nn.group_norm(x, w, w, num_groups=2), (2, 4, 3), (4,)),
    (lambda x, w: relay.nn.batch_norm(x, w, w, w, w, axis=2)[0], (2, 5, 3), (3,)),
]


@pytest.mark.parametrize("case", range(len(OPERANDS)))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_weight_gets_its_type_from_the_operator(case, dtype):
    make, data, weight = OPERANDS[case]
    assert types_of(make(relay.var("x", shape=data, dtype=dtype), relay.var("w")))["w"] == T(weight, dtype)


def test_untyped_variables_go_through_a_whole_network():
    x = relay.nn.conv2d(
        relay.var("data", shape=(1, 3, 8, 8)), relay.var("c_weight"), channels=4, kernel_size=(3, 3), padding=(1, 1)
    )
    x = relay.nn.batch_norm(x, *[relay.var(n) for n in ("gamma", "beta", "mean", "var")])[0]
    x = relay.nn.dense(relay.nn.batch_flatten(relay.nn.relu(x)), relay.var("fc_weight"), units=10)
    x = relay.nn.bias_add(x, relay.var("fc_bias"), axis=-1)
    f = relay.Function(relay.analysis.free_vars(x), x)
    mod, params = relay.testing.create_workload(f)
    assert params["fc_weight"].shape == (10, 256) and params["var"].shape == (4,)
    data = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype("float32")
    given = [data] + [params[p.name_hint].numpy() for p in mod["main"].params[1:]]
    want = relay.create_executor("debug", mod).evaluate()(*given).numpy()
    have = relay.create_executor("graph", lathe.IRModule.from_expr(f)).evaluate()(*given).numpy()
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_a_type_that_is_declared_as_incomplete_is_found():
    y = relay.nn.dense(relay.var("x", shape=(2, 5)), relay.var("w", relay.IncompleteType()), units=3)
    assert relay.testing.run_infer_type(y).args[1].checked_type == T((3, 5))


def test_a_function_applied_on_the_spot_takes_its_arguments_types():
    x, y = relay.var("x"), relay.var("y", shape=(3,))
    assert relay.testing.run_infer_type(relay.Function([x], relay.exp(x))(y)).checked_type == T((3,))


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w: relay.nn.relu(w),
        lambda x, w: relay.nn.dense(x, w),  # units is not given
        lambda x, w: relay.nn.conv2d(x, w, channels=3),  # kernel_size is not given
        lambda x, w: w,
    ],
)
def test_a_type_that_nothing_says_is_asked_for(make):
    with pytest.raises(lathe.error.TypeError, match="type of variable 'w' is not known; declare it"):
        types_of(make(relay.var("x", shape=(1, 3, 4, 4)), relay.var("w")))


def test_a_weight_that_two_operators_want_differently_is_refused():
    x, w = relay.var("x", shape=(2, 5)), relay.var("w")
    with pytest.raises(lathe.error.ShapeError, match="units is 4, .* has 3"):
        types_of(relay.concatenate([relay.nn.dense(x, w, units=3), relay.nn.dense(x, w, units=4)], 1))


# ---- text ---------------------------------------------------------------------------------------------------

VERSION = '#[version = "0.0.5"]\n'


@pytest.mark.parametrize(
    "text, want",
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("16 / 4 / 2", 2),
        ("2 * 3 + 4 * 5", 26),
        ("--10", 10),
        ("---10", -10),
        ("5 - -3", 8),
        ("let %x = 3; -%x * 2", -6),
        ("1 + 1 == 2", True),
        ("1 < 2", True),
        ("2 != 1 + 1", False),
        ("3 <= 2", False),
        ("1; 2", 2),
        ("(); (1, 2).1", 2),
        ("%0 = 4; %0 * %0", 16),
        ("if (1 >= 2) { 1 } else { 2 + 3 }", 5),
        ("(let %x = 1; %x) + 1", 2),
        ("fn (%x: int32) { %x + 1 }(2 * 3)", 7),
    ],
)
def test_text_of_an_expression_means(text, want):
    value = relay.create_executor().evaluate(relay.parse_expr(VERSION + text))
    assert value.numpy() == want


def test_infix_and_prefix_are_the_same_graph():
    head = "free_var %x: Tensor[(3), float32]; free_var %y: Tensor[(3), float32]; "
    infix, prefix = relay.parse_expr(head + "%x * %y + %x"), relay.parse_expr(head + "add(multiply(%x, %y), %x)")
    assert lathe.ir.structural_equal(infix, prefix, map_free_vars=True)


def test_free_variables_are_told_and_read():
    x, w = relay.var("x", shape=(2, 3)), relay.var("w")
    e = relay.nn.dense(x, w, units=4)
    assert e.astext().startswith("free_var %x: Tensor[(2, 3), float32];\nfree_var %w;\n")
    again = relay.parse_expr(e.astext())
    assert [v.name_hint for v in relay.analysis.free_vars(again)] == ["x", "w"] and again.astext() == e.astext()
    main = relay.fromtext(VERSION + e.astext())["main"]
    assert [p.checked_type for p in main.params] == [T((2, 3)), T((4, 3))]


def test_text_of_a_module_with_undeclared_parameters():
    mod = relay.parse(VERSION + "def @main(%x: Tensor[(1, 4), float32], %w) { nn.dense(%x, %w, units=3) }")
    assert mod["main"].params[1].checked_type == T((3, 4))


def test_text_beside_a_module():
    known = relay.parse("def @double(%x: float32) -> float32 { %x + %x }")
    mod = relay.parse("def @main(%y: float32) { @double(%y) * 3f }", init_module=known)
    assert relay.create_executor("graph", mod).evaluate()(np.float32(2)).numpy() == 12
    assert [v.name_hint for v in known.get_global_vars()] == ["double"]


@pytest.mark.parametrize(
    "text, message",
    [
        ('#[version = "0.0.4"]\n1', '1:19: this is text of version "0.0.4"; 0.0.5 is read'),
        ("1 +", "1:4: expected an expression"),
        ("%x", "there is no %x here"),
        ("free_var x; 1", "free_var names a variable"),
        ("1 + 2f", "1:3: add: "),
        ("1 2", "'2' is left over"),
    ],
)
def test_wrong_text_is_refused(text, message):
    with pytest.raises((lathe.error.ParseError, lathe.error.TypeError)) as e:
        relay.parse_expr(text)
    assert message in str(e.value)


def test_a_function_without_parameters_is_callable():
    for kind in ("debug", "graph", "vm"):
        f = relay.create_executor(kind).evaluate(relay.Function([], relay.const(1.5) + relay.const(1.0)))
        assert f().numpy() == 2.5
        mod = lathe.IRModule.from_expr(relay.Function([], relay.const(4)))
        assert relay.create_executor(kind, mod).evaluate()().numpy() == 4
        assert relay.create_executor(kind, mod).evaluate(mod.get_global_var("main"))().numpy() == 4
    assert relay.create_executor().evaluate(relay.const(7)).numpy() == 7


def test_bodies_written_step_by_step():
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(2,))
    sb = relay.ScopeBuilder()
    y = sb.let("y", x + relay.const(1.0))
    with sb.if_scope(c):
        sb.ret(y * y)
    with sb.else_scope():
        sb.ret(x)
    f = relay.Function([c, x], sb.get())
    assert relay.analysis.well_formed(f)
    run = relay.create_executor("debug").evaluate(f)
    for cond, want in ((True, [4.0, 9.0]), (False, [1.0, 2.0])):
        np.testing.assert_array_equal(run(np.array(cond), np.array([1, 2], "float32")).numpy(), want)
    with pytest.raises(lathe.error.ArgumentError, match="ends without a value"):
        relay.ScopeBuilder().get()


def test_while_loop_is_a_function_that_calls_itself():
    start = [relay.var(n, shape=(), dtype="int32") for n in "ia"]
    loop = relay.loops.while_loop(
        lambda i, a: relay.less(i, relay.const(10)), start, lambda i, a: [i + relay.const(1), a + i]
    )
    call = relay.Function([], loop(relay.const(0), relay.const(0)))
    for kind in ("debug", "vm"):
        i, total = relay.create_executor(kind).evaluate(call)()
        assert (int(i.numpy()), int(total.numpy())) == (10, sum(range(10)))


def test_check_grad_tells_right_gradients_from_wrong_ones():
    x, y = relay.var("x", shape=(3, 2), dtype="float64"), relay.var("y", shape=(2,), dtype="float64")
    relay.testing.check_grad(relay.Function([x, y], relay.exp(x) * y))
    rules = relay.op.gradients.RULES
    right, rules["exp"] = rules["exp"], lambda node, g: [g]
    try:
        with pytest.raises(AssertionError, match="gradient of argument 0"):
            relay.testing.check_grad(relay.Function([x], relay.exp(x)))
    finally:
        rules["exp"] = right


def test_how_much_there_is_to_compute():
    data, weight = relay.var("d", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    conv = relay.nn.conv2d(data, weight, padding=(1, 1))
    f = relay.testing.run_infer_type(relay.Function([data, weight], relay.nn.relu(conv)))
    assert relay.analysis.get_total_mac_number(f) == 8 * 8 * 4 * 3 * 3 * 3
    assert relay.analysis.count_layers(f, ["nn.conv2d", "nn.relu"]) == 2
    a, b = relay.var("a", shape=(5, 7)), relay.var("b", shape=(6, 7))
    g = relay.testing.run_infer_type(relay.Function([a, b], relay.nn.dense(a, b)))
    assert relay.analysis.get_total_mac_number(g) == 5 * 6 * 7
    assert relay.analysis.all_dtypes(relay.testing.run_infer_type(relay.cast(a, "int8"))) == {"float32", "int8"}


def test_forms_of_graphs():
    x, one = relay.var("x"), relay.const(1.0)
    assert relay.analysis.well_formed(relay.Let(x, one, x))
    assert not relay.analysis.well_formed(relay.Let(x, one, relay.Let(x, one, x)))
    mod = lathe.IRModule()
    relay.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    any_ = relay.PatternWildcard()
    half = relay.Match(x, [relay.Clause(relay.PatternConstructor(cons, [any_, relay.PatternConstructor(nil)]), one)])
    left = relay.analysis.unmatched_cases(half, mod)
    assert [p.constructor.name_hint for p in left] == ["Cons", "Nil"]
    assert left[0].patterns[1].constructor.name_hint == "Cons"
    whole = relay.Match(x, [relay.Clause(any_, one)])
    assert relay.analysis.unmatched_cases(whole, mod) == []


def test_nodes_with_other_fields():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    total = relay.add(x, y)
    f = relay.Function([x, y], total)
    assert relay.expr.CallWithFields(total).same_as(total)
    assert relay.expr.CallWithFields(total, opt_args=[y, x]).args[0].same_as(y)
    assert relay.function.FunctionWithFields(f, opt_body=x).body.same_as(x)
    assert relay.expr.VarWithFields(x, "z").name_hint == "z"
    with pytest.raises(lathe.error.ArgumentError, match="no field"):
        relay.expr.CallWithFields(total, opt_body=x)


def test_passes_written_over_the_functor():
    x = relay.var("x", shape=(2,))
    mod = lathe.IRModule.from_expr(relay.Function([x], x / relay.const(4.0)))
    assert "multiply" in str(relay.transform.DivToMul()(mod)) and "divide" not in str(relay.transform.DivToMul()(mod))
    text = "type Box[A] { Put(A), }\ndef @main[A]() -> fn (A) -> Box[A] { Put }"
    out = relay.transform.EtaExpand(expand_constructor=True)(relay.parse(text))["main"].body
    assert isinstance(out, relay.Function) and out.body.op.name_hint == "Put"
    folded = relay.transform.FoldConstantExpr(relay.add(relay.const(1.0), relay.const(2.0)))
    assert isinstance(folded, relay.Constant) and float(folded.data.numpy()) == 3.0


def test_families_of_operators_are_modules_to_import():
    for name in ("relay.op.nn", "relay.op.nn.nn", "relay.op.transform", "relay.qnn.op", "relay.op.vision.nms"):
        assert importlib.util.find_spec("lathe." + name) is not None, name
