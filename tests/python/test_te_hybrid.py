"""te.hybrid: functions read as loops give what they give as Python."""

import numpy as np
import pytest

import lathe
from lathe import te
from lathe.te import hybrid


@te.hybrid.script
def outer(n, m, a, b):
    """c[i, j] = a[i] * b[j]"""
    c = output_tensor((n, m), a.dtype)  # noqa: F821
    for i in range(n):
        for j in range(m):
            c[i, j] = a[i] * b[j]
    return c


@te.hybrid.script
def blur(a):
    b = output_tensor(a.shape, "float32")  # noqa: F821
    rest = output_tensor((a.shape[0],), "int32")  # noqa: F821
    for i in parallel(a.shape[0]):  # noqa: F821
        total = 0.0
        count = 0
        for j in range(a.shape[1]):
            total += a[i, j]
            if 0 < j and j < 5:
                count += 1
            else:
                count = count - 2
        for j in range(a.shape[1]):
            near = 0.0
            for d in const_range(3):  # noqa: F821
                near += a[i, max(min(j + d - 1, a.shape[1] - 1), 0)]
            b[i, j] = near / 3.0 - total / float32(len(a)) + sqrt(exp(a[i, j])) if j != 2 else -total  # noqa: F821
        rest[i] = count
    return b, rest


@te.hybrid.script
def running(a):
    """Each row from the one before, through memory of its own."""
    out = output_tensor(a.shape, "float32")  # noqa: F821
    before = allocate((a.shape[1],), "float32")  # noqa: F821
    for j in range(a.shape[1]):
        before[j] = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            before[j] = before[j] * 0.5 + a[i, j]
            out[i, j] = before[j]
    return out


def built(function, *arrays, extra=()):
    inputs = [te.placeholder(x.shape, str(x.dtype), f"in{i}") for i, x in enumerate(arrays)]
    out = function(*extra, *inputs)
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    results = [np.zeros([int(n) for n in o.shape], o.dtype) for o in outs]
    s = te.create_schedule([o.op for o in outs])
    lathe.build(s, [*inputs, *outs])(*arrays, *results)
    return results


@pytest.mark.parametrize("function, shapes, extra", [(outer, [(6,), (5,)], (6, 5)), (blur, [(4, 7)], ()),
                                                     (running, [(5, 3)], ())])
def test_as_loops_and_as_python(function, shapes, extra):
    arrays = [np.random.default_rng(3).uniform(-1, 1, n).astype("float32") for n in shapes]
    want = function(*extra, *arrays)
    for got, w in zip(built(function, *arrays, extra=extra), want if isinstance(want, tuple) else [want]):
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-6)


def test_what_it_gives_goes_on():
    """A script's tensor is an input of computes, and sizes may be open."""
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = outer(n, 3, a, te.compute((3,), lambda i: i.astype("float32"), name="three"))
    c = te.compute((n, 3), lambda i, j: b[i, j] + 1.0, name="c")
    x, got = np.arange(4, dtype="float32"), np.zeros((4, 3), "float32")
    lathe.build(te.create_schedule(c.op), [a, c])(x, got)
    np.testing.assert_array_equal(got, np.outer(x, [0, 1, 2]) + 1)


def test_refusals():
    a = te.placeholder((4,), name="a")

    @hybrid.script
    def loops(a):
        b = output_tensor((4,), "float32")  # noqa: F821
        while a[0] > 0:
            b[0] = 1.0
        return b

    @hybrid.script
    def inner(a):
        return a

    with pytest.raises(lathe.error.UnsupportedError, match="'loops', line 4: 'while' is not read"):
        loops(a)
    with pytest.raises(lathe.error.ArgumentError, match="returns tensors that output_tensor made"):
        inner(a)
