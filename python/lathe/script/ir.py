"""The names of TVMScript for modules."""

from .parser import ir_module

__all__ = ["ir_module"]


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    from .tir import _Name

    return _Name(name)
