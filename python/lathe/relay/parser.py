"""Relay text."""

from __future__ import annotations

from typing import Any, Optional

from .. import error
from .._ffi import WORLD, call
from .._ir.module import IRModule
from ..target.virtual_device import device_text
from .expr import RelayExpr


def parse(
    source: str, source_name: str = "from_string", init_module: Any = None, init_meta_table: Any = None
) -> IRModule:
    """A module from Relay text: what str(mod) and print(mod) give.  Text without definitions is main's body.
    The text may call functions of init_module, which are in the result too.  Of init_meta_table the devices are read:
    {"VirtualDevice": [lathe.cpu(0)]} for meta[VirtualDevice][0]."""
    for name, entries in (init_meta_table or {}).items():
        if name != "VirtualDevice":
            raise error.UnsupportedError(
                "relay.parse: a table of constants beside the text is not supported; #[metadata] in the text holds them"
            )
        for i, entry in enumerate(entries):
            source = source.replace(f"meta[VirtualDevice][{i}]", f'"{device_text(entry, "relay.parse")}"')
    return call("graph_parse", source, source_name, init_module)


def parse_expr(source: str) -> RelayExpr:
    """An expression from Relay text."""
    return call("node_parse", WORLD, source, "from_string")


def fromtext(data: str, source_name: Optional[str] = None) -> IRModule:
    """The same as parse."""
    return parse(data, source_name or "from_string")
