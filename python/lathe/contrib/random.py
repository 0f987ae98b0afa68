"""Random numbers as calls of an extern function.  The functions are Python's: a generator of numpy's, which
`lathe.get_global_func("tvm.contrib.random.seed")(n)` starts anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.ndarray import NDArray
from ..runtime.packed import register_func

_generator = np.random.default_rng()


def _seed(value: int) -> None:
    global _generator
    _generator = np.random.default_rng(value)


def _randint(low: int, high: int, out: NDArray) -> None:
    np.asarray(out)[...] = _generator.integers(low, high, out.shape, dtype=np.int64)


def _uniform(low: float, high: float, out: NDArray) -> None:
    np.asarray(out)[...] = _generator.uniform(low, high, out.shape)


def _normal(loc: float, scale: float, out: NDArray) -> None:
    np.asarray(out)[...] = _generator.normal(loc, scale, out.shape)


for _name, _fn in (("seed", _seed), ("randint", _randint), ("uniform", _uniform), ("normal", _normal)):
    register_func(f"tvm.contrib.random.{_name}", _fn, override=True)


def _extern(name: str, size: Any, dtype: str, a: Any, b: Any) -> Any:
    from .. import te, tir

    shape = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    return te.extern(
        shape, [], lambda _ins, outs: tir.call_packed(f"tvm.contrib.random.{name}", a, b, outs[0]), dtype=dtype
    )


def randint(low: int, high: int, size: Any, dtype: str = "int32") -> Any:
    """A tensor of integers from low up to, but not including, high."""
    return _extern("randint", size, dtype, int(low), int(high))


def uniform(low: float, high: float, size: Any) -> Any:
    """A tensor of numbers spread evenly from low to high."""
    return _extern("uniform", size, "float32", float(low), float(high))


def normal(loc: float, scale: float, size: Any) -> Any:
    """A tensor of numbers of a normal distribution."""
    return _extern("normal", size, "float32", float(loc), float(scale))
