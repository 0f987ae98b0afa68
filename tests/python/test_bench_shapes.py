"""bench/shapes.py: cases that are the same again, answers that agree with ONNX Runtime, and the arithmetic of its
figures.  No time is asserted."""

import io
import json
import pathlib
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("threadpoolctl")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from lathe._ffi import call  # noqa: E402

import random_cases  # noqa: E402
import shapes  # noqa: E402

TARGET = ["--target", "llvm -mcpu=native" if call("build_info")[0] else "c"]


@pytest.fixture
def small(monkeypatch):
    """Small cases, few samples."""
    monkeypatch.setattr(random_cases, "MOST", 1e7)
    monkeypatch.setattr(random_cases, "MOST_ELEMENTS", 1 << 15)
    monkeypatch.setattr(shapes, "SECONDS", 0.0)


@pytest.mark.parametrize("kind", random_cases.KINDS)
def test_two_cases_of_each_kind(kind, small):
    args, cases = shapes.arguments(["--seed", "3", "--kinds", f"{kind}:2", "--cpu-time", "--again", "0", *TARGET])
    out = io.StringIO()
    rows, failed, peak = shapes.sweep(cases, args, out)
    assert not failed and [r["case"] for r in rows] == [f"{kind}:0", f"{kind}:1"]
    assert all(r["right"] and r["kernels"] and r["ratio"]["ONNX Runtime"] > 0 for r in rows)
    shapes.report(rows, failed, peak, out)
    assert f"| {kind} | 1 | ONNX Runtime | 2 |" in out.getvalue()


def test_half_precision_and_losers(small, monkeypatch, tmp_path):
    monkeypatch.setattr(shapes, "LOSES", 1e9)  # everything is measured again and kept
    options = [
        "--seed",
        "5",
        "--only",
        "product:1,conv:0",
        "--dtype",
        "float16",
        "--cpu-time",
        "--again",
        "2",
        "--keep",
        str(tmp_path),
        *TARGET,
    ]
    args, cases = shapes.arguments(options)
    rows, failed, _ = shapes.sweep(cases, args, io.StringIO())
    assert not failed and all(
        r["right"] and set(r["ratio"]) == {shapes.ORT, shapes.OWN} and r["measured"] == 3 for r in rows
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["5-conv-0.onnx", "5-product-1.onnx"]


@pytest.mark.parametrize("kind", random_cases.KINDS)
def test_open_sizes(kind, small):
    args, cases = shapes.arguments(
        ["--seed", "3", "--only", f"{kind}:0", "--open", "--cpu-time", "--again", "0", *TARGET]
    )
    rows, failed, _ = shapes.sweep(cases, args, io.StringIO())
    assert not failed and rows[0]["right"] and set(rows[0]["ratio"]) >= {shapes.ORT, shapes.KNOWN}
    known, open_ = (random_cases.draw(3, kind, 0, open=way) for way in (False, True))
    dims = [d for i in open_.model.graph.input for d in i.type.tensor_type.shape.dim]
    assert known.label == open_.label and any(d.dim_param for d in dims)


def test_draws_are_the_same_again():
    a, b = (random_cases.draw(11, "conv", 4) for _ in range(2))
    assert a.label == b.label and a.model == b.model and all(np.array_equal(a.feeds[k], b.feeds[k]) for k in a.feeds)
    assert len({random_cases.draw(seed, "product", i).label for seed in (1, 2) for i in range(20)}) == 40


def test_operations_are_counted():
    c = random_cases.Case(np.random.default_rng(0), "float32")
    draws = iter([24, 1, 58, 209])
    c.log, c.pick, c.chance = lambda low, high: next(draws), lambda *choices: choices[0], lambda p: False
    random_cases.product(c)
    assert c.flops == 2 * 24 * 58 * 209 and c.label == "24x58x209 input"
    assert np.allclose(c.blas(), c.feeds["x0"] @ c.feeds["x1"])


def test_figures():
    row = {
        "case": "conv:0",
        "kind": "conv",
        "threads": 1,
        "relative_error": 0.0,
        "times": {"Lathe": [1.0, 2.0, 4.0], "ONNX Runtime": [0.8, 1.0, 8.0], "BLAS": [2.0, 2.0, 2.0]},
    }
    shapes.judge(row, 1e-4)
    assert row["ratio"] == {"ONNX Runtime": 0.8, "BLAS": 1.0} and row["worst"] == 0.8 and row["right"]
    shapes.add_samples(
        row, {"relative_error": 1.0, "times": {"Lathe": [1.0, 1.0], "ONNX Runtime": [3.0, 3.0], "BLAS": [2.0, 2.0]}}
    )
    shapes.judge(row, 1e-4)
    assert row["ratio"] == {"ONNX Runtime": 2.0, "BLAS": 2.0} and not row["right"]
    other = {"case": "conv:1", "kind": "conv", "threads": 1, "ratio": {"ONNX Runtime": 0.5}, "right": True}
    figures = {(kind, peer): s for kind, _, peer, s in shapes.summaries([row, other])}
    assert figures["conv", "ONNX Runtime"] == {
        "cases": 2,
        "mean": pytest.approx(1.0),
        "worst": 0.5,
        "loses": 1,
        "fails": 1,
        "share": 0.5,
    }
    assert (
        shapes.missed([row, other], {})[0] == "conv:0 is wrong" and len(shapes.missed([row, other], {"x": "why"})) == 4
    )


def test_command_line(small, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(shapes.peers, "own_stdout", lambda: sys.stdout)
    assert (
        shapes.main(
            [
                "--seed",
                "3",
                "--only",
                "softmax:0",
                "--cpu-time",
                "--again",
                "0",
                "--json",
                str(tmp_path / "x.json"),
                *TARGET,
            ]
        )
        == 0
    )
    assert json.loads((tmp_path / "x.json").read_text())["summary"][0]["cases"] == 1
    assert shapes.main(["--seed", "3", "--kinds", "conv", "--count", "3", "--list"]) == 0
    assert "conv:2: " in capfd.readouterr().out
    for wrong in (["--only", "conv:1"], ["--kinds", "convs"], ["--kinds", "conv:x"], ["--only", "conv", "--seed", "1"]):
        with pytest.raises(SystemExit):
            shapes.arguments(wrong)
