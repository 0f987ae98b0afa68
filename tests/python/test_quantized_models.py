"""Quantized ONNX models: in integers, within one unit of ONNX Runtime's results; what stays in float is named."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

F = "float32"


class Net:
    """A graph in the making: q(x) quantizes and dequantizes, others add a node; all names are made here."""

    def __init__(self, seed=0):
        self.nodes, self.inits, self.n = [], [], 0
        self.rng = np.random.default_rng(seed)

    def const(self, array):
        self.n += 1
        self.inits.append(numpy_helper.from_array(np.asarray(array), f"c{self.n}"))
        return f"c{self.n}"

    def node(self, op, *inputs, domain="", **attrs):
        self.n += 1
        self.nodes.append(helper.make_node(op, list(inputs), [f"t{self.n}"], f"n{self.n}", domain=domain, **attrs))
        return f"t{self.n}"

    def dq(self, x, scale, zero, **attrs):
        return self.node("DequantizeLinear", x, self.const(np.asarray(scale, F)), self.const(zero), **attrs)

    def q(self, x, scale, zero, **attrs):
        s, z = self.const(np.asarray(scale, F)), self.const(zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, s, z, **attrs), s, z, **attrs)

    def weight(self, *shape, dtype="int8", channels=True, axis=0):
        w = self.rng.integers(-127, 128, shape).astype(dtype)
        s = (self.rng.random(shape[axis]) * 0.01 + 0.005).astype(F) if channels else np.float32(0.01)
        name = self.dq(self.const(w), s, np.zeros_like(s, dtype), **({"axis": axis} if channels else {}))
        return name, s

    def bias(self, sx, sw, n):
        b = self.rng.integers(-3000, 3000, n).astype("int32")
        attrs = {"axis": 0} if sw.ndim else {}
        return self.dq(self.const(b), np.float32(sx) * sw, np.zeros_like(sw, "int32"), **attrs)

    def model(self, inputs, outputs, opset=17):
        graph = helper.make_graph(
            self.nodes, "g",
            [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for k, v in inputs.items()],
            [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs], self.inits)
        for o in graph.output:
            o.type.Clear()
        versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8 if opset < 21 else 10)


HOST = "llvm -mcpu=native" if lathe._ffi.call("build_info")[0] else "c"


def run(model, inputs, target=HOST):
    """The outputs, and the sentences about what stays in float."""
    mod, params = relay.frontend.from_onnx(model, {k: v.shape for k, v in inputs.items()})
    with lathe.transform.PassContext(opt_level=3) as context:
        lib = relay.build(mod, target=target, params=params)
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for k, v in inputs.items():
        m.set_input(k, v)
    m.run()
    outputs = [m.get_output(i).numpy() for i in range(m.get_num_outputs())]
    return outputs, [n for n in context.notes if "stays in float" in n]


def integer_calls(model, inputs):
    """Names of the operators after FakeQuantizationToInteger, constants left out."""
    mod, _ = relay.frontend.from_onnx(model, {k: v.shape for k, v in inputs.items()})
    mod = relay.transform.FakeQuantizationToInteger()(relay.transform.InferType()(mod))
    calls = []
    note = lambda e: calls.append(e.op.name) if isinstance(e, relay.Call) else None  # noqa: E731
    relay.analysis.post_order_visit(mod["main"], note)
    return calls


def reference(model, inputs):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options).run(None, inputs)


def check(net, inputs, outputs, unit, stays=()):
    """Within one unit of the output; exactly the nodes of `stays` are named as staying in float."""
    model = net.model(inputs, outputs)
    have, notes = run(model, inputs)
    for h, w in zip(have, reference(model, inputs)):
        assert h.shape == w.shape and h.dtype == w.dtype
        assert np.abs(h.astype("float64") - w.astype("float64")).max() <= unit * 1.001
    assert len(notes) == len(stays), notes
    for note, (op, why) in zip(notes, stays):
        assert note.startswith(op) and why in note
    return model


def image(seed=3, *shape):
    return np.random.default_rng(seed).standard_normal(shape or (1, 6, 9, 10)).astype(F)


ZERO = {"uint8": np.uint8(120), "int8": np.int8(-7)}


@pytest.mark.parametrize("act", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("groups", [1, 6])
def test_conv(act, channels, groups):
    net = Net()
    x = net.q("x", 0.03, ZERO[act])
    w, s = net.weight(12, 6 // groups, 3, 3, channels=channels)
    y = net.node("Conv", x, w, net.bias(0.03, s, 12), pads=[1, 1, 1, 1], strides=[2, 1], group=groups)
    y = net.q(net.node("Relu", y), 0.05, ZERO[act])
    inputs = {"x": image()}
    model = check(net, inputs, [y], 0.05)
    calls = integer_calls(model, inputs)
    assert "qnn.conv2d" in calls and "qnn.requantize" in calls and "nn.conv2d" not in calls and "nn.relu" not in calls


@pytest.mark.parametrize("target", ["c"] + (["llvm -mattr=-dotprod"] if HOST != "c" else []))
@pytest.mark.parametrize("groups", [1, 8])
def test_without_instructions(target, groups):
    """The same results where no instruction multiplies bytes."""
    net = Net()
    w, s = net.weight(16, 8 // groups, 3, 3)
    y = net.node("Conv", net.q("x", 0.03, ZERO["uint8"]), w, net.bias(0.03, s, 16), pads=[1, 1, 1, 1], group=groups)
    inputs = {"x": image(1, 1, 8, 9, 10)}
    model = net.model(inputs, [net.q(y, 0.05, ZERO["uint8"])])
    np.testing.assert_array_equal(run(model, inputs, target)[0][0], run(model, inputs)[0][0])


def test_residual_block():
    net = Net()
    x = net.q("x", 0.03, np.uint8(128))
    w, s = net.weight(6, 6, 3, 3)
    a = net.q(net.node("Conv", x, w, net.bias(0.03, s, 6), pads=[1, 1, 1, 1]), 0.06, np.uint8(110))
    y = net.q(net.node("Relu", net.node("Add", a, x)), 0.04, np.uint8(0))
    y = net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.q(net.node("GlobalAveragePool", net.q(y, 0.04, np.uint8(0))), 0.02, np.uint8(0))
    y = net.q(net.node("Flatten", y), 0.02, np.uint8(0))
    w, s = net.weight(5, 6)
    y = net.q(net.node("Gemm", y, w, net.bias(0.02, s, 5), transB=1), 0.05, np.uint8(90))
    inputs = {"x": image()}
    model = check(net, inputs, [y], 0.05)
    calls = integer_calls(model, inputs)
    assert {"qnn.conv2d", "qnn.add", "qnn.dense"} <= set(calls)
    assert calls.count("qnn.dequantize") == 1 and calls.count("qnn.quantize") == 1


@pytest.mark.parametrize("channels", [False, True])
def test_matmul(channels):
    net = Net()
    x = net.q("x", 0.03, np.int8(5))
    w, _ = net.weight(8, 7, channels=channels, axis=1)
    y = net.q(net.node("MatMul", x, w), 0.1, np.int8(0))
    check(net, {"x": image(1, 2, 5, 8)}, [y], 0.1)


def test_matmul_of_activations():
    net = Net()
    a, b = net.q("a", 0.03, np.uint8(128)), net.q("b", 0.02, np.uint8(100))
    y = net.q(net.node("MatMul", a, net.node("Transpose", b, perm=[0, 1, 3, 2])), 0.1, np.uint8(128))
    check(net, {"a": image(1, 2, 3, 5, 8), "b": image(2, 2, 3, 4, 8)}, [y], 0.1)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_arithmetic(op):
    net = Net()
    y = net.q(net.node(op, net.q("a", 0.03, np.uint8(128)), net.q("b", 0.02, np.uint8(100))), 0.04, np.uint8(128))
    check(net, {"a": image(1, 4, 5), "b": image(2, 5)}, [y], 0.04)


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "Softmax", "LeakyRelu", "Exp", "Abs"])
def test_functions(op):
    net = Net()
    y = net.q(net.node(op, net.q("x", 0.03, np.uint8(128))), 1 / 128, np.uint8(100))
    model = check(net, {"x": image(1, 4, 30)}, [y], 1 / 128)
    calls = integer_calls(model, {"x": image(1, 4, 30)})
    assert any(c.startswith("qnn.") and c not in ("qnn.quantize", "qnn.dequantize") for c in calls)


def test_concat():
    net = Net()
    a, b = net.q("a", 0.03, np.uint8(128)), net.q("b", 0.02, np.uint8(100))
    y = net.q(net.node("Concat", a, b, axis=1), 0.04, np.uint8(128))
    model = check(net, {"a": image(1, 1, 3, 7, 8), "b": image(2, 1, 2, 7, 8)}, [y], 0.04)
    assert "qnn.concatenate" in integer_calls(model, {"a": image(1, 1, 3, 7, 8), "b": image(2, 1, 2, 7, 8)})


def test_where():
    net = Net()
    a, b = net.q("a", 0.03, np.uint8(128)), net.q("b", 0.02, np.uint8(100))
    pick = net.const(np.random.default_rng(5).random((4, 1)) < 0.5)
    y = net.q(net.node("Where", pick, a, b), 0.04, np.uint8(128))
    inputs = {"a": image(1, 3, 4, 5), "b": image(2, 4, 5)}
    calls = integer_calls(check(net, inputs, [y], 0.04), inputs)
    assert "where" in calls and calls.count("qnn.requantize") == 2 and calls.count("qnn.dequantize") == 1


def test_pool_and_clip():
    net = Net()
    x = net.q("x", 0.03, np.uint8(128))
    y = net.q(net.node("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]), 0.02, np.uint8(128))
    z = net.q(net.node("Clip", x, net.const(np.float32(-0.5)), net.const(np.float32(1.2))), 0.02, np.uint8(50))
    check(net, {"x": image(1, 1, 3, 7, 8)}, [y, z], 0.02)


@pytest.mark.parametrize("code, zero", [("INT4", -3), ("UINT4", 5), ("INT16", 100), ("UINT16", 30000),
                                        ("FLOAT8E4M3FN", 0), ("FLOAT8E5M2", 0)])  # fmt: skip
@pytest.mark.parametrize("channels", [False, True])
def test_narrow_and_wide_forms(code, zero, channels):
    """There and back through a dtype of opset 21: the same floats."""
    net, n = Net(), 6 if channels else 1
    scale = (net.rng.random(n) * 0.2 + 0.1).astype(F) * (0.01 if "16" in code else 1)
    net.inits.append(helper.make_tensor("z", getattr(TensorProto, code), [n] if channels else [], [zero] * n))
    s = net.const(scale if channels else scale[0])
    attrs = {"axis": 1} if channels else {}
    y = net.node("DequantizeLinear", net.node("QuantizeLinear", "x", s, "z", **attrs), s, "z", **attrs)
    inputs = {"x": image()}
    model = net.model(inputs, [y], 21)
    np.testing.assert_array_equal(run(model, inputs)[0][0], reference(model, inputs)[0])


@pytest.mark.parametrize("code", ["INT4", "UINT4"])
def test_product_with_a_weight_of_4_bits(code):
    """Scales by column, between quantized tensors: a product of integers."""
    net, low = Net(), -8 if code == "INT4" else 0
    values, zeros = net.rng.integers(low, low + 16, (24, 10)), net.rng.integers(low, low + 16, 10)
    net.inits += [helper.make_tensor(name, getattr(TensorProto, code), v.shape, v.ravel().tolist())
                  for name, v in (("w", values), ("z", zeros if code == "UINT4" else 0 * zeros))]
    w = net.node("DequantizeLinear", "w", net.const((net.rng.random(10) * 0.02 + 0.01).astype(F)), "z", axis=1)
    y = net.q(net.node("MatMul", net.q("x", 0.03, np.uint8(120)), w), 0.05, np.uint8(128))
    inputs = {"x": image(1, 3, 24)}
    model = net.model(inputs, [y], 21)
    have, notes = run(model, inputs)
    assert np.abs(have[0] - reference(model, inputs)[0]).max() <= 0.05 * 1.001
    assert not notes and "qnn.dense" in integer_calls(model, inputs)


# ---- what stays in float is named


def test_named():
    net = Net()
    x = net.q("x", 0.03, np.uint8(128))
    y = net.q(net.node("Sin", x), 0.01, np.uint8(128))
    check(net, {"x": image(1, 4, 5)}, [y], 0.01, [("sin (node 'n", "it has no integer form")])
    net = Net()
    y = net.node("Softmax", net.q("x", 0.03, np.uint8(128)))
    check(net, {"x": image(1, 4, 5)}, [y], 1e-5, [("nn.softmax (node 'n", "its result is not quantized")])
    net = Net()
    w, _ = net.weight(8, 7, axis=1)
    why = "its first operand is not quantized"
    check(net, {"x": image(1, 4, 8)}, [net.node("MatMul", "x", w)], 1e-4, [("nn.matmul", why)])
    net = Net()
    y = net.q(net.node("Add", net.q("x", 0.03, np.uint8(128)), net.const(image(2, 5))), 0.05, np.uint8(128))
    check(net, {"x": image(1, 4, 5)}, [y], 0.05, [("add", "one of its operands is not quantized")])
    net = Net()
    y = net.node("Where", net.const(np.array([True, False, True, True, False])), net.q("x", 0.03, np.uint8(128)),
                 net.q("x", 0.02, np.uint8(7)))
    check(net, {"x": image(1, 4, 5)}, [y], 1e-6, [("where (node 'n", "its result is not quantized")])


def test_hard_fail():
    net = Net()
    y = net.q(net.node("Sin", net.q("x", 0.03, np.uint8(128))), 0.01, np.uint8(128))
    mod, _ = relay.frontend.from_onnx(net.model({"x": image(1, 4, 5)}, [y]), {"x": (4, 5)})
    with pytest.raises(lathe.LatheError, match="sin .*stays in float: it has no integer form"):
        relay.transform.FakeQuantizationToInteger(hard_fail=True)(relay.transform.InferType()(mod))


def test_use_qat():
    x = relay.var("x", shape=(3, 4), dtype="int8")
    s, z = relay.const(0.1, F), relay.const(3, "int32")
    real = relay.qnn.op.dequantize(x, s, z)
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], relay.add(real, real))))
    plain = relay.transform.FakeQuantizationToInteger()(mod)
    assert lathe.ir.structural_equal(plain, mod)
    text = str(relay.transform.FakeQuantizationToInteger(use_qat=True)(mod))
    assert "qnn.add" in text and "qnn.dequantize" in text


# ---- operators that the model itself has in integers


def bytes_of(seed, *shape, dtype="uint8"):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def params(net, scale, zero):
    return net.const(np.asarray(scale, F)), net.const(zero)


@pytest.mark.parametrize("wt, channels", [("int8", False), ("int8", True), ("uint8", False)])
def test_qlinear_conv(wt, channels):
    net = Net()
    w = bytes_of(1, 8, 4, 3, 3, dtype=wt)
    s = (np.random.default_rng(2).random(8) * 0.01 + 0.002).astype(F) if channels else np.float32(0.01)
    z = np.zeros(8, wt) if channels else np.asarray(130 if wt == "uint8" else 0, wt)
    bias = net.const(np.arange(8, dtype="int32") * 100 - 300)
    y = net.node("QLinearConv", "x", *params(net, 0.02, np.uint8(100)), net.const(w), *params(net, s, z),
                 *params(net, 0.9, np.uint8(128)), bias, pads=[1, 1, 1, 1])
    inputs = {"x": bytes_of(3, 1, 4, 6, 7)}
    model = check(net, inputs, [y], 1)
    assert "qnn.conv2d" in integer_calls(model, inputs)


def test_qlinear_operators():
    net = Net()
    M = {"domain": "com.microsoft"}
    a, b = params(net, 0.02, np.uint8(100)), params(net, 0.03, np.uint8(120))
    o = params(net, 0.05, np.uint8(128))
    outs = [net.node("QLinearAdd", "x", *a, "y", *b, *o, **M), net.node("QLinearMul", "x", *a, "y", *b, *o, **M),
            net.node("QLinearSigmoid", "x", *a, *params(net, 1 / 256, np.uint8(0)), **M),
            net.node("QLinearLeakyRelu", "x", *a, *o, alpha=0.2, **M),
            net.node("QLinearSoftmax", "x", *a, *params(net, 1 / 256, np.uint8(0)), axis=-1, opset=17, **M),
            net.node("QLinearConcat", *o, "x", *a, "y", *b, axis=1, **M),
            net.node("QLinearGlobalAveragePool", "x", *a, *b, **M),
            net.node("QLinearAveragePool", "x", *a, *b, kernel_shape=[2, 2], strides=[2, 2], **M)]
    inputs = {"x": bytes_of(3, 1, 4, 6, 8), "y": bytes_of(4, 1, 4, 6, 8)}
    check(net, inputs, outs, 1)


def test_products():
    net = Net()
    w = net.const(bytes_of(1, 8, 5, dtype="int8"))
    z = net.const(np.uint8(100))
    x = "x"
    sums = net.node("MatMulInteger", x, w, z, net.const(np.int8(3)))
    conv = net.node("ConvInteger", net.node("Reshape", x, net.const(np.array([1, 2, 4, 3], "int64"))),
                    net.const(bytes_of(2, 3, 2, 3, 3, dtype="int8")), z, pads=[1, 1, 1, 1])
    q = net.node("QLinearMatMul", x, *params(net, 0.02, np.uint8(100)), w, *params(net, 0.03, np.int8(3)),
                 *params(net, 0.7, np.uint8(128)))
    g = net.node("QGemm", x, *params(net, 0.02, np.uint8(100)), w, *params(net, 0.03, np.int8(3)),
                 net.const(np.arange(5, dtype="int32") * 99), *params(net, 0.7, np.uint8(128)), domain="com.microsoft")
    model = net.model({"x": bytes_of(3, 3, 8)}, [sums, conv, q, g])
    have, notes = run(model, {"x": bytes_of(3, 3, 8)})
    want = reference(model, {"x": bytes_of(3, 3, 8)})
    np.testing.assert_array_equal(have[0], want[0])
    np.testing.assert_array_equal(have[1], want[1])
    for h, w in zip(have[2:], want[2:]):
        assert np.abs(h.astype(int) - w.astype(int)).max() <= 1
    assert not notes


def test_dynamic():
    net = Net()
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "dynamic"))
    sums = net.node("MatMulInteger", "q", net.const(bytes_of(1, 8, 5, dtype="int8")), "z")
    y = net.node("Mul", net.node("Cast", sums, to=TensorProto.FLOAT), net.node("Mul", "s", net.const(np.float32(0.01))))
    check(net, {"x": image(1, 2, 3, 8)}, [y], 1e-5)


@pytest.mark.parametrize("columns", [False, True])
def test_attention_of_data_with_scales_of_its_own(columns):
    """As the quantizer writes it behind the transformer optimizer: the scale of the data is found in every run."""
    net = Net()
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "dynamic"))
    scale = (net.rng.random(24) * 0.01 + 0.005).astype(F) if columns else np.float32(0.01)
    w = net.const(bytes_of(1, 8, 24, dtype="int8"))
    y = net.node("QAttention", "q", w, net.const(image(2, 24)), "s", net.const(scale), "mask", "z",
                 net.const(np.zeros_like(scale, "int8")), domain="com.microsoft", num_heads=2)
    inputs = {"x": image(1, 2, 5, 8), "mask": np.array([[1] * 5, [1, 1, 1, 0, 0]], "int32")}
    model = net.model(inputs, [y])
    have, notes = run(model, inputs)
    np.testing.assert_allclose(have[0], reference(model, inputs)[0], rtol=1e-4, atol=1e-4)
    assert not [n for n in notes if "matmul" in n or "dense" in n], notes


@pytest.mark.parametrize("bits, zeros", [(4, False), (4, True), (8, False)])
def test_matmul_nbits(bits, zeros):
    net, k, n, block = Net(), 96, 5, 32
    blocks = k // block
    inputs = ["x", net.const(bytes_of(1, n, blocks, block * bits // 8)),
              net.const((np.random.default_rng(2).random((n, blocks)) * 0.1).astype(F))]
    if zeros:
        inputs.append(net.const(bytes_of(3, n, (blocks + 1) // 2)))
    y = net.node("MatMulNBits", *inputs, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    model = net.model({"x": image(4, 2, 3, k)}, [y])
    have, _ = run(model, {"x": image(4, 2, 3, k)})
    np.testing.assert_allclose(have[0], reference(model, {"x": image(4, 2, 3, k)})[0], rtol=1e-4, atol=1e-4)


def test_bad_parameters():
    for scale, zero, sentence in [(0.0, np.uint8(3), "a scale is finite and above zero"),
                                  (-0.5, np.uint8(3), "a scale is finite and above zero"),
                                  (np.nan, np.uint8(3), "a scale is finite and above zero"),
                                  (np.full(3, 0.1, F), np.zeros(3, "uint8"), "has 3 elements, axis 1 of")]:
        net = Net()
        y = net.node("QuantizeLinear", "x", net.const(np.asarray(scale, F)), net.const(zero))
        with pytest.raises(lathe.LatheError, match=sentence):
            relay.frontend.from_onnx(net.model({"x": image(1, 4, 5)}, [y]), {"x": (4, 5)})
