"""examples/packed_matmul.py: whole and ragged tiles, one round and several, both ways to read A."""
import pathlib
import sys

import numpy as np
import pytest

import lathe

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import packed_matmul  # noqa: E402


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("pack_a", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("M, N, K", [(64, 128, 64), (37, 53, 41), (100, 64, 3000)])
def test_product(M, N, K, threads, pack_a, ahead):
    target = lathe.target.Target("llvm")
    size = packed_matmul.Blocking(target, M, N, K, threads)
    size.pack_a, size.late = pack_a, threads == 1
    func = packed_matmul.declare_prepacked(M, N, K, size.NR) if ahead else packed_matmul.declare(M, N, K)
    built = lathe.build(packed_matmul.schedule(func, size, prepacked=ahead).mod, target=target)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((M, K), (K, N)))
    c = lathe.nd.array(np.full((M, N), np.nan, "float32"))
    built(lathe.nd.array(a), lathe.nd.array(packed_matmul.pack_b(b, size.NR) if ahead else b), c)
    np.testing.assert_allclose(c.numpy(), a.astype("float64") @ b, rtol=1e-5, atol=1e-5 * K ** 0.5)
