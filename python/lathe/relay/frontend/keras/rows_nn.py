"""Rows for Keras's operations of neural networks: activations, convolutions, pools, norms, attention, images."""

from __future__ import annotations

import math
from typing import Any, List, Sequence, Tuple

import numpy as np

from ...expr import RelayExpr, call_op, const
from ...expr import Tuple as TupleExpr
from .rows_ops import axes_of, dtype_of, known, rank, reshape
from .trace import Node, layer, refuse, row

# ---- activations


def _of(n: Node) -> RelayExpr:
    return n.tensor(0, "x", n.dtype)


def clip(x: RelayExpr, low: float, high: float) -> RelayExpr:
    """Values between two bounds."""
    return call_op("clip", [x], a_min=low, a_max=high)


def _binary(name: str, a: Any, b: Any) -> RelayExpr:
    of = next(x for x in (a, b) if isinstance(x, RelayExpr))
    return call_op(name, [x if isinstance(x, RelayExpr) else const(x, dtype_of(of)) for x in (a, b)])


def add(a: Any, b: Any) -> RelayExpr:
    """a + b, of which one may be a number."""
    return _binary("add", a, b)


def mul(a: Any, b: Any) -> RelayExpr:
    """a * b."""
    return _binary("multiply", a, b)


def sub(a: Any, b: Any) -> RelayExpr:
    """a - b."""
    return _binary("subtract", a, b)


def div(a: Any, b: Any) -> RelayExpr:
    """a / b."""
    return _binary("divide", a, b)


def softplus(x: RelayExpr) -> RelayExpr:
    """log(1 + e^x), where e^x may be beyond all numbers."""
    small = call_op("exp", [call_op("negative", [call_op("abs", [x])])])
    return add(call_op("nn.relu", [x]), call_op("log", [add(small, 1.0)]))


def elu(x: RelayExpr, alpha: float, inner: float = 1.0) -> RelayExpr:
    """alpha * (e^(x / inner) - 1) below zero."""
    low = _binary("minimum", x, 0.0)
    low = mul(sub(call_op("exp", [low if inner == 1.0 else div(low, inner)]), 1.0), alpha)
    return call_op("where", [_binary("greater", x, 0.0), x, low])


@row("ReLU")
def _relu(n: Node) -> RelayExpr:
    """Keras's own with a slope below a threshold and a bound above."""
    x, op = _of(n), n.op
    slope, threshold = float(op.negative_slope), float(op.threshold)
    low = mul(sub(x, threshold), slope) if slope else call_op("zeros_like", [x])
    if slope == 0 and threshold == 0:
        out = call_op("nn.relu", [x])
    else:
        out = call_op("where", [_binary("greater_equal", x, threshold), x, low])
    return out if op.max_value is None else _binary("minimum", out, float(op.max_value))


@row("Relu6")
def _relu6(n: Node) -> RelayExpr:
    return clip(_of(n), 0.0, 6.0)


@row("Silu")
def _silu(n: Node) -> RelayExpr:
    return mul(_of(n), call_op("sigmoid", [_of(n)]))


@row("HardSigmoid")
def _hard_sigmoid(n: Node) -> RelayExpr:
    return div(clip(add(_of(n), 3.0), 0.0, 6.0), 6.0)


@row("HardSilu")
def _hard_silu(n: Node) -> RelayExpr:
    return mul(_of(n), _hard_sigmoid(n))


@row("HardTanh")
def _hard_tanh(n: Node) -> RelayExpr:
    return clip(_of(n), -1.0, 1.0)


@row("LeakyRelu")
def _leaky_relu(n: Node) -> RelayExpr:
    return call_op("nn.leaky_relu", [_of(n)], alpha=float(n.op.negative_slope))


@row("Elu")
def _elu(n: Node) -> RelayExpr:
    return elu(_of(n), float(n.op.alpha))


@row("Celu")
def _celu(n: Node) -> RelayExpr:
    return elu(_of(n), float(n.op.alpha), float(n.op.alpha))


@row("Selu")
def _selu(n: Node) -> RelayExpr:
    return mul(elu(_of(n), 1.6732632423543772), 1.0507009873554805)


@row("Gelu")
def _gelu(n: Node) -> RelayExpr:
    x = _of(n)
    if n.op.approximate:
        inner = mul(add(x, mul(mul(mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
        return mul(mul(x, 0.5), add(call_op("tanh", [inner]), 1.0))
    return mul(mul(x, 0.5), add(call_op("erf", [mul(x, math.sqrt(0.5))]), 1.0))


@row("Softplus")
def _softplus(n: Node) -> RelayExpr:
    return softplus(_of(n))


@row("LogSigmoid")
def _log_sigmoid(n: Node) -> RelayExpr:
    return call_op("negative", [softplus(call_op("negative", [_of(n)]))])


@row("Softsign")
def _softsign(n: Node) -> RelayExpr:
    return div(_of(n), add(call_op("abs", [_of(n)]), 1.0))


@row("TanhShrink")
def _tanh_shrink(n: Node) -> RelayExpr:
    return sub(_of(n), call_op("tanh", [_of(n)]))


@row("SoftShrink")
def _soft_shrink(n: Node) -> RelayExpr:
    x, t = _of(n), float(n.op.threshold)
    return sub(x, clip(x, -t, t))


@row("HardShrink")
def _hard_shrink(n: Node) -> RelayExpr:
    x = _of(n)
    far = _binary("greater", call_op("abs", [x]), float(n.op.threshold))
    return call_op("where", [far, x, call_op("zeros_like", [x])])


@row("Threshold")
def _threshold(n: Node) -> RelayExpr:
    x = _of(n)
    return call_op("where", [_binary("greater", x, float(n.op.threshold)), x, const(n.op.default_value, n.dtype)])


@row("Glu")
def _glu(n: Node) -> RelayExpr:
    a, b = call_op("split", [_of(n)], indices_or_sections=2, axis=int(n.op.axis))
    return mul(a, call_op("sigmoid", [b]))


@row("Softmax", "LogSoftmax")
def _softmax(n: Node) -> RelayExpr:
    name = "nn.softmax" if type(n.op).__name__ == "Softmax" else "nn.log_softmax"
    x, axis = _of(n), n.op.axis
    if axis is None:
        return reshape(call_op(name, [call_op("reshape", [x], newshape=[-1])], axis=0), n.shape)
    return call_op(name, [x], axis=int(axis))


@layer("Softmax")
def _masked_softmax(n: Node) -> RelayExpr:
    """The layer: what the mask leaves out gets a large negative number; over several axes by hand."""
    x, mask, axis = n.tensor(0, "inputs", n.dtype), n.arg(1, "mask"), n.op.axis
    if mask is not None:
        off = sub(1.0, n.as_tensor(mask, n.dtype))
        x = add(x, mul(off, -3e4 if n.dtype == "float16" else -1e9))
    axes = axes_of(axis) or [-1]
    if len(axes) == 1:
        return call_op("nn.softmax", [x], axis=axes[0])
    e = call_op("exp", [sub(x, call_op("max", [x], axis=axes, keepdims=True))])
    return div(e, call_op("sum", [e], axis=axes, keepdims=True))


# ---- convolutions

DATA = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
KERNEL = {1: "WIO", 2: "HWIO", 3: "DHWIO"}


def _ints(v: Any, n: int) -> List[int]:
    return [int(v)] * n if np.ndim(v) == 0 else [int(x) for x in v]


def data_format(n: Node) -> str:
    """Where the channels lie: "channels_last" or "channels_first"."""
    import keras

    return n.op.data_format or keras.config.image_data_format()


def spatial(n: Node, x: RelayExpr) -> Tuple[str, List[Any]]:
    """The layout of the data, and its sizes without batch and channels."""
    d = rank(x) - 2
    if d not in DATA:
        refuse(f"data of {rank(x)} dimensions")
    last = data_format(n) == "channels_last"
    shape = list(x.checked_type.shape)
    return DATA[d][last], shape[1:-1] if last else shape[2:]


def padding(mode: Any, size: Sequence[Any], kernel: Sequence[int], stride: Sequence[int]) -> List[int]:
    """Elements before each axis, then behind each, as "same" and "valid" have them; a layer pads "causal" itself."""
    if mode in ("valid", "causal"):
        return [0] * (2 * len(kernel))
    if mode != "same":
        refuse(f"padding '{mode}'")
    before, behind = [], []
    for s, k, by in zip(size, kernel, stride):
        if by == 1:
            total = k - 1
        elif isinstance(s, int):
            total = max((-(-s // by) - 1) * by + k - s, 0)
        else:
            refuse("padding 'same' with a stride over an open size; shape= of from_keras says it")
        before.append(total // 2)
        behind.append(total - total // 2)
    return before + behind


def convolution(n: Node, x: RelayExpr, w: RelayExpr, depthwise: bool) -> RelayExpr:
    """Over one to three dimensions, groups as many as the kernel's channels say; depthwise: a kernel a channel."""
    layout, size = spatial(n, x)
    d = rank(x) - 2
    shape = known(w, "a kernel")
    channels = known_channels(x, layout)
    stride, dilation = _ints(n.op.strides, d), _ints(n.op.dilation_rate, d)
    kernel = shape[:d]
    groups = channels if depthwise else channels // shape[d]
    features = shape[-1]
    if depthwise:
        features *= channels
        w = call_op("reshape", [w], newshape=[*kernel, 1, features])
    reach = [(k - 1) * by + 1 for k, by in zip(kernel, dilation)]
    return call_op(
        f"nn.conv{d}d", [x, w], strides=stride, padding=padding(n.op.padding, size, reach, stride), dilation=dilation,
        groups=groups, channels=features, kernel_size=kernel, data_layout=layout, kernel_layout=KERNEL[d],
    )  # fmt: skip


def known_channels(x: RelayExpr, layout: str) -> int:
    """The number of channels."""
    c = x.checked_type.shape[layout.index("C")]
    return c if isinstance(c, int) else refuse("channels whose number is open")


@row("Conv")
def _conv(n: Node) -> RelayExpr:
    return convolution(n, n.tensor(0, "inputs", n.dtype), n.tensor(1, "kernel", n.dtype), False)


@row("DepthwiseConv")
def _depthwise(n: Node) -> RelayExpr:
    return convolution(n, n.tensor(0, "inputs", n.dtype), n.tensor(1, "kernel", n.dtype), True)


@row("SeparableConv")
def _separable(n: Node) -> RelayExpr:
    x = convolution(n, n.tensor(0, "inputs", n.dtype), n.tensor(1, "depthwise_kernel", n.dtype), True)
    w = n.tensor(2, "pointwise_kernel", n.dtype)
    layout, _ = spatial(n, x)
    d = rank(x) - 2
    return call_op(
        f"nn.conv{d}d", [x, w], channels=known(w, "a kernel")[-1], kernel_size=[1] * d, padding=[0] * (2 * d),
        data_layout=layout, kernel_layout=KERNEL[d],
    )  # fmt: skip


@row("ConvTranspose")
def _conv_transpose(n: Node) -> RelayExpr:
    x, w = n.tensor(0, "inputs", n.dtype), n.tensor(1, "kernel", n.dtype)
    layout, _ = spatial(n, x)
    d = rank(x) - 2
    if max(_ints(n.op.dilation_rate, d)) > 1:
        refuse("a dilation")
    shape = known(w, "a kernel")  # kernel sizes, output channels, input channels
    stride, kernel = _ints(n.op.strides, d), shape[:d]
    extra = [None] * d if n.op.output_padding is None else _ints(n.op.output_padding, d)
    before, behind, more = [], [], []
    for k, by, out in zip(kernel, stride, extra):
        if n.op.padding == "valid":  # out = (in - 1) * by + k + max(by - k, 0), or what output_padding says
            before.append(0)
            behind.append(0)
            more.append(max(by - k, 0) if out is None else out)
            continue
        total = k - by if out is None else 2 * (k // 2)
        cut = max(total, 0)
        before.append(cut // 2)
        behind.append(cut - cut // 2)
        more.append(max(by - k, 0) if out is None else out)
    axes = [d + 1, d, *range(d)]
    first = [0, rank(x) - 1, *range(1, rank(x) - 1)]
    moved = layout != DATA[d][0]
    if moved:
        x = call_op("transpose", [x], axes=first)
    made = call_op(
        f"nn.conv{d}d_transpose", [x, call_op("transpose", [w], axes=axes)], strides=stride, padding=before + behind,
        channels=shape[d], kernel_size=kernel, output_padding=more,
    )  # fmt: skip
    return call_op("transpose", [made], axes=[0, *range(2, d + 2), 1]) if moved else made


# ---- pools


@row("MaxPool", "AveragePool")
def _pool(n: Node) -> RelayExpr:
    x = n.tensor(0, "inputs", n.dtype)
    layout, size = spatial(n, x)
    d = rank(x) - 2
    window = _ints(n.op.pool_size, d)
    stride = window if n.op.strides is None else _ints(n.op.strides, d)
    name, more = ("max", {}) if type(n.op).__name__ == "MaxPool" else ("avg", {"count_include_pad": False})
    pads = padding(n.op.padding, size, window, stride)
    return call_op(
        f"nn.{name}_pool{d}d", [x], pool_size=window, strides=stride, padding=pads, layout=layout, **more,
    )  # fmt: skip


@row("AdaptiveMaxPool", "AdaptiveAveragePool")
def _adaptive(n: Node) -> RelayExpr:
    x = n.tensor(0, "inputs", n.dtype)
    layout, _ = spatial(n, x)
    d = rank(x) - 2
    name = "max" if "Max" in type(n.op).__name__ else "avg"
    return call_op(f"nn.adaptive_{name}_pool{d}d", [x], output_size=_ints(n.op.output_size, d), layout=layout)


# ---- norms and attention


def batch_norm(
    x: RelayExpr, mean: RelayExpr, variance: RelayExpr, gamma: Any, beta: Any, axis: int, epsilon: float
) -> RelayExpr:
    """By a mean and a variance that are given; without gamma or beta where they are None."""
    gamma = call_op("ones_like", [mean]) if gamma is None else gamma
    beta = call_op("zeros_like", [mean]) if beta is None else beta
    made = call_op("nn.batch_norm", [x, gamma, beta, mean, variance], axis=int(axis) % rank(x), epsilon=float(epsilon))
    return made[0]


@row("BatchNorm")
def _batch_norm(n: Node) -> RelayExpr:
    offset, scale = (None if v is None else n.as_tensor(v, n.dtype) for v in (n.arg(3, "offset"), n.arg(4, "scale")))
    mean, variance = n.tensor(1, "mean", n.dtype), n.tensor(2, "variance", n.dtype)
    return batch_norm(n.tensor(0, "x", n.dtype), mean, variance, scale, offset, n.op.axis, n.op.epsilon)


def normalised(n: Node, x: RelayExpr, axes: Sequence[int], centre: bool, epsilon: float) -> RelayExpr:
    """x over its spread along some axes, less its mean if asked for."""
    if centre:
        x = sub(x, call_op("mean", [x], axis=list(axes), keepdims=True))
    power = call_op("mean", [mul(x, x)], axis=list(axes), keepdims=True)
    return mul(x, call_op("rsqrt", [add(power, epsilon)]))


def _norm(n: Node, centre: bool, scale: Any, offset: Any) -> RelayExpr:
    x = n.tensor(0, "x", n.dtype)
    axes = sorted(a % rank(x) for a in axes_of(n.op.axis) or [-1])
    out = normalised(n, x, axes, centre, float(n.op.epsilon))
    for f, v in ((mul, scale), (add, offset)):
        if v is not None:
            v = n.as_tensor(v, n.dtype)
            kept = [x.checked_type.shape[a] if a in axes else 1 for a in range(axes[0], rank(x))]
            out = f(out, v if rank(v) in (0, len(kept)) else call_op("reshape", [v], newshape=kept))
    return out


@row("LayerNorm")
def _layer_norm(n: Node) -> RelayExpr:
    return _norm(n, not n.op.rms_scaling, n.arg(1, "gamma"), n.arg(2, "beta"))


@row("RMSNorm")
def _rms_norm(n: Node) -> RelayExpr:
    return _norm(n, False, n.arg(1, "scale"), None)


@row("Normalize")
def _normalize(n: Node) -> RelayExpr:
    if n.op.order != 2:
        refuse(f"order {n.op.order}")
    x, axes = n.tensor(0, "x", n.dtype), axes_of(n.op.axis)
    power = call_op("sum", [mul(x, x)], axis=axes, keepdims=True)
    return mul(x, call_op("rsqrt", [_binary("maximum", power, float(n.op.epsilon) ** 2)]))


@row("DotProductAttention")
def _attention(n: Node) -> RelayExpr:
    q, k, v = (n.tensor(i, name, n.dtype) for i, name in enumerate(("query", "key", "value")))
    bias, mask, scale = n.arg(3, "bias"), n.arg(4, "mask"), n.arg(5, "scale")
    if n.op.is_causal or getattr(n.op, "attn_logits_soft_cap", None) is not None:
        refuse("a causal mask or a soft cap inside the operation")
    head = known(q, "attention")[-1]
    groups = known(q, "attention")[2] // known(k, "attention")[2]
    q, k, v = (call_op("transpose", [x], axes=[0, 2, 1, 3]) for x in (q, k, v))  # batch, heads, length, width
    if groups > 1:
        k, v = (call_op("repeat", [x], repeats=groups, axis=1) for x in (k, v))
    scores = call_op("einsum", [TupleExpr([q, k])], equation="bhqd,bhkd->bhqk")
    scores = mul(scores, float(scale) if scale is not None else 1 / math.sqrt(head))
    if bias is not None:
        scores = add(scores, n.as_tensor(bias, n.dtype))
    if mask is not None:
        far = const(-1e9 if n.dtype != "float16" else -3e4, n.dtype)
        scores = call_op("where", [n.as_tensor(mask, "bool"), scores, far])
    made = call_op("einsum", [TupleExpr([call_op("nn.softmax", [scores], axis=-1), v])], equation="bhqk,bhkd->bhqd")
    return call_op("transpose", [made], axes=[0, 2, 1, 3])


# ---- images


def resized(n: Node, x: RelayExpr, size: Sequence[int], interpolation: str) -> RelayExpr:
    """A batch of images in another size."""
    methods = {"nearest": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
    if interpolation not in methods:
        refuse(f"interpolation '{interpolation}'")
    if rank(x) != 4:
        refuse("a single image; a batch is wanted")
    layout = DATA[2][data_format(n) == "channels_last"]
    method = methods[interpolation]
    rounding = {"nearest_neighbor": "round_prefer_ceil"}.get(method, "")
    return call_op(
        "image.resize2d", [x], size=[int(s) for s in size], roi=[0.0] * 4, layout=layout, method=method,
        coordinate_transformation_mode="half_pixel", rounding_method=rounding, cubic_alpha=-0.5,
        cubic_exclude=1,
    )  # fmt: skip


@row("Resize")
def _resize(n: Node) -> RelayExpr:
    op = n.op
    if op.antialias or op.crop_to_aspect_ratio or op.pad_to_aspect_ratio:
        refuse("antialias, or a kept aspect ratio")
    return resized(n, n.tensor(0, "images", n.dtype), op.size, op.interpolation)


@row("DepthToSpace", "SpaceToDepth")
def _depth(n: Node) -> RelayExpr:
    name = "nn.depth_to_space" if type(n.op).__name__ == "DepthToSpace" else "nn.space_to_depth"
    layout = DATA[2][data_format(n) == "channels_last"]
    return call_op(name, [n.tensor(0, "x", n.dtype)], block_size=int(n.op.block_size), layout=layout)
