"""TVMScript from Python: decorated functions, text, and back."""

import io
import sys

import numpy as np
import pytest

import lathe as tvm
from lathe import te, tir
from lathe.ir import assert_structural_equal, structural_equal
from lathe.script import ir as I
from lathe.script import tir as T

SIZE = 16
SCALE = 2.5


@T.prim_func
def scaled(A: T.Buffer((SIZE,), "float32"), B: T.Buffer((SIZE,), "float32")):
    for i in range(SIZE):
        with T.block("B"):
            vi = T.axis.spatial(SIZE, i)
            B[vi] = A[vi] * T.float32(SCALE)


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (8, 8), "float32")
    B = T.match_buffer(b, (8, 8), "float32")
    C = T.match_buffer(c, (8, 8), "float32")
    for i, j, k in T.grid(8, 8, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_decorated_function_runs(target, rng):
    assert isinstance(scaled, tir.PrimFunc) and scaled.name == "scaled"
    a, b = rng.standard_normal(SIZE).astype("float32"), np.zeros(SIZE, "float32")
    scaled.interpret(a, b)
    np.testing.assert_array_equal(b, a * np.float32(SCALE))
    b2 = np.zeros(SIZE, "float32")
    tvm.build(scaled, target=target)(a, b2)
    np.testing.assert_array_equal(b2, b)


def test_reduction_block(target, rng):
    a, b = rng.standard_normal((2, 8, 8)).astype("float32")
    c = np.zeros((8, 8), "float32")
    tvm.build(matmul, target=target)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n, dtype", [(4, "float32"), (7, "int32")])
def test_captured_closure_values(n, dtype, rng):
    one = 1
    offsets = [3, 5]
    np_dtype = np.dtype(dtype)

    @T.prim_func
    def f(A: T.Buffer((n,), dtype), B: T.Buffer((n,), np_dtype)):
        for i in T.serial(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + T.cast(one + offsets[1], dtype)

    a, b = np.arange(n).astype(dtype), np.zeros(n, dtype)
    f.interpret(a, b)
    np.testing.assert_array_equal(b, a + 6)


def test_round_trip_of_text():
    for f in (scaled, matmul):
        again = tvm.script.from_source(f.script())
        assert_structural_equal(again, f)
        assert again.script() == f.script()


def test_round_trip_of_what_te_makes():
    A = te.placeholder((6, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    B = te.compute((6,), lambda i: te.max(A[i, k], axis=k), name="B")
    C = te.compute((6, 9), lambda i, j: te.exp(A[i, j] - B[i]), name="C")
    f = te.create_prim_func([A, C])
    assert structural_equal(tvm.script.from_source(f.script()), f)


def test_round_trip_of_lowered_loops():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    o, i = s[B].split(B.op.axis[0], factor=8)
    s[B].vectorize(i)
    s[B].parallel(o)
    mod = tvm.lower(s, [A, B])
    assert structural_equal(tvm.script.from_source(mod.script()), mod)


def test_ir_module_class(rng):
    n = 4

    @I.ir_module
    class Module:
        @T.prim_func
        def first(A: T.Buffer((n,), "float32")):
            for i in range(n):
                A[i] = A[i] + T.float32(1)

        @T.prim_func
        def second(A: T.Buffer((n,), "float32")):
            for i in range(n):
                A[i] = A[i] * T.float32(2)

    assert isinstance(Module, tvm.IRModule) and [v.name_hint for v in Module.get_global_vars()] == ["first", "second"]
    assert structural_equal(tvm.script.from_source(Module.script()), Module)
    lib = tvm.build(Module)
    a = np.arange(n, dtype="float32")
    lib["first"](a)
    lib["second"](a)
    np.testing.assert_array_equal(a, (np.arange(n) + 1) * 2)


def test_symbolic_shapes(target, rng):
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + T.float32(1)

    func = tvm.build(f, target=target)
    for size in (1, 5, 64):
        a, b = rng.standard_normal(size).astype("float32"), np.zeros(size, "float32")
        func(a, b)
        np.testing.assert_array_equal(b, a + 1)


def test_errors_point_into_the_users_file():
    with pytest.raises(SyntaxError) as e:

        @T.prim_func
        def bad(A: T.Buffer((4,), "float32")):
            for i in range(4):
                A[i] = undefined_name  # noqa: F821

    assert e.value.filename == __file__
    line = open(__file__).read().splitlines()[e.value.lineno - 1]
    assert "undefined_name" in line and "undefined_name" in str(e.value)
    assert line[e.value.col - 1 :].startswith("undefined_name")


def test_show_is_plain_in_a_pipe_and_coloured_on_a_terminal(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    scaled.show()
    assert out.getvalue().strip() == scaled.script().strip()

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    tvm.IRModule({"scaled": scaled}).show()
    assert "\x1b[" in sys.stdout.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", Terminal())
    scaled.show()
    assert "\x1b[" not in sys.stdout.getvalue()


def test_schedule_of_a_script(rng):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)
    a, b = rng.standard_normal((2, 8, 8)).astype("float32")
    c = np.zeros((8, 8), "float32")
    sch.mod["main"].interpret(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def test_functions_abreast(target, rng):
    """Stores of a long function side by side: each reads what was there before it, also where an earlier one has
    written."""

    @T.prim_func
    def apart(A: T.Buffer((56,), "float32"), B: T.Buffer((56,), "float32")):
        for o in range(2):
            for u in T.unroll(7):
                for i in T.vectorized(4):
                    B[o * 28 + u * 4 + i] = A[o * 28 + u * 4 + i] * T.sigmoid(A[o * 28 + u * 4 + i]) + T.exp(
                        A[o * 28 + i]
                    )

    @T.prim_func
    def chained(A: T.Buffer((64,), "float32")):
        for o in range(2):
            for u in T.unroll(6):
                for i in T.vectorized(4):
                    A[o * 24 + u * 4 + i + 4] = A[o * 24 + u * 4 + i] * T.sigmoid(A[o * 24 + u * 4 + i])

    a = rng.standard_normal(56).astype("float32")
    got, want = np.zeros(56, "float32"), np.zeros(56, "float32")
    apart.interpret(a, want)
    tvm.build(apart, target=target)(a, got)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    got, want = np.zeros((2, 64), "float32")
    got[:] = want[:] = rng.standard_normal(64)
    chained.interpret(want)
    tvm.build(chained, target=target)(got)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_one_element_for_all_lanes(target, rng):
    @T.prim_func
    def repeated(A: T.Buffer((8,), "float32"), B: T.Buffer((32,), "float32")):
        for i in T.vectorized(32):
            B[i] = A[i // 4]

    a, b = rng.standard_normal(8).astype("float32"), np.zeros(32, "float32")
    tvm.build(repeated, target=target)(a, b)
    np.testing.assert_array_equal(b, a.repeat(4))


def test_more_ways_to_write():
    """An index in brackets, a range without one of its ends, several sizes at once, a comma after the last loop, a
    dictionary in an annotation."""

    @T.prim_func
    def func(a: T.handle, B: T.Buffer((4, 8), "float32")):
        m, n = T.int32(), T.int32()
        A = T.match_buffer(a, (m, n), "float32")
        for (
            i,
            j,
        ) in T.grid(4, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi:, :8])
                T.writes(B[(vi, vj)])
                T.block_attr({"plan": {"tiles": [4, 8], "name": "first"}})
                B[(vi, vj)] = A[(vi, vj)]

    block = tvm.tir.Schedule(func)
    block = block.get(block.get_block("B"))
    assert block.annotations == {"plan": {"tiles": [4, 8], "name": "first"}}
    rows, columns = block.reads[0].region
    assert "m" in str(rows.extent) and int(columns.min) == 0 and int(columns.extent) == 8
    again = tvm.script.from_source(func.script())
    tvm.ir.assert_structural_equal(func, again)
    out = np.zeros((4, 8), "float32")
    tvm.build(func, target="c")(np.arange(32, dtype="float32").reshape(4, 8), out)
    assert out[3, 7] == 31


def test_builtins_are_text():
    """What code is not made for is kept in programs, and refused by name where code is made."""

    @T.prim_func
    def func(A: T.Buffer((256,), "float32"), C: T.Buffer((256,), "float16", scope="wmma.accumulator")):
        T.evaluate(T.tvm_fill_fragment(C.data, 16, 16, 16, 0, T.float32(0)))
        T.evaluate(T.ptx_wait_group(0))
        A[0] = T.call_llvm_pure_intrin("float32", "llvm.sqrt", T.uint32(1), A[1])

    again = tvm.script.from_source(func.script())
    tvm.ir.assert_structural_equal(func, again)
    assert 'T.call_llvm_pure_intrin("float32", "llvm.sqrt", ' in func.script()
    with pytest.raises(tvm.error.UnsupportedError, match="tvm_fill_fragment"):
        tvm.build(func, target="c")


def test_assume_says_something_and_does_nothing():
    @T.prim_func
    def func(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            T.evaluate(T.assume(A[i] < 100))
            B[i] = A[i] + 1

    out = np.zeros(4, "int32")
    for target in ("c", "llvm"):
        tvm.build(func, target=target)(np.arange(4, dtype="int32"), out)
        assert out.tolist() == [1, 2, 3, 4]
