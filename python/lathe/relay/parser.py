"""Relay text."""

from __future__ import annotations

from typing import Any, Optional

from .._ffi import call
from .._ir.module import IRModule


def parse(source: str, source_name: str = "from_string", init_module: Any = None, init_meta_table: Any = None) -> IRModule:
    """A module from Relay text: what str(mod) and print(mod) give."""
    return call("graph_parse", source, source_name)


def fromtext(data: str, source_name: Optional[str] = None) -> IRModule:
    """The same as parse."""
    return parse(data, source_name or "from_string")


parse_expr = parse
