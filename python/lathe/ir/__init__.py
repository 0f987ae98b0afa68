"""What all IRs share: ranges, modules of functions, structural comparison."""

from .base import Range, assert_structural_equal, structural_equal, structural_hash
from .module import GlobalVar, IRModule

__all__ = ["GlobalVar", "IRModule", "PrimExpr", "Range", "assert_structural_equal", "structural_equal", "structural_hash"]


def __getattr__(name: str):
    if name == "PrimExpr":  # defined by tir, which stands on this package
        from ..tir.expr import PrimExpr

        return PrimExpr
    if name in ("transform", "instrument"):
        import importlib

        return importlib.import_module(f"lathe.ir.{name}")
    if name in ("Op", "RelayExpr", "TensorType", "TupleType", "FuncType", "Type"):  # defined by relay
        from ..relay import expr, ty

        return getattr(expr, name, None) or getattr(ty, name)
    raise AttributeError(f"module 'lathe.ir' has no attribute '{name}'")
