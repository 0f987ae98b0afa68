#!/usr/bin/env python3
"""What it takes to start: file, load, first answer and memory, with weights ready and as trained, beside ONNX Runtime.

    bench/load.py [--networks resnet18,resnet50] [--models DIR] [--threads 2] [--rounds 5] [--json] [--check]

Each figure comes from a process of its own whose files are in the page cache.  `load` is lathe_rt_model_load (for
weights as trained it prepares them) or the making of an ONNX Runtime session; `first` goes on until the first answer is
there.  Both are the least of the rounds, the processes taking turns; cpu is the processor time up to the first answer,
of all threads, which other programs disturb less.  `memory` is what the process holds afterwards beyond what importing
its library takes (VmRSS), the pages of mapped files that were touched counted.  `file` is the whole compiled file and
`weights` those in it, each against the bytes of the .onnx file."""

import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples"), str(ROOT / "python")]

ASKED_FIRST, ASKED_WEIGHTS = 0.250, 1.02  # seconds of resnet18; bytes of weights over those of the .onnx file
TOLERANCE = 1e-3


def held():
    """Memory that this process has now, in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))


def child(who, library, model, inputs, threads, out):
    """In a process of its own: prints seconds of load and of the first answer, processor time, memory."""
    import memory
    import numpy as np

    feeds = memory.feeds_of(inputs)
    if who == "onnxruntime":
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
    else:
        import models_remote

        runtime = models_remote.Runtime(library)
    before, start, cpu = held(), time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    if who == "onnxruntime":
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        loaded = time.perf_counter()
        outputs = session.run(None, feeds)
    else:
        runner = models_remote.Runner(runtime, model, threads)
        loaded = time.perf_counter()
        outputs = runner.run(feeds)
    end, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    print(json.dumps({"load": loaded - start, "first": end - start, "cpu": used, "memory": held() - before}))
    np.savez(out, *outputs)


def compiled(folder, name, how):
    """The file, and the bytes of its weights as `lathe inspect` tells them."""
    program, path = ROOT / "build/lathe", folder / f"{name}_{how}.so"
    subprocess.run([program, "compile", folder / "model.onnx", "-o", path, "--weights", how], check=True)
    told = json.loads(subprocess.run([program, "inspect", path, "--json"], check=True, capture_output=True).stdout)
    return path, told["weights_bytes"]


def rows_of(name, models, threads, rounds):
    import memory
    import numpy as np
    import peers

    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        memory.write_model(name, models, folder)
        source = (folder / "model.onnx").stat().st_size
        library = memory.runtime_library()
        files = {how: compiled(folder, name, how) for how in ("ready", "trained")}
        files["onnxruntime"] = (folder / "model.onnx", source)
        best = {}
        for _ in range(rounds):
            for who, (path, _weights) in files.items():
                command = [sys.executable, __file__, "--child", who, library, path, folder / "inputs.npz", threads]
                done = subprocess.run(
                    [str(c) for c in (*command, folder / f"{who}.npz")], capture_output=True, text=True
                )
                if done.returncode:
                    raise SystemExit(f"{who} failed:\n{done.stderr}")
                got = json.loads(done.stdout.splitlines()[-1])
                best[who] = {k: min(v, best.get(who, got)[k]) for k, v in got.items()}
        answers = {}
        for who in files:
            with np.load(folder / f"{who}.npz") as data:
                answers[who] = [data[k] for k in data.files]
        for who in ("ready", "trained"):
            error = peers.relative_error(answers[who], answers["onnxruntime"])
            if error > TOLERANCE:
                raise SystemExit(f"{name}: the outputs do not agree: relative error {error:.1e}")
        return [
            {"network": name, "weights": who, **best[who], "file": path.stat().st_size / source, "share": size / source}
            for who, (path, size) in files.items()
        ]


def main():
    if sys.argv[1:2] == ["--child"]:
        who, library, model, inputs, threads, out = sys.argv[2:]
        return child(who, library, model, inputs, int(threads), out)
    parser = argparse.ArgumentParser(description=re.split("[:\n]", __doc__)[0])
    parser.add_argument("--networks", default="resnet18", help="comma list of files in --models; resnet18 needs none")
    parser.add_argument("--models", help="folder of NAME.onnx")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure is above what is asked")
    args = parser.parse_args()
    rows = [r for name in args.networks.split(",") for r in rows_of(name, args.models, args.threads, args.rounds)]
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        print("| network | weights | load ms | first ms | cpu ms | memory MB | file / onnx | weights / onnx |")
        print("|---|---|---|---|---|---|---|---|")
        for r in rows:
            print(
                f"| {r['network']} | {r['weights']} | {1e3 * r['load']:.0f} | {1e3 * r['first']:.0f} "
                f"| {1e3 * r['cpu']:.0f} | {r['memory'] / 1e6:.0f} | {r['file']:.3f} | {r['share']:.3f} |"
            )
    trained = [r for r in rows if r["weights"] == "trained"]
    late = [r for r in trained if r["network"] == "resnet18" and r["first"] > ASKED_FIRST]
    return int(args.check and bool(late or any(r["share"] > ASKED_WEIGHTS for r in trained)))


if __name__ == "__main__":
    sys.exit(main())
