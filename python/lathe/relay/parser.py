"""Relay text."""

from __future__ import annotations

from typing import Any, Optional

from .. import error
from .._ffi import WORLD, call
from .._ir.module import IRModule
from .expr import RelayExpr


def parse(source: str, source_name: str = "from_string", init_module: Any = None, init_meta_table: Any = None) -> IRModule:
    """A module from Relay text: what str(mod) and print(mod) give.  Text without definitions is main's body."""
    if init_meta_table:
        raise error.UnsupportedError("relay.parse: a table of constants beside the text is not supported; #[metadata] in the text holds them")
    mod = call("graph_parse", source, source_name)
    if init_module is not None:
        whole = call("module_copy", init_module)
        whole.update(mod)
        return whole
    return mod


def parse_expr(source: str) -> RelayExpr:
    """An expression from Relay text."""
    return call("node_parse", WORLD, source, "from_string")


def fromtext(data: str, source_name: Optional[str] = None) -> IRModule:
    """The same as parse."""
    return parse(data, source_name or "from_string")
