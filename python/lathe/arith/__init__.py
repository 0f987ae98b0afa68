"""Reasoning about integer expressions."""

from .analyzer import Analyzer, ConstIntBound, ConstraintScope, Extension, ModularSet, ProofStrength
from .int_set import (
    IntervalSet, IntSet, estimate_region_lower_bound, estimate_region_strict_bound, estimate_region_upper_bound,
    neg_inf, pos_inf,
)
from .iter_affine_map import (
    IterMapLevel, IterMapResult, IterMark, IterSplitExpr, IterSumExpr, detect_iter_map, inverse_affine_iter_map,
    iter_map_simplify, normalize_iter_map_to_expr, normalize_to_iter_sum,
)
from .pattern import deduce_bound, detect_clip_bound, detect_linear_equation

__all__ = [
    "Analyzer", "ConstIntBound", "ConstraintScope", "Extension", "IntSet", "IntervalSet", "IterMapLevel",
    "IterMapResult", "IterMark", "IterSplitExpr", "IterSumExpr", "ModularSet", "ProofStrength", "deduce_bound",
    "detect_clip_bound", "detect_iter_map", "detect_linear_equation", "estimate_region_lower_bound",
    "estimate_region_strict_bound", "estimate_region_upper_bound", "inverse_affine_iter_map", "iter_map_simplify",
    "neg_inf", "normalize_iter_map_to_expr", "normalize_to_iter_sum", "pos_inf",
]
