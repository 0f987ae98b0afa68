"""Helpers beside the compiler: temporary folders, the C compiler."""

from . import cc, utils

__all__ = ["cc", "utils"]
