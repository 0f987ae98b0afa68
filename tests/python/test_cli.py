"""The `lathe` program, as a person would call it."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

import lathe

ROOT = pathlib.Path(__file__).resolve().parents[2]
MATMUL = str(ROOT / "examples/matmul.py")
PROGRAM = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the lathe program was not built")


def run(*args, status=0):
    done = subprocess.run([str(PROGRAM), *args], text=True, capture_output=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_help_has_examples():
    assert "lower" in run("--help")
    for command in ("lower", "build", "compile", "run", "bench", "inspect", "opt", "ops", "targets"):
        assert f"  lathe {command}" in run(command, "--help").split("examples:")[1]
        assert run("help", command) == run(command, "--help")


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
    assert described["target"]["kind"] == "c" and described["target"]["device"] == "cpu"
    assert {"kind": "cuda", "device": "gpu", "codegen": "cuda"} in described["kinds"]


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
    out = run(
        "compile",
        DIGITS,
        "-o",
        str(tmp_path / "d.so"),
        "--shape",
        "pixels=1,1,8,8",
        "--time",
        "--dump-dir",
        str(tmp_path / "dump"),
        "--opt-level",
        "2",
    )
    assert "passes" in out and "code" in out and "wrote" in out and "weights" in out and "storage" in out
    stages = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert (
        stages[0] == "00_import.relay"
        and any("FuseOps" in s for s in stages)
        and any(s.endswith(".tir") for s in stages)
    )
    assert run("compile", DIGITS, "-o", str(tmp_path / "quiet.so"), "--shape", "pixels=1,1,8,8") == ""


def test_compile_other_forms(tmp_path):
    for end in (".o", ".a", ".c"):
        path = tmp_path / f"digits{end}"
        run("compile", DIGITS, "-o", str(path), "--shape", "pixels=1,1,8,8")
        assert path.stat().st_size > 1000 and "digits_run(" in (tmp_path / "digits.h").read_text()
    assert "target 'c'" in run("compile", DIGITS, "-o", str(path), "--target", "llvm", status=1)
    relay_text = tmp_path / "net.relay"
    relay_text.write_text("def @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }")
    run(
        "compile",
        str(relay_text),
        "-o",
        str(tmp_path / "net.so"),
        "--disabled-pass",
        "FuseOps,FoldConstant",
        "--config",
        "relay.FuseOps.max_depth=3",
        "--no-winograd",
    )
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


@pytest.mark.parametrize(
    "dtype,shown",
    [
        ("bool", "1 0 1"),
        ("float16", "1.5 -0 65504"),
        ("bfloat16", "1.5 -0 65536"),
        ("int4", "1 0 -8"),
        ("uint2", "1 0 3"),
        ("float8_e5m2", None),
    ],
)
def test_outputs_of_every_dtype(dtype, shown, tmp_path):
    """Shown as the numbers that they are, or said not to be; a bool is written as numpy's."""
    x, path, text = tmp_path / "x.npy", str(tmp_path / "m.so"), tmp_path / "m.relay"
    np.save(
        x, np.array([1.5, -0.0, 65504] if "float" in dtype else [1, 0, -8] if dtype == "int4" else [1, 0, 3], "float32")
    )
    text.write_text(f'def @main(%x: Tensor[(3), float32]) {{ cast(%x, dtype="{dtype}") }}\n')
    run("compile", str(text), "-o", path)
    lines = run("run", path, "--input", f"x={x}").splitlines()
    assert lines[0].endswith(f"{dtype} (3)") and (
        f"  first: {shown}" in lines if shown else f"  (numbers of dtype {dtype} are not shown)" in lines
    )
    if dtype in ("bool", "float16"):
        run("run", path, "--input", f"x={x}", "--output", str(tmp_path / "y.npy"))
        assert np.load(tmp_path / "y.npy").dtype == dtype


@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "int4", "uint2", "uint8", "float64"])
def test_inputs_of_every_dtype(dtype, tmp_path):
    """Filled with numbers where no file is given: bytes with any, other whole numbers with 0 and 1."""
    path, text = str(tmp_path / "m.so"), tmp_path / "m.relay"
    text.write_text(f'def @main(%x: Tensor[(50), {dtype}]) {{ cast(%x, dtype="float32") }}\n')
    run("compile", str(text), "-o", path)
    assert "min 1, max 1" in run("run", path, "--input", "x=ones")
    drawn = run("run", path, "--input", "x=random")
    if dtype == "uint8":
        low, high = map(int, re.search(r"min (\d+), max (\d+)", drawn).groups())
        assert low < 64 and 192 <= high <= 255
    else:
        assert "min 0, max 1" in drawn or "float" in dtype
    assert "median" in run("bench", path, "--repeat", "2")


def test_bench(digits, tmp_path):
    text = run("bench", digits, "--threads", "1,2", "--warmup", "1", "--repeat", "5")
    assert (
        text.startswith("1 thread: median ") and "\n2 threads: median " in text and "p90" in text and "(5 runs)" in text
    )
    table = run("bench", digits, "--threads", "1", "--repeat", "5", "--profile")
    assert "GFLOP/s" in table and "limits of this machine" in table and "conv2d" in table and "%" in table
    trace = tmp_path / "trace.json"
    rows = json.loads(
        run("bench", digits, "--threads", "1", "--repeat", "5", "--profile", "--json", "--trace", str(trace))
    )
    assert (
        len(rows) == 1 and rows[0]["runs"] == 5 and 0 < rows[0]["min_ms"] <= rows[0]["median_ms"] <= rows[0]["p90_ms"]
    )
    assert (
        abs(sum(n["share"] for n in rows[0]["nodes"]) - 1) < 1e-3
        and rows[0]["limit"]["gflops"] > 0
        and rows[0]["limit"]["gbytes"] > 0
    )
    assert all(n["of_limit"] >= 0 and n["ms"] >= 0 for n in rows[0]["nodes"])
    plans = run("inspect", digits, "--plans")
    foretold = {f"{n['predicted_ms'] * 1e3:.1f}" for n in rows[0]["nodes"] if "predicted_ms" in n}
    assert foretold and " predicted " in table and all(f"# {us} us predicted" in plans for us in foretold)
    events = json.loads(trace.read_text())
    assert len(events) == len(rows[0]["nodes"]) and all(e["ph"] == "X" and e["dur"] > 0 for e in events)
    assert json.loads(run("bench", DIGITS, "--shape", "pixels=1,1,8,8", "--repeat", "3", "--json"))[0]["runs"] == 3


def test_inspect(digits):
    text = run("inspect", DIGITS)
    assert (
        "Conv" in text
        and "BatchNormalization" in text
        and "pixels" in text
        and "(batch, 10)" in text
        and "weights: 15" in text
    )
    facts = json.loads(run("inspect", DIGITS, "--json"))
    assert facts["operators"]["Conv"] == 2 and facts["inputs"] == [
        {"name": "pixels", "type": "Tensor[(batch, 1, 8, 8), float32]"}
    ]
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
    foreign = {r["name"]: r["versions"] for r in json.loads(run("ops", "--onnx", "--json"))}
    assert {"Conv", "com.microsoft.Attention", "ai.onnx.ml.Scaler"} <= set(foreign)
    assert foreign["Reshape"] == [1, 5] and foreign["Slice"] == [1, 10]
    lines = run("ops", "--onnx").splitlines()
    assert len(lines) == len(foreign) and any(line.split() == ["Reshape", "version", "1,", "5"] for line in lines)


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
    assert lines[0] == "probabilities: float32 (3, 10)" and [
        i for i, line in enumerate(lines) if line.startswith(" row")
    ] == [1, 4, 7]
    run("run", path, "--input", "random", "--shape", "pixels=5,1,8,8", "--output", str(tmp_path / "o.npy"))
    assert np.load(tmp_path / "o.npy").shape == (5, 10)
    for n in (1, 4):
        assert "median" in run("bench", path, "--shape", f"pixels={n},1,8,8", "--repeat", "3")
    assert "(3 runs)" in run("bench", path, "--input", f"pixels={x}", "--repeat", "3")


def on_a_terminal(*args):
    """What the program writes when standard output and standard error are a terminal."""
    pty = pytest.importorskip("pty")
    try:
        main, side = pty.openpty()
    except OSError as e:
        pytest.skip(f"no terminal here: {e}")
    child = subprocess.Popen([str(PROGRAM), *args], stdout=side, stderr=side)
    os.close(side)
    seen = b""
    try:
        while chunk := os.read(main, 65536):
            seen += chunk
    except OSError:  # the other side was closed
        pass
    os.close(main)
    assert child.wait(60) == 0
    return seen.decode()


def test_a_terminal_sees_progress(tmp_path):
    """A line that is rewritten on a terminal and only grows, nothing of the kind in a pipe."""
    args = ["compile", DIGITS, "-o", str(tmp_path / "d.so"), "--shape", "pixels=1,1,8,8"]
    seen = on_a_terminal(*args)
    assert "FuseOps" in seen and "code" in seen and "wrote" in seen
    shown = [int(n) for n in re.findall(r"\] +(\d+)%", seen)]
    assert len(shown) > 10 and shown == sorted(shown) and shown[0] == 0 and shown[-1] == 100
    filled = [len(bar) for bar in re.findall(r"\[(#*)\.*\]", seen)]
    assert filled == sorted(filled)
    assert seen.endswith("MB)\r\n") and "weights" in seen.splitlines()[-1]
    piped = subprocess.run([str(PROGRAM), *args], capture_output=True, timeout=60)
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


@pytest.mark.parametrize("text, shapes, flops", [
    ("def @main(%x: Tensor[(n, 64), float32], %w: Tensor[(10, 64), float32]) { nn.dense(%x, %w) }",
     ["x=7,64"], 2 * 7 * 10 * 64),
    ("def @main(%a: Tensor[(b, n, k), float32], %b: Tensor[(b, m, k), float32]) { nn.batch_matmul(%a, %b) }",
     ["a=3,5,7", "b=3,11,7"], 2 * 3 * 5 * 7 * 11),
    ("def @main(%x: Tensor[(b, 4, h, w), float32], %w: Tensor[(8, 4, 3, 3), float32])"
     " { nn.relu(nn.conv2d(%x, %w, padding=[1, 1, 1, 1], kernel_size=[3, 3], channels=8)) }",
     ["x=2,4,9,6"], 2 * (2 * 8 * 9 * 6) * 4 * 9 + 2 * 8 * 9 * 6),
    ("def @main(%x: Tensor[(n, m), float32]) { nn.relu(add(%x, 1f)) }", ["x=6,5"], 2 * 6 * 5),
])
def test_profiles_count_the_sizes_of_the_run(text, shapes, flops, tmp_path):
    """Operations by hand, and as the same model with sizes that are known has them."""
    (tmp_path / "m.relay").write_text(text)
    run("compile", str(tmp_path / "m.relay"), "-o", str(tmp_path / "m.so"))
    options = [word for s in shapes for word in ("--shape", s)]
    bench = ["bench", str(tmp_path / "m.so"), *options, "--repeat", "2", "--threads", "1", "--profile"]
    rows = json.loads(run(*bench, "--json"))[0]["nodes"]
    counted = [n for n in rows if "layout" not in n["name"]]
    assert sum(n["flops"] for n in counted) == flops and all(n["gflops"] > 0 for n in counted)
    assert all(n["gbytes"] > 0 for n in rows)
    table = [line.split() for line in run(*bench).split(" node\n")[1].splitlines()]
    assert len(table) == len(rows) and all(float(row[3]) >= 0 for row in table)  # '-' would be: not known


# ---- what is written, and what it needs

EMPTY_PATH = {**os.environ, "PATH": "/nonexistent", "CC": ""}


@pytest.mark.parametrize("args, words", [
    (["compile", DIGITS, "-o", "x.so"], ["linker", "'ld' nor 'cc'", "apt install binutils", ".c"]),
    (["compile", DIGITS, "-o", "x.a"], ["linker", "apt install binutils"]),
    (["compile", DIGITS, "-o", "x.o", "--target", "c"], ["C compiler", "'cc'", "apt install gcc"]),
    (["build", MATMUL, "-o", "x.so"], ["linker", ".o, .s and .ll need none"]),
])
def test_missing_tools_are_said_before_compiling(args, words, tmp_path):
    """Before: not even the dump of the first stage is written."""
    command = [str(PROGRAM), *args, "--dump-dir", "stages"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60, cwd=tmp_path, env=EMPTY_PATH)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    for w in words:
        assert w in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_needs_no_tools(tmp_path):
    for args in (["compile", DIGITS, "-o", "d.c"], ["build", MATMUL, "-o", "m.o"], ["build", MATMUL, "-o", "m.s"]):
        done = subprocess.run([str(PROGRAM), *args], capture_output=True, timeout=60, cwd=tmp_path, env=EMPTY_PATH)
        assert done.returncode == 0 and (tmp_path / args[-1]).stat().st_size > 0, done.stderr


@pytest.mark.parametrize("command", [["compile", DIGITS], ["build", MATMUL]])
def test_the_output_is_checked_before_compiling(command, tmp_path):
    (tmp_path / "folder.so").mkdir()
    (tmp_path / "file").write_text("")
    for output, says in (("none/x.so", "the folder 'none' does not exist"), ("file/x.so", "'file' is no folder"),
                         ("folder.so", "it is a folder"), ("x.exe", "cannot tell from 'x.exe'")):
        done = subprocess.run([str(PROGRAM), *command, "-o", output, "--dump-dir", "stages"], text=True,
                              capture_output=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (tmp_path / "stages").exists()


def compilers():
    return [c for c in ("gcc", "clang") if shutil.which(c)]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A layer of 360 kB of weights as ONNX: more than C source has as text; an input, and what numpy makes of it."""
    onnx = pytest.importorskip("onnx")
    place, rng = tmp_path_factory.mktemp("large"), np.random.default_rng(7)
    w, x = rng.standard_normal((300, 300)).astype("float32"), rng.standard_normal((1, 300)).astype("float32")
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    graph = onnx.helper.make_graph([node("MatMul", ["x", "w"], ["z"]), node("Relu", ["z"], ["y"])], "net",
                                   [value("x", 1, [1, 300])], [value("y", 1, [1, 300])],
                                   [onnx.numpy_helper.from_array(w, "w")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(place / "net.onnx"))
    return place / "net.onnx", x, np.maximum(x.astype("float64") @ w, 0)


NET = """
#include <stdio.h>
#include "net.h"

int main(void)
{
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  float x[net_x_elements], y[net_y_elements];
  if (net_load(&model, &err) || lathe_rt_executor_new(model, &executor, &err)) return puts(err.text), 1;
  if (fread(x, sizeof x, 1, stdin) != 1 || net_run(executor, x, y, &err)) return 1;
  fwrite(y, sizeof y, 1, stdout);
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
"""


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("weights", [None, "text", "beside"])
def test_c_source_with_its_weights(compiler, weights, large, tmp_path):
    """By the line that the tool prints, from another folder than the source's."""
    onnx_path, x, expected = large
    place = tmp_path / "there"
    place.mkdir()
    shown = run("compile", str(onnx_path), "-o", str(place / "net.c"), "--time",
                *(["--weights", weights] if weights else []))
    beside = place / "net.c.weights"
    assert beside.exists() == (weights != "text")
    assert ((place / "net.c").stat().st_size > 500_000) == (weights == "text")
    if beside.exists():
        assert beside.stat().st_size == 4 * 300 * 300 // 64 * 64
    command = shown.split("link it with: ")[1].strip()
    assert command in (place / "net.h").read_text().replace("net.c", str(place / "net.c"))
    (tmp_path / "program.c").write_text(NET)
    build = PROGRAM.parent.resolve()
    flags = f"-I{ROOT}/include -I{place} -L{build} -llathe_rt -Wl,-rpath,{build} -o program"
    command = command.replace("$(pkg-config --cflags --libs lathe_rt)", flags)
    assert command.startswith("cc ") and "pkg-config" not in command
    done = subprocess.run(command.replace("cc ", f"{compiler} -Wall -Werror ", 1), shell=True, cwd=tmp_path, text=True,
                          capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([tmp_path / "program"], input=x.tobytes(), capture_output=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    got = np.frombuffer(ran.stdout, "float32").reshape(1, 300)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    reference = pytest.importorskip("onnxruntime").InferenceSession(str(onnx_path)).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compiler", compilers())
def test_weights_of_another_source_are_refused(compiler, large, tmp_path):
    run("compile", str(large[0]), "-o", str(tmp_path / "net.c"))
    data = (tmp_path / "net.c.weights").read_bytes()
    for content in (data[:-64], data + bytes(64), None):
        if content is None:
            (tmp_path / "net.c.weights").unlink()
        else:
            (tmp_path / "net.c.weights").write_bytes(content)
        done = subprocess.run([compiler, "-c", "net.c"], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode != 0 and not (tmp_path / "net.o").exists()


@pytest.mark.parametrize("compiler", compilers())
def test_c_source_needs_what_its_compiler_was_allowed(compiler, tmp_path):
    """The host's features are not stamped on code that does not use them."""
    run("compile", DIGITS, "-o", str(tmp_path / "d.c"), "--shape", "pixels=1,1,8,8")
    base = subprocess.run([compiler, "-dM", "-E", "-"], input="", text=True, capture_output=True, timeout=60).stdout
    arm, more = "__aarch64__" in base, "-march=armv8-a+lse" if "__aarch64__" in base else "-mavx2"
    for flags, needs in (([], "neon" if arm else ""), ([more], "neon,lse" if arm else "sse4.2,avx,avx2,popcnt")):
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", *flags, "d.c", "-lm", "-o", "d.so"], cwd=tmp_path,
                       check=True, timeout=120)
        features = json.loads(run("inspect", str(tmp_path / "d.so"), "--json"))["features"]
        assert features == needs


def test_code_through_cc_states_its_target(tmp_path):
    run("compile", DIGITS, "-o", str(tmp_path / "d.so"), "--target", "c", "--shape", "pixels=1,1,8,8")
    needs = json.loads(run("inspect", str(tmp_path / "d.so"), "--json"))["features"].split(",")
    machine = json.loads(run("targets", "--target", "c", "--json"))["target"]["features"].split(",")
    # vectors of the generated code have a fixed size: the compiler is not told of SVE
    assert set(needs) == {f[1:] for f in machine if f.startswith("+")} - {"sve"}


# ---- what files hold

def test_files_are_known_by_their_content(digits, tmp_path):
    for name in ("model.so.6", "model", "model.onnx"):
        shutil.copy(digits, tmp_path / name)
        assert "probabilities: float32" in run("run", str(tmp_path / name), "--input", "ones")
        assert "kernels:" in run("inspect", str(tmp_path / name))
    shutil.copy(DIGITS, tmp_path / "digits.model")
    assert "BatchNormalization" in run("inspect", str(tmp_path / "digits.model"))
    (tmp_path / "net.txt").write_text("def @main(%x: Tensor[(2), float32]) { nn.relu(%x) }")
    assert "float32 (2)" in run("run", str(tmp_path / "net.txt"), "--input", "ones")
    assert "is compiled already" in run("compile", digits, "-o", str(tmp_path / "x.so"), status=1)
    for command in ("inspect", "run", "opt", "lower"):
        assert "Is a directory" in run(command, str(tmp_path), status=1)
    run("compile", DIGITS, "-o", str(tmp_path / "d.o"))
    assert "linked into a program" in run("run", str(tmp_path / "d.o"), "--input", "ones", status=1)


OTHER = {"x86_64": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512",
         "aarch64": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"}


@pytest.mark.parametrize("arch", sorted(OTHER))
@pytest.mark.parametrize("ending", [".so", ".o", ".a"])
def test_inspect_reads_files_of_any_machine(arch, ending, tmp_path):
    path = tmp_path / f"d{ending}"
    done = subprocess.run([str(PROGRAM), "compile", DIGITS, "-o", str(path), "--target", OTHER[arch], "--shape",
                           "pixels=1,1,8,8"], text=True, capture_output=True, timeout=60)
    if "needs a linker" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    facts = json.loads(run("inspect", str(path), "--json"))
    assert facts["arch"] == arch and facts["target"] == OTHER[arch] and facts["nodes"] > 0
    assert ("avx512f" in facts["features"]) == (arch == "x86_64")
    assert ("dotprod" in facts["features"]) == (arch == "aarch64")
    assert facts["inputs"] == [{"name": "pixels", "type": "Tensor[(1, 1, 8, 8), float32]"}]
    assert sum(facts["implementations"].values()) == facts["nodes"]


def test_inspect_of_damaged_files_never_crashes(digits, tmp_path):
    """Every cut and many flipped bytes are read to the end or refused with a sentence."""
    data, rng = pathlib.Path(digits).read_bytes(), np.random.default_rng(3)
    path = tmp_path / "bad.so"
    cuts = [data[: int(n)] for n in np.linspace(0, len(data) - 1, 12)]
    for _ in range(28):
        changed = bytearray(data)
        for at in rng.integers(0, len(data), 8):
            changed[at] = rng.integers(0, 256)
        where = rng.choice([0, len(data) - 64 * 30])  # the header and the table of sections
        changed[where + rng.integers(0, 64)] = rng.integers(0, 256)
        cuts.append(bytes(changed))
    for content in cuts:
        path.write_bytes(content)
        done = subprocess.run([str(PROGRAM), "inspect", str(path)], capture_output=True, text=True, timeout=60,
                              errors="replace")
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        assert done.returncode == 0 or done.stderr.startswith("error: ")


# ---- names that are not there

@pytest.mark.parametrize("args, says", [
    (["opt", DIGITS, "--pass", "FuseOp"], "did you mean 'FuseOps'? 'lathe opt --list' shows all"),
    (["opt", DIGITS, "--pass", "Xyzzy"], "no pass 'Xyzzy'; 'lathe opt --list' shows all"),
    (["opt", DIGITS, "--config", "xyzzy=1"], "no config key 'xyzzy'; 'lathe opt --list' shows all"),
])
def test_names_of_passes_and_settings(args, says):
    assert says in run(*args, status=1)
    listed = json.loads(run("opt", "--list", "--json"))
    assert "FuseOps" in {p["name"] for p in listed["passes"]}
    assert "relay.FuseOps.max_depth" in {c["name"] for c in listed["config"]}
    text = run("opt", "--list")
    assert all(f"\n  {row['name']} " in text for row in listed["passes"] + listed["config"])


@pytest.mark.parametrize("args, says", [
    (["compil"], "did you mean 'compile'?"),
    (["help", "inspct"], "did you mean 'inspect'?"),
    (["compile", DIGITS, "--tarjet=c"], "did you mean '--target'?"),
    (["compile", DIGITS, "--time=3"], "takes no value"),
    (["compile", DIGITS, "-o"], "-o FILE"),
    (["compile", DIGITS, "-o", "x.so", "--weights", "text"], "for C source"),
    (["compile", DIGITS, "-o", "x.c", "--weights", "gold"], "text or beside"),
    (["run", "DIGITS", "--input", "pixels"], "pixels=random"),
    (["completion", "tcsh"], "bash, zsh and fish"),
])
def test_mistakes_of_the_command_line(args, says, digits):
    assert says in run(*(digits if a == "DIGITS" else a for a in args), status=2)


def test_an_unknown_onnx_operator_points_to_the_list(tmp_path):
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    for names in (["Xyzzy"], ["Xyzzy", "Plugh"]):
        nodes = [onnx.helper.make_node(n, ["x"], [n]) for n in names]
        graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, [2])], [value(names[-1], 1, [2])])
        onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.onnx"))
        said = run("inspect", str(tmp_path / "m.onnx"), status=1)
        assert "'lathe ops --onnx' lists" in said and all(n in said for n in names)


# ---- completion and the man page

def complete(*words):
    """What bash offers behind these words; the last one is unfinished."""
    line = " ".join(words)
    script = f"""
source <("{PROGRAM}" completion bash)
lathe() {{ "{PROGRAM}" "$@"; }}
COMP_WORDS=({' '.join(f"'{w}'" for w in words)})
COMP_CWORD={len(words) - 1}
COMP_LINE='{line}'
_lathe
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("words, offers", [
    (["lathe", "comp"], ["compile", "compare", "completion"]),
    (["lathe", "help", "insp"], ["inspect"]),
    (["lathe", "lower", "--fo"], ["--form"]),
    (["lathe", "lower", "--form", "c"], ["compact", "c", "cuda"]),
    (["lathe", "lower", "--form", "=", "asm"], ["asm"]),
    (["lathe", "compile", "examples/dig"], ["examples/digits"]),
    (["lathe", "compile", "--dump-dir", "exa"], ["examples"]),
    (["lathe", "opt", "--pass", "FuseO"], ["FuseOps"]),
    (["lathe", "compile", "--config", "relay.FuseOps.max_d"], ["relay.FuseOps.max_depth="]),
    (["lathe", "completion", ""], ["bash", "zsh", "fish"]),
    (["lathe", "bench", "--no-w"], ["--no-winograd"]),
])
def test_completion_in_bash(words, offers):
    assert complete(*words) == offers


def options_of(command):
    """By its help, those of `compile` that it takes too included."""
    text = run(command, "--help").split("examples:")[0]
    shared = re.findall(r"of 'lathe compile':\n(.*)", text)
    return set(re.findall(r"^  (--?[a-z-]+)", text, re.M)) | set(re.findall(r"--[a-z-]+", "".join(shared)))


def test_completions_and_the_page_hold_every_option():
    page, zsh, fish = run("man"), run("completion", "zsh"), run("completion", "fish")
    for command in re.findall(r"^  ([a-z]+) +[a-z]", run("--help").split("exit status")[0], re.M):
        options = options_of(command)
        offered = complete("lathe", command, "-")
        assert set(offered) == options | {"--help"} and len(offered) == len(set(offered))
        section = page.split(f".SS lathe {command}\n")[1].split("\n.S")[0].replace("\\-", "-")
        inside = zsh.split(f"\n    {command})\n")[1].split(";;")[0]
        for option in options:
            assert option in section, f"{command} {option} is not in the man page"
            assert re.search(rf"'\*?{option}[=+]?\[", inside), f"{command} {option} is not in zsh's completion"
            name = f"-l {option[2:]} " if option.startswith("--") else f"-s {option[1:]} "
            assert any(f"from {command}'" in line and name in line for line in fish.splitlines())
    assert zsh.startswith("#compdef lathe\n") and page.startswith(".TH LATHE 1")


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_the_man_page_has_no_faults(tmp_path):
    done = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-P-c"], input=run("man"), text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    shown = re.sub(r".\x08", "", done.stdout)
    assert "EXIT STATUS" in shown and "--external-data-root DIR" in shown and "lathe compile net.onnx -o net.c" in shown
