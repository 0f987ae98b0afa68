"""The network of deep Q-learning (Mnih et al., 2015): four frames of a game to the value of each action."""

from __future__ import annotations

from typing import Any, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload, he


def get_net(batch_size: int, num_actions: int = 18, image_shape: Tuple[int, ...] = (4, 84, 84), dtype: str = "float32", layout: str = "NCHW") -> Function:
    """Three convolutions and two dense layers."""
    if layout != "NCHW":
        raise error.UnsupportedError(f"relay.testing.dqn: layout '{layout}' is not there; build in NCHW and use relay.transform.ConvertLayout")
    x = _expr.var("data", shape=(batch_size,) + tuple(image_shape), dtype=dtype)
    for i, (channels, kernel, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        x = layers.conv2d(x, channels=channels, kernel_size=(kernel, kernel), strides=(stride, stride), name=f"conv{i}")
        x = call_op("nn.bias_add", [x, _expr.var(f"conv{i}_bias", shape=(channels,), dtype=dtype)], axis=1)
        x = call_op("nn.relu", [x])
    x = call_op("nn.relu", [layers.dense_add_bias(call_op("nn.batch_flatten", [x]), 512, name="dense1")])
    return layers.function(layers.dense_add_bias(x, num_actions, name="dense2"))


def get_workload(batch_size: int, num_actions: int = 18, image_shape: Tuple[int, ...] = (4, 84, 84), dtype: str = "float32", layout: str = "NCHW") -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype, layout), he)
