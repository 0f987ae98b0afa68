"""Measuring configurations: how, and what came out."""

from __future__ import annotations

import enum
import functools
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import error, te
from .._ffi import call
from .._ir.transform import PassContext
from ..build_module import _functions
from .space import InstantiationError
from .task import KernelTask, Task


class MeasureErrorNo(enum.IntEnum):
    """What a measurement came to."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1  #: the template or the schedule refused it
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4  #: it crashed
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class MeasureInput(NamedTuple):
    """What is measured."""

    target: Any
    task: Any
    config: Any


class MeasureResult(NamedTuple):
    """Seconds of all repeats, or why there are none."""

    costs: Tuple[Any, ...]
    error_no: int
    all_cost: float
    timestamp: float


class LocalBuilder:
    """Builds in child processes of this machine, each within timeout seconds."""

    def __init__(
        self,
        timeout: float = 10,
        n_parallel: Optional[int] = None,
        build_kwargs: Any = None,
        build_func: Any = "default",
        do_fork: bool = False,
        runtime: Any = None,
    ):
        if build_func not in ("default",) or build_kwargs:
            raise error.UnsupportedError(
                "LocalBuilder: build_func and build_kwargs are not supported; lathe builds itself"
            )
        self.timeout = timeout


class LocalRunner:
    """Runs in child processes of this machine: repeats of at least min_repeat_ms until their spread is small."""

    def __init__(
        self,
        timeout: float = 10,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        module_loader: Any = None,
    ):
        if enable_cpu_cache_flush or module_loader is not None:
            raise error.UnsupportedError("LocalRunner: enable_cpu_cache_flush and module_loader are not supported")
        self.timeout, self.number, self.repeat, self.min_repeat_ms = timeout, number, repeat, min_repeat_ms


class RPCRunner:
    """Other machines: refused."""

    def __init__(self, *_args: Any, **_kwargs: Any):
        raise error.UnsupportedError("RPCRunner: candidates are measured on this machine alone (LocalRunner)")


def measure_option(builder: Any = "local", runner: Any = "local") -> Dict[str, Any]:
    """How configurations are built and run."""
    builder = LocalBuilder() if builder == "local" else builder
    runner = LocalRunner() if runner == "local" else runner
    if not isinstance(builder, LocalBuilder) or not isinstance(runner, LocalRunner):
        raise error.TypeError("measure_option takes 'local', a LocalBuilder and a LocalRunner")
    return {"builder": builder, "runner": runner}


_STATUS = {
    "crash": MeasureErrorNo.RUNTIME_DEVICE,
    "wrong": MeasureErrorNo.WRONG_ANSWER,
    "hang": MeasureErrorNo.RUN_TIMEOUT,
    "error": MeasureErrorNo.COMPILE_HOST,
}


def _reference(task: Task) -> Any:
    """The computation in plain loops, whose numbers a configuration must give."""
    with task.target:
        _, args = task.instantiate(task.config_space.get(0))
    outputs = [a for a in args if isinstance(getattr(a, "op", None), te.ComputeOp)]
    return _functions(te.create_schedule([t.op for t in outputs]), args, "reference", None)[0]


def _seconds(runner: LocalRunner) -> float:
    """To spend on one candidate."""
    return max(runner.repeat * max(runner.min_repeat_ms, 10) / 1e3, 0.05)


def _result(said: Any, each: float) -> MeasureResult:
    status, note, costs, _base = said
    if status == "ok":
        return MeasureResult(tuple(costs), MeasureErrorNo.NO_ERROR, each, time.time())
    return MeasureResult((note,), _STATUS[status], each, time.time())


def _measure_plans(
    task: KernelTask, builder: LocalBuilder, runner: LocalRunner, inputs: Sequence[MeasureInput]
) -> List[MeasureResult]:
    start = time.time()
    plans = [i.config["plan"].val for i in inputs]
    with PassContext(opt_level=3):
        passes = PassContext.current().for_compiler([task.target._h])
    kernel = task.kernel
    said = call(
        "tune_measure_plans", kernel.mod, task.target._h, passes, kernel.workload, kernel.base, plans,
        _seconds(runner), builder.timeout, runner.timeout,
    )  # fmt: skip
    each = (time.time() - start) / max(len(inputs), 1)
    return [_result(s, each) for s in said]


def create_measure_batch(
    task: Task, option: Dict[str, Any]
) -> Callable[[Sequence[MeasureInput]], List[MeasureResult]]:
    """A function that measures inputs of the task."""
    builder, runner = option["builder"], option["runner"]
    if isinstance(task, KernelTask):
        return functools.partial(_measure_plans, task, builder, runner)
    reference = _reference(task)

    def instantiate(config: Any) -> Any:
        try:
            sch, args = task.instantiate(config)
            if not config.valid():
                raise InstantiationError("; ".join(config.errors))
            return _functions(sch, args, "main", None)[0]
        except (InstantiationError, error.LatheError) as e:
            return e

    def measure_batch(inputs: Sequence[MeasureInput]) -> List[MeasureResult]:
        start = time.time()
        made = [instantiate(i.config) for i in inputs]
        funcs = [f for f in made if not isinstance(f, Exception)]
        said = iter(
            call(
                "tune_measure", funcs, reference, task.target._h, _seconds(runner), builder.timeout, runner.timeout,
                None, True,
            )
        )  # fmt: skip
        each = (time.time() - start) / max(len(inputs), 1)
        out = []
        for f in made:
            if isinstance(f, Exception):
                out.append(MeasureResult((str(f),), MeasureErrorNo.INSTANTIATION_ERROR, each, time.time()))
                continue
            out.append(_result(next(said), each))
        return out

    return measure_batch
