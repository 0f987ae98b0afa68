"""Functions of graphs, by the name of TVM's file for them."""

from .expr import Function, FunctionWithFields

__all__ = ["Function", "FunctionWithFields"]
