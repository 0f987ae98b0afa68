"""Rows for values that are known, lists, branches and loops."""

from __future__ import annotations

from typing import Any, List

import numpy as np

from ...expr import If
from ...expr import Tuple as TupleExpr
from ..control import loop, truth
from ..values import expr, known, refuse, sizes
from .graph import Values, body, row
from .program import Op


@row("builtin.combine")
def _combine(n: Op, *args: Any) -> List[Any]:
    return list(args)


@row("builtin.split")
def _spread(n: Op, args: Any) -> Any:
    return tuple(args)


@row("builtin.slice")
def _pick(n: Op, args: Any) -> Any:
    return args[n.get("index", 0)]


@row("assign", "share_data", "memcpy_d2h", "memcpy_h2d", fold=lambda n, x: x)
def _same(n: Op, x: Any) -> Any:
    return x


@row("full_int_array")
def _full_int_array(n: Op) -> Any:
    return np.array(n.get("value", []), n.dtype() or "int64")


@row("full")
def _full(n: Op) -> Any:
    return np.full(n.get("shape", []), n.get("value", 0.0), n.dtype() or "float32")


@row("full_with_tensor", fold=lambda n, v, s: np.full(s.reshape(-1), v.reshape(()), n.dtype() or v.dtype))
def _full_with_tensor(n: Op, value: Any, shape: Any) -> Any:
    return refuse("a value or a shape that is known only at run time")


@row("assign_value", "assign_value_")
def _assign_value(n: Op, *_out: Any) -> Any:
    return np.array(n.get("values", []), n.dtype() or "float32").reshape(n.get("shape", []))


@row("arange", fold=lambda n, a, b, c: np.arange(a.item(), b.item(), c.item()).astype(n.dtype() or a.dtype))
def _arange(n: Op, start: Any, end: Any, step: Any) -> Any:
    return refuse("limits that are known only at run time")


@row("linspace", fold=lambda n, a, b, c: np.linspace(a.item(), b.item(), int(c.item())).astype(n.dtype() or a.dtype))
def _linspace(n: Op, start: Any, end: Any, count: Any) -> Any:
    return refuse("limits that are known only at run time")


@row("eye", fold=lambda n, a, b: np.eye(int(a.item()), int(b.item()), dtype=n.dtype() or "float32"))
def _eye(n: Op, rows: Any, columns: Any) -> Any:
    return refuse("sizes that are known only at run time")


@row("full_like", "full_batch_size_like")
def _full_like(n: Op, x: Any, value: Any = None) -> Any:
    if n.name != "full_like":
        return refuse("a size of the batch that is taken from a tensor; say the shape when the model is made")
    number = known(value, "a value") if value is not None else np.array(n.get("value", 0.0))
    dtype = n.dtype() or (str(x.dtype) if isinstance(x, np.ndarray) else x.checked_type.dtype)
    return np.broadcast_to(number.reshape(()).astype(dtype), sizes(x))


@row("if")
def _if(n: Op, values: Values, condition: Any) -> Any:
    then, other = n.regions
    if isinstance(condition, np.ndarray):
        return tuple(body(then if condition.any() else other, values, []))
    branches = [[expr(v) for v in body(r, values, [])] for r in n.regions]
    for a, b in zip(*branches):
        if str(a.checked_type) != str(b.checked_type):
            refuse(f"branches of different types, {a.checked_type} and {b.checked_type}")
    made = If(truth(condition), TupleExpr(branches[0]), TupleExpr(branches[1]))
    return tuple(made[i] for i in range(len(branches[0])))


@row("while")
def _while(n: Op, values: Values, condition: Any, *args: Any) -> Any:
    """The condition is carried before the values: the body computes the next one."""

    def step(_holds: Any, *now: Any) -> List[Any]:
        made = [expr(v) for v in body(n.regions[0], values, list(now))]
        for before, after in zip(now, made[1:]):
            if str(before.checked_type) != str(after.checked_type):
                refuse(f"a loop that changes a type from {before.checked_type} to {after.checked_type}")
        return made

    made = loop([expr(condition), *[expr(a) for a in args]], lambda holds, *now: holds, step)
    return tuple(made[1:])
