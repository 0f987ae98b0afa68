#!/usr/bin/env python3
"""Runs what `make test`, `make test-cross`, `make test-c-backend` and `make asan` leave out: networks marked slow, the
public ONNX suites, more tests of other architectures, of the C backend and with sanitizers, long fuzzing.

    tests/all.py [--part K/N] [--match PART] [--ci] [--list]

Each is a unit; the units are sorted by name, and part K of N (K from 1) is every Nth of them from the Kth; with --ci
of those that tests/selection.py does not keep out of CI.  Wants
build, build-asan, build-c, build-cross and build-fuzz as `make test-all` makes them."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

import conformance
import selection

ROOT = pathlib.Path(__file__).resolve().parent.parent
FUZZ_SECONDS = 60


def pytest_of(build, *args):
    env = {"PYTHONPATH": str(ROOT / "python"), "LATHE_LIBRARY_PATH": str(ROOT / build)}
    return [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *args], env


def slow_tests():
    command, env = pytest_of("build", "-m", "slow", "--collect-only", "tests/python")
    listed = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True)
    if listed.returncode:
        sys.exit("pytest cannot list the slow tests:\n" + listed.stdout + listed.stderr)
    return [line for line in listed.stdout.split("\n") if "::" in line]


def fuzz_targets():
    for path in (ROOT / "build-fuzz/fuzz").glob("fuzz_*"):
        if "." not in path.name and "-" not in path.name and os.access(path, os.X_OK):
            yield path.name


def units():
    """Name, command and environment of each, sorted by name."""
    ours = [sys.executable, "tests/run.py"]
    build = {"PYTHONPATH": str(ROOT / "python"), "LATHE_LIBRARY_PATH": str(ROOT / "build")}
    found = [(f"conformance {suite}", [sys.executable, "tests/conformance.py", "--suite", suite], build)
             for suite in conformance.GOALS]
    found += [(f"slow {test}", *pytest_of("build", test)) for test in slow_tests()]
    for name in selection.c_backend_rest(ROOT / "tests/python"):
        command = [*ours, "build-c", "--python-only", "--tests", f"tests/python/{name}"]
        found.append((f"c-backend {name}", command, {"CC": str(ROOT / "tests/quick-cc")}))
    for name in selection.later(ROOT / "build-asan/tests", selection.ASAN_LATER):
        found.append((f"asan {name}", [*ours, "build-asan", "--c-only", "--match", f"^{name}$"], {}))
    for name in selection.later(ROOT / "build-c/tests", selection.C_BACKEND_LATER):
        command = [*ours, "build-c", "--c-only", "--match", f"^{name}$"]
        found.append((f"c-backend {name}", command, {"CC": str(ROOT / "tests/quick-cc")}))
    for name in selection.cross_rest(ROOT / "build-cross/tests"):
        command = [*ours, "build-cross", "--runner", "tools/cross-run build-cross", "--match", f"^{name}$"]
        found.append((f"cross {name}", command, {}))
    for name in selection.MACHINES_LATER:
        command = [*ours, "build", "--python-only", "--machines", name, "--tests", *selection.END_TO_END]
        found.append((f"machine {name}", command, {}))
    for target in fuzz_targets():
        found.append((f"fuzz {target}", ["sh", "tests/fuzz.sh", "build-fuzz", str(FUZZ_SECONDS), target], {}))
    return sorted(found, key=lambda unit: unit[0])


def part_of(text):
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise ValueError(text)
    return k, n


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="K/N", help="every Nth unit from the Kth")
    parser.add_argument("--ci", action="store_true", help="without what selection.CI_NEVER names")
    parser.add_argument("--list", action="store_true", help="names the units and runs none")
    parser.add_argument("--match", default="", help="only units whose name this expression finds")
    args = parser.parse_args()
    k, n = args.part
    there = [unit for unit in units() if not (args.ci and selection.finds(selection.CI_NEVER, unit[0]))]
    chosen = [unit for unit in there[k - 1::n] if re.search(args.match, unit[0])]
    if args.list:
        print("\n".join(name for name, _, _ in chosen))
        return
    failed = 0
    for name, command, env in chosen:
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        failed += bool(done.returncode)
        verdict = "FAILED" if done.returncode else "ok"
        print(f"{name:60s} {time.monotonic() - start:7.1f} s  {verdict}", flush=True)
        if done.returncode:
            print(done.stdout[-8000:], flush=True)
        for line in re.findall(r"^(?: *SKIPPED|\S+: skipped,).*$", done.stdout, re.M):
            print("   " + line.strip())
    print(f"part {k} of {n}: {len(chosen) - failed} passed, {failed} failed")
    sys.exit(bool(failed) or not chosen)


if __name__ == "__main__":
    main()
