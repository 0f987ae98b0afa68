"""What operators compute, in numpy: references for tests.

They are written for the eye, not for speed."""

from __future__ import annotations

import itertools
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from .. import error as _error
from ..target import Target as _Target
from . import generic as _generic
from . import nn as _nn

Array = Any


def _many(x: Any, n: int) -> List[int]:
    return [int(x)] * n if isinstance(x, int) else [int(i) for i in x]


def _padded(a: Array, first: int, before: Sequence[int], after: Sequence[int], value: float = 0) -> Array:
    """The axes from `first` on with a value around."""
    width = [(0, 0)] * a.ndim
    for k, (b, e) in enumerate(zip(before, after)):
        width[first + k] = (b, e)
    return np.pad(a, width, constant_values=value)


# ---- convolutions: one over any number of axes, channels first


def dilate_python(input_np: Array, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: Any = None) -> Array:
    """Each element strides apart."""
    shape = [(n - 1) * s + 1 for n, s in zip(input_np.shape, strides)]
    out = np.full(shape, dilation_value, input_np.dtype if out_dtype is None else out_dtype)
    out[tuple(slice(None, None, s) for s in strides)] = input_np
    return out


def _conv(a: Array, w: Array, stride: Any, padding: Any, groups: int = 1, dilation: Any = 1) -> Array:
    n = a.ndim - 2
    w = dilate_python(w, [1, 1, *_many(dilation, n)])
    window = w.shape[2:]
    pads = _nn.get_pad_tuple(padding, window)
    a = _padded(a, 2, pads[:n], pads[n:])
    step = _many(stride, n)
    size = [(x - k) // s + 1 for x, k, s in zip(a.shape[2:], window, step)]
    cin, cout = w.shape[1], w.shape[0] // groups
    out = np.zeros((a.shape[0], w.shape[0], *size), np.result_type(a, w))
    for g in range(groups):
        part, weight = a[:, g * cin : (g + 1) * cin], w[g * cout : (g + 1) * cout]
        for at in itertools.product(*map(range, window)):
            here = part[
                (slice(None), slice(None), *(slice(i, i + (m - 1) * s + 1, s) for i, m, s in zip(at, size, step)))
            ]
            out[:, g * cout : (g + 1) * cout] += np.einsum(
                "nc...,oc->no...", here, weight[(slice(None), slice(None), *at)]
            )
    return out.astype(a.dtype)


def _last(f: Callable[..., Array], a: Array, w: Array, *rest: Any) -> Array:
    """A convolution with channels last, weight …IO."""
    n = a.ndim - 2
    made = f(np.moveaxis(a, -1, 1), np.moveaxis(w, (n + 1, n), (0, 1)), *rest)
    return np.moveaxis(made, 1, -1)


def conv1d_ncw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any) -> Array:
    """Convolution over one axis."""
    return _conv(a_np, w_np, stride, padding, 1, dilation)


def group_conv1d_ncw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Convolution over one axis in groups of channels."""
    return _conv(a_np, w_np, stride, padding, groups, dilation)


def conv2d_nchw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolution over two axes."""
    return _conv(a_np, w_np, stride, padding, groups)


def conv2d_nhwc_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolution over two axes, weight HWIO."""
    return _last(_conv, a_np, w_np, stride, padding, groups)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Any, padding: Any) -> Array:
    """Convolution over two axes, data HWCN, weight HWIO."""
    return np.transpose(
        _conv(np.transpose(a_np, (3, 2, 0, 1)), np.transpose(w_np, (3, 2, 0, 1)), stride, padding), (2, 3, 1, 0)
    )


def conv3d_ncdhw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolution over three axes."""
    return _conv(a_np, w_np, stride, padding, groups)


def conv3d_ndhwc_python(a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1) -> Array:
    """Convolution over three axes, weight DHWIO."""
    return _last(_conv, a_np, w_np, stride, padding, groups)


def depthwise_conv2d_python_nchw(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Each channel on its own; filter (channel, multiplier, height, width)."""
    c, m, h, w = filter_np.shape
    return _conv(input_np, filter_np.reshape(c * m, 1, h, w), stride, padding, c)


def depthwise_conv2d_python_nhwc(input_np: Array, filter_np: Array, stride: Any, padding: Any) -> Array:
    """Each channel on its own; filter (height, width, channel, multiplier)."""
    made = depthwise_conv2d_python_nchw(
        np.moveaxis(input_np, 3, 1), np.transpose(filter_np, (2, 3, 0, 1)), stride, padding
    )
    return np.moveaxis(made, 1, 3)


def _conv_transpose(a: Array, w: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1) -> Array:
    """Each element of a, times the weight (I, O, …), added at its place of the result."""
    n = a.ndim - 2
    window, step, more = w.shape[2:], _many(stride, n), _many(output_padding, n)
    pads = _nn.get_pad_tuple(padding, window)
    whole = [(x - 1) * s + k + p for x, s, k, p in zip(a.shape[2:], step, window, more)]
    cin, cout = a.shape[1] // groups, w.shape[1]
    out = np.zeros((a.shape[0], cout * groups, *whole), np.result_type(a, w))
    for g in range(groups):
        for at in itertools.product(*map(range, window)):
            place = tuple(slice(i, i + (x - 1) * s + 1, s) for i, x, s in zip(at, a.shape[2:], step))
            weight = w[(slice(g * cin, (g + 1) * cin), slice(None), *at)]
            out[(slice(None), slice(g * cout, (g + 1) * cout), *place)] += np.einsum(
                "nc...,co->no...", a[:, g * cin : (g + 1) * cin], weight
            )
    return out[(slice(None), slice(None), *(slice(b, x - e) for b, e, x in zip(pads[:n], pads[n:], whole)))].astype(
        a.dtype
    )


def conv1d_transpose_ncw_python(a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any) -> Array:
    """Transposed convolution over one axis."""
    return _conv_transpose(a_np, w_np, stride, padding, output_padding)


def group_conv1d_transpose_ncw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Array:
    """Transposed convolution over one axis in groups of channels."""
    return _conv_transpose(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nchw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Array:
    """Transposed convolution over two axes."""
    return _conv_transpose(a_np, w_np, stride, padding, output_padding, groups)


def conv3d_transpose_ncdhw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Array:
    """Transposed convolution over three axes."""
    return _conv_transpose(a_np, w_np, stride, padding, output_padding, groups)


# ---- products


def dense(
    x: Array, y: Array, bias: Array, use_bias: bool = False, use_relu: bool = False, out_dtype: Any = None
) -> Array:
    """x times the transposed y."""
    out = np.dot(x.astype(out_dtype or x.dtype), y.T.astype(out_dtype or x.dtype))
    out = out + bias if use_bias else out
    return np.maximum(out, 0) if use_relu else out


def batch_matmul(x: Array, y: Array, out_dtype: Any = None, trans_x: bool = False, trans_y: bool = True) -> Array:
    """Products of matrices, one for each index of the first axis."""
    x, y = (a.astype(out_dtype or x.dtype) for a in (x, y))
    return np.matmul(x.transpose(0, 2, 1) if trans_x else x, y.transpose(0, 2, 1) if trans_y else y)


# ---- pooling


def poolnd_python(
    np_data: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: Optional[str] = None,
) -> Array:
    """The largest element or the mean of each window."""
    last = layout is not None and layout.endswith("C")
    data = np.moveaxis(np_data, -1, 1) if last else np_data
    n = data.ndim - 2
    size: List[int] = []
    behind: List[int] = []
    for k in range(n):
        span = (kernel[k] - 1) * dilation[k] + 1
        room = data.shape[2 + k] + padding_before[k] + padding_after[k] - span
        size.append((-(-room // strides[k]) if ceil_mode else room // strides[k]) + 1)
        if ceil_mode and (size[-1] - 1) * strides[k] >= data.shape[2 + k] + padding_before[k]:
            size[-1] -= 1  # the last window would lie behind the data
        behind.append(max((size[-1] - 1) * strides[k] + span - data.shape[2 + k] - padding_before[k], padding_after[k]))
    lowest = -np.inf if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min
    a = _padded(data.astype(dtype), 2, padding_before, behind, lowest if pool_type == "max" else 0)
    inside = _padded(np.ones(data.shape[2:]), 0, padding_before, padding_after, 1 if count_include_pad else 0)
    inside = _padded(inside, 0, [0] * n, [b - p for b, p in zip(behind, padding_after)])
    out = np.zeros((*data.shape[:2], *size), dtype)
    for at in itertools.product(*map(range, size)):
        place = tuple(slice(i * s, i * s + (k - 1) * d + 1, d) for i, s, k, d in zip(at, strides, kernel, dilation))
        window = a[(slice(None), slice(None), *place)].reshape(*data.shape[:2], -1)
        out[(slice(None), slice(None), *at)] = (
            window.max(-1) if pool_type == "max" else window.sum(-1) / max(inside[place].sum(), 1)
        )
    return np.moveaxis(out, 1, -1) if last else out


def adaptive_pool(np_data: Array, out_size: Any, pool_type: str, layout: str) -> Array:
    """Windows chosen so that the result has this size."""
    last = layout.endswith("C")
    data = np.moveaxis(np_data, -1, 1) if last else np_data
    size = _many(out_size, data.ndim - 2)
    f = np.max if pool_type == "max" else np.mean
    out = np.zeros((*data.shape[:2], *size), data.dtype)
    for at in itertools.product(*map(range, size)):
        place = tuple(slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, data.shape[2:], size))
        out[(slice(None), slice(None), *at)] = f(
            data[(slice(None), slice(None), *place)].reshape(*data.shape[:2], -1), axis=-1
        )
    return np.moveaxis(out, 1, -1) if last else out


# ---- activations and normalisation


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """exp(x) / sum(exp(x))."""
    e = np.exp(a_np - a_np.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of softmax."""
    x = a_np - a_np.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def _spread(x: Array, axes: Sequence[int], rank: int) -> Array:
    return x.reshape([x.shape[list(axes).index(k)] if k in axes else 1 for k in range(rank)])


def _normal(data: Array, axes: Sequence[int], epsilon: float) -> Array:
    mean, var = data.mean(tuple(axes), keepdims=True), data.var(tuple(axes), keepdims=True)
    return (data - mean) / np.sqrt(var + epsilon)


def layer_norm_python(data: Array, gamma: Array, beta: Array, axis: Sequence[int], epsilon: float = 1e-5) -> Array:
    """Normalised over the axes."""
    axes = [k % data.ndim for k in axis]
    out = _normal(data, axes, epsilon) * _spread(gamma, axes, data.ndim)
    return out if beta is None else out + _spread(beta, axes, data.ndim)


def instance_norm_python(data: Array, gamma: Array, beta: Array, axis: Sequence[int], epsilon: float = 1e-5) -> Array:
    """Normalised over the axes, scaled by channel (axis 1)."""
    return _normal(data, axis, epsilon) * _spread(gamma, [1], data.ndim) + _spread(beta, [1], data.ndim)


def group_norm_python(
    data: Array,
    gamma: Array,
    beta: Array,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Array:
    """Normalised over the axes and the channels of a group."""
    shape, c = data.shape, channel_axis % data.ndim
    apart = data.reshape(*shape[:c], num_groups, shape[c] // num_groups, *shape[c + 1 :])
    over = [c + 1] + [k % data.ndim + (1 if k % data.ndim > c else 0) for k in axes]
    return _normal(apart, over, epsilon).reshape(shape) * _spread(gamma, [c], data.ndim) + _spread(beta, [c], data.ndim)


def rms_norm_python(data: Array, weight: Array, axis: Sequence[int], epsilon: float = 1e-5) -> Array:
    """Divided by the root of the mean square."""
    axes = [k % data.ndim for k in axis]
    return data / np.sqrt((data * data).mean(tuple(axes), keepdims=True) + epsilon) * _spread(weight, axes, data.ndim)


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    training: bool,
    momentum: float,
) -> List[Array]:
    """[normalised data, mean, variance]."""
    mean, var = moving_mean, moving_var
    if training:
        over = tuple(k for k in range(x.ndim) if k != axis)
        mean, var = x.mean(over), x.var(over)
        moving_mean, moving_var = (
            moving_mean * (1 - momentum) + mean * momentum,
            moving_var * (1 - momentum) + var * momentum,
        )
    out = (x - _spread(mean, [axis], x.ndim)) / np.sqrt(_spread(var, [axis], x.ndim) + epsilon)
    out = out * _spread(gamma, [axis], x.ndim) if scale else out
    return [out + _spread(beta, [axis], x.ndim) if center else out, moving_mean, moving_var]


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Divided by the weighted squares of its neighbours along an axis."""
    squares = np.moveaxis(a_np * a_np, axis, 0)
    sums = np.stack([squares[max(0, i - size // 2) : i + size // 2 + 1].sum(0) for i in range(len(squares))])
    return a_np / (bias + alpha / size * np.moveaxis(sums, 0, axis)) ** beta


def l2_normalize_python(a_np: Array, eps: float, axis: Any = None) -> Array:
    """Divided by its length."""
    return a_np / np.sqrt(
        np.maximum((a_np * a_np).sum(None if axis is None else tuple(_many(axis, 1)), keepdims=True), eps)
    )


# ---- elements by index, shapes


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """out[i][j] = data[indices[i][j]][j] for axis 0."""
    return np.take_along_axis(data, indices, axis)


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Slices at coordinates that stand along the first axis."""
    return a_np[tuple(indices_np)]


def one_hot(indices: Array, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> Array:
    """A new axis with on_value at the index."""
    out = np.where(indices[..., None] == np.arange(depth), on_value, off_value).astype(dtype)
    return np.moveaxis(out, -1, axis)


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """mask_value behind the valid length of each sequence; axis is 0 or 1."""
    at = np.arange(data.shape[axis])
    keep = at[:, None] < valid_length[None, :] if axis == 0 else at[None, :] < valid_length[:, None]
    return np.where(keep.reshape(*keep.shape, *[1] * (data.ndim - 2)), data, mask_value).astype(data.dtype)


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Where each value belongs in the row of its place."""
    side: Any = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side).astype(out_dtype)
    rows, wanted = sorted_sequence.reshape(-1, sorted_sequence.shape[-1]), values.reshape(-1, values.shape[-1])
    return np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, wanted)]).reshape(values.shape).astype(out_dtype)


def slice_axis_python(data: Array, axis: int, begin: int, end: Optional[int] = None) -> Array:
    """Part of one axis."""
    return data[(slice(None),) * (axis % data.ndim) + (slice(begin, end),)]


def strided_slice_python(
    data: Array, begin: Any, end: Any, strides: Any, slice_mode: str = "end", axes: Any = None
) -> Array:
    """Every strides-th element from begin before end; with the mode size, that many elements (-1: the rest)."""
    where = list(range(len(begin))) if axes is None else [k % data.ndim for k in axes]
    index = [slice(None)] * data.ndim
    for i, k in enumerate(where):
        if slice_mode == "size":
            index[k] = slice(begin[i], None if end[i] < 0 else begin[i] + end[i])
        else:
            step = 1 if not strides else strides[i if i < len(strides) else -1]
            stop = end[i] if i < len(end) else None
            index[k] = slice(begin[i], None if step < 0 and stop is not None and stop < -data.shape[k] else stop, step)
    return data[tuple(index)]


def strided_set_python(data: Array, v: Array, begin: Any, end: Any, strides: Any) -> Array:
    """data with v at a slice."""
    out = data.copy()
    out[tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides or [1] * len(begin)))] = v
    return out


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Blocks of the image as channels."""
    n, c, h, w = data.shape
    b = block_size
    return data.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Channels as blocks of the image."""
    n, c, h, w = data.shape
    b = block_size
    if mode == "DCR":
        return data.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)
    return data.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)


def upsampling_python(data: Array, scale: Tuple[int, int], layout: str = "NCHW") -> Array:
    """Larger images, by the nearest element."""
    h = layout.index("H")
    return data.repeat(scale[0], h).repeat(scale[1], h + 1)


def affine_grid_python(data: Array, target_shape: Sequence[int]) -> Array:
    """The grid of an affine map."""
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in target_shape), indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    return np.matmul(data, points).reshape(data.shape[0], 2, *target_shape).astype(data.dtype)


# ---- schedules by target


def _schedule_for(target: Any) -> Callable[..., Any]:
    t = target if isinstance(target, _Target) else _Target(target)
    if t.device not in ("cpu", "microcontroller"):
        raise _error.UnsupportedError(f"topi has schedules for CPUs, not for '{t}'")
    return _generic.schedule


get_injective_schedule = get_elemwise_schedule = get_broadcast_schedule = _schedule_for
get_reduce_schedule = get_softmax_schedule = _schedule_for
