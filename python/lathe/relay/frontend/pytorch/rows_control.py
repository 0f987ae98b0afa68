"""Rows for operators that are given graphs: torch.cond, torch.while_loop."""

from __future__ import annotations

from typing import Any, List, Sequence

from ..control import loop, truth
from .graph import Graph, If, RelayExpr, Tuple, cast
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
    made = If(truth(condition), *branches)
    return [made[i] for i in range(len(branches[0].fields))]


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
