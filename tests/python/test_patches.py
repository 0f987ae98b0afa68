"""First layers in bands of rows (PatchRows, --ram-limit): the same bits as whole, in less RAM."""

import json
import os
import pathlib
import subprocess

import lathe
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from lathe import relay
from lathe.contrib import graph_executor
from lathe.relay.backend import Executor
from lathe.runtime.executor import AotModule

ROOT = pathlib.Path(__file__).resolve().parents[2]
LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"


def const(rng, shape, dtype):
    values = rng.integers(-8, 8, shape) if dtype != "float32" else rng.integers(-8, 8, shape) / 4
    return relay.const(np.asarray(values, dtype))


def window(rng, x, channels, layout):
    """One random layer over x, and its channels."""
    kind = rng.integers(0, 3)
    size, stride = [int(v) for v in rng.integers(1, 4, 2)], [int(v) for v in rng.integers(1, 3, 2)]
    pad = [int(rng.integers(0, s)) for s in size + size]
    if kind == 0:
        out = int(rng.integers(1, 5))
        weight = (out, channels, *size) if layout == "NCHW" else (*size, channels, out)
        kernel_layout = "OIHW" if layout == "NCHW" else "HWIO"
        x = relay.nn.conv2d(x, const(rng, weight, "float32"), strides=stride, padding=pad, data_layout=layout,
                            kernel_layout=kernel_layout, kernel_size=size, channels=out)  # fmt: skip
        x = relay.nn.bias_add(x, const(rng, (out,), "float32"), axis=layout.index("C"))
        return relay.nn.relu(x), out
    if kind == 1:
        return relay.nn.max_pool2d(x, pool_size=size, strides=stride, padding=pad, layout=layout), channels
    more = {"count_include_pad": bool(rng.integers(0, 2))}
    return relay.nn.avg_pool2d(x, pool_size=size, strides=stride, padding=pad, layout=layout, **more), channels


@pytest.mark.parametrize("seed", range(8))
def test_random_layers(seed):
    rng = np.random.default_rng(seed)
    layout, channels = ("NCHW", "NHWC")[seed % 2], int(rng.integers(1, 4))
    shape = (1, channels, 15, 9) if layout == "NCHW" else (1, 15, 9, channels)
    x = y = relay.var("x", shape=shape)
    n = int(rng.integers(1, 4))
    for _ in range(n):
        y, channels = window(rng, y, channels, layout)
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], y)))
    rows = int(mod["main"].body.checked_type.shape[layout.index("H")])
    patches = int(rng.integers(2, 5))
    cut = relay.transform.PatchRows(layers=n, patches=patches)(mod)
    assert ("concatenate" in str(cut)) == (rows >= patches)
    data = (rng.integers(-16, 16, shape) / 4).astype("float32")
    run = [relay.create_executor("debug", m).evaluate()(data).numpy() for m in (mod, cut)]
    np.testing.assert_array_equal(*run)


def quantized():
    """Two int8 convolutions with a pool between them and requantized sums, as a frontend writes them."""
    rng, x = np.random.default_rng(3), relay.var("x", shape=(1, 32, 32, 3), dtype="int8")
    one, zero, scale = relay.const(0.05), relay.const(0), relay.const(0.02)
    w = const(rng, (8, 3, 3, 3), "int8"), const(rng, (4, 3, 3, 8), "int8")

    def conv(y, weight, at, stride):
        y = relay.qnn.conv2d(y, weight, relay.const(at), zero, one, scale, kernel_size=[3, 3], strides=[stride] * 2,
                             channels=weight.data.shape[0], padding=[0, 0, 1, 1] if stride == 2 else [1, 1, 1, 1],
                             data_layout="NHWC", kernel_layout="OHWI", out_dtype="int32")  # fmt: skip
        return relay.qnn.requantize(y, relay.const(0.001), zero, one, relay.const(-3), out_dtype="int8")

    y = relay.nn.max_pool2d(conv(x, w[0], 5, 1), pool_size=[2, 2], strides=[2, 2], layout="NHWC")
    return lathe.IRModule.from_expr(relay.Function([x], relay.nn.batch_flatten(conv(y, w[1], -3, 2))))


@pytest.mark.parametrize("layers,patches", [(2, 4), (3, 3)])
def test_program_ahead_of_time(layers, patches):
    """The C program in bands, run here, gives the bytes of the whole one."""
    mod, data = quantized(), np.random.default_rng(0).integers(-128, 128, (1, 32, 32, 3)).astype("int8")
    whole = graph_executor.GraphModule(relay.build(mod, "c")["default"](lathe.cpu(0)))
    whole.run(x=data)
    config = {"relay.PatchRows.layers": layers, "relay.PatchRows.patches": patches}
    with lathe.transform.PassContext(opt_level=3, config=config):
        lib = relay.build(mod, "c", executor=Executor("aot"))
    banded = AotModule(lib["default"](lathe.cpu(0)))
    banded.run(x=data)
    np.testing.assert_array_equal(banded.get_output(0).numpy(), whole.get_output(0).numpy())


def network():
    """Two convolutions with a pool between them."""
    rng = np.random.default_rng(1)
    weights = {"a": rng.standard_normal((8, 1, 3, 3)), "b": rng.standard_normal((4, 8, 3, 3))}
    nodes = [helper.make_node("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Conv", ["p", "b"], ["y"], strides=[2, 2])]  # fmt: skip
    ports = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
             for n, s in (("x", [1, 1, 32, 32]), ("y", [1, 4, 7, 7]))]  # fmt: skip
    known = [numpy_helper.from_array(w.astype("float32"), n) for n, w in weights.items()]
    return helper.make_model(helper.make_graph(nodes, "net", ports[:1], ports[1:], known),
                             opset_imports=[helper.make_opsetid("", 17)])  # fmt: skip


def inspect(model, *more):
    command = [LATHE, "inspect", model, "--target", "cortex-m4", "--json", *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def test_limit(tmp_path):
    """--ram-limit: bands where the whole does not fit, and the shortfall where they do not either."""
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    whole = inspect(path)["entries"][0]["ram_bytes"]
    roomy = inspect(path, "--ram-limit", whole)
    assert "patches" not in roomy and roomy["entries"][0]["ram_bytes"] == whole
    tight = inspect(path, "--ram-limit", whole * 2 // 3)
    assert tight["patches"]["patches"] >= 2 and tight["entries"][0]["ram_bytes"] <= whole * 2 // 3
    assert "more than the limit of 4000; alive at the peak" in inspect(path, "--ram-limit", 4000)
