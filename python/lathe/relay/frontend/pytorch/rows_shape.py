"""Rows for shapes: nothing is computed, elements move."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

from . import sizes
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
from .table import refuse, row

LAST = 2**63 - 1


@row(
    "aten.view.default",
    "aten._unsafe_view",
    "aten.reshape",
    "aten.squeeze",
    "aten.unsqueeze",
    "aten.flatten",
    "aten.unflatten",
    "aten.view_copy.default",
    "aten._reshape_alias",
    "aten.squeeze_copy",
    "aten.unsqueeze_copy",
    "aten._reshape_copy",
    "aten.view_as",
)
def _reshape(g: Graph, x: RelayExpr, *_rest: Any) -> RelayExpr:
    return reshape(x, g.out_shape)


@row("aten.view.dtype")
def _reinterpret(g: Graph, x: RelayExpr, dtype: Any) -> RelayExpr:
    if not x.checked_type.shape or g.out_dtype == "bool" or dt(x) == "bool":
        x = cast(x, "uint8") if dt(x) == "bool" else x
    return call_op("reinterpret", [x], dtype=g.out_dtype)


@row("aten.expand", "aten.expand_copy", "aten.broadcast_to", "aten.expand_as")
def _expand(g: Graph, x: RelayExpr, *_rest: Any) -> RelayExpr:
    return expand(x, g.out_shape)


@row("aten.permute", "aten.permute_copy")
def _permute(g: Graph, x: RelayExpr, axes: Sequence[int]) -> RelayExpr:
    axes = [a % max(rank(x), 1) for a in axes]
    return x if axes == list(range(rank(x))) else call_op("transpose", [x], axes=axes)


@row("aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes", "aten.swapdims")
def _transpose(g: Graph, x: RelayExpr, a: int, b: int) -> RelayExpr:
    axes = list(range(rank(x)))
    if axes:
        axes[a], axes[b] = axes[b], axes[a]
    return _permute(g, x, axes)


@row("aten.t", "aten.t_copy", "aten.numpy_T", "aten.mT", "aten.adjoint")
def _t(g: Graph, x: RelayExpr) -> RelayExpr:
    return x if rank(x) < 2 else _transpose(g, x, -1, -2)


@row("aten.slice.Tensor", "aten.slice_copy.Tensor")
def _slice(g: Graph, x: RelayExpr, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> RelayExpr:
    start, end = 0 if start is None else start, LAST if end is None else end
    axis %= rank(x)
    if isinstance(start, int) and start == 0 and isinstance(end, int) and end == LAST and step == 1:
        return x
    return cut(x, axis, start, end, step)


def cut(x: RelayExpr, axis: int, start: Any, end: Any, step: int = 1) -> RelayExpr:
    """x[start:end:step] along an axis; the bounds are ints or scalar expressions."""
    if isinstance(start, int) and isinstance(end, int):
        return call_op("strided_slice", [x], begin=[start], end=[min(end, 2**31 - 1)], strides=[step], axes=[axis])
    n = dim(x, axis)
    if isinstance(end, int) and end >= 2**31 - 1:
        end = n
    parts = [sizes.vector([b]) for b in (start, end, step)] + [const(np.array([axis], "int64"))]
    return call_op("dyn.strided_slice", [x] + parts[:3], axes=[axis])


@row("aten.select.int", "aten.select_copy.int")
def _select(g: Graph, x: RelayExpr, axis: int, index: Any) -> RelayExpr:
    return pick(x, axis, index)


def pick(x: RelayExpr, axis: int, index: Any) -> RelayExpr:
    """x[index] along an axis, which goes."""
    axis %= rank(x)
    n = dim(x, axis)
    if isinstance(index, int) and isinstance(n, int):
        i = index % n if index < 0 else index
        return call_op(
            "squeeze", [call_op("strided_slice", [x], begin=[i], end=[i + 1], strides=[1], axes=[axis])], axis=[axis]
        )
    return call_op("take", [x, cast(index, "int64")], axis=axis, mode="fast")


@row("aten.cat", "aten.concat", "aten.concatenate")
def _cat(g: Graph, tensors: List[RelayExpr], axis: int = 0) -> RelayExpr:
    known = g.node.args[0]
    kept = [cast(t, g.out_dtype) for t, n in zip(tensors, known) if tuple(n.meta["val"].shape) != (0,)]
    if not kept:
        return full(0, g.out_shape, g.out_dtype)
    return kept[0] if len(kept) == 1 else call_op("concatenate", [Tuple(kept)], axis=axis % rank(kept[0]))


@row("aten.stack")
def _stack(g: Graph, tensors: List[RelayExpr], axis: int = 0) -> RelayExpr:
    return call_op("stack", [Tuple([cast(t, g.out_dtype) for t in tensors])], axis=axis % (rank(tensors[0]) + 1))


@row(
    "aten.split_with_sizes",
    "aten.split.Tensor",
    "aten.chunk",
    "aten.split_with_sizes_copy",
    "aten.tensor_split",
    "aten.split_copy.Tensor",
    "aten.split.sizes",
    "aten.unsafe_split",
    "aten.unsafe_chunk",
    "aten.unsafe_split_with_sizes",
)
def _split(g: Graph, x: RelayExpr, _parts: Any, axis: int = 0) -> List[RelayExpr]:
    axis %= rank(x)
    made, at = [], 0
    for part in g.out:
        n = g.size(part.shape[axis])
        end = (
            at + n
            if isinstance(at, int) and isinstance(n, int)
            else call_op("add", [cast(at, "int64"), cast(n, "int64")])
        )
        made.append(cut(x, axis, at, end))
        at = end
    return made


@row("aten.unbind", "aten.unbind_copy")
def _unbind(g: Graph, x: RelayExpr, axis: int = 0) -> List[RelayExpr]:
    return [pick(x, axis, i) for i in range(len(g.out))]


@row("aten.flip")
def _flip(g: Graph, x: RelayExpr, axes: Sequence[int]) -> RelayExpr:
    for a in axes:
        if rank(x):
            x = call_op("reverse", [x], axis=a % rank(x))
    return x


@row("aten.repeat", "aten.tile")
def _repeat(g: Graph, x: RelayExpr, reps: Sequence[Any]) -> RelayExpr:
    more = len(reps) - rank(x)
    x = reshape(x, [1] * more + shape(x)) if more > 0 else x
    if not reps or not rank(x):
        return x
    reps = [1] * -more + list(reps) if more < 0 else list(reps)
    if all(isinstance(r, int) for r in reps):
        if any(r == 0 for r in reps):
            return full(0, g.out_shape, dt(x))
        return x if all(r == 1 for r in reps) else call_op("tile", [x], reps=reps)
    return call_op("dyn.tile", [x, sizes.vector(reps)])


@row("aten.repeat_interleave.self_int")
def _repeat_interleave(g: Graph, x: RelayExpr, times: Any, axis: Any = None, _size: Any = None) -> RelayExpr:
    if not isinstance(times, int):
        return refuse("a number of repetitions that is not known")
    if axis is None:
        x, axis = (
            reshape(x, [-1]) if all(isinstance(d, int) for d in shape(x)) else call_op("reshape", [x], newshape=[-1])
        ), 0
    return call_op("repeat", [x], repeats=times, axis=axis % rank(x)) if times else full(0, g.out_shape, dt(x))


@row("aten.constant_pad_nd")
def _pad(g: Graph, x: RelayExpr, pad: Sequence[Any], value: Any = 0) -> RelayExpr:
    return padded(x, pad, value, "constant")


def padded(x: RelayExpr, pad: Sequence[Any], value: Any, mode: str) -> RelayExpr:
    """Elements put around the last axes (PyTorch names those of the last axis first)."""
    n = rank(x)
    widths: List[Any] = [0] * (2 * n)
    for i in range(len(pad) // 2):
        widths[2 * (n - 1 - i)], widths[2 * (n - 1 - i) + 1] = pad[2 * i], pad[2 * i + 1]
    if all(isinstance(w, int) for w in widths):
        kept = x
        if dt(x) == "bool":
            kept, value = cast(x, "uint8"), int(bool(value))
        made = call_op("nn.pad", [kept, cast(value, dt(kept))], pad_width=widths, pad_mode=mode)
        return cast(made, dt(x))
    return call_op("dyn.nn.pad", [x, sizes.vector(widths), cast(value, dt(x))], pad_mode=mode)


@row("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d")
def _reflection_pad(g: Graph, x: RelayExpr, pad: Sequence[Any]) -> RelayExpr:
    return padded(x, pad, 0, "reflect")


@row("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d")
def _replication_pad(g: Graph, x: RelayExpr, pad: Sequence[Any]) -> RelayExpr:
    return padded(x, pad, 0, "edge")


@row("aten.arange")
def _arange(g: Graph, *args: Any) -> RelayExpr:
    overload = g.node.target._schema.overload_name
    start, end, step = (
        (0, args[0], 1)
        if overload in ("", "default")
        else (args[0], args[1], args[2] if overload == "start_step" else 1)
    )
    d = g.out_dtype
    if any(isinstance(v, float) for v in (start, end, step)) and d not in FLOATS:
        start, step = (int(start), int(step))
        n = g.out_shape[0]
        end = start + n * step
    if all(isinstance(v, (int, float)) for v in (start, end, step)):
        n = g.out_shape[0]
        if isinstance(n, int) and n <= 4096:
            import torch

            return const(
                torch.arange(
                    start, end, step, dtype=torch.float32 if d in ("bfloat16", "float16") else g.out.dtype
                ).numpy(),
                d,
            )
    wide = "float64" if d == "float64" else "float32" if d in FLOATS else "int64"
    return cast(call_op("arange", [cast(v, wide) for v in (start, end, step)], dtype=wide), d)


@row("aten.linspace")
def _linspace(g: Graph, start: Any, end: Any, steps: Any, *_rest: Any) -> RelayExpr:
    import torch

    if all(isinstance(v, (int, float)) for v in (start, end, steps)):
        return const(torch.linspace(start, end, steps, dtype=g.out.dtype).numpy())
    if not isinstance(steps, int):
        return refuse("a number of steps that is not known")
    d = "float64" if g.out_dtype == "float64" else "float32"
    first, last = (reshape(cast(v, d), []) for v in (start, end))
    step = call_op("divide", [call_op("subtract", [last, first]), cast(float(max(steps - 1, 1)), d)])
    at = const(np.arange(steps).astype(d))
    back = const((steps - 1 - np.arange(steps)).astype(d))
    up = call_op("add", [first, call_op("multiply", [at, step])])
    down = call_op("subtract", [last, call_op("multiply", [back, step])])
    half = const(np.arange(steps) < max(steps // 2, 1))
    return cast(call_op("where", [half, up, down]), g.out_dtype)


@row("aten.eye", "aten.eye.m")
def _eye(g: Graph, *_rest: Any) -> RelayExpr:
    n, m = (d if isinstance(d, int) else refuse("a size that is not known") for d in g.out_shape)
    return (
        cast(call_op("eye", [], n=n, m=[m], k=0, dtype="int32"), g.out_dtype)
        if n and m
        else full(0, [n, m], g.out_dtype)
    )


def _triangle(upper: bool) -> Any:
    def f(g: Graph, x: RelayExpr, k: Any = 0) -> RelayExpr:
        return call_op("trilu", [x, cast(k, "int64")], upper=upper)

    return f


row("aten.tril")(_triangle(False))
row("aten.triu")(_triangle(True))


@row("aten.as_strided", "aten.as_strided_copy")
def _as_strided(g: Graph, x: RelayExpr, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> RelayExpr:
    """Elements of the memory of x, which lies in order: taken by their places, computed here."""
    known = g.meta(0)
    static(x, "as_strided")
    if not known.is_contiguous() or known.storage_offset():
        refuse("a tensor whose memory is not in order; call contiguous() before")
    if not all(isinstance(v, int) for v in [*size, *stride]):
        refuse("sizes that are not known")
    places = np.zeros(tuple(size), "int64") + (offset or 0)
    for axis, (n, s) in enumerate(zip(size, stride)):
        places += (np.arange(n) * s).reshape([-1 if i == axis else 1 for i in range(len(size))])
    return call_op("take", [call_op("reshape", [x], newshape=[-1]), const(places)], axis=0)


@row("aten.unfold", "aten.unfold_copy")
def _unfold(g: Graph, x: RelayExpr, axis: int, size: int, step: int) -> RelayExpr:
    if not rank(x):
        return call_op("reshape", [x], newshape=[size])
    axis %= rank(x)
    n = dim(x, axis)
    if not isinstance(n, int):
        return refuse("an axis whose size is not known")
    places = np.arange(0, n - size + 1, step)[:, None] + np.arange(size)[None, :]
    made = call_op("take", [x, const(places.astype("int64"))], axis=axis)
    order = [i for i in range(rank(made)) if i != axis + 1] + [axis + 1]
    return call_op("transpose", [made], axes=order)


@row("aten.diagonal", "aten.diagonal_copy")
def _diagonal(g: Graph, x: RelayExpr, offset: int = 0, a: int = 0, b: int = 1) -> RelayExpr:
    a, b = a % rank(x), b % rank(x)
    n, m = dim(x, a), dim(x, b)
    if not isinstance(n, int) or not isinstance(m, int):
        return refuse("axes whose sizes are not known")
    rest = [i for i in range(rank(x)) if i not in (a, b)]
    x = call_op("transpose", [x], axes=rest + [a, b])
    count = max(min(n, m - offset) if offset >= 0 else min(n + offset, m), 0)
    places = [(i - min(offset, 0)) * m + i + max(offset, 0) for i in range(count)]
    flat = reshape(x, shape(x)[:-2] + [n * m])
    return call_op("take", [flat, const(np.array(places, "int64"))], axis=len(rest))


@row("aten.pixel_shuffle")
def _pixel_shuffle(g: Graph, x: RelayExpr, factor: int) -> RelayExpr:
    lead = shape(x)[:-3]
    c, h, w = shape(x)[-3:]
    if not all(isinstance(v, int) for v in (c, h, w)) or any(not isinstance(v, int) for v in lead):
        refuse("sizes that are not known")
    made = reshape(x, [*lead, c // factor**2, factor, factor, h, w])
    k = len(lead)
    made = call_op("transpose", [made], axes=[*range(k), k, k + 3, k + 1, k + 4, k + 2])
    return reshape(made, g.out_shape)


@row("aten.channel_shuffle", "aten.native_channel_shuffle")
def _channel_shuffle(g: Graph, x: RelayExpr, groups: int) -> RelayExpr:
    n, c, *rest = shape(x)
    made = reshape(x, [n, groups, c // groups, *rest])
    made = call_op("transpose", [made], axes=[0, 2, 1, *range(3, 3 + len(rest))])
    return reshape(made, g.out_shape)


@row("aten.slice_scatter")
def _slice_scatter(
    g: Graph, x: RelayExpr, source: RelayExpr, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> RelayExpr:
    axis %= rank(x)
    n = dim(x, axis)
    start, end = 0 if start is None else start, LAST if end is None else end
    source = cast(source, dt(x))
    if start == 0 and end == LAST and step == 1:
        return expand(source, g.out_shape)
    if isinstance(n, int) and isinstance(start, int) and isinstance(end, int):
        lo, hi, st = slice(start, end, step).indices(n)
        if hi <= lo:
            return x
        if st == 1:
            parts = [cut(x, axis, 0, lo)] if lo else []
            want = shape(x)
            want[axis] = hi - lo
            parts += [expand(source, want)] + ([cut(x, axis, hi, n)] if hi < n else [])
            return call_op("concatenate", [Tuple(parts)], axis=axis) if len(parts) > 1 else parts[0]
        places = np.arange(lo, hi, st)
        want = shape(x)
        want[axis] = len(places)
        return along(x, axis, const(places.astype("int64")), expand(source, want))
    return refuse("places that are not known") if step != 1 else _slice_scatter_open(x, source, axis, start, end)


def _slice_scatter_open(x: RelayExpr, source: RelayExpr, axis: int, start: Any, end: Any) -> RelayExpr:
    n = dim(x, axis)
    end = n if isinstance(end, int) and end >= 2**31 - 1 else end
    parts = [cut(x, axis, 0, start)] if start != 0 else []
    return call_op("concatenate", [Tuple(parts + [source, cut(x, axis, end, LAST)])], axis=axis)


def along(x: RelayExpr, axis: int, places: RelayExpr, source: RelayExpr, mode: str = "update") -> RelayExpr:
    """x with slices of source put (or added) at places of an axis."""
    order = [axis] + [i for i in range(rank(x)) if i != axis]
    back = list(np.argsort(order))
    x, source = (call_op("transpose", [t], axes=order) for t in (x, source))
    made = call_op("scatter_nd", [x, call_op("expand_dims", [places], axis=0), source], mode=mode)
    return call_op("transpose", [made], axes=[int(b) for b in back])


@row("aten.select_scatter")
def _select_scatter(g: Graph, x: RelayExpr, source: RelayExpr, axis: int, index: Any) -> RelayExpr:
    axis %= rank(x)
    source = call_op("expand_dims", [cast(source, dt(x))], axis=axis)
    if isinstance(index, int) and isinstance(dim(x, axis), int):
        i = index % dim(x, axis)
        return _slice_scatter(g, x, source, axis, i, i + 1, 1)
    return along(x, axis, reshape(cast(index, "int64"), [1]), source)


@row("aten.diagonal_scatter")
def _diagonal_scatter(g: Graph, x: RelayExpr, source: RelayExpr, offset: int = 0, a: int = 0, b: int = 1) -> RelayExpr:
    a, b = a % rank(x), b % rank(x)
    static(x, "diagonal_scatter")
    n, m = dim(x, a), dim(x, b)
    rest = [i for i in range(rank(x)) if i not in (a, b)]
    order = [a, b] + rest
    count = max(min(n, m - offset) if offset >= 0 else min(n + offset, m), 0)
    rows_ = np.arange(count) - min(offset, 0)
    places = const(np.stack([rows_, rows_ + offset]).astype("int64"))
    source = call_op("transpose", [source], axes=[len(rest)] + list(range(len(rest))))
    made = call_op("scatter_nd", [call_op("transpose", [x], axes=order), places, source], mode="update")
    return call_op("transpose", [made], axes=[int(i) for i in np.argsort(order)])
