#!/usr/bin/env python3
"""The lesson's matrix multiply from naive to packed, beside OpenBLAS and the machine's peak.

    bench/matmul_ladder.py [--sizes 512,1024,2048] [--threads 1,2] [--rounds 7] [--json]

All rungs and the peer (numpy's OpenBLAS) are measured in turn, round after round, in one
process.  A figure is the best round's median, for every row alike: on a shared machine other
programs come and go between rounds; "typical" is the median of all rounds.  The peak is the
best figure that an assembly loop (src/cli/peak.c) reached at any time of the run."""
import argparse
import ctypes
import itertools
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

import lathe  # noqa: E402
import packed_matmul  # noqa: E402
from lathe import te  # noqa: E402

SLOW_SECONDS = 1.0      # a rung slower than this is timed once


def library(name):
    folder = os.environ.get("LATHE_LIBRARY_PATH", str(ROOT / "build"))
    return ctypes.CDLL(os.path.join(folder, name))


class Peak:
    """GFLOP/s of the machine by number of threads: the best of all samples so far."""

    def __init__(self):
        self.function = library("libpeak.so").peak_gflops
        self.function.restype = ctypes.c_double
        self.function.argtypes = [ctypes.c_int, ctypes.c_double]
        self.best = {}

    def sample(self, threads, seconds=0.02):
        now = self.function(threads, seconds)
        self.best[threads] = max(self.best.get(threads, 0), now)
        return now


def set_threads(n):
    rt = library("liblathe_rt.so")
    rt.lathe_rt_set_num_threads.argtypes = [ctypes.c_int32, ctypes.c_void_p]
    if rt.lathe_rt_set_num_threads(n, None):
        raise RuntimeError(f"the runtime refused {n} threads")


def lesson(N):
    """The tensors of the lesson."""
    A = te.placeholder((N, N), name="A")
    B = te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), name="k")
    return A, B, te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def rung(N, steps):
    """The lesson's schedule with the given steps of: tile, reorder, vectorize, parallel, unroll."""
    A, B, C = lesson(N)
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    if "tile" in steps:
        io, jo, ii, ji = s[C].tile(i, j, x_factor=32, y_factor=32)
    if "reorder" in steps:
        ko, ki = s[C].split(C.op.reduce_axis[0], factor=4)
        s[C].reorder(io, jo, ko, ii, ji, ki)
    if "vectorize" in steps:
        jii, jiv = s[C].split(ji, factor=8)
        s[C].vectorize(jiv)
    if "parallel" in steps:
        s[C].parallel(io)
    if "unroll" in steps:
        s[C].unroll(ki)
    return s, [A, B, C]


LADDER = [
    ("naive", []),
    ("tiled", ["tile"]),
    ("reordered", ["tile", "reorder"]),
    ("vectorized", ["tile", "reorder", "vectorize"]),
    ("parallel", ["tile", "reorder", "vectorize", "parallel"]),
    ("unrolled", ["tile", "reorder", "vectorize", "parallel", "unroll"]),
]


class Entry:
    """One line of the table: something to call, and what it took."""

    def __init__(self, name, call, threads):
        self.name, self.call, self.threads = name, call, threads
        self.seconds = []                      # the median of each round

    def measure(self, peak, repeat=5):
        if self.seconds and self.seconds[0] > SLOW_SECONDS:
            return
        set_threads(self.threads)
        peak.sample(self.threads)
        with threadpool_limits(limits=self.threads):
            times = []
            for _ in range(repeat):
                start = time.perf_counter()
                self.call()
                times.append(time.perf_counter() - start)
        self.seconds.append(statistics.median(times))
        peak.sample(self.threads)

    @property
    def best(self):
        return min(self.seconds)


def entries(N, threads, a, b, expected, peak):
    target = lathe.target.Target("llvm -mcpu=native")
    made = []
    out = lathe.nd.empty((N, N))
    x, y = lathe.nd.array(a), lathe.nd.array(b)

    def add(name, func, t, *args):
        """Checks the result once; that first call also warms up, and is the time of a slow one."""
        entry = Entry(name, lambda: func(*args), t)
        entry.measure(peak, repeat=1)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-3, err_msg=name)
        if entry.seconds[0] <= SLOW_SECONDS:
            entry.seconds.clear()
        made.append(entry)

    for name, steps in LADDER:
        s, tensors = rung(N, steps)
        func = lathe.build(s, tensors, target=target, name="matmul")
        for t in threads:
            if t == 1 or name in PARALLEL:
                add(name, func, t, x, y, out)
    for t in threads:
        size = packed_matmul.Blocking(target, N, N, N, t)
        sch = packed_matmul.schedule(packed_matmul.declare(N, N, N), size)
        add("packed", lathe.build(sch.mod, target=target), t, x, y, out)
        sch = packed_matmul.schedule(packed_matmul.declare_prepacked(N, N, N, size.NR), size, prepacked=True)
        ahead = lathe.nd.array(packed_matmul.pack_b(b, size.NR))
        add("packed, B ahead", lathe.build(sch.mod, target=target), t, x, ahead, out)
    result = np.empty((N, N), "float32")
    made.extend(Entry("OpenBLAS", lambda: np.matmul(a, b, out=result), t) for t in threads)
    return made


PARALLEL = {"parallel", "unrolled"}


def measure(sizes, threads, rounds, peak):
    """The rows of each size; a round goes over all sizes, so that each one's are far apart."""
    rng, rows = np.random.default_rng(0), {}
    for N in sizes:
        a, b = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
        rows[N] = entries(N, threads, a, b, a @ b, peak)
    for _ in range(rounds):
        for row in itertools.chain(*rows.values()):
            row.measure(peak)
    return rows


def table(N, rows, threads):
    flops = 2.0 * N ** 3
    lines = []
    for t in threads:
        blas = next(r.best for r in rows if r.name == "OpenBLAS" and r.threads == t)
        for row in rows:
            if row.threads == t:
                lines.append(
                    {
                        "size": N,
                        "threads": t,
                        "schedule": row.name,
                        "ms": row.best * 1e3,
                        "gflops": flops / row.best / 1e9,
                        "typical_ms": statistics.median(row.seconds) * 1e3,
                        "vs_openblas": blas / row.best,
                    }
                )
    return lines


def verdicts(lines, threads):
    """The figures that are asked for, each with what was reached."""
    def find(N, t, name):
        return next((line for line in lines if (line["size"], line["threads"], line["schedule"]) == (N, t, name)), None)

    out = []
    for N in sorted({line["size"] for line in lines}):
        order = [name for name, _ in LADDER] + ["packed"]
        for before, after in zip(order, order[1:]):
            t = max(threads) if after in PARALLEL | {"packed"} else 1
            x = find(N, t if before in PARALLEL else 1, before)
            y = find(N, t, after)
            out.append((f"{N}: {after} / {before}", x["ms"] / y["ms"], 0.95))
        if N >= 1024:
            out.append((f"{N}: packed, of peak", find(N, 1, "packed")["of_peak"], 0.85))
            out.append((f"{N}: packed / OpenBLAS", find(N, 1, "packed")["vs_openblas"], 0.95))
            out.append((f"{N}: packed, B ahead / OpenBLAS", find(N, 1, "packed, B ahead")["vs_openblas"], 1.0))
            if 2 in threads:
                for name in ("packed", "packed, B ahead"):
                    out.append((f"{N}: {name}, second thread", find(N, 1, name)["ms"] / find(N, 2, name)["ms"], 1.85))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="512,1024,2048")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    threads = [int(t) for t in args.threads.split(",")]
    peak, lines = Peak(), []
    for N, rows in measure([int(N) for N in args.sizes.split(",")], threads, args.rounds, peak).items():
        lines += table(N, rows, threads)
    for line in lines:                       # the peak of the whole run
        line["of_peak"] = line["gflops"] / peak.best[line["threads"]]
        line["typical"] = line["of_peak"] * line["ms"] / line["typical_ms"]
    checks = verdicts(lines, threads)
    if args.json:
        print(json.dumps({"peak": peak.best, "rows": lines, "checks": checks}, indent=1))
        return
    print(
        "| size | threads | schedule | ms | GFLOP/s | of peak | typical | vs OpenBLAS |\n|---|---|---|---|---|---|---|---|"
    )
    for r in lines:
        print(f"| {r['size']} | {r['threads']} | {r['schedule']} | {r['ms']:.2f} | {r['gflops']:.1f} | "
              f"{r['of_peak'] * 100:.0f} % | {r['typical'] * 100:.0f} % | {r['vs_openblas']:.2f}x |")
    print("\npeak: " + ", ".join(f"{g:.1f} GFLOP/s on {t} thread{'s' * (t > 1)}" for t, g in peak.best.items()))
    print()
    for name, got, wanted in checks:
        print(f"{'ok  ' if got >= wanted else 'MISS'} {name}: {got:.2f} (asked for {wanted:.2f})")


if __name__ == "__main__":
    main()
