"""Mutators: each changes a decision of a trace.  One of one's own is a class with apply(trace)."""

from __future__ import annotations

import random
from typing import Any, Dict, Optional

from .. import error
from .._ffi import call
from ..tir.schedule.trace import Reader, Trace
from .utils import Part, absent


class Mutator(Part):
    """A mutator."""

    def apply(self, trace: Trace, _rand_state: Any = None) -> Optional[Trace]:
        """The trace with a change; None: there is nothing that it could change."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str) -> Dict["Mutator", float]:
        """Those for a kind of target, with how often each is asked."""
        if kind != "llvm":
            raise error.UnsupportedError(f"there are mutators for llvm, not for '{kind}'")
        return {MutateTileSize(): 0.7, MutateUnroll(): 0.3}


PyMutator = Mutator


class _Engine(Mutator):
    """Changes a decision of one primitive."""

    primitive = ""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._random = random.Random(context.fork_seed())

    def apply(self, trace: Trace, _rand_state: Any = None) -> Optional[Trace]:
        text = "\n".join(trace.as_python())
        changed = call("tune_mutate", text, self._random.randrange(1, 2**31), self.primitive)
        return None if changed == text else Reader("main").trace(changed)


class MutateTileSize(_Engine):
    """A prime factor goes from one tile to another."""

    primitive = "sample_perfect_tile"


class MutateUnroll(_Engine):
    """Another one of a list of values: how far is unrolled, how wide vectors are."""

    primitive = "sample_categorical"


class MutateComputeLocation(_Engine):
    """Another place in the loops."""

    primitive = "sample_compute_location"


class MutateParallel(_Engine):
    """How many jobs there are is a matter of the outermost tiles."""

    primitive = "sample_perfect_tile"

    def __init__(self, max_jobs_per_core: int = 16):
        super().__init__()
        self.max_jobs_per_core = max_jobs_per_core


globals()["__getattr__"] = absent(
    "mutator",
    "MutateTileSize, MutateUnroll, MutateComputeLocation and MutateParallel are there, and mutators of your own",
)
