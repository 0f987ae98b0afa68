"""Post-training quantization: relay.quantize of modules, lathe.quantize and `lathe quantize` of ONNX files.

Oracles: numpy for scales and integers, ONNX Runtime for what the written file means, onnx's checker for its form."""

import gzip
import json
import os
import pathlib
import subprocess
import warnings

import numpy as np
import pytest

import lathe
from lathe import quantize, relay
from lathe.contrib import graph_executor

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT.parent / "shared"))
PROGRAM = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"
F = "float32"


# ---- models --------------------------------------------------------------------------------------------


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def save(path, nodes, inputs, outputs, consts, opset=17, ir=8, **more):
    inits = [numpy_helper.from_array(np.asarray(v), k) for k, v in consts.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, inits, doc_string="a graph")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir, **more)
    onnx.save(model, str(path))
    return str(path)


def conv_net(path, seed=0):
    """Convolutions with a batch norm, an added constant, a sum of branches, a concatenation, pools, a product."""
    r = np.random.default_rng(seed)

    def w(*shape):
        return (r.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(F)

    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        n("BatchNormalization", ["c1", "g", "b", "m", "v"], ["n1"], "norm"),
        n("Relu", ["n1"], ["r1"]),
        n("Conv", ["r1", "w2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        n("Add", ["c2", "a2"], ["d2"], "added"),
        n("Add", ["d2", "r1"], ["s"], "sum"),
        n("Relu", ["s"], ["rs"]),
        n("Conv", ["rs", "w3", "b3"], ["c3"], "apart", group=8, pads=[1, 1, 1, 1]),
        n("Clip", ["c3", "lo", "hi"], ["k3"]),
        n("Concat", ["k3", "rs"], ["cat"], "cat", axis=1),
        n("MaxPool", ["cat"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        n("GlobalAveragePool", ["p"], ["q"]),
        n("Flatten", ["q"], ["f"]),
        n("Gemm", ["f", "w4", "b4"], ["y"], "last", transB=1),
    ]
    consts = dict(
        w1=w(8, 3, 3, 3), g=r.random(8).astype(F) + 0.5, b=r.normal(size=8).astype(F),
        m=r.normal(size=8).astype(F) * 0.1,
        v=r.random(8).astype(F) + 0.5, w2=w(8, 8, 3, 3), a2=r.normal(size=(8, 1, 1)).astype(F), w3=w(8, 1, 3, 3),
        b3=r.normal(size=8).astype(F), lo=np.float32(0), hi=np.float32(6), w4=w(5, 16), b4=r.normal(size=5).astype(F),
    )  # fmt: skip
    return save(path, nodes, [info("x", ["n", 3, 12, 12])], [info("y", ["n", 5])], consts)


def images(n=24, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 3, 12, 12)).astype(F)


def dense_net(path, sizes=(8, 12, 4), seed=0, weights=None):
    r = np.random.default_rng(seed)
    nodes, consts, last = [], {}, "x"
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        consts[f"w{i}"] = weights[i] if weights else (r.normal(size=(a, b)) / np.sqrt(a)).astype(F)
        consts[f"b{i}"] = r.normal(size=b).astype(F)
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"t{i}"], f"layer{i}"))
        last = f"t{i}"
        if i < len(sizes) - 2:
            nodes.append(helper.make_node("Relu", [last], [f"r{i}"]))
            last = f"r{i}"
    return save(path, nodes, [info("x", ["n", sizes[0]])], [info(last, ["n", sizes[-1]])], consts)


def ort_run(path, feed, outputs=None):
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(outputs, feed)


def lathe_run(path, feed):
    mod, params = relay.frontend.from_onnx(str(path), {k: v.shape for k, v in feed.items()})
    return run_module(mod, feed, params)


def run_module(mod, feed, params=None):
    lib = relay.build(mod, target="llvm -mcpu=native", params=params)
    model = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for k, v in feed.items():
        model.set_input(k, v)
    model.run()
    return model.get_output(0).numpy()


def initializers(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(str(path)).graph.initializer}


# ---- the file ------------------------------------------------------------------------------------------------


def test_a_convolutional_net(tmp_path):
    """Everything that has an integer form gets it, and ONNX Runtime reads the file as we do: within one unit."""
    source, out, x = conv_net(tmp_path / "net.onnx"), tmp_path / "int8.onnx", images()
    report = quantize.quantize_onnx(source, {"x": x}, out)
    model = onnx.load(str(out))
    onnx.checker.check_model(model, full_check=True)
    assert [layer["name"] for layer in report.layers] == ["first", "second", "apart", "last"]
    assert report.quantized == 4 and report.snr > 25 and report.accuracy > 0.8
    assert "BatchNormalization" not in [n.op_type for n in model.graph.node]  # in the weights
    with lathe.transform.PassContext(opt_level=3) as passes:
        ours = lathe_run(out, {"x": x[:4]})
    assert not passes.notes  # nothing stays in float
    theirs = ort_run(out, {"x": x[:4]})[0]
    unit = initializers(out)["y_scale"]
    assert np.abs(ours - theirs).max() <= 1.01 * unit
    floats = ort_run(source, {"x": x})[0]
    assert np.abs(ort_run(out, {"x": x})[0] - floats).max() < 0.1 * np.abs(floats).max()


def test_scales_and_integers(tmp_path):
    """With minmax, by numpy from ONNX Runtime's own floats."""
    source, out = dense_net(tmp_path / "net.onnx"), tmp_path / "int8.onnx"
    model = onnx.load(source)
    model.graph.output.append(info("r0", ["n", 12]))  # seen from outside: its channels keep their size
    onnx.save(model, source)
    x = np.random.default_rng(3).normal(size=(50, 8)).astype(F)
    report = quantize.quantize_onnx(source, x, out, calibrate="minmax")
    hidden = ort_run(source, {"x": x}, ["r0"])[0]
    assert not report.equalised
    stored, given = initializers(out), initializers(source)
    for name, value in (("x", x), ("r0", hidden)):
        lo, hi = min(float(value.min()), 0), max(float(value.max()), 0)
        np.testing.assert_allclose(stored[f"{name}_scale"], (hi - lo) / 255, rtol=1e-5)
        assert stored[f"{name}_zero_point"] == np.round(-128 - lo / ((hi - lo) / 255))
        assert stored[f"{name}_zero_point"].dtype == np.int8
    scale = np.abs(given["w0"]).max(axis=0) / 127
    np.testing.assert_allclose(stored["t0_weight_scale"], scale, rtol=1e-6)
    np.testing.assert_array_equal(stored["t0_weight_quantized"], np.round(given["w0"] / stored["t0_weight_scale"]))
    np.testing.assert_allclose(stored["t0_bias_scale"], stored["x_scale"] * stored["t0_weight_scale"], rtol=1e-6)
    if not report.bias_corrected:
        np.testing.assert_array_equal(stored["t0_bias_quantized"], np.round(given["b0"] / stored["t0_bias_scale"]))


def test_the_model_keeps_what_it_says(tmp_path):
    source, out = tmp_path / "net.onnx", tmp_path / "int8.onnx"
    dense_net(source)
    model = onnx.load(str(source))
    helper.set_model_props(model, {"author": "somebody", "classes": "a,b"})
    model.producer_name, model.producer_version, model.model_version = "maker", "1.2", 7
    model.doc_string, model.graph.node[0].doc_string = "what it is", "the first"
    onnx.save(model, str(source))
    quantize.quantize_onnx(source, np.random.default_rng(0).normal(size=(9, 8)).astype(F), out)
    made = onnx.load(str(out))
    for field in ("producer_name", "producer_version", "model_version", "doc_string", "metadata_props", "opset_import"):
        assert getattr(made, field) == getattr(model, field)
    assert made.graph.input == model.graph.input and made.graph.output == model.graph.output
    assert made.graph.doc_string == "a graph" and made.graph.name == "net"
    first = next(n for n in made.graph.node if n.name == "layer0")
    assert first.doc_string == "the first" and list(first.attribute) == list(model.graph.node[0].attribute)
    assert not {"w0", "b0", "w1", "b1"} & set(initializers(out))  # floats that nobody uses any more


def test_older_opsets(tmp_path):
    """Opset 9 with attributes that are inputs in opset 13, weights that are inputs as well, and IR version 3."""
    r = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Clip", ["c"], ["k"], min=0.0, max=4.0),
        helper.make_node("Dropout", ["k"], ["d"], ratio=0.5),
        helper.make_node("GlobalAveragePool", ["d"], ["p"]),
        helper.make_node("Squeeze", ["p"], ["q"], axes=[2, 3]),
        helper.make_node("MatMul", ["q", "m"], ["t"], "product"),
        helper.make_node("Add", ["t", "b"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"]),
    ]
    consts = dict(w=r.normal(size=(6, 2, 3, 3)).astype(F), m=r.normal(size=(6, 3)).astype(F),
                  b=r.normal(size=3).astype(F))
    inputs = [info("x", [1, 2, 7, 7]), info("w", [6, 2, 3, 3]), info("m", [6, 3]), info("b", [3])]
    source = save(tmp_path / "net.onnx", nodes, inputs, [info("y", [1, 3])], consts, opset=9, ir=3)
    x = r.normal(size=(20, 2, 7, 7)).astype(F)
    report = quantize.quantize_onnx(source, x, tmp_path / "int8.onnx", calibrate="minmax")
    made = onnx.load(str(tmp_path / "int8.onnx"))
    onnx.checker.check_model(made, full_check=True)
    assert made.opset_import[0].version == 13 and [i.name for i in made.graph.input] == ["x"]
    assert report.quantized == 2
    for i in range(4):
        feed = {"x": x[i : i + 1]}
        np.testing.assert_allclose(ort_run(tmp_path / "int8.onnx", feed)[0], ort_run(source, feed)[0], atol=0.05)


def test_what_opset_13_says_otherwise_is_refused(tmp_path):
    nodes = [helper.make_node("Gemm", ["x", "w"], ["t"]), helper.make_node("Reshape", ["t", "s"], ["u"]),
             helper.make_node("Softmax", ["u"], ["y"], "soft", axis=1)]
    source = save(tmp_path / "net.onnx", nodes, [info("x", [1, 4])], [info("y", [1, 2, 2])],
                  dict(w=np.ones((4, 4), F), s=np.array([1, 2, 2])), opset=11)
    with pytest.raises(lathe.error.UnsupportedError, match="'soft': Softmax says another thing from opset 13 on"):
        quantize.quantize_onnx(source, np.ones((2, 4), F), tmp_path / "out.onnx")


def test_weights_in_another_file(tmp_path):
    dense_net(tmp_path / "net.onnx", (64, 64, 4))
    model = onnx.load(str(tmp_path / "net.onnx"))
    onnx.save(model, str(tmp_path / "apart.onnx"), save_as_external_data=True, location="w.bin", size_threshold=100)
    (tmp_path / "elsewhere").mkdir()
    x = np.random.default_rng(0).normal(size=(9, 64)).astype(F)
    outs = [tmp_path / "a.onnx", tmp_path / "elsewhere" / "b.onnx"]
    for source, out in zip(("net.onnx", "apart.onnx"), outs):
        quantize.quantize_onnx(tmp_path / source, x, out)
    np.testing.assert_array_equal(*(ort_run(o, {"x": x})[0] for o in outs))


# ---- what is done for accuracy -----------------------------------------------------------------------------------


def test_channels_are_equalised(tmp_path):
    """Channels of very different size between two layers: with one scale for all of them the small ones drown."""
    r = np.random.default_rng(0)
    size = 2.0 ** np.linspace(-5, 5, 16)
    w = [(r.normal(size=(8, 16)) * size).astype(F), (r.normal(size=(16, 4)) / size[:, None]).astype(F)]
    report = quantize.quantize_onnx(
        dense_net(tmp_path / "net.onnx", (8, 16, 4), weights=w), r.normal(size=(64, 8)).astype(F), tmp_path / "out.onnx"
    )
    assert report.equalised and report.snr > 28
    onnx.checker.check_model(onnx.load(str(tmp_path / "out.onnx")), full_check=True)


def test_biases_are_corrected(tmp_path):
    """Weights that all round the same way make a mean error, which the bias can take."""
    w = np.full((32, 4), 0.4 / 127, F)
    w[0] = 1.0
    x = (np.random.default_rng(0).random((64, 32)) + 2).astype(F)
    report = quantize.quantize_onnx(
        dense_net(tmp_path / "net.onnx", (32, 4), weights=[w]), x, tmp_path / "out.onnx", calibrate="minmax"
    )
    assert report.bias_corrected
    want, have = (ort_run(tmp_path / n, {"x": x})[0] for n in ("net.onnx", "out.onnx"))
    assert abs((have - want).mean()) < 0.25 * 31 * 2.5 * 0.4 / 127  # what rounding the small weights to 0 would take


def test_calibration_modes(tmp_path):
    """One element far out: minmax stands for it, percentile and kl do not."""
    source = dense_net(tmp_path / "net.onnx")
    x = np.random.default_rng(0).normal(size=(400, 8)).astype(F)
    x[7, 3] = 60
    scale = {}
    for how in ("minmax", "percentile", "kl"):
        quantize.quantize_onnx(source, x, tmp_path / "out.onnx", calibrate=how, percentile=99.9, samples=400)
        scale[how] = initializers(tmp_path / "out.onnx")["x_scale"]
    np.testing.assert_allclose(scale["minmax"], (60 - x.min()) / 255, rtol=1e-5)
    assert scale["percentile"] < scale["minmax"] / 5 and scale["kl"] < scale["minmax"] / 5
    kept = scale["percentile"] * 255  # from about the least to about the largest of the others
    rest = np.sort(x.ravel())[:-1]
    assert abs(kept - (rest[-1] - rest[0])) < 0.3 * (rest[-1] - rest[0])


def test_layers_stay_in_float_for_the_promised_accuracy(tmp_path):
    """The second layer takes small differences of large numbers; rounding them to 8 bits changes the answer."""
    w = [np.concatenate([np.full((1, 2), 1000, F), np.eye(2, dtype=F)]), np.array([[1, -1], [-1, 1]], F)]
    source = dense_net(tmp_path / "net.onnx", (3, 2, 2), weights=w)
    r = np.random.default_rng(1)
    x = np.concatenate([np.ones((200, 1)), r.random((200, 2))], axis=1).astype(F)
    labels = ort_run(source, {"x": x})[0].argmax(axis=1)
    plain = quantize.quantize_onnx(source, x, tmp_path / "plain.onnx", labels=labels)
    assert plain.labelled and plain.float_accuracy == 1 and plain.accuracy < 0.9 and plain.quantized == 2
    held = quantize.quantize_onnx(source, x, tmp_path / "held.onnx", labels=labels, accuracy_drop=0.01)
    assert held.accuracy >= 0.99 and held.quantized < 2
    assert "to keep the accuracy" in [layer.get("float") for layer in held.layers]
    assert "in float: to keep the accuracy" in str(held)
    have = ort_run(tmp_path / "held.onnx", {"x": x})[0].argmax(axis=1)
    assert (have == labels).mean() >= 0.99


def test_layers_can_be_skipped(tmp_path):
    source, x = dense_net(tmp_path / "net.onnx", (8, 8, 8, 4)), np.random.default_rng(0).normal(size=(9, 8)).astype(F)
    report = quantize.quantize_onnx(source, x, tmp_path / "out.onnx", skip=["layer0", "layer2"])
    assert [layer.get("float") for layer in report.layers] == ["as was asked for", None, "as was asked for"]
    names = {n.name: list(n.input) for n in onnx.load(str(tmp_path / "out.onnx")).graph.node}
    assert names["layer2"][1] == "w2" and names["layer1"][1].endswith("_dequantized")


# ---- trained networks -----------------------------------------------------------------------------------------


def digits():
    held = np.load(ROOT / "examples/digits/held_back.npz")
    return (held["images"] / 16.0).reshape(-1, 1, 8, 8).astype(F), held["labels"]


def test_digits(tmp_path):
    x, labels = digits()
    report = quantize.quantize_onnx(ROOT / "examples/digits/digits.onnx", x, tmp_path / "out.onnx", labels=labels)
    assert report.float_accuracy > 0.9
    assert report.float_accuracy - report.accuracy <= 0.005
    with relay.quantize.qconfig(
        calibrate_mode="percentile", weight_scale="max", skip_conv_layers=[], skip_dense_layer=False
    ):
        mod, params = relay.frontend.from_onnx(ROOT / "examples/digits/digits.onnx", {"pixels": (len(x), 1, 8, 8)})
        made = relay.quantize.quantize(mod, params, [{"pixels": x}])
    assert "qnn.conv2d" in str(made) and "nn.conv2d(" not in str(made).replace("qnn.conv2d(", "")
    right = (run_module(made, {"pixels": x}).argmax(axis=1) == labels).mean()
    assert report.float_accuracy - right <= 0.005


def mnist(count):
    folder = SHARED / "models/data"
    if not folder.exists():
        pytest.skip("the shared data is not here")

    def read(name, offset):
        return np.frombuffer(gzip.open(folder / name).read(), np.uint8, offset=offset)

    x = read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)[:count]
    return x.astype(F), read("t10k-labels-idx1-ubyte.gz", 8)[:count]


@pytest.mark.parametrize("name", ["mnist_8/model.onnx", "mnist_mlp.onnx"])
def test_mnist(name, tmp_path):
    x, labels = mnist(1000)
    source = SHARED / "models/trained/onnx" / name
    port = onnx.load(str(source)).graph.input[0]
    shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
    if "mlp" in name:
        x = x / 255
    x = x.reshape(-1, *shape[1:])
    report = quantize.quantize_onnx(source, {port.name: x}, tmp_path / "out.onnx", labels=labels)
    assert report.float_accuracy > 0.85 and report.float_accuracy - report.accuracy <= 0.005
    session = ort.InferenceSession(str(tmp_path / "out.onnx"), providers=["CPUExecutionProvider"])
    theirs = [session.run(None, {port.name: x[i : i + 1]})[0].argmax() for i in range(200)]
    ours = report.accuracy
    assert abs((np.array(theirs) == labels[:200]).mean() - ours) < 0.03


# ---- what cannot be done --------------------------------------------------------------------------------------


X = np.ones((4, 8), F)


@pytest.mark.parametrize("data, sentence", [
    ({"z": X}, "has an array 'z', but the model's inputs are 'x'"),
    ({}, "nothing for the input 'x'; it has no arrays"),
    (X.astype("float64"), "another dtype than the input, which is float32"),
    (np.ones((4, 9), F), r"shape \(4, 9\); the input has \(\?, 8\): samples are counted along the first axis"),
    (np.ones((0, 8), F), "is empty: at least one sample"),
    (np.full((2, 8), np.nan, F), "'x' is NaN or infinite 16 times on this data"),
    (np.full((2, 8), np.inf, F), "'x' is NaN or infinite"),
])  # fmt: skip
def test_data_that_does_not_fit(data, sentence, tmp_path):
    with pytest.raises(lathe.error.LatheError, match=sentence):
        quantize.quantize_onnx(dense_net(tmp_path / "net.onnx"), data, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("options, sentence", [
    (dict(labels=[1, 2]), "there are 2 labels for 4 samples"),
    (dict(calibrate="median"), "by kl, percentile or minmax, not by 'median'"),
    (dict(calibrate="percentile", percentile=12.0), "above 50 and at most 100, not 12"),
    (dict(samples=-1), "'samples' of quantization is a count"),
])  # fmt: skip
def test_options_that_do_not_fit(options, sentence, tmp_path):
    with pytest.raises(lathe.error.LatheError, match=sentence):
        quantize.quantize_onnx(dense_net(tmp_path / "net.onnx"), X, tmp_path / "out.onnx", **options)


def test_models_that_do_not_fit(tmp_path):
    source = dense_net(tmp_path / "net.onnx")
    quantize.quantize_onnx(source, X, tmp_path / "int8.onnx")
    relu = save(tmp_path / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"])], [info("x", [1, 8])],
                [info("y", [1, 8])], {})
    old = save(tmp_path / "old.onnx", [helper.make_node("Gemm", ["x", "w"], ["y"])], [info("x", [1, 8])],
               [info("y", [1, 2])], dict(w=np.ones((8, 2), F)), opset=6)  # fmt: skip
    for model, sentence in (
        (tmp_path / "int8.onnx", "quantized already: node '.*' is a QuantizeLinear; give the float model"),
        (relu, "no convolution or matrix product with constant weights: there is nothing to quantize"),
        (old, "is of opset 6, and quantization begins from opset 7"),
        (tmp_path / "none.onnx", "none.onnx"),
    ):
        with pytest.raises(lathe.error.LatheError, match=sentence):
            quantize.quantize_onnx(model, X, tmp_path / "out.onnx")
    with pytest.raises(lathe.error.LatheError, match="no/folder"):
        quantize.quantize_onnx(source, X, tmp_path / "no/folder/out.onnx")


@pytest.fixture(scope="module")
def small_int8(tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8")
    quantize.quantize_onnx(dense_net(folder / "net.onnx"), X, folder / "int8.onnx")
    return folder / "int8.onnx"


@pytest.mark.parametrize("name, value, sentence", [
    ("x_scale", np.float32(0), "a scale is finite and above zero"),
    ("x_scale", np.float32(-1), "a scale is finite and above zero"),
    ("x_scale", np.float32(np.nan), "a scale is finite and above zero"),
    ("t0_weight_scale", np.ones(5, F), "has 5 elements, axis 1 .* has 12"),
    ("t0_weight_zero_point", np.zeros(5, "int8"), "has 5 elements, axis 1 .* has 12"),
])  # fmt: skip
def test_files_with_wrong_scales(name, value, sentence, small_int8):
    """What a quantized file must not say, when it is imported."""
    model = onnx.load(str(small_int8))
    for t in model.graph.initializer:
        if t.name == name:
            t.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
    with pytest.raises(lathe.error.LatheError, match=sentence):
        relay.frontend.from_onnx(model, {"x": (4, 8)})


def test_progress_is_told_and_may_stop(tmp_path):
    source, stages = dense_net(tmp_path / "net.onnx"), []
    quantize.quantize_onnx(source, X, tmp_path / "out.onnx", progress=lambda *said: stages.append(said) and 0)
    assert {"calibrating", "comparing with the float model"} <= {s for s, _, _ in stages}
    assert all(0 <= done < max(total, 1) for _, done, total in stages)
    with pytest.raises(lathe.error.LatheError, match="stopped"):
        quantize.quantize_onnx(source, X, tmp_path / "out.onnx", progress=lambda *_: True)
    with pytest.raises(ZeroDivisionError):
        quantize.quantize_onnx(source, X, tmp_path / "out.onnx", progress=lambda *_: 1 // 0)


# ---- comparing ------------------------------------------------------------------------------------------------


def test_compare_shows_where_models_part(tmp_path):
    """One scale is made ten times too small: from there on the noise is loud, before it is not."""
    source, out, x = conv_net(tmp_path / "net.onnx"), tmp_path / "int8.onnx", images(6)
    quantize.quantize_onnx(source, x, out)
    rows = quantize.compare_onnx(source, out, x)
    assert [r["name"] for r in rows][-1] == "y" and min(r["snr"] for r in rows) > 20
    model = onnx.load(str(out))
    for t in model.graph.initializer:
        if t.name == "k3_scale":
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) / 10, t.name))
    onnx.save(model, str(tmp_path / "bad.onnx"))
    bad = {r["name"]: r["snr"] for r in quantize.compare_onnx(source, tmp_path / "bad.onnx", x)}
    assert bad["k3"] < 15 and bad["rs"] > 20
    want, have = (ort_run(p, {"x": x})[0] for p in (source, out))
    signal, noise = (want.astype("float64") ** 2).sum(), ((have - want).astype("float64") ** 2).sum()
    assert abs(rows[-1]["snr"] - 10 * np.log10(signal / noise)) < 1


def test_compare_wants_one_network(tmp_path):
    other = save(tmp_path / "o.onnx", [helper.make_node("Relu", ["u"], ["y"])], [info("u", [1, 8])],
                 [info("y", [1, 8])], {})
    with pytest.raises(lathe.error.LatheError, match="no input 'u'"):
        quantize.compare_onnx(dense_net(tmp_path / "net.onnx"), other, X)


# ---- the commands ---------------------------------------------------------------------------------------------

needs_program = pytest.mark.skipif(not PROGRAM.exists(), reason="the lathe program was not built")


def command(*args, status=0):
    done = subprocess.run([str(PROGRAM), *map(str, args)], text=True, capture_output=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


@needs_program
def test_commands(tmp_path):
    source, out = dense_net(tmp_path / "net.onnx"), tmp_path / "int8.onnx"
    x = np.random.default_rng(0).normal(size=(30, 8)).astype(F)
    np.savez(tmp_path / "data.npz", x=x)
    (tmp_path / "labels.txt").write_text("\n".join("0123"[i % 4] for i in range(30)))
    np.save(tmp_path / "labels.npy", np.arange(30, dtype="uint8") % 4)
    table = command("quantize", source, "--data", tmp_path / "data.npz", "-o", out)
    assert "layer0" in table and "2 of 2 layers in integers" in table and "range of the result" in table
    said = [json.loads(command("quantize", source, "--data", tmp_path / "data.npz", "-o", out, "--labels",
                               tmp_path / f"labels.{kind}", "--json")) for kind in ("txt", "npy")]  # fmt: skip
    assert said[0] == said[1] and said[0]["labelled"]
    once = out.read_bytes()
    (tmp_path / "folder").mkdir()
    for i in range(30):  # one sample a file, with and without the axis that counts samples
        np.save(tmp_path / f"folder/{i:02}.npy", x[i] if i % 2 else x[i : i + 1])
    assert command("quantize", source, "--data", tmp_path / "folder", "-o", out) == table
    assert out.read_bytes() == once
    rows = command("compare", source, out, "--data", tmp_path / "data.npz")
    assert "t0" in rows and ("no tensor has noise" in rows) != ("channels were equalised" in rows)
    assert [r["name"] for r in json.loads(command("compare", source, out, "--data", tmp_path / "folder", "--json"))]


@needs_program
def test_commands_say_what_they_need(tmp_path):
    source = dense_net(tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", x=X)
    np.savez_compressed(tmp_path / "packed.npz", x=X)
    (tmp_path / "empty").mkdir()
    (tmp_path / "labels.txt").write_text("1\n2\nthree\n")
    out = ("-o", tmp_path / "out.onnx")
    said = command("quantize", source, *out, status=2)
    assert "needs samples of the model's input" in said and "--data FILE.npz" in said
    assert "where to?" in command("quantize", source, "--data", tmp_path / "data.npz", status=2)
    data = ("--data", tmp_path / "data.npz")
    said = command("quantize", source, *data, *out, "--accuracy-drop", "x", status=2)
    assert "a share, as in 1% or 0.01, not 'x'" in said
    assert "label 3 is no whole number: 'three'" in command(
        "quantize", source, *data, *out, "--labels", tmp_path / "labels.txt", status=1)
    assert "has no .npy or .npz files" in command("quantize", source, "--data", tmp_path / "empty", *out, status=1)
    assert "is compressed" in command("quantize", source, "--data", tmp_path / "packed.npz", *out, status=1)
    assert "no .npz or .npy file" in command("quantize", source, "--data", source, *out, status=1)
    assert "not by 'often'" in command("quantize", source, *data, *out, "--calibrate", "often", status=1)
    assert "which two models?" in command("compare", source, *data, status=2)


# ---- relay.quantize -------------------------------------------------------------------------------------------


def dense_module(seed=0):
    r = np.random.default_rng(seed)
    w, b = r.normal(size=(5, 8)).astype(F), r.normal(size=5).astype(F)
    x = relay.var("x", shape=(4, 8))
    y = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, relay.var("w", shape=(5, 8))), relay.const(b)))
    return lathe.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y)), w, b


def test_a_module_by_numpy():
    """min-max, a dense layer with bias and relu: every integer as numpy has it."""
    mod, w, b = dense_module()
    x = np.random.default_rng(1).normal(size=(4, 8)).astype(F)
    with relay.quantize.qconfig(
        calibrate_mode="minmax", weight_scale="max", skip_dense_layer=False, rounding="TONEAREST"
    ):
        made = relay.quantize.quantize(mod, {"w": w}, [{"x": x}])
    sx = np.float32((x.max() - x.min()) / 255)
    zx = np.round(-128 - x.min() / sx)
    sw = (np.abs(w).max(axis=1) / 127).astype(F)
    qx, qw = np.clip(np.round(x / sx) + zx, -128, 127) - zx, np.round(w / sw[:, None])
    sums = qx @ qw.T + np.round(b / (sx * sw))
    real = np.maximum(x @ w.T + b, 0)
    sy = np.float32(real.max() / 255)
    want = (np.clip(np.round(sums * (sx * sw) / sy) - 128, -128, 127) + 128) * sy
    np.testing.assert_allclose(run_module(made, {"x": x}), want, atol=1.01 * sy)
    assert np.mean(np.abs(run_module(made, {"x": x}) - want) > 1e-4) < 0.1  # the same but for a few halves


def test_weights_are_powers_of_two():
    mod, w, _ = dense_module()
    with relay.quantize.qconfig(global_scale=4.0, weight_scale="power2", skip_dense_layer=False):
        made = relay.quantize.quantize(mod, {"w": w})
    assert "0.03125f" in str(made)  # 4 / 128, of every activation
    call = next(c for c in find_calls(made, "qnn.dense"))
    scale = call.args[5].data.numpy()
    np.testing.assert_array_equal(scale, 2.0 ** np.ceil(np.log2(np.abs(w).max(axis=1) / 127)))


def find_calls(mod, name):
    found = []

    def look(e):
        if isinstance(e, relay.Call) and getattr(e.op, "name", "") == name:
            found.append(e)

    relay.analysis.post_order_visit(mod["main"], look)
    return found


def test_layers_of_modules_are_skipped():
    def conv(x, k):
        w = relay.const(np.random.default_rng(k).normal(size=(4, 4, 3, 3)).astype(F))
        return relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))

    x = relay.var("x", shape=(1, 4, 6, 6))
    mod = lathe.IRModule.from_expr(relay.Function([x], conv(conv(conv(x, 0), 1), 2)))
    data = [{"x": np.random.default_rng(9).normal(size=(1, 4, 6, 6)).astype(F)}]
    counts = {}
    for skip in ((0,), (), (0, 2), None):
        with relay.quantize.qconfig(calibrate_mode="percentile", skip_conv_layers=skip and list(skip)):
            made = relay.quantize.quantize(mod, None, data)
        counts[skip] = (len(find_calls(made, "qnn.conv2d")), len(find_calls(made, "nn.conv2d")))
        want, have = (run_module(m, data[0]) for m in (mod, made))
        assert np.abs(want - have).max() < 0.1 * np.abs(want).max()
    assert counts == {(0,): (2, 1), (): (3, 0), (0, 2): (1, 2), None: (3, 0)}
    with relay.quantize.qconfig(calibrate_mode="kl_divergence", skip_conv_layers=[], do_simulation=True):
        made = relay.quantize.quantize(mod, None, data)
    assert len(find_calls(made, "nn.conv2d")) == 3 and not find_calls(made, "qnn.conv2d")
    none = relay.quantize.qconfig(calibrate_mode="minmax", skip_conv_layers=[0, 1, 2])
    with none, pytest.warns(UserWarning, match="no layer"):
        relay.quantize.quantize(mod, None, data)


def test_fewer_bits():
    mod, w, _ = dense_module()
    x = np.random.default_rng(1).normal(size=(4, 8)).astype(F)
    want, last = run_module(mod, {"x": x}, {"w": w}), 0
    for bits in (8, 6, 4):
        for dtype in ("int8", "uint8"):
            with relay.quantize.qconfig(calibrate_mode="minmax", weight_scale="max", nbit_input=bits, nbit_weight=bits,
                                        skip_dense_layer=False, dtype_input=dtype):
                made = relay.quantize.quantize(mod, {"w": w}, [{"x": x}])
            error = np.abs(run_module(made, {"x": x}) - want).max()
        assert last < error < 3 * np.abs(want).max() * 2.0**-bits * 2
        last = error


def test_qconfig():
    assert relay.quantize.current_qconfig().nbit_input == 8
    with relay.quantize.qconfig(global_scale=2.0) as outer:
        with relay.quantize.qconfig(weight_scale="max"):
            assert relay.quantize.current_qconfig().global_scale == 8.0
        assert relay.quantize.current_qconfig() is outer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relay.quantize.qconfig(nbit_input=8, calibrate_mode="percentile", calibrate_chunk_by=-1)
    for name, value in (("round_for_shift", False), ("calibrate_chunk_by", 4), ("dtype_activation", "int16"),
                        ("nbit_activation", 16), ("debug_enabled_ops", ["nn.conv2d"])):  # fmt: skip
        with pytest.warns(UserWarning, match=f"{name}=.* changes nothing"):
            relay.quantize.qconfig(**{name: value})
    for kwargs, sentence in (
        (dict(calibrate_mode="entropy"), "calibrate_mode is global_scale, .*, not 'entropy'"),
        (dict(nbit_weight=16), "nbit_weight is a number of bits from 2 to 8, not 16"),
        (dict(global_scale=0.0), "global_scale is above zero"),
        (dict(dtype_input="float16"), "dtype_input is int8 or uint8"),
        (dict(nbit_inputs=8), "no 'nbit_inputs'; did you mean 'nbit_input'"),
        (dict(partition_conversions="enabled"), "not cut into functions"),
    ):
        with pytest.raises(lathe.error.LatheError, match=sentence):
            relay.quantize.qconfig(**kwargs)
    with relay.quantize.qconfig(calibrate_mode="kl_divergence"):
        with pytest.raises(lathe.error.LatheError, match="looks at data"):
            relay.quantize.quantize(dense_module()[0])
