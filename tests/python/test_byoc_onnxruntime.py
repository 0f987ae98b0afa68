"""ONNX Runtime behind a plugin of the runtime: what it is given agrees, and what goes wrong is told."""

import os
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from test_byoc_backends import BUILT, ROOT, built, floats, need, run, with_module  # noqa: E402

import lathe  # noqa: E402
from lathe import relay  # noqa: E402
from lathe.relay.op.contrib import partition_for_onnxruntime  # noqa: E402
from lathe.relay.op.contrib.onnxruntime import ROWS, to_model  # noqa: E402
from networks import run_onnxruntime  # noqa: E402

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _plugin():
    need("onnxruntime")


# ---- operators


def calls():
    """Some calls of every operator that has a row."""
    x, y = relay.var("x", shape=(2, 6, 8, 7)), relay.var("y", shape=(2, 6, 8, 7))
    positive = relay.abs(x) + relay.const(np.float32(0.5))
    made = {name: [relay.Call(name, [x])] for name in ("nn.relu", "sigmoid", "tanh", "exp", "erf", "negative", "abs")}
    made.update({name: [relay.Call(name, [x])] for name in ("ceil", "floor", "sin", "cos", "nn.batch_flatten")})
    made.update({name: [relay.Call(name, [positive])] for name in ("log", "sqrt")})
    made.update({n: [relay.Call(n, [x, y])] for n in ("add", "subtract", "multiply", "divide", "maximum", "minimum")})
    made["power"] = [relay.power(positive, y)]
    made["clip"] = [relay.clip(x, -0.5, 0.75)]
    made["nn.leaky_relu"] = [relay.nn.leaky_relu(x, 0.3)]
    made["nn.softmax"] = [relay.nn.softmax(x, axis=1)]
    made["nn.log_softmax"] = [relay.nn.log_softmax(x)]
    made["cast"] = [relay.cast(relay.var("n", shape=(3,), dtype="int32"), "float32")]
    flat, wide = relay.reshape(x, (12, 56)), relay.reshape(x, (2, 6, 56))
    made["nn.dense"] = [relay.nn.dense(a, relay.const(floats(9, 56))) for a in (flat, wide)]
    made["nn.matmul"] = [relay.nn.matmul(flat, relay.const(floats(9, 56)), transpose_b=True)]
    made["nn.batch_matmul"] = [relay.nn.batch_matmul(wide, wide), relay.nn.batch_matmul(wide, wide, transpose_a=True,
                                                                                        transpose_b=False)]  # fmt: skip
    made["nn.bias_add"] = [relay.nn.bias_add(x, relay.const(floats(n)), axis=a) for n, a in ((6, 1), (7, -1))]
    weight = lambda *shape: relay.const(floats(*shape))  # noqa: E731
    made["nn.conv1d"] = [relay.nn.conv1d(wide, weight(4, 6, 3), padding=(1, 2), strides=2)]
    made["nn.conv2d"] = [
        relay.nn.conv2d(x, weight(4, 3, 3, 2), padding=p, groups=2, dilation=(1, 2), kernel_size=(3, 2))
        for p in ((1,), (1, 0), (0, 1, 2, 1))
    ]
    deep = relay.reshape(x, (2, 3, 2, 8, 7))
    made["nn.conv3d"] = [relay.nn.conv3d(deep, weight(4, 3, 1, 3, 3), padding=(1, 0, 1))]
    window = {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1)}
    made["nn.max_pool2d"] = [relay.nn.max_pool2d(x, **window)]
    made["nn.avg_pool2d"] = [relay.nn.avg_pool2d(x, **window, count_include_pad=c) for c in (False, True)]
    made["nn.global_avg_pool2d"], made["nn.global_max_pool2d"] = (
        [relay.nn.global_avg_pool2d(x)], [relay.nn.global_max_pool2d(x)],
    )  # fmt: skip
    made["nn.layer_norm"] = [relay.nn.layer_norm(x, weight(7), weight(7), epsilon=1e-3)]
    made["reshape"] = [relay.reshape(x, (0, -1))]
    made["squeeze"] = [relay.squeeze(relay.expand_dims(x, 1), [1])]
    made["expand_dims"] = [relay.expand_dims(x, 2, 2)]
    made["transpose"] = [relay.transpose(x), relay.transpose(x, (0, -1, 2, 1))]
    made["concatenate"] = [relay.concatenate([x, y, x], axis=-2)]
    for name in ("mean", "sum", "max", "min"):
        reduce = getattr(relay, name)
        made[name] = [reduce(x), reduce(x, axis=-1), reduce(x, [1, 2], keepdims=True), reduce(x, [0], exclude=True)]
    return made


def test_every_row_agrees_with_the_interpreter():
    """In one model, of which ONNX Runtime has every call."""
    made = calls()
    assert set(made) == set(ROWS)
    body = relay.Tuple([c for row in made.values() for c in row])
    names = [n for n, row in made.items() for _ in row]
    mod = lathe.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    part = partition_for_onnxruntime(mod)
    inside = [f for f in part.functions.values() if "Compiler" in (f.attrs or {})]
    left = relay.analysis.list_op_freqs(lathe.IRModule.from_expr(relay.Function([], part["main"].body)))
    assert inside and not left, left
    inputs = {"x": floats(2, 6, 8, 7), "y": floats(2, 6, 8, 7), "n": np.array([-3, 0, 2**24 + 1], "int32")}
    want = relay.create_executor("debug", mod).evaluate()(**inputs)
    for name, got, w in zip(names, run(built(part), inputs), want):
        np.testing.assert_allclose(got, w.numpy(), rtol=1e-4, atol=1e-4, err_msg=name)


def test_what_has_other_meanings_stays():
    """Layouts, dtypes and windows that a row is not for."""
    x = relay.var("x", shape=(2, 8, 7, 6))
    n = relay.var("n", shape=(4,), dtype="int32")
    open_size = relay.var("s", shape=(relay.Any(), 4))
    body = relay.Tuple([
        relay.nn.conv2d(x, relay.const(floats(3, 3, 6, 4)), data_layout="NHWC", kernel_layout="HWIO"),
        relay.nn.max_pool2d(x, (3, 3), strides=(2, 2), ceil_mode=True),
        relay.nn.layer_norm(x, relay.const(floats(8)), relay.const(floats(8)), axis=1),
        relay.divide(n, n), relay.cast(x, "int32"), relay.exp(open_size),
    ])  # fmt: skip
    mod = lathe.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    assert list(partition_for_onnxruntime(mod).functions) == list(mod.functions)


def test_a_region_is_a_model_that_others_read():
    x = relay.var("x", shape=(3, 4))
    twice = relay.nn.relu(x)
    f = relay.Function([x], relay.Tuple([twice, twice, x, relay.const(np.arange(3, dtype="int64"))]))
    typed = relay.transform.InferType()(lathe.IRModule.from_expr(f))["main"].with_attr("global_symbol", "region")
    data = to_model(typed)
    onnx.checker.check_model(data, full_check=True)
    v = floats(3, 4)
    for got, want in zip(run_onnxruntime(data, {"in0": v}), (np.maximum(v, 0), np.maximum(v, 0), v, np.arange(3))):
        np.testing.assert_array_equal(got, want)


# ---- nodes that Lathe does not convert


def value(name, *shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape if shape else None)


def model(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(w, n) for n, w in weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def foreign(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs, outputs, domain="com.microsoft", **attrs)


def mixed():
    """Three nodes of operators that Lathe has not, between others."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        foreign("CDist", ["a", "w"], ["d"], metric="sqeuclidean"),
        helper.make_node("Neg", ["d"], ["s"]),
        helper.make_node("Exp", ["s"], ["e"]),
        foreign("Trilu", ["e"], ["t"]),
        foreign("Inverse", ["q"], ["inverse"]),
        helper.make_node("Add", ["t", "e"], ["y"]),
    ]
    inputs = [value("x", "n", 4), value("q", 2, 3, 3)]
    return model(nodes, inputs, [value("y"), value("inverse")], [("w", floats(5, 4))])


def agrees(m, inputs, shape=None):
    mod, params = relay.frontend.from_onnx(m, shape, external="onnxruntime")
    assert not params
    got = run(built(mod), inputs)
    want = run_onnxruntime(m.SerializeToString(), inputs)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    return mod


def test_nodes_of_other_domains(tmp_path):
    m, inputs = mixed(), {"x": 0.3 * floats(3, 4), "q": floats(2, 3, 3)}
    with pytest.raises(lathe.error.UnsupportedError, match="com.microsoft.CDist"):
        relay.frontend.from_onnx(m, {"x": (3, 4)})
    mod = agrees(m, inputs, {"x": (3, 4)})
    assert sum("Compiler" in (f.attrs or {}) for f in mod.functions.values()) == 3
    assert relay.analysis.list_op_freqs(mod)["exp"] == 1
    onnx.save(m, tmp_path / "net.onnx")
    again = relay.frontend.from_onnx(str(tmp_path / "net.onnx"), {"x": (3, 4)}, external="onnxruntime")[0]
    assert again.astext() == mod.astext()
    with pytest.raises(lathe.error.UnsupportedError, match="only ONNX Runtime computes this"):
        relay.create_executor("debug", mod).evaluate()(*inputs.values())
    lib = built(mod)
    lib.export_library(str(tmp_path / "net.so"))
    for a, b in zip(run(lathe.runtime.load_module(str(tmp_path / "net.so")), inputs), run(lib, inputs)):
        np.testing.assert_array_equal(a, b)


def test_a_branch_that_has_such_a_node_and_reads_what_is_outside():
    body = lambda node: helper.make_graph([node], "b", [], [value("r")])  # noqa: E731
    branch = helper.make_node("If", ["c"], ["t"], then_branch=body(foreign("Trilu", ["e"], ["r"])),
                              else_branch=body(helper.make_node("Neg", ["e"], ["r"])))  # fmt: skip
    nodes = [helper.make_node("Exp", ["x"], ["e"]), branch, helper.make_node("Add", ["t", "e"], ["y"])]
    m = model(nodes, [value("c", dtype=TensorProto.BOOL), value("x", 3, 3)], [value("y", 3, 3)])
    m.graph.input[0].type.tensor_type.shape.SetInParent()
    for c in (True, False):
        agrees(m, {"c": np.array(c), "x": floats(3, 3)})


def test_constants_may_be_all_that_is_read():
    """Nothing is folded that only ONNX Runtime can compute."""
    nodes = [
        helper.make_node("Identity", ["w"], ["v"]),
        foreign("Inverse", ["v"], ["i"]),
        helper.make_node("Add", ["x", "i"], ["y"]),
    ]
    agrees(model(nodes, [value("x", 2, 2)], [value("y", 2, 2)], [("w", floats(2, 2))]), {"x": floats(2, 2)})


def test_a_model_without_such_nodes_is_as_ever():
    m = model([helper.make_node("Exp", ["x"], ["y"])], [value("x", 2)], [value("y", 2)])
    a, b = (relay.frontend.from_onnx(m, **more)[0].astext() for more in ({}, {"external": "onnxruntime"}))
    assert a == b


@pytest.mark.parametrize(
    "options, match",
    [
        ({}, "the sizes of 'x' are .'n', 4.*give those of the inputs"),
        ({"shape": {"x": (3, 4)}, "external": "tensorrt"}, "external is \"onnxruntime\", not 'tensorrt'"),
        ({"shape": {"x": (3, 4)}, "freeze_params": False}, "weights are constants"),
    ],
)
def test_what_is_refused(options, match):
    with pytest.raises(lathe.error.LatheError, match=match):
        relay.frontend.from_onnx(mixed(), **{"external": "onnxruntime", **options})


def test_an_operator_that_nobody_has():
    m = model([foreign("Nobody", ["x"], ["y"])], [value("x", 2)], [value("y", 2)])
    with pytest.raises(lathe.error.UnsupportedError, match="ONNX Runtime does not take the model.*Nobody"):
        relay.frontend.from_onnx(m, external="onnxruntime")


# ---- what goes wrong when a model runs


def test_a_node_that_fails_in_the_middle():
    nodes = [helper.make_node("Neg", ["n"], ["i"]), foreign("GatherND", ["x", "i"], ["y"])]
    m = model(nodes, [value("x", 3, 2), value("n", 1, 1, dtype=TensorProto.INT64)], [value("y", 1, 2)])
    lib = built(relay.frontend.from_onnx(m, external="onnxruntime")[0])
    x = floats(3, 2)
    np.testing.assert_array_equal(run(lib, {"x": x, "n": np.array([[0]])})[0], x[:1])
    with pytest.raises(lathe.error.LatheError, match="onnx_external_0.*ONNX Runtime failed.*GatherND"):
        run(lib, {"x": x, "n": np.array([[-7]])})


def test_bytes_that_are_no_model():
    with pytest.raises(lathe.error.LatheError, match="module .* of kind 'onnxruntime': ONNX Runtime does not take"):
        run(with_module("onnxruntime", lambda f: b"nonsense"), {"x": floats(3)})


LIBRARY = """
#include <stdint.h>
#include <stddef.h>
static const void *get(uint32_t version) { (void)version; return NULL; }
static const char *named(void) { return "1.4.2"; }
static const struct { const void *(*get)(uint32_t); const char *(*named)(void); } base = {get, named};
const void *OrtGetApiBase(void) { return &base; }
"""
LOADS = """
import os, sys
import lathe
for path in sys.argv[2:]:
    os.environ["LATHE_ONNXRUNTIME_LIBRARY"] = path
    try:
        print(lathe.contrib.graph_executor.GraphModule(lathe.runtime.load_module(sys.argv[1])["default"](lathe.cpu(0))))
    except lathe.error.LatheError as e:
        print(e)
"""


def test_a_library_that_is_missing_or_another(tmp_path):
    x = relay.var("x", shape=(3,))
    mod = partition_for_onnxruntime(lathe.IRModule.from_expr(relay.Function([x], relay.exp(x))))
    built(mod).export_library(str(tmp_path / "net.so"))
    (tmp_path / "old.c").write_text(LIBRARY)
    (tmp_path / "none.c").write_text("int nothing;\n")
    for name in ("old", "none"):
        subprocess.run(["cc", "-shared", "-fPIC", tmp_path / f"{name}.c", "-o", tmp_path / f"{name}.so"], check=True)
    tried = [tmp_path / "gone.so", "here.so", tmp_path / "none.so", tmp_path / "old.so", ""]
    said = subprocess.run(
        [sys.executable, "-c", LOADS, tmp_path / "net.so", *tried], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "LATHE_LIBRARY_PATH": str(BUILT)},
    ).stdout.splitlines()  # fmt: skip
    assert "gone.so: cannot open shared object file" in said[0]
    assert "LATHE_ONNXRUNTIME_LIBRARY is 'here.so'; give an absolute path" in said[1]
    assert said[2].endswith("the library that was found is not ONNX Runtime")
    assert said[3].endswith("ONNX Runtime 1.4.2 lacks version 12 of its interface; 1.12 or newer is needed")
    assert "ONNX Runtime is not here; install it" in said[4] or "GraphModule" in said[4]
