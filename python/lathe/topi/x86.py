"""Schedules for x86 processors: those of topi.generic, which read the target when the function is built."""

from __future__ import annotations

from typing import Any

from . import generic


def __getattr__(name: str) -> Any:
    return generic.get(name)
