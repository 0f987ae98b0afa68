"""Which tests run where a test is dear: under an emulator, with every kernel through a C compiler, with sanitizers.

`make test-cross`, `make test-c-backend` and `make asan` take these; tests/all.py has the rest, but for what it says."""

import pathlib
import re

# C tests for the other architecture, as expressions over their names: every layer, and of those that call LLVM, which
# is 60 to 100 times slower under an emulator than on a machine, the ones that make and load machine code.
CROSS = ["^(base|cli|expr|frontend|graph|impl|op|pass|target|te|tir)_", "^schedule_test_[bklst]", "^lower_test_[glp]",
         "^runtime_(serial_)?test_[dmst]", "^codegen_test_(c|cuda|llvm|llvm_tile)$", "^driver_test_static$"]

# C tests that are too long for a part of CI there (much code through LLVM), or wait for threads that an emulator does
# not wake: tools/device-check runs them on a machine of that architecture.
CROSS_NEVER = ["^build_", "_hostile$", "_random_graphs$", "^api_test_model$", "^codegen_test_llvm_expr$",
               "^runtime_test_pool"]

# With a build that has no LLVM: C tests with so many kernels that they are left to tests/all.py, and the Python tests.
C_BACKEND_LATER = ["^build_test_impl_(matmul|transpose)$"]
C_BACKEND = ["attention", "build", "cli", "closures", "end_to_end", "fast_math", "linking", "memory_operators",
             "onnx_reference", "open_sizes", "relay_operators", "runtime", "schedule", "strings", "te", "tir",
             "tvm_programs", "user_operators", "values"]

# With sanitizers: C tests that compile so much that they are left to tests/all.py.
ASAN_LATER = ["^build_test_impl_(attention|conv|fast|matmul|transpose)$", "^codegen_test_llvm_expr$",
              "^driver_test_random_graphs$"]

# Machines of tests/python/machines.py on which the models of test_end_to_end.py run, compiled here: those that
# `make test-cross` takes, and those that tests/all.py adds.
END_TO_END = ["tests/python/test_end_to_end.py"]
MACHINES = ["armv7-neon", "riscv64-v", "node"]
MACHINES_LATER = ["aarch64", "armv7", "chromium", "riscv64", "x86-64"]

# Units of tests/all.py that CI's rotating part leaves out: whole networks, some of minutes each (`make test-slow`);
# models on machines without vectors and in Chromium, which CI does not install; C tests that compile much or measure, which
# under the emulator is minutes each as well.
CI_NEVER = ["^slow ", "^machine ",
            "^cross (driver_test_st|lower_test_(dtypes|random)|schedule_test_random|tune_test_[ms])"]

SELECTIONS = {
    "asan": {"without": ASAN_LATER},
    "cross": {"match": CROSS},
    "machines": {"python_only": True, "tests": END_TO_END, "machines": MACHINES},
    "c-backend": {"without": C_BACKEND_LATER, "tests": [f"tests/python/test_{name}.py" for name in C_BACKEND]},
}


def finds(parts, name):
    return any(re.search(part, name) for part in parts)


def cross_rest(folder):
    """The C tests of a build for another architecture that `make test-cross` leaves out and that end there."""
    names = sorted(p.name for p in pathlib.Path(folder).glob("*_test_*"))
    return [name for name in names if not finds(CROSS + CROSS_NEVER, name)]


def later(folder, parts):
    """The C tests of a build that its own target leaves out."""
    return sorted(p.name for p in pathlib.Path(folder).glob("*_test_*") if finds(parts, p.name))


def c_backend_rest(folder):
    """The files of Python tests that `make test-c-backend` leaves out."""
    names = sorted(p.name for p in pathlib.Path(folder).glob("test_*.py"))
    return [name for name in names if name[5:-3] not in C_BACKEND]
