"""An installed tree: C programs against it, through pkg-config and through CMake."""

import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve()
DIGITS = ROOT / "examples/digits/digits.onnx"

pytestmark = pytest.mark.skipif(not (BUILD / "CMakeCache.txt").exists() or not shutil.which("cmake"), reason="needs a build folder and cmake")


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
    assert "liblathe_rt.so" in needed and "liblathe.so" not in needed
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


def test_the_runtime_is_small(prefix, tmp_path):
    """Under 100 KB stripped, on libc and libm alone."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    if "LATHE_SANITIZE:STRING=\n" not in cache:
        pytest.skip("a build with sanitizers is larger")
    library = libdir(prefix) / "liblathe_rt.so"
    sh("strip", "-o", tmp_path / "rt.so", library)
    assert (tmp_path / "rt.so").stat().st_size < 100_000
    needed = [line.split("[")[1].rstrip("]") for line in sh("readelf", "-d", library).splitlines() if "NEEDED" in line]
    assert all(n.startswith(("libm.", "libc.", "ld-linux")) for n in needed), needed


def test_a_model_and_the_runtime_linked_in(prefix, tmp_path):
    """pkg-config --static and lathe::lathe_rt_static: a program that needs no library of Lathe's."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(libdir(prefix))}
    sh(prefix / "bin/lathe", "compile", DIGITS, "-o", tmp_path / "digits.a", "--shape", "pixels=1,1,8,8", env=env)
    sh("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{prefix}/include", f"-I{tmp_path}", ROOT / "examples/c/linked.c", tmp_path / "digits.a",
       libdir(prefix) / "liblathe_rt.a", "-lpthread", "-ldl", "-lm", "-o", tmp_path / "linked")
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
