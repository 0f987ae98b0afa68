"""Errors, where TVM's programs also look for them."""

from ..error import LatheError, TVMError

__all__ = ["LatheError", "TVMError"]
