"""Databases: one file of Lathe's, under MetaSchedule's names."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from .. import error, tuning
from .._ffi import call
from .._ir.module import IRModule
from .._ir.transform import tuned_databases
from ..target import resolve
from ..tir.function import PrimFunc
from ..tir.schedule import Schedule
from ..tir.schedule.trace import Trace


class TuningRecord(NamedTuple):
    """A measurement."""

    trace: str  #: or the plan of a network's kernel
    workload: str
    run_secs: List[float]  #: []: it failed
    target: str
    base_secs: Sequence[float] = ()  #: of the program as it was given, measured in turns; (): it was not
    error_msg: str = ""

    def as_json(self, mod: Any) -> List[Any]:
        """As the second file of TVM's JSONDatabase has it, without the number of the workload."""
        sch = Schedule(mod)
        sch._replay(self.trace)
        return [sch.trace.as_json(), list(self.run_secs), {"kind": "llvm", "tag": "", "keys": ["cpu"]}, None]


class Workload:
    """A program for a target."""

    def __init__(self, mod: Any, target: Any = None):
        self.mod, self.target = mod, resolve(target)
        self.name: str = call("tune_program_name", only_function(mod), self.target._h)


def only_function(mod: Any) -> PrimFunc:
    """The one loop program of a module."""
    if isinstance(mod, PrimFunc):
        return mod
    found = [f for f in mod.functions.values() if isinstance(f, PrimFunc)] if isinstance(mod, IRModule) else []
    if len(found) != 1:
        raise error.ArgumentError(f"tuning takes a PrimFunc or a module with one, not {len(found)} of them")
    return found[0]


class PyDatabase:
    """For a database of one's own: commit_workload and commit_tuning_record are called as things are found,
    query_schedule when a program is compiled."""

    def commit_workload(self, mod: Any, target: Any = None) -> Any:
        """Makes a program known."""
        return Workload(mod, target)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Takes a measurement."""
        raise NotImplementedError

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "") -> Optional[Schedule]:
        """The fastest schedule of a loop program; None: there is none."""
        raise NotImplementedError

    def query_ir_module(self, mod: Any, target: Any, workload_name: str = "") -> Optional[IRModule]:
        """The same as a module."""
        sch = self.query_schedule(mod, target, workload_name)
        return sch.mod if sch else None


class Database(PyDatabase):
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

    def commit_tuning_record(self, record: TuningRecord) -> None:
        status, _, note = record.error_msg.partition(": ")
        known = status in ("crash", "hang", "wrong", "error")
        line = {
            "lathe": 1,
            "entry": "record",
            "uid": uuid.uuid4().hex[:16],
            "workload": record.workload,
            "target": record.target,
            "what": record.workload.split("-")[0],
            "kind": "trace",
            "candidate": record.trace,
            "status": "ok" if record.run_secs else status if known else "error",
            "note": note if known else record.error_msg,
            "predicted": 0,
            "seconds": list(record.run_secs),
            "base": "",
            "base_seconds": list(record.base_secs),
            "threads": int(resolve(record.target).num_cores),
        }
        _taken, _known, bad, why = call("db_import", self.path, json.dumps(line))
        if bad:
            raise error.ArgumentError(f"commit_tuning_record: {why}")

    def get_top_k(self, workload: Any, top_k: int) -> List[TuningRecord]:
        """The fastest records of a workload (a Workload, or its name)."""
        name = getattr(workload, "name", workload)
        found = [r for r in self.get_all_tuning_records() if r.workload == name]
        return sorted(found, key=lambda r: sorted(r.run_secs)[len(r.run_secs) // 2])[:top_k]

    def export_tvm(self, path: Any, mod: Any, target: Any = None) -> int:
        """Writes the records of a program as lines of TVM's database_tuning_record.json; how many."""
        name = Workload(mod, target).name
        rows = [[0, r.as_json(mod)] for r in self.get_all_tuning_records() if r.workload == name]
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        return len(rows)

    def import_tvm(self, path: Any, mod: Any, target: Any = None, workload_index: int = 0) -> int:
        """Takes the lines of TVM's database_tuning_record.json that are about this program; how many.

        TVM's traces leave threads, vectors and unrolling to annotations that its postprocessors read; the loops come
        over as they are.  They serve as starting points: what was not measured beside the program is not used."""
        workload, taken = Workload(mod, target), 0
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                try:
                    index, (trace, seconds, *_rest) = json.loads(line)
                    if index != workload_index or not seconds:
                        continue
                    sch = Schedule(mod)
                    Trace.apply_json_to_schedule(trace, sch)
                except (ValueError, TypeError, error.LatheError) as e:
                    raise error.ArgumentError(f"'{path}', line {number} is no record for this program: {e}") from None
                text = call("schedule_trace", sch._sch)
                self.commit_tuning_record(
                    TuningRecord(text, workload.name, [float(x) for x in seconds], str(workload.target))
                )
                taken += 1
        return taken

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


class ScheduleFnDatabase(PyDatabase):
    """A function that schedules: it answers whether it knows the program.  It keeps no measurements."""

    def __init__(self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural"):
        self.schedule_fn = schedule_fn

    def commit_tuning_record(self, record: TuningRecord) -> None:
        raise error.UnsupportedError("a ScheduleFnDatabase keeps no measurements; put another database beside it")

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "") -> Optional[Schedule]:
        sch = Schedule(only_function(mod))
        return sch if self.schedule_fn(sch) else None


class OrderedUnionDatabase(PyDatabase):
    """Several: the first that has a schedule for a program answers; what is new goes to the first."""

    def __init__(self, *databases: PyDatabase):
        if not databases:
            raise error.ArgumentError("a union of databases wants at least one")
        self.databases = databases

    def commit_workload(self, mod: Any, target: Any = None) -> Any:
        return self.databases[0].commit_workload(mod, target)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self.databases[0].commit_tuning_record(record)

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "") -> Optional[Schedule]:
        for d in self.databases:
            found = d.query_schedule(mod, target, workload_name)
            if found is not None:
                return found
        return None


class UnionDatabase(OrderedUnionDatabase):
    """Several: the fastest of what they have."""

    def query_schedule(self, mod: Any, target: Any, workload_name: str = "") -> Optional[Schedule]:
        best: Any = None
        for d in self.databases:
            record = d.query_tuning_record(mod, target, workload_name) if isinstance(d, Database) else None
            if record is None:
                continue
            seconds = sorted(record.run_secs)[len(record.run_secs) // 2]
            if best is None or seconds < best[0]:
                best = (seconds, d)
        return best[1].query_schedule(mod, target, workload_name) if best else None


def create(kind: Any, work_dir: Optional[str]) -> Any:
    """Of what the tuning functions take as database=."""
    if isinstance(kind, PyDatabase):
        return kind
    if kind == "memory":
        return MemoryDatabase()
    if kind == "json":
        return JSONDatabase(work_dir=work_dir)
    raise error.ArgumentError(f"database is 'json', 'memory' or a Database, not {kind!r}")
