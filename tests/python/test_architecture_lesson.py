"""Every listing of the architecture lesson, in its order, with only the import lines changed.

The lesson exports ResNet-18 from torch; here the project's own script builds the same
network, batch normalisations kept."""

import timeit

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import lathe as tvm  # noqa: E402
from lathe import relay, te  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402

from networks import resnet18_bn, run_onnxruntime  # noqa: E402


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("models") / "resnet18.onnx"
    onnx.save(resnet18_bn(), str(file))
    return str(file)


def test_compute_apart_from_schedule():
    M, K, N = 64, 48, 96
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    xo, xi = s[C].split(C.op.axis[0], factor=32)
    yo, yi = s[C].split(C.op.axis[1], factor=32)
    s[C].reorder(xo, yo, xi, yi)
    s[C].vectorize(yi)
    a, b = np.random.rand(M, K).astype("float32"), np.random.rand(K, N).astype("float32")
    c = tvm.nd.empty((M, N))
    tvm.build(s, [A, B, C])(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5)


def test_verify_installation(capsys):
    print(f"TVM version: {tvm.__version__}")
    print(f"LLVM enabled: {tvm.runtime.enabled('llvm')}")
    print(f"CUDA enabled: {tvm.runtime.enabled('cuda')}")
    print(f"Available targets: {tvm.target.Target.list_kinds()}")
    assert "llvm" in capsys.readouterr().out


def test_the_whole_pipeline(path, tmp_path, capsys):
    onnx_model = onnx.load(path)
    shape_dict = {"input": (1, 3, 224, 224)}
    mod, params = relay.frontend.from_onnx(onnx_model, shape_dict)
    print(type(mod))
    print(mod["main"])
    text = capsys.readouterr().out
    assert "nn.conv2d(" in text and "strides=[2, 2], padding=[3, 3, 3, 3]" in text and "nn.batch_norm(" in text

    target = tvm.target.Target("llvm -mcpu=native") if tvm.runtime.enabled("llvm") else tvm.target.Target("c")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target, params=params)

    dev = tvm.cpu(0)
    executor = graph_executor.GraphModule(lib["default"](dev))
    input_data = np.random.randn(1, 3, 224, 224).astype("float32")
    executor.set_input("input", tvm.nd.array(input_data))
    executor.run()
    output = executor.get_output(0).numpy()
    print(f"Output shape: {output.shape}")
    print(f"Top-5 classes: {output[0].argsort()[-5:][::-1]}")
    assert output.shape == (1, 1000)
    want = run_onnxruntime(path, {"input": input_data})[0]
    assert np.linalg.norm(output - want) / np.linalg.norm(want) < 1e-3

    def tvm_inference():
        executor.set_input("input", tvm.nd.array(input_data))
        executor.run()

    tvm_time = timeit.timeit(tvm_inference, number=2) / 2
    print(f"TVM CPU: {tvm_time*1000:.2f} ms")

    lib.export_library(str(tmp_path / "resnet18_tvm.so"))
    loaded_lib = tvm.runtime.load_module(str(tmp_path / "resnet18_tvm.so"))
    again = graph_executor.GraphModule(loaded_lib["default"](tvm.cpu(0)))
    again.set_input("input", tvm.nd.array(input_data))
    again.run()
    np.testing.assert_array_equal(again.get_output(0).numpy(), output)


def test_inspect_the_stages(path):
    onnx_model = onnx.load(path)
    mod, params = relay.frontend.from_onnx(onnx_model, {"input": (1, 3, 224, 224)})
    with tvm.transform.PassContext(opt_level=3):
        mod_optimized = relay.transform.InferType()(mod)
        mod_optimized = relay.transform.FuseOps(fuse_opt_level=2)(mod_optimized)
    text = str(mod_optimized["main"])
    assert "Primitive=1" in text


def test_every_level(path):
    onnx_model = onnx.load(path)
    mod, params = relay.frontend.from_onnx(onnx_model, {"input": (1, 3, 224, 224)})
    target = tvm.target.Target("llvm -mcpu=native") if tvm.runtime.enabled("llvm") else tvm.target.Target("c")
    input_data = np.random.randn(1, 3, 224, 224).astype("float32")
    outputs = []
    for opt_level in [0, 1, 2, 3]:
        with tvm.transform.PassContext(opt_level=opt_level):
            lib = relay.build(mod, target=target, params=params)
        dev = tvm.cpu(0)
        executor = graph_executor.GraphModule(lib["default"](dev))

        def run():
            executor.set_input("input", tvm.nd.array(input_data))
            executor.run()

        run()
        time_ms = timeit.timeit(run, number=1) / 1 * 1000
        print(f"opt_level={opt_level}: {time_ms:.2f} ms")
        outputs.append(executor.get_output(0).numpy())
    for out in outputs[1:]:
        assert np.linalg.norm(out - outputs[0]) / np.linalg.norm(outputs[0]) < 1e-4


def test_count_operators(path, capsys):
    onnx_model = onnx.load(path)
    mod, params = relay.frontend.from_onnx(onnx_model, {"input": (1, 3, 224, 224)})

    def count_ops(expr):
        ops = {}

        def visit(node):
            if isinstance(node, tvm.relay.Call):
                op_name = str(node.op)
                ops[op_name] = ops.get(op_name, 0) + 1

        tvm.relay.analysis.post_order_visit(mod["main"], visit)
        return ops

    op_counts = count_ops(mod["main"])
    for op, count in sorted(op_counts.items(), key=lambda x: -x[1]):
        print(f"  {op}: {count}")
    assert op_counts["nn.conv2d"] == 20 and op_counts["nn.batch_norm"] == 20 and op_counts["nn.relu"] == 17
