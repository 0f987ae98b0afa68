"""Attention from ONNX models: recognised in the forms that exporters write, against ONNX Runtime, and without a
matrix of scores."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from networks import run_onnxruntime  # noqa: E402

S, HEADS, SIZE = 64, 3, 16
WIDTH = HEADS * SIZE


class Block:
    """One attention layer, node by node."""

    def __init__(self):
        self.nodes, self.constants, self.rng, self.count = [], [], np.random.default_rng(5), 0

    def node(self, op, *inputs, **attrs):
        self.count += 1
        self.nodes.append(helper.make_node(op, list(inputs), [f"t{self.count}"], **attrs))
        return f"t{self.count}"

    def constant(self, value):
        self.count += 1
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{self.count}"))
        return f"c{self.count}"

    def weight(self, *shape):
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype("float32"))

    def heads(self, x, perm):
        y = self.node("Add", self.node("MatMul", x, self.weight(WIDTH, WIDTH)), self.weight(WIDTH))
        y = self.node("Reshape", y, self.constant(np.array([0, 0, HEADS, SIZE], "int64")))
        return self.node("Transpose", y, perm=perm)

    def join(self, x):
        y = self.node(
            "Reshape", self.node("Transpose", x, perm=[0, 2, 1, 3]), self.constant(np.array([0, 0, WIDTH], "int64"))
        )
        return self.node("MatMul", y, self.weight(WIDTH, WIDTH))

    def model(self, out, inputs):
        made = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
        graph = helper.make_graph(
            self.nodes,
            "block",
            made,
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, [2, S, WIDTH])],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def scores_of(b, form):
    """The scores before the softmax, in one of the forms."""
    q, k = b.heads("x", [0, 2, 1, 3]), b.heads("x", [0, 2, 3, 1])
    half = b.constant(np.float32(1 / np.sqrt(np.sqrt(SIZE))))
    if form == "both":
        return b.node("MatMul", b.node("Mul", q, half), b.node("Mul", k, half))
    if form == "query":
        return b.node("MatMul", b.node("Div", q, b.constant(np.float32(np.sqrt(SIZE)))), k)
    return b.node("Mul", b.constant(np.float32(1 / np.sqrt(SIZE))), b.node("MatMul", q, k))


def softmax_of(b, x, form):
    if form != "query":
        return b.node("Softmax", x, axis=-1)
    e = b.node("Exp", b.node("Sub", x, b.node("ReduceMax", x, axes=[-1], keepdims=1)))
    return b.node("Div", e, b.node("ReduceSum", e, b.constant(np.array([-1], "int64")), keepdims=1))


MASKS = {
    "none": None,
    "keys": (TensorProto.FLOAT, [2, 1, 1, S]),
    "queries": (TensorProto.FLOAT, [1, 1, S, S]),
    "where": (TensorProto.BOOL, [S, S]),
}


def block_model(form, mask):
    b = Block()
    s = scores_of(b, form)
    if mask == "where":
        s = b.node("Where", "m", b.constant(np.float32(-1e9)), s)
    elif mask != "none":
        s = b.node("Add", s, "m")
    v = b.heads("x", [0, 2, 1, 3])
    out = b.join(b.node("MatMul", softmax_of(b, s, form), v))
    inputs = {"x": (TensorProto.FLOAT, [2, S, WIDTH])}
    if MASKS[mask]:
        inputs["m"] = MASKS[mask]
    return b.model(out, inputs)


def feeds_of(model, seed=1):
    rng, feeds = np.random.default_rng(seed), {}
    for i in model.graph.input:
        shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
        if i.type.tensor_type.elem_type == TensorProto.BOOL:
            feeds[i.name] = np.triu(np.ones(shape, bool), 1)
        else:
            feeds[i.name] = rng.standard_normal(shape).astype("float32")
    return feeds


def compiled(model, feeds, **context):
    mod, params = relay.frontend.from_onnx(model, {k: v.shape for k, v in feeds.items()})
    with lathe.transform.PassContext(opt_level=3, **context):
        lib = relay.build(mod, target="llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.run(**feeds)
    return lib, m.get_output(0).numpy()


def optimized(model, feeds):
    mod, params = relay.frontend.from_onnx(model, {k: v.shape for k, v in feeds.items()})
    with lathe.transform.PassContext(opt_level=3):
        mod, _ = relay.optimize(mod, target="llvm", params=params)
    return mod.astext(show_meta_data=False)


@pytest.mark.parametrize("form,mask", [("scores", "keys"), ("both", "queries"), ("query", "where"), ("scores", "none")])
def test_forms_of_exporters(form, mask):
    model = block_model(form, mask)
    feeds = feeds_of(model)
    want = run_onnxruntime(model.SerializeToString(), feeds)[0]
    text = optimized(model, feeds)
    assert (
        text.count("nn.attention(") == 1
        and "softmax" not in text
        and "batch_matmul" not in text
        and "transpose(%x" not in text
    )
    _, got = compiled(model, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)
    _, plain = compiled(model, feeds, disabled_pass=["FuseAttention"])
    np.testing.assert_allclose(plain, want, rtol=1e-5, atol=2e-6)


def test_attention_operator():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, n, 8)).astype("float32") for n in (21, 30, 30))
    s = np.einsum("bhsd,bhtd->bhst", q, k) * 0.5
    s = np.where(np.arange(30) <= np.arange(21)[:, None] + 9, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    want = (e / e.sum(-1, keepdims=True)) @ v
    arg = [relay.var(n, shape=x.shape) for n, x in (("q", q), ("k", k), ("v", v))]
    mod = lathe.IRModule.from_expr(relay.Function(arg, relay.nn.attention(*arg, scale=0.5, causal=True)))
    m = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](lathe.cpu(0)))
    m.run(q=q, k=k, v=v)
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-5, atol=1e-6)


def test_any_number_of_threads():
    model = block_model("scores", "keys")
    feeds = feeds_of(model)
    lib, want = compiled(model, feeds)
    before = lathe.runtime.num_threads()
    try:
        for threads in (1, 2, 5):
            lathe.runtime.set_num_threads(threads)
            m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
            m.run(**feeds)
            np.testing.assert_array_equal(m.get_output(0).numpy(), want)
    finally:
        lathe.runtime.set_num_threads(before)
