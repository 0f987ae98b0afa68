"""Tests of passes as classes: a program before, the one expected after."""

from __future__ import annotations

import inspect
from typing import Any, Callable

from ..ir.base import assert_structural_equal
from ..ir.module import IRModule
from ..script import from_source
from ..tir.function import PrimFunc
from .fixtures import _pytest


def _module(cls: type) -> IRModule:
    """The functions of a class, each under its name."""
    found = {n: f for n, f in vars(cls).items() if not n.startswith("_")}
    return IRModule(
        {n: (f if isinstance(f, PrimFunc) else from_source(f)).with_attr("global_symbol", n) for n, f in found.items()}
    )


def _is_method(func: Any) -> bool:
    return inspect.isfunction(func) and list(inspect.signature(func).parameters)[:1] == ["self"]


def _is_exception(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def _is_fixture(value: Any) -> bool:
    return type(value).__name__ == "FixtureFunctionDefinition" or hasattr(value, "_pytestfixturefunction")


def _program(value: Any) -> Any:
    """A fixture of the program: given as it is, by a method, as a class of functions, or as TVMScript."""
    if _is_fixture(value):
        return value
    if _is_method(value):
        return _pytest().fixture(value)
    if isinstance(value, (PrimFunc, IRModule)) or _is_exception(value):
        return _pytest().fixture(lambda self: value)
    if inspect.isclass(value):
        return _pytest().fixture(lambda self: _module(value))
    return _pytest().fixture(lambda self: from_source(value))


def _named(program: Any) -> Any:
    """A function under a name that all have: what it is called is not compared."""
    return program.with_attr("global_symbol", "main") if isinstance(program, PrimFunc) else program


def _apply(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Passes work on modules: a function goes in and out as the only one of a module."""

    def run(mod: Any) -> Any:
        if isinstance(mod, IRModule):
            return transform(mod)
        after = transform(IRModule({"main": mod}))
        return after["main"] if isinstance(after, IRModule) else after

    return run


class CompareBeforeAfter:
    """A test by inheritance:

    >>> class TestSimplify(tvm.testing.CompareBeforeAfter):
    ...     transform = tvm.tir.transform.Simplify()
    ...     def before(A: T.Buffer(1, "int32")): A[0] = 1 + 2
    ...     def expected(A: T.Buffer(1, "int32")): A[0] = 3

    before and expected are a PrimFunc, a module, TVMScript, a class of functions, or a method or fixture that gives
    one. transform is a pass, or a method or fixture that gives one.  expected may be an exception that the pass
    raises."""

    #: Programs of TVMScript are always checked when they are read.
    check_well_formed = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("before", "expected"):
            for spelled in (name, name.capitalize()):
                if spelled in vars(cls):
                    setattr(cls, name, _program(vars(cls)[spelled]))
        transform = vars(cls).get("transform")
        if transform is not None and not _is_fixture(transform):
            given = transform if _is_method(transform) else lambda self: transform
            setattr(cls, "transform", _pytest().fixture(given))

    def test_compare(self, before: Any, expected: Any, transform: Any) -> None:
        """The pass makes of the program before the one expected."""
        run = _apply(transform)
        if _is_exception(expected):
            with _pytest().raises(expected):
                run(before)
            return
        after = run(before)
        try:
            assert_structural_equal(_named(after), _named(expected))
        except ValueError as e:
            texts = (f"# {title}\n{p}" for title, p in (("before", before), ("after", after), ("expected", expected)))
            raise ValueError("the pass did not give what is expected:\n" + "\n".join(texts)) from e
