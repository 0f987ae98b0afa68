"""The system's C compiler, as a linker and for C sources."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Optional, Sequence, Union

from .. import error


def get_cc() -> Optional[str]:
    """The compiler: $CC, or the first of cc, gcc, clang that is installed."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    return None


def create_shared(output: str, objects: Union[str, Sequence[str]], options: Optional[Sequence[str]] = None, cc: Optional[str] = None) -> None:
    """A shared library from objects or C sources."""
    _run(output, objects, ["-shared", "-fPIC", *(options or [])], cc)


def create_executable(output: str, objects: Union[str, Sequence[str]], options: Optional[Sequence[str]] = None, cc: Optional[str] = None) -> None:
    """A program from objects or C sources."""
    _run(output, objects, list(options or []), cc)


def _run(output: str, objects: Union[str, Sequence[str]], options: Sequence[str], cc: Optional[str]) -> None:
    compiler = cc or get_cc()
    if not compiler:
        raise error.UnsupportedError("no C compiler was found; install one or set CC")
    files = [objects] if isinstance(objects, str) else list(objects)
    done = subprocess.run([compiler, *[f for f in options if not f.startswith("-l")], "-o", output, *files, *[f for f in options if f.startswith("-l")]],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise error.LatheError(f"{compiler} could not make {output}:\n{done.stderr}")
