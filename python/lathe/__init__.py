"""Lathe: a machine-learning compiler.

The names and signatures are those of TVM: ``import lathe as tvm`` and
``from lathe import te`` run its users' code."""

from ._ffi.library import compiler as _compiler

__version__: str = _compiler().lathe_version().decode()

from . import arith, contrib, error, ir, nd, relay, runtime, script, target, te, testing, tir, transform  # noqa: E402
from .build_module import build, lower  # noqa: E402
from .error import LatheError, TVMError  # noqa: E402
from .ir import IRModule, instrument  # noqa: E402
from .runtime import cpu, cuda, device, get_global_func, gpu, register_func  # noqa: E402
from .runtime.dtype import DataType  # noqa: E402
from .runtime.ndarray import NDArray  # noqa: E402
from .tir.expr import convert  # noqa: E402

__all__ = [
    "DataType", "IRModule", "LatheError", "NDArray", "TVMError", "arith", "build", "contrib", "convert", "cpu", "cuda", "device", "error", "get_global_func", "gpu", "instrument", "ir",
    "lower", "nd", "register_func", "relay", "runtime", "script", "target", "te", "testing", "tir", "transform",
]
