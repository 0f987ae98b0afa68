"""After `import lathe.compat.tvm`, `import tvm` means Lathe.

>>> import lathe.compat.tvm
>>> import tvm
>>> from tvm.contrib import graph_executor

Every module `tvm.X` is the module `lathe.X`, the same object.  A module that Lathe does not have is not found;
nothing of another TVM that may be installed is mixed in."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, Optional, Sequence


class _Loader(importlib.abc.Loader):
    """Puts the module of Lathe in the place of the one that was made for the name."""

    def exec_module(self, module: ModuleType) -> None:
        """Loads lathe.X for tvm.X."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(lathe_name(name))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds tvm and everything below it in Lathe."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The place of a module of tvm; None for other names."""
        if fullname != "tvm" and not fullname.startswith("tvm."):
            return None
        name = lathe_name(fullname)
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(
                f"Lathe stands in for TVM and has no module '{fullname}' (it would be {name})", name=fullname
            )
        return importlib.machinery.ModuleSpec(fullname, _Loader())


def lathe_name(name: str) -> str:
    """The module of Lathe that a module of TVM is: tvm.contrib.cc is lathe.contrib.cc."""
    return "lathe" + name[len("tvm") :]


def install() -> None:
    """Makes `import tvm` mean Lathe; importing this module has done it."""
    import lathe

    found = sys.modules.get("tvm")
    if found is not None and found is not lathe:
        where = getattr(found, "__file__", None) or "memory"
        raise ImportError(
            f"another tvm is imported already (from {where}); import lathe.compat.tvm before the first `import tvm`"
        )
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


install()
