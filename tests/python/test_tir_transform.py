"""Single passes over loop programs, and questions about them."""

import numpy as np
import pytest

import lathe
from lathe import tir
from lathe.script import tir as T

IN_ORDER = [
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "CompactBufferAllocation",
    "LowerOpaqueBlock",
    "Simplify",
    "FlattenBuffer",
    "InjectDoubleBuffer",
    "LoopPartition",
    "VectorizeLoop",
    "UnrollLoop",
    "RemoveNoOp",
]


@T.prim_func
def matmul(A: T.Buffer((6, 5), "float32"), B: T.Buffer((5, 8), "float32"), C: T.Buffer((6, 8), "float32")):
    D = T.alloc_buffer((6, 8))
    for i, j, k in T.grid(6, 8, 5):
        with T.block("D"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                D[vi, vj] = T.float32(0)
            D[vi, vj] = D[vi, vj] + A[vi, vk] * B[vk, vj]
    for i in range(6):
        for j in T.vectorized(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = D[vi, vj] * T.float32(2)


def test_each_pass_alone_keeps_the_meaning():
    assert sorted(IN_ORDER) == sorted(tir.transform.names)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype("float32") for s in ((6, 5), (5, 8)))
    mod = lathe.IRModule({"main": matmul})
    for name in IN_ORDER:
        mod = getattr(tir.transform, name)()(mod)
        c = np.zeros((6, 8), "float32")
        mod["main"].interpret(a, b, c)
        np.testing.assert_array_equal(c, 2 * (a @ b), err_msg=name)
    text = mod.script()
    assert "T.block" not in text and "T.vectorized" not in text and "T.Ramp(i_1*8, 1, 8)" in text


@pytest.mark.parametrize(
    "name", ["FlattenBuffer", "Simplify", "VectorizeLoop", "UnrollLoop", "LoopPartition", "LowerOpaqueBlock"]
)
def test_a_pass_refuses_a_form_that_it_does_not_take(name):
    with pytest.raises(lathe.error.ArgumentError, match=f"{name} needs .*'main'"):
        getattr(tir.transform, name)()(lathe.IRModule({"main": matmul}))


def test_simplify_and_unroll():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32"), n: T.int32):
        for i in T.unroll(4):
            if i + n >= n:
                A[i] = i * 4 // 4 + 0
        for j in range(0):
            A[j] = 7

    simple = tir.transform.Simplify()(lathe.IRModule({"main": f}))
    assert "if" not in simple.script().replace("T.prim_func", "") and simple.script().count("for") == 1
    out = tir.transform.UnrollLoop()(simple)
    assert "for" not in out.script() and out.script().count("A[") == 4


def test_passes_of_the_users():
    @tir.transform.prim_func_pass(opt_level=0)
    def rename(f, mod, ctx):
        return f.with_attr("note", "seen")

    assert rename(lathe.IRModule({"main": matmul}))["main"].attrs["note"] == "seen"
    assert tir.transform.Apply(lambda f: f.with_attr("k", 3))(lathe.IRModule({"main": matmul}))["main"].attrs["k"] == 3
    with pytest.raises(lathe.error.UnsupportedError, match="HoistIfThenElse is not there"):
        tir.transform.HoistIfThenElse()


def test_questions():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    assert tir.analysis.expr_deep_equal(x + y * 2, x + y * 2) and not tir.analysis.expr_deep_equal(x + 1, y + 1)
    assert [v.name for v in tir.analysis.undefined_vars(x + y * x)] == ["x", "y"] and tir.analysis.undefined_vars(
        x + 1, [x]
    ) == []
    assert tir.analysis.undefined_vars(matmul) == []
    names = {v.name for v in tir.analysis.undefined_vars(matmul.body)}
    assert names == {v.name for v in (b.data for b in matmul.buffer_map.values())}
    assert tir.analysis.verify_well_formed(matmul) and tir.analysis.verify_well_formed(lathe.IRModule({"main": matmul}))
    loop = tir.For(x, 0, 4, 0, tir.Evaluate(y))
    assert (
        loop.kind == tir.ForKind.SERIAL and tir.For(x, 0, 4, tir.ForKind.PARALLEL, tir.Evaluate(y)).kind == "parallel"
    )
    with pytest.raises(ValueError):
        tir.For(x, 0, 4, 9, tir.Evaluate(y))
    bad = tir.PrimFunc([x], loop)
    assert not tir.analysis.verify_well_formed(bad, assert_mode=False)
    with pytest.raises(lathe.LatheError):
        tir.analysis.verify_well_formed(bad)
