#!/usr/bin/env python3
"""Runs the tests of a build folder: layers and symbols, C tests, text cases, pytest (but for those marked slow).

    tests/run.py BUILD [--c-only] [--python-only] [--match PART …] [--without PART …] [--select NAME] [--jobs N]
                 [--runner COMMAND] [--tests FILE …] [--machines NAME …]

Tests run --jobs at a time (default: one a CPU, four at most); those that measure threads or memory run alone after
the others.  --runner is for programs of another architecture: what to put before a C test; --select is a choice
that tests/selection.py makes; --machines are those of tests/python/machines.py, on each of which test_end_to_end.py
runs its models.  The last line counts passed, failed and skipped."""
import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import check_layers  # noqa: E402
import check_symbols  # noqa: E402
import selection  # noqa: E402


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


ALONE = re.compile("pool|workers")       # C tests of the thread pool: they want every CPU


def c_test(program, runner):
    """(passed, failed, skipped, seconds, output) of one program."""
    status, output, seconds = run([*runner, str(program)], CMOCKA_MESSAGE_OUTPUT="TAP")
    lines = output.split("\n")
    skipped = sum(bool(re.match(r"(not )?ok \d+.*# SKIP", line)) for line in lines)
    passed = sum(bool(re.match(r"ok \d+(?!.*# SKIP)", line)) for line in lines)
    failed = sum(bool(re.match(r"not ok \d+(?!.*# SKIP)", line)) for line in lines)
    if status and not failed:
        failed = 1          # it died
    if not passed and not failed and not skipped:
        failed, output = 1, "the program ran no test\n" + output
    return passed, failed, skipped, seconds, output


def text_cases(program, runner):
    status, output, seconds = run([*runner, str(program), "src"])
    found = re.findall(r"^(\d+) passed, (\d+) failed$", output, re.M)
    passed, failed = map(int, found[-1]) if found else (0, 1)
    return passed, failed if failed or not status else 1, 0, seconds, output


def c_tests(build, args, count):
    there = [p for p in sorted((build / "tests").glob("*_test_*")) if os.access(p, os.X_OK)]
    cases = build / "cases"
    for part in args.match or [""]:
        if not any(re.search(part, p.name) for p in [*there, cases]):
            count.add(part, 0, 1, 0, 0, f"no C test of {build} has a name with '{part}'")
    programs = [p for p in [*there, cases] if any(re.search(part, p.name) for part in args.match or [""])
                and not any(re.search(part, p.name) for part in args.without)]
    alone = [p for p in programs if ALONE.search(p.name)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = [(p.name, pool.submit(text_cases if p == cases else c_test, p, args.runner))
                   for p in programs if p not in alone]
        for name, result in results:
            count.add(name, *result.result())
    for program in alone:
        count.add(program.name, *c_test(program, args.runner))


def python_tests(build, args, which, jobs, count, **env):
    """One pytest over the tests that the expression of markers `which` chooses."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        split = ["-n", str(jobs)] if jobs > 1 and importlib.util.find_spec("xdist") else []
        status, output, seconds = run([sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *split,
                                       "-m", which, "--junitxml", report, *args.tests],
                                      PYTHONPATH=str(ROOT / "python"), LATHE_LIBRARY_PATH=str(build), **env)
        try:
            suite = ElementTree.parse(report).getroot().find("testsuite").attrib
            total, skipped = int(suite["tests"]), int(suite["skipped"])
            failed = int(suite["failures"]) + int(suite["errors"])
        except (OSError, ElementTree.ParseError):
            total = skipped = 0
            failed = 1
        if status == 5:
            status = 0         # pytest found none that `which` chooses, or skipped the whole file
        name = env.get("LATHE_MACHINE") or ("python" if jobs > 1 else "python, alone")
        count.add(name, total - failed - skipped, failed or bool(status), skipped, seconds, output)
        for line in re.findall(r"^SKIPPED.*$", output, re.M):
            print("   " + line)
        return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--c-only", action="store_true", help="only the C tests and the text cases")
    parser.add_argument("--match", action="append", help="only C tests whose name this expression finds, nothing else")
    parser.add_argument("--without", action="append", default=[], help="no C test whose name this expression finds")
    parser.add_argument("--select", choices=sorted(selection.SELECTIONS), help="a choice of tests/selection.py")
    parser.add_argument("--python-only", action="store_true", help="only pytest")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="how many tests at a time")
    parser.add_argument("--runner", type=shlex.split, default=[], help="what to put before a C test")
    parser.add_argument("--tests", nargs="+", default=["tests/python"], help="files for pytest")
    parser.add_argument("--machines", nargs="+", help="where test_end_to_end.py runs its models, one after the other")
    args = parser.parse_args()
    for option, chosen in selection.SELECTIONS.get(args.select, {}).items():
        setattr(args, option, chosen)
    build = args.build.resolve()
    count = Count()
    if not (args.match or args.python_only):
        problems = check_layers.violations()
        count.add("layers", not problems, bool(problems), 0, 0, "\n".join(problems))
    if not (args.match or args.c_only or args.python_only):       # the C tests alone do not need everything built
        problems = check_symbols.violations(build)
        count.add("symbols", not problems, bool(problems), 0, 0, "\n".join(problems))
    if not args.python_only:
        c_tests(build, args, count)
    for machine in args.machines or []:
        if not python_tests(build, args, "not slow", args.jobs, count, LATHE_MACHINE=machine):
            count.add(machine, 0, 1, 0, 0, "pytest ran no test")
    if not args.machines and (args.python_only or not (args.match or args.c_only)):
        ran = python_tests(build, args, "not slow and not alone", args.jobs, count)
        ran += python_tests(build, args, "alone and not slow", 1, count)
        if not ran:
            count.add("python", 0, 1, 0, 0, "pytest ran no test")
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    sys.exit(bool(count.failed))


if __name__ == "__main__":
    main()
