"""What a function is called with."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

from .database import only_function


class TensorInfo(NamedTuple):
    """A tensor."""

    dtype: str
    shape: Tuple[int, ...]

    def as_json(self) -> List[Any]:
        """As TVM's records have it."""
        return ["TENSOR", self.dtype, list(self.shape)]

    @staticmethod
    def from_json(row: Any) -> "TensorInfo":
        """Of such a list."""
        _tag, dtype, shape = row
        return TensorInfo(str(dtype), tuple(int(n) for n in shape))


class ArgInfo:
    """Arguments of functions."""

    @staticmethod
    def from_prim_func(func: Any) -> List[TensorInfo]:
        """Those of a loop program."""
        return [
            TensorInfo(str(b.dtype), tuple(int(n) for n in b.shape))
            for b in (func.buffer_map[p] for p in func.params)
        ]

    @staticmethod
    def from_entry_func(mod: Any, remove_preproc: bool = True) -> List[TensorInfo]:
        """Those of a module's one loop program."""
        return ArgInfo.from_prim_func(only_function(mod))
