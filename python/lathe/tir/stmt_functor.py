"""Walking over statements and expressions."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Set

from .._ffi import Object
from .expr import PrimExpr
from .function import PrimFunc
from .stmt import Stmt


def _parts(node: Any) -> Iterator[Any]:
    """The statements and expressions directly below a node, in order."""
    if isinstance(node, PrimFunc):
        yield node.body
        return
    todo: List[Any] = list(node._fields())
    while todo:
        part = todo.pop(0)
        if isinstance(part, (PrimExpr, Stmt)):
            yield part
        elif isinstance(part, (list, tuple)):
            todo[:0] = part


def post_order_visit(stmt: Any, fvisit: Callable[[Any], None]) -> None:
    """Calls fvisit on every statement and expression below (and on stmt itself), parts
    first; a shared expression is visited once."""
    seen: Set[Any] = set()

    def walk(node: Object) -> None:
        key = node._id()
        if isinstance(node, PrimExpr):
            if key in seen:
                return
            seen.add(key)
        for part in _parts(node):
            walk(part)
        fvisit(node)

    walk(stmt)


def pre_order_visit(stmt: Any, fvisit: Callable[[Any], bool]) -> None:
    """Calls fvisit on stmt and everything below, parents first; where it returns False
    the parts are left out."""
    if fvisit(stmt) is False:
        return
    for part in _parts(stmt):
        pre_order_visit(part, fvisit)


__all__ = ["post_order_visit", "pre_order_visit"]
