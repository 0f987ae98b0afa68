"""Containers under TVM's names.

Lists and dictionaries that the compiler gives are Python's own; these classes are for programs that make containers,
or ask for their kind.  Each is the Python type that it is like, so it goes wherever that goes."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Tuple

from .. import error


class Array(Tuple[Any, ...]):
    """A sequence that does not change."""

    def __new__(cls, items: Iterable[Any] = ()) -> "Array":
        return super().__new__(cls, items)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Array(found) if isinstance(key, slice) else found

    def __add__(self, other: Any) -> "Array":
        return Array([*self, *other])

    def __radd__(self, other: Any) -> "Array":
        return Array([*other, *self])

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, (list, tuple)) and list(self) == list(other)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return repr(list(self))


class Map(Dict[Any, Any]):
    """A dictionary."""


class String(str):
    """A string."""


class ShapeTuple(Tuple[int, ...]):
    """A shape: integers."""

    def __new__(cls, shape: Iterable[Any] = ()) -> "ShapeTuple":
        dims = [getattr(d, "value", d) for d in shape]
        for d in dims:
            if isinstance(d, bool) or not hasattr(d, "__index__"):
                raise error.TypeError(f"a ShapeTuple holds integers, not a {type(d).__name__}: {d!r}")
        return super().__new__(cls, [int(d) for d in dims])

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, (list, tuple)) and tuple(self) == tuple(other)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


class ADT:
    """A value with a tag that says which constructor made it, and fields."""

    def __init__(self, tag: int, fields: Iterable[Any]):
        self.tag, self._fields = int(tag), tuple(fields)

    def __getitem__(self, key: Any) -> Any:
        return self._fields[key]

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Any:
        return iter(self._fields)

    def __repr__(self) -> str:
        return f"ADT(tag={self.tag}, [{', '.join(map(repr, self._fields))}])"


def tuple_object(fields: Iterable[Any] = ()) -> ADT:
    """A tuple as an ADT: its tag is 0."""
    return ADT(0, fields)


def getitem_helper(obj: Any, elem_getter: Any, length: int, idx: Any) -> Any:
    """The element at an index, or those of a slice, by a function that gives one."""
    if isinstance(idx, slice):
        return [elem_getter(obj, i) for i in range(*idx.indices(length))]
    if not -length <= idx < length:
        raise IndexError(f"index {idx} is out of range for {length} elements")
    return elem_getter(obj, idx % length if length else idx)


__all__ = ["ADT", "Array", "Map", "ShapeTuple", "String", "getitem_helper", "tuple_object"]
