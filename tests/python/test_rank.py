"""One limit on the number of dimensions: at it things work, one above it every door refuses with a sentence."""

import ctypes
import pathlib
import re
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import lathe  # noqa: E402
from lathe import error, relay, te  # noqa: E402
from lathe._ffi import call  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402

from test_cli import PROGRAM  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = (ROOT / "include/lathe_rt.h").read_text()
MOST = int(re.search(r"LATHE_RT_MAX_RANK = (\d+)", HEADER).group(1))
REFUSED = rf"{MOST + 1} dimensions|rank {MOST + 1}|more dimensions than"


def shape_of(rank):
    """Two elements in the first and three in the last dimension, one in each between."""
    return (2,) + (1,) * (rank - 2) + (3,)


def run(mod, params=None, **inputs):
    lib = relay.build(mod, target="llvm", params=params)
    model = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    model.run(**inputs)
    return model.get_output(0).numpy()


def onnx_model(rank, weight_rank=None):
    w = np.arange(6, dtype="float32").reshape(shape_of(weight_rank or rank))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Transpose", ["s"], ["y"])], "high",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_of(rank))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), w


@pytest.mark.parametrize("rank", [8, 9, MOST])
def test_a_model(rank):
    model, w = onnx_model(rank)
    mod, params = relay.frontend.from_onnx(model)
    x = np.ones(w.shape, "float32")
    np.testing.assert_array_equal(run(mod, params, x=x), (x + w).transpose())


@pytest.mark.parametrize("weight", [None, MOST + 1])
def test_a_model_beyond(weight):
    with pytest.raises(error.LatheError, match=REFUSED):
        relay.frontend.from_onnx(onnx_model(4 if weight else MOST + 1, weight)[0])


def test_operators_that_add_dimensions():
    x = relay.var("x", shape=shape_of(MOST))
    for make in (lambda: relay.expand_dims(x, 0), lambda: relay.stack([x, x], 0),
                 lambda: relay.reshape(x, (1,) * 16 + (6,)),
                 lambda: relay.broadcast_to(x, (2,) + shape_of(MOST)), lambda: relay.one_hot(
                     relay.cast(x, "int32"), relay.const(1.0), relay.const(0.0), 3, -1, "float32")):
        with pytest.raises(error.LatheError, match="dimensions"):
            lathe.relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], make())))


@pytest.mark.parametrize("rank", [MOST, MOST + 1])
def test_relay_text(rank):
    dims = ", ".join(map(str, shape_of(rank)))
    text = f"def @main(%x: Tensor[({dims}), float32]) {{ negative(add(%x, meta[relay.Constant][0])) }}"
    text = text.replace("meta[relay.Constant][0]", "1f")
    if rank > MOST:
        with pytest.raises(error.LatheError, match=REFUSED):
            relay.fromtext(text)
        return
    x = np.arange(6, dtype="float32").reshape(shape_of(rank))
    mod = relay.fromtext(text)
    np.testing.assert_array_equal(run(mod, x=x), -(x + 1))
    assert relay.fromtext(mod.astext()).astext() == mod.astext()


@pytest.mark.parametrize("rank", [9, MOST, MOST + 1])
def test_constants(rank):
    value = np.arange(6, dtype="float32").reshape(shape_of(rank))
    if rank > MOST:
        with pytest.raises(error.LatheError, match=REFUSED):
            relay.const(value)
        return
    x = relay.var("x", shape=())
    mod = lathe.IRModule.from_expr(relay.Function([x], relay.add(relay.const(value), x)))
    again = relay.fromtext(mod.astext())
    np.testing.assert_array_equal(run(again, x=np.float32(2)), value + 2)


@pytest.mark.parametrize("rank", [MOST, MOST + 1])
def test_tensor_expressions(rank):
    if rank > MOST:
        with pytest.raises(error.LatheError, match=REFUSED):
            te.placeholder(shape_of(rank))
        A = te.placeholder((6,))
        with pytest.raises(error.LatheError, match=REFUSED):
            te.compute(shape_of(rank), lambda *i: A[i[0] * 3 + i[-1]])
        return
    A = te.placeholder(shape_of(rank), name="A")
    B = te.compute(shape_of(rank), lambda *i: A(*i) * 2.0, name="B")
    a, b = np.arange(6, dtype="float32").reshape(shape_of(rank)), np.zeros(shape_of(rank), "float32")
    lathe.build(te.create_schedule(B.op), [A, B], target="llvm")(a, b)
    np.testing.assert_array_equal(b, a * 2)


@pytest.mark.parametrize("rank", [MOST, MOST + 1])
def test_loop_programs(rank):
    dims = ", ".join(map(str, shape_of(rank)))
    zeros = ", ".join(["i"] + ["0"] * (rank - 2) + ["j"])
    text = (f"@T.prim_func\ndef twice(A: T.Buffer(({dims}), 'float32'), B: T.Buffer((6,), 'float32')):\n"
            f"    for i, j in T.grid(2, 3):\n        B[i * 3 + j] = A[{zeros}] * T.float32(2)\n")
    if rank > MOST:
        with pytest.raises(error.LatheError, match=REFUSED):
            lathe.script.from_source(text)
        return
    a, b = np.arange(6, dtype="float32").reshape(shape_of(rank)), np.zeros(6, "float32")
    lathe.build(lathe.script.from_source(text), target="llvm")(a, b)
    np.testing.assert_array_equal(b, a.ravel() * 2)


def test_tensors():
    np.testing.assert_array_equal(lathe.nd.array(np.ones(shape_of(MOST), "float32")).numpy(), np.ones(shape_of(MOST)))
    with pytest.raises(error.LatheError, match=REFUSED):
        lathe.nd.array(np.ones(shape_of(MOST + 1), "float32"))
    with pytest.raises(error.LatheError, match=REFUSED):
        lathe.nd.empty(shape_of(MOST + 1))


def test_comparison_with_the_interpreter():
    """Every kernel's tensors are handed to the interpreter, whatever their rank."""
    x = relay.var("x", shape=shape_of(MOST))
    mod = lathe.IRModule.from_expr(relay.Function([x], relay.exp(relay.transpose(x))))
    compiled = relay.build(mod, target="llvm")._compiled
    data = lathe.nd.array(np.ones(shape_of(MOST), "float32"))
    assert call("compiled_compare", compiled, [ctypes.addressof(data.rt_tensor())], 1e-6, 1e-6)[0]


@pytest.mark.skipif(not PROGRAM.exists(), reason="the lathe program was not built")
@pytest.mark.parametrize("rank", [MOST, MOST + 1])
def test_the_command_line(rank, tmp_path):
    model, w = onnx_model(MOST)
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.zeros(shape_of(rank), "float32"))
    args = [str(PROGRAM), "run", str(tmp_path / "m.onnx"), "--input", f"x={tmp_path}/x.npy"]
    args += ["--output", f"{tmp_path}/y.npy"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120)
    if rank > MOST:
        assert done.returncode == 1 and re.search(REFUSED, done.stderr)
    else:
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), w.transpose())
