"""Temporary folders."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from typing import Any, List, Optional


class TempDirectory:
    """A folder that goes away with its last reference."""

    def __init__(self, custom_path: Optional[str] = None, keep_for_debug: bool = False):
        self._folder = None
        if custom_path:
            os.makedirs(custom_path, exist_ok=True)
            self.temp_dir = custom_path
        elif keep_for_debug:
            self.temp_dir = tempfile.mkdtemp(prefix="lathe-")
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="lathe-")
            self.temp_dir = self._folder.name

    @property
    def path(self) -> str:
        """Where it is."""
        return self.temp_dir

    def relpath(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> List[str]:
        """The names in it."""
        return os.listdir(self.temp_dir)

    def remove(self) -> None:
        """Deletes it now."""
        if self._folder:
            self._folder.cleanup()

    def __enter__(self) -> "TempDirectory":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __truediv__(self, name: str) -> str:
        return self.relpath(name)


def tempdir(custom_path: Optional[str] = None, keep_for_debug: bool = False) -> TempDirectory:
    """A new temporary folder."""
    return TempDirectory(custom_path, keep_for_debug)


class FileLock:
    """A lock between processes: a file that one of them holds."""

    def __init__(self, path: str):
        self._file = open(path, "w")  # pylint: disable=consider-using-with
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Lets others have it."""
        if not self._file.closed:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
            self._file.close()


def filelock(path: str) -> FileLock:
    """Waits for the lock and takes it."""
    return FileLock(path)


def is_source_path(path: Any) -> bool:
    """Is it the path of a source file, rather than source?"""
    ends = (".c", ".cc", ".cpp", ".cu", ".cl", ".h")
    return isinstance(path, (str, os.PathLike)) and "\n" not in str(path) and str(path).endswith(ends)


def which(exec_name: str) -> Optional[str]:
    """The path of a program that is installed."""
    return shutil.which(exec_name)
