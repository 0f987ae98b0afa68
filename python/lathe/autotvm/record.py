"""Logs of measurements: lines of JSON, as TVM's AutoTVM writes them, and the best of them for templates."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from .. import error
from .._ir.transform import tuned_lines
from ..target import Target
from .measure import MeasureInput, MeasureResult
from .space import ConfigEntity
from .task import DispatchContext, args_to_workload

VERSION = 0.2
Records = Union[str, "os.PathLike[str]", Iterable[Any]]


class _LoggedTask:
    """What a line says of its task."""

    def __init__(self, name: str, args: Tuple[Any, ...]):
        self.name, self.args, self.kwargs = name, args, {}

    @property
    def workload(self) -> Tuple[Any, ...]:
        """Its name and arguments."""
        return args_to_workload(self.args, self.name)


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """A line."""
    if protocol != "json":
        raise error.UnsupportedError(f"records are written as json, not as {protocol}")
    row = {
        "input": [str(inp.target), inp.task.name, list(inp.task.args), {}],
        "config": inp.config.to_json_dict(),
        "result": [list(result.costs), int(result.error_no), result.all_cost, result.timestamp],
        "version": VERSION,
        "tvm_version": "lathe",
    }
    return json.dumps(row)


def _tuples(x: Any) -> Any:
    return tuple(_tuples(v) for v in x) if isinstance(x, list) else x


def decode(row: str, protocol: str = "json") -> Optional[Tuple[MeasureInput, MeasureResult]]:
    """Of a line; None for one of another version."""
    if protocol != "json":
        raise error.UnsupportedError(f"records are read as json, not as {protocol}")
    if not row.strip() or row.startswith("#"):
        return None
    try:
        r = json.loads(row)
        if r.get("version") != VERSION:
            return None
        target, name, args, _ = r["input"]
        costs, code, all_cost, stamp = r["result"]
        inp = MeasureInput(Target(target), _LoggedTask(name, _tuples(args)), ConfigEntity.from_json_dict(r["config"]))
        return inp, MeasureResult(tuple(costs), code, all_cost, stamp)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise error.ArgumentError(f"a line is no record of AutoTVM: {row[:60]!r} ({e})") from None


def load_from_buffer(file: Iterable[str]) -> Iterator[Tuple[MeasureInput, MeasureResult]]:
    """The records of lines."""
    for number, row in enumerate(file, 1):
        try:
            found = decode(row)
        except error.ArgumentError as e:
            raise error.ArgumentError(f"line {number}: {e}") from None
        if found:
            yield found


def load_from_file(filepath: Union[str, "os.PathLike[str]"]) -> Iterator[Tuple[MeasureInput, MeasureResult]]:
    """The records of a log."""
    with open(filepath, encoding="utf-8") as f:
        yield from load_from_buffer(f)


def _cost(result: MeasureResult) -> float:
    good = [c for c in result.costs if isinstance(c, (int, float))]
    return sorted(good)[len(good) // 2] if result.error_no == 0 and good else float("inf")


def pick_best(in_file: str, out_file: str) -> None:
    """Writes the fastest record of each task of a log."""
    best: Dict[Any, Tuple[MeasureInput, MeasureResult]] = {}
    for inp, result in load_from_file(in_file):
        key = (str(inp.target), inp.task.workload)
        if result.error_no == 0 and (key not in best or _cost(result) < _cost(best[key][1])):
            best[key] = (inp, result)
    with open(out_file, "a", encoding="utf-8") as f:
        f.writelines(encode(*pair) + "\n" for pair in best.values())


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """A text that equal inputs share."""
    return "".join([str(inp.target), inp.task.name, str(inp.task.args), str(inp.config) if include_config else ""])


class ApplyHistoryBest(DispatchContext):
    """The fastest configuration of a log for each template and its arguments; targets count by kind.  Networks that
    are built in this context get the plans of their kernels that were faster than the untuned ones."""

    def __init__(self, records: Optional[Records]):
        self.best: Dict[Any, Tuple[float, ConfigEntity]] = {}
        self.plans: Dict[str, Dict[str, float]] = {}  # of a workload: seconds of each plan
        self.base: Dict[str, str] = {}  # its untuned plan
        if records is not None:
            self.load(records)

    def load(self, records: Records) -> None:
        """Takes a log, or pairs of inputs and results."""
        many: List[Any] = list(load_from_file(records) if isinstance(records, (str, os.PathLike)) else records)
        for item in many:
            pairs = load_from_file(item) if isinstance(item, (str, os.PathLike)) else [item]
            for inp, result in pairs:
                self.update(inp, result)

    def update(self, inp: MeasureInput, result: MeasureResult) -> None:
        """Takes one measurement."""
        if result.error_no != 0:
            return
        if "plan" in inp.config and "base" in inp.config:
            workload = inp.task.args[0]
            self.base[workload] = inp.config["base"].val
            times = self.plans.setdefault(workload, {})
            plan = inp.config["plan"].val
            times[plan] = min(_cost(result), times.get(plan, float("inf")))
            return
        key = (Target(str(inp.target)).kind.name, inp.task.workload)
        if key not in self.best or _cost(result) < self.best[key][0]:
            self.best[key] = (_cost(result), inp.config)

    def lines(self) -> str:
        """For the config lathe.tuned: plans that need less than 99 hundredths of the untuned plan's time."""
        out = []
        for workload, times in self.plans.items():
            base = self.base[workload]
            plan = min(times, key=lambda p: times[p])  # pylint: disable=cell-var-from-loop
            if base in times and times[plan] < 0.99 * times[base]:
                out.append(f"{workload} {base} => {plan}\n")
        return "".join(out)

    def __enter__(self) -> "ApplyHistoryBest":
        super().__enter__()
        tuned_lines.append(self.lines())
        return self

    def __exit__(self, *exc: Any) -> None:
        tuned_lines.pop()
        super().__exit__(*exc)

    def _query_inside(self, target: Any, workload: Tuple[Any, ...]) -> Any:
        kind = (target or Target()).kind.name
        found = self.best.get((kind, workload))
        return found[1] if found else None


class ApplyGraphBest(ApplyHistoryBest):
    """The plans that graph_tuner chose together, as its file has them."""

    def lines(self) -> str:
        return "".join(f"{w} {plan}\n" for w, times in self.plans.items() for plan in times)


def apply_history_best(records: Optional[Records]) -> ApplyHistoryBest:
    """A context in which templates and networks get what was fastest in a log."""
    return ApplyHistoryBest(records)


def apply_graph_best(records: Records) -> ApplyGraphBest:
    """A context in which networks get what graph_tuner wrote."""
    return ApplyGraphBest(records)
