"""`import tvm` means Lathe after `import lathe.compat.tvm` and under `python -m lathe.tvm`; the scan says what is
missing."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from lathe.compat import scan

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python(*args, cwd=None):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(
        [sys.executable, *map(str, args)], cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
    )


PROGRAM = """
    import sys
    import tvm, numpy as np
    import tvm.relay.testing
    from tvm import te
    from tvm.contrib import graph_executor, utils
    from beside import five
    import lathe

    assert tvm is lathe and tvm.relay.testing is lathe.relay.testing
    assert lathe.__spec__.name == "lathe" and lathe.te.__spec__.name == "lathe.te"
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + five)
    out = tvm.nd.array(np.zeros(4, "float32"))
    tvm.build(te.create_schedule(B.op), [A, B])(tvm.nd.array(np.arange(4, dtype="float32")), out)
    print(out.numpy().tolist(), sys.argv[1:], __name__)
    """


def test_a_script_runs(tmp_path):
    (tmp_path / "beside.py").write_text("five = 5.0\n")
    (tmp_path / "script.py").write_text(textwrap.dedent(PROGRAM))
    done = python("-m", "lathe.tvm", tmp_path / "script.py", "a", "-b")
    assert done.stdout == "[5.0, 6.0, 7.0, 8.0] ['a', '-b'] __main__\n", done.stderr
    done = python("-m", "lathe.tvm", "-m", "script", "c", cwd=tmp_path)
    assert done.stdout == "[5.0, 6.0, 7.0, 8.0] ['c'] __main__\n", done.stderr


def test_the_import_alone(tmp_path):
    done = python(
        "-c",
        "import lathe.compat.tvm; import lathe, tvm; from tvm import relay; print(tvm.cpu(0), relay is lathe.relay)",
    )
    assert done.stdout == "cpu(0) True\n", done.stderr


def test_what_is_not_there_is_not_found(tmp_path):
    done = python("-c", "import lathe.compat.tvm\nimport tvm.micro_that_is_not.more")
    assert (
        done.returncode == 1
        and "ModuleNotFoundError: Lathe stands in for TVM and has no module 'tvm.micro_that_is_not'" in done.stderr
    )


def test_another_tvm_that_is_imported_already_is_refused(tmp_path):
    (tmp_path / "tvm.py").write_text("")
    done = python("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport tvm\nimport lathe.compat.tvm")
    assert done.returncode == 1 and "another tvm is imported already" in done.stderr


def test_wrong_command_lines(tmp_path):
    for args, said in (
        (["nothing.py"], "no file 'nothing.py'"),
        (["--what"], "not '--what'"),
        (["--scan"], "wants files"),
    ):
        done = python("-m", "lathe.tvm", *args, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr, done.stderr


# ---- the scan


def missing(text):
    return [(m.where, m.what) for m in scan.missing_in_text(textwrap.dedent(text), "f")]


def test_scan_names():
    assert (
        missing("""\
        import tvm
        import tvm.no_module as nm
        from tvm import te, no_name
        from tvm.contrib import graph_executor as ge, no_contrib
        import lathe as other
        import numpy as np

        @tvm.no_decorator
        def f():
            np.no_matter()
            nm.says_nothing_new()
            A = te.placeholder((3,)).no_one_knows()
            te.no_te(tvm.relay.nn.no_op)
            other.nd.no_array
            ge.GraphModule.run, ge.GraphModule.no_method
        """)
        == [
            ("f:2", "tvm.no_module"),
            ("f:3", "tvm.no_name"),
            ("f:4", "tvm.contrib.no_contrib"),
            ("f:8", "tvm.no_decorator"),
            ("f:13", "tvm.te.no_te"),
            ("f:13", "tvm.relay.nn.no_op"),
            ("f:14", "tvm.nd.no_array"),
            ("f:15", "tvm.contrib.graph_executor.GraphModule.no_method"),
        ]
    )


def test_scan_keywords():
    assert missing("""\
        from tvm import relay
        import tvm
        relay.build(mod, target="llvm", no_argument=1)
        tvm.build(s, [a], target="c", name="f")
        tvm.nd.array(x, **options)
        import lathe
        lathe.nd.empty((1,), no_shape=2)
        """) == [("f:3", "tvm.relay.build(no_argument=…)"), ("f:7", "tvm.nd.empty(no_shape=…)")]


def test_scan_a_notebook_and_a_folder(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["tvm.not_code"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install x\n", "import tvm\n"]},
        {"cell_type": "code", "source": "x = 1\ntvm.no_name"},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "fine.py").write_text("import tvm\ntvm.cpu(0)\n")
    done = python("-m", "lathe.tvm", "--scan", tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout == f"{tmp_path}/n.ipynb:cell 3:2: tvm.no_name\n2 files, 1 uses of 1 things that are not there\n"
    done = python("-m", "lathe.tvm", "--scan", tmp_path / "fine.py")
    assert (done.returncode, done.stdout) == (0, "1 files, nothing is missing\n")


def test_the_scan_stops_at_what_is_no_program(tmp_path):
    (tmp_path / "bad.py").write_text("def (\n")
    done = python("-m", "lathe.tvm", "--scan", tmp_path / "bad.py")
    assert done.returncode == 2 and "the scan stopped" in done.stderr


@pytest.mark.parametrize("name", ["tvm", "tvm.te", "tvm.contrib.utils", "tvm.relay.testing.resnet"])
def test_find(name):
    assert scan.find(name)[0]
