"""When a pass of a backend runs."""

from __future__ import annotations

import enum


class PassPhase(enum.IntEnum):
    """Before what the backend takes is functions of the module, or behind that."""

    PRE_PARTITIONING = 0
    POST_PARTITIONING_0 = 1
    POST_PARTITIONING_1 = 2
    TIR_PHASE_0 = 3
    TIR_PHASE_1 = 4
    TIR_PHASE_2 = 5
    TIR_PHASE_3 = 6
