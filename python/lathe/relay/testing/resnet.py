"""Residual networks (He et al., 2015; the arrangement of 2016 with normalisation before each
convolution)."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import Xavier, create_workload

_UNITS = {
    18: [2, 2, 2, 2],
    34: [3, 4, 6, 3],
    50: [3, 4, 6, 3],
    101: [3, 4, 23, 3],
    152: [3, 8, 36, 3],
    200: [3, 24, 36, 3],
    269: [3, 30, 48, 8],
}


def _act(x: Any, name: str, layout: str) -> Any:
    return call_op("nn.relu", [layers.batch_norm_infer(x, epsilon=2e-5, axis=layout.index("C"), name=name)])


def _conv(x: Any, channels: int, kernel: int, stride: int, name: str, layout: str) -> Any:
    order = {"data_layout": layout, "kernel_layout": layers.kernel_layout(layout)}
    sizes = {"kernel_size": (kernel, kernel), "strides": (stride, stride), "padding": (kernel // 2, kernel // 2)}
    return layers.conv2d(x, channels=channels, name=name, **sizes, **order)


def residual_unit(
    data: Any,
    num_filter: int,
    stride: Any,
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> Any:
    """Convolutions and a way around them."""
    stride = stride if isinstance(stride, int) else stride[0]
    act = _act(data, name + "_bn1", data_layout)
    if bottle_neck:
        x = _conv(act, num_filter // 4, 1, stride, name + "_conv1", data_layout)
        x = _conv(_act(x, name + "_bn2", data_layout), num_filter // 4, 3, 1, name + "_conv2", data_layout)
        x = _conv(_act(x, name + "_bn3", data_layout), num_filter, 1, 1, name + "_conv3", data_layout)
    else:
        x = _conv(act, num_filter, 3, stride, name + "_conv1", data_layout)
        x = _conv(_act(x, name + "_bn2", data_layout), num_filter, 3, 1, name + "_conv2", data_layout)
    return call_op("add", [x, data if dim_match else _conv(act, num_filter, 1, stride, name + "_sc", data_layout)])


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: Tuple[int, ...],
    bottle_neck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """A network of so many stages of so many units; images of up to 32 by 32 keep their size at first."""
    data = _expr.var("data", shape=data_shape, dtype=dtype)
    x = layers.batch_norm_infer(data, epsilon=2e-5, scale=False, axis=layout.index("C"), name="bn_data")
    if data_shape[layout.index("H")] <= 32:
        x = _conv(x, filter_list[0], 3, 1, "conv0", layout)
    else:
        x = _act(_conv(x, filter_list[0], 7, 2, "conv0", layout), "bn0", layout)
        x = call_op("nn.max_pool2d", [x], pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for i in range(num_stages):
        for j in range(units[i]):
            name = f"stage{i + 1}_unit{j + 1}"
            x = residual_unit(x, filter_list[i + 1], 2 if i and not j else 1, j > 0, name, bottle_neck, layout)
    x = call_op("nn.global_avg_pool2d", [_act(x, "bn1", layout)], layout=layout)
    x = layers.dense_add_bias(call_op("nn.batch_flatten", [x]), units=num_classes, name="fc1")
    return layers.function(call_op("nn.softmax", [x]))


def _arrangement(num_layers: int, height: int) -> Tuple[Sequence[int], Sequence[int], bool]:
    """Units of each stage, channels, and whether a unit has a bottle neck: three stages for images of up to 28 by 28,
    four for larger ones."""
    if height <= 28 and num_layers >= 164 and (num_layers - 2) % 9 == 0:
        return [(num_layers - 2) // 9] * 3, [16, 64, 128, 256], True
    if height <= 28 and num_layers < 164 and (num_layers - 2) % 6 == 0:
        return [(num_layers - 2) // 6] * 3, [16, 16, 32, 64], False
    if height <= 28 or num_layers not in _UNITS:
        known = "6n + 2 below 164 and 9n + 2 above" if height <= 28 else ", ".join(map(str, _UNITS))
        raise error.ArgumentError(
            f"relay.testing.resnet: {num_layers} layers are not known for images of height {height}; known are {known}"
        )
    neck = num_layers >= 50
    return _UNITS[num_layers], [64, 256, 512, 1024, 2048] if neck else [64, 64, 128, 256, 512], neck


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> Function:
    """A network of that many layers: 18, 34, 50, 101, 152, 200 or 269; for small images 6n + 2 or 9n + 2.
    image_shape is as the layout says."""
    layers.check_layout("resnet", layout)
    units, filters, neck = _arrangement(num_layers, image_shape[layout.index("H") - 1])
    return resnet(units, len(units), filters, num_classes, (batch_size,) + tuple(image_shape), neck, layout, dtype)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> Any:
    """The network as a module, and weights for it."""
    net = get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs)
    return create_workload(net, Xavier(data_layout=layout))
