#!/usr/bin/env python3
"""The networks of torchvision, Lathe beside ONNX Runtime and OpenVINO.

    bench/zoo.py [--networks resnet18,swin_t] [--match REGEX] [--all] [--threads 1] [--cpu-time] [--json FILE] [--check]
    bench/zoo.py --symbolic [--batches 1,4] …

Every network for classification, segmentation and detection, with random weights and the size of image that it was made
for, exported by PyTorch; those of more than 12 billion multiply-adds only with --all.  The packages come from PyPI
into an environment of their own (--cache), made when it is first needed.  All programs run in turn, batch 1, float32;
outputs are compared with ONNX Runtime's.

--symbolic exports with an open batch (detectors: none) and, where the network allows, open height and width, and
compiles that file twice: as it is, and for known sizes.  The table says how much longer the first takes, at each batch.

Normalisations get the statistics of one random batch: without, values grow from layer to layer until nothing can be
compared.  Times are medians; with --cpu-time they are processor time in samples taken in turn, for a machine
that others use too."""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import venv
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime", "openvino", "numpy")
LARGE = 12  # billion multiply-adds; larger networks only with --all
KINDS = {
    "classification": "torchvision.models",
    "segmentation": "torchvision.models.segmentation",
    "detection": "torchvision.models.detection",
}
SIZES = {"segmentation": 520}
OPSET = 17
TOLERANCE = 1e-3
ASKED_RATIO, ASKED_MEAN, ASKED_SYMBOLIC, ASKED_CODE, ASKED_COMPILE = 0.95, 1.3, 1.15, 2.0, 4.0
SAMPLES, SECONDS = 24, 4.0  # --cpu-time: samples of a network, and the time they may take


def enter(folder):
    """Goes on in the environment of the packages, which is made if it is not there."""
    home = folder / "venv"
    python = home / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == home.resolve():
        return
    if not (home / "ready").exists():
        print(f"making {home} with {', '.join(PACKAGES)} ...", file=sys.stderr, flush=True)
        venv.create(home, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (home / "ready").touch()
    os.execv(python, [str(python), *sys.argv])


# ---- the networks


class Network:
    """A network of torchvision: its kind, the size of its image, and the operations that it is said to take."""

    def __init__(self, name, kind):
        import torchvision

        self.name, self.kind = name, kind
        weights = torchvision.models.get_model_weights(name).DEFAULT
        self.work = weights.meta.get("_ops") or 0.0
        crop = getattr(weights.transforms(), "crop_size", None)
        self.size = crop[0] if crop else SIZES.get(kind, 320)
        if kind == "detection":
            found = re.search(r"_?(300|320)", name)
            self.size = int(found[1]) if found else 640

    def shape(self, batch):
        return (3, self.size, self.size) if self.kind == "detection" else (batch, 3, self.size, self.size)

    def module(self):
        """The network with random weights, its normalisations fitted to one random batch."""
        import torch
        import torchvision

        torch.manual_seed(0)
        more = {} if self.kind == "classification" else {"weights_backbone": None}
        if self.name in ("inception_v3", "googlenet"):
            more["init_weights"] = True
        net = torchvision.models.get_model(self.name, weights=None, **more).eval()
        norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        for m in norms:
            m.train()
            m.momentum = None  # the average of all batches: of this one
        with torch.no_grad():
            for weight in net.parameters():  # some begin as zeros: then the answer would be zero whatever is computed
                if weight.dim() > 1 and not weight.any():
                    weight.normal_(std=0.02)
            detects = self.kind == "detection"
            net([torch.rand(self.shape(1)) for _ in range(2)] if detects else torch.randn(self.shape(2)))
            if detects:
                few_detections(net.eval(), torch.rand(self.shape(1)))
        return net.eval()

    def export(self, folder, dynamic):
        """The ONNX file and the input's open sizes; made once."""
        path = folder / f"{self.name}{'-open' if dynamic else ''}.onnx"
        note = path.with_suffix(".json")
        if path.exists() and note.exists():
            return path, json.loads(note.read_text())
        net = self.module()
        first = 1 if self.kind == "detection" else 2
        plane = {first: "height", first + 1: "width"}
        batch = {} if self.kind == "detection" else {0: "batch"}
        for axes in [{**batch, **plane}, batch] if dynamic else [{}]:
            try:
                write(net, self, path, axes)
                break
            except Exception as e:  # networks whose pools or windows fix height and width say so in many ways
                if not axes or axes == batch:
                    raise
                print(f"{self.name}: {str(e).splitlines()[0][:120]}; batch alone is left open", file=sys.stderr)
        note.write_text(json.dumps(list(axes.values())))
        return path, list(axes.values())

    def feeds(self, batch, seed):
        import numpy as np

        rng = np.random.default_rng(seed)
        shape = self.shape(batch)
        x = rng.random(shape, "float32") if self.kind == "detection" else rng.standard_normal(shape, "float32")
        return {"x": x}


def few_detections(net, image):
    """Random weights find nothing or something everywhere.  The least score that counts is set so that some ten or
    hundred boxes are left, in the widest gap of scores thereabouts: rounding does not change their number."""
    owner, few, many = getattr(net, "roi_heads", net), 20, 90

    def scores(least):
        owner.score_thresh = least
        return sorted(net([image])[0]["scores"].tolist(), reverse=True)

    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2 if low else high / 2
        found = scores(middle)
        if few <= len(found) <= many:
            break
        low, high = (middle, high) if len(found) > many else (low, middle)
    if len(found) > 1:
        at = max(range(1, len(found)), key=lambda i: (i >= len(found) // 2) * (found[i - 1] - found[i]))
        scores((found[at - 1] + found[at]) / 2)


def write(net, network, path, axes):
    import torch

    x = torch.rand(network.shape(1))

    class Tensors(torch.nn.Module):
        """Segmenters answer with a dictionary, detectors with one for each image."""

        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            y = self.net([x])[0] if network.kind == "detection" else self.net(x)
            return (
                y
                if isinstance(y, torch.Tensor)
                else tuple(y[k] for k in sorted(y)) if network.kind == "detection" else y["out"]
            )

    draft = path.with_suffix(f".{os.getpid()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Tensors().eval(),
            (x,),
            str(draft),
            dynamo=False,
            opset_version=OPSET,
            input_names=["x"],
            dynamic_axes={"x": axes} if axes else None,
        )
    draft.replace(path)


def networks(args, parser):
    import importlib

    import torchvision

    found = []
    for kind, module in KINDS.items():
        for name in torchvision.models.list_models(module=importlib.import_module(module)):
            if args.networks and name not in args.networks or not re.search(args.match, name):
                continue
            found.append(Network(name, kind))
    if unknown := [n for n in args.networks if n not in {f.name for f in found}]:
        parser.error(f"torchvision has no network '{unknown[0]}' for {', '.join(KINDS)}")
    if not args.networks and not args.all:
        found = [n for n in found if n.work <= LARGE]
    return sorted(found, key=lambda n: (list(KINDS).index(n.kind), n.work))


# ---- measuring


def code_bytes(library):
    """The size of the machine code: the executable sections of the file that the model is exported to."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "m.so")
        library.export_library(path)
        with open(path, "rb") as f:
            head = f.read(64)
            at, each, count = struct.unpack_from("<Q", head, 40)[0], *struct.unpack_from("<HH", head, 58)
            f.seek(at)
            table = f.read(each * count)
    sections = (struct.unpack_from("<IIQQQQ", table, i * each) for i in range(count))
    return sum(size for _, _, flags, _, _, size in sections if flags & 4)


def times_of(runners, feeds, args):
    """{name: [seconds]}, sample i of one beside sample i of the others."""
    import peers

    if args.cpu_time:
        return peers.cpu_times(runners, feeds, SAMPLES, SECONDS)
    return peers.side_by_side(runners, feeds, args.rounds)


def ratio(times, over, under):
    """How much longer one takes than the other."""
    return statistics.median(a / b for a, b in zip(times[over], times[under]))


def compiled(path, args, shape=None):
    """The model and what is worth saying about its making."""
    import peers

    start = time.process_time()
    library, seconds = peers.Lathe.compile(path, target=args.target, shape=shape)
    seconds = time.process_time() - start if args.cpu_time else seconds
    kernels = len({k.name for k in library.model.nodes()})
    return library, {"compile_s": seconds, "kernels": kernels, "s_per_100": seconds / max(kernels, 1) * 100}


def measure(network, path, threads, args):
    """A row: known sizes, batch 1."""
    import peers

    feeds = network.feeds(1, 1)
    usable, _ = peers.chosen(["ort", "openvino"])
    library, row = compiled(path, args)
    runners, refused = {"Lathe": peers.Lathe(library, threads)}, {}
    for peer in usable:
        try:
            runners[peer.name] = peer.load(path, threads)
        except Exception as e:  # peers raise anything
            refused[peer.name] = str(e).splitlines()[0][:120] if str(e) else type(e).__name__
    wanted = runners["ONNX Runtime"].run(feeds)
    errors = {name: peers.relative_error(r.run(feeds), wanted) for name, r in runners.items()}
    if not any(y.size and y.any() for y in wanted):
        raise RuntimeError("its answer is empty or zero: nothing to compare")
    for name in [n for n in runners if n not in ("Lathe", "ONNX Runtime") and not errors[n] <= TOLERANCE]:
        refused[name] = f"wrong output: relative error {errors[name]:.1e}"
        del runners[name]
    times = times_of(runners, feeds, args)
    ratios = {name: ratio(times, name, "Lathe") for name in runners if name != "Lathe"}
    return row | {
        "network": network.name,
        "kind": network.kind,
        "size": network.size,
        "threads": threads,
        "work": network.work,
        "ms": {n: statistics.median(t) * 1e3 for n, t in times.items()},
        "ratio": ratios,
        "relative_error": errors["Lathe"],
        "right": bool(errors["Lathe"] <= TOLERANCE),
        "refused": refused,
    }


def measure_symbolic(network, path, open_sizes, threads, args):
    """A row for each batch: open sizes beside known ones."""
    import peers

    library, made = compiled(path, args)
    code, rows = code_bytes(library), []
    for batch in args.batches if "batch" in open_sizes else [1]:
        feeds = network.feeds(batch, 1)
        known, known_made = compiled(path, args, {"x": network.shape(batch)})
        runners = {
            "Lathe": peers.Lathe(library, threads),
            "Lathe known": peers.Lathe(known, threads),
            "ONNX Runtime": peers.OnnxRuntime.load(path, threads),
        }
        wanted = runners["ONNX Runtime"].run(feeds)
        error = max(peers.relative_error(runners[n].run(feeds), wanted) for n in ("Lathe", "Lathe known"))
        times = times_of(runners, feeds, args)
        rows.append(
            made
            | {
                "network": network.name,
                "kind": network.kind,
                "size": network.size,
                "threads": threads,
                "batch": batch,
                "open": open_sizes,
                "ms": {n: statistics.median(t) * 1e3 for n, t in times.items()},
                "slower": ratio(times, "Lathe", "Lathe known"),
                "ratio": {"ONNX Runtime": ratio(times, "ONNX Runtime", "Lathe")},
                "code": code / code_bytes(known),
                "known_compile_s": known_made["compile_s"],
                "relative_error": error,
                "right": bool(error <= TOLERANCE),
            }
        )
    return rows


# ---- reporting


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else float("nan")


def best_peer(row):
    return min(row["ratio"], key=row["ratio"].get)


PLAIN = (
    "network",
    "image",
    "threads",
    "Lathe ms",
    "ONNX Runtime ms",
    "OpenVINO ms",
    "against ONNX Runtime",
    "against the faster",
    "error",
    "kernels",
    "compile s",
    "s per 100 kernels",
)
OPEN = (
    "network",
    "image",
    "open",
    "batch",
    "symbolic ms",
    "known ms",
    "ONNX Runtime ms",
    "symbolic / known",
    "against ONNX Runtime",
    "code",
    "error",
    "compile s",
    "s per 100 kernels",
)


def line(r):
    import peers

    ms = [f"{r['ms'][n]:.2f}" if n in r["ms"] else "–" for n in ("Lathe", "Lathe known", "ONNX Runtime", "OpenVINO")]
    error = f"{r['relative_error']:.0e}" + " WRONG" * (not r["right"])
    made = (f"{r['compile_s']:.1f}", f"{r['s_per_100']:.2f}")
    ort = f"{r['ratio']['ONNX Runtime']:.2f}"
    if "batch" in r:
        return peers.table_row(
            r["network"],
            r["size"],
            ", ".join(r["open"]),
            r["batch"],
            *ms[:3],
            f"{r['slower']:.2f}",
            ort,
            f"{r['code']:.2f}",
            error,
            *made,
        )
    return peers.table_row(
        r["network"],
        r["size"],
        r["threads"],
        ms[0],
        ms[2],
        ms[3],
        ort,
        f"{r['ratio'][best_peer(r)]:.2f}",
        error,
        r["kernels"],
        *made,
    )


def missed(rows, failed):
    """What --check does not accept."""
    found = [f"{name} does not run" for name in failed]
    for r in rows:
        where = r["network"] + (f", batch {r['batch']}" if "batch" in r else "")
        least = 1.0 if "batch" in r else ASKED_RATIO
        if not r["right"]:
            found.append(f"{where}: relative error {r['relative_error']:.0e}")
        if r["ratio"]["ONNX Runtime"] < least:
            found.append(f"{where}: {r['ratio']['ONNX Runtime']:.2f} of ONNX Runtime, asked for {least}")
        if r["s_per_100"] > ASKED_COMPILE:
            found.append(f"{where}: {r['s_per_100']:.1f} s to compile 100 kernels, asked for {ASKED_COMPILE}")
        if r.get("slower", 0) > ASKED_SYMBOLIC:
            found.append(f"{where}: {r['slower']:.2f} times as long as with known sizes, asked for {ASKED_SYMBOLIC}")
        if r.get("code", 0) > ASKED_CODE:
            found.append(f"{where}: {r['code']:.1f} times the code of known sizes, asked for {ASKED_CODE}")
    plain = [r["ratio"]["ONNX Runtime"] for r in rows if "batch" not in r]
    if plain and mean(plain) < ASKED_MEAN:
        found.append(f"geometric mean {mean(plain):.2f} of ONNX Runtime, asked for {ASKED_MEAN}")
    return found


def report(rows, failed, out):
    import peers

    def summed(ratios, names):
        print(f"against {names}: geometric mean {mean(ratios):.2f}", file=out)

    worst = sorted(rows, key=lambda r: r["ratio"]["ONNX Runtime"])
    lowest = ", ".join(f"{r['network']} {r['ratio']['ONNX Runtime']:.2f}" for r in worst[:5])
    print(f"\n{len(rows)} rows; lowest against ONNX Runtime: {lowest}", file=out)
    summed([r["ratio"]["ONNX Runtime"] for r in rows], "ONNX Runtime")
    others = [r["ratio"][best_peer(r)] for r in rows if "batch" not in r]
    if others:
        summed(others, f"the faster of {', '.join(p.name for p in peers.chosen(['ort', 'openvino'])[0])}")
    slower = [r["slower"] for r in rows if "slower" in r]
    if slower:
        print(f"open sizes take {mean(slower):.2f} times as long as known ones, at most {max(slower):.2f}", file=out)
    for r in rows:
        for name, why in r.get("refused", {}).items():
            print(f"{r['network']}: {name}: {why}", file=out)
    for name, why in failed.items():
        print(f"not run: {name}: {why}", file=out)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", default="", help="comma list (default: all)")
    parser.add_argument("--match", default="", help="a regular expression on the name")
    parser.add_argument("--all", action="store_true", help=f"those of more than {LARGE} billion multiply-adds too")
    parser.add_argument("--symbolic", action="store_true", help="open sizes beside known ones")
    parser.add_argument("--batches", default="1,4", help="with --symbolic")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", default="llvm -mcpu=native")
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor time at one thread: for a machine that others use too"
    )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=pathlib.Path(tempfile.gettempdir()) / "lathe-bench-zoo",
        help="where packages and exported networks are kept",
    )
    parser.add_argument("--list", action="store_true", help="print the networks alone")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 when a figure that is asked for is missed"
    )
    args = parser.parse_args()
    args.networks = [n for n in args.networks.split(",") if n]
    args.threads = [1] if args.cpu_time else [int(t) for t in args.threads.split(",")]
    args.batches = [int(b) for b in args.batches.split(",")]
    return args, parser


def main():
    args, parser = arguments()
    args.cache.mkdir(parents=True, exist_ok=True)
    enter(args.cache)
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]
    import peers

    found = networks(args, parser)
    if args.list:
        for n in found:
            print(f"{n.name}: {n.kind}, {n.size} x {n.size}, {n.work:.1f} billion multiply-adds")
        return 0
    import torch

    torch.set_num_threads(max(args.threads))
    out, rows, failed = peers.own_stdout(), [], {}
    print(peers.table_head(*(OPEN if args.symbolic else PLAIN)), file=out)
    for network in found:
        try:
            path, open_sizes = network.export(args.cache, args.symbolic)
            for threads in args.threads:
                now = (
                    measure_symbolic(network, path, open_sizes, threads, args)
                    if args.symbolic
                    else [measure(network, path, threads, args)]
                )
                rows += now
                for r in now:
                    print(line(r), file=out)
        except Exception as e:  # one network that fails does not end the run
            failed[network.name] = f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"
            print(f"{network.name}: {failed[network.name]}", file=sys.stderr)
    report(rows, failed, out)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "failed": failed}, indent=1))
    wrong = missed(rows, failed)
    for what in wrong if args.check else []:
        print(f"MISS {what}", file=out)
    return int(bool(args.check and wrong))


if __name__ == "__main__":
    sys.exit(main())
