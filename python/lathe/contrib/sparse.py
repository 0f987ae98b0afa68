"""Matrices with few elements that are not 0, by rows (CSR): the elements, the column of each, where each row begins."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np

from .. import error
from ..runtime.device import Device, cpu
from ..runtime.ndarray import NDArray, array as _array


class CSRNDArray:
    """A matrix by rows, from a dense array or from (data, indices, indptr)."""

    stype = "csr"

    def __init__(self, arg1: Any, device: Optional[Device] = None, shape: Optional[Tuple[int, int]] = None):
        device = device or cpu(0)
        if isinstance(arg1, tuple):
            if len(arg1) != 3 or shape is None:
                raise error.ArgumentError("CSRNDArray: wants (data, indices, indptr) and the shape, or a dense matrix")
            data, indices, indptr = arg1
        else:
            dense = np.asarray(arg1)
            if dense.ndim != 2:
                raise error.ShapeError(f"CSRNDArray: wants a matrix, not an array of {dense.ndim} dimensions")
            rows, indices = np.nonzero(dense)
            data, shape = dense[rows, indices], dense.shape
            indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=dense.shape[0]))])
            indices = indices.astype("int32")
        self.data: NDArray = _array(data, device)
        self.indices: NDArray = _array(np.asarray(indices, dtype="int32"), device)
        self.indptr: NDArray = _array(np.asarray(indptr, dtype="int32"), device)
        self.shape, self.dtype = tuple(shape), self.data.dtype

    def numpy(self) -> np.ndarray:
        """The whole matrix."""
        full = np.zeros(self.shape, np.asarray(self.data).dtype)
        starts = np.asarray(self.indptr)
        full[np.repeat(np.arange(self.shape[0]), np.diff(starts)), np.asarray(self.indices)] = np.asarray(self.data)
        return full

    asnumpy = numpy


def array(
    source_array: Any, device: Optional[Device] = None, shape: Optional[Tuple[int, int]] = None, stype: str = "csr"
) -> CSRNDArray:
    """A matrix by rows."""
    if stype != "csr":
        raise error.UnsupportedError(f"sparse.array: there is no storage '{stype}', only csr")
    return CSRNDArray(source_array, device, shape)


class CSRPlaceholderOp:
    """Stands for a matrix by rows in a tensor expression: placeholders for its three arrays."""

    stype = "csr"

    def __init__(self, shape: Any, nonzeros: Any, dtype: str, name: str):
        from .. import te

        self.shape, self.dtype, self.name = tuple(shape), dtype, name
        self.data = te.placeholder((nonzeros,), dtype=dtype, name=name + "_data")
        self.indices = te.placeholder((nonzeros,), dtype="int32", name=name + "_indices")
        self.indptr = te.placeholder((self.shape[0] + 1,), dtype="int32", name=name + "_indptr")


def placeholder(
    shape: Any, nonzeros: Any = None, dtype: Optional[str] = None, name: str = "placeholder", stype: str = "csr"
) -> CSRPlaceholderOp:
    """A matrix by rows to be given later."""
    if stype != "csr":
        raise error.UnsupportedError(f"sparse.placeholder: there is no storage '{stype}', only csr")
    if nonzeros is None:
        raise error.ArgumentError(
            "sparse.placeholder: nonzeros, the number of elements that are not 0, must be given; it may be a te.var"
        )
    return CSRPlaceholderOp(shape, nonzeros, dtype or "float32", name)
