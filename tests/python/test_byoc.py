"""External compilers: patterns, regions, functions, and the code that is made of them, under every executor."""

import ctypes
import subprocess

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor
from lathe.relay.backend.contrib import CSource, Graph, Module, Object, arguments, to_json
from lathe.relay.dataflow_pattern import is_constant, is_op, wildcard
from lathe.relay.op.annotation import compiler_begin, compiler_end
from lathe.relay.op.contrib import get_pattern_table, register_pattern_table
from lathe.relay.transform import AnnotateTarget, InferTypeLocal, MergeComposite, MergeCompilerRegions, PartitionGraph

RNG = np.random.default_rng(23)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def module(*outputs):
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(list(outputs))
    return lathe.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def calls(func, inside=False):
    """Names of the operators below a function, those in composite functions only where `inside`."""
    hidden, found = set(), []

    def hide(e):
        if isinstance(e, relay.Call) and isinstance(e.op, relay.Function):
            relay.analysis.post_order_visit(e.op.body, hidden.add)

    def visit(e):
        if isinstance(e, relay.Call) and (inside or e not in hidden):
            composite = isinstance(e.op, relay.Function)
            found.append((e.op.attrs or {})["Composite"] if composite else getattr(e.op, "name", str(e.op)))

    relay.analysis.post_order_visit(func.body, hide)
    relay.analysis.post_order_visit(func.body, visit)
    return found


def externals(mod):
    return {v.name_hint: f for v, f in mod.functions.items() if "Compiler" in (f.attrs or {})}


def run(lib, inputs):
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.run(**inputs)
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


# ---- MergeComposite


def dense_relu():
    x, w, b = relay.var("x", shape=(4, 8)), relay.const(floats(16, 8)), relay.const(floats(16))
    return relay.nn.relu(relay.add(relay.nn.dense(x, w), b))


DENSE = is_op("nn.dense")(wildcard(), is_constant())


def test_earlier_patterns_win_and_what_they_took_is_closed():
    table = [("a.long", is_op("nn.relu")(DENSE + wildcard())), ("a.short", DENSE)]
    assert calls(MergeComposite(table)(module(dense_relu()))["main"]) == ["a.long"]
    assert calls(MergeComposite(table[::-1])(module(dense_relu()))["main"]) == ["a.short", "add", "nn.relu"]


def test_composites_say_what_they_are_and_compute_the_same():
    mod = module(dense_relu())
    merged = MergeComposite([("a.long", is_op("nn.relu")(DENSE + wildcard()))])(mod)
    func = merged["main"].body.op
    assert func.attrs["Composite"] == "a.long"
    assert func.attrs["PartitionedFromPattern"] == "nn.dense_add_nn.relu_"
    x = floats(4, 8)
    run_one = lambda m: relay.create_executor("debug", m).evaluate()(x).numpy()  # noqa: E731
    np.testing.assert_array_equal(run_one(merged), run_one(mod))


def test_a_check_sees_typed_expressions_and_may_refuse():
    seen = []

    def check(expr):
        seen.append((expr.op.name, str(expr.checked_type), expr.args[1].data.numpy().shape))
        return expr.checked_type == relay.TensorType((4, 16), "float32")

    x = relay.var("x", shape=(4, 8))
    y = relay.nn.dense(relay.nn.dense(x, relay.const(floats(16, 8))), relay.const(floats(3, 16)))
    merged = MergeComposite([("a.dense", DENSE, check)])(module(y))
    assert sorted(seen) == [
        ("nn.dense", "Tensor[(4, 16), float32]", (16, 8)),
        ("nn.dense", "Tensor[(4, 3), float32]", (3, 16)),
    ]
    assert calls(merged["main"]) == ["a.dense", "nn.dense"]


def test_what_is_read_from_outside_is_no_match():
    d = relay.nn.dense(relay.var("x", shape=(4, 8)), relay.const(floats(16, 8)))
    merged = MergeComposite([("a.relu", is_op("nn.relu")(DENSE))])(module(relay.nn.relu(d), relay.exp(d)))
    assert "a.relu" not in calls(merged["main"])


def test_exceptions_of_checks_come_out_as_themselves():
    def check(_expr):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        MergeComposite([("a.dense", DENSE, check)])(module(dense_relu()))


def test_tables_are_found_by_name():
    register_pattern_table("byoc_table", lambda: [("byoc_table.dense", DENSE)])
    assert calls(MergeComposite(get_pattern_table("byoc_table"))(module(dense_relu()))["main"])[0] == "byoc_table.dense"
    with pytest.raises(lathe.error.ArgumentError, match="no table of patterns for 'nobody'"):
        get_pattern_table("nobody")
    with pytest.raises(lathe.error.TypeError, match="a row of a table"):
        MergeComposite([("only a name",)])
    with pytest.raises(lathe.error.UnsupportedError, match="has_dtype and has_shape"):
        MergeComposite([("a.b", wildcard().has_type(relay.TensorType((1,))))])(module(dense_relu()))


# ---- AnnotateTarget


def takes(op, compiler, answer=True):
    lathe.ir.register_op_attr(op, "target." + compiler, lambda expr: answer, level=20)


def test_each_use_leaves_its_region_and_enters_the_next():
    takes("nn.relu", "byoc_ends")
    r = relay.nn.relu(relay.var("x", shape=(10, 10)))
    got = AnnotateTarget("byoc_ends")(module(relay.add(relay.abs(r), relay.exp(r))))

    inner = relay.nn.relu(compiler_begin(relay.var("x", shape=(10, 10)), "byoc_ends"))
    sides = [
        compiler_end(op(compiler_begin(compiler_end(inner, "byoc_ends"), "default")), "default")
        for op in (relay.abs, relay.exp)
    ]
    total = relay.add(*[compiler_begin(s, "default") for s in sides])
    want = relay.transform.InferType()(module(compiler_end(total, "default")))
    lathe.ir.assert_structural_equal(got, want)


def test_tuples_go_where_their_fields_are():
    for op in ("nn.relu", "concatenate"):
        takes(op, "byoc_tuple")
    x, y = relay.var("x", shape=(10, 5)), relay.var("y", shape=(10, 5))
    mod = module(relay.concatenate([relay.nn.relu(x), relay.nn.relu(y)], axis=1))
    one = PartitionGraph()(MergeCompilerRegions()(AnnotateTarget("byoc_tuple")(mod)))
    assert [calls(f) for f in externals(one).values()] == [["nn.relu", "nn.relu", "concatenate"]]
    without = AnnotateTarget("byoc_tuple", include_non_call_ops=False)(mod)
    apart = externals(PartitionGraph()(MergeCompilerRegions()(without)))
    assert sorted(calls(f) for f in apart.values()) == [["concatenate"], ["nn.relu"], ["nn.relu"]]


def test_the_first_compiler_that_takes_a_call_has_it_and_two_runs_are_one():
    takes("nn.relu", "byoc_a")
    takes("nn.relu", "byoc_b")
    takes("add", "byoc_b")
    a = relay.nn.relu(relay.var("x", shape=(10, 5)))
    mod = module(relay.add(relay.abs(a), relay.nn.relu(a)))
    both = AnnotateTarget(["byoc_a", "byoc_b"])(mod)
    lathe.ir.assert_structural_equal(AnnotateTarget("byoc_b")(AnnotateTarget("byoc_a")(mod)), both)
    owner = {f.attrs["Compiler"]: calls(f) for f in externals(PartitionGraph()(both)).values()}
    assert owner["byoc_b"] == ["add"]


def test_predicates_see_the_call_and_are_kept_by_operator():
    seen = []
    lathe.ir.register_op_attr("exp", "target.byoc_seen", lambda e: seen.append(e.args[0].checked_type.dtype) or False)
    AnnotateTarget("byoc_seen")(module(relay.exp(relay.var("x", shape=(2,), dtype="float64"))))
    assert seen == ["float64"]
    assert relay.op.get("exp").get_attr("target.byoc_seen") is not None
    assert relay.op.get("exp").get_attr("target.nobody") is None
    with pytest.raises(lathe.error.LatheError, match="no_such_op"):
        lathe.ir.register_op_attr("no_such_op", "target.x", lambda e: True)


def test_types_of_expressions():
    total = relay.add(relay.var("x", shape=(2, 1)), relay.var("y", shape=(3,)))
    assert InferTypeLocal(total) == relay.TensorType((2, 3))


# ---- regions


def test_merging_goes_around_what_lies_between():
    """add reads relu of its own region and tanh, which reads that region too; exp behind it can join."""
    for op in ("abs", "nn.relu", "add", "exp"):
        takes(op, "byoc_diamond")
    a = relay.abs(relay.var("x", shape=(4,)))
    mod = module(relay.exp(relay.add(relay.nn.relu(a), relay.tanh(a))))
    part = PartitionGraph()(MergeCompilerRegions()(AnnotateTarget("byoc_diamond")(mod)))
    assert sorted(calls(f) for f in externals(part).values()) == [["abs", "nn.relu"], ["add", "exp"]]
    x = floats(4)
    got = relay.create_executor("debug", part).evaluate()(x).numpy()
    np.testing.assert_allclose(got, np.exp(abs(x) + np.tanh(abs(x))), rtol=1e-6)


def test_a_detour_that_joins_is_none_any_more():
    """a -> b and a -> c -> b: b joins when c has."""
    for op in ("abs", "nn.relu", "add"):
        takes(op, "byoc_detour")
    a = relay.abs(relay.var("x", shape=(4,)))
    mod = module(relay.add(a, relay.nn.relu(a)))
    part = PartitionGraph()(MergeCompilerRegions()(AnnotateTarget("byoc_detour")(mod)))
    assert [calls(f) for f in externals(part).values()] == [["abs", "nn.relu", "add"]]


def test_functions_of_regions():
    takes("add", "byoc_part")
    x, w = relay.var("x", shape=(2, 2)), relay.const(floats(2, 2))
    mod = AnnotateTarget("byoc_part")(module(relay.exp(relay.add(x, w))))
    (name, func), = externals(PartitionGraph(mod_name="net")(mod)).items()
    assert name == "tvmgen_net_byoc_part_main_0" == func.attrs["global_symbol"]
    assert func.attrs["Compiler"] == "byoc_part" and func.attrs["Primitive"] == 1 and func.attrs["Inline"] == 1
    assert len(func.params) == 1 and isinstance(func.body.args[1], relay.Constant)
    (_, open_), = externals(PartitionGraph(bind_constants=False)(mod)).items()
    assert len(open_.params) == 2
    once = PartitionGraph()(mod)
    lathe.ir.assert_structural_equal(PartitionGraph()(AnnotateTarget("byoc_part")(once)), once)


# ---- code generators


def c_product(g, k, name):
    """C for dense, with bias and relu where the kernel has them."""
    (m, n), depth = k.outputs[0].shape, k.inputs[0].shape[1]
    bias = f"{name(k.inputs[2])}[j]" if len(k.inputs) > 2 else "0"
    value = "s < 0 ? 0 : s" if "nn.relu" in k.ops else "s"
    x, w, y = name(k.inputs[0]), name(k.inputs[1]), name(k.outputs[0])
    return (
        f"  for (int i = 0; i < {m}; i++)\n    for (int j = 0; j < {n}; j++) {{\n      float s = {bias};\n"
        f"      for (int k = 0; k < {depth}; k++) s += {x}[i * {depth} + k] * {w}[j * {depth} + k];\n"
        f"      {y}[i * {n} + j] = {value};\n    }}\n"
    )


def c_source(func, status=0):
    g = Graph(func)
    outs = {t.id: f"o{i}" for i, t in enumerate(g.outputs)}
    name = lambda t: outs.get(t.id, f"t{t.id}")  # noqa: E731
    params = [f"const float *{name(t)}" for t in g.inputs + g.constants] + [f"float *{o}" for o in outs.values()]
    inner = [t for k in g.kernels for t in k.outputs if t.id not in outs]
    memory = "".join(f"  float t{t.id}[{int(np.prod(t.shape))}];\n" for t in inner)
    body = "".join(c_product(g, k, name) for k in g.kernels)
    return f"#include <stdint.h>\nint32_t {g.symbol}({', '.join(params)})\n{{\n{memory}{body}  return {status};\n}}\n"


def two_layers(compiler):
    """x -> relu(dense + bias) -> dense, relu outside; what numpy makes of it."""
    w, b, v = floats(16, 8), floats(16), floats(3, 16)
    h = relay.nn.relu(relay.add(relay.nn.dense(relay.var("x", shape=(4, 8)), relay.const(w)), relay.const(b)))
    mod = module(relay.nn.relu(relay.nn.dense(h, relay.const(v))), relay.exp(h))
    table = [(compiler + ".dense_bias_relu", is_op("nn.relu")(DENSE + wildcard())), (compiler + ".dense", DENSE)]
    for p in (MergeComposite(table), AnnotateTarget(compiler), MergeCompilerRegions(), PartitionGraph()):
        mod = p(mod)
    x = floats(4, 8)
    hidden = np.maximum(x @ w.T + b, 0)
    return mod, {"x": x}, [np.maximum(hidden @ v.T, 0), np.exp(hidden)]


def agree(got, want):
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_three_steps_of_the_lesson(tmp_path):
    """Match patterns, partition into composite functions, run both kinds of code under one executor."""
    lathe.register_func("relay.ext.byoc_lesson", lambda f: CSource(c_source(f)), override=True)
    mod, x, want = two_layers("byoc_lesson")
    (func,) = externals(mod).values()
    assert calls(func) == ["byoc_lesson.dense_bias_relu", "byoc_lesson.dense"]
    assert sorted(calls(mod["main"]))[-2:] == ["exp", "nn.relu"]
    for target in ("llvm", "c"):
        lib = relay.build(mod, target=target)
        agree(run(lib, x), want)
        lib.export_library(str(tmp_path / "net.so"))
        agree(run(lathe.runtime.load_module(str(tmp_path / "net.so")), x), want)


def test_under_the_vm_with_sizes_of_the_run():
    lathe.register_func("relay.ext.byoc_vm", lambda f: CSource(c_source(f)), override=True)
    mod, x, want = two_layers("byoc_vm")
    (name,) = externals(mod)
    n = relay.var("n", shape=(relay.Any(),))
    call = relay.Call(relay.GlobalVar(name), [relay.var("x", shape=(4, 8))])
    fields = [relay.TupleGetItem(call, i) for i in range(2)]
    mod["main"] = relay.Function([call.args[0], n], relay.Tuple([*fields, relay.exp(n)]))
    mod = relay.transform.InferType()(mod)
    extra = floats(5)
    *got, last = run(relay.build(mod, target="llvm"), {**x, "n": extra})
    by_width = {g.shape[1]: g for g in got}
    agree([np.maximum(by_width[3], 0), np.exp(by_width[16]), last], [*want, np.exp(extra)])


def test_ahead_of_time(tmp_path):
    lathe.register_func("relay.ext.byoc_aot", lambda f: CSource(c_source(f)), override=True)
    mod, x, want = two_layers("byoc_aot")
    lib = relay.build(mod, target="c", executor=relay.backend.Executor("aot", {"interface-api": "plain"}))
    lib.export_library(str(tmp_path / "net.c"))
    so = tmp_path / "net.so"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, tmp_path / "net.c", "-lm", "-o", so], check=True)
    out = [np.zeros_like(w) for w in want]
    workspace = np.zeros(1 << 16, "uint8")
    status = ctypes.CDLL(str(so)).net_run(*[ctypes.c_void_p(a.ctypes.data) for a in (x["x"], *out, workspace)])
    assert status == 0
    agree(out, want)


def test_objects(tmp_path):
    def generate(func):
        (tmp_path / "f.c").write_text(c_source(func))
        subprocess.run(["cc", "-c", "-fPIC", tmp_path / "f.c", "-o", tmp_path / "f.o"], check=True)
        return Object((tmp_path / "f.o").read_bytes())

    lathe.register_func("relay.ext.byoc_object", generate, override=True)
    mod, x, want = two_layers("byoc_object")
    lib = relay.build(mod, target="llvm")
    lib.export_library(str(tmp_path / "net.so"))
    agree(run(lathe.runtime.load_module(str(tmp_path / "net.so")), x), want)
    with pytest.raises(lathe.error.UnsupportedError, match="takes C source alone"):
        relay.build(mod, target="c", executor=relay.backend.Executor("aot"))


def test_constants_that_an_updater_gives():
    """The weights come doubled, and under the updater's names."""
    seen = []

    def update(func, symbol):
        g = Graph(func)
        return {f"{symbol}_twice_{i}": 2 * t.array for i, t in enumerate(g.constants)}

    def generate(func):
        seen.extend(a.name for a in arguments(func, update(func, "s")) if a.role == "constant")
        return CSource(c_source(func))

    lathe.register_func("relay.ext.byoc_twice", generate, override=True)
    lathe.register_func("relay.ext.byoc_twice.constant_updater", update, override=True)
    w = floats(3, 8)
    mod = module(relay.nn.dense(relay.var("x", shape=(2, 8)), relay.const(w)))
    for p in (MergeComposite([("byoc_twice.d", DENSE)]), AnnotateTarget("byoc_twice"), PartitionGraph()):
        mod = p(mod)
    x = floats(2, 8)
    agree(run(relay.build(mod, target="llvm"), {"x": x}), [x @ (2 * w).T])
    assert seen == ["s_twice_0"]


def test_graphs_as_json():
    import json

    mod, _, _ = two_layers("byoc_json")
    (func,) = externals(mod).values()
    g = json.loads(to_json(func))
    assert g["version"] == 1 and g["symbol"] == func.attrs["global_symbol"]
    assert [k["ops"] for k in g["kernels"]] == [["nn.dense", "add", "nn.relu"], ["nn.dense"]]
    first, second = g["kernels"]
    assert [g["tensors"][i]["shape"] for i in first["inputs"]] == [[4, 8], [16, 8], [16]]
    assert second["inputs"][0] == first["outputs"][0]
    assert sorted(g["outputs"]) == sorted([first["outputs"][0], second["outputs"][0]])


# ---- what goes wrong is a sentence


def refused(compiler, match, kind=lathe.error.LatheError, generate=None, go=None):
    if generate is not None:
        lathe.register_func("relay.ext." + compiler, generate, override=True)
    mod, x, _ = two_layers(compiler)
    with pytest.raises(kind, match=match):
        lib = relay.build(mod, target="llvm")
        run(lib, x) if go is None else go(lib)


def test_refusals(tmp_path):
    refused("byoc_none", "external compiler 'byoc_none', which has no code generator here")
    refused("byoc_wrong", "gives a CSource, an Object or a Module", generate=lambda f: 7)
    refused("byoc_status", "stopped with status 7", generate=lambda f: CSource(c_source(f, status=7)))
    refused("byoc_syntax", "failed with status .* on the generated C", generate=lambda f: CSource("int32_t no("))
    refused("byoc_kind", "a module needs a kind", generate=lambda f: Module("library", "x"))
    refused("byoc_loader", "'byoc_nobody', which nothing here loads", generate=lambda f: Module("byoc_nobody", "x"))
    refused("byoc_escape", "which nothing here loads", generate=lambda f: Module("../../tmp/evil", "x"))

    def broken(_func):
        raise ZeroDivisionError("of the generator")

    refused("byoc_raises", "of the generator", ZeroDivisionError, generate=broken)

    def again(_lib):
        relay.build(two_layers("byoc_text")[0], target="c").export_library(str(tmp_path / "no.c"))

    refused("byoc_text", "write .so, .o or .a", generate=lambda f: CSource(c_source(f)), go=again)


def test_sizes_that_c_source_is_not_told():
    lathe.register_func("relay.ext.byoc_open", lambda f: CSource("int32_t x(void);"), override=True)
    takes("exp", "byoc_open")
    mod = module(relay.exp(relay.var("x", shape=(relay.Any(), 2))))
    mod = PartitionGraph()(AnnotateTarget("byoc_open")(mod))
    with pytest.raises(lathe.error.UnsupportedError, match="C source is handed pointers alone"):
        relay.build(mod, target="llvm")


def test_marks_without_partition_change_nothing():
    takes("exp", "byoc_marks")
    mod = AnnotateTarget("byoc_marks")(module(relay.exp(relay.var("x", shape=(3,)))))
    x = floats(3)
    agree(run(relay.build(mod, target="llvm"), {"x": x}), [np.exp(x)])


# ---- choice by cost


def cost_of_calls(prices, calls_cost=1.0):
    """Costs that are counted: of each operator outside `prices`, of each call of an external function, and in it."""
    from lathe.relay.collage import CustomCostEstimator

    seen = []

    def cost(mod, target):
        total = 0.0
        for f in mod.functions.values():
            outside = "Compiler" in (f.attrs or {})
            total += calls_cost * outside
            for op in calls(f, inside=True):
                total += prices.get(op, (0, 0))[outside]
        seen.append((total, target))
        return total

    estimator = CustomCostEstimator(cost)
    estimator.seen = seen
    return estimator


def dense_twice(compiler):
    """dense(4, 16), exp, dense(3, 16) under a table with one pattern; nn.relu by an operator's own rule."""
    register_pattern_table(compiler, [(compiler + ".dense", DENSE)])
    takes("nn.relu", compiler)
    lathe.register_func("relay.ext." + compiler, lambda f: CSource(c_source(f)), override=True)
    h = relay.nn.relu(relay.nn.dense(relay.var("x", shape=(4, 8)), relay.const(floats(16, 8))))
    return module(relay.nn.dense(relay.exp(h), relay.const(floats(3, 16))))


def test_a_kernel_goes_where_it_costs_less():
    from lathe.relay.op.contrib import partition_for

    mod = dense_twice("byoc_cost")
    dear = cost_of_calls({"nn.dense": (10, 1), "nn.relu": (1, 5)})
    part = partition_for("byoc_cost", mod, cost=dear, target="llvm")
    assert sorted(calls(f)[0] for f in externals(part).values()) == ["byoc_cost.dense"] * 2
    assert [(r.name, r.times, r.taken) for r in dear.choice.report] == [
        ("byoc_cost.dense", 1, True), ("nn.relu", 1, False), ("byoc_cost.dense", 1, True), ("model", 1, True),
    ]
    assert {t for _, t in dear.seen} == {"llvm"} and "byoc_cost" in dear.choice.table()
    x = floats(4, 8)
    agree(
        [relay.create_executor("debug", part).evaluate()(x).numpy()],
        [relay.create_executor("debug", mod).evaluate()(x).numpy()],
    )


def test_the_whole_model_has_the_last_word():
    """Kernels win alone, and lose where each call of theirs costs more than it saves; and the other way round."""
    from lathe.relay.collage import CustomCostEstimator
    from lathe.relay.op.contrib import partition_for

    mod = dense_twice("byoc_whole")
    whole = lambda m: "exp" in calls(m["main"], inside=True)  # noqa: E731
    late = CustomCostEstimator(lambda m, t: len(externals(m)) * (9 if whole(m) else -1))
    part = partition_for("byoc_whole", mod, cost=late)
    assert not externals(part) and late.choice.report[-1].taken is False
    assert calls(part["main"]) == ["nn.dense", "nn.relu", "exp", "nn.dense"]
    early = CustomCostEstimator(lambda m, t: len(externals(m)) * (-1 if whole(m) else 1))
    assert len(externals(partition_for("byoc_whole", mod, cost=early))) == 2


def test_costs_that_are_measured():
    from lathe.relay.collage import CostEstimator
    from lathe.relay.op.contrib import partition_for

    compiler = "byoc_slow"
    mod = dense_twice(compiler)

    def slow(func):
        wait = "  for (volatile int i = 0; i < 3000000; i++) continue;\n  return 0;"
        return CSource(c_source(func).replace("  return 0;", wait))

    lathe.register_func("relay.ext." + compiler, slow, override=True)
    lathe.ir.register_op_attr("nn.relu", "target." + compiler, lambda e: False, level=30)
    cost = CostEstimator(rounds=2, seconds=0.001)
    part = partition_for(compiler, mod, cost=cost, target="llvm")
    assert not externals(part) and [r.taken for r in cost.choice.report] == [False] * 3
    with pytest.raises(lathe.error.ArgumentError, match='cost is "measured" or an estimator'):
        partition_for(compiler, mod, cost="guess")
    register_pattern_table("byoc_any", [("byoc_any.dense", DENSE)])
    free = module(relay.nn.dense(relay.var("x", shape=(relay.Any(), 8)), relay.const(floats(3, 8))))
    with pytest.raises(lathe.error.ArgumentError, match="give a value for it"):
        partition_for("byoc_any", free, cost="measured", target="llvm")


def test_the_shortest_run_counts():
    """What other programs on the machine take now and then does not decide."""
    import itertools
    import time

    from lathe.relay.collage import CostEstimator

    class Told(CostEstimator):
        def _runner(self, mod, target):
            calls = itertools.cycle([0.001, 0.02] if mod == "disturbed" else [0.004])
            return lambda: time.sleep(next(calls))

    disturbed, slow = Told(rounds=2, seconds=0.02).compare(["disturbed", "slow"], None)
    assert disturbed < slow
