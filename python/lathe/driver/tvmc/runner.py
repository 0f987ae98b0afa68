"""Running a package."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np

from ... import error
from ...contrib import graph_executor
from ...contrib.debugger import debug_executor
from ...runtime.device import device as device_by_name
from ...runtime.ndarray import storage
from .model import TVMCPackage, TVMCResult

FILL_MODES = ("zeros", "ones", "random")


def generate_tensor_data(shape: Any, dtype: str, fill_mode: str) -> np.ndarray:
    """An input: zeros, ones, or random (floats in [-1, 1), integers in [0, 128))."""
    if fill_mode not in FILL_MODES:
        raise error.ArgumentError(f"fill_mode is {', '.join(FILL_MODES)}, not '{fill_mode}'")
    kind, rng = storage(dtype)[0], np.random.default_rng()
    if dtype not in ("bool",) and dtype != str(kind):
        raise error.UnsupportedError(f"inputs of {dtype} cannot be filled; give them")
    if fill_mode == "random":
        return (
            rng.uniform(-1, 1, shape).astype(kind)
            if kind.kind == "f"
            else rng.integers(0, 2 if dtype == "bool" else 128, shape).astype(kind)
        )
    return np.full(shape, 0 if fill_mode == "zeros" else 1, kind)


def make_inputs_dict(ports: Any, inputs: Optional[Dict[str, Any]] = None, fill_mode: str = "random") -> Dict[str, Any]:
    """The inputs given, and the others filled."""
    given, out = dict(inputs or {}), {}
    for port in ports:
        if port.name in given:
            out[port.name] = given.pop(port.name)
            continue
        if port.shape is None or any(d < 0 for d in port.shape):
            raise error.ArgumentError(f"input '{port.name}' is {port.type}, whose size is open; give it")
        out[port.name] = generate_tensor_data(port.shape, port.dtype, fill_mode)
    if given:
        raise error.ArgumentError(f"the model has no input '{next(iter(given))}'; it has {', '.join(out) or 'none'}")
    return out


def run_module(
    tvmc_package: TVMCPackage,
    device: str = "cpu",
    hostname: Optional[str] = None,
    port: Any = 9090,
    rpc_key: Optional[str] = None,
    inputs: Optional[Dict[str, Any]] = None,
    fill_mode: str = "random",
    benchmark: bool = False,
    repeat: int = 10,
    number: int = 10,
    profile: bool = False,
    end_to_end: bool = False,
    options: Any = None,
) -> TVMCResult:
    """Runs a package once, with benchmark=True `repeat` times `number` runs more, with profile=True kernel by
    kernel."""
    if hostname or rpc_key or device == "micro" or options:
        raise error.UnsupportedError("tvmc run: other machines are not reached, there is no RPC; run the package there")
    if not isinstance(tvmc_package, TVMCPackage):
        raise error.TypeError(f"run takes a TVMCPackage, not a {type(tvmc_package).__name__}")
    dev = device_by_name(device)
    lib = tvmc_package.load()["default"](dev)
    module = debug_executor.GraphModuleDebug(lib) if profile else graph_executor.GraphModule(lib)
    executor = module.module_executor
    for name, value in make_inputs_dict(executor.inputs, inputs, fill_mode).items():
        module.set_input(name, value)
    module.run()
    times = module.benchmark(dev, repeat=repeat, number=number, end_to_end=end_to_end) if benchmark else None
    outputs: Dict[str, np.ndarray] = {}
    for i, p in enumerate(executor.outputs):
        if p.shape is None:
            raise error.UnsupportedError(
                f"output {i} is {p.type}; tvmc gives tensors only, run the library with graph_executor"
            )
        outputs[f"output_{i}"] = module.get_output(i).numpy()
    return TVMCResult(outputs, times)


def top_results(outputs: Dict[str, np.ndarray], n: int) -> List[Any]:
    """The places and values of the n largest elements of the first output, in each row."""
    first = next(iter(outputs.values()))
    places = np.argsort(-first, axis=-1, kind="stable")[..., :n]
    return [places, np.take_along_axis(first, places, -1)]
