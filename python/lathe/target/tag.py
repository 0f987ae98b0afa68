"""Names for whole targets, as TVM has them: Target("raspberry-pi/4b-aarch64")."""

from __future__ import annotations

from typing import Any, Dict

from .. import error
from ._tags import _tags
from .target import Target


def list_tags() -> Dict[str, Any]:
    """All tags, and the targets that they stand for."""
    return {name: Target(name) for name in _tags}


def register_tag(name: str, config: Dict[str, Any], override: bool = False) -> Any:
    """Gives a target a name; the target."""
    if name in _tags and not override:
        raise error.ArgumentError(f"the tag '{name}' is taken; give override=True to replace it")
    Target(config)  # refused before the name is
    _tags[name] = dict(config)
    return Target(name)


__all__ = ["list_tags", "register_tag"]
