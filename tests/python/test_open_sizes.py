"""Operators over sizes known only at run time: one compiled model, several sizes, the ONNX reference beside it.

Sizes are chosen around the vectors, bands and tiles that implementations have for them: one element, a part of a
vector, several tiles and some more."""

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


def check(model, shapes):
    mod, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3):
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


@pytest.mark.parametrize("kernel,stride,pad", [(3, 1, 1), (3, 2, 0), (5, 2, 2), (3, 3, 0)])
def test_max_pool(kernel, stride, pad):
    model = model_of("MaxPool", ["n", 5, "h", "w"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    check(model, [(1, 5, 5, 5), (2, 5, 17, 6), (1, 5, 9, 40)])


@pytest.mark.parametrize("kernel,stride,pad", [(3, 2, 1), (2, 2, 0), (4, 3, 0)])
def test_transposed_convolution(kernel, stride, pad):
    w = RNG.standard_normal((6, 9, kernel, kernel)).astype("float32")
    model = model_of("ConvTranspose", ["n", 6, "h", "w"], [w], strides=[stride] * 2, pads=[pad] * 4)
    check(model, [(1, 6, 3, 3), (2, 6, 17, 5), (1, 6, 4, 60)])
