"""Literals out of expressions."""

from __future__ import annotations

from typing import Any, Tuple

from .. import arith, error, tir


def simplify(expr: Any) -> Any:
    """The expression in its shortest form; a number as it is."""
    return arith.Analyzer().simplify(expr) if isinstance(expr, tir.PrimExpr) else expr


def get_const_int(expr: Any) -> int:
    """The integer that an expression is."""
    value = simplify(expr)
    value = getattr(value, "value", value)
    if not isinstance(value, int):
        raise error.ArgumentError(f"get_const_int: {expr} is not a known integer")
    return value


def get_const_float(expr: Any) -> float:
    """The number that an expression is."""
    if isinstance(expr, (float, int)):
        return float(expr)
    value = getattr(simplify(expr), "value", None)
    if value is None:
        raise error.ArgumentError(f"get_const_float: {expr} is not a known number")
    return float(value)


def get_const_tuple(in_tuple: Any) -> Tuple[Any, ...]:
    """Integers where they are known, expressions elsewhere."""
    return tuple(getattr(simplify(x), "value", x) if isinstance(x, tir.PrimExpr) else x for x in in_tuple)


def equal_const_int(expr: Any, value: int) -> bool:
    """Is the expression this integer?"""
    known = getattr(simplify(expr), "value", expr)
    return isinstance(known, int) and known == value


def prod(x: Any) -> Any:
    """The product of sizes."""
    out: Any = 1
    for n in x:
        out = out * n
    return simplify(out)
