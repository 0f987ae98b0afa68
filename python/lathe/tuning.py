"""Tuning: faster plans for a model's kernels, found by measuring, and the databases that they are kept in.

What a database has is used by relay.build under PassContext(config={"lathe.tuned.database": path})."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ._ffi.core import call, callback_scope
from ._ir.module import IRModule
from ._ir.transform import PassContext
from .relay.build_module import as_module
from .target import Target, resolve

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Summary:
    """What tuning a network came to; seconds are those of one run."""

    tasks: int
    skipped: int  #: workloads that have a choice and cannot be measured alone
    trials: int
    failed: int
    wins: int  #: workloads for which something faster was found
    kept: int  #: of those, the ones that the network gains from
    before: float
    after: float
    spread: float
    stopped: bool
    judged: bool  #: the network was measured whole

    @property
    def speedup(self) -> float:
        """How many times as fast the network is."""
        return self.before / self.after if self.after > 0 else 1.0


@dataclasses.dataclass(frozen=True)
class Task:
    """A kernel of a network that can be computed in several ways."""

    workload: str
    what: str
    calls: int
    flops: float
    base: str  #: the plan that it has untuned
    plans: List[Tuple[str, float]]  #: with predicted seconds, the fastest first
    mod: IRModule  #: the call with what is fused to it


@dataclasses.dataclass(frozen=True)
class Row:
    """One workload in the middle of tuning."""

    workload: str
    what: str
    calls: int
    share: float
    seconds: float
    ratio: float
    trials: int
    failed: int
    left: int
    flops: float


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far tuning is: stage is "profile", "measure", "network" or "done"."""

    stage: str
    task: int
    elapsed: float
    left: float
    before: float
    after: float
    rows: List[Row]


_ProgressFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def _listener(progress: Callable[[Progress], Any]) -> Any:
    def run(_user: Any, value: Any) -> int:
        with callback_scope(value) as (said, failed):
            try:
                *head, rows = said
                return int(bool(progress(Progress(*head, [Row(*r) for r in rows]))))
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    return _ProgressFn(run)


def _limited(target: Any, threads: Optional[int]) -> Target:
    t = resolve(target)
    return t if threads is None else resolve(f"{t} -num-cores={threads}")


def tune(
    mod: Any,
    target: Any = None,
    *,
    database: Path,
    seconds: Optional[float] = None,
    trials: Optional[int] = None,
    resume: bool = False,
    threads: Optional[int] = None,
    params: Optional[Dict[str, Any]] = None,
    progress: Optional[Callable[[Progress], Any]] = None,
) -> Summary:
    """Measures other plans for the kernels of mod's main function, for so many seconds or measurements.

    Everything goes to the database as it is found; resume leaves out what it has.  threads is the number that the model
    will run on: the target gets -num-cores of it.  progress is called after each step, and ends the search with a value
    that is true."""
    t = _limited(target, threads)
    fn = _listener(progress) if progress else None
    address = ctypes.cast(fn, ctypes.c_void_p).value if fn else None
    ctx = PassContext.current().for_compiler([t._h])
    module = as_module(mod, params)
    return Summary(
        *call("tune_network", module, t._h, ctx, os.fspath(database), seconds, trials, resume, threads, address)
    )


def extract_tasks(mod: Any, target: Any = None, params: Optional[Dict[str, Any]] = None) -> List[Task]:
    """The workloads of mod's main function that have a choice of plans."""
    t = resolve(target)
    ctx = PassContext.current().for_compiler([t._h])
    rows = call("tune_tasks", as_module(mod, params), t._h, ctx)
    return [
        Task(w, what, calls, flops, base, [(p, s) for p, s in plans], m)
        for w, what, calls, flops, base, plans, m in rows
    ]


class Database:
    """A file of measurements."""

    def __init__(self, path: Path):
        self.path = os.fspath(path)

    def entries(self) -> List[Dict[str, Any]]:
        """Records and networks, as 'lathe db export' writes them."""
        return [json.loads(line) for line in call("db_export", self.path).splitlines()]

    def records(self, workload: str = "") -> List[Dict[str, Any]]:
        """Measurements of workloads with this in their names."""
        return [e for e in self.entries() if e["entry"] == "record" and workload in e["workload"]]

    def import_lines(self, lines: str) -> Tuple[int, int, int]:
        """Takes lines of JSON: how many were new, were there already, were no such lines."""
        taken, known, bad, _why = call("db_import", self.path, lines)
        return taken, known, bad

    def merge(self, other: Path) -> Tuple[int, int]:
        """Takes what another database has: how many entries were new, and were there already."""
        taken, known, _bad, _why = call("db_merge", self.path, os.fspath(other))
        return taken, known

    def prune(self) -> int:
        """Drops what no compilation would use; how many entries."""
        return int(call("db_prune", self.path))
