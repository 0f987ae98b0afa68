#!/usr/bin/env python3
"""Quantized networks, Lathe beside ONNX Runtime and beside its own float32.

    bench/quantized.py [--networks resnet18,mobilenet_v2] [--forms qdq,qop,dynamic] [--threads 1] [--rounds 5] [--json]

The networks of the shared graphs are quantized here by onnxruntime.quantization: qdq and qop (static, uint8
activations, int8 weights, a scale for each channel, calibrated on random inputs) for convolutional networks, dynamic
for transformers.  Runs are interleaved, in processor time of the process, the least of all rounds; the ratio is ONNX
Runtime's time over Lathe's.  Results are compared: the share of the largest output by which they differ at most, and
whether the largest output is the same.  File sizes are of the compiled model over the quantized one."""
import argparse
import json
import logging
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import models as networks  # noqa: E402

CONVOLUTIONAL = ["resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "squeezenet1_1"]
TRANSFORMERS = ["minilm_l6", "bert_base"]


def quantized(path, form):
    """The quantized model beside the float one; made once."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    out = path.with_name(f"{path.stem}_{form}.onnx")
    if out.exists() and out.stat().st_mtime > path.stat().st_mtime:
        return out
    ready = path.with_name(f"{path.stem}_ready.onnx")
    quant_pre_process(str(path), str(ready), skip_symbolic_shape=True)
    if form == "dynamic":
        quantization.quantize_dynamic(str(ready), str(out), weight_type=quantization.QuantType.QInt8)
        return out

    class Samples(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = [networks.random_feeds(path, seed) for seed in range(2)]

        def get_next(self):
            return self.left.pop() if self.left else None

    style = quantization.QuantFormat.QDQ if form == "qdq" else quantization.QuantFormat.QOperator
    quantization.quantize_static(
        str(ready), str(out), Samples(), quant_format=style, per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8)
    return out


def lathe_runner(path, feeds, folder):
    """A function that runs once and gives the first output, and the bytes of the compiled file."""
    import lathe
    from lathe import relay
    from lathe.contrib import graph_executor

    mod, params = relay.frontend.from_onnx(str(path), {k: v.shape for k, v in feeds.items()})
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm -mcpu=native", params=params)
    file = folder / f"{path.stem}.so"
    lib.export_library(str(file))
    model = graph_executor.GraphModule(lathe.runtime.load_module(str(file))["default"](lathe.cpu(0)))
    for name, value in feeds.items():
        model.set_input(name, value)

    def run():
        model.run()
        return model.get_output(0).numpy()

    return run, file.stat().st_size


def ort_runner(path, feeds, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)[0]


def least(runs, rounds, seconds=0.4):
    """Least processor time of each, in turn, round after round."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            end = time.perf_counter() + seconds
            while True:
                begin = time.process_time()
                run()
                best[i] = min(best[i], time.process_time() - begin)
                if time.perf_counter() > end:
                    break
    return best


def measure(name, form, folder, shared, threads, rounds):
    source = networks.filled(shared, name, folder)
    path = quantized(source, form)
    feeds = networks.random_feeds(source, 7)
    own, size = lathe_runner(path, feeds, folder)
    plain, _ = lathe_runner(source, feeds, folder)
    peer = ort_runner(path, feeds, threads)
    have, want = own(), peer()
    mine, theirs, real = least([own, peer, plain], rounds)
    return {
        "network": name, "form": form, "threads": threads, "lathe_ms": 1e3 * mine, "ort_ms": 1e3 * theirs,
        "float_ms": 1e3 * real, "ratio": theirs / mine, "over_float": real / mine,
        "difference": float(np.abs(have - want).max() / np.abs(want).max()),
        "same_largest": bool(have.argmax() == want.argmax()), "size": size / path.stat().st_size,
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", default=",".join(CONVOLUTIONAL + TRANSFORMERS))
    arguments.add_argument("--forms", default="qdq,qop,dynamic")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--json", action="store_true")
    a = arguments.parse_args()
    shared = networks.shared_models()
    if shared is None:
        sys.exit("the graphs are not here: set LATHE_SHARED to the folder that has models/fill.py")
    logging.disable(logging.WARNING)
    os.environ["LATHE_NUM_THREADS"] = str(a.threads)
    folder = pathlib.Path(tempfile.gettempdir()) / "lathe_quantized"
    folder.mkdir(exist_ok=True)
    rows = []
    if not a.json:
        print("network              form      Lathe      ORT  ratio   float  over float  differs  largest  size")
    for name in a.networks.split(","):
        for form in a.forms.split(","):
            if (form == "dynamic") != (name in TRANSFORMERS):
                continue
            r = measure(name, form, folder, shared, a.threads, a.rounds)
            rows.append(r)
            if not a.json:
                print(f"{name:20s} {form:8s} {r['lathe_ms']:6.1f} {r['ort_ms']:8.1f} {r['ratio']:6.2f}"
                      f" {r['float_ms']:7.1f} {r['over_float']:11.2f} {r['difference']:8.1e}"
                      f" {'same' if r['same_largest'] else 'other':>8s}"
                      f" {r['size']:5.2f}", flush=True)
    if a.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
