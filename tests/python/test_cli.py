"""The `lathe` program, as a person would call it."""
import json
import os
import pathlib
import subprocess

import pytest

import lathe

ROOT = pathlib.Path(__file__).resolve().parents[2]
MATMUL = str(ROOT / "examples/matmul.py")
PROGRAM = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "lathe"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the lathe program was not built")


def run(*args, status=0):
    done = subprocess.run([str(PROGRAM), *args], text=True, capture_output=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_help_has_examples():
    assert "lower" in run("--help")
    for command in ("lower", "build", "targets"):
        assert f"  lathe {command}" in run(command, "--help").split("examples:")[1]


def test_version():
    assert run("--version") == f"lathe {lathe.__version__}\n"


def test_lower_shows_loops_and_code():
    assert run("lower", MATMUL).startswith("parallel (io, 0, 8) {")
    assert "@T.prim_func" in run("lower", MATMUL, "--form", "script")
    assert "int32_t" in run("lower", MATMUL, "--form=c", "--target", "c")


def test_dump_dir_has_every_pass(tmp_path):
    run("lower", MATMUL, "--dump-dir", str(tmp_path))
    assert len(list(tmp_path.iterdir())) > 5


def test_build_writes_what_the_runtime_loads(tmp_path):
    import numpy as np

    path = str(tmp_path / "matmul.so")
    run("build", MATMUL, "-o", path)
    a, b, c = (np.random.rand(256, 256).astype("float32") for _ in range(3))
    lathe.runtime.load_module(path)["matmul"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def test_targets_as_json():
    described = json.loads(run("targets", "--target", "c", "--json"))
    assert described["target"]["kind"] == "c" and "cuda" in described["kinds"]


@pytest.mark.parametrize("args, status, says", [
    (("lower", "/nonexistent.py"), 1, "cannot read '/nonexistent.py'"),
    (("lower", MATMUL, "--target", "llvn"), 1, "llvm"),
    (("lower", MATMUL, "--function", "nothing"), 1, "holds no function named nothing"),
    (("lower", MATMUL, "--colour"), 2, "does not know '--colour'"),
    (("lower",), 2, "which file?"),
    (("build", MATMUL), 2, "-o FILE"),
    (("lwoer",), 2, "no command 'lwoer'"),
])
def test_mistakes(args, status, says):
    assert says in run(*args, status=status)


def test_text_that_does_not_parse(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    for i in range(4)\n        A[i] = 0.0\n")
    assert f"{path}:3:" in run("lower", str(path), status=1)
