"""Rows for recurrent networks: each layer is one operator, which walks over time itself."""

from __future__ import annotations

from typing import Any, List, Sequence

from .graph import Graph, RelayExpr, Tuple, call_op, dim, reshape, shape
from .rows_shape import cut
from .table import refuse, row

# where PyTorch has the gates that the operators take in this order
_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}


def _gates(x: RelayExpr, kind: str, hidden: int) -> RelayExpr:
    """The rows of a weight or bias in the operator's order of gates."""
    parts = [cut(x, 0, k * hidden, (k + 1) * hidden) for k in _ORDER[kind]]
    return call_op("concatenate", [Tuple(parts)], axis=0) if len(parts) > 1 else x


def _network(
    kind: str,
    x: RelayExpr,
    states: List[RelayExpr],
    params: Sequence[RelayExpr],
    biases: bool,
    layers: int,
    both: bool,
    first: bool,
    activation: str = "",
) -> List[RelayExpr]:
    """Outputs and last states of all layers; states are (layers * directions, batch, hidden)."""
    directions, each = 2 if both else 1, 4 if biases else 2
    hidden = dim(params[1], 1)
    if len(params) != layers * directions * each or not isinstance(hidden, int):
        refuse("projections of the state")
    if first:
        x = call_op("transpose", [x], axes=[1, 0, 2])
    ends: List[List[RelayExpr]] = [[] for _ in states]
    for layer in range(layers):
        mine = [params[(layer * directions + d) * each :][:each] for d in range(directions)]
        weight, recurrence = (
            call_op("stack", [Tuple([_gates(p[k], kind, hidden) for p in mine])], axis=0) for k in (0, 1)
        )
        args, names = [x, weight, recurrence], []
        if biases:
            sides = [
                call_op("concatenate", [Tuple([_gates(p[k], kind, hidden) for k in (2, 3)])], axis=0) for p in mine
            ]
            args.append(call_op("stack", [Tuple(sides)], axis=0))
            names.append("bias")
        for state, name in zip(states, ("initial_h", "initial_c")):
            args.append(cut(state, 0, layer * directions, (layer + 1) * directions))
            names.append(name)
        more = {"activations": [activation] * directions} if activation else {}
        if kind == "gru":
            more["linear_before_reset"] = True
        made = call_op(
            f"nn.{kind}",
            args,
            hidden_size=hidden,
            inputs=names,
            direction="bidirectional" if both else "forward",
            **more,
        )
        y = call_op("transpose", [made[0]], axes=[0, 2, 1, 3])  # (time, batch, directions, hidden)
        sizes = shape(y)
        x = reshape(y, [sizes[0], sizes[1], directions * hidden])
        for k, end in enumerate(ends):
            end.append(made[1 + k])
    if first:
        x = call_op("transpose", [x], axes=[1, 0, 2])
    return [x] + [call_op("concatenate", [Tuple(e)], axis=0) if layers > 1 else e[0] for e in ends]


@row("aten.lstm.input")
def _lstm(
    g: Graph,
    x: RelayExpr,
    states: List[RelayExpr],
    params: Sequence[RelayExpr],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    first: bool,
) -> List[RelayExpr]:
    if train and dropout:
        refuse("random dropout of training; call model.eval() before exporting")
    return _network("lstm", x, list(states), params, biases, layers, both, first)


def _simple(kind: str, activation: str) -> Any:
    def f(
        g: Graph,
        x: RelayExpr,
        state: RelayExpr,
        params: Sequence[RelayExpr],
        biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both: bool,
        first: bool,
    ) -> List[RelayExpr]:
        if train and dropout:
            refuse("random dropout of training; call model.eval() before exporting")
        return _network(kind, x, [state], params, biases, layers, both, first, activation)

    return f


row("aten.gru.input")(_simple("gru", ""))
row("aten.rnn_tanh.input")(_simple("rnn", "Tanh"))
row("aten.rnn_relu.input")(_simple("rnn", "Relu"))
