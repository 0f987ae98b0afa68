"""Ranges and structural comparison."""

from .._ir.compare import assert_structural_equal, structural_equal, structural_hash
from ..tir.expr import Range

__all__ = ["Range", "assert_structural_equal", "structural_equal", "structural_hash"]
