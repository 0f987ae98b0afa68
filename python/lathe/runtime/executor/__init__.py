"""Executors under TVM's names."""

from . import aot_executor
from .aot_executor import AotModule

__all__ = ["AotModule", "aot_executor"]
