"""Values of the compiler by the name of their class, and as text in JSON."""

from __future__ import annotations

import json
from typing import Any, Dict, Sequence

from .. import arith, error, relay, te, tir
from ..relay.expr import Function
from ..script import from_source
from ..tir.function import PrimFunc
from . import base
from .module import IRModule

#: Where classes of each prefix are; a name without one is looked for in all.
_HOMES: Dict[str, Sequence[Any]] = {
    "tir": (tir,),
    "relay": (relay,),
    "te": (te,),
    "arith": (arith,),
    "": (tir, base, relay, te),
}


def make_node(type_key: str, **kwargs: Any) -> Any:
    """A value by the name of its class and its fields: make_node("IntImm", dtype="int32", value=3).

    The fields are the arguments of the class's constructor."""
    prefix, _, name = str(type_key).rpartition(".")
    for home in _HOMES.get(prefix, ()):
        cls = getattr(home, name, None)
        if isinstance(cls, type):
            return cls(**kwargs)
    raise error.ArgumentError(f"make_node: there is no class '{type_key}'")


def save_json(node: Any) -> str:
    """A module or a function as JSON that holds its text; load_json reads it back.  It is not TVM's own form."""
    if isinstance(node, PrimFunc):
        return json.dumps({"lathe": "tir", "text": node.script()})
    if isinstance(node, Function):
        return json.dumps({"lathe": "function", "text": IRModule.from_expr(node).astext()})
    if isinstance(node, IRModule):
        return json.dumps({"lathe": "relay" if node._is_graph() else "tir", "text": node.astext()})
    raise error.UnsupportedError(f"save_json: a {type(node).__name__} cannot be saved; modules and functions can")


def load_json(json_str: str) -> Any:
    """What save_json made text of."""
    try:
        data = json.loads(json_str)
        kind, text = data["lathe"], data["text"]
    except (ValueError, KeyError, TypeError):
        raise error.ParseError("load_json: this is not what lathe.ir.save_json writes") from None
    if kind == "tir":
        return from_source(text)
    mod = relay.parse(text)
    return mod["main"] if kind == "function" else mod
