"""Runners: from files of code to seconds.  One of one's own is a class with run(inputs), which gives futures."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from .. import error
from .arg_info import TensorInfo
from .utils import Part, absent


class EvaluatorConfig(NamedTuple):
    """How long is measured."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False


class RunnerInput(NamedTuple):
    """What is run."""

    artifact_path: str
    device_type: str
    args_info: List[TensorInfo]


class RunnerResult:
    """Seconds of all repeats, or why there are none."""

    def __init__(self, run_secs: Optional[Sequence[float]], error_msg: Optional[str], base_secs: Sequence[float] = ()):
        self.run_secs = None if run_secs is None else [float(s) for s in run_secs]
        self.error_msg = error_msg
        self.base_secs = list(base_secs)  #: of the program as it was given, measured in turns; []: it was not


class RunnerFuture:
    """A result that may come later: f_done says whether it is there, f_result gives it."""

    def __init__(self, f_done: Callable[[], bool], f_result: Callable[[], RunnerResult]):
        self._done, self._result = f_done, f_result

    def done(self) -> bool:
        """Is it there?"""
        return self._done()

    def result(self) -> RunnerResult:
        """The result; waits for it."""
        return self._result()


PyRunnerFuture = RunnerFuture


class Runner(Part):
    """A runner."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> List[RunnerFuture]:
        """One future for each."""
        raise NotImplementedError


PyRunner = Runner

_RUN = """
import json, sys
import numpy as np
import lathe
path, args, number, repeat, least = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
tensors = [lathe.nd.array((rng.standard_normal(s) if d.startswith(("float", "bfloat")) else
                           rng.integers(0, 3, s)).astype(d)) for d, s in args]
module = lathe.runtime.load_module(path)
timed = module.time_evaluator(module.entry_name, lathe.cpu(), number=number, repeat=repeat, min_repeat_ms=least)
print(json.dumps(list(timed(*tensors).results)))
"""


class LocalRunner(Runner):
    """In child processes of this machine."""

    def __init__(
        self,
        timeout_sec: float = 30.0,
        evaluator_config: Optional[EvaluatorConfig] = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        f_create_session: Any = None,
        f_alloc_argument: Any = None,
        f_run_evaluator: Any = None,
        f_cleanup: Any = None,
        initializer: Any = None,
    ):
        if any(f is not None for f in (f_create_session, f_alloc_argument, f_run_evaluator, f_cleanup, initializer)):
            raise error.UnsupportedError("LocalRunner: its steps are its own; write a runner (PyRunner) for others")
        self.timeout_sec, self.evaluator_config = timeout_sec, evaluator_config or EvaluatorConfig(repeat=3, number=3)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> List[RunnerFuture]:
        out = []
        for inp in runner_inputs:
            result = self._one(inp)
            out.append(RunnerFuture(lambda: True, lambda result=result: result))  # type: ignore[misc]
        return out

    def _one(self, inp: RunnerInput) -> RunnerResult:
        c = self.evaluator_config
        args = [[a.dtype, list(a.shape)] for a in inp.args_info]
        job = json.dumps([inp.artifact_path, args, c.number, c.repeat, c.min_repeat_ms])
        root = str(pathlib.Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        try:
            done = subprocess.run(
                [sys.executable, "-c", _RUN, job], capture_output=True, text=True, timeout=self.timeout_sec, env=env,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return RunnerResult(None, f"LocalRunner: nothing was heard for {self.timeout_sec:g} seconds")
        if done.returncode < 0:
            return RunnerResult(None, f"LocalRunner: signal {-done.returncode}")
        if done.returncode:
            return RunnerResult(None, f"LocalRunner: {(done.stderr.splitlines() or ['it ended'])[-1]}")
        return RunnerResult(json.loads(done.stdout), None)


class RPCRunner(Runner):
    """Refused."""

    def __init__(self, *_args: Any, **_kwargs: Any):
        raise error.UnsupportedError(
            "RPCRunner: TVM's RPC is not spoken; other machines measure as workers ('lathe tune --workers'), or through"
            " a runner of your own (PyRunner)"
        )


KINDS = {"local": LocalRunner}
globals()["__getattr__"] = absent("runner", "LocalRunner and runners of your own are there")
