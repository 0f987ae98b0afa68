"""What a script takes from Python around it: values, closed expressions, macros; and T's names outside of one."""

from types import SimpleNamespace

import numpy as np
import pytest

import lathe
from lathe import tir
from lathe.script import tir as T


def run(f, *arrays):
    f.interpret(*arrays)
    return arrays[-1]


def test_closed_expressions_are_python():
    cfg = SimpleNamespace(size=8, dtype="float32", scale={"by": 3.0})
    sizes = [8, 2]

    def twice(x):
        return 2 * x

    @T.prim_func
    def f(A: T.Buffer((cfg.size,), cfg.dtype), B: T.Buffer((sizes[0],), cfg.dtype)):
        for i in range(cfg.size):
            B[i] = A[i] * T.float32(cfg.scale["by"]) + T.float32(twice(sizes[1]))

    a = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(run(f, a, np.zeros_like(a)), a * 3 + 4)


def test_an_error_keeps_its_line():
    cfg = SimpleNamespace(size=8)
    with pytest.raises(lathe.error.ParseError, match="nothing_like_it") as raised:

        @T.prim_func
        def f(A: T.Buffer((cfg.size,), "float32")):
            A[cfg.size - 1] = nothing_like_it

    with open(__file__, encoding="utf-8") as source:
        assert "= nothing_like_it" in source.read().splitlines()[raised.value.line - 1]


def test_macro_stands_for_its_body():
    amount = 5

    @T.macro
    def add_to(buffer, index, extra=amount):
        for i in range(2):
            buffer[index, i] = buffer[index, i] + T.float32(extra)

    @T.macro
    def both(buffer, row):
        add_to(buffer, row)
        add_to(buffer, row, extra=1)

    @T.prim_func
    def f(A: T.Buffer((4, 2), "float32")):
        for i in range(4):
            both(A, i)

    a = np.arange(8, dtype="float32").reshape(4, 2)
    np.testing.assert_array_equal(run(f, a.copy()), a + 6)


def test_names_of_a_macro():
    value = 3

    @T.macro(hygienic=True)
    def fixed(buffer):
        buffer[0] = T.float32(value)

    @T.macro(hygienic=False)
    def open_one(buffer):
        buffer[1] = T.float32(value)

    def use(value):
        @T.prim_func
        def f(A: T.Buffer((2,), "float32")):
            A[0] = T.float32(value)
            fixed(A)
            open_one(A)

        return f

    np.testing.assert_array_equal(run(use(7), np.zeros(2, "float32")), [3, 7])
    with pytest.raises(lathe.error.TypeError, match="inside of a script"):
        fixed(1)
    with pytest.raises(lathe.error.ArgumentError, match="fixed"):

        @T.prim_func
        def g(A: T.Buffer((2,), "float32")):
            fixed(A, 1, 2)


def test_meta_var_threads_and_return():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), n: T.int32):
        k = T.meta_var(n + 1)
        tx = T.env_thread("threadIdx.x")
        with T.launch_thread(tx, 8):
            A[tx] = T.float32(1)
        for _ in T.grid():
            A[k] = T.float32(5)
        return 0

    a = np.zeros(8, "float32")
    f.interpret(a, 2)
    np.testing.assert_array_equal(a, [1, 1, 1, 5, 1, 1, 1, 1])
    assert 'thread="threadIdx.x"' in f.script() and "let" not in f.script().lower()
    lathe.ir.assert_structural_equal(lathe.script.from_source(f.script()), f)


def test_names_outside_of_a_script_are_expressions():
    x = tir.Var("x", "int32")
    lathe.ir.assert_structural_equal(T.max(x, 1), tir.max(x, 1), map_free_vars=True)
    assert str(T.min(x, 2)) == str(tir.min(x, 2)) and T.floordiv(7, 2) == 3 and T.float32("inf").value == float("inf")
    assert str(T.Select(x > 1, x, 2)) == str(tir.Select(x > 1, x, 2)) and T.int64(4).dtype == "int64"
    assert repr(T.Buffer((3,), "float32")) == "T.Buffer"


def _packed(bits):
    """A function that gives the function: values of so many bits out of one integer."""

    def take(value, place, dtype):
        return tir.Cast(dtype, (value >> (place * bits)) & tir.const((1 << bits) - 1, "int32"))

    return take


def test_a_call_of_what_a_call_gives():
    @T.prim_func
    def unpack(A: T.Buffer((2,), "int32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = _packed(4)(A[vi // 8], vi % 8, dtype="float32")

    a, out = np.array([0x76543210, 0x0FEDCBA9], "int32"), lathe.nd.empty((16,))
    lathe.build(unpack, target="c")(lathe.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), [*range(8), *range(9, 16), 0])


def test_a_function_of_python_sees_the_parameters_dtypes():
    def either(i, j):
        return tir.any(i, tir.Not(j))

    @T.prim_func
    def func(A: T.Buffer((1,), "bool"), i: T.bool, j: T.bool):
        A[0] = either(i, j)

    @T.prim_func
    def written(A: T.Buffer((1,), "bool"), i: T.bool, j: T.bool):
        A[0] = i or not j

    lathe.ir.assert_structural_equal(func.with_attr("global_symbol", "f"), written.with_attr("global_symbol", "f"))


def test_starred_sequences_of_python():
    dims = (4, 8)

    @T.prim_func
    def func(a: T.handle):
        A = T.match_buffer(a, [2, *dims], "int32")
        for i, j, k in T.grid(2, *dims):
            A[i, j, k] = i

    @T.prim_func
    def written(a: T.handle):
        A = T.match_buffer(a, [2, 4, 8], "int32")
        for i, j, k in T.grid(2, 4, 8):
            A[i, j, k] = i

    lathe.ir.assert_structural_equal(func.with_attr("global_symbol", "f"), written.with_attr("global_symbol", "f"))
