"""Products and convolutions of bytes by AArch64's matrix instructions (smmla, ummla, usmmla), which an emulator plays:
by meaning and compiled they agree exactly, as do the CPUs that have dot products alone."""

import functools
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import lathe
from lathe import relay
from test_int8_kernels import LLVM, const, conv

Q = relay.qnn.op
ROOT = pathlib.Path(__file__).resolve().parents[2]
ARM = "llvm -mtriple=aarch64-linux-gnu -num-cores=2"
LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"
MATRIX = f"{ARM} -mattr=+dotprod,+i8mm"
NAMES = ("smmla", "ummla", "usmmla", "sdot", "udot", "usdot")

pytestmark = pytest.mark.skipif(not LLVM, reason="it is about LLVM's code")

# One run: all inputs from stdin as they lie in memory, all outputs to stdout.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "lathe_rt.h"
static size_t bytes_of(LatheRtDType t, int n, const int64_t *shape)
{
  size_t bytes = t.bits / 8;
  for (int d = 0; d < n; d++) bytes *= (size_t)shape[d];
  return bytes;
}
int main(int argc, char **argv)
{
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  const LatheRtPort *in;
  if (argc < 2 || lathe_rt_model_load(argv[1], &model, &err) || lathe_rt_executor_new(model, &executor, &err))
    return fprintf(stderr, "%s\\n", err.text), 1;
  int n = lathe_rt_model_inputs(model, &in);
  for (int i = 0; i < n; i++) {
    size_t bytes = bytes_of(in[i].dtype, in[i].ndim, in[i].shape);
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    LatheRtTensor t = {.data = data, .device = {LATHE_RT_CPU, 0}, .ndim = in[i].ndim, .dtype = in[i].dtype,
                       .shape = (int64_t *)in[i].shape};
    if (fread(data, 1, bytes, stdin) != bytes || lathe_rt_set_input(executor, i, &t, &err)) return 2;
  }
  const LatheRtTensor *y;
  if (lathe_rt_run(executor, &err)) return fprintf(stderr, "%s\\n", err.text), 1;
  for (int i = 0; i < lathe_rt_model_outputs(model, &in); i++) {
    if (lathe_rt_get_output(executor, i, &y, &err)) return fprintf(stderr, "%s\\n", err.text), 1;
    fwrite(y->data, 1, bytes_of(y->dtype, y->ndim, y->shape), stdout);
  }
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("blocks")


@functools.lru_cache(None)
def program(folder):
    """Linked with the runtime; the same for every model."""
    (folder / "program.c").write_text(PROGRAM)
    command = ["aarch64-linux-gnu-gcc", "-w", "-O0", f"-I{ROOT / 'include'}", folder / "program.c",
               ROOT / "runtime/lathe_rt.c", "-rdynamic", "-lpthread", "-ldl", "-lm", "-o", folder / "program"]
    subprocess.run([str(c) for c in command], check=True)
    return folder / "program"


def emulate(folder, model, feeds, cpu="max,sve=off"):
    libraries = ["-L", "/usr/aarch64-linux-gnu"] if pathlib.Path("/usr/aarch64-linux-gnu/lib").is_dir() else []
    command = [str(c) for c in ["qemu-aarch64", "-cpu", cpu, *libraries, program(folder), model]]
    data = b"".join(np.ascontiguousarray(v).tobytes() for v in feeds)
    done = subprocess.run(command, input=data, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def needs_emulator():
    if not shutil.which("aarch64-linux-gnu-gcc") or not shutil.which("qemu-aarch64"):
        pytest.skip("needs aarch64-linux-gnu-gcc and qemu-aarch64 (tools/setup cross)")


def numbers(rng, shape, dtype):
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def instructions(lib):
    words = lib.get_source("asm").split()
    return {name: words.count(name) for name in NAMES}


def same_by_meaning(folder, expr, feeds, target=MATRIX):
    """The emulated result is the interpreter's to the bit; gives how often each instruction is in the code."""
    f = relay.Function(relay.analysis.free_vars(expr), expr)
    mod = lathe.IRModule.from_expr(f)
    feeds = [feeds[p.name_hint] for p in f.params]
    want = relay.create_executor("debug", mod).evaluate()(*feeds).numpy()
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target)
    lib.export_library(str(folder / "net.so"))
    have = np.frombuffer(emulate(folder, folder / "net.so", feeds), want.dtype).reshape(want.shape)
    np.testing.assert_array_equal(have, want)
    return instructions(lib)


@pytest.mark.parametrize("channels, out, size, kernel, stride, pad, features", [
    (16, 32, 7, 1, 1, 0, "+dotprod,+i8mm"),
    (24, 48, 10, 3, 2, 1, "+dotprod,+i8mm"),
    (8, 36, 5, 5, 1, 2, "+i8mm"),  # without dot products
])  # fmt: skip
def test_convolutions(rng, folder, channels, out, size, kernel, stride, pad, features):
    needs_emulator()
    data = numbers(rng, (2, channels, size, size), "int8")
    weight = numbers(rng, (out, channels, kernel, kernel), "int8")
    made = conv(data, weight, 3, strides=(stride, stride), padding=(pad, pad))
    count = same_by_meaning(folder, made, {"x": data}, f"{ARM} -mattr={features}")
    taken = "smmla" if "dotprod" in features else "usmmla"  # of those without, usdot says that data has no sign
    assert count[taken] >= 16 and sum(count.values()) == count[taken]


@pytest.mark.parametrize("rows, inner, units, taken", [(9, 64, 32, "smmla"), (7, 24, 33, "smmla"), (1, 64, 32, "sdot")])
def test_dense(rng, folder, rows, inner, units, taken):
    """A weight known at compile time: in panels, or packed; of one row it is read once, and words of four do."""
    needs_emulator()
    data = numbers(rng, (rows, inner), "int8")
    unit, none = const(1.0, "float32"), const(0)
    weight = relay.const(numbers(rng, (units, inner), "int8"))
    sums = Q.dense(relay.var("x", shape=data.shape, dtype="int8"), weight, const(-9), none, unit, unit, units)
    made = Q.requantize(sums, const(2e-3, "float32"), none, unit, const(5), out_dtype="int8")
    count = same_by_meaning(folder, made, {"x": data})
    assert count[taken] >= 8 and sum(count.values()) == count[taken]


@pytest.mark.parametrize("b, m, k, n", [(3, 23, 61, 34), (1, 7, 13, 5)])
@pytest.mark.parametrize("x, w, turned, taken", [
    ("int8", "int8", True, "smmla"),
    ("uint8", "uint8", False, "ummla"),
    ("uint8", "int8", False, "usmmla"),
])  # fmt: skip
def test_products_of_data(rng, folder, b, m, k, n, x, w, turned, taken):
    needs_emulator()
    feeds = {"x": numbers(rng, (b, m, k), x), "w": numbers(rng, (b, n, k) if turned else (b, k, n), w)}
    side = [relay.var(name, shape=v.shape, dtype=str(v.dtype)) for name, v in feeds.items()]
    count = same_by_meaning(
        folder, relay.nn.batch_matmul(*side, out_dtype="int32", transpose_a=False, transpose_b=turned), feeds)
    assert count[taken] >= 16 and sum(count.values()) == count[taken]


def residual_network(rng):
    """Quantized as ONNX Runtime's quantizer writes it: convolutions, a residual sum, a product."""
    from test_quantized_models import Net

    net = Net()

    def layer(x, scale, *shape, **attrs):
        weight, scales = net.weight(*shape)
        y = net.node("Conv", x, weight, net.bias(scale, scales, shape[0]), **attrs)
        return net.q(net.node("Relu", y), 0.02 * np.sqrt(shape[1] * shape[2]), np.uint8(0))

    x = net.q("x", 0.03, np.uint8(128))
    first = layer(x, 0.03, 32, 16, 3, 3, pads=[1, 1, 1, 1])
    second = layer(first, 0.02 * np.sqrt(48), 32, 32, 1, 1)
    both = net.q(net.node("Add", first, second), 0.3, np.uint8(3))
    last = layer(both, 0.3, 64, 32, 3, 3, strides=[2, 2], pads=[1, 1, 1, 1])
    rows = net.node("Reshape", last, net.const(np.array([16, 64])))
    weight, _ = net.weight(64, 40, axis=1)
    feeds = {"x": rng.standard_normal((1, 16, 8, 8)).astype("float32")}
    return net.model(feeds, [net.q(net.node("MatMul", rows, weight), 0.5, np.uint8(128))]), feeds


def test_a_network_on_three_cpus(rng, folder):
    """One file for CPUs with matrix instructions, with dot products, with neither: the same bytes, and ONNX Runtime's
    within a few units."""
    needs_emulator()
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model, feeds = residual_network(rng)
    onnx.save(model, folder / "net.onnx")
    command = [LATHE, "compile", folder / "net.onnx", "--target", "llvm -mtriple=aarch64-linux-gnu",
               "--variants", "generic+dotprod+i8mm,generic+dotprod,generic", "-o", folder / "net.so"]
    subprocess.run([str(c) for c in command], check=True, capture_output=True)
    cpus = ("max,sve=off", "neoverse-n1", "cortex-a57")
    results = [emulate(folder, folder / "net.so", feeds.values(), cpu) for cpu in cpus]
    assert results[0] == results[1] == results[2]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, feeds)[0]
    have = np.frombuffer(results[0], "float32").reshape(want.shape)
    assert np.abs(have - want).max() <= 3 * 0.5 and (have == want).mean() > 0.8
    mod, params = relay.frontend.from_onnx(model, {k: v.shape for k, v in feeds.items()})
    for target, taken in ((MATRIX, "smmla"), (f"{ARM} -mattr=+dotprod", "sdot")):
        with lathe.transform.PassContext(opt_level=3):
            count = instructions(relay.build(mod, target=target, params=params))
        assert count[taken] >= 64 and sum(count.values()) == count[taken]
