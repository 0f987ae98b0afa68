"""The tiny runtime (runtime/tiny.c): the same answers as the whole one, from a linked model, in a few kilobytes."""

import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import lathe
from lathe import relay

ROOT = pathlib.Path(__file__).resolve().parents[2]
LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"
LIMIT = 20 * 1024

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
#define N(what) (sizeof(float) * net_##what##_elements)
int main(void)
{
  static float a[net_a_elements], b[net_b_elements], o[4][2 * 512];
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  if (net_load(&model, &err) != LATHE_RT_OK || lathe_rt_executor_new(model, &executor, &err) != LATHE_RT_OK)
    return fprintf(stderr, "%s\\n", err.text), 1;
  lathe_rt_model_free(model);
  while (fread(a, sizeof a, 1, stdin) == 1 && fread(b, sizeof b, 1, stdin) == 1) {
    if (net_run(executor, a, b, o[0], o[1], o[2], o[3], &err) != LATHE_RT_OK)
      return fprintf(stderr, "%s\\n", err.text), 1;
    fwrite(o[0], N(output_0), 1, stdout);
    fwrite(o[1], N(output_1), 1, stdout);
    fwrite(o[2], N(output_2), 1, stdout);
    fwrite(o[3], N(output_3), 1, stdout);
  }
  lathe_rt_executor_free(executor);
  return 0;
}
"""
# Compiler, target, emulator.
MACHINES = {
    "here": ("cc", None, []),
    "x86-64": ("x86_64-linux-gnu-gcc", "llvm -mtriple=x86_64-linux-gnu",
               ["qemu-x86_64", "-L", "/usr/x86_64-linux-gnu"]),
    "armv7": ("arm-linux-gnueabihf-gcc", "llvm -mtriple=arm-linux-gnueabihf -mcpu=cortex-a9",
              ["qemu-arm", "-L", "/usr/arm-linux-gnueabihf"]),
}  # fmt: skip


def sh(*args, **options):
    done = subprocess.run([str(a) for a in args], capture_output=True, timeout=300, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def network(folder):
    """Views, parts of one tensor, an input and a constant that are outputs too."""
    rng = np.random.default_rng(3)
    w, c = rng.standard_normal((4, 3, 3, 3)).astype("float32"), rng.standard_normal((3,)).astype("float32")
    a, b = relay.var("a", shape=(2, 3, 8, 8)), relay.var("b", shape=(2, 5))
    conv = relay.nn.conv2d(a, relay.const(w), padding=(1, 1), channels=4, kernel_size=(3, 3))
    both = relay.concatenate((relay.nn.relu(conv), conv), axis=1)
    outs = [relay.nn.softmax(relay.reshape(both, (2, 512))), b, relay.sum(both, axis=(2, 3)), relay.const(c)]
    mod = lathe.IRModule.from_expr(relay.Function([a, b], relay.Tuple(outs)))
    (folder / "net.relay").write_text(mod.astext(show_meta_data=True))
    return mod


def link(folder, compiler, runtime, name):
    (folder / "program.c").write_text(PROGRAM)
    sh(*compiler, "-w", "-O1", f"-I{ROOT / 'include'}", folder / "program.c", folder / "net.o",
       ROOT / "runtime" / runtime, "-lm", "-o", folder / name)  # fmt: skip
    return folder / name


@pytest.mark.parametrize("machine", MACHINES)
def test_the_same_answers_as_the_whole_runtime(machine, tmp_path):
    compiler, target, emulator = MACHINES[machine]
    if not shutil.which(compiler) or (emulator and not (shutil.which(emulator[0]) and lathe.runtime.enabled("llvm"))):
        pytest.skip(f"needs {compiler} and {emulator[:1]} (tools/setup cross)")
    mod = network(tmp_path)
    said = ["--target", target] if target else []
    sh(LATHE, "compile", tmp_path / "net.relay", *said, "-o", tmp_path / "net.o")
    program = link(tmp_path, [compiler], "tiny.c", "tiny")
    rng = np.random.default_rng(4)
    shapes = ((2, 3, 8, 8), (2, 5))
    runs = [[rng.standard_normal(s).astype("float32") for s in shapes] for _ in range(2)]
    emulator = emulator[: 1 if not emulator or not pathlib.Path(emulator[2]).is_dir() else None]
    out = sh(*emulator, program, input=b"".join(x.tobytes() for run in runs for x in run))
    m = relay.create_executor("debug", mod)  # the interpreter
    want = [np.concatenate([y.numpy().ravel() for y in m.evaluate()(*run)]) for run in runs]
    got = np.frombuffer(out, "float32").reshape(2, -1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiler", ["cc", "x86_64-linux-gnu-gcc", "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb"])
def test_its_size(compiler, tmp_path):
    compiler = compiler.split()
    if not shutil.which(compiler[0]):
        pytest.skip(f"needs {compiler[0]} (tools/setup cross, tools/setup micro)")
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    sh(*compiler, *strict, "-Os", f"-I{ROOT / 'include'}", "-c", ROOT / "runtime/tiny.c", "-o", tmp_path / "tiny.o")
    text, data, bss = map(int, sh("size", tmp_path / "tiny.o").split()[6:9])
    assert 1024 < text < LIMIT and data + bss == 0, (text, data, bss)
    wanted = sh("nm", "-u", tmp_path / "tiny.o").decode().split()
    libc = {"U", "malloc", "calloc", "free", "memcpy", "memmove", "memcmp", "memset", "strlen"}
    assert not {w for w in wanted if not w.startswith(("__stack_chk", "__aeabi_", "_GLOBAL"))} - libc, wanted


def test_what_it_does_not_serve_is_refused(tmp_path):
    (tmp_path / "net.relay").write_text("def @main(%x: Tensor[(n), float32]) { nn.relu(%x) }\n")
    sh(LATHE, "compile", tmp_path / "net.relay", "-o", tmp_path / "net.o")
    (tmp_path / "program.c").write_text(
        '#include <stdio.h>\n#include "net.h"\nint main(void)\n{\n  LatheRtModel *m;\n  LatheRtError err;\n'
        "  return net_load(&m, &err) ? puts(err.text), 1 : 0;\n}\n"
    )
    sh("cc", "-w", "-O1", f"-I{ROOT / 'include'}", tmp_path / "program.c", tmp_path / "net.o", ROOT / "runtime/tiny.c",
       "-lm", "-o", tmp_path / "program")  # fmt: skip
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True)
    assert done.returncode == 1 and "open sizes" in done.stdout and "runtime/lathe_rt.c" in done.stdout
