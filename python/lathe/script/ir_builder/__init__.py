"""Programs built from Python: ``from lathe.script.ir_builder import IRBuilder, tir as T``."""

from . import tir
from .base import IRBuilder

__all__ = ["IRBuilder", "tir"]
