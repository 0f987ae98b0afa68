"""Modules: named functions."""

from .._ir.module import GlobalVar, IRModule

__all__ = ["GlobalVar", "IRModule"]
