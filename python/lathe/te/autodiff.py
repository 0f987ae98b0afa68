"""Derivatives of tensor expressions, backwards from an output."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from .. import arith, error, tir
from .._ffi import WORLD, call
from ..tir.expr import IterVar, PrimExpr, Var, convert
from .operation import compute, reduce_axis
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor


class _Use(NamedTuple):
    """One read of a tensor in a body, with what it is multiplied by in the derivative, where and over which axes."""

    load: Any
    factor: PrimExpr
    axes: List[IterVar]
    conditions: List[PrimExpr]


def _one(x: Any, value: float) -> PrimExpr:
    return tir.const(value, x.dtype)


#: The derivative of a function by its name, from its argument and its value.
_DERIVATIVES: Dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * _one(x, math.log(2)),
    "exp10": lambda x, y: y * _one(x, math.log(10)),
    "log": lambda x, y: _one(x, 1) / x,
    "log2": lambda x, y: _one(x, 1 / math.log(2)) / x,
    "log10": lambda x, y: _one(x, 1 / math.log(10)) / x,
    "log1p": lambda x, y: _one(x, 1) / (x + _one(x, 1)),
    "sqrt": lambda x, y: _one(x, 0.5) / y,
    "rsqrt": lambda x, y: _one(x, -0.5) * y / x,
    "sigmoid": lambda x, y: y * (_one(x, 1) - y),
    "tanh": lambda x, y: _one(x, 1) - y * y,
    "sin": lambda x, y: tir.cos(x),
    "cos": lambda x, y: -tir.sin(x),
    "tan": lambda x, y: _one(x, 1) + y * y,
    "sinh": lambda x, y: tir.cosh(x),
    "cosh": lambda x, y: tir.sinh(x),
    "asin": lambda x, y: tir.rsqrt(_one(x, 1) - x * x),
    "acos": lambda x, y: -tir.rsqrt(_one(x, 1) - x * x),
    "atan": lambda x, y: _one(x, 1) / (_one(x, 1) + x * x),
    "erf": lambda x, y: _one(x, 2 / math.sqrt(math.pi)) * tir.exp(-(x * x)),
    "abs": lambda x, y: tir.Select(x >= _one(x, 0), _one(x, 1), _one(x, -1)),
}
_STEPS = ("floor", "ceil", "round", "trunc", "nearbyint")


def _uses(e: Any, factor: PrimExpr, axes: List[IterVar], conditions: List[PrimExpr], out: List[_Use]) -> None:
    """Gathers the reads below e; factor is the derivative of the whole by e."""
    zero = tir.const(0, factor.dtype)

    def go(part: Any, by: Any) -> None:
        _uses(part, by, axes, conditions, out)

    if not e.dtype.startswith(("float", "bfloat")) or isinstance(e, (tir.FloatImm, Var)):
        return
    if isinstance(e, tir.BufferLoad):
        out.append(_Use(e, factor, axes, conditions))
    elif isinstance(e, (tir.Add, tir.Sub)):
        go(e.a, factor)
        go(e.b, factor if isinstance(e, tir.Add) else -factor)
    elif isinstance(e, tir.Mul):
        go(e.a, factor * e.b)
        go(e.b, factor * e.a)
    elif isinstance(e, tir.Div):
        go(e.a, factor / e.b)
        go(e.b, -(factor * e.a) / (e.b * e.b))
    elif isinstance(e, (tir.Max, tir.Min)):
        first = e.a >= e.b if isinstance(e, tir.Max) else e.a <= e.b
        go(e.a, tir.Select(first, factor, zero))
        go(e.b, tir.Select(first, zero, factor))
    elif isinstance(e, tir.Select):
        go(e.true_value, tir.Select(e.condition, factor, zero))
        go(e.false_value, tir.Select(e.condition, zero, factor))
    elif isinstance(e, tir.Cast):
        if e.value.dtype.startswith(("float", "bfloat")):
            go(e.value, factor.astype(e.value.dtype))
    elif isinstance(e, tir.Reduce):
        _reduce_uses(e, factor, axes, conditions, out)
    elif isinstance(e, tir.Call):
        _call_uses(e, factor, axes, conditions, out)
    else:
        raise error.UnsupportedError(f"gradient: {type(e).__name__} has no derivative here: {e}")


def _reduce_uses(e: Any, factor: PrimExpr, axes: List[IterVar], conditions: List[PrimExpr], out: List[_Use]) -> None:
    reducer = e.combiner
    result = reducer.result[0]
    if len(reducer.result) != 1 or not isinstance(result, tir.Add) or e.init:
        raise error.UnsupportedError(f"gradient: a reduction by '{reducer.name}' has no derivative here; sums have")
    where = [] if e.condition is None else [e.condition]
    _uses(e.source[0], factor, axes + list(e.axis), conditions + where, out)


def _call_uses(e: Any, factor: PrimExpr, axes: List[IterVar], conditions: List[PrimExpr], out: List[_Use]) -> None:
    name = e.op.name.split(".")[-1]
    if name == "if_then_else":
        cond, yes, no = e.args
        _uses(yes, factor, axes, conditions + [cond], out)
        _uses(no, factor, axes, conditions + [tir.Not(cond)], out)
    elif name == "pow":
        x, p = e.args
        _uses(x, factor * p * tir.power(x, p - _one(p, 1)), axes, conditions, out)
        _uses(p, factor * e * tir.log(x), axes, conditions, out)
    elif name in _DERIVATIVES:
        _uses(e.args[0], factor * _DERIVATIVES[name](e.args[0], e), axes, conditions, out)
    elif name not in _STEPS:
        raise error.UnsupportedError(f"gradient: the function '{name}' has no derivative here")


class _Solver:
    """Puts expressions of a tensor's place in place of the axes that read it."""

    def __init__(self, axes: Sequence[IterVar]) -> None:
        self.free = list(axes)
        self.values: Dict[Var, PrimExpr] = {}
        self.conditions: List[PrimExpr] = []
        self.analyzer = arith.Analyzer()

    def put(self, e: Any) -> PrimExpr:
        """The expression over what is left."""
        return call("substitute", WORLD, convert(e), list(self.values), list(self.values.values()))

    def equal(self, index: Any, place: Any) -> None:
        """index == place: solved for an axis that stands in it alone by 1 or -1, else a condition."""
        index = self.put(index)
        for axis in self.free:
            linear = arith.detect_linear_equation(index, [axis.var])
            if len(linear) == 2 and isinstance(linear[0], tir.IntImm) and abs(int(linear[0])) == 1:
                value = self.analyzer.simplify((place - linear[1]) * int(linear[0]))
                self.values = {v: call("substitute", WORLD, e, [axis.var], [value]) for v, e in self.values.items()}
                self.values[axis.var] = value
                self.free.remove(axis)
                if not value.same_as(place):
                    self.conditions += [value >= axis.dom.min, value < axis.dom.min + axis.dom.extent]
                return
        self.conditions.append(index.equal(place))


def _contribution(op: Operation, use: _Use, of: Tensor, head: Tensor, lead: int) -> Tensor:
    """What one read gives to the derivative by the tensor that it reads."""

    def element(*place: Any) -> PrimExpr:
        solver = _Solver(list(op.axis) + use.axes)
        for index, at in zip(use.load.indices, place[lead:]):
            solver.equal(index, at)
        loops = [reduce_axis((axis.dom.min, axis.dom.min + axis.dom.extent), axis.var.name) for axis in solver.free]
        names = [axis.var for axis in solver.free]
        fresh = [loop.var for loop in loops]

        def finished(e: Any) -> PrimExpr:
            return call("substitute", WORLD, solver.put(e), names, fresh)

        conditions = [call("substitute", WORLD, convert(c), names, fresh) for c in solver.conditions]
        conditions += [finished(c) for c in use.conditions]
        term = head(*place[:lead], *(finished(axis.var) for axis in op.axis)) * finished(use.factor)
        if conditions:
            term = tir.if_then_else(tir.all(*conditions), term, tir.const(0, term.dtype))
        return tir.sum(term, axis=loops) if loops else term

    shape = list(head.shape[:lead]) + list(of.shape)
    return compute(shape, element, name=f"{of.op.name}_grad")


def _post_order(op: Operation, seen: List[Operation]) -> List[Operation]:
    if all(not op.same_as(o) for o in seen):
        for t in op.input_tensors:
            _post_order(t.op, seen)
        seen.append(op)
    return seen


def _find(adjoints: List[Any], tensor: Tensor) -> Optional[List[Tensor]]:
    return next((parts for t, parts in adjoints if t.same_as(tensor)), None)


def _total(parts: List[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return compute(parts[0].shape, lambda *i: _sum([p(*i) for p in parts]), name=parts[0].op.name)


def _same_place(a: Sequence[Any], b: Sequence[Any], dtype: str) -> PrimExpr:
    return tir.all(*(x.equal(y) for x, y in zip(a, b))).astype(dtype) if a else tir.const(1, dtype)


def _sum(terms: List[Any]) -> Any:
    out = terms[0]
    for t in terms[1:]:
        out = out + t
    return out


def gradient(output: Tensor, inputs: Sequence[Tensor], head: Optional[Tensor] = None) -> List[Tensor]:
    """The derivative of the output by each input, multiplied by head: a tensor whose last dimensions are those of the
    output.  Without it, all derivatives: of the output's shape, then the input's.

    Sums, arithmetic, choices and the usual functions have derivatives; where the larger of two equal values is taken,
    the first counts."""
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    n = output.ndim
    if head is None:
        head = compute(list(output.shape) * 2, lambda *i: _same_place(i[:n], i[n:], output.dtype), name="identity")
    lead = head.ndim - n
    if lead < 0:
        raise error.ShapeError(f"gradient: head has {head.ndim} dimensions, the output {n}")
    adjoints: List[Any] = [(output, [head])]
    for op in reversed(_post_order(output.op, [])):
        parts = _find(adjoints, op.output(0))
        if parts is None or isinstance(op, PlaceholderOp) or any(t.op.same_as(op) for t in inputs):
            continue
        if not isinstance(op, ComputeOp) or op.num_outputs != 1:
            raise error.UnsupportedError(f"gradient: '{op.name}' is no computation of one tensor, element by element")
        uses: List[_Use] = []
        _uses(op.body[0], tir.const(1, output.dtype), [], [], uses)
        adjoint = _total(parts)
        for use in uses:
            of = use.load.producer
            known = _find(adjoints, of)
            if known is None:
                known = []
                adjoints.append((of, known))
            known.append(_contribution(op, use, of, adjoint, lead))
    out = []
    for t in inputs:
        found = _find(adjoints, t)
        shape = list(head.shape[:lead]) + list(t.shape)
        out.append(_total(found) if found else compute(shape, lambda *i: _one(t, 0), name=f"{t.op.name}_grad"))
    return out
