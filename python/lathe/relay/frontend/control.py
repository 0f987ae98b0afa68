"""Control flow that frontends share."""

from __future__ import annotations

from typing import Callable, List, Sequence

from ..expr import Function, If, Let, RelayExpr, Tuple, call_op, var
from ..ty import FuncType, TensorType, TupleType


def truth(x: RelayExpr) -> RelayExpr:
    """A tensor of one element as the condition of an if."""
    t = x.checked_type
    x = x if t.dtype == "bool" else call_op("cast", [x], dtype="bool")
    return call_op("reshape", [x], newshape=[]) if len(t.shape) else x


def loop(
    first: Sequence[RelayExpr], holds: Callable[..., RelayExpr], step: Callable[..., List[RelayExpr]]
) -> List[RelayExpr]:
    """The values after as many steps as the condition (one element) holds for: a function that calls itself."""
    params = [var(f"carried{i}", TensorType(c.checked_type.shape, c.checked_type.dtype)) for i, c in enumerate(first)]
    types = [p.type_annotation for p in params]
    again = var("loop", FuncType(types, TupleType(types)))
    body = If(truth(holds(*params)), again(*step(*params)), Tuple(params))
    made = Let(again, Function(params, body, TupleType(types)), again(*first))
    return [made[i] for i in range(len(first))]


__all__ = ["loop", "truth"]
