"""Shapes, layouts, indexing, sorting, products."""

from __future__ import annotations

from typing import Any, List

from .. import error, relay
from ..relay.expr import RelayExpr
from ._compute import computed, dims, dtype as _dtype
from .math import matched as _matched

# ---- shapes


@computed
def expand_dims(a: Any, axis: int, num_newaxis: int = 1) -> Any:
    """Puts in axes of extent 1."""
    return relay.expand_dims(a, axis, num_newaxis)


@computed
def expand_like(a: Any, shape_like: Any, axis: Any) -> Any:
    """a with new axes at these places, repeated to the shape of shape_like."""
    rank = len(dims(shape_like))
    for k in sorted(k % rank for k in (axis if isinstance(axis, (list, tuple)) else [axis])):
        a = relay.expand_dims(a, k)
    return relay.broadcast_to_like(a, shape_like)


@computed
def transpose(a: Any, axes: Any = None) -> Any:
    """The axes in another order; without one, reversed."""
    return relay.transpose(a, axes)


@computed
def flip(a: Any, axis: int = 0) -> Any:
    """One axis the other way round."""
    return relay.reverse(a, axis)


@computed
def reverse_sequence(a: Any, seq_lengths: Any, seq_axis: int = 1, batch_axis: int = 0) -> Any:
    """The first seq_lengths[b] elements of each sequence the other way round."""
    return relay.reverse_sequence(a, seq_lengths, seq_axis, batch_axis)


@computed
def reshape(a: Any, newshape: Any) -> Any:
    """The same elements in another shape."""
    return relay.reshape(a, newshape if isinstance(newshape, (list, tuple)) else [newshape])


@computed
def squeeze(a: Any, axis: Any = None) -> Any:
    """Drops axes of extent 1."""
    return relay.squeeze(a, [axis] if isinstance(axis, int) else axis)


@computed
def concatenate(a_tuple: Any, axis: int = 0) -> Any:
    """Tensors one behind the other along an axis."""
    return relay.concatenate(a_tuple, axis)


@computed
def stack(tensors: Any, axis: int = 0) -> Any:
    """Tensors of one shape, joined along a new axis."""
    return relay.stack(tensors, axis)


@computed
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Parts along an axis: equal ones by number, or cut at the given indices."""
    return relay.split(ary, indices_or_sections, axis)


@computed
def tile(a: Any, reps: Any) -> Any:
    """The whole tensor repeated along each axis."""
    return relay.tile(a, reps if isinstance(reps, (list, tuple)) else [reps])


@computed
def repeat(a: Any, repeats: int, axis: int) -> Any:
    """Each element of an axis repeated."""
    return relay.repeat(a, repeats, axis)


@computed
def meshgrid(a_tuple: Any, indexing: str = "ij") -> Any:
    """Coordinates of a grid, one tensor for each axis."""
    return relay.meshgrid(a_tuple, indexing)


@computed
def sliding_window(data: Any, axis: int, window_shape: Any, strides: Any) -> Any:
    """Windows over the axes from `axis` on."""
    return relay.sliding_window(data, axis, window_shape, strides)


@computed
def layout_transform(array: Any, src_layout: str, dst_layout: str, schedule_rule: str = "None") -> Any:
    """The tensor in another layout, "NCHW" to "NCHW16c"."""
    return relay.layout_transform(array, src_layout, dst_layout)


@computed
def shape(array: Any, dtype: str = "int32") -> Any:
    """The extents of a tensor."""
    return relay.shape_of(array, dtype)


@computed
def ndarray_size(array: Any, dtype: str = "int32") -> Any:
    """The number of elements of a tensor."""
    return relay.ndarray_size(array, dtype)


tensor_size = ndarray_size


@computed
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Any:
    """start, start + step, … before stop; with one argument from 0."""
    return relay.arange(start, stop, step, dtype)


@computed
def eye(n: int, m: Any = None, k: int = 0, dtype: str = "float32") -> Any:
    """Ones on a diagonal."""
    return relay.eye(n, m, k, dtype)


# ---- elements by index


@computed
def strided_slice(
    a: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Any = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> Any:
    """Every strides-th element from begin before end, for each axis (or for the axes given)."""
    return relay.strided_slice(a, begin, end, strides, axes, slice_mode)


@computed
def take(a: Any, indices: Any, axis: Any = None, batch_dims: int = 0, mode: str = "fast") -> Any:
    """Elements (without an axis, of the flattened tensor) or slices at the given indices.  Indices outside are
    limited with the modes "clip" and "fast", and taken modulo the extent with "wrap"."""
    return relay.take(a, indices, axis, batch_dims, "clip" if mode == "fast" else mode)


@computed
def gather(data: Any, axis: int, indices: Any) -> Any:
    """out[i][j] = data[indices[i][j]][j] for axis 0, and so on."""
    return relay.gather(data, axis, indices)


@computed
def gather_nd(a: Any, indices: Any, batch_dims: int = 0) -> Any:
    """Slices at the positions whose coordinates stand along the first axis of indices."""
    return relay.gather_nd(a, indices, batch_dims)


@computed
def scatter_elements(data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "update") -> Any:
    """data with updates written (or combined) at the given indices of an axis."""
    return relay.scatter_elements(data, indices, updates, axis, reduction)


@computed
def scatter_nd(data: Any, indices: Any, updates: Any, mode: str) -> Any:
    """data with updates written (or combined) at positions whose coordinates stand along the first axis of indices."""
    return relay.scatter_nd(data, indices, updates, mode)


@computed
def adv_index(data: Any, indices: Any) -> Any:
    """numpy's indexing by index tensors that broadcast together."""
    return relay.adv_index([data, *indices])


@computed
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, y elsewhere."""
    a, b = _matched(x, y) if isinstance(x, RelayExpr) or isinstance(y, RelayExpr) else (relay.const(x), relay.const(y))
    return relay.where(condition if _dtype(condition) == "bool" else relay.cast(condition, "bool"), a, b)


@computed
def one_hot(indices: Any, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> Any:
    """A new axis of `depth` with on_value at the index and off_value elsewhere."""
    on, off = (x if isinstance(x, RelayExpr) else relay.const(x, dtype) for x in (on_value, off_value))
    return relay.one_hot(indices, on, off, depth, axis, dtype)


@computed
def sequence_mask(data: Any, valid_length: Any, mask_value: Any = 0, axis: int = 0) -> Any:
    """mask_value behind the valid length of each sequence."""
    return relay.sequence_mask(data, valid_length, float(mask_value), axis)


@computed
def unravel_index(indices: Any, shape: Any) -> Any:
    """Coordinates of flat positions in a shape (a tensor)."""
    return relay.unravel_index(indices, shape)


@computed
def searchsorted(sorted_sequence: Any, values: Any, right: bool = False, out_dtype: str = "int64") -> Any:
    """Where each value belongs in a sorted sequence."""
    return relay.searchsorted(sorted_sequence, values, right, out_dtype)


@computed
def trilu(data: Any, k: Any, upper: bool) -> Any:
    """The upper or lower triangle of each matrix, zeros elsewhere."""
    return relay.trilu(data, k if isinstance(k, RelayExpr) else relay.const(k, "int64"), upper)


@computed
def matrix_set_diag(data: Any, diagonal: Any, k: Any = 0, align: str = "RIGHT_LEFT") -> Any:
    """Each matrix with other diagonals."""
    return relay.matrix_set_diag(data, diagonal, k if isinstance(k, (list, tuple)) else [k], align)


# ---- sorting


def _indices(tensor: Any, dtype: str) -> Any:
    return tensor if _dtype(tensor) == dtype else relay.cast(tensor, dtype)


@computed
def sort(data: Any, axis: int = -1, is_ascend: Any = 1) -> Any:
    """The elements of each row in order."""
    return relay.sort(data, axis, bool(is_ascend))


@computed
def argsort(data: Any, valid_count: Any = None, axis: int = -1, is_ascend: Any = 1, dtype: str = "float32") -> Any:
    """The indices that sort each row."""
    if valid_count is not None:
        raise error.UnsupportedError(
            "topi.argsort: valid_count is not supported; cut the rows with topi.strided_slice first"
        )
    return _indices(relay.argsort(data, axis, bool(is_ascend), "int32"), dtype)


@computed
def topk(
    data: Any, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """The k largest (is_ascend: smallest) elements of each row: values, indices or both."""
    made = relay.topk(data, k, axis, ret_type, bool(is_ascend), "int32")
    if ret_type == "both":
        return [made[0], _indices(made[1], dtype)]
    return [_indices(made, dtype) if ret_type == "indices" else made]


# ---- products


@computed
def matmul(a: Any, b: Any, transp_a: bool = False, transp_b: bool = False) -> Any:
    """The product of two matrices."""
    return relay.nn.matmul(a, b, transpose_a=bool(transp_a), transpose_b=bool(transp_b))


@computed
def einsum(subscripts: str, *operand: Any) -> Any:
    """Einstein summation."""
    return relay.einsum(list(operand), subscripts)


@computed
def tensordot(a: Any, b: Any, axes: Any) -> Any:
    """Sums over pairs of axes: the last and the first `axes`, or the axes of two lists."""
    na, nb = len(dims(a)), len(dims(b))
    if isinstance(axes, int):
        axes = [list(range(na - axes, na)), list(range(axes))]
    left, right = (list(x) if isinstance(x, (list, tuple)) else [x] for x in axes)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names_a: List[str] = list(letters[:na])
    names_b: List[str] = list(letters[na : na + nb])
    for i, k in zip(left, right):
        names_b[k] = names_a[i]
    rest = [x for x in names_a if x not in names_b] + [x for x in names_b if x not in names_a]
    return relay.einsum([a, b], f"{''.join(names_a)},{''.join(names_b)}->{''.join(rest)}")


# ---- signals


@computed
def dft(re_data: Any, im_data: Any, inverse: bool = False) -> Any:
    """The discrete Fourier transform along the last axis: real and imaginary parts."""
    return relay.dft(re_data, im_data, bool(inverse))


@computed
def stft(
    data: Any,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Any,
    normalized: bool,
    onesided: bool,
    output_shape: Any = None,
) -> Any:
    """The short-time Fourier transform."""
    return relay.stft(data, window, n_fft, hop_length, win_length, bool(normalized), bool(onesided))
