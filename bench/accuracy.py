#!/usr/bin/env python3
"""What quantization costs in accuracy: float against int8, by each way of finding ranges.

    bench/accuracy.py [--samples 2000] [--modes percentile,kl,minmax] [--json]

Networks: the convolutional one of examples/digits; a multilayer perceptron that is trained here on the 8 × 8 digits
(the first 1,437 of the shared set, or of scikit-learn's; the other 360 test it) and one on MNIST (8,000 of the shared
test pictures train it, 2,000 others test it); MNIST's convolutional and dense networks of the shared models. Scales
come from 256 samples that are not tested with. Columns: top-1 in float, quantized in Lathe, and of the same file in
ONNX Runtime; dB is the signal to noise of the output."""
import argparse
import gzip
import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from lathe import quantize  # noqa: E402

SHARED = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT.parent / "shared")) / "models"


# ---- data --------------------------------------------------------------------------------------------------


def digits():
    """Pictures of 8 × 8 in [0, 16], labels; shuffled with seed 0."""
    path = SHARED / "data/digits.csv.gz"
    if path.exists():
        rows = np.loadtxt(gzip.open(path), delimiter=",")
    else:
        from sklearn.datasets import load_digits

        data = load_digits()
        rows = np.concatenate([data.data, data.target[:, None]], axis=1)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    return rows[:, :64].astype("float32"), rows[:, 64].astype(int)


def mnist():
    """The test pictures, 28 × 28 in [0, 255], and labels."""

    def read(name, offset):
        return np.frombuffer(gzip.open(SHARED / "data" / name).read(), np.uint8, offset=offset)

    x = read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype("float32")
    return x, read("t10k-labels-idx1-ubyte.gz", 8).astype(int)


# ---- a perceptron, by plain gradients --------------------------------------------------------------------------


def train(x, y, sizes, epochs, rate=1e-3, batch=64):
    """Weights of dense layers with ReLU between them, by Adam on the cross entropy."""
    rng = np.random.default_rng(0)
    layers = [[rng.normal(0, np.sqrt(2 / a), (a, b)).astype("float32"), np.zeros(b, "float32")]
              for a, b in zip(sizes, sizes[1:])]
    moments, step = [[(np.zeros_like(v), np.zeros_like(v)) for v in layer] for layer in layers], 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for at in range(0, len(x), batch):
            pick = order[at : at + batch]
            acts = [x[pick]]
            for i, (w, b) in enumerate(layers):
                z = acts[-1] @ w + b
                acts.append(z if i == len(layers) - 1 else np.maximum(z, 0))
            p = np.exp(acts[-1] - acts[-1].max(axis=1, keepdims=True))
            g = p / p.sum(axis=1, keepdims=True)
            g[np.arange(len(pick)), y[pick]] -= 1
            step += 1
            for i in range(len(layers) - 1, -1, -1):
                grads = [acts[i].T @ g / len(pick), g.mean(axis=0)]
                g = (g @ layers[i][0].T) * (acts[i] > 0)
                for k in range(2):
                    m, v = moments[i][k]
                    m = 0.9 * m + 0.1 * grads[k]
                    v = 0.999 * v + 0.001 * grads[k] ** 2
                    moments[i][k] = (m, v)
                    layers[i][k] = layers[i][k] - np.float32(rate / (1 - 0.9**step)) * m / (
                        np.sqrt(v / np.float32(1 - 0.999**step)) + np.float32(1e-8))
    return layers


def write(layers, path):
    """The layers as Gemm and Relu."""
    nodes, inits, last = [], [], "x"
    for i, (w, b) in enumerate(layers):
        inits += [numpy_helper.from_array(np.asarray(w, "float32"), f"w{i}"),
                  numpy_helper.from_array(np.asarray(b, "float32"), f"b{i}")]
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"t{i}"], f"dense{i}"))
        last = f"t{i}"
        if i < len(layers) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"r{i}"]))
            last = f"r{i}"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "perceptron", [value("x", TensorProto.FLOAT, ["n", len(layers[0][0])])],
                              [value(last, TensorProto.FLOAT, ["n", len(layers[-1][1])])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


# ---- networks -----------------------------------------------------------------------------------------------------


def networks(folder, samples):
    """Name, model, input's name, pictures for scales, pictures to test with, their labels."""
    x, y = digits()
    layers = train(x[:1437] / 16, y[:1437], (64, 64, 32, 10), 60)
    yield "digits, perceptron", write(layers, folder / "digits_mlp.onnx"), "x", x[:256] / 16, x[1437:] / 16, y[1437:]
    held = np.load(ROOT / "examples/digits/held_back.npz")
    pictures = (held["images"] / 16.0).reshape(-1, 1, 8, 8).astype("float32")
    yield ("digits, convolutional", ROOT / "examples/digits/digits.onnx", "pixels", pictures[:100], pictures[100:],
           held["labels"][100:].astype(int))
    if not (SHARED / "data").exists():
        return
    x, y = mnist()
    layers = train(x[:8000] / 255, y[:8000], (784, 128, 64, 10), 8)
    test = slice(8000, 8000 + samples)
    yield "MNIST, perceptron", write(layers, folder / "mnist_mlp.onnx"), "x", x[:256] / 255, x[test] / 255, y[test]
    shared = (("MNIST, shared dense", "mnist_mlp.onnx", 255), ("MNIST, convolutional", "mnist_8/model.onnx", 1))
    for name, path, scale in shared:
        model = SHARED / "trained/onnx" / path
        port = onnx.load(str(model)).graph.input[0]
        shape = [-1] + [d.dim_value for d in port.type.tensor_type.shape.dim][1:]
        yield (name, model, port.name, (x[:256] / scale).reshape(shape), (x[test] / scale).reshape(shape), y[test])


def top1(path, name, x, labels):
    """In ONNX Runtime, one picture after the other."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.mean([session.run(None, {name: x[i : i + 1]})[0].argmax() == labels[i] for i in range(len(x))])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000, help="test pictures of MNIST")
    parser.add_argument("--modes", default="percentile,kl,minmax")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        if not args.json:
            print(f"{'network':24} {'ranges':11} {'float':>8} {'int8':>8} {'drop':>7} {'ONNX Runtime':>13} {'dB':>6}")
        for name, model, port, seen, x, labels in networks(folder, args.samples):
            for mode in args.modes.split(","):
                out = folder / "int8.onnx"
                quantize.quantize_onnx(model, {port: seen}, out, calibrate=mode)
                ours = accuracy(out, port, x, labels)
                floats = accuracy(model, port, x, labels)
                report = quantize.compare_onnx(model, out, {port: x[:64]})
                row = dict(network=name, ranges=mode, float=floats, int8=ours, onnxruntime=top1(out, port, x, labels),
                           snr=report[-1]["snr"])
                rows.append(row)
                if not args.json:
                    print(f"{name:24} {mode:11} {100 * floats:7.2f}% {100 * ours:7.2f}% {100 * (floats - ours):6.2f}% "
                          f"{100 * row['onnxruntime']:12.2f}% {row['snr']:6.1f}", flush=True)
    if args.json:
        print(json.dumps(rows))


def accuracy(path, name, x, labels):
    """In Lathe, one picture after the other."""
    import lathe
    from lathe import relay
    from lathe.contrib import graph_executor

    mod, params = relay.frontend.from_onnx(str(path), {name: (1, *x.shape[1:])})
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm -mcpu=native", params=params)
    model = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    right = 0
    for i, label in enumerate(labels):
        model.set_input(name, x[i : i + 1])
        model.run()
        right += int(model.get_output(0).numpy().argmax() == label)
    return right / len(labels)


if __name__ == "__main__":
    main()
