"""A graph of TensorFlow's operators becomes expressions of relay.

Comes in: nodes that name their operands, functions that nodes call, and values for the inputs.  Goes out: a value for
each output that is asked for.  A value is an array (what is known now: weights, sizes, what is computed of them), an
expression, or a variable.  What only the outputs need is looked at, operands first, without recursion."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from .... import error
from ...expr import RelayExpr, TupleWrapper
from ..rows import Table, named
from ..values import Refused, dt, expr, ints, known, like, op, rank, refuse, sizes
from . import proto

_TABLE = Table()
ROWS, FOLDED, row = _TABLE.rows, _TABLE.folded, _TABLE.row
#: Of an operator with several outputs that have names of their own, these: functions tell them by name.
OUTPUTS = {
    "FusedBatchNormV3": ["y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2", "reserve_space_3"],
    "FusedBatchNormV2": ["y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"],
    "FusedBatchNorm": ["y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"],
    "TopKV2": ["values", "indices"],
}


class Dead(NamedTuple):
    """What the branch that is not taken would give."""

    what: str = "an output of a branch that is not taken"


class Variable(NamedTuple):
    """A variable, which is read by its name."""

    name: str
    what: str = "a variable"


class Node:
    """A node as rows see it: its attributes by name."""

    def __init__(self, graph: "Graph", node: Any):
        self.graph, self.node = graph, node
        self.op, self.name = node.op, node.name

    def _attr(self, name: str) -> Any:
        return self.node.attr.get(name)

    def has(self, name: str) -> bool:
        """Is the attribute there?"""
        return name in self.node.attr

    def i(self, name: str, default: int = 0) -> int:
        """A number."""
        a = self._attr(name)
        return default if a is None or "i" not in a.has else a.i

    def f(self, name: str, default: float = 0.0) -> float:
        """A real number."""
        a = self._attr(name)
        return default if a is None or "f" not in a.has else a.f

    def b(self, name: str) -> bool:
        """A flag."""
        a = self._attr(name)
        return bool(a.b) if a is not None else False

    def s(self, name: str, default: str = "") -> str:
        """A text."""
        a = self._attr(name)
        return bytes(a.s).decode(errors="replace") if a is not None and "s" in a.has else default

    def ints(self, name: str) -> List[int]:
        """A list of numbers."""
        a = self._attr(name)
        return list(a.list.i) if a is not None and a.list is not None else []

    def dtype(self, name: str, default: str = "float32") -> str:
        """A dtype."""
        a = self._attr(name)
        return proto.dtype_of(a.type) if a is not None and a.type else default

    def func(self, name: str) -> str:
        """The name of a function."""
        a = self._attr(name)
        return a.func.name if a is not None and a.func is not None else refuse(f"no function '{name}'")


# ---- the walk


def place_of(text: str) -> Tuple[str, str, int]:
    """Of "node", "node:1" and "node:name:1" the node, the output's name and its number."""
    parts = text.split(":")
    number = int(parts[-1]) if len(parts) > 1 and parts[-1].isdigit() else 0
    return parts[0], parts[1] if len(parts) == 3 else "", number


class Graph:
    """The conversion of one graph, or of the body of a function."""

    def __init__(
        self, nodes: Sequence[Any], functions: Dict[str, Any], read: Callable[[str], np.ndarray], deep: int = 0
    ):
        self.functions, self.read, self.deep = functions, read, deep
        self.nodes = {n.name: n for n in nodes}
        self.values: Dict[str, Any] = {}
        if deep > 50:
            refuse("functions that call each other without end")

    def value(self, text: str) -> Any:
        """The value that a text such as "node:0" names."""
        name, output, number = place_of(text)
        if name not in self.values:
            self._run(name)
        made = self.values[name]
        made = made if isinstance(made, list) else [made]
        names = OUTPUTS.get(self.nodes[name].op, []) if name in self.nodes else []
        if output in names:
            number += names.index(output)
        if len(made) == 1 and isinstance(made[0], Dead):
            return made[0]
        if number >= len(made) or made[number] is None:
            refuse(f"output {number} of '{name}' ({self.nodes[name].op})")
        return made[number]

    def _run(self, wanted: str) -> None:
        stack = [wanted]
        open_ = set()
        while stack:
            name = stack[-1]
            if name in self.values:
                stack.pop()
                continue
            node = self.nodes.get(name)
            if node is None:
                raise error.ArgumentError(f"from_tensorflow: there is no node '{name}'")
            waiting = [p for p in (place_of(i)[0] for i in node.input if i[:1] != "^") if p not in self.values]
            if waiting and name in open_:
                refuse(f"a loop through '{name}' ({node.op}), control flow of TensorFlow 1; "
                       "tf.function with while_v2, or a SavedModel of TensorFlow 2, is the way")  # fmt: skip
            if waiting:
                open_.add(name)
                stack.extend(waiting)
                continue
            self.values[name] = self._convert(node)
            stack.pop()

    def _convert(self, node: Any) -> Any:
        found = ROWS.get(node.op)
        if found is None:
            return refuse(f"operator '{node.op}'")
        args = [self.value(i) for i in node.input if i[:1] != "^"]
        if node.op != "Merge" and any(isinstance(a, Dead) for a in args):
            return Dead()
        fold = FOLDED.get(node.op)
        lacks = f"from_tensorflow: node '{node.name}' has not what a {node.op} needs"
        with named(f"{node.op} (node '{node.name}')", lacks):
            if fold is not None and all(isinstance(a, np.ndarray) for a in args):
                made = fold(Node(self, node), *args)
                return made if isinstance(made, (list, RelayExpr)) else np.asarray(made)
            made = found(Node(self, node), *args)
        return list(made) if isinstance(made, TupleWrapper) else made

    def call(self, name: str, args: Sequence[Any]) -> List[Any]:
        """What a function gives for these operands."""
        f = self.functions.get(name)
        if f is None:
            raise error.ArgumentError(f"from_tensorflow: there is no function '{name}'")
        inner = Graph(f.node_def, self.functions, self.read, self.deep + 1)
        for arg, value in zip(f.signature.input_arg, args):
            inner.values[arg.name] = value
        return [inner.value(f.ret.get(out.name, out.name)) for out in f.signature.output_arg]


def absent(nodes: Sequence[Any], functions: Dict[str, Any], wanted: Sequence[str]) -> Dict[str, int]:
    """Operators without a row that the outputs need, functions among them, and how often."""
    by_name = {n.name: n for n in nodes}
    found: Dict[str, int] = {}
    seen, called = set(), set()
    stack = [place_of(w)[0] for w in wanted]
    while stack:
        name = stack.pop()
        node = by_name.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        stack += [place_of(i)[0] for i in node.input if i[:1] != "^"]
        if node.op not in ROWS:
            found[node.op] = found.get(node.op, 0) + 1
        called |= {a.func.name for a in node.attr.values() if a.func is not None}
    for name in sorted(called):
        f = functions.get(name)
        if f is not None:
            rest = {k: v for k, v in functions.items() if k != name}
            for k, v in absent(f.node_def, rest, list(f.ret.values())).items():
                found[k] = found.get(k, 0) + v
    return found


__all__ = [
    "Dead", "FOLDED", "Graph", "Node", "ROWS", "Refused", "Variable", "absent", "dt", "expr", "ints", "known",
    "like", "op", "rank", "refuse", "row", "sizes",
]
