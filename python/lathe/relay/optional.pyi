"""Operators relay.optional.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "get_element", "has_element", "make",
]

def make(input: Optional[Value] = None, dtype: str = 'float32', sequence: bool = False) -> RelayExpr:
    """an optional with this value, or without one"""

def has_element(input: Optional[Value] = None) -> RelayExpr:
    """is there a value?  A tensor or a sequence is one"""

def get_element(input: Value) -> RelayExpr:
    """the value of an optional; a tensor or a sequence itself"""
