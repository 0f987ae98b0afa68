"""A computation as its tensors say it."""

from __future__ import annotations

import math
from typing import Any, List, Sequence, Tuple, Union

from .. import te
from ..tir.function import PrimFunc
from .measure_record import apply_steps


class ComputeDAG:
    """Tensors, inputs and outputs, and what lies between them."""

    def __init__(self, compute_or_sche: Union[Sequence[Any], Any]):
        self.tensors = list(compute_or_sche)

    @property
    def flop_ct(self) -> float:
        """An estimate: two operations for each step of a sum, one for each other element."""
        return sum(_flop(op) for op in self.ops if isinstance(op, te.ComputeOp))

    @property
    def ops(self) -> Tuple[Any, ...]:
        """All operations, producers first."""
        outputs = [t.op for t in self.tensors if isinstance(t.op, te.ComputeOp)]
        return tuple(stage.op for stage in te.create_schedule(outputs).stages)

    def prim_func(self) -> PrimFunc:
        """The loop program, unscheduled."""
        return te.create_prim_func(self.tensors)

    def apply_steps_from_state(self, state: Any, layout_rewrite: Any = None) -> Tuple[Any, List[Any]]:
        """The schedule that a state of Ansor's makes, and the tensors."""
        return apply_steps(self.tensors, state)

    def __repr__(self) -> str:
        return "\n".join(str(op) for op in self.ops)


def _flop(op: Any) -> float:
    steps = math.prod(int(a.dom.extent) for a in op.axis)
    sums = math.prod(int(a.dom.extent) for a in op.reduce_axis)
    return float(steps * (2 * sums if op.reduce_axis else 1))
