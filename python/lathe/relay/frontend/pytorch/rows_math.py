"""Rows for arithmetic, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .graph import FLOATS, Graph, RelayExpr, call_op, cast, const, dt, dtype_name, expand, full
from .table import refuse, row


def _float_unary(name: str) -> Any:
    def f(g: Graph, x: RelayExpr, *_rest: Any) -> RelayExpr:
        return call_op(name, [cast(x, g.out_dtype)])

    return f


for _aten, _relay in {
    "exp": "exp",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "neg": "negative",
    "round.default": "round",
}.items():
    row("aten." + _aten)(_float_unary(_relay))


@row("aten.abs")
def _abs(g: Graph, x: RelayExpr) -> RelayExpr:
    return x if dt(x) == "bool" or dt(x).startswith("uint") else call_op("abs", [x])


@row("aten.sign", "aten.sgn")
def _sign(g: Graph, x: RelayExpr) -> RelayExpr:
    if dt(x) == "bool":
        return x
    made = call_op("sign", [x])
    if dt(x) in FLOATS:  # PyTorch's sign of NaN is 0
        return call_op("where", [call_op("isnan", [x]), cast(0.0, dt(x)), made])
    return made


@row("aten.relu")
def _relu(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("nn.relu", [x]) if dt(x) in FLOATS else call_op("maximum", [x, cast(0, dt(x))])


@row("aten.leaky_relu")
def _leaky_relu(g: Graph, x: RelayExpr, slope: float) -> RelayExpr:
    return call_op("nn.leaky_relu", [x], alpha=float(slope))


@row("aten.prelu", "aten._prelu_kernel")
def _prelu(g: Graph, x: RelayExpr, weight: RelayExpr) -> RelayExpr:
    w = weight.checked_type.shape
    if len(w) == 1 and len(x.checked_type.shape) > 2:
        weight = call_op("reshape", [weight], newshape=[-1] + [1] * (len(x.checked_type.shape) - 2))
    return call_op("where", [call_op("greater", [x, cast(0, dt(x))]), x, call_op("multiply", [weight, x])])


@row("aten.reciprocal")
def _reciprocal(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("divide", [cast(1, g.out_dtype), cast(x, g.out_dtype)])


@row("aten.expm1")
def _expm1(g: Graph, x: RelayExpr) -> RelayExpr:
    """Near zero by its series; elsewhere 2 sinh(x/2) exp(x/2), which loses nothing."""
    x = cast(x, g.out_dtype)
    half = call_op("multiply", [x, cast(0.5, dt(x))])
    exact = call_op(
        "multiply", [cast(2.0, dt(x)), call_op("multiply", [call_op("sinh", [half]), call_op("exp", [half])])]
    )
    large = call_op("greater", [call_op("abs", [x]), cast(1.0, dt(x))])
    return call_op("where", [large, call_op("subtract", [call_op("exp", [x]), cast(1.0, dt(x))]), exact])


@row("aten.log1p")
def _log1p(g: Graph, x: RelayExpr) -> RelayExpr:
    """log(u) x / (u - 1) with u = 1 + x as it was rounded; x itself where u is 1."""
    x = cast(x, g.out_dtype)
    one = cast(1.0, dt(x))
    u = call_op("add", [x, one])
    d = call_op("subtract", [u, one])
    same = call_op("equal", [d, cast(0.0, dt(x))])
    safe = call_op("where", [same, one, d])
    exact = call_op("divide", [call_op("multiply", [call_op("log", [u]), x]), safe])
    plain = call_op("logical_or", [call_op("isinf", [x]), call_op("equal", [u, cast(0.0, dt(x))])])
    return call_op("where", [same, x, call_op("where", [plain, call_op("log", [u]), exact])])


@row("aten.exp2")
def _exp2(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("power", [cast(2.0, g.out_dtype), cast(x, g.out_dtype)])


@row("aten.isnan")
def _isnan(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("isnan", [x]) if dt(x) in FLOATS else full(False, g.out_shape, "bool")


@row("aten.isinf")
def _isinf(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("isinf", [x]) if dt(x) in FLOATS else full(False, g.out_shape, "bool")


@row("aten.logical_not")
def _logical_not(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("logical_not", [cast(x, "bool")])


@row("aten.bitwise_not")
def _bitwise_not(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("bitwise_not", [x])


@row("aten.round.decimals")
def _round_decimals(g: Graph, x: RelayExpr, decimals: int) -> RelayExpr:
    if dt(x) not in FLOATS:
        return x
    scale = cast(10.0 ** abs(decimals), dt(x))
    there, back = ("multiply", "divide") if decimals >= 0 else ("divide", "multiply")
    return call_op(back, [call_op("round", [call_op(there, [x, scale])]), scale])


# ---- two operands


def pair(g: Graph, a: Any, b: Any, dtype: str) -> list:
    """Two operands, tensors or numbers, in one dtype."""
    return [cast(a, dtype), cast(b, dtype)]


def _sum(name: str, logic: str) -> Any:
    def f(g: Graph, a: Any, b: Any, alpha: Any = 1) -> RelayExpr:
        d = g.out_dtype
        if d == "bool":
            return call_op(logic, pair(g, a, b, d)) if alpha else cast(a, d)
        b = cast(b, d)
        if alpha != 1:
            b = call_op("multiply", [b, cast(alpha, d)])
        return call_op(name, [cast(a, d), b])

    return f


row("aten.add")(_sum("add", "logical_or"))
row("aten.sub")(_sum("subtract", "logical_xor"))


@row("aten.rsub")
def _rsub(g: Graph, a: Any, b: Any, alpha: Any = 1) -> RelayExpr:
    d = g.out_dtype
    return call_op("subtract", [cast(b, d), call_op("multiply", [cast(a, d), cast(alpha, d)])])


@row("aten.mul")
def _mul(g: Graph, a: Any, b: Any) -> RelayExpr:
    return call_op("logical_and" if g.out_dtype == "bool" else "multiply", pair(g, a, b, g.out_dtype))


@row("aten.div", "aten.true_divide")
def _div(g: Graph, a: Any, b: Any, mode: Any = None) -> RelayExpr:
    operands = pair(g, a, b, g.out_dtype)
    if g.out_dtype not in FLOATS:  # prims.div of integers
        mode = mode or "trunc"
    if mode == "floor":
        return _floor_divide(g, a, b)
    if mode == "trunc":
        return call_op("trunc_divide", operands)
    return call_op("divide", operands)


@row("aten.floor_divide")
def _floor_divide(g: Graph, a: Any, b: Any) -> RelayExpr:
    d = g.out_dtype
    x, y = pair(g, a, b, d)
    if d not in FLOATS:
        return call_op("floor_divide", [x, y])
    # as Python divides floats: through the remainder, so that 1 // 0.1 is 9
    r = call_op("trunc_mod", [x, y])
    q = call_op("divide", [call_op("subtract", [x, r]), y])
    zero = cast(0.0, d)
    other = call_op(
        "logical_and",
        [
            call_op("not_equal", [r, zero]),
            call_op("not_equal", [call_op("less", [r, zero]), call_op("less", [y, zero])]),
        ],
    )
    q = call_op("where", [other, call_op("subtract", [q, cast(1.0, d)]), q])
    f = call_op("floor", [q])
    f = call_op(
        "where", [call_op("greater", [call_op("subtract", [q, f]), cast(0.5, d)]), call_op("add", [f, cast(1.0, d)]), f]
    )
    return call_op("where", [call_op("equal", [y, zero]), call_op("divide", [x, y]), f])


@row("aten.remainder")
def _remainder(g: Graph, a: Any, b: Any) -> RelayExpr:
    x, y = pair(g, a, b, g.out_dtype)
    if g.out_dtype not in FLOATS:
        return call_op("floor_mod", [x, y])
    r, zero = call_op("trunc_mod", [x, y]), cast(0.0, g.out_dtype)
    other = call_op(
        "logical_and",
        [
            call_op("not_equal", [r, zero]),
            call_op("not_equal", [call_op("less", [r, zero]), call_op("less", [y, zero])]),
        ],
    )
    return call_op("where", [other, call_op("add", [r, y]), r])


@row("aten.fmod")
def _fmod(g: Graph, a: Any, b: Any) -> RelayExpr:
    return call_op("trunc_mod", pair(g, a, b, g.out_dtype))


@row("aten.pow")
def _pow(g: Graph, a: Any, b: Any) -> RelayExpr:
    d = g.out_dtype
    if isinstance(b, (int, float)) and isinstance(a, RelayExpr):
        x = cast(a, d)
        if b == 2:
            return call_op("multiply", [x, x])
        if b == 1:
            return x
        if b == 0.5:
            return call_op("sqrt", [x])
        if b == -0.5:
            return call_op("rsqrt", [x])
        if b == 3:
            return call_op("multiply", [call_op("multiply", [x, x]), x])
    return (
        call_op("logical_or", [cast(a, d), call_op("logical_not", [cast(b, d)])])
        if d == "bool"
        else call_op("power", pair(g, a, b, d))
    )


@row("aten.atan2")
def _atan2(g: Graph, a: Any, b: Any) -> RelayExpr:
    return call_op("atan2", pair(g, a, b, g.out_dtype))


@row("aten.maximum")
def _maximum(g: Graph, a: Any, b: Any) -> RelayExpr:
    return call_op("maximum", pair(g, a, b, g.out_dtype))


@row("aten.minimum")
def _minimum(g: Graph, a: Any, b: Any) -> RelayExpr:
    return call_op("minimum", pair(g, a, b, g.out_dtype))


@row("aten.clamp")
def _clamp(g: Graph, x: Any, low: Any = None, high: Any = None) -> RelayExpr:
    d = g.out_dtype
    x = cast(x, d)
    if d in FLOATS and not isinstance(low, RelayExpr) and not isinstance(high, RelayExpr):
        return call_op(
            "clip", [x], a_min=-math.inf if low is None else float(low), a_max=math.inf if high is None else float(high)
        )
    if low is not None:
        x = call_op("maximum", [x, cast(low, d)])
    if high is not None:
        x = call_op("minimum", [x, cast(high, d)])
    return x


@row("aten.clamp_min")
def _clamp_min(g: Graph, x: Any, low: Any) -> RelayExpr:
    return _clamp(g, x, low)


@row("aten.clamp_max")
def _clamp_max(g: Graph, x: Any, high: Any) -> RelayExpr:
    return _clamp(g, x, None, high)


def _bits(name: str) -> Any:
    def f(g: Graph, a: Any, b: Any) -> RelayExpr:
        return call_op(name, pair(g, a, b, g.out_dtype))

    return f


for _aten, _relay in {
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "__lshift__": "left_shift",
    "__rshift__": "right_shift",
}.items():
    row("aten." + _aten)(_bits(_relay))


def _compare(name: str) -> Any:
    def f(g: Graph, a: Any, b: Any) -> RelayExpr:
        import torch

        d = dtype_name(torch.result_type(g.meta(0), g.meta(1)))
        if d == "bool" and name not in ("equal", "not_equal"):
            d = "uint8"
        return call_op(name, pair(g, a, b, d))

    return f


for _aten, _relay in {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}.items():
    row("aten." + _aten)(_compare(_relay))


def _logical(name: str) -> Any:
    def f(g: Graph, a: Any, b: Any) -> RelayExpr:
        return call_op(name, pair(g, a, b, "bool"))

    return f


for _aten in ("logical_and", "logical_or", "logical_xor"):
    row("aten." + _aten)(_logical(_aten))


@row("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def _where(g: Graph, condition: RelayExpr, a: Any, b: Any) -> RelayExpr:
    return call_op("where", [cast(condition, "bool")] + pair(g, a, b, g.out_dtype))


@row("aten.masked_fill")
def _masked_fill(g: Graph, x: RelayExpr, mask: RelayExpr, value: Any) -> RelayExpr:
    return call_op("where", [cast(mask, "bool"), cast(value, dt(x)), x])


@row("aten.gelu")
def _gelu(g: Graph, x: RelayExpr, approximate: str = "none") -> RelayExpr:
    d = dt(x)
    half, one = cast(0.5, d), cast(1.0, d)
    if approximate == "tanh":
        cube = call_op("multiply", [call_op("multiply", [x, x]), x])
        inner = call_op("add", [x, call_op("multiply", [cast(0.044715, d), cube])])
        t = call_op("tanh", [call_op("multiply", [cast(math.sqrt(2 / math.pi), d), inner])])
        return call_op("multiply", [call_op("multiply", [half, x]), call_op("add", [one, t])])
    e = call_op("erf", [call_op("multiply", [x, cast(math.sqrt(0.5), d)])])
    return call_op("multiply", [call_op("multiply", [x, half]), call_op("add", [one, e])])


@row("aten.silu")
def _silu(g: Graph, x: RelayExpr) -> RelayExpr:
    return call_op("multiply", [x, call_op("sigmoid", [x])])


# ---- dtypes and copies


@row("aten._to_copy", "aten.to.dtype", "prims.convert_element_type", "aten.to.dtype_layout", "aten.to.device")
def _to(g: Graph, x: RelayExpr, *_rest: Any) -> RelayExpr:
    """(A move to another device is none: what is compiled runs where its target says.)"""
    return convert(x, g.out_dtype)


def convert(x: RelayExpr, dtype: str) -> RelayExpr:
    """A cast as PyTorch has it: from float to an unsigned integer through int64, so that negative numbers wrap."""
    if dt(x) in FLOATS and (dtype.startswith("uint") or dtype in ("int8", "int16")):
        x = call_op("cast", [x], dtype="int64")
    return cast(x, dtype)


@row(
    "aten.clone",
    "aten.contiguous",
    "aten.alias",
    "aten.detach",
    "aten.lift_fresh_copy",
    "aten.lift_fresh",
    "aten.dropout",
    "aten.native_dropout",
    "aten._conj",
    "aten.resolve_conj",
    "aten.resolve_neg",
    "aten.positive",
    "prims.device_put",
    "aten.feature_dropout",
    "aten.alpha_dropout",
    "aten.detach_copy",
    "aten.alias_copy",
)
def _same(g: Graph, x: RelayExpr, *rest: Any) -> Any:
    name = g.node.target._schema.name
    if "dropout" in name and rest[-1]:
        refuse("random dropout of training; call model.eval() before exporting")
    if name == "aten::native_dropout":
        return [x, full(True, g.out_shape, "bool")]
    return x


@row("aten.copy")
def _copy(g: Graph, to: RelayExpr, source: RelayExpr, *_rest: Any) -> RelayExpr:
    return expand(convert(source, dt(to)), g.out_shape)


@row("aten.fill")
def _fill(g: Graph, to: RelayExpr, value: Any) -> RelayExpr:
    return expand(cast(value, dt(to)), g.out_shape)


@row(
    "aten.full",
    "aten.full_like",
    "aten.new_full",
    "aten.scalar_tensor",
    "aten.zeros",
    "aten.zeros_like",
    "aten.ones",
    "aten.ones_like",
    "aten.new_zeros",
    "aten.new_ones",
    "aten.empty",
    "aten.empty_like",
    "aten.new_empty",
    "aten.empty_strided",
    "aten.new_empty_strided",
    "aten.empty_permuted",
)
def _full(g: Graph, *args: Any) -> RelayExpr:
    """(What is empty holds whatever it holds: zeros here.)"""
    name = g.node.target._schema.name.split("::")[1]
    value = 1 if "ones" in name else 0
    if "full" in name:
        value = args[2] if name == "new_full" else args[1]
    elif name == "scalar_tensor":
        value = args[0]
    return full(value, g.out_shape, g.out_dtype)


@row("aten.item", "aten._local_scalar_dense")
def _item(g: Graph, x: RelayExpr) -> RelayExpr:
    made = call_op("reshape", [x], newshape=[])
    if dt(x) in FLOATS:
        return cast(made, "float64")
    return cast(made, "bool" if dt(x) == "bool" else "int64")


@row("aten.sym_size.int")
def _sym_size(g: Graph, x: RelayExpr, axis: int) -> Any:
    from .graph import dim

    return dim(x, axis)


@row(
    "aten._assert_async",
    "aten._linalg_check_errors",
    "aten._assert_scalar",
    "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size",
    "aten._assert_tensor_metadata",
    "aten._functional_assert_async",
    "aten._functional_sym_constrain_range",
    "aten._functional_sym_constrain_range_for_size",
    "aten._functional_assert_scalar",
    "aten._print",
    "_assert",
)
def _assertion(g: Graph, *args: Any) -> Any:
    """Sizes that do not fit are found where they meet; nothing else is asserted at run time."""
    return args[-1] if args and isinstance(args[-1], RelayExpr) else None


@row("aten.nan_to_num")
def _nan_to_num(g: Graph, x: RelayExpr, nan: Any = None, high: Any = None, low: Any = None) -> RelayExpr:
    d = dt(x)
    if d not in FLOATS:
        return x
    top = float(np.finfo(d).max) if d != "bfloat16" else 3.3895313892515355e38
    is_inf = call_op("isinf", [x])
    ends = call_op(
        "where",
        [
            call_op("greater", [x, cast(0.0, d)]),
            cast(top if high is None else high, d),
            cast(-top if low is None else low, d),
        ],
    )
    return call_op(
        "where", [call_op("isnan", [x]), cast(0.0 if nan is None else nan, d), call_op("where", [is_inf, ends, x])]
    )


@row("aten.signbit")
def _signbit(g: Graph, x: RelayExpr) -> RelayExpr:
    d = dt(x)
    if d not in FLOATS:
        return (
            full(False, g.out_shape, "bool")
            if d == "bool" or d.startswith("uint")
            else call_op("less", [x, cast(0, d)])
        )
    bits = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}[d]
    return call_op("less", [call_op("reinterpret", [x], dtype=bits), const(0, bits)])


# PyTorch's primitives that are one of the operators above
ROW_OF_PRIM = {
    "abs": "abs",
    "neg": "neg",
    "ceil": "ceil",
    "floor": "floor",
    "trunc": "trunc",
    "round": "round.default",
    "exp": "exp",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
    "expm1": "expm1",
    "log1p": "log1p",
    "exp2": "exp2",
    "sign": "sign",
    "reciprocal": "reciprocal",
    "bitwise_not": "bitwise_not",
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "fmod": "fmod",
    "remainder": "remainder",
    "pow": "pow",
    "atan2": "atan2",
    "maximum": "maximum",
    "minimum": "minimum",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "where": "where.self",
    "signbit": "signbit",
}
