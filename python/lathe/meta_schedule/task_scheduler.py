"""Several tasks: which one gets the next batch, and the batch measured."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from .._ffi import call
from . import builder as builders
from . import measure_callback as callbacks
from . import runner as runners
from .builder import BuilderInput, BuilderResult, LocalBuilder
from .database import only_function
from .runner import LocalRunner, RunnerInput, RunnerResult
from .utils import Part, absent, kind_of


class TaskRecord:
    """A task in the middle of it."""

    def __init__(self, ctx: Any, weight: float):
        self.ctx, self.task_weight = ctx, weight
        self.is_terminated = False
        self.trials = 0
        self.best: List[float] = []  # the least seconds after each batch


class TaskScheduler(Part):
    """Gives batches to tasks."""

    def __init__(self) -> None:
        self.tasks_: List[TaskRecord] = []
        self.database: Any = None
        self.cost_model: Any = None

    def next_task_id(self) -> int:
        """The task that gets the next batch; -1: none."""
        raise NotImplementedError

    def _open(self) -> List[int]:
        return [i for i, t in enumerate(self.tasks_) if not t.is_terminated]

    def tune(
        self,
        tasks: Sequence[Any],
        task_weights: Sequence[float],
        max_trials_global: int,
        max_trials_per_task: int,
        num_trials_per_iter: int,
        builder: Any = "local",
        runner: Any = "local",
        measure_callbacks: Any = None,
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Tunes them."""
        self.tasks_ = [TaskRecord(t, w) for t, w in zip(tasks, task_weights)]
        self.database, self.cost_model = database, cost_model
        builder = kind_of(builder, builders.Builder, builders.KINDS, "builder")
        runner = kind_of(runner, runners.Runner, runners.KINDS, "runner")
        if measure_callbacks is None or measure_callbacks == "default":
            measure_callbacks = callbacks.MeasureCallback.create()
        elif not isinstance(measure_callbacks, (list, tuple)):
            measure_callbacks = [measure_callbacks]
        for t in self.tasks_:
            t.ctx.pre_tuning(max_trials_per_task, num_trials_per_iter, None, database, cost_model)
        left = max_trials_global
        while left > 0:
            i = self.next_task_id()
            if i < 0:
                break
            task = self.tasks_[i]
            found = task.ctx.generate_measure_candidates()
            if not found:
                task.is_terminated = True
                continue
            found = found[:left]
            built, results = measure(task.ctx, builder, runner, found)
            left -= len(found)
            task.trials += len(found)
            task.is_terminated = task.trials >= max_trials_per_task
            times = [sorted(r.run_secs)[len(r.run_secs) // 2] for r in results if r.run_secs] + task.best[-1:]
            if times:
                task.best.append(min(times))
            task.ctx.notify_runner_results(found, results)
            for c in measure_callbacks:
                c.apply(self, i, found, built, results)
        for t in self.tasks_:
            t.ctx.post_tuning()


PyTaskScheduler = TaskScheduler


def measure(ctx: Any, builder: Any, runner: Any, candidates: Sequence[Any]) -> Any:
    """What builder and runner give for the candidates.  With the local ones a candidate is built and run in a child
    process, checked against the program as it was given, and timed in turns with it."""
    if type(builder) is LocalBuilder and type(runner) is LocalRunner and not builder.own:  # pylint: disable=C0123
        c = runner.evaluator_config
        said = call(
            "tune_measure", [only_function(m.sch.mod) for m in candidates], only_function(ctx.mod), ctx.target._h,
            max(c.repeat * c.min_repeat_ms / 1e3, 0.05), builder.timeout_sec, runner.timeout_sec, None, False,
        )  # fmt: skip
        results = [
            RunnerResult(secs, None, base) if status == "ok" else RunnerResult(None, f"{status}: {note}")
            for status, note, secs, base in said
        ]
        return [BuilderResult(None, None) for _ in candidates], results
    built = builder.build([BuilderInput(m.sch.mod, ctx.target) for m in candidates])
    good = [RunnerInput(b.artifact_path, "cpu", m.args_info) for b, m in zip(built, candidates) if not b.error_msg]
    futures = iter(runner.run(good) if good else [])
    return built, [RunnerResult(None, b.error_msg) if b.error_msg else _whole(next(futures).result()) for b in built]


def _whole(result: Any) -> RunnerResult:
    if isinstance(result, RunnerResult):
        return result
    return RunnerResult(result.run_secs, result.error_msg)


class RoundRobin(TaskScheduler):
    """One after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -1

    def next_task_id(self) -> int:
        after = [i for i in self._open() if i > self._last] or self._open()
        self._last = after[0] if after else -1
        return self._last


class GradientBased(TaskScheduler):
    """The task from which the whole gains most: its time by its weight, less where the last batches brought nothing."""

    def __init__(self, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1):
        super().__init__()
        self.alpha, self.window_size = alpha, window_size

    def _worth(self, i: int) -> float:
        t = self.tasks_[i]
        if not t.best:
            return float("inf")
        back = t.best[-min(self.window_size, len(t.best))]
        gained = (back - t.best[-1]) / self.window_size
        return t.task_weight * (self.alpha * gained + (1 - self.alpha) * t.best[-1] / max(t.trials, 1))

    def next_task_id(self) -> int:
        found: Optional[int] = max(self._open(), key=self._worth, default=None)
        return -1 if found is None else found


KINDS = {"gradient": GradientBased, "round-robin": RoundRobin}
globals()["__getattr__"] = absent("task_scheduler", "GradientBased, RoundRobin and schedulers of your own are there")
