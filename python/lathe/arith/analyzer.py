"""What is known about variables, and what follows from it."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, List, Optional, Set, Union

from .. import error
from .._ffi import WORLD, call
from ..tir.expr import PrimExpr, Range, Var, convert
from .int_set import IntervalSet, IntSet, interval_of

_NOTHING_BELOW, _NOTHING_ABOVE = -(2**63), 2**63 - 1


class ConstIntBound:
    """Smallest and largest value; NEG_INF and POS_INF where there is no bound."""

    POS_INF = 2**63 - 1
    NEG_INF = -POS_INF

    def __init__(self, min_value: int, max_value: int) -> None:
        self.min_value, self.max_value = int(min_value), int(max_value)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ConstIntBound) and (self.min_value, self.max_value) == (
            other.min_value,
            other.max_value,
        )

    def __hash__(self) -> int:
        return hash((self.min_value, self.max_value))

    def __repr__(self) -> str:
        return f"ConstIntBound(min_value={self.min_value}, max_value={self.max_value})"


class ModularSet:
    """The integers coeff * n + base; coeff 0: base alone."""

    def __init__(self, coeff: int, base: int) -> None:
        self.coeff, self.base = int(coeff), int(base)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ModularSet) and (self.coeff, self.base) == (other.coeff, other.base)

    def __hash__(self) -> int:
        return hash((self.coeff, self.base))

    def __repr__(self) -> str:
        return f"ModularSet(coeff={self.coeff}, base={self.base})"


class ProofStrength(enum.IntEnum):
    """How hard can_prove tries.  Symbolic bounds are always used here."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(enum.Flag):
    """Rules that TVM keeps behind a switch.  Here they are always on where they are sound."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1 << 0
    ConvertBooleanToAndOfOrs = 1 << 1
    ApplyConstraintsToBooleanBranches = 1 << 2
    ComparisonOfProductAndSum = 1 << 3


class ConstraintScope:
    """A condition that holds inside a ``with`` statement."""

    def __init__(self, enter: Callable[[], Callable[[], None]]) -> None:
        self._enter = enter
        self._leave: Optional[Callable[[], None]] = None

    def __enter__(self) -> "ConstraintScope":
        self._leave = self._enter()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None


class Analyzer:
    """Ranges, values and conditions that are known, and what follows from them."""

    def __init__(self) -> None:
        self._ranges: Dict[Var, Range] = {}
        self._values: Dict[Var, PrimExpr] = {}
        self._conditions: List[PrimExpr] = []
        self._updated: Set[Var] = set()
        self.enabled_extensions = Extension.NoExtensions

    def bind(self, var: Var, expr: Any, allow_override: bool = False) -> None:
        """var lies in a range, or equals an expression."""
        self._ranges.pop(var, None)
        self._values.pop(var, None)
        if isinstance(expr, Range):
            self._ranges[var] = expr
        else:
            self._values[var] = convert(expr)

    def update(self, var: Var, info: Union[ConstIntBound, ModularSet], override: bool = False) -> None:
        """var lies between bounds, or in a modular set."""
        if isinstance(info, ModularSet):
            self._conditions.append(convert(var) % info.coeff == info.base if info.coeff else var.equal(info.base))
            return
        if not isinstance(info, ConstIntBound):
            raise error.ArgumentError(f"update takes a ConstIntBound or a ModularSet, not {type(info).__name__}")
        if var in self._ranges and not override:
            raise error.ArgumentError(f"{var} has a range already; override=True replaces it")
        self._ranges.pop(var, None)
        self._updated.add(var)
        low, high = info.min_value, info.max_value
        if low > ConstIntBound.NEG_INF and high < ConstIntBound.POS_INF:
            self._ranges[var] = Range.from_min_extent(convert(low), convert(high - low + 1))
        elif low > ConstIntBound.NEG_INF:
            self._conditions.append(var >= low)
        elif high < ConstIntBound.POS_INF:
            self._conditions.append(var <= high)

    def constraint_scope(self, constraint: Any) -> ConstraintScope:
        """``with analyzer.constraint_scope(x >= 0):`` holds the condition for the statement's body."""

        def enter() -> Callable[[], None]:
            before = len(self._conditions)
            self._conditions.append(convert(constraint))

            def leave() -> None:
                del self._conditions[before:]

            return leave

        return ConstraintScope(enter)

    def facts(self) -> List[Any]:
        """What is known, in the form in which the core takes it."""
        ranges = list(self._ranges.items())
        return [[v for v, _ in ranges], [r.min for _, r in ranges], [r.extent for _, r in ranges],
                list(self._values), list(self._values.values()), list(self._conditions)]

    def simplify(self, expr: Any, steps: int = 2) -> PrimExpr:
        """The simplest known form."""
        return call("simplify", WORLD, convert(expr), *self.facts())

    canonical_simplify = simplify

    def rewrite_simplify(self, expr: Any) -> PrimExpr:
        """The same, written as TVM's rewrite rules leave it: in the order that was given, `x + -1`, `x <= 0`."""
        return call("rewrite", WORLD, convert(expr), *self.facts())

    def can_prove(self, expr: Any, strength: ProofStrength = ProofStrength.DEFAULT) -> bool:
        """Does the condition hold for all values?  False: not known."""
        return call("prove", WORLD, convert(expr), *self.facts())

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """Are both equal for all values?  False: not known."""
        return self.can_prove(convert(lhs).equal(rhs))

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """Smallest and largest value that an integer expression can take."""
        low, high = call("bounds", WORLD, convert(expr), *self.facts())
        return ConstIntBound(ConstIntBound.NEG_INF if low == _NOTHING_BELOW else low,
                             ConstIntBound.POS_INF if high == _NOTHING_ABOVE else high)

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Is a range of the variable known?"""
        return var in self._ranges or var in self._values or var in self._updated

    def modular_set(self, expr: Any) -> ModularSet:
        """Of what the expression is a multiple, and with what rest."""
        return ModularSet(*call("modular", WORLD, convert(expr), *self.facts()))

    def int_set(self, expr: Any, dom_map: Optional[Dict[Var, IntSet]] = None) -> IntervalSet:
        """What the expression can be while variables run over sets; without sets, by their known ranges."""
        sets: Dict[Var, IntSet] = dict(dom_map or {})
        if dom_map is None:
            for v, r in self._ranges.items():
                sets[v] = IntervalSet(r.min, r.min + r.extent - 1)
        return interval_of(convert(expr), sets, self.facts())
