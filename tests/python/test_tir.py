"""Expressions, statements and functions of tir from Python."""

import numpy as np
import pytest

import lathe as tvm
from lathe import te, tir
from lathe.ir import Range, assert_structural_equal, structural_equal, structural_hash


# ---- expressions


def test_nodes_have_classes_and_parts():
    x, y = tir.Var("x", "int32"), tir.SizeVar("y", "int32")
    e = x * 2 + y
    assert isinstance(e, tir.Add) and isinstance(e.a, tir.Mul) and e.a.b.value == 2 and e.b.same_as(y)
    assert isinstance(x, tir.Var) and not isinstance(x, tir.SizeVar) and isinstance(y, tir.SizeVar) and x.name == "x"
    s = tir.Select(x < tir.Var("z", "int32"), x, 7)
    assert isinstance(s.condition, tir.LT) and s.false_value.value == 7 and s.dtype == "int32"
    c = tir.Cast("float32", x)
    assert isinstance(c, tir.Cast) and c.value.same_as(x) and c.dtype == "float32"
    call = tir.call_intrin("float32", "tir.exp", c)
    assert isinstance(call, tir.Call) and call.op.name == "tir.exp" and call.args[0].same_as(c)
    r = tir.Ramp(x, 1, 4)
    assert r.dtype == "int32x4" and r.lanes == 4 and r.base.same_as(x)
    b = tir.Broadcast(tir.const(1.0, "float32"), 8)
    assert b.dtype == "float32x8" and b.value.value == 1.0
    let = tir.Let(x, 3, x + 1)
    assert let.var.same_as(x) and let.value.value == 3


def test_literals():
    assert tir.const(3).dtype == "int32" and tir.const(2**40).dtype == "int64" and tir.const(1.5).dtype == "float32"
    assert tir.const(True).dtype == "bool" and tir.const(3, "float16").value == 3.0
    assert tir.const(2**64 - 1, "uint64").value == 2**64 - 1
    assert tir.const(np.float64(0.1)).dtype == "float64" and tir.const(np.int8(-3)).value == -3
    assert int(tir.IntImm("int32", 5)) == 5 and tir.IntImm("int32", 5) == 5 and [10, 20, 30][tir.const(1)] == 20
    assert tir.const(5) + tir.const(6) == 11 and bool(tir.const(0)) is False
    assert (
        tir.min_value("int8").value == -128
        and tir.max_value("uint16").value == 65535
        and tir.max_value("float32").value > 3e38
    )
    assert tir.StringImm("abc") == "abc"


def test_equality_is_of_expressions():
    x, y = tir.Var("x", "int32"), tir.Var("x", "int32")
    assert (x + 1 == x + 1) and not (x == y) and x != y
    assert isinstance((x == y).asobject(), tir.EQ) and isinstance(x.equal(y), tir.EQ)
    assert structural_equal(x + 1, x + 1) and not structural_equal(x + 1, y + 1)
    assert {x: "a"}[x] == "a" and x in [y, x]


def test_logic_operators_on_bools():
    x = tir.Var("x", "int32")
    assert (
        isinstance((x < 3) & (x > 1), tir.And)
        and isinstance((x < 3) | (x > 1), tir.Or)
        and isinstance(~(x < 3), tir.Not)
    )
    assert isinstance(x & 3, tir.Call) and isinstance(tir.all(x < 1, x > 2, x < 3), tir.And)


def test_text_of_expressions():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    for e, text in (
        (x * 4 + y, "x*4+y"),
        ((x + y) * 2, "(x+y)*2"),
        (x // 2 % 3, "x//2%3"),
        (tir.max(x, y), "T.max(x,y)"),
    ):
        assert str(e).replace(" ", "") == text


def test_every_intrinsic_has_a_function():
    missing = [n for n in tir.op.generated if not hasattr(tir, n)]
    assert not missing and len(tir.op.generated) > 40
    x = tir.Var("x", "float32")
    for name in ("exp", "tanh", "sigmoid", "rsqrt", "nearbyint", "isnan", "copysign"):
        f = getattr(tir, name)
        assert f.__doc__ and f.__name__ == name
    assert (
        tir.isnan(x).dtype == "bool"
        and tir.copysign(x, 1.0).dtype == "float32"
        and tir.clz(tir.Var("i", "int64")).dtype == "int32"
    )
    assert tir.floor(tir.Var("i", "int32")).dtype == "int32"


# ---- arithmetic on expressions


def test_analyzer():
    a = tvm.arith.Analyzer()
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    assert str(a.simplify((x * 4 + 8) // 4)) == "x + 2"
    a.bind(x, Range(0, 8))
    assert a.can_prove(x < 8) and not a.can_prove(x < 7) and a.simplify(x // 8) == 0
    assert a.const_int_bound(x * 3 + 1) == tvm.arith.ConstIntBound(1, 22)
    assert a.can_prove_equal((x + y) * 2, x * 2 + y * 2)


def test_index_map():
    m = tir.IndexMap.from_func(lambda i, j: (i // 4, j, i % 4))
    assert [str(e) for e in m.map_indices([tir.const(9), tir.const(2)])] == ["2", "2", "1"]


# ---- buffers and statements


def test_buffer():
    n = te.var("n")
    b = tir.decl_buffer((n, 16), "float32", "b", scope="shared", data_alignment=128)
    assert (
        b.name == "b"
        and b.dtype == "float32"
        and b.shape[0].same_as(n)
        and b.scope() == "shared"
        and b.data_alignment == 128
    )
    load = b[n - 1, 3]
    assert isinstance(load, tir.BufferLoad) and load.buffer == b and load.indices[1] == 3
    assert b.vload((0, 4), "float32x4").dtype == "float32x4" and isinstance(
        b.vstore((0, 0), b.vload((0, 8), "float32x8")), tir.BufferStore
    )
    assert b.access_ptr("r").dtype == "handle"
    assert tir.decl_buffer((4,), "float32", offset_factor=1).elem_offset is not None


def double_and_sum():
    """C[0] = sum of 2 * A, with a local buffer, written with ir_builder."""
    ib = tir.ir_builder.create()
    A, C = tir.decl_buffer((10,), "float32", "A"), tir.decl_buffer((1,), "float32", "C")
    a, c = ib.buffer_ptr(A), ib.buffer_ptr(C)
    tmp = ib.allocate("float32", (10,), name="tmp", scope="local")
    with ib.for_range(0, 10, name="i") as i:
        tmp[i] = a[i] * 2.0
    c[0] = 0.0
    with ib.for_range(0, 10, name="j") as j:
        x = ib.let("x", tmp[j] + 0.0)
        with ib.if_scope(ib.likely(j >= 0)):
            c[0] = c[0] + x
    return tir.PrimFunc([A, C], ib.get(), attrs={"global_symbol": "double_and_sum"})


def test_ir_builder_program(target, rng):
    f = double_and_sum()
    assert f.name == "double_and_sum" and isinstance(f.body, tir.Stmt)
    a, c = rng.standard_normal(10).astype("float32"), np.zeros(1, "float32")
    f.interpret(a, c)
    np.testing.assert_allclose(c[0], 2 * a.sum(), rtol=1e-5)
    c2 = np.zeros(1, "float32")
    tvm.build(f, target=target)(a, c2)
    np.testing.assert_allclose(c2, c, rtol=1e-6)


def test_ir_builder_while_and_scopes(rng):
    ib = tir.ir_builder.create()
    A = tir.decl_buffer((1,), "int32", "A")
    a = ib.buffer_ptr(A)
    a[0] = 1
    with ib.while_loop(a[0] < 100):
        a[0] = a[0] * 2
    with ib.new_scope():
        ib.scope_attr(A, "note", 1)
        a[0] = a[0] + 1
    f = tir.PrimFunc([A], ib.get())
    out = np.zeros(1, "int32")
    f.interpret(out)
    assert out[0] == 129
    with pytest.raises(ValueError, match="else_scope"):
        tir.ir_builder.create().else_scope()


def test_statement_classes():
    f = double_and_sum()
    kinds = []

    def walk(s):
        kinds.append(type(s).__name__)
        for part in ("body", "then_case", "seq"):
            child = getattr(s, part, None)
            for c in child if isinstance(child, list) else [child]:
                if isinstance(c, tir.Stmt):
                    walk(c)

    walk(f.body)
    assert {"Allocate", "SeqStmt", "For", "BufferStore", "LetStmt", "IfThenElse"} <= set(kinds)


def test_loop_fields():
    i = tir.Var("i", "int32")
    A = tir.decl_buffer((8,), "float32", "A")
    loop = tir.For(i, 0, 8, "parallel", tir.BufferStore(A, 1.0, [i]), annotations={"pragma_hint": 3})
    assert (
        loop.loop_var.same_as(i)
        and loop.extent == 8
        and loop.kind == "parallel"
        and loop.annotations["pragma_hint"] == 3
    )
    assert loop.body.value.value == 1.0 and loop.body.indices[0].same_as(i)
    assert "A" in str(loop) and "8" in str(loop)


def test_a_statement_may_be_used_twice():
    A = tir.decl_buffer((8,), "float32", "A")
    s = tir.BufferStore(A, 1.0, [0])
    twice = tir.SeqStmt([s, s])
    assert len(twice) == 2
    f = tir.PrimFunc([A], tir.SeqStmt([twice, s]))
    a = np.zeros(8, "float32")
    f.interpret(a)
    assert a[0] == 1


# ---- functions and modules


def make(n=8, name="f"):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    return te.create_prim_func([A, B]).with_attr("global_symbol", name)


def test_attributes_of_functions():
    f = make()
    g = f.with_attr("tir.noalias", True).with_attr({"level": 3, "who": "me"})
    assert (
        g.attrs["level"] == 3 and g.attrs["who"] == "me" and g.attrs["global_symbol"] == "f" and "level" not in f.attrs
    )
    assert "who" not in g.without_attr("who").attrs
    assert g.name == "f" and f.with_attr("global_symbol", "h").name == "h"


def test_structural_equality():
    assert structural_equal(make(8), make(8)) and not structural_equal(make(8), make(9))
    assert structural_hash(make(8)) == structural_hash(make(8)) and structural_hash(make(8)) != structural_hash(make(9))
    with pytest.raises(ValueError, match="not structurally equal"):
        assert_structural_equal(make(8), make(9))


def test_modules():
    mod = tvm.IRModule({"f": make(8)})
    mod["g"] = make(9, "g")
    assert (
        [v.name_hint for v in mod.get_global_vars()] == ["f", "g"] and "f" in mod and "h" not in mod and len(mod) == 2
    )
    assert structural_equal(mod["f"], make(8))
    other = tvm.IRModule({"g": make(9, "g"), "f": make(8)})
    assert structural_equal(mod, other) and not structural_equal(mod, tvm.IRModule({"f": make(8)}))
    with pytest.raises(ValueError, match="no function 'h'"):
        mod["h"]
    mod["f"] = make(10)
    assert not structural_equal(mod, other)


def test_a_function_outlives_its_module():
    import gc

    mod = tvm.IRModule({"f": make(8)})
    f = mod["f"]
    del mod
    gc.collect()
    assert "def f(" in f.script()


def test_elements_of_a_buffer_have_a_dtype():
    with pytest.raises(tvm.error.TypeError, match="buffer 'd': its elements need a dtype"):
        tir.decl_buffer((1,), "void", name="d")


def test_index_maps_are_inverted():
    by_four = tir.IndexMap.from_func(lambda i, j: [i // 4, j, i % 4])
    assert [int(x) for x in by_four.map_shape([16, 3])] == [4, 3, 4]
    back = by_four.inverse([16, 3])
    assert len(back.initial_indices) == 3 and len(back.final_indices) == 2
    for i in range(16):
        for j in range(3):
            assert [int(x) for x in back.map_indices([i // 4, j, i % 4])] == [i, j]
    assert by_four.is_equivalent_to(tir.IndexMap.from_func(lambda x, y: [x // 4, y, x - x // 4 * 4]))
    assert not by_four.is_equivalent_to(tir.IndexMap.from_func(lambda x, y: [x // 2, y, x % 2]))
    with pytest.raises(tvm.error.ArgumentError, match="no inverse"):
        tir.IndexMap.from_func(lambda i: [i // 2]).inverse([8])
    with pytest.raises(tvm.error.ArgumentError, match="takes 2 indices"):
        by_four.inverse([16])
