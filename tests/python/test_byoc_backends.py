"""Libraries behind plugins of the runtime: OpenBLAS, oneDNN and ONNX Runtime agree with Lathe; plugins that are wrong are
told."""

import functools
import os
import pathlib
import subprocess
import threading

import numpy as np
import pytest

import networks

import lathe
from lathe import relay
from lathe._ffi import library
from lathe.contrib import graph_executor
from lathe.relay.backend.contrib import Module, to_json
from lathe.relay.op.contrib import partition_for
from lathe.relay.transform import AnnotateTarget, PartitionGraph

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = pathlib.Path(library.runtime()._name).parent
RNG = np.random.default_rng(7)


def need(kind):
    if kind == "onnxruntime":
        pytest.importorskip("onnxruntime")
    if not (BUILT / "lathe-plugins" / f"lathe_plugin_{kind}.so").exists():
        pytest.skip(f"the plugin for {kind} is not built; tools/setup backends, then make build")


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def built(mod, target="llvm"):
    with lathe.transform.PassContext(opt_level=3):
        return relay.build(mod, target=target)


def run(lib, inputs):
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.run(**inputs)
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def conv(x, *shape, **attrs):
    return relay.nn.conv2d(x, relay.const(0.2 * floats(*shape)), channels=shape[0], kernel_size=shape[2:], **attrs)


def bias(x, n):
    return relay.nn.bias_add(x, relay.const(floats(n)))


def parts():
    x = relay.var("x", shape=(2, 8, 9, 7))
    plain = conv(x, 12, 8, 3, 3, padding=(1, 1))
    strided = relay.nn.relu(bias(conv(x, 12, 8, 3, 3, strides=(2, 2), padding=(0, 1, 2, 1)), 12))
    grouped = bias(conv(x, 8, 2, 3, 3, groups=4, dilation=(2, 2)), 8)
    depthwise = relay.nn.relu(conv(x, 8, 1, 3, 3, groups=8, padding=(1, 1)))
    block = relay.nn.relu(bias(conv(x, 8, 8, 3, 3, padding=(1, 1)), 8) + x)
    chain = conv(relay.nn.relu(bias(conv(x, 16, 8, 1, 1), 16)), 8, 16, 3, 3, padding=(1, 1))
    flat = relay.nn.batch_flatten(x)
    dense = relay.nn.relu(relay.nn.dense(flat, relay.const(floats(10, 504))) + relay.const(floats(10)))
    matmul = relay.nn.matmul(flat, relay.const(floats(504, 6)))
    turned = relay.nn.dense(relay.nn.dense(flat, relay.const(floats(6, 504))), relay.const(floats(3, 6)))
    stack = relay.reshape(x, (16, 9, 7))
    scores = relay.nn.batch_matmul(stack, stack)
    values = relay.nn.batch_matmul(relay.nn.softmax(scores), stack, transpose_b=False)
    return {"plain": plain, "strided": strided, "grouped": grouped, "depthwise": depthwise, "block": block,
            "chain": chain, "dense": dense, "matmul": matmul, "turned": turned, "scores": scores,
            "values": values}  # fmt: skip


@pytest.mark.parametrize("compiler", ["openblas", "dnnl", "onnxruntime"])
def test_kernels_agree_with_the_interpreter(compiler, tmp_path):
    need(compiler)
    x = {"x": floats(2, 8, 9, 7)}
    body = relay.Tuple(list(parts().values()))
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))
    part = partition_for(compiler, mod)
    assert networks.offloaded(part)[0] == 1
    lib = built(part)
    got = run(lib, x)
    want = relay.create_executor("debug", mod).evaluate()(x["x"])
    for name, a, b in zip(parts(), got, want):
        np.testing.assert_allclose(a, b.numpy(), rtol=2e-4, atol=2e-4, err_msg=name)
    lib.export_library(str(tmp_path / "net.so"))
    for a, b in zip(run(lathe.runtime.load_module(str(tmp_path / "net.so")), x), got):
        np.testing.assert_array_equal(a, b)


def network(name):
    """A network and a value for its input."""
    from lathe.relay.testing import resnet

    if name == "resnet18":
        mod, params = resnet.get_workload(num_layers=18, image_shape=(3, 32, 32), num_classes=10)
        return relay.build_module.as_module(mod, params), floats(1, 3, 32, 32)
    if name == "mobilenet_v2":
        mod, shape = networks.mobilenet_v2(size=32, width=0.5, classes=10)
        return mod, floats(*shape)
    mod, shape = networks.bert(layers=2, hidden=64, heads=4, length=16, words=50)
    return mod, RNG.integers(0, 50, shape)


@functools.lru_cache(maxsize=None)
def plain(name):
    """A network, a value for its input, and what Lathe alone gives."""
    mod, x = network(name)
    return mod, x, run(relay.build(mod, target="llvm"), {"data": x})[0]


@pytest.mark.parametrize("kind", ["openblas", "dnnl", "onnxruntime"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "bert"])
def test_networks_agree_and_are_covered(name, kind):
    need(kind)
    mod, x, want = plain(name)
    assert np.ptp(want) > 0.01
    part = partition_for(kind, mod)
    assert networks.offloaded(part)[0] >= 0.9
    np.testing.assert_allclose(run(built(part), {"data": x})[0], want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


def test_one_model_in_many_threads():
    need("openblas")
    x = relay.var("x", shape=(16, 64))
    h = relay.nn.relu(relay.nn.dense(x, relay.const(floats(48, 64))))
    y = relay.nn.relu(relay.nn.dense(h, relay.const(floats(8, 48))))
    lib = built(partition_for("openblas", lathe.IRModule.from_expr(relay.Function([x], y))))
    inputs = [floats(16, 64) for _ in range(4)]
    want = [run(lib, {"x": v})[0] for v in inputs]
    bad = []

    def work(i):
        m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
        for _ in range(20):
            m.run(x=inputs[i])
            if not np.array_equal(m.get_output(0).numpy(), want[i]):
                bad.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


# ---- plugins that are not right

PLUGIN = """
#include "plugin.h"
static LatheRtCode prepare(Graph *g, LatheRtError *err) { (void)g, (void)err; return LATHE_RT_OK; }
static LatheRtCode run(const Run *r, LatheRtError *err)
{ (void)r; return plugin_fail(err, LATHE_RT_KERNEL, "the accelerator has gone away"); }
static const Backend backend = {.kind = KIND, .prepare = prepare, .run = run};
LATHE_RT_API const LatheRtPlugin lathe_plugin =
  {MAGIC, LATHE_RT_ABI + OTHER, sizeof lathe_plugin, NAMED, plugin_load, (void *)&backend};
"""


def make_plugin(folder, kind, **macros):
    values = {"KIND": f'"{kind}"', "NAMED": f'"{kind}"', "MAGIC": '"LATHEPL"', "OTHER": "0", **macros}
    (folder / "plugin_test.c").write_text(PLUGIN)
    sources = [folder / "plugin_test.c", ROOT / "backends/plugin.c", ROOT / "backends/json.c"]
    subprocess.run(
        ["cc", "-std=gnu17", "-shared", "-fPIC", f"-I{ROOT}/include", f"-I{ROOT}/backends", *sources,
         *[f"-D{k}={v}" for k, v in values.items()], "-o", folder / f"lathe_plugin_{kind}.so",
         f"-L{BUILT}", "-llathe_rt", f"-Wl,-rpath,{BUILT}"],
        check=True,
    )  # fmt: skip
    return folder / f"lathe_plugin_{kind}.so"


def with_module(kind, code=None):
    """A model with one function of that kind."""
    compiler = "plugin_" + kind
    generate = lambda f: Module(kind, to_json(f) if code is None else code(f))  # noqa: E731
    lathe.register_func("relay.ext." + compiler, generate, override=True)
    lathe.ir.register_op_attr("exp", "target." + compiler, lambda e: True)
    x = relay.var("x", shape=(3,))
    mod = PartitionGraph()(AnnotateTarget(compiler)(lathe.IRModule.from_expr(relay.Function([x], relay.exp(x)))))
    return built(mod)


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    monkeypatch.setenv("LATHE_PLUGIN_PATH", f"/nowhere:{tmp_path}")
    return tmp_path


@pytest.mark.parametrize(
    "kind, macros, match",
    [
        ("byocmagic", {"MAGIC": '"SOMEONE"'}, "is no plugin: it has no table"),
        ("byocabi", {"OTHER": "1"}, "is for another ABI of the runtime; build it again"),
        ("byocname", {"NAMED": '"other"'}, "brings another kind than its name says"),
        ("byocnull", {"NAMED": "0"}, "has a broken table"),
        ("byocruns", {}, "the accelerator has gone away"),
    ],
)
def test_plugins_that_are_refused(plugins, kind, macros, match):
    make_plugin(plugins, kind, **macros)
    with pytest.raises(lathe.error.LatheError, match=match):
        run(with_module(kind), {"x": floats(3)})


def test_a_plugin_that_others_can_write(plugins):
    make_plugin(plugins, "byocopen").chmod(0o777)
    with pytest.raises(lathe.error.LatheError, match="others may write"):
        run(with_module("byocopen"), {"x": floats(3)})


def test_a_plugin_beside_the_model_is_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.delenv("LATHE_PLUGIN_PATH", raising=False)
    make_plugin(tmp_path, "byocbeside")
    with_module("byocbeside").export_library(str(tmp_path / "net.so"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lathe.error.LatheError, match="'byocbeside', which nothing here loads"):
        graph_executor.GraphModule(lathe.runtime.load_module("net.so")["default"](lathe.cpu(0)))


def nonsense(**changes):
    import json

    return lambda f: json.dumps({**json.loads(to_json(f)), **changes})


@pytest.mark.parametrize(
    "code, match",
    [
        (lambda f: "no json", "is no JSON: a value is missing"),
        (lambda f: '{"version": 1', "is no JSON"),
        (lambda f: "[" * 100, "too deep"),
        (lambda f: "{}", "is of version 0, this plugin reads 1"),
        (nonsense(version=9), "is of version 9"),
        (nonsense(tensors=[]), "speaks of a tensor that there is not"),
        (nonsense(inputs=[0, 0]), "is an argument twice"),
        (nonsense(tensors=[{"name": "a", "shape": [-1], "dtype": "float32"}] * 2), "a size that is not known"),
        (nonsense(tensors=[{"name": "a", "shape": [1], "dtype": "float33"}] * 2), "is of float33"),
        (nonsense(kernels=[{"name": "k", "inputs": [0], "outputs": []}]), "gives nothing"),
        (nonsense(outputs=[]), "byocsense|argument"),
    ],
)
def test_graphs_that_are_nonsense(plugins, code, match):
    make_plugin(plugins, "byocsense")
    with pytest.raises(lathe.error.LatheError, match=match):
        run(with_module("byocsense", code), {"x": floats(3)})
