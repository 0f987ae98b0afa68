"""lathe.testing: what users' own tests stand on.  Tests of users are run as such, by pytest in a process of its own."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import lathe as tvm
import lathe.testing
from lathe.script import tir as T

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_tests(tmp_path, text, *args, env=None):
    """The counts that pytest reports for a file of tests, and its whole output."""
    (tmp_path / "test_it.py").write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **(env or {})}
    command = [sys.executable, "-m", "lathe.tvm", "-m", "pytest", "-rs", "-p", "no:cacheprovider", "test_it.py", *args]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    counts = {k: int(n) for n, k in re.findall(r"(\d+) (passed|failed|skipped|xfailed|xpassed|error)", done.stdout)}
    return counts, done.stdout + done.stderr


def test_parameters_and_fixtures(tmp_path):
    counts, out = run_tests(
        tmp_path,
        """
        import tvm, tvm.testing
        size = tvm.testing.parameter(1, 10)
        named = tvm.testing.parameter(by_dict={"small": [1], "large": [100]})
        a, b = tvm.testing.parameters((1, "x"), (2, "y"), (3, "z"))
        seen, runs = [], []

        @tvm.testing.fixture(cache_return_value=True)
        def made(size):
            runs.append(size)
            return [size]

        def test_product(size, named): named.append(size)
        def test_together(a, b): assert "xyz"[a - 1] == b
        def test_cached(made, a):
            assert len(made) == 1
            made.append(0)
        def test_cached_ran_once(): assert sorted(runs) == [1, 10]

        class TestClass:
            p, q = tvm.testing.parameters((1, 2), (3, 4))
            def test_pairs(self, p, q): assert p + 1 == q
        """,
    )
    assert counts == {"passed": 4 + 3 + 6 + 1 + 2}, out


def test_targets(tmp_path):
    counts, out = run_tests(
        tmp_path,
        """
        import pytest, tvm, tvm.testing
        def test_each(target, dev): assert dev.exist and isinstance(tvm.target.Target(target), tvm.target.Target)
        @tvm.testing.parametrize_targets("c", "vulkan", "cuda -arch=sm_80")
        def test_given(target, dev): assert target == "c" and dev == tvm.cpu(0)
        @tvm.testing.parametrize_targets
        def test_plain(target): assert target
        @tvm.testing.known_failing_targets("c")
        def test_failing(target): assert target != "c"
        @tvm.testing.exclude_targets("c")
        def test_excluded(target): assert target != "c"
        @tvm.testing.requires_vulkan
        def test_vulkan(): assert False
        @tvm.testing.requires_cuda(support_required="compile-only")
        def test_compiles(): assert "cuda" in tvm.target.Target.list_kinds()
        @tvm.testing.requires_cuda_compute_version(99)
        def test_capability(): assert False
        @tvm.testing.skip_if_32bit
        def test_pointers(): pass
        @tvm.testing.requires_nvcc_version(99)
        def test_version(): assert False
        @tvm.testing.requires_package("no_such_package")
        def test_package(): assert False
        @pytest.mark.parametrize("x", [pytest.param(1, marks=tvm.testing.requires_rocm.marks())])
        def test_marked(x): assert False
        """,
        env={"TVM_TEST_TARGETS": "c;vulkan"},
    )
    assert counts == {"passed": 5, "skipped": 8, "xfailed": 1}, out
    assert "code for vulkan cannot be made here" in out and "no_such_package" in out


def test_main_runs_the_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import lathe as tvm, lathe.testing\ndef test_a(target): assert target == 'c'\ndef test_b(): assert False\n"
        "if __name__ == '__main__': tvm.testing.main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TVM_TEST_TARGETS": "c"}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr


def test_enabled_targets():
    targets = lathe.testing.enabled_targets()
    assert targets and all(dev.exist and lathe.testing.device_enabled(t) for t, dev in targets)
    assert not lathe.testing.device_enabled("vulkan")


def test_check_numerical_grads():
    x = np.array([1.0, 2.0, -3.0])
    lathe.testing.check_numerical_grads(lambda a: (a**2).sum(), [x], [2 * x])
    with pytest.raises(AssertionError, match="argument 0"):
        lathe.testing.check_numerical_grads(lambda a: (a**2).sum(), [x], [3 * x])


def test_check_bool_expr_is_true():
    x, y = tvm.tir.Var("x", "int32"), tvm.tir.Var("y", "int32")
    ranges = {x: tvm.ir.Range(-5, 6), y: tvm.ir.Range(0, 4)}
    lathe.testing.check_bool_expr_is_true(x + y < 9, ranges)
    lathe.testing.check_bool_expr_is_true(x + y < 5, ranges, cond=x < 2)
    with pytest.raises(AssertionError, match="x, y"):
        lathe.testing.check_bool_expr_is_true(x + y < 8, ranges)


COMPARE = """
    import pytest, tvm, tvm.testing
    from tvm.script import tir as T, ir as I

    @tvm.transform.module_pass(opt_level=0)
    def simplify(mod, ctx):
        return tvm.lower(mod)

    def raises(mod):
        raise ValueError("never")

    class Base(tvm.testing.CompareBeforeAfter):
        transform = simplify

    class TestScript(Base):
        def before(A: T.Buffer((4,), "int32")):
            A[0] = T.int32(1) + T.int32(2)
        def expected(A: T.Buffer((4,), "int32")):
            A[0] = 3

    N = 4

    class TestNames(Base):
        def before(A: T.Buffer((N,), "int32")):
            A[0] = T.int32(N) * T.int32(2)
        def expected(A: T.Buffer((4,), "int32")):
            A[0] = 8

    class TestModule(Base):
        class before:
            def one(A: T.Buffer((4,), "int32")):
                A[0] = T.int32(1) + T.int32(1)
            @T.prim_func
            def two(A: T.Buffer((4,), "int32")):
                A[0] = 5
        class expected:
            def one(A: T.Buffer((4,), "int32")):
                A[0] = 2
            def two(A: T.Buffer((4,), "int32")):
                A[0] = 5

    class TestWrong(Base):
        def before(A: T.Buffer((4,), "int32")):
            A[0] = T.int32(1) + T.int32(2)
        def expected(A: T.Buffer((4,), "int32")):
            A[0] = 4

    class TestFunctions(Base):
        @T.prim_func
        def before(A: T.Buffer((4,), "int32")):
            A[1] = 2 * 3
        def expected(self):
            @T.prim_func
            def f(A: T.Buffer((4,), "int32")):
                A[1] = 6
            return f

    class TestError(tvm.testing.CompareBeforeAfter):
        def transform(self):
            return raises
        @T.prim_func
        def before(A: T.Buffer((4,), "int32")):
            A[1] = 2
        expected = ValueError
"""


def test_compare_before_after(tmp_path):
    counts, out = run_tests(tmp_path, COMPARE)
    assert counts == {"passed": 5, "failed": 1}, out
    assert "the pass did not give what is expected" in out


def test_assert_prim_expr_equal():
    x = lathe.te.var("x")
    lathe.testing.assert_prim_expr_equal(x * 2 + 4, (x + 2) * 2)
    with pytest.raises(ValueError, match="not proved"):
        lathe.testing.assert_prim_expr_equal(x * 2, x)
