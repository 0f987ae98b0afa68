"""Values of the compiler by the name of their class, and as text in JSON."""

from __future__ import annotations

import importlib
import json
from typing import Any

from .. import error
from .module import IRModule

#: Where classes of each prefix are; a name without one is looked for in all.
_HOMES = {"tir": ("lathe.tir",), "relay": ("lathe.relay",), "te": ("lathe.te",), "arith": ("lathe.arith",), "": ("lathe.tir", "lathe.ir", "lathe.relay", "lathe.te")}


def make_node(type_key: str, **kwargs: Any) -> Any:
    """A value by the name of its class and its fields: make_node("IntImm", dtype="int32", value=3).

    The fields are the arguments of the class's constructor."""
    prefix, _, name = str(type_key).rpartition(".")
    for home in _HOMES.get(prefix, ()):
        cls = getattr(importlib.import_module(home), name, None)
        if isinstance(cls, type):
            return cls(**kwargs)
    raise error.ArgumentError(f"make_node: there is no class '{type_key}'")


def save_json(node: Any) -> str:
    """A module or a function as JSON that holds its text; load_json reads it back.  It is not TVM's own form."""
    from ..relay.expr import Function
    from ..tir.function import PrimFunc

    if isinstance(node, PrimFunc):
        return json.dumps({"lathe": "tir", "text": node.script()})
    if isinstance(node, Function):
        return json.dumps({"lathe": "function", "text": IRModule.from_expr(node).astext()})
    if isinstance(node, IRModule):
        return json.dumps({"lathe": "relay" if node._is_graph() else "tir", "text": node.astext()})
    raise error.UnsupportedError(f"save_json: a {type(node).__name__} cannot be saved; modules and functions can")


def load_json(json_str: str) -> Any:
    """What save_json made text of."""
    from ..relay.parser import parse
    from ..script import from_source

    try:
        data = json.loads(json_str)
        kind, text = data["lathe"], data["text"]
    except (ValueError, KeyError, TypeError):
        raise error.ParseError("load_json: this is not what lathe.ir.save_json writes") from None
    if kind == "tir":
        return from_source(text)
    return parse(text)["main"] if kind == "function" else parse(text)
