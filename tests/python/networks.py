"""Networks and oracles that several tests use."""

import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples"))


def resnet18_bn():
    """ResNet-18 with its batch normalisations, as an onnx.ModelProto."""
    import resnet18

    return resnet18.model()


def run_onnxruntime(path, feeds):
    """What ONNX Runtime gives."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    runner = onnxruntime.InferenceSession(
        str(path) if not isinstance(path, bytes) else path, options, providers=["CPUExecutionProvider"]
    )
    return runner.run(None, feeds)


def shared():
    """The folder of shared material, or None."""
    place = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT.parent / "shared"))
    return place if place.is_dir() else None


def relative_error(got, want):
    """Of the output vector."""
    got, want = np.asarray(got, "float64"), np.asarray(want, "float64")
    return float(np.linalg.norm(got - want) / (np.linalg.norm(want) + 1e-30))


# ---- networks of relay, of any size


class Maker:
    """Weights that keep values in range, under one seed."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def weight(self, *shape):
        from lathe import relay

        fan = max(1, int(np.prod(shape[1:])))
        return relay.const((self.rng.standard_normal(shape) * (2 / fan) ** 0.5).astype("float32"))

    def vector(self, n, mean=0.0, spread=0.1):
        from lathe import relay

        return relay.const((mean + spread * self.rng.standard_normal(n)).astype("float32"))

    def dense(self, x, n, units):
        from lathe import relay

        return relay.nn.bias_add(relay.nn.dense(x, self.weight(units, n)), self.vector(units))


def mobilenet_v2(size=224, width=1.0, classes=1000, batch=1):
    """MobileNetV2: blocks that widen, filter each channel, narrow again; the sum where the sizes are kept."""
    import lathe
    from lathe import relay

    make = Maker()

    def conv(x, cin, cout, kernel=1, stride=1, groups=1, relu6=True):
        weight, pad = make.weight(cout, cin // groups, kernel, kernel), kernel // 2
        y = relay.nn.conv2d(x, weight, strides=(stride, stride), groups=groups, padding=(pad, pad), channels=cout,
                            kernel_size=(kernel, kernel))  # fmt: skip
        spread = abs(make.rng.standard_normal(cout)).astype("float32") + 0.5
        y = relay.nn.batch_norm(y, make.vector(cout, 1), make.vector(cout), make.vector(cout), relay.const(spread))[0]
        return relay.clip(y, 0.0, 6.0) if relu6 else y

    wide = lambda c: max(8, int(c * width + 4) // 8 * 8)  # noqa: E731
    x = data = relay.var("data", shape=(batch, 3, size, size))
    cin = wide(32)
    x = conv(x, 3, cin, 3, 2)
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for widen, channels, times, first in rows:
        for i in range(times):
            cout, stride, hidden = wide(channels), first if i == 0 else 1, cin * widen
            y = conv(x, cin, hidden) if widen > 1 else x
            y = conv(conv(y, hidden, hidden, 3, stride, hidden), hidden, cout, relu6=False)
            x, cin = (x + y if stride == 1 and cin == cout else y), cout
    last = max(1280, wide(1280))
    x = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(conv(x, cin, last)))
    return lathe.IRModule.from_expr(relay.Function([data], make.dense(x, last, classes))), (batch, 3, size, size)


def bert(layers=12, hidden=768, heads=12, length=128, words=1000):
    """BERT's encoder: embeddings, then layers of attention and of two products with gelu between them."""
    import lathe
    from lathe import relay

    make = Maker()
    each = hidden // heads
    tokens = relay.var("data", shape=(length,), dtype="int64")
    norm = lambda x: relay.nn.layer_norm(x, make.vector(hidden, 1), make.vector(hidden), axis=-1)  # noqa: E731
    split = lambda x: relay.transpose(relay.reshape(x, (length, heads, each)), (1, 0, 2))  # noqa: E731
    gelu = lambda x: relay.const(np.float32(0.5)) * x * (  # noqa: E731
        relay.const(np.float32(1)) + relay.erf(x * relay.const(np.float32(0.5**0.5)))
    )
    x = norm(relay.take(make.weight(words, hidden), tokens, axis=0) + make.weight(length, hidden))
    for _ in range(layers):
        q, k, v = (split(make.dense(x, hidden, hidden)) for _ in range(3))
        scores = relay.nn.softmax(relay.nn.batch_matmul(q, k) * relay.const(np.float32(each**-0.5)), axis=-1)
        heard = relay.nn.batch_matmul(scores, v, transpose_b=False)
        heard = relay.reshape(relay.transpose(heard, (1, 0, 2)), (length, hidden))
        x = norm(x + make.dense(heard, hidden, hidden))
        x = norm(x + make.dense(gelu(make.dense(x, hidden, 4 * hidden)), 4 * hidden, hidden))
    return lathe.IRModule.from_expr(relay.Function([tokens], x)), (length,)


ANCHORS = ("nn.conv2d", "nn.dense", "nn.matmul", "nn.batch_matmul")


def offloaded(mod):
    """Of the operations of convolutions and products, the part that is outside of Lathe, and the number of them."""
    from lathe import relay

    work = {True: 0.0, False: 0.0}
    count = {True: 0, False: 0}

    def operations(e):
        size = np.prod([int(d) for d in e.checked_type.shape])
        weight = [int(d) for d in e.args[1].checked_type.shape]
        depth = np.prod(weight[1:]) if e.op.name == "nn.conv2d" else int(e.args[0].checked_type.shape[-1])
        return 2.0 * size * depth

    for f in mod.functions.values():
        outside = "Compiler" in (f.attrs or {})

        def visit(e, outside=outside):
            if isinstance(e, relay.Call) and getattr(e.op, "name", "") in ANCHORS:
                work[outside] += operations(e)
                count[outside] += 1

        relay.analysis.post_order_visit(f.body, visit)
    return work[True] / max(work[True] + work[False], 1.0), count[True], count[True] + count[False]
