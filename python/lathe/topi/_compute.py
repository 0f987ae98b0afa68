"""How a topi function becomes tensor expressions.

A function of this package is written over graph expressions, with relay's operators.  `computed`
puts a graph variable in the place of each te tensor that the function is called with, lets it
build its expression, and asks the compiler for the tensors that the operators' own meaning
computes.  So an operator is defined once, for graphs and for te."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Sequence

from .. import error, relay, te, tir
from .._ffi import WORLD, call
from ..relay.expr import RelayExpr, TupleWrapper
from ..te import Tensor

Function = Callable[..., Any]


class _Lift:
    """The variables that stand for tensors in one call."""

    def __init__(self, values: bool) -> None:
        self.tensors: List[Tensor] = []
        self.vars: List[RelayExpr] = []
        self.values = values  # an expression among the arguments is a value, not a size

    def lift(self, x: Any) -> Any:
        """The argument with tensors replaced and literals as Python numbers."""
        if isinstance(x, (list, tuple)):
            return [self.lift(i) for i in x]
        if isinstance(x, (tir.IntImm, tir.FloatImm)):
            return x.value
        if isinstance(x, te.TensorSlice):
            x = x.asobject()
        if self.values and isinstance(x, tir.PrimExpr):
            element = x
            x = te.compute((), lambda: element, name="value")
        return self._variable(x) if isinstance(x, Tensor) else x

    def _variable(self, t: Tensor) -> RelayExpr:
        for known, v in zip(self.tensors, self.vars):
            if known.same_as(t):
                return v
        self.tensors.append(t)
        self.vars.append(relay.var(t.op.name, shape=t.shape, dtype=t.dtype))
        return self.vars[-1]

    def lower(self, out: Any) -> Any:
        """The tensors of a graph expression; of a list or a tuple, a list of them."""
        if isinstance(out, TupleWrapper):
            out = out.astuple()
        many = isinstance(out, (list, tuple)) or isinstance(relay_type(out), relay.TupleType)
        body = relay.Tuple(list(out)) if isinstance(out, (list, tuple)) else out
        tensors = call("node_compute", WORLD, self.vars, self.tensors, body)
        return tensors if many else tensors[0]


def relay_type(x: RelayExpr) -> Any:
    """The type of a graph expression."""
    return x.checked_type


def dims(x: RelayExpr) -> List[Any]:
    """The shape of a graph expression, integers where they are known."""
    return [getattr(n, "value", n) for n in relay_type(x).shape]


def dtype(x: RelayExpr) -> str:
    """The dtype of a graph expression."""
    return str(relay_type(x).dtype)


def fixed(where: str, x: RelayExpr) -> List[int]:
    """The shape, which must be known."""
    shape = dims(x)
    if not all(isinstance(n, int) for n in shape):
        raise error.UnsupportedError(
            f"topi.{where}: the shape ({', '.join(map(str, shape))}) must be known; write the sizes as integers"
        )
    return shape


def _holds(kind: Any, args: Sequence[Any]) -> bool:
    return any(_holds(kind, a) if isinstance(a, (list, tuple)) else isinstance(a, kind) for a in args)


def computed(f: Function) -> Function:
    """A function over graph expressions as one over te tensors."""
    return _computed(f, values=False)


def computed_values(f: Function) -> Function:
    """The same where every argument is an operand: expressions are tensors without dimensions."""
    return _computed(f, values=True)


def _computed(f: Function, values: bool) -> Function:
    @functools.wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        if _holds((RelayExpr, TupleWrapper), [*args, *kwargs.values()]):  # called by another such function
            return f(*args, **kwargs)
        lift = _Lift(values)
        return lift.lower(f(*[lift.lift(a) for a in args], **{k: lift.lift(v) for k, v in kwargs.items()}))

    return function


def refused(package: str, names: Sequence[str]) -> Callable[[str], Any]:
    """A module's __getattr__: what TVM has and this package has not is refused by name."""

    def get(name: str) -> Any:
        if name in names:
            raise error.UnsupportedError(
                f"{package}.{name} is not supported: there is no operator for it; write it with te.compute"
            )
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return get
