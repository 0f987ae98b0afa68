"""Lathe: a machine-learning compiler.

The names and signatures are those of TVM: ``import lathe as tvm`` and
``from lathe import te`` run its users' code.

Importing the package loads the runtime alone, which is what running a compiled model needs.
The compiler (liblathe) is loaded when one of the names below that it serves is first used."""

import importlib as _importlib
from typing import TYPE_CHECKING, Any, List

from . import contrib, error, nd, runtime, support
from ._ffi import core as _core
from ._ffi import library as _library
from .error import LatheError, TVMError
from .runtime import (
    cl, convert, cpu, cuda, device, ext_dev, get_global_func, gpu, hexagon, metal, mtl, opencl, register_func, rocm,
    vpi, vulkan, webgpu,
)
from .runtime.dtype import DataType
from .runtime.ndarray import NDArray

if TYPE_CHECKING:
    from . import (
        arith, auto_scheduler, autotvm, ir, meta_schedule, micro, relay, script, target, te, testing, tir, topi, transform,
        tuning,
    )
    from .build_module import build, lower
    from .ir import IRModule, instrument
    from .ir.memory_pools import (
        ConstantMemoryPools, ConstantPoolInfo, PoolInfoProperties, WorkspaceMemoryPools, WorkspacePoolInfo,
    )

__version__: str = _library.runtime().lathe_rt_version().decode()

__all__ = [
    "ConstantMemoryPools", "ConstantPoolInfo", "DataType", "IRModule", "LatheError", "NDArray", "PoolInfoProperties",
    "TVMError", "WorkspaceMemoryPools", "WorkspacePoolInfo", "arith", "auto_scheduler", "autotvm", "build", "cl",
    "contrib", "convert", "cpu", "cuda", "device", "driver", "error", "ext_dev", "get_global_func", "gpu", "hexagon",
    "instrument", "ir", "lower", "meta_schedule", "metal", "micro", "mtl", "nd", "opencl", "parser", "register_func",
    "relay", "rocm", "runtime", "script", "support", "target", "te", "testing", "tir", "topi", "transform", "tuning",
    "vpi", "vulkan", "webgpu",
]

#: Names that need the compiler, and the module each is taken from; a module is its own.
_MODULES = (
    "arith", "auto_scheduler", "autotvm", "build_module", "driver", "ir", "meta_schedule", "micro", "parser", "relay",
    "script", "target", "te", "testing", "tir", "topi", "transform", "tuning",
)
_COMPILER = {
    **{name: f".{name}" for name in _MODULES},
    "build": ".build_module", "lower": ".build_module", "IRModule": ".ir", "instrument": ".ir",
    **{
        name: ".ir.memory_pools"
        for name in (
            "ConstantMemoryPools", "ConstantPoolInfo", "PoolInfoProperties", "WorkspaceMemoryPools", "WorkspacePoolInfo",
        )
    },
}



def _load_classes() -> None:
    """Modules that register classes for what the compiler's functions give."""
    for name in ("relay", "te", "tir", "transform"):
        _importlib.import_module(f".{name}", __name__)


_core.before_objects.append(_load_classes)

if not TYPE_CHECKING:  # or every name would be one of the package's

    def __getattr__(name: str) -> Any:
        if name not in _COMPILER:
            raise AttributeError(f"module 'lathe' has no attribute '{name}'")
        module = _importlib.import_module(_COMPILER[name], __name__)
        value = module if _COMPILER[name] == f".{name}" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> List[str]:
    return sorted([*__all__, "__version__"])
