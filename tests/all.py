#!/usr/bin/env python3
"""Runs what `make test` leaves out: networks marked slow, the public ONNX suites, the C tests of the other
architecture, long fuzzing.

    tests/all.py [--part K/N] [--list]

Each is a unit; the units are sorted by name, and part K of N (K from 1) is every Nth of them from the Kth.  Wants
build, build-cross and build-fuzz as `make test-all` makes them."""
import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "LATHE_LIBRARY_PATH": str(ROOT / "build")}
FUZZ_SECONDS = 60


def slow_tests():
    listed = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "slow", "--collect-only", "tests/python"],
                            cwd=ROOT, env=OURS, capture_output=True, text=True)
    if listed.returncode:
        sys.exit("pytest cannot list the slow tests:\n" + listed.stdout + listed.stderr)
    return [line for line in listed.stdout.split("\n") if "::" in line]


def units():
    """Name, command and environment of each, sorted by name."""
    found = [("conformance", [sys.executable, "tests/conformance.py"], OURS)]
    for test in slow_tests():
        found.append((test, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test], OURS))
    cross = ["tools/cross-run", "build-cross"]
    for program in (ROOT / "build-cross/tests").glob("*_test_*"):
        found.append((f"cross {program.name}", [*cross, str(program)], os.environ))
    found.append(("cross cases", [*cross, "build-cross/cases", "src"], os.environ))
    for target in (ROOT / "build-fuzz/fuzz").glob("fuzz_*"):
        if "." not in target.name and "-" not in target.name and os.access(target, os.X_OK):
            command = ["sh", "tests/fuzz.sh", "build-fuzz", str(FUZZ_SECONDS), target.name]
            found.append((f"fuzz {target.name}", command, os.environ))
    return sorted(found, key=lambda unit: unit[0])


def part_of(text):
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise ValueError(text)
    return k, n


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="K/N", help="every Nth unit from the Kth")
    parser.add_argument("--list", action="store_true", help="names the units and runs none")
    args = parser.parse_args()
    k, n = args.part
    chosen = units()[k - 1::n]
    failed = 0
    for name, command, env in chosen:
        if args.list:
            print(name)
            continue
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=env, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        failed += bool(done.returncode)
        verdict = "FAILED" if done.returncode else "ok"
        print(f"{name:60s} {time.monotonic() - start:7.1f} s  {verdict}", flush=True)
        if done.returncode:
            print(done.stdout[-8000:], flush=True)
    print(f"part {k} of {n}: {len(chosen) - failed} passed, {failed} failed")
    sys.exit(bool(failed) or not chosen)


if __name__ == "__main__":
    main()
