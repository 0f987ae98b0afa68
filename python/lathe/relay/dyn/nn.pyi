"""Operators relay.dyn.nn.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "pad",
]

def pad(data: Value, pad_width: Value, pad_value: Optional[Value] = None, pad_mode: str = 'constant') -> RelayExpr:
    """nn.pad whose pad_width, (n, 2) or (2 * n,), is computed"""
