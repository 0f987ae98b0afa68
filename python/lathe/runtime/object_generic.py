"""Python values as those of the compiler."""

from __future__ import annotations

from typing import Any

from .._ffi import Object
from .container import ADT, Array, Map, ShapeTuple, String
from .device import Device
from .dtype import DataType
from .ndarray import NDArray


class ObjectGeneric:
    """Something that asobject() makes a value of the compiler of."""

    def asobject(self) -> Any:
        """The value."""
        raise NotImplementedError


def convert(value: Any) -> Any:
    """A number as a constant (int as int32, or int64 if it does not fit; float as float32), text as a String, lists
    and tuples as an Array, dictionaries as a Map, their elements alike; functions and values of the compiler stay as
    they are."""
    if value is None or isinstance(value, (Object, NDArray, Device, DataType, ADT, Array, Map, ShapeTuple, String)):
        return value
    if isinstance(value, str):
        return String(value)
    if isinstance(value, (list, tuple)):
        return Array([convert(v) for v in value])
    if isinstance(value, dict):
        return Map({k: convert(v) for k, v in value.items()})
    if callable(value) and not hasattr(value, "asobject"):
        return value
    from ..tir.expr import convert as expression

    return expression(value)


convert_to_object = convert


def const(value: Any, dtype: Any = None, span: Any = None) -> Any:
    """A literal."""
    from ..tir.expr import const as literal

    return literal(value, dtype)
