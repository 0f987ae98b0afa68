"""The border to the C library."""

from .core import WORLD, Object, call, context, functions, register_object

__all__ = ["WORLD", "Object", "call", "context", "functions", "register_object"]
