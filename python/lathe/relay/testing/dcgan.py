"""The generator of DCGAN (Radford et al., 2015): from random numbers to an image by transposed convolutions."""

from __future__ import annotations

from typing import Any, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload, deep


def _up(x: Any, channels: int, name: str, layout: str, last: bool = False) -> Any:
    order = {"data_layout": layout, "kernel_layout": "IOHW" if layout == "NCHW" else "HWOI"}
    sizes = {"channels": channels, "kernel_size": (4, 4), "strides": (2, 2), "padding": (1, 1)}
    x = layers.conv2d_transpose(x, name=name, **sizes, **order)
    if last:
        return call_op("tanh", [x])
    x = layers.batch_norm_infer(x, epsilon=1e-5, scale=False, axis=layout.index("C"), name=f"{name}_batch_norm")
    return call_op("nn.relu", [x])


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: Tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    code: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """An image of 64 by 64; oshape is (channels, 64, 64) in either layout.  code: the random numbers, if they are
    computed."""
    layers.check_layout("dcgan", layout)
    if tuple(oshape[1:]) != (64, 64):
        raise error.UnsupportedError(f"relay.testing.dcgan: images are (channels, 64, 64), not {tuple(oshape)}")
    data = _expr.var("data", shape=(batch_size, random_len), dtype=dtype) if code is None else code
    x = call_op("nn.relu", [call_op("nn.dense", [data, _expr.var("dense_weight")], units=4 * 4 * ngf * 8)])
    x = call_op("reshape", [x], newshape=layers.data_shape(-1, (ngf * 8, 4, 4), layout))
    for i, channels in enumerate((ngf * 4, ngf * 2, ngf)):
        x = _up(x, channels, f"g{i + 2}", layout)
    return layers.function(_up(x, oshape[0], "g5", layout, last=True))


def get_workload(
    batch_size: int,
    oshape: Tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, layout=layout, dtype=dtype), deep())
