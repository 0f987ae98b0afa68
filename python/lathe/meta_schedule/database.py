"""Databases: one file of Lathe's, under MetaSchedule's names."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional

from .. import error, tuning
from .._ffi import call
from .._ir.module import IRModule
from .._ir.transform import tuned_databases
from ..target import resolve
from ..tir.function import PrimFunc
from ..tir.schedule import Schedule


class TuningRecord(NamedTuple):
    """A measurement."""

    trace: str  #: or the plan of a network's kernel
    workload: str
    run_secs: List[float]
    target: str


def only_function(mod: Any) -> PrimFunc:
    """The one loop program of a module."""
    if isinstance(mod, PrimFunc):
        return mod
    found = [f for f in mod.functions.values() if isinstance(f, PrimFunc)] if isinstance(mod, IRModule) else []
    if len(found) != 1:
        raise error.ArgumentError(f"tuning takes a PrimFunc or a module with one, not {len(found)} of them")
    return found[0]


class Database:
    """A file of measurements.  As a context it is where relay.build looks."""

    def __init__(self, path: Any):
        self.path = os.fspath(path)

    def _entries(self) -> List[Dict[str, Any]]:
        if not os.path.exists(self.path):
            return []
        return tuning.Database(self.path).records()

    def get_all_tuning_records(self) -> List[TuningRecord]:
        """All that succeeded."""
        return [
            TuningRecord(e["candidate"], e["workload"], e["seconds"], e["target"])
            for e in self._entries()
            if e["status"] == "ok"
        ]

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "") -> Optional[Schedule]:
        """The fastest schedule of a loop program; None: there is none."""
        func = only_function(mod)
        trace = call("tuned_trace", self.path, func, resolve(target)._h) if os.path.exists(self.path) else None
        if not trace:
            return None
        sch = Schedule(mod)
        sch._replay(trace)
        return sch

    def query_ir_module(self, mod: Any, target: Any, workload_name: str = "") -> Optional[IRModule]:
        """The same as a module."""
        sch = self.query_schedule(mod, target, workload_name)
        return sch.mod if sch else None

    def query_tuning_record(self, mod: Any, target: Any, workload_name: str = "") -> Optional[TuningRecord]:
        """The record of the fastest schedule of a loop program."""
        func, t = only_function(mod), resolve(target)
        if not os.path.exists(self.path):
            return None
        trace = call("tuned_trace", self.path, func, t._h)
        name = call("tune_program_name", func, t._h)
        for r in self.get_all_tuning_records():
            if r.workload == name and r.trace == trace:
                return r
        return None

    def has_workload(self, mod: Any, target: Any = None) -> bool:
        """Was anything measured of it?"""
        name = call("tune_program_name", only_function(mod), resolve(target)._h)
        return any(e["workload"] == name for e in self._entries())

    def dump(self, path: Any) -> None:
        """Writes all entries as lines of JSON."""
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(e) + "\n" for e in tuning.Database(self.path).entries())

    def __enter__(self) -> "Database":
        self._used = os.path.exists(self.path)  # one that nothing was put into has no file yet
        if self._used:
            tuned_databases.append(self.path)
        return self

    def __exit__(self, *_exc: Any) -> None:
        if self._used:
            tuned_databases.remove(self.path)


class JSONDatabase(Database):
    """In a folder; TVM keeps lines of JSON there, Lathe its database."""

    def __init__(
        self,
        path_workload: Optional[str] = None,
        path_tuning_record: Optional[str] = None,
        *,
        work_dir: Optional[str] = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ):
        if path_workload or path_tuning_record:
            raise error.UnsupportedError("JSONDatabase: give work_dir; files of TVM's own form are not read")
        os.makedirs(work_dir or ".", exist_ok=True)
        super().__init__(os.path.join(work_dir or ".", "database.db"))


class MemoryDatabase(Database):
    """Goes with the object."""

    def __init__(self, module_equality: str = "structural"):
        self._folder = tempfile.TemporaryDirectory(prefix="lathe-tune-")  # pylint: disable=consider-using-with
        super().__init__(os.path.join(self._folder.name, "database.db"))


def create(kind: Any, work_dir: Optional[str]) -> Database:
    """Of what the tuning functions take as database=."""
    if isinstance(kind, Database):
        return kind
    if kind == "memory":
        return MemoryDatabase()
    if kind == "json":
        return JSONDatabase(work_dir=work_dir)
    raise error.ArgumentError(f"database is 'json', 'memory' or a Database, not {kind!r}")
