"""VGG (Simonyan and Zisserman, 2014): convolutions of 3 by 3 in five stages, three dense layers."""

from __future__ import annotations

from typing import Any, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from ..op.functions import dropout
from . import layers
from .init import create_workload, deep

_STAGES = {11: [1, 1, 2, 2, 2], 13: [2, 2, 2, 2, 2], 16: [2, 2, 3, 3, 3], 19: [2, 2, 4, 4, 4]}


def _stage(x: Any, number: int, convolutions: int, channels: int, batch_norm: bool) -> Any:
    for i in range(convolutions):
        name = f"conv{number}_{i + 1}"
        x = layers.conv_bias(x, channels=channels, kernel_size=(3, 3), padding=(1, 1), name=name)
        if batch_norm:
            x = layers.batch_norm_infer(x, name=f"bn{number}_{i + 1}")
        x = call_op("nn.relu", [x])
    return call_op("nn.max_pool2d", [x], pool_size=(2, 2), strides=(2, 2))


def get_net(
    batch_size: int,
    image_shape: Tuple[int, ...],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """A network of that many layers: 11, 13, 16 or 19."""
    if num_layers not in _STAGES:
        raise error.ArgumentError(
            f"relay.testing.vgg: {num_layers} layers are not known; known are {', '.join(map(str, _STAGES))}"
        )
    x = _expr.var("data", shape=(batch_size,) + tuple(image_shape), dtype=dtype)
    for i, (n, channels) in enumerate(zip(_STAGES[num_layers], (64, 128, 256, 512, 512)), 1):
        x = _stage(x, i, n, channels, batch_norm)
    x = call_op("nn.batch_flatten", [x])
    for name in ("fc6", "fc7"):
        x = dropout(call_op("nn.relu", [layers.dense_add_bias(x, units=4096, name=name)]), rate=0.5)
    x = call_op("nn.softmax", [layers.dense_add_bias(x, units=num_classes, name="fc8")])
    return layers.function(x)


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm), deep())
