"""DenseNet (Huang et al., 2016): each layer sees the outputs of all before it in its block."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload, deep

_SIZES = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


def _conv(x: Any, channels: int, kernel: int, name: str, stride: int = 1) -> Any:
    return layers.conv2d(
        x,
        channels=channels,
        kernel_size=(kernel, kernel),
        strides=(stride, stride),
        padding=(kernel // 2, kernel // 2),
        name=name,
    )


def _act(x: Any, name: str) -> Any:
    return call_op("nn.relu", [layers.batch_norm_infer(x, epsilon=1e-5, name=name)])


def _layer(x: Any, growth: int, bn_size: int, name: str) -> Any:
    y = _conv(_act(x, name + "_bn1"), bn_size * growth, 1, name + "_conv1")
    y = _conv(_act(y, name + "_bn2"), growth, 3, name + "_conv2")
    return call_op("concatenate", [_expr.Tuple([x, y])], axis=1)


def dense_net(
    features: int,
    growth: int,
    blocks: Sequence[int],
    data_shape: Tuple[int, ...],
    dtype: str,
    bn_size: int = 4,
    classes: int = 1000,
) -> Function:
    """Blocks with transitions that halve channels and sizes between them."""
    x = _expr.var("data", shape=data_shape, dtype=dtype)
    x = _act(_conv(x, features, 7, "conv1", 2), "batch1")
    x = call_op("nn.max_pool2d", [x], pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for i, n in enumerate(blocks, 1):
        for j in range(n):
            x = _layer(x, growth, bn_size, f"block{i}_layer{j + 1}")
        features += n * growth
        if i < len(blocks):
            features //= 2
            x = _conv(_act(x, f"transition{i}_bn"), features, 1, f"transition{i}_conv")
            x = call_op("nn.avg_pool2d", [x], pool_size=(2, 2), strides=(2, 2))
    x = call_op("nn.global_avg_pool2d", [_act(x, "batch5")])
    return layers.function(layers.dense_add_bias(call_op("nn.batch_flatten", [x]), units=classes, name="dense1"))


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: Tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Any:
    """The network of 121, 161, 169 or 201 layers as a module, and weights for it."""
    if densenet_size not in _SIZES:
        raise error.ArgumentError(
            f"relay.testing.densenet: {densenet_size} layers are not known; known are {', '.join(map(str, _SIZES))}"
        )
    features, growth, blocks = _SIZES[densenet_size]
    return create_workload(
        dense_net(features, growth, blocks, (batch_size,) + tuple(image_shape), dtype, classes=classes), deep()
    )
