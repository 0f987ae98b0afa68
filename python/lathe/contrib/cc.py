"""The system's C compiler, as a linker and for C sources."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, Callable, Dict, Optional, Sequence, Union

from .. import error


def get_cc() -> Optional[str]:
    """The compiler: $CC, or the first of cc, gcc, clang that is installed."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    return None


def create_shared(
    output: str, objects: Union[str, Sequence[str]], options: Optional[Sequence[str]] = None, cc: Optional[str] = None
) -> None:
    """A shared library from objects or C sources."""
    _run(output, objects, ["-shared", "-fPIC", *(options or [])], cc)


create_shared.output_format = "so"  # type: ignore[attr-defined]


def create_executable(
    output: str, objects: Union[str, Sequence[str]], options: Optional[Sequence[str]] = None, cc: Optional[str] = None
) -> None:
    """A program from objects or C sources."""
    _run(output, objects, list(options or []), cc)


def create_staticlib(output: str, inputs: Union[str, Sequence[str]], ar: Optional[str] = None) -> None:
    """An archive of objects (.a) for the linker."""
    program = ar or shutil.which("ar")
    if not program:
        raise error.UnsupportedError("no archiver (ar) was found; install the binutils")
    files = [inputs] if isinstance(inputs, str) else list(inputs)
    done = subprocess.run([program, "rcs", output, *files], capture_output=True, text=True, check=False)
    if done.returncode:
        raise error.LatheError(f"{program} could not make {output}:\n{done.stderr}")


def cross_compiler(
    compile_func: Union[str, Callable[..., None]],
    options: Optional[Sequence[str]] = None,
    output_format: str = "so",
) -> Callable[..., None]:
    """A function like create_shared for another compiler: its name, or a function such as create_shared; for
    fcompile."""
    fixed = list(options or [])

    def compile_with(output: str, objects: Union[str, Sequence[str]], options: Optional[Sequence[str]] = None) -> None:
        if isinstance(compile_func, str):
            create_shared(output, objects, [*fixed, *(options or [])], cc=compile_func)
        else:
            compile_func(output, objects, [*fixed, *(options or [])])

    compile_with.output_format = output_format  # type: ignore[attr-defined]
    return compile_with


def get_target_by_dump_machine(compiler: str) -> Callable[[], Optional[str]]:
    """A function that asks a compiler for the machine it makes code for."""

    def ask() -> Optional[str]:
        if not shutil.which(compiler):
            return None
        done = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    return ask


def get_global_symbol_section_map(path: str, *, nm: Optional[str] = None) -> Dict[str, str]:
    """The letter of nm for each symbol that a library shows."""
    program = nm or shutil.which("nm")
    if not program:
        raise error.UnsupportedError("nm was not found; install the binutils")
    done = subprocess.run([program, "-g", "--defined-only", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise error.LatheError(f"{program} could not read {path}:\n{done.stderr}")
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[-1]: row[-2] for row in rows if len(row) >= 2}


def _run(output: str, objects: Union[str, Sequence[str]], options: Sequence[str], cc: Optional[str]) -> None:
    compiler = cc or get_cc()
    if not compiler:
        raise error.UnsupportedError("no C compiler was found; install one or set CC")
    files = [objects] if isinstance(objects, str) else list(objects)
    done = subprocess.run(
        [
            compiler,
            *[f for f in options if not f.startswith("-l")],
            "-o",
            output,
            *files,
            *[f for f in options if f.startswith("-l")],
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise error.LatheError(f"{compiler} could not make {output}:\n{done.stderr}")
