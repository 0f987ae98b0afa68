"""A long short-term memory (Hochreiter and Schmidhuber, 1997), unrolled for a number of steps."""

from __future__ import annotations

from typing import Any

from .. import expr as _expr
from ..expr import Function, call_op
from . import layers
from .init import create_workload


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """States begin at zero; every step takes data (batch, hidden) and the same weights."""
    data = _expr.var("data", shape=(batch_size, num_hidden), dtype=dtype)
    weight = {w: _expr.var(f"lstm_{w}_weight", shape=(4 * num_hidden, num_hidden), dtype=dtype) for w in ("i2h", "h2h")}
    bias = {w: _expr.var(f"lstm_{w}_bias", shape=(4 * num_hidden,), dtype=dtype) for w in ("i2h", "h2h")}
    h = c = call_op("zeros", [], shape=(batch_size, num_hidden), dtype=dtype)
    for _ in range(iterations):
        parts = [call_op("nn.bias_add", [call_op("nn.dense", [x, weight[w]]), bias[w]], axis=-1) for x, w in ((data, "i2h"), (h, "h2h"))]
        gates = call_op("split", [call_op("add", parts)], indices_or_sections=4, axis=1)
        i, f, o = (call_op("sigmoid", [_expr.TupleGetItem(gates, k)]) for k in (0, 1, 3))
        update = call_op("tanh", [_expr.TupleGetItem(gates, 2)])
        c = call_op("add", [call_op("multiply", [f, c]), call_op("multiply", [i, update])])
        h = call_op("multiply", [o, call_op("tanh", [c])])
    return layers.function(h)


def get_workload(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))
