"""Loop programs: expressions, statements, functions, schedules."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import ir_builder, op
from .buffer import Buffer, decl_buffer
from .expr import (
    EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, BufferLoad, Call, Cast, CommReducer, Div, EqualOp, ExprOp,
    FloatImm, FloorDiv, FloorMod, IntImm, IterVar, Let, Max, Min, Mod, Mul, Not, NotEqualOp, Op, Or, PrimExpr,
    ProducerLoad, Ramp, Reduce, Select, SizeVar, StringImm, Sub, Var, const, convert)
from .function import IndexMap, PrimFunc, TensorIntrin
from . import schedule
from .schedule import (
    BlockRV, ExprRV, Instruction, InstructionKind, LoopRV, Schedule, ScheduleError, ScheduleState, StmtSRef, Trace,
)
from .stmt import (
    AttrStmt, Allocate, Block, BufferRegion, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt,
    Stmt, While, stmt_seq)
from .._ir.module import IRModule
from . import analysis, stmt_functor, transform

from .op import (
    add, address_of, all, any, argmax, argmin, bitwise_and, bitwise_or, bitwise_xor, call_extern, call_intrin,
    call_packed, call_pure_extern, ceildiv, clz, comm_reducer, div, floordiv, floormod, if_then_else, indexdiv,
    indexmod, infinity, isnullptr, likely, max, max_value, min, min_value, multiply, pow, power, prod, reinterpret,
    ret, shift_left, shift_right, subtract, sum, truncdiv, truncmod, tvm_access_ptr, tvm_call_packed,
    tvm_storage_sync, type_annotation)

for _name in [*op.generated, *op.builtins]:
    globals()[_name] = getattr(op, _name)

__all__ = [
    "Add",
    "Allocate",
    "analysis",
    "And",
    "AttrStmt",
    "Block",
    "BlockRV",
    "Broadcast",
    "Buffer",
    "BufferLoad",
    "BufferRegion",
    "BufferStore",
    "Call",
    "Cast",
    "CommReducer",
    "Div",
    "EQ",
    "EqualOp",
    "Evaluate",
    "ExprOp",
    "ExprRV",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "For",
    "ForKind",
    "GE",
    "GT",
    "IRModule",
    "IfThenElse",
    "IndexMap",
    "Instruction",
    "InstructionKind",
    "IntImm",
    "IterVar",
    "LE",
    "LT",
    "Let",
    "LetStmt",
    "LoopRV",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "NE",
    "Not",
    "NotEqualOp",
    "Op",
    "Or",
    "PrimExpr",
    "PrimFunc",
    "ProducerLoad",
    "Ramp",
    "Reduce",
    "Schedule",
    "ScheduleError",
    "ScheduleState",
    "Select",
    "SeqStmt",
    "SizeVar",
    "Stmt",
    "StmtSRef",
    "StringImm",
    "Sub",
    "TensorIntrin",
    "Trace",
    "Var",
    "While",
    "add",
    "address_of",
    "all",
    "any",
    "argmax",
    "argmin",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "call_extern",
    "call_intrin",
    "call_packed",
    "call_pure_extern",
    "ceildiv",
    "clz",
    "comm_reducer",
    "const",
    "convert",
    "decl_buffer",
    "div",
    "floordiv",
    "floormod",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "ir_builder",
    "isnullptr",
    "likely",
    "max",
    "max_value",
    "min",
    "min_value",
    "multiply",
    "op",
    "pow",
    "power",
    "prod",
    "reinterpret",
    "ret",
    "shift_left",
    "shift_right",
    "stmt_functor",
    "stmt_seq",
    "transform",
    "subtract",
    "sum",
    "truncdiv",
    "truncmod",
    "tvm_access_ptr",
    "tvm_call_packed",
    "tvm_storage_sync",
    "type_annotation",
]

if _TYPE_CHECKING:  # exp, tanh, popcount, …, as the stubs of tools/stubs.py have them
    from . import _intrinsics
    from ._intrinsics import *  # noqa: F403

    __all__ += _intrinsics.__all__
else:
    __all__ += [*op.generated, *op.builtins]
