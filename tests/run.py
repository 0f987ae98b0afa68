#!/usr/bin/env python3
"""Runs the tests of a build folder: layers and symbols, C tests, text cases, pytest (but for those marked slow).

    tests/run.py BUILD [--c-only] [--match PART]

The last line counts passed, failed and skipped."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import check_layers  # noqa: E402
import check_symbols  # noqa: E402


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, name, passed, failed, skipped, seconds, output=""):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        verdict = "FAILED" if failed else "ok"
        skips = f", {skipped} skipped" if skipped else ""
        print(f"{name:34s} {passed:5d} passed{skips}  {seconds:6.1f} s  {verdict}", flush=True)
        if failed and output:
            print(output, flush=True)


def run(command, **env):
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout, time.monotonic() - start


def c_tests(build, match, count):
    for program in sorted((build / "tests").glob("*_test_*")):
        if match not in program.name or not os.access(program, os.X_OK):
            continue
        status, output, seconds = run([str(program)], CMOCKA_MESSAGE_OUTPUT="TAP")
        lines = output.split("\n")
        skipped = sum(bool(re.match(r"(not )?ok \d+.*# SKIP", line)) for line in lines)
        passed = sum(bool(re.match(r"ok \d+", line)) for line in lines) - skipped
        failed = sum(bool(re.match(r"not ok \d+", line)) for line in lines)
        if status and not failed:
            failed = 1          # it died
        if not passed and not failed and not skipped:
            failed, output = 1, "the program ran no test\n" + output
        count.add(program.name, passed, failed, skipped, seconds, output)


def text_cases(build, count):
    status, output, seconds = run([str(build / "cases"), "src"])
    found = re.findall(r"^(\d+) passed, (\d+) failed$", output, re.M)
    passed, failed = map(int, found[-1]) if found else (0, 1)
    count.add("cases", passed, failed if failed or not status else 1, 0, seconds, output)


def python_tests(build, count):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        status, output, seconds = run([sys.executable, "-m", "pytest", "-q", "-rs", "-m", "not slow", "--junitxml", report, "tests/python"],
                                      PYTHONPATH="python", LATHE_LIBRARY_PATH=str(build))
        try:
            suite = ElementTree.parse(report).getroot().find("testsuite").attrib
            total, skipped = int(suite["tests"]), int(suite["skipped"])
            failed = int(suite["failures"]) + int(suite["errors"])
        except (OSError, ElementTree.ParseError):
            total = skipped = 0
            failed = 1
        count.add("python", total - failed - skipped, failed or bool(status), skipped, seconds, output)
        for line in re.findall(r"^SKIPPED.*$", output, re.M):
            print("   " + line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--c-only", action="store_true", help="only the C tests and the text cases")
    parser.add_argument("--match", default="", help="only C tests with this in their name, and nothing else")
    args = parser.parse_args()
    build = args.build.resolve()
    count = Count()
    if not args.match:
        problems = check_layers.violations()
        count.add("layers", not problems, bool(problems), 0, 0, "\n".join(problems))
        problems = check_symbols.violations(build)
        count.add("symbols", not problems, bool(problems), 0, 0, "\n".join(problems))
    c_tests(build, args.match, count)
    if not args.match:
        text_cases(build, count)
        if not args.c_only:
            python_tests(build, count)
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    sys.exit(bool(count.failed))


if __name__ == "__main__":
    main()
