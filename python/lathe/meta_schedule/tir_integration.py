"""Loop programs: tuned, and compiled with what was found."""

from __future__ import annotations

from typing import Any, Optional

from .._ffi import call
from ..target import resolve
from ..tir.schedule import Schedule
from . import database as databases
from .database import Database
from .tune import check


def tune_tir(
    mod: Any,
    target: Any,
    work_dir: str,
    max_trials_global: int,
    *,
    max_trials_per_task: Optional[int] = None,
    num_trials_per_iter: int = 64,
    builder: Any = None,
    runner: Any = None,
    database: Any = "json",
    cost_model: Any = None,
    measure_callbacks: Any = None,
    task_scheduler: Any = None,
    space: Any = None,
    strategy: Any = None,
    num_tuning_cores: Any = "physical",
    seed: Optional[int] = None,
    module_equality: Any = None,
    special_space: Any = None,
) -> Database:
    """Tunes a PrimFunc, or a module with one, by so many measurements; what an earlier run left in work_dir counts."""
    check(
        "tune_tir",
        builder=builder,
        runner=runner,
        cost_model=cost_model,
        measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler,
        space=space,
        strategy=strategy,
        module_equality=module_equality,
    )
    db = databases.create(database, work_dir)
    trials = min(max_trials_global, max_trials_per_task or max_trials_global)
    call(
        "tune_program", databases.only_function(mod), resolve(target)._h, db.path, None, trials, True, seed or 1, None
    )
    return db


def compile_tir(database: Database, mod: Any, target: Any) -> Optional[Schedule]:
    """The fastest schedule that the database has for the program; None: it has none."""
    return database.query_schedule(mod, target)
