"""Tuning beside TVM's MetaSchedule: the same tensor expressions, tuned by both, the kernels then measured in turns.

    PYTHON bench/tuning_tvm.py [--trials 64] [--tvm-trials 500] [--only NAME] [--threads 1] [--check]

PYTHON is one that has apache-tvm (0.27), apache-tvm-ffi 0.1.14 (0.1.15 crashes on AArch64), xgboost, cloudpickle and
psutil; on a busy machine TVM gives up building.  For each of ten products and convolutions: the processor time
of a call of each kernel (least of some rounds, in turns), TVM's over Lathe's, and the wall time that each search took.
What the two give is compared.  With --check the status is 1 where TVM's kernel is faster by more than three hundredths,
or Lathe's search took more than a tenth of the time."""

import argparse
import logging
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

import numpy as np  # noqa: E402
import tvm  # noqa: E402
from tvm import te as tvm_te  # noqa: E402
from tvm.s_tir import meta_schedule as tvm_ms  # noqa: E402

import lathe  # noqa: E402
from lathe import meta_schedule as ms  # noqa: E402
from lathe import te  # noqa: E402


def product(m, n, k):
    def make(e):
        a, b, r = e.placeholder((m, k), name="A"), e.placeholder((k, n), name="B"), e.reduce_axis((0, k), name="k")
        return [a, b, e.compute((m, n), lambda i, j: e.sum(a[i, r] * b[r, j], axis=r), name="C")]

    return make


def conv(c, size, o, kernel, stride):
    out = (size - kernel) // stride + 1

    def make(e):
        a = e.placeholder((1, c, size, size), name="A")
        w = e.placeholder((o, c, kernel, kernel), name="W")
        rc, ry, rx = (e.reduce_axis((0, n), name=name) for name, n in (("c", c), ("y", kernel), ("x", kernel)))
        return [
            a,
            w,
            e.compute(
                (1, o, out, out),
                lambda n, f, y, x: e.sum(
                    a[n, rc, y * stride + ry, x * stride + rx] * w[f, rc, ry, rx], axis=[rc, ry, rx]
                ),
                name="C",
            ),
        ]

    return make


SHAPES = {
    "product 128 128 128": product(128, 128, 128),
    "product 256 256 256": product(256, 256, 256),
    "product 64 512 256": product(64, 512, 256),
    "product 16 768 768": product(16, 768, 768),
    "product 100 60 200": product(100, 60, 200),
    "conv 32x30 to 32, 3x3": conv(32, 30, 32, 3, 1),
    "conv 64x16 to 64, 3x3": conv(64, 16, 64, 3, 1),
    "conv 3x65 to 32, 3x3 by 2": conv(3, 65, 32, 3, 2),
    "conv 128x14 to 64, 1x1": conv(128, 14, 64, 1, 1),
    "conv 16x33 to 32, 5x5 by 2": conv(16, 33, 32, 5, 2),
}


def tune_lathe(make, args, folder):
    target = f"{lathe.target.Target()} -num-cores={args.threads}"
    mod = lathe.IRModule({"main": te.create_prim_func(make(te))})
    start = time.time()
    database = ms.tune_tir(mod, target, work_dir=f"{folder}/lathe", max_trials_global=args.trials)
    spent = time.time() - start
    sch = ms.tir_integration.compile_tir(database, mod, target)
    return lathe.build(sch.mod if sch else mod, target=target)["main"], spent


def tune_tvm(make, args, folder):
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm_cpu(), "num-cores": args.threads})
    mod = tvm.IRModule({"main": tvm_te.create_prim_func(make(tvm_te))})
    start = time.time()
    database = tvm_ms.tune_tir(
        mod, target, work_dir=f"{folder}/tvm", max_trials_global=args.tvm_trials, num_tuning_cores=2
    )
    spent = time.time() - start
    sch = tvm_ms.tir_integration.compile_tir(database, mod, target)
    return tvm.compile(sch.mod if sch else mod, target=target)["main"], spent


def tvm_cpu():
    return tvm.target.codegen.llvm_get_system_cpu()


def least_in_turns(runs):
    best = [float("inf")] * len(runs)
    for _ in range(15):
        for k, run in enumerate(runs):
            run()
            times, start = 0, time.process_time()
            while time.process_time() - start < 0.02:
                run()
                times += 1
            best[k] = min(best[k], (time.process_time() - start) / times)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--tvm-trials", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    good = True
    print(f"{'computation':28} {'Lathe us':>9} {'TVM us':>9} {'ratio':>6} {'Lathe s':>8} {'TVM s':>8}")
    for name, make in SHAPES.items():
        if args.only not in name:
            continue
        *inputs, output = make(te)
        rng = np.random.default_rng(0)
        values = [rng.standard_normal([int(d) for d in t.shape]).astype("float32") for t in inputs]
        shape = [int(d) for d in output.shape]
        with tempfile.TemporaryDirectory() as folder:
            own, own_wall = tune_lathe(make, args, folder)
            peer, peer_wall = tune_tvm(make, args, folder)
        mine = [lathe.nd.array(v) for v in values] + [lathe.nd.empty(shape)]
        theirs = [tvm.runtime.tensor(v) for v in values] + [tvm.runtime.tensor(np.zeros(shape, "float32"))]
        own(*mine), peer(*theirs)
        expected = theirs[-1].numpy()
        np.testing.assert_allclose(mine[-1].numpy(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
        seconds = least_in_turns([lambda: own(*mine), lambda: peer(*theirs)])
        ratio = seconds[1] / seconds[0]
        good &= ratio > 0.97 and own_wall < 0.1 * peer_wall
        print(
            f"{name:28} {1e6 * seconds[0]:9.1f} {1e6 * seconds[1]:9.1f} {ratio:6.2f} {own_wall:8.1f} {peer_wall:8.1f}",
            flush=True,
        )
    sys.exit(args.check and not good)


if __name__ == "__main__":
    main()
