"""The graph executor, under TVM's names."""

from __future__ import annotations

from typing import Any, Optional, Union

from .. import error
from ..runtime.device import Device, cpu
from ..runtime.model import Executor, Model
from ..runtime.module import BenchmarkResult
from ..runtime.ndarray import NDArray


class GraphModule:
    """An executor of a compiled model: set_input, run, get_output.

    >>> m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    >>> m.set_input("input", x); m.run(); y = m.get_output(0).numpy()"""

    def __init__(self, module: Any):
        executor = getattr(module, "executor", module)
        if isinstance(executor, Model):
            executor = Executor(executor)
        if not isinstance(executor, Executor):
            raise error.TypeError(f"GraphModule takes lib[\"default\"](device), not a {type(module).__name__}")
        self.module, self._executor = module, executor

    def set_input(self, key: Union[None, int, str] = None, value: Any = None, **params: Any) -> None:
        """Sets one input by name or number, or several by keyword."""
        if key is not None:
            self._executor.set_input(key, value)
        for name, v in params.items():
            self._executor.set_input(name, v)

    def set_input_zero_copy(self, key: Union[int, str], value: Any = None, **params: Any) -> None:
        """The same as set_input: the array is copied."""
        self.set_input(key, value, **params)

    def run(self, **input_dict: Any) -> None:
        """Sets the inputs given and runs."""
        if input_dict:
            self.set_input(**input_dict)
        self._executor.run()

    def get_num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._executor.outputs)

    def get_num_inputs(self) -> int:
        """Number of inputs."""
        return len(self._executor.inputs)

    def get_input(self, index: Union[int, str], out: Optional[NDArray] = None) -> NDArray:
        """An input that was set."""
        a = self._executor.get_input(index)
        return out.copyfrom(a) if out is not None else a

    def get_input_index(self, name: str) -> int:
        """Number of an input; -1 if there is none of that name."""
        return self._executor._index.get(name, -1)

    def get_output(self, index: int, out: Optional[NDArray] = None) -> NDArray:
        """An output."""
        a = self._executor.get_output(index)
        return out.copyfrom(a) if out is not None else a

    def get_input_info(self) -> Any:
        """Shapes and dtypes of the inputs, by name."""
        return {p.name: p.shape for p in self._executor.inputs}, {p.name: p.dtype for p in self._executor.inputs}

    def load_params(self, params_bytes: bytes) -> None:
        """Parameters are part of the compiled model; there is nothing to load."""
        raise error.UnsupportedError("load_params: the weights are in the compiled model already")

    def debug_get_output(self, node: Any, out: Any = None) -> Any:
        """See lathe.contrib.debugger.debug_executor."""
        raise error.UnsupportedError("debug_get_output: use lathe.contrib.debugger.debug_executor")

    def benchmark(
        self,
        device: Device = cpu(0),
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: Optional[int] = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Seconds of a run, `number` runs in each of `repeat` rounds."""
        import time

        if kwargs:
            self.set_input(**kwargs)
        self.run()
        seconds = []
        for _ in range(repeat):
            n = number
            while True:
                start = time.perf_counter()
                for _ in range(n):
                    self._executor.run()
                    if end_to_end:
                        self.get_output(0)
                spent = time.perf_counter() - start
                if min_repeat_ms is None or spent * 1e3 >= min_repeat_ms:
                    break
                n *= 2
            seconds.append(spent / n)
        return BenchmarkResult(seconds)

    def __getitem__(self, key: str) -> Any:
        if key in ("set_input", "run", "get_output", "get_num_outputs", "get_num_inputs", "get_input"):
            return getattr(self, key)
        raise error.ArgumentError(f"a GraphModule has no function '{key}'")

    def time_evaluator(self, func_name: str = "run", dev: Device = cpu(0), number: int = 10, repeat: int = 1, min_repeat_ms: int = 0, **_kwargs: Any) -> Any:
        """A function that measures runs."""
        if func_name != "run":
            raise error.UnsupportedError(f"time_evaluator: '{func_name}' cannot be timed; 'run' can")
        return lambda *args: self.benchmark(dev, "run", repeat, number, min_repeat_ms or None)

    module_executor = property(lambda self: self._executor, doc="the executor itself")


def create(graph_json_str: Any, libmod: Any, device: Any = None) -> GraphModule:
    """A graph executor of a compiled library; the graph is part of it."""
    return GraphModule(libmod["default"](device))
