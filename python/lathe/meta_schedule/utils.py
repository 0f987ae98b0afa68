"""What the parts of MetaSchedule share."""

from __future__ import annotations

from typing import Any, Dict, NoReturn, Type, TypeVar

from .. import error

_C = TypeVar("_C", bound=type)


def derived_object(cls: _C) -> _C:
    """Decorator of a part that is written in Python; such a class is what it is here."""
    return cls


class Part:
    """A part of the search; a task tells it what it is about before it is used."""

    def initialize_with_tune_context(self, context: Any) -> None:
        """Called once for each task."""
        own = getattr(self, "_initialize_with_tune_context", None)
        if own is not None:
            own(context)

    def clone(self) -> Any:
        """Another one with the same settings."""
        import copy

        return copy.copy(self)


def absent(where: str, instead: str) -> Any:
    """A module's __getattr__ that says what TVM's other names in it come to here."""

    def get(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"meta_schedule.{where} has no '{name}': {instead}")

    return get


def kind_of(given: Any, base: Type[Any], kinds: Dict[str, Any], what: str) -> Any:
    """What is said for a part: an object, one of some words, or None for the first of those."""
    if given is None:
        return next(iter(kinds.values()))()
    if isinstance(given, str):
        if given not in kinds:
            raise error.ArgumentError(f"there is no {what} '{given}'; there are {', '.join(kinds)}")
        return kinds[given]()
    if not isinstance(given, base):
        words = ", ".join(kinds)
        raise error.TypeError(f"a {what} is a {base.__name__} or one of {words}, not a {type(given).__name__}")
    return given
