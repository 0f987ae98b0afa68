"""Projects for microcontrollers: built by the GNU tools, run in QEMU, against the host and ONNX Runtime."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import onnx
import pytest

import lathe
from lathe import error, relay
from lathe.relay.backend import Executor

from test_aot import LATHE, net, refused, sh  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT / "../shared")) / "models/trained/tflite"

BOARDS = [
    ("cortex-m0plus", "mps2-an385"),
    ("cortex-m3", "mps2-an385"),
    ("cortex-m4", "mps2-an386"),
    ("cortex-m7", "mps2-an500"),
    ("cortex-m33", "mps2-an505"),
    ("cortex-m55", "mps3-an547"),
    ("riscv32", "riscv32-virt"),
]


def need_tools(board):
    tools = ["riscv64-unknown-elf-gcc", "qemu-system-riscv32"] if "riscv" in board else ["arm-none-eabi-gcc", "qemu-system-arm"]
    for tool in [*tools, "make"]:
        if not shutil.which(tool):
            pytest.skip(f"needs {tool} (tools/setup micro)")


@pytest.mark.parametrize("target, board", BOARDS)
def test_boards(net, target, board, tmp_path):  # noqa: F811
    need_tools(board)
    path, x, want = net
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    lib = relay.build(mod, target, params=params, executor=Executor("aot", {"interface-api": "plain"}), mod_name="net")
    project = lathe.micro.generate_project(lib, tmp_path, board, {"x": x})
    said = project.measure()
    np.testing.assert_allclose(said.outputs[0], want[0], rtol=1e-4, atol=1e-5)
    assert said.outputs[1][0] == want[1][0] and said.agrees
    assert [name for name, _ in said.layers] == [layer["name"] for layer in lib.report["entries"][0]["layers"]]
    assert all(n > 0 for _, n in said.layers)
    cycles = sum(layer["cycles"] for layer in lib.report["entries"][0]["layers"])  # predicted, of what was counted
    assert 0.5 < cycles / sum(n for _, n in said.layers) < 2, "an instruction is about a cycle"
    size = project.size()
    assert size["data"] == 0
    assert size["text"] > 500 and size["rodata"] >= lib.report["weights_bytes"] and 0 < size["stack"] < 4096


def test_expected_outputs_of_other_shapes(net, tmp_path):  # noqa: F811
    mod, params = relay.frontend.from_onnx(onnx.load(net[0]))
    lib = relay.build(mod, "cortex-m4", params=params, executor=Executor("aot"), mod_name="net")
    with pytest.raises(error.ArgumentError, match="the outputs are .* other arrays were given"):
        lathe.micro.generate_project(lib, tmp_path, "mps2-an386", outputs=[np.zeros(3, "float32")])


def test_the_largest_processor_is_compiled_for(net, tmp_path):  # noqa: F811
    need_tools("mps3-an547")
    sh(LATHE, "compile", net[0], "-f", "o", "-o", tmp_path / "net.o", "--target", "cortex-m85")
    assert (tmp_path / "net.o").stat().st_size > 1000
    assert "no board" in refused(LATHE, "micro", "new", net[0], "-o", tmp_path / "p", "--target", "cortex-m85")


def test_projects_are_for_their_board(net, tmp_path):  # noqa: F811
    mod, params = relay.frontend.from_onnx(onnx.load(net[0]))
    lib = relay.build(mod, "cortex-m4", params=params, executor=Executor("aot"), mod_name="net")
    with pytest.raises(error.LatheError, match="mps2-an500 has a cortex-m7"):
        lathe.micro.generate_project(lib, tmp_path, "mps2-an500")
    with pytest.raises(error.LatheError, match="there is no board 'uno'"):
        lathe.micro.generate_project(lib, tmp_path, "uno")
    with pytest.raises(error.LatheError, match="no input 'y'"):
        lathe.micro.generate_project(lib, tmp_path, "mps2-an386", {"y": np.zeros(3)})


def test_command_line(net, tmp_path):  # noqa: F811
    need_tools("mps2-an386")
    project = tmp_path / "p"
    np.save(tmp_path / "x.npy", net[1])
    said = sh(LATHE, "micro", "new", net[0], "-o", project, "--board", "mps2-an386", "--input", f"x={tmp_path}/x.npy")
    assert "cortex-m4" in said
    assert sh(LATHE, "micro", "build", project).strip() == f"{project}/net.elf"
    table = sh(LATHE, "micro", "run", project)
    assert "conv_a" in table and "output 0 agrees with the host's" in table and "bit for bit" in table
    found = json.loads(sh(LATHE, "micro", "run", project, "--json"))
    assert found["instructions"] == sum(layer["instructions"] for layer in found["layers"]) > 10000
    assert [o["agrees"] for o in found["outputs"]] == [True, True]
    sizes = json.loads(sh(LATHE, "micro", "size", project, "--json"))
    assert sizes["code"] > 500 and sizes["written"] == 0
    scores = np.frombuffer(bytes.fromhex((project / "run.txt").read_text().split("output 0 ")[1].split()[0]), "float32")
    np.testing.assert_allclose(scores, net[2][0][0], rtol=1e-4, atol=1e-5)
    text = (project / "vectors.h").read_text()
    at = text.index("expected1[] __attribute__((aligned(8))) = {") + len("expected1[] __attribute__((aligned(8))) = {")
    (project / "vectors.h").write_text(text[:at] + " 4 +" + text[at:])
    assert "differs" in subprocess.run([str(LATHE), "micro", "run", str(project)], text=True, capture_output=True).stdout


def test_bad_use(net, tmp_path):  # noqa: F811
    assert "where to?" in refused(LATHE, "micro", "new", net[0])
    assert "can new, build" in refused(LATHE, "micro", "erase", tmp_path)
    assert "is no bare-metal project" in refused(LATHE, "micro", "build", tmp_path)
    assert "no board 'uno'" in refused(LATHE, "micro", "new", net[0], "-o", tmp_path / "p", "--board", "uno")
    assert "no layout 'keil'" in refused(LATHE, "micro", "new", net[0], "-o", tmp_path / "p", "--layout", "keil")
    said = refused(LATHE, "micro", "new", net[0], "-o", tmp_path / "p", "--ram-limit", "4k")
    assert "more than the limit of 4096" in said and not (tmp_path / "p").exists()
    sh(LATHE, "micro", "new", net[0], "-o", tmp_path / "q")
    done = subprocess.run([str(LATHE), "micro", "run", str(tmp_path / "q")], text=True, capture_output=True, env={"PATH": ""})
    assert done.returncode == 1 and "apt install" in done.stderr


ARDUINO = """
#include <cstdint>
#include <cstdio>
struct Port {
  void begin(long) {}
  explicit operator bool() const { return true; }
  void print(const char *s) { fputs(s, stdout); }
  void println(const char *s) { puts(s); }
};
static Port Serial;
static inline unsigned long micros() { return 0; }
"""
ZEPHYR = """
#include <stdint.h>
#include <stdio.h>
#define printk printf
static inline uint32_t k_cycle_get_32(void) { return 0; }
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_other_layouts(net, tmp_path):  # noqa: F811
    """Their sources, compiled here over the few functions of the platform that they call, give the right outputs."""
    stand_ins = tmp_path / "include/zephyr/sys"
    stand_ins.mkdir(parents=True)
    (tmp_path / "include/Arduino.h").write_text(ARDUINO)
    (stand_ins.parent / "kernel.h").write_text(ZEPHYR)
    (stand_ins / "printk.h").write_text("")
    for layout in ("zephyr", "arduino", "platformio"):
        p = tmp_path / layout
        sh(LATHE, "micro", "new", net[0], "-o", p, "--layout", layout, "--target", "cortex-m7")
        include = ["-I", tmp_path / "include", "-I", p / "src", "-I", p / "model", "-I", p]
        program = tmp_path / f"{layout}.cpp"
        if layout == "zephyr":
            main = ["-xc", p / "src/main.c"]
            assert "find_package(Zephyr" in (p / "CMakeLists.txt").read_text()
        else:
            sketch = p / ("arduino.ino" if layout == "arduino" else "src/main.cpp")
            program.write_text(sketch.read_text() + "\nint main() { setup(); loop(); }\n")
            main = ["-xc++", program]
        sources = [*p.rglob("check.c"), *p.rglob("net.c")]
        objects = []
        for source in sources:
            objects.append(tmp_path / f"{layout}_{source.stem}.o")
            hook = ["-include", p / "src/layer.h"] if layout == "zephyr" and source.stem == "net" else []
            sh("gcc", "-Wall", "-Wextra", "-Werror", *include, *hook, "-c", source, "-o", objects[-1])
        sh("g++" if layout != "zephyr" else "gcc", "-Wall", *include, *main, "-xnone", *objects, "-lm", "-o", tmp_path / "program")
        said = sh(tmp_path / "program")
        assert "the outputs are right" in said and "check 0 agrees" in said, said


# ---- products of bytes ------------------------------------------------------------------------------------------------


def bytes_net(channels, groups, kernel, strides, dtype, kernel_zero, seed=0):
    """A convolution of bytes, its rescaling, a pool and a product, in qnn's operators."""
    rng = np.random.default_rng(seed)
    kind, zero = (np.int8, -128) if dtype == "int8" else (np.uint8, 0)
    out = channels if groups > 1 else 8
    const = lambda v, t: relay.const(np.array(v, t))  # noqa: E731
    x = relay.var("x", shape=(1, channels, 12, 11), dtype=dtype)
    w = rng.integers(*((-127, 128) if dtype == "int8" else (0, 256)), (out, channels // groups, *kernel)).astype(kind)
    y = relay.qnn.op.conv2d(x, relay.const(w), const(zero, "int32"), const(kernel_zero, "int32"), const(0.05, "float32"),
                            const(0.02, "float32"), kernel_size=kernel, channels=out, strides=strides, padding=(1, 1, 2, 1),
                            groups=groups, out_dtype="int32")  # fmt: skip
    y = relay.nn.bias_add(y, relay.const(rng.integers(-500, 500, out).astype("int32")))
    y = relay.qnn.op.requantize(y, const(0.001, "float32"), const(0, "int32"), const(0.11, "float32"), const(zero, "int32"), out_dtype=dtype)
    y = relay.nn.batch_flatten(y)
    n = int(np.prod([int(d) for d in relay.transform.InferType()(lathe.IRModule.from_expr(y))["main"].ret_type.shape]))
    w2 = rng.integers(-127, 128, (8, n)).astype("int8")
    z = relay.qnn.op.dense(y, relay.const(w2), const(zero, "int32"), const(0, "int32"), const(0.11, "float32"), const(0.02, "float32"), 8)
    z = relay.qnn.op.requantize(z, const(0.0022, "float32"), const(0, "int32"), const(9.0, "float32"), const(3, "int32"), out_dtype="int8")
    data = rng.integers(*((-128, 128) if dtype == "int8" else (0, 256)), (1, channels, 12, 11)).astype(kind)
    return lathe.IRModule.from_expr(relay.Function([x], z)), data


CONVOLUTIONS = [
    (4, 1, (3, 3), (1, 1), "int8", 0),  # words as they are
    (3, 1, (3, 3), (2, 2), "int8", 0),  # columns become channels: nine, in three words
    (1, 1, (5, 4), (2, 2), "int8", 0),  # four columns: one word
    (3, 1, (3, 2), (1, 1), "uint8", 7),  # a weight with a zero point
    (8, 8, (3, 3), (1, 1), "int8", 0),  # depthwise, zero at -128: bytes of uint8
    (8, 8, (3, 3), (2, 1), "uint8", 9),  # depthwise with a zero point: weights of 16 bits
]
WIDE = [  # for vectors of sixteen bytes, and of eight
    (16, 1, (3, 3), (1, 1), "int8", 0),
    (32, 1, (1, 1), (2, 2), "int8", 0),
    (8, 1, (1, 3), (1, 1), "int8", 0),
    (16, 16, (3, 3), (1, 2), "int8", 0),
]


def check_bytes(case, target, board, instruction, folder):
    """The program gives what the graph's interpreter gives: in C on this machine, and by the instruction in QEMU."""
    mod, data = bytes_net(*case)
    want = relay.create_executor("debug", mod=mod).evaluate()(data).numpy()
    assert len(np.unique(want)) > 3 and np.abs(want.astype(int)).min() < 127
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target, executor=Executor("aot", {"interface-api": "plain"}), mod_name="net")
    assert instruction in lib.get_source()
    here = lathe.runtime.executor.AotModule(lib["net"]())
    here.run(x=data)
    np.testing.assert_array_equal(here.get_output(0).numpy(), want)
    if shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"):
        said = lathe.micro.generate_project(lib, folder, board, {"x": data}).measure()
        np.testing.assert_array_equal(said.outputs[0], want)
        assert said.agrees


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_products_of_bytes(case, tmp_path):
    check_bytes(case, "cortex-m4", "mps2-an386", "smlad", tmp_path)


@pytest.mark.parametrize("case", [*CONVOLUTIONS, *WIDE], ids=str)
def test_products_of_vectors(case, tmp_path):
    """Helium: products of whole vectors, and what is made of the sums four at a time."""
    check_bytes(case, "cortex-m55", "mps3-an547", "vmladavaq", tmp_path)


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_source_with_vectors_is_clean(compiler, tmp_path):
    """Without a warning, with Helium and without it."""
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    mod, _ = bytes_net(3, 1, (3, 3), (1, 1), "int8", 0)
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "cortex-m55", executor=Executor("aot", {"interface-api": "plain"}), mod_name="net")
    (tmp_path / "net.c").write_text(lib.get_source("c"))
    (tmp_path / "net.h").write_text(lib.get_source("h"))
    cpus = ["-mcpu=cortex-m4", "-mcpu=cortex-m55"] if "arm" in compiler else ["-O1"]
    for cpu in cpus:
        sh(compiler, cpu, "-std=c99", "-ffreestanding", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
           *(["-mthumb", "-mfloat-abi=hard", "-mfpu=auto"] if "arm" in compiler else []),
           "-c", tmp_path / "net.c", "-o", tmp_path / "net.o")  # fmt: skip


def test_rounding_four_at_a_time(tmp_path):
    """Rescaling at its corners: halves of either sign, the largest and smallest sums, shifts of 0 and of many bits."""
    need_tools("mps3-an547")
    x = relay.var("x", shape=(1, 16), dtype="int8")
    w = np.zeros((8, 16), "int8")
    w[:, 0] = [1, -1, 127, -127, 64, -64, 3, 5]
    bias = np.array([0, 0, 2**31 - 20000, 20000 - 2**31, 32, -32, 1, -1], "int32")
    factor = np.array([2**30, 2**30, 2**30, 2**30 + 1, 2**30, 2**30, 2**31 - 1, 2**30 + 7], "int32")
    shift = np.array([31, 32, 54, 54, 36, 36, 31, 33], "int32")
    const = lambda v, t: relay.const(np.array(v, t))  # noqa: E731
    none, one = const(0, "int32"), const(1.0, "float32")
    y = relay.qnn.op.dense(x, relay.const(w), none, none, one, one, 8)
    y = relay.nn.bias_add(y, relay.const(bias))
    y = relay.qnn.op.contrib_multiply_shift(y, relay.const(factor), relay.const(shift), rounding="DOUBLE", least=31)
    y = relay.cast(relay.clip(y, -128, 127), "int8")
    mod = lathe.IRModule.from_expr(relay.Function([x], y))
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "cortex-m55", executor=Executor("aot", {"interface-api": "plain"}), mod_name="net")
    assert "vqrdmulhq_s32" in lib.get_source() and "vrshlq_s32" in lib.get_source()
    project = None
    for value in (-128, -3, -1, 1, 3, 127):
        data = np.zeros((1, 16), "int8")
        data[0, 0] = value
        want = relay.create_executor("debug", mod=mod).evaluate()(data).numpy()
        here = lathe.runtime.executor.AotModule(lib["net"]())
        here.run(x=data)
        np.testing.assert_array_equal(here.get_output(0).numpy(), want)
        if value in (-3, 3):
            project = lathe.micro.generate_project(lib, tmp_path / str(value), "mps3-an547", {"x": data})
            np.testing.assert_array_equal(project.run()[0], want)


def test_columns_as_channels():
    """nn.contrib_columns against its definition, in numpy."""
    x = np.arange(2 * 3 * 2 * 7, dtype="float32").reshape(2, 3, 2, 7)
    v = relay.var("x", shape=x.shape)
    call = relay.op.nn.contrib_columns(v, layout="NCHW", columns=3, stride=2, dilation=1, multiple=4)
    got = relay.create_executor("graph", mod=lathe.IRModule.from_expr(relay.Function([v], call))).evaluate()(x).numpy()
    want = np.zeros((2, 12, 2, 3), "float32")
    for k in range(3):
        want[:, 3 * k : 3 * k + 3] = x[:, :, :, k : k + 5 : 2]
    np.testing.assert_array_equal(got, want)


NETWORKS = ["hello_world_int8", "micro_speech_quantized", "ad01_int8", "kws_ref_model"]
RUNS = [(network, *BOARDS[i]) for network in NETWORKS for i in (0, 2, 5, 6)]
RUNS.append(("pretrainedResnet_quant", *BOARDS[5]))  # residual additions four at a time


@pytest.mark.skipif(not MODELS.exists(), reason="the trained models are not here")
@pytest.mark.parametrize("network, target, board", RUNS)
def test_networks(network, target, board, tmp_path):
    """Networks of TFLite give the host's bytes."""
    need_tools(board)
    sh(LATHE, "micro", "new", MODELS / f"{network}.tflite", "-o", tmp_path / "p", "--target", target)
    said = json.loads(sh(LATHE, "micro", "run", tmp_path / "p", "--json"))
    assert said["outputs"] == [{"agrees": True, "different_bytes": 0}]
    cost = json.loads(sh(LATHE, "inspect", MODELS / f"{network}.tflite", "--target", target, "--json"))
    cycles = sum(layer["cycles"] for layer in cost["entries"][0]["layers"])
    assert 0.8 < cycles / said["instructions"] < 2, "an instruction is about a cycle"


@pytest.mark.skipif(not MODELS.exists(), reason="the trained models are not here")
def test_little_ram():
    """Keyword spotting and image classification take what lies between two layers at the worst one, and little more."""
    for network, most in (("kws_ref_model", 16256), ("pretrainedResnet_quant", 51456)):
        said = sh(LATHE, "inspect", MODELS / f"{network}.tflite", "--target", "cortex-m4", "--io", "workspace", "--json")
        assert json.loads(said)["entries"][0]["ram_bytes"] <= most


def test_glue_is_small(net, tmp_path):  # noqa: F811
    """What is neither a kernel nor a weight: the function that calls them, and copies."""
    need_tools("mps2-an386")
    sh(LATHE, "compile", net[0], "-f", "o", "-o", tmp_path / "net.o", "--target", "cortex-m4")
    rows = [line.split() for line in sh("arm-none-eabi-nm", "-S", tmp_path / "net.o").splitlines()]
    functions = {row[3]: int(row[1], 16) for row in rows if len(row) == 4 and row[2] in "tT"}
    glue = {name: size for name, size in functions.items() if name == "net_run" or name.startswith("copy_bytes")}
    assert "net_run" in glue and len(functions) > len(glue)
    assert sum(glue.values()) < 4096
