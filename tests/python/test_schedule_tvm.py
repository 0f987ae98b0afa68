"""Primitives as programs written for TVM expect them: what is made, and that it computes the same."""

import numpy as np
import pytest

import lathe
from lathe import te, tir
from lathe.script import tir as T
from lathe.tir.schedule.testing import verify_trace_roundtrip


@T.prim_func
def chain(A: T.Buffer((16, 12), "float32"), C: T.Buffer((16, 12), "float32")):
    B = T.alloc_buffer((16, 12))
    for i, j in T.grid(16, 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(16, 12):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


def check(sch, before=chain):
    """The schedule's program computes what the one it began with does, and its trace replays."""
    shapes = [[int(n) for n in p.shape] for p in before.buffer_map.values()]
    arrays = [np.arange(np.prod(shape), dtype="float32").reshape(shape) for shape in shapes]
    got, want = [a.copy() for a in arrays], [a.copy() for a in arrays]
    before.interpret(*want)
    sch.mod["main"].interpret(*got)
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)
    return verify_trace_roundtrip(sch, before)


def test_axis_separators():
    sch = tir.Schedule(chain)
    sch.set_axis_separator(sch.get_block("B"), ("write", 0), [1])
    sch.transform_layout("C", "C", lambda i, j: [i, te.AXIS_SEPARATOR, j])
    check(sch)
    text = sch.mod.script()
    assert text.count("axis_separators=[1]") == 2
    lathe.ir.assert_structural_equal(lathe.script.from_source(text), sch.mod)
    assert sch.get(sch.get_block("B")).writes[0].buffer.axis_separators == [1]
    assert tir.decl_buffer((2, 3), axis_separators=[0, 2]).axis_separators == [0, 2]
    with pytest.raises(ValueError):
        lathe.ir.assert_structural_equal(sch.mod["main"], chain.with_attr("global_symbol", "main"))
    with pytest.raises(tir.ScheduleError, match="grow"):
        sch.set_axis_separator("B", "B", [2, 1])
    with pytest.raises(ValueError):
        tir.decl_buffer((2, 3), axis_separators=[3])
    sch.transform_layout("C", "B", lambda i, j: (j, te.AXIS_SEPARATOR, i // 4, i % 4))
    check(sch)


def test_separators_of_views():
    @T.prim_func
    def viewed(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                part = T.match_buffer(B[vi, vj], (), offset_factor=1)
                part[()] = A[vi, vj] * 2.0
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + 1.0

    sch = tir.Schedule(viewed)
    sch.set_axis_separator("B", "B", [1])
    assert "axis_separators=[0]" in sch.mod.script()
    check(sch, viewed)


def test_wide_indices_stay_wide():
    @T.prim_func
    def wide(A: T.Buffer((T.int64(8), T.int64(4)), "float32"), B: T.Buffer((T.int64(8), T.int64(4)), "float32")):
        for i, j in T.grid(T.int64(8), T.int64(4)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + 1.0

    sch = tir.Schedule(wide)
    sch.transform_block_layout("B", lambda i, j: (i * 4 + j,))
    sch.cache_read("B", 0, "global")
    assert "Cast" not in sch.mod.script() and "int32" not in sch.mod.script()
    check(sch, wide)


def test_a_dictionary_as_an_annotation():
    sch = tir.Schedule(chain)
    sch.annotate(sch.get_block("B"), "how", {"parts": [1, 2], "name": "x", "inner": {"n": 3}})
    check(sch)
    lathe.ir.assert_structural_equal(lathe.script.from_source(sch.mod.script()), sch.mod)


def test_what_is_removed_is_known_no_more():
    sch = tir.Schedule(chain)
    b = sch.get_block("B")
    other = sch.get_block("C")
    sch.remove_rv(b)
    with pytest.raises(IndexError, match="remove_rv"):
        sch.get(b)
    assert sch.get(other).name_hint == "C"


def test_partial_results_that_need_no_start():
    @T.prim_func
    def total(A: T.Buffer((12,), "float32"), B: T.Buffer((1,), "float32")):
        for k in range(12):
            with T.block("B"):
                vk = T.axis.reduce(12, k)
                T.block_attr({"note": 1})
                with T.init():
                    B[0] = T.float32(0)
                B[0] = B[0] + A[vk] * A[vk]

    sch = tir.Schedule(total)
    rf = sch.rfactor(sch.get_loops(sch.get_block("B"))[0], 0)
    assert sch.get(rf).init is None and sch.get(rf).annotations == {"note": 1}
    check(sch, total)


def test_a_predicate_that_keeps_a_domain_is_no_condition():
    @T.prim_func
    def ragged(A: T.Buffer((10,), "float32"), B: T.Buffer((10,), "float32")):
        for i, j in T.grid(3, 4):
            with T.block("B"):
                vi = T.axis.spatial(10, i * 4 + j)
                T.where(i * 4 + j < 10)
                B[vi] = A[vi] + 1.0

    sch = tir.Schedule(ragged)
    sch.cache_write("B", 0, "global")
    check(sch, ragged)


def test_an_instruction_alone_has_no_names():
    sch = tir.Schedule(chain)
    sch.get_loops(sch.get_block("B"))
    assert str(sch.trace.insts[1]) == "_, _ = sch.get_loops(block=_)"


def test_loops_of_bindings_that_are_not_affine_change_places_where_no_result_depends_on_it():
    @T.prim_func
    def squares(A: T.Buffer((14, 4), "float32"), B: T.Buffer((14, 4), "float32")):
        for i, j, k in T.grid(4, 4, 4):
            with T.block("B"):
                vi = T.axis.spatial(14, i * i + j)
                vk = T.axis.spatial(4, k)
                B[vi, vk] = A[vi, vk] + 1.0

    sch = tir.Schedule(squares)
    i, j, k = sch.get_loops(sch.get_block("B"))
    sch.reorder(k, i)
    sch.reorder(j, k)
    check(sch, squares)


def test_a_consumer_of_a_part_goes_into_its_producer():
    @T.prim_func
    def part(A: T.Buffer((16, 16), "float32"), C: T.Buffer((15, 13), "float32")):
        B = T.alloc_buffer((4, 16, 4))
        for i, j, k in T.grid(4, 16, 4):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                B[vi, vj, vk] = A[vi * 4 + vk, vj] * 2.0
        for i, j in T.grid(15, 13):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi // 4, vj, vi % 4] + 1.0

    sch = tir.Schedule(part)
    sch.reverse_compute_inline("C")
    assert "T.where(i*4 + k < 15 and j < 13)" in sch.mod.script()
    check(sch, part)
    with pytest.raises(tir.ScheduleError, match="predicate of its own"):
        sch.cache_write("B", 0, "global")


def test_gaps_that_nobody_uses():
    sch = tir.Schedule(chain)
    with pytest.raises(tir.ScheduleError, match="gaps"):
        sch.transform_layout("B", "B", lambda i, j: (i, j // 5, j % 5))
    with pytest.raises(tir.ScheduleError, match="int8"):
        sch.transform_layout("B", "B", lambda i, j: (i, j // 5, j % 5), pad_value=tir.IntImm("int8", 0))
    sch.transform_layout("B", "B", lambda i, j: (i, j // 5, j % 5), assume_injective_transform=True)
    assert "(16, 3, 5)" in sch.mod.script()
    check(sch)
