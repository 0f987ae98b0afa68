"""A program of Paddle's as both forms of file give it: operators in order, which read and write values by keys."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional


class Tensor(NamedTuple):
    """An input or a parameter."""

    key: Any
    name: str
    shape: List[int]  # -1: open
    dtype: str


class Op(NamedTuple):
    """An operator under the name that the newer form has for it.

    An operand is a key, None (absent), a list of keys (several tensors), or an array.  An output is a key or a list
    of keys."""

    name: str
    inputs: List[Any]
    outputs: List[Any]
    attrs: Dict[str, Any]
    regions: List["Region"] = []

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        found = self.attrs.get(name)
        return default if found is None else found

    def dtype(self, name: str = "dtype") -> Optional[str]:
        """An attribute that is a dtype; None where it says that the operand's is meant."""
        found = self.attrs.get(name)
        return found if isinstance(found, str) and not found.startswith("Undefined") else None


class Region(NamedTuple):
    """The body of a branch or of a loop; its last operator, "yield", reads what it gives."""

    args: List[Any]
    ops: List[Op]


class Program(NamedTuple):
    """A whole one."""

    inputs: List[Tensor]
    params: List[Tensor]
    ops: List[Op]
    outputs: List[Any]


__all__ = ["Op", "Program", "Region", "Tensor"]
