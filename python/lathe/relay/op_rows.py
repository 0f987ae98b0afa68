"""The table of operators, as the compiler has it: what `lathe ops` lists."""

from __future__ import annotations

import difflib
from typing import Dict, List, NamedTuple, Optional

from .. import error
from .._ffi import call


class OpAttr(NamedTuple):
    """An attribute: its name, type, default as text (None: must be given) and a line of doc."""

    name: str
    kind: str
    default: Optional[str]
    doc: str


class OpRow(NamedTuple):
    """An operator: name, doc, names of its arguments, least and most of them (-1: any number),
    fusion kind, flags, attributes."""

    name: str
    doc: str
    args: List[str]
    least: int
    most: int
    fuse: int
    flags: int
    attrs: List[OpAttr]


TUPLE_ARG = 2
_rows: Dict[str, OpRow] = {}


def rows() -> Dict[str, OpRow]:
    """Every operator under its name, in the order of the table."""
    if not _rows:
        for name, doc, args, least, most, fuse, flags, attrs in call("op_table"):
            names = [a.strip() for a in (args or "").split(",") if a.strip()]
            _rows[name] = OpRow(name, doc, names, least, most, fuse, flags, [OpAttr(*a) for a in attrs])
    return _rows


def forget() -> None:
    """The table is read again: an operator was added."""
    _rows.clear()


def row(name: str) -> OpRow:
    """The operator of that name; raises with the nearest name if there is none."""
    table = rows()
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise error.ArgumentError(f"there is no operator '{name}'{hint}; 'lathe ops' lists them")
