"""Containers, under TVM's other name for them."""

from ..runtime.container import Array, Map

__all__ = ["Array", "Map"]
