"""The function of an external compiler as a flat graph of kernels: what most code generators want to read.

A call of a composite function, or of an operator, is a kernel: its name, the operators in it with their attributes, the
tensors that it reads (call by call, what other calls of it give left out) and those that it gives.  to_json writes
the graph for a loader at run time."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .... import error
from ...analysis import post_order_visit
from ...expr import Call, Constant, Function, Op, RelayExpr, Tuple as TupleExpr, TupleGetItem, TupleWrapper, Var
from ...ty import TensorType
from .external import _leaves, _symbol, constants_of

VERSION = 1


class Tensor(NamedTuple):
    """A value of the graph: number, name, shape, dtype, and for a constant its array."""

    id: int
    name: str
    shape: Tuple[Any, ...]
    dtype: str
    constant: Optional[Constant] = None

    @property
    def array(self) -> Any:
        """The elements of a constant."""
        return self.constant.data.numpy() if self.constant is not None else None


class Kernel(NamedTuple):
    """One thing to compute."""

    name: str  # of the composite, "dnnl.conv2d_relu", or of the operator
    ops: List[str]
    attrs: Dict[str, Dict[str, Any]]  # by operator; of one that occurs twice, the last
    calls: List[Call]
    inputs: List[Tensor]
    outputs: List[Tensor]


def _sizes(t: TensorType) -> Tuple[Any, ...]:
    return tuple(getattr(d, "value", None) if not isinstance(d, int) else d for d in t.shape)


class Graph:
    """inputs, constants, kernels (operands first) and outputs of a function."""

    def __init__(self, func: Function):
        self.symbol = _symbol(func)
        self.compiler = (func.attrs or {}).get("Compiler", "")
        self.tensors: List[Tensor] = []
        self.kernels: List[Kernel] = []
        self._of: Dict[RelayExpr, List[Tensor]] = {}
        self._constants = {c: self._new(n, c.checked_type, c) for n, c in constants_of(func, self.symbol).items()}
        self.constants = list(self._constants.values())
        self.inputs = [t for p in func.params for t in self._value(p, p.name_hint, p.checked_type)]
        self.outputs: List[Tensor] = []
        inside = set()

        def enter(e: Any) -> None:
            if isinstance(e, Call) and isinstance(e.op, Function):
                post_order_visit(e.op.body, inside.add)

        post_order_visit(func.body, enter)
        post_order_visit(func.body, lambda e: None if e in inside else self._visit(e))
        self.outputs = self._read(func.body)

    def _new(self, name: str, t: TensorType, constant: Optional[Constant] = None) -> Tensor:
        made = Tensor(len(self.tensors), name, _sizes(t), t.dtype, constant)
        self.tensors.append(made)
        return made

    def _value(self, e: RelayExpr, name: str, t: Any) -> List[Tensor]:
        self._of[e] = [self._new(n, leaf) for n, leaf in _leaves(name, t)]
        return self._of[e]

    def _read(self, e: Any) -> List[Tensor]:
        e = e.tuple_value if isinstance(e, TupleWrapper) else e
        return [self._constants[e]] if isinstance(e, Constant) else self._of[e]

    def _visit(self, e: Any) -> None:
        if isinstance(e, (Var, Constant, Function, Op)) or e in self._of:
            return
        if isinstance(e, TupleExpr):
            self._of[e] = [t for f in e.fields for t in self._read(f)]
        elif isinstance(e, TupleGetItem):
            before = sum(len(_leaves("", f)) for f in e.tuple_value.checked_type.fields[: e.index])
            count = len(_leaves("", e.checked_type))
            self._of[e] = self._read(e.tuple_value)[before : before + count]
        elif isinstance(e, Call):
            self._call(e)
        else:
            raise error.UnsupportedError(f"{self.symbol}: a {type(e).__name__} in a function for '{self.compiler}'")

    def _call(self, e: Call) -> None:
        if not isinstance(e.op, Function):
            name, calls, leaf = e.op.name, [e], {a: self._read(a) for a in e.args}
        else:
            name = (e.op.attrs or {}).get("Composite")
            if name is None:
                raise error.UnsupportedError(f"{self.symbol}: a call of a function that is no composite")
            calls, leaf = [], {p: self._read(a) for p, a in zip(e.op.params, e.args)}
            post_order_visit(e.op.body, lambda x: calls.append(x) if isinstance(x, Call) else None)
        inputs: List[Tensor] = []

        def use(a: Any) -> None:
            if isinstance(a, TupleExpr) and a not in leaf:
                for f in a.fields:
                    use(f)
            elif a in leaf or isinstance(a, Constant):
                inputs.extend(leaf[a] if a in leaf else self._read(a))

        for c in calls:
            for a in c.args:
                use(a)
        attrs = {c.op.name: dict(c.attrs or {}) for c in calls}
        outputs = self._value(e, f"t{len(self.kernels)}", e.checked_type)
        self.kernels.append(Kernel(name, [c.op.name for c in calls], attrs, calls, inputs, outputs))


def _plain(value: Any) -> Any:
    """An attribute as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if abs(value) < 1e300 else str(value)
    return value if isinstance(value, (bool, int, str, type(None))) else int(getattr(value, "value", value))


def to_json(func: Function, more: Optional[Dict[str, Any]] = None) -> str:
    """The graph as text: {"version", "symbol", "compiler", "tensors", "inputs", "constants", "outputs", "kernels"};
    tensors are told by number.  more: keys beside these."""
    g = Graph(func)
    number = lambda tensors: [t.id for t in tensors]  # noqa: E731
    size = lambda shape: [-1 if d is None else d for d in shape]  # noqa: E731
    kernels = [
        {
            "name": k.name,
            "ops": k.ops,
            "attrs": {op: {n: _plain(v) for n, v in a.items()} for op, a in k.attrs.items()},
            "inputs": number(k.inputs),
            "outputs": number(k.outputs),
        }
        for k in g.kernels
    ]
    graph = {
        "version": VERSION,
        "symbol": g.symbol,
        "compiler": g.compiler,
        "tensors": [{"name": t.name, "shape": size(t.shape), "dtype": t.dtype} for t in g.tensors],
        "inputs": number(g.inputs),
        "constants": number(g.constants),
        "outputs": number(g.outputs),
        "kernels": kernels,
    }
    return json.dumps({**graph, **(more or {})})
