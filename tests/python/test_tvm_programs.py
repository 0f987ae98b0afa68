"""Programs as TVM 0.18's users write them, with only the import lines changed: the
how-to pages on schedules and operators, the tutorials on tensor expressions and loop
programs, and the smaller idioms between them.  Results are checked against numpy."""

import ctypes

import numpy as np
import pytest

import lathe as tvm
from cuda_on_cpu import run_kernels
from lathe import te, tir
from lathe.script import ir as I
from lathe.script import tir as T

dev = tvm.cpu(0)
rand = np.random.default_rng(7)


def f32(*shape):
    return rand.uniform(-1, 1, shape).astype("float32")


def run(func, *args, out, dtype="float32"):
    """Calls func(*args, result) and gives the result."""
    result = tvm.nd.array(np.zeros(out, dtype), dev)
    func(*[tvm.nd.array(a, dev) if isinstance(a, np.ndarray) else a for a in args], result)
    return result.numpy()


def close(got, want, rtol=1e-5, atol=1e-6):
    tvm.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


# ---- how to: schedule primitives


def test_primitives_split_tile_fuse_reorder():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((m, n), name="A")
    B = te.placeholder((m, n), name="B")
    C = te.compute((m, n), lambda i, j: A[i, j] * B[i, j], name="C")
    a, b = f32(23, 17), f32(23, 17)
    plain = te.create_schedule([C.op])
    assert "for (i, 0, m)" in str(tvm.lower(plain, [A, B, C], simple_mode=True))
    tiled = te.create_schedule(C.op)
    xo, yo, xi, yi = tiled[C].tile(C.op.axis[0], C.op.axis[1], x_factor=10, y_factor=5)
    fused = tiled[C].fuse(xi, yi)
    reordered = te.create_schedule(C.op)
    xo, yo, xi, yi = reordered[C].tile(C.op.axis[0], C.op.axis[1], x_factor=10, y_factor=5)
    reordered[C].reorder(xi, yo, xo, yi)
    parts = te.create_schedule(C.op)
    bx, tx = parts[C].split(C.op.axis[0], nparts=32)
    assert fused.var.name and tx is not None and bx is not None
    for s in (plain, tiled, reordered, parts):
        close(run(tvm.build(s, [A, B, C]), a, b, out=a.shape), a * b)


def test_primitives_compute_at_inline_root_with_the_intermediate_as_argument():
    m = te.var("m")
    A = te.placeholder((m,), name="A")
    B = te.compute((m,), lambda i: A[i] + 1, name="B")
    C = te.compute((m,), lambda i: B[i] * 2, name="C")
    a = f32(13)

    def both(s):
        b, c = np.zeros(13, "float32"), np.zeros(13, "float32")
        tvm.build(s, [A, B, C], target="llvm")(tvm.nd.array(a), nb := tvm.nd.array(b), nc := tvm.nd.array(c))
        close(nb.numpy(), a + 1)
        close(nc.numpy(), (a + 1) * 2)

    s = te.create_schedule(C.op)
    both(s)
    s[B].compute_at(s[C], C.op.axis[0])
    text = str(tvm.lower(s, [A, B, C], simple_mode=True))
    assert text.count("for (") == 1 and "B[i]" in text
    both(s)
    s[B].compute_root()
    assert str(tvm.lower(s, [A, B, C], simple_mode=True)).count("for (") == 2
    both(s)
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    close(run(tvm.build(s, [A, C]), a, out=13), (a + 1) * 2)
    both(s)  # B is wanted as well, so it is stored here
    assert str(tvm.lower(s, [A, C], simple_mode=True)).count("for (") == 1


def test_intermediate_argument_shared_by_parallel_iterations_is_refused():
    """Overlapping halos of a reduction: one iteration would reset what another reads."""
    A = te.placeholder((34, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    B = te.compute((34,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((32,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    s = te.create_schedule(C.op)
    o, i = s[C].split(C.op.axis[0], 8)
    s[B].compute_at(s[C], o)
    a = f32(34, 8)
    b = a.sum(1)
    nb, nc = tvm.nd.empty((34,)), tvm.nd.empty((32,))
    tvm.build(s, [A, B, C])(tvm.nd.array(a), nb, nc)
    close(nb.numpy(), b, rtol=1e-4)
    close(nc.numpy(), b[:-2] + b[1:-1] + b[2:], rtol=1e-4)
    s[C].parallel(o)
    close(run(tvm.build(s, [A, C]), a, out=32), b[:-2] + b[1:-1] + b[2:], rtol=1e-4)
    with pytest.raises(tvm.TVMError, match="may update the same element|carries a dependence"):
        tvm.build(s, [A, B, C])


# ---- how to: reduction


def row_sum(n, m):
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    return A, B


def test_reduction_split_and_rfactor():
    A, B = row_sum(te.var("n"), te.var("m"))
    a = f32(37, 43)
    s = te.create_schedule(B.op)
    s[B].split(B.op.reduce_axis[0], factor=16)
    xo, xi = s[B].split(B.op.axis[0], factor=32)
    close(run(tvm.build(s, [A, B]), a, out=37), a.sum(1), rtol=1e-4)
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    assert "B.rf" in str(s[B].op.body) or "B_rf" in str(s[B].op.body)
    assert len(BF.shape) == 2 and int(BF.shape[0]) == 16
    close(run(tvm.build(s, [A, B]), a, out=37), a.sum(1), rtol=1e-4)


def test_reduction_across_threads(tmp_path):
    A, B = row_sum(te.var("n"), te.var("m"))
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=32)
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.y"))
    tx = te.thread_axis("threadIdx.x")
    s[B].bind(s[B].op.reduce_axis[0], tx)
    s[BF].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].set_store_predicate(tx.var.equal(0))
    source = tvm.build(s, [A, B], "cuda").imported_modules[0].get_source()
    for word in ("__global__", "__shared__", "__syncthreads()", "threadIdx.x", "threadIdx.y", "blockIdx.x"):
        assert word in source
    a, b = f32(37, 43), np.zeros(37, "float32")
    run_kernels(source, tmp_path, {"A": a, "B": b, "B_rf": np.zeros((16, 37), "float32")}, {"n": 37, "m": 43})
    close(b, a.sum(1), rtol=1e-4)


@pytest.mark.parametrize("threads", [5, 8, 32])
@pytest.mark.parametrize("kind", ["sum", "max", "argmax", "init"])
def test_reduction_loop_bound_to_threads(kind, threads, tmp_path):
    """Each thread takes a part of the reduction, also where it does not divide evenly."""
    A = te.placeholder((6, 43), name="A")
    k = te.reduce_axis((0, 43), "k")
    body = {
        "sum": lambda i: te.sum(A[i, k], axis=k),
        "max": lambda i: te.max(A[i, k], axis=k),
        "argmax": lambda i: tvm.tir.argmax((k, A[i, k]), axis=k),
        "init": lambda i: te.sum(A[i, k], axis=k, init=tvm.tir.const(2.5, "float32")),
    }[kind]
    B = te.compute((6,), body, name="B")
    out = list(B) if isinstance(B, (list, tuple)) else [B]
    s = te.create_schedule(out[0].op)
    stage = s[out[0]]
    xo, xi = stage.split(stage.op.axis[0], factor=4)
    ko, ki = stage.split(stage.op.reduce_axis[0], factor=threads)
    for axis, name in ((xo, "blockIdx.x"), (xi, "threadIdx.y"), (ki, "threadIdx.x")):
        stage.bind(axis, te.thread_axis(name))
    source = tvm.build(s, [A, *out], "cuda").imported_modules[0].get_source()
    a = f32(6, 43)
    arrays = {"A": a}
    names = [t.op.name if len(out) == 1 else f"B_v{n}" for n, t in enumerate(out)]
    for name, t in zip(names, out):
        arrays[name] = np.zeros(6, t.dtype)
    run_kernels(source, tmp_path, arrays)
    if kind == "argmax":
        assert (arrays[names[0]] == a.argmax(1)).all()
    want = {"sum": a.sum(1), "max": a.max(1), "argmax": a.max(1), "init": a.sum(1) + 2.5}[kind]
    close(arrays[names[-1]], want, rtol=1e-4, atol=1e-5)


def test_reduction_over_two_thread_axes_into_shared_memory(tmp_path):
    """A softmax row in one kernel: its sum is shared by the threads that divide by it."""

    @T.prim_func
    def norm(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (4, 64), "float32")
        B = T.match_buffer(b, (4, 64), "float32")
        S = T.alloc_buffer((4,), "float32", scope="shared")
        for i in range(4):
            for k0, k1, k2 in T.grid(4, 4, 4):
                with T.block("S"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(64, k0 * 16 + k1 * 4 + k2)
                    with T.init():
                        S[vi] = T.float32(0)
                    S[vi] = S[vi] + A[vi, vk]
            for j0, j1, j2 in T.grid(4, 4, 4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(64, j0 * 16 + j1 * 4 + j2)
                    B[vi, vj] = A[vi, vj] / S[vi]

    sch = tir.Schedule(norm)
    for name in ("S", "B"):
        i, _, y, x = sch.get_loops(sch.get_block(name))
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
    sch.bind(i, "blockIdx.x")
    source = tvm.build(sch.mod, target="cuda").imported_modules[0].get_source()
    a, b = np.abs(f32(4, 64)), np.zeros((4, 64), "float32")
    run_kernels(source, tmp_path, {"A": a, "B": b})
    close(b, a / a.sum(1, keepdims=True), rtol=1e-4)


def test_reduction_over_threads_refusals():
    A, B = row_sum(16, 16)
    s = te.create_schedule(B.op)
    with pytest.raises(tvm.TVMError, match="rfactor makes it spatial, or bind it to threadIdx"):
        s[B].bind(B.op.reduce_axis[0], te.thread_axis("blockIdx.x"))
    s[B].reorder(B.op.reduce_axis[0], B.op.axis[0])
    s[B].bind(B.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(tvm.TVMError, match="spatial loop 'i' stands inside reduction loop 'k'; reorder it outside"):
        tvm.build(s, [A, B], "cuda")
    with pytest.raises(tvm.TVMError, match="which holds by itself"):
        s[B].set_store_predicate(B.op.axis[0].var < 4)
    odd = te.comm_reducer(lambda x, y: x * y + x + y, lambda t: tvm.tir.const(0, dtype=t), name="odd")
    k = te.reduce_axis((0, 16), "k")
    C = te.compute((16,), lambda i: odd(A[i, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    with pytest.raises(tvm.TVMError, match="its update is none of sum prod min max"):
        s[C].bind(C.op.reduce_axis[0], te.thread_axis("threadIdx.x"))


def test_reduction_convolution():
    n = te.var("n")
    Input = te.placeholder((n, n), name="Input")
    Filter = te.placeholder((3, 3), name="Filter")
    di, dj = te.reduce_axis((0, 3), name="di"), te.reduce_axis((0, 3), name="dj")
    Output = te.compute(
        (n - 2, n - 2), lambda i, j: te.sum(Input[i + di, j + dj] * Filter[di, dj], axis=[di, dj]), name="Output"
    )
    s = te.create_schedule(Output.op)
    assert "for (di" in str(tvm.lower(s, [Input, Filter, Output], simple_mode=True))
    x, w = f32(9, 9), f32(3, 3)
    want = sum(x[p : p + 7, q : q + 7] * w[p, q] for p in range(3) for q in range(3))
    close(run(tvm.build(s, [Input, Filter, Output]), x, w, out=(7, 7)), want)


def test_reduction_commutative_reducer_of_ones_own():
    n, m = te.var("n"), te.var("m")
    product = te.comm_reducer(lambda x, y: x * y, lambda t: tvm.tir.const(1, dtype=t), name="product")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: product(A[i, k], axis=k), name="B")
    a = f32(5, 6)
    close(run(tvm.build(te.create_schedule(B.op), [A, B]), a, out=5), a.prod(1))


# ---- how to: intrinsics and math functions


def test_intrin_math():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute(A.shape, lambda i: te.exp(A[i]), name="B")
    s = te.create_schedule(B.op)
    bx, tx = s[B].split(B.op.axis[0], factor=64)
    gpu = te.create_schedule(B.op)
    num_thread = 64
    bx, tx = gpu[B].split(B.op.axis[0], factor=num_thread)
    gpu[B].bind(bx, te.thread_axis("blockIdx.x"))
    gpu[B].bind(tx, te.thread_axis("threadIdx.x"))
    source = tvm.build(gpu, [A, B], "cuda", name="myexp").imported_modules[0].get_source()
    assert "__global__" in source and "exp" in source and "myexp" in source
    a = f32(100)
    close(run(tvm.build(s, [A, B], "llvm"), a, out=100), np.exp(a))
    direct = te.compute(A.shape, lambda i: tvm.tir.call_pure_extern("float32", "expf", A[i]), name="B")
    close(run(tvm.build(te.create_schedule(direct.op), [A, direct], "llvm"), a, out=100), np.exp(a))


def test_call_intrin_by_its_name():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: tvm.tir.call_intrin("float32", "tir.sqrt", A[i]), name="B")
    a = np.abs(f32(8))
    close(run(tvm.build(te.create_schedule(B.op), [A, B]), a, out=8), np.sqrt(a))


# ---- how to: scan


def test_scan_cumulative_sum():
    m, n = te.var("m"), te.var("n")
    X = te.placeholder((m, n), name="X")
    s_state = te.placeholder((m, n))
    s_init = te.compute((1, n), lambda _, i: X[0, i])
    s_update = te.compute((m, n), lambda t, i: s_state[t - 1, i] + X[t, i])
    s_scan = tvm.te.scan(s_init, s_update, s_state, inputs=[X])
    x = f32(7, 9)
    s = te.create_schedule(s_scan.op)
    close(run(tvm.build(s, [X, s_scan]), x, out=(7, 9)), x.cumsum(0))
    xo, xi = s[s_update].split(s_update.op.axis[1], factor=4)
    s[s_update].vectorize(xi)
    close(run(tvm.build(s, [X, s_scan]), x, out=(7, 9)), x.cumsum(0))


def test_scan_of_several_stages_and_states():
    m, n, l = te.var("m"), te.var("n"), te.var("l")
    X = te.placeholder((m, n), name="X")
    s_state = te.placeholder((m, n))
    s_init = te.compute((1, n), lambda _, i: X[0, i])
    s_update_s1 = te.compute((m, n), lambda t, i: s_state[t - 1, i] * 2, name="s1")
    s_update_s2 = te.compute((m, n), lambda t, i: s_update_s1[t, i] + X[t, i], name="s2")
    s_scan = tvm.te.scan(s_init, s_update_s2, s_state, inputs=[X])
    s = te.create_schedule(s_scan.op)
    xo, xi = s[s_update_s2].split(s_update_s2.op.axis[1], factor=32)
    s[s_update_s1].compute_at(s[s_update_s2], xo)
    x = f32(5, 40)
    want = x.copy()
    for t in range(1, 5):
        want[t] += 2 * want[t - 1]
    close(run(tvm.build(s, [X, s_scan]), x, out=x.shape), want, rtol=1e-4)

    s_state1, s_state2 = te.placeholder((m, n)), te.placeholder((m, l))
    s_init1 = te.compute((1, n), lambda _, i: X[0, i])
    s_init2 = te.compute((1, l), lambda _, i: 0.0)
    s_update1 = te.compute((m, n), lambda t, i: s_state1[t - 1, i] + X[t, i])
    s_update2 = te.compute((m, l), lambda t, i: s_state2[t - 1, i] + s_state1[t - 1, 0])
    scan1, scan2 = tvm.te.scan([s_init1, s_init2], [s_update1, s_update2], [s_state1, s_state2], inputs=[X])
    s = te.create_schedule(scan1.op)
    one, two = tvm.nd.empty((5, 40)), tvm.nd.empty((5, 3))
    tvm.build(s, [X, scan1, scan2])(tvm.nd.array(x), one, two)
    close(one.numpy(), x.cumsum(0), rtol=1e-4)
    before = np.concatenate([[0], x.cumsum(0)[:-1, 0].cumsum()])
    close(two.numpy(), np.tile(before[:, None], (1, 3)), rtol=1e-4)


# ---- how to: external tensor functions


def test_extern_op_calls_python():
    A = te.placeholder((16,), name="A")

    @tvm.register_func("tvm_programs.addone", override=True)
    def my_tvm_addone(x, y):
        tvm.nd.array(x.numpy() + 1).copyto(y)

    B = te.extern(A.shape, [A], lambda ins, outs: tvm.tir.call_packed("tvm_programs.addone", ins[0], outs[0]), name="C")
    s = te.create_schedule(B.op)
    a = f32(16)
    close(run(tvm.build(s, [A, B], "llvm"), a, out=16), a + 1)
    D = te.compute(A.shape, lambda i: B[i] * 2, name="D")
    close(run(tvm.build(te.create_schedule(D.op), [A, D], "llvm"), a, out=16), 2 * (a + 1))


def test_extern_op_built_with_ir_builder():
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")

    def reverse(ins, outs):
        ib = tvm.tir.ir_builder.create()
        src, dst = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, n, name="i") as i:
            dst[i] = src[n - 1 - i]
        return ib.get()

    B = te.extern(A.shape, [A], reverse, name="reverse", dtype=A.dtype)
    a = f32(11)
    close(run(tvm.build(te.create_schedule(B.op), [A, B]), a, out=11), a[::-1])


# ---- how to: tensorize


def intrin_gemv(m, l):
    a = te.placeholder((l,), name="a")
    b = te.placeholder((m, l), name="b")
    k = te.reduce_axis((0, l), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    Ab = tvm.tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1])
    Bb = tvm.tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=[te.var("s1"), 1])
    Cb = tvm.tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1])

    def intrin_func(ins, outs):
        aa, bb = ins
        cc = outs[0]

        def _body():
            ib = tvm.tir.ir_builder.create()
            ib.emit(
                tvm.tir.call_extern(
                    "int32",
                    "gemv_update",
                    cc.access_ptr("w"),
                    aa.access_ptr("r"),
                    bb.access_ptr("r"),
                    m,
                    l,
                    bb.strides[0],
                )
            )
            return ib.get()

        def _reduce_reset():
            ib = tvm.tir.ir_builder.create()
            ib.emit(tvm.tir.call_extern("int32", "gemv_reset", cc.access_ptr("w"), m))
            return ib.get()

        return _body(), _reduce_reset(), _body()

    return te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})


GEMV_C = """
int gemv_update(float *cc, float *aa, float *bb, int m, int l, int stride) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < l; ++j) cc[i] += aa[j] * bb[i * stride + j];
  return 0;
}
int gemv_reset(float *cc, int m) {
  for (int i = 0; i < m; ++i) cc[i] = 0.0f;
  return 0;
}
"""


def test_tensorize_with_a_c_function(tmp_path):
    source, lib = tmp_path / "gemv.c", tmp_path / "libgemv.so"
    source.write_text(GEMV_C)
    tvm.contrib.cc.create_shared(str(lib), [str(source)])
    ctypes.CDLL(str(lib), mode=ctypes.RTLD_GLOBAL)
    N, M, L, factor = 16, 32, 64, 16
    A = te.placeholder((N, L), name="A")
    B = te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=factor)
    zo, zi = s[C].split(z, factor=factor)
    s[C].reorder(x, yo, zo, yi, zi)
    s[C].tensorize(yi, intrin_gemv(factor, factor))
    text = str(tvm.lower(s, [A, B, C], simple_mode=True))
    assert "gemv_update" in text and "gemv_reset" in text
    a, b = f32(N, L), f32(M, L)
    close(run(tvm.build(s, [A, B, C], target="llvm", name="gemv"), a, b, out=(N, M)), a @ b.T, rtol=1e-4, atol=1e-5)


# ---- how to: compute and reduce with tuple inputs


def test_tuple_inputs():
    m, n = te.var("m"), te.var("n")
    A0, A1 = te.placeholder((m, n), name="A0"), te.placeholder((m, n), name="A1")
    B0, B1 = te.compute((m, n), lambda i, j: (A0[i, j] + 2, A1[i, j] * 3), name="B")
    x, y = f32(3, 4), f32(3, 4)
    b0, b1 = tvm.nd.empty((3, 4)), tvm.nd.empty((3, 4))
    tvm.build(te.create_schedule(B0.op), [A0, A1, B0, B1])(tvm.nd.array(x), tvm.nd.array(y), b0, b1)
    close(b0.numpy(), x + 2)
    close(b1.numpy(), y * 3)
    C = te.compute((m, n), lambda i, j: A1[i, j] + B0[i, j], name="C")
    s = te.create_schedule(C.op)
    s[B0].compute_at(s[C], C.op.axis[0])
    close(run(tvm.build(s, [A0, A1, C]), x, y, out=(3, 4)), y + x + 2)


def test_tuple_argmax():
    def fcombine(x, y):
        lhs = tvm.tir.Select((x[1] >= y[1]), x[0], y[0])
        rhs = tvm.tir.Select((x[1] >= y[1]), x[1], y[1])
        return lhs, rhs

    def fidentity(t0, t1):
        return tvm.tir.const(-1, t0), tvm.te.min_value(t1)

    argmax = te.comm_reducer(fcombine, fidentity, name="argmax")
    m, n = te.var("m"), te.var("n")
    idx = te.placeholder((m, n), name="idx", dtype="int32")
    val = te.placeholder((m, n), name="val", dtype="int32")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
    v = rand.permutation(60).reshape(6, 10).astype("int32")
    i = np.tile(np.arange(10, dtype="int32"), (6, 1))
    t0, t1 = tvm.nd.empty((6,), "int32"), tvm.nd.empty((6,), "int32")
    tvm.build(te.create_schedule(T0.op), [idx, val, T0, T1])(tvm.nd.array(i), tvm.nd.array(v), t0, t1)
    assert (t0.numpy() == v.argmax(1)).all() and (t1.numpy() == v.max(1)).all()


# ---- how to: optimize operators


def gemm_tensors(M, K, N, bn=None):
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    if bn is None:
        return A, B, None, te.compute((M, N), lambda m, n: te.sum(A[m, k] * B[k, n], axis=k), name="C")
    packedB = te.compute((N // bn, K, bn), lambda bigN, k, littleN: B[k, bigN * bn + littleN], name="packedB")
    C = te.compute(
        (M, N), lambda m, n: te.sum(A[m, k] * packedB[n // bn, k, tvm.tir.indexmod(n, bn)], axis=k), name="C"
    )
    return A, B, packedB, C


@pytest.mark.parametrize("step", ["baseline", "blocking", "vectorize", "permute", "packing", "cache_write", "parallel"])
def test_opt_gemm(step, target):
    M = K = N = 64
    bn, kfactor = 32, 4
    packed = step in ("packing", "cache_write", "parallel")
    A, B, packedB, C = gemm_tensors(M, K, N, bn if packed else None)
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global") if step in ("cache_write", "parallel") else None
    if step != "baseline":
        mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    if CC is not None:
        s[CC].compute_at(s[C], no)
        mc, nc = s[CC].op.axis
        (kaxis,) = s[CC].op.reduce_axis
        ko, ki = s[CC].split(kaxis, factor=kfactor)
        s[CC].reorder(ko, mc, ki, nc)
        s[CC].vectorize(nc)
        s[CC].unroll(ki)
    elif step != "baseline":
        (kaxis,) = s[C].op.reduce_axis
        ko, ki = s[C].split(kaxis, factor=kfactor)
        if step in ("permute", "packing"):
            s[C].reorder(mo, no, ko, mi, ki, ni)
        else:
            s[C].reorder(mo, no, ko, ki, mi, ni)
        if step != "blocking":
            s[C].vectorize(ni)
    if packed:
        bigN, _, littleN = s[packedB].op.axis
        s[packedB].vectorize(littleN)
        s[packedB].parallel(bigN)
    if step == "parallel":
        s[C].parallel(mo)
    func = tvm.build(s, [A, B, C], target=target, name="mmult")
    a, b = f32(M, K), f32(K, N)
    close(run(func, a, b, out=(M, N)), a @ b, rtol=1e-4, atol=1e-5)
    evaluator = func.time_evaluator(func.entry_name, dev, number=1)
    assert evaluator(tvm.nd.array(a), tvm.nd.array(b), tvm.nd.empty((M, N))).mean > 0


def test_opt_conv_cuda(tmp_path):
    batch, in_channel, out_channel, in_size, kernel, pad, stride = 16, 16, 32, 6, 3, 1, 1
    A = te.placeholder((in_size, in_size, in_channel, batch), name="A")
    W = te.placeholder((kernel, kernel, in_channel, out_channel), name="W")
    out_size = (in_size - kernel + 2 * pad) // stride + 1
    Apad = te.compute(
        (in_size + 2 * pad, in_size + 2 * pad, in_channel, batch),
        lambda yy, xx, cc, nn: tvm.tir.if_then_else(
            tvm.tir.all(yy >= pad, yy - pad < in_size, xx >= pad, xx - pad < in_size),
            A[yy - pad, xx - pad, cc, nn],
            tvm.tir.const(0.0, "float32"),
        ),
        name="Apad",
    )
    rc = te.reduce_axis((0, in_channel), name="rc")
    ry = te.reduce_axis((0, kernel), name="ry")
    rx = te.reduce_axis((0, kernel), name="rx")
    B = te.compute(
        (out_size, out_size, out_channel, batch),
        lambda yy, xx, ff, nn: te.sum(
            Apad[yy * stride + ry, xx * stride + rx, rc, nn] * W[ry, rx, rc, ff], axis=[ry, rx, rc]
        ),
        name="B",
    )
    a, w = f32(in_size, in_size, in_channel, batch), f32(kernel, kernel, in_channel, out_channel)
    ap = np.pad(a, ((1, 1), (1, 1), (0, 0), (0, 0)))
    want = sum(np.einsum("yxcn,cf->yxfn", ap[p : p + 6, q : q + 6], w[p, q]) for p in range(3) for q in range(3))
    plain = te.create_schedule(B.op)
    plain[Apad].compute_inline()
    close(run(tvm.build(plain, [A, W, B]), a, w, out=want.shape), want, rtol=1e-4, atol=1e-4)

    s = te.create_schedule(B.op)
    s[Apad].compute_inline()
    AA = s.cache_read(Apad, "shared", [B])
    WW = s.cache_read(W, "shared", [B])
    AL = s.cache_read(AA, "local", [B])
    WL = s.cache_read(WW, "local", [B])
    BL = s.cache_write(B, "local")
    tile, num_thread, step, vthread = 2, 4, 4, 2
    block_factor = tile * num_thread
    block_x, block_y, block_z = te.thread_axis("blockIdx.x"), te.thread_axis("blockIdx.y"), te.thread_axis("blockIdx.z")
    thread_x = te.thread_axis((0, num_thread), "threadIdx.x")
    thread_y = te.thread_axis((0, num_thread), "threadIdx.y")
    thread_xz = te.thread_axis((0, vthread), "vthread", name="vx")
    thread_yz = te.thread_axis((0, vthread), "vthread", name="vy")
    hi, wi, fi, ni = s[B].op.axis
    bz = s[B].fuse(hi, wi)
    by, fi = s[B].split(fi, factor=block_factor)
    bx, ni = s[B].split(ni, factor=block_factor)
    s[B].bind(bz, block_z)
    s[B].bind(by, block_y)
    s[B].bind(bx, block_x)
    tyz, fi = s[B].split(fi, nparts=vthread)
    txz, ni = s[B].split(ni, nparts=vthread)
    ty, fi = s[B].split(fi, nparts=num_thread)
    tx, ni = s[B].split(ni, nparts=num_thread)
    s[B].reorder(bz, by, bx, tyz, txz, ty, tx, fi, ni)
    s[B].bind(tyz, thread_yz)
    s[B].bind(txz, thread_xz)
    s[B].bind(ty, thread_y)
    s[B].bind(tx, thread_x)
    s[BL].compute_at(s[B], tx)
    yi, xi, fi, ni = s[BL].op.axis
    ry, rx, rc = s[BL].op.reduce_axis
    rco, rci = s[BL].split(rc, factor=step)
    s[BL].reorder(rco, ry, rx, rci, fi, ni)
    s[AA].compute_at(s[BL], rx)
    s[WW].compute_at(s[BL], rx)
    s[AL].compute_at(s[BL], rci)
    s[WL].compute_at(s[BL], rci)
    yi, xi, ci, ni = s[AA].op.axis
    ty, ci = s[AA].split(ci, nparts=num_thread)
    tx, ni = s[AA].split(ni, nparts=num_thread)
    _, ni = s[AA].split(ni, factor=2)
    s[AA].reorder(ty, tx, yi, xi, ci, ni)
    s[AA].bind(ty, thread_y)
    s[AA].bind(tx, thread_x)
    s[AA].vectorize(ni)
    yi, xi, ci, fi = s[WW].op.axis
    ty, ci = s[WW].split(ci, nparts=num_thread)
    tx, fi = s[WW].split(fi, nparts=num_thread)
    _, fi = s[WW].split(fi, factor=2)
    s[WW].reorder(ty, tx, yi, xi, ci, fi)
    s[WW].bind(ty, thread_y)
    s[WW].bind(tx, thread_x)
    s[WW].vectorize(fi)
    source = tvm.build(s, [A, W, B], "cuda").imported_modules[0].get_source()
    for word in ("__global__", "__shared__ float W_shared[32]", "__syncthreads()", "blockIdx.z", "threadIdx.y"):
        assert word in source
    b = np.zeros(want.shape, "float32")
    run_kernels(source, tmp_path, {"A": a, "W": w, "B": b})
    close(b, want, rtol=1e-4, atol=1e-4)


# ---- tutorial: working with operators using tensor expression


def vector_add():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    return A, B, te.compute(A.shape, lambda i: A[i] + B[i], name="C")


def test_get_started_vector_add(tmp_path):
    A, B, C = vector_add()
    assert isinstance(A, te.Tensor) and C.dtype == "float32"
    tgt = tvm.target.Target(target="llvm", host="llvm")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=64)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    assert "parallel" in str(tvm.lower(s, [A, B, C], simple_mode=True))
    fadd = tvm.build(s, [A, B, C], tgt, name="myadd")
    a, b = f32(1000), f32(1000)
    close(run(fadd, a, b, out=1000), a + b)

    temp = tvm.contrib.utils.tempdir()
    fadd.save(temp.relpath("myadd.o"))
    tvm.contrib.cc.create_shared(temp.relpath("myadd.so"), [temp.relpath("myadd.o")])
    assert "myadd.o" in temp.listdir()
    path = str(tmp_path / "add.so")
    fadd.export_library(path)
    loaded = tvm.runtime.load_module(path)
    close(run(loaded, a, b, out=1000), a + b)
    close(run(loaded["myadd"], a, b, out=1000), a + b)
    result = loaded.time_evaluator("myadd", dev, number=3, repeat=2)(*map(tvm.nd.array, (a, b, a)))
    assert len(result.results) == 2 and result.min <= result.median <= result.max


def test_get_started_cuda_and_opencl_style_binding():
    A, B, C = vector_add()
    s = te.create_schedule(C.op)
    bx, tx = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    fadd = tvm.build(s, [A, B, C], target="cuda", name="myadd")
    source = fadd.imported_modules[0].get_source()
    assert "__global__" in source and "blockIdx.x" in source and "threadIdx.x" in source


def gpu_matmul():
    """The lesson's matrix product for a GPU: tiles bound to blocks and threads."""
    A, B, _, C = gemm_tensors(64, 64, 64)
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    by, ty = s[C].split(y, factor=16)
    bx, tx = s[C].split(x, factor=16)
    s[C].reorder(by, bx, ty, tx)
    for axis, name in zip((by, bx, ty, tx), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")):
        s[C].bind(axis, te.thread_axis(name))
    return s, [A, B, C]


def test_gpu_matmul_source(tmp_path):
    s, args = gpu_matmul()
    module = tvm.build(s, args, target="cuda")
    source = module.imported_modules[0].get_source()
    assert "__global__" in source and "threadIdx.x" in source and "threadIdx.y" in source
    a, b, c = f32(64, 64), f32(64, 64), np.zeros((64, 64), "float32")
    run_kernels(source, tmp_path, {"A": a, "B": b, "C": c})
    close(c, a @ b, rtol=1e-4, atol=1e-5)


def test_gpu_matmul_compiles_under_nvrtc():
    s, args = gpu_matmul()
    module = tvm.build(s, args, target="cuda")
    try:
        ptx = module.imported_modules[0].get_source("ptx")
    except tvm.error.UnsupportedError as e:
        pytest.skip(f"no NVRTC here: {e}")
    assert ".entry" in ptx


# ---- tutorial: blitz course to TensorIR


@I.ir_module
class Blitz:
    @T.prim_func
    def main(a: T.handle, b: T.handle):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        A = T.match_buffer(a, (8,), dtype="float32")
        B = T.match_buffer(b, (8,), dtype="float32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + 1.0


def test_tensor_ir_blitz_course():
    assert isinstance(Blitz, tvm.IRModule) and "T.axis.spatial(8, i)" in Blitz.script()
    mod = tvm.build(Blitz, target="llvm")
    assert isinstance(mod, tvm.runtime.Module)
    a = np.arange(8).astype("float32")
    close(run(mod, a, out=8), a + 1)
    A = te.placeholder((8,), dtype="float32", name="A")
    B = te.compute((8,), lambda *i: A(*i) + 1.0, name="B")
    func = te.create_prim_func([A, B])
    from_te = tvm.IRModule({"main": func})
    tvm.ir.assert_structural_equal(from_te["main"], Blitz["main"])
    sch = tvm.tir.Schedule(Blitz)
    assert isinstance(sch, tvm.tir.Schedule)
    block_b = sch.get_block("B")
    (i,) = sch.get_loops(block_b)
    i_0, i_1, i_2 = sch.split(i, factors=[2, 2, 2])
    sch.reorder(i_0, i_2, i_1)
    close(run(tvm.build(sch.mod), a, out=8), a + 1)
    sch.bind(i_0, "blockIdx.x")
    sch.bind(i_2, "threadIdx.x")
    source = tvm.build(sch.mod, target="cuda").imported_modules[0].get_source()
    assert "blockIdx.x" in source and "threadIdx.x" in source


# ---- tir.Schedule, as TVM's own tests use it


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, [128, 128])
    B = T.match_buffer(b, [128, 128])
    C = T.match_buffer(c, [128, 128])
    for i, j, k in T.grid(128, 128, 128):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


def check_matmul(sch):
    a, b = f32(128, 128), f32(128, 128)
    close(run(tvm.build(sch.mod), a, b, out=(128, 128)), a @ b.T, rtol=1e-3, atol=1e-4)


def test_schedule_rfactor():
    s = tir.Schedule(matmul)
    update = s.get_block("update")
    _, _, k = s.get_loops(update)
    ko, ki = s.split(k, [None, 32])
    rf_block = s.rfactor(ki, 0)
    assert s.get(rf_block).name_hint == "update_rf"
    assert len(s.get(rf_block).reads) == 2
    check_matmul(s)


def test_schedule_decompose_tile_annotate():
    s = tir.Schedule(matmul, debug_mask="all")
    C = s.get_block("update")
    i, j, k = s.get_loops(C)
    i0, i1 = s.split(i, factors=[None, 16])
    j0, j1 = s.split(j, factors=[8, None])
    assert s.get(j1).extent == 16
    s.reorder(i0, j0, k, i1, j1)
    init = s.decompose_reduction(C, k)
    assert s.get(init).name_hint == "update_init"
    s.vectorize(j1)
    s.parallel(i0)
    s.annotate(k, "pragma_auto_unroll_max_step", 16)
    s.unannotate(k, "pragma_auto_unroll_max_step")
    check_matmul(s)


@T.prim_func
def elementwise(a: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (128, 128))
    B = T.alloc_buffer((128, 128))
    C = T.match_buffer(c, (128, 128))
    for i, j in T.grid(128, 128):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(128, 128):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


def check_elementwise(sch):
    a = f32(128, 128)
    close(run(tvm.build(sch.mod), a, out=a.shape), a * 2 + 1)


def test_schedule_compute_at_and_back():
    s = tir.Schedule(elementwise)
    b, c = s.get_block("B"), s.get_block("C")
    s.compute_at(b, s.get_loops(c)[0])
    check_elementwise(s)
    assert [s.get(x).name_hint for x in s.get_consumers(b)] == ["C"]
    s = tir.Schedule(elementwise)
    s.reverse_compute_at(s.get_block("C"), s.get_loops(s.get_block("B"))[0])
    check_elementwise(s)
    s = tir.Schedule(elementwise)
    s.compute_inline("B")
    check_elementwise(s)
    s = tir.Schedule(elementwise)
    s.reverse_compute_inline(s.get_block("C"))
    check_elementwise(s)


def test_schedule_caches_layouts_scopes():
    s = tir.Schedule(elementwise)
    c = s.get_block("C")
    cached = s.cache_read(c, 0, "local")
    s.compute_at(cached, s.get_loops(c)[1])
    written = s.cache_write(c, 0, "global")
    s.reverse_compute_at(written, s.get_loops(c)[0])
    s.transform_layout(s.get_block("B"), buffer=("write", 0), index_map=lambda i, j: (j // 16, i, j % 16))
    s.storage_align(s.get_block("B"), 0, axis=-2, factor=32, offset=1)
    check_elementwise(s)
    s = tir.Schedule(elementwise)
    s.transform_layout("B", "B", lambda i, j: [j, i])
    s.transform_block_layout("C", lambda i, j: (i * 128 + j,))
    check_elementwise(s)


def test_schedule_blockize_and_trace():
    s = tir.Schedule(matmul)
    i, j, k = s.get_loops(s.get_block("update"))
    i0, i1 = s.split(i, [None, 16])
    j0, j1 = s.split(j, [None, 16])
    k0, k1 = s.split(k, [None, 16])
    s.reorder(i0, j0, k0, i1, j1, k1)
    outer = s.blockize(i1)
    assert s.get(outer).name_hint == "update_o"
    check_matmul(s)
    text = str(s.trace)
    assert (
        "sch.blockize(target=l5, preserve_unit_iters=True)" in text
        and 'sch.get_block(name="update", func_name="main")' in text
    )
    again = tir.Schedule(matmul)
    s.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, s.mod)


def test_schedule_sampling_is_replayed():
    s = tir.Schedule(matmul, seed=42)
    i, j, k = s.get_loops(s.get_block("update"))
    factors = s.sample_perfect_tile(i, n=4, max_innermost_factor=16)
    assert np.prod([s.get(f) for f in factors]) == 128
    s.split(i, factors)
    choice = s.sample_categorical([1, 2, 4], [0.25, 0.5, 0.25])
    assert s.get(choice) in (1, 2, 4)
    s.annotate(k, "pragma_auto_unroll_max_step", choice)
    again = tir.Schedule(matmul)
    s.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, s.mod)
    check_matmul(again)


@T.prim_func
def mma_desc(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), align=64, offset_factor=1)
    B = T.match_buffer(b, (16, 16), align=64, offset_factor=1)
    C = T.match_buffer(c, (16, 16), align=64, offset_factor=1)
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j, k in T.grid(16, 16, 16):
            with T.block("update"):
                vii, vjj, vkk = T.axis.remap("SSR", [i, j, k])
                C[vii, vjj] = C[vii, vjj] + A[vii, vkk] * B[vjj, vkk]


@T.prim_func
def mma_intrin(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), align=64, offset_factor=1)
    B = T.match_buffer(b, (16, 16), align=64, offset_factor=1)
    C = T.match_buffer(c, (16, 16), align=64, offset_factor=1)
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, k, j in T.grid(16, 16, 16):
            C[i, j] += A[i, k] * B[j, k]


def test_schedule_tensorize_with_registered_intrinsic():
    tir.TensorIntrin.register("tvm_programs_mma", mma_desc, mma_intrin, override=True)
    assert tir.TensorIntrin.get("tvm_programs_mma") is not None
    s = tir.Schedule(matmul)
    update = s.get_block("update")
    i, j, k = s.get_loops(update)
    io, ii = s.split(i, factors=[None, 16])
    jo, ji = s.split(j, factors=[None, 16])
    ko, ki = s.split(k, factors=[None, 16])
    s.reorder(io, jo, ko, ii, ji, ki)
    s.decompose_reduction(update, ko)
    s.tensorize(ii, "tvm_programs_mma")
    check_matmul(s)


# ---- ir_builder


def test_ir_builder_function():
    ib = tvm.tir.ir_builder.create()
    n = te.size_var("n")
    A = tvm.tir.decl_buffer((n,), "float32", name="A")
    Ap = ib.buffer_ptr(A)
    with ib.for_range(0, n, name="i", kind="serial") as i:
        with ib.if_scope(tvm.tir.likely(i % 2 == 0)):
            Ap[i] = Ap[i] + 1.0
        with ib.else_scope():
            Ap[i] = 0.0
    f = tvm.tir.PrimFunc([A], ib.get()).with_attr("global_symbol", "f")
    a = tvm.nd.array(np.arange(7, dtype="float32"))
    tvm.build(f, target="llvm")(a)
    assert a.numpy().tolist() == [1, 0, 3, 0, 5, 0, 7]


def test_ir_builder_collatz():
    """While loops, scalars in memory, integer arithmetic."""

    def collatz(ins, outs):
        ib = tvm.tir.ir_builder.create()
        src, dst = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 10, name="i") as i:
            n = ib.allocate("int32", (1,), name="n", scope="local")
            steps = ib.allocate("int32", (1,), name="steps", scope="local")
            n[0] = src[i]
            steps[0] = tvm.tir.const(0, "int32")
            with ib.while_loop(n[0] > 1):
                n[0] = tvm.tir.if_then_else(tvm.tir.truncmod(n[0], 2) == 0, tvm.tir.truncdiv(n[0], 2), n[0] * 3 + 1)
                steps[0] += 1
            dst[i] = steps[0]
        return ib.get()

    A = te.placeholder((10,), "int32", name="A")
    B = te.extern((10,), [A], collatz, name="B", dtype="int32")
    got = run(tvm.build(te.create_schedule(B.op), [A, B]), np.arange(1, 11, dtype="int32"), out=10, dtype="int32")
    assert got.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19, 6]


def test_ir_builder_gpu_kernel():
    n = 1024
    A = te.placeholder((n,), name="A")

    def kernel(ins, outs):
        ib = tvm.tir.ir_builder.create()
        tx, bx = te.thread_axis("threadIdx.x"), te.thread_axis("blockIdx.x")
        ib.scope_attr(bx, "thread_extent", n // 64)
        ib.scope_attr(tx, "thread_extent", 64)
        idx = bx.var * 64 + tx.var
        src, dst = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        dst[idx] = src[idx] * 2.0
        return ib.get()

    B = te.extern((n,), [A], kernel, name="B", dtype="float32")
    source = tvm.build(te.create_schedule(B.op), [A, B], "cuda").imported_modules[0].get_source()
    assert "__global__" in source and "threadIdx.x" in source


# ---- smaller idioms


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_dtypes(dtype, target):
    n = te.var("n")
    A = te.placeholder((n,), dtype, name="A")
    B = te.compute((n,), lambda i: A[i] * tvm.tir.const(3, dtype) + A[n - 1 - i], name="B")
    a = rand.integers(0, 20, 19).astype(dtype)
    got = run(tvm.build(te.create_schedule(B.op), [A, B], target), a, out=19, dtype=dtype)
    np.testing.assert_array_equal(got, a * np.asarray(3, dtype) + a[::-1])


def test_bool_and_casts():
    A = te.placeholder((9,), name="A")
    B = te.compute((9,), lambda i: tir.any(A[i] > 0.5, A[i] < -0.5), name="B")
    C = te.compute((9,), lambda i: B[i].astype("int32") + te.floor(A[i]).astype("int32"), name="C")
    a = f32(9)
    want = (a > 0.5) | (a < -0.5)
    assert B.dtype == "bool"
    np.testing.assert_array_equal(run(tvm.build(te.create_schedule(B.op), [A, B]), a, out=9, dtype="bool"), want)
    got = run(tvm.build(te.create_schedule(C.op), [A, C]), a, out=9, dtype="int32")
    np.testing.assert_array_equal(got, want.astype("int32") + np.floor(a).astype("int32"))


def test_select_if_then_else_all_any_max():
    A = te.placeholder((6, 6), name="A")
    tri = te.compute((6, 6), lambda i, j: tvm.tir.Select(i >= j, A[i, j], tvm.tir.const(0, "float32")), name="tri")
    pad = te.compute(
        (8, 8), lambda i, j: te.if_then_else(te.all(i >= 1, i < 7, j >= 1, j < 7), A[i - 1, j - 1], 0.0), name="pad"
    )
    relu = te.compute((6, 6), lambda i, j: te.max(A[i, j], 0.0), name="relu")
    clip = te.compute((6, 6), lambda *i: tvm.te.min(tvm.te.max(A(*i), -0.5), 0.5), name="clip")
    a = f32(6, 6)
    for out, want in ((tri, np.tril(a)), (pad, np.pad(a, 1)), (relu, np.maximum(a, 0)), (clip, np.clip(a, -0.5, 0.5))):
        close(run(tvm.build(te.create_schedule(out.op), [A, out]), a, out=want.shape), want)


def test_softmax():
    A = te.placeholder((5, 12), name="A")
    k1, k2 = te.reduce_axis((0, 12), name="k1"), te.reduce_axis((0, 12), name="k2")
    peak = te.compute((5,), lambda i: te.max(A[i, k1], axis=k1), name="peak")
    e = te.compute((5, 12), lambda i, j: te.exp(A[i, j] - peak[i]), name="e")
    total = te.compute((5,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    out = te.compute((5, 12), lambda i, j: e[i, j] / total[i], name="out")
    s = te.create_schedule(out.op)
    for t in (e, total, peak):
        s[t].compute_at(s[out], out.op.axis[0])
    a = f32(5, 12)
    x = np.exp(a - a.max(1, keepdims=True))
    close(run(tvm.build(s, [A, out]), a, out=a.shape), x / x.sum(1, keepdims=True))


def test_argmin_argmax_builtin():
    A = te.placeholder((4, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    idx, val = te.compute((4,), lambda i: tvm.tir.argmax((k, A[i, k]), axis=k), name="arg")
    a = f32(4, 9)
    ni, nv = tvm.nd.empty((4,), "int32"), tvm.nd.empty((4,))
    tvm.build(te.create_schedule(idx.op), [A, idx, val])(tvm.nd.array(a), ni, nv)
    assert (ni.numpy() == a.argmax(1)).all()
    close(nv.numpy(), a.max(1))


def test_scalar_parameters_and_strided_buffers():
    n, alpha = te.var("n"), te.var("alpha", dtype="float32")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * alpha, name="B")
    a = f32(10)
    b = tvm.nd.empty((10,))
    tvm.build(te.create_schedule(B.op), [alpha, A, B])(2.5, tvm.nd.array(a), b)
    close(b.numpy(), 2.5 * a)
    stride = te.var("stride")
    Ab = tvm.tir.decl_buffer((n,), "float32", name="Ab", strides=[stride])
    f = tvm.build(te.create_schedule(B.op), [alpha, A, B], binds={A: Ab})
    f(2.0, tvm.nd.array(a), b)
    close(b.numpy(), 2 * a)


def test_ndarray_and_dlpack():
    x = f32(3, 4)
    nd = tvm.nd.array(x, device=tvm.cpu(0))
    assert nd.shape == (3, 4) and nd.dtype == "float32" and nd.device == tvm.cpu(0)
    close(nd.asnumpy(), x)
    other = tvm.nd.empty((3, 4), "float32", tvm.cpu())
    nd.copyto(other)
    close(other.numpy(), x)
    back = np.from_dlpack(tvm.nd.from_dlpack(x)) if hasattr(np, "from_dlpack") else x
    close(back, x)
    view = np.from_dlpack(nd)
    close(view, x)
    nd[:] = x + 1
    close(nd.numpy(), x + 1)


def test_module_of_several_functions():
    @I.ir_module
    class Two:
        @T.prim_func
        def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in T.serial(8):
                B[i] = A[i] * T.float32(2)

        @T.prim_func
        def negate(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in T.parallel(0, 8):
                B[i] = -A[i]

    assert sorted(g.name_hint for g in Two.get_global_vars()) == ["double", "negate"]
    assert {g.name_hint for g in Two.functions} == {"double", "negate"}
    lib = tvm.build(Two, target="llvm")
    a = f32(8)
    close(run(lib["double"], a, out=8), 2 * a)
    close(run(lib["negate"], a, out=8), -a)
    Two["again"] = Two["double"].with_attr("global_symbol", "again")
    assert len(Two.functions) == 3
    reparsed = tvm.script.from_source(Two.script())
    tvm.ir.assert_structural_equal(reparsed, Two)
    assert not tvm.ir.structural_equal(Two["double"], Two["negate"])
    assert tvm.ir.structural_hash(reparsed["double"]) == tvm.ir.structural_hash(Two["double"])


def test_script_features():
    n, factor = 16, 4

    @T.prim_func
    def f(a: T.handle, b: T.handle, m: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for io in T.parallel(n // factor):
            for ii in T.vectorized(factor):
                with T.block("B"):
                    vi = T.axis.spatial(n, io * factor + ii)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = T.if_then_else(vi < m, T.exp(A[vi]), T.max(A[vi], T.float32(0)))

    a = f32(16)
    b = tvm.nd.empty((16,))
    tvm.build(f)(tvm.nd.array(a), b, 5)
    close(b.numpy(), np.where(np.arange(16) < 5, np.exp(a), np.maximum(a, 0)))
    tvm.ir.assert_structural_equal(tvm.script.from_source(f.script()), f)


def test_symbolic_shape_prim_func():
    @T.prim_func
    def add(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    f = tvm.build(add)
    for n in (1, 3, 8):
        a = f32(n, 4)
        close(run(f, a, out=a.shape), a + 1)
    bound = add.specialize({add.params[0]: tvm.tir.decl_buffer((6, 4), "float32")})
    a = f32(6, 4)
    close(run(tvm.build(bound), a, out=a.shape), a + 1)


def test_lower_then_build():
    A, B, C = vector_add()
    s = te.create_schedule(C.op)
    mod = tvm.lower(s, [A, B, C], name="add")
    assert isinstance(mod, tvm.IRModule)
    a, b = f32(12), f32(12)
    lib = tvm.build(mod, target="llvm")
    close(run(lib["add"], a, b, out=12), a + b)
    assert ("define" if lib.type_key == "llvm" else "int32_t add(") in lib.get_source()


def test_build_accepts_what_tvm_accepts():
    A, B, C = vector_add()
    func = te.create_prim_func([A, B, C])
    a, b = f32(12), f32(12)
    for what in (func, tvm.IRModule({"main": func}), tvm.IRModule.from_expr(func)):
        for target in ("llvm", tvm.target.Target("llvm"), None):
            close(run(tvm.build(what, target=target), a, b, out=12), a + b)
    with tvm.target.Target("llvm"):
        close(run(tvm.build(func), a, b, out=12), a + b)


def test_tensors_and_operations_tell_about_themselves():
    A = te.placeholder((4, 5), name="A")
    with te.tag_scope(tag="mine"):
        B = te.compute((4, 5), lambda i, j: A[i][j] + 1, name="B", attrs={"x": 3})
    assert B.op.name == "B" and B.op.tag == "mine" and B.op.attrs["x"] == 3
    assert B.op.input_tensors[0] == A and int(B.op.axis[0].dom.extent) == 4
    assert B.op.num_outputs == 1 and B.op.output(0) == B and B.ndim == 2
    assert isinstance(B.op, te.ComputeOp) and isinstance(A.op, te.PlaceholderOp)
    assert tvm.DataType("float32x4").lanes == 4 and tvm.DataType("int8").bits == 8


def test_visiting_a_function():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")
    f = te.create_prim_func([A, B])
    kinds = []
    tvm.tir.stmt_functor.post_order_visit(f.body, lambda n: kinds.append(type(n).__name__))
    assert kinds.index("BufferLoad") < kinds.index("Add") < kinds.index("BufferStore") < kinds.index("For")
    assert f.body.block.name_hint == "root" and f.buffer_map[f.params[0]].name == "A"
    outer = []
    tvm.tir.stmt_functor.pre_order_visit(
        f.body, lambda n: outer.append(type(n).__name__) or not isinstance(n, tvm.tir.For)
    )
    assert outer == ["Block", "For"]


def test_extern_of_two_outputs():
    A = te.placeholder((8,), name="A")

    def body(ins, outs):
        ib = tir.ir_builder.create()
        a, o, p = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        with ib.for_range(0, 8, "i") as i:
            o[i] = a[i] + 1.0
            p[i] = a[i] * 2.0
        return ib.get()

    X, Y = te.extern([(8,), (8,)], [A], body, dtype=["float32", "float32"], name="two")
    a = f32(8)
    x, y = tvm.nd.empty((8,)), tvm.nd.empty((8,))
    tvm.build(te.create_schedule(X.op), [A, X, Y])(tvm.nd.array(a), x, y)
    close(x.numpy(), a + 1)
    close(y.numpy(), a * 2)


def test_script_statements():
    @T.prim_func
    def f(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32"), n: T.int32) -> None:
        T.func_attr({"global_symbol": "f"})
        B = T.alloc_buffer((16, 16), scope="local")
        for i in T.serial(0, 16):
            for j in T.unroll(16):
                with T.block("B"):
                    vi = T.axis.S(16, i)
                    vj = T.axis.S(16, j)
                    T.block_attr({"k": 1})
                    B[vi, vj] = T.Select(vi < vj, A[vi, vj], T.float32(0)) + T.Cast("float32", vi)
        for i0, j0, i1 in T.grid(4, 16, 5):
            with T.block("C"):
                T.where(i0 * 5 + i1 < 16)
                vi = T.axis.spatial(16, i0 * 5 + i1)
                vj = T.axis.spatial(16, j0)
                if vi % 2 == 0:
                    C[vi, vj] = B[vi, vj]
                else:
                    x: T.float32 = B[vi, vj] * T.float32(2)
                    C[vi, vj] = x + T.min(x, T.float32(1)) + T.cast(n, "float32")

    a = f32(16, 16)
    c = tvm.nd.empty((16, 16))
    tvm.build(f)(tvm.nd.array(a), c, 3)
    b = np.triu(a, 1) + np.arange(16)[:, None]
    close(c.numpy(), np.where((np.arange(16) % 2 == 0)[:, None], b, 2 * b + np.minimum(2 * b, 1) + 3))
    tvm.ir.assert_structural_equal(tvm.script.from_source(f.script()), f)


# fmt: off
def test_script_memory_by_pointer_and_one_line_bodies():
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (16,))
        B = T.match_buffer(b, (16,))
        with T.block("root"):
            T.reads(); T.writes()
            tmp_ptr = T.allocate([4], "float32", "global")
            tmp = T.Buffer((4,), data=tmp_ptr)
            for i in range(4):
                for j in T.vectorized(4): tmp[j] = A[i * 4 + j] * T.float32(3)
                for j in range(4): B[i * 4 + j] = tmp[j]

    @T.prim_func
    def count(A: T.Buffer((16,), "int32")):
        for i in range(2, 10): A[i] = i
        for i in T.serial(10, 16): A[i] = -i
        k = T.decl_buffer((1,), "int32")
        k[0] = 0
        while k[0] < 2:
            A[k[0]] = k[0] + 100; k[0] = k[0] + 1

    a = f32(16)
    close(run(tvm.build(f), a, out=16), a * 3)
    n = tvm.nd.empty((16,), "int32")
    tvm.build(count)(n)
    assert n.numpy().tolist() == [100, 101, *range(2, 10), *range(-10, -16, -1)]
# fmt: on


def test_gather_masks_and_reductions_inside():
    A = te.placeholder((10, 4), name="A")
    idx = te.placeholder((6,), "int64", name="idx")
    G = te.compute((6, 4), lambda i, j: A[idx[i], j], name="G")
    a, ix = f32(10, 4), np.array([3, 1, 9, 0, 0, 5], "int64")
    close(run(tvm.build(te.create_schedule(G.op), [A, idx, G]), a, ix, out=(6, 4)), a[ix])
    k = te.reduce_axis((0, 4), "k")
    lower = te.compute((10,), lambda i: te.sum(A[i, k], axis=k, where=k < i + 1), name="lower")
    mean = te.compute((10,), lambda i: te.sum(A[i, k], axis=k) / 4 + 1, name="mean")
    close(run(tvm.build(te.create_schedule(lower.op), [A, lower]), a, out=10), np.tril(a).sum(1))
    close(run(tvm.build(te.create_schedule(mean.op), [A, mean]), a, out=10), a.mean(1) + 1)
    with pytest.raises(tvm.TVMError, match="if_then_else"):
        te.compute((4,), lambda i: A[i, 0] if A[i, 0] > 0 else 0.0)


def test_convolution_fused_with_its_padding_and_activation(target):
    N, CI, H, W, CO, K = 1, 4, 8, 8, 8, 3
    D = te.placeholder((N, CI, H, W), name="D")
    Wt = te.placeholder((CO, CI, K, K), name="W")
    P = te.compute(
        (N, CI, H + 2, W + 2),
        lambda n, c, h, w: te.if_then_else(tir.all(h >= 1, h < H + 1, w >= 1, w < W + 1), D[n, c, h - 1, w - 1], 0.0),
        name="P",
    )
    rc, ry, rx = te.reduce_axis((0, CI)), te.reduce_axis((0, K)), te.reduce_axis((0, K))
    C = te.compute(
        (N, CO, H, W),
        lambda n, f, y, x: te.sum(P[n, rc, y + ry, x + rx] * Wt[f, rc, ry, rx], axis=[rc, ry, rx]),
        name="C",
    )
    R = te.compute(C.shape, lambda *i: te.max(C(*i), tir.const(0, "float32")), name="R")
    s = te.create_schedule(R.op)
    n, f, y, x = s[R].op.axis
    fo, fi = s[R].split(f, 4)
    s[R].reorder(n, fo, y, x, fi)
    s[R].vectorize(fi)
    s[P].compute_at(s[R], fo)
    s[C].compute_at(s[R], y)
    s[R].parallel(fo)
    d, w = f32(N, CI, H, W), f32(CO, CI, K, K)
    p = np.pad(d, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = sum(
        np.einsum("ncyx,fc->nfyx", p[:, :, a : a + 8, b : b + 8], w[:, :, a, b]) for a in range(3) for b in range(3)
    )
    close(run(tvm.build(s, [D, Wt, R], target), d, w, out=want.shape), np.maximum(want, 0), rtol=1e-4, atol=1e-5)


def test_analyzer():
    ana = tvm.arith.Analyzer()
    x, y = te.var("x"), te.var("y")
    ana.bind(x, tvm.ir.Range(0, 10))
    assert str(ana.simplify(x // 16)) == "0" and ana.can_prove(x < 10)
    bound = ana.const_int_bound(x * 2)
    assert (bound.min_value, bound.max_value) == (0, 18)
    assert tvm.ir.structural_equal(ana.simplify(x + y - x), y)


def test_specialize():
    @T.prim_func
    def f(a: T.handle, n: T.int32, b: T.handle):
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + T.float32(1)

    g = f.specialize({f.params[1]: 16})
    assert len(g.params) == 2 and int(g.buffer_map[g.params[0]].shape[0]) == 16
    sch = tir.Schedule(g)
    sch.vectorize(sch.get_loops(sch.get_block("B"))[0])
    a = f32(16)
    close(run(tvm.build(sch.mod), a, out=16), a + 1)
    with pytest.raises(tvm.TVMError, match="dimensions"):
        f.specialize({f.params[0]: tir.decl_buffer((2, 2), "float32")})
    with pytest.raises(tvm.TVMError, match="would be both 16 and 8"):
        f.specialize({f.params[0]: tir.decl_buffer((16,), "float32"), f.params[2]: tir.decl_buffer((8,), "float32")})
