#!/usr/bin/env python3
"""Networks with the libraries that have a plugin: how much of them goes there, and what that costs.

    bench/byoc.py [--compilers openblas,dnnl,onnxruntime] [--networks resnet18,mobilenet_v2,bert]
                  [--count | --choose] [--small]

Each network is given to each library as far as its patterns go.  Printed are the convolutions and products that went
there, their part of all operations of such, the largest difference of the results over the largest value, and the
processor time of a run over that of the network without the library (runs in turns, the least of several rounds
counts).  --count stops behind the operations: nothing is compiled.  --choose also lets Lathe choose by measured cost,
prints the same of that, and at the end the largest of those times: a choice that costs more than 5 % beside no library
is a failure (exit status 1).  --small takes small images and few layers."""

import argparse
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]

import networks  # noqa: E402
import numpy as np  # noqa: E402

import lathe  # noqa: E402
from lathe import relay  # noqa: E402
from lathe.relay.collage import CostEstimator  # noqa: E402
from lathe.relay.op.contrib import partition_for  # noqa: E402

TARGET = "llvm -mcpu=native"
ROUNDS = 7
MOST = 1.05  # time of a model with what was chosen over that of one without a library


def network(name, small):
    """A module and a value for its input, data."""
    rng = np.random.default_rng(0)
    if name == "bert":
        mod, shape = networks.bert(*((2, 64, 4, 16) if small else (12, 768, 12, 128)))
        return mod, rng.integers(0, 1000, shape)
    side = 32 if small else 224
    if name == "mobilenet_v2":
        mod, shape = networks.mobilenet_v2(side)
        return mod, rng.standard_normal(shape).astype("float32")
    from lathe.relay.testing import resnet

    mod, params = resnet.get_workload(num_layers=18, image_shape=(3, side, side))
    return relay.build_module.as_module(mod, params), rng.standard_normal((1, 3, side, side)).astype("float32")


def runner(mod, x):
    """A function that runs it, and its first result."""
    executor = relay.build(mod, TARGET)["default"]().executor
    executor.set_input(0, x)
    executor.run()
    return executor.run, executor.get_output(0).numpy()


def seconds(runs):
    """Processor time of a run of each."""
    best = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for i, run in enumerate(runs):
            before = time.process_time()
            run()
            best[i] = min(best[i], time.process_time() - before)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compilers", default="openblas,dnnl,onnxruntime")
    parser.add_argument("--networks", default="resnet18,mobilenet_v2,bert")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    titles = f"{'network':14} {'library':18} {'kernels':>9} {'operations':>10}"
    print(titles if args.count else titles + f" {'difference':>10} {'time':>6}")
    chosen = {}
    with lathe.transform.PassContext(opt_level=3):
        for name in args.networks.split(","):
            mod, x = network(name, args.small)
            plain, want = (None, None) if args.count else runner(mod, x)
            for compiler in args.compilers.split(","):
                ways = {compiler: partition_for(compiler, mod)}
                if args.choose:
                    cost = CostEstimator(inputs={"data": x})
                    ways[compiler + ", chosen"] = partition_for(compiler, mod, cost=cost, target=TARGET)
                for way, part in ways.items():
                    covered, count, total = networks.offloaded(part)
                    row = f"{name:14} {way:18} {f'{count}/{total}':>9} {covered:10.1%}"
                    if not args.count:
                        run, got = runner(part, x)
                        ours, theirs = seconds([plain, run])
                        ratio = theirs / max(ours, 1e-9)
                        row += f" {np.abs(got - want).max() / np.abs(want).max():10.1e} {ratio:6.2f}"
                        if way != compiler:
                            chosen[f"{name} with {compiler}"] = ratio
                    print(row, flush=True)
    if not chosen:
        return 0
    worst = max(chosen, key=lambda k: chosen[k])
    print(f"chosen by Lathe: at most {chosen[worst]:.2f} of the time without a library ({worst}); {MOST} is the limit")
    return int(chosen[worst] > MOST)


if __name__ == "__main__":
    sys.exit(main())
