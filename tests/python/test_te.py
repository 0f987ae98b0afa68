"""Tensor expressions from Python: what they build, and what it computes."""

import gc

import numpy as np
import pytest

import lathe as tvm
from lathe import te, tir
from lathe._ffi import context


def run(outputs, inputs, target, *arrays):
    """Builds with default schedules and calls; gives the outputs, which start as zeros."""
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    s = te.create_schedule(
        [t.op for t in outputs[:1]] if len({t.op for t in outputs}) == 1 else [t.op for t in outputs]
    )
    func = tvm.build(s, list(inputs) + outputs, target=target)
    outs = [np.zeros([int(n) for n in t.shape], dtype=t.dtype) for t in outputs]
    func(*arrays, *outs)
    return outs[0] if len(outs) == 1 else outs


# ---- objects


def test_tensor_attributes():
    A = te.placeholder((3, 4), name="A", dtype="int8")
    assert A.dtype == "int8" and A.ndim == 2 and A.name == "A" and A.value_index == 0
    assert [int(n) for n in A.shape] == [3, 4] and A.shape[1] == 4
    assert isinstance(A.op, te.PlaceholderOp) and A.op.name == "A" and A.op.num_outputs == 1
    assert A.op.output(0) == A and A.op.output(0) is not None and hash(A.op.output(0)) == hash(A)
    assert isinstance(A.shape[0], tir.IntImm)


def test_compute_attributes():
    A = te.placeholder((3, 4), name="A")
    k = te.reduce_axis((0, 4), name="k")
    B = te.compute((3,), lambda x: te.sum(A[x, k], axis=k), name="B", tag="row_sum", attrs={"note": "hello", "n": 3})
    op = B.op
    assert isinstance(op, te.ComputeOp) and op.tag == "row_sum" and op.attrs == {"note": "hello", "n": 3}
    assert [a.var.name for a in op.axis] == ["x"] and op.axis[0].dom.extent == 3
    assert op.reduce_axis[0].same_as(k) and op.reduce_axis[0].iter_type == tir.IterVar.CommReduce
    assert op.input_tensors == [A] and isinstance(op.body[0], tir.Reduce)
    assert op.body[0].source[0].buffer.name == "A" and op.body[0].source[0].producer == A


def test_tensors_compare_by_identity():
    A = te.placeholder((3,), name="A")
    B = te.placeholder((3,), name="A")
    assert A == A and A != B and not A == B and A in [B, A] and len({A, B, A.op.output(0)}) == 2
    x = te.placeholder((), name="x")
    with pytest.raises(ValueError, match="use equal"):
        _ = x == te.placeholder((), name="y")


def test_axis_membership_in_lists():
    A = te.placeholder((3, 4), name="A")
    B = te.compute((3, 4), lambda i, j: A[i, j] + 1.0)
    s = te.create_schedule(B.op)
    io, ii = s[B].split(B.op.axis[0], factor=2)
    leaves = s[B].leaf_iter_vars
    assert ii in leaves and leaves.index(io) == 0 and B.op.axis[0] not in leaves
    assert {a for a in s[B].all_iter_vars} >= set(leaves)


def test_partial_indexing_and_scalar_tensors(target):
    A = te.placeholder((3, 4), name="A")
    s0 = te.placeholder((), name="s0")
    B = te.compute((3, 4), lambda i, j: A[i][j] * s0() + s0[()])
    a = np.arange(12, dtype="float32").reshape(3, 4)
    out = run(B, [A, s0], target, a, np.array(2.5, dtype="float32"))
    np.testing.assert_array_equal(out, a * 2.5 + 2.5)


def test_varargs_lambda(target):
    A = te.placeholder((2, 3, 4), name="A")
    B = te.compute(A.shape, lambda *i: A(*i) * 2.0, name="B")
    assert [a.var.name for a in B.op.axis] == ["i0", "i1", "i2"]
    C = te.compute(A.shape, lambda n, *rest: B(n, *rest) + 1.0, name="C")
    assert [a.var.name for a in C.op.axis] == ["n", "i1", "i2"]
    a = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    np.testing.assert_array_equal(run(C, [A], target, a), a * 2 + 1)


def test_shapes_computed_from_shapes(target):
    A = te.placeholder((10,), name="A")
    B = te.compute((A.shape[0] - 2,), lambda i: A[i] + A[i + 1] + A[i + 2])
    assert int(B.shape[0]) == 8
    a = np.arange(10, dtype="float32")
    np.testing.assert_array_equal(run(B, [A], target, a), a[:-2] + a[1:-1] + a[2:])


# ---- operators


@pytest.mark.parametrize(
    "f, g",
    [
        (lambda x, y: x + y * 2, lambda x, y: x + y * 2),
        (lambda x, y: 3 - x, lambda x, y: 3 - x),
        (lambda x, y: -x, lambda x, y: -x),
        (lambda x, y: x // 3 + x % 5, lambda x, y: x // 3 + x % 5),
        (lambda x, y: 7 // (y * y + 1), lambda x, y: 7 // (y * y + 1)),
        (lambda x, y: tir.truncdiv(x, 3), lambda x, y: (np.sign(x) * (np.abs(x) // 3)).astype(x.dtype)),
        (lambda x, y: tir.truncmod(x, 3), lambda x, y: np.fmod(x, 3)),
        (lambda x, y: (x & 6) | (y ^ 3), lambda x, y: (x & 6) | (y ^ 3)),
        (lambda x, y: ~x, lambda x, y: ~x),
        (lambda x, y: (x << 2) + (y >> 1), lambda x, y: (x << 2) + (y >> 1)),
        (lambda x, y: te.max(x, y) - te.min(x, 2), lambda x, y: np.maximum(x, y) - np.minimum(x, 2)),
        (lambda x, y: tir.Select(x > y, x, y + 10), lambda x, y: np.where(x > y, x, y + 10)),
        (lambda x, y: tir.if_then_else(tir.any(x < 0, y < 0), 1, 0), lambda x, y: np.where((x < 0) | (y < 0), 1, 0)),
        (
            lambda x, y: tir.if_then_else(tir.all(x >= 0, tir.Not(y == 1)), x, y),
            lambda x, y: np.where((x >= 0) & (y != 1), x, y),
        ),
        (lambda x, y: te.abs(x), lambda x, y: np.abs(x)),
        (
            lambda x, y: te.popcount(x),
            lambda x, y: np.array([[bin(v & 0xFFFFFFFF).count("1") for v in r] for r in x.tolist()]),
        ),
    ],
)
def test_integer_operators(f, g, target, rng):
    A = te.placeholder((4, 8), name="A", dtype="int32")
    B = te.placeholder((4, 8), name="B", dtype="int32")
    C = te.compute((4, 8), lambda i, j: f(A[i, j], B[i, j]))
    assert C.dtype == "int32"
    a, b = rng.integers(-20, 20, (2, 4, 8)).astype("int32")
    np.testing.assert_array_equal(run(C, [A, B], target, a, b), g(a, b))


@pytest.mark.parametrize(
    "name", "exp log sqrt tanh sin cos tan floor ceil trunc atan sinh cosh log2 exp2 log10 log1p".split()
)
def test_math_functions(name, target, rng):
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: getattr(te, name)(A[i]))
    a = (rng.random(64) * 3 + 0.1).astype("float32")
    np.testing.assert_allclose(run(B, [A], target, a), getattr(np, name)(a.astype("float64")), rtol=1e-6, atol=1e-6)


def test_math_that_numpy_lacks(target, rng):
    import math

    A = te.placeholder((64,), name="A")
    a = rng.standard_normal(64).astype("float32")
    for f, g in [
        (te.erf, math.erf),
        (te.sigmoid, lambda x: 1 / (1 + math.exp(-x))),
        (te.rsqrt, lambda x: 1 / math.sqrt(x)),
        (lambda x: te.power(x, 3.0), lambda x: x**3),
        (lambda x: te.atan2(x, 2.0), lambda x: math.atan2(x, 2)),
        (lambda x: te.fmod(x, 0.3), lambda x: math.fmod(np.float32(x), np.float32(0.3))),
    ]:
        B = te.compute((64,), lambda i: f(te.abs(A[i]) + 0.5))
        want = [g(float(np.float32(np.abs(v) + np.float32(0.5)))) for v in a]
        np.testing.assert_allclose(run(B, [A], target, a), want, rtol=2e-6, atol=1e-6)


def test_dtypes_meet(rng):
    x8, x16 = te.var("x8", "int8"), te.var("x16", "float16")
    u8, i64, f64 = te.var("u8", "uint8"), te.var("i64", "int64"), te.var("f64", "float64")
    assert (x8 + x8).dtype == "int8" and (x8 + 1).dtype == "int32" and (u8 + x8).dtype == "int8"
    assert (i64 + 1).dtype == "int64" and (x16 * 2.0).dtype == "float32" and (x16 * 2).dtype == "float16"
    assert (x8 + x16).dtype == "float16" and (f64 + 0.1).b.value == 0.1
    assert (x8 < 3).dtype == "bool" and x8.astype("float32").dtype == "float32"


def test_int8_arithmetic_wraps(target):
    A = te.placeholder((256,), name="A", dtype="int8")
    B = te.compute((256,), lambda i: A[i] * A[i])
    a = np.arange(-128, 128).astype("int8")
    np.testing.assert_array_equal(run(B, [A], target, a), a * a)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64"]
)
def test_sum_in_every_dtype(dtype, target, rng):
    A = te.placeholder((5, 17), name="A", dtype=dtype)
    k = te.reduce_axis((0, 17), name="k")
    B = te.compute((5,), lambda i: te.sum(A[i, k], axis=k))
    assert B.dtype == dtype
    a = rng.integers(0, 7, (5, 17)).astype(dtype)
    np.testing.assert_array_equal(run(B, [A], target, a), a.sum(axis=1, dtype=dtype))


# ---- reductions


@pytest.mark.parametrize(
    "reducer, want",
    [
        (te.sum, lambda a: a.sum(1)),
        (te.prod, lambda a: a.prod(1)),
        (te.min, lambda a: a.min(1)),
        (te.max, lambda a: a.max(1)),
    ],
    ids=["sum", "prod", "min", "max"],
)
def test_reducers(reducer, want, target, rng):
    A = te.placeholder((4, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    B = te.compute((4,), lambda i: reducer(A[i, k], axis=k))
    a = rng.standard_normal((4, 9)).astype("float32")
    np.testing.assert_allclose(run(B, [A], target, a), want(a), rtol=1e-5)


def test_any_and_all_reduce(target):
    A = te.placeholder((3, 4), name="A", dtype="bool")
    k = te.reduce_axis((0, 4), name="k")
    B = te.compute((3,), lambda i: tir.op.reduce_any(A[i, k], axis=k))
    C = te.compute((3,), lambda i: tir.op.reduce_all(A[i, k], axis=k))
    a = np.array([[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 1, 1]], dtype="bool")
    np.testing.assert_array_equal(run(B, [A], target, a), a.any(1))
    np.testing.assert_array_equal(run(C, [A], target, a), a.all(1))


def test_reduce_with_condition_and_init(target, rng):
    A = te.placeholder((4, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, where=(k % 2).equal(0)))
    a = rng.standard_normal((4, 9)).astype("float32")
    np.testing.assert_allclose(run(B, [A], target, a), a[:, ::2].sum(1), rtol=1e-5)
    start = te.placeholder((4,), name="start")
    C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=start[i]), name="C")
    s0 = rng.standard_normal(4).astype("float32")
    np.testing.assert_allclose(run(C, [A, start], target, a, s0), a.sum(1) + s0, rtol=1e-5)


def test_reduce_inside_a_larger_expression(target, rng):
    A = te.placeholder((6, 9), name="A")
    b = te.placeholder((6,), name="b")
    k = te.reduce_axis((0, 9), name="k")
    C = te.compute((6,), lambda i: te.exp(te.sum(A[i, k], axis=k) * 0.1) + b[i], name="C")
    a, bb = rng.standard_normal((6, 9)).astype("float32"), rng.standard_normal(6).astype("float32")
    np.testing.assert_allclose(run(C, [A, b], target, a, bb), np.exp(a.sum(1) * 0.1) + bb, rtol=1e-5)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_argmin_argmax(name, target, rng):
    A = te.placeholder((5, 12), name="A")
    k = te.reduce_axis((0, 12), name="k")
    index, value = te.compute((5,), lambda i: getattr(te, name)((k.var, A[i, k]), axis=k), name="arg")
    assert index.dtype == "int32" and value.dtype == "float32" and index.op == value.op and index.op.num_outputs == 2
    a = rng.standard_normal((5, 12)).astype("float32")
    got_index, got_value = run([index, value], [A], target, a)
    np.testing.assert_array_equal(got_index, getattr(np, name)(a, axis=1))
    np.testing.assert_array_equal(got_value, a.min(1) if name == "argmin" else a.max(1))


def test_user_defined_reducers(target, rng):
    A = te.placeholder((4, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    largest_magnitude = te.comm_reducer(
        lambda x, y: te.max(te.abs(x), te.abs(y)), lambda t: tir.const(0, t), name="magnitude"
    )
    B = te.compute((4,), lambda i: largest_magnitude(A[i, k], axis=k))
    a = rng.standard_normal((4, 9)).astype("float32")
    np.testing.assert_allclose(run(B, [A], target, a), np.abs(a).max(1))

    def combine(x, y):
        return x[0] + y[0], x[1] * y[1]

    sum_prod = te.comm_reducer(combine, lambda t0, t1: (tir.const(0, t0), tir.const(1, t1)), name="sum_prod")
    k2 = te.reduce_axis((0, 9), name="k2")
    S, P = te.compute((4,), lambda i: sum_prod((A[i, k2], A[i, k2]), axis=k2), name="SP")
    got = run([S, P], [A], target, a)
    np.testing.assert_allclose(got[0], a.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], a.prod(1), rtol=1e-5)


def test_several_reduce_axes(target, rng):
    A = te.placeholder((3, 4, 5), name="A")
    r = [te.reduce_axis((0, n)) for n in (4, 5)]
    B = te.compute((3,), lambda i: te.max(A[i, r[0], r[1]], axis=r))
    a = rng.standard_normal((3, 4, 5)).astype("float32")
    np.testing.assert_array_equal(run(B, [A], target, a), a.max((1, 2)))


# ---- several outputs, scan, extern


def test_several_outputs(target, rng):
    A = te.placeholder((6,), name="A")
    B, C = te.compute((6,), lambda i: (A[i] + 1.0, A[i] * 2.0), name="BC")
    assert B.value_index == 0 and C.value_index == 1 and B.name == "BC.v0"
    a = rng.standard_normal(6).astype("float32")
    b, c = run([B, C], [A], target, a)
    np.testing.assert_array_equal(b, a + 1)
    np.testing.assert_array_equal(c, a * 2)


def test_scan_is_a_cumulative_sum(target, rng):
    m, n = 7, 5
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    scan = te.scan(init, update, state, inputs=[X], name="scan")
    assert isinstance(scan.op, te.ScanOp) and scan.op.update[0] == update and scan.op.scan_axis.dom.extent == m - 1
    x = rng.standard_normal((m, n)).astype("float32")
    np.testing.assert_allclose(run(scan, [X], target, x), np.cumsum(x, axis=0), rtol=1e-5, atol=1e-6)


def test_extern_with_ir_builder(target, rng):
    A = te.placeholder((8,), name="A")

    def reverse(ins, outs):
        ib = tir.ir_builder.create()
        src, dst = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8, name="i") as i:
            with ib.if_scope(i < 4):
                dst[i] = src[7 - i]
            with ib.else_scope():
                dst[i] = src[7 - i] * 2.0
        return ib.get()

    B = te.extern((8,), [A], reverse, name="B", dtype="float32")
    a = rng.standard_normal(8).astype("float32")
    want = a[::-1].copy()
    want[4:] *= 2
    np.testing.assert_array_equal(run(B, [A], target, a), want)


def test_extern_calls_python(target, rng):
    @tvm.register_func("test.sort", override=True)
    def sort(src, dst):
        np.asarray(dst)[...] = np.sort(np.asarray(src))

    A = te.placeholder((16,), name="A")
    B = te.extern(
        (16,), [A], lambda ins, outs: tir.call_packed("test.sort", ins[0], outs[0]), name="B", dtype="float32"
    )
    a = rng.standard_normal(16).astype("float32")
    np.testing.assert_array_equal(run(B, [A], target, a), np.sort(a))


# ---- sizes and scalars


def test_symbolic_sizes(target, rng):
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0)
    s = te.create_schedule(B.op)
    io, ii = s[B].split(B.op.axis[0], factor=8)
    func = tvm.build(s, [A, B], target=target)
    for size in (1, 8, 13, 100):
        a = rng.standard_normal(size).astype("float32")
        b = np.zeros(size, dtype="float32")
        func(a, b)
        np.testing.assert_array_equal(b, a * 2)


def test_scalar_parameters(target, rng):
    x, n = te.var("x", "float32"), te.var("n", "int32")
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] * x + n.astype("float32"))
    func = tvm.build(te.create_schedule(B.op), [A, x, n, B], target=target)
    a, b = rng.standard_normal(10).astype("float32"), np.zeros(10, dtype="float32")
    func(a, 0.5, 3, b)
    np.testing.assert_allclose(b, a * np.float32(0.5) + 3, rtol=1e-6)


def test_create_prim_func(rng):
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    f = te.create_prim_func([A, B])
    assert isinstance(f, tir.PrimFunc) and len(f.params) == 2
    assert [b.name for b in f.buffer_map.values()] == ["A", "B"]
    a, b = rng.standard_normal((4, 8)).astype("float32"), np.zeros(4, dtype="float32")
    f.interpret(a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_reference_evaluator_agrees(rng):
    A = te.placeholder((6, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    B = te.compute((6, 6), lambda i, j: te.sum(A[i, k] * A[k, j], axis=k), name="B")
    C = te.compute((6, 6), lambda i, j: te.max(B[i, j], 0.0), name="C")
    a, c = rng.standard_normal((6, 6)).astype("float32"), np.zeros((6, 6), dtype="float32")
    te.evaluate([A, C], [a, c])
    np.testing.assert_allclose(c, np.maximum(a @ a, 0), rtol=1e-5, atol=1e-6)


def test_one_op_in_two_schedules(target, rng):
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] + 1.0, name="B")
    s1, s2 = te.create_schedule(B.op), te.create_schedule(B.op)
    s1[B].split(B.op.axis[0], factor=4)
    io, ii = s2[B].split(B.op.axis[0], nparts=2)
    s2[B].vectorize(ii)
    a = rng.standard_normal(32).astype("float32")
    for s in (s1, s2):
        b = np.zeros(32, dtype="float32")
        tvm.build(s, [A, B], target=target)(a, b)
        np.testing.assert_array_equal(b, a + 1)


# ---- the world


def test_world_goes_with_its_last_object():
    gc.collect()
    ctx = context()
    te.placeholder((3,), name="gone")
    assert ctx.world is None or ctx.in_world > 0  # others may hold objects of this process
    before = ctx.in_world
    objects = [te.placeholder((3,), name=f"t{i}") for i in range(10)]
    assert ctx.in_world == before + 10
    del objects
    gc.collect()
    te.var("x")  # any call drains what was dropped
    assert ctx.in_world == before


def test_handles_are_released():
    gc.collect()
    te.var("warm")
    count = context().lib.lathe_object_count
    start = count(context().ptr)
    for _ in range(3):
        A = te.placeholder((16,), name="A")
        B = te.compute((16,), lambda i: A[i] + 1.0)
        s = te.create_schedule(B.op)
        s[B].split(B.op.axis[0], factor=4)
        tvm.lower(s, [A, B])
        del A, B, s
        gc.collect()
        te.var("x")
        assert count(context().ptr) <= start + 2


def test_reducer_and_range_are_the_same_for_every_element():
    A = te.placeholder((8,), name="A")
    with pytest.raises(tvm.error.ArgumentError, match="range of reduce axis 'k' depends on the axis 'i'"):

        def triangle(i):
            k = te.reduce_axis((0, i + 1), name="k")
            return te.sum(A[k], axis=k)

        te.compute((8,), triangle)
    with pytest.raises(tvm.error.ArgumentError, match="reducer 'mine' uses the axis 'i'"):

        def started(i):
            k = te.reduce_axis((0, 8), name="k")
            mine = te.comm_reducer(lambda x, y: x + y, lambda t: tir.Cast(t, i), name="mine")
            return mine(A[k], axis=k)

        te.compute((8,), started)


def test_script_dtypes_make_numbers():
    from lathe.script import tir as T

    assert T.int32(16).value == 16 and T.int64(3).dtype == "int64" and T.float32(0.5).value == 0.5
    A = te.placeholder((T.int32(64),), name="A")
    B = te.compute((64,), lambda i: A[i] * T.float32(2), name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(B.op.axis[0], factor=T.int32(16))
    s[B].vectorize(inner)
    func = tvm.build(s, [A, B], target="llvm")
    a, b = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    func(a, b)
    np.testing.assert_array_equal(b, a * 2)
    for value in (T.max, T.foo(3)):
        with pytest.raises(tvm.error.TypeError, match="is a name of scripts"):
            s[B].split(B.op.axis[0], factor=value)


# ---- layouts of stages

LAYOUTS = {
    "reversed": (lambda *i: i[::-1], lambda a: a.transpose(2, 1, 0)),
    "flat": (lambda i, j, k: [(i * 6 + j) * 8 + k], lambda a: a.reshape(-1)),
    "by fours": (lambda *i, n: [*i, n // 4, n % 4], lambda a: a.reshape(4, 6, 2, 4)),
}


@pytest.mark.parametrize("of_a", LAYOUTS)
@pytest.mark.parametrize("of_b", LAYOUTS)
def test_a_stage_stores_in_another_layout(of_a, of_b):
    A = te.placeholder((4, 6, 8), name="A")
    B = te.compute(A.shape, lambda i, j, k: A[i, j, k] * 2.0, name="B")
    C = te.compute(A.shape, lambda i, j, k: B[i, j, k] + A[3 - i, j, k], name="C")
    s = te.create_schedule(C.op)
    assert len(s[A].transform_layout(LAYOUTS[of_a][0])) == 0  # nothing computes it
    s[B].transform_layout(LAYOUTS[of_b][0])
    axes = s[C].transform_layout(LAYOUTS[of_b][0])
    a = np.arange(4 * 6 * 8, dtype="float32").reshape(4, 6, 8)
    given, want = LAYOUTS[of_a][1](a), LAYOUTS[of_b][1](a * 2 + a[::-1])
    assert tuple(int(x.dom.extent) for x in axes) == want.shape
    s[C].split(axes[-1], nparts=2)
    out = tvm.nd.empty(want.shape)
    tvm.build(s, [A, C], target="c")(tvm.nd.array(np.ascontiguousarray(given)), out)
    np.testing.assert_array_equal(out.numpy(), want)


def test_layouts_go_with_caches_and_reductions():
    A = te.placeholder((6, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((6,), lambda i: te.sum(A[i, k], k), name="B")
    s = te.create_schedule(B.op)
    s[A].transform_layout(lambda i, j: [j, i])
    x, y = s[B].transform_layout(lambda i: [i // 3, i % 3])
    AA = s.cache_read(A, "local", [B])
    BB = s.cache_write(B, "local")
    s[AA].compute_at(s[BB], BB.op.axis[0])
    s[BB].compute_at(s[B], x)
    a, out = np.arange(48, dtype="float32").reshape(6, 8), tvm.nd.empty((2, 3))
    tvm.build(s, [A, B], target="c")(tvm.nd.array(np.ascontiguousarray(a.T)), out)
    np.testing.assert_array_equal(out.numpy(), a.sum(1).reshape(2, 3))


def test_layouts_that_do_not_fit_are_refused():
    A = te.placeholder((6, 8), name="A")
    B = te.compute(A.shape, lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    for mapping, words in (
        (lambda i, j: [i + j], "place of its own"),
        (lambda i, j: [i, j // 3, j % 3], "place of its own"),
        (lambda i, j: [i, j + 1], "start at 0"),
    ):
        with pytest.raises(tvm.error.ScheduleError, match=words):
            s[B].transform_layout(mapping)
    s[B].split(B.op.axis[0], 2)
    with pytest.raises(tvm.error.ScheduleError, match="scheduled already"):
        s[B].transform_layout(lambda i, j: [j, i])
