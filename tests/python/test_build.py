"""lower and build: names, inputs of every kind, sources, files."""

import re
import subprocess
import sys

import numpy as np
import pytest

import lathe as tvm
from lathe import relay, te, tir


def add_one(n=16):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    return A, B, te.create_schedule(B.op)


def works(func, n=16):
    a, b = np.arange(n, dtype="float32"), np.zeros(n, "float32")
    func(a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_every_kind_of_input(target):
    A, B, s = add_one()
    f = te.create_prim_func([A, B])
    works(tvm.build(s, [A, B], target=target))
    works(tvm.build(f, target=target))
    works(tvm.build(tvm.IRModule({"main": f}), target=target))
    works(tvm.build(tir.Schedule(f).mod, target=target))
    works(tvm.build(tir.Schedule(f), target=target))


def test_rounding_shifts_of_vectors():
    """For "llvm", which a build without LLVM serves with the C backend."""
    n, shifts = 16, 1 << np.arange(16)
    A = te.placeholder((n,), "int32", name="A")
    B = te.compute((n,), lambda i: tir.round_shift_right(A[i], tir.const(3, "int32")), name="B")
    s = te.create_schedule(B.op)
    s[B].vectorize(B.op.axis[0])
    a = np.where(np.arange(n) % 2, -4 * shifts - 4, 4 * shifts).astype("int32")
    b = np.zeros(n, "int32")
    tvm.build(s, [A, B], target="llvm")(a, b)
    np.testing.assert_array_equal(b, np.sign(a) * ((np.abs(a) + 4) // 8))


def test_lowered_modules_build(target):
    A, B, s = add_one()
    o, i = s[B].split(B.op.axis[0], factor=4)
    s[B].vectorize(i)
    works(tvm.build(tvm.lower(s, [A, B], name="low"), target=target)["low"])


def test_names():
    A, B, s = add_one()
    assert tvm.build(s, [A, B]).entry_name == "default_function"
    func = tvm.build(s, [A, B], name="mine")
    assert func.entry_name == "mine"
    works(func["mine"])
    works(func.get_function("__tvm_main__"))
    assert [v.name_hint for v in tvm.lower(s, [A, B]).get_global_vars()] == ["main"]
    assert [v.name_hint for v in tvm.lower(s, [A, B], name="x").get_global_vars()] == ["x"]


def test_lower_forms():
    A, B, s = add_one()
    mod = tvm.lower(s, [A, B])
    assert "@T.prim_func" in str(mod) and "@T.prim_func" in mod.script()
    simple = tvm.lower(s, [A, B], simple_mode=True)
    assert str(simple).strip().startswith("for (i, 0, 16) {") and "@T.prim_func" in simple.script()


def test_sources():
    A, B, s = add_one()
    func = tvm.build(s, [A, B], target="c", name="add_one")
    assert (
        func.type_key == "c"
        and re.search(r"\badd_one\b", func.get_source("c"))
        and func.get_source() == func.get_source("c")
    )
    if tvm._ffi.call("build_info")[0]:
        func = tvm.build(s, [A, B], target="llvm", name="add_one")
        assert (
            "define" in func.get_source("ll")
            and func.get_source() == func.get_source("ll")
            and "add_one:" in func.get_source("asm")
        )
        assert func.get_source("obj")[:4] == b"\x7fELF"
        with pytest.raises(NotImplementedError, match="cuda|formats|ll"):
            func.get_source("cuda")
    with pytest.raises(ValueError, match="brainfuck"):
        func.get_source("brainfuck")


def test_source_of_a_model(target):
    x = relay.var("x", shape=(4,))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], x + x)), target=target)
    ours = "c" if target == "c" or not tvm.runtime.enabled("llvm") else "ll"
    assert lib.get_source() == lib.get_source(ours)
    if ours == "ll":
        assert lib.get_source("obj")[:4] == b"\x7fELF"


def test_export_and_load(target, tmp_path):
    A, B, s = add_one()
    func = tvm.build(s, [A, B], target=target, name="add_one")
    path = tmp_path / "lib.so"
    func.export_library(path)
    loaded = tvm.runtime.load_module(str(path))
    assert loaded.entry_name == "add_one" and loaded.type_key == "library"
    works(loaded)
    works(loaded["add_one"])
    with pytest.raises(NotImplementedError):
        loaded.get_source()


def test_a_library_runs_without_the_compiler(target, tmp_path):
    A, B, s = add_one()
    path = tmp_path / "lib.so"
    tvm.build(s, [A, B], target=target, name="add_one").export_library(path)
    code = (
        "import sys, numpy as np\n"
        "from lathe.runtime import load_module\n"
        f"f = load_module({str(path)!r})\n"
        "a, b = np.arange(16, dtype='float32'), np.zeros(16, 'float32')\n"
        "f(a, b)\n"
        "assert (b == a + 1).all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_load_what_is_not_a_library(tmp_path):
    path = tmp_path / "lib.so"
    path.write_bytes(b"\x7fELF" + b"\0" * 100)
    with pytest.raises(tvm.LatheError):
        tvm.runtime.load_module(path)
    with pytest.raises(tvm.LatheError, match="missing.so"):
        tvm.runtime.load_module(tmp_path / "missing.so")


def test_target_by_string_object_and_context():
    A, B, s = add_one()
    with tvm.target.Target("c"):
        assert tvm.build(s, [A, B]).type_key == "c"
    works(tvm.build(s, [A, B], target=tvm.target.Target("c")))
    works(tvm.build(s, [A, B], target={"kind": "c"}))


def test_another_machines_code_is_not_run(tmp_path):
    if not tvm._ffi.call("build_info")[0]:
        pytest.skip("this Lathe was built without LLVM")
    other = "x86_64" if tvm.target.Target().mtriple.startswith("aarch64") else "aarch64"
    A, B, s = add_one()
    func = tvm.build(s, [A, B], target=f"llvm -mtriple={other}-linux-gnu")
    with pytest.raises(NotImplementedError, match="does not run on this machine"):
        func(np.zeros(16, "float32"), np.zeros(16, "float32"))
    func.export_library(tmp_path / "lib.o")
    assert (tmp_path / "lib.o").read_bytes()[:4] == b"\x7fELF"


def test_bound_buffers(target):
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    stride = te.var("stride")
    Ab = tir.decl_buffer((n,), "float32", "A", strides=[stride])
    func = tvm.build(te.create_schedule(B.op), [A, B], target=target, binds={A: Ab})
    a, b = np.arange(20, dtype="float32"), np.zeros(10, "float32")
    func(a[::2], b)
    np.testing.assert_array_equal(b, a[::2] + 1)


def test_strided_arrays_are_refused_without_a_bound_buffer():
    A, B, s = add_one(10)
    func = tvm.build(s, [A, B])
    with pytest.raises(ValueError, match="strides|compact"):
        func(np.arange(20, dtype="float32")[::2], np.zeros(10, "float32"))


def test_config():
    A, B, s = add_one()
    works(tvm.build(s, [A, B], config={"no_vectorize": True, "unroll_max": 16}))


def test_dump_dir(tmp_path):
    A, B, s = add_one()
    tvm.build(s, [A, B], config={"dump_dir": str(tmp_path)})
    assert sorted(p.name for p in tmp_path.iterdir())


def test_cuda_source():
    A, B, s = add_one(64)
    o, i = s[B].split(B.op.axis[0], factor=16)
    s[B].bind(o, te.thread_axis("blockIdx.x"))
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    func = tvm.build(s, [A, B], target="cuda", name="inc")
    (device,) = func.imported_modules
    assert "__global__" in device.get_source() and func.get_source() == device.get_source() and func.type_key == "cuda"
    with pytest.raises(NotImplementedError, match="no CUDA runtime"):
        func(np.zeros(64, "float32"), np.zeros(64, "float32"))
    with pytest.raises(NotImplementedError, match="bind"):
        tvm.build(te.create_schedule(B.op), [A, B], target="cuda")
