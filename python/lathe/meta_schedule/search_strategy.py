"""Search strategies: which candidates are measured next.  One of one's own is a class with the five methods."""

from __future__ import annotations

import random
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from .._ffi import call
from ..error import LatheError
from ..tir.schedule import Schedule
from ..tir.schedule.trace import Trace
from .utils import Part, absent


class MeasureCandidate(NamedTuple):
    """A schedule to measure."""

    sch: Schedule
    args_info: List[Any]


class SearchStrategy(Part):
    """A strategy."""

    def initialize_with_tune_context(self, context: Any) -> None:
        self.context = context
        super().initialize_with_tune_context(context)

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: List[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:  # fmt: skip
        """Called before the first candidates."""
        raise NotImplementedError

    def post_tuning(self) -> None:
        """Called after the last."""

    def generate_measure_candidates(self) -> Optional[List[MeasureCandidate]]:
        """The next ones; None: that is all."""
        raise NotImplementedError

    def notify_runner_results(self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[Any]) -> None:
        """What they came to."""


PySearchStrategy = SearchStrategy


def text_of(sch: Schedule) -> str:
    """The trace as databases keep it."""
    return str(call("schedule_trace", sch._sch))


class _Search(SearchStrategy):
    """What the built-in ones share: how many, what was seen, drawing from the design spaces."""

    def __init__(self, max_fail_count: int = 100):
        self.max_fail_count = max_fail_count

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: List[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:  # fmt: skip
        self.left, self.batch, self.spaces = max_trials, num_trials_per_iter, [s.trace for s in design_spaces]
        self.cost_model = cost_model
        self.random = random.Random(self.context.fork_seed())
        self.seen: Dict[str, bool] = {}

    def _made(self, trace: Trace, fresh: bool) -> Optional[Schedule]:
        """The schedule of a trace; fresh: decisions are drawn again.  None: it cannot be, or was there already."""
        sch = Schedule(self.context.mod, seed=self.random.randrange(1, 2**31))
        drawn = (lambda _inst, _inputs, _attrs, _decision: None) if fresh else None
        try:
            trace.apply_to_schedule(sch, decision_provider=drawn)
            if not all(p.apply(sch) for p in self.context.space_generator.postprocs):
                return None
        except LatheError:
            return None
        key = text_of(sch)
        if key in self.seen:
            return None
        self.seen[key] = True
        return sch

    def _draw(self) -> Optional[Schedule]:
        for _ in range(self.max_fail_count):
            sch = self._made(self.random.choice(self.spaces), True)
            if sch is not None:
                return sch
        return None

    def _next(self, n: int) -> List[Schedule]:
        return [s for s in (self._draw() for _ in range(n)) if s is not None]

    def generate_measure_candidates(self) -> Optional[List[MeasureCandidate]]:
        n = min(self.left, self.batch)
        found = self._next(n) if n > 0 and self.spaces else []
        self.left -= len(found)
        return [MeasureCandidate(s, self.context.args_info) for s in found] or None


class ReplayTrace(_Search):
    """Decisions drawn anew each time."""


class ReplayFunc(_Search):
    """The space generator is asked anew each time."""

    def __init__(self) -> None:
        super().__init__()

    def _draw(self) -> Optional[Schedule]:
        self.spaces = [s.trace for s in self.context.space_generator.generate_design_space(self.context.mod)]
        return super()._draw()


class EvolutionarySearch(_Search):
    """Mutations of the fastest and fresh draws; those that the cost model likes best are measured."""

    def __init__(
        self,
        *,
        population_size: int = 64,
        init_measured_ratio: float = 0.2,
        init_min_unmeasured: int = 16,
        max_fail_count: int = 20,
        genetic_num_iters: int = 2,
        genetic_mutate_prob: float = 0.85,
        genetic_max_fail_count: int = 10,
        eps_greedy: float = 0.05,
    ):
        super().__init__(max_fail_count)
        self.population_size, self.init_min_unmeasured = population_size, init_min_unmeasured
        self.genetic_num_iters, self.genetic_mutate_prob = genetic_num_iters, genetic_mutate_prob
        self.eps_greedy = eps_greedy
        self.measured: List[Any] = []

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: List[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:  # fmt: skip
        super().pre_tuning(max_trials, num_trials_per_iter, design_spaces, database, cost_model)
        self.measured = []

    def _mutant(self, parent: Schedule) -> Optional[Schedule]:
        probs = self.context.space_generator.mutator_probs
        if not probs:
            return None
        mutator = self.random.choices(list(probs), list(probs.values()))[0]
        trace = mutator.apply(parent.trace)
        return None if trace is None else self._made(trace, False)

    def _next(self, n: int) -> List[Schedule]:
        best = [s for _sec, _k, s in sorted(self.measured, key=lambda m: m[:2])[: max(n, 8)]]
        fresh = self.init_min_unmeasured if best else max(self.init_min_unmeasured, n)
        pool = super()._next(min(fresh, self.population_size))
        for _ in range(self.genetic_num_iters):
            for parent in (best + pool)[: self.population_size - len(pool)]:
                if self.random.random() < self.genetic_mutate_prob:
                    made = self._mutant(parent)
                    if made is not None:
                        pool.append(made)
        if self.cost_model is not None and len(pool) > n:
            candidates = [MeasureCandidate(s, self.context.args_info) for s in pool]
            scores = list(self.cost_model.predict(self.context, candidates))
            order = sorted(range(len(pool)), key=lambda i: -scores[i])
            some = max(round(self.eps_greedy * n), 1 if n > 2 else 0)  # of any: the model sees more than it likes
            picked = order[: n - some] + self.random.sample(order[n - some :], some)
            for i in set(order) - set(picked):
                self.seen.pop(text_of(pool[i]), None)
            pool = [pool[i] for i in picked]
        return pool[:n]

    def notify_runner_results(self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[Any]) -> None:
        for c, r in zip(measure_candidates, results):
            if r.run_secs:
                self.measured.append((sorted(r.run_secs)[len(r.run_secs) // 2], len(self.measured), c.sch))


KINDS = {"evolutionary": EvolutionarySearch, "replay-trace": ReplayTrace, "replay-func": ReplayFunc}
globals()["__getattr__"] = absent(
    "search_strategy", "EvolutionarySearch, ReplayTrace, ReplayFunc and strategies of your own are there"
)
