"""Ctrl-C while a model is compiled: from the command line and from Python, at several moments."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import lathe

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "lathe"
WITHIN = 2.0  # seconds; generous, because other programs may keep the machine busy
LAYERS = 300


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Relay text of a network of many kernels, each different: seconds of passes, lowering and code."""
    lines = ["def @main(%x: Tensor[(1, 8, 32, 32), float32]) {"]
    last = "%x"
    for i in range(LAYERS):
        lines.append(f"  %{2 * i} = nn.max_pool2d({last}, pool_size=[3, 3], padding=[1, 1, 1, 1]);")
        lines.append(f"  %{2 * i + 1} = power(%{2 * i}, {i}.5f);")
        last = f"%{2 * i + 1}"
    path = tmp_path_factory.mktemp("long") / "long.relay"
    path.write_text("\n".join(lines + [f"  nn.relu({last})", "}"]))
    return str(path)


def hears_ctrl_c():
    """In the child: what runs in the background of a shell is told to ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(child, ready):
    """Waits while the child works and the moment has not come."""
    end = time.monotonic() + 120
    while not ready():
        assert child.poll() is None, f"it ended before it could be stopped: {child.communicate()}"
        assert time.monotonic() < end
        time.sleep(0.005)


def interrupt(child):
    """Ctrl-C; (status, what it said, seconds until it ended)."""
    child.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, said = child.communicate(timeout=60)
    return child.returncode, said, time.monotonic() - start


# each stage leaves its text in the folder when it is done
@pytest.mark.parametrize("after", ["*_import.relay", "*_FuseOps.relay", "*_kernel_*.tir"])
def test_the_command_line_stops_with_a_sentence(model, after, tmp_path):
    out, dump = tmp_path / "out", tmp_path / "dump"
    out.mkdir()
    args = [str(PROGRAM), "compile", model, "-o", str(out / "long.so"), "--dump-dir", str(dump)]
    child = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c)
    wait_until(child, lambda: any(dump.glob(after)))
    status, said, seconds = interrupt(child)
    assert (status, said.splitlines()[-1]) == (130, "error: stopped by Ctrl-C")
    assert seconds < WITHIN
    assert os.listdir(out) == []


@pytest.mark.parametrize("after", [0.05, 0.5, 1.5])
def test_python_stops_with_its_own_exception(model, after, tmp_path):
    program = (
        "import sys, lathe\n"
        "mod = lathe.relay.fromtext(open(sys.argv[1]).read())\n"
        "try:\n"
        "    open(sys.argv[2], 'w').close()\n"
        "    lathe.relay.build(mod, target='llvm')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', file=sys.stderr)\n"
        "A = lathe.te.placeholder((4,))\n"
        "B = lathe.te.compute((4,), lambda i: A[i] + 1.0)\n"
        "lathe.build(lathe.te.create_schedule(B.op), [A, B])  # the compiler is as good as before\n")
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(lathe.__file__)))
    ready = tmp_path / "ready"
    args = [sys.executable, "-c", program, model, str(ready)]
    child = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=hears_ctrl_c)
    wait_until(child, ready.exists)
    time.sleep(after)
    assert interrupt(child)[:2] == (0, "interrupted\n")
