"""Walking over statements and expressions."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

from .. import error
from .._ffi import WORLD, Object, call
from .expr import PrimExpr, Var, convert
from .function import PrimFunc
from .stmt import (
    Allocate, AttrStmt, Block, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt, While)


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


def _rebuilt(node: Stmt, stmt: Callable[[Any], Any], expr: Callable[[Any], Any]) -> Stmt:
    """The statement with its parts mapped; itself if no part changes."""
    if isinstance(node, SeqStmt):
        parts: List[Any] = [stmt(s) for s in node.seq]
        return node if parts == list(node.seq) else SeqStmt(parts)
    if isinstance(node, For):
        parts = [expr(node.min), expr(node.extent), stmt(node.body)]
        if parts == [node.min, node.extent, node.body]:
            return node
        return For(node.loop_var, parts[0], parts[1], node.kind, parts[2], node.thread_binding, node.annotations)
    if isinstance(node, IfThenElse):
        parts = [expr(node.condition), stmt(node.then_case), node.else_case and stmt(node.else_case)]
        return node if parts == [node.condition, node.then_case, node.else_case] else IfThenElse(*parts)
    if isinstance(node, While):
        parts = [expr(node.condition), stmt(node.body)]
        return node if parts == [node.condition, node.body] else While(*parts)
    if isinstance(node, LetStmt):
        parts = [expr(node.value), stmt(node.body)]
        return node if parts == [node.value, node.body] else LetStmt(node.var, *parts)
    if isinstance(node, BufferStore):
        value, indices = expr(node.value), [expr(i) for i in node.indices]
        same = value == node.value and indices == list(node.indices)
        return node if same else BufferStore(node.buffer, value, indices)
    if isinstance(node, Evaluate):
        value = expr(node.value)
        return node if value == node.value else Evaluate(value)
    if isinstance(node, AttrStmt):
        body = stmt(node.body)
        return node if body == node.body else AttrStmt(node.node, node.attr_key, node.value, body)
    if isinstance(node, Allocate):
        body = stmt(node.body)
        return node if body == node.body else call("stmt_alloc", WORLD, node.buffer, body)
    what = f"block '{node.name_hint}'" if isinstance(node, Block) else f"a {type(node).__name__}"
    raise error.UnsupportedError(f"{what} is not taken apart and put together again; lower the function first")


def ir_transform(
    stmt: Stmt,
    preorder: Optional[Callable[[Any], Any]],
    postorder: Optional[Callable[[Any], Any]],
    only_enable: Optional[Sequence[str]] = None,
) -> Stmt:
    """The statement after preorder was asked about each statement below before its parts (what it gives stands there,
    unless it is None), and postorder after them.  only_enable names the classes they are asked about: "tir.For"."""

    def walk(node: Stmt) -> Stmt:
        asked = only_enable is None or f"tir.{type(node).__name__}" in only_enable
        new = preorder(node) if asked and preorder else None
        if new is not None:
            return new
        node = _rebuilt(node, walk, lambda e: e)
        new = postorder(node) if asked and postorder else None
        return node if new is None else new

    return walk(stmt)


def substitute(node: Any, vmap: Dict[Var, Any]) -> Any:
    """The expression or statement with variables replaced by values."""
    names, values = list(vmap), [convert(v) for v in vmap.values()]

    def expr(e: Any) -> PrimExpr:
        return call("substitute", WORLD, convert(e), names, values)

    def walk(s: Stmt) -> Stmt:
        return _rebuilt(s, walk, expr)

    return walk(node) if isinstance(node, Stmt) else expr(node)


__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "substitute"]
