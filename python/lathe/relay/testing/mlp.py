"""A small perceptron."""

from __future__ import annotations

from typing import Any, Tuple

from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: Tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> Function:
    """Two hidden layers of 128 and 64, and softmax."""
    data = _expr.var("data", shape=(batch_size,) + tuple(image_shape), dtype=dtype)
    x = call_op("nn.batch_flatten", [data])
    x = call_op("nn.relu", [layers.dense_add_bias(x, units=128, name="fc1")])
    x = call_op("nn.relu", [layers.dense_add_bias(x, units=64, name="fc2")])
    x = call_op("nn.softmax", [layers.dense_add_bias(x, units=num_classes, name="fc3")])
    return layers.function(x)


def get_workload(
    batch_size: int = 1, num_classes: int = 10, image_shape: Tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
