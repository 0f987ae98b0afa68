"""One file with code for several CPUs: which of it is loaded is decided by the CPU, which emulators play here."""

import functools
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import lathe
from lathe import relay
from networks import run_onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"
DIGITS = ROOT / "examples/digits/digits.onnx"
SHAPE = ["--shape", "pixels=1,1,8,8"]
X86 = "llvm -mtriple=x86_64-linux-gnu"
ARM = "llvm -mtriple=aarch64-linux-gnu"

needs_llvm = pytest.mark.skipif(not lathe.runtime.enabled("llvm"), reason="it is LLVM that knows other machines")

# Says which variant was loaded, then answers.
PROGRAM = """
#include <stdio.h>
#include "lathe_rt.h"
int main(int argc, char **argv)
{
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  float x[64];
  if (argc < 2 || lathe_rt_model_load(argv[1], &model, &err) || lathe_rt_executor_new(model, &executor, &err))
    return fprintf(stderr, "%s\\n", err.text), 1;
  LatheRtModelInfo info = {LATHE_RT_INIT(info)};
  lathe_rt_model_info(model, &info);
  fprintf(stderr, "%s\\n", info.target);
  int64_t shape[] = {1, 1, 8, 8};
  LatheRtTensor t = {.data = x, .device = {LATHE_RT_CPU, 0}, .ndim = 4, .dtype = {2, 32, 1}, .shape = shape};
  while (fread(x, sizeof x, 1, stdin) == 1) {
    const LatheRtTensor *y;
    if (lathe_rt_set_input(executor, 0, &t, &err) || lathe_rt_run(executor, &err) ||
        lathe_rt_get_output(executor, 0, &y, &err))
      return fprintf(stderr, "%s\\n", err.text), 1;
    fwrite(y->data, sizeof(float), 10, stdout);
  }
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
"""


def sh(*args):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=300)


def compile_variants(path, target, variants, *more):
    done = sh(LATHE, "compile", DIGITS, *SHAPE, "--target", target, "--variants", variants, "-o", path, *more)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("variants")


@functools.lru_cache(None)
def loader(folder, triple):
    """The program, linked with the runtime; the same for every file."""
    (folder / "program.c").write_text(PROGRAM)
    done = sh(f"{triple}-gcc", "-w", "-O0", f"-I{ROOT / 'include'}", folder / "program.c", ROOT / "runtime/lathe_rt.c",
              "-rdynamic", "-lpthread", "-ldl", "-lm", "-o", folder / triple)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / triple


@functools.lru_cache(None)
def model(folder, arch):
    if arch == "x86_64":
        return compile_variants(folder / "x86.so", X86, "x86-64-v2,x86-64-v4,x86-64-v3")
    cpus = "generic+dotprod+i8mm,generic+dotprod,generic"
    return compile_variants(folder / "arm.so", ARM, cpus, "--weights", "ready")


def emulate(folder, arch, cpu, data=b""):
    triple = f"{arch}-linux-gnu"
    if not shutil.which(f"{triple}-gcc") or not shutil.which(f"qemu-{arch}"):
        pytest.skip(f"needs {triple}-gcc and qemu-{arch} (tools/setup cross)")
    libraries = ["-L", f"/usr/{triple}"] if pathlib.Path(f"/usr/{triple}/lib").is_dir() else []
    command = [f"qemu-{arch}", "-cpu", cpu, *libraries, loader(folder, triple), model(folder, arch)]
    return subprocess.run([str(c) for c in command], input=data, capture_output=True, timeout=300)


@needs_llvm
@pytest.mark.parametrize("arch, cpu, taken", [
    ("x86_64", "Nehalem", "-mcpu=x86-64-v2"),
    ("x86_64", "Haswell", "-mcpu=x86-64-v3"),
    ("aarch64", "cortex-a57", "-mcpu=generic"),
    ("aarch64", "neoverse-n1", "-mcpu=generic -mattr=+dotprod"),
    ("aarch64", "max,sve=off", "-mcpu=generic -mattr=+dotprod,+i8mm"),
])  # fmt: skip
def test_the_cpu_decides(arch, cpu, taken, folder):
    pytest.importorskip("onnxruntime")
    x = (np.load(ROOT / "examples/digits/held_back.npz")["images"][:20] / 16).astype("float32").reshape(-1, 1, 8, 8)
    done = emulate(folder, arch, cpu, x.tobytes())
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode().strip().endswith(taken)
    got = np.frombuffer(done.stdout, "float32").reshape(-1, 10)
    np.testing.assert_allclose(got, run_onnxruntime(DIGITS, {"pixels": x})[0], rtol=1e-4, atol=1e-6)


@needs_llvm
def test_a_cpu_that_none_is_for(folder):
    done = emulate(folder, "x86_64", "qemu64")
    assert done.returncode == 1 and b"needs the CPU feature 'sse4.2'" in done.stderr, done
    assert b"the last of the 3 variants in" in done.stderr


@needs_llvm
def test_inspect_shows_them_and_equal_weights_lie_once(folder):
    alone = folder / "alone.so"
    target = f"{ARM} -mcpu=generic"
    done = sh(LATHE, "compile", DIGITS, *SHAPE, "--target", target, "--weights", "ready", "-o", alone)
    assert done.returncode == 0, done.stderr
    shown = json.loads(sh(LATHE, "inspect", model(folder, "aarch64"), "--json").stdout)
    one = json.loads(sh(LATHE, "inspect", alone, "--json").stdout)
    assert shown["variants"] == ["neon,dotprod,i8mm", "neon,dotprod", "neon"] and one["variants"] == []
    assert shown["weights_bytes"] == one["weights_bytes"]  # floats: all three want them alike
    text = sh(LATHE, "inspect", model(folder, "aarch64")).stdout
    assert "variants:  neon,dotprod,i8mm\n           neon,dotprod\n           neon (shown here)\n" in text


def test_from_python_the_best_for_this_machine_runs(folder):
    """The same answers, in memory and from the file."""
    mod, params = relay.frontend.from_onnx(str(DIGITS), {"pixels": (1, 1, 8, 8)})
    kind = "llvm" if lathe.runtime.enabled("llvm") else "c"
    x = np.random.default_rng(0).random((1, 1, 8, 8), "float32")
    plain = relay.build(mod, target=kind, params=params)
    lib = relay.build(mod, target=kind, params=params, variants=["generic", "native"])
    lib.export_library(str(folder / "here.so"))
    answers = []
    for factory in (plain, lib, lathe.runtime.load_module(str(folder / "here.so"))):
        m = lathe.contrib.graph_executor.GraphModule(factory["default"](lathe.cpu(0)))
        m.run(pixels=x)
        answers.append(m.get_output(0).numpy())
    np.testing.assert_array_equal(answers[0], answers[1])  # native: the very same code
    np.testing.assert_array_equal(answers[0], answers[2])


@needs_llvm
@pytest.mark.parametrize("target, variants, output, said", [
    (X86, "x86-64-v9", "net.so", "unknown CPU 'x86-64-v9' for x86_64; did you mean 'x86-64-v2'?"),
    (X86, "haswell,x86-64-v3", "net.so", "variants 'haswell' and 'x86-64-v3' ask the same features of the CPU"),
    (ARM, "generic+dotprot", "net.so", "unknown feature 'dotprot' for aarch64; did you mean 'dotprod'?"),
    ("llvm", "cortex-a57,x86-64-v3", "net.so", "are for different machines (aarch64 and x86_64)"),
    (X86, "x86-64-v2,x86-64-v3", "net.o", "--variants is for what is loaded"),
])  # fmt: skip
def test_bad_use(target, variants, output, said, tmp_path):
    done = sh(LATHE, "compile", DIGITS, *SHAPE, "--target", target, "--variants", variants, "-o", tmp_path / output)
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr
    assert not (tmp_path / output).exists()


def test_a_program_ahead_of_time_is_for_one_cpu():
    mod, params = relay.frontend.from_onnx(str(DIGITS), {"pixels": (1, 1, 8, 8)})
    with pytest.raises(lathe.error.UnsupportedError, match="a program ahead of time has no variants"):
        relay.build(mod, "c", params=params, executor=relay.backend.Executor("aot"), variants=["generic"])
