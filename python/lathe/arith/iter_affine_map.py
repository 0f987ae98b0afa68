"""Indices as affine maps of loops: sums of pieces that do not overlap."""

from __future__ import annotations

import enum
from typing import Any, Dict, List, Optional, Sequence, Union

from .. import error
from .._ffi import WORLD, call
from ..tir.expr import PrimExpr, Range, Var, convert
from .analyzer import Analyzer


class IterMapLevel(enum.IntEnum):
    """What a map has to be: each index reached once, each index reached, or just told apart."""

    Bijective = 0
    Surjective = 1
    NoCheck = 3


class IterMark:
    """A loop, or loops fused, of which pieces are taken."""

    def __init__(self, source: Any, extent: Any) -> None:
        self.source, self.extent = convert(source), convert(extent)

    def __repr__(self) -> str:
        return f"IterMark({self.source}, extent={self.extent})"


class IterSplitExpr:
    """scale * ((source // lower_factor) % extent)"""

    def __init__(self, source: IterMark, lower_factor: Any, extent: Any, scale: Any) -> None:
        self.source = source
        self.lower_factor, self.extent, self.scale = convert(lower_factor), convert(extent), convert(scale)

    def __repr__(self) -> str:
        return f"IterSplit({self.source}, lower_factor={self.lower_factor}, extent={self.extent}, scale={self.scale})"


class IterSumExpr:
    """The sum of pieces and a base."""

    def __init__(self, args: Sequence[IterSplitExpr], base: Any) -> None:
        self.args, self.base = list(args), convert(base)

    def __repr__(self) -> str:
        return f"IterSum({self.args}, {self.base})"


class IterMapResult:
    """indices as sums of pieces, or errors that say why there are none."""

    def __init__(self, indices: Sequence[IterSumExpr], errors: Sequence[str]) -> None:
        self.indices, self.errors = list(indices), list(errors)
        self.padding_predicate = convert(False)


def _loops(input_iters: Dict[Var, Range]) -> List[Any]:
    return [list(input_iters), [r.min for r in input_iters.values()], [r.extent for r in input_iters.values()]]


def detect_iter_map(indices: Sequence[Any], input_iters: Dict[Var, Range], predicate: Any = True,
                    check_level: Union[IterMapLevel, str, int] = IterMapLevel.Surjective,
                    simplify_trivial_iterators: bool = True) -> IterMapResult:
    """Each index as a sum of pieces of the loops."""
    level = IterMapLevel[check_level.capitalize()] if isinstance(check_level, str) else IterMapLevel(check_level)
    check = {IterMapLevel.Bijective: 0, IterMapLevel.Surjective: 1, IterMapLevel.NoCheck: 2}[level]
    loops = _loops(input_iters)
    found, why = call("itermap", WORLD, [convert(i) for i in indices], *loops, convert(predicate), check, *loops)
    if found is None:
        return IterMapResult([], [why])
    analyzer = Analyzer()
    for v, r in input_iters.items():
        analyzer.bind(v, r)
    sums = []
    for base, *pieces in found:
        args = []
        for source, lower, extent, scale in pieces:
            whole = input_iters[source].extent if isinstance(source, Var) and source in input_iters else None
            if whole is None:
                bound = analyzer.const_int_bound(source)
                whole = convert(bound.max_value - bound.min_value + 1)
            args.append(IterSplitExpr(IterMark(source, whole), lower, extent, scale))
        sums.append(IterSumExpr(args, base))
    return IterMapResult(sums, [])


def normalize_iter_map_to_expr(expr: Any) -> PrimExpr:
    """The ordinary expression that a sum, a piece or a mark stands for."""
    simplify = Analyzer().simplify
    if isinstance(expr, IterMark):
        return expr.source
    if isinstance(expr, IterSplitExpr):
        whole = Analyzer()
        if isinstance(expr.source.source, Var):
            whole.bind(expr.source.source, Range.from_min_extent(convert(0), expr.source.extent))
        return whole.simplify((expr.source.source // expr.lower_factor) % expr.extent * expr.scale)
    if isinstance(expr, IterSumExpr):
        total = expr.base
        for piece in expr.args:
            total = total + normalize_iter_map_to_expr(piece)
        return simplify(total)
    return simplify(expr)


def iter_map_simplify(indices: Sequence[Any], input_iters: Dict[Var, Range], predicate: Any = True,
                      check_level: Union[IterMapLevel, str, int] = IterMapLevel.Surjective,
                      simplify_trivial_iterators: bool = True) -> List[PrimExpr]:
    """The indices, simplified by what is known of the loops."""
    analyzer = Analyzer()
    for v, r in input_iters.items():
        analyzer.bind(v, r)
    with analyzer.constraint_scope(predicate):
        return [analyzer.simplify(i) for i in indices]


def normalize_to_iter_sum(index: Any, input_iters: Dict[Var, Range]) -> IterSumExpr:
    """One index as a sum of pieces; an ArgumentError where it is none."""
    found = detect_iter_map([index], input_iters, check_level=IterMapLevel.NoCheck)
    if not found.indices:
        raise error.ArgumentError(f"normalize_to_iter_sum: {found.errors[0]}")
    return found.indices[0]


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[Any]) -> Dict[Var, PrimExpr]:
    """The loops as functions of what the indices give."""
    loops: Dict[Var, Range] = {}
    for s in iter_map:
        for piece in s.args:
            source = piece.source.source
            if not isinstance(source, Var):
                raise error.UnsupportedError("inverse_affine_iter_map: pieces of fused loops are not inverted; "
                                             "invert the map of the loops themselves")
            loops[source] = Range.from_min_extent(convert(0), piece.source.extent)
    variables = [Var(f"output_{i}", convert(o).dtype) for i, o in enumerate(outputs)]
    index = [normalize_iter_map_to_expr(s) for s in iter_map]
    solved = call("itermap_solve", WORLD, index, *_loops(loops), variables, *_loops(loops))
    given = [convert(o) for o in outputs]
    return {v: call("substitute", WORLD, e, variables, given) for v, e in zip(loops, solved)}
