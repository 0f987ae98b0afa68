"""ONNX: the import's options and report, the official backend interface, and real networks
against ONNX Runtime."""

import gzip
import importlib.util
import os
import re
import unittest

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import lathe  # noqa: E402
import lathe.onnx_backend as backend  # noqa: E402
from lathe import error, relay  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402
from lathe.relay.frontend.onnx import import_onnx  # noqa: E402

from messages_writer import varint  # noqa: E402
from networks import relative_error, run_onnxruntime, shared  # noqa: E402

RNG = np.random.default_rng(11)


def tensor(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, weights=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


W = RNG.normal(size=(4, 3)).astype("float32")


def gemm(batch="batch"):
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
            helper.make_node("Relu", ["m"], ["y"], name="act"),
        ],
        [value("x", [batch, 4])],
        [value("y", [batch, 3])],
        [tensor("w", W)],
    )


def run(mod, params=None, level=3, **inputs):
    with lathe.transform.PassContext(opt_level=level):
        lib = relay.build(mod, params=params)
    return run_library(lib, **inputs)


def run_library(lib, **inputs):
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for name, v in inputs.items():
        m.set_input(name, v)
    m.run()
    return [m.get_output(i) for i in range(m.get_num_outputs())]


X = RNG.normal(size=(5, 4)).astype("float32")
WANT = np.maximum(X @ W, 0)


# ---- from_onnx


def test_a_model_in_every_form(tmp_path):
    file = tmp_path / "gemm.onnx"
    onnx.save(gemm(), str(file))
    for form in (gemm(), gemm().SerializeToString(), str(file), file):
        mod, params = relay.frontend.from_onnx(form, {"x": (5, 4)})
        assert params == {} and mod["main"].params[0].type_annotation == relay.TensorType((5, 4))
        np.testing.assert_allclose(run(mod, x=X)[0].numpy(), WANT, rtol=1e-5, atol=1e-6)
    with pytest.raises(error.TypeError, match="not a int"):
        relay.frontend.from_onnx(3)
    with pytest.raises(error.IOError, match="nothing.onnx"):
        relay.frontend.from_onnx(tmp_path / "nothing.onnx")
    with pytest.raises(error.LatheError):
        relay.frontend.from_onnx(b"this is not a model")
    with pytest.raises(error.UnsupportedError, match="export_node_renamed_model_path"):
        relay.frontend.from_onnx(gemm(), export_node_renamed_model_path=str(tmp_path / "renamed.onnx"))


def test_weights_as_parameters():
    mod, params = relay.frontend.from_onnx(gemm(), {"x": (5, 4)}, freeze_params=False)
    assert list(params) == ["w"] and [p.name_hint for p in mod["main"].params] == ["x", "w"]
    np.testing.assert_array_equal(params["w"].numpy(), W)
    np.testing.assert_allclose(run(mod, params, x=X)[0].numpy(), WANT, rtol=1e-5, atol=1e-6)
    other = {"w": lathe.nd.array(2 * W)}
    np.testing.assert_allclose(run(mod, other, x=X)[0].numpy(), 2 * WANT, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(mod, x=X, w=W)[0].numpy(), WANT, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [None, {"x": (-1, 4)}, {"x": (relay.Any(), 4)}, {"x": (None, 4)}])
def test_open_sizes_stay_open(shape):
    mod, _ = relay.frontend.from_onnx(gemm(), shape)
    assert not isinstance(mod["main"].params[0].type_annotation.shape[0], int)
    lib = relay.build(mod)
    for n in (1, 5, 2):
        np.testing.assert_allclose(run_library(lib, x=X[:n])[0].numpy(), WANT[:n], rtol=1e-5, atol=1e-6)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(error.LatheError, match="x"):
        relay.frontend.from_onnx(gemm(5), {"x": (6, 4)})
    with pytest.raises(error.LatheError, match="x"):
        relay.frontend.from_onnx(gemm(), {"x": (5, 4, 1)})
    with pytest.raises(error.LatheError, match="z"):
        relay.frontend.from_onnx(gemm(), {"z": (5, 4)})


def test_opset_decides_the_meaning():
    """Softmax flattens to two dimensions up to opset 12, and works along one axis from 13."""
    x = RNG.normal(size=(2, 3, 4)).astype("float32")
    m = model(
        [helper.make_node("Softmax", ["x"], ["y"], axis=1)], [value("x", x.shape)], [value("y", x.shape)], opset=13
    )
    e = np.exp(x)
    new, old = relay.frontend.from_onnx(m)[0], relay.frontend.from_onnx(m, opset=11)[0]
    np.testing.assert_allclose(run(new, x=x)[0].numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(run(old, x=x)[0].numpy(), e / e.sum((1, 2), keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    "a, b",
    [
        ((7, 3, 42), (1, 42, 9)),
        ((1, 16, 9, 47), (1, 1, 47, 2)),
        ((3, 5, 4, 6), (3, 1, 6, 7)),
        ((2, 3, 5, 4, 6), (1, 1, 6, 7)),
        ((3, 5, 4, 6), (1, 5, 6, 7)),
        ((0, 5, 4, 6), (1, 1, 6, 7)),
        ((3, 5, 0, 6), (3, 1, 6, 7)),
        ((0, 6), (6, 7)),
    ],
)
def test_one_matrix_for_several_of_a_batch(a, b):
    """Axes of the batch over which b has one matrix are rows of a: b is not spread out."""
    x, y = RNG.normal(size=a).astype("float32"), RNG.normal(size=b).astype("float32")
    nodes = [helper.make_node("MatMul", ["a", "b"], ["c"])]
    mod, _ = relay.frontend.from_onnx(model(nodes, [value("a", a), value("b", b)], [value("c", (x @ y).shape)]))
    assert "broadcast_to" not in mod.astext() or b[0] == 1 < b[1]
    np.testing.assert_allclose(run(mod, a=x, b=y)[0].numpy(), x @ y, rtol=1e-5, atol=1e-5)


def test_names_and_shape_arithmetic():
    """A Shape, Gather, Concat, Reshape chain folds away when the sizes are known."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["out"]),
    ]
    m = model(
        nodes,
        [value("x", ["n", 4, 3])],
        [value("out", ["n", 12])],
        [tensor("zero", np.array([0])), tensor("rest", np.array([-1]))],
    )
    mod, _, report = import_onnx(m, {"x": (2, 4, 3)})
    assert relay.analysis.list_op_freqs(mod) == {"reshape": 1} and report.folded >= 3
    lib = relay.build(mod)
    assert [p.name for p in lib.model.outputs] == ["out"] and [p.name for p in lib.model.inputs] == ["x"]
    x = RNG.normal(size=(2, 4, 3)).astype("float32")
    np.testing.assert_array_equal(run_library(lib, x=x)[0].numpy(), x.reshape(2, 12))
    opened = relay.build(relay.frontend.from_onnx(m)[0])
    np.testing.assert_array_equal(run_library(opened, x=x)[0].numpy(), x.reshape(2, 12))


def test_report():
    _, _, report = import_onnx(gemm())
    assert report.operators == {"MatMul": 1, "Relu": 1} and report.weights_bytes == W.nbytes


def test_every_unsupported_operator_is_listed_at_once():
    nodes = [
        helper.make_node("Nonsense", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Rubbish", ["b"], ["y"], name="second"),
    ]
    m = model(nodes, [value("x", [2])], [value("y", [2])])
    with pytest.raises(error.UnsupportedError) as e:
        relay.frontend.from_onnx(m)
    for word in ("Nonsense", "first", "Rubbish", "second"):
        assert word in str(e.value)
    assert "Relu" not in str(e.value)


def test_errors_name_the_node():
    m = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="bad_product")],
        [value("x", [2, 5])],
        [value("y", [2, 3])],
        [tensor("w", W)],
    )
    with pytest.raises(error.LatheError, match="bad_product"):
        relay.frontend.from_onnx(m)


# ---- external data


def external(folder, location):
    m = gemm(5)
    w = m.graph.initializer[0]
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for k, v in (("location", location), ("offset", "0"), ("length", str(W.nbytes))):
        w.external_data.add(key=k, value=v)
    file = folder / "model.onnx"
    file.write_bytes(m.SerializeToString())
    return file


def test_external_data(tmp_path):
    inside, outside = tmp_path / "model", tmp_path / "elsewhere"
    inside.mkdir(), outside.mkdir()
    for folder in (inside, outside):
        (folder / "w.bin").write_bytes(W.tobytes())
    mod, _ = relay.frontend.from_onnx(str(external(inside, "w.bin")))
    np.testing.assert_allclose(run(mod, x=X)[0].numpy(), WANT, rtol=1e-5, atol=1e-6)
    (inside / "link.bin").symlink_to(outside / "w.bin")
    for location in ("../elsewhere/w.bin", str(outside / "w.bin"), "link.bin"):
        with pytest.raises(error.LatheError, match=re.escape(os.path.basename(location))):
            relay.frontend.from_onnx(str(external(inside, location)))
    with pytest.raises(error.LatheError, match="missing.bin"):
        relay.frontend.from_onnx(str(external(inside, "missing.bin")))
    (outside / "model.onnx").write_bytes(external(inside, "w.bin").read_bytes())
    (outside / "w.bin").unlink()
    mod, _ = relay.frontend.from_onnx(str(outside / "model.onnx"), external_data_root=str(inside))
    np.testing.assert_allclose(run(mod, x=X)[0].numpy(), WANT, rtol=1e-5, atol=1e-6)


def test_external_data_beyond_two_gigabytes(tmp_path):
    """A sparse file: the weight lies at its far end."""
    offset = (5 << 29) + 4096
    with open(tmp_path / "w.bin", "wb") as f:
        f.seek(offset)
        f.write(W.tobytes())
    file = external(tmp_path, "w.bin")
    m = onnx.load(str(file), load_external_data=False)
    next(e for e in m.graph.initializer[0].external_data if e.key == "offset").value = str(offset)
    file.write_bytes(m.SerializeToString())
    np.testing.assert_allclose(run(relay.frontend.from_onnx(str(file))[0], x=X)[0].numpy(), WANT, rtol=1e-5, atol=1e-6)


def test_a_file_beyond_two_gigabytes(tmp_path):
    """protobuf's own library stops at 2 GB.  The last tensor's bytes, not written at all, are the end of the file."""
    size = (9 << 28) + 11
    m = gemm(5)
    m.graph.node.append(helper.make_node("Shape", ["big"], ["s"]))
    m.graph.output.append(value("s", [1], TensorProto.INT64))
    tensor_head = (
        TensorProto(name="big", data_type=TensorProto.UINT8, dims=[size]).SerializeToString() + b"\x4a" + varint(size)
    )
    graph = m.graph.SerializeToString()
    head = b"\x2a" + varint(len(tensor_head) + size) + tensor_head
    m.ClearField("graph")
    with open(tmp_path / "big.onnx", "wb") as f:
        f.write(m.SerializeToString() + b"\x3a" + varint(len(graph) + len(head) + size) + graph + head)
        f.truncate(f.tell() + size)
    mod, _, report = import_onnx(str(tmp_path / "big.onnx"))
    assert report.operators["Shape"] == 1
    got = run(mod, x=X)
    np.testing.assert_allclose(got[0].numpy(), WANT, rtol=1e-5, atol=1e-6)
    assert got[1].numpy().tolist() == [size]
    with open(tmp_path / "big.onnx", "r+b") as f:
        f.truncate(f.seek(0, 2) - 1)
    with pytest.raises(error.ParseError):
        import_onnx(str(tmp_path / "big.onnx"))


# ---- onnx.backend


def test_backend_interface():
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")
    rep = backend.prepare(gemm())
    for feed in ([X], {"x": X}, X):
        out = rep.run(feed)
        np.testing.assert_allclose(out[0], WANT, rtol=1e-5, atol=1e-6)
    assert out._fields == ("y",)
    np.testing.assert_allclose(backend.run_model(gemm(), [X])[0], WANT, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [X])[0], -X)
    bad = model([helper.make_node("Nonsense", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    assert backend.is_compatible(gemm()) and not backend.is_compatible(bad)
    with pytest.raises(error.ArgumentError, match="1 inputs"):
        rep.run([X, X])
    with pytest.raises(error.UnsupportedError, match="CUDA"):
        backend.prepare(gemm(), "CUDA")


#: One or two of every family of the node suite.
SAMPLE = re.compile(
    r"^test_(add|add_bcast|mul_int8|div_uint8|clip_inbounds|averagepool_2d_ceil|maxpool_2d_dilations|basic_conv_with_padding|conv_with_strides_and_asymmetric_padding|convtranspose_1d"
    r"|batchnorm_example|layer_normalization_2d_axis1|softmax_axis_1|gemm_all_attributes|matmul_3d|reduce_mean_keepdims_example|reduce_sum_do_not_keepdims_example|argmax_default_axis_random"
    r"|concat_3d_axis_1|split_equal_parts_2d_opset13|slice_neg_steps|gather_elements_1|scatternd_add|transpose_all_permutations_3|reshape_negative_dim|squeeze_negative_axes|expand_dim_changed"
    r"|where_example|onehot_with_axis|topk|nonzero_example|unique_sorted_without_axis|nonmaxsuppression_single_box|compress_0|resize_upsample_sizes_nearest|pad|constant_pad|lstm_defaults|gru_defaults"
    r"|loop11|loop13_seq|if_seq|scan9_sum|sequence_insert_at_back|optional_has_element_tensor_input|quantizelinear|dequantizelinear|qlinearconv|einsum_transpose|cumsum_1d|range_float_type_positive_delta"
    r"|cast_FLOAT_to_FLOAT16|isnan|erf|tile|shape|size|eyelike_with_dtype|instancenorm_epsilon|lrn|hardswish|gelu_default_1|mod_mixed_sign_int32|bitshift_left_uint8|trilu_one_row_neg|det_2d|hannwindow)_cpu$"
)


def test_the_official_runner():
    import onnx.backend.test

    runner = onnx.backend.test.BackendTest(backend, __name__)
    suite = unittest.TestSuite()

    def pick(tests):
        for t in tests:
            if isinstance(t, unittest.TestSuite):
                pick(t)
            elif SAMPLE.match(t._testMethodName):
                suite.addTest(t)

    pick(runner.test_suite)
    assert suite.countTestCases() >= 60
    result = unittest.TestResult()
    suite.run(result)
    problems = [
        f"{t._testMethodName}: {trace.strip().splitlines()[-1]}" for t, trace in result.failures + result.errors
    ]
    assert not problems, "\n".join(problems)


# ---- real networks


def shared_models():
    place = shared()
    if place is None or not (place / "models" / "fill.py").exists():
        pytest.skip("the shared models are not there (LATHE_SHARED)")
    return place / "models"


def filled(name, folder):
    """The network with its deterministic weights, as a file."""
    models = shared_models()
    spec = importlib.util.spec_from_file_location("fill", models / "fill.py")
    fill = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fill)
    out = folder / f"{name}.onnx"
    fill.main(str(models / "graphs" / f"{name}.onnx"), str(out))
    return out


def image(n=1):
    return {"input": RNG.normal(size=(n, 3, 224, 224)).astype("float32")}


def tokens(batch, seq):
    mask = np.ones((batch, seq), "int64")
    mask[:, -2:] = 0
    return {"input_ids": RNG.integers(0, 1000, (batch, seq)), "attention_mask": mask}


slow = pytest.mark.slow
NETWORKS = [
    "squeezenet1_1",
    "mobilenet_v3_small",
    "lstm_bi2",
    "mobilenet_v2",
    "resnet18_bn",
    *[
        pytest.param(n, marks=slow)
        for n in ("resnet18", "resnet50", "googlenet", "densenet121", "efficientnet_b0", "minilm_l6", "bert_base")
    ],
]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_onnxruntime(name, tmp_path):
    pytest.importorskip("onnxruntime")
    path = filled(name, tmp_path)
    feeds = {
        "lstm_bi2": lambda: {"input": RNG.normal(size=(1, 50, 64)).astype("float32")},
        "minilm_l6": lambda: tokens(2, 16),
        "bert_base": lambda: tokens(1, 32),
    }.get(name, image)()
    mod, params = relay.frontend.from_onnx(str(path), {k: v.shape for k, v in feeds.items()})
    got = run(mod, params, **feeds)
    for g, want in zip(got, run_onnxruntime(path, feeds)):
        assert relative_error(g.numpy(), want) <= 1e-3


def test_a_batch_left_open(tmp_path):
    pytest.importorskip("onnxruntime")
    path = filled("squeezenet1_1", tmp_path)
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(relay.frontend.from_onnx(str(path))[0])
    for n in (1, 3):
        feeds = image(n)
        assert relative_error(run_library(lib, **feeds)[0].numpy(), run_onnxruntime(path, feeds)[0]) <= 1e-3


@slow
def test_a_decoder_with_its_past_through_one_artefact(tmp_path):
    pytest.importorskip("onnxruntime")
    path = filled("gpt_kv", tmp_path)
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(relay.frontend.from_onnx(str(path))[0])
    lib.export_library(tmp_path / "gpt.so")
    lib = lathe.runtime.load_module(tmp_path / "gpt.so")
    pasts = [p.name for p in lib.model.inputs if p.name.startswith("past")]
    for seq, past in ((4, 0), (1, 4), (1, 9), (3, 17)):
        feeds = {"input_ids": RNG.integers(0, 8192, (1, seq))}
        feeds.update({n: RNG.normal(size=(1, 6, past, 64)).astype("float32") for n in pasts})
        for g, want in zip(run_library(lib, **feeds), run_onnxruntime(path, feeds)):
            assert relative_error(g.numpy(), want) <= 1e-3


# ---- trained networks


def trained():
    place = shared_models() / "trained" / "onnx"
    if not place.exists():
        pytest.skip("the trained models are not there (LATHE_SHARED)")
    return place


def data_set(folder, what):
    files = sorted(folder.glob(f"{what}_*.pb"))
    return [numpy_helper.to_array(TensorProto.FromString(f.read_bytes())) for f in files]


@pytest.mark.parametrize("name", ["mnist_8", "super_resolution_10", pytest.param("mobilenet_v2_qdq", marks=slow)])
def test_expected_outputs(name):
    folder = trained() / name
    source = onnx.load(str(folder / "model.onnx"))
    weights = {t.name for t in source.graph.initializer}
    names = [i.name for i in source.graph.input if i.name not in weights]
    sets = sorted(folder.glob("test_data_set_*"))
    first = dict(zip(names, data_set(sets[0], "input")))
    mod, params = relay.frontend.from_onnx(source, {k: v.shape for k, v in first.items()})
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, params=params)
    for s in sets:
        feeds, want = dict(zip(names, data_set(s, "input"))), data_set(s, "output")
        got = run_library(lib, **feeds)
        if name.endswith("qdq"):
            peer = run_onnxruntime(folder / "model.onnx", feeds)
            assert got[0].numpy().argmax() == peer[0].argmax()
            continue
        for g, w in zip(got, want):
            assert relative_error(g.numpy(), w) <= 1e-3


def feeds_of(name):
    if name == "silero_vad":
        return [
            {
                "input": RNG.normal(size=(1, n)).astype("float32") * 0.1,
                "state": np.zeros((2, 1, 128), "float32"),
                "sr": np.array(rate),
            }
            for n, rate in ((512, 16000), (256, 8000))
        ]
    shapes = {
        "3DBall": ("obs_0", (3, 8)),
        "mnist_mlp": ("image", (1, 1, 28, 28)),
        "version-slim-320": ("input", (1, 3, 240, 320)),
    }
    key, shape = shapes[name]
    return [{key: RNG.normal(size=shape).astype("float32")}]


@pytest.mark.parametrize("name", ["3DBall", "mnist_mlp", "version-slim-320", "silero_vad"])
def test_trained_networks_agree_with_onnxruntime(name):
    pytest.importorskip("onnxruntime")
    path = trained() / f"{name}.onnx"
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(relay.frontend.from_onnx(str(path))[0])
    for feeds in feeds_of(name):
        for g, want, port in zip(run_library(lib, **feeds), run_onnxruntime(path, feeds), lib.model.outputs):
            if name == "3DBall" and port.name == "continuous_actions":  # drawn at random
                assert g.shape == want.shape
                continue
            assert relative_error(g.numpy(), want) <= 1e-3, port.name


def mnist(models, what, skip, shape):
    path = models / "data" / f"t10k-{what}-ubyte.gz"
    if not path.exists():
        pytest.skip("the MNIST test set is not there (LATHE_SHARED)")
    return np.frombuffer(gzip.decompress(path.read_bytes()), "uint8", offset=skip).reshape(shape)


def test_accuracy_equals_onnxruntime():
    ort = pytest.importorskip("onnxruntime")
    models = shared_models()
    images, labels = mnist(models, "images-idx3", 16, (-1, 1, 1, 28, 28)), mnist(models, "labels-idx1", 8, (-1,))
    images = images.astype("float32")
    path = trained() / "mnist_8" / "model.onnx"
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(relay.frontend.from_onnx(str(path))[0])
    ex = lib["default"](lathe.cpu(0)).executor
    peer = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ours, theirs = [], []
    for x in images:
        ex.set_input(0, x)
        ex.run()
        ours.append(int(ex.get_output(0).numpy().argmax()))
        theirs.append(int(peer.run(None, {"Input3": x})[0].argmax()))
    right = [int(np.sum(np.array(a) == labels[: len(images)])) for a in (ours, theirs)]
    assert right[0] == right[1] and right[0] > 0.98 * len(images)
