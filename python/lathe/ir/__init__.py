"""What all IRs share: ranges, modules of functions, passes, structural comparison; expressions and types of graphs."""

from . import instrument, memory_pools, transform
from .base import Range, assert_structural_equal, structural_equal, structural_hash
from ..runtime.container import Array, Map
from .module import GlobalVar, IRModule
from .node import load_json, make_node, save_json
from ..relay.expr import Op, RelayExpr
from ..relay.op.contrib.register import register_op_attr
from ..relay.ty import FuncType, TensorType, TupleType, Type
from ..tir.expr import PrimExpr

__all__ = [
    "Array", "FuncType", "GlobalVar", "IRModule", "Map", "Op", "PrimExpr", "Range", "RelayExpr", "TensorType",
    "TupleType", "Type", "assert_structural_equal", "instrument", "load_json", "make_node", "memory_pools", "register_op_attr",
    "save_json",
    "structural_equal", "structural_hash", "transform",
]
