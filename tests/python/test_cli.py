"""The `lathe` program, as a person would call it."""
import json
import os
import pathlib
import subprocess

import numpy as np
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
    for command in ("lower", "build", "compile", "run", "bench", "inspect", "opt", "ops", "targets"):
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


# ---- models

DIGITS = str(ROOT / "examples/digits/digits.onnx")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "digits.so"
    run("compile", DIGITS, "-o", str(path), "--shape", "pixels=1,1,8,8")
    return str(path)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    held = np.load(ROOT / "examples/digits/held_back.npz")
    path = tmp_path_factory.mktemp("image") / "digit.npy"
    np.save(path, (held["images"][0] / 16).astype("float32").reshape(1, 1, 8, 8))
    return str(path), int(held["labels"][0])


def test_compile_says_where_the_time_went(tmp_path):
    out = run("compile", DIGITS, "-o", str(tmp_path / "d.so"), "--shape", "pixels=1,1,8,8", "--time", "--dump-dir", str(tmp_path / "dump"), "--opt-level", "2")
    assert "passes" in out and "code" in out and "wrote" in out and "weights" in out and "storage" in out
    stages = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert stages[0] == "00_import.relay" and any("FuseOps" in s for s in stages) and any(s.endswith(".tir") for s in stages)
    assert run("compile", DIGITS, "-o", str(tmp_path / "quiet.so"), "--shape", "pixels=1,1,8,8") == ""


def test_compile_other_forms(tmp_path):
    for end in (".o", ".a", ".c"):
        path = tmp_path / f"digits{end}"
        run("compile", DIGITS, "-o", str(path), "--shape", "pixels=1,1,8,8")
        assert path.stat().st_size > 1000 and "digits_run(" in (tmp_path / "digits.h").read_text()
    assert "target 'c'" in run("compile", DIGITS, "-o", str(path), "--target", "llvm", status=1)
    relay_text = tmp_path / "net.relay"
    relay_text.write_text("def @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }")
    run("compile", str(relay_text), "-o", str(tmp_path / "net.so"), "--disabled-pass", "FuseOps,FoldConstant", "--config", "relay.FuseOps.max_depth=3", "--no-winograd")
    assert "x: " not in run("run", str(tmp_path / "net.so"), "--input", "ones")


def test_run(digits, image, tmp_path):
    path, label = image
    lines = run("run", digits, "--input", f"pixels={path}", "--top", "3").splitlines()
    assert lines[0] == "probabilities: float32 (1, 10)" and int(lines[1].split()[0]) == label and len(lines) == 4
    run("run", digits, "--input", path, "--output", str(tmp_path / "o.npz"))
    run("run", digits, "--input", path, "--output", str(tmp_path / "o.npy"), "--threads", "1")
    stored = np.load(tmp_path / "o.npz")["probabilities"]
    np.testing.assert_array_equal(stored, np.load(tmp_path / "o.npy"))
    assert stored.argmax() == label and abs(stored.sum() - 1) < 1e-5
    np.savez(tmp_path / "in.npz", pixels=np.load(path), other=np.zeros(3))
    run("run", digits, "--input", str(tmp_path / "in.npz"), "--output", str(tmp_path / "p.npz"))
    np.testing.assert_array_equal(np.load(tmp_path / "p.npz")["probabilities"], stored)
    first, second = (run("run", digits, "--input", "pixels=random") for _ in range(2))
    assert first == second and "mean 0.1" in first
    assert "probabilities" in run("run", DIGITS, "--input", "ones", "--shape", "pixels=2,1,8,8", "--top", "1")


@pytest.mark.parametrize("dtype,shown", [("bool", "1 0 1"), ("float16", "1.5 -0 65504"), ("bfloat16", "1.5 -0 65536"), ("int4", "1 0 -8"), ("uint2", "1 0 3"), ("float8_e5m2", None)])
def test_outputs_of_every_dtype(dtype, shown, tmp_path):
    """Shown as the numbers that they are, or said not to be; a bool is written as numpy's."""
    x, path, text = tmp_path / "x.npy", str(tmp_path / "m.so"), tmp_path / "m.relay"
    np.save(x, np.array([1.5, -0.0, 65504] if "float" in dtype else [1, 0, -8] if dtype == "int4" else [1, 0, 3], "float32"))
    text.write_text(f'def @main(%x: Tensor[(3), float32]) {{ cast(%x, dtype="{dtype}") }}\n')
    run("compile", str(text), "-o", path)
    lines = run("run", path, "--input", f"x={x}").splitlines()
    assert lines[0].endswith(f"{dtype} (3)") and (f"  first: {shown}" in lines if shown else f"  (numbers of dtype {dtype} are not shown)" in lines)
    if dtype in ("bool", "float16"):
        run("run", path, "--input", f"x={x}", "--output", str(tmp_path / "y.npy"))
        assert np.load(tmp_path / "y.npy").dtype == dtype


@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "int4", "uint2", "uint8", "float64"])
def test_inputs_of_every_dtype(dtype, tmp_path):
    """Filled with numbers where no file is given."""
    path, text = str(tmp_path / "m.so"), tmp_path / "m.relay"
    text.write_text(f'def @main(%x: Tensor[(50), {dtype}]) {{ cast(%x, dtype="float32") }}\n')
    run("compile", str(text), "-o", path)
    assert "min 1, max 1" in run("run", path, "--input", "x=ones")
    assert "min 0, max 1" in run("run", path, "--input", "x=random") or "float" in dtype
    assert "median" in run("bench", path, "--repeat", "2")


def test_bench(digits, tmp_path):
    text = run("bench", digits, "--threads", "1,2", "--warmup", "1", "--repeat", "5")
    assert text.startswith("1 thread: median ") and "\n2 threads: median " in text and "p90" in text and "(5 runs)" in text
    table = run("bench", digits, "--threads", "1", "--repeat", "5", "--profile")
    assert "GFLOP/s" in table and "limits of this machine" in table and "conv2d" in table and "%" in table
    trace = tmp_path / "trace.json"
    rows = json.loads(run("bench", digits, "--threads", "1", "--repeat", "5", "--profile", "--json", "--trace", str(trace)))
    assert len(rows) == 1 and rows[0]["runs"] == 5 and 0 < rows[0]["min_ms"] <= rows[0]["median_ms"] <= rows[0]["p90_ms"]
    assert abs(sum(n["share"] for n in rows[0]["nodes"]) - 1) < 1e-3 and rows[0]["limit"]["gflops"] > 0 and rows[0]["limit"]["gbytes"] > 0
    assert all(n["of_limit"] >= 0 and n["ms"] >= 0 for n in rows[0]["nodes"])
    events = json.loads(trace.read_text())
    assert len(events) == len(rows[0]["nodes"]) and all(e["ph"] == "X" and e["dur"] > 0 for e in events)
    assert json.loads(run("bench", DIGITS, "--shape", "pixels=1,1,8,8", "--repeat", "3", "--json"))[0]["runs"] == 3


def test_inspect(digits):
    text = run("inspect", DIGITS)
    assert "Conv" in text and "BatchNormalization" in text and "pixels" in text and "(batch, 10)" in text and "weights: 15" in text
    facts = json.loads(run("inspect", DIGITS, "--json"))
    assert facts["operators"]["Conv"] == 2 and facts["inputs"] == [{"name": "pixels", "type": "Tensor[(batch, 1, 8, 8), float32]"}]
    text = run("inspect", digits)
    assert "kernels:" in text and "storage:" in text and "features:" in text
    facts = json.loads(run("inspect", digits, "--json"))
    assert sum(facts["implementations"].values()) == facts["nodes"] and "conv2d" in " ".join(facts["implementations"])
    assert facts["nodes"] > 0 and facts["storage_bytes"] >= facts["storage_bound"] > 0 and not facts["dynamic"]
    assert facts["outputs"] == [{"name": "probabilities", "type": "Tensor[(1, 10), float32]"}]


def test_opt(tmp_path):
    source = tmp_path / "net.relay"
    source.write_text("def @main(%x: Tensor[(2), float32]) { nn.relu(add(%x, add(1f, 2f))) }")
    assert "3f" in run("opt", str(source), "--pass", "FoldConstant")
    fused = run("opt", str(source), "--pass", "FoldConstant,FuseOps")
    assert "Primitive=1" in fused
    out = tmp_path / "out.relay"
    run("opt", str(source), "--opt-level", "3", "-o", str(out))
    assert "Primitive=1" in out.read_text() and lathe.relay.parse(out.read_text())["main"].params
    done = subprocess.run([str(PROGRAM), "opt", DIGITS, "--time"], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0 and "FuseOps" in done.stderr and " ms" in done.stderr


def test_ops():
    rows = {r["name"]: r for r in json.loads(run("ops", "--json"))}
    assert len(rows) >= 250 and [a["name"] for a in rows["nn.conv2d"]["attributes"]][:2] == ["strides", "padding"]
    assert rows["add"]["args"] == "lhs, rhs" and all(r["doc"] for r in rows.values())
    text = run("ops")
    assert len(text.splitlines()) == len(rows) and "nn.conv2d " in text
    assert {"Conv", "com.microsoft.Attention", "ai.onnx.ml.Scaler"} <= set(run("ops", "--onnx").split()) and "Conv" in json.loads(run("ops", "--onnx", "--json"))


@pytest.mark.parametrize(
    "args, status, words",
    [
        (["compile", DIGITS], 2, ["-o FILE"]),
        (["compile", "missing.onnx", "-o", "x.so"], 1, ["missing.onnx"]),
        (["compile", DIGITS, "-o", "x.exe"], 1, ["x.exe"]),
        (["compile", DIGITS, "-o", "/nonexistent/x.so", "--shape", "pixels=1,1,8,8"], 1, ["/nonexistent/x.so"]),
        (["compile", DIGITS, "-o", "x.so", "--opt-level", "7"], 2, ["--opt-level", "7"]),
        (["compile", DIGITS, "-o", "x.so", "--shape", "pixels=1,a"], 2, ["--shape", "pixels=1,a"]),
        (["compile", DIGITS, "-o", "x.so", "--shape", "pixel=1,1,8,8"], 1, ["pixel"]),
        (["compile", DIGITS, "-o", "x.so", "--shape", "pixels=1,2,8,8"], 1, ["pixels"]),
        (["compile", DIGITS, "-o", "x.so", "--disabled-pass", "FuseOp"], 1, ["FuseOps"]),
        (["compile", DIGITS, "-o", "x.so", "--config", "relay.FuseOps.max_dept=3"], 1, ["relay.FuseOps.max_depth"]),
        (["compile", DIGITS, "-o", "x.so", "--config", "novalue"], 2, ["KEY=VALUE"]),
        (["compile", DIGITS, "-o", "x.so", "--target", "gameboy"], 1, ["gameboy"]),
        (["compile", DIGITS, "-o", "x.so", "--nonsense"], 2, ["--nonsense", "lathe compile --help"]),
        (["run"], 2, ["which file"]),
        (["run", "missing.so", "--input", "ones"], 1, ["missing.so"]),
        (["run", "DIGITS"], 2, ["--input pixels=FILE.npy"]),
        (["run", "DIGITS", "--input", "other=ones"], 1, ["no input 'other'"]),
        (["run", "DIGITS", "--input", "pixels=missing.npy"], 1, ["missing.npy"]),
        (["run", "DIGITS", "--input", "ones", "--top", "x"], 2, ["--top"]),
        (["run", "DIGITS", "--input", "ones", "--output", "o.txt"], 2, [".npz"]),
        (["bench", "DIGITS", "--repeat", "0"], 2, ["--repeat"]),
        (["bench", "DIGITS", "--threads", "two"], 2, ["--threads"]),
        (["inspect", MATMUL], 1, ["matmul.py"]),
        (["opt", DIGITS, "--pass", "Fuse"], 1, ["Fuse"]),
        (["ops", "extra"], 2, ["extra"]),
        (["frobnicate"], 2, ["frobnicate"]),
    ],
)
def test_mistakes_get_a_sentence_and_a_status(args, status, words, digits, tmp_path):
    args = [digits if a == "DIGITS" else a for a in args]
    done = subprocess.run([str(PROGRAM), *args], text=True, capture_output=True, timeout=60, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("error: ") or "usage" in done.stderr
    for w in words:
        assert w in done.stderr
    assert not list(tmp_path.glob("x.*"))


def test_output_that_does_not_arrive_is_an_error(digits):
    for args in (["ops"], ["run", digits, "--input", "random"], ["inspect", DIGITS, "--json"], ["compile", "--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(PROGRAM), *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1 and "standard output" in done.stderr


def test_sizes_left_open(tmp_path):
    """Compiled without --shape, run and measured with it, or with a file."""
    path, x = str(tmp_path / "open.so"), tmp_path / "x.npy"
    run("compile", DIGITS, "-o", path)
    assert "allocated while it runs" in run("inspect", path) and json.loads(run("inspect", path, "--json"))["dynamic"]
    for command in ("run", "bench"):
        assert "--shape pixels=" in run(command, path, "--input", "random", status=1)
        assert "no input 'pixel'" in run(command, path, "--input", "random", "--shape", "pixel=1,1,8,8", status=1)
    np.save(x, np.random.default_rng(0).random((3, 1, 8, 8)).astype("float32"))
    lines = run("run", path, "--input", f"pixels={x}", "--top", "2").splitlines()
    assert lines[0] == "probabilities: float32 (3, 10)" and [i for i, line in enumerate(lines) if line.startswith(" row")] == [1, 4, 7]
    run("run", path, "--input", "random", "--shape", "pixels=5,1,8,8", "--output", str(tmp_path / "o.npy"))
    assert np.load(tmp_path / "o.npy").shape == (5, 10)
    for n in (1, 4):
        assert "median" in run("bench", path, "--shape", f"pixels={n},1,8,8", "--repeat", "3")
    assert "(3 runs)" in run("bench", path, "--input", f"pixels={x}", "--repeat", "3")


def test_a_terminal_sees_progress(tmp_path):
    """A line that is rewritten on a terminal, nothing of the kind in a pipe."""
    pty = pytest.importorskip("pty")
    try:
        main, side = pty.openpty()
    except OSError as e:
        pytest.skip(f"no terminal here: {e}")
    args = [str(PROGRAM), "compile", DIGITS, "-o", str(tmp_path / "d.so"), "--shape", "pixels=1,1,8,8"]
    child = subprocess.Popen(args, stdout=side, stderr=side)
    os.close(side)
    seen = b""
    try:
        while chunk := os.read(main, 65536):
            seen += chunk
    except OSError:  # the other side was closed
        pass
    os.close(main)
    assert child.wait(60) == 0
    assert b"FuseOps" in seen and b"code" in seen and b"] " in seen and b"wrote" in seen
    piped = subprocess.run(args, capture_output=True, timeout=60)
    assert piped.returncode == 0 and piped.stdout == piped.stderr == b""


def test_damaged_files_are_refused(digits, tmp_path):
    data = pathlib.Path(digits).read_bytes()
    for name, content in (("empty.so", b""), ("short.so", data[: len(data) // 2]), ("text.so", b"not a library")):
        (tmp_path / name).write_bytes(content)
        assert name in run("inspect", str(tmp_path / name), status=1)
    (tmp_path / "broken.onnx").write_bytes(pathlib.Path(DIGITS).read_bytes()[:500])
    run("inspect", str(tmp_path / "broken.onnx"), status=1)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff")
    assert "bad.npy" in run("run", digits, "--input", f"pixels={tmp_path / 'bad.npy'}", status=1)
    np.save(tmp_path / "shape.npy", np.zeros((1, 1, 4, 4), "float32"))
    assert "pixels" in run("run", digits, "--input", f"pixels={tmp_path / 'shape.npy'}", status=1)
