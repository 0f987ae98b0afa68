"""Operators whose Python function is not just arguments and attributes."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from ... import error
from .. import expr as _expr
from ..expr import TupleWrapper, as_expr, call_op, const
from ..op_rows import row
from .annotation import device_copy, on_device
from .table import make_call, make_function, wrap


def split(data: Any, indices_or_sections: Any, axis: int = 0) -> TupleWrapper:
    """Parts of a tensor along an axis: equal ones by number, or cut at the given indices."""
    cuts = not isinstance(indices_or_sections, int)
    attrs = {"indices_or_sections": indices_or_sections, "axis": axis, "mode": "indices" if cuts else "auto"}
    parts = make_call(row("split"), [data], attrs)
    return (
        wrap(parts, len(indices_or_sections) + 1 if cuts else indices_or_sections)
        if isinstance(parts, _expr.RelayExpr)
        else parts
    )


def take(data: Any, indices: Any, axis: Optional[int] = None, batch_dims: int = 0, mode: str = "clip") -> Any:
    """Elements (without an axis, of the flattened data) or slices at the given indices."""
    return make_call(row("take"), [data, indices], {"axis": axis, "batch_dims": batch_dims, "mode": mode})


def gather(data: Any, axis: int, indices: Any) -> Any:
    """out[i][j] = data[indices[i][j]][j] for axis 0, and so on."""
    return make_call(row("gather"), [data, indices], {"axis": axis})


def strided_slice(
    data: Any, begin: Any, end: Any, strides: Any = None, axes: Any = None, slice_mode: str = "end"
) -> Any:
    """Every strides-th element from begin before end, for each axis (or for the axes given)."""
    attrs = {"begin": begin, "end": end, "strides": strides, "axes": axes, "slice_mode": slice_mode}
    if strides is None and any(isinstance(x, _expr.RelayExpr) for x in (begin, end)):
        n = next(x for x in (begin, end) if isinstance(x, _expr.RelayExpr)).checked_type.concrete_shape[0]
        attrs["strides"] = [1] * n
    return make_call(row("strided_slice"), [data], attrs)


def pad(data: Any, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Any:
    """Adds elements at the edges; pad_width is a pair (before, after) for each axis."""
    data = as_expr(data)
    if isinstance(pad_width, _expr.RelayExpr):
        return wrap(call_op("dyn.nn.pad", [data, pad_width, _expr._like(pad_value, data)], pad_mode=pad_mode))
    flat = [int(x) for pair in pad_width for x in (pair if isinstance(pair, (list, tuple)) else (pair, pair))]
    return call_op("nn.pad", [data, _expr._like(pad_value, data)], pad_width=flat, pad_mode=pad_mode)


def dropout(data: Any, rate: float = 0.5) -> Any:
    """The data itself: nothing is dropped when a model is used."""
    return _expr.TupleGetItem(call_op("nn.dropout", [as_expr(data)], rate=rate), 0)


def full(fill_value: Any, shape: Any = (), dtype: str = "") -> Any:
    """A tensor with one value everywhere."""
    value = as_expr(fill_value)
    if isinstance(shape, _expr.RelayExpr):
        return call_op("dyn.full", [value, shape], dtype=dtype)
    return call_op("full", [value], shape=list(shape), dtype=dtype)


def arange(start: Any, stop: Optional[Any] = None, step: Any = None, dtype: str = "float32") -> Any:
    """start, start + step, … before stop; with one argument from 0."""
    if stop is None:
        start, stop = 0, start
    given = [start, stop, 1 if step is None else step]
    return call_op(
        "arange", [x if isinstance(x, _expr.RelayExpr) else const(np.asarray(x, dtype)) for x in given], dtype=dtype
    )


def concatenate(data: Any, axis: int) -> Any:
    """Tensors one behind the other along an axis."""
    return make_call(row("concatenate"), [data], {"axis": axis})


def stack(data: Any, axis: int) -> Any:
    """Tensors of one shape, joined along a new axis."""
    return make_call(row("stack"), [data], {"axis": axis})


def einsum(data: Any, equation: str) -> Any:
    """Einstein summation."""
    return make_call(row("einsum"), [data], {"equation": equation})


def stft(
    data: Any,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Any,
    normalized: bool = False,
    onesided: bool = True,
) -> Any:
    """Short-time Fourier transform."""
    attrs = {
        "n_fft": n_fft,
        "hop_length": hop_length,
        "win_length": win_length,
        "normalized": normalized,
        "onesided": onesided,
    }
    return make_call(row("stft"), [data, window], attrs)


def all_class_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
    center_point_box: int = 0,
) -> Any:
    """Boxes to keep for each batch and class: rows of (batch, class, box), with room for all, and their number."""
    limit = _number(max_output_boxes_per_class, "int64")
    if isinstance(max_output_boxes_per_class, int) and max_output_boxes_per_class < 0:
        limit = const(np.iinfo("int32").max, "int64")  # TVM's -1: no limit
    operands = [boxes, scores, limit, _number(iou_threshold, "float32"), _number(score_threshold, "float32")]
    return make_call(
        row("vision.all_class_non_max_suppression"),
        operands,
        {"output_format": output_format, "center_point_box": center_point_box},
    )


def get_valid_counts(data: Any, score_threshold: Any, id_index: int = 0, score_index: int = 1) -> Any:
    """Boxes with a score above the threshold first: (their number, the boxes, where each was)."""
    operands = [data, _number(score_threshold, "float32")]
    return make_call(row("vision.get_valid_counts"), operands, {"id_index": id_index, "score_index": score_index})


def non_max_suppression(
    data: Any,
    valid_count: Any,
    indices: Any,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:
    """Boxes by falling score that no better one covers; with return_indices (where they are, their number)."""
    r = row("vision.non_max_suppression")
    values = (force_suppress, top_k, coord_start, score_index, id_index, return_indices, invalid_to_bottom)
    operands = [data, valid_count, indices, _number(max_output_size, "int32"), _number(iou_threshold, "float32")]
    return make_call(r, operands, {a.name: v for a, v in zip(r.attrs, values)})


def sparse_to_dense(
    sparse_indices: Any, output_shape: Sequence[int], sparse_values: Any, default_value: Any = 0
) -> Any:
    """Values at their places, default_value elsewhere."""
    values = as_expr(sparse_values)
    operands = [as_expr(sparse_indices), values, _expr._like(default_value, values)]
    return make_call(row("sparse_to_dense"), operands, {"output_shape": output_shape})


def sparse_dense(dense_mat: Any, sparse_mat: Any, sparse_lhs: bool = False) -> Any:
    """A dense matrix times the transpose of a sparse one given by its rows: data, indices, indptr."""
    return make_call(row("nn.sparse_dense"), [dense_mat] + _compressed(sparse_mat), {"sparse_lhs": sparse_lhs})


def sparse_add(dense_mat: Any, sparse_mat: Any) -> Any:
    """A dense matrix plus a sparse one given by its rows: data, indices, indptr."""
    return make_call(row("nn.sparse_add"), [dense_mat] + _compressed(sparse_mat), {})


def _compressed(matrix: Any) -> List[Any]:
    """Three expressions: of a matrix of scipy, its arrays."""
    parts = [matrix.data, matrix.indices, matrix.indptr] if hasattr(matrix, "indptr") else list(matrix)
    return [as_expr(p) for p in parts]


def segment_sum(data: Any, segment_ids: Any, num_segments: Optional[int] = None) -> Any:
    """Row s of the result is the sum of data's rows that segment_ids says s of; without num_segments there are as many
    as the greatest of them says."""
    data, ids = as_expr(data), as_expr(segment_ids)
    t = data.checked_type
    if num_segments is not None:
        zeros = call_op("zeros", [], shape=[num_segments] + list(t.shape[1:]), dtype=t.dtype)
    else:
        last = call_op("cast", [call_op("max", [ids], axis=[0], keepdims=True)], dtype="int64")
        rows = call_op("add", [last, const(np.ones(1, "int64"))])
        rest = const(np.array(t.concrete_shape[1:], "int64"))
        shape = call_op("concatenate", [_expr.Tuple([rows, rest])], axis=0)
        zeros = call_op("dyn.zeros", [shape], dtype=t.dtype)
    return call_op("scatter_nd", [zeros, call_op("expand_dims", [ids], axis=0), data], mode="add")


def _bits(x: Any, bits: int, dtype: str, signs: bool) -> Any:
    """The lowest bits of x as a number; signs: each bit counts as 1 or -1, not as 1 or 0."""
    mask = 2**bits - 1
    x = call_op("bitwise_and", [as_expr(x), _expr._like(mask, as_expr(x))])
    x = call_op("cast", [x], dtype=dtype)
    return call_op("subtract", [call_op("multiply", [x, const(2, dtype)]), const(mask, dtype)]) if signs else x


def bitserial_conv2d(
    data: Any,
    weight: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    channels: Optional[int] = None,
    kernel_size: Any = (3, 3),
    activation_bits: int = 1,
    weight_bits: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Any:
    """Convolution of numbers of few bits; unipolar: a bit of the weight is 1 or -1.  Weights are not packed."""
    operands = [_bits(data, activation_bits, out_dtype, False), _bits(weight, weight_bits, out_dtype, unipolar)]
    attrs = {"strides": strides, "padding": padding, "channels": channels, "kernel_size": kernel_size}
    attrs.update(data_layout=data_layout, kernel_layout=kernel_layout, out_dtype=out_dtype)
    return make_call(row("nn.conv2d"), operands, attrs)


def bitserial_dense(
    data: Any,
    weight: Any,
    units: Optional[int] = None,
    data_bits: int = 1,
    weight_bits: int = 1,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Any:
    """Matrix product of numbers of few bits; unipolar: a bit of the weight is 1 or -1.  Weights are not packed."""
    operands = [_bits(data, data_bits, out_dtype, False), _bits(weight, weight_bits, out_dtype, unipolar)]
    return make_call(row("nn.dense"), operands, {"units": units, "out_dtype": out_dtype})


def _global_pool(kind: str, d: int, layout: str) -> Callable[..., Any]:
    def pool(data: Any, layout: str = layout, out_layout: str = "") -> Any:
        return make_call(
            row(f"nn.adaptive_{kind}_pool{d}d"),
            [data],
            {"output_size": [1] * d, "layout": layout, "out_layout": out_layout},
        )

    pool.__name__ = pool.__qualname__ = f"global_{kind}_pool{d}d"
    pool.__doc__ = f"The {'largest element' if kind == 'max' else 'mean'} of each channel."
    return pool


def upsampling3d(
    data: Any,
    scale_d: float = 1,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Any:
    """Data enlarged in three dimensions."""
    shape = as_expr(data).checked_type.concrete_shape
    size = [int(np.round(shape[layout.index(c)] * s)) for c, s in zip("DHW", (scale_d, scale_h, scale_w))]
    attrs = {"size": size, "layout": layout, "method": "linear" if method == "trilinear" else method}
    attrs["coordinate_transformation_mode"] = coordinate_transformation_mode
    return make_call(row("image.resize3d"), [data], attrs)


def cross_entropy(predictions: Any, targets: Any) -> Any:
    """Minus the mean, over the rows, of the sum of targets * log(predictions)."""
    return cross_entropy_with_logits(call_op("log", [as_expr(predictions)]), targets)


def cross_entropy_with_logits(predictions: Any, targets: Any) -> Any:
    """Minus the mean, over the rows, of the sum of targets * predictions, which are logarithms."""
    p = as_expr(predictions)
    total = call_op("sum", [call_op("multiply", [p, as_expr(targets)])])
    return call_op("divide", [call_op("negative", [total]), _expr._like(p.checked_type.concrete_shape[0], p)])


def _number(x: Any, dtype: str) -> Any:
    return x if isinstance(x, _expr.RelayExpr) else const(x, dtype)


def qnn_leaky_relu(
    x: Any, alpha: float, input_scale: Any, input_zero_point: Any, output_scale: Any, output_zero_point: Any
) -> Any:
    """x where it is positive, alpha * x elsewhere, of a quantized tensor."""
    operands = [x, input_scale, input_zero_point, output_scale, output_zero_point]
    return make_call(row("qnn.leaky_relu"), operands, {"alpha": alpha})


def qnn_concatenate(
    data: Any, input_scales: Any, input_zero_points: Any, output_scale: Any, output_zero_point: Any, axis: int
) -> Any:
    """Quantized tensors one behind the other, each requantized to the output's scale."""
    operands = [data, input_scales, input_zero_points, output_scale, output_zero_point]
    return make_call(row("qnn.concatenate"), operands, {"axis": axis})


def contrib_conv2d_nchwc(
    data: Any,
    kernel: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Any:
    """Convolution over blocks of channels."""
    return _blocked(
        "nn.contrib_conv2d_NCHWc",
        data,
        kernel,
        strides,
        padding,
        dilation,
        groups,
        channels,
        kernel_size,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
    )


def contrib_depthwise_conv2d_nchwc(
    data: Any,
    kernel: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Any:
    """Depthwise convolution over blocks of channels."""
    return _blocked(
        "nn.contrib_depthwise_conv2d_NCHWc",
        data,
        kernel,
        strides,
        padding,
        dilation,
        groups,
        channels,
        kernel_size,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
    )


def _blocked(name: str, data: Any, kernel: Any, *values: Any) -> Any:
    r = row(name)
    return make_call(r, [data, kernel], {a.name: v for a, v in zip(r.attrs, values)})


def _pair(x: Any, n: int) -> Any:
    return [int(x)] * n if isinstance(x, int) else x


def _spatial(name: str, n: int) -> Callable[..., Any]:
    """Sizes of an operator over n spatial axes may be given as one number."""
    r = row(name)
    plain = make_function(r)

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = plain.__signature__.bind(*args, **kwargs)  # type: ignore
        except TypeError:
            return plain(*args, **kwargs)  # which says what is wrong
        for key in ("strides", "padding", "dilation", "kernel_size", "pool_size", "output_size", "output_padding"):
            if isinstance(bound.arguments.get(key), int):
                bound.arguments[key] = _pair(bound.arguments[key], n)
        return plain(*bound.args, **bound.kwargs)

    function.__name__ = function.__qualname__ = name.rsplit(".", 1)[-1]
    function.__doc__, function.__signature__ = plain.__doc__, plain.__signature__  # type: ignore
    return function


def _overrides() -> Dict[str, Callable[..., Any]]:
    from .table import rows

    own: Sequence[Any] = (split, take, gather, strided_slice, full, arange, concatenate, stack, einsum, stft)
    table = {f.__name__: f for f in own}
    table.update({"on_device": on_device, "device_copy": device_copy})
    table.update({"nn.pad": pad, "nn.dropout": dropout})
    table["vision.all_class_non_max_suppression"] = all_class_non_max_suppression
    table.update({"sparse_to_dense": sparse_to_dense, "nn.sparse_dense": sparse_dense, "nn.sparse_add": sparse_add})
    table.update({"segment_sum": segment_sum, "nn.upsampling3d": upsampling3d, "nn.cross_entropy": cross_entropy})
    table.update(
        {"nn.cross_entropy_with_logits": cross_entropy_with_logits, "nn.fast_softmax": make_function(row("nn.softmax"))}
    )
    for d, layout in ((1, "NCW"), (3, "NCDHW")):
        table.update({f"nn.global_{kind}_pool{d}d": _global_pool(kind, d, layout) for kind in ("max", "avg")})
    table.update({"nn.bitserial_conv2d": bitserial_conv2d, "nn.bitserial_dense": bitserial_dense})
    table["vision.get_valid_counts"] = get_valid_counts
    table["vision.non_max_suppression"] = non_max_suppression
    table["nn.contrib_conv2d_NCHWc"] = contrib_conv2d_nchwc
    table["nn.contrib_depthwise_conv2d_NCHWc"] = contrib_depthwise_conv2d_nchwc
    table.update({"qnn.leaky_relu": qnn_leaky_relu, "qnn.concatenate": qnn_concatenate})
    table.update({n: _spatial(n, 2) for n in ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.avg_pool2d")})
    names = rows()
    for d in (1, 2, 3):
        for kind in (
            "conv{}d",
            "conv{}d_transpose",
            "max_pool{}d",
            "avg_pool{}d",
            "adaptive_avg_pool{}d",
            "adaptive_max_pool{}d",
        ):
            name = "nn." + kind.format(d)
            if name in names:
                table[name] = _spatial(name, d)
    return table


OVERRIDES = _overrides()
