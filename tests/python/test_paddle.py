"""Models of Paddle's against Paddle itself: both forms of file, operators, branches, loops, networks.

What comes first needs no Paddle: programs written here, and files that are damaged."""

import json
import os
import struct

import numpy as np
import pytest

from lathe import error, relay
from lathe.relay.frontend.paddle import legacy
from messages_writer import field, varint

RNG = np.random.default_rng(5)


def run(mod, params, inputs):
    """Outputs for inputs in order."""
    ex = relay.build(mod, "llvm", params=params)["default"]().executor
    for i, v in enumerate(inputs):
        ex.set_input(i, v)
    ex.run()
    return [ex.get_output(i).numpy() for i in range(len(ex.outputs))]


# ---- files, by hand


def kind(*dims):
    return {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, list(dims), "NCHW", [], 0]}


def op(kind_, inputs, outputs, dims, **attrs):
    made = [{"N": k, "AT": {"#": "0.a_x", "D": v}} for k, v in attrs.items()]
    return {"#": kind_, "I": [{"%": i} for i in inputs], "O": [{"%": o, "TT": kind(*dims)} for o in outputs], "A": made}


def newer(*more):
    """relu(x w + b), as net.json has it."""
    ops = [
        {"#": "p", "A": [0, 1, 1, "w"], "O": {"%": 1, "TT": kind(4, 3)}},
        {"#": "p", "A": [0, 1, 1, "b"], "O": {"%": 2, "TT": kind(3)}},
        op("1.data", [], [3], (-1, 4), name="x"),
        op("1.matmul", [3, 1], [4], (-1, 3), transpose_x=False, transpose_y=False),
        op("1.add", [4, 2], [5], (-1, 3)),
        op("1.relu", [5], [6], (-1, 3)),
        *more,
        op("1.fetch", [6], [7], (-1, 3), name="y", col=0),
    ]
    block = {"#": "block_0", "args": [], "ops": ops}
    return json.dumps({"base_code": {"magic": "pir"}, "program": {"regions": [{"#": "r", "blocks": [block]}]}})


def tensor_desc(*dims):
    return field(1, 5) + b"".join(field(2, d) for d in dims)


def parameter(a):
    told = tensor_desc(*a.shape)
    return struct.pack("<IQIi", 0, 0, 0, len(told)) + told + a.tobytes()


def old_var(name, dims, persistable):
    told = field(1, 7) + field(3, field(1, tensor_desc(*dims)))
    return field(3, field(1, name) + field(2, told) + field(3, persistable))


def old_op(name, inputs, outputs, **attrs):
    made = b"".join(field(1, field(1, k) + field(2, v)) for k, v in inputs)
    made += b"".join(field(2, field(1, k) + field(2, v)) for k, v in outputs) + field(3, name)
    made += b"".join(field(4, field(1, k) + field(2, 0) + field(3, v)) for k, v in attrs.items())
    return field(4, made)


def older(*more):
    """The same, as net.pdmodel has it."""
    block = old_var("x", (-1, 4), 0) + old_var("w", (4, 3), 1) + old_var("b", (3,), 1)
    block += old_op("feed", [("X", "feed")], [("Out", "x")], col=0)
    block += old_op("matmul_v2", [("X", "x"), ("Y", "w")], [("Out", "t")])
    block += old_op("elementwise_add", [("X", "t"), ("Y", "b")], [("Out", "t")], axis=-1)
    block += old_op("relu", [("X", "t")], [("Out", "y")]) + b"".join(more)
    return field(1, block + old_op("fetch", [("X", "y")], [("Out", "fetch")], col=0))


W, B = RNG.standard_normal((4, 3)).astype("float32"), np.float32([0.5, -0.5, 0.1])


def written(folder, form=newer, *more):
    text = form(*more)
    if form is newer:
        (folder / "net.json").write_text(text)
    else:
        (folder / "net.pdmodel").write_bytes(text)
    (folder / "net.pdiparams").write_bytes(parameter(B) + parameter(W))
    return folder / "net"


@pytest.mark.parametrize("form", [newer, older])
def test_both_forms_of_file(tmp_path, form):
    path = written(tmp_path, form)
    x = RNG.standard_normal((2, 4)).astype("float32")
    for given in (path, str(path) + (".json" if form is newer else ".pdmodel")):
        mod, params = relay.frontend.from_paddle(given, {"x": (2, 4)})
        assert sorted(params) == ["b", "w"] and mod["main"].params[0].name_hint == "x"
        np.testing.assert_allclose(run(mod, params, [x])[0], np.maximum(x @ W + B, 0), rtol=1e-5)


def test_what_is_refused(tmp_path):
    read = relay.frontend.from_paddle
    path = written(tmp_path)
    odd = tmp_path / "odd"
    odd.mkdir()
    written(odd, newer, op("1.fancy", [5], [8], (2, 3)), op("1.fancy", [8], [9], (2, 3)))
    old = tmp_path / "old"
    old.mkdir()
    written(old, older, old_op("while", [("X", "y")], [("Out", "z")]))
    cases = [
        (lambda: read(path), "the sizes of input 'x' are open"),
        (lambda: read(path, {"x": (2, 5)}), "does not fit"),
        (lambda: read(path, {"x": (2, 4), "z": (1,)}), "there is no input 'z'"),
        (lambda: read(path, {"x": (2, 4)}, scope=7), "scope is not supported"),
        (lambda: read(odd / "net", {"x": (2, 4)}), r"not supported: fancy \(2\)"),
        (lambda: read(old / "net", {"x": (2, 4)}), r"not supported: while \(older form\)"),
        (lambda: read(7), "takes the path of a saved model or a layer"),
        (lambda: read("/nowhere/net"), "No such file"),
    ]
    for act, match in cases:
        with pytest.raises(error.LatheError, match=match):
            act()


@pytest.mark.parametrize("form", [newer, older])
def test_damaged_files(tmp_path, form):
    """Whatever is cut off or changed gets a sentence, or still is a model."""
    path = written(tmp_path, form)
    for ending in (".json" if form is newer else ".pdmodel", ".pdiparams"):
        file = tmp_path / ("net" + ending)
        whole = file.read_bytes()
        wrong = [whole[:n] for n in range(0, len(whole), 29)]
        for at in range(0, len(whole), 11):
            wrong.append(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        refused = 0
        for data in wrong:
            file.write_bytes(data)
            try:
                relay.frontend.from_paddle(path, {"x": (2, 4)})
            except error.LatheError as e:
                refused += 1
                assert str(e)
        assert refused > len(wrong) // 2
        file.write_bytes(whole)


def test_attention_as_programs_for_gpus_have_it(tmp_path):
    """Paddle's own kernels of these do not run on a CPU."""
    shape = (1, 3, 2, 4)
    ops = [op("1.data", [], [k], shape, name=name) for k, name in ((1, "q"), (2, "k"), (3, "v"))]
    ops += [op("1.flash_attn", [1, 2, 3], [4], shape, causal=True), op("1.fetch", [4], [5], shape, col=0)]
    ops += [op("1.fused_softmax_mask_upper_triangle", [6], [7], (1, 2, 3, 3)), op("1.fetch", [7], [8], (), col=1)]
    ops.insert(0, op("1.data", [], [6], (1, 2, 3, 3), name="scores"))
    block = {"#": "block_0", "args": [], "ops": ops}
    text = json.dumps({"base_code": {"magic": "pir"}, "program": {"regions": [{"#": "r", "blocks": [block]}]}})
    (tmp_path / "net.json").write_text(text)
    mod, params = relay.frontend.from_paddle(tmp_path / "net")
    q, k, v = (RNG.standard_normal(shape).astype("float32") for _ in range(3))
    scores = RNG.standard_normal((1, 2, 3, 3)).astype("float32")

    def softmax(x):
        e = np.where(np.tril(np.ones((3, 3), bool)), np.exp(x), 0)
        return e / e.sum(-1, keepdims=True)

    weights = softmax(np.einsum("bshc,bthc->bhst", q, k) / 2)
    got = run(mod, params, [scores, q, k, v])
    np.testing.assert_allclose(got[0], np.einsum("bhst,bthc->bshc", weights, v), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], softmax(scores), rtol=1e-4, atol=1e-6)


def test_every_operator_of_the_older_form_has_a_row():
    assert legacy.without_rows() == []


@pytest.mark.parametrize("name", ["from_mxnet", "from_coreml", "from_caffe", "from_oneflow"])
def test_others_name_the_way_through_onnx(name):
    with pytest.raises(error.UnsupportedError, match=f"{name} is not supported; .*from_onnx"):
        getattr(relay.frontend, name)("net")


# ---- against Paddle

try:
    import paddle
    import paddle.nn.functional as F
except ImportError:
    paddle = None

X2, X3, X4 = (4, 6), (2, 5, 8), (2, 6, 8, 8)


def n(*shape):
    return RNG.standard_normal(shape).astype("float32")


def positive(*shape):
    return np.abs(n(*shape)) + np.float32(0.6)


def places(high, *shape):
    return RNG.integers(0, high, shape)


def truths(*shape):
    return RNG.random(shape) > 0.5


def of(module, names, *inputs):
    """Cases for functions of Paddle's that take the same."""
    return [(name, lambda *a, name=name: getattr(module(), name)(*a), inputs) for name in names.split()]


def many():
    """Name, function and inputs of each case."""
    p, f = (lambda: paddle), (lambda: F)
    return [
        *of(p, "abs atan ceil cos erf exp expm1 floor round sigmoid sign sin sinh square tanh trunc", n(*X2)),
        *of(p, "log log1p log2 log10 reciprocal rsqrt sqrt isnan isfinite asinh", positive(*X2)),
        *of(f, "relu relu6 elu selu gelu silu hardswish hardsigmoid hardtanh leaky_relu softplus", n(*X2)),
        *of(f, "softsign mish softmax log_softmax celu hardshrink softshrink tanhshrink thresholded_relu", n(*X2)),
        *of(f, "log_sigmoid glu", n(*X2)),
        *of(p, "add subtract multiply divide maximum minimum fmax atan2 remainder floor_divide", n(*X2), positive(*X2)),
        *of(p, "equal not_equal less_than less_equal greater_than greater_equal heaviside", n(*X2), n(*X2)),
        *of(p, "logical_and logical_or logical_xor", truths(*X2), truths(*X2)),
        *of(p, "bitwise_and bitwise_or bitwise_xor", places(9, *X2), places(9, *X2)),
        *of(p, "sum mean max min prod logsumexp", n(*X3)),
        ("sum axis", lambda x: paddle.sum(x, axis=[0, 2], keepdim=True), [n(*X3)]),
        ("std", lambda x: paddle.std(x, axis=-1), [n(*X3)]),
        ("argmax", lambda x: paddle.argmax(x, axis=1), [n(*X2)]),
        ("argmin", paddle.argmin, [n(*X2)]),
        ("cumsum", lambda x: paddle.cumsum(x, axis=1), [n(*X2)]),
        ("norm", lambda x: paddle.linalg.norm(x, p=3, axis=1), [n(*X2)]),
        ("scalars", lambda x: 2 * x + 1 - x / 3 + x**2, [n(*X2)]),
        ("matmul", lambda a, b: paddle.matmul(a, b, transpose_y=True), [n(2, 3, 4, 6), n(3, 5, 6)]),
        ("matmul of a vector", paddle.matmul, [n(6), n(2, 6, 4)]),
        ("addmm", lambda a, b, c: paddle.addmm(a, b, c, beta=0.5), [n(4, 4), n(4, 6), n(6, 4)]),
        ("einsum", lambda a, b: paddle.einsum("bij,bkj->bik", a, b), [n(*X3), n(*X3)]),
        ("linear", lambda x, w, b: F.linear(x, w, b), [n(2, 4, 6), n(6, 3), n(3)]),
        ("reshape", lambda x: x.reshape([0, -1, 4]), [n(*X4)]),
        ("flatten", lambda x: paddle.flatten(x, 1, 2), [n(*X4)]),
        ("sizes", lambda x: x.reshape([x.shape[0], x.shape[1] * 2, -1]), [n(*X4)]),
        ("transpose", lambda x: x.transpose([0, 2, 1]).unsqueeze([0, 2]).squeeze(0), [n(*X3)]),
        ("concat", lambda a, b: paddle.concat([a, b], axis=-1), [n(*X2), n(*X2)]),
        ("stack", lambda a, b: paddle.stack([a, b], axis=1), [n(*X2), n(*X2)]),
        ("split", lambda x: paddle.split(x, [1, 2, -1], axis=1), [n(*X4)]),
        ("chunk", lambda x: paddle.chunk(x, 3, axis=1), [n(*X4)]),
        ("unbind", lambda x: paddle.unbind(x, axis=1), [n(*X3)]),
        ("slices", lambda x: x[:, 1:5:2, -3:, ::-1], [n(*X4)]),
        ("an element", lambda x: x[0, :, -1], [n(*X3)]),
        ("gather", lambda x, i: paddle.gather(x, i, axis=1), [n(*X3), places(5, 3)]),
        ("gather_nd", paddle.gather_nd, [n(*X3), places(2, 3, 2)]),
        ("take_along_axis", lambda x, i: paddle.take_along_axis(x, i, axis=1), [n(*X2), places(6, 4, 2)]),
        ("scatter", paddle.scatter, [n(*X2), np.array([2, 0]), n(2, 6)]),
        ("scatter_nd_add", paddle.scatter_nd_add, [n(*X2), places(4, 3, 1), n(3, 6)]),
        ("where", paddle.where, [truths(*X2), n(*X2), n(*X2)]),
        ("cast", lambda x: (x * 10).astype("int32"), [n(*X2)]),
        ("clip", lambda x: paddle.clip(x, -0.5, 0.5), [n(*X2)]),
        ("expand", lambda x: x.unsqueeze(1).expand([-1, 3, 6]), [n(*X2)]),
        ("tile", lambda x: paddle.tile(x, [2, 1]), [n(*X2)]),
        ("flip and roll", lambda x: paddle.roll(paddle.flip(x, [0, 1]), 2, 1), [n(*X2)]),
        ("tril", lambda x: paddle.tril(x, 1), [n(*X2)]),
        ("topk", lambda x: paddle.topk(x, 3, axis=1), [n(*X2)]),
        ("sort", lambda x: paddle.sort(x, axis=1, descending=True), [n(*X2)]),
        ("one_hot", lambda i: F.one_hot(i, 7), [places(7, 4)]),
        ("embedding", F.embedding, [places(9, 4), n(9, 5)]),
        ("constants", lambda x: x + paddle.arange(6, dtype="float32") + paddle.full([4, 6], 2.0),
         [n(*X2)]),
        ("eye", lambda x: x + paddle.eye(4, 6), [n(*X2)]),
        ("conv2d", lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), [n(*X4), n(8, 6, 3, 3), n(8)]),
        ("groups", lambda x, w: F.conv2d(x, w, groups=2, padding=[1, 2, 0, 1]), [n(*X4), n(8, 3, 3, 3)]),
        ("same", lambda x, w: F.conv2d(x, w, stride=2, padding="SAME"), [n(*X4), n(4, 6, 3, 3)]),
        ("channels behind", lambda x, w: F.conv2d(x, w, data_format="NHWC"), [n(*X4), n(4, 8, 3, 3)]),
        ("conv1d", lambda x, w: F.conv1d(x, w, padding=1), [n(*X3), n(4, 5, 3)]),
        ("conv3d", lambda x, w: F.conv3d(x, w, padding=1), [n(1, 2, 4, 4, 4), n(3, 2, 3, 3, 3)]),
        ("conv2d_transpose", lambda x, w: F.conv2d_transpose(x, w, stride=2, padding=1, output_padding=1),
         [n(*X4), n(6, 4, 3, 3)]),
        ("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), [n(*X4)]),
        ("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), [n(*X4)]),
        ("avg_pool2d of edges", lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False), [n(*X4)]),
        ("adaptive", lambda x: F.adaptive_avg_pool2d(x, 3) + F.adaptive_max_pool2d(x, 3), [n(*X4)]),
        ("batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), [n(*X4), n(6), positive(6), n(6), n(6)]),
        ("layer_norm", lambda x, w, b: F.layer_norm(x, [8], w, b), [n(*X3), n(8), n(8)]),
        ("group_norm", lambda x: F.group_norm(x, 3), [n(*X4)]),
        ("instance_norm", lambda x: F.instance_norm(x), [n(*X4)]),
        ("nearest", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), [n(*X4)]),
        ("bilinear", lambda x: F.interpolate(x, size=[12, 16], mode="bilinear"), [n(*X4)]),
        ("bicubic", lambda x: F.interpolate(x, size=[12, 16], mode="bicubic", align_corners=True), [n(*X4)]),
        ("pad", lambda x: F.pad(x, [1, 2, 0, 1], mode="reflect"), [n(*X4)]),
        ("pixel_shuffle", lambda x: F.pixel_shuffle(x[:, :4], 2), [n(*X4)]),
        ("grid_sample", F.grid_sample, [n(*X4), np.tanh(n(2, 5, 5, 2))]),
        ("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [n(2, 5, 2, 8)] * 3),
        ("a branch", lambda x: paddle.static.nn.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1), [n(*X2)]),
        ("a loop", lambda x: paddle.static.nn.while_loop(
            lambda i, y: i < 3, lambda i, y: [i + 1, y * 2], [paddle.zeros([1], "int64"), x])[1], [n(*X2)]),
    ]  # fmt: skip


def layer_of(function, count):
    """A layer that takes so many tensors: Paddle reads the names of the arguments."""

    class One(paddle.nn.Layer):
        def forward(self, a):
            return function(a)

    class Two(paddle.nn.Layer):
        def forward(self, a, b):
            return function(a, b)

    class Three(paddle.nn.Layer):
        def forward(self, a, b, c):
            return function(a, b, c)

    class Five(paddle.nn.Layer):
        def forward(self, a, b, c, d, e):
            return function(a, b, c, d, e)

    made = {1: One, 2: Two, 3: Three, 5: Five}[count]()
    made.eval()
    return made


@pytest.mark.skipif(paddle is None, reason="Paddle is not installed")
def test_operators_agree_with_paddle(tmp_path):
    """All saved one by one, imported, and compiled as one module."""
    cases, outs, params, inputs, wants = many(), [], [], [], []
    for k, (name, function, given) in enumerate(cases):
        tensors = [paddle.to_tensor(v) for v in given]
        spec = [paddle.static.InputSpec(list(v.shape), str(v.dtype), f"c{k}_{i}") for i, v in enumerate(given)]
        layer = layer_of(function, len(given))
        paddle.jit.save(layer, str(tmp_path / f"c{k}"), spec)
        mod, weights = relay.frontend.from_paddle(tmp_path / f"c{k}")
        assert not weights
        main = mod["main"]
        made = list(main.body.fields) if hasattr(main.body, "fields") else [main.body]
        want = function(*tensors)
        want = list(want) if isinstance(want, (list, tuple)) else [want]
        assert len(made) == len(want), name
        outs += made
        params += list(main.params)
        inputs += given
        wants += [(name, w.numpy()) for w in want]
    assert len(cases) > 100
    got = run(relay.Function(params, relay.Tuple(outs)), {}, inputs)
    for g, (name, w) in zip(got, wants):
        assert g.dtype == w.dtype, name
        np.testing.assert_allclose(g, w, rtol=5e-4, atol=5e-5, err_msg=name)


@pytest.mark.skipif(paddle is None, reason="Paddle is not installed")
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_networks_agree_with_paddle(tmp_path, name):
    paddle.seed(0)
    net = getattr(paddle.vision.models, name)()
    for m in net.sublayers():  # normalizations that do something
        if isinstance(m, paddle.nn.BatchNorm2D):
            m._mean.set_value(n(*m._mean.shape) * 0.1)
            m._variance.set_value(positive(*m._variance.shape))
    net.eval()
    x = n(1, 3, 64, 64)
    want = net(paddle.to_tensor(x)).numpy()
    paddle.jit.save(net, str(tmp_path / "net"), [paddle.static.InputSpec([-1, 3, 64, 64], "float32", "x")])
    for given in (tmp_path / "net", paddle.jit.load(str(tmp_path / "net")), net):
        mod, params = relay.frontend.from_paddle(given, {"x": (1, 3, 64, 64)})
        assert len(params) > 60
    np.testing.assert_allclose(run(mod, params, [x])[0], want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@pytest.mark.skipif(paddle is None or os.environ.get("FLAGS_enable_pir_api") == "0", reason="Paddle is not installed")
def test_the_older_form_agrees_with_paddle(tmp_path):
    """What Paddle writes when it is told to keep to the older form, in a process of its own."""
    import subprocess
    import sys

    code = (
        "import paddle, numpy as np, sys\n"
        "paddle.seed(0); net = paddle.vision.models.mobilenet_v3_small(); net.eval()\n"
        "paddle.jit.save(net, sys.argv[1], [paddle.static.InputSpec([1, 3, 64, 64], 'float32', 'x')])\n"
        "x = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype('float32')\n"
        "np.savez(sys.argv[1] + '.npz', x=x, y=net(paddle.to_tensor(x)).numpy())\n"
    )
    env = {**os.environ, "FLAGS_enable_pir_api": "0"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "net")], env=env, check=True, capture_output=True)
    assert (tmp_path / "net.pdmodel").exists()
    both = np.load(tmp_path / "net.npz")
    mod, params = relay.frontend.from_paddle(tmp_path / "net.pdmodel")
    want = both["y"]
    np.testing.assert_allclose(run(mod, params, [both["x"]])[0], want, rtol=1e-3, atol=1e-3 * np.abs(want).max())
