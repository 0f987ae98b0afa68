#!/usr/bin/env python3
"""ResNet-18 as an ONNX file, with weights that are the same every time.

usage: python examples/resnet18.py OUT.onnx       (needs numpy and onnx)

The batch normalisations are kept as nodes, as a training framework writes them; the weights
are drawn from a fixed seed and scaled so that activations keep their size."""

import sys
from typing import Any, List, Sequence, Union

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, seed: int = 0) -> None:
        self.rng, self.count = np.random.default_rng(seed), 0
        self.nodes: List[onnx.NodeProto] = []
        self.weights: List[onnx.TensorProto] = []

    def weight(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value, "float32"), name))
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attrs))
        return name

    def conv_norm(self, x: str, name: str, cin: int, cout: int, kernel: int, stride: int) -> str:
        w = self.weight(
            f"{name}.weight", self.rng.normal(0, np.sqrt(2 / (cin * kernel * kernel)), (cout, cin, kernel, kernel))
        )
        pad = kernel // 2
        y = self.node(
            "Conv", [x, w], f"{name}.conv", kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4
        )
        stats = {
            "gamma": self.rng.uniform(0.5, 1.0, cout),
            "beta": self.rng.normal(0, 0.1, cout),
            "mean": self.rng.normal(0, 0.1, cout),
            "var": self.rng.uniform(0.5, 1.5, cout),
        }
        return self.node(
            "BatchNormalization",
            [y] + [self.weight(f"{name}.{k}", v) for k, v in stats.items()],
            f"{name}.norm",
            epsilon=1e-5,
        )

    def block(self, x: str, name: str, cin: int, cout: int, stride: int) -> str:
        y = self.node("Relu", [self.conv_norm(x, f"{name}.1", cin, cout, 3, stride)], f"{name}.relu1")
        y = self.conv_norm(y, f"{name}.2", cout, cout, 3, 1)
        if stride != 1 or cin != cout:
            x = self.conv_norm(x, f"{name}.down", cin, cout, 1, stride)
        return self.node("Relu", [self.node("Add", [y, x], f"{name}.add")], f"{name}.relu2")


def model(batch: Union[int, str] = "batch", size: int = 224, classes: int = 1000, width: int = 64) -> onnx.ModelProto:
    """The network as an onnx.ModelProto."""
    b = Builder()
    x = b.node("Relu", [b.conv_norm("input", "stem", 3, width, 7, 2)], "stem.relu")
    x = b.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = width
    for stage, (cout, stride) in enumerate([(width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)], 1):
        for i in range(2):
            x = b.block(x, f"layer{stage}.{i}", cin, cout, stride if i == 0 else 1)
            cin = cout
    x = b.node("Flatten", [b.node("GlobalAveragePool", [x], "pool")], "flat")
    w, bias = b.weight("fc.weight", b.rng.normal(0, 0.05, (classes, cin))), b.weight(
        "fc.bias", b.rng.normal(0, 0.05, classes)
    )
    b.node("Gemm", [x, w, bias], "output", transB=1)
    graph = helper.make_graph(
        b.nodes, "resnet18", [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, size, size])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, classes])], b.weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="examples/resnet18.py"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    onnx.save(model(), sys.argv[1])
