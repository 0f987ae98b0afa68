"""Programs for microcontrollers: what TVM has as tvm.micro, as far as programs ahead of time go."""

from __future__ import annotations

import os
from typing import Any

from .. import error
from ..runtime.aot import AotExecutorFactoryModule
from . import project
from .project import Board, Project, Run, boards, generate_project


def export_model_library_format(mod: Any, file_name: Any) -> str:
    """Writes a model that relay.build made with Executor("aot") as an archive in TVM's model library format: sources,
    headers, parameters, metadata and a README.  The name ends in .tar."""
    if not isinstance(mod, AotExecutorFactoryModule):
        raise error.UnsupportedError(
            "export_model_library_format takes what relay.build(executor=Executor(\"aot\")) gives; other models are "
            "written by export_library"
        )
    path = os.fspath(file_name)
    if not path.endswith(".tar"):
        raise error.ArgumentError(f"the archive's name ends in .tar; '{path}' does not")
    return mod.export_library(path)


def __getattr__(name: str) -> Any:
    return getattr(project, name)


__all__ = ["Board", "Project", "Run", "boards", "export_model_library_format", "generate_project"]
