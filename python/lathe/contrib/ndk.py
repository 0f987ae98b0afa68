"""The compiler of Android's NDK, for libraries that run there: $TVM_NDK_CC names it."""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, Optional, Sequence, Union

from .. import error
from . import cc


def _compiler() -> str:
    name = os.environ.get("TVM_NDK_CC")
    if not name:
        raise error.UnsupportedError("ndk: set TVM_NDK_CC to the NDK's compiler, such as aarch64-linux-android30-clang")
    if not shutil.which(name):
        raise error.UnsupportedError(f"ndk: TVM_NDK_CC is '{name}', which cannot be run")
    return name


def create_shared(output: str, objects: Union[str, Sequence[str]], options: Optional[Sequence[str]] = None) -> None:
    """A shared library for Android."""
    cc.create_shared(output, objects, options, cc=_compiler())


create_shared.output_format = "so"  # type: ignore[attr-defined]


def create_staticlib(output: str, inputs: Sequence[str]) -> None:
    """An archive of objects for the linker."""
    _compiler()
    cc.create_staticlib(output, inputs)


def get_global_symbol_section_map(path: str, *, nm: Optional[Any] = None) -> Dict[str, str]:
    """The letter of nm for each symbol of a library."""
    return cc.get_global_symbol_section_map(path, nm=nm)
