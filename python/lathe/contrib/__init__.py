"""Helpers beside the compiler: temporary folders, the C compiler; executors stand in graph_executor
and debugger.debug_executor."""

from . import cc, utils

__all__ = ["cc", "utils"]
