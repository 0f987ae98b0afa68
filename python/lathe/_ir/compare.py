"""Do two things mean the same?  Objects are told apart by their kind in the C library, so that this stands below the
classes that it compares."""

from __future__ import annotations

from typing import Any, Optional

from .. import error
from .._ffi import WORLD, Object, call
from .._ffi.core import KIND_NUMBER

_EXPRESSIONS = frozenset(KIND_NUMBER[k] for k in ("expr", "var", "itervar"))


def _is(x: Any, kind: str) -> bool:
    return isinstance(x, Object) and x._kind == KIND_NUMBER[kind]


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Do both mean the same, up to the names of what they bind?  A free variable is equal to itself alone; with
    map_free_vars free variables may be renamed, one to one.

    Works on expressions, functions, modules, ranges, and lists of those."""
    return _difference(lhs, rhs, map_free_vars) is None


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError with the first difference unless both are structurally equal."""
    why = _difference(lhs, rhs, map_free_vars)
    if why is not None:
        raise error.ArgumentError(f"not structurally equal: {why}")


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A hash that is equal for structurally equal functions and modules."""
    if _is(node, "primfunc"):
        return int(call("primfunc_hash", node)) & (2**64 - 1)
    if _is(node, "node"):
        return int(call("node_hash", node)) & (2**64 - 1)
    if _is(node, "module"):
        return hash(tuple(sorted((k.name_hint, structural_hash(f)) for k, f in node.functions.items())))
    if isinstance(node, (list, tuple)):
        return hash(tuple(structural_hash(x) for x in node))
    return hash(node)


def _expression(x: Any) -> Any:
    """An expression, or a number as one; None for anything else."""
    if hasattr(x, "asobject"):
        x = x.asobject()
    if isinstance(x, (bool, int, float)):
        return call("const", WORLD, x, None)
    return x if isinstance(x, Object) and x._kind in _EXPRESSIONS else None


def _answer(answer: Any, otherwise: str) -> Optional[str]:
    equal, why = answer
    return None if equal else why or otherwise


def _difference(a: Any, b: Any, free: bool) -> Optional[str]:
    """The first difference in words; None if there is none."""
    if _is(a, "module") and _is(b, "module"):
        return _module_difference(a, b, free)
    if _is(a, "primfunc") and _is(b, "primfunc"):
        return _answer(call("primfunc_equal", a, b), "the functions differ")
    if _is(a, "node") and _is(b, "node"):
        return _answer(call("node_equal", a, b, free), "the graphs differ")
    if hasattr(a, "_structure") and hasattr(b, "_structure"):
        return _difference(a._structure(), b._structure(), free)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"lengths {len(a)} and {len(b)}"
        return next((d for d in (_difference(x, y, free) for x, y in zip(a, b)) if d), None)
    x, y = _expression(a), _expression(b)
    if x is not None and y is not None:
        return _answer(call("expr_equal", x, y, free), f"{a} and {b}")
    return None if type(a) is type(b) and a == b else f"{a!r} and {b!r}"


def _module_difference(a: Any, b: Any, free: bool) -> Optional[str]:
    names = [v.name_hint for v in a.get_global_vars()]
    others = [v.name_hint for v in b.get_global_vars()]
    if sorted(names) != sorted(others):
        return f"functions {names} and {others}"
    for n in names:
        why = _difference(a[n], b[n], free)
        if why:
            return f"function '{n}': {why}"
    return None
