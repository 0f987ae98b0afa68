"""Rows for convolutions, pools, normalization and images."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np

from ...expr import RelayExpr
from ..values import dt, expr, like, op, rank, refuse, sizes
from .graph import row
from .program import Op
from .rows_shape import ints

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def _front(n: Op) -> bool:
    """Are channels in front?"""
    return n.get("data_format", "NCHW") in ("NCHW", "NCDHW", "NCL", "AnyLayout")


def _padding(n: Op, given: List[int], here: List[int], window: List[int], strides: List[int]) -> List[int]:
    """What goes before each axis, then what goes behind; the file has one number or a pair for each."""
    how, dims = n.get("padding_algorithm", "EXPLICIT"), len(window)
    if how == "VALID":
        return [0] * (2 * dims)
    if how == "SAME":
        total = [max((-(-d // s) - 1) * s + k - d, 0) for d, k, s in zip(here, window, strides)]
        return [t // 2 for t in total] + [t - t // 2 for t in total]
    if len(given) == 2 * dims:
        return [given[2 * i] for i in range(dims)] + [given[2 * i + 1] for i in range(dims)]
    return list(given) * 2 if len(given) == dims else [given[0]] * (2 * dims)


def _conv_attrs(n: Op, x: Any, weight: Any) -> Tuple[int, Any]:
    kernel = sizes(weight)
    dims = len(kernel) - 2
    here = sizes(x)[2:] if _front(n) else sizes(x)[1:-1]
    strides, dilation = list(n.get("strides", [1] * dims)), list(n.get("dilations", [1] * dims))
    if n.get("padding_algorithm", "EXPLICIT") == "SAME":
        dilation = [1] * dims  # as Paddle computes it
    return dims, {
        "strides": strides, "dilation": dilation, "groups": n.get("groups", 1), "kernel_size": kernel[2:],
        "padding": _padding(n, n.get("paddings", [0] * dims), here, kernel[2:], strides),
    }  # fmt: skip


@row("conv2d", "depthwise_conv2d", "conv3d")
def _conv(n: Op, x: Any, weight: Any) -> RelayExpr:
    dims, attrs = _conv_attrs(n, x, weight)
    return op(f"nn.conv{dims}d", x, weight, channels=sizes(weight)[0], data_layout=LAYOUTS[dims][0 if _front(n) else 1],
              kernel_layout="OIHW" if dims == 2 else "OIDHW", **attrs)  # fmt: skip


@row("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def _conv_transpose(n: Op, x: Any, weight: Any, size: Any = None) -> RelayExpr:
    if not _front(n):
        return refuse("channels behind")
    dims, attrs = _conv_attrs(n, x, weight)
    more = list(n.get("output_padding", [])) or [0] * dims
    wanted = ints(size, "a size") if size is not None else []
    if wanted:
        pads = attrs["padding"]
        reach = [(k - 1) * d + 1 for k, d in zip(attrs["kernel_size"], attrs["dilation"])]
        edges = [a + b for a, b in zip(pads[:dims], pads[dims:])]
        full = [(d - 1) * s + r - e for d, s, r, e in zip(sizes(x)[2:], attrs["strides"], reach, edges)]
        more = [w - f for w, f in zip(wanted, full)]
    return op(f"nn.conv{dims}d_transpose", x, weight, channels=sizes(weight)[1] * attrs["groups"], output_padding=more,
              **attrs)  # fmt: skip


# ---- pools


@row("pool2d", "pool3d", "max_pool2d_with_index", "max_pool3d_with_index", "lp_pool2d")
def _pool(n: Op, x: Any, window: Any = None) -> Any:
    dims = rank(x) - 2
    kind = "max" if "max" in n.name else n.get("pooling_type", "max")
    if n.name == "lp_pool2d":
        return refuse("a norm over windows")
    size = ints(window, "a window") if window is not None else list(n.get("kernel_size", n.get("ksize", [])))
    layout = LAYOUTS[dims][0 if _front(n) else 1]
    if n.get("global_pooling", False) or (n.get("adaptive", False) and set(size) == {1}):
        made = op(f"nn.adaptive_{kind}_pool{dims}d", x, output_size=[1] * dims, layout=layout)
    elif n.get("adaptive", False):
        made = op(f"nn.adaptive_{kind}_pool{dims}d", x, output_size=size, layout=layout)
    else:
        here = sizes(x)[2:] if _front(n) else sizes(x)[1:-1]
        strides = list(n.get("strides", size))
        padding = _padding(n, n.get("paddings", [0] * dims), here, size, strides)
        more = {} if kind == "max" else {"count_include_pad": not n.get("exclusive", True)}
        made = op(f"nn.{kind}_pool{dims}d", x, pool_size=size, strides=strides, padding=padding, layout=layout,
                  ceil_mode=n.get("ceil_mode", False), **more)  # fmt: skip
    return (made,)


# ---- normalization


@row("batch_norm", "batch_norm_", "sync_batch_norm_")
def _batch_norm(n: Op, x: Any, mean: Any, variance: Any, gamma: Any = None, beta: Any = None) -> Any:
    if not (n.get("is_test", False) or n.get("use_global_stats", False)):
        return refuse("training; save the model behind layer.eval()")
    axis = 1 if _front(n) or rank(x) == 2 else rank(x) - 1
    channels = sizes(x)[axis]
    gamma, beta = _scale_and_shift(gamma, beta, [channels], dt(mean))
    made = op("nn.batch_norm", x, gamma, beta, mean, variance, axis=axis, epsilon=n.get("epsilon", 1e-5))
    return made[0], mean, variance


def _scale_and_shift(gamma: Any, beta: Any, shape: List[int], dtype: str) -> Tuple[Any, Any]:
    """Ones and zeros for what is absent."""
    return (np.ones(shape, dtype) if gamma is None else gamma), (np.zeros(shape, dtype) if beta is None else beta)


@row("layer_norm")
def _layer_norm(n: Op, x: Any, gamma: Any = None, beta: Any = None) -> Any:
    """Over all axes from one on; the parameters are flat."""
    shape, first = sizes(x), n.get("begin_norm_axis", 1)
    count = int(np.prod(shape[first:], dtype=int))
    gamma, beta = _scale_and_shift(gamma, beta, [count], dt(x))
    flat = op("reshape", x, newshape=[*shape[:first], count])
    made = op("nn.layer_norm", flat, *(op("reshape", v, newshape=[count]) for v in (gamma, beta)), axis=-1,
              epsilon=n.get("epsilon", 1e-5))  # fmt: skip
    return (op("reshape", made, newshape=shape),)


@row("group_norm")
def _group_norm(n: Op, x: Any, gamma: Any = None, beta: Any = None) -> Any:
    axis = 1 if _front(n) else rank(x) - 1
    gamma, beta = _scale_and_shift(gamma, beta, [sizes(x)[axis]], dt(x))
    order = [0, rank(x) - 1, *range(1, rank(x) - 1)]
    data = x if _front(n) else op("transpose", x, axes=order)
    made = op("nn.group_norm", data, gamma, beta, num_groups=n.get("groups", 1), axis=1, epsilon=n.get("epsilon", 1e-5))
    return (made if _front(n) else op("transpose", made, axes=[order.index(i) for i in range(rank(x))]),)


@row("instance_norm")
def _instance_norm(n: Op, x: Any, gamma: Any = None, beta: Any = None) -> Any:
    gamma, beta = _scale_and_shift(gamma, beta, [sizes(x)[1]], dt(x))
    return (op("nn.instance_norm", x, gamma, beta, axis=1, epsilon=n.get("epsilon", 1e-5)),)


@row("rms_norm")
def _rms_norm(n: Op, x: Any, _bias: Any = None, _residual: Any = None, gamma: Any = None, beta: Any = None) -> Any:
    if _bias is not None or _residual is not None:
        return refuse("a bias or a residual that is added first")
    axes = list(range(n.get("begin_norm_axis", rank(x) - 1) % rank(x), rank(x)))
    mean = op("mean", op("multiply", x, x), axis=axes, keepdims=True)
    made = op("multiply", x, op("rsqrt", op("add", mean, like(n.get("epsilon", 1e-6), x))))
    made = made if gamma is None else op("multiply", made, gamma)
    return (made if beta is None else op("add", made, beta),)


# ---- images


@row("bilinear_interp", "nearest_interp", "bicubic_interp", "linear_interp", "trilinear_interp")
def _interp(n: Op, x: Any, out_size: Any = None, size_list: Any = None, scale: Any = None) -> RelayExpr:
    dims = rank(x) - 2
    here = sizes(x)[2:] if _front(n) else sizes(x)[1:-1]
    size = [n.get(name, -1) for name in ("out_d", "out_h", "out_w")][3 - dims :]
    factors = list(n.get("scale", [])) or ([float(v) for v in np.atleast_1d(scale)] if scale is not None else [])
    if out_size is not None or size_list is not None:
        size = ints(out_size if out_size is not None else size_list, "a size")
    elif factors:
        factors = factors * dims if len(factors) == 1 else factors
        size = [int(d * f) for d, f in zip(here, factors)]
    method = {"nearest": "nearest_neighbor", "bicubic": "cubic"}.get(n.name.split("_")[0], "linear")
    corners = n.get("align_corners", True)
    where = "align_corners" if corners else "half_pixel"
    more = {"cubic_alpha": -0.75} if method == "cubic" else {}
    if method == "nearest_neighbor":
        where = "align_corners" if corners else "asymmetric"
        more = {"rounding_method": "round" if corners else "floor"}
    elif method == "linear" and n.get("align_mode", 1) == 1 and not corners:
        where = "asymmetric"
    return op(f"image.resize{dims}d", x, size=size, layout=LAYOUTS[dims][0 if _front(n) else 1], method=method,
              coordinate_transformation_mode=where, **more)  # fmt: skip


@row("grid_sample")
def _grid_sample(n: Op, x: Any, grid: Any) -> RelayExpr:
    return op("image.grid_sample", x, grid, method=n.get("mode", "bilinear"),
              layout="NCHW" if rank(x) == 4 else "NCDHW", padding_mode=n.get("padding_mode", "zeros"),
              align_corners=n.get("align_corners", True), grid_last=True)  # fmt: skip


@row("unfold")
def _unfold(n: Op, x: Any) -> RelayExpr:
    return op("nn.im2col", x, kernel_size=n.get("kernel_sizes"), strides=n.get("strides"),
              padding=n.get("paddings"), dilation=n.get("dilations"))  # fmt: skip


@row("flash_attn")
def _flash_attn(n: Op, q: Any, k: Any, v: Any, _seed: Any = None, mask: Any = None) -> Any:
    """(batch, position, head, channel) in and out."""
    heads = [op("transpose", t, axes=[0, 2, 1, 3]) for t in (q, k, v)]
    scores = op("multiply", _batched(heads[0], op("transpose", heads[1], axes=[0, 1, 3, 2])),
                like(sizes(q)[-1] ** -0.5, q))  # fmt: skip
    scores = scores if mask is None else op("add", scores, mask)
    made = _batched(op("nn.softmax", _before(scores) if n.get("causal", False) else scores, axis=-1), heads[2])
    return (op("transpose", made, axes=[0, 2, 1, 3]),)


def _before(scores: RelayExpr) -> RelayExpr:
    """Scores of positions behind one's own count nothing."""
    return op("where", np.tril(np.ones(sizes(scores)[-2:], bool)), scores, like(-np.inf, scores))


@row("fused_softmax_mask_upper_triangle", "fused_softmax_mask")
def _masked_softmax(n: Op, x: Any, mask: Any = None) -> RelayExpr:
    return op("nn.softmax", _before(expr(x)) if mask is None else op("add", x, mask), axis=-1)


def _batched(a: Any, b: Any) -> RelayExpr:
    from .rows_math import product

    return product(expr(a), expr(b))
