"""bench/regret.py: plans of a random case measured here and from files, and the arithmetic of its figures.  No time is
asserted."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("onnx")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from lathe._ffi import call  # noqa: E402

import random_cases  # noqa: E402
import regret  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not call("build_info")[0], reason="plans are measured of code that LLVM makes")


def small_case(kind):
    """The name of a case of a seed that is soon compiled and run."""
    return next(f"{kind}:{i}" for i in range(99) if random_cases.draw(3, kind, i).flops < 4e6)


def said_by(*arguments):
    program = [sys.executable, str(ROOT / "bench" / "regret.py"), *map(str, arguments)]
    return subprocess.run(program, check=True, text=True, stdout=subprocess.PIPE).stdout


def test_here_and_from_files(tmp_path):
    names = [small_case("conv"), small_case("product")]
    cases = ["--seed", 3, "--only", ",".join(names), "--plans", 4]
    here = said_by(*cases, "--verbose")
    said_by(*cases, "--compile-only", tmp_path)
    library = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build"))
    there = said_by("--run", tmp_path, "--runtime", library / "liblathe_rt.so", "--verbose")
    for said in (here, there):
        assert all(f"| {name} |" in said for name in names) and said.count(" x predicted: ") == 8
        assert "wrong" not in said and "not run" not in said


def test_figures():
    plans = [{"plan": "a{}", "impl": "a", "seconds": 3.0}, {"plan": "b{}", "impl": "b", "seconds": 2.0}]
    row = {"case": "conv:0", "plans": plans, "wrong": []}
    regret.judge(row)
    assert row["regret"] == 0.5 and row["best"] == "b{}" and row["chosen"] == "a{}"
    assert regret.percentile([0.1, 0.4, 0.2, 0.3], 0.5) == 0.2 and regret.percentile([1.0], 0.95) == 1.0
    assert regret.missed([row], {}) == ["regret 50.0% and 50.0%, asked for 3% and 15%"]
    assert not regret.missed([{**row, "regret": 0.01}], {})


def test_sample_begins_with_what_was_taken():
    plans = [regret.Plan(f"{mark} {i} x{'ab'[i % 2]}{{n={i}}}") for i, mark in enumerate("   * ")]
    some = regret.sample(plans, 3, 1)
    assert some[0].taken and len(some) == 3 and {p.impl for p in some} == {"xa", "xb"}
