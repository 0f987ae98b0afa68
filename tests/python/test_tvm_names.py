"""Behaviour that programs written for TVM rely on: bounds, script and te, against values counted here."""

import itertools

import numpy as np
import pytest

import lathe
from lathe import arith, te, tir
from lathe.arith import ConstIntBound, IntervalSet
from lathe.ir import Range
from lathe.script import tir as T

LIMITS = {"x": (-9, 5), "y": (-4, 7)}


def values(f):
    """What f is over all values of the variables; divisions by zero have none."""
    out = []
    for x, y in itertools.product(*(range(lo, hi + 1) for lo, hi in LIMITS.values())):
        try:
            out.append(f(x, y))
        except ZeroDivisionError:
            pass
    return out


def trunc(a, b):
    return int(a / b) if b else 1 // 0


@pytest.mark.parametrize(
    "make, count",
    [
        (lambda x, y: x // y, lambda x, y: x // y),
        (lambda x, y: tir.truncdiv(x, y), trunc),
        (lambda x, y: tir.truncmod(x, 4), lambda x, y: x - 4 * trunc(x, 4)),
        (lambda x, y: x >> (y % 3), lambda x, y: x >> (y % 3)),
        (lambda x, y: (x * 3).astype("float32").astype("int32"), lambda x, y: x * 3),
    ],
)
def test_const_int_bound_is_the_hull(make, count):
    x, y = te.var("x"), te.var("y")
    analyzer = arith.Analyzer()
    for v, (lo, hi) in zip((x, y), LIMITS.values()):
        analyzer.update(v, ConstIntBound(lo, hi))
    found = analyzer.const_int_bound(make(x, y))
    assert (found.min_value, found.max_value) == (min(values(count)), max(values(count)))


def test_update_without_an_end_is_a_bound():
    x = te.var("x")
    analyzer = arith.Analyzer()
    analyzer.update(x, ConstIntBound(ConstIntBound.NEG_INF, 4))
    assert analyzer.const_int_bound_is_bound(x)
    assert analyzer.const_int_bound(x).max_value == 4


def test_congruences_meet():
    a = te.var("a")
    analyzer = arith.Analyzer()
    with analyzer.constraint_scope(tir.truncmod(a, 6) == 5), analyzer.constraint_scope(a % 10 == 7):
        found = analyzer.modular_set(a)
    want = [n for n in range(1000) if n % 6 == 5 and n % 10 == 7]
    assert (found.coeff, found.base) == (want[1] - want[0], want[0])
    assert arith.Analyzer().modular_set((a * 16 + 4) & 31) == arith.ModularSet(16, 4)
    assert arith.Analyzer().modular_set((a * 8 + 4) >> 1) == arith.ModularSet(4, 2)


@pytest.mark.parametrize("factor", [3, -3])
@pytest.mark.parametrize("compare", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("divided", [False, True])
def test_deduce_bound_is_the_set_of_solutions(factor, compare, turned, divided):
    a, b = te.var("a"), te.var("b")
    within = {b: IntervalSet(2, 6)}

    def condition(a, b):
        left = a // factor + b * 2 if divided else b - a * factor + 1
        left, right = (11, left) if turned else (left, 11)
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[compare]

    found = arith.deduce_bound(a, condition(a, b), within, within)
    lo, hi = (None if "inf" in str(e) else int(e) for e in (found.min_value, found.max_value))
    for n in range(-60, 61):
        holds = all(condition(n, m) for m in range(2, 7))
        assert holds == ((lo is None or n >= lo) and (hi is None or n <= hi)), (n, str(found))


def test_deduce_bound_of_what_it_cannot_solve_is_nothing():
    a, b = te.var("a"), te.var("b")
    table = tir.decl_buffer((9,), "int32", "table")
    unsolved = (a + b, a * 2 - a > b, table[a] + a < 3, tir.shift_left(a, b) - a < 4)
    for cond in (*unsolved, a % 16 < 10, tir.Max(a, 5) < 9, a // 8 == 3, 8 // a >= 2):
        assert arith.deduce_bound(a, cond, {b: IntervalSet(2, 3)}, {}).is_nothing()
    assert int(arith.deduce_bound(a, 5 * a == -10, {}, {}).min_value) == -2


def test_unions_of_intervals():
    low, high = arith.neg_inf(), arith.pos_inf()
    whole = arith.int_set.union_lower_bound([IntervalSet(low, 0), IntervalSet(5, 9), IntervalSet(1, 6)])
    assert whole.min_value.same_as(low) and int(whole.max_value) == 9
    assert arith.int_set.union_lower_bound([IntervalSet(0, 3), IntervalSet(5, 9)]).is_nothing()
    assert arith.int_set.union_lower_bound([IntervalSet(high, low), IntervalSet(2, high)]).max_value.same_as(high)


def test_detect_clip_bound_through_min_and_not():
    a, b = te.var("a"), te.var("b")
    found = arith.detect_clip_bound(tir.all(tir.Min(a, b) > 3, tir.Not(a > 9)), [a, b])
    assert [None if e is None else int(e) for e in found] == [4, 9, 4, None]


def test_indices_of_int64():
    n = te.var("n")
    A = te.placeholder((n, 8), name="A", dtype="int32")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k] * (k + 1), axis=k), name="B")
    C = te.compute((n,), lambda i: B[i] + i + A[i, 0], name="C")
    f = te.create_prim_func([A, C], index_dtype_override="int64")
    assert all(str(s.dtype) == "int64" for s in f.buffer_map[f.params[0]].shape)
    assert "T.int64(8)" in f.script() and "T.Cast(\"int64\", B[" in f.script()
    data = np.arange(40, dtype="int32").reshape(5, 8)
    out = np.zeros(5, "int32")
    lathe.build(f)(data, out)
    np.testing.assert_array_equal(out, data @ np.arange(1, 9) + np.arange(5) + data[:, 0])
    with pytest.raises(lathe.error.UnsupportedError, match="'int64' or None"):
        te.create_prim_func([A, C], index_dtype_override="int16")


def test_what_a_script_is_made_of():
    @T.prim_func
    def f(A: T.Buffer((16, 8), "float32"), B: T.Buffer((16,), "float32")):
        for i in T.thread_binding(16, thread="threadIdx.x"):
            with T.block("rows"):
                vi = T.axis.spatial(16, i)
                V = T.match_buffer(A[vi, 0:8])
                B[vi] = V[0, 3] + T.exp(0)

    loop = f.body.block.body
    assert loop.kind == 4 == tir.ForKind.THREAD_BINDING and loop.kind == "thread_binding"
    assert loop.thread_binding.thread_tag == "threadIdx.x"
    assert isinstance(loop.body, tir.stmt.BlockRealize)
    view = loop.body.block.match_buffers[0]
    assert [int(n) for n in view.buffer.shape] == [1, 8] and view.source.buffer.name == "A"
    lathe.ir.assert_structural_equal(f, lathe.script.from_source(f.script()))
    data, out = np.random.rand(16, 8).astype("float32"), np.zeros(16, "float32")
    f.interpret(data, out)
    np.testing.assert_array_equal(out, data[:, 3] + np.float32(1))


@pytest.mark.parametrize(
    "line, message",
    [
        ("vi = T.axis.spatial(16, i)", "has an axis 'vi' already"),
        ("T.reads(A[0])", "has T.reads already"),
        ("T.where(i < 3)", "has T.where already"),
        ('T.block_attr({"k": 2})', "has another 'k' already"),
        ("C = T.alloc_buffer((4,))", "has a buffer 'C' already"),
        ('D = T.alloc_buffer("(4, 4)")', "a size is a number"),
        ("T.evaluate(A)", "'A' is a buffer"),
    ],
)
def test_a_block_says_each_thing_once(line, message):
    text = f"""
@T.prim_func
def f(A: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("b"):
            vi = T.axis.spatial(16, i)
            T.where(i < 9)
            T.reads(A[vi])
            T.block_attr({{"k": 1}})
            C = T.alloc_buffer((4,))
            {line}
            A[vi] = A[vi] + 1.0
"""
    with pytest.raises(lathe.error.ParseError, match=message) as e:
        lathe.script.from_source(text)
    assert e.value.line == 11


def test_a_block_has_no_name_to_give():
    with pytest.raises(lathe.error.ParseError, match="nothing to name 'x'"):
        lathe.script.from_source('@T.prim_func\ndef f():\n    with T.block("b") as x:\n        T.evaluate(0)\n')


def test_a_program_built_by_calls():
    from lathe.script.ir_builder import IRBuilder
    from lathe.script.ir_builder import tir as B

    def product(n, tail):
        with IRBuilder() as ib:
            with B.prim_func():
                B.func_name("product")
                B.func_attr({"tir.noalias": True})
                a, b, c = (B.arg(name, B.Buffer((n, n), "float32")) for name in "abc")
                scale = B.arg("scale", B.float32())
                wide = B.alloc_buffer((n, n))
                with B.grid(n, n, n) as (i, j, k):
                    with B.block("sum"):
                        vi, vj, vk = B.axis.remap("SSR", [i, j, k])
                        B.reads(a[vi, vk], b[vk, vj])
                        B.writes(wide[vi, vj])
                        with B.init():
                            B.buffer_store(wide, 0, [vi, vj])
                        B.buffer_store(wide, wide[vi, vj] + a[vi, vk] * b[vk, vj], [vi, vj])
                with B.parallel(n) as i:
                    with B.serial(n) as j:
                        with B.block("scaled"):
                            vi = B.axis.spatial(n, i)
                            vj = B.axis.spatial((0, n), j)
                            if tail:
                                B.where(j < n - 1)
                            with B.If(vi % 2 == 0):
                                with B.Then():
                                    B.buffer_store(c, B.exp(wide[vi, vj] * scale), [vi, vj])
                                with B.Else():
                                    with B.Let(wide[vi, vj]) as x:
                                        B.buffer_store(c, x * x, [vi, vj])
        return ib.get()

    f = product(6, True)
    x, y = (np.random.rand(6, 6).astype("float32") for _ in range(2))
    got = np.zeros((6, 6), "float32")
    lathe.build(f)(x, y, got, np.float32(0.5))
    want = np.where(np.arange(6)[:, None] % 2 == 0, np.exp(x @ y * 0.5), (x @ y) ** 2)
    np.testing.assert_allclose(got[:, :5], want[:, :5], rtol=1e-5)
    assert not got[:, 5].any()
    assert f.attrs["global_symbol"] == "product" and [b.name for b in f.buffer_map.values()] == ["a", "b", "c"]
    sch = tir.Schedule(f)
    assert len(sch.get_loops(sch.get_block("sum"))) == 3
    with pytest.raises(ValueError, match="there is no IRBuilder here"):
        IRBuilder.current()
