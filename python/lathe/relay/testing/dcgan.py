"""The generator of DCGAN (Radford et al., 2015): from random numbers to an image by transposed convolutions."""

from __future__ import annotations

from typing import Any, Tuple

from ... import error
from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload, he


def _up(x: Any, channels: int, name: str, last: bool = False) -> Any:
    t = x.checked_type
    weight = _expr.var(f"{name}_weight", shape=(t.shape[1], channels, 4, 4), dtype=t.dtype)
    x = call_op("nn.conv2d_transpose", [x, weight], channels=channels, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1))
    return call_op("tanh", [x]) if last else call_op("nn.relu", [layers.batch_norm_infer(x, epsilon=1e-5, scale=False, name=f"{name}_batch_norm")])


def get_net(batch_size: int, random_len: int = 100, oshape: Tuple[int, ...] = (3, 64, 64), ngf: int = 128, layout: str = "NCHW", dtype: str = "float32") -> Function:
    """An image of 64 by 64."""
    if layout != "NCHW" or tuple(oshape[1:]) != (64, 64):
        raise error.UnsupportedError("relay.testing.dcgan: images are (channels, 64, 64), in NCHW; use relay.transform.ConvertLayout")
    data = _expr.var("data", shape=(batch_size, random_len), dtype=dtype)
    weight = _expr.var("dense_weight", shape=(4 * 4 * ngf * 8, random_len), dtype=dtype)
    x = call_op("reshape", [call_op("nn.relu", [call_op("nn.dense", [data, weight])])], newshape=(-1, ngf * 8, 4, 4))
    for i, channels in enumerate((ngf * 4, ngf * 2, ngf)):
        x = _up(x, channels, f"g{i + 2}")
    return layers.function(_up(x, oshape[0], "g5", last=True))


def get_workload(batch_size: int, oshape: Tuple[int, ...] = (3, 64, 64), ngf: int = 128, random_len: int = 100, layout: str = "NCHW", dtype: str = "float32") -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, layout, dtype), he)
