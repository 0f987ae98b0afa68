"""MetaSchedule's names: loop programs and networks tuned by Lathe's one engine, results in a database.

    database = ms.tune_tir(mod, target, work_dir="work", max_trials_global=64)
    sch = ms.tir_integration.compile_tir(database, mod, target)"""

from . import (
    arg_info, builder, cost_model, database, feature_extractor, measure_callback, mutator, postproc, relay_integration,
    runner, schedule_rule, search_strategy, space_generator, task_scheduler, tir_integration, tune_context,
)
from .database import Database, JSONDatabase, MemoryDatabase, TuningRecord
from .relay_integration import is_meta_schedule_enabled
from .search_strategy import MeasureCandidate
from .tir_integration import tune_tir
from .tune import ExtractedTask, tune_tasks
from .tune_context import TuneContext
from .utils import derived_object

__all__ = [
    "Database", "ExtractedTask", "JSONDatabase", "MeasureCandidate", "MemoryDatabase", "TuneContext", "TuningRecord",
    "arg_info", "builder", "cost_model", "database", "derived_object", "feature_extractor", "is_meta_schedule_enabled",
    "measure_callback", "mutator", "postproc", "relay_integration", "runner", "schedule_rule", "search_strategy",
    "space_generator", "task_scheduler", "tir_integration", "tune_context", "tune_tasks", "tune_tir",
]
