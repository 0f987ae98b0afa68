"""TensorFlow's messages, read from bytes and checked on the way.

messages.py says what the tables mean."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from .... import error
from .. import messages

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
MOST_ELEMENTS = 1 << 33
_READER = messages.Reader(TABLES, "TensorFlow's")
read, varint, _broken = _READER.read, _READER.varint, _READER.broken


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


__all__ = ["DTYPES", "array", "dtype_of", "read", "shape_of", "storage", "varint"]
