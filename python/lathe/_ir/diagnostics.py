"""Who is told of an error in a program's text before it is raised."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

_listener: List[Callable[[Any], None]] = []


def set_listener(listener: Optional[Callable[[Any], None]]) -> None:
    """Errors in texts go to this function; None: to nobody."""
    _listener[:] = [] if listener is None else [listener]


def report(e: Any) -> None:
    """Tells the listener."""
    for listener in _listener:
        listener(e)
