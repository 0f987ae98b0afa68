"""Programs in the manner of TVM's tutorials, unchanged but for the import: the quick start, passes of one's own over
loops, tensor intrinsics by name, functions of Python inside of scripts, errors that are handed to a renderer."""

import numpy as np
import pytest

import lathe as tvm
from lathe import relay, te, tir
from lathe.contrib import graph_executor, utils
from lathe.ir.diagnostics import override_renderer
from lathe.relay import testing
from lathe.script import tir as T
from lathe.tir.tensor_intrin.arm_cpu import DP4A_S8U8S32_INTRIN
from lathe.tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN


def test_quick_start():
    """A network is built, run, stored as one file, loaded and run again."""
    mod, params = relay.testing.mlp.get_workload(batch_size=2, num_classes=7, image_shape=(1, 8, 8))
    assert "nn.dense" in mod.astext(show_meta_data=False)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, tvm.target.Target("llvm"), params=params)
    dev = tvm.cpu()
    data = np.random.default_rng(3).uniform(-1, 1, size=(2, 1, 8, 8)).astype("float32")
    module = graph_executor.GraphModule(lib["default"](dev))
    module.set_input("data", data)
    module.run()
    out = module.get_output(0, tvm.nd.empty((2, 7))).numpy()
    values = {k: v.numpy() for k, v in params.items()}
    x = data.reshape(2, -1)
    for layer in ("fc1", "fc2", "fc3"):
        x = x @ values[f"{layer}_weight"].T + values[f"{layer}_bias"]
        x = np.maximum(x, 0) if layer != "fc3" else x
    e = np.exp(x - x.max(axis=1, keepdims=True))
    tvm.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    temp = utils.tempdir()
    path = temp.relpath("deploy_lib.tar")
    lib.export_library(path)
    assert temp.listdir() == ["deploy_lib.tar"]
    module = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](dev))
    module.run(data=tvm.nd.array(data))
    tvm.testing.assert_allclose(module.get_output(0).numpy(), out, atol=1e-6)


def split_by_8():
    """A pass that makes loops of 8 vectors out of loops whose extent 8 divides."""
    found = []

    def look(op):
        if isinstance(op, tir.For) and isinstance(op.extent, tir.IntImm) and op.extent.value % 8 == 0:
            found.append(op)

    def change(op):
        if op not in found:
            return None
        outer, inner = te.var(op.loop_var.name + "_outer"), te.var(op.loop_var.name + "_inner")
        body = tir.stmt_functor.substitute(op.body, {op.loop_var: outer * 8 + inner})
        body = tir.For(inner, 0, 8, tir.ForKind.VECTORIZED, body)
        return tir.For(outer, 0, op.extent.value // 8, tir.ForKind.SERIAL, body)

    @tir.transform.prim_func_pass(opt_level=0)
    def vectors(f, mod, ctx):
        tir.stmt_functor.post_order_visit(f.body, look)
        return f.with_body(tir.stmt_functor.ir_transform(f.body, None, change, ["tir.For"])) if found else f

    return vectors


def test_pass_of_ones_own_over_loops():
    n = tir.const(128, "int32")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    sch = te.create_schedule(c.op)
    changed = split_by_8()(tvm.lower(sch, [a, b, c]))
    assert "for i_outer in range(16)" in str(changed) and "T.vectorized(8)" in str(changed)
    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, split_by_8())]}):
        assert "T.vectorized(8)" in str(tvm.lower(sch, [a, b, c]))
        func = tvm.build(sch, [a, b, c], target="c")
    assert "T.vectorized" not in str(tvm.lower(sch, [a, b, c]))
    x, y = (np.random.default_rng(k).random(128).astype("float32") for k in (1, 2))
    out = np.zeros(128, "float32")
    func(x, y, out)
    np.testing.assert_array_equal(out, x + y)
    with pytest.raises(ValueError, match="phase, pass"):
        tvm.transform.PassContext(config={"tir.add_lower_pass": [1]})


def test_ir_transform_before_the_parts():
    """What preorder gives is not looked into; blocks are refused by name."""

    @T.prim_func
    def func(A: T.Buffer((4,), "int32")):
        for i in range(4):
            if i < 2:
                A[i] = 1
            else:
                A[i] = 2

    loops = []
    tir.stmt_functor.post_order_visit(func, lambda n: loops.append(n) if isinstance(n, tir.For) else None)
    taken = tir.stmt_functor.ir_transform(
        loops[0], lambda s: s.then_case if isinstance(s, tir.IfThenElse) else None, None
    )
    values = []
    tir.stmt_functor.post_order_visit(taken, lambda n: values.append(n) if isinstance(n, tir.BufferStore) else None)
    assert [int(v.value) for v in values] == [1]
    blocks = []
    tir.stmt_functor.post_order_visit(bytes_matmul, lambda n: blocks.append(n) if isinstance(n, tir.Block) else None)
    with pytest.raises(tvm.error.UnsupportedError, match="block 'C' is not taken apart"):
        tir.stmt_functor.substitute(blocks[0], {})


@T.prim_func
def bytes_matmul(A: T.Buffer((8, 32), "uint8"), B: T.Buffer((2, 8, 16, 4), "int8"), C: T.Buffer((8, 32), "int32")):
    for i, jo, ji, ko, ki in T.grid(8, 2, 16, 8, 4):
        with T.block("C"):
            vi, vjo, vji, vko, vki = T.axis.remap("SSSRR", [i, jo, ji, ko, ki])
            with T.init():
                C[vi, vjo * 16 + vji] = 0
            C[vi, vjo * 16 + vji] = C[vi, vjo * 16 + vji] + T.cast(A[vi, vko * 4 + vki], "int32") * T.cast(
                B[vjo, vko, vji, vki], "int32"
            )


@pytest.mark.parametrize("target", ["c", "llvm"])
def test_tensor_intrinsic_by_name(target):
    sch = tir.Schedule(bytes_matmul)
    block = sch.get_block("C")
    i, jo, ji, ko, ki = sch.get_loops(block)
    sch.reorder(i, jo, ko, ji, ki)
    sch.decompose_reduction(block, ko)
    sch.tensorize(ji, VNNI_DOT_16x4_INTRIN)
    assert "T.dot(" in str(sch.mod)
    rng = np.random.default_rng(5)
    a = rng.integers(0, 256, (8, 32)).astype("uint8")
    b = rng.integers(-128, 128, (2, 8, 16, 4)).astype("int8")
    c = np.zeros((8, 32), "int32")
    tvm.build(sch.mod, target=target)(a, b, c)
    np.testing.assert_array_equal(c, a.astype("int32") @ b.transpose(0, 2, 1, 3).reshape(32, 32).astype("int32").T)


def test_scalar_dot_product_is_what_it_says():
    intrin = tir.TensorIntrin.get(DP4A_S8U8S32_INTRIN)
    a, b = np.array([-1, 2, -3, 4], "int8"), np.array([200, 100, 50, 25], "uint8")
    for f in (intrin.desc, intrin.impl):
        c = np.array([7], "int32")
        f.interpret(a, b, c)
        assert c[0] == 7 - 200 + 200 - 150 + 100


def swizzled(i, j):
    return i // 2, j * 2 + i % 2


def test_functions_of_python_inside_of_a_script():
    inside = lambda i, j: tir.all(i + j < 6, j > 0)  # noqa: E731

    @T.prim_func
    def func(A: T.Buffer((4, 4), "int32"), B: T.Buffer((2, 8), "int32")):
        for i, j in T.grid(4, 4):
            if inside(i, j):
                B[swizzled(i, j)] = A[i, j]

    a, b = np.arange(16, dtype="int32").reshape(4, 4), np.full((2, 8), -1, "int32")
    func.interpret(a, b)
    wanted = np.full((2, 8), -1, "int32")
    for i in range(4):
        for j in range(4):
            if i + j < 6 and j > 0:
                wanted[i // 2, j * 2 + i % 2] = a[i, j]
    np.testing.assert_array_equal(b, wanted)


def test_a_renderer_is_told_before_the_error_is_raised():
    told = []
    override_renderer(lambda context: told.extend(context.diagnostics))
    try:
        with pytest.raises(tvm.error.DiagnosticError):
            tvm.script.from_source("@T.prim_func\ndef f(A: T.Buffer((4,), 'int32')):\n    A[0] = nothing\n")
    finally:
        override_renderer(None)
    assert len(told) == 1 and told[0].span.line == 3 and "nothing" in told[0].message


# ---- instruments of passes


def watching(log):
    @tvm.instrument.pass_instrument
    class Watch:
        def __init__(self, name, bad=""):
            self.name, self.bad = name, bad

        def note(self, what):
            if self.bad == what:
                raise ValueError(f"{self.name}: bad {what}")
            log.append(f"{self.name} {what}")

        def enter_pass_ctx(self):
            self.note("enter")

        def exit_pass_ctx(self):
            self.note("exit")

        def run_before_pass(self, mod, info):
            self.note("before")

    return Watch


@pytest.mark.parametrize(
    "bad, want",
    [
        ("enter", "a enter, a exit"),  # those that were entered are left
        ("exit", "a enter, b enter, c enter, a before, b before, c before, a exit"),  # those behind are not told
        ("before", "a enter, b enter, c enter, a before, a exit, b exit, c exit"),
    ],
)
def test_an_instrument_that_raises(bad, want):
    log = []
    watch = watching(log)
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], x + x))
    ctx = tvm.transform.PassContext(instruments=[watch("a"), watch("b", bad), watch("c")])
    with pytest.raises(ValueError, match=f"b: bad {bad}"):
        with ctx:
            relay.transform.InferType()(mod)
    assert log == want.split(", ")
    assert tvm.transform.PassContext.current() is not ctx
    log.clear()
    ctx.override_instruments([])
    assert log == ([] if bad != "before" else ["a exit", "b exit", "c exit"])


def test_instruments_of_the_context_that_is_always_there():
    log = []
    ctx = tvm.transform.PassContext.current()
    ctx.override_instruments([watching(log)("a")])
    try:
        x = relay.var("x", shape=(2,))
        relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], x + x)))
    finally:
        tvm.transform.PassContext.current().override_instruments([])
    assert log == ["a enter", "a before", "a exit"]


# ---- pictures of modules


def test_relay_visualizer(tmp_path):
    from lathe.contrib import relay_viz
    from lathe.contrib.relay_viz.interface import VizEdge, VizNode, VizParser
    from lathe.contrib.relay_viz.terminal import TermGraph, TermPlotter, TermVizParser

    inner = relay.GlobalVar("inner")
    a, b, x, y = (relay.var(n, shape=(3,)) for n in "abxy")
    mod = tvm.IRModule({
        inner: relay.Function([a, b], relay.nn.relu(a) + b),
        relay.GlobalVar("main"): relay.Function([x, y], relay.Call(inner, [y, relay.Call(inner, [x, y])])),
    })
    relay_viz.RelayVisualizer(mod, {"b": None}).render(str(tmp_path / "plain"))
    assert (tmp_path / "plain").read_text() == """@main(GlobalVar)
  --0: Function (params: x, y)
    --1: Call
      --2: GlobalVar (name_hint: inner)
      --3: Var(Input) (name_hint: y type: Tensor[(3), float32])
      --4: Call
        --2: GlobalVar (name_hint: inner)
        --5: Var(Input) (name_hint: x type: Tensor[(3), float32])
        --3: Var(Input) (name_hint: y type: Tensor[(3), float32])
@inner(GlobalVar)
  --0: Function (params: a, b)
    --1: Call add
      --2: Call nn.relu
        --3: Var(Input) (name_hint: a type: Tensor[(3), float32])
      --4: Var(Param) (name_hint: b type: Tensor[(3), float32])
"""

    class Parser(VizParser):
        def get_node_edges(self, node, relay_param, node_to_id):
            if isinstance(node, relay.Var):
                return VizNode(node_to_id[node], "Mine", node.name_hint), []
            return TermVizParser().get_node_edges(node, relay_param, node_to_id)

    class Graph(TermGraph):
        def node(self, viz_node):
            super().node(viz_node)
            if viz_node.type_name == "Mine":
                super().node(VizNode("2" + viz_node.identity, "Twin", ""))
                super().edge(VizEdge("2" + viz_node.identity, viz_node.identity))

    class Plotter(TermPlotter):
        def create_graph(self, name):
            self._name_to_graph[name] = Graph(name)
            return self._name_to_graph[name]

    relay_viz.RelayVisualizer(mod, {}, Plotter(), Parser()).render(str(tmp_path / "mine"))
    text = (tmp_path / "mine").read_text()
    assert text.count("Mine") == 5 and text.count("Twin") == 4 and "Var" not in text.replace("GlobalVar", "")


# ---- arithmetic on whole tensors, and loops to look at


def test_arithmetic_on_tensors_is_topi():
    import lathe.topi  # pylint: disable=unused-import

    a, b = te.placeholder((4, 3), name="a"), te.placeholder((3,), name="b")
    out = (a + b) * a - b / 2.0 + (1.0 - a)
    s = te.create_schedule(out.op)
    x, y = (np.random.rand(*n).astype("float32") for n in ((4, 3), (3,)))
    got = np.zeros((4, 3), "float32")
    tvm.build(s, [a, b, out])(x, y, got)
    np.testing.assert_allclose(got, (x + y) * x - y / 2 + (1 - x), rtol=1e-6)
    assert out.op.name in str(tvm.lower(s, [a, b], simple_mode=True))  # outputs follow where none is named


# ---- LLVM code beside a schedule

PLUS_SEVEN = """
define i32 @plus_seven(ptr %to, ptr %from) {
  %v = load float, ptr %from
  %w = fadd float %v, 7.0
  store float %w, ptr %to
  ret i32 0
}
"""


def plus_seven():
    a = te.placeholder((16,), name="a")
    b = te.extern((16,), [a], lambda ins, outs: steps(ins[0], outs[0]), name="b")
    return a, b


def steps(source, result):
    ib = tir.ir_builder.create()
    with ib.for_range(0, 16, name="i") as i:
        ib.scope_attr(i, "pragma_import_llvm", PLUS_SEVEN)
        ib.emit(tir.call_extern("int32", "plus_seven", result.access_ptr("w", offset=i),
                                source.access_ptr("r", offset=i)))
    return ib.get()


def test_import_llvm():
    a, b = plus_seven()
    s = te.create_schedule(b.op)
    values, got = np.arange(16, dtype="float32"), np.zeros(16, "float32")
    tvm.build(s, [a, b], target="llvm")(values, got)
    np.testing.assert_array_equal(got, values + 7)
    with pytest.raises(tvm.error.UnsupportedError, match="import_llvm needs a target whose code LLVM makes"):
        tvm.build(s, [a, b], target="c")
