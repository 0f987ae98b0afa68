"""Rows for quantized models: PT2E's quantized_decomposed operators, and fake quantization.

Numbers per tensor and per channel become qnn.quantize and qnn.dequantize, which FakeQuantizationToInteger makes kernels
of integers of; those per token or per group are plain arithmetic."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np

from .graph import Graph, RelayExpr, call_op, cast, const, dt, dtype_name, reshape, shape, static
from .table import refuse, row

_INTS = ("int8", "uint8", "int16", "int32")


def _number(v: Any, dtype: str) -> RelayExpr:
    """A scale or zero point of a whole tensor: a number, or a tensor of one element."""
    if not isinstance(v, RelayExpr):
        return const(np.array(v, dtype))
    return cast(reshape(v, []), dtype)


def _limits(low: Any, high: Any, dtype: str) -> Tuple[float, float]:
    if isinstance(low, RelayExpr) or isinstance(high, RelayExpr):
        return refuse("limits that are known only at run time")
    info = np.iinfo(dtype)
    return max(low, info.min), min(high, info.max)


def _limited(x: RelayExpr, low: Any, high: Any) -> RelayExpr:
    info = np.iinfo(dt(x))
    low, high = _limits(low, high, dt(x))
    return x if (low, high) == (info.min, info.max) else call_op("clip", [x], a_min=float(low), a_max=float(high))


def _stored(dtype: Any) -> str:
    name = dtype if isinstance(dtype, str) else dtype_name(dtype)
    return name if name in _INTS else refuse(f"quantization to {name}")


def _quantize(x: RelayExpr, scale: RelayExpr, zero: RelayExpr, axis: int, low: Any, high: Any, dtype: Any) -> RelayExpr:
    args = [cast(x, "float32"), scale, zero]
    return _limited(call_op("qnn.quantize", args, axis=axis, out_dtype=_stored(dtype)), low, high)


def _dequantize(x: RelayExpr, scale: RelayExpr, zero: RelayExpr, axis: int, out: Any) -> RelayExpr:
    made = call_op("qnn.dequantize", [x, scale, zero], axis=axis)
    return made if out is None else cast(made, dtype_name(out))


def _zeros(zero: Any, like: RelayExpr) -> RelayExpr:
    return cast(zero, "int32") if zero is not None else const(np.zeros(static(like, "scales"), "int32"))


# ---- per tensor, per channel


@row("quantized_decomposed.quantize_per_tensor")
def _quantize_per_tensor(
    g: Graph, x: RelayExpr, scale: Any, zero: Any, low: Any, high: Any, dtype: Any
) -> RelayExpr:  # fmt: skip
    return _quantize(x, _number(scale, "float32"), _number(zero, "int32"), -1, low, high, dtype)


@row("quantized_decomposed.dequantize_per_tensor")
def _dequantize_per_tensor(
    g: Graph, x: RelayExpr, scale: Any, zero: Any, low: Any, high: Any, dtype: Any, out: Any = None
) -> RelayExpr:
    return _dequantize(x, _number(scale, "float32"), _number(zero, "int32"), -1, out)


@row("quantized_decomposed.quantize_per_channel")
def _quantize_per_channel(
    g: Graph, x: RelayExpr, scales: RelayExpr, zeros: Any, axis: int, low: Any, high: Any, dtype: Any
) -> RelayExpr:
    return _quantize(x, cast(scales, "float32"), _zeros(zeros, scales), axis, low, high, dtype)


@row("quantized_decomposed.dequantize_per_channel")
def _dequantize_per_channel(
    g: Graph, x: RelayExpr, scales: RelayExpr, zeros: Any, axis: int, low: Any, high: Any, dtype: Any, out: Any = None
) -> RelayExpr:
    return _dequantize(x, cast(scales, "float32"), _zeros(zeros, scales), axis, out)


# ---- numbers that come from the data


def _range(x: RelayExpr, axes: Any, keep: bool) -> Tuple[RelayExpr, RelayExpr]:
    """The least and the most, 0 among them."""
    nothing = const(np.array(0, dt(x)))
    low, high = (call_op(op, [x], axis=axes, keepdims=keep) for op in ("min", "max"))
    return call_op("minimum", [low, nothing]), call_op("maximum", [high, nothing])


def _fields(g: Graph, scale: RelayExpr, zero: RelayExpr) -> List[RelayExpr]:
    """Both as PyTorch has them."""
    known = [(dtype_name(t.dtype), list(t.shape)) for t in g.out]
    return [
        reshape(cast(v, dtype), to if all(isinstance(d, int) for d in to) else shape(v))
        for v, (dtype, to) in zip((scale, zero), known)
    ]


def _clipped(x: RelayExpr, low: float, high: float) -> RelayExpr:
    return call_op("clip", [x], a_min=float(low), a_max=float(high))


@row("quantized_decomposed.choose_qparams.tensor")
def _choose(g: Graph, x: RelayExpr, low: Any, high: Any, eps: float, dtype: Any) -> List[RelayExpr]:
    least, most = _range(x, None, False)
    step = call_op("divide", [call_op("subtract", [most, least]), const(np.array(float(high - low), dt(x)))])
    scale = call_op("maximum", [step, const(np.array(eps, dt(x)))])
    zero = call_op("subtract", [const(np.array(low, dt(x))), call_op("round", [call_op("divide", [least, scale])])])
    return _fields(g, scale, _clipped(zero, low, high))


@row("quantized_decomposed.choose_qparams_symmetric.tensor")
def _choose_symmetric(g: Graph, x: RelayExpr, low: Any, high: Any, eps: float, dtype: Any) -> List[RelayExpr]:
    least, most = _range(x, None, False)
    most = call_op("maximum", [call_op("negative", [least]), most])
    half = const(np.array((high - low) / 2, dt(x)))
    scale = call_op("maximum", [call_op("divide", [most, half]), const(np.array(eps, dt(x)))])
    return _fields(g, scale, const(np.array(128 if dtype_name(dtype) == "uint8" else 0, "int64")))


# ---- per token (each row has its numbers), per group of a row


def _store(x: RelayExpr, scale: RelayExpr, zero: RelayExpr, low: Any, high: Any, dtype: Any) -> RelayExpr:
    """round(x / scale) + zero within the limits; x is multiplied by the inverse, as PyTorch does."""
    inverse = call_op("divide", [const(np.array(1, dt(x))), cast(scale, dt(x))])
    made = call_op("add", [call_op("round", [call_op("multiply", [x, inverse])]), cast(zero, dt(x))])
    return cast(_clipped(made, low, high), _stored(dtype))


def _real(x: RelayExpr, scale: RelayExpr, zero: Any, out: Any) -> RelayExpr:
    made = cast(x, "float32")
    if zero is not None:
        made = call_op("subtract", [made, cast(zero, "float32")])
    return cast(call_op("multiply", [made, cast(scale, "float32")]), dtype_name(out))


@row("quantized_decomposed.quantize_per_token")
def _quantize_per_token(
    g: Graph, x: RelayExpr, scales: RelayExpr, zeros: RelayExpr, low: Any, high: Any, dtype: Any
) -> RelayExpr:
    return _store(x, scales, zeros, low, high, dtype)


@row("quantized_decomposed.dequantize_per_token")
def _dequantize_per_token(
    g: Graph, x: RelayExpr, scales: RelayExpr, zeros: RelayExpr, low: Any, high: Any, dtype: Any, out: Any
) -> RelayExpr:
    return _real(x, scales, zeros, out)


def _grouped(x: RelayExpr, size: int) -> RelayExpr:
    return reshape(x, [*shape(x)[:-1], static(x, "groups")[-1] // size, size])


def _each_group(v: Any, size: int) -> Any:
    return reshape(v, [*shape(v), 1]) if v is not None else None


@row("quantized_decomposed.quantize_per_channel_group")
def _quantize_per_group(
    g: Graph, x: RelayExpr, scales: RelayExpr, zeros: RelayExpr, low: Any, high: Any, dtype: Any, size: int
) -> RelayExpr:
    made = _store(_grouped(x, size), _each_group(scales, size), _each_group(zeros, size), low, high, dtype)
    return reshape(made, shape(x))


@row("quantized_decomposed.dequantize_per_channel_group")
def _dequantize_per_group(
    g: Graph, x: RelayExpr, scales: RelayExpr, zeros: Any, low: Any, high: Any, dtype: Any, size: int, out: Any
) -> RelayExpr:
    return reshape(_real(_grouped(x, size), _each_group(scales, size), _each_group(zeros, size), out), shape(x))


@row("quantized_decomposed.convert_element_type.no_fuse")
def _convert(g: Graph, x: RelayExpr, dtype: Any) -> RelayExpr:
    return cast(x, dtype_name(dtype))


# ---- fake quantization, which training leaves in a model


def _fake(g: Graph, x: RelayExpr, scale: RelayExpr, zero: RelayExpr, axis: int, low: int, high: int) -> RelayExpr:
    dtype = "int8" if low >= -128 and high <= 127 else "uint8" if low >= 0 and high <= 255 else "int32"
    return cast(_dequantize(_quantize(x, scale, zero, axis, low, high, dtype), scale, zero, axis, None), dt(x))


def _with_mask(g: Graph, made: RelayExpr) -> List[Any]:
    return [made, None] if not g.wants(1) else refuse("its mask, which is for training")


@row("aten.fake_quantize_per_tensor_affine_cachemask")
def _fake_per_tensor(g: Graph, x: RelayExpr, scale: Any, zero: Any, low: int, high: int) -> List[Any]:
    return _with_mask(g, _fake(g, x, _number(scale, "float32"), _number(zero, "int32"), -1, low, high))


@row("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def _fake_by_tensors(
    g: Graph, x: RelayExpr, scale: RelayExpr, zero: RelayExpr, enabled: Any, low: int, high: int
) -> List[Any]:
    made = _fake(g, x, _number(scale, "float32"), _number(zero, "int32"), -1, low, high)
    on = call_op("not_equal", [_number(enabled, "int32"), const(np.int32(0))])
    return _with_mask(g, call_op("where", [on, made, x]))


@row("aten.fake_quantize_per_channel_affine_cachemask")
def _fake_per_channel(
    g: Graph, x: RelayExpr, scale: RelayExpr, zero: RelayExpr, axis: int, low: int, high: int
) -> List[Any]:
    return _with_mask(g, _fake(g, x, cast(scale, "float32"), cast(zero, "int32"), axis, low, high))



