"""Networks of Darknet, written here, against numpy: each layer as the format has it."""

import struct

import numpy as np
import pytest

from lathe import error, relay

RNG = np.random.default_rng(11)


def n(*shape):
    return RNG.standard_normal(shape).astype("float32")


def conv(x, w, stride, pad, groups=1):
    """A convolution, place by place."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    k, per = w.shape[-1], w.shape[0] // groups
    rows = range(0, x.shape[2] - k + 1, stride)
    columns = range(0, x.shape[3] - k + 1, stride)
    made = np.zeros((x.shape[0], w.shape[0], len(rows), len(columns)), "float32")
    for o in range(w.shape[0]):
        first = o // per * w.shape[1]
        for i, r in enumerate(rows):
            for j, c in enumerate(columns):
                made[:, o, i, j] = (x[:, first : first + w.shape[1], r : r + k, c : c + k] * w[o]).sum((1, 2, 3))
    return made


def leaky(x):
    return np.where(x > 0, x, x * np.float32(0.1))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def written(folder, text, *numbers):
    (folder / "net.cfg").write_text(text)
    data = struct.pack("<iiiq", 0, 2, 5, 7) + b"".join(np.float32(v).tobytes() for v in numbers)
    (folder / "net.weights").write_bytes(data)
    return folder / "net.cfg"


def run(path, x, **more):
    mod, params = relay.frontend.from_darknet(path, **more)
    ex = relay.build(mod, "llvm", params=params)["default"]().executor
    ex.set_input(0, x)
    ex.run()
    return [ex.get_output(i).numpy() for i in range(len(ex.outputs))]


def test_a_detector(tmp_path):
    """Normalized convolutions, pools, routes, a shortcut, an upsampling, two layers of boxes."""
    text = """
[net]
channels=3
height=8
width=8   # a remark

[convolutional]
batch_normalize=1
filters=4
size=3
stride=1
pad=1
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
filters=4
size=3
groups=2
pad=1
activation=mish

[shortcut]
from=-2
activation=linear

[convolutional]
filters=14
size=1
activation=linear

[yolo]
mask=0,1
anchors=1,2, 3,4, 5,6
classes=2

[route]
layers=-3

[upsample]
stride=2

[route]
layers=-1,0

[route]
layers=-1
groups=2
group_id=1

[convolutional]
filters=14
size=1
activation=linear

[region]
num=2
classes=2
softmax=1
"""
    bias, scale, mean, variance, w0 = n(4), n(4), n(4), np.abs(n(4)) + 0.5, n(4, 3, 3, 3)
    b2, w2, b4, w4, b10, w10 = n(4), n(4, 2, 3, 3), n(14), n(14, 4, 1, 1), n(14), n(14, 4, 1, 1)
    path = written(tmp_path, text, bias, scale, mean, variance, w0, b2, w2, b4, w4, b10, w10)
    x = n(1, 3, 8, 8)

    def each(v):
        return v.reshape(1, -1, 1, 1)

    def boxes(v, classes):
        v = v.reshape(1, 2, 7, *v.shape[2:]).copy()
        v[:, :, :2], v[:, :, 4:5] = sigmoid(v[:, :, :2]), sigmoid(v[:, :, 4:5])
        v[:, :, 5:] = classes(v[:, :, 5:])
        return v.reshape(1, 14, *v.shape[3:])

    l0 = leaky((conv(x, w0, 1, 1) - each(mean)) / (np.sqrt(each(variance)) + 1e-6) * each(scale) + each(bias))
    padded = np.pad(l0, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf)
    l1 = np.max([padded[:, :, i : i + 8 : 2, j : j + 8 : 2] for i in (0, 1) for j in (0, 1)], 0)
    l2 = conv(l1, w2, 1, 1, groups=2) + each(b2)
    l2 = l2 * np.tanh(np.log1p(np.exp(l2)))
    l3 = l2 + l1
    first = boxes(conv(l3, w4, 1, 0) + each(b4), sigmoid)
    l8 = np.concatenate([l3.repeat(2, 2).repeat(2, 3), l0], 1)
    l10 = conv(l8[:, 4:], w10, 1, 0) + each(b10)
    second = boxes(l10, lambda v: np.exp(v) / np.exp(v).sum(2, keepdims=True))
    got = run(path, x)
    assert len(got) == 2
    for g, want in zip(got, (first, second)):
        np.testing.assert_allclose(g, want, rtol=1e-3, atol=1e-4)


def test_a_classifier(tmp_path):
    text = """[net]
channels=2
height=4
width=4
[convolutional]
filters=3
size=2
stride=2
activation=relu
[avgpool]
[connected]
output=5
activation=linear
batch_normalize=1
[dropout]
[softmax]
[cost]
"""
    b0, w0, b2, w2, scale, mean, variance = n(3), n(3, 2, 2, 2), n(5), n(5, 3), n(5), n(5), np.abs(n(5)) + 0.5
    path = written(tmp_path, text, b0, w0, b2, w2, scale, mean, variance)
    x = n(2, 2, 4, 4)
    l1 = np.maximum(conv(x, w0, 2, 0) + b0.reshape(1, 3, 1, 1), 0).mean((2, 3))
    l2 = (l1 @ w2.T - mean) / (np.sqrt(variance) + 1e-6) * scale + b2
    want = np.exp(l2) / np.exp(l2).sum(1, keepdims=True)
    np.testing.assert_allclose(run(path, x, shape=(2, 2, 4, 4))[0], want, rtol=1e-4, atol=1e-5)


def test_what_is_refused(tmp_path):
    head = "[net]\nchannels=2\nheight=4\nwidth=4\n"
    layer = "[convolutional]\nfilters=3\nsize=1\nactivation=linear\n"
    fine = [n(3), n(3, 2, 1, 1)]
    cases = [
        (head + layer + "[gru]\n[local]\n", fine, r"not supported: gru, local"),
        (head + layer.replace("linear", "plse"), fine, r"the activation 'plse' \(layer 0, \[convolutional\]\)"),
        (head + layer, fine[:1], "ends too early"),
        (head + layer, [*fine, n(3)], "has 9 weights, the file 12"),
        (head + layer + "[shortcut]\nfrom=-3\n", fine, "reads layer -2, which is none"),
        (head + layer.replace("filters=3", "filters=x"), fine, "an option is not what it should be"),
        ("[conv]\n", fine, r"does not begin with \[net\]"),
        (head + "nonsense\n", fine, "line 5 is no option"),
    ]
    for text, numbers, match in cases:
        with pytest.raises(error.LatheError, match=match):
            relay.frontend.from_darknet(written(tmp_path, text, *numbers))
    path = written(tmp_path, head + layer, *fine)
    (tmp_path / "net.weights").write_bytes(b"1234")
    for act, match in [
        (lambda: relay.frontend.from_darknet(path), "has no header"),
        (lambda: relay.frontend.from_darknet(path, weights=tmp_path / "none"), "No such file"),
        (lambda: relay.frontend.from_darknet(7), "takes the path of a .cfg file"),
        (lambda: relay.frontend.from_darknet(path, dtype="float16"), "computes in float32"),
    ]:
        with pytest.raises(error.LatheError, match=match):
            act()
