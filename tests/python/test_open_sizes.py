"""Operators over sizes known only at run time: one compiled model, several sizes, the ONNX reference beside it.

Sizes are chosen around the vectors, bands and tiles that implementations have for them: one element, a part of a
vector, several tiles and some more."""

import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import lathe
from lathe import relay
from lathe.contrib import graph_executor

RNG = np.random.default_rng(7)


def model_of(op, letters, weights=(), **attributes):
    """One node over data whose dimensions are the letters, open, or numbers."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, letters)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    named = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    node = helper.make_node(op, ["x", *(w.name for w in named)], ["y"], **attributes)
    graph = helper.make_graph([node], "open", [x], [y], named)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(model, shapes, config=None):
    mod, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3, config=config):
        lib = relay.build(mod, target="llvm -mcpu=native", params=params)
    compiled = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    reference = ReferenceEvaluator(model)
    for shape in shapes:
        x = RNG.standard_normal(shape).astype("float32")
        (wanted,) = reference.run(None, {"x": x})
        compiled.set_input("x", x)
        compiled.run()
        np.testing.assert_allclose(compiled.get_output(0).numpy(), wanted, rtol=2e-4, atol=2e-5, err_msg=str(shape))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(op, axis):
    check(model_of(op, ["a", "b", "c"], axis=axis), [(2, 5, 7), (1, 1, 1), (3, 4, 37), (5, 20, 16), (2, 18, 3)])


@pytest.mark.parametrize("kernel,stride,pad", [(3, 1, 1), (3, 2, 0), (5, 2, 2), (3, 3, 0), (3, 3, 1)])
def test_max_pool(kernel, stride, pad):
    model = model_of("MaxPool", ["n", 5, "h", "w"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    check(model, [(1, 5, 5, 5), (2, 5, 17, 6), (1, 5, 9, 40)])


@pytest.mark.parametrize("kernel,stride,pad", [(3, 1, 1), (3, 2, 0), (5, 2, 2)])
def test_average_pool(kernel, stride, pad):
    model = model_of("AveragePool", ["n", 5, "h", "w"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    check(model, [(1, 5, 5, 5), (2, 5, 17, 6), (1, 5, 9, 40), (1, 5, 6, 8)])


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2]])
def test_reductions(op, axes):
    model = model_of(op, ["a", "b", "c"], axes=axes, keepdims=0)
    check(model, [(1, 1, 1), (9, 3, 21), (40, 2, 70), (3, 17, 4)])


@pytest.mark.parametrize("kernel,stride,pad", [(3, 2, 1), (2, 2, 0), (4, 3, 0)])
def test_transposed_convolution(kernel, stride, pad):
    w = RNG.standard_normal((6, 9, kernel, kernel)).astype("float32")
    model = model_of("ConvTranspose", ["n", 6, "h", "w"], [w], strides=[stride] * 2, pads=[pad] * 4)
    check(model, [(1, 6, 3, 3), (2, 6, 17, 5), (1, 6, 4, 60)])


def plans_of(model, folder):
    """{what kind of plan: the first line of that kind that `lathe compile --plan` takes}, of the model's one call."""
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    program = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", "build")) / "lathe"
    command = [program, "inspect", path, "--alternatives", "nn.", "--target", "llvm -mcpu=native"]
    said = subprocess.run(command, text=True, capture_output=True, check=True).stdout.splitlines()
    (workload,) = {line.split()[0] for line in said if line.startswith("nn.")}
    found = {}
    for line in said:
        if line[:2] not in ("* ", "  "):
            continue
        plan = line[2:].split(" ", 1)[1]
        kind = re.match(r"[\w.]+", plan).group() + " across" * ("across=True" in plan)
        found.setdefault(kind, f"{workload} {plan}\n")
    return found


CONVOLUTIONS = {
    "3x3": (dict(), (10, 6, 3, 3), dict(pads=[1] * 4)),
    "strided": (dict(), (5, 6, 5, 4), dict(strides=[2, 3], pads=[2, 1, 2, 2])),
    "one tap": (dict(), (9, 6, 1, 1), dict(strides=[2, 2])),
    "groups": (dict(group=2), (6, 3, 3, 2), dict(strides=[1, 2], dilations=[2, 1], pads=[2, 0, 2, 1])),
    "many groups": (dict(group=80), (160, 1, 1, 1), dict()),
    "one channel from a group": (dict(group=3), (3, 2, 3, 3), dict()),
    "depthwise": (dict(group=8), (8, 1, 3, 3), dict(pads=[1] * 4)),
    "depthwise, strided": (dict(group=8), (8, 1, 5, 5), dict(strides=[2, 2], pads=[2] * 4)),
    "depthwise, three apart": (dict(group=8), (8, 1, 4, 3), dict(strides=[3, 3], dilations=[1, 2])),
}


@pytest.mark.parametrize("what", CONVOLUTIONS)
def test_every_kind_of_plan(what, tmp_path):
    groups, shape, window = CONVOLUTIONS[what]
    channels = shape[1] * groups.get("group", 1)
    weight = RNG.standard_normal(shape).astype("float32")
    model = model_of("Conv", ["n", channels, "h", "w"], [weight], **groups, **window)
    found = plans_of(model, tmp_path)
    depthwise = "depthwise" in what
    assert "conv2d.flat" in found
    assert ("conv2d.im2col across" in found) == (not depthwise)
    assert ("conv2d.depthwise_open" in found) == depthwise
    least = 5 if "pads" in window else 7
    sizes = [(1, least, least), (2, 9, 7), (1, 8, 50), (3, 31, 12)] + [(1, 1, 1)] * (what in ("3x3", "depthwise"))
    for line in found.values():
        check(model, [(n, channels, h, w) for n, h, w in sizes], {"lathe.plans": line})


def test_looked_up_positions_of_volumes(tmp_path):
    w = RNG.standard_normal((5, 3, 3, 2, 3)).astype("float32")
    model = model_of("Conv", ["n", 3, "d", "h", "w"], [w], strides=[1, 2, 1], pads=[1, 0, 1, 1, 0, 1])
    found = plans_of(model, tmp_path)
    check(model, [(1, 3, 3, 4, 3), (2, 3, 5, 7, 6), (1, 3, 2, 9, 21)], {"lathe.plans": found["conv3d.im2col across"]})
