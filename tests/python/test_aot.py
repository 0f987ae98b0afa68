"""Programs ahead of time: C that needs no runtime, compiled by gcc and clang, against ONNX Runtime."""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import lathe
from lathe import error, relay
from lathe.relay.backend import Executor, Runtime
from lathe.runtime.executor import AotModule
from tflite_writer import Model

ort = pytest.importorskip("onnxruntime")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve()
LATHE = BUILD / "lathe"
DIGITS = ROOT / "examples/digits/digits.onnx"
COMPILERS = [c for c in ("gcc", "clang") if shutil.which(c)]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")


def sh(*args, **options):
    done = subprocess.run([str(a) for a in args], text=True, capture_output=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(*args):
    done = subprocess.run([str(a) for a in args], text=True, capture_output=True, timeout=300)
    assert done.returncode in (1, 2), done.stdout + done.stderr
    return done.stderr


def small_net():
    """Two convolutions of which one goes into a concatenation, a sum that is used twice, two outputs."""
    rng = np.random.default_rng(3)
    w = {
        "w1": rng.standard_normal((8, 3, 3, 3)) * 0.2,
        "b1": rng.standard_normal(8),
        "w2": rng.standard_normal((8, 8, 1, 1)) * 0.3,
        "w3": rng.standard_normal((16, 5)) * 0.3,
    }
    nodes = [
        oh.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], name="conv_a"),
        oh.make_node("Relu", ["c1"], ["r1"]),
        oh.make_node("Conv", ["r1", "w2"], ["c2"], name="conv_b"),
        oh.make_node("Concat", ["r1", "c2"], ["k"], axis=1),
        oh.make_node("GlobalAveragePool", ["k"], ["g"]),
        oh.make_node("Flatten", ["g"], ["f"]),
        oh.make_node("MatMul", ["f", "w3"], ["scores"]),
        oh.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
    ]
    graph = oh.make_graph(
        nodes,
        "net",
        [oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 12, 12))],
        [
            oh.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, (1, 5)),
            oh.make_tensor_value_info("best", onnx.TensorProto.INT64, (1,)),
        ],
        [onnx.numpy_helper.from_array(v.astype("float32"), k) for k, v in w.items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(small_net(), path)
    x = np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype("float32")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return path, x, session.run(None, {"x": x})


PROGRAM = """
#include <stdio.h>
#include "net.h"

int main(void)
{
  static float x[NET_X_ELEMENTS], scores[NET_SCORES_ELEMENTS];
  static int64_t best[NET_BEST_ELEMENTS];
  static uint64_t workspace[NET_WORKSPACE_BYTES / 8 + 1];
  if (fread(x, sizeof x, 1, stdin) != 1) return 1;
  net_run(x, scores, best, workspace);
  fwrite(scores, sizeof scores, 1, stdout);
  fwrite(best, sizeof best, 1, stdout);
  return 0;
}
"""


def check_program(folder, compiler, net, *flags, runner=()):
    path, x, want = net
    (folder / "program.c").write_text(PROGRAM)
    sh(compiler, *flags, "-o", folder / "program", folder / "program.c", folder / "net.c", "-lm")
    done = subprocess.run([*runner, str(folder / "program")], input=x.tobytes(), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    scores = np.frombuffer(done.stdout[:20], "float32").reshape(1, 5)
    np.testing.assert_allclose(scores, want[0], rtol=1e-4, atol=1e-5)
    assert np.frombuffer(done.stdout[20:], "int64")[0] == want[1][0]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", ["c", "cortex-m4", "riscv32", "c -mtriple=x86_64-linux-gnu -mcpu=haswell"])
def test_source_compiles_without_warnings_and_is_right(net, compiler, target, tmp_path):
    sh(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c", "--target", target)
    for more in ([], ["-O2"], ["-O2", "-ffreestanding"]):
        sh(compiler, *STRICT, *more, "-c", tmp_path / "net.c", "-o", tmp_path / "net.o")
    if "haswell" not in target or os.uname().machine == "x86_64":
        check_program(tmp_path, compiler, net, "-O2")


def test_nothing_is_written_but_what_the_caller_gives(net, tmp_path):
    sh(LATHE, "compile", net[0], "-f", "o", "-o", tmp_path / "net.o")
    symbols = sh("nm", tmp_path / "net.o").split("\n")
    kinds = {line.split()[-2] for line in symbols if line.strip()}
    assert not kinds & set("dDbBC"), symbols
    undefined = {line.split()[-1] for line in symbols if " U " in line}
    assert not undefined - {"memcpy", "memset", "expf", "sqrtf"}, undefined


@pytest.mark.parametrize("compiler", COMPILERS)
def test_sanitizers_find_nothing(net, compiler, tmp_path):
    sh(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c")
    check_program(tmp_path, compiler, net, "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_nothing_is_read_before_it_is_written(net, tmp_path):
    sh(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c", "--target", "c -mcpu=generic")
    program = PROGRAM.replace("#include <stdio.h>", "#include <stdio.h>\n#include <stdlib.h>").replace(
        "static uint64_t workspace[NET_WORKSPACE_BYTES / 8 + 1];", "uint64_t *workspace = malloc(NET_WORKSPACE_BYTES);"
    )
    folder = tmp_path
    (folder / "program.c").write_text(program.replace("return 0;", "free(workspace);\n  return 0;"))
    sh("gcc", "-g", "-O1", "-o", folder / "program", folder / "program.c", folder / "net.c", "-lm")
    out = subprocess.run(["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", str(folder / "program")],
                         input=net[1].tobytes(), capture_output=True, timeout=300)  # fmt: skip
    assert out.returncode == 0, out.stderr.decode()
    np.testing.assert_allclose(np.frombuffer(out.stdout[:20], "float32"), net[2][0][0], rtol=1e-4, atol=1e-5)


THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "net.h"

static float x[2][NET_X_ELEMENTS], scores[2][NET_SCORES_ELEMENTS];
static int64_t best[2][NET_BEST_ELEMENTS];
static uint64_t workspace[2][NET_WORKSPACE_BYTES / 8 + 1];

static void *runs(void *arg)
{
  int k = (int)(intptr_t)arg;
  for (int i = 0; i < 200; i++) {
    float before[NET_SCORES_ELEMENTS];
    memcpy(before, scores[k], sizeof before);
    net_run(x[k], scores[k], best[k], workspace[k]);
    if (i && memcmp(before, scores[k], sizeof before)) return arg ? arg : (void *)7;
  }
  return 0;
}

int main(void)
{
  pthread_t t;
  void *said;
  if (fread(x, sizeof x, 1, stdin) != 1) return 1;
  pthread_create(&t, 0, runs, (void *)1);
  if (runs(0)) return 2;
  pthread_join(t, &said);
  if (said) return 3;
  fwrite(scores, sizeof scores, 1, stdout);
  return 0;
}
"""


def test_two_instances_run_at_once(net, tmp_path):
    path, x, want = net
    sh(LATHE, "compile", path, "-f", "a", "-o", tmp_path / "net.a")
    (tmp_path / "program.c").write_text(THREADS)
    sh(COMPILERS[0], "-O1", "-o", tmp_path / "program", tmp_path / "program.c", tmp_path / "net.a", "-lm", "-lpthread")
    other = np.ones_like(x)
    done = subprocess.run([str(tmp_path / "program")], input=x.tobytes() + other.tobytes(), capture_output=True)
    assert done.returncode == 0
    got = np.frombuffer(done.stdout, "float32").reshape(2, 1, 5)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], session.run(["scores"], {"x": other})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_header_is_fit_for_cpp(net, tmp_path):
    sh(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c")
    (tmp_path / "use.cc").write_text('#define NET_STATIC_WORKSPACE\n#include "net.h"\nvoid f(float *x, float *s, int64_t *b) { net_run_static(x, s, b); }\n')
    sh("g++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", tmp_path / "use.cc", "-o", tmp_path / "use.o")


def test_inputs_and_outputs_in_the_workspace(net, tmp_path):
    path, x, want = net
    sh(LATHE, "compile", path, "-f", "c", "-o", tmp_path / "net.c", "--io", "workspace")
    (tmp_path / "program.c").write_text("""
#include <stdio.h>
#include "net.h"
int main(void)
{
  static union { uint64_t align; char bytes[NET_WORKSPACE_BYTES]; } w;
  if (fread(w.bytes + NET_X_OFFSET, 4, NET_X_ELEMENTS, stdin) != NET_X_ELEMENTS) return 1;
  net_run(&w);
  fwrite(w.bytes + NET_SCORES_OFFSET, 4, NET_SCORES_ELEMENTS, stdout);
  fwrite(w.bytes + NET_BEST_OFFSET, 8, NET_BEST_ELEMENTS, stdout);
  return 0;
}
""")
    sh(COMPILERS[0], *STRICT, "-O2", "-o", tmp_path / "program", tmp_path / "program.c", tmp_path / "net.c", "-lm")
    done = subprocess.run([str(tmp_path / "program")], input=x.tobytes(), capture_output=True)
    np.testing.assert_allclose(np.frombuffer(done.stdout[:20], "float32"), want[0][0], rtol=1e-4, atol=1e-5)
    assert np.frombuffer(done.stdout[20:], "int64")[0] == want[1][0]


def test_weights_beside_the_source(net, tmp_path):
    sh(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c", "--weights", "beside")
    assert (tmp_path / "net.c.weights").stat().st_size >= 4 * (8 * 27 + 8 + 64 + 80)
    check_program(tmp_path, COMPILERS[0], net, "-O2")


# ---- what it costs --------------------------------------------------------------------------------------------------


def test_report_adds_up(net):
    report = json.loads(sh(LATHE, "inspect", net[0], "--cost", "--json"))
    entry = report["entries"][0]
    assert entry["io_bytes"] == 4 * 3 * 12 * 12 + 4 * 5 + 8
    assert entry["ram_bytes"] == entry["io_bytes"] + entry["workspace_bytes"]
    assert entry["bound_bytes"] <= entry["workspace_bytes"] <= entry["greedy_by_size_bytes"]
    macs = {r["name"]: r["macs"] for r in entry["layers"]}
    assert sum(macs.values()) >= 8 * 27 * 144 + 64 * 144 + 80
    assert [m for n, m in macs.items() if n.startswith("conv_a")] == [8 * 27 * 144]
    assert any("output" in a for a in entry["tensors"])  # an output is written straight into the caller's array
    for a in entry["tensors"]:
        if "pool" in a:
            assert a["pool"] == 0 and a["offset"] + a["bytes"] <= entry["workspace_bytes"]
    live = max(r["live_bytes"] for r in entry["layers"])
    assert live <= entry["bound_bytes"]


def test_the_header_says_how_bytes_are_meant(tmp_path):
    """Scale and zero point of a quantized model's inputs and outputs."""
    m = Model()
    x, y = m.input("x", (1, 8), "int8", scale=0.5, zero=3), m.tensor("y", (1, 8), "int8", scale=0.25, zero=-7)
    m.op("RELU", [x], [y])
    m.output(y)
    (tmp_path / "net.tflite").write_bytes(m.bytes())
    sh(LATHE, "compile", tmp_path / "net.tflite", "-f", "c", "-o", tmp_path / "net.c")
    header = (tmp_path / "net.h").read_text()
    assert "stands for 0.5 * (element - 3)" in header and "stands for 0.25 * (element - -7)" in header
    (tmp_path / "program.c").write_text(
        '#define NET_STATIC_WORKSPACE\n#include "net.h"\nint main(void)\n{\n'
        "  int8_t x[8] = {3 + 6, 3 - 6}, y[8];\n  net_run_static(x, y);\n"
        "  return (y[0] - NET_Y_ZERO_POINT) * NET_Y_SCALE == (x[0] - NET_X_ZERO_POINT) * NET_X_SCALE &&\n"
        "                 y[1] == NET_Y_ZERO_POINT && NET_X_SCALE == 0.5 && NET_Y_ZERO_POINT == -7\n"
        "             ? 0 : 1;\n}\n"
    )
    sh("cc", tmp_path / "program.c", tmp_path / "net.c", "-o", tmp_path / "program")
    sh(tmp_path / "program")
    cost = json.loads(sh(LATHE, "inspect", tmp_path / "net.tflite", "--cost", "--json"))["entries"][0]
    assert (cost["inputs"][0]["scale"], cost["inputs"][0]["zero_point"]) == (0.5, 3)
    assert (cost["outputs"][0]["scale"], cost["outputs"][0]["zero_point"]) == (0.25, -7)


def test_the_cost_of_a_source_that_is_there(net, tmp_path):
    """From NAME.c and NAME.h alone: what the report of the model said."""
    report = json.loads(sh(LATHE, "inspect", net[0], "--cost", "--json"))
    sh(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c")
    said = json.loads(sh(LATHE, "inspect", tmp_path / "net.c", "--json"))
    assert said["workspace_bytes"] == said["NET_WORKSPACE_BYTES"] == report["entries"][0]["workspace_bytes"]
    assert said["code_bytes"] + said["constant_bytes"] == report["code_bytes"] + report["weights_bytes"]
    assert said["stack_bytes"] == report["stack_bytes"]
    text = sh(LATHE, "inspect", tmp_path / "net.c")
    assert f"flash: code {said['code_bytes']:>27}" in text and "NET_WORKSPACE_BYTES" in text
    (tmp_path / "other.c").write_text("int main(void) { return 0; }\n")
    assert "no program ahead of time of Lathe's" in refused(LATHE, "inspect", tmp_path / "other.c")
    (tmp_path / "net.h").unlink()
    assert "with its header beside it" in refused(LATHE, "inspect", tmp_path / "net.c")


def test_picture(net, tmp_path):
    text = sh(LATHE, "inspect", net[0], "--target", "cortex-m4", "--svg", tmp_path / "memory.svg")
    assert "MACs" in text and "█" in text
    svg = (tmp_path / "memory.svg").read_text()
    assert svg.startswith("<svg") and "conv_a" in svg and svg.count("<rect") > 3


def test_limits_are_kept(net, tmp_path):
    said = refused(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c", "--ram-limit", "4k")
    assert "more than the limit of 4096" in said and "alive at the peak" in said and "conv" in said
    said = refused(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.c", "--pool", "sram=2k")
    assert "do not fit into the pools sram of 2048 bytes" in said
    assert "open" not in said and not (tmp_path / "net.c").exists()


def test_pools(net, tmp_path):
    path, x, want = net
    sh(LATHE, "compile", path, "-f", "c", "-o", tmp_path / "net.c", "--pool", "sram=6k", "--pool", "psram=64k")
    header = (tmp_path / "net.h").read_text()
    sizes = dict(line.split()[1:] for line in header.split("\n") if "RAM_BYTES" in line and line.startswith("#define"))
    assert 0 < int(sizes["NET_SRAM_BYTES"]) <= 6 * 1024 and 0 < int(sizes["NET_PSRAM_BYTES"]) <= 64 * 1024
    program = PROGRAM.replace("uint64_t workspace[NET_WORKSPACE_BYTES / 8 + 1]", "uint64_t sram[NET_SRAM_BYTES / 8 + 1], psram[NET_PSRAM_BYTES / 8 + 1]")
    (tmp_path / "program.c").write_text(program.replace("best, workspace", "best, sram, psram"))
    sh(COMPILERS[0], "-O2", "-fsanitize=address", "-o", tmp_path / "program", tmp_path / "program.c", tmp_path / "net.c", "-lm")
    done = subprocess.run([str(tmp_path / "program")], input=x.tobytes(), capture_output=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.frombuffer(done.stdout[:20], "float32"), want[0][0], rtol=1e-4, atol=1e-5)


def test_a_microcontroller_loads_no_library(net, tmp_path):
    said = refused(LATHE, "compile", net[0], "--target", "cortex-m4", "-o", tmp_path / "net.so")
    assert "nothing on target 'c -mcpu=cortex-m4' would load" in said and "-f c, -f a, -f o or -f mlf" in said
    assert not (tmp_path / "net.so").exists()


def test_pools_with_speeds(net, tmp_path):
    """What is moved most lies in the faster pool, whichever is named first."""
    args = [LATHE, "inspect", net[0], "--target", "cortex-m4", "--json"]
    moved = {}
    for order in (("slow=64k:1", "fast=6k:8/4"), ("fast=6k:8/4", "slow=64k:1")):
        entry = json.loads(sh(*args, "--pool", order[0], "--pool", order[1]))["entries"][0]
        pools = {row["name"]: row for row in entry["moved"]}
        moved[order[0]] = pools
        for name, (read, write) in {"fast": (8, 4), "slow": (1, 1)}.items():
            cycles = pools[name]["read_bytes"] / read + pools[name]["written_bytes"] / write
            assert abs(pools[name]["cycles"] - cycles) <= 1
    assert moved["slow=64k:1"] == moved["fast=6k:8/4"]
    plain = json.loads(sh(*args, "--pool", "slow=64k", "--pool", "fast=6k"))["entries"][0]
    assert "moved" not in plain
    alike = json.loads(sh(*args, "--pool", "slow=64k:1", "--pool", "fast=6k:1"))["entries"][0]["moved"]
    total = sum(row["read_bytes"] + row["written_bytes"] for row in alike)
    assert total == sum(row["read_bytes"] + row["written_bytes"] for row in pools.values())
    assert sum(row["cycles"] for row in pools.values()) < total / 2
    said = refused(*args, "--pool", "slow=64k:1", "--pool", "fast=6k")
    assert "pool 'slow' has a speed and pool 'fast' has none" in said
    assert "NAME=SIZE:SPEED" in refused(*args, "--pool", "sram=64k:fast")


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_open_sizes_are_refused(tmp_path):
    said = refused(LATHE, "compile", DIGITS, "-f", "c", "-o", tmp_path / "digits.c")
    assert "input 'pixels'" in said and "--shape pixels=" in said


REFUSED = {
    "a loop or a call|a branch": """
def @main(%x: Tensor[(4), float32], %c: bool) { if (%c) { exp(%x) } else { negative(%x) } }""",
    "a size in|allocates": """
def @main(%x: Tensor[(4), float32]) { argwhere(%x) }""",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_allocation_is_refused(what):
    with pytest.raises(error.UnsupportedError) as e:
        relay.build(relay.parse(REFUSED[what]), "c", executor=Executor("aot"))
    assert any(w in str(e.value) for w in what.split("|")) and "compile for the runtime" in str(e.value)


def test_wrong_use_gets_a_sentence(net, tmp_path):
    assert "ends in .c" in refused(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "net.o")
    assert "unknown CPU" in refused(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "n.c", "--target", "cortex-m99")
    assert "programs ahead of time" in refused(LATHE, "compile", net[0], "-o", tmp_path / "n.so", "--ram-limit", "64k")
    assert "NAME=SIZE" in refused(LATHE, "compile", net[0], "-f", "c", "-o", tmp_path / "n.c", "--pool", "sram")


# ---- Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["c", "llvm", "c -mcpu=generic"])
@pytest.mark.parametrize(
    "options", [{"interface-api": "c", "unpacked-api": True}, {"interface-api": "packed"}, {"workspace-io": True}]
)
def test_relay_build(net, target, options):
    path, x, want = net
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    lib = relay.build(mod, target, params=params, executor=Executor("aot", options), runtime=Runtime("crt"))
    m = AotModule(lib["default"](lathe.cpu(0)))
    m.set_input("x", x)
    m.run()
    np.testing.assert_allclose(m.get_output(0).numpy(), want[0], rtol=1e-4, atol=1e-5)
    assert m.get_output(1).numpy()[0] == want[1][0]
    second = AotModule(lib["default"](lathe.cpu(0)))
    second.run(x=np.zeros_like(x))
    np.testing.assert_allclose(m.get_output(0).numpy(), want[0], rtol=1e-4, atol=1e-5)


def test_tvms_interfaces(net):
    path, x, want = net
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    scores, best = np.zeros(5, "float32"), np.zeros(1, "int64")
    lib = relay.build(mod, "c", params=params, executor=Executor("aot", {"interface-api": "c", "unpacked-api": True}))
    assert "struct tvmgen_default_inputs" in lib.get_source("h")
    ins, outs = (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 2)(scores.ctypes.data, best.ctypes.data)
    assert lib.load().tvmgen_default_run(ins, outs) == 0
    np.testing.assert_allclose(scores, want[0][0], rtol=1e-4, atol=1e-5)
    assert best[0] == want[1][0]

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                    ("dtype", ctypes.c_uint32), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                    ("offset", ctypes.c_uint64)]  # fmt: skip

    scores[:], best[:] = 0, -1
    lib = relay.build(mod, "c", params=params, executor=Executor("aot", {"interface-api": "packed"}))
    tensors = [Tensor(data=a.ctypes.data) for a in (x, scores, best)]
    args = (ctypes.c_void_p * 3)(*[ctypes.addressof(t) for t in tensors])
    assert lib.load().tvmgen_default_run(args, None, 3, None, None, None) == 0
    np.testing.assert_allclose(scores, want[0][0], rtol=1e-4, atol=1e-5)
    assert best[0] == want[1][0]
    assert lib.load().tvmgen_default_run(args, None, 2, None, None, None) != 0


def test_pools_from_python(net):
    path, x, want = net
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    pools = lathe.WorkspaceMemoryPools([
        lathe.WorkspacePoolInfo("fast", None, lathe.PoolInfoProperties(size_hint_bytes=6144)),
        lathe.WorkspacePoolInfo("slow"),
    ])  # fmt: skip
    aot = Executor("aot", {"interface-api": "c", "unpacked-api": True})
    lib = relay.build(mod, "c", params=params, executor=aot, workspace_memory_pools=pools)
    assert [p["name"] for p in lib.report["pools"]] == ["fast", "slow"] and lib.report["pools"][0]["bytes"] <= 6144
    assert "struct tvmgen_default_workspace_pools" in lib.get_source("h")
    m = AotModule(lib["default"](lathe.cpu(0)))
    m.run(x=x)
    np.testing.assert_allclose(m.get_output(0).numpy(), want[0], rtol=1e-4, atol=1e-5)
    assert "moved" not in lib.report["entries"][0]
    pools = lathe.WorkspaceMemoryPools([
        lathe.WorkspacePoolInfo("slow", None, lathe.PoolInfoProperties(None, 100, 4, 2, read_latency_cycles=3)),
        lathe.WorkspacePoolInfo("fast", None, lathe.PoolInfoProperties(6144, 400, 8)),
    ])  # fmt: skip
    lib = relay.build(mod, "c", params=params, executor=aot, workspace_memory_pools=pools)
    slow, fast = lib.report["entries"][0]["moved"]
    # a byte of the slow pool: 1/4 and 3/4 of its own cycles, which are four of the fast one's
    assert abs(slow["cycles"] - 4 * (slow["read_bytes"] * (1 / 4 + 3 / 4) + slow["written_bytes"] / 2)) <= 1
    assert abs(fast["cycles"] - (fast["read_bytes"] + fast["written_bytes"]) / 8) <= 1 and fast["read_bytes"] > 0
    flash = lathe.ConstantMemoryPools([lathe.ConstantPoolInfo("flash", None, None, lathe.PoolInfoProperties(100))])
    with pytest.raises(error.UnsupportedError, match="more than the pools"):
        relay.build(mod, "c", params=params, executor=aot, constant_memory_pools=flash)


def test_model_library_format(net, tmp_path):
    path, x, want = net
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    lib = relay.build(mod, "c", params=params, executor=Executor("aot"), runtime=Runtime("crt"), mod_name="net")
    lathe.micro.export_model_library_format(lib, tmp_path / "net.tar")
    again = tmp_path / "again"
    again.mkdir()
    lathe.micro.export_model_library_format(lib, again / "net.tar")
    assert (again / "net.tar").read_bytes() == (tmp_path / "net.tar").read_bytes()
    with tarfile.open(tmp_path / "net.tar") as tar:
        names = {n.lstrip("./") for n in tar.getnames()}
        tar.extractall(tmp_path / "mlf", filter="data") if sys.version_info >= (3, 12) else tar.extractall(tmp_path / "mlf")
    assert {"metadata.json", "README.md", "codegen/host/src/net.c", "codegen/host/include/net.h", "parameters/net.params",
            "src/net.relay"} <= names  # fmt: skip
    meta = json.loads((tmp_path / "mlf/metadata.json").read_text())["modules"]["net"]
    assert meta["executors"] == ["aot"] and meta["memory"]["functions"]["main"][0]["workspace_size_bytes"] > 0
    stored = lathe.runtime.load_param_dict((tmp_path / "mlf/parameters/net.params").read_bytes())
    assert sum(v.size for v in stored.values()) >= 8 * 27 + 8 + 64 + 80
    (tmp_path / "program.c").write_text(PROGRAM)
    host = tmp_path / "mlf/codegen/host"
    sh(COMPILERS[0], "-O2", f"-I{host / 'include'}", "-o", tmp_path / "program", tmp_path / "program.c", host / "src/net.c", "-lm")
    done = subprocess.run([str(tmp_path / "program")], input=x.tobytes(), capture_output=True)
    np.testing.assert_allclose(np.frombuffer(done.stdout[:20], "float32"), want[0][0], rtol=1e-4, atol=1e-5)


def test_options_are_checked():
    mod = relay.parse("def @main(%x: Tensor[(4), float32]) { exp(%x) }")
    with pytest.raises(error.LatheError, match="unpacked-api=True"):
        relay.build(mod, "c", executor=Executor("aot", {"interface-api": "c"}))
    with pytest.raises(error.LatheError, match="no option 'interface'"):
        relay.build(mod, "c", executor=Executor("aot", {"interface": "c"}))
    with pytest.raises(error.LatheError, match="goes with Executor"):
        relay.build(mod, "llvm", runtime=Runtime("crt"))


VARIETY = [
    "def @main(%x: Tensor[(4), float32]) { (%x, %x, exp(%x)) }",  # an input as an output, twice
    "def @main(%x: Tensor[(2, 3), float32]) { let %y = exp(%x); (%y, reshape(%y, newshape=[3, 2]), %y) }",
    "def @main(%x: Tensor[(2, 3), int8]) { (cast(%x, dtype=\"float32\"), less(%x, negative(%x))) }",
    "def @main(%x: Tensor[(5, 6), float64]) { (sum(%x, axis=[1]), tanh(%x)) }",
    "def @main(%x: Tensor[(2, 8), float32]) { let %s = split(%x, indices_or_sections=2, axis=1); (concatenate((exp(%s.0), %s.1), axis=0), %s.1) }",
    "def @main(%x: Tensor[(3, 4), float16]) { add(%x, exp(%x)) }",
    "def @main(%x: Tensor[(0, 4), float32]) { exp(%x) }",
    "def @main(%x: Tensor[(3, 4), float32]) { (sort(%x, axis=1), nn.softmax(%x)) }",
]


@pytest.mark.parametrize("text", VARIETY)
@pytest.mark.parametrize("inside", [False, True])
def test_against_the_interpreter(text, inside):
    mod = relay.parse(text)
    p = relay.transform.InferType()(mod)["main"].params[0].type_annotation
    x = (np.random.default_rng(5).standard_normal([int(d) for d in p.shape]) * 3).astype(p.dtype)
    want = relay.create_executor("debug", mod).evaluate()(x)
    want = want if isinstance(want, list) else [want]
    lib = relay.build(mod, "c", executor=Executor("aot", {"workspace-io": inside}))
    m = AotModule(lib["default"]())
    m.run(x=x)
    assert m.get_num_outputs() == len(want)
    for i, w in enumerate(want):
        np.testing.assert_allclose(m.get_output(i).numpy().astype("float64"), w.numpy().astype("float64"), rtol=2e-3 if p.dtype == "float16" else 1e-5, atol=1e-6)
