"""Libraries as bytes: how what was compiled is pickled."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, TypeVar, Union

from .. import error

T = TypeVar("T")


def library_bytes(source: Union[None, bytes, str], export: Callable[[Any], Any]) -> bytes:
    """The bytes of a library: given, or of the file it was loaded from, or of what export writes."""
    if isinstance(source, bytes):
        return source
    if source is not None:
        return _read(source)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "library.so")
        export(path)
        return _read(path)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as e:
        raise error.LatheError(
            f"a library that was loaded from '{path}' cannot be pickled without that file: {e.strerror}"
        ) from None


def from_bytes(data: bytes, load: Callable[[str], T]) -> T:
    """What load makes of a file with these bytes; the file is needed no longer then."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "library.so")
        with open(path, "wb") as file:
            file.write(data)
        return load(path)
