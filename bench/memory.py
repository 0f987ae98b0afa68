#!/usr/bin/env python3
"""Peak memory of a loaded network beside ONNX Runtime's.

    bench/memory.py [--networks resnet50] [--models DIR] [--threads 1,2] [--rounds 3] [--no-winograd] [--json] [--check]

Each figure comes from a process of its own that loads the network, runs it once and reads the
most memory it has had (VmHWM).  Lathe's loads the compiled file with the runtime alone, ONNX Runtime's the .onnx
with default settings.  What the same process has after importing its library and nothing else is
subtracted, on both sides; pages of a mapped file that were touched count.  The least of the rounds is taken."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples"), str(ROOT / "python")]

RATIO = 1.0                 # Lathe's over ONNX Runtime's, at most
TOLERANCE = 1e-3


def peak():
    """The most memory that this process has had so far, in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def feeds_of(path):
    import numpy as np

    with np.load(path) as data:
        return {k: data[k] for k in data.files}


def child(who, library, model, inputs, threads, out):
    """In a process of its own: with a library and no model ("-") only what importing takes."""
    import numpy as np

    if who == "lathe":
        import models_remote

        runtime = models_remote.Runtime(library)

        def run(feeds):
            return models_remote.Runner(runtime, model, threads).run(feeds)
    else:
        import onnxruntime as ort

        def run(feeds):
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)

    feeds = feeds_of(inputs)
    outputs = run(feeds) if model != "-" else []
    print(peak())
    np.savez(out, *outputs)


def measure(who, library, model, inputs, threads, rounds, out):
    best = float("inf")
    for _ in range(rounds):
        for path in ("-", model):
            command = [sys.executable, __file__, "--child", who, library, path, inputs, threads, out]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise SystemExit(f"{who} failed:\n{done.stderr}")
            got = int(done.stdout.splitlines()[-1])
            if path == "-":
                empty = got
            else:
                best = min(best, got - empty)
    return best


def write_model(name, models, folder):
    """The network with its sizes fixed, and its inputs; gives the bytes of its weights."""
    import numpy as np
    import onnx

    if name == "resnet18" and not models:
        import resnet18

        model = resnet18.model(batch=1)
    else:
        path = pathlib.Path(models or ".") / f"{name}.onnx"
        if not path.exists():
            raise SystemExit(f"there is no '{path}'; --models names the folder of the networks")
        model = onnx.load(path)
    weights, rng, feeds = {t.name for t in model.graph.initializer}, np.random.default_rng(1), {}
    for v in model.graph.input:
        if v.name in weights:
            continue
        dims = v.type.tensor_type.shape.dim
        shape = [d.dim_value or (1 if i == 0 else 128) for i, d in enumerate(dims)]
        for d, n in zip(dims, shape):
            d.dim_value = n
        is_float = v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[v.name] = rng.standard_normal(shape).astype("float32") if is_float else np.ones(shape, "int64")
    onnx.save(model, str(folder / "model.onnx"))
    np.savez(folder / "inputs.npz", **feeds)
    return sum(len(t.raw_data) for t in model.graph.initializer)


def prepared(name, models, folder, config):
    """The network compiled, beside the file it was made of, its inputs, and the bytes of its weights."""
    import peers

    weights = write_model(name, models, folder)
    library, _ = peers.Lathe.compile(folder / "model.onnx", 3, config=config)
    library.export_library(str(folder / "model.so"))
    return weights


def runtime_library():
    for folder in (os.environ.get("LATHE_LIBRARY_PATH"), ROOT / "build"):
        if folder and (pathlib.Path(folder) / "liblathe_rt.so").exists():
            return pathlib.Path(folder) / "liblathe_rt.so"
    raise SystemExit("liblathe_rt.so is not found; set LATHE_LIBRARY_PATH to the folder that has it")


def rows_of(name, models, threads, rounds, config):
    import numpy as np

    import peers

    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        weights = prepared(name, models, folder, config)
        for n in threads:
            found, outputs = {}, {}
            for who, library, model in (
                ("lathe", runtime_library(), folder / "model.so"),
                ("onnxruntime", "-", folder / "model.onnx"),
            ):
                found[who] = measure(who, library, model, folder / "inputs.npz", n, rounds, folder / f"{who}.npz")
                with np.load(folder / f"{who}.npz") as data:
                    outputs[who] = [data[k] for k in data.files]
            error = peers.relative_error(outputs["lathe"], outputs["onnxruntime"])
            if error > TOLERANCE:
                raise SystemExit(f"{name}: the outputs do not agree: relative error {error:.1e}")
            rows.append(
                {
                    "network": name,
                    "threads": n,
                    "weights": weights,
                    "bytes": found,
                    "ratio": found["lathe"] / found["onnxruntime"],
                }
            )
    return rows


def main():
    if sys.argv[1:2] == ["--child"]:
        who, library, model, inputs, threads, out = sys.argv[2:]
        return child(who, library, model, inputs, int(threads), out)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--networks", default="resnet50", help="comma list of files in --models; resnet18 can be made without"
    )
    parser.add_argument("--models", help="folder of NAME.onnx")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-winograd", action="store_true", help="compiled without Winograd's transformed weights")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a ratio is above 1")
    args = parser.parse_args()
    config = {"lathe.impl.no_winograd": True} if args.no_winograd else {}
    threads = [int(t) for t in args.threads.split(",")]
    rows = [r for name in args.networks.split(",") for r in rows_of(name, args.models, threads, args.rounds, config)]
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        print("| network | threads | weights MB | Lathe MB | ONNX Runtime MB | ratio |\n|---|---|---|---|---|---|")
        for r in rows:
            mb = {k: v / 1e6 for k, v in r["bytes"].items()}
            print(
                f"| {r['network']} | {r['threads']} | {r['weights'] / 1e6:.1f} | {mb['lathe']:.1f} | {mb['onnxruntime']:.1f} | {r['ratio']:.2f} |"
            )
    return int(args.check and any(r["ratio"] > RATIO for r in rows))


if __name__ == "__main__":
    sys.exit(main())
