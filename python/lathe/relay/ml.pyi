"""Operators relay.ml.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "pairwise_probability", "tree_ensemble",
]

def tree_ensemble(
    data: Value,
    base: Value,
    node: Value,
    split: Value,
    root: Value,
    weight: Value,
    target: Optional[Value] = None,
    aggregate: str = 'sum',
    missing: bool = False,
    in_range: bool = False,
    *,
    depth: int,
) -> RelayExpr:
    """decision trees as tables: for each row the weights of the leaves it comes to, summed or least or greatest"""

def pairwise_probability(data: Value) -> RelayExpr:
    """probabilities of classes from those of each pair of them"""
