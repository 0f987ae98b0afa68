"""External compilers: code generators for functions with the attribute Compiler.  docs/byoc.md has an example."""

from .external import CSource, Module, Object, arguments, constants_of, get_codegen
from .graph import Graph, Kernel, Tensor, to_json

__all__ = [
    "CSource", "Graph", "Kernel", "Module", "Object", "Tensor", "arguments", "constants_of", "get_codegen", "to_json",
]
