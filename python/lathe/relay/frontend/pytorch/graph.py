"""A graph of ATen operators (torch.fx) becomes a function of relay.

Comes in: a graph whose nodes carry what PyTorch knows of their values (`node.meta["val"]`: tensors without
memory, whose sizes may be symbols), and an expression for each of its inputs.  Goes out: an
expression for each output.  In between every node has one value: an expression for a tensor, an int
or a scalar expression (int64) for a size, a list for a list."""

from __future__ import annotations

import operator
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from .... import error
from ...expr import Constant, Function, If, RelayExpr, Tuple, TupleWrapper, as_expr, call_op, const, var
from ...ty import TensorType
from . import sizes, table
from .table import Refused, name_of

DTYPES = (
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)
FLOATS = ("float16", "float32", "float64", "bfloat16")


def dtype_name(dtype: Any) -> str:
    """ "float32" for torch.float32."""
    name = str(dtype).rsplit(".", 1)[-1]
    if name not in DTYPES:
        table.refuse(f"tensors of {name}")
    return name


def dt(x: RelayExpr) -> str:
    """The dtype of an expression."""
    return x.checked_type.dtype


def rank(x: RelayExpr) -> int:
    """The number of its dimensions."""
    return len(x.checked_type.shape)


def dim(x: RelayExpr, axis: int) -> Any:
    """A size of a tensor: an int, or a scalar expression."""
    shape = x.checked_type.shape
    d = shape[axis]
    return d if isinstance(d, int) else sizes.extent(x, axis % len(shape))


def shape(x: RelayExpr) -> List[Any]:
    """All its sizes."""
    return [dim(x, i) for i in range(rank(x))]


def static(x: RelayExpr, what: str) -> List[int]:
    """Its sizes where an operator wants them known."""
    found = x.checked_type.shape
    if not all(isinstance(d, int) for d in found):
        table.refuse(f"{what} of a tensor whose sizes are not known ({x.checked_type})")
    return list(found)


def cast(x: Any, dtype: str) -> RelayExpr:
    """The expression, or number, as a dtype."""
    if not isinstance(x, RelayExpr):
        if dtype == "bfloat16":
            return const(x, dtype)
        limits = np.iinfo(dtype) if dtype[0] in "iu" else None
        if limits is not None and isinstance(x, (int, float)) and not limits.min <= x <= limits.max:
            x = int(x) & int(limits.max) if limits.min == 0 else int(np.clip(x, limits.min, limits.max))
        return const(np.array(x).astype(dtype))
    if dt(x) == dtype:
        return x
    return call_op("cast", [x], dtype=dtype)


def reshape(x: RelayExpr, to: Sequence[Any]) -> RelayExpr:
    """The elements in a shape of ints and scalar expressions."""
    here = x.checked_type.shape
    if len(here) == len(to) and all(isinstance(d, int) and d == t for d, t in zip(here, to)):
        return x
    return _sized("reshape", "newshape", [x], to, allowzero=True)


def expand(x: RelayExpr, to: Sequence[Any]) -> RelayExpr:
    """The tensor repeated to a shape."""
    here = x.checked_type.shape
    if len(here) == len(to) and all(isinstance(d, int) and d == t for d, t in zip(here, to)):
        return x
    return _sized("broadcast_to", "shape", [x], to)


def full(value: Any, to: Sequence[Any], dtype: str) -> RelayExpr:
    """A tensor of one value."""
    if all(isinstance(d, int) for d in to):
        return call_op("full", [cast(value, dtype)], shape=list(to), dtype=dtype)
    return call_op("dyn.full", [cast(value, dtype), sizes.vector(to)], dtype=dtype)


def _sized(name: str, key: str, args: List[RelayExpr], to: Sequence[Any], **attrs: Any) -> RelayExpr:
    if all(isinstance(d, int) for d in to):
        return call_op(name, args, **{key: list(to)}, **attrs)
    return call_op("dyn." + name, args + [sizes.vector(to)], **attrs)


class Graph:
    """The conversion of one graph; rows read what the current node gives from it."""

    def __init__(self, symbols: Optional[sizes.Symbols] = None, more: Optional[Dict[str, Any]] = None):
        self.symbols = symbols or sizes.Symbols()
        self.more = more or {}
        self.node: Any = None
        self.values: Dict[Any, Any] = {}

    # ---- what rows ask

    @property
    def out(self) -> Any:
        """What PyTorch knows of the current node's value."""
        return self.node.meta.get("val")

    @property
    def out_dtype(self) -> str:
        """The dtype of the current node's value (of the first, of several)."""
        return dtype_name(self._first().dtype)

    @property
    def out_shape(self) -> List[Any]:
        """Its shape."""
        return self.sizes(self._first().shape)

    def _first(self) -> Any:
        return self.out[0] if isinstance(self.out, (list, tuple)) else self.out

    def sizes(self, dims: Sequence[Any]) -> List[Any]:
        """Sizes as PyTorch has them as ints and scalar expressions."""
        return [self.size(d) for d in dims]

    def size(self, d: Any) -> Any:
        """One of them."""
        return d if isinstance(d, (int, float)) else self.symbols.scalar(d)

    def meta(self, index: int) -> Any:
        """What PyTorch knows of an argument of the current node: a tensor without memory, or a number."""
        a = self.node.args[index] if index < len(self.node.args) else None
        return a.meta.get("val") if hasattr(a, "meta") else a

    def wants(self, index: int) -> bool:
        """Does anybody read this field of the current node's value?"""
        return any(u.target is not operator.getitem or (u.args[1] == index and u.users) for u in self.node.users)

    # ---- nodes to values

    def run(self, graph: Any, inputs: Sequence[Any], attribute: Any = None) -> List[Any]:
        """Values of the graph's outputs."""
        given = iter(inputs)
        for node in graph.nodes:
            self.node = node
            if node.op == "placeholder":
                value = next(given)
            elif node.op == "get_attr":
                value = attribute(node.target)
            elif node.op == "output":
                return (
                    [self._value(a) for a in node.args[0]]
                    if isinstance(node.args[0], (list, tuple))
                    else [self._value(node.args[0])]
                )
            else:
                value = self._call(node)
            self.values[node] = value
            self._bind(node.meta.get("val"), value)
        raise error.InternalError("a graph without outputs")

    def _bind(self, known: Any, value: Any) -> None:
        """Symbols that this value is the first to have."""
        if isinstance(value, (list, tuple)) and isinstance(known, (list, tuple)):
            for k, v in zip(known, value):
                self._bind(k, v)
        elif isinstance(value, RelayExpr) and hasattr(known, "shape"):
            for axis, d in enumerate(known.shape):
                if not isinstance(d, int):
                    self.symbols.bind(d, lambda axis=axis: sizes.extent(value, axis))
        elif isinstance(value, RelayExpr) and known is not None and hasattr(known, "node"):
            self.symbols.bind(known, lambda: value)

    def _value(self, a: Any) -> Any:
        if hasattr(a, "meta") and a in self.values:
            return self.values[a]
        if isinstance(a, (list, tuple)):
            return [self._value(x) for x in a]
        return a

    def _call(self, node: Any) -> Any:
        known = node.meta.get("val")
        if node.target is operator.getitem:
            return self._value(node.args[0])[node.args[1]]
        if sizes.is_symbolic(known) and self.symbols.knows(known):
            return self.symbols.scalar(known)
        if isinstance(known, (bool, int, float)) and not hasattr(node.target, "_schema"):
            return known
        name = name_of(node.target)
        found = table.find(name, self.more)
        if found is None:
            table.refuse(f"operator '{name}'")
        try:
            made = found(self, *self._arguments(node))
        except Refused as e:
            raise Refused(f"{name}: {e.message}") from None
        except error.LatheError as e:
            raise type(e)(f"{name} (node '{node.name}'): {e.message}") from None
        if isinstance(made, TupleWrapper):
            made = list(made)
        return made

    def _arguments(self, node: Any) -> List[Any]:
        """All arguments of the schema, in its order."""
        args = [self._value(a) for a in node.args]
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return args + [self._value(v) for v in node.kwargs.values()]
        for a in schema.arguments[len(args) :]:
            args.append(self._value(node.kwargs[a.name]) if a.name in node.kwargs else a.default_value)
        return args


def unsupported(graph_module: Any, more: Optional[Dict[str, Any]] = None) -> Dict[str, int]:
    """Operators of a graph (and of the graphs inside it) that have no row, and how often they are used."""
    absent: Dict[str, int] = {}
    for module in graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            known, name = node.meta.get("val"), name_of(node.target)
            plain = sizes.is_symbolic(known) or isinstance(known, (bool, int, float))
            if (plain and not hasattr(node.target, "_schema")) or table.find(name, more) is not None:
                continue
            if plain and sizes.is_symbolic(known):
                continue
            absent[name] = absent.get(name, 0) + 1
    return absent


__all__ = [
    "Constant",
    "FLOATS",
    "Function",
    "Graph",
    "If",
    "RelayExpr",
    "TensorType",
    "Tuple",
    "as_expr",
    "call_op",
    "cast",
    "const",
    "dim",
    "dt",
    "dtype_name",
    "expand",
    "full",
    "rank",
    "reshape",
    "shape",
    "static",
    "unsupported",
    "var",
]
