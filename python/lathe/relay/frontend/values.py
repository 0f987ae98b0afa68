"""Values that frontends compute with while they read a model.

A value is an array (what is known now: weights, sizes, what is computed of them) or an expression."""

from __future__ import annotations

from typing import Any, List

import numpy as np

from ... import error
from ..expr import RelayExpr, call_op, const


class Refused(error.UnsupportedError):
    """An operator, or a way of using one, that Lathe does not have."""


def refuse(what: str) -> Any:
    """Raises: this is not supported."""
    raise Refused(what)


def expr(v: Any) -> RelayExpr:
    """The value as an expression."""
    if isinstance(v, RelayExpr):
        return v
    if isinstance(v, np.ndarray):
        return const(np.array(v, order="C", copy=None))
    return refuse(f"{getattr(v, 'what', 'a value that is no tensor')} as an operand")


def dt(v: Any) -> str:
    """Its dtype."""
    return v.checked_type.dtype if isinstance(v, RelayExpr) else str(v.dtype)


def rank(v: Any) -> int:
    """The number of its dimensions."""
    return len(v.checked_type.shape) if isinstance(v, RelayExpr) else v.ndim


def sizes(v: Any, what: str = "this operator") -> List[int]:
    """All its dimensions, which must be known."""
    found = list(v.checked_type.shape) if isinstance(v, RelayExpr) else list(v.shape)
    if not all(isinstance(d, int) for d in found):
        refuse(f"{what} of a tensor whose sizes are open ({v.checked_type}); say them where the model is read")
    return found


def known(v: Any, what: str) -> np.ndarray:
    """The value where it must be known when the model is read."""
    return v if isinstance(v, np.ndarray) else refuse(f"{what} that is known only at run time")


def ints(v: Any, what: str) -> List[int]:
    """The same as a list of numbers."""
    return [int(x) for x in known(v, what).reshape(-1)]


def op(name: str, *args: Any, **attrs: Any) -> RelayExpr:
    """A call of an operator of relay."""
    return call_op(name, [expr(a) for a in args], **attrs)


def like(value: float, x: Any) -> RelayExpr:
    """A number of a tensor's dtype."""
    return const(np.array(value, dt(x)))


def split_even(x: Any, parts: int, axis: int) -> List[Any]:
    """So many equal parts along an axis."""
    step = sizes(x)[axis] // parts
    return _split_at(x, [step * i for i in range(1, parts)], axis)


def split_by(x: Any, lengths: List[int], axis: int) -> List[Any]:
    """Parts of these lengths along an axis; a length of -1 is what the others leave."""
    if -1 in lengths:
        left = sizes(x)[axis] - sum(n for n in lengths if n >= 0)
        lengths = [left if n == -1 else n for n in lengths]
    return _split_at(x, [int(i) for i in np.cumsum(lengths)[:-1]], axis)


def _split_at(x: Any, at: List[int], axis: int) -> List[Any]:
    return list(call_op("split", [expr(x)], indices_or_sections=at, axis=axis, mode="indices")) if at else [x]


__all__ = ["Refused", "dt", "expr", "ints", "known", "like", "op", "rank", "refuse", "sizes", "split_by", "split_even"]
