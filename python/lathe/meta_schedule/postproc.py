"""Postprocessing: what is done to each schedule after its decisions are made, or says that it cannot be.

One of one's own is a class with apply(sch), which answers False where the schedule is not to be measured."""

from __future__ import annotations

from typing import List

from .. import error
from ..tir.schedule import Schedule, ScheduleError
from .utils import Part, absent


class Postproc(Part):
    """A step of postprocessing."""

    def apply(self, sch: Schedule) -> bool:
        """Changes the schedule; False: it is no candidate."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str) -> List["Postproc"]:
        """Those for a kind of target."""
        if kind != "llvm":
            raise error.UnsupportedError(f"there are postprocessors for llvm, not for '{kind}'")
        return [DisallowDynamicLoop(), RewriteReductionBlock()]


PyPostproc = Postproc


def blocks(sch: Schedule) -> List[str]:
    """The blocks of a schedule by name, in program order; its trace stays as it is."""
    own = sch.copy()
    return [own.get(b).name_hint for b in own.get_child_blocks(own.get_block("root"))]


class DisallowDynamicLoop(Postproc):
    """Every loop has a number of steps that is known."""

    def apply(self, sch: Schedule) -> bool:
        own = sch.copy()
        for name in blocks(own):
            for loop in own.get_loops(own.get_block(name)):
                if not isinstance(getattr(own.get(loop).extent, "value", own.get(loop).extent), int):
                    return False
        return True


class RewriteReductionBlock(Postproc):
    """A reduction's first value is set before the loops of the sum, not in each step of them."""

    def apply(self, sch: Schedule) -> bool:
        for name in blocks(sch):
            own = sch.copy()
            block = own.get_block(name)
            if own.get(block).init is None:
                continue
            kinds = {iv.var.name: iv.iter_type for iv in own.get(block).iter_vars}
            if 2 not in kinds.values():
                continue
            for place, loop in enumerate(own.get_loops(block)):
                trial = sch.copy()
                at = trial.get_block(name)
                try:
                    trial.decompose_reduction(at, trial.get_loops(at)[place])
                except ScheduleError:
                    continue
                del loop
                at = sch.get_block(name)
                sch.decompose_reduction(at, sch.get_loops(at)[place])
                break
        return True


class VerifyGPUCode(Postproc):
    """For GPUs: refused."""

    def __init__(self) -> None:
        raise error.UnsupportedError("VerifyGPUCode: loop programs are tuned for this machine's CPU")




globals()["__getattr__"] = absent(
    "postproc",
    "DisallowDynamicLoop and RewriteReductionBlock are there, and steps of your own; threads, vectors and unrolling are"
    " set by the rules themselves",
)
