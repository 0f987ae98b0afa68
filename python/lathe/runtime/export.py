"""Files of compiled code that the system's linker takes part in.

The compiler writes shared libraries, objects and source by itself.  Archives (.tar), which hold objects, and files
that a function of the caller's makes of an object (fcompile) are made here, and such files are linked again when they
are loaded."""

from __future__ import annotations

import inspect
import os
import tarfile
import tempfile
from typing import Any, Callable, Dict, Optional, Tuple

from .. import error


def export(
    write: Callable[[str], None], file_name: Any, fcompile: Any, workspace_dir: Any, options: Dict[str, Any]
) -> str:
    """Writes a file of compiled code; write(path) is how the compiler does it."""
    from ..contrib import cc, tar

    path: str = os.fspath(file_name)
    if fcompile is None and path.endswith(".tar"):
        fcompile = tar.tar
    if fcompile is None and options:
        fcompile = cc.create_shared  # with the compiler or the options given
    if fcompile is None:
        write(path)
        return path
    try:
        inspect.signature(fcompile).bind(path, [path], **options)
    except TypeError as e:
        raise error.ArgumentError(
            f"export_library: {getattr(fcompile, '__name__', 'fcompile')} does not take what is given: {e}"
        ) from None
    with _folder(workspace_dir) as folder:
        write(os.path.join(folder, "lib0.o"))
        fcompile(path, [os.path.join(folder, n) for n in sorted(os.listdir(folder)) if n.endswith(".o")], **options)
    return path


class _folder:  # noqa: N801  (used as a function)
    """A folder for a while: a temporary one, or one of the caller's, which stays."""

    def __init__(self, given: Any):
        self._own = tempfile.TemporaryDirectory(prefix="lathe-") if given is None else None
        self._path: str = self._own.name if self._own else os.fspath(given)

    def __enter__(self) -> str:
        return self._path

    def __exit__(self, *_error: Any) -> None:
        if self._own:
            self._own.cleanup()


def linked(path: str) -> Tuple[str, Optional["tempfile.TemporaryDirectory[str]"]]:
    """The shared library for a path: itself, or one made of an object or of an archive of objects, and the folder
    that it lies in then."""
    from ..contrib import cc

    if not path.endswith((".o", ".tar")) or not os.path.exists(path):
        return path, None
    folder = tempfile.TemporaryDirectory(prefix="lathe-")
    objects = [path]
    if path.endswith(".tar"):
        objects = _objects(path, folder.name)
    library = os.path.join(folder.name, "linked.so")
    cc.create_shared(library, objects)
    return library, folder


def _objects(path: str, folder: str) -> Any:
    out = []
    try:
        with tarfile.open(path) as archive:
            for i, member in enumerate(archive):
                data = archive.extractfile(member) if member.isfile() and member.name.endswith(".o") else None
                if data is not None:
                    out.append(os.path.join(folder, f"{i}.o"))
                    with open(out[-1], "wb") as f:
                        f.write(data.read())
    except tarfile.TarError as e:
        raise error.IOError(f"'{path}' is no archive: {e}") from None
    if not out:
        raise error.IOError(f"there are no objects (.o) in '{path}'")
    return out
