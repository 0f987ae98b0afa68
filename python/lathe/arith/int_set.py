"""Sets of integers between two expressions."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .._ffi import WORLD, call
from ..tir.expr import IntImm, PrimExpr, Range, Var, convert

_POS_INF = Var("pos_inf", "handle")
_NEG_INF = Var("neg_inf", "handle")


def pos_inf() -> Var:
    """Stands for: no upper bound."""
    return _POS_INF


def neg_inf() -> Var:
    """Stands for: no lower bound."""
    return _NEG_INF


def _is(e: Any, what: Var) -> bool:
    return isinstance(e, Var) and e.same_as(what)


class IntSet:
    """A set of integers."""

    def is_nothing(self) -> bool:
        """Is it empty for certain?"""
        return False

    def is_everything(self) -> bool:
        """Has it no bound at all?"""
        return False

    @staticmethod
    def vector(vec: Any) -> "IntervalSet":
        """The values of a vector expression's lanes."""
        e = convert(vec)
        if type(e).__name__ != "Ramp":
            return IntSet.single_point(e)
        if not isinstance(e.lanes, (int, IntImm)):  # as many as the processor has
            return IntervalSet(e.base, _POS_INF) if int(e.stride) >= 0 else IntervalSet(_NEG_INF, e.base)
        last = e.base + e.stride * (e.lanes - 1)
        return IntervalSet(*((e.base, last) if int(e.stride) >= 0 else (last, e.base)))

    @staticmethod
    def single_point(point: Any) -> "IntervalSet":
        """One value."""
        return IntervalSet(point, point)


class IntervalSet(IntSet):
    """The integers from min_value to max_value, both included."""

    def __init__(self, min_value: Any, max_value: Any) -> None:
        self.min_value: PrimExpr = convert(min_value)
        self.max_value: PrimExpr = convert(max_value)

    def is_nothing(self) -> bool:
        return _is(self.min_value, _POS_INF) or _is(self.max_value, _NEG_INF)

    def is_everything(self) -> bool:
        return _is(self.min_value, _NEG_INF) and _is(self.max_value, _POS_INF)

    def __repr__(self) -> str:
        return f"IntervalSet[{self.min_value}, {self.max_value}]"


def _unbounded(s: IntSet) -> bool:
    return not isinstance(s, IntervalSet) or _is(s.min_value, _NEG_INF) or _is(s.max_value, _POS_INF)


def interval_of(expr: PrimExpr, sets: Dict[Var, IntSet], facts: Sequence[Any]) -> IntervalSet:
    """The interval that holds all values of expr while the variables run over their sets."""
    over = [v for v, s in sets.items() if not _unbounded(s)]
    mins, extents = [], []
    for v in over:
        s = sets[v]
        assert isinstance(s, IntervalSet)
        mins.append(s.min_value.astype(v.dtype))
        extents.append((s.max_value - s.min_value + 1).astype(v.dtype))
    known: List[Any] = [list(part) for part in facts]
    for v, low, extent in zip(over, mins, extents):
        if v in known[0]:
            i = known[0].index(v)
            known[1][i], known[2][i] = low, extent
        else:
            known[0].append(v)
            known[1].append(low)
            known[2].append(extent)
    ends: Optional[List[PrimExpr]] = call("relax", WORLD, expr, over, *known)
    if ends is not None:
        return IntervalSet(*ends)
    low, high = call("bounds", WORLD, expr, *known)
    return IntervalSet(_NEG_INF if low == -(2**63) else low, _POS_INF if high == 2**63 - 1 else high)


def _region(region: Sequence[Range], var_dom: Dict[Var, Range], predicate: Any, exact: bool) -> Optional[List[IntSet]]:
    domains: Dict[Var, IntSet] = {v: IntervalSet(r.min, r.min + r.extent - 1) for v, r in var_dom.items()}
    condition = convert(predicate)
    facts: List[Any] = [list(domains), [r.min for r in var_dom.values()], [r.extent for r in var_dom.values()],
                        [], [], [condition]]
    if exact:
        index = [r.min for r in region]
        maps, _ = call("itermap", WORLD, index, *facts[:3], condition, 2, *facts)
        if maps is None:
            return None
    out: List[IntSet] = []
    for r in region:
        low = interval_of(r.min, domains, facts)
        high = interval_of(r.min + r.extent - 1, domains, facts)
        out.append(IntervalSet(low.min_value, high.max_value))
    return out


def estimate_region_lower_bound(
    region: Sequence[Range], var_dom: Dict[Var, Range], predicate: Any = True
) -> Optional[List[IntSet]]:
    """A part of what the region covers while variables run over their ranges; None: not found."""
    return _region(region, var_dom, predicate, True)


def estimate_region_strict_bound(
    region: Sequence[Range], var_dom: Dict[Var, Range], predicate: Any = True
) -> Optional[List[IntSet]]:
    """Just what the region covers; None: not found."""
    return _region(region, var_dom, predicate, True)


def estimate_region_upper_bound(
    region: Sequence[Range], var_dom: Dict[Var, Range], predicate: Any = True
) -> List[IntSet]:
    """What holds all that the region covers."""
    found = _region(region, var_dom, predicate, False)
    assert found is not None
    return found


def union_lower_bound(sets: Sequence[IntSet]) -> IntSet:
    """One interval that the union holds; nothing, from pos_inf to neg_inf, where the sets do not follow each other.

    Sets follow each other where one begins, for certain, no later than behind the end of those before it."""
    intervals = [s for s in sets if isinstance(s, IntervalSet) and not s.is_nothing()]
    if not intervals:
        return IntervalSet(_POS_INF, _NEG_INF)
    whole = intervals.pop(0)
    while intervals:
        following = next((s for s in intervals if _touch(whole, s)), None)
        if following is None:
            return IntervalSet(_POS_INF, _NEG_INF)
        intervals.remove(following)
        whole = IntervalSet(_end(whole.min_value, following.min_value, _NEG_INF, "min"),
                            _end(whole.max_value, following.max_value, _POS_INF, "max"))
    return whole


def _touch(a: IntervalSet, b: IntervalSet) -> bool:
    return all(_is(low, _NEG_INF) or _is(high, _POS_INF) or call("prove", WORLD, low <= high + 1, *[[]] * 6)
               for low, high in ((a.min_value, b.max_value), (b.min_value, a.max_value)))


def _end(a: PrimExpr, b: PrimExpr, infinite: Var, choice: str) -> PrimExpr:
    if _is(a, infinite) or _is(b, infinite):
        return infinite
    return call("simplify", WORLD, call("binary", WORLD, choice, a, b), *[[]] * 6)
