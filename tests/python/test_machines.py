"""Code for other machines, from this one: objects of every kind, run under an emulator where there is one, against
ONNX Runtime."""

import os
import pathlib
import runpy
import shutil
import struct
import subprocess

import numpy as np
import pytest

import lathe
from machines import HAS_V, MACHINES, NAMES, tools, with_libraries
from networks import run_onnxruntime

pytest.importorskip("onnxruntime")

ROOT = pathlib.Path(__file__).resolve().parents[2]
LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"
DIGITS = ROOT / "examples/digits/digits.onnx"
SHAPE = ["--shape", "pixels=1,1,8,8"]
HAS_CLANG = bool(shutil.which("clang-19") or shutil.which("clang"))

pytestmark = pytest.mark.skipif(not lathe.runtime.enabled("llvm"), reason="it is LLVM that knows other machines")

FOR_RUNTIME = """
#include <stdio.h>
#include "net.h"
int main(void)
{
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  float x[net_pixels_elements], y[net_probabilities_elements];
  if (net_load(&model, &err) != LATHE_RT_OK || lathe_rt_executor_new(model, &executor, &err) != LATHE_RT_OK)
    return fprintf(stderr, "%s\\n", err.text), 1;
  while (fread(x, sizeof x, 1, stdin) == 1) {
    if (net_run(executor, x, y, &err) != LATHE_RT_OK) return fprintf(stderr, "%s\\n", err.text), 1;
    fwrite(y, sizeof y, 1, stdout);
  }
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
"""
AHEAD = """
#include <stdio.h>
#define NET_STATIC_WORKSPACE
#include "net.h"
int main(void)
{
  static float x[NET_PIXELS_ELEMENTS], y[NET_PROBABILITIES_ELEMENTS];
  while (fread(x, sizeof x, 1, stdin) == 1) {
    net_run_static(x, y);
    fwrite(y, sizeof y, 1, stdout);
  }
  return 0;
}
"""


def sh(*args, **options):
    done = subprocess.run([str(a) for a in args], capture_output=True, timeout=300, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def make_program(folder, triple, target, ahead, ending="o", before=""):
    form = ["-f", ending] if ahead else []
    sh(LATHE, "compile", DIGITS, *SHAPE, "--target", target, *form, "-o", folder / f"net.{ending}")
    (folder / "program.c").write_text(before + (AHEAD if ahead else FOR_RUNTIME))
    runtime = [] if ahead else [f"-I{ROOT / 'include'}", ROOT / "runtime/lathe_rt.c", "-lpthread", "-ldl"]
    sh(f"{triple}-gcc", "-w", "-O1", folder / "program.c", folder / f"net.{ending}", *runtime, "-lm",
       "-o", folder / "program")  # fmt: skip
    return folder / "program"


def test_every_machine_is_in_a_selection():
    """`make test-cross` and `make test-all` together run test_end_to_end.py on each."""
    chosen = runpy.run_path(str(ROOT / "tests/selection.py"))
    assert sorted(chosen["MACHINES"] + chosen["MACHINES_LATER"]) == sorted(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True], ids=["runtime", "ahead"])
@pytest.mark.parametrize("name", MACHINES)
def test_the_same_answers(name, ahead, tmp_path):
    triple, target, emulator = tools(name)
    before = HAS_V if name == "riscv64-v" and not ahead else ""
    program = make_program(tmp_path, triple, target, ahead, before=before)
    x = (np.load(ROOT / "examples/digits/held_back.npz")["images"][:50] / 16).astype("float32").reshape(-1, 1, 8, 8)
    got = np.frombuffer(sh(*emulator, program, input=x.tobytes()), "float32").reshape(-1, 10)
    np.testing.assert_allclose(got, run_onnxruntime(DIGITS, {"pixels": x})[0], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name, emulator, lacks", [
    ("riscv64-v", ["qemu-riscv64", "-cpu", "rv64"], "v"),
    ("armv7-neon", ["qemu-arm", "-cpu", "cortex-a9,neon=off"], "neon"),
])  # fmt: skip
def test_a_lesser_cpu_is_refused(name, emulator, lacks, tmp_path):
    triple, target, _ = tools(name)
    program = make_program(tmp_path, triple, target, False)
    command = [*with_libraries(emulator, triple), program]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and f"'{lacks}'" in done.stderr, done


# Objects that nothing here runs: what their headers say.
ELF, MACH_O = b"\x7fELF", struct.pack("<I", 0xFEEDFACF)
OBJECTS = {
    "aarch64-linux-android": (ELF, 18, 183),
    "x86_64-linux-android": (ELF, 18, 62),
    "arm64-apple-macos": (MACH_O, 4, 0x0C),
    "x86_64-apple-darwin": (MACH_O, 4, 0x07),
    "hexagon-unknown-elf": (ELF, 18, 164),
}


@pytest.mark.skipif(not HAS_CLANG, reason="needs clang (tools/setup tests)")
@pytest.mark.parametrize("triple", OBJECTS)
def test_objects_for_systems_elsewhere(triple, tmp_path):
    magic, at, machine = OBJECTS[triple]
    sh(LATHE, "compile", DIGITS, *SHAPE, "-f", "o", "--target", f"llvm -mtriple={triple}", "-o", tmp_path / "net.o")
    head = (tmp_path / "net.o").read_bytes()[:20]
    assert head[:4] == magic and head[at] == machine
    assert "net_run(" in (tmp_path / "net.h").read_text()


# As people write triples, and the package of Debian's that has the tools.
PACKAGES = {
    "armv7-linux-gnueabihf": "gcc-arm-linux-gnueabihf",
    "armv7a-unknown-linux-gnueabihf": "gcc-arm-linux-gnueabihf",
    "riscv64-unknown-linux-gnu": "gcc-riscv64-linux-gnu",
    "powerpc64le-none-linux-gnu": "gcc-powerpc64le-linux-gnu",
}


def refused(*args, **options):
    done = subprocess.run([str(a) for a in (LATHE, "compile", DIGITS, *SHAPE, *args)], capture_output=True, text=True,
                          **options)  # fmt: skip
    assert done.returncode in (1, 2), done
    return done.stderr


@pytest.mark.parametrize("triple", PACKAGES)
def test_missing_tools_are_named(triple, tmp_path):
    bare = {**os.environ, "PATH": str(tmp_path)}
    said = refused("-f", "o", "--target", f"llvm -mtriple={triple}", "-o", tmp_path / "net.o", env=bare)
    assert f"(Debian: apt install {PACKAGES[triple]})" in said


@pytest.mark.parametrize("triple", ["armv7-linux-gnueabihf", "armv7a-unknown-linux-gnueabihf"])
def test_tools_are_found_by_the_plain_name(triple, tmp_path):
    tools("armv7")
    for ending in ("o", "a", "so"):
        form = ["-f", ending] if ending != "so" else []
        out = tmp_path / f"net.{ending}"
        sh(LATHE, "compile", DIGITS, *SHAPE, "--target", f"c -mtriple={triple}", *form, "-o", out)
    assert (tmp_path / "net.so").read_bytes()[18] == (tmp_path / "net.o").read_bytes()[18] == 40  # EM_ARM


def test_wrong_use_gets_a_sentence(tmp_path):
    for target in ("cortex-m4", "riscv32"):
        said = refused("--target", target, "-o", tmp_path / "net.so")
        assert "is a shared library, which nothing on target" in said
    said = refused("-f", "o", "--target", "hexagon", "-o", tmp_path / "net.o")
    assert "objects for Hexagon are made by 'llvm -mtriple=hexagon-unknown-elf'" in said


@pytest.mark.parametrize("triple", ["arm64-apple-macos", "hexagon-unknown-elf"])
def test_the_runtime_is_for_elf(triple, tmp_path):
    command = [LATHE, "compile", DIGITS, *SHAPE, "--target", f"llvm -mtriple={triple}", "-o", tmp_path / "net.so"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and not (tmp_path / "net.so").exists()
    assert "others take a program ahead of time (-f c, -f o)" in done.stderr or "needs a linker" in done.stderr
