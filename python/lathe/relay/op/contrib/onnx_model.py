"""Models in ONNX's file format, written message by message: what a backend that reads ONNX is handed."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Sequence

import numpy as np

from .... import error

OPSET, IR_VERSION = 17, 8
MOST_BYTES = 2**31 - 1  # of a message

#: ONNX's numbers of the types of elements.
TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13,
}  # fmt: skip


def _varint(v: int) -> bytes:
    v &= 2**64 - 1
    out = bytearray()
    while v > 127:
        out.append(v & 127 | 128)
        v >>= 7
    out.append(v)
    return bytes(out)


def _field(number: int, value: Any) -> bytes:
    """A field that holds a number, text or a message."""
    if isinstance(value, (int, np.integer)):
        return _varint(number << 3) + _varint(int(value))
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _attribute(name: str, value: Any) -> bytes:
    kinds = {float: (2, 1), int: (3, 2), bool: (3, 2), str: (4, 3)}
    if isinstance(value, (list, tuple)):
        return _field(1, name) + b"".join(_field(8, int(v)) for v in value) + _field(20, 7)
    number, kind = kinds[type(value)]
    return _field(1, name) + _field(number, value if isinstance(value, (float, str)) else int(value)) + _field(20, kind)


def _value(name: str, dtype: str, shape: Sequence[int]) -> bytes:
    dims = b"".join(_field(1, _field(1, int(d))) for d in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, TYPES[dtype]) + _field(2, dims)))


class ModelWriter:
    """Nodes, weights, inputs and outputs of a model; `done` is its file."""

    def __init__(self, name: str):
        self.name = name
        self._nodes: List[bytes] = []
        self._parts: List[bytes] = []  # weights, inputs, outputs
        self._known: Dict[Any, str] = {}
        self._count = 0

    def fresh(self) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"v{self._count}"

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attrs: Any) -> List[str]:
        """Adds a node; the names of what it gives."""
        made = [self.fresh() for _ in range(outputs)]
        self._nodes.append(
            b"".join(_field(1, i) for i in inputs)
            + b"".join(_field(2, o) for o in made)
            + _field(4, op)
            + b"".join(_field(5, _attribute(k, v)) for k, v in attrs.items())
        )
        return made

    def constant(self, value: Any, dtype: str = "") -> str:
        """A weight; small ones that are equal are one."""
        array = np.ascontiguousarray(value, dtype=dtype or None).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 16 else None
        if key in self._known:
            return self._known[key]
        name = self.fresh()
        head = b"".join(_field(1, d) for d in array.shape) + _field(2, TYPES[array.dtype.name]) + _field(8, name)
        self._parts.append(_field(5, head + _field(9, array.tobytes())))
        if key is not None:
            self._known[key] = name
        return name

    def input(self, name: str, dtype: str, shape: Sequence[int]) -> str:
        """Adds an input."""
        self._parts.append(_field(11, _value(name, dtype, shape)))
        return name

    def output(self, value: str, dtype: str, shape: Sequence[int]) -> None:
        """Makes a value an output, under a name of its own."""
        name = self.node("Identity", [value])[0]
        self._parts.append(_field(12, _value(name, dtype, shape)))

    def done(self) -> bytes:
        """The file."""
        graph = b"".join([_field(1, n) for n in self._nodes] + [_field(2, self.name)] + self._parts)
        if len(graph) > MOST_BYTES - 1024:
            raise error.UnsupportedError(
                f"{self.name}: {len(graph)} bytes are more than an ONNX file holds (2 GiB); partition with merge=False"
            )
        return _field(1, IR_VERSION) + _field(2, "lathe") + _field(7, graph) + _field(8, _field(2, OPSET))


