"""Rows for reductions, running sums and order."""

from __future__ import annotations

from typing import Any, List, Optional

import numpy as np

from .graph import (
    FLOATS,
    Graph,
    RelayExpr,
    Tuple,
    call_op,
    cast,
    const,
    dim,
    dt,
    expand,
    full,
    rank,
    reshape,
    shape,
    static,
)
from .rows_shape import cut, pick
from .table import refuse, row


def _axes(x: RelayExpr, axes: Any) -> List[int]:
    """None and nothing: all of them."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return list(range(rank(x)))
    return [a % max(rank(x), 1) for a in (axes if isinstance(axes, (list, tuple)) else [axes])]


def reduce(name: str, x: RelayExpr, axes: List[int], keep: bool) -> RelayExpr:
    """A reduction over axes; of a scalar, itself."""
    return call_op(name, [x], axis=axes, keepdims=keep) if rank(x) else x


def _total(name: str) -> Any:
    def f(g: Graph, x: RelayExpr, *rest: Any) -> RelayExpr:
        overload = g.node.target._schema.overload_name
        axes, keep = (rest[0], rest[1]) if overload in ("dim_IntList", "dim_int", "dim") else (None, False)
        return reduce(name, cast(x, g.out_dtype), _axes(x, axes), keep)

    return f


row("aten.sum.default", "aten.sum.dim_IntList")(_total("sum"))
row("aten.mean.default", "aten.mean.dim")(_total("mean"))
row("aten.prod.default", "aten.prod.dim_int")(_total("prod"))


def _extreme(name: str) -> Any:
    def f(g: Graph, x: RelayExpr, axes: Any = (), keep: bool = False) -> RelayExpr:
        return reduce(name, x, _axes(x, axes), keep)

    return f


row("aten.amax")(_extreme("max"))
row("aten.amin")(_extreme("min"))


def _extreme_at(name: str) -> Any:
    def f(g: Graph, x: RelayExpr, axis: Any = None, keep: bool = False) -> Any:
        if axis is None:
            return reduce(name, x, _axes(x, None), False)
        if not rank(x):
            return [x, const(0, "int64")]
        axis %= rank(x)
        kind = cast(x, "uint8") if dt(x) == "bool" else x
        at = call_op("arg" + name, [kind], axis=[axis], keepdims=keep)
        return [reduce(name, x, [axis], keep), cast(at, "int64")]

    return f


row("aten.max.dim", "aten.max.default")(_extreme_at("max"))
row("aten.min.dim", "aten.min.default")(_extreme_at("min"))


def _arg(name: str) -> Any:
    def f(g: Graph, x: RelayExpr, axis: Any = None, keep: bool = False) -> RelayExpr:
        x = cast(x, "uint8") if dt(x) == "bool" else x
        if not rank(x):
            return full(0, g.out_shape, "int64")
        if axis is None:
            return reshape(
                cast(call_op(name, [call_op("reshape", [x], newshape=[-1])], axis=[0], keepdims=False), "int64"),
                g.out_shape,
            )
        return cast(call_op(name, [x], axis=[axis % rank(x)], keepdims=keep), "int64")

    return f


row("aten.argmax")(_arg("argmax"))
row("aten.argmin")(_arg("argmin"))


def _truth(name: str) -> Any:
    def f(g: Graph, x: RelayExpr, axes: Any = None, keep: bool = False) -> RelayExpr:
        return cast(reduce(name, cast(x, "bool"), _axes(x, axes), keep), g.out_dtype)

    return f


row("aten.any")(_truth("any"))
row("aten.all")(_truth("all"))


def _count(x: RelayExpr, axes: List[int]) -> Any:
    n: Any = 1
    for a in axes:
        d = dim(x, a)
        n = (
            n * d
            if isinstance(n, int) and isinstance(d, int)
            else call_op("multiply", [cast(n, "int64"), cast(d, "int64")])
        )
    return n


def spread(x: RelayExpr, axes: List[int], correction: Any, keep: bool) -> RelayExpr:
    """The variance: squares of the distance from the mean over the count less the correction."""
    d = dt(x)
    mean = reduce("mean", x, axes, True)
    off = call_op("subtract", [x, mean])
    total = reduce("sum", call_op("multiply", [off, off]), axes, keep)
    n = _count(x, axes)
    c = 1 if correction is None else correction
    if isinstance(n, int):
        return call_op("divide", [total, cast(float(max(n - c, 0)), d)])
    return call_op(
        "divide", [total, call_op("maximum", [call_op("subtract", [cast(n, d), cast(float(c), d)]), cast(0.0, d)])]
    )


@row("aten.var.correction")
def _var(g: Graph, x: RelayExpr, axes: Any = None, correction: Any = None, keep: bool = False) -> RelayExpr:
    return spread(x, _axes(x, axes), correction, keep)


@row("aten.std.correction")
def _std(g: Graph, x: RelayExpr, axes: Any = None, correction: Any = None, keep: bool = False) -> RelayExpr:
    return call_op("sqrt", [spread(x, _axes(x, axes), correction, keep)])


@row("aten.var_mean.correction")
def _var_mean(g: Graph, x: RelayExpr, axes: Any = None, correction: Any = None, keep: bool = False) -> List[RelayExpr]:
    axes = _axes(x, axes)
    return [spread(x, axes, correction, keep), reduce("mean", x, axes, keep)]


@row("aten.std_mean.correction")
def _std_mean(g: Graph, x: RelayExpr, axes: Any = None, correction: Any = None, keep: bool = False) -> List[RelayExpr]:
    made = _var_mean(g, x, axes, correction, keep)
    return [call_op("sqrt", [made[0]]), made[1]]


@row("aten.logsumexp")
def _logsumexp(g: Graph, x: RelayExpr, axes: Any, keep: bool = False) -> RelayExpr:
    return reduce("logsumexp", cast(x, g.out_dtype), _axes(x, axes), keep) if rank(x) else cast(x, g.out_dtype)


# ---- running


def _running(name: str) -> Any:
    def f(g: Graph, x: RelayExpr, axis: int, _dtype: Any = None) -> RelayExpr:
        x = cast(x, g.out_dtype)
        return call_op(name, [x], axis=axis % rank(x), dtype=g.out_dtype) if rank(x) else x

    return f


row("aten.cumsum")(_running("cumsum"))
row("aten.cumprod")(_running("cumprod"))


# ---- order


def _in_order(x: RelayExpr) -> RelayExpr:
    return cast(x, "uint8") if dt(x) == "bool" else x


@row("aten.sort.default", "aten.sort.stable")
def _sort(g: Graph, x: RelayExpr, *rest: Any) -> List[RelayExpr]:
    if g.node.target._schema.overload_name == "stable":
        rest = rest[1:]
    axis, descending = rest
    if not rank(x):
        return [x, const(0, "int64")]
    axis %= rank(x)
    at = call_op("argsort", [_in_order(x)], axis=axis, is_ascend=not descending, dtype="int64")
    return [call_op("gather", [x, at], axis=axis), at]


@row("aten.argsort", "aten.argsort.stable")
def _argsort(g: Graph, x: RelayExpr, *rest: Any) -> RelayExpr:
    return _sort(g, x, *rest)[1]


@row("aten.topk")
def _topk(g: Graph, x: RelayExpr, k: Any, axis: int = -1, largest: bool = True, _sorted: bool = True) -> Any:
    if not rank(x):
        return [x, const(0, "int64")]
    if not isinstance(k, int):
        made = call_op(
            "dyn.topk",
            [_in_order(x), cast(k, "int64")],
            axis=axis % rank(x),
            ret_type="both",
            is_ascend=not largest,
            dtype="int64",
        )
    elif k == 0:
        return [full(0, g.out_shape, dt(x)), full(0, g.out_shape, "int64")]
    else:
        made = call_op(
            "topk", [_in_order(x)], k=k, axis=axis % rank(x), ret_type="both", is_ascend=not largest, dtype="int64"
        )
    return [cast(made[0], dt(x)), made[1]]


@row("aten.median.dim", "aten.nanmedian.dim", "aten.median.default", "aten.nanmedian.default")
def _median(g: Graph, x: RelayExpr, axis: Optional[int] = None, keep: bool = False) -> Any:
    """The element in the middle (the lower one of two); the first NaN where there is one, or of those that are none."""
    name = g.node.target._schema.name
    if axis is None:
        flat = call_op("reshape", [x], newshape=[-1])
        return _middle(flat, 0, False, "nan" in name)[0]
    if not rank(x):
        return [x, const(0, "int64")]
    return _middle(x, axis % rank(x), keep, "nan" in name)


def _middle(x: RelayExpr, axis: int, keep: bool, skip: bool) -> List[RelayExpr]:
    n = dim(x, axis)
    if not isinstance(n, int) or n == 0:
        return refuse("an axis of no, or of unknown, size")
    at = call_op("argsort", [x], axis=axis, is_ascend=True, dtype="int64")
    low = full((n - 1) // 2, [d if i != axis else 1 for i, d in enumerate(shape(x))], "int64")
    if dt(x) in FLOATS:
        nans = reduce("sum", cast(call_op("isnan", [x]), "int64"), [axis], True)
        good = call_op("subtract", [cast(n, "int64"), nans])
        if skip:
            low = call_op("floor_divide", [call_op("subtract", [good, cast(1, "int64")]), cast(2, "int64")])
            low = call_op("maximum", [low, cast(0, "int64")])
        else:
            low = call_op(
                "where",
                [call_op("greater", [nans, cast(0, "int64")]), call_op("minimum", [good, cast(n - 1, "int64")]), low],
            )
    where = call_op("gather", [at, low], axis=axis)
    value = call_op("gather", [x, where], axis=axis)
    return [value, where] if keep else [call_op("squeeze", [v], axis=[axis]) for v in (value, where)]


@row("aten.kthvalue")
def _kthvalue(g: Graph, x: RelayExpr, k: int, axis: int = -1, keep: bool = False) -> List[RelayExpr]:
    if not rank(x):
        return [x, const(0, "int64")]
    axis %= rank(x)
    at = call_op("argsort", [x], axis=axis, is_ascend=True, dtype="int64")
    where = cut(at, axis, k - 1, k)
    value = call_op("gather", [x, where], axis=axis)
    return [value, where] if keep else [call_op("squeeze", [v], axis=[axis]) for v in (value, where)]


def _running_extreme(name: str, better: str) -> Any:
    def f(g: Graph, x: RelayExpr, axis: int) -> List[RelayExpr]:
        """Doubling steps: each looks twice as far back as the one before; NaN, once there, stays."""
        if not rank(x):
            return [x, const(0, "int64")]
        axis %= rank(x)
        n = dim(x, axis)
        if not isinstance(n, int):
            return refuse("an axis whose size is not known")
        value = cast(x, "uint8") if dt(x) == "bool" else x
        places = const(np.arange(n).reshape([-1 if i == axis else 1 for i in range(rank(x))]).astype("int64"))
        at = expand(places, shape(x))
        step = 1
        while step < n:
            before, before_at = cut(value, axis, 0, n - step), cut(at, axis, 0, n - step)
            here, here_at = cut(value, axis, step, n), cut(at, axis, step, n)
            old = call_op(better, [before, here])
            if dt(value) in FLOATS:
                old = call_op("logical_and", [old, call_op("logical_not", [call_op("isnan", [here])])])
                old = call_op(
                    "logical_or",
                    [
                        old,
                        call_op(
                            "logical_and",
                            [call_op("isnan", [before]), call_op("logical_not", [call_op("isnan", [here])])],
                        ),
                    ],
                )
            rest = call_op("where", [old, before, here])
            rest_at = call_op("where", [old, before_at, here_at])
            value = call_op("concatenate", [Tuple([cut(value, axis, 0, step), rest])], axis=axis)
            at = call_op("concatenate", [Tuple([cut(at, axis, 0, step), rest_at])], axis=axis)
            step *= 2
        return [cast(value, dt(x)), at]

    return f


row("aten.cummax")(_running_extreme("max", "greater"))
row("aten.cummin")(_running_extreme("min", "less"))


@row("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def _searchsorted(
    g: Graph, sequence: RelayExpr, values: Any, _int32: bool, right: bool, side: Any = None, sorter: Any = None
) -> RelayExpr:
    if sorter is not None:
        sequence = call_op("gather", [sequence, sorter], axis=rank(sequence) - 1)
    return _search(g, sequence, values, right or side == "right")


@row("aten.bucketize")
def _bucketize(g: Graph, values: Any, boundaries: RelayExpr, _int32: bool = False, right: bool = False) -> RelayExpr:
    return _search(g, boundaries, values, right)


def _search(g: Graph, sequence: RelayExpr, values: Any, right: bool) -> RelayExpr:
    """How many elements of the sequence are before each value."""
    v = cast(values, dt(sequence)) if not isinstance(values, RelayExpr) else values
    s = sequence
    if dt(v) != dt(s):
        wide = dt(v) if dt(v) in FLOATS else dt(s) if dt(s) in FLOATS else "int64"
        v, s = cast(v, wide), cast(s, wide)
    v1 = call_op("expand_dims", [v], axis=rank(v))
    s1 = call_op("expand_dims", [s], axis=rank(s) - 1) if rank(s) > 1 else s
    before = call_op("less_equal" if right else "less", [s1, v1])
    if dt(s) in FLOATS:  # NaN stands behind everything
        before = call_op(
            "logical_or",
            [
                before,
                call_op("logical_and", [call_op("isnan", [v1]), call_op("logical_not", [call_op("isnan", [s1])])]),
            ],
        )
        if right:
            before = call_op("logical_or", [before, call_op("isnan", [v1])])
    return cast(reduce("sum", cast(before, "int64"), [rank(v)], False), g.out_dtype)


__all__ = ["reduce", "spread", "static", "pick"]
