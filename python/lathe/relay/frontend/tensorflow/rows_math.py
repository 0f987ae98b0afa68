"""Rows for arithmetic, comparisons, activations, sums and products."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import numpy as np

from ...expr import RelayExpr, call_op
from ...expr import Tuple as TupleExpr
from ..functions import expm1, log1p, softplus
from .graph import Node, dt, expr, ints, like, op, rank, refuse, row, sizes

# ---- one operand

UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "IsFinite": "isfinite",
    "IsInf": "isinf", "IsNan": "isnan", "Log": "log", "LogicalNot": "logical_not", "Neg": "negative",
    "OnesLike": "ones_like", "Relu": "nn.relu", "Rint": "round", "Round": "round", "Rsqrt": "rsqrt",
    "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "ZerosLike": "zeros_like",
}  # fmt: skip
_NUMPY: Dict[str, Callable[..., Any]] = {
    "Abs": np.abs, "Ceil": np.ceil, "Floor": np.floor, "Neg": np.negative, "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x), "OnesLike": np.ones_like, "ZerosLike": np.zeros_like,
    "LogicalNot": np.logical_not,
}  # fmt: skip


def _unary(name: str) -> None:
    fold = _NUMPY.get(name)
    by_numpy = None if fold is None else lambda n, x: np.asarray(fold(x)).astype(x.dtype)
    row(name, fold=by_numpy)(lambda n, x: op(UNARY[name], x))


for _name in UNARY:
    _unary(_name)


def _short(x: RelayExpr, low: float, high: float) -> RelayExpr:
    return call_op("clip", [x], a_min=low, a_max=high)


@row("Relu6")
def _relu6(n: Node, x: Any) -> RelayExpr:
    return _short(expr(x), 0.0, 6.0)


@row("LeakyRelu")
def _leaky(n: Node, x: Any) -> RelayExpr:
    return op("nn.leaky_relu", x, alpha=n.f("alpha", 0.2))


def _elu_of(x: Any) -> RelayExpr:
    low = op("subtract", op("exp", op("minimum", x, like(0, x))), like(1, x))
    return op("where", op("greater", x, like(0, x)), x, low)


@row("Elu")
def _elu(n: Node, x: Any) -> RelayExpr:
    return _elu_of(x)


@row("Selu")
def _selu(n: Node, x: Any) -> RelayExpr:
    low = op("subtract", op("exp", op("minimum", x, like(0, x))), like(1, x))
    made = op("where", op("greater", x, like(0, x)), x, op("multiply", low, like(1.6732632423543772, x)))
    return op("multiply", made, like(1.0507009873554805, x))


@row("Softplus")
def _softplus(n: Node, x: Any) -> RelayExpr:
    return softplus(x)


@row("Softsign")
def _softsign(n: Node, x: Any) -> RelayExpr:
    return op("divide", x, op("add", op("abs", x), like(1, x)))


@row("Erfc")
def _erfc(n: Node, x: Any) -> RelayExpr:
    return op("subtract", like(1, x), op("erf", x))


@row("Square", fold=lambda n, x: x * x)
def _square(n: Node, x: Any) -> RelayExpr:
    return op("multiply", x, x)


@row("Reciprocal", "Inv")
def _reciprocal(n: Node, x: Any) -> RelayExpr:
    return op("divide", like(1, x), x)


@row("Log1p")
def _log1p(n: Node, x: Any) -> RelayExpr:
    return log1p(x)


@row("Expm1")
def _expm1(n: Node, x: Any) -> RelayExpr:
    return expm1(x)


@row("Softmax", "LogSoftmax")
def _softmax(n: Node, x: Any) -> RelayExpr:
    return op("nn.softmax" if n.op == "Softmax" else "nn.log_softmax", x, axis=-1)


@row("Cast", fold=lambda n, x: x.astype(n.dtype("DstT")) if n.dtype("DstT") != "bfloat16" else _cast(n, x))
def _cast(n: Node, x: Any) -> RelayExpr:
    to = n.dtype("DstT")
    return expr(x) if dt(x) == to else op("cast", x, dtype=to)


# ---- two operands

BINARY: Dict[str, Any] = {
    "Add": ("add", np.add), "AddV2": ("add", np.add), "BitwiseAnd": ("bitwise_and", None),
    "BitwiseOr": ("bitwise_or", None), "BitwiseXor": ("bitwise_xor", None), "Equal": ("equal", np.equal),
    "FloorDiv": ("floor_divide", np.floor_divide), "FloorMod": ("floor_mod", np.mod),
    "Greater": ("greater", np.greater), "GreaterEqual": ("greater_equal", np.greater_equal), "Less": ("less", np.less),
    "LessEqual": ("less_equal", np.less_equal), "LogicalAnd": ("logical_and", np.logical_and),
    "LogicalOr": ("logical_or", np.logical_or), "Maximum": ("maximum", np.maximum), "Minimum": ("minimum", np.minimum),
    "Mul": ("multiply", np.multiply), "NotEqual": ("not_equal", np.not_equal), "Pow": ("power", None),
    "RealDiv": ("divide", np.divide), "Sub": ("subtract", np.subtract),
}  # fmt: skip


def _binary(name: str) -> None:
    relay_name, by_numpy = BINARY[name]
    fold = None if by_numpy is None else lambda n, a, b: np.asarray(by_numpy(a, b))
    row(name, fold=fold)(lambda n, a, b: op(relay_name, a, b))


for _name in BINARY:
    _binary(_name)


@row("Div")
def _div(n: Node, a: Any, b: Any) -> RelayExpr:
    return op("divide", a, b) if dt(a).startswith("float") else refuse("a division of integers towards zero")


@row("DivNoNan")
def _div_no_nan(n: Node, a: Any, b: Any) -> RelayExpr:
    nothing = op("equal", b, like(0, b))
    made = op("divide", a, op("where", nothing, like(1, b), b))
    return op("where", nothing, op("zeros_like", made), made)


@row("SquaredDifference")
def _squared_difference(n: Node, a: Any, b: Any) -> RelayExpr:
    apart = op("subtract", a, b)
    return op("multiply", apart, apart)


@row("AddN")
def _add_n(n: Node, *args: Any) -> RelayExpr:
    made = expr(args[0])
    for a in args[1:]:
        made = op("add", made, a)
    return made


@row("BiasAdd", "BiasAddV1")
def _bias_add(n: Node, x: Any, bias: Any) -> RelayExpr:
    front = n.s("data_format", "NHWC").startswith("NC")
    return op("nn.bias_add", x, bias, axis=1 if front else rank(x) - 1)


@row("Select", "SelectV2", fold=lambda n, c, a, b: np.where(c, a, b))
def _select(n: Node, condition: Any, a: Any, b: Any) -> RelayExpr:
    if n.op == "Select" and rank(condition) == 1 and rank(a) > 1:
        condition = op("reshape", condition, newshape=[*sizes(condition), *[1] * (rank(a) - 1)])
    return op("where", condition, a, b)


# ---- sums and the like

REDUCE = {"Sum": "sum", "Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod", "All": "all", "Any": "any"}


def _reduced(n: Node, x: Any, axes: Any) -> Any:
    axes = [a % max(rank(x), 1) for a in ints(axes, "axes")]
    if not axes:
        return x
    return op(REDUCE[n.op], x, axis=axes, keepdims=n.b("keep_dims"))


def _reduced_now(n: Node, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    how = getattr(np, REDUCE[n.op])
    made = how(x, axis=tuple(int(a) for a in axes.reshape(-1)), keepdims=n.b("keep_dims"))
    return np.asarray(made).astype(x.dtype)


row(*REDUCE, fold=_reduced_now)(_reduced)


@row("ArgMax", "ArgMin")
def _arg(n: Node, x: Any, axis: Any = None) -> RelayExpr:
    at = ints(axis, "the axis")[0] if axis is not None else 0
    return op("cast", op(n.op.lower(), x, axis=[at]), dtype=n.dtype("output_type", "int64"))


@row("Cumsum")
def _cumsum(n: Node, x: Any, axis: Any) -> RelayExpr:
    at = ints(axis, "the axis")[0] % rank(x)
    return op("cumsum", x, axis=at, exclusive=n.b("exclusive"), reverse=n.b("reverse"))


# ---- products


@row("MatMul")
def _matmul(n: Node, a: Any, b: Any) -> RelayExpr:
    return op("nn.matmul", a, b, transpose_a=n.b("transpose_a"), transpose_b=n.b("transpose_b"))


@row("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _batch_matmul(n: Node, a: Any, b: Any) -> RelayExpr:
    if rank(a) == 2 and rank(b) == 2:
        return op("nn.matmul", a, b, transpose_a=n.b("adj_x"), transpose_b=n.b("adj_y"))
    sa, sb = sizes(a), sizes(b)
    outer = list(np.broadcast_shapes(tuple(sa[:-2]), tuple(sb[:-2])))
    flat = []
    for x, s in ((a, sa), (b, sb)):
        if s[:-2] != outer:
            x = op("broadcast_to", x, shape=[*outer, *s[-2:]])
        flat.append(op("reshape", x, newshape=[int(np.prod(outer, dtype=int)), *s[-2:]]))
    made = op("nn.batch_matmul", *flat, transpose_a=n.b("adj_x"), transpose_b=n.b("adj_y"))
    return op("reshape", made, newshape=[*outer, *sizes(made)[-2:]])


@row("Einsum")
def _einsum(n: Node, *args: Any) -> RelayExpr:
    return call_op("einsum", [TupleExpr([expr(a) for a in args])], equation=n.s("equation"))


__all__: List[str] = []
