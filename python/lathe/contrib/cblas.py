"""Products of matrices as calls of an extern function.

The functions are Python's: numpy's matmul, which is the gemm of the BLAS that numpy was built with.  Code that uses
them runs in Python programs only; relay.nn.dense and te.compute give products that are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import error
from ..runtime.ndarray import NDArray
from ..runtime.packed import register_func


def _product(a: NDArray, b: NDArray, out: NDArray, transa: int, transb: int) -> None:
    x, y, z = np.asarray(a), np.asarray(b), np.asarray(out)
    # sums are of the result's type, also where the factors are narrower
    np.matmul(x.swapaxes(-1, -2) if transa else x, y.swapaxes(-1, -2) if transb else y, out=z, dtype=z.dtype)


for _name in ("matmul", "batch_matmul", "batch_matmul_iterative"):
    register_func(f"tvm.contrib.cblas.{_name}", _product, override=True)


def _extern(name: str, lhs: Any, rhs: Any, transa: bool, transb: bool, kwargs: Any) -> Any:
    from .. import te, tir

    batch = list(lhs.shape[:-2])
    if len(lhs.shape) != len(rhs.shape) or len(lhs.shape) < 2:
        raise error.ShapeError(f"cblas: matrices of {len(lhs.shape)} and {len(rhs.shape)} dimensions do not fit")
    shape = (*batch, lhs.shape[-1 if transa else -2], rhs.shape[-2 if transb else -1])
    return te.extern(
        shape,
        [lhs, rhs],
        lambda ins, outs: tir.call_packed(
            f"tvm.contrib.cblas.{name}", ins[0], ins[1], outs[0], int(transa), int(transb)
        ),
        **{"name": "C", "dtype": lhs.dtype, **kwargs},
    )


def matmul(lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, **kwargs: Any) -> Any:
    """A tensor: the product of two matrices."""
    return _extern("matmul", lhs, rhs, transa, transb, kwargs)


def batch_matmul(
    lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> Any:
    """A tensor: the products of two stacks of matrices."""
    return _extern("batch_matmul_iterative" if iterative else "batch_matmul", lhs, rhs, transa, transb, kwargs)
