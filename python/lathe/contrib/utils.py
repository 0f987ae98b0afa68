"""Temporary folders."""

from __future__ import annotations

import os
import tempfile
from typing import List, Optional


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
