"""Sizes known only at run time.

PyTorch writes them as expressions of sympy over symbols.  A symbol is bound to the scalar expression that
computes it (a dimension of an input, the count that an operator found); any other size is
arithmetic on those, which the compiler follows into the shapes."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import numpy as np

from ...expr import RelayExpr, Tuple, call_op, const
from . import table


def is_symbolic(value: Any) -> bool:
    """A size (or a number computed of sizes) that PyTorch has as an expression?"""
    return type(value).__name__ in ("SymInt", "SymFloat", "SymBool")


def extent(x: RelayExpr, axis: int) -> RelayExpr:
    """The extent of an axis, int64."""
    return call_op("take", [call_op("shape_of", [x], dtype="int64"), const(axis, "int64")], axis=0)


def vector(dims: Sequence[Any]) -> RelayExpr:
    """Ints and scalar expressions as a vector, int64."""
    if all(isinstance(d, int) for d in dims):
        return const(np.array(list(dims), "int64"))
    scalars = [const(d, "int64") if isinstance(d, int) else d for d in dims]
    return call_op("stack", [Tuple(scalars)], axis=0)


_BINARY = {
    "Add": "add",
    "Mul": "multiply",
    "FloorDiv": "floor_divide",
    "CleanDiv": "floor_divide",
    "Mod": "floor_mod",
    "PythonMod": "floor_mod",
    "Max": "maximum",
    "Min": "minimum",
    "CeilToInt": "ceil",
}
_COMPARE = {
    "Equality": "equal",
    "Unequality": "not_equal",
    "StrictGreaterThan": "greater",
    "GreaterThan": "greater_equal",
    "StrictLessThan": "less",
    "LessThan": "less_equal",
}


class Symbols:
    """What each symbol is computed by."""

    def __init__(self) -> None:
        self._of: Dict[str, Callable[[], RelayExpr]] = {}
        self._made: Dict[str, RelayExpr] = {}

    def bind(self, size: Any, make: Callable[[], RelayExpr]) -> None:
        """A size that is one symbol, which has no value yet, gets one."""
        expr = getattr(getattr(size, "node", None), "expr", None)
        if expr is not None and getattr(expr, "is_Symbol", False):
            self._of.setdefault(str(expr), make)

    def knows(self, size: Any) -> bool:
        """Are all its symbols bound?"""
        expr = size.node.expr if hasattr(size, "node") else size
        return all(str(s) in self._of for s in getattr(expr, "free_symbols", ()))

    def scalar(self, size: Any) -> Any:
        """The size as an int or as a scalar expression."""
        if isinstance(size, (bool, int, float)):
            return size
        return self._convert(size.node.expr if hasattr(size, "node") else size)

    def _symbol(self, name: str) -> RelayExpr:
        if name not in self._of:
            table.refuse(f"the size {name}, which no input and no operator gives")
        if name not in self._made:
            self._made[name] = self._of[name]()
        return self._made[name]

    def _convert(self, e: Any) -> Any:
        if e.is_Symbol:
            return self._symbol(str(e))
        if getattr(e, "is_Integer", False):
            return int(e)
        if e.is_number:
            return float(e)
        kind = type(e).__name__
        args = [self._convert(a) for a in e.args]
        if kind == "Mul" and any(isinstance(a, float) for a in args):
            return self._ratio(e)
        if kind in _BINARY and len(args) >= 2:
            return self._fold(_BINARY[kind], args)
        if kind in _COMPARE:
            return self._fold(_COMPARE[kind], args)
        if kind in ("Pow", "PowByNatural") and isinstance(args[1], int) and args[1] >= 0:
            return self._fold("multiply", [args[0]] * args[1]) if args[1] else 1
        if kind == "ToFloat":
            return call_op("cast", [args[0]], dtype="float64")
        if kind in ("IntTrueDiv", "FloatTrueDiv"):
            return call_op("divide", [self._float(a) for a in args])
        if kind in ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt"):
            whole = {"T": "trunc", "F": "floor", "C": "ceil", "R": "round"}[kind[0]]
            return call_op("cast", [call_op(whole, [self._float(args[0])])], dtype="int64")
        if kind in ("OpaqueUnaryFn_sqrt",):
            return call_op("sqrt", [self._float(args[0])])
        return table.refuse(f"the size {e} ({kind})")

    def _ratio(self, e: Any) -> Any:
        """A product with a fraction among its factors: n/2 of an even n."""
        top, bottom = e.as_numer_denom()
        return self._fold("floor_divide", [self._convert(top), int(bottom)])

    @staticmethod
    def _float(x: Any) -> RelayExpr:
        return call_op("cast", [x], dtype="float64") if isinstance(x, RelayExpr) else const(float(x), "float64")

    def _fold(self, name: str, args: List[Any]) -> Any:
        wide = any(
            isinstance(a, float) or (isinstance(a, RelayExpr) and a.checked_type.dtype == "float64") for a in args
        )
        nodes = [self._float(a) if wide else (a if isinstance(a, RelayExpr) else const(int(a), "int64")) for a in args]
        made = nodes[0]
        for n in nodes[1:]:
            made = call_op(name, [made, n])
        return made
