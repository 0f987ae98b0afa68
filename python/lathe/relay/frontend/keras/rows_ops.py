"""Rows for Keras's operations that numpy has too: arithmetic, reductions, shapes, indices."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy as np

from ...expr import RelayExpr, call_op, const
from ...expr import Tuple as TupleExpr
from .trace import Node, refuse, row

FLOATS = ("float16", "float32", "float64", "bfloat16")


def rank(x: RelayExpr) -> int:
    """The number of dimensions."""
    return len(x.checked_type.shape)


def dtype_of(x: RelayExpr) -> str:
    """The dtype of an expression."""
    return x.checked_type.dtype


def known(x: RelayExpr, what: str) -> List[int]:
    """Its sizes where an operation wants all of them known."""
    found = x.checked_type.shape
    if not all(isinstance(d, int) for d in found):
        refuse(f"{what} of a tensor whose sizes are open ({x.checked_type})")
    return list(found)


def reshape(x: RelayExpr, to: Sequence[Optional[int]]) -> RelayExpr:
    """The elements in another shape, of whose sizes one may be open."""
    if sum(d is None for d in to) > 1:
        refuse(f"a reshape to {tuple(to)}, of which more than one size is open; shape= of from_keras says them")
    return call_op("reshape", [x], newshape=[-1 if d is None else int(d) for d in to])


# ---- elementwise

UNARY = {
    "Absolute": "abs", "Abs": "abs", "Fabs": "abs", "Arccos": "acos", "Arccosh": "acosh", "Arcsin": "asin",
    "Arcsinh": "asinh", "Arctan": "atan", "Arctanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh",
    "Exp": "exp", "Floor": "floor", "Log": "log", "Log10": "log10", "Log2": "log2", "Negative": "negative",
    "Rsqrt": "rsqrt", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan",
    "Tanh": "tanh", "Trunc": "trunc", "Erf": "erf", "Relu": "nn.relu",
}  # fmt: skip
TESTS = {"Isfinite": "isfinite", "Isinf": "isinf", "Isnan": "isnan"}
BINARY = {
    "Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Divide": "divide", "TrueDivide": "divide",
    "FloorDivide": "floor_divide", "Mod": "floor_mod", "Fmod": "mod", "Power": "power", "Maximum": "maximum",
    "Minimum": "minimum", "Arctan2": "atan2", "BitwiseLeftShift": "left_shift", "LeftShift": "left_shift",
    "BitwiseRightShift": "right_shift", "RightShift": "right_shift", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
}  # fmt: skip
COMPARISONS = {
    "Equal": "equal", "NotEqual": "not_equal", "Greater": "greater", "GreaterEqual": "greater_equal", "Less": "less",
    "LessEqual": "less_equal",
}  # fmt: skip
LOGIC = {"LogicalAnd": "logical_and", "LogicalOr": "logical_or", "LogicalXor": "logical_xor"}


@row(*UNARY)
def _unary(n: Node) -> RelayExpr:
    return call_op(UNARY[type(n.op).__name__], [n.tensor(0, "x", n.dtype)])


@row(*TESTS)
def _test(n: Node) -> RelayExpr:
    return call_op(TESTS[type(n.op).__name__], [n.tensor(0, "x")])


def operands(n: Node) -> List[Any]:
    """The two arguments, whatever they are called."""
    given = n.args + [v for k, v in n.kwargs.items() if k in ("x1", "x2", "x", "y")]
    return given[:2]


@row(*BINARY)
def _binary(n: Node) -> RelayExpr:
    return call_op(BINARY[type(n.op).__name__], [n.as_tensor(x, n.dtype) for x in operands(n)])


@row(*COMPARISONS)
def _comparison(n: Node) -> RelayExpr:
    a, b = operands(n)
    of = [x for x in (a, b) if isinstance(x, RelayExpr)]
    both = np.result_type(*[np.dtype(dtype_of(x)) for x in of]).name if of else "float32"
    plain = [x for x in (a, b) if isinstance(x, float)]
    both = "float32" if plain and both not in FLOATS else both
    return call_op(COMPARISONS[type(n.op).__name__], [n.as_tensor(x, both) for x in (a, b)])


@row(*LOGIC)
def _logic(n: Node) -> RelayExpr:
    return call_op(LOGIC[type(n.op).__name__], [n.as_tensor(x, "bool") for x in operands(n)])


@row("LogicalNot")
def _not(n: Node) -> RelayExpr:
    return call_op("logical_not", [n.tensor(0, "x", "bool")])


@row("Reciprocal")
def _reciprocal(n: Node) -> RelayExpr:
    x = n.tensor(0, "x", n.dtype)
    return call_op("divide", [const(1, n.dtype), x])


@row("Square")
def _square(n: Node) -> RelayExpr:
    x = n.tensor(0, "x", n.dtype)
    return call_op("multiply", [x, x])


@row("Log1p")
def _log1p(n: Node) -> RelayExpr:
    return call_op("log", [call_op("add", [n.tensor(0, "x", n.dtype), const(1, n.dtype)])])


@row("Expm1")
def _expm1(n: Node) -> RelayExpr:
    return call_op("subtract", [call_op("exp", [n.tensor(0, "x", n.dtype)]), const(1, n.dtype)])


@row("Round")
def _round(n: Node) -> RelayExpr:
    if n.op.decimals:
        refuse("rounding to decimals")
    return call_op("round", [n.tensor(0, "x", n.dtype)])


@row("Clip")
def _clip(n: Node) -> RelayExpr:
    x = n.tensor(0, "x", n.dtype)
    for name, bound in (("maximum", n.op.x_min), ("minimum", n.op.x_max)):
        if bound is not None:
            x = call_op(name, [x, n.as_tensor(np.asarray(bound), n.dtype)])
    return x


@row("DivideNoNan")
def _divide_no_nan(n: Node) -> RelayExpr:
    a, b = (n.as_tensor(x, n.dtype) for x in operands(n))
    zero = call_op("equal", [b, const(0, n.dtype)])
    safe = call_op("where", [zero, call_op("ones_like", [b]), b])
    quotient = call_op("divide", [a, safe])
    return call_op("where", [zero, call_op("zeros_like", [quotient]), quotient])


@row("Where")
def _where(n: Node) -> RelayExpr:
    condition = n.tensor(0, "condition", "bool")
    return call_op("where", [condition, n.tensor(1, "x1", n.dtype), n.tensor(2, "x2", n.dtype)])


@row("Cast", "SaturateCast")
def _cast(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    if type(n.op).__name__ == "SaturateCast" and n.dtype not in FLOATS and n.dtype != "bool":
        limits = np.iinfo(n.dtype)
        for name, bound in (("maximum", limits.min), ("minimum", limits.max)):
            x = call_op(name, [x, const(np.asarray(bound).astype(dtype_of(x)))])
    return n.as_tensor(x, n.dtype)


@row("ConvertToTensor", "Copy", "Array", "StopGradient", "Real", "Conj", "Conjugate")
def _same(n: Node) -> RelayExpr:
    return n.as_tensor(n.args[0] if n.args else next(iter(n.kwargs.values())), n.dtype)


@row("OnesLike", "ZerosLike", "FullLike")
def _like(n: Node) -> RelayExpr:
    kind = type(n.op).__name__
    x = n.as_tensor(n.tensor(0, "x"), n.dtype)
    made = call_op("zeros_like" if kind == "ZerosLike" else "ones_like", [x])
    return call_op("multiply", [made, n.tensor(1, "fill_value", n.dtype)]) if kind == "FullLike" else made


# ---- reductions


def axes_of(axis: Any) -> Optional[List[int]]:
    """None: all of them."""
    if axis is None:
        return None
    return [int(axis)] if np.ndim(axis) == 0 else [int(a) for a in axis]


REDUCTIONS = {
    "Sum": "sum", "Mean": "mean", "Max": "max", "Min": "min", "Amax": "max", "Amin": "min", "Prod": "prod",
    "All": "all", "Any": "any", "Var": "variance", "Std": "std", "Logsumexp": "logsumexp",
}  # fmt: skip


@row(*REDUCTIONS)
def _reduction(n: Node) -> RelayExpr:
    if getattr(n.op, "initial", None) is not None:
        refuse("an initial value")
    name = REDUCTIONS[type(n.op).__name__]
    x = n.tensor(0, "x", "bool" if name in ("all", "any") else n.dtype)
    return call_op(name, [x], axis=axes_of(n.op.axis), keepdims=bool(n.op.keepdims))


@row("CountNonzero")
def _count(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    on = call_op("cast", [call_op("not_equal", [x, const(0, dtype_of(x))])], dtype=n.dtype)
    return call_op("sum", [on], axis=axes_of(n.op.axis), keepdims=False)


@row("Argmax", "Argmin")
def _argument(n: Node) -> RelayExpr:
    x, axis = n.tensor(0, "x"), n.op.axis
    if axis is None:
        x, axis = call_op("reshape", [x], newshape=[-1]), 0
    found = call_op(type(n.op).__name__.lower(), [x], axis=[int(axis)], keepdims=bool(n.op.keepdims))
    return n.as_tensor(found, n.dtype)


@row("Cumsum", "Cumprod")
def _cumulative(n: Node) -> RelayExpr:
    x, axis = n.tensor(0, "x", n.dtype), n.op.axis
    if axis is None:
        x, axis = call_op("reshape", [x], newshape=[-1]), 0
    return call_op(type(n.op).__name__.lower(), [x], axis=int(axis))


@row("Moments")
def _moments(n: Node) -> List[RelayExpr]:
    x, axes = n.tensor(0, "x"), axes_of(n.op.axes)
    mean, variance = (call_op(f, [x], axis=axes, keepdims=bool(n.op.keepdims)) for f in ("mean", "variance"))
    return [n.as_tensor(mean, n.dtype), n.as_tensor(variance, n.dtype)]


@row("TopK")
def _topk(n: Node) -> List[RelayExpr]:
    made = call_op("topk", [n.tensor(0, "x")], k=int(n.op.k), axis=-1, ret_type="both", is_ascend=False, dtype="int32")
    return [made[0], made[1]]


@row("Sort", "Argsort")
def _sort(n: Node) -> RelayExpr:
    return n.as_tensor(call_op(type(n.op).__name__.lower(), [n.tensor(0, "x")], axis=int(n.op.axis)), n.dtype)


# ---- products


@row("Matmul")
def _matmul(n: Node) -> RelayExpr:
    a, b = (n.as_tensor(x, n.dtype) for x in operands(n))
    if rank(b) == 1:
        return call_op("sum", [call_op("multiply", [a, b])], axis=[-1], keepdims=False)
    if rank(a) == 1:
        return call_op("squeeze", [_product(call_op("expand_dims", [a], axis=0), b)], axis=[-2])
    return _product(a, b)


def _product(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Matrices in the last two dimensions; those before are broadcast."""
    if rank(b) == 2:
        made = call_op("nn.matmul", [a if rank(a) == 2 else reshape(a, [None, a.checked_type.shape[-1]]), b])
        return made if rank(a) == 2 else _split_first(made, a, b.checked_type.shape[-1])
    letters = "abcdefgh"[: max(rank(a), rank(b)) - 2]
    terms = [letters[len(letters) - (rank(x) - 2) :] + ends for x, ends in ((a, "xy"), (b, "yz"))]
    if rank(a) == rank(b) == 3:
        return call_op("nn.batch_matmul", [a, b], transpose_a=False, transpose_b=False)
    return call_op("einsum", [TupleExpr([a, b])], equation=f"{terms[0]},{terms[1]}->{letters}xz")


def _split_first(x: RelayExpr, like: RelayExpr, last: Any) -> RelayExpr:
    """The rows of a product as the dimensions that they were made from."""
    front = [d if isinstance(d, int) else None for d in like.checked_type.shape[:-1]]
    return reshape(x, [*front, last])


@row("Dot")
def _dot(n: Node) -> RelayExpr:
    a, b = (n.as_tensor(x, n.dtype) for x in operands(n))
    if rank(a) == 0 or rank(b) == 0:
        return call_op("multiply", [a, b])
    if rank(b) > 2:
        refuse("a second operand of more than two dimensions")
    return _matmul(n)


@row("Einsum")
def _einsum(n: Node) -> RelayExpr:
    parts = [n.as_tensor(x, n.dtype) for x in n.args if isinstance(x, RelayExpr) or hasattr(x, "shape")]
    return call_op("einsum", [TupleExpr(parts)], equation=n.op.subscripts.replace(" ", ""))


@row("Tensordot")
def _tensordot(n: Node) -> RelayExpr:
    a, b = (n.as_tensor(x, n.dtype) for x in operands(n))
    axes = n.op.axes
    if isinstance(axes, int):
        axes = [list(range(rank(a) - axes, rank(a))), list(range(axes))]
    left, right = ([int(k) % rank(x) for k in np.atleast_1d(ax)] for x, ax in zip((a, b), axes))
    names = iter("abcdefghijklmnopqrstuvwxyz")
    first = [next(names) for _ in range(rank(a))]
    second = [next(names) for _ in range(rank(b))]
    for i, j in zip(left, right):
        second[j] = first[i]
    out = [c for i, c in enumerate(first) if i not in left] + [c for j, c in enumerate(second) if j not in right]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(out)}"
    return call_op("einsum", [TupleExpr([a, b])], equation=equation)


# ---- shapes


@row("Reshape", "Ravel")
def _reshape(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    if all(isinstance(d, int) for d in n.shape):
        return call_op("reshape", [x], newshape=list(n.shape))
    wanted = getattr(n.op, "newshape", [None])
    return reshape(x, [d if d is not None else (w if isinstance(w, int) and w >= 0 else None)
                       for d, w in zip(n.shape, wanted)])  # fmt: skip


@row("ExpandDims")
def _expand_dims(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    for axis in sorted(a % len(n.shape) for a in axes_of(n.op.axis) or []):
        x = call_op("expand_dims", [x], axis=axis)
    return x


@row("Squeeze")
def _squeeze(n: Node) -> RelayExpr:
    return call_op("squeeze", [n.tensor(0, "x")], axis=axes_of(n.op.axis))


@row("Transpose")
def _transpose(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    axes = n.op.axes if n.op.axes is not None else reversed(range(rank(x)))
    return call_op("transpose", [x], axes=[int(a) for a in axes])


@row("Swapaxes")
def _swapaxes(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    axes = list(range(rank(x)))
    i, j = n.op.axis1, n.op.axis2
    axes[i], axes[j] = axes[j], axes[i]
    return call_op("transpose", [x], axes=axes)


@row("Moveaxis")
def _moveaxis(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    source, target = ([a % rank(x) for a in axes_of(v) or []] for v in (n.op.source, n.op.destination))
    axes = [a for a in range(rank(x)) if a not in source]
    for to, a in sorted(zip(target, source)):
        axes.insert(to, a)
    return call_op("transpose", [x], axes=axes)


@row("BroadcastTo")
def _broadcast_to(n: Node) -> RelayExpr:
    return call_op("broadcast_to", [n.tensor(0, "x")], shape=[int(d) for d in n.op.shape])


@row("Concatenate", "Stack", "Hstack", "Vstack")
def _join(n: Node) -> RelayExpr:
    parts = [n.as_tensor(x, n.dtype) for x in (n.args[0] if n.args else next(iter(n.kwargs.values())))]
    kind = type(n.op).__name__
    if kind == "Vstack":
        parts = [p if rank(p) > 1 else call_op("expand_dims", [p], axis=0) for p in parts]
    axis = {"Hstack": int(rank(parts[0]) > 1), "Vstack": 0}.get(kind, getattr(n.op, "axis", 0))
    return call_op("stack" if kind == "Stack" else "concatenate", [TupleExpr(parts)], axis=int(axis or 0))


@row("Split", "ArraySplit")
def _split(n: Node) -> List[RelayExpr]:
    x, parts = n.tensor(0, "x"), n.op.indices_or_sections
    if type(n.op).__name__ == "ArraySplit" or not isinstance(parts, int):
        sizes = [t.shape[n.op.axis] for t in n.outputs]
        parts = [int(p) for p in np.cumsum(sizes)[:-1]]
    if parts == 1 or parts == []:
        return [x]
    return list(call_op("split", [x], indices_or_sections=parts, axis=int(n.op.axis)))


@row("Unstack")
def _unstack(n: Node) -> List[RelayExpr]:
    x, axis, count = n.tensor(0, "x"), int(n.op.axis), len(n.outputs)
    parts = list(call_op("split", [x], indices_or_sections=count, axis=axis)) if count > 1 else [x]
    return [call_op("squeeze", [p], axis=[axis]) for p in parts]


@row("Flip")
def _flip(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    for axis in axes_of(n.op.axis) or range(rank(x)):
        x = call_op("reverse", [x], axis=axis)
    return x


@row("Tile")
def _tile(n: Node) -> RelayExpr:
    return call_op("tile", [n.tensor(0, "x")], reps=[int(r) for r in np.atleast_1d(n.op.repeats)])


@row("Repeat")
def _repeat(n: Node) -> RelayExpr:
    x, axis = n.tensor(0, "x"), n.op.axis
    if np.ndim(n.op.repeats) > 0 and np.size(n.op.repeats) > 1:
        refuse("repeats that differ")
    if axis is None:
        x, axis = call_op("reshape", [x], newshape=[-1]), 0
    return call_op("repeat", [x], repeats=int(np.ravel(n.op.repeats)[0]), axis=int(axis))


@row("Roll")
def _roll(n: Node) -> RelayExpr:
    x = n.tensor(0, "x")
    if n.op.axis is None:
        refuse("without an axis")
    for shift, axis in zip(np.atleast_1d(n.op.shift), np.atleast_1d(n.op.axis)):
        size = known(x, "a roll")[int(axis)]
        at = int(-shift) % size
        if at:
            a, b = call_op("split", [x], indices_or_sections=[at], axis=int(axis))
            x = call_op("concatenate", [TupleExpr([b, a])], axis=int(axis))
    return x


@row("Pad")
def _pad(n: Node) -> RelayExpr:
    x, width = n.tensor(0, "x"), n.op.pad_width
    pairs = np.broadcast_to(np.asarray(width), (rank(x), 2)).ravel().tolist()
    if n.op.mode in ("reflect", "symmetric"):
        return call_op("nn.mirror_pad", [x], pad_width=pairs, mode=n.op.mode.upper())
    modes = {"constant": "constant", "edge": "edge"}
    if n.op.mode not in modes:
        refuse(f"mode '{n.op.mode}'")
    value = n.arg(1, "constant_values")
    fill = n.as_tensor(0 if value is None else value, dtype_of(x))
    return call_op("nn.pad", [x, fill], pad_width=pairs, pad_mode=modes[n.op.mode])


@row("Tril", "Triu")
def _triangle(n: Node) -> RelayExpr:
    return call_op("trilu", [n.tensor(0, "x"), const(int(n.op.k), "int32")], upper=type(n.op).__name__ == "Triu")


# ---- indices


@row("Take")
def _take(n: Node) -> RelayExpr:
    x, axis = n.tensor(0, "x"), n.op.axis
    indices = n.tensor(1, "indices", "int32")
    if axis is None:
        x, axis = call_op("reshape", [x], newshape=[-1]), 0
    size = x.checked_type.shape[int(axis)]
    if isinstance(size, int):  # as numpy counts from the end
        below = call_op("less", [indices, const(0, "int32")])
        indices = call_op("where", [below, call_op("add", [indices, const(size, "int32")]), indices])
    return call_op("take", [x, indices], axis=int(axis), mode="clip")


@row("TakeAlongAxis")
def _take_along(n: Node) -> RelayExpr:
    if n.op.axis is None:
        refuse("without an axis")
    return call_op("gather", [n.tensor(0, "x"), n.tensor(1, "indices", "int32")], axis=int(n.op.axis))


@row("OneHot")
def _one_hot(n: Node) -> RelayExpr:
    on, off = const(1, n.dtype), const(0, n.dtype)
    x = n.tensor(0, "x", "int32")
    return call_op("one_hot", [x, on, off], depth=int(n.op.num_classes), axis=int(n.op.axis), dtype=n.dtype)


@row("Slice")
def _slice(n: Node) -> RelayExpr:
    x, starts = n.tensor(0, "inputs"), n.arg(1, "start_indices")
    if any(isinstance(s, RelayExpr) for s in np.ravel(np.asarray(starts, object))):
        refuse("indices that are computed")
    begin = [int(s) for s in starts]
    end = [b + int(size) for b, size in zip(begin, n.op.shape)]
    return call_op("strided_slice", [x], begin=begin, end=end, strides=[1] * len(begin))


@row("GetItem")
def _get_item(n: Node) -> RelayExpr:
    x, key = n.tensor(0, "x"), n.arg(1, "key")
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(k, RelayExpr) or hasattr(k, "shape") for k in keys):
        refuse("an index that is a tensor")
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (rank(x) - sum(k is not None and k is not Ellipsis for k in keys))
    begin, end, step, drop, place = [], [], [], [], 0
    for k in (k for k in keys if k is not None):
        size = x.checked_type.shape[place]
        if isinstance(k, slice):
            whole = k.start is None and k.stop is None and (k.step or 1) == 1
            if not isinstance(size, int) and not whole:
                refuse("a slice of an open size")
            lo, hi, by = k.indices(size) if isinstance(size, int) else (0, 2**31 - 1, 1)
            if by < 0:
                refuse("a slice that goes backwards")
        else:
            lo = int(k) % size if isinstance(size, int) else int(k)
            hi, by = lo + 1, 1
            drop.append(place)
        begin.append(lo)
        end.append(hi)
        step.append(by)
        place += 1
    if begin:
        x = call_op("strided_slice", [x], begin=begin, end=end, strides=step)
    if drop:
        x = call_op("squeeze", [x], axis=drop)
    at = 0
    for k in keys:
        if k is None:
            x = call_op("expand_dims", [x], axis=at)
        at += k is None or isinstance(k, slice)
    return x
