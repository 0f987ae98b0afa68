"""SqueezeNet (Iandola et al., 2016): fire modules, which squeeze by 1 by 1 and expand by both sizes."""

from __future__ import annotations

from typing import Any, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from ..op.functions import dropout
from . import layers
from .init import create_workload, deep

_FIRES = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]
_POOLS = {"1.0": (0, 3, 7), "1.1": (0, 2, 4)}  # a pool stands before these fires


def _conv(x: Any, channels: int, kernel: int, padding: int, name: str, stride: int = 1) -> Any:
    sizes = {"kernel_size": (kernel, kernel), "strides": (stride, stride), "padding": (padding, padding)}
    return call_op("nn.relu", [layers.conv_bias(x, channels=channels, name=name, **sizes)])


def _fire(x: Any, squeeze: int, expand: int, name: str) -> Any:
    x = _conv(x, squeeze, 1, 0, f"{name}_squeeze")
    return call_op(
        "concatenate",
        [_expr.Tuple([_conv(x, expand, 1, 0, f"{name}_left"), _conv(x, expand, 3, 1, f"{name}_right")])],
        axis=1,
    )


def get_net(batch_size: int, image_shape: Tuple[int, ...], num_classes: int, version: str, dtype: str) -> Function:
    """Version 1.0 or 1.1."""
    if version not in _POOLS:
        raise error.ArgumentError(
            f"relay.testing.squeezenet: version '{version}' is not known; known are {', '.join(_POOLS)}"
        )
    x = _expr.var("data", shape=(batch_size,) + tuple(image_shape), dtype=dtype)
    x = _conv(x, 96, 7, 3, "conv1", 2) if version == "1.0" else _conv(x, 64, 3, 1, "conv1", 2)
    for i, (squeeze, expand) in enumerate(_FIRES):
        if i in _POOLS[version]:
            x = call_op("nn.max_pool2d", [x], pool_size=(3, 3), strides=(2, 2))
        x = _fire(x, squeeze, expand, f"fire{i + 2}")
    x = dropout(x, rate=0.5)
    x = _conv(x, num_classes, 1, 0, "conv_final")
    x = call_op("nn.batch_flatten", [call_op("nn.global_avg_pool2d", [x])])
    return layers.function(call_op("nn.softmax", [x]))


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: Tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype), deep())
