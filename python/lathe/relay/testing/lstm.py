"""A long short-term memory (Hochreiter and Schmidhuber, 1997), unrolled for a number of steps."""

from __future__ import annotations

from typing import Any

from .. import expr as _expr
from ..expr import Function, call_op
from ..ty import TensorType, TupleType
from . import layers
from .init import create_workload


def lstm_cell(num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = "") -> Function:
    """A function of inputs, a pair of states, and two weights with their biases: (output, new states)."""
    state = TensorType((batch_size, num_hidden), dtype)
    inputs, states = _expr.var("inputs", state), _expr.var("states", TupleType([state, state]))
    weight, vector = TensorType((4 * num_hidden, num_hidden), dtype), TensorType((4 * num_hidden,), dtype)
    i2h = [_expr.var(f"{name}i2h_{w}", t) for w, t in (("weight", weight), ("bias", vector))]
    h2h = [_expr.var(f"{name}h2h_{w}", t) for w, t in (("weight", weight), ("bias", vector))]
    h, c = _step(inputs, _expr.TupleGetItem(states, 0), _expr.TupleGetItem(states, 1), i2h, h2h)
    return Function([inputs, states] + i2h + h2h, _expr.Tuple([h, _expr.Tuple([h, c])]))


def _step(x: Any, h: Any, c: Any, i2h: Any, h2h: Any) -> Any:
    """The next output and state."""
    units = i2h[0].checked_type.shape[0]
    parts = [
        call_op("nn.bias_add", [call_op("nn.dense", [v, w], units=units), b], axis=-1)
        for v, (w, b) in ((x, i2h), (h, h2h))
    ]
    gates = call_op("split", [call_op("add", parts)], indices_or_sections=4, axis=1)
    i, f, o = (call_op("sigmoid", [_expr.TupleGetItem(gates, k)]) for k in (0, 1, 3))
    update = call_op("tanh", [_expr.TupleGetItem(gates, 2)])
    c = call_op("add", [call_op("multiply", [f, c]), call_op("multiply", [i, update])])
    return call_op("multiply", [o, call_op("tanh", [c])]), c


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """States begin at zero; every step takes data (batch, hidden) and the same weights."""
    data = _expr.var("data", shape=(batch_size, num_hidden), dtype=dtype)
    i2h, h2h = (
        [
            _expr.var(f"lstm_{w}_weight", shape=(4 * num_hidden, num_hidden), dtype=dtype),
            _expr.var(f"lstm_{w}_bias", shape=(4 * num_hidden,), dtype=dtype),
        ]
        for w in ("i2h", "h2h")
    )
    h = c = call_op("zeros", [], shape=(batch_size, num_hidden), dtype=dtype)
    for _ in range(iterations):
        h, c = _step(data, h, c, i2h, h2h)
    return layers.function(h)


def get_workload(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))
