"""Rows for PyTorch's primitives, and for special functions computed by series in float64."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Sequence

import numpy as np

from ..control import loop
from .graph import FLOATS, Graph, RelayExpr, call_op, cast, const, dim, dt, expand, full, rank, reshape, shape, static
from .rows_math import ROW_OF_PRIM
from .rows_reduce import reduce
from .rows_shape import padded
from .table import ROWS, find, refuse, row

for _prim, _aten in ROW_OF_PRIM.items():
    row("prims." + _prim)(find("aten." + _aten))


def _bin(name: str, a: Any, b: Any) -> RelayExpr:
    d = dt(a) if isinstance(a, RelayExpr) else dt(b)
    return call_op(name, [cast(a, d), cast(b, d)])


def _add(a: Any, b: Any) -> RelayExpr:
    return _bin("add", a, b)


def _sub(a: Any, b: Any) -> RelayExpr:
    return _bin("subtract", a, b)


def _mul(a: Any, b: Any) -> RelayExpr:
    return _bin("multiply", a, b)


def _div(a: Any, b: Any) -> RelayExpr:
    return _bin("divide", a, b)


def _pick(condition: RelayExpr, a: Any, b: Any) -> RelayExpr:
    d = dt(a) if isinstance(a, RelayExpr) else dt(b)
    return call_op("where", [condition, cast(a, d), cast(b, d)])


def _wide(f: Callable[..., RelayExpr]) -> Any:
    """A row that computes in float64."""

    def g_row(g: Graph, *args: Any) -> RelayExpr:
        return cast(
            f(*[cast(a, "float64") if isinstance(a, (RelayExpr, int, float)) else a for a in args]), g.out_dtype
        )

    return g_row


# ---- fmin, fmax: the other one where one is NaN


def _but_nan(name: str) -> Any:
    def f(g: Graph, a: Any, b: Any) -> RelayExpr:
        d = g.out_dtype
        a, b = cast(a, d), cast(b, d)
        made = call_op(name, [a, b])
        if d not in FLOATS:
            return made
        return _pick(call_op("isnan", [a]), b, _pick(call_op("isnan", [b]), a, made))

    return f


row("aten.fmin", "prims.fmin")(_but_nan("minimum"))
row("aten.fmax", "prims.fmax")(_but_nan("maximum"))


@row("aten.hypot", "prims.hypot")
def _hypot(g: Graph, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The longer side times what is at most the root of 2, so that no square overflows."""
    d = g.out_dtype
    a, b = (call_op("abs", [cast(v, d)]) for v in (a, b))
    long_, short = call_op("maximum", [a, b]), call_op("minimum", [a, b])
    plain = call_op("logical_and", [call_op("isfinite", [long_]), call_op("greater", [long_, cast(0.0, d)])])
    ratio = _div(short, _pick(plain, long_, 1.0))
    made = _pick(plain, _mul(long_, call_op("sqrt", [_add(_mul(ratio, ratio), 1.0)])), long_)
    endless = call_op("logical_or", [call_op("isinf", [a]), call_op("isinf", [b])])
    return _pick(endless, math.inf, made)


@row("prims.gcd", "aten.gcd")
def _gcd(g: Graph, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Euclid's algorithm, until every remainder is 0."""
    d = g.out_dtype
    x, y = (expand(v if d.startswith("uint") else call_op("abs", [v]), g.out_shape) for v in (cast(a, d), cast(b, d)))
    zero = cast(0, d)

    def left(_x: RelayExpr, y: RelayExpr) -> RelayExpr:
        return reduce("any", call_op("not_equal", [y, zero]), list(range(rank(y))), False)

    def step(x: RelayExpr, y: RelayExpr) -> List[RelayExpr]:
        done = call_op("equal", [y, zero])
        return [_pick(done, x, y), _pick(done, y, call_op("floor_mod", [x, y]))]

    return loop([x, y], left, step)[0]


# ---- gamma and its relatives

_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)


def _lgamma_above(x: RelayExpr) -> RelayExpr:
    """log gamma(x) for x >= 0.5, by Lanczos's approximation."""
    z = _sub(x, 1.0)
    total: Any = full(_LANCZOS[0], [], "float64")
    for i, c in enumerate(_LANCZOS[1:]):
        total = _add(_div(full(c, [], "float64"), _add(z, float(i + 1))), total)
    t = _add(z, 7.5)
    return _add(
        _sub(_add(_mul(_add(z, 0.5), call_op("log", [t])), 0.5 * math.log(2 * math.pi)), t), call_op("log", [total])
    )


def lgamma(x: RelayExpr) -> RelayExpr:
    """log |gamma(x)|; below 0.5 by reflection."""
    low = call_op("less", [x, cast(0.5, "float64")])
    up = _lgamma_above(_pick(low, _sub(full(1.0, [], "float64"), x), x))
    part = _sub(x, call_op("floor", [x]))
    sine = call_op("abs", [call_op("sin", [_mul(part, math.pi)])])
    mirrored = _sub(_sub(full(math.log(math.pi), [], "float64"), call_op("log", [sine])), up)
    made = _pick(low, mirrored, up)
    return _pick(call_op("isinf", [x]), math.inf, made)


row("aten.lgamma", "prims.lgamma", "aten.special_gammaln")(_wide(lgamma))


def digamma(x: RelayExpr) -> RelayExpr:
    """The derivative of log gamma: moved up by 8, then its asymptotic series; negative ones by reflection."""
    low = call_op("less", [x, cast(0.0, "float64")])
    y = _pick(low, _sub(full(1.0, [], "float64"), x), x)
    moved = None
    for i in range(8):
        term = _div(full(1.0, [], "float64"), _add(y, float(i)))
        moved = term if moved is None else _add(moved, term)
    z = _add(y, 8.0)
    w = _div(full(1.0, [], "float64"), _mul(z, z))
    series: Any = full(0.0, [], "float64")
    for c in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = _mul(w, _add(series, c))
    up = _sub(_sub(_sub(call_op("log", [z]), _div(full(0.5, [], "float64"), z)), series), moved)
    part = _sub(x, call_op("floor", [x]))
    mirrored = _sub(up, _div(full(math.pi, [], "float64"), call_op("tan", [_mul(part, math.pi)])))
    whole = call_op("logical_and", [low, call_op("equal", [part, cast(0.0, "float64")])])
    made = _pick(whole, math.nan, _pick(low, mirrored, up))
    zero = call_op("equal", [x, cast(0.0, "float64")])
    return _pick(zero, _mul(_div(full(-1.0, [], "float64"), x), 1.0), made)


row("aten.digamma", "prims.digamma", "aten.special_psi", "aten.special_digamma")(_wide(digamma))


# ---- the error function's relatives


def erfcx_tail(x: RelayExpr) -> RelayExpr:
    """exp(x^2) erfc(x) for x >= 2: a continued fraction."""
    f = x
    for k in range(50, 0, -1):
        f = _add(x, _div(full(k / 2, [], "float64"), f))
    return _div(full(1 / math.sqrt(math.pi), [], "float64"), f)


def erfc(x: RelayExpr) -> RelayExpr:
    """1 - erf(x), which keeps its digits where it is small."""
    far = call_op("greater", [x, cast(2.0, "float64")])
    safe = _pick(far, x, 2.0)
    tail = _mul(call_op("exp", [call_op("negative", [_mul(safe, safe)])]), erfcx_tail(safe))
    return _pick(far, tail, _sub(full(1.0, [], "float64"), call_op("erf", [x])))


row("aten.erfc", "prims.erfc", "aten.special_erfc")(_wide(erfc))


def erfcx(x: RelayExpr) -> RelayExpr:
    """exp(x^2) erfc(x)."""
    far = call_op("greater", [x, cast(2.0, "float64")])
    near = _pick(far, 0.0, x)
    close = _mul(call_op("exp", [_mul(near, near)]), _sub(full(1.0, [], "float64"), call_op("erf", [near])))
    return _pick(far, erfcx_tail(_pick(far, x, 2.0)), close)


row("aten.special_erfcx", "prims.erfcx")(_wide(erfcx))


def erfinv(x: RelayExpr) -> RelayExpr:
    """Winitzki's approximation, then Newton's steps."""
    one = full(1.0, [], "float64")
    inside = call_op("less", [call_op("abs", [x]), cast(1.0, "float64")])
    y = _pick(inside, x, 0.0)
    l = call_op("log", [_mul(_sub(one, y), _add(one, y))])
    a = 0.147
    b = _add(_mul(l, 0.5), 2 / (math.pi * a))
    r = call_op(
        "sqrt",
        [call_op("maximum", [_sub(call_op("sqrt", [_sub(_mul(b, b), _mul(l, 1 / a))]), b), cast(0.0, "float64")])],
    )
    r = _mul(r, call_op("sign", [y]))
    for _ in range(3):
        slope = _mul(call_op("exp", [call_op("negative", [_mul(r, r)])]), 2 / math.sqrt(math.pi))
        r = _sub(r, _div(_sub(call_op("erf", [r]), y), slope))
    edge = _pick(call_op("equal", [call_op("abs", [x]), cast(1.0, "float64")]), _mul(x, math.inf), math.nan)
    return _pick(inside, r, edge)


row("aten.erfinv", "prims.erf_inv", "aten.special_erfinv")(_wide(erfinv))


def ndtri(p: RelayExpr) -> RelayExpr:
    """Where the normal distribution reaches p."""
    return _mul(erfinv(_sub(_mul(p, 2.0), 1.0)), math.sqrt(2))


row("aten.special_ndtri", "prims.ndtri")(_wide(ndtri))


def log_ndtr(x: RelayExpr) -> RelayExpr:
    """The logarithm of the normal distribution."""
    y = _mul(x, -math.sqrt(0.5))
    far = call_op("greater", [y, cast(2.0, "float64")])
    safe = _pick(far, y, 2.0)
    low = _sub(call_op("log", [_mul(erfcx_tail(safe), 0.5)]), _mul(safe, safe))
    return _pick(far, low, call_op("log", [_mul(erfc(_pick(far, 0.0, y)), 0.5)]))


row("aten.special_log_ndtr")(_wide(log_ndtr))


# ---- Bessel's


def _modified(order: int, scaled: bool) -> Any:
    def f(x: RelayExpr) -> RelayExpr:
        """The series up to 20, beyond it the asymptotic one."""
        a = call_op("abs", [x])
        far = call_op("greater", [a, cast(20.0, "float64")])
        y = _pick(far, 0.0, a)
        q = _mul(_mul(y, y), 0.25)
        total: Any = full(0.0, [], "float64")
        for k in range(60, 0, -1):
            total = _mul(_div(q, float(k * (k + order))), _add(total, 1.0))
        near = _add(total, 1.0)
        near = _mul(_mul(near, y), 0.5) if order else near
        near = _mul(near, call_op("exp", [call_op("negative", [y])])) if scaled else near
        z = _pick(far, a, 20.0)
        mu = 4.0 * order * order
        tail: Any = full(0.0, [], "float64")
        for k in range(12, 0, -1):
            factor = -(mu - (2 * k - 1) ** 2) / (k * 8.0)
            tail = _mul(_div(full(factor, [], "float64"), z), _add(tail, 1.0))
        beyond = _div(_add(tail, 1.0), call_op("sqrt", [_mul(z, 2 * math.pi)]))
        beyond = beyond if scaled else _mul(beyond, call_op("exp", [z]))
        made = _pick(far, beyond, near)
        return _mul(made, call_op("sign", [x])) if order else made

    return f


row("aten.i0", "aten.special_i0", "prims.bessel_i0", "aten.special_modified_bessel_i0")(_wide(_modified(0, False)))
row("aten.special_i0e", "prims.bessel_i0e")(_wide(_modified(0, True)))
row("aten.special_i1", "prims.bessel_i1", "aten.special_modified_bessel_i1")(_wide(_modified(1, False)))
row("aten.special_i1e", "prims.bessel_i1e")(_wide(_modified(1, True)))


def _spherical(x: RelayExpr) -> RelayExpr:
    """sin(x) / x."""
    small = call_op("less", [call_op("abs", [x]), cast(1e-4, "float64")])
    safe = _pick(small, 1.0, x)
    return _pick(small, _sub(full(1.0, [], "float64"), _div(_mul(x, x), 6.0)), _div(call_op("sin", [safe]), safe))


row("aten.special_spherical_bessel_j0", "prims.spherical_bessel_j0")(_wide(_spherical))


# ---- polynomials by their recurrence: p(k+1) = (a x + b) p(k) - c p(k-1)


def _polynomial(
    first: Callable[[RelayExpr], RelayExpr], step: Callable[[RelayExpr, int, RelayExpr, RelayExpr], RelayExpr]
) -> Any:
    def f(g: Graph, x: Any, n: Any) -> RelayExpr:
        if isinstance(n, RelayExpr):
            return refuse("an order that is not a number")
        x = expand(cast(x, "float64"), g.out_shape)
        before, now = full(1.0, g.out_shape, "float64"), first(x)
        n = int(n)
        if n < 0:
            return full(0.0, g.out_shape, g.out_dtype)
        if n == 0:
            return cast(before, g.out_dtype)
        for k in range(1, n):
            before, now = now, step(x, k, now, before)
        return cast(now, g.out_dtype)

    return f


row("aten.special_chebyshev_polynomial_t")(_polynomial(lambda x: x, lambda x, k, p, q: _sub(_mul(_mul(x, 2.0), p), q)))
row("aten.special_chebyshev_polynomial_u")(
    _polynomial(lambda x: _mul(x, 2.0), lambda x, k, p, q: _sub(_mul(_mul(x, 2.0), p), q))
)
row("aten.special_chebyshev_polynomial_v")(
    _polynomial(lambda x: _sub(_mul(x, 2.0), 1.0), lambda x, k, p, q: _sub(_mul(_mul(x, 2.0), p), q))
)
row("aten.special_chebyshev_polynomial_w")(
    _polynomial(lambda x: _add(_mul(x, 2.0), 1.0), lambda x, k, p, q: _sub(_mul(_mul(x, 2.0), p), q))
)
row("aten.special_hermite_polynomial_h")(
    _polynomial(lambda x: _mul(x, 2.0), lambda x, k, p, q: _sub(_mul(_mul(x, 2.0), p), _mul(q, 2.0 * k)))
)
row("aten.special_hermite_polynomial_he")(
    _polynomial(lambda x: x, lambda x, k, p, q: _sub(_mul(x, p), _mul(q, float(k))))
)
row("aten.special_laguerre_polynomial_l")(
    _polynomial(
        lambda x: _sub(full(1.0, [], "float64"), x),
        lambda x, k, p, q: _div(_sub(_mul(_sub(full(2.0 * k + 1, [], "float64"), x), p), _mul(q, float(k))), k + 1.0),
    )
)
row("aten.special_legendre_polynomial_p")(
    _polynomial(lambda x: x, lambda x, k, p, q: _div(_sub(_mul(_mul(x, 2.0 * k + 1), p), _mul(q, float(k))), k + 1.0))
)


# ---- distances and products of three


@row("aten._cdist_forward")
def _cdist(g: Graph, a: RelayExpr, b: RelayExpr, p: float, _mode: Any = None) -> RelayExpr:
    x = call_op("expand_dims", [a], axis=rank(a) - 1)
    y = call_op("expand_dims", [b], axis=rank(b) - 2)
    off = call_op("abs", [_sub(x, y)])
    return _norm(off, p, rank(off) - 1, g)


def _norm(off: RelayExpr, p: float, axis: int, g: Graph) -> RelayExpr:
    if p == 0:
        return reduce("sum", cast(call_op("not_equal", [off, cast(0.0, dt(off))]), dt(off)), [axis], False)
    if math.isinf(p):
        return reduce("max", off, [axis], False) if dim(off, axis) else full(0.0, g.out_shape, dt(off))
    if p == 1:
        return reduce("sum", off, [axis], False)
    if p == 2:
        return call_op("sqrt", [reduce("sum", _mul(off, off), [axis], False)])
    total = reduce("sum", call_op("power", [off, cast(float(p), dt(off))]), [axis], False)
    return call_op("power", [total, cast(1.0 / p, dt(off))])


@row("aten._pdist_forward")
def _pdist(g: Graph, x: RelayExpr, p: float = 2.0) -> RelayExpr:
    n = static(x, "pdist")[0]
    i, j = np.triu_indices(n, 1)
    parts = [call_op("take", [x, const(at.astype("int64"))], axis=0) for at in (i, j)]
    return _norm(call_op("abs", [_sub(*parts)]), p, 1, g)


@row("aten._trilinear")
def _trilinear(
    g: Graph,
    a: RelayExpr,
    b: RelayExpr,
    c: RelayExpr,
    ea: Sequence[int],
    eb: Sequence[int],
    ec: Sequence[int],
    over: Sequence[int],
    _unroll: int = 1,
) -> RelayExpr:
    for axes, k in ((ea, 0), (eb, 1), (ec, 2)):
        for axis in axes:
            a, b, c = [call_op("expand_dims", [t], axis=axis) if i == k else t for i, t in enumerate((a, b, c))]
    return reduce("sum", _mul(_mul(a, b), c), list(over), False)


# ---- places and masks


@row("aten.masked_select")
def _masked_select(g: Graph, x: RelayExpr, mask: RelayExpr) -> RelayExpr:
    known = np.broadcast_shapes(tuple(static(x, "masked_select")), tuple(static(mask, "masked_select")))
    flat, keep = (call_op("reshape", [expand(t, list(known))], newshape=[-1]) for t in (x, cast(mask, "bool")))
    where = call_op("reshape", [call_op("argwhere", [keep])], newshape=[-1])
    return call_op("take", [flat, cast(where, "int64")], axis=0)


@row("aten.nonzero_static")
def _nonzero_static(g: Graph, x: RelayExpr, size: int, fill: int = -1) -> RelayExpr:
    if not rank(x) or not size or 0 in x.checked_type.shape:
        return full(fill, g.out_shape, "int64") if rank(x) or not size else refuse("a tensor of no dimensions")
    found = call_op("argwhere_padded", [x])
    places, count = cast(found[0], "int64"), cast(found[1], "int64")
    here = dim(places, 0)
    if not isinstance(here, int):
        return refuse("a tensor whose sizes are not known")
    places = padded(places, [0, 0, 0, max(size - here, 0)], fill, "constant")
    places = call_op("strided_slice", [places], begin=[0], end=[size], strides=[1], axes=[0])
    live = call_op("less", [const(np.arange(size).astype("int64")), reshape(count, [1])])
    return _pick(call_op("expand_dims", [live], axis=1), places, fill)


@row("aten.mode")
def _mode(g: Graph, x: RelayExpr, axis: int = -1, keep: bool = False) -> List[RelayExpr]:
    """The smallest of the most frequent elements, and where it is last."""
    if not rank(x):
        return [x, const(0, "int64")]
    axis %= rank(x)
    n = dim(x, axis)
    if not isinstance(n, int) or n == 0:
        return refuse("an axis of no, or of unknown, size")
    v = cast(x, "uint8") if dt(x) == "bool" else x
    same = call_op("equal", [call_op("expand_dims", [v], axis=axis), call_op("expand_dims", [v], axis=axis + 1)])
    often = reduce("sum", cast(same, "int32"), [axis + 1], False)
    most = call_op("equal", [often, reduce("max", often, [axis], True)])
    top = cast(np.inf if dt(v) in FLOATS else np.iinfo(dt(v)).max, dt(v))
    value = reduce("min", call_op("where", [most, v, top]), [axis], True)
    places = const(np.arange(n).reshape([-1 if i == axis else 1 for i in range(rank(x))]).astype("int64"))
    at = reduce("max", call_op("where", [call_op("equal", [v, value]), places, cast(-1, "int64")]), [axis], keep)
    value = value if keep else call_op("squeeze", [value], axis=[axis])
    return [cast(value, dt(x)), at]


@row("aten.as_strided_scatter", "prims.as_strided_scatter")
def _as_strided_scatter(
    g: Graph, x: RelayExpr, source: RelayExpr, size: Sequence[int], stride: Sequence[int], offset: Any = 0
) -> RelayExpr:
    static(x, "as_strided_scatter")
    if not g.meta(0).is_contiguous():
        refuse("a tensor whose memory is not in order")
    places = np.zeros(tuple(size), "int64") + (offset or 0)
    for axis, (n, s) in enumerate(zip(size, stride)):
        places += (np.arange(n) * s).reshape([-1 if i == axis else 1 for i in range(len(size))])
    d = dt(x)
    flat = call_op("reshape", [cast(x, "uint8") if d == "bool" else x], newshape=[-1])
    source = call_op("reshape", [cast(source, dt(flat))], newshape=[-1])
    made = call_op("scatter_nd", [flat, const(places.reshape(1, -1)), source], mode="update")
    return cast(reshape(made, shape(x)), d)


@row("aten.frexp", "prims.frexp")
def _frexp(g: Graph, x: RelayExpr) -> List[RelayExpr]:
    """A fraction of [0.5, 1) and a power of two: read from the bits of the number as float64."""
    wide = cast(x, "float64")
    bits = call_op("reinterpret", [wide], dtype="int64")
    power = call_op("bitwise_and", [call_op("right_shift", [bits, const(52, "int64")]), const(0x7FF, "int64")])
    fraction = call_op(
        "reinterpret",
        [
            call_op(
                "bitwise_or",
                [
                    call_op("bitwise_and", [bits, const(-0x7FF0000000000001, "int64")]),
                    const(0x3FE0000000000000, "int64"),
                ],
            )
        ],
        dtype="float64",
    )
    plain = call_op("logical_and", [call_op("isfinite", [wide]), call_op("not_equal", [wide, cast(0.0, "float64")])])
    return [cast(_pick(plain, fraction, wide), dt(x)), cast(_pick(plain, _sub(power, 1022), 0), "int32")]


@row("aten.nextafter", "prims.nextafter")
def _nextafter(g: Graph, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The neighbour of a in the direction of b: the integer of its bits is one more or less."""
    d = g.out_dtype
    whole = {"float32": "int32", "float64": "int64", "float16": "int16", "bfloat16": "int16"}[d]
    a, b = expand(cast(a, d), g.out_shape), expand(cast(b, d), g.out_shape)
    bits = call_op("reinterpret", [a], dtype=whole)
    outward = call_op("equal", [call_op("greater", [b, a]), call_op("greater", [a, cast(0.0, d)])])
    moved = call_op("reinterpret", [call_op("add", [bits, _pick(outward, cast(1, whole), cast(-1, whole))])], dtype=d)
    tiny = call_op(
        "reinterpret",
        [_pick(call_op("greater", [b, a]), cast(1, whole), const(np.iinfo(whole).min + 1, whole))],
        dtype=d,
    )
    moved = _pick(call_op("equal", [a, cast(0.0, d)]), tiny, moved)
    return _pick(call_op("isnan", [a]), a, _pick(call_op("isnan", [b]), b, _pick(call_op("equal", [a, b]), b, moved)))


__all__ = ["ROWS"]
