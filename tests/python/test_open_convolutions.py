"""Convolutions over data whose batch and extents are known only at run time, beside ONNX Runtime: extents of one, below
a tile, odd, and above; and that they are served by the implementations that known ones have."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import lathe  # noqa: E402
from lathe import relay  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from test_plans import plans_of  # noqa: E402

# weight, attributes, extents that are tried
PLANES = ((1, 1), (3, 2), (7, 7), (5, 16), (13, 11), (8, 24), (33, 30))
LENGTHS = ((1,), (5,), (16,), (31,), (100,))
VOLUMES = ((1, 1, 1), (3, 4, 5), (5, 8, 9))
CASES = {
    "3x3": ((40, 24, 3, 3), {"pads": [1, 1, 1, 1]}, PLANES),
    "one_tap": ((37, 24, 1, 1), {}, PLANES),
    "one_tap_apart": ((24, 16, 1, 1), {"strides": [2, 2]}, PLANES),
    "stem": ((32, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}, PLANES),
    "groups": ((36, 8, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}, PLANES),
    "uneven": ((6, 5, 2, 3), {"strides": [1, 2], "pads": [0, 1, 1, 2]}, PLANES),
    "dilated": ((16, 17, 3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}, PLANES),
    "one_dimension": ((33, 16, 3), {"pads": [1, 1]}, LENGTHS),
    "signal": ((32, 1, 10), {"strides": [5], "pads": [4, 5]}, LENGTHS),
    "one_dimension_groups": ((32, 8, 8), {"group": 4, "pads": [4, 4]}, LENGTHS),
    "three_dimensions": ((8, 4, 3, 3, 3), {"pads": [1] * 6}, VOLUMES),
}


def model_of(weight, attributes, seed=3):
    rng = np.random.default_rng(seed)
    dims = [f"d{k}" for k in range(len(weight) - 2)]
    w = rng.standard_normal(weight).astype("float32")
    b = rng.standard_normal(weight[0]).astype("float32")
    conv = helper.make_node("Conv", ["x", "w", "b"], ["t"], name="conv", **attributes)
    nodes = [conv, helper.make_node("Relu", ["t"], ["y"])]
    data = ["n", weight[1] * attributes.get("group", 1), *dims]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def agree(model, channels, extents, config=None):
    """What one compiled model gives at all extents is what ONNX Runtime gives; the implementations of its kernels."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    module, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3, config=config or {}):
        library = relay.build(module, target="llvm", params=params)
    runner = graph_executor.GraphModule(library["default"](lathe.cpu(0)))
    rng = np.random.default_rng(5)
    for k, extent in enumerate(extents):
        x = rng.standard_normal((1 + k % 3, channels, *extent)).astype("float32")
        wanted = session.run(None, {"x": x})[0]
        runner.run(x=x)
        found = runner.get_output(0).numpy()
        assert found.shape == wanted.shape
        scale = np.abs(wanted).max() if wanted.size else 1
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * scale, err_msg=str(extent))
    return [node.impl for node in library.model.nodes()]


@pytest.mark.parametrize("name", CASES)
def test_any_extent(name):
    weight, attributes, extents = CASES[name]
    used = agree(model_of(weight, attributes), weight[1] * attributes.get("group", 1), extents)
    assert any(impl.startswith("conv") for impl in used), used


@pytest.mark.parametrize("name", ["3x3", "apart", "one_tap"])
def test_every_implementation(name, tmp_path):
    """A plan of each that serves the call."""
    attributes = {
        "3x3": {"pads": [1, 1, 1, 1]},
        "apart": {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        "one_tap": {},
    }[name]
    taps = 1 if name == "one_tap" else 3
    model = model_of((128, 16, taps, taps), attributes)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    listed = plans_of(path)
    workload = max(listed, key=lambda w: len(listed[w]))
    by_impl = {plan.split("{")[0]: plan for plan in listed[workload]}
    assert len(by_impl) > 1
    for impl, plan in by_impl.items():
        assert impl in agree(model, 16, PLANES, {"lathe.plans": f"{workload} {plan}\n"}), plan
