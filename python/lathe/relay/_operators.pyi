"""Operators relay.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

from . import dyn as dyn
from . import image as image
from . import linalg as linalg
from . import ml as ml
from . import nn as nn
from . import optional as optional
from . import qnn as qnn
from . import random as random
from . import sequence as sequence
from . import signal as signal
from . import strings as strings
from . import vision as vision
Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "abs", "acos", "acosh", "add", "adv_index", "all", "any", "arange", "argmax", "argmin", "argsort", "argwhere",
    "argwhere_padded", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "broadcast_to", "broadcast_to_like", "call_dps_packed", "call_packed", "cast", "cast_like",
    "ceil", "clip", "collapse_sum_like", "collapse_sum_to", "compress", "concatenate", "contrib_reverse_reshape",
    "copy", "cos", "cosh", "count_ngrams", "cumprod", "cumsum", "device_copy", "dft", "divide", "dyn", "einsum",
    "equal", "erf", "exp", "expand_dims", "eye", "eye_like", "fast_erf", "fast_exp", "fast_tanh",
    "fixed_point_multiply", "floor", "floor_divide", "floor_mod", "full", "full_like", "gather", "gather_nd",
    "greater", "greater_equal", "image", "invert_permutation", "isfinite", "isinf", "isnan", "layout_transform",
    "left_shift", "less", "less_equal", "linalg", "log", "log10", "log2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "matrix_set_diag", "max", "maximum", "mean", "mean_std",
    "mean_variance", "meshgrid", "min", "minimum", "ml", "mod", "multiply", "ndarray_size", "negative", "nn",
    "not_equal", "on_device", "one_hot", "ones", "ones_like", "optional", "power", "prod", "qnn", "random",
    "reinterpret", "repeat", "reshape", "reshape_like", "reverse", "reverse_sequence", "right_shift", "round",
    "rsqrt", "scatter_elements", "scatter_nd", "searchsorted", "sequence", "sequence_mask", "shape_of", "sigmoid",
    "sign", "signal", "sin", "sinh", "slice_like", "sliding_window", "sort", "sparse_reshape", "sparse_to_dense",
    "split", "sqrt", "squeeze", "stack", "std", "stft", "strided_set", "strided_slice", "strings", "subtract",
    "sum", "take", "tan", "tanh", "tile", "topk", "transpose", "trilu", "trunc", "trunc_divide", "trunc_mod",
    "unique", "unique_padded", "unravel_index", "variance", "vision", "where", "zeros", "zeros_like",
]

def exp(data: Value) -> RelayExpr:
    """e to the power of each element"""

def log(data: Value) -> RelayExpr:
    """natural logarithm"""

def log2(data: Value) -> RelayExpr:
    """logarithm to base 2"""

def log10(data: Value) -> RelayExpr:
    """logarithm to base 10"""

def sqrt(data: Value) -> RelayExpr:
    """square root"""

def rsqrt(data: Value) -> RelayExpr:
    """1 / square root"""

def sigmoid(data: Value) -> RelayExpr:
    """1 / (1 + exp(-x))"""

def tanh(data: Value) -> RelayExpr:
    """hyperbolic tangent"""

def sin(data: Value) -> RelayExpr:
    """sine"""

def cos(data: Value) -> RelayExpr:
    """cosine"""

def tan(data: Value) -> RelayExpr:
    """tangent"""

def asin(data: Value) -> RelayExpr:
    """arc sine"""

def acos(data: Value) -> RelayExpr:
    """arc cosine"""

def atan(data: Value) -> RelayExpr:
    """arc tangent"""

def sinh(data: Value) -> RelayExpr:
    """hyperbolic sine"""

def cosh(data: Value) -> RelayExpr:
    """hyperbolic cosine"""

def asinh(data: Value) -> RelayExpr:
    """inverse hyperbolic sine"""

def acosh(data: Value) -> RelayExpr:
    """inverse hyperbolic cosine"""

def atanh(data: Value) -> RelayExpr:
    """inverse hyperbolic tangent"""

def erf(data: Value) -> RelayExpr:
    """error function"""

def abs(data: Value) -> RelayExpr:
    """absolute value; of the smallest integer, itself"""

def negative(data: Value) -> RelayExpr:
    """the element with its sign changed"""

def floor(data: Value) -> RelayExpr:
    """largest integer not above; integers stay"""

def ceil(data: Value) -> RelayExpr:
    """smallest integer not below; integers stay"""

def trunc(data: Value) -> RelayExpr:
    """the element without its fraction; integers stay"""

def round(data: Value) -> RelayExpr:
    """nearest integer, halves to the even one; integers stay"""

def sign(data: Value) -> RelayExpr:
    """-1, 0 or 1; of NaN, NaN"""

def copy(data: Value) -> RelayExpr:
    """the same elements"""

def clip(data: Value, a_min: float = ..., a_max: float = ...) -> RelayExpr:
    """min(max(x, a_min), a_max); of NaN, NaN; bounds outside an integer's range limit nothing"""

def logical_not(data: Value) -> RelayExpr:
    """true where the element is false"""

def bitwise_not(data: Value) -> RelayExpr:
    """all bits inverted; of bool, logical_not"""

def isnan(data: Value) -> RelayExpr:
    """true where the element is not a number"""

def isinf(data: Value) -> RelayExpr:
    """true where the element is an infinity of either sign"""

def isfinite(data: Value) -> RelayExpr:
    """true where the element is neither infinite nor NaN"""

def cast(data: Value, dtype: str) -> RelayExpr:
    """the elements as another dtype: float to integer truncates and saturates, NaN gives 0; to bool: x != 0; integers wrap"""

def cast_like(data: Value, dtype_like: Value) -> RelayExpr:
    """the elements as the dtype of another tensor, converted as cast does"""

def reinterpret(data: Value, dtype: str) -> RelayExpr:
    """the same bits as another dtype of the same width"""

def fixed_point_multiply(data: Value, multiplier: int, shift: int) -> RelayExpr:
    """round(x * multiplier * 2^(shift - 31)), ties up"""

def fast_exp(data: Value) -> RelayExpr:
    """e to the power of each element, within 4e-7 relative for -87.3 < x < 88.7, limited beyond; only float32 is approximated"""

def fast_tanh(data: Value) -> RelayExpr:
    """hyperbolic tangent within 5e-7 absolute; only float32 is approximated"""

def fast_erf(data: Value) -> RelayExpr:
    """error function within 6e-7 absolute; only float32 is approximated"""

def add(lhs: Value, rhs: Value) -> RelayExpr:
    """sum; integers wrap"""

def subtract(lhs: Value, rhs: Value) -> RelayExpr:
    """difference; integers wrap"""

def multiply(lhs: Value, rhs: Value) -> RelayExpr:
    """product; integers wrap"""

def divide(lhs: Value, rhs: Value) -> RelayExpr:
    """quotient; of integers truncated toward zero, by zero 0"""

def floor_divide(lhs: Value, rhs: Value) -> RelayExpr:
    """floor of the quotient; integers by zero: 0"""

def trunc_divide(lhs: Value, rhs: Value) -> RelayExpr:
    """quotient without its fraction; integers by zero: 0"""

def mod(lhs: Value, rhs: Value) -> RelayExpr:
    """remainder with the sign of the dividend (C's fmod); integers by zero: 0"""

def trunc_mod(lhs: Value, rhs: Value) -> RelayExpr:
    """remainder with the sign of the dividend (C's fmod); integers by zero: 0"""

def floor_mod(lhs: Value, rhs: Value) -> RelayExpr:
    """remainder with the sign of the divisor; integers by zero: 0"""

def power(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs to the power of rhs; integers wrap, to a negative power 0 unless lhs is 1 or -1"""

def atan2(lhs: Value, rhs: Value) -> RelayExpr:
    """angle of the point (rhs, lhs)"""

def maximum(lhs: Value, rhs: Value) -> RelayExpr:
    """the larger; NaN if either is NaN"""

def minimum(lhs: Value, rhs: Value) -> RelayExpr:
    """the smaller; NaN if either is NaN"""

def bitwise_and(lhs: Value, rhs: Value) -> RelayExpr:
    """and of the bits"""

def bitwise_or(lhs: Value, rhs: Value) -> RelayExpr:
    """or of the bits"""

def bitwise_xor(lhs: Value, rhs: Value) -> RelayExpr:
    """exclusive or of the bits"""

def left_shift(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs shifted left; by its width or more, or by a negative count: 0"""

def right_shift(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs shifted right, keeping the sign of signed integers; by its width or more, or by a negative count: all shifted out"""

def logical_and(lhs: Value, rhs: Value) -> RelayExpr:
    """true where both are"""

def logical_or(lhs: Value, rhs: Value) -> RelayExpr:
    """true where either is"""

def logical_xor(lhs: Value, rhs: Value) -> RelayExpr:
    """true where exactly one is"""

def equal(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs == rhs; false for NaN"""

def not_equal(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs != rhs; true for NaN"""

def less(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs < rhs; false for NaN"""

def less_equal(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs <= rhs; false for NaN"""

def greater(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs > rhs; false for NaN"""

def greater_equal(lhs: Value, rhs: Value) -> RelayExpr:
    """lhs >= rhs; false for NaN"""

def where(condition: Value, x: Value, y: Value) -> RelayExpr:
    """x where the condition holds, y elsewhere; all three broadcast"""

def zeros(shape: Sizes, dtype: Optional[str] = None) -> RelayExpr:
    """a tensor of zeros"""

def ones(shape: Sizes, dtype: Optional[str] = None) -> RelayExpr:
    """a tensor of ones"""

def full(fill_value: Any, shape: Any = (), dtype: str = '') -> RelayExpr:
    """a tensor whose elements are all fill_value, converted as cast does"""

def zeros_like(data: Value) -> RelayExpr:
    """zeros with the shape and dtype of data"""

def ones_like(data: Value) -> RelayExpr:
    """ones with the shape and dtype of data"""

def full_like(data: Value, fill_value: Value) -> RelayExpr:
    """fill_value throughout, with the shape and dtype of data"""

def arange(start: Any, stop: Optional[Any] = None, step: Any = None, dtype: str = 'float32') -> RelayExpr:
    """start + i * step for as long as that is before stop"""

def broadcast_to(data: Value, shape: Sizes) -> RelayExpr:
    """data repeated to a shape it broadcasts to"""

def broadcast_to_like(data: Value, broadcast_type: Value) -> RelayExpr:
    """data repeated to the shape of another tensor"""

def collapse_sum_to(data: Value, shape: Sizes) -> RelayExpr:
    """sums what a broadcast from this shape would have repeated"""

def collapse_sum_like(data: Value, collapse_type: Value) -> RelayExpr:
    """sums what a broadcast from the other tensor's shape would have repeated"""

def sum(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """sum over axes; floats narrower than float32 are summed in float32; integers wrap"""

def prod(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """product over axes; floats narrower than float32 are multiplied in float32; integers wrap"""

def mean(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """mean over axes; of integers truncated toward zero; of nothing NaN, of no integers 0"""

def max(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """largest element over axes; NaN if there is one; of nothing the smallest value"""

def min(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """smallest element over axes; NaN if there is one; of nothing the largest value"""

def all(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """true where all elements over the axes are; of nothing true"""

def any(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """true where some element over the axes is; of nothing false"""

def argmax(
    data: Value,
    axis: Optional[Sizes] = None,
    keepdims: bool = False,
    exclude: bool = False,
    select_last_index: bool = False,
) -> RelayExpr:
    """index of the largest element over axes (row major when there are several), int32; the first NaN counts as largest"""

def argmin(
    data: Value,
    axis: Optional[Sizes] = None,
    keepdims: bool = False,
    exclude: bool = False,
    select_last_index: bool = False,
) -> RelayExpr:
    """index of the smallest element over axes (row major when there are several), int32; the first NaN counts as smallest"""

def variance(
    data: Value,
    axis: Optional[Sizes] = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> RelayExpr:
    """mean of the squared distance from the mean"""

def std(
    data: Value,
    axis: Optional[Sizes] = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> RelayExpr:
    """standard deviation: square root of the variance"""

def mean_variance(
    data: Value,
    axis: Optional[Sizes] = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> RelayExpr:
    """mean and variance"""

def mean_std(
    data: Value,
    axis: Optional[Sizes] = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> RelayExpr:
    """mean and standard deviation"""

def logsumexp(data: Value, axis: Optional[Sizes] = None, keepdims: bool = False, exclude: bool = False) -> RelayExpr:
    """log(sum(exp(x))) over axes without overflow; of nothing -inf"""

def layout_transform(data: Value, src_layout: str, dst_layout: str) -> RelayExpr:
    """the tensor in another layout; blocks that are larger than what is left are filled with zeros"""

def reshape(data: Value, newshape: Sizes, allowzero: bool = False) -> RelayExpr:
    """the same elements in another shape"""

def contrib_reverse_reshape(data: Value, newshape: Sizes, allowzero: bool = False) -> RelayExpr:
    """reshape whose codes are read from the right"""

def reshape_like(
    data: Value,
    shape_like: Value,
    lhs_begin: int = 0,
    lhs_end: Optional[Sizes] = None,
    rhs_begin: int = 0,
    rhs_end: Optional[Sizes] = None,
) -> RelayExpr:
    """the elements of data in the shape of shape_like"""

def squeeze(data: Value, axis: Optional[Sizes] = None) -> RelayExpr:
    """drops axes of extent 1"""

def expand_dims(data: Value, axis: int, num_newaxis: int = 1) -> RelayExpr:
    """puts in axes of extent 1"""

def shape_of(data: Value, dtype: str = 'int32') -> RelayExpr:
    """the extents of a tensor"""

def ndarray_size(data: Value, dtype: str = 'int32') -> RelayExpr:
    """the number of elements of a tensor"""

def transpose(data: Value, axes: Optional[Sizes] = None) -> RelayExpr:
    """the axes in another order"""

def reverse(data: Value, axis: int) -> RelayExpr:
    """one axis the other way round"""

def reverse_sequence(data: Value, seq_lengths: Value, seq_axis: int = 1, batch_axis: int = 0) -> RelayExpr:
    """the first seq_lengths[b] elements of each sequence the other way round"""

def concatenate(data: Any, axis: int) -> RelayExpr:
    """tensors one after the other along an axis"""

def stack(data: Any, axis: int) -> RelayExpr:
    """tensors of one shape along a new axis"""

def split(data: Any, indices_or_sections: Any, axis: int = 0) -> TupleWrapper:
    """an axis in parts; gives a tuple"""

def tile(data: Value, reps: Sizes) -> RelayExpr:
    """the tensor again and again along its axes"""

def repeat(data: Value, repeats: int, axis: int) -> RelayExpr:
    """each element of an axis several times"""

def meshgrid(data: Value, indexing: str = 'ij') -> RelayExpr:
    """coordinate grids from vectors; gives a tuple"""

def sliding_window(data: Value, axis: int, window_shape: Sizes, strides: Sizes) -> RelayExpr:
    """every position of a moving window"""

def strided_slice(
    data: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Any = None,
    slice_mode: str = 'end',
) -> RelayExpr:
    """begin:end:stride of each axis; bounds outside are brought to the edge"""

def slice_like(data: Value, shape_like: Value, axes: Optional[Sizes] = None) -> RelayExpr:
    """the first part of data, as long as shape_like"""

def take(data: Any, indices: Any, axis: Optional[int] = None, batch_dims: int = 0, mode: str = 'clip') -> RelayExpr:
    """entries of an axis by position; outside: brought inside (clip), round (wrap), negative from the end (fast)"""

def gather(data: Any, axis: int, indices: Any) -> RelayExpr:
    """out[i, j] = data[indices[i, j], j] along axis"""

def gather_nd(data: Value, indices: Value, batch_dims: int = 0, index_rank: Optional[Sizes] = None) -> RelayExpr:
    """out[x] = data[indices[0, x], indices[1, x], …]"""

def adv_index(inputs: Value) -> RelayExpr:
    """numpy indexing with arrays: data[index0, index1, …]"""

def one_hot(
    indices: Value,
    on_value: Value,
    off_value: Value,
    depth: int,
    axis: int = -1,
    dtype: Optional[str] = None,
) -> RelayExpr:
    """on_value at the index along a new axis, off_value elsewhere; negative indices from the end"""

def sequence_mask(data: Value, valid_length: Value, mask_value: float = 0.0, axis: int = 0) -> RelayExpr:
    """mask_value after the end of each sequence"""

def unravel_index(indices: Value, shape: Value) -> RelayExpr:
    """flat positions as one row for each axis"""

def invert_permutation(data: Value) -> RelayExpr:
    """out[data[i]] = i"""

def searchsorted(sorted_sequence: Value, values: Value, right: bool = False, dtype: str = 'int32') -> RelayExpr:
    """where values would go in a sorted sequence"""

def count_ngrams(data: Value, grams: Value, skips: int = 0) -> RelayExpr:
    """how often each row of data (rows, length) holds each n-gram of grams (count, n)"""

def sort(data: Value, axis: int = -1, is_ascend: bool = True) -> RelayExpr:
    """rows in order; stable, NaN above every number"""

def argsort(data: Value, axis: int = -1, is_ascend: bool = True, dtype: str = 'int32') -> RelayExpr:
    """positions of the rows' elements in order; stable, NaN above every number"""

def topk(
    data: Value,
    k: int = 1,
    axis: int = -1,
    ret_type: str = 'both',
    is_ascend: bool = False,
    dtype: str = 'int32',
) -> RelayExpr:
    """the k largest (or smallest) of each row in order; ties: lower index first, NaN above every number"""

def cumsum(
    data: Value,
    axis: Optional[Sizes] = None,
    dtype: Optional[str] = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> RelayExpr:
    """running sum along an axis"""

def cumprod(
    data: Value,
    axis: Optional[Sizes] = None,
    dtype: Optional[str] = None,
    exclusive: bool = False,
    reverse: bool = False,
) -> RelayExpr:
    """running product along an axis"""

def trilu(data: Value, k: Value, upper: bool = True) -> RelayExpr:
    """the part of each matrix above (or below) diagonal k, zero elsewhere"""

def matrix_set_diag(data: Value, diagonal: Value, k: Sizes = [0], align: str = 'RIGHT_LEFT') -> RelayExpr:
    """data with diagonals of each matrix replaced"""

def eye(n: int, m: Optional[Sizes] = None, k: int = 0, dtype: str = 'float32') -> RelayExpr:
    """ones on a diagonal, zeros elsewhere"""

def eye_like(data: Value, k: int = 0, dtype: Optional[str] = None) -> RelayExpr:
    """eye in the shape of data"""

def scatter_elements(
    data: Value,
    indices: Value,
    updates: Value,
    axis: int = 0,
    reduction: str = 'update',
) -> RelayExpr:
    """data with updates put at indices along axis; an update outside is dropped"""

def scatter_nd(data: Value, indices: Value, updates: Value, mode: str = 'update') -> RelayExpr:
    """data with updates put at indices[:, x]; an update outside is dropped"""

def strided_set(data: Value, v: Value, begin: Sizes, end: Sizes, strides: Optional[Sizes] = None) -> RelayExpr:
    """data with v put at the positions that strided_slice would take"""

def argwhere_padded(condition: Value) -> RelayExpr:
    """indices of the elements that are not zero, in the first rows, and their number"""

def argwhere(condition: Value) -> RelayExpr:
    """indices of the elements that are not zero (NaN is not), in row-major order"""

def compress(data: Value, condition: Value, axis: Optional[Sizes] = None) -> RelayExpr:
    """the entries of an axis where condition holds"""

def unique_padded(data: Value, is_sorted: bool = True) -> RelayExpr:
    """groups of equal rows: first row, group of each row, sizes, and their number; NaN equals NaN"""

def unique(data: Value, is_sorted: bool = True, return_counts: bool = False, axis: Optional[Sizes] = None) -> RelayExpr:
    """distinct elements (or slices), where each first occurs, which each element is, how many; NaN equals NaN"""

def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Sequence[int],
    sparse_values: Any,
    default_value: Any = 0,
) -> RelayExpr:
    """values at their places, default_value elsewhere; a place outside is dropped"""

def sparse_reshape(sparse_indices: Value, prev_shape: Value, new_shape: Value) -> RelayExpr:
    """places of a sparse tensor under another shape, in which one -1 stands for what is left; and that shape"""

def einsum(data: Any, equation: str) -> RelayExpr:
    """sum of products over the labels that the result lacks"""

def dft(re_data: Value, im_data: Value, inverse: bool = False) -> RelayExpr:
    """discrete Fourier transform along the last axis, real and imaginary part apart; gives a tuple"""

def stft(
    data: Any,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Any,
    normalized: bool = False,
    onesided: bool = True,
) -> RelayExpr:
    """short-time Fourier transform: (batch, bins, frames, 2)"""

def call_dps_packed(*args: Value, func: str = ..., shape: Sizes = ..., dtype: str = ...) -> RelayExpr:
    """a tensor that a function, which the running program finds by its name, fills from the arguments"""

def call_packed(*args: Value, func: str = ..., type: str = ...) -> RelayExpr:
    """an object that a function, which the running program finds by its name, makes of the arguments"""

def on_device(body: Any, device: Any, constrain_result: bool = False, constrain_body: bool = True) -> RelayExpr:
    """a value that is computed, or wanted, on a device"""

def device_copy(data: Any, src_device: Any, dst_device: Any) -> RelayExpr:
    """the same elements in memory of another device"""
