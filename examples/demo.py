#!/usr/bin/env python3
"""What Lathe does: a trained digit classifier and ResNet-18, from ONNX files to programs that run.

usage: make demo"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import lathe  # noqa: E402
from lathe import relay  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402

COLOUR = sys.stdout.isatty()


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if COLOUR else text


def picture(image: "np.ndarray[Any, Any]") -> List[str]:
    """A digit as eight lines of text."""
    return ["".join(" .:+*#%@"[min(int(v) // 2, 7)] * 2 for v in row) for row in image]


def digits(folder: pathlib.Path) -> None:
    print(bold("1. A digit classifier") + " (examples/digits: trained on scikit-learn's digits)\n")
    held = np.load(HERE / "digits" / "held_back.npz")
    images, labels = held["images"], held["labels"]
    mod, params = relay.frontend.from_onnx(str(HERE / "digits" / "digits.onnx"), {"pixels": (len(images), 1, 8, 8)})
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm" if lathe.runtime.enabled("llvm") else "c", params=params)
    path = folder / "digits.so"
    lib.export_library(path)
    model = graph_executor.GraphModule(lathe.runtime.load_module(path)["default"](lathe.cpu(0)))
    model.set_input("pixels", (images / 16.0).astype("float32").reshape(-1, 1, 8, 8))
    model.run()
    answers = model.get_output(0).numpy()
    shown = [picture(images[i]) for i in range(4)]
    for line in zip(*shown):
        print("   " + "    ".join(line))
    print(
        "   "
        + "    ".join(
            f"{'this is a ' + str(answers[i].argmax()) + ' (' + format(answers[i].max(), '.0%') + ')':<16}"
            for i in range(4)
        )
    )
    right = int((answers.argmax(1) == labels).sum())
    print(
        f"\n   {right} of {len(labels)} held-back digits right ({right / len(labels):.1%}); the program is one file of {path.stat().st_size // 1024} KB\n"
    )


def resnet(folder: pathlib.Path) -> None:
    import onnx
    import onnxruntime

    import resnet18

    print(bold("2. ResNet-18") + " (examples/resnet18.py, deterministic weights)\n")
    source, compiled = folder / "resnet18.onnx", folder / "resnet18.so"
    onnx.save(resnet18.model(), str(source))
    build = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", HERE.parent / "build"))
    start = time.perf_counter()
    subprocess.run([build / "lathe", "compile", source, "-o", compiled, "--shape", "input=1,3,224,224"], check=True)
    spent = time.perf_counter() - start
    print(
        f"   lathe compile resnet18.onnx -o resnet18.so: {spent:.1f} s, {compiled.stat().st_size / 1e6:.1f} MB from {source.stat().st_size / 1e6:.1f} MB\n"
    )

    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype("float32")
    model = graph_executor.GraphModule(lathe.runtime.load_module(compiled)["default"](lathe.cpu(0)))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = lathe.runtime.num_threads()
    peer = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    model.set_input("input", x)
    model.run()
    ours, theirs = model.get_output(0).numpy(), peer.run(None, {"input": x})[0]
    error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    times: Dict[str, List[float]] = {"Lathe": [], "ONNX Runtime": []}
    for _ in range(5):
        for name, run in (("Lathe", model.run), ("ONNX Runtime", lambda: peer.run(None, {"input": x}))):
            time.sleep(0.1)                     # the other's threads look for work for a while, on the same cores
            run()
            for _ in range(3):
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    subprocess.run([build / "lathe", "bench", compiled, "--repeat", "10", "--profile"], check=True)
    print(
        f"\n   the outputs differ from ONNX Runtime's by {error:.1e} (relative); top-1 {'agrees' if ours.argmax() == theirs.argmax() else 'DIFFERS'}"
    )
    for name, t in times.items():
        print(f"   {name:<13} {np.median(t) * 1e3:7.2f} ms (median of {len(t)}, {lathe.runtime.num_threads()} threads)")
    if not error < 1e-3:
        sys.exit("the outputs do not agree")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        digits(pathlib.Path(folder))
        resnet(pathlib.Path(folder))
    print(
        "\nNext: README.md, docs/onnx.md; 'build/lathe --help'.  The tensor-expression lesson: examples/matmul_demo.py"
    )


if __name__ == "__main__":
    main()
