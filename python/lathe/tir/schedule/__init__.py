"""Schedules of loop programs, their traces, and what tests of them stand on."""

from . import testing
from .schedule import ABSENT, Schedule, ScheduleError, primitives
from .trace import BlockRV, ExprRV, Instruction, InstructionKind, LoopRV, Trace

__all__ = [
    "ABSENT",
    "BlockRV",
    "ExprRV",
    "Instruction",
    "InstructionKind",
    "LoopRV",
    "Schedule",
    "ScheduleError",
    "Trace",
    "primitives",
    "testing",
]
