"""Records as Ansor writes them: a line of JSON each, with the steps of a state and what it took.

    for inp, res in load_records("matmul.json"):
        sch, args = task.compute_dag.apply_steps_from_state(inp.state)

The steps are those of schedules of tensor expressions, so they are carried out on one.  Stages are counted as Ansor
counts them: all operations, producers first, those that a step makes where Ansor puts them."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from .. import error, te

ANNOTATIONS = {0: None, 1: "unroll", 2: "vectorize", 3: "parallel"}  # those above are for GPUs


class State:
    """The steps of a schedule, as the record has them."""

    def __init__(self, transform_steps: Sequence[Sequence[Any]]):
        self.transform_steps = [list(s) for s in transform_steps]


class MeasureInput:
    """What was measured: the key of the computation, the target as text, the state."""

    def __init__(self, workload_key: str, target: str, state: State, rest: Sequence[Any] = ()):
        self.workload_key, self.target, self.state, self.rest = workload_key, target, state, list(rest)


class MeasureResult:
    """Seconds of each repeat; error_no 0: it went well."""

    def __init__(self, costs: Sequence[float], error_no: int = 0, all_cost: float = 0.0, timestamp: float = 0.0):
        self.costs, self.error_no = [float(c) for c in costs], error_no
        self.all_cost, self.timestamp = all_cost, timestamp


def load_record_from_string(line: str) -> Tuple[MeasureInput, MeasureResult]:
    """One line."""
    try:
        entry = json.loads(line)
        (key, target, *rest), (_, steps) = entry["i"]
        costs, error_no, all_cost, timestamp = entry["r"]
        return (
            MeasureInput(str(key), str(target), State(steps), rest),
            MeasureResult(costs, int(error_no), float(all_cost), float(timestamp)),
        )
    except (ValueError, KeyError, TypeError) as e:
        raise error.ArgumentError(f"this is no record of Ansor's: {type(e).__name__}: {e}") from None


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """The line of a record."""
    what = [[inp.workload_key, inp.target, *inp.rest], [[], inp.state.transform_steps]]
    return json.dumps({"i": what, "r": [res.costs, res.error_no, res.all_cost, int(res.timestamp)], "v": "v0.6"}) + "\n"


def load_records(filename: str) -> Iterator[Tuple[MeasureInput, MeasureResult]]:
    """The records of a file."""
    with open(filename, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                yield load_record_from_string(line)
            except error.ArgumentError as e:
                raise error.ArgumentError(f"'{filename}', line {number}: {e}") from None


class RecordReader:
    """The records of a file, for loops over it or all at once."""

    def __init__(self, filename: str):
        self.filename = filename

    def read_lines(
        self, max_lines: Optional[int] = None, skip_lines: int = 0
    ) -> Tuple[List[MeasureInput], List[MeasureResult]]:
        """Inputs and results, of so many lines."""
        last = None if max_lines is None else skip_lines + max_lines
        pairs = list(itertools.islice(load_records(self.filename), skip_lines, last))
        return [i for i, _ in pairs], [r for _, r in pairs]

    def __iter__(self) -> Iterator[Tuple[MeasureInput, MeasureResult]]:
        return load_records(self.filename)


def save_records(filename: str, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Appends records to a file."""
    with open(filename, "a", encoding="utf-8") as f:
        f.writelines(dump_record_to_string(i, r) for i, r in zip(inputs, results))


def load_best_record(
    filename: str, workload_key: Optional[str] = None, target: Any = None, include_compatible: bool = False
) -> Tuple[Optional[MeasureInput], Optional[MeasureResult]]:
    """The fastest that went well; (None, None): there is none."""
    best: Tuple[Optional[MeasureInput], Optional[MeasureResult]] = (None, None)
    least = math.inf
    for inp, res in load_records(filename):
        if res.error_no or not res.costs or (workload_key is not None and inp.workload_key != workload_key):
            continue
        if target is not None and str(target).split()[0] != inp.target.split()[0]:
            continue
        mean = sum(res.costs) / len(res.costs)
        if mean < least:
            least, best = mean, (inp, res)
    return best


# ---- steps carried out


class _Replay:
    """A schedule of tensor expressions under way: Ansor's stages and the loops of each."""

    def __init__(self, tensors: Sequence[Any]):
        self.sch = te.create_schedule([t.op for t in tensors if isinstance(t.op, te.ComputeOp)])
        self.stages: List[Any] = list(self.sch.stages)
        self.axes: List[List[Any]] = [self._loops(s) for s in self.stages]
        self.steps: List[List[Any]] = []

    @staticmethod
    def _loops(stage: Any) -> List[Any]:
        op = stage.op
        return list(op.axis) + list(op.reduce_axis) if isinstance(op, te.ComputeOp) else []

    def _insert(self, at: int, tensor: Any) -> None:
        self.stages.insert(at, self.sch[tensor])
        self.axes.insert(at, self._loops(self.stages[at]))

    def _split(self, stage: int, axis: int, lengths: Sequence[int], inner_to_outer: bool) -> None:
        loop, out = self.axes[stage][axis], []
        if inner_to_outer:
            for length in reversed(lengths):
                loop, inner = self.stages[stage].split(loop, factor=length)
                out.insert(0, inner)
            out.insert(0, loop)
        else:
            for length in lengths:
                outer, loop = self.stages[stage].split(loop, nparts=length)
                out.append(outer)
            out.append(loop)
        self.axes[stage][axis : axis + 1] = out

    def step_sp(self, stage: int, axis: int, extent: Any, lengths: Sequence[int], inner_to_outer: Any) -> None:
        """Split."""
        self._split(stage, axis, lengths, bool(inner_to_outer))

    def step_fsp(self, stage: int, axis: int, source: int, n: int) -> None:
        """Split as another step did, the last of its lengths together."""
        lengths = self.steps[source][4]
        self._split(stage, axis, [*lengths[: n - 1], math.prod(lengths[n - 1 :])], True)

    def step_ffsp(self, stage: int, axis: int, sources: Sequence[int], level: int, by_factor: Any) -> None:
        """Split by what other steps made of loops that were fused since."""
        self._split(stage, axis, [math.prod(self.steps[s][4][level] for s in sources)], bool(by_factor))

    def step_fu(self, stage: int, which: Sequence[int]) -> None:
        """Fuse."""
        loops = self.axes[stage]
        fused = loops[which[0]] if len(which) == 1 else self.stages[stage].fuse(*[loops[i] for i in which])
        self.axes[stage] = loops[: which[0]] + [fused] + loops[which[-1] + 1 :]

    def step_re(self, stage: int, order: Sequence[int]) -> None:
        """Reorder."""
        self.axes[stage] = [self.axes[stage][i] for i in order]
        self.stages[stage].reorder(*self.axes[stage])

    def step_an(self, stage: int, axis: int, kind: int) -> None:
        """Annotate."""
        if kind not in ANNOTATIONS:
            raise error.UnsupportedError(f"annotation {kind} is for GPUs")
        name = ANNOTATIONS[kind]
        if name:
            getattr(self.stages[stage], name)(self.axes[stage][axis])

    def step_pr(self, stage: int, axis: int, pragma: str) -> None:
        """Pragma: only how much is unrolled."""
        key, _, value = pragma.partition("$")
        if key != "auto_unroll_max_step":
            raise error.UnsupportedError(f"pragma '{key}' has no counterpart")
        self.stages[stage].pragma(self.axes[stage][axis], key, int(value))

    def step_ca(self, stage: int, target: int, axis: int) -> None:
        """Compute at."""
        self.stages[stage].compute_at(self.stages[target], self.axes[target][axis])

    def step_ci(self, stage: int) -> None:
        """Inline."""
        self.stages[stage].compute_inline()

    def step_cr(self, stage: int) -> None:
        """Compute at the root."""
        self.stages[stage].compute_root()

    def step_chw(self, stage: int, scope: str) -> None:
        """Cache write: the new stage stands before."""
        made = self.sch.cache_write(self.stages[stage].origin_op.output(0), scope)
        self.axes[stage] = self._loops(self.stages[stage])
        self._insert(stage, made)

    def step_chr(self, stage: int, scope: str, readers: Sequence[int]) -> None:
        """Cache read: the new stage stands behind."""
        source = self.stages[stage].origin_op.output(0)
        made = self.sch.cache_read(source, scope, [self.stages[r].op for r in readers])
        self._insert(stage + 1, made)

    def step_rf(self, stage: int, axis: int, factor_axis: int) -> None:
        """Rfactor: the new stage stands before."""
        made = self.sch.rfactor(self.stages[stage].origin_op.output(0), self.axes[stage][axis], factor_axis)
        self._insert(stage, made[0] if isinstance(made, (list, tuple)) else made)
        self.axes[stage + 1] = self._loops(self.stages[stage + 1])


def apply_steps(tensors: Sequence[Any], state: State) -> Tuple[Any, List[Any]]:
    """The schedule that the steps of a state make, and the tensors."""
    replay = _Replay(tensors)
    for number, (kind, *args) in enumerate(state.transform_steps):
        step = getattr(replay, f"step_{str(kind).lower()}", None)
        if step is None:
            raise error.UnsupportedError(f"step {number}: '{kind}' of Ansor's has no counterpart")
        if kind == "SP" and len(args) > 2 and args[2] is not None and args[0] < len(replay.axes):
            found = _extent(replay.axes[args[0]][args[1]]) if args[1] < len(replay.axes[args[0]]) else None
            if found not in (None, args[2]):
                raise error.ArgumentError(
                    f"step {number} splits a loop of {args[2]} steps, which has {found} here: the record is of another"
                    " computation"
                )
        try:
            step(*args)
        except (IndexError, TypeError) as e:
            raise error.ArgumentError(f"step {number} ({kind} {args}) does not fit the computation: {e}") from None
        replay.steps.append([kind, *args])
    return replay.sch, list(tensors)


def _extent(axis: Any) -> Optional[int]:
    try:
        return int(axis.dom.extent)
    except (AttributeError, TypeError, ValueError):
        return None


def is_log(filename: str) -> bool:
    """Lines of JSON, and no database of Lathe's?"""
    with open(filename, "rb") as f:
        return f.read(1) in (b"{", b"#")


def best_state(filename: str, keys: Sequence[str]) -> State:
    """Of the fastest record with one of these keys."""
    found: Dict[str, Any] = {k: load_best_record(filename, k) for k in keys}
    good = [(sum(r.costs) / len(r.costs), i.state) for i, r in found.values() if r is not None]
    if not good:
        raise error.ArgumentError(f"'{filename}' has no record of the workload {' or '.join(keys)}")
    return min(good, key=lambda x: x[0])[1]
