"""Loops as functions that call themselves."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .expr import Function, Let, RelayExpr, Tuple, Var, as_expr
from .scope_builder import ScopeBuilder
from .ty import FuncType, IncompleteType, TupleType


def while_loop(
    cond: Callable[..., Any], loop_vars: Sequence[Any], loop_bodies: Callable[..., Sequence[Any]]
) -> RelayExpr:
    """A function of the loop's variables that gives their last values as a tuple: while cond(*values) holds, values
    become loop_bodies(*values).  It is called with the first values; the types are those of loop_vars."""
    sb = ScopeBuilder()
    given = [as_expr(v) for v in loop_vars]
    types = [sb.type_of(v) for v in given]
    names = [v.name_hint if isinstance(v, Var) else f"arg{i}" for i, v in enumerate(given)]
    fresh = [Var(n, t) for n, t in zip(names, types)]
    known = not any(isinstance(t, IncompleteType) for t in types)
    result = TupleType(types) if known else None
    loop = Var("while_loop", FuncType(types, result) if known else None)
    with sb.if_scope(cond(*fresh)):
        sb.ret(loop(*loop_bodies(*fresh)))
    with sb.else_scope():
        sb.ret(Tuple(fresh))
    return Let(loop, Function(fresh, sb.get(), result), loop)
