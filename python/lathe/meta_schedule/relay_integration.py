"""Networks: tuned, and compiled with what was found."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .. import tuning
from .._ir.transform import PassContext
from ..relay import build_module
from ..target import resolve
from . import database as databases
from .database import Database
from .tune import ExtractedTask, check


def is_meta_schedule_enabled() -> bool:
    """Does the current PassContext ask for it?"""
    return bool(PassContext.current().config.get("relay.backend.use_meta_schedule", False))


def extract_tasks(
    mod: Any,
    target: Any,
    params: Optional[Dict[str, Any]] = None,
    *,
    module_equality: str = "structural",
    disabled_pass: Optional[Sequence[str]] = None,
    instruments: Optional[Sequence[Any]] = None,
) -> List[ExtractedTask]:
    """The kernels of a network that have a choice; weight is how often each is computed."""
    with PassContext(opt_level=3, disabled_pass=disabled_pass, instruments=instruments):
        found = tuning.extract_tasks(mod, target, params)
    t = resolve(target)
    return [ExtractedTask(task.workload, task.mod, t, [task.mod], task.calls) for task in found]


def tune_relay(
    mod: Any,
    params: Optional[Dict[str, Any]],
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
    seed: Optional[int] = None,
    module_equality: Any = None,
    num_tuning_cores: Any = "physical",
    disabled_pass: Optional[Sequence[str]] = None,
    instruments: Optional[Sequence[Any]] = None,
) -> Database:
    """Tunes a network by so many measurements; what an earlier run left in work_dir counts."""
    check(
        "tune_relay",
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
    with PassContext(opt_level=3, disabled_pass=disabled_pass, instruments=instruments):
        tuning.tune(mod, target, database=db.path, trials=max_trials_global, resume=True, params=params)
    return db


def compile_relay(
    database: Database,
    mod: Any,
    target: Any,
    params: Optional[Dict[str, Any]] = None,
    pass_config: Optional[Dict[str, Any]] = None,
    disabled_pass: Optional[Sequence[str]] = None,
    instruments: Optional[Sequence[Any]] = None,
    backend: str = "graph",
    executor: Any = None,
) -> Any:
    """The network compiled with what the database has for it."""
    config = {k: v for k, v in (pass_config or {}).items() if not k.startswith("relay.backend.use_meta_schedule")}
    config["lathe.tuned.database"] = database.path
    with PassContext(opt_level=3, config=config, disabled_pass=disabled_pass, instruments=instruments):
        return build_module.build(mod, target=target, params=params, executor=executor)
