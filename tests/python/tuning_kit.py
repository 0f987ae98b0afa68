"""What the tests of tuning share: the program, its runs, the records of a database, a loop program to tune."""

import json
import os
import pathlib
import resource
import signal
import subprocess

import lathe

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"


def host_target():
    return f"{lathe.target.Target()} -num-cores=1"


def lathe_run(*args, ok=True, **kwargs):
    done = subprocess.run([PROGRAM, *map(str, args)], text=True, capture_output=True, check=False, **kwargs)
    if ok:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def tune(what, db, *more, **kwargs):
    return lathe_run("tune", what, "--db", db, "--threads", 1, *more, **kwargs)


def records(db):
    """The lines of an export."""
    return [json.loads(line) for line in lathe_run("db", "export", db).stdout.splitlines() if line]


def small_disk():
    """For preexec_fn: no file grows beyond a page, and the write that would fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def product_script(m, n, k):
    """TVMScript of a product of matrices."""
    return f"""
from tvm.script import tir as T

@T.prim_func
def product(A: T.Buffer(({m}, {k}), "float32"), B: T.Buffer(({k}, {n}), "float32"), C: T.Buffer(({m}, {n}), "float32")):
    for i, j, k in T.grid({m}, {n}, {k}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
