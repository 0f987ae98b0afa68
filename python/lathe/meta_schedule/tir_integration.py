"""Loop programs: tuned, and compiled with what was found."""

from __future__ import annotations

from typing import Any, Optional

from .. import error
from .._ffi import call
from ..target import resolve
from ..tir.schedule import Schedule
from . import database as databases
from .database import Database
from .tune import USUAL, tune_tasks
from .tune_context import TuneContext


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
) -> Any:
    """Tunes a PrimFunc, or a module with one, by so many measurements.

    With the usual parts the engine searches, and what an earlier run left in work_dir counts; with parts of one's own
    (rules and mutators in space, a strategy, a cost model, a runner, …) those do."""
    db = databases.create(database, work_dir)
    trials = min(max_trials_global, max_trials_per_task or max_trials_global)
    parts = {
        "builder": builder, "runner": runner, "cost_model": cost_model, "measure_callbacks": measure_callbacks,
        "task_scheduler": task_scheduler, "space": space, "strategy": strategy,
    }  # fmt: skip
    if module_equality not in (None, "structural"):
        raise error.UnsupportedError(f"tune_tir: module_equality is 'structural', not {module_equality!r}")
    if isinstance(db, Database) and all(v is None or v == USUAL[k] for k, v in parts.items()):
        func = databases.only_function(mod)
        call("tune_program", func, resolve(target)._h, db.path, None, trials, True, seed or 1, None, None)
        return db
    task = TuneContext(
        mod, target=target, space_generator=parts.pop("space"), search_strategy=parts.pop("strategy"),
        rand_state=seed or 1,
    )  # fmt: skip
    given = {k: USUAL[k] if v is None else v for k, v in parts.items()}
    return tune_tasks(
        tasks=[task], task_weights=[1.0], work_dir=work_dir, max_trials_global=trials, database=db,
        num_trials_per_iter=num_trials_per_iter, **given,
    )  # fmt: skip


def compile_tir(database: Database, mod: Any, target: Any) -> Optional[Schedule]:
    """The fastest schedule that the database has for the program; None: it has none."""
    return database.query_schedule(mod, target)
