"""What all IRs share: ranges, modules of functions, passes, structural comparison; expressions and types of graphs."""

from . import instrument, transform
from .base import Range, assert_structural_equal, structural_equal, structural_hash
from .module import GlobalVar, IRModule
from ..relay.expr import Op, RelayExpr
from ..relay.ty import FuncType, TensorType, TupleType, Type
from ..tir.expr import PrimExpr

__all__ = [
    "FuncType", "GlobalVar", "IRModule", "Op", "PrimExpr", "Range", "RelayExpr", "TensorType", "TupleType", "Type", "assert_structural_equal",
    "instrument", "structural_equal", "structural_hash", "transform",
]
