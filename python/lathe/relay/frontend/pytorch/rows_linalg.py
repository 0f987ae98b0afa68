"""Rows for linear algebra: factorizations as loops over the columns, on stacks of matrices.

Every function here takes and gives tensors of rank 3, (matrices, rows, columns); `flat` and `unflat` lead there and
back.  Sizes must be known."""

from __future__ import annotations

import math
from typing import Any, List, Tuple as Tuple_

import numpy as np

from ..control import loop
from .graph import Graph, RelayExpr, call_op, cast, const, dt, dtype_name, expand, full, reshape, static
from .rows_reduce import reduce
from .table import refuse
from .table import row as any_row


def row(*names: str) -> Any:
    """A row for matrices: those of no elements give none."""

    def put(f: Any) -> Any:
        def checked(g: Graph, *args: Any) -> Any:
            if not any(isinstance(a, RelayExpr) and 0 in a.checked_type.shape for a in args):
                return f(g, *args)
            outs = g.out if isinstance(g.out, (list, tuple)) else [g.out]
            ones = {"aten._linalg_det": 1, "aten._linalg_slogdet": 1}.get(names[0], 0)  # determinants of nothing are 1
            if not ones and any(o.numel() and o.dtype.is_floating_point for i, o in enumerate(outs) if g.wants(i)):
                refuse("matrices of no elements")
            made = [full(0 if i else ones, g.sizes(o.shape), dtype_name(o.dtype)) for i, o in enumerate(outs)]
            return made if isinstance(g.out, (list, tuple)) else made[0]

        any_row(*names)(checked)
        return f

    return put


def flat(x: RelayExpr) -> Tuple_[RelayExpr, List[int]]:
    """A stack of matrices, and the sizes that the stack had."""
    sizes = static(x, "linear algebra")
    lead = sizes[:-2]
    if 0 in sizes:
        refuse("matrices of no elements")
    return reshape(x, [math.prod(lead), *sizes[-2:]]), lead


def unflat(x: RelayExpr, lead: List[int]) -> RelayExpr:
    """The stack as it was."""
    return reshape(x, lead + static(x, "")[1:])


def _op(name: str, *args: Any) -> RelayExpr:
    d = next(dt(a) for a in args if isinstance(a, RelayExpr))
    return call_op(name, [cast(a, d) for a in args])


def _pick(condition: RelayExpr, a: RelayExpr, b: Any) -> RelayExpr:
    return call_op("where", [condition, a, cast(b, dt(a))])


def _count(n: int, axis: int) -> RelayExpr:
    """0, 1, … along one of three axes."""
    return const(np.arange(n).reshape([-1 if i == axis else 1 for i in range(3)]).astype("int64"))


def _at(x: RelayExpr, k: RelayExpr, axis: int) -> RelayExpr:
    """Row or column k, which keeps its axis."""
    return call_op("take", [x, reshape(k, [1])], axis=axis, mode="clip")


def _steps(n: int, first: List[RelayExpr], step: Any) -> List[RelayExpr]:
    """The values after step(k, *values) for k = 0 … n - 1."""
    one = cast(1, "int64")
    return loop(
        [cast(0, "int64"), *first],
        lambda k, *_now: call_op("less", [k, cast(n, "int64")]),
        lambda k, *now: [call_op("add", [k, one]), *step(k, *now)],
    )[1:]


def _mm(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    return call_op("nn.batch_matmul", [a, b], transpose_a=False, transpose_b=False)


def _t(x: RelayExpr) -> RelayExpr:
    return call_op("transpose", [x], axes=[0, 2, 1])


def lu(a: RelayExpr) -> Tuple_[RelayExpr, RelayExpr, RelayExpr]:
    """Both factors in one matrix, the rows that were exchanged (from 1), and where each row came from."""
    b, n, m = static(a, "lu")
    rows, cols, steps = _count(n, 1), _count(m, 2), min(n, m)
    order = expand(rows, [b, n, 1])
    exchanged = full(0, [b, steps, 1], "int64")
    places = _count(steps, 1)

    def step(k: RelayExpr, x: RelayExpr, come: RelayExpr, swaps: RelayExpr) -> List[RelayExpr]:
        size = _pick(call_op("greater_equal", [rows, k]), call_op("abs", [_at(x, k, 2)]), -1.0)
        best = reshape(cast(call_op("argmax", [size], axis=[1], keepdims=True), "int64"), [b, 1, 1])
        here = _pick(call_op("equal", [rows, k]), expand(best, [b, n, 1]), 0)
        rest = _pick(call_op("equal", [rows, best]), expand(reshape(k, [1, 1, 1]), [b, n, 1]), expand(rows, [b, n, 1]))
        from_ = call_op("where", [call_op("equal", [rows, k]), here, rest])
        x = call_op("gather", [x, expand(from_, [b, n, m])], axis=1)
        come = call_op("gather", [come, from_], axis=1)
        pivot = _at(_at(x, k, 1), k, 2)
        below = call_op("greater", [rows, k])
        factor = _pick(below, _op("divide", _at(x, k, 2), pivot), 0.0)
        zero = _op("equal", pivot, 0.0)
        factor = call_op("where", [call_op("logical_and", [zero, below]), _at(x, k, 2), factor])
        after = call_op("greater", [cols, k])
        x = _op("subtract", x, _op("multiply", factor, _pick(after, _at(x, k, 1), 0.0)))
        x = call_op(
            "where", [call_op("logical_and", [below, call_op("equal", [cols, k])]), expand(factor, [b, n, m]), x]
        )
        swaps = call_op("where", [call_op("equal", [places, k]), call_op("add", [best, cast(1, "int64")]), swaps])
        return [x, come, swaps]

    made = _steps(steps, [a, order, exchanged], step)
    return made[0], reshape(made[2], [b, steps]), reshape(made[1], [b, n])


def triangular(a: RelayExpr, b: RelayExpr, upper: bool, unit: bool) -> RelayExpr:
    """x of a x = b."""
    count, n, _ = static(a, "a triangular system")
    m = static(b, "")[2]
    rows = _count(n, 1)
    last = cast(n - 1, "int64")

    def step(k: RelayExpr, x: RelayExpr) -> List[RelayExpr]:
        i = call_op("subtract", [last, k]) if upper else k
        line = _at(a, i, 1)
        cols = _count(n, 2)
        line = _pick(call_op("greater" if upper else "less", [cols, i]), line, 0.0)
        value = _op("subtract", _at(b, i, 1), _mm(line, x))
        if not unit:
            value = _op("divide", value, _at(_at(a, i, 1), i, 2))
        return [call_op("where", [call_op("equal", [rows, i]), expand(value, [count, n, m]), x])]

    return _steps(n, [full(0.0, [count, n, m], dt(b))], step)[0]


def cholesky(a: RelayExpr) -> RelayExpr:
    """The lower factor."""
    b, n, _ = static(a, "cholesky")
    rows, cols = _count(n, 1), _count(n, 2)

    def step(k: RelayExpr, x: RelayExpr) -> List[RelayExpr]:
        column = _op("subtract", _at(a, k, 2), _mm(x, _t(_at(x, k, 1))))
        root = call_op("sqrt", [_at(column, k, 1)])
        column = call_op(
            "where", [call_op("less", [rows, k]), full(0.0, [b, n, 1], dt(a)), _op("divide", column, root)]
        )
        return [call_op("where", [call_op("equal", [cols, k]), expand(column, [b, n, n]), x])]

    return _steps(n, [full(0.0, [b, n, n], dt(a))], step)[0]


def qr(a: RelayExpr, whole: bool) -> Tuple_[RelayExpr, RelayExpr]:
    """By Householder's reflections, with LAPACK's signs."""
    b, n, m = static(a, "qr")
    d = dt(a)
    rows = _count(n, 1)
    unit = expand(const(np.eye(n).astype(d)[None]), [b, n, n])

    def step(k: RelayExpr, q: RelayExpr, r: RelayExpr) -> List[RelayExpr]:
        x = call_op("where", [call_op("less", [rows, k]), full(0.0, [b, n, 1], d), _at(r, k, 2)])
        head = _at(x, k, 1)
        norm = call_op("sqrt", [reduce("sum", _op("multiply", x, x), [1], True)])
        alpha = call_op("where", [_op("less", head, 0.0), norm, call_op("negative", [norm])])
        v = call_op("where", [call_op("equal", [rows, k]), _op("subtract", x, alpha), x])
        below = reduce("sum", _pick(call_op("greater", [rows, k]), _op("multiply", x, x), 0.0), [1], True)
        v = call_op("where", [_op("equal", below, 0.0), full(0.0, [b, n, 1], d), v])  # nothing to reflect
        square = reduce("sum", _op("multiply", v, v), [1], True)
        scale = _op("divide", 2.0, call_op("where", [_op("equal", square, 0.0), full(1.0, [], d), square]))
        w = _op("multiply", v, scale)
        return [_op("subtract", q, _mm(_mm(q, w), _t(v))), _op("subtract", r, _mm(w, _mm(_t(v), r)))]

    q, r = _steps(min(n, m), [unit, a], step)
    if not whole and n > m:
        q = call_op("strided_slice", [q], begin=[0], end=[m], strides=[1], axes=[2])
        r = call_op("strided_slice", [r], begin=[0], end=[m], strides=[1], axes=[1])
    return q, call_op("trilu", [r, cast(0, "int64")], upper=True)


def _parts(x: RelayExpr) -> Tuple_[RelayExpr, RelayExpr]:
    """L with ones on its diagonal, and U, of both in one matrix."""
    _, n, m = static(x, "lu")
    k = min(n, m)
    low = call_op("strided_slice", [x], begin=[0], end=[k], strides=[1], axes=[2])
    low = _op("add", call_op("trilu", [low, cast(-1, "int64")], upper=False), const(np.eye(n, k)[None].astype(dt(x))))
    up = call_op("strided_slice", [x], begin=[0], end=[k], strides=[1], axes=[1])
    return low, call_op("trilu", [up, cast(0, "int64")], upper=True)


def _ordered(b: RelayExpr, come: RelayExpr) -> RelayExpr:
    """The rows of b as the factorization took them."""
    count, n, m = static(b, "")
    return call_op("gather", [b, expand(reshape(come, [count, n, 1]), [count, n, m])], axis=1)


def solve(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """x of a x = b."""
    both, _, come = lu(a)
    low, up = _parts(both)
    return triangular(up, triangular(low, _ordered(b, come), False, True), True, False)


def _no_error(lead: List[int]) -> RelayExpr:
    return full(0, lead, "int32")


@row("aten.linalg_cholesky_ex")
def _cholesky_ex(g: Graph, x: RelayExpr, upper: bool = False, _check: bool = False) -> List[RelayExpr]:
    a, lead = flat(x)
    made = cholesky(_t(a) if upper else a)
    return [unflat(_t(made) if upper else made, lead), _no_error(lead)]


@row("aten.cholesky_solve")
def _cholesky_solve(g: Graph, b: RelayExpr, x: RelayExpr, upper: bool = False) -> RelayExpr:
    b, a, lead = _matched(b, x)
    low = _t(a) if upper else a
    return unflat(triangular(_t(low), triangular(low, b, False, False), True, False), lead)


@row("aten.cholesky_inverse")
def _cholesky_inverse(g: Graph, x: RelayExpr, upper: bool = False) -> RelayExpr:
    a, lead = flat(x)
    low = _t(a) if upper else a
    n = static(a, "")[1]
    one = expand(const(np.eye(n)[None].astype(dt(a))), static(a, ""))
    return unflat(triangular(_t(low), triangular(low, one, False, False), True, False), lead)


def _matched(b: RelayExpr, a: RelayExpr) -> Tuple_[RelayExpr, RelayExpr, List[int]]:
    """Right sides and matrices over one stack."""
    sb, sa = static(b, "linear algebra"), static(a, "linear algebra")
    lead = list(np.broadcast_shapes(tuple(sb[:-2]), tuple(sa[:-2])))
    both = [flat(expand(v, lead + s[-2:]))[0] for v, s in ((b, sb), (a, sa))]
    return both[0], both[1], lead


@row("aten.linalg_inv_ex")
def _inv_ex(g: Graph, x: RelayExpr, _check: bool = False) -> List[RelayExpr]:
    a, lead = flat(x)
    n = static(a, "")[1]
    one = expand(const(np.eye(n)[None].astype(dt(a))), static(a, ""))
    return [unflat(solve(a, one), lead), _no_error(lead)]


@row("aten._linalg_solve_ex")
def _solve_ex(g: Graph, x: RelayExpr, b: RelayExpr, left: bool = True, _check: bool = False) -> List[Any]:
    if any(g.wants(i) for i in (1, 2)):
        refuse("the factors of a system")
    vector = len(static(b, "")) == 1 or (
        len(static(x, "")) - 1 == len(static(b, "")) and static(b, "") == static(x, "")[:-1]
    )
    b = reshape(b, static(b, "") + [1]) if vector else b
    a_is = x
    if not left:
        order = list(range(len(static(x, "")) - 2)) + [len(static(x, "")) - 1, len(static(x, "")) - 2]
        a_is = call_op("transpose", [x], axes=order)
        rank_b = len(static(b, ""))
        b = call_op("transpose", [b], axes=list(range(rank_b - 2)) + [rank_b - 1, rank_b - 2])
    right, a, _ = _matched(b, a_is)
    made = solve(a, right)
    made = made if left else _t(made)
    return [reshape(made, g.sizes(g.out[0].shape)), None, None, _no_error(g.sizes(g.out[3].shape))]


@row("aten.linalg_lu_factor_ex")
def _lu_factor_ex(g: Graph, x: RelayExpr, pivot: bool = True, _check: bool = False) -> List[RelayExpr]:
    if not pivot:
        refuse("factors without pivots")
    a, lead = flat(x)
    both, swaps, _ = lu(a)
    return [unflat(both, lead), cast(reshape(swaps, g.sizes(g.out[1].shape)), "int32"), _no_error(lead)]


@row("aten.linalg_lu")
def _linalg_lu(g: Graph, x: RelayExpr, pivot: bool = True) -> List[RelayExpr]:
    if not pivot:
        refuse("factors without pivots")
    a, lead = flat(x)
    both, _, come = lu(a)
    low, up = _parts(both)
    return [
        unflat(_permutation(come), lead) if dt(a) == "float64" else cast(unflat(_permutation(come), lead), dt(a)),
        unflat(low, lead),
        unflat(up, lead),
    ]


def _permutation(come: RelayExpr) -> RelayExpr:
    """P of a = P L U: row come[i] of a is row i of L U."""
    b, n = static(come, "")
    hit = call_op("equal", [reshape(come, [b, 1, n]), _count(n, 1)])
    return cast(hit, "float64")


@row("aten._linalg_det")
def _det(g: Graph, x: RelayExpr) -> List[Any]:
    if g.wants(1) or g.wants(2):
        refuse("the factors of a determinant")
    return [call_op("linalg.det", [x]), None, None]


@row("aten._linalg_slogdet")
def _slogdet(g: Graph, x: RelayExpr) -> List[Any]:
    if g.wants(2) or g.wants(3):
        refuse("the factors of a determinant")
    a, lead = flat(x)
    b, n, _ = static(a, "")
    both, swaps, _ = lu(a)
    diagonal = call_op("take", [reshape(both, [b, n * n]), const((np.arange(n) * (n + 1)).astype("int64"))], axis=1)
    moved = cast(call_op("not_equal", [swaps, const((np.arange(n) + 1)[None].astype("int64"))]), "int64")
    odd = call_op("floor_mod", [reduce("sum", moved, [1], False), cast(2, "int64")])
    sign = _op(
        "multiply",
        reduce("prod", call_op("sign", [diagonal]), [1], False),
        cast(call_op("subtract", [cast(1, "int64"), call_op("multiply", [odd, cast(2, "int64")])]), dt(a)),
    )
    size = reduce("sum", call_op("log", [call_op("abs", [diagonal])]), [1], False)
    return [reshape(sign, lead), reshape(size, lead), None, None]


@row("aten.linalg_solve_triangular")
def _solve_triangular(
    g: Graph, x: RelayExpr, b: RelayExpr, upper: bool, left: bool = True, unit: bool = False
) -> RelayExpr:
    right, a, _ = _matched(b, x)
    if left:
        return reshape(triangular(a, right, upper, unit), g.out_shape)
    return reshape(_t(triangular(_t(a), _t(right), not upper, unit)), g.out_shape)


@row("aten.triangular_solve")
def _triangular_solve(
    g: Graph, b: RelayExpr, x: RelayExpr, upper: bool = True, transpose: bool = False, unit: bool = False
) -> List[RelayExpr]:
    right, a, lead = _matched(b, x)
    made = triangular(_t(a) if transpose else a, right, upper != transpose, unit)
    return [unflat(made, lead), unflat(a, lead)]


@row("aten.linalg_qr")
def _linalg_qr(g: Graph, x: RelayExpr, mode: str = "reduced") -> List[RelayExpr]:
    a, lead = flat(x)
    q, r = qr(a, mode == "complete")
    return [unflat(q, lead) if mode != "r" else full(0.0, [0], dt(x)), unflat(r, lead)]


@row("aten.lu_unpack")
def _lu_unpack(g: Graph, x: RelayExpr, pivots: RelayExpr, data: bool = True, places: bool = True) -> List[RelayExpr]:
    if places:
        refuse("pivots to a permutation; torch.linalg.lu gives it")
    a, lead = flat(x)
    low, up = _parts(a)
    return [full(0.0, [0], dt(x)), unflat(low, lead), unflat(up, lead)]
