"""TVMScript: programs as Python text."""

from . import ir, parser, tir
from .parser import from_source, ir_module, parse

parser.ir, parser.tir = ir, tir  # type: ignore[attr-defined]  # TVM keeps the languages there as well

__all__ = ["from_source", "ir", "ir_module", "parse", "tir"]
