"""The listings of the tensor-expression lesson, in the lesson's order, with only the
import lines changed; results are checked against numpy.

The printed loop nests are checked by their loops, which is what each listing is
about; the exact text of the compact form has cases of its own beside the printer."""

import re

import numpy as np
import pytest

import lathe as tvm
from lathe import te


def loops(text):
    """The loops of the compact form, outermost first: (name, extent) pairs."""
    return [(name, int(extent)) for name, extent in re.findall(r"for \((\w+), 0, (\d+)\)", text)]


def body(text):
    """The lines that are not loops or braces, without their indentation."""
    return [line.strip() for line in text.splitlines() if line.strip() not in ("", "}") and "for (" not in line]


def matmul_inputs(M, K, N, seed=0):
    rng = np.random.default_rng(seed)
    a_np = rng.standard_normal((M, K)).astype("float32")
    b_np = rng.standard_normal((K, N)).astype("float32")
    return a_np, b_np, np.zeros((M, N), dtype="float32")


def check_matmul(func, M, K, N):
    dev = tvm.cpu(0)
    a_np, b_np, c_np = matmul_inputs(M, K, N)
    a_tvm, b_tvm, c_tvm = tvm.nd.array(a_np, dev), tvm.nd.array(b_np, dev), tvm.nd.array(c_np, dev)
    func(a_tvm, b_tvm, c_tvm)
    # float64 products: what numpy's own float32 product is compared with too
    np.testing.assert_allclose(c_tvm.numpy(), a_np.astype("float64") @ b_np.astype("float64"), rtol=1e-4, atol=1e-4)
    return a_tvm, b_tvm, c_tvm


def matmul(M, K, N):
    A = te.placeholder((M, K), name="A", dtype="float32")
    B = te.placeholder((K, N), name="B", dtype="float32")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def test_01_three_building_blocks():
    M = N = K = 16
    A = te.placeholder((M, N), name="A", dtype="float32")
    B = te.compute((M, N), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    assert [int(n) for n in C.shape] == [M, N] and C.dtype == "float32"
    assert [a.var.name for a in C.op.axis] == ["i", "j"] and C.op.reduce_axis[0].var.name == "k"
    s = te.create_schedule(C.op)
    func = tvm.build(s, [A, C], target="llvm -mcpu=native")
    a = np.random.default_rng(1).standard_normal((M, N)).astype("float32")
    c = np.zeros((M, N), dtype="float32")
    func(a, c)
    np.testing.assert_allclose(c, a @ (a * 2), rtol=1e-4, atol=1e-5)


def test_02_linear_layer_with_relu():
    M, N = 32, 48
    W = te.placeholder((M, N), name="W")
    X = te.placeholder((N,), name="X")
    b = te.placeholder((M,), name="b")
    j = te.reduce_axis((0, N), name="j")
    linear = te.compute((M,), lambda i: te.sum(W[i, j] * X[j], axis=j) + b[i])
    Y = te.compute((M,), lambda i: te.max(linear[i], 0.0))
    s = te.create_schedule(Y.op)
    func = tvm.build(s, [W, X, b, Y], target="llvm -mcpu=native")
    rng = np.random.default_rng(2)
    w, x, bias = (rng.standard_normal(n).astype("float32") for n in ((M, N), (N,), (M,)))
    y = np.empty(M, dtype="float32")
    func(w, x, bias, y)
    np.testing.assert_allclose(y, np.maximum(w @ x + bias, 0), rtol=1e-4, atol=1e-5)
    assert (y == 0).any() and (y > 0).any()


def test_03_naive_matmul_prints_its_loops():
    A, B, C = matmul(1024, 1024, 1024)
    s = te.create_schedule(C.op)
    text = str(tvm.lower(s, [A, B, C], simple_mode=True))
    assert loops(text) == [("i", 1024), ("j", 1024), ("k", 1024)]
    assert body(text) == [
        "C[i*1024 + j] = 0f",
        "C[i*1024 + j] = C[i*1024 + j] + A[i*1024 + k] * B[k*1024 + j]",
    ]


def test_04_build_run_verify_benchmark():
    M = K = N = 256
    A, B, C = matmul(M, K, N)
    s = te.create_schedule(C.op)
    target = tvm.target.Target("llvm -mcpu=native")
    func = tvm.build(s, [A, B, C], target=target, name="matmul_naive")
    assert func.entry_name == "matmul_naive"
    dev = tvm.cpu(0)
    arrays = check_matmul(func, M, K, N)
    evaluator = func.time_evaluator(func.entry_name, dev, number=1, repeat=3)
    result = evaluator(*arrays)
    assert len(result.results) == 3 and 0 < result.min <= result.mean <= result.max < 10


def test_05_padded_convolution():
    batch, in_channel, in_h, in_w = 1, 3, 32, 32
    out_channel, kernel_h, kernel_w = 8, 3, 3
    pad_h, pad_w = 1, 1
    out_h = in_h - kernel_h + 2 * pad_h + 1
    out_w = in_w - kernel_w + 2 * pad_w + 1
    Data = te.placeholder((batch, in_channel, in_h, in_w), name="Data")
    Weight = te.placeholder((out_channel, in_channel, kernel_h, kernel_w), name="Weight")
    PaddedData = te.compute(
        (batch, in_channel, in_h + 2 * pad_h, in_w + 2 * pad_w),
        lambda n, c, h, w: tvm.tir.if_then_else(
            tvm.tir.all(h >= pad_h, h < in_h + pad_h, w >= pad_w, w < in_w + pad_w),
            Data[n, c, h - pad_h, w - pad_w],
            tvm.tir.const(0.0, "float32"),
        ),
        name="PaddedData",
    )
    rc = te.reduce_axis((0, in_channel), name="rc")
    rh = te.reduce_axis((0, kernel_h), name="rh")
    rw = te.reduce_axis((0, kernel_w), name="rw")
    Conv = te.compute(
        (batch, out_channel, out_h, out_w),
        lambda n, co, h, w: te.sum(PaddedData[n, rc, h + rh, w + rw] * Weight[co, rc, rh, rw], axis=[rc, rh, rw]),
        name="Conv",
    )
    s = te.create_schedule(Conv.op)
    func = tvm.build(s, [Data, Weight, Conv], target="llvm -mcpu=native")
    rng = np.random.default_rng(5)
    data = rng.standard_normal((batch, in_channel, in_h, in_w)).astype("float32")
    weight = rng.standard_normal((out_channel, in_channel, kernel_h, kernel_w)).astype("float32")
    out = np.zeros((batch, out_channel, out_h, out_w), dtype="float32")
    func(data, weight, out)
    padded = np.pad(data, ((0, 0), (0, 0), (pad_h, pad_h), (pad_w, pad_w)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel_h, kernel_w), axis=(2, 3))
    np.testing.assert_allclose(out, np.einsum("nchwij,ocij->nohw", windows, weight), rtol=1e-4, atol=1e-4)


def test_06_split():
    A, B, C = matmul(1024, 1024, 1024)
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    k = C.op.reduce_axis[0]
    assert k.var.name == "k"
    io, ii = s[C].split(i, factor=32)
    text = str(tvm.lower(s, [A, B, C], simple_mode=True))
    assert [n for _, n in loops(text)] == [32, 32, 1024, 1024]
    assert "if" not in text


def test_07_split_and_reorder():
    M = K = N = 128
    A, B, C = matmul(M, K, N)
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    k = C.op.reduce_axis[0]
    io, ii = s[C].split(i, factor=32)
    jo, ji = s[C].split(j, factor=32)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ii, ji, ki)
    leaves = [a.var.name for a in s[C].leaf_iter_vars]
    assert leaves == [x.var.name for x in (io, jo, ko, ii, ji, ki)]
    text = str(tvm.lower(s, [A, B, C], simple_mode=True))
    assert [n for _, n in loops(text)][-4:] == [32, 32, 32, 4]  # ko, ii, ji, ki: the init has loops of its own before
    check_matmul(tvm.build(s, [A, B, C], target="llvm -mcpu=native"), M, K, N)


def test_08_tile():
    M = K = N = 128
    A, B, C = matmul(M, K, N)
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, x_factor=32, y_factor=32)
    text = str(tvm.lower(s, [A, B, C], simple_mode=True))
    assert [n for _, n in loops(text)] == [4, 4, 32, 32, 128]
    check_matmul(tvm.build(s, [A, B, C], target="llvm -mcpu=native"), M, K, N)


def test_09_vectorize_and_parallel():
    M = K = N = 128
    A, B, C = matmul(M, K, N)
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    k = C.op.reduce_axis[0]
    io, ii = s[C].split(i, factor=32)
    jo, ji = s[C].split(j, factor=8)
    s[C].reorder(io, jo, ii, ji)
    s[C].vectorize(ji)
    text = str(tvm.lower(s, [A, B, C], simple_mode=True))
    assert "ramp(" in text
    s[C].parallel(io)
    assert "parallel" in str(tvm.lower(s, [A, B, C], simple_mode=True))
    check_matmul(tvm.build(s, [A, B, C], target="llvm -mcpu=native"), M, K, N)
    assert k.var.name == "k" and jo.var.name != ji.var.name


def optimized_schedule(C):
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    k_ax = C.op.reduce_axis[0]
    io, ii = s[C].split(i, factor=32)
    jo, ji = s[C].split(j, factor=32)
    ko, ki = s[C].split(k_ax, factor=4)
    s[C].reorder(io, jo, ko, ii, ji, ki)
    jii, jiv = s[C].split(ji, factor=8)
    s[C].vectorize(jiv)
    s[C].parallel(io)
    s[C].unroll(ki)
    return s


def test_10_the_whole_optimized_schedule():
    M, K, N = 512, 512, 512
    A, B, C = matmul(M, K, N)
    s = optimized_schedule(C)
    target = tvm.target.Target("llvm -mcpu=native")
    func = tvm.build(s, [A, B, C], target=target, name="matmul_optimized")
    dev = tvm.cpu(0)
    a, b, c = check_matmul(func, M, K, N)
    evaluator = func.time_evaluator(func.entry_name, dev, number=1, repeat=3)
    result = evaluator(a, b, c)
    gflops = 2.0 * M * K * N / 1e9 / result.mean
    assert gflops > 0
    np.testing.assert_allclose(
        c.numpy(), a.numpy().astype("float64") @ b.numpy().astype("float64"), rtol=1e-4, atol=1e-4
    )


def test_11_lowering_shows_the_schedule():
    A, B, C = matmul(256, 256, 256)
    s = optimized_schedule(C)
    tir_mod = tvm.lower(s, [A, B, C], simple_mode=True)
    text = str(tir_mod)
    assert "parallel" in text and "ramp(" in text
    assert isinstance(tir_mod, tvm.IRModule)


def test_12_assembly_of_a_cpu_target():
    A, B, C = matmul(64, 64, 64)
    s = optimized_schedule(C)
    func = tvm.build(s, [A, B, C], target="llvm -mcpu=native")
    if func.type_key != "llvm":
        pytest.skip("this Lathe was built without LLVM")
    asm = func.get_source("asm")
    assert re.search(r"^default_function:", asm, re.MULTILINE) and "ret" in asm


def test_13_cuda_source_of_a_gpu_target():
    M = K = N = 64
    A, B, C = matmul(M, K, N)
    s_gpu = te.create_schedule(C.op)
    i, j = C.op.axis
    io, ii = s_gpu[C].split(i, factor=16)
    jo, ji = s_gpu[C].split(j, factor=16)
    s_gpu[C].reorder(io, jo, ii, ji)
    s_gpu[C].bind(io, te.thread_axis("blockIdx.y"))
    s_gpu[C].bind(jo, te.thread_axis("blockIdx.x"))
    s_gpu[C].bind(ii, te.thread_axis("threadIdx.y"))
    s_gpu[C].bind(ji, te.thread_axis("threadIdx.x"))
    func_gpu = tvm.build(s_gpu, [A, B, C], target="cuda")
    source = func_gpu.imported_modules[0].get_source()
    assert "__global__" in source
    for axis in ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y"):
        assert axis in source


def test_14_exercise_fused_add_relu():
    N = 1024 * 1024
    A = te.placeholder((N,), name="A")
    B = te.placeholder((N,), name="B")
    C = te.compute((N,), lambda i: te.max(A[i] + B[i], tvm.tir.const(0.0, "float32")), name="C")
    s = te.create_schedule(C.op)
    io, ii = s[C].split(C.op.axis[0], factor=8)
    s[C].vectorize(ii)
    s[C].parallel(io)
    func = tvm.build(s, [A, B, C], target="llvm -mcpu=native")
    dev = tvm.cpu(0)
    a = np.random.randn(N).astype("float32")
    b = np.random.randn(N).astype("float32")
    expected = np.maximum(a + b, 0.0)
    a_tvm = tvm.nd.array(a, dev)
    b_tvm = tvm.nd.array(b, dev)
    c_tvm = tvm.nd.array(np.zeros(N, dtype="float32"), dev)
    func(a_tvm, b_tvm, c_tvm)
    np.testing.assert_allclose(c_tvm.numpy(), expected, rtol=1e-5)


def test_15_exercise_schedule_comparison():
    M, K, N = 256, 256, 256
    A, B, C = matmul(M, K, N)
    target = tvm.target.Target("llvm -mcpu=native")
    dev = tvm.cpu(0)
    configs = [
        ("Naive", lambda s, C: None),
        ("Tile 16", lambda s, C: s[C].tile(*C.op.axis, 16, 16)),
        ("Tile 32", lambda s, C: s[C].tile(*C.op.axis, 32, 32)),
        ("Tile 64", lambda s, C: s[C].tile(*C.op.axis, 64, 64)),
        ("Tile 32 + vec", lambda s, C: (s[C].tile(*C.op.axis, 32, 32), s[C].vectorize(s[C].op.axis[-1]))),
    ]
    refused = []
    for name, apply_schedule in configs:
        s = te.create_schedule(C.op)
        try:
            apply_schedule(s, C)
        except Exception as e:  # the lesson's own clause
            refused.append((name, e))
        func = tvm.build(s, [A, B, C], target=target)
        arrays = check_matmul(func, M, K, N)
        ev = func.time_evaluator(func.entry_name, dev, number=1, repeat=3)
        assert ev(*arrays).mean > 0
    # "won't work directly after tile": the axis is not a loop any more
    assert [name for name, _ in refused] == ["Tile 32 + vec"]
    assert isinstance(refused[0][1], tvm.error.ScheduleError)


def test_16_exercise_reading_loop_nests():
    M, K, N = 8, 8, 8
    A, B, C = matmul(M, K, N)
    s1 = te.create_schedule(C.op)
    naive = str(tvm.lower(s1, [A, B, C], simple_mode=True))
    assert loops(naive) == [("i", 8), ("j", 8), ("k", 8)]
    s2 = te.create_schedule(C.op)
    io, ii = s2[C].split(C.op.axis[0], factor=4)
    split = str(tvm.lower(s2, [A, B, C], simple_mode=True))
    assert [n for _, n in loops(split)] == [2, 4, 8, 8]
    s3 = te.create_schedule(C.op)
    io, ii = s3[C].split(C.op.axis[0], factor=4)
    jo, ji = s3[C].split(C.op.axis[1], factor=4)
    s3[C].reorder(io, jo, ii, ji)
    tiled = str(tvm.lower(s3, [A, B, C], simple_mode=True))
    assert [n for _, n in loops(tiled)] == [2, 2, 4, 4, 8]
    assert naive != split != tiled
