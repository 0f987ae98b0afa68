#!/usr/bin/env python3
"""Operators of random sizes, Lathe against ONNX Runtime and, for products, numpy's BLAS.

    bench/shapes.py [--kinds conv,product,grouped:30] [--count 60] [--seed 1] [--threads 1,2] [--cpu-time]
                    [--open] [--dtype float16] [--fast-math fp16] [--again 3] [--only conv:17] [--keep DIR]
                    [--json FILE] [--check]

Sizes are drawn log-uniformly and rounded to nothing (bench/random_cases.py), with a fresh seed that is printed:
nobody can have prepared for them.  Each case is a model of one node, with bias and ReLU where networks have them; the
outputs are compared with ONNX Runtime's.  All programs run a case in turn, round after round, on memory that is bound
beforehand; a ratio is the peer's time / Lathe's, the median over rounds that stand side by side.  Cases that lose are
measured again (--again) before they count as such, and are listed with the kernels that Lathe chose for them.

--cpu-time takes the processor time of the process at one thread in many short samples: for machines that others use
too.  With a dtype of 16 bits or --fast-math Lathe's own float32 is one more peer: it is never to be faster.  With
--open the models leave batch, height, width, lengths and rows open, and Lathe with the sizes known is a peer."""

import argparse
import collections
import ctypes
import json
import os
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402

import narrow  # noqa: E402
import operators  # noqa: E402
import peers  # noqa: E402
import random_cases  # noqa: E402

LOSES, FAILS = 0.9, 0.75
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}
INT8_TOLERANCE = 1.01 / 128  # a unit of the result, the largest of which may be in its upper half alone
SAMPLES, SECONDS = 36, 1.0  # --cpu-time: samples of a case, and the time they may take
WALL_ROUNDS = 5
ASKED_MEAN, ASKED_SHARE = 1.25, 0.99  # --check, of convolutions and products
ORT, BLAS, OWN, KNOWN = "ONNX Runtime", "BLAS", "Lathe float32", "Lathe, sizes known"


class Blas:
    """numpy's product of the same matrices."""

    def __init__(self, call):
        self.call = call

    def run(self, feeds):
        self.call()


class Peak:
    """GFLOP/s of the machine in float32: the best of all samples so far (src/cli/peak.c)."""

    def __init__(self):
        path = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "libpeak.so"
        self.function = ctypes.CDLL(str(path)).peak_gflops if path.exists() else None
        self.best = {}
        if self.function:
            self.function.restype, self.function.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_double]

    def sample(self, threads):
        if self.function:
            self.best[threads] = max(self.best.get(threads, 0.0), self.function(threads, 0.02))


def runners_of(case, path, library, threads, args, config):
    """{name: runner}; Lathe comes first."""
    found = {
        "Lathe": operators.BoundLathe(library, threads, case.feeds),
        ORT: operators.BoundOrt(path, threads, case.feeds),
    }
    if case.blas:
        found[BLAS] = Blas(case.blas)
    if args.dtype != "float32" or config:
        plain = case if args.dtype == "float32" else random_cases.draw(*case.origin, "float32", args.open)
        other = path.with_suffix(".float32.onnx")
        onnx.save(plain.model, str(other))
        found[OWN] = operators.BoundLathe(peers.Lathe.compile(other, target=args.target)[0], threads, plain.feeds)
    if args.open:
        sizes = {name: x.shape for name, x in case.feeds.items()}
        known = peers.Lathe.compile(path, target=args.target, config=config, shape=sizes)[0]
        found[KNOWN] = operators.BoundLathe(known, threads, case.feeds)
    return found


def reference_of(path, case, runners, args):
    """ONNX Runtime's outputs; of a narrow model those of the same in float32 over the rounded values: its own kernels
    of 16 bits sum in them, and those of grouped convolutions are wrong."""
    if args.dtype == "float32":
        return runners[ORT].outputs()
    wide = path.with_suffix(".wide.onnx")
    onnx.save(narrow.widened(case.model), str(wide))
    feeds = {k: x.astype("float32") if x.dtype == np.dtype(args.dtype) else x for k, x in case.feeds.items()}
    return operators.BoundOrt(wide, 1, feeds).outputs()


def limited(threads):
    """numpy's BLAS with so many threads."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=threads)


def measure(case, threads, args, config, folder, peak):
    """The row of one case, with its samples."""
    path = folder / "case.onnx"
    onnx.save(case.model, str(path))
    library, seconds = peers.Lathe.compile(path, target=args.target, config=config)
    runners = runners_of(case, path, library, threads, args, config)
    wanted = reference_of(path, case, runners, args)
    error = peers.relative_error(runners["Lathe"].outputs(), wanted)
    peak.sample(threads)
    with limited(threads):
        if args.cpu_time:
            times = peers.cpu_times(runners, case.feeds, SAMPLES, SECONDS)
        else:
            times = peers.side_by_side(runners, case.feeds, WALL_ROUNDS, at_least=0.01)
    peak.sample(threads)
    kernels = [{"name": k.name, "impl": k.impl} for k in library.model.nodes()]
    return {
        "case": case.name,
        "kind": case.kind,
        "label": case.label,
        "threads": threads,
        "flops": case.flops,
        "bytes": sum(x.nbytes for x in [*case.feeds.values(), *wanted]),
        "relative_error": error,
        "compile_s": seconds,
        "kernels": kernels,
        "times": times,
    }


def add_samples(row, more):
    """The same case measured once more."""
    row["relative_error"] = max(row["relative_error"], more["relative_error"])
    for name, samples in more["times"].items():
        row["times"][name] += samples
    row["measured"] = row.get("measured", 1) + 1


def judge(row, tolerance):
    """Times and ratios from all samples so far."""
    if row["kind"].startswith("int8"):
        tolerance = INT8_TOLERANCE
    ours = row["times"]["Lathe"]
    row["us"] = {name: statistics.median(t) * 1e6 for name, t in row["times"].items()}
    row["least_us"] = {name: min(t) * 1e6 for name, t in row["times"].items()}
    row["ratio"] = {
        name: statistics.median(p / o for p, o in zip(t, ours)) for name, t in row["times"].items() if name != "Lathe"
    }
    row["worst"] = min(row["ratio"].values())
    row["right"] = bool(row["relative_error"] <= tolerance)


def reaches(row, peak):
    """What Lathe gets out of the machine, in words."""
    seconds = row["us"]["Lathe"] * 1e-6
    if not row["flops"]:
        return f"{row['bytes'] / seconds * 1e-9:.1f} GB/s"
    rate, most = row["flops"] / seconds * 1e-9, peak.best.get(row["threads"])
    return f"{rate:.1f} GFLOP/s" + (f" ({rate / most:.0%})" if most else "")


COLUMNS = (
    "case",
    "threads",
    "what",
    "Lathe us",
    "ONNX Runtime us",
    "against it",
    "BLAS",
    "own float32",
    "own with known sizes",
    "reached",
)


def line(row, peak):
    wrong = "" if row["right"] else f" WRONG (relative error {row['relative_error']:.0e})"
    ratios = [f"{row['ratio'][peer]:.2f}" if peer in row["ratio"] else "" for peer in (ORT, BLAS, OWN, KNOWN)]
    times = [f"{row['us'][name]:.1f}" for name in ("Lathe", ORT)]
    return peers.table_row(row["case"], row["threads"], row["label"] + wrong, *times, *ratios, reaches(row, peak))


def summaries(rows):
    """[(kind, threads, peer, {figure: value})]"""
    groups = collections.defaultdict(list)
    for row in rows:
        for peer, ratio in row["ratio"].items():
            groups[row["kind"], row["threads"], peer].append(ratio)
    found = []
    for (kind, threads, peer), ratios in groups.items():
        below = [sum(r < bound for r in ratios) for bound in (LOSES, FAILS)]
        found.append(
            (
                kind,
                threads,
                peer,
                {
                    "cases": len(ratios),
                    "mean": statistics.geometric_mean(ratios),
                    "worst": min(ratios),
                    "loses": below[0],
                    "fails": below[1],
                    "share": 1 - below[0] / len(ratios),
                },
            )
        )
    return found


def report(rows, failed, peak, out):
    losers = sorted((r for r in rows if r["worst"] < LOSES), key=lambda r: r["worst"])
    if losers:
        print(f"\nBelow {LOSES}, measured again:\n", file=out)
        head = ("worst ratio", "case", "threads", "what", "Lathe us", "peers us", "reached", "kernels")
        print(peers.table_head(*head), file=out)
    for r in losers:
        others = ", ".join(f"{name} {us:.1f}" for name, us in r["us"].items() if name != "Lathe")
        kernels = ", ".join(f"{k['name']} ({k['impl']})" for k in r["kernels"])
        cells = (f"{r['worst']:.2f}", r["case"], r["threads"], r["label"], f"{r['us']['Lathe']:.1f}", others)
        print(peers.table_row(*cells, reaches(r, peak), kernels), file=out)
    head = ("kind", "threads", "against", "cases", "geometric mean", "worst", f"below {LOSES}", f"below {FAILS}")
    print(f"\n{peers.table_head(*head, f'{LOSES} or above')}", file=out)
    for kind, threads, peer, s in summaries(rows):
        figures = (s["cases"], f"{s['mean']:.2f}", f"{s['worst']:.2f}", s["loses"], s["fails"], f"{s['share']:.1%}")
        print(peers.table_row(kind, threads, peer, *figures), file=out)
    for threads, rate in peak.best.items():
        print(f"\npeak of the machine, {threads} thread{'s' * (threads > 1)}: {rate:.1f} GFLOP/s in float32", file=out)
    for r in rows:
        if not r["right"]:
            print(f"wrong: {r['case']} {r['label']}: relative error {r['relative_error']:.1e}", file=out)
    for name, why in failed.items():
        print(f"not run: {name}: {why}", file=out)


def missed(rows, failed):
    """What --check does not accept."""
    found = [f"{name} does not run" for name in failed] + [f"{r['case']} is wrong" for r in rows if not r["right"]]
    for kind, threads, peer, s in summaries(rows):
        where = f"{kind}, {threads} thread{'s' * (threads > 1)}, {peer}"
        if s["share"] < ASKED_SHARE or s["fails"]:
            found.append(f"{where}: {s['share']:.1%} at {LOSES} or above, worst {s['worst']:.2f}")
        if kind in ("conv", "product") and peer == ORT and s["mean"] < ASKED_MEAN:
            found.append(f"{where}: geometric mean {s['mean']:.2f}, asked for {ASKED_MEAN}")
    return found


def wanted_cases(args, parser):
    """[(kind, number)]"""
    if args.only:
        pairs = [name.partition(":")[::2] for name in args.only.split(",")]
    else:
        asked = [item.partition(":")[::2] for item in args.kinds.split(",")]
        if any(n and not n.isdigit() for _, n in asked):
            parser.error("--kinds takes names, each with a number of cases if it is not --count: conv,grouped:30")
        pairs = [(kind, str(i)) for kind, n in asked for i in range(int(n or args.count))]
    for kind, number in pairs:
        if kind not in random_cases.KINDS:
            parser.error(f"no kind '{kind}'; there are {', '.join(random_cases.KINDS)}")
        if not number.isdigit():
            parser.error("--only takes cases as they are printed: conv:17")
    return [(kind, int(number)) for kind, number in pairs]


def sweep(cases, args, out):
    """The rows of all cases, losers measured again, {case: why} of those that do not run, and the peak."""
    config = {"lathe.fast_math": args.fast_math} if args.fast_math else {}
    tolerance = peers.FAST_TOLERANCE if args.fast_math else TOLERANCE[args.dtype]
    rows, failed, peak = [], {}, Peak()

    def one(kind, number, threads, folder):
        case = random_cases.draw(args.seed, kind, number, args.dtype, args.open)
        try:
            return case, measure(case, threads, args, config, folder, peak)
        except Exception as e:  # one case that fails does not end the run
            failed[f"{case.name} {case.label}"] = (
                f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"
            )
            return case, None

    print(peers.table_head(*COLUMNS), file=out)
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        for threads in args.threads:
            for kind, number in cases:
                case, row = one(kind, number, threads, folder)
                if row:
                    judge(row, tolerance)
                    rows.append(row)
                    print(line(row, peak), file=out)
        for _ in range(args.again):
            for row in [r for r in rows if r["worst"] < LOSES]:
                kind, number = row["case"].split(":")
                case, more = one(kind, int(number), row["threads"], folder)
                if more:
                    add_samples(row, more)
                    judge(row, tolerance)
        for row in rows:
            if args.keep and (row["worst"] < LOSES or not row["right"]):
                case = random_cases.draw(args.seed, row["kind"], int(row["case"].split(":")[1]), args.dtype, args.open)
                args.keep.mkdir(parents=True, exist_ok=True)
                onnx.save(case.model, str(args.keep / f"{args.seed}-{row['case'].replace(':', '-')}.onnx"))
    return rows, failed, peak


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--kinds",
        default=",".join(random_cases.KINDS),
        help=f"comma list of {', '.join(random_cases.KINDS)}, each as KIND or KIND:COUNT",
    )
    parser.add_argument("--count", type=int, default=20, help="cases of each kind (default 20)")
    parser.add_argument(
        "--only", default="", metavar="KIND:NUMBER", help="these cases alone, as they were printed; needs --seed"
    )
    parser.add_argument("--seed", type=int, help="default: a fresh one, printed")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="float32")
    parser.add_argument(
        "--open", action="store_true", help="batch, height, width, lengths and rows known only at run time"
    )
    parser.add_argument("--fast-math", choices=("bf16", "fp16"), default="")
    parser.add_argument("--target", default="llvm -mcpu=native")
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor time at one thread: for a machine that others use too"
    )
    parser.add_argument("--again", type=int, default=3, help="how often cases that lose are measured again (default 3)")
    parser.add_argument(
        "--keep", type=pathlib.Path, metavar="DIR", help="write the models of cases that lose or are wrong there"
    )
    parser.add_argument("--list", action="store_true", help="print the cases alone")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 when a figure that is asked for is missed"
    )
    args = parser.parse_args(argv)
    if args.only and args.seed is None:
        parser.error("--only needs the --seed that was printed with the case")
    if args.seed is None:
        args.seed = int(np.random.default_rng().integers(1 << 31))
    if args.count < 1 or args.again < 0 or args.seed < 0:
        parser.error("--count is 1 or more, --again and --seed 0 or more")
    args.threads = [1] if args.cpu_time else [int(t) for t in args.threads.split(",")]
    return args, wanted_cases(args, parser)


def main(argv=None):
    args, cases = arguments(argv)
    if args.list:
        for kind, number in cases:
            case = random_cases.draw(args.seed, kind, number, args.dtype)
            print(f"{case.name}: {case.label}" + f" ({case.flops / 1e6:.1f} MFLOP)" * bool(case.flops))
        return 0
    out = peers.own_stdout()
    said = [f"seed {args.seed}", args.dtype, f"fast math {args.fast_math}" * bool(args.fast_math)]
    said += ["open sizes" * args.open, "processor time" if args.cpu_time else "wall time"]
    print(", ".join(filter(None, [*said, f"ONNX Runtime {peers.OnnxRuntime.version()}"])) + "\n", file=out)
    rows, failed, peak = sweep(cases, args, out)
    report(rows, failed, peak, out)
    if args.json:
        kept = [{k: v for k, v in r.items() if k != "times"} for r in rows]
        found = [{"kind": k, "threads": t, "against": p} | s for k, t, p, s in summaries(rows)]
        args.json.write_text(
            json.dumps(
                {
                    "seed": args.seed,
                    "dtype": args.dtype,
                    "fast_math": args.fast_math,
                    "open": args.open,
                    "cpu_time": args.cpu_time,
                    "peak_gflops": peak.best,
                    "rows": kept,
                    "failed": failed,
                    "summary": found,
                },
                indent=1,
            )
        )
    wrong = missed(rows, failed)
    for what in wrong if args.check else []:
        print(f"MISS {what}", file=out)
    return int(bool(args.check and wrong))


if __name__ == "__main__":
    sys.exit(main())
