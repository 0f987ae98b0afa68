"""The network of deep Q-learning (Mnih et al., 2015): four frames of a game to the value of each action."""

from __future__ import annotations

from typing import Any, Tuple

from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload, deep


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: Tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """Three convolutions and two dense layers; image_shape is (channels, height, width) in either layout."""
    layers.check_layout("dqn", layout)
    x = _expr.var("data", shape=layers.data_shape(batch_size, image_shape, layout), dtype=dtype)
    order = {"data_layout": layout, "kernel_layout": layers.kernel_layout(layout)}
    for i, (channels, kernel, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        sizes = {"channels": channels, "kernel_size": (kernel, kernel), "strides": (stride, stride)}
        x = call_op("nn.relu", [layers.conv_bias(x, layout.index("C"), name=f"conv{i}", **sizes, **order)])
    x = call_op("nn.relu", [layers.dense_add_bias(call_op("nn.batch_flatten", [x]), units=512, name="dense1")])
    return layers.function(layers.dense_add_bias(x, units=num_actions, name="dense2"))


def get_workload(
    batch_size: int,
    num_actions: int = 18,
    image_shape: Tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype, layout), deep(layout))
