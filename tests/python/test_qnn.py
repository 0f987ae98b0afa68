"""Quantized operators against the formulas of quantization in numpy, with exact integers and double precision."""

import numpy as np
import pytest

import lathe
from lathe import relay

Q = relay.qnn.op
F, I = "float32", "int32"


def scale(v):
    return relay.const(np.asarray(v, F))


def zero(v):
    return relay.const(np.asarray(v, I))


def run(expr, **inputs):
    """By meaning, compiled as it is and compiled with everything: all three agree exactly; the value."""
    f = relay.Function(relay.analysis.free_vars(expr), expr)
    mod = lathe.IRModule.from_expr(f)
    names = [p.name_hint for p in f.params]
    args = [inputs[n] for n in names]
    want = relay.create_executor("debug", mod).evaluate()(*args).numpy()
    for level in (0, 3):
        with lathe.transform.PassContext(opt_level=level):
            have = relay.create_executor("graph", mod).evaluate()(*args).numpy()
        np.testing.assert_array_equal(have, want)
    return want


def integers(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def var(name, array):
    return relay.var(name, shape=array.shape, dtype=str(array.dtype))


def saturate(x, dtype):
    info = np.iinfo(dtype)
    return np.clip(x, info.min, info.max).astype(dtype)


def along(v, axis, ndim):
    v = np.asarray(v)
    return v if v.ndim == 0 else v.reshape([-1 if i == axis % ndim else 1 for i in range(ndim)])


def fixed_point(x, ratio, rounding):
    """x * ratio with the quotient as a 31-bit fraction; integers of any size."""
    m, e = np.frexp(ratio)
    m = int(round(m * 2**31))
    shift = 31 - int(e)
    out = []
    for v in np.asarray(x).ravel().tolist():
        p = v * m
        half = 1 << (shift - 1)
        if rounding == "UPWARD" or p >= 0:
            out.append((p + half) >> shift)
        else:
            out.append(-((-p + half) >> shift))
    return np.array(out).reshape(np.shape(x))


# ---- quantize, dequantize


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("channels", [False, True])
def test_quantize(rng, dtype, channels):
    x = (rng.standard_normal((3, 4, 5)) * 40).astype(F)
    x[0, 0, :3] = [1e7, -1e7, 0.0]
    s = np.array([0.5, 0.25, 1.0, 2.0], F) if channels else np.float32(0.25)
    z = 3 if dtype == "uint8" else -3
    x[1] = (np.arange(20).reshape(4, 5) - 8 + 0.5) * along(s, 0, 2)  # halves
    have = run(Q.quantize(var("x", x), scale(s), zero(z), axis=1, out_dtype=dtype), x=x)
    want = saturate(np.rint(x / along(s, 1, 3)).astype("float64") + z, dtype)
    np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_dequantize(rng, dtype):
    x = integers(rng, dtype, 3, 4, 5) if dtype != "int32" else rng.integers(-9999, 9999, (3, 4, 5)).astype(I)
    s, z = np.array([0.5, 0.1, 3.0, 2.0], F), np.array([1, 0, 7, 4], I)
    have = run(Q.dequantize(var("x", x), scale(s), zero(z), axis=1), x=x)
    np.testing.assert_array_equal(have, (x.astype("int64") - along(z, 1, 3)).astype(F) * along(s, 1, 3))
    one = run(Q.dequantize(var("x", x), scale([0.5]), zero(2)), x=x)
    np.testing.assert_array_equal(one, ((x.astype("int64") - 2) * 0.5).astype(F))


def test_scales_known_at_run_time(rng):
    x = (rng.standard_normal((4, 6)) * 9).astype(F)
    s, z = relay.var("s", shape=(), dtype=F), relay.var("z", shape=(), dtype=I)
    q = Q.quantize(var("x", x), s, z, out_dtype="uint8")
    have = run(Q.dequantize(q, s, z), x=x, s=np.float32(0.1), z=np.int32(120))
    stored = np.clip(np.rint(x / np.float32(0.1)) + 120, 0, 255)
    np.testing.assert_array_equal(have, (stored - 120).astype(F) * np.float32(0.1))


def test_simulated(rng):
    x = (rng.standard_normal((3, 4)) * 40).astype(F)
    s = np.array([0.5, 0.25, 1.0, 2.0], F)
    q = run(Q.simulated_quantize(var("x", x), scale(s), zero(3), axis=1, out_dtype="int8"), x=x)
    want = np.clip(np.rint(x / s) + 3, -128, 127).astype(F)
    np.testing.assert_array_equal(q, want)
    back = Q.simulated_dequantize(var("x", q), scale(s), zero(3), axis=1)
    np.testing.assert_array_equal(run(back, x=q), (q - 3) * s)
    off = Q.simulated_quantize(var("x", x), scale(1), zero(0), out_dtype="disable")
    np.testing.assert_array_equal(run(off, x=x), x)


# ---- requantize


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("out", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("channels", [False, True])
def test_requantize_integer(rng, rounding, out, channels):
    x = rng.integers(-30000, 30000, (2, 3, 50)).astype(I)
    x[0, :, :8] = [0, 1, -1, 2, -2, 3, 2**31 - 1, -(2**31)]
    si = np.array([0.5, 0.003, 1e-12], F) if channels else np.float32(0.5)
    so = np.float32(1.0)  # halves: both roundings differ
    zi, zo = (0, 7) if out != "uint8" else (0, 120)
    have = run(Q.requantize(var("x", x), scale(si), zero(zi), scale(so), zero(zo), axis=1, rounding=rounding,
                            compute_dtype="int64", out_dtype=out), x=x)
    ratios = np.broadcast_to(np.asarray(si, "float64") / so, 3)
    want = np.stack([fixed_point(x[:, i].astype("int64"), ratios[i], rounding) for i in range(3)], axis=1) + zo
    np.testing.assert_array_equal(have, saturate(want, out))


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("compute", ["float32", "float64"])
def test_requantize_float(rng, rounding, compute):
    x = rng.integers(-30000, 30000, (2, 3, 50)).astype(I)
    si, so = np.array([0.5, 0.003, 0.25], F), np.float32(1)
    have = run(Q.requantize(var("x", x), scale(si), zero(2), scale(so), zero(5), axis=1, rounding=rounding,
                            compute_dtype=compute, out_dtype="int8"), x=x)
    y = (x - 2).astype(compute) * (si.astype(compute) / so.astype(compute)).reshape(3, 1)
    want = np.floor(y + np.asarray(0.5, compute)) if rounding == "UPWARD" else np.rint(y)
    np.testing.assert_array_equal(have, saturate(want.astype("int64") + 5, "int8"))


def test_requantize_of_bytes(rng):
    x = integers(rng, "uint8", 40)
    same = Q.requantize(var("x", x), scale(0.1), zero(4), scale(0.1), zero(4), out_dtype="uint8")
    np.testing.assert_array_equal(run(same, x=x), x)
    moved = Q.requantize(var("x", x), scale(0.1), zero(128), scale(0.1), zero(0), out_dtype="int8")
    np.testing.assert_array_equal(run(moved, x=x), (x.astype(I) - 128).astype("int8"))


def test_requantize_run_time_scale(rng):
    x = rng.integers(-9000, 9000, (5, 6)).astype(I)
    s = relay.var("s", shape=(), dtype=F)
    e = Q.requantize(var("x", x), s, zero(0), scale(0.7), zero(3), rounding="TONEAREST")
    have = run(e, x=x, s=np.float32(0.01))
    want = np.rint(x.astype(F) * (np.float32(0.01) / np.float32(0.7))).astype(I) + 3
    np.testing.assert_array_equal(have, saturate(want, "int8"))


# ---- products


def conv_sums(x, w, stride, pad, dilation, groups):
    """Sums of a convolution in int64; padding is zero."""
    x = np.pad(x.astype("int64"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    n, c, h, wd = x.shape
    o, i, kh, kw = w.shape
    oh = (h - (kh - 1) * dilation - 1) // stride + 1
    ow = (wd - (kw - 1) * dilation - 1) // stride + 1
    out = np.zeros((n, o, oh, ow), "int64")
    for k in range(o):
        g = k // (o // groups)
        for y in range(oh):
            for z in range(ow):
                part = x[:, g * i : (g + 1) * i, y * stride : y * stride + (kh - 1) * dilation + 1 : dilation,
                         z * stride : z * stride + (kw - 1) * dilation + 1 : dilation]
                out[:, k, y, z] = (part * w[k].astype("int64")).sum((1, 2, 3))
    return out


@pytest.mark.parametrize("xt, wt", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int16", "int8")])
@pytest.mark.parametrize("zx, zw", [(0, 0), (17, 0), (0, 9), (-5, "channels")])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_conv2d(rng, xt, wt, zx, zw, groups):
    if xt == "uint8":
        zx = abs(zx)
    x = integers(rng, xt, 2, 4, 6, 7)
    w = integers(rng, wt, 8, 4 // groups, 3, 3)
    zw = np.arange(8, dtype=I) + 3 if zw == "channels" else np.int32(zw)
    y = Q.conv2d(var("x", x), relay.const(w), zero(zx), zero(zw), scale(0.5), scale(np.full(8, 0.25)), (3, 3), 8,
                 strides=(2, 2), padding=(1, 1), groups=groups)
    want = conv_sums(x.astype("int64") - zx, w.astype("int64") - along(zw, 0, 4), 2, 1, 1, groups)
    np.testing.assert_array_equal(run(y, x=x), want.astype(I))


def test_conv2d_dilated_nhwc(rng):
    x, w = integers(rng, "uint8", 1, 7, 8, 3), integers(rng, "int8", 3, 3, 3, 5)
    y = Q.conv2d(var("x", x), relay.const(w), zero(11), zero(2), scale(1), scale(1), (3, 3), 5, padding=(2, 2),
                 dilation=(2, 2), data_layout="NHWC", kernel_layout="HWIO")
    want = conv_sums(x.transpose(0, 3, 1, 2).astype(I) - 11, w.transpose(3, 2, 0, 1).astype(I) - 2, 1, 2, 2, 1)
    np.testing.assert_array_equal(run(y, x=x), want.transpose(0, 2, 3, 1).astype(I))


def test_conv2d_transpose(rng):
    x, w = integers(rng, "uint8", 1, 3, 4, 5), integers(rng, "int8", 3, 2, 3, 3)
    y = Q.conv2d_transpose(var("x", x), relay.const(w), zero(7), zero(-4), scale(1), scale(1), strides=(2, 2),
                           padding=(1, 1), channels=2, kernel_size=(3, 3), output_padding=(1, 1))
    a, b = x.astype("int64") - 7, w.astype("int64") + 4
    full = np.zeros((1, 2, 2 * 4 + 2, 2 * 5 + 2), "int64")
    for i in range(4):
        for j in range(5):
            full[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum("c,cohw->ohw", a[0, :, i, j], b)
    np.testing.assert_array_equal(run(y, x=x), full[:, :, 1 : 1 + 8, 1 : 1 + 10].astype(I))


@pytest.mark.parametrize("zx, zw", [(0, 0), (17, 0), (0, 9), (5, -3)])
@pytest.mark.parametrize("xt", ["int8", "uint8", "int16"])
def test_dense(rng, xt, zx, zw):
    x, w = integers(rng, xt, 5, 12), integers(rng, "int8", 7, 12)
    want = (x.astype("int64") - zx) @ (w.astype("int64") - zw).T
    y = Q.dense(var("x", x), relay.const(w), zero(zx), zero(zw), scale(1), scale(1), 7)
    np.testing.assert_array_equal(run(y, x=x), want.astype(I))
    packed = np.pad(w, ((0, 1), (0, 0))).reshape(2, 4, 12).transpose(0, 2, 1).copy()
    y = Q.contrib_dense_pack(var("x", x), relay.const(packed), zero(zx), zero(zw), scale(1), scale(1), "NC4n", 7)
    np.testing.assert_array_equal(run(y, x=x), want.astype(I))


def test_dense_channels(rng):
    x, w, z = integers(rng, "uint8", 2, 3, 6), integers(rng, "uint8", 4, 6), np.array([1, 200, 128, 0], I)
    y = Q.dense(var("x", x), var("w", w), zero(250), zero(z), scale(1), scale([1, 2, 3, 4]), 4)
    want = (x.astype("int64") - 250) @ (w.astype("int64") - z[:, None]).T
    np.testing.assert_array_equal(run(y, x=x, w=w), want.astype(I))


@pytest.mark.parametrize("zx, zy", [(0, 0), (17, 3)])
def test_batch_matmul(rng, zx, zy):
    x, y = integers(rng, "uint8", 2, 3, 5), integers(rng, "int8", 2, 4, 5)
    e = Q.batch_matmul(var("x", x), var("y", y), zero(zx), zero(zy), scale(1), scale(1))
    want = (x.astype("int64") - zx) @ (y.astype("int64") - zy).transpose(0, 2, 1)
    np.testing.assert_array_equal(run(e, x=x, y=y), want.astype(I))


def test_open_sizes(rng):
    x, w = integers(rng, "uint8", 5, 12), integers(rng, "int8", 7, 12)
    v = relay.var("x", shape=(relay.Any(), 12), dtype="uint8")
    y = Q.requantize(Q.dense(v, relay.const(w), zero(4), zero(0), scale(0.1), scale(0.1), 7), scale(0.01), zero(0),
                     scale(3), zero(0))
    mod = lathe.IRModule.from_expr(relay.Function([v], y))
    have = relay.create_executor("vm", mod).evaluate()(x).numpy()
    ratio = float(np.float32(0.01)) / 3
    want = fixed_point((x.astype("int64") - 4) @ w.astype("int64").T, ratio, "UPWARD")
    np.testing.assert_array_equal(have, saturate(want, "int8"))


# ---- sums, products, pools


def real(x, s, z):
    return (x.astype("float64") - z) * float(np.float32(s))


def stored(y, s, z, dtype):
    """The real number in units of the scale, before rounding."""
    return np.clip(y / float(np.float32(s)) + z, np.iinfo(dtype).min, np.iinfo(dtype).max)


def assert_rounded(have, exact, slack=1e-3):
    """have is exact rounded; on a half either side may be taken."""
    assert np.abs(have.astype("float64") - exact).max() <= 0.5 + slack


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("op", ["add", "subtract", "mul"])
@pytest.mark.parametrize("scales", [(0.1, 0.03, 0.12), (0.001, 1.0, 0.9), (2.0, 3.0, 0.01)])
def test_arithmetic(rng, dtype, op, scales):
    a, b = integers(rng, dtype, 4, 40), integers(rng, dtype, 40)
    za, zb, zo = (3, 100, 17) if dtype == "uint8" else (3, -20, 17)
    sa, sb, so = scales
    e = getattr(Q, op)(var("a", a), var("b", b), scale(sa), zero(za), scale(sb), zero(zb), scale(so), zero(zo))
    x, y = real(a, sa, za), real(b, sb, zb)
    exact = x + y if op == "add" else x - y if op == "subtract" else x * y
    assert_rounded(run(e, a=a, b=b), stored(exact, so, zo, dtype), 0.02 if dtype == "int16" else 1e-3)


@pytest.mark.parametrize("op", ["add", "mul"])
def test_arithmetic_channels(rng, op):
    a, b = integers(rng, "int8", 2, 3, 5), integers(rng, "int8", 2, 3, 5)
    sa, sb = np.array([0.1, 0.2, 0.3], F), np.array([0.5, 0.1, 0.2, 0.05, 1.0], F)
    e = getattr(Q, op)(var("a", a), var("b", b), scale(sa), zero([1, 2, 3]), scale(sb), zero(0), scale(0.4), zero(-9),
                       lhs_axis=1, rhs_axis=2)
    x = (a - np.array([1.0, 2, 3]).reshape(3, 1)) * sa.astype("float64").reshape(3, 1)
    y = b * sb.astype("float64")
    assert_rounded(run(e, a=a, b=b), stored(x + y if op == "add" else x * y, 0.4, -9, "int8"))


def test_concatenate(rng):
    a, b = integers(rng, "uint8", 2, 3), integers(rng, "uint8", 2, 4)
    parts, scales, zeros = (var("a", a), var("b", b)), (scale(0.1), scale(0.2)), (zero(3), zero(5))
    e = Q.concatenate(parts, scales, zeros, scale(0.2), zero(5), axis=1)
    have = run(e, a=a, b=b)
    assert_rounded(have[:, :3], stored(real(a, 0.1, 3), 0.2, 5, "uint8"))
    np.testing.assert_array_equal(have[:, 3:], b)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_avg_pool2d(rng, dtype, include):
    x = integers(rng, dtype, 1, 3, 7, 8)
    e = Q.avg_pool2d(var("x", x), scale(0.1), zero(4), scale(0.07), zero(9), (3, 3), (2, 2), (1, 1), (1, 1),
                     count_include_pad=include, layout="NCHW")
    p = np.pad(real(x, 0.1, 4), ((0, 0), (0, 0), (1, 1), (1, 1)))
    n = np.pad(np.ones_like(x, "float64"), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=include)
    have = run(e, x=x)
    want = np.zeros(have.shape)
    for i in range(have.shape[2]):
        for j in range(have.shape[3]):
            window = np.s_[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            want[:, :, i, j] = p[window].sum((2, 3)) / n[window].sum((2, 3))
    assert_rounded(have, stored(want, 0.07, 9, dtype), 0.2 if not include else 1e-3)


# ---- functions


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def erf(x):
    from math import erf as one

    return np.vectorize(one)(x)


FUNCTIONS = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "exp": np.exp, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "erf": erf, "abs": np.abs, "log": np.log,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "softmax": softmax,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.1 * x),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions(rng, name, dtype):
    x = integers(rng, dtype, 5, 60)
    positive = name in ("sqrt", "rsqrt", "log")
    z = np.iinfo(dtype).min if positive else 10
    s = 0.03 if dtype != "int16" else 0.0003
    if positive:
        x = np.maximum(x, z + 1).astype(dtype)
    so, zo = (1 / 256, 0 if dtype == "uint8" else -128) if name in ("sigmoid", "softmax") else (0.02, 30)
    args = (scale(s), zero(z), scale(so), zero(zo))
    e = Q.leaky_relu(var("x", x), 0.1, *args) if name == "leaky_relu" else getattr(Q, name)(var("x", x), *args)
    exact = stored(FUNCTIONS[name](real(x, s, z)), so, zo, dtype)
    assert_rounded(run(e, x=x), exact, 2e-2 if dtype == "int16" else 1e-3)


# ---- what is refused


def refuses(make, sentence):
    with pytest.raises(lathe.LatheError, match=sentence):
        relay.transform.InferType()(lathe.IRModule.from_expr(make()))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_scale(bad):
    x = relay.var("x", shape=(3,), dtype=F)
    refuses(lambda: Q.quantize(x, scale(bad), zero(0)), "'output_scale' is .*a scale is finite and above zero")


def test_refusals():
    x, q = relay.var("x", shape=(3, 4), dtype=F), relay.var("q", shape=(3, 4), dtype="int8")
    w = relay.var("w", shape=(5, 4), dtype="int8")
    refuses(lambda: Q.quantize(x, scale(1), zero(200)), "'output_zero_point' is 200, outside int8")
    refuses(lambda: Q.dequantize(q, scale(1), zero(-200)), "'input_zero_point' is -200, outside int8")
    refuses(lambda: Q.quantize(x, scale([1, 2, 3]), zero(0), axis=1), "has 3 elements, axis 1 of .* has 4")
    refuses(lambda: Q.quantize(x, relay.const(1.0, "float64"), zero(0)), "scales are float32")
    refuses(lambda: Q.quantize(x, scale(1), relay.const(0, "int64")), "zero points are int32")
    refuses(lambda: Q.quantize(q, scale(1), zero(0)), "float")
    refuses(lambda: Q.quantize(x, scale(1), zero(0), out_dtype=F), "out_dtype is float32; an integer")
    refuses(lambda: Q.dequantize(x, scale(1), zero(0)), "'data' is float32; an integer")
    refuses(lambda: Q.requantize(q, scale(1), zero(0), scale(1), zero(0), rounding="DOWN"), "'DOWN' is none of UPWARD")
    refuses(lambda: Q.dense(q, w, zero(0), zero(0), scale(1), scale([1, 2]), 5), "has 2 elements, axis 0")
    along = zero([0, 1, 2])
    refuses(lambda: Q.dense(q, w, along, zero(0), scale(1), scale(1), 5), "'input_zero_point' .*a scalar is needed")
    s = relay.var("s", shape=(), dtype=F)
    open_scale = lambda: Q.requantize(q, s, zero(0), scale(1), zero(0), compute_dtype="int64")  # noqa: E731
    refuses(open_scale, "needs scales that are constants")


def test_text_round_trip():
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="uint8")
    w = relay.var("w", shape=(4, 3, 3, 3), dtype="int8")
    y = Q.conv2d(x, w, zero(3), zero(0), scale(0.1), scale(np.full(4, 0.2)), (3, 3), 4, padding=1)
    y = Q.requantize(y, scale(np.full(4, 0.02)), zero(0), scale(0.5), zero(4), axis=1, rounding="TONEAREST",
                     out_dtype="uint8")
    mod = lathe.IRModule.from_expr(relay.Function([x, w], y))
    assert lathe.ir.structural_equal(lathe.parser.parse(mod.astext(show_meta_data=True)), mod)


# ---- rescaling in fixed point ------------------------------------------------------------------------------------------


def rescaled(x, multiplier, shift, rounding):
    """Of Python's integers: halves up; away from zero; or over 2^31 halves up, then away from zero."""
    def up(v, n):
        return (v + (1 << n >> 1)) >> n

    def away(v, n):
        return -up(-v, n) if v < 0 else up(v, n)

    if rounding == "DOUBLE":
        first = min(shift, 31)
        return away(up(x * multiplier, first), shift - first)
    return (up if rounding == "UPWARD" else away)(x * multiplier, shift)


@pytest.mark.parametrize("least", [1, 31])
@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "DOUBLE"])
def test_multiply_shift(rounding, least):
    rng = np.random.default_rng(3)
    edges = [0, 1, -1, 2, -2, 3, -3, 2**30, -2**30, 2**31 - 1, -2**31, 2**31 - 2]
    x = np.concatenate([np.array(edges, "int64"), rng.integers(-2**31, 2**31, 84), rng.integers(-300, 300, 96)])
    x = x.astype(I).reshape(12, 16)
    multiplier = np.concatenate([[2**30, 2**31 - 1, 2**30 + 1, 0], rng.integers(2**30, 2**31, 12)]).astype(I)
    shift = rng.integers(least, 55, 16).astype(I)
    shift[:3] = max(least, 31), 54, max(least, 32)
    # results that leave int32 are not asked for
    fits = np.abs(x.astype(object) * multiplier.astype(object)) < 2 ** (shift.astype(object) + 31)
    x = np.where(fits, x, x % 7).astype(I)
    got = run(Q.contrib_multiply_shift(var("x", x), zero(multiplier), zero(shift), rounding=rounding, least=least), x=x)
    want = [[rescaled(int(v), int(m), int(s), rounding) for v, m, s in zip(row, multiplier, shift)] for row in x]
    np.testing.assert_array_equal(got, want)


def test_multiply_shift_of_wide_sums():
    """Sums of 16-bit data are int64."""
    rng = np.random.default_rng(4)
    x = rng.integers(-2**44, 2**44, (5, 8))
    multiplier, shift = rng.integers(2**14, 2**15, 8).astype(I), rng.integers(28, 40, 8).astype(I)
    got = run(Q.contrib_multiply_shift(var("x", x), zero(multiplier), zero(shift)), x=x)
    want = [[rescaled(int(v), int(m), int(s), "UPWARD") for v, m, s in zip(row, multiplier, shift)] for row in x]
    np.testing.assert_array_equal(got, np.array(want).astype(I))


def test_reciprocal():
    """A multiplier and a shift that make 1 / data, with so many bits before the point."""
    data = np.array([1 << 19, (1 << 19) + 1, 3 << 19, 12345678, 2**28 - 1, 1, 7], I)
    x = var("x", data)
    multiplier, shift = (run(relay.TupleGetItem(Q.contrib_reciprocal(x, integer_bits=12), k), x=data) for k in (0, 1))
    np.testing.assert_allclose(multiplier * 2.0 ** -shift.astype(float), 2.0**19 / data, rtol=1e-8)
