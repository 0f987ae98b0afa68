"""Parameters and fixtures of tests, over pytest's."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

_groups = itertools.count()


def _pytest() -> Any:
    try:
        import pytest
    except ImportError:
        raise ImportError("this part of lathe.testing needs the pytest package: pip install pytest") from None
    return pytest


def parameter(*values: Any, ids: Any = None, by_dict: Optional[Dict[str, Any]] = None) -> Any:
    """A fixture with these values: tests that take it as an argument run once for each.

    >>> size = tvm.testing.parameter(1, 10, 100)
    ... def test_it(size): ..."""
    if by_dict is not None:
        if values or ids:
            raise ValueError("parameter: by_dict takes the place of values and ids")
        ids, values = zip(*by_dict.items()) if by_dict else ((), ())

    @_pytest().fixture(params=list(values), ids=ids)
    def as_fixture(*_self: Any, request: Any) -> Any:
        return copy.deepcopy(request.param) if isinstance(request.param, (list, dict, set)) else request.param

    return as_fixture


def parameters(*value_sets: Sequence[Any], ids: Any = None) -> List[Any]:
    """Fixtures whose values vary together, one for each place of the tuples given.

    >>> size, dtype = tvm.testing.parameters((1, "float32"), (10, "float16"))"""
    pytest = _pytest()
    if len({len(v) for v in value_sets}) > 1:
        raise ValueError("parameters: each set has the same number of values")
    ids = ids if ids is not None else ["-".join(_id(v) for v in values) for values in value_sets]
    name = f"parameters_group_{next(_groups)}"
    # The set is a fixture of its own in the namespace of the caller; each of those returned takes a place of it.
    sys._getframe(1).f_locals[name] = pytest.fixture(params=list(value_sets), ids=ids, name=name)(
        lambda *_self, request: request.param
    )

    def place(i: int) -> Any:
        def taken(*_self: Any, **group: Any) -> Any:
            return group[name][i]

        kinds = {
            "_self": inspect.Parameter.VAR_POSITIONAL,
            name: inspect.Parameter.KEYWORD_ONLY,
        }  # a class gives itself first
        setattr(taken, "__signature__", inspect.Signature([inspect.Parameter(*k) for k in kinds.items()]))
        return pytest.fixture(taken)

    return [place(i) for i in range(len(value_sets[0]) if value_sets else 0)]


def _id(value: Any) -> str:
    return (
        str(value)
        if isinstance(value, (str, int, float, bool, type(None)))
        else getattr(value, "__name__", type(value).__name__)
    )


def fixture(func: Optional[Callable[..., Any]] = None, *, cache_return_value: bool = False) -> Any:
    """A pytest fixture.  With cache_return_value the function runs once for each set of arguments, and each test gets
    a copy of its own of what it gave."""
    if func is None:
        return lambda f: fixture(f, cache_return_value=cache_return_value)
    return _pytest().fixture(_cached(func) if cache_return_value else func)


def _cached(func: Callable[..., Any]) -> Callable[..., Any]:
    results: List[Any] = []

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        for key, value in results:
            if key == (args, kwargs):
                return copy.deepcopy(value)
        results.append(((args, kwargs), func(*args, **kwargs)))
        return copy.deepcopy(results[-1][1])

    return run
