"""Models of TensorFlow against TensorFlow itself: frozen graphs, SavedModels, control flow.

What comes first needs no TensorFlow: graphs written here, byte by byte, and files that are damaged."""

import os
import struct

import numpy as np
import pytest

from lathe import error, relay
from messages_writer import field, varint

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
RNG = np.random.default_rng(21)


def run(mod, feeds):
    """Outputs for inputs by name."""
    ex = relay.build(mod, "llvm -mcpu=native")["default"]().executor
    for i, p in enumerate(mod["main"].params):
        ex.set_input(i, feeds[p.name_hint])
    ex.run()
    return [ex.get_output(i).numpy() for i in range(len(ex.outputs))]


# ---- messages, by hand


def shape(*dims):
    return b"".join(field(2, field(1, d)) for d in dims)


def tensor(a):
    kinds = {"float32": 1, "int32": 3}
    return field(1, kinds[str(a.dtype)]) + field(2, shape(*a.shape)) + field(4, a.tobytes())


def node(name, op, *inputs, **attrs):
    """attrs are bytes of an AttrValue."""
    made = field(1, name) + field(2, op) + b"".join(field(3, i) for i in inputs)
    made += b"".join(field(5, field(1, k) + field(2, v)) for k, v in attrs.items())
    return field(1, made)


def constant(name, a):
    return node(name, "Const", value=field(8, tensor(a)), dtype=field(6, 1))


def small():
    """relu(x w + b)."""
    w, b = RNG.standard_normal((4, 3)).astype("float32"), np.float32([0.5, -0.5, 0.1])
    graph = node("x", "Placeholder", dtype=field(6, 1), shape=field(7, shape(-1 & (2**64 - 1), 4)))
    graph += constant("w", w) + constant("b", b)
    graph += node("product", "MatMul", "x", "w") + node("sum", "BiasAdd", "product", "b")
    graph += node("y", "Relu", "sum:0", "^b")
    return graph, w, b


def test_a_frozen_graph(tmp_path):
    graph, w, b = small()
    x = RNG.standard_normal((2, 4)).astype("float32")
    (tmp_path / "net.pb").write_bytes(graph)
    for given in (graph, tmp_path / "net.pb"):
        mod, params = relay.frontend.from_tensorflow(given, shape={"x": (2, 4)})
        np.testing.assert_allclose(run(mod, {"x": x})[0], np.maximum(x @ w + b, 0), rtol=1e-5)
        assert params == {}
    mod, _ = relay.frontend.from_tensorflow(graph, shape={"x": (2, 4)}, outputs=["sum", "product:0"])
    for got, want in zip(run(mod, {"x": x}), (x @ w + b, x @ w)):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_branch_of_tensorflow_1_that_is_known():
    """Dropout's conditional in a frozen graph: the branch that is not taken is not looked at."""
    graph, w, b = small()
    off = field(8, field(1, 10) + field(2, shape()) + field(11, 0))
    graph += node("training", "Const", value=off, dtype=field(6, 10)) + node("switch", "Switch", "y", "training")
    graph += node("on", "Exp", "switch:1") + node("off", "Neg", "switch:0") + node("merge", "Merge", "off", "on")
    x = RNG.standard_normal((2, 4)).astype("float32")
    mod, _ = relay.frontend.from_tensorflow(graph, shape={"x": (2, 4)}, outputs=["merge"])
    np.testing.assert_allclose(run(mod, {"x": x})[0], -np.maximum(x @ w + b, 0), rtol=1e-5)
    with pytest.raises(error.LatheError, match="a branch that is not taken"):
        relay.frontend.from_tensorflow(graph, shape={"x": (2, 4)}, outputs=["on"])


def test_what_is_refused():
    graph, _, _ = small()
    odd = graph + node("a", "Fancy", "y") + node("b", "Odd", "a") + node("c", "Odd", "b")
    loop = node("a", "Add", "b", "b") + node("b", "Neg", "a")
    cases = [
        (lambda: relay.frontend.from_tensorflow(graph), "the sizes of input 'x' are open"),
        (lambda: relay.frontend.from_tensorflow(odd, shape={"x": (2, 4)}), r"not supported: Fancy, Odd \(2\)"),
        (lambda: relay.frontend.from_tensorflow(loop, outputs=["a"]), "a loop through 'a'"),
        (lambda: relay.frontend.from_tensorflow(graph, shape={"x": (2, 4)}, outputs=["z"]), "there is no node 'z'"),
        (lambda: relay.frontend.from_tensorflow(b""), "the graph has no nodes"),
        (lambda: relay.frontend.from_tensorflow(7), "takes a GraphDef"),
        (lambda: relay.frontend.from_tensorflow("/nowhere/net.pb"), "No such file"),
        (lambda: relay.frontend.from_tensorflow(graph, "CHWN"), "layout is NHWC or NCHW"),
        (lambda: relay.frontend.from_tensorflow(node("v", "VariableV2") + node("y", "Neg", "v")), "not frozen"),
    ]
    for act, match in cases:
        with pytest.raises(error.LatheError, match=match):
            act()


def test_damaged_files_are_told():
    """Every cut, and bytes of every kind in every place: a sentence, or a model."""
    graph, _, _ = small()
    told = 0
    for at in range(0, len(graph), 3):
        changed = graph[:at] + bytes([RNG.integers(0, 256)]) + graph[at + 1 :]
        for data in (graph[:at], changed):
            try:
                relay.frontend.from_tensorflow(data, shape={"x": (2, 4)})
            except error.LatheError as e:
                told += bool(str(e))
    assert told > len(graph) / 4
    deep = b""
    for _ in range(3000):
        deep = field(1, field(5, field(2, field(1, field(7, deep)))))[:65536]
    with pytest.raises(error.LatheError):
        relay.frontend.from_tensorflow(deep)


# ---- against TensorFlow


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed: its models are not compared")


def frozen(tf, f, *args):
    """The graph of a function with its variables as constants, its inputs and outputs."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    made = tf.function(f).get_concrete_function(*[tf.TensorSpec(a.shape, a.dtype) for a in args])
    kept = convert_variables_to_constants_v2(made, lower_control_flow=False)
    inputs = [t.op.name for t in kept.inputs if t.dtype != tf.resource]
    return kept.graph.as_graph_def(), inputs, [t.name for t in kept.outputs]


def agrees(tf, f, *args, tolerance=1e-5):
    graph, inputs, outputs = frozen(tf, f, *args)
    mod, _ = relay.frontend.from_tensorflow(graph, outputs=outputs)
    want = f(*[tf.constant(a) for a in args])
    want = want if isinstance(want, (list, tuple)) else [want]
    got = run(mod, dict(zip(inputs, args)))
    for g, w in zip(got, want):
        w = w.numpy()
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


X = RNG.standard_normal((2, 6, 7, 4)).astype("float32")
KERNEL = RNG.standard_normal((3, 3, 4, 8)).astype("float32")
DEEP = RNG.standard_normal((3, 2, 4, 2)).astype("float32")
UP = RNG.standard_normal((3, 3, 5, 4)).astype("float32")
BYTES = RNG.integers(-9, 9, (3, 4)).astype("int32")
ROW = np.float32([1, 2, 3, 4])
CASES = {
    "conv": lambda tf, x: [tf.nn.conv2d(x, KERNEL, 1, "SAME"), tf.nn.conv2d(x, KERNEL, 2, "SAME"),
                           tf.nn.conv2d(x, KERNEL, (1, 2), "VALID", dilations=(2, 1)),
                           tf.nn.conv2d(x, KERNEL, 1, [[0, 0], [1, 0], [2, 1], [0, 0]]),
                           tf.nn.conv2d(x, KERNEL[:, :, :2], 1, "VALID")],
    "depthwise": lambda tf, x: [tf.nn.depthwise_conv2d(x, DEEP, (1, s, s, 1), p) for s in (1, 2)
                                for p in ("SAME", "VALID")],
    "transposed": lambda tf, x: [tf.nn.conv2d_transpose(x, UP, (2, 12, 14, 5), 2, "SAME"),
                                 tf.nn.conv2d_transpose(x, UP, (2, 11, 13, 5), 2, "SAME"),
                                 tf.nn.conv2d_transpose(x, UP, (2, 13, 15, 5), 2, "VALID")],
    "pools": lambda tf, x: [tf.nn.max_pool2d(x, 3, 2, "SAME"), tf.nn.avg_pool2d(x, 3, 2, "SAME"),
                            tf.nn.avg_pool2d(x, 2, 1, "VALID")],
    "norm": lambda tf, x: [tf.compat.v1.nn.fused_batch_norm(x, ROW, ROW - 2, ROW / 3, ROW, 0.01, is_training=False)[0],
                           tf.nn.local_response_normalization(x, 1, 1.5, 0.3, 0.7)],
    "activations": lambda tf, x: [f(x) for f in (tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.selu, tf.nn.leaky_relu,
                                                 tf.nn.softplus, tf.nn.softsign, tf.nn.softmax, tf.nn.log_softmax,
                                                 tf.nn.gelu, tf.nn.swish, tf.tanh, tf.sigmoid)],
    "math": lambda tf, x: [f(x) for f in (tf.abs, tf.math.ceil, tf.math.floor, tf.round, tf.sign, tf.exp, tf.square,
                                          tf.math.erf, tf.math.expm1, tf.sin, tf.atan, tf.math.reciprocal)]
                          + [f(tf.abs(x)) for f in (tf.sqrt, tf.math.rsqrt, tf.math.log, tf.math.log1p)],
    "pairs": lambda tf, x: [x + ROW, x - ROW, x * x, x / ROW, tf.maximum(x, 0.3), tf.minimum(x, ROW), x // 0.4,
                            tf.math.floormod(x, 0.4), tf.pow(tf.abs(x), ROW), tf.math.squared_difference(x, ROW),
                            tf.math.divide_no_nan(x, tf.round(x)), tf.add_n([x, x, x]), tf.where(x > ROW - 2, x, ROW)],
    "sums": lambda tf, x: [tf.reduce_sum(x), tf.reduce_mean(x, (1, 2)), tf.reduce_max(x, -1, True), tf.reduce_min(x, 0),
                           tf.reduce_prod(x, 1), tf.argmax(x, -1), tf.argmin(x, 1, tf.int32), tf.cumsum(x, 2),
                           tf.cumsum(x, 1, exclusive=True, reverse=True), tf.reduce_any(x > 2, 1)],
    "shapes": lambda tf, x: [tf.reshape(x, (2, -1)), tf.transpose(x, (0, 3, 1, 2)), x[:, 1:-1, ::-2, tf.newaxis, 2],
                             x[..., 1:], tf.squeeze(x[:1]), tf.expand_dims(x, -2), tf.concat([x, x * 2], 1),
                             tf.stack([x, -x], 1), *tf.unstack(x, axis=0), *tf.split(x, 2, -1),
                             *tf.split(x, [1, 2, 4], 2), *tf.split(x, 2, 0),
                             *tf.split(x, [1, 5], 1), tf.tile(x, (1, 2, 1, 1)), tf.reverse(x, (1, -1)),
                             tf.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0)), constant_values=3.0),
                             tf.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0)), "REFLECT"),
                             tf.slice(x, (0, 1, 2, 0), (1, 3, -1, 2)),
                             tf.broadcast_to(x[:, :1], (2, 5, 7, 4)), tf.fill((2, 2), x[0, 0, 0, 0])],
    "gathers": lambda tf, x: [tf.gather(x, [1, 0, 3], axis=-1), tf.gather(x, [[0, 1], [2, 0]], axis=1, batch_dims=1),
                              tf.gather_nd(x, [[0, 1], [1, 2]]), tf.one_hot([1, 0, 3], 4), *tf.math.top_k(x, 2)],
    "products": lambda tf, x: [x @ tf.transpose(x, (0, 1, 3, 2)), tf.matmul(x[0, 0], x[1, 1], transpose_b=True),
                               tf.matmul(x, KERNEL[0, 0]), tf.einsum("bhwc,co->bhwo", x, KERNEL[0, 0])],
    "images": lambda tf, x: [tf.image.resize(x, (9, 5)), tf.image.resize(x, (12, 14), "nearest"),
                             tf.compat.v1.image.resize_bilinear(x, (9, 5)),
                             tf.compat.v1.image.resize_bilinear(x, (9, 5), align_corners=True),
                             tf.compat.v1.image.resize_nearest_neighbor(x, (9, 5)),
                             tf.nn.space_to_depth(x[:, :, :6], 2), tf.nn.depth_to_space(x, 2),
                             tf.space_to_batch(x[:, :, :6], (2, 3), ((0, 0), (0, 0)))],
    "sizes": lambda tf, x: [tf.reshape(x, (tf.shape(x)[0], tf.size(x) // tf.shape(x)[0])), tf.zeros(tf.shape(x)[1:3]),
                            x[:, : tf.shape(x)[2] // 2], tf.cast(tf.range(tf.rank(x)), tf.float32)],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(tf, name):
    agrees(tf, lambda x: CASES[name](tf, x), X, tolerance=2e-5)


def test_integers(tf):
    agrees(tf, lambda x: [x + 3, x * x, x // 4, tf.math.floormod(x, 4), tf.cast(x, tf.float32) / 2, x > 2], BYTES)


def test_branches_and_loops(tf):
    def f(x):
        y = x * 2 if tf.reduce_sum(x) > 0 else x - 1
        i = tf.constant(0)
        while tf.reduce_sum(y * y) < 1e4 and i < 20:
            y, i = y * 1.5 + 1, i + 1
        return y, i

    for sign in (1, -1):
        agrees(tf, tf.autograph.to_graph(f), np.float32([[1, 2, 3]]) * sign)


@pytest.fixture(scope="module")
def saved(tf, tmp_path_factory):
    """A SavedModel with variables, a call of another function, two outputs."""
    folder = tmp_path_factory.mktemp("saved") / "net"

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(RNG.standard_normal((4, 3)).astype("float32"))
            self.b = tf.Variable(np.float32([1, 2, 3]))
            self.table = tf.Variable(RNG.standard_normal((9, 4)).astype("float32"))

        @tf.function
        def inner(self, x):
            return tf.nn.relu(x @ self.w + self.b)

        @tf.function(
            input_signature=[tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([None], tf.int32, "ids")]
        )
        def call(self, x, ids):
            x = x + tf.gather(self.table, ids)
            return {"scores": self.inner(x), "twice": x * 2}

    net = Net()
    tf.saved_model.save(net, str(folder), signatures=net.call)
    return folder, net


def test_a_saved_model(tf, saved):
    folder, net = saved
    x, ids = RNG.standard_normal((5, 4)).astype("float32"), RNG.integers(0, 9, 5).astype("int32")
    mod, _ = relay.frontend.from_tensorflow(str(folder), shape={"x": (5, 4), "ids": (5,)})
    want = net.call(tf.constant(x), tf.constant(ids))
    got = run(mod, {"x": x, "ids": ids})
    for g, key in zip(got, ("scores", "twice")):
        np.testing.assert_allclose(g, want[key].numpy(), rtol=1e-5, atol=1e-5)
    cases = [({"signature": "no"}, "there are serving_default"), ({"outputs": ["no"]}, "has no output 'no'"),
             ({}, "the sizes of input '(x|ids)' are open")]  # fmt: skip
    for options, match in cases:
        with pytest.raises(error.LatheError, match=match):
            relay.frontend.from_tensorflow(str(folder), **options)


def test_damaged_variables(tf, saved, tmp_path):
    import shutil

    folder, _ = saved
    sizes = {"x": (5, 4), "ids": (5,)}
    index = (folder / "variables/variables.index").read_bytes()
    shutil.copytree(folder, tmp_path / "net")
    place = tmp_path / "net/variables/variables.index"
    for data in (b"", index[:-1], index[: len(index) // 2], index[:20] + b"\xff" * 30 + index[50:],
                 index[:-48] + b"\xff" * 40 + struct.pack("<Q", 0xDB4775248B80FB57)):  # fmt: skip
        place.write_bytes(data)
        with pytest.raises(error.LatheError):
            relay.frontend.from_tensorflow(str(tmp_path / "net"), shape=sizes)
    place.unlink()
    with pytest.raises(error.LatheError, match="cannot be read"):
        relay.frontend.from_tensorflow(str(tmp_path / "net"), shape=sizes)


def test_recurrent_layers(tf, tmp_path):
    """Keras's LSTM and GRU as loops over lists of tensors."""
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras has another backend here")
    keras.utils.set_random_seed(0)
    layers = [keras.layers.LSTM(5, return_sequences=True), keras.layers.GRU(4), keras.layers.Dense(2)]
    model = keras.Sequential([keras.layers.Input((6, 3)), *layers])
    model.export(str(tmp_path / "net"), verbose=False)
    x = RNG.standard_normal((2, 6, 3)).astype("float32")
    mod, _ = relay.frontend.from_tensorflow(tmp_path / "net", shape={model.inputs[0].name: (2, 6, 3)})
    name = mod["main"].params[0].name_hint
    np.testing.assert_allclose(run(mod, {name: x})[0], model(x).numpy(), rtol=1e-4, atol=1e-5)


def test_a_keras_network(tf, tmp_path):
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras has another backend here")
    keras.utils.set_random_seed(0)
    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), alpha=0.35, classes=10)
    model.export(str(tmp_path / "net"), verbose=False)
    x = RNG.standard_normal((1, 64, 64, 3)).astype("float32")
    mod, _ = relay.frontend.from_tensorflow(tmp_path / "net", shape={model.inputs[0].name: (1, 64, 64, 3)})
    name = mod["main"].params[0].name_hint
    np.testing.assert_allclose(run(mod, {name: x})[0], model(x).numpy(), rtol=1e-4, atol=1e-5)
