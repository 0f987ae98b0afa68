"""lathe tune and lathe db as a user has them: records that survive whatever ends the tuner, models that compute the
same with a database as without, and a sentence for each thing that is wrong."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe._ffi import call
from lathe.contrib import graph_executor
from tuning_kit import PROGRAM, ROOT, host_target, lathe_run, product_script, records, small_disk, tune

NET = """def @main(%x: Tensor[(1, 16, 14, 14), float32]) {
  %0 = nn.conv2d(%x, ones(shape=[32, 16, 3, 3], dtype="float32"), padding=[1, 1]);
  %1 = nn.relu(%0);
  nn.conv2d(%1, ones(shape=[8, 32, 1, 1], dtype="float32"))
}
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.relay"
    path.write_text(NET)
    return path


def winner_line(net):
    """A workload of the network, the plan that it has and another that lies alike."""
    target = ["--target", host_target()]
    said = lathe_run("inspect", net, *target, "--alternatives", "nn.conv2d").stdout.splitlines()
    workload, taken, others = "", "", []
    for line in said:
        if line.startswith("nn."):
            if taken and others:
                break
            workload, taken, others = line.split()[0], "", []
        elif line[:2] == "* ":
            taken = line.split(" ", 2)[2]
        elif line[:2] == "  ":
            others.append(line.strip().split(" ", 1)[1])

    def layout(plan):
        return re.findall(r"(?:data|out)_block=(\d+)", plan), plan.split("{")[0]

    return workload, taken, next(p for p in others if layout(p) == layout(taken))


# ---- tuning ------------------------------------------------------------------------------------------------


def test_tune_and_compile(net, tmp_path):
    db, out = tmp_path / "t.db", tmp_path / "net.so"
    said = tune(net, db, "--trials", 4).stdout
    assert "the network: " in said.splitlines()[-1]
    found = records(db)
    measured = [r for r in found if r["entry"] == "record"]
    assert len(measured) >= 4
    assert len([r for r in found if r["entry"] == "network"]) == 1
    for r in measured:
        assert r["kind"] == "plan" and r["threads"] == 1 and r["machine"] and r["lathe_version"]
        if r["status"] == "ok":
            assert len(r["seconds"]) == len(r["base_seconds"]) >= 3
            assert all(0 < s < 1 for s in r["seconds"])
    assert len(lathe_run("db", "list", db).stdout.splitlines()) == len({r["workload"] for r in measured})
    lathe_run("compile", net, "-o", out, "--tuned", db, "--target", host_target())
    assert out.exists()


def test_resume_measures_nothing_twice(net, tmp_path):
    db = tmp_path / "t.db"
    tune(net, db, "--trials", 3)
    before = [(r["workload"], r["candidate"]) for r in records(db) if r["entry"] == "record"]
    tune(net, db, "--trials", 3, "--resume")
    after = [(r["workload"], r["candidate"]) for r in records(db) if r["entry"] == "record"]
    new = after[len(before) :]
    again = [pair for pair in new if pair in before]
    assert len(new) >= 3
    assert len(again) <= 4  # only what wins is measured once more: at most twice for each workload


def test_json_lines(net, tmp_path):
    said = tune(net, tmp_path / "t.db", "--trials", 2, "--json").stdout.splitlines()
    steps = [json.loads(line) for line in said]
    assert steps[0]["stage"] == "profile" and steps[-1]["stage"] == "summary"
    assert steps[-1]["trials"] >= 2 and steps[-1]["after"] <= steps[-1]["before"]
    assert any(s["stage"] == "measure" and s["workload"].startswith("nn.conv2d-") for s in steps)


def test_limits(net, tmp_path):
    start = time.time()
    tune(net, tmp_path / "t.db", "--time", "3s")
    assert time.time() - start < 60
    for bad in ("soon", "-3s", "5x", "0"):
        done = tune(net, tmp_path / "t.db", "--time", bad, ok=False)
        assert done.returncode == 2 and "--time is a number with s, m or h" in done.stderr


def test_what_cannot_be_tuned(tmp_path):
    path = tmp_path / "open.relay"
    path.write_text("def @main(%x: Tensor[(n, 16, 14, 14), float32]) { nn.relu(%x) }")
    done = tune(path, tmp_path / "t.db", "--trials", 1, ok=False)
    assert done.returncode == 1 and "sizes are known" in done.stderr and "--shape" in done.stderr
    path.write_text(NET)
    done = lathe_run(
        "tune",
        path,
        "--db",
        tmp_path / "t.db",
        "--trials",
        1,
        "--target",
        (
            "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
            if os.uname().machine != "x86_64"
            else "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
        ),
        ok=False,
    )
    assert done.returncode == 1 and "is not this machine's CPU" in done.stderr


SCRIPT = (
    product_script(48, 64, 40)
    + """
@T.prim_func
def double(A: T.Buffer((1000,), "float32"), B: T.Buffer((1000,), "float32")):
    for i in range(1000):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            B[vi] = A[vi] * T.float32(2)
"""
)


def test_tune_and_build_loop_programs(tmp_path):
    file, db, out = tmp_path / "k.py", tmp_path / "t.db", tmp_path / "k.so"
    file.write_text(SCRIPT)
    said = tune(file, db, "--trials", 8).stdout.splitlines()
    assert re.match(
        r"product: [\d.]+ -> [\d.]+ us, [\d.]+ times as fast, 4 measured \(0 failed\): build with --tuned", said[0]
    )
    assert said[1].startswith("double: ")
    assert {r["kind"] for r in records(db)} == {"trace"}
    lathe_run("build", file, "-o", out, "--tuned", db, "--target", host_target())
    module = lathe.runtime.load_module(str(out))
    a, b = (np.random.default_rng(0).random(s).astype("float32") for s in ((48, 40), (40, 64)))
    c = lathe.nd.empty((48, 64))
    module["product"](lathe.nd.array(a), lathe.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4)
    one = lathe_run("tune", file, "--db", db, "--trials", 2, "--function", "double", "--json", "--threads", 1).stdout
    assert json.loads(one)["function"] == "double"


def test_a_network_of_bytes(tmp_path):
    """A depthwise convolution has plans once it lies in blocks of channels; it is taken out as it stands there."""
    file, db = tmp_path / "net.relay", tmp_path / "t.db"
    file.write_text(
        """def @main(%x: Tensor[(1, 32, 15, 15), int8]) {
  %0 = nn.conv2d(%x, ones(shape=[32, 1, 3, 3], dtype="int8"), padding=[1, 1], groups=32, channels=32,
                 kernel_size=[3, 3], out_dtype="int32");
  cast(clip(right_shift(%0, 3), a_min=-128, a_max=127), dtype="int8")
}
"""
    )
    said = tune(file, db, "--trials", 2).stdout
    found = [r for r in records(db) if r["entry"] == "record"]
    assert found and {r["status"] for r in found} == {"ok"}, said
    assert all(r["candidate"].startswith("conv2d.depthwise_int8{") for r in found)


def test_a_network_of_float16(tmp_path):
    file, db = tmp_path / "net.relay", tmp_path / "t.db"
    file.write_text(NET.replace("float32", "float16"))
    tune(file, db, "--trials", 3)
    assert {r["status"] for r in records(db) if r["entry"] == "record"} == {"ok"}


def test_a_program_begins_with_what_won_for_other_sizes(tmp_path):
    file, db = tmp_path / "k.py", tmp_path / "t.db"
    file.write_text(product_script(48, 64, 40))
    tune(file, db, "--trials", 4)
    first = records(db)
    assert {len(r["features"]) for r in first} == {24}  # what the model reads is kept with the record
    won = [r for r in first if np.median(r["seconds"]) < 0.9 * np.median(r["base_seconds"])]
    assert won
    best = min(won, key=lambda r: np.median(r["seconds"]))
    file.write_text(product_script(36, 96, 50))
    tune(file, db, "--trials", 1)
    second = records(db)[-1]
    assert second["workload"] != best["workload"] and second["status"] == "ok"
    for tile in re.findall(r"sample_perfect_tile.*decision=\[(.*)\]", second["candidate"]):
        assert np.prod(json.loads(f"[{tile}]")) in (36, 96, 50)
    bare = [re.sub(r"decision=\[.*\]", "", r["candidate"]) for r in (best, second)]
    assert bare[0] == bare[1]


XOR = """
import json, sys
from lathe._ffi import call
rows, seconds, others = json.load(sys.stdin)
print(json.dumps(call("tune_model", rows, seconds, others)))
"""


def test_xgboost_where_it_is_found():
    """Slow where exactly one of two flags is set: trees see that, a sum over columns and squares cannot."""
    import ctypes.util
    import importlib.util

    package = importlib.util.find_spec("xgboost")
    wheel = package and os.path.join(package.submodule_search_locations[0], "lib", "libxgboost.so")
    library = os.environ.get("LATHE_XGBOOST_LIBRARY") or wheel or ctypes.util.find_library("xgboost")
    if not library:
        pytest.skip("libxgboost is not installed: Debian's package libxgboost0, or pip install xgboost")
    x = np.random.default_rng(0).integers(0, 2, (200, 3)).astype(float)
    slow = x[:, 0] != x[:, 1]
    job = json.dumps([x[:150].tolist(), np.where(slow, 1e-3, 1e-5)[:150].tolist(), x[150:].tolist()])
    right = {}
    for lib in (library, "/nowhere/libxgboost.so"):
        env = {**os.environ, "LATHE_XGBOOST_LIBRARY": lib, "PYTHONPATH": str(ROOT / "python")}
        command = [sys.executable, "-c", XOR]
        done = subprocess.run(command, input=job, text=True, capture_output=True, check=True, env=env)
        right[lib] = np.mean((np.asarray(json.loads(done.stdout)) > 1e-4) == slow[150:])
    assert right[library] == 1 and right["/nowhere/libxgboost.so"] < 0.9


# ---- what a database changes -----------------------------------------------------------------------------------


def entry(what, **fields):
    base = {
        "lathe": 1,
        "entry": what,
        "target": host_target(),
        "threads": 1,
        "machine": "m",
        "lathe_version": "0",
        "made": 1700000000,
    }
    return json.dumps({**base, **fields})


def record_line(workload, base, candidate, seconds, base_seconds, uid="1"):
    return entry(
        "record",
        uid=uid,
        workload=workload,
        kind="plan",
        candidate=candidate,
        status="ok",
        note="",
        predicted=0,
        seconds=seconds,
        base=base,
        base_seconds=base_seconds,
    )


def plan_in(net, tmp_path, db, workload):
    out = tmp_path / "p.so"
    lathe_run("compile", net, "-o", out, "--weights", "ready", "--tuned", db, "--target", host_target())
    lines = [x for x in lathe_run("inspect", out, "--plans").stdout.splitlines() if x.startswith(workload)]
    return lines[0].split(" ", 1)[1].split("  #")[0]


def import_lines(tmp_path, *lines):
    db, file = tmp_path / "made.db", tmp_path / "lines.jsonl"
    db.unlink(missing_ok=True)
    file.write_text("\n".join(lines) + "\n")
    lathe_run("db", "import", db, file)
    return db


def test_a_record_serves_only_if_it_won(net, tmp_path):
    workload, taken, better = winner_line(net)
    slow, quick, near = [10e-6] * 5, [8e-6] * 5, [9.95e-6] * 5
    wild = [4e-6, 15e-6, 5e-6, 16e-6, 9e-6]
    won = import_lines(tmp_path, record_line(workload, taken, better, quick, slow))
    assert plan_in(net, tmp_path, won, workload) == better
    for seconds in (slow, near, wild):  # as fast, by less than a hundredth, by less than the spread
        lost = import_lines(tmp_path, record_line(workload, taken, better, seconds, slow))
        assert plan_in(net, tmp_path, lost, workload) == taken
    # measured again, the newer measurement counts
    both = import_lines(
        tmp_path,
        record_line(workload, taken, better, quick, slow, "1"),
        record_line(workload, taken, better, slow, slow, "2"),
    )
    assert plan_in(net, tmp_path, both, workload) == taken
    # a plan that this Lathe does not know is passed over, and so is another base
    for base, plan in ((taken, better.replace("{", "x{")), (taken, better.replace("=", "=9")), ("other{}", better)):
        db = import_lines(tmp_path, record_line(workload, base, plan, quick, slow))
        assert plan_in(net, tmp_path, db, workload) == taken


def test_python_builds_with_the_database(net, tmp_path):
    workload, taken, better = winner_line(net)
    db = import_lines(tmp_path, record_line(workload, taken, better, [8e-6] * 5, [10e-6] * 5))
    mod = lathe.parser.parse(NET)
    x = np.random.default_rng(0).standard_normal((1, 16, 14, 14)).astype("float32")

    def run(config):
        with lathe.transform.PassContext(opt_level=3, config=config):
            lib = relay.build(mod, target=host_target())
        g = graph_executor.GraphModule(lib["default"](lathe.cpu()))
        g.set_input("x", x)
        g.run()
        return g.get_output(0).numpy()

    np.testing.assert_allclose(run({"lathe.tuned.database": str(db)}), run({}), rtol=1e-3, atol=1e-3)
    with pytest.raises(lathe.error.LatheError, match="there is no database"):
        run({"lathe.tuned.database": str(tmp_path / "none.db")})


def test_python_tunes(tmp_path):
    mod, db = lathe.parser.parse(NET), tmp_path / "p.db"
    stages = []
    done = lathe.tuning.tune(mod, database=db, trials=2, threads=1, progress=lambda p: stages.append(p.stage))
    assert done.judged and done.trials >= 2 and done.speedup >= 1 and done.tasks == 2
    assert stages[0] == "profile" and stages[-1] == "done"
    assert len(lathe.tuning.Database(db).records("nn.conv2d")) == done.trials
    stopped = lathe.tuning.tune(mod, database=db, seconds=100, threads=1, progress=lambda p: p.stage == "measure")
    assert stopped.stopped and not stopped.judged

    def fail(_p):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        lathe.tuning.tune(mod, database=db, trials=2, progress=fail)
    with pytest.raises(lathe.error.ArgumentError, match="wants a limit"):
        lathe.tuning.tune(mod, database=db)
    tasks = lathe.tuning.extract_tasks(mod)
    assert [t.calls for t in tasks] == [1, 1] and all(t.base in dict(t.plans) for t in tasks)


# ---- faults --------------------------------------------------------------------------------------------------------


def start(net, db, *more):
    return subprocess.Popen(
        [PROGRAM, "tune", str(net), "--db", str(db), "--threads", "1", "--trials", "1000", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )


def wait_for_records(db, n, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        if db.exists():
            done = lathe_run("db", "export", db, ok=False)
            if done.returncode == 0 and len(done.stdout.splitlines()) >= n:
                return
        time.sleep(0.1)
    raise AssertionError("no records")


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_any_moment(net, tmp_path, kills):
    db = tmp_path / "t.db"
    rng = random.Random(os.environ.get("LATHE_SEED", "1"))
    kept = []
    for _ in range(kills):
        tuner = start(net, db, "--resume")
        time.sleep(rng.uniform(0.2, 1.5))
        tuner.kill()
        tuner.communicate()
        if not db.exists():
            continue
        now = [r["uid"] for r in records(db)]
        assert now[: len(kept)] == kept  # nothing that was recorded is lost
        kept = now
    tune(net, db, "--trials", 2, "--resume")
    assert [r["uid"] for r in records(db)][: len(kept)] == kept


def test_control_c_keeps_everything(net, tmp_path):
    db = tmp_path / "t.db"
    tuner = start(net, db)
    wait_for_records(db, 2)
    tuner.send_signal(signal.SIGINT)
    out, err = tuner.communicate(timeout=20)
    assert tuner.returncode == 130, out + err
    assert re.search(r"\d+ measurements are in '.*t.db'; the same command with --resume goes on", err)
    assert len(records(db)) >= 2


def test_two_tuners_share_a_database(net, tmp_path):
    db = tmp_path / "t.db"
    both = [
        subprocess.Popen(
            [PROGRAM, "tune", str(net), "--db", str(db), "--threads", "1", "--trials", "3"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for tuner in both:
        out, err = tuner.communicate(timeout=120)
        assert tuner.returncode == 0, out + err
    found = records(db)
    assert len([r for r in found if r["entry"] == "record"]) >= 6
    assert len([r for r in found if r["entry"] == "network"]) == 2


def test_full_disk(net, tmp_path):
    db = tmp_path / "t.db"
    tune(net, db, "--trials", 1)
    before = records(db)

    done = lathe_run("db", "merge", db, db, ok=False, preexec_fn=small_disk)
    assert done.returncode == 1 and "cannot be" in done.stderr and "t.db" in done.stderr
    assert records(db) == before


def test_a_disk_that_fills_up_while_tuning(net, tmp_path):
    db = tmp_path / "t.db"
    tune(net, db, "--trials", 1)
    before = records(db)

    done = tune(net, db, "--trials", 2, ok=False, preexec_fn=small_disk)
    assert done.returncode == 1 and "t.db' cannot be" in done.stderr, done.stderr
    assert records(db) == before


def test_a_damaged_database(net, tmp_path):
    db = tmp_path / "t.db"
    tune(net, db, "--trials", 1)
    data = bytearray(db.read_bytes())
    for i in range(4096, len(data)):
        data[i] = 0x5A
    db.write_bytes(data)
    for part in ("-wal", "-shm"):
        (tmp_path / f"t.db{part}").unlink(missing_ok=True)
    for command in (["tune", net, "--db", db, "--trials", 1], ["db", "list", db]):
        done = lathe_run(*command, ok=False)
        assert done.returncode == 1 and "t.db' is damaged" in done.stderr, done.stderr


def test_candidates_that_exhaust_memory_or_give_wrong_numbers():
    from lathe.script import tir as T

    @T.prim_func
    def good(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.block("B"):
                vi = T.axis.remap("S", [i])
                B[vi] = A[vi] + T.float32(1)

    @T.prim_func
    def wrong(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.block("B"):
                vi = T.axis.remap("S", [i])
                B[vi] = A[vi] + T.float32(2)

    @T.prim_func
    def greedy(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        C = T.alloc_buffer((1 << 40, 64), "float32")
        for i in range(64):
            with T.block("C"):
                vi = T.axis.remap("S", [i])
                C[vi * 17179869183, vi] = A[vi] + T.float32(1)
        for i in range(64):
            with T.block("B"):
                vi = T.axis.remap("S", [i])
                B[vi] = C[vi * 17179869183, vi]

    said = call("tune_measure", [good, wrong, greedy, good], good, None, 0.02, 30.0, 10.0, 1, False)
    assert [s[0] for s in said][:2] == ["ok", "wrong"] and said[3][0] == "ok"
    assert said[2][0] in ("crash", "error") and said[2][1]  # a sentence; and the one behind it is measured


def test_files_that_are_no_databases(net, tmp_path):
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"this is no database" * 300)
    for command in (
        ["tune", net, "--db", junk, "--trials", 1],
        ["db", "list", junk],
        ["compile", net, "-o", tmp_path / "x.so", "--tuned", junk],
    ):
        done = lathe_run(*command, ok=False)
        assert done.returncode == 1 and "junk.db' is no database" in done.stderr, done.stderr
    assert "there is no database" in lathe_run("db", "list", tmp_path / "none.db", ok=False).stderr


def test_without_sqlite(tmp_path):
    env = {**os.environ, "LATHE_SQLITE_LIBRARY": "/nowhere/libsqlite3.so"}
    done = lathe_run("db", "list", tmp_path / "t.db", ok=False, env=env)
    assert done.returncode == 1 and "libsqlite3.so.0 was not found: install it" in done.stderr


def test_lines_of_json(net, tmp_path):
    db, file = tmp_path / "a.db", tmp_path / "lines.jsonl"
    good = record_line("nn.conv2d-1", "a{}", "b{}", [1e-5] * 3, [2e-5] * 3)
    file.write_text("not json\n" + good + "\n{}\n\n" + good + "\n")
    said = lathe_run("db", "import", db, file).stdout
    assert "1 new, 1 known, 2 bad lines passed over (the first: line 1 is no JSON)" in said
    assert "2.00 times as fast" in lathe_run("db", "list", db).stdout
    assert json.loads(lathe_run("db", "show", db, "conv2d", "--json").stdout)["beats"] is True
    other = tmp_path / "b.db"
    assert "1 new" in lathe_run("db", "merge", other, db).stdout
    assert records(other) == records(db)
    assert "0 entries dropped" in lathe_run("db", "prune", db).stdout
    assert "no workload with 'dense'" in lathe_run("db", "show", db, "dense", ok=False).stderr
    assert lathe_run("db", "wash", db, ok=False).returncode == 2
    assert lathe_run("db", "merge", db, ok=False).returncode == 2
