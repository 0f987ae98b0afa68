"""Ranges and structural comparison."""

from __future__ import annotations

from typing import Any, Optional

from .. import error
from .._ffi import Object, call


class Range:
    """The integers from ``min`` up to, not including, ``min + extent``.

    ``Range(n)`` starts at 0; ``Range(a, b)`` ends before b."""

    def __init__(self, begin: Any, end: Optional[Any] = None):
        if end is None:
            self.min, self.extent = _const(0, begin), _const(begin)
        else:
            self.min, self.extent = _const(begin, end), _const(_simplify(end - begin))

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any) -> "Range":
        """The range that starts at min_value and has extent members."""
        r = Range.__new__(Range)
        r.min, r.extent = _const(min_value, extent), _const(extent)
        return r

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Range) and structural_equal(self, other)

    def __hash__(self) -> int:
        return hash((str(self.min), str(self.extent)))

    def __repr__(self) -> str:
        return f"Range({self.min}, {_simplify(self.min + self.extent)})"


def _simplify(e: Any) -> Any:
    from .. import arith

    return e if isinstance(e, int) else arith.Analyzer().simplify(e)


def _const(x: Any, like: Any = None) -> Any:
    from ..tir.expr import convert

    e = convert(x)
    if isinstance(x, int) and hasattr(like, "dtype"):
        return e.astype(like.dtype)
    return e


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Do both mean the same, up to the names of what they bind?

    Works on expressions, functions, modules, ranges, and lists of those."""
    return _difference(lhs, rhs) is None


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError with the first difference unless both are structurally equal."""
    why = _difference(lhs, rhs)
    if why is not None:
        raise error.ArgumentError(f"not structurally equal: {why}")


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A hash that is equal for structurally equal functions and modules."""
    from ..tir.function import PrimFunc
    from .module import IRModule

    from ..relay.expr import RelayExpr

    if isinstance(node, PrimFunc):
        return call("primfunc_hash", node) & (2**64 - 1)
    if isinstance(node, RelayExpr):
        return call("node_hash", node) & (2**64 - 1)
    if isinstance(node, IRModule):
        return hash(tuple(sorted((k.name_hint, structural_hash(f)) for k, f in node.functions.items())))
    if isinstance(node, (list, tuple)):
        return hash(tuple(structural_hash(x) for x in node))
    if isinstance(node, Object):
        return hash(node)
    return hash(node)


def _difference(a: Any, b: Any) -> Optional[str]:
    """The first difference in words; None if there is none."""
    from ..relay.expr import RelayExpr
    from ..tir.expr import PrimExpr, convert
    from ..tir.function import PrimFunc
    from .module import IRModule

    if isinstance(a, IRModule) and isinstance(b, IRModule):
        return _module_difference(a, b)
    if isinstance(a, PrimFunc) and isinstance(b, PrimFunc):
        equal, why = call("primfunc_equal", a, b)
        return None if equal else why or "the functions differ"
    if isinstance(a, RelayExpr) and isinstance(b, RelayExpr):
        equal, why = call("node_equal", a, b)
        return None if equal else why or "the graphs differ"
    if isinstance(a, Range) and isinstance(b, Range):
        return _difference(a.min, b.min) or _difference(a.extent, b.extent)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"lengths {len(a)} and {len(b)}"
        return next((d for d in map(_difference, a, b) if d), None)
    if isinstance(a, (PrimExpr, int, float)) and isinstance(b, (PrimExpr, int, float)):
        return None if call("expr_equal", convert(a), convert(b)) else f"{a} and {b}"
    return None if type(a) is type(b) and a == b else f"{a!r} and {b!r}"


def _module_difference(a: Any, b: Any) -> Optional[str]:
    names = [v.name_hint for v in a.get_global_vars()]
    others = [v.name_hint for v in b.get_global_vars()]
    if sorted(names) != sorted(others):
        return f"functions {names} and {others}"
    for n in names:
        why = _difference(a[n], b[n])
        if why:
            return f"function '{n}': {why}"
    return None
