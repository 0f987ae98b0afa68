"""The border to the C library."""

from .core import WORLD, Object, call, callback_scope, context, functions, register_object

__all__ = ["WORLD", "Object", "call", "callback_scope", "context", "functions", "register_object"]
