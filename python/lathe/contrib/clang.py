"""clang, for C code that becomes part of a compiled function."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Dict, List, Optional, Sequence, Union

from .. import error
from . import utils


def find_clang(required: bool = True) -> List[str]:
    """The clangs that are installed, the newest version first."""
    found: Dict[str, str] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in sorted(n for n in names if re.fullmatch(r"clang(-\d+)?", n)):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                found.setdefault(name, path)
    if required and not found:
        raise error.UnsupportedError(
            "clang was not found among the programs of PATH; install it, or give the code as LLVM IR"
        )
    return [found[n] for n in sorted(found, key=lambda n: -int(n.partition("-")[2] or 10**6))]


def create_llvm(
    inputs: Union[str, Sequence[str]],
    output: Optional[str] = None,
    options: Optional[Sequence[str]] = None,
    cc: Optional[str] = None,
) -> str:
    """The LLVM IR of C code, as text: inputs is the code itself or paths of files; output is a path for it as well."""
    compiler = cc or find_clang()[0]
    if not shutil.which(compiler):
        raise error.UnsupportedError(f"create_llvm: '{compiler}' cannot be run")
    temp = utils.tempdir()
    files = []
    for i, text in enumerate([inputs] if isinstance(inputs, str) else inputs):
        if utils.is_source_path(text):
            files.append(text)
            continue
        files.append(temp.relpath(f"input{i}.cc"))
        with open(files[-1], "w", encoding="utf-8") as f:
            f.write(text)
    if len(files) != 1:
        raise error.UnsupportedError(f"create_llvm: one source at a time, {len(files)} were given")
    where = output or temp.relpath("output.ll")
    done = subprocess.run(
        [compiler, "-S", "-emit-llvm", *(options or ["-O3"]), files[0], "-o", where],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise error.LatheError(f"{compiler} could not compile the code:\n{done.stderr}")
    with open(where, encoding="utf-8") as f:
        return f.read()
