#!/usr/bin/env python3
"""A matrix multiply for a GPU: blocks, threads, tiles in shared memory, sums in registers.

    examples/gpu_matmul.py [N] [--target "cuda -arch=sm_90"]     prints the CUDA source
    examples/gpu_matmul.py [N] --run                             compiles and runs it with CuPy, where there is a GPU
"""
import argparse
import pathlib
import re
import sys
from typing import Any

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / "python")]

BLOCK, THREADS, STEP = 64, 16, 16      # columns and rows of C a block, threads along each, steps of the sum at a time


def build(N: int, target: str) -> Any:
    import lathe
    from lathe import te

    A = te.placeholder((N, N), name="A")
    B = te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), name="k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    AA, BB = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    CL = s.cache_write(C, "local")

    block_x, block_y = te.thread_axis("blockIdx.x"), te.thread_axis("blockIdx.y")
    thread_x, thread_y = te.thread_axis((0, THREADS), "threadIdx.x"), te.thread_axis((0, THREADS), "threadIdx.y")
    by, yi = s[C].split(C.op.axis[0], factor=BLOCK)
    bx, xi = s[C].split(C.op.axis[1], factor=BLOCK)
    ty, yi = s[C].split(yi, nparts=THREADS)
    tx, xi = s[C].split(xi, nparts=THREADS)
    s[C].reorder(by, bx, ty, tx, yi, xi)
    for axis, thread in ((by, block_y), (bx, block_x), (ty, thread_y), (tx, thread_x)):
        s[C].bind(axis, thread)

    s[CL].compute_at(s[C], tx)
    yc, xc = s[CL].op.axis
    ko, ki = s[CL].split(s[CL].op.reduce_axis[0], factor=STEP)
    s[CL].reorder(ko, ki, yc, xc)
    s[CL].unroll(ki)
    for load in (AA, BB):
        s[load].compute_at(s[CL], ko)
        y, x = s[load].op.axis
        ty, y = s[load].split(y, nparts=THREADS)
        tx, x = s[load].split(x, nparts=THREADS)
        s[load].reorder(ty, tx, y, x)
        s[load].bind(ty, thread_y)
        s[load].bind(tx, thread_x)
    return lathe.build(s, [A, B, C], target=target, name="matmul").imported_modules[0].get_source()


def run(source: str, N: int) -> Any:
    import cupy
    import numpy as np

    name = re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)", source)[0]
    kernel = cupy.RawModule(code=source).get_function(name)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
    args = [cupy.asarray(a), cupy.asarray(b), cupy.zeros((N, N), "float32")]

    def launch() -> None:
        kernel((N // BLOCK, N // BLOCK), (THREADS, THREADS), tuple(args))

    launch()
    np.testing.assert_allclose(args[2].get(), a @ b, rtol=1e-3, atol=1e-3)
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for _ in range(20):
        launch()
    stop.record()
    stop.synchronize()
    ms = cupy.cuda.get_elapsed_time(start, stop) / 20
    print(f"{N} x {N} x {N} on {cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}: equal to numpy, "
          f"{ms:.3f} ms, {2 * N ** 3 / ms / 1e6:.0f} GFLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("size", nargs="?", type=int, default=1024)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--source", help="a file with the source, instead of compiling it here")
    args = parser.parse_args()
    source = pathlib.Path(args.source).read_text() if args.source else build(args.size, args.target)
    if args.run:
        run(source, args.size)
    else:
        print(source)


if __name__ == "__main__":
    main()
