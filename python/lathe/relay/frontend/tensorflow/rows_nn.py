"""Rows for convolutions, pools, normalization and images."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np

from ...expr import RelayExpr
from .graph import Node, dt, expr, ints, like, op, rank, refuse, row, sizes

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
KERNELS = {2: "HWIO", 3: "DHWIO"}


def _front(n: Node) -> bool:
    """Are channels in front?"""
    return n.s("data_format", "NHWC").startswith("NC")


def _spatial(n: Node, values: List[int]) -> List[int]:
    return values[2:] if _front(n) else values[1:-1]


def _padding(n: Node, x: Any, window: List[int], strides: List[int], dilation: List[int]) -> List[int]:
    """What goes before each axis, then what goes behind."""
    how = n.s("padding")
    if how == "EXPLICIT":
        pairs = _spatial(n, list(zip(*[iter(n.ints("explicit_paddings"))] * 2)))  # type: ignore[arg-type]
        return [p[0] for p in pairs] + [p[1] for p in pairs]  # type: ignore[index]
    if how == "VALID":
        return [0] * (2 * len(window))
    total = []
    for d, k, s, dil in zip(_spatial(n, sizes(x)), window, strides, dilation):
        total.append(max((-(-d // s) - 1) * s + (k - 1) * dil + 1 - d, 0))
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def _geometry(n: Node, x: Any, window: List[int]) -> Tuple[List[int], List[int], List[int]]:
    dims = len(window)
    strides = _spatial(n, n.ints("strides")) or [1] * dims
    dilation = _spatial(n, n.ints("dilations")) or [1] * dims
    return strides, dilation, _padding(n, x, window, strides, dilation)


@row("Conv2D", "Conv3D")
def _conv(n: Node, x: Any, weight: Any) -> RelayExpr:
    shape = sizes(weight)
    dims = len(shape) - 2
    strides, dilation, padding = _geometry(n, x, shape[:dims])
    channels = sizes(x)[1 if _front(n) else -1]
    return op(f"nn.conv{dims}d", x, weight, strides=strides, dilation=dilation, padding=padding,
              groups=channels // shape[-2], channels=shape[-1], kernel_size=shape[:dims],
              data_layout=LAYOUTS[dims][0 if _front(n) else 1], kernel_layout=KERNELS[dims])  # fmt: skip


@row("DepthwiseConv2dNative")
def _depthwise(n: Node, x: Any, weight: Any) -> RelayExpr:
    h, w, channels, each = sizes(weight)
    strides, dilation, padding = _geometry(n, x, [h, w])
    kernel = op("reshape", weight, newshape=[h, w, 1, channels * each])
    if isinstance(weight, np.ndarray):
        kernel = expr(weight.reshape(h, w, 1, channels * each))
    return op("nn.conv2d", x, kernel, strides=strides, dilation=dilation, padding=padding, groups=channels,
              channels=channels * each, kernel_size=[h, w], data_layout=LAYOUTS[2][0 if _front(n) else 1],
              kernel_layout="HWIO")  # fmt: skip


@row("Conv2DBackpropInput")
def _conv_transpose(n: Node, input_sizes: Any, weight: Any, x: Any) -> RelayExpr:
    """The size of the result is given; what the strides leave of it is padding of the output."""
    if _front(n) or any(d != 1 for d in n.ints("dilations")):
        return refuse("channels in front, or dilation")
    out = ints(input_sizes, "sizes")
    kh, kw, channels, _ = sizes(weight)
    strides, here, there = _spatial(n, n.ints("strides")), sizes(x)[1:3], out[1:3]
    full = [(d - 1) * s + k for d, s, k in zip(here, strides, (kh, kw))]
    over = [max(f - t, 0) if n.s("padding") == "SAME" else 0 for f, t in zip(full, there)]
    before, behind = [o // 2 for o in over], [o - o // 2 for o in over]
    more = [t - (f - o) for t, f, o in zip(there, full, over)]
    made = op("nn.conv2d_transpose", op("transpose", x, axes=[0, 3, 1, 2]), op("transpose", weight, axes=[3, 2, 0, 1]),
              strides=strides, padding=before + behind, output_padding=more, channels=channels,
              kernel_size=[kh, kw])  # fmt: skip
    return op("transpose", made, axes=[0, 2, 3, 1])


@row("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def _pool(n: Node, x: Any) -> RelayExpr:
    dims = rank(x) - 2
    window = _spatial(n, n.ints("ksize"))
    strides, _, padding = _geometry(n, x, window)
    name = f"nn.{'max' if n.op.startswith('Max') else 'avg'}_pool{dims}d"
    more = {} if n.op.startswith("Max") else {"count_include_pad": False}
    layout = LAYOUTS[dims][0 if _front(n) else 1]
    return op(name, x, pool_size=window, strides=strides, padding=padding, layout=layout, **more)


@row("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _batch_norm(n: Node, x: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> List[Any]:
    if n.has("is_training") and n.b("is_training"):
        return refuse("a normalization that is training")
    axis = 1 if _front(n) else rank(x) - 1
    args = [expr(a) for a in (x, gamma, beta, mean, variance)]
    made = op("nn.batch_norm", *args, axis=axis, epsilon=n.f("epsilon", 1e-4))
    return [made[0], mean, variance]


@row("LRN")
def _lrn(n: Node, x: Any) -> RelayExpr:
    size = 2 * n.i("depth_radius", 5) + 1
    return op("nn.lrn", x, size=size, axis=3, bias=n.f("bias", 1.0), alpha=n.f("alpha", 1.0) * size,
              beta=n.f("beta", 0.5))  # fmt: skip


@row("ResizeBilinear", "ResizeNearestNeighbor")
def _resize(n: Node, x: Any, size: Any) -> RelayExpr:
    linear = n.op == "ResizeBilinear"
    where = "align_corners" if n.b("align_corners") else "half_pixel" if n.b("half_pixel_centers") else "asymmetric"
    rounding = {"align_corners": "round", "half_pixel": "round_prefer_ceil", "asymmetric": "floor"}[where]
    if linear and dt(x) != "float32":
        x = op("cast", x, dtype="float32")
    return op("image.resize2d", x, size=ints(size, "a size"), layout="NHWC",
              method="linear" if linear else "nearest_neighbor",
              coordinate_transformation_mode=where, rounding_method="" if linear else rounding)  # fmt: skip


@row("L2Loss")
def _l2_loss(n: Node, x: Any) -> RelayExpr:
    return op("multiply", op("sum", op("multiply", x, x)), like(0.5, x))
