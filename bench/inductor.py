#!/usr/bin/env python3
"""Networks of torchvision under torch.compile: Lathe's backend beside PyTorch's own (inductor).

    bench/inductor.py [--match REGEX] [--threads 1,2] [--rounds 5] [--side 224] [--most 200] [--cpu]

Every classification network, batch 1, random weights, under torch.no_grad().  Each is compiled by both, the results are
compared with PyTorch's without a compiler, then both run in turns, round after round, in one process.  A figure is the
median over the rounds of a run's wall time (with --cpu its processor time); the ratio is inductor's divided by Lathe's,
so that more than 1 is faster than inductor.  The last lines have the geometric mean for each number of threads.  --most
leaves out networks of more than so many million parameters.  Inductor needs a C++ compiler."""

import argparse
import math
import pathlib
import re
import statistics
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import torch  # noqa: E402
from pytorch_networks import settle, torchvision_cases, torchvision_model  # noqa: E402

import lathe  # noqa: E402
import lathe.contrib.torch  # noqa: E402, F401

LIMIT = 1e-3
LEAST_SECONDS = 0.05  # of one measurement: short networks run several times


def image(name, model, side):
    """What the network takes: an image of this size, or of the one that the network is made for."""
    fixed = getattr(model, "image_size", None)
    return torch.randn(1, 3, fixed or side, fixed or side)


def difference(got, want):
    """The largest one, over the largest value."""
    return float((got - want).abs().max() / want.abs().max().clamp_min(1e-6))


def timed(fn, x, clock, times):
    """Seconds of a run."""
    begin = clock()
    for _ in range(times):
        fn(x)
    return (clock() - begin) / times


def compare(name, args):
    """Seconds of inductor and of Lathe, by the number of threads."""
    model, _ = torchvision_model(name, "classification")
    x = image(name, model, args.side)
    settle(model, (x,))
    model.eval()
    clock = time.process_time if args.cpu else time.perf_counter
    found = {}
    with torch.no_grad():
        want = model(x)
        for threads in args.threads:
            torch._dynamo.reset()
            torch.set_num_threads(threads)
            lathe.runtime.set_num_threads(threads)
            ours = torch.compile(model, backend="lathe", options={"target": "llvm -mcpu=native", "cache": False})
            theirs = torch.compile(model, backend="inductor")
            for who, fn in (("lathe", ours), ("inductor", theirs)):
                off = difference(fn(x), want)
                if off > LIMIT:
                    raise RuntimeError(f"{who} differs by {off:.1e} of the largest value")
            times = max(1, math.ceil(LEAST_SECONDS / max(timed(ours, x, time.perf_counter, 1), 1e-6)))
            rounds = [(timed(theirs, x, clock, times), timed(ours, x, clock, times)) for _ in range(args.rounds)]
            found[threads] = [statistics.median(column) for column in zip(*rounds)]
    return found


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="")
    parser.add_argument("--threads", default="1,2", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--most", type=float, default=200)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'network':28} {'threads':>7} {'inductor ms':>11} {'lathe ms':>9} {'ratio':>6}")
    ratios = {n: [] for n in args.threads}
    for family, name, _ in torchvision_cases(args.match, args.most):
        if family != "classification" or re.match("quantized_", name):
            continue
        try:
            found = compare(name, args)
        except Exception as e:  # noqa: BLE001 (one that fails is named, and the others still run)
            print(f"{name:28} failed: {type(e).__name__}: {' '.join(str(e).split())[:200]}", flush=True)
            continue
        for threads, (theirs, ours) in found.items():
            ratios[threads].append(theirs / ours)
            print(f"{name:28} {threads:7} {theirs * 1e3:11.2f} {ours * 1e3:9.2f} {theirs / ours:6.2f}", flush=True)
    for threads, each in ratios.items():
        if each:
            mean = math.exp(sum(map(math.log, each)) / len(each))
            print(f"geometric mean of {len(each)} networks, threads {threads}: {mean:.2f}")


if __name__ == "__main__":
    main()
