"""The executor of programs ahead of time, under TVM's name."""

from ..aot import AotModule

__all__ = ["AotModule"]
