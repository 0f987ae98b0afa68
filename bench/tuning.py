"""What tuning brings, and how fast it finds it.

    bench/tuning.py programs [--time 30] [--only NAME] [--threads 1]
    bench/tuning.py --quick                     the same in two minutes
    bench/tuning.py model [--time 30]
    bench/tuning.py networks FILE.onnx … [--shape input=1,3,224,224] [--time 300] [--threads 2]

programs: tensor expressions that no plan covers, each tuned for so many seconds: the time as it stands and tuned, how
often that is as fast, trials, trials that failed, trials a second, and regret: how much slower the best of a third and
of two thirds of the trials was than the last best.  Where numpy has functions for the computation: how much of their
processor time the tuned kernel takes, in turns, the least of some rounds; what both give is compared.  With --check the
status is 1 unless each is five times as fast.

model: programs are tuned, and of their records some are held back: how well the cost model ranks them (rank
correlation), once having seen others of the same program, once none of it.

networks: each is tuned for so many seconds into a database of its own, compiled without and with it, and both run in
turns in a process of their own; ratio: untuned over tuned, with the quartiles of the pairs.  With --check the status is
1 where the tuned one is slower by more than the spread.

Absolute times mean little on a machine that is not quiet; ratios of what is measured in turns do."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import numpy as np  # noqa: E402

import lathe  # noqa: E402
from lathe import te  # noqa: E402
from lathe._ffi import call  # noqa: E402

# ---- computations


def sum_of(*axes):
    return [te.reduce_axis((0, n), name) for name, n in axes]


def conv3d_dilated():
    a = te.placeholder((1, 8, 12, 20, 20), name="A")
    w = te.placeholder((16, 8, 3, 3, 3), name="W")
    c, z, y, x = sum_of(("c", 8), ("z", 3), ("y", 3), ("x", 3))
    out = te.compute(
        (1, 16, 8, 16, 16),
        lambda n, o, d, h, v: te.sum(a[n, c, d + 2 * z, h + 2 * y, v + 2 * x] * w[o, c, z, y, x], axis=[c, z, y, x]),
        name="C",
    )
    return [a, w, out]


def conv2d_strided():
    a = te.placeholder((1, 16, 33, 33), name="A")
    w = te.placeholder((32, 16, 3, 3), name="W")
    c, y, x = sum_of(("c", 16), ("y", 3), ("x", 3))
    out = te.compute(
        (1, 32, 16, 16),
        lambda n, o, h, v: te.sum(a[n, c, 2 * h + y, 2 * v + x] * w[o, c, y, x], axis=[c, y, x]),
        name="C",
    )
    return [a, w, te.compute((1, 32, 16, 16), lambda n, o, h, v: out[n, o, h, v] + 1.0, name="D")]


def stencil_separable():
    a = te.placeholder((514, 514), name="A")
    rows = te.compute((514, 512), lambda i, j: a[i, j] + 2.0 * a[i, j + 1] + a[i, j + 2], name="R")
    return [a, te.compute((512, 512), lambda i, j: rows[i, j] + 2.0 * rows[i + 1, j] + rows[i + 2, j], name="B")]


def batched_products():
    a, b = te.placeholder((64, 16, 24), name="A"), te.placeholder((64, 24, 32), name="B")
    (k,) = sum_of(("k", 24))
    return [a, b, te.compute((64, 16, 32), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="C")]


def histogram():
    a, w = te.placeholder((4096,), name="A", dtype="int32"), te.placeholder((4096,), name="W")
    (k,) = sum_of(("k", 4096))
    zero = te.const(0, "float32")
    return [a, w, te.compute((32,), lambda b: te.sum(te.if_then_else(a[k] == b, w[k], zero), axis=k), name="H")]


def normalised_rows():
    a = te.placeholder((256, 384), name="A")
    (k,) = sum_of(("k", 384))
    mean = te.compute((256,), lambda i: te.sum(a[i, k], axis=k), name="S")
    (l,) = sum_of(("l", 384))
    square = te.compute(
        (256,), lambda i: te.sum((a[i, l] - mean[i] / 384.0) * (a[i, l] - mean[i] / 384.0), axis=l), name="Q"
    )
    return [
        a,
        te.compute(
            (256, 384), lambda i, j: (a[i, j] - mean[i] / 384.0) / te.sqrt(square[i] / 384.0 + 1e-5), name="N"
        ),
    ]


def product_int8():
    a, b = te.placeholder((64, 128), name="A", dtype="int8"), te.placeholder((64, 128), name="B", dtype="int8")
    (k,) = sum_of(("k", 128))
    out = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="C"
    )
    return [a, b, te.compute((64, 64), lambda i, j: (out[i, j].astype("float32") * 0.05).astype("int32"), name="D")]


def attention_scores():
    q, k = te.placeholder((4, 64, 32), name="Q"), te.placeholder((4, 64, 32), name="K")
    (d,) = sum_of(("d", 32))
    s = te.compute((4, 64, 64), lambda h, i, j: te.sum(q[h, i, d] * k[h, j, d], axis=d), name="S")
    return [q, k, te.compute((4, 64, 64), lambda h, i, j: te.exp(s[h, i, j] * 0.17), name="E")]


def product_odd():
    a, b = te.placeholder((127, 61), name="A"), te.placeholder((61, 97), name="B")
    (k,) = sum_of(("k", 61))
    return [a, b, te.compute((127, 97), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def winograd_tiles():
    """F(2, 3) of rows by hand: four products for two results."""
    a, w = te.placeholder((256, 66), name="A"), te.placeholder((3,), name="W")
    d = te.compute(
        (256, 32, 4),
        lambda i, t, e: te.if_then_else(
            e == 0,
            a[i, 2 * t] - a[i, 2 * t + 2],
            te.if_then_else(
                e == 1,
                a[i, 2 * t + 1] + a[i, 2 * t + 2],
                te.if_then_else(e == 2, a[i, 2 * t + 2] - a[i, 2 * t + 1], a[i, 2 * t + 1] - a[i, 2 * t + 3]),
            ),
        ),
        name="T",
    )
    g = te.compute(
        (4,),
        lambda e: te.if_then_else(
            e == 0,
            w[0],
            te.if_then_else(
                e == 3, w[2], te.if_then_else(e == 1, (w[0] + w[1] + w[2]) * 0.5, (w[0] - w[1] + w[2]) * 0.5)
            ),
        ),
        name="G",
    )
    m = te.compute((256, 32, 4), lambda i, t, e: d[i, t, e] * g[e], name="M")
    return [
        a,
        w,
        te.compute(
            (256, 32, 2),
            lambda i, t, o: te.if_then_else(
                o == 0, m[i, t, 0] + m[i, t, 1] + m[i, t, 2], m[i, t, 1] - m[i, t, 2] - m[i, t, 3]
            ),
            name="O",
        ),
    ]


def conv1d_causal():
    a, w = te.placeholder((8, 32, 70), name="A"), te.placeholder((48, 32, 7), name="W")
    c, t = sum_of(("c", 32), ("t", 7))
    return [a, w, te.compute((8, 48, 64), lambda n, o, x: te.sum(a[n, c, x + t] * w[o, c, t], axis=[c, t]), name="C")]


def conv2d_depthwise_dilated():
    a, w = te.placeholder((1, 64, 36, 36), name="A"), te.placeholder((64, 3, 3), name="W")
    y, x = sum_of(("y", 3), ("x", 3))
    return [
        a,
        w,
        te.compute(
            (1, 64, 32, 32),
            lambda n, c, h, v: te.sum(a[n, c, h + 2 * y, v + 2 * x] * w[c, y, x], axis=[y, x]),
            name="C",
        ),
    ]


def conv2d_transposed_form():
    """Channels last, weights of the other order."""
    a, w = te.placeholder((1, 18, 18, 24), name="A"), te.placeholder((3, 3, 24, 32), name="W")
    y, x, c = sum_of(("y", 3), ("x", 3), ("c", 24))
    return [
        a,
        w,
        te.compute(
            (1, 16, 16, 32), lambda n, h, v, o: te.sum(a[n, h + y, v + x, c] * w[y, x, c, o], axis=[y, x, c]), name="C"
        ),
    ]


def softmax_rows():
    a = te.placeholder((128, 256), name="A")
    k, l = sum_of(("k", 256), ("l", 256))
    top = te.compute((128,), lambda i: te.max(a[i, k], axis=k), name="M")
    total = te.compute((128,), lambda i: te.sum(te.exp(a[i, l] - top[i]), axis=l), name="S")
    return [a, te.compute((128, 256), lambda i, j: te.exp(a[i, j] - top[i]) / total[i], name="P")]


def attention_values():
    p, v = te.placeholder((4, 64, 64), name="P"), te.placeholder((4, 64, 48), name="V")
    (k,) = sum_of(("k", 64))
    return [p, v, te.compute((4, 64, 48), lambda h, i, d: te.sum(p[h, i, k] * v[h, k, d], axis=k), name="O")]


def attention_grouped():
    """Eight heads of queries over two of keys."""
    q, k = te.placeholder((8, 48, 32), name="Q"), te.placeholder((2, 48, 32), name="K")
    (d,) = sum_of(("d", 32))
    return [q, k, te.compute((8, 48, 48), lambda h, i, j: te.sum(q[h, i, d] * k[h // 4, j, d], axis=d), name="S")]


def distances():
    a, b = te.placeholder((128, 24), name="A"), te.placeholder((96, 24), name="B")
    (k,) = sum_of(("k", 24))
    return [
        a,
        b,
        te.compute((128, 96), lambda i, j: te.sum((a[i, k] - b[j, k]) * (a[i, k] - b[j, k]), axis=k), name="D"),
    ]


def stencil_seven_points():
    a = te.placeholder((34, 66, 66), name="A")
    return [
        a,
        te.compute(
            (32, 64, 64),
            lambda i, j, k: 0.4 * a[i + 1, j + 1, k + 1]
            + 0.1 * (a[i, j + 1, k + 1] + a[i + 2, j + 1, k + 1] + a[i + 1, j, k + 1])
            + 0.1 * (a[i + 1, j + 2, k + 1] + a[i + 1, j + 1, k] + a[i + 1, j + 1, k + 2]),
            name="B",
        ),
    ]


def product_requantized():
    a, b = te.placeholder((96, 64), name="A", dtype="uint8"), te.placeholder((48, 64), name="B", dtype="int8")
    (k,) = sum_of(("k", 64))
    out = te.compute(
        (96, 48), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="C"
    )

    def narrow(i, j):
        scaled = te.round(out[i, j].astype("float32") * 0.01)
        return te.min(te.max(scaled, te.const(-128, "float32")), te.const(127, "float32")).astype("int8")

    return [a, b, te.compute((96, 48), narrow, name="D")]


def product_chain():
    a, b = te.placeholder((64, 48), name="A"), te.placeholder((48, 56), name="B")
    c = te.placeholder((56, 40), name="C")
    k, l = sum_of(("k", 48), ("l", 56))
    ab = te.compute((64, 56), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="AB")
    return [a, b, c, te.compute((64, 40), lambda i, j: te.sum(ab[i, l] * c[l, j], axis=l), name="D")]


def moments():
    a = te.placeholder((8, 4096), name="A")
    (k,) = sum_of(("k", 4096))
    return [a, te.compute((8,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="M")]


def outer_gated():
    a, b = te.placeholder((64, 96), name="A"), te.placeholder((96, 96), name="B")
    (k,) = sum_of(("k", 96))
    c = te.compute((64, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return [a, b, te.compute((64, 96), lambda i, j: c[i, j] * te.sigmoid(c[i, j]) * a[i, j], name="D")]


PROGRAMS = [
    conv1d_causal,
    conv2d_depthwise_dilated,
    conv2d_transposed_form,
    softmax_rows,
    attention_values,
    attention_grouped,
    distances,
    stencil_seven_points,
    product_requantized,
    product_chain,
    moments,
    outer_gated,
    conv3d_dilated,
    conv2d_strided,
    stencil_separable,
    batched_products,
    histogram,
    normalised_rows,
    product_int8,
    attention_scores,
    product_odd,
    winograd_tiles,
]


# ---- the same by numpy's functions


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def windows(x, shape, axes, stride=1):
    found = np.lib.stride_tricks.sliding_window_view(x, shape, axes)
    return found[:, :, ::stride, ::stride] if stride > 1 else found


PEERS = {
    "conv1d_causal": lambda a, w: np.tensordot(windows(a, 7, 2), w, ((1, 3), (1, 2))).transpose(0, 2, 1),
    "conv2d_transposed_form": lambda a, w: np.tensordot(windows(a, (3, 3), (1, 2)), w, ((3, 4, 5), (2, 0, 1))),
    "conv2d_strided": lambda a, w: np.tensordot(windows(a, (3, 3), (2, 3), 2), w, ((1, 4, 5), (1, 2, 3))).transpose(
        0, 3, 1, 2
    ),
    "softmax_rows": softmax,
    "attention_values": np.matmul,
    "attention_scores": lambda q, k: np.exp(np.float32(0.17) * np.matmul(q, k.transpose(0, 2, 1))),
    "batched_products": np.matmul,
    "product_odd": np.matmul,
    "product_chain": lambda a, b, c: a @ b @ c,
    "product_int8": lambda a, b: (a.astype("int32") @ b.astype("int32").T * np.float32(0.05)).astype("int32"),
    "moments": lambda a: np.einsum("ij,ij->i", a, a),
    "distances": lambda a, b: (a * a).sum(1)[:, None] - 2 * a @ b.T + (b * b).sum(1),
}


def seconds_in_turns(*runs):
    """The least processor time of each."""
    least = [float("inf")] * len(runs)
    for _ in range(9):
        for k, run in enumerate(runs):
            run()
            times = 0
            start = time.process_time()
            while times < 200 and time.process_time() - start < 0.01:
                run()
                times += 1
            least[k] = min(least[k], (time.process_time() - start) / times)
    return least


def beside_numpy(make, func, trace, target):
    """What part of numpy's time the tuned kernel takes; None where numpy has nothing for it."""
    peer = PEERS.get(make.__name__)
    if peer is None or not trace:
        return None
    sch = lathe.tir.Schedule(func)
    sch._replay(trace)
    kernel = lathe.build(sch.mod, target=target)["main"]
    *inputs, output = make()
    rng = np.random.default_rng(0)
    values = [(rng.standard_normal([int(d) for d in t.shape]) * 8).astype(t.dtype) for t in inputs]
    out = lathe.nd.empty([int(d) for d in output.shape], output.dtype)
    tensors = [lathe.nd.array(v) for v in values] + [out]
    kernel(*tensors)
    expected = peer(*values)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    own, numpy = seconds_in_turns(lambda: kernel(*tensors), lambda: peer(*values))
    return own / numpy


# ---- programs


def programs(args):
    target = lathe.target.Target(f"{lathe.target.Target()} -num-cores={args.threads}")
    print(
        f"{'program':20} {'as it is us':>12} {'tuned us':>10} {'times':>7} {'trials':>7} {'failed':>7} {'a second':>9}"
        f" {'of numpy':>9} regret"
    )
    good = True
    for make in PROGRAMS:
        if args.only and args.only not in make.__name__:
            continue
        func = te.create_prim_func(make())
        bests = []
        with tempfile.TemporaryDirectory() as folder:
            start = time.time()
            trace, before, after, trials, failed, _ = call(
                "tune_program", func, target._h, f"{folder}/t.db", float(args.time), None, False, 1, None, None
            )
            spent = time.time() - start
            for entry in lathe.tuning.Database(f"{folder}/t.db").records():
                seconds = statistics.median(entry["seconds"]) if entry["status"] == "ok" else float("inf")
                bests.append(min(seconds, bests[-1] if bests else float("inf")))
        regret = [bests[len(bests) * part // 3 - 1] / bests[-1] - 1 for part in (1, 2)] if len(bests) > 3 else []
        times = before / after if trace else 1.0
        good &= times >= 5
        part = beside_numpy(make, func, trace, target)
        beside = "" if part is None else f"{part:.2f}"
        shares = " ".join(f"{100 * r:.0f}%" for r in regret)
        print(
            f"{make.__name__:20} {1e6 * before:12.1f} {1e6 * after:10.1f} {times:7.1f} {trials:7} {failed:7}"
            f" {trials / spent:9.1f} {beside:>9} {shares}",
            flush=True,
        )
    return good


# ---- the cost model


def ranks(values):
    return np.argsort(np.argsort(values))


def model(args):
    """Records of some programs; each is held back in turn, and a third of each."""
    target = lathe.target.Target(f"{lathe.target.Target()} -num-cores={args.threads}")
    rows, seconds, names = [], [], []
    for make in PROGRAMS:
        if args.only and args.only not in make.__name__:
            continue
        func = te.create_prim_func(make())
        with tempfile.TemporaryDirectory() as folder:
            call("tune_program", func, target._h, f"{folder}/t.db", float(args.time), None, False, 1, None, None)
            for entry in lathe.tuning.Database(f"{folder}/t.db").records():
                if entry["status"] != "ok":
                    continue
                sch = lathe.tir.Schedule(func)
                sch._replay(entry["candidate"])
                stores = np.asarray(call("tune_features", sch.mod["main"]))
                rows.append(list(stores.sum(axis=0)))
                seconds.append(statistics.median(entry["seconds"]))
                names.append(make.__name__)
    rows, seconds, names = np.asarray(rows), np.asarray(seconds), np.asarray(names)
    print(f"{'program':26} {'records':>8} {'rank, a third held back':>24} {'rank, never seen':>18}")
    rng, found = np.random.default_rng(0), []
    for name in dict.fromkeys(names):
        own = np.flatnonzero(names == name)
        held = rng.permutation(own)[: max(len(own) // 3, 2)]
        one = []
        for test in (held, own):
            train = np.setdiff1d(np.arange(len(names)), test)
            said = call("tune_model", rows[train].tolist(), seconds[train].tolist(), rows[test].tolist())
            one.append(float(np.corrcoef(ranks(said), ranks(seconds[test]))[0, 1]) if len(test) > 2 else float("nan"))
        found.append(one)
        print(f"{name:26} {len(own):8} {one[0]:24.2f} {one[1]:18.2f}", flush=True)
    means = np.nanmean(np.asarray(found), axis=0)
    print(f"{'mean':26} {len(names):8} {means[0]:24.2f} {means[1]:18.2f}")
    return bool(means[0] > 0)


# ---- networks

RUN = """
import sys, time, json
import numpy as np
import lathe
from lathe.contrib import graph_executor
rng = np.random.default_rng(0)
models = []
for path in sys.argv[2:4]:
    model = lathe.runtime.load_module(path)
    g = graph_executor.GraphModule(model["default"](lathe.cpu()))
    for i, (name, (shape, dtype)) in enumerate(zip(*[iter(json.loads(sys.argv[4]))] * 2)):
        kind = np.dtype(dtype).kind
        value = rng.standard_normal(shape) if kind == "f" else rng.integers(0, 2, shape)
        g.set_input(i, value.astype(dtype))
    models.append(g)
seconds = [[], []]
end = time.time() + float(sys.argv[1])
while time.time() < end or len(seconds[0]) < 7:
    for k in (0, 1) if len(seconds[0]) % 2 else (1, 0):
        start = time.perf_counter()
        models[k].run()
        seconds[k].append(time.perf_counter() - start)
print(json.dumps(seconds))
"""


def networks(args):
    good = True
    program = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"
    print(f"{'network':24} {'untuned ms':>11} {'tuned ms':>9} {'ratio':>7} quartiles      what the tuner said")
    for path in args.files:
        with tempfile.TemporaryDirectory() as folder:
            target = ["--target", f"{lathe.target.Target()} -num-cores={args.threads}"]
            shapes = [x for s in args.shape for x in ("--shape", s)]
            said = subprocess.run(
                [
                    program,
                    "tune",
                    path,
                    *shapes,
                    *target,
                    "--time",
                    f"{args.time}s",
                    "--db",
                    f"{folder}/t.db",
                    "--threads",
                    str(args.threads),
                ],
                text=True,
                capture_output=True,
                check=True,
            ).stdout
            files = []
            for k, more in enumerate(([], ["--tuned", f"{folder}/t.db"])):
                files.append(f"{folder}/{k}.so")
                subprocess.run([program, "compile", path, *shapes, *target, *more, "-o", files[-1]], check=True)
            info = json.loads(
                subprocess.run(
                    [program, "inspect", files[0], "--json"], text=True, capture_output=True, check=True
                ).stdout
            )
            ports = []
            for port in info["inputs"]:
                inside = port["type"][len("Tensor[(") :].rstrip("]")
                dims, dtype = inside.rsplit("), ", 1)
                ports += [port["name"], [[int(d) for d in dims.split(",") if d.strip()], dtype]]
            done = subprocess.run(
                [sys.executable, "-c", RUN, str(args.seconds), *files, json.dumps(ports)],
                text=True,
                capture_output=True,
                check=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "LATHE_NUM_THREADS": str(args.threads)},
            )
            untuned, tuned = json.loads(done.stdout)
        ratios = [a / b for a, b in zip(untuned, tuned)]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        good &= middle + (high - low) / 2 >= 1
        print(
            f"{pathlib.Path(path).stem:24} {1e3 * min(untuned):11.3f} {1e3 * min(tuned):9.3f} {middle:7.3f}"
            f" {low:.3f} to {high:.3f} {said.splitlines()[-1]}",
            flush=True,
        )
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="programs", choices=["programs", "networks", "model"])
    parser.add_argument("--quick", action="store_true", help="5 seconds of tuning, each: some two minutes in all")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--time", type=int, default=30, help="seconds of tuning, each")
    parser.add_argument("--seconds", type=float, default=10, help="seconds of comparing a network untuned and tuned")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--only")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.time = 5
    good = {"programs": programs, "networks": networks, "model": model}[args.what](args)
    sys.exit(args.check and not good)


if __name__ == "__main__":
    main()
