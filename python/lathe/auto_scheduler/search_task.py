"""A computation to tune, how long, and where its records go."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from .. import error, tuning
from .._ffi import call
from ..target import resolve
from ..tir.schedule import Schedule
from .compute_dag import ComputeDAG
from .measure_record import best_state, is_log

WORKLOADS: Dict[str, Callable[..., Any]] = {}


def register_workload(
    func_name: Union[str, Callable[..., Any]], f: Optional[Callable[..., Any]] = None, override: bool = False
) -> Any:
    """Decorator: a function that gives the tensors of a computation, its outputs last."""

    def register(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if name in WORKLOADS and not override:
            raise error.ArgumentError(f"there is a workload '{name}' already")
        WORKLOADS[name] = function
        return function

    if callable(func_name):
        return register(func_name.__name__, func_name)
    name = func_name
    return register(name, f) if f else lambda function: register(name, function)


class RecordToFile:
    """Where the records go: a database of Lathe's."""

    def __init__(self, filename: str):
        self.filename = filename


class LocalRunner:
    """On this machine; how long each measurement takes is Lathe's own business."""

    def __init__(
        self,
        timeout: int = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ):
        self.timeout = timeout


class LocalBuilder:
    """On this machine."""

    def __init__(self, timeout: int = 15, n_parallel: Optional[int] = None, build_func: str = "default"):
        self.timeout = timeout


class LocalRPCMeasureContext:
    """For programs that make one: its runner is the local one."""

    def __init__(self, *_args: Any, **_kwargs: Any):
        self.runner = LocalRunner()


class HardwareParams:
    """Of a CPU: the target knows them."""

    def __init__(
        self,
        num_cores: Optional[int] = None,
        vector_unit_bytes: Optional[int] = None,
        cache_line_bytes: Optional[int] = None,
        *_gpu: Any,
        **_more: Any,
    ):
        self.num_cores = num_cores


class TuningOptions:
    """How long, and where records go."""

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: Optional[int] = None,
        num_measures_per_round: int = 64,
        verbose: int = 1,
        builder: Any = "local",
        runner: Any = "local",
        measure_callbacks: Optional[Sequence[Any]] = None,
    ):
        for part in (builder, runner):
            if not (part == "local" or isinstance(part, (LocalBuilder, LocalRunner))):
                raise error.UnsupportedError(
                    "TuningOptions: candidates are built and run on this machine alone ('local')"
                )
        self.num_measure_trials, self.early_stopping, self.verbose = num_measure_trials, early_stopping, verbose
        files = [c for c in measure_callbacks or () if isinstance(c, RecordToFile)]
        if len(files) != len(measure_callbacks or ()) or len(files) > 1:
            raise error.UnsupportedError("TuningOptions: measure_callbacks takes one RecordToFile")
        self.file = files[0].filename if files else None


class XGBModel:
    """The engine's cost model."""

    def __init__(self, verbose_eval: int = 25, num_warmup_sample: int = 100, seed: Optional[int] = None, **_more: Any):
        self.seed = seed


class PreloadMeasuredStates:
    """The records of another file count from the start."""

    def __init__(self, filename: str):
        self.filename = filename


class SketchPolicy:
    """The one search that there is, with a seed and records to start from."""

    def __init__(
        self,
        task: "SearchTask",
        program_cost_model: Any = None,
        params: Any = None,
        seed: Optional[int] = None,
        verbose: int = 1,
        init_search_callbacks: Optional[Sequence[Any]] = None,
    ):
        if not isinstance(program_cost_model, (XGBModel, type(None))):
            raise error.UnsupportedError(
                "SketchPolicy: the cost model is the engine's (XGBModel); meta_schedule.tune_tir takes models of yours"
            )
        if params is not None:
            raise error.UnsupportedError("SketchPolicy: params of Ansor's search have no counterpart; leave them out")
        self.task, self.seed = task, seed
        self.preloaded = [c.filename for c in init_search_callbacks or () if isinstance(c, PreloadMeasuredStates)]
        if len(self.preloaded) != len(init_search_callbacks or ()):
            raise error.UnsupportedError("SketchPolicy: init_search_callbacks takes PreloadMeasuredStates alone")


def make_workload_key(func: Union[str, Callable[..., Any]], args: Sequence[Any]) -> str:
    """What a log calls a registered computation with these arguments."""
    name = func if isinstance(func, str) else next((n for n, f in WORKLOADS.items() if f is func), None)
    if name not in WORKLOADS:
        raise error.ArgumentError(f"make_workload_key: {func!r} is no registered workload")
    return json.dumps([name, *args])


def create_task(func: Any, args: Sequence[Any], target: Any, hardware_params: Any = None) -> "SearchTask":
    """A SearchTask, as older programs make it."""
    return SearchTask(func=func, args=args, target=target, hardware_params=hardware_params)


def _is_plain(args: Sequence[Any]) -> bool:
    """Can a key in a log be made of them?"""
    return all(isinstance(a, (int, float, str, list, tuple)) for a in args)


class SearchTask:
    """A registered computation with its arguments, for a target."""

    def __init__(
        self,
        func: Any = None,
        args: Sequence[Any] = (),
        compute_dag: Optional[ComputeDAG] = None,
        workload_key: Optional[str] = None,
        target: Any = None,
        target_host: Any = None,
        hardware_params: Optional[HardwareParams] = None,
        layout_rewrite_option: Any = None,
        task_inputs: Any = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
    ):
        if func is None and compute_dag is None:
            raise error.ArgumentError("SearchTask wants func (a registered workload) or compute_dag")
        if isinstance(func, str):
            if func not in WORKLOADS:
                raise error.ArgumentError(
                    f"there is no workload '{func}'; those there are: {', '.join(WORKLOADS) or 'none'}"
                )
            func = WORKLOADS[func]
        known = func is not None and func in WORKLOADS.values() and _is_plain(args)
        self._ansor_key = make_workload_key(func, args) if known else None
        self.compute_dag = compute_dag or ComputeDAG(func(*args))
        self.target = resolve(target)
        self.desc = desc
        self._func = self.compute_dag.prim_func()
        self.workload_key: str = workload_key or call("tune_program_name", self._func, self.target._h)

    def tune(self, tuning_options: TuningOptions, search_policy: Any = None, adaptive_training: bool = False) -> None:
        """Measures so many schedules; the records of the file count."""
        named = search_policy in (None, "default", "sketch.xgb", "sketch.random")
        if not named and not isinstance(search_policy, SketchPolicy):
            raise error.UnsupportedError("SearchTask.tune: the search policy is a SketchPolicy")
        if isinstance(search_policy, SketchPolicy) and tuning_options.file:
            for other in search_policy.preloaded:
                if os.path.abspath(other) != os.path.abspath(tuning_options.file):
                    tuning.Database(tuning_options.file).merge(other)
        call(
            "tune_program",
            self._func,
            self.target._h,
            tuning_options.file,
            None,
            max(tuning_options.num_measure_trials, 1),
            True,
            getattr(search_policy, "seed", None) or 1,
            None,
            None,
        )

    def _best(self, log_file: str) -> Schedule:
        trace = call("tuned_trace", log_file, self._func, self.target._h) if os.path.exists(log_file) else None
        if not trace:
            raise error.ArgumentError(
                f"'{log_file}' has no schedule for this task that is faster than the program itself"
            )
        sch = Schedule(self._func)
        sch._replay(trace)
        return sch

    def apply_best(
        self, log_file: str, include_compatible: bool = False, layout_rewrite_option: Any = None
    ) -> Tuple[Any, List[Any]]:
        """The fastest schedule of the file and the tensors, as lower and build take them.  The file is a database of
        Lathe's, or a log of Ansor's."""
        if os.path.exists(log_file) and is_log(log_file):
            keys = [k for k in (self._ansor_key, self.workload_key) if k]
            return self.compute_dag.apply_steps_from_state(best_state(log_file, keys))
        return self._best(log_file), list(self.compute_dag.tensors)

    def print_best(self, log_file: str, print_mode: str = "schedule") -> str:
        """The fastest schedule as text."""
        return str(self._best(log_file).trace)

    def __repr__(self) -> str:
        return f"SearchTask({self.workload_key})"
