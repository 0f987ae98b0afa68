"""The names of TVMScript, for editors and for Python to run the definitions over.

A function decorated with `@T.prim_func` is read as text by the compiler; Python
itself only evaluates the annotations of its parameters, which is all that most of
these names have to stand for.  The name of a dtype makes numbers outside of a script
too: `T.int32(16)` is the constant that `tir.const(16, "int32")` is; and the functions of
`lathe.tir` make expressions: `T.max(x, 1)` is `tir.max(x, 1)`."""

from __future__ import annotations

import re
from typing import Any

from .parser import macro, prim_func

__all__ = ["macro", "prim_func"]


_DTYPE = re.compile(r"(bool|u?int(8|16|32|64)|float(16|32|64)|bfloat16)$")


#: Names that annotate parameters, and stand for themselves.
_DECLARATIONS = ("Buffer", "handle")


class _Name:
    """A name of the language: may be called, indexed and used in arithmetic."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args or any(isinstance(a, _Name) for a in [*args, *kwargs.values()]):
            return self
        from .. import tir  # here: tir itself reads scripts

        if len(args) == 1 and not kwargs and _DTYPE.match(self.__name__):
            value = float(args[0]) if isinstance(args[0], str) and "float" in self.__name__ else args[0]
            return tir.const(value, self.__name__)
        made = None if self.__name__ in _DECLARATIONS else getattr(tir, self.__name__, None)
        return made(*args, **kwargs) if callable(made) else self

    def asobject(self) -> Any:
        from .. import error

        raise error.TypeError(
            f"T.{self.__name__} is a name of scripts and has no value outside of one; lathe.tir has its functions"
        )

    __iter__ = None  # indexing never ends

    def __getitem__(self, item: Any) -> "_Name":
        return self

    def __getattr__(self, name: str) -> "_Name":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self.__name__}.{name}")

    def _same(self, *_args: Any) -> "_Name":
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = (
        __neg__
    ) = _same

    def __repr__(self) -> str:
        return f"T.{self.__name__}"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Name(name)
