"""Operators relay.strings.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "concat", "format", "full_match", "lower", "parse", "split", "upper",
]

def concat(lhs: Value, rhs: Value) -> RelayExpr:
    """each string with its partner behind it"""

def lower(data: Value) -> RelayExpr:
    """letters in lower case"""

def upper(data: Value) -> RelayExpr:
    """letters in upper case"""

def split(data: Value, delimiter: str = '', maxsplit: int = -1) -> RelayExpr:
    """the parts of each string along a new last axis, and their number"""

def full_match(data: Value, pattern: str = '') -> RelayExpr:
    """true where the whole string matches the pattern"""

def format(data: Value) -> RelayExpr:
    """numbers as text"""

def parse(data: Value, dtype: str = 'float32') -> RelayExpr:
    """text as numbers; what is none stops the run"""
