"""Rules: each looks at a block of a schedule and gives the schedules that it leads to.

A rule of one's own is a class with apply(sch, block); the built-in ones are those of Lathe's sketches."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from .. import error
from .._ffi import call
from ..tir.schedule import Schedule, ScheduleError
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
        return [
            AutoInline(),
            DotProducts(),
            AddRFactor(),
            RegisterTiles(),
            MultiLevelTiling(),
            ParallelizeVectorizeUnroll(),
        ]


PyScheduleRule = ScheduleRule


def _form(sch: Schedule) -> str:
    """A schedule without the numbers that were drawn for it."""
    return re.sub(r"decision=(\[[^]]*\]|-?\d+)", "", call("schedule_trace", sch._sch))


class _Engine(ScheduleRule):
    """A rule of the sketches, in all forms that it has; may: the block may also stay as it is."""

    rule, forms, may = "", 1, False

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._target, self._mod = context.target, context.mod

    def _edit(self, trace: str) -> str:
        """What the rule's arguments make of the lines that it wrote."""
        return trace

    def _with_arguments(self, sch: Schedule, new: Schedule) -> Optional[Schedule]:
        """The same with the arguments; what they leave open is drawn until the trace holds.  None: it never does."""
        before = call("schedule_trace", sch._sch)
        trace = call("schedule_trace", new._sch)
        edited = before + self._edit(trace[len(before) :])
        if edited == trace:
            return new
        for seed in range(1, 33):
            again = Schedule(self._mod, seed=seed)
            try:
                again._replay(edited)
                return again
            except error.LatheError:
                continue
        return None

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        name = sch.get(block).name_hint
        target = getattr(self, "_target", None)
        out: Dict[str, Schedule] = {}
        for seed in range(1, self.forms + 1):
            new = sch.copy()
            if not call("tune_rule", new._sch, self.rule, name, target._h if target else None, seed):
                return [sch]
            made = self._with_arguments(sch, new)
            if made is not None:
                made.trace  # pylint: disable=pointless-statement  # reads what the rule did
                out.setdefault(_form(made), made)
        return ([sch] if self.may or not out else []) + list(out.values())


def _fixed(rule: str, **given: Any) -> None:
    for name, (value, fixed) in given.items():
        if value not in fixed:
            raise error.UnsupportedError(f"{rule}: {name} is {fixed[0]!r} here, not {value!r}")


def _choose_from(trace: str, old: str, new: Sequence[int]) -> str:
    """Another list to choose from; a decision that it has not becomes its last."""
    chances = ", ".join([repr(1.0 / len(new))] * len(new))

    def other(found: Any) -> str:
        decided = min(int(found.group(1)), len(new) - 1)
        return f"sch.sample_categorical({list(new)}, [{chances}], decision={decided})"

    return re.sub(rf"sch\.sample_categorical\({old}, \[[^]]*\], decision=(\d+)\)", other, trace)


def _in_order(block: Any) -> bool:
    """Does each read go through the block's variables in their order?"""
    names = [iv.var.name for iv in block.iter_vars]
    for read in block.reads:
        seen = [names.index(w) for r in read.region for w in re.findall(r"\w+", str(r.min)) if w in names]
        if seen != sorted(seen):
            return False
    return True


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
        _fixed(
            "AutoInline",
            into_producer=(into_producer, [False]),
            into_consumer=(into_consumer, [True]),
            inline_const_tensor=(inline_const_tensor, [True]),
        )
        self.ordered, ops = require_ordered, list(disallow_op or [])
        ops += ["tir.if_then_else"] if disallow_if_then_else else []
        self.calls = [rf"\b{re.escape(op.rsplit('.', 1)[-1])}\(" for op in ops]
        # what is inlined is a map: require_injective holds

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        found = sch.get(block)
        if (self.ordered and not _in_order(found)) or any(re.search(c, str(found.body)) for c in self.calls):
            return [sch]
        return super().apply(sch, block)


class InlineConstantScalars(AutoInline):
    """The same: a constant is a map without inputs."""

    def __init__(self) -> None:  # pylint: disable=useless-super-delegation
        super().__init__()


class AddRFactor(_Engine):
    """A long sum with few results comes in parts."""

    rule, may = "parts", True

    def __init__(self, max_jobs_per_core: int = 16, max_innermost_factor: Optional[int] = 64):
        _fixed(
            "AddRFactor",
            max_jobs_per_core=(max_jobs_per_core, [16, -1]),
            max_innermost_factor=(max_innermost_factor, [64]),
        )


class ReuseType:
    """Where a tile is kept: "no" (nowhere), "may" (in some of the design spaces) or "must" (in all)."""

    def __init__(self, req: str = "may", levels: Any = (1, 2), scope: str = "global"):
        if req not in ("no", "may", "must"):
            raise error.ArgumentError(f"ReuseType: req is 'no', 'may' or 'must', not {req!r}")
        self.req, self.levels, self.scope = req, list(levels), scope


class RegisterTiles(_Engine):
    """A reduction whose sums stay in registers: its last loop as vectors, rows and steps of the sum written out.  The
    block may also stay as it is, for the rules behind this one."""

    rule, forms, may = "registers", 12, True


class DotProducts(_Engine):
    """A sum of products of bytes by the dot products of the target: words of four, one operand copied so that a vector
    of them lies in a row, sums in registers."""

    rule, forms, may = "dots", 8, True


class MultiLevelTilingWithIntrin(DotProducts):
    """The same under TVM's name.  The intrinsic is one of the dot products of four bytes; which of them fits is found
    by the operands' signs and the target."""

    may = False

    def __init__(
        self,
        intrin_name: str,
        structure: str = "SSRSRS",
        tile_binds: Any = None,
        max_innermost_factor: Optional[int] = 64,
        vector_load_lens: Any = None,
        reuse_read: Optional["ReuseType"] = None,
        reuse_write: Optional["ReuseType"] = None,
    ):
        if not re.match(r"dot_\d+x4_", intrin_name):
            raise error.UnsupportedError(
                f"MultiLevelTilingWithIntrin: the rule is for dot products of four bytes, not for '{intrin_name}'; a"
                " rule of your own may call sch.tensorize with it"
            )
        _fixed(
            "MultiLevelTilingWithIntrin",
            structure=(structure, ["SSRSRS"]),
            tile_binds=(tile_binds, [None, []]),
            max_innermost_factor=(max_innermost_factor, [64, None]),
            vector_load_lens=(vector_load_lens, [None, []]),
        )
        for name, kept in (("reuse_read", reuse_read), ("reuse_write", reuse_write)):
            _fixed("MultiLevelTilingWithIntrin", **{name: (kept.req if kept else "may", ["may"])})


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
        )
        self.innermost = max_innermost_factor
        if self.innermost is not None and self.innermost < 1:
            raise error.ArgumentError(f"MultiLevelTiling: max_innermost_factor is at least 1, not {self.innermost}")
        read = reuse_read or ReuseType("no")
        write = reuse_write or ReuseType("may", [1])
        _fixed(
            "MultiLevelTiling",
            reuse_read=(read.req, ["no"]),
            reuse_write_levels=(write.levels if write.req != "no" else [1], [[1], [1, 2]]),
            reuse_write_scope=(write.scope, ["global"]),
        )
        self.filter_fn, self.reuse_write = filter_fn, write.req

    def _edit(self, trace: str) -> str:
        if self.innermost == 64:
            return trace
        most = self.innermost or 1 << 30  # None: any
        return re.sub(r"max_innermost_factor=64, decision=\[[^]]*\]", f"max_innermost_factor={most}", trace)

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        if self.filter_fn is not None and not self.filter_fn(sch.get(block), block):
            return [sch]
        made = super().apply(sch, block)
        if self.reuse_write == "may" or made == [sch]:
            return made
        kept = [s for s in made if ("reverse_compute_at" in _form(s)) == (self.reuse_write == "must")]
        return kept or [sch]


class ParallelizeVectorizeUnroll(_Engine):
    """A map: rows on threads, vectors within, some of it unrolled."""

    rule, forms = "map", 8

    def __init__(
        self,
        max_jobs_per_core: int = 16,
        max_vectorize_extent: int = -1,
        unroll_max_steps: Any = None,
        unroll_explicit: bool = True,
    ):
        _fixed(
            "ParallelizeVectorizeUnroll",
            max_jobs_per_core=(max_jobs_per_core, [16, -1]),
            unroll_explicit=(unroll_explicit, [True]),
        )
        self.widest, self.steps = max_vectorize_extent, unroll_max_steps

    def _edit(self, trace: str) -> str:
        if self.steps:
            trace = _choose_from(trace, r"\[0, 8, 16, 64\]", [int(s) for s in self.steps])
        for text in set(re.findall(r"sample_categorical\((\[[^]]*\]), \[", trace)):
            widths = [int(w) for w in text.strip("[]").split(",")]
            fit = [w for w in widths if w <= self.widest] or [min(widths[0], self.widest)]
            if widths[0] > 1 and self.widest > 0 and fit != widths:
                trace = _choose_from(trace, re.escape(text), fit)
        return trace


class RandomComputeLocation(ScheduleRule):
    """A block that others read is computed under one of their loops, drawn; it stays where none will do."""

    def apply(self, sch: Schedule, block: BlockRV) -> List[Schedule]:
        new = sch.copy()
        if not new.get_consumers(block):
            return [sch]
        try:
            new.compute_at(block, new.sample_compute_location(block), True)
        except ScheduleError:
            return [sch]
        return [new]


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
    "AutoInline, InlineConstantScalars, AddRFactor, RegisterTiles, DotProducts, MultiLevelTiling,"
    " MultiLevelTilingWithIntrin, ParallelizeVectorizeUnroll,"
    " RandomComputeLocation and ApplyCustomRule"
    " are there, and rules of your own; those for GPUs are not",
)
