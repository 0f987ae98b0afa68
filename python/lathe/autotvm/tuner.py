"""Which configuration is measured next: at random, in order, by a genetic algorithm, by the cost model."""

from __future__ import annotations

import random
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from .._ffi import call
from ..error import ArgumentError
from . import record
from .measure import MeasureInput, MeasureResult, create_measure_batch
from .task import KernelTask, Task


class Tuner:
    """Proposes configurations of a task and learns from what they came to."""

    def __init__(self, task: Task, range_idx: Optional[Tuple[int, int]] = None):
        self.task, self.space = task, task.config_space
        self.first, self.last = range_idx or (0, self.space.range_length - 1)
        self.best_config: Any = None
        self.best_flops = 0.0
        self.best_measure_pair: Optional[Tuple[MeasureInput, MeasureResult]] = None
        self.best_iter = 0
        self.visited: Set[int] = set()
        self.ttl: Optional[int] = None
        self.n_trial: Optional[int] = None

    def has_next(self) -> bool:
        """Is there a configuration that was not measured?"""
        return len(self.visited) < self.space.range_length

    def next_batch(self, batch_size: int) -> List[Any]:
        """Configurations to measure next: in order, unless a kind of tuner knows better."""
        out: List[Any] = []
        for i in range(self.first, self.last + 1):
            if len(out) == batch_size:
                break
            if i not in self.visited and self.space.is_index_valid(i):
                out.append(self.space.get(i))
        return out

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learns from what they came to."""

    def reset(self) -> None:
        """Forgets what was measured."""
        self.best_config, self.best_flops, self.best_measure_pair = None, 0.0, None
        self.visited.clear()

    def load_history(self, data_set: Any, min_seed_records: int = 500) -> None:
        """Learns from a log of the same task."""
        pairs = [(i, r) for i, r in data_set if i.task.workload == self.task.workload]
        if pairs:
            self._note(*zip(*pairs), 0)

    def _note(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult], start: int) -> None:
        for k, (inp, res) in enumerate(zip(inputs, results)):
            self.visited.add(inp.config.index)
            flops = self.task.flop / record._cost(res) if res.error_no == 0 else 0.0
            if flops > self.best_flops:
                self.best_flops, self.best_config, self.best_measure_pair = flops, inp.config, (inp, res)
                self.best_iter = start + k
        self.update(inputs, results)

    def tune(
        self,
        n_trial: int,
        measure_option: Dict[str, Any],
        early_stopping: Optional[int] = None,
        callbacks: Sequence[Any] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measures n_trial configurations, or until early_stopping of them brought nothing better."""
        if si_prefix not in ("k", "M", "G", "T", ""):
            raise ArgumentError(f"si_prefix is k, M, G or T, not '{si_prefix}'")
        batch, done = 8, 0
        measure = create_measure_batch(self.task, measure_option)
        self.n_trial = n_trial
        while done < n_trial and self.has_next():
            configs = self.next_batch(min(batch, n_trial - done))
            start = self.task.start
            if start is not None and start not in self.visited and all(c.index != start for c in configs):
                configs[-1:] = [self.space.get(start)]
            if not configs:
                return
            inputs = [MeasureInput(self.task.target, self.task, c) for c in configs]
            results = measure(inputs)
            self._note(inputs, results, done)
            done += len(inputs)
            for callback in callbacks:
                callback(self, inputs, results)
            if early_stopping and done >= self.best_iter + early_stopping:
                return


class RandomTuner(Tuner):
    """Any that was not measured."""

    def __init__(self, task: Task, range_idx: Optional[Tuple[int, int]] = None):
        super().__init__(task, range_idx)
        self.rng = random.Random(1)

    def next_batch(self, batch_size: int) -> List[Any]:
        out: List[Any] = []
        taken = set(self.visited)
        for _ in range(100 * batch_size):
            if len(out) == batch_size:
                break
            i = self.rng.randint(self.first, self.last)
            if i not in taken and self.space.is_index_valid(i):
                taken.add(i)
                out.append(self.space.get(i))
        return out or super().next_batch(batch_size)  # few are left


class GridSearchTuner(Tuner):
    """In order."""


class GATuner(Tuner):
    """A genetic algorithm: choices of two of the fastest, crossed, some of them changed."""

    def __init__(self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1):
        super().__init__(task)
        self.pop_size, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob
        self.rng = random.Random(1)
        self.scores: Dict[int, float] = {}

    def _draw(self) -> int:
        return self.rng.randrange(self.space.range_length)

    def _child(self) -> int:
        best = sorted(self.scores, key=lambda i: -self.scores[i])[
            : max(self.elite_num, min(self.pop_size, len(self.scores)))
        ]
        weights = [self.scores[i] + 1e-9 for i in best]
        a, b = (self.space.knobs_of(i) for i in self.rng.choices(best, weights, k=2))
        cut = self.rng.randrange(len(a) + 1)
        knobs = a[:cut] + b[cut:]
        for k, n in enumerate(self.space.dims):
            if self.rng.random() < self.mutation_prob:
                knobs[k] = self.rng.randrange(n)
        return self.space.index_of(knobs)

    def next_batch(self, batch_size: int) -> List[Any]:
        out: List[int] = []
        for attempt in range(100 * batch_size):
            if len(out) == batch_size:
                break
            young = len(self.scores) < min(self.pop_size, 16) or attempt > 50 * batch_size
            i = self._draw() if young else self._child()
            if i not in self.visited and i not in out and self.space.is_index_valid(i):
                out.append(i)
        return [self.space.get(i) for i in out] or super().next_batch(batch_size)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, res in zip(inputs, results):
            self.scores[inp.config.index] = self.task.flop / record._cost(res) if res.error_no == 0 else 0.0


class XGBTuner(GATuner):
    """The cost model proposes: of many configurations, neighbours of the fastest among them, those it thinks fastest.

    The model is Lathe's own, a ridge regression over the numbers of a configuration."""

    def __init__(
        self,
        task: Task,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        num_threads: Optional[int] = None,
        optimizer: str = "sa",
        diversity_filter_ratio: Optional[float] = None,
        log_interval: int = 50,
    ):
        super().__init__(task, mutation_prob=0.3)
        if feature_type not in ("itervar", "knob", "curve", "itervar_silent_template"):
            raise ArgumentError(f"there is no feature_type '{feature_type}'")
        self.plan_size = plan_size
        self.seconds: Dict[int, float] = {}

    def _text(self, index: int) -> str:
        if isinstance(self.task, KernelTask):
            return str(self.space.get(index)["plan"].val)
        fields = ", ".join(f"{name}={value:g}" for name, value in self.space.get(index).numbers())
        return f"config{{{fields}}}"

    def next_batch(self, batch_size: int) -> List[Any]:
        measured = list(self.seconds)
        if len(measured) < 8:
            return super().next_batch(batch_size)
        pool: List[int] = []
        for attempt in range(20 * self.plan_size):
            if len(pool) == 4 * self.plan_size:
                break
            i = self._draw() if attempt % 2 else self._child()
            if i not in self.visited and i not in pool and self.space.is_index_valid(i):
                pool.append(i)
        if not pool:
            return super().next_batch(batch_size)
        texts = [self._text(i) for i in measured + pool]
        thought = call("tune_learn", texts, [self.seconds[i] for i in measured] + [0.0] * len(pool))[len(measured) :]
        order = [i for _, i in sorted(zip(thought, pool))]
        keep = order[: max(batch_size - 1, 1)]
        rest = [i for i in pool if i not in keep]
        if rest and len(keep) < batch_size:
            keep.append(self.rng.choice(rest))  # one of any, so that the model sees more than it likes
        return [self.space.get(i) for i in keep]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        super().update(inputs, results)
        for inp, res in zip(inputs, results):
            if res.error_no == 0:
                self.seconds[inp.config.index] = record._cost(res)
