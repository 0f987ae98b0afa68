"""TVM's virtual machine, by its names.

Lathe has one executor for models of fixed and of open sizes, with control flow or without; an Executable is a compiled
model and a VirtualMachine runs it.

>>> exe = relay.vm.compile(mod, target="llvm", params=params)
>>> result = runtime.vm.VirtualMachine(exe, lathe.cpu(0)).run(x)"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .. import error
from ..contrib.graph_executor import GraphModule
from .benchmark import BenchmarkResult
from .container import ADT
from .device import Device, cpu
from .factory import ExecutorFactoryModule

#: What save() gives for the code: all of it is in the library.
_MARK = b"lathe: the code is in the library"


class Executable:
    """A compiled model."""

    def __init__(self, mod: ExecutorFactoryModule):
        if not isinstance(mod, ExecutorFactoryModule):
            raise error.TypeError(f"an Executable is made of a compiled model, not of a {type(mod).__name__}")
        self.mod = self.module = mod

    @property
    def lib(self) -> ExecutorFactoryModule:
        """The library."""
        return self.mod

    def save(self) -> Tuple[bytearray, ExecutorFactoryModule]:
        """The code as bytes, and the library; here all is in the library, which export_library writes."""
        return bytearray(_MARK), self.mod

    @staticmethod
    def load_exec(bytecode: Any, lib: Any) -> "Executable":
        """What save() gave, the library loaded from its file."""
        if bytes(bytecode) != _MARK:
            raise error.ArgumentError("load_exec: this is not the code that Executable.save gave; TVM's is not read")
        return Executable(lib)

    def get_function_params(self, func_name: str) -> List[str]:
        """Names of the inputs."""
        if func_name != "main":
            raise error.NotFoundError(f"there is no function '{func_name}' to call; there is main")
        return [p.name for p in self.mod.model.inputs]


class VirtualMachine:
    """Runs an Executable."""

    NAIVE_ALLOCATOR, POOLED_ALLOCATOR = 1, 2

    def __init__(self, exe: Any, device: Any = None, memory_cfg: Any = None):
        exe = exe if isinstance(exe, Executable) else Executable(exe)
        devices = device if isinstance(device, (list, tuple)) else [device or cpu(0)]
        self._exec, self.module = exe, GraphModule(exe.mod[exe.mod.libmod_name](*devices))
        self._names = exe.get_function_params("main")

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Sets the inputs, in order or by name."""
        names = self._exec.get_function_params(func_name)
        if len(args) + len(kwargs) != len(names):
            wanted = ", ".join(names) or "none"
            raise error.ArgumentError(
                f"{func_name} takes {len(names)} inputs ({wanted}), {len(args) + len(kwargs)} given"
            )
        for name, value in {**dict(zip(names, args)), **kwargs}.items():
            self.module.set_input(name, value)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Runs; get_outputs gives what came out.  Without arguments it runs on the inputs that were set."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        elif func_name != "main":
            self._exec.get_function_params(func_name)
        self.module.run()

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Runs: an array, or an ADT of several."""
        self.invoke_stateful(func_name, *args, **kwargs)
        outs = self.get_outputs()
        return outs[0] if len(outs) == 1 else ADT(0, outs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs main."""
        return self.invoke("main", *args, **kwargs)

    def get_outputs(self) -> List[Any]:
        """What the last run gave."""
        return [self.module.get_output(i) for i in range(self.module.get_num_outputs())]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Number of an input; -1 if there is none of that name."""
        names = self._exec.get_function_params(func_name)
        return names.index(input_name) if input_name in names else -1

    def benchmark(
        self,
        device: Optional[Device],
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: Optional[int] = None,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Seconds of a run, `number` runs in each of `repeat` rounds."""
        given: Dict[str, Any] = kwargs
        if args or given:
            self.set_input(func_name, *args, **given)
        return self.module.benchmark(
            device or cpu(0), repeat=repeat, number=number, min_repeat_ms=min_repeat_ms, end_to_end=end_to_end
        )
