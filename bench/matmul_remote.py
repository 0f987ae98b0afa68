#!/usr/bin/env python3
"""The packed matrix product on another machine: compiled here, run there.

    bench/matmul_remote.py build FOLDER --target "llvm -mcpu=skylake-avx512" --threads 1,16
    bench/matmul_remote.py run FOLDER          on the other machine

FOLDER then holds the compiled kernels, the runtime and a description; running needs
Python with numpy, and neither the compiler nor LLVM.  The peer is every BLAS found
there (numpy's, PyTorch's), measured in turn with the kernels, after a rest: the threads
of each spin a while after its call and would take the next one's time.  Of the rounds
the median is told, and the best, which a neighbour on a shared machine disturbs least."""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPU, FLOAT = 1, 2
REST = 0.25             # seconds


def build(args):
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]
    import lathe
    import packed_matmul

    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    libraries = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build"))
    for name in ("liblathe_rt.so", "libpeak.so"):
        shutil.copy(libraries / name, folder / name)
    target = lathe.target.Target(args.target)
    kernels = []
    for N in map(int, args.sizes.split(",")):
        for threads in map(int, args.threads.split(",")):
            size = packed_matmul.Blocking(target, N, N, N, threads)
            for ahead in (False, True):
                func = packed_matmul.declare_prepacked(N, N, N, size.NR) if ahead else packed_matmul.declare(N, N, N)
                sch = packed_matmul.schedule(func, size, prepacked=ahead)
                name = f"matmul_{N}_{threads}{'_ahead' if ahead else ''}.so"
                lathe.build(sch.mod, target=target).export_library(str(folder / name))
                kernels.append({"file": name, "size": N, "threads": threads, "NR": size.NR, "ahead": ahead})
    (folder / "kernels.json").write_text(json.dumps(kernels))
    print(f"{len(kernels)} kernels in {folder}")


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


class Arg(ctypes.Structure):
    _fields_ = [("tensor", ctypes.POINTER(Tensor)), ("scalar", ctypes.c_int64)]


class Runtime:
    """The few calls of lathe_rt.h that running takes."""

    def __init__(self, folder):
        self.lib = ctypes.CDLL(str(folder / "liblathe_rt.so"))
        self.error = ctypes.create_string_buffer(512)
        self.kept = []                 # arrays that bound calls point into

    def check(self, code):
        if code:
            raise RuntimeError(self.error.value.decode())

    def load(self, path):
        module, func = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.lathe_rt_module_load(str(path).encode(), ctypes.byref(module), self.error))
        self.check(self.lib.lathe_rt_module_func(module, b"main", ctypes.byref(func), self.error))
        return func

    def threads(self, n):
        self.check(self.lib.lathe_rt_set_num_threads(n, self.error))

    def bind(self, func, arrays):
        self.kept += arrays
        tensors = [
            Tensor(
                a.ctypes.data,
                (ctypes.c_int32 * 2)(CPU, 0),
                a.ndim,
                FLOAT,
                32,
                1,
                (ctypes.c_int64 * a.ndim)(*a.shape),
                None,
                0,
            )
            for a in arrays
        ]
        args = (Arg * len(arrays))(*(Arg(ctypes.pointer(t), 0) for t in tensors))
        return lambda: self.check(self.lib.lathe_rt_func_call(func, len(arrays), args, self.error))


def aligned(a):
    """A copy on a cache line, as the runtime's own tensors are (numpy starts 16 bytes behind one)."""
    import numpy as np

    raw = np.empty(a.size + 16, a.dtype)
    start = -raw.ctypes.data // a.itemsize % 16
    out = raw[start:start + a.size].reshape(a.shape)
    out[...] = a
    return out


def panels(b, NR):
    import numpy as np

    K, N = b.shape
    count = -(-N // NR)
    padded = np.zeros((K, count * NR), b.dtype)
    padded[:, :N] = b
    return np.ascontiguousarray(padded.reshape(K, count, NR).transpose(1, 0, 2))


def peers(a, b, threads):
    """Name and call of every BLAS found."""
    import numpy as np

    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    try:
        from threadpoolctl import threadpool_limits
        threadpool_limits(limits=threads)
        numpy_ready = True
    except ImportError:      # without it numpy's threads follow OPENBLAS_NUM_THREADS
        numpy_ready = os.environ.get("OPENBLAS_NUM_THREADS") == str(threads)
    if numpy_ready:
        yield "numpy", lambda: np.matmul(a, b, out=out)
    try:
        import torch
        torch.set_num_threads(threads)
        x, y, z = torch.from_numpy(a), torch.from_numpy(b), torch.empty(out.shape)
        yield "torch", lambda: torch.mm(x, y, out=z)
    except ImportError:
        pass


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def run(args):
    import numpy as np

    folder = pathlib.Path(args.folder).resolve()
    runtime = Runtime(folder)
    peak = ctypes.CDLL(str(folder / "libpeak.so")).peak_gflops
    peak.restype, peak.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_double]
    kernels = json.loads((folder / "kernels.json").read_text())
    rng = np.random.default_rng(0)
    for N, threads in sorted({(k["size"], k["threads"]) for k in kernels}):
        a, b = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
        expected, rows = a @ b, []
        for k in kernels:
            if (k["size"], k["threads"]) == (N, threads):
                out = aligned(np.zeros((N, N), "float32"))
                runtime.threads(threads)
                call = runtime.bind(
                    runtime.load(folder / k["file"]),
                    [aligned(a), aligned(panels(b, k["NR"]) if k["ahead"] else b), out],
                )
                call()
                np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
                rows.append(("packed, B ahead" if k["ahead"] else "packed", call, []))
        rows += [(name, call, []) for name, call in peers(a, b, threads)]
        best = 0.0
        for _ in range(args.rounds):
            best = max(best, peak(threads, 0.05))
            for _, call, times in rows:
                time.sleep(REST)
                call()
                times.append(statistics.median(seconds(call) for _ in range(5)))
        blas = [
            min((how(t) for name, _, t in rows if not name.startswith("packed")), default=float("nan"))
            for how in (statistics.median, min)
        ]
        for name, _, times in rows:
            line = f"{N:5d} x {threads:2d} threads  {name:16s}"
            for label, how, peer in (("median", statistics.median, blas[0]), ("best", min, blas[1])):
                t = how(times)
                gflops = 2.0 * N ** 3 / t / 1e9
                of_peak = gflops / best * 100 if best else float("nan")
                line += f"  {label} {t * 1e3:8.3f} ms {gflops:7.1f} GFLOP/s {of_peak:3.0f} % of peak {peer / t:5.2f}x the best BLAS"
            print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="compile the kernels")
    make.add_argument("folder")
    make.add_argument("--target", default="llvm -mcpu=native")
    make.add_argument("--sizes", default="1024,2048")
    make.add_argument("--threads", default="1,2")
    go = commands.add_parser("run", help="run them and the peers")
    go.add_argument("folder")
    go.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    build(args) if args.command == "build" else run(args)


if __name__ == "__main__":
    main()
