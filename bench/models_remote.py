#!/usr/bin/env python3
"""Compiled networks on another machine, with the runtime alone, beside ONNX Runtime and OpenVINO.

    bench/models.py --export DIR --target "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids" --coarse     here
    bench/models_remote.py DIR [--runtime liblathe_rt.so] [--threads 1,16] [--rounds 3] [--json]             there

Needs Python with numpy, the runtime built for that machine (in DIR unless --runtime says
otherwise), and neither the compiler nor LLVM.  Outputs are checked against those in DIR; one
network is unpacked at a time."""
import argparse
import ctypes
import json
import lzma
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import numpy as np  # noqa: E402

import peers  # noqa: E402

CPU = 1
DTYPES = {
    (2, 32): "float32",
    (2, 64): "float64",
    (2, 16): "float16",
    (0, 64): "int64",
    (0, 32): "int32",
    (0, 8): "int8",
    (1, 8): "uint8",
    (6, 8): "bool",
}
CODES = {name: code for code, name in DTYPES.items()}
TOLERANCE = 1e-3


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Port(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("type", ctypes.c_char_p),
    ]


class Runtime:
    """The few calls of lathe_rt.h that running a model takes."""

    def __init__(self, path):
        self.lib, self.error = ctypes.CDLL(str(path)), ctypes.create_string_buffer(512)

    def call(self, name, *args):
        if getattr(self.lib, name)(*args, self.error):
            raise RuntimeError(self.error.value.decode())

    def ports(self, which, model):
        rows = ctypes.POINTER(Port)()
        n = getattr(self.lib, f"lathe_rt_model_{which}")(model, ctypes.byref(rows))
        return [rows[i] for i in range(n)]


class Runner:
    """An executor with a number of threads."""

    def __init__(self, runtime, path, threads):
        self.rt, self.model, self.executor = runtime, ctypes.c_void_p(), ctypes.c_void_p()
        runtime.call("lathe_rt_model_load", os.fsencode(path), ctypes.byref(self.model))
        runtime.call("lathe_rt_executor_new", self.model, ctypes.byref(self.executor))
        runtime.call("lathe_rt_executor_set_threads", self.executor, threads)
        self.inputs = {p.name.decode(): i for i, p in enumerate(runtime.ports("inputs", self.model))}
        self.outputs = len(runtime.ports("outputs", self.model))

    def run(self, feeds):
        for name, x in feeds.items():
            x = np.ascontiguousarray(x)
            code, bits = CODES[str(x.dtype)]
            t = Tensor(
                x.ctypes.data,
                (ctypes.c_int32 * 2)(CPU, 0),
                x.ndim,
                code,
                bits,
                1,
                (ctypes.c_int64 * x.ndim)(*x.shape),
                None,
                0,
            )
            self.rt.call("lathe_rt_set_input", self.executor, self.inputs[name], ctypes.byref(t))
        self.rt.call("lathe_rt_run", self.executor)
        return [self.output(i) for i in range(self.outputs)]

    def output(self, i):
        p = ctypes.POINTER(Tensor)()
        self.rt.call("lathe_rt_get_output", self.executor, i, ctypes.byref(p))
        t = p.contents
        dtype, shape = np.dtype(DTYPES[t.code, t.bits]), [t.shape[k] for k in range(t.ndim)]
        out = np.empty(shape, dtype)
        ctypes.memmove(out.ctypes.data, t.data + t.byte_offset, out.nbytes)
        return out

    def close(self):
        self.rt.lib.lathe_rt_executor_free(self.executor)
        self.rt.lib.lathe_rt_model_free(self.model)


def unpacked(folder, name, work):
    """The file, unpacked into the folder for work where it is compressed."""
    if (folder / name).exists():
        return folder / name
    with lzma.open(folder / f"{name}.xz") as f, open(work / name, "wb") as g:
        shutil.copyfileobj(f, g, 1 << 20)
    return work / name


def wrong_answer(who, found, wanted, fast):
    """None, or what is wrong."""
    if fast and who == "Lathe":
        return peers.wrong_when_fast(found, wanted)
    error = peers.relative_error(found, wanted)
    return None if error <= TOLERANCE else f"wrong output: relative error {error:.1e}"


def measure(runtime, folder, name, threads, rounds, usable, fast):
    """The rows of one network."""
    rows = []
    with np.load(folder / f"{name}.npz") as data:
        feeds = {k[3:]: data[k] for k in data.files if k.startswith("in_")}
        wanted = [data[f"out_{i}"] for i in range(sum(k.startswith("out_") for k in data.files))]
    with tempfile.TemporaryDirectory() as made:
        work = pathlib.Path(made)
        compiled, model = unpacked(folder, f"{name}.so", work), unpacked(folder, f"{name}.onnx", work)
        for n in threads:
            runners, refused = {}, {}
            for who, make in [("Lathe", lambda: Runner(runtime, compiled, n))] + [
                (p.name, lambda p=p: p.load(model, n)) for p in usable
            ]:
                try:
                    runner = make()
                    if wrong := wrong_answer(who, runner.run(feeds), wanted, fast):
                        refused[who] = wrong
                    else:
                        runners[who] = runner
                except Exception as e:          # peers raise anything
                    refused[who] = f"does not run: {str(e).splitlines()[0][:200] if str(e) else type(e).__name__}"
            times = peers.side_by_side(runners, feeds, rounds)
            best = {who: min(t) * 1e3 for who, t in times.items()}
            others = [who for who in best if who != "Lathe"]
            ratio = min(best[o] for o in others) / best["Lathe"] if others and "Lathe" in best else None
            rows.append(
                {
                    "network": name,
                    "threads": n,
                    "ms": best,
                    "ratio": ratio,
                    "refused": refused,
                    "rounds_ms": {w: [x * 1e3 for x in t] for w, t in times.items()},
                }
            )
            if "Lathe" in runners:
                runners["Lathe"].close()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--runtime", type=pathlib.Path, help="liblathe_rt.so for this machine (default: in the folder)")
    parser.add_argument("--networks", default="", help="comma list (default: all in the folder)")
    parser.add_argument("--peers", default="ort,openvino")
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    out = peers.own_stdout()
    runtime = Runtime((args.runtime or args.folder / "liblathe_rt.so").resolve())
    usable, missing = peers.chosen(args.peers.split(","))
    listed = {m["network"]: m for m in json.loads((args.folder / "models.json").read_text())}
    names, threads = args.networks.split(",") if args.networks else list(listed), list(
        dict.fromkeys(int(t) for t in args.threads.split(","))
    )
    columns, rows = ["Lathe"] + [p.name for p in usable], []
    if not args.json:
        print(
            f"| network | threads | {' | '.join(f'{c} ms' for c in columns)} | ratio to the fastest |\n"
            + "|---" * (len(columns) + 3)
            + "|",
            file=out,
        )
    for name in names:
        for row in measure(
            runtime, args.folder, name, threads, args.rounds, usable, bool(listed[name].get("fast_math"))
        ):
            rows.append(row)
            if not args.json:
                cells = " | ".join(f"{row['ms'][c]:.2f}" if c in row["ms"] else "–" for c in columns)
                print(
                    f"| {name} | {row['threads']} | {cells} | {format(row['ratio'], '.2f') if row['ratio'] else '–'} |",
                    file=out,
                )
    if args.json:
        print(
            json.dumps({"versions": {p.name: p.version() for p in usable}, "missing": missing, "rows": rows}, indent=1),
            file=out,
        )
        return
    for n in threads:
        if ratios := [r["ratio"] for r in rows if r["threads"] == n and r["ratio"]]:
            print(f"\ngeometric mean, {n} thread{'s' * (n > 1)}: {statistics.geometric_mean(ratios):.2f}", file=out)
    for row in rows:
        for who, why in row["refused"].items():
            print(f"{row['network']}, {row['threads']} thread{'s' * (row['threads'] > 1)}: {who} {why}", file=out)
    for name, why in missing.items():
        print(f"{name}: not here ({why})", file=out)


if __name__ == "__main__":
    main()
