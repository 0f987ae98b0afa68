"""What is installed: a tree that C programs are built against, through pkg-config and through CMake, and a wheel
in an environment of its own, where LLVM is not found."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve()
DIGITS = ROOT / "examples/digits/digits.onnx"

pytestmark = pytest.mark.skipif(
    not (BUILD / "CMakeCache.txt").exists() or not shutil.which("cmake"), reason="needs a build folder and cmake"
)


CACHE = (BUILD / "CMakeCache.txt").read_text() if (BUILD / "CMakeCache.txt").exists() else ""
NO_LLVM = {**os.environ, "LATHE_LLVM_LIBRARY": "/nowhere/libLLVM.so"}
plain_build = pytest.mark.skipif(
    "LATHE_SANITIZE:STRING=\n" not in CACHE, reason="a build with sanitizers needs their libraries"
)


def sh(*args, **options):
    done = subprocess.run([str(a) for a in args], text=True, capture_output=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    place = tmp_path_factory.mktemp("prefix")
    sh("cmake", "--install", BUILD, "--prefix", place)
    return place


def libdir(prefix):
    return next(prefix.glob("lib*/**/liblathe_rt.so*")).parent


@pytest.fixture(scope="module")
def digits(prefix, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "digits.so"
    env = {**os.environ, "LD_LIBRARY_PATH": str(libdir(prefix))}
    sh(prefix / "bin/lathe", "compile", DIGITS, "-o", path, "--shape", "pixels=1,1,8,8", env=env)
    return path


def check(prefix, load_and_run, compile_and_run, digits):
    env = {**os.environ, "LD_LIBRARY_PATH": str(libdir(prefix))}
    shown = sh(load_and_run, digits, env=env)
    assert "this is a 3" in shown
    out = sh(compile_and_run, DIGITS, env=env)
    numbers = [float(w) for w in out.split(":")[1].split()]
    assert "2 dimensions" in out and len(numbers) == 10 and abs(sum(numbers) - 1) < 1e-4
    bad = subprocess.run([load_and_run, str(DIGITS)], text=True, capture_output=True, env=env)
    assert bad.returncode == 1 and bad.stderr.startswith("error: ")


def test_plugins_are_where_the_runtime_looks(prefix):
    built = {p.name for p in (BUILD / "lathe-plugins").glob("*.so")}
    assert {p.name for p in (libdir(prefix) / "lathe-plugins").glob("*.so")} == built
    for plugin in (libdir(prefix) / "lathe-plugins").glob("*.so"):
        assert "[$ORIGIN/..]" in sh("readelf", "-d", plugin)


def test_pkg_config(prefix, digits, tmp_path):
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    env = {**os.environ, "PKG_CONFIG_PATH": str(next(prefix.glob("**/lathe_rt.pc")).parent)}
    made = []
    for name, package in (("load_and_run", "lathe_rt"), ("compile_and_run", "lathe")):
        flags = sh("pkg-config", "--cflags", "--libs", package, env=env).split()
        assert any(f.startswith("-I") and os.path.samefile(f[2:], prefix / "include") for f in flags)
        made.append(tmp_path / name)
        sh("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", ROOT / f"examples/c/{name}.c", *flags, "-o", made[-1])
    needed = sh("readelf", "-d", made[0])
    assert "[liblathe_rt.so.2]" in needed and "liblathe.so" not in needed
    check(prefix, *made, digits)


def test_find_package(prefix, digits, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(lathe REQUIRED)\n"
        f"add_executable(load_and_run {ROOT}/examples/c/load_and_run.c)\ntarget_link_libraries(load_and_run lathe::lathe_rt)\n"
        f"add_executable(compile_and_run {ROOT}/examples/c/compile_and_run.c)\ntarget_link_libraries(compile_and_run lathe::lathe)\n"
    )
    sh("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    sh("cmake", "--build", tmp_path / "b")
    check(prefix, tmp_path / "b/load_and_run", tmp_path / "b/compile_and_run", digits)


def test_an_exported_library_needs_the_runtime_alone(digits):
    needed = [line.split("[")[1].rstrip("]") for line in sh("readelf", "-d", digits).splitlines() if "NEEDED" in line]
    assert all(n.startswith(("libm.", "libc.", "liblathe_rt.")) for n in needed), needed
    assert np.frombuffer(digits.read_bytes()[:4], "uint8").tolist() == [0x7F, 0x45, 0x4C, 0x46]


@plain_build
def test_the_runtime_is_small(prefix, tmp_path):
    """Under 100 KB stripped, on libc and libm alone."""
    library = libdir(prefix) / "liblathe_rt.so"
    sh("strip", "-o", tmp_path / "rt.so", library)
    assert (tmp_path / "rt.so").stat().st_size < 100_000
    needed = [line.split("[")[1].rstrip("]") for line in sh("readelf", "-d", library).splitlines() if "NEEDED" in line]
    assert all(n.startswith(("libm.", "libc.", "ld-linux")) for n in needed), needed


def test_a_model_and_the_runtime_linked_in(prefix, tmp_path):
    """pkg-config --static and lathe::lathe_rt_static: a program that needs no library of Lathe's."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(libdir(prefix))}
    sh(prefix / "bin/lathe", "compile", DIGITS, "-o", tmp_path / "digits.a", "--shape", "pixels=1,1,8,8", env=env)
    sh(
        "cc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{prefix}/include",
        f"-I{tmp_path}",
        ROOT / "examples/c/linked.c",
        tmp_path / "digits.a",
        libdir(prefix) / "liblathe_rt.a",
        "-lpthread",
        "-ldl",
        "-lm",
        "-o",
        tmp_path / "linked",
    )
    assert "this is a 3" in sh(tmp_path / "linked")
    assert "liblathe" not in sh("readelf", "-d", tmp_path / "linked")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(lathe REQUIRED)\n"
        f"add_executable(linked {ROOT}/examples/c/linked.c)\ntarget_include_directories(linked PRIVATE {tmp_path})\n"
        f"target_link_libraries(linked {tmp_path}/digits.a lathe::lathe_rt_static)\n"
    )
    sh("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    sh("cmake", "--build", tmp_path / "b")
    assert "this is a 3" in sh(tmp_path / "b/linked")


def test_sonames_and_exported_symbols(prefix):
    """liblathe.so -> liblathe.so.0 -> liblathe.so.0.1.0; exported is what the headers declare, no more."""
    for name, prefixes, version, number in (("lathe", "lathe_", "LATHE_0", 0), ("lathe_rt", "lathe_rt_", "LATHE_RT_2", 2)):
        link = libdir(prefix) / f"lib{name}.so"
        assert os.readlink(link) == f"lib{name}.so.{number}"
        assert re.fullmatch(rf"lib{name}\.so\.\d+\.\d+\.\d+", os.readlink(f"{link}.{number}"))
        assert f"soname: [lib{name}.so.{number}]" in sh("readelf", "-d", link)
        shown = [line.split() for line in sh("nm", "-D", "--defined-only", link).splitlines()]
        exported = [words[2] for words in shown if words[1] != "A"]  # A: the version itself
        declared = re.findall(rf"\b({prefixes}\w+)\(", (prefix / f"include/{name}.h").read_text())
        assert sorted(exported) == sorted(f"{n}@@{version}" for n in set(declared))


# ---- the wheel

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    sh(*PIP, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", place, ROOT,
       env={**os.environ, "LATHE_BUILD": str(BUILD)})
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs a program of an environment that has the wheel and numpy, and no LLVM."""
    place = tmp_path_factory.mktemp("venv")
    sh(sys.executable, "-m", "venv", "--without-pip", place)
    sh(*PIP, "--python", place / "bin/python", "install", "-q", "--no-deps", wheel)
    package = next(place.glob("lib/python*/site-packages/lathe"))
    numpy = pathlib.Path(np.__file__).parents[1]
    (package.parent / "numpy.pth").write_text(f"{numpy}\n")

    def run(program, *args, status=0, **env):
        given = {k: v for k, v in NO_LLVM.items() if k not in ("PYTHONPATH", "LATHE_LIBRARY_PATH")}
        given.update(env)
        words = [str(place / "bin" / program), *map(str, args)]
        done = subprocess.run(words, text=True, capture_output=True, timeout=300, env=given, cwd=place)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    run.package = package
    return run


RUN_DIGITS = """
import json, sys
import numpy as np
import lathe
from lathe.contrib import graph_executor
model = graph_executor.GraphModule(lathe.runtime.load_module(sys.argv[1])["default"](lathe.cpu(0)))
model.set_input("pixels", lathe.nd.array(np.load(sys.argv[2])))
model.run()
mapped = {line.split()[-1].split("/")[-1] for line in open("/proc/self/maps")}
loaded = sorted(name for name in mapped if "liblathe" in name or "LLVM" in name)
print(json.dumps([model.get_output(0).numpy().tolist(), loaded, lathe.__version__]))
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """An image, and what ONNX Runtime says of it."""
    ort = pytest.importorskip("onnxruntime")
    image = np.random.default_rng(3).random((1, 1, 8, 8), "float32")
    path = tmp_path_factory.mktemp("image") / "image.npy"
    np.save(path, image)
    session = ort.InferenceSession(DIGITS.read_bytes(), providers=["CPUExecutionProvider"])
    return path, session.run(None, {"pixels": image})[0]


@plain_build
def test_the_tag_is_what_the_files_need(wheel, tmp_path):
    shutil.unpack_archive(wheel, tmp_path, "zip")
    plugins = sorted(tmp_path.glob("lathe/lib/lathe-plugins/*.so"))
    assert [p.name for p in plugins] == ["lathe_plugin_npu.so", "lathe_plugin_onnxruntime.so"]
    files = [tmp_path / "lathe/bin/lathe", *tmp_path.glob("lathe/lib/*.so.*"), *plugins]
    assert len(files) == 5
    versions = {(2, 17)}
    for path in files:
        versions |= {(int(a), int(b)) for a, b in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", sh("readelf", "-V", path))}
        shown = sh("readelf", "-d", path)
        searched = ":".join(re.findall(r"runpath: \[(.*)\]", shown)).split(":")
        assert "LLVM" not in shown and all(folder == "" or folder.startswith("$ORIGIN") for folder in searched)
    oldest = max(versions)
    assert wheel.name.endswith(f"-py3-none-manylinux_{oldest[0]}_{oldest[1]}_{os.uname().machine}.whl")


@plain_build
def test_files_of_this_machine_alone_are_refused(tmp_path):
    """Another library, or a search path that no other machine has, is no wheel's."""
    (tmp_path / "a.c").write_text("int other(void); int f(void) { return other(); }")
    (tmp_path / "b.c").write_text("int other(void) { return 1; }")
    sh("cc", "-shared", "-fPIC", "-o", tmp_path / "libother.so.3", tmp_path / "b.c", "-Wl,-soname,libother.so.3")
    sh("cc", "-shared", "-fPIC", "-o", tmp_path / "a.so", tmp_path / "a.c", tmp_path / "libother.so.3")
    sh("cc", "-shared", "-fPIC", "-o", tmp_path / "b.so", tmp_path / "b.c", f"-Wl,-rpath,{tmp_path}")
    ask = "import sys, wheel_backend; print(wheel_backend.platform_tag({'x': open(sys.argv[1], 'rb').read()}))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    for name, reason in (("a.so", "x needs libother.so.3"), ("b.so", f"x looks for libraries in {tmp_path}")):
        words = [sys.executable, "-c", ask, str(tmp_path / name)]
        done = subprocess.run(words, text=True, capture_output=True, env=env)
        assert done.returncode == 1 and done.stderr.startswith(reason)
    assert sh(sys.executable, "-c", ask, tmp_path / "libother.so.3", env=env).startswith("manylinux_2_")


@plain_build
def test_a_compiled_model_runs_on_the_runtime_alone(installed, digits, expected):
    image, want = expected
    got, loaded, version = json.loads(installed("python", "-c", RUN_DIGITS, digits, image))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert loaded == ["liblathe_rt.so.2"] and installed("lathe", "--version") == f"lathe {version}\n"
    compiler = installed.package / "lib/liblathe.so.0"
    compiler.rename(compiler.with_suffix(".away"))
    try:
        assert json.loads(installed("python", "-c", RUN_DIGITS, digits, image))[0] == got
        refused = installed("python", "-c", "import lathe; lathe.relay.var('x')", status=1)
        assert "ImportError: liblathe.so.0 was not found" in refused
    finally:
        compiler.with_suffix(".away").rename(compiler)


@plain_build
def test_compiling_without_llvm(installed, expected, tmp_path):
    """Refused with what to install; target c needs a C compiler alone, and LLVM is used where it is."""
    image, want = expected
    shape = ("--shape", "pixels=1,1,8,8")
    compile_to = ("compile", DIGITS, *shape, "-o")
    build = "from lathe import relay; x = relay.var('x', shape=(2,)); relay.build(relay.Function([x], -x), 'llvm')"

    def result(path):
        answer, loaded, _ = json.loads(installed("python", "-c", RUN_DIGITS, path, image))
        assert loaded == ["liblathe_rt.so.2"]
        return answer

    if "LATHE_LLVM:BOOL=ON" in CACHE:
        refused = tmp_path / "no.so"
        by_command = installed("lathe", *compile_to, refused, status=1)
        for text in (by_command, installed("python", "-c", build, status=1)):
            assert "needs LLVM" in text and "install it (Debian, Ubuntu: libllvm19" in text and "target 'c'" in text
        text = installed("lathe", *compile_to, refused, status=1, LATHE_LLVM_LIBRARY="libm.so.6")
        assert "is not LLVM of version 14 to 22" in text and not refused.exists()
        installed("lathe", *compile_to, tmp_path / "llvm.so", LATHE_LLVM_LIBRARY="")
        np.testing.assert_allclose(result(tmp_path / "llvm.so"), want, rtol=1e-5, atol=1e-6)
    installed("lathe", *compile_to, tmp_path / "c.so", "--target", "c")
    np.testing.assert_allclose(result(tmp_path / "c.so"), want, rtol=1e-5, atol=1e-6)


def test_completions_and_the_man_page(prefix):
    """As the program prints them; bash finds the command's completion in what was installed."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(libdir(prefix))}
    share = prefix / "share"
    pages = {"bash-completion/completions/lathe": ["completion", "bash"],
             "zsh/site-functions/_lathe": ["completion", "zsh"],
             "fish/vendor_completions.d/lathe.fish": ["completion", "fish"], "man/man1/lathe.1": ["man"]}
    for path, command in pages.items():
        assert (share / path).read_text() == sh(prefix / "bin/lathe", *command, env=env)
    offered = sh("bash", "-c", f"source {share}/bash-completion/completions/lathe; COMP_WORDS=(lathe insp);"
                 " COMP_CWORD=1; _lathe; echo ${COMPREPLY[@]}")
    assert offered == "inspect\n"
