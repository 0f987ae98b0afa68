"""MobileNet (Howard et al., 2017): depthwise and pointwise convolutions in turn."""

from __future__ import annotations

from typing import Any, Tuple

from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload, deep

_BLOCKS = [
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
]


def _conv_block(x: Any, name: str, channels: int, kernel: int, stride: int, layout: str, groups: int = 1) -> Any:
    order = {"data_layout": layout, "kernel_layout": layers.kernel_layout(layout, groups > 1)}
    sizes = {"kernel_size": (kernel, kernel), "strides": (stride, stride), "padding": (kernel // 2, kernel // 2)}
    x = layers.conv2d(x, channels=channels, groups=groups, name=name + "_conv", **sizes, **order)
    return call_op("nn.relu", [layers.batch_norm_infer(x, epsilon=1e-5, axis=layout.index("C"), name=name + "_bn")])


def mobile_net(
    num_classes: int = 1000,
    data_shape: Tuple[int, ...] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The network; alpha scales the channels, a shallow one leaves the five blocks of 512 out."""
    layers.check_layout("mobilenet", layout)
    data = _expr.var("data", shape=data_shape, dtype=dtype)
    cin = int(32 * alpha)
    x = _conv_block(data, "conv_block_1", cin, 3, 2, layout)
    for i, (channels, stride) in enumerate(_BLOCKS, 1):
        if is_shallow and (channels, stride) == (512, 1):
            continue
        cout = int(channels * alpha)
        x = _conv_block(x, f"separable_conv_block_{i}_depthwise", cin, 3, stride, layout, groups=cin)
        x = _conv_block(x, f"separable_conv_block_{i}", cout, 1, 1, layout)
        cin = cout
    x = call_op("nn.batch_flatten", [call_op("nn.global_avg_pool2d", [x], layout=layout)])
    x = call_op("nn.softmax", [layers.dense_add_bias(x, units=num_classes, name="fc")])
    return layers.function(x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Any:
    """The network as a module, and weights for it; image_shape is (channels, height, width) in either layout."""
    layers.check_layout("mobilenet", layout)
    shape = layers.data_shape(batch_size, image_shape, layout)
    return create_workload(mobile_net(num_classes, shape, dtype, 1.0, False, layout), deep(layout))
