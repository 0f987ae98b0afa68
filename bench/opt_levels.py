#!/usr/bin/env python3
"""ResNet-18 at opt_level 0 to 3 beside ONNX Runtime: speed, and what compiling costs.

    bench/opt_levels.py [--threads 1,2] [--rounds 5] [--levels 0,1,2,3] [--json] [--check]

All levels and ONNX Runtime are measured in turn, round after round, in one process; medians are
printed.  Compiling is measured in a process of its own per level (seconds, peak memory, size of
the file), and so are loading and the first inference of the exported file."""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples"), str(ROOT / "python")]

import numpy as np  # noqa: E402

import peers  # noqa: E402

STEP, LEVEL3, LEVEL0 = 0.95, 2.0, 0.4  # speed: against the level below, level 0, ONNX Runtime
ERROR, LEVELS_APART = 1e-3, 1e-4
COMPILE_SECONDS, MEMORY, SIZE, FIRST_MS = 6.0, 8.0, 4.0, 50.0      # at level 3


def compile_child(source, out, level):
    """In a process of its own: compiles, exports, prints what it took."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peers.lathe_module()
    start = time.perf_counter()
    library, _ = peers.Lathe.compile(source, level)
    library.export_library(out)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "compile_s": seconds,
                "peak_bytes": peak * 1024,
                "python_bytes": base * 1024,
                "file_bytes": os.path.getsize(out),
            }
        )
    )


def first_child(compiled):
    """In a process of its own: load and first inference, then warm ones."""
    lathe = peers.lathe_module()
    from lathe.contrib import graph_executor

    lathe.cpu(0)
    x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype("float32")
    with open(compiled, "rb") as f:           # into the page cache
        while f.read(1 << 22):
            pass
    start = time.perf_counter()
    model = graph_executor.GraphModule(lathe.runtime.load_module(compiled)["default"](lathe.cpu(0)))
    model.set_input("input", x)
    model.run()
    first = time.perf_counter() - start
    warm = peers.time_once(model.run)
    print(json.dumps({"load_first_ms": first * 1e3, "warm_ms": warm * 1e3}))


def child(*args):
    done = subprocess.run([sys.executable, __file__, *map(str, args)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, args[:1]))} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def write_model(path):
    """ResNet-18 with its batch norms, sizes fixed; the bytes of its weights."""
    import onnx
    import resnet18

    model = resnet18.model(batch=1)
    onnx.save(model, str(path))
    return sum(len(t.raw_data) for t in model.graph.initializer)


def costs(source, folder, levels, weights):
    """What compiling and the first inference take, by level."""
    found = {}
    for level in levels:
        compiled = folder / f"level{level}.so"
        cost = child("--child-compile", source, compiled, level)
        firsts = [child("--child-first", compiled) for _ in range(3)]
        cost |= min(firsts, key=lambda f: f["load_first_ms"] - f["warm_ms"])
        cost |= {"memory_over_weights": cost["peak_bytes"] / weights, "file_over_weights": cost["file_bytes"] / weights,
                 "first_over_warm_ms": cost["load_first_ms"] - cost["warm_ms"]}
        found[level] = cost
    return found


def speeds(source, folder, levels, threads, rounds):
    """Rows of the table: seconds by level and by ONNX Runtime, for each number of threads."""
    lathe = peers.lathe_module()
    x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype("float32")
    feeds, rows = {"input": x}, []
    for n in threads:
        runners = {
            f"level {level}": peers.Lathe(lathe.runtime.load_module(str(folder / f"level{level}.so")), n)
            for level in levels
        }
        runners["ONNX Runtime"] = peers.OnnxRuntime.load(source, n)
        wanted = runners["ONNX Runtime"].run(feeds)
        outputs = {name: s.run(feeds) for name, s in runners.items()}
        errors = {name: peers.relative_error(y, wanted) for name, y in outputs.items()}
        apart = max(peers.relative_error(outputs[f"level {level}"], outputs[f"level {levels[0]}"]) for level in levels)
        times = peers.side_by_side(runners, feeds, rounds)
        rows.append(
            {
                "threads": n,
                "ms": {k: statistics.median(t) * 1e3 for k, t in times.items()},
                "relative_error": errors,
                "levels_apart": apart,
                "rounds_ms": {k: [v * 1e3 for v in t] for k, t in times.items()},
            }
        )
    return rows


def checks(rows, cost, levels):
    """(what, reached, asked for, True when larger is better)."""
    out = []
    for row in rows:
        ms, where = row["ms"], f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
        for below, level in zip(levels, levels[1:]):
            out.append(
                (
                    f"{where}: level {level} / level {below}, speed",
                    ms[f"level {below}"] / ms[f"level {level}"],
                    STEP,
                    True,
                )
            )
        if {0, 3} <= set(levels):
            out.append((f"{where}: level 3 / level 0, speed", ms["level 0"] / ms["level 3"], LEVEL3, True))
        if 0 in levels:
            out.append((f"{where}: level 0 / ONNX Runtime, speed", ms["ONNX Runtime"] / ms["level 0"], LEVEL0, True))
        out.append((f"{where}: relative error to ONNX Runtime", max(row["relative_error"].values()), ERROR, False))
        out.append((f"{where}: relative error between levels", row["levels_apart"], LEVELS_APART, False))
    if 3 in levels:
        c = cost[3]
        out += [("level 3: seconds to compile", c["compile_s"], COMPILE_SECONDS, False),
                ("level 3: peak memory of compiling / weights", c["memory_over_weights"], MEMORY, False),
                ("level 3: model.so / weights", c["file_over_weights"], SIZE, False),
                ("level 3: load and first inference less a warm one, ms", c["first_over_warm_ms"], FIRST_MS, False)]
    return out


def met(check):
    _, got, wanted, larger = check
    return got >= wanted if larger else got <= wanted


def markdown(rows, cost, levels, found, out):
    print(
        "| threads | program | ms | speed vs level 0 | vs ONNX Runtime | relative error |\n|---|---|---|---|---|---|",
        file=out,
    )
    for row in rows:
        base = row["ms"].get("level 0", float("nan"))
        for name, ms in row["ms"].items():
            print(
                f"| {row['threads']} | {name} | {ms:.2f} | {base / ms:.2f}x | {row['ms']['ONNX Runtime'] / ms:.2f}x | {row['relative_error'][name]:.1e} |",
                file=out,
            )
    print(
        "\n| level | compile s | peak memory MB | / weights | model.so MB | / weights | load + first ms | warm ms |\n|---|---|---|---|---|---|---|---|",
        file=out,
    )
    for level in levels:
        c = cost[level]
        print(
            f"| {level} | {c['compile_s']:.2f} | {c['peak_bytes'] / 1e6:.0f} | {c['memory_over_weights']:.1f}x | {c['file_bytes'] / 1e6:.1f} | "
            f"{c['file_over_weights']:.2f}x | {c['load_first_ms']:.1f} | {c['warm_ms']:.1f} |",
            file=out,
        )
    print(file=out)
    for check in found:
        what, got, wanted, larger = check
        print(
            f"{'ok  ' if met(check) else 'MISS'} {what}: {got:.3g} (asked for {'at least' if larger else 'at most'} {wanted:g})",
            file=out,
        )


def main():
    if sys.argv[1:2] == ["--child-compile"]:
        return compile_child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    if sys.argv[1:2] == ["--child-first"]:
        return first_child(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--levels", default="0,1,2,3")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure is missed")
    args = parser.parse_args()
    levels, threads = sorted(int(v) for v in args.levels.split(",")), [int(t) for t in args.threads.split(",")]
    out = peers.own_stdout()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        weights = write_model(folder / "resnet18.onnx")
        cost = costs(folder / "resnet18.onnx", folder, levels, weights)
        rows = speeds(folder / "resnet18.onnx", folder, levels, threads, args.rounds)
    found = checks(rows, cost, levels)
    if args.json:
        print(json.dumps({"weights_bytes": weights, "rows": rows, "cost": cost, "checks": found}, indent=1), file=out)
    else:
        markdown(rows, cost, levels, found, out)
    return int(args.check and not all(map(met, found)))


if __name__ == "__main__":
    sys.exit(main())
