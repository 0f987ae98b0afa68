#!/usr/bin/env python3
"""Trains the digit classifier that the demo compiles, and writes digits.onnx and held_back.npz.

usage: python examples/digits/make.py        (needs numpy, scikit-learn and onnx)

The recipe: scikit-learn's digits (1,797 pictures of 8 × 8), shuffled with seed 0; the last
360 are held back, the rest train a network of two convolutions (3 × 3, 12 and 24 channels,
batch normalisation, ReLU, 2 × 2 max-pooling) and one dense layer, for 60 epochs of Adam
in plain numpy.  The same machine gives the same bytes every time."""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

HERE = pathlib.Path(__file__).resolve().parent
HELD_BACK, EPOCHS, BATCH, RATE = 360, 60, 32, 2e-3


def windows(x: np.ndarray) -> np.ndarray:
    """(n, c, h, w) → (n, h, w, c·9): the 3 × 3 surroundings of each pixel, zeros outside."""
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    v = np.lib.stride_tricks.sliding_window_view(p, (3, 3), axis=(2, 3))
    return v.transpose(0, 2, 3, 1, 4, 5).reshape(x.shape[0], x.shape[2], x.shape[3], -1)


class Conv:
    """3 × 3 convolution, batch normalisation, ReLU, 2 × 2 max-pooling, with its own gradients."""

    def __init__(self, rng, cin, cout):
        self.p = {
            "w": rng.normal(0, np.sqrt(2 / (cin * 9)), (cout, cin * 9)),
            "gamma": np.ones(cout),
            "beta": np.zeros(cout),
        }
        self.mean, self.var, self.cin = np.zeros(cout), np.ones(cout), cin

    def forward(self, x, train):
        self.cols = windows(x)
        y = self.cols @ self.p["w"].T
        mean, var = (y.mean((0, 1, 2)), y.var((0, 1, 2))) if train else (self.mean, self.var)
        if train:
            self.mean, self.var = 0.9 * self.mean + 0.1 * mean, 0.9 * self.var + 0.1 * var
        self.std = np.sqrt(var + 1e-5)
        self.norm = (y - mean) / self.std
        self.act = np.maximum(self.norm * self.p["gamma"] + self.p["beta"], 0)
        n, h, w, c = self.act.shape
        self.quads = (
            self.act.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 5, 2, 4).reshape(n, h // 2, w // 2, c, 4)
        )
        return self.quads.max(-1).transpose(0, 3, 1, 2)

    def backward(self, g):
        n, c, h, w = g.shape
        first = np.eye(4)[self.quads.argmax(-1)]
        d = (
            (first * g.transpose(0, 2, 3, 1)[..., None])
            .reshape(n, h, w, c, 2, 2)
            .transpose(0, 1, 4, 2, 5, 3)
            .reshape(n, 2 * h, 2 * w, c)
        )
        d = d * (self.act > 0)
        grads = {"gamma": (d * self.norm).sum((0, 1, 2)), "beta": d.sum((0, 1, 2))}
        d = d * self.p["gamma"]
        d = (d - d.mean((0, 1, 2)) - self.norm * (d * self.norm).mean((0, 1, 2))) / self.std
        grads["w"] = np.einsum("nhwo,nhwk->ok", d, self.cols)
        back = (d @ self.p["w"]).reshape(n, 2 * h, 2 * w, self.cin, 3, 3)
        out = np.zeros((n, self.cin, 2 * h + 2, 2 * w + 2))
        for i in range(3):
            for j in range(3):
                out[:, :, i : i + 2 * h, j : j + 2 * w] += back[..., i, j].transpose(0, 3, 1, 2)
        return out[:, :, 1:-1, 1:-1], grads


def train(x, y):
    rng = np.random.default_rng(0)
    layers = [Conv(rng, 1, 12), Conv(rng, 12, 24)]
    dense = {"w": rng.normal(0, 0.1, (10, 24 * 4)), "b": np.zeros(10)}
    params = [layer.p for layer in layers] + [dense]
    moments = [{k: [np.zeros_like(v), np.zeros_like(v)] for k, v in p.items()} for p in params]
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for start in range(0, len(x), BATCH):
            pick = order[start : start + BATCH]
            h = x[pick]
            for layer in layers:
                h = layer.forward(h, True)
            flat = h.reshape(len(pick), -1)
            z = flat @ dense["w"].T + dense["b"]
            z = np.exp(z - z.max(1, keepdims=True))
            d = (z / z.sum(1, keepdims=True) - np.eye(10)[y[pick]]) / len(pick)
            grads = [None, None, {"w": d.T @ flat, "b": d.sum(0)}]
            g = (d @ dense["w"]).reshape(h.shape)
            for i in (1, 0):
                g, grads[i] = layers[i].backward(g)
            step += 1
            for p, m, gr in zip(params, moments, grads):
                for k in p:
                    m[k][0] = 0.9 * m[k][0] + 0.1 * gr[k]
                    m[k][1] = 0.999 * m[k][1] + 0.001 * gr[k] ** 2
                    p[k] -= RATE * (m[k][0] / (1 - 0.9**step)) / (np.sqrt(m[k][1] / (1 - 0.999**step)) + 1e-8)
    return layers, dense


def export(layers, dense, path):
    weights, nodes, last = [], [], "pixels"

    def weight(name, value):
        weights.append(numpy_helper.from_array(np.asarray(value, "float32"), name))
        return name

    for i, layer in enumerate(layers, 1):
        cout = len(layer.mean)
        names = [weight(f"conv{i}.weight", layer.p["w"].reshape(cout, layer.cin, 3, 3))]
        nodes.append(helper.make_node("Conv", [last] + names, [f"conv{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        stats = [
            weight(f"norm{i}.{k}", v)
            for k, v in (
                ("gamma", layer.p["gamma"]),
                ("beta", layer.p["beta"]),
                ("mean", layer.mean),
                ("var", layer.var),
            )
        ]
        nodes.append(
            helper.make_node("BatchNormalization", [f"conv{i}"] + stats, [f"norm{i}"], f"norm{i}", epsilon=1e-5)
        )
        nodes.append(helper.make_node("Relu", [f"norm{i}"], [f"relu{i}"], f"relu{i}"))
        last = f"pool{i}"
        nodes.append(helper.make_node("MaxPool", [f"relu{i}"], [last], last, kernel_shape=[2, 2], strides=[2, 2]))
    nodes.append(helper.make_node("Flatten", [last], ["flat"], "flatten"))
    nodes.append(
        helper.make_node(
            "Gemm",
            ["flat", weight("dense.weight", dense["w"]), weight("dense.bias", dense["b"])],
            ["scores"],
            "dense",
            transB=1,
        )
    )
    nodes.append(helper.make_node("Softmax", ["scores"], ["probabilities"], "softmax", axis=1))
    graph = helper.make_graph(
        nodes, "digits", [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])], weights)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="examples/digits/make.py"
    )
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def main():
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = (digits.images[order] / 16.0).reshape(-1, 1, 8, 8), digits.target[order]
    layers, dense = train(x[:-HELD_BACK], y[:-HELD_BACK])
    export(layers, dense, HERE / "digits.onnx")
    held = (x[-HELD_BACK:] * 16).astype("uint8").reshape(-1, 8, 8)
    np.savez(HERE / "held_back.npz", images=held, labels=y[-HELD_BACK:].astype("uint8"))
    h = x[-HELD_BACK:]
    for layer in layers:
        h = layer.forward(h, False)
    right = (h.reshape(HELD_BACK, -1) @ dense["w"].T + dense["b"]).argmax(1) == y[-HELD_BACK:]
    print(
        f"digits.onnx: {(HERE / 'digits.onnx').stat().st_size} bytes; {right.sum()} of {HELD_BACK} held-back digits right"
    )


if __name__ == "__main__":
    main()
