"""What all IRs share: ranges, modules of functions, structural comparison."""

from .base import Range, assert_structural_equal, structural_equal, structural_hash
from .module import GlobalVar, IRModule

__all__ = ["GlobalVar", "IRModule", "PrimExpr", "Range", "assert_structural_equal", "structural_equal", "structural_hash"]


def __getattr__(name: str):
    if name == "PrimExpr":  # defined by tir, which stands on this package
        from ..tir.expr import PrimExpr

        return PrimExpr
    raise AttributeError(f"module 'lathe.ir' has no attribute '{name}'")
