"""Tasks tuned with parts that can be exchanged; and what networks, whose candidates are plans, refuse."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence

from .. import error
from .._ir.module import IRModule
from . import cost_model as cost_models
from . import database as databases
from . import task_scheduler as schedulers
from .tune_context import TuneContext
from .utils import kind_of

#: The parts of a search, and the words for those that the engine has.
USUAL = {
    "builder": "local",
    "runner": "local",
    "cost_model": "xgb",
    "measure_callbacks": "default",
    "task_scheduler": "gradient",
    "space": "post-order-apply",
    "strategy": "evolutionary",
    "module_equality": "structural",
}


class ExtractedTask(NamedTuple):
    """A kernel of a network that can be tuned."""

    task_name: str
    mod: IRModule
    target: Any
    dispatched: List[IRModule]
    weight: int


def tune_tasks(
    *,
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: Optional[int] = None,
    num_trials_per_iter: int = 64,
    builder: Any = "local",
    runner: Any = "local",
    database: Any = "json",
    cost_model: Any = "xgb",
    measure_callbacks: Any = "default",
    task_scheduler: Any = "gradient",
    module_equality: str = "structural",
) -> Any:
    """Tunes tasks by so many measurements; the database."""
    if len(tasks) != len(task_weights):
        raise error.ArgumentError(f"{len(tasks)} tasks have {len(task_weights)} weights")
    db = databases.create(database, work_dir)
    scheduler = kind_of(task_scheduler, schedulers.TaskScheduler, schedulers.KINDS, "task scheduler")
    model = kind_of(cost_model, cost_models.CostModel, cost_models.KINDS, "cost model")
    scheduler.tune(
        list(tasks), list(task_weights), max_trials_global, max_trials_per_task or max_trials_global,
        min(num_trials_per_iter, max_trials_global), builder, runner, measure_callbacks, db, model,
    )  # fmt: skip
    return db


def check(where: str, **given: Any) -> None:
    """Refuses parts that cannot be exchanged."""
    for name, value in given.items():
        if value is not None and value != USUAL[name]:
            raise error.UnsupportedError(
                f"{where}: {name} is '{USUAL[name]}': a network's kernels have plans, which the engine searches; parts"
                " of your own are for tune_tir and tune_tasks"
            )
