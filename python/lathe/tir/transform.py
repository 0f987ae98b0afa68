"""Passes over loop programs: those of lowering that may run alone, under TVM's names, and the user's own.

Each checks first that the function has the form it needs; `lathe.lower` runs all of them in order."""

from __future__ import annotations

from typing import Any, Callable, List

from .. import error
from .._ffi import call
from .._ir.transform import PassInfo, PrimFuncPass, prim_func_pass
from ..target import resolve
from .function import PrimFunc

__all__ = ["Apply", "PrimFuncPass", "prim_func_pass"]


def _factory(name: str, row: str) -> Callable[..., PrimFuncPass]:
    def make() -> PrimFuncPass:
        return PrimFuncPass(
            lambda f, _mod, _ctx: call("lower_transform", f, resolve(None)._h, name), PassInfo(0, f"tir.{name}", [])
        )

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The pass {row} of lowering, alone."
    return make


names: List[str] = []
for _name, _row in call("lower_transforms"):
    globals()[_name] = _factory(_name, _row)
    names.append(_name)
__all__ += names


def Apply(ftransform: Callable[[PrimFunc], PrimFunc]) -> PrimFuncPass:  # pylint: disable=invalid-name
    """A pass that applies a function to every loop program."""
    return PrimFuncPass(lambda f, _mod, _ctx: ftransform(f), PassInfo(0, "tir.Apply", []))


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not name[:1].isupper():
        raise AttributeError(name)
    raise error.UnsupportedError(
        f"tir.transform.{name} is not there; there are {', '.join(names)}, and lathe.lower runs every pass in order"
    )
