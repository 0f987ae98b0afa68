"""A task of tuning: the module, the target, and the parts that search."""

from __future__ import annotations

import random
from typing import Any, List, Optional

from .._ir.module import IRModule
from ..target import resolve
from . import search_strategy as strategies
from . import space_generator as spaces
from .arg_info import ArgInfo
from .database import only_function
from .utils import kind_of


class TuneContext:
    """A task."""

    def __init__(
        self,
        mod: Any = None,
        *,
        target: Any = None,
        space_generator: Any = None,
        search_strategy: Any = None,
        task_name: str = "main",
        rand_state: int = -1,
        num_threads: Any = None,
        logger: Any = None,
    ):
        func = only_function(mod)
        self.mod = mod if isinstance(mod, IRModule) else IRModule({"main": func})
        self.args_info: List[Any] = ArgInfo.from_prim_func(func)
        self.target, self.task_name, self.logger = resolve(target), task_name, logger
        self._random = random.Random(1 if rand_state in (-1, None) else rand_state)
        self.space_generator = (
            spaces.ScheduleFn(space_generator)
            if callable(space_generator) and not isinstance(space_generator, spaces.SpaceGenerator)
            else kind_of(space_generator, spaces.SpaceGenerator, spaces.KINDS, "space generator")
        )
        self.search_strategy = kind_of(search_strategy, strategies.SearchStrategy, strategies.KINDS, "search strategy")
        self.initialize()

    def initialize(self) -> None:
        """Tells the parts what they are about."""
        self.space_generator.initialize_with_tune_context(self)
        self.search_strategy.initialize_with_tune_context(self)

    def fork_seed(self) -> int:
        """A seed for a part."""
        return self._random.randrange(1, 2**31)

    def generate_design_space(self) -> List[Any]:
        """The design spaces of the module."""
        return list(self.space_generator.generate_design_space(self.mod))

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int = 64, design_spaces: Optional[List[Any]] = None,
        database: Any = None, cost_model: Any = None,
    ) -> None:  # fmt: skip
        """Called before the first candidates."""
        found = self.generate_design_space() if design_spaces is None else design_spaces
        self.search_strategy.pre_tuning(max_trials, num_trials_per_iter, found, database, cost_model)

    def post_tuning(self) -> None:
        """Called after the last."""
        self.search_strategy.post_tuning()

    def generate_measure_candidates(self) -> Optional[List[Any]]:
        """The next candidates; None: that is all."""
        found = self.search_strategy.generate_measure_candidates()
        return None if found is None else list(found)

    def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
        """What they came to."""
        self.search_strategy.notify_runner_results(measure_candidates, results)

    def clone(self) -> "TuneContext":
        """Another one with the same parts."""
        return TuneContext(
            self.mod, target=self.target, space_generator=self.space_generator.clone(),
            search_strategy=self.search_strategy.clone(), task_name=self.task_name, rand_state=self.fork_seed(),
        )  # fmt: skip
