"""Operators as tensor expressions: TVM's topi.

Every function takes te tensors and gives te tensors, computed as the operator of that name is in a graph."""

from ._compute import refused as _refused
from . import cuda, generic, image, nn, tag, testing, utils, vision, x86
from ._files import install as _install
from .math import (
    abs, acos, acosh, add, all, any, argmax, argmin, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_not,
    bitwise_or, bitwise_xor, broadcast_to, cast, ceil, clip, collapse_sum, cos, cosh, cumprod, cumsum, divide,
    elemwise_sum, equal, erf, exp, fast_erf, fast_exp, fast_tanh, fixed_point_multiply, floor, floor_divide,
    floor_mod, full, full_like, greater, greater_equal, identity, isfinite, isinf, isnan, left_shift, less,
    less_equal, log, log10, log2, logical_and, logical_not, logical_or, logical_xor, max, maximum, min, minimum,
    mod, multiply, negative, not_equal, power, prod, reinterpret, right_shift, round, rsqrt, sigmoid, sign, sin,
    sinh, sqrt, subtract, sum, tan, tanh, trunc,
)
from .transform import (
    adv_index, arange, argsort, concatenate, dft, einsum, expand_dims, expand_like, eye, flip, gather, gather_nd,
    layout_transform, matmul, matrix_set_diag, meshgrid, ndarray_size, one_hot, repeat, reshape, reverse_sequence,
    scatter_elements, scatter_nd, searchsorted, sequence_mask, shape, sliding_window, sort, split, squeeze, stack,
    stft, strided_slice, take, tensor_size, tensordot, tile, topk, transpose, trilu, unravel_index, where,
)
from .utils import get_const_tuple
from ..te.tensor import whole_tensors as _whole_tensors

_install(nn)
_whole_tensors.update(add=add, sub=subtract, mul=multiply, truediv=divide)

__getattr__ = _refused(
    "lathe.topi",
    (
        "argwhere", "binary_search", "ceil_log2", "const_vector", "dyn_tile", "dynamic_strided_slice",
        "fixed_point_multiply_per_axis", "hamming_window", "index_put", "index_tensor", "invert_permutation",
        "log_add_exp", "scanop", "segment_sum", "signal", "slice_scatter", "sparse", "sparse_fill_empty_rows",
        "sparse_reshape", "sparse_to_dense", "strided_set", "unique",
    ),
)

__all__ = [
    "abs", "acos", "acosh", "add", "adv_index", "all", "any", "arange", "argmax", "argmin", "argsort", "asin",
    "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to",
    "cast", "ceil", "clip", "collapse_sum", "concatenate", "cos", "cosh", "cuda", "cumprod", "cumsum", "dft",
    "divide", "einsum", "elemwise_sum", "equal", "erf", "exp", "expand_dims", "expand_like", "eye", "fast_erf",
    "fast_exp", "fast_tanh", "fixed_point_multiply", "flip", "floor", "floor_divide", "floor_mod", "full",
    "full_like", "gather", "gather_nd", "generic", "get_const_tuple", "greater", "greater_equal", "identity",
    "image", "isfinite", "isinf", "isnan", "layout_transform", "left_shift", "less", "less_equal", "log", "log10",
    "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "matrix_set_diag", "max",
    "maximum", "meshgrid", "min", "minimum", "mod", "multiply", "ndarray_size", "negative", "nn", "not_equal",
    "one_hot", "power", "prod", "reinterpret", "repeat", "reshape", "reverse_sequence", "right_shift", "round",
    "rsqrt", "scatter_elements", "scatter_nd", "searchsorted", "sequence_mask", "shape", "sigmoid", "sign", "sin",
    "sinh", "sliding_window", "sort", "split", "sqrt", "squeeze", "stack", "stft", "strided_slice", "subtract",
    "sum", "tag", "take", "tan", "tanh", "tensor_size", "tensordot", "testing", "tile", "topk", "transpose",
    "trilu", "trunc", "unravel_index", "utils", "vision", "where", "x86",
]
