"""Checks of arrays and small functions that tests use."""

from __future__ import annotations

import os
import time
from typing import Any, Callable

import numpy as np

from .. import error


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True) -> None:
    """Raises unless two arrays have the same shape and close elements."""
    actual, desired = np.asanyarray(actual), np.asanyarray(desired)
    np.testing.assert_allclose(actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=verbose)


def check_numerical_grads(
    function: Callable[..., float],
    input_values: Any,
    grad_values: Any,
    function_value: Any = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Raises unless gradients agree with central differences of the function.

    input_values is a list of arrays, or a dictionary by the function's argument names; grad_values is like it."""
    if isinstance(input_values, dict):
        names = list(input_values)
        check_numerical_grads(
            lambda *xs: function(**dict(zip(names, xs))),
            [input_values[n] for n in names],
            [grad_values[n] for n in names],
            function_value,
            delta,
            atol,
            rtol,
        )
        return
    inputs = [np.asarray(x) for x in input_values]
    for k, (x, grad) in enumerate(zip(inputs, grad_values)):
        step = delta if x.dtype.itemsize >= 4 else 10 * delta

        def at(place: Any, change: float, k: int = k, x: np.ndarray = x) -> float:
            moved = x.copy()
            moved[place] += change
            return float(np.asarray(function(*inputs[:k], moved, *inputs[k + 1 :])).sum())

        want = np.array([(at(p, step) - at(p, -step)) / (2 * step) for p in np.ndindex(*x.shape)]).reshape(x.shape)
        np.testing.assert_allclose(
            np.asarray(grad),
            want,
            rtol=rtol,
            atol=max(atol, rtol * float(np.abs(want).max(initial=0.0))),
            err_msg=f"gradient of argument {k} differs from central differences",
        )


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raises unless both expressions are proved to be equal for all values of their variables."""
    from ..arith import Analyzer

    if not Analyzer().can_prove_equal(lhs, rhs):
        raise ValueError(f"{lhs} and {rhs} are not proved to be equal")


def check_bool_expr_is_true(bool_expr: Any, vranges: Any, cond: Any = None) -> None:
    """Raises unless an expression holds for every value of the variables in their ranges (where cond holds)."""
    from .. import tir
    from .._ffi import WORLD, call
    from ..build_module import build
    from ..runtime.ndarray import array
    from ..tir import ir_builder
    from ..tir.expr import convert

    ib = ir_builder.create()
    failed = tir.decl_buffer((1,), "int32", name="failed")
    out = ib.buffer_ptr(failed)
    scopes, values = [], []
    for v, r in vranges.items():
        scope = ib.for_range(0, r.extent, name=v.name)
        values.append(convert(scope.__enter__() + r.min))
        scopes.append(scope)
    wrong = tir.Not(bool_expr) if cond is None else tir.And(tir.all(cond), tir.Not(bool_expr))
    with ib.if_scope(call("substitute", WORLD, wrong, list(vranges), values)):
        out[0] = 1
    for scope in reversed(scopes):
        scope.__exit__(None, None, None)
    answer = array(np.zeros(1, "int32"))
    build(tir.PrimFunc([failed], ib.get()))(answer)
    if answer.numpy()[0]:
        raise AssertionError(f"{bool_expr} does not hold for every value of {', '.join(v.name for v in vranges)}")


def slow(fn: Any) -> Any:
    """Marks a test that takes long: it is skipped where SKIP_SLOW_TESTS is set."""
    import pytest

    return pytest.mark.skipif(
        os.environ.get("SKIP_SLOW_TESTS", "").lower() in ("1", "true"), reason="SKIP_SLOW_TESTS is set"
    )(fn)


def identity_after(x: Any, sleep: float) -> Any:
    """Its argument, after a while: for tests of pools of workers."""
    if sleep:
        time.sleep(sleep)
    return x


def terminate_self() -> None:
    """Ends the process that calls it: for tests of pools of workers."""
    os._exit(-1)


def object_use_count(obj: Any) -> int:
    """Not known here: objects belong to the compiler."""
    raise error.UnsupportedError("object_use_count: objects of the compiler are not counted by reference")


def install_request_hook(depth: int) -> None:
    """Redirects downloads to a mirror in TVM's own tests.  Nothing is downloaded here, so nothing is redirected."""
