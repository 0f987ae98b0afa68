"""Workers: `lathe tune --worker` over pipes, several of them, and what becomes of those that die or talk nonsense."""

import re
import shlex
import subprocess
import sys

import pytest

import lathe
from lathe._ffi import call
from lathe.script import tir as T
from tuning_kit import PROGRAM, ROOT, host_target, lathe_run, product_script, records
from tuning_kit import tune as tune_file

WORKER = f"{shlex.quote(str(PROGRAM))} tune --worker"
TARGET = host_target()

@T.prim_func
def scale(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            B[vi] = A[vi] * T.float32(2)


@T.prim_func
def wrong(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            B[vi] = A[vi] * T.float32(3)


def job(*funcs, base=scale, target=TARGET):
    texts = [target, base.script() if base else "", *[f if isinstance(f, str) else f.script() for f in funcs]]
    head = f"{len(funcs)} 1 0.02 30 10 5 0 " + " ".join(str(len(t)) for t in texts)
    return head + "\n" + "".join(texts)


def tune(tmp_path, *commands, trials=4, ok=True):
    file, db = tmp_path / "k.py", tmp_path / "t.db"
    file.write_text(product_script(24, 24, 16))
    workers = [x for c in commands for x in ("--workers", c)]
    done = tune_file(file, db, "--trials", trials, *workers, ok=ok, timeout=200)
    assert (done.returncode == 0) is ok, done.stdout + done.stderr
    return done, records(db)


def test_the_protocol():
    pipe = subprocess.PIPE
    worker = subprocess.Popen(shlex.split(WORKER), stdin=pipe, stdout=pipe, stderr=pipe)
    assert worker.stdout.readline() == b"lathe-worker 1\n"
    for text, kind in ((job(scale, wrong), b"answer"), ("what?", b"error"), (job(scale, target="cuda"), b"error")):
        worker.stdin.write(b"job %d\n%s" % (len(text), text.encode()))
        worker.stdin.flush()
        said, length = worker.stdout.readline().split()
        answer = worker.stdout.read(int(length)).decode()
        assert said == kind, answer
        if said == b"answer":
            good, bad = answer.splitlines()
            numbers = [float(x) for x in good.split()[1:]]
            assert good.startswith("ok ") and len(numbers) >= 6 and all(x > 0 for x in numbers)
            assert bad.startswith("wrong element ")
    worker.stdin.write(b"nonsense\n")
    _out, err = worker.communicate()
    assert worker.returncode == 1 and b"no job for a worker" in err


def test_jobs_that_are_none():
    for text, why in (
        ("", "begins with 7 numbers"),
        ("2 1 1 1 1 1 0 5", "the lengths of 4 texts"),
        ("1 1 1 1 1 1 0 5 5 500\nabc", "ends before its texts"),
        (job("def f(:"), "job:1"),
    ):
        with pytest.raises(lathe.error.LatheError, match=why):
            call("tune_answer", text)


def test_two_workers(tmp_path):
    done, found = tune(tmp_path, WORKER, WORKER)
    assert "4 measured (0 failed)" in done.stdout
    assert [r["status"] for r in found] == ["ok"] * 4


@pytest.mark.parametrize(
    "command, sentence",
    [
        ("exit 3", "has ended"),
        ("echo hello; cat >/dev/null", "answers what is no answer: 'hello"),
        ("printf 'lathe-worker 1\\nanswer 6\\nmaybe\\n'; cat >/dev/null", "answers what is no answer"),
        ("printf 'lathe-worker 1\\nanswer 3\\nok\\n'; cat >/dev/null", "answers what is no answer"),
        ("printf 'lathe-worker 1\\nanswer 17\\nok 1e-5 -1 x 3 4\\n'; cat >/dev/null", "answers what is no answer"),
        ("printf 'lathe-worker 1\\nerror 9\\nno memory'; cat >/dev/null", "says: no memory"),
        ("printf 'lathe-worker 1\\n'; head -c 100 >/dev/null", "has ended"),
    ],
)
def test_a_worker_that_fails_is_left_out(tmp_path, command, sentence):
    """What it was at is recorded as lost; the other goes on; alone it ends the tuning with a sentence."""
    _done, found = tune(tmp_path, command, WORKER, trials=3)
    lost = [r for r in found if r["status"] == "lost"]
    assert lost and all(re.search(sentence, r["note"]) for r in lost)
    assert any(r["status"] == "ok" for r in found)


def test_no_worker_left(tmp_path):
    done, found = tune(tmp_path, "exit 3", ok=False)
    assert "no worker is left to measure: the worker 'exit 3' has ended" in done.stderr
    assert {r["status"] for r in found} == {"lost"}
    done = lathe_run("tune", "net.relay", "--workers", "true", ok=False)
    assert done.returncode == 2 and "are for loop programs" in done.stderr


def test_the_example_under_ray(tmp_path):
    pytest.importorskip("ray")
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'examples' / 'ray_worker.py'))}"
    _done, found = tune(tmp_path, command, command)
    assert [r["status"] for r in found] == ["ok"] * 4


def test_the_example_without_ray():
    hidden = "import sys, runpy; sys.modules['ray'] = None; runpy.run_path(r'%s', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", hidden % (ROOT / "examples" / "ray_worker.py")],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1 and "pip install ray" in done.stderr
