"""Rows for sizes, and for operators that move elements."""

from __future__ import annotations

from typing import Any, List

import numpy as np

from ...expr import RelayExpr, call_op
from ...expr import Tuple as TupleExpr
from ..values import split_by, split_even
from .graph import Node, dt, expr, ints, like, op, rank, refuse, row, sizes


def _joined(args: Any, axis: int) -> RelayExpr:
    return call_op("concatenate", [TupleExpr([expr(a) for a in args])], axis=axis)


# ---- sizes


@row("Shape", "VariableShape", fold=lambda n, x: np.array(x.shape, n.dtype("out_type", "int32")))
def _shape(n: Node, x: Any) -> Any:
    return np.array(sizes(x, "the shape"), n.dtype("out_type", "int32"))


@row("ShapeN")
def _shapes(n: Node, *args: Any) -> List[Any]:
    return [_shape(n, x) for x in args]


@row("Size", fold=lambda n, x: np.array(x.size, n.dtype("out_type", "int32")))
def _size(n: Node, x: Any) -> Any:
    return np.array(int(np.prod(sizes(x, "the size"), dtype=int)), n.dtype("out_type", "int32"))


@row("Rank", fold=lambda n, x: np.array(x.ndim, "int32"))
def _rank(n: Node, x: Any) -> Any:
    return np.array(rank(x), "int32")


@row("Range", fold=lambda n, a, b, c: np.arange(a.item(), b.item(), c.item(), a.dtype))
def _range(n: Node, start: Any, limit: Any, delta: Any) -> Any:
    return refuse("limits that are known only at run time")


@row("Fill", fold=lambda n, s, v: np.full(tuple(s.reshape(-1)), v, v.dtype))
def _fill(n: Node, shape: Any, value: Any) -> RelayExpr:
    return op("full", value, shape=ints(shape, "a shape"), dtype=dt(value))


@row("BroadcastTo", fold=lambda n, x, s: np.broadcast_to(x, tuple(s.reshape(-1))))
def _broadcast_to(n: Node, x: Any, shape: Any) -> RelayExpr:
    return op("broadcast_to", x, shape=ints(shape, "a shape"))


# ---- the same elements under another shape


@row("Reshape", fold=lambda n, x, s: x.reshape(tuple(s.reshape(-1))))
def _reshape(n: Node, x: Any, shape: Any) -> RelayExpr:
    to = ints(shape, "a shape")
    if -1 in to:
        total, rest = int(np.prod(sizes(x), dtype=int)), int(np.prod([d for d in to if d >= 0], dtype=int))
        to[to.index(-1)] = total // max(rest, 1)
    return op("reshape", x, newshape=to, allowzero=True)


def _squeezed(x: Any, axes: List[int]) -> List[int]:
    shape = sizes(x)
    axes = [a % len(shape) for a in axes] or [i for i, d in enumerate(shape) if d == 1]
    return [d for i, d in enumerate(shape) if i not in axes]


@row("Squeeze", fold=lambda n, x: x.reshape(_squeezed(x, n.ints("squeeze_dims"))))
def _squeeze(n: Node, x: Any) -> RelayExpr:
    return op("reshape", x, newshape=_squeezed(x, n.ints("squeeze_dims")), allowzero=True)


@row("ExpandDims", fold=lambda n, x, a: np.expand_dims(x, int(a.reshape(-1)[0])))
def _expand_dims(n: Node, x: Any, axis: Any) -> RelayExpr:
    return op("expand_dims", x, axis=ints(axis, "an axis")[0], num_newaxis=1)


@row("Transpose", fold=lambda n, x, p: x.transpose(tuple(p)))
def _transpose(n: Node, x: Any, order: Any) -> RelayExpr:
    return op("transpose", x, axes=ints(order, "an order"))


@row("SpaceToDepth", "DepthToSpace")
def _blocks(n: Node, x: Any) -> RelayExpr:
    layout = n.s("data_format", "NHWC")
    name = "nn.space_to_depth" if n.op == "SpaceToDepth" else "nn.depth_to_space"
    return op(name, x, block_size=n.i("block_size"), layout=layout)


@row("SpaceToBatchND")
def _space_to_batch(n: Node, x: Any, block: Any, paddings: Any) -> RelayExpr:
    return op("nn.space_to_batch_nd", x, block_shape=ints(block, "a block"), paddings=ints(paddings, "paddings"))


@row("BatchToSpaceND")
def _batch_to_space(n: Node, x: Any, block: Any, crops: Any) -> RelayExpr:
    return op("nn.batch_to_space_nd", x, block_shape=ints(block, "a block"), crops=ints(crops, "crops"))


# ---- several tensors, and parts of one


@row("ConcatV2", fold=lambda n, *a: np.concatenate(a[:-1], int(a[-1])))
def _concat(n: Node, *args: Any) -> RelayExpr:
    return _joined(args[:-1], ints(args[-1], "an axis")[0])


@row("Concat", fold=lambda n, *a: np.concatenate(a[1:], int(a[0])))
def _old_concat(n: Node, axis: Any, *args: Any) -> RelayExpr:
    return _joined(args, ints(axis, "an axis")[0])


@row("Pack", fold=lambda n, *a: np.stack(a, n.i("axis")))
def _pack(n: Node, *args: Any) -> RelayExpr:
    return call_op("stack", [TupleExpr([expr(a) for a in args])], axis=n.i("axis"))


@row("Unpack", fold=lambda n, x: [np.take(x, i, n.i("axis")) for i in range(x.shape[n.i("axis")])])
def _unpack(n: Node, x: Any) -> List[RelayExpr]:
    axis = n.i("axis") % rank(x)
    return [op("take", x, np.array(i, "int32"), axis=axis) for i in range(sizes(x)[axis])]


@row("Split")
def _split(n: Node, axis: Any, x: Any) -> List[Any]:
    return split_even(x, n.i("num_split"), ints(axis, "an axis")[0] % rank(x))


@row("SplitV")
def _split_v(n: Node, x: Any, lengths: Any, axis: Any) -> List[Any]:
    return split_by(x, ints(lengths, "lengths"), ints(axis, "an axis")[0] % rank(x))


@row("Slice", fold=lambda n, x, b, s: x[tuple(slice(int(i), None if j < 0 else int(i + j)) for i, j in zip(b, s))])
def _slice(n: Node, x: Any, begin: Any, size: Any) -> RelayExpr:
    shape, first, count = sizes(x), ints(begin, "a begin"), ints(size, "a size")
    end = [d if c < 0 else f + c for d, f, c in zip(shape, first, count)]
    return op("strided_slice", x, begin=first, end=end, strides=[1] * len(first))


def _numpy_slices(n: Node, begin: Any, end: Any, strides: Any) -> Any:
    """The index that numpy takes for a StridedSlice."""
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    masks = {name: n.i(name) for name in names}
    made: List[Any] = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides)):
        bit = 1 << i
        if masks["ellipsis_mask"] & bit:
            made.append(Ellipsis)
        elif masks["new_axis_mask"] & bit:
            made.append(None)
        elif masks["shrink_axis_mask"] & bit:
            made.append(b)
        else:
            made.append(slice(None if masks["begin_mask"] & bit else b, None if masks["end_mask"] & bit else e, s))
    return tuple(made)


def _strided_now(n: Node, x: np.ndarray, begin: np.ndarray, end: np.ndarray, strides: np.ndarray) -> np.ndarray:
    return np.asarray(x[_numpy_slices(n, *([int(v) for v in a] for a in (begin, end, strides)))])


@row("StridedSlice", fold=_strided_now)
def _strided_slice(n: Node, x: Any, begin: Any, end: Any, strides: Any) -> RelayExpr:
    index = _numpy_slices(n, ints(begin, "a begin"), ints(end, "an end"), ints(strides, "strides"))
    shape = sizes(x)
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    index = tuple(j for i in index for j in ([slice(None)] * (len(shape) - used) if i is Ellipsis else [i]))
    cuts, final, axis = [], [], 0
    for i in index:
        if i is None:
            final.append(1)
            continue
        d = shape[axis]
        if isinstance(i, int):
            at = i + d if i < 0 else i
            cuts.append((at, at + 1, 1))
        else:
            b, e, s = i.indices(d)
            count = len(range(b, e, s))
            final.append(count)
            cuts.append((b, e if e >= 0 else -d - 1, s) if count else (0, 0, 1))
        axis += 1
    for d in shape[axis:]:
        cuts.append((0, d, 1))
        final.append(d)
    b, e, s = (list(v) for v in zip(*cuts)) if cuts else ([], [], [])
    made = op("strided_slice", x, begin=b, end=e, strides=s) if cuts else expr(x)
    return op("reshape", made, newshape=final, allowzero=True)


def take(x: Any, indices: Any, axis: int, batch: int = 0) -> RelayExpr:
    """Elements along an axis; TensorFlow refuses what lies outside on a CPU."""
    return op("take", x, indices, axis=axis, batch_dims=batch)


@row("GatherV2", fold=lambda n, x, i, a: np.take(x, i, int(a)) if not n.i("batch_dims") else _gather(n, x, i, a))
def _gather(n: Node, x: Any, indices: Any, axis: Any) -> RelayExpr:
    batch = n.i("batch_dims")
    return take(x, indices, ints(axis, "an axis")[0] % rank(x), batch + rank(indices) if batch < 0 else batch)


@row("Gather", fold=lambda n, x, i: np.take(x, i, 0))
def _old_gather(n: Node, x: Any, indices: Any) -> RelayExpr:
    return take(x, indices, 0)


@row("GatherNd")
def _gather_nd(n: Node, x: Any, indices: Any) -> RelayExpr:
    last = rank(indices) - 1
    turned = op("transpose", indices, axes=[last, *range(last)])
    return op("gather_nd", x, turned, index_rank=sizes(indices)[-1])


@row("Tile", fold=lambda n, x, r: np.tile(x, tuple(r)))
def _tile(n: Node, x: Any, reps: Any) -> RelayExpr:
    return op("tile", x, reps=ints(reps, "repeats"))


@row("ReverseV2")
def _reverse(n: Node, x: Any, axes: Any) -> RelayExpr:
    made = expr(x)
    for a in ints(axes, "axes"):
        made = op("reverse", made, axis=a % rank(x))
    return made


@row("Pad", "PadV2")
def _pad(n: Node, x: Any, paddings: Any, value: Any = None) -> RelayExpr:
    widths = ints(paddings, "paddings")
    return op("nn.pad", x, like(0, x) if value is None else value, pad_width=widths)


@row("MirrorPad")
def _mirror_pad(n: Node, x: Any, paddings: Any) -> RelayExpr:
    if n.s("mode") != "REFLECT":
        return refuse("the mode SYMMETRIC")
    widths = ints(paddings, "paddings")
    return op("nn.pad", x, like(0, x), pad_width=widths, pad_mode="reflect")


@row("OneHot")
def _one_hot(n: Node, indices: Any, depth: Any, on: Any, off: Any) -> RelayExpr:
    return op("one_hot", indices, on, off, depth=ints(depth, "a depth")[0], axis=n.i("axis", -1), dtype=n.dtype("T"))


@row("TopKV2")
def _top_k(n: Node, x: Any, k: Any) -> List[RelayExpr]:
    return list(call_op("topk", [expr(x)], k=ints(k, "k")[0], axis=-1, ret_type="both", dtype="int32"))
