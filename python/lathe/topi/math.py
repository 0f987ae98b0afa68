"""Elementwise functions, broadcasting arithmetic, reductions."""

from __future__ import annotations

import builtins
import operator
from typing import Any, Callable, Dict, Tuple

from .. import error, relay, te, tir
from ..relay.expr import RelayExpr
from ._compute import Function, computed, computed_values, dtype

# ---- one operand


def _elementwise(name: str, op: str = "") -> Function:
    graph = getattr(relay, op or name)
    expression = getattr(tir, name, None)
    tensors = computed(lambda x: graph(x))

    def function(x: Any) -> Any:
        if isinstance(x, (tir.PrimExpr, te.TensorSlice)) and expression is not None:
            return expression(x)
        return tensors(x)

    return _named(function, name, graph.__doc__)


def _named(f: Function, name: str, doc: Any) -> Function:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


abs = _elementwise("abs")
acos = _elementwise("acos")
acosh = _elementwise("acosh")
asin = _elementwise("asin")
asinh = _elementwise("asinh")
atan = _elementwise("atan")
atanh = _elementwise("atanh")
bitwise_not = _elementwise("bitwise_not")
ceil = _elementwise("ceil")
cos = _elementwise("cos")
cosh = _elementwise("cosh")
erf = _elementwise("erf")
exp = _elementwise("exp")
fast_erf = _elementwise("fast_erf")
fast_exp = _elementwise("fast_exp")
fast_tanh = _elementwise("fast_tanh")
floor = _elementwise("floor")
identity = _elementwise("identity", "copy")
isfinite = _elementwise("isfinite")
isinf = _elementwise("isinf")
isnan = _elementwise("isnan")
log = _elementwise("log")
log10 = _elementwise("log10")
log2 = _elementwise("log2")
logical_not = _elementwise("logical_not")
negative = _elementwise("negative")
round = _elementwise("round")
rsqrt = _elementwise("rsqrt")
sigmoid = _elementwise("sigmoid")
sign = _elementwise("sign")
sin = _elementwise("sin")
sinh = _elementwise("sinh")
sqrt = _elementwise("sqrt")
tan = _elementwise("tan")
tanh = _elementwise("tanh")
trunc = _elementwise("trunc")


@computed
def _cast(x: Any, dtype: str) -> Any:
    return relay.cast(x, str(dtype))


def cast(x: Any, dtype: str, span: Any = None) -> Any:
    """The elements as another dtype; an expression is cast as one."""
    if isinstance(x, te.TensorSlice):
        x = x.asobject()
    return tir.Cast(str(dtype), x) if isinstance(x, tir.PrimExpr) else _cast(x, dtype)


@computed
def reinterpret(x: Any, dtype: str) -> Any:
    """The same bits as another dtype of the same width."""
    return relay.reinterpret(x, str(dtype))


@computed
def clip(x: Any, a_min: Any, a_max: Any) -> Any:
    """min(max(x, a_min), a_max); bounds are numbers or tensors."""
    if isinstance(a_min, RelayExpr) or isinstance(a_max, RelayExpr):
        return relay.minimum(relay.maximum(x, a_min), a_max)
    return relay.clip(x, float(a_min), float(a_max))


@computed
def fixed_point_multiply(x: Any, multiplier: int, shift: int) -> Any:
    """round(x * multiplier * 2^(shift - 31)), ties up."""
    return relay.fixed_point_multiply(x, multiplier, shift)


@computed
def full(shape: Any, dtype: str, fill_value: Any) -> Any:
    """A tensor of one value."""
    shape = shape if isinstance(shape, (list, tuple)) else [shape]
    return relay.full(_scalar(fill_value, str(dtype)), shape, str(dtype))


@computed
def full_like(x: Any, fill_value: Any) -> Any:
    """A tensor of one value, with the shape and dtype of x."""
    return relay.full_like(x, _scalar(fill_value, dtype(x)))


def _scalar(x: Any, dtype_: str) -> Any:
    return x if isinstance(x, RelayExpr) else relay.const(x, dtype_)


@computed
def elemwise_sum(xs: Any) -> Any:
    """The sum of tensors of one shape."""
    out = xs[0]
    for x in xs[1:]:
        out = relay.add(out, x)
    return out


# ---- two operands


def _bits(name: str) -> Tuple[int, int]:
    """How far up a dtype stands: floats above integers, then by width."""
    kind = name.rstrip("0123456789")
    return (1 if "float" in kind else 0), int(name[len(kind) :] or 1)


def matched(a: Any, b: Any) -> Tuple[Any, Any]:
    """Both operands with one dtype: that of the tensor, or the wider of two; an integer tensor beside a
    number with a fraction becomes float32."""
    if not isinstance(a, RelayExpr):
        b, a = matched(b, a)
        return a, b
    if not isinstance(b, RelayExpr):
        if isinstance(b, float) and not _bits(dtype(a))[0]:
            a = relay.cast(a, "float32")
        return a, relay.const(b, dtype(a))
    if dtype(a) == dtype(b):
        return a, b
    to = builtins.max(dtype(a), dtype(b), key=_bits)
    return (a if dtype(a) == to else relay.cast(a, to)), (b if dtype(b) == to else relay.cast(b, to))


_EXPRESSIONS: Dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": tir.div,
    "floor_divide": tir.floordiv,
    "mod": tir.truncmod,
    "floor_mod": tir.floormod,
    "power": tir.power,
    "maximum": tir.max,
    "minimum": tir.min,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "atan2": tir.atan2,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "logical_and": tir.all,
    "logical_or": tir.any,
}


def _broadcast(name: str) -> Function:
    graph = getattr(relay, name)
    expression = _EXPRESSIONS.get(name)
    tensors = computed_values(lambda lhs, rhs: graph(*matched(lhs, rhs)))

    def function(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, (te.Tensor, RelayExpr)) or isinstance(rhs, (te.Tensor, RelayExpr)):
            return tensors(lhs, rhs)
        if expression is None:
            raise error.UnsupportedError(f"topi.{name}: wants a tensor among its operands")
        return expression(tir.convert(lhs), tir.convert(rhs))

    return _named(function, name, graph.__doc__)


add = _broadcast("add")
atan2 = _broadcast("atan2")
bitwise_and = _broadcast("bitwise_and")
bitwise_or = _broadcast("bitwise_or")
bitwise_xor = _broadcast("bitwise_xor")
divide = _broadcast("divide")
equal = _broadcast("equal")
floor_divide = _broadcast("floor_divide")
floor_mod = _broadcast("floor_mod")
greater = _broadcast("greater")
greater_equal = _broadcast("greater_equal")
left_shift = _broadcast("left_shift")
less = _broadcast("less")
less_equal = _broadcast("less_equal")
logical_and = _broadcast("logical_and")
logical_or = _broadcast("logical_or")
logical_xor = _broadcast("logical_xor")
maximum = _broadcast("maximum")
minimum = _broadcast("minimum")
mod = _broadcast("mod")
multiply = _broadcast("multiply")
not_equal = _broadcast("not_equal")
power = _broadcast("power")
right_shift = _broadcast("right_shift")
subtract = _broadcast("subtract")


@computed
def broadcast_to(data: Any, shape: Any) -> Any:
    """data repeated to a shape it broadcasts to."""
    return relay.broadcast_to(data, shape)


@computed
def collapse_sum(data: Any, target_shape: Any) -> Any:
    """Sums what a broadcast from this shape would have repeated."""
    return relay.collapse_sum_to(data, target_shape)


# ---- reductions


def _reduction(name: str) -> Function:
    graph = getattr(relay, name)

    def function(data: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return graph(data, axis=_axes(axis), keepdims=bool(keepdims))

    return computed(_named(function, name, graph.__doc__))


def _extreme(name: str) -> Function:
    graph = getattr(relay, name)

    def function(data: Any, axis: Any = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
        return graph(data, axis=_axes(axis), keepdims=bool(keepdims), select_last_index=bool(select_last_index))

    return computed(_named(function, name, graph.__doc__))


def _axes(axis: Any) -> Any:
    return axis if axis is None or isinstance(axis, (list, tuple)) else [axis]


all = _reduction("all")
any = _reduction("any")
max = _reduction("max")
min = _reduction("min")
prod = _reduction("prod")
sum = _reduction("sum")
argmax = _extreme("argmax")
argmin = _extreme("argmin")


@computed
def cumsum(data: Any, axis: Any = None, dtype: Any = None, exclusive: Any = None) -> Any:
    """Sums of everything before and with (exclusive: without) each element."""
    return relay.cumsum(data, axis=axis, dtype=dtype, exclusive=bool(exclusive))


@computed
def cumprod(data: Any, axis: Any = None, dtype: Any = None, exclusive: Any = None) -> Any:
    """Products of everything before and with (exclusive: without) each element."""
    return relay.cumprod(data, axis=axis, dtype=dtype, exclusive=bool(exclusive))
