"""External compilers: their tables of patterns.  docs/byoc.md tells how one is brought in."""

from .register import get_pattern_table, register_pattern_table

__all__ = ["get_pattern_table", "register_pattern_table"]
