"""The graph executor, under TVM's names."""

from __future__ import annotations

from typing import Any, Dict, Optional, Union

import numpy as np

from .. import error
from ..runtime.device import Device, cpu
from ..runtime.model import Executor, Model
from ..runtime.benchmark import BenchmarkResult
from ..runtime.params import load_param_dict
from ..runtime.ndarray import NDArray


#: What module["…"] gives, as TVM's packed functions have it.
_FUNCTIONS = (
    "set_input",
    "set_input_zero_copy",
    "set_output_zero_copy",
    "run",
    "get_output",
    "get_num_outputs",
    "get_num_inputs",
    "get_input",
    "get_input_index",
    "get_input_info",
    "load_params",
    "share_params",
)


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
        """Sets one input by name or number, or several by keyword.  A numpy array of floats of another size is
        converted, as
        TVM does."""
        if key is not None:
            self._set(key, value)
        for name, v in params.items():
            self._set(name, v)

    def _set(self, key: Union[int, str], value: Any) -> None:
        dtype = self._executor.inputs[self._executor.input_index(key)].dtype
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and dtype in ("float16", "float32", "float64"):
            value = value.astype(dtype, copy=False)
        self._executor.set_input(key, value)

    def set_input_zero_copy(self, key: Union[None, int, str] = None, value: Any = None, **params: Any) -> None:
        """Binds inputs to the memory of these arrays: what is written into them later is seen by the next run.  They
        must
        be compact, of the input's dtype and shape; otherwise this is refused."""
        if key is not None:
            self._executor.set_input_view(key, value)
        for name, v in params.items():
            self._executor.set_input_view(name, v)

    def set_output_zero_copy(self, key: Union[int, str], value: Any) -> None:
        """Binds an output to the memory of this array: each run leaves it there.  None: no longer."""
        self._executor.set_output_view(key, value)

    def run(self, **input_dict: Any) -> None:
        """Sets the inputs given and runs."""
        if input_dict:
            self.set_input(**input_dict)
        self._executor.run()

    def reset(self) -> None:
        """What the model keeps from one run to the next (a cell's state, variables) begins anew."""
        self._executor.reset()

    def entry(self, name: Union[int, str]) -> "GraphModule":
        """Another entry of the model, on the same executor: objects that one gives (a state, a cache) are inputs of the
        other."""
        return GraphModule(self._executor.entry(name))

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

    def get_output(self, index: Union[int, str], out: Optional[NDArray] = None) -> NDArray:
        """An output, by number or name."""
        a = self._executor.get_output(index)
        return out.copyfrom(a) if out is not None else a

    def get_input_info(self) -> Any:
        """Shapes and dtypes of the inputs, by name."""
        return {p.name: p.shape for p in self._executor.inputs}, {p.name: p.dtype for p in self._executor.inputs}

    def load_params(self, params_bytes: bytes) -> None:
        """Sets the inputs of these names (the bytes are relay.save_param_dict's).  Parameters that were bound at
        compile time
        are part of the model and cannot be set."""
        for name, value in self._params(params_bytes).items():
            self._executor.set_input(name, value)

    def _params(self, params_bytes: bytes) -> Dict[str, NDArray]:
        params = load_param_dict(params_bytes)
        bound = [name for name in params if name not in self._executor._index]
        if bound:
            raise error.ArgumentError(
                f"'{bound[0]}' is not an input: it was bound when the model was compiled, and cannot be set any more"
            )
        return params

    def share_params(self, other: "GraphModule", params_bytes: bytes) -> None:
        """Inputs of these names lie in the same memory as the other executor's.  Weights bound at compile time are
        shared by
        all executors of a model anyway."""
        for name in self._params(params_bytes):
            i = other._executor.input_index(name)
            held = other._executor._borrowed.get(("input", i))
            if held is None:
                held = other._executor.get_input(i)
                other._executor.set_input_view(i, held)
            self._executor.set_input_view(name, held)

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
        if key in _FUNCTIONS:
            return getattr(self, key)
        raise error.ArgumentError(f"a GraphModule has no function '{key}'")

    def time_evaluator(
        self,
        func_name: str = "run",
        dev: Device = cpu(0),
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        **_kwargs: Any,
    ) -> Any:
        """A function that measures runs."""
        if func_name != "run":
            raise error.UnsupportedError(f"time_evaluator: '{func_name}' cannot be timed; 'run' can")
        return lambda *args: self.benchmark(dev, "run", repeat, number, min_repeat_ms or None)

    module_executor = property(lambda self: self._executor, doc="the executor itself")


def create(graph_json_str: Any, libmod: Any, device: Any = None) -> GraphModule:
    """A graph executor of a compiled library; the graph is part of it."""
    return GraphModule(libmod["default"](device))
