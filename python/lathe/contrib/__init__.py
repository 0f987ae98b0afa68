"""Helpers beside the compiler: temporary folders, archives, the system's compilers, pools of processes; executors
stand in graph_executor and debugger.debug_executor."""

from . import cc, nvcc, tar, utils

__all__ = ["cc", "nvcc", "tar", "utils"]
