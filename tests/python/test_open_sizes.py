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


def inspected(model, folder, *options):
    """What `lathe inspect` says of the model."""
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    program = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", "build")) / "lathe"
    return subprocess.run([program, "inspect", path, *options], text=True, capture_output=True)


def plans_of(model, folder):
    """{what kind of plan: the first line of that kind that `lathe compile --plan` takes}, of the model's one call."""
    said = inspected(model, folder, "--alternatives", "nn.", "--target", "llvm -mcpu=native").stdout.splitlines()
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


def predicted(model, folder, shape):
    """Microseconds of the plan that is taken for the model's one call, and its implementation."""
    options = ["--alternatives", "nn.", "--target", "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu"]
    said = inspected(model, folder, "--shape", shape, *options)
    assert said.returncode == 0, said.stderr
    taken = [line for line in said.stdout.splitlines() if line.startswith("* ")]
    _, seconds, plan = taken[0].split(" ", 2)
    return float(seconds), plan.split("{")[0]


def test_ranges_steer_the_choice_and_every_size_is_served(tmp_path):
    weight = RNG.standard_normal((16, 16, 3, 3)).astype("float32")
    model = model_of("Conv", ["n", 16, "h", "w"], [weight], pads=[1] * 4)
    small, large = (predicted(model, tmp_path, f"x=?,16,{size},{size}") for size in ("4..16", "~512"))
    known = predicted(model, tmp_path, "x=1,16,512,512")
    assert 50 * small[0] < large[0] and 0.5 < large[0] / known[0] < 2
    assert small[1] != large[1] == known[1]
    mod, params = relay.frontend.from_onnx(model, shape={"x": ((1, 4), 16, (4, 16), (4, 16))})
    lib = relay.build(mod, target="llvm -mcpu=native", params=params)
    compiled = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    x = RNG.standard_normal((5, 16, 40, 3)).astype("float32")
    compiled.set_input("x", x)
    compiled.run()
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(compiled.get_output(0).numpy(), wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("sizes", ["8..1", "0..4", "~", "1..", "~0"])
def test_what_is_no_range(sizes, tmp_path):
    said = inspected(model_of("Relu", ["n", 4]), tmp_path, "--shape", f"x={sizes},4")
    assert said.returncode == 2 and "--shape is NAME=D,D,…" in said.stderr


def test_ranges_that_the_model_contradicts():
    model = model_of("Relu", ["n", 4])
    with pytest.raises(lathe.error.LatheError, match=r"is 4, which is not in the range 5\.\.9"):
        relay.frontend.from_onnx(model, shape={"x": (1, (5, 9))})
    with pytest.raises(lathe.error.LatheError, match=r"the range 3\.\.2"):
        relay.frontend.from_onnx(model, shape={"x": ((3, 2), 4)})
