"""Schedules from Python: tir.Schedule's primitives and te's stages."""

import inspect
import re

import numpy as np
import pytest

import lathe as tvm
from lathe import te, tir
from lathe.ir import structural_equal
from lathe.script import tir as T


def matmul_func(M=32, K=32, N=32):
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((M, N), lambda i, j: te.max(C[i, j], 0.0), name="D")
    return te.create_prim_func([A, B, D])


def check(sch_or_mod, M=32, K=32, N=32, target=None):
    """The program still computes relu(A @ B)."""
    mod = sch_or_mod.mod if isinstance(sch_or_mod, tir.Schedule) else sch_or_mod
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((M, K)).astype("float32"), rng.standard_normal((K, N)).astype("float32")
    want = np.maximum(a @ b, 0)
    out = np.zeros((M, N), "float32")
    mod["main"].interpret(a, b, out)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    out2 = np.zeros((M, N), "float32")
    tvm.build(mod, target=target)["main"](a, b, out2)
    np.testing.assert_allclose(out2, want, rtol=1e-4, atol=1e-5)


# ---- tir.Schedule


def test_methods_come_from_the_table():
    for name in (
        "split fuse reorder vectorize parallel unroll bind compute_at reverse_compute_at compute_inline reverse_compute_inline cache_read "
        "cache_write rfactor decompose_reduction storage_align set_scope double_buffer prefetch blockize tensorize transform_layout "
        "pad_einsum annotate unannotate sample_categorical sample_perfect_tile sample_compute_location get_loops get_block"
    ).split():
        method = getattr(tir.Schedule, name)
        assert method.__doc__, name
    assert list(inspect.signature(tir.Schedule.split).parameters)[:4] == [
        "self",
        "loop",
        "factors",
        "preserve_unit_iters",
    ]
    assert inspect.signature(tir.Schedule.compute_at).parameters["index"].default == -1


def test_a_tiled_matmul(target):
    sch = tir.Schedule(matmul_func())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1 = sch.split(j, factors=[None, 8])
    k0, k1 = sch.split(k, [8, None])
    sch.reorder(i0, j0, k0, i1, k1, j1)
    sch.decompose_reduction(block, k0)
    sch.vectorize(j1)
    sch.parallel(i0)
    sch.unroll(k1)
    check(sch, target=target)
    loop = sch.get(i1)
    assert isinstance(loop, tir.For) and loop.extent == 8 and loop.kind == "serial" and sch.get(i0).kind == "parallel"
    assert sch.get(block).name_hint.startswith("C")


def test_names_stand_for_blocks():
    sch = tir.Schedule(matmul_func())
    i, j, k = sch.get_loops("C")
    sch.reverse_compute_at("D", j)
    check(sch)


def test_blocks_and_their_neighbours():
    sch = tir.Schedule(matmul_func())
    c, d = sch.get_block("C"), sch.get_block("D")

    def names(blocks):
        return [sch.get(b).name_hint for b in blocks]

    assert names(sch.get_producers(d)) == ["C"] and names(sch.get_consumers(c)) == ["D"] and sch.get_producers(c) == []
    assert names(sch.get_output_blocks(sch.get_block("root"))) == ["D"] and names(
        sch.get_child_blocks(sch.get_loops(c)[0])
    ) == ["C"]
    assert c == c and c != d and len({c, d}) == 2
    block = sch.get(c)
    assert [v.iter_type for v in block.iter_vars] == [tir.IterVar.DataPar, tir.IterVar.DataPar, tir.IterVar.CommReduce]
    assert [r.buffer.name for r in block.reads] == ["A", "B"] and [r.buffer.name for r in block.writes] == ["C"]


def test_imperfect_factors(target):
    sch = tir.Schedule(matmul_func(30, 31, 29))
    for loop in sch.get_loops("C"):
        sch.split(loop, [None, 8])
    check(sch, 30, 31, 29, target)


def test_fuse_and_annotate():
    sch = tir.Schedule(matmul_func())
    i, j, k = sch.get_loops("C")
    f = sch.fuse(i, j)
    sch.annotate(f, "pragma_hint", 4)
    assert sch.get(f).annotations["pragma_hint"] == 4 and sch.get(f).extent == 1024
    sch.unannotate(f, "pragma_hint")
    assert not sch.get(f).annotations
    check(sch)


def test_cache_and_inline(target):
    sch = tir.Schedule(matmul_func())
    c = sch.get_block("C")
    cached = sch.cache_read(c, 0, "global")
    sch.compute_at(cached, sch.get_loops(c)[0])
    written = sch.cache_write(sch.get_block("D"), 0, "global")
    assert isinstance(written, tir.BlockRV)
    check(sch, target=target)


def test_rfactor(target):
    sch = tir.Schedule(matmul_func())
    i, j, k = sch.get_loops("C")
    k0, k1 = sch.split(k, [4, None])
    rf = sch.rfactor(k0, 0)
    assert isinstance(rf, tir.BlockRV)
    check(sch, target=target)


def test_transform_layout_with_a_lambda(target):
    sch = tir.Schedule(matmul_func())
    sch.transform_layout("C", ("write", 0), lambda i, j: (i // 8, j, i % 8))
    check(sch, target=target)
    sch2 = tir.Schedule(matmul_func())
    sch2.transform_layout("C", ("write", 0), lambda *idx: (idx[1], idx[0]))
    check(sch2, target=target)


def test_sampling_is_repeatable():
    def sample(seed):
        sch = tir.Schedule(matmul_func(), seed=seed)
        i, _, _ = sch.get_loops("C")
        factors = sch.sample_perfect_tile(i, n=3, max_innermost_factor=8)
        sch.split(i, factors)
        v = sch.sample_categorical([1, 2, 4], [0.2, 0.3, 0.5])
        return [sch.get(f) for f in factors] + [sch.get(v)], sch

    values, sch = sample(7)
    assert values == sample(7)[0] and np.prod(values[:3]) == 32 and values[2] <= 8 and values[3] in (1, 2, 4)
    check(sch)
    assert any(sample(s)[0] != values for s in range(8, 16))


def test_trace_replays():
    sch = tir.Schedule(matmul_func())
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(j, i1)
    sch.parallel(i0)
    text = str(sch.trace)
    assert re.search(r"sch\.split\(", text) and "sch.parallel(" in text and len(sch.trace.insts) >= 4
    again = tir.Schedule(matmul_func())
    sch.trace.apply_to_schedule(again)
    assert structural_equal(again.mod, sch.mod)


def test_copies_go_their_own_way():
    sch = tir.Schedule(matmul_func())
    i, j, k = sch.get_loops("C")
    other = sch.copy()
    other.split(i, [None, 4])
    assert len(sch.get_loops("C")) == 3 and len(other.get_loops("C")) == 4
    check(sch)
    check(other)


def test_mod_is_a_snapshot():
    sch = tir.Schedule(matmul_func())
    before = sch.mod
    text = before.script()
    sch.split(sch.get_loops("C")[0], [None, 4])
    assert before.script() == text and not structural_equal(before, sch.mod)


def test_several_functions():
    mod = tvm.IRModule({"first": matmul_func(), "second": matmul_func()})
    sch = tir.Schedule(mod)
    assert sch.func_working_on == "first"
    sch.split(sch.get_loops("C")[0], [None, 4])
    sch.work_on("second")
    sch.parallel(sch.get_loops("C")[0])
    out = sch.mod
    assert not structural_equal(out["first"], mod["first"]) and "parallel" in out["second"].script()


@pytest.mark.parametrize(
    "action, reason",
    [
        (lambda s, i, j, k: s.vectorize(k), "reduc"),
        (lambda s, i, j, k: s.parallel(k), "reduc"),
        (lambda s, i, j, k: s.split(i, [0, None]), "factor|positive|0"),
        (lambda s, i, j, k: s.split(i, [None, None]), "None|inferred"),
        (lambda s, i, j, k: s.fuse(i, k), "nest|directly|only child|under"),
        (lambda s, i, j, k: s.compute_inline(s.blocks[0]), "reduc"),
        (lambda s, i, j, k: s.compute_at(s.blocks[1], i), "consumer|reads|producer|output"),
        (lambda s, i, j, k: s.get_block("nothing"), "nothing"),
    ],
)
def test_refusals_leave_everything_as_it_was(action, reason):
    sch = tir.Schedule(matmul_func())
    sch.blocks = [sch.get_block("C"), sch.get_block("D")]
    i, j, k = sch.get_loops(sch.blocks[0])
    text, trace = sch.mod.script(), str(sch.trace)
    with pytest.raises(ValueError, match=reason):
        action(sch, i, j, k)
    assert sch.mod.script() == text and str(sch.trace) == trace
    check(sch)


def test_bands_with_a_guarded_copy_run_at_once():
    """Each band reads what it has copied itself, though bands overlap and the copy's fused loops end in a guard."""

    @T.prim_func
    def bands(A: T.Buffer((10, 7, 11), "float32"), B: T.Buffer((4, 7, 11), "float32")):
        P = T.alloc_buffer((10, 7, 11))
        for i in range(4):
            for r, j, k in T.grid(4, 7, 11):
                with T.block("P"):
                    vi = T.axis.spatial(10, i * 2 + r)
                    vj, vk = T.axis.remap("SS", [j, k])
                    P[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
            for j, k in T.grid(7, 11):
                with T.block("B"):
                    vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                    B[vi, vj, vk] = P[vi * 2, vj, vk] + P[vi * 2 + 3, vj, vk]

    sch = tir.Schedule(bands)
    i, r, j, k = sch.get_loops("P")
    sch.vectorize(sch.split(sch.fuse(j, k), [None, 16])[1])
    sch.parallel(i)
    assert "T.where" in sch.mod.script() and "T.parallel(4)" in sch.mod.script()
    a, b = np.random.default_rng(1).standard_normal((10, 7, 11)).astype("float32"), np.zeros((4, 7, 11), "float32")
    out = tvm.nd.array(b)
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), 2 * a[0:8:2] + 2 * a[3:10:2])


def test_a_loop_that_is_gone():
    sch = tir.Schedule(matmul_func())
    i, j, k = sch.get_loops("C")
    sch.split(i, [None, 4])
    with pytest.raises(ValueError):
        sch.parallel(i)


def test_wrong_arguments():
    sch = tir.Schedule(matmul_func())
    with pytest.raises(TypeError, match="split"):
        sch.split()
    with pytest.raises(ValueError, match="wants loop"):
        sch.split(sch.get_block("C"), [None, 4])
    with pytest.raises(TypeError):
        tir.Schedule(3)


# ---- tensor intrinsics


def dot_desc_impl():
    from lathe.script import tir as T

    @T.prim_func
    def desc(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (4,), "float32", offset_factor=1)
        B = T.match_buffer(b, (4,), "float32", offset_factor=1)
        C = T.match_buffer(c, (1,), "float32", offset_factor=1)
        with T.block("root"):
            T.reads(C[0:1], A[0:4], B[0:4])
            T.writes(C[0:1])
            for i in range(4):
                with T.block("update"):
                    vi = T.axis.reduce(4, i)
                    C[0] = C[0] + A[vi] * B[vi]

    @T.prim_func
    def impl(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (4,), "float32", offset_factor=1)
        B = T.match_buffer(b, (4,), "float32", offset_factor=1)
        C = T.match_buffer(c, (1,), "float32", offset_factor=1)
        with T.block("root"):
            T.reads(C[0:1], A[0:4], B[0:4])
            T.writes(C[0:1])
            C[0] = C[0] + (A[0] * B[0] + A[1] * B[1]) + (A[2] * B[2] + A[3] * B[3])

    return desc, impl


def test_tensorize(target):
    desc, impl = dot_desc_impl()
    tir.TensorIntrin.register("test.dot4", desc, impl, override=True)
    assert structural_equal(tir.TensorIntrin.get("test.dot4").desc, desc)
    with pytest.raises(ValueError, match="test.none"):
        tir.TensorIntrin.get("test.none")
    A, B = te.placeholder((8, 16), name="A"), te.placeholder((16,), name="B")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((8,), lambda i: te.sum(A[i, k] * B[k], axis=k), name="C")
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    i, k = sch.get_loops("C")
    k0, k1 = sch.split(k, [None, 4])
    sch.decompose_reduction("C", k0)
    sch.tensorize(k1, "test.dot4")
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.standard_normal((8, 16)).astype("float32"),
        rng.standard_normal(16).astype("float32"),
        np.zeros(8, "float32"),
    )
    tvm.build(sch.mod, target=target)["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


# ---- te stages


def te_matmul(M=64, K=64, N=64):
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def check_te(s, args, target, M=64, K=64, N=64):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((M, K)).astype("float32"), rng.standard_normal((K, N)).astype("float32")
    c = np.zeros((M, N), "float32")
    tvm.build(s, args, target=target)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_te_nparts_fuse_unroll(target):
    A, B, C = te_matmul(30, 20, 10)
    s = te.create_schedule(C.op)
    io, ii = s[C].split(C.op.axis[0], nparts=4)
    f = s[C].fuse(ii, C.op.axis[1])
    s[C].unroll(s[C].split(C.op.reduce_axis[0], factor=4)[1])
    assert [a.var.name for a in s[C].leaf_iter_vars][:2] == [io.var.name, f.var.name]
    check_te(s, [A, B, C], target, 30, 20, 10)


def test_te_cache_write_and_compute_at(target):
    A, B, C = te_matmul()
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    io, jo, ii, ji = s[C].tile(C.op.axis[0], C.op.axis[1], 16, 16)
    s[CC].compute_at(s[C], jo)
    ci, cj = s[CC].op.axis
    (ck,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(ck, factor=4)
    s[CC].reorder(ko, ci, ki, cj)
    s[CC].vectorize(cj)
    s[CC].unroll(ki)
    s[C].parallel(io)
    assert s[C].op.input_tensors == [CC]
    check_te(s, [A, B, C], target)


def test_te_cache_read(target):
    A, B, C = te_matmul()
    s = te.create_schedule(C.op)
    AA = s.cache_read(A, "global", [C])
    s[AA].compute_at(s[C], C.op.axis[0])
    check_te(s, [A, B, C], target)


def test_te_rfactor(target):
    A = te.placeholder((64, 128), name="A")
    k = te.reduce_axis((0, 128), name="k")
    B = te.compute((64,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    assert BF.ndim == 2
    a, b = np.random.default_rng(0).standard_normal((64, 128)).astype("float32"), np.zeros(64, "float32")
    tvm.build(s, [A, B], target=target)(a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-4, atol=1e-4)


def test_te_inline_and_root(target):
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((32,), lambda i: B[i] * 2.0, name="C")
    a = np.arange(32, dtype="float32")
    for inline in (True, False):
        s = te.create_schedule(C.op)
        s[B].compute_inline()
        if not inline:
            s[B].compute_root()
        text = str(tvm.lower(s, [A, C], simple_mode=True))
        assert text.count("for (") == (1 if inline else 2)
        c = np.zeros(32, "float32")
        tvm.build(s, [A, C], target=target)(a, c)
        np.testing.assert_array_equal(c, (a + 1) * 2)


def test_te_compute_at_before_the_consumer_is_split(target):
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((32,), lambda i: B[i] * 2.0, name="C")
    s = te.create_schedule(C.op)
    s[B].split(B.op.axis[0], factor=2)
    o, i = s[C].split(C.op.axis[0], factor=8)
    s[B].compute_at(s[C], o)
    a, c = np.arange(32, dtype="float32"), np.zeros(32, "float32")
    tvm.build(s, [A, C], target=target)(a, c)
    np.testing.assert_array_equal(c, (a + 1) * 2)


def test_te_hints(target):
    A, B, C = te_matmul()
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    o, i = s[C].split(C.op.axis[0], factor=8)
    s[CC].compute_at(s[C], o)
    s[CC].storage_align(s[CC].op.axis[0], 32, 4)
    AA = s.cache_read(A, "global", [CC])
    s[AA].compute_at(s[CC], s[CC].op.axis[0])
    s[AA].double_buffer()
    s[C].pragma(o, "auto_unroll_max_step", 4)
    s[CC].prefetch(B, s[CC].op.axis[0], 1)
    check_te(s, [A, B, C], target)


def test_te_tensorize(target):
    def intrin():
        a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
        c = te.compute((4,), lambda i: a[i] + b[i], name="c")

        def emit(ins, outs):
            ib = tir.ir_builder.create()
            x, y, z = (ib.buffer_ptr(t) for t in (ins[0], ins[1], outs[0]))
            for n in range(4):
                z[n] = x[n] + y[n]
            return ib.get()

        return te.decl_tensor_intrin(c.op, emit, name="add4")

    A, B = te.placeholder((32,), name="A"), te.placeholder((32,), name="B")
    C = te.compute((32,), lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    o, i = s[C].split(C.op.axis[0], factor=4)
    s[C].tensorize(i, intrin())
    a, b, c = np.arange(32, dtype="float32"), np.ones(32, "float32"), np.zeros(32, "float32")
    tvm.build(s, [A, B, C], target=target)(a, b, c)
    np.testing.assert_array_equal(c, a + 1)


@pytest.mark.parametrize(
    "action, reason",
    [
        (lambda s, C: s[C].vectorize(C.op.reduce_axis[0]), "reduc"),
        (lambda s, C: s[C].split(C.op.axis[0], factor=0), "0|factor"),
        (lambda s, C: s[C].split(C.op.axis[0], factor=-3), "-3|factor"),
        (lambda s, C: s[C].split(C.op.axis[0]), "factor or nparts"),
        (lambda s, C: s[C].fuse(C.op.axis[0], C.op.reduce_axis[0]), "fuse"),
        (
            lambda s, C: s[C].parallel(
                C.op.input_tensors[0].op.axis[0] if C.op.input_tensors[0].op.axis else te.reduce_axis((0, 4))
            ),
            "axis|stage",
        ),
        (
            lambda s, C: (
                s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x")),
                s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.y")),
            ),
            "bound|bind",
        ),
        (lambda s, C: s[C].compute_inline(), "output|inline"),
        (lambda s, C: s[C].reorder(C.op.axis[0], C.op.axis[0]), "twice|reorder"),
    ],
)
def test_te_refusals(action, reason):
    A, B, C = te_matmul()
    s = te.create_schedule(C.op)
    with pytest.raises(ValueError, match=reason):
        action(s, C)
    check_te(te.create_schedule(C.op), [A, B, C], None)


def test_te_refused_call_leaves_the_schedule(target):
    A, B, C = te_matmul()
    s = te.create_schedule(C.op)
    io, ii = s[C].split(C.op.axis[0], factor=8)
    before = str(tvm.lower(s, [A, B, C], simple_mode=True))
    for bad in (
        lambda: s[C].vectorize(C.op.reduce_axis[0]),
        lambda: s[C].split(C.op.axis[0], factor=2),
        lambda: s[C].compute_inline(),
    ):
        with pytest.raises(tvm.LatheError):
            bad()
        assert str(tvm.lower(s, [A, B, C], simple_mode=True)) == before
    check_te(s, [A, B, C], target)


def test_te_stage_of_another_schedule():
    A, B, C = te_matmul()
    D = te.compute((4,), lambda i: tir.const(1.0))
    s = te.create_schedule(C.op)
    with pytest.raises(ValueError, match="not part of this schedule"):
        s[D]


def test_prefetch_of_a_window_that_begins_before_the_buffer():
    """What is read straight ahead is fetched without a guard, but not where the first step reads before the first
    element."""
    n = 64
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, 3), name="k")
    B = te.compute(
        (n,), lambda i: te.sum(te.if_then_else(te.all(i + k >= 1, i + k <= n), A[i + k - 1], 0.0), axis=k), name="B"
    )
    sch = tir.Schedule(te.create_prim_func([A, B]))
    block = sch.get_block("B")
    outer, _ = sch.split(sch.get_loops(block)[0], [None, 16])
    sch.prefetch(block, 0, outer, 1)
    a, b = tvm.nd.array(np.arange(n, dtype="float32")), tvm.nd.array(np.zeros(n, "float32"))
    tvm.build(sch.mod, target="llvm")(a, b)
    x = np.arange(n, dtype="float32")
    np.testing.assert_array_equal(b.numpy(), x + np.r_[0, x[:-1]] + np.r_[x[1:], 0])


def padded():
    X = te.placeholder((2, 10), name="X")
    Y = te.compute((2, 15), lambda i, j: tir.if_then_else(tir.all(j >= 3, j < 13), X[i, j - 3], 5.0), name="Y")
    return te.create_prim_func([X, Y])


def test_padding_is_taken_apart():
    sch = tir.Schedule(padded())
    block = sch.get_block("Y")
    loop = sch.get_loops(block)[0]
    assert sch.can_decompose_padding(block, loop)
    fill = sch.decompose_padding(block, loop)
    assert sch.get(fill).name_hint == "Y_pad_const"
    assert not sch.can_decompose_padding(block, sch.get_loops(block)[0])
    x = np.arange(20, dtype="float32").reshape(2, 10)
    y = tvm.nd.empty((2, 15))
    tvm.build(sch.mod["main"], target="llvm")(tvm.nd.array(x), y)
    np.testing.assert_array_equal(y.numpy(), np.pad(x, ((0, 0), (3, 2)), constant_values=5))


def test_what_a_copy_knows_of_the_other():
    sch = tir.Schedule(matmul_func())
    before = sch.get_block("C")
    other = sch.copy()
    i, j, k = other.get_loops(before)
    assert other.get(i).loop_var.name == "i"
    sch.get_loops(before)
    with pytest.raises(tir.ScheduleError, match="of another schedule is none of this one's"):
        sch.parallel(i)
    with pytest.raises(tir.ScheduleError, match="of another schedule is none of this one's"):
        tir.Schedule(matmul_func()).get_loops(before)
    again = other.copy()
    assert again.get(k).loop_var.name == "k" and again.get(before).name_hint == "C"
