"""Operators relay.dyn.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

from . import nn as nn
Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "all", "any", "broadcast_to", "cumprod", "cumsum", "expand_dims", "full", "max", "mean", "min", "nn", "one_hot",
    "ones", "prod", "reshape", "split", "squeeze", "strided_slice", "sum", "take_first", "tile", "topk", "zeros",
]

def zeros(shape: Value, dtype: Optional[str] = None) -> RelayExpr:
    """zeros of a shape given as a tensor"""

def ones(shape: Value, dtype: Optional[str] = None) -> RelayExpr:
    """ones of a shape given as a tensor"""

def full(fill_value: Value, shape: Value, dtype: Optional[str] = None) -> RelayExpr:
    """fill_value throughout, of a shape given as a tensor"""

def broadcast_to(data: Value, shape: Value) -> RelayExpr:
    """data repeated to a shape given as a tensor"""

def sum(data: Value, axes: Value) -> RelayExpr:
    """sum over axes given as a tensor; reduced axes stay with extent 1; no axes: nothing is reduced"""

def prod(data: Value, axes: Value) -> RelayExpr:
    """product over axes given as a tensor; reduced axes stay with extent 1; no axes: nothing is reduced"""

def mean(data: Value, axes: Value) -> RelayExpr:
    """mean over axes given as a tensor; reduced axes stay with extent 1; no axes: nothing is reduced"""

def max(data: Value, axes: Value) -> RelayExpr:
    """largest element over axes given as a tensor; reduced axes stay with extent 1; no axes: nothing is reduced"""

def min(data: Value, axes: Value) -> RelayExpr:
    """smallest element over axes given as a tensor; reduced axes stay with extent 1; no axes: nothing is reduced"""

def all(data: Value, axes: Value) -> RelayExpr:
    """true where all elements over axes given as a tensor are; reduced axes stay with extent 1; no axes: nothing is reduced"""

def any(data: Value, axes: Value) -> RelayExpr:
    """true where some element over axes given as a tensor is; reduced axes stay with extent 1; no axes: nothing is reduced"""

def cumsum(data: Value, axis: Value, exclusive: bool = False, reverse: bool = False) -> RelayExpr:
    """running sums along an axis given as a tensor; takes time with the square of its extent"""

def cumprod(data: Value, axis: Value, exclusive: bool = False, reverse: bool = False) -> RelayExpr:
    """running products along an axis given as a tensor; takes time with the square of its extent"""

def reshape(data: Value, newshape: Value, allowzero: bool = False) -> RelayExpr:
    """reshape to a shape known only at run time"""

def squeeze(data: Value, axis: Value) -> RelayExpr:
    """squeeze with its axes as an operand"""

def expand_dims(data: Value, axis: Value, num_newaxis: int = 1) -> RelayExpr:
    """puts in axes of extent 1 at the positions that an operand gives"""

def tile(data: Value, reps: Value) -> RelayExpr:
    """tile with counts known only at run time"""

def strided_slice(
    data: Value,
    begin: Value,
    end: Value,
    strides: Value,
    slice_mode: str = 'end',
    axes: Optional[Sizes] = None,
) -> RelayExpr:
    """strided_slice with bounds known only at run time"""

def take_first(data: Value, count: Value, axis: int = 0) -> RelayExpr:
    """the first count entries of a padded tensor"""

def split(data: Value, sizes: Value, axis: int = 0) -> RelayExpr:
    """an axis in parts whose sizes are known only at run time; gives a tuple"""

def one_hot(
    indices: Value,
    on_value: Value,
    off_value: Value,
    depth: Value,
    axis: int = -1,
    dtype: Optional[str] = None,
) -> RelayExpr:
    """one_hot with a depth known only at run time"""

def topk(
    data: Value,
    k: Value,
    axis: int = -1,
    ret_type: str = 'both',
    is_ascend: bool = False,
    dtype: str = 'int32',
) -> RelayExpr:
    """topk with k known only at run time"""
