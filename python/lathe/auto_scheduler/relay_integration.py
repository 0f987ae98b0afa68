"""Networks under Ansor's names."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from .. import error, tuning
from .._ir.transform import tuned_databases
from ..target import Target, resolve
from .search_task import TuningOptions


class _Kernel:
    """A kernel of a network; TaskScheduler tunes them together."""

    def __init__(self, task: tuning.Task, mod: Any, params: Any, target: Target):
        self.workload_key, self.desc, self.target = task.workload, task.what, target
        self.network = (mod, params, target)

    def __repr__(self) -> str:
        return f"SearchTask({self.desc})"


def extract_tasks(
    mod: Any,
    params: Optional[Dict[str, Any]],
    target: Any,
    target_host: Any = None,
    hardware_params: Any = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: Any = None,
    opt_level: int = 3,
    other_targets: Any = None,
) -> Tuple[List[Any], List[int]]:
    """The kernels of a network that have a choice, and how often each is computed."""
    found = tuning.extract_tasks(mod, target, params)
    t = resolve(target)
    return [_Kernel(task, mod, params, t) for task in found], [task.calls for task in found]


class TaskScheduler:
    """Gives the measurements to the kernels from which the network gains most."""

    def __init__(
        self,
        tasks: Sequence[Any],
        task_weights: Optional[Sequence[float]] = None,
        objective_func: Any = None,
        strategy: str = "gradient",
        load_model_file: Any = None,
        load_log_file: Any = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Any = None,
    ):
        if not tasks or not all(isinstance(t, _Kernel) for t in tasks):
            raise error.UnsupportedError(
                "TaskScheduler takes the tasks that extract_tasks gave; tune others one by one"
            )
        if objective_func is not None:
            raise error.UnsupportedError("TaskScheduler: the objective is the network's time")
        self.tasks = list(tasks)

    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: str = "default",
        search_policy_params: Any = None,
        adaptive_training: bool = False,
        per_task_early_stopping: Optional[int] = None,
    ) -> None:
        """Tunes the network; the records of the file count."""
        if not tune_option.file:
            raise error.ArgumentError("TaskScheduler.tune wants measure_callbacks=[RecordToFile(…)]")
        mod, params, target = self.tasks[0].network
        tuning.tune(
            mod,
            target,
            database=tune_option.file,
            trials=max(tune_option.num_measure_trials, 1),
            resume=True,
            params=params,
        )


class ApplyHistoryBest:
    """A context in which relay.build uses what a file has."""

    def __init__(self, records: str, n_lines: Any = None, include_compatible: bool = False):
        self.records = records

    def __enter__(self) -> "ApplyHistoryBest":
        tuned_databases.append(self.records)
        return self

    def __exit__(self, *_exc: Any) -> None:
        tuned_databases.remove(self.records)
