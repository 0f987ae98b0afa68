"""TVMScript: programs as Python text."""

from . import ir, tir
from .parser import from_source, ir_module, parse

__all__ = ["from_source", "ir", "ir_module", "parse", "tir"]
