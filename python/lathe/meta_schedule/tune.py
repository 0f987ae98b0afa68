"""What the tuning functions of this package share."""

from __future__ import annotations

from typing import Any, List, NamedTuple

from .. import error
from .._ir.module import IRModule

#: Parts of MetaSchedule that Lathe's engine has one of, and what may be said for them.
_FIXED = {
    "builder": "local",
    "runner": "local",
    "cost_model": "xgb",
    "measure_callbacks": "default",
    "task_scheduler": "gradient",
    "space": "post-order-apply",
    "strategy": "evolutionary",
    "module_equality": "structural",
}


class ExtractedTask(NamedTuple):
    """A kernel of a network that can be tuned."""

    task_name: str
    mod: IRModule
    target: Any
    dispatched: List[IRModule]
    weight: int


def check(where: str, **given: Any) -> None:
    """Refuses parts that cannot be exchanged."""
    for name, value in given.items():
        if value is not None and value != _FIXED[name]:
            raise error.UnsupportedError(
                f"{where}: {name} is '{_FIXED[name]}'; another one cannot be put in its place"
            )
