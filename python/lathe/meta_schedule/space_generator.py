"""Design spaces: schedules whose decisions are then drawn, mutated and measured."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .. import error
from ..tir.schedule import Schedule
from .mutator import Mutator
from .postproc import Postproc, blocks
from .schedule_rule import ScheduleRule
from .utils import Part, absent

_FROM = "from-target"


class SpaceGenerator(Part):
    """Makes the design spaces of a module; has the postprocessors and mutators that go with them."""

    def __init__(self, sch_rules: Any = _FROM, postprocs: Any = _FROM, mutator_probs: Any = _FROM):
        self.sch_rules: List[ScheduleRule] = (
            ScheduleRule.create("llvm") if sch_rules == _FROM else list(sch_rules or [])
        )
        self.postprocs: List[Postproc] = [] if postprocs == _FROM else list(postprocs or [])
        self.mutator_probs: Dict[Mutator, float] = (
            Mutator.create("llvm") if mutator_probs == _FROM else dict(mutator_probs or {})
        )

    def initialize_with_tune_context(self, context: Any) -> None:
        if not hasattr(self, "sch_rules"):  # a class of the user's own without a call of __init__
            SpaceGenerator.__init__(self)
        super().initialize_with_tune_context(context)
        for part in [*self.sch_rules, *self.postprocs, *self.mutator_probs]:
            part.initialize_with_tune_context(context)

    def generate_design_space(self, mod: Any) -> List[Schedule]:
        """The design spaces."""
        raise NotImplementedError


PySpaceGenerator = SpaceGenerator


class PostOrderApply(SpaceGenerator):
    """Each rule in turn on each block, consumers before their producers; all that comes of it."""

    most = 64  #: design spaces that are kept after each rule

    def __init__(
        self,
        f_block_filter: Optional[Callable[[Any], bool]] = None,
        sch_rules: Any = _FROM,
        postprocs: Any = _FROM,
        mutator_probs: Any = _FROM,
    ):
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.f_block_filter = f_block_filter

    def generate_design_space(self, mod: Any) -> List[Schedule]:
        found = [Schedule(mod, seed=1)]
        for rule in self.sch_rules:
            todo: List[Tuple[Schedule, List[str]]] = [(s, blocks(s)) for s in reversed(found)]
            found = []
            while todo and len(found) < self.most:
                sch, names = todo.pop()
                if not names:
                    found.append(sch)
                    continue
                *names, name = names
                if name not in blocks(sch):
                    todo.append((sch, names))
                    continue
                block = sch.get_block(name)
                if self.f_block_filter is not None and not self.f_block_filter(sch.get(block)):
                    todo.append((sch, names))
                    continue
                made = rule.apply(sch, block)
                if not isinstance(made, (list, tuple)) or not all(isinstance(s, Schedule) for s in made):
                    raise error.TypeError(f"the rule {type(rule).__name__} gives a list of schedules, not {made!r}")
                todo += [(s, list(names)) for s in reversed(made)]
        return found


class ScheduleFn(SpaceGenerator):
    """What a function makes of a schedule: it changes it, or gives one or several."""

    def __init__(
        self,
        sch_fn: Callable[[Schedule], Union[None, Schedule, List[Schedule]]],
        sch_rules: Any = None,
        postprocs: Any = _FROM,
        mutator_probs: Any = _FROM,
    ):
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.sch_fn = sch_fn

    def generate_design_space(self, mod: Any) -> List[Schedule]:
        sch = Schedule(mod, seed=1)
        made = self.sch_fn(sch)
        return [sch] if made is None else list(made) if isinstance(made, (list, tuple)) else [made]


class SpaceGeneratorUnion(SpaceGenerator):
    """The spaces of several."""

    def __init__(
        self, space_generators: List[SpaceGenerator], sch_rules: Any = None, postprocs: Any = _FROM,
        mutator_probs: Any = _FROM,
    ):  # fmt: skip
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.space_generators = list(space_generators)

    def initialize_with_tune_context(self, context: Any) -> None:
        super().initialize_with_tune_context(context)
        for one in self.space_generators:
            one.initialize_with_tune_context(context)

    def generate_design_space(self, mod: Any) -> List[Schedule]:
        return [s for one in self.space_generators for s in one.generate_design_space(mod)]


KINDS = {"post-order-apply": PostOrderApply, "union": SpaceGeneratorUnion}
globals()["__getattr__"] = absent("space_generator", "PostOrderApply, ScheduleFn, SpaceGeneratorUnion and your own are")
