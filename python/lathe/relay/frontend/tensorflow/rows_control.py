"""Rows for inputs, constants, variables, functions and control flow."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

from ...expr import If, RelayExpr, var
from ...expr import Tuple as TupleExpr
from ..control import loop, truth
from . import proto
from .graph import Dead, Node, Variable, expr, refuse, row, sizes
from .rows_lists import TensorList


@row("Const")
def _const(n: Node) -> Any:
    return proto.array(n.node.attr["value"].tensor)


@row("Placeholder", "PlaceholderV2")
def _placeholder(n: Node) -> Any:
    return refuse("an input that the signature does not have")


@row("Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "PlaceholderWithDefault",
     "EnsureShape", "DebugIdentityV2", "OptimizationBarrier", fold=lambda n, *a: a[0])  # fmt: skip
def _identity(n: Node, x: Any, *more: Any) -> Any:
    return x


@row("IdentityN")
def _identities(n: Node, *args: Any) -> List[Any]:
    return list(args)


@row("NoOp", "Assert")
def _nothing(n: Node, *args: Any) -> List[Any]:
    return []


# ---- variables


@row("VarHandleOp")
def _variable(n: Node) -> Variable:
    return Variable(n.s("shared_name") or n.name)


@row("ReadVariableOp")
def _read(n: Node, v: Any) -> Any:
    return n.graph.read(v.name) if isinstance(v, Variable) else v


@row("VariableV2")
def _old_variable(n: Node) -> Any:
    return n.graph.read(n.s("shared_name") or n.name)


@row("ResourceGather")
def _gather(n: Node, v: Any, indices: Any) -> Any:
    from .rows_shape import take

    return take(_read(n, v), indices, 0)


# ---- functions, branches, loops


@row("PartitionedCall", "StatefulPartitionedCall")
def _call(n: Node, *args: Any) -> List[Any]:
    return n.graph.call(n.func("f"), args)


@row("If", "StatelessIf")
def _if(n: Node, condition: Any, *args: Any) -> Sequence[Any]:
    names = [n.func("then_branch"), n.func("else_branch")]
    if isinstance(condition, np.ndarray):
        return n.graph.call(names[0 if condition.any() else 1], args)
    branches = [[expr(v) for v in n.graph.call(name, args)] for name in names]
    for a, b in zip(*branches):
        if str(a.checked_type) != str(b.checked_type):
            refuse(f"branches of different types, {a.checked_type} and {b.checked_type}")
    made = If(truth(condition), TupleExpr(branches[0]), TupleExpr(branches[1]))
    return [made[i] for i in range(len(branches[0]))]


@row("While", "StatelessWhile")
def _while(n: Node, *args: Any) -> List[Any]:
    """Variables stay outside of the loop.  Lists are carried as tensors; one without items gets those that a first step
    sets."""
    body, condition = n.func("body"), n.func("cond")
    if any(isinstance(a, TensorList) and a.items is None for a in args):
        after = n.graph.call(body, [_fresh(a) for a in args])
        args = tuple(a.of(sizes(b.items)[1:]) if isinstance(a, TensorList) and b.items is not None else a
                     for a, b in zip(args, after))  # fmt: skip
    carried = [i for i, a in enumerate(args) if not isinstance(a, Variable)]

    def all_of(now: Sequence[RelayExpr]) -> List[Any]:
        full = list(args)
        for i, v in zip(carried, now):
            full[i] = args[i]._replace(items=v) if isinstance(args[i], TensorList) else v
        return full

    def plain(v: Any) -> RelayExpr:
        return expr(v.items if isinstance(v, TensorList) else v)

    def step(*now: RelayExpr) -> List[RelayExpr]:
        made = n.graph.call(body, all_of(now))
        out = [plain(made[i]) for i in carried]
        for before, after in zip(now, out):
            if str(before.checked_type) != str(after.checked_type):
                refuse(f"a loop that changes a type from {before.checked_type} to {after.checked_type}")
        return out

    holds = lambda *now: expr(n.graph.call(condition, all_of(now))[0])  # noqa: E731
    return all_of(loop([plain(args[i]) for i in carried], holds, step))


def _fresh(v: Any) -> Any:
    """A value of which nothing but its type is known, as a loop sees it."""
    if isinstance(v, TensorList):
        return v if v.items is None else v._replace(items=_fresh(v.items))
    return var("carried", expr(v).checked_type) if not isinstance(v, Variable) else v


@row("Switch", "RefSwitch")
def _switch(n: Node, x: Any, condition: Any) -> List[Any]:
    if not isinstance(condition, np.ndarray):
        return refuse("a branch of TensorFlow 1 on data; tf.function, with If, is the way")
    return [Dead(), x] if condition.any() else [x, Dead()]


@row("Merge", "RefMerge")
def _merge(n: Node, *args: Any) -> List[Any]:
    alive = [i for i, a in enumerate(args) if not isinstance(a, Dead)]
    if len(alive) != 1:
        return refuse("branches of TensorFlow 1 on data")
    return [args[alive[0]], np.array(alive[0], "int32")]
