"""Operators relay.sequence.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "at", "concat", "construct", "empty", "erase", "insert", "length", "split",
]

def empty(dtype: str = 'float32') -> RelayExpr:
    """a sequence without items"""

def construct(*args: Value) -> RelayExpr:
    """a sequence of these items"""

def at(input_sequence: Value, position: Value) -> RelayExpr:
    """an item of a sequence; negative positions from the end"""

def insert(input_sequence: Value, tensor: Value, position: Optional[Value] = None) -> RelayExpr:
    """the sequence with one more item"""

def erase(input_sequence: Value, position: Optional[Value] = None) -> RelayExpr:
    """the sequence without one item"""

def length(input_sequence: Value) -> RelayExpr:
    """the number of items, an int64 scalar"""

def concat(input_sequence: Value, axis: int = 0, new_axis: bool = False) -> RelayExpr:
    """the items joined along an axis, or stacked along a new one"""

def split(input: Value, split: Optional[Value] = None, axis: int = 0, keepdims: bool = True) -> RelayExpr:
    """a tensor as a sequence of its parts along an axis"""
