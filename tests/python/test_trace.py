"""Traces, refusals and the schedule object as TVM's programs use them."""

import json

import numpy as np
import pytest

import lathe
from lathe import tir
from lathe.script import tir as T
from lathe.tir import Instruction, InstructionKind, Trace


@T.prim_func
def scale(a: T.handle, c: T.handle):
    T.func_attr({"global_symbol": "scale_it", "tir.noalias": True})
    A = T.match_buffer(a, (32, 24))
    C = T.match_buffer(c, (32, 24))
    B = T.alloc_buffer((32, 24))
    for i, j in T.grid(32, 24):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(32, 24):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


def same_result(mod):
    a = np.arange(32 * 24, dtype="float32").reshape(32, 24)
    c = np.zeros_like(a)
    mod["main"].interpret(a, c)
    np.testing.assert_array_equal(c, a * 2 + 1)


def scheduled():
    sch = tir.Schedule(scale, seed=5)
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.get_loops(b)  # nobody uses them
    i, j = sch.get_loops(c)
    factors = sch.sample_perfect_tile(i, n=2)
    i0, i1 = sch.split(i, factors)
    sch.reorder(i1, i0, j)
    sch.compute_at(b, i0)
    sch.annotate(c, "pragma_note", "here")
    sch.transform_layout(b, ("write", 0), lambda x, y: (y, x))
    sch.enter_postproc()
    sch.vectorize(j)
    return sch


def test_refusals_are_schedule_errors():
    sch = tir.Schedule(scale)
    with pytest.raises(tir.ScheduleError) as raised:
        sch.get_block("D")
    e = raised.value
    assert (
        e.primitive == "get_block"
        and "'D'" in str(e)
        and isinstance(e, lathe.error.ScheduleError)
        and isinstance(e, ValueError)
    )
    assert "def main" not in str(e) and e.mod.script() == sch.mod.script()
    with pytest.raises(tir.ScheduleError) as raised:
        sch.split(sch.get_loops(sch.get_block("B"))[0], [None, None])
    assert isinstance(raised.value, lathe.LatheError)
    with pytest.raises(lathe.error.ArgumentError) as raised:
        sch.bind(sch.get_loops(sch.get_block("B"))[0], "warp.x")
    assert isinstance(raised.value, tir.ScheduleError) and isinstance(raised.value, tir.schedule.ScheduleError)


def test_the_program_is_marked_on_request():
    sch = tir.Schedule(scale, error_render_level="detail", debug_mask="all")
    b = sch.get_block("C")
    j = sch.get_loops(b)[1]
    with pytest.raises(tir.ScheduleError) as raised:
        sch.compute_at(b, j)
    lines = str(raised.value).splitlines()
    block = next(i for i, line in enumerate(lines) if 'T.block("C")' in line)
    assert lines[block + 1].strip() == "^" * len(lines[block].strip())
    loops = [i for i, line in enumerate(lines) if line.lstrip().startswith("for j") and "^" in lines[i + 1]]
    assert len(loops) == 1 and sum("^" in line for line in lines) == 2
    assert raised.value.reason in str(raised.value) and raised.value.render() in str(raised.value)
    with pytest.raises(tir.ScheduleError, match="not rendered"):
        tir.Schedule(scale, error_render_level="none").get_block("x")
    with pytest.raises(lathe.error.ArgumentError, match="error_render_level"):
        tir.Schedule(scale, error_render_level="loud")


def test_trace_is_python_json_and_replays():
    sch = scheduled()
    trace = sch.trace
    assert [i.kind.name for i in trace.insts[:6]] == [
        "GetBlock",
        "GetBlock",
        "GetLoops",
        "GetLoops",
        "SamplePerfectTile",
        "Split",
    ]
    lines = trace.as_python()
    assert (
        lines[0] == 'b0 = sch.get_block(name="B", func_name="main")' and lines[2] == "l2, l3 = sch.get_loops(block=b0)"
    )
    assert str(trace).splitlines()[2] == "  " + lines[0] and "def apply_trace(sch: tir.Schedule) -> None:" in str(trace)
    want = sch.mod
    for again in (
        trace.apply_to_schedule,
        lambda s: Trace.apply_json_to_schedule(trace.as_json(), s),
        lambda s: Trace.apply_json_to_schedule(json.loads(json.dumps(trace.as_json())), s),
        trace.simplified().apply_to_schedule,
    ):
        other = tir.Schedule(scale)
        again(other)
        lathe.ir.assert_structural_equal(other.mod, want)
        same_result(other.mod)
    without = tir.Schedule(scale)
    trace.apply_to_schedule(without, remove_postproc=True)
    assert "vectorized" not in without.mod.script() and "vectorized" in want.script()
    by_text = tir.Schedule(scale)
    exec("\n".join(lines), {"sch": by_text, "T": T})  # pylint: disable=exec-used
    lathe.ir.assert_structural_equal(by_text.mod, want)


def test_a_fusion_keeps_its_loops_apart_from_its_flag():
    sch = tir.Schedule(scale)
    sch.fuse(*sch.get_loops(sch.get_block("B")))
    fuse = sch.trace.insts[-1]
    assert len(fuse.inputs) == 2 and fuse.attrs == [True]
    other = tir.Schedule(scale)
    sch.trace.apply_to_schedule(other)
    lathe.ir.assert_structural_equal(other.mod, sch.mod)


def test_simplified_drops_what_nobody_uses():
    trace = scheduled().trace
    short = trace.simplified(remove_postproc=True)
    assert [i.kind.name for i in short.insts].count("GetLoops") == 1 and not any(
        i.kind.is_postproc for i in short.insts
    )
    assert len(trace.insts) - len(short.insts) == 3  # the loops of B, enter_postproc, vectorize
    assert short.as_python()[2] == "l2, l3 = sch.get_loops(block=b1)"


def test_decisions_are_read_and_changed():
    sch = scheduled()
    trace = sch.trace
    sample = trace.insts[4]
    assert sample is sch.trace.insts[4] and trace.get_decision(trace.insts[0]) is None
    assert np.prod(trace.get_decision(sample)) == 32
    other = trace.with_decision(sample, [4, 8], remove_postproc=True)
    assert trace.get_decision(sample) != other.get_decision(sample) or trace.get_decision(sample) == [4, 8]
    again = tir.Schedule(scale)
    other.apply_to_schedule(again)
    assert [again.get(loop).extent for loop in again.get_loops(again.get_block("C"))] == [8, 4, 24]
    same_result(again.mod)
    chosen = tir.Schedule(scale)
    trace.apply_to_schedule(chosen, decision_provider=lambda inst, inputs, attrs, d: [2, 16] if inst is sample else d)
    assert [chosen.get(loop).extent for loop in chosen.get_loops(chosen.get_block("C"))][:2] == [16, 2]


def test_instructions_by_hand():
    b0, l1, l2 = tir.BlockRV(), tir.LoopRV(), tir.LoopRV()
    trace = Trace(insts=[Instruction(InstructionKind.get("GetBlock"), [], ["B", "main"], [b0]),
                         Instruction(InstructionKind.get("GetLoops"), [b0], [], [l1, l2])], decisions={})
    assert str(trace) == "\n".join(
        (
            "# from tvm import tir",
            "def apply_trace(sch: tir.Schedule) -> None:",
            '  b0 = sch.get_block(name="B", func_name="main")',
            "  l1, l2 = sch.get_loops(block=b0)",
        )
    )
    trace.append(Instruction(InstructionKind.get("Parallel"), [l1], [], []))
    sch = tir.Schedule(scale)
    trace.apply_to_schedule(sch)
    assert "T.parallel(32)" in sch.mod.script()
    assert trace.pop().kind.name == "Parallel" and len(trace.insts) == 2 and Trace([], {}).pop() is None
    with pytest.raises(lathe.error.ArgumentError, match="GetBlok"):
        InstructionKind.get("GetBlok")
    with pytest.raises(lathe.error.ArgumentError, match="no trace"):
        Trace.apply_json_to_schedule([[["GetBlock"]], []], sch)


def test_outputs_of_instructions_are_the_schedules_own():
    sch = tir.Schedule(scale)
    b = sch.get_block("B")
    loops = sch.get_loops(b)
    assert sch.trace.insts[0].outputs[0].same_as(b) and sch.get(sch.trace.insts[1].outputs[1]).extent == 24
    assert sch.trace.insts[1].outputs == loops and sch.get_sref(b).stmt.same_as(sch.get(b))


def test_symbol_seed_and_copies():
    sch = tir.Schedule(scale)
    assert sch.mod["main"].attrs["global_symbol"] == "scale_it"
    lathe.ir.assert_structural_equal(sch.mod["main"], scale)
    assert tir.Schedule(scale, seed=3).fork_seed() == tir.Schedule(scale, seed=3).fork_seed()

    def draw(s):
        return s.get(s.sample_categorical([1, 2, 3, 4, 5, 6, 7, 8], [0.125] * 8))

    drawn = []
    for _ in range(2):
        sch.seed(11)
        drawn.append([draw(sch) for _ in range(6)])
    assert drawn[0] == drawn[1] and len(set(drawn[0])) > 1
    other = sch.copy()
    other.get_block("B")
    assert len(other.trace.insts) == len(sch.trace.insts) + 1 and other.trace.insts[0] is sch.trace.insts[0]


def test_block_names_do_not_count():
    text = scale.script()
    lathe.ir.assert_structural_equal(lathe.script.from_source(text.replace('"C"', '"other"')), scale)
    assert lathe.ir.structural_hash(
        lathe.script.from_source(text.replace('"C"', '"other"'))
    ) == lathe.ir.structural_hash(scale)
    assert not lathe.ir.structural_equal(
        lathe.script.from_source(text.replace("T.float32(2.0)", "T.float32(3.0)")), scale
    )


def test_annotations_of_every_form():
    sch = tir.Schedule(scale)
    b = sch.get_block("B")
    loop = sch.get_loops(b)[0]
    sch.annotate(b, "stage", [0, 1, [2, 3]])
    sch.annotate(loop, "names", ["x", "y"])
    sch.annotate(b, "count", sch.sample_categorical([7], [1.0]))
    assert sch.get(b).annotations == {"stage": [0, 1, [2, 3]], "count": 7} and sch.get(loop).annotations == {
        "names": ["x", "y"]
    }
    again = tir.Schedule(scale)
    sch.trace.apply_to_schedule(again)
    lathe.ir.assert_structural_equal(again.mod, sch.mod)
    lathe.ir.assert_structural_equal(lathe.script.from_source(sch.mod.script()), sch.mod)
    sch.unannotate(b, "stage")
    with pytest.raises(tir.ScheduleError, match="stage"):
        sch.unannotate(b, "stage")


@pytest.mark.parametrize("name", sorted(tir.schedule.ABSENT))
def test_what_is_absent_says_the_way_around(name):
    with pytest.raises(NotImplementedError, match=f"{name} is not supported: ") as raised:
        getattr(tir.Schedule(scale), name)("B", 0)
    assert isinstance(raised.value, tir.ScheduleError)


def test_roundtrip_of_a_trace():
    from lathe.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip

    sch = tir.Schedule(scale)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.reorder(*sch.split(i, [None, 8])[::-1])
    sch.vectorize(j)
    again = verify_trace_roundtrip(sch, scale)
    assert_structural_equal_ignore_global_symbol(again.mod["main"], sch.mod["main"].with_attr("global_symbol", "other"))
    with pytest.raises(ValueError):
        assert_structural_equal_ignore_global_symbol(again.mod["main"], scale)
    with pytest.raises(ValueError, match="text_format"):
        verify_trace_roundtrip(sch, scale, text_format="xml")


UNIT = """
@T.prim_func
def main(A: T.Buffer((1, 8), "float32"), B: T.Buffer((1, 8), "float32")):
    for i, j in T.grid({extent}, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[{index}, vj] = A[{index}, vj] * T.float32(2)
"""


def test_a_variable_of_one_step_is_its_value():
    named, number, more = (
        lathe.script.from_source(UNIT.format(extent=n, index=i)) for n, i in ((1, "vi"), (1, "0"), (2, "0"))
    )
    lathe.ir.assert_structural_equal(named, number)
    assert lathe.ir.structural_hash(named) == lathe.ir.structural_hash(number)
    assert not lathe.ir.structural_equal(named, more)
    other = lathe.script.from_source(UNIT.format(extent=1, index="0").replace("B[0,", "B[1,"))
    assert not lathe.ir.structural_equal(named, other)


SUM = """
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 8):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads({reads}A[vi, vk])
            T.writes(B[vi])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""


def test_a_reduction_may_say_that_it_reads_its_sum():
    said, unsaid = (lathe.script.from_source(SUM.format(reads=r)) for r in ("B[vi], ", ""))
    lathe.ir.assert_structural_equal(said, unsaid)
    assert lathe.ir.structural_hash(said) == lathe.ir.structural_hash(unsaid)
    outs = []
    for f in (said, unsaid):
        sch = tir.Schedule(f)
        copy = sch.reindex(sch.get_block("B"), ("write", 0))
        assert sch.get(copy).name_hint == "B_reindex"
        a, out = np.arange(64, dtype="float32").reshape(8, 8), lathe.nd.empty((8,))
        lathe.build(sch.mod, target="c")(lathe.nd.array(a), out)
        np.testing.assert_array_equal(out.numpy(), a.sum(1))
        outs.append(sch.mod)
    lathe.ir.assert_structural_equal(*outs)


def test_one_statement_is_one_object():
    sch = tir.Schedule(scale)
    b = sch.get_block("B")
    assert sch.get(b).same_as(sch.get(sch.get_block("B"))) and sch.get(b) == sch.get(b)
    ref = sch.get_sref(b)
    assert ref.stmt.same_as(sch.get(b)) and sch.state.get_sref(sch.get(b)).same_as(ref)
    assert not ref.same_as(sch.get_sref(sch.get_block("C"))) and not ref.same_as(sch.copy().get_sref(b))
    before = sch.get(b)
    sch.annotate(b, "key", 1)
    assert not sch.get(b).same_as(before) and sch.get(b).annotations["key"] == 1


def test_outputs_of_a_scope_are_found_in_blocks_within_blocks():
    sch = tir.Schedule(scale)
    sch.blockize(sch.get_loops(sch.get_block("C"))[1])
    names = [sch.get(b).name_hint for b in sch.get_output_blocks(sch.get_block("root"))]
    assert len(names) == 2 and names[-1] == "C"


@pytest.mark.parametrize("scope", ["", "test_scope", "globals", "sharedx.dyn"])
def test_memory_that_does_not_exist_is_refused(scope):
    sch = tir.Schedule(scale)
    with pytest.raises(tir.ScheduleError, match="storage scope"):
        sch.cache_read(sch.get_block("C"), 0, scope)
    sch.cache_read(sch.get_block("C"), 0, "shared.dyn")
