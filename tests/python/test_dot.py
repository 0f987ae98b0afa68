"""The intrinsic dot: several products of narrow elements in one sum, by an instruction where there is one."""

import os
import shutil
import subprocess

import numpy as np
import pytest

import lathe
from lathe import te, tir
from lathe._ffi import call

M, K, N = 24, 64, 16
TARGETS = ["c"] + (["llvm -mcpu=native", "llvm -mattr=-dotprod"] if call("build_info")[0] else [])


def product(ta, tb, step=4):
    """Rows of words by a weight whose columns have words side by side."""
    a, b = te.placeholder((M, K), name="A", dtype=ta), te.placeholder((N // 8, K // 4, 8, 4), name="B", dtype=tb)
    k = te.reduce_axis((0, K // 4), name="k")

    def term(i, j):
        parts = [a[i, k * 4 + p] for p in range(4)] + [b[j // 8, k, j % 8, p] for p in range(4)]
        return te.sum(tir.call_intrin("int32", "tir.dot", *parts), axis=k)

    c = te.compute((M, N), term, name="C")
    s = te.create_schedule(c.op)
    io, ii = s[c].split(c.op.axis[0], factor=6)
    jo, ji = s[c].split(c.op.axis[1], factor=8)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=step)
    s[c].reorder(io, jo, ko, ki, ii, ji)
    s[c].vectorize(ji)
    s[c].unroll(ii)
    s[c].unroll(ki)
    return s, [a, b, c]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ta, tb", [("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8"), ("int8", "uint8")])
def test_values(ta, tb, target):
    f = lathe.build(*product(ta, tb), target=target, name="mm")
    r = np.random.default_rng(1)
    a = r.integers(np.iinfo(ta).min, np.iinfo(ta).max + 1, (M, K)).astype(ta)
    b = r.integers(np.iinfo(tb).min, np.iinfo(tb).max + 1, (N // 8, K // 4, 8, 4)).astype(tb)
    c = lathe.nd.empty((M, N), "int32")
    f(lathe.nd.array(a), lathe.nd.array(b), c)
    w = b.transpose(0, 2, 1, 3).reshape(N, K)
    np.testing.assert_array_equal(c.numpy(), a.astype("int64") @ w.astype("int64").T)


@pytest.mark.parametrize("target", TARGETS + ["llvm -mcpu=generic"] * (len(TARGETS) > 1))
@pytest.mark.parametrize("ta, tb", [("int8", "int8"), ("uint8", "int8")])
def test_eights(ta, tb, target):
    """Eight products of a sum, in 2 x 2 blocks of sums: where there is no instruction for it, two fours."""
    a, b = te.placeholder((M // 2, K // 8, 2, 8), name="A", dtype=ta), te.placeholder((N, K), name="B", dtype=tb)
    k = te.reduce_axis((0, K // 8), name="k")

    def term(i, j, lane):
        parts = [a[i, k, lane // 2, p] for p in range(8)] + [b[j * 2 + lane % 2, k * 8 + p] for p in range(8)]
        return te.sum(tir.call_intrin("int32", "tir.dot", *parts), axis=k)

    c = te.compute((M // 2, N // 2, 4), term, name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(c.op.axis[0], c.op.axis[1], k, c.op.axis[2])
    s[c].vectorize(c.op.axis[2])
    f = lathe.build(s, [a, b, c], target=target, name="mm")
    r = np.random.default_rng(1)
    x, w = (r.integers(np.iinfo(t).min, np.iinfo(t).max + 1, n).astype(t) for t, n in ((ta, (M, K)), (tb, (N, K))))
    have = lathe.nd.empty((M // 2, N // 2, 4), "int32")
    f(lathe.nd.array(x.reshape(M // 2, 2, K // 8, 8).transpose(0, 2, 1, 3).copy()), lathe.nd.array(w), have)
    want = (x.astype("int64") @ w.astype("int64").T).reshape(M // 2, 2, N // 2, 2).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(have.numpy(), want.reshape(M // 2, N // 2, 4))


@pytest.mark.parametrize("target, kinds, instruction", [
    ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod", ("int8", "int8"), "sdot"),
    ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod", ("uint8", "uint8"), "udot"),
    ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod,+i8mm", ("uint8", "int8"), "usdot"),
    ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod,+i8mm", ("int8", "uint8"), "usdot"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server", ("uint8", "int8"), "vpdpbusd"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server", ("int8", "uint8"), "vpdpbusd"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=alderlake", ("uint8", "int8"), "vpdpbusd"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", ("int8", "int8"), "vpmaddwd"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", ("uint8", "int8"), "vpmaddwd"),
    ("llvm -mtriple=x86_64-linux-gnu -mcpu=nehalem", ("uint8", "uint8"), "pmaddwd"),
])  # fmt: skip
@pytest.mark.skipif(not call("build_info")[0], reason="it looks for instructions in LLVM's assembly")
def test_instructions(target, kinds, instruction):
    text = lathe.build(*product(*kinds), target=target, name="mm").get_source("asm")
    count = text.count(instruction) + (text.count("sudot") if instruction == "usdot" else 0)  # a word from a lane
    assert count >= 6 * 4  # a row of the tile for each step


EMULATED = {
    "aarch64": ["+neon,+dotprod,+i8mm", "+neon"],
    "x86_64": ["+avx2", "+sse4.2"],
}
PROGRAM = """
#include <stdio.h>
int mm(const void *a, const void *b, void *c, void *, void *);
static %s a[%d] = {%s};
static %s b[%d] = {%s};
static int c[%d];
int main(void)
{
  if (mm(a, b, c, 0, 0)) return 1;
  for (unsigned i = 0; i < sizeof c / sizeof *c; i++) printf("%%d\\n", c[i]);
}
"""


@pytest.mark.parametrize("arch, features", [(arch, f) for arch, rows in EMULATED.items() for f in rows])
@pytest.mark.parametrize("ta, tb", [("int8", "int8"), ("uint8", "int8")])
@pytest.mark.skipif(not call("build_info")[0], reason="it is about LLVM's code")
def test_values_elsewhere(tmp_path, arch, features, ta, tb):
    """The largest and the least values, by the instructions of a machine that qemu knows."""
    native = os.uname().machine == arch
    gcc, qemu = "gcc" if native else f"{arch}-linux-gnu-gcc", f"qemu-{arch}"
    if not shutil.which(gcc) or not shutil.which(qemu):
        pytest.skip(f"needs {gcc} and {qemu}")
    f = lathe.build(*product(ta, tb), target=f"llvm -mtriple={arch}-linux-gnu -mattr={features}", name="mm")
    r = np.random.default_rng(2)
    a, b = (r.choice([np.iinfo(t).min, np.iinfo(t).max, 3], n).astype(t) for t, n in ((ta, M * K), (tb, N * K)))
    kind = {"int8": "signed char", "uint8": "unsigned char"}
    rows = [", ".join(map(str, x)) for x in (a, b)]
    source = PROGRAM % (kind[ta], M * K, rows[0], kind[tb], N * K, rows[1], M * N)
    (tmp_path / "main.c").write_text(source)
    (tmp_path / "mm.s").write_text(f.get_source("asm"))
    program = tmp_path / "program"
    march = ["-march=armv8.6-a"] if arch == "aarch64" else []  # for the assembler
    subprocess.run([gcc, *march, "-static", "-w", "-o", program, tmp_path / "main.c", tmp_path / "mm.s"], check=True)
    out = subprocess.run([qemu, "-cpu", "max", program], check=True, capture_output=True, text=True).stdout
    w = b.reshape(N // 8, K // 4, 8, 4).transpose(0, 2, 1, 3).reshape(N, K)
    want = a.reshape(M, K).astype("int64") @ w.astype("int64").T
    np.testing.assert_array_equal(np.array(out.split(), "int64").reshape(M, N), want)


def test_refused():
    x, y = te.placeholder((8,), name="x", dtype="int8"), te.placeholder((8,), name="y", dtype="float32")
    with pytest.raises(lathe.LatheError, match="dot wants four, eight or sixteen bytes or two elements of 16 bits"):
        te.compute((1,), lambda i: tir.call_intrin("int32", "tir.dot", x[0], x[1], y[0], y[1]), name="z")
