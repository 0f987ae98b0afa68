"""Rows for arithmetic, comparisons, activations, sums and products."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import numpy as np

from ...expr import RelayExpr, call_op
from ...expr import Tuple as TupleExpr
from ..functions import expm1, log1p, softplus
from ..values import dt, expr, ints, known, like, op, rank, refuse, sizes
from .graph import row
from .program import Op

# ---- one operand

UNARY = {
    "abs": "abs", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh",
    "bitwise_not": "bitwise_not", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp",
    "floor": "floor", "isfinite": "isfinite", "isinf": "isinf", "isnan": "isnan", "log": "log", "log10": "log10",
    "log2": "log2", "logical_not": "logical_not", "relu": "nn.relu", "rsqrt": "rsqrt", "sigmoid": "sigmoid",
    "sign": "sign", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
}  # fmt: skip


def _unary(name: str) -> None:
    row(name)(lambda n, x: op(UNARY[name], x))


for _name in UNARY:
    _unary(_name)


def _affine(x: Any, factor: float, more: float) -> RelayExpr:
    return op("add", op("multiply", x, like(factor, x)), like(more, x))


def _between(x: Any, low: float, high: float) -> RelayExpr:
    return op("minimum", op("maximum", x, like(low, x)), like(high, x))


def _below_zero(x: Any, low: RelayExpr) -> RelayExpr:
    return op("where", op("greater", x, like(0, x)), x, low)


def _round(n: Op, x: Any) -> RelayExpr:
    return op("round", x) if not n.get("decimals", 0) else refuse("decimals")


def _gelu(n: Op, x: Any) -> RelayExpr:
    half = op("multiply", x, like(0.5, x))
    if n.get("approximate", False):
        cube = op("multiply", op("multiply", x, x), x)
        inner = op("add", x, op("multiply", cube, like(0.044715, x)))
        bent = op("tanh", op("multiply", inner, like(0.7978845608028654, x)))
        return op("multiply", half, op("add", bent, like(1, x)))
    return op("multiply", half, op("add", op("erf", op("multiply", x, like(0.7071067811865476, x))), like(1, x)))


def _softplus(n: Op, x: Any) -> RelayExpr:
    beta, threshold = n.get("beta", 1.0), n.get("threshold", 20.0)
    scaled = op("multiply", x, like(beta, x))
    soft = op("divide", softplus(scaled), like(beta, x))
    return op("where", op("greater", scaled, like(threshold, x)), x, soft)


def _outside(x: Any, threshold: float, inside: Any) -> RelayExpr:
    return op("where", op("greater", op("abs", x), like(threshold, x)), x, inside)


SHORT: Dict[str, Callable[[Op, Any], RelayExpr]] = {
    "celu": lambda n, x: _below_zero(
        x, op("multiply", expm1(op("divide", x, like(n.get("alpha", 1.0), x))), like(n.get("alpha", 1.0), x))
    ),
    "elu": lambda n, x: _below_zero(x, op("multiply", expm1(x), like(n.get("alpha", 1.0), x))),
    "expm1": lambda n, x: expm1(x),
    "gelu": _gelu,
    "hardshrink": lambda n, x: _outside(x, n.get("threshold", 0.5), like(0, x)),
    "hardsigmoid": lambda n, x: _between(_affine(x, n.get("slope", 1 / 6), n.get("offset", 0.5)), 0, 1),
    "hardswish": lambda n, x: op("multiply", x, op("multiply", _between(_affine(x, 1, 3), 0, 6), like(1 / 6, x))),
    "hardtanh": lambda n, x: _between(x, n.get("t_min", -1.0), n.get("t_max", 1.0)),
    "leaky_relu": lambda n, x: op("nn.leaky_relu", x, alpha=n.get("negative_slope", 0.02)),
    "log1p": lambda n, x: log1p(x),
    "logsigmoid": lambda n, x: op("negative", softplus(op("negative", x))),
    "mish": lambda n, x: op("multiply", x, op("tanh", softplus(x))),
    "reciprocal": lambda n, x: op("divide", like(1, x), x),
    "relu6": lambda n, x: _between(x, 0, 6),
    "round": _round,
    "selu": lambda n, x: op(
        "multiply", _below_zero(x, op("multiply", expm1(x), like(n.get("alpha"), x))), like(n.get("scale"), x)
    ),
    "silu": lambda n, x: op("multiply", x, op("sigmoid", x)),
    "softplus": _softplus,
    "softshrink": lambda n, x: op("subtract", x, _between(x, -n.get("threshold", 0.5), n.get("threshold", 0.5))),
    "softsign": lambda n, x: op("divide", x, op("add", op("abs", x), like(1, x))),
    "square": lambda n, x: op("multiply", x, x),
    "swish": lambda n, x: op("multiply", x, op("sigmoid", x)),
    "tanh_shrink": lambda n, x: op("subtract", x, op("tanh", x)),
    "thresholded_relu": lambda n, x: op(
        "where", op("greater", x, like(n.get("threshold", 1.0), x)), x, like(n.get("value", 0.0), x)
    ),
}
for _name, _f in SHORT.items():
    row(_name)(_f)


@row("prelu")
def _prelu(n: Op, x: Any, slope: Any) -> RelayExpr:
    mode = n.get("mode", "all")
    axis = 1 if n.get("data_format", "NCHW").startswith("NC") else rank(x) - 1
    if mode == "element":
        slope = op("expand_dims", slope, axis=0) if rank(slope) < rank(x) else slope
    else:
        slope = op("reshape", slope, newshape=[-1 if i == axis and mode == "channel" else 1 for i in range(rank(x))])
    return _below_zero(x, op("multiply", x, slope))


@row("maxout")
def _maxout(n: Op, x: Any) -> RelayExpr:
    shape, axis = sizes(x), n.get("axis", 1) % rank(x)
    parts = [*shape[:axis], shape[axis] // n.get("groups"), n.get("groups"), *shape[axis + 1 :]]
    return op("max", op("reshape", x, newshape=parts), axis=[axis + 1])


@row("scale", fold=lambda n, x, s=None: _scaled_now(n, x, s))
def _scale(n: Op, x: Any, factor: Any = None) -> RelayExpr:
    """x factor + bias, or (x + bias) factor; in the dtype of x."""
    by = op("cast", factor, dtype=dt(x)) if isinstance(factor, RelayExpr) else like(_factor(n, factor), x)
    by = op("reshape", by, newshape=[]) if rank(by) else by
    bias = like(n.get("bias", 0.0), x)
    if n.get("bias_after_scale", True):
        return op("add", op("multiply", x, by), bias) if n.get("bias", 0.0) else op("multiply", x, by)
    return op("multiply", op("add", x, bias), by)


def _factor(n: Op, factor: Any) -> float:
    return float(factor.reshape(-1)[0]) if factor is not None else n.get("scale", 1.0)


def _scaled_now(n: Op, x: np.ndarray, factor: Any) -> np.ndarray:
    by, bias = x.dtype.type(_factor(n, factor)), x.dtype.type(n.get("bias", 0.0))
    return (x * by + bias if n.get("bias_after_scale", True) else (x + bias) * by).astype(x.dtype)


@row("increment", fold=lambda n, x: x + x.dtype.type(n.get("value", 1.0)))
def _increment(n: Op, x: Any) -> RelayExpr:
    return op("add", x, like(n.get("value", 1.0), x))


@row("pow")
def _pow(n: Op, x: Any) -> RelayExpr:
    y = n.get("y", 1.0)
    return op("multiply", x, x) if y == 2 else op("power", x, like(y, x))


@row("cast", fold=lambda n, x: x.astype(n.dtype()) if n.dtype() != "bfloat16" else _cast(n, x))
def _cast(n: Op, x: Any) -> RelayExpr:
    to = n.dtype() or refuse("no dtype")
    return expr(x) if dt(x) == to else op("cast", x, dtype=to)


@row("clip", fold=lambda n, x, a, b: np.clip(x, a.item(), b.item()).astype(x.dtype))
def _clip(n: Op, x: Any, low: Any, high: Any) -> RelayExpr:
    def limit(v: Any) -> Any:
        v = op("cast", v, dtype=dt(x)) if isinstance(v, RelayExpr) else like(known(v, "a limit").reshape(-1)[0], x)
        return op("reshape", v, newshape=[]) if rank(v) else v

    return op("minimum", op("maximum", x, limit(low)), limit(high))


@row("dropout")
def _dropout(n: Op, x: Any, _seed: Any = None, p: Any = None) -> RelayExpr:
    if not n.get("is_test", False):
        return refuse("training; save the model behind layer.eval()")
    if n.get("mode", "upscale_in_train") == "upscale_in_train":
        return expr(x)
    return op("multiply", x, like(1.0 - float(known(p, "a probability").reshape(-1)[0]), x))


# ---- two operands

BINARY: Dict[str, Any] = {
    "add": ("add", np.add), "atan2": ("atan2", None), "bitwise_and": ("bitwise_and", None),
    "bitwise_or": ("bitwise_or", None), "bitwise_xor": ("bitwise_xor", None), "divide": ("divide", None),
    "elementwise_pow": ("power", None), "equal": ("equal", np.equal), "floor_divide": ("floor_divide", np.floor_divide),
    "greater_equal": ("greater_equal", np.greater_equal), "greater_than": ("greater", np.greater),
    "less_equal": ("less_equal", np.less_equal), "less_than": ("less", np.less),
    "logical_and": ("logical_and", np.logical_and), "logical_or": ("logical_or", np.logical_or),
    "logical_xor": ("logical_xor", None), "maximum": ("maximum", np.maximum), "minimum": ("minimum", np.minimum),
    "multiply": ("multiply", np.multiply), "not_equal": ("not_equal", np.not_equal),
    "remainder": ("floor_mod", np.mod), "subtract": ("subtract", np.subtract),
}  # fmt: skip


def _aligned(n: Op, x: Any, y: Any) -> Any:
    """In the older form y may stand at an axis of x that is not the last."""
    axis = n.get("axis", -1)
    if axis == -1 or rank(x) <= rank(y):
        return y
    behind = rank(x) - rank(y) - axis
    if axis < 0 or behind < 0:
        return refuse(f"an operand of rank {rank(y)} at axis {axis} of one of rank {rank(x)}")
    return op("reshape", y, newshape=[*sizes(y), *[1] * behind])


def _binary(name: str) -> None:
    relay_name, by_numpy = BINARY[name]
    fold = None if by_numpy is None else lambda n, a, b: np.asarray(by_numpy(a, b))
    row(name, fold=fold)(lambda n, a, b: op(relay_name, a, _aligned(n, a, b)))


for _name in BINARY:
    _binary(_name)


@row("fmax", "fmin")
def _fmax(n: Op, a: Any, b: Any) -> RelayExpr:
    """The other one where one is no number."""
    made = op("maximum" if n.name == "fmax" else "minimum", a, b)
    return op("where", op("isnan", a), b, op("where", op("isnan", b), a, made))


@row("heaviside")
def _heaviside(n: Op, x: Any, y: Any) -> RelayExpr:
    side = op("cast", op("greater", x, like(0, x)), dtype=dt(x))
    return op("where", op("equal", x, like(0, x)), y, side)


@row("where", fold=lambda n, c, a, b: np.where(c, a, b))
def _where(n: Op, condition: Any, a: Any, b: Any) -> RelayExpr:
    return op("where", condition, a, b)


@row("masked_fill")
def _masked_fill(n: Op, x: Any, mask: Any, value: Any) -> RelayExpr:
    return op("where", mask, op("cast", value, dtype=dt(x)) if dt(value) != dt(x) else value, x)


@row("add_n")
def _add_n(n: Op, args: List[Any]) -> RelayExpr:
    made = expr(args[0])
    for a in args[1:]:
        made = op("add", made, a)
    return made


# ---- sums and the like

REDUCE = {"sum": "sum", "mean": "mean", "max": "max", "min": "min", "amax": "max", "amin": "min", "prod": "prod",
          "all": "all", "any": "any"}  # fmt: skip


def _axes(n: Op, x: Any, axis: Any) -> List[int]:
    axes = ints(axis, "axes") if axis is not None else list(n.get("axis", []))
    axes = [] if n.get("reduce_all", False) else axes
    return [a % max(rank(x), 1) for a in axes] or list(range(rank(x)))


@row(*REDUCE, fold=lambda n, x, a=None: _reduced_now(n, x, a))
def _reduce(n: Op, x: Any, axis: Any = None) -> RelayExpr:
    to = n.dtype() or ("int64" if n.name in ("sum", "prod") and dt(x) in ("bool", "int32") else dt(x))
    x = op("cast", x, dtype=to) if to != dt(x) and n.name not in ("all", "any") else x
    axes = _axes(n, x, axis)
    return op(REDUCE[n.name], x, axis=axes, keepdims=n.get("keepdim", False)) if axes else expr(x)


def _reduced_now(n: Op, x: np.ndarray, axis: Any) -> np.ndarray:
    made = getattr(np, REDUCE[n.name])(x, axis=tuple(_axes(n, x, axis)), keepdims=n.get("keepdim", False))
    return np.asarray(made).astype(n.dtype() or made.dtype)


@row("logsumexp")
def _logsumexp(n: Op, x: Any) -> RelayExpr:
    return op("logsumexp", x, axis=_axes(n, x, None), keepdims=n.get("keepdim", False))


@row("p_norm", "dist", "frobenius_norm")
def _norm(n: Op, x: Any, y: Any = None) -> RelayExpr:
    """The sum of |x|^p along an axis, to the power of 1/p."""
    keep = n.get("keepdim", False)
    p = n.get("porder", n.get("p", 2.0))
    axes = [n.get("axis", -1) % rank(x)]
    if n.name == "dist":
        x, axes = op("subtract", x, y), list(range(max(rank(x), rank(y))))
    elif n.name == "frobenius_norm":
        axes = _axes(n, x, y)
    elif n.get("asvector", False):
        axes = list(range(rank(x)))
    if p == 2:
        return op("sqrt", op("sum", op("multiply", x, x), axis=axes, keepdims=keep))
    size = op("abs", x)
    if np.isinf(p):
        return op("max" if p > 0 else "min", size, axis=axes, keepdims=keep)
    if p == 1:
        return op("sum", size, axis=axes, keepdims=keep)
    if p == 0:
        return op("sum", op("cast", op("not_equal", x, like(0, x)), dtype=dt(x)), axis=axes, keepdims=keep)
    total = op("sum", op("power", size, like(p, x)), axis=axes, keepdims=keep)
    return op("power", total, like(1 / p, x))


@row("argmax", "argmin")
def _arg(n: Op, x: Any, axis: Any = None) -> RelayExpr:
    keep = n.get("keepdims", False)
    at = ints(axis, "an axis")[0] if axis is not None else n.get("axis", -1)
    if n.get("flatten", False):
        shape = [1] * rank(x) if keep else []
        x = op("reshape", x, newshape=[-1])
        return op("reshape", op("cast", op(n.name, x, axis=[0]), dtype=n.dtype() or "int64"), newshape=shape)
    return op("cast", op(n.name, x, axis=[at % rank(x)], keepdims=keep), dtype=n.dtype() or "int64")


@row("cumsum", "cumprod")
def _cumulative(n: Op, x: Any, axis: Any = None) -> RelayExpr:
    at = ints(axis, "an axis")[0] if axis is not None else n.get("dim", n.get("axis", -1))
    if n.get("flatten", False):
        x, at = op("reshape", x, newshape=[-1]), 0
    return op(n.name, x, axis=[at % rank(x)], exclusive=n.get("exclusive", False), reverse=n.get("reverse", False))


@row("softmax", "log_softmax")
def _softmax(n: Op, x: Any) -> RelayExpr:
    return op(f"nn.{n.name}", x, axis=n.get("axis", -1) % max(rank(x), 1))


@row("cross_entropy_with_softmax")
def _cross_entropy(n: Op, x: Any, label: Any) -> Any:
    axis = n.get("axis", -1) % rank(x)
    soft = op("nn.softmax", x, axis=axis) if n.get("use_softmax", True) else expr(x)
    logs = op("nn.log_softmax", x, axis=axis) if n.get("use_softmax", True) else op("log", x)
    if n.get("soft_label", False):
        return soft, op("negative", op("sum", op("multiply", logs, label), axis=[axis], keepdims=True))
    skipped = op("equal", label, like(n.get("ignore_index", -100), label))
    found = op("gather", logs, op("where", skipped, like(0, label), label), axis=axis)
    return soft, op("where", skipped, like(0, x), op("negative", found))


# ---- products


@row("matmul")
def _matmul(n: Op, a: Any, b: Any) -> RelayExpr:
    return product(a, b, n.get("transpose_x", False), n.get("transpose_y", False))


def product(a: Any, b: Any, turn_a: bool = False, turn_b: bool = False) -> RelayExpr:
    """a b as numpy has it; the last two axes of either turned."""
    if rank(a) == 1 or rank(b) == 1:
        left, right = rank(a) == 1, rank(b) == 1
        a = op("expand_dims", a, axis=0) if left else a
        b = op("expand_dims", b, axis=1) if right else b
        made = product(a, b, turn_a and not left, turn_b and not right)
        shape = sizes(made)
        shape = shape[:-2] + ([] if left else shape[-2:-1]) + ([] if right else shape[-1:])
        return op("reshape", made, newshape=shape)
    if rank(a) == rank(b) == 2:
        return op("nn.matmul", a, b, transpose_a=turn_a, transpose_b=turn_b)
    if rank(b) == 2 and not turn_a:
        shape = sizes(a)
        made = product(op("reshape", a, newshape=[-1, shape[-1]]), b, False, turn_b)
        return op("reshape", made, newshape=[*shape[:-1], sizes(made)[-1]])
    batch = list(np.broadcast_shapes(tuple(sizes(a)[:-2]), tuple(sizes(b)[:-2])))
    flat = []
    for v in (a, b):
        shape = sizes(v)
        v = op("broadcast_to", v, shape=batch + shape[-2:]) if shape[:-2] != batch else v
        flat.append(op("reshape", v, newshape=[int(np.prod(batch)), *shape[-2:]]))
    made = call_op("nn.batch_matmul", flat, transpose_a=turn_a, transpose_b=turn_b)
    return op("reshape", made, newshape=batch + sizes(made)[-2:])


@row("bmm", "mv")
def _bmm(n: Op, a: Any, b: Any) -> RelayExpr:
    return product(a, b)


@row("dot")
def _dot(n: Op, a: Any, b: Any) -> RelayExpr:
    return op("sum", op("multiply", a, b), axis=[rank(a) - 1])


@row("addmm")
def _addmm(n: Op, x: Any, a: Any, b: Any) -> RelayExpr:
    made = op("multiply", product(a, b), like(n.get("alpha", 1.0), x))
    return op("add", op("multiply", x, like(n.get("beta", 1.0), x)), made)


@row("einsum")
def _einsum(n: Op, args: List[Any]) -> RelayExpr:
    return call_op("einsum", [TupleExpr([expr(a) for a in args])], equation=n.get("equation").replace(" ", ""))


@row("kron")
def _kron(n: Op, a: Any, b: Any) -> RelayExpr:
    more = max(rank(a), rank(b))
    sa, sb = ([1] * (more - rank(v)) + sizes(v) for v in (a, b))
    spread = [[d for pair in zip(s, [1] * more) for d in (pair if first else pair[::-1])]
              for first, s in ((True, sa), (False, sb))]  # fmt: skip
    made = op("multiply", *(op("reshape", v, newshape=s) for v, s in zip((a, b), spread)))
    return op("reshape", made, newshape=[i * j for i, j in zip(sa, sb)])


__all__ = ["product"]
