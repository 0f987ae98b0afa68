"""Expressions that are linear in variables, and bounds that conditions put on them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .. import error
from .._ffi import WORLD, call
from ..tir import expr as tir
from ..tir.expr import PrimExpr, Range, Var, convert
from .analyzer import Analyzer
from .int_set import IntervalSet, IntSet, interval_of, neg_inf, pos_inf


def detect_linear_equation(expr: Any, var_list: Sequence[Var]) -> List[PrimExpr]:
    """[coefficient of each variable, …, the rest]; [] where the expression is not linear in them."""
    found = call("linear", WORLD, convert(expr), list(var_list), *Analyzer().facts())
    return [] if found is None else list(found)


def _parts(cond: PrimExpr) -> List[PrimExpr]:
    """The comparisons of a conjunction; one of a minimum or maximum that bounds both operands is two."""
    if isinstance(cond, tir.And):
        return _parts(cond.a) + _parts(cond.b)
    if isinstance(cond, tir.Not) and type(cond.a) in _OPPOSITE:
        return _parts(_OPPOSITE[type(cond.a)](cond.a.a, cond.a.b))
    small, large = (tir.LT, tir.LE), (tir.GT, tir.GE)
    for choice, left, right in ((tir.Min, large, small), (tir.Max, small, large)):
        if isinstance(cond, left) and isinstance(cond.a, choice):
            return _parts(type(cond)(cond.a.a, cond.b)) + _parts(type(cond)(cond.a.b, cond.b))
        if isinstance(cond, right) and isinstance(cond.b, choice):
            return _parts(type(cond)(cond.a, cond.b.a)) + _parts(type(cond)(cond.a, cond.b.b))
    return [cond]


_OPPOSITE: Dict[Any, Any] = {tir.LT: tir.GE, tir.GE: tir.LT, tir.GT: tir.LE, tir.LE: tir.GT, tir.NE: tir.EQ}


def _at_least_zero(cond: PrimExpr) -> List[PrimExpr]:
    """Integer expressions that a comparison says are not negative; [] for anything else."""
    if isinstance(cond, tir.LT):
        return [cond.b - cond.a - 1]
    if isinstance(cond, tir.LE):
        return [cond.b - cond.a]
    if isinstance(cond, tir.GT):
        return [cond.a - cond.b - 1]
    if isinstance(cond, tir.GE):
        return [cond.a - cond.b]
    if isinstance(cond, tir.EQ):
        return [cond.a - cond.b, cond.b - cond.a]
    return []


def detect_clip_bound(expr: Any, var_list: Sequence[Var]) -> List[PrimExpr]:
    """[smallest, largest value of each variable, …] where a conjunction of comparisons gives them.

    An entry is None where there is no such bound; [] where a part is not linear in one variable alone."""
    out: Dict[Var, List[Any]] = {v: [None, None] for v in var_list}
    simplify = Analyzer().simplify
    for cond in _parts(convert(expr)):
        terms = _at_least_zero(cond)
        if not terms:
            return []
        for term in terms:
            linear = detect_linear_equation(term, var_list)
            coefficients = [int(c) if isinstance(c, tir.IntImm) else None for c in linear[:-1]]
            used = [i for i, c in enumerate(coefficients) if c != 0]
            if not linear or len(used) > 1 or any(coefficients[i] not in (1, -1) for i in used):
                return []
            if used:
                entry, side = out[var_list[used[0]]], 0 if coefficients[used[0]] == 1 else 1
                bound = simplify(-linear[-1] if side == 0 else linear[-1])
                if entry[side] is not None:
                    bound = (tir.Max if side == 0 else tir.Min)(entry[side], bound)
                entry[side] = bound
    return [e for v in var_list for e in out[v]]


def _uses(e: Any, var: Var) -> int:
    """How often the variable stands in the expression."""
    if isinstance(e, (list, tuple)):
        return sum(_uses(part, var) for part in e)
    if isinstance(e, Var):
        return int(e.same_as(var))
    return _uses(e._fields(), var) if isinstance(e, PrimExpr) else 0


class _Deduce:
    """Solves ``expr >= bound`` or ``expr <= bound`` (at_least says which) for a variable that stands in expr once."""

    def __init__(self, var: Var, analyzer: Analyzer, relax: Dict[Var, IntSet]) -> None:
        self.var, self.analyzer, self.relax = var, analyzer, relax

    def _end(self, e: PrimExpr, lowest: bool) -> Any:
        """The smallest or largest value of what the bound has to hold for; None: it has none."""
        if not any(_uses(e, v) for v in self.relax):
            return e
        found = interval_of(e, self.relax, self.analyzer.facts())
        end = found.min_value if lowest else found.max_value
        return None if end.same_as(neg_inf()) or end.same_as(pos_inf()) else end

    def _sign(self, e: PrimExpr) -> int:
        return 1 if self.analyzer.can_prove(e > 0) else -1 if self.analyzer.can_prove(e < 0) else 0

    def solve(self, e: Any, bound: Any, at_least: bool) -> Any:
        """(bound of the variable, at_least of it), or None where that cannot be told."""
        if isinstance(e, Var):
            end = self._end(bound, not at_least)
            return None if end is None else (Analyzer().simplify(end), at_least)
        if not isinstance(e, (tir.Add, tir.Sub, tir.Mul, tir.FloorDiv)):
            return None
        left = _uses(e.a, self.var) > 0
        inner, other = (e.a, e.b) if left else (e.b, e.a)
        if isinstance(e, tir.Add):
            return self.solve(inner, bound - other, at_least)
        if isinstance(e, tir.Sub):
            return self.solve(inner, bound + other if left else other - bound, at_least if left else not at_least)
        sign = self._sign(other)
        end = self._end(bound, not at_least)
        if sign == 0 or end is None or isinstance(e, tir.FloorDiv) and not (left and isinstance(other, tir.IntImm)):
            return None
        if isinstance(e, tir.FloorDiv):  # inner // c >= n: inner >= n*c; <= n: inner < (n+1)*c; turned round for c < 0
            last = end * other if at_least else (end + 1) * other - sign
            return self.solve(inner, last, at_least == (sign > 0))
        if at_least == (sign > 0):
            return self.solve(inner, self._ceildiv(end, other), True)
        return self.solve(inner, end // other, False)

    def _ceildiv(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if self.analyzer.can_prove((a % b).equal(0)):
            return a // b
        return a // b + 1 if self.analyzer.can_prove(tir.NE(a % b, 0)) else -((-a) // b)


def deduce_bound(var: Var, cond: Any, hint_map: Dict[Var, IntSet], relax_map: Dict[Var, IntSet]) -> IntervalSet:
    """The values of var for which the condition holds whatever those of relax_map are.

    hint_map says where other variables lie, for the signs of coefficients.  Nothing, from pos_inf to neg_inf, where the
    condition is no comparison, or var does not stand in it once, under sums, products and divisions."""
    analyzer = Analyzer()
    for v, s in {**hint_map, **relax_map}.items():
        if not isinstance(s, IntervalSet):
            raise error.ArgumentError(f"deduce_bound: the set of {v} is no interval")
        if not s.is_everything():
            analyzer.bind(v, Range.from_min_extent(s.min_value, s.max_value - s.min_value + 1))
    deduce = _Deduce(var, analyzer, relax_map)
    low: Any = None
    high: Any = None
    for part in _conjunction(convert(cond)):
        found = _deduce_compare(deduce, part)
        if found is None:
            return IntervalSet(pos_inf(), neg_inf())
        if not found.min_value.same_as(neg_inf()):
            low = found.min_value if low is None else tir.Max(low, found.min_value)
        if not found.max_value.same_as(pos_inf()):
            high = found.max_value if high is None else tir.Min(high, found.max_value)
    return IntervalSet(neg_inf() if low is None else Analyzer().simplify(low),
                       pos_inf() if high is None else Analyzer().simplify(high))


def _conjunction(cond: PrimExpr) -> List[PrimExpr]:
    return _conjunction(cond.a) + _conjunction(cond.b) if isinstance(cond, tir.And) else [cond]


def _deduce_compare(deduce: _Deduce, compare: PrimExpr) -> Optional[IntervalSet]:
    """The values for which one comparison holds; None where they cannot be told."""
    if not isinstance(compare, (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ)):
        return None
    left, right = _uses(compare.a, deduce.var), _uses(compare.b, deduce.var)
    if left + right != 1:
        return None
    inner, bound = (compare.a, compare.b) if left else (compare.b, compare.a)
    if isinstance(compare, tir.EQ):
        return _deduce_equal(deduce, inner, bound)
    at_least = isinstance(compare, (tir.GT, tir.GE)) == bool(left)
    if isinstance(compare, (tir.LT, tir.GT)):
        bound = bound + 1 if at_least else bound - 1
    found = deduce.solve(inner, bound, at_least)
    if found is None:
        return None
    return IntervalSet(found[0], pos_inf()) if found[1] else IntervalSet(neg_inf(), found[0])


def _deduce_equal(deduce: _Deduce, e: Any, value: Any) -> Optional[IntervalSet]:
    """The one value for which e equals the value, where there is one for certain; else None."""
    while not isinstance(e, Var):
        left = _uses(getattr(e, "a", e), deduce.var) > 0
        if isinstance(e, tir.Add):
            e, value = (e.a, value - e.b) if left else (e.b, value - e.a)
        elif isinstance(e, tir.Sub):
            e, value = (e.a, value + e.b) if left else (e.b, e.a - value)
        elif isinstance(e, tir.Mul):
            e, factor = (e.a, e.b) if left else (e.b, e.a)
            if not deduce._sign(factor) or not deduce.analyzer.can_prove((value % factor).equal(0)):
                return None
            value = value // factor
        else:
            return None
    if any(_uses(value, v) for v in deduce.relax):
        return None
    value = Analyzer().simplify(value)
    return IntervalSet(value, value)
