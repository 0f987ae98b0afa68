"""The pytest plugin: `pytest_plugins = ["lathe.testing.plugin"]` in a conftest.py.

A test that takes `target` (or `dev`) runs on each target of lathe.testing.enabled_targets(), less those that
exclude_targets names, and is expected to fail on those of known_failing_targets; `dev` is the target's device."""

from __future__ import annotations

from typing import Any, List

import pytest

from ..runtime.device import device
from .targets import _kind, enabled_targets, target_parameter


def pytest_configure(config: Any) -> None:
    """Names the marks."""
    config.addinivalue_line("markers", "lathe_exclude_targets(target…): the test does not run on these")
    config.addinivalue_line("markers", "lathe_failing_targets(target…): the test is expected to fail on these")
    config.addinivalue_line("markers", "slow: takes long")


def _named(item: Any, mark: str) -> List[str]:
    return [t for m in item.iter_markers(mark) for t in m.args]


def pytest_generate_tests(metafunc: Any) -> None:
    """Gives the targets to tests that take one and name none."""
    definition = metafunc.definition
    if "target" not in metafunc.fixturenames or metafunc._arg2fixturedefs.get("target"):
        return
    if any("target" in _argnames(m) for m in definition.iter_markers("parametrize")):
        return
    excluded = _named(definition, "lathe_exclude_targets")
    metafunc.parametrize(
        "target", [target_parameter(t) for t, _ in enabled_targets() if _kind(t) not in excluded], scope="session"
    )


def _argnames(mark: Any) -> List[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", [])
    return [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)


def pytest_collection_modifyitems(items: List[Any]) -> None:
    """Marks what exclude_targets and known_failing_targets name."""
    for item in items:
        target = getattr(item, "callspec", None) and item.callspec.params.get("target")
        if target is None:
            continue
        if _kind(target) in _named(item, "lathe_exclude_targets"):
            item.add_marker(pytest.mark.skip(reason=f"the test excludes {_kind(target)}"))
        if _kind(target) in _named(item, "lathe_failing_targets"):
            item.add_marker(pytest.mark.xfail(reason=f"the test is known to fail on {_kind(target)}"))


@pytest.fixture
def dev(target: Any) -> Any:
    """The device of the target."""
    return device(_kind(target))
