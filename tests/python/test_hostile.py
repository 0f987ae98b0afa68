"""No Python value crashes the process: each call, field and operator gives a value or an exception."""
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).with_name("hostile_calls.py")


@pytest.mark.parametrize("what", ["functions", "attributes", "nodes"])
def test_hostile_values(what, tmp_path):
    paths = {k: os.path.abspath(os.environ[k]) for k in ("PYTHONPATH", "LATHE_LIBRARY_PATH") if k in os.environ}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), what],
        cwd=tmp_path,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
    )
    last = done.stdout.strip().splitlines()[-1:] or ["nothing"]
    assert done.returncode == 0 and last == [
        "done"
    ], f"exit status {done.returncode} at {last[0]}:\n{done.stderr[-3000:]}"


def test_attribute_of_none():
    from lathe import relay

    f = relay.Function([relay.var("x")], relay.var("y")).with_attr("A", None)
    assert f.astext() == "free_var %y;\nfn (%x) {\n  %y\n}"
    assert not f.attrs
    assert not relay.Function([relay.var("x")], relay.var("y")).with_attr("A", 1).with_attr("A", None).attrs
