"""The runtime under TVM's names: containers, conversion, devices, functions by name, files, timing."""

import os
import pathlib
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import lathe as tvm
import lathe._ffi.base
from lathe import relay, te, tir
from lathe.contrib import cc, graph_executor, utils
from lathe.runtime import container

ROOT = pathlib.Path(__file__).resolve().parents[2]


# ---- containers and conversion


def test_convert():
    a = tvm.runtime.convert([1, 2.5, "x", [True, None]])
    assert isinstance(a, container.Array) and isinstance(a[2], container.String) and isinstance(a[3], container.Array)
    assert isinstance(a[0], tir.IntImm) and (a[0].dtype, a[0].value) == ("int32", 1) and a[1].dtype == "float32"
    assert tvm.convert(2**40).dtype == "int64" and a[3][1] is None and a[2] == "x"
    m = tvm.convert({"a": 1})
    assert isinstance(m, container.Map) and m["a"].value == 1
    x = te.var("x")
    assert tvm.convert(x) is x and tvm.convert(len) is len
    with pytest.raises(TypeError):
        tvm.convert(object())


def test_array():
    a = container.Array([1, 2, 3])
    assert (
        a == [1, 2, 3] and a != [1, 2] and a[-1] == 3 and isinstance(a[1:], container.Array) and list(a[1:]) == [2, 3]
    )
    assert list(a + [4]) == [1, 2, 3, 4] and list([0] + a) == [0, 1, 2, 3] and tvm.ir.Array is container.Array
    with pytest.raises(TypeError):
        a[0] = 5


def test_an_array_is_a_shape_that_te_takes():
    A = te.placeholder(tvm.convert([3, 4]), name="A")
    assert [int(d) for d in A.shape] == [3, 4]


def test_adt_string_and_shape():
    a = container.ADT(3, [1, "b"])
    assert (a.tag, len(a), a[1], list(a)) == (3, 2, "b", [1, "b"]) and container.tuple_object([1]).tag == 0
    with pytest.raises(IndexError):
        a[2]
    s = container.ShapeTuple([1, tir.const(2), np.int64(3)])
    assert s == (1, 2, 3) and s == [1, 2, 3] and isinstance(s[1], int)
    with pytest.raises(TypeError, match="float"):
        container.ShapeTuple([1.5])
    assert tvm.runtime.String("ab") + "c" == "abc"


def test_nodes_by_name_and_json():
    x = tvm.ir.make_node("IntImm", dtype="int64", value=5)
    assert (x.dtype, x.value) == ("int64", 5)
    with pytest.raises(ValueError, match="NoSuch"):
        tvm.ir.make_node("tir.NoSuch")
    A = te.placeholder((4,), name="A")
    f = te.create_prim_func([A, te.compute((4,), lambda i: A[i] * 2.0)])
    assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(f)), f)
    v = relay.var("v", shape=(2,))
    mod = tvm.IRModule.from_expr(v + relay.const(np.array([1, 2], "float32")))
    assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(mod)), mod)
    with pytest.raises(SyntaxError):
        tvm.ir.load_json("{}")


# ---- devices


@pytest.mark.parametrize(
    "name, number",
    [
        ("rocm", 10),
        ("vulkan", 7),
        ("metal", 8),
        ("opencl", 4),
        ("hexagon", 16),
        ("webgpu", 15),
        ("vpi", 9),
        ("ext_dev", 12),
    ],
)
def test_devices_that_do_not_exist(name, number):
    dev = getattr(tvm, name)(1)
    assert (
        not dev.exist
        and (dev.device_type, dev.device_id, str(dev)) == (number, 1, f"{name}(1)")
        and dev == tvm.device(name, 1)
    )
    with pytest.raises(NotImplementedError, match=name):
        tvm.nd.array(np.zeros(1), dev)


def test_properties_of_devices():
    assert tvm.cpu(0).exist and tvm.cpu(0).max_threads_per_block is None and tvm.rocm(0).device_name is None
    assert tvm.mtl(0) == tvm.metal(0) and tvm.cl(0) == tvm.opencl(0)
    with pytest.raises(AttributeError):
        tvm.cpu(0).no_such_property


def test_libinfo():
    info = tvm.support.libinfo()
    assert (
        info["USE_LLVM"] == ("ON" if tvm.runtime.enabled("llvm") else "OFF")
        and info["USE_VULKAN"] == "OFF"
        and all(isinstance(v, str) for v in info.values())
    )


# ---- arrays


def test_arrays():
    a = tvm.nd.array(np.arange(6, dtype="float32").reshape(2, 3))
    b = tvm.nd.empty((2, 3), "float32", tvm.cpu(0))
    assert a.copyto(b) is b and (b.asnumpy() == a.numpy()).all()
    c = a.copyto(tvm.cpu(0))
    c[:] = 7
    assert a.numpy()[0, 0] == 0 and (c.numpy() == 7).all()
    shared = tvm.nd.from_dlpack(a.to_dlpack())
    np.asarray(a)[0, 0] = 9
    assert shared.numpy()[0, 0] == 9


def test_bfloat16_is_that_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    want = np.array([1.5, -2.25, 3e38], dtype=ml_dtypes.bfloat16)
    a = tvm.nd.array(want)
    assert a.dtype == "bfloat16" and a.numpy().dtype == ml_dtypes.bfloat16 and (a.numpy() == want).all()
    assert tvm.nd.empty((2,), "bfloat16").numpy().dtype == ml_dtypes.bfloat16


# ---- errors


def test_diagnostic_errors():
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(tvm.error.DiagnosticError):
        relay.transform.InferType()(tvm.IRModule.from_expr(relay.reshape(x, (7,))))
    with pytest.raises(tvm.error.DiagnosticError):
        tvm.parser.parse('#[version = "0.0.5"]\ndef @main(')
    assert issubclass(tvm.error.DiagnosticError, tvm.TVMError) and issubclass(
        tvm.error.OpNotImplemented, NotImplementedError
    )


# ---- functions by name, both ways


def test_compiled_functions_under_a_name_are_called_by_compiled_code(target):
    n = 8
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 3.0, name="B")
    inner = tvm.build(te.create_schedule(B.op), [A, B], target)
    tvm.register_func("test_tvm_runtime.inner", inner, override=True)
    C = te.extern(
        (n,), [A], lambda ins, outs: tir.call_packed("test_tvm_runtime.inner", ins[0], outs[0]), dtype="float32"
    )
    outer = tvm.build(te.create_schedule(C.op), [A, C], target)
    a, c = tvm.nd.array(np.arange(n, dtype="float32")), tvm.nd.empty((n,))
    outer(a, c)
    np.testing.assert_array_equal(c.numpy(), a.numpy() * 3)
    assert tvm.get_global_func("test_tvm_runtime.inner") is inner
    tvm.runtime.remove_global_func("test_tvm_runtime.inner")


def test_the_value_of_a_function_inside_an_expression_is_refused(target):
    A = tir.decl_buffer((4,), "int32", "A")
    tvm.register_func("test_tvm_runtime.seven", lambda: 7, override=True)
    f = tir.PrimFunc([A], tir.BufferStore(A, tir.call_packed("test_tvm_runtime.seven"), [0]))
    with pytest.raises(NotImplementedError, match="tvm_call_packed inside an expression"):
        tvm.build(f, target=target)(np.zeros(4, "int32"))
    tvm.runtime.remove_global_func("test_tvm_runtime.seven")


# ---- files


def doubled(target):
    A = te.placeholder((5,), name="A")
    B = te.compute((5,), lambda i: te.exp(A[i]) * 2.0, name="B")
    return tvm.build(te.create_schedule(B.op), [A, B], target, name="doubled")


def check_doubled(module):
    a, b = tvm.nd.array(np.arange(5, dtype="float32")), tvm.nd.empty((5,))
    module["doubled"](a, b)
    tvm.testing.assert_allclose(b.numpy(), np.exp(a.numpy()) * 2, rtol=1e-5)
    assert module.time_evaluator(module.entry_name, tvm.cpu(0), number=2, repeat=3)(a, b).results[2] > 0


@pytest.mark.skipif(not cc.get_cc(), reason="needs a C compiler")
@pytest.mark.parametrize("name", ["x.tar", "x.o", "x.so"])
def test_functions_in_files(target, name, tmp_path):
    path = tmp_path / name
    doubled(target).export_library(str(path))
    if name == "x.tar":
        assert tarfile.open(path).getnames() == ["lib0.o"]
    check_doubled(tvm.runtime.load_module(str(path)))


@pytest.mark.skipif(not cc.get_cc(), reason="needs a C compiler")
def test_fcompile_and_options(target, tmp_path):
    f = doubled(target)
    seen = []

    def fcompile(output, objects, options=None):
        seen.append((os.path.basename(output), [os.path.basename(o) for o in objects], options))
        cc.create_shared(output, objects, options)

    f.export_library(tmp_path / "a.so", fcompile=fcompile, options=["-Wl,-s"])
    assert seen == [("a.so", ["lib0.o"], ["-Wl,-s"])]
    f.export_library(tmp_path / "b.so", cc=cc.get_cc())
    f.export_library(tmp_path / "c.so", fcompile=cc.cross_compiler(cc.get_cc()), workspace_dir=tmp_path)
    for name in ("a.so", "b.so", "c.so"):
        check_doubled(tvm.runtime.load_module(tmp_path / name))
    assert (tmp_path / "lib0.o").exists()
    with pytest.raises(ValueError, match="no_such_option"):
        f.export_library(tmp_path / "d.so", no_such_option=1)


def test_archives_without_objects(tmp_path):
    (tmp_path / "bad.tar").write_text("text")
    with pytest.raises(OSError, match="no archive"):
        tvm.runtime.load_module(tmp_path / "bad.tar")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(OSError, match="no objects"):
        tvm.runtime.load_module(tmp_path / "empty.tar")
    with pytest.raises(tvm.LatheError):
        tvm.runtime.load_module(tmp_path / "none.tar")


@pytest.mark.skipif(not cc.get_cc(), reason="needs a C compiler")
def test_a_model_in_an_archive_and_its_time(target, tmp_path):
    x = relay.var("x", shape=(2, 4))
    lib = relay.build(tvm.IRModule.from_expr(relay.nn.softmax(x)), target)
    lib.export_library(tmp_path / "net.tar")
    loaded = tvm.runtime.load_module(tmp_path / "net.tar")
    data = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    m = graph_executor.GraphModule(loaded["default"](tvm.cpu(0)))
    m.run(x=data)
    e = np.exp(data - data.max(-1, keepdims=True))
    tvm.testing.assert_allclose(m.get_output(0).numpy(), e / e.sum(-1, keepdims=True), rtol=1e-5)
    assert len(m.module.time_evaluator("run", tvm.cpu(0), number=2, repeat=3)().results) == 3


def test_parameters_in_files(tmp_path):
    params = {"w": tvm.nd.array(np.arange(4, dtype="float32"))}
    tvm.runtime.save_param_dict_to_file(params, tmp_path / "p.params")
    assert (tvm.runtime.load_param_dict_from_file(tmp_path / "p.params")["w"].numpy() == params["w"].numpy()).all()


# ---- the virtual machine's names


def test_virtual_machine(target, tmp_path):
    x, w = relay.var("x", shape=(relay.Any(), 4)), relay.var("w", shape=(3, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.Tuple([relay.nn.dense(x, w), relay.exp(x)])))
    rng = np.random.default_rng(0)
    data, weight = rng.normal(size=(5, 4)).astype("float32"), rng.normal(size=(3, 4)).astype("float32")
    exe = relay.vm.compile(mod, target=target, params={"w": weight})
    code, lib = exe.save()
    lib.export_library(tmp_path / "vm.so")
    loaded = tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(tmp_path / "vm.so"))
    for e in (exe, loaded):
        vm = tvm.runtime.vm.VirtualMachine(e, tvm.cpu(0))
        for given in (vm.run(data), vm.run(x=data), vm.invoke("main", tvm.nd.array(data))):
            tvm.testing.assert_allclose(given[0].numpy(), data @ weight.T, rtol=1e-4, atol=1e-5)
            tvm.testing.assert_allclose(given[1].numpy(), np.exp(data), rtol=1e-5)
        vm.set_input("main", data[:2])
        vm.invoke_stateful("main")
        assert [o.shape for o in vm.get_outputs()] == [(2, 3), (2, 4)]
        assert vm.get_input_index("x") == 0 and vm.get_input_index("none") == -1
        assert len(vm.benchmark(tvm.cpu(0), data, repeat=2, number=1).results) == 2
        with pytest.raises(ValueError, match="takes 1 inputs"):
            vm.run(data, data)
        with pytest.raises(LookupError, match="other"):
            vm.invoke("other")
    with pytest.raises(ValueError, match="TVM's is not read"):
        tvm.runtime.vm.Executable.load_exec(b"x", lib)
    compiler = relay.vm.VMCompiler()
    with pytest.raises(ValueError, match="lower first"):
        compiler.get_exec()
    compiler.set_params({"w": weight})
    compiler.lower(mod, target)
    compiler.codegen()
    got = tvm.runtime.vm.VirtualMachine(compiler.get_exec(), tvm.cpu(0)).run(data)
    tvm.testing.assert_allclose(got[0].numpy(), data @ weight.T, rtol=1e-4, atol=1e-5)


def test_names_below_ffi():
    assert tvm._ffi.base.TVMError is tvm.TVMError and tvm._ffi.register_func is tvm.register_func
    assert tvm._ffi.get_global_func("no.such.function", allow_missing=True) is None
