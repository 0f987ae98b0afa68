"""The names of TVMScript, for editors and for Python to run the definitions over.

A function decorated with `@T.prim_func` is read as text by the compiler; Python
itself only evaluates the annotations of its parameters, which is all that these
names have to stand for."""

from __future__ import annotations

from typing import Any

from .parser import prim_func

__all__ = ["prim_func"]


class _Name:
    """A name of the language: may be called, indexed and used in arithmetic."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> "_Name":
        return self

    def __getitem__(self, item: Any) -> "_Name":
        return self

    def __getattr__(self, name: str) -> "_Name":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self.__name__}.{name}")

    def _same(self, *_args: Any) -> "_Name":
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = _same

    def __repr__(self) -> str:
        return f"T.{self.__name__}"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Name(name)
