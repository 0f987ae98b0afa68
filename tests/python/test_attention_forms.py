"""Attention in the forms that exporters and ONNX itself give it: every form is recognised and agrees with ONNX
Runtime.

FORMS is the list: a form is a function that writes the nodes of one layer and gives its result.  The smallest
cases of the pass that recognises them stand in src/pass/cases/fuse_attention*.txt; what it looks for is in the head of
src/pass/fuse_attention.c."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from networks import run_onnxruntime  # noqa: E402

B, H, KV, S, T, D = 2, 4, 2, 23, 30, 8  # batch, heads, heads of key and value, queries, keys, features
LOWEST = np.finfo("float32").min
MS = "com.microsoft"


class Layer:
    """Nodes, inputs and constants of a model under construction."""

    def __init__(self):
        self.rng, self.nodes, self.inputs, self.constants = np.random.default_rng(4), [], {}, []

    def input(self, *shape, value=None):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.rng.standard_normal(shape, "float32") if value is None else value
        return name

    def const(self, value, dtype=None):
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, kind, *inputs, outputs=1, **attrs):
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attrs))
        return names[0] if outputs == 1 else names

    def reshape(self, x, *shape):
        return self.op("Reshape", x, self.const(shape, "int64"))

    def heads(self, length, heads=H, perm=(0, 2, 1, 3)):
        """(batch, length, heads * size) taken apart."""
        x = self.reshape(self.input(B, length, heads * D), B, length, heads, D)
        return self.op("Transpose", x, perm=perm)

    def model(self, out):
        made = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in self.inputs.items()
        ]
        outs = [onnx.ValueInfoProto(name=name) for name in ([out] if isinstance(out, str) else out)]
        graph = helper.make_graph(self.nodes, "layer", made, outs, self.constants)
        sets = [helper.make_opsetid("", 24), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)


def some_hidden(*shape, empty=False):
    """A mask of bool, true where a key is seen; with `empty` the second query sees none."""
    seen = np.random.default_rng(6).random(shape) < 0.7
    seen[..., 0] = True
    if empty:
        seen[..., 1, :] = False
    return seen


# ---- PyTorch, scaled_dot_product_attention


def torch_scores(c, q, k, key_heads=H):
    """The scale by its root on both; the key turned in three dimensions, as the newer exporter does it."""
    root = c.const(np.float32(D**-0.25))
    k = c.op("Transpose", c.reshape(k, -1, T, D), perm=[0, 2, 1])
    k = c.reshape(k, B, key_heads, D, T)
    return c.op("MatMul", c.op("Mul", q, root), c.op("Mul", k, root))


def torch_guard(c, p):
    return c.op("Where", c.op("IsNaN", p), c.const(np.float32(0)), p)


def torch_plain(c):
    s = torch_scores(c, c.input(B, H, S, D), c.input(B, H, T, D))
    return c.op("MatMul", c.op("Softmax", s, axis=-1), c.input(B, H, T, D))


def torch_masked(c, fill, per_query, guard=True):
    s = torch_scores(c, c.input(B, H, S, D), c.input(B, H, T, D))
    shape = (B, 1, S, T) if per_query else (B, 1, 1, T)
    m = c.input(value=some_hidden(*shape, empty=per_query) if per_query else some_hidden(*shape))
    s = c.op("Add", s, c.op("Where", m, c.const(np.float32(0)), c.const(np.float32(fill))))
    p = c.op("Softmax", s, axis=-1)
    return c.op("MatMul", torch_guard(c, p) if guard else p, c.input(B, H, T, D))


def torch_causal(c):
    """The older exporter writes the triangle out; the newer has it as a constant."""
    q, k = c.input(B, H, T, D), c.op("Transpose", c.input(B, H, T, D), perm=[0, 1, 3, 2])
    triangle = c.op("Trilu", c.const(np.ones((T, T), "float32")), upper=0)
    hidden = c.op("Equal", triangle, c.const(np.float32(0)))
    bias = c.op("Where", hidden, c.const(np.float32(-np.inf)), triangle)
    bias = c.op("Where", c.op("Not", hidden), c.const(np.float32(0)), bias)
    s = c.op("Add", c.op("Mul", c.op("MatMul", q, k), c.const(np.float32(0.3))), bias)
    return c.op("MatMul", c.op("Softmax", s, axis=-1), c.input(B, H, T, D))


def torch_multi_head(c):
    """nn.MultiheadAttention: one projection, the length before the batch, taken apart by Gather."""
    x = c.op("Transpose", c.input(B, T, H * D), perm=[1, 0, 2])
    w = c.const(c.rng.standard_normal((H * D, 3 * H * D)) / 6, "float32")
    x = c.reshape(c.op("MatMul", x, w), T, B, 3, H * D)
    x = c.op("Transpose", c.op("Unsqueeze", x, c.const([0], "int64")), perm=[3, 1, 2, 0, 4])
    x = c.op("Squeeze", x, c.const([3], "int64"))
    parts = [c.reshape(c.op("Gather", x, c.const(np.int64(i)), axis=0), T, B * H, D) for i in range(3)]
    q, k, v = (c.reshape(c.op("Transpose", p, perm=[1, 0, 2]), B, H, T, D) for p in parts)
    y = c.op("MatMul", c.op("Softmax", torch_scores(c, q, k), axis=-1), v)
    return c.reshape(c.op("Transpose", y, perm=[2, 0, 1, 3]), B * T, H * D)


# ---- transformers


def repeated(c, x):
    """repeat_kv: each head of key and value for several of query."""
    x = c.op("Expand", c.op("Unsqueeze", x, c.const([2], "int64")), c.const([B, KV, H // KV, T, D], "int64"))
    return c.reshape(x, B, H, T, D)


def shared_heads(c, scale_on_scores):
    q, k, v = c.heads(S), repeated(c, c.heads(T, KV)), repeated(c, c.heads(T, KV))
    if scale_on_scores:
        s = c.op("MatMul", q, c.op("Transpose", k, perm=[0, 1, 3, 2]))
        s = c.op("Div", s, c.const(np.float32(np.sqrt(D))))
    else:
        s = torch_scores(c, q, k)
    s = c.op("Add", s, c.input(B, 1, 1, T))
    y = c.op("MatMul", c.op("Softmax", s, axis=-1), v)
    return c.reshape(c.op("Transpose", y, perm=[0, 2, 1, 3]), B, S, H * D)


def scale_on(c, which):
    q, k = c.heads(S), c.heads(T, perm=(0, 2, 3, 1))
    scale = c.const(np.float32(0.3))
    s = c.op("MatMul", *(c.op("Mul", x, scale) if i == which else x for i, x in enumerate((q, k))))
    if which == 2:
        s = c.op("Mul", s, scale)
    y = c.op("MatMul", c.op("Softmax", s, axis=-1), c.heads(T))
    return c.op("Transpose", y, perm=[0, 2, 1, 3])


def position_bias(c):
    """T5: no scale, a bias for each head and a mask."""
    s = c.op("MatMul", c.heads(S), c.heads(T, perm=(0, 2, 3, 1)))
    s = c.op("Add", s, c.op("Add", c.const(c.rng.standard_normal((1, H, 1, T)), "float32"), c.input(B, 1, 1, T)))
    return c.op("MatMul", c.op("Softmax", s, axis=-1), c.heads(T))


def chosen_by_where(c):
    s = c.op("MatMul", c.heads(S), c.heads(T, perm=(0, 2, 3, 1)))
    s = c.op("Where", c.input(value=some_hidden(B, 1, 1, T)), s, c.const(np.float32(LOWEST)))
    return c.op("MatMul", c.op("Softmax", s, axis=-1), c.heads(T))


def three_dimensions(c):
    """Heads folded into the batch, as BLOOM and older models do."""
    q, k, v = c.input(B * H, S, D), c.input(B * H, T, D), c.input(B * H, T, D)
    s = c.op("MatMul", q, c.op("Transpose", k, perm=[0, 2, 1]))
    return c.op("MatMul", c.op("Softmax", c.op("Mul", s, c.const(np.float32(0.3))), axis=-1), v)


def past_of_keys(c):
    """Keys and values of earlier steps before the new ones."""
    k = c.op("Concat", c.input(B, H, T - S, D), c.heads(S), axis=2)
    v = c.op("Concat", c.input(B, H, T - S, D), c.heads(S), axis=2)
    s = c.op("MatMul", c.heads(S), c.op("Transpose", k, perm=[0, 1, 3, 2]))
    hidden = np.where(np.arange(T) <= np.arange(S)[:, None] + T - S, 0, LOWEST).astype("float32")
    s = c.op("Add", c.op("Mul", s, c.const(np.float32(D**-0.5))), c.const(hidden[None, None]))
    return [c.op("MatMul", c.op("Softmax", s, axis=-1), v), k, v]


# ---- ONNX's own operator, and its definition


def onnx_attention(c, mask=None, queries=None, written_out=False, packed=False, past=False, heads=H, **attrs):
    def operand(length, count):
        return c.input(B, length, count * D) if packed else c.input(B, count, length, D)

    new = S if past else T
    given = [operand(queries or S, H), operand(new, heads), operand(new, heads)]
    if packed:
        attrs |= {"q_num_heads": H, "kv_num_heads": heads}
    given += [c.input(value=mask)] if mask is not None else [""] if past else []
    given += [c.input(B, heads, T - S, D), c.input(B, heads, T - S, D)] if past else []
    outputs = 3 if past else 1
    if not written_out:
        return c.op("Attention", *given, outputs=outputs, **attrs)
    types = [
        helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(c.inputs[x].dtype), c.inputs[x].shape)
        for x in given
    ]
    node = helper.make_node("Attention", given, ["y"], **attrs)
    schema = onnx.defs.get_schema("Attention", 24, "")
    body = schema.get_context_dependent_function_with_opset_version(
        24, node.SerializeToString(), [t.SerializeToString() for t in types]
    )
    function = onnx.FunctionProto.FromString(body)
    names = dict(zip(function.input, given)) | {"": ""}
    for inner in function.node:  # in place of a call
        assert not any(a.ref_attr_name for a in inner.attribute)
        inner.input[:] = [
            names.get(x, f"own_{x}") if x not in function.input or x in names else "" for x in inner.input
        ]
        inner.output[:] = [f"own_{x}" if x else "" for x in inner.output]
        c.nodes.append(inner)
    return f"own_{function.output[0]}"


# ---- what ONNX Runtime's optimiser leaves


def runtime_attention(c):
    w, b = c.rng.standard_normal((16, 3 * H * D)) / 6, c.rng.standard_normal(3 * H * D)
    given = [c.input(B, T, 16), c.const(w, "float32"), c.const(b, "float32")]
    return c.op("Attention", *given, c.input(value=np.array([T, 9], "int32")), domain=MS, num_heads=H)


def runtime_multi_head(c):
    given = [c.input(B, S, H * D), c.input(B, T, H * D), c.input(B, T, H * D)]
    bias = c.const(c.rng.standard_normal(3 * H * D), "float32")
    seen = c.input(value=some_hidden(B, T).astype("int32"))
    return c.op("MultiHeadAttention", *given, bias, seen, domain=MS, num_heads=H)


INFINITE = np.where(some_hidden(B, 1, 24, T, empty=True), 0, -np.inf).astype("float32")

FORMS = {
    "torch": torch_plain,
    "torch, keys hidden by bool, a guard": lambda c: torch_masked(c, LOWEST, False),
    "torch, keys hidden by bool, no guard": lambda c: torch_masked(c, LOWEST, False, guard=False),
    "torch, causal": torch_causal,
    "torch, multi-head": torch_multi_head,
    "transformers, shared heads, torch's scale": lambda c: shared_heads(c, False),
    "transformers, shared heads, scaled scores": lambda c: shared_heads(c, True),
    "scale on the query": lambda c: scale_on(c, 0),
    "scale on the key": lambda c: scale_on(c, 1),
    "scale on the scores": lambda c: scale_on(c, 2),
    "position bias": position_bias,
    "keys chosen by where": chosen_by_where,
    "three dimensions": three_dimensions,
    "past": past_of_keys,
    "ONNX": onnx_attention,
    "ONNX, scale": lambda c: onnx_attention(c, scale=0.2),
    "ONNX, causal": lambda c: onnx_attention(c, queries=T, is_causal=1),
    "ONNX, shared heads": lambda c: onnx_attention(c, heads=KV),
    "ONNX, packed": lambda c: onnx_attention(c, packed=True, heads=KV),
    "ONNX, past": lambda c: onnx_attention(c, past=True, is_causal=1),
    "ONNX, written out": lambda c: onnx_attention(c, written_out=True),
    "ONNX, written out, causal": lambda c: onnx_attention(c, queries=T, written_out=True, is_causal=1),
    "com.microsoft": runtime_attention,
    "com.microsoft, multi-head": runtime_multi_head,
}
# The kernel wants blocks that cover the queries exactly where the mask varies with them.
EVEN_FORMS = {
    "torch, bool, a guard": lambda c: torch_masked(c, -np.inf, True),
    "torch, bool with the lowest number": lambda c: torch_masked(c, LOWEST, True),
    "ONNX, bool": lambda c: onnx_attention(c, some_hidden(B, 1, S, T, empty=True)),
    "ONNX, bias": lambda c: onnx_attention(c, INFINITE),
    "ONNX, bool for all heads": lambda c: onnx_attention(c, some_hidden(S, T), heads=KV),
    "ONNX, written out, bias": lambda c: onnx_attention(c, INFINITE, written_out=True),
}


def agrees(form):
    c = Layer()
    model = c.model(form(c))
    mod, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3):
        text = relay.optimize(mod, target="llvm", params=params)[0].astext(show_meta_data=False)
        lib = relay.build(mod, target="llvm", params=params)
    assert text.count("nn.attention(") == 1 and "softmax" not in text and "batch_matmul" not in text
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    m.run(**c.inputs)
    for i, want in enumerate(run_onnxruntime(model.SerializeToString(), c.inputs)):
        np.testing.assert_allclose(m.get_output(i).numpy(), want, rtol=1e-5, atol=3e-6)
    return text


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    agrees(FORMS[name])


@pytest.mark.parametrize("name", EVEN_FORMS)
def test_forms_of_even_length(name, monkeypatch):
    monkeypatch.setattr(__import__(__name__), "S", 24)
    agrees(EVEN_FORMS[name])


def test_what_is_read_where_it_lies():
    """No head is repeated or moved before it is read, and no triangle of a causal mask is left."""
    for name in ("transformers, shared heads, torch's scale", "transformers, shared heads, scaled scores"):
        text = agrees(FORMS[name])
        assert f"kv_heads={KV}" in text and "broadcast_to" not in text and "transpose(" not in text
    text = agrees(FORMS["torch, multi-head"])
    assert f"first_head=[0, {H}, {2 * H}]" in text and "take(" not in text
    for name in ("torch, causal", "past", "ONNX, causal", "ONNX, past", "ONNX, written out, causal"):
        assert "causal=True" in agrees(FORMS[name])


def test_rows_that_see_nothing_are_zero(monkeypatch):
    monkeypatch.setattr(__import__(__name__), "S", 24)
    for name, guard in (("torch, bool, a guard", "nan"), ("ONNX, bool", "empty"), ("ONNX, bias", "empty")):
        assert f'guard="{guard}"' in agrees(EVEN_FORMS[name])


def test_values_that_are_not_numbers():
    """A NaN in the query: torch's guard makes zeros of its row, ONNX's operator does not."""
    for form, zero in (
        (lambda c: torch_masked(c, LOWEST, False), True),
        (lambda c: onnx_attention(c, heads=KV), False),
    ):
        c = Layer()
        model = c.model(form(c))
        c.inputs["x0"][0, 1, 2, 3] = np.nan
        mod, params = relay.frontend.from_onnx(model)
        with lathe.transform.PassContext(opt_level=3):
            lib = relay.build(mod, target="llvm", params=params)
        m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
        m.run(**c.inputs)
        got, want = m.get_output(0).numpy(), run_onnxruntime(model.SerializeToString(), c.inputs)[0]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-6)
        assert (got[0, 1, 2] == 0).all() if zero else np.isnan(got[0, 1, 2]).all()
