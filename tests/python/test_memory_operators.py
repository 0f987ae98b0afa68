"""Operators that move memory or reduce it, in shapes that take every path of their schedules, against numpy."""

import platform
import re

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor


def compiled(expr, params, args, target):
    mod = lathe.IRModule.from_expr(relay.Function(params, expr))
    m = graph_executor.GraphModule(relay.build(mod, target=target)["default"](lathe.cpu(0)))
    for i, a in enumerate(args):
        m.set_input(i, a)
    m.run()
    return m.get_output(0).numpy()


# This machine's vectors, and narrower ones that it can run.
TARGETS = ["llvm", "llvm -mcpu=x86-64"] if platform.machine() == "x86_64" else ["llvm"]


def inputs(rng, dtype, *shapes):
    values = [
        rng.integers(-100, 100, s).astype(dtype) if np.dtype(dtype).kind == "i" else rng.normal(size=s).astype(dtype)
        for s in shapes
    ]
    return [relay.var(f"x{i}", shape=s, dtype=dtype) for i, s in enumerate(shapes)], values


TRANSPOSES = [
    ((64, 48), (1, 0)),
    ((2, 128, 64), (0, 2, 1)),
    ((33, 47), (1, 0)),
    ((1, 9, 12, 64), (0, 2, 3, 1)),
    ((2, 32, 7, 7), (0, 2, 3, 1)),
    ((3, 5, 70), (0, 2, 1)),
    ((20, 3), (1, 0)),
    ((1, 40, 6, 16), (0, 2, 1, 3)),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
def test_transposes(rng, target, dtype):
    for shape, perm in TRANSPOSES:
        x, a = inputs(rng, dtype, shape)
        np.testing.assert_array_equal(
            compiled(relay.transpose(x[0], axes=list(perm)), x, a, target),
            a[0].transpose(perm),
            err_msg=f"{shape} {perm}",
        )


def test_transpose_with_arithmetic(rng):
    x, a = inputs(rng, "float32", (32, 48), (48, 32))
    got = compiled(relay.transpose(x[0], axes=[1, 0]) * relay.const(2.0) + x[1], x, a, "llvm")
    np.testing.assert_allclose(got, a[0].T * np.float32(2) + a[1], rtol=1e-6)


@pytest.mark.parametrize("parts", [2, 5, 13, 26])
def test_many_tensors_put_together(rng, parts):
    x, a = inputs(rng, "float32", *[(1, 3 + i % 4, 7, 7) for i in range(parts)])
    np.testing.assert_array_equal(compiled(relay.concatenate(x, axis=1), x, a, "llvm"), np.concatenate(a, 1))


def runs_of(lib, args, threads):
    """A run with so many threads, and one after each way to share the kernels has been tried."""
    instance = lib["default"](lathe.cpu(0))
    instance.executor.set_threads(threads)
    m = graph_executor.GraphModule(instance)
    for i, v in enumerate(args):
        m.set_input(i, v)
    for times in (1, 90):
        for _ in range(times):
            m.run()
        yield m.get_output(0).numpy()


def parallel_regions(lib):
    return len(re.findall(r"^define internal .*__body\d+\(", lib.get_source("ll"), re.M))


@pytest.mark.parametrize(
    "channels, shape", [((64, 32, 32), (56, 56)), ((96, 32), (55, 55)), ((128,) * 4, (27, 27)), ((512, 5), (32, 32))]
)
@pytest.mark.parametrize("cores", [2, 16])
def test_put_together_in_one_run(rng, channels, shape, cores):
    """Operands side by side in memory: the threads share each of them, and are woken once."""
    x, a = inputs(rng, "float32", *[(1, c, *shape) for c in channels])
    lib = relay.build(
        lathe.IRModule.from_expr(relay.Function(x, relay.concatenate(x, axis=1))),
        target=f"llvm -mcpu=native -num-cores={cores}",
    )
    assert parallel_regions(lib) == 1
    for threads in (1, 3, 16):
        for got in runs_of(lib, a, threads):
            np.testing.assert_array_equal(got, np.concatenate(a, 1))


@pytest.mark.parametrize("size", [3, 70_001, 1_000_003])
def test_an_input_that_is_the_output(rng, size):
    """Copied, a large one by all threads."""
    x, a = inputs(rng, "float32", (size,))
    lib = relay.build(lathe.IRModule.from_expr(relay.Function(x, x[0])), target="llvm")
    for threads in (1, 2, 5):
        for got in runs_of(lib, a, threads):
            np.testing.assert_array_equal(got, a[0])


@pytest.mark.parametrize("shape", [(14, 14), (28, 28), (27, 10)])
def test_put_together_and_scaled_in_one_region(rng, shape):
    """The loop over channels is cut at each operand; the threads share positions around it and are woken once."""
    blocks = [16, 2, 2, 1, 5]
    x, a = inputs(rng, "float32", *[(1, b, *shape, 16) for b in blocks], (1, sum(blocks), 1, 1, 16))
    expr = relay.nn.relu(relay.concatenate(x[:-1], axis=1) * x[-1] + relay.const(0.5))
    mod = lathe.IRModule.from_expr(relay.Function(x, expr))
    lib = relay.build(mod, target="llvm -mcpu=native -num-cores=16")
    assert parallel_regions(lib) == 1
    wanted = np.maximum(np.concatenate(a[:-1], 1) * a[-1] + np.float32(0.5), 0)
    for threads in (1, 3, 16):
        for got in runs_of(lib, a, threads):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def test_long_runs_are_copied(rng):
    x, a = inputs(rng, "float32", (2, 96, 27, 27), (2, 64, 27, 27), (2, 5, 27, 27))
    np.testing.assert_array_equal(compiled(relay.concatenate(x, axis=1), x, a, "llvm"), np.concatenate(a, 1))
    got = compiled(relay.strided_slice(x[0], begin=[0, 31], end=[2, 95], axes=[0, 1]), x[:1], a[:1], "llvm")
    np.testing.assert_array_equal(got, a[0][:, 31:95])


def windows(a, size, stride, pad, value):
    a = np.pad(a, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=value)
    return np.lib.stride_tricks.sliding_window_view(a, (size, size), (2, 3))[:, :, ::stride, ::stride].reshape(
        *a.shape[:2], -1, (a.shape[3] - size) // stride + 1, size * size
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [5, 7, 14, 27, 35])
@pytest.mark.parametrize("size, stride, pad", [(3, 1, 1), (3, 2, 0), (2, 2, 0), (3, 3, 1)])
def test_pools(rng, target, width, size, stride, pad):
    x, a = inputs(rng, "float32", (1, 3, width, width))
    a[0][0, 0, 2, 2] = np.nan                          # the largest passes NaN over
    most = compiled(relay.nn.max_pool2d(x[0], (size, size), (stride, stride), padding=(pad, pad)), x, a, target)
    np.testing.assert_array_equal(most, np.fmax.reduce(windows(a[0], size, stride, pad, -np.inf), -1))
    a[0][0, 0, 2, 2] = 0
    mean = compiled(relay.nn.avg_pool2d(x[0], (size, size), (stride, stride), padding=(pad, pad)), x, a, target)
    count = windows(np.ones_like(a[0]), size, stride, pad, 0).sum(-1)
    np.testing.assert_allclose(mean, windows(a[0], size, stride, pad, 0).sum(-1) / count, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape, axis",
    [
        ((2, 5, 7, 7), (2, 3)),
        ((1, 3, 28, 28), (2, 3)),
        ((4, 6, 5), (1, 2)),
        ((3, 100), (1,)),
        ((6, 4, 8), (0, 2)),
        ((1, 37, 1), (1,)),
        ((50, 7, 309), (0, 1)),
        ((37, 33), (0,)),
        ((3, 64, 40), (1,)),
        ((2, 40, 3, 30), (1,)),
    ],
)
def test_reductions_over_several_axes(rng, target, shape, axis):
    x, a = inputs(rng, "float32", shape)
    np.testing.assert_allclose(
        compiled(relay.sum(x[0], axis=list(axis)), x, a, target), a[0].sum(axis), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(compiled(relay.max(x[0], axis=list(axis)), x, a, target), a[0].max(axis))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape, axis", [((1, 3, 5, 128), 3), ((1, 7, 33), 2), ((5, 1, 1, 100), 3), ((2, 19, 24), 1), ((1, 1, 9), 2)]
)
def test_largest_and_smallest_of_rows(rng, target, shape, axis):
    """NaN wherever it stands, infinities, zeros of both signs (either is right, so none is told from the other)."""
    x, a = inputs(rng, "float32", shape)
    rows = np.moveaxis(a[0], axis, -1).reshape(-1, shape[axis])
    for i, row in enumerate(rows):
        row[:: i % 3 + 1] = [-np.inf, np.inf, np.nan, -0.0, 0.0][i % 5]
        row[-1 - i % len(row)] = [np.nan, 1, -np.inf][i % 3]
    a[0] = np.ascontiguousarray(np.moveaxis(rows.reshape(np.moveaxis(a[0], axis, -1).shape), -1, axis))
    for keep in (True, False):
        np.testing.assert_array_equal(
            compiled(relay.max(x[0], axis=axis, keepdims=keep), x, a, target), a[0].max(axis, keepdims=keep)
        )
        np.testing.assert_array_equal(
            compiled(relay.min(x[0], axis=axis, keepdims=keep), x, a, target), a[0].min(axis, keepdims=keep)
        )


@pytest.mark.parametrize("rows, columns", [(1, 384), (5, 100), (128, 33)])
def test_rows_in_one_pass(rng, rows, columns):
    x, a = inputs(rng, "float32", (1, rows, columns), (columns,), (columns,))
    got = compiled(relay.nn.layer_norm(x[0], x[1], x[2], axis=-1, epsilon=1e-5), x, a, "llvm")
    v = a[0].astype("float64")
    want = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5) * a[1] + a[2]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    e = np.exp(v - v.max(-1, keepdims=True))
    np.testing.assert_allclose(
        compiled(relay.nn.softmax(x[0], axis=-1), x[:1], a[:1], "llvm"),
        e / e.sum(-1, keepdims=True),
        rtol=1e-5,
        atol=1e-7,
    )
    logs = v - v.max(-1, keepdims=True) - np.log(e.sum(-1, keepdims=True))
    np.testing.assert_allclose(
        compiled(relay.nn.log_softmax(x[0], axis=-1), x[:1], a[:1], "llvm"), logs, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("factor", [2, 3, 4, 8, 16])
def test_elements_repeated(rng, factor):
    x, a = inputs(rng, "float32", (1, 2, 9, 21))
    got = compiled(
        relay.image.resize2d(
            x[0],
            (9 * factor, 21 * factor),
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        ),
        x,
        a,
        "llvm",
    )
    np.testing.assert_array_equal(got, a[0].repeat(factor, 2).repeat(factor, 3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_shrunk(rng, target, factor):
    """Linear between the two rows and the two columns in the middle of each square: rows are put together first, where
    columns are picked from them."""
    x, a = inputs(rng, "float32", (1, 3, 16 * factor, 19 * factor))
    got = compiled(
        relay.image.resize2d(x[0], (16, 19), method="linear", coordinate_transformation_mode="half_pixel"), x, a, target
    )
    middle = a[0].reshape(1, 3, 16, factor, 19, factor)[
        :, :, :, factor // 2 - 1 : factor // 2 + 1, :, factor // 2 - 1 : factor // 2 + 1
    ]
    np.testing.assert_allclose(got, middle.mean(axis=(3, 5)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", ["NCHW16c", "NHWC"])
@pytest.mark.parametrize("width", [7, 28])
@pytest.mark.parametrize("size, stride, pad", [(3, 1, 1), (3, 2, 1), (2, 2, 0)])
def test_pools_over_channels(rng, target, layout, width, size, stride, pad):
    back = (
        (lambda a: a.transpose(0, 1, 4, 2, 3).reshape(a.shape[0], -1, *a.shape[2:4]))
        if layout == "NCHW16c"
        else (lambda a: a.transpose(0, 3, 1, 2))
    )
    x, a = inputs(rng, "float32", (1, 2, width, width, 16) if layout == "NCHW16c" else (1, width, width, 40))
    a[0][0, 1, 2, 2] = np.nan
    most = compiled(
        relay.nn.max_pool2d(x[0], (size, size), (stride, stride), padding=(pad, pad), layout=layout), x, a, target
    )
    np.testing.assert_array_equal(back(most), np.fmax.reduce(windows(back(a[0]), size, stride, pad, -np.inf), -1))
    a[0][0, 1, 2, 2] = 0
    mean = compiled(
        relay.nn.avg_pool2d(x[0], (size, size), (stride, stride), padding=(pad, pad), layout=layout), x, a, target
    )
    flat = back(a[0])
    count = windows(np.ones_like(flat), size, stride, pad, 0).sum(-1)
    np.testing.assert_allclose(back(mean), windows(flat, size, stride, pad, 0).sum(-1) / count, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape, axis", [((3, 21, 40), 1), ((5, 100), 1), ((4, 6, 33), 0), ((2, 7), 1)])
def test_places_of_the_largest(rng, target, shape, axis):
    x, a = inputs(rng, "float32", shape)
    a[0] = np.round(a[0] * 4)                          # with equals among them
    np.testing.assert_array_equal(compiled(relay.argmax(x[0], axis=axis), x, a, target), a[0].argmax(axis))
    np.testing.assert_array_equal(compiled(relay.argmin(x[0], axis=axis), x, a, target), a[0].argmin(axis))
    last = compiled(relay.argmax(x[0], axis=axis, select_last_index=True), x, a, target)
    np.testing.assert_array_equal(last, shape[axis] - 1 - np.flip(a[0], axis).argmax(axis))
    a[0][(1,) * len(shape)] = np.nan                   # NaN counts as the largest and as the smallest
    np.testing.assert_array_equal(compiled(relay.argmax(x[0], axis=axis), x, a, target), a[0].argmax(axis))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape, axis", [((3, 9, 48), 1), ((4, 10), 0), ((2, 5, 7), 1), ((6, 31), 1)])
def test_running_sums(rng, target, shape, axis):
    x, a = inputs(rng, "float32", shape)
    np.testing.assert_allclose(
        compiled(relay.cumsum(x[0], axis=axis), x, a, target), a[0].cumsum(axis), rtol=1e-5, atol=1e-5
    )
    got = compiled(relay.cumsum(x[0], axis=axis, exclusive=True), x, a, target)
    np.testing.assert_allclose(got, a[0].cumsum(axis) - a[0], rtol=1e-5, atol=1e-5)


def test_few_of_many(rng):
    x, a = inputs(rng, "float32", (7, 1000))
    order = np.argsort(-a[0], 1, kind="stable")[:, :5]
    np.testing.assert_array_equal(compiled(relay.topk(x[0], k=5, ret_type="indices"), x, a, "llvm"), order)
    np.testing.assert_array_equal(
        compiled(relay.topk(x[0], k=5, ret_type="values"), x, a, "llvm"), np.take_along_axis(a[0], order, 1)
    )
