"""Functions that relay has no operator for, as expressions of others; frontends share them."""

from __future__ import annotations

from typing import Any

from ..expr import RelayExpr
from .values import like, op


def expm1(x: Any) -> RelayExpr:
    """e^x - 1 as tanh(x / 2) (e^x + 1), which is exact where x is small."""
    half = op("tanh", op("multiply", x, like(0.5, x)))
    near = op("multiply", half, op("add", op("exp", x), like(1, x)))
    far = op("subtract", op("exp", x), like(1, x))
    return op("where", op("less", op("abs", x), like(1, x)), near, far)


def log1p(x: Any) -> RelayExpr:
    """log(1 + x) as log(u) x / (u - 1) with u = 1 + x as it is rounded: exact where x is small."""
    u = op("add", x, like(1, x))
    less = op("subtract", u, like(1, x))
    same = op("equal", less, like(0, x))
    scaled = op("divide", op("multiply", op("log", u), x), op("where", same, like(1, x), less))
    return op("where", same, x, op("where", op("isfinite", u), scaled, op("log", u)))


def softplus(x: Any) -> RelayExpr:
    """log(1 + e^x)."""
    return op("add", op("nn.relu", x), log1p(op("exp", op("negative", op("abs", x)))))


__all__ = ["expm1", "log1p", "softplus"]
