"""What a schedule stands at: its module, and references to the statements in it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from ... import error
from ..._ffi import call

if TYPE_CHECKING:
    from .schedule import Schedule

__all__ = ["ScheduleDebugMask", "ScheduleState", "StmtSRef"]


class ScheduleDebugMask(enum.IntFlag):
    """Checks that TVM runs on request; here they always run."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


class StmtSRef:
    """A block or a loop of a schedule, as it stands whenever it is asked."""

    def __init__(self, schedule: "Schedule", rv: Any):
        self._schedule, self.rv = schedule, rv
        self._number = call("schedule_number", schedule._sch, rv)

    @property
    def stmt(self) -> Any:
        """The statement: a tir.Block or a tir.For."""
        return self._schedule.get(self.rv)

    def same_as(self, other: Any) -> bool:
        """Do both name one statement of one schedule?"""
        return isinstance(other, StmtSRef) and (self._schedule, self._number) == (other._schedule, other._number)

    __eq__ = same_as

    def __hash__(self) -> int:
        return hash(self._number)


class ScheduleState:
    """The module of a schedule and the references into it."""

    def __init__(self, schedule: "Schedule"):
        self._schedule = schedule

    @property
    def mod(self) -> Any:
        """The module as it stands now."""
        return self._schedule.mod

    def get_sref(self, stmt: Any) -> StmtSRef:
        """The reference to a block or loop that the schedule's get gave."""
        for rv, given in self._schedule._given.values():
            if given.same_as(stmt):
                return StmtSRef(self._schedule, rv)
        raise error.ArgumentError(
            "ScheduleState.get_sref: the statement is none that Schedule.get gave since the last change"
        )
