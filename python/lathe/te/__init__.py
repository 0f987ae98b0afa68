"""Tensor expressions: what to compute, element by element, and schedules for it."""

from typing import Any

from .. import error as _error
from .. import tir as _tir
from ..tir import (
    abs, acos, acosh, add, all, any, argmax, argmin, asin, asinh, atan, atan2, atanh, ceil, ceildiv, clz,
    comm_reducer, const, copysign, cos, cosh, decl_buffer, div, erf, exp, exp2, exp10, floor, floordiv, floormod,
    fma, fmod, hypot, if_then_else, indexdiv, indexmod, isfinite, isinf, isnan, ldexp, likely, log, log1p, log2,
    log10, max_value, min_value, multiply, nearbyint, nextafter, popcount, power, prod, round, rsqrt, sigmoid, sin,
    sinh, sqrt, subtract, sum, tan, tanh, trunc, truncdiv, truncmod)
from . import hybrid
from .autodiff import gradient
from .operation import (
    compute, create_prim_func, evaluate, extern, placeholder, reduce_axis, scan, size_var, tag_scope, thread_axis,
    var)
from .schedule import Schedule, Stage, create_schedule
from .tensor import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, Tensor, TensorSlice
from .tensor_intrin import decl_tensor_intrin

AXIS_SEPARATOR = _tir.IndexMap.AXIS_SEPARATOR


def max(expr: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """The largest value over reduce axes, te.max(A[i, k], axis=k); or the larger of
    two values, te.max(x, 0.0)."""
    return _reduce_or_binary(_tir.max, _tir.op.reduce_max, expr, axis, where, init)


def min(expr: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """The smallest value over reduce axes, te.min(A[i, k], axis=k); or the smaller of
    two values, te.min(x, 6.0)."""
    return _reduce_or_binary(_tir.min, _tir.op.reduce_min, expr, axis, where, init)


def _reduce_or_binary(binary: Any, reducer: Any, expr: Any, axis: Any, where: Any, init: Any) -> Any:
    first = axis[0] if isinstance(axis, (list, tuple)) and axis else axis
    if isinstance(first, _tir.IterVar) and first.iter_type == _tir.IterVar.CommReduce:
        return reducer(expr, axis, where=where, init=init)
    if axis is None:
        raise _error.ArgumentError(f"te.{binary.__name__}: give axis, a reduce axis, or a second value to compare with")
    if isinstance(axis, (list, tuple)) or where is not None or init is not None:
        return reducer(expr, axis, where=where, init=init)
    return binary(expr, axis)


__all__ = [
    "ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ScanOp", "Schedule", "Stage", "Tensor", "TensorSlice",
    "abs", "acos", "acosh", "add", "all", "any", "argmax", "argmin", "asin", "asinh", "atan", "atan2", "atanh",
    "ceil", "ceildiv", "clz", "comm_reducer", "compute", "const", "copysign", "cos", "cosh", "create_prim_func",
    "create_schedule", "decl_buffer", "decl_tensor_intrin", "div", "erf", "evaluate", "exp", "exp10", "exp2",
    "extern", "floor", "floordiv", "floormod", "fma", "fmod", "gradient", "hybrid", "hypot", "if_then_else",
    "indexdiv", "indexmod",
    "isfinite", "isinf", "isnan", "ldexp", "likely", "log", "log10", "log1p", "log2", "max", "max_value", "min",
    "min_value", "multiply", "nearbyint", "nextafter", "placeholder", "popcount", "power", "prod", "reduce_axis",
    "round", "rsqrt", "scan", "sigmoid", "sin", "sinh", "size_var", "sqrt", "subtract", "sum", "tag_scope", "tan",
    "tanh", "thread_axis", "trunc", "truncdiv", "truncmod", "var",
]
