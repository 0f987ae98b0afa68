"""Convolutions of every kind from ONNX to the answer, beside ONNX Runtime: groups, transposed, one to three dimensions,
asymmetric padding, explicit padding before windows, epilogues."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import lathe  # noqa: E402
from lathe import relay  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

# data, weight, attributes
CONVOLUTIONS = {
    "groups_of_4": ((1, 32, 15, 14), (32, 4, 3, 3), {"group": 8, "pads": [1, 0, 2, 1]}),
    "groups_of_8": ((2, 64, 13, 11), (64, 8, 3, 3), {"group": 8, "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    "groups_of_24": ((1, 48, 9, 9), (48, 24, 3, 3), {"group": 2, "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    "groups_of_9": ((1, 18, 9, 9), (18, 9, 3, 3), {"group": 2}),
    "multiplier": ((1, 16, 10, 10), (32, 1, 5, 5), {"group": 16, "pads": [2, 2, 2, 2], "strides": [2, 2]}),
    "few_outputs": ((1, 48, 7, 9), (16, 3, 1, 1), {"group": 16}),
    "one_dimension": ((2, 20, 61), (48, 20, 5), {"pads": [3, 1], "dilations": [2]}),
    "one_dimension_depthwise": ((1, 48, 50), (48, 1, 9), {"group": 48, "pads": [4, 4], "strides": [2]}),
    "three_dimensions": ((1, 16, 5, 9, 8), (32, 16, 3, 3, 3), {"pads": [1, 1, 0, 1, 1, 2], "strides": [1, 2, 1]}),
    "three_dimensions_depthwise": ((1, 32, 4, 7, 7), (32, 1, 3, 3, 3), {"group": 32, "pads": [1, 1, 1, 1, 1, 1]}),
    "odd_channels": ((1, 17, 12, 13), (19, 17, 3, 3), {"pads": [1, 1, 1, 1]}),
    "one_tap": ((2, 16, 13, 11), (24, 16, 1, 1), {}),
    "one_tap_many_channels": ((1, 80, 14, 14), (96, 80, 1, 1), {}),
    "one_tap_one_dimension": ((1, 40, 61), (64, 40, 1), {}),
    "one_tap_three_dimensions": ((1, 24, 4, 7, 6), (16, 24, 1, 1, 1), {}),
    "winograd": ((1, 32, 60, 61), (32, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
    "winograd_groups": ((1, 96, 28, 27), (96, 48, 3, 3), {"pads": [1, 1, 1, 1], "group": 2}),
}
TRANSPOSED = {
    "kernel_2": ((1, 32, 9, 8), (32, 16, 2, 2), {"strides": [2, 2]}),
    "kernel_3": ((1, 16, 7, 9), (16, 32, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0]}),
    "kernel_4": ((2, 16, 6, 6), (16, 16, 4, 4), {"strides": [2, 2], "pads": [1, 0, 1, 2]}),
    "one_element": ((1, 24, 1, 1), (24, 32, 4, 4), {}),
    "small_map": ((2, 70, 5, 4), (70, 6, 5, 4), {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2]}),
    "small_map_dilated": ((1, 90, 5, 6), (90, 3, 4, 5), {"dilations": [2, 1], "pads": [0, 1, 1, 0]}),
    "small_volume": ((1, 80, 3, 3, 4), (80, 4, 3, 3, 4), {"strides": [1, 2, 2]}),
    "short_signal": ((2, 200, 5), (200, 7, 9), {"strides": [2], "pads": [1, 0]}),
    "groups": ((1, 32, 6, 5), (32, 16, 3, 3), {"group": 2, "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    "depthwise": ((1, 16, 6, 7), (16, 1, 4, 4), {"group": 16, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "dilated": ((1, 16, 6, 7), (16, 8, 3, 3), {"dilations": [2, 2], "strides": [2, 2]}),
    "one_dimension": ((1, 32, 20), (32, 16, 16), {"strides": [8], "pads": [4, 4]}),
    "three_dimensions": ((1, 16, 3, 4, 5), (16, 16, 2, 3, 3), {"strides": [2, 2, 2]}),
    "stride_1": ((1, 16, 9, 8), (16, 24, 3, 3), {"pads": [1, 1, 1, 1]}),
    "odd_channels": ((1, 19, 17, 15), (19, 23, 4, 4), {"strides": [3, 3]}),
    "odd_groups": ((2, 9, 9, 9), (9, 11, 3, 3), {"group": 3, "strides": [3, 3], "pads": [1, 1, 1, 1]}),
    "kernel_below_stride": ((1, 10, 8, 9), (10, 7, 2, 2), {"strides": [3, 3], "pads": [1, 1, 1, 1], "output_padding": [2, 1]}),
    "odd_stride_1": ((2, 13, 7, 6), (13, 5, 5, 3), {"group": 1, "pads": [0, 1, 2, 0]}),
    "dilated_odd": ((1, 5, 6, 7), (5, 9, 3, 3), {"dilations": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 2]}),
    "odd_one_dimension": ((2, 13, 37), (13, 5, 7), {"strides": [3], "pads": [1, 2], "output_padding": [1]}),
    "odd_three_dimensions": ((1, 5, 3, 4, 5), (5, 7, 3, 2, 3), {"strides": [2, 2, 1], "pads": [1, 0, 1, 0, 0, 1]}),
}


def agree(nodes, weights, data, error=1e-5, level=3, target="llvm"):
    """The model of these nodes gives what ONNX Runtime gives; the implementations of its kernels."""
    constants = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)],
        [onnx.ValueInfoProto(name="y")],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(5).standard_normal(data).astype("float32")
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # its own folding takes zeros before MaxPool for -inf
    wanted = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]
    module, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=level):
        library = relay.build(module, target=target, params=params)
    runner = graph_executor.GraphModule(library["default"](lathe.cpu(0)))
    runner.set_input("x", x)
    runner.run()
    found = runner.get_output(0).numpy()
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= error * np.abs(wanted).max()
    taken = [n.impl for n in library.model.nodes()]
    assert not any("(not" in i for i in taken), taken          # no schedule was refused
    return taken


def drawn(shape, seed=3):
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype("float32")


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, level):
    data, weight, attributes = CONVOLUTIONS[name]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    taken = agree(
        nodes, {"w": drawn(weight), "b": drawn(weight[:1])}, data, 5e-5 if "winograd" in name else 1e-5, level
    )
    if level == 3 and name not in ("groups_of_9", "odd_channels"):
        assert any(i.startswith("conv") for i in taken), taken
    if level == 3 and "winograd" in name:
        assert any(i.startswith("conv2d.winograd") for i in taken), taken  # how the weight comes is the target's matter


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed(name):
    data, weight, attributes = TRANSPOSED[name]
    channels = weight[1] * attributes.get("group", 1)
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    taken = agree(nodes, {"w": drawn(weight), "b": drawn((channels,))}, data)
    assert any(i.startswith(("conv", "depthwise")) for i in taken), taken


@pytest.mark.parametrize("pool,value", [("MaxPool", -np.inf), ("MaxPool", 0.0), ("AveragePool", 0.0), ("Conv", 0.0)])
def test_padding_joins_the_window(pool, value):
    """An explicit Pad becomes the window's own padding where that means the same."""
    weights = {"p": np.array([0, 0, 1, 0, 0, 0, 2, 1], "int64"), "v": np.float32(value)}
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2]} if pool != "Conv" else {}
    if pool == "Conv":
        weights["w"] = drawn((16, 16, 3, 3))
    nodes = [
        helper.make_node("Pad", ["x", "p", "v"], ["q"]),
        helper.make_node(pool, ["q", "w"] if pool == "Conv" else ["q"], ["y"], **attributes),
    ]
    taken = agree(nodes, weights, (1, 16, 12, 13))
    folded = pool != "MaxPool" or value < 0
    kernels = len([i for i in taken if not i.startswith("layout")])
    assert (kernels <= (2 if pool == "Conv" else 1)) == folded, taken


def test_no_winograd():
    """The configuration that forbids Winograd's algorithm is heeded."""
    data, weight, attributes = CONVOLUTIONS["winograd"]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)],
            [onnx.ValueInfoProto(name="y")],
            [numpy_helper.from_array(drawn(weight), "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    for config, wanted in (({}, True), ({"lathe.impl.no_winograd": True}, False)):
        module, params = relay.frontend.from_onnx(model)
        with lathe.transform.PassContext(opt_level=3, config=config):
            library = relay.build(module, target="llvm", params=params)
        assert any("winograd" in n.impl for n in library.model.nodes()) == wanted


def test_winograd_with_its_weight_as_it_is():
    """In a network that computes long beside it, a weight that would be four times as large is transformed in every
    run, on processors
    whose multiply-adds take a lane; which (test_choice.c says so for known ones) is the target's matter, the answer is not."""
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], strides=[2, 2], pads=[3, 3, 3, 3]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Conv", ["p", "w", "b"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    weights = {"v": drawn((256, 16, 7, 7)), "w": drawn((256, 256, 3, 3)), "b": drawn((256,))}
    for cores in (2, 64):
        taken = agree(nodes, weights, (1, 16, 112, 112), 5e-5, target=f"llvm -num-cores={cores}")
        assert any(i.startswith("conv2d.winograd") for i in taken), taken


def test_one_tap_alone_keeps_its_layout():
    """Nothing brings data into blocks and back for one convolution, with what stands behind it in the same kernel."""
    w, b = drawn((64, 16, 1, 1)), drawn((64,))
    conv = helper.make_node("Conv", ["x", "w", "b"], ["c"])
    one = [conv, helper.make_node("Sigmoid", ["c"], ["s"]), helper.make_node("Mul", ["c", "s"], ["y"])]
    assert agree(one, {"w": w, "b": b}, (1, 16, 55, 55)) == ["conv2d.im2col"]


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize(
    "data, kernel, attributes",
    [
        ((1, 88, 28, 28), 3, {"pads": [1, 1, 1, 1]}),
        ((1, 16, 112, 112), 3, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 24, 57, 55), 3, {"strides": [2, 2], "pads": [1, 0, 0, 2]}),
        ((1, 3, 90, 200), 3, {"pads": [0, 1, 2, 0]}),
    ],
)
def test_depthwise_alone_keeps_its_layout(data, kernel, attributes, cores):
    """One plane after the other, zeros around it; few planes are shared by bands of rows."""
    channels = data[1]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=channels, **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    weights = {"w": drawn((channels, 1, kernel, kernel)), "b": drawn((channels,))}
    assert agree(nodes, weights, data, target=f"llvm -num-cores={cores}") == ["conv2d.planes"]


@pytest.mark.parametrize("cores", [1, 16])
@pytest.mark.parametrize(
    "data, weight, attributes",
    [
        ((1, 3, 96, 112), (16, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 1, 29, 27), (8, 1, 5, 5), {"pads": [2, 2, 2, 2]}),
        ((1, 3, 75, 81), (16, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 2, 2]}),
        ((1, 5, 40, 33), (24, 5, 3, 4), {"strides": [1, 2], "pads": [0, 2, 1, 0]}),
    ],
)
def test_stem_alone_keeps_its_layout(data, weight, attributes, cores):
    """Few input channels in planes with zeros around them, tiles of output channels by rows; two convolutions keep
    blocks."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("HardSwish", ["c"], ["y"]),
    ]
    weights = {"w": drawn(weight), "b": drawn((weight[0],))}
    assert agree(nodes, weights, data, target=f"llvm -num-cores={cores}") == ["conv2d.planes"]


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("dtype, error", [("float32", 1e-5), ("float64", 1e-12)])
def test_stem_alone_beside_numpy(target, dtype, error):
    """Both widths of floats, through both backends."""
    x, w = drawn((2, 3, 31, 37)).astype(dtype), drawn((20, 3, 5, 3)).astype(dtype)
    data = relay.var("x", shape=x.shape, dtype=dtype)
    conv = relay.nn.conv2d(data, relay.const(w), strides=[2, 1], padding=[1, 2, 0, 1], kernel_size=[5, 3], channels=20)
    with lathe.transform.PassContext(opt_level=3):
        library = relay.build(lathe.IRModule.from_expr(relay.Function([data], conv)), target=target)
    assert [n.impl for n in library.model.nodes()] == ["conv2d.planes"]
    runner = graph_executor.GraphModule(library["default"](lathe.cpu(0)))
    runner.set_input("x", x)
    runner.run()
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1))), (5, 3), axis=(2, 3)
    )[:, :, ::2]
    np.testing.assert_allclose(
        runner.get_output(0).numpy(), np.einsum("nchwij,ocij->nohw", windows, w), rtol=error, atol=error
    )


@pytest.mark.parametrize(
    "channels, weight, taken", [(24, (24, 1, 3, 3), "conv2d.planes"), (3, (24, 3, 3, 3), "conv2d.planes")]
)
def test_planes_alone_of_any_batch(channels, weight, taken):
    """The batch is known when it runs."""
    w = drawn(weight)
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *size])]
        for name, size in (("x", (channels, 29, 31)), ("y", (24, 15, 16)))
    ]
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=channels // weight[1], strides=[2, 2], pads=[1, 1, 1, 1])
    model = helper.make_model(
        helper.make_graph([node], "g", *ports, [numpy_helper.from_array(w, "w")]),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    module, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm -num-cores=16", params=params)
    assert [n.impl for n in library.model.nodes()] == [taken]
    for n in (1, 3):
        x = drawn((n, channels, 29, 31))
        wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": x}
        )[0]
        runner = graph_executor.GraphModule(library["default"](lathe.cpu(0)))
        runner.set_input("x", x)
        runner.run()
        np.testing.assert_allclose(runner.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "data, weight",
    [
        ((1, 200, 14, 14), (80, 200, 1, 1)),
        ((1, 64, 56, 56), (128, 64, 1, 1)),
        ((1, 16, 20, 20), (320, 16, 1, 1)),
        ((2, 24, 55, 55), (96, 24, 1, 1)),
        ((1, 40, 27, 27), (48, 40, 1, 1)),
    ],
)
def test_one_tap_for_many_threads(data, weight):
    """Few tiles of positions, shared with the output channels, and many; copied and not."""
    for strides in ([1, 1], [2, 2], [1, 2]):
        node = helper.make_node("Conv", ["x", "w"], ["y"], strides=strides)
        agree([node], {"w": drawn(weight)}, data, target="llvm -num-cores=16")


@pytest.mark.parametrize("cores", [2, 3, 16])
def test_bands_that_do_not_go_round(cores):
    """Panels of five tiles, more than the second-level cache has room for: threads share the output channels of each
    band."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    agree(
        nodes,
        {"w": drawn((64, 256, 3, 3)), "b": drawn((64,))},
        (1, 256, 14, 14),
        target=f"llvm -mcpu=native -num-cores={cores}",
    )
