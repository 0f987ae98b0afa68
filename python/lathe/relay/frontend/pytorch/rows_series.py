"""Rows for special functions that take as many steps as their values ask for: loops in float64."""

from __future__ import annotations

import math
from typing import Any, Callable, List

from ..control import loop
from .graph import Graph, RelayExpr, call_op, cast, expand, full, rank
from .rows_reduce import reduce
from .rows_special import add, digamma, div, mul, pick, sub
from .table import refuse, row

MOST = 1e5
Step = Callable[[RelayExpr, RelayExpr, RelayExpr, RelayExpr], RelayExpr]


def _any(x: RelayExpr) -> RelayExpr:
    return reduce("any", x, list(range(rank(x))), False)


def _wide(x: Any, g: Graph) -> RelayExpr:
    return expand(cast(x, "float64"), g.out_shape)


# ---- Hurwitz's zeta function and the derivatives of digamma

#: (2k)! over the Bernoulli number B(2k), for k from 1.
_EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1892437580.3183791606, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip


def zeta(s: RelayExpr, q: RelayExpr) -> RelayExpr:
    """The sum of 1 / (q + k)^s over k >= 0: term by term until q + k is beyond 9, the rest by Euler and Maclaurin."""
    low = cast(9.0, "float64")

    def active(k: RelayExpr, a: RelayExpr) -> RelayExpr:
        return call_op("logical_or", [call_op("less", [k, low]), call_op("less_equal", [a, low])])

    def step(k: RelayExpr, a: RelayExpr, total: RelayExpr) -> List[RelayExpr]:
        more = active(k, a)
        term = call_op("power", [a, call_op("negative", [s])])
        return [add(k, 1.0), pick(more, add(a, 1.0), a), pick(more, add(total, term), total)]

    first = [full(0.0, [], "float64"), q, mul(q, 0.0)]
    _, a, total = loop(first, lambda k, a, t: _any(active(k, a)), step)
    power = call_op("power", [a, call_op("negative", [s])])
    made = add(total, div(mul(power, a), sub(s, 1.0)))
    made = add(made, mul(power, 0.5))
    factor, edge = s, div(power, a)
    for i, c in enumerate(_EULER_MACLAURIN):
        made = add(made, div(mul(factor, edge), c))
        factor = mul(mul(factor, add(s, 2.0 * i + 1)), add(s, 2.0 * i + 2))
        edge = div(edge, mul(a, a))
    whole = lambda v: call_op("equal", [call_op("floor", [v]), v])  # noqa: E731
    below = call_op("less_equal", [q, cast(0.0, "float64")])
    made = pick(call_op("logical_and", [below, call_op("logical_not", [whole(s)])]), math.nan, made)
    made = pick(call_op("logical_and", [below, whole(q)]), math.inf, made)
    made = pick(call_op("less", [s, cast(1.0, "float64")]), math.nan, made)
    return pick(call_op("equal", [s, cast(1.0, "float64")]), math.inf, made)


@row("aten.special_zeta", "prims.zeta")
def _zeta(g: Graph, s: Any, q: Any) -> RelayExpr:
    return cast(_bounded(_wide(s, g), _wide(q, g)), g.out_dtype)


def _bounded(s: RelayExpr, q: RelayExpr) -> RelayExpr:
    """zeta where it is a number; steps of arguments that are none, or endless, are not taken."""
    plain = call_op("logical_and", [call_op("isfinite", [q]), call_op("greater", [q, cast(-1e6, "float64")])])
    made = zeta(s, pick(plain, q, 1.0))
    nothing = full(0.0, [], "float64")
    return pick(plain, made, pick(call_op("greater", [q, cast(0.0, "float64")]), nothing, math.nan))


@row("aten.polygamma")
def _polygamma(g: Graph, order: Any, x: RelayExpr) -> RelayExpr:
    """(-1)^(n + 1) n! zeta(n + 1, x)."""
    if not isinstance(order, int):
        return refuse("an order that is no constant")
    wide = cast(x, "float64")
    if order == 0:
        return cast(digamma(wide), g.out_dtype)
    wide = expand(wide, g.out_shape)
    made = mul(_bounded(add(mul(wide, 0.0), float(order + 1)), wide), float(math.factorial(order)))
    return cast(made if order % 2 else mul(made, -1.0), g.out_dtype)


# ---- polynomials by their recurrences


def _polynomial(first: Callable[[RelayExpr], RelayExpr], step: Step, shifted: bool = False) -> Any:
    """A row for P(x, n) with P(x, 0) = 1, P(x, 1) = first(x), and P(x, k + 1) = step(x, k, P(x, k), P(x, k - 1)).

    Beyond the order MOST it is no number."""

    def f(g: Graph, x: Any, order: Any) -> RelayExpr:
        order = call_op("trunc", [_wide(order, g)])
        n = call_op("minimum", [order, cast(MOST, "float64")])
        x = _wide(x, g)
        x = sub(mul(x, 2.0), 1.0) if shifted else x
        one = add(mul(n, 0.0), 1.0)

        def more(k: RelayExpr, _now: RelayExpr, _before: RelayExpr) -> RelayExpr:
            return _any(call_op("less", [k, n]))

        def next_(k: RelayExpr, now: RelayExpr, before: RelayExpr) -> List[RelayExpr]:
            go = call_op("less", [k, n])
            return [add(k, 1.0), pick(go, step(x, k, now, before), now), pick(go, now, before)]

        made = loop([full(1.0, [], "float64"), expand(first(x), g.out_shape), one], more, next_)[1]
        made = pick(call_op("equal", [n, cast(0.0, "float64")]), 1.0, made)
        made = pick(call_op("greater", [order, n]), math.nan, made)
        return cast(pick(call_op("less", [n, cast(0.0, "float64")]), 0.0, made), g.out_dtype)

    return f


def _twice(x: RelayExpr, k: RelayExpr, now: RelayExpr, before: RelayExpr) -> RelayExpr:
    return sub(mul(mul(x, 2.0), now), before)


def _legendre(x: RelayExpr, k: RelayExpr, now: RelayExpr, before: RelayExpr) -> RelayExpr:
    return div(sub(mul(mul(add(mul(k, 2.0), 1.0), x), now), mul(k, before)), add(k, 1.0))


def _laguerre(x: RelayExpr, k: RelayExpr, now: RelayExpr, before: RelayExpr) -> RelayExpr:
    return div(sub(mul(sub(add(mul(k, 2.0), 1.0), x), now), mul(k, before)), add(k, 1.0))


_CHEBYSHEV = {
    "t": lambda x: x,
    "u": lambda x: mul(x, 2.0),
    "v": lambda x: sub(mul(x, 2.0), 1.0),
    "w": lambda x: add(mul(x, 2.0), 1.0),
}
for _kind, _first in _CHEBYSHEV.items():
    for _prefix in ("", "shifted_"):
        row(f"aten.special_{_prefix}chebyshev_polynomial_{_kind}")(_polynomial(_first, _twice, bool(_prefix)))
row("aten.special_legendre_polynomial_p")(_polynomial(lambda x: x, _legendre))
row("aten.special_laguerre_polynomial_l")(_polynomial(lambda x: add(mul(x, -1.0), 1.0), _laguerre))
row("aten.special_hermite_polynomial_h")(_polynomial(
    lambda x: mul(x, 2.0), lambda x, k, now, before: mul(sub(mul(x, now), mul(k, before)), 2.0)))  # fmt: skip
row("aten.special_hermite_polynomial_he")(_polynomial(
    lambda x: x, lambda x, k, now, before: sub(mul(x, now), mul(k, before))))  # fmt: skip
