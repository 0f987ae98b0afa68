"""Models are not compiled for GPUs yet: one sentence says so, from every side."""

import subprocess

import pytest

import lathe
from lathe import error, relay

from test_cli import PROGRAM, ROOT

SAID = "a model is compiled for a CPU, not for 'cuda'"


def test_python():
    x = relay.var("x", shape=(4,))
    with pytest.raises(error.UnsupportedError, match=SAID):
        relay.build(lathe.IRModule.from_expr(relay.Function([x], relay.exp(x))), target="cuda")


@pytest.mark.skipif(not PROGRAM.exists(), reason="the lathe program was not built")
def test_the_command_line(tmp_path):
    model = str(ROOT / "examples/digits/digits.onnx")
    args = [str(PROGRAM), "compile", model, "-o", str(tmp_path / "m.so"), "--target", "cuda"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith("error: " + SAID) and len(done.stderr.splitlines()) == 1
