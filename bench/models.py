#!/usr/bin/env python3
"""Ten networks, Lathe beside every peer that is installed.

    bench/models.py [--networks resnet18,lstm_bi2] [--peers ort,ncnn] [--threads 1,2] [--rounds 3]
                    [--json] [--check] [--config KEY=VALUE]
    bench/models.py --export DIR --target "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
        [--coarse] [--fast-math bf16]

Batch 1, same inputs, same number of threads, float32 asked for everywhere, measured in turn,
round after round, in one process.  Every peer's outputs are compared with ONNX Runtime's on two
inputs; one that disagrees, or is too fast to have computed anything, is named and not counted.
A figure is the best median of the rounds; the ratio is the fastest peer's divided by Lathe's.
The graphs are not part of the project: they are looked for in $LATHE_SHARED/models or
../shared/models.  --export writes compiled models for bench/models_remote.py to run elsewhere."""

import argparse
import importlib.util
import json
import lzma
import os
import pathlib
import platform
import re
import shutil
import statistics
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import peers  # noqa: E402

# network: the ratio aimed at (1.0 is required everywhere)
NETWORKS = {"resnet18": 1.15, "resnet50": 1.1, "mobilenet_v2": 1.15, "mobilenet_v3_small": 1.3, "squeezenet1_1": 1.15,
            "efficientnet_b0": 1.4, "densenet121": 1.15, "bert_base": 1.05, "minilm_l6": 1.1, "lstm_bi2": 1.3}
REQUIRED_RATIO, REQUIRED_MEAN = 1.0, 1.07
TOLERANCE = 1e-3
IMPLAUSIBLE = 20          # so many times faster than ONNX Runtime is no answer


def shared_models():
    """The folder with graphs/ and fill.py, or None."""
    for folder in (os.environ.get("LATHE_SHARED"), ROOT.parent / "shared"):
        if folder and (pathlib.Path(folder) / "models" / "fill.py").exists():
            return pathlib.Path(folder) / "models"
    return None


def coarse(model):
    """Large weights take three values, -s, 0 and s: as fast as any, and small when compressed.  s is
    exact in bfloat16: rounding it would scale a whole layer, which weights of all sizes do not do."""
    import onnx

    for t in model.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT and len(t.raw_data) > 4096:
            w = np.frombuffer(t.raw_data, "float32")
            s = w.std() + 1e-12
            size = ((1.55 * s).astype("float32").reshape(1).view("uint32") & 0xffff0000).view("float32")
            t.raw_data = (np.clip(np.rint(w / (1.2 * s)), -1, 1) * size).astype("float32").tobytes()


SIZES = {"batch": 1, "seq": 128}


def filled(models, name, folder, rough=False, sizes=SIZES):
    """The network with weights and every size fixed, as a file; made once per folder."""
    import onnx

    source, out = models / "graphs" / f"{name}.onnx", folder / f"{name}{'_coarse' if rough else ''}.onnx"
    if out.exists() and out.stat().st_mtime > source.stat().st_mtime:
        return out
    spec = importlib.util.spec_from_file_location("fill", models / "fill.py")
    fill = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fill)
    draft = out.with_suffix(f".{os.getpid()}")
    fill.main(str(source), str(draft))
    model = onnx.load(str(draft))
    draft.unlink()
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        for d in value.type.tensor_type.shape.dim:
            if d.dim_param in sizes:
                d.dim_value = sizes[d.dim_param]
    if rough:
        coarse(model)
    onnx.save(model, str(draft))
    draft.replace(out)
    return out


def random_feeds(path, seed):
    """Inputs by name: normal, tokens below 1000, a mask that is on."""
    import onnx

    rng, feeds = np.random.default_rng(seed), {}
    graph = onnx.load(str(path)).graph
    weights = {t.name for t in graph.initializer}
    for value in graph.input:
        if value.name in weights:
            continue
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            feeds[value.name] = rng.standard_normal(shape).astype("float32")
        elif "mask" in value.name:
            feeds[value.name] = np.ones(shape, "int64")
        else:
            feeds[value.name] = rng.integers(0, 1000, shape)
    return feeds


def same_answer(found, wanted, name="", fast=False):
    """None, or what is wrong.  Who computes in reduced precision is held to that precision's bound and to the same
    largest element."""
    error = peers.relative_error(found, wanted)
    if fast and (name == "Lathe" or peers.Peer.half):
        return peers.wrong_when_fast(found, wanted)
    return None if error <= TOLERANCE else f"wrong output: relative error {error:.1e}"


def load_all(path, library, usable, threads, wanted, feeds, fast=False):
    """The runners that give the right answer on every input, and {name: reason} of the others."""
    runners, refused = {}, {}
    makers = [("Lathe", lambda: peers.Lathe(library, threads))] + [
        (p.name, lambda p=p: p.load(path, threads)) for p in usable
    ]
    for name, make in makers:
        try:
            runner = make()
            wrong = next(
                (w for w in (same_answer(runner.run(f), y, name, fast) for f, y in zip(feeds, wanted)) if w), None
            )
        except Exception as e:          # peers raise anything
            wrong = f"does not run: {str(e).splitlines()[0][:200] if str(e) else type(e).__name__}"
        if wrong:
            refused[name] = wrong
        else:
            runners[name] = runner
    return runners, refused


def measure(name, path, usable, args, config):
    """One row per number of threads."""
    feeds = [random_feeds(path, seed) for seed in (1, 2)]
    reference = peers.OnnxRuntime.load(path, max(args.threads))
    wanted = [reference.run(f) for f in feeds]
    del reference
    library, compile_seconds = peers.Lathe.compile(path, args.opt_level, args.target, config)
    rows = []
    for threads in args.threads:
        runners, refused = load_all(path, library, usable, threads, wanted, feeds, bool(args.fast_math))
        rounds = peers.side_by_side(runners, feeds[0], args.rounds)
        for peer, runner in list(runners.items()):      # still right after all the runs?
            if wrong := same_answer(runner.run(feeds[1]), wanted[1], peer, bool(args.fast_math)):
                refused[peer] = wrong
        best = {peer: min(times) for peer, times in rounds.items()}
        middle = {peer: statistics.median(times) for peer, times in rounds.items()}
        for peer in best:
            if peer != "Lathe" and "ONNX Runtime" in best and best[peer] * IMPLAUSIBLE < best["ONNX Runtime"]:
                refused[peer] = f"answers in {best[peer] * 1e6:.0f} us: not believed"
        others = [peer for peer in best if peer != "Lathe" and peer not in refused]
        row = {
            "network": name,
            "threads": threads,
            "compile_s": compile_seconds,
            "rounds_ms": {p: [t * 1e3 for t in r] for p, r in rounds.items()},
            "ms": {p: t * 1e3 for p, t in best.items() if p not in refused},
            "refused": refused,
            "ratio": None,
            "fastest": None,
        }
        if others and "Lathe" in row["ms"]:
            row["fastest"] = min(others, key=best.get)
            row["ratio"] = best[row["fastest"]] / best["Lathe"]
            row["ratio_of_medians"] = min(middle[p] for p in others) / middle["Lathe"]
            if "ONNX Runtime" in others:
                row["vs_onnxruntime"] = best["ONNX Runtime"] / best["Lathe"]
        rows.append(row)
    return rows


def checks(rows):
    """(what, reached, asked for) of every figure that is asked for."""
    out = []
    for row in rows:
        where = f"{row['network']}, {row['threads']} thread{'s' * (row['threads'] > 1)}"
        if row["ratio"] is None and "Lathe" in row["ms"]:
            continue                     # no peer ran
        out.append((f"{where}: fastest peer / Lathe", row["ratio"] or 0.0, REQUIRED_RATIO))
        if "vs_onnxruntime" in row:
            out.append((f"{where}: ONNX Runtime / Lathe", row["vs_onnxruntime"], 1.0))
    for threads, mean in means(rows).items():
        out.append((f"geometric mean, {threads} thread{'s' * (threads > 1)}", mean, REQUIRED_MEAN))
    return out


def means(rows):
    """Geometric mean of the ratios by number of threads."""
    found = {}
    for row in rows:
        if row["ratio"]:
            found.setdefault(row["threads"], []).append(row["ratio"])
    return {t: statistics.geometric_mean(r) for t, r in found.items()}


def markdown(rows, usable, out):
    names = ["Lathe"] + [p.name for p in usable]
    print(
        f"| network | threads | {' | '.join(f'{n} ms' for n in names)} | fastest peer | ratio | of medians | aim |",
        file=out,
    )
    print("|---" * (len(names) + 6) + "|", file=out)
    for row in rows:
        cells = [f"{row['ms'][n]:.2f}" if n in row["ms"] else "–" for n in names]
        ratio = [f"{row['ratio']:.2f}", f"{row['ratio_of_medians']:.2f}"] if row["ratio"] else ["–", "–"]
        print(
            f"| {row['network']} | {row['threads']} | {' | '.join(cells)} | {row['fastest'] or '–'} | {' | '.join(ratio)} | {NETWORKS[row['network']]:.2f} |",
            file=out,
        )
    print(file=out)
    for threads, mean in means(rows).items():
        print(f"geometric mean of the ratios, {threads} thread{'s' * (threads > 1)}: {mean:.2f}", file=out)
    for row in rows:
        for peer, why in row["refused"].items():
            print(f"{row['network']}, {row['threads']} thread{'s' * (row['threads'] > 1)}: {peer} {why}", file=out)


def export(args, models, folder, config, out):
    """Compiled models, the ONNX files, inputs and expected outputs, and the runtime."""
    target = pathlib.Path(args.export)
    target.mkdir(parents=True, exist_ok=True)

    def put(source, name):
        if not args.coarse:
            return shutil.copy(source, target / name)
        with open(source, "rb") as f, lzma.open(target / f"{name}.xz", "wb", preset=1) as g:
            shutil.copyfileobj(f, g, 1 << 20)

    listed = []
    for name in args.networks:
        path = filled(models, name, folder, args.coarse)
        feeds = random_feeds(path, 1)
        wanted = peers.OnnxRuntime.load(path, 2).run(feeds)
        library, seconds = peers.Lathe.compile(path, args.opt_level, args.target, config)
        with tempfile.TemporaryDirectory() as work:
            library.export_library(os.path.join(work, "m.so"))
            put(os.path.join(work, "m.so"), f"{name}.so")
        put(path, f"{name}.onnx")
        np.savez(
            target / f"{name}.npz",
            **{f"in_{k}": v for k, v in feeds.items()},
            **{f"out_{i}": y for i, y in enumerate(wanted)},
        )
        listed.append(
            {
                "network": name,
                "compressed": args.coarse,
                "target": args.target,
                "fast_math": args.fast_math,
                "compile_s": seconds,
            }
        )
        print(f"{name}: compiled in {seconds:.1f} s", file=out)
    (target / "models.json").write_text(json.dumps(listed, indent=1))
    arch = re.search(r"-mtriple=([^-\s]+)", args.target)
    if arch is None or arch[1] == platform.machine():       # the runtime built here runs there
        shutil.copy(pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "liblathe_rt.so", target)
        runtime = "with the runtime"
    else:
        runtime = f"without the runtime: put a liblathe_rt.so for {arch[1]} beside them"
    print(
        f"{len(listed)} networks in {target}, {sum(f.stat().st_size for f in target.iterdir()) / 1e6:.1f} MB, {runtime}; "
        f"there: bench/models_remote.py DIR",
        file=out,
    )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma list")
    parser.add_argument(
        "--peers",
        default="",
        help="comma list of ort, openvino, ncnn, mnn, torch, tvm (default: all that are installed)",
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", default="llvm -mcpu=native")
    parser.add_argument("--opt-level", type=int, default=3)
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of Lathe's passes"
    )
    parser.add_argument(
        "--fast-math",
        choices=("bf16", "fp16"),
        default="",
        help="Lathe in reduced precision; with fp16 OpenVINO, ncnn and MNN too, other peers stay in float32",
    )
    parser.add_argument(
        "--cache",
        default=os.path.join(tempfile.gettempdir(), "lathe-bench-models"),
        help="where filled networks are kept",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure is missed")
    parser.add_argument("--export", metavar="DIR", help="write compiled models instead of measuring")
    parser.add_argument(
        "--coarse", action="store_true", help="with --export: weights of three values, files compressed"
    )
    args = parser.parse_args()
    args.networks, args.threads = args.networks.split(","), [int(t) for t in args.threads.split(",")]
    args.peers = [p for p in args.peers.split(",") if p]
    if unknown := [n for n in args.networks if n not in NETWORKS]:
        parser.error(f"no network '{unknown[0]}'; there are {', '.join(NETWORKS)}")
    if args.rounds < 1:
        parser.error("--rounds takes 1 or more (3 for figures that count)")
    return args


def settings(args):
    """The config of the passes: numbers and booleans as such."""
    config = {"lathe.fast_math": args.fast_math} if args.fast_math else {}
    for item in args.config:
        key, _, value = item.partition("=")
        config[key] = {"true": True, "false": False}.get(value, int(value) if value.lstrip("-").isdigit() else value)
    return config


def main():
    args = arguments()
    models = shared_models()
    if models is None:
        print(
            "skipped: the graphs were not found; set LATHE_SHARED to the folder that holds models/graphs and models/fill.py"
        )
        return 0
    out, folder = peers.own_stdout(), pathlib.Path(args.cache)
    folder.mkdir(parents=True, exist_ok=True)
    if args.export:
        export(args, models, folder, settings(args), out)
        return 0
    usable, missing = peers.chosen(args.peers)
    peers.Peer.half = args.fast_math == "fp16"
    versions = {p.name: p.version() for p in usable}
    rows = []
    for name in args.networks:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += measure(name, filled(models, name, folder), usable, args, settings(args))
    found = checks(rows)
    if args.json:
        print(
            json.dumps(
                {"versions": versions, "missing": missing, "rows": rows, "means": means(rows), "checks": found},
                indent=1,
            ),
            file=out,
        )
    else:
        markdown(rows, usable, out)
        print(
            "\n" + ", ".join(f"{n} {v}" for n, v in versions.items()) + f"; best median of {args.rounds} rounds",
            file=out,
        )
        for name, why in missing.items():
            print(f"{name}: not here ({why})", file=out)
        print(file=out)
        for what, got, wanted in found:
            print(f"{'ok  ' if got >= wanted else 'MISS'} {what}: {got:.2f} (asked for {wanted:.2f})", file=out)
    return int(args.check and any(got < wanted for _, got, wanted in found))


if __name__ == "__main__":
    sys.exit(main())
