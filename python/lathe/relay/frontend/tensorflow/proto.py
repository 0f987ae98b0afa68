"""TensorFlow's messages, read from bytes and checked on the way.

A message is told by a table: the number of a field, its name, and what it holds.  "*" behind a name says that there may
be several, "%" that the field is a map from names.  Fields that no table has are passed over."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from .... import error


TABLES: Dict[str, Dict[int, Tuple[str, str]]] = {
    "SavedModel": {2: ("meta_graphs*", "MetaGraphDef")},
    "MetaGraphDef": {1: ("info", "MetaInfo"), 2: ("graph_def", "GraphDef"), 5: ("signature_def%", "SignatureDef")},
    "MetaInfo": {4: ("tags*", "str")},
    "SignatureDef": {1: ("inputs%", "TensorInfo"), 2: ("outputs%", "TensorInfo")},
    "TensorInfo": {1: ("name", "str"), 2: ("dtype", "int"), 3: ("shape", "Shape")},
    "GraphDef": {1: ("node*", "NodeDef"), 2: ("library", "Library")},
    "Library": {1: ("function*", "FunctionDef")},
    "FunctionDef": {1: ("signature", "OpDef"), 3: ("node_def*", "NodeDef"), 4: ("ret%", "str")},
    "OpDef": {1: ("name", "str"), 2: ("input_arg*", "ArgDef"), 3: ("output_arg*", "ArgDef")},
    "ArgDef": {1: ("name", "str"), 3: ("type", "int")},
    "NodeDef": {1: ("name", "str"), 2: ("op", "str"), 3: ("input*", "str"), 5: ("attr%", "AttrValue")},
    "AttrValue": {
        1: ("list", "ListValue"), 2: ("s", "bytes"), 3: ("i", "int"), 4: ("f", "float"), 5: ("b", "bool"),
        6: ("type", "int"), 7: ("shape", "Shape"), 8: ("tensor", "Tensor"), 10: ("func", "NameAttrList"),
    },
    "ListValue": {
        2: ("s*", "bytes"), 3: ("i*", "int"), 4: ("f*", "float"), 5: ("b*", "bool"), 6: ("type*", "int"),
        7: ("shape*", "Shape"), 9: ("func*", "NameAttrList"),
    },
    "NameAttrList": {1: ("name", "str")},
    "Shape": {2: ("dim*", "Dim"), 3: ("unknown_rank", "bool")},
    "Dim": {1: ("size", "int")},
    "Tensor": {
        1: ("dtype", "int"), 2: ("shape", "Shape"), 4: ("content", "bytes"), 5: ("float32*", "float"),
        6: ("float64*", "double"), 7: ("int32*", "int"), 8: ("bytes*", "bytes"), 10: ("int64*", "int"),
        11: ("bool*", "int"), 13: ("half*", "int"), 16: ("uint32*", "int"), 17: ("uint64*", "int"),
    },
    "BundleHeader": {1: ("num_shards", "int"), 2: ("endianness", "int")},
    "BundleEntry": {
        1: ("dtype", "int"), 2: ("shape", "Shape"), 3: ("shard_id", "int"), 4: ("offset", "int"), 5: ("size", "int"),
        7: ("slices*", "bytes"),
    },
}  # fmt: skip

#: DataType by number.
DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
}  # fmt: skip
MOST_DEPTH, MOST_ELEMENTS = 64, 1 << 33
_EMPTY = {"int": 0, "bool": False, "float": 0.0, "double": 0.0, "str": "", "bytes": b""}


class Message:
    """Fields by name; `has` are those that were there."""

    def __init__(self, kind: str):
        self.has: List[str] = []
        for name, holds in TABLES[kind].values():
            end = name[-1]
            value: Any = [] if end == "*" else {} if end == "%" else _EMPTY.get(holds)
            setattr(self, name.rstrip("*%"), value)

    def __getattr__(self, name: str) -> Any:  # for type checkers: every field is an attribute
        raise AttributeError(name)


def _broken(what: str) -> Any:
    raise error.ArgumentError(f"the file is no model of TensorFlow's, or is damaged: {what}")


def varint(data: Any, at: int) -> Tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            _broken("a number does not end")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & (2**64 - 1), at


def _fields(data: Any) -> Iterator[Tuple[int, int, Any]]:
    """Number, wire type and value of each field."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield key >> 3, wire, value
            continue
        size = 8 if wire == 1 else 4 if wire == 5 else -1
        if wire == 2:
            size, at = varint(data, at)
        if size < 0 or size > end - at:
            _broken("a field is longer than what holds it")
        yield key >> 3, wire, data[at : at + size]
        at += size


def _signed(v: int) -> int:
    return v - 2**64 if v >= 2**63 else v


def _text(data: Any) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return str(_broken("a name is no text"))


def _one(holds: str, wire: int, value: Any, depth: int) -> Any:
    """The value of a field that is there once; a list for one that is packed."""
    if holds in ("int", "bool"):
        if wire == 2:
            return _packed_ints(value)
        return bool(value) if holds == "bool" and wire == 0 else _signed(value) if wire == 0 else _broken("a number")
    if holds in ("float", "double"):
        code, size, single = ("<f", 4, 5) if holds == "float" else ("<d", 8, 1)
        if wire not in (2, single) or len(value) % size:
            _broken("a number")
        found = np.frombuffer(value, code)
        return found.tolist() if wire == 2 else float(found[0])
    if wire != 2:
        _broken("a text or a message")
    if holds in ("str", "bytes"):
        return _text(value) if holds == "str" else value
    return read(value, holds, depth + 1)


def _packed_ints(data: Any) -> List[int]:
    made, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        made.append(_signed(value))
    return made


def read(data: Any, kind: str, depth: int = 0) -> Message:
    """The message of a kind that these bytes are."""
    if depth > MOST_DEPTH:
        _broken("messages are too deep")
    data = memoryview(data)
    made, table = Message(kind), TABLES[kind]
    for number, wire, value in _fields(data):
        if number not in table:
            continue
        name, holds = table[number]
        plain = name.rstrip("*%")
        made.has.append(plain)
        if name.endswith("%"):
            if wire != 2:
                _broken("a map")
            parts = {n: (w, v) for n, w, v in _fields(value)}
            key = _text(parts[1][1]) if 1 in parts and parts[1][0] == 2 else ""
            wire2, inner = parts.get(2, (2, memoryview(b"")))
            getattr(made, plain)[key] = _one(holds, wire2, inner, depth)
            continue
        found = _one(holds, wire, value, depth)
        if name.endswith("*"):
            getattr(made, plain).extend(found if isinstance(found, list) else [found])
        else:
            setattr(made, plain, found[-1] if isinstance(found, list) and found else found)
    return made


def shape_of(shape: Any) -> Any:
    """Sizes, -1 for those that are open; None: not even their number is known."""
    if shape is None or shape.unknown_rank:
        return None
    return [d.size for d in shape.dim]


def dtype_of(number: int) -> str:
    """The name of a DataType; those of references are 100 beyond."""
    found = DTYPES.get(number - 100 if number > 100 else number)
    if found is None:
        raise error.UnsupportedError(f"from_tensorflow: tensors of DataType {number}")
    return found


def storage(dtype: str) -> np.dtype:
    """How numpy has a dtype; bfloat16 as its bits."""
    return np.dtype({"bfloat16": "uint16"}.get(dtype, dtype))


def array(t: Any) -> np.ndarray:
    """The elements of a Tensor message."""
    if t is None:
        return _broken("a constant without a value")
    dtype, shape = dtype_of(t.dtype), shape_of(t.shape) or []
    if dtype in ("string", "resource", "variant"):
        raise error.UnsupportedError(f"from_tensorflow: a constant of {dtype}s")
    count = int(np.prod(shape, dtype=np.int64)) if all(d >= 0 for d in shape) else -1
    if count < 0 or count > MOST_ELEMENTS:
        _broken("a constant of open sizes, or of more elements than there can be")
    kind = storage(dtype)
    if len(t.content):
        if len(t.content) != count * kind.itemsize:
            _broken("a constant of another length than its shape")
        return np.frombuffer(t.content, kind).reshape(shape)
    field = {"uint8": "int32", "int8": "int32", "int16": "int32", "uint16": "int32", "float16": "half",
             "bfloat16": "half"}.get(dtype, dtype)  # fmt: skip
    values = getattr(t, field)
    if len(values) > count:
        _broken("a constant of more elements than its shape")
    given = np.array(values, "uint16").view(kind) if field == "half" else np.array(values).astype(kind)
    if len(values) < 2:  # one stands for all; none for zeros
        return np.broadcast_to(given[0] if len(values) else np.zeros((), kind), shape)
    made = np.empty(count, kind)
    made[: len(values)], made[len(values) :] = given, given[-1]  # the last stands for all behind it
    return made.reshape(shape)


__all__ = ["DTYPES", "Message", "array", "dtype_of", "read", "shape_of", "storage", "varint"]
