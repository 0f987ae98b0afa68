"""Compiled functions: calling, timing, storing."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np

from .. import error
from .._ffi import Object, call, library, register_object
from .._ffi.library import RtArg, RtError, RtFuncInfo
from .benchmark import BenchmarkResult
from .device import Device, check_usable, cpu
from .export import export, linked
from .factory import ExecutorFactoryModule
from .model import Model
from .ndarray import NDArray, as_ndarray
from .packed import rt_check
from .stored import from_bytes, library_bytes


@register_object("built")
class _Built(Object):
    """The compiled code in the C library."""


class Function:
    """A compiled function: call it with arrays (NDArray, numpy, DLPack) and scalars."""

    def __init__(self, module: "Module", pointer: int):
        self._module, self._pointer = module, pointer
        self._info: RtFuncInfo = library.runtime().lathe_rt_func_info(pointer).contents

    @property
    def name(self) -> str:
        """Its name."""
        return self._info.name.decode()

    def _arguments(self, args: Sequence[Any]) -> Tuple[Any, List[Any]]:
        values = (RtArg * max(len(args), 1))()
        keep: List[Any] = []
        for i, a in enumerate(args):
            want = self._info.args[i] if i < self._info.nargs else None
            if isinstance(a, (int, float, np.generic)) or a is None:
                self._scalar(values[i], i, a, want)
                continue
            t = as_ndarray(a)
            if want is not None and want.ndim < 0 and t.ndim == 0:
                self._scalar(values[i], i, t.item(), want)
                continue
            if want is not None and want.flags & 1 and not t.writeable:
                raise error.ArgumentError(
                    f"{self.name}: argument {i} '{want.name.decode()}' is written, the array given is read-only; copy it first"
                )
            rt = t.rt_tensor()
            keep.append((t, rt))
            values[i].tensor = ctypes.pointer(rt)
        return values, keep

    def _scalar(self, slot: RtArg, i: int, a: Any, want: Any) -> None:
        if a is None:
            raise error.ArgumentError(f"{self.name}: argument {i} is None")
        if want is not None and want.dtype.code in (2, 4) and want.ndim < 0:
            slot.scalar.f = float(a)
            return
        if isinstance(a, (float, np.floating)) and int(a) != a:
            raise error.ArgumentError(f"{self.name}: argument {i} is {a}, wants an integer")
        value = int(a)
        slot.scalar.i = value - 2**64 if value >= 2**63 else value

    def __call__(self, *args: Any) -> None:
        values, keep = self._arguments(args)
        err = RtError()
        code = library.runtime().lathe_rt_func_call(self._pointer, len(args), values, ctypes.byref(err))
        del keep
        rt_check(code, err)

    def time(self, args: Sequence[Any], number: int, repeat: int, min_repeat_ms: float) -> List[float]:
        """Seconds per call, one for each repeat."""
        values, keep = self._arguments(args)
        seconds = (ctypes.c_double * max(repeat, 1))()
        err = RtError()
        code = library.runtime().lathe_rt_func_time(
            self._pointer, len(args), values, number, repeat, float(min_repeat_ms), seconds, ctypes.byref(err)
        )
        del keep
        rt_check(code, err)
        return list(seconds[:repeat])

    def __repr__(self) -> str:
        return f"<lathe.runtime.Function {self.name}>"


PackedFunc = Function


class Module:
    """Compiled functions.  Calling the module calls its first function."""

    def __init__(self, built: _Built, names: Sequence[str], target: Any):
        self._built: Optional[_Built] = built
        self._names, self._target = list(names), target
        self._backend, self._has_device, _ = call("built_fields", built)
        self._rt: Optional[int] = None

    # ---- functions

    def _runtime(self) -> int:
        """The LatheRtModule, compiled for running on the first demand."""
        if self._rt is None:
            self._rt = call("built_runtime", self._built)
        return self._rt

    @property
    def entry_name(self) -> str:
        """Name of the first function."""
        return self._names[0]

    @property
    def entry_func(self) -> Function:
        """The first function."""
        return self.get_function(self.entry_name)

    def get_function(self, name: str, query_imports: bool = False) -> Function:
        """A function by name."""
        if name not in self._names and name in ("__tvm_main__", "default_function", "main") and len(self._names) == 1:
            name = self._names[0]
        if name not in self._names:
            raise error.NotFoundError(f"the module has no function '{name}'; it has {', '.join(self._names)}")
        rt, pointer, err = self._runtime(), ctypes.c_void_p(), RtError()
        rt_check(
            library.runtime().lathe_rt_module_func(rt, name.encode(), ctypes.byref(pointer), ctypes.byref(err)), err
        )
        return Function(self, pointer.value or 0)

    def implements_function(self, func_name: str, query_imports: bool = False) -> bool:
        """Is there a function of that name?"""
        return func_name in self._names

    def __getitem__(self, name: str) -> Function:
        if not isinstance(name, str):
            raise error.TypeError("a module's functions are found by name")
        return self.get_function(name)

    def __call__(self, *args: Any) -> None:
        return self.entry_func(*args)

    # ---- timing

    def time_evaluator(
        self,
        func_name: str,
        dev: Device = cpu(0),
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that runs func_name on its arguments, number calls in each of
        repeat rounds after one call to warm up, and gives seconds per call.  Rounds
        shorter than min_repeat_ms run more calls."""
        check_usable(dev, "time_evaluator")
        if number < 1 or repeat < 1:
            raise error.ArgumentError(f"time_evaluator: number and repeat are at least 1, got {number} and {repeat}")
        if f_preproc:
            raise error.UnsupportedError(
                f"time_evaluator: f_preproc '{f_preproc}' is not supported; use cache_flush_bytes"
            )
        func = self.get_function(func_name)

        def evaluator(*args: Any) -> BenchmarkResult:
            if not cooldown_interval_ms and not cache_flush_bytes:
                return BenchmarkResult(func.time(args, number, repeat, min_repeat_ms))
            seconds: List[float] = []
            for r in range(repeat):
                if cache_flush_bytes:
                    np.zeros(cache_flush_bytes, dtype=np.uint8).sum()
                seconds += func.time(args, number, 1, min_repeat_ms)
                if cooldown_interval_ms and (r + 1) % repeats_to_cooldown == 0:
                    time.sleep(cooldown_interval_ms / 1e3)
            return BenchmarkResult(seconds)

        return evaluator

    # ---- code

    _stored: Union[None, bytes, str] = None  # the file it came from: its bytes, or its path

    def __reduce__(self) -> Any:
        return _restore, (library_bytes(self._stored, self.export_library),)

    @property
    def type_key(self) -> str:
        """Which backend made the code: "llvm", "c"; "library" for a loaded file."""
        return self._backend

    format = type_key

    def get_source(self, fmt: str = "") -> str:
        """The code as text: "ll", "asm", "c" as the backend has it."""
        return call("built_source", self._built, fmt, False)

    @property
    def imported_modules(self) -> List["DeviceModule"]:
        """Code for the device, for a target that has one."""
        return [DeviceModule(self._built, self._target)] if self._has_device else []

    imports = imported_modules

    def export_library(
        self,
        file_name: Any,
        *,
        fcompile: Any = None,
        fpack_imports: Any = None,
        workspace_dir: Any = None,
        **kwargs: Any,
    ) -> str:
        """Writes a shared library (.so), an object (.o), an archive with the object (.tar) or source (.c, .ll, .s);
        libraries, objects and archives are loaded again with lathe.runtime.load_module.  fcompile(path, objects,
        **kwargs) makes the file of the object, such as lathe.contrib.cc.create_shared does, which is meant where cc
        or options are given."""
        if fpack_imports is not None:
            raise error.UnsupportedError(
                "export_library: fpack_imports is not supported; code for devices is part of the library"
            )
        return export(lambda path: call("built_export", self._built, path), file_name, fcompile, workspace_dir, kwargs)

    def save(self, file_name: Any, fmt: str = "") -> None:
        """The same as export_library; fmt adds the extension."""
        path = os.fspath(file_name)
        self.export_library(path if not fmt or path.endswith("." + fmt) else f"{path}.{fmt}")

    def __repr__(self) -> str:
        return f"Module({self._backend}, {', '.join(self._names)})"


class DeviceModule:
    """The part of a module that runs on a device."""

    def __init__(self, built: Optional[_Built], target: Any):
        self._built, self._target = built, target

    type_key = "cuda"

    def get_source(self, fmt: str = "") -> str:
        """CUDA C, or with fmt "ptx" what NVRTC makes of it."""
        if fmt in ("ptx", "cubin"):
            return call("nvrtc", self.get_source(), self._target._h, fmt == "cubin")
        return call("built_source", self._built, fmt, True)

    def __repr__(self) -> str:
        return "Module(cuda)"


class _LoadedModule(Module):
    """A module from a file."""

    def __init__(self, path: str):  # pylint: disable=super-init-not-called
        lib, pointer, err = library.runtime(), ctypes.c_void_p(), RtError()
        self._rt = None
        path, self._folder = linked(path)
        rt_check(lib.lathe_rt_module_load(path.encode(), ctypes.byref(pointer), ctypes.byref(err)), err)
        self._rt, self._built, self._target, self._stored = pointer.value, None, None, path
        self._backend, self._has_device = "library", False
        info = lib.lathe_rt_module_info(self._rt).contents
        self._names = [info.funcs[i].name.decode() for i in range(info.nfuncs)]

    def __del__(self) -> None:
        if getattr(self, "_rt", None) is not None:
            library.runtime().lathe_rt_module_free(self._rt)

    def get_source(self, fmt: str = "") -> str:
        raise error.UnsupportedError("a module loaded from a file has no source; ask the one it was exported from")

    def export_library(self, file_name: Any, **kwargs: Any) -> str:  # type: ignore[override]
        raise error.UnsupportedError("a module loaded from a file is a library already; copy the file")


def _restore(data: bytes) -> Module:
    """A module from the bytes of its file: how a pickled one comes back."""
    made = from_bytes(data, _LoadedModule)
    made._stored = data
    return made


def load_module(path: Any, fmt: str = "") -> Any:
    """What a shared library, an object or an archive that export_library wrote holds: functions, or a compiled
    model."""
    path = os.path.abspath(os.fspath(path))
    loaded = _LoadedModule(path)
    pointer, err = ctypes.c_void_p(), RtError()
    code = library.runtime().lathe_rt_model_of(loaded._rt, ctypes.byref(pointer), ctypes.byref(err))
    if code != 2:  # not found: it has functions alone
        rt_check(code, err)
        model = ExecutorFactoryModule(None, Model(pointer.value or 0, loaded), {}, None)
        model._stored = loaded._stored
        return model
    return loaded


def enabled(target: str) -> bool:
    """Can code for this target be generated?"""
    kind = (target.split() or [""])[0]
    writers = {row[0]: row[2] for row in call("target_kinds")}
    return writers.get(kind, "none") != "none" and (kind != "llvm" or call("build_info")[0])


def num_threads() -> int:
    """Threads that parallel loops use."""
    return library.runtime().lathe_rt_num_threads()


def set_num_threads(n: int) -> None:
    """Sets the number of threads that parallel loops use."""
    err = RtError()
    rt_check(library.runtime().lathe_rt_set_num_threads(n, ctypes.byref(err)), err)


__all__ = [
    "BenchmarkResult",
    "DeviceModule",
    "Function",
    "Module",
    "NDArray",
    "PackedFunc",
    "enabled",
    "load_module",
    "num_threads",
    "set_num_threads",
]
