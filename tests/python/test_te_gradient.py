"""te.gradient against central differences."""

import numpy as np
import pytest

import lathe
from lathe import te, tir

F = "float64"


def matmul(a, b):
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")


def conv(x, w):
    """A padded convolution of stride 2 with 3 by 3 weights."""
    n = int(x.shape[0])
    padded = te.compute(
        (n + 2, n + 2),
        lambda i, j: te.if_then_else(te.all(i >= 1, i <= n, j >= 1, j <= n), x[i - 1, j - 1], tir.const(0, F)),
        name="padded",
    )
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    return te.compute((n // 2, n // 2), lambda i, j: te.sum(padded[i * 2 + r, j * 2 + s] * w[r, s], axis=[r, s]))


def softmax(x, y):
    k = te.reduce_axis((0, x.shape[1]), "k")
    e = te.compute(x.shape, lambda i, j: te.exp(x[i, j] - y[i, 0]), name="e")
    total = te.compute((x.shape[0],), lambda i: te.sum(e[i, k], axis=k), name="total")
    return te.compute(x.shape, lambda i, j: te.log(e[i, j] / total[i]))


def functions(x, y):
    return te.compute(
        x.shape,
        lambda i, j: te.tanh(x[j, i]) * te.sigmoid(y[i, j]) + te.max(x[i, j], y[i, j]) + te.sqrt(te.exp(x[i, i]))
        + te.power(te.abs(y[i, j]) + 1.5, x[i, j]) - te.erf(x[i, 0])
        + tir.Select(i < j, te.sin(x[i, j]), te.atan(y[j, i])),
    )


def twice(x, y):
    """A tensor that is read twice, at places that differ, and a sum inside a larger expression."""
    k = te.reduce_axis((0, x.shape[1]), "k")
    z = te.compute(x.shape, lambda i, j: x[i, j] * x[i, 0] + y[i, j])
    return te.compute((x.shape[0],), lambda i: z[i, 1] * te.sum(z[i, k] * z[0, k], axis=k, where=k > 0) + 1.0)


def value(out, inputs, data):
    got = np.zeros([int(n) for n in out.shape], F)
    te.evaluate([*inputs, out], [*data, got])
    return got


@pytest.mark.parametrize(
    "make, shapes",
    [(matmul, [(3, 4), (4, 2)]), (conv, [(6, 6), (3, 3)]), (softmax, [(2, 3), (2, 1)]), (functions, [(3, 3), (3, 3)]),
     (twice, [(2, 3), (2, 3)])],
)
def test_derivatives(make, shapes):
    rng = np.random.default_rng(7)
    data = [rng.uniform(-1, 1, n) for n in shapes]
    inputs = [te.placeholder(n, F, f"in{i}") for i, n in enumerate(shapes)]
    out = make(*inputs)
    grads = te.gradient(out, inputs)
    for which, g in enumerate(grads):
        got = value(g, inputs, data)
        want = np.zeros_like(got)
        for at in np.ndindex(*shapes[which]):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [d.copy() for d in data]
                moved[which][at] += step
                ends.append(value(out, inputs, moved))
            want[(..., *at)] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_head_and_what_is_not_used():
    a, b, c = te.placeholder((8, 16), name="a"), te.placeholder((16, 4), name="b"), te.placeholder((5,), name="c")
    out = matmul(a, b)
    head = te.placeholder((2, 8, 4), name="head")
    da, db, dc = te.gradient(out, [a, b, c], head)
    x, y, h = (np.random.rand(*n).astype("float32") for n in ((8, 16), (16, 4), (2, 8, 4)))
    s = te.create_schedule([da.op, db.op, dc.op])
    got = [np.ones(n, "float32") for n in ((2, 8, 16), (2, 16, 4), (2, 5))]
    lathe.build(s, [a, b, head, da, db, dc])(x, y, h, *got)
    np.testing.assert_allclose(got[0], h @ y.T, rtol=1e-4)
    np.testing.assert_allclose(got[1], np.einsum("ik,hij->hkj", x, h), rtol=1e-4)
    assert not got[2].any()
    assert len(da.op.reduce_axis) == len(db.op.reduce_axis) == 1  # rows are found, not searched for


def test_refusals():
    a = te.placeholder((4, 4), name="a")
    k = te.reduce_axis((0, 4), "k")
    with pytest.raises(lathe.error.UnsupportedError, match="a reduction by 'max' has no derivative"):
        te.gradient(te.compute((4,), lambda i: te.max(a[i, k], axis=k)), [a])
    with pytest.raises(lathe.error.UnsupportedError, match="'isnan'|'popcount'|'ldexp'|'fmod'"):
        te.gradient(te.compute((4,), lambda i: te.fmod(a[i, 0], a[i, 1])), [a])
    with pytest.raises(lathe.error.ShapeError, match="head has 1 dimensions, the output 2"):
        te.gradient(te.compute((4, 4), lambda i, j: a[i, j] * 2.0), [a], te.placeholder((4,)))
