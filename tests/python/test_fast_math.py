"""Reduced precision on request: what is asked for is what is computed, within the stated error, or it is refused."""

import os
import pathlib
import platform
import re
import subprocess

import numpy as np
import pytest

import lathe
from lathe import error, relay
from lathe.contrib import graph_executor

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits"
PROGRAM = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")) / "lathe"
SAPPHIRE_RAPIDS = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
ZEN4 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"
NEOVERSE_N1 = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
NEOVERSE_N2 = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n2"
BOUND = {"bf16": 1e-2, "fp16": 1e-2}  # of the largest output, as docs/performance.md states


def const(rng, *shape):
    return relay.const((rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))


def residual_network(rng):
    """A strided stem, a residual block, a depthwise and a 1x1 convolution, a dense layer."""
    x = relay.var("x", shape=(1, 3, 24, 24))
    stem = relay.nn.relu(
        relay.nn.conv2d(x, const(rng, 32, 3, 3, 3), strides=(2, 2), padding=(1, 1), kernel_size=(3, 3), channels=32)
    )
    a = relay.nn.relu(
        relay.nn.conv2d(stem, const(rng, 64, 32, 3, 3), strides=(2, 2), padding=(1, 1), kernel_size=(3, 3), channels=64)
    )
    b = relay.nn.relu(relay.nn.conv2d(a, const(rng, 64, 64, 1, 1), kernel_size=(1, 1), channels=64) + a)
    b = relay.nn.conv2d(b, const(rng, 64, 64, 3, 3), padding=(1, 1), kernel_size=(3, 3), channels=64)
    c = relay.nn.conv2d(
        b,
        relay.const(rng.normal(size=(64, 1, 3, 3)).astype("float32") / 3),
        padding=(1, 1),
        groups=64,
        kernel_size=(3, 3),
        channels=64,
    )
    d = relay.nn.relu(relay.nn.conv2d(c, const(rng, 128, 64, 1, 1), kernel_size=(1, 1), channels=128))
    out = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(d)), const(rng, 10, 128))
    return lathe.IRModule.from_expr(relay.Function([x], out))


def compiled(mod, kind, target="llvm", params=None, level=3):
    with lathe.transform.PassContext(opt_level=level, config={"lathe.fast_math": kind}):
        return relay.build(mod, target=target, params=params)


def outputs(lib, x):
    m = graph_executor.GraphModule(lib["default"](lathe.cpu()))
    m.set_input(0, x)
    m.run()
    return m.get_output(0).numpy()


def test_kinds_are_checked():
    for wrong in ("int8", "", "BF16", True):
        with pytest.raises(error.LatheError, match="takes none, bf16 or fp16"):
            lathe.transform.PassContext(config={"lathe.fast_math": wrong})
    assert lathe.transform.PassContext.list_configs()["lathe.fast_math"]["default"] == "none"


@pytest.mark.parametrize("level", [1, 3])
def test_bfloat16_stays_within_its_bound(rng, level):
    mod, x = residual_network(rng), rng.normal(size=(1, 3, 24, 24)).astype("float32")
    want, got = outputs(compiled(mod, "none"), x), outputs(compiled(mod, "bf16", level=level), x)
    assert got.dtype == "float32" and not np.array_equal(got, want)
    assert np.abs(got - want).max() <= BOUND["bf16"] * np.abs(want).max() and got.argmax() == want.argmax()


def test_bfloat16_rounds_products_and_what_they_read(rng):
    with lathe.transform.PassContext(opt_level=3, config={"lathe.fast_math": "bf16"}):
        text = str(relay.optimize(residual_network(rng), target=ZEN4)[0])
    main = text.split("@main")[1]
    assert "%x: Tensor[(1, 3, 24, 24), float32]) -> Tensor[(1, 10), float32]" in main
    assert len(re.findall(r"kernel_layout=.OIHW\d+i\d+o2i", main)) >= 3  # weights in pairs
    assert not re.search(r"nn\.relu\([^)]*\) /\* ty=[^*]*bfloat16", main)  # other arithmetic is in float32


def test_instructions(rng):
    """The code for processors that have them uses them, and the inner loops keep their sums in registers."""
    mod = residual_network(rng)
    asm = compiled(mod, "bf16", ZEN4).get_source("asm")
    assert asm.count("vdpbf16ps") > 100 and not re.search(r"vdpbf16ps[^\n]*rsp", asm)
    assert "vdpbf16ps" not in compiled(mod, "none", ZEN4).get_source("asm")
    assert "vdpbf16ps" not in compiled(mod, "bf16", "llvm -mcpu=cascadelake").get_source("asm")
    arm = compiled(mod, "bf16", NEOVERSE_N2).get_source("asm")
    assert arm.count("bfmmla") > 100 and "bfcvtn" in arm
    assert not re.search("bfmmla|bfdot|bfcvt", compiled(mod, "bf16", NEOVERSE_N1).get_source("asm"))
    half = compiled(mod, "fp16", NEOVERSE_N1).get_source("asm")
    assert len(re.findall(r"fmla\s+v\d+\.8h, v\d+\.8h, v\d+\.h\[\d\]", half)) > 100


def test_pairs_where_they_pay(rng):
    """Sapphire Rapids begins products of pairs half as often as multiply-adds: only what waits for its weights takes
    them."""
    weight = const(rng, 512, 512)
    for rows, pairs in ((128, False), (4, True)):
        x = relay.var("x", shape=(rows, 512))
        mod = lathe.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight)))
        assert ("vdpbf16ps" in compiled(mod, "bf16", SAPPHIRE_RAPIDS).get_source("asm")) == pairs
        assert "vdpbf16ps" in compiled(mod, "bf16", ZEN4).get_source("asm")


def dense(rng, rows, depth, columns):
    x = relay.var("x", shape=(rows, depth))
    return lathe.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, const(rng, columns, depth))))


def test_blocks_where_they_pay(rng):
    """Three rows at least want bfmmla, fewer wait for their weights; Ampere-1 begins it half as often as bfdot, whose
    two products in a lane are then as fast."""
    for cpu, rows, blocks in (
        ("neoverse-v1", 128, True),
        ("neoverse-v1", 3, True),
        ("neoverse-v1", 2, False),
        ("neoverse-v1", 1, False),
        ("ampere1", 128, False),
    ):
        asm = compiled(dense(rng, rows, 512, 512), "bf16", f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}").get_source(
            "asm"
        )
        assert ("bfmmla" in asm, "bfdot" in asm) == (blocks, not blocks), (cpu, rows)
        assert not re.search(r"bfmmla[^\n]*\[sp", asm)


@pytest.mark.parametrize("rows,depth,columns", [(3, 64, 64), (4, 7, 64), (13, 97, 80), (24, 98, 132), (128, 256, 256)])
def test_products_of_any_size(rng, rows, depth, columns):
    mod, x = dense(rng, rows, depth, columns), rng.normal(size=(rows, depth)).astype("float32")
    want, got = outputs(compiled(mod, "none"), x), outputs(compiled(mod, "bf16"), x)
    assert np.abs(got - want).max() <= BOUND["bf16"] * np.abs(want).max()


def test_float16_needs_arithmetic_in_it(rng):
    mod = residual_network(rng)
    for target in ("llvm -mcpu=cascadelake", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"):
        with pytest.raises(error.LatheError, match="fast math fp16 needs float16 arithmetic, which target .* lacks"):
            compiled(mod, "fp16", target)
    with pytest.raises(error.LatheError, match="compiled for a CPU, not for 'cuda"):
        compiled(mod, "bf16", "cuda")


def test_digits_are_told_as_before():
    onnx = pytest.importorskip("onnx")
    held = np.load(DIGITS / "held_back.npz")
    images = held[held.files[0]].astype("float32")
    model = onnx.load(str(DIGITS / "digits.onnx"))
    feed = model.graph.input[0]
    shape = [d.dim_value or 1 for d in feed.type.tensor_type.shape.dim]
    mod, params = relay.frontend.from_onnx(model, shape={feed.name: shape})
    libs = [compiled(mod, kind, params=params) for kind in ("none", "bf16")]
    for image in images[:40]:
        a, b = (outputs(lib, image.reshape(shape)) for lib in libs)
        assert a.argmax() == b.argmax()


def compile_digits(out, *options):
    return subprocess.run(
        [str(PROGRAM), "compile", str(DIGITS / "digits.onnx"), "-o", str(out), *options],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.skipif(not PROGRAM.exists(), reason="the lathe program was not built")
def test_command_line(tmp_path):
    out = tmp_path / "digits.so"
    x86 = platform.machine() == "x86_64"  # the linker of another machine need not be here
    done = compile_digits(
        out, "--fast-math=bf16", "--target", "llvm -mcpu=cascadelake" if x86 else "llvm -mcpu=cortex-a72"
    )
    assert done.returncode == 0 and out.exists() and "note: no instruction for products of bfloat16" in done.stderr
    other = SAPPHIRE_RAPIDS if lathe.runtime.enabled("llvm") else SAPPHIRE_RAPIDS.replace("llvm", "c", 1)
    done = compile_digits(out, "--fast-math=bf16", "--target", other)
    assert "products stay float32, which is as fast" in done.stderr and (done.returncode == 0 or not x86)
    bad = compile_digits(out, "--fast-math=fp8")
    assert bad.returncode == 1 and "takes none, bf16 or fp16, not 'fp8'" in bad.stderr
