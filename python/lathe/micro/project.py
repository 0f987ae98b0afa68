"""Projects around a program ahead of time, for boards that QEMU has: build, size, run.

The same as `lathe micro` on the command line: a project is a folder that needs the GNU toolchain of its processor and
make alone."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from .. import error
from .._ffi import call
from ..runtime.aot import AotExecutorFactoryModule, AotModule


class Board(NamedTuple):
    """A board that QEMU has."""

    name: str
    cpus: str


def boards() -> Dict[str, Board]:
    """The boards by name; BOARDS is the same."""
    return {name: Board(name, cpus) for name, cpus in call("micro_boards")}


def __getattr__(name: str) -> Any:  # the library is loaded when somebody asks
    if name == "BOARDS":
        return boards()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Run(NamedTuple):
    """What a program said in QEMU: its outputs, the instructions of each layer by name, and whether every output is
    what the host computed (integers bit for bit, floats to a ten-thousandth)."""

    outputs: List[np.ndarray]
    layers: List[Any]
    instructions: int
    agrees: bool


class Project:
    """A bare-metal project on disk: build, size, run."""

    def __init__(self, folder: str, name: str, board: str, outputs: List[Dict[str, Any]]):
        self.folder, self.name, self.board, self._outputs = folder, name, board, outputs

    def build(self, options: Any = None) -> str:
        """Compiles the project; the path of the program."""
        return call("micro_build", self.folder)

    def flash(self) -> str:
        """Brings the program to the board: QEMU loads what was built."""
        return self.build()

    def size(self) -> Dict[str, int]:
        """Bytes of the model alone: code, weights and other constants, and what is written; and of its stack."""
        return dict(zip(("text", "rodata", "data", "stack"), call("micro_size", self.folder)))

    def measure(self) -> Run:
        """Builds the program, runs it in QEMU on the inputs that the project carries, and gives all that it said."""
        said = call("micro_run", self.folder)
        found = dict(re.findall(r"^output (\d+) ([0-9a-f]*)$", said, re.M))
        outputs = [np.frombuffer(bytes.fromhex(found[str(i)]), port["dtype"]).reshape(port["shape"])
                   for i, port in enumerate(self._outputs)]  # fmt: skip
        layers = [(name, int(n)) for n, name in re.findall(r"^layer (\d+) (.*)$", said, re.M)]
        return Run(outputs, layers, sum(n for _, n in layers), not re.search(r"^check \d+ differs", said, re.M))

    def run(self) -> List[np.ndarray]:
        """The outputs alone."""
        return self.measure().outputs


def generate_project(lib: AotExecutorFactoryModule, project_dir: Any, board: str = "mps2-an386",
                     inputs: Optional[Dict[str, Any]] = None, layout: str = "bare",
                     outputs: Optional[Sequence[Any]] = None) -> Project:  # fmt: skip
    """Writes a project for a board around a model that relay.build made with Executor("aot") for one of the board's
    processors.  inputs, by name, become part of the project (default: zeros), with the outputs that the same C gives on
    this machine, or those of `outputs`: where parts of the model call a library that this machine has not.  layout:
    "bare" for QEMU, or as "zephyr", "arduino" and "platformio" want it."""
    if not isinstance(lib, AotExecutorFactoryModule):
        raise error.TypeError('generate_project takes what relay.build(executor=Executor("aot")) gives')
    entry = lib.report["entries"][0]
    known = [p["name"] for p in entry["inputs"]]
    for key in inputs or {}:
        if key not in known:
            raise error.NotFoundError(f"there is no input '{key}'; there are {', '.join(known)}")
    values = [np.ascontiguousarray((inputs or {}).get(p["name"], np.zeros(p["shape"], p["dtype"])), p["dtype"])
              for p in entry["inputs"]]  # fmt: skip
    if outputs is None:
        here = AotModule(lib[lib.libmod_name]())
        here.run(**{p["name"]: v for p, v in zip(entry["inputs"], values)})
        outputs = [here.get_output(i).numpy() for i in range(len(entry["outputs"]))]
    ports = [(p["shape"], p["dtype"]) for p in entry["outputs"]]
    if [(list(np.shape(v)), np.asarray(v).dtype.name) for v in outputs] != [(list(s), d) for s, d in ports]:
        raise error.ArgumentError(f"generate_project: the outputs are {ports}, other arrays were given")
    expected = [np.ascontiguousarray(v) for v in outputs]
    folder = os.fspath(project_dir)
    call("micro_project", lib._compiled, folder, lib.libmod_name, board, layout,
         [v.tobytes() for v in values], [v.tobytes() for v in expected])  # fmt: skip
    return Project(folder, lib.libmod_name, board, entry["outputs"])


__all__ = ["Board", "Project", "Run", "boards", "generate_project"]
