"""Programs ahead of time: plain C that needs no runtime, and this machine's way to run it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import tempfile
import weakref
from typing import Any, Dict, List, Optional, Union

import numpy as np

from .. import error
from .._ffi import call
from .device import check_usable, cpu
from .model import _Compiled
from .ndarray import NDArray, array, empty


class AotExecutorFactoryModule:
    """A model compiled ahead of time: get_source and export_library give its C, lib["default"](device) runs it here."""

    def __init__(self, compiled: _Compiled, target: Any, libmod_name: str = "default"):
        self._compiled, self.target, self.libmod_name = compiled, target, libmod_name
        self.params: Dict[str, Any] = {}
        self._report: Optional[Dict[str, Any]] = None
        self._library: Optional[ctypes.CDLL] = None

    @property
    def report(self) -> Dict[str, Any]:
        """What the program costs: bytes of weights, workspace and code, layers with multiply-accumulates, tensors with
        their places, as `lathe inspect --cost --json` shows it."""
        if self._report is None:
            self._report = json.loads(call("compiled_aot_report", self._compiled, "json"))
        return self._report

    def cost(self, form: str = "text") -> str:
        """The same as text to read, or the picture of memory over time: form "svg"."""
        return call("compiled_aot_report", self._compiled, form)

    memory = cost

    def get_source(self, fmt: str = "c") -> str:
        """The program; fmt "h": its header."""
        if fmt not in ("", "c", "h"):
            raise error.UnsupportedError(
                f"a program ahead of time is C: its source is had as 'c' or 'h', not as '{fmt}'"
            )
        return call("compiled_aot_file", self._compiled, self.libmod_name, f".{fmt or 'c'}")

    @property
    def ir_mod(self) -> Any:
        """The graph after the passes."""
        return call("compiled_graph", self._compiled)

    def get_params(self) -> Dict[str, Any]:
        """Parameters outside of the program: none, they are part of it."""
        return self.params

    def export_library(self, file_name: Any, *, weights: str = "by size") -> str:
        """Writes FILE.c, FILE.o or FILE.a with the header FILE.h beside, or FILE.tar in TVM's model library format."""
        path = os.fspath(file_name)
        call("compiled_export", self._compiled, path, weights)
        return path

    def load(self) -> ctypes.CDLL:
        """The program as a library in this process, made by the C compiler on the first call."""
        if self._library is None:
            folder = tempfile.mkdtemp(prefix="lathe-aot-")
            weakref.finalize(self, shutil.rmtree, folder, True)
            micro = "cortex-m" in self.report["target"] or "riscv32" in self.report["target"]
            # C for a microcontroller has no vectors: this machine's compiler takes the source itself
            name = os.path.join(folder, f"{self.libmod_name}.{'c' if micro else 'o'}")
            library = os.path.join(folder, "program.so")
            self.export_library(name)
            flags = ["-O2", "-w", "-fPIC", "-fno-math-errno"] if micro else []
            done = subprocess.run([os.environ.get("CC") or "cc", *flags, "-shared", "-o", library, name, "-lm"],
                                  capture_output=True, text=True)  # fmt: skip
            if done.returncode:
                raise error.UnsupportedError(
                    f"the program for target {self.target} does not run on this machine: {done.stderr[:400]}"
                )
            self._library = ctypes.CDLL(library)
        return self._library

    def __getitem__(self, name: str) -> Any:
        if name != self.libmod_name:
            raise error.NotFoundError(f"the library has no function '{name}'; it has '{self.libmod_name}'")

        def create(*where: Any) -> "AotInstance":
            for dev in list(where) or [cpu(0)]:
                check_usable(dev, f"lib['{name}']")
            return AotInstance(self)

        return create


class AotInstance:
    """What lib["default"](device) gives: arrays of its own over the program, so that several may run at once."""

    def __init__(self, lib: AotExecutorFactoryModule):
        self.lib = lib


class AotModule:
    """Runs a program ahead of time: set_input, run, get_output.

    >>> m = lathe.runtime.executor.AotModule(lib["default"](lathe.cpu(0)))
    >>> m.set_input("input", x); m.run(); y = m.get_output(0).numpy()"""

    def __init__(self, module: Any):
        if not isinstance(module, AotInstance):
            raise error.TypeError(f'AotModule takes lib["default"](device), not a {type(module).__name__}')
        self.module, lib = module, module.lib
        entry = lib.report["entries"][0]
        self._inputs: List[Dict[str, Any]] = entry["inputs"]
        self._outputs: List[Dict[str, Any]] = entry["outputs"]
        self._function = getattr(lib.load(), f"{re.sub('[^a-zA-Z0-9]', '_', lib.libmod_name)}_run")
        self._function.restype = None
        self._pools = [np.zeros(p["bytes"] // 8 + 1, np.uint64) for p in lib.report["pools"]]
        self._in: List[NDArray] = [empty(tuple(p["shape"]), p["dtype"]) for p in self._inputs]
        self._out: List[NDArray] = [empty(tuple(p["shape"]), p["dtype"]) for p in self._outputs]

    def get_input_index(self, name: str) -> int:
        """The number of an input; -1: there is none of that name."""
        return next((i for i, p in enumerate(self._inputs) if p["name"] == name), -1)

    def _number(self, key: Union[int, str]) -> int:
        at = self.get_input_index(key) if isinstance(key, str) else int(key)
        if not 0 <= at < len(self._inputs):
            raise error.NotFoundError(
                f"there is no input {key!r}; there are {', '.join(p['name'] for p in self._inputs)}"
            )
        return at

    def set_input(self, key: Union[None, int, str] = None, value: Any = None, **params: Any) -> None:
        """Sets one input by name or number, or several by keyword."""
        given = dict(params) if key is None else {key: value, **params}
        for name, v in given.items():
            at = self._number(name)
            port = self._inputs[at]
            x = np.asarray(v) if not isinstance(v, NDArray) else v
            if isinstance(x, np.ndarray) and x.dtype.kind == "f" and port["dtype"] in ("float32", "float64"):
                x = x.astype(port["dtype"], copy=False)
            a = array(np.ascontiguousarray(x) if isinstance(x, np.ndarray) and x.ndim else x)
            if tuple(a.shape) != tuple(port["shape"]) or a.dtype != port["dtype"]:
                raise error.ArgumentError(
                    f"input '{port['name']}' takes {port['dtype']} {tuple(port['shape'])}, not {a.dtype} {tuple(a.shape)}"
                )
            self._in[at] = a

    def run(self, **inputs: Any) -> None:
        """One run, with these inputs where some are given."""
        if inputs:
            self.set_input(**inputs)
        pools = [p.ctypes.data_as(ctypes.c_void_p) for p in self._pools]
        if any("pool" in port for port in self._inputs + self._outputs):  # they lie in the workspace
            for port, a in zip(self._inputs, self._in):
                self._at(port)[:] = _bytes_of(a)
            self._function(*pools)
            for port, a in zip(self._outputs, self._out):
                _bytes_of(a)[:] = self._at(port)
            return
        arrays = [ctypes.c_void_p(a.data_address) for a in self._in + self._out]
        self._function(*arrays, *pools)

    def _at(self, port: Dict[str, Any]) -> np.ndarray:
        return self._pools[port["pool"]].view(np.uint8)[port["offset"] : port["offset"] + port["bytes"]]

    def get_output(self, index: int, out: Optional[NDArray] = None) -> NDArray:
        """An output of the last run, as an array of its own."""
        if not 0 <= index < len(self._out):
            raise error.ArgumentError(f"there is no output {index}; there are {len(self._out)}")
        copy = out if out is not None else empty(tuple(self._outputs[index]["shape"]), self._outputs[index]["dtype"])
        _bytes_of(copy)[:] = _bytes_of(self._out[index])
        return copy

    def get_input(self, key: Union[int, str]) -> NDArray:
        """An input as it was set."""
        return self._in[self._number(key)]

    def get_num_inputs(self) -> int:
        """How many inputs there are."""
        return len(self._inputs)

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self._outputs)

    def get_input_info(self) -> Any:
        """Shapes and dtypes of the inputs, by name."""
        return ({p["name"]: tuple(p["shape"]) for p in self._inputs}, {p["name"]: p["dtype"] for p in self._inputs})

    def get_input_name(self, index: int) -> str:
        """The name of an input."""
        return self._inputs[index]["name"]


def _bytes_of(a: NDArray) -> np.ndarray:
    return a._raw.reshape(-1).view(np.uint8) if a.size else np.empty(0, np.uint8)
