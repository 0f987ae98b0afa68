"""Residual networks (He et al., 2015; the arrangement of 2016 with normalisation before each
convolution)."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload

_UNITS = {18: ([2, 2, 2, 2], False), 34: ([3, 4, 6, 3], False), 50: ([3, 4, 6, 3], True), 101: ([3, 4, 23, 3], True), 152: ([3, 8, 36, 3], True)}


def _act(x: Any, name: str) -> Any:
    return call_op("nn.relu", [layers.batch_norm_infer(x, epsilon=2e-5, name=name)])


def _conv(x: Any, channels: int, kernel: int, stride: int, name: str) -> Any:
    return layers.conv2d(x, channels=channels, kernel_size=(kernel, kernel), strides=(stride, stride), padding=(kernel // 2, kernel // 2), name=name)


def residual_unit(data: Any, num_filter: int, stride: int, dim_match: bool, name: str, bottle_neck: bool) -> Any:
    """Convolutions and a way around them."""
    act = _act(data, name + "_bn1")
    if bottle_neck:
        x = _conv(act, num_filter // 4, 1, stride, name + "_conv1")
        x = _conv(_act(x, name + "_bn2"), num_filter // 4, 3, 1, name + "_conv2")
        x = _conv(_act(x, name + "_bn3"), num_filter, 1, 1, name + "_conv3")
    else:
        x = _conv(act, num_filter, 3, stride, name + "_conv1")
        x = _conv(_act(x, name + "_bn2"), num_filter, 3, 1, name + "_conv2")
    return call_op("add", [x, data if dim_match else _conv(act, num_filter, 1, stride, name + "_sc")])


def resnet(units: Sequence[int], filters: Sequence[int], num_classes: int, data_shape: Tuple[int, ...], bottle_neck: bool, dtype: str) -> Function:
    """A network of four stages."""
    data = _expr.var("data", shape=data_shape, dtype=dtype)
    x = layers.batch_norm_infer(data, epsilon=2e-5, name="bn_data")
    if data_shape[2] <= 32:
        x = _conv(x, filters[0], 3, 1, "conv0")
    else:
        x = _act(_conv(x, filters[0], 7, 2, "conv0"), "bn0")
        x = call_op("nn.max_pool2d", [x], pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for i, n in enumerate(units):
        for j in range(n):
            x = residual_unit(x, filters[i + 1], 2 if i and not j else 1, j > 0, f"stage{i + 1}_unit{j + 1}", bottle_neck)
    x = call_op("nn.global_avg_pool2d", [_act(x, "bn1")])
    x = layers.dense_add_bias(call_op("nn.batch_flatten", [x]), num_classes, name="fc1")
    x = call_op("nn.softmax", [x])
    from ..analysis import free_vars

    return Function(free_vars(x), x)


def get_net(batch_size: int, num_classes: int, num_layers: int = 18, image_shape: Tuple[int, ...] = (3, 224, 224), layout: str = "NCHW", dtype: str = "float32", **kwargs: Any) -> Function:
    """A network of that many layers: 18, 34, 50, 101 or 152."""
    if layout != "NCHW":
        raise error.UnsupportedError(f"relay.testing.resnet: layout '{layout}' is not there; build in NCHW and use relay.transform.ConvertLayout")
    if num_layers not in _UNITS:
        raise error.ArgumentError(f"relay.testing.resnet: {num_layers} layers are not known; known are {', '.join(map(str, _UNITS))}")
    units, neck = _UNITS[num_layers]
    filters = [64, 256, 512, 1024, 2048] if neck else [64, 64, 128, 256, 512]
    return resnet(units, filters, num_classes, (batch_size,) + tuple(image_shape), neck, dtype)


def get_workload(batch_size: int = 1, num_classes: int = 1000, num_layers: int = 18, image_shape: Tuple[int, ...] = (3, 224, 224), layout: str = "NCHW", dtype: str = "float32", **kwargs: Any) -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
