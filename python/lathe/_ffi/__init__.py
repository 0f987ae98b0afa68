"""The border to the C library."""

from .core import WORLD, Object, answer, call, callback_scope, context, functions, register_object

__all__ = ["WORLD", "Object", "answer", "call", "callback_scope", "context", "functions", "register_object"]
