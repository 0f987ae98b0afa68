"""Expressions that are linear in variables, and bounds that conditions put on them."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

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
    return _parts(cond.a) + _parts(cond.b) if isinstance(cond, tir.And) else [cond]


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


def deduce_bound(var: Var, cond: Any, hint_map: Dict[Var, IntSet], relax_map: Dict[Var, IntSet]) -> IntervalSet:
    """The values of var for which the condition holds whatever those of relax_map are.

    hint_map says where other variables lie, for the signs of coefficients."""
    analyzer = Analyzer()
    for v, s in {**hint_map, **relax_map}.items():
        if not isinstance(s, IntervalSet):
            raise error.ArgumentError(f"deduce_bound: the set of {v} is no interval")
        if not s.is_everything():
            
            analyzer.bind(v, Range.from_min_extent(s.min_value, s.max_value - s.min_value + 1))
    low: Any = None
    high: Any = None
    nothing = IntervalSet(pos_inf(), neg_inf())
    everything = IntervalSet(neg_inf(), pos_inf())
    for part in _parts(convert(cond)):
        terms = _at_least_zero(part)
        if not terms:
            return everything
        for term in terms:
            linear = detect_linear_equation(term, [var])
            if not linear:
                return everything
            coefficient, rest = linear
            positive = analyzer.can_prove(coefficient > 0)
            if not positive and not analyzer.can_prove(coefficient < 0):
                return everything
            least = interval_of(rest, dict(relax_map), analyzer.facts()).min_value
            if least.same_as(neg_inf()):
                return nothing
            # coefficient * var + rest >= 0 for the least rest
            if positive:
                bound = -(least // coefficient)
                low = bound if low is None else tir.Max(low, bound)
            else:
                bound = least // (-coefficient)
                high = bound if high is None else tir.Min(high, bound)
    return IntervalSet(neg_inf() if low is None else analyzer.simplify(low),
                       pos_inf() if high is None else analyzer.simplify(high))
