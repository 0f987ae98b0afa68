"""Questions about graphs."""

from __future__ import annotations

from typing import Any, Callable, List

from .._ffi import call
from .expr import Op, RelayExpr, Var


def post_order_visit(expr: RelayExpr, fvisit: Callable[[Any], None]) -> None:
    """Calls fvisit on every node, arguments first, each once; operators too, as lathe.ir.Op."""
    seen = set()
    for node in call("node_post_order", expr):
        op = getattr(node, "op", None)
        if isinstance(op, Op) and op not in seen:
            seen.add(op)
            fvisit(op)
        fvisit(node)


def free_vars(expr: RelayExpr) -> List[Var]:
    """Variables that nothing inside binds, in order of first use."""
    return call("node_free_vars", expr)


def all_vars(expr: RelayExpr) -> List[Var]:
    """All variables, each once."""
    return [n for n in call("node_post_order", expr) if isinstance(n, Var)]


def bound_vars(expr: RelayExpr) -> List[Var]:
    """Variables that something inside binds."""
    free = set(free_vars(expr))
    return [v for v in all_vars(expr) if v not in free]


def list_op_freqs(mod: Any) -> Any:
    """How often each operator is called, by name."""
    counts: dict = {}
    for f in mod.functions.values():
        if isinstance(f, RelayExpr):
            for n in call("node_post_order", f):
                op = getattr(n, "op", None)
                if isinstance(op, Op):
                    counts[op.name] = counts.get(op.name, 0) + 1
    return counts


def structural_equal(lhs: RelayExpr, rhs: RelayExpr) -> bool:
    """The same up to names?"""
    return call("node_equal", lhs, rhs)[0]
