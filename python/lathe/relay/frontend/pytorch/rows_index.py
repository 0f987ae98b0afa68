"""Rows for reading and writing at places that are data."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple as Tuple_

import numpy as np

from .graph import Graph, RelayExpr, Tuple, call_op, cast, const, dim, dt, expand, full, rank, reshape, shape
from .rows_reduce import reduce
from .rows_shape import along, cut
from .table import refuse, row


def wrapped(index: RelayExpr, n: Any) -> RelayExpr:
    """Indices from the end as indices from the start."""
    index = cast(index, "int64")
    return call_op(
        "where", [call_op("less", [index, cast(0, "int64")]), call_op("add", [index, cast(n, "int64")]), index]
    )


@row("aten.embedding")
def _embedding(g: Graph, weight: RelayExpr, indices: RelayExpr, *_rest: Any) -> RelayExpr:
    return call_op("take", [weight, indices], axis=0, mode="clip")


@row("aten.index_select", "aten.index_select_backward")
def _index_select(g: Graph, x: RelayExpr, axis: int, index: RelayExpr) -> RelayExpr:
    if not rank(x):
        return x
    index = reshape(index, [1]) if not rank(index) else index
    return call_op("take", [x, index], axis=axis % rank(x), mode="clip")


@row("aten.take")
def _take(g: Graph, x: RelayExpr, index: RelayExpr) -> RelayExpr:
    return call_op("take", [call_op("reshape", [x], newshape=[-1]), index], axis=0, mode="fast")


def _fitted(x: RelayExpr, axis: int, like: RelayExpr) -> RelayExpr:
    """x no longer than `like` along the other axes."""
    for i in range(rank(x)):
        n, m = dim(x, i), dim(like, i)
        if i != axis and not (isinstance(n, int) and isinstance(m, int) and n == m):
            if isinstance(n, int) or isinstance(m, int) or x.checked_type.shape[i] is not like.checked_type.shape[i]:
                x = cut(x, i, 0, m)
    return x


@row("aten.gather")
def _gather(g: Graph, x: RelayExpr, axis: int, index: RelayExpr, *_rest: Any) -> RelayExpr:
    if not rank(x) and not rank(index):
        return x
    x = reshape(x, [1]) if not rank(x) else x
    if not rank(index):
        return reshape(call_op("gather", [x, reshape(index, [1])], axis=0), [])
    axis %= rank(x)
    if 0 in index.checked_type.shape:
        return full(0, g.out_shape, dt(x))
    return call_op("gather", [_fitted(x, axis, index), index], axis=axis)


def _positions(x: RelayExpr, indices: Sequence[Optional[RelayExpr]]) -> Tuple_[List[int], List[RelayExpr]]:
    """Axes that are indexed, with their indices (those of a mask are where it holds), as far as they go."""
    axes, found, axis = [], [], 0
    for i in indices:
        if i is None:
            axis += 1
        elif dt(i) in ("bool", "uint8"):
            where = call_op("argwhere", [cast(i, "bool")])
            for k in range(rank(i)):
                axes.append(axis + k)
                found.append(cast(call_op("take", [where, const(k, "int64")], axis=1), "int64"))
            if not rank(i):
                refuse("a mask of no dimensions")
            axis += rank(i)
        else:
            axes.append(axis)
            found.append(wrapped(i, dim(x, axis)))
            axis += 1
    return axes, found


def _joined(found: List[RelayExpr]) -> RelayExpr:
    """Indices of one shape, one row for each axis."""
    ranks = max(rank(f) for f in found)
    shapes = [[1] * (ranks - rank(f)) + list(f.checked_type.shape) for f in found]
    same = all(s == shapes[0] for s in shapes) and all(isinstance(d, int) for d in shapes[0])
    if not same and len(found) > 1:
        zero = None
        for f in found:
            nothing = call_op("multiply", [f, cast(0, "int64")])
            zero = nothing if zero is None else call_op("add", [zero, nothing])
        found = [call_op("add", [f, zero]) for f in found]
    return call_op("stack", [Tuple(found)], axis=0)


@row("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(g: Graph, x: RelayExpr, indices: Sequence[Optional[RelayExpr]]) -> RelayExpr:
    axes, found = _positions(x, indices)
    if len(axes) == 1:
        if not rank(found[0]):
            return call_op("take", [x, found[0]], axis=axes[0], mode="clip")
        return call_op("take", [x, found[0]], axis=axes[0], mode="clip")
    rest = [i for i in range(rank(x)) if i not in axes]
    moved = call_op("transpose", [x], axes=axes + rest) if axes + rest != list(range(rank(x))) else x
    joined = _joined(found)
    k = rank(joined) - 1
    made = call_op("gather_nd", [moved, joined])
    if axes != list(range(axes[0], axes[0] + len(axes))) or axes[0] == 0:
        return made
    order = [k + i for i in range(axes[0])] + list(range(k)) + list(range(k + axes[0], rank(made)))
    return call_op("transpose", [made], axes=order)


@row("aten.index_put", "aten._unsafe_index_put")
def _index_put(
    g: Graph,
    x: RelayExpr,
    indices: Sequence[Optional[RelayExpr]],
    values: RelayExpr,
    accumulate: bool = False,
    *_rest: Any,
) -> RelayExpr:
    known = [i for i in indices if i is not None]
    v = cast(values, dt(x))
    if (
        len(known) == 1
        and dt(known[0]) in ("bool", "uint8")
        and _one_value(v)
        and not accumulate
        and indices[0] is not None
    ):
        mask = cast(known[0], "bool")
        mask = reshape(mask, shape(mask) + [1] * (rank(x) - rank(mask)))
        return call_op("where", [mask, reshape(v, []), x])
    axes, found = _positions(x, indices)
    rest = [i for i in range(rank(x)) if i not in axes]
    order = axes + rest
    moved = call_op("transpose", [x], axes=order) if rank(x) else x
    joined = _joined(found)
    k = rank(joined) - 1
    tail = [dim(x, i) for i in rest]
    if axes == list(range(axes[0], axes[0] + len(axes))) and axes[0] > 0:
        # values stand as the indexed tensor would: the indices' own axes behind those before
        lead = axes[0]
        want = (
            [dim(x, i) for i in range(lead)] + [dim(joined, i + 1) for i in range(k)] + [dim(x, i) for i in rest[lead:]]
        )
        v = expand(v, want)
        v = call_op(
            "transpose", [v], axes=list(range(lead, lead + k)) + list(range(lead)) + list(range(lead + k, rank(v)))
        )
    else:
        v = expand(v, [dim(joined, i + 1) for i in range(k)] + tail)
    integer = dt(x) == "bool"
    if integer:
        moved, v = cast(moved, "uint8"), cast(v, "uint8")
    made = call_op("scatter_nd", [moved, joined, v], mode="add" if accumulate else "update")
    made = call_op("transpose", [made], axes=[int(i) for i in np.argsort(order)]) if rank(x) else made
    return cast(made, dt(x))


def _one_value(v: RelayExpr) -> bool:
    return all(d == 1 for d in v.checked_type.shape)


@row("aten.masked_scatter")
def _masked_scatter(g: Graph, x: RelayExpr, mask: RelayExpr, source: RelayExpr) -> RelayExpr:
    """The elements of source, in order, where the mask holds."""
    mask = expand(cast(mask, "bool"), g.out_shape)
    flat = call_op("reshape", [cast(mask, "int64")], newshape=[-1])
    place = call_op("subtract", [call_op("cumsum", [flat], axis=0, dtype="int64"), cast(1, "int64")])
    place = call_op("maximum", [place, cast(0, "int64")])
    picked = call_op("take", [call_op("reshape", [cast(source, dt(x))], newshape=[-1]), place], axis=0, mode="clip")
    return call_op("where", [mask, reshape(picked, g.out_shape), expand(x, g.out_shape)])


@row("aten.nonzero")
def _nonzero(g: Graph, x: RelayExpr) -> RelayExpr:
    if not rank(x):  # one row without columns, or none
        return cut(cast(call_op("argwhere", [reshape(x, [1])]), "int64"), 1, 0, 0)
    return cast(call_op("argwhere", [x]), "int64")


# ---- scatter

_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def _scattered(x: RelayExpr, axis: int, index: RelayExpr, source: RelayExpr, mode: str) -> RelayExpr:
    d = dt(x)
    if not rank(x):
        return reshape(_scattered(reshape(x, [1]), 0, reshape(index, [1]), reshape(source, [1]), mode), [])
    if 0 in index.checked_type.shape or 0 in x.checked_type.shape:
        return x
    axis %= rank(x)
    source = _fitted(source, -1, index)
    if d == "bool":
        x, source = cast(x, "uint8"), cast(source, "uint8")
    return cast(call_op("scatter_elements", [x, index, cast(source, dt(x))], axis=axis, reduction=mode), d)


@row("aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce")
def _scatter(g: Graph, x: RelayExpr, axis: int, index: RelayExpr, source: Any, mode: str = "") -> RelayExpr:
    if not isinstance(source, RelayExpr):
        source = expand(cast(source, dt(x)), shape(index))
    return _scattered(x, axis, index, source, _REDUCTIONS[mode] if mode else "update")


@row("aten.scatter_add")
def _scatter_add(g: Graph, x: RelayExpr, axis: int, index: RelayExpr, source: RelayExpr) -> RelayExpr:
    return _scattered(x, axis, index, source, "add")


@row("aten.scatter_reduce.two")
def _scatter_reduce(
    g: Graph, x: RelayExpr, axis: int, index: RelayExpr, source: RelayExpr, mode: str, include: bool = True
) -> RelayExpr:
    d = dt(x)
    if d == "bool":  # of numbers that are 0 or 1, what is not 0 is true
        return cast(_scatter_reduce(g, cast(x, "int32"), axis, index, cast(source, "int32"), mode, include), d)
    start = x
    if not include:
        limits = np.finfo(d) if "float" in d else np.iinfo(d)
        low, high = (-np.inf, np.inf) if "float" in d else (limits.min, limits.max)
        first = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[mode]
        untouched = full(1, shape(x), "int32")
        zeros = full(0, shape(index), "int32")
        untouched = _scattered(untouched, axis, index, zeros, "update")
        fresh = call_op("equal", [untouched, cast(0, "int32")])
        start = call_op("where", [fresh, cast(first, d), x])
    made = _scattered(start, axis, index, source, "add" if mode == "mean" else _REDUCTIONS[mode])
    if mode == "mean":
        ones = full(1, shape(index), "int64")
        count = full(1 if include else 0, shape(x), "int64")
        count = call_op("maximum", [_scattered(count, axis, index, ones, "add"), cast(1, "int64")])
        made = call_op("divide" if "float" in d else "floor_divide", [made, cast(count, d)])
    return made


@row("aten.index_add")
def _index_add(g: Graph, x: RelayExpr, axis: int, index: RelayExpr, source: RelayExpr, alpha: Any = 1) -> RelayExpr:
    source = cast(source, dt(x))
    if alpha != 1:
        source = call_op("multiply", [source, cast(alpha, dt(x))]) if dt(x) != "bool" else source
    return _along(x, axis, index, source, "add")


@row("aten.index_reduce")
def _index_reduce(
    g: Graph, x: RelayExpr, axis: int, index: RelayExpr, source: RelayExpr, mode: str, include: bool = True
) -> RelayExpr:
    if 0 in index.checked_type.shape:
        return x
    if not rank(x):
        one = [reshape(v, [1]) for v in (x, index, source)]
        return reshape(_scatter_reduce(g, one[0], 0, one[1], one[2], mode, include), [])
    axis %= rank(x)
    places = expand(reshape(index, [-1 if i == axis else 1 for i in range(rank(x))]), shape(source))
    return _scatter_reduce(g, x, axis, places, source, mode, include)


@row("aten.put")
def _put(g: Graph, x: RelayExpr, index: RelayExpr, source: RelayExpr, accumulate: bool = False) -> RelayExpr:
    flat = [call_op("reshape", [v], newshape=[-1]) for v in (x, index, source)]
    if 0 in index.checked_type.shape:
        return x
    mode = "add" if accumulate else "update"
    return reshape(_scattered(flat[0], 0, wrapped(flat[1], dim(flat[0], 0)), flat[2], mode), shape(x))


@row("aten.index_copy")
def _index_copy(g: Graph, x: RelayExpr, axis: int, index: RelayExpr, source: RelayExpr) -> RelayExpr:
    return _along(x, axis, index, source, "update")


@row("aten.index_fill")
def _index_fill(g: Graph, x: RelayExpr, axis: int, index: RelayExpr, value: Any) -> RelayExpr:
    if not rank(x):
        return reshape(cast(value, dt(x)), [])
    index = reshape(index, [1]) if not rank(index) else index
    index = wrapped(index, dim(x, axis % rank(x)))
    want = shape(x)
    want[axis % rank(x)] = dim(index, 0)
    return _along(x, axis, index, expand(cast(value, dt(x)), want), "update")


def _along(x: RelayExpr, axis: int, index: RelayExpr, source: RelayExpr, mode: str) -> RelayExpr:
    d = dt(x)
    if not rank(x):
        return reshape(_along(reshape(x, [1]), 0, index, reshape(source, [1]), mode), [])
    index = reshape(index, [1]) if not rank(index) else index
    if rank(source) < rank(x):
        source = reshape(source, [1] * (rank(x) - rank(source)) + shape(source))
    if 0 in index.checked_type.shape:
        return x
    if d == "bool":
        x, source = cast(x, "uint8"), cast(source, "uint8")
    return cast(along(x, axis % rank(x), index, cast(source, dt(x)), mode), d)


@row("aten.unique_consecutive", "aten.unique_dim", "aten._unique2", "aten._unique")
def _unique(g: Graph, x: RelayExpr, *rest: Any) -> Any:
    name = g.node.target._schema.name
    if name not in ("aten::_unique2", "aten::_unique"):
        refuse("another form than torch.unique without dim")
    flat = call_op("reshape", [x], newshape=[-1])
    made = call_op("unique", [cast(flat, "uint8") if dt(x) == "bool" else flat], is_sorted=True, return_counts=True)
    inverse = reshape(cast(made[2], "int64"), shape(x))
    return [cast(made[0], dt(x)), inverse, cast(made[3], "int64")]


@row("aten.histc", "aten.bincount")
def _counts(g: Graph, x: RelayExpr, *rest: Any) -> RelayExpr:
    name = g.node.target._schema.name
    n = g.out_shape[0] if len(g.out.shape) else None
    if name != "aten::histc" or not isinstance(n, int):
        return refuse("a number of bins that depends on the data")
    bins, low, high = rest
    if low == high:
        return refuse("ends that depend on the data (min equals max)")
    d = dt(x)
    flat = call_op("reshape", [x], newshape=[-1])
    inside = call_op(
        "logical_and", [call_op("greater_equal", [flat, cast(low, d)]), call_op("less_equal", [flat, cast(high, d)])]
    )
    at = call_op(
        "divide", [call_op("multiply", [call_op("subtract", [flat, cast(low, d)]), cast(bins, d)]), cast(high - low, d)]
    )
    at = call_op("minimum", [cast(call_op("floor", [at]) if "float" in d else at, "int64"), cast(bins - 1, "int64")])
    hit = call_op("equal", [call_op("expand_dims", [at], axis=1), const(np.arange(bins).astype("int64"))])
    hit = call_op("logical_and", [hit, call_op("expand_dims", [inside], axis=1)])
    return reduce("sum", cast(hit, d), [0], False)
