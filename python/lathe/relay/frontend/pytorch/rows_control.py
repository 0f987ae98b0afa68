"""Rows for operators that are given graphs: torch.cond, torch.while_loop."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

from ...expr import Let
from ...ty import FuncType, TupleType
from .graph import Function, Graph, If, RelayExpr, TensorType, Tuple, cast, reshape, var
from .table import row


def _inline(g: Graph, module: Any, inputs: Sequence[Any]) -> List[Any]:
    inner = Graph(g.symbols, g.more)
    return inner.run(module.graph, inputs, lambda name: _attribute(module, name))


def _attribute(module: Any, name: str) -> Any:
    found: Any = module
    for word in name.split("."):
        found = getattr(found, word)
    return found


def _tensors(values: Sequence[Any]) -> List[RelayExpr]:
    return [v if isinstance(v, RelayExpr) else cast(v, "int64") for v in values]


@row("higher_order.cond")
def _cond(g: Graph, condition: Any, yes: Any, no: Any, operands: Sequence[Any]) -> List[RelayExpr]:
    if isinstance(condition, (bool, int)):
        return _inline(g, yes if condition else no, operands)
    branches = [Tuple(_tensors(_inline(g, m, operands))) for m in (yes, no)]
    made = If(reshape(cast(condition, "bool"), []), *branches)
    return [made[i] for i in range(len(branches[0].fields))]


def loop(
    first: Sequence[RelayExpr], holds: Callable[..., RelayExpr], step: Callable[..., List[RelayExpr]]
) -> List[RelayExpr]:
    """The values after as many steps as the condition holds for: a function that calls itself."""
    params = [var(f"carried{i}", TensorType(c.checked_type.shape, c.checked_type.dtype)) for i, c in enumerate(first)]
    types = [p.type_annotation for p in params]
    again = var("loop", FuncType(types, TupleType(types)))
    body = If(reshape(cast(holds(*params), "bool"), []), again(*step(*params)), Tuple(params))
    made = Let(again, Function(params, body, TupleType(types)), again(*first))
    return [made[i] for i in range(len(first))]


@row("higher_order.while_loop")
def _while_loop(
    g: Graph, condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()
) -> List[RelayExpr]:
    return loop(
        _tensors(carried),
        lambda *now: _inline(g, condition, [*now, *more])[0],
        lambda *now: _tensors(_inline(g, body, [*now, *more])),
    )


@row("higher_order.wrap_with_set_grad_enabled")
def _grad_mode(g: Graph, _enabled: bool, module: Any, *operands: Any) -> List[Any]:
    return _inline(g, module, operands)


@row("higher_order.wrap_with_autocast")
def _autocast(
    g: Graph, _device: Any, _dtype: Any, _enabled: Any, _cache: Any, module: Any, *operands: Any
) -> List[Any]:
    return _inline(g, module, operands)
