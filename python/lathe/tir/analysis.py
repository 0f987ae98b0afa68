"""Questions about loop programs."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from .. import error
from .._ir.compare import structural_equal
from .._ir.module import IRModule
from .expr import BufferLoad, Let, PrimExpr, Var, convert
from .function import PrimFunc
from .stmt import Allocate, Block, BufferStore, For, LetStmt
from .stmt_functor import post_order_visit

__all__ = ["expr_deep_equal", "undefined_vars", "verify_well_formed"]


def expr_deep_equal(lhs: Any, rhs: Any) -> bool:
    """Are both the same expression?  Free variables are equal to themselves alone."""
    return structural_equal(convert(lhs), convert(rhs))


def undefined_vars(node: Any, defs: Optional[Sequence[Var]] = None) -> List[Var]:
    """Variables that an expression, statement or function uses and nothing in it binds, in order of first use; the
    pointers of buffers count too.  defs are known already."""
    used: List[Var] = []
    bound: List[Var] = list(defs or [])

    def visit(part: Any) -> None:
        if isinstance(part, Var):
            used.append(part)
        elif isinstance(part, (BufferLoad, BufferStore)):
            used.append(part.buffer.data)
        elif isinstance(part, For):
            bound.append(part.loop_var)
        elif isinstance(part, (Let, LetStmt)):
            bound.append(part.var)
        elif isinstance(part, Allocate):
            bound.append(part.buffer_var)
        elif isinstance(part, Block):
            bound.extend(row[0] for row in part._fields()[1])  # the variables of the function itself
            bound.extend(b.data for b in part.alloc_buffers)

    if isinstance(node, PrimFunc):
        bound.extend(node.params)
        for b in node.buffer_map.values():
            bound.append(b.data)
            bound.extend(v for size in b.shape if isinstance(size, PrimExpr) for v in undefined_vars(size))
    post_order_visit(node, visit)
    known = {v._id() for v in bound}
    out: List[Var] = []
    for v in used:
        if v._id() not in known:
            known.add(v._id())
            out.append(v)
    return out


def verify_well_formed(obj: Any, assert_mode: bool = True) -> bool:
    """Is the function, or every loop program of the module, well formed?  With assert_mode what is wrong is raised."""
    functions = [f for f in obj.functions.values() if isinstance(f, PrimFunc)] if isinstance(obj, IRModule) else [obj]
    try:
        for f in functions:
            f.check()
    except error.LatheError:
        if assert_mode:
            raise
        return False
    return True
