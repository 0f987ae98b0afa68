"""The table from names of PyTorch's operators to functions that build relay.

A row is a function `f(g, *arguments)`: g is the graph that is being made (graph.py), the arguments are those
of the operator's schema, all of them, in its order; a tensor is an expression, a size an int or a scalar
expression.  `row("aten.mm")` stands for every overload, `row("aten.sum.dim_IntList")` for one."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

from .... import error

Row = Callable[..., Any]
ROWS: Dict[str, Row] = {}


def row(*names: str) -> Callable[[Row], Row]:
    """The function is the row of these operators."""

    def put(f: Row) -> Row:
        for name in names:
            if name in ROWS:
                raise error.InternalError(f"operator '{name}' has two rows")
            ROWS[name] = f
        return f

    return put


def find(name: str, more: Optional[Dict[str, Row]] = None) -> Optional[Row]:
    """The row of an overload such as aten.add.Tensor: its own, or that of all overloads."""
    packet = name.rsplit(".", 1)[0] if name.count(".") > 1 else name
    for table in (more or {}, ROWS):
        found = table.get(name) or table.get(packet)
        if found is not None:
            return found
    return None


def name_of(target: Any) -> str:
    """aten.add.Tensor for torch.ops.aten.add.Tensor; the name of a Python function."""
    if hasattr(target, "_schema"):
        schema = target._schema
        return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    if hasattr(target, "namespace") and hasattr(target, "name"):  # a higher-order operator
        return f"{target.namespace}.{target.name() if callable(target.name) else target.name}"
    return getattr(target, "__name__", str(target))


class Refused(error.UnsupportedError):
    """An operator, or a way of using one, that Lathe does not have."""


def refuse(what: str) -> Any:
    """Raises: this way of using an operator is not supported."""
    raise Refused(what)


Sizes = Union[List[Any], tuple]
