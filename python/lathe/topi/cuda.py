"""Schedules for GPUs are refused by name: kernels of models come from relay.build, others are bound by hand."""

from __future__ import annotations

from typing import Any

from .. import error


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise error.UnsupportedError(
        f"topi.cuda.{name} is not supported: bind the loops with te (s[C].bind(…, te.thread_axis(…))), "
        "or build the operator with relay.build"
    )
