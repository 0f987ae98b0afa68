"""Compiled models as TVM's users hold them: just compiled, or loaded from a file.

A loaded one needs the runtime alone; what only the compiler knows is asked of it when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from .. import error
from .._ffi import call
from ..contrib.graph_executor import GraphModule
from .device import Device, check_usable, cpu
from .export import export
from .model import Executor, Model, _Compiled
from .stored import from_bytes, library_bytes

if TYPE_CHECKING:
    from .._ir.module import IRModule


class ExecutorInstance:
    """What lib["default"](device) gives: an executor of its own over the shared weights."""

    def __init__(self, executor: Executor):
        self.executor = executor

    def __getitem__(self, name: str) -> Any:
        return GraphModule(self)[name]

    get_function = __getitem__

    def time_evaluator(
        self, func_name: str = "run", dev: Device = cpu(0), number: int = 10, repeat: int = 1, min_repeat_ms: int = 0,
        **kwargs: Any,
    ) -> Any:
        """A function that measures runs; see GraphModule.benchmark."""
        return GraphModule(self).time_evaluator(func_name, dev, number, repeat, min_repeat_ms, **kwargs)


class ExecutorFactoryModule:
    """A compiled model: lib["default"](device) makes executors, export_library writes one file."""

    def __init__(self, compiled: Optional[_Compiled], model: Optional[Model], params: Dict[str, Any], target: Any,
                 libmod_name: str = "default"):
        self._compiled, self._model = compiled, model
        self.params, self.target, self.libmod_name = params, target, libmod_name
        self._stored: Union[None, bytes, str] = None  # the file it came from: its bytes, or its path

    @property
    def model(self) -> Model:
        """The model that runs here."""
        if self._model is None:
            self._model = Model.of_compiled(self._compiled)
        return self._model

    def __getitem__(self, name: str) -> Any:
        if name == "debug_create":
            name = self.libmod_name
        if name != self.libmod_name:
            raise error.NotFoundError(f"the library has no function '{name}'; it has '{self.libmod_name}'")

        def create(*where: Any) -> ExecutorInstance:
            for dev in [w for w in where if w is not None and not isinstance(w, str)] or [cpu(0)]:
                check_usable(dev, f"lib['{name}']")
            return ExecutorInstance(Executor(self.model))

        return create

    def export_library(self, file_name: Any, *, fcompile: Any = None, workspace_dir: Any = None,
                       weights: str = "by size", **kwargs: Any) -> str:
        """Writes one self-contained file: code, weights, everything a run needs.  .so is for load_module, as .tar is,
        which holds the object; .o, .a and .c (of target c) are for linking into a program, with a header beside.  C
        source has its weights as "text", or "beside" it in FILE.c.weights; "by size" is text up to 256 KiB.
        fcompile(path, objects, **kwargs) makes the file of the object, such as lathe.contrib.cc.create_shared does,
        which is meant where cc or options are given."""
        compiled = self._need_compiled("export_library")
        write = lambda path: call("compiled_export", compiled, path, weights)  # noqa: E731
        return export(write, file_name, fcompile, workspace_dir, kwargs)

    def _need_compiled(self, what: str) -> _Compiled:
        if self._compiled is None:
            raise error.UnsupportedError(f"{what}: this model was loaded from a file; ask the one it was exported from")
        return self._compiled

    @property
    def ir_mod(self) -> IRModule:
        """The graph after the passes."""
        return call("compiled_graph", self._need_compiled("ir_mod"))

    def get_source(self, fmt: str = "") -> str:
        """The kernels as text: "ll", "asm", "c" as the backend has it."""
        return call("compiled_source", self._need_compiled("get_source"), fmt)

    def get_params(self) -> Dict[str, Any]:
        """Parameters outside of the library: none, they are part of it."""
        return self.params

    get_lib = property(lambda self: lambda: self, doc="the library itself")
    lib = property(lambda self: self, doc="the library itself")

    def get_graph_json(self) -> str:
        """The graph after the passes, as text."""
        return str(self.ir_mod)

    get_executor_config = get_graph_json

    def memory(self) -> str:
        """Planned storage against the lower bound."""
        return call("compiled_memory_text", self._need_compiled("memory"))

    def compile_time(self) -> str:
        """Where the time of compilation went."""
        return call("compiled_time_text", self._need_compiled("compile_time"))

    def __reduce__(self) -> Any:
        return _restore, (library_bytes(self._stored, self.export_library), self.libmod_name)

    def __iter__(self) -> Any:
        return iter((self.get_graph_json(), self, self.params))


GraphExecutorFactoryModule = ExecutorFactoryModule


def _restore(data: bytes, name: str) -> ExecutorFactoryModule:
    """A model from the bytes of its file: how a pickled one comes back."""
    made = ExecutorFactoryModule(None, from_bytes(data, Model.load), {}, None, name)
    made._stored = data
    return made
