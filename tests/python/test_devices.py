"""Models for several targets: where their parts go, and what is copied."""

import numpy as np
import pytest

import lathe as tvm
from lathe import relay
from lathe.target import Target, VirtualDevice
from lathe.target.virtual_device import targets_of


def annotated(constrain_result=False):
    """exp(x) on cpu(1), the rest where it may be."""
    x = relay.var("x", shape=(2, 4))
    y = relay.var("y", shape=(2, 4))
    far = relay.annotation.on_device(relay.exp(x), tvm.cpu(1), constrain_result)
    return tvm.IRModule.from_expr(relay.Function([x, y], relay.subtract(far, relay.tanh(y))))


def copies(mod):
    found = []
    relay.analysis.post_order_visit(
        mod["main"],
        lambda n: (
            found.append((n.attrs["src_virtual_device"], n.attrs["dst_virtual_device"]))
            if isinstance(n, relay.Call) and getattr(n.op, "name", "") == "device_copy"
            else None
        ),
    )
    return found


def test_annotation_prints_and_parses():
    mod = annotated()
    assert 'on_device(%0, virtual_device="cpu(1)")' in mod.astext()
    tvm.ir.assert_structural_equal(relay.parse(mod.astext()), mod)
    text = "def @main(%x: Tensor[(2), float32]) { on_device(exp(%x), virtual_device=meta[VirtualDevice][1]) }"
    table = {"VirtualDevice": [VirtualDevice(tvm.cpu(0)), VirtualDevice(tvm.cuda(0))]}
    assert 'virtual_device="cuda(0)"' in relay.parse(text, init_meta_table=table).astext()


def test_the_interpreter_sees_the_same_value():
    x = np.random.rand(2, 4).astype("float32")
    y = np.random.rand(2, 4).astype("float32")
    mod = relay.transform.PlanDevices(["llvm", "c"])(relay.transform.InferType()(annotated()))
    assert copies(mod) == [("cpu(1)", "cpu(0)")]
    out = relay.create_executor("debug", mod).evaluate()(x, y)
    np.testing.assert_allclose(out.numpy(), np.exp(x) - np.tanh(y), rtol=1e-6)


def test_forms_of_several_targets():
    mod = relay.transform.InferType()(annotated())
    lists = ["llvm", "c"], [Target("llvm"), Target("c")]
    for form in (*lists, {"cpu": "llvm", tvm.cpu(1): "c"}, {tvm.cpu(1): "c", "cpu(0)": "llvm"}):
        assert [str(t) for t in targets_of(form)] == ["llvm", "c"]
        assert copies(relay.transform.PlanDevices(form)(mod)) == [("cpu(1)", "cpu(0)")]
    config = tvm.target.make_compilation_config(tvm.transform.PassContext(), ["cuda", "llvm"], "llvm")
    assert config.host_target == Target("llvm") and config.primitive_targets[0].host == Target("llvm")
    assert [t.kind.name for t in targets_of({"cuda": "cuda", "cpu": "llvm"})] == ["cuda", "llvm"]
    assert [t.kind.name for t in targets_of({1: "llvm", 2: "cuda"})] == ["llvm", "cuda"]
    assert targets_of("cuda", "llvm")[0].host == Target("llvm") and len(targets_of({"kind": "llvm"})) == 1


def test_forms_that_do_not_fit():
    with pytest.raises(ValueError, match=r"'cuda' is given for cpu\(0\)"):
        targets_of({"cpu": "cuda"})
    with pytest.raises(ValueError, match="not numbered from 0"):
        targets_of({tvm.cpu(1): "llvm", tvm.cpu(2): "c"})
    with pytest.raises(ValueError, match="no target in the list"):
        targets_of([])
    with pytest.raises(ValueError, match="is no device"):
        targets_of({"abacus": "llvm"})
    with pytest.raises(tvm.error.UnsupportedError, match="drives itself"):
        targets_of("llvm", "c")
    with pytest.raises(ValueError, match=r"no target is given for cpu\(1\); the targets are for cpu\(0\) \(c\)"):
        relay.build(annotated(), target="c")
    with pytest.raises(TypeError, match="a device is wanted"):
        relay.annotation.on_device(relay.const(1.0), 1.5)


def test_fallback_device():
    x = relay.var("x", shape=(4,))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))))
    plain = relay.transform.PlanDevices(["llvm", "cuda"])
    assert 'result_virtual_device="cpu(0)"' in plain(mod).astext()
    with tvm.transform.PassContext(config={"relay.fallback_device_type": 2}):
        assert 'result_virtual_device="cuda(0)"' in plain(mod).astext()
    with tvm.transform.PassContext(config={"relay.fallback_device_type": 4}):
        with pytest.raises(ValueError, match="of that type"):
            plain(mod)


def test_functions_say_where_they_are():
    x = relay.var("x", shape=(4,))
    f = relay.annotation.function_on_device(relay.Function([x], relay.exp(x)), [tvm.cpu(1)], tvm.cpu(0))
    mod = relay.transform.PlanDevices(["llvm", "c"])(relay.transform.InferType()(tvm.IRModule.from_expr(f)))
    assert copies(mod) == [("cpu(1)", "cpu(0)")]


@pytest.fixture(scope="module")
def two_targets():
    """A small network of which a part is C; its input and what it gives by the interpreter."""
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(1, 4, 8, 8))
    first, second = (relay.const((rng.random((4, 4, 3, 3)) - 0.5).astype("float32")) for _ in range(2))
    near = relay.annotation.on_device(relay.nn.relu(relay.nn.conv2d(x, first, padding=(1, 1))), tvm.cpu(0))
    far = relay.annotation.on_device(relay.nn.relu(relay.nn.conv2d(near, second, padding=(1, 1))), tvm.cpu(1))
    near = relay.annotation.on_device(relay.nn.global_avg_pool2d(far), tvm.cpu(0))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], near)))
    data = rng.random((1, 4, 8, 8)).astype("float32")
    return mod, data, relay.create_executor("debug", mod).evaluate()(data).numpy()


def run(lib, data):
    m = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=data)
    return m.get_output(0).numpy()


@pytest.mark.parametrize("form", [["llvm", "c"], {"cpu": "c", tvm.cpu(1): "llvm"}], ids=["llvm_c", "c_llvm"])
def test_a_model_that_is_partly_c(two_targets, form, tmp_path):
    mod, data, want = two_targets
    if not tvm.runtime.enabled("llvm"):
        form = ["c", "c -mcpu=generic"]
    lib = relay.build(mod, target=form)
    np.testing.assert_allclose(run(lib, data), want, rtol=1e-4, atol=1e-5)
    assert "conv2d" in lib.get_source("c")
    path = str(tmp_path / "net.so")
    lib.export_library(path)
    np.testing.assert_allclose(run(tvm.runtime.load_module(path), data), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ending", [".o", ".a"])
def test_a_model_of_two_targets_is_linked(two_targets, ending, tmp_path):
    import subprocess

    mod, data, want = two_targets
    form = ["llvm", "c"] if tvm.runtime.enabled("llvm") else ["c", "c -mcpu=generic"]
    relay.build(mod, target=form).export_library(str(tmp_path / f"net{ending}"))
    whole = ["-Wl,--whole-archive", f"net{ending}", "-Wl,--no-whole-archive"]
    subprocess.run(["cc", "-shared", "-o", "linked.so", *whole, "-lm"], cwd=tmp_path, check=True)
    linked = tvm.runtime.load_module(str(tmp_path / "linked.so"))
    np.testing.assert_allclose(run(linked, data), want, rtol=1e-4, atol=1e-5)
