"""The parameters beside a program: one tensor behind the other, in the order of their names.

Of each: its version and levels, both without meaning here, the message that tells dtype and sizes, and the elements."""

from __future__ import annotations

import struct
from typing import Any, Dict, List

import numpy as np

from .... import error
from .. import messages
from .program import Tensor

TABLES: messages.Tables = {"TensorDesc": {1: ("data_type", "int"), 2: ("dims*", "int")}}
READER = messages.Reader(TABLES, "Paddle's")
#: dtypes by number.
DTYPES = {
    0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64", 20: "uint8", 21: "int8",
    22: "bfloat16",
}  # fmt: skip


def dtype_of(number: int) -> str:
    """The name of a dtype."""
    if number not in DTYPES:
        raise error.UnsupportedError(f"from_paddle: tensors of the dtype {number}")
    return DTYPES[number]


def read(data: Any, wanted: List[Tensor]) -> Dict[str, np.ndarray]:
    """The parameters by name, in the file's memory; bfloat16 as its bits."""
    found: Dict[str, np.ndarray] = {}
    at = 0

    def take(form: str) -> int:
        nonlocal at
        size = struct.calcsize(form)
        if at + size > len(data):
            READER.broken("the parameters end too early")
        (value,) = struct.unpack_from(form, data, at)
        at += size
        return int(value)

    for t in sorted(wanted, key=lambda t: t.name):
        take("<I")
        for _ in range(take("<Q")):
            at += take("<Q")
        take("<I")
        size = take("<i")
        if size < 0 or at + size > len(data):
            READER.broken("the parameters end too early")
        told = READER.read(data[at : at + size], "TensorDesc")
        at += size
        dtype = dtype_of(told.data_type)
        if [d for d in told.dims] != t.shape or dtype != t.dtype:
            READER.broken(f"parameter '{t.name}' is {t.dtype} of {t.shape}, but the file has {dtype} of {told.dims}")
        kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        count = int(np.prod(t.shape, dtype=np.int64))
        if count < 0 or at + count * kind.itemsize > len(data):
            READER.broken("the parameters end too early")
        found[t.name] = np.frombuffer(data, kind, count, at).reshape(t.shape)
        at += count * kind.itemsize
    if at != len(data):
        READER.broken("there are more parameters than the program has")
    return found


__all__ = ["DTYPES", "READER", "TABLES", "dtype_of", "read"]
