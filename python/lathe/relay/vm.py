"""Compiling for TVM's virtual machine: see lathe.runtime.vm."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .. import error
from ..runtime.vm import Executable
from .build_module import build


def compile(  # noqa: A001
    mod: Any, target: Any = None, target_host: Any = None, params: Optional[Dict[str, Any]] = None
) -> Executable:
    """A compiled model that runtime.vm.VirtualMachine runs."""
    return Executable(build(mod, target, target_host, params=params))


class VMCompiler:
    """The same in steps: set_params, lower, codegen, get_exec."""

    def __init__(self) -> None:
        self._params: Dict[str, Any] = {}
        self._exec: Optional[Executable] = None

    def set_params(self, params: Dict[str, Any]) -> None:
        """Parameters of main that become constants."""
        self._params.update(params)

    def lower(self, mod: Any, target: Any = None, target_host: Any = None) -> None:
        """Compiles."""
        self._exec = compile(mod, target, target_host, self._params)

    def codegen(self) -> None:
        """Done by lower."""
        self.get_exec()

    def get_exec(self) -> Executable:
        """The compiled model."""
        if self._exec is None:
            raise error.ArgumentError("VMCompiler: call lower first")
        return self._exec
