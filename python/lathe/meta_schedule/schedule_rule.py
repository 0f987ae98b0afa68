"""Rules: each looks at a block of a schedule and gives the schedules that it leads to.

A rule of one's own is a class with apply(sch, block); the built-in ones are those of Lathe's sketches."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

from .. import error
from .._ffi import call
from ..tir.schedule import Schedule
from ..tir.schedule.trace import BlockRV
from .utils import Part, absent


class ScheduleRule(Part):
    """A rule."""

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        """The schedules that come of it; [sch] where it has nothing to do."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str) -> List["ScheduleRule"]:
        """Those for a kind of target."""
        if kind != "llvm":
            raise error.UnsupportedError(f"there are rules for llvm, not for '{kind}'")
        return [AutoInline(), AddRFactor(), MultiLevelTiling(), ParallelizeVectorizeUnroll()]


PyScheduleRule = ScheduleRule


def _form(sch: Schedule) -> str:
    """A schedule without the numbers that were drawn for it."""
    import re

    return re.sub(r"decision=(\[[^]]*\]|-?\d+)", "", call("schedule_trace", sch._sch))


class _Engine(ScheduleRule):
    """A rule of the sketches, in all forms that it has; may: the block may also stay as it is."""

    rule, forms, may = "", 1, False

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._target = context.target

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        name = sch.get(block).name_hint
        target = getattr(self, "_target", None)
        out: Dict[str, Schedule] = {}
        for seed in range(1, self.forms + 1):
            new = sch.copy()
            if not call("tune_rule", new._sch, self.rule, name, target._h if target else None, seed):
                return [sch]
            new.trace  # pylint: disable=pointless-statement  # reads what the rule did
            out.setdefault(_form(new), new)
        return ([sch] if self.may else []) + list(out.values())


def _fixed(rule: str, **given: Any) -> None:
    for name, (value, fixed) in given.items():
        if value not in fixed:
            raise error.UnsupportedError(f"{rule}: {name} is {fixed[0]!r} here, not {value!r}")


class AutoInline(_Engine):
    """A map goes into its consumers."""

    rule = "inline"

    def __init__(
        self,
        into_producer: bool = False,
        into_consumer: bool = True,
        inline_const_tensor: bool = True,
        disallow_if_then_else: bool = False,
        require_injective: bool = False,
        require_ordered: bool = False,
        disallow_op: Any = None,
    ):
        _fixed("AutoInline", into_producer=(into_producer, [False]), into_consumer=(into_consumer, [True]))


class InlineConstantScalars(AutoInline):
    """The same: a constant is a map without inputs."""

    def __init__(self) -> None:  # pylint: disable=useless-super-delegation
        super().__init__()


class AddRFactor(_Engine):
    """A long sum with few results comes in parts."""

    rule, may = "parts", True

    def __init__(self, max_jobs_per_core: int = 16, max_innermost_factor: Optional[int] = 64):
        self.max_jobs_per_core, self.max_innermost_factor = max_jobs_per_core, max_innermost_factor


class ReuseType:
    """Where a tile is kept; Lathe decides that by the form of the sketch."""

    def __init__(self, req: str = "may", levels: Any = (1, 2), scope: str = "global"):
        self.req, self.levels, self.scope = req, list(levels), scope


class MultiLevelTiling(_Engine):
    """A reduction in tiles: four levels over space, two over the sum; the outermost on threads, the innermost as
    vectors, results in a tile of their own or with the block that follows."""

    rule, forms = "tile", 16

    def __init__(
        self,
        structure: str = "SSRSRS",
        tile_binds: Any = None,
        max_innermost_factor: Optional[int] = 64,
        vector_load_lens: Any = None,
        reuse_read: Optional[ReuseType] = None,
        reuse_write: Optional[ReuseType] = None,
        filter_fn: Optional[Callable[[Any, Any], bool]] = None,
    ):
        _fixed(
            "MultiLevelTiling",
            structure=(structure, ["SSRSRS"]),
            tile_binds=(tile_binds, [None, []]),
            vector_load_lens=(vector_load_lens, [None, []]),
            max_innermost_factor=(max_innermost_factor, [64]),
        )
        self.filter_fn = filter_fn

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        if self.filter_fn is not None and not self.filter_fn(sch.get(block), block):
            return [sch]
        return super().apply(sch, block)


class ParallelizeVectorizeUnroll(_Engine):
    """A map: rows on threads, vectors within, some of it unrolled."""

    rule, forms = "map", 8

    def __init__(
        self,
        max_jobs_per_core: int = 16,
        max_vectorize_extent: int = 16,
        unroll_max_steps: Any = None,
        unroll_explicit: bool = True,
    ):
        self.max_jobs_per_core, self.max_vectorize_extent = max_jobs_per_core, max_vectorize_extent


class ApplyCustomRule(ScheduleRule):
    """Blocks with the annotation schedule_rule are given to the registered function of that name."""

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        name = dict(sch.get(block).annotations).get("schedule_rule")
        if name is None or str(name) == "None":
            return [sch]
        from ..runtime import get_global_func

        found: Union[Schedule, List[Schedule]] = get_global_func(str(name))(sch, block)
        return found if isinstance(found, list) else [found]


globals()["__getattr__"] = absent(
    "schedule_rule",
    "AutoInline, InlineConstantScalars, AddRFactor, MultiLevelTiling, ParallelizeVectorizeUnroll and ApplyCustomRule"
    " are there, and rules of your own; those for GPUs are not",
)
