"""Reasoning about integer expressions."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from ._ffi import WORLD, call
from .ir.base import Range
from .tir.expr import PrimExpr, Var, convert


class ConstIntBound(NamedTuple):
    """Smallest and largest value."""

    min_value: int
    max_value: int


class Analyzer:
    """What is known about variables, and what follows from it."""

    def __init__(self) -> None:
        self._ranges: Dict[Var, Range] = {}

    def bind(self, var: Var, expr: Any, allow_override: bool = False) -> None:
        """var lies in a range, or equals an expression."""
        self._ranges[var] = expr if isinstance(expr, Range) else Range.from_min_extent(convert(expr), 1)

    def _known(self) -> List[Any]:
        ranges = list(self._ranges.items())
        return [[v for v, _ in ranges], [r.min for _, r in ranges], [r.extent for _, r in ranges]]

    def simplify(self, expr: Any, steps: int = 2) -> PrimExpr:
        """The simplest known form."""
        return call("simplify", WORLD, convert(expr), *self._known())

    rewrite_simplify = canonical_simplify = simplify

    def can_prove(self, expr: Any, strength: int = 0) -> bool:
        """Does the condition hold for all values?  False: not known."""
        return call("prove", WORLD, convert(expr), *self._known())

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """Are both equal for all values?  False: not known."""
        return self.can_prove(convert(lhs).equal(rhs))

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """Smallest and largest value that an integer expression can take."""
        return ConstIntBound(*call("bounds", WORLD, convert(expr), *self._known()))
