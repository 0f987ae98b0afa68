"""Neural-network operators."""

from __future__ import annotations

from typing import Any, List, Optional

from .. import error, relay, te, tir
from ._compute import Function, computed, dims, dtype, fixed, refused

# ---- activations


@computed
def relu(x: Any) -> Any:
    """max(x, 0)."""
    return relay.nn.relu(x)


@computed
def leaky_relu(x: Any, alpha: float) -> Any:
    """x where it is positive, alpha * x elsewhere."""
    return relay.nn.leaky_relu(x, float(alpha))


@computed
def prelu(x: Any, slope: Any, axis: int = 1) -> Any:
    """Leaky relu with a slope for each index of an axis."""
    return relay.nn.prelu(x, slope, axis)


@computed
def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis."""
    return relay.nn.softmax(x, axis)


@computed
def fast_softmax(x: Any, axis: int = -1) -> Any:
    """softmax with the approximate exponential."""
    e = relay.fast_exp(relay.subtract(x, relay.max(x, [axis], True)))
    return relay.divide(e, relay.sum(e, [axis], True))


@computed
def log_softmax(x: Any, axis: int = -1) -> Any:
    """The logarithm of softmax."""
    return relay.nn.log_softmax(x, axis)


# ---- padding of windows


def _tuple(x: Any, n: int) -> List[int]:
    return [int(x)] * n if isinstance(x, int) else [int(i) for i in x]


def _pads(padding: Any, window: List[int]) -> List[int]:
    """Sizes before all axes, then behind: of a number, one for each axis, both ends of each, "VALID" or "SAME"."""
    n = len(window)
    if isinstance(padding, str):
        if padding not in ("VALID", "SAME"):
            raise error.ArgumentError(f"padding is VALID, SAME or numbers, not '{padding}'")
        total = [0 if padding == "VALID" else k - 1 for k in window]
        before = [(t + 1) // 2 for t in total]
        return before + [t - b for t, b in zip(total, before)]
    sizes = _tuple(padding, n)
    if len(sizes) not in (n, 2 * n):
        raise error.ArgumentError(f"padding has {len(sizes)} sizes; {n} axes take one number, {n} or {2 * n}")
    return sizes if len(sizes) == 2 * n else sizes * 2


def get_pad_tuple(padding: Any, kernel: Any) -> Any:
    """(top, left, bottom, right) of a padding as convolutions take it."""
    return tuple(_pads(padding, [int(k) for k in kernel]))


get_pad_tuple1d = get_pad_tuple3d = get_pad_tuple_generic = get_pad_tuple

# ---- convolutions

_LETTERS = {1: "W", 2: "HW", 3: "DHW"}


def _kernel_layout(n: int, data_layout: str, kernel_layout: str) -> str:
    space = _LETTERS[n]
    return kernel_layout or (f"OI{space}" if data_layout.startswith("NC") else f"{space}IO")


def _conv(
    n: int,
    data: Any,
    weight: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: Any,
) -> Any:
    layout = _kernel_layout(n, data_layout, kernel_layout)
    shape = fixed("nn.conv (the weight)", weight)
    space = [shape[layout.index(x)] for x in _LETTERS[n]]
    step, holes = _tuple(strides, n), _tuple(dilation, n)
    pads = _pads(padding, [(k - 1) * d + 1 for k, d in zip(space, holes)])
    f = getattr(relay.nn, f"conv{n}d")
    if data_layout != "HWCN":
        return f(
            data,
            weight,
            step,
            pads,
            holes,
            groups,
            shape[layout.index("O")],
            space,
            data_layout,
            layout,
            "",
            _out(out_dtype),
        )
    made = f(
        relay.transpose(data, [3, 2, 0, 1]),
        weight,
        step,
        pads,
        holes,
        groups,
        shape[layout.index("O")],
        space,
        "NCHW",
        layout,
        "",
        _out(out_dtype),
    )
    return relay.transpose(made, [2, 3, 1, 0])


def _out(out_dtype: Any) -> Optional[str]:
    return None if out_dtype is None else str(out_dtype)


@computed
def conv1d(
    data: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Any:
    """Convolution over one axis."""
    return _conv(1, data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


@computed
def conv1d_ncw(
    data: Any, kernel: Any, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1, out_dtype: Any = None
) -> Any:
    """Convolution over one axis; weight OIW."""
    return _conv(1, data, kernel, strides, padding, dilation, 1, "NCW", "OIW", out_dtype)


@computed
def conv1d_nwc(
    data: Any, kernel: Any, strides: Any = 1, padding: Any = "VALID", dilation: Any = 1, out_dtype: Any = None
) -> Any:
    """Convolution over one axis; weight WIO."""
    return _conv(1, data, kernel, strides, padding, dilation, 1, "NWC", "WIO", out_dtype)


@computed
def group_conv1d_ncw(
    data: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: Any = None,
) -> Any:
    """Convolution over one axis in groups of channels."""
    return _conv(1, data, kernel, strides, padding, dilation, groups, "NCW", "OIW", out_dtype)


@computed
def group_conv1d_nwc(
    data: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: Any = None,
) -> Any:
    """Convolution over one axis in groups of channels."""
    return _conv(1, data, kernel, strides, padding, dilation, groups, "NWC", "WIO", out_dtype)


@computed
def conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Any:
    """Convolution over two axes; data_layout is NCHW, NHWC or HWCN."""
    return _conv(2, input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


@computed
def conv2d_nchw(Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, out_dtype: Any = None) -> Any:
    """Convolution over two axes; weight OIHW."""
    return _conv(2, Input, Filter, stride, padding, dilation, 1, "NCHW", "OIHW", out_dtype)


@computed
def conv2d_nhwc(
    Input: Any,
    Filter: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: Any = None,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """Convolution over two axes; weight HWIO."""
    return _conv(2, Input, Filter, stride, padding, dilation, 1, "NHWC", "HWIO", out_dtype)


@computed
def conv2d_hwcn(Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, out_dtype: Any = None) -> Any:
    """Convolution over two axes; weight HWIO."""
    return _conv(2, Input, Filter, stride, padding, dilation, 1, "HWCN", "HWIO", out_dtype)


@computed
def group_conv2d_nchw(
    Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, groups: int, out_dtype: Any = None
) -> Any:
    """Convolution over two axes in groups of channels."""
    return _conv(2, Input, Filter, stride, padding, dilation, groups, "NCHW", "OIHW", out_dtype)


@computed
def group_conv2d_nhwc(
    Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, groups: int, out_dtype: Any = None
) -> Any:
    """Convolution over two axes in groups of channels."""
    return _conv(2, Input, Filter, stride, padding, dilation, groups, "NHWC", "HWIO", out_dtype)


@computed
def depthwise_conv2d_nchw(
    Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, out_dtype: Any = None
) -> Any:
    """Each channel on its own; weight (channel, multiplier, height, width)."""
    c, m, h, w = fixed("nn.depthwise_conv2d_nchw (the weight)", Filter)
    return _conv(
        2, Input, relay.reshape(Filter, [c * m, 1, h, w]), stride, padding, dilation, c, "NCHW", "OIHW", out_dtype
    )


@computed
def depthwise_conv2d_nhwc(
    Input: Any,
    Filter: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    kernel_layout: str = "HWOI",
    out_dtype: Any = None,
) -> Any:
    """Each channel on its own; weight (height, width, channel, multiplier)."""
    if kernel_layout != "HWOI":
        raise error.UnsupportedError(
            f"topi.nn.depthwise_conv2d_nhwc: kernel_layout is HWOI, not {kernel_layout}; transpose the weight"
        )
    h, w, c, m = fixed("nn.depthwise_conv2d_nhwc (the weight)", Filter)
    return _conv(
        2, Input, relay.reshape(Filter, [h, w, 1, c * m]), stride, padding, dilation, c, "NHWC", "HWIO", out_dtype
    )


@computed
def conv3d_ncdhw(
    Input: Any, Filter: Any, stride: Any, padding: Any, dilation: Any, groups: int = 1, out_dtype: Any = None
) -> Any:
    """Convolution over three axes; weight OIDHW."""
    return _conv(3, Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


@computed
def conv3d_ndhwc(
    Input: Any,
    Filter: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int = 1,
    out_dtype: Any = None,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_origin_shape: Any = None,
) -> Any:
    """Convolution over three axes; weight DHWIO."""
    return _conv(3, Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)


@computed
def conv(
    inp: Any,
    filt: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: Any = None,
    auto_scheduler_rewritten_layout: Any = None,
    meta_schedule_original_shape: Any = None,
    auto_scheduler_should_rewrite_layout: bool = False,
) -> Any:
    """Convolution over one, two or three axes, as the layout says."""
    return _conv(
        len(data_layout) - 2, inp, filt, stride, padding, dilation, groups, data_layout, kernel_layout, out_dtype
    )


def _conv_transpose(
    n: int, data: Any, weight: Any, strides: Any, padding: Any, out_dtype: Any, output_padding: Any, groups: int
) -> Any:
    space = fixed("nn.conv_transpose (the weight)", weight)
    f = getattr(relay.nn, f"conv{n}d_transpose")
    channels = space[1] * groups
    return f(
        data,
        weight,
        strides=_tuple(strides, n),
        padding=_pads(padding, space[2:]),
        channels=channels,
        kernel_size=space[2:],
        groups=groups,
        output_padding=_tuple(output_padding, n),
        out_dtype=_out(out_dtype),
    )


@computed
def conv1d_transpose_ncw(data: Any, kernel: Any, stride: Any, padding: Any, out_dtype: Any, output_padding: Any) -> Any:
    """Transposed convolution over one axis; weight IOW."""
    return _conv_transpose(1, data, kernel, stride, padding, out_dtype, output_padding, 1)


@computed
def group_conv1d_transpose_ncw(
    data: Any, kernel: Any, stride: Any, padding: Any, out_dtype: Any, output_padding: Any, groups: int
) -> Any:
    """Transposed convolution over one axis in groups of channels."""
    return _conv_transpose(1, data, kernel, stride, padding, out_dtype, output_padding, groups)


@computed
def conv2d_transpose_nchw(
    Input: Any, Filter: Any, strides: Any, padding: Any, out_dtype: Any, output_padding: Any
) -> Any:
    """Transposed convolution over two axes; weight IOHW."""
    return _conv_transpose(2, Input, Filter, strides, padding, out_dtype, output_padding, 1)


@computed
def group_conv2d_transpose_nchw(
    data: Any, kernel: Any, stride: Any, padding: Any, out_dtype: Any, output_padding: Any, groups: int
) -> Any:
    """Transposed convolution over two axes in groups of channels."""
    return _conv_transpose(2, data, kernel, stride, padding, out_dtype, output_padding, groups)


@computed
def conv3d_transpose_ncdhw(
    Input: Any, Filter: Any, strides: Any, padding: Any, out_dtype: Any, output_padding: Any
) -> Any:
    """Transposed convolution over three axes; weight IODHW."""
    return _conv_transpose(3, Input, Filter, strides, padding, out_dtype, output_padding, 1)


@computed
def group_conv3d_transpose_ncdhw(
    data: Any, kernel: Any, strides: Any, padding: Any, out_dtype: Any, output_padding: Any, groups: int
) -> Any:
    """Transposed convolution over three axes in groups of channels."""
    return _conv_transpose(3, data, kernel, strides, padding, out_dtype, output_padding, groups)


@computed
def deformable_conv2d_nchw(
    data: Any,
    offset: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    deformable_groups: int,
    groups: int,
    out_dtype: Any,
) -> Any:
    """Convolution whose window positions are moved by offsets."""
    shape = fixed("nn.deformable_conv2d_nchw (the weight)", kernel)
    holes = _tuple(dilation, 2)
    pads = _pads(padding, [(k - 1) * d + 1 for k, d in zip(shape[2:], holes)])
    return relay.nn.deformable_conv2d(
        data,
        offset,
        kernel,
        strides=_tuple(strides, 2),
        padding=pads,
        dilation=holes,
        deformable_groups=deformable_groups,
        groups=groups,
        channels=shape[0],
        kernel_size=shape[2:],
        out_dtype=_out(out_dtype),
    )


# ---- products


def _with_bias(made: Any, bias: Any) -> Any:
    return made if bias is None else relay.add(made, bias)


@computed
def dense(
    data: Any,
    weight: Any,
    bias: Any = None,
    out_dtype: Any = None,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """data times the transposed weight (units, in), with a bias."""
    return _with_bias(relay.nn.dense(data, weight, out_dtype=_out(out_dtype)), bias)


@computed
def matmul(
    tensor_a: Any,
    tensor_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """The product of matrices, with a bias."""
    return _with_bias(
        relay.nn.matmul(
            tensor_a, tensor_b, out_dtype=_out(out_dtype), transpose_a=bool(transpose_a), transpose_b=bool(transpose_b)
        ),
        bias,
    )


@computed
def batch_matmul(
    tensor_a: Any,
    tensor_b: Any,
    oshape: Any = None,
    out_dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """Products of matrices, one for each index of the first axis."""
    return relay.nn.batch_matmul(
        tensor_a, tensor_b, out_dtype=_out(out_dtype), transpose_a=bool(transpose_a), transpose_b=bool(transpose_b)
    )


# ---- pooling


def _pool(n: int) -> Function:
    layouts = f"NC{_LETTERS[n]}"

    def pool(
        data: Any,
        kernel: Any,
        stride: Any,
        dilation: Any,
        padding: Any,
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = layouts,
        count_include_pad: bool = True,
    ) -> Any:
        """The largest element or the mean of each window; padding is that before all axes, then behind."""
        f = getattr(relay.nn, f"{_pool_type(pool_type)}_pool{n}d")
        return f(
            data,
            _tuple(kernel, n),
            _tuple(stride, n),
            _tuple(dilation, n),
            _tuple(padding, 2 * n),
            layout,
            "",
            bool(ceil_mode),
            bool(count_include_pad),
        )

    pool.__name__ = pool.__qualname__ = f"pool{n}d"
    return computed(pool)


def _pool_type(name: str) -> str:
    if name not in ("max", "avg"):
        raise error.ArgumentError(f"pool_type is max or avg, not '{name}'")
    return name


pool1d = _pool(1)
pool2d = _pool(2)
pool3d = _pool(3)


@computed
def global_pool(data: Any, pool_type: str, layout: str = "NCHW") -> Any:
    """The largest element or the mean of each image."""
    return getattr(relay.nn, f"global_{_pool_type(pool_type)}_pool2d")(data, layout)


def _adaptive(n: int, name: str) -> Function:
    layouts = f"NC{_LETTERS[n]}"

    def pool(data: Any, output_size: Any, pool_type: str, layout: str = layouts) -> Any:
        """Windows chosen so that the result has this size."""
        return getattr(relay.nn, f"adaptive_{_pool_type(pool_type)}_pool{n}d")(data, _tuple(output_size, n), layout)

    pool.__name__ = pool.__qualname__ = name
    return computed(pool)


adaptive_pool1d = _adaptive(1, "adaptive_pool1d")
adaptive_pool = _adaptive(2, "adaptive_pool")
adaptive_pool3d = _adaptive(3, "adaptive_pool3d")

# ---- normalisation


def _spread(x: Any, axes: List[int], rank: int) -> Any:
    """A tensor whose axes are these ones of a larger one, with extents of 1 for the others."""
    return relay.reshape(x, [dims(x)[axes.index(k)] if k in axes else 1 for k in range(rank)])


def _normal(data: Any, over: List[int], epsilon: float) -> Any:
    """data less its mean over the axes, divided by its deviation."""
    centred = relay.subtract(data, relay.mean(data, over, True))
    spread = relay.mean(relay.multiply(centred, centred), over, True)
    return relay.multiply(centred, relay.rsqrt(relay.add(spread, relay.const(epsilon, dtype(data)))))


def _scaled(x: Any, gamma: Any, beta: Any, axes: List[int]) -> Any:
    rank = len(dims(x))
    x = x if gamma is None else relay.multiply(x, _spread(gamma, axes, rank))
    return x if beta is None else relay.add(x, _spread(beta, axes, rank))


def _axes(axis: Any, rank: int) -> List[int]:
    return sorted(int(k) % rank for k in (axis if isinstance(axis, (list, tuple)) else [axis]))


@computed
def batch_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    axis: Any = None,
    epsilon: Any = None,
    center: Any = None,
    scale: Any = None,
    training: Any = None,
    momentum: Any = None,
) -> Any:
    """[normalised data, mean, variance]: by the moving mean and variance, or in training by the
    batch's own, with which the moving ones are mixed."""
    rank, a = len(dims(data)), [(1 if axis is None else int(axis)) % len(dims(data))]
    eps = 1e-5 if epsilon is None else epsilon
    mean, var = moving_mean, moving_var
    if training:
        over = [k for k in range(rank) if k not in a]
        mean, var = relay.mean(data, over), relay.variance(data, over)
        m = relay.const(0.1 if momentum is None else momentum, dtype(data))
        rest = relay.const(1.0 - (0.1 if momentum is None else momentum), dtype(data))
        moving_mean = relay.add(relay.multiply(moving_mean, rest), relay.multiply(mean, m))
        moving_var = relay.add(relay.multiply(moving_var, rest), relay.multiply(var, m))
    deviation = relay.sqrt(relay.add(_spread(var, a, rank), relay.const(eps, dtype(data))))
    out = relay.divide(relay.subtract(data, _spread(mean, a, rank)), deviation)
    return [
        _scaled(out, None if scale is False else gamma, None if center is False else beta, a),
        moving_mean,
        moving_var,
    ]


@computed
def layer_norm(data: Any, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    """Normalised over the axes, scaled by gamma and beta of these axes' shape."""
    axes = _axes(axis, len(dims(data)))
    return _scaled(_normal(data, axes, epsilon), gamma, beta, axes)


@computed
def instance_norm(data: Any, gamma: Any, beta: Any, channel_axis: int, axis: Any, epsilon: float = 1e-5) -> Any:
    """Normalised over the axes, scaled by gamma and beta of each channel."""
    rank = len(dims(data))
    return _scaled(_normal(data, _axes(axis, rank), epsilon), gamma, beta, [channel_axis % rank])


@computed
def group_norm(
    data: Any, gamma: Any, beta: Any, num_groups: int, channel_axis: int, axes: Any, epsilon: float = 1e-5
) -> Any:
    """Normalised over the axes and the channels of a group, scaled by gamma and beta of each channel."""
    shape = fixed("nn.group_norm", data)
    rank, c = len(shape), channel_axis % len(shape)
    if shape[c] % num_groups:
        raise error.ShapeError(f"topi.nn.group_norm: {shape[c]} channels do not make {num_groups} groups")
    apart = shape[:c] + [num_groups, shape[c] // num_groups] + shape[c + 1 :]
    over = [c + 1] + [k + 1 if k > c else k for k in _axes(axes, rank)]
    made = relay.reshape(_normal(relay.reshape(data, apart), sorted(over), epsilon), shape)
    return _scaled(made, gamma, beta, [c])


@computed
def rms_norm(data: Any, weight: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    """Divided by the root of the mean square over the axes, scaled by weight."""
    axes = _axes(axis, len(dims(data)))
    square = relay.mean(relay.multiply(data, data), axes, True)
    return _scaled(
        relay.multiply(data, relay.rsqrt(relay.add(square, relay.const(epsilon, dtype(data))))), weight, None, axes
    )


@computed
def lrn(data: Any, size: int, axis: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 2) -> Any:
    """Divided by the weighted squares of its neighbours along an axis."""
    return relay.nn.lrn(data, size, axis, float(bias), float(alpha), float(beta))


@computed
def scale_shift_nchw(Input: Any, Scale: Any, Shift: Any) -> Any:
    """Each channel times a factor, plus a shift."""
    return _scaled(Input, Scale, Shift, [1])


@computed
def scale_shift_nhwc(Input: Any, Scale: Any, Shift: Any) -> Any:
    """Each channel times a factor, plus a shift."""
    return _scaled(Input, Scale, Shift, [3])


# ---- shapes


def _pair_widths(pad_before: Any, pad_after: Any) -> List[Any]:
    return [[int(b), int(a)] for b, a in zip(pad_before, pad_before if pad_after is None else pad_after)]


@computed
def pad(
    data: Any, pad_before: Any, pad_after: Any = None, pad_value: Any = 0.0, name: str = "PadInput", attrs: Any = None
) -> Any:
    """A value around the tensor."""
    return relay.nn.pad(data, _pair_widths(pad_before, pad_after), pad_value)


@computed
def mirror_pad(
    data: Any, pad_before: Any, pad_after: Any = None, mode: str = "SYMMETRIC", name: str = "MirrorPadInput"
) -> Any:
    """The tensor mirrored at its edges, with them (SYMMETRIC) or without (REFLECT)."""
    return relay.nn.mirror_pad(data, _pair_widths(pad_before, pad_after), mode)


@computed
def reflect_pad(data: Any, pad_before: Any, pad_after: Any = None, name: str = "ReflectPadInput") -> Any:
    """The tensor mirrored at its edges, without them."""
    return relay.nn.mirror_pad(data, _pair_widths(pad_before, pad_after), "REFLECT")


@computed
def replicate_pad(data: Any, pad_before: Any, pad_after: Any = None, name: str = "ReplicatePadInput") -> Any:
    """The edge elements repeated around the tensor."""
    return relay.nn.pad(data, _pair_widths(pad_before, pad_after), 0, "edge")


def dilate(data: Any, strides: Any, dilation_value: Any = 0.0, name: str = "DilatedInput") -> Any:
    """Each element strides apart, with a value between them."""
    if len(strides) != data.ndim:
        raise error.ArgumentError(f"topi.nn.dilate: {len(strides)} strides for {data.ndim} dimensions")
    shape = [(n - 1) * s + 1 for n, s in zip(data.shape, strides)]

    def element(*index: Any) -> Any:
        on = [tir.EQ(tir.floormod(i, s), 0) for i, s in zip(index, strides) if not (isinstance(s, int) and s == 1)]
        value = data(*[tir.floordiv(i, s) for i, s in zip(index, strides)])
        return tir.if_then_else(tir.all(*on), value, tir.const(dilation_value, data.dtype)) if on else value

    return te.compute(shape, element, name=name, tag="injective,dilate")


@computed
def flatten(data: Any) -> Any:
    """All axes but the first as one."""
    return relay.nn.batch_flatten(data)


@computed
def upsampling(
    data: Any,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Any = None,
) -> Any:
    """Larger images."""
    if output_shape is not None:
        raise error.UnsupportedError(
            "topi.nn.upsampling: output_shape is not supported; use topi.image.resize2d for a size of your own"
        )
    return relay.nn.upsampling(data, float(scale_h), float(scale_w), layout, method, bool(align_corners))


@computed
def space_to_depth(data: Any, block_size: int, layout: str = "NCHW") -> Any:
    """Blocks of the image as channels."""
    return relay.nn.space_to_depth(data, block_size, layout)


@computed
def depth_to_space(data: Any, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Any:
    """Channels as blocks of the image."""
    return relay.nn.depth_to_space(data, block_size, layout, mode)


@computed
def space_to_batch_nd(data: Any, block_shape: Any, pad_before: Any, pad_after: Any, pad_value: float = 0.0) -> Any:
    """Blocks of space as further elements of the batch."""
    return relay.nn.space_to_batch_nd(data, block_shape, _pair_widths(pad_before, pad_after), float(pad_value))


@computed
def batch_to_space_nd(data: Any, block_shape: Any, crop_begin_list: Any, crop_end_list: Any) -> Any:
    """Elements of the batch as blocks of space."""
    return relay.nn.batch_to_space_nd(data, block_shape, _pair_widths(crop_begin_list, crop_end_list))


@computed
def nll_loss(predictions: Any, targets: Any, weights: Any, reduction: str, ignore_index: int) -> Any:
    """Negative log likelihood."""
    return relay.nn.nll_loss(predictions, targets, weights, reduction, ignore_index)


REFUSED = (
    "binarize_pack",
    "binary_dense",
    "bitpack",
    "bitserial_conv2d_nchw",
    "bitserial_conv2d_nhwc",
    "bitserial_dense",
    "circular_pad",
    "conv2d_NCHWc",
    "conv2d_NCHWc_int8",
    "conv2d_winograd_nchw",
    "conv2d_winograd_nhwc",
    "conv2d_winograd_weight_transform",
    "correlation_nchw",
    "deformable_conv2d_nhwc",
    "dense_pack",
    "depthwise_conv2d_NCHWc",
    "depthwise_conv2d_backward_input_nhwc",
    "depthwise_conv2d_backward_weight_nhwc",
    "fifo_buffer",
    "lstm",
    "pool_grad",
    "scale_shift_nchwc",
    "simulated_dequantize",
    "simulated_quantize",
    "softmax_common",
    "softplus",
    "sparse_add",
    "sparse_conv2d",
    "sparse_dense",
    "sparse_transpose",
    "upsampling3d",
    "instance_norm_nchw",
    "qnn",
)
__getattr__ = refused("lathe.topi.nn", REFUSED)
