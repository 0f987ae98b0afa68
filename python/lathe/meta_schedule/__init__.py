"""MetaSchedule's names: loop programs and networks tuned by Lathe's one engine, results in a database.

    database = ms.tune_tir(mod, target, work_dir="work", max_trials_global=64)
    sch = ms.tir_integration.compile_tir(database, mod, target)"""

from . import database, relay_integration, tir_integration
from .database import Database, JSONDatabase, MemoryDatabase, TuningRecord
from .relay_integration import is_meta_schedule_enabled
from .tir_integration import tune_tir
from .tune import ExtractedTask

__all__ = [
    "Database", "ExtractedTask", "JSONDatabase", "MemoryDatabase", "TuningRecord", "database",
    "is_meta_schedule_enabled", "relay_integration", "tir_integration", "tune_tir",
]
