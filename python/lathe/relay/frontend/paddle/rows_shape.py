"""Rows for sizes, and for operators that move elements."""

from __future__ import annotations

from typing import Any, List

import numpy as np

from ...expr import RelayExpr, call_op
from ...expr import Tuple as TupleExpr
from ..values import dt, expr, known, like, op, rank, refuse, sizes, split_by, split_even
from ..values import ints as _plain_ints
from .graph import row
from .program import Op


def ints(v: Any, what: str) -> List[int]:
    """Numbers that must be known: of one tensor, or of a list of them."""
    return [i for x in v for i in _plain_ints(x, what)] if isinstance(v, list) else _plain_ints(v, what)


def _joined(args: Any, axis: int) -> RelayExpr:
    return call_op("concatenate", [TupleExpr([expr(a) for a in args])], axis=axis)


# ---- sizes


@row("shape", "shape64", fold=lambda n, x: np.array(x.shape, "int64" if n.name == "shape64" else "int32"))
def _shape(n: Op, x: Any) -> Any:
    return np.array(sizes(x, "the shape"), "int64" if n.name == "shape64" else "int32")


@row("numel", fold=lambda n, x: np.array(x.size, "int64"))
def _numel(n: Op, x: Any) -> Any:
    return np.array(int(np.prod(sizes(x, "the size"), dtype=int)), "int64")


# ---- the same elements under another shape


def _new_shape(x: Any, shape: Any) -> List[int]:
    """0 is the size that is there, -1 what is left."""
    here, to = sizes(x, "reshape"), ints(shape, "a shape")
    to = [here[i] if d == 0 and i < len(here) else d for i, d in enumerate(to)]
    if -1 in to:
        rest = int(np.prod([d for d in to if d >= 0], dtype=int))
        to[to.index(-1)] = int(np.prod(here, dtype=int)) // max(rest, 1)
    return to


@row("reshape", fold=lambda n, x, s: x.reshape(_new_shape(x, s)))
def _reshape(n: Op, x: Any, shape: Any) -> RelayExpr:
    return op("reshape", x, newshape=_new_shape(x, shape), allowzero=True)


def _flat(n: Op, x: Any) -> List[int]:
    shape = sizes(x, "flatten")
    if not shape:
        return [1]
    first, last = n.get("start_axis", 1) % len(shape), n.get("stop_axis", -1) % len(shape)
    return [*shape[:first], int(np.prod(shape[first : last + 1], dtype=int)), *shape[last + 1 :]]


@row("flatten", fold=lambda n, x: x.reshape(_flat(n, x)))
def _flatten(n: Op, x: Any) -> RelayExpr:
    return op("reshape", x, newshape=_flat(n, x), allowzero=True)


def _squeezed(x: Any, axes: Any) -> List[int]:
    shape = sizes(x, "squeeze")
    gone = [a % len(shape) for a in ints(axes, "axes")] if axes is not None else []
    gone = gone or list(range(len(shape)))
    return [d for i, d in enumerate(shape) if not (i in gone and d == 1)]


@row("squeeze", fold=lambda n, x, a=None: x.reshape(_squeezed(x, a)))
def _squeeze(n: Op, x: Any, axes: Any = None) -> RelayExpr:
    return op("reshape", x, newshape=_squeezed(x, axes), allowzero=True)


def _unsqueezed(x: Any, axes: Any) -> List[int]:
    shape = sizes(x, "unsqueeze")
    for a in ints(axes, "axes"):
        shape.insert(a if a >= 0 else a + len(shape) + 1, 1)
    return shape


@row("unsqueeze", fold=lambda n, x, a: x.reshape(_unsqueezed(x, a)))
def _unsqueeze(n: Op, x: Any, axes: Any) -> RelayExpr:
    return op("reshape", x, newshape=_unsqueezed(x, axes), allowzero=True)


@row("transpose", fold=lambda n, x: x.transpose(n.get("perm")))
def _transpose(n: Op, x: Any) -> RelayExpr:
    return op("transpose", x, axes=[a % rank(x) for a in n.get("perm")])


@row("pixel_shuffle")
def _pixel_shuffle(n: Op, x: Any) -> RelayExpr:
    layout = n.get("data_format", "NCHW")
    mode = "CRD" if layout == "NCHW" else refuse("channels behind")
    return op("nn.depth_to_space", x, block_size=n.get("upscale_factor"), layout=layout, mode=mode)


@row("channel_shuffle")
def _channel_shuffle(n: Op, x: Any) -> RelayExpr:
    if n.get("data_format", "NCHW") != "NCHW":
        return refuse("channels behind")
    batch, channels, h, w = sizes(x)
    groups = n.get("groups")
    made = op("reshape", x, newshape=[batch, groups, channels // groups, h, w])
    return op("reshape", op("transpose", made, axes=[0, 2, 1, 3, 4]), newshape=[batch, channels, h, w])


# ---- larger ones


def _expanded(x: Any, shape: Any) -> List[int]:
    """-1 is the size that is there."""
    here, to = sizes(x, "expand"), ints(shape, "a shape")
    here = [1] * (len(to) - len(here)) + here
    return [h if t == -1 else t for h, t in zip(here, to)]


@row("expand", fold=lambda n, x, s: np.broadcast_to(x, _expanded(x, s)))
def _expand(n: Op, x: Any, shape: Any) -> RelayExpr:
    return op("broadcast_to", x, shape=_expanded(x, shape))


@row("expand_as")
def _expand_as(n: Op, x: Any, y: Any = None) -> RelayExpr:
    return op("broadcast_to", x, shape=sizes(y) if y is not None else n.get("target_shape"))


@row("tile", fold=lambda n, x, r: np.tile(x, ints(r, "repeats")))
def _tile(n: Op, x: Any, reps: Any) -> RelayExpr:
    return op("tile", x, reps=ints(reps, "repeats"))


@row("repeat_interleave")
def _repeat(n: Op, x: Any) -> RelayExpr:
    return op("repeat", x, repeats=n.get("repeats"), axis=n.get("axis", 0) % rank(x))


@row("meshgrid")
def _meshgrid(n: Op, args: List[Any]) -> List[Any]:
    shape = [sizes(a)[0] if rank(a) else 1 for a in args]
    alone = [[d if i == k else 1 for i, d in enumerate(shape)] for k in range(len(args))]
    return [op("broadcast_to", op("reshape", a, newshape=s), shape=shape) for a, s in zip(args, alone)]


@row("pad", "pad3d")
def _pad(n: Op, x: Any, value: Any = None) -> RelayExpr:
    """pad: a pair for each axis.  pad3d: the pairs of the last axes, last first."""
    if n.name == "pad":
        widths = n.get("paddings")
        number = known(value, "a value").reshape(()) if value is not None else n.get("pad_value", 0.0)
        return op("nn.pad", x, like(number, x), pad_width=widths)
    given = ints(value, "paddings") if value is not None else n.get("paddings")
    pairs = [given[2 * i : 2 * i + 2] for i in range(3)][::-1]
    edge = [[0, 0]]
    pairs = edge + edge + pairs if n.get("data_format", "NCDHW") == "NCDHW" else edge + pairs + edge
    mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}.get(n.get("mode", "constant"))
    if mode is None:
        return refuse(f"the mode {n.get('mode')}")
    return op("nn.pad", x, like(n.get("pad_value", 0.0), x), pad_width=[w for p in pairs for w in p], pad_mode=mode)


# ---- several tensors, and parts of one


@row("concat", fold=lambda n, a, axis: np.concatenate(a, int(axis.reshape(-1)[0])))
def _concat(n: Op, args: List[Any], axis: Any) -> RelayExpr:
    return _joined(args, ints(axis, "an axis")[0] % rank(args[0]))


@row("stack", fold=lambda n, a: np.stack(a, n.get("axis", 0)))
def _stack(n: Op, args: List[Any]) -> RelayExpr:
    return call_op("stack", [TupleExpr([expr(a) for a in args])], axis=n.get("axis", 0))


@row("unbind", "unstack", fold=lambda n, x: [np.take(x, i, n.get("axis", 0)) for i in range(x.shape[n.get("axis", 0)])])
def _unbind(n: Op, x: Any) -> List[RelayExpr]:
    axis = n.get("axis", 0) % rank(x)
    return [op("take", x, np.array(i, "int32"), axis=axis) for i in range(sizes(x)[axis])]


@row("split_with_num")
def _split_with_num(n: Op, x: Any, axis: Any) -> List[Any]:
    return split_even(x, n.get("num"), ints(axis, "an axis")[0] % rank(x))


@row("split")
def _split(n: Op, x: Any, lengths: Any, axis: Any) -> List[Any]:
    parts = ints(lengths, "lengths")
    if n.get("num", 0) and not parts:
        return _split_with_num(n, x, axis)
    return split_by(x, parts, ints(axis, "an axis")[0] % rank(x))


def _index(n: Op, x: Any, starts: Any, ends: Any, strides: Any = None) -> List[slice]:
    axes = [a % rank(x) for a in n.get("axes")]
    begin, end = ints(starts, "a start"), ints(ends, "an end")
    step = ints(strides, "strides") if strides is not None else [1] * len(axes)
    index = [slice(None)] * rank(x)
    shape = sizes(x, "a slice")
    for a, b, e, s in zip(axes, begin, end, step):
        if e < -shape[a]:  # before the first element: a step down reaches it
            e = None if s < 0 else -shape[a]
        index[a] = slice(b, e, s)
    return index


def _sliced_now(n: Op, x: np.ndarray, *given: Any) -> np.ndarray:
    made = x[tuple(_index(n, x, *given))]
    return made.reshape([d for i, d in enumerate(made.shape) if i not in n.get("decrease_axis", [])])


@row("slice", "strided_slice", fold=_sliced_now)
def _slice(n: Op, x: Any, *given: Any) -> RelayExpr:
    begin, end, steps, final = [], [], [], []
    shape = sizes(x, "a slice")
    for d, i in zip(shape, _index(n, x, *given)):
        b, e, s = i.indices(d)
        final.append(len(range(b, e, s)))
        begin.append(b if final[-1] else 0)
        end.append((e if e >= 0 else -d - 1) if final[-1] else 0)
        steps.append(s if final[-1] else 1)
    made = op("strided_slice", x, begin=begin, end=end, strides=steps)
    gone = [a % rank(x) for a in n.get("decrease_axis", [])]
    return op("reshape", made, newshape=[d for i, d in enumerate(final) if i not in gone], allowzero=True)


@row("flip")
def _flip(n: Op, x: Any) -> RelayExpr:
    made = expr(x)
    for a in n.get("axis"):
        made = op("reverse", made, axis=a % rank(x))
    return made


@row("roll")
def _roll(n: Op, x: Any, shifts: Any) -> RelayExpr:
    axes, by = list(n.get("axis", [])), ints(shifts, "shifts")
    shape = sizes(x)
    made = op("reshape", x, newshape=[-1]) if not axes else expr(x)
    for a, s in zip(axes or [0], by):
        a %= rank(made)
        d = sizes(made)[a]
        made = op("take", made, (np.arange(d) - s) % max(d, 1), axis=a)
    return op("reshape", made, newshape=shape)


@row("tril", "triu")
def _triangle(n: Op, x: Any) -> RelayExpr:
    return op("trilu", x, like(n.get("diagonal", 0), np.zeros(0, "int64")), upper=n.name == "triu")


@row("diagonal")
def _diagonal(n: Op, x: Any) -> RelayExpr:
    a, b = n.get("axis1", 0) % rank(x), n.get("axis2", 1) % rank(x)
    rest = [i for i in range(rank(x)) if i not in (a, b)]
    made = op("transpose", x, axes=[*rest, a, b])
    rows, columns = sizes(made)[-2:]
    off = n.get("offset", 0)
    count = max(min(rows + min(off, 0), columns - max(off, 0)), 0)
    places = (np.arange(count) + max(-off, 0)) * columns + np.arange(count) + max(off, 0)
    flat = op("reshape", made, newshape=[*sizes(made)[:-2], rows * columns])
    return op("take", flat, places, axis=len(rest))


# ---- elements by their places


@row("gather", fold=lambda n, x, i, a=None: np.take(x, i, int(a.reshape(-1)[0]) if a is not None else 0))
def _gather(n: Op, x: Any, index: Any, axis: Any = None) -> RelayExpr:
    at = ints(axis, "an axis")[0] if axis is not None else n.get("axis", 0)
    return op("take", x, op("reshape", index, newshape=[-1]) if rank(index) > 1 else index, axis=at % rank(x))


@row("index_select")
def _index_select(n: Op, x: Any, index: Any) -> RelayExpr:
    return op("take", x, index, axis=n.get("axis", 0) % rank(x))


@row("gather_nd")
def _gather_nd(n: Op, x: Any, index: Any) -> RelayExpr:
    last = rank(index) - 1
    return op("gather_nd", x, op("transpose", index, axes=[last, *range(last)]), index_rank=sizes(index)[-1])


def _cut(x: Any, like_: Any, axis: int) -> Any:
    """x no longer than the other one along the other axes."""
    end = [d if i == axis else min(d, e) for i, (d, e) in enumerate(zip(sizes(x), sizes(like_)))]
    return op("strided_slice", x, begin=[0] * len(end), end=end, strides=[1] * len(end)) if end != sizes(x) else x


@row("take_along_axis", "index_sample")
def _along(n: Op, x: Any, index: Any) -> RelayExpr:
    axis = n.get("axis", 1) % rank(x)
    return op("gather", _cut(x, index, axis), index, axis=axis)


@row("put_along_axis")
def _put_along(n: Op, x: Any, index: Any, values: Any) -> RelayExpr:
    how = {"assign": "update", "add": "add", "sum": "add", "mul": "mul", "multiply": "mul", "amax": "max",
           "amin": "min"}.get(n.get("reduce", "assign"))  # fmt: skip
    if how is None or not n.get("include_self", True):
        return refuse(f"reduce='{n.get('reduce')}' without the elements themselves")
    if sizes(values) != sizes(index):
        values = op("broadcast_to", values, shape=sizes(index))
    return op("scatter_elements", x, index, values, axis=n.get("axis", 0) % rank(x), reduction=how)


@row("scatter")
def _scatter(n: Op, x: Any, index: Any, updates: Any) -> RelayExpr:
    """Whole rows are replaced, or, without overwrite, become the sum of what is put there."""
    index = op("reshape", index, newshape=[1, -1])
    if n.get("overwrite", True):
        return op("scatter_nd", x, index, updates, mode="update")
    cleared = op("scatter_nd", x, index, op("zeros_like", updates), mode="update")
    return op("scatter_nd", cleared, index, updates, mode="add")


@row("scatter_nd_add")
def _scatter_nd_add(n: Op, x: Any, index: Any, updates: Any) -> RelayExpr:
    last = rank(index) - 1
    return op("scatter_nd", x, op("transpose", index, axes=[last, *range(last)]), updates, mode="add")


@row("one_hot")
def _one_hot(n: Op, index: Any, depth: Any) -> RelayExpr:
    on, off = np.array(1, "float32"), np.array(0, "float32")
    return op("one_hot", index, on, off, depth=ints(depth, "a depth")[0], axis=-1, dtype="float32")


@row("embedding")
def _embedding(n: Op, index: Any, table: Any) -> RelayExpr:
    made = op("take", table, index, axis=0)
    skipped = n.get("padding_idx", -1)
    if skipped < 0:
        return made
    here = op("expand_dims", op("equal", index, like(skipped, index)), axis=-1)
    return op("where", here, op("zeros_like", made), made)


@row("topk")
def _topk(n: Op, x: Any, k: Any) -> Any:
    made = call_op("topk", [expr(x)], k=ints(k, "k")[0], axis=n.get("axis", -1) % rank(x), ret_type="both",
                   is_ascend=not n.get("largest", True), dtype="int64")  # fmt: skip
    return made[0], made[1]


@row("argsort")
def _argsort(n: Op, x: Any) -> Any:
    axis, up = n.get("axis", -1) % max(rank(x), 1), not n.get("descending", False)
    places = op("argsort", x, axis=axis, is_ascend=up, dtype="int64")
    return op("gather", x, places, axis=axis), places


@row("nonzero")
def _nonzero(n: Op, x: Any) -> RelayExpr:
    return op("cast", op("argwhere", op("not_equal", x, like(0, x)) if dt(x) != "bool" else x), dtype="int64")


__all__ = ["ints"]
