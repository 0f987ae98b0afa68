"""topi: operators as te tensors, compared with numpy; and what te does with them."""

import importlib.util
import math

import numpy as np
import pytest

import lathe
from lathe import error, te, tir, topi
from lathe.topi import testing as ref

RNG = np.random.default_rng(7)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def positive(*shape):
    return (RNG.random(shape) + 0.1).astype("float32")


def ints(high, *shape, dtype="int32"):
    return RNG.integers(0, high, shape).astype(dtype)


def run(f, *arrays, schedule=topi.generic.schedule_injective):
    """The arrays f computes of placeholders for these, scheduled and compiled."""
    inputs = [te.placeholder(a.shape, str(a.dtype), f"A{i}") for i, a in enumerate(arrays)]
    made = f(*inputs)
    outs = list(made) if isinstance(made, (list, tuple)) else [made]
    fresh = [t for t in outs if not any(t.same_as(i) for i in inputs)]
    built = lathe.build(schedule(fresh), inputs + fresh, "llvm")
    values = [lathe.nd.empty([int(n) for n in t.shape], t.dtype) for t in fresh]
    built(*[lathe.nd.array(a) for a in arrays], *values)
    got = [v.numpy() for v in values]
    return got if isinstance(made, (list, tuple)) else got[0]


def check(f, expected, *arrays, rtol=1e-4, atol=1e-5, **kwargs):
    got = run(f, *arrays, **kwargs)
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    got = got if isinstance(got, list) else [got]
    assert len(got) == len(expected)
    for g, e in zip(got, expected):
        e = np.asarray(e)
        assert g.shape == e.shape
        np.testing.assert_allclose(g.astype("float64"), e.astype("float64"), rtol=rtol, atol=atol)


# ---- elementwise and broadcast

UNARY = {
    "abs": np.abs,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "fast_exp": np.exp,
    "fast_tanh": np.tanh,
    "floor": np.floor,
    "identity": lambda x: x,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "negative": np.negative,
    "round": np.round,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
    "erf": np.vectorize(math.erf),
    "fast_erf": np.vectorize(math.erf),
}
POSITIVE = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "acosh": lambda x: np.arccosh(x + 1),
}


def test_functions_of_one_tensor():
    """All of them in one kernel with as many results."""
    a = floats(3, 20)
    check(lambda x: [getattr(topi, n)(x) for n in UNARY], [f(a) for f in UNARY.values()], a)
    b = positive(3, 20)
    check(
        lambda x: [getattr(topi, n)(x if n != "acosh" else topi.add(x, 1)) for n in POSITIVE],
        [f(b) for f in POSITIVE.values()],
        b,
        rtol=2e-3,
    )
    c = np.clip(b, 0, 0.99)
    check(lambda x: [topi.acos(x), topi.asin(x), topi.atanh(x)], [np.arccos(c), np.arcsin(c), np.arctanh(c)], c)


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "atan2": np.arctan2,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
BITS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}


def test_functions_of_two_tensors():
    a, b = positive(3, 1, 20), positive(4, 20)
    check(lambda x, y: [getattr(topi, n)(x, y) for n in BINARY], [f(a, b) for f in BINARY.values()], a, b)
    i, k = ints(9, 4, 5), ints(5, 5)
    check(lambda x, y: [getattr(topi, n)(x, y) for n in BITS], [f(i, k) for f in BITS.values()], i, k)
    p, q = i > 4, k > 2
    check(
        lambda x, y: [topi.logical_and(x, y), topi.logical_or(x, y), topi.logical_xor(x, y), topi.logical_not(x)],
        [p & q, p | q, p ^ q, ~p],
        p,
        q,
    )


def test_operands_of_other_kinds():
    """Numbers, literals, expressions and tensors of another dtype as operands."""
    a, i = floats(4, 6), ints(9, 4, 6)
    check(lambda x: topi.multiply(2, x), 2 * a, a)
    check(lambda x: topi.subtract(1.5, x), 1.5 - a, a)
    check(lambda x: topi.add(x, tir.const(3, "float32")), a + 3, a)
    check(lambda x: topi.add(x, 0.5), i + 0.5, i)
    check(lambda x, y: topi.add(x, y), a + i, a, i)
    assert topi.add(te.placeholder((2,), "int32"), 0.5).dtype == "float32"
    n = te.var("n")
    assert str(topi.add(n, 1)) == str(n + 1)
    x = te.placeholder((4,), name="x")
    s = te.var("s", "float32")
    y = topi.multiply(x, s)
    f = lathe.build(topi.generic.schedule_injective(y), [x, s, y], "llvm")
    out = lathe.nd.empty((4,))
    f(lathe.nd.array(a[0, :4].copy()), 2.5, out)
    np.testing.assert_allclose(out.numpy(), a[0, :4] * 2.5, rtol=1e-6)


def test_sizes_that_stay_open():
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n, m), name="a"), te.placeholder((m,), name="b")
    c = topi.sum(topi.exp(topi.add(a, b)), axis=1)
    assert c.shape[0].same_as(n)
    f = lathe.build(topi.generic.schedule_reduce(c), [a, b, c], "llvm")
    x, y = floats(5, 37), floats(37)
    out = lathe.nd.empty((5,))
    f(lathe.nd.array(x), lathe.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), np.exp(x + y).sum(1), rtol=1e-4)


def test_other_elementwise_functions():
    a = floats(4, 6)
    check(lambda x: topi.cast(x, "int32"), a.astype("int32"), a)
    check(lambda x: topi.reinterpret(x, "int32"), a.view("int32"), a, rtol=1e-9)
    check(lambda x: topi.clip(x, -0.5, 0.5), a.clip(-0.5, 0.5), a)
    check(lambda x: topi.full_like(x, 3), np.full_like(a, 3), a)
    check(lambda x: topi.elemwise_sum([x, x, x]), 3 * a, a)
    check(lambda: topi.full((2, 3), "float32", 1.5), np.full((2, 3), 1.5))
    check(lambda: topi.arange(1, 7, 2, "int32"), np.arange(1, 7, 2))
    check(lambda: topi.eye(3, 4, 1), np.eye(3, 4, 1))
    check(lambda x: topi.broadcast_to(x, (3, 4, 6)), np.broadcast_to(a, (3, 4, 6)), a)
    check(lambda x: topi.collapse_sum(x, (1, 6)), a.sum(0, keepdims=True), a)


# ---- reductions


@pytest.mark.parametrize("axis", [None, 1, (0, 2), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axis, keepdims):
    a = positive(3, 4, 17)
    check(
        lambda x: [
            topi.sum(x, axis, keepdims),
            topi.max(x, axis, keepdims),
            topi.min(x, axis, keepdims),
            topi.prod(x, axis, keepdims),
        ],
        [f(a, axis=axis, keepdims=keepdims) for f in (np.sum, np.max, np.min, np.prod)],
        a,
    )
    b = a > 0.2
    check(
        lambda x: [topi.all(x, axis, keepdims), topi.any(x, axis, keepdims)],
        [b.all(axis, keepdims=keepdims), b.any(axis, keepdims=keepdims)],
        b,
    )
    if not isinstance(axis, tuple):
        check(
            lambda x: [topi.argmax(x, axis, keepdims), topi.argmin(x, axis, keepdims)],
            [np.argmax(a, axis, keepdims=keepdims), np.argmin(a, axis, keepdims=keepdims)],
            a,
        )


def test_scans_and_sorting():
    a = floats(4, 9)
    check(lambda x: topi.cumsum(x, 1), a.cumsum(1), a)
    check(lambda x: topi.cumprod(x, 0), a.cumprod(0), a)
    check(lambda x: topi.cumsum(x, 1, exclusive=True), a.cumsum(1) - a, a)
    check(lambda x: topi.sort(x, 0), np.sort(a, 0), a)
    check(lambda x: topi.argsort(x, axis=1, is_ascend=0), np.argsort(-a, 1), a)
    assert topi.argsort(te.placeholder((3,))).dtype == "float32"
    order = np.argsort(-a, 1)[:, :3]
    check(lambda x: topi.topk(x, 3), [np.take_along_axis(a, order, 1), order], a)
    check(lambda x: topi.topk(x, 3, ret_type="indices"), [order], a)
    rows = np.sort(a, 1)
    v = floats(4, 5)
    check(lambda x, y: topi.searchsorted(x, y), ref.searchsorted_ref(rows, v, False, "int64"), rows, v)


# ---- shapes and indices


def test_shapes():
    a, b = floats(2, 3, 4), floats(2, 3, 4)
    check(lambda x: topi.transpose(x, (1, 0, 2)), a.transpose(1, 0, 2), a)
    check(topi.transpose, a.transpose(), a)
    check(lambda x: topi.reshape(x, (6, 4)), a.reshape(6, 4), a)
    check(lambda x: topi.squeeze(topi.expand_dims(x, 1)), a, a)
    check(lambda x: topi.expand_dims(x, -1, 2), a[..., None, None], a)
    check(lambda x, y: topi.concatenate((x, y), 1), np.concatenate((a, b), 1), a, b)
    check(lambda x, y: topi.stack([x, y], 1), np.stack((a, b), 1), a, b)
    check(lambda x: topi.split(x, 2, 2), np.split(a, 2, 2), a)
    check(lambda x: topi.split(x, (1, 2), 1), np.split(a, (1, 2), 1), a)
    check(lambda x: topi.flip(x, 2), a[:, :, ::-1], a)
    check(lambda x: topi.tile(x, (2, 1, 2)), np.tile(a, (2, 1, 2)), a)
    check(lambda x: topi.repeat(x, 2, 1), a.repeat(2, 1), a)
    check(lambda x: topi.strided_slice(x, [0, 2, 0], [2, 0, 3], [1, -1, 2]), a[0:2, 2:0:-1, 0:3:2], a)
    check(topi.shape, np.array([2, 3, 4]), a)
    check(lambda x: topi.layout_transform(x, "NCW", "NWC"), a.transpose(0, 2, 1), a)
    v, w = floats(3), floats(4)
    check(lambda x, y: topi.meshgrid([x, y], "ij"), np.meshgrid(v, w, indexing="ij"), v, w)
    check(lambda x, y: topi.expand_like(x, y, [0, 2]), np.broadcast_to(v[None, :, None], (2, 3, 4)), v, a)


def test_indices():
    a = floats(4, 5, 6)
    i, k = ints(4, 2, 3), ints(4, 4, 5, 6)
    check(lambda x, y: topi.take(x, y, axis=0), a[i], a, i)
    check(lambda x, y: topi.take(x, y), a.ravel()[i], a, i)
    check(lambda x, y: topi.gather(x, 1, y), ref.gather_python(a, 1, k), a, k)
    at = ints(4, 2, 7)
    check(topi.gather_nd, ref.gather_nd_python(a, at), a, at)
    c = a > 0
    check(lambda x, y: topi.where(x, y, 0.0), np.where(c, a, 0), c, a)
    check(lambda x: topi.one_hot(x, 2, -1, 5, 1, "float32"), ref.one_hot(i, 2, -1, 5, 1, "float32"), i)
    n = np.array([1, 3, 2, 0, 5], "int32")
    check(lambda x, y: topi.sequence_mask(x, y, -1, 0), ref.sequence_mask(a, n, -1, 0), a, n)
    m = floats(4, 4)
    check(lambda x: topi.trilu(x, 1, True), np.triu(m, 1), m)
    d = floats(4)
    want = m.copy()
    np.fill_diagonal(want, d)
    check(topi.matrix_set_diag, want, m, d)
    u = floats(2, 5, 6)
    to = np.array([3, 1], "int64")[:, None, None] * np.ones((1, 5, 6), "int64")
    want = a.copy()
    np.put_along_axis(want, to, u, 0)
    check(lambda x, y, z: topi.scatter_elements(x, y, z, 0), want, a, to, u)


def test_products():
    a, b = floats(5, 7), floats(7, 9)
    check(topi.matmul, a @ b, a, b)
    check(lambda x, y: topi.matmul(x, y, True, True), a.T @ a, a, a.T.copy())
    c, d = floats(2, 3, 4), floats(4, 3, 5)
    check(lambda x, y: topi.tensordot(x, y, ([1, 2], [1, 0])), np.tensordot(c, d, ([1, 2], [1, 0])), c, d)
    check(lambda x, y: topi.tensordot(x, y, 1), np.tensordot(c, b[:4], 1), c, b[:4].copy())
    check(lambda x, y: topi.einsum("ijk,kjl->il", x, y), np.einsum("ijk,kjl->il", c, d), c, d)


# ---- nn


@pytest.mark.parametrize("padding", [0, 1, (1, 2), (0, 1, 2, 1), "SAME", "VALID"])
def test_conv2d_padding(padding):
    a, w = floats(2, 4, 9, 8), floats(5, 4, 3, 3)
    check(
        lambda x, y: topi.nn.conv2d_nchw(x, y, 2, padding, 1),
        ref.conv2d_nchw_python(a, w, 2, padding),
        a,
        w,
        schedule=topi.generic.schedule_conv2d_nchw,
    )


def test_convolutions():
    a, w = floats(1, 4, 8, 7), floats(6, 4, 3, 2)
    expected = ref.conv2d_nchw_python(a, w, 1, 1)
    # the reference itself, by the definition
    pad = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    assert abs(expected[0, 2, 3, 4] - (pad[0, :, 3:6, 4:6] * w[2]).sum()) < 1e-4
    check(lambda x, y: topi.nn.conv2d(x, y, 1, 1, 1), expected, a, w)
    nhwc, hwio = a.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy()
    check(lambda x, y: topi.nn.conv2d(x, y, 1, 1, 1, "NHWC"), expected.transpose(0, 2, 3, 1), nhwc, hwio)
    check(lambda x, y: topi.nn.conv2d_nhwc(x, y, 1, 1, 1), ref.conv2d_nhwc_python(nhwc, hwio, 1, 1), nhwc, hwio)
    hwcn = a.transpose(2, 3, 1, 0).copy()
    check(lambda x, y: topi.nn.conv2d_hwcn(x, y, 1, 1, 1), ref.conv2d_hwcn_python(hwcn, hwio, 1, 1), hwcn, hwio)
    g = floats(6, 2, 3, 3)
    check(lambda x, y: topi.nn.group_conv2d_nchw(x, y, 1, 1, 1, 2), ref.conv2d_nchw_python(a, g, 1, 1, 2), a, g)
    d = floats(4, 2, 3, 3)
    check(lambda x, y: topi.nn.depthwise_conv2d_nchw(x, y, 1, 1, 1), ref.depthwise_conv2d_python_nchw(a, d, 1, 1), a, d)
    e = d.transpose(2, 3, 0, 1).copy()
    check(
        lambda x, y: topi.nn.depthwise_conv2d_nhwc(x, y, 1, 1, 1),
        ref.depthwise_conv2d_python_nhwc(nhwc, e, 1, 1),
        nhwc,
        e,
    )
    s, u = floats(2, 3, 11), floats(4, 3, 3)
    check(lambda x, y: topi.nn.conv1d(x, y, 2, "SAME", 2), ref.conv1d_ncw_python(s, u, 2, "SAME", 2), s, u)
    v, k = floats(1, 2, 5, 6, 4), floats(3, 2, 2, 3, 3)
    check(lambda x, y: topi.nn.conv3d_ncdhw(x, y, 1, 1, 1), ref.conv3d_ncdhw_python(v, k, 1, 1), v, k)


def test_transposed_convolutions():
    a, w = floats(1, 4, 5, 6), floats(4, 3, 3, 2)
    want = ref.conv2d_transpose_nchw_python(a, w, (2, 1), (1, 0), (1, 0))
    check(lambda x, y: topi.nn.conv2d_transpose_nchw(x, y, (2, 1), (1, 0), "float32", (1, 0)), want, a, w)
    g = floats(4, 2, 3, 3)
    check(
        lambda x, y: topi.nn.group_conv2d_transpose_nchw(x, y, 2, 1, "float32", 0, 2),
        ref.conv2d_transpose_nchw_python(a, g, 2, 1, 0, 2),
        a,
        g,
    )
    s, u = floats(1, 3, 7), floats(3, 2, 3)
    check(
        lambda x, y: topi.nn.conv1d_transpose_ncw(x, y, 2, 1, "float32", 1),
        ref.conv1d_transpose_ncw_python(s, u, 2, 1, 1),
        s,
        u,
    )


def test_dense_and_products():
    a, w, b = floats(4, 10), floats(6, 10), floats(6)
    check(
        lambda x, y, z: topi.nn.dense(x, y, z),
        ref.dense(a, w, b, True),
        a,
        w,
        b,
        schedule=topi.x86.schedule_dense_nopack,
    )
    i, k = ints(9, 4, 10, dtype="int8"), ints(9, 6, 10, dtype="int8")
    check(lambda x, y: topi.nn.dense(x, y, out_dtype="int32"), i.astype("int32") @ k.T.astype("int32"), i, k)
    c, d = floats(3, 4, 5), floats(3, 6, 5)
    check(topi.nn.batch_matmul, ref.batch_matmul(c, d), c, d)
    check(lambda x, y: topi.nn.matmul(x, y, transpose_b=True), a @ w.T, a, w)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling(kind):
    a = floats(1, 3, 9, 8)
    for ceil in (False, True):
        for counted in (False, True):
            want = ref.poolnd_python(a, (3, 3), (2, 2), (1, 1), (1, 0), (1, 0), kind, counted, ceil)
            check(
                lambda x: topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 0, 1, 0), kind, ceil, "NCHW", counted), want, a
            )
    want = ref.poolnd_python(a, (3, 2), (2, 2), (1, 1), (1, 0), (1, 1), kind, ceil_mode=True)
    check(lambda x: topi.nn.pool2d(x, (3, 2), (2, 2), (1, 1), (1, 0, 1, 1), kind, True), want, a)
    check(
        lambda x: topi.nn.global_pool(x, kind),
        ref.adaptive_pool(a, (1, 1), kind, "NCHW"),
        a,
        schedule=topi.generic.schedule_adaptive_pool,
    )
    check(lambda x: topi.nn.adaptive_pool(x, (4, 3), kind), ref.adaptive_pool(a, (4, 3), kind, "NCHW"), a)
    s = floats(2, 3, 10)
    check(
        lambda x: topi.nn.pool1d(x, 3, 2, 1, (1, 1), kind), ref.poolnd_python(s, (3,), (2,), (1,), (1,), (1,), kind), s
    )
    last = a.transpose(0, 2, 3, 1).copy()
    check(
        lambda x: topi.nn.pool2d(x, 2, 2, 1, 0, kind, layout="NHWC"),
        ref.poolnd_python(last, (2, 2), (2, 2), (1, 1), (0, 0), (0, 0), kind, layout="NHWC"),
        last,
    )


def test_activations():
    a, p = floats(4, 20), positive(20)
    check(topi.nn.relu, np.maximum(a, 0), a)
    check(lambda x: topi.nn.leaky_relu(x, 0.1), np.where(a > 0, a, 0.1 * a), a)
    check(topi.nn.prelu, np.where(a > 0, a, p * a), a, p)
    check(topi.nn.softmax, ref.softmax_python(a), a, schedule=topi.x86.schedule_softmax)
    check(topi.nn.fast_softmax, ref.softmax_python(a), a)
    check(lambda x: topi.nn.softmax(x, 0), ref.softmax_python(a, 0), a)
    check(topi.nn.log_softmax, ref.log_softmax_python(a), a)


def test_normalisation():
    a, g, b, m, v = floats(2, 6, 5, 4), floats(6), floats(6), floats(6), positive(6)
    for training in (False, True):
        want = ref.batch_norm(a, g, b, m, v, 1, 1e-5, True, True, training, 0.1)
        check(
            lambda *t: topi.nn.batch_norm(*t, training=training)[: 3 if training else 1],
            want[: 3 if training else 1],
            a,
            g,
            b,
            m,
            v,
        )
    g2, b2 = floats(5, 4), floats(5, 4)
    check(lambda *t: topi.nn.layer_norm(*t, axis=[2, 3]), ref.layer_norm_python(a, g2, b2, (2, 3)), a, g2, b2)
    check(lambda *t: topi.nn.instance_norm(*t, 1, [2, 3]), ref.instance_norm_python(a, g, b, (2, 3)), a, g, b)
    check(lambda *t: topi.nn.group_norm(*t, 3, 1, [2, 3]), ref.group_norm_python(a, g, b, 3, 1, (2, 3)), a, g, b)
    check(lambda x, y: topi.nn.rms_norm(x, y, [-1]), ref.rms_norm_python(a, g2[0], (3,)), a, g2[0].copy())
    check(lambda x: topi.nn.lrn(x, 3), ref.lrn_python(a, 3, 1, 2, 1e-4, 0.75), a)
    check(topi.nn.scale_shift_nchw, a * g[:, None, None] + b[:, None, None], a, g, b)


def test_shapes_of_images():
    a = floats(1, 4, 4, 6)
    check(
        lambda x: topi.nn.pad(x, (0, 0, 1, 2), (0, 0, 0, 1), 1.5),
        np.pad(a, ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=1.5),
        a,
    )
    check(
        lambda x: topi.nn.mirror_pad(x, (0, 0, 1, 2), mode="REFLECT"),
        np.pad(a, ((0, 0), (0, 0), (1, 1), (2, 2)), "reflect"),
        a,
    )
    check(lambda x: topi.nn.mirror_pad(x, (0, 0, 1, 2)), np.pad(a, ((0, 0), (0, 0), (1, 1), (2, 2)), "symmetric"), a)
    check(lambda x: topi.nn.dilate(x, (1, 1, 2, 3), 0.5), ref.dilate_python(a, (1, 1, 2, 3), 0.5), a)
    check(topi.nn.flatten, a.reshape(1, -1), a)
    check(lambda x: topi.nn.upsampling(x, 2, 3), ref.upsampling_python(a, (2, 3)), a)
    check(lambda x: topi.nn.space_to_depth(x, 2), ref.space_to_depth_python(a, 2), a)
    for mode in ("DCR", "CRD"):
        check(lambda x: topi.nn.depth_to_space(x, 2, mode=mode), ref.depth_to_space_python(a, 2, mode), a)


def test_images():
    a = floats(1, 2, 4, 6)
    check(
        lambda x: topi.image.resize2d(
            x, (0.0,) * 4, (8, 12), method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
        ),
        ref.upsampling_python(a, (2, 2)),
        a,
    )
    ramp = np.arange(5, dtype="float32").reshape(1, 1, 5)
    check(
        lambda x: topi.image.resize1d(x, (0.0,) * 2, (9,), coordinate_transformation_mode="align_corners"),
        np.arange(9).reshape(1, 1, 9) / 2,
        ramp,
    )
    m = floats(2, 2, 3)
    check(lambda x: topi.image.affine_grid(x, (3, 4)), ref.affine_grid_python(m, (3, 4)), m)
    same = np.array([[[1, 0, 0], [0, 1, 0]]], "float32")
    check(lambda x, y: topi.image.grid_sample(x, topi.image.affine_grid(y, (4, 6))), a, a, same)


def test_regions():
    """A plane is interpolated exactly: the mean of a bin is the value at its centre."""
    plane = np.arange(42, dtype="float32").reshape(1, 1, 6, 7)
    rois = np.array([[0, 1, 1, 5, 4], [0, 0, 0, 0.5, 0.5]], "float32")
    for aligned in (False, True):
        small = 0.25 if aligned else 0.5  # a region smaller than an element is made one, unless aligned
        bins = [(1, 1, 1.5, 2.0), (0, 0, small, small)]
        want = [
            [[[7 * (y + (i + 0.5) * h) + x + (k + 0.5) * w for k in range(2)] for i in range(2)]] for y, x, h, w in bins
        ]
        check(lambda d, r: topi.vision.roi_align(d, r, 2, 1.0, "avg", 2, aligned), np.array(want), plane, rois)
    whole = np.array([[0, 0, 0, 6, 5]], "float32")
    check(lambda d, r: topi.vision.roi_pool(d, r, (1, 1), 1.0), np.array([[[[41.0]]]]), plane, whole)


# ---- what is not there


def test_refused_by_name():
    for place, name in [
        (topi, "sparse_to_dense"),
        (topi.nn, "bitserial_conv2d_nchw"),
        (topi.image, "crop_and_resize"),
        (topi.vision, "non_max_suppression"),
        (topi.cuda, "schedule_conv2d_nchw"),
    ]:
        with pytest.raises(error.UnsupportedError, match=name):
            getattr(place, name)
    with pytest.raises(AttributeError, match="no_such_thing"):
        topi.no_such_thing
    with pytest.raises(lathe.LatheError, match="valid_count"):
        topi.argsort(te.placeholder((3,)), te.placeholder((3,), "int32"))
    with pytest.raises(lathe.LatheError):
        topi.add(te.placeholder((3,)), te.placeholder((4,)))
    with pytest.raises(lathe.LatheError, match="pool_type"):
        topi.nn.pool2d(te.placeholder((1, 1, 4, 4)), 2, 2, 1, 0, "sum")


def test_schedules_by_target():
    a = floats(3, 40)
    check(topi.nn.softmax, ref.softmax_python(a), a, schedule=ref.get_softmax_schedule("llvm -mcpu=native"))
    x = te.placeholder((3, 40), name="x")
    y = topi.exp(topi.add(x, 1))
    text = str(lathe.lower(ref.get_injective_schedule("c")(y), [x, y], simple_mode=True))
    assert text.startswith("parallel (") and "ramp(" in text and "add" not in text
    with pytest.raises(error.UnsupportedError, match="cuda"):
        ref.get_injective_schedule("cuda")


def test_utils_and_tags():
    n = te.var("n")
    assert topi.utils.get_const_tuple((tir.IntImm("int32", 3), n, 4))[0::2] == (3, 4)
    assert topi.utils.get_const_int(tir.IntImm("int32", 2) + 3) == 5
    with pytest.raises(lathe.LatheError):
        topi.utils.get_const_int(n)
    a = te.placeholder((4, 5))
    assert topi.tag.is_broadcast(topi.add(a, a).op.tag) and topi.tag.is_injective(topi.nn.relu(a).op.tag)
    assert topi.sum(a).op.tag == topi.tag.COMM_REDUCE and not topi.tag.is_injective(topi.tag.COMM_REDUCE)


# ---- te


def test_dimensions_written_with_a_division():
    """A Python division of integers gives a float: 64 / 16 is 4.0."""
    n, bn = 64, 16
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n / 1), "k")
    packed = te.compute((n / bn, n, bn), lambda bigN, k, littleN: b[k, bigN * bn + littleN], name="packedB")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * packed[j // bn, k, tir.indexmod(j, bn)], axis=k), name="C")
    assert [int(x) for x in packed.shape] == [4, 64, 16]
    x, y = floats(n, n), floats(n, n)
    out = lathe.nd.empty((n, n))
    lathe.build(te.create_schedule(c.op), [a, b, c], "llvm")(lathe.nd.array(x), lathe.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-3, atol=1e-4)
    with pytest.raises(lathe.LatheError, match="9.14.* is not a whole number"):
        te.placeholder((64 / 7,))


def test_extern_forms():
    a = te.placeholder((8,), name="A")

    def fill(ins, outs):
        ib = tir.ir_builder.create()
        src = ib.buffer_ptr(ins[0])
        first, second = ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        with ib.for_range(0, 8) as i:
            first[i] = src[i] * 2.0
            second[i] = tir.Cast("int32", src[i])
        return ib.get()

    two = te.extern([(16 / 2,), (8,)], [a], fill, name="two", dtype=["float32", "int32"], tag="mine", attrs={"k": 3})
    assert two[0].op.tag == "mine" and two[0].op.attrs["k"] == 3
    buffers = [
        tir.decl_buffer((8,), "float32", "src"),
        tir.decl_buffer((8,), "float32", "one"),
        tir.decl_buffer((8,), "int32", "other"),
    ]
    given = te.extern(None, [a], fill, in_buffers=buffers[0], out_buffers=buffers[1:])
    x = np.arange(8, dtype="float32") * 1.5
    for outs in (two, given):
        p, q = lathe.nd.empty((8,)), lathe.nd.empty((8,), "int32")
        lathe.build(te.create_schedule(outs[0].op), [a, *outs], "llvm")(lathe.nd.array(x), p, q)
        np.testing.assert_array_equal(p.numpy(), x * 2)
        np.testing.assert_array_equal(q.numpy(), x.astype("int32"))
    with pytest.raises(lathe.LatheError, match="3 dtypes for 2 outputs"):
        te.extern([(8,), (8,)], [a], fill, dtype=["float32"] * 3)
    with pytest.raises(lathe.LatheError, match="shapes of the outputs"):
        te.extern(None, [a], fill, dtype="float32")


def test_automatic_inlining():
    a, b = te.placeholder((4, 6), name="a"), te.placeholder((6,), name="b")
    scaled = te.compute((4, 6), lambda i, j: a[i, j] * 2.0, name="scaled")
    moved = te.compute((4, 6), lambda i, j: scaled[i, j] + b[j], name="moved")
    turned = te.compute((6, 4), lambda i, j: moved[j, i], name="turned")
    result = te.compute((6, 4), lambda i, j: turned[i, j] + 1.0, name="result")

    def loops(inline):
        s = te.create_schedule(result.op)
        inline(s)
        return str(lathe.lower(s, [a, b, result], simple_mode=True)).count("for (") // 2

    assert loops(lambda s: None) == 4
    assert loops(te.schedule.AutoInlineElemwise) == 3  # scaled
    assert loops(te.schedule.AutoInlineBroadcast) == 2  # moved as well
    assert loops(te.schedule.AutoInlineInjective) == 1


def test_tags_of_functions():
    @te.tag_scope(tag="mine")
    def twice(x):
        return te.compute(x.shape, lambda *i: x(*i) * 2.0)

    x = te.placeholder((3,))
    assert twice(x).op.tag == "mine" and te.compute((3,), lambda i: x[i]).op.tag == ""


def test_what_te_refuses():
    c = te.compute((4,), lambda i: i, name="c")
    s = te.create_schedule(c.op)
    with pytest.raises(error.UnsupportedError, match="set_axis_separators"):
        s[c].set_axis_separators([1])
    with pytest.raises(error.UnsupportedError, match="rolling_buffer"):
        s[c].rolling_buffer()


def test_functions_are_found_where_tvm_keeps_them():
    from lathe.topi.nn.pooling import pool2d
    from lathe.topi.nn.conv2d import conv2d_nchw

    assert pool2d is topi.nn.pool2d and conv2d_nchw is topi.nn.conv2d_nchw
    assert importlib.util.find_spec("lathe.topi.nn.pooling") is not None
    assert callable(topi.nn.conv2d)  # the function, whatever file has its name


def test_attributes_that_are_lists():
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, attrs={"one": 1, "several": [10, 12], "words": ["a", "b"]})
    assert y.op.attrs == {"one": 1, "several": [10, 12], "words": ["a", "b"]}
    with pytest.raises(error.UnsupportedError, match="'free' holds a tensor"):
        te.compute((4,), lambda i: x[i], attrs={"free": [x]})
