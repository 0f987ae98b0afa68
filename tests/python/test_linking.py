"""Models linked into C programs: .o, .a and .c with the header that comes beside them."""

import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import lathe
from lathe import error, relay

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve()
DIGITS = ROOT / "examples/digits/digits.onnx"
CC = shutil.which("gcc") or shutil.which("cc")

pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler")

SHARED = ["-L", BUILD, "-llathe_rt", f"-Wl,-rpath,{BUILD}"]
STATIC = [BUILD / "lib/liblathe_rt.a", "-lpthread", "-ldl"]


def sh(*args, **options):
    done = subprocess.run([str(a) for a in args], text=True, capture_output=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def held_back():
    held = np.load(ROOT / "examples/digits/held_back.npz")
    return (held["images"] / 16).astype("float32").reshape(-1, 1, 8, 8), held["labels"]


@pytest.fixture(scope="module")
def answers():
    """What the same model gives when Python runs it."""
    from lathe.contrib import graph_executor

    lib = relay.build(relay.frontend.from_onnx(str(DIGITS), {"pixels": (1, 1, 8, 8)})[0])
    m, out = graph_executor.GraphModule(lib["default"](lathe.cpu(0))), []
    for image in held_back()[0]:
        m.set_input(0, image[None])
        m.run()
        out.append(m.get_output(0).numpy()[0])
    return np.array(out)


#: Reads images, writes answers: through the typed entry alone.
PROGRAM = """
#include <stdio.h>
#include "digits.h"

int main(void)
{
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  float image[digits_pixels_elements], answer[digits_probabilities_elements];
  if (digits_load(&model, &err) != LATHE_RT_OK || lathe_rt_executor_new(model, &executor, &err) != LATHE_RT_OK) return fprintf(stderr, "%s\\n", err.text), 1;
  while (fread(image, sizeof image, 1, stdin) == 1) {
    if (digits_run(executor, image, answer, &err) != LATHE_RT_OK) return fprintf(stderr, "%s\\n", err.text), 1;
    fwrite(answer, sizeof answer, 1, stdout);
  }
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
"""


_made = {}


def export(factory, name, target=None):
    """A folder with the exported model (once for all tests), its header and, of C source, the object."""
    if (name, target) not in _made:
        folder = factory.mktemp("exported")
        lib = relay.build(relay.frontend.from_onnx(str(DIGITS), {"pixels": (1, 1, 8, 8)})[0], target=target)
        lib.export_library(folder / name)
        assert sorted(p.name for p in folder.iterdir()) == sorted([name, "digits.h"])
        if name.endswith(".c") and "-mtriple" not in target:
            sh(
                CC,
                "-std=gnu17",
                "-O1",
                "-fPIC",
                "-fno-math-errno",
                "-ffp-contract=fast",
                "-Wall",
                "-c",
                folder / name,
                "-o",
                folder / "digits.o",
            )
        _made[name, target] = folder
    return _made[name, target]


def check_program(program, answers, *before):
    images, labels = held_back()
    done = subprocess.run([*before, program], input=images.tobytes(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    got = np.frombuffer(done.stdout, "float32").reshape(-1, 10)
    np.testing.assert_allclose(got, answers, rtol=1e-4, atol=1e-6)
    assert (got.argmax(1) == labels).mean() > 0.95


ARM = "arm-linux-gnueabihf"


@pytest.mark.skipif(
    not shutil.which(f"{ARM}-gcc") or not shutil.which("qemu-arm"), reason=f"needs gcc-{ARM} and qemu-user"
)
@pytest.mark.parametrize("name, target", [("digits.o", "llvm"), ("digits.a", "llvm"), ("digits.c", "c")])
def test_a_machine_of_32_bits(name, target, tmp_path, tmp_path_factory, answers):
    """Model and runtime for ARM: objects of ELF 32, linked by its own tools and run under an emulator."""
    if target == "llvm" and not lathe.runtime.enabled("llvm"):
        pytest.skip("it is LLVM's object")
    folder = export(tmp_path_factory, name, f"{target} -mtriple={ARM} -mcpu=cortex-a9")
    (tmp_path / "program.c").write_text(PROGRAM)
    sources = [ROOT / "runtime/lathe_rt.c"]
    flags = ["-std=gnu17", "-O0", "-Wall", "-Wextra", "-Werror"]
    libraries = ["-lm", "-ldl", "-lpthread"]
    includes = [f"-I{ROOT / 'include'}", f"-I{folder}"]
    source = [folder / name] if name.endswith(".c") else []
    linked = [] if source else [folder / name]
    kernels = ["-c", "-O1", "-fno-math-errno", *includes]
    if source:
        sh(f"{ARM}-gcc", *kernels, "-std=gnu17", *source, "-o", tmp_path / "kernels.o")
        linked = [tmp_path / "kernels.o"]
    program = tmp_path / "program"
    sh(f"{ARM}-gcc", *flags, *includes, tmp_path / "program.c", *sources, *linked, "-o", program, *libraries)
    check_program(program, answers, "qemu-arm", "-L", f"/usr/{ARM}")


@pytest.mark.parametrize(
    "name, target, runtime",
    [
        ("digits.o", None, SHARED),
        ("digits.o", None, STATIC),
        ("digits.a", None, SHARED),
        ("digits.c", "c", SHARED),
        ("digits.c", "c", STATIC),
        ("digits.o", "c", SHARED),
    ],
    ids=lambda v: "static" if v is STATIC else "shared" if v is SHARED else str(v),
)
def test_digits(name, target, runtime, tmp_path, tmp_path_factory, answers):
    if runtime is STATIC and not STATIC[0].exists():
        pytest.skip("the static runtime was not built")
    folder = export(tmp_path_factory, name, target)
    (tmp_path / "program.c").write_text(PROGRAM)
    model = folder / name.replace(".c", ".o")
    sh(
        CC,
        "-std=c99",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{ROOT}/include",
        f"-I{folder}",
        tmp_path / "program.c",
        model,
        *runtime,
        "-lm",
        "-o",
        tmp_path / "program",
    )
    check_program(tmp_path / "program", answers)


@pytest.mark.parametrize("threads", ["threads", "alone"])
@pytest.mark.parametrize("form", ["shared", "static"])
def test_the_runtime_by_one_command(form, threads, tmp_path, tmp_path_factory, answers):
    """As runtime/lathe_rt.c says: one file of C, with threads and without."""
    folder = export(tmp_path_factory, "digits.o")
    (tmp_path / "program.c").write_text(PROGRAM)
    runtime = tmp_path / ("liblathe_rt.so" if form == "shared" else "lathe_rt.o")
    how = ["-shared", "-fPIC", "-fvisibility=hidden"] if form == "shared" else ["-c"]
    alone = threads == "alone"
    flags = [*how, *(["-DLATHE_RT_NO_THREADS"] if alone else [])]
    libraries = ["-lm", "-ldl", *([] if alone else ["-lpthread"])]
    sh(CC, "-Os", "-Wall", "-Wextra", "-Werror", *flags, f"-I{ROOT}/include", ROOT / "runtime/lathe_rt.c", "-o", runtime)
    if form == "shared":
        libraries.append(f"-Wl,-rpath,{tmp_path}")
    includes = [f"-I{ROOT}/include", f"-I{folder}"]
    sh(CC, *includes, tmp_path / "program.c", folder / "digits.o", runtime, "-o", tmp_path / "program", *libraries)
    check_program(tmp_path / "program", answers)
    assert ("pthread_create" in sh("nm", runtime)) != alone


def test_as_cpp(tmp_path, tmp_path_factory, answers):
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    folder = export(tmp_path_factory, "digits.a")
    (tmp_path / "program.cc").write_text(PROGRAM)
    sh(
        "g++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{ROOT}/include",
        f"-I{folder}",
        tmp_path / "program.cc",
        folder / "digits.a",
        *SHARED,
        "-lm",
        "-o",
        tmp_path / "program",
    )
    check_program(tmp_path / "program", answers)


@pytest.mark.parametrize("name, target", [("digits.o", None), ("digits.c", "c")])
def test_a_shared_library_made_from_it(name, target, tmp_path, tmp_path_factory, answers):
    """What is to be linked can also be made into a file that the runtime loads."""
    folder = export(tmp_path_factory, name, target)
    sh(CC, "-shared", folder / "digits.o", "-lm", "-o", tmp_path / "digits.so")
    model = lathe.runtime.load_module(tmp_path / "digits.so")["default"](lathe.cpu(0)).executor
    model.set_input(0, held_back()[0][:1])
    model.run()
    np.testing.assert_allclose(model.get_output(0).numpy()[0], answers[0], rtol=1e-4, atol=1e-6)


TWO = """
#include <stdio.h>
#include "first.h"
#include "second-net.h"

int main(void)
{
  LatheRtModel *a, *b;
  LatheRtExecutor *x, *y;
  LatheRtError err;
  const LatheRtTensor *sum;
  float in[6] = {1, -2, 3, -4, 5, -6}, out[6];
  if (first_load(&a, &err) || second_net_load(&b, &err) || lathe_rt_executor_new(a, &x, &err) || lathe_rt_executor_new(b, &y, &err)) return fprintf(stderr, "%s\\n", err.text), 1;
  if (first_run(x, in, out, &err)) return fprintf(stderr, "%s\\n", err.text), 1;
  for (int i = 0; i < 6; i++) printf("%g ", (double)out[i]);
  for (int n = 1; n <= 2; n++) {
    if (second_net_run(y, n, in, in + 3, &sum, &err)) return fprintf(stderr, "%s\\n", err.text), 1;
    printf("| %d:", (int)sum->shape[0]);
    for (int i = 0; i < n; i++) printf(" %g", (double)((const float *)sum->data)[i]);
  }
  printf("\\n");
  lathe_rt_executor_free(x), lathe_rt_executor_free(y), lathe_rt_model_free(a), lathe_rt_model_free(b);
  return 0;
}
"""


@pytest.mark.parametrize("end, target", [(".o", None), (".c", "c")])
def test_two_models_in_one_program(end, target, tmp_path):
    """Both have kernels of the same names; the second has an open size and inputs with names that C does not take."""
    first = relay.parse("def @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }")
    second = relay.parse(
        "def @main(%int: Tensor[(n), float32], %b_1: Tensor[(n), float32]) { nn.relu(add(%int, %b_1)) }"
    )
    for mod, name in ((first, "first"), (second, "second-net")):
        relay.build(mod, target=target).export_library(tmp_path / f"{name}{end}")
    (tmp_path / "two.c").write_text(TWO)
    files = [tmp_path / f"first{end}", tmp_path / f"second-net{end}"]
    sh(CC, "-std=gnu17", "-O1", f"-I{ROOT}/include", tmp_path / "two.c", *files, *SHARED, "-lm", "-o", tmp_path / "two")
    assert sh(tmp_path / "two").strip() == "1 0 3 0 5 0 | 1: 0| 2: 0 3"


def test_a_header_of_somebody_else_stays(tmp_path):
    (tmp_path / "net.h").write_text("#define MINE 1\n")
    lib = relay.build(relay.parse("def @main(%x: Tensor[(2), float32]) { nn.relu(%x) }"))
    with pytest.raises(error.ArgumentError, match="net.h"):
        lib.export_library(tmp_path / "net.o")
    assert (tmp_path / "net.h").read_text() == "#define MINE 1\n" and not (tmp_path / "net.o").exists()
    lib.export_library(tmp_path / "other.o")
    lib.export_library(tmp_path / "other.o")  # its own header is written anew


def test_sequences_have_no_typed_entry(tmp_path):
    mod = relay.parse("def @main(%x: Tensor[(2), float32]) { sequence.construct(%x, %x) }")
    relay.build(mod).export_library(tmp_path / "seq.o")
    text = (tmp_path / "seq.h").read_text()
    assert "seq_load" in text and "seq_run" not in text and "get_output_items" in text


def test_llvm_gives_no_c(tmp_path):
    lib = relay.build(relay.parse("def @main(%x: Tensor[(2), float32]) { nn.relu(%x) }"), target="llvm")
    with pytest.raises(error.UnsupportedError, match="compile for target 'c'"):
        lib.export_library(tmp_path / "never.c")
    assert not list(tmp_path.iterdir())
