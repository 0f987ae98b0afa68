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


def add(a: Any, b: Any) -> RelayExpr:
    """a + b; a number has the dtype of the other."""
    return _bin("add", a, b)


def sub(a: Any, b: Any) -> RelayExpr:
    """a - b; a number has the dtype of the other."""
    return _bin("subtract", a, b)


def mul(a: Any, b: Any) -> RelayExpr:
    """a b; a number has the dtype of the other."""
    return _bin("multiply", a, b)


def div(a: Any, b: Any) -> RelayExpr:
    """a / b; a number has the dtype of the other."""
    return _bin("divide", a, b)


def pick(condition: RelayExpr, a: Any, b: Any) -> RelayExpr:
    """a where the condition holds, b elsewhere."""
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
        return pick(call_op("isnan", [a]), b, pick(call_op("isnan", [b]), a, made))

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
    ratio = div(short, pick(plain, long_, 1.0))
    made = pick(plain, mul(long_, call_op("sqrt", [add(mul(ratio, ratio), 1.0)])), long_)
    endless = call_op("logical_or", [call_op("isinf", [a]), call_op("isinf", [b])])
    return pick(endless, math.inf, made)


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
        return [pick(done, x, y), pick(done, y, call_op("floor_mod", [x, y]))]

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
    z = sub(x, 1.0)
    total: Any = full(_LANCZOS[0], [], "float64")
    for i, c in enumerate(_LANCZOS[1:]):
        total = add(div(full(c, [], "float64"), add(z, float(i + 1))), total)
    t = add(z, 7.5)
    return add(
        sub(add(mul(add(z, 0.5), call_op("log", [t])), 0.5 * math.log(2 * math.pi)), t), call_op("log", [total])
    )


def lgamma(x: RelayExpr) -> RelayExpr:
    """log |gamma(x)|; below 0.5 by reflection."""
    low = call_op("less", [x, cast(0.5, "float64")])
    up = _lgamma_above(pick(low, sub(full(1.0, [], "float64"), x), x))
    part = sub(x, call_op("floor", [x]))
    sine = call_op("abs", [call_op("sin", [mul(part, math.pi)])])
    mirrored = sub(sub(full(math.log(math.pi), [], "float64"), call_op("log", [sine])), up)
    made = pick(low, mirrored, up)
    return pick(call_op("isinf", [x]), math.inf, made)


row("aten.lgamma", "prims.lgamma", "aten.special_gammaln")(_wide(lgamma))


def digamma(x: RelayExpr) -> RelayExpr:
    """The derivative of log gamma: moved up by 8, then its asymptotic series; negative ones by reflection."""
    low = call_op("less", [x, cast(0.0, "float64")])
    y = pick(low, sub(full(1.0, [], "float64"), x), x)
    moved = None
    for i in range(8):
        term = div(full(1.0, [], "float64"), add(y, float(i)))
        moved = term if moved is None else add(moved, term)
    z = add(y, 8.0)
    w = div(full(1.0, [], "float64"), mul(z, z))
    series: Any = full(0.0, [], "float64")
    for c in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = mul(w, add(series, c))
    up = sub(sub(sub(call_op("log", [z]), div(full(0.5, [], "float64"), z)), series), moved)
    part = sub(x, call_op("floor", [x]))
    mirrored = sub(up, div(full(math.pi, [], "float64"), call_op("tan", [mul(part, math.pi)])))
    whole = call_op("logical_and", [low, call_op("equal", [part, cast(0.0, "float64")])])
    made = pick(whole, math.nan, pick(low, mirrored, up))
    zero = call_op("equal", [x, cast(0.0, "float64")])
    return pick(zero, mul(div(full(-1.0, [], "float64"), x), 1.0), made)


row("aten.digamma", "prims.digamma", "aten.special_psi", "aten.special_digamma")(_wide(digamma))


# ---- the error function's relatives


def erfcx_tail(x: RelayExpr) -> RelayExpr:
    """exp(x^2) erfc(x) for x >= 2: a continued fraction."""
    f = x
    for k in range(50, 0, -1):
        f = add(x, div(full(k / 2, [], "float64"), f))
    return div(full(1 / math.sqrt(math.pi), [], "float64"), f)


def erfc(x: RelayExpr) -> RelayExpr:
    """1 - erf(x), which keeps its digits where it is small."""
    far = call_op("greater", [x, cast(2.0, "float64")])
    safe = pick(far, x, 2.0)
    tail = mul(call_op("exp", [call_op("negative", [mul(safe, safe)])]), erfcx_tail(safe))
    return pick(far, tail, sub(full(1.0, [], "float64"), call_op("erf", [x])))


row("aten.erfc", "prims.erfc", "aten.special_erfc")(_wide(erfc))


def erfcx(x: RelayExpr) -> RelayExpr:
    """exp(x^2) erfc(x)."""
    far = call_op("greater", [x, cast(2.0, "float64")])
    near = pick(far, 0.0, x)
    close = mul(call_op("exp", [mul(near, near)]), sub(full(1.0, [], "float64"), call_op("erf", [near])))
    return pick(far, erfcx_tail(pick(far, x, 2.0)), close)


row("aten.special_erfcx", "prims.erfcx")(_wide(erfcx))


def erfinv(x: RelayExpr) -> RelayExpr:
    """Winitzki's approximation, then Newton's steps."""
    one = full(1.0, [], "float64")
    inside = call_op("less", [call_op("abs", [x]), cast(1.0, "float64")])
    y = pick(inside, x, 0.0)
    l = call_op("log", [mul(sub(one, y), add(one, y))])
    a = 0.147
    b = add(mul(l, 0.5), 2 / (math.pi * a))
    r = call_op(
        "sqrt",
        [call_op("maximum", [sub(call_op("sqrt", [sub(mul(b, b), mul(l, 1 / a))]), b), cast(0.0, "float64")])],
    )
    r = mul(r, call_op("sign", [y]))
    for _ in range(3):
        slope = mul(call_op("exp", [call_op("negative", [mul(r, r)])]), 2 / math.sqrt(math.pi))
        r = sub(r, div(sub(call_op("erf", [r]), y), slope))
    edge = pick(call_op("equal", [call_op("abs", [x]), cast(1.0, "float64")]), mul(x, math.inf), math.nan)
    return pick(inside, r, edge)


row("aten.erfinv", "prims.erf_inv", "aten.special_erfinv")(_wide(erfinv))


def ndtri(p: RelayExpr) -> RelayExpr:
    """Where the normal distribution reaches p."""
    return mul(erfinv(sub(mul(p, 2.0), 1.0)), math.sqrt(2))


row("aten.special_ndtri", "prims.ndtri")(_wide(ndtri))


def log_ndtr(x: RelayExpr) -> RelayExpr:
    """The logarithm of the normal distribution."""
    y = mul(x, -math.sqrt(0.5))
    far = call_op("greater", [y, cast(2.0, "float64")])
    safe = pick(far, y, 2.0)
    low = sub(call_op("log", [mul(erfcx_tail(safe), 0.5)]), mul(safe, safe))
    return pick(far, low, call_op("log", [mul(erfc(pick(far, 0.0, y)), 0.5)]))


row("aten.special_log_ndtr")(_wide(log_ndtr))


# ---- Bessel's


def _modified(order: int, scaled: bool) -> Any:
    def f(x: RelayExpr) -> RelayExpr:
        """The series up to 20, beyond it the asymptotic one."""
        a = call_op("abs", [x])
        far = call_op("greater", [a, cast(20.0, "float64")])
        y = pick(far, 0.0, a)
        q = mul(mul(y, y), 0.25)
        total: Any = full(0.0, [], "float64")
        for k in range(60, 0, -1):
            total = mul(div(q, float(k * (k + order))), add(total, 1.0))
        near = add(total, 1.0)
        near = mul(mul(near, y), 0.5) if order else near
        near = mul(near, call_op("exp", [call_op("negative", [y])])) if scaled else near
        z = pick(far, a, 20.0)
        mu = 4.0 * order * order
        tail: Any = full(0.0, [], "float64")
        for k in range(12, 0, -1):
            factor = -(mu - (2 * k - 1) ** 2) / (k * 8.0)
            tail = mul(div(full(factor, [], "float64"), z), add(tail, 1.0))
        beyond = div(add(tail, 1.0), call_op("sqrt", [mul(z, 2 * math.pi)]))
        beyond = beyond if scaled else mul(beyond, call_op("exp", [z]))
        made = pick(far, beyond, near)
        return mul(made, call_op("sign", [x])) if order else made

    return f


row("aten.i0", "aten.special_i0", "prims.bessel_i0", "aten.special_modified_bessel_i0")(_wide(_modified(0, False)))
row("aten.special_i0e", "prims.bessel_i0e")(_wide(_modified(0, True)))
row("aten.special_i1", "prims.bessel_i1", "aten.special_modified_bessel_i1")(_wide(_modified(1, False)))
row("aten.special_i1e", "prims.bessel_i1e")(_wide(_modified(1, True)))


def _spherical(x: RelayExpr) -> RelayExpr:
    """sin(x) / x."""
    small = call_op("less", [call_op("abs", [x]), cast(1e-4, "float64")])
    safe = pick(small, 1.0, x)
    return pick(small, sub(full(1.0, [], "float64"), div(mul(x, x), 6.0)), div(call_op("sin", [safe]), safe))


row("aten.special_spherical_bessel_j0", "prims.spherical_bessel_j0")(_wide(_spherical))


# ---- distances and products of three


@row("aten._cdist_forward")
def _cdist(g: Graph, a: RelayExpr, b: RelayExpr, p: float, _mode: Any = None) -> RelayExpr:
    x = call_op("expand_dims", [a], axis=rank(a) - 1)
    y = call_op("expand_dims", [b], axis=rank(b) - 2)
    off = call_op("abs", [sub(x, y)])
    return _norm(off, p, rank(off) - 1, g)


def _norm(off: RelayExpr, p: float, axis: int, g: Graph) -> RelayExpr:
    if p == 0:
        return reduce("sum", cast(call_op("not_equal", [off, cast(0.0, dt(off))]), dt(off)), [axis], False)
    if math.isinf(p):
        return reduce("max", off, [axis], False) if dim(off, axis) else full(0.0, g.out_shape, dt(off))
    if p == 1:
        return reduce("sum", off, [axis], False)
    if p == 2:
        return call_op("sqrt", [reduce("sum", mul(off, off), [axis], False)])
    total = reduce("sum", call_op("power", [off, cast(float(p), dt(off))]), [axis], False)
    return call_op("power", [total, cast(1.0 / p, dt(off))])


@row("aten._pdist_forward")
def _pdist(g: Graph, x: RelayExpr, p: float = 2.0) -> RelayExpr:
    n = static(x, "pdist")[0]
    i, j = np.triu_indices(n, 1)
    parts = [call_op("take", [x, const(at.astype("int64"))], axis=0) for at in (i, j)]
    return _norm(call_op("abs", [sub(*parts)]), p, 1, g)


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
    return reduce("sum", mul(mul(a, b), c), list(over), False)


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
    return pick(call_op("expand_dims", [live], axis=1), places, fill)


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
    return [cast(pick(plain, fraction, wide), dt(x)), cast(pick(plain, sub(power, 1022), 0), "int32")]


@row("aten.nextafter", "prims.nextafter")
def _nextafter(g: Graph, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The neighbour of a in the direction of b: the integer of its bits is one more or less."""
    d = g.out_dtype
    whole = {"float32": "int32", "float64": "int64", "float16": "int16", "bfloat16": "int16"}[d]
    a, b = expand(cast(a, d), g.out_shape), expand(cast(b, d), g.out_shape)
    bits = call_op("reinterpret", [a], dtype=whole)
    outward = call_op("equal", [call_op("greater", [b, a]), call_op("greater", [a, cast(0.0, d)])])
    moved = call_op("reinterpret", [call_op("add", [bits, pick(outward, cast(1, whole), cast(-1, whole))])], dtype=d)
    tiny = call_op(
        "reinterpret",
        [pick(call_op("greater", [b, a]), cast(1, whole), const(np.iinfo(whole).min + 1, whole))],
        dtype=d,
    )
    moved = pick(call_op("equal", [a, cast(0.0, d)]), tiny, moved)
    return pick(call_op("isnan", [a]), a, pick(call_op("isnan", [b]), b, pick(call_op("equal", [a, b]), b, moved)))


__all__ = ["ROWS", "add", "digamma", "div", "mul", "pick", "sub"]
