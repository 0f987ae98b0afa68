"""Messages of Google's wire format, read from bytes and checked on the way.

A message is told by a table: the number of a field, its name, and what it holds.  "*" behind a name says that there may
be several, "%" that the field is a map from names.  Fields that no table has are passed over."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from ... import error

Tables = Dict[str, Dict[int, Tuple[str, str]]]
MOST_DEPTH = 64
_EMPTY = {"int": 0, "bool": False, "float": 0.0, "double": 0.0, "str": "", "bytes": b""}


class Message:
    """Fields by name; `has` are those that were there."""

    def __init__(self, table: Dict[int, Tuple[str, str]]):
        self.has: List[str] = []
        for name, holds in table.values():
            end = name[-1]
            value: Any = [] if end == "*" else {} if end == "%" else _EMPTY.get(holds)
            setattr(self, name.rstrip("*%"), value)

    def __getattr__(self, name: str) -> Any:  # for type checkers: every field is an attribute
        raise AttributeError(name)


def _signed(v: int) -> int:
    return v - 2**64 if v >= 2**63 else v


class Reader:
    """Reads the messages of some tables; `whose` is the framework that writes them, for what is said of broken ones."""

    def __init__(self, tables: Tables, whose: str):
        self.tables, self.whose = tables, whose

    def broken(self, what: str) -> Any:
        """Raises: these bytes are not what they should be."""
        raise error.ArgumentError(f"the file is no model of {self.whose}, or is damaged: {what}")

    def varint(self, data: Any, at: int) -> Tuple[int, int]:
        """A number of 7 bits a byte, and where it ends."""
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                self.broken("a number does not end")
            byte = data[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value & (2**64 - 1), at

    def _fields(self, data: Any) -> Iterator[Tuple[int, int, Any]]:
        """Number, wire type and value of each field."""
        at, end = 0, len(data)
        while at < end:
            key, at = self.varint(data, at)
            wire = key & 7
            if wire == 0:
                value, at = self.varint(data, at)
                yield key >> 3, wire, value
                continue
            size = 8 if wire == 1 else 4 if wire == 5 else -1
            if wire == 2:
                size, at = self.varint(data, at)
            if size < 0 or size > end - at:
                self.broken("a field is longer than what holds it")
            yield key >> 3, wire, data[at : at + size]
            at += size

    def _text(self, data: Any) -> str:
        try:
            return bytes(data).decode()
        except UnicodeDecodeError:
            return str(self.broken("a name is no text"))

    def _one(self, holds: str, wire: int, value: Any, depth: int) -> Any:
        """The value of a field that is there once; a list for one that is packed."""
        if holds in ("int", "bool"):
            if wire == 2:
                return self._packed_ints(value)
            if wire != 0:
                self.broken("a number")
            return bool(value) if holds == "bool" else _signed(value)
        if holds in ("float", "double"):
            code, size, single = ("<f", 4, 5) if holds == "float" else ("<d", 8, 1)
            if wire not in (2, single) or len(value) % size:
                self.broken("a number")
            found = np.frombuffer(value, code)
            return found.tolist() if wire == 2 else float(found[0])
        if wire != 2:
            self.broken("a text or a message")
        if holds in ("str", "bytes"):
            return self._text(value) if holds == "str" else value
        return self.read(value, holds, depth + 1)

    def _packed_ints(self, data: Any) -> List[int]:
        made, at = [], 0
        while at < len(data):
            value, at = self.varint(data, at)
            made.append(_signed(value))
        return made

    def read(self, data: Any, kind: str, depth: int = 0) -> Message:
        """The message of a kind that these bytes are."""
        if depth > MOST_DEPTH:
            self.broken("messages are too deep")
        data = memoryview(data)
        table = self.tables[kind]
        made = Message(table)
        for number, wire, value in self._fields(data):
            if number not in table:
                continue
            name, holds = table[number]
            plain = name.rstrip("*%")
            made.has.append(plain)
            if name.endswith("%"):
                if wire != 2:
                    self.broken("a map")
                parts = {n: (w, v) for n, w, v in self._fields(value)}
                key = self._text(parts[1][1]) if 1 in parts and parts[1][0] == 2 else ""
                wire2, inner = parts.get(2, (2, memoryview(b"")))
                getattr(made, plain)[key] = self._one(holds, wire2, inner, depth)
                continue
            found = self._one(holds, wire, value, depth)
            if name.endswith("*"):
                getattr(made, plain).extend(found if isinstance(found, list) else [found])
            else:
                setattr(made, plain, found[-1] if isinstance(found, list) and found else found)
        return made


__all__ = ["Message", "Reader", "Tables"]
