#!/usr/bin/env python3
"""The matrix multiply of the tensor-expression lesson, one schedule step at a time:
the loop nest, the time, and a bar chart at the end, beside OpenBLAS."""
import pathlib
import shutil
import statistics
import sys
import time
from typing import Any, Callable, List, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]

import numpy as np  # noqa: E402

import lathe  # noqa: E402
import packed_matmul  # noqa: E402
from lathe import te  # noqa: E402

N = 1024
COLOUR = sys.stdout.isatty()


def paint(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def schedules() -> Any:
    """Name, what is new, and the schedule so far, as the lesson builds it up."""
    A = te.placeholder((N, N), name="A")
    B = te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), name="k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

    def make(level: int) -> te.Schedule:
        s = te.create_schedule(C.op)
        if level >= 1:
            i, j = C.op.axis
            io, jo, ii, ji = s[C].tile(i, j, 32, 32)
        if level >= 2:
            ko, ki = s[C].split(C.op.reduce_axis[0], factor=4)
            s[C].reorder(io, jo, ko, ii, ji, ki)
        if level >= 3:
            _, jiv = s[C].split(ji, factor=8)
            s[C].vectorize(jiv)
        if level >= 4:
            s[C].parallel(io)
        if level >= 5:
            s[C].unroll(ki)
        return s

    steps = [("naive", "three loops, as the definition says"),
             ("tiled", "s[C].tile(i, j, 32, 32): blocks that stay in the cache"),
             ("reordered", "s[C].reorder(io, jo, ko, ii, ji, ki): the sum in steps of 4"),
             ("vectorized", "s[C].vectorize(jiv): 8 columns at once"),
             ("parallel", "s[C].parallel(io): rows of blocks on all cores"),
             ("unrolled", "s[C].unroll(ki): no loop around the 4 steps")]
    for level, (name, note) in enumerate(steps):
        yield name, note, make(level), [A, B, C]


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    if first > 1:
        return first
    times: List[float] = []
    while len(times) < 3 or (len(times) < 9 and sum(times) < 0.6):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def show(name: str, note: str, text: str, limit: int = 26) -> None:
    print(paint("1;36", f"── {name}: ") + note)
    lines = text.strip().split("\n")
    for line in lines[:limit]:
        print("   " + line[:150])
    if len(lines) > limit:
        print(paint("2", f"   … {len(lines) - limit} more lines"))


def chart(results: Sequence[Tuple[str, float, float]]) -> None:
    width = min(shutil.get_terminal_size((100, 24)).columns, 110) - 48
    top = max(gflops for _, _, gflops in results)
    print(paint("1", f"\n{N} x {N} x {N}, float32\n"))
    for name, t, gflops in results:
        bar = "█" * max(1, round(width * gflops / top))
        print(
            f"  {name:17s}{t * 1e3:9.2f} ms {gflops:8.1f} GFLOP/s  {paint('33' if name == 'OpenBLAS' else '32', bar)}"
        )


def main() -> None:
    target = lathe.target.Target("llvm -mcpu=native") if lathe.runtime.enabled("llvm") else lathe.target.Target("c")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
    x, y, out = lathe.nd.array(a), lathe.nd.array(b), lathe.nd.empty((N, N))
    results = []

    def measure(name: str, call: Callable[[], Any]) -> None:
        t = seconds(call)
        results.append((name, t, 2.0 * N ** 3 / t / 1e9))
        print(f"   {paint('1', f'{t * 1e3:.2f} ms')}\n")

    for name, note, s, tensors in schedules():
        show(name, note, str(lathe.lower(s, tensors, simple_mode=True)))
        func = lathe.build(s, tensors, target=target, name="matmul")
        measure(name, lambda: func(x, y, out))
        np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-3, atol=1e-3)
    size = packed_matmul.Blocking(target, N, N, N, target.num_cores)
    sch = packed_matmul.schedule(packed_matmul.declare(N, N, N), size)
    show(
        "packed",
        f"panels of A and B, register tiles of {size.MR} x {size.NR} (examples/packed_matmul.py)",
        str(sch.trace),
        40,
    )
    func = lathe.build(sch.mod, target=target)
    measure("packed", lambda: func(x, y, out))
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-3, atol=1e-3)
    result = np.empty((N, N), "float32")
    print(paint("1;36", "── OpenBLAS: ") + "numpy.matmul, all cores")
    measure("OpenBLAS", lambda: np.matmul(a, b, out=result))
    chart(results)
    print("\nEvery result was checked against numpy.")


if __name__ == "__main__":
    main()
