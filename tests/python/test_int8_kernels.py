"""Kernels over bytes: by meaning and compiled they agree exactly, and they are the ones that are meant."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe._ffi import call

Q = relay.qnn.op
LLVM = bool(call("build_info")[0])
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def const(v, dtype="int32"):
    return relay.const(np.asarray(v, dtype))


def compiled(expr, feeds, target="llvm -mcpu=native" if LLVM else "c"):
    """The result, which is the interpreter's to the bit, and the implementations of the kernels."""
    f = relay.Function(relay.analysis.free_vars(expr), expr)
    mod = lathe.IRModule.from_expr(f)
    want = relay.create_executor("debug", mod).evaluate()(*[feeds[p.name_hint] for p in f.params]).numpy()
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target)
    model = lathe.contrib.graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for name, value in feeds.items():
        model.set_input(name, value)
    model.run()
    np.testing.assert_array_equal(model.get_output(0).numpy(), want)
    return want, [node.impl for node in lib.model.nodes()]


def assembly(expr, target):
    f = relay.Function(relay.analysis.free_vars(expr), expr)
    with lathe.transform.PassContext(opt_level=3):
        return relay.build(lathe.IRModule.from_expr(f), target=target).get_source("asm")


def swish(x, scale, zero, out, dtype):
    """x * clip(x / 6 + 1/2, 0, 1), between dequantize and quantize."""
    real = Q.dequantize(x, const(scale, "float32"), const(zero))
    gate = relay.clip(real * const(1 / 6, "float32") + const(0.5, "float32"), 0, 1)
    return Q.quantize(real * gate, const(out, "float32"), const(zero // 2), out_dtype=dtype)


@pytest.mark.parametrize("dtype, zero", [("int8", -7), ("uint8", 121)])
@pytest.mark.parametrize("size", [1, 7, 16, 23, 64, 200])
def test_lookup(dtype, zero, size):
    info = np.iinfo(dtype)
    data = np.arange(info.min, info.max + 1).astype(dtype)
    data = np.resize(data[:: max(1, 256 // size)], (3, size))
    x = relay.var("x", shape=data.shape, dtype=dtype)
    want, _ = compiled(swish(x, 0.05, zero, 0.03, dtype), {"x": data})
    real = (data.astype("float32") - np.float32(zero)) * np.float32(0.05)
    gate = np.clip(real * np.float32(1 / 6) + np.float32(0.5), 0, 1)
    near = np.clip(np.round(real * gate / np.float32(0.03)) + zero // 2, info.min, info.max)
    np.testing.assert_array_equal(want, near)


@pytest.mark.skipif(not LLVM, reason="it looks for instructions in LLVM's assembly")
def test_lookup_instructions():
    text = assembly(swish(relay.var("x", shape=(64, 64), dtype="int8"), 0.05, 3, 0.03, "int8"), ARM)
    assert text.count("tbx") >= 3 and "fdiv" not in text


def conv(data, weight, zero, **attrs):
    """With a scale for each output channel, and a zero point of zero for each."""
    out = weight.shape[0]
    sums = Q.conv2d(relay.var("x", shape=data.shape, dtype=str(data.dtype)), relay.const(weight), const(zero),
                    const(np.zeros(out)), const(0.5, "float32"), const(np.full(out, 0.25), "float32"),
                    kernel_size=weight.shape[2:], channels=out, **attrs)
    scale = const(np.linspace(1e-3, 3e-3, out), "float32")
    return Q.requantize(sums, scale, const(0), const(1.0, "float32"), const(-3), axis=1, out_dtype="int8")


@pytest.mark.parametrize("dtype, zero", [("uint8", 124), ("int8", -4)])
def test_first_convolution(rng, dtype, zero):
    """Three channels and a scale for each output channel: words of four, not the generic loops."""
    data = rng.integers(0, 100, (1, 3, 19, 23)).astype(dtype)
    weight = rng.integers(-128, 128, (16, 3, 3, 3)).astype("int8")
    _, impls = compiled(conv(data, weight, zero, strides=(2, 2), padding=(1, 1)), {"x": data})
    assert not has_dot() or "conv2d.int8" in impls


def has_dot():
    return LLVM and any(f in lathe.target.Target("llvm -mcpu=native").features for f in ("dotprod", "avx512vnni"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kernel, stride, dilation, width", [(3, 1, 1, 5), (3, 2, 1, 17), (5, 1, 1, 9), (3, 1, 2, 8)])
def test_depthwise(rng, dtype, kernel, stride, dilation, width):
    """The least values by the least: products of 16 bits do not overflow."""
    info = np.iinfo(dtype)
    data = rng.choice([info.min, info.max, 0, 5], (2, 32, 11, width)).astype(dtype)
    weight = rng.choice([-128, -127, 127, 1], (32, 1, kernel, kernel)).astype("int8")
    expr = conv(data, weight, 100 if dtype == "uint8" else -50, groups=32, strides=(stride, stride),
                dilation=(dilation, dilation), padding=(kernel // 2, kernel // 2))
    _, impls = compiled(expr, {"x": data})
    assert not LLVM or "conv2d.depthwise_int8" in impls


@pytest.mark.skipif(not LLVM, reason="it looks for instructions in LLVM's assembly")
def test_depthwise_instructions(rng):
    """Whole registers of bytes are multiplied, and added from 16 bits."""
    data = np.zeros((1, 64, 14, 14), "int8")
    weight = rng.integers(-128, 128, (64, 1, 3, 3)).astype("int8")
    text = assembly(conv(data, weight, 3, groups=64, padding=(1, 1)), ARM)
    assert text.count("smull2") >= 6 and text.count("saddw2") >= 12


@pytest.mark.parametrize("channels, out", [(5, 17), (6, 7), (18, 100), (1, 3)])
def test_odd_channels(rng, channels, out):
    """Words and blocks that are not full; a second convolution takes them as they are."""
    data = rng.integers(-128, 128, (2, channels, 9, 11)).astype("int8")
    first = rng.integers(-128, 128, (out, channels, 3, 3)).astype("int8")
    second = relay.const(rng.integers(-128, 128, (9, out, 1, 1)).astype("int8"))
    bias = relay.const(rng.integers(-900, 900, (1, out, 1, 1)).astype("int32"))
    unit, none = const(1.0, "float32"), const(0)
    sums = Q.conv2d(relay.var("x", shape=data.shape, dtype="int8"), relay.const(first), const(3), const(np.zeros(out)),
                    unit, const(np.full(out, 0.25), "float32"), (3, 3), out, padding=(1, 1))
    scale = const(np.linspace(1e-3, 3e-3, out), "float32")
    y = Q.requantize(sums + bias, scale, none, unit, const(-3), axis=1, out_dtype="int8")
    z = Q.conv2d(y, second, const(-3), none, unit, unit, (1, 1), 9)
    _, impls = compiled(z, {"x": data})
    assert not has_dot() or impls.count("conv2d.int8") == 2
    compiled(relay.nn.relu(y), {"x": data})


@pytest.mark.parametrize("channels", [3, 21, 50])
def test_odd_depthwise(rng, channels):
    data = rng.integers(-128, 128, (1, channels, 9, 10)).astype("int8")
    weight = rng.integers(-128, 128, (channels, 1, 3, 3)).astype("int8")
    _, impls = compiled(conv(data, weight, 4, groups=channels, padding=(1, 1)), {"x": data})
    assert not has_dot() or "conv2d.depthwise_int8" in impls


@pytest.mark.parametrize("rows, inner, units", [(1, 59, 10), (9, 30, 33), (40, 16, 3)])
def test_odd_dense(rng, rows, inner, units):
    data = rng.integers(-128, 128, (rows, inner)).astype("int8")
    weight = relay.const(rng.integers(-128, 128, (units, inner)).astype("int8"))
    unit, none = const(1.0, "float32"), const(0)
    sums = Q.dense(relay.var("x", shape=data.shape, dtype="int8"), weight, const(-9), none, unit, unit, units)
    bias = const(rng.integers(-900, 900, units))
    y = Q.requantize(sums + bias, const(2e-3, "float32"), none, unit, const(5), out_dtype="int8")
    _, impls = compiled(y, {"x": data})
    assert not has_dot() or "matmul.int8" in impls


@pytest.mark.parametrize("cpu, instruction", [
    ("haswell", "vpmaddwd"),
    ("skylake-avx512", "vpmaddwd"),
    ("alderlake", "vpdpbusd"),
    ("icelake-server", "vpdpbusd"),
])  # fmt: skip
@pytest.mark.skipif(not LLVM, reason="it looks for instructions in LLVM's assembly")
def test_convolution_instructions(rng, cpu, instruction):
    """Convolutions on x86 sum words of bytes too."""
    weight = rng.integers(-128, 128, (64, 64, 1, 1)).astype("int8")
    text = assembly(conv(np.zeros((1, 64, 8, 8), "int8"), weight, 3), f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    assert text.count(instruction) >= 8


# ---- convolutions over one and three dimensions, grouped ones, products of two tensors of data


@pytest.mark.parametrize("zero, out_scale", [(-128, 0.35), (5, 0.02)])
def test_residual_sums(rng, zero, out_scale):
    """A convolution's result as bytes, and another tensor of bytes, rescaled and added: also where most of it is past
    the limits.  The bytes between are no bytes in the kernel, and the sum is limited and narrowed in 16 bits."""
    x, y = (rng.integers(-128, 128, (1, 32, 6, 6)).astype("int8") for _ in range(2))
    unit, sums = const(1.0, "float32"), const(np.linspace(1e-3, 3e-3, 32), "float32")
    weight = relay.const(rng.integers(-128, 128, (32, 32, 1, 1)).astype("int8"))
    data, other = (relay.var(name, shape=x.shape, dtype="int8") for name in "xy")
    made = Q.conv2d(data, weight, const(3), const(np.zeros(32)), unit, const(np.ones(32), "float32"), (1, 1), 32)
    made = Q.requantize(made, sums, const(0), const(1.0, "float32"), const(-12), axis=1, out_dtype="int8",
                        compute_dtype="float32", rounding="TONEAREST")
    made = Q.add(made, other, const(0.3, "float32"), const(-12), const(0.2, "float32"), const(7),
                 const(out_scale, "float32"), const(zero))
    have, _ = compiled(made, {"x": x, "y": y})
    assert have.min() == -128 and (zero < 0 or have.max() == 127) and len(np.unique(have)) > 20
    if LLVM:
        limits = [line for line in assembly(made, ARM).split("\n") if "smax" in line]
        assert limits and all(".8h" in line for line in limits)


def quantized_node(rng, op, data, weight, terms, bias=True, **attrs):
    """QLinearConv or QLinearMatMul over uint8 with an int8 weight (a second input for a weight of None)."""
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    inits, ports = [], [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, data["x"].shape)]

    def keep(name, array):
        inits.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    out = np.float32(0.02 * 0.02 * 73 * 73 * np.sqrt(terms) / 60)
    if weight is None:
        ports.append(helper.make_tensor_value_info("w", onnx.TensorProto.UINT8, data["w"].shape))
        zero, scale = np.uint8(131), np.float32(0.02)
    else:
        count = weight.shape[0]
        zero, scale = np.zeros(count, "int8"), (0.02 * rng.uniform(0.5, 1.5, count)).astype("float32")
        keep("w", weight)
    names = ["x", keep("sx", np.float32(0.02)), keep("zx", np.uint8(120)), "w", keep("sw", scale), keep("zw", zero),
             keep("sy", out), keep("zy", np.uint8(128))]
    if weight is not None and bias:
        names.append(keep("b", rng.integers(-2000, 2000, weight.shape[0]).astype("int32")))
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attrs)], "g", ports,
                              [onnx.ValueInfoProto(name="y")], inits)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def beside_onnxruntime(model, feeds, shapes=None):
    """ONNX Runtime's result, within one unit; the implementations of the kernels; no node stays in float.
    shapes: those of the inputs, where not all are known."""
    ort = pytest.importorskip("onnxruntime")
    want = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    mod, params = relay.frontend.from_onnx(model, {k: v.shape for k, v in feeds.items()} if shapes is None else shapes)
    with lathe.transform.PassContext(opt_level=3) as context:
        lib = relay.build(mod, target="llvm -mcpu=native" if LLVM else "c", params=params)
    run = lathe.contrib.graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for name, value in feeds.items():
        run.set_input(name, value)
    run.run()
    have = run.get_output(0).numpy()
    assert have.dtype == want.dtype and have.shape == want.shape
    assert np.abs(have.astype("int32") - want).max() <= 1
    assert (have == want).mean() > 0.99
    assert not [n for n in context.notes if "stays in float" in n]
    return [node.impl for node in lib.model.nodes()]


@pytest.mark.parametrize("shape, out, kernel, groups, attrs", [
    ((2, 26, 187), 11, (4,), 1, {"pads": [1, 2]}),
    ((1, 17, 60), 33, (5,), 1, {"strides": [2], "dilations": [2]}),
    ((1, 24, 50), 24, (3,), 24, {"pads": [1, 1]}),
    ((1, 12, 50), 18, (3,), 6, {}),
    ((2, 5, 9, 10, 11), 10, (1, 1, 1), 1, {}),
    ((1, 14, 7, 6, 5), 17, (3, 3, 3), 1, {"pads": [1, 1, 1, 1, 1, 1], "dilations": [2, 1, 1]}),
    ((1, 12, 9, 8, 8), 8, (3, 2, 3), 2, {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}),
    ((1, 16, 6, 8, 8), 16, (3, 3, 3), 16, {"pads": [1, 1, 1, 1, 1, 1]}),
    ((1, 15, 9, 11), 20, (3, 3), 5, {"pads": [1, 1, 1, 1]}),
    ((1, 14, 12, 10), 28, (1, 1), 14, {"strides": [2, 2]}),
    ((2, 24, 10, 9), 12, (3, 3), 3, {"pads": [1, 1, 1, 1]}),
    ((1, 10, 9, 9), 6, (5, 3), 2, {"dilations": [1, 2], "pads": [2, 1, 2, 1]}),
    ((1, 64, 7, 7), 128, (3, 3), 32, {"pads": [1, 1, 1, 1]}),
])  # fmt: skip
def test_convolutions_of_any_kind(rng, shape, out, kernel, groups, attrs):
    data = {"x": rng.integers(0, 256, shape).astype("uint8")}
    weight = rng.integers(-127, 128, (out, shape[1] // groups, *kernel)).astype("int8")
    model = quantized_node(rng, "QLinearConv", data, weight, weight[0].size, group=groups, **attrs)
    impls = beside_onnxruntime(model, data)
    assert not has_dot() or "conv2d.int8" in impls or "conv2d.depthwise_int8" in impls


def test_convolutions_in_a_row(rng):
    """What a convolution of one dimension hands to the next stays in blocks of channels."""
    onnx = pytest.importorskip("onnx")
    feeds = {"x": rng.integers(0, 256, (1, 32, 100)).astype("uint8")}
    first = quantized_node(rng, "QLinearConv", feeds, rng.integers(-127, 128, (32, 32, 3)).astype("int8"), 96)
    again = quantized_node(rng, "QLinearConv", feeds, rng.integers(-127, 128, (32, 32, 3)).astype("int8"), 96)
    model = onnx.compose.merge_models(onnx.compose.add_prefix(first, "a_"), onnx.compose.add_prefix(again, "b_"),
                                      [("a_y", "b_x")])
    impls = beside_onnxruntime(model, {"a_x": feeds["x"]})
    assert not has_dot() or (impls.count("conv2d.int8") == 2 and len(impls) == 4)


@pytest.mark.parametrize("b, m, k, n", [(12, 23, 61, 34), (1, 5, 16, 64), (3, 7, 13, 5), (2, 1, 8, 1)])
def test_products_of_data(rng, b, m, k, n):
    feeds = {"x": rng.integers(0, 256, (b, m, k)).astype("uint8"), "w": rng.integers(0, 256, (b, k, n)).astype("uint8")}
    impls = beside_onnxruntime(quantized_node(rng, "QLinearMatMul", feeds, None, k), feeds)
    assert not has_dot() or "matmul.int8" in impls
    # beside the product the sums over rows and over columns: bytes are neither turned round nor given a sign before
    assert not has_dot() or lathe.target.Target("llvm -mcpu=native").arch != "aarch64" or len(impls) == 3


def test_products_of_open_sizes(rng):
    """A sequence of any length by itself: one kernel, by dot products."""
    feeds = {"x": rng.integers(0, 256, (2, 19, 24)).astype("uint8"),
             "w": rng.integers(0, 256, (2, 24, 19)).astype("uint8")}
    model = quantized_node(rng, "QLinearMatMul", feeds, None, 24)
    for port, axes in zip(model.graph.input, ([0, 1], [0, 2])):
        for axis in axes:
            port.type.tensor_type.shape.dim[axis].dim_param = "batch" if axis == 0 else "length"
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    impls = beside_onnxruntime(model, feeds, {})
    assert not has_dot() or "matmul.int8" in impls


@pytest.mark.parametrize("channels, more, size, pad", [(549, 11, 13, 0), (26, 2, 40, 1), (64, 0, 9, 1), (3, 1, 20, 3)])
def test_padded_data_into_blocks(rng, channels, more, size, pad):
    """Bytes are padded, then turned round in registers."""
    data = rng.integers(-128, 128, (2, channels, size, size)).astype("int8")
    x = relay.var("x", shape=data.shape, dtype="int8")
    padded = relay.nn.pad(x, ((0, 0), (0, more), (pad, pad), (pad, pad)), 3)
    block = 16 if (channels + more) % 16 == 0 else 4
    want, impls = compiled(relay.layout_transform(padded, "NCHW", f"NCHW{block}c"), {"x": data})
    np_padded = np.pad(data, ((0, 0), (0, more), (pad, pad), (pad, pad)), constant_values=3)
    n, c, h, w = np_padded.shape
    np.testing.assert_array_equal(want, np_padded.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))
    assert not LLVM or impls == ["layout.padded"]
