#!/usr/bin/env python3
"""How far the plans that are chosen lie from the best there are: random shapes, each compiled with many of its plans.

    bench/regret.py [--kinds conv,product:30,grouped] [--count 20] [--seed 1] [--plans 16] [--only conv:17] [--verbose]
                    [--target "llvm -mcpu=native -num-cores=1"] [--json FILE] [--check]
    bench/regret.py … --compile-only DIR --target "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"     here
    bench/regret.py --run DIR [--runtime liblathe_rt.so]                                                    there

The cases are those of bench/shapes.py.  Of a case's plans are measured: the one that was chosen, the best predicted one
of each implementation, those of the least predicted time, and others at random, --plans altogether.  All run in turn in
one process at one thread; a time is the least processor time of a call.  Regret is the chosen plan's time over the
best one's, less one.  Every plan's output is compared with the chosen one's.

With --compile-only nothing is run: compiled files, their inputs and what was predicted go into a folder, whose weights
take few values so that they are small when compressed; --run measures such a folder with the runtime alone."""

import argparse
import collections
import json
import lzma
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import numpy as np  # noqa: E402

import models_remote  # noqa: E402
import peers  # noqa: E402

ASKED_MEDIAN, ASKED_HIGH = 0.03, 0.15  # --check: the median and the 95th percentile
TOLERANCE = 1e-4
SAMPLES, SECONDS = 24, 1.0  # of a case: samples of each plan, and the time they may take
OWN = "llvm -mcpu=native -num-cores=1"


class Plan:
    def __init__(self, line):
        seconds, self.text = line[2:].split(" ", 1)
        self.taken, self.predicted = line[0] == "*", float(seconds) * 1e-6
        self.impl = re.split(r"[{ ]", self.text)[0]


def alternatives(path, target):
    """(workload, its plans) of the call that has most of them: what the case is about."""
    program = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "lathe"
    command = [program, "inspect", path, "--alternatives", "nn.", "--target", target]
    said = subprocess.run(command, text=True, capture_output=True)
    if said.returncode:
        raise RuntimeError(said.stderr.strip())
    found = {}
    for line in said.stdout.splitlines():
        if line.startswith("nn."):
            current = found.setdefault(line.split()[0], [])
        elif line[:2] in ("* ", "  "):
            current.append(Plan(line))
    if not found:
        raise RuntimeError("there is nothing to choose from")
    return max(found.items(), key=lambda item: len(item[1]))


def sample(plans, most, seed):
    """The plan that was chosen first, then the most telling ones of the others."""
    rng = random.Random(str(seed))
    order = [p for p in plans if p.taken]
    by_impl = {}
    for p in plans:  # the least predicted time comes first
        by_impl.setdefault(p.impl, p)
    order += by_impl.values()
    order += plans[: most // 3]
    order += rng.sample(plans, len(plans))
    return list({p.text: p for p in order}.values())[: max(most, 1)]


def judge(row):
    """Regret and what won, from the least times."""
    times = [p["seconds"] for p in row["plans"]]
    best = min(range(len(times)), key=times.__getitem__)
    row["regret"] = times[0] / times[best] - 1
    row["chosen"], row["best"] = row["plans"][0]["plan"], row["plans"][best]["plan"]


def measure(row, runners, outputs, feeds):
    """Times of all plans, whose first is the one that was chosen; answers that differ from its are named."""
    row["wrong"] = []
    for name, found in outputs.items():
        if not peers.relative_error(found, outputs[0]) <= TOLERANCE:
            row["wrong"].append(row["plans"][name]["plan"])
    times = peers.cpu_times(runners, feeds, SAMPLES, SECONDS)
    for i, p in enumerate(row["plans"]):
        p["seconds"] = min(times[i])
    judge(row)


def row_of(case, workload, plans, chosen):
    listed = [{"plan": p.text, "impl": p.impl, "predicted": p.predicted} for p in chosen]
    row = {"case": case.name, "kind": case.kind, "label": case.label, "workload": workload}
    return {**row, "of": len(plans), "plans": listed}


def coarse(model):
    """Weights of few values in a short pattern."""
    import onnx

    for t in model.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT and len(t.raw_data) > 4096:
            w = np.frombuffer(t.raw_data, "float32")
            t.raw_data = np.resize(w[:251], w.shape).tobytes()


def compiled(case, args, folder):
    """The case's row and {plan's number: library}; a plan that does not compile is an error: what is listed should."""
    import onnx

    if args.compile_only:
        coarse(case.model)
    path = folder / "case.onnx"
    onnx.save(case.model, str(path))
    workload, plans = alternatives(path, args.target)
    chosen = sample(plans, args.plans, case.origin)
    row, libraries = row_of(case, workload, plans, chosen), {}
    for i, p in enumerate(chosen):
        config = {"lathe.plans": f"{workload} {p.text}"}
        try:
            libraries[i] = peers.Lathe.compile(path, target=args.target, config=config)[0]
        except Exception as e:
            raise RuntimeError(f"plan {p.text}: {e}") from e
    return row, libraries


def measure_here(case, args, folder):
    import operators

    row, libraries = compiled(case, args, folder)
    runners = {i: operators.BoundLathe(library, 1, case.feeds) for i, library in libraries.items()}
    measure(row, runners, {i: r.outputs() for i, r in runners.items()}, case.feeds)
    return row


def write_case(case, args, folder):
    """Compiled plans and inputs into --compile-only's folder."""
    row, libraries = compiled(case, args, folder)
    name = case.name.replace(":", "-")
    np.savez(args.compile_only / f"{name}.npz", **case.feeds)
    for i, library in libraries.items():
        library.export_library(str(folder / "plan.so"))
        packed = args.compile_only / f"{name}-{i}.so.xz"
        with open(folder / "plan.so", "rb") as f, lzma.open(packed, "wb", preset=1) as g:
            shutil.copyfileobj(f, g, 1 << 20)
    return row


class Bound:
    """A compiled plan under the runtime alone, its inputs set beforehand."""

    def __init__(self, runtime, path, feeds):
        self.runner = models_remote.Runner(runtime, path, 1)
        self.first = self.runner.run(feeds)

    def run(self, feeds):
        self.runner.rt.call("lathe_rt_run", self.runner.executor)


def measure_there(row, args, runtime, folder):
    name, runners = row["case"].replace(":", "-"), {}
    with np.load(args.run / f"{name}.npz") as data:
        feeds = {k: data[k] for k in data.files}
    try:
        for i in range(len(row["plans"])):
            path = models_remote.unpacked(args.run, f"{name}-{i}.so", folder)
            runners[i] = Bound(runtime, path, feeds)
        measure(row, runners, {i: r.first for i, r in runners.items()}, feeds)
    finally:
        for r in runners.values():
            r.runner.close()
        for path in folder.glob("*.so"):
            path.unlink()
    return row


def percentile(values, share):
    """The least value that so much of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, int(np.ceil(share * len(ordered))) - 1)]


def report_row(row, verbose, out):
    same = row["best"] == row["chosen"]
    times = [p["seconds"] for p in row["plans"]]
    cells = [row["case"], row["label"], f"{len(times)} of {row['of']}"]
    cells += [f"{x * 1e6:.1f}" for x in (times[0], min(times))]
    first = row["plans"][0]["predicted"]
    told = f"{times[0] / first:.2f}" if first else ""
    print(peers.table_row(*cells, f"{row['regret']:.1%}", told, row["chosen"], "" if same else row["best"]), file=out)
    if verbose:
        for p in sorted(row["plans"], key=lambda p: p["seconds"]):
            factor = p["seconds"] / p["predicted"] if p["predicted"] else 0
            print(f"    {p['seconds'] * 1e6:10.1f} us, {factor:5.2f} x predicted: {p['plan']}", file=out)
    out.flush()


def report(rows, out):
    head = ("kind", "cases", "median regret", "95th percentile", "largest", "measured / predicted, 5 % to 95 %")
    print(f"\n{peers.table_head(*head)}", file=out)
    kinds = collections.defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
        kinds["all"].append(row)
    for kind, some in kinds.items():
        regrets = [r["regret"] for r in some]
        told = [p["seconds"] / p["predicted"] for r in some for p in r["plans"] if p["predicted"] > 0]
        spread = f"{percentile(told, 0.05):.2f} to {percentile(told, 0.95):.2f}"
        figures = [f"{x:.1%}" for x in (statistics.median(regrets), percentile(regrets, 0.95), max(regrets))]
        print(peers.table_row(kind, len(some), *figures, spread), file=out)
    head = ("implementation", "chosen", "best", "lost to", "measured / predicted, median")
    print(f"\n{peers.table_head(*head)}", file=out)
    impls = sorted({p["impl"] for r in rows for p in r["plans"]})
    for impl in impls:
        chosen = [r for r in rows if r["plans"][0]["impl"] == impl]
        best = [r for r in rows if r["best"].startswith(impl + "{") or r["best"] == impl]
        lost = collections.Counter(re.split(r"[{ ]", r["best"])[0] for r in chosen if r["regret"] > ASKED_MEDIAN)
        own = [p for r in rows for p in r["plans"] if p["impl"] == impl and p["predicted"] > 0]
        told = f"{statistics.median(p['seconds'] / p['predicted'] for p in own):.2f}" if own else ""
        words = ", ".join(f"{name} {n}" for name, n in lost.most_common())
        print(peers.table_row(impl, len(chosen), len(best), words, told), file=out)
    for r in rows:
        for text in r["wrong"]:
            print(f"wrong: {r['case']} {r['label']}: {text}", file=out)


def missed(rows, failed):
    """What --check does not accept."""
    found = [f"{name} does not run" for name in failed]
    found += [f"{r['case']}: {text} is wrong" for r in rows for text in r["wrong"]]
    regrets = [r["regret"] for r in rows]
    middle, high = statistics.median(regrets), percentile(regrets, 0.95)
    if middle > ASKED_MEDIAN or high > ASKED_HIGH:
        found.append(f"regret {middle:.1%} and {high:.1%}, asked for {ASKED_MEDIAN:.0%} and {ASKED_HIGH:.0%}")
    return found


COLUMNS = ("case", "what", "plans", "chosen us", "best us", "regret", "measured / predicted", "chosen", "best")


def measured_rows(todo, one, verbose, out):
    """Rows of everything that is to be done, printed as they come, and {name: why} of what does not go."""
    rows, failed = [], {}
    print(peers.table_head(*COLUMNS), file=out)
    with tempfile.TemporaryDirectory() as work:
        for item in todo:
            try:
                row = one(item, pathlib.Path(work))
            except Exception as e:  # one case that fails does not end the run
                name = item["case"] if isinstance(item, dict) else f"{item.name} {item.label}"
                failed[name] = f"{type(e).__name__}: {str(e).splitlines()[0][:300] if str(e) else ''}"
                continue
            rows.append(row)
            if "regret" in row:
                report_row(row, verbose, out)
    return rows, failed


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", default="conv,product", help="comma list of KIND or KIND:COUNT")
    parser.add_argument("--count", type=int, default=20, help="cases of each kind (default 20)")
    parser.add_argument("--only", default="", metavar="KIND:NUMBER", help="these cases alone, as printed; needs --seed")
    parser.add_argument("--seed", type=int, help="default: a fresh one, printed")
    parser.add_argument("--plans", type=int, default=16, help="plans of a case that are measured (default 16)")
    parser.add_argument("--target", default=OWN, help=f"default {OWN}")
    parser.add_argument("--compile-only", type=pathlib.Path, metavar="DIR", help="compile into it, run nothing")
    parser.add_argument("--run", type=pathlib.Path, metavar="DIR", help="measure what --compile-only wrote")
    parser.add_argument("--runtime", type=pathlib.Path, help="liblathe_rt.so (default: in --run's folder)")
    parser.add_argument("--verbose", action="store_true", help="the times of all plans that were measured")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure is missed")
    args = parser.parse_args(argv)
    if args.only and args.seed is None:
        parser.error("--only needs the --seed that was printed with the case")
    if args.run and args.compile_only:
        parser.error("--run is for what --compile-only wrote; one of them at a time")
    if args.seed is None:
        args.seed = int(np.random.default_rng().integers(1 << 31))
    if args.count < 1 or args.plans < 1 or args.seed < 0:
        parser.error("--count and --plans are 1 or more, --seed 0 or more")
    return args, parser


def main(argv=None):
    args, parser = arguments(argv)
    out = peers.own_stdout()
    if args.run:
        stored = json.loads((args.run / "regret.json").read_text())
        args.seed, args.target = stored["seed"], stored["target"]
        runtime = models_remote.Runtime((args.runtime or args.run / "liblathe_rt.so").resolve())
        print(f"seed {args.seed}, target {args.target}\n", file=out)
        rows, failed = measured_rows(
            stored["rows"], lambda row, work: measure_there(row, args, runtime, work), args.verbose, out
        )
    else:
        import random_cases
        import shapes

        print(f"seed {args.seed}, target {args.target}\n", file=out)
        cases = (random_cases.draw(args.seed, kind, number) for kind, number in shapes.wanted_cases(args, parser))
        if args.compile_only:
            args.compile_only.mkdir(parents=True, exist_ok=True)
        one = write_case if args.compile_only else measure_here
        rows, failed = measured_rows(cases, lambda case, work: one(case, args, work), args.verbose, out)
    figures = {"seed": args.seed, "target": args.target, "rows": rows}
    if args.compile_only:
        (args.compile_only / "regret.json").write_text(json.dumps(figures, indent=1) + "\n")
        print(f"{len(rows)} cases in {args.compile_only}", file=out)
        for name, why in failed.items():
            print(f"not compiled: {name}: {why}", file=out)
        return 1 if failed else 0
    if rows:
        report(rows, out)
    for name, why in failed.items():
        print(f"not run: {name}: {why}", file=out)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    lacks = missed(rows, failed) if rows else ["nothing was measured"]
    for what in lacks if args.check else []:
        print(f"missed: {what}", file=out)
    return 1 if args.check and lacks else 0


if __name__ == "__main__":
    sys.exit(main())
