"""Every listing of the pass lesson, in its order, with only the import lines changed."""

import timeit

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import lathe as tvm  # noqa: E402
from lathe import relay  # noqa: E402

from networks import resnet18_bn  # noqa: E402


@pytest.fixture(scope="module")
def onnx_model():
    return resnet18_bn()


@pytest.fixture()
def mod(onnx_model):
    return relay.frontend.from_onnx(onnx_model, {"input": (1, 3, 224, 224)})[0]


def residual():
    x = relay.var("x", shape=(1, 64, 56, 56), dtype="float32")
    w = relay.var("w", shape=(64, 64, 3, 3), dtype="float32")
    conv = relay.nn.conv2d(x, w, padding=(1, 1))
    bn = relay.nn.batch_norm(conv,
        relay.var("gamma", shape=(64,)),
        relay.var("beta", shape=(64,)),
        relay.var("mean", shape=(64,)),
        relay.var("var", shape=(64,)),
    )
    relu = relay.nn.relu(bn[0])
    out = relay.add(relu, x)
    func = relay.Function(relay.analysis.free_vars(out), out)
    return tvm.IRModule.from_expr(func)


def test_pass_context(mod):
    target = "llvm" if tvm.runtime.enabled("llvm") else "c"
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target)
    with pytest.warns(UserWarning, match="use_auto_scheduler"):
        with tvm.transform.PassContext(
            opt_level=3,
            config={
                "relay.FuseOps.max_depth": 5,
                "relay.backend.use_auto_scheduler": True,
            },
            disabled_pass=["AlterOpLayout"],
        ):
            lib = relay.build(mod, target=target)
    assert lib["default"](tvm.cpu(0))


def test_single_passes_and_sequential(mod):
    one = relay.transform.InferType()(mod)
    one = relay.transform.FoldConstant()(one)
    one = relay.transform.FuseOps(fuse_opt_level=2)(one)
    seq = tvm.transform.Sequential([
        relay.transform.InferType(),
        relay.transform.SimplifyInference(),
        relay.transform.FoldConstant(),
        relay.transform.FuseOps(fuse_opt_level=2),
    ])
    with tvm.transform.PassContext(opt_level=3):
        mod_optimized = seq(mod)
    assert "nn.batch_norm" not in str(mod_optimized["main"]) and "Primitive=1" in str(mod_optimized["main"])


def test_fusion(capsys):
    mod = residual()
    mod = relay.transform.InferType()(mod)
    print("=== Before Fusion ===")
    print(mod["main"])
    mod = relay.transform.SimplifyInference()(mod)
    mod = relay.transform.InferType()(mod)
    mod = relay.transform.FuseOps(fuse_opt_level=2)(mod)
    print("\n=== After Fusion ===")
    print(mod["main"])
    before, after = capsys.readouterr().out.split("=== After Fusion ===")
    assert "nn.batch_norm(" in before and "nn.batch_norm(" not in after
    assert "nn.conv2d(" in after and "Primitive=1" in after


def test_fold_constant():
    x = relay.var("input", shape=(4,), dtype="float32")
    y = relay.multiply(x, relay.add(relay.const(1.0), relay.const(2.0)))
    mod = relay.transform.FoldConstant()(tvm.IRModule.from_expr(relay.Function([x], y)))
    call = mod["main"].body
    assert call.op.name == "multiply" and call.args[1].data.numpy() == 3.0
    shape = relay.shape_of(relay.const(np.zeros((1, 3, 224, 224), "float32")))
    mod = relay.transform.FoldConstant()(tvm.IRModule.from_expr(relay.Function([], shape)))
    np.testing.assert_array_equal(mod["main"].body.data.numpy(), [1, 3, 224, 224])


def test_simplify_inference(mod):
    out = relay.transform.SimplifyInference()(relay.transform.InferType()(mod))
    text = str(out["main"])
    assert "nn.batch_norm" not in text and "multiply(" in text and "add(" in text


def test_alter_op_layout(mod):
    target = tvm.target.Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake")
    with target, tvm.transform.PassContext(opt_level=3):
        out = relay.transform.AlterOpLayout()(relay.transform.InferType()(mod))
    assert "layout_transform(" in str(out["main"])


def test_function_pass(mod):
    @relay.transform.function_pass(opt_level=1)
    class ReluReplacer:
        """Replace nn.relu with clip(0, inf) — a custom pass example."""
        def transform_function(self, func, mod, ctx):
            class Replacer(relay.ExprMutator):
                def visit_call(self, call):
                    call = super().visit_call(call)
                    if isinstance(call.op, tvm.ir.Op) and call.op.name == "nn.relu":
                        return relay.clip(call.args[0], a_min=0.0, a_max=float("inf"))
                    return call
            return Replacer().visit(func)

    mod_transformed = ReluReplacer()(mod)
    text = str(mod_transformed["main"])
    assert "nn.relu" not in text and text.count("clip(") == 17
    assert "nn.relu" in str(mod["main"])


def make_count_and_report():
    @relay.transform.function_pass(opt_level=1)
    class CountAndReport:
        """Report statistics about each function (analysis pass)."""
        def transform_function(self, func, mod, ctx):
            op_counts = {}
            def count(node):
                if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
                    name = node.op.name
                    op_counts[name] = op_counts.get(name, 0) + 1
            relay.analysis.post_order_visit(func, count)
            total = sum(op_counts.values())
            print(f"  Function has {total} ops: {dict(op_counts)}")
            return func

    return CountAndReport


def test_analysis_pass_in_a_pipeline(mod, capsys):
    CountAndReport = make_count_and_report()
    pipeline = tvm.transform.Sequential([
        relay.transform.InferType(),
        CountAndReport(),
        relay.transform.SimplifyInference(),
        CountAndReport(),
        relay.transform.FuseOps(),
        CountAndReport(),
    ])
    pipeline(mod)
    lines = [line for line in capsys.readouterr().out.splitlines() if "Function has" in line]
    assert len(lines) == 3 and "'nn.batch_norm': 20" in lines[0] and "nn.batch_norm" not in lines[1]


def test_module_pass(mod):
    @tvm.ir.transform.module_pass(opt_level=2, name="MyCustomPass")
    class MyCustomPass:
        def transform_module(self, mod, ctx):
            for gvar, func in mod.functions.items():
                if isinstance(func, relay.Function):
                    new_func = self._optimize(func)
                    mod.update_func(gvar, new_func)
            return mod

        def _optimize(self, func):
            return func

    p = MyCustomPass()
    assert p.info.name == "MyCustomPass" and p.info.opt_level == 2
    assert tvm.ir.structural_equal(p(mod)["main"], mod["main"])


def test_walk_through_the_passes(onnx_model, capsys):
    mod, params = relay.frontend.from_onnx(onnx_model, {"input": (1, 3, 224, 224)})
    passes = [
        ("InferType", relay.transform.InferType()),
        ("SimplifyInference", relay.transform.SimplifyInference()),
        ("FoldConstant", relay.transform.FoldConstant()),
        ("EliminateCommonSubexpr", relay.transform.EliminateCommonSubexpr()),
        ("FuseOps", relay.transform.FuseOps(fuse_opt_level=2)),
    ]

    def count_ops(mod):
        ops = {}
        def visit(node):
            if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
                ops[node.op.name] = ops.get(node.op.name, 0) + 1
        relay.analysis.post_order_visit(mod["main"], visit)
        return sum(ops.values()), ops

    counts = []
    for name, p in passes:
        before_count, _ = count_ops(mod)
        mod = p(mod)
        after_count, after_ops = count_ops(mod)
        delta = after_count - before_count
        sign = "+" if delta >= 0 else ""
        print(f"  {name:30s} {before_count:3d} → {after_count:3d} ops ({sign}{delta})")
        counts.append((before_count, after_count, after_ops))
    assert counts[0][0] == counts[0][1]
    assert "nn.batch_norm" not in counts[1][2]
    assert counts[2][1] < counts[2][0]


def test_fusion_analyzer(mod, capsys):
    @relay.transform.function_pass(opt_level=0)
    class FusionAnalyzer:
        """Identify fusable chains before FuseOps runs."""
        def transform_function(self, func, mod, ctx):
            current_chain = []
            def categorize(op_name):
                elemwise = {"nn.relu", "sigmoid", "tanh", "add", "multiply", "subtract"}
                injective = {"reshape", "transpose", "expand_dims", "squeeze"}
                compute = {"nn.conv2d", "nn.dense", "nn.batch_matmul"}
                if op_name in elemwise: return "elemwise"
                if op_name in injective: return "injective"
                if op_name in compute: return "compute"
                return "opaque"
            def visit(node):
                if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
                    cat = categorize(node.op.name)
                    current_chain.append((node.op.name, cat))
            relay.analysis.post_order_visit(func, visit)
            print("  Potential fusion chains:")
            for i, (name, cat) in enumerate(current_chain):
                print(f"    [{i:2d}] {name:30s} ({cat})")
            return func

    FusionAnalyzer()(mod)
    out = capsys.readouterr().out
    assert "[ 0] nn.conv2d" in out and "(elemwise)" in out


def test_with_and_without_simplify_inference(onnx_model):
    target = tvm.target.Target("llvm -mcpu=native") if tvm.runtime.enabled("llvm") else tvm.target.Target("c")
    mod_raw, params = relay.frontend.from_onnx(onnx_model, {"input": (1, 3, 224, 224)})
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["SimplifyInference"]):
        lib_no_bn_fold = relay.build(mod_raw, target=target, params=params)
    mod_raw2, params2 = relay.frontend.from_onnx(onnx_model, {"input": (1, 3, 224, 224)})
    with tvm.transform.PassContext(opt_level=3):
        lib_bn_fold = relay.build(mod_raw2, target=target, params=params2)
    input_data = np.random.randn(1, 3, 224, 224).astype("float32")
    outputs = []
    for name, lib in [("No BN fold", lib_no_bn_fold), ("With BN fold", lib_bn_fold)]:
        from lathe.contrib import graph_executor
        dev = tvm.cpu(0)
        ex = graph_executor.GraphModule(lib["default"](dev))
        ex.set_input("input", tvm.nd.array(input_data))
        def run():
            ex.run()
        run()
        t = timeit.timeit(run, number=2) / 2
        print(f"  {name:15s}: {t*1000:.2f} ms")
        outputs.append(ex.get_output(0).numpy())
    assert np.linalg.norm(outputs[0] - outputs[1]) / np.linalg.norm(outputs[1]) < 1e-4
