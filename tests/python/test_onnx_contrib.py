"""Operators beyond ONNX's own: com.microsoft, ai.onnx.ml and those of the first releases, each
against ONNX Runtime; what it lacks against numpy."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import lathe  # noqa: E402
from lathe import error, relay  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402

MS = "com.microsoft"
DTYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def rng(seed=0):
    return np.random.default_rng(seed)


def normal(*shape, seed=0, scale=1.0):
    return (rng(seed).normal(size=shape) * scale).astype("float32")


def bytes_of(*shape, dtype="uint8", seed=0):
    info = np.iinfo(dtype)
    return rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def make(op, inputs, weights=(), outputs=1, domain=MS, opset=17, attrs=None):
    """A model of one node.  inputs: arrays, None for one left out; those numbered in weights are constants."""
    names = ["" if v is None else f"i{k}" for k, v in enumerate(inputs)]
    outs = [
        f"o{k}" if not isinstance(outputs, (list, tuple)) or k in outputs else ""
        for k in range(outputs if isinstance(outputs, int) else max(outputs) + 1)
    ]
    node = helper.make_node(op, names, outs, domain=domain, name="it", **(attrs or {}))
    given = [
        helper.make_tensor_value_info(n, DTYPES[v.dtype.name], v.shape)
        for k, (n, v) in enumerate(zip(names, inputs))
        if n and k not in weights
    ]
    constants = [numpy_helper.from_array(v, n) for k, (n, v) in enumerate(zip(names, inputs)) if n and k in weights]
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name=o) for o in outs if o], constants)
    sets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def ours(model, feeds, level=3):
    with lathe.transform.PassContext(opt_level=level):
        lib = relay.build(relay.frontend.from_onnx(model)[0])
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for k, v in feeds.items():
        m.set_input(k, v)
    m.run()
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def theirs(model, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def check(op, inputs, weights=(), outputs=1, domain=MS, opset=17, tolerance=2e-5, steps=0, attrs=None, **named):
    """Both give the same; steps: how far integers may be apart (a result on the edge between two)."""
    model = make(op, inputs, weights, outputs, domain, opset, {**(attrs or {}), **named})
    feeds = {f"i{k}": v for k, v in enumerate(inputs) if v is not None and k not in weights}
    want = theirs(model, feeds)
    got = ours(model, feeds)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.shape == w.shape and g.dtype == w.dtype
        if w.dtype.kind in "iu":
            assert np.abs(g.astype("int64") - w.astype("int64")).max() <= steps
        else:
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


# ---- activations and fused products

X = normal(2, 5, 8)


def test_gelus():
    check("Gelu", [X * 3])
    check("BiasGelu", [X, normal(8, seed=1)], [1])
    check("FastGelu", [X * 3])
    check("FastGelu", [X, normal(8, seed=1)], [1])
    check("QuickGelu", [X * 3])
    check("QuickGelu", [X], alpha=1.2)


@pytest.mark.parametrize("activation", [None, "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"])
def test_fused_conv(activation):
    x, w, b = normal(1, 6, 9, 9), normal(4, 6, 3, 3, seed=1), normal(4, seed=2)
    attrs = {"activation": activation} if activation else {}
    params = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.75], "HardSigmoid": [0.3, 0.4]}.get(activation)
    if params:
        attrs["activation_params"] = params
    check("FusedConv", [x, w, b], [1, 2], pads=[1, 1, 1, 1], **attrs)
    check("FusedConv", [x, w, b, normal(1, 4, 9, 9, seed=3)], [1, 2], pads=[1, 1, 1, 1], **attrs)
    check("FusedConv", [x, w], [1], strides=[2, 2], group=1, **attrs)


def test_fused_products():
    a, b = normal(4, 6), normal(6, 5, seed=1)
    check("FusedGemm", [a, b, normal(5, seed=2)], [1, 2], activation="Relu", alpha=0.5, beta=2.0)
    check("FusedGemm", [a, b, normal(5, seed=2)], [1, 2], activation="LeakyRelu", activation_alpha=0.1)
    check("FusedMatMul", [normal(2, 4, 6), normal(2, 6, 5, seed=1)], alpha=0.25)
    check("FusedMatMul", [normal(2, 6, 4), normal(2, 5, 6, seed=1)], transA=1, transB=1)
    check("FusedMatMul", [normal(6, 2, 4), normal(2, 4, 5, seed=1)], transBatchA=1)
    check("FusedMatMul", [normal(2, 6, 4), normal(5, 2, 6, seed=1)], transA=1, transB=1, transBatchB=1, alpha=2.0)
    check("FusedMatMul", [normal(3, 2, 6, 4), normal(4, 3, 2, 5, seed=1)], transBatchB=1)


def test_integers_of_16_bits():
    check("MatMulInteger16", [bytes_of(3, 4, dtype="int16"), bytes_of(4, 5, dtype="int16", seed=1)])


# ---- normalisations

G, B = normal(8, seed=5) + 1, normal(8, seed=6)


def test_normalisations():
    check("SkipLayerNormalization", [X, normal(2, 5, 8, seed=1), G, B], [2, 3])
    check(
        "SkipLayerNormalization",
        [X, normal(2, 5, 8, seed=1), G, B, normal(8, seed=2)],
        [2, 3, 4],
        outputs=[0, 3],
        epsilon=1e-5,
    )
    check("SkipLayerNormalization", [X, normal(2, 5, 8, seed=1), G], [2])
    check("SkipLayerNormalization", [X, normal(5, 8, seed=1), G, B], [2, 3])
    check("SkipSimplifiedLayerNormalization", [X, normal(2, 5, 8, seed=1), G], [2], epsilon=1e-6)
    check("SkipSimplifiedLayerNormalization", [X, normal(2, 5, 8, seed=1), G, B], [2, 3], outputs=[0, 3])
    check("LayerNormalization", [X, G, B], [1, 2], domain="", opset=11, epsilon=1e-5)
    check("SimplifiedLayerNormalization", [X, G], [1], domain="", opset=11, epsilon=1e-5)


@pytest.mark.parametrize("mask, position", [(False, False), (True, False), (True, True)])
def test_embeddings(mask, position):
    r = rng(7)
    ids, segments = r.integers(0, 20, (2, 6)).astype("int32"), r.integers(0, 2, (2, 6)).astype("int32")
    m = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], "int32") if mask else None
    at = np.arange(6)[::-1].reshape(1, 6).repeat(2, 0).astype("int32").copy() if position else None
    tables = [normal(20, 8, seed=1), normal(10, 8, seed=2), normal(2, 8, seed=3), G, B]
    check("EmbedLayerNormalization", [ids, segments, *tables, m, at], [2, 3, 4, 5, 6], outputs=2)
    check("EmbedLayerNormalization", [ids, segments, *tables, m, at], [2, 3, 4, 5, 6], outputs=3, epsilon=1e-6)
    check("EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, G, B, m, at], [2, 3, 5, 6], outputs=2)


# ---- attention

QKV, QKV_BIAS = normal(8, 24, seed=11, scale=0.3), normal(24, seed=12, scale=0.1)


@pytest.mark.parametrize("attrs", [{}, {"unidirectional": 1}, {"scale": 0.5}])
def test_attention(attrs):
    x = normal(2, 5, 8)
    check("Attention", [x, QKV, QKV_BIAS], [1, 2], num_heads=2, **attrs)
    keys = np.array([[1] * 5, [1, 1, 1, 0, 0]], "int32")
    check("Attention", [x, QKV, QKV_BIAS, keys], [1, 2], num_heads=2, **attrs)
    each = np.tril(np.ones((5, 5), "int32"))[None].repeat(2, 0).copy()
    check("Attention", [x, QKV, QKV_BIAS, each], [1, 2], num_heads=4, **attrs)
    check("Attention", [x, QKV, QKV_BIAS, np.array([5, 3], "int32")], [1, 2], num_heads=2, **attrs)


def test_attention_with_a_past():
    x, past = normal(2, 3, 8), normal(2, 2, 2, 4, 4, seed=1)
    check("Attention", [x, QKV, QKV_BIAS, None, past], [1, 2], outputs=2, num_heads=2)
    check("Attention", [x, QKV, QKV_BIAS, None, past], [1, 2], outputs=2, num_heads=2, unidirectional=1)
    keys = np.ones((2, 7), "int32")
    keys[1, :2] = 0
    check("Attention", [x, QKV, QKV_BIAS, keys, past], [1, 2], outputs=2, num_heads=2)


def test_attention_with_sizes_and_a_bias_of_the_scores():
    x = normal(2, 5, 8)
    check(
        "Attention",
        [x, normal(8, 8 + 8 + 4, seed=2), normal(20, seed=3)],
        [1, 2],
        num_heads=2,
        qkv_hidden_sizes=[8, 8, 4],
    )
    check("Attention", [x, QKV, QKV_BIAS, None, None, normal(2, 2, 5, 5, seed=4)], [1, 2], num_heads=2)
    check("Attention", [x, QKV, QKV_BIAS, None, None, normal(1, 2, 5, 5, seed=4)], [1, 2], num_heads=2)


@pytest.mark.parametrize("attrs", [{}, {"scale": 0.3}, {"unidirectional": 1}], ids=["plain", "scale", "causal"])
def test_multi_head_attention(attrs):
    q, k, v, bias = normal(2, 5, 8), normal(2, 7, 8, seed=1), normal(2, 7, 4, seed=2), normal(20, seed=3)
    keys = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]], "int32")
    if "unidirectional" in attrs:
        k, v, keys = k[:, :5].copy(), v[:, :5].copy(), keys[:, :5].copy()
    check("MultiHeadAttention", [q, k, v], num_heads=2, **attrs)
    check("MultiHeadAttention", [q, k, v, bias], [3], num_heads=2, **attrs)
    check("MultiHeadAttention", [q, k, v, bias, keys], [3], num_heads=4, **attrs)
    check("MultiHeadAttention", [q, k, v, None, np.array([5, 3], "int32")], num_heads=2, **attrs)
    check("MultiHeadAttention", [q, k, v, None, None, normal(1, 2, 5, k.shape[1], seed=4)], num_heads=2, **attrs)


def test_multi_head_attention_packed_and_with_a_past():
    x, y = normal(2, 5, 2, 3, 4), normal(2, 7, 2, 2, 4, seed=1)     # which ONNX Runtime takes apart alone
    apart = {"i0": x[..., 0, :].reshape(2, 5, 8), "i1": x[..., 1, :].reshape(2, 5, 8), "i2": x[..., 2, :].reshape(2, 5, 8)}
    other = {"i0": apart["i0"], "i1": y[..., 0, :].reshape(2, 7, 8), "i2": y[..., 1, :].reshape(2, 7, 8)}
    for given, feeds in (([x], apart), ([apart["i0"], y], other)):
        want = theirs(make("MultiHeadAttention", list(feeds.values()), attrs={"num_heads": 2}), feeds)[0]
        got = ours(make("MultiHeadAttention", given, attrs={"num_heads": 2}), {f"i{i}": v for i, v in enumerate(given)})[0]
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    check("MultiHeadAttention", [normal(2, 5, 8), normal(2, 2, 7, 4, seed=1), normal(2, 2, 7, 4, seed=2)], num_heads=2)
    past = [normal(2, 2, 3, 4, seed=4), normal(2, 2, 3, 4, seed=5)]
    given = [normal(2, 1, 8), normal(2, 1, 8, seed=1), normal(2, 1, 8, seed=2), None, None, None, *past]
    check("MultiHeadAttention", given, outputs=3, num_heads=2)
    with pytest.raises(error.UnsupportedError, match="MultiHeadAttention.*cache_indirection"):
        relay.frontend.from_onnx(make("MultiHeadAttention", [*given, np.array([3], "int32")], attrs={"num_heads": 2}))


@pytest.mark.parametrize("weight", ["uint8", "int8"])
def test_quantized_attention(weight):
    x, w = bytes_of(2, 5, 8), bytes_of(8, 24, dtype=weight, seed=1)
    zero = np.array(7 if weight == "int8" else 120, weight)
    scales = [np.array(0.02, "float32"), np.array(0.01, "float32")]
    check(
        "QAttention",
        [x, w, QKV_BIAS, *scales, None, np.array(128, "uint8"), zero],
        [1, 2, 3, 4, 6, 7],
        num_heads=2,
        tolerance=1e-4,
    )
    keys = np.array([[1] * 5, [1, 1, 1, 0, 0]], "int32")
    check(
        "QAttention",
        [x, w, QKV_BIAS, *scales, keys, np.array(128, "uint8"), zero],
        [1, 2, 3, 4, 6, 7],
        num_heads=2,
        tolerance=1e-4,
    )
    columns = (rng(3).random(24) * 0.02).astype("float32")
    zeros = np.full(24, zero)
    check(
        "QAttention",
        [x, w, QKV_BIAS, scales[0], columns, None, np.array(128, "uint8"), zeros],
        [1, 2, 3, 4, 6, 7],
        num_heads=2,
        tolerance=1e-4,
    )


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary(interleaved):
    cos, sin = np.cos(normal(16, 4)), np.sin(normal(16, 4))
    at = np.array([[3, 4, 5], [0, 1, 9]])
    check("RotaryEmbedding", [normal(2, 2, 3, 8), at, cos, sin], [2, 3], interleaved=interleaved)
    check("RotaryEmbedding", [normal(2, 2, 3, 8), np.array([2]), cos, sin], [2, 3], interleaved=interleaved)
    check("RotaryEmbedding", [normal(2, 3, 16), at, cos, sin], [2, 3], interleaved=interleaved)


# ---- quantized

S = {k: np.array(v, "float32") for k, v in (("a", 0.02), ("b", 0.05), ("y", 0.04))}


def zeros(dtype, a=3, b=5, y=2):
    return tuple(np.array(v if dtype == "int8" else 120 + v, dtype) for v in (a, b, y))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantized_elementwise(dtype):
    za, zb, zy = zeros(dtype)
    a, b = bytes_of(3, 4, 5, dtype=dtype), bytes_of(4, 5, dtype=dtype, seed=1)
    for op in ("QLinearAdd", "QLinearMul"):
        check(op, [a, S["a"], za, b, S["b"], zb, S["y"], zy], [1, 2, 4, 5, 6, 7], steps=1)
    check("QLinearSigmoid", [a, S["a"], za, np.array(1 / 256, "float32"), zy], [1, 2, 3, 4], steps=1)
    check("QLinearLeakyRelu", [a, S["a"], za, S["y"], zy], [1, 2, 3, 4], steps=1, alpha=0.2)
    check(
        "QLinearSoftmax",
        [a, S["a"], za, np.array(1 / 256, "float32"), np.array(0 if dtype == "uint8" else -128, dtype)],
        [1, 2, 3, 4],
        steps=1,
        attrs={"opset": 13, "axis": -1},
    )
    check(
        "QLinearSoftmax",
        [a, S["a"], za, np.array(1 / 256, "float32"), np.array(0 if dtype == "uint8" else -128, dtype)],
        [1, 2, 3, 4],
        steps=1,
        attrs={"opset": 12, "axis": 1},
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantized_where(dtype):
    za, zb, zy = zeros(dtype)
    a, b = bytes_of(3, 4, 5, dtype=dtype), bytes_of(4, 5, dtype=dtype, seed=1)
    pick = rng(5).random((3, 4, 1)) < 0.5
    check("QLinearWhere", [pick, a, S["a"], za, b, S["b"], zb, S["y"], zy], [2, 3, 5, 6, 7, 8], steps=1)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("columns", [False, True])
def test_quantized_lstm(directions, columns):
    """In floats here, and said so: ONNX Runtime finds scales for the data of every step."""
    w, r = bytes_of(directions, 5, 28, dtype="int8"), bytes_of(directions, 7, 28, dtype="int8", seed=1)
    scales = (rng(2).random((2, directions, 28) if columns else (2, directions)) * 0.004 + 0.002).astype("float32")
    zero = np.zeros_like(scales[0], "int8")
    inputs = [normal(6, 2, 5), w, r, normal(directions, 56, seed=5), None, None, None, None]
    inputs += [scales[0], zero, scales[1], zero]
    weights, attrs = [1, 2, 3, 8, 9, 10, 11], {"hidden_size": 7}
    attrs["direction"] = "bidirectional" if directions == 2 else "forward"
    check("DynamicQuantizeLSTM", inputs, weights, outputs=3, tolerance=0.02, attrs=attrs)
    mod, _ = relay.frontend.from_onnx(make("DynamicQuantizeLSTM", inputs, weights, outputs=3, attrs=attrs))
    with lathe.transform.PassContext(opt_level=3) as context:
        relay.build(mod)
    assert any("(node 'it') stays in float" in note for note in context.notes), context.notes


def test_quantized_embedding():
    ids, parts = np.array([[3, 4, 5], [0, 1, 9]], "int32"), np.array([[0, 0, 1], [0, 1, 1]], "int32")
    tables = [bytes_of(10, 8), bytes_of(6, 8, seed=1), bytes_of(2, 8, seed=2), bytes_of(8, seed=3), bytes_of(8, seed=4)]
    scales = [np.array(v, "float32") for v in (0.01, 0.02, 0.03, 0.01, 0.02)]
    zero = [np.array(v, "uint8") for v in (120, 110, 128, 3, 130)]
    mask = np.array([[1, 1, 1], [1, 1, 0]], "int32")
    op, constants = "QEmbedLayerNormalization", [2, 3, 4, 5, 6, *range(8, 18)]
    check(op, [ids, parts, *tables, mask, *scales, *zero], constants, outputs=2, tolerance=1e-4)
    tables[2] = scales[2] = zero[2] = None
    check(op, [ids, None, *tables, None, *scales, *zero], constants, outputs=2, tolerance=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", [False, True])
def test_quantized_table(bits, zero):
    table, scale = bytes_of(9, 8 * bits), (rng(2).random((9, 4)) * 0.1).astype("float32")
    ids = np.array([[1, 8, 3], [0, 0, 5]])
    inputs = [table, ids, scale] + ([bytes_of(9, bits // 2, seed=3)] if zero else [])
    check("GatherBlockQuantized", inputs, [0, 2, 3], block_size=16, bits=bits)
    with pytest.raises(error.LatheError, match="both 1"):
        model = make("GatherBlockQuantized", inputs, [0, 2, 3], attrs={"gather_axis": 1, "block_size": 16})
        relay.frontend.from_onnx(model)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantized_pools_and_concat(dtype):
    za, zb, zy = zeros(dtype)
    x = bytes_of(1, 3, 8, 8, dtype=dtype)
    check(
        "QLinearAveragePool",
        [x, S["a"], za, S["y"], zy],
        [1, 2, 3, 4],
        steps=1,
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[2, 2],
    )
    check(
        "QLinearAveragePool",
        [x, S["a"], za, S["y"], zy],
        [1, 2, 3, 4],
        steps=1,
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    )
    check("QLinearGlobalAveragePool", [x, S["a"], za, S["y"], zy], [1, 2, 3, 4], steps=1)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    check("QLinearGlobalAveragePool", [last, S["a"], za, S["y"], zy], [1, 2, 3, 4], steps=1, channels_last=1)
    check(
        "QLinearAveragePool",
        [last, S["a"], za, S["y"], zy],
        [1, 2, 3, 4],
        steps=1,
        kernel_shape=[2, 2],
        channels_last=1,
    )
    other = bytes_of(1, 2, 8, 8, dtype=dtype, seed=4)
    check("QLinearConcat", [S["y"], zy, x, S["a"], za, other, S["b"], zb], [0, 1, 3, 4, 6, 7], steps=1, axis=1)


def test_quantized_products():
    a, b = bytes_of(3, 8), bytes_of(8, 5, dtype="int8", seed=1)
    za, zy, columns = np.array(120, "uint8"), np.array(128, "uint8"), (rng(2).random(5) * 0.05 + 0.01).astype("float32")
    zb, bias = np.zeros(5, "int8"), bytes_of(5, dtype="int16", seed=3).astype("int32")
    wide = np.array(2.0, "float32")
    check(
        "QGemm",
        [a, S["a"], za, b, S["b"], np.array(3, "int8"), bias, wide, zy],
        [1, 2, 3, 4, 5, 6, 7, 8],
        steps=1,
        transB=0,
    )
    check("QGemm", [a, S["a"], za, b, columns, zb, bias, wide, zy], [1, 2, 3, 4, 5, 6, 7, 8], steps=1)
    check(
        "QGemm",
        [a, S["a"], za, np.ascontiguousarray(b.T), columns, zb, None, wide, zy],
        [1, 2, 3, 4, 5, 7, 8],
        steps=1,
        transB=1,
        alpha=0.5,
    )
    check("QGemm", [a, S["a"], za, b, S["b"], np.array(3, "int8"), bias], [1, 2, 3, 4, 5, 6])
    x = normal(2, 3, 8)
    check("DynamicQuantizeMatMul", [x, b, columns, zb, normal(5, seed=4)], [1, 2, 3, 4])
    check("DynamicQuantizeMatMul", [x, b, S["b"], np.array(3, "int8")], [1, 2, 3])
    check("DynamicQuantizeMatMul", [x, bytes_of(8, 5), S["b"]], [1, 2])
    check(
        "MatMulIntegerToFloat", [bytes_of(2, 3, 8), b, S["a"], columns, za, zb, normal(5, seed=4)], [1, 2, 3, 4, 5, 6]
    )
    check("MatMulIntegerToFloat", [bytes_of(3, 8), b, S["a"], S["b"]], [1, 2, 3])


def test_quantize_and_back():
    x = normal(3, 4, scale=2)
    check("QuantizeLinear", [x, S["a"], np.array(120, "uint8")], [1, 2])
    check("DequantizeLinear", [bytes_of(3, 4), S["a"], np.array(120, "uint8")], [1, 2])
    check(
        "QuantizeLinear",
        [x, (rng(1).random(4) * 0.05 + 0.01).astype("float32"), np.array([1, 2, 3, 4], "int8")],
        [1, 2],
        axis=1,
    )


# ---- the first releases, ai.onnx.ml


def test_the_first_releases():
    x = normal(1, 3, 6, 7)
    check("Affine", [x], domain="", opset=1, alpha=1.5, beta=-0.25)
    check("ScaledTanh", [x], domain="", opset=1, alpha=1.5, beta=0.5)
    check("ParametricSoftplus", [x * 30], domain="", opset=1, alpha=1.5, beta=0.5)
    check("ImageScaler", [x], domain="", opset=1, scale=0.5, bias=[1.0, 2.0, 3.0])
    check("Crop", [x], domain="", opset=1, border=[1, 2, 3, 0])
    check("Crop", [x], domain="", opset=1, border=[1, 2, 1, 1], scale=[2, 3])
    check("ThresholdedRelu", [x], domain="", opset=1, alpha=0.3)
    # ONNX Runtime has no FC, Scale and SpatialBN
    w, b = normal(4, 18, seed=1), normal(4, seed=2)
    got = ours(make("FC", [x[:, :, :, :1].copy(), w, b], [1, 2], domain="", opset=1), {"i0": x[:, :, :, :1]})[0]
    np.testing.assert_allclose(got, x[:, :, :, 0].reshape(1, 18) @ w.T + b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours(make("Scale", [x], domain="", opset=1, attrs={"scale": 3.0}), {"i0": x})[0], 3 * x)
    g, mean, var = normal(3, seed=3), normal(3, seed=4), np.abs(normal(3, seed=5)) + 0.5
    got = ours(
        make(
            "SpatialBN",
            [x, g, b[:3].copy(), mean, var],
            [1, 2, 3, 4],
            domain="",
            opset=1,
            attrs={"is_test": 1, "epsilon": 1e-3},
        ),
        {"i0": x},
    )[0]
    at = (slice(None), None, None)
    np.testing.assert_allclose(got, g[at] * (x - mean[at]) / np.sqrt(var[at] + 1e-3) + b[:3][at], rtol=1e-4, atol=1e-5)


def test_linear_regressor():
    x = normal(5, 4)
    for how in ("NONE", "LOGISTIC", "SOFTMAX"):
        check(
            "LinearRegressor",
            [x],
            domain="ai.onnx.ml",
            coefficients=normal(12, seed=1).tolist(),
            intercepts=[0.5, -0.5, 1.0],
            targets=3,
            post_transform=how,
        )
    check("LinearRegressor", [x], domain="ai.onnx.ml", coefficients=[1.0, 2.0, 3.0, 4.0])


def aten(operator, inputs, weights=(), domain="org.pytorch.aten", **attrs):
    return make("ATen", inputs, weights, domain=domain, attrs={"operator": operator, **attrs})


def test_aten():
    x = normal(3, 4)
    assert ours(aten("size", [x, np.array(1)], [1]), {"i0": x})[0] == 4
    np.testing.assert_array_equal(ours(aten("reshape", [x, np.array([2, -1])], [1]), {"i0": x})[0], x.reshape(2, 6))
    np.testing.assert_array_equal(
        ours(aten("arange", [np.array(2), np.array(11), np.array(3)], [0, 1, 2]), {})[0], np.arange(2, 11, 3)
    )
    rows, columns, values = np.array([0, 2, 0]), np.array([1, -1, 1]), np.array([5, 6, 7], "float32")
    for accumulate in (0, 1):
        want = x.copy()
        if accumulate:
            np.add.at(want, (rows, columns), values)
        else:
            want[rows, columns] = values
        got = ours(
            aten("index_put", [x, rows, columns, values, np.array(accumulate)], [4]),
            {"i0": x, "i1": rows, "i2": columns, "i3": values},
        )[0]
        np.testing.assert_allclose(got, want, rtol=1e-6)
    with pytest.raises(error.UnsupportedError, match="grid_sampler"):
        ours(aten("grid_sampler", [x]), {"i0": x})


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("domain", ["org.pytorch.aten", ""])
def test_embedding_bags(mode, domain):
    table, indices, offsets = normal(10, 4), np.array([1, 2, 4, 5, 4, 3, 2, 9]), np.array([0, 3, 3, 7])
    got = ours(
        aten("embedding_bag", [table, indices, offsets], [0], domain=domain, mode=mode), {"i1": indices, "i2": offsets}
    )[0]
    bags = [indices[a:b] for a, b in zip(offsets, [*offsets[1:], len(indices)])]
    reduce = [lambda r: r.sum(0), lambda r: r.mean(0), lambda r: r.max(0)][mode]
    want = [reduce(table[b]) if len(b) else np.zeros(4) for b in bags]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# ---- everything TVM 0.18's importer has a converter for

TVM = """
Abs Acos Acosh Adagrad Adam Add Affine And ArgMax ArgMin Asin Asinh ATen Atan Atanh Attention AveragePool BatchNormalization Bernoulli BiasGelu
BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Compress Concat ConcatFromSequence Constant ConstantOfShape Conv
ConvInteger ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu EmbedLayerNormalization Equal Erf
Exp Expand EyeLike FC FastGelu Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual
GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity If InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual LinearRegressor Log
LogSoftmax Loop LpNormalization LpPool MatMul MatMulInteger MatMulInteger16 Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization Min Mod Momentum Mul Multinomial
Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not OneHot Optional OptionalGetElement OptionalHasElement Or PRelu Pad ParametricSoftplus Pow QAttention
QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMatMul QLinearMul QLinearSigmoid QLinearSoftmax
QuantizeLinear QuickGelu RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round Scale ScaledTanh Scan Scatter
ScatterElements ScatterND Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape Shrink Sigmoid Sign Sin Sinh Size
SkipLayerNormalization Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth SpatialBN Split SplitToSequence Sqrt Squeeze Sub Sum Tan Tanh
ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
""".split()


def test_everything_of_tvm_has_a_row():
    from lathe._ffi import call

    known = {name.rsplit(".", 1)[-1] for name, _ in call("onnx_ops")}
    assert [n for n in TVM if n not in known] == []
