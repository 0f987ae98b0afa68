"""Operators relay.random.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "bernoulli", "multinomial", "normal", "normal_like", "uniform", "uniform_like",
]

def uniform(
    seed: int = 0,
    low: float = 0.0,
    high: float = 1.0,
    out_shape: Sizes = [],
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """numbers spread evenly over [low, high), a function of seed and position"""

def uniform_like(
    data: Value,
    seed: int = 0,
    low: float = 0.0,
    high: float = 1.0,
    out_shape: Sizes = [],
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """random.uniform with the shape (and dtype) of data"""

def normal(
    seed: int = 0,
    mean: float = 0.0,
    scale: float = 1.0,
    out_shape: Sizes = [],
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """normally distributed numbers, a function of seed and position"""

def normal_like(
    data: Value,
    seed: int = 0,
    mean: float = 0.0,
    scale: float = 1.0,
    out_shape: Sizes = [],
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """random.normal with the shape (and dtype) of data"""

def bernoulli(probs: Value, seed: int = 0, dtype: Optional[str] = None) -> RelayExpr:
    """1 with the probability given, else 0; a probability of NaN gives 0"""

def multinomial(probs: Value, seed: int = 0, num_samples: int = 1, dtype: str = 'int32') -> RelayExpr:
    """classes drawn with the probabilities of the last axis (of any positive sum)"""
