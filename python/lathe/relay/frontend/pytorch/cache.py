"""Compiled graphs of torch.compile, kept between processes.

A graph's file is named by a digest of all that it was made of: the graph with its constants, the target and what that
means on this machine, the options, the compiler itself.  Files lie in a folder that only this user can write; those
that were not used for longest go when all together are beyond MOST_BYTES."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import pathlib
import platform
from typing import Any, Optional

from .... import error
from ...._ffi import call, library
from ...._ir.module import IRModule
from ...._ir.transform import PassContext
from ....runtime.module import load_module
from ....target import resolve
from ...analysis import post_order_visit
from ...build_module import build
from ...expr import Constant, Function

log = logging.getLogger("lathe.torch")
MOST_BYTES = 4 << 30


def folder_of(given: Any) -> Optional[pathlib.Path]:
    """Where files lie: the folder that is given; None: LATHE_CACHE, or lathe in the user's cache; False: nowhere."""
    if given is False:
        return None
    if given is None or given is True:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        given = os.environ.get("LATHE_CACHE") or os.path.join(home, "lathe", "torch")
    return pathlib.Path(given)


def _usable(folder: pathlib.Path) -> bool:
    """Is it there, and can nobody else write it?"""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        st = folder.stat()
    except OSError as e:
        log.warning("compiled graphs are not kept: %s", e)
        return False
    if st.st_uid != os.geteuid() or st.st_mode & 0o022:
        log.warning("compiled graphs are not kept: others may write '%s'; chmod go-w", folder)
        return False
    return True


def digest(mod: IRModule, target: Any, opt_level: int) -> str:
    """Equal for what is compiled to the same file."""
    made = hashlib.sha256()
    own = os.stat(library.compiler()._name)
    t = resolve(target)
    facts = (str(t), t.features, platform.machine(), opt_level, own.st_size, own.st_mtime_ns)
    made.update(repr(facts).encode())
    made.update(mod.astext().encode())

    def visit(e: Any) -> None:
        if isinstance(e, Constant):
            address, size, dtype, shape = call("node_fields", e)
            made.update(repr((dtype, list(shape), size)).encode())
            if size:
                made.update((ctypes.c_char * size).from_address(address))

    post_order_visit(mod["main"], visit)
    return made.hexdigest()


def built(function: Function, target: Any, opt_level: int, where: Any) -> Any:
    """The library of a function: from its file, or compiled and written there."""
    mod = IRModule.from_expr(function)
    folder = folder_of(where)
    path = folder / f"{digest(mod, target, opt_level)}.so" if folder is not None and _usable(folder) else None
    if path is not None and path.exists():
        try:
            lib = load_module(path)
            os.utime(path)
            log.info("from the cache: %s", path)
            return lib
        except (error.LatheError, OSError) as e:
            log.warning("a kept graph cannot be used and is made anew: %s", e)
    with PassContext(opt_level=opt_level):
        lib = build(mod, target)
    if path is not None:
        _keep(lib, path)
    return lib


def _keep(lib: Any, path: pathlib.Path) -> None:
    beside = path.with_suffix(f".{os.getpid()}.so")
    try:
        lib.export_library(str(beside))
        os.replace(beside, path)
        files = sorted(path.parent.glob("*.so"), key=lambda p: p.stat().st_mtime, reverse=True)
        total = 0
        for p in files:
            total += p.stat().st_size
            if total > MOST_BYTES and p != path:
                p.unlink()
    except (error.LatheError, OSError) as e:
        log.warning("a compiled graph is not kept: %s", e)
        beside.unlink(missing_ok=True)


__all__ = ["built", "digest", "folder_of"]
