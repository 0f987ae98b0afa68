"""Schedules of loop programs, their traces, and what tests of them stand on."""

from . import state, testing
from .schedule import ABSENT, Schedule, ScheduleError, primitives
from .state import ScheduleDebugMask, ScheduleState, StmtSRef
from .trace import BlockRV, ExprRV, Instruction, InstructionKind, LoopRV, Trace

__all__ = [
    "ABSENT", "BlockRV", "ExprRV", "Instruction", "InstructionKind", "LoopRV", "Schedule", "ScheduleDebugMask",
    "ScheduleError", "ScheduleState", "StmtSRef", "Trace", "primitives", "state", "testing",
]
